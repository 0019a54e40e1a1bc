// A sign wherever there is more than is seen: a box fades where it goes on, and a long description has a button. What is chosen is seen.

import { at } from "./elements.js";

const BOXES = ".scroll, pre, .text, .fields, #models, #docstring";
const FADE = 40;  // pixels of a box, at most, as page.css has it

let isDue = false;

export function listenToOverflow() {
  addEventListener("scroll", mark, true);
  addEventListener("resize", mark);
  addEventListener("input", mark);
  new MutationObserver(mark).observe(document.body, { subtree: true, childList: true, characterData: true, attributeFilter: ["hidden", "class", "aria-expanded"] });
  at("more").addEventListener("click", () => showWhole(at("more").ariaExpanded !== "true"));
}

/** Show all of the description, or what is before its sections. */
export function showWhole(isWhole) {
  at("docstring").classList.toggle("whole", isWhole);
  at("more").ariaExpanded = isWhole;
  at("more").textContent = isWhole ? "Show less" : "Show all";
}

/** Scroll a box, and nothing else, until one of its elements is seen, in the middle if it was not: what fades is not. */
export function showIn(box, element) {
  const [outer, inner] = [box, element].map((each) => each.getBoundingClientRect());
  if (inner.top < outer.top + FADE || inner.bottom > outer.bottom - FADE) box.scrollTop += (inner.top + inner.bottom - outer.top - outer.bottom) / 2;
  if (inner.left < outer.left + FADE || inner.right > outer.right - FADE) box.scrollLeft += (inner.left + inner.right - outer.left - outer.right) / 2;
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
  const right = scrollWidth - scrollLeft - clientWidth, below = scrollHeight - scrollTop - clientHeight;
  return [scrollLeft > 1 && "left", right > 1 && "right", scrollTop > 1 && "above", below > 1 && "below"].filter(Boolean);
}
