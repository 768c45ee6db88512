"""Closed forms and limits that the theory must reproduce."""

import numpy as np
import pytest

import deeplinear as dl


def solve(network, sampling=None, lr=0.02, steps=10, noise=0.0, **optimizer):
    data, rule = dl.Isotropic(noise), dl.GradientDescent(lr, **optimizer)
    return dl.solve(dl.Problem(network, data, sampling or dl.Population(), rule, steps))


@pytest.mark.parametrize(("width", "richness"), [(0.5, 1.0), (2.0, 0.4)])
def test_loss_at_initialisation(width, richness):
    plain = solve(dl.MLP(3, width, richness), noise=0.3)
    assert plain.test_loss[0] == pytest.approx(1 + 1 / (width * richness**2) + 0.09, rel=1e-14)
    centered = solve(dl.MLP(3, width, richness, centered=True), noise=0.3)
    assert centered.test_loss[0] == pytest.approx(1.09, rel=1e-14)


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("batch", [0.3, 2.0])
def test_first_step_of_online_sgd(depth, batch):
    eta, nu, L = 0.07, 0.6, depth
    losses = solve(dl.MLP(L, nu, richness=1.5, centered=True), dl.OnlineSGD(batch), lr=eta, steps=2).test_loss
    width_term = eta**2 * L * (L + 1) * (2 * L + 1) / (6 * nu) * (1 + 1 / batch)
    factor = (1 - (L + 1) * eta) ** 2 + ((L + 1) * eta) ** 2 / batch + width_term
    assert losses[1] / losses[0] == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize("depth", [1, 3])
def test_learning_rate_above_which_the_loss_first_rises(depth):
    L, nu, batch = depth, 0.5, 0.2
    edge = 2 * (L + 1) / ((1 + 1 / batch) * ((L + 1) ** 2 + L * (L + 1) * (2 * L + 1) / (6 * nu)))
    for lr, rises in [(0.99 * edge, False), (1.01 * edge, True)]:
        losses = solve(dl.MLP(L, nu, centered=True), dl.OnlineSGD(batch), lr=lr, steps=2).test_loss
        assert (losses[1] > losses[0]) == rises


@pytest.mark.parametrize("samples", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("depth", [1, 3])
def test_lazy_infinite_width_is_a_linear_model_on_marchenko_pastur_data(samples, depth):
    """Gradient descent on a linear model with kernel L + 1; the spectrum of the data is Marchenko-Pastur's."""
    eta, sigma, steps = 0.08, 0.4, 60
    network = dl.MLP(depth, "infinite", parameterization="ntk", centered=True)
    solution = solve(network, dl.FullBatch(samples), lr=eta, steps=steps, noise=sigma)

    c, nodes = 1 / samples, 4000
    theta = (np.arange(nodes) + 0.5) * np.pi / nodes
    lam = 1 + c + 2 * np.sqrt(c) * np.cos(theta)
    density = 2 * np.sin(theta) ** 2 / lam / nodes  # mass min(1, samples); the rest sits at zero
    q = (1 - eta * (depth + 1) * lam) ** np.arange(steps)[:, None]
    test = max(0.0, 1 - samples) + (density * (q**2 + sigma**2 * c * (1 - q) ** 2 / lam)).sum(axis=1) + sigma**2
    train = c * (density * q**2 * (samples * lam + sigma**2)).sum(axis=1) + sigma**2 * (1 - min(1.0, c))
    tolerance = 1e-5 if samples == 1.0 else 1e-10  # at samples = 1 the density diverges at zero
    np.testing.assert_allclose(solution.test_loss, test, rtol=tolerance)
    # What is left on the training set is a difference of numbers of order 1.
    np.testing.assert_allclose(solution.train_loss, train, rtol=tolerance, atol=1e-15)
    np.testing.assert_allclose(solution.kernel, depth + 1, rtol=1e-13)


@pytest.mark.parametrize("richness", [0.3, 1.0, 3.0])
def test_one_hidden_layer_of_infinite_width_follows_its_second_moments(richness):
    """With one hidden layer the moments of first-layer and readout weights along the target close."""
    eta, steps = 0.05, 80
    solution = solve(dl.MLP(1, "infinite", richness), lr=eta, steps=steps)
    A, B, M, losses = 1.0, 1.0, 0.0, []
    for _ in range(steps):
        v = 1 - M / richness
        losses.append(v**2)
        c = eta * richness * v
        A, B, M = A + 2 * c * M + c**2 * B, B + 2 * c * M + c**2 * A, (1 + c**2) * M + c * (A + B)
    np.testing.assert_allclose(solution.test_loss, losses, rtol=1e-9, atol=1e-14)


def test_small_richness_at_infinite_width_tends_to_the_lazy_limit():
    lazy = solve(dl.MLP(3, "infinite", parameterization="ntk", centered=True), dl.FullBatch(1.5), noise=0.2)
    gaps = [
        np.abs(
            solve(dl.MLP(3, "infinite", g, centered=True), dl.FullBatch(1.5), noise=0.2).test_loss - lazy.test_loss
        ).max()
        for g in (0.1, 0.05, 0.025)
    ]
    orders = np.log2(np.array(gaps[:-1]) / gaps[1:])
    np.testing.assert_allclose(orders, 2.0, atol=0.1)  # corrections start at gamma0^2


def test_a_constant_schedule_and_no_momentum_are_plain_descent():
    network, sampling = dl.MLP(2, 0.7), dl.FullBatch(2.0)
    plain = solve(network, sampling, lr=0.03).test_loss
    np.testing.assert_array_equal(solve(network, sampling, lr=[0.03] * 10).test_loss, plain)


def test_weight_decay_alone_forgets_the_initial_function():
    """Without a signal to learn the function decays as d^(L + 1)."""
    L, eta, wd, steps = 3, 0.02, 0.5, 20
    problem = dl.Problem(
        dl.MLP(L, 1.0, richness=1e-3),
        dl.Isotropic(target_gram=[[0.0]]),
        dl.Population(),
        dl.GradientDescent(1e-12, weight_decay=wd * eta / 1e-12),
        steps,
    )
    expected = 1e6 * (1 - eta * wd) ** (2 * (L + 1) * np.arange(steps))
    np.testing.assert_allclose(dl.solve(problem).test_loss, expected, rtol=1e-6)


def test_isotropic_width_and_data_limits_meet_population_training():
    population = solve(dl.MLP(3, 0.7), noise=0.2).test_loss
    np.testing.assert_allclose(solve(dl.MLP(3, 0.7), dl.FullBatch(1e9), noise=0.2).test_loss, population, rtol=1e-7)
    np.testing.assert_allclose(solve(dl.MLP(3, 0.7), dl.OnlineSGD(1e9), noise=0.2).test_loss, population, rtol=1e-7)
