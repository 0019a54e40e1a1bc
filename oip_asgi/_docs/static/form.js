// The form of a model: the request as fields and as JSON, the same in code, and its sending.

import { sizeOf } from "./arrays.js";
import { awaitAnswer, hideAnswer, listenToAnswer, showAnswer, showFailure, showStopped, showStream } from "./answer.js";
import { Mistake } from "./cells.js";
import { at, breakable, chooseTab, copyBy, copyButton, listenToTabs, made, saveButton } from "./elements.js";
import { Fields, MOST_WRITTEN } from "./fields.js";
import { withMissing } from "./frame.js";
import { isJSON, parse, pretty } from "./json.js";
import { askForHeaders, MOUNT, typed } from "./server.js";
import { LANGUAGES, declaration, fileOf, isLong } from "./snippets.js";
import { membersOf, numberOf, plainData } from "./tensors.js";
import { linkOf, remember } from "./visit.js";

const SETTLES = 300;  // milliseconds until the server has heard of a client that has gone
const EARLIER = "As the form has a mistake, nothing would be sent. This was the request before it.";
const NO_EXAMPLE = /\s*This document has no example.*/;  // the form has one

let model = null;  // the one that is shown
let fields = null;  // of the action that is chosen
let hint = "";  // what to declare, as the document says it
let parts = [];  // the tensors whose bytes follow the JSON
let mistake = null;  // why what is written cannot be sent: then there is no request
let latest = null;  // the request that would be sent; with a mistake, the one before it
let agreed = {};  // the body that the fields show or have written, and their mistake, which it does not have
let isEdited = false;  // whether the form says what the reader wants, and not the example
const edits = new Map();  // by the path of a model that was left: its form as it was
let answered = null;  // the request whose answer is shown, or awaited
let sending = null;  // aborts the request that is under way
let tellNews = () => {};  // that the server's numbers are others: a request takes its time, gives its first item, has ended
let isRefused = false;  // whether the server would refuse each request

/** Show the form of a model. */
export function showForm(shown) {
  sending?.abort();
  if (model) keepEdits();
  model = shown;
  at("action").replaceChildren(...[...model.actions.keys()].map((action) => new Option(action, action)));
  const kept = edits.get(model.path);
  if (kept && kept.told === toldOf(kept.action)) showEdits(kept);
  else showExample();
}

/** What the server says of an action, by which one knows whether it is still the same. */
function toldOf(action) {
  return JSON.stringify(model.actions.get(action));
}

function keepEdits() {
  const action = at("action").value, shown = [...at("fields").childNodes];
  const whole = { action, told: toldOf(action), shown, body: at("body").value, tab: at("fields").hidden ? "with-json" : "with-fields", fields, parts, latest, agreed };
  if (isEdited) edits.set(model.path, whole);
  else edits.delete(model.path);
}

function showEdits({ action, shown, body, tab, ...others }) {
  at("action").value = action;
  showAction();
  ({ fields, parts, latest, agreed } = others);
  at("fields").replaceChildren(...shown);
  at("body").value = body;
  chooseTab(at(tab));
  isEdited = true;
}

/** What stands around the fields of the action that is chosen. */
function showAction() {
  const { description } = model.actions.get(at("action").value);
  hideAnswer();
  at("declare").hidden = true;
  hint = description.replaceAll("`", "").replace(NO_EXAMPLE, "");
  at("hint").textContent = hint;
  showHint();
}

function showExample() {
  const { example, inputs } = model.actions.get(at("action").value);
  showAction();
  isEdited = false;
  agreed = {};
  fields = new Fields(inputs.map((input) => ({ ...input, refusesOutside })));
  at("fields").replaceChildren(fields.element);
  latest = null;
  at("body").value = example === undefined ? "{}" : pretty(example);
  chooseTab(at("with-fields"));  // which takes the body into the fields
  if (example === undefined) fields.fill(inputs.filter(({ isOptional }) => !isOptional).map(zeros));
  parts = [];
  if (example === undefined) takeFields();
  else settle();
}

/** Whether the server refuses a value out of range, as far as is known: a model may take it, and flag it. */
function refusesOutside() {
  return Boolean(model.newest) && model.newest.options.out_of_range !== "flag";
}

