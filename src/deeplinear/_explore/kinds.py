"""The two-time functions that the page can show."""

from typing import Any

from deeplinear._core.refusal import Refusal

KINDS = {
    "feature_correlation": 0,
    "gradient_correlation": 1,
    "error_correlation": None,
    "residual_correlation": None,
    "feature_response": 0,
    "gradient_response": 1,
    "error_response": None,
    "residual_response": None,
}
"""Two-time functions, with the number of their first layer; None where they have no layers."""


def read_kind(kind: Any) -> str:
    """Return the name of a two-time function, or refuse it."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise Refusal("kind", kind, " or ".join(KINDS))
    return kind
