"""Rates that were solved, and the losses between them as far as these are known.

Below the edge of stability, losses between two solved rates follow from the run at the upper one (see ``follow``).
Wherever a rate that was solved in the middle of an interval had a loss that the rates around it predicted, those in
between are interpolated.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from deeplinear._learning_rate.follow import Followed, follow
from deeplinear._learning_rate.probe import Probe

Array = NDArray[np.float64]

EQUAL = 1e-9
"""Distance in log(lr) of rates that are taken for one."""

_KINK = 0.5
"""How much the slope of log(loss) may change where losses begin to follow from a run, by itself and as a fraction."""

_SURE, _NODES = 0.02, 9
"""Error of a prediction, in log(loss), up to which losses are interpolated, and at how many rates of an interval."""

_OF_SWING, _SURE_IF_SWINGING = 0.1, 0.002
"""Where losses oscillate in time, and so in the rate, the error may be that part of how far they swing, or so much.
Rates that happen to be a period apart predict each other, and say nothing about those in between."""

_LEAST = 3
"""Solved rates from which a loss is predicted; four at most."""


class KnownRates:
    """Solved rates, in increasing order.

    Parameters
    ----------
    solve
        Losses at every step for each of some logarithms of rates.
    together
        How many rates are best solved at once.
    floor
        Loss that is as good as zero.

    Attributes
    ----------
    probes
        The solved rates.
    errors
        For intervals between two of them, by their ends, how far the prediction was off that made them.
    """

    def __init__(self, solve: Callable[[Sequence[float]], Sequence[Array]], together: int, floor: float) -> None:
        self._solve, self._together, self.floor = solve, together, floor
        self.probes: list[Probe] = []
        self.errors: dict[tuple[float, float], float] = {}
        self._followed: dict[tuple[float, float], Followed | None] = {}
        self._interpolations: dict[tuple[float, ...], tuple[Array, Array]] = {}

    def add(self, places: Sequence[float]) -> None:
        """Solve at logarithms of rates, but for those that are known."""
        new: list[float] = []
        for x in places:
            if all(abs(x - each) > EQUAL for each in [*new, *(probe.x for probe in self.probes)]):
                new.append(x)
        for start in range(0, len(new), self._together):
            some = new[start : start + self._together]
            for x, loss in zip(some, self._solve(some), strict=True):
                self.insert(x, loss)

    def insert(self, x: float, loss: Array) -> None:
        """Add what was solved elsewhere; what is known of an interval holds for its parts."""
        if any(abs(x - probe.x) <= EQUAL for probe in self.probes):
            return
        index = bisect.bisect([probe.x for probe in self.probes], x)
        if 0 < index < len(self.probes):
            low, high = (probe.x for probe in self.probes[index - 1 : index + 1])
            if (low, high) in self.errors:
                self.errors[low, x] = self.errors[x, high] = self.errors[low, high]
        self.probes.insert(index, Probe(x, loss))

    def probe(self, x: float) -> Probe:
        """Return a solved rate."""
        return min(self.probes, key=lambda probe: abs(probe.x - x))

    def at(self, x: float) -> float:
        """Loss at the last step for a rate, solved unless it is known."""
        self.add([x])
        return self.probe(x).final

    def height(self, probe: Probe) -> float:
        """Logarithm of the loss at the last step."""
        return math.log(max(probe.final, self.floor))

    @property
    def best(self) -> Probe:
        """The rate with the least loss."""
        return min(self.probes, key=lambda probe: probe.final)

    def followed(self, index: int) -> Followed | None:
        """Losses to the right of a probe where they are known: from the run at the upper end, or by interpolation."""
        a, b = self.probes[index : index + 2]
        if math.isinf(a.final) or math.isinf(b.final):
            return None
        if (a.x, b.x) not in self._followed:
            run = np.log(np.maximum(b.loss, self.floor))
            self._followed[a.x, b.x] = follow(a.x, self.height(a), b.x, run)
        found = self._followed[a.x, b.x]
        if found is not None and not self._goes_on(index, found):
            found = None
        known = [each for each in (found, self._interpolated(index)) if each is not None]
        return min(known, key=lambda each: each.off, default=None)

    def is_known(self, index: int) -> bool:
        """Whether losses to the right of a probe are known well enough for a minimum there to be found at once."""
        found = self.followed(index) if 0 <= index < len(self.probes) - 1 else None
        return found is not None and found.off <= _SURE

    def _goes_on(self, index: int, found: Followed) -> bool:
        """Whether losses to the right of a probe start about as steeply as those to its left end."""
        a, before = self.probes[index], self.slope(index - 1)
        if before is None:
            return True
        middle = 0.5 * (a.x + self.probes[index + 1].x)
        after = (found.at(middle) - self.height(a)) / (middle - a.x)
        return abs(after - before) < _KINK * (1 + max(abs(after), abs(before)))

    def _interpolated(self, index: int) -> Followed | None:
        """Losses to the right of a probe by interpolation, where that predicted well what has been solved."""
        a, b = self.probes[index : index + 2]
        error = self.errors.get((a.x, b.x), math.inf)
        swing = math.log(max(a.swing(), b.swing()))
        allowed = min(_SURE, max(_OF_SWING * swing, _SURE_IF_SWINGING)) if swing else _SURE
        if error > allowed or not 0 < index < len(self.probes) - 2:
            return None
        near = self._train_near(index)
        if len(near) < _LEAST:
            return None
        key = (a.x, b.x, *(probe.x for probe in near))
        if key not in self._interpolations:
            places = np.linspace(a.x, b.x, _NODES)
            self._interpolations[key] = places, _polynomial([(probe.x, self.height(probe)) for probe in near], places)
        return Followed(*self._interpolations[key], error)

    def interpolate(self, index: int, x: float) -> float:
        """Logarithm of the loss to the right of a probe, from the ends of the interval and those beside them.

        It is nan where too few of these train.
        """
        near = self._train_near(index)
        if len(near) < _LEAST:
            return math.nan
        return float(_polynomial([(probe.x, self.height(probe)) for probe in near], np.array([x]))[0])

    def _train_near(self, index: int) -> list[Probe]:
        """Those that train of the ends of the interval to the right of a probe and of the two beside them.

        There is none if they are not among them.
        """
        if math.isinf(max(probe.final for probe in self.probes[index : index + 2])):
            return []
        return [probe for probe in self.probes[max(index - 1, 0) : index + 3] if math.isfinite(probe.final)]

    def expected(self, x: float) -> float:
        """Logarithm of the loss at a rate that is solved or known from others; nan if neither."""
        after = bisect.bisect_right([probe.x for probe in self.probes], x)
        near = self.probes[max(after - 1, 0) : after + 1]
        for probe in near:
            if abs(probe.x - x) <= EQUAL:
                return self.height(probe)
        followed = self.followed(after - 1) if len(near) == 2 else None
        return math.nan if followed is None else followed.at(x)

    def bound(self, x: float) -> float:
        """The larger loss of the solved rates on either side of one; inf at the ends."""
        after = bisect.bisect_right([probe.x for probe in self.probes], x)
        inside = 0 < after < len(self.probes)
        return max(probe.final for probe in self.probes[after - 1 : after + 1]) if inside else math.inf

    def curve(self) -> tuple[Array, Array]:
        """Logarithms of rates and of losses: what is solved, and what is known in between."""
        places, heights = [], []
        for index in range(len(self.probes) - 1):
            found = self.followed(index)
            ends = self.probes[index : index + 1]
            places.append([probe.x for probe in ends] if found is None else found.places[:-1])
            heights.append([self.height(probe) for probe in ends] if found is None else found.heights[:-1])
        last = self.probes[-1]
        return np.array([*itertools.chain(*places), last.x]), np.array([*itertools.chain(*heights), self.height(last)])

    def slope(self, index: int) -> float | None:
        """Slope of log(loss) in the interval to the right of a probe; None where there is none."""
        if not 0 <= index < len(self.probes) - 1:
            return None
        a, b = self.probes[index : index + 2]
        if math.isinf(a.final) or math.isinf(b.final):
            return None
        return (self.height(b) - self.height(a)) / (b.x - a.x)


def _polynomial(points: Sequence[tuple[float, float]], places: Array) -> Array:
    """Values, at some places, of the polynomial through points."""
    at, values = np.array(points).T
    apart = at[:, None] - at
    np.fill_diagonal(apart, 1.0)
    away = places[:, None, None] - at  # place, (nothing), point
    factors = np.where(np.eye(len(at), dtype=bool), 1.0, away) / apart
    return np.asarray(factors.prod(axis=2) @ values)
