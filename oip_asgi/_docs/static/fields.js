// A field for each input of a request: a value, lines of numbers or texts, files, a large array, or a table of columns. Knows nothing of the page.

import { isNamed, makeCell, Mistake, numbersOf, readNumber, readRows, separatorOf, typeOf, wordsOf } from "./cells.js";
import { build, button, Opener } from "./elements.js";
import { drawFile, figureOf } from "./figures.js";
import { Frame } from "./frame.js";
import { looksOf } from "./looks.js";
import { isBehind, isInference } from "./request.js";
import { bytesOf, csvCode, imageIn, isFloating, numberOf, randomIn, readNpy, readPicture, shapeOf, sizeOf, slices, zerosIn } from "./tensors.js";
import { counted, single } from "./words.js";

const DATATYPES = ["FP32", "FP64", "FP16", "INT64", "INT32", "INT16", "INT8", "UINT64", "UINT32", "UINT16", "UINT8", "BOOL", "BYTES"];
const TEXTS = ["str", "datetime", "pd_json"];  // content types of texts, which are no files
export const MOST_WRITTEN = 4096;  // elements that are written as text; more are an array of bytes
export const NO_INPUTS = "It takes no inputs.";

/** The fields of a model's inputs, as described.js has them. `onEdit` is called when the reader has made another request of them, not when they are filled. */
export class Fields {
  constructor(inputs, onEdit) {
    const areColumns = inputs.every(({ shape }) => `${shape}` === "-1" || `${shape}` === "-1,1");
    const isFrame = areColumns && (inputs.length > 1 || inputs.some(({ isNullable }) => isNullable));  // on a line, nothing can be missing
    this.frame = isFrame ? new Frame(inputs) : null;
    this.fields = isFrame ? [] : inputs.map((input) => fieldOf(input, inputs.length === 1));
    this.inputs = inputs;
    this.element = isFrame ? this.frame.element : build("div", { className: "fields" }, this.fields.map((field) => field.element));
    if (!inputs.length) this.element.append(build("p", { className: "faint" }, [NO_INPUTS]));
    this.element.addEventListener("input", onEdit);
  }

  /** The control of an input, and in a table that of its row, from 0; undefined where the fields have none. */
  controlOf({ name, row }) {
    return this.frame ? this.frame.controlOf(name, row) : this.fields.find((field) => field.name === name)?.inSight;
  }

  /** The tensors of a request for an action; those with `bytes` are sent behind the JSON. Raises Mistake, also for a file where the action takes none. */
  tensors(action) { return this.frame ? this.frame.tensors() : this.fields.map((field) => field.tensor(action)).filter(Boolean); }

  /** The file that is the whole body: of the only input, if its content type is one that JSON cannot carry. */
  get body() { return this.fields[0]?.body; }

  /** The files in the tensors: their base64, and the name of each. */
  get sources() { return this.fields.flatMap((field) => field.sources ?? []); }

  /** What is being read for them is not wanted any more. */
  forget() {
    for (const { opener } of this.frame ? [this.frame] : this.fields) opener?.forget();
  }

  /** Show the tensors of a request that was written in another way. */
  fill(tensors) {
    if (this.frame) this.frame.fill(tensors);
    for (const field of this.fields) field.fill(tensors.find(({ name }) => name === field.name));
  }
}

function fieldOf(input, isOnly) {
  const { datatype, shape, contentType, choices } = input;
  const isOne = shape && sizeOf(shape) === 1 && !shape.includes(-1);
  if (isOne && (choices || datatype !== "BYTES" || contentType === "datetime")) return new Value(input);
  return datatype === "BYTES" ? new Texts(input, isOnly) : new Numbers(input);
}

/** Whether a shape is the declared one, in which -1 is any size, and has so many elements. */
function fits(shape, declared, count) {
  const isOne = !declared || (shape.length === declared.length && shape.every((size, axis) => [-1, size].includes(declared[axis])));
  return isOne && sizeOf(shape) === count;
}

