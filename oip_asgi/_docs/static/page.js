// The page that shows the models. It asks the server's own paths, which it finds relative to its own address.

import { sizeOf } from "./arrays.js";
import { awaitAnswer, errorOf, hideAnswer, listenToAnswer, showAnswer, showFailure, showStream } from "./answer.js";
import { fieldText, Mistake, typeOf } from "./cells.js";
import { at, chooseTab, copyBy, copyButton, listenToTabs, made, saveButton, tableRows } from "./elements.js";
import { Fields, MOST_WRITTEN } from "./fields.js";
import { withMissing } from "./frame.js";
import { isJSON, literal, parse, pretty } from "./json.js";
import { MOMENTS, READ_EVERY, showNumbers } from "./numbers.js";
import { elementsOf } from "./prose.js";
import { LANGUAGES, declaration, fileOf } from "./snippets.js";
import { change, digits } from "./statistics.js";
import { numberOf, plainData } from "./tensors.js";
import { linkOf, readLink, remember } from "./visit.js";

const MOUNT = new URL("../", import.meta.url);
const MODELS_EVERY = 10000;  // milliseconds
const STATES = { READY: ["ready", "good"], LOADING: ["loading", ""], UNLOADING: ["unloading", ""], UNAVAILABLE: ["unavailable", "bad"] };

let models = new Map();  // by name: its entries in the index
let shown = null;  // the model that is shown
let fields = null;  // of the action that is chosen
let parts = [];  // the tensors whose bytes follow the JSON
let sending = null;  // aborts the request that is under way
let refused = null;  // the headers with which the host has refused a request

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
  if (!response.ok) {
    askForHeaders(response);
    throw new Refused(`${response.status}: ${errorOf(text)}`);
  }
  return text;
}

const asJSON = async (path, options) => JSON.parse(await ask(path, options));

/** The host wants to know who asks. The reader is asked once, until other headers are tried. */
function askForHeaders({ status }) {
  if (status !== 401 || refused === at("headers").value) return;
  refused = at("headers").value;
  at("sent").open = true;
  at("headers").focus();
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
  const all = [...models.values()].flat();
  const ready = all.filter((entry) => entry.state === "READY").length;
  badge(at("ready"), `${ready} of ${all.length} ready`, ready === all.length ? "good" : "");
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
  link.href = linkOf({ name });
  if (state !== "READY") link.append(" ", made("span", STATES[state][0], "faint"));
  if (shown?.name === name) link.setAttribute("aria-current", "page");
  const item = made("li");
  item.append(link);
  return item;
}

/** Show the model that the address names, else the first, and the request that the address carries. */
async function choose() {
  const { name = models.keys().next().value, version, ...request } = readLink(location.hash);
  at("model").hidden = !models.has(name);
  if (name === undefined) return tell("No model is registered.");
  if (!models.has(name)) return tell(`There is no model ${JSON.stringify(name)}.`);
  await showModel(name, version);
  return fillIn(request);
}

// One model

function pathOf(name, version) {
  const path = `models/${encodeURIComponent(name)}`;
  return version === undefined ? path : `${path}/versions/${encodeURIComponent(version)}`;
}

/** Show a model. What is known of it already, its metadata and document, need not be asked for. */
async function showModel(name, version, known) {
  const path = pathOf(name, version);
  sending?.abort();
  const model = { name, version, path, moments: [], last: null };
  shown = model;
  at("model").inert = true;  // what is there is another model's until this one is known
  showList();
  try {
    const { metadata, document: described } = known ?? await read(path);
    if (shown !== model) return;
    model.metadata = metadata;
    model.actions = actionsOf(described, path);
    model.controls = controlsOf(described);
    tell("");
  } catch (error) {
    if (shown !== model) return;
    shown = null;
    at("model").hidden = true;
    tell(error.message);
    return;
  }
  document.title = `${name} · ${at("server").textContent}`;
  at("model").hidden = at("model").inert = false;
  at("name").textContent = name;
  const about = [...model.actions.values()][0];
  at("about").textContent = `platform ${model.metadata.platform}` + (model.actions.has("generate_stream") ? ", answers with streams" : "");
  at("docstring").hidden = !about?.docstring;
  at("docstring").replaceChildren(...elementsOf(about?.docstring ?? ""));
  showVersions(model);
  showState(entryOf(model));
  at("inputs").replaceChildren(tableOf(model.metadata.inputs, about?.inputs ?? []));
  at("outputs").replaceChildren(tableOf(model.metadata.outputs, []));
  at("options").replaceChildren();
  showNumbers(model);
  showForm(model);
  readNumbers();
}

