// What decisions and explanations have in common: the filters as a funnel, hosts that pass, weights.

import { el, table } from "./dom.js";
import { count, things } from "./format.js";
import { request } from "./http.js";

const VERDICTS = 5;

export const linkTo = (host) => el("a", { href: `/console/hosts/${encodeURIComponent(host)}` }, host);
export const figure = (value) => (value === null ? "-" : value.toFixed(3));

/** Why hosts would be chosen for the request of a decision, or for `spec` in its place; nothing is reserved. */
export const explained = (decision, { spec = decision.spec, signal }) =>
  request("POST", "/v1/explain", { body: { spec_obj: spec, instance_uuids: decision.instances, limit: VERDICTS }, signal });

/** The hosts that each filter left, of those before all of them. */
export function funnelOf(candidates, filters) {
  if (!filters.length) return el("p", {}, "No filter was asked.");
  return table(`${things(candidates, "host")} before the filters`, ["Filter", "Left", "Hosts", "Rejected"], filters.map((each) => [
    each.name, shareOf(each.hosts_out, candidates), count(each.hosts_out), count(each.hosts_in - each.hosts_out),
  ]));
}

function shareOf(left, all) {
  const part = el("span", { class: "used" });
  part.style.inlineSize = `${all ? (100 * left) / all : 0}%`; // a style attribute would be refused
  return el("span", { class: "bar funnel", role: "img", "aria-label": `${count(left)} of ${count(all)} hosts` }, part);
}

/** What the process that answered could not ask. */
export const notAskedOf = (found) => found.not_asked.map((what) =>
  el("p", { class: "note" }, `${what} was not asked; the log of the process that answered says why.`));

/** What `explain` answers: the sentence, and the first hosts that pass. */
export function explanationOf(found) {
  const verdicts = found.verdicts.filter((each) => each.rejected_by === null);
  return [
    el("p", { class: "sentence" }, found.sentence ?? found.reason ?? "A host would be chosen."),
    verdicts.length ? table("The first hosts that pass now", ["Host", "Weight"], verdicts.map((each) => [linkTo(each.host), figure(each.weight)])) : null,
    ...notAskedOf(found),
  ];
}
