// The request in code, in the languages that can write it. Knows nothing of the form.

import { at, breakable, chooseTab, listenToTabs, made, saveButton } from "./elements.js";
import { contentOf } from "./request.js";
import { LANGUAGES, fileOf, isLong } from "./snippets.js";
import { linkOf } from "./visit.js";

const EARLIER = "As the form has a mistake, nothing would be sent. This was the request before it.";

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

/** Where the request, for its size, has no link, or no code in some languages. */
function limitOf({ request: { body, file, parts }, codes }) {
  if (file || parts.length) return "A link cannot carry its bytes.";
  const none = [at("link").hidden && "a link", ...Object.keys(LANGUAGES).filter((name) => isLong(body) && !codes.has(name))].filter(Boolean);
  return none.length ? `The request is too long for ${none.join(", ").replace(/, ([^,]*)$/, " and $1")}.` : "";
}

function showSnippet(name) {
  const { request, isEarlier, codes } = shown, code = codes.get(name), file = fileOf(request), isNamed = Boolean(file) && !isEarlier && code.includes(file);
  at("save-body").replaceChildren(...(isNamed ? [saveButton(file, () => new Blob([contentOf(request)[0]]), `Save ${file}`)] : []));
  at("note").textContent = isEarlier ? EARLIER : [LANGUAGES[name].note, limitOf(shown)].filter(Boolean).join(" ");
  const [begin, ...others] = code.split(request.url);
  at("code").replaceChildren(...withEnds(begin), ...others.flatMap((part) => [...breakable(request.url), ...withEnds(part)]));
}

/** Lines of code, in which a backslash at the end of one stands beside the word before it. */
function withEnds(code) {
  return code.split(/( \\)(?=\n)/).map((part, place) => (place % 2 ? made("span", part, "end") : part));
}
