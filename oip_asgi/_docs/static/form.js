// The form of a model: the request as fields and as JSON, and its sending.

import { awaitAnswer, hideAnswer, remember, showAnswer, showNoAnswer, showStream } from "./answer.js";
import { attempt, Mistake } from "./cells.js";
import { at, breakable, build, chooseTab, copyBy, copyButton, listenToTabs, say } from "./elements.js";
import { Fields, MOST_WRITTEN } from "./fields.js";
import { isJSON, mistakeIn, parse, pretty } from "./json.js";
import { besides, bodyOf, contentOf, idOf, isBehind, isInference, isSame, linkOf, ofBoth, partsIn, partsOf, placeIn, sentIn, tensorsOf } from "./request.js";
import { askForHeaders, MOUNT, typed } from "./server.js";
import { declaration, listenToCode, showCode } from "./snippets.js";
import { sizeOf } from "./tensors.js";

const SETTLES = 300;  // milliseconds until the server has heard of a client that has gone
const NO_EXAMPLE = /\s*This document has no example.*/;  // the form has one
const [FIELDS, JSON_TEXT] = ["with-fields", "with-json"];  // the tabs

const forms = new Map();  // by the path of a model: its form, as the reader has left it
let form = null;  // of the model that is shown
let exchange = null;  // the request whose answer is shown, or awaited; whoever writes late finds that it is another one
let tellNews = () => {};  // that the server's numbers are others: a request takes its time, gives its first item, has ended
let told = null;  // what tells a mistake

/** What is written for a model, in fields and as JSON. The reader may look at other models meanwhile: only the form that is shown writes into the page. */
class Form {
  constructor(model, known) {
    Object.assign(this, { model, known, action: model.actions.keys().next().value });
    this.begin();
  }

  /** Begin with the example. */
  begin() {
    const { example, inputs } = this.model.actions.get(this.action);
    const fields = new Fields(inputs, () => this.takeEdit(fields));
    Object.assign(this, { fields, tab: FIELDS, isEdited: false, mistake: null, request: null });
    this.note = "";  // what the fields do not show of the JSON
    this.rest = {};  // what a body has besides the inputs of the fields
    this.agreed = {};  // the body that the fields show or have written, and their mistake, which it does not have
    this.writeExample();
    if (example === undefined) {
      fields.fill(inputs.filter(({ isOptional }) => !isOptional).map(zeros));
      this.takeFields();
    } else if (!this.showInFields()) this.tab = JSON_TEXT;
  }

  /** All that is sent is written here: the body, and the tensors whose bytes follow it. */
  write(body, parts = []) {
    Object.assign(this, { body, parts });
  }

  /** Write the example; without one, an empty request. */
  writeExample() {
    const { example } = this.model.actions.get(this.action);
    this.write(example === undefined ? "{}" : pretty(example));
  }

  /** The reader has changed the fields, or a file for them is read. They may be others by now, or the JSON newer. */
  takeEdit(fields) {
    if (fields === this.fields && this.agreed.body === this.body) this.edit(() => this.takeFields());
  }

  edit(change) {
    Object.assign(this, { isEdited: true, note: "" });
    change();
    this.settle();
  }

  /** Write the body from the fields; with a mistake, it stays as it was. */
  takeFields() {
    const mistake = attempt(() => {
      const tensors = this.fields.tensors(this.action);
      this.write(bodyOf(tensors, this.action, this.rest), partsOf(tensors, this.action));
    }, (found) => found);
    this.agreed = { body: this.body, mistake };
  }

  /** Take what the reader has written as JSON. */
  takeJSON(text) {
    this.fields.forget();
    this.edit(() => this.write(text, this.parts));
  }

  /** Let the fields show the body, if they can: they cannot if it is no request, or has more rows than a table. */
  showInFields() {
    if (this.agreed.body === this.body) return true;
    const { fields, action, body } = this, tensors = attempt(() => this.read(), () => null);
    this.note = (tensors && fields.frame?.limitOf(tensors)) ?? "";
    if (!tensors || this.note) return false;
    fields.fill(tensors);
    this.parts = partsIn(tensors, this.parts);  // the fields may have let go of others
    this.rest = besides(body, action, fields.inputs.map(({ name }) => name));
    this.leaveOut(tensors);
    const isLacking = ({ name, isOptional }) => !isOptional && !tensors.some((tensor) => tensor.name === name);
    if (fields.inputs.some(isLacking)) this.takeFields();  // which finds what is needed
    else this.agreed = { body: this.body, mistake: attempt(() => void fields.tensors(action), (found) => found) };
    return true;
  }

