"""Measurements that several claims share."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._reproduce.agreement import Distance, distance
from deeplinear._reproduce.claim import LINE_WIDTH, MOVES, Check, Claim
from deeplinear._reproduce.results import Optima, Trained, Trainings

Array = NDArray[np.float64]

ROUNDING = 1e-6
"""What solvers leave of a number that is zero, with room to spare: they agree to 1e-9."""


def jackknife(curves: Sequence[Array], statistic: Callable[..., float]) -> tuple[float, float]:
    """Return a statistic of mean curves over networks, and its standard error, from leaving out one network at a time.

    Parameters
    ----------
    curves
        Losses, shape (seed, step) each. The same seed is left out of all of them, so that what they share, such as
        initial weights, does not count as scatter.
    statistic
        Called with the mean of each.

    Examples
    --------
    >>> losses = np.array([[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]])
    >>> value, error = jackknife([losses], lambda mean: mean[1])
    >>> value, round(error, 6)  # that of a mean: standard deviation over the root of the number
    (3.0, 0.57735)
    """
    count = min(len(each) for each in curves)
    kept = [each[:count] for each in curves]
    totals = [each.sum(axis=0) for each in kept]
    with np.errstate(all="ignore"):
        value = float(statistic(*(total / count for total in totals)))
        if count < 2:
            return value, math.nan
        without = np.array(
            [
                statistic(*((total - each[seed]) / (count - 1) for total, each in zip(totals, kept, strict=True)))
                for seed in range(count)
            ]
        )
        return value, float(np.sqrt((count - 1) / count * ((without - np.mean(without)) ** 2).sum()))


def both(
    name: str,
    lines: Sequence[Trained],
    statistic: Callable[..., float],
    low: float = -math.inf,
    high: float = math.inf,
    loss: str = "test_loss",
) -> tuple[Check, ...]:
    """Check a statistic of one or more curves in theory, and in networks where all of the lines have them."""
    found = [Check(name, "theory", statistic(*(each.theory(loss) for each in lines)), None, low, high)]
    if all(each.has_networks for each in lines):
        value, error = jackknife([each.networks(loss) for each in lines], statistic)
        found.append(Check(name, "networks", value, error, low, high))
    return tuple(found)


def ordered(
    lines: Sequence[Trained], statistic: Callable[..., float], what: str, loss: str = "test_loss"
) -> tuple[Check, ...]:
    """Check that a statistic grows from each line to the next, in theory and in networks."""
    checks: list[Check] = []
    for a, b in itertools.pairwise(lines):
        name = f"{what}, {b.line.label} less {a.line.label}"
        checks += both(name, [a, b], lambda first, second: statistic(second) - statistic(first), low=0.0, loss=loss)
    return tuple(checks)


def follows(results: Trainings) -> Claim:
    """Theory follows the networks on every line."""
    found = {each.line.label: distance(each.theory(), each.networks()) for each in results.trained}
    return _following("over all steps", found)


def follows_in_log_time(results: Trainings) -> Claim:
    """Theory follows the networks on every line, where steps are shown on a logarithmic axis."""

    def deviation(each: Trained) -> Distance:
        return distance(each.theory()[1:], each.networks()[:, 1:], 1 / np.arange(1.0, len(each.theory())))

    found = {each.line.label: deviation(each) for each in results.trained}
    return _following("over the logarithm of the step, as in the picture,", found)


def _following(over: str, deviations: dict[str, Distance]) -> Claim:
    return Claim(
        "theory follows the networks on every curve",
        f"the relative deviation, its root mean square {over} is below {LINE_WIDTH:g}: a line of the picture is about "
        "that wide",
        tuple(
            Check(f"deviation at {label}", "networks", each.value, each.error_towards(LINE_WIDTH), high=LINE_WIDTH)
            for label, each in deviations.items()
        ),
        why="Networks of finite size deviate in proportion to 1/D (on power-law data, 1/N and 1/B), and the more the "
        "further the loss has fallen; it takes many of them to tell deviation from scatter.",
    )


def moves(results: Optima, low: float, high: float) -> tuple[Check, ...]:
    """Check the exponent with which the optimum moves, in theory and in networks."""
    name = f"d log lr* / d log {results[0].line.group}"
    return (
        Check(name, "theory", results.exponent, None, low, high),
        Check(name, "networks", *results.measured_exponent, low, high),
    )


STAYING = (
    f"the exponent lies within ± {MOVES:g}: ten times the size then changes the rate by less than one step on a "
    "grid of ten rates per decade"
)
MOVING = f"the exponent is above {MOVES:g}, from where on a rate does not count as staying (see the panels in muP)"


def steps_to(loss: Array, level: float) -> float:
    """Step at which a loss first falls below a level, interpolated; nan if it never does."""
    below = np.flatnonzero(loss <= level)
    if not len(below):
        return math.nan
    first = below[0]
    if first == 0:
        return 0.0
    a, b = np.log(loss[first - 1 : first + 1])
    return float(first - 1 + (a - math.log(level)) / (a - b))


def optima(results: Optima) -> str:
    """Write the optimum of each line."""
    theory = ", ".join(f"{each.lr:.3g} at {each.line.label}" for each in results)
    return f"optima in theory: {theory}"


def lists(labels: list[str], values: list[Any], form: str = "{:.3g}") -> str:
    """Write values with what they belong to."""
    return ", ".join(f"{form.format(value)} at {label}" for label, value in zip(labels, values, strict=True))


def half_way(law: float, *rivals: float) -> float:
    """Half the distance from a law to the nearest of its rivals: whoever is closer than that follows this law.

    Examples
    --------
    >>> half_way(0.5, 0.3, 1.5, 0.5)  # a rival that says the same is none
    0.1
    """
    return min(abs(law - rival) for rival in rivals if not math.isclose(law, rival)) / 2


def late_exponent(each: Trained) -> tuple[float, float]:
    """Exponent of theory over the last decade of steps, and its error as one of late times.

    The error is how far the exponent still drifts: by how much that of the second half of the decade differs from that
    of the first. A claim about late times then has to clear its bound by three more such changes.
    """
    last = float(each.times[-1])
    middle = last / math.sqrt(10)
    drift = each.fit(middle, last).exponent - each.fit(last / 10, middle).exponent
    return each.fit(last / 10, last).exponent, abs(drift)
