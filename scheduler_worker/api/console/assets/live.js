// Pages that stay up to date: ask again and again, and keep what is shown while nobody answers.

const LONGEST_WAIT_MS = 15000;
const status = document.getElementById("live");

function say(text, state) {
  if (status.textContent !== text) status.textContent = text;
  status.dataset.state = state;
}

export function hideLive() {
  say("", "off");
}

/**
 * Call `load` now and every `everyMs`, until the signal aborts; a hidden page waits. A load that
 * fails for want of an answer is tried again ever more slowly; what the API refuses is raised.
 */
export async function keepLive(load, { everyMs, signal }) {
  let failures = 0;
  let isFirst = true;
  while (!signal.aborted) {
    const beganMs = performance.now();
    try {
      await load({ refresh: !isFirst, signal });
      isFirst = false;
      failures = 0;
      if (!signal.aborted) say("Live", "live");
    } catch (error) {
      if (signal.aborted || error.name === "AbortError") return;
      if (![0, 429, 500, 502, 503, 504].includes(error.status)) throw error;
      failures += 1;
      say(`Reconnecting: ${error.message}`, "reconnecting");
    }
    // A large fleet takes its time: a page never asks for more than a tenth of the API's.
    const restMs = Math.max(everyMs, 10 * (performance.now() - beganMs));
    await pause(failures ? Math.min(500 * 2 ** failures, LONGEST_WAIT_MS) : restMs, signal);
    await visible(signal);
  }
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
    window.addEventListener("online", resolve, { once: true, signal });
  });
}

function visible(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true, signal });
    signal.addEventListener("abort", resolve, { once: true });
  });
}
