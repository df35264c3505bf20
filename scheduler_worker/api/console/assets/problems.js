// What went wrong, where a screen reader says it at once.

import { el } from "./dom.js";

const place = document.getElementById("problems");

export function clearProblems() {
  place.replaceChildren();
}

export function showProblem(text) {
  const close = el("button", { type: "button", "aria-label": "Dismiss", onclick: clearProblems }, "✕");
  place.replaceChildren(el("p", {}, text), close);
}

/** Run something that a user asked for, and show why it failed. Returns whether it succeeded. */
export async function attempt(action) {
  clearProblems();
  try {
    await action();
    return true;
  } catch (error) {
    if (error.status !== 401) showProblem(error.message);
    return false;
  }
}

/** Ask before something that cannot be taken back. */
export function confirmed(question, verb) {
  return new Promise((resolve) => {
    const dialog = el(
      "dialog", { "aria-labelledby": "question", onclose: () => (resolve(dialog.returnValue === "yes"), dialog.remove()) },
      el("p", { id: "question" }, question),
      el("p", { class: "buttons" },
        el("button", { type: "button", onclick: () => dialog.close("no") }, "Cancel"),
        el("button", { type: "button", class: "danger", onclick: () => dialog.close("yes") }, verb)),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}