/** The tensor that a field was filled with: all that it says, and what a flat object, or a file, does not say. */
const wholeOf = ({ given, name, datatype }, findShape) => ({ name, shape: given.shape ?? findShape(), datatype, ...given, isWhole: given.value === undefined });

/** The lines of a text that have something on them. */
const linesIn = (text) => text.split("\n").filter((line) => line.trim());

/** The line above a field: its name, and what is known of it. */
function titleOf({ name, datatype, shape, contentType, notes, ...known }, htmlFor) {
  const type = [typeOf(datatype, contentType, known), shape && `[${shape.join(", ")}]`].filter(Boolean).join(" ");
  const words = [type, ...notes].filter(Boolean).join(", ");
  return build("label", { htmlFor }, [build("b", {}, [name]), " ", build("span", { className: "faint" }, [words])]);
}

/** One value: a choice, a date or a number. Until it is edited, its tensor is the one that it was filled with. */
class Value {
  get inSight() { return this.cell.element; }

  constructor(input) {
    Object.assign(this, input, { input });
    this.element = build("div", { className: "field" }, [titleOf(input, `input ${input.name}`)]);
    this.element.addEventListener("input", () => { this.given = undefined; });
    this.fill(undefined);
  }

  tensor() {
    const { name, shape, datatype } = this;
    if (this.given) return wholeOf(this, () => shape);
    const value = this.cell.read();
    return value === undefined ? null : { name, shape, datatype, data: [value] };
  }

  fill(tensor) {
    this.given = tensor;
    this.cell?.element.remove();
    this.cell = makeCell(this.input, null, this.elementIn([tensor?.data ?? []].flat(Infinity)));  // whose label is the title
    this.cell.element.id = `input ${this.name}`;
    this.element.append(this.cell.element);
  }

  /** The only element. Several, and null where it is no missing value, stay as they are written: the server tells what is wrong with them. */
  elementIn(elements) {
    const isNumber = !this.choices && this.datatype !== "BOOL", mayBeMissing = this.isNullable || this.isOptional;
    const isWritten = elements.length > 1 || (elements[0] === null && isNumber && !mayBeMissing);
    return isWritten ? elements.map(String).join(", ") : elements[0];
  }
}

/** What fields of several elements share. Until the text is edited, the tensor is the `given` one; then its shape stays for as many elements on as many lines. */
class Lines {
  constructor(input) {
    Object.assign(this, input);
    const id = `input ${input.name}`;
    this.control = build("textarea", { id, rows: 1, spellcheck: false, autocomplete: "off", placeholder: input.isOptional ? input.hint || "not sent" : "" });
    this.control.addEventListener("input", () => this.edited());
    this.tools = build("div", { className: "tools" });
    this.preview = build("div", { className: "preview", hidden: true });
    this.element = build("div", { className: "field" }, [titleOf(input, id), this.tools, this.control, this.preview]);
    this.opener = new Opener(this.element, { read: (files) => this.read(files), use: (found) => this.use(found) });
    this.element.append(this.opener.told);
    this.element.addEventListener("input", () => this.opener.tell(""));
  }

  /** What the focus goes to: files stand in place of the text. */
  get inSight() { return this.control.hidden ? this.opener.input : this.control; }

  /** The tensor is another one than that which was given. */
  edited() {
    this.given = { shape: this.given?.shape };
  }

  changed() {
    this.element.dispatchEvent(new Event("input", { bubbles: true }));
  }

  /** Nothing is written: an optional input is left out. */
  none(expected) {
    if (this.isOptional) return null;
    throw new Mistake(this.inSight, `${this.name} needs ${expected}`);
  }

  /** The tensor that the field was filled with; a flat object needs no shape of what one has said. */
  whole(action) {
    const { data, value } = this.given;
    if (value !== undefined && !isInference(action)) return this.given;
    return wholeOf(this, () => this.shapeOf(shapeOf([value ?? data].flat()), [data].flat(Infinity).length));
  }