  /** Leave inputs that a model does not declare out of an inference request, and say so: they have no field. */
  leaveOut(tensors) {
    const { inputs, parameters } = this.model.metadata, unknown = inputs.length && !parameters?.content_type ? this.rest.inputs ?? [] : [];  // a frame has columns of any name
    if (!isInference(this.action) || !unknown.length) return;
    this.note = `Not sent, as the model does not take it: ${unknown.map(({ name }) => name).join(", ")}`;
    this.write(pretty({ ...this.rest, inputs: tensors.filter((tensor) => !unknown.some(({ name }) => name === tensor.name)) }), this.parts);
    this.rest.inputs = [];
  }

  /** The tensors of the body; raises Mistake where it is no JSON, or no request, or lacks bytes. */
  read() {
    const { action, body, parts } = this, tensors = isJSON(body) ? tensorsOf(body, action) : null;
    const lacking = tensors?.find((tensor) => isBehind(tensor) && !parts.some(({ name }) => name === tensor.name));
    if (tensors && !lacking) return tensors;
    const why = lacking ? `There are no bytes for ${lacking.name}, which has a binary_data_size.`
      : mistakeIn(body) || "The JSON is no request: expected an object, in which each input has a name.";
    throw new Mistake(at("body"), `${why} Mend it, or press Reset, to go back to the fields.`);
  }

  /** The fields are chosen, or the JSON, which stays chosen until the fields can show it. */
  choose(tab) {
    this.note = "";
    this.tab = tab === FIELDS && this.showInFields() ? FIELDS : JSON_TEXT;
    this.settle();
  }

  /** Another action is chosen: what is in the fields, and in JSON that they can show, stays, as a body of its own. JSON that they cannot show stays as it is. */
  changeAction(action) {
    const { example } = this.model.actions.get(action), isExample = !this.isEdited && example !== undefined;
    this.note = "";
    const isKept = this.showInFields();
    this.action = action;
    if (isKept) {
      this.rest = ofBoth(this.rest);
      if (!isExample) this.takeFields();
      if (isExample || this.agreed.mistake) this.writeExample();
      this.agreed.body = this.body;
      if (this.agreed.mistake) this.tab = FIELDS;  // where it is told
    }
    this.settle();
  }

  /** Fill in a request that a link carries. */
  fillIn({ action, body }) {
    this.action = action;
    this.begin();
    Object.assign(this, { isEdited: true, request: this.makeRequest(), agreed: {} });  // that may be the same JSON with bytes, which a link has none of
    this.write(pretty(parse(body)));
    this.choose(FIELDS);
  }

  /** The form is another one now: say what is wrong with what is chosen, and show the request; with a mistake, it is the one before it. */
  settle() {
    this.mistake = (this.tab === FIELDS ? this.agreed.mistake : attempt(() => void this.read(), (found) => found)) ?? null;
    if (!this.mistake || !this.request) this.request = this.makeRequest();
    if (form === this) this.show();
  }

  makeRequest() {
    const { action, body, fields, tab } = this, { name, version, path } = this.model;
    const url = new URL(`${path}/${action}`, MOUNT).href, file = action === "infer" && tab === FIELDS ? fields.body : undefined;
    const parts = this.parts.length ? partsIn(tensorsOf(body, action), this.parts) : [];
    const sources = parts.length ? [] : fields.sources.filter(({ text }) => text && body.includes(text));  // with bytes, the body is a file by itself
    return { name, version, action, url, headers: typed(), body, file, parts, sources, streams: action.endsWith("_stream") };
  }

