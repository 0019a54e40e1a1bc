// What the parts of the page are made with: elements, rows of tables, and tabs.

export const at = (id) => document.getElementById(id);

export function made(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

/** Rows of a table, each with a name and its values. */
export function tableRows(rows) {
  return rows.map(([name, ...values]) => {
    const row = made("tr");
    row.append(Object.assign(made("th", name), { scope: "row" }), ...values.map((value) => made("td", value)));
    return row;
  });
}

/** Choose one of the tabs of a list, and show its panel alone. */
export function chooseTab(tab) {
  const panelOf = (each) => at(each.getAttribute("aria-controls"));
  for (const each of tab.parentElement.children) {
    each.setAttribute("aria-selected", each === tab);
    each.tabIndex = each === tab ? 0 : -1;
    panelOf(each).hidden = panelOf(each) !== panelOf(tab);
  }
  tab.dispatchEvent(new CustomEvent("chosen", { bubbles: true }));
}

/** Choose tabs of a list by the pointer and by the arrow keys. `onChosen` is called with the tab, however it was chosen. */
export function listenToTabs(list, onChosen) {
  list.addEventListener("chosen", ({ target }) => onChosen(target));
  list.addEventListener("click", ({ target }) => { if (target.role === "tab") chooseTab(target); });
  list.addEventListener("keydown", ({ key, target }) => {
    if (key !== "ArrowRight" && key !== "ArrowLeft") return;
    const isNext = key === "ArrowRight";
    const next = isNext ? target.nextElementSibling ?? list.firstElementChild : target.previousElementSibling ?? list.lastElementChild;
    chooseTab(next);
    next.focus();
  });
}
