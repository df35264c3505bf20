// The fleet: clusters, zones, and all hosts as a heat map and as a table.

import { bar, stateOf } from "./bars.js";
import { choice, el, field, fill, goTo, table } from "./dom.js";
import { count, duration, percent, size, things } from "./format.js";
import { HeatMap } from "./heatmap.js";
import { items, request } from "./http.js";
import { keepLive } from "./live.js";
import { MEASURES, order } from "./measures.js";

const EVERY_MS = 3000;
const SHOWN = 50;
const STATES = ["up", "disabled", "down"];
const DEFAULTS = { q: "", cluster: "", zone: "", state: "", colour: "cpu", group: "cluster", sort: "name" };
const NO_ZONE = "no zone";

export async function fleetPage(section, { signal }) {
  const view = { ...DEFAULTS, ...Object.fromEntries(new URLSearchParams(location.search)) };
  let fleet = null;
  let clusters = [];
  let shown = SHOWN;
  const map = new HeatMap({
    signal,
    describe: (row) => describe(fleet, row, view.colour),
    open: (row) => goTo(pathOf(fleet, row)),
  });
  const summary = el("div", { class: "summary" });
  const found = el("p", { id: "found", role: "status" });
  const legend = el("div", { class: "legend" });
  const list = el("div", {});
  const more = el("button", { type: "button", onclick: () => ((shown += 4 * SHOWN), draw()) }, "Show more");
  const controls = el("form", { class: "controls", role: "search", "aria-label": "Hosts", onsubmit: (event) => event.preventDefault() });
  controls.addEventListener("input", () => {
    Object.assign(view, Object.fromEntries(new FormData(controls)));
    const changed = Object.entries(view).filter(([name, value]) => value !== DEFAULTS[name]);
    const query = new URLSearchParams(changed).toString();
    history.replaceState(null, "", location.pathname + (query ? `?${query}` : ""));
    shown = SHOWN;
    draw();
  });

  function draw() {
    const rows = matching(fleet, view).sort(order(fleet, view.sort));
    const measure = MEASURES[view.colour] ?? MEASURES.cpu;
    fill(summary, clustersTable(fleet, clusters), zonesTable(fleet));
    fill(found, `${count(rows.length)} of ${count(fleet.uuid.length)} hosts`);
    fill(legend, legendOf(measure, view.colour));
    map.show(grouped(fleet, rows, view.group), (row) => measure.of(fleet, row), (row) => fleet.state[row]);
    fill(list, hostsTable(fleet, rows.slice(0, shown)));
    more.hidden = rows.length <= shown;
  }

  await keepLive(async (options) => {
    [fleet, clusters] = await Promise.all([request("GET", "/v1/fleet", options), items("/v1/clusters", options)]);
    if (signal.aborted) return;
    if (!section.hasChildNodes()) {
      section.append(el("h1", {}, "Fleet"), summary, el("h2", {}, "Hosts"), controls, found, legend, map.element, list, more);
    }
    fillControls(controls, fleet, view);
    draw();
    section.removeAttribute("aria-busy");
  }, { everyMs: EVERY_MS, signal });
}

const pathOf = (fleet, row) => `/console/hosts/${encodeURIComponent(fleet.uuid[row])}`;
const zoneOf = (fleet, row) => fleet.zone[row] ?? NO_ZONE;

function matching(fleet, view) {
  const words = view.q.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [];
  for (let row = 0; row < fleet.uuid.length; row += 1) {
    const isWanted = (!view.cluster || fleet.cluster[row] === view.cluster)
      && (!view.zone || zoneOf(fleet, row) === view.zone)
      && (!view.state || fleet.state[row] === view.state)
      && words.every((word) => fleet.name[row].toLowerCase().includes(word) || fleet.uuid[row].includes(word));
    if (isWanted) rows.push(row);
  }
  return rows;
}

function grouped(fleet, rows, by) {
  const titleOf = { cluster: (row) => fleet.cluster[row], zone: (row) => zoneOf(fleet, row), state: (row) => fleet.state[row] }[by];
  if (!titleOf) return [{ title: "All hosts", rows }];
  const groups = new Map();
  for (const row of rows) {
    const title = titleOf(row);
    if (!groups.has(title)) groups.set(title, []);
    groups.get(title).push(row);
  }
  return [...groups].sort(([one], [other]) => one.localeCompare(other)).map(([title, its]) => ({ title, rows: its }));
}

function describe(fleet, row, colour) {
  const measure = MEASURES[colour] ?? MEASURES.cpu;
  const state = fleet.state[row] === "up" ? "" : `, ${fleet.state[row]}`;
  return `${fleet.name[row]}${state}: ${measure.title.toLowerCase()} ${measure.text(fleet, row)}; `
    + `${things(fleet.instances[row], "instance")}, ${things(fleet.reservations[row], "reservation")}`;
}

