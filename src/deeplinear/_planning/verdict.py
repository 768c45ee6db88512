"""Whether a learning rate, or another field, transfers, in words: how the optimum moves, what it costs not to follow.

The exponent says whether the optimum moves, and so where that of still larger models will be. The regret says what is
paid for not following it within the values at hand: where the loss is flat around its minimum a rate that moves
costs nothing to keep, and at the edge of stability one that hardly moves may cost everything. A rate transfers if it is
cheap to keep; the words say both.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.words import percent

Array = NDArray[np.float64]

STAYS = 0.1
"""Largest exponent, either way, of a rate that stays: it moves by less than 7 % when a model is doubled."""

CHEAP = 0.05
"""Largest relative extra loss, above the label noise, that is not worth another search for the best rate."""


@dataclass(frozen=True)
class Evidence:
    """What is known of a transfer.

    Attributes
    ----------
    exponent, regret
        Ends of intervals, equal where a number is exact. The regret of the smallest value does not count.
    jumps
        Of the optimum to another minimum.
    bounds
        For each value ``"low"`` or ``"high"`` where the optimum is at a bound of its range, else empty; nothing where
        the range has no bounds.
    """

    exponent: tuple[float, float]
    regret: tuple[Array, Array]
    jumps: tuple[tuple[float, float], ...] = ()
    bounds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Named:
    """What is followed over what, in words.

    Attributes
    ----------
    over
        The field that is changed.
    what
        What is best: ``"rate"``, or another field.
    law
        What the power law is a law of, where that is not the same.
    loss
        What the regret is a part of.
    """

    over: str
    what: str = "rate"
    law: str = ""
    loss: str = "loss"


def judge(named: Named, values: Array, known: Evidence) -> str:
    """Say whether what is best for the smallest value serves the others; nothing if there are none.

    Examples
    --------
    >>> regret = np.array([0.0, 0.3])
    >>> judge(Named("width"), np.array([1.0, 4.0]), Evidence((0.5, 0.5), (regret, regret)))
    'does not transfer: the best rate moves as width^0.50, and that of width 1 costs 30 % more loss at width 4'
    """
    if len(values) < 2:
        return ""
    # Its own best costs the smallest value nothing: an interval there says only how well that best value is known.
    least, most = (np.where(values > values.min(), each, 0.0) for each in known.regret)
    unknown = np.isnan(least) | np.isnan(most)
    if unknown.any():
        return _judge_the_rest(named, values, replace(known, regret=(least, most)), unknown)
    kept = f"that of {named.over} {values.min():g}"
    stays, how = _how(named, values, known)
    if (most <= CHEAP).all():
        word, link = ("transfers", "and") if stays else ("transfers in practice", "but")
        return f"{word}: {how}, {link} {kept} costs at most {percent(most.max())} more {named.loss}"
    is_costly = _is_costly((least, most))
    at = int(np.argmax(least if is_costly else most))
    where = _at(named.over, values[at])
    price = f"{kept} {_price(named.loss, least[at], most[at])} at {where}"
    if is_costly:
        return f"does not transfer: {how}, {'but' if stays else 'and'} {price}"
    return f"undecided: {how}, and {price}"


def _judge_the_rest(named: Named, values: Array, known: Evidence, unknown: NDArray[np.bool_]) -> str:
    """Judge what is known; it decides only if that is not cheap."""
    missing = " and ".join(_at(named.over, value) for value in values[unknown])
    regret = (known.regret[0][~unknown], known.regret[1][~unknown])
    bounds = tuple(each for each, is_unknown in zip(known.bounds, unknown, strict=False) if not is_unknown)
    if len(values[~unknown]) > 1 and _is_costly(regret):
        found = judge(named, values[~unknown], replace(known, regret=regret, bounds=bounds))
        return f"{found}; at {missing} it is not resolved"
    return f"undecided: what the {named.what} of {named.over} {values.min():g} costs at {missing} is not resolved"


def _is_costly(regret: tuple[Array, Array]) -> bool:
    """Whether the best for the smallest value costs more than is cheap somewhere, even at the least."""
    return bool((regret[0] > CHEAP).any())


def _at(over: str, value: float) -> str:
    return f"{over} {'infinite' if math.isinf(value) else f'{value:g}'}"


def _how(named: Named, values: Array, known: Evidence) -> tuple[bool, str]:
    """Return whether the optimum stays, and say how it moves."""
    if any(known.bounds):
        return _held(named, values, known.bounds)
    if known.jumps:
        return False, _jump(named, known.jumps)
    return _movement(named, *known.exponent)


def _held(named: Named, values: Array, bounds: tuple[str, ...]) -> tuple[bool, str]:
    """Say at which values the optimum is at a bound."""
    if len(set(bounds)) == 1:
        return True, f"the best {named.what} is at its {bounds[0]} bound throughout"
    at = [
        f"its {side} bound at {named.over} "
        + ", ".join(f"{value:g}" for value, each in zip(values, bounds, strict=True) if each == side)
        for side in ("low", "high")
        if side in bounds
    ]
    return False, f"the best {named.what} is at {' and '.join(at)}"


def _movement(named: Named, low: float, high: float) -> tuple[bool, str]:
    """Return whether the optimum stays, and say how it moves."""
    what = named.law or f"the best {named.what}"
    if math.isnan(low):
        return False, f"it is not clear how the best {named.what} moves with {named.over}"
    power = f"{named.over}^{low:.2f}" if low == high else f"{named.over}^({low:.2f} to {high:.2f})"
    if low >= -STAYS and high <= STAYS:
        return True, f"{what} stays ({power})"
    if low > STAYS or high < -STAYS:
        return False, f"{what} moves as {power}"
    return False, f"{what} goes as {power}"


def _jump(named: Named, jumps: tuple[tuple[float, float], ...]) -> str:
    between = ", ".join(f"{low:g} and {'infinite' if math.isinf(high) else f'{high:g}'}" for low, high in jumps)
    return f"the best {named.what} jumps to another minimum between {named.over} {between}"


def _price(loss: str, low: float, high: float) -> str:
    if math.isinf(low):
        return "diverges"
    if math.isinf(high):
        return f"costs at least {percent(low)} more {loss}" if low > 0 else "may cost any amount of loss"
    if low == high:
        return f"costs {percent(low)} more {loss}"
    return f"costs {f'{percent(low)} to' if low > 0 else 'at most'} {percent(high)} more {loss}"
