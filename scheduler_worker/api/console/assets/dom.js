// Elements from values. Texts are always text nodes, so nothing that a host reports becomes markup.

const TEXTS = new Set(["aria-label", "placeholder", "title"]);

/** A text with names that others chose: what reorders it or is invisible is escaped, as in the commands' tables. */
export const shown = (text) =>
  String(text).replace(/(?![\n\t])[\p{C}\p{Zl}\p{Zp}]/gu, (each) => `\\u${each.codePointAt(0).toString(16).padStart(4, "0")}`);

/** An element: `on...` properties are listeners, `data` is its dataset, others are attributes. */
export function el(tag, properties = {}, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) found.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(found.dataset, value);
    else if (name === "value") found.value = value;
    else found.setAttribute(name, value === true ? "" : TEXTS.has(name) ? shown(value) : value);
  }
  const given = children.flat(Infinity).filter((each) => each !== null && each !== undefined);
  found.append(...given.map((each) => (each instanceof Node ? each : shown(each))));
  return found;
}

/**
 * Make an element contain this, and change only what differs: focus, selection and scrolling stay.
 * What has a listener needs an id, for elements with the same id are kept as they are.
 */
export function fill(element, ...children) {
  sync(element, el("div", {}, children));
}

function sync(old, next) {
  const wanted = [...next.childNodes];
  wanted.forEach((node, at) => {
    const now = old.childNodes[at];
    if (!now) old.append(node);
    else if (now.nodeName !== node.nodeName || now.id !== node.id) now.replaceWith(node);
    else if (node.nodeType !== Node.TEXT_NODE) syncElement(now, node);
    else if (now.data !== node.data) now.data = node.data;
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

function syncElement(old, next) {
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) === value) continue;
    if (name === "style") old.style.cssText = next.style.cssText; // as an attribute it would be refused
    else old.setAttribute(name, value);
  }
  sync(old, next);
}

/** Go to another page of the console. */
export function goTo(address) {
  window.dispatchEvent(new CustomEvent("console:go", { detail: address }));
}

/** A form's control, which has a `name`, below its label. */
export function field(label, control) {
  control.id = `field-${control.name}`;
  return el("div", { class: "field" }, el("label", { for: control.id }, label), control);
}

/** Say at a form's control what is wrong with its value; without a text nothing is. */
export function refuse(control, text = "") {
  const id = `problem-${control.name}`;
  const said = document.getElementById(id) ?? el("span", { id, class: "problem" });
  said.textContent = shown(text);
  control.after(said);
  control.setAttribute("aria-describedby", id);
  control.setAttribute("aria-invalid", String(Boolean(text)));
}

/** A choice of `[value, text]` pairs. */
export function choice(label, name, chosen, options) {
  const of = ([value, text]) => el("option", { value, selected: value === chosen }, text);
  return field(label, el("select", { name }, options.map(of)));
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