  /** The shape of an array if it is the declared one, also without sizes of 1; else the declared one with as many elements, but of rows only where those have more sizes. */
  shapeOf(shape, count) {
    const rest = this.shape ? this.shape.length - shape.length : 0, areRows = this.shape?.length === 2 && shape.slice(1).some((size) => size !== 1);
    const added = rest > 0 ? [...Array(rest).fill(1), ...shape] : shape.filter((size, place) => size !== 1 || place >= -rest);
    return [shape, added].find((each) => fits(each, this.shape, count)) ?? (areRows ? shape : this.shapeFor(count, shape.length > 1 ? shape[0] : 1));
  }

  /** The shape of so many elements on so many lines: the kept one, else the declared one. Where they do not fit it is what is written, which the server refuses. */
  shapeFor(count, lines) {
    const declared = this.shape ?? (lines > 1 && count > lines ? [-1, -1] : [-1]), kept = [this.given?.shape ?? []].flat().map(numberOf);
    if (kept.length && fits(kept, this.shape, count) && sizeOf(kept.slice(0, -1)) === lines) return kept;
    const first = declared.indexOf(-1), last = declared.lastIndexOf(-1), rows = first < last ? lines : 1, rest = count / (sizeOf(declared) || 1) / rows;
    const shape = declared.map((size, place) => (size !== -1 ? size : place === last ? rest : place === first ? rows : 1));
    if (Number.isInteger(rest) && sizeOf(shape) === count) return shape;
    return declared.length < 2 || count % lines ? [count] : [lines, count / lines];
  }
}

/** Lines of texts, or files. */
class Texts extends Lines {
  constructor(input, isOnly) {
    super(input);
    this.isText = [undefined, "np", "base64"].includes(input.contentType);  // JSON carries its bytes as base64
    this.names = [];  // of the files
    this.opener.takesSeveral = this.isText && this.isList();  // else one is all, or the whole body
    if (TEXTS.includes(input.contentType) || input.hint || !(this.isText || isOnly)) return;
    this.clear = button("Remove", () => { this.hold([]); this.changed(); this.opener.input.focus(); }, { hidden: true, ariaLabel: `Remove the files for ${input.name}` });
    const pick = this.opener.picker("Choose a file", { ariaLabel: `Choose a file for ${input.name}`, multiple: this.opener.takesSeveral });
    this.tools.append(build("span", { className: "faint wide" }, ["drop a file, or"]), pick, this.clear);
    if (input.contentType === "base64") this.control.placeholder ||= "a file, or its base64";
  }

  /** Whether each line is an element of its own. */
  isList() { return !this.shape || this.shape.includes(-1) || sizeOf(this.shape) > 1; }

  async read(files) {
    const contents = await Promise.all(files.map(async (file) => new Uint8Array(await file.arrayBuffer())));
    const previews = contents.map((bytes, place) => thumb(imageIn(bytes), files[place].name, bytes.length));
    return { files, texts: this.isText ? contents.map((bytes) => bytes.toBase64()) : [], previews };
  }

  use({ files, texts, previews }) {
    this.hold(previews, texts.length ? { parameters: { content_type: "base64" }, data: texts } : undefined);
    this.names = texts.map((_, place) => files[place].name);
    this.body = this.isText ? undefined : files[0];
    this.changed();
  }

  get sources() {
    const texts = [this.given?.data ?? []].flat(Infinity);
    return this.names.map((name, place) => ({ text: texts[place], name }));
  }

  /** Show what files are, in place of text; `given` is the tensor that has their base64. */
  hold(previews, given) {
    Object.assign(this, { given, names: [], body: undefined });
    this.control.hidden = previews.length > 0;
    this.clear.hidden = this.preview.hidden = !previews.length;
    this.preview.replaceChildren(...previews);
  }

  tensor(action) {
    const { name, datatype, given } = this, isTaken = this.body ? action === "infer" : isInference(action) || !this.isOwnFile(given);
    if (!isTaken) throw new Mistake(this.inSight, `${name} is a file, which only infer takes`);  // a flat object cannot say that it is one
    if (given?.data !== undefined) return this.whole(action);
    const text = this.control.value;
    const isText = this.contentType !== "base64" && (this.isText || !this.opener.input);  // an empty text is one
    if (!text.trim() && !this.body && (!isText || this.isList() || this.isEmptyLeftOut)) return this.none(isText ? (this.opener.input ? "a text or a file" : "a text") : "a file");
    const lines = linesIn(text), data = this.isList() ? lines : [text];
    return { name, shape: this.shapeFor(data.length, lines.length), datatype, data };
  }

