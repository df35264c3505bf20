// What would be decided now if the request of a decision asked for something else. Nothing is reserved.

import { choice, el, field, fill, table } from "./dom.js";
import { explained, explanationOf, figure, funnelOf, linkTo } from "./explaining.js";
import { ALIAS, FlavorForm, flavorOf, lines, pairsOf, refusal } from "./flavors.js";
import { items } from "./http.js";
import { attempt, attemptForm } from "./problems.js";

const CLUSTER = "cluster"; // the scheduler hint that names one
const PATH = "/spec_obj";
/** What a flavor has where a field is left empty. */
const NOTHING = Object.fromEntries(["name", "vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap", "extra_specs"].map((each) => [each, undefined]));
/** Field of a specification -> the control that it is changed by. */
const CONTROLS = { availability_zone: "zone", only_hosts: "host", image: "image_properties", scheduler_hints: "hints" };

/** What changes the request of a decision, and asks about it. */
export function whatIf(decision, signal) {
  const { spec } = decision;
  const flavor = new FlavorForm("flavor-", flavorOf({ flavor: spec.flavor }));
  const answer = el("div", { id: "what-if-answer", role: "status" });
  const form = el("form", { novalidate: true, "aria-label": "What if" });
  const controlOf = ([, part, name]) => {
    if (part === "flavor") return flavor.controlOf(name);
    return form.elements[part === "scheduler_hints" && name === CLUSTER ? CLUSTER : CONTROLS[part]];
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attemptForm(form, controlOf, async () =>
      fill(answer, besides(decision, await explained(decision, { spec: changed(spec, flavor, form.elements), signal }))));
  });
  const box = el("details", { id: "what-if" }, el("summary", {}, "What if it had asked for something else?"), form, answer);
  box.addEventListener("toggle", () => attempt(async () => {
    if (form.hasChildNodes()) return;
    const clusters = await items("/v1/clusters", { signal });
    form.replaceChildren(
      el("p", { class: "note" }, "What is not here stays as it was asked, devices, networks and server group among it."),
      el("fieldset", { class: "line flavor" }, el("legend", {}, "Flavor"), flavor.fields),
      el("div", { class: "controls" }, controlsOf(spec, clusters)), el("p", {}, el("button", { class: "primary" }, "Ask about this")));
  }));
  return box;
}

const propertiesIn = (spec) => Object.entries(spec.image?.properties ?? {}).map(([name, value]) => [name, textOf(value)]);
const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const hostsIn = (spec) => spec.only_hosts ?? spec.force_hosts ?? [spec.requested_destination?.host].filter(Boolean);

function controlsOf(spec, clusters) {
  const { [CLUSTER]: [cluster] = [""], ...hints } = spec.scheduler_hints ?? {};
  const pairs = Object.entries(hints).flatMap(([name, values]) => values.map((value) => [name, value]));
  const text = (name, value) => el("input", { type: "text", name, value, placeholder: "any" });
  return [
    field("Zone", text("zone", spec.availability_zone ?? "")),
    choice("Cluster", CLUSTER, cluster, [["", "any"], ...clusters.map((each) => [each.name, each.name])]),
    field("Hosts, with commas between", text("host", hostsIn(spec).join(", "))),
    field("Image properties, a line each", lines("image_properties", propertiesIn(spec), "hw_firmware_type=uefi")),
    field("Scheduler hints, a line each", lines("hints", pairs, "different_host=UUID")),
  ];
}

/** The specification as the form has it. Raises a Failure. */
function changed(spec, flavor, controls) {
  const found = { ...spec, flavor: flavorIn(spec, flavor.read(`${PATH}/flavor`)) };
  const properties = propertiesFrom(spec, pairsOf(controls.image_properties.value, `${PATH}/image/properties`));
  if (spec.image || properties) found.image = { ...spec.image, properties };
  // The topology is made of flavor and image; without the field it is made anew.
  if (JSON.stringify([found.flavor, properties]) !== JSON.stringify([spec.flavor, spec.image?.properties])) delete found.numa_topology;
  found.availability_zone = controls.zone.value.trim() || undefined;
  found.scheduler_hints = hintsFrom(pairsOf(controls.hints.value, `${PATH}/scheduler_hints`), controls.cluster.value);
  const hosts = controls.host.value.split(",").map((each) => each.trim()).filter(Boolean);
  return hosts.join() === hostsIn(spec).join() ? found : onHosts(found, hosts);
}

function flavorIn(spec, { devices, ...asked }) {
  const specs = asked.extra_specs;
  if (specs?.[ALIAS] !== spec.flavor.extra_specs?.[ALIAS]) {
    throw refusal(`only Nova knows its aliases: leave ${ALIAS} as it was; the devices stay those that were asked for`, `${PATH}/flavor/extra_specs`);
  }
  return { ...spec.flavor, ...NOTHING, ...asked };
}

/** Properties have values of several types, which a text that was left as it is keeps. */
function propertiesFrom(spec, pairs) {
  const before = new Map(propertiesIn(spec));
  const found = pairs.map(([name, text]) => [name, before.get(name) === text ? spec.image.properties[name] : text]);
  return found.length ? Object.fromEntries(found) : undefined;
}

function hintsFrom(pairs, cluster) {
  const found = {};
  for (const [name, value] of pairs) (found[name] ??= []).push(value);
  if (cluster) found[CLUSTER] = [cluster];
  return Object.keys(found).length ? found : undefined;
}

/** Restricted to these hosts, which all filters judge, in place of those that it was restricted to; none: to no hosts. */
function onHosts(spec, hosts) {
  const { host, node, ...destination } = spec.requested_destination ?? {};
  return {
    ...spec, force_hosts: undefined, force_nodes: undefined, only_hosts: hosts.length ? hosts : undefined,
    requested_destination: Object.keys(destination).length ? destination : undefined,
  };
}

/** What was decided, and beside it what would be now. */
function besides(decision, now) {
  const passed = decision.ranked.map((each) => [linkTo(each.host), figure(each.total)]);
  return el("div", { class: "beside" },
    el("section", {}, el("h3", {}, "What was decided"), el("p", { class: "sentence" }, decision.reason),
      passed.length ? table("The first hosts that passed", ["Host", "Weight"], passed) : null,
      funnelOf(decision.candidates, decision.filters)),
    el("section", {}, el("h3", {}, "What would be decided now"), explanationOf(now), funnelOf(now.hosts, now.filters)));
}