async function read(path) {
  const [metadata, described] = await Promise.all([asJSON(path), ask(`${path}/openapi.json`)]);
  return { metadata, document: parse(described) };
}

/** The paths to which a body is posted, by their last segment: what is said of it, its inputs, and an example where there is one. */
function actionsOf(described, path) {
  const found = new Map();
  for (const [each, { post }] of Object.entries(described.paths)) {
    const [, parent, action] = /^\/(.*)\/([^/]*)$/.exec(each) ?? [];
    if (!post || decodeURIComponent(parent) !== decodeURIComponent(path)) continue;  // not all encode the same characters
    const { description = "", content } = post.requestBody;
    const { schema, example } = content["application/json"];
    const { properties } = described.components.schemas[schema.$ref.split("/").at(-1)];
    found.set(action, { description, docstring: post.description, example, schemas: schemasOf(properties) });
  }
  const whole = found.get("infer") ?? found.get("infer_stream");
  for (const action of found.values()) action.inputs = inputsOf(whole);
  return found;
}

/** What this client may do to the model: "load", "unload". */
function controlsOf(described) {
  return Object.keys(described.paths).filter((path) => path.startsWith("/repository/")).map((path) => path.split("/").at(-1));
}

/** The schemas of all inputs that a request may have. */
function schemasOf({ inputs }) {
  return [inputs?.items ?? []].flatMap((items) => items.oneOf ?? items).filter(({ title }) => title);
}

/** What is known of each input of a model: what is declared, and else what the example has. */
function inputsOf({ schemas, example }) {
  const examples = example?.inputs ?? [];
  const all = new Set([...schemas.map(({ title }) => title), ...examples.map(({ name }) => name)]);
  return [...all].map((name) => {
    const schema = schemas.find(({ title }) => title === name)?.properties.data ?? {};
    const declared = shown.metadata.inputs.find((input) => input.name === name) ?? { name };
    const isOptional = example !== undefined && !examples.some((tensor) => tensor.name === name);
    return describe(declared, schema, isOptional);
  });
}

/** An input as the fields want it: also its choices, its default as text, and whether its values may be missing. */
function describe(declared, schema, isOptional) {
  const { datatype, parameters } = declared, { content_type: contentType, pd_dtype: dtype, pd_categories: categories } = parameters ?? {};
  const isFrame = shown.metadata.parameters?.content_type === "pd";
  const isText = datatype === "BYTES" && ["str", "datetime"].includes(contentType);
  return {
    ...declared, contentType, isOptional,
    choices: schema.items?.enum ?? (categories && contentType !== "pd_json" ? parse(categories).data : undefined),
    hint: schema.default === undefined ? "" : `default ${[schema.default].flat().map(fieldText).join(", ")}`,
    isNullable: contentType !== "pd_json" && isFrame && (/^FP/.test(datatype) || isText || dtype !== undefined),
    zone: dtype?.includes(", ") ? "Z" : "",
  };
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
  showControls(entry);
}

/** Offer what this client may do to a model in its state. */
function showControls(entry) {
  const isReady = entry?.state === "READY";
  at("load").textContent = isReady ? "Reload" : "Load";
  at("load").hidden = !shown.controls?.includes("load");
  at("unload").hidden = !shown.controls?.includes("unload") || !isReady;
}

/** Load or unload the model, all its versions. */
async function control(action, button) {
  const { name } = shown, told = "Requests to it are refused until it is loaded again.";
  if (action === "unload" && !confirm(`Unload ${name}? ${told}`)) return;
  button.disabled = true;
  badge(at("state"), action === "load" ? "loading" : "unloading", "");
  let problem = "";
  try {
    await ask(`repository/models/${encodeURIComponent(name)}/${action}`, { method: "POST" });
  } catch ({ message }) {
    problem = message;
  }
  button.disabled = false;
  await listModels();
  if (problem) tell(problem);
  else if (shown?.name === name && action === "load") await showModel(name, shown.version);  // it may declare something else now
}

