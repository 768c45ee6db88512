// Numbers, two-time functions and lines in weight space, in words.

export const WORDS = {
  feature_correlation: "features",
  gradient_correlation: "gradients",
  error_correlation: "errors",
  residual_correlation: "residuals",
  feature_response: "response of features",
  gradient_response: "response of gradients",
  error_response: "response of errors",
  residual_response: "response of residuals",
};

export const short = (value) => (value === null || value === undefined ? "—" : Math.abs(value) >= 0.01 && Math.abs(value) < 1000 ? Number(value.toPrecision(3)).toString() : value.toExponential(1));

export const LINES = {
  line: "from the first to the last weights",
  gradient: "along the gradient",
  sharpest: "along the largest curvature",
  ema: "from the last weights to their average",
  twins: "between two runs with other batches",
};
