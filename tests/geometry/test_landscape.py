"""Losses along lines: they agree with training where the line meets it, and with networks in between."""

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._experiment.training import Training
from deeplinear._geometry.landscape import _barrier
from factories import maker
from networks import train

make = maker(
    "optimizer", "sampling", "network", depth=2, width=1.0, noise=0.3, sampling=dl.FullBatch(2.0), lr=0.05, steps=20
)


RULES = {
    "plain": make(),
    "momentum and decay": make(dl.GradientDescent(0.03, momentum=0.5, weight_decay=0.3)),
    "layers": make(dl.GradientDescent(0.03, layer_lr=[1.0, 0.3, 2.0])),
    "clip": make(dl.GradientDescent(0.05, clip=0.5)),
    "SAM": make(dl.SAM(0.03, 0.05)),
    "Muon": make(dl.Muon(0.05)),
    "residual": make(dl.GradientDescent(0.02), network=dl.ResNet(depth=3, width=1.0)),
    "multi-pass": make(sampling=dl.MultiPassSGD(2.0, 0.5)),
    "fine-tuning": make(phases=[dl.Phase(10), dl.Phase(10, 0.5)]),
}


@pytest.mark.parametrize("name", RULES)
def test_the_line_begins_and_ends_where_training_does(name):
    problem = RULES[name]
    solution, line = dl.solve(problem), dl.landscape(problem, "line", [0.0, 1.0])
    ends = [0, -1]
    if name == "fine-tuning":  # the line is in the landscape of the last phase
        ends, line = [-1], dl.landscape(problem, "line", [1.0])
    np.testing.assert_allclose(line.train_loss, solution.train_loss[ends], rtol=1e-9)
    np.testing.assert_allclose(line.test_loss, solution.test_loss[ends], rtol=1e-9)


def test_two_steps_are_the_ends_of_the_line_between_them():
    problem = RULES["momentum and decay"]
    solution, line = dl.solve(problem), dl.landscape(problem, (4, 15), [0.0, 1.0])
    np.testing.assert_allclose(line.train_loss, solution.train_loss[[4, 15]], rtol=1e-9)


def test_one_step_along_the_gradient_is_a_step_of_training():
    longer, problem = make(steps=21), make(steps=20)
    line = dl.landscape(problem, "gradient", [0.0, 1.0])
    solution = dl.solve(longer)
    np.testing.assert_allclose(line.train_loss, solution.train_loss[-2:], rtol=1e-9)
    np.testing.assert_allclose(line.test_loss, solution.test_loss[-2:], rtol=1e-9)


@pytest.mark.parametrize("average", [dl.EMA(0.8), dl.TailMean(0.5)])
def test_the_line_to_an_average_ends_at_its_loss(average):
    problem = RULES["plain"]
    line = dl.landscape(problem, average, [0.0, 1.0])
    averaged = dl.solve(problem, averages=[average]).averaged_test_loss[0, -1]
    np.testing.assert_allclose(line.test_loss[1], averaged, rtol=1e-9)


def test_the_sharpest_direction_is_the_steepest():
    """Of two directions the loss rises more along the sharpest, by lr^2 |G|^2 times the largest Ritz value."""
    problem = make(steps=40)
    x = 0.5 * np.array([-1.0, 0.0, 1.0])
    bends = [np.diff(dl.landscape(problem, along, x).train_loss, 2)[0] for along in ("sharpest", "gradient")]
    mean, largest = dl.sharpness(problem, at=39, start="now"), dl.sharpness(problem, at=39).ritz_values[0, 0]
    mean = (mean.ritz_values[0] * mean.ritz_weights[0]).sum()
    np.testing.assert_allclose(bends[0] / bends[1], largest / mean, rtol=1e-3)


def last_weights(problem, dim, init_seed, data_seed, monkeypatch):
    """Weights of the last step of a network, with the data that it was trained on and its target."""
    kept = {}
    step = Training._step

    def keeping(self, t, phase, stage):
        if t == problem.steps - 1:
            kept.update(weights=[w.copy() for w in self._rule.evaluated], task=self._task, network=self._network)
        return step(self, t, phase, stage)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_step", keeping)
        train(problem, dim, init_seed, data_seed, "losses")
    return kept


