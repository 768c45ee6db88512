"""Best learning rates of update rules, schedules and phases, against rates tried one by one."""

from typing import Any

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._learning_rate.ladder import solve_rates
from deeplinear._learning_rate.stable import is_stable, stable_loss
from deeplinear._problem.rate import with_rate
from factories import maker, some_slow

s = dl.schedules
TWO = (dl.Phase(6), dl.Phase(6, target_overlap=0.5))
TUNED = (dl.Phase(6), dl.Phase(6, target_overlap=0.5, noise=0.5, optimizer=dl.GradientDescent(0.02)))


problem = maker("optimizer", "phases", depth=2, width=0.8, noise=0.3, sampling=dl.FullBatch(1.5), steps=12)


CASES = {
    "clipped": problem(dl.GradientDescent(0.1, clip=0.3)),
    "normalized": problem(dl.NormalizedDescent(0.05, beta2=0.5)),
    "muon": problem(dl.Muon(0.02)),
    "muon and another": problem(dl.Muon(0.02, other=dl.GradientDescent(0.1))),
    "muon with a schedule": problem(dl.Muon(s.cosine(0.02), momentum=0.5)),
    "schedule-free": problem(dl.ScheduleFree(0.05)),
    "sam": problem(dl.SAM(0.05, rho=0.1)),
    "phases": problem(dl.GradientDescent(0.05), TWO),
    "fine-tuning": problem(dl.GradientDescent(0.05), TUNED),
}


@pytest.mark.parametrize("name", some_slow(CASES, "muon", "phases"))  # which the cases after them have
def test_no_rate_is_better(name: str) -> None:
    one = CASES[name]
    found = dl.optimal_lr(one)
    rates = found.lr * np.geomspace(1e-3, 30, 100)
    losses = np.array([run.test_loss[-1] for run in dl.solve([with_rate(one, rate) for rate in rates])])
    assert found.loss <= losses.min() * (1 + 1e-6)
    assert found.is_factor == one.optimizer.has_schedule
    (best,) = dl.solve([with_rate(one, found.lr)])
    assert best.test_loss[-1] == pytest.approx(found.loss, rel=1e-9)


def test_the_best_rate_of_muon_does_not_depend_on_its_own() -> None:
    one, other = (dl.optimal_lr(problem(dl.Muon(lr))).lr for lr in (0.02, 0.3))
    assert one == pytest.approx(other, rel=1e-9)


@pytest.mark.parametrize("name", ["muon", "phases"])
def test_the_best_rate_is_followed_over_width(name: str) -> None:
    widths = (0.5, 1.0)
    found = dl.transfer(CASES[name], "width", widths)
    expected = [dl.optimal_lr(dl.Problem(dl.MLP(2, width), *_rest(CASES[name]))).lr for width in widths]
    np.testing.assert_allclose([optimum.lr for optimum in found.optima], expected, rtol=1e-6)


def test_a_rate_that_nothing_uses_is_refused() -> None:
    phases = (dl.Phase(6, optimizer=dl.Muon(0.1)), dl.Phase(6))
    with pytest.raises(Refusal, match="phases must be without an optimizer of its own in the first phase"):
        dl.optimal_lr(problem(dl.GradientDescent(0.1), phases))


@pytest.mark.parametrize(
    ("network", "rule"),
    [
        (dl.MLP(1, 0.8), dl.Muon(0.1, other=dl.GradientDescent(0.1))),
        (dl.MLP(2, 0.8), dl.GradientDescent(0.1, layer_lr=[0.0, 0.0, 0.0])),
    ],
)
def test_a_rate_that_no_weights_take_is_refused(network: dl.MLP, rule: Any) -> None:
    one = dl.Problem(network, dl.Isotropic(0.3), dl.FullBatch(1.5), rule, steps=12)
    for search in (dl.optimal_lr, dl.max_stable_lr):
        with pytest.raises(Refusal, match="optimizer must be a rule whose learning rate some weights use"):
            search(one)


def test_where_any_training_hurts_no_rate_is_better_than_none() -> None:
    """A first phase with the opposite target; the second one lowers the loss at its own rate."""
    phases = (dl.Phase(6), dl.Phase(6, target_overlap=-1.0, optimizer=dl.GradientDescent(0.05)))
    with pytest.raises(ArithmeticError, match=r"no learning rate from .* makes the test loss lower than a vanishing"):
        dl.optimal_lr(problem(dl.GradientDescent(0.05), phases))


def test_weights_that_muon_leaves_alone_may_take_its_rate() -> None:
    assert dl.optimal_lr(dl.Problem(dl.MLP(1, 0.8), *_rest(CASES["muon"]))).lr > 0


def test_stable_rates_of_phases_are_measured_on_their_own_data() -> None:
    """Noise of a later phase raises what an untrained network has there, and not what is stable."""
    phases = [(dl.Phase(6), dl.Phase(6, target_overlap=0.5, noise=noise)) for noise in (0.3, 3.0)]
    quiet, noisy = (dl.max_stable_lr(problem(dl.GradientDescent(0.05), each)).lr for each in phases)
    assert quiet == pytest.approx(noisy, rel=0.25)
    run = dl.solve(with_rate(problem(dl.GradientDescent(0.05), phases[1]), 0.5 * quiet))
    assert run.train_loss[-1] > 1.2 * run.train_loss[0]  # stable, although it ends above the loss of the first phase


def test_what_has_to_be_unlearned_is_not_unstable() -> None:
    """Low rates learn the first target, and have no time to learn the opposite one; they had passed for unstable."""
    phases = (dl.Phase(10), dl.Phase(2, target_overlap=-1.0))
    one = problem(dl.GradientDescent(0.05), phases)
    edge = dl.max_stable_lr(one).lr
    runs = solve_rates(one, (edge * np.geomspace(1e-3, 1.0, 13)).tolist())
    assert max(run.train_loss[-1] for run in runs) > 1.7 * runs[0].train_loss[0]
    assert all(is_stable(run, stable_loss(one)) for run in runs)
    assert edge == pytest.approx(dl.max_stable_lr(problem(dl.GradientDescent(0.05), ())).lr, rel=0.02)


def _rest(one: dl.Problem) -> tuple[Any, ...]:
    return one.data, one.sampling, one.optimizer, one.steps, one.phases
