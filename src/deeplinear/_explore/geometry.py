"""What the page asks of the geometry of training: curvature, lines in weight space, singular values of the weights."""

from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._explore.curvature import VECTORS, looked_at
from deeplinear._explore.problems import read_problem
from deeplinear._explore.progress import Report, refuse_if_long, steps

LINES = ("line", "gradient", "sharpest", "ema", "twins")
"""Lines in weight space that the page shows."""


def read_along(value: Any) -> str:
    """Return the name of a line, or refuse it."""
    if not isinstance(value, str) or value not in LINES:
        raise Refusal("along", value, " or ".join(LINES))
    return value


def sharpness(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return the ends of the spectrum of the Hessian at some steps, and the limit above which steps overshoot."""
    problem = read_problem(request["problem"])
    refuse_if_long(problem, report, runs=10, call="dl.sharpness", every_step=True)
    found = dl.sharpness(problem, looked_at(problem), VECTORS, progress=steps(report, "looking at the curvature"))
    names = ("times", "largest", "largest_error", "lowest", "lowest_error", "edge", "outliers", "limit")
    return {name: getattr(found, name) for name in names}


def landscape(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return the losses along a line in weight space; ``barrier`` is None along lines that join no two points."""
    problem, along = read_problem(request["problem"]), read_along(request.get("along"))
    refuse_if_long(problem, report, runs=4 if along == "twins" else 2, call="dl.landscape", every_step=True)
    try:
        found = dl.landscape(problem, along, progress=steps(report, "looking along the line"))
    except (ArithmeticError, np.linalg.LinAlgError) as error:
        raise _without_end(problem, error) from None
    names = ("positions", "train_loss", "test_loss", "barrier")
    return {name: getattr(found, name) for name in names} | {"along": along}


def weights(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return the singular values of each weight layer at some steps: the end of the bulk, and what is beyond it.

    ``learned`` is the largest one of what was learned.
    """
    problem = read_problem(request["problem"])
    refuse_if_long(problem, report, runs=10, call="dl.weight_spectra", every_step=True)
    try:
        found = dl.weight_spectra(problem, looked_at(problem), progress=steps(report, "looking at the weights"))
    except (ArithmeticError, np.linalg.LinAlgError) as error:
        raise _without_end(problem, error) from None
    names = ("times", "edge", "outliers", "update_rank", "target_alignment", "neighbour_alignment")
    return {name: getattr(found, name) for name in names} | {"learned": found.update.max(axis=2, initial=0.0)}


def _without_end(problem: dl.Problem, error: Exception) -> Exception:
    """Return what to say if there are no last weights to look at."""
    at = dl.solve(problem).status.diverged_at
    if at is None:
        return error
    return ArithmeticError(f"training blows up at step {at}, so that there are no last weights: lower the rate")
