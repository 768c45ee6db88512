"""Whether a learning rate transfers, in words: from how the optimum moves and from what it costs not to follow it.

The exponent says whether the optimum moves, and so where that of still larger models will be. The regret says what is
paid for not following it within the values at hand: where the loss is flat around its minimum a rate that moves
costs nothing to keep, and at the edge of stability one that hardly moves may cost everything. A rate transfers if it is
cheap to keep; the words say both.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.words import percent

Array = NDArray[np.float64]

STAYS = 0.1
"""Largest exponent, either way, of a rate that stays: it moves by less than 7 % when a model is doubled."""

CHEAP = 0.05
"""Largest relative extra loss that is not worth another search for the best rate."""


@dataclass(frozen=True)
class Evidence:
    """What is known of a transfer: the ends of intervals, equal where a number is exact, and jumps of the optimum."""

    exponent: tuple[float, float]
    regret: tuple[Array, Array]
    jumps: tuple[tuple[float, float], ...] = ()


def judge(over: str, values: Array, known: Evidence) -> str:
    """Say whether the best rate of the smallest value serves the others; nothing if there are none.

    Examples
    --------
    >>> regret = np.array([0.0, 0.3])
    >>> judge("width", np.array([1.0, 4.0]), Evidence((0.5, 0.5), (regret, regret)))
    'does not transfer: the best rate moves as width^0.50, and that of width 1 costs 30 % more loss at width 4'
    """
    if len(values) < 2:
        return ""
    least, most = known.regret
    unknown = np.isnan(least) | np.isnan(most)
    if unknown.any():
        return _judge_the_rest(over, values, known, unknown)
    kept = f"that of {over} {values.min():g}"
    stays, how = _movement(over, *known.exponent) if not known.jumps else (False, _jump(over, known.jumps))
    if (most <= CHEAP).all():
        word, link = ("transfers", "and") if stays else ("transfers in practice", "but")
        return f"{word}: {how}, {link} {kept} costs at most {percent(most.max())} more loss"
    is_costly = bool((least > CHEAP).any())
    at = int(np.argmax(least if is_costly else most))
    where = _named(over, values[at])
    price = f"{kept} {_price(least[at], most[at])} at {where}"
    if is_costly:
        return f"does not transfer: {how}, {'but' if stays else 'and'} {price}"
    return f"undecided: {how}, and {price}"


def _judge_the_rest(over: str, values: Array, known: Evidence, unknown: NDArray[np.bool_]) -> str:
    """Judge what is known; it decides only if that is not cheap."""
    missing = " and ".join(_named(over, value) for value in values[unknown])
    regret = (known.regret[0][~unknown], known.regret[1][~unknown])
    found = judge(over, values[~unknown], Evidence(known.exponent, regret, known.jumps))
    if found.startswith("does not transfer"):
        return f"{found}; at {missing} it is not resolved"
    return f"undecided: what the rate of {over} {values.min():g} costs at {missing} is not resolved"


def _named(over: str, value: float) -> str:
    return f"{over} {'infinite' if math.isinf(value) else f'{value:g}'}"


def _movement(over: str, low: float, high: float) -> tuple[bool, str]:
    """Return whether the optimum stays, and say how it moves."""
    if math.isnan(low):
        return False, f"how the best rate moves with {over} cannot be told"
    power = f"{over}^{low:.2f}" if low == high else f"{over}^({low:.2f} to {high:.2f})"
    if low >= -STAYS and high <= STAYS:
        return True, f"the best rate stays ({power})"
    if low > STAYS or high < -STAYS:
        return False, f"the best rate moves as {power}"
    return False, f"the best rate goes as {power}"


def _jump(over: str, jumps: tuple[tuple[float, float], ...]) -> str:
    between = ", ".join(f"{low:g} and {'infinite' if math.isinf(high) else f'{high:g}'}" for low, high in jumps)
    return f"the best rate jumps to another minimum between {over} {between}"


def _price(low: float, high: float) -> str:
    if math.isinf(low):
        return "diverges"
    if math.isinf(high):
        return f"costs {percent(low)} more loss or any amount above" if low > 0 else "may cost any amount of loss"
    if low == high:
        return f"costs {percent(low)} more loss"
    return f"costs {f'{percent(low)} to' if low > 0 else 'at most'} {percent(high)} more loss"
