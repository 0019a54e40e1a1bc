// Controls for one value: a choice, a date, a number or a text, which may be missing. Knows no tensors and nothing of the page.

import { build } from "./elements.js";
import { exactly, Written } from "./json.js";

const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;
const JSON_NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const WORDS = { true: true, false: false, null: null, NaN: "NaN", Infinity: "Infinity", "-Infinity": "-Infinity" };
const OF_PYTHON = { True: true, False: false, None: null, nan: "NaN", inf: "Infinity", "-inf": "-Infinity" };
const MOMENT = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?))?(Z?)$/;
export const DECIMALS = "write decimals with a point, as in 1.5";
const MIDNIGHT = /^[0:.]*$/, WHOLE_MINUTE = /^\d\d:\d\d(:[0.]*)?$/;

const OTHER = "other";  // the value of an option that is none of the choices

/** What the reader wrote cannot be sent. */
export class Mistake extends Error {
  constructor(control, message) {
    super(message);
    this.control = control;
  }
}

/** The type of a tensor in words: of BYTES, what its content type makes of them, dates with a time of the day if an example `hasTime`; and whether values may be missing. */
export function typeOf(datatype, contentType, { isNullable = false, hasTime = false } = {}) {
  const isText = datatype === "BYTES" && [undefined, "np", "str"].includes(contentType);
  const type = isText ? "text" : contentType === "datetime" ? (hasTime ? "date and time" : "date") : [datatype, contentType].filter(Boolean).join(" ");
  return isNullable ? `${type} or missing` : type;
}

/** Whether a text is a date with a time of the day. */
export function isMoment(text) {
  const time = MOMENT.exec(text)?.[2];
  return time !== undefined && !MIDNIGHT.test(time);
}

/** A number as it is written, or the word for one; undefined if it is none. */
export function numberIn(word) {
  if (JSON_NUMBER.test(word)) return new Written(word);
  if (NUMBER.test(word)) return new Written(fieldText(exactly(word)));
  return [WORDS, OF_PYTHON].find((words) => Object.hasOwn(words, word))?.[word];
}

/** The number that a word is; raises Mistake where it is none, or no whole one for integers. `place` says where it stands. The rest is the server's to say. */
export function readNumber(word, { datatype }, control, place) {
  const number = numberIn(word);
  if (number === undefined) throw new Mistake(control, `${place}: ${JSON.stringify(word)} is not a number${/^[-+]?\d+,\d+$/.test(word) ? `: ${DECIMALS}` : ""}`);
  if (/^U?INT/.test(datatype) && number instanceof Written && !Number.isInteger(Number(number.source))) throw new Mistake(control, `${place}: ${word} is not an integer`);
  return number;
}

/** A value as it is written into a field. */
export const fieldText = (value) => value instanceof Written ? value.source : String(value);

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
    Object.assign(this, { column, label, choices });
    const options = choices.map((choice, place) => new Option(fieldText(choice), place));
    const nothing = column.isNullable ? "missing" : column.isOptional ? column.hint || "not sent" : null;
    if (nothing !== null) options.push(new Option(nothing, ""));
    const place = choices.findIndex((choice) => value !== null && value !== undefined && fieldText(choice) === fieldText(value));
    this.element = build("select", { ariaLabel: label }, options);
    this.element.value = place >= 0 ? place : nothing === null && value === undefined ? 0 : "";
    this.other = value;  // where it is no choice, it stays in sight, and the server refuses it
    if (place < 0 && value !== null && value !== undefined) this.element.append(new Option(fieldText(value), OTHER, true, true));
  }

  read() {
    const { value } = this.element;
    if (value === OTHER) return this.other;
    return value === "" ? nothingOf(this, "a choice") : this.choices[value];
  }
}

/** A day; or a moment, if the first date of its column has a time of the day, or this one. */
class DateCell {
  constructor(column, label, value) {
    const [, day, time = "00:00:00", zone] = MOMENT.exec(value ?? "") ?? [], isMidnight = MIDNIGHT.test(time);
    if (day) column.hasDays ??= isMidnight;
    Object.assign(this, { column, label, zone: zone ?? column.zone ?? "" });
    const kind = column.hasDays && isMidnight ? { type: "date", value: day ?? "" }
      : { type: "datetime-local", step: WHOLE_MINUTE.test(time) ? 60 : 1, value: day ? `${day}T${time}` : "" };
    this.element = build("input", { ariaLabel: label, ...kind });
  }

  read() {
    const { value } = this.element;
    if (value) return `${value}${{ 10: "T00:00:00", 16: ":00" }[value.length] ?? ""}${this.zone}`;
    if (this.element.validity?.badInput) throw new Mistake(this.element, `${placeOf(this)} needs the whole date`);
    return nothingOf(this, "a date");
  }
}

class TextCell {
  constructor(column, label, value) {
    const text = value === null || value === undefined ? "" : fieldText(value);
    Object.assign(this, { column, label, isEmptyText: value === "", isOpen: value === null && !column.isNullable && !column.isOptional });
    this.element = build("input", { value: text, ariaLabel: label, autocomplete: "off", spellcheck: false, size: Math.min(Math.max(text.length, 8), 40) });
    if (/^UINT/.test(column.datatype) || column.least >= 0) this.element.inputMode = "decimal";  // whose keys on a phone have no minus
    this.element.placeholder = this.isEmptyText ? "empty text" : column.isNullable ? "missing" : column.isOptional ? column.hint || "not sent" : "";
  }

  read() {
    const { column, element } = this, text = element.value;
    const isEmptyText = this.isEmptyText || !(this.isOpen || column.isNullable || column.isOptional);
    if (column.datatype === "BYTES") return text || (isEmptyText ? "" : nothingOf(this, "a text"));
    if (!text.trim()) return nothingOf(this, "a number");
    return readNumber(text.trim(), column, element, placeOf(this));
  }
}

function nothingOf(cell, expected) {
  const { isNullable, isOptional } = cell.column;
  if (isNullable) return null;
  if (isOptional) return undefined;
  throw new Mistake(cell.element, `${placeOf(cell)} needs ${expected}`);
}

/** Where a mistake is: in which row, if there are several. */
const placeOf = ({ column, label }) => column.cells?.length > 1 ? label : column.name;
