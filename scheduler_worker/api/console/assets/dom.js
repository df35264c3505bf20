// Elements from values. Texts are always text nodes, so nothing that a host reports becomes markup.

/** An element: `on...` properties are listeners, `data` is its dataset, others are attributes. */
export function el(tag, properties = {}, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) found.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(found.dataset, value);
    else if (name === "value") found.value = value;
    else found.setAttribute(name, value === true ? "" : value);
  }
  found.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined));
  return found;
}

/** Replace what an element contains, unless that would change nothing: focus stays where it is. */
export function fill(element, ...children) {
  const next = el("div", {}, children);
  if (next.innerHTML === element.innerHTML) return;
  const focused = element.contains(document.activeElement) ? document.activeElement.id : "";
  element.replaceChildren(...next.childNodes);
  if (focused) document.getElementById(focused)?.focus();
}

/** A table; each row is a list of cells, and the first cell of a row is its heading. */
export function table(caption, columns, rows, properties = {}) {
  const heading = columns.map((each) => el("th", { scope: "col" }, each));
  const body = rows.map((cells) =>
    el("tr", {}, cells.map((cell, at) => (at ? el("td", {}, cell) : el("th", { scope: "row" }, cell)))),
  );
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, el(
    "table", properties, el("caption", {}, caption), el("thead", {}, el("tr", {}, heading)), el("tbody", {}, body),
  ));
}
