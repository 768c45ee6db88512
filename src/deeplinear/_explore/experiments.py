"""Networks beside theory: those that the page trains, and those of others whose curves it was given."""

import base64
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._core.dataset import LOSSES
from deeplinear._core.failures import in_words
from deeplinear._core.refusal import Refusal
from deeplinear._explore.problems import UPLOADED, finite_dim, read_problem
from deeplinear._explore.progress import DENSE, Report, solve_with, steps
from deeplinear._explore.uploads import measured_of, read_file, rows_of

LONGEST_EXPERIMENT = 900.0
"""Seconds after which training is ended."""


def experiment(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Train real networks, on the rows of a data set if it was given, and compare them with theory."""
    problem, seeds = read_problem(request["problem"], whole=True), request.get("seeds")
    dim = finite_dim(problem, request.get("dim"), seeds)
    assert isinstance(seeds, int)
    data = request["problem"]["data"]
    rows = rows_of(read_file(data["file"])) if data.get("type") == UPLOADED else None
    problem = with_modes(problem, dim)
    report(stage="estimating the time")
    estimate = dl.estimate(problem, dim, seeds, record="losses", method="auto" if rows is None else "explicit")
    cost, then, trainings = estimate.experiment, estimate.theory.seconds, 1 if rows is None else 2
    seconds = math.inf if cost is None else cost.seconds
    if trainings * seconds + then > LONGEST_EXPERIMENT or not estimate.fits:
        text = f"dim is too large here: {estimate}. Lower dim, seeds, steps, width or depth."
        raise Refusal("dim", dim, "lower", text=text)
    stages = trainings + 1
    report(stage=f"1 of {stages}: training", estimate=trainings * seconds + then)
    progress = steps(report, f"1 of {stages}: training", estimate=seconds, then=(trainings - 1) * seconds + then)
    networks = dl.simulate(problem, dim, seeds, record="losses", data=rows, progress=progress)
    surrogate = networks
    if rows is not None:
        progress = steps(report, f"2 of {stages}: training on Gaussian inputs", estimate=seconds, then=then)
        surrogate = dl.simulate(problem, dim, seeds, record="losses", progress=progress)
    progress = steps(report, f"{stages} of {stages}: comparing with theory", power=DENSE, estimate=then)
    theory = dl.solve(problem, method="dense", progress=progress)
    comparison = dl.compare(theory, networks)
    return _answer(comparison, networks) | {"surrogate_off": _off(dl.compare(theory, surrogate))}


def _answer(comparison: dl.Comparison, networks: dl.Ensemble) -> dict[str, Any]:
    """Return what the page shows of networks."""
    return {
        "times": networks.times,
        **_losses(comparison, networks),
        "dim": networks.dim,
        "seeds": len(networks.seeds),
        "diverged": int((networks.diverged_at >= 0).sum()),
        "verdict": str(comparison.verdict),
        "explanation": comparison.explanation,
        "p_value": comparison.p_value,
        "max_z": comparison["test_loss"].max_z,
        "method": networks.method,
        "inputs": networks.inputs,
        "off": _off(comparison),
        "netcdf": base64.b64encode(_saved(networks.save)).decode(),
    }


def _off(comparison: dl.Comparison) -> float | None:
    """How far the test loss is from theory, at most, as a part of it; None if it is not known."""
    off = float(comparison["test_loss"].relative_error.max())
    return off if math.isfinite(off) else None


def with_modes(problem: dl.Problem, dim: int) -> dl.Problem:
    """Return the problem that networks of an input dimension are compared with.

    An infinite power law has as many modes as they have inputs: what they do not see is not learned, and at the start,
    where nothing may be random, would count as a difference.
    """
    law = problem.data
    if not law.dimension_free or law.own_dim is not None:
        return problem
    capacity, source = (getattr(law, name) for name in ("capacity", "source"))
    return problem.replace(data=dl.Spectrum.power_law(capacity, source, dim, law.noise))


def measured(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return the curves of a file, and whether they are what theory says; ``note`` says why that is not known."""
    curves = measured_of(read_file(request.get("file")))
    theory = solve_with(read_problem(request["problem"]), report, two_time=True)
    answer: dict[str, Any] = {"runs": len(curves.seeds), "verdict": None, "note": None}
    try:
        comparison = dl.compare(theory, curves)
        explanation = comparison.explanation.partition("; pass dim to measured(")[0]  # which the page cannot
        answer |= {"verdict": str(comparison.verdict), "explanation": explanation}
        answer["off"] = {each.name: float(each.relative_error.max()) for each in comparison.observables}
    except ValueError as error:
        answer["note"] = in_words(error)
    return answer | _curves(curves)


def _curves(curves: dl.Measured) -> dict[str, Any]:
    """Return the mean over runs of each loss, with its error, at the steps where all have a value."""
    found: dict[str, Any] = {"has_steps": curves.has_steps}
    for name in LOSSES:
        mean, error = curves.mean(name), curves.standard_error(name)
        known = ~np.isnan(mean)
        found[name] = {"times": curves.times[known], "mean": mean[known], "standard_error": error[known]}
    return found


def _losses(comparison: dl.Comparison, networks: dl.Ensemble) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "mean": networks.mean(name),
            "standard_error": networks.standard_error(name),
            "z": comparison[name].z,
        }
        for name in LOSSES
    }


def _saved(save: Callable[[Path], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "networks.nc"
        save(path)
        return path.read_bytes()
