"""Every result draws itself, alone or into given axes, and shows itself in notebooks."""

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import deeplinear as dl
from deeplinear._plots.style import log_axis, new_figure
from factories import maker

make = maker("lr", depth=2, width=1.0, noise=0.3, sampling=dl.FullBatch(2.0), lr=0.05, steps=21)


@cache
def results() -> dict[str, Any]:
    theory, experiment = dl.solve(make()), dl.simulate(make(), 30, 8)
    return {
        "Solution": theory,
        "Ensemble": experiment,
        "Measured": dl.measured(test_loss=experiment.test_loss[:, ::5], steps=5),
        "Comparison": dl.compare(theory, experiment),
        "Transfer": dl.transfer(make(), "width", [1, 2]),
        "Sensitivity": dl.sensitivity(make(), ["lr", "noise"]),
        "Sharpness": dl.sharpness(make(steps=4), at=[0, 3], vectors=2),
        "Landscape": dl.landscape(make(steps=4), positions=[0.0, 0.5, 1.0]),
        "WeightSpectra": dl.weight_spectra(make(steps=4), at=[0, 3]),
        "OptimalLr": dl.optimal_lr(make()),
        "MaxStableLr": dl.max_stable_lr(make()),
        "FiniteSize": dl.finite_size(make(), 100, pairs=4),
        "CoordinateCheck": dl.coordinate_check(make(steps=4), widths=[1, 2]),
        "CriticalBatch": dl.critical_batch(make(sampling=dl.OnlineSGD(0.5)), 0.5, [0.01, 0.5, 1, 2, 8]),
    }


NAMES = [
    "Solution",
    "Ensemble",
    "Measured",
    "Comparison",
    "Transfer",
    "Sensitivity",
    "Sharpness",
    "Landscape",
    "WeightSpectra",
    "OptimalLr",
    "MaxStableLr",
    "FiniteSize",
    "CoordinateCheck",
    "CriticalBatch",
]


@pytest.mark.parametrize("name", NAMES)
def test_results_are_drawn_alone_and_into_given_axes(name: str) -> None:
    result = results()[name]
    result.plot().canvas.draw()
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert result.plot(ax=right) is figure
    assert right.get_lines()
    assert right.get_xlabel()
    assert not left.get_lines()
    assert len(figure.axes) == 2
    figure.savefig("/dev/null", format="png")


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_show_a_picture_and_a_table(name: str) -> None:
    text = results()[name]._repr_html_()
    assert re.search(r'<img alt="\w+" src="data:image/png;base64,iVBOR', text)
    assert "<table>" in text or "<pre>" in text
    assert len(text) < 150_000


def test_a_figure_shows_itself_without_pyplot() -> None:
    assert results()["Solution"].plot()._repr_png_().startswith(b"\x89PNG")


def test_theory_is_drawn_with_experiment_in_one_line() -> None:
    theory, experiment = results()["Solution"], results()["Ensemble"]
    titles = [figure.get_suptitle() for figure in (theory.plot(experiment=experiment), dl.plot(theory, experiment))]
    assert titles[0] == titles[1]
    with_verdict = results()["Comparison"].plot()
    assert len(with_verdict.axes) == 4
    assert "verdict" in with_verdict.get_suptitle()


def test_measured_losses_are_drawn_where_they_were_recorded() -> None:
    theory, curves = results()["Solution"], results()["Measured"]
    losses, scores = dl.plot(theory, curves).axes
    solid = [line for line in losses.get_lines() if line.get_linestyle() == "-"]
    assert [line.get_label() for line in solid] == ["test loss"]
    np.testing.assert_array_equal(solid[0].get_xdata(), curves.times)
    np.testing.assert_allclose(solid[0].get_ydata(), curves.test_loss.mean(axis=0), rtol=1e-14)  # order of a sum
    z = dl.compare(theory, curves)["test_loss"].z
    assert any(len(line.get_ydata()) == len(z) and np.allclose(line.get_ydata(), z) for line in scores.get_lines())


