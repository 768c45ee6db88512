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

LEAST_RANGE = 1.1
"""Ratio of the largest to the least optimum, beyond what the exponent explains, up to which they count as one."""

CHEAP = 0.05
"""Largest relative extra loss, above the label noise, that is not worth another search for the best rate."""

NOTHING = 1e-3
"""Extra loss, as a part of all the loss, that is none."""

_NOISY = 0.1
"""Part of the least loss that is label noise from which on it is said what is lost above it."""

_MANY = 10.0
"""Extra loss, in units of the least, from which on a factor is said."""


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
    range
        Ratio of the largest to the least optimum, of what power laws are laws of; 1 where it is not known.
    losses
        Loss of each value with what is best for the smallest one, and with its own best, label noise and all; None
        where they are not known.
    label_noise
        The part of these that nothing can lower.
    """

    exponent: tuple[float, float]
    regret: tuple[Array, Array]
    jumps: tuple[tuple[float, float], ...] = ()
    bounds: tuple[str, ...] = ()
    range: float = 1.0
    losses: tuple[Array, Array] | None = None
    label_noise: float = 0.0

    def of(self, chosen: NDArray[np.bool_]) -> "Evidence":
        """Return what is known of some of the values."""
        return replace(
            self,
            regret=(self.regret[0][chosen], self.regret[1][chosen]),
            bounds=tuple(each for each, is_chosen in zip(self.bounds, chosen, strict=False) if is_chosen),
            losses=None if self.losses is None else (self.losses[0][chosen], self.losses[1][chosen]),
        )


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
    known = replace(known, regret=(least, most))
    unknown = np.isnan(least) | np.isnan(most)
    if unknown.any():
        return _judge_the_rest(named, values, known, unknown)
    matters = _matters(known)
    kept = f"that of {_at(named.over, values.min())}"
    stays, how = _how(named, values, known)
    if (most[matters] <= CHEAP).all():
        word, link = ("transfers", "and") if stays else ("transfers in practice", "but")
        return f"{word}: {how}, {link} {kept} {_little(named, known)}"
    is_costly = bool((least[matters] > CHEAP).any())
    at = int(np.argmax(np.where(matters, least if is_costly else most, -np.inf)))
    price = f"{kept} {_price(named, known, at)} at {_at(named.over, values[at])}"
    if is_costly:
        return f"does not transfer: {how}, {'but' if stays else 'and'} {price}"
    return f"undecided: {how}, and {price}"


def _matters(known: Evidence) -> NDArray[np.bool_]:
    """Return where the extra loss is a part of all the loss that is worth speaking of; True where that is unknown."""
    if known.losses is None:
        return np.ones(len(known.regret[0]), dtype=bool)
    kept, least = known.losses
    return ~(kept - least <= NOTHING * least)


def _judge_the_rest(named: Named, values: Array, known: Evidence, unknown: NDArray[np.bool_]) -> str:
    """Judge what is known; it decides only if that is not cheap."""
    missing = " and ".join(_at(named.over, value) for value in values[unknown])
    rest = known.of(~unknown)
    if len(values[~unknown]) > 1 and (rest.regret[0][_matters(rest)] > CHEAP).any():
        return f"{judge(named, values[~unknown], rest)}; at {missing} it is not resolved"
    smallest = _at(named.over, values.min())
    return f"undecided: what the {named.what} of {smallest} costs at {missing} is not resolved"


def _at(over: str, value: float) -> str:
    return f"{over} {_number(value)}"


def _number(value: float) -> str:
    """Write a size to three digits."""
    if math.isinf(value):
        return "infinite"
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.3g}"


def _how(named: Named, values: Array, known: Evidence) -> tuple[bool, str]:
    """Return whether the optimum stays, and say how it moves."""
    if any(known.bounds):
        return _held(named, values, known.bounds)
    if known.jumps:
        return False, _jump(named, known.jumps)
    return _movement(named, values, known)


def _held(named: Named, values: Array, bounds: tuple[str, ...]) -> tuple[bool, str]:
    """Say at which values the optimum is at a bound."""
    if len(set(bounds)) == 1:
        return True, f"the best {named.what} is at its {bounds[0]} bound throughout"
    at = [
        f"its {side} bound at {named.over} "
        + ", ".join(_number(value) for value, each in zip(values, bounds, strict=True) if each == side)
        for side in ("low", "high")
        if side in bounds
    ]
    return False, f"the best {named.what} is at {' and '.join(at)}"


def _movement(named: Named, values: Array, known: Evidence) -> tuple[bool, str]:
    """Return whether the optimum stays, and say how it moves."""
    what, (low, high) = named.law or f"the best {named.what}", known.exponent
    if math.isnan(low):
        return False, f"it is not clear how the best {named.what} moves with {named.over}"
    power = f"{named.over}^{_power(low)}" if low == high else f"{named.over}^({_power(low)} to {_power(high)})"
    if low >= -STAYS and high <= STAYS:
        finite = values[np.isfinite(values)]
        explained = float(finite.max() / finite.min()) ** max(abs(low), abs(high))
        if known.range > LEAST_RANGE * explained:
            return False, f"{what} varies by a factor of {known.range:.3g} without a trend"
        return True, f"{what} stays ({power})"
    if low > STAYS or high < -STAYS:
        return False, f"{what} moves as {power}"
    return False, f"{what} goes as {power}"


def _power(exponent: float) -> str:
    """Write an exponent to two decimals, and zero without a sign."""
    return f"{exponent + 0.0:.2f}" if abs(exponent) >= 0.005 else "0"


def _jump(named: Named, jumps: tuple[tuple[float, float], ...]) -> str:
    between = ", ".join(f"{_number(low)} and {_number(high)}" for low, high in jumps)
    return f"the best {named.what} jumps to another minimum between {named.over} {between}"


def _little(named: Named, known: Evidence) -> str:
    """Say what is paid at most where that is cheap."""
    if known.losses is None:
        return f"costs at most {percent(float(known.regret[1].max()))} more {named.loss}{_above(known)}"
    kept, least = known.losses
    return f"costs at most {percent(max(float((kept / least).max()) - 1, 0.0))} more {named.loss}"


def _price(named: Named, known: Evidence, at: int) -> str:
    """Say what is paid: the losses, where they are known, and what that is above the label noise where this is much."""
    low, high = (float(each[at]) for each in known.regret)
    if math.isinf(low):
        return "diverges"
    if known.losses is not None:
        kept, least = (float(each[at]) for each in known.losses)
        text = f"gives a {named.loss} of {_told_apart(kept, least)} instead of {_told_apart(least, kept)}"
        if known.label_noise > _NOISY * least:
            text += f", {_more(high)} above the label noise,"
        return text
    if math.isinf(high):
        return f"costs at least {_more(low)} {named.loss}{_above(known)}" if low > 0 else "may cost any amount of loss"
    if low == high:
        return f"costs {_more(low)} {named.loss}{_above(known)}"
    return f"costs {f'{percent(low)} to' if low > 0 else 'at most'} {_more(high)} {named.loss}{_above(known)}"


def _above(known: Evidence) -> str:
    return " above the label noise" if known.label_noise else ""


def _more(extra: float) -> str:
    """Write a relative extra loss.

    Examples
    --------
    >>> _more(0.257), _more(31.2)
    ('26 % more', '32.2 times as much')
    """
    return f"{percent(extra)} more" if extra < _MANY else f"{extra + 1:.3g} times as much"


def _told_apart(loss: float, other: float) -> str:
    """Write a loss to three digits, or as many as tell it from another one."""
    digits = next((n for n in range(3, 9) if f"{loss:.{n}g}" != f"{other:.{n}g}"), 3)
    return f"{loss:.{digits}g}"
