// What became of a policy: its changes, and how any two of its versions differ.

import { choice, el, fill, table } from "./dom.js";
import { moment } from "./format.js";
import { differences, textOf } from "./policytext.js";

const DONE = { create: "created", remove: "removed", update: "changed" };

/** All changes, and buttons that `restore` one. */
export function historyTable(changes, text, canEdit, restore) {
  let last = null;
  const rows = changes.map((change) => {
    const before = last;
    last = change.policy ?? last;
    const lines = change.cluster ? [`${change.action}ed ${change.action === "attach" ? "to" : "from"} ${change.cluster}`] : change.policy && before ? differences(textOf(before), textOf(change.policy)) : [DONE[change.action]];
    const isNow = change.policy && !differences(textOf(change.policy), text).length;
    return [
      change.version === null ? "-" : String(change.version), moment(change.at), change.user, change.origin, el("ul", { class: "plain prose" }, lines.map((line) => el("li", {}, line))),
      canEdit && change.policy && !isNow ? el("button", { type: "button", "aria-label": `Restore version ${change.version}`, onclick: () => restore(change) }, "Restore") : isNow ? "as it is now" : "",
    ];
  });
  return table("Changes, the latest first", ["Version", "When", "Who", "From", "What changed", ""], rows.reverse());
}

/** Two versions to choose, by default the last two, and how they differ; nothing where there is one. */
export function comparison(changes) {
  const texts = changes.filter((each) => each.policy);
  if (texts.length < 2) return "";
  const versions = texts.map((each, at) => [String(at), `${each.version}, by ${each.user}, ${moment(each.at)}`]);
  const found = el("div", { class: "prose", role: "status", "aria-label": "Differences" });
  const form = el("form", { class: "line" },
    choice("Version", "before", String(texts.length - 2), versions),
    choice("compared with", "after", String(texts.length - 1), versions));
  const show = () => {
    const chosen = new FormData(form);
    const [before, after] = ["before", "after"].map((name) => textOf(texts[Number(chosen.get(name))].policy));
    const lines = differences(before, after);
    fill(found, lines.length ? el("ul", {}, lines.map((line) => el("li", {}, line))) : el("p", {}, "They are equal."));
  };
  form.addEventListener("change", show);
  show();
  return el("section", { id: "comparison" }, el("h3", {}, "Compare versions"), form, found);
}
