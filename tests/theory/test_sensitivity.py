"""Derivatives by complex step, against differences and closed forms."""

import math

import numpy as np
import pytest
from hypothesis import given, settings

import deeplinear as dl
from deeplinear._problem.edit import get_field, replace
from deeplinear._theory.sensitivity import CONTINUOUS, sensitivity
from factories import SAMPLINGS, checkerboard
from strategies import problems

OPTIMIZER = dl.GradientDescent(0.03, momentum=0.5, weight_decay=0.3)


def differences(problem, name, loss, scale=1.0, step=1e-3, tolerance=1e-6):
    """Central differences of sixth order, in units of the value, and what rounding leaves undecided of them."""
    value = get_field(problem, name)
    weights = {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}
    shifted = [
        (sign * weight, replace(problem, {name: value + sign * multiple * step * scale}))
        for multiple, weight in weights.items()
        for sign in (1, -1)
    ]
    solutions = dl.solve([each for _, each in shifted], tolerance=tolerance)
    terms = [weight * getattr(each, loss) for (weight, _), each in zip(shifted, solutions, strict=True)]
    rounding = 4 * np.finfo(float).eps * max(np.abs(term).max() for term in terms) / (step * abs(scale))
    return sum(terms) / (step * scale), rounding


def check(problem, names=None, rtol=1e-8, **options):
    result = sensitivity(problem, names)
    for name, value in result.at.items():
        for loss, exact in (("test_loss", result.d_test_loss), ("train_loss", result.d_train_loss)):
            expected, rounding = differences(problem, name, loss, scale=value, **options)
            atol = rtol * np.abs(expected).max() + rounding
            np.testing.assert_allclose(exact[name], expected, rtol=0, atol=atol, err_msg=f"{name}, {loss}")
    return result


NETWORKS = [
    dl.MLP(3, 0.7),
    dl.MLP(2, 0.7, 1.3, parameterization="ntk", centered=True),
    dl.ResNet(4, 0.8, 1.2, parameterization="ntk"),
]


@pytest.mark.parametrize(
    ("network", "sampling"), checkerboard(NETWORKS, SAMPLINGS), ids=lambda part: type(part).__name__
)
def test_agrees_with_differences(network, sampling):
    problem = dl.Problem(network, dl.Isotropic(0.3), sampling, OPTIMIZER, 10)
    result = check(problem)
    solution = dl.solve(problem)
    np.testing.assert_allclose(result.test_loss, solution.test_loss, rtol=1e-13)
    np.testing.assert_allclose(result.train_loss, solution.train_loss, rtol=1e-13)


@pytest.mark.parametrize(
    ("sampling", "names"),
    [(dl.FullBatch(1.5), ["lr", "branch"]), (dl.OnlineSGD(0.4), ["width", "richness"])],
    ids=["full", "online"],
)
def test_agrees_with_differences_at_infinite_depth(sampling, names):
    problem = dl.Problem(dl.ResNet(math.inf, 0.8, branch=0.7), dl.Isotropic(0.3), sampling, OPTIMIZER, 4)
    check(problem, names, rtol=1e-7, tolerance=1e-9)


def test_agrees_with_differences_through_nodes_in_depth():
    problem = dl.Problem(dl.ResNet(300, 0.8), dl.Isotropic(0.3), dl.FullBatch(1.5), OPTIMIZER, 4)
    check(problem, ["branch"], rtol=1e-7, tolerance=1e-9)


@pytest.mark.parametrize(
    "data",
    [
        dl.Isotropic(0.3, target_gram=[[1.0, 0.3], [0.3, 0.5]]),
        dl.Spectrum([2.0, 1.0, 0.2], [1.0, 0.5, 3.0], proportional=True, noise=0.2),
    ],
    ids=["outputs", "modes"],
)
def test_agrees_with_differences_for_any_data(data):
    check(dl.Problem(dl.MLP(2, [0.7, 0.7]), data, dl.MultiPassSGD(1.5, 0.5), OPTIMIZER, 6))


