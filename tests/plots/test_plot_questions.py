"""Pictures of the best and the stable rates, of finite size and of critical batches show what was found."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import deeplinear as dl

SMOOTH = dl.Problem(dl.MLP(3, 1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.01), steps=50)
ROUGH = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.5), dl.FullBatch(1.0), dl.GradientDescent(0.1), steps=60)
HOLES = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(), dl.FullBatch(1.5), dl.GradientDescent(0.1, momentum=0.9), steps=40)
LEARNED = dl.Problem(
    dl.MLP(1, 1.0), dl.Isotropic(), dl.Population(), dl.GradientDescent(dl.schedules.cosine(0.1)), steps=200
)


def marks(ax: Axes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    handles, labels = ax.get_legend_handles_labels()
    return {
        label: (line.get_xdata(), line.get_ydata())
        for line, label in zip(handles, labels, strict=True)
        if hasattr(line, "get_xdata")
    }


@pytest.mark.parametrize("problem", [SMOOTH, ROUGH, LEARNED], ids=["smooth", "rough", "down to rounding"])
def test_no_loss_that_is_drawn_is_below_the_best(problem: dl.Problem) -> None:
    found = dl.optimal_lr(problem)
    (ax,) = found.plot().axes
    (lr,), (least,) = marks(ax)["best"]
    assert lr == found.lr
    assert least == found.loss or not found.is_resolved
    curve, points = ax.get_lines()[:2]
    for line in (curve, points):
        assert np.nanmin(line.get_ydata()) >= least * (1 - 1e-14)  # exp(log(loss)) is not the loss to the last digit
    assert np.isin(points.get_xdata(), [*found.lrs, found.lr]).all()
    low, high = ax.get_ylim()
    assert low < least < high


def test_the_margin_the_width_and_other_minima_are_drawn() -> None:
    found = dl.optimal_lr(ROUGH)
    (ax,) = found.plot().axes
    drawn = marks(ax)
    assert drawn["with a margin"] == ([found.safe_lr], [found.safe_loss])
    np.testing.assert_array_equal(drawn["nearly as good"], np.transpose([(o.lr, o.loss) for o in found.minima[1:]]))
    band = ax.patches[0].get_extents().transformed(ax.transData.inverted())
    np.testing.assert_allclose([band.x0, band.x1], [found.minima[0].low, found.minima[0].high])
    assert np.isinf(found.losses[np.isin(found.lrs, drawn["diverges or above"][0])]).any()


def test_stable_rates_are_shaded_and_holes_are_not() -> None:
    found = dl.max_stable_lr(HOLES)
    assert found.largest_lr > found.lr
    (ax,) = found.plot().axes
    spans = [patch.get_extents().transformed(ax.transData.inverted()) for patch in ax.patches]
    ends = [(span.x0, span.x1) for span in spans]
    np.testing.assert_allclose(ends[0][1], found.lr)
    np.testing.assert_allclose(ends[-1][1], found.largest_lr)
    left, right = ax.get_xlim()
    for lr, is_stable in zip(found.lrs, found.is_stable, strict=True):
        if left <= lr <= right:
            assert any(low * (1 - 1e-9) <= lr <= high * (1 + 1e-9) for low, high in ends) == is_stable


def test_rates_that_were_tried_are_kept_with_their_losses() -> None:
    found = dl.max_stable_lr(HOLES)
    assert (np.diff(found.lrs) > 0).all()
    assert found.is_stable[found.lrs == found.lr].tolist() == [True]
    assert found.is_stable[found.lrs == found.unstable_lr].tolist() == [False]
    assert (found.losses[found.is_stable] <= found.bound).all()
    assert (found.losses[~found.is_stable] > found.bound).all()
    loss = dl.solve(HOLES.replace(lr=found.lr)).train_loss[-1]
    np.testing.assert_allclose(found.losses[found.lrs == found.lr], loss, rtol=1e-9)  # rounding, near an edge


def test_finite_size_is_drawn_as_shift_and_scatter() -> None:
    found = dl.finite_size(SMOOTH.replace(steps=12), 100, pairs=8)
    losses, shifts, scatters = found.plot().axes
    effect = found["test_loss"]
    np.testing.assert_array_equal(losses.get_lines()[0].get_ydata(), effect.theory + effect.shift)
    np.testing.assert_array_equal(losses.get_lines()[1].get_ydata(), effect.theory)
    np.testing.assert_allclose(shifts.get_lines()[1].get_ydata(), 100 * effect.shift / effect.theory)
    np.testing.assert_allclose(scatters.get_lines()[0].get_ydata(), 100 * effect.scatter / effect.theory)


def test_batches_that_do_not_reach_the_loss_are_marked() -> None:
    online = dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.1), steps=60)
    found = dl.critical_batch(online, 0.2, [0.05, 0.25, 0.5, 1, 2, 4])
    steps, rates = found.plot().axes
    drawn = marks(steps)
    assert drawn["not within 60 steps"][0].tolist() == [0.05]
    assert drawn["critical batch, 2.01"][0] == [found.critical, found.critical]
    np.testing.assert_allclose(np.multiply(*drawn["half the steps for twice the batch"]), found.examples[1])
    np.testing.assert_array_equal(rates.get_lines()[0].get_ydata(), found.lrs)
    open_ended = replace(found, critical=np.nan)
    assert not any("critical" in label for label in marks(open_ended.plot().axes[0]))


def test_a_coordinate_check_goes_into_given_axes() -> None:
    found = dl.coordinate_check(SMOOTH.replace(steps=4), widths=[1, 2])
    _, updates = found.plot().axes
    ax = Figure().add_subplot()
    assert found.plot(ax=ax) is ax.figure
    assert ax.get_ylabel() == updates.get_ylabel() == "size of the update"
    for ours, theirs in zip(ax.get_lines(), updates.get_lines(), strict=True):
        np.testing.assert_array_equal(ours.get_ydata(), theirs.get_ydata())
