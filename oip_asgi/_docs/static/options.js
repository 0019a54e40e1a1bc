// How a model was registered, in words with units. Knows the keywords of `register`, and nothing of the page.

import { counted, digits, duration } from "./words.js";

/** What content types make of tensors; another one is the server's own. */
const TYPES = { pd: "a data frame", np: "arrays", str: "texts", base64: "bytes", datetime: "dates", pd_json: "values as JSON" };

const BYTES = [["MiB", 2 ** 20], ["KiB", 2 ** 10]];

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
  const [unit, size] = BYTES.find(([, least]) => count >= least) ?? [];
  return unit ? `${digits(count / size)} ${unit}` : counted(count, "byte");
}
