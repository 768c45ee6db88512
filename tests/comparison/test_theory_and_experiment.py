"""Theory against ensembles of real networks, in every regime.

Stated sizes: D = 300, 24 networks per problem (seeds 0 .. 23). The mean over networks of each loss
must lie within 4 standard errors of the theory at every step and within 5 %, and every observable
within 2 in root mean square; standard errors are a few per cent.
"""

import numpy as np
import pytest

import deeplinear as dl
from agreement import assert_networks_agree, z_scores
from deeplinear._core.threads import one_blas_thread
from factories import maker, some_slow
from networks import steps_of, train

DIM, SEEDS, STEPS = 300, 24, 30


problem = maker(
    "network",
    "data",
    "sampling",
    "optimizer",
    depth=2,
    width=0.8,
    noise=0.3,
    sampling=dl.FullBatch(samples=1.5),
    lr=0.04,
    steps=STEPS,
)


CASES = {
    "population": problem(sampling=dl.Population()),
    "full batch": problem(),
    "online": problem(sampling=dl.OnlineSGD(batch=0.4)),
    "multi-pass": problem(sampling=dl.MultiPassSGD(samples=1.5, batch=0.4)),
    "deep and rich": problem(dl.MLP(4, 1.5, richness=2.0), optimizer=dl.GradientDescent(0.02)),
    "one hidden layer": problem(dl.MLP(1, 0.5, richness=0.5)),
    "NTK, centered": problem(dl.MLP(3, 2.0, parameterization="ntk", centered=True)),
    "unequal widths": problem(dl.MLP(3, [0.5, 1.0, 2.0], centered=True)),
    "narrow then wide, online": problem(dl.MLP(2, [2.0, 0.6]), sampling=dl.OnlineSGD(0.5)),
    "two outputs": problem(data=dl.Isotropic(0.2, [[1.0, 0.4], [0.4, 0.6]])),
    "two outputs, multi-pass": problem(
        data=dl.Isotropic(0.2, [[1.0, 0.4], [0.4, 0.6]]), sampling=dl.MultiPassSGD(2.0, 0.8)
    ),
    "two outputs, online, centered": problem(
        dl.MLP(2, 1.0, centered=True), dl.Isotropic(0.2, [[1.0, 0.4], [0.4, 0.6]]), dl.OnlineSGD(0.5)
    ),
    "residual, depth 2": problem(dl.ResNet(2, 1.0)),
    "residual, depth 6, online": problem(
        dl.ResNet(6, 1.0, branch=1.5), sampling=dl.OnlineSGD(0.5), optimizer=dl.GradientDescent(0.01)
    ),
    "residual, depth 16": problem(dl.ResNet(16, 1.0, branch=1.2), optimizer=dl.GradientDescent(0.02)),
    "residual, unscaled branches, population": problem(
        dl.ResNet(4, 1.0, 1.5, branch=0.5, branch_scaling="none"), sampling=dl.Population()
    ),
    "residual, two outputs, multi-pass, decay": problem(
        dl.ResNet(6, 1.0, centered=True),
        dl.Isotropic(0.2, [[1.0, 0.4], [0.4, 0.6]]),
        dl.MultiPassSGD(2.0, 0.8),
        dl.GradientDescent(0.01, momentum=0.5, weight_decay=0.3),
    ),
    "momentum": problem(optimizer=dl.GradientDescent(0.01, momentum=0.8)),
    "Nesterov and decay": problem(optimizer=dl.GradientDescent(0.01, momentum=0.8, nesterov=True, weight_decay=0.3)),
    "schedule and decay, multi-pass": problem(
        sampling=dl.MultiPassSGD(2.0, 1.0),
        optimizer=dl.GradientDescent(lambda step: 0.06 / (1 + step / 10), weight_decay=0.5),
    ),
}


SLOW = (
    "full batch",
    "online",
    "multi-pass",
    "two outputs",
    "residual, depth 6, online",
    "residual, depth 16",
    "momentum",
)
"""Each sampling rule, network and update rule of these is in a case that is left."""


@pytest.mark.parametrize("name", some_slow(CASES, *SLOW))
def test_losses_and_correlations_agree(name):
    assert_networks_agree(CASES[name], DIM, SEEDS, rms=2.0, relative=0.05)


