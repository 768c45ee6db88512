"""A rule that is no part of the library runs wherever the others do."""

import copy
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._rules.rule import KNOWN
from deeplinear._solvers.reference import reference
from deeplinear.rules import minimum
from needs import need_torch

TEXT = """
from dataclasses import dataclass

import deeplinear as dl


@dataclass(frozen=True)
class Lookahead(dl.Rule):
    lr: float = 0.05
    every: int = 3

    def step(self, weights, memory, t):
        slow = memory.get("slow", weights)
        gradient = yield dl.Look(weights)
        weights = weights + self.lr * gradient
        if (t + 1) % self.every == 0:
            weights = slow = slow + 0.5 * (weights - slow)
        memory.slow = slow
        return weights
"""


@pytest.fixture(scope="module", autouse=True)
def own(tmp_path_factory):
    """The rule from a file of its own, which is forgotten afterwards."""
    known = dict(KNOWN)
    folder = tmp_path_factory.mktemp("rules")
    (folder / "lookahead_rule.py").write_text(TEXT)
    sys.path.insert(0, str(folder))
    try:
        import lookahead_rule

        yield lookahead_rule.Lookahead
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("lookahead_rule", None)
        KNOWN.clear()
        KNOWN.update(known)


def make(rule, network=None, steps=9, sampling=None, **options):
    network = network or dl.MLP(3, [1.0, 0.5, 2.0])
    return dl.Problem(network, dl.Isotropic(0.3), sampling or dl.FullBatch(2.0), rule, steps, **options)


NETWORKS = [
    dl.MLP(2, [1.0, 0.6], centered=True),
    dl.MLP(2, 0.7, parameterization="standard"),
    dl.MLP(2, "infinite"),
    dl.ResNet(3, 1.0),
]


@pytest.mark.parametrize("network", NETWORKS, ids=repr)
@pytest.mark.parametrize("sampling", [dl.Population(), dl.OnlineSGD(0.8), dl.MultiPassSGD(2.0, 0.5)], ids=repr)
def test_it_is_what_the_reference_has(own, network, sampling):
    problem = make(own(0.05), network, sampling=sampling)
    expected, solution = reference(problem, [dl.EMA(0.5)]), dl.solve(problem, averages=[dl.EMA(0.5)])
    np.testing.assert_allclose(solution.test_loss, expected["test_loss"], rtol=1e-11)
    np.testing.assert_allclose(solution.averaged_test_loss, expected["averaged_test_loss"], rtol=1e-11)


def test_networks_follow_the_theory(own):
    problem = make(own(0.1), dl.MLP(2, 1.0, centered=True), steps=12)
    theory = dl.solve(problem).test_loss
    for method in ("explicit", "reduced"):
        networks = dl.simulate(problem, 150, 24, workers=1, record="losses", method=method).test_loss
        error = networks.std(axis=0, ddof=1) / np.sqrt(len(networks))
        assert (np.abs(networks.mean(axis=0) - theory) < 4.5 * error + 0.004).all()
    plain = dl.solve(make(dl.GradientDescent(0.1), dl.MLP(2, 1.0, centered=True), steps=12)).test_loss
    assert abs(plain[-1] / theory[-1] - 1.0) > 0.05


def test_questions_about_rates(own):
    problem = make(own(), dl.MLP(2, 1.0))
    best = dl.optimal_lr(problem)
    rates = best.lr * np.array([0.8, 1.0, 1.25])
    losses = [each.test_loss[-1] for each in dl.solve([problem.replace(lr=float(rate)) for rate in rates])]
    assert losses[1] < min(losses[0], losses[2])
    assert losses[1] == pytest.approx(best.loss, rel=1e-9)
    moved = dl.transfer(problem, "width", [0.5, 1.0])
    assert len(moved.optima) == 2


def test_derivatives_by_complex_step(own):
    problem = make(own(0.05))
    slope = dl.sensitivity(problem, "lr").d_test_loss["lr"][-1]
    ends = [dl.solve(problem.replace(lr=0.05 + step)).test_loss[-1] for step in (1e-5, -1e-5)]
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)


def test_a_condensed_past(own):
    problem = make(own(0.02), dl.MLP(2, 1.0), steps=300, sampling=dl.OnlineSGD(1.0))
    dense, condensed = (dl.solve(problem, method=method).test_loss for method in ("dense", "condensed"))
    np.testing.assert_allclose(condensed, dense, rtol=1e-5)


def test_files_name_it_and_its_text(own):
    problem = make(own(0.05, every=4))
    text = problem.to_toml()
    assert dl.Problem.from_toml(text) == problem
    changed = text.replace(own.source(), "0" * 16)
    with pytest.warns(UserWarning, match="Lookahead reads otherwise than when this was written"):
        dl.Problem.from_toml(changed)


