// A sign wherever there is more than is seen: a box that goes on at the right or below fades there, and a long description has a button.

import { at } from "./elements.js";

const BOXES = ".scroll, pre, .text, .fields, #models, #docstring";

let isDue = false;

export function listenToOverflow() {
  addEventListener("scroll", mark, true);
  addEventListener("resize", mark);
  addEventListener("input", mark);
  new MutationObserver(mark).observe(document.body, { subtree: true, childList: true, characterData: true, attributeFilter: ["hidden", "class"] });
  at("more").addEventListener("click", () => showWhole(at("more").ariaExpanded !== "true"));
}

/** Show all of the description, or what is before its sections. */
export function showWhole(isWhole) {
  at("docstring").classList.toggle("whole", isWhole);
  at("more").ariaExpanded = isWhole;
  at("more").textContent = isWhole ? "Show less" : "Show all";
}

/** Mark all boxes before the next frame is drawn, once for all changes until then. */
function mark() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    for (const box of document.querySelectorAll(BOXES)) box.dataset.more = sidesOf(box).join(" ");
    const { hidden, dataset, classList } = at("docstring");
    const isNeeded = !hidden && (dataset.more || classList.contains("whole") || at("docstring").querySelector("h3"));
    if (at("more").hidden === Boolean(isNeeded)) at("more").hidden = !isNeeded;  // what is set again is a change too, and would be marked for ever
  });
}

/** Where a box goes on; a pixel is what sizes are rounded by. */
function sidesOf({ scrollWidth, scrollLeft, clientWidth, scrollHeight, scrollTop, clientHeight }) {
  return [scrollWidth - scrollLeft - clientWidth > 1 && "right", scrollHeight - scrollTop - clientHeight > 1 && "below"].filter(Boolean);
}
