// Whether an instance of a flavor would fit on one host, and if not, why. Nothing is reserved.

import { el, fill, table } from "./dom.js";
import { figure, linkTo, notAskedOf } from "./explaining.js";
import { FlavorForm, asking, flavorChoice, seenFlavors } from "./flavors.js";
import { request } from "./http.js";
import { attempt, attemptForm } from "./problems.js";

/** A form for a flavor, which asks about the host that `current` returns. */
export function fitOf(current, signal) {
  const flavor = new FlavorForm("flavor-");
  const answer = el("div", { id: "fits", role: "status" });
  const seen = el("div", { class: "line" });
  const form = el("form", { novalidate: true, "aria-label": "Would a flavor fit" }, seen,
    el("fieldset", { class: "line flavor" }, el("legend", {}, "Flavor"), flavor.fields), el("p", {}, el("button", { class: "primary" }, "Would it fit?")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attemptForm(form, ([, part, name]) => (part === "flavor" ? flavor.controlOf(name) : null), async () => {
      const host = current();
      // In the host's own cluster: others need not be looked at.
      const { devices = [], ...asked } = flavor.read("/spec_obj/flavor");
      const body = { spec_obj: { flavor: asked, scheduler_hints: { cluster: [host.cluster] }, ...asking(devices) }, hosts: [host.name] };
      const found = await request("POST", "/v1/explain", { body, signal });
      fill(answer, verdictOf(host, found), notAskedOf(found));
    });
  });
  const box = el("details", { id: "fit" }, el("summary", {}, "Would this flavor fit here, and if not, why?"), form, answer);
  box.addEventListener("toggle", () => attempt(async () => {
    if (seen.hasChildNodes()) return;
    const flavors = await seenFlavors({ signal });
    const choosing = flavorChoice("A flavor that was asked for lately", flavors);
    choosing.addEventListener("change", (event) => flavor.fill(flavors[Number(event.target.value || NaN)] ?? {}));
    seen.replaceChildren(choosing);
  }));
  return box;
}

function verdictOf(host, found) {
  const verdict = found.verdicts.find((each) => each.nodename === host.nodename);
  if (!verdict) return el("p", { class: "sentence" }, found.not_found[host.name] ?? found.reason ?? "Nothing is known of this host.");
  if (verdict.rejected_by) return [
    el("p", { class: "sentence" }, el("strong", { class: "bad" }, "No: "), `${verdict.rejected_by}: ${verdict.reason}`),
    ...verdict.also_rejected_by.map((each) => el("p", { class: "sentence" }, `Also ${each.filter}: ${each.reason}`)),
  ];
  const weights = verdict.weights.filter((each) => each.product).map((each) => [each.name, figure(each.normalized), figure(each.multiplier), figure(each.product)]);
  return [
    el("p", { class: "sentence" }, el("strong", { class: "good" }, "Yes: "), `its weight is ${figure(verdict.weight)}. `, chosenOf(host, found.chosen)),
    weights.length ? table("What weighers add", ["Weigher", "Score", "Multiplier", "Adds"], weights) : null,
  ];
}

/** Which host of the cluster would be chosen for it now. */
const chosenOf = (host, chosen) => (chosen === host.name ? "It would be chosen." : ["In its cluster ", linkTo(chosen), " would be chosen."]);
