"""Solutions as labelled data sets, which are what files of them hold."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear._core.dataset import LOSSES, OF_TWO_TIMES, from_dataset, read_dataset, reading, to_dataset
from deeplinear._problem.problem import Problem
from deeplinear._solvers.choose import read_solver, write_solver
from deeplinear._theory.decomposition import Decomposition
from deeplinear._theory.status import Status
from deeplinear._time import axis as axes

if TYPE_CHECKING:
    import xarray as xr

    from deeplinear._theory.solution import Solution

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


def written(solution: "Solution") -> "xr.Dataset":
    """Return every observable with named axes; the problem is in the attributes, as TOML."""
    matrices = MATRICES if solution.axis.has_two_time else ()
    values = {name: getattr(solution, name) for name in (*CURVES, *matrices)}
    values |= {name: getattr(solution.decomposition, name) for name in PARTS}
    values |= {name: getattr(solution, name) for name in SETS if len(getattr(solution, name))}
    return to_dataset(
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
    """Return what the solution in a file is made of."""
    dataset = read_dataset(path, _KIND)
    with reading(path, dataset, _ATTRIBUTES, ("time", *CURVES, *PARTS)):
        names = (*CURVES, *PARTS, *MATRICES, *SETS)
        arrays = {name: array for name in names if (array := from_dataset(dataset, name)) is not None}
        steps = {name: int(dataset.attrs.get(name, -1)) for name in _STATUS}
        return {
            "problem": Problem.from_toml(dataset.attrs["problem"]),
            "axis": axes.read(json.loads(dataset.attrs["axis"])),
            **{name: arrays[name] for name in CURVES},
            "decomposition": Decomposition(**{name: arrays[name] for name in PARTS}),
            "status": Status(**{name: None if step < 0 else step for name, step in steps.items()}),
            "solver": read_solver(json.loads(dataset.attrs["solver"])),
            "stats": dict(json.loads(dataset.attrs["stats"])),
            **{name: arrays.get(name, np.zeros((0, 0))) for name in SETS},
            "_matrices": {name: arrays[name] for name in MATRICES if name in arrays},
        }
