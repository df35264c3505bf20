// Health: what is wrong and how to fix it, the workers, the clusters' queues and locks, the last minutes.

import { stateOf } from "./bars.js";
import { tookOf } from "./decisions.js";
import { el, fill, shown, table } from "./dom.js";
import { count, duration, things } from "./format.js";
import { items, request } from "./http.js";
import { keepLive } from "./live.js";

const EVERY_MS = 3000;

export async function healthPage(section, { signal }) {
  const summary = el("p", { id: "summary", class: "sentence", role: "status" });
  const parts = Object.fromEntries(["findings", "workers", "clusters", "feed", "requests", "errors"].map((name) => [name, el("div", { id: name })]));

  await keepLive(async (options) => {
    const [health, workers] = await Promise.all([request("GET", "/v1/health", options), workersOf(options)]);
    if (signal.aborted) return;
    if (!section.hasChildNodes()) section.append(el("h1", {}, "Health"), summary, ...Object.values(parts));
    const text = shown(sentenceOf(health));
    if (summary.textContent !== text) summary.textContent = text; // it is read out whenever it changes
    summary.classList.toggle("good", health.status === "ok");
    fill(parts.findings, findingsOf(health));
    fill(parts.workers, el("h2", {}, "Workers"), workersTable(workers, health));
    fill(parts.clusters, el("h2", {}, "Clusters"), clustersTable(health));
    fill(parts.feed, feedOf(health));
    const isKnown = health.requests !== null; // null while the shared state is away
    fill(parts.requests, isKnown ? [el("h2", {}, "Requests"), requestsTable(health, workers)] : null);
    fill(parts.errors, isKnown ? [el("h2", {}, "Errors"), errorsOf(health, workers)] : null);
    section.removeAttribute("aria-busy");
  }, { everyMs: EVERY_MS, signal });
}

/** None while the shared state is away, of which the findings tell. */
async function workersOf(options) {
  try {
    return await items("/v1/workers", options);
  } catch (error) {
    if (error.status === 503) return [];
    throw error;
  }
}

function sentenceOf({ status, findings, workers, serving }) {
  const verdict = status === "ok" ? "All is well" : `${things(findings.length, "thing")} to fix`;
  const served = workers === null ? "The workers are not known" : `${things(workers, "worker")}, ${count(serving)} serving`;
  return `${verdict}. ${served}.`;
}

const findingsOf = ({ findings }) => (findings.length ? el("ul", { class: "plain findings" }, findings.map((each) =>
  el("li", {},
    el("p", {}, stateOf(each.status), " ", el("strong", {}, each.check), `: ${each.message}`),
    each.fix ? el("p", { class: "note" }, `To fix it: ${each.fix}`) : null))) : null);

function workersTable(workers, health) {
  if (!workers.length) return el("p", {}, health.workers === null ? "They are not known." : "There is none.");
  const columns = ["Worker", "State", "Version", "Up for", "Last news", "Waits in the topic's queue", "Running", "Waiting", "Holds"];
  return table("As each reported last", columns, workers.map((each) => [
    each.name, stateOf(each.state), each.version, ...figuresOf(each),
  ]));
}

function figuresOf({ age_s, report }) {
  if (!report) return Array(6).fill("-");
  const running = report.slots === null ? count(report.running) : `${count(report.running)} of ${things(report.slots, "slot")}`;
  return [
    duration(report.uptime_s), newsOf(age_s), report.lag_s === null ? "-" : tookOf(report.lag_s), running, waitingOf(report),
    el("span", { class: "prose" }, holdsOf(report.holds) || "nothing"),
  ];
}

const newsOf = (age_s) => (age_s > 20 ? el("span", { class: "bad" }, `no news for ${duration(age_s)}`) : `${duration(age_s)} ago`);

function waitingOf({ waiting, waiting_for_pending, waiting_for_feed }) {
  const others = [[waiting_for_pending, "for reservations"], [waiting_for_feed, "for Nova"]].filter(([number]) => number);
  return [count(waiting), ...others.map(([number, why]) => `${count(number)} ${why}`)].join(", ");
}

function holdsOf({ leases, feed, tuning, balancing }) {
  const some = (what, names) => (names.length ? [`${what} ${names.join(", ")}`] : []);
  return [...some("the lock of", leases), ...(feed ? ["the feed"] : []), ...some("tuning of", tuning), ...some("balancing of", balancing)].join("; ");
}

function clustersTable({ clusters }) {
  if (!clusters.length) return el("p", {}, "No worker has reported any.");
  const columns = ["Cluster", "In line", "The first waits", "For reservations", "Reservations", "Lock held by", "Grants", "Wait, median", "99 %", "Hold, median", "99 %"];
  return table("Queues and locks", columns, clusters.map((each) => [
    each.cluster, count(each.in_line), each.in_line ? tookOf(each.oldest_s) : "-", count(each.waiting_for_pending), count(each.reservations),
    each.holder ? `${each.holder}, for ${tookOf(each.held_s)}` : "nobody", count(each.lock_wait.count), ...timesOf(each.lock_wait), ...timesOf(each.lock_hold),
  ]));
}

const timesOf = ({ median_s, p99_s }) => [median_s, p99_s].map((each) => (each === null ? "-" : tookOf(each)));

function feedOf({ feed }) {
  const cells = Object.entries(feed);
  if (!cells.length) return null;
  return [el("h2", {}, "Cells"), table("Read from Nova's databases", ["Cell", "State", "Hosts", "Not all known since"], cells.map(([name, each]) => [
    name, stateOf(each.is_up ? "up" : "down"), count(each.hosts), each.lag_s === null ? "the beginning" : tookOf(each.lag_s),
  ]))];
}

function requestsTable({ requests }, workers) {
  const line = (name, each) => [
    name, count(each.placed), count(each.refused), count(each.failed), ...timesOf(each.duration), ...timesOf(each.lock_wait), ...timesOf(each.lock_hold),
  ];
  const columns = ["Worker", "Placed", "Refused", "Failed", "Took, median", "99 %", "Lock wait, median", "99 %", "Lock hold, median", "99 %"];
  const rows = workers.filter((each) => each.report).map((each) => line(each.name, each.report.requests));
  return table(`The last ${duration(requests.over_s)}`, columns, [line("All", requests), ...rows]);
}

function errorsOf({ requests }, workers) {
  const errors = Object.entries(requests.errors);
  if (!errors.length) return el("p", {}, `None in the last ${duration(requests.over_s)}.`);
  const from = (what) => workers.map((each) => [each.name, each.report?.requests.errors[what]]).filter(([, number]) => number);
  return table(`In the last ${duration(requests.over_s)}`, ["What", "How often", "Workers"], errors.map(([what, number]) => [
    what, count(number), from(what).map(([name, its]) => `${name} ${count(its)}`).join(", "),
  ]));
}
