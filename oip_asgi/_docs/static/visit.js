// What of a visit can be come back to: links that carry a model and a request, and the last requests. Knows nothing of the form.

import { at, build, made } from "./elements.js";
import { compact } from "./json.js";
import { counted, duration } from "./words.js";

const MOST = 10;  // requests
const LONGEST = 8000;  // characters of a link, which browsers, mails and chats still take

let requests = [];

/** The link to a model, or to a request that is filled in; null where the request is too long for a link. */
export function linkOf({ name, version, action, body }) {
  const fields = { model: name, ...(version === undefined ? {} : { version }), ...(action === undefined ? {} : { action, body: compact(body) }) };
  const link = `#${new URLSearchParams(fields)}`;
  return link.length > LONGEST ? null : link;
}

/** What a link says. */
export function readLink(hash) {
  const { model: name, version, action, body } = Object.fromEntries(new URLSearchParams(hash.slice(1)));
  return { name, version, action, body };
}

/** Remember a request that was sent, how it ended, after how many seconds, and `items` if it was a stream; and show it among the last ones. */
export function remember(request, status, { seconds, items }) {
  const { name, version, action, parts, file } = request;
  const link = parts.length || file ? null : linkOf(request);
  requests = [{ name, version, action, link, status, seconds, items, at: new Date() }, ...requests].slice(0, MOST);
  at("last").hidden = false;
  at("requests").replaceChildren(...requests.map(itemOf));
}

function itemOf({ name, version, action, link, status, seconds, items, at: moment }) {
  const title = version === undefined ? name : `${name}, version ${version}`;
  const whole = link ? build("a", { href: link, title: "Fill it in again" }, [title]) : build("b", { title: "It is too long to be filled in again" }, [title]);
  const passed = `${/^\d/.test(status) ? "round trip" : "after"} ${duration(seconds)}`;  // a request without an answer has only the way there
  const took = items === undefined ? passed : `${counted(items, "item")} in ${duration(seconds)}`;
  const words = build("div", { className: "words" }, [whole, made("div", `${action}, ${took}`, "faint")]), kind = status.startsWith("2") ? "good" : status === "stopped" ? "" : "bad";
  return build("li", {}, [made("span", status, `badge ${kind}`), words, made("time", moment.toLocaleTimeString("en-GB"), "faint")]);
}
