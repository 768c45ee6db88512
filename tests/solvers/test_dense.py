"""The dense solver against the slow reference, and what must hold for any problem."""

import numpy as np
import pytest

import deeplinear as dl
from agreement import assert_agrees_with_the_reference, assert_close
from deeplinear._equations import system
from deeplinear._equations.coefficients import structure
from factories import SAMPLINGS, maker
from strategies import on_random, problems

make = maker("sampling", depth=3, width=0.8, noise=0.3, sampling=SAMPLINGS[1], lr=0.03, steps=12)


@on_random(problems(), few=35, many=500)
def test_agrees_with_the_reference(problem):
    assert_agrees_with_the_reference(problem)


@on_random(problems(), few=20, many=200)
def test_correlations_are_symmetric_and_positive_and_responses_causal(problem):
    solution, outputs = dl.solve(problem), problem.data.outputs
    correlations = [
        *solution.feature_correlation,
        *solution.gradient_correlation,
        solution.error_correlation,
        solution.residual_correlation,
    ]
    for matrix in correlations:
        assert_close(matrix, matrix.T, 1e-12)
        assert np.linalg.eigvalsh(matrix)[0] >= -1e-10 * max(1.0, np.abs(matrix).max())
    step = np.arange(problem.steps * outputs) // outputs
    later, same_or_later = step[:, None] < step, step[:, None] <= step
    for matrix in solution.gradient_response:
        assert not matrix[same_or_later].any()
    assert not solution.error_response[same_or_later].any()
    for matrix in [*solution.feature_response, solution.residual_response]:
        assert not matrix[later].any()


@on_random(problems(), few=20, many=200)
def test_both_decompositions_sum_to_the_loss(problem):
    solution = dl.solve(problem)
    for parts in (solution.decomposition, solution.variance):
        assert_close(sum(vars(parts).values()), solution.test_loss)
    assert_close(solution.variance.ensemble_loss(1), solution.test_loss)
    assert (solution.variance.ensemble_loss(3) <= solution.test_loss + 1e-12).all()


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: type(s).__name__)
def test_a_list_is_solved_as_one_by_one(sampling):
    problems = [
        make(sampling, richness=r, lr=lr, width=w) for r, lr, w in [(0.5, 0.02, 1), (1, 0.03, 0.5), (2, 0.01, 3)]
    ]
    problems += [make(sampling, depth=2), make(sampling, steps=7), make(sampling, gram=[[1, 0.3], [0.3, 0.5]])]
    together = dl.solve(problems)
    assert [solution.problem for solution in together] == problems
    assert together[0].stats["batch"] == 3
    for problem, solution in zip(problems, together, strict=True):
        alone = dl.solve(problem)
        assert_close(solution.test_loss, alone.test_loss, 1e-13)
        assert_close(solution.feature_correlation, alone.feature_correlation, 1e-13)
        assert_close(solution.variance.interaction, alone.variance.interaction, 1e-13)


def test_striped_products_agree_with_plain_ones(monkeypatch):
    problems = [make(sampling, steps=30, gram=[[1, 0.3], [0.3, 0.5]]) for sampling in SAMPLINGS]
    plain = dl.solve(problems)
    monkeypatch.setattr("deeplinear._equations.products._BLOCK", 7)
    monkeypatch.setattr("deeplinear._equations.products._LAUNCH", 7)
    for expected, actual in zip(plain, dl.solve(problems), strict=True):
        assert_close(actual.test_loss, expected.test_loss, 1e-13)
        assert_close(actual.feature_correlation, expected.feature_correlation, 1e-13)


