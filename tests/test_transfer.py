"""How the optimal learning rate moves with the size of a model."""

import math

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._fields import replace
from deeplinear._learning_rate import optimal_lr
from deeplinear._measured import fit_exponent, locate_minimum
from deeplinear._transfer import transfer


def make(network=None, sampling=None, noise=0.3, steps=15, lr=0.05):
    return dl.Problem(
        network or dl.MLP(2, 1.0),
        dl.Isotropic(noise),
        sampling or dl.OnlineSGD(0.5),
        dl.GradientDescent(lr),
        steps,
    )


# --- exponents -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameterization", ["mup", "ntk"])
def test_one_step_of_online_sgd(parameterization):
    L, nu, batch = 3, 0.5, 0.2
    network = dl.MLP(L, nu, parameterization=parameterization, centered=True)
    problem = make(network, dl.OnlineSGD(batch), noise=0.0, steps=2)
    width_term = L * (L + 1) * (2 * L + 1) / (6 * nu)
    by_width = transfer(problem, "width", [nu])
    assert by_width.local_exponents[0] == pytest.approx(width_term / ((L + 1) ** 2 + width_term), rel=1e-5)
    by_batch = transfer(problem, "batch", [batch])
    assert by_batch.local_exponents[0] == pytest.approx(1 / (1 + batch), rel=1e-5)
    assert math.isnan(by_batch.exponent)


@pytest.mark.parametrize(
    ("over", "sampling"), [("width", dl.FullBatch(2.0)), ("samples", dl.FullBatch(2.0)), ("batch", dl.OnlineSGD(2.0))]
)
def test_local_exponents_are_those_of_nearby_optima(over, sampling):
    network = dl.MLP(2, 2.0, parameterization="ntk")
    problem, step = make(network, sampling), 0.01
    near = [optimal_lr(replace(problem, {over: 2.0 * math.exp(shift)})).lr for shift in (-step, step)]
    expected = math.log(near[1] / near[0]) / (2 * step)
    assert transfer(problem, over, [2.0]).local_exponents[0] == pytest.approx(expected, abs=2e-3)


def test_fits_a_power_law_with_its_standard_error():
    values, rng = np.array([1.0, 2.0, 4.0, 8.0]), np.random.default_rng(0)
    scattered = [
        fit_exponent(values, 0.1 * values**0.7 * np.exp(0.05 * rng.standard_normal(4)))[:2] for _ in range(2000)
    ]
    exponents, errors = np.array(scattered).T
    assert exponents.mean() == pytest.approx(0.7, abs=0.005)
    assert np.sqrt((errors**2).mean()) == pytest.approx(exponents.std(), rel=0.05)
    assert fit_exponent(np.array([1.0, math.inf]), np.array([0.1, 0.2]))[0] != 0  # nan: one point is no law
    assert math.isnan(fit_exponent(np.array([1.0, 2.0]), np.array([0.1, 0.2]))[1])


# --- what is known of networks -------------------------------------------------------------------------------


def test_the_optimum_of_rich_networks_moves_with_width_in_ntk_and_stays_in_mup():
    def exponent(parameterization):
        network = dl.MLP(3, 1.0, richness=4.0, parameterization=parameterization)
        return transfer(make(network, dl.Population(), steps=30, noise=0.1), "width", [0.5, 1.0, 2.0]).exponent

    assert exponent("ntk") == pytest.approx(0.6, abs=0.1)
    assert abs(exponent("mup")) < 0.15


def test_the_optimum_moves_with_depth_unless_branches_are_scaled():
    def optima(depths, **branch):
        problem = make(dl.ResNet(2, 1.0, **branch), dl.Population(), steps=6)
        return transfer(problem, "depth", depths, lrs=[0.01])

    unscaled = optima([2, 4, 8], branch_scaling="none")
    assert unscaled.lr[0] > 30 * unscaled.lr[-1]
    assert np.isnan(unscaled.local_exponents).all()
    scaled = optima([8, 32, math.inf])
    distances = np.log(scaled.lr[:2] / scaled.lr[2])
    assert 0 < distances[0] < 0.5
    assert distances[1] / distances[0] == pytest.approx(8 / 32, abs=0.05)
    assert scaled.exponent == pytest.approx(math.log(scaled.lr[1] / scaled.lr[0], 4))  # without the limit


