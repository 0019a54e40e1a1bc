// What a model does now, as the server measures it: two curves, a table of latencies, and sentences.

import { at, made, tableRows } from "./elements.js";
import { draw } from "./figures.js";
import { counted, digits, duration, lately } from "./words.js";

export const READ_EVERY = 2000;  // milliseconds
export const MOMENTS = 60;  // of each curve
const WIDTH = MOMENTS * READ_EVERY / 1000;  // seconds, of each plot
const PRESENT = 2 * READ_EVERY / 1000;  // seconds, at most, of a moment that is now: a longer one is of a time in which nobody looked
const FEW = 5;  // points of a curve, and requests in a table: fewer show nothing that a sentence does not
const MANY = 100;  // requests, of which one takes longer than p99

/** Show what a model does. `readings` are READ_EVERY apart, null where the server told nothing; `newest` is the last or one after it, and `problem` why that is null. */
export function showNumbers({ readings, newest, problem }) {
  const most = newest?.durations.bounds.at(-1), seconds = (value) => duration(value, most);
  const now = performance.now(), along = readings.slice(1).map((reading) => (reading ? 1 - (now - reading.now) / 1000 / WIDTH : 0));  // how far to the right each is
  const moments = momentsOf(readings).map((moment, place) => (along[place] >= 0 ? moment : null));  // no older than a plot is wide
  const known = moments.filter(Boolean), when = lately(Math.min(total(known.map((moment) => moment.seconds)), WIDTH));
  at("plots").hidden = known.filter((moment) => total(moment.durations.counts)).length < FEW;
  for (const axis of at("plots").querySelectorAll(".axis")) axis.firstChild.textContent = `${WIDTH / 60} minutes ago`;
  const rates = moments.map((moment) => moment && total(moment.durations.counts) / moment.seconds);
  const latencies = moments.map((moment) => moment && quantile(moment.durations, 0.5));
  showPlot("rate", `Requests per second ${when}: now`, rates, along, moments.at(-1)?.seconds > PRESENT ? null : rates.at(-1), digits);
  showPlot("latency", `Time in the server, p50, ${when}: last`, latencies, along, latencies.findLast(Number.isFinite), seconds);
  at("numbers").hidden = true;
  at("totals").textContent = newest ? "" : problem || "Not known yet.";
  if (!newest) return;
  const shown = readings.filter((reading) => !reading || newest.now - reading.now <= WIDTH * 1000 + READ_EVERY);  // all, but after a time in which nobody looked
  const recent = recentChange(shown, newest), isQuiet = !recent || !total(recent.durations.counts);
  showLatencies(isQuiet ? newest : recent, isQuiet ? "since the start" : lately(recent.seconds), seconds);
  const count = isQuiet ? 0 : total(recent.durations.counts), mean = count > 0 && seconds(recent.durations.sum / count);
  const few = count > 0 && count < FEW && `${counted(count, "request")} ${lately(recent.seconds)}: ${count === 1 ? "" : "on average "}${mean} in the server.`;
  at("totals").textContent = [few, ...sentencesOf(newest), areOfSeveral(readings) && "Several processes seem to answer: each counts its own requests."].filter(Boolean).join("\n");
}

/** How long requests took. One of many takes longer than p99; of a few, the slowest says more. */
function showLatencies({ durations, queues }, when, seconds) {
  const count = total(durations.counts), isMany = count >= MANY;
  at("numbers").hidden = count < FEW;
  const rows = [["Time in the server", durations], ["of that, in the queue", queues]].map(([name, histogram]) =>
    [name, ...[0.5, isMany ? 0.99 : 1].map((share) => seconds(quantile(histogram, share)))]);
  const title = `Requests ${when}, without refused ones; times within 5\u00a0%`;
  at("numbers").replaceChildren(made("caption", title), ...tableRows([["", "p50", isMany ? "p99" : "slowest"], ...rows]));
}

function sentencesOf({ outcomes, outside, rows, running, waiting, options }) {
  const listed = (counts) => Object.entries(counts).filter(([, count]) => count).map(([name, count]) => `${count.toLocaleString("en")} ${name === "ok" ? "answered" : name}`);
  const calls = total(rows.counts), each = digits(rows.sum / calls), rowsOfEach = `${each} ${each === "1" ? "row" : "rows"}${calls > 1 ? " on average" : ""}`;
  const ended = listed(outcomes), flagged = listed(outside), all = ended.length > 1 ? `${total(Object.values(outcomes)).toLocaleString("en")}, of them ` : "";
  return [
    `Now: ${running} running, ${waiting} waiting.`,
    `Requests since the start: ${all}${ended.join(", ") || (running + waiting ? "none has ended" : "none")}.`,
    options.max_batch_size && calls && `Calls of the model since the start: ${calls.toLocaleString("en")}, with ${rowsOfEach}.`,
    flagged.length && `Requests with values out of range since the start: ${flagged.join(", ")}.`,
  ];
}

/** Draw values, and say the newest one in words: that of this moment, or the last one that there was. */
function showPlot(id, title, values, along, newest, written) {
  const most = Math.max(...values.filter(Number.isFinite));
  const [word, peak] = [newest, most].map((value) => (Number.isFinite(value) ? written(value) : "–"));
  at(id).textContent = word;
  at(`most-${id}`).textContent = `peak ${peak}`;
  draw(at(`${id}-plot`), values, `${title} ${word}, peak ${peak}`, { along });
}

// What happened between two moments

/** What happened between two moments. Counters that go down are those of another process, or of one that began anew: null. */
export function change(before, after) {
  const [durations, queues] = ["durations", "queues"].map((name) => difference(before[name], after[name]));
  if ([...durations.counts, ...queues.counts].some((count) => count < 0)) return null;
  return { seconds: (after.now - before.now) / 1000, durations, queues };
}

const difference = (before, after) => ({ ...after, counts: after.counts.map((count, place) => count - before.counts[place]), sum: after.sum - before.sum });

/** What happened between each reading and the one before it; null where one of them is null, or of another process. */
export const momentsOf = (readings) => readings.slice(1).map((after, place) => after && readings[place] && change(readings[place], after));

/** Whether readings seem to be of several processes: counters went down more than once, as none does that begins anew. */
export const areOfSeveral = (readings) => momentsOf(readings).filter((moment, place) => !moment && readings[place] && readings[place + 1]).length > 1;

/** What happened up to `newest` since the earliest reading from which on nothing is unknown; null if there is none. */
export function recentChange(readings, newest) {
  const first = readings[momentsOf(readings).findLastIndex((moment) => !moment) + 1];
  return first ? change(first, newest) : null;
}

export const total = (counts) => counts.reduce((sum, count) => sum + count, 0);

/** The value below which a share of a histogram's values are: the middle of its bucket, which is within 5 %. Null if there are no values. */
export function quantile({ bounds, counts }, share) {
  let left = total(counts) * share;
  if (!left) return null;
  const place = counts.findIndex((count) => (left -= count) <= 0);
  return place in bounds ? Math.sqrt((bounds[place - 1] ?? 0) * bounds[place]) : Infinity;
}
