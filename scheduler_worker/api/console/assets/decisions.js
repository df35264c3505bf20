// Decisions: what was decided, the newest first, and live while nothing older is looked at.

import { choice, el, field, fill, table } from "./dom.js";
import { count, duration, moment } from "./format.js";
import { items, now, request } from "./http.js";
import { keepLive } from "./live.js";
import { attempt } from "./problems.js";

const EVERY_MS = 3000;
const SHOWN = 50;
const HOUR_S = 3600;
const SPANS = [["", "all that is kept"], [String(HOUR_S), "the last hour"], [String(24 * HOUR_S), "the last day"], [String(7 * 24 * HOUR_S), "the last week"]];
const RESULTS = [["", "all"], ["placed", "placed"], ["refused", "refused"], ["failed", "failed"]];
const DEFAULTS = { instance: "", cluster: "", project: "", host: "", result: "", span: "" };

export async function decisionsPage(section, { signal }) {
  const view = { ...DEFAULTS, ...Object.fromEntries(new URLSearchParams(location.search)) };
  let newest = { items: [], next: null };
  let older = [];
  let next = null;
  const list = el("div", {});
  const found = el("p", { id: "found", role: "status" });
  const more = el("button", { type: "button", onclick: () => attempt(showOlder) }, "Show older ones");
  const controls = el("form", { class: "controls", role: "search", "aria-label": "Decisions", onsubmit: (event) => event.preventDefault() });
  controls.addEventListener("change", () => {
    Object.assign(view, Object.fromEntries(new FormData(controls)));
    const changed = Object.entries(view).filter(([name, value]) => value !== DEFAULTS[name]);
    const query = new URLSearchParams(changed).toString();
    history.replaceState(null, "", location.pathname + (query ? `?${query}` : ""));
    older = [];
    attempt(() => load({ signal }));
  });

  async function load(options) {
    const asked = pathOf(view);
    const answered = await request("GET", asked, options);
    if (signal.aborted || asked !== pathOf(view)) return; // what is asked for has changed meanwhile
    newest = answered;
    next = newest.next;
    draw();
  }

  async function showOlder() {
    const page = await request("GET", next, { signal });
    const known = new Set([...newest.items, ...older].map((each) => each.id));
    older.push(...page.items.filter((each) => !known.has(each.id)));
    next = page.next;
    draw();
  }

  function draw() {
    const ids = new Set(newest.items.map((each) => each.id));
    const rows = [...newest.items, ...older.filter((each) => !ids.has(each.id))];
    fill(found, rows.length ? `${count(rows.length)} shown${next ? ", and there are more" : ""}` : next ? "None among the newest; there are older ones" : "None is kept");
    fill(list, rows.length ? tableOf("The newest first", rows) : null);
    more.hidden = !next;
  }

  await keepLive(async (options) => {
    if (!section.hasChildNodes()) {
      const clusters = await items("/v1/clusters", options);
      if (signal.aborted) return;
      controls.replaceChildren(...controlsOf(view, clusters));
      section.append(el("h1", {}, "Decisions"), controls, found, list, more);
    }
    if (!older.length) await load(options); // else there might be a gap between the pages
    section.removeAttribute("aria-busy");
  }, { everyMs: EVERY_MS, signal });
}

function pathOf(view) {
  const asked = { limit: SHOWN };
  for (const name of ["instance", "cluster", "project", "host", "result"]) if (view[name].trim()) asked[name] = view[name].trim();
  // In whole minutes: the same question is asked again and again.
  if (view.span) asked.since = new Date(60000 * Math.floor(now() / 60000) - 1000 * Number(view.span)).toISOString();
  return `/v1/decisions?${new URLSearchParams(asked)}`;
}

const controlsOf = (view, clusters) => [
  field("Instance", el("input", { type: "search", name: "instance", value: view.instance, placeholder: "uuid" })),
  choice("Result", "result", view.result, RESULTS),
  choice("Cluster", "cluster", view.cluster, [["", "all"], ...clusters.map((each) => [each.name, each.name])]),
  field("Project", el("input", { type: "search", name: "project", value: view.project, placeholder: "id" })),
  field("Chosen host", el("input", { type: "search", name: "host", value: view.host, placeholder: "name" })),
  choice("Time", "span", view.span, SPANS),
];

/** Decisions as rows that lead to them. */
export function tableOf(caption, rows) {
  return table(caption, ["Time", "Result", "Instance", "Host", "Cluster", "Flavor", "Took", "Why"], rows.map((each) => [
    el("a", { href: addressOf(each) }, moment(each.decided_at)), resultOf(each.result), each.instances.join(", ") || "none", each.hosts.join(", ") || "none",
    each.cluster ?? "none", each.flavor ?? "-", tookOf(each.duration_s), el("span", { class: "prose" }, each.reason),
  ]));
}

export const addressOf = (decision) => `/console/decisions/${encodeURIComponent(decision.id)}`;
export const resultOf = (result) => el("span", { class: `state ${result}` }, result);
export const tookOf = (seconds) => (seconds < 1 ? `${count(1000 * seconds)} ms` : seconds < 10 ? `${count(seconds)} s` : duration(seconds));
