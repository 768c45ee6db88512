"""What the page can ask for; each takes the request's fields and returns what JSON can hold.

``report(**message)`` tells the page how far the work has come, and raises an exception once nobody waits for it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import deeplinear as dl
from deeplinear._core.dataset import FIELDS
from deeplinear._core.failures import in_words
from deeplinear._core.refusal import Refusal
from deeplinear._cost.model import held_in_files, longest_short
from deeplinear._explore.averages import read_average
from deeplinear._explore.code import python_lines
from deeplinear._explore.experiments import LONGEST_EXPERIMENT, experiment, measured
from deeplinear._explore.geometry import landscape, read_along, sharpness, weights
from deeplinear._explore.kinds import KINDS, read_kind
from deeplinear._explore.planning import check_plan, check_schedule, plan, schedule
from deeplinear._explore.problems import finite_dim, is_quick, read_problem
from deeplinear._explore.progress import LONGEST, PACE, Report, refuse_if_long, solve_with, steps
from deeplinear._explore.rates import GRID, drawn, first_rates, lowest, marks, sample, unstable, without_dips
from deeplinear._explore.runs import read_request, runs
from deeplinear._explore.uploads import described, read_file

HEAT_MAP = 120
"""Most rows and columns of a heat map."""

_LARGEST_FILE = 400e6


class Reading(NamedTuple):
    """What is known of a task before it begins."""

    is_short: bool  # it takes so little that it need not wait for what is long
    is_soon: bool = False  # its problem is solved while a control is being moved


def read(name: str, request: dict[str, Any]) -> Reading:
    """Check what a task is asked for.

    Raises
    ------
    ValueError
        If a value is not allowed.
    """
    if name == "runs":
        read_request(request)
    if name in ("python", "data", "runs"):
        return Reading(name == "python")
    problem = read_problem(request.get("problem"))
    if name in _CHECKS:
        _CHECKS[name](request, problem)
    return Reading(name in _SHORT and is_quick(problem), PACE.is_soon(problem))


def solve(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return the curves that theory predicts; ``brief``, of the first steps alone where all of them would take long.

    Weights may be averaged where every step is solved.
    """
    problem, average = read_problem(request["problem"]), read_average(request.get("average"))
    if request.get("brief") is True and (first := PACE.first_steps(problem)) < problem.steps:
        report(stage="solving", first=first)
        problem = problem.first(first)
    averages = (average,) if average and problem.steps <= longest_short(problem.data.outputs) else ()
    theory = solve_with(problem, report, averages)
    return {
        "times": theory.times,
        "averaged": theory.averaged_test_loss[0] if averages else None,
        "test_loss": theory.test_loss,
        "train_loss": theory.train_loss,
        "kernel": theory.kernel,
        "bias": theory.decomposition.bias,
        "width": theory.decomposition.width,
        "data": theory.decomposition.data,
        "label_noise": theory.decomposition.label_noise,
        "first_task": theory.task_loss[0] if theory.task_loss.size else None,
        "diverged_at": theory.status.diverged_at,
        "rounding_at": theory.status.rounding_at,
        "rates": problem.optimizer.rates(problem.steps)[np.asarray(theory.times, dtype=int)],
        "steps": problem.steps,
        "seconds": theory.stats["seconds"],
        "method": theory.stats["method"],
    }


def correlations(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return one two-time function of one layer, at few enough times to draw, summed over outputs."""
    kind, layer = _kind_and_layer(request)
    problem = read_problem(request["problem"])
    theory = solve_with(problem, report, two_time=True)
    values, first = getattr(theory, kind), KINDS[kind]
    layers = [] if first is None else list(range(first, first + len(values)))
    if first is not None:
        layer = layer if layer is not None and layer in layers else layers[-1]
        values = values[layer - first]
    times, outputs = theory.pair_times, problem.data.outputs
    shown = np.unique(np.linspace(0, len(times) - 1, HEAT_MAP).round().astype(int))
    by_output = values.reshape(len(times), outputs, len(times), outputs)
    traced = np.einsum("tcsc->ts", by_output[shown][:, :, shown])
    return {
        "times": times[shown],
        "values": traced,
        "kind": kind,
        "is_symmetric": FIELDS[kind].is_symmetric,
        "layer": layer,
        "layers": layers,
    }


def rates(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return the loss at the last step against the learning rate, and its optimum, which is the lowest point."""
    problem = read_problem(request["problem"])
    refuse_if_long(problem, report, runs=3 * sum(count for _, _, count in GRID))
    note, found = None, None
    try:
        found = dl.optimal_lr(problem, progress=steps(report, "1 of 2: finding the best learning rate", then=None))
    except ArithmeticError as error:
        note = in_words(error)
    present = problem.optimizer.highest_rate(problem.steps)
    # Of a schedule the factor is found; what the page shows is its largest rate.
    unit = present if found is not None and found.is_factor else 1.0
    best = present if found is None else found.lr * unit
    progress = steps(report, "2 of 2: loss at each learning rate")
    points = sample(problem, first_rates(best, found, unit), present, progress)
    progress(1, 1)
    if found is not None and found.is_resolved and found.rounding_at is None:
        points = without_dips(points, best)
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


def netcdf(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Write all that theory says of a problem into the file that the server names, which hands it on and deletes it."""
    problem = read_problem(request["problem"])
    if (needed := held_in_files(problem)) > _LARGEST_FILE:
        text = f"steps must be lower to write a file: it would take {needed / 1e6:.0f} MB"
        raise Refusal("steps", problem.steps, "lower for a file", text=text)
    solve_with(problem, report, two_time=True).save(request["path"])
    return {}


def python(request: dict[str, Any], _: Report) -> dict[str, Any]:
    """Return the Python lines of a view."""
    return {"python": python_lines(request)}


def data(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return what is in a data set."""
    report(stage="reading the file")
    return described(request)


TASKS: dict[str, Callable[[dict[str, Any], Report], dict[str, Any]]] = {
    "solve": solve,
    "correlations": correlations,
    "rates": rates,
    "sharpness": sharpness,
    "landscape": landscape,
    "weights": weights,
    "schedule": schedule,
    "plan": plan,
    "experiment": experiment,
    "measured": measured,
    "data": data,
    "runs": runs,
    "netcdf": netcdf,
    "python": python,
}

LIMITS = dict.fromkeys(TASKS, LONGEST) | {"experiment": LONGEST_EXPERIMENT, "data": 60.0, "runs": 60.0, "python": 10.0}
"""Seconds after which each task is ended."""

_SHORT = ("solve", "correlations", "sharpness", "landscape", "weights", "measured")
"""What is short where a problem is quick."""

_CHECKS: dict[str, Callable[[dict[str, Any], dl.Problem], Any]] = {
    "solve": lambda request, _: read_average(request.get("average")),
    "correlations": lambda request, _: _kind_and_layer(request),
    "landscape": lambda request, _: read_along(request.get("along")),
    "schedule": lambda _, problem: check_schedule(problem),
    "plan": lambda _, problem: check_plan(problem),
    "experiment": lambda request, problem: finite_dim(problem, request.get("dim"), request.get("seeds")),
    "measured": lambda request, _: read_file(request.get("file")),
}
"""What is checked of a request beside its problem."""


def _kind_and_layer(request: dict[str, Any]) -> tuple[str, int | None]:
    kind = read_kind(request.get("kind"))
    layer = request.get("layer")
    if layer is not None and (not isinstance(layer, int) or isinstance(layer, bool)):
        raise Refusal("layer", layer, "a whole number or null")
    return kind, layer
