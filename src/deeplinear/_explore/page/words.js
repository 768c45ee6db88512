// Two-time functions in words.

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