function tableOf(tensors, inputs) {
  if (!tensors.length) return made("p", "Not declared.", "faint");
  const optional = new Set(inputs.filter((input) => input.isOptional).map((input) => input.name));
  const table = made("table"), head = table.createTHead().insertRow();
  for (const title of ["name", "datatype", "shape"]) head.append(Object.assign(made("th", title), { scope: "col" }));
  const body = table.createTBody();
  for (const { name, datatype, shape, parameters } of tensors) {
    const row = body.insertRow();
    const notes = [optional.has(name) && "optional", parameters?.content_type && typeOf("", parameters.content_type)].filter(Boolean);
    row.append(made("td", name), made("td", datatype), made("td", `[${shape.join(", ")}]`));
    if (notes.length) row.cells[0].append(" ", made("span", `(${notes.join(", ")})`, "faint"));
  }
  return table;
}

// Numbers

async function readNumbers() {
  const model = shown;
  if (!model?.metadata || document.hidden) return;
  let state;
  try {
    state = { ...await asJSON(`${model.path}/docs/state.json`), now: performance.now() };
  } catch {
    state = null;
  }
  if (shown !== model) return;
  model.moments.push(state && model.last ? change(model.last, state) : null);
  model.moments.splice(0, model.moments.length - MOMENTS);
  model.isShared ||= Boolean(state && model.last && model.moments.at(-1) === null);
  model.last = state;
  showNumbers(model);
  if (state && !at("options").firstChild) showOptions(state);
}

function showOptions({ options, labels }) {
  const rows = Object.entries(options).map(([name, value]) => [`${name}=`, literal(pretty(value))]);
  for (const [name, texts] of Object.entries(labels)) rows.push([`labels of ${name}`, texts.join(", ")]);
  const table = made("table");
  table.append(...tableRows(rows));
  at("options").replaceChildren(table);
}

// The form

function showForm(model) {
  at("action").replaceChildren(...[...model.actions.keys()].map((action) => new Option(action, action)));
  showExample();
}

function showExample() {
  const { description, example, inputs } = shown.actions.get(at("action").value);
  hideAnswer();
  at("declare").hidden = true;
  at("hint").hidden = !description;
  at("hint").textContent = description.replaceAll("`", "");
  fields = new Fields(inputs);
  at("fields").replaceChildren(fields.element);
  at("body").value = example === undefined ? "" : pretty(example);
  chooseTab(at("with-fields"));  // which takes the body into the fields
  if (example === undefined) fields.fill(inputs.filter(({ isOptional }) => !isOptional).map(zeros));
  parts = [];
  if (example === undefined) takeFields();
  else showSnippets();
}

/** Fill in a request that a link carries. */
function fillIn({ action, body }) {
  if (body === undefined || !shown?.actions?.has(action) || !isJSON(body)) return;
  at("action").value = action;
  showExample();
  at("body").value = pretty(parse(body));
  chooseTab(at("with-fields"));
  showSnippets();
}

/** A small input beside one that is too large for an example. A large one has zeros by itself. */
function zeros({ name, datatype, shape }) {
  const count = sizeOf(shape), zero = { BYTES: "text", BOOL: false }[datatype] ?? 0;
  return { name, datatype, shape: shape.map((size) => (size === -1 ? 1 : size)), ...(count > MOST_WRITTEN ? { parameters: { binary_data_size: 0 } } : { data: Array(count).fill(zero) }) };
}

/** The tensors of a body: those of an inference request, or the members of a flat object. */
function tensorsOf(body) {
  const document = parse(body);
  if (at("action").value.startsWith("infer")) return Array.isArray(document.inputs) ? document.inputs : [];
  return Object.entries(document).map(([name, value]) => ({ name, data: [value].flat(Infinity) }));
}

/** Write the body from the fields. Large arrays follow the JSON as bytes, but in a flat object, which is JSON alone. */
function writeBody() {
  for (const each of at("fields").querySelectorAll("[aria-invalid]")) each.removeAttribute("aria-invalid");
  const tensors = fields.tensors(), isWhole = at("action").value.startsWith("infer");
  parts = isWhole ? tensors.filter(({ bytes }) => bytes) : [];
  at("body").value = isWhole ? pretty({ inputs: tensors.map(wholeTensor) }) : pretty(Object.fromEntries(tensors.map(flatMember)));
}

