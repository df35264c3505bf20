// Amounts and times as people read them.

import { now } from "./http.js";

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const UNITS = [[1024 ** 2, "TiB"], [1024, "GiB"], [1, "MiB"]];

export const count = (value) => number.format(value);

/** A number of things, such as `1 host` or `2 hosts`. */
export const things = (value, thing) => `${count(value)} ${thing}${value === 1 ? "" : "s"}`;

export const percent = (share) => (share === null ? "unknown" : `${Math.round(100 * share)} %`);

/** An amount of MiB. */
export function size(mib) {
  const [factor, unit] = UNITS.find(([least]) => Math.abs(mib) >= least) ?? UNITS.at(-1);
  return `${number.format(mib / factor)} ${unit}`;
}

/** A duration in its two largest units, such as `2 min 5 s`. */
export function duration(seconds) {
  let left = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [length, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
    const whole = Math.floor(left / length);
    if (whole || (length === 1 && !parts.length)) parts.push(`${whole} ${unit}`);
    left -= whole * length;
  }
  return parts.slice(0, 2).join(" ");
}

export const moment = (text) => (text ? new Date(text).toLocaleString() : "never");

/** How long ago a moment was. */
export const ago = (text) => (text ? `${duration((now() - new Date(text)) / 1000)} ago` : "never");
