// What the parts of the page are made with: elements, rows of tables, tabs, files that are read, and signs of what goes on.

export const at = (id) => document.getElementById(id);

/** Say a text, which is read aloud where it is another one; the style hides what says nothing. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function badge(element, text, kind) {
  element.className = `badge ${kind}`;
  say(element, text);
}

/** An element with properties and children. */
export function build(tag, properties, children = []) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** An element with a text and a class, if there are any. */
export const made = (tag, text, className) => build(tag, className ? { className } : {}, text === undefined ? [] : [text]);

/** A name, which is broken behind its signs where it is longer than a line. */
export const breakable = (name, places = /(?<=[_./-])(?=\w)/) => name.split(places).flatMap((part, place) => (place ? [made("wbr"), part] : [part]));

/** A quiet button, and what it does. */
export function button(text, onClick, properties = {}) {
  const element = build("button", { type: "button", className: "quiet small", ...properties }, [text]);
  element.addEventListener("click", () => onClick(element));
  return element;
}

/** A button that copies what `textOf` returns, and says that it has. */
export const copyButton = (textOf, properties) => button("Copy", (element) => copyBy(element, textOf()), properties);

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
}

/** A button that saves what `blobOf` returns as a file. */
export function saveButton(name, blobOf, label = "Save", properties = {}) {
  return button(label, async () => {
    const link = build("a", { href: URL.createObjectURL(await blobOf()), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }, { title: `Save as ${name}`, ...properties });
}

/** Rows of a table, each with a name and its values. */
export const tableRows = (rows) =>
  rows.map(([name, ...values]) => build("tr", {}, [build("th", { scope: "row" }, [name]), ...values.map((value) => made("td", value))]));

/** Choose one of the tabs of a list, and show its panel alone. */
export function chooseTab(tab) {
  const panelOf = (each) => at(each.getAttribute("aria-controls"));
  for (const each of tab.parentElement.children) {
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
    const tabs = [...list.children].filter(({ hidden }) => !hidden), step = key === "ArrowRight" ? 1 : -1;
    const next = tabs.at((tabs.indexOf(target) + step) % tabs.length);
    chooseTab(next);
    tabs.find((each) => each.ariaSelected === "true").focus();  // it may be that another one has to stay
  });
}

// Files that are chosen or dropped, and read

/** Opens files for an element: `use` gets what `read` promises, or `told` says why nothing is read, unless something newer is in the element by then. */
export class Opener {
  constructor(element, { read, use }) {
    Object.assign(this, { read, use, input: null, awaited: null, takesSeveral: false });
    this.told = build("p", { role: "status" });
    element.addEventListener("input", () => this.forget());
    for (const kind of ["dragover", "drop"]) element.addEventListener(kind, (event) => {
      const { files, types } = event.dataTransfer;
      if (!types.includes("Files")) return;  // text goes where it always goes
      event.preventDefault();  // which would show the file in place of the page
      if (kind === "drop") this.open([...files]);
    });
  }

  /** A button that opens files. That one is chosen changes nothing yet, so its own event is nobody's. */
  picker(text, properties) {
    this.input = build("input", { type: "file", ...properties });
    this.input.addEventListener("input", (event) => event.stopPropagation());
    this.input.addEventListener("change", () => {
      this.open([...this.input.files]);
      this.input.value = "";  // so that the same file can be chosen again
    });
    return build("label", { className: "pick" }, [text, this.input]);
  }

  async open(files) {
    if (!this.input || !files.length) return;
    const awaited = this.awaited = {};
    const found = files.length > 1 && !this.takesSeveral ? Promise.reject(new Error("expected one file")) : this.read(files);
    const take = await found.then((content) => () => this.use(content), ({ message }) => () => this.tell(`Nothing is read from ${files[0].name}: ${message}`));
    if (this.awaited === awaited) take();
  }

  /** Say what was read, and whether that is all; nothing once there is something else. */
  tell(text, isAll = false) {
    this.told.className = isAll ? "faint" : "hint";
    say(this.told, text);
  }

  /** What is being read is not wanted any more. */
  forget() {
    this.awaited = null;
  }
}

// A sign wherever there is more than is seen: a box fades where it goes on, and a long description has a button

const BOXES = ".scroll, pre, .text, .fields, #models, #docstring";

let isDue = false;

export function listenToOverflow() {
  for (const kind of ["scroll", "resize", "input"]) addEventListener(kind, mark, true);
  new MutationObserver(mark).observe(document.body, { subtree: true, childList: true, characterData: true, attributeFilter: ["hidden", "class", "aria-expanded"] });
  at("more").addEventListener("click", () => showWhole(at("more").ariaExpanded !== "true"));
}

/** Show all of the description, or what is before its sections. */
export function showWhole(isWhole) {
  at("docstring").classList.toggle("whole", isWhole);
  at("more").ariaExpanded = isWhole;
  at("more").textContent = isWhole ? "Show less" : "Show all";
}

/** Mark all boxes before the next frame is drawn, once for all changes until then. */
function mark() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    for (const box of document.querySelectorAll(BOXES)) box.dataset.more = sidesOf(box).join(" ");
    const { dataset, classList } = at("docstring");
    const isNeeded = dataset.more || classList.contains("whole") || at("docstring").querySelector("h3");
    if (at("more").hidden === Boolean(isNeeded)) at("more").hidden = !isNeeded;  // what is set again is a change too, and would be marked for ever
  });
}

/** Where a box goes on; a pixel is what sizes are rounded by. */
function sidesOf({ scrollWidth, scrollLeft, clientWidth, scrollHeight, scrollTop, clientHeight }) {
  const right = scrollWidth - scrollLeft - clientWidth, below = scrollHeight - scrollTop - clientHeight;
  return [scrollLeft > 1 && "left", right > 1 && "right", scrollTop > 1 && "above", below > 1 && "below"].filter(Boolean);
}
