// Numbers, two-time functions and lines in weight space, in words.

const CORRELATIONS = {
  feature_correlation: "features",
  gradient_correlation: "gradients",
  error_correlation: "errors",
  residual_correlation: "residuals",
};

const RESPONSES = {
  feature_response: "features",
  gradient_response: "gradients",
  error_response: "errors",
  residual_response: "residuals",
};

export const OF_WHAT = { ...CORRELATIONS, ...RESPONSES };

export const WORDS = { ...CORRELATIONS, ...Object.fromEntries(Object.entries(RESPONSES).map(([kind, what]) => [kind, `response of ${what}`])) };

export const short = (value) => (value === null || value === undefined ? "—" : Math.abs(value) >= 0.01 && Math.abs(value) < 1e5 ? Number(value.toPrecision(3)).toString() : value.toExponential(1));

export const AVERAGES = {
  "": "none",
  "ema-0.5": "moving, 0.5",
  "ema-0.9": "moving, 0.9",
  "ema-0.99": "moving, 0.99",
  "tail-0.5": "the last half",
  "tail-1": "all so far",
};

export const LINES = {
  line: "from the first to the last weights",
  gradient: "along the gradient",
  sharpest: "along the largest curvature",
  ema: "from the last weights to their average",
  twins: "between two runs with different batches",
};
