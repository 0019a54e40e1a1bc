// The request in code, in the languages that can write it. Knows nothing of the form.

import { at, breakableAddress, build, chooseTab, listenToTabs, made, saveButton } from "./elements.js";
import { contentOf } from "./request.js";
import { LANGUAGES, fileOf, isLong } from "./snippets.js";
import { linkOf } from "./visit.js";

const EARLIER = "Nothing to copy while there is a mistake above. Below is the last request without one.";
const SHORT = '{"inputs": []}';  // a body for which each language has code, if it has the action

let shown = null;  // the request, its codes by language, and whether the form has a mistake since

export function listenToCode() {
  listenToTabs(at("languages"), ({ textContent }) => showSnippet(textContent));
}

/** Offer the languages in which a request can be written, and its link; one before a mistake is not to be copied. */
export function showCode(request, isEarlier) {
  const codes = new Map(Object.entries(LANGUAGES).map(([name, { make }]) => [name, make(request)]).filter(([, code]) => code));
  const hasLink = !request.file && !request.parts.length && Boolean(linkOf(request));
  shown = { request, isEarlier, codes, hasLink };
  at("link").hidden = !hasLink;
  for (const each of [at("link"), document.querySelector("[data-copies=code] button")]) each.disabled = isEarlier;
  at("code").classList.toggle("earlier", isEarlier);
  const kept = new Map([...at("languages").children].map((tab) => [tab.textContent, tab])), names = [...codes.keys()];  // one may have the focus
  const tabs = names.map((name) => kept.get(name) ?? languageTab(name)), chosen = tabs.find((tab) => tab.ariaSelected === "true") ?? tabs[0];
  if (tabs.length !== kept.size || tabs.some((tab) => !tab.isConnected)) at("languages").replaceChildren(...tabs);
  chooseTab(chosen);
}

function languageTab(name) {
  const tab = build("button", { type: "button", role: "tab", id: `in-${name}` }, [name]);
  tab.setAttribute("aria-controls", "snippet");
  return tab;
}

/** What the request is not offered as: a link, or code in languages that have some for another request. */
function limitOf({ request, codes, hasLink }) {
  const { body, file, parts } = request, another = { ...request, body: SHORT, file: undefined, parts: [], sources: [] };
  const languages = Object.entries(LANGUAGES).filter(([name, { make }]) => !codes.has(name) && make(another)).map(([name]) => name);
  const others = languages.length ? `There is no code for ${enumerate(languages)}.` : "";
  if (file || parts.length) return `A link cannot carry its bytes. ${others}`;
  const tooLong = [...(hasLink ? [] : ["a link"]), ...(isLong(body) ? languages : [])];
  return tooLong.length ? `The request is too long for ${enumerate(tooLong)}. ${isLong(body) ? "" : others}` : others;
}

const enumerate = (words) => new Intl.ListFormat("en-GB").format(words);

function showSnippet(name) {
  const { request, isEarlier, codes } = shown, code = codes.get(name), file = fileOf(request), isNamed = Boolean(file) && !isEarlier && code.includes(file);
  at("snippet").setAttribute("aria-labelledby", `in-${name}`);
  at("save-body").replaceChildren(...(isNamed ? [saveButton(file, () => new Blob([contentOf(request)[0]]), `Save ${file}`)] : []));
  at("note").textContent = isEarlier ? EARLIER : [LANGUAGES[name].note, limitOf(shown)].filter(Boolean).join(" ");
  const [begin, ...others] = code.split(request.url);
  at("code").replaceChildren(...withEnds(begin), ...others.flatMap((part) => [...breakableAddress(request.url), ...withEnds(part)]));
}

/** Lines of code, in which a backslash at the end of one stands beside the word before it. */
const withEnds = (code) => code.split(/( \\)(?=\n)/).map((part, place) => (place % 2 ? made("span", part, "end") : part));
