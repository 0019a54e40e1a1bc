// A field for each input of a request: numbers, texts, files, and a table for the columns of a frame. Knows nothing of the page.

import { build } from "./elements.js";
import { Written } from "./json.js";

const DATATYPES = ["FP32", "FP64", "FP16", "INT64", "INT32", "INT16", "INT8", "UINT64", "UINT32", "UINT16", "UINT8", "BOOL", "BYTES"];
const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const TEXTS = ["str", "datetime", "pd_json"];  // content types of texts, which are no files
const WORDS = { true: true, false: false, null: null, NaN: "NaN", Infinity: "Infinity", "-Infinity": "-Infinity" };

/** What the reader wrote cannot be sent. */
export class Mistake extends Error {
  constructor(control, message) {
    super(message);
    this.control = control;
  }
}

/**
 * The fields of a model's inputs. An input has a name and, where they are known, a datatype, a shape, a content type, and whether it is
 * optional.
 */
export class Fields {
  constructor(inputs) {
    const isFrame = inputs.length > 1 && inputs.every(({ shape }) => `${shape}` === "-1" || `${shape}` === "-1,1");
    this.fields = inputs.map((input) => (isFrame ? new Column(input) : new Field(input, inputs.length === 1)));
    this.element = isFrame ? this.makeTable() : build("div", { className: "fields" }, this.fields.map((field) => field.element));
    if (!inputs.length) this.element.append("It takes no inputs.");
  }

  makeTable() {
    const add = build("button", { type: "button", className: "quiet" }, ["Add a row"]);
    add.addEventListener("click", () => {
      for (const column of this.fields) column.write([...column.texts(), ""]);
      this.fields[0].cells().at(-1).focus();
    });
    const table = build("table", { className: "frame" }, this.fields.map((column) => column.element));
    return build("div", {}, [build("div", { className: "scroll", tabIndex: 0 }, [table]), add]);
  }

  /** The tensors of a request. Raises Mistake. */
  tensors() {
    return this.fields.map((field) => field.tensor()).filter(Boolean);
  }

  /** The file that is the whole body: of the only input, if its content type is one that JSON cannot carry. */
  get body() {
    return this.fields[0]?.body;
  }

  /** Show the tensors of a request that was written in another way. */
  fill(tensors) {
    for (const field of this.fields) field.fill(tensors.find(({ name }) => name === field.name));
  }
}

/** One input by itself. */
class Field {
  constructor({ name, datatype, shape, contentType, optional }, isOnly) {
    Object.assign(this, { name, shape });
    const id = `input ${name}`;
    this.datatype = datatype ?? "FP32";
    this.control = build("textarea", { id, rows: 1, spellcheck: false, autocomplete: "off" });
    this.control.addEventListener("input", () => this.fit());
    const words = [datatype, shape && `[${shape.join(", ")}]`, contentType, optional && "optional"].filter(Boolean).join(" ");
    const parts = [build("label", { htmlFor: id }, [build("b", {}, [name]), " ", build("span", { className: "faint" }, [words])])];
    if (!datatype) parts.push(this.makeChoice());
    parts.push(this.control);
    const isText = [undefined, "np", "base64"].includes(contentType);  // JSON carries its bytes as base64
    if (this.datatype === "BYTES" && !TEXTS.includes(contentType) && (isText || isOnly)) parts.push(this.makeFile(isText));
    this.element = build("div", { className: "field" }, parts);
  }

  /** Nobody has declared the datatype. */
  makeChoice() {
    const choice = build("select", { ariaLabel: `datatype of ${this.name}` }, DATATYPES.map((each) => new Option(each, each)));
    choice.addEventListener("change", () => { this.datatype = choice.value; });
    this.choice = choice;
    return choice;
  }

  makeFile(isText) {
    const file = build("input", { type: "file", multiple: isText && this.isList(), ariaLabel: `files for ${this.name}` });
    file.addEventListener("change", async () => {
      this.files = isText ? await Promise.all([...file.files].map(base64)) : [];
      this.body = isText ? undefined : file.files[0];
      this.control.disabled = file.files.length > 0;
      file.dispatchEvent(new Event("input", { bubbles: true }));
    });
    return file;
  }

  /** Whether each line is an element of its own. */
  isList() {
    return !this.shape || this.shape.includes(-1) || this.shape.reduce((product, size) => product * size, 1) > 1;
  }

