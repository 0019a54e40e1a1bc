// The answer to a request: its status, its views, its JSON, streams as they grow, and the last requests of the visit. Knows nothing of the form.

import { at, badge, build, copyButton, made, saveButton } from "./elements.js";
import { curve, figureOf, growingText } from "./figures.js";
import { parse, pretty, tried } from "./json.js";
import { looksOf } from "./looks.js";
import { linkOf } from "./request.js";
import { numberOf, outputsOf, writtenOf } from "./tensors.js";
import { counted, digits, duration } from "./words.js";

const MOST_SHOWN = 200000;  // characters of an answer
const MOST_ROWS = 200;  // of a stream of numbers
const MOST_REMEMBERED = 10;  // requests
const OUTSIDE = /"oip_out_of_range": ?("(?:[^"\\]|\\.)*")/;  // no text of JSON holds this: its quotes are escaped there
const PATIENCE = 500;  // milliseconds until one wants to know that something happens

let waiting = 0;  // the timer of a request that is under way
let isAwaited = false;  // whether nothing of the answer is shown yet

/** The text of an error, in our form or in a host's. */
export function errorOf(text) {
  const { error, detail } = tried(() => JSON.parse(text)) ?? {};
  return error ?? (typeof detail === "string" ? detail : text.slice(0, 500) || "no text");
}

/** What says when something of an answer was, for who looks into the server's log: by its clock, which the answer's head has told, else by this one. */
export function clockOf(response) {
  const told = Date.parse(response.headers.get("Date")), begun = performance.now();
  return (id) => {
    const isTold = Number.isFinite(told), moment = new Date(isTold ? told + performance.now() - begun : Date.now());
    const words = `at ${moment.toISOString().slice(0, 19).replace("T", " ")} UTC by ${isTold ? "the server's" : "this browser's"} clock.`;
    return id ? `That was the request with the id "${id}", ${words}` : `That was ${words}`;
  };
}