/** Another action is chosen: it takes the same inputs, which stay if they are in the fields as text. */
function changeAction() {
  const kept = at("fields").hidden || fields.body || fields.sources.length ? [] : readFields();
  showExample();
  if (!kept.length || !kept.every(({ data }) => data)) return;
  fields.fill(kept);
  takeFields();
  isEdited = true;
}

/** The tensors of the fields; none if they have a mistake. */
function readFields() {
  return attempt(() => fields.tensors(), () => []);
}

/** What `read` returns, or `instead` of its mistake. */
function attempt(read, instead) {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof Mistake)) throw error;
    return instead(error);
  }
}

/** Say what to declare: with an answer, and before one if the form itself is a guess. */
function showHint({ hasAnswer = false } = {}) {
  const isDeclared = ({ name }) => model.metadata.inputs.some((input) => input.name === name);
  const isGuess = model.actions.get(at("action").value).inputs.some((input) => !input.isOptional && !isDeclared(input));
  at("hint").hidden = !hint || !(hasAnswer || isGuess);
}

/** Fill in a request that a link carries. */
export function fillIn({ action, body }) {
  if (body === undefined || !model?.actions.has(action) || !isJSON(body)) return;
  at("action").value = action;
  showExample();
  at("body").value = pretty(parse(body));
  chooseTab(at("with-fields"));
  isEdited = true;
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
  return Object.entries(membersOf(document)).map(([name, value]) => ({ name, data: [value].flat(Infinity) }));
}

/** Write the body from the fields. Large arrays follow the JSON as bytes, but in a flat object, which is JSON alone. */
function writeBody() {
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
  const found = attempt(() => void writeBody(), (mistake) => mistake);
  agreed = { body: at("body").value, mistake: found };
  settle(found);
}

/** Take what the reader has written as JSON. */
function takeBody() {
  settle(attempt(() => void written(), (found) => found));
}

/** What is written is a request, or has a mistake: say which, wherever the page shows the request. */
function settle(found = null) {
  mistake = found;
  showMistake();
  showSnippets();
}

function showMistake() {
  for (const each of at("try").querySelectorAll("[aria-invalid]")) each.removeAttribute("aria-invalid");
  at("try").querySelector(".failed")?.remove();
  if (!mistake) return;
  mistake.control.setAttribute("aria-invalid", "true");
  at(at("fields").hidden ? "json" : "fields").append(Object.assign(made("p", mistake.message, "failed"), { role: "alert" }));
}

/** The fields are chosen, or the JSON, which stays chosen until the fields can show it. */
function chosenForm(tab) {
  if (tab !== at("with-fields")) return takeBody();
  if (agreed.body === at("body").value) return settle(agreed.mistake);  // the fields show it already
  const tensors = attempt(written, () => null);
  if (!tensors) return chooseTab(at("with-json"));  // which says why
  fields.fill(tensors);
  leaveOut(tensors.map(({ name }) => name).filter((each) => !fields.inputs.some(({ name }) => name === each)));
  const isLacking = ({ name, isOptional }) => !isOptional && !tensors.some((tensor) => tensor.name === name);
  if (fields.inputs.some(isLacking)) return takeFields();  // which says what is needed
  agreed = { body: at("body").value };
  return settle();
}

/** The tensors of the body; raises Mistake where it is no JSON, or no request. */
function written() {
  let tensors = null;
  try {
    tensors = tensorsOf(at("body").value);
  } catch (error) {
    if (error instanceof SyntaxError) throw new Mistake(at("body"), `The JSON has a mistake: ${error.message}`);
  }
  if (!tensors?.every((tensor) => typeof tensor?.name === "string")) throw new Mistake(at("body"), "The JSON is no request: expected an object, in which each input has a name");
  return tensors;
}

/** Leave inputs that a model does not declare out of an inference request, and say so: they have no field. */
function leaveOut(names) {
  at("fields").querySelector(":scope > .hint")?.remove();
  if (!names.length || !model.metadata.inputs.length || !at("action").value.startsWith("infer")) return;
  const document = parse(at("body").value);
  at("body").value = pretty({ ...document, inputs: document.inputs.filter(({ name }) => !names.includes(name)) });
  at("fields").prepend(made("p", `Not sent, as the model does not take it: ${names.join(", ")}`, "hint"));
}

