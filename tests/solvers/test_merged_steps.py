"""Coarse steps: long runs of stochastic gradient descent against the dense method."""

import time
import tracemalloc

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._solvers.choose import Choice
from deeplinear._solvers.merged_steps import EXACT, MergedSteps
from deeplinear._time.axis import spline
from factories import maker

SPECTRUM = dl.Spectrum([2.0, 1.0, 0.3], [0.3, 1.0, 1.0], [0.2, 0.4, 0.4], proportional=True, noise=0.2)


LAZY = dl.MLP(1, "infinite", richness=1e-3, centered=True)

make = maker("sampling", depth=1, width=0.8, noise=0.3, sampling=dl.OnlineSGD(0.25), lr=0.004, steps=900)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({}, marks=pytest.mark.slow),  # weight decay has more in it
        {"sampling": dl.MultiPassSGD(1.5, 0.25), "richness": 2.0, "steps": 560},
        {"weight_decay": 0.1, "depth": 2, "steps": 560},
        pytest.param(
            {"data": dl.Isotropic(0.2, [[1.0, 0.3], [0.3, 0.5]]), "steps": 600, "lr": 0.003}, marks=pytest.mark.slow
        ),
        {"data": SPECTRUM, "centered": True, "steps": 560},
        pytest.param({"network": dl.ResNet, "depth": 2, "steps": 700, "lr": 0.002}, marks=pytest.mark.slow),
    ],
    ids=["online", "multi-pass", "weight decay", "outputs", "spectrum", "residual"],
)
def test_agrees_with_the_dense_method(change):
    problem = make(**change)
    exact = dl.solve(problem, method="dense")
    solution = dl.solve(problem, method="coarse", tolerance=1e-4)
    assert solution.stats["method"] == "coarse"
    found = solution.at(np.arange(problem.steps))
    for name in ("test_loss", "train_loss"):
        error = np.abs(found[name].values / getattr(exact, name) - 1)
        assert error[:EXACT].max() == 0.0
        assert error.max() <= 10 * solution.stats["error"] <= 1e-3
    whole = solution.times == np.round(solution.times)
    steps = solution.times[whole].astype(int)
    for ours, theirs in [
        (solution.kernel, exact.kernel),
        *zip(vars(solution.decomposition).values(), vars(exact.decomposition).values(), strict=True),
    ]:
        np.testing.assert_allclose(ours[whole], theirs[steps], atol=1e-3 * exact.test_loss[0])


def test_progress_goes_up_to_the_steps_of_the_problem():
    seen = []
    problem = make(steps=2000, lr=0.004)
    dl.solve(problem, method="coarse", tolerance=1e-4, progress=lambda done, total: seen.append((done, total)))
    done, totals = zip(*seen, strict=True)
    assert set(totals) == {problem.steps}
    assert list(done) == sorted(done)
    assert done[0] < 0.1 * problem.steps
    assert done[-1] == problem.steps
    assert len(set(done)) > 20


def test_more_steps_of_a_lower_rate_need_no_more_nodes():
    few, many = (
        dl.solve(
            make(steps=steps, lr=8.0 / steps, sampling=dl.OnlineSGD(2000 / steps)), method="coarse", tolerance=1e-4
        )
        for steps in (2000, 1_000_000)
    )
    assert few.stats["method"] == many.stats["method"] == "coarse"
    assert many.stats["nodes"] < 1.5 * few.stats["nodes"]


def test_a_finer_tolerance_takes_finer_steps():
    """At the loosest, the largest error is just after the exact steps, before the first time that all runs share."""
    problem = make(steps=20_000, lr=2e-4, sampling=dl.OnlineSGD(0.05))
    solutions = [dl.solve(problem, method="coarse", tolerance=tolerance) for tolerance in (1e-3, 1e-5, 1e-6)]
    errors, nodes = zip(*((each.stats["error"], each.stats["nodes"]) for each in solutions), strict=True)
    assert all(error <= tolerance for error, tolerance in zip(errors, (1e-3, 1e-5, 1e-6), strict=True))
    assert nodes[0] < nodes[1] < nodes[2]
    rough, _, fine = (each.at(np.arange(problem.steps)).test_loss.values for each in solutions)
    assert np.abs(rough / fine - 1).max() <= 10 * errors[0]


def test_divergence_is_reported_with_its_step():
    problem = make(steps=5000, lr=1.2)
    exact = dl.solve(make(steps=200, lr=1.2))
    solution = dl.solve(problem, method="coarse")
    assert exact.status.diverged
    assert solution.status == exact.status
    assert solution.at(4000).test_loss == np.inf
    assert solution.at(1).test_loss == exact.test_loss[1]


def test_near_the_edge_of_stability_nothing_is_gained():
    with pytest.raises(ArithmeticError, match=r"were not resolved to tolerance 1e-06 by \d+ larger ones"):
        dl.solve(make(steps=800, lr=0.2), method="coarse")


