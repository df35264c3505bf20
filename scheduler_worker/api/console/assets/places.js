// Problems with a text, each with its place and the line in which it is.

import { el } from "./dom.js";

const WIDTH = 100;

/** A list of problems; `heading` is what stands above each. */
export const placesOf = (problems, heading) => el("ul", { class: "places" }, problems.map((each) => el("li", {},
  el("p", {}, heading(each)), el("p", { class: "problem" }, each.message), each.text ? marked(each.text, each.column) : null)));

/** A line, or the part of a long one, with its column marked; columns count characters from 1. */
function marked(line, column) {
  const all = [...line];
  const at = Math.min(column - 1, all.length);
  const start = Math.max(0, Math.min(at - WIDTH / 2, all.length - WIDTH));
  const part = (from, to) => all.slice(from, to).join("");
  return el("pre", { class: "marked" }, part(start, at), el("mark", {}, part(at, at + 1) || " "), part(at + 1, start + WIDTH));
}
