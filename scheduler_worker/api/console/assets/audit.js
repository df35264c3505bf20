// The audit: who changed what, when and from where, the newest first.

import { choice, el, field, fill, table } from "./dom.js";
import { count, moment } from "./format.js";
import { items, now } from "./http.js";
import { attempt } from "./problems.js";

const SHOWN = 500;
const HOUR_S = 3600;
const SPANS = [[String(HOUR_S), "the last hour"], [String(24 * HOUR_S), "the last day"], [String(7 * 24 * HOUR_S), "the last week"], [String(30 * 24 * HOUR_S), "the last 30 days"], ["", "all that is kept"]];
const RESULTS = [["", "all"], ["done", "done"], ["refused", "refused"]];
const DEFAULTS = { user: "", action: "", resource: "", result: "", span: SPANS[2][0] };

export async function auditPage(section, { signal }) {
  const view = { ...DEFAULTS, ...Object.fromEntries(new URLSearchParams(location.search)) };
  const list = el("div", {});
  const found = el("p", { id: "found", role: "status" });
  const controls = el("form", { class: "controls", role: "search", "aria-label": "Audit", onsubmit: (event) => event.preventDefault() },
    field("User", el("input", { type: "search", name: "user", value: view.user, placeholder: "name" })),
    field("Action", el("input", { type: "search", name: "action", value: view.action, placeholder: "policy.update" })),
    field("Resource", el("input", { type: "search", name: "resource", value: view.resource, placeholder: "id or cluster" })),
    choice("Result", "result", view.result, RESULTS),
    choice("Time", "span", view.span, SPANS));
  controls.addEventListener("change", () => {
    Object.assign(view, Object.fromEntries(new FormData(controls)));
    const changed = Object.entries(view).filter(([name, value]) => value !== DEFAULTS[name]);
    const query = new URLSearchParams(changed).toString();
    history.replaceState(null, "", location.pathname + (query ? `?${query}` : ""));
    attempt(load);
  });

  async function load() {
    const asked = pathOf(view);
    const entries = (await items(asked, { signal })).reverse();
    if (signal.aborted || asked !== pathOf(view)) return; // what is asked for has changed meanwhile
    const more = entries.length > SHOWN ? `, and ${count(entries.length - SHOWN)} older ones` : "";
    fill(found, entries.length ? `${count(Math.min(SHOWN, entries.length))} shown${more}` : "None in this time");
    list.replaceChildren(...(entries.length ? [tableOf(entries.slice(0, SHOWN))] : []));
  }

  await load();
  section.append(el("h1", {}, "Audit"), controls, found, list);
}

function pathOf(view) {
  const asked = {};
  for (const name of ["user", "action", "resource", "result"]) if (view[name].trim()) asked[name] = view[name].trim();
  if (view.span) asked.since = new Date(60000 * Math.floor(now() / 60000) - 1000 * Number(view.span)).toISOString();
  return `/v1/audit?${new URLSearchParams(asked)}`;
}

const tableOf = (entries) => table("The newest first", ["When", "Who", "From", "Action", "Resource", "Result", "Before and after"], entries.map((each) => [
  moment(each.at), each.user, each.origin || "-", each.action, each.resource || "-",
  el("span", { class: "prose" }, each.reason ? `${each.result}: ${each.reason}` : each.result), detailsOf(each),
]));

function detailsOf(entry) {
  if (entry.before === null && entry.after === null) return "-";
  const text = (value) => (value === null ? "nothing" : JSON.stringify(value, null, 1));
  return el("details", {}, el("summary", { "aria-label": `Before and after ${entry.action} of ${entry.resource}` }, "Show"),
    el("h3", {}, "Before"), el("pre", {}, text(entry.before)), el("h3", {}, "After"), el("pre", {}, text(entry.after)));
}