  show() {
    const { fields, mistake, request } = this;
    at("action").value = this.action;
    if (at("body").value !== this.body) at("body").value = this.body;
    if (!at("fields").contains(fields.element)) at("fields").replaceChildren(fields.element);
    if (at(this.tab).ariaSelected !== "true") chooseTab(at(this.tab));
    say(at("limit"), this.note);
    at("address").replaceChildren(...breakable(new URL(".", request.url).pathname));  // what is behind the last slash is chosen
    showCode(request, Boolean(mistake));
    showExchange();
  }
}

/** Tell a mistake right below its field, or at the end of a panel if it is none of a field. One of the form is an alert when it comes, and none while it changes as one types. */
function showMistake(mistake, panel) {
  told ??= build("p", { id: "mistake", className: "failed mistake" });
  const { control, message } = mistake ?? {}, place = control?.closest(".field, td") ?? panel;
  for (const each of at("try").querySelectorAll("[aria-invalid]")) if (each !== control) mark(each, false);
  if (!mistake) return void told.remove();
  if (!control.hasAttribute("aria-invalid")) mark(control, true);
  if (told.parentElement !== place) told.role = form.mistake ? "alert" : null;
  else if (told.textContent !== message) told.role = null;
  say(told, message);
  if (place.lastElementChild !== told) place.append(told);
}

/** Say to who cannot see it that a control has a mistake, told by the element of the id "mistake", or has none. */
function mark(control, isWrong) {
  const attributes = { "aria-invalid": "true", "aria-describedby": "mistake" };
  for (const [name, value] of Object.entries(attributes)) isWrong ? control.setAttribute(name, value) : control.removeAttribute(name);
}

/** A small input beside one that is too large for an example. A large one has zeros by itself. */
function zeros({ name, datatype, shape }) {
  const count = sizeOf(shape), zero = { BYTES: "text", BOOL: false }[datatype] ?? 0;
  return { name, datatype, shape: shape.map((size) => (size === -1 ? 1 : size)), ...(count > MOST_WRITTEN ? { parameters: { binary_data_size: 0 } } : { data: Array(count).fill(zero) }) };
}

/** Show the form of a model, as it was left if the server says the same of the model as then. */
export function showForm(model) {
  const known = JSON.stringify([...model.actions]), kept = forms.get(model.path), wanted = kept?.known === known ? kept : new Form(model, known);
  if (wanted !== form) leaveAnswer();
  form = wanted;
  form.model = model;
  forms.set(model.path, form);
  at("action").replaceChildren(...[...model.actions.keys()].map((action) => new Option(action, action)));
  form.settle();
}

/** Fill in a request that a link carries, or say why it cannot be filled in. */
export function fillIn({ action, body }) {
  if (action === undefined && body === undefined) return;
  const isAction = form.model.actions.has(action), isWhole = body !== undefined && isJSON(body);
  if (isAction && isWhole) return void form.fillIn({ action, body });
  const why = !isAction ? `The model has no action ${JSON.stringify(action ?? "")}.` : body === undefined ? "It has no body." : mistakeIn(body);
  form.note = `The link's request cannot be filled in. ${why}`;
  form.settle();
}

/** Say why a request would be refused; nothing if it would not. */
export function showRefusal(text) {
  at("send").disabled = Boolean(text);
  at("refusal").textContent = text;
}

// The request that is sent, and its answer

/** What the server has refused of the request that the fields show, at its field; null where its answer is to another one, or names no field. */
function refusedMistake() {
  const { refusal, asked } = exchange ?? {}, control = refusal && form.tab === FIELDS && isSame(asked, form.request) && form.fields.controlOf(refusal);
  return control ? { control, message: refusal.message } : null;
}

/** Say what is wrong, whether the answer is to an earlier request, and what to declare: with an answer, or before one if the form is a guess. */
function showExchange() {
  const { model, action, mistake, request } = form, { inputs } = model.actions.get(action);
  showMistake(mistake ?? refusedMistake(), at(form.tab === FIELDS ? "fields" : "json"));
  at("send").ariaDisabled = Boolean(exchange?.isUnderWay);  // it does nothing then, but keeps the focus
  at("earlier").hidden = !exchange || (!mistake && isSame(exchange.asked, request));
  const isDeclared = ({ name }) => model.metadata.inputs.some((input) => input.name === name);
  const isGuess = inputs.some((input) => !input.isOptional && !isDeclared(input)), text = adviceOf(model, action);
  say(at("hint"), at("declare").hidden && (exchange?.hasAnswer || isGuess) ? text : "");
}

