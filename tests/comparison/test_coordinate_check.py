"""Sizes of activations and updates against width, by theory and in networks."""

from dataclasses import replace
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest

import deeplinear as dl
from deeplinear._comparison.coordinate_sizes import Correlations, squared_sizes
from factories import maker
from networks import steps_of

GRAM = [[1.0, 0.3], [0.3, 0.5]]
make = maker("network", network=dl.MLP(2, 1.0), noise=0.3, sampling=dl.FullBatch(2.0), lr=0.03, steps=10)


@pytest.mark.parametrize(
    "network", [dl.MLP(3, [0.5, 1.0, 0.8]), dl.ResNet(3, 0.8, branch=1.5), dl.MLP(2, 0.8, parameterization="standard")]
)
@pytest.mark.parametrize(
    "optimizer",
    [
        dl.GradientDescent(0.03, layer_lr={"readout": 0.5, "input": 2.0}),
        dl.GradientDescent([0.01, 0.02, 0.03, 0.04], momentum=[0.5, 0.6, 0.7, 0.8], nesterov=True),
    ],
)
def test_sizes_from_correlations_are_those_of_the_vectors(network, optimizer):
    """In a finite network the formulas are identities: the learned part of the weights is a sum of outer products."""
    dim, problem = 12, make(network, data=dl.Isotropic(0.3, GRAM), optimizer=optimizer, steps=4)
    networks = dl.simulate(problem, dim, [2], method="explicit")
    found = Correlations(networks.feature_correlation, networks.gradient_correlation, networks.error_correlation)
    sizes, updates = (each[0] for each in squared_sizes(problem, found))
    steps = _steps(problem, dim)
    (first, _, g_first), (weights, h, g) = steps[0], steps[3]
    beta = network.branch_factor if network.skip else 1.0
    depth = network.layers
    for layer in range(depth):
        factor = beta if layer else 1.0
        root = (weights[layer].shape[1]) ** 0.5
        learned = factor * (weights[layer] - first[layer]) @ h[layer] / root
        width = len(learned)
        np.testing.assert_allclose(updates[layer], (learned**2).sum() / width, rtol=1e-9)
        np.testing.assert_allclose(sizes[layer], (h[layer + 1] ** 2).sum() / width, rtol=1e-9)
        np.testing.assert_allclose(sizes[depth + layer], (g[layer] ** 2).sum() / width, rtol=1e-9)
        np.testing.assert_allclose(updates[depth + layer], ((g[layer] - g_first[layer]) ** 2).sum() / width, rtol=1e-9)
    assert np.isnan(sizes[-1])


def _steps(problem, dim):
    """Weights and fields at every step; the problem is given one more, whose rate does not matter."""
    parts = SimpleNamespace(**vars(problem))
    if problem.optimizer.has_schedule:
        lr, momentum = ((*each, 0.1) for each in (problem.optimizer.lr, problem.optimizer.momentum))
        parts.optimizer = dl.GradientDescent(lr, momentum=momentum, nesterov=True)
    return steps_of(parts, dim, 2)


def test_the_update_of_the_function_is_what_new_samples_see():
    problem = make(dl.MLP(2, 1.0, centered=True), steps=4)
    check = dl.coordinate_check(problem, [1.0, 2.0])
    errors = dl.solve(problem).error_correlation
    change = errors[-1, -1] - 2 * errors[-1, 0] + errors[0, 0]
    assert check.step == 3
    assert check.predicted.update[0, -1] == pytest.approx(change**0.5, rel=1e-12)


@pytest.mark.parametrize(
    "network", [dl.MLP(2, 1.0), dl.MLP(2, 1.0, parameterization="ntk"), dl.ResNet(3, 1.0, branch_scaling=1.0)]
)
def test_networks_have_the_sizes_that_theory_predicts(network):
    problem = make(network, optimizer=dl.GradientDescent(0.03, momentum=0.5, weight_decay=0.2))
    check = dl.coordinate_check(problem, [0.5, 2.0], experiment={"dim": 4000, "seeds": 24, "method": "reduced"})
    assert (check.measured.update_error[:, :-1] < 0.02 * check.predicted.update[:, :-1]).all()
    assert check.largest_deviation < 4.0  # of 18 or 26 numbers


