"""A condensed past: every step of long runs, against the dense method."""

import math
import pickle
from functools import cache

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.device import Device
from deeplinear._solvers import choose
from deeplinear._solvers.base import Unresolved
from deeplinear._solvers.choose import Choice
from deeplinear._solvers.condensed import run, solver
from deeplinear._solvers.condensed.run import CondensedRun
from deeplinear._solvers.condensed.solver import Condensed
from deeplinear._solvers.dense import Dense
from deeplinear._solvers.rounding import amplification
from deeplinear._theory.sensitivity import derivatives
from deeplinear._theory.written import MATRICES
from deeplinear._time.axis import EveryStep, SomePairs
from deeplinear._time.history import BLOCK_NODES, Block
from factories import maker, some_slow

SPECTRUM = dl.Spectrum([2.0, 1.0, 0.3], [0.3, 1.0, 1.0], [0.2, 0.4, 0.4], proportional=True, noise=0.2)
POWER_LAW = dl.Spectrum.power_law(1.5, 1.2, modes=12, noise=0.1)
MULTI = dl.MultiPassSGD(1.5, 0.25)

make = maker("sampling", depth=2, width=0.8, noise=0.3, sampling=dl.OnlineSGD(0.5), lr=0.02, steps=240)

CASES = {
    "online": {},
    "multi-pass": {"sampling": MULTI, "richness": 2.0},
    "full batch with momentum": {"sampling": dl.FullBatch(2.0), "momentum": 0.8, "lr": 0.004},
    "nesterov": {"sampling": MULTI, "momentum": 0.8, "nesterov": True, "lr": 0.004},
    "weight decay": {"weight_decay": 0.1, "depth": 3, "centered": True},
    "outputs": {"data": dl.Isotropic(0.2, [[1.0, 0.3], [0.3, 0.5]]), "steps": 160},
    "spectrum": {"data": SPECTRUM, "sampling": MULTI, "centered": True},
    "small batches": {"data": POWER_LAW, "width": 30, "sampling": dl.OnlineSGD(6, small_batch=True), "lr": 0.1},
    "residual": {"network": dl.ResNet, "depth": 3, "lr": 0.01},
    "warm-up and decay": {"lr": dl.schedules.cosine(0.04, warmup=0.2)},
    "batch schedule": {"sampling": dl.OnlineSGD(dl.schedules.linear(1.0, end=0.25))},
    "clipped": {"sampling": MULTI, "clip": 0.5},
    "edge": {"depth": 1, "richness": 0.3, "width": 4.0, "lr": 0.5, "sampling": dl.FullBatch(4.0), "steps": 400},
}


each_case = pytest.mark.parametrize(
    "name",
    some_slow(CASES, "online", "multi-pass", "full batch with momentum"),  # which others have, with more besides
)


@cache
def solved(name):
    """One of these problems, solved by the dense method and with a condensed past."""
    problem = make(**CASES[name])
    return problem, dl.solve(problem, method="dense"), dl.solve(problem, method="condensed")


@each_case
def test_equals_the_dense_method(name):
    """To what rounding makes of sums in another order: what is left out counts only by its square."""
    problem, exact, solution = solved(name)
    assert solution.stats["nodes"] < 0.8 * problem.steps
    assert 0 < solution.stats["error"] <= 1e-6
    for mine, theirs in [
        *((getattr(solution, curve), getattr(exact, curve)) for curve in ("test_loss", "train_loss", "kernel")),
        *zip(vars(solution.decomposition).values(), vars(exact.decomposition).values(), strict=True),
    ]:
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-10 * exact.test_loss[0])


def test_rows_grow_with_the_logarithm_of_time():
    rows = [dl.solve(make(steps=steps), method="condensed").stats["nodes"] for steps in (400, 800)]
    assert rows[1] <= rows[0] + 2 * BLOCK_NODES <= 10 * BLOCK_NODES


def test_what_has_died_out_does_not_keep_rows():
    """Fields of a run that has converged are rounding errors, which no polynomial follows."""
    problem = make(depth=1, sampling=dl.FullBatch(2.0), momentum=0.5, lr=0.1, steps=700)
    assert dl.solve(problem, method="condensed").stats["nodes"] <= 12 * BLOCK_NODES


def test_derivatives_are_those_of_the_dense_method():
    point = make(sampling=MULTI, momentum=0.8, lr=0.004), "momentum"
    exact, found = (derivatives([point], choice=Choice(method, 1e-8))[0].slope for method in ("dense", "condensed"))
    for name in ("test_loss", "train_loss"):
        theirs = getattr(exact, name)
        np.testing.assert_allclose(getattr(found, name), theirs, rtol=1e-9, atol=1e-10 * np.abs(theirs).max())


