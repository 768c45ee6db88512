"""What the page can ask for; each takes the request's fields and returns what JSON can hold.

``report(**message)`` tells the page how far the work has come, and raises an exception once nobody waits for it.
"""

import base64
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import deeplinear as dl
from deeplinear._core.failures import in_words
from deeplinear._core.refusal import Refusal
from deeplinear._cost.model import held_in_files, longest_short
from deeplinear._explore.code import python_lines
from deeplinear._explore.curvature import VECTORS, looked_at
from deeplinear._explore.kinds import KINDS, read_kind
from deeplinear._explore.problems import finite_dim, is_quick, read_problem
from deeplinear._explore.rates import GRID, drawn, first_rates, lowest, marks, sample, unstable

LIMITS = {
    "solve": 600.0, "correlations": 600.0, "rates": 600.0, "sharpness": 600.0, "experiment": 900.0, "netcdf": 600.0,
    "python": 10.0,
}  # fmt: skip
"""Seconds after which each task is ended."""

HEAT_MAP = 120
"""Most rows and columns of a heat map."""

_LARGEST_FILE = 400e6
_BETWEEN_REPORTS = 0.1

_DENSE = 3.0
"""The time spent grows as this power of the steps done, since each step reads what all earlier steps wrote."""


class Report(Protocol):
    """Tells the page how far the work is."""

    def __call__(self, **message: Any) -> None: ...


def read(name: str, request: dict[str, Any]) -> bool:
    """Check what a task is asked for, and return whether it takes so little that it need not wait for what is long.

    Raises
    ------
    ValueError
        If a value is not allowed.
    """
    if name == "python":
        return True
    problem = read_problem(request.get("problem"))
    if name == "correlations":
        _kind_and_layer(request)
    if name == "experiment":
        finite_dim(problem, request.get("dim"), request.get("seeds"))
    return name in ("solve", "correlations", "sharpness") and is_quick(problem)


