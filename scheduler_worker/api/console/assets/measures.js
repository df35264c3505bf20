// What a host can be coloured and sorted by. A share of 1 is full; null: unknown.

import { count, duration, percent, size } from "./format.js";

export const OLD_S = 120;
const AMOUNTS = ["vcpus", "memory_mb", "disk_mb"];

const share = (amount, limit) => (limit > 0 ? amount / limit : null);
const full = (name) => (fleet, at) => share(fleet[name].used[at] + fleet[name].reserved[at], fleet[name].limit[at]);

function reserved(fleet, at) {
  const shares = AMOUNTS.map((name) => share(fleet[name].reserved[at], fleet[name].limit[at]));
  return shares.every((each) => each === null) ? null : Math.max(...shares);
}

const ofAmount = (title, name, text) => ({
  title,
  of: full(name),
  text: (fleet, at) => `${percent(full(name)(fleet, at))} of ${text(fleet[name].limit[at])}`,
  ends: ["empty", "full"],
});

/** By name: title, share, text of one host, and the ends of the scale. */
export const MEASURES = {
  cpu: ofAmount("CPU", "vcpus", (vcpus) => `${count(vcpus)} vCPU`),
  memory: ofAmount("Memory", "memory_mb", size),
  disk: ofAmount("Disk", "disk_mb", size),
  reserved: {
    title: "Reserved share",
    of: reserved,
    text: (fleet, at) => percent(reserved(fleet, at)),
    ends: ["nothing reserved", "all"],
  },
  age: {
    title: "Age of report",
    of: (fleet, at) => (fleet.age_s[at] === null ? null : Math.min(1, fleet.age_s[at] / OLD_S)),
    text: (fleet, at) => (fleet.age_s[at] === null ? "never reported" : duration(fleet.age_s[at])),
    ends: ["now", `${duration(OLD_S)} or more`],
  },
  state: {
    title: "Up or down",
    of: (fleet, at) => ({ up: 0, disabled: 0.5, down: 1 })[fleet.state[at]],
    text: (fleet, at) => fleet.state[at],
    ends: ["up", "down"],
  },
};

/** Comparisons for sorting, the fullest or oldest first; equal hosts by their names. */
export function order(fleet, by) {
  const byName = (one, other) => fleet.name[one].localeCompare(fleet.name[other], "en", { numeric: true });
  if (by === "instances") return (one, other) => fleet.instances[other] - fleet.instances[one] || byName(one, other);
  const measure = MEASURES[by];
  if (!measure) return byName;
  const shares = fleet.uuid.map((_, at) => measure.of(fleet, at) ?? -1);
  return (one, other) => shares[other] - shares[one] || byName(one, other);
}