  /** Whether a tensor has a file, which its input does not declare. */
  isOwnFile(tensor) { return tensor?.parameters?.content_type === "base64" && this.contentType !== "base64"; }

  fill(tensor) {
    const elements = [tensor?.data ?? []].flat(Infinity).map(String), isOwn = this.isOwnFile(tensor);
    const isHeld = this.body ? `${elements}` === "" : this.names.length && `${elements}` === `${this.given?.data}` && isOwn === this.isOwnFile(this.given);
    this.opener.forget();
    if (isHeld && this.body) return;
    this.isEmptyLeftOut = !tensor;
    if (!isHeld && this.opener.input) this.hold(this.previewsOf(elements, isOwn));
    this.given = tensor;
    this.control.value = this.control.hidden ? "" : elements.join("\n");
  }

  /** What files look like in base64; nothing where they are shown as text: the base64 that an input declares, unless all are pictures. */
  previewsOf(elements, isOwn) {
    const images = isOwn || this.contentType === "base64" ? elements.map(imageIn) : [];
    if (!isOwn && !images.every(Boolean)) return [];
    return images.map((image, place) => thumb(image, image ? "a picture" : "a file", (elements[place].replace(/=+$/, "").length * 3) >> 2));
  }
}

/** What a file looks like: its picture if it is one, its name and its size. */
function thumb(image, name, size) {
  const bytes = counted(size, "byte"), caption = build("span", { className: "faint" }, [`${name}, ${bytes}`]);
  const tell = ({ width, height }) => { caption.textContent = `${name}, ${width} × ${height} pixels, ${image.type.split("/")[1].toUpperCase()}, ${bytes}`; };
  return build("div", { className: "thumb" }, [...(image ? [drawFile(image, name, tell)] : []), caption]);
}

/** Lines of numbers; or an array from a file, at random or of zeros, which is too large for text. */
class Numbers extends Lines {
  constructor(input) {
    super(input);
    this.datatype = input.datatype ?? "FP32";
    if (!input.datatype) {  // nobody has declared it
      this.choice = build("select", { ariaLabel: `datatype of ${this.name}` }, DATATYPES.map((each) => new Option(each, each)));
      this.choice.addEventListener("input", () => { this.datatype = this.choice.value; this.edited(); });  // before who listens for the whole form
      this.tools.append(this.choice);
    }
    this.isLarge = input.shape && sizeOf(input.shape) > MOST_WRITTEN;
    if (input.shape && (this.isLarge || input.shape.includes(-1) || sizeOf(input.shape) > 4)) {
      const pick = this.opener.picker("From a file", { ariaLabel: `From a file for ${this.name}`, accept: ".npy,.csv,.tsv,.txt,image/*", title: "npy, CSV or a picture" });
      const random = () => this.use({ ...randomIn(this.datatype, this.sizes), origin: "at random" });
      this.tools.append(pick, button("Random", random, { ariaLabel: `Random numbers for ${this.name}` }));
    }
    if (this.isLarge) this.use({ ...zerosIn(this.sizes), origin: "zeros" });
  }

  get sizes() { return this.shape.map((size) => (size === -1 ? 1 : size)); }

  /** The array in a file, in the declared shape if it fits; raises Error where it has none: then what was there stays. */
  async read([file]) {
    const { values, shape, code } = await this.arrayIn(file);
    if (values.length > MOST_WRITTEN) bytesOf(this.datatype, values);
    return { values, shape: this.shapeOf(shape, values.length), code, origin: `from ${file.name}` };
  }

