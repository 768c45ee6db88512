"""Runs that become unstable late: what grows there began as rounding, and the solution says so."""

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._solvers import rounding
from deeplinear._solvers.dense import Dense
from deeplinear._solvers.rounding import amplification, may_be_unstable, rounding_at
from deeplinear._time.grid import Grid
from factories import maker

pytestmark = pytest.mark.usefixtures("entries_only")

make = maker("lr", depth=1, width=1.0, noise=0.3, sampling=dl.FullBatch(2.0), steps=300)


LATE = {"ramp": np.linspace(0.02, 0.4, 300), "jump": np.repeat([0.05, 0.3], 150)}


@pytest.mark.parametrize("name", LATE)
def test_losses_depend_on_rounding_from_the_step_that_is_given(name):
    """A change of the last digits of the richness changes nothing before that step, and much after it."""
    solution, nudged = dl.solve([make(LATE[name]), make(LATE[name], richness=1 + 1e-13)])
    step = solution.status.rounding_at
    assert step is not None
    assert abs(step - nudged.status.rounding_at) <= 1
    assert np.abs(nudged.test_loss[:step] / solution.test_loss[:step] - 1).max() < 1e-6
    # Whether such a run also diverges in the end depends on rounding too.
    both = np.isfinite(nudged.test_loss) & np.isfinite(solution.test_loss) & (np.arange(300) >= step)
    assert np.abs(nudged.test_loss[both] - solution.test_loss[both]).max() > 1e-5
    assert f"from step {step} on the losses depend on rounding errors: lower the learning rate" in str(solution.status)


def test_a_loss_that_has_died_out_has_errors_of_what_has_not():
    """Without noise it falls to the last digit of what it is a difference of, and what grows there is rounding."""
    rates = np.linspace(0.01, 0.486, 300)
    solution = dl.solve(make(rates, noise=0.0, width=1.75, sampling=dl.FullBatch(3.05)))
    step, start = solution.status.rounding_at, solution.test_loss[0]
    assert solution.test_loss[:step].min() < 1e-14 * start
    assert solution.test_loss[:step][-10:].max() < 1e-10 * start
    assert solution.test_loss[step:].max() > 1e-5 * start


def test_rounding_takes_no_loss_below_the_label_noise():
    """Where only rounding errors are left, they have either sign: one of several runs that differ by these falls."""
    rates = np.linspace(0.01, 0.35, 400)
    solutions = dl.solve([make(rates, steps=400, richness=1 + number * 1e-13) for number in range(8)])
    fallen = min(solutions, key=lambda each: each.test_loss[each.status.rounding_at :].min())
    step, end = fallen.status.rounding_at, fallen.status.diverged_at
    assert fallen.test_loss[step:].min() == 0.3**2
    assert fallen.at(np.arange(end or 400)).test_loss.min() == 0.3**2


def few_modes():
    """A residual network on a power law of a few modes, with small batches, while the rate rises."""
    eigenvalues = np.arange(1.0, 5.0) ** -2.0
    data = dl.Spectrum(eigenvalues, eigenvalues**0.05, noise=1.0, proportional=False)
    network = dl.ResNet(3, 319.1, richness=0.2558, branch=1.216, centered=True)
    optimizer = dl.GradientDescent(np.linspace(0.042, 1.0, 250))
    return dl.Problem(network, data, dl.OnlineSGD(46.13), optimizer, 250)


@pytest.mark.parametrize("method", ["dense", "condensed"])
def test_an_instability_of_the_kernel_grows_from_rounding_too(method):
    """Errors answer to a disturbance as always, so that only another solution can tell."""
    problem = few_modes()
    solution = dl.solve(problem, method=method)
    nudges = [1e-13 * size for size in (-3, -2, -1, 1, 2, 3)]
    nudged = [dl.solve(problem.replace(richness=0.2558 * (1 + nudge)), method=method).test_loss for nudge in nudges]
    step = solution.status.rounding_at
    assert step is not None
    assert step == solution.stats["rounding_at"]
    assert 210 < step < 245
    # How far the losses of one other solution are off at a time is a matter of luck.
    error = np.median(np.abs(np.array(nudged) / solution.test_loss - 1), axis=0)
    assert error[:step].max() < 1e-5
    assert error[step:].max() > 1e-2
    if method == "dense":
        equations = solution._solved[0].equations
        assert amplification(equations, slice(0, 250)).max() < 100


def test_what_another_solution_has_too_is_no_rounding(monkeypatch):
    monkeypatch.setattr(rounding, "may_be_unstable", lambda losses: True)
    assert dl.solve(make(0.05)).status.rounding_at is None
    assert dl.solve(make(2.0)).status.rounding_at is None  # which diverges


def test_swings_that_begin_at_once_come_from_the_schedule():
    steps = np.arange(200.0)
    swing = np.where(steps < 100, 0.0, 1e-3 * 0.9 ** (steps - 100) * (-1.0) ** steps)
    assert not may_be_unstable(np.exp(-steps / 50) * (1 + swing))


