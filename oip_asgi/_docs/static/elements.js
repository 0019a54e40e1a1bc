// What the parts of the page are made with: elements, rows of tables, and tabs.

export const at = (id) => document.getElementById(id);

export function made(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

/** An element with properties and children. */
export function build(tag, properties, children = []) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** A name, which is broken behind its signs where it is longer than a line. */
export const breakable = (name, places = /(?<=[_./-])(?=\w)/) => name.split(places).flatMap((part, place) => (place ? [made("wbr"), part] : [part]));

/** An address, which is broken behind its slashes alone. */
export const breakableAddress = (url) => breakable(url, /(?<=\/)(?=[^/])/);

/** A quiet button, and what it does. */
export function button(text, onClick, properties = {}) {
  const element = build("button", { type: "button", className: "quiet small", ...properties }, [text]);
  element.addEventListener("click", () => onClick(element));
  return element;
}

/** A button that copies what `textOf` returns, and says that it has. */
export const copyButton = (textOf) => button("Copy", (element) => copyBy(element, textOf()));

/** Copy a text or a ClipboardItem, and let the button that was pressed say so. */
export async function copyBy(element, text) {
  element.dataset.label ??= element.textContent;
  element.textContent = await copy(text).then(() => "Copied", () => "Not copied");
  setTimeout(() => { element.textContent = element.dataset.label; }, 1500);
}

async function copy(text) {
  if (typeof text !== "string") return navigator.clipboard.write([text]);
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = build("textarea", { value: text, className: "aside" });  // without TLS a browser has no clipboard
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (!isCopied) throw new Error("the browser refuses it");
  return undefined;
}

/** A button that saves what `blobOf` returns as a file. */
export function saveButton(name, blobOf, label = "Save") {
  return button(label, async () => {
    const link = build("a", { href: URL.createObjectURL(await blobOf()), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }, { title: `Save as ${name}` });
}

/** Rows of a table, each with a name and its values. */
export const tableRows = (rows) =>
  rows.map(([name, ...values]) => build("tr", {}, [build("th", { scope: "row" }, [name]), ...values.map((value) => made("td", value))]));

const tabsOf = (list) => [...list.querySelectorAll("[role=tab]")];

/** Choose one of the tabs of a list, and show its panel alone. */
export function chooseTab(tab) {
  const panelOf = (each) => at(each.getAttribute("aria-controls"));
  for (const each of tabsOf(tab.parentElement)) {
    each.setAttribute("aria-selected", each === tab);
    each.tabIndex = each === tab ? 0 : -1;
    panelOf(each).hidden = panelOf(each) !== panelOf(tab);
  }
  tab.dispatchEvent(new CustomEvent("chosen", { bubbles: true }));
}

/** Choose tabs of a list by the pointer and by the arrow keys. `onChosen` is called with the tab, however it was chosen. */
export function listenToTabs(list, onChosen) {
  list.addEventListener("chosen", ({ target }) => onChosen(target));
  list.addEventListener("click", ({ target }) => { if (target.role === "tab") chooseTab(target); });
  list.addEventListener("keydown", ({ key, target }) => {
    if ((key !== "ArrowRight" && key !== "ArrowLeft") || target.role !== "tab") return;
    const tabs = tabsOf(list), step = key === "ArrowRight" ? 1 : -1;
    const next = tabs.at((tabs.indexOf(target) + step) % tabs.length);
    chooseTab(next);
    tabs.find((each) => each.ariaSelected === "true").focus();  // it may be that another one has to stay
  });
}
