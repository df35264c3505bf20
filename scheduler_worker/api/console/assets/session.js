// Who uses this page, and the page on which one logs in.

import { el, field, shown } from "./dom.js";
import { authenticate, request } from "./http.js";
import { showProblem, clearProblems } from "./problems.js";

const PATH = "/console/session";
let session = { user: null, rights: [], log_in: ["password"] };

export const user = () => session.user;
export const may = (right) => session.rights.includes(right);

function accept(found) {
  session = found;
  authenticate(found.csrf_token);
}

/** Find out who is logged in, with the invitation of the address if there is one. */
export async function begin() {
  const given = new URLSearchParams(location.hash.slice(1)).get("invitation");
  accept(await request("GET", PATH));
  if (!given) return;
  history.replaceState(null, "", location.pathname + location.search);
  if (session.user) return;
  try {
    accept(await request("POST", PATH, { body: { invitation: given } }));
  } catch (error) {
    showProblem(error.message);
  }
}

export async function logOut() {
  if (session.csrf_token) await request("DELETE", PATH);
  forget();
}

/** The session has ended; the page asks for another log-in. */
export function forget() {
  authenticate(null, null);
  session = { ...session, user: null, rights: [], csrf_token: null };
}

/** The form to log in, which calls `then` afterwards. */
export function logInPage(then, why) {
  const problem = el("p", { class: "problem", role: "alert", id: "log-in-problem" });
  const run = (action) => async (event) => {
    event.preventDefault();
    clearProblems();
    problem.textContent = "";
    const button = event.target.querySelector("button");
    button.disabled = true;
    try {
      await action(new FormData(event.target));
      then();
    } catch (error) {
      problem.textContent = shown(error.message);
      event.target.querySelector("input[type=password]").select();
    } finally {
      button.disabled = false;
    }
  };
  const byPassword = run(async (form) =>
    accept(await request("POST", PATH, { body: { user: form.get("user"), password: form.get("password") } })));
  const byKeystone = run(async (form) => {
    authenticate(null, form.get("token"));
    const found = await request("GET", PATH).catch((error) => (authenticate(null, null), Promise.reject(error)));
    accept(found);
  });
  return el("section", { class: "log-in" },
    el("h1", {}, "Log in"),
    why ? el("p", { class: "note" }, why) : null,
    problem,
    session.log_in.includes("password") ? form(byPassword, "Log in",
      field("User", input({ name: "user", autocomplete: "username", autofocus: true })),
      field("Password", input({ name: "password", type: "password", autocomplete: "current-password" })),
    ) : null,
    session.log_in.includes("keystone") ? form(byKeystone, "Log in with the token",
      field("Token of Keystone", input({ name: "token", type: "password", autocomplete: "off" })),
      el("p", { class: "note" }, "openstack token issue -c id -f value prints one. It is forgotten when this page is left."),
    ) : null,
  );
}

const input = (properties) => el("input", { type: "text", required: true, ...properties });

const form = (onsubmit, verb, ...fields) => el("form", { onsubmit }, fields, el("button", { class: "primary" }, verb));