function fillControls(controls, fleet, view) {
  const zones = [...new Set(fleet.uuid.map((_, row) => zoneOf(fleet, row)))].sort();
  const clusters = [...new Set(fleet.cluster)].sort();
  const key = JSON.stringify([zones, clusters]);
  if (controls.dataset.key === key) return; // somebody may be typing
  controls.dataset.key = key;
  const measures = Object.entries(MEASURES).map(([name, each]) => [name, each.title]);
  controls.replaceChildren(
    field("Search", el("input", { type: "search", name: "q", value: view.q, placeholder: "name or uuid" })),
    choice("Cluster", "cluster", view.cluster, [["", "all"], ...clusters.map((each) => [each, each])]),
    choice("Zone", "zone", view.zone, [["", "all"], ...zones.map((each) => [each, each])]),
    choice("State", "state", view.state, [["", "all"], ...STATES.map((each) => [each, each])]),
    choice("Colour", "colour", view.colour, measures),
    choice("Group by", "group", view.group, [["cluster", "cluster"], ["zone", "zone"], ["state", "state"], ["none", "nothing"]]),
    choice("Sort by", "sort", view.sort, [["name", "name"], ...measures.map(([name, title]) => [name, title.toLowerCase()]), ["instances", "instances"]]),
  );
}

function legendOf(measure, colour) {
  const marks = [el("span", { class: "key disabled" }, "disabled"), el("span", { class: "key down" }, "down")];
  const over = ["cpu", "memory", "disk", "reserved"].includes(colour) ? [el("span", { class: "key over" }, "above its limit")] : [];
  return [el("span", { class: "scale" }, el("span", {}, measure.ends[0]), el("span", { class: "ramp" }), el("span", {}, measure.ends[1])), over,
    el("span", { class: "key unknown" }, "unknown"), marks];
}

/** The sums of the hosts that have the same value in a column. */
function sums(fleet, titleOf) {
  const found = new Map();
  fleet.uuid.forEach((_, row) => {
    const title = titleOf(row);
    if (!found.has(title)) {
      found.set(title, { up: 0, disabled: 0, down: 0, reservations: 0, vcpus: [0, 0, 0], memory_mb: [0, 0, 0], disk_mb: [0, 0, 0] });
    }
    const sum = found.get(title);
    sum[fleet.state[row]] += 1;
    sum.reservations += fleet.reservations[row];
    for (const name of ["vcpus", "memory_mb", "disk_mb"]) {
      sum[name][0] += fleet[name].used[row];
      sum[name][1] += fleet[name].reserved[row];
      sum[name][2] += fleet[name].limit[row];
    }
  });
  return found;
}

const NOTHING = { up: 0, disabled: 0, down: 0, reservations: 0, vcpus: [0, 0, 0], memory_mb: [0, 0, 0], disk_mb: [0, 0, 0] };
const SUM_COLUMNS = ["Up", "Disabled", "Down", "CPU", "Memory", "Disk", "Reservations"];

const sumCells = (sum) => [
  count(sum.up), count(sum.disabled), sum.down ? el("strong", { class: "bad" }, count(sum.down)) : "0",
  bar(...sum.vcpus, count), bar(...sum.memory_mb, size), bar(...sum.disk_mb, size), count(sum.reservations),
];

function clustersTable(fleet, clusters) {
  const found = sums(fleet, (row) => fleet.cluster[row]);
  // The one for hosts that name no cluster is always there; without hosts it is of no interest.
  const shown = clusters.filter((each) => each.hosts || each.policy.id !== "nova");
  return table("Clusters", ["Cluster", "Policy", ...SUM_COLUMNS], shown.map((each) =>
    [each.name, each.policy.name, ...sumCells(found.get(each.name) ?? NOTHING)]));
}

function zonesTable(fleet) {
  const found = sums(fleet, (row) => zoneOf(fleet, row));
  return table("Zones", ["Zone", ...SUM_COLUMNS], [...found].sort(([one], [other]) => one.localeCompare(other)).map(([title, sum]) =>
    [title, ...sumCells(sum)]));
}

function hostsTable(fleet, rows) {
  const shareOf = (name, row) => percent(MEASURES[name].of(fleet, row));
  return table("Hosts as a table", ["Host", "Cluster", "Zone", "State", "CPU", "Memory", "Disk", "Reserved", "Instances", "Last report"], rows.map((row) => [
    el("a", { id: `host-${fleet.uuid[row]}`, href: pathOf(fleet, row) }, fleet.name[row]),
    fleet.cluster[row], zoneOf(fleet, row), stateOf(fleet.state[row]),
    shareOf("cpu", row), shareOf("memory", row), shareOf("disk", row), shareOf("reserved", row),
    count(fleet.instances[row]),
    fleet.age_s[row] === null ? "never" : `${duration(fleet.age_s[row])} ago`,
  ]));
}