def test_what_alternates_is_known_on_even_and_odd_steps():
    solved = CondensedRun(make(**CASES["edge"]), 1e-6)
    solved.fill()
    assert any(block.alternates for block in solved.blocks)
    assert sum(block.length for block in solved.blocks) == 400


def test_errors_of_single_steps_are_amplified_as_in_the_dense_method(monkeypatch):
    problem, seen = make(), []

    def spy(*arguments):
        seen.append(amplification(*arguments))
        return seen[-1]

    monkeypatch.setattr(run, "amplification", spy)
    solved = CondensedRun(problem, 1e-6)
    solved.fill()
    equations = dl.solve(problem, method="dense")._solved[0].equations
    expected = amplification(equations, slice(0, 240))
    np.testing.assert_allclose(np.concatenate(seen, axis=1), expected, rtol=1e-4)  # they vary over a node
    assert solved.amplified == pytest.approx(expected.max(), rel=1e-4)


def test_errors_fall_as_the_square_of_what_is_left_out():
    problem = make(depth=1, lr=0.05, sampling=MULTI, steps=400)
    exact = dl.solve(problem, method="dense").test_loss
    errors, parts = np.zeros((2, 3))
    for index, tolerance in enumerate((1.0, 1e-2, 1e-3)):
        solved = CondensedRun(problem, tolerance)
        solved.fill()
        errors[index] = np.abs(solved.values().error[0] + 0.3**2 - exact).max() / exact.max()
        parts[index] = solved.most_left_out
        assert solved.blocks[0] == Block(0, BLOCK_NODES)  # with the initial time, by which losses are judged
    assert (errors < parts**2).all()
    assert np.log(errors[0] / errors[2]) > 1.2 * np.log(parts[0] / parts[2]) > 4.0


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_room_is_made_when_it_is_needed(monkeypatch, momentum):
    problem = make(momentum=momentum, lr=0.02 * (1 - momentum))
    expected = dl.solve(problem, method="condensed")
    monkeypatch.setattr(run, "_ROOM", 20)
    np.testing.assert_array_equal(dl.solve(problem, method="condensed").test_loss, expected.test_loss)


def test_a_divergence_is_that_of_the_dense_method():
    problem = make(lr=np.concatenate([np.full(150, 0.02), np.full(90, 1.5)]))
    exact, solution = dl.solve(problem, method="dense"), dl.solve(problem, method="condensed")
    assert exact.status.diverged_at is not None
    assert solution.status == exact.status
    np.testing.assert_array_equal(np.isinf(solution.test_loss), np.isinf(exact.test_loss))
    theirs = at_pairs(problem, solution, exact.error_correlation)
    np.testing.assert_array_equal(np.isinf(solution.error_correlation), np.isinf(theirs))
    np.testing.assert_allclose(solution.variance.data, exact.variance.data, rtol=1e-6)


INTO_INSTABILITY = {
    "a jump": (0.3, 1.0, np.where(np.arange(260) < 200, 0.05, 0.35)),
    "a ramp": (0.3, 1.0, np.linspace(0.01, 0.4, 260)),
    "a ramp of a loss that dies out": (0.0, 0.57, np.linspace(0.01, 0.327, 263)),
}


def test_what_has_died_out_is_not_kept_for_its_own_sake():
    """Number 2483 of ``make fuzz``: weights decay and swing far below the last digit; all 400 times were kept."""
    rule = dl.GradientDescent(0.5, 0.5, weight_decay=2.0)
    problem = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), rule, 400)
    exact, solution = dl.solve(problem, method="dense"), dl.solve(problem, method="condensed")
    assert solution.stats["nodes"] < 200  # 144
    for name in ("test_loss", "train_loss"):
        np.testing.assert_allclose(getattr(solution, name), getattr(exact, name), rtol=1e-12)


def test_weights_that_have_died_out_may_come_back():
    """Decay takes them to 1e-10 of what they were before it ends, and training leaves the saddle that they are at."""
    decay = np.where(np.arange(400) < 64, 6.0, 0.0).tolist()
    rule = dl.GradientDescent(0.05, 0.0, weight_decay=decay)
    problem = dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(0.3), dl.MultiPassSGD(2.0, 0.5), rule, 400)
    exact, solution = dl.solve(problem, method="dense"), dl.solve(problem, method="condensed")
    assert solution.stats["nodes"] < 200
    assert exact.test_loss[200] > 1.0
    assert exact.test_loss[-1] < 0.9
    for name in ("test_loss", "train_loss"):
        np.testing.assert_allclose(getattr(solution, name), getattr(exact, name), rtol=1e-9)


