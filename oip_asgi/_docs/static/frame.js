// The columns of a frame as a table: a line for each column, and a cell for each row. Rows are pasted, dropped, or read from a file.

import { makeCell, Mistake, typeOf } from "./cells.js";
import { breakable, build, button } from "./elements.js";
import { columnsOf, readRows } from "./rows.js";
import { plainData } from "./tensors.js";

const MOST_ROWS = 1000;  // that a browser shows as fields without a pause

export class Frame {
  constructor(inputs) {
    this.columns = inputs.map((input) => new Column(input));
    this.head = build("tr", { hidden: true });
    this.table = build("table", { className: "frame" }, [build("thead", {}, [this.head]), build("tbody", {}, this.columns.map(({ element }) => element))]);
    const scroll = build("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Rows" }, [this.table]);
    const file = build("input", { type: "file", accept: ".csv,.tsv,.txt", ariaLabel: "Rows from a CSV file" });
    file.addEventListener("change", async () => { this.take(await file.files[0].text(), this.columns[0], 0); file.value = ""; });
    this.fewer = button("Remove a row", () => this.setRows(this.count - 1), { ariaLabel: "Remove the last row" });
    const add = button("Add a row", () => { this.setRows(this.count + 1); this.columns[0].cells.at(-1).element.focus(); });
    const pick = build("label", { className: "pick" }, ["From a CSV file", file]);
    const hint = build("span", { className: "faint wide" }, ["or paste rows of a spreadsheet"]);
    this.element = build("div", {}, [scroll, build("div", { className: "buttons" }, [add, this.fewer, pick, hint])]);
    scroll.addEventListener("paste", (event) => this.paste(event));
    scroll.addEventListener("dragover", (event) => event.preventDefault());
    scroll.addEventListener("drop", (event) => this.drop(event));
    this.setRows(1);
  }

  get count() {
    return this.columns[0].cells.length;
  }

  setRows(count) {
    for (const column of this.columns) column.setRows(count);
    this.numberRows();
    this.element.dispatchEvent(new Event("input", { bubbles: true }));
  }

  /** Several cells go into the table from the focused one on; one goes where it always goes. */
  paste(event) {
    const text = event.clipboardData.getData("text"), column = this.columns.find((each) => each.rowOf(event.target) >= 0);
    if (!/[\t\n]/.test(text.trim())) return;
    event.preventDefault();
    this.take(text, column ?? this.columns[0], Math.max(column?.rowOf(event.target) ?? 0, 0));
  }

  async drop(event) {
    event.preventDefault();
    const [file] = event.dataTransfer.files;
    if (file) this.take(await file.text(), this.columns[0], 0);
  }

  /** Write the rows of a text, from a column and a row on. */
  take(text, column, row) {
    const names = this.columns.map(({ name }) => name);
    const found = columnsOf(readRows(text).slice(0, MOST_ROWS + 1), names, names.indexOf(column.name));
    const length = Math.max(0, ...[...found.values()].map((texts) => texts.length));
    if (row === 0 && length) this.setRows(length);
    else this.setRows(Math.max(this.count, row + length));
    for (const each of this.columns) if (found.has(each.name)) each.write(found.get(each.name), row);
    this.element.dispatchEvent(new Event("input", { bubbles: true }));
  }

  tensors() {
    return this.columns.map((column) => column.tensor()).filter(Boolean);
  }

  fill(tensors) {
    const tensorOf = ({ name }) => tensors.find((tensor) => tensor.name === name);
    const count = Math.min(Math.max(1, ...tensors.map(({ data }) => [data ?? []].flat(Infinity).length)), MOST_ROWS);
    for (const column of this.columns) column.fill(tensorOf(column), count);
    this.numberRows();
  }

  /** One row needs no number, and cannot be removed. */
  numberRows() {
    const { count } = this;
    this.fewer.hidden = this.head.hidden = count < 2;
    this.table.classList.toggle("many", count > 1);
    const title = (_, place) => build("th", { scope: "col" }, [`row ${place + 1}`]);
    this.head.replaceChildren(build("td"), ...Array.from({ length: count }, title));
  }
}

class Column {
  constructor(input) {
    Object.assign(this, input, { cells: [] });
    const words = [typeOf(input.datatype, input.contentType, input.isNullable), ...input.notes].join(", ");
    const title = [...breakable(input.name), " ", build("span", { className: "faint" }, [words])];
    this.element = build("tr", {}, [build("th", { scope: "row" }, title)]);
  }

  rowOf(control) {
    return this.cells.findIndex(({ element }) => element === control);
  }

  setRows(count) {
    while (this.cells.length > count) this.cells.pop().element.parentElement.remove();
    while (this.cells.length < count) this.add(this.cells.length ? undefined : this.first);
  }

  add(value) {
    const cell = makeCell(this, `${this.name}, row ${this.cells.length + 1}`, value);
    this.cells.push(cell);
    this.element.append(build("td", {}, [cell.element]));
  }

  /** Write texts from a row on: each becomes what it is in this column. */
  write(texts, row) {
    texts.forEach((text, place) => {
      const missing = this.isNullable && ["", "NA", "NaN", "nan", "NULL", "null", "None", "NaT"].includes(text.trim());
      const cell = makeCell(this, `${this.name}, row ${row + place + 1}`, missing ? null : this.plain(text));
      this.cells[row + place].element.replaceWith(cell.element);
      this.cells[row + place] = cell;
    });
  }

  plain(text) {
    return this.datatype === "BOOL" ? { 1: "true", 0: "false" }[text.trim()] ?? text.trim().toLowerCase() : this.datatype === "BYTES" ? text : text.trim();
  }

  tensor() {
    const values = this.cells.map((cell) => cell.read());
    const isNothing = (value) => value === undefined || (this.isOptional && value === null);
    if (values.every(isNothing)) return null;
    const hole = values.indexOf(undefined);
    if (hole >= 0) throw new Mistake(this.cells[hole].element, `${this.name} has a value in some rows only: row ${hole + 1} has none`);
    return { name: this.name, shape: this.shape.length > 1 ? [values.length, 1] : [values.length], datatype: this.datatype, contentType: this.contentType, data: values };
  }

  fill(tensor, count) {
    const isText = this.contentType === "pd_json";  // which then has texts of JSON of its own
    const parameters = isText ? {} : { content_type: this.contentType, ...tensor?.parameters };
    const values = tensor ? plainData({ ...tensor, parameters }) : [];
    this.setRows(0);
    for (let row = 0; row < count; row += 1) this.add(values[row]);
  }
}

/** A column with missing values, as the protocol has it: null among floats, NaT among dates, and else texts of JSON. */
export function withMissing({ contentType, ...tensor }) {
  const { datatype, data } = tensor;
  if (!Array.isArray(data) || /^(FP|BF)/.test(datatype) || !data.includes(null)) return tensor;
  if (contentType === "datetime") return { ...tensor, data: data.map((value) => value ?? "NaT") };
  const texts = data.map((value) => (value === null ? "null" : value.source ?? JSON.stringify(value)));
  return { ...tensor, datatype: "BYTES", parameters: { content_type: "pd_json" }, data: texts };
}
