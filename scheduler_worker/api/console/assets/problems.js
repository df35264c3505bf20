// What went wrong, where a screen reader says it at once.

import { el, refuse } from "./dom.js";

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

/**
 * Send a form: what the API says of its fields is shown at these. `controlOf` gets the steps of the JSON pointer
 * to a field, and returns its control; what has none is shown above the page.
 */
export async function attemptForm(form, controlOf, action) {
  for (const each of form.querySelectorAll("[aria-invalid=true]")) refuse(each);
  await attempt(async () => {
    try {
      await action();
    } catch (error) {
      const wrong = (error.errors ?? []).map(({ detail, pointer }) => [controlOf(stepsOf(pointer ?? "")), detail]);
      if (!wrong.length || wrong.some(([control]) => !control)) throw error;
      for (const [control, detail] of wrong) refuse(control, detail);
      wrong[0][0].focus();
    }
  });
}

const stepsOf = (pointer) => pointer.split("/").slice(1).map((each) => each.replaceAll("~1", "/").replaceAll("~0", "~"));

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
