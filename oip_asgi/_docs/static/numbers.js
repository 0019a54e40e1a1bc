// What a model does now, as the server measures it: two curves, a table of latencies, and sentences.

import { at, made, tableRows } from "./elements.js";
import { draw } from "./plot.js";
import { change, digits, duration, quantile, total } from "./statistics.js";

export const READ_EVERY = 2000;  // milliseconds
export const MOMENTS = 60;  // of each curve
const MINUTES = "the last two minutes";
const FEW = 5;  // points of a curve, and requests in a table: fewer show nothing that a sentence does not
const MANY = 100;  // requests, of which one takes longer than p99

/**
 * Show what a model does: `moments` are what happened between two readings each, or null, `last` is the last of these readings, and `newest`
 * that or one after it.
 */
export function showNumbers({ moments, last, newest, isShared }) {
  const most = newest?.durations.bounds.at(-1), seconds = (value) => duration(value, most);
  const known = moments.filter(Boolean);
  at("plots").hidden = known.filter((moment) => total(moment.durations.counts)).length < FEW;
  showPlot("rate", "Requests per second", moments.map((moment) => moment && total(moment.durations.counts) / moment.seconds), digits);
  showPlot("latency", "Latency, p50", moments.map((moment) => moment && quantile(moment.durations, 0.5)), seconds);
  at("numbers").hidden = true;
  at("totals").textContent = newest ? "" : "Not known yet.";
  if (!newest) return;
  const recent = sumOf([...known, change(last ?? newest, newest)].filter(Boolean), newest);
  const seen = total(recent.durations.counts) ? recent : { ...newest, when: "since the start" };
  showLatencies(seen, seconds);
  at("totals").textContent = [...sentencesOf(newest, seen, seconds), isShared && "Several processes seem to answer: each counts its own requests."].filter(Boolean).join("\n");
}

/** The moments together, as one. */
function sumOf(moments, { durations: { bounds } }) {
  const places = [...bounds.keys(), bounds.length];
  const sum = (name) => ({ bounds, counts: places.map((place) => total(moments.map((moment) => moment[name].counts[place]))) });
  return { durations: sum("durations"), queues: sum("queues"), when: `in ${MINUTES}` };
}

/** How long requests took. One of many takes longer than p99; of a few, the slowest says more. */
function showLatencies({ durations, queues, when }, seconds) {
  const count = total(durations.counts), isMany = count >= MANY;
  at("numbers").hidden = count < FEW;
  const rows = [["Latency", durations], ["of it in the queue", queues]].map(([name, histogram]) =>
    [name, ...[0.5, isMany ? 0.99 : 1].map((share) => seconds(quantile(histogram, share)))]);
  at("numbers").replaceChildren(made("caption", `${counted(count, "request")} ${when}`), ...tableRows([["", "p50", isMany ? "p99" : "slowest"], ...rows]));
}

function sentencesOf({ outcomes, outside, rows, running, waiting, options }, { durations, when }, seconds) {
  const listed = (counts) => Object.entries(counts).filter(([, count]) => count).map(([name, count]) => `${count.toLocaleString("en")} ${name}`);
  const ended = listed(outcomes), flagged = listed(outside);
  const count = total(durations.counts), slowest = seconds(quantile(durations, 1)).replace(" ", "\u00a0");
  return [
    count > 0 && count < FEW && `${counted(count, "request")} ${when}: ${count === 1 ? "it took" : "the slowest took"} ${slowest}.`,
    `${running} running, ${waiting} waiting.`,
    options.max_batch_size && callsOf(rows),
    `Requests since the start: ${ended.join(", ") || "none"}.`,
    flagged.length && `Requests with values out of range since the start: ${flagged.join(", ")}.`,
  ];
}

/** How many rows the model gets at once. */
function callsOf({ counts, sum }) {
  const calls = total(counts);
  if (calls < 2) return calls === 1 && `1 call of the model, with ${counted(sum, "row")}.`;
  const rows = digits(sum / calls);
  return `${counted(calls, "call")} of the model, with ${rows} ${rows === "1" ? "row" : "rows"} on average.`;
}

function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

function showPlot(id, title, values, written) {
  const known = values.filter((value) => value !== null && Number.isFinite(value));
  const [now, most] = [known.at(-1), Math.max(...known)].map((value) => (known.length ? written(value) : "–"));
  at(id).textContent = now;
  at(`most-${id}`).textContent = known.length ? `peak ${most}` : "";
  const places = values.map((value) => (Number.isFinite(value) ? value : null));
  draw(at(`${id}-plot`), places, MOMENTS, `${title} in ${MINUTES}: now ${now}, peak ${most}`);
}
