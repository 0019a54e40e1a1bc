// Asks the server's own paths, which are found relative to the page's address, with the headers that the reader has typed.

import { clockOf, errorOf } from "./answer.js";
import { at, say } from "./elements.js";

export const MOUNT = new URL("../", import.meta.url);

let keyBegins = "";  // what stands before a key in the header in which the host takes it, where that is known
let refused = null;  // the headers with which the host has refused a request

/** What a path of the server answers, as text. */
export async function ask(path, options) {
  const asked = fetch(new URL(path, MOUNT), { ...options, headers: { ...typed(), ...options?.headers } });
  const response = await asked.catch(() => { throw new Error("The server does not answer."); });
  const say = clockOf(response), text = await response.text(), { status } = response;
  if (!response.ok) {
    askForHeaders(response);
    throw Object.assign(new Error(`${status}: ${errorOf(text)}`), { status, when: status < 500 ? "" : say() });
  }
  return text;
}

export const asJSON = async (path, options) => JSON.parse(await ask(path, options));

/** The host wants to know who asks. The reader is asked once, until other headers are tried. */
export function askForHeaders({ status }) {
  if (status !== 401 || refused === at("headers").value) return;
  refused = at("headers").value;
  at("sent").open = true;
  at("headers").focus();
}

/** The headers are taken: what asks for them is one line again, which names them. */
export function closeHeaders() {
  const summary = at("sent").querySelector("summary"), names = Object.keys(typed());
  if (at("sent").contains(document.activeElement)) summary.focus();
  at("sent").open = false;
  summary.textContent = names.length ? `API key: sends ${names.join(", ")}` : "API key";
}

/** Learn from the OpenAPI document in which header a key is sent, so that the key alone can be typed. */
export function learnKey({ components }) {
  const schemes = Object.values(components?.securitySchemes ?? {});
  const own = schemes.find(({ type, in: place }) => type === "apiKey" && place === "header");
  const isBearer = schemes.some(({ type, scheme }) => type === "http" && scheme?.toLowerCase() === "bearer");
  keyBegins = own ? `${own.name}: ` : isBearer ? "Authorization: Bearer " : "";
  at("headers").placeholder = `${keyBegins || "x-api-key: "}…`;
}

/** Whether all that is typed are headers; the reader is told of what is none. */
export function checkHeaders() {
  const wrong = linesTyped().find((line) => !headerIn(line));
  say(at("no-header"), wrong === undefined ? "" : `${JSON.stringify(wrong)} is no header: write its name, a colon and its value, such as x-api-key: secret`);
  return wrong === undefined;
}

const linesTyped = () => at("headers").value.split("\n").map((line) => line.trim()).filter(Boolean);

/** The name and the value of a header on a line, which may be the key alone; undefined if the line is none. */
function headerIn(line) {
  const whole = /^[^\s:]+\s*:/.test(line) || !keyBegins ? line : keyBegins + line;
  return /^([\w!#$%&'*+.^`|~-]+)\s*:\s*([\t -~\u00a0-\u00ff]*)$/.exec(whole)?.slice(1);
}

/** The headers that the reader has typed, such as a key that the host asks for. */
export const typed = () => Object.fromEntries(linesTyped().map(headerIn).filter(Boolean));