/** The text of an error for a reader who sees rows, which are counted from 1 here, and from 0 by the server. */
function refusalOf(text) {
  const error = errorOf(text), [, row] = /^(?:input .*, row |rows\[)(\d+)\b/.exec(error) ?? [];
  return row === undefined ? error : `${error} (the server counts rows from 0: this is row ${Number(row) + 1} here)`;
}

export function hideAnswer() {
  isAwaited = false;
  begin("", "", { isBare: true });
  at("answer").hidden = true;
}

/** A request is under way: what is there is the answer to another one. After a while it can be stopped, and `onLate` is called. What is shown first is brought into view. */
export function awaitAnswer(stop, onLate) {
  clearTimeout(waiting);
  isAwaited = true;
  at("answer").ariaBusy = true;
  waiting = setTimeout(() => {
    begin("no answer yet", "", { stop, isBare: true });
    onLate();
  }, PATIENCE);
}

/** There is nothing to stop: who has stopped it by the keyboard can send again. */
function withdrawStop() {
  if (document.activeElement === at("stop")) at("send").focus();
  at("stop").hidden = true;
}

/** A request that has no answer: it has failed, as the text says, or the reader has stopped it after so many seconds. */
export function showNoAnswer(failure, seconds) {
  begin(failure ? "" : "stopped", "", { failure, isBare: true });
  at("size").textContent = failure ? "" : `after ${duration(seconds)}`;
}

/** Clear what is there. A failure, or an answer that is not there yet, is bare: it has nothing to look at. */
function begin(status, kind, { failure = "", when = "", stop = null, isBare = Boolean(failure) } = {}) {
  clearTimeout(waiting);
  at("answer").hidden = at("answer").ariaBusy = false;
  badge(at("status"), status, kind);
  if (stop) Object.assign(at("stop"), { hidden: false, onclick: stop });
  else withdrawStop();
  for (const [id, text] of Object.entries({ size: "", failure, when, look: "", text: "" })) at(id).textContent = text;
  for (const id of ["looks", "look", "raw"]) at(id).classList.toggle("gone", isBare);
  if (isAwaited) at("line").scrollIntoView({ block: "nearest" });
  isAwaited = false;
}

const statusOf = ({ status, statusText }) => `${status} ${statusText}`.trim();

/** Show an answer. Returns its JSON as text, the seconds until it was there, and why the request is refused. Raises the `signal`'s reason once that is aborted. */
export async function showAnswer(response, begun, { name, id, signal, ...known }) {
  const say = clockOf(response);
  const bytes = new Uint8Array(await response.arrayBuffer());
  signal.throwIfAborted();
  const length = Number(response.headers.get("Inference-Header-Content-Length") ?? bytes.length);
  const text = new TextDecoder().decode(bytes.subarray(0, length)), binary = bytes.subarray(length);
  const seconds = (performance.now() - begun) / 1000;
  const failure = response.ok ? "" : refusalOf(text), told = { failure, when: response.status < 500 ? "" : say(id) };
  begin(statusOf(response), response.ok ? "good" : "bad", told);
  const behind = binary.length ? ` of JSON and ${counted(binary.length, "byte")} of tensors` : "";
  at("size").textContent = `round trip ${duration(seconds)}, ${counted(bytes.length - binary.length, "byte")}${behind}`;
  if (!response.ok) return { text, seconds, failure };
  const outputs = outputsIn(text, binary);
  at("look").replaceChildren(...(outputs ? looksOf(outputs, known).map(figureOf) : [made("p", text)]));
  const [, outside] = OUTSIDE.exec(text) ?? [];
  if (outside) at("look").prepend(made("p", `The request has values that are out of the expected range: ${JSON.parse(outside)}.`));
  if (outputs && !outputs.length) at("look").append(made("p", "It has no outputs.", "faint"));
  const written = outputs ? pretty(parse(text)) : text;
  at("text").textContent = written.length > MOST_SHOWN ? `${written.slice(0, MOST_SHOWN)}\n… ${written.length - MOST_SHOWN} characters more` : written;
  offer(() => written, `${name}.json`);
  return { text, seconds };
}

/** The outputs in a text; null where there are none: what a host answers may be no JSON. */
const outputsIn = (text, binary) => tried(() => outputsOf(text, binary));

/** The buttons beside the tabs: they are for the whole answer. */
function offer(textOf, file) {
  const save = saveButton(file, () => new Blob([textOf()], { type: "application/json" }), "Save", { ariaLabel: "Save the JSON" });
  at("tools").replaceChildren(copyButton(textOf, { ariaLabel: "Copy the JSON" }), save);
}

// Streams: events as they come, parted by empty lines, with their data behind "data:"

/** Read text in pieces of any length: `read` returns the data of the events that are whole by now. */
export class EventReader {
  #rest = "";

  read(piece) {
    const blocks = (this.#rest + piece).split(/\r?\n\r?\n/);
    this.#rest = blocks.pop();
    const dataOf = (block) => [...block.matchAll(/^data: ?(.*?)\r?$/gm)].map(([, data]) => data).join("\n");
    return blocks.map(dataOf).filter((data) => data !== "");
  }
}

/** Show a stream as it comes, and return how it ended ("failed", "stopped", or nothing else) and after how many items. `onFirst` is called at the first. */
export async function showStream(response, begun, { name, id, declared, signal, stop, onFirst }) {
  const say = clockOf(response), growth = new Growth(begun, declared, () => say(id));
  const events = new EventReader(), decoder = new TextDecoder(), all = [];
  begin(statusOf(response), "good", { stop: () => { growth.end = "stopped"; badge(at("status"), "stopped", ""); stop(); } });
  at("look").append(growth.element);
  offer(() => `${all.join("\n")}\n`, `${name}.jsonl`);
  try {
    for (const reader = response.body.getReader(); ;) {
      const { done, value } = await reader.read();
      signal.throwIfAborted();
      if (done) break;
      for (const data of events.read(decoder.decode(value, { stream: true }))) {
        if (!all.length) onFirst();
        all.push(data);
        if (at("text").textContent.length < MOST_SHOWN) at("text").append(`${data}\n`);
        growth.add(data);
      }
      at("size").textContent = growth.sentence();
    }
  } catch (error) {
    if (signal.aborted) growth.end = "stopped";  // who leaves breaks nothing
    else growth.fail(`The stream broke: ${error.message}`);
  } finally {
    if (!growth.element.firstChild) growth.element.append(made("p", growth.end ? "Stopped before the first item." : "It had no items.", "faint"));
    if (growth.element.isConnected) {  // else another answer is shown
      withdrawStop();
      at("size").textContent = growth.sentence();
    }
  }
  return { end: growth.hasFailed ? "failed" : growth.end, items: growth.count };
}

/** What has come of a stream: texts follow each other, numbers are rows and curves, anything else is one view after the other. */
class Growth {
  constructor(begun, declared, sayWhen) {
    Object.assign(this, { begun, declared, sayWhen, count: 0, first: null, last: null, end: "", rows: [], texts: new Map(), hasFailed: false });
    this.element = made("div", undefined, "growth");
    this.table = made("div");
  }

  add(data) {
    this.last = performance.now();
    this.first ??= this.last;
    const outputs = outputsIn(data);
    const error = outputs ? parse(data).error : data;
    if (error !== undefined) return this.fail(writtenOf(error));
    this.count += 1;
    return this.show(outputs);
  }

  /** What came before stays. */
  fail(text) {
    this.hasFailed = true;
    badge(at("status"), "failed", "bad");
    this.element.append(build("p", { className: "failed", role: "alert" }, [text]), made("p", this.sayWhen(), "faint when"));
  }

  show(outputs) {
    const areTexts = outputs.every(({ datatype, data }) => datatype === "BYTES" && data.every((each) => typeof each === "string" && each.length < 4096));
    const areScalars = outputs.every(({ datatype, data }) => datatype !== "BYTES" && data.length === 1);
    if (areTexts) outputs.forEach(({ name, data }) => this.grow(name, data.join(" ")));
    else if (areScalars) this.addRow(outputs);
    else if (this.count <= MOST_ROWS) this.element.append(...looksOf(outputs, { declared: this.declared }).map(figureOf));
  }

  /** The texts of an output follow each other, below its name. */
  grow(name, text) {
    if (!this.texts.has(name)) {
      const [figure, element] = growingText(name);
      this.element.append(figure);
      this.texts.set(name, element);
    }
    const element = this.texts.get(name);
    const isAtEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
    if (element.textContent.length < MOST_SHOWN) element.append(text);
    if (isAtEnd) element.scrollTop = element.scrollHeight;
  }

  addRow(outputs) {
    if (!this.table.isConnected) this.element.append(this.table);
    this.rows.push(outputs);
    this.isDrawn ??= requestAnimationFrame(() => { this.isDrawn = null; this.drawRows(); });
  }

  drawRows() {
    const columns = this.rows[0].map(({ name, datatype }, place) => ({ name, isNumber: true, datatype, values: this.rows.map((row) => row[place]?.data[0]) }));
    const curves = columns.filter(() => this.rows.length > 1).map(({ name, values }) =>
      build("figure", { className: "look" }, [build("figcaption", {}, [made("b", name)]), curve(values.map(numberOf), `${name}, item by item`)]));
    this.table.replaceChildren(...curves, figureOf({ kind: "table", names: columns.map(({ name }) => name), count: this.rows.length, columns, noun: "item" }));
  }

  sentence() {
    if (!this.count) return "";
    const seconds = (this.last - this.first) / 1000;
    const rate = this.count > 1 && seconds > 0 ? `${digits((this.count - 1) / seconds)} per second` : "";
    return [`first item after ${duration((this.first - this.begun) / 1000)}`, counted(this.count, "item"), rate].filter(Boolean).join(", ");
  }
}

// The last requests

/** Show a request that was sent above the last ones: how it ended, after how many seconds, and how many `items` it had if it was a stream. */
export function remember(request, status, { seconds, items }) {
  const { name, version, action, parts, file } = request, link = parts.length || file ? null : linkOf(request);
  const title = version === undefined ? name : `${name}, version ${version}`;
  const whole = link ? build("a", { href: link, title: "Fill it in again" }, [title]) : build("b", { title: "It is too long to be filled in again" }, [title]);
  const passed = `${/^\d/.test(status) ? "round trip" : "after"} ${duration(seconds)}`;  // a request without an answer has only the way there
  const took = items === undefined ? passed : `${counted(items, "item")} in ${duration(seconds)}`;
  const words = build("div", { className: "words" }, [whole, made("div", `${action}, ${took}`, "faint")]), kind = status.startsWith("2") ? "good" : status === "stopped" ? "" : "bad";
  at("requests").prepend(build("li", {}, [made("span", status, `badge ${kind}`), words, made("time", new Date().toLocaleTimeString("en-GB"), "faint")]));
  at("requests").children[MOST_REMEMBERED]?.remove();
  at("last").hidden = false;
}
