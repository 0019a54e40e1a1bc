// The body of a request: written from tensors, read again, as a link, what is sent of it, and where it has what the server refuses. Knows nothing of the page.

import { compact, parse, pretty, Written } from "./json.js";
import { membersOf, numberOf, plainData, shapeOfCount } from "./tensors.js";

const LONGEST = 8000;  // characters of a link, which browsers, mails and chats still take

/** Whether the body of an action is an inference request; that of another is a flat object, whose members are the inputs. */
export const isInference = (action) => action.startsWith("infer");

/** The tensors in a body of an action, which in a flat object have no shape, but the `value` of their member; null where it is no request. Raises SyntaxError where it is no JSON. */
export function tensorsOf(body, action) {
  const document = parse(body);
  if (document === null || typeof document !== "object" || document instanceof Written) return null;
  if (!isInference(action)) return Object.entries(membersOf(document)).map(([name, value]) => ({ name, data: [value].flat(Infinity), value }));
  const tensors = Array.isArray(document.inputs) ? document.inputs : [];
  return Array.isArray(document) || !tensors.every((tensor) => typeof tensor?.name === "string") ? null : tensors;
}

/** What a body has besides the inputs of these names. */
export function besides(body, action, names) {
  const document = parse(body), isOther = (name) => !names.includes(name);
  if (isInference(action)) return { ...document, inputs: tensorsOf(body, action).filter(({ name }) => isOther(name)) };
  return Object.fromEntries(Object.entries(membersOf(document)).filter(([name]) => isOther(name)));
}

/** What an inference request and a flat object both may have besides their inputs. */
export const ofBoth = ({ id, parameters }) => ({ ...(id === undefined ? {} : { id }), ...(parameters === undefined ? {} : { parameters }) });

/** The body that has these tensors, besides the rest of it. */
export function bodyOf(tensors, action, rest) {
  if (isInference(action)) return pretty({ ...rest, inputs: [...tensors.map(wholeTensor), ...(rest.inputs ?? [])] });
  return pretty({ ...rest, ...Object.fromEntries(tensors.map(flatMember)) });
}

/** The tensors whose bytes follow the JSON: large ones, but in a flat object, which is JSON alone. */
export const partsOf = (tensors, action) => isInference(action) ? tensors.filter(({ bytes }) => bytes) : [];

/** Whether the bytes of a tensor follow the JSON. */
export const isBehind = ({ parameters }) => parameters?.binary_data_size !== undefined;

/** The parts whose bytes follow the JSON of these tensors, in their order. */
export const partsIn = (tensors, parts) => tensors.filter(isBehind).map(({ name }) => parts.find((part) => part.name === name)).filter(Boolean);

function wholeTensor({ bytes, values, code, value, isWhole, ...tensor }) {
  if (bytes) return { ...tensor, parameters: { ...tensor.parameters, binary_data_size: bytes.length } };
  return isWhole ? tensor : withMissing(tensor);
}

/** A column with missing values, as the protocol has it: null among floats, NaT among dates, and else texts of JSON. */
export function withMissing({ contentType, ...tensor }) {
  const { datatype, data } = tensor;
  if (!Array.isArray(data) || /^(FP|BF)/.test(datatype) || !data.includes(null)) return tensor;
  if (contentType === "datetime") return { ...tensor, data: data.map((value) => value ?? "NaT") };
  const texts = data.map((value) => (value === null ? "null" : value.source ?? JSON.stringify(value)));
  return { ...tensor, datatype: "BYTES", parameters: { content_type: "pd_json" }, data: texts };
}

function flatMember({ name, shape, data, values = [data].flat(Infinity), value }) {
  if (value !== undefined) return [name, value];
  return [name, shape?.length > 1 || values.length !== 1 ? values : values[0]];
}

/** What is sent: a file, JSON, or JSON and the bytes of tensors; and the headers that say so. */
export function contentOf({ body, file, parts }) {
  if (file) return [file, { "Inference-Header-Content-Length": "0" }];
  if (!parts.length) return [body, { "Content-Type": "application/json" }];
  const json = new TextEncoder().encode(body);
  return [new Blob([json, ...parts.map(({ bytes }) => bytes)]), { "Inference-Header-Content-Length": `${json.length}` }];
}

/** Whether two requests have the same answer. */
export function isSame(one, other) {
  const isSamePart = ({ values }, place) => values === other.parts[place]?.values;
  return ["url", "body", "file"].every((key) => one[key] === other[key]) && one.parts.every(isSamePart);
}

/** The id that the reader has given a request, by which the server's log names it. */
export function idOf({ body, file }) {
  const { id } = file ? {} : parse(body);
  return typeof id === "string" ? id : undefined;
}

/** The inputs that were sent, for what is shown beside the outputs: with what is `declared` of them. */
export function sentIn({ body, file, action }, declared) {
  const tensors = file ? [] : tensorsOf(body, action);
  return tensors.map((tensor) => {
    const input = declared.find(({ name }) => name === tensor.name), parameters = { ...input?.parameters, ...tensor.parameters };
    const shape = Array.isArray(tensor.shape) ? tensor.shape.map(numberOf) : input && shapeOfCount(input.shape, [tensor.data].flat(Infinity).length);
    return { ...tensor, shape, declared: input?.shape, parameters, data: plainData({ ...tensor, parameters }) };
  });
}

// Links

/** The link to a model, or to a request that is filled in; null where the request is too long for a link. */
export function linkOf({ name, version, action, body }) {
  const fields = { model: name, ...(version === undefined ? {} : { version }), ...(action === undefined ? {} : { action, body: compact(body) }) };
  const link = `#${new URLSearchParams(fields)}`;
  return link.length > LONGEST ? null : link;
}

/** What a link says. */
export function readLink(hash) {
  const { model: name, version, action, body } = Object.fromEntries(new URLSearchParams(hash.slice(1)));
  return { name, version, action, body };
}

// Where a request has what the server refuses, as the text of its answer names it

const INPUT = /^(?:inputs\[\d+\] \(|(?:(?:missing |unknown )?input|column|tensor) |rows\[(\d+)\](?:\.|: missing ))['"]?/;
const ROW = /^['")]*(?: cannot [^:]*)?[,:] (?:row (\d+)|data\[(\d+)\]|data: array (\d+)|(?:data: )?(?:\w+ )?element (\d+))/;

/** The name of the input, one of `names`, and its row, or its element where it is no table, from 0, if the text says which; null where it names no input. */
export function placeIn(error, names) {
  const [head, ofClass] = INPUT.exec(error) ?? [], rest = error.slice(head?.length);
  const [name] = names.filter((each) => head && rest.startsWith(each) && !/^\w/.test(rest.slice(each.length))).sort((one, other) => other.length - one.length);
  if (name === undefined) return null;
  const row = ofClass ?? ROW.exec(rest.slice(name.length))?.slice(1).find(Boolean);
  return { name, row: row && Number(row) };
}