def test_a_module_of_pytorch_trains_by_it(own):
    _, deeplinear_torch = need_torch()
    problem = make(own(0.1), dl.MLP(2, 1.0), steps=8)
    expected = dl.simulate(problem, 20, 1, workers=1, record="losses", method="explicit").train_loss[0]
    module = deeplinear_torch.network(problem, 20)
    optimizer = deeplinear_torch.optimizer(problem, module)
    found = []
    for batch in deeplinear_torch.data(problem, 20):
        optimizer.zero_grad()
        loss = (batch.weight * (module(batch.x) - batch.y).square().sum(1)).mean()
        loss.div(2).backward()
        optimizer.step()
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        found.append(float(loss.detach()))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_the_command_line_takes_a_module_of_rules(own, tmp_path):
    (tmp_path / "my_rules.py").write_text(TEXT)
    command = [sys.executable, "-m", "deeplinear", "--rules", "my_rules", "solve", "--optimizer", "lookahead"]
    command += ["--every", "2", "--steps", "5", "--lr", "0.1", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "test_loss" in done.stdout
    missing = [*command[:4], "no_such_rules", *command[5:]]
    done = subprocess.run(missing, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--rules must be a module that Python can import, got 'no_such_rules'" in done.stderr


def rule_of(step, **fields):
    """A rule with this step, which is forgotten at once."""
    known = dict(KNOWN)
    try:
        names = {"lr": float} | {name: type(value) for name, value in fields.items()}
        made = type("Tried", (dl.Rule,), {"__annotations__": names, "lr": 0.1, "step": step, **fields})
        return dataclass(frozen=True)(made)()
    finally:
        KNOWN.clear()
        KNOWN.update(known)


def entries(self, weights, memory, t):
    gradient = yield dl.Look(weights)
    return weights + self.lr * gradient**2


def size_of_weights(self, weights, memory, t):
    gradient = yield dl.Look(weights)
    return weights + self.lr * weights.norm() / gradient.norm() * gradient


def branches(self, weights, memory, t):
    gradient = yield dl.Look(weights)
    return weights + self.lr * gradient if gradient.norm() > 1.0 else weights


def returns_nothing(self, weights, memory, t):
    yield dl.Look(weights)


def own_batches(self, weights, memory, t):
    gradient = yield dl.Look(weights, batch=0)
    gradient = yield dl.Look(weights + self.lr * gradient, batch=1)
    return weights + self.lr * gradient


def looks_now_and_then(self, weights, memory, t):
    gradient = yield dl.Look(weights)
    if t % 2:
        gradient = yield dl.Look(weights + self.lr * gradient)
    return weights + self.lr * gradient


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (own_batches, "batch must be the same for all looks of a step"),
        (looks_now_and_then, "must look as often in every step"),
        (entries, "powers of entries have no closed equations"),
        (size_of_weights, "no limit of large networks: the size of weights grows"),
        (branches, "use minimum, maximum or where"),
        (returns_nothing, "must be a generator that yields Look"),
    ],
)
def test_what_has_no_limit_says_so(step, words):
    with pytest.raises(Refusal, match=words):
        make(rule_of(step))


def slowed(self, weights, memory, t):
    """Steps along the momentum, no longer than ``most``; sizes of what is kept, by layer too."""
    gradient = yield dl.Look(weights)
    velocity = memory.velocity = 0.6 * memory.get("velocity", 0.0 * weights) + gradient
    return weights + self.lr * minimum(1.0, self.most / velocity.norms()) * velocity


def test_sizes_of_what_a_rule_keeps():
    rule = rule_of(slowed, most=0.7)
    problem = make(rule)
    solution, expected = dl.solve(problem), reference(problem)
    np.testing.assert_allclose(solution.test_loss, expected["test_loss"], rtol=1e-11)
    assert abs(solution.test_loss[-1] / dl.solve(make(dl.GradientDescent(0.1, momentum=0.6))).test_loss[-1] - 1) > 0.01
    with pytest.raises(ValueError, match="explicit"):
        dl.simulate(problem, 20, 2, method="reduced")
    networks = dl.simulate(make(rule, dl.MLP(2, 1.0, centered=True)), 150, 24, workers=1, record="losses").test_loss
    theory = dl.solve(make(rule, dl.MLP(2, 1.0, centered=True))).test_loss
    error = networks.std(axis=0, ddof=1) / np.sqrt(len(networks))
    assert (np.abs(networks.mean(axis=0) - theory) < 4.5 * error + 0.004).all()


def extragradient(self, weights, memory, t):
    gradient = yield dl.Look(weights)
    gradient = yield dl.Look(weights + self.lr * gradient)
    return weights + self.lr * gradient


def test_two_looks_without_sizes():
    problem = make(rule_of(extragradient))
    np.testing.assert_allclose(dl.solve(problem).test_loss, reference(problem)["test_loss"], rtol=1e-11)
    with pytest.raises(ValueError, match="a rule that looks once in a step"):
        make(rule_of(extragradient), dl.ResNet(np.inf, 1.0, branch_scaling=1.0))


def test_infinite_depth_takes_rules_that_treat_layers_alike():
    def clipped(self, weights, memory, t):
        gradient = yield dl.Look(weights)
        return weights + self.lr * minimum(1.0, self.most / gradient.norm()) * gradient

    network = dl.ResNet(np.inf, 1.0)
    ours, theirs = make(rule_of(clipped, most=0.5), network), make(dl.GradientDescent(0.1, clip=0.5), network)
    np.testing.assert_allclose(dl.solve(ours).test_loss, dl.solve(theirs).test_loss, rtol=1e-12)
    with pytest.raises(ValueError, match="a rule that does not treat layers separately at infinite depth"):
        make(rule_of(slowed, most=0.7), network)
