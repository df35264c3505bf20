// Texts of policies: what one writes of them, and how two of them differ. Nothing here is shown.

export const EMPTY = { name: "", description: "", filters: [], weights: [], balance: null, selector: { unit: "NormalizedSum" }, parameters: {} };

const DEFAULTS = { position: "none", factor: 1 };

/** The part of a policy that one writes. */
export function textOf(policy) {
  const given = Object.keys(EMPTY).map((name) => [name, policy[name] ?? EMPTY[name]]);
  return structuredClone(Object.fromEntries(given));
}

/** The uses of units, as `[kind, use]`. */
export const uses = (text) => [
  ...text.filters.map((use) => ["filter", use]), ...text.weights.map((use) => ["weight", use]),
  ...(text.balance ? [["balance", text.balance]] : []), ["selector", text.selector],
];

/** The parameters that units of the policy declare, each once, with the units that do. */
export function declared(text, units) {
  const found = new Map();
  for (const [kind, use] of uses(text)) {
    const unit = units.find((each) => each.kind === kind && each.name === use.unit);
    for (const parameter of unit?.parameters ?? []) {
      const known = found.get(parameter.name) ?? { ...parameter, units: [] };
      known.units.push(use.unit);
      found.set(parameter.name, known);
    }
  }
  return [...found.values()].sort((one, other) => one.name.localeCompare(other.name));
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** Whether a value matches a parameter's regex as a whole; one that JavaScript cannot read counts. */
export function fits(value, regex) {
  try {
    return !regex || new RegExp(`^(?:${regex})$`, "u").test(value);
  } catch {
    return true; // the API checks it in any case
  }
}

/** How one text became another, as lines. */
export function differences(before, after) {
  const lines = [];
  const line = (what, from, to) => same(from, to) || lines.push(`${what}: ${show(from)} → ${show(to)}`);
  line("name", before.name, after.name);
  line("description", before.description, after.description);
  for (const [kind, list] of [["filter", "filters"], ["weight", "weights"]]) {
    const [old, now] = [byUnit(before[list]), byUnit(after[list])];
    for (const name of old.keys()) if (!now.has(name)) lines.push(`${kind} ${name} removed`);
    for (const name of now.keys()) {
      if (!old.has(name)) lines.push(`${kind} ${name} added${kind === "weight" ? `, factor ${now.get(name).factor ?? 1}` : ""}`);
      else {
        const [one, other] = [old.get(name), now.get(name)].map((use) => ({ ...DEFAULTS, ...use }));
        for (const key of new Set([...Object.keys(one), ...Object.keys(other)])) line(`${kind} ${name}, ${key}`, one[key], other[key]);
      }
    }
    const kept = (some, others) => [...some.keys()].filter((name) => others.has(name));
    if (!same(kept(old, now), kept(now, old))) lines.push(`order of ${list}: ${kept(now, old).join(", ")}`);
  }
  line("balance", before.balance?.unit ?? "none", after.balance?.unit ?? "none");
  line("selector", before.selector, after.selector);
  for (const name of new Set([...Object.keys(before.parameters), ...Object.keys(after.parameters)])) {
    line(`parameter ${name}`, before.parameters[name] ?? "not set", after.parameters[name] ?? "not set");
  }
  return lines;
}

const byUnit = (some) => new Map(some.map((use) => [use.unit, use]));
const show = (value) => (typeof value === "string" ? value || "empty" : JSON.stringify(value));
