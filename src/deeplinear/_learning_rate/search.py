"""The least loss over all learning rates: a grid from a rate that blows up down to where lower ones cannot help."""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.progress import Counter
from deeplinear._learning_rate.grid import EQUAL, Grid
from deeplinear._learning_rate.ladder import MOST_RUNGS, RUNG, ceiling, solve_rates
from deeplinear._learning_rate.refine import Minimum
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import changes_without_rate, up_to
from deeplinear._theory.curves import Curve, curves, worth_batching

Array = NDArray[np.float64]

_ROUNDING = 1e-12
"""Fraction of what can be learned at the start below which what is left to learn is mostly rounding error."""

_BEYOND = 3
"""Rungs in a row, at the top, whose loss must end above where it began."""

_FIRST, _LOWER = 12, 3
"""Rungs that are solved first, and below them at a time."""

_WIDEST, _HIGH = 0.18, math.log(2.0)
"""Length in log(lr) of intervals past a cliff that are divided: above the best rate, with ends that train and are so
much higher. There may be a valley between them."""

_VANISHING = 1e-12
"""Fraction of a rate that blows up which is as good as zero."""

_BEHIND = 1.3
"""How much more loss the lowest rate must have than the best."""

_FAR = math.log(7.9)
"""How far it must be below the best."""

_RESOLUTION, _RESOLUTION_IF_LONG, _LONG = 31, 15, 200
"""Parts of a rung that are too short for anything to be looked for in them; fewer for that many steps times outputs."""

_MONOTONE = 1.001
"""How much more than the least loss of a run that falls all the way its last one may be."""

_LESS = 1e-3
"""Fraction of the least loss known by which a loss between two rates must promise to be less."""

_MOST_RATES = 250
"""Rates in all."""

_TOGETHER = 16
"""Most rates that are solved at once."""

_WIDTH = 0.002
"""Length in log(lr) of the interval all over which a minimum that counts has a low loss."""

_INSIDE = 8
"""Rates that are solved inside that interval where the loss is rough."""

_ROUGH = 0.01
"""Doubt in log(loss), or part of the loss by which it varies over such an interval, from which on it is rough."""

_FLAT = 1e3
"""How much more than rounding errors a loss must be to be judged."""

_MOST_JUDGED = 24
"""Minima that are judged, at most."""

REFINING = 20
"""Solutions that are usual after the grid: looks around the optimum."""


def noise_of_new_examples(problem: Problem) -> float:
    """Return the part of the loss on new examples that is the noise of their labels, which nothing can lower."""
    return float(problem.label_noise[-1])


@dataclass(frozen=True)
class Excess:
    """The loss that is minimised, less the label noise in it that no rate can lower.

    Attributes
    ----------
    objective
        Which loss.
    label_noise
        What is subtracted: the noise of examples that were never trained on.
    rounding
        Size of rounding errors.
    """

    objective: str
    label_noise: float
    rounding: float

    @classmethod
    def of(cls, problem: Problem, objective: str) -> "Excess":
        is_fit = objective == "train" and problem.stages[-1].sampling.reuse > 0
        label_noise = 0.0 if is_fit else noise_of_new_examples(problem)
        (curve,) = curves([up_to(problem, 0)])
        rounding = _ROUNDING * float(curve.loss(objective)[0] - label_noise)
        return cls(objective, label_noise, max(rounding, np.finfo(float).tiny))

    def __call__(self, curve: Curve) -> Array:
        """Return it at each step."""
        return np.maximum(curve.loss(self.objective) - self.label_noise, 0.0)


