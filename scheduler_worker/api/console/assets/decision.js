// A decision: why in one sentence, the filters as a funnel, the weights, and the same question asked now.

import { tookOf, resultOf } from "./decisions.js";
import { el, fill, shown, table } from "./dom.js";
import { explained, explanationOf, figure, funnelOf, linkTo } from "./explaining.js";
import { count, moment, things } from "./format.js";
import { request } from "./http.js";
import { attempt } from "./problems.js";
import { whatIf } from "./whatif.js";

const WAITS = { lock_s: "In the queue and for the cluster's lock", hold_s: "With the lock", look_s: "For another look at the hosts", pending_s: "For pending reservations", claim_s: "For Placement" };

export async function decisionPage(section, { argument, signal }) {
  const found = await request("GET", `/v1/decisions/${encodeURIComponent(argument)}`, { signal });
  const answer = el("div", { id: "now", role: "status" });

  async function askAgain() {
    fill(answer, el("h2", {}, "Now"), explanationOf(await explained(found, { signal })));
  }

  document.title = shown(`Decision on ${found.instances[0] ?? found.request_id} - scheduler_worker`);
  section.append(
    el("nav", { "aria-label": "Where this is" }, el("a", { href: `/console/decisions?instance=${encodeURIComponent(found.instances[0] ?? "")}` }, "All decisions on this instance")),
    el("h1", {}, `Decision on ${found.instances.length === 1 ? found.instances[0] : things(found.instances.length, "instance")} `, resultOf(found.result)),
    el("p", { id: "sentence", class: "sentence" }, found.reason),
    el("p", { class: "line" }, el("button", { type: "button", onclick: () => attempt(askAgain) }, "Ask again now")),
    answer, whatIf(found, signal),
    el("h2", {}, "Filters"), el("div", { id: "filters" }, funnelOf(found.candidates, found.filters)),
    el("h2", {}, "Weights"), el("div", { id: "weights" }, weightsOf(found)),
    el("h2", {}, "Hosts"), el("div", { id: "hosts" }, hostsOf(found)),
    el("h2", {}, "The request"), el("div", { id: "facts" }, factsOf(found)),
    el("h2", {}, "Where its time went"), el("div", { id: "waits" }, waitsOf(found)),
    el("details", {}, el("summary", {}, "Everything that was asked"),
      el("pre", { tabindex: "0", role: "region", "aria-label": "Everything that was asked" }, JSON.stringify(found.spec, null, 2))),
  );
  section.removeAttribute("aria-busy");
}

function weightsOf({ ranked, filters, candidates }) {
  if (!ranked.length) return el("p", {}, "No host was weighed.");
  const names = Object.keys(ranked[0].shares);
  if (!names.length) return el("p", {}, `${ranked[0].host} was the only one that passed, and so was not weighed.`);
  const passed = filters.at(-1)?.hosts_out ?? candidates;
  return table(`The first ${count(ranked.length)} of ${things(passed, "host")} that passed`, ["Host", "Total", ...names], ranked.map((each) => [
    linkTo(each.host), figure(each.total), ...names.map((name) => figure(each.shares[name])),
  ]));
}

function hostsOf({ instances, selections }) {
  if (!selections.length) return el("p", {}, "None was chosen.");
  return table("The chosen host of each instance, and its alternates", ["Instance", "Host", "Alternates"], selections.map(([chosen, ...others], at) => [
    instances[at] ?? "-", linkTo(chosen.host), others.map((each) => each.host).join(", ") || "none",
  ]));
}

function factsOf(found) {
  const facts = {
    Time: moment(found.decided_at), Request: found.request_id || "-", Operation: found.global_request_id ?? "-", Project: found.project_id ?? "-",
    Flavor: found.flavor ?? "-", Zone: found.availability_zone ?? "any", Cluster: found.cluster ?? "none", Policy: found.policy ?? "none",
    Worker: found.worker, Attempts: count(found.attempts), Error: found.error ?? "none",
  };
  return el("dl", {}, Object.entries(facts).map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
}

function waitsOf(found) {
  const rows = Object.entries(WAITS).filter(([name]) => found.waits[name] > 0).map(([name, title]) => [title, tookOf(found.waits[name])]);
  return table("Parts overlap", ["", "Time"], [["In all", tookOf(found.duration_s)], ...rows]);
}