def solve(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return the curves that theory predicts, of the first ``only`` steps if that is given."""
    problem = read_problem(request["problem"])
    only = request.get("only")
    if isinstance(only, int) and not isinstance(only, bool) and 1 <= only < problem.steps:
        problem = _first_steps(problem, only)
    theory = _solve(problem, report)
    return {
        "times": theory.times,
        "test_loss": theory.test_loss,
        "train_loss": theory.train_loss,
        "kernel": theory.kernel,
        "bias": theory.decomposition.bias,
        "width": theory.decomposition.width,
        "data": theory.decomposition.data,
        "label_noise": theory.decomposition.label_noise,
        "first_task": theory.task_loss[0] if theory.task_loss.size else None,
        "diverged_at": theory.status.diverged_at,
        "steps": problem.steps,
        "seconds": theory.stats["seconds"],
        "method": theory.stats["method"],
    }


def correlations(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return one two-time function of one layer, at few enough times to draw, summed over outputs."""
    kind, layer = _kind_and_layer(request)
    problem = read_problem(request["problem"])
    theory = _solve(problem, report)
    values, first = getattr(theory, kind), KINDS[kind]
    layers = [] if first is None else list(range(first, first + len(values)))
    if first is not None:
        layer = layer if layer is not None and layer in layers else layers[-1]
        values = values[layer - first]
    shown = np.unique(np.linspace(0, len(theory.times) - 1, HEAT_MAP).round().astype(int))
    outputs = problem.data.outputs
    by_output = values.reshape(len(theory.times), outputs, len(theory.times), outputs)
    traced = np.einsum("tcsc->ts", by_output[shown][:, :, shown])
    return {"times": theory.times[shown], "values": traced, "kind": kind, "layer": layer, "layers": layers}


def rates(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return the loss at the last step against the learning rate, and its optimum, which is the lowest point."""
    problem = read_problem(request["problem"])
    _refuse_if_long(problem, report, runs=3 * sum(count for _, _, count in GRID))
    note, found = None, None
    try:
        found = dl.optimal_lr(problem, progress=_steps(report, "1 of 2: finding the best learning rate"))
    except ArithmeticError as error:
        note = in_words(error)
    present = problem.optimizer.highest_rate(problem.steps)
    # Of a schedule the factor is found; what the page shows is its largest rate.
    unit = present if found is not None and found.is_factor else 1.0
    best = present if found is None else found.lr * unit
    progress = _steps(report, "2 of 2: loss at each learning rate")
    points = sample(problem, first_rates(best, found, unit), present, progress)
    progress(1, 1)
    optimum = points[lowest(points)]
    return {
        "lrs": np.array([point.lr for point in points]),
        "test_loss": np.array([point.test_loss for point in points]),
        "train_loss": np.array([point.train_loss for point in points]),
        "drawn": drawn(points),
        "unstable": unstable(points),
        "optimum": None
        if found is None
        else {"lr": optimum.lr, "loss": optimum.test_loss, "at_edge": found.at_edge, **marks(found, optimum.lr, unit)},
        "present": present,
        "steps": problem.steps,
        "note": note,
    }


def sharpness(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return the ends of the spectrum of the Hessian at some steps, and the limit above which steps overshoot."""
    problem = read_problem(request["problem"])
    _refuse_if_long(problem, report, runs=10, call="dl.sharpness")
    found = dl.sharpness(problem, looked_at(problem), VECTORS, progress=_steps(report, "looking at the curvature"))
    names = ("times", "largest", "largest_error", "lowest", "lowest_error", "edge", "outliers", "limit")
    return {name: getattr(found, name) for name in names}


def experiment(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Train real networks and compare them with theory."""
    problem, seeds = read_problem(request["problem"]), request.get("seeds")
    dim = finite_dim(problem, request.get("dim"), seeds)
    assert isinstance(seeds, int)
    report(stage="estimating the time")
    estimate = dl.estimate(problem, dim, seeds, record="losses")
    cost = estimate.experiment
    seconds = math.inf if cost is None else cost.seconds
    if seconds > LIMITS["experiment"] or not estimate.fits:
        text = f"dim is too large here: {estimate}. Lower dim, seeds, steps, width or depth."
        raise Refusal("dim", dim, "lower", text=text)
    report(stage="training", estimate=seconds)
    networks = dl.simulate(problem, dim, seeds, record="losses", progress=_steps(report, "training", estimate=seconds))
    progress = _steps(report, "comparing with theory", power=_DENSE)
    comparison = dl.compare(dl.solve(problem, method="dense", progress=progress), networks)
    losses = {
        name: {
            "mean": networks.mean(name),
            "standard_error": networks.standard_error(name),
            "z": comparison[name].z,
        }
        for name in ("test_loss", "train_loss")
    }
    return {
        "times": networks.times,
        **losses,
        "dim": networks.dim,
        "seeds": len(networks.seeds),
        "diverged": int((networks.diverged_at >= 0).sum()),
        "verdict": str(comparison.verdict),
        "explanation": comparison.explanation,
        "p_value": comparison.p_value,
        "max_z": comparison["test_loss"].max_z,
        "seconds": networks.stats["seconds"],
        "method": networks.method,
        "netcdf": base64.b64encode(_saved(networks.save)).decode(),
    }


def netcdf(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Write all that theory says of a problem into the file that the server names, which hands it on and deletes it."""
    problem = read_problem(request["problem"])
    if (needed := held_in_files(problem)) > _LARGEST_FILE:
        text = f"steps must be lower to write a file: it would take {needed / 1e6:.0f} MB"
        raise Refusal("steps", problem.steps, "lower for a file", text=text)
    _solve(problem, report).save(request["path"])
    return {}


def python(request: dict[str, Any], _: Report) -> dict[str, Any]:
    """Return the Python lines of a view."""
    return {"python": python_lines(request)}


TASKS: dict[str, Callable[[dict[str, Any], Report], dict[str, Any]]] = {
    "solve": solve,
    "correlations": correlations,
    "rates": rates,
    "sharpness": sharpness,
    "experiment": experiment,
    "netcdf": netcdf,
    "python": python,
}


def _kind_and_layer(request: dict[str, Any]) -> tuple[str, int | None]:
    kind = read_kind(request.get("kind"))
    layer = request.get("layer")
    if layer is not None and (not isinstance(layer, int) or isinstance(layer, bool)):
        raise Refusal("layer", layer, "a whole number or null")
    return kind, layer


def _solve(problem: dl.Problem, report: Report) -> dl.Solution:
    estimate = _refuse_if_long(problem, report)
    seconds, dense = (None, True) if estimate is None else (estimate.theory.seconds, estimate.method == "dense")
    return dl.solve(
        problem, progress=_steps(report, "solving", power=_DENSE if dense and estimate else 1.0, estimate=seconds)
    )


def _refuse_if_long(
    problem: dl.Problem, report: Report, runs: int = 1, call: str = "dl.optimal_lr"
) -> dl.Estimate | None:
    """Refuse what would not end in time or not fit; what is quick is not estimated.

    Many runs are those of a search, or of a look at each of many steps, which solve every step; ``call`` does the same
    in Python.
    """
    if is_quick(problem):
        return None
    report(stage="estimating the time")
    estimate = dl.estimate(problem)
    if runs > 1 and estimate.method != "dense":
        most = longest_short(problem.data.outputs)
        text = (
            f"steps is too large for this view, got {problem.steps}: it solves about {runs} runs. "
            f"Lower the steps to {most}, or call {call} in Python."
        )
        raise Refusal("steps", problem.steps, f"at most {most}", text=text)
    if runs * estimate.theory.seconds > LIMITS["solve"] or not estimate.fits:
        often = f" for each of about {runs} runs" if runs > 1 else ""
        text = (
            f"steps is too large here: {estimate}{often}, and this page stops after {LIMITS['solve']:.0f} s. "
            "Lower the steps or the depth."
        )
        raise Refusal("steps", problem.steps, "lower", text=text)
    return estimate


def _first_steps(problem: dl.Problem, count: int) -> dl.Problem:
    """Return the problem of the first steps alone: they do not depend on what follows."""
    return problem.first(count)


def _steps(
    report: Report, stage: str, *, power: float = 1.0, estimate: float | None = None
) -> Callable[[int, int], None]:
    """Return a ``progress`` for the library; work done goes as the steps done to some power."""
    start, last = time.monotonic(), 0.0

    def progress(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        message: dict[str, Any] = {}
        if now - last > _BETWEEN_REPORTS or done == total:
            last = now
            part = (done / total) ** power
            left = (now - start) * (1 / part - 1) if part > 0.05 else estimate and estimate * (1 - part)
            message = {"stage": stage, "part": part, "left": left}
        report(**message)

    return progress


def _saved(save: Callable[[Path], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "networks.nc"
        save(path)
        return path.read_bytes()
