"""Loss at the last step against the learning rate, solved wherever it may be lower than where it is known.

That function has many minima: noise and overfitting make one at low rates, momentum makes it oscillate, and past the
edge of stability it is rough. Below that edge, losses between two solved rates follow from the run at the upper one
(see ``follow``), which shows whether they are lower than what is known. Any other interval of more than a factor
sqrt(2) is divided, and then as long as something promises less loss inside it:

- lines through the solved points on either side, which cross below both ends, or the trend below the best one;
- how much the loss differs from end to end, and how much it differed from what its neighbours had predicted when the
  interval was made: past the edge of stability both stay large, however narrow the interval;
- an end that diverges, while the other trains: there the loss may do anything in between;
- the last part of either run: where losses oscillate in time, they do so in the rate.

So dividing ends where new points are what their neighbours predict, or at the resolution. Once a prediction is wrong by
more than 10 % in an interval of less than 5 % of the rate, the loss is rough, and from there up all intervals are
divided in which it may come down to the least one: if that is no farther below their ends than losses around them
differ among each other, or than twice what predictions there were wrong by, and not more than a factor of 8.
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

_LESS = 1e-3
"""Fraction of the least loss known by which an interval must promise less."""

_UNKNOWN = 0.3
"""Error of a prediction, in the logarithm of the loss, where there is none yet; or what losses differ by, if less."""

_SHORT, _ROUGH = 0.05, 0.1
"""Length of an interval, and error of a prediction inside, from which on the loss is rough."""

_REACH = 8.0
"""Ratio of losses within which a rough one varies."""

_COARSE, _AROUND = 0.1, 0.05
"""Length of intervals below which what is around them, up to a distance in log(lr), tells how far a loss varies."""

_SMOOTH = 0.01
"""Error below which the difference from end to end says nothing."""

_FADING = 0.3
"""What is left of a doubt after a prediction that was right."""

_DOUBT = 2.0
"""How much farther down than the last prediction was wrong the loss may be."""

_WIDEST = 0.36
"""Length in log(lr) of intervals that are divided unless what is inside is known from the run at the upper end."""

_KINK = 0.5
"""How much the slope of log(loss) may change where losses begin to follow from a run, by itself and as a fraction."""

_MOST_POINTS = 250
"""Rates in all."""


class Scan:
    """Solved rates, in increasing order.

    Parameters
    ----------
    solve
        Losses at every step for each of some logarithms of rates.
    together
        How many rates are best solved at once.
    floor
        Loss that is as good as zero.
    offset
        What these losses leave out of those by which rates are judged: the label noise.
    resolution
        Distance in log(lr) below which nothing is looked for.
    """

    def __init__(
        self,
        solve: Callable[[Sequence[float]], Sequence[Array]],
        together: int,
        floor: float,
        offset: float,
        resolution: float,
    ) -> None:
        self._solve, self._together, self.floor, self.offset = solve, together, floor, offset
        self._resolution = resolution
        self.probes: list[Probe] = []
        self._errors: dict[tuple[float, float], float] = {}  # of the prediction that made an interval
        self._rough: list[tuple[float, float]] = []
        self._followed: dict[tuple[float, float], Followed | None] = {}

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
        """Add what was solved elsewhere."""
        if all(abs(x - probe.x) > EQUAL for probe in self.probes):
            bisect.insort(self.probes, Probe(x, loss), key=lambda probe: probe.x)

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

    def divide(self) -> None:
        """Divide intervals until none promises less loss than is known; rough stretches throughout."""
        self._divide()
        while len(self.probes) < _MOST_POINTS:
            rough = min((low for low, _ in self._rough), default=math.inf)
            wide = [
                index
                for index, (a, b) in enumerate(itertools.pairwise(self.probes))
                if b.x - a.x > self._resolution and a.x >= rough and self._is_in_reach(index)
            ]
            if not wide:
                return
            self._halve(wide[: self._together])
            self._divide()

    def _divide(self) -> None:
        while len(self.probes) < _MOST_POINTS and self.best.final > self.floor:
            limit = self.best.final - _LESS * (self.best.final + self.offset)
            found = sorted(
                (promise, index) for index in range(len(self.probes) - 1) if (promise := self._promise(index)) < limit
            )
            if not found:
                return
            self._halve([index for _, index in found[: self._together]])

    def _is_in_reach(self, index: int) -> bool:
        """Whether, as rough as the loss is around the interval to the right of a probe, it may be the least inside."""
        a, b = self.probes[index : index + 2]
        reach, low = math.log(_REACH), min(self.height(a), self.height(b))
        if math.isinf(low):
            return False
        if b.x - a.x < _COARSE and max(a.final, b.final) < math.inf:
            near = [i for i, probe in enumerate(self.probes) if a.x - _AROUND < probe.x < b.x + _AROUND]
            heights = [self.height(self.probes[i]) for i in near if math.isfinite(self.probes[i].final)]
            errors = [self._error(i) for i in near]
            reach = min(reach, max(_DOUBT * max(errors), max(heights) - min(heights)))
        return low - self.height(self.best) < reach

    def _promise(self, index: int) -> float:
        """Least loss that may be expected in the interval to the right of a probe; inf where it is too narrow."""
        a, b = self.probes[index : index + 2]
        width, low = b.x - a.x, min(a.final, b.final)
        if width <= self._resolution:
            return math.inf
        followed = self.followed(index)
        if followed is not None:
            return math.exp(followed.least)
        if width > _WIDEST:
            return 0.0
        if math.isinf(low):
            return math.inf
        if math.isinf(max(a.final, b.final)):
            return 0.0 if self._is_in_reach(index) else math.inf
        in_time = min(a.dip(2 * width), b.dip(2 * width)) if self._error(index) > _SMOOTH else math.inf
        expected = min(self._in_doubt(index), self._crossing(index), 700.0)
        may_fall_on = self._is_in_reach(index) and self._error(index) > _SMOOTH
        return min(in_time, math.exp(expected), self._trend(b.x) if may_fall_on else math.inf)

    def followed(self, index: int) -> Followed | None:
        """Losses to the right of a probe where they follow from the run at the upper end, and go on from the left."""
        a, b = self.probes[index : index + 2]
        if math.isinf(a.final) or math.isinf(b.final):
            return None
        if (a.x, b.x) not in self._followed:
            run = np.log(np.maximum(b.loss, self.floor))
            self._followed[a.x, b.x] = follow(a.x, self.height(a), b.x, run)
        found, before = self._followed[a.x, b.x], self._slope(index - 1)
        if found is None or before is None:
            return found
        middle = 0.5 * (a.x + b.x)
        after = (found.at(middle) - self.height(a)) / (middle - a.x)
        return found if abs(after - before) < _KINK * (1 + max(abs(after), abs(before))) else None

    def expected(self, x: float) -> float:
        """Logarithm of the loss at a rate that is solved or follows from a run; nan if neither."""
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
        """Logarithms of rates and of losses: what is solved, and what follows in between."""
        places, heights = [], []
        for index in range(len(self.probes) - 1):
            found = self.followed(index)
            ends = self.probes[index : index + 1]
            places.append([probe.x for probe in ends] if found is None else found.places[:-1])
            heights.append([self.height(probe) for probe in ends] if found is None else found.heights[:-1])
        last = self.probes[-1]
        return np.array([*itertools.chain(*places), last.x]), np.array([*itertools.chain(*heights), self.height(last)])

    def _in_doubt(self, index: int) -> float:
        """Logarithm of the loss if it falls by half of what it differs from end to end, or as far as is in doubt."""
        low, high = sorted(self.height(probe) for probe in self.probes[index : index + 2])
        error = self._error(index)
        return low - max(0.5 * (high - low) if error > _SMOOTH else 0.0, _DOUBT * error)

    def _error(self, index: int) -> float:
        """Error of the prediction that made the interval to the right of a probe."""
        if not 0 <= index < len(self.probes) - 1:
            return 0.0
        a, b = self.probes[index : index + 2]
        if (a.x, b.x) in self._errors:
            return self._errors[a.x, b.x]
        heights = [self.height(probe) for probe in self.probes[max(index - 1, 0) : index + 3]]
        return min(max(heights) - min(heights), _UNKNOWN)

    def _trend(self, x: float) -> float:
        """Loss at a rate above the best if, past a spike, it went on falling as it does up to there; inf below."""
        best = self.best
        slope = self._slope(next(index for index, probe in enumerate(self.probes) if probe is best) - 1)
        return math.inf if slope is None or x <= best.x else best.final * math.exp(min(slope * (x - best.x), 0.0))

    def _crossing(self, index: int) -> float:
        """Logarithm of the loss where the lines through the points on either side of an interval cross."""
        a, b = self.probes[index : index + 2]
        heights = self.height(a), self.height(b)
        falls, rises = self._slope(index - 1), self._slope(index + 1)
        width = b.x - a.x
        if math.isinf(heights[0]) or math.isinf(heights[1]) or rises is None or falls is None:
            left = heights[0] + min(falls or 0.0, 0.0) * width
            right = heights[1] - max(rises or 0.0, 0.0) * width
            return min(left, right)
        if falls >= 0 or rises <= 0:
            return min(heights)
        along = (heights[1] - heights[0] - rises * width) / (falls - rises)
        return heights[0] + falls * along if 0 < along < width else min(heights)

    def _slope(self, index: int) -> float | None:
        """Slope of log(loss) in the interval to the right of a probe; None where there is none."""
        if not 0 <= index < len(self.probes) - 1:
            return None
        a, b = self.probes[index : index + 2]
        if math.isinf(a.final) or math.isinf(b.final):
            return None
        return (self.height(b) - self.height(a)) / (b.x - a.x)

    def _halve(self, indices: list[int]) -> None:
        ends = [(self.probes[index].x, self.probes[index + 1].x) for index in indices]
        middles = [0.5 * (low + high) for low, high in ends]
        expected = [self._predict(index, x) for index, x in zip(indices, middles, strict=True)]
        errors = [self._error(index) for index in indices]
        self.add(middles)
        for (low, high), x, log_loss, before in zip(ends, middles, expected, errors, strict=True):
            error = abs(self.height(self.probe(x)) - log_loss)
            if error > _ROUGH and high - low < _SHORT:
                self._rough.append((low, high))
            # A prediction may be right by chance, so doubt fades slowly.
            error = before if math.isnan(error) else max(error, _FADING * before)
            self._errors[low, x] = self._errors[x, high] = error

    def _predict(self, index: int, x: float) -> float:
        """Logarithm of the loss at x from the two solved points on either side of it; nan without these."""
        followed = self.followed(index)
        if followed is not None:
            return followed.at(x)
        near = self.probes[max(index - 1, 0) : index + 3]
        if len(near) < 4 or not all(math.isfinite(probe.final) for probe in near):
            return math.nan
        at = np.array([probe.x for probe in near])
        weights = [np.prod((x - np.delete(at, i)) / (at[i] - np.delete(at, i))) for i in range(4)]
        return float(np.dot(weights, [self.height(probe) for probe in near]))
