"""The part of the gradient noise of order 1/B: exact where the network is lazy, better elsewhere."""

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._problem.edit import replace

MODES = 40


def make(network, batch, lr=0.1, steps=60, small_batch=True, noise=0.2):
    data = dl.Spectrum.power_law(1.5, 0.8, modes=MODES, noise=noise)
    return dl.Problem(network, data, dl.OnlineSGD(batch, small_batch), dl.GradientDescent(lr), steps)


@pytest.mark.parametrize("batch", [1, 4])
def test_lazy_networks_follow_the_exact_recursion_of_second_moments(batch):
    """Linear regression by SGD closes on <v_k^2>: an exact result at any batch size."""
    depth, lr, noise = 2, 0.04, 0.2
    network = dl.MLP(depth, "infinite", parameterization="ntk", centered=True)
    problem = make(network, batch, lr, noise=noise)
    solution = dl.solve(problem)
    lam, v2 = problem.data.modes.eigenvalues, problem.data.modes.target[:, 0, 0].copy()
    rate, losses, signals = lr * (depth + 1), [], []
    for _ in range(problem.steps):
        loss = lam @ v2 + noise**2
        losses.append(loss)
        signals.append((lam**2 * v2 * (1 + 1 / batch) + lam * loss / batch).sum())  # of the batch gradient itself
        v2 = (1 - rate * lam) ** 2 * v2 + rate**2 / batch * (lam * loss + lam**2 * v2)
    np.testing.assert_allclose(solution.test_loss, losses, rtol=1e-12)
    np.testing.assert_allclose(np.diagonal(solution.feature_correlation[0]), signals, rtol=1e-10)
    without = dl.solve(replace(problem, {"small_batch": False})).test_loss
    assert np.abs(without / losses - 1).max() > 0.02 / batch


def test_large_batches_do_not_need_it():
    problem = make(dl.MLP(2, 64.0), 1e9)
    np.testing.assert_allclose(
        dl.solve(problem).test_loss, dl.solve(replace(problem, {"small_batch": False})).test_loss, rtol=1e-7
    )


@pytest.mark.parametrize(
    ("richness", "batch", "lr"), [(0.2, 1, 0.02), pytest.param(1.0, 2, 0.04, marks=pytest.mark.slow)]
)
def test_real_networks_are_closer_with_it(richness, batch, lr):
    """N = 128, 400 networks, seeds 0 .. 399: mean deviation of the test loss over 30 steps.

    ``docs/measured.py small_batches`` has it for more batch sizes. What remains is of order 1/N, and in rich
    networks of order 1/B beyond this term.
    """
    problem = make(dl.MLP(2, 128.0, richness, centered=True), batch, lr, steps=30)
    mean = dl.simulate(problem, seeds=400, record="losses").mean("test_loss")
    kept, dropped = (dl.solve(replace(problem, {"small_batch": keep})).test_loss for keep in (True, False))
    assert np.abs(kept / mean - 1).mean() < 0.75 * np.abs(dropped / mean - 1).mean()


def test_correlations_stay_positive_and_parts_sum_to_the_loss():
    solution = dl.solve(make(dl.MLP(2, 32.0), 2, steps=25))
    for matrix in [*solution.feature_correlation, *solution.gradient_correlation, solution.error_correlation]:
        assert np.linalg.eigvalsh(matrix)[0] > -1e-10 * np.abs(matrix).max()
    np.testing.assert_allclose(sum(vars(solution.decomposition).values()), solution.test_loss, rtol=1e-12)
    np.testing.assert_allclose(sum(vars(solution.variance).values()), solution.test_loss, rtol=1e-10)


def test_where_it_means_nothing_it_is_refused():
    with pytest.raises(ValueError, match="small_batch must be False unless the data are dimension-free"):
        dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(), dl.OnlineSGD(0.5, True), dl.GradientDescent(0.1), 5)
    with pytest.raises(ValueError, match="small_batch must be True or False, got 1"):
        dl.OnlineSGD(0.5, 1)