def test_files_hold_what_there_is(tmp_path):
    solution = dl.solve(make(steps=3000, lr=0.001), method="coarse", tolerance=1e-4)
    solution.save(tmp_path / "run.nc")
    again = dl.Solution.load(tmp_path / "run.nc")
    assert again.stats == solution.stats
    assert (again.at([3, 2345]).test_loss == solution.at([3, 2345]).test_loss).all()
    for each in (solution, again):
        with pytest.raises(ValueError, match='coarse steps have no error_correlation: solve with method="dense"'):
            _ = each.error_correlation
        with pytest.raises(ValueError, match='solve with method="dense"'):
            _ = each.variance


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sampling": dl.FullBatch(1.0)}, "where no batches are drawn"),
        ({"lr": lambda step: 0.01 / (1 + step)}, "with a schedule"),
        ({"momentum": 0.9}, "with momentum"),
        ({"steps": 512}, "for 512 steps or fewer"),
    ],
)
def test_what_coarse_steps_cannot_do(change, reason):
    problem = make(**change)
    assert Choice().solver(problem).name != "coarse"
    with pytest.raises(ValueError, match=f'method must be "dense" or "auto" {reason}, got "coarse"'):
        dl.solve(problem, method="coarse")


def test_the_estimate_knows_coarse_steps():
    cost = dl.estimate(make(steps=10**5, lr=1e-4))
    assert cost.method == "coarse"
    assert cost.theory.bytes < 1e9


def test_larger_steps_that_diverge_are_no_error():
    """Each of the runs of larger steps is beyond the edge of stability, where kernels overflow."""
    problem = dl.Problem(dl.MLP(3, 1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.03), steps=10**6)
    with pytest.raises(ArithmeticError, match="raise tolerance, or lower lr or steps"):
        dl.solve(problem, method="coarse")


def test_a_run_that_diverges_early_says_how_it_was_solved(tmp_path):
    solution = dl.solve(make(steps=600, lr=5.0), method="coarse")
    assert solution.status.diverged
    assert solution.stats["method"] == solution.solver.name == "coarse"
    assert len(solution.times) == len(solution.test_loss) == 256
    assert np.isposinf(solution.at([300, 599]).test_loss).all()
    solution.save(tmp_path / "run.nc")
    again = dl.Solution.load(tmp_path / "run.nc")
    assert again.axis == solution.axis
    with pytest.raises(ValueError, match='this cannot be computed from coarse steps: solve with method="dense"'):
        again.variance.ensemble_loss(2)


def test_a_loss_may_begin_at_zero():
    """Number 679 of ``make fuzz``: there is nothing to learn, and decay pulls the network away from where it began.

    What is wrong at the steps that are solved exactly, where the loss is zero, does not count.
    """
    data, sampling = dl.Isotropic(0.0, [[0.0]]), dl.MultiPassSGD(0.8, 0.24)
    problem = make(sampling, data=data, richness=5.0, centered=True, lr=0.0185, weight_decay=0.005, steps=520)
    with pytest.raises(ArithmeticError, match="raise tolerance"):
        dl.solve(problem, method="coarse")
    solution, exact = dl.solve(problem, method="coarse", tolerance=1e-2), dl.solve(problem, method="dense")
    assert exact.test_loss[0] == 0.0 < exact.test_loss[-1]
    error = np.abs(solution.at([300, 519]).test_loss.values / exact.test_loss[[300, 519]] - 1)
    assert error.max() <= 10 * solution.stats["error"]


def test_merged_steps_beyond_the_edge_are_given_up_in_seconds():
    """The coarsest run tells, and the finer ones, which take a hundred times as long, are not begun."""
    problem = make(dl.OnlineSGD(0.25), depth=4, lr=0.03, steps=5000)
    start = time.process_time()
    with pytest.raises(ArithmeticError, match=r"raise tolerance, or lower lr or steps$"):
        dl.solve(problem, method="coarse")
    assert time.process_time() - start < 20  # 0.3 s, 140 s before


@pytest.mark.parametrize(
    "change",
    [
        {"data": dl.Isotropic(0.1, np.eye(2).tolist()), "lr": 1e-4, "steps": 600},
        {"centered": True, "noise": 0.3, "sampling": dl.MultiPassSGD(2.0, 0.5), "lr": 4e-4, "steps": 10**4},
        pytest.param({"steps": 1200}, marks=pytest.mark.slow),  # longer ones: cost/test_estimate
        pytest.param(
            {"network": LAZY, "noise": 0.0, "sampling": dl.OnlineSGD(0.5), "lr": 5e-4, "steps": 6000},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["two outputs", "more than foreseen", "noise", "no noise"],
)
def test_what_merged_steps_take_is_foreseen(change):
    """Numbers 839 and 1405 of ``make fuzz``: the first steps, which are exact, and losses that fall by many decades.

    Some runs need a quarter more steps than is foreseen, and half as much memory again, which is counted.
    """
    problem = make(**change)
    work = MergedSteps().estimate(problem)
    spline(np.arange(20.0), np.zeros(20))  # what it imports is held only once
    tracemalloc.start()
    solution = dl.solve(problem, method="coarse")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.3 * work.bytes
    assert max(solution.axis.intervals, EXACT) / 2 < work.shape.steps < 2 * max(solution.axis.intervals, EXACT)