def test_one_run_has_its_deviation_in_place_of_z_scores() -> None:
    theory = results()["Solution"]
    deviation = dl.plot(theory, 1.1 * theory.test_loss).axes[1]
    assert deviation.get_ylabel() == "deviation (%)"
    np.testing.assert_allclose(deviation.get_lines()[1].get_ydata(), 10.0)


def test_a_sensitivity_is_drawn_in_per_cent_per_per_cent() -> None:
    found = results()["Sensitivity"]
    line = next(line for line in found.plot().axes[0].get_lines() if line.get_label() == "label noise")
    np.testing.assert_allclose(line.get_ydata(), 0.3 * found.d_test_loss["noise"] / found.test_loss)


def test_sweeps_are_drawn() -> None:
    grid = {"width": [1.0, 2.0, "infinite"], "lr": [0.02, 0.05, 3.0]}
    found = dl.sweep(make(), grid, workers=1)
    ax = dl.plot(found).axes[0]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["width 1", "width 2", "width ∞"]
    assert dl.plot(found.isel(width=0)).axes[0].get_legend() is None  # there is one curve
    final = found.test_loss.isel(time=-1).values[0]
    assert np.isinf(final[2]), "diverged"
    np.testing.assert_array_equal(ax.get_lines()[0].get_ydata(), [*final[:2], np.nan])


@pytest.mark.usefixtures("entries_only")
def test_losses_that_are_rounding_errors_are_marked() -> None:
    """In a sweep as crosses beside the curve, in a solution and a comparison by a line at their step."""
    problem = dl.Problem(
        dl.MLP(2, 1.0, centered=True), dl.Isotropic(0.5), dl.FullBatch(1.0), dl.SAM(0.02, rho=0.1), steps=40
    )
    with pytest.warns(UserWarning, match="the losses depend on rounding errors"):
        found = dl.sweep(problem, {"lr": [0.005, 0.01, 0.02]}, workers=1)
    curve, crosses = dl.plot(found).axes[0].get_lines()
    assert np.isnan(curve.get_ydata()).tolist() == [False, False, True]
    assert (crosses.get_label(), crosses.get_xdata().tolist()) == ("rounding errors", [0.02])
    solution = dl.solve(problem)
    step = solution.status.rounding_at
    networks = dl.simulate(problem, dim=10, seeds=2, workers=1)
    for figure in (solution.plot(), dl.compare(solution, networks).plot()):
        handles, labels = figure.axes[0].get_legend_handles_labels()
        assert handles[labels.index(f"rounding errors from step {step} on")].get_xdata()[0] == step
    diverged = dl.solve(problem.replace(steps=50))
    title = diverged.plot().axes[0].get_title(loc="left")
    assert title == f"theory: diverged at step {diverged.status.diverged_at}: lower the learning rate"


def test_sweeps_are_drawn_with_networks_and_other_axes() -> None:
    both = dl.sweep(make(), {"steps": [5, 9]}, experiment={"dim": 10, "seeds": 3}, workers=1)
    ax = dl.plot(both).axes[0]
    theory = both.test_loss.values
    np.testing.assert_array_equal(ax.get_lines()[-1].get_ydata(), [theory[0, 4], theory[1, 8]])
    dl.plot(dl.sweep(make(), {"parameterization": ["mup", "ntk"]}, workers=1)).canvas.draw()
    three = dl.sweep(make(steps=3), {"lr": [0.1], "width": [1.0], "noise": [0.1]}, workers=1)
    with pytest.raises(ValueError, match=r"this sweep 3 \(lr, width, noise\): choose with sel first"):
        dl.plot(three)
    dl.plot(three.isel(noise=0)).canvas.draw()


def test_what_has_no_picture_is_refused() -> None:
    with pytest.raises(ValueError, match=r"result must be a Solution, Ensemble, .*, got int"):
        dl.plot(3)


