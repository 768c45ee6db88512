"""Checks of ``make fuzz``, each of which holds for any problem that it applies to."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._problem.rate import up_to
from deeplinear._solvers.choose import Choice
from deeplinear._solvers.reference import reference
from fuzz_problems import MOST_TRAFFIC, traffic
from fuzz_questions import ask

ROUNDING = 1e-8
"""Two ways to the same answer may differ by this much of the largest loss so far, since training amplifies rounding."""
ALLOWED = 10.0
"""Most that a true error may be, in units of the reported one."""


class Broken(AssertionError):
    """A check did not hold."""


class GaveUp(Exception):
    """A method says that it cannot solve a run, and there is nothing to compare."""


def answered(problem: dl.Problem, solution: dl.Solution) -> None:
    """A status, and numbers up to a divergence, infinite from there on; none negative, none below the noise."""
    end = solution.status.diverged_at
    _holds(end is None or 0 < end < problem.steps, f"diverged at {end}")
    before = np.ones(len(solution.times), bool) if end is None else solution.times < end
    for name in ("test_loss", "train_loss", "kernel", *(f"decomposition.{part}" for part in ("bias", "width", "data"))):
        curve = solution
        for word in name.split("."):
            curve = getattr(curve, word)
        _holds(bool(np.isfinite(curve[before]).all()), f"{name} is not finite before the end")
        _holds(bool((curve[before] >= 0).all()), f"{name} is negative")
        _holds(bool(np.isposinf(curve[~before]).all()), f"{name} is finite after the divergence")
    _holds(
        bool((solution.test_loss >= least_loss(problem, solution.times) * (1 - 1e-9)).all()),
        "test loss below the label noise",
    )


def least_loss(problem: dl.Problem, times: Any) -> Any:
    """Noise of the labels at some steps, below which no test loss is."""
    noise = np.concatenate([np.full(stage.steps, stage.noise) for stage in problem.stages])
    return problem.data.outputs * noise[np.asarray(times, int)] ** 2


def same_again(problem: dl.Problem, solution: dl.Solution) -> None:
    """The same problem has the same answer, to the last bit, and so has its TOML file."""
    again = dl.solve(dl.Problem.from_toml(problem.to_toml()))
    for name in ("test_loss", "train_loss"):
        _holds(np.array_equal(getattr(again, name), getattr(solution, name)), f"{name} differs")


def batch(problem: dl.Problem, solution: dl.Solution) -> None:
    """A problem that is solved together with another one has the answer that it has alone."""
    other = replace(problem, optimizer=problem.optimizer.scaled(0.5, problem.steps))
    together = dl.solve([other, problem, other], method="dense")[1]
    _agree(together, solution, ROUNDING)


def against_reference(problem: dl.Problem, solution: dl.Solution) -> None:
    """The slow reference finds the same losses.

    It solves for all steps at once, so that what overflows after a divergence would cost it the digits of step 0. It
    also takes the difference from the function at initialisation, of which rounding leaves 1e-15.
    """
    least = 1e-15 / ROUNDING * initial_loss(problem) if problem.network.centered else 0.0
    end = solution.status.diverged_at or problem.steps
    with np.errstate(all="ignore"):
        expected = reference(up_to(problem, end - 1))
    for name in ("test_loss", "train_loss"):
        _close(getattr(solution, name)[:end], expected[name][:end], ROUNDING, name, least)


def two_times(problem: dl.Problem, solution: dl.Solution) -> None:
    """Two-time functions are finite up to a divergence, correlations symmetric; parts of variance sum to the loss."""
    end = problem.data.outputs * (solution.status.diverged_at or problem.steps)
    for name in ("feature", "gradient", "error", "residual"):
        C = getattr(solution, f"{name}_correlation")[..., :end, :end]
        _holds(bool(np.isfinite(C).all()), f"{name}_correlation is not finite")
        size = np.abs(C).max(initial=0.0)
        _holds(bool(np.abs(C - np.swapaxes(C, -1, -2)).max(initial=0.0) <= ROUNDING * size), f"{name}: not symmetric")
        if name != "feature" or problem.network.richness > 1e-100:  # what answers to one step is of order 1 / richness
            R = getattr(solution, f"{name}_response")[..., :end, :end]
            _holds(bool(np.isfinite(R).all()), f"{name}_response is not finite")
    if any(stage.optimizer.averaging is not None for stage in problem.stages):
        return  # whose parts of variance are not known
    whole = sum(vars(solution.variance).values())
    steps = end // problem.data.outputs
    # Replicas on nodes in depth settle to what rounding leaves of the function that is subtracted, unless that is huge.
    on_nodes = "depth_nodes" in solution.stats and problem.network.richness > 0.1
    floor = 1e-15 * initial_loss(problem) if on_nodes else 0.0
    _close(whole[:steps], solution.test_loss[:steps], 1e-6, "parts of variance", floor / 1e-6)


def averages(problem: dl.Problem, solution: dl.Solution) -> None:
    """Averages of the weights leave the losses as they are; one that keeps the last weights alone has these losses."""
    found = dl.solve(problem, averages=(dl.EMA(0.0), dl.EMA(0.9), dl.TailMean(0.5)))
    _agree(found, solution, ROUNDING)
    end = solution.status.diverged_at or problem.steps
    losses = found.averaged_test_loss[:, :end]
    _holds(bool(np.isfinite(losses).all()), "a loss of averaged weights is not finite")
    least = least_loss(problem, np.arange(end)) * (1 - 1e-9)
    _holds(bool((losses >= least).all()), "a loss of averaged weights is below the label noise")
    known = min(end, solution.status.rounding_at or end)
    _close(losses[0, :known], solution.test_loss[:known], 1e-6, "loss of the last weights")


def initial_loss(problem: dl.Problem) -> float:
    """Test loss before training, of the network as it is."""
    first = replace(up_to(problem, 0), network=replace(problem.network, centered=False))
    return float(dl.solve(first).test_loss[0])


def panels(problem: dl.Problem, solution: dl.Solution) -> None:
    """Panels find what every step finds, as closely as they say."""
    _as_reported(problem, solution, "panels")


def coarse(problem: dl.Problem, solution: dl.Solution) -> None:
    """Coarse steps find what every step finds, as closely as they say."""
    _as_reported(problem, solution, "coarse")


def condensed(problem: dl.Problem, solution: dl.Solution) -> None:
    """With a condensed past every step finds what it finds with all of it, as closely as it says."""
    _as_reported(problem, solution, "condensed")


def questions(problem: dl.Problem, solution: dl.Solution) -> None:
    """Every other question has an answer in words, or a sentence that says why not, whatever its arguments."""
    _holds(bool(str(_compared(problem, solution))), "an answer without words")
    broken = ask(problem)
    _holds(not broken, "; ".join(broken))


def _compared(problem: dl.Problem, solution: dl.Solution) -> Any:
    try:
        return dl.compare(solution, dl.simulate(problem, 6, 2, workers=1))
    except (Refusal, MemoryError) as refusal:
        return refusal


def _is_small(problem: dl.Problem) -> bool:
    network = problem.network
    exact = not network.centered or network.richness > 0.05  # else double precision does not do for the reference
    # What it leaves of a difference that is zero has a direction, which rules that divide by its size follow.
    rules = [stage.optimizer for stage in problem.stages]
    divides = any(rule.scaling or rule.ascent or rule.orthogonal for rule in rules)
    exact &= not (network.centered and divides and not problem.data.modes.target.any())
    return problem.steps <= 8 and network.depth <= 3 and network.gamma0 > 0 and exact


def _is_compared(steps: int) -> bool:
    """Whether panels are worth while in a run, and every step of it is quick to solve; or it was drawn for them."""
    return 120 < steps <= 400 or 1000 < steps <= 1500


def _may(problem: dl.Problem, method: str) -> bool:
    """Whether a method can solve a problem, and every step of it can be solved to compare with."""
    try:
        return Choice(method).solver(problem).name == method and traffic(problem, "dense") <= MOST_TRAFFIC
    except ValueError:
        return False


CHECKS: dict[str, tuple[Callable[[dl.Problem, dl.Solution], None], Callable[[dl.Problem], bool]]] = {
    "answered": (answered, lambda problem: True),
    "same again": (same_again, lambda problem: problem.steps <= 400),
    "batch": (batch, lambda problem: problem.steps <= 120 and problem.network.depth < 256),
    "reference": (against_reference, lambda problem: _is_small(problem) and not problem.sampling.small_batch),
    "two times": (two_times, lambda problem: problem.steps <= 40 and problem.network.depth != 10**9),
    "averages": (averages, lambda problem: problem.steps <= 60 and problem.network.depth < 256),
    "panels": (panels, lambda problem: _is_compared(problem.steps) and _may(problem, "panels")),
    "condensed": (condensed, lambda problem: 60 < problem.steps <= 400 and _may(problem, "condensed")),
    "coarse": (coarse, lambda problem: 512 < problem.steps <= 1500 and _may(problem, "coarse")),
    "questions": (questions, lambda problem: problem.steps <= 6 and problem.network.depth <= 3),
}
"""Each check, and which problems it applies to."""


def _as_reported(problem: dl.Problem, solution: dl.Solution, method: str) -> None:
    try:
        other = dl.solve(problem, method=method)
    except ArithmeticError as error:
        raise GaveUp(str(error)) from None
    exact = dl.solve(problem, method="dense")
    end = exact.status.diverged_at
    # Both say from where on losses depend on rounding, which errors are reported up to; roots may know better then.
    known = [each.status.rounding_at for each in (other, exact) if each.status.rounding_at is not None]
    depends = exact.status.rounding_at is not None or exact.solver.roots
    same = other.status.diverged_at == end or bool(known)
    _holds(
        same and depends == (other.status.rounding_at is not None), f"{method}: {other.status}, dense: {exact.status}"
    )
    steps = np.arange(min([*known, problem.steps if end is None else end]))
    losses = other.at(steps)
    for name in ("test_loss", "train_loss"):
        curve = getattr(exact, name)[steps]
        scale = np.maximum(curve, 1e-5 * curve[0])
        error = float((np.abs(losses[name].values - curve) / np.where(scale > 0, scale, 1.0)).max())
        reported = max(other.stats["error"], 1e-9)
        _holds(error <= ALLOWED * reported, f"{method}: {name} is off by {error:.2g}, reported {reported:.2g}")


def _agree(one: dl.Solution, other: dl.Solution, tolerance: float) -> None:
    ends = [solution.status.diverged_at or len(solution.times) for solution in (one, other)]
    _holds(abs(ends[0] - ends[1]) <= 1, f"{one.status} against {other.status}")
    for name in ("test_loss", "train_loss"):
        _close(getattr(one, name)[: min(ends)], getattr(other, name)[: min(ends)], tolerance, name)


def _close(actual: Any, expected: Any, tolerance: float, name: str, least: float = 1e-300) -> None:
    largest = np.maximum.accumulate(np.maximum(np.abs(expected), max(least, 1e-300)))
    worst = float((np.abs(actual - expected) / largest).max(initial=0.0))
    _holds(worst <= tolerance, f"{name} differs by {worst:.2g}")


def _holds(held: bool, message: str) -> None:
    if not held:
        raise Broken(message)
