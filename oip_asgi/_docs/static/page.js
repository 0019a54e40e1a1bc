// The page that shows the models. It asks the server's own paths, which it finds relative to its own address.

import { draw } from "./plot.js";
import { curl, parse, pretty, python } from "./snippets.js";
import { change, digits, sumOf } from "./statistics.js";

const MOUNT = new URL("../", import.meta.url);
const STATISTICS_EVERY = 2000, MODELS_EVERY = 10000;  // milliseconds
const MOMENTS = 60;  // of each plot
const MOST_SHOWN = 200000;  // characters of an answer
const STATES = { READY: ["ready", "good"], LOADING: ["loading", ""], UNLOADING: ["unloading", ""], UNAVAILABLE: ["unavailable", "bad"] };

const at = (id) => document.getElementById(id);
let models = new Map();  // by name: its entries in the index
let shown = null;  // the model that is shown
let sending = null;  // aborts the request that is under way

class Refused extends Error {}

/** What a path of the server answers, as text. */
async function ask(path, options) {
  let response;
  try {
    response = await fetch(new URL(path, MOUNT), { ...options, headers: { ...typed(), ...options?.headers } });
  } catch {
    throw new Refused("The server does not answer.");
  }
  const text = await response.text();
  if (!response.ok) throw new Refused(`${response.status}: ${errorOf(text)}`);
  return text;
}

const asJSON = async (path, options) => JSON.parse(await ask(path, options));

function errorOf(text) {
  try {
    const { error, detail } = JSON.parse(text);
    return error ?? (typeof detail === "string" ? detail : text);
  } catch {
    return text.slice(0, 500) || "no text";
  }
}

