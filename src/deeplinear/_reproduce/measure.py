"""Measurements that several claims share."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._reproduce.panel import Claim
from deeplinear._reproduce.results import Optima, Trained, Trainings

Array = NDArray[np.float64]

CLOSE = 0.05
"""Median relative deviation of networks from theory that still counts as following it."""

SIGNIFICANT = 3.0
"""Standard errors beyond which a difference counts. The steps of a curve are correlated: it is one number."""


def with_error(value: float, error: float, digits: int = 3) -> str:
    """Write a number with its uncertainty.

    Examples
    --------
    >>> with_error(0.6012, 0.008), with_error(-0.05, float("nan"), 2)
    ('0.601 ± 0.008', '−0.05')
    """
    text = f"{value:.{digits}f}" + (f" ± {error:.{digits}f}" if math.isfinite(error) else "")
    return text.replace("-", "−")


def follows(results: Trainings) -> Claim:
    """Theory follows the networks on every line: closely, or as far as the networks can tell."""
    errors = {each.label: each.error for each in results.agreements}
    away = {each.label: each.rms_z for each in results.agreements}
    worst, farthest = (max(found, key=lambda label: found[label]) for found in (errors, away))
    return Claim(
        f"theory follows the networks on every curve (to {percent(CLOSE)} or {SIGNIFICANT:g} standard errors)",
        f"median deviation up to {percent(errors[worst])} ({worst}), "
        f"rms up to {away[farthest]:.1f} standard errors ({farthest})",
        all(errors[label] < CLOSE or away[label] < SIGNIFICANT for label in errors),
    )


def percent(fraction: float) -> str:
    """Write a fraction in per cent, to two digits."""
    return f"{100 * fraction:.2g} %"


def steps_to(each: Trained, level: float, name: str = "test_loss") -> float:
    """Step at which theory first falls below a level, interpolated; inf if it never does."""
    loss, times = each.theory(name), each.times
    below = np.flatnonzero(loss <= level)
    if not len(below):
        return math.inf
    last = below[0]
    if last == 0:
        return float(times[0])
    a, b = np.log(loss[last - 1 : last + 1])
    return float(times[last - 1] + (times[last] - times[last - 1]) * (a - math.log(level)) / (a - b))


def violations(lower: Trained, higher: Trained, name: str = "test_loss") -> tuple[int, float]:
    """Check that one line lies below another: at how many steps theory does not, and the worst case of networks.

    The second number is in combined standard errors, positive where networks contradict.
    """
    wrong = int((lower.theory(name) > higher.theory(name) * (1 + 1e-9)).sum())
    if not (lower.has_networks and higher.has_networks):
        return wrong, -math.inf
    error = np.hypot(lower.error(name), higher.error(name))
    with np.errstate(invalid="ignore", divide="ignore"):
        z = (lower.mean(name) - higher.mean(name)) / error
    return wrong, float(np.nanmax(z, initial=-math.inf))


def transfer_exponents(results: Optima) -> str:
    """Write how the optimum moves, from theory and from networks."""
    theory, networks = (with_error(*each) for each in (results.exponent, results.measured_exponent))
    return f"d log lr* / d log {results[0].line.group} = {theory} (theory), {networks} (networks)"


def optima(results: Optima) -> str:
    """Write the optimum of each line."""
    return ", ".join(f"{each.lr:.3g} at {each.line.label}" for each in results)


def lists(labels: list[str], values: list[Any], form: str = "{:.3g}") -> str:
    """Write values with what they belong to."""
    return ", ".join(f"{form.format(value)} at {label}" for label, value in zip(labels, values, strict=True))
