"""Update rules, schedules, layers and averages of finite networks, against loops over dense matrices."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import deeplinear as dl
from deeplinear._core.dataset import LOSSES
from deeplinear._experiment.simulate import simulate
from deeplinear._rules import schedules
from deeplinear._rules.muon import Muon
from deeplinear._rules.normalized import NormalizedDescent
from deeplinear._rules.sam import SAM
from deeplinear._rules.schedule_free import ScheduleFree
from dense_loops import (
    AVERAGES,
    DIM,
    GRAM,
    SEED,
    as_is,
    by_hand,
    clipped,
    make,
    momentum_rule,
    muon_rule,
    normalized,
    raw_rule,
    sam_rule,
    schedule_free_rule,
    unit,
    unit_below,
    unit_by_layer,
)  # fmt: skip
from networks import train

ONES, STEPS = np.ones(4), np.ones(6)
RESIDUAL = dl.ResNet(3, 1.2, 0.8, branch=0.9, branch_scaling=1.0)
MOMENTA = 0.9 - 0.1 * np.arange(6)
COSINE, LINEAR = schedules.cosine(0.1, warmup=0.3), schedules.linear(0.2)

BY_HAND = {
    "layers": (
        make(
            dl.GradientDescent(
                0.05, momentum=0.5, weight_decay=0.2, layer_lr=[1.0, 0.0, 2.0, 0.5], layer_decay={"hidden": 3.0}
            )
        ),
        momentum_rule(as_is, 0.5 * STEPS, 0.05 * STEPS, 0.2 * STEPS, [1.0, 0.0, 2.0, 0.5], [1.0, 3.0, 3.0, 1.0]),
    ),
    "schedules": (
        make(dl.GradientDescent(COSINE, momentum=MOMENTA, nesterov=True, weight_decay=LINEAR)),
        momentum_rule(as_is, MOMENTA, COSINE.values(6), LINEAR.values(6), ONES, ONES, nesterov=True),
    ),
    "initial scales": (
        make(network=dl.MLP(3, 1.0, init_scale={"input": 0.5, "hidden": 2.0, "readout": 0.0})),
        momentum_rule(as_is, 0 * STEPS, 0.05 * STEPS, 0 * STEPS, ONES, ONES),
    ),
    "standard": (
        make(network=dl.MLP(3, (0.5, 1.5, 2.0), parameterization="standard")),
        momentum_rule(as_is, 0 * STEPS, 0.05 * STEPS, 0 * STEPS, [1.0, 0.5, 1.5, 2.0], ONES),
    ),
    "a power of the depth": (
        make(network=RESIDUAL),
        momentum_rule(as_is, 0 * STEPS, 0.05 * STEPS, 0 * STEPS, [1.0, 3.0, 3.0, 1.0], ONES),
    ),
    "standard, normalised by layer": (
        make(NormalizedDescent(0.1), dl.MLP(3, (0.5, 1.5, 2.0), parameterization="standard")),
        raw_rule(0.1, unit_by_layer),
    ),
    "standard, normalised": (
        make(NormalizedDescent(0.1, per="global"), dl.MLP(3, (0.5, 1.5, 2.0), parameterization="standard")),
        raw_rule(0.1, unit),
    ),
    "standard, Muon": (
        make(
            Muon(0.1, 0.0, iterations=1, input=True, other=dl.GradientDescent(0.1, layer_lr={"readout": 0.0})),
            dl.MLP(3, (0.5, 1.5, 2.0), parameterization="standard"),
        ),
        raw_rule(0.1, unit_below),
    ),
    "a power of the depth, normalised by layer": (
        make(NormalizedDescent(0.1), replace(RESIDUAL, branch_scaling=0.75)),
        momentum_rule(normalized(0.0, True), 0 * STEPS, 0.1 * STEPS, 0 * STEPS, [1, 3**-0.25, 3**-0.25, 1], ONES),
    ),
    "a power of the depth, normalised": (
        make(NormalizedDescent(0.1, per="global"), replace(RESIDUAL, branch_scaling=0.75)),
        momentum_rule(normalized(0.0, False), 0 * STEPS, 0.1 * STEPS, 0 * STEPS, [1, 3**0.5, 3**0.5, 1], ONES),
    ),
    "clip": (
        make(dl.GradientDescent(0.1, momentum=0.5, weight_decay=0.1, clip=0.7)),
        momentum_rule(clipped(0.7, False), 0.5 * STEPS, 0.1 * STEPS, 0.1 * STEPS, ONES, ONES),
    ),
    "clip by layer": (
        make(dl.GradientDescent(0.1, clip=0.4, clip_by="layer")),
        momentum_rule(clipped(0.4, True), 0 * STEPS, 0.1 * STEPS, 0 * STEPS, ONES, ONES),
    ),
    "normalised": (
        make(NormalizedDescent(0.1, per="global")),
        momentum_rule(normalized(0.0, False), 0 * STEPS, 0.1 * STEPS, 0 * STEPS, ONES, ONES),
    ),
    "normalised by layer": (
        make(NormalizedDescent(0.1, beta2=0.8, momentum=0.5, layer_lr=[1.0, 2.0, 1.0, 0.3])),
        momentum_rule(normalized(0.8, True), 0.5 * STEPS, 0.1 * STEPS, 0 * STEPS, [1.0, 2.0, 1.0, 0.3], ONES),
    ),
    "Muon": (
        make(rule := Muon(0.05, momentum=0.8, other=dl.GradientDescent(0.1)), data=dl.Isotropic(0.2, GRAM)),
        muon_rule(rule),
    ),
    "Muon, Nesterov, input": (make(rule := Muon(0.05, nesterov=True, input=True, iterations=3)), muon_rule(rule)),
    "Muon, residual": (make(rule := Muon(0.05, momentum=0.0), RESIDUAL), muon_rule(rule)),
    "Muon, depth-muP": (
        make(Muon(0.05, other=rule.plain), replace(RESIDUAL, branch_scaling="depth-mup")),
        muon_rule(Muon(0.05 / math.sqrt(3), other=rule.plain)),
    ),
    "SAM": (make(SAM(0.05, 0.4), dl.MLP(2, (1.5, 0.8), centered=True)), sam_rule(0.05, 0.4)),
    "schedule-free": (make(ScheduleFree(0.1, 0.7)), schedule_free_rule(0.1, 0.7)),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_rules_are_those_of_a_loop_over_dense_matrices(name):
    problem, rule = BY_HAND[name]
    if name == "a power of the depth":
        assert_allclose(problem.layer_rates(problem.optimizer), [1, 3, 3, 1])
    run = train(problem, DIM, SEED, SEED, averages=AVERAGES)
    test, train_loss, averaged = by_hand(problem, rule)
    assert_allclose(run.test_loss, test, rtol=1e-10)
    assert_allclose(run.train_loss, train_loss, rtol=1e-10)
    assert_allclose(run.averaged_test_loss, averaged, rtol=1e-10)
    assert_allclose(run.averaged_test_loss[0], run.test_loss, rtol=1e-12)  # EMA(0) is the last weights
    assert run.task_loss.shape == (0, problem.steps)


@pytest.mark.parametrize("limit", [0.7, 0.4])
def test_clipping_is_active_in_what_was_compared(limit):
    problem = BY_HAND["clip" if limit == 0.7 else "clip by layer"][0]
    free = train(replace(problem, optimizer=replace(problem.optimizer, clip=None, clip_by="global")), DIM, SEED, SEED)
    assert np.abs(train(problem, DIM, SEED, SEED).test_loss / free.test_loss - 1).max() > 0.02


# --- identities ----------------------------------------------------------------------------------------------------


def same(one, other, tolerance=0.0):
    ours, theirs = (train(make(each), DIM, SEED, SEED, averages=AVERAGES) for each in (one, other))
    for name in (*LOSSES, "averaged_test_loss"):
        assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=tolerance)


def test_rules_that_change_nothing():
    plain = dl.GradientDescent(0.05, momentum=0.6, weight_decay=0.1)
    same(replace(plain, layer_lr=[1.0] * 4, layer_decay={"input": 1.0}), plain)
    same(replace(plain, clip=1e9), plain)
    same(replace(plain, clip=1e9, clip_by="layer"), plain)
    same(replace(plain, lr=schedules.constant(0.05)), plain)
    same(ScheduleFree(0.05, layer_lr=[0.0] * 4), dl.GradientDescent([0.0] * 6), 1e-14)


def test_sharpness_aware_descent_with_a_small_radius_is_plain():
    plain = dl.GradientDescent(0.05, momentum=0.6)
    ours, theirs = (train(make(each), DIM, SEED, SEED).test_loss for each in (SAM(0.05, 1e-6, momentum=0.6), plain))
    difference = np.abs(ours / theirs - 1).max()
    assert 1e-9 < difference < 1e-4
    twice = train(make(SAM(0.05, 2e-6, momentum=0.6)), DIM, SEED, SEED).test_loss
    assert_allclose(np.abs(twice / theirs - 1).max(), 2 * difference, rtol=0.01)  # proportional to it


def test_muon_of_one_output_without_momentum_is_layerwise_normalised():
    # The gradient has rank one, so that all iterations leave is a factor: their action on the number 1.
    factor = 1.0
    for _ in range(5):
        factor = 3.4445 * factor - 4.7750 * factor**3 + 2.0315 * factor**5
    muon = Muon(0.1, momentum=0.0, other=dl.GradientDescent([0.0] * 6))
    network = dl.MLP(3, 1.5)
    steps = NormalizedDescent(0.1 * factor, layer_lr={"input": 0.0, "readout": 0.0})
    ours, theirs = (train(make(rule, network), DIM, SEED, SEED) for rule in (muon, steps))
    assert_allclose(ours.test_loss, theirs.test_loss, rtol=1e-10)


@pytest.mark.parametrize("method", ["explicit", "lazy", "reduced"])
def test_frozen_layers_stay(method):
    for frozen, layers in (({"readout": 0.0}, [1]), ({"readout": 0.0, "hidden": 0.0}, [0, 1])):
        problem = make(dl.GradientDescent(0.1, layer_lr=frozen), dl.MLP(2, 1.0))
        g = simulate(problem, DIM, 2, workers=1, method=method).gradient_correlation
        # g_2 is the readout, and g_1 is what the hidden weights make of it
        for layer in range(2):
            change = np.ptp(g[:, layer], axis=(1, 2)) / g[:, layer, 0, 0]
            assert (change < 1e-10).all() if layer in layers else (change > 1e-3).all()


def test_nothing_to_learn_makes_no_step():
    still = dl.Isotropic(0.0, [[0.0]])
    network = dl.MLP(2, 1.0, centered=True)
    rules = [NormalizedDescent(0.1), NormalizedDescent(0.1, "global", 0.9), Muon(0.1), SAM(0.1, 1.0)]
    for rule in (*rules, dl.GradientDescent(0.1, clip=1.0)):
        for method in ("explicit", "lazy", "reduced"):
            if rule.orthogonal is None or method == "explicit":
                problem = make(rule, network, dl.Population(), still)
                # Of several seeds, since some functions are the same to the last digit when they are computed again.
                assert_array_equal(simulate(problem, DIM, 9, workers=1, method=method).test_loss, np.zeros((9, 6)))
