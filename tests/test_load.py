"""Whatever was saved is read by one function, and is equal to what was saved."""

import math
import pickle
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from factories import maker

make = maker("network", "sampling", "optimizer", noise=0.3, depth=2, width=1.0, lr=0.05, steps=6,
             sampling=dl.FullBatch(2.0))  # fmt: skip

PROBLEMS = {
    "plain": make(),
    "diverges": make(lr=50.0, steps=30),
    "a function of the step": make(lr=lambda step: 0.1 / (1 + step)),
    "infinite depth": make(dl.ResNet(math.inf, 1.0)),
    "panels": make(steps=1200, depth=1, lr=0.01, sampling=dl.Population()),
    "phases": make(sampling=dl.OnlineSGD(0.5)).replace(phases=[dl.Phase(2), dl.Phase(4, target_overlap=0.5)]),
}


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_a_solution_is_equal_after_it_was_saved(problem: dl.Problem, tmp_path: Path) -> None:
    solution, path = dl.solve(problem), tmp_path / "a.nc"
    solution.save(path)
    again = dl.load(path)
    assert type(again) is dl.Solution
    assert again == solution == pickle.loads(pickle.dumps(solution)) == dl.solve(problem)
    assert len({again, solution, dl.solve(problem)}) == 1
    other = dl.solve(problem.replace(noise=0.31))
    assert again != other
    assert again not in (None, problem, 3)


def test_averages_belong_to_a_solution(tmp_path: Path) -> None:
    with_averages = dl.solve(make(), averages=(dl.EMA(0.5),))
    with_averages.save(tmp_path / "a.nc")
    assert dl.load(tmp_path / "a.nc") == with_averages != dl.solve(make())


@pytest.mark.parametrize(
    "options", [{}, {"record": "losses"}, {"curvature": dl.Curvature([0, 3], 4, line=True)}], ids=str
)
def test_networks_are_equal_after_they_were_saved(options: dict[str, Any], tmp_path: Path) -> None:
    networks, path = dl.simulate(make(), 8, 2, **options), tmp_path / "a.nc"
    networks.save(path)
    again = dl.load(str(path))
    assert type(again) is dl.Ensemble
    assert again == networks == dl.simulate(make(), 8, [0, 1], **options)
    assert hash(again) == hash(networks)
    assert networks != dl.simulate(make(), 8, 2, seed=2, **options)
    assert networks != dl.simulate(make(noise=0.2), 8, 2, **options)


def test_networks_that_diverged_are_equal_too(tmp_path: Path) -> None:
    networks = dl.simulate(make(lr=50.0, steps=30), 8, 2)
    assert np.isnan(networks.error_correlation).any()
    networks.save(tmp_path / "a.nc")
    assert dl.load(tmp_path / "a.nc") == networks


def test_problems_and_sweeps_are_loaded(tmp_path: Path) -> None:
    make().save(tmp_path / "a.toml")
    assert dl.load(tmp_path / "a.toml") == make()
    swept = dl.sweep(make(), {"lr": [0.01, 0.02]}, tmp_path / "store", workers=1)
    assert dl.load(tmp_path / "store").identical(swept)  # type: ignore[union-attr]


def test_anything_else_is_refused(tmp_path: Path) -> None:
    curves = tmp_path / "curves.csv"
    curves.write_text("step,loss\n0,1.0\n")
    with pytest.raises(ValueError, match=r"curves.csv is no TOML file, no folder of a sweep, .* are read by measured"):
        dl.load(curves)
    with pytest.raises(FileNotFoundError, match=r"none.nc"):
        dl.load(tmp_path / "none.nc")
    with pytest.raises(ValueError, match="must hold a sweep"):
        dl.load(tmp_path)


class TestHabits:
    def test_the_rate_of_a_problem(self) -> None:
        assert make(lr=0.03).lr == 0.03
        assert make(optimizer=dl.Muon(0.02)).lr == 0.02

    def test_a_solution_as_a_table(self) -> None:
        solution = dl.solve(make(), averages=(dl.EMA(0.5),))
        table = solution.to_dataframe()
        assert table.index.name == "step"
        np.testing.assert_array_equal(table.index, solution.times)
        for name in ("test_loss", "train_loss", "kernel"):
            np.testing.assert_array_equal(table[name], getattr(solution, name))
        for name, part in vars(solution.decomposition).items():
            np.testing.assert_array_equal(table[name], part)
        np.testing.assert_array_equal(table["averaged_test_loss_0"], solution.averaged_test_loss[0])

    def test_a_first_seed(self) -> None:
        networks = dl.simulate(make(), 8, 3, seed=5)
        assert networks.seeds == (5, 6, 7)
        assert networks == dl.simulate(make(), 8, [5, 6, 7])
        for seeds, seed, message in (
            ([1, 2], 3, "^seed must be left out where the seeds are listed, got 3$"),
            (2, -1, "^seed must be a whole number, at least 0, got -1$"),
            (2, 2**63, r"^seeds must be one or more distinct whole numbers"),
        ):
            with pytest.raises(Refusal, match=message):
                dl.simulate(make(), 8, seeds, seed=seed)

    def test_a_list_is_drawn_as_what_it_holds(self) -> None:
        a, b = dl.solve(make()), dl.solve(make(width=4.0))

        def drawn(*arguments: Any, **options: Any) -> list[Any]:
            (ax,) = dl.plot(*arguments, **options).axes
            return [(line.get_label(), line.get_ydata().tolist()) for line in ax.get_lines()]

        assert drawn([a, b]) == drawn((a, b)) == drawn([a], b) == drawn(a, b)
        assert str(drawn([a])) == str(drawn(a))
        plt.close("all")

    def test_kernels_are_drawn(self) -> None:
        a, b = dl.solve(make()), dl.solve(make(width=4.0))
        (ax,) = a.plot(kind="kernel").axes
        (line,) = ax.get_lines()
        np.testing.assert_array_equal(line.get_ydata(), a.kernel)
        assert (ax.get_ylabel(), ax.get_yscale(), ax.get_legend()) == ("effective tangent kernel", "linear", None)
        (ax,) = dl.plot([a, b], kind="kernel").axes
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["width 1", "width 4"]
        for line, solution in zip(ax.get_lines(), (a, b), strict=True):
            np.testing.assert_array_equal(line.get_ydata(), solution.kernel)
        with pytest.raises(Refusal, match=r"^kind must be 'loss' or 'kernel', got 'weights'$"):
            a.plot(kind="weights")
        with pytest.raises(Refusal, match=r"^result must be a Solution, for its kernel, got Ensemble$"):
            dl.plot(dl.simulate(make(), 8, 2), kind="kernel")
        plt.close("all")