function request() {
  const action = at("action").value, body = at("body").value;
  const { name, version, path } = model;
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
  if (!mistake || !latest) latest = request();
  at("link").hidden = Boolean(latest.file) || latest.parts.length > 0 || !linkOf(latest);
  for (const each of [at("link"), document.querySelector("[data-copies=code] button")]) each.disabled = Boolean(mistake);
  at("code").classList.toggle("earlier", Boolean(mistake));
  at("address").replaceChildren(...breakable(new URL(".", latest.url).pathname));  // what is behind the last slash is chosen
  const chosen = at("languages").querySelector("[aria-selected=true]")?.textContent;
  model.code = Object.entries(LANGUAGES).map(([name, { make }]) => [name, make(latest)]).filter(([, code]) => code);
  at("languages").replaceChildren(...model.code.map(([name]) => {
    const tab = Object.assign(made("button", name), { type: "button", role: "tab" });
    tab.setAttribute("aria-controls", "snippet");
    return tab;
  }));
  const tabs = [...at("languages").children];
  chooseTab(tabs.find((tab) => tab.textContent === chosen) ?? tabs[0]);
  showWhetherEarlier();
}

/** Say of the answer below the form where it is not that to what the form says now. */
function showWhetherEarlier() {
  at("earlier").hidden = !answered || (!mistake && isSame(answered, latest));
}

function isSame(one, other) {
  const isSamePart = ({ values }, place) => values === other.parts[place]?.values;
  return ["url", "body", "file"].every((key) => one[key] === other[key]) && one.parts.every(isSamePart);
}

/** Where the request, for its size, has no link, or no code in some languages. */
function limitOf({ body, file, parts: behind }) {
  if (file || behind.length) return "A link cannot carry its bytes.";
  const isOffered = (name) => model.code.some(([each]) => each === name);
  const none = [at("link").hidden && "a link", ...Object.keys(LANGUAGES).filter((name) => isLong(body) && !isOffered(name))].filter(Boolean);
  return none.length ? `The request is too long for ${none.join(", ").replace(/, ([^,]*)$/, " and $1")}.` : "";
}

function showSnippet({ textContent: name }) {
  const file = fileOf(latest), isNamed = Boolean(file) && !mistake && model.code.some(([each, code]) => each === name && code.includes(file));
  at("save-body").replaceChildren(...(isNamed ? [saveButton(file, () => new Blob([contentOf(latest)[0]]), `Save ${file}`)] : []));
  at("note").textContent = mistake ? EARLIER : [LANGUAGES[name].note, limitOf(latest)].filter(Boolean).join(" ");
  const [begin, ...others] = model.code.find(([each]) => each === name)[1].split(latest.url);
  at("code").replaceChildren(...withEnds(begin), ...others.flatMap((part) => [...breakable(latest.url), ...withEnds(part)]));
}

/** Lines of code, in which a backslash at the end of one stands beside the word before it. */
function withEnds(code) {
  return code.split(/( \\)(?=\n)/).map((part, place) => (place % 2 ? made("span", part, "end") : part));
}

/** Say why a request would be refused; nothing if it would not. */
export function showRefusal(text) {
  isRefused = Boolean(text);
  at("refusal").textContent = text;
  offerSend();
}

function offerSend() {
  at("send").disabled = isRefused || Boolean(sending);
  at("send").classList.toggle("busy", Boolean(sending));
}

