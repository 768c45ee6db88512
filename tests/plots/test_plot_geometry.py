"""Pictures of curvature show what was found, and nothing that was not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._plots.density import plot_density
from deeplinear._plots.geometry import plot_landscape, plot_sharpness
from deeplinear._plots.style import save_figure

PROBLEM = dl.Problem(
    dl.MLP(2, 1.0, richness=2.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=12
)
AT, VECTORS = (0, 4, 11), 8


@pytest.fixture(scope="module")
def found() -> dl.Sharpness:
    return dl.sharpness(PROBLEM, AT, VECTORS)


@pytest.fixture(scope="module")
def networks() -> dl.Ensemble:
    return dl.simulate(PROBLEM, 40, 4, record="losses", curvature=dl.Curvature(AT, VECTORS))


def lines(figure: Figure) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Labelled lines, those of error bars included."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    plain = [handle[0] if isinstance(handle, tuple) else handle for handle in handles]
    return {label: (line.get_xdata(), line.get_ydata()) for label, line in zip(labels, plain, strict=True)}


def test_both_ends_the_limit_and_the_errors_are_drawn(found: dl.Sharpness) -> None:
    figure = found.plot()
    drawn = lines(figure)
    np.testing.assert_array_equal(drawn["largest eigenvalue"], (AT, found.largest))
    np.testing.assert_array_equal(drawn["lowest eigenvalue"], (AT, found.lowest))
    assert drawn["limit of stable steps, 40"][1].tolist() == [40.0] * 3
    bars = figure.axes[0].containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose([np.ptp(bar[:, 1]) for bar in bars], 2 * found.largest_error)


def test_what_stands_alone_is_told_from_the_edge(found: dl.Sharpness) -> None:
    assert not {"stands alone", "edge of the bulk"} & set(lines(plot_sharpness(found)))
    alone = replace(found, outliers=((), (30.0, 25.0), ()), edge=np.array([16.0, 20.0, 16.0]))
    drawn = lines(plot_sharpness(alone))
    np.testing.assert_array_equal(drawn["stands alone"], ([4, 4], [30.0, 25.0]))
    np.testing.assert_array_equal(drawn["edge of the bulk"], (AT, [np.nan, 20.0, np.nan]))


def test_networks_are_drawn_with_the_same_values_of_theory(found: dl.Sharpness, networks: dl.Ensemble) -> None:
    drawn = lines(plot_sharpness(found, experiment=networks))
    assert networks.ritz_values is not None
    np.testing.assert_array_equal(drawn["largest Ritz value, networks"], (AT, networks.ritz_values[..., 0].mean(0)))
    np.testing.assert_array_equal(drawn["lowest Ritz value, networks"], (AT, networks.ritz_values[..., -1].mean(0)))
    np.testing.assert_array_equal(drawn["the same of theory"], (AT, found.ritz_values[:, 0]))


def test_networks_measured_otherwise_are_refused(found: dl.Sharpness, networks: dl.Ensemble) -> None:
    for wrong in (replace(networks, curvature=None), replace(networks, curvature=dl.Curvature(AT, 9))):
        with pytest.raises(Refusal, match=r"experiment must be networks with Curvature\(at=\(0, 4, 11\), vectors=8"):
            plot_sharpness(found, experiment=wrong)
    with pytest.raises(Refusal, match="networks of the same problem"):
        plot_sharpness(found, experiment=replace(networks, problem=replace(PROBLEM, steps=13)))


def test_a_limit_that_is_far_away_or_absent_leaves_the_picture_as_it_is(found: dl.Sharpness) -> None:
    far, none = (plot_sharpness(replace(found, limit=np.full(3, each))) for each in (1e4, np.nan))
    assert far.axes[0].get_ylim() == none.axes[0].get_ylim()
    assert "limit of stable steps, 1e+04, is above" in lines(far)
    assert not any("limit" in label for label in lines(none))
    falling = lines(plot_sharpness(replace(found, limit=np.array([np.inf, 40.0, 20.0]))))
    np.testing.assert_array_equal(falling["limit of stable steps"], (AT, [np.nan, 40.0, 20.0]))


@pytest.mark.parametrize("at", [[0], [0, 30]], ids=["one step", "after a divergence"])
def test_few_known_values_can_be_drawn(at: list[int], tmp_path: Path) -> None:
    problem = replace(PROBLEM, optimizer=dl.GradientDescent(2.0), steps=31)
    found = dl.sharpness(problem, at, VECTORS, operator="kernel")
    assert np.isfinite(found.largest).tolist() == [True, False][: len(at)]
    for name, figure in {"ends": plot_sharpness(found), "density": plot_density(found)}.items():
        save_figure(figure, tmp_path / f"{name}.png")


def test_densities_are_those_of_the_result(found: dl.Sharpness) -> None:
    drawn = lines(plot_density(found, [0, 11]))
    assert set(drawn) == {"step 0", "step 11"}
    values, density = drawn["step 11"]
    np.testing.assert_array_equal(density, found.density(11, values))
    assert np.trapezoid(density, values) == pytest.approx(1.0, abs=0.05)  # what lies beyond the picture
    with pytest.raises(Refusal, match=r"steps must be one or more of \[0, 4, 11\], got 5"):
        plot_density(found, 5)


def test_pictures_go_into_given_axes(found: dl.Sharpness, networks: dl.Ensemble) -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot_sharpness(found, left, networks) is figure
    assert plot_density(found, ax=right) is figure
    assert right.get_lines()
    assert left.get_legend() is not None


@pytest.mark.parametrize(
    ("along", "words"),
    [
        ("gradient", "along minus the gradient, in steps of descent"),
        ((2, 9), "from the weights of step 2 (0) to those of step 9 (1)"),
        (dl.TailMean(0.5), "from the last weights (0) to their average (1)"),
    ],
    ids=str,
)
def test_losses_along_lines_are_drawn(along: Any, words: str) -> None:
    line = dl.landscape(PROBLEM, along, positions=[0.0, 0.5, 1.0])
    figure = line.plot()
    drawn = lines(figure)
    assert set(drawn) == {"test loss", "train loss"}
    np.testing.assert_array_equal(drawn["train loss"], ([0.0, 0.5, 1.0], line.train_loss))
    np.testing.assert_array_equal(drawn["test loss"][1], line.test_loss)
    assert figure.axes[0].get_xlabel() == words


def test_a_barrier_is_drawn_where_there_is_one() -> None:
    line = dl.landscape(PROBLEM, positions=[0.0, 0.5, 1.0])
    over = replace(line, train_loss=np.array([1.0, 3.0, 1.5]), barrier=1.75)
    np.testing.assert_array_equal(lines(plot_landscape(over))["barrier of the train loss, 1.8"], ([0, 1], [1.0, 1.5]))


def test_twins_that_see_nothing_twice_have_one_loss() -> None:
    online = replace(PROBLEM, sampling=dl.OnlineSGD(0.5))
    assert set(lines(dl.landscape(online, "twins").plot())) == {"test loss"}


def test_singular_values_are_drawn_relative_to_their_bulk() -> None:
    rich = dl.Problem(
        dl.MLP(2, 1.0, richness=6.0), dl.Isotropic(0.1), dl.FullBatch(4.0), dl.GradientDescent(0.02), steps=40
    )
    found = dl.weight_spectra(rich, [0, 10, 39])
    figure = found.plot()
    drawn = lines(figure)
    for layer in (0, 1):
        largest = [each[layer][0] if each[layer] else 2.0 for each in found.outliers]
        np.testing.assert_allclose(drawn[f"layer {layer}"], ([0, 10, 39], np.array(largest) / 2.0))
    points = [line for line in figure.axes[0].get_lines() if line.get_marker() == "o"]
    assert sum(len(line.get_xdata()) for line in points) == sum(len(each) for step in found.outliers for each in step)


def test_a_sharpness_draws_its_density():
    problem = dl.Problem(
        dl.MLP(depth=1, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=6
    )
    (ax,) = dl.sharpness(problem, at=[0, 5], vectors=4).plot_density([0]).axes
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["step 0"]
