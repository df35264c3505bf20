// One policy: its text, to be edited and checked as one types, a rehearsal of it, and its history.

import { choice, el, field, goTo, shown } from "./dom.js";
import { ask, items, request } from "./http.js";
import { comparison, historyTable } from "./policyhistory.js";
import { EMPTY, declared, fits, textOf } from "./policytext.js";
import { attempt, confirmed } from "./problems.js";
import { showRehearsal } from "./rehearsal.js";
import { beginRehearsal, whichOf } from "./rehearsals.js";
import { may } from "./session.js";

const PAUSE_MS = 300;
const NEW = "new";

export async function policyPage(section, { argument, signal }) {
  const source = argument === NEW ? new URLSearchParams(location.search).get("from") : argument;
  const path = `/v1/policies/${encodeURIComponent(argument)}`;
  const [units, found] = await Promise.all([
    items("/v1/units", { signal }),
    source ? ask("GET", `/v1/policies/${encodeURIComponent(source)}`, { signal }) : { value: { ...EMPTY, clusters: [] } },
  ]);
  const policy = found.value;
  const text = textOf(policy);
  if (argument === NEW && source) text.name = `${policy.name} copy`;
  const canEdit = argument === NEW ? may("policy:create") : may("policy:edit") && !policy.is_locked;
  const verdict = el("p", { id: "verdict", role: "status" });
  const editor = new Editor(text, units, canEdit, () => check());

  let timer = null;
  function check() {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const answer = await request("POST", `${path}/check`, { body: text, signal }).catch((error) => ({ problem: error.message }));
      verdict.textContent = answer.problem ? shown(`${answer.field ?? "policy"}: ${answer.problem}`) : "This policy can be stored.";
      verdict.className = answer.problem ? "problem" : "good";
    }, PAUSE_MS);
  }

  async function save(event) {
    event.preventDefault();
    await attempt(async () => {
      const made = argument === NEW
        ? await request("POST", "/v1/policies", { body: text })
        : await request("PUT", path, { body: text, headers: { "If-Match": found.etag } });
      goTo(`/console/policies/${encodeURIComponent(made.id)}`);
    });
  }

  async function restore(change) {
    const question = `Restore version ${change.version} of ${policy.name}? ${policy.clusters.length ? `It takes effect in ${policy.clusters.join(", ")} at once.` : ""}`;
    if (!(await confirmed(question, "Restore"))) return;
    await attempt(async () => {
      await request("PUT", path, { body: textOf(change.policy), headers: { "If-Match": found.etag } });
      goTo(location.pathname);
    });
  }

  section.replaceChildren(
    el("nav", { "aria-label": "Where this is" }, el("a", { href: "/console/policies" }, "Policies")),
    el("h1", {}, argument === NEW ? "New policy" : policy.name, policy.is_locked ? [" ", el("span", { class: "state" }, "locked")] : "", policy.is_default ? [" ", el("span", { class: "state up" }, "default")] : ""),
    argument === NEW ? "" : el("p", { class: "note" }, `Version ${policy.version}; clusters: ${policy.clusters.join(", ") || "none"}.`,
      policy.is_locked ? " It comes with the worker and stays as it is; clone it to change a copy." : ""),
    el("form", { class: "policy", onsubmit: save }, editor.element, canEdit ? [verdict, el("p", {}, el("button", { class: "primary" }, "Save"))] : ""),
  );
  if (may("rehearsal:run")) section.append(...(await rehearsalOf(text, policy.clusters[0], signal)));
  if (argument !== NEW) {
    const changes = await items(`${path}/history`, { signal });
    section.append(el("h2", {}, "History"), historyTable(changes, text, canEdit, restore), comparison(changes));
  }
}

