// Files that are chosen or dropped, and read. Knows nothing of what is in them.

import { build } from "./elements.js";

/**
 * Opens files for an element: `read` returns a promise of what is in them, which `use` gets; the element `told` says why nothing is read. Neither gets it
 * once something newer is written into the element, or the element is filled: then it is late. Several files at once are refused, unless `takesSeveral`.
 */
export class Opener {
  constructor(element, { read, use }) {
    Object.assign(this, { read, use, input: null, awaited: null, takesSeveral: false });
    this.told = build("p", { className: "hint", role: "status", hidden: true });
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
    this.told.textContent = text;
    this.told.className = isAll ? "faint" : "hint";
    this.told.hidden = !text;
  }

  /** What is being read is not wanted any more. */
  forget() {
    this.awaited = null;
  }
}