UNSTABLE = {
    "a kernel, after a loss that falls": (3, 0.55, 0.0, dl.GradientDescent(0.127), 250, 180),
    "sizes of gradients": (2, 1.0, 0.3, dl.NormalizedDescent(2.0, beta2=0.5), 60, 20),
    "clipped steps": (2, 1.0, 0.3, dl.GradientDescent(2.0, clip=5.0), 60, 20),
}


@pytest.mark.parametrize("name", UNSTABLE)
def test_what_grows_by_the_kernel_or_the_sizes_of_gradients_is_noticed_though_the_loss_was_never_smooth(name):
    """A change of the last digits of the richness changes everything in the end, as another order of summation does."""
    depth, width, noise, rule, steps, least = UNSTABLE[name]
    problem = dl.Problem(dl.MLP(depth, width), dl.Isotropic(noise), dl.FullBatch(2.0), rule, steps)
    solution, nudged = (dl.solve(problem.replace(richness=richness)) for richness in (1.0, 1 + 1e-13))
    step, error = solution.status.rounding_at, np.abs(nudged.test_loss / solution.test_loss - 1)
    assert solution.status.diverged_at is None
    assert step is not None
    assert step > least
    assert error[:step].max() < 1e-5  # the rate is changed ten times as much where the step is found, up to 1e-6
    assert error[step:].max() > 1e-5


def test_single_steps_of_panels_depend_on_rounding_as_every_step_does():
    depth, width, noise, rule, steps, _ = UNSTABLE["a kernel, after a loss that falls"]
    problem = dl.Problem(dl.MLP(depth, width), dl.Isotropic(noise), dl.FullBatch(2.0), rule, steps)
    found = [dl.solve(problem, method=method).status.rounding_at for method in ("dense", "panels")]
    assert None not in found
    assert abs(found[0] - found[1]) <= 5


@pytest.mark.parametrize("lr", [0.05, 0.3, 0.5, 2.0])
def test_what_is_stable_or_unstable_from_the_start_does_not_depend_on_rounding(lr):
    """Where training is unstable from the start, the loss itself grows as much as rounding errors do."""
    assert dl.solve(make(lr)).status.rounding_at is None


def test_long_runs_say_the_same_as_short_ones():
    """Panels give such a run up, and then every step is solved, with its past condensed."""
    solution = dl.solve(make(np.concatenate([np.full(850, 0.02), np.full(155, 0.3)]), steps=1005))
    assert solution.stats["method"] == "condensed"
    assert 850 < solution.status.rounding_at < 950


def test_the_step_survives_a_file(tmp_path):
    solution = dl.solve(make(LATE["jump"]))
    solution.save(tmp_path / "run.nc")
    assert dl.Solution.load(tmp_path / "run.nc").status == solution.status


def test_problems_of_a_batch_are_told_apart():
    both = dl.solve([make(LATE["jump"]), make(np.repeat([0.05, 0.06], 150))])
    assert [each.status.rounding_at is None for each in both] == [False, True]


@pytest.mark.parametrize("gram", [None, [[1.0, 0.3], [0.3, 0.5]]])
def test_amplification_is_the_sum_of_squared_responses(gram):
    problem = dl.Problem(
        dl.MLP(depth=2, width=1.0),
        dl.Spectrum([2.0, 0.5], [np.eye(2) if gram else 1.0] * 2, [0.4, 0.6], proportional=True, noise=0.1),
        dl.FullBatch(2.0),
        dl.GradientDescent(0.05),
        12,
    )
    dense = Dense().solve([problem])[0].run.equations
    outputs, share = problem.data.outputs, np.array([0.8, 0.3]) / 1.1
    losses = dense.loss_curve(slice(0, 12))[0]
    squares = np.einsum("k,ktcsd->ts", share, dense.data.H.matrix[0].reshape(2, 12, outputs, 12, outputs) ** 2)
    expected = squares @ losses / outputs / losses
    np.testing.assert_allclose(amplification(dense, slice(0, 12))[0], expected, rtol=1e-12)
    np.testing.assert_allclose(amplification(dense, slice(5, 7))[0], expected[5:7], rtol=1e-12)
    single = Grid([1] * 12).single
    assert single.all()
    single[3:] = False
    first = squares[:, :3] @ losses[:3] / outputs / losses
    np.testing.assert_allclose(amplification(dense, slice(0, 12), single)[0], first, rtol=1e-12)
    assert rounding_at(dense, np.array([12])) == [-1]


def test_a_condensed_past_that_leaves_nothing_out_says_what_every_step_says():
    """It was judged as if it had left out as much as it may, and spoke of rounding errors where there were few."""
    rates = [0.07375] * 49 + [0.7375] * 50
    rule = dl.GradientDescent(rates, momentum=0.5, nesterov=True, weight_decay=3.266)
    network = dl.MLP(1, 2.243, 0.7029, centered=True)
    problem = dl.Problem(network, dl.Isotropic(), dl.OnlineSGD(0.7035), rule, 99)
    condensed, dense = (dl.solve(problem, method=method) for method in ("condensed", "dense"))
    assert condensed.stats["error"] == 0
    assert condensed.status == dense.status
    assert dense.status.diverged_at == 71