def test_agrees_with_differences_for_a_dimension_free_power_law():
    data, optimizer = dl.Spectrum.power_law(2.0, 1.0, noise=0.1), dl.GradientDescent(0.1)
    check(dl.Problem(dl.MLP(2, 30.0, 0.5), data, dl.OnlineSGD(20.0), optimizer, 6), ["lr", "width", "batch", "noise"])


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(problems())
def test_agrees_with_differences_for_any_problem(problem):
    names = ["lr", "richness"] if isinstance(problem.optimizer.lr, float) else ["richness"]
    check(problem, names, rtol=1e-7)


@pytest.mark.parametrize(
    ("network", "data", "sampling", "names"),
    [
        (dl.MLP(2, 0.7, 1.3), dl.Isotropic(0.3), dl.FullBatch(1.5), ["lr", "richness", "width"]),
        (dl.ResNet(2, 0.8), dl.Isotropic(0.3), dl.Population(), ["branch", "weight_decay"]),
        (dl.MLP(1, 12.0), dl.Spectrum.power_law(1.5, 1.0, modes=6, noise=0.2), dl.FullBatch(10.0), ["samples"]),
        pytest.param(
            dl.MLP(1, 0.7),
            dl.Isotropic(0.2, [[1.0, 0.3], [0.3, 0.5]]),
            dl.FullBatch(1.5),
            ["lr", "noise"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["mlp", "resnet", "spectrum", "outputs"],
)
def test_long_runs_are_differentiated_by_panels(network, data, sampling, names, monkeypatch):
    steps = 120
    problem = dl.Problem(network, data, sampling, dl.GradientDescent(0.01, weight_decay=0.05), steps)
    exact = sensitivity(problem, names)
    monkeypatch.setattr("deeplinear._solvers.choose.SHORT", 100)
    found = sensitivity(problem, names)
    assert found.times[-1] == steps - 1
    assert 0 < np.abs(found.test_loss / exact.test_loss[found.times] - 1).max() < 1e-7
    for ours, theirs in ((found.d_test_loss, exact.d_test_loss), (found.d_train_loss, exact.d_train_loss)):
        for name, slopes in theirs.items():
            scale = np.abs(slopes).max()
            np.testing.assert_allclose(ours[name], slopes[found.times], rtol=0, atol=1e-7 * scale, err_msg=name)


def test_a_long_schedule_is_varied_by_a_common_factor(monkeypatch):
    rule = dl.GradientDescent(lambda step: 0.02 / (1 + step / 100))
    problem = dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), rule, 200)
    exact = sensitivity(problem, "lr").d_test_loss["lr"]
    monkeypatch.setattr("deeplinear._solvers.choose.SHORT", 100)
    found = sensitivity(problem, "lr")
    assert 0 < abs(found.d_test_loss["lr"][-1] / exact[-1] - 1) < 1e-6


def test_is_one_sided_where_a_field_is_zero():
    problem = dl.Problem(dl.MLP(2, 0.7), dl.Isotropic(), dl.FullBatch(1.5), dl.GradientDescent(0.05), 8)
    result = sensitivity(problem, ["noise", "momentum", "weight_decay"])
    assert not result.d_test_loss["noise"].any()
    weights, step = np.array([-25 / 12, 4, -3, 4 / 3, -1 / 4]), 1e-3
    for name in ("momentum", "weight_decay"):
        curves = [dl.solve(replace(problem, {name: step * multiple})).test_loss for multiple in range(5)]
        np.testing.assert_allclose(result.d_test_loss[name], weights @ curves / step, atol=1e-8)


def test_a_batch_of_all_samples_can_still_be_made_smaller():
    problem = dl.Problem(dl.MLP(2, 0.7), dl.Isotropic(0.3), dl.MultiPassSGD(1.5, 1.5), dl.GradientDescent(0.05), 6)
    result = sensitivity(problem, ["batch", "lr"])
    weights, step = np.array([25 / 12, -4, 3, -4 / 3, 1 / 4]), 1e-3
    curves = [dl.solve(replace(problem, {"batch": 1.5 - step * multiple})).test_loss for multiple in range(5)]
    np.testing.assert_allclose(result.d_test_loss["batch"], weights @ curves / step, atol=1e-8)


# --- closed forms --------------------------------------------------------------------------------------------


def test_loss_at_initialisation():
    nu, g, sigma = 0.6, 1.4, 0.3
    problem = dl.Problem(dl.MLP(3, nu, g), dl.Isotropic(sigma), dl.Population(), dl.GradientDescent(0.1), 1)
    slopes = sensitivity(problem).d_test_loss
    expected = {"width": -1 / (nu * g) ** 2, "richness": -2 / (nu * g**3), "noise": 2 * sigma, "lr": 0.0}
    for name, value in expected.items():
        assert slopes[name][0] == pytest.approx(value, rel=1e-13, abs=1e-300)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_first_step_of_online_sgd(depth):
    eta, nu, batch, L = 0.07, 0.6, 0.3, depth
    problem = dl.Problem(
        dl.MLP(L, nu, 1.5, centered=True), dl.Isotropic(), dl.OnlineSGD(batch), dl.GradientDescent(eta), 2
    )
    slopes = sensitivity(problem, ["lr", "width", "batch", "richness"]).d_test_loss
    width_term = L * (L + 1) * (2 * L + 1) / (6 * nu)
    quadratic = (1 + 1 / batch) * ((L + 1) ** 2 + width_term)
    assert slopes["lr"][1] == pytest.approx(-2 * (L + 1) + 2 * eta * quadratic, rel=1e-12)
    assert slopes["width"][1] == pytest.approx(-(eta**2) * (1 + 1 / batch) * width_term / nu, rel=1e-12)
    assert slopes["batch"][1] == pytest.approx(-((eta / batch) ** 2) * ((L + 1) ** 2 + width_term), rel=1e-12)
    assert slopes["richness"][1] == pytest.approx(0.0, abs=1e-14)


def test_lazy_infinite_width_on_marchenko_pastur_data():
    eta, sigma, steps, depth, samples = 0.08, 0.4, 40, 2, 2.0
    network = dl.MLP(depth, "infinite", parameterization="ntk", centered=True)
    problem = dl.Problem(network, dl.Isotropic(sigma), dl.FullBatch(samples), dl.GradientDescent(eta), steps)
    result = sensitivity(problem, ["lr", "noise"])

    c, nodes, t = 1 / samples, 4000, np.arange(steps)[:, None]
    theta = (np.arange(nodes) + 0.5) * np.pi / nodes
    lam = 1 + c + 2 * np.sqrt(c) * np.cos(theta)
    density = 2 * np.sin(theta) ** 2 / lam / nodes
    base = 1 - eta * (depth + 1) * lam
    q, dq = base**t, -t * (depth + 1) * lam * base ** np.maximum(t - 1, 0)
    by_lr = (density * 2 * dq * (q - sigma**2 * c * (1 - q) / lam)).sum(axis=1)
    by_noise = 2 * sigma * (1 + (density * c * (1 - q) ** 2 / lam).sum(axis=1))
    np.testing.assert_allclose(result.d_test_loss["lr"], by_lr, rtol=1e-9)
    np.testing.assert_allclose(result.d_test_loss["noise"], by_noise, rtol=1e-9)


# --- what counts as one number -------------------------------------------------------------------------------


def test_a_schedule_is_varied_by_a_common_factor():
    constant = dl.Problem(dl.MLP(2, 0.7), dl.Isotropic(0.3), dl.FullBatch(1.5), dl.GradientDescent(0.05), 6)
    slope = sensitivity(constant, "lr").d_test_loss["lr"]
    for schedule in ([0.05] * 6, lambda step: 0.05):
        result = sensitivity(replace(constant, {"lr": schedule}), "lr")
        assert result.at["lr"] == 1.0
        np.testing.assert_allclose(result.d_test_loss["lr"], 0.05 * slope, rtol=1e-12)


def test_widths_by_layer_are_varied_by_a_common_factor():
    widths, step = np.array([0.5, 1.0, 0.7]), 1e-4
    network = dl.MLP(3, widths, parameterization="ntk")
    problem = dl.Problem(network, dl.Isotropic(0.3), dl.FullBatch(1.5), dl.GradientDescent(0.05), 6)
    result = sensitivity(problem, "width")
    low, high = (dl.solve(replace(problem, {"width": factor * widths})).test_loss for factor in (1 - step, 1 + step))
    np.testing.assert_allclose(result.d_test_loss["width"], (high - low) / (2 * step), atol=1e-7)


# --- the object and its refusals -----------------------------------------------------------------------------


def test_beyond_a_divergence_derivatives_are_nan():
    problem = dl.Problem(dl.MLP(3, 0.7), dl.Isotropic(0.3), dl.FullBatch(1.5), dl.GradientDescent(1.0), 10)
    result, solution = sensitivity(problem, ["lr", "width"]), dl.solve(problem)
    assert result.status == solution.status
    end = result.status.diverged_at
    for slopes in (*result.d_test_loss.values(), *result.d_train_loss.values()):
        assert np.isfinite(slopes[:end]).all()
        assert np.isnan(slopes[end:]).all()
    assert np.isinf(result.test_loss[end:]).all()
    assert "diverged at step" in str(result)


def test_all_continuous_fields_by_default_with_named_axes():
    problem = dl.Problem(dl.ResNet(2, 0.7), dl.Isotropic(0.3), dl.MultiPassSGD(1.5, 0.5), OPTIMIZER, 4)
    result = sensitivity(problem)
    assert set(result.at) == set(CONTINUOUS) - {"clip", "beta2", "rho", "beta"}  # which other rules have
    dataset = result.to_xarray()
    assert dataset.d_test_loss.dims == ("field", "time")
    np.testing.assert_array_equal(dataset.d_train_loss.sel(field="batch"), result.d_train_loss["batch"])
    assert float(dataset.value.sel(field="samples")) == 1.5


@pytest.mark.parametrize(
    ("wrt", "message"),
    [
        ("depth", "wrt must be among lr, richness, noise, .* for this problem, got 'depth': depth does not change"),
        (["lr", "steps"], "got 'steps': steps does not change continuously"),
        (["width"], "got 'width': the width is infinite"),
        ("samples", "got 'samples'"),
        (3, "got 3"),
        ([], "wrt must be one or more distinct names"),
        (["lr", "lr"], "wrt must be one or more distinct names"),
    ],
)
def test_refusals(wrt, message):
    problem = dl.Problem(dl.MLP(2, "infinite"), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), 4)
    with pytest.raises(ValueError, match=message):
        sensitivity(problem, wrt)


def test_momentum_of_a_long_run():
    """Panels take no momentum, so every step is solved; a linear model has an error and its velocity."""
    network = dl.MLP(1, "infinite", parameterization="ntk", centered=True)
    problem = dl.Problem(network, dl.Isotropic(), dl.Population(), dl.GradientDescent(0.001), 1010)
    found = sensitivity(problem, ["lr", "momentum"])
    error, velocity, slopes = 1.0 + 0.0j, 0.0j, []
    for _ in range(problem.steps):
        slopes.append((error**2).imag / 1e-30)
        velocity = 1e-30j * velocity + error
        error = error - 0.001 * 2 * velocity
    assert len(found.times) < 500
    np.testing.assert_allclose(found.d_test_loss["momentum"], np.array(slopes)[found.times], rtol=1e-9, atol=1e-12)
    rate = -4 * found.times * 0.998 ** (2 * found.times - 1.0)
    np.testing.assert_allclose(found.d_test_loss["lr"], rate, rtol=1e-6, atol=1e-9)
    assert "momentum" not in sensitivity(problem).at


def test_refuses_what_is_not_a_problem():
    with pytest.raises(ValueError, match="problem must be a Problem, got 3"):
        sensitivity(3, "lr")
