// Rehearsals: the form that begins one, and those of the last day.

import { choice, el, field, fill, goTo, table } from "./dom.js";
import { count, moment } from "./format.js";
import { items, now, request } from "./http.js";
import { keepLive } from "./live.js";
import { attempt } from "./problems.js";
import { textOf } from "./policytext.js";
import { described, stateOf } from "./rehearsal.js";
import { may } from "./session.js";

const EVERY_MS = 3000;
const HOUR_S = 3600;
const SPANS = [[HOUR_S, "the last hour"], [24 * HOUR_S, "the last day"], [7 * 24 * HOUR_S, "the last week"]];

export async function rehearsalsPage(section, { signal }) {
  const given = new URLSearchParams(location.search);
  const list = el("div", {});
  const [policies, clusters] = await Promise.all(["/v1/policies", "/v1/clusters"].map((path) => items(path, { signal })));
  policies.sort((one, other) => one.name.localeCompare(other.name));
  section.append(
    el("h1", {}, "Rehearsals"),
    el("p", { class: "note" }, "The decisions of a time span are made again under another policy, or without some hosts, on a copy of the hosts: nothing that is in force is touched."),
    may("rehearsal:run") ? el("form", { class: "rehearse", onsubmit: begin },
      el("div", { class: "controls" },
        choice("Policy", "policy", given.get("policy") ?? "", [["", "those in force"], ...policies.map((each) => [each.id, each.name])]),
        ...whichOf(clusters.map((each) => each.name), given.get("cluster") ?? ""),
        field("Project", el("input", { type: "text", name: "project" })),
        field("Hosts that take no more, by name", el("input", { type: "text", name: "drained", placeholder: "cmp1, cmp2", value: given.get("drained") ?? "" }))),
      el("p", {}, el("button", { class: "primary" }, "Rehearse"))) : "",
    el("h2", {}, "Of the last day"), list,
  );

  async function begin(event) {
    event.preventDefault();
    const form = Object.fromEntries(new FormData(event.target));
    await attempt(async () => {
      const policy = policies.find((each) => each.id === form.policy);
      const drained = form.drained.split(/[\s,]+/).filter(Boolean);
      const found = await beginRehearsal(form, { project: form.project.trim() || null, drained, policy: policy ? textOf(policy) : null });
      goTo(`/console/rehearsals/${encodeURIComponent(found.id)}`);
    });
  }

  await keepLive(async (options) => {
    const found = await items("/v1/rehearsals", options);
    fill(list, found.length ? tableOf(found) : el("p", {}, "There is none."));
    section.removeAttribute("aria-busy");
  }, { everyMs: EVERY_MS, signal });
}

/** The fields that say which decisions are made again. */
export const whichOf = (clusters, chosen = "") => [
  choice("Cluster", "cluster", chosen, [["", "all"], ...clusters.map((each) => [each, each])]),
  choice("Decisions of", "span", String(24 * HOUR_S), SPANS.map(([seconds, text]) => [String(seconds), text])),
];

/** Begin a rehearsal of the decisions that a form's fields name. */
export const beginRehearsal = ({ cluster, span }, tried) => request("POST", "/v1/rehearsals", {
  body: { ...tried, cluster: cluster || null, since: new Date(now() - 1000 * Number(span)).toISOString() },
});

function tableOf(found) {
  return table("Rehearsals, the latest first", ["Begun", "By", "What", "State"], found.map((each) => [
    el("a", { href: `/console/rehearsals/${encodeURIComponent(each.id)}` }, moment(each.begun_at)), each.user, el("span", { class: "prose" }, described(each)), el("span", { class: "prose" }, each.state === "deciding" && each.total ? `${count(each.done)} of ${count(each.total)} decisions` : stateOf(each)),
  ]));
}