function wholeTensor({ bytes, values, code, ...tensor }) {
  return bytes ? { ...tensor, parameters: { binary_data_size: bytes.length } } : withMissing(tensor);
}

function flatMember({ name, shape, data, values = data }) {
  return [name, shape.length > 1 || values.length !== 1 ? values : values[0]];
}

/** Take what the reader has written into a field. */
function takeFields() {
  try {
    writeBody();
    showMistake();
  } catch (error) {
    if (!(error instanceof Mistake)) throw error;
    showMistake(error);
  }
  showSnippets();
}

function showMistake(mistake) {
  mistake?.control.setAttribute("aria-invalid", "true");
  const told = at("fields").querySelector(".failed");
  told?.remove();
  if (mistake) at("fields").append(Object.assign(made("p", mistake.message, "failed"), { role: "alert" }));
}

/** The fields are chosen, or the JSON. */
function chosenForm(tab) {
  if (tab !== at("with-fields")) return;
  try {
    fields.fill(tensorsOf(at("body").value));
    showMistake();
  } catch {  // no JSON: the fields stay as they are
  }
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
  const action = at("action").value, body = at("body").value;
  const { name, version, path } = shown;
  const url = new URL(`${path}/${action}`, MOUNT).href;
  const file = action === "infer" && !at("fields").hidden ? fields.body : undefined;
  const behind = body.includes("binary_data_size") ? parts : [];
  const sources = fields.sources.filter(({ text }) => body.includes(text));
  return { name, version, action, url, headers: typed(), body, file, parts: behind, sources, streams: action.endsWith("_stream") };
}

/** What is sent: a file, JSON, or JSON and the bytes of tensors; and the headers that say so. */
function contentOf({ body, file, parts: behind }) {
  if (file) return [file, { "Inference-Header-Content-Length": "0" }];
  if (!behind.length) return [body, { "Content-Type": "application/json" }];
  const json = new TextEncoder().encode(body);
  return [new Blob([json, ...behind.map(({ bytes }) => bytes)]), { "Inference-Header-Content-Length": `${json.length}` }];
}

/** Offer the languages in which the request can be written. */
function showSnippets() {
  const asked = request();
  at("link").hidden = Boolean(asked.file) || asked.parts.length > 0 || !linkOf(asked);
  at("address").textContent = new URL(asked.url).pathname;
  const chosen = at("languages").querySelector("[aria-selected=true]")?.textContent;
  shown.code = Object.entries(LANGUAGES).map(([name, { make }]) => [name, make(asked)]).filter(([, code]) => code);
  at("languages").replaceChildren(...shown.code.map(([name]) => {
    const tab = Object.assign(made("button", name), { type: "button", role: "tab" });
    tab.setAttribute("aria-controls", "snippet");
    return tab;
  }));
  const tabs = [...at("languages").children];
  chooseTab(tabs.find((tab) => tab.textContent === chosen) ?? tabs[0]);
}

function showSnippet({ textContent: name }) {
  const asked = request(), file = fileOf(asked), isNamed = Boolean(file) && shown.code.some(([each, code]) => each === name && code.includes(file));
  at("save-body").replaceChildren(...(isNamed ? [saveButton(file, () => new Blob([contentOf(asked)[0]]), `Save ${file}`)] : []));
  at("note").textContent = LANGUAGES[name].note ?? "";
  at("code").textContent = shown.code.find(([each]) => each === name)[1];
}

