"""Minima of the loss against the learning rate: which of them count, how wide they are, and where there is a margin."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deeplinear._learning_rate.known import EQUAL
from deeplinear._learning_rate.minimum import Minimum
from deeplinear._learning_rate.probe import Probe
from deeplinear._learning_rate.scan import Scan

_WIDTH = 0.002
"""Length in log(lr) of the interval all over which a minimum that counts has a low loss."""

_INSIDE = 8
"""Rates that are solved inside that interval where the loss is rough."""

_NEAR = 0.03
"""Distance in log(lr) beyond which points are not too near to each other."""

_AROUND, _ENOUGH = 0.1, 5
"""Distance from a minimum up to which losses are a parabola, and how many points give it."""

_FAR = 0.5
"""Distance in log(lr) from the best rate of a minimum that is another one."""

_MARGIN = math.log(1.2)
"""Distance in log(lr) from a rate with a margin at which losses still count."""

NEARLY = 1.05
"""How much more than the least loss counts as nearly as good."""

_BARRIER = 1.01
"""How much higher than a minimum the loss must be on the way to a better one, for it to be another."""

_MOST_OTHERS = 4
"""Minima, besides the best, that are looked at."""

_MOST_DIPS = 16
"""Rates with less loss than the best minimum that are looked at."""

_ROUNDS, _CLOSE = 3, 0.01
"""How often a rate with a margin is improved by what is found on either side of it, and by how much it must move."""


@dataclass(frozen=True)
class LrMinimum:
    """A minimum of the loss against the learning rate.

    Attributes
    ----------
    lr, loss
        Where it is, and the loss there.
    low, high
        The rates around it between which the loss is at most 5 % higher, by interpolation between the rates solved.
    """

    lr: float
    loss: float
    low: float
    high: float


class Valleys:
    """Minima of what a scan has found.

    Parameters
    ----------
    scan
        Solved rates; some more are added.
    offset
        What the scan leaves out of the losses: the label noise.
    """

    def __init__(self, scan: Scan, offset: float) -> None:
        self._scan, self._offset = scan, offset
        self._worst: dict[float, float] = {}
        self._sure: set[float] = set()
        self._is_strict = False

    def best(self) -> list[tuple[float, float]]:
        """Points of the scan from the one before the best minimum that counts, in pairs (log(lr), loss).

        For a minimum to count, its loss must be low all over an interval of 0.2 % of the rate. So it is the largest
        loss in such an interval that is least.
        """
        x = self._best_place()
        probes, index = self._scan.probes, self._bottom(x)
        left, right = (self._aside(index, step) for step in (-1, 1))
        return [(probe.x, probe.final) for probe in (probes[left], probes[index], *probes[right:])]

    def shape(self) -> tuple[float, float] | str | None:
        """What is known of the best minimum, for ``find_minimum``: a parabola where it follows from runs on both sides.

        Where it does so on the lower side only, there is a cliff.
        """
        index = self._bottom(self._best_place())
        sides = [self._scan.followed(each) for each in (index - 1, index)]
        if sides[0] is None:
            return "look"
        if sides[1] is None:
            return None
        at, heights = self._scan.curve()
        inside = (at >= sides[0].places[0]) & (at <= sides[1].places[-1])
        at, losses = at[inside], np.exp(heights[inside])
        low = float(at[losses.argmin()])
        near = np.abs(at - low) < _AROUND
        if near.sum() < _ENOUGH or not at[0] < low < at[-1]:
            return "look"
        bend, slope, _ = np.polyfit(at[near] - low, losses[near], 2).tolist()
        vertex = low - slope / (2 * bend) if bend > 0 else math.nan
        return (vertex, 2 * bend) if abs(vertex - low) < _AROUND else "look"

    def is_beaten(self, loss: float) -> bool:
        """Whether a rate with less loss than this counts, as those do around which the loss is all less."""
        lower = sorted((probe.final, probe.x) for probe in self._scan.probes[1:-1] if probe.final < loss)
        return any(self._worst_near(x) < loss and self._surely_worst(x) < loss for _, x in lower[:_MOST_DIPS])

    def counts(self, found: Minimum) -> bool:
        """Whether an exact minimum is as good as the best place all over an interval, and not only by itself.

        Where the loss is rough, looking for the exact minimum leads into any gap between the rates that were looked at.
        From now on places are compared for sure.
        """
        is_wide = 0.5 * found.curvature * _WIDTH**2 <= (_BARRIER - 1) * (found.value + self._offset)
        if is_wide and found.x < self._scan.rough_from:
            return True
        self._is_strict = True
        return self._surely_worst(found.x) <= _BARRIER * self._worst[self._best_place()]

    def solved(self) -> Minimum:
        """Return the best place as it was solved."""
        x = self._best_place()
        return Minimum(x, self._scan.at(x), math.nan)

    def _best_place(self) -> float:
        """Rate of a minimum, or of one that was looked at, for which the largest loss all around is least."""
        waiting = {probe.x: probe.final for probe in self._minima()} | self._worst
        while (x := min(waiting, key=waiting.__getitem__)) not in (self._sure if self._is_strict else self._worst):
            waiting[x] = self._surely_worst(x) if x in self._worst else self._worst_near(x)
        return x

    def minima(self, best: Minimum) -> tuple[LrMinimum, ...]:
        """Return the best minimum, as refined, and others that count and are nearly as good."""
        found = [best]
        limit = NEARLY * (best.value + self._offset) - self._offset
        self._scan.add([x for x, loss in self._expected_minima() if loss <= limit])
        others = sorted((probe for probe in self._minima() if probe.final <= limit), key=lambda probe: probe.final)
        for probe in others[: _MOST_OTHERS + 1]:
            if all(self._is_apart(probe, other) for other in found) and self._counts(probe.x, limit):
                found.append(Minimum(probe.x, probe.final, math.nan))
        return tuple(self._described(each) for each in found)

    def safe(self) -> Probe:
        """Return the rate for which the largest loss within the margin on either side is least."""
        found = math.inf
        for _ in range(_ROUNDS):
            x = self._safest()
            if abs(x - found) < _CLOSE:
                break
            found = x
            self._scan.add([x, *(end for end in (x - _MARGIN, x + _MARGIN) if math.isnan(self._scan.expected(end)))])
        return self._scan.probe(found)

    def _safest(self) -> float:
        """The same among known rates and those half way, or a margin away from known ones.

        Between points of the curve log(loss) is taken to be a line.
        """
        at, loss = self._scan.curve()
        loss = np.minimum(loss, 700.0)
        tried = np.unique(np.concatenate([at, 0.5 * (at[1:] + at[:-1]), at - _MARGIN, at + _MARGIN]))
        tried = tried[(tried - _MARGIN >= at[0] - EQUAL) & (tried + _MARGIN <= at[-1] + EQUAL)]
        ends = np.maximum(np.interp(tried - _MARGIN, at, loss), np.interp(tried + _MARGIN, at, loss))
        inside = np.abs(tried[:, None] - at) <= _MARGIN
        worst = np.maximum(ends, np.where(inside, loss, -np.inf).max(axis=1))
        return float(tried[worst.argmin()])

    def _minima(self) -> list[Probe]:
        """Solved rates with no less loss on either side; the ends are none."""
        probes = self._scan.probes
        return [
            probes[index]
            for index in range(1, len(probes) - 1)
            if probes[index].final <= min(probes[index - 1].final, probes[index + 1].final)
        ]

    def _expected_minima(self) -> list[tuple[float, float]]:
        """Minima between solved rates, with their losses, that follow from runs and are not next to the best rate."""
        at, heights = self._scan.curve()
        inside = np.flatnonzero((heights[1:-1] < heights[:-2]) & (heights[1:-1] < heights[2:])) + 1
        solved = np.array([probe.x for probe in self._scan.probes])
        return [
            (float(at[index]), math.exp(heights[index]))
            for index in inside
            if np.abs(solved - at[index]).min() > _NEAR and np.abs(self._scan.best.x - at[index]) > _FAR
        ]

    def _counts(self, x: float, limit: float) -> bool:
        """Whether the loss all around a rate is at most this."""
        return self._worst_near(x) <= limit and self._surely_worst(x) <= limit

    def _worst_near(self, x: float) -> float:
        """Largest loss on the best interval of 0.2 % of the rate that has x in its middle or at an end.

        Where the loss does not follow from runs, three points of an interval stand for it.
        """
        if x not in self._worst:
            known = [loss for step in (-1, 1) if (loss := self._known_worst(x, x + step * _WIDTH)) is not None]
            if known:
                self._worst[x] = max(self._scan.at(x), min(known))
                if x + _WIDTH < self._scan.rough_from:
                    self._sure.add(x)
            else:
                _, self._worst[x] = self._best_interval(x)
        return self._worst[x]

    def _surely_worst(self, x: float) -> float:
        """The same, with more points inside the interval where the loss is rough or the three differ."""
        self._worst_near(x)
        if x not in self._sure:
            middle, worst = self._best_interval(x)
            half = 0.5 * _WIDTH
            least = min(self._scan.at(middle + shift * half) for shift in (-1, 0, 1))
            if middle + half > self._scan.rough_from or worst > _BARRIER * least:
                places = np.linspace(middle - half, middle + half, _INSIDE + 2)[1:-1]
                self._scan.add(places.tolist())
                worst = max(worst, *(self._scan.at(place) for place in places))
            self._worst[x] = worst
            self._sure.add(x)
        return self._worst[x]

    def _known_worst(self, x: float, end: float) -> float | None:
        """Largest loss from one rate to another where it follows from runs or is interpolated; None elsewhere."""
        low, high = sorted((x, end))
        probes = self._scan.probes
        inside = [index for index in range(len(probes) - 1) if probes[index].x < high and probes[index + 1].x > low]
        if not inside or probes[0].x > low or any(self._scan.followed(index) is None for index in inside):
            return None
        between = [probe.final for probe in probes if low <= probe.x <= high]
        return max([math.exp(self._scan.expected(end)), *between])

    def _best_interval(self, x: float) -> tuple[float, float]:
        """Middle of that interval, as far as its ends and its middle tell, and the largest loss there."""
        half = 0.5 * _WIDTH
        self._scan.add([x - half, x + half])
        around = {shift: self._scan.at(x + shift * half) for shift in (-1, 0, 1)}
        if max(around.values()) > _BARRIER * around[0]:
            self._scan.add([x - 2 * half, x + 2 * half])
            around |= {shift: self._scan.at(x + shift * half) for shift in (-2, 2)}
        middles = [shift for shift in around if {shift - 1, shift + 1} <= around.keys()]
        worst = {shift: max(around[each] for each in (shift - 1, shift, shift + 1)) for shift in middles}
        best = min(worst, key=worst.__getitem__)
        return x + best * half, worst[best]

    def _bottom(self, x: float) -> int:
        """Index of the minimum to which solved rates lead down from one of them."""
        probes = self._scan.probes
        index = min(max(probes.index(self._scan.probe(x)), 1), len(probes) - 2)
        while True:
            low = min(range(max(index - 1, 1), min(index + 2, len(probes) - 1)), key=lambda each: probes[each].final)
            if probes[low].final >= probes[index].final:
                return index
            index = low

    def _aside(self, index: int, step: int) -> int:
        """Index of a solved rate on one side of a minimum, as far from it as the loss rises steadily and not much.

        Points very near to each other say little about the slope in between.
        """
        probes, bottom = self._scan.probes, self._scan.probes[index]
        index += step
        while 0 <= index + step < len(probes) and abs(probes[index].x - bottom.x) < _NEAR:
            if not probes[index].final < probes[index + step].final <= NEARLY * bottom.final:
                break
            index += step
        return index

    def _is_apart(self, probe: Probe, other: Minimum) -> bool:
        """Whether the loss rises on the way from one minimum to another."""
        low, high = sorted((probe.x, other.x))
        at, heights = self._scan.curve()
        between = np.exp(np.minimum(heights[(at > low) & (at < high)], 700.0))
        return bool(between.max(initial=0.0) + self._offset > _BARRIER * (probe.final + self._offset))

    def _described(self, minimum: Minimum) -> LrMinimum:
        self._scan.add([end for end in self._ends(minimum) if abs(self._scan.probe(end).x - end) > _NEAR])
        low, high = self._ends(minimum)
        return LrMinimum(math.exp(minimum.x), minimum.value + self._offset, math.exp(low), math.exp(high))

    def _ends(self, minimum: Minimum) -> tuple[float, float]:
        """Where the loss on either side of a minimum ceases to be nearly as good."""
        at, heights = self._scan.curve()
        points = list(zip(at.tolist(), np.exp(heights).tolist(), strict=True))
        above = [point for point in points if point[0] > minimum.x]
        below = [point for point in points[::-1] if point[0] < minimum.x]
        limit = NEARLY * (minimum.value + self._offset) - self._offset
        start = (minimum.x, minimum.value)
        return _reach(start, below, limit), _reach(start, above, limit)


def _reach(start: tuple[float, float], points: Sequence[tuple[float, float]], limit: float) -> float:
    """Where the line through points on one side of a minimum first exceeds a limit."""
    x, value = start
    for next_x, next_value in points:
        if next_value > limit:
            return x if math.isinf(next_value) else x + (next_x - x) * (limit - value) / (next_value - value)
        x, value = next_x, next_value
    return x
