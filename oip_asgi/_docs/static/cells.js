// Controls for one value: a choice, a date, a number or a text, which may be missing. Knows no tensors and nothing of the page.

import { build } from "./elements.js";
import { Written } from "./json.js";

const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;
const JSON_NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const WORDS = { true: true, false: false, null: null, NaN: "NaN", Infinity: "Infinity", "-Infinity": "-Infinity" };
const MOMENT = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?))?(Z?)$/;

/** What the reader wrote cannot be sent. */
export class Mistake extends Error {
  constructor(control, message) {
    super(message);
    this.control = control;
  }
}

/** The type of an input in words: of BYTES, what its content type makes of them. */
export function typeOf(datatype, contentType) {
  const word = { str: "text", datetime: "date" }[contentType];
  return word ?? [datatype, contentType].filter(Boolean).join(" ");
}

/** A number as it is written, or the word for one; undefined if it is none. */
export function numberIn(word) {
  if (JSON_NUMBER.test(word)) return new Written(word);
  if (NUMBER.test(word)) return new Written(String(Number(word)));
  return Object.hasOwn(WORDS, word) ? WORDS[word] : undefined;
}

/** A value as it is written into a field. */
export function fieldText(value) {
  return value instanceof Written ? value.source : String(value);
}

/**
 * A control for a value of a column: `read` returns the value, null for a missing one, or undefined where nothing is to be sent.
 * `empty` is what nothing means: "missing", "default" with the text of it, or "wrong".
 */
export function makeCell(column, label, value) {
  const { datatype, choices, contentType } = column;
  if (choices) return new ChoiceCell(column, label, value, choices);
  if (datatype === "BOOL") return new ChoiceCell(column, label, value, [true, false]);
  if (contentType === "datetime" && (value === null || value === undefined || MOMENT.test(value))) return new DateCell(column, label, value);
  return new TextCell(column, label, value);
}

class ChoiceCell {
  constructor(column, label, value, choices) {
    this.choices = choices;
    const options = choices.map((choice, place) => new Option(fieldText(choice), place));
    const nothing = column.isNullable ? "missing" : column.isOptional ? column.hint || "not sent" : null;
    if (nothing !== null) options.push(new Option(nothing, ""));
    this.nothing = column.isNullable ? null : undefined;
    const place = choices.findIndex((choice) => value !== null && value !== undefined && fieldText(choice) === fieldText(value));
    this.element = build("select", { ariaLabel: label }, options);
    this.element.value = place >= 0 ? place : nothing === null && value === undefined ? 0 : "";
    if (place < 0 && nothing === null && value !== null && value !== undefined) this.keep(value);
  }

  /** A value that is no choice stays as it is, so that the server can say what it thinks of it. */
  keep(value) {
    this.choices = [...this.choices, value];
    this.element.append(new Option(fieldText(value), this.choices.length - 1, true, true));
  }

  read() {
    return this.element.value === "" ? this.nothing : this.choices[this.element.value];
  }
}

class DateCell {
  constructor(column, label, value) {
    const [, day, time = "00:00:00", zone] = MOMENT.exec(value ?? "") ?? [];
    Object.assign(this, { column, zone: zone ?? column.zone ?? "" });
    this.element = build("input", { type: "datetime-local", step: 1, ariaLabel: label, value: day ? `${day}T${time}` : "" });
  }

  read() {
    const { value } = this.element;
    if (value) return `${value.length === 16 ? `${value}:00` : value}${this.zone}`;
    if (this.element.validity?.badInput) throw new Mistake(this.element, `${this.column.name} has a date that is not whole`);
    return nothingOf(this.column, this.element, "a date");
  }
}

class TextCell {
  constructor(column, label, value) {
    const text = value === null || value === undefined ? "" : fieldText(value);
    Object.assign(this, { column, isEmptyText: value === "" });
    this.element = build("input", { value: text, ariaLabel: label, autocomplete: "off", spellcheck: false, size: Math.min(Math.max(text.length, 8), 40) });
    if (column.datatype !== "BYTES") this.element.inputMode = "decimal";
    this.element.placeholder = this.isEmptyText ? "empty text" : column.isNullable ? "missing" : column.isOptional ? column.hint || "not sent" : "";
  }

  read() {
    const { column, element } = this, text = element.value;
    if (column.datatype === "BYTES") return text || (this.isEmptyText || !(column.isNullable || column.isOptional) ? "" : nothingOf(column, element, ""));
    if (!text.trim()) return nothingOf(column, element, "a number");
    const number = numberIn(text.trim());
    if (number === undefined) throw new Mistake(element, `${column.name}: ${JSON.stringify(text)} is no number`);
    return number;
  }
}

function nothingOf({ name, isNullable, isOptional }, control, expected) {
  if (isNullable) return null;
  if (isOptional) return undefined;
  throw new Mistake(control, `${name} needs ${expected} in each row`);
}
