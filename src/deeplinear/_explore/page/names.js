// What curves are called: by what tells their problems apart.

import { nameOf } from "./files.js";
import { keyOf } from "./state.js";

const MOST = 3; // traits that a name lists

// Returns a name for each problem, the same for the same; `page` describes the controls.
export function namesOf(problems, page) {
  const traits = new Map(problems.map((problem) => [keyOf(problem), traitsOf(problem, page)]));
  if (traits.size === 1) return problems.map(() => "theory");
  const all = [...traits.values()];
  const differing = [...new Set(all.flatMap((each) => [...each.keys()]))].filter((trait) => new Set(all.map((each) => each.get(trait))).size > 1);
  const names = new Map();
  const taken = new Map();
  for (const [key, own] of traits) {
    const name = differing.filter((trait) => own.has(trait)).slice(0, MOST).map((trait) => own.get(trait)).join(", ");
    taken.set(name, (taken.get(name) ?? 0) + 1);
    names.set(key, taken.get(name) > 1 ? `${name} #${taken.get(name)}` : name);
  }
  return problems.map((problem) => names.get(keyOf(problem)));
}

// All that can be said of a problem, in words: its kinds, and the value of every control that it has.
function traitsOf(problem, { parts, controls }) {
  const traits = new Map();
  for (const [part, { kinds }] of Object.entries(parts)) {
    const kind = kinds.find(([value]) => value === problem[part]?.type);
    if (kind) traits.set(part, kind[1].toLowerCase());
  }
  for (const control of controls) {
    const value = (control.part ? problem[control.part] : problem)?.[control.name];
    if (value !== undefined && control.name !== "knots") traits.set(`${control.part}.${control.name}`, inWords(control, value));
  }
  return traits;
}

function inWords({ label, choices, widget }, value) {
  if (widget === "file") return nameOf(value);
  const words = typeof value === "boolean" ? (value ? "on" : "off") : (choices.find(([choice]) => choice === value)?.[1] ?? value);
  return `${label.toLowerCase()} ${typeof words === "number" ? Number(words.toPrecision(4)) : words}`;
}
