// A host: facts, use, NUMA cells and devices, instances, reservations with the time that is left, what was decided for
// it lately, and whether a flavor would fit.

import { bar, stateOf } from "./bars.js";
import { tableOf } from "./decisions.js";
import { el, fill, shown, table } from "./dom.js";
import { fitOf } from "./fit.js";
import { notKept } from "./flavors.js";
import { count, duration, moment, size } from "./format.js";
import { items, now, request } from "./http.js";
import { keepLive } from "./live.js";
import { attempt, confirmed } from "./problems.js";
import { may } from "./session.js";

const EVERY_MS = 3000;
const LATELY = 5;

export async function hostPage(section, { argument, signal }) {
  const path = `/v1/hosts/${encodeURIComponent(argument)}`;
  const parts = Object.fromEntries(["head", "use", "facts", "numa", "devices", "reservations", "lately", "instances"].map((name) => [name, el("div", { id: name })]));
  const record = el("pre", { tabindex: "0", role: "region", "aria-label": "Everything that was reported" });
  let host = null;
  let lately = {};

  async function load(options) {
    const asked = [request("GET", path, options), items(`/v1/reservations?host=${encodeURIComponent(argument)}`, options)];
    let reservations;
    [host, reservations] = await Promise.all(asked);
    if (lately) lately = await request("GET", `/v1/decisions?${new URLSearchParams({ host: host.name, limit: LATELY })}`, options).catch(notKept);
    if (signal.aborted) return;
    if (!section.hasChildNodes()) {
      section.append(...Object.values(parts), el("details", {}, el("summary", {}, "Everything that was reported"), record));
      parts.use.after(fitOf(() => host, signal));
    }
    document.title = shown(`${host.name} - scheduler_worker`);
    fill(parts.head, headOf(host));
    fill(parts.use, el("h2", {}, "Use"), useOf(host));
    fill(parts.facts, el("h2", {}, "Facts"), factsOf(host));
    fill(parts.numa, host.numa_cells.length ? [el("h2", {}, "NUMA cells"), host.numa_cells.map(cellOf)] : null);
    fill(parts.devices, host.devices.length ? [el("h2", {}, "Devices"), host.devices.map(devicesOf)] : null);
    fill(parts.reservations, el("h2", {}, "Reservations"), reservationsOf(reservations, release));
    fill(parts.lately, el("h2", {}, "Lately"), latelyOf(host, lately));
    fill(parts.instances, el("h2", {}, "Instances"), instancesOf(host));
    record.textContent = shown(JSON.stringify(host.record, null, 2));
    section.removeAttribute("aria-busy");
  }

  async function release(reservation) {
    const question = `Release the reservation for the instance ${reservation.instance_uuid}? Do so only if the instance will not come.`;
    if (!(await confirmed(question, "Release"))) return;
    await attempt(() => request("DELETE", `/v1/reservations/${encodeURIComponent(reservation.id)}`));
    await attempt(() => load({ signal }));
  }

  await keepLive(load, { everyMs: EVERY_MS, signal });
}

const headOf = (host) => [
  el("nav", { "aria-label": "Where this is" }, el("a", { href: `/console/fleet?cluster=${encodeURIComponent(host.cluster)}` }, `Cluster ${host.cluster}`)),
  el("h1", {}, host.name, " ", stateOf(host.state)),
  host.reason ? el("p", { class: "note" }, `Not up: ${host.reason}.`) : null,
];

function useOf(host) {
  const line = (name, amount, show) => [
    name, bar(amount.used, amount.reserved, amount.limit, show), show(amount.used), show(amount.reserved),
    show(amount.limit - amount.used - amount.reserved), show(amount.limit), show(amount.total),
  ];
  return table("Used and reserved", ["", "Share", "Used", "Reserved", "Left", "Limit", "Hardware"], [
    line("CPU", host.vcpus, (vcpus) => `${count(vcpus)} vCPU`),
    line("Memory", host.memory_mb, size),
    line("Disk", host.disk_mb, size),
  ]);
}

