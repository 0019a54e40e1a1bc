// What the server says of a model: its actions and inputs, from its metadata and OpenAPI document, and its options. Knows nothing of the page.

import { isMoment } from "./cells.js";
import { parse } from "./json.js";
import { counted, digits, duration, listed } from "./words.js";

/** The paths to which a body is posted, by their last segment: what is said of it, its inputs, and an example where there is one. */
export function actionsOf(described, path, metadata) {
  const found = new Map();
  for (const [each, { post }] of Object.entries(described.paths)) {
    const [, parent, action] = /^\/(.*)\/([^/]*)$/.exec(each) ?? [];
    if (!post || decodeURIComponent(parent) !== decodeURIComponent(path)) continue;  // not all encode the same characters
    const { description = "", content } = post.requestBody;
    const { schema, example } = content["application/json"];
    const { properties } = described.components.schemas[schema.$ref.split("/").at(-1)];
    found.set(action, { description, docstring: post.description, example, schemas: [properties?.inputs?.items ?? []].flatMap((items) => items.oneOf ?? items).filter(nameOf) });
  }
  const whole = found.get("infer") ?? found.get("infer_stream");
  for (const action of found.values()) action.inputs = inputsOf(whole, metadata);
  return found;
}

/** What this client may do to the model: "load", "unload". */
export const controlsOf = (described) => Object.keys(described.paths).filter((path) => path.startsWith("/repository/")).map((path) => path.split("/").at(-1));

/** The name of the tensor that a schema is of; undefined for that of any. */
const nameOf = ({ properties }) => properties?.name.enum?.[0];

/** What is known of each input of a model: what is declared, and else what the example has; also whether that has a date with a time of the day. */
function inputsOf({ schemas, example }, metadata) {
  const examples = example?.inputs ?? [];
  const all = new Set([...schemas.map(nameOf), ...examples.map(({ name }) => name)]);
  return [...all].map((name) => {
    const schema = schemas.find((each) => nameOf(each) === name)?.properties.data ?? {};
    const { shape: guess = [], data = [] } = examples.find((tensor) => tensor.name === name) ?? {};
    const shape = guess.length > 1 ? [-1, ...guess.slice(1).map((size) => Number(size))] : undefined;
    const declared = metadata.inputs.find((input) => input.name === name) ?? { name, shape };
    const isOptional = example !== undefined && !examples.some((tensor) => tensor.name === name);
    const dates = [data].flat(Infinity), hasTime = !dates.length || dates.some(isMoment);  // any may have one, if there is no example
    return { ...describe(declared, schema, { isOptional, isFrame: metadata.parameters?.content_type === "pd" }), hasTime };
  });
}

/** An input as the fields want it: also its choices, its least value and its default, all in words (`limits`), and whether its values may be missing. */
function describe(declared, schema, { isOptional, isFrame }) {
  const { datatype, parameters } = declared, { content_type: contentType, pd_dtype: dtype, pd_categories: categories } = parameters ?? {};
  const isText = datatype === "BYTES" && ["str", "datetime"].includes(contentType);
  const element = (schema.anyOf?.[0] ?? schema).items ?? {}, kinds = element.anyOf ?? [element];
  const fallback = schema.default ?? kinds.find((kind) => kind.default !== undefined)?.default;
  const choices = kinds.find((kind) => kind.enum)?.enum ?? (categories && contentType !== "pd_json" ? parse(categories).data : undefined);
  const hint = fallback === undefined ? "" : `default ${[fallback].flat().map(String).join(", ")}`;
  const ranges = kinds.map(rangeOf).filter(Boolean).map((range) => `expected: ${range}`), limits = [...ranges, element.description];
  const isOfFrame = isFrame && (/^FP/.test(datatype) || isText || dtype !== undefined);
  return {
    ...declared, contentType, isOptional, choices, hint,
    notes: [isOptional && "optional", ...limits].filter(Boolean),
    limits: [choices && `one of ${listed(choices.map(String))}`, ...limits, hint].filter(Boolean).join("; "),
    least: Number(kinds[0].minimum),
    isNullable: contentType !== "pd_json" && (isOfFrame || kinds.some(({ type }) => type === "null")),
    zone: dtype?.includes(", ") ? "Z" : "",
  };
}

/** The range of numbers in words; empty if there is none. */
function rangeOf({ minimum, maximum }) {
  const [least, most] = [minimum, maximum].map((bound) => (bound === undefined ? "" : String(bound)));
  if (least && most) return `${least} to ${most}`;
  return least ? `${least} or more` : most && `${most} or less`;
}

// How a model was registered, in words with units

/** What content types make of tensors; another one is the server's own. */
const TYPES = { pd: "a data frame", np: "arrays", str: "texts", base64: "bytes", datetime: "dates", pd_json: "values as JSON" };

/** Of each keyword what it concerns and its value; `streams` is whether the model answers with a stream. */
const WORDS = {
  max_concurrency: (count) => ["Calls of the model at once", upTo(count)],
  max_queue: (count) => ["Requests that may wait", count ? upTo(count) : "none"],
  timeout: (seconds, streams) => [streams ? "Time to the first item" : "Time for a request", seconds === null ? "no limit" : upTo(duration(seconds))],
  allow_timeout_override: () => ["A request's own timeout", "may make this shorter"],
  stream_timeout: (seconds) => ["Time for a whole stream", upTo(duration(seconds))],
  run: () => ["Where it runs", "on the event loop"],
  content_type: (name) => ["Content type, if a request names none", Object.hasOwn(TYPES, name) ? `${TYPES[name]} (${name})` : name],
  max_batch_size: (count) => ["Rows in a batch", upTo(count)],
  max_batch_delay: (seconds) => ["A request waits for others that share its batch", upTo(duration(seconds))],
  cache: ({ max_bytes: most, ttl }) => ["Answers kept for equal requests", upTo(bytes(most)) + (ttl === null ? "" : `, each for ${duration(ttl)}`)],
  out_of_range: () => ["A value out of range", "is answered and marked"],
  idle_unload: (seconds) => ["Unloaded after", `${duration(seconds)} without a call`],
};

/** Options as `state.json` has them: of each its keyword, what it concerns, and its value. */
export const wordsOf = (options, streams) => Object.entries(options).map(([keyword, value]) => [keyword, ...WORDS[keyword](value, streams)]);

const upTo = (value) => `up to ${value.toLocaleString("en")}`;

function bytes(count) {
  if (count < 2 ** 10) return counted(count, "byte");
  return count < 2 ** 20 ? `${digits(count / 2 ** 10)} KiB` : `${digits(count / 2 ** 20)} MiB`;
}
