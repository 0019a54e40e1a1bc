// The request in code, in the languages that can write it. Knows nothing of the form.

import { at, breakableAddress, chooseTab, listenToTabs, made, saveButton } from "./elements.js";
import { contentOf } from "./request.js";
import { LANGUAGES, fileOf, isLong } from "./snippets.js";
import { linkOf } from "./visit.js";

const EARLIER = "Nothing to copy while there is a mistake above. Below is the last request without one.";
const SHORT = '{"inputs": []}';  // a body for which each language that has the action has code

let shown = null;  // the request, its codes by language, and whether the form has a mistake since

export function listenToCode() {
  listenToTabs(at("languages"), ({ textContent }) => showSnippet(textContent));
}

/** Offer the languages in which a request can be written, and its link; one before a mistake is not to be copied. */
export function showCode(request, isEarlier) {
  const codes = Object.entries(LANGUAGES).map(([name, { make }]) => [name, make(request)]).filter(([, code]) => code);
  shown = { request, isEarlier, codes: new Map(codes) };
  at("link").hidden = Boolean(request.file) || request.parts.length > 0 || !linkOf(request);
  for (const each of [at("link"), document.querySelector("[data-copies=code] button")]) each.disabled = isEarlier;
  at("code").classList.toggle("earlier", isEarlier);
  const chosen = at("languages").querySelector("[aria-selected=true]")?.textContent;
  at("languages").replaceChildren(...codes.map(([name]) => {
    const tab = Object.assign(made("button", name), { type: "button", role: "tab" });
    tab.setAttribute("aria-controls", "snippet");
    return tab;
  }));
  const tabs = [...at("languages").children];
  chooseTab(tabs.find((tab) => tab.textContent === chosen) ?? tabs[0]);
}

/** Where the request, for its size, has no link, or no code in some languages: those that would have some for a shorter one. */
function limitOf({ request, codes }) {
  if (request.file || request.parts.length) return "A link cannot carry its bytes.";
  const isLacking = ([name, { make }]) => !codes.has(name) && make({ ...request, body: SHORT });
  const languages = isLong(request.body) ? Object.entries(LANGUAGES).filter(isLacking).map(([name]) => name) : [];
  const none = [at("link").hidden && "a link", ...languages].filter(Boolean);
  return none.length ? `The request is too long for ${none.join(", ").replace(/, ([^,]*)$/, " and $1")}.` : "";
}

function showSnippet(name) {
  const { request, isEarlier, codes } = shown, code = codes.get(name), file = fileOf(request), isNamed = Boolean(file) && !isEarlier && code.includes(file);
  at("save-body").replaceChildren(...(isNamed ? [saveButton(file, () => new Blob([contentOf(request)[0]]), `Save ${file}`)] : []));
  at("note").textContent = isEarlier ? EARLIER : [LANGUAGES[name].note, limitOf(shown)].filter(Boolean).join(" ");
  const [begin, ...others] = code.split(request.url);
  at("code").replaceChildren(...withEnds(begin), ...others.flatMap((part) => [...breakableAddress(request.url), ...withEnds(part)]));
}

/** Lines of code, in which a backslash at the end of one stands beside the word before it. */
function withEnds(code) {
  return code.split(/( \\)(?=\n)/).map((part, place) => (place % 2 ? made("span", part, "end") : part));
}
