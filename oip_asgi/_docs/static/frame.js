// The columns of a frame as a table: a line for each column, and a cell for each row. Rows are pasted, dropped, or read from a file.

import { attempt, columnsOf, makeCell, MISSING, Mistake, numberIn, readRows, typeOf } from "./cells.js";
import { breakable, build, button, Opener } from "./elements.js";
import { plainData } from "./tensors.js";
import { counted, listed } from "./words.js";

const MOST_ROWS = 1000;  // that a browser shows as fields without a pause

export class Frame {
  constructor(inputs) {
    this.columns = inputs.map((input) => new Column(input));
    this.head = build("tr", { hidden: true });
    this.table = build("table", { className: "frame" }, [build("thead", {}, [this.head]), build("tbody", {}, this.columns.map(({ element }) => element))]);
    const scroll = build("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Rows" }, [this.table]);
    this.element = build("div");
    this.opener = new Opener(this.element, { read: ([file]) => file.text(), use: (text) => this.take(text) });
    this.fewer = button("Remove a row", () => this.setRows(this.count - 1), { ariaLabel: "Remove the last row" });
    const add = button("Add a row", () => this.repeatRow());
    const pick = this.opener.picker("From a CSV file", { ariaLabel: "Rows from a CSV file", accept: ".csv,.tsv,.txt" });
    const hint = build("span", { className: "faint wide" }, ["or paste rows of a spreadsheet"]);
    this.element.append(scroll, this.opener.told, build("div", { className: "buttons" }, [add, this.fewer, pick, hint]));
    scroll.addEventListener("paste", (event) => this.paste(event));
    this.setRows(1);
  }

  get count() { return this.columns[0].cells.length; }

  setRows(count) {
    for (const column of this.columns) column.setRows(count);
    this.changed();
  }

  /** One more row, with the values of the last: it can be sent as it is. */
  repeatRow() {
    for (const column of this.columns) column.add(attempt(() => column.cells.at(-1).read(), () => null));  // what is wrong is not wanted twice
    this.changed();
    this.columns[0].cells.at(-1).element.focus();
    const scroll = this.element.firstChild;
    scroll.scrollLeft = scroll.scrollWidth;  // cells below the focused one may be wider
  }

  changed() {
    this.numberRows();
    this.element.dispatchEvent(new Event("input", { bubbles: true }));
  }

  /** Several cells go into the table from the focused one on; one goes where it always goes. */
  paste(event) {
    const text = event.clipboardData.getData("text"), column = this.columns.find((each) => each.rowOf(event.target) >= 0);
    if (!/[\t\n]/.test(text.trim())) return;
    event.preventDefault();
    this.take(text, column, column?.rowOf(event.target));
  }

  /** Write the rows of a text, from a column and a row on. What they lack is empty; only a block without names that begins at a later column leaves the cells beside it. */
  take(text, column = this.columns[0], row = 0) {
    const names = this.columns.map(({ name }) => name);
    const first = names.indexOf(column.name);
    const areNames = (cells) => {  // some cannot be values, and none is certainly one
      const fits = this.columns.slice(first).map((each, place) => each.fits(cells[place] ?? ""));
      return fits.includes(false) && !fits.includes(true);
    };
    const { head, texts, unknown } = columnsOf(readRows(text), names, first, areNames);
    if (head.length && unknown.length === head.length) return this.opener.tell(`Nothing is read: no column is called ${listed(head)}. Expected: ${listed(names)}`);
    const all = texts.values().next().value?.length ?? 0, length = Math.min(all, MOST_ROWS - row);
    this.opener.tell([
      `${texts.size} of ${counted(names.length, "column")} read`,
      unknown.length && `unknown: ${unknown.join(", ")}`,
      length < all && `only ${length} of ${counted(all, "row")}`,
    ].filter(Boolean).join("; "), texts.size === names.length && !unknown.length && length === all);
    if (!length) return undefined;
    const isWhole = head.length > 0 || column === this.columns[0], count = row + length;
    for (const each of this.columns) {
      each.setRows(isWhole && row === 0 ? count : Math.max(this.count, count));
      if (texts.has(each.name)) texts.get(each.name).slice(0, length).forEach((text, place) => each.put(row + place, each.valueIn(text)));
      else if (isWhole) for (let place = row; place < count; place += 1) each.put(place, null);  // missing, or there is something to write
    }
    return this.changed();
  }

  /** The cell of a column in a row; that of the first where none is named. */
  controlOf(name, row = 0) { return this.columns.find((column) => column.name === name)?.cells[row]?.element; }

  tensors() { return this.columns.map((column) => column.tensor()).filter(Boolean); }

  /** Why tensors cannot be rows here; nothing if they can. */
  limitOf(tensors) {
    const count = rowsIn(tensors);
    return count > MOST_ROWS ? `The fields show up to ${counted(MOST_ROWS, "row")}, and here are ${count.toLocaleString("en")}` : "";
  }

  fill(tensors) {
    const tensorOf = ({ name }) => tensors.find((tensor) => tensor.name === name), count = Math.max(1, rowsIn(tensors));
    this.opener.forget();
    for (const column of this.columns) column.fill(tensorOf(column), count);
    this.numberRows();
    this.opener.tell("");
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

const rowsIn = (tensors) => Math.max(0, ...tensors.map(({ data }) => [data ?? []].flat(Infinity).length));

class Column {
  constructor(input) {
    Object.assign(this, input, { cells: [] });
    const words = [typeOf(input.datatype, input.contentType, input), ...input.notes].join(", ");
    const title = [...breakable(input.name), " ", build("span", { className: "faint" }, [words])];
    this.element = build("tr", {}, [build("th", { scope: "row" }, title)]);
  }

  rowOf(control) { return this.cells.findIndex(({ element }) => element === control); }

  setRows(count) {
    while (this.cells.length > count) this.cells.pop().element.parentElement.remove();
    while (this.cells.length < count) this.add(this.cells.length ? null : undefined);
  }

  add(value) { this.put(this.cells.length, value); }

  valueIn(text) { return this.isMissing(text.trim()) ? null : this.plain(text); }

  put(place, value) {
    const cell = makeCell(this, `${this.name}, row ${place + 1}`, value);
    if (place in this.cells) this.cells[place].element.replaceWith(cell.element);
    else this.element.append(build("td", {}, [cell.element]));
    this.cells[place] = cell;
  }

  /** An empty text is one only among texts that are free. */
  isMissing(text) {
    if (this.isNullable) return MISSING.includes(text);
    return text === "" && (this.datatype !== "BYTES" || Boolean(this.choices) || this.contentType === "datetime");
  }

  /** Whether a text can be a value, also one that is to be told as wrong, such as "14,23"; undefined where it says nothing: if it is empty, or among free texts. */
  fits(text) {
    if (this.isMissing(text) || !text) return undefined;
    const choices = this.datatype === "BOOL" ? ["true", "false"] : this.choices?.map(String);
    if (choices) return choices.includes(this.plain(text));
    return this.datatype === "BYTES" && this.contentType !== "datetime" ? undefined : /^[-+]?[.,]?\d/.test(text.trim()) || numberIn(text.trim()) !== undefined;
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
    for (let row = 0; row < count; row += 1) this.add(values[row] ?? null);
  }
}
