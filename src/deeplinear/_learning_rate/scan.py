"""Loss at the last step against the learning rate, solved wherever it may be lower than where it is known.

That function has many minima: noise and overfitting make one at low rates, momentum makes it oscillate, and past the
edge of stability it is rough. Where losses between two solved rates are known (see ``known``), they say whether they
are lower; on either side of the best rate they need not be solved, since the optimum is found exactly later on. Any
other interval of more than a factor sqrt(2) is divided, and then as long as something promises less loss inside it:

- lines through the solved points on either side, which cross below both ends, or the trend below the best one;
- how much the loss differs from end to end, and how much it differed from what its neighbours had predicted when the
  interval was made: past the edge of stability both stay large, however narrow the interval;
- an end that diverges, while the other trains: there the loss may do anything in between;
- the last part of either run: where losses oscillate in time, they do so in the rate.

Past a cliff, where losses are twice the least and more but training does not diverge, a factor of 1.2 is enough to
divide an interval, since a valley may lie between high losses.

So dividing ends where new points are what their neighbours predict, or at the resolution. Once a prediction is wrong by
more than 10 % in an interval of less than 5 % of the rate, the loss is rough, and from there up all intervals are
divided in which it may come down to the least one: if that is no farther below their ends than twice what predictions
around them were wrong by, or than losses there differ among each other, unless they were predicted to 1 %, and not more
than a factor of 8.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from deeplinear._learning_rate.follow import Followed
from deeplinear._learning_rate.known import KnownRates

Array = NDArray[np.float64]

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

_WIDEST, _WIDEST_ABOVE, _HIGH = 0.36, 0.18, 2.0
"""Length in log(lr) of intervals that are divided unless what is inside is known from the run at the upper end, and of
those past a cliff: above the best rate, with ends that train and have that many times its loss. There may be a valley
between them."""

_MOST_POINTS = 250
"""Rates in all."""


class Scan(KnownRates):
    """Solved rates, and more of them wherever the loss may be lower.

    Parameters
    ----------
    solve, together, floor
        As for ``KnownRates``.
    offset
        What these losses leave out of those by which rates are judged: the label noise.
    resolution
        Distance in log(lr) below which nothing is looked for.

    Attributes
    ----------
    rough_from
        Least log(lr) at which the loss was found to be rough; inf if it was nowhere.
    """

    def __init__(
        self,
        solve: Callable[[Sequence[float]], Sequence[Array]],
        together: int,
        floor: float,
        offset: float,
        resolution: float,
    ) -> None:
        super().__init__(solve, together, floor)
        self.offset, self._resolution = offset, resolution
        self.rough_from = math.inf

    def divide(self) -> None:
        """Divide intervals until none promises less loss than is known; rough stretches throughout."""
        self._divide()
        while len(self.probes) < _MOST_POINTS:
            wide = [
                index
                for index, (a, b) in enumerate(itertools.pairwise(self.probes))
                if b.x - a.x > self._resolution and a.x >= self.rough_from and self._is_in_reach(index)
            ]
            if not wide:
                return
            self._halve(wide[: self._together])
            self._divide()

    def _divide(self) -> None:
        while len(self.probes) < _MOST_POINTS and self.best.final > self.floor:
            known = self._known_beside_best()
            least = min([self.best.final, *(math.exp(each.heights.min()) for each in known.values())])
            limit = least - _LESS * (least + self.offset)
            found = sorted(
                (promise, index)
                for index in range(len(self.probes) - 1)
                if index not in known and (promise := self._promise(index)) < limit
            )
            if not found:
                return
            self._halve([index for _, index in found[: self._together]])

    def _known_beside_best(self) -> dict[int, Followed]:
        """Losses on both sides of the best rate, if they are so well known that the exact optimum is soon found.

        If one side is not, what is known on the other says too little: the loss may turn there too.
        """
        best = self.probes.index(self.best)
        sides = {index: self.followed(index) for index in (best - 1, best) if self.is_known(index)}
        return {index: side for index, side in sides.items() if side is not None} if len(sides) > 1 else {}

    def _is_in_reach(self, index: int) -> bool:
        """Whether, as rough as the loss is around the interval to the right of a probe, it may be the least inside."""
        a, b = self.probes[index : index + 2]
        reach, low = math.log(_REACH), min(self.height(a), self.height(b))
        if math.isinf(low):
            return False
        near = [probe for probe in self.probes if a.x - _AROUND < probe.x < b.x + _AROUND]
        errors = [self.errors[pair] for p, q in itertools.pairwise(near) if (pair := (p.x, q.x)) in self.errors]
        diverges = math.isinf(max(a.final, b.final))
        error = max(errors, default=math.inf if diverges else 0.0)
        is_told = b.x - a.x < _COARSE or self.errors.get((a.x, b.x), math.inf) < _ROUGH
        if is_told and not (diverges and error > _ROUGH):
            heights = [self.height(probe) for probe in near if math.isfinite(probe.final)]
            varies = max(heights) - min(heights) if diverges or error > _SMOOTH else 0.0
            reach = min(reach, max(_DOUBT * error, varies))
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
        is_cliff = a.x >= self.best.x and low > _HIGH * self.best.final and math.isfinite(max(a.final, b.final))
        if width > _WIDEST_ABOVE and is_cliff:
            return 0.0
        if math.isinf(max(a.final, b.final)):
            return 0.0 if self._is_in_reach(index) else math.inf
        in_time = min(a.dip(2 * width), b.dip(2 * width)) if self._error(index) > _SMOOTH else math.inf
        expected = min(self._in_doubt(index), self._crossing(index), 700.0)
        may_fall_on = self._is_in_reach(index) and self._error(index) > _SMOOTH
        return min(in_time, math.exp(expected), self._trend(b.x) if may_fall_on else math.inf)

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
        if (a.x, b.x) in self.errors:
            return self.errors[a.x, b.x]
        heights = [self.height(probe) for probe in self.probes[max(index - 1, 0) : index + 3]]
        return min(max(heights) - min(heights), _UNKNOWN)

    def _trend(self, x: float) -> float:
        """Loss at a rate above the best if, past a spike, it went on falling as it does up to there; inf if it cannot.

        It cannot at lower rates, nor where the loss is known on both sides of the best rate, as there is no spike.
        """
        best = self.probes.index(self.best)
        slope = self.slope(best - 1)
        if slope is None or x <= self.best.x or self._known_beside_best():
            return math.inf
        return self.best.final * math.exp(min(slope * (x - self.best.x), 0.0))

    def _crossing(self, index: int) -> float:
        """Logarithm of the loss where the lines through the points on either side of an interval cross."""
        a, b = self.probes[index : index + 2]
        heights = self.height(a), self.height(b)
        falls, rises = self.slope(index - 1), self.slope(index + 1)
        width = b.x - a.x
        if math.isinf(heights[0]) or math.isinf(heights[1]) or rises is None or falls is None:
            left = heights[0] + min(falls or 0.0, 0.0) * width
            right = heights[1] - max(rises or 0.0, 0.0) * width
            return min(left, right)
        if falls >= 0 or rises <= 0:
            return min(heights)
        along = (heights[1] - heights[0] - rises * width) / (falls - rises)
        return heights[0] + falls * along if 0 < along < width else min(heights)

    def _halve(self, indices: list[int]) -> None:
        ends = [(self.probes[index].x, self.probes[index + 1].x) for index in indices]
        middles = [0.5 * (low + high) for low, high in ends]
        expected = [self._predict(index, x) for index, x in zip(indices, middles, strict=True)]
        errors = [self._error(index) for index in indices]
        self.add(middles)
        for (low, high), x, log_loss, before in zip(ends, middles, expected, errors, strict=True):
            error = abs(self.height(self.probe(x)) - log_loss)
            if error > _ROUGH and high - low < _SHORT:
                self.rough_from = min(low, self.rough_from)
            # A prediction may be right by chance, so doubt fades slowly, and less slowly the less likely that was.
            if not math.isnan(error):
                most = _FADING * before * (1.0 if (low, high) in self.errors else _FADING)
                error = max(error, min(most, (error**2 * before) ** (1 / 3)))
                self.errors[low, x] = self.errors[x, high] = error

    def _predict(self, index: int, x: float) -> float:
        """Logarithm of the loss at x from the two solved points on either side of it; nan without these."""
        followed = self.followed(index)
        return self.interpolate(index, x) if followed is None else followed.at(x)
