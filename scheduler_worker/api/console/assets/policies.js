// All policies, which cluster has which, and the units that policies may use.

import { choice, el, goTo, table } from "./dom.js";
import { moment } from "./format.js";
import { ask, items, request } from "./http.js";
import { attempt, confirmed } from "./problems.js";
import { may } from "./session.js";

const KINDS = { filter: "Filters", weight: "Weights", balance: "Balances", selector: "Selectors" };
const pathOf = (policy) => `/console/policies/${encodeURIComponent(policy.id)}`;

export async function policiesPage(section, { signal }) {
  async function show() {
    const [policies, units, clusters] = await Promise.all(
      ["/v1/policies", "/v1/units", "/v1/clusters"].map((path) => items(path, { signal })));
    const attached = await Promise.all(clusters.map((each) => ask("GET", `/v1/clusters/${encodeURIComponent(each.name)}/policy`, { signal })));
    policies.sort((one, other) => one.name.localeCompare(other.name));
    section.replaceChildren(
      el("h1", {}, "Policies"),
      may("policy:create") ? el("p", {}, el("a", { href: "/console/policies/new", class: "button" }, "New policy")) : "",
      policiesTable(policies, remove),
      el("h2", {}, "Clusters"), clustersTable(attached, policies, attach),
      el("h2", {}, "Units"), ...Object.entries(KINDS).map(([kind, title]) => unitsTable(title, units.filter((each) => each.kind === kind), switchUnit)),
    );
  }

  const change = async (action) => (await attempt(action)) && attempt(show);

  async function remove(policy) {
    if (!(await confirmed(`Remove the policy ${policy.name}?`, "Remove"))) return;
    await change(() => request("DELETE", `/v1/policies/${encodeURIComponent(policy.id)}`, { headers: { "If-Match": "*" } }));
  }

  const attach = (attachment, etag, policy) => change(() =>
    request("PUT", `/v1/clusters/${encodeURIComponent(attachment.cluster)}/policy`, { body: { policy }, headers: { "If-Match": etag } }));

  const switchUnit = (unit) => change(() =>
    request("PUT", `/v1/units/${encodeURIComponent(unit.id)}`, { body: { is_enabled: !unit.is_enabled }, headers: { "If-Match": "*" } }));

  await show();
}

function policiesTable(policies, remove) {
  const marks = (policy) => [policy.is_locked ? el("span", { class: "state" }, "locked") : "", policy.is_default ? el("span", { class: "state up" }, "default") : ""];
  const actions = (policy) => [
    may("policy:create") ? el("button", { type: "button", onclick: () => goTo(`/console/policies/new?from=${encodeURIComponent(policy.id)}`), "aria-label": `Clone ${policy.name}` }, "Clone") : "",
    may("policy:delete") && !policy.is_locked ? el("button", { type: "button", onclick: () => remove(policy), "aria-label": `Remove ${policy.name}` }, "Remove") : "",
  ];
  return table("All policies", ["Policy", "Marks", "Version", "Filters", "Weights", "Balance", "Clusters", "Changed", "By", "Change"], policies.map((each) => [
    el("a", { href: pathOf(each) }, each.name), marks(each), String(each.version), String((each.filters ?? []).length), String((each.weights ?? []).length),
    each.balance?.unit ?? "none", each.clusters.join(", ") || "none", each.changed_at ? moment(each.changed_at) : "-", each.changed_by ?? "-", actions(each),
  ]));
}

function clustersTable(attached, policies, attach) {
  return table("Policies of clusters", ["Cluster", "Policy", "Own values"], attached.map(({ value, etag }) => {
    const form = el("form", { class: "line", onsubmit: (event) => (event.preventDefault(), attach(value, etag, new FormData(form).get(`policy-${value.cluster}`))) },
      choice(`Policy of ${value.cluster}`, `policy-${value.cluster}`, value.policy, policies.map((each) => [each.id, each.name])),
      el("button", { "aria-label": `Attach ${value.cluster}` }, "Attach"),
      may("rehearsal:run") ? el("button", { type: "button", onclick: () => rehearse(form, value.cluster), "aria-label": `Rehearse first for ${value.cluster}` }, "Rehearse first") : "");
    const name = policies.find((each) => each.id === value.policy)?.name ?? value.policy;
    const link = el("a", { href: `/console/clusters/${encodeURIComponent(value.cluster)}` }, value.cluster);
    return [link, may("cluster:attach") ? form : name, Object.entries(value.parameters).map(([key, text]) => `${key}=${text}`).join(", ") || "none"];
  }));
}

function rehearse(form, cluster) {
  const asked = new URLSearchParams({ cluster, policy: new FormData(form).get(`policy-${cluster}`) });
  goTo(`/console/rehearsals?${asked}`);
}

function unitsTable(title, units, switchUnit) {
  const state = (unit) => {
    const text = unit.is_enabled ? "enabled" : "disabled";
    if (!unit.can_be_switched || !may("unit:switch")) return text;
    return [text, " ", el("button", { type: "button", onclick: () => switchUnit(unit), "aria-label": `${unit.is_enabled ? "Disable" : "Enable"} ${unit.name}` }, unit.is_enabled ? "Disable" : "Enable")];
  };
  return table(title, ["Unit", "What it does", "Parameters", "Origin", "State"], units.map((each) => [
    each.name, el("span", { class: "prose" }, each.description), each.parameters.map((parameter) => parameter.name).join(", ") || "none",
    each.is_internal ? "worker" : "installed", state(each),
  ]));
}
