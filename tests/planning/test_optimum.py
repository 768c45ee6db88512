"""The best of several fields at once: against brute force, exact derivatives and optimal_lr."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.progress import Counter
from deeplinear._core.refusal import Refusal
from deeplinear._planning.axes import Axis, at, axes_of
from deeplinear._planning.joint import JointSearch
from factories import maker

make = maker("sampling", "steps", depth=2, width=1.0, noise=0.3, lr=0.05)


def search_of(problem: dl.Problem, names: list[str], margin: float = 0.05) -> JointSearch:
    return JointSearch(problem, axes_of(problem, names, None), "test", margin, Counter(None, 1))


CASES: dict[str, tuple[dl.Problem, dict[str, tuple[float, float]]]] = {
    "richness": (make(dl.OnlineSGD(0.5), 8), {"lr": (0.005, 1.0), "richness": (0.2, 5.0)}),
    "momentum": (make(dl.OnlineSGD(0.4), 8, depth=1), {"lr": (0.005, 1.0), "momentum": (0.0, 0.9)}),
    "decay": (make(dl.FullBatch(1.2), 8, noise=0.8), {"lr": (0.005, 1.0), "weight_decay": (0.0, 2.0)}),
    "batch": (make(dl.MultiPassSGD(1.5, 0.5), 8, noise=0.8), {"lr": (0.005, 1.0), "batch": (0.1, 1.5)}),
}


@pytest.mark.parametrize(
    "name", ["momentum", *(pytest.param(name, marks=pytest.mark.slow) for name in ("richness", "decay", "batch"))]
)
def test_brute_force(name: str) -> None:
    """No pair of values on a grid of 24 x 8 that keeps the margin is better; the optimum keeps it too."""
    problem, bounds = CASES[name]
    found = dl.optimal(problem, list(bounds), bounds=bounds, starts=3)
    search = search_of(problem, list(bounds))
    ends = [Axis(each, *ends) for each, ends in bounds.items()]
    grids = [
        np.linspace(axis.coordinate(axis.low), axis.coordinate(axis.high), n)
        for axis, n in zip(ends, (24, 8), strict=True)
    ]
    search.axes = tuple(ends)
    heights = search._heights([np.array(place) for place in itertools.product(*grids)])
    least, noise = math.exp(min(heights)), problem.data.noise**2
    assert found.loss - noise <= least * (1 + 1e-3)
    assert found.loss - noise > 0.85 * least  # a ratio of 1.26 between rates misses the bottom by less
    assert dl.solve(found.problem).test_loss[-1] == pytest.approx(found.loss, rel=1e-9)
    for each, (low, high) in bounds.items():
        assert low <= found.values[each] <= high


def test_slopes_are_those_of_differences() -> None:
    """Central differences, with an error of order 1e-10 in steps of 1e-5; with what counts against the margin."""
    problem = make(dl.MultiPassSGD(1.5, 0.5), 10, optimizer=dl.GradientDescent(0.05, momentum=0.4, weight_decay=0.1))
    names = ["lr", "momentum", "weight_decay", "richness", "width", "samples", "batch"]
    search = search_of(problem, names, margin=0.3)
    for rate, is_steep in ((0.04, False), (0.19, True)):
        values = {"lr": rate, "momentum": 0.4, "weight_decay": 0.1}
        values |= {"richness": 1.0, "width": 1.0, "samples": 1.5, "batch": 0.5}
        place = np.array([axis.coordinate(values[axis.name]) for axis in search.axes])
        assert (search.penalty(place) > 0) == is_steep
        height, slope = search._slope(place)
        assert height == pytest.approx(search._heights([place])[0], rel=1e-12)
        for index, step in enumerate(1e-5 * np.eye(len(names))):
            low, high = search._heights([place - step, place + step])
            assert slope[index] == pytest.approx((high - low) / 2e-5, rel=1e-4, abs=1e-6), names[index]


def test_bounds_are_in_the_units_of_the_data() -> None:
    """Ratios to the input dimension, or counts where data have no dimension; bounds have no rounding errors."""
    counted = make(dl.OnlineSGD(4.0), 8, data=dl.Spectrum.power_law(1.5, 0.5), width=64.0)
    assert [(each.low, each.high) for each in axes_of(counted, ["batch", "width"], None)] == [(1, 2048), (4, 4096)]
    (ratio,) = axes_of(make(dl.OnlineSGD(0.5), 8), ["batch"], None)
    assert (ratio.low, ratio.high) == (0.02, 20.0)
    for axis in (ratio, Axis("weight_decay", 0.0, 0.3), Axis("momentum", 0.0, 0.9)):
        assert [axis.value(axis.coordinate(end)) for end in (axis.low, axis.high)] == [axis.low, axis.high]


def test_one_field_is_the_best_rate() -> None:
    problem = make(dl.OnlineSGD(0.5), 12)
    found, best = dl.optimal(problem, ["lr"]), dl.optimal_lr(problem)
    assert found.values["lr"] == pytest.approx(best.lr, rel=1e-3)
    assert found.loss == pytest.approx(best.loss, rel=1e-6)
    assert found.curvature[0, 0] == pytest.approx(best.curvature, rel=0.02)  # that of optimal_lr is right to 1 %
    assert found.stable_factor == pytest.approx(dl.max_stable_lr(problem).lr / found.values["lr"], rel=1e-3)
    assert not found.binding
    assert len(found.minima) == 1


def test_a_schedule_is_scaled() -> None:
    problem = make(dl.OnlineSGD(0.5), 12, optimizer=dl.GradientDescent(dl.schedules.linear(0.5)))
    found = dl.optimal(problem, "lr")
    assert found.problem.optimizer.lr == dl.schedules.linear(0.5 * found.values["lr"])
    assert found.loss == pytest.approx(dl.optimal_lr(problem).loss, rel=1e-6)


def test_bounds_that_bind() -> None:
    """More samples and larger batches are always better, so the upper bound binds."""
    problem = make(dl.MultiPassSGD(1.5, 0.5), 8)
    found = dl.optimal(problem, ["lr", "samples"], bounds={"samples": (1.0, 3.0), "lr": (1e-3, 0.02)}, starts=2)
    assert found.binding == {"lr": "high", "samples": "high"}
    assert found.values == {"lr": pytest.approx(0.02), "samples": 3.0}
    assert "samples                3, at its high bound" in str(found)


@pytest.mark.slow
def test_several_minima_and_the_gain_over_the_rate_alone() -> None:
    problem = make(dl.FullBatch(1.2), 8, noise=0.8)
    found = dl.optimal(problem, ["lr", "weight_decay", "richness"], starts=3)
    assert found.loss < 0.95 * dl.optimal_lr(problem).loss
    assert found.minima[0].values == found.values
    losses = [each.loss for each in found.minima]
    assert losses == sorted(losses)
    assert [each.loss for each in found.minima] == [
        pytest.approx(dl.solve(at(problem, each.values)).test_loss[-1], rel=1e-9) for each in found.minima
    ]


@pytest.mark.slow
def test_no_minimum_is_listed_twice() -> None:
    """Rate, richness and decay make a curved flat valley; two ends in it, equal to 3e-6, were two minima."""
    network, data = dl.MLP(4, 1.1497091039741147, richness=0.5091907308738605), dl.Isotropic(0.27950748709767653)
    problem = dl.Problem(network, data, dl.FullBatch(1.1526641537111255), dl.GradientDescent(0.1), steps=39)
    assert len(dl.optimal(problem, ["lr", "richness", "samples", "weight_decay"]).minima) == 1


def test_the_optimum_is_drawn_whole_also_at_a_bound() -> None:
    problem = make(dl.MultiPassSGD(1.5, 0.5), 8)
    found = dl.optimal(problem, ["samples"], bounds={"samples": (1.0, 3.0)}, starts=1)
    assert found.binding == {"samples": "high"}
    (ax,) = found.plot().axes
    (point,) = (line for line in ax.get_lines() if line.get_marker() == "o")
    assert point.get_xdata() == [3.0]
    assert not point.get_clip_on()


@pytest.mark.slow
def test_the_margin_is_kept() -> None:
    """Full batches have their best rate at an edge, from which a margin keeps away."""
    problem = make(dl.FullBatch(3.0), 15, noise=0.1)
    wide = dl.optimal(problem, ["lr", "richness"], bounds={"richness": (0.5, 2.0)}, margin=0.3, starts=2)
    higher = dl.solve(at(problem, wide.values | {"lr": 1.3 * wide.values["lr"]})).test_loss[-1]
    assert higher - 0.01 < 1.2 * (wide.loss - 0.01)
    narrow = dl.optimal(problem, ["lr", "richness"], bounds={"richness": (0.5, 2.0)}, margin=0.02, starts=2)
    assert narrow.loss < wide.loss


@pytest.mark.parametrize(
    ("over", "options", "text"),
    [
        (["lr", "lr"], {}, "over must be one or more distinct names"),
        ([], {}, "over must be one or more distinct names"),
        (["depth"], {}, "over must be among lr, richness, .*, got 'depth'"),
        (["noise"], {}, "over must be among"),
        (["clip"], {}, "clip must be one finite number to be searched over, got None"),
        (["lr"], {"bounds": {"width": (1, 2)}}, r"given for fields that are searched over \(lr\), got 'width'"),
        (["lr"], {"bounds": {"lr": (0.2, 0.1)}}, r"bounds\['lr'\] must be two numbers, the second one larger"),
        (["lr"], {"bounds": {"lr": (0.2, 0.2)}}, "the second one larger"),
        (["lr"], {"bounds": {"lr": 0.2}}, "two finite numbers, low and high, got 0.2"),
        (["lr"], {"bounds": {"lr": (0.0, 0.2)}}, "must be positive"),
        (["momentum"], {"bounds": {"momentum": (0.0, 1.0)}}, "must be below 1"),
        (["samples", "batch"], {"bounds": {"samples": (0.1, 0.2), "batch": (1, 2)}}, "that go together, but"),
        (["lr"], {"starts": 0}, "starts must be a whole number, at least 1"),
        (["lr"], {"margin": -1}, "margin must be a finite number, zero or above"),
        (["lr"], {"objective": "all"}, "objective must be 'test' or 'train'"),
    ],
)  # fmt: skip
def test_refusals(over: list[str], options: dict[str, Any], text: str) -> None:
    with pytest.raises(Refusal, match=text):
        dl.optimal(make(dl.MultiPassSGD(1.5, 0.5), 8), over, **options)


def test_divergence_everywhere_is_said() -> None:
    with pytest.raises(ArithmeticError, match="training diverges at every one of 2 starts"):
        dl.optimal(make(dl.OnlineSGD(0.5), 30, lr=50.0), ["weight_decay"], starts=2)


def test_the_picture() -> None:
    found = dl.optimal(make(dl.OnlineSGD(0.5), 8), ["lr", "momentum"], starts=1)
    figure = found.plot()
    assert [ax.get_xlabel() for ax in figure.axes] == ["learning rate", "momentum"]
    for ax, (name, (values, losses)) in zip(figure.axes, found.profiles.items(), strict=True):
        np.testing.assert_array_equal(ax.get_lines()[0].get_xdata(), values)
        assert losses.min() >= found.loss * (1 - 1e-5), name


def test_the_edge_is_that_of_the_best_rate() -> None:
    """On the problem of the command line a rate 8 % higher costs a fifth of the loss, though training comes down."""
    problem = dl.Problem(dl.MLP(3, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.03), steps=30)
    found, best = dl.optimal(problem, ["lr"], starts=1), dl.optimal_lr(problem)
    assert best.at_edge
    assert found.at_edge
    assert found.at_margin
    assert (found.safe_lr, found.safe_loss) == (pytest.approx(best.safe_lr), pytest.approx(best.safe_loss))
    assert f"with a margin lr {best.safe_lr:.4g}: test loss {best.safe_loss:.4g}" in str(found)
    assert "held back by its margin from an edge, where the loss rises steeply" in str(found)
    assert "stable up to" not in str(found)
    bounded = dl.optimal(problem, ["lr"], starts=1, bounds={"lr": [0.08, 0.09]})
    assert math.isnan(bounded.safe_lr)
    assert "with a margin" not in str(bounded)
    fixed = dl.optimal(problem.replace(lr=0.03), ["weight_decay"], starts=1)
    assert not fixed.at_edge
    assert math.isnan(fixed.safe_lr)


def test_the_safe_rate_of_a_schedule_is_a_factor_like_the_best() -> None:
    problem = dl.Problem(
        dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(dl.schedules.linear(0.1)), steps=10
    )
    found, best = dl.optimal(problem, ["lr"], starts=1), dl.optimal_lr(problem)
    assert found.safe_lr == pytest.approx(best.safe_lr, rel=0.05)  # which is of the rates that were searched
    assert f"{found.values['lr']:.2g}" == f"{best.lr:.2g}"