function made(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function tell(message) {
  at("message").textContent = message;
  at("message").hidden = !message;
}

function badge(element, text, kind) {
  element.className = `badge ${kind}`;
  if (element.textContent !== text) element.textContent = text;
}

// The list of models

async function listModels() {
  try {
    const entries = await asJSON("repository/index", { method: "POST" });
    models = grouped(entries);
    tell("");
  } catch (error) {
    tell(`The models cannot be listed. ${error.message}`);
    return;
  }
  const all = [...models.values()].flat();
  const ready = all.filter((entry) => entry.state === "READY").length;
  badge(at("ready"), `${ready} of ${all.length} ready`, ready === all.length ? "good" : "");
  showList();
  const entry = shown && entryOf(shown);
  if (entry) showState(entry);
  else choose();
}

function grouped(entries) {
  const groups = new Map();
  for (const entry of entries) groups.set(entry.name, [...(groups.get(entry.name) ?? []), entry]);
  return groups;
}

function entryOf({ name, version }) {
  const entries = models.get(name) ?? [];
  return entries.find((entry) => entry.version === version) ?? entries[0];
}

function showList() {
  const wanted = at("filter").value.toLowerCase();
  at("filter").hidden = models.size < 8;
  const focused = document.activeElement?.closest?.("#models a")?.getAttribute("href");
  at("models").replaceChildren(...[...models.keys()].filter((name) => name.toLowerCase().includes(wanted)).map(listItem));
  if (focused) at("models").querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}

function listItem(name) {
  const states = models.get(name).map((entry) => entry.state);
  const state = ["UNAVAILABLE", "LOADING", "UNLOADING"].find((each) => states.includes(each)) ?? "READY";
  const link = made("a", name, STATES[state][1]);
  link.href = addressOf(name);
  if (state !== "READY") link.append(" ", made("span", STATES[state][0], "faint"));
  if (shown?.name === name) link.setAttribute("aria-current", "page");
  const item = made("li");
  item.append(link);
  return item;
}

function addressOf(name, version) {
  return `#${new URLSearchParams(version === undefined ? { model: name } : { model: name, version })}`;
}

/** Show the model that the address names, else the first. */
function choose() {
  const named = new URLSearchParams(location.hash.slice(1));
  const name = named.get("model") ?? models.keys().next().value;
  at("model").hidden = !models.has(name);
  if (name === undefined) return tell("No model is registered.");
  if (!models.has(name)) return tell(`There is no model ${JSON.stringify(name)}.`);
  return showModel(name, named.get("version") ?? undefined);
}

// One model

function pathOf(name, version) {
  const path = `models/${encodeURIComponent(name)}`;
  return version === undefined ? path : `${path}/versions/${encodeURIComponent(version)}`;
}

async function showModel(name, version) {
  const path = pathOf(name, version);
  sending?.abort();
  const model = { name, version, path, moments: [], last: null };
  shown = model;
  showList();
  try {
    const [metadata, config, described] = await Promise.all([asJSON(path), asJSON(`${path}/config`), ask(`${path}/openapi.json`)]);
    if (shown !== model) return;
    model.metadata = metadata;
    model.actions = actionsOf(parse(described), path);
    model.optional = new Set(config.input.filter((input) => input.optional).map((input) => input.name));
    tell("");
  } catch (error) {
    if (shown === model) { at("model").hidden = true; tell(error.message); }
    return;
  }
  document.title = `${name} · ${at("server").textContent}`;
  at("model").hidden = false;
  at("name").textContent = name;
  at("about").textContent = `platform ${model.metadata.platform}` + (model.actions.has("generate_stream") ? ", answers with streams" : "");
  at("totals").textContent = "";
  showVersions(model);
  showState(entryOf(model));
  at("inputs").replaceChildren(tableOf(model.metadata.inputs, model.optional));
  at("outputs").replaceChildren(tableOf(model.metadata.outputs, new Set()));
  showPlots(model);
  showForm(model);
  readStatistics();
}

/** The paths to which a body is posted, by their last segment: what is said of the body, and an example where there is one. */
function actionsOf(document, path) {
  const found = new Map();
  for (const [each, { post }] of Object.entries(document.paths)) {
    const [, parent, action] = /^\/(.*)\/([^/]*)$/.exec(each) ?? [];
    if (!post || decodeURIComponent(parent) !== decodeURIComponent(path)) continue;  // not all encode the same characters
    const { description = "", content } = post.requestBody;
    found.set(action, { description, example: content["application/json"].example });
  }
  return found;
}

function showVersions(model) {
  const versions = model.metadata.versions ?? [];
  at("versions").hidden = !versions.length;
  const options = ["default", ...versions].map((text, index) => new Option(text, index ? text : ""));
  at("chosen-version").replaceChildren(...options);
  at("chosen-version").value = model.version ?? "";
}

function showState(entry) {
  const [text, kind] = STATES[entry?.state] ?? ["unknown", ""];
  badge(at("state"), entry?.reason ? `${text}: ${entry.reason}` : text, kind);
}

function tableOf(tensors, optional) {
  if (!tensors.length) return made("p", "Not declared.", "faint");
  const table = made("table"), head = table.createTHead().insertRow();
  for (const title of ["name", "datatype", "shape"]) head.append(Object.assign(made("th", title), { scope: "col" }));
  const body = table.createTBody();
  for (const { name, datatype, shape, parameters } of tensors) {
    const row = body.insertRow();
    const notes = [optional.has(name) && "optional", parameters?.content_type].filter(Boolean);
    row.append(made("td", name), made("td", datatype), made("td", `[${shape.join(", ")}]`));
    if (notes.length) row.cells[0].append(" ", made("span", `(${notes.join(", ")})`, "faint"));
  }
  return table;
}

// Statistics

async function readStatistics() {
  const model = shown;
  if (!model?.metadata || document.hidden) return;
  let statistics;
  try {
    statistics = sumOf((await asJSON(`${model.path}/stats`)).model_stats);
  } catch {
    statistics = null;
  }
  if (shown !== model) return;
  const now = performance.now();
  model.moments.push(statistics && model.last ? change(model.last, statistics, now) : { rate: null, latency: null });
  model.moments.splice(0, model.moments.length - MOMENTS);
  model.last = statistics && { ...statistics, now };
  showPlots(model);
  if (statistics) showTotals(statistics, model);
}

function showPlots({ moments }) {
  showPlot("rate", "Requests each second", moments.map((moment) => moment.rate), "");
  showPlot("latency", "Mean latency", moments.map((moment) => moment.latency), " ms");
}

function showPlot(id, title, values, unit) {
  const known = values.filter((value) => value !== null);
  const [now, most] = [known[known.length - 1], Math.max(...known)].map((value) => (known.length ? digits(value) + unit : "–"));
  at(id).textContent = now;
  at(`most-${id}`).textContent = known.length ? `at most ${most}` : "";
  draw(at(`${id}-plot`), values, MOMENTS, `${title} in the last ${(MOMENTS * STATISTICS_EVERY) / 60000} minutes: now ${now}, at most ${most}`);
}

function showTotals({ count, failed, ns, queued }, { moments }) {
  const mean = count ? `, ${digits(ns / count / 1e6)} ms each, ${digits(queued / count / 1e6)} ms of it in the queue` : "";
  const others = moments.some((moment) => moment.isOther) ? " Several processes seem to answer: each counts its own requests." : "";
  at("totals").textContent = `${count} ${count === 1 ? "request" : "requests"} since the start, ${failed} failed${mean}.${others}`;
}

// The form

function showForm(model) {
  at("action").replaceChildren(...[...model.actions.keys()].map((action) => new Option(action, action)));
  at("answer").replaceChildren();
  showExample();
}

function showExample() {
  const { description, example } = shown.actions.get(at("action").value);
  at("hint").hidden = !description;
  at("hint").textContent = description.replaceAll("`", "");
  at("body").value = example === undefined ? zeros(shown.metadata.inputs, shown.optional) : pretty(example);
  showSnippets();
}

/** An inference request for tensors that are too large for an example in the document. */
function zeros(inputs, optional) {
  const element = (datatype) => ({ BYTES: '"text"', BOOL: "false" })[datatype] ?? "0";
  const tensors = inputs.filter(({ name }) => !optional.has(name)).map(({ name, datatype, shape }) => {
    const sizes = shape.map((size) => (size === -1 ? 1 : size));
    const row = Array(sizes[sizes.length - 1] ?? 1).fill(element(datatype)).join(",");
    const data = Array(sizes.slice(0, -1).reduce((product, size) => product * size, 1)).fill(row).join(",\n");
    return `{"name":${JSON.stringify(name)},"datatype":"${datatype}","shape":[${sizes}],"data":[\n${data}]}`;
  });
  return `{"inputs":[${tensors.join(",\n")}]}`;
}

/** The headers that the reader has typed, such as a key that the host asks for. */
function typed() {
  const headers = {};
  for (const line of at("headers").value.split("\n")) {
    const [, name, value] = /^\s*([^:\s]+)\s*:\s*(.*?)\s*$/.exec(line) ?? [];
    if (name) headers[name] = value;
  }
  return headers;
}

function request() {
  const action = at("action").value;
  return { url: new URL(`${shown.path}/${action}`, MOUNT).href, headers: typed(), body: at("body").value, streams: action.endsWith("_stream") };
}

function showSnippets() {
  const { url, headers, body, streams } = request();
  at("address").textContent = new URL(url).pathname;
  at("curl").textContent = curl(url, headers, body, streams);
  at("python").textContent = python(url, headers, body, streams);
}

async function send() {
  const { url, headers, body, streams } = request();
  sending?.abort();
  const controller = sending = new AbortController();
  at("send").disabled = true;
  const begun = performance.now();
  try {
    const described = { "Content-Type": "application/json", ...headers };
    const response = await fetch(url, { method: "POST", headers: described, body, signal: controller.signal });
    if (streams && response.ok) await showStream(response, begun);
    else showAnswer(response, await response.text(), performance.now() - begun);
  } catch (error) {
    if (!controller.signal.aborted) at("answer").replaceChildren(made("p", `The request failed: ${error.message}`, "failed"));
  } finally {
    if (sending === controller) at("send").disabled = false;
  }
}

function statusLine(response, more) {
  const line = made("div", undefined, "line");
  line.append(made("span", `${response.status} ${response.statusText}`.trim(), `badge ${response.ok ? "good" : "bad"}`), made("span", more, "faint"));
  return line;
}

function showAnswer(response, text, milliseconds) {
  const line = statusLine(response, `${digits(milliseconds)} ms, ${text.length.toLocaleString("en")} characters`);
  if (!response.ok) return at("answer").replaceChildren(line, made("p", errorOf(text), "failed"));
  return at("answer").replaceChildren(line, block(readable(text)));
}

function readable(text) {
  try {
    return pretty(parse(text));
  } catch {
    return text;
  }
}

function block(text) {
  const cut = text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}\n… ${text.length - MOST_SHOWN} characters more` : text;
  return Object.assign(made("pre", cut), { tabIndex: 0 });
}

async function showStream(response, begun) {
  const pre = block(""), decoder = new TextDecoder();
  const line = statusLine(response, "");
  at("answer").replaceChildren(line, pre);
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (pre.textContent.length < MOST_SHOWN) pre.append(decoder.decode(value, { stream: true }));
    line.lastChild.textContent = `${digits(performance.now() - begun)} ms`;
  }
}

async function copy(button) {
  const source = at(button.dataset.copies);
  try {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } catch {  // without TLS a browser does not let pages write there
    getSelection().selectAllChildren(source);
  }
}

function listen() {
  at("filter").addEventListener("input", showList);
  at("action").addEventListener("change", showExample);
  at("reset").addEventListener("click", showExample);
  at("body").addEventListener("input", showSnippets);
  at("headers").addEventListener("input", () => { if (shown) showSnippets(); });
  at("headers").addEventListener("change", greet);
  at("chosen-version").addEventListener("change", ({ target }) => { location.hash = addressOf(shown.name, target.value || undefined); });
  at("try").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  at("try").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); send(); }
  });
  for (const button of document.querySelectorAll("[data-copies]")) button.addEventListener("click", () => copy(button));
  addEventListener("hashchange", () => { if (location.hash !== "#detail") choose(); });  // that is the link that skips the list
  document.addEventListener("visibilitychange", () => { if (!document.hidden) listModels(); });
}

/** Show the server and its models, now that the headers may be others. */
async function greet() {
  tell("");
  try {
    const { name, version } = await asJSON(".");
    document.title = at("server").textContent = name;
    at("version").textContent = version;
  } catch (error) {
    tell(error.message);
  }
  await listModels();
}

async function begin() {
  listen();
  await greet();
  setInterval(readStatistics, STATISTICS_EVERY);
  setInterval(() => { if (!document.hidden) listModels(); }, MODELS_EVERY);
}

begin();
