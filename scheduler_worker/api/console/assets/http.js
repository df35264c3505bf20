// Requests to the API that serves this page. A change carries the session's token.

/** Raised for an answer that is no success; `status` 0: there was no answer at all. */
export class Failure extends Error {
  constructor(status, detail, errors = []) {
    super(detail);
    this.status = status;
    this.errors = errors;
  }
}

let csrfToken = null;
let keystoneToken = null;
let onSessionEnd = () => {};
let aheadMs = 0;

/** Milliseconds of the epoch by the API's clock, which this machine's may differ from. */
export const now = () => Date.now() + aheadMs;

/** What requests carry from now on; a token of Keystone is kept in this page alone. */
export function authenticate(csrf, keystone = keystoneToken) {
  csrfToken = csrf;
  keystoneToken = keystone;
}

export function whenSessionEnds(callback) {
  onSessionEnd = callback;
}

/** The answer's JSON, or null; see `ask`. */
export const request = async (method, path, options) => (await ask(method, path, options)).value;

/** The answer's JSON, or null, and its ETag. `refresh`: made by a timer, so it does not keep a session alive. */
export async function ask(method, path, { body, refresh = false, headers = {}, signal } = {}) {
  const sent = { "Console-Activity": refresh ? "refresh" : "user", Accept: "application/json", ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (csrfToken && method !== "GET") sent["X-CSRF-Token"] = csrfToken;
  if (keystoneToken) sent["X-Auth-Token"] = keystoneToken;
  const found = await answer(method, path, {
    method, headers: sent, signal, credentials: "same-origin", redirect: "error",
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const date = Date.parse(found.headers.get("Date") ?? "");
  if (!Number.isNaN(date) && Math.abs(date - now()) > 2000) aheadMs = date - Date.now();
  const type = found.headers.get("Content-Type") ?? "";
  const value = type.includes("json") ? await found.json() : null;
  if (found.ok) return { value, etag: found.headers.get("ETag") };
  const failure = new Failure(found.status, value?.detail ?? found.statusText, value?.errors);
  if (found.status === 401 && path !== "/console/session") onSessionEnd(failure);
  throw failure;
}

async function answer(method, path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "The API does not answer.");
  }
}

/** All items of a list, page by page, `limit` of them at the most. */
export async function items(path, options = {}, limit = 10000) {
  const found = [];
  for (let next = path; next && found.length < limit; ) {
    const page = await request("GET", next, options);
    found.push(...page.items);
    next = page.next;
  }
  return found;
}