async function send() {
  if (isRefused) return;
  if (mistake) {
    if (!sending) hideAnswer();  // which is that of another request
    return void mistake.control.focus();
  }
  const asked = request(), { url, headers, body, file, streams } = asked, [content, described] = contentOf(asked);
  answered = asked;
  showWhetherEarlier();
  sending?.abort();
  const controller = sending = new AbortController();
  offerSend();
  at("declare").hidden = true;
  showHint();
  awaitAnswer(() => controller.abort("stopped"), tellNews);
  const begun = performance.now(), { name, newest, metadata } = model, id = file ? undefined : idOf(body), spent = () => (performance.now() - begun) / 1000;
  try {
    const response = await fetch(url, { method: "POST", headers: { ...described, ...headers }, body: content, signal: controller.signal });
    askForHeaders(response);
    const declared = Object.fromEntries(metadata.outputs.map((output) => [output.name, output.shape]));
    if (streams && response.ok) {
      const { end, items } = await showStream(response, begun, { name, id, declared, stop: () => controller.abort(), onFirst: tellNews });
      remember(asked, end || `${response.status}`, { seconds: spent(), items });
      showHint({ hasAnswer: end !== "failed" });
      return;
    }
    const { text, seconds } = await showAnswer(response, begun, { name, id, sent: sentIn(file ? "" : body), labels: newest?.labels ?? {}, declared });
    remember(asked, `${response.status}`, { seconds });
    showHint({ hasAnswer: response.ok });
    if (response.ok && !file && !asked.parts.length) showDeclaration(body, text);
  } catch (error) {
    if (controller.signal.reason === "stopped") showStopped(spent());
    if (controller.signal.aborted) return void remember(asked, "stopped", { seconds: spent() });
    showFailure(`The request failed: ${error.message}`);
    remember(asked, "failed", { seconds: spent() });
  } finally {
    if (sending === controller) sending = null;
    offerSend();
    setTimeout(tellNews, controller.signal.aborted ? SETTLES : 0);
  }
}

/** The id that the reader has given a request, by which the server's log names it. */
function idOf(body) {
  const { id } = isJSON(body) ? parse(body) ?? {} : {};
  return typeof id === "string" ? id : undefined;
}

/** The inputs of a body, for what is shown beside the outputs. */
function sentIn(body) {
  return isJSON(body) ? tensorsOf(body).map(withDeclared).map((tensor) => ({ ...tensor, shape: tensor.shape?.map(numberOf), data: plainData(tensor) })) : [];
}

/** A tensor with the shape that its input declares, and with its content type if it has none of its own. */
function withDeclared(tensor) {
  const declared = model.metadata.inputs.find(({ name }) => name === tensor.name);
  const shape = tensor.shape ?? (declared && shapeOf(declared.shape, [tensor.data].flat(Infinity).length));
  return { ...tensor, shape, declared: declared?.shape, parameters: { ...declared?.parameters, ...tensor.parameters } };
}

/** The shape of so many elements, as a member of a flat object has none; undefined where more than one of its sizes is free. */
function shapeOf(declared, count) {
  const free = declared.filter((size) => size === -1).length, fixed = declared.filter((size) => size !== -1).reduce((product, size) => product * size, 1);
  return free > 1 || !fixed ? undefined : declared.map((size) => (size === -1 ? count / fixed : size));
}

/** What to write so that the next requests are checked, if the model does not declare what was sent and answered. */
function showDeclaration(body, text) {
  const [sent, { outputs }] = [tensorsOf(body), parse(text)];
  if (!outputs || !sent.every(({ shape }) => shape)) return;
  const namesOfAll = (tensors) => tensors.map(({ name }) => name);
  const declared = { inputs: namesOfAll(model.metadata.inputs), outputs: namesOfAll(model.metadata.outputs) };
  const line = declaration(sent, outputs, declared);
  if (!line || !hint) return;  // nothing is to be declared, or not in Python
  at("hint").hidden = true;  // this says more
  at("declare").hidden = false;
  at("declaration").textContent = line;
}

/** `onNews` is called when what the form does has changed the server's numbers. */
export function listenToForm(onNews) {
  tellNews = onNews;
  at("action").addEventListener("change", changeAction);
  at("reset").addEventListener("click", showExample);
  at("link").addEventListener("click", ({ target }) => copyBy(target, new URL(linkOf(latest), location.href).href));
  for (const [id, take] of [["body", takeBody], ["fields", takeFields]]) at(id).addEventListener("input", () => { isEdited = true; take(); });
  listenToTabs(at("forms"), chosenForm);
  listenToTabs(at("languages"), showSnippet);
  at("headers").addEventListener("input", () => { if (model) showSnippets(); });
  at("try").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  at("try").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); send(); }
  });
  for (const place of document.querySelectorAll("[data-copies]")) place.append(copyButton(() => at(place.dataset.copies).textContent));
  listenToAnswer();
}