def test_twins_among_networks(monkeypatch):
    """Two networks with the same start and other batches, D = 400, 6 pairs: how much lower the test loss is half way
    between them than at both ends, within 4 standard errors and 15 %."""
    problem = make(dl.GradientDescent(0.04), dl.OnlineSGD(0.3), steps=25)
    theory = dl.landscape(problem, "twins", [0.0, 0.5, 1.0]).test_loss
    gains = []
    for seed in range(6):
        pair = [last_weights(problem, 400, seed, data, monkeypatch) for data in (2 * seed, 2 * seed + 1)]
        network, task = pair[0]["network"], pair[0]["task"]

        def loss(weights, network=network, task=task):
            network.use(weights)
            error = task.targets[0] - network.predictor(network.backward()[0])
            return float(task.inputs.loss(error, 0.3))

        one, other = (each["weights"] for each in pair)
        middle = [(a + b) / 2 for a, b in zip(one, other, strict=True)]
        gains.append((loss(one) + loss(other)) / 2 - loss(middle))
    mean, standard_error = np.mean(gains), np.std(gains, ddof=1) / np.sqrt(6)
    expected = theory[0] - theory[1]
    assert abs(mean - expected) < 4 * standard_error
    np.testing.assert_allclose(mean, expected, rtol=0.15)
    assert expected > 0.05 * theory[0]


def test_twins_that_share_very_many_samples_have_fresh_ones():
    fresh, kept = (make(dl.GradientDescent(0.04), each) for each in (dl.OnlineSGD(0.3), dl.MultiPassSGD(1e6, 0.3)))
    lines = [dl.landscape(problem, "twins", [0.0, 0.5, 1.0]) for problem in (fresh, kept)]
    np.testing.assert_allclose(lines[1].test_loss, lines[0].test_loss, rtol=1e-5)
    assert lines[0].barrier == 0.0


def test_a_barrier_is_a_rise_above_the_line_between_the_ends():
    where = np.array([0.0, 0.25, 0.5, 1.0])
    assert _barrier(where, np.array([1.0, 1.25, 2.3, 3.0])) == pytest.approx(0.3)
    assert _barrier(where, np.array([1.0, 1.4, 1.9, 3.0])) == 0.0


@pytest.mark.parametrize(
    ("along", "centered", "power"),
    [("line", True, 0.5), ("line", True, 1.0), ("line", False, 0.5), ("twins", True, 0.5), ("gradient", True, 1.0)],
)
def test_nodes_in_depth_stand_for_layers_everywhere_on_a_line(along, centered, power, monkeypatch):
    """At the first weights of a centered network all that steps in depth solve for is zero, or rounding."""
    network = dl.ResNet(256, 1.0, centered=centered, branch_scaling=power)
    problem = make(dl.GradientDescent(0.02), dl.OnlineSGD(0.5), network, steps=6)
    positions = [0.0, 0.25, 0.5, 1.0]
    on_nodes = dl.landscape(problem, along, positions)
    monkeypatch.setattr("deeplinear._solvers.depth._MANY_LAYERS", 1000)
    by_layers = dl.landscape(problem, along, positions)
    np.testing.assert_allclose(on_nodes.train_loss, by_layers.train_loss, rtol=1e-7)
    np.testing.assert_allclose(on_nodes.test_loss, by_layers.test_loss, rtol=1e-7)


def test_weights_that_nodes_in_depth_do_not_solve_are_refused():
    problem = make(dl.GradientDescent(0.02), network=dl.ResNet(256, 1.0, branch=1.5), steps=3)
    with pytest.raises(ArithmeticError, match="nodes in depth do not solve the network around step 2; lower depth or"):
        dl.landscape(problem, "gradient", [1e6])


def test_positions_may_come_in_any_order():
    one, other = (dl.landscape(make(), "line", where) for where in ([0.0, 0.5, 1.0], [0.5, 1.0, 0.0]))
    np.testing.assert_array_equal(other.positions, one.positions)
    np.testing.assert_array_equal(other.train_loss, one.train_loss)


@pytest.mark.parametrize(
    ("problem", "arguments", "message"),
    [
        (make(), {"along": "up"}, "along must be"),
        (make(), {"along": (3, 20)}, "along must be two steps from 0 to 19"),
        (make(), {"along": "twins"}, "along must be another line unless batches are drawn"),
        (make(dl.Muon(0.05)), {"along": (3, 5)}, "one of them 0 with Muon"),
        (make(dl.Muon(0.05)), {"along": "ema"}, "a line without averages with Muon"),
        (make(), {"positions": [0.0, np.inf]}, "positions must be one or more finite numbers"),
        (make(), {"positions": []}, "positions must be one or more finite numbers"),
    ],
)
def test_bad_arguments_are_refused(problem, arguments, message):
    with pytest.raises(ValueError, match=message):
        dl.landscape(problem, **arguments)


def test_diverging_training_has_no_last_weights():
    with pytest.raises(ArithmeticError, match="diverged at step"):
        dl.landscape(make(dl.GradientDescent(2.0), steps=40), "line")