def test_wide_networks_tend_to_the_infinite_limit():
    found = transfer(make(sampling=dl.FullBatch(2.0)), "width", [4.0, 64.0, math.inf])
    assert abs(math.log(found.lr[1] / found.lr[2])) < 0.4 * abs(math.log(found.lr[0] / found.lr[2]))
    assert abs(found.local_exponents[1]) < 0.1
    assert math.isnan(found.local_exponents[2])


def test_longer_training_of_online_sgd_needs_lower_rates():
    found = transfer(make(), "steps", [20, 40])
    assert found.exponent < -0.2
    assert found.optima[1].horizon == 39
    assert found.lr[0] == pytest.approx(optimal_lr(make(steps=20)).lr, rel=1e-5)


def test_dimension_free_data():
    law = dl.Spectrum.power_law(2.0, 1.75)
    network = dl.MLP(2, 32.0, 0.4, parameterization="ntk")
    problem = dl.Problem(network, law, dl.OnlineSGD(32.0), dl.GradientDescent(0.1), 10)
    found = transfer(problem, "width", [16.0, 64.0])
    assert found.exponent == pytest.approx(found.local_exponents.mean(), abs=0.15)


# --- curves --------------------------------------------------------------------------------------------------


def test_curves_are_those_of_solve_and_enclose_the_optima():
    problem = make()
    found = transfer(problem, "width", [0.5, 2.0])
    assert found.loss.shape == (2, len(found.lrs))
    assert found.lrs[0] < found.lr.min() / 4
    assert found.lrs[-1] > 2 * found.lr.max()
    for width, row, optimum in zip(found.values, found.loss, found.optima, strict=True):
        expected = [dl.solve(replace(problem, {"width": width, "lr": lr})).test_loss[-1] for lr in found.lrs]
        np.testing.assert_allclose(row, expected, rtol=1e-12)
        assert optimum.loss <= row.min()


def test_given_rates_are_sorted_and_do_not_change_the_optima():
    found = transfer(make(), "batch", [0.5], lrs=[0.1, 0.01], objective="train")
    np.testing.assert_array_equal(found.lrs, [0.01, 0.1])
    assert found.optima[0] == optimal_lr(make(), objective="train", tolerance=1e-5)


def test_a_schedule_is_scaled_as_a_whole():
    constant, scheduled = (transfer(make(lr=lr), "width", [1.0], lrs=[0.1]) for lr in (0.05, [0.05] * 15))
    assert 0.05 * scheduled.lr[0] == pytest.approx(constant.lr[0], rel=1e-5)
    assert scheduled.local_exponents[0] == pytest.approx(constant.local_exponents[0], rel=1e-3)
    assert scheduled.loss[0, 0] == dl.solve(make(lr=[0.1 * 0.05] * 15)).test_loss[-1]


# --- experiment ----------------------------------------------------------------------------------------------


def test_networks_have_the_predicted_optima():
    problem = make(dl.MLP(1, 1.0), dl.OnlineSGD(0.5), steps=6)
    lrs = 0.05 * 2.0 ** np.arange(0, 3.1, 0.5)
    found = transfer(problem, "batch", [0.25, 1.0], lrs=lrs, experiment={"dim": 60, "seeds": 24, "workers": 2})
    measured = found.experiment
    assert measured.loss.shape == (2, len(lrs), 24)
    # The same estimate for theory, since a cubic through five points is not quite the curve.
    predicted = np.array([locate_minimum(lrs, row) for row in found.loss])
    assert (np.abs(measured.lr - predicted) < 4 * measured.lr_error + 0.03 * predicted).all()
    assert (measured.lr_error < 0.2 * measured.lr).all()
    assert measured.exponent == pytest.approx(fit_exponent(found.values, predicted)[0], abs=4 * measured.exponent_error)
    np.testing.assert_allclose(predicted, found.lr, rtol=0.1)
    assert "measured" in str(found)
    dataset = found.to_xarray()
    assert dataset.measured_loss.dims == ("batch", "lr", "seed")