async function send() {
  const wrong = at("fields").hidden ? null : at("fields").querySelector("[aria-invalid]");
  if (wrong) return wrong.focus();
  const asked = request(), { url, headers, body, file, streams } = asked, [content, described] = contentOf(asked);
  sending?.abort();
  const controller = sending = new AbortController();
  at("send").disabled = true;
  at("declare").hidden = true;
  awaitAnswer();
  const begun = performance.now(), { name, last } = shown, spent = () => digits(performance.now() - begun);
  try {
    const response = await fetch(url, { method: "POST", headers: { ...described, ...headers }, body: content, signal: controller.signal });
    askForHeaders(response);
    const end = () => remember(asked, `${response.status}`, response.ok, spent());
    if (streams && response.ok) return void await showStream(response, begun, { name, stop: () => controller.abort() }).finally(end);
    const { text } = await showAnswer(response, begun, { name, sent: sentIn(file ? "" : body), labels: last?.labels ?? {} });
    end();
    if (response.ok && !file && !asked.parts.length) showDeclaration(body, text);
  } catch (error) {
    if (controller.signal.aborted) return;
    showFailure(`The request failed: ${error.message}`);
    remember(asked, "failed", false, spent());
  } finally {
    if (sending === controller) at("send").disabled = false;
  }
}

/** The inputs of a body, for what is shown beside the outputs. */
function sentIn(body) {
  return isJSON(body) ? tensorsOf(body).map((tensor) => ({ ...tensor, shape: tensor.shape?.map(numberOf), data: plainData(typedAs(tensor)) })) : [];
}

/** A tensor with the content type that its input declares, if it has none of its own. */
function typedAs(tensor) {
  const declared = shown.metadata.inputs.find(({ name }) => name === tensor.name)?.parameters;
  return { ...tensor, parameters: { ...declared, ...tensor.parameters } };
}

/** What to write so that the next requests are checked, if the model does not declare what was sent and answered. */
function showDeclaration(body, text) {
  const [sent, { outputs }] = [tensorsOf(body), parse(text)];
  if (!outputs || !sent.every(({ shape }) => shape)) return;
  const namesOfAll = (tensors) => tensors.map(({ name }) => name);
  const declared = { inputs: namesOfAll(shown.metadata.inputs), outputs: namesOfAll(shown.metadata.outputs) };
  const line = declaration(sent, outputs, declared);
  at("declare").hidden = !line;
  at("declaration").textContent = line;
}

function listen() {
  at("filter").addEventListener("input", showList);
  at("action").addEventListener("change", showExample);
  at("reset").addEventListener("click", showExample);
  at("link").addEventListener("click", ({ target }) => copyBy(target, new URL(linkOf(request()), location.href).href));
  at("load").addEventListener("click", ({ target }) => control("load", target));
  at("unload").addEventListener("click", ({ target }) => control("unload", target));
  at("body").addEventListener("input", showSnippets);
  at("fields").addEventListener("input", takeFields);
  at("fields").addEventListener("click", ({ target }) => { if (target.type === "button") takeFields(); });
  listenToTabs(at("forms"), chosenForm);
  listenToTabs(at("languages"), showSnippet);
  at("headers").addEventListener("input", () => { if (shown) showSnippets(); });
  at("headers").addEventListener("change", greet);
  at("chosen-version").addEventListener("change", ({ target }) => { location.hash = linkOf({ name: shown.name, version: target.value || undefined }); });
  at("try").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  at("try").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); send(); }
  });
  for (const place of document.querySelectorAll("[data-copies]")) place.append(copyButton(() => at(place.dataset.copies).textContent));
  listenToAnswer();
  addEventListener("hashchange", () => { if (location.hash !== "#detail") choose(); });  // that is the link that skips the list
  document.addEventListener("visibilitychange", () => { if (!document.hidden) listModels(); });
}

/** Show the server and its models, now that the headers may be others. */
async function greet() {
  tell("");
  try {
    showServer(await asJSON("."));
    if (shown?.path) shown.controls = controlsOf(await asJSON(`${shown.path}/openapi.json`));
  } catch (error) {
    tell(error.message);
  }
  await listModels();
}

function showServer({ name, version }) {
  document.title = at("server").textContent = name;
  at("version").textContent = version;
}

/** Show what the page itself holds, so that nothing is empty while the first answers come. */
function showFirst() {
  const text = at("first").textContent;
  const { models: entries, first, ...server } = JSON.parse(text);
  showServer(server);
  models = grouped(entries);
  if (!first || location.hash) return choose();
  return showModel(first.metadata.name, undefined, { ...first, document: parse(text).first.document });
}

async function begin() {
  listen();
  showFirst();
  await listModels();
  setInterval(readNumbers, READ_EVERY);
  setInterval(() => { if (!document.hidden) listModels(); }, MODELS_EVERY);
}

begin();