function factsOf(host) {
  const record = host.record;
  const facts = {
    Node: host.nodename, UUID: host.uuid, Zones: host.zones.join(", ") || "none", Aggregates: host.aggregates.join(", ") || "none",
    Hypervisor: [record.hypervisor_type, record.hypervisor_version || ""].join(" ").trim() || "not reported",
    Address: record.host_ip ?? "not reported", "Last report": moment(host.reported_at),
    "Allocation ratios": `CPU ${record.cpu_allocation_ratio ?? 1}, memory ${record.ram_allocation_ratio ?? 1}, disk ${record.disk_allocation_ratio ?? 1}`,
    Traits: record.traits?.join(", ") || "none",
  };
  return el("dl", {}, Object.entries(facts).map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
}

function cellOf(cell) {
  const pinned = new Set(cell.pinned_cpus);
  const dedicated = new Set(cell.dedicated_cpus);
  const shared = new Set(cell.shared_cpus);
  const cpus = [...new Set([...cell.shared_cpus, ...cell.dedicated_cpus])].sort((one, other) => one - other);
  const grouped = new Set(cell.cores.flat());
  const cores = [...cell.cores, ...cpus.filter((each) => !grouped.has(each)).map((each) => [each])];
  const kind = (cpu) => (pinned.has(cpu) ? "pinned" : dedicated.has(cpu) && !shared.has(cpu) ? "dedicated" : "shared");
  const text = `${cpus.length} CPUs, ${pinned.size} of them pinned`;
  return el("section", { class: "cell" },
    el("h3", {}, `Cell ${cell.id}`, cell.socket === null ? "" : ` on socket ${cell.socket}`),
    el("p", {}, `${text}. Memory `, bar(cell.memory_used_mb, 0, cell.memory_mb, size)),
    el("div", { class: "cpus", role: "img", "aria-label": text }, cores.map((core) =>
      el("span", { class: "core" }, core.map((cpu) => el("span", { class: `cpu ${kind(cpu)}` }, String(cpu)))))),
    cell.pages.length ? table(`Pages of cell ${cell.id}`, ["Size", "Use", "Used", "In all"], cell.pages.map((each) =>
      [size(each.size_kb / 1024), bar(each.used, 0, each.total, count), count(each.used), count(each.total)])) : null);
}

function devicesOf(devices) {
  const reserved = devices.reported - devices.free;
  const text = `${count(devices.free)} free, ${count(reserved)} reserved`;
  const dots = Array.from({ length: Math.min(64, Math.max(0, devices.reported)) }, (_, at) =>
    el("span", { class: at < devices.free ? "device free" : "device reserved" }));
  const tags = Object.entries(devices.tags).map(([name, value]) => `${name}=${value}`).join(", ");
  return el("section", { class: "cell" },
    el("h3", {}, `${devices.vendor_id}:${devices.product_id}`, devices.numa_node === null ? "" : ` at cell ${devices.numa_node}`),
    el("p", {}, text, tags ? ` (${tags})` : ""), el("div", { class: "cpus", role: "img", "aria-label": text }, dots));
}

function reservationsOf(reservations, release) {
  if (!reservations.length) return el("p", {}, "Nothing is reserved.");
  const columns = ["Instance", "State", "CPU", "Memory", "Disk", "Time left", "Project"];
  return table("What is held for instances until the host reports them", may("reservation:release") ? [...columns, "Change"] : columns, reservations.map((each) => [
    each.instance_uuid, each.state, count(each.vcpus), size(each.memory_mb), size(each.disk_mb), leftOf(each), each.project_id ?? "-",
    ...(may("reservation:release") ? [el("button", { type: "button", id: `release-${each.id}`, onclick: () => release(each) }, "Release")] : []),
  ]));
}

function leftOf(reservation) {
  if (!reservation.expires_at) return "no end";
  const left_s = (new Date(reservation.expires_at) - now()) / 1000;
  return left_s > 0 ? duration(left_s) : "over";
}

/** The last decisions that chose it. Which hosts a decision refused is not kept, only how many each filter did. */
function latelyOf(host, found) {
  if (!found) return el("p", {}, "No decisions are kept.");
  const address = `/console/decisions?${new URLSearchParams({ host: host.name })}`;
  return [
    found.items.length ? tableOf("The last decisions that chose it", found.items) : el("p", {}, found.next ? "None of the newest chose it." : "None that is kept chose it."),
    el("p", {}, el("a", { href: address }, "All decisions that chose it")),
  ];
}

function instancesOf(host) {
  if (!host.instance_uuids.length) return el("p", {}, host.instances ? count(host.instances) : "None is reported.");
  return el("ul", { class: "uuids" }, host.instance_uuids.map((each) => el("li", {}, each)));
}
