"""Obvious reasons for which curves are not those of a theory: factors and steps that somebody got wrong."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplinear._comparison.observables import ObservableComparison
from deeplinear._core.dataset import LOSSES
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import has_schedule, rate_of, with_rate
from deeplinear._theory.curves import Curve, curves
from deeplinear._theory.solution import Solution

Array = NDArray[np.float64]

_EXPLAINS = 0.1
"""Part of a deviation that a cause may leave."""

_WITHIN = 2.0
"""Standard errors that it may leave, too."""

_LONGEST = 200
"""Steps up to which theory is solved for other rates, fifty times or so."""

_LONGEST_ONCE = 1000
"""Steps up to which it is solved once, to have more steps."""

_LARGEST = 8.0
"""Factor of the rate up to which others are tried."""

_MOST = 10
"""Factor of the steps up to which others are tried."""


class _Measured(NamedTuple):
    """A mean curve, at steps where it is finite, and its relative error."""

    name: str
    times: NDArray[np.int64]
    mean: Array
    error: Array


class _Cause(NamedTuple):
    words: str
    losses: Callable[[str, NDArray[np.int64]], Array]
    """Losses by name and steps, nan where they are not known."""


def find_cause(theory: Solution, observables: Sequence[ObservableComparison]) -> str:
    """Return the cause that explains most of a deviation of the losses, in words; empty if none does."""
    curves_of = [each for each in map(_measured, observables) if each is not None]
    if not curves_of:
        return ""
    before = _distance(curves_of, lambda name, times: theory.at(times)[name].values)
    if not before > 0:
        return ""
    noise = math.sqrt(float(np.mean([np.mean(each.error**2) for each in curves_of])))
    found = [(_distance(curves_of, cause.losses), cause.words) for cause in _causes(theory, curves_of)]
    least, words = min(found, default=(math.inf, ""))
    return words if least <= max(_EXPLAINS * before, min(_WITHIN * noise, 0.5 * before)) else ""


def _measured(observable: ObservableComparison) -> _Measured | None:
    if observable.name not in LOSSES:
        return None
    use = np.isfinite(observable.mean) & (observable.mean > 0) & (observable.theory > 0)
    if not use.any():
        return None
    mean, error = observable.mean[use], observable.standard_error[use]
    return _Measured(observable.name, observable.times[use], mean, np.nan_to_num(error / mean))


def _distance(measured: Sequence[_Measured], losses: Callable[[str, NDArray[np.int64]], Array]) -> float:
    """Root mean square of the logarithms of the ratios; infinite where less than half can be told."""
    rest, count = [], 0
    for each in measured:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            logs = np.log(each.mean / losses(each.name, each.times))
        rest.append(logs[np.isfinite(logs)])
        count += len(each.times)
    together = np.concatenate(rest)
    return float(np.sqrt(np.mean(together**2))) if 2 * len(together) >= count else math.inf


def _causes(theory: Solution, measured: Sequence[_Measured]) -> Iterator[_Cause]:
    """Try the simplest first."""
    yield from _factors(theory)
    yield _Cause("the test and train losses are each other's: swap them", _swapped(theory))
    yield from _shifts(theory)
    yield from _more_steps(theory.problem, measured)
    yield from _rates(theory.problem, measured)


def _factors(theory: Solution) -> Iterator[_Cause]:
    def times(factor: float) -> Callable[[str, NDArray[np.int64]], Array]:
        return lambda name, steps: factor * np.asarray(theory.at(steps)[name].values)

    yield _Cause("the losses are half of theory's, as with a factor of 1/2: multiply them by 2", times(0.5))
    yield _Cause("the losses are twice those of theory: divide them by 2", times(2.0))
    if (outputs := theory.problem.data.outputs) > 1:
        words = f"the losses are a mean over {outputs} outputs, where theory has their sum: multiply them by {outputs}"
        yield _Cause(words, times(1 / outputs))


def _swapped(theory: Solution) -> Callable[[str, NDArray[np.int64]], Array]:
    def losses(name: str, steps: NDArray[np.int64]) -> Array:
        other = LOSSES[1] if name == LOSSES[0] else LOSSES[0]
        return np.asarray(theory.at(steps)[other].values)

    return losses


def _shifts(theory: Solution) -> Iterator[_Cause]:
    def shifted(by: int) -> Callable[[str, NDArray[np.int64]], Array]:
        def losses(name: str, steps: NDArray[np.int64]) -> Array:
            at = steps + by
            known = (at >= 0) & (at < theory.problem.steps)
            values = np.full(len(steps), np.nan)
            values[known] = theory.at(at[known])[name].values if known.any() else []
            return values

        return losses

    yield _Cause(
        "the losses are those one step later: recorded after each update, their steps begin with 1", shifted(1)
    )
    yield _Cause("the losses are those one step earlier: step 0 is the network before its first update", shifted(-1))


def _more_steps(problem: Problem, measured: Sequence[_Measured]) -> Iterator[_Cause]:
    """Steps that count several updates, or a part of one."""
    last = max(int(each.times[-1]) for each in measured)
    most = min(_MOST, (_LONGEST_ONCE - 1) // max(last, 1))
    if has_schedule(problem) or problem.phases or last < 2:
        return
    if most > 1 and (longer := _solved([problem.replace(steps=most * last + 1)])):
        for factor in range(2, most + 1):
            words = f"each step of the curves is {factor} updates of theory: give steps=... in updates"
            yield _Cause(words, _read(longer[0], partial(np.multiply, factor)))
        for factor in range(2, _MOST + 1):
            words = f"{factor} steps of the curves are one update of theory: give steps=... in updates"
            yield _Cause(words, _read(longer[0], partial(_divided, factor)))


def _divided(factor: int, steps: NDArray[np.int64]) -> NDArray[np.int64]:
    return steps // factor


def _rates(problem: Problem, measured: Sequence[_Measured]) -> Iterator[_Cause]:
    """Other learning rates: first on a grid, then around the best of it."""
    if problem.steps > _LONGEST or not 0 < rate_of(problem) < math.inf:
        return
    factors = np.geomspace(1 / _LARGEST, _LARGEST, 25)
    for width in (factors[1] / factors[0], 1.06, 1.015, 1.003):
        solved = _solved([with_rate(problem, factor * rate_of(problem)) for factor in factors])
        if not solved:
            return
        distances = [_distance(measured, _read(each)) for each in solved]
        best = int(np.argmin(distances))
        factor, curve = float(factors[best]), solved[best]
        factors = factor * np.geomspace(1 / width, width, 9)
    if abs(math.log(factor)) > 0.02 and math.isfinite(min(distances)):
        yield _Cause(_rate_in_words(problem, factor), _read(curve))


def _rate_in_words(problem: Problem, factor: float) -> str:
    own = "" if has_schedule(problem) else f" ({factor * rate_of(problem):.3g} instead of {rate_of(problem):.3g})"
    words = f"the losses are as with a learning rate {factor:.3g} times as large{own}"
    if abs(math.log2(factor) - round(math.log2(factor))) < 0.05 and 0.4 < factor < 2.5:
        words += ", as where one of the two losses has a factor of 1/2 and the other none"
    return words


def _solved(problems: Sequence[Problem]) -> list[Curve]:
    """Solve problems; none of them where one cannot be solved."""
    try:
        return curves(problems)
    except (ValueError, ArithmeticError, MemoryError):
        return []


def _read(
    curve: Curve, steps_of: Callable[[NDArray[np.int64]], NDArray[np.int64]] = lambda steps: steps
) -> Callable[[str, NDArray[np.int64]], Array]:
    return lambda name, steps: np.asarray(curve.axis.at(getattr(curve, name), steps_of(steps)))
