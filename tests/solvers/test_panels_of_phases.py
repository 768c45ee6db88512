"""Phases on panels: a panel ends with its phase, and the next one has a target and a data set of its own."""

import numpy as np
import pytest

import deeplinear as dl
from factories import some_slow

PLAIN, FULL = dl.GradientDescent(0.02), dl.FullBatch(2.0)
COSINE = dl.GradientDescent(dl.schedules.cosine(0.03))
GRAM = [[1.0, 0.3], [0.3, 0.5]]


def make(*phases, network=None, data=None, sampling=FULL, optimizer=PLAIN):
    steps = sum(phase.steps for phase in phases)
    return dl.Problem(network or dl.MLP(2, 1.0), data or dl.Isotropic(0.3), sampling, optimizer, steps, phases)


CASES = {
    "new target": make(dl.Phase(200), dl.Phase(150, target_overlap=0.5)),
    "kept samples": make(dl.Phase(110), dl.Phase(110, target_overlap=0.5, new_samples=False)),
    "sampling, noise and rate": make(
        dl.Phase(80, sampling=dl.Population()),
        dl.Phase(100, -0.3, noise=0.1, sampling=dl.FullBatch(1.5), optimizer=COSINE),
        dl.Phase(80, 0.0, sampling=dl.FullBatch(4.0)),
    ),
    "two outputs, decay": make(
        dl.Phase(80),
        dl.Phase(90, target_overlap=0.5),
        data=dl.Isotropic(0.2, GRAM),
        optimizer=dl.GradientDescent(0.02, weight_decay=0.05),
    ),
    "centered, residual": make(
        dl.Phase(80), dl.Phase(90, 0.5, noise=0.1), network=dl.ResNet(3, 1.0, richness=0.5, centered=True)
    ),
}


@pytest.mark.parametrize("name", some_slow(CASES, "new target"))  # which the others have too
def test_agrees_with_every_step(name):
    problem = CASES[name]
    panels, dense = (dl.solve(problem, method=method) for method in ("panels", "dense"))
    assert len(panels.times) < 0.8 * problem.steps
    found, error = panels.at(np.arange(problem.steps)), panels.stats["error"]
    assert error < 1e-6
    np.testing.assert_allclose(found.test_loss, dense.test_loss, rtol=error)
    np.testing.assert_allclose(found.train_loss, dense.train_loss, rtol=error)
    at_nodes = panels.times == np.round(panels.times)
    steps = panels.times[at_nodes].astype(int)
    assert problem.stages[0].stop - 1 in steps
    np.testing.assert_allclose(panels.task_loss[:, at_nodes], dense.task_loss[:, steps], rtol=1e-6)
    np.testing.assert_allclose(
        panels.decomposition.label_noise[at_nodes], dense.decomposition.label_noise[steps], rtol=1e-12
    )


def test_two_long_phases_that_are_one():
    whole = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.3), FULL, PLAIN, 405)
    parts = make(dl.Phase(205), dl.Phase(200, new_samples=False))
    one, two = (dl.solve(each, method="panels") for each in (whole, parts))
    steps = [100, 204, 205, 300, 404]
    np.testing.assert_allclose(two.at(steps).test_loss, one.at(steps).test_loss, rtol=1e-6)


def test_a_long_run_forgets_and_learns():
    """Pre-trained to the end, then on another target to the end: the loss on the first is that of an unrelated one."""
    solution = dl.solve(make(dl.Phase(1500), dl.Phase(1500, 0.5), sampling=dl.Population()))
    assert solution.stats["method"] == "panels"
    before, after = (int(np.searchsorted(solution.times, time)) for time in (1499, 2999))
    np.testing.assert_allclose(solution.task_loss[:, before], [0.09, 1.09], rtol=1e-6)  # 2 (1 - 0.5) and noise
    np.testing.assert_allclose(solution.task_loss[:, after], [1.09, 0.09], rtol=1e-6)


@pytest.mark.slow
def test_derivatives_go_through_phases():
    """A complex step, against a difference of losses at 1e-3 of the overlap, in which they are a parabola."""
    problem = make(dl.Phase(505), dl.Phase(505, target_overlap=0.5), network=dl.MLP(1, 1.0))
    found = dl.sensitivity(problem, ["phases.1.target_overlap"])
    index = int(np.searchsorted(found.times, 520))
    step, time = 1e-3, int(found.times[index])
    changed = [problem.replace(**{"phases.1.target_overlap": 0.5 + sign * step}) for sign in (1, -1)]
    above, below = (dl.solve(each) for each in changed)
    assert above.stats["method"] == "panels"
    difference = above.at(time).test_loss.item() - below.at(time).test_loss.item()
    derivative = found.d_test_loss["phases.1.target_overlap"][index]
    assert abs(derivative) > 0.1
    np.testing.assert_allclose(derivative, difference / (2 * step), rtol=1e-4)


def test_a_divergence_in_an_early_phase():
    problem = make(dl.Phase(200), dl.Phase(200, 0.5, noise=0.1), optimizer=dl.GradientDescent(0.5))
    panels, dense = (dl.solve(problem, method=method) for method in ("panels", "dense"))
    assert panels.status.diverged_at == dense.status.diverged_at
    known = slice(0, dense.status.diverged_at)
    np.testing.assert_allclose(panels.task_loss[:, known], dense.task_loss[:, known], rtol=1e-9)


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        (dl.Phase(50, optimizer=dl.GradientDescent(0.02, momentum=0.5)), "with momentum"),
        (dl.Phase(50, optimizer=dl.Muon(0.02)), "with Muon"),
        (dl.Phase(50, sampling=dl.OnlineSGD(1.0)), "where batches are drawn, whose noise is never smooth"),
        (
            dl.Phase(50, optimizer=dl.GradientDescent(0.02, weight_decay=0.1)),
            "with phases that differ in weight_decay, layer_decay or layer_lr",
        ),
    ],
)
def test_what_panels_cannot_do_in_some_phase_is_dense(phase, reason):
    problem = make(dl.Phase(50), phase)
    with pytest.raises(ValueError, match=f'method must be "dense" or "auto" {reason}, got "panels"'):
        dl.solve(problem, method="panels")
    assert dl.solve(problem).stats["method"] == "dense"
