"""Rates solved from one at which training blows up down to where lower ones cannot help, and wherever in between."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.progress import Counter
from deeplinear._learning_rate.ladder import MOST_RUNGS, RUNG, ceiling, solve_rates
from deeplinear._learning_rate.scan import Scan
from deeplinear._learning_rate.valleys import NEARLY
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import changes_without_rate, up_to
from deeplinear._theory.curves import Curve, curves, worth_batching

Array = NDArray[np.float64]

_ROUNDING = 1e-12
"""Fraction of what can be learned at the start below which what is left to learn is mostly rounding error."""

_BEYOND = 3
"""Rungs in a row, at the top, whose loss must end above where it began."""

_LOWER = 2
"""Rungs that are tried at a time below the others, as few of them may be enough."""

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

SLOPE = 2.5
"""Cost of a loss with its slope, in units of a solution."""

REFINING = 4 * SLOPE + 10
"""Cost that is usual after the scan: some slopes, and looks around the optimum."""


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


def search(problem: Problem, excess: Excess, counter: Counter) -> Scan:
    """Solve rates until the least loss is enclosed, and no lower one is to be expected anywhere.

    The first ones are two rungs apart, which is near enough where losses in between follow from a run.
    """

    def solve(places: Sequence[float]) -> list[Array]:
        counter.expect(len(places) + REFINING)
        solved = solve_rates(problem, [math.exp(x) for x in places], counter.advance)
        return [excess(curve) for curve in solved]

    # The few steps after which runs blow up count for nothing.
    top, rung = math.log(ceiling(problem, lambda _: counter.advance(0.0))), math.log(RUNG)
    count = worth_batching(problem, 16)
    is_long = problem.steps * problem.data.outputs >= _LONG
    resolution = rung / (_RESOLUTION_IF_LONG if is_long else _RESOLUTION)
    scan = Scan(solve, count, excess.rounding, excess.label_noise, resolution)
    scan.add([top])  # which soon ends, and others would go on with it
    scan.add([top - 2 * rung * (index + 1) for index in range(max(count, 3))])
    start = float(solve([top + math.log(_VANISHING)])[0][-1]) if changes_without_rate(problem) else None
    while not (_is_enclosed_below(scan) if start is None else _is_back_at(start, scan)):
        if len(scan.probes) > MOST_RUNGS // 2:
            tried = f"from {math.exp(scan.probes[0].x):.3g} to {math.exp(top):.3g}"
            # Other rules, or phases with rules of their own, lower the loss without this rate.
            does = "lowers the {} loss" if start is None else "makes the {} loss lower than a vanishing one does"
            raise ArithmeticError(f"no learning rate {tried} {does.format(excess.objective)}")
        scan.add([scan.probes[0].x - 2 * rung * (index + 1) for index in range(min(count, _LOWER))])
    # What blew up early has recovered.
    while any(probe.final <= (probe.loss[0] if start is None else start) for probe in scan.probes[-_BEYOND:]):
        scan.add([scan.probes[-1].x + rung * (index + 1) for index in range(_BEYOND)])
    scan.divide()
    return scan


def _is_back_at(start: float, scan: Scan) -> bool:
    """Whether the lowest rate is far below the best, and its loss nearly that of a vanishing rate."""
    lowest, best = scan.probes[0], scan.best
    return best.x - lowest.x > _FAR and lowest.final > 0.5 * (best.final + start)


def _is_enclosed_below(scan: Scan) -> bool:
    """Whether lower rates only train less: the lowest run falls all the way, and is far behind the best.

    It need not be as far where it follows from the next higher run: the error of that, halved with each further rung,
    then adds up to no more than twice as much.
    """
    lowest, best = scan.probes[0], scan.best
    if lowest.final > _MONOTONE * lowest.least():
        return False
    followed = scan.followed(0)
    initial = float(lowest.loss[0])
    half_way = 0.5 * (best.final + initial)
    if followed is not None and best is not lowest:
        least = lowest.final * math.exp(-2 * followed.off)
        return least > min(NEARLY * (best.final + scan.offset) - scan.offset, half_way)
    is_behind = lowest.final > min(_BEHIND * best.final, half_way)
    is_far = best.x - lowest.x > _FAR
    return is_far and is_behind