@pytest.mark.parametrize("decaying", [60, pytest.param(100, marks=pytest.mark.slow)])
def test_weights_that_come_back_from_far_below_rounding_are_known_closely(decaying):
    """From 1e-24, or 1e-40, of what they were: losses were off by 1.9e-5 while they fell, and 9e-7 was reported.

    What is left of the weights is judged by its own size there, and the rows in which it falls are kept.
    """
    decay = np.where(np.arange(600) < decaying, 3.0, 0.0).tolist()
    rule = dl.GradientDescent(0.2, weight_decay=decay)
    problem = dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), rule, 600)
    exact, solution = dl.solve(problem, method="dense"), dl.solve(problem, method="condensed")
    assert exact.test_loss[2 * decaying] > 1.0
    assert exact.test_loss[-1] < 0.2
    assert solution.stats["nodes"] < 400  # 272 and 320
    np.testing.assert_allclose(solution.test_loss, exact.test_loss, rtol=1e-12)


@pytest.mark.usefixtures("entries_only")
@pytest.mark.parametrize("name", INTO_INSTABILITY)
def test_losses_that_depend_on_rounding_are_told(name):
    """Earlier than by every step as it is, since more than rounding is left out; until then they are what is said."""
    noise, width, rates = INTO_INSTABILITY[name]
    problem = make(depth=1, width=width, noise=noise, sampling=dl.FullBatch(3.0), lr=rates, steps=len(rates))
    exact, solution = dl.solve(problem, method="dense"), dl.solve(problem, method="condensed")
    until = solution.status.rounding_at
    assert until <= exact.status.rounding_at <= until + 25
    for curve in ("test_loss", "train_loss"):
        theirs = getattr(exact, curve)[:until]
        scale = np.maximum(theirs, solution.stats["error_floor"] * theirs[0])
        error = np.abs(getattr(solution, curve)[:until] - theirs) / scale
        assert error.max() <= solution.stats["error"] <= 1e-6


def test_bursts_of_instability_are_left_to_every_step():
    """What was left out is amplified beyond the tolerance, but rounding errors are not: there is an answer."""
    rates = np.where(np.arange(200) // 60 % 2 == 0, 0.02, 0.20822)
    problem = make(depth=2, width=1.8134, noise=0.0, sampling=dl.FullBatch(2.2756), lr=rates, steps=200)
    assert dl.solve(problem, method="dense").status == dl.Status()
    with pytest.raises(Unresolved, match=r"unstable for a while: errors .* the tolerance from step \d+ of 200"):
        dl.solve(problem, method="condensed")


def test_a_past_that_does_not_condense_is_given_up_where_every_step_takes_too_long(monkeypatch):
    """Also where the method was asked for, before minutes are spent."""
    rates = 0.02 * np.random.default_rng(0).uniform(0.2, 1.8, 200)
    problem = make(lr=rates, steps=200)
    monkeypatch.setattr(solver, "_MOST_ROWS", 80)
    assert dl.solve(problem, method="condensed").stats["nodes"] > 80
    monkeypatch.setattr(choose, "_MOST_NUMBERS", 0)
    with pytest.raises(Unresolved, match=r"at step 96 of 200 the past still takes .* its schedule is rough; lower lr"):
        dl.solve(problem, method="condensed")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"optimizer": dl.ScheduleFree(0.1)}, "with schedule-free"),
        ({"optimizer": dl.ScheduleFree(0.1, beta=0.0)}, "with schedule-free"),
        ({"optimizer": dl.SAM(0.1, 0.1)}, "with SAM"),
        ({"network": dl.ResNet, "depth": math.inf}, "where nodes in depth stand for the layers"),
    ],
)
def test_says_what_it_cannot_solve(change, why):
    with pytest.raises(ValueError, match=f'method must be "dense" or "auto" .*{why}.*, got "condensed"'):
        dl.solve(make(**change), method="condensed")


def test_a_past_that_does_not_condense_is_given_up():
    """Momentum and a large rate: responses swing, and stay as they are for hundreds of steps."""
    problem = make(depth=3, width=1.0, sampling=dl.OnlineSGD(1.0), momentum=0.9, lr=0.05, steps=2000)
    with pytest.raises(Unresolved, match=r"at step \d+ of 2000 the past still takes \d+ times"):
        Condensed(most_rows=200).solve([problem])


def at_pairs(problem, solution, matrix):
    """Rows and columns of a dense matrix at the pairs that a solution has."""
    outputs = problem.data.outputs
    rows = (solution.pair_times[:, None] * outputs + np.arange(outputs)).ravel()
    return matrix[..., rows[:, None], rows]