  tensor() {
    const { name, datatype } = this;
    if (this.files?.length) {
      const shape = this.shapeFor(this.files.length, this.files.length);
      return { name, shape, datatype, parameters: { content_type: "base64" }, data: this.files };
    }
    const text = this.control.value;
    if (!text.trim() && this.isEmptyLeftOut) return null;
    const lines = text.split("\n").filter((line) => line.trim());
    const data = datatype !== "BYTES" ? lines.flatMap((line) => numbers(line, this)) : this.isList() ? lines : [text];
    return { name, shape: this.shapeFor(data.length, lines.length), datatype, data };
  }

  /** The shape of so many elements on so many lines. */
  shapeFor(count, lines) {
    const shape = this.shape ?? (lines > 1 && count > lines ? [-1, -1] : [-1]);
    const fixed = shape.filter((size) => size !== -1).reduce((product, size) => product * size, 1);
    const free = shape.length - shape.filter((size) => size !== -1).length;
    const rows = free > 1 ? lines : 1;
    const rest = fixed ? count / fixed / rows : 0;
    if ((free ? !Number.isInteger(rest) : count !== fixed) || (!fixed && count)) {
      throw new Mistake(this.control, `${this.name} has ${count} elements: expected the shape [${shape.join(", ")}]`);
    }
    const first = shape.indexOf(-1), last = shape.lastIndexOf(-1);
    return shape.map((size, place) => (size !== -1 ? size : place === last ? rest : place === first ? rows : 1));
  }

  fill(tensor) {
    this.isEmptyLeftOut = !tensor;
    if (tensor && this.choice) this.choice.value = this.datatype = tensor.datatype;
    const elements = (tensor?.data ?? []).flat(Infinity).map(written);
    const width = tensor?.shape?.length > 1 ? Number(written(tensor.shape.at(-1))) : elements.length;
    const lines = this.datatype === "BYTES" ? elements : rowsOf(elements, width).map((row) => row.join(", "));
    this.control.value = lines.join("\n");
    this.fit();
  }

  /** As many lines as there are. */
  fit() {
    this.control.rows = Math.min(this.control.value.split("\n").length, 8);
  }
}

/** One column of a frame: a line of a table, with a cell for each row. */
class Column {
  constructor({ name, datatype, shape, contentType, optional }) {
    Object.assign(this, { name, datatype, shape });
    const words = [datatype, contentType, optional && "optional"].filter(Boolean).join(" ");
    this.element = build("tr", {}, [build("th", { scope: "row" }, [name, " ", build("span", { className: "faint" }, [words])])]);
  }

  cells() {
    return [...this.element.querySelectorAll("input")];
  }

  texts() {
    return this.cells().map((cell) => cell.value);
  }

  write(texts) {
    this.cells().forEach((cell) => cell.parentElement.remove());
    this.element.append(...texts.map((value, row) =>
      build("td", {}, [build("input", { value, ariaLabel: `${this.name}, row ${row + 1}`, autocomplete: "off", size: 10 })])));
  }

  tensor() {
    const texts = this.texts();
    if (this.isEmptyLeftOut && !texts.some(Boolean)) return null;
    const numberOf = (control) => numbers(control.value, { name: this.name, control }, 1)[0];
    const data = this.datatype === "BYTES" ? texts : this.cells().map(numberOf);
    return { name: this.name, shape: this.shape.length > 1 ? [data.length, 1] : [data.length], datatype: this.datatype, data };
  }

  fill(tensor) {
    this.isEmptyLeftOut = !tensor;
    this.write((tensor?.data ?? [""]).flat(Infinity).map(written));
  }
}

/** The numbers on a line, as they are written; `count` of them where that is said. */
function numbers(line, { name, control }, count) {
  const words = line.split(/[\s,;]+/).filter(Boolean);
  if (count !== undefined && words.length !== count) throw new Mistake(control, `${name} needs ${count} number in each row`);
  return words.map((word) => {
    if (NUMBER.test(word)) return new Written(word);
    if (Object.hasOwn(WORDS, word)) return WORDS[word];
    throw new Mistake(control, `${name}: ${JSON.stringify(word)} is no number`);
  });
}

function written(value) {
  return value instanceof Written ? value.source : String(value);
}

function rowsOf(elements, width) {
  const rows = [];
  for (let place = 0; width && place < elements.length; place += width) rows.push(elements.slice(place, place + width));
  return rows;
}

/** The bytes of a file, as text. */
function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
