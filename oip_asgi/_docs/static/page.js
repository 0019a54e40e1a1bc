// The page that shows the models. The list of them, what one of them declares, and its numbers.

import { typeOf } from "./cells.js";
import { actionsOf, controlsOf, wordsOf } from "./described.js";
import { at, badge, breakable, build, listenToOverflow, made, say, showWhole, tableRows } from "./elements.js";
import { NO_INPUTS } from "./fields.js";
import { fillIn, leaveAnswer, listenToForm, showForm, showRefusal } from "./form.js";
import { parse } from "./json.js";
import { MOMENTS, READ_EVERY, showNumbers } from "./numbers.js";
import { elementsOf } from "./prose.js";
import { linkOf, readLink } from "./request.js";
import { ask, asJSON, checkHeaders, closeHeaders, learnKey } from "./server.js";
import { areMany, listed } from "./words.js";

const MODELS_EVERY = 10000;  // milliseconds
const MANY = 8;  // models, from which one would rather filter them
const FADE = 40;  // pixels at an end of the list, at most, as page.css has it
const COLORS = { READY: "good", UNAVAILABLE: "bad" };  // of states; others have none

const LEAVING = { draining: "Readiness is 503, so that a balancer sends no new requests; those that come are answered", stopping: "New requests are refused" };

const UNLOADED = "unloaded";  // the reason that somebody wanted it, which is no failure
const VISIT = performance.timeOrigin;  // the state of an entry of the history whose request is filled in, by this page and none that was loaded before it

/** The word for a model's state, and its colour: that of the list and of the headline. */
function stateOf({ name, state, reason }) {
  if (controlled.has(name)) return controlled.get(name);
  if (state === "READY" && leaving) return [leaving, ""];
  return state === "UNAVAILABLE" && reason === UNLOADED ? [UNLOADED, ""] : [state.toLowerCase(), COLORS[state] ?? ""];
}

let models = new Map();  // by name: its entries in the index
let shown = null;  // the model that is shown
const controlled = new Map();  // by name: the words for what the reader has begun to do to a model, until the server has answered, and their colour
const problems = new Map();  // by name: why what the reader wanted to do to a model has failed, and its entry then
let leaving = "";  // what the server does if it is not to get new requests: "draining", "stopping"
const wrong = new Map(["list", "model"].map((thing) => [thing, {}]));  // what the reader is told of each

/** Tell the reader what is wrong with a thing, such as "list" or "model", or with `isAsked` what the server wants to have; nothing once it is not. */
function tell(thing, message, isAsked = false) {
  wrong.set(thing, { message, isAsked });
  const first = [...wrong.values()].find((each) => each.message);
  at("message").className = first?.isAsked ? "asked" : "failed";
  say(at("message"), first?.message ?? "");
}

// The list of models

async function listModels() {
  try {
    models = Map.groupBy(await asJSON("repository/index", { method: "POST" }), nameOf);
    tell("list", "");
  } catch (error) {
    if (error.status === 401) tell("list", `The server asks who you are. ${error.message}`, true);
    else tell("list", `The models cannot be listed. ${error.message}`);
    return;
  }
  showStates();
}

/** Show the states of all models, in the list and in the headline. */
function showStates() {
  showList();
  const entry = shown && entryOf(shown);
  if (entry) showState(entry);
  else choose();
}

const nameOf = ({ name }) => name;

function entryOf({ name, version }) {
  const entries = models.get(name) ?? [];
  return entries.find((entry) => entry.version === version) ?? entries[0];
}

function showList() {
  const ready = [...models.keys()].filter(isReady).length, unready = models.size - ready;
  badge(at("ready"), leaving || `${ready} of ${models.size} ready`, unready || leaving ? "" : "good");
  at("ready").title = LEAVING[leaving] ?? "";
  at("list").hidden = models.size < 2;
  at("list").textContent = `Models (${models.size})`;
  at("find").hidden = models.size < MANY;
  at("unready").hidden = !unready;
  at("unready").lastElementChild.textContent = `Not ready only (${unready})`;
  const focused = document.activeElement?.closest?.("#models a")?.getAttribute("href");
  const plain = (text) => text.toLowerCase().replaceAll(/[_-]/g, " "), wanted = plain(at("filter").value);  // a blank is typed for what parts the words of a name
  const isOnlyUnready = at("only-unready").checked && unready > 0;
  const listed = [...models.keys()].filter((name) => plain(name).includes(wanted) && !(isOnlyUnready && isReady(name)));
  at("models").replaceChildren(...(listed.length || !models.size ? listed.map(listItem) : [made("li", "No model matches.", "faint")]));
  if (focused) at("models").querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}

