"""Sweeps over the fields of update rules, over schedules and factors of layers."""

from typing import Any

import numpy as np
import pytest
import xarray as xr

import deeplinear as dl
from deeplinear._problem.edit import replace
from deeplinear._sweep.plan import Plan
from deeplinear._sweep.sweep import sweep
from factories import maker

s = dl.schedules
PHASES = (dl.Phase(3), dl.Phase(3, target_overlap=0.5))


problem = maker("optimizer", "network", depth=2, width=1.0, noise=0.3, sampling=dl.FullBatch(2.0), steps=6)


GRIDS = [
    (problem(dl.SAM(0.05, rho=0.1)), {"rho": [0.05, 0.2]}),
    (problem(dl.GradientDescent(0.1, clip=1.0)), {"clip": [None, 0.1, 1.0]}),
    (problem(dl.NormalizedDescent(0.05)), {"beta2": [0.0, 0.9]}),
    (problem(dl.Muon(0.02)), {"momentum": [0.0, 0.95], "iterations": [1, 5]}),
    (problem(dl.ScheduleFree(0.05)), {"beta": [0.0, 0.9]}),
    (problem(dl.GradientDescent(0.05), dl.ResNet(3, 1.0)), {"branch_scaling": ["none", 0.5, 1.0]}),
    (problem(dl.GradientDescent(0.05)), {"lr": [0.05, s.cosine(0.05, warmup=0.2), {"shape": "linear", "peak": 0.1}]}),
    (problem(dl.GradientDescent(0.05)), {"layer_lr": [None, [1.0, 0.0, 1.0], {"readout": 0.0}]}),
    (problem(dl.GradientDescent(0.05), phases=PHASES), {"width": [0.5, 1.0]}),
    (
        problem(dl.Muon(0.02, other=dl.GradientDescent(0.1)), phases=PHASES),
        {"lr": [0.01, 0.02], "other.lr": [0.05, 0.1], "phases.1.target_overlap": [0.0, 0.5]},
    ),
]


@pytest.mark.parametrize(("one", "grid"), GRIDS, ids=["-".join(grid) for _, grid in GRIDS])
def test_points_are_problems_that_a_file_can_hold(one: dl.Problem, grid: dict[str, list[Any]]) -> None:
    plan = Plan.read(one, grid, True, None)
    assert not plan.invalid
    assert len(set(plan.problems.values())) == plan.size
    again = Plan.from_manifest(plan.manifest())
    assert again.problems == plan.problems
    first = {name: values[0] for name, values in grid.items()}
    assert plan.problems[0] == replace(one, first)


@pytest.mark.parametrize(
    ("one", "grid"), [GRIDS[0], GRIDS[3], GRIDS[6], GRIDS[9]], ids=["rho", "muon", "schedules", "paths"]
)
def test_every_point_is_what_solve_gives(one: dl.Problem, grid: dict[str, list[Any]]) -> None:
    found = sweep(one, grid, workers=1)
    assert found.done.all()
    losses = found.test_loss.values.reshape(-1, one.steps)
    solved = dl.solve(list(Plan.read(one, grid, True, None).problems.values()))
    np.testing.assert_allclose(losses, [each.test_loss for each in solved], rtol=1e-11)


def test_values_that_no_file_holds_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"grid\['lr'\]\[0\] must be a number, a word, a schedule, or a list or mapping"
    ):
        Plan.read(problem(dl.GradientDescent(0.1)), {"lr": [object()]}, True, None)


def test_fields_inside_of_rules_and_phases_are_dimensions_that_files_hold(tmp_path) -> None:
    one, grid = GRIDS[9]
    found = sweep(one, grid, tmp_path / "store", workers=1)
    assert found.test_loss.dims[:3] == ("lr", "other.lr", "phases.1.target_overlap")
    with xr.open_zarr(tmp_path / "store") as again:
        np.testing.assert_array_equal(again.test_loss, found.test_loss)
        np.testing.assert_array_equal(again["other.lr"], [0.05, 0.1])
    xr.testing.assert_equal(sweep(one, grid, tmp_path / "store", workers=1), found)  # which reads the store