def test_divergence_is_reported_with_its_step_and_spares_the_rest_of_the_batch():
    calm, wild = make(lr=0.03, steps=30), make(lr=0.8, steps=30)
    solutions = dl.solve([calm, wild, calm])
    assert not solutions[0].status.diverged
    assert_close(solutions[2].test_loss, dl.solve(calm).test_loss, 1e-13)
    status, losses = solutions[1].status, solutions[1].test_loss
    assert status.diverged
    assert str(status.diverged_at) in str(status)
    assert np.isfinite(losses[: status.diverged_at]).all()
    assert np.isposinf(losses[status.diverged_at :]).all()
    for curve in [*vars(solutions[1].decomposition).values(), *vars(solutions[1].variance).values()]:
        assert not np.isnan(curve).any()
    assert not np.isnan(solutions[1].feature_correlation).any()


def test_a_transient_that_recovers_is_not_a_divergence():
    problem = make(dl.OnlineSGD(0.05), depth=4, width=0.25, centered=True, lr=0.01, steps=60)
    solution = dl.solve(problem)
    assert solution.test_loss.max() > solution.test_loss[0]
    assert solution.test_loss[-1] < solution.test_loss[0]
    assert not solution.status.diverged


def test_losses_that_decay_to_rounding_are_never_negative():
    problem = make(dl.Population(), depth=1, width="infinite", noise=0.0, lr=0.2, steps=300)
    solution = dl.solve(problem)
    assert solution.test_loss[-1] < 1e-20
    assert (solution.test_loss >= 0).all()


def test_batch_equal_to_samples_is_full_batch():
    assert_close(
        dl.solve(make(dl.MultiPassSGD(1.5, 1.5))).test_loss, dl.solve(make(dl.FullBatch(1.5))).test_loss, 1e-13
    )


def test_multi_pass_over_unlimited_data_is_online():
    online, many = dl.solve([make(dl.OnlineSGD(0.4)), make(dl.MultiPassSGD(4e9, 0.4))])
    assert_close(many.test_loss, online.test_loss, 1e-7)
    assert_close(many.train_loss, online.train_loss, 1e-7)


def test_infinite_width_is_the_limit():
    limit, wide = dl.solve([make(width="infinite"), make(width=1e9)])
    assert_close(wide.test_loss, limit.test_loss, 1e-7)


def test_independent_outputs_add_up():
    """With a diagonal Gram matrix and a lazy network the outputs do not meet."""
    lazy = {"width": "infinite", "parameterization": "ntk", "centered": True}
    both = dl.solve(make(gram=[[1.0, 0.0], [0.0, 0.25]], **lazy))
    first, second = (dl.solve(make(gram=[[power]], **lazy)) for power in (1.0, 0.25))
    assert_close(both.test_loss, first.test_loss + second.test_loss, 1e-12)


def test_a_schedule_an_array_and_a_function_agree():
    rates = [0.05 / (1 + step) for step in range(12)]
    by_array, by_function = dl.solve([make(lr=rates), make(lr=lambda step: 0.05 / (1 + step))])
    assert (by_array.test_loss == by_function.test_loss).all()


def test_too_large_a_problem_is_refused_before_it_starts():
    with pytest.raises(MemoryError, match=r"solving needs about [\d.]+ GB, but only [\d.]+ GB are available; lower"):
        dl.solve(make(steps=200_000), method="dense")


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda s: type(s).__name__)
def test_memory_is_what_was_estimated(sampling):
    import tracemalloc

    problem = make(sampling, steps=150)
    dl.solve(make(sampling, steps=20))  # which also records a step, once for all
    tracemalloc.start()
    solution = dl.solve(problem)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 1.0 <= peak / system.memory(structure(problem)) <= 1.3
    assert solution.stats["method"] == "dense"


def test_progress_counts_every_step_of_every_batch():
    calls = []
    dl.solve([make(steps=4), make(steps=5)], progress=lambda done, total: calls.append((done, total)))
    assert calls == [(done, 9) for done in range(1, 10)]


def test_only_problems_can_be_solved():
    with pytest.raises(ValueError, match=r"problem\[1\] must be a Problem, got 3"):
        dl.solve([make(), 3])
    assert dl.solve([]) == []
