// The state of the page, all of it, and how it stands in the address.

export const VIEWS = {
  loss: "Loss",
  kernel: "Tangent kernel",
  decomposition: "Decomposition",
  correlations: "Correlations",
  rates: "Learning rate",
};

// Axes on which each view is easiest to read.
export const AXES = {
  loss: { x: "linear", y: "log" },
  kernel: { x: "linear", y: "linear" },
  decomposition: { x: "linear", y: "linear" },
  correlations: { x: "linear", y: "linear" },
  rates: { x: "log", y: "log" },
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
    dim: 200,
    seeds: 8,
    trained: false,
    preset: "",
  };
}

export function toAddress(state) {
  return "#" + encodeURIComponent(JSON.stringify(state));
}

// Returns null where the address holds nothing that can be shown; what it does not say has its default.
export function fromAddress(hash, fallback) {
  if (hash.length < 2) return null;
  let read;
  try {
    read = JSON.parse(decodeURIComponent(hash.slice(1)));
  } catch {
    return null;
  }
  const isProblem = (each) => each && typeof each === "object" && ["network", "data", "sampling", "optimizer"].every((part) => each[part] && typeof each[part] === "object");
  if (!isProblem(read?.problem)) return null;
  const state = { ...fallback };
  for (const key of Object.keys(fallback)) if (key in read) state[key] = read[key];
  if (!(state.view in VIEWS)) state.view = fallback.view;
  for (const axis of ["x", "y"]) if (!["linear", "log"].includes(state[axis])) state[axis] = fallback[axis];
  state.pins = (Array.isArray(state.pins) ? state.pins : []).filter((pin) => isProblem(pin?.problem)).slice(0, MOST_PINS);
  return state;
}

export const keyOf = (problem) => JSON.stringify(problem);
