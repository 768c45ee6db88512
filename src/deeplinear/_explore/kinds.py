"""The two-time functions that the page can show."""

from typing import Any

from deeplinear._core.dataset import FIELDS, OF_TWO_TIMES
from deeplinear._core.refusal import Refusal

KINDS = {name: FIELDS[name].first_layer for name in OF_TWO_TIMES}
"""Two-time functions, with the number of their first layer; None where they have no layers."""


def read_kind(kind: Any) -> str:
    """Return the name of a two-time function, or refuse it."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise Refusal("kind", kind, " or ".join(KINDS))
    return kind
