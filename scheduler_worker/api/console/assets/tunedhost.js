// A tuned host: what was set on it, its VMs and disks, by which rules, and what is held back.

import { el, fill, shown, table } from "./dom.js";
import { ago, count, duration, moment } from "./format.js";
import { request } from "./http.js";
import { keepLive } from "./live.js";
import { addressOfPolicy } from "./tuning.js";

const EVERY_MS = 3000;
const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 10 });

export async function tunedHostPage(section, { argument, signal }) {
  const parts = Object.fromEntries(["head", "outputs", "held"].map((name) => [name, el("div", { id: name })]));
  await keepLive(async (options) => {
    const host = await request("GET", `/v1/tuned-hosts/${encodeURIComponent(argument)}`, options);
    if (signal.aborted) return;
    if (!section.hasChildNodes()) section.append(...Object.values(parts));
    document.title = shown(`Tuning of ${host.name} - scheduler_worker`);
    fill(parts.head, headOf(host));
    fill(parts.outputs, el("h2", {}, "Values"), outputsOf(host.entities));
    fill(parts.held, el("h2", {}, "Held back"), heldOf(host.entities));
    section.removeAttribute("aria-busy");
  }, { everyMs: EVERY_MS, signal });
}

function headOf(host) {
  const facts = {
    Cluster: host.cluster, Worker: host.worker ?? "none", "Last cycle": ago(host.cycle_at), "Last report": ago(host.reported_at),
    "Agent notified": ago(host.notified_at), "Last change": host.outputs && !host.changed_at ? "unknown" : ago(host.changed_at),
  };
  return [
    el("nav", { "aria-label": "Where this is" }, el("a", { href: `/console/tuning?cluster=${encodeURIComponent(host.cluster)}` }, `Tuned hosts of ${host.cluster}`), " · ",
      el("a", { href: `/console/hosts/${encodeURIComponent(host.uuid)}` }, `Host ${host.name}`)),
    el("h1", {}, `Tuning of ${host.name}`),
    el("dl", {}, Object.entries(facts).map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])),
  ];
}

const placeOf = (entity) => ({ Host: "the host", VM: `VM ${entity.name}`, "VM.disk": `disk ${entity.device} of VM ${entity.name}` })[entity.scope];
const rulesOf = (rules) => rules.map((rule, at) => [at ? ", " : "", el("a", { href: addressOfPolicy(rule.split(":")[0]) }, rule)]);

function outputsOf(entities) {
  const rows = entities.flatMap((entity) => entity.outputs.map((each) => [
    placeOf(entity), each.output, number.format(each.value), each.rules.length ? rulesOf(each.rules) : "not known", each.set_at ? moment(each.set_at) : "not known",
  ]));
  const without = entities.filter((each) => !each.outputs.length).length;
  const note = without ? el("p", { class: "note" }, `Nothing was set on ${count(without)} of ${count(entities.length)}: the host itself, its VMs and their disks.`) : null;
  return [rows.length ? table("As they were sent to the agent last", ["Where", "Output", "Value", "Rules", "Set"], rows) : null, note];
}

function heldOf(entities) {
  const rows = entities.flatMap((entity) => entity.held.map((each) => [
    placeOf(entity), each.output ?? "not known here", rulesOf([each.rule]), each.direction, duration(each.held_s),
  ]));
  if (!rows.length) return el("p", {}, "No change is held back.");
  return table("Changes that are too small yet", ["Where", "Output", "Rule", "Direction", "Held back for"], rows);
}