class RateSearch(Grid):
    """Losses at the last step against log(lr), solved wherever they may be lower than where they are known.

    Values are logarithms of the excess loss.

    Attributes
    ----------
    excess
        What is minimised.
    runs
        Losses at every step, for each place.
    """

    def __init__(self, problem: Problem, excess: Excess, counter: Counter) -> None:
        super().__init__(self._heights, worth_batching(problem, _TOGETHER))
        self.excess, self.runs = excess, dict[float, Curve]()
        self._problem, self._counter = problem, counter
        self._worst: dict[float, float] = {}

    def loss(self, x: float) -> float:
        """Return the excess loss at a place, solved unless it is known."""
        return math.exp(self.at(x))

    def total(self, index: int) -> float:
        """Return the loss at a solved place, label noise and all, as it was solved."""
        return max(float(self.runs[self.places[index]].loss(self.excess.objective)[-1]), self.excess.label_noise)

    def curves_at(self, places: Sequence[float]) -> list[Curve]:
        """Return the losses at every step, for places that are solved or not."""
        self.add(places)
        return [self.runs[self.places[self.nearest(x)]] for x in places]

    def run(self) -> None:
        """Solve rates until the least loss is enclosed, and no lower one is to be expected anywhere."""
        problem, rung = self._problem, math.log(RUNG)
        # The few steps after which runs blow up count for nothing.
        top = math.log(ceiling(problem, lambda _: self._counter.advance(0.0)))
        self.add([top])  # which soon ends, and others would go on with it
        self.add([top - rung * (index + 1) for index in range(_FIRST)])
        start = (
            float(self.excess(self._solved([top + math.log(_VANISHING)])[0])[-1])
            if changes_without_rate(problem)
            else None
        )
        while not (self._is_enclosed_below() if start is None else self._is_back_at(start)):
            if len(self.places) > MOST_RUNGS:
                tried = f"from {math.exp(self.places[0]):.3g} to {math.exp(top):.3g}"
                # Other rules, or phases with rules of their own, lower the loss without this rate.
                does = "lowers the {} loss" if start is None else "makes the {} loss lower than a vanishing one does"
                raise ArithmeticError(f"no learning rate {tried} {does.format(self.excess.objective)}")
            self.add([self.places[0] - rung * (index + 1) for index in range(_LOWER)])
        # What blew up early has recovered.
        while any(self._ends_below(index, start) for index in range(-_BEYOND, 0)):
            self.add([self.places[-1] + rung * (index + 1) for index in range(_BEYOND)])
        is_long = problem.steps * problem.data.outputs >= _LONG
        self.divide(rung / (_RESOLUTION_IF_LONG if is_long else _RESOLUTION), _MOST_RATES, self._limit)

    def best_place(self) -> float:
        """Return the place around which the largest loss is least, all over 0.2 % of the rate."""
        if self.values[self.best] <= math.log(_FLAT * self.excess.rounding):
            return self.places[self.best]
        minima = [self.places[index] for index in sorted(self.minima(), key=self.values.__getitem__)]
        judged = {x: self.loss(x) for x in minima if self._is_smooth(x)}
        rough = [x for x in minima if x not in judged]
        for x in rough[:_MOST_JUDGED]:
            if self.loss(x) >= min(judged.values(), default=math.inf):
                break
            judged[x] = self.worst(x)
        return min(judged, key=judged.__getitem__) if judged else self.places[self.best]

    def worst(self, x: float) -> float:
        """Return the largest excess loss on the best interval of 0.2 % of the rate that has x inside or at an end.

        Where the loss is smooth it is the loss itself. Elsewhere five rates tell which interval is best, and more of
        them inside it how large the loss is there.
        """
        if self._is_smooth(x):
            return self.loss(x)
        if x not in self._worst:
            half = 0.5 * _WIDTH
            around = [x + shift * half for shift in (-2, -1, 0, 1, 2)]
            self.add(around)
            losses = [self.loss(place) for place in around]
            first = min(range(3), key=lambda i: max(losses[i : i + 3]))
            low = around[first]
            self.add(np.linspace(low, low + _WIDTH, _INSIDE + 2).tolist())
            inside = [i for i, place in enumerate(self.places) if low - EQUAL < place < low + _WIDTH + EQUAL]
            self._worst[x] = math.exp(max(self.values[i] for i in inside))
        return self._worst[x]

    def is_rough(self, found: Minimum) -> bool:
        """Return whether the loss changes within 0.2 % of the rate of a minimum."""
        total = found.value + self.excess.label_noise
        return not 0.5 * found.curvature * _WIDTH**2 <= _ROUGH * total or not self._is_smooth(found.x)

    def _is_smooth(self, x: float) -> bool:
        """Whether losses within 0.2 % of a rate follow from their neighbours and are hardly more than there."""
        low, high = bisect.bisect_left(self.places, x - _WIDTH), bisect.bisect_right(self.places, x + _WIDTH)
        around = self.values[max(low - 1, 0) : high + 1]
        if math.isinf(max(around)) or max(self.values[low:high]) > self.values[self.nearest(x)] + _ROUGH:
            return False
        return all(self.doubt(side) < _ROUGH for side in range(max(low - 1, 0), min(high, len(self.places) - 1)))

    def _hope(self, index: int) -> float:
        """Least height that may be in the interval to the right of a place."""
        (low, high), (a, b) = self.places[index : index + 2], self.values[index : index + 2]
        is_past = index >= self.best and min(a, b) > self.values[self.best] + _HIGH
        if is_past and math.isfinite(max(a, b)) and high - low > _WIDEST:
            return -math.inf
        return super()._hope(index)

    def _limit(self) -> float:
        """Logarithm of the loss that a rate must promise to be of interest."""
        least = math.exp(self.values[self.best])
        limit = least - _LESS * (least + self.excess.label_noise)
        return math.log(limit) if limit > self.excess.rounding else -math.inf

    def _heights(self, places: Sequence[float]) -> list[float]:
        runs = self._solved(places)
        self.runs.update(zip(places, runs, strict=True))
        return [math.log(max(float(self.excess(run)[-1]), self.excess.rounding)) for run in runs]

    def _solved(self, places: Sequence[float]) -> list[Curve]:
        self._counter.expect(len(places) + REFINING)
        return solve_rates(self._problem, [math.exp(x) for x in places], self._counter.advance)

    def _run(self, index: int) -> Array:
        """Excess loss at every step."""
        return self.excess(self.runs[self.places[index]])

    def _start(self, top: float) -> float:
        """Excess loss at a vanishing rate."""
        (run,) = self._solved([top + math.log(_VANISHING)])
        return float(self.excess(run)[-1])

    def _ends_below(self, index: int, start: float | None) -> bool:
        run = self._run(index)
        return bool(run[-1] <= (run[0] if start is None else start))

    def _is_back_at(self, start: float) -> bool:
        """Whether the lowest rate is far below the best, and its loss nearly that of a vanishing rate."""
        lowest, best = (float(self._run(index)[-1]) for index in (0, self.best))
        return self.places[self.best] - self.places[0] > _FAR and lowest > 0.5 * (best + start)

    def _is_enclosed_below(self) -> bool:
        """Whether lower rates only train less: the lowest run falls all the way, and is far behind the best."""
        lowest, best = self._run(0), self._run(self.best)
        if not lowest[-1] <= _MONOTONE * lowest.min():
            return False
        is_behind = lowest[-1] > min(_BEHIND * best[-1], 0.5 * (best[-1] + lowest[0]))
        return bool(is_behind) and self.places[self.best] - self.places[0] > _FAR
