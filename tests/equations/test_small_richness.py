"""Centered networks of little richness, down to none: what they subtract is carried, never formed."""

import math

import numpy as np
import pytest

import deeplinear as dl
from agreement import assert_close, under_names_of_the_reference
from deeplinear._solvers.dense import Dense
from digits import many_digits
from factories import maker, some_slow

problem = maker("network", "sampling", "data", sampling=dl.Population(), lr=0.0012, steps=60)


GRAM = [[1.0, 0.3], [0.3, 0.5]]
MODES = dl.Spectrum([1.2, 0.4, 0.0], [1.0, 0.5, 2.0], proportional=True, noise=0.2)

SMALL = {
    "population": problem(dl.MLP(3, 1.0, 1e-8, centered=True), steps=5, lr=0.05),
    "NTK, unequal widths": problem(
        dl.MLP(2, (0.5, 2.0), 1e-9, "ntk", centered=True), dl.FullBatch(2.0), dl.Isotropic(0.3), steps=5, lr=0.05
    ),
    "several outputs, momentum": problem(
        dl.MLP(2, 0.6, 1e-20, centered=True),
        dl.OnlineSGD(0.7),
        dl.Isotropic(0.1, target_gram=GRAM),
        steps=3,
        lr=0.02,
        momentum=0.8,
    ),
    "modes, batches of a data set": problem(
        dl.MLP(1, 0.6, 1e-12, centered=True), dl.MultiPassSGD(2.0, 0.5), MODES, steps=5, lr=0.05
    ),
    "residual": problem(dl.ResNet(3, 0.8, 1e-10, centered=True), dl.FullBatch(1.5), steps=3, lr=0.03),
    # Weights decay by as little as the richness, so that the subtracted function counts as much as the target.
    "weight decay": problem(
        dl.MLP(2, 0.8, 1e-14, centered=True), dl.FullBatch(1.5), steps=5, lr=0.05, weight_decay=2e-13, momentum=0.5
    ),
    "residual, weight decay, outputs": problem(
        dl.ResNet(2, 0.8, 1e-9, "ntk", centered=True),
        dl.Population(),
        dl.Isotropic(target_gram=GRAM),
        steps=3,
        lr=0.05,
        weight_decay=1e-8,
    ),
}


@pytest.mark.parametrize("name", some_slow(SMALL, "residual"))  # with more in it, below
def test_every_observable_is_that_of_the_reference_in_many_digits(name):
    expected, solution = many_digits(SMALL[name], digits=60), dl.solve(SMALL[name])
    for key, actual in under_names_of_the_reference(solution).items():
        exact = expected[key]
        assert np.abs(actual - exact).max() <= 1e-12 * np.abs(exact).max(), key


def test_the_smallest_richness_is_that_of_the_reference_too():
    least = problem(dl.MLP(2, 1.0, 1e-300, centered=True), dl.FullBatch(2.0), steps=3, lr=0.05)
    assert_close(dl.solve(least).test_loss, many_digits(least, digits=1300)["test_loss"], 1e-14)


@pytest.mark.parametrize("richness", [1e-6, 1e-7, 1e-8, 1e-10, 1e-160, 1e-300])
def test_wide_networks_are_linear_models(richness):
    network = dl.MLP(3, "infinite", richness, "ntk", centered=True)
    expected = (1 - 4 * 0.0012) ** (2 * np.arange(60))
    assert dl.solve(problem(network)).test_loss == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "network",
    [
        dl.MLP(3, 1.0, 1e-300, centered=True),
        dl.MLP(2, 0.5, 1e-300, "ntk", centered=True),
        dl.ResNet(4, 0.7, 1e-300, centered=True),
        dl.ResNet(math.inf, 0.7, 1e-300, centered=True),
    ],
    ids=str,
)
def test_the_lazy_limit_is_approached_as_the_square_of_the_richness(network):
    def final(richness):
        changed = type(network)(**(vars(network) | {"richness": richness}))
        return dl.solve(problem(changed, dl.FullBatch(2.0), lr=0.02, steps=12)).test_loss[-1]

    limit, near, nearer = final(1e-300), final(2e-2), final(1e-2)
    assert (near - limit) / (nearer - limit) == pytest.approx(4.0, rel=1e-2)
    assert final(1e-10) == pytest.approx(limit, rel=1e-13)


def test_nodes_in_depth_know_it_too():
    lazy = problem(dl.ResNet(40, 0.6, 1e-40, centered=True), dl.FullBatch(2.0), lr=0.03, steps=8)
    curves = []
    for nodes in (0, 12):
        curves.append(Dense(depth_nodes=nodes).solve([lazy])[0].curves.test_loss)
    assert_close(curves[1], curves[0], 1e-9)


def test_panels_know_it_too():
    lazy = problem(dl.MLP(2, 1.0, 1e-30, centered=True), dl.FullBatch(2.0), dl.Isotropic(0.3), steps=300, lr=0.01)
    dense, panels = dl.solve(lazy, method="dense"), dl.solve(lazy, method="panels", tolerance=1e-7)
    assert panels.stats["nodes"] < 150
    assert panels.at(dense.times).test_loss.values == pytest.approx(dense.test_loss, rel=1e-7)


def test_sites_of_a_lazy_network_have_its_correlations():
    solution = dl.solve(problem(dl.MLP(2, 0.8, 1e-12, centered=True), dl.FullBatch(2.0), lr=0.1, steps=6))
    sites = solution.sample_sites(40_000)
    g, h = sites.g.values, sites.h.values
    assert (g == g[..., :1]).mean() < 1.0
    assert_close(g, np.broadcast_to(g[..., :1], g.shape), 1e-9)
    for layer in range(2):
        drawn = h[:, layer].T @ h[:, layer] / len(h)
        assert_close(drawn, solution.feature_correlation[1 + layer], 0.05)


@pytest.mark.parametrize("richness", [1e-101, 1e-200, 1e-300, 5e-324])
def test_a_function_at_initialisation_beyond_all_numbers_is_refused(richness):
    with pytest.raises(ValueError, match="richness must be at least 1e-100 unless centered") as refused:
        dl.MLP(3, 1.0, richness)
    assert repr(richness) in str(refused.value)
    assert dl.solve(problem(dl.MLP(2, 1.0, richness, centered=True))).test_loss[-1] < 1.0


def test_the_least_richness_with_its_initial_function_is_solved():
    assert dl.solve(problem(dl.MLP(2, 1.0, 1e-100), dl.FullBatch(2.0))).test_loss[0] == pytest.approx(1e200)