/** The form that tries a text, as it is in the editor, on decisions of the past; and the result. */
async function rehearsalOf(text, cluster, signal) {
  const clusters = await items("/v1/clusters", { signal });
  const result = el("div", { id: "rehearsal" });
  let leaving = new AbortController();
  const begin = async (event) => {
    event.preventDefault();
    leaving.abort();
    leaving = new AbortController();
    const form = Object.fromEntries(new FormData(event.target));
    await attempt(async () => {
      const { id } = await beginRehearsal(form, { policy: text });
      await showRehearsal(result, id, { signal: AbortSignal.any([signal, leaving.signal]) });
    });
  };
  return [
    el("h2", {}, "Rehearse before you attach"),
    el("p", { class: "note" }, "Decisions of the past are made again under this policy as it is written above, stored or not."),
    el("form", { class: "line", onsubmit: begin }, whichOf(clusters.map((each) => each.name), cluster), el("button", {}, "Rehearse")),
    result,
  ];
}

/** The controls of a policy's text, which they change. */
class Editor {
  constructor(text, units, canEdit, changed) {
    Object.assign(this, { text, canEdit, changed, units });
    this.lists = { filters: el("ol", { class: "uses", "aria-label": "Filters in their order" }), weights: el("ul", { class: "uses", "aria-label": "Weights" }) };
    this.parameters = el("div", { class: "parameters" });
    this.said = el("p", { class: "for-readers", role: "status" });
    const name = el("input", { type: "text", name: "name", value: text.name, required: true, maxlength: "255" });
    const description = el("input", { type: "text", name: "description", value: text.description, maxlength: "4096" });
    name.addEventListener("input", () => ((text.name = name.value), changed()));
    description.addEventListener("input", () => ((text.description = description.value), changed()));
    this.element = el("fieldset", { disabled: !canEdit, class: "plain" },
      field("Name", name), field("Description", description),
      el("h2", {}, "Filters"), this.lists.filters, this.#adder("filter", "filters"),
      el("h2", {}, "Weights"), this.lists.weights, this.#adder("weight", "weights"),
      el("h2", {}, "Balance and selector"),
      this.#single("Balance", "balance", [["", "none"]]), this.#single("Selector", "selector", []),
      el("h2", {}, "Parameters"), this.parameters, this.said);
    this.#drawAll();
  }

