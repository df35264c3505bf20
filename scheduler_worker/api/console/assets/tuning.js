// Tuning: what is wrong with policies, the policies in force, and the hosts that were tuned.

import { choice, el, field, fill, table } from "./dom.js";
import { ago, count, things } from "./format.js";
import { items, request } from "./http.js";
import { keepLive } from "./live.js";
import { placesOf } from "./places.js";
import { attempt } from "./problems.js";
import { may } from "./session.js";

const EVERY_MS = 3000;
const SHOWN = 50;
const MOST = 1000;
const DEFAULTS = { search: "", cluster: "" };

export async function tuningPage(section, { signal }) {
  const view = { ...DEFAULTS, ...Object.fromEntries(new URLSearchParams(location.search)) };
  let shown = SHOWN;
  const alarms = el("div", { id: "alarms" });
  const policies = el("div", { id: "policies" });
  const found = el("p", { id: "found", role: "status" });
  const list = el("div", { id: "hosts" });
  const more = el("button", { type: "button", onclick: () => ((shown = Math.min(MOST, 4 * shown)), attempt(() => loadHosts({ signal }))) }, "Show more");
  const controls = el("form", { class: "controls", role: "search", "aria-label": "Tuned hosts", onsubmit: (event) => event.preventDefault() });
  controls.addEventListener("change", () => {
    Object.assign(view, Object.fromEntries(new FormData(controls)));
    const changed = Object.entries(view).filter(([name, value]) => value !== DEFAULTS[name]);
    const query = new URLSearchParams(changed).toString();
    history.replaceState(null, "", location.pathname + (query ? `?${query}` : ""));
    shown = SHOWN;
    attempt(() => loadHosts({ signal }));
  });

  async function loadHosts(options) {
    const asked = pathOf(view, shown);
    const page = await request("GET", asked, options);
    if (signal.aborted || asked !== pathOf(view, shown)) return; // what is asked for has changed meanwhile
    fill(found, page.items.length ? `${things(page.items.length, "host")}${page.next ? ", and there are more" : ""}` : "No host that was tuned within a day");
    fill(list, page.items.length ? hostsTable(page.items) : null);
    more.hidden = !page.next || shown === MOST;
  }

  await keepLive(async (options) => {
    const [wrong, inForce, clusters] = await Promise.all(
      ["/v1/tuning-alarms", "/v1/tuning-policies", "/v1/clusters"].map((path) => items(path, options)));
    if (signal.aborted) return;
    if (!section.hasChildNodes()) {
      controls.replaceChildren(...controlsOf(view, clusters));
      section.append(el("h1", {}, "Tuning"), alarms, el("h2", {}, "Policies"), policies, el("h2", {}, "Hosts"), controls, found, list, more);
    }
    fill(alarms, alarmsOf(wrong));
    fill(policies, policiesOf(inForce));
    await loadHosts(options);
    section.removeAttribute("aria-busy");
  }, { everyMs: EVERY_MS, signal });
}

export const addressOfPolicy = (name) => `/console/tuning/policies/${encodeURIComponent(name)}`;

function pathOf(view, limit) {
  const asked = { limit };
  for (const name of Object.keys(DEFAULTS)) if (view[name].trim()) asked[name] = view[name].trim();
  return `/v1/tuned-hosts?${new URLSearchParams(asked)}`;
}

const controlsOf = (view, clusters) => [
  field("Search", el("input", { type: "search", name: "search", value: view.search, placeholder: "name or uuid", maxlength: "256" })),
  choice("Cluster", "cluster", view.cluster, [["", "all"], ...clusters.map((each) => [each.name, each.name])]),
];

function alarmsOf(alarms) {
  if (!alarms.length) return el("p", { class: "good" }, "All policies that this API process knows are in force as they are written.");
  const heading = (each) => {
    const place = each.line ? `, line ${each.line}, column ${each.column}` : "";
    return [each.policy ? [el("strong", {}, each.policy), ": "] : "", each.origin === "set" ? "as it was set" : each.file, place];
  };
  return [
    el("p", { class: "problem", role: "status" }, `${things(alarms.length, "problem")}. What was in force before stays in force.`),
    placesOf(alarms, heading),
  ];
}

function policiesOf(policies) {
  const add = may("tuning:edit") ? el("p", {}, el("a", { href: "/console/tuning/new", class: "button" }, "New tuning policy")) : null;
  if (!policies.length) return [add, el("p", {}, "There is none.")];
  return [add, table("Tuning policies in force", ["Policy", "Origin", "Lines"], policies.map((each) => [
    el("a", { href: addressOfPolicy(each.name) }, each.name), originOf(each), count(each.text.trimEnd().split("\n").length),
  ]))];
}

export const originOf = (policy) => (policy.origin === "set" ? el("span", { class: "state up" }, "set") : policy.file);

function hostsTable(hosts) {
  return table("What was set on hosts, VMs and disks", ["Host", "Cluster", "Last cycle", "Agent notified", "Values set", "Held back", "Last change"], hosts.map((each) => [
    el("a", { id: `host-${each.uuid}`, href: `/console/tuning/hosts/${encodeURIComponent(each.uuid)}` }, each.name), each.cluster,
    ago(each.cycle_at), ago(each.notified_at), count(each.outputs), count(each.held), each.outputs && !each.changed_at ? "unknown" : ago(each.changed_at),
  ]));
}
