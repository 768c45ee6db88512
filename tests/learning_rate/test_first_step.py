"""The first step: closed form against two solved steps, and the rate at which the loss first rises."""

import dataclasses

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._learning_rate.first_step import first_rise_lr, first_step_growth
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


def solved_growth(problem):
    """Factor of the first step of a run that is solved as it is."""
    solution = dl.solve(problem)
    signal = solution.test_loss - solution.decomposition.label_noise
    return signal[1] / signal[0]


@pytest.mark.parametrize("data", DATA, ids=["isotropic", "two outputs", "three levels"])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("depth", [1, 4])
def test_closed_form_is_the_first_solved_step(depth, sampling, data):
    problem = make(dl.MLP(depth, 0.6, richness=1.5, centered=True), data, sampling)
    assert first_step_growth(problem) == pytest.approx(solved_growth(problem), rel=1e-12)


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


RISING = [0.1 * (step + 1) for step in range(10)]
OTHER = dl.GradientDescent(0.03)


@pytest.mark.parametrize(
    "changes",
    [
        {"phases": [dl.Phase(10, sampling=dl.OnlineSGD(0.2), noise=0.1)]},
        {"phases": [dl.Phase(4, optimizer=OTHER), dl.Phase(6)]},
        {"phases": [dl.Phase(1), dl.Phase(9, sampling=dl.Population())]},
        {"optimizer": dl.GradientDescent(0.02, momentum=[*RISING[:9], 0.0], nesterov=True)},
        {"optimizer": dl.GradientDescent(dl.schedules.cosine(0.1, warmup=0.4), weight_decay=RISING)},
        {"optimizer": dl.Muon(0.02, other=dl.GradientDescent(RISING[::-1]))},
        {"sampling": dl.OnlineSGD(RISING)},
    ],
    ids=["one phase", "optimizer of a phase", "a phase of one step", "momentum", "decay", "muon", "batches"],
)
@pytest.mark.parametrize("centered", [True, False])
def test_only_the_rules_of_the_first_step_count(centered, changes):
    problem = dataclasses.replace(make(dl.MLP(3, 0.6, centered=centered)), **changes)
    assert first_step_growth(problem) == pytest.approx(solved_growth(problem), rel=1e-12)


def test_the_rate_of_a_first_phase_with_an_optimizer_of_its_own_is_varied():
    phases = [dl.Phase(4, sampling=dl.OnlineSGD(0.2), optimizer=OTHER), dl.Phase(6)]
    alone = make(sampling=dl.OnlineSGD(0.2))
    assert first_rise_lr(dataclasses.replace(make(), phases=phases)) == first_rise_lr(alone) != first_rise_lr(make())


@pytest.mark.parametrize("centered", [True, False])
def test_of_a_schedule_it_is_the_factor(centered):
    """As of ``optimal_lr`` and ``max_stable_lr``; it had been the rate itself."""
    network = dl.MLP(3, 0.6, centered=centered)
    constant, schedule = (first_rise_lr(make(network, lr=lr)) for lr in (0.07, dl.schedules.linear(0.04)))
    assert schedule * 0.04 == pytest.approx(constant, rel=1e-9)
    with pytest.raises(ValueError, match="lr must be above zero at step 0, got a schedule that begins with zero"):
        first_rise_lr(make(network, lr=[0.0, *[0.1] * 9]))


def test_weight_decay_is_refused():
    with pytest.raises(ValueError, match=r"weight_decay must be 0 .* got 0.1"):
        first_rise_lr(make(weight_decay=0.1))