def test_parameterizations_have_the_powers_that_they_are_known_for():
    powers = {}
    for name in ("mup", "ntk"):
        check = dl.coordinate_check(make(dl.MLP(2, 1.0, parameterization=name)), [1, 2])
        powers[name] = check.powers
        assert check.stable is (name == "mup")
    np.testing.assert_allclose(powers["mup"][1], 0.0, atol=0.01)  # 1/width corrections at a hundred times the width
    np.testing.assert_allclose(powers["ntk"][1], [-0.5] * 4 + [0.0], atol=0.01)
    np.testing.assert_allclose(powers["ntk"][0][:4], 0.0, atol=0.01)
    standard = dl.coordinate_check(make(dl.MLP(2, 1.0, parameterization="standard"), lr=1e-6), [1, 2])
    np.testing.assert_allclose(standard.powers[1], [0.5 - 1, 0.5, 0.5, 0.5, 1.0], atol=0.01)
    assert standard.stable is False


def test_it_prints_a_table_and_a_verdict():
    check = dl.coordinate_check(make(), [0.5, 1.0], experiment={"dim": 30, "seeds": 3})
    lines = str(check).splitlines()
    assert lines[0].split() == ["after", "3", "steps", "h1", "h2", "g1", "g2", "f"]
    assert sum(line.startswith("  networks") for line in lines) == 4
    assert lines[-2] == check.verdict
    assert check.verdict == "stable: in the limit of wide networks no size or update moves faster than width^0.01"
    assert lines[-1].startswith("networks: largest deviation from theory ")


def test_training_that_diverges_is_not_stable():
    check = dl.coordinate_check(make(lr=1e4, steps=20), [1.0, 2.0], step=10)
    assert check.verdict == "not stable: training diverges at width 1"
    assert check.stable is False


def test_it_draws_sizes_and_updates():
    figure = dl.coordinate_check(make(), [0.5, 1.0], experiment={"dim": 30, "seeds": 3}).plot()
    left, right = figure.axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["h1", "h2", "g1", "g2"]
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["h1", "h2", "g1", "g2", "f"]
    low, high = left.get_ylim()
    assert high / low >= 10 * (1 - 1e-12)
    plt.close("all")


@pytest.mark.parametrize(
    ("problem", "widths", "step", "words"),
    [
        (make(optimizer=dl.Muon(0.1)), [1, 2], None, "optimizer must be GradientDescent without clip, got Muon"),
        (make(), [1], None, "widths must be two or more increasing numbers"),
        (make(), [2, 1], None, "widths must be two or more increasing numbers"),
        (make(), [1, -2], None, r"widths\[1\] must be a positive finite number, got -2"),
        (make(), [1, 2], 10, "step must be from 1 up to but not including the number of steps"),
        (
            make(network=dl.ResNet(np.inf, 1.0)),
            [1, 2],
            None,
            "depth must be finite, because layers are looked at one by",
        ),
        (make(phases=[dl.Phase(10)]), [1, 2], None, "phases must be none, got 1 phases"),
        ("muP", [1, 2], None, "problem must be a Problem, or a function of width and seed, got str"),
    ],
)
def test_what_cannot_be_checked_is_refused(problem, widths, step, words):
    with pytest.raises(ValueError, match=words):
        dl.coordinate_check(problem, widths, step=step)


def test_checks_are_compared_by_what_they_found():
    """It raised that the truth value of an array is ambiguous."""
    first, again, other = (dl.coordinate_check(make(), widths) for widths in ([1.0, 2.0], [1.0, 2.0], [1.0, 3.0]))
    assert first == again
    assert first != other
    assert first != 3
    theory, same, off = dl.solve(make()), dl.solve(make()), dl.solve(make(dl.MLP(2, 1.0, richness=1.1)))
    assert theory.decomposition == same.decomposition
    assert theory.decomposition != off.decomposition
    assert theory.decomposition != dl.solve(make(steps=3)).decomposition


@pytest.mark.parametrize("widths", [64.0, None, "1,2", {1: 2}])
def test_widths_that_are_no_list_are_refused(widths):
    """Of 64.0 it said that a float is not iterable."""
    with pytest.raises(ValueError, match="widths must be"):
        dl.coordinate_check(make(), widths)


def test_messages_have_three_digits_and_no_negative_zero():
    found = dl.coordinate_check(make(), [0.326531, 1.0, 64.0])
    assert "size at width 0.327 " in str(found)
    assert "size at width 64 " in str(found)
    assert "-0.00" not in str(replace(found, powers=np.where(np.isnan(found.powers), np.nan, -1e-9)))