/** Whether a model is, in all its versions: each name stands once in the list. */
const isReady = (name) => models.get(name).every(({ state }) => state === "READY");

/** Scroll the list, and nothing else, until the model that is shown is seen, in the middle if it was not: what is near an end fades. */
function showChosen() {
  const [list, link] = [at("models"), at("models").querySelector("[aria-current]")].map((each) => each?.getBoundingClientRect());
  const isSeen = !link || (link.top >= list.top + FADE && link.bottom <= list.bottom - FADE);
  if (!isSeen) at("models").scrollTop += (link.top + link.bottom - list.top - list.bottom) / 2;  // what scrolls into view takes the next Tab with it
}

/** Open or close the list where a button stands for it, on a phone. */
function openList(isOpen) {
  at("list").ariaExpanded = isOpen;
  if (isOpen) showChosen();
}

function listItem(name) {
  const entries = models.get(name);
  const entry = ["UNAVAILABLE", "LOADING", "UNLOADING"].map((state) => entries.find((each) => each.state === state)).find(Boolean) ?? entries[0];
  const [text, kind] = stateOf(entry), link = build("a", { className: kind, href: linkOf({ name }) }, breakable(name));
  if (entry.state !== "READY" || controlled.has(name)) link.append(" ", made("span", text, "faint"));
  if (shown?.name === name) link.setAttribute("aria-current", "page");
  return build("li", {}, [link]);
}

/** Show the model that the address names, else the first, and once the request that it carries: who comes back to it finds the form as it was left. */
async function choose() {
  const { hash } = location, { name = models.keys().next().value, version, ...request } = readLink(hash);
  at("model").hidden = !models.has(name);
  if (!models.has(name)) {
    shown = null;
    showList();
    return tell("model", name === undefined ? "No model is registered." : `There is no model ${JSON.stringify(name)}.`);
  }
  if (!await showModel(name, version) || location.hash !== hash || history.state === VISIT) return undefined;
  fillIn(request);
  return history.replaceState(VISIT, "");
}

// One model

/** Show a model, and return whether it is shown: another one may be wanted by then. What is known of it already, its metadata and document, need not be asked for. */
async function showModel(name, version, known) {
  const focused = document.activeElement, ofVersion = version === undefined ? "" : `/versions/${encodeURIComponent(version)}`;
  const path = `models/${encodeURIComponent(name)}${ofVersion}`;
  const model = { name, version, path, readings: [], newest: null, problem: "", asked: 0 };
  at("model").inert = shown?.path !== path;  // what is there is another model's until this one is known
  shown = model;
  showList();
  try {
    const [metadata, described] = known ?? await Promise.all([asJSON(path), ask(`${path}/openapi.json`).then(parse)]);
    if (shown !== model) return false;
    model.metadata = metadata;
    model.actions = actionsOf(described, path, metadata);
    model.controls = controlsOf(described);
    learnKey(described);
    tell("model", "");
  } catch (error) {
    if (shown !== model) return false;
    shown = null;
    at("model").hidden = true;
    tell("model", error.message);
    return false;
  }
  showAll(model);
  if (document.activeElement === document.body) focused.focus({ preventScroll: true });  // which an inert element has lost
  readNumbers();
  return true;
}

function showAll(model) {
  document.title = `${model.name} · ${at("server").textContent}`;
  at("model").hidden = at("model").inert = false;
  at("name").replaceChildren(...breakable(model.name));
  const about = [...model.actions.values()][0];
  at("about").textContent = `platform ${model.metadata.platform}` + (model.actions.has("generate_stream") ? ", streams its answers" : "");
  at("docstring").replaceChildren(...elementsOf(about?.docstring ?? ""));
  showWhole(false);
  showChosen();
  const versions = model.metadata.versions ?? [];
  at("versions").hidden = !versions.length;
  at("chosen-version").replaceChildren(new Option("default", ""), ...versions.map((version) => new Option(version)));
  at("chosen-version").value = model.version ?? "";
  showState(entryOf(model));
  at("inputs").replaceChildren(...rowsOf("inputs", model.metadata.inputs, { inputs: about?.inputs }));
  at("outputs").replaceChildren(...rowsOf("outputs", model.metadata.outputs));
  at("any-size").hidden = ![...model.metadata.inputs, ...model.metadata.outputs].some(({ shape }) => shape.includes(-1));
  at("options").replaceChildren();
  at("options").parentElement.hidden = true;  // until they are known
  showRefusal("");
  showNumbers(model);
  showForm(model);
}