@each_case
def test_two_time_functions_are_those_of_the_dense_method(name):
    """To the part of a row that may be left out, 1e-8 here, of the largest value of a correlation or row of sums."""
    problem, exact, solution = solved(name)
    pairs = solution.pair_times
    assert 60 < len(pairs) < problem.steps
    assert (pairs[0], pairs[-1]) == (0, problem.steps - 1)
    for each in MATRICES:
        whole = getattr(exact, each)
        scale = np.abs(whole).max() if each.endswith("correlation") else np.abs(whole).sum(axis=-1).max()
        ours, theirs = getattr(solution, each), at_pairs(problem, solution, whole)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8 * scale, err_msg=each)


@each_case
def test_variances_are_those_of_the_dense_method(name):
    exact, solution = (each.variance for each in solved(name)[1:])
    for part, theirs in vars(exact).items():
        np.testing.assert_allclose(getattr(solution, part), theirs, rtol=1e-9, atol=1e-11, err_msg=part)
    np.testing.assert_allclose(solution.ensemble_loss(4), exact.ensemble_loss(4), rtol=1e-9)


def test_neurons_are_not_drawn():
    with pytest.raises(ValueError, match='only if every step was solved: solve with method="dense"'):
        dl.solve(make(steps=100), method="condensed").sample_sites(3)


def test_solutions_go_to_files_and_back(tmp_path):
    _, _, solution = solved("outputs")
    assert solution.axis == SomePairs(160, 100)
    solution.save(tmp_path / "run.nc")
    again = dl.Solution.load(tmp_path / "run.nc")
    assert (again.axis, again.solver, again.status) == (solution.axis, solution.solver, solution.status)
    for name in ("test_loss", "feature_correlation", "error_response"):
        np.testing.assert_array_equal(getattr(again, name), getattr(solution, name))
    labelled = solution.to_xarray()
    assert labelled.error_correlation.dims == ("pair_time", "output", "pair_time_prime", "output_prime")
    np.testing.assert_array_equal(labelled.pair_time, solution.pair_times)
    assert labelled.test_loss.sizes == {"time": 160}


def test_theory_is_compared_with_networks_at_pairs():
    problem = make(steps=220)
    theory = dl.solve(problem, method="condensed")
    comparison = dl.compare(theory, dl.simulate(problem, dim=60, seeds=3))
    np.testing.assert_array_equal(comparison["feature_correlation[1]"].times, theory.pair_times)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"steps": 400}, "dense"),
        ({"steps": 401}, "condensed"),
        ({"steps": 1000, "sampling": dl.FullBatch(2.0)}, "condensed"),
        ({"steps": 1000, "phases": [dl.Phase(400), dl.Phase(600)]}, "dense"),
        ({"steps": 5000}, "condensed"),
        ({"steps": 5000, "sampling": dl.FullBatch(2.0)}, "panels"),
        ({"steps": 5000, "sampling": dl.FullBatch(2.0), "momentum": 0.9}, "condensed"),
        ({"steps": 10**6, "lr": 1e-5}, "coarse"),
    ],
)
def test_auto_takes_it_where_it_wins(change, name):
    assert Choice().solver(make(**change)).name == name


@pytest.mark.parametrize("name", some_slow(CASES, "online", "outputs"))
def test_runs_that_are_not_long_have_functions_of_two_times_at_every_pair(name, monkeypatch, tmp_path):
    """The losses come first; what is asked for afterwards is what the dense method says, to the last bit."""
    monkeypatch.setattr(choose, "SHORT_CURVE", 100)
    problem, exact, _ = solved(name)
    solution = dl.solve(problem)
    assert (solution.stats["method"], solution.axis) == ("condensed", EveryStep(problem.steps))
    np.testing.assert_allclose(solution.test_loss, exact.test_loss, rtol=1e-9)
    solution.save(tmp_path / "run.nc")
    for each in (solution, pickle.loads(pickle.dumps(solution)), dl.Solution.load(tmp_path / "run.nc")):
        assert each.solver == solution.solver
        np.testing.assert_array_equal(each.pair_times, exact.times)
        for matrix in MATRICES:
            np.testing.assert_array_equal(getattr(each, matrix), getattr(exact, matrix), err_msg=matrix)
        assert each.sample_sites(3).equals(exact.sample_sites(3))
        np.testing.assert_allclose(each.variance.data, exact.variance.data, rtol=1e-9, atol=1e-11)


def test_the_memory_of_functions_of_two_times_is_taken_when_they_are_asked_for(monkeypatch):
    """Where there is none, the losses are found all the same."""
    problem = make(steps=600)
    needed = Dense().memory([problem])
    monkeypatch.setattr(Device, "available", lambda _: needed // 2)
    solution = dl.solve(problem)
    assert solution.status.diverged_at is None
    with pytest.raises(MemoryError, match="solving needs about"):
        _ = solution.feature_correlation


def test_progress_counts_steps():
    seen = []
    dl.solve(make(steps=100), method="condensed", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (100, 100)
    assert [done for done, _ in seen] == [*range(16, 100, 16), 100]
