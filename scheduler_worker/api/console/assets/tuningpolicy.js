// A tuning policy: its text, and for those who may edit it a way to set another one.

import { el, field, fill, goTo } from "./dom.js";
import { things } from "./format.js";
import { Failure, ask, request } from "./http.js";
import { placesOf } from "./places.js";
import { attempt, confirmed } from "./problems.js";
import { may, user } from "./session.js";
import { addressOfPolicy, originOf } from "./tuning.js";

const NEW = { value: { name: "", text: "scope: VM\nrules:\n", origin: "set", file: null }, etag: null };
const drafts = new Map(); // what is not saved yet, by user and policy, until this page is loaded anew
const pathOf = (name) => `/v1/tuning-policies/${encodeURIComponent(name)}`;

export async function tuningPolicyPage(section, { argument, signal }) {
  let now = argument ? await ask("GET", pathOf(argument), { signal }) : NEW;
  const head = el("div", {});
  const nav = el("nav", { "aria-label": "Where this is" }, el("a", { href: "/console/tuning" }, "Tuning"));
  if (!may("tuning:edit")) {
    fill(head, headOf(now.value));
    section.append(nav, head, textOf(now.value.text, "Text"));
    return;
  }

  const name = el("input", { type: "text", name: "name", required: true, maxlength: "64", pattern: "[A-Za-z0-9][A-Za-z0-9_.\\-]*", title: "letters, digits, and _.-" });
  const text = el("textarea", { name: "text", class: "code", rows: "24", spellcheck: "false", required: true });
  const said = el("p", { id: "said", class: "good", role: "status" });
  const issues = el("div", { id: "issues", role: "alert" });
  const other = el("div", { id: "other" });
  const withdraw = el("button", { type: "button", class: "danger", onclick: () => attempt(takeBack) }, "Withdraw");
  const key = JSON.stringify([user(), argument]);
  const draft = drafts.get(key);
  text.value = draft?.text ?? now.value.text;
  name.value = draft?.name ?? "";
  if (draft) {
    now = { ...now, etag: draft.etag }; // what another has changed meanwhile is noticed
    fill(said, "This is your text, which is not saved yet. Reload the page to discard it.");
  }
  for (const each of [name, text]) {
    each.addEventListener("input", () => drafts.set(key, { name: name.value, text: text.value, etag: now.etag }));
  }

  function draw() {
    fill(head, headOf(now.value));
    withdraw.hidden = !now.etag || now.value.origin !== "set";
  }

  async function save(event) {
    event.preventDefault();
    for (const each of [said, issues]) fill(each);
    const wanted = argument || name.value;
    const isSaved = await attempt(() => put(wanted));
    if (!isSaved) return;
    drafts.delete(key);
    if (!argument) return goTo(addressOfPolicy(wanted));
    fill(other);
    fill(said, "Saved. It is in force in all workers from their next cycle on.");
    draw();
  }

  async function put(wanted) {
    const headers = now.etag ? { "If-Match": now.etag } : { "If-None-Match": "*" };
    try {
      now = await ask("PUT", pathOf(wanted), { body: { text: text.value }, headers });
    } catch (error) {
      const found = (error.errors ?? []).filter((each) => each.line);
      if (found.length) {
        fill(issues, issuesOf(found, text));
        throw new Failure(error.status, `Nothing is saved: the text has ${things(found.length, "issue")}, which are listed below it.`);
      }
      if (error.status === 412) await showOther(wanted);
      throw error;
    }
  }

  /** What another has made of it meanwhile; to save once more replaces this. */
  async function showOther(wanted) {
    now = await ask("GET", pathOf(wanted)).catch((error) => (error.status === 404 ? { ...now, etag: null } : Promise.reject(error)));
    fill(other, el("h2", {}, "Changed meanwhile"), el("p", {}, now.etag
      ? "This is its text now. Yours is still above: Save once more replaces this one with yours."
      : "It was withdrawn. Save once more sets it again, with your text."),
    now.etag ? textOf(now.value.text, "Its text now") : null);
    draw();
  }

  async function takeBack() {
    if (!(await confirmed(`Withdraw the tuning policy ${argument}? If there is a file with this name, its policy is in force again.`, "Withdraw"))) return;
    await request("DELETE", pathOf(argument), { headers: { "If-Match": now.etag } });
    drafts.delete(key);
    goTo("/console/tuning");
  }

  draw();
  section.append(nav, head, el("form", { class: "policy", onsubmit: save },
    argument ? null : field("Name", name), field("Text", text), said, issues,
    el("p", { class: "line" }, el("button", { class: "primary" }, "Save"), withdraw)), other);
}

function headOf(policy) {
  const note = policy.origin === "set"
    ? "Set over REST or RPC; it is in force in all workers, in place of a file with this name."
    : `From the file ${policy.file}, as this API process reads it. A text that is set takes its place in all workers; the file stays as it is.`;
  return policy.name
    ? [el("h1", {}, policy.name, policy.origin === "set" ? [" ", originOf(policy)] : ""), el("p", { class: "note" }, note)]
    : el("h1", {}, "New tuning policy");
}

const textOf = (text, label) => el("pre", { class: "code", tabindex: "0", role: "region", "aria-label": label }, text);

/** The issues that the API found, with the way to the place of each in the text. */
function issuesOf(errors, text) {
  const lines = text.value.split("\n");
  const go = ({ line, column }) => {
    const at = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + [...(lines[line - 1] ?? "")].slice(0, column - 1).join("").length;
    text.focus();
    text.setSelectionRange(at, at);
  };
  const shown = errors.map((each) => ({ ...each, message: each.detail, text: lines[each.line - 1] }));
  return placesOf(shown, (each) => el("button", { type: "button", onclick: () => go(each) }, `Line ${each.line}, column ${each.column}`));
}
