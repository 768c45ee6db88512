"""Pictures of learning-rate transfer."""

import math
from pathlib import Path

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._planning.transfer import transfer
from deeplinear._planning.transferred import Transfer
from deeplinear._plots.style import save_figure
from deeplinear._plots.transfer import plot_transfer


@pytest.fixture(scope="module")
def problem() -> dl.Problem:
    return dl.Problem(
        dl.MLP(1, 1.0, parameterization="ntk"), dl.Isotropic(0.5), dl.OnlineSGD(0.5), dl.GradientDescent(0.1), steps=8
    )


@pytest.fixture(scope="module")
def found(problem: dl.Problem) -> Transfer:
    return transfer(problem, "width", [1, 2, math.inf])


@pytest.fixture(scope="module")
def measured(problem: dl.Problem) -> Transfer:
    return transfer(problem, "width", [1, 2, 4], lrs=np.geomspace(0.05, 3.2, 7), experiment={"dim": 10, "seeds": 3})


def test_theory_is_dashed_and_every_optimum_is_marked(found: Transfer) -> None:
    curves, optima, regret = plot_transfer(found).axes
    lines = [line for line in curves.get_lines() if len(line.get_xdata()) > 1]
    assert len(lines) == 3
    assert all(line.get_linestyle() == "--" for line in lines)
    marked = {(line.get_xdata()[0], line.get_ydata()[0]) for line in curves.get_lines() if len(line.get_xdata()) == 1}
    assert marked == {(optimum.lr, optimum.loss) for optimum in found.optima}
    assert [text.get_text() for text in optima.get_xticklabels()] == ["1", "2", "∞"]
    assert "slope −" in optima.get_legend().get_texts()[0].get_text()
    assert [line.get_ydata()[0] for line in regret.get_lines()] == found.regret.tolist()
    assert regret.get_ylabel() == "extra loss above noise at the rate of width 1"


def test_the_line_goes_through_the_optimum_and_not_below(found: Transfer) -> None:
    curves = plot_transfer(found).axes[0]
    lines = [line for line in curves.get_lines() if len(line.get_xdata()) > 1]
    for line, optimum in zip(lines, found.optima, strict=True):
        assert np.nanmin(line.get_ydata()) >= optimum.loss * (1 - 1e-9)
        assert np.nanmin(line.get_ydata()) < optimum.loss * 1.01


def test_experiment_is_solid_with_bands_and_open_markers(measured: Transfer) -> None:
    curves, optima, regret = plot_transfer(measured).axes
    solid = [line for line in curves.get_lines() if line.get_linestyle() == "-" and len(line.get_xdata()) > 1]
    assert len(solid) == len(curves.collections) == 3
    open_markers = [line for line in optima.get_lines() if str(line.get_markerfacecolor()) == "white"]
    assert [line.get_ydata()[0] for line in open_markers] == measured.experiment.lr.tolist()
    assert [text.get_text().split(":")[0] for text in optima.get_legend().get_texts()] == [
        "experiment",
        "theory",
    ]
    assert len([line for line in regret.get_lines() if str(line.get_markerfacecolor()) == "white"]) == 3


def test_open_markers_stand_on_the_curves_of_the_networks(measured: Transfer) -> None:
    curves = plot_transfer(measured).axes[0]
    solid = [line for line in curves.get_lines() if line.get_linestyle() == "-" and len(line.get_xdata()) > 1]
    marked = [line for line in curves.get_lines() if str(line.get_markerfacecolor()) == "white"]
    for line, marker in zip(solid, marked, strict=True):
        points = set(zip(line.get_xdata(), line.get_ydata(), strict=True))
        assert (marker.get_xdata()[0], marker.get_ydata()[0]) in points


def test_the_verdict_stands_above(found: Transfer, measured: Transfer) -> None:
    title = plot_transfer(measured).get_suptitle().replace("\n", " ").replace("−", "-")
    assert f"theory: {measured.verdict}" in title
    assert f"networks: {measured.measured_verdict}" in title
    assert "networks:" not in plot_transfer(found).get_suptitle()


def test_what_varies_is_not_in_the_title(found: Transfer) -> None:
    title = plot_transfer(found).get_suptitle().partition("theory:")[0]
    assert "width" not in title
    assert "lr" not in title
    assert "8 steps" in title


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_can_be_written_in_every_format(measured: Transfer, tmp_path: Path, suffix: str) -> None:
    save_figure(plot_transfer(measured), tmp_path / f"transfer{suffix}")
    assert (tmp_path / f"transfer{suffix}").stat().st_size > 5000


@pytest.mark.parametrize("lrs", [[1e9], [1e9, 1e10]])
def test_rates_that_all_diverge_leave_the_optima(problem: dl.Problem, lrs: list[float], tmp_path: Path) -> None:
    """There was a traceback of the smallest of no losses."""
    found = transfer(problem, "width", [1, 2], lrs=lrs)
    figure = plot_transfer(found)
    low, high = figure.axes[0].get_ylim()
    assert all(low < optimum.loss < high for optimum in found.optima)
    save_figure(figure, tmp_path / "a.png")


def test_nothing_to_learn_has_a_picture(tmp_path: Path) -> None:
    """The loss is zero whatever the richness, which no logarithmic axis shows."""
    nothing = dl.Problem(
        dl.MLP(1, 1.0, centered=True),
        dl.Spectrum([1.0], [0.0], [1.0], True),
        dl.Population(),
        dl.GradientDescent(0.1),
        4,
    )
    save_figure(plot_transfer(transfer(nothing, "width", [1, 2], field="richness")), tmp_path / "a.png")


def test_one_value_has_no_slope(problem: dl.Problem) -> None:
    figure = plot_transfer(transfer(problem, "steps", [8]))
    assert figure.axes[1].get_legend() is None
    assert "steps" not in figure.get_suptitle()