def test_diverged_networks_do_not_disturb_the_fit():
    lrs = np.geomspace(0.01, 0.16, 5)
    losses = np.exp((np.log(lrs) - np.log(0.05)) ** 2)
    losses[-1] = np.inf
    assert locate_minimum(lrs, losses) == pytest.approx(0.05)
    losses[-2] = np.inf  # the optimum is beside a single point
    assert locate_minimum(lrs, losses) == pytest.approx(0.05)
    assert locate_minimum(lrs, -np.log(lrs)) == lrs[-1]


# --- the object and its refusals -----------------------------------------------------------------------------


def test_named_axes_and_a_table():
    found = transfer(make(), "width", [1.0, 2.0, 4.0])
    dataset = found.to_xarray()
    assert dataset.loss.dims == ("width", "lr")
    np.testing.assert_array_equal(dataset.optimal_lr.sel(width=2.0), found.lr[1])
    assert dataset.attrs["exponent"] == found.exponent
    lines = str(found).splitlines()
    assert lines[0].split() == ["width", "optimal", "lr", "test", "loss", "exponent"]
    assert lines[-1].startswith("optimal lr ~ width^(")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"over": "samples"}, "over must be 'width' or 'depth' or 'batch' or 'steps', got 'samples'"),
        ({"over": "lr"}, "over must be .* got 'lr'"),
        ({"values": []}, "values must be one or more distinct numbers"),
        ({"values": [1.0, 1.0]}, "values must be one or more distinct numbers"),
        ({"values": [1.0, -2.0]}, r"values\[1\] must be a positive finite number, got -2.0"),
        ({"values": 3.0}, "values must be a sequence of numbers, got 3.0"),
        ({"over": "batch", "values": [math.inf]}, r"values\[0\] must be a positive finite number, got inf"),
        ({"over": "depth", "values": [1.5]}, "depth must be a whole number"),
        ({"lrs": [0.1, 0.0]}, r"lrs\[1\] must be a positive finite number, got 0.0"),
        ({"objective": "loss"}, "objective must be 'test' or 'train', got 'loss'"),
        ({"experiment": {"dims": 3}}, "experiment must be a dict of dim, seeds, workers, device, got"),
        ({"experiment": 30}, "experiment must be a dict of dim, seeds, workers, device, got 30"),
        ({"problem": 3}, "problem must be a Problem, got 3"),
    ],
)
def test_refusals(changes, message):
    arguments = {"problem": make(), "over": "width", "values": [1.0]} | changes
    with pytest.raises(ValueError, match=message):
        transfer(**arguments)


# --- progress ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lrs", [None, [0.05, 0.1, 0.2]])
@pytest.mark.parametrize("experiment", [None, {"dim": 20, "seeds": [3, 5]}])
def test_progress_counts_up_to_the_end(lrs, experiment):
    reports = []
    found = transfer(
        make(steps=4), "width", [1, 2], lrs=lrs, experiment=experiment, progress=lambda *each: reports.append(each)
    )
    done, totals = zip(*reports, strict=True)
    assert list(done) == sorted(set(done))
    assert done[-1] == totals[-1] == 2 * (20 + len(found.lrs) * (1 if experiment is None else 3))
    assert len(set(totals)) == (1 if lrs else 2)
    assert len(reports) >= 2 + 1 + (0 if experiment is None else 2 * len(found.lrs))
