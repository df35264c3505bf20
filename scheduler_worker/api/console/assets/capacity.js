// Capacity: how many more instances of some flavors fit, by cluster and zone, and what runs out first.

import { choice, el, field, fill, table } from "./dom.js";
import { count, things } from "./format.js";
import { notAskedOf } from "./explaining.js";
import { FlavorForm, asking, flavorChoice, seenFlavors } from "./flavors.js";
import { items, request } from "./http.js";
import { attemptForm, showProblem } from "./problems.js";

const ANY = "any number";
/** Field of a specification -> the control that it is set by. */
const CONTROLS = { scheduler_hints: "cluster", availability_zone: "zone", project_id: "project", is_bfv: "is_bfv" };
const OPEN = 5; // more flavors than these are folded, for the counts are below them

export async function capacityPage(section, { signal }) {
  const query = new URLSearchParams(location.search);
  const view = { cluster: "", zone: "", project: "", volume: "", shown: "", ...Object.fromEntries(query) };
  const [clusters, seen] = await Promise.all([items("/v1/clusters", { signal }), seenFlavors({ signal })]);
  const listed = new Flavors(query.has("flavor") ? fromAddress(query.getAll("flavor")) : seen, seen);
  const said = el("p", { id: "counted", role: "status" });
  const result = el("div", { id: "capacity" });
  const parts = el("div", { id: "parts" });
  const button = el("button", { class: "primary" }, "Count");
  const form = el("form", { novalidate: true, "aria-label": "Flavors", onsubmit: (event) => (event.preventDefault(), countAndRemember()) },
    listed.element, el("h2", {}, "Where"), el("div", { class: "controls" }, settingOf(view, clusters)), el("p", {}, button));

  const remember = () => history.replaceState(null, "", `${location.pathname}?${queryOf(listed.read(), form.elements, view.shown)}`);

  function choose(capacity) {
    view.shown = capacity.name;
    for (const each of result.querySelectorAll("button")) each.setAttribute("aria-pressed", String(each.textContent === view.shown));
    fill(parts, partsOf(capacity));
  }

  async function countNow() {
    const flavors = listed.read();
    if (!flavors.length) throw new Error("There is no flavor to count: add one.");
    button.disabled = true;
    said.textContent = "Counting";
    try {
      const found = await counted(flavors, settingIn(form.elements), { signal });
      const choosing = (each) => () => (choose(each), remember());
      result.replaceChildren(resultOf(found, choosing));
      choose(found.find((each) => each.name === view.shown) ?? found[0]);
      said.textContent = `Counted at ${new Date().toLocaleTimeString()}; nothing is reserved.`;
    } catch (error) {
      said.textContent = "";
      throw error;
    } finally {
      button.disabled = false;
    }
  }

  const controlOf = ([kind, ...rest]) => (kind === "flavors" ? listed.controlOf(rest) : form.elements[CONTROLS[rest[0]]]);
  const countAndRemember = () => attemptForm(form, controlOf, async () => {
    await countNow();
    remember();
  });

  section.append(el("h1", {}, "Capacity"), el("p", { class: "note" }, "How many more instances of each flavor fit, each flavor for itself, as placing them one by one would give it."),
    form, said, result, parts);
  section.removeAttribute("aria-busy");
  if (query.has("flavor") || seen.length) await attemptForm(form, controlOf, countNow);
}

/** What the address has of this view: all that was counted, figures included, so that it can be sent. */
function queryOf(flavors, { cluster, zone, project, is_bfv: volume }, shown) {
  const found = new URLSearchParams(flavors.map((each) => ["flavor", JSON.stringify(each)]));
  const rest = { cluster: cluster.value, zone: zone.value.trim(), project: project.value.trim(), volume: volume.checked ? "1" : "", shown };
  for (const [name, value] of Object.entries(rest)) if (value) found.set(name, value);
  return found;
}

/** The flavors that are counted, a line of fields each. */
class Flavors {
  constructor(flavors, seen) {
    this.next = 0;
    this.forms = [];
    this.list = el("div", {});
    const adding = flavorChoice("A flavor that was asked for lately", seen);
    const pick = () => {
      const chosen = seen[Number(adding.querySelector("select").value || NaN)];
      if (chosen) this.#add(chosen).controls.name.focus();
    };
    this.another = el("button", { type: "button", onclick: () => this.#add({}).controls.name.focus() }, "Add an empty one");
    this.title = el("h2", {});
    this.element = el("details", { id: "flavors", open: flavors.length <= OPEN }, el("summary", {}, this.title), this.list,
      el("div", { class: "line" }, adding, el("button", { type: "button", onclick: pick }, "Add this flavor"), this.another));
    for (const each of flavors.length ? flavors : [{}]) this.#add(each);
  }

  #add(flavor) {
    const form = new FlavorForm(`flavor-${this.next}-`, flavor);
    this.next += 1;
    const legend = el("legend", {});
    const remove = () => {
      this.forms.splice(this.forms.indexOf(form), 1);
      form.box.remove();
      this.#number();
      this.another.focus();
    };
    form.box = el("fieldset", { class: "line flavor" }, legend, form.fields, el("button", { type: "button", onclick: remove }, "Remove"));
    this.forms.push(form);
    this.list.append(form.box);
    this.#number();
    return form;
  }

  #number() {
    this.title.textContent = things(this.forms.length, "flavor");
    this.forms.forEach((form, at) => {
      const name = `Flavor ${at + 1}`;
      form.box.querySelector("legend").textContent = name;
      form.box.querySelector("button").setAttribute("aria-label", `Remove ${name.toLowerCase()}`);
    });
  }

