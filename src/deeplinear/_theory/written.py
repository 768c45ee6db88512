"""Solutions as labelled data sets, which are what files of them hold."""

import json
import math
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.dataset import (
    FIELDS,
    LOSSES,
    OF_TWO_TIMES,
    Labelled,
    check_curve,
    from_dataset,
    labelled,
    reading,
)
from deeplinear._core.refusal import Refusal
from deeplinear._problem.problem import Problem
from deeplinear._solvers.choose import read_solver, write_solver
from deeplinear._theory.decomposition import Decomposition
from deeplinear._theory.status import Status
from deeplinear._time import axis as axes

if TYPE_CHECKING:
    from deeplinear._theory.solution import Solution

Array = NDArray[np.float64]

_KIND = "deeplinear.Solution"

CURVES = (*LOSSES, "kernel")
PARTS = ("bias", "width", "data", "label_noise")
SETS = ("averaged_test_loss", "task_loss")
"""Sets of curves that some problems have."""

MATRICES = OF_TWO_TIMES

_STATUS = tuple(each.name for each in fields(Status))
_LATER = ("rounding_at",)
"""Steps of a status that files of the first versions do not have: nothing was said about them."""

_ATTRIBUTES = ("problem", *(name for name in _STATUS if name not in _LATER), "axis", "solver", "stats")


def written(solution: "Solution") -> Labelled:
    """Return every observable with named axes; the problem is in the attributes, as TOML."""
    matrices = MATRICES if solution.axis.has_two_time else ()
    values = {name: getattr(solution, name) for name in (*CURVES, *matrices)}
    values |= {name: getattr(solution.decomposition, name) for name in PARTS}
    values |= {name: getattr(solution, name) for name in SETS if len(getattr(solution, name))}
    return labelled(
        values,
        times=solution.times,
        pair_times=solution.pair_times,
        depth=len(solution.gradient_correlation) if matrices else 0,
        outputs=solution.problem.data.outputs,
        layer_time=solution.layer_time,
        attrs={
            "kind": _KIND,
            "problem": solution.problem.to_toml(),
            **{name: -1 if step is None else step for name, step in asdict(solution.status).items()},
            "axis": json.dumps(solution.axis.to_dict()),
            "solver": json.dumps(write_solver(solution.solver)),
            "stats": json.dumps(solution.stats),
        },
    )


def read(path: str | Path) -> dict[str, Any]:
    """Return what the solution in a file is made of, after it has been checked against the problem."""
    with reading(path, _KIND, _ATTRIBUTES, ("time", *CURVES, *PARTS)) as dataset:
        problem = Problem.from_toml(dataset.attrs["problem"])
        names = (*CURVES, *PARTS, *MATRICES, *SETS)
        arrays = {name: array for name in names if (array := from_dataset(dataset, name)) is not None}
        axis = axes.read(json.loads(dataset.attrs["axis"]), problem.steps, len(dataset["time"]))
        steps = {name: int(dataset.attrs.get(name, -1)) for name in _STATUS}
        solution = {
            "problem": problem,
            "axis": axis,
            **{name: arrays[name] for name in CURVES},
            "decomposition": Decomposition(**{name: arrays[name] for name in PARTS}),
            "status": Status(**{name: None if step < 0 else step for name, step in steps.items()}),
            "solver": read_solver(json.loads(dataset.attrs["solver"])),
            "stats": dict(json.loads(dataset.attrs["stats"])),
            **{name: arrays.get(name, np.zeros((0, len(arrays["test_loss"])))) for name in SETS},
            "_matrices": {name: arrays[name] for name in MATRICES if name in arrays},
        }
        for name, step in steps.items():
            if step >= problem.steps:
                raise Refusal(name, step, f"below {problem.steps}, the steps of the problem")
        _check_values(solution, arrays, dataset["time"].values)
        return solution


def _check_values(solution: dict[str, Any], arrays: dict[str, Array], times: Array) -> None:
    """Refuse values that cannot be those of a solution."""
    problem, axis, ended = solution["problem"], solution["axis"], solution["status"].diverged_at
    if not np.array_equal(times, axis.times):
        raise Refusal("time", times, "the times of its axis", got="others")
    known = times < (np.inf if ended is None else ended)
    sets = {"averaged_test_loss": len(solution["solver"].averages), "task_loss": len(problem.stages)}
    for name in (*CURVES, *PARTS, *SETS):
        if name in arrays:
            leading = (sets[name],) if name in sets else ()
            check_curve(name, arrays[name], (*leading, len(times)), known)
    layers = problem.network.layers if problem.network.depth < math.inf else solution["solver"].depth_nodes
    count = len(axis.pair_times) * problem.data.outputs
    for name, values in solution["_matrices"].items():
        shape = (*FIELDS[name].leading(layers), count, count)
        if values.shape != shape:
            raise Refusal(name, values.shape, f"of shape {shape}", got=f"{values.shape}")
