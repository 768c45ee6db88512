"""Transfer of weight decay, momentum and batch: against brute force on random problems, differences and refusals."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import maximum_filter1d

import deeplinear as dl
from deeplinear._planning.verdict import Evidence, Named, judge
from deeplinear._problem.edit import replace
from deeplinear._theory.curves import curves
from factories import maker, some_slow

make = maker("sampling", "steps", depth=2, width=1.0, noise=0.3, lr=0.05)

WINDOW = 7
"""Neighbouring values of brute force whose largest loss counts: as far apart as two values of a scan."""

RANGES = {"weight_decay": (0.0, 1.0), "momentum": (0.0, 0.99), "batch": (0.05, 1.5)}


def fine(field: str, count: int = 250) -> list[float]:
    """Values all over the range of a field, close enough for brute force."""
    low, high = RANGES[field]
    if field == "momentum":
        return (1.0 - np.geomspace(1.0, 1.0 - high, count)).tolist()
    offset = 1e-3 if low == 0 else 0.0
    return np.clip(np.geomspace(low + offset, high + offset, count) - offset, low, high).tolist()


def ugly(seed: int) -> tuple[dl.Problem, str, str, list[float]]:
    """A random problem, what is followed, and over what."""
    rng = np.random.default_rng(seed)
    field = str(rng.choice(list(RANGES)))
    over = str(rng.choice(["width", "depth", "steps", "samples"]))
    batch = float(rng.choice([0.1, 0.5, 1.5]))
    several = dl.MultiPassSGD(1.5, batch) if field == "batch" else dl.FullBatch(float(rng.uniform(0.5, 3.0)))
    sampling = several if over == "samples" or rng.random() < 0.5 else dl.OnlineSGD(batch)
    parameterization = str(rng.choice(["mup", "ntk"]))
    network = dl.MLP(int(rng.integers(1, 4)), 1.0, float(rng.uniform(0.3, 3.0)), parameterization=parameterization)
    rate = float(np.exp(rng.uniform(np.log(0.01), np.log(0.4))))
    nesterov = field != "momentum" and bool(rng.random() < 0.3)
    optimizer = dl.GradientDescent(rate, momentum=0.5 if nesterov else 0.0, nesterov=nesterov)
    problem = dl.Problem(network, dl.Isotropic(float(rng.uniform(0, 1))), sampling, optimizer, int(rng.integers(6, 25)))
    values = {"width": [0.3, 2.0], "depth": [1, 3], "steps": [5, 20], "samples": [1.5, 4.0]}[over]
    return problem, field, over, values


def check_against_brute_force(seed: int) -> None:
    """No value all over the range is better, but in dips; the regret is the extra loss at the value of the smallest."""
    problem, field, over, values = ugly(seed)
    models = [replace(problem, {over: value}) for value in values]
    losses = [
        np.array([each.test_loss[-1] for each in curves([replace(model, {field: x}) for x in fine(field)])])
        for model in models
    ]
    if not all(np.isfinite(each).any() for each in losses):
        with pytest.raises(ArithmeticError, match="training diverges at each of 49 values"):
            dl.transfer(problem, over, values, field=field, bounds=RANGES[field])
        return
    found = dl.transfer(problem, over, values, field=field, bounds=RANGES[field])
    for index, (model, brute) in enumerate(zip(models, losses, strict=True)):
        least = float(maximum_filter1d(brute, WINDOW).min())
        own = dl.solve(replace(model, {field: float(found.best[index])})).test_loss[-1]
        assert own == pytest.approx(found.optima[index].loss, rel=1e-9)
        assert found.optima[index].loss <= least * (1 + 1e-3), (seed, index)
        kept = dl.solve(replace(model, {field: float(found.best[0])})).test_loss[-1]
        noise = problem.data.noise**2
        assert found.regret[index] == pytest.approx(max((kept - noise) / (own - noise) - 1, 0.0), rel=1e-6, abs=1e-9)
        assert bool(found.binding[index]) == (found.best[index] in RANGES[field])


@pytest.mark.parametrize("seed", some_slow([6, 11], 11))
def test_brute_force(seed: int) -> None:
    check_against_brute_force(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 150))
def test_more_brute_force(seed: int) -> None:
    check_against_brute_force(seed)


@pytest.mark.parametrize(
    ("field", "over", "sampling", "options"),
    [
        ("weight_decay", "samples", dl.FullBatch(1.2), {"noise": 0.8, "lr": 0.1}),
        ("momentum", "batch", dl.OnlineSGD(2.0), {"lr": 0.02}),
    ],
)
def test_local_exponents_are_those_of_nearby_optima(field: str, over: str, sampling: Any, options: Any) -> None:
    """Central differences of the logarithm of what moves, whose error is of order 1e-4 in steps of 1 %."""
    problem, step = make(sampling, 15, **options), 0.01
    middle = {"samples": 1.2, "batch": 2.0}[over]
    values = [middle * math.exp(shift) for shift in (-step, 0.0, step)]
    found = dl.transfer(problem, over, values, field=field)
    moving = 1 / (1 - found.best) if field == "momentum" else found.best
    assert not any(found.binding)
    assert found.local_exponents[1] == pytest.approx(math.log(moving[2] / moving[0]) / (2 * step), rel=2e-3, abs=1e-4)
    assert found.exponent == pytest.approx(found.local_exponents[1], rel=2e-3, abs=1e-4)


def test_weight_decay_without_noise_or_small_data_is_zero() -> None:
    problem = make(dl.OnlineSGD(2.0), 10, noise=0.0)
    found = dl.transfer(problem, "width", [1.0, 2.0], field="weight_decay")
    assert found.best.tolist() == [0.0, 0.0]
    assert found.binding == ("low", "low")
    assert math.isnan(found.exponent)
    assert found.verdict.startswith("transfers: the best weight decay is at its low bound throughout, and that of")
    assert found.to_xarray().optimal_weight_decay.values.tolist() == [0.0, 0.0]
    assert found.to_xarray().loss.dims == ("width", "weight_decay")
    assert found.tried[0] == 0.0
    assert "at its low bound" in str(found)


def test_a_loss_before_training_does_not_move() -> None:
    """At one step no field changes the loss, whose curvature was divided by."""
    found = dl.transfer(make(dl.FullBatch(2.0), 1), "width", [1.0, 2.0], field="weight_decay")
    assert np.isnan(found.local_exponents).all()
    assert (found.regret == 0).all()


def test_a_loss_that_bends_beyond_all_numbers_has_its_optimum() -> None:
    """The least decay changes a centered network by as much as one over the richness: curvature overflowed, aloud."""
    for momentum in (0.0, 0.5):
        optimizer = dl.GradientDescent(0.006, momentum=momentum)
        lazy = make(dl.FullBatch(0.9), 8, network=dl.MLP(1, 1.0, 1e-158, centered=True), noise=0.0, optimizer=optimizer)
        found = dl.transfer(lazy, "width", [1.0, 2.0], field="weight_decay")
        assert (found.best == 0).all()


def test_bounds_in_words() -> None:
    regret = np.array([0.0, 0.02, 0.3])
    known = Evidence((math.nan, math.nan), (regret, regret), bounds=("low", "", "high"))
    words = judge(Named("width", "momentum", "1 / (1 - momentum)"), np.array([1.0, 2.0, 4.0]), known)
    assert words == (
        "does not transfer: the best momentum is at its low bound at width 1 and its high bound at width 4, "
        "and that of width 1 costs 30 % more loss at width 4"
    )


def test_rates_and_other_fields_are_told_apart() -> None:
    problem = make(dl.OnlineSGD(2.0), 6)
    found = dl.transfer(problem, "width", [1.0], field="momentum")
    with pytest.raises(AttributeError, match="this transfer follows momentum and has no lr: see best and tried"):
        _ = found.lr
    rates = dl.transfer(problem, "width", [1.0], lrs=[0.01, 0.1])
    np.testing.assert_array_equal(rates.lr, rates.best)
    np.testing.assert_array_equal(rates.lrs, rates.tried)


def test_the_picture_has_the_field_on_its_axes() -> None:
    found = dl.transfer(make(dl.OnlineSGD(2.0), 8, lr=0.02), "width", [1.0, 2.0], field="momentum")
    curves_of, optima, regret = found.plot().axes
    assert curves_of.get_xlabel() == "momentum"
    assert optima.get_ylabel() == "optimal momentum"
    assert regret.get_ylabel() == "extra loss above noise at the momentum of width 1"
    marked = {
        (line.get_xdata()[0], line.get_ydata()[0]) for line in curves_of.get_lines() if len(line.get_xdata()) == 1
    }
    assert marked == {(value, each.loss) for value, each in zip(found.best, found.optima, strict=True)}
    assert curves_of.xaxis.get_transform().transform(np.array([])).size == 0  # asked for by some versions of matplotlib


@pytest.mark.parametrize(
    ("problem", "over", "values", "field"),
    [
        pytest.param(
            make(dl.FullBatch(1.0), 8, depth=1, noise=1.0, lr=0.2),
            "samples",
            [1.0, 3.0],
            "weight_decay",
            marks=pytest.mark.slow,
        ),
        (make(dl.OnlineSGD(0.5), 6, depth=1, lr=0.05), "batch", [0.5, 4.0], "momentum"),
    ],
    ids=["weight decay", "momentum"],
)
def test_networks_have_the_predicted_optima_and_regrets(
    problem: dl.Problem, over: str, values: list[float], field: str
) -> None:
    """Intervals of 95 %, twice as wide: corrections of order 1/D are to be expected beyond that."""
    found = dl.transfer(problem, over, values, field=field, experiment={"dim": 60, "seeds": 12, "workers": 1})
    measured = found.experiment
    assert measured is not None
    ends = ((found.best, measured.low, measured.high), (found.regret, measured.regret_low, measured.regret_high))
    for predicted, low, high in ends:
        assert (predicted >= low - 0.5 * (high - low)).all()
        assert (predicted <= high + 0.5 * (high - low)).all()
    assert (measured.low < measured.best).all()
    assert (measured.best < measured.high).all()
    assert (measured.high - measured.low < 0.5 * (found.tried[-1] - found.tried[0])).all()
    assert measured.exponent_low < found.exponent < measured.exponent_high
    assert measured.binding == ("", "")
    # Of the values of the scan a third was trained at; the rest says so.
    assert measured.loss.shape == (2, 49, 12)
    assert np.isnan(measured.loss[:, 1::3]).all()
    assert np.isfinite(measured.loss[:, ::3]).all()
    dataset = found.to_xarray()
    np.testing.assert_array_equal(dataset[f"measured_{field}"], measured.best)
    np.testing.assert_array_equal(dataset[f"measured_{field}_low"], measured.low)
    assert dataset.attrs["measured_verdict"] == found.measured_verdict
    assert f"measured {field} (95 %)" in str(found)
    with pytest.raises(AttributeError, match=f"this transfer follows {field} and has no lr_low: see best, low, high"):
        _ = measured.lr_low
    assert len(found.plot().axes) == 3


def test_networks_whose_best_batch_is_the_largest() -> None:
    found = dl.transfer(
        make(dl.OnlineSGD(0.5), 5, depth=1, lr=0.15),
        "width",
        [1.0, 2.0],
        field="batch",
        bounds=(0.1, 2.0),
        experiment={"dim": 40, "seeds": 12, "workers": 1},
    )
    measured = found.experiment
    assert measured is not None
    assert found.binding == ("high", "high")
    assert (measured.high + 0.5 * (measured.high - measured.low) >= 2.0).all()  # as above
    assert (measured.low > 0.5).all()
    assert "networks: " in str(found)


def test_progress_ends() -> None:
    reports: list[tuple[int, int]] = []
    dl.transfer(
        make(dl.OnlineSGD(2.0), 5), "width", [1, 2], field="momentum", progress=lambda *each: reports.append(each)
    )
    assert reports[-1][0] == reports[-1][1]
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"field": "noise"}, "field must be 'lr' or .*, got 'noise'"),
        ({"field": "width"}, "field must be 'lr' or .*, got 'width'"),
        ({"field": "samples"}, "field must be 'lr' or .*, got 'samples'"),
        ({"field": 3}, "field must be 'lr' or .*, got 3"),
        ({"field": "momentum", "lrs": [0.1]}, "lrs must be left out where momentum is followed and not lr"),
        (
            {"field": "momentum", "experiment": {"size": 9}},
            "experiment must be a dict of dim, seeds, workers, device, method",
        ),
        (
            {"field": "momentum", "experiment": 9},
            "experiment must be a dict of dim, seeds, workers, device, method, got 9",
        ),
        ({"field": "momentum", "bounds": (0.5, 0.2)}, "two numbers, the second one larger"),
        ({"field": "momentum", "bounds": 0.5}, "two finite numbers, low and high"),
        ({"bounds": (0.1, 0.2)}, "bounds must be left out for lr, of which all values are searched"),
    ],
)
def test_refusals(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        dl.transfer(make(dl.OnlineSGD(0.5), 6), "width", [1.0], **options)