  /** The flavors. Raises a Failure. */
  read() {
    return this.forms.map((form, at) => form.read(`/flavors/${at}`));
  }

  /** The control of a field, which is shown then. */
  controlOf([at, name]) {
    this.element.open = true;
    return this.forms[Number(at)]?.controlOf(name);
  }
}

const settingOf = (view, clusters) => [
  choice("Cluster", "cluster", view.cluster, [["", "all"], ...clusters.map((each) => [each.name, each.name])]),
  field("Zone", el("input", { type: "text", name: "zone", value: view.zone, placeholder: "any" })),
  field("Project", el("input", { type: "text", name: "project", value: view.project, placeholder: "id" })),
  field("Boots from a volume", el("input", { type: "checkbox", name: "is_bfv", checked: view.volume === "1" })),
];

function settingIn({ cluster, zone, project, is_bfv: volume }) {
  const texts = { availability_zone: zone.value.trim(), project_id: project.value.trim() };
  const hints = cluster.value ? { scheduler_hints: { cluster: [cluster.value] } } : {};
  return { ...Object.fromEntries(Object.entries(texts).filter(([, text]) => text)), ...hints, is_bfv: volume.checked };
}

function fromAddress(texts) {
  try {
    const found = texts.map((each) => JSON.parse(each));
    if (found.every((each) => each instanceof Object && Array.isArray(each.devices ?? []))) return found;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  showProblem("The address has a flavor that cannot be read.");
  return [];
}

/**
 * The capacity for each flavor, in their order. Devices are asked for beside the flavor, of all flavors of a request
 * alike, so there is one request for each set of devices.
 */
async function counted(flavors, setting, options) {
  const groups = new Map();
  flavors.forEach(({ devices = [] }, at) => {
    const key = JSON.stringify(devices);
    groups.set(key, [...(groups.get(key) ?? []), at]);
  });
  const found = [];
  for (const [key, places] of groups) {
    const body = { flavors: places.map((at) => ({ ...flavors[at], devices: undefined })), spec_obj: { ...setting, ...asking(JSON.parse(key)) } };
    const answer = await request("POST", "/v1/capacity", { ...options, body }).catch((error) => {
      for (const each of error.errors ?? []) {
        each.pointer = each.pointer?.replace(/^\/flavors\/(\d+)/, (_, at) => `/flavors/${places[at]}`);
      }
      throw error;
    });
    answer.flavors.forEach((each, at) => (found[places[at]] = { ...each, not_asked: answer.not_asked }));
  }
  return found;
}

const number = (instances) => (instances === null ? ANY : count(instances));
const more = ({ instances, is_exact: isExact }) => `${isExact ? "" : "up to "}${number(instances)}`;
const hosts = (clusters) => {
  const sum = (name) => clusters.reduce((all, each) => all + each[name], 0);
  return `${count(sum("fitting_hosts"))} of ${things(sum("hosts"), "host")}`;
};

function resultOf(found, choosing) {
  return table("How many more fit", ["Flavor", "More that fit", "Runs out first", "On hosts"], found.map((each) => {
    const known = each.clusters.filter((cluster) => !cluster.problem);
    const without = each.clusters.length - known.length;
    return [
      el("button", { type: "button", onclick: choosing(each) }, each.name),
      known.length ? [more(each), without ? `, ${things(without, "cluster")} not counted` : ""] : "not counted",
      each.runs_out_first ?? "-", hosts(known),
    ];
  }));
}

/** The parts of one flavor's capacity by cluster and zone, and what keeps more from fitting. */
function partsOf({ name, clusters, not_asked: notAsked }) {
  const rows = (cells) => clusters.flatMap((each) => cells(each).map((some) => [each.cluster, ...some]));
  const part = (caption, columns, found) => (found.length ? table(caption, ["Cluster", ...columns], found) : null);
  const ofObject = (field, cells) => rows((each) => Object.entries(each[field]).map(([key, value]) => [key, ...cells(value)]));
  return [
    el("h2", {}, name),
    table("By cluster", ["Cluster", "More that fit", "Runs out first", "On hosts", "Policy"], clusters.map((each) => (each.problem
      ? [each.cluster, el("span", { class: "prose" }, `not counted: ${each.problem}`), "-", things(each.hosts, "host"), "-"]
      : [each.cluster, more(each), each.runs_out_first ?? "-", hosts([each]), each.policy?.name ?? "-"]))),
    part("By zone", ["Zone", "More that fit"], ofObject("zones", (instances) => [number(instances)])),
    part("What limits it", ["Resource or filter", "Runs out first on", "Full already"], ofObject("limited_by", (each) => [things(each.hosts, "host"), things(each.full_hosts, "host")])),
    part("What filters lose", ["Filter", "Rejected", "Room on them"], ofObject("lost_to", (each) => [things(each.hosts, "host"), number(each.instances)])),
    notAskedOf({ not_asked: notAsked }),
  ];
}