/** Say which version answers the requests that name none; another one if that is unloaded, which may declare something else. */
function showDefault(version) {
  const isOther = shown.version === undefined && shown.default !== undefined && shown.default !== version;
  shown.default = version;
  if (isOther) showModel(shown.name);
  say(at("chosen-version").options[0], version === null ? "default" : `default (${version})`);
}

/** Show the state of the model, why what the reader wanted to do to it has failed, and what this client may do to it. */
function showState(entry) {
  const [text, kind] = entry ? stateOf(entry) : ["unknown", ""];
  badge(at("state"), text, kind);
  const problem = problems.get(shown.name);
  if (problem && (problem.state !== entry?.state || problem.reason !== entry?.reason)) problems.delete(shown.name);  // it is of another state
  say(at("problem"), problems.get(shown.name)?.text ?? "");
  const isSaid = !entry?.reason || entry.reason === text || controlled.has(entry.name) || at("problem").textContent.startsWith(entry.reason);
  at("reason").className = entry?.state === "READY" ? "faint" : "bad";
  say(at("reason"), isSaid ? "" : entry.reason);
  const isReady = entry?.state === "READY", isBusy = ["LOADING", "UNLOADING"].includes(entry?.state);
  at("load").textContent = isReady ? "Reload" : "Load";
  at("load").hidden = !shown.controls?.includes("load") || isBusy;
  at("unload").hidden = !shown.controls?.includes("unload") || !isReady;
  for (const id of ["load", "unload"]) at(id).disabled = controlled.has(shown.name);
}

/** Load or unload the model, all its versions. */
async function control(action) {
  const { name } = shown, told = "Requests to it are refused until it is loaded again.";
  if (action === "unload" && !confirm(`Unload the model ${JSON.stringify(name)}? ${told}`)) return;
  problems.delete(name);
  const isReloaded = action === "load" && entryOf(shown)?.state === "READY";  // the old one answers until the new one is there
  controlled.set(name, isReloaded ? ["reloading, still answers", "good"] : [`${action}ing`, ""]);
  showStates();
  let problem = null;
  try {
    await ask(`repository/models/${encodeURIComponent(name)}/${action}`, { method: "POST" });
  } catch (error) {
    problem = error;
  }
  controlled.delete(name);
  await listModels();
  if (problem) {
    const entry = entryOf(shown?.name === name ? shown : { name }), isOfLoad = action === "load" && problem.status === 500;  // which the model's state tells, once
    problems.set(name, { ...entry, text: [(isOfLoad && entry?.reason) || problem.message, problem.when].filter(Boolean).join("\n") });
  }
  if (shown?.name !== name) return;
  if (problem) showState(entryOf(shown));
  else if (action === "load") {
    leaveAnswer();  // it is of the model before
    await showModel(name, shown.version);  // which may declare something else now
  }
  const offered = [at("load"), at("unload")].find(({ hidden }) => !hidden);
  if (document.activeElement === document.body) offered?.focus({ preventScroll: true });  // the button that was pressed was off, or is gone
}

/** Lines of a table: a title, and the tensors that a model declares. `inputs` is what else is known of them, and `labels` are those of outputs, by name. */
function rowsOf(title, tensors, { inputs, labels = {} } = {}) {
  const titles = tensors.length ? [title, "type", "shape"] : [title];
  const head = titles.map((text) => build("th", { scope: "col", colSpan: 3 / titles.length }, [text]));
  const rows = tensors.flatMap(({ name, datatype, shape, parameters }) => {
    const known = inputs?.find((input) => input.name === name) ?? { hasTime: true }, { isOptional, limits, choices = [] } = known;
    const words = isOptional ? [" ", made("span", "(optional)", "faint")] : [];
    const type = build("td", { title: datatype }, [typeOf(datatype, parameters?.content_type, known)]);
    const row = build("tr", {}, [build("td", {}, [...breakable(name), ...words]), type, made("td", `[${shape.join(", ")}]`)]);
    const more = labels[name] ? `labels: ${listed(labels[name])}` : limits, all = (labels[name] ?? choices).map(String);
    const whole = areMany(all) ? [build("details", {}, [made("summary", "All of them"), made("p", all.join(", "), "text")])] : [];
    return more ? [row, build("tr", { className: "more" }, [build("td", { colSpan: 3, className: "faint" }, [more, ...whole])])] : [row];
  });
  const none = build("td", { colSpan: 3, className: "faint" }, [inputs?.length === 0 ? NO_INPUTS : "Not declared."]);
  return [build("tr", {}, head), ...(rows.length ? rows : [build("tr", {}, [none])])];
}

// Numbers

