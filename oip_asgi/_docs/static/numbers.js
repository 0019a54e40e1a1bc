// What a model does now: two curves, a table of latencies, and sentences.

import { at, made, tableRows } from "./elements.js";
import { draw } from "./plot.js";
import { digits, duration, quantile, total } from "./statistics.js";

export const READ_EVERY = 2000;  // milliseconds
export const MOMENTS = 60;  // of each curve
const MINUTES = "two minutes";

/** Show what a model does: `moments` are what happened between two readings each, or null, and `last` is the last reading. */
export function showNumbers({ moments, last, isShared }) {
  const most = last?.durations.bounds.at(-1);
  const seconds = (value) => duration(value, most);
  showPlot("rate", "Requests per second", moments.map((moment) => moment && total(moment.durations.counts) / moment.seconds), digits);
  showPlot("latency", "Latency, p50", moments.map((moment) => moment && quantile(moment.durations, 0.5)), seconds);
  at("numbers").hidden = at("totals").hidden = !last;
  if (!last) return;
  const recent = sumOf(moments.filter(Boolean), last);
  const { durations, queues, when } = total(recent.durations.counts) ? recent : { ...last, when: "since the start" };
  const rows = [["Latency", durations], ["In the queue", queues]].map(([name, histogram]) =>
    [name, ...[0.5, 0.99].map((share) => seconds(quantile(histogram, share)))]);
  at("numbers").replaceChildren(made("caption", `Seen ${when}`), ...tableRows([["", "p50", "p99"], ...rows]));
  const ended = Object.entries(last.outcomes).filter(([, count]) => count).map(([outcome, count]) => `${count} ${outcome}`);
  const batches = last.options.max_batch_size ? `Calls by their rows: ${batchesOf(last.rows)}.` : "";
  const others = isShared ? "Several processes seem to answer: each counts its own requests." : "";
  at("totals").textContent = [`${last.running} running, ${last.waiting} waiting.`, batches,
    `Requests since the start: ${ended.join(", ") || "none"}.`, others].filter(Boolean).join("\n");
}

/** The moments together, as one. */
function sumOf(moments, { durations: { bounds } }) {
  const places = [...bounds.keys(), bounds.length];
  const sum = (name) => ({ bounds, counts: places.map((place) => total(moments.map((moment) => moment[name].counts[place]))) });
  return { durations: sum("durations"), queues: sum("queues"), when: `in the last ${MINUTES}` };
}

/** How many calls had so many rows. */
function batchesOf({ bounds, counts }) {
  const parts = counts.map((count, place) => {
    const isOne = place === 0 || bounds[place] === bounds[place - 1] + 1;
    const rows = place === bounds.length ? `over ${bounds.at(-1)}` : `${isOne ? "" : "up to "}${bounds[place]}`;
    return count && `${rows}: ${count}`;
  });
  return parts.filter(Boolean).join(", ") || "–";
}

function showPlot(id, title, values, written) {
  const known = values.filter((value) => value !== null && Number.isFinite(value));
  const [now, most] = [known.at(-1), Math.max(...known)].map((value) => (known.length ? written(value) : "–"));
  at(id).textContent = now;
  at(`most-${id}`).textContent = known.length ? `peak ${most}` : "";
  const places = values.map((value) => (Number.isFinite(value) ? value : null));
  draw(at(`${id}-plot`), places, MOMENTS, `${title} in the last ${MINUTES}: now ${now}, peak ${most}`);
}
