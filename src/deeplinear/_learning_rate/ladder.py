"""Rates on a ladder, a factor sqrt(2) from rung to rung, and the rate at which training blows up at once.

Rungs are the same whatever rate a problem has, so that what is found does not depend on it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deeplinear._core.refusal import Refusal
from deeplinear._problem.problem import Problem, check_problem
from deeplinear._problem.rate import has_schedule, up_to, with_rate
from deeplinear._solvers.base import Unresolved
from deeplinear._solvers.dense import Dense
from deeplinear._theory.curves import Curve, curves
from deeplinear._time.axis import EveryStep

RUNG = math.sqrt(2.0)
MOST_RUNGS = 100

_POWERS = (5, 30)
"""Powers of 8, either way, among which a rate that blows up is looked for: four decades, and 27 if need be."""

_ANCHOR = 1.1
"""A rate that is a rung. At powers of 2 simple problems have exact solutions, which would look like rounding."""

_NOBODY = ": all layers are frozen, or there are no hidden matrices and the other weights have a rule of their own"

Advance = Callable[[float], object]


def check(problem: Any) -> None:
    """Refuse what is no problem, or too short for the rate to matter."""
    check_problem(problem)
    if problem.steps < 2:
        raise Refusal("steps", problem.steps, "at least 2 for the learning rate to matter")
    if problem.phases and problem.phases[0].optimizer is not None:
        allowed = "without an optimizer of its own in the first phase for the learning rate of the problem to matter"
        raise Refusal("phases", problem.phases, allowed, got=f"one of {type(problem.phases[0].optimizer).__name__}")
    if not _uses_rate(problem):
        allowed = "a rule whose learning rate some weights use"
        raise Refusal("optimizer", problem.optimizer, allowed, got=type(problem.optimizer).__name__, rest=_NOBODY)
    if not problem.optimizer.rates(problem.steps)[:-1].any():
        allowed = f"above zero at some step before step {problem.steps - 1}, at which the loss counts"
        raise Refusal("lr", problem.optimizer.lr, allowed, got="a schedule that is zero at all of them")


def _uses_rate(problem: Problem) -> bool:
    """Whether any weights are trained at the rate of the problem's optimizer."""
    rule, hidden = problem.optimizer, problem.network.hidden_matrices
    if rule.orthogonal is not None and (rule.orthogonal.input or hidden):
        return True
    return rule.other is None and bool(problem.layer_rates(rule).any())


def solve_rates(problem: Problem, rates: Sequence[float], advance: Advance | None = None) -> list[Curve]:
    """Return the losses of a problem at other rates; every run is solved step by step.

    At high rates losses of infinite depth can grow along the depth faster than any number of nodes resolves. For a
    search such a rate diverges.
    """
    solved = solve_or_none([with_rate(problem, rate) for rate in rates], advance)
    return [_diverged(problem) if curve is None else curve for curve in solved]


def solve_or_none(problems: Sequence[Problem], advance: Advance | None = None) -> list[Curve | None]:
    """Return the losses of problems, each solved step by step; None for an infinite depth that is not resolved."""
    # Nodes in depth are chosen for each problem on its own, so nothing is lost by solving these one by one.
    alone = [index for index, problem in enumerate(problems) if Dense().shape(problem).depth_nodes]
    others = [index for index in range(len(problems)) if index not in alone]
    found: dict[int, Curve | None] = dict(
        zip(others, curves([problems[index] for index in others], advance=advance), strict=True)
    )
    for index in alone:
        try:
            (found[index],) = curves([problems[index]], advance=advance)
        except Unresolved:
            found[index] = None
    return [found[index] for index in range(len(problems))]


def _diverged(problem: Problem) -> Curve:
    """Losses of a run that is lost after its first step."""
    (first,) = curves([up_to(problem, 0)])
    beyond = np.full(problem.steps - 1, np.inf)
    test, train = (np.concatenate([loss, beyond]) for loss in (first.test_loss, first.train_loss))
    return Curve(EveryStep(problem.steps), test, train, diverged_at=1)


def ceiling(problem: Problem, advance: Advance | None = None) -> float:
    """Find a rate at which training blows up soon, while the next rung down does not.

    Raises
    ------
    ArithmeticError
        If training does not diverge at any rate.
    """
    unit, steps = _unit(problem), 8
    while True:
        short = up_to(problem, min(steps, problem.steps) - 1)

        def first(rates: list[float], short: Problem = short) -> float | None:
            solved = zip(rates, solve_rates(short, rates, advance), strict=True)
            return next((rate for rate, curve in solved if _blows_up(curve)), None)

        for most in _POWERS:
            rates = [unit * 8.0**power for power in range(-most, most + 1)]
            coarse = first(rates)
            # If the lowest of the rates blows up, so may lower ones.
            if coarse is not None and (coarse > rates[0] or most == _POWERS[-1]):
                return first([coarse / RUNG**rung for rung in range(5, -1, -1)]) or coarse
        if steps >= problem.steps:
            raise ArithmeticError(f"training does not diverge at any learning rate up to {rates[-1]:.3g}")
        steps *= 4  # the rates of a schedule may start from zero


def _unit(problem: Problem) -> float:
    """What rates are multiples of: a number that is special to no problem, or its part of a schedule's largest rate."""
    if not has_schedule(problem):
        return _ANCHOR
    return _ANCHOR / (float(problem.optimizer.rates(problem.steps).max()) or 1.0)


def _blows_up(curve: Curve) -> bool:
    return curve.diverged_at is not None or bool(curve.train_loss[-1] > 100 * curve.train_loss[0])