def test_a_comparison_shows_one_screen() -> None:
    shown = repr(results()["Comparison"])
    assert shown == str(results()["Comparison"])
    problem = make(depth=20, steps=3)
    deep = dl.compare(dl.solve(problem), dl.simulate(problem, 12, 8))
    assert len(str(deep).splitlines()) > 40
    assert len(repr(deep).splitlines()) < 12
    farthest = max(
        (each for each in deep.observables if each.name == "feature_correlation"), key=lambda each: each.max_z
    )
    assert f"\n{farthest.label} " in repr(deep)
    assert len(repr(deep.observables[0])) < 120
    assert len(repr(deep.experiment)) < 120


@pytest.mark.parametrize("name", ["Transfer", "Sensitivity", "Sharpness"])
def test_a_result_shows_what_it_prints_and_not_its_whole_problem(name: str) -> None:
    result = results()[name]
    assert repr(result) == str(result)
    assert "Problem(" not in repr(result)


def test_no_result_that_is_drawn_begins_with_its_problem() -> None:
    kinds = (dl.Plan, dl.Transfer, dl.Optimum, dl.OptimalSchedule, dl.Sensitivity, dl.Fit, dl.FiniteSize)
    for kind in (*kinds, dl.Sharpness, dl.Landscape, dl.WeightSpectra, dl.CriticalBatch):
        assert kind.__repr__ is kind.__str__


def test_several_theories_are_drawn_over_each_other() -> None:
    wider = dl.solve(make().replace(width=4.0, steps=30))
    theories = (dl.solve(make()), wider, dl.solve(make().replace(momentum=0.5)))
    figure = dl.plot(*theories)
    (ax,) = figure.axes
    named = {line.get_label(): line for line in ax.get_lines() if not line.get_label().startswith("_")}
    first = [theory.test_loss[0] for theory in theories]
    np.testing.assert_array_equal([line.get_ydata()[0] for line in named.values()], first)
    assert [name.replace("\n", " ") for name in named] == [
        "width 1, 21 steps",
        "width 4, 30 steps",
        "width 1, momentum 0.5, 21 steps",
    ]
    assert "width" not in figure.get_suptitle()
    own = Figure().add_subplot()
    assert dl.plot(theories[0], wider, ax=own) is own.figure
    message = "result must be a Solution, as all are where more than two are drawn, got int"
    with pytest.raises(ValueError, match=message):
        dl.plot(theories[0], wider, 3)


def test_legends_of_losses_cover_no_curve() -> None:
    figure = dl.plot(dl.solve(make().replace(lr=0.5, steps=80)))
    figure.canvas.draw()
    (ax,) = figure.axes
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1


@pytest.mark.parametrize("low", [0.09, 0.0021, 0.4])
@pytest.mark.parametrize("ratio", [1.05, 1.2, 2.0, 5.0, 30.0, 200.0])
def test_logarithmic_axes_have_three_numbers_or_more(low: float, ratio: float) -> None:
    ax = new_figure(4.0, 3.0).add_subplot()
    ax.plot([1, 2], [low, low * ratio])
    log_axis(ax)
    inside = [tick for tick in ax.get_yticks() if ax.get_ylim()[0] <= tick <= ax.get_ylim()[1]]
    assert 3 <= len(inside) <= 12


def test_a_run_of_few_steps_has_every_step_on_its_axis() -> None:
    (ax,) = dl.plot(dl.solve(make().replace(steps=5))).axes
    assert ax.get_xticks().tolist() == [0, 1, 2, 3, 4]


def test_weights_of_which_nothing_is_learned_yet_say_so() -> None:
    (ax,) = dl.plot(dl.weight_spectra(make().replace(steps=2, lr=1e-6), at=[0, 1])).axes
    assert ax.get_ylim() == (0.0, 2.0)
    assert [text.get_text() for text in ax.texts] == ["no singular value has left the bulk yet"]
