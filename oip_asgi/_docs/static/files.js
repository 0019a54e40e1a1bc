// Files that are chosen or dropped, and read. Knows nothing of what is in them.

import { build } from "./elements.js";

/**
 * Opens files for an element: `read` returns a promise of what is in them, which `use` gets, or `refuse` the error of it. Neither gets it once
 * something newer is written into the element, or the element is filled: then it is late. Several files at once are refused, unless `takesSeveral`.
 */
export class Opener {
  constructor(element, { read, use, refuse }) {
    Object.assign(this, { read, use, refuse, input: null, awaited: null, takesSeveral: false });
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
    const take = await found.then((content) => () => this.use(content), (error) => () => this.refuse(error, files));
    if (this.awaited === awaited) take();
  }

  /** What is being read is not wanted any more. */
  forget() {
    this.awaited = null;
  }
}
