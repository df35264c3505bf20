// Flavors: those that the kept decisions asked for, and forms in which people type one.

import { choice, el, field } from "./dom.js";
import { things } from "./format.js";
import { Failure, request } from "./http.js";

const LOOKED_AT = 200;
const MOST = 20;
const FIGURES = { vcpus: "vCPUs", memory_mb: "Memory (MiB)", root_gb: "Disk (GiB)", ephemeral_gb: "Ephemeral (GiB)", swap: "Swap (MiB)" };
export const ALIAS = "pci_passthrough:alias";

/**
 * The flavors of the newest decisions, that of the newest first, each with a name and with its figures as it was
 * asked for last. The list of decisions has names alone, so one decision of each is read.
 */
export async function seenFlavors(options) {
  const page = await request("GET", `/v1/decisions?limit=${LOOKED_AT}`, options).catch(notKept);
  const newest = new Map();
  for (const { flavor, id } of page?.items ?? []) if (flavor && !newest.has(flavor)) newest.set(flavor, id);
  const ids = [...newest.values()].slice(0, MOST);
  const found = await Promise.all(ids.map((id) => request("GET", `/v1/decisions/${encodeURIComponent(id)}`, options).catch(notKept)));
  return found.filter(Boolean).map((each) => flavorOf(each.spec));
}

/** Null for what is not kept (any more). */
export function notKept(error) {
  if (error.status !== 404) throw error;
  return null;
}

/** The flavor of a specification. Its devices are those that Nova's aliases stood for, which only Nova knows. */
export function flavorOf({ flavor, pci_requests: asked }) {
  const found = {};
  for (const [name, value] of Object.entries(flavor)) if (name in FIGURES || name === "name") found[name] = value;
  const specs = { ...flavor.extra_specs };
  const devices = (asked?.requests ?? []).filter((each) => each.alias_name)
    .map(({ count, spec, numa_policy }) => ({ count, spec, numa_policy }));
  if (devices.length) {
    delete specs[ALIAS];
    found.devices = devices;
  }
  return { ...found, extra_specs: specs };
}

/** The fields of a specification that ask for devices. */
export const asking = (devices) => (devices.length ? { pci_requests: { requests: devices } } : {});

/** Pairs from lines `key=value`. Raises a Failure that has the pointer of their field. */
export function pairsOf(text, pointer) {
  return text.split("\n").map((each) => each.trim()).filter(Boolean).map((line) => {
    const at = line.indexOf("=");
    if (at < 1) throw refusal(`expected lines key=value, got ${line}`, pointer);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
}

const linesOf = (pairs) => pairs.map(([key, value]) => `${key}=${value}`).join("\n");

/** A failure such as the API answers, of one field. */
export const refusal = (detail, pointer) => new Failure(400, detail, [{ detail, pointer }]);

/** A text of several lines. */
export const lines = (name, pairs, placeholder) =>
  el("textarea", { name, rows: "2", placeholder, value: linesOf(pairs), spellcheck: "false", autocapitalize: "off" });

/** The fields of one flavor; names of controls begin with `prefix`. */
export class FlavorForm {
  constructor(prefix, flavor = {}) {
    const figure = (name) => el("input", { type: "number", name: `${prefix}${name}`, min: "0", step: "1" });
    this.controls = {
      name: el("input", { type: "text", name: `${prefix}name`, maxlength: "255" }),
      ...Object.fromEntries(Object.keys(FIGURES).map((name) => [name, figure(name)])),
      extra_specs: lines(`${prefix}extra_specs`, [], "trait:HW_CPU_X86_AVX2=required"),
    };
    this.devices = el("p", { class: "note" });
    this.fields = [
      field("Name", this.controls.name),
      ...Object.entries(FIGURES).map(([name, title]) => field(title, this.controls[name])),
      field("Extra specs, a line each", this.controls.extra_specs), this.devices,
    ];
    this.fill(flavor);
  }

  fill(flavor) {
    for (const [name, control] of Object.entries(this.controls)) {
      control.value = name === "extra_specs" ? linesOf(Object.entries(flavor.extra_specs ?? {})) : flavor[name] ?? "";
    }
    this.asked = flavor.devices;
    this.devices.textContent = (flavor.devices ?? []).map(deviceOf).join(", ");
    this.devices.hidden = !flavor.devices;
  }

  /** The flavor, without what is left empty. Raises a Failure; `pointer` is the flavor's. */
  read(pointer) {
    const found = {};
    const name = this.controls.name.value.trim();
    if (name) found.name = name;
    for (const each of Object.keys(FIGURES)) {
      const { validity, valueAsNumber } = this.controls[each];
      if (validity.badInput) throw refusal("expected a whole number", `${pointer}/${each}`);
      if (!Number.isNaN(valueAsNumber)) found[each] = valueAsNumber;
    }
    const specs = pairsOf(this.controls.extra_specs.value, `${pointer}/extra_specs`);
    if (specs.length) found.extra_specs = Object.fromEntries(specs);
    if (this.asked) found.devices = this.asked;
    return found;
  }

  /** The control of a field of the flavor; of the flavor as a whole: its name's. */
  controlOf(name = "name") {
    return this.controls[name];
  }
}

function deviceOf({ count, spec }) {
  const kinds = (spec ?? []).map((each) => [each.vendor_id, each.product_id].filter(Boolean).join(":") || "any").join(" or ");
  return `with ${things(count, "PCI device")} ${kinds}`;
}

/** A choice among flavors that were seen; the value of its control is the place of one. */
export function flavorChoice(label, flavors) {
  const none = flavors.length ? "choose one" : "none is known";
  return choice(label, "seen", "", [["", none], ...flavors.map((each, at) => [String(at), each.name])]);
}
