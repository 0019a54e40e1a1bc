// Asks the server's own paths, which are found relative to the page's address, with the headers that the reader has typed.

import { errorOf } from "./answer.js";
import { at } from "./elements.js";

export const MOUNT = new URL("../", import.meta.url);

let refused = null;  // the headers with which the host has refused a request

class Refused extends Error {}

/** What a path of the server answers, as text. */
export async function ask(path, options) {
  let response;
  try {
    response = await fetch(new URL(path, MOUNT), { ...options, headers: { ...typed(), ...options?.headers } });
  } catch {
    throw new Refused("The server does not answer.");
  }
  const text = await response.text();
  if (!response.ok) {
    askForHeaders(response);
    throw Object.assign(new Refused(`${response.status}: ${errorOf(text)}`), { status: response.status });
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

/** The headers are taken: what asks for them is one line again. */
export function closeHeaders() {
  if (at("sent").contains(document.activeElement)) at("sent").querySelector("summary").focus();
  at("sent").open = false;
}

/** The headers that the reader has typed, such as a key that the host asks for. */
export function typed() {
  const headers = {};
  for (const line of at("headers").value.split("\n")) {
    const [, name, value] = /^\s*([^:\s]+)\s*:\s*(.*?)\s*$/.exec(line) ?? [];
    if (name) headers[name] = value;
  }
  return headers;
}
