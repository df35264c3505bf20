// Starts the console: the session, the pages by their paths, the navigation.

import { auditPage } from "./audit.js";
import { capacityPage } from "./capacity.js";
import { clusterPage } from "./cluster.js";
import { decisionPage } from "./decision.js";
import { decisionsPage } from "./decisions.js";
import { el } from "./dom.js";
import { fleetPage } from "./fleet.js";
import { healthPage } from "./health.js";
import { hostPage } from "./host.js";
import { Failure, whenSessionEnds } from "./http.js";
import { hideLive } from "./live.js";
import { policiesPage } from "./policies.js";
import { policyPage } from "./policy.js";
import { rehearsalPage } from "./rehearsal.js";
import { rehearsalsPage } from "./rehearsals.js";
import { clearProblems, showProblem } from "./problems.js";
import { begin, forget, logInPage, logOut, user } from "./session.js";
import { tunedHostPage } from "./tunedhost.js";
import { tuningPage } from "./tuning.js";
import { tuningPolicyPage } from "./tuningpolicy.js";

const ROOT = "/console";
const PAGES = [
  { title: "Fleet", path: /^(\/fleet)?$/, show: fleetPage, link: "/fleet" },
  { title: "Decisions", path: /^\/decisions$/, show: decisionsPage, link: "/decisions" },
  { title: "Decision", path: /^\/decisions\/([^/]+)$/, show: decisionPage, under: "Decisions" },
  { title: "Policies", path: /^\/policies$/, show: policiesPage, link: "/policies" },
  { title: "Policy", path: /^\/policies\/([^/]+)$/, show: policyPage, under: "Policies" },
  { title: "Cluster", path: /^\/clusters\/([^/]+)$/, show: clusterPage, under: "Policies" },
  { title: "Rehearsals", path: /^\/rehearsals$/, show: rehearsalsPage, link: "/rehearsals" },
  { title: "Rehearsal", path: /^\/rehearsals\/([^/]+)$/, show: rehearsalPage, under: "Rehearsals" },
  { title: "Capacity", path: /^\/capacity$/, show: capacityPage, link: "/capacity" },
  { title: "Tuning", path: /^\/tuning$/, show: tuningPage, link: "/tuning" },
  { title: "Tuning policy", path: /^\/tuning\/(?:new|policies\/([^/]+))$/, show: tuningPolicyPage, under: "Tuning" },
  { title: "Tuned host", path: /^\/tuning\/hosts\/([^/]+)$/, show: tunedHostPage, under: "Tuning" },
  { title: "Audit", path: /^\/audit$/, show: auditPage, link: "/audit" },
  { title: "Health", path: /^\/health$/, show: healthPage, link: "/health" },
  { title: "Host", path: /^\/hosts\/([^/]+)$/, show: hostPage, under: "Fleet" },
];
const main = document.getElementById("main");
let leaving = new AbortController();

/** Show the page of the current address. `why`: what the log-in page says. */
async function show(why) {
  leaving.abort();
  leaving = new AbortController();
  hideLive();
  const { signal } = leaving;
  const path = location.pathname.slice(ROOT.length).replace(/\/$/, "");
  const page = PAGES.find((each) => each.path.test(path));
  head(page);
  if (!user()) return put(logInPage(show, why), "Log in");
  if (!page) return put(el("section", {}, el("h1", {}, "There is no such page"), el("p", {}, `The console has nothing at ${path}.`)), "Not found");
  const found = el("section", { "aria-busy": "true" });
  put(found, page.title);
  try {
    await page.show(found, { argument: decodeURIComponent(path.match(page.path)[1] ?? ""), signal });
  } catch (error) {
    if (signal.aborted || error.status === 401) return;
    if (!(error instanceof Failure)) console.error(error); // a defect of this page
    showProblem(error.message);
    if (!found.hasChildNodes()) found.append(el("h1", {}, error.status === 404 ? "There is nothing here" : "This page cannot be shown"));
  } finally {
    found.removeAttribute("aria-busy");
  }
}

function put(section, title) {
  document.title = `${title} - scheduler_worker`;
  main.replaceChildren(section);
  const first = section.querySelector("[autofocus]");
  if (first) first.focus();
  else if (document.activeElement === document.body) main.focus(); // what had the focus is gone
}

function head(page) {
  const name = page?.under ?? page?.title;
  const links = PAGES.filter((each) => each.link).map((each) =>
    el("a", { href: ROOT + each.link, "aria-current": each.title === name ? "page" : null }, each.title));
  document.getElementById("pages").replaceChildren(...(user() ? links : []));
  const leave = async () => {
    await logOut().catch((error) => showProblem(error.message));
    show("You have logged out.");
  };
  document.getElementById("user").replaceChildren(...(user()
    ? [el("span", {}, user()), el("button", { type: "button", onclick: leave }, "Log out")] : []));
}

// Links within the console do not load the page anew.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || !url.pathname.startsWith(ROOT) || link.classList.contains("skip")) return;
  event.preventDefault();
  go(url.pathname + url.search);
});

function go(address) {
  history.pushState(null, "", address);
  clearProblems();
  show().then(() => {});
  main.focus();
  scrollTo(0, 0);
}

window.addEventListener("popstate", () => (clearProblems(), show()));
window.addEventListener("console:go", (event) => go(event.detail)); // as `goTo` asks

whenSessionEnds(() => {
  if (!user()) return;
  forget();
  show("Your session has ended. Log in again to go on where you were.");
});

try {
  await begin();
  await show();
} catch (error) {
  showProblem(`${error.message} Reload this page to try again.`);
}
