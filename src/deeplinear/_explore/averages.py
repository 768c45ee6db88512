"""Averages of the weights that the page offers."""

from typing import Any

import deeplinear as dl
from deeplinear._core.refusal import Refusal

AVERAGES: dict[str, dl.EMA | dl.TailMean] = {
    "ema-0.5": dl.EMA(0.5),
    "ema-0.9": dl.EMA(0.9),
    "ema-0.99": dl.EMA(0.99),
    "tail-0.5": dl.TailMean(0.5),
    "tail-1": dl.TailMean(1.0),
}
"""By the names that the page has for them."""


def read_average(name: Any) -> dl.EMA | dl.TailMean | None:
    """Return the average that a request asks for, None if it asks for none.

    Examples
    --------
    >>> read_average("tail-0.5"), read_average("")
    (TailMean(part=0.5), None)
    """
    if name in (None, ""):
        return None
    if not isinstance(name, str) or name not in AVERAGES:
        raise Refusal("average", name, f"one of {', '.join(AVERAGES)}, or nothing", got=f"{name!r:.60}")
    return AVERAGES[name]