@pytest.mark.parametrize(
    "name",
    [
        "full batch",
        "multi-pass",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("online", "two outputs", "Nesterov and decay", "residual, depth 6, online")
        ),
    ],
)
def test_overlaps_of_replicas_agree(name):
    """Networks that share initial weights or data, not both: C_v between them, and the bias."""
    case, dim, pairs = CASES[name], 200, 12
    variance = dl.solve(case).variance

    def overlaps(one, other):
        pairs = zip(one, other, strict=True)
        errors = [train(case, dim, *seeds, record="losses", errors=True).errors for seeds in pairs]
        return np.einsum("tdc,tdc->t", *errors) / dim

    seeds = [(4 * i, 4 * i + 1) for i in range(pairs)]
    with one_blas_thread():
        measured = {
            "same data": np.array([overlaps(pair, (pair[0], pair[0])) for pair in seeds]),
            "same init": np.array([overlaps((pair[0], pair[0]), pair) for pair in seeds]),
            "independent": np.array([overlaps(pair, pair) for pair in seeds]),
        }
    expected = {
        "same data": variance.bias + variance.data,
        "same init": variance.bias + variance.initialization,
        "independent": variance.bias,
    }
    for kind, values in measured.items():
        assert np.abs(z_scores(values, expected[kind])).max() < 4.5, kind


def test_weights_that_have_decayed_below_rounding_grow_again_as_in_networks():
    """To 1e-24 of what they were, over 60 steps: what is left of 1 less all that is lost would be rounding.

    A network falls below half of the loss at a step that scatters by 0.1; by such a difference it was 0.35 later.
    """
    early = np.arange(230) < 60
    rule = dl.GradientDescent(np.where(early, 0.02, 0.5), weight_decay=np.where(early, 30.0, 0.0))
    problem = dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(0.1), dl.Population(), rule, steps=230)

    def falls_at(losses):
        return np.interp(-0.5, -losses[60:], np.arange(60, 230))

    networks = dl.simulate(problem, dim=400, seeds=32, record="losses")
    steps = [falls_at(losses) for losses in networks.test_loss]
    error = np.std(steps, ddof=1) / np.sqrt(len(steps))
    assert error < 0.04
    assert abs(falls_at(dl.solve(problem, method="dense").test_loss) - np.mean(steps)) < 4 * error


def test_sites_are_distributed_as_neurons():
    """Second moments of drawn sites over time are the correlations, h and g belonging together."""
    solution = dl.solve(CASES["deep and rich"])
    sites = solution.sample_sites(20_000, seed=1)
    for layer in range(1, 5):
        h, g = sites.h.sel(gradient_layer=layer).values, sites.g.sel(gradient_layer=layer).values
        np.testing.assert_allclose(h.T @ h / len(h), solution.feature_correlation[layer], rtol=0.06, atol=0.01)
        np.testing.assert_allclose(g.T @ g / len(g), solution.gradient_correlation[layer - 1], rtol=0.06, atol=0.03)


def test_sites_of_finite_networks_correlate_h_and_g_as_the_drawn_ones():
    """<h g> is not an order parameter of the theory's output: it checks the joint law of a site."""
    case = CASES["full batch"]
    sites = dl.solve(case).sample_sites(40_000, seed=3)
    drawn = (sites.h.values * sites.g.values).mean(axis=0)[:, -1]
    measured = []
    for seed in range(16):
        _, h, g = steps_of(case, DIM, seed)[-1]
        measured.append([(h[layer + 1] * g[layer]).mean() for layer in range(case.network.depth)])
    assert np.abs(z_scores(np.array(measured), drawn)).max() < 4.5


def test_kernel_is_the_mean_eigenvalue_of_the_tangent_kernel():
    """Response of the predictor to the signal, by explicit Jacobians of finite networks: D = 200, 24 networks."""
    case = problem(
        dl.MLP(3, [0.5, 1.0, 2.0]), sampling=dl.Population(), optimizer=dl.GradientDescent(0.04, weight_decay=0.4)
    )
    seen = slice(None, None, 10)
    with one_blas_thread():
        measured = np.array([[_tangent_kernel(*s) for s in steps_of(case, 200, seed)[seen]] for seed in range(24)])
    theory = dl.solve(case).kernel[seen]
    assert np.abs(z_scores(measured, theory)).max() < 4.5
    np.testing.assert_allclose(measured.mean(axis=0), theory, rtol=0.05)


def _tangent_kernel(weights, h, g):
    """Trace over D of d(predictor) / d(signal) for one step of unit rate, layer by layer."""
    below, readout = np.eye(weights[0].shape[1]), len(weights[-1])
    trace = 0.0
    for weight, above in zip(weights[:-1], g, strict=True):
        trace += np.vdot(below, below) * np.vdot(above, above) / (readout * weight.shape[1])
        below = weight @ below / np.sqrt(weight.shape[1])
    return trace + np.vdot(below, below) / readout