  async arrayIn(file) {
    const name = JSON.stringify(file.name);
    if (/\.npy$/i.test(file.name)) return { ...readNpy(await file.arrayBuffer()), code: `np.load(${name})` };
    if (/\.(csv|tsv|txt)$/i.test(file.name)) {
      const text = await file.text(), lines = readRows(text), rows = numbersOf(lines);
      return { values: rows.flat(), shape: [rows.length, rows[0].length], code: csvCode(file.name, this.datatype, separatorOf(text), isNamed(lines)) };
    }
    return readPicture(file, this.shape, this.datatype);
  }

  /** Take an array: few elements become text, more stay as they are. */
  use({ values, shape, code, origin }) {
    const value = shape.slice(1).reduceRight((elements, size) => slices(elements, size), values);  // in lists, as it has to be seen that the shape is another one
    this.given = fits(shape, this.shape, values.length) ? { shape } : { name: this.name, shape, data: values, value };
    if (values.length <= MOST_WRITTEN) {
      const digitsIn = (value) => (this.datatype === "FP32" ? single(Math.fround(numberOf(value))) : numberOf(value));  // all that the datatype holds
      this.writeText(values.map((value) => String(isFloating(this.datatype) ? digitsIn(value) : value)), shape);
      return this.changed();
    }
    this.held = { values, shape, code };
    this.control.hidden = true;
    this.preview.hidden = false;
    const [look] = origin === "zeros" ? [] : looksOf([{ name: this.name, datatype: this.datatype, shape, data: values }]);
    const sentence = build("p", { className: "faint" }, [`${counted(values.length, "element")}, [${shape.join(", ")}], ${origin}`]);
    this.preview.replaceChildren(sentence, ...(look ? [figureOf(look)] : []));
    return this.changed();
  }

  /** Write numbers as text, a line for each row. */
  writeText(texts, shape) {
    const width = shape?.length > 1 ? Number(shape.at(-1)) : texts.length;
    this.held = null;
    this.control.hidden = false;
    this.preview.hidden = true;
    this.control.value = this.datatype === "BYTES" ? texts.join("\n") : slices(texts, width).map((row) => row.join(", ")).join("\n");
  }

  tensor(action) {
    const { name, datatype, held, given } = this;
    if (held) return { ...wholeOf(this, () => held.shape), values: held.values, bytes: bytesOf(datatype, held.values), code: held.code };
    if (given?.data !== undefined) return this.whole(action);
    const text = this.control.value, isText = datatype === "BYTES";
    const arePairs = !this.shape || (this.shape.length > 1 && [2, -1].includes(this.shape.at(-1)));  // so that a row may have two numbers
    const lines = isText ? linesIn(text) : wordsOf(text, arePairs);
    const rows = isText ? lines : lines.map((words) => words.map((word) => readNumber(word, this, this.control, this.name, ", and a blank between two numbers"))), data = rows.flat();
    if (!data.length) return this.none(isText ? "a text" : "a number");
    if (!isText && this.areOthers(rows, text)) return { name, shape: [rows.length, rows[0].length], datatype, data: rows, value: rows };
    return { name, shape: this.shapeFor(data.length, lines.length), datatype, data };
  }

  /** Whether lines say that they are rows, in a list, or where both sizes are free, and not those of the shape: then they are sent so, and refused. A number on each line is no row. */
  areOthers(rows, text) {
    const shape = this.shape ?? [-1, -1], areRows = /^\s*\[/.test(text) || shape.filter((size) => size === -1).length > 1, width = shape.length > 1 ? shape.at(-1) : 0;
    return areRows && width !== 0 && rows.some(({ length }) => length !== rows[0].length || (width > 0 && length > 1 && length % width));
  }

  fill(tensor) {
    this.opener.forget();
    this.opener.tell("");
    if (!tensor && this.isLarge) return;
    this.given = tensor;
    if (tensor && isBehind(tensor) && this.held) return;
    if (tensor?.datatype && this.choice) this.choice.value = this.datatype = tensor.datatype;
    const { data = [], value = data, shape = shapeOf([value].flat()) } = tensor ?? {};
    this.writeText([data].flat(Infinity).map(String), shape);
  }
}