/** What the document of a model says of what it does not declare. */
const adviceOf = (model, action) => model.actions.get(action).description.replaceAll("`", "").replace(NO_EXAMPLE, "");

/** Leave the request that was sent, and its answer. */
export function leaveAnswer() {
  exchange?.controller.abort();
  exchange = null;
  hideAnswer();
  at("declare").hidden = true;
  at("send").ariaDisabled = false;
}

async function send() {
  if (at("send").disabled || exchange?.isUnderWay) return;
  if (form.mistake) {
    leaveAnswer();  // which is that of another request
    return void form.mistake.control.focus();
  }
  const { model, request: asked } = form, controller = new AbortController(), { signal } = controller, stop = () => controller.abort();
  const current = exchange = { asked, controller, isUnderWay: true, hasAnswer: false };
  at("declare").hidden = true;
  showExchange();
  awaitAnswer(stop, tellNews);
  const begun = performance.now(), spent = () => (performance.now() - begun) / 1000;
  const known = { name: model.name, id: idOf(asked), declared: Object.fromEntries(model.metadata.outputs.map(({ name, shape }) => [name, shape])), signal };
  try {
    const [body, described] = contentOf(asked);
    const response = await fetch(asked.url, { method: "POST", headers: { ...described, ...asked.headers }, body, signal });
    askForHeaders(response);
    if (asked.streams && response.ok) {
      const { end, items } = await showStream(response, begun, { ...known, stop, onFirst: tellNews });
      remember(asked, end || `${response.status}`, { seconds: spent(), items });
      current.hasAnswer = end !== "failed";
    } else {
      const { text, seconds, failure } = await showAnswer(response, begun, { ...known, sent: sentIn(asked, model.metadata.inputs), labels: model.newest?.labels ?? {} });
      remember(asked, `${response.status}`, { seconds });
      current.hasAnswer = response.ok;
      if (response.ok) showDeclaration(asked, text, model);
      else current.refusal = { message: failure, ...placeIn(failure, model.actions.get(asked.action).inputs.map(({ name }) => name)) };
    }
  } catch (error) {
    if (exchange === current) showNoAnswer(signal.aborted ? "" : `The request failed: ${error.message}`, spent());
    remember(asked, signal.aborted ? "stopped" : "failed", { seconds: spent() });
  } finally {
    current.isUnderWay = false;
    if (exchange === current) {
      showExchange();
      if (at("try").contains(document.activeElement)) refusedMistake()?.control.focus();
    }
    setTimeout(tellNews, signal.aborted ? SETTLES : 0);
  }
}

/** What to write so that the next requests are checked, if the model does not declare what was sent and answered. */
function showDeclaration({ body, action, file, parts }, text, model) {
  const sent = file || parts.length || !isJSON(text) ? null : tensorsOf(body, action), outputs = sent && parse(text)?.outputs;
  if (!outputs || !sent.every(({ shape }) => shape)) return;
  const line = declaration(sent, outputs, model.metadata);
  if (!line || !adviceOf(model, action)) return;  // nothing is to be declared, or not in Python
  at("declare").hidden = false;  // which says more than the advice
  at("declaration").textContent = line;
}

/** `onNews` is called when what the form does has changed the server's numbers. */
export function listenToForm(onNews) {
  tellNews = onNews;
  at("action").addEventListener("change", ({ target }) => form.changeAction(target.value));
  at("reset").addEventListener("click", () => { form.begin(); form.settle(); });
  at("link").addEventListener("click", ({ target }) => copyBy(target, new URL(linkOf(form.request), location.href).href));
  at("body").addEventListener("input", ({ target }) => form.takeJSON(target.value));
  at("headers").addEventListener("input", () => form?.settle());
  listenToTabs(at("forms"), ({ id }) => { if (id !== form.tab) form.choose(id); });
  listenToCode();
  at("try").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  at("try").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    if (!event.repeat) send();
  });
  for (const place of document.querySelectorAll("[data-copies]")) place.append(copyButton(() => at(place.dataset.copies).textContent));
  listenToTabs(at("looks"), () => {});
  chooseTab(at("as-look"));
}
