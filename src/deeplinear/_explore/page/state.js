// The state of the page, all of it, and how it stands in the address.

import { AVERAGES, LINES, WORDS } from "./words.js";

export const VIEWS = {
  loss: "Loss",
  kernel: "Kernel",
  decomposition: "Decomposition",
  correlations: "Correlations",
  rates: "Learning rate",
  sharpness: "Sharpness",
  landscape: "Landscape",
  weights: "Weights",
  schedule: "Schedule",
  plan: "Budget",
};

// Views of one curve: what is pinned is not drawn there.
export const ALONE = new Set(["decomposition", "correlations", "weights", "plan"]);

// Axes on which each view is easiest to read.
export const AXES = {
  loss: { x: "linear", y: "log" },
  kernel: { x: "linear", y: "linear" },
  decomposition: { x: "linear", y: "linear" },
  correlations: { x: "linear", y: "linear" },
  rates: { x: "log", y: "log" },
  sharpness: { x: "linear", y: "linear" },
  landscape: { x: "linear", y: "log" },
  weights: { x: "linear", y: "linear" },
  schedule: { x: "linear", y: "log" },
  plan: { x: "log", y: "log" },
};

export const MOST_PINS = 8;

export function initialState(problem) {
  return {
    problem,
    view: "loss",
    x: "linear",
    y: "log",
    train: true,
    pins: [],
    kind: "feature_correlation",
    layer: null,
    relative: true,
    along: "line",
    average: "",
    budget: 0.6,
    dim: 200,
    seeds: 8,
    trained: false,
    preset: "",
  };
}

export function toAddress(state) {
  return "#" + encodeURIComponent(JSON.stringify(state));
}

// What the parts of a state may be, beside the problem and the pinned ones; others have their default.
const isAxis = (value) => value === "linear" || value === "log";
const isFlag = (value) => typeof value === "boolean";
const isText = (value) => typeof value === "string" && value.length < 100;
const isSize = (value) => Number.isInteger(value) || isText(value); // also what somebody is still typing
const ALLOWED = {
  view: (value) => isText(value) && Object.hasOwn(VIEWS, value),
  x: isAxis,
  y: isAxis,
  train: isFlag,
  kind: (value) => isText(value) && Object.hasOwn(WORDS, value),
  layer: (value) => value === null || Number.isSafeInteger(value),
  relative: isFlag,
  along: (value) => isText(value) && Object.hasOwn(LINES, value),
  average: (value) => isText(value) && Object.hasOwn(AVERAGES, value),
  budget: (value) => typeof value === "number" && value >= 0 && value <= 1,
  dim: isSize,
  seeds: isSize,
  trained: isFlag,
  preset: isText,
};

// Returns null where the address holds nothing that can be shown; what it does not say has its default.
export function fromAddress(hash, fallback) {
  if (hash.length < 2) return null;
  let read;
  try {
    read = JSON.parse(decodeURIComponent(hash.slice(1)));
  } catch {
    return null;
  }
  const isObject = (each) => Boolean(each) && typeof each === "object";
  const isProblem = (each) => isObject(each) && ["network", "data", "sampling", "optimizer"].every((part) => Object.hasOwn(each, part) && isObject(each[part]));
  if (!isProblem(read?.problem)) return null;
  const state = { ...fallback, problem: read.problem };
  for (const [key, isAllowed] of Object.entries(ALLOWED)) if (Object.hasOwn(read, key) && isAllowed(read[key])) state[key] = read[key];
  state.pins = (Array.isArray(read.pins) ? read.pins : []).filter((pin) => isProblem(pin?.problem)).slice(0, MOST_PINS);
  return state;
}

export const keyOf = (problem) => JSON.stringify(problem);