/** Read the numbers of the model. Those that are read every two seconds are points of its curves; right after an answer they are none. */
async function readNumbers({ isPoint = true } = {}) {
  const model = shown, asked = performance.now();
  if (!model?.metadata || document.hidden) return;
  let state = null, problem = "";
  try {
    state = { ...await asJSON(`${model.path}/docs/state.json`), now: performance.now() };
  } catch ({ message }) {
    problem = message;
  }
  if (shown !== model || asked < model.asked) return;  // what was asked later is there already
  Object.assign(model, { asked, newest: state, problem });
  if (state) showWhatIsRefused(state);
  if (state) showDefault(state.default_version);
  if (isPoint) model.readings = [...model.readings, state].slice(-MOMENTS - 1);
  showNumbers(model);
  if (state && !at("options").firstChild) showOptions(state);
}

/** Show whether the server takes requests at this moment, else why not and what helps; the list of models is asked for again if that has changed. */
function showWhatIsRefused({ leaving: now, refuses }) {
  const isOther = now !== leaving || (shown.refuses !== undefined && refuses !== shown.refuses), isLoaded = shown.refuses && !refuses;
  [leaving, shown.refuses] = [now, refuses];
  const entry = entryOf(shown), hasFailed = entry?.state === "UNAVAILABLE" && entry.reason && entry.reason !== UNLOADED;
  const help = at("load").hidden ? "" : ` Press Load, above${hasFailed ? ", to try again" : ""}.`;
  const why = now === "stopping" ? "The server is stopping" : hasFailed ? "The model could not be loaded" : "The model is not loaded";
  showRefusal(refuses ? `${why}: it takes no requests.${now === "stopping" ? "" : help}` : "");
  if (isOther) listModels();
  if (isLoaded && !shown.metadata.inputs.length) choose();  // it may have told its inputs
}

/** Show what is known of a model with its first numbers: its options, and the labels of its outputs. */
function showOptions({ options, labels }) {
  at("outputs").replaceChildren(...rowsOf("outputs", shown.metadata.outputs, { labels }));
  const lines = wordsOf(options, shown.actions.has("infer_stream"))
    .map(([keyword, title, value]) => [build("span", {}, [title, " ", made("code", `${keyword}=`, "faint")]), value]);
  at("options").replaceChildren(build("table", {}, tableRows(lines)));
  at("options").parentElement.hidden = false;
}

function listen() {
  listenToForm(() => readNumbers({ isPoint: false }));
  listenToOverflow();
  for (const id of ["filter", "only-unready"]) at(id).addEventListener("input", showList);
  at("filter").addEventListener("keydown", ({ key }) => { if (key === "Enter") at("models").querySelector("a")?.click(); });
  at("list").addEventListener("click", () => openList(at("list").ariaExpanded !== "true"));
  at("models").addEventListener("click", ({ target }) => {
    if (!target.closest("a") || !at("list").checkVisibility()) return;
    openList(false);  // on a phone, the model is seen in place of the list
    at("detail").focus();
  });
  at("requests").addEventListener("click", ({ target }) => {
    if (target.closest("a")?.hash !== location.hash) return;
    history.replaceState(null, "");  // the request is filled in again, though the address has it already
    choose();
  });
  for (const action of ["load", "unload"]) at(action).addEventListener("click", () => control(action));
  at("headers").addEventListener("change", greet);
  at("chosen-version").addEventListener("change", ({ target }) => { location.hash = linkOf({ name: shown.name, version: target.value || undefined }); });
  addEventListener("hashchange", choose);
  at("skip").addEventListener("click", (event) => { event.preventDefault(); at("detail").focus(); });  // the address names the model
  document.addEventListener("visibilitychange", () => { if (!document.hidden) { listModels(); readNumbers(); } });
}

/** Show the server and its models, now that the headers may be others. */
async function greet() {
  tell("list", "");
  if (!checkHeaders()) return;
  try {
    await asJSON(".");  // whether the server takes them
    closeHeaders();
    if (shown?.path) shown.controls = controlsOf(await asJSON(`${shown.path}/openapi.json`));
  } catch (error) {
    tell("list", error.message);
  }
  await listModels();
}

listen();
// What the page itself holds is shown first, so that nothing is empty while the first answers come
const { models: entries, first, ...server } = JSON.parse(at("first").textContent);
document.title = at("server").textContent = server.name;
at("version").textContent = server.version;
models = Map.groupBy(entries, nameOf);
if (!first || location.hash) choose();
else showModel(first.metadata.name, undefined, [first.metadata, parse(at("first").textContent).first.document]);
await listModels();
setInterval(readNumbers, READ_EVERY);
setInterval(() => { if (!document.hidden) listModels(); }, MODELS_EVERY);
