"""The first step: closed form against two solved steps, and the rate at which the loss first rises."""

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._learning_rate.first_step import _solved_growth, first_rise_lr, first_step_growth
from deeplinear._problem.edit import replace
from factories import SAMPLINGS, maker

MODES = dl.Spectrum([2.0, 0.5, 0.1], [1.0, 0.5, 2.0], multiplicity=[0.2, 0.3, 0.5], proportional=True, noise=0.3)
DATA = [dl.Isotropic(0.3), dl.Isotropic(0.3, [[1.0, 0.4], [0.4, 0.6]]), MODES]


make = maker(
    "network",
    "data",
    "sampling",
    network=dl.MLP(3, 0.6, richness=1.5, centered=True),
    data=DATA[0],
    sampling=SAMPLINGS[2],
    lr=0.07,
    steps=10,
)


@pytest.mark.parametrize("data", DATA, ids=["isotropic", "two outputs", "three levels"])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("depth", [1, 4])
def test_closed_form_is_the_first_solved_step(depth, sampling, data):
    problem = make(dl.MLP(depth, 0.6, richness=1.5, centered=True), data, sampling)
    assert first_step_growth(problem) == pytest.approx(_solved_growth(problem, 0.07), rel=1e-12)


@pytest.mark.parametrize(
    "network",
    [
        dl.MLP(3, 0.6, centered=True),
        dl.MLP(3, 0.6),
        pytest.param(dl.MLP(2, [0.5, 2.0], centered=True), marks=pytest.mark.slow),
        pytest.param(dl.ResNet(4, 0.7, centered=True), marks=pytest.mark.slow),
        dl.MLP(3, "infinite", parameterization="ntk", centered=True),
    ],
    ids=["closed form", "uncentered", "unequal", "residual", "lazy"],
)
def test_the_loss_first_rises_above_the_rate_given(network):
    problem = make(network)
    edge = first_rise_lr(problem)
    for factor, rises in [(0.999, False), (1.001, True)]:
        losses = dl.solve(replace(problem, {"lr": factor * edge, "steps": 2})).test_loss
        assert (losses[1] > losses[0]) == rises
    smaller = np.geomspace(1e-4, 0.99, 20) * edge
    assert all(first_step_growth(replace(problem, {"lr": float(lr)})) < 1 for lr in smaller)


def test_weight_decay_is_refused():
    with pytest.raises(ValueError, match=r"weight_decay must be 0 .* got 0.1"):
        first_rise_lr(make(weight_decay=0.1))
