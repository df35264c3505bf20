// Bars of what is used and reserved, and the marks of states.

import { el } from "./dom.js";
import { percent } from "./format.js";

/** A bar of a limit, with its text; `show` writes amounts. */
export function bar(used, reserved, limit, show) {
  const text = limit > 0
    ? `${percent((used + reserved) / limit)}: ${show(used)} used, ${show(reserved)} reserved, of ${show(limit)}`
    : "none";
  return el("span", { class: "bar-with-text", title: text },
    el("span", { class: "bar", role: "img", "aria-label": text }, part("used", used, limit), part("reserved", reserved, limit)),
    el("span", { "aria-hidden": "true" }, limit > 0 ? percent((used + reserved) / limit) : "-"));
}

function part(name, amount, limit) {
  const found = el("span", { class: name });
  const width = limit > 0 ? Math.min(1, Math.max(0, amount / limit)) : 0;
  found.style.inlineSize = `${(100 * width).toFixed(1)}%`; // a style attribute would be refused
  return found;
}

export const stateOf = (state) => el("span", { class: `state ${state.replaceAll(" ", "-")}` }, state);