  #ofKind(kind) {
    return this.units.filter((each) => each.kind === kind && each.is_enabled).map((each) => each.name).sort();
  }

  #drawAll() {
    this.#draw("filters");
    this.#draw("weights");
    this.#drawParameters();
  }

  #edited(list) {
    this.#draw(list);
    this.#drawParameters();
    this.changed();
  }

  #adder(kind, list) {
    if (!this.canEdit) return "";
    const unit = choice(`Add a ${kind}`, `add-${kind}`, "", this.#ofKind(kind).map((each) => [each, each]));
    const add = () => {
      const name = unit.querySelector("select").value;
      if (!name || this.text[list].some((each) => each.unit === name)) return;
      this.text[list].push(kind === "weight" ? { unit: name, factor: 1 } : { unit: name });
      this.#edited(list);
    };
    return el("div", { class: "line" }, unit, el("button", { type: "button", onclick: add, "aria-label": `Add this ${kind}` }, "Add"));
  }

  #single(label, name, none) {
    const chosen = this.text[name]?.unit ?? "";
    const found = choice(label, name, chosen, [...none, ...new Set([...this.#ofKind(name), ...(chosen ? [chosen] : [])])].map((each) => (Array.isArray(each) ? each : [each, each])));
    found.querySelector("select").addEventListener("input", (event) => {
      this.text[name] = event.target.value ? { unit: event.target.value } : null;
      this.#drawParameters();
      this.changed();
    });
    return found;
  }

  #draw(list) {
    const lines = this.text[list].map((use, at) => this.#line(list, use, at));
    this.lists[list].replaceChildren(...(lines.length ? lines : [el("li", { class: "note" }, "none")]));
  }

  #line(list, use, at) {
    const last = this.text[list].length - 1;
    const button = (verb, sign, to, isOff) => el("button", {
      type: "button", id: `${list}-${verb}-${use.unit}`, "aria-label": `${verb} ${use.unit}`, disabled: isOff, onclick: () => this.#move(list, at, to),
    }, sign);
    const remove = () => (this.text[list].splice(at, 1), this.#edited(list));
    const orderable = list === "filters" && this.canEdit;
    const found = el("li", { draggable: orderable ? "true" : null, data: { unit: use.unit } },
      el("span", { class: "name" }, use.unit),
      list === "filters" ? this.#position(use) : this.#factor(use),
      orderable ? [button("Up", "↑", at - 1, at === 0), button("Down", "↓", at + 1, at === last)] : "",
      this.canEdit ? el("button", { type: "button", "aria-label": `Remove ${use.unit}`, onclick: remove }, "✕") : "");
    if (orderable) this.#draggable(found, list, at);
    return found;
  }

  #draggable(line, list, at) {
    line.addEventListener("dragstart", (event) => event.dataTransfer.setData("text/plain", String(at)));
    line.addEventListener("dragover", (event) => event.preventDefault());
    line.addEventListener("drop", (event) => {
      event.preventDefault();
      const from = Number(event.dataTransfer.getData("text/plain"));
      if (Number.isInteger(from) && from !== at) this.#move(list, from, at);
    });
  }

  #move(list, from, to) {
    const [moved] = this.text[list].splice(from, 1);
    this.text[list].splice(to, 0, moved);
    const focused = document.activeElement?.id;
    this.#edited(list);
    this.said.textContent = shown(`${moved.unit} is now ${to + 1} of ${this.text[list].length}`);
    const again = document.getElementById(focused);
    (again?.disabled ? again.parentElement.querySelector("button:not(:disabled)") : again)?.focus();
  }

  #position(use) {
    const found = el("select", { "aria-label": `When ${use.unit} is asked` }, [["none", "in this order"], ["first", "first"], ["last", "last"]].map(([value, title]) =>
      el("option", { value, selected: (use.position ?? "none") === value }, title)));
    found.addEventListener("input", () => ((use.position = found.value), this.changed()));
    return found;
  }

  #factor(use) {
    const isCost = this.units.find((each) => each.kind === "weight" && each.name === use.unit)?.is_cost;
    const found = el("input", { type: "number", step: "any", min: isCost ? "0" : null, value: String(use.factor ?? 1), "aria-label": `Factor of ${use.unit}` });
    found.addEventListener("input", () => {
      if (found.value === "" || Number.isNaN(found.valueAsNumber)) return;
      use.factor = found.valueAsNumber;
      this.changed();
    });
    return found;
  }

  #drawParameters() {
    const known = declared(this.text, this.units);
    const lines = known.map((parameter) => this.#parameter(parameter));
    const unknown = Object.keys(this.text.parameters).filter((name) => !known.some((each) => each.name === name));
    for (const name of unknown) {
      const drop = () => (delete this.text.parameters[name], this.#drawParameters(), this.changed());
      lines.push(el("p", { class: "problem" }, `No unit declares ${name}. `, this.canEdit ? el("button", { type: "button", onclick: drop }, `Remove ${name}`) : ""));
    }
    this.parameters.replaceChildren(...(lines.length ? lines : [el("p", { class: "note" }, "No unit of this policy has any.")]));
  }

  #parameter(parameter) {
    const problem = el("span", { class: "problem", id: `problem-${parameter.name}` });
    const control = el("input", { type: "text", name: `parameter-${parameter.name}`, value: this.text.parameters[parameter.name] ?? "", placeholder: parameter.default, "aria-describedby": problem.id });
    const look = () => {
      const isWrong = control.value !== "" && !fits(control.value, parameter.regex);
      control.setAttribute("aria-invalid", String(isWrong));
      problem.textContent = isWrong ? `must match ${parameter.regex}` : "";
    };
    control.addEventListener("input", () => {
      if (control.value === "") delete this.text.parameters[parameter.name];
      else this.text.parameters[parameter.name] = control.value;
      look();
      this.changed();
    });
    look();
    const found = field(parameter.name, control);
    found.append(el("span", { class: "note" }, `${parameter.type}, of ${parameter.units.join(", ")}`), problem);
    return found;
  }
}
