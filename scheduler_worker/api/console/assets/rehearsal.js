// One rehearsal: how far it is, and what came of it; on a page of its own and below a draft.

import { choice, el, fill, table } from "./dom.js";
import { count, moment, things } from "./format.js";
import { request } from "./http.js";
import { hideLive, keepLive } from "./live.js";
import { attempt } from "./problems.js";
import { may } from "./session.js";

const EVERY_MS = 1000;
const SHOWN = 50;
const RUNNING = ["reading", "deciding"];
const AMOUNTS = { vcpus: "vCPUs", memory_mb: "memory", disk_mb: "disk" };
const CHANGES = { refused: "would be refused", placed: "would be placed", moved: "would go elsewhere" };

export async function rehearsalPage(section, { argument, signal }) {
  const heading = el("h1", {}, "Rehearsal");
  const shown = el("div", {});
  await showRehearsal(shown, argument, {
    signal,
    begun: () => {
      section.append(el("nav", { "aria-label": "Where this is" }, el("a", { href: "/console/rehearsals" }, "Rehearsals")), heading, shown);
      section.removeAttribute("aria-busy");
    },
    removed: () => fill(shown, el("p", {}, "It was removed.")),
  });
}

/** Show a rehearsal in an element until it has ended; `begun` is called before it is first drawn. */
export async function showRehearsal(element, id, { signal, begun = () => {}, removed = () => element.replaceChildren() }) {
  const path = `/v1/rehearsals/${encodeURIComponent(id)}`;
  const ended = new AbortController();
  let isFirst = true;
  async function remove(isRunning) {
    if (!isRunning) ended.abort();
    const isDone = await attempt(() => request("DELETE", path));
    if (isDone && !isRunning) removed();
  }
  await keepLive(async (options) => {
    const found = await request("GET", path, options);
    if (isFirst) begun();
    isFirst = false;
    const isRunning = RUNNING.includes(found.state);
    fill(element, headOf(found), isRunning ? progressOf(found) : null, buttonsOf(found, isRunning, remove));
    if (found.result) element.append(...resultOf(found.result));
    if (isRunning) return;
    ended.abort();
    hideLive();
  }, { everyMs: EVERY_MS, signal: AbortSignal.any([signal, ended.signal]) });
}

/** What is tried, of which decisions. */
export function described(found) {
  const tried = [
    found.policy === null ? "the policies in force" : `the policy ${found.policy}`,
    found.drained.length ? `without ${found.drained.join(", ")}` : "",
    found.added.length ? `with ${found.added.join(", ")} added` : "",
  ].filter(Boolean).join(", ");
  const whose = [found.cluster ? `of cluster ${found.cluster}` : "of all clusters", found.project ? `of project ${found.project}` : ""].filter(Boolean).join(", ");
  return `Decisions ${whose} from ${moment(found.since)} to ${moment(found.until)}, made again under ${tried}.`;
}

/** How far it is, or how it ended. */
export function stateOf({ state, problem }) {
  return { failed: `failed: ${problem}`, cancelled: problem, reading: "reading decisions" }[state] ?? state;
}

function headOf(found) {
  return [
    el("p", {}, described(found)),
    el("p", { id: "rehearsal-state", role: "status", class: found.state === "failed" ? "problem" : null },
      `Begun ${moment(found.begun_at)} by ${found.user}: ${stateOf(found)}`),
  ];
}

function progressOf({ state, read, done, total }) {
  const text = state === "reading" ? `${things(read, "decision")} read` : total ? `${count(done)} of ${things(total, "decision")}` : "Preparing the hosts";
  return el("p", {}, el("progress", { max: total || null, value: total ? done : null, "aria-label": "Progress" }), " ", text);
}

function buttonsOf(found, isRunning, remove) {
  if (!may("rehearsal:run")) return null;
  return el("p", {}, el("button", { type: "button", id: isRunning ? "cancel-rehearsal" : "remove-rehearsal", onclick: () => remove(isRunning) }, isRunning ? "Cancel" : "Remove this result"));
}

function resultOf(result) {
  const { counts } = result;
  const sentence = `Of ${things(result.rehearsed, "decision")} ${count(counts.same)} come out the same; ${Object.entries(CHANGES)
    .map(([change, said]) => `${count(counts[change])} ${said}`).join(", ")}.`;
  return [
    el("p", { class: "sentence", id: "rehearsal-result" }, sentence),
    table("Requests", ["", "As it was", "Rehearsed"], [
      ["Placed", count(result.placed.before), count(result.placed.after)],
      ["Refused", count(result.refused.before), count(result.refused.after)],
    ]),
    leftOutOf(result), ...packingOf(result.packing), changesOf(result),
  ].filter(Boolean);
}

function leftOutOf({ left_out: leftOut }) {
  const lines = Object.entries(leftOut).map(([why, number]) => el("li", {}, `${things(number, "decision")} left out: ${why}`));
  return lines.length ? el("ul", {}, lines) : null;
}

function packingOf({ before, after }) {
  const rows = before.flatMap((was, at) => Object.keys(AMOUNTS).filter((amount) => was.use[amount] && after[at]?.use[amount]).map((amount) => {
    const [old, now] = [was.use[amount], after[at].use[amount]];
    return [was.cluster, `${count(was.unused)} → ${count(after[at].unused)} of ${count(was.hosts)}`, AMOUNTS[amount],
      `${count(old.mean)} % → ${count(now.mean)} %`, `${count(old.deviation)} → ${count(now.deviation)}`];
  }));
  return rows.length ? [table("How full the hosts are: now, and as rehearsed", ["Cluster", "Hosts without use", "Of", "Used", "Deviation between hosts"], rows)] : [];
}

function changesOf({ changes, counts }) {
  if (!changes.length) return el("p", {}, "No decision changes.");
  const list = el("div", {});
  const some = choice("Changes", "change", "", [["", "all"], ...Object.entries(CHANGES)]);
  const more = el("button", { type: "button", onclick: () => ((shown += 4 * SHOWN), draw()) }, "Show more");
  let shown = SHOWN;
  function draw() {
    const wanted = some.querySelector("select").value;
    const rows = changes.filter((each) => !wanted || each.change === wanted);
    const all = Object.entries(counts).reduce((sum, [change, number]) => sum + (change !== "same" && (!wanted || change === wanted) ? number : 0), 0);
    const caption = rows.length < all ? `The first ${count(rows.length)} of ${things(all, "change")}` : things(all, "change");
    list.replaceChildren(table(caption, ["Instances", "Flavor", "Was", "Would be"], rows.slice(0, shown).map(rowOf)));
    more.hidden = rows.length <= shown;
  }
  some.addEventListener("change", () => ((shown = SHOWN), draw()));
  draw();
  return el("div", { id: "rehearsal-changes" }, el("h2", {}, "What changes"), el("div", { class: "controls" }, some), list, more);
}

const rowOf = (each) => [
  el("a", { href: `/console/decisions/${encodeURIComponent(each.id)}` }, each.instances.join(", ")),
  each.flavor ?? "-", each.hosts_before.join(", ") || "refused", each.hosts.join(", ") || el("span", { class: "prose" }, each.reason ?? "refused"),
];
