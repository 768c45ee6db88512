"""What the page asks about runs that are still to be done: the best schedule, and what a budget is best spent on."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._explore.problems import MOST, read_problem
from deeplinear._explore.progress import Report, refuse_if_long, steps

LONGEST_SCHEDULE = 200
"""Most steps of a schedule that the page optimises."""

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Widths of a plan, over that of the problem."""

_RUNS = {"schedule": 800, "plan": 24 * len(FACTORS)}
"""Solutions that each takes, about."""

_CLOSE = 1e-3
"""Relative difference of the loss at which fewer knots stand for all rates."""

Array = NDArray[np.float64]


def schedule(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return the best schedule as knots of a multiplier, its largest rate, and the losses of named schedules.

    ``loss`` is that of the best schedule, and ``drawn_loss`` that of straight lines between the knots.
    """
    problem = read_problem(request["problem"])
    check_schedule(problem)
    refuse_if_long(problem, report, runs=_RUNS["schedule"], call="dl.optimal_schedule", always=True)
    found = dl.optimal_schedule(problem, progress=steps(report, "finding the best schedule"))
    rates = np.array(found.schedule)
    rates[-1] = rates[-2]  # has no effect
    peak = float(f"{rates.max():.6g}")  # as it is shown
    knots, loss = _fewest(found, np.array([float(f"{each:.6g}") for each in rates / peak]), peak)
    return {
        "lr": peak,
        "knots": knots,
        "loss": found.loss,
        "drawn_loss": loss,
        "families": {name: family.loss for name, family in found.families.items()},
        "at_edge": found.at_edge,
    }


def check_schedule(problem: dl.Problem) -> None:
    """Refuse runs that are too short for a schedule to matter, or too long for the best one to be found here."""
    if problem.steps < 3:
        raise Refusal("steps", problem.steps, "at least 3 for a schedule to matter")
    if problem.steps > LONGEST_SCHEDULE:
        rest = ": the best schedule of a longer run takes minutes; call dl.optimal_schedule in Python"
        raise Refusal("steps", problem.steps, f"at most {LONGEST_SCHEDULE} for this", rest=rest)


def _fewest(found: dl.OptimalSchedule, factors: Array, peak: float) -> tuple[list[tuple[float, float]], float]:
    """Return knots between which straight lines come to nearly the same loss, as few as that takes, and this loss."""
    every, most = np.arange(len(factors)), min(len(factors), MOST["knots"])
    chosen, loss = [0, len(factors) - 1], np.inf
    for count in sorted({min(each, most) for each in (8, 16, 32, most)}):
        while len(chosen) < count:
            off = np.abs(np.interp(every, chosen, factors[chosen]) - factors)
            off[chosen] = -1.0
            chosen = sorted([*chosen, int(off.argmax())])
        drawn = peak * np.interp(every, chosen, factors[chosen])
        loss = float(dl.solve(found.problem.replace(lr=tuple(drawn.tolist()))).test_loss[-1])
        if abs(loss - found.loss) <= _CLOSE * found.loss:
            break
    return [(at / every[-1], float(factors[at])) for at in chosen], loss


def plan(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return losses and costs of networks of several widths after every number of updates, and the frontier."""
    problem = read_problem(request["problem"])
    largest = problem.replace(width=FACTORS[-1] * check_plan(problem))
    refuse_if_long(largest, report, runs=_RUNS["plan"], call="dl.plan", always=True)
    compute = dl.training_cost(largest)
    found = dl.plan(problem, compute, progress=steps(report, "solving every width at many learning rates"))
    frontier = found.frontier
    return {
        "widths": found.grid["width"],
        "updates": found.horizons,
        "losses": found.losses,
        "costs": found.costs,
        "lrs": found.lrs,
        "frontier": {"compute": frontier.compute, "loss": frontier.loss + found.label_noise},
        "exponents": {name: value for name, (value, _) in frontier.exponents.items()},
        "label_noise": found.label_noise,
        "is_ratio": not problem.data.dimension_free,
    }


def check_plan(problem: dl.Problem) -> float:
    """Return the width of a problem, of which a plan tries multiples, or refuse what cannot be planned."""
    width = problem.network.width
    if not isinstance(width, float | int) or not np.isfinite(width):
        raise Refusal("width", width, "one finite number for a plan, which tries a quarter to four times as much")
    if problem.data.dimension_free and problem.data.own_dim is None:
        raise Refusal("data", problem.data, "of finite dimension", text=_NO_COST)
    if problem.optimizer.has_schedule:
        raise Refusal("schedule", None, "constant for a plan, which finds the best rate of every run", got="another")
    if problem.steps < 2:
        raise Refusal("steps", problem.steps, "at least 2 for a plan")
    return float(width)


_NO_COST = "a plan counts operations, which are infinitely many with infinitely many inputs: choose other data"
