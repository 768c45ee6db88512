"""The comparison of theory with experiment: its test, its verdicts, and the warning near the edge of stability."""

import json
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import deeplinear as dl
from deeplinear._comparison.compare import compare
from deeplinear._comparison.joint_test import LEVEL, SignFlipTest
from deeplinear._comparison.observables import observables_of, sampled_times
from deeplinear._comparison.sign_flip import _statistic, flip_signs, rank
from deeplinear._comparison.verdict import Verdict
from deeplinear._core.dataset import LOSSES
from deeplinear._experiment.ensemble import CORRELATIONS
from deeplinear._plots.loss import plot_comparison
from factories import maker

make = maker("lr", depth=2, width=1.0, noise=0.3, sampling=dl.FullBatch(2.0), lr=0.05, steps=12)


@cache
def pair(dim=120, seeds=16):
    problem = make()
    return dl.solve(problem), dl.simulate(problem, dim, seeds)


def losses_only(experiment, test_loss, train_loss):
    """An ensemble with given losses, shape (seed, T), and nothing else."""
    return replace(
        experiment,
        seeds=tuple(range(len(test_loss))),
        test_loss=test_loss,
        train_loss=train_loss,
        **dict.fromkeys(CORRELATIONS),
        diverged_at=np.full(len(test_loss), -1),
    )


def some_seeds(experiment, index):
    observables = {name: getattr(experiment, name)[index] for name in ("test_loss", "train_loss", *CORRELATIONS)}
    seeds = tuple(experiment.seeds[i] for i in index)
    return replace(experiment, seeds=seeds, diverged_at=experiment.diverged_at[index], **observables)


def test_losses_of_different_averages_are_not_compared():
    problem = make()
    experiment = dl.simulate(problem, 20, 2, averages=[dl.EMA(0.5)], record="losses")
    compare(dl.solve(problem, averages=[dl.EMA(0.5)]), experiment)
    with pytest.raises(ValueError, match=r"must have the same averages, got \(EMA\(decay=0.8\),\) in theory and \(EMA"):
        compare(dl.solve(problem, averages=[dl.EMA(0.8)]), experiment)


def p_value(theory, experiment):
    """That of ``compare``, without what else it finds out."""
    return SignFlipTest.of(list(observables_of(theory, experiment, theory.problem.steps))).overall


def lognormal(rng, seeds, sigma=0.2):
    """Correlated curves with mean as predicted and a coefficient of variation of 0.2, and the theory."""
    theory, experiment = pair()
    steps = theory.problem.steps
    common = rng.standard_normal((seeds, 1))
    noise = 0.7 * common + math.sqrt(1 - 0.7**2) * rng.standard_normal((seeds, 2 * steps))
    factor = np.exp(sigma * noise - sigma**2 / 2)
    drawn = losses_only(experiment, theory.test_loss * factor[:, :steps], theory.train_loss * factor[:, steps:])
    return theory, drawn


def assert_at_level(rejections, count, level):
    """Rejections lie within the central 99.9 % of what a test of this level gives."""
    low, high = stats.binom.ppf([0.0005, 0.9995], count, level)
    assert low <= rejections <= high, f"{rejections} of {count} rejected, not {low} to {high}"


# --- the test ------------------------------------------------------------------------------------------------


def test_statistic_is_halls():
    deviations = np.random.default_rng(0).lognormal(size=(9, 4)) - 1.3
    scaled = deviations / np.sqrt(np.mean(deviations**2, axis=0))
    t = scaled.mean(axis=0) / scaled.std(axis=0)
    g = stats.skew(deviations)
    expected = np.abs(((1 + g * t / 3) ** 3 - 1) / g + g / (6 * 9))
    assert_allclose(_statistic(np.ones((1, 9)), scaled)[0], expected, rtol=1e-12)


def test_p_value_is_uniform_over_all_signs():
    """Among the equally likely sign patterns of one data set, each rank comes exactly once: the test is exact."""
    deviations = np.random.default_rng(1).standard_normal((6, 3)) + 0.2
    patterns = 1 - 2 * ((np.arange(32)[:, None] >> np.arange(5)) & 1)
    p_values = [rank(flip_signs([np.vstack([deviations[:1], p[:, None] * deviations[1:]])])[:, 0]) for p in patterns]
    assert_allclose(sorted(p_values), np.arange(1, 33) / 32)


def test_scale_and_repetition_of_columns_do_not_matter():
    deviations = np.random.default_rng(2).standard_normal((14, 3)) + 0.3
    once, again = flip_signs([deviations, np.hstack([1e-8 * deviations, -1e200 * deviations])]).T
    assert_allclose(once, again)


@pytest.mark.parametrize("seeds", [10, pytest.param(16, marks=pytest.mark.slow)])
def test_calibration_on_lognormal_curves(seeds):
    rng, count = np.random.default_rng(3), 300
    p_values = [p_value(*lognormal(rng, seeds)) for _ in range(count)]
    assert_at_level(np.sum(np.array(p_values) <= 0.05), count, 0.05)
    assert_at_level(np.sum(np.array(p_values) < LEVEL), count, LEVEL)


@pytest.mark.parametrize("count", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_calibration_on_networks_and_all_observables(count):
    """Ensembles of 10 networks against the mean over all of them, so that the null is true at their own D."""
    problem = make(steps=6)
    pool = dl.simulate(problem, dim=80, seeds=10 * count)
    means = {name: getattr(pool, name).mean(axis=0) for name in CORRELATIONS}
    truth = replace(
        dl.solve(problem),
        test_loss=pool.mean("test_loss"),
        train_loss=pool.mean("train_loss"),
        _matrices=means,
    )
    members = np.random.default_rng(4).permutation(10 * count).reshape(count, 10)
    p_values = np.array([p_value(truth, some_seeds(pool, index)) for index in members])
    assert_at_level(np.sum(p_values <= 0.05), count, 0.05)
    assert_at_level(np.sum(p_values < LEVEL), count, LEVEL)


def test_long_runs_are_tested_at_a_bounded_number_of_times():
    assert list(sampled_times(5)) == [0, 1, 2, 3, 4]
    times = sampled_times(10_000)
    assert len(times) <= 128
    assert {0, 1, 2, 9999} <= set(times)


# --- what the test could have seen ---------------------------------------------------------------------------


def off(theory, factor):
    return replace(theory, test_loss=theory.test_loss * factor)


def test_stated_deviation_is_the_least_that_these_networks_reject():
    """The very statement: with this deviation, up and down, the verdict is another, and with less on one side not."""
    theory, experiment = pair()
    comparison = compare(theory, experiment)
    least = comparison["test_loss"].detectable
    assert comparison["test_loss"].max_detectable == least.max()
    errors = least * theory.test_loss / comparison["test_loss"].standard_error
    assert_allclose(errors, np.full(12, errors[0]))  # standard errors: what it takes at 1 %, or more with few seeds
    assert errors[0] > 2.5
    for side in (-1, 1):
        assert p_value(off(theory, 1 + side * least), experiment) < LEVEL
        assert p_value(off(theory, 1 + side * least.max()), experiment) < LEVEL
    assert any(p_value(off(theory, 1 + side * 0.99 * least), experiment) >= LEVEL for side in (-1, 1))
    assert f"an error of {100 * least.max():.2g} % or more in the test loss or an error of " in comparison.explanation
    assert f"{100 * least.max():.3g} %" in str(comparison)
    assert comparison.to_dict()["observables"][0]["max_detectable"] == least.max()


@pytest.mark.parametrize("count", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_stated_deviation_is_noticed_in_fresh_networks_as_often_as_said(count):
    """Three times in four, were the statistic Gaussian: z + abs(z') > 0, with z' of the networks that stated it.

    Half of that is noticed rarely and twice of it nearly always. Bounds were fixed before: 0.6 to 0.9, below 0.3 and
    above 0.97, each with the central 99.9 % of so many pairs of ensembles.
    """
    rng = np.random.default_rng(5)
    noticed = dict.fromkeys((0.5, 1.0, 2.0), 0)
    for _ in range(count):
        theory, drawn = lognormal(rng, 10)
        test = SignFlipTest.of(list(observables_of(theory, drawn, theory.problem.steps)))
        if test.overall < LEVEL:
            continue
        least = test.noticed()[0] * drawn.standard_error("test_loss") / theory.test_loss
        side = rng.choice((-1, 1))
        _, fresh = lognormal(rng, 10)
        for size in noticed:
            noticed[size] += p_value(off(theory, 1 + side * size * least), fresh) < LEVEL
    low, high = stats.binom.ppf([0.0005, 0.9995], count, [0.6, 0.9])
    assert low <= noticed[1.0] <= high
    assert noticed[0.5] <= stats.binom.ppf(0.9995, count, 0.3)
    assert noticed[2.0] >= stats.binom.ppf(0.0005, count, 0.97)


def test_more_networks_notice_less():
    theory, experiment = pair(40, 64)
    few, many = (compare(theory, some_seeds(experiment, np.arange(count)))["test_loss"] for count in (8, 64))
    assert many.max_detectable < few.max_detectable / 2


@pytest.mark.parametrize("count", [2, 7])
def test_nothing_is_stated_where_the_test_cannot_reject(count):
    theory, experiment = pair()
    loss = compare(theory, some_seeds(experiment, np.arange(count)))["test_loss"]
    assert np.isnan(loss.detectable).all()
    assert math.isnan(loss.max_detectable)


def test_networks_that_would_notice_nothing_decide_nothing():
    """The statement itself: even of a theory of twice both losses these networks would say nothing."""
    theory, drawn = lognormal(np.random.default_rng(6), 8, sigma=1.5)
    comparison = compare(theory, drawn)
    assert comparison.p_value >= LEVEL
    assert comparison.verdict is Verdict.UNDECIDED
    assert "not even an error of 100 % in the losses would have been detected; use more seeds" in comparison.explanation
    for name in ("test_loss", "train_loss"):
        assert p_value(replace(theory, **{name: 2 * getattr(theory, name)}), drawn) >= LEVEL
    theory, many = lognormal(np.random.default_rng(6), 400, sigma=1.5)
    assert compare(theory, many).verdict is Verdict.AGREES


def test_a_hundred_per_cent_throughout_counts_where_some_step_would_need_more():
    """One step at which a loss scatters by more than itself does not hide all others."""
    theory, drawn = lognormal(np.random.default_rng(7), 10, sigma=0.2)
    factor = np.ones(12)
    factor[3] = 20.0
    wide = {name: (1 + factor * (getattr(drawn, name) / getattr(theory, name) - 1)) for name in LOSSES}
    noisy = replace(drawn, **{name: getattr(theory, name) * each for name, each in wide.items()})
    comparison = compare(theory, noisy)
    assert min(comparison[name].max_detectable for name in LOSSES) > 1.0
    assert p_value(off(theory, 2.0), noisy) < LEVEL
    assert "not even an error of 100 %" not in comparison.explanation
    assert comparison.verdict is Verdict.UNDECIDED, "since nothing agrees beside a mean that is off by 176 %"
    assert "at some steps they scatter so much that their mean is far off by chance" in comparison.explanation
    drawn = {name: getattr(noisy, name) for name in LOSSES}
    near = replace(noisy, **{name: each - each.mean(axis=0) + getattr(theory, name) for name, each in drawn.items()})
    comparison = compare(theory, near)
    assert comparison.verdict is Verdict.AGREES
    assert "an error of 100 % in the losses throughout would have been detected" in comparison.explanation


def test_steps_without_scatter_do_not_hide_the_others():
    """A centered network has the loss 1 + noise^2 at the start, where nothing scatters and anything would be seen."""
    problem = make(centered=True)
    loss = compare(dl.solve(problem), dl.simulate(problem, dim=60, seeds=10))["test_loss"]
    assert loss.detectable[0] == 0.0
    assert 0.01 < loss.detectable[-1] == loss.max_detectable < 1.0


# --- verdicts ------------------------------------------------------------------------------------------------


def test_theory_and_networks_agree():
    theory, experiment = pair()
    comparison = compare(theory, experiment)
    assert comparison.verdict is Verdict.AGREES
    assert comparison.p_value >= LEVEL
    assert not comparison.near_edge
    assert (comparison.seeds, comparison.dim, comparison.steps) == (16, 120, 12)
    layers = [f"feature_correlation[{i}]" for i in range(3)] + [f"gradient_correlation[{i}]" for i in (1, 2)]
    expected = ["test_loss", "train_loss", *layers, "error_correlation", "residual_correlation"]
    assert [each.label for each in comparison.observables] == expected


def test_curves_are_what_they_say():
    theory, experiment = pair()
    comparison = compare(theory, experiment)
    loss = comparison["test_loss"]
    assert_allclose(loss.mean, experiment.mean("test_loss"))
    assert_allclose(loss.standard_error, experiment.standard_error("test_loss"))
    assert_allclose(loss.z, (loss.mean - theory.test_loss) / loss.standard_error)
    assert_allclose(loss.max_relative_error, np.max(np.abs(loss.mean / theory.test_loss - 1)))
    gradients = comparison["gradient_correlation[1]"]
    assert_allclose(gradients.theory, np.diagonal(theory.gradient_correlation[0]))
    assert_allclose(gradients.standard_error, np.diagonal(experiment.standard_error("gradient_correlation")[0]))
    with pytest.raises(KeyError, match=r"'loss' is not among test_loss, train_loss"):
        comparison["loss"]


@pytest.mark.parametrize("sampling", [dl.OnlineSGD(1.0), dl.Population(), dl.MultiPassSGD(2.0, 1.0)])
def test_agreement_with_several_outputs(sampling):
    problem = make(sampling=sampling, gram=[[1.0, 0.3], [0.3, 0.5]], centered=True, steps=8)
    theory, experiment = dl.solve(problem), dl.simulate(problem, dim=100, seeds=12)
    comparison = compare(theory, experiment)
    assert comparison.verdict is Verdict.AGREES
    trace = np.diagonal(theory.error_correlation).reshape(8, 2).sum(axis=1)
    assert_allclose(comparison["error_correlation"].theory, trace)
    assert comparison["test_loss"].z[0] == 0.0, "the initial loss does not scatter"


def test_wrong_richness_is_rejected():
    _, experiment = pair(120, 32)
    wrong = replace(dl.solve(make(richness=1.2)), problem=experiment.problem)
    comparison = compare(wrong, experiment)
    assert comparison.verdict is Verdict.DISAGREES
    assert comparison["test_loss"].p_value < LEVEL
    assert not comparison.near_edge, "which depends on the problem, not on what the theory made of it"
    assert "beyond what their size explains" in comparison.explanation


def test_advice_where_sizes_are_counts_is_not_a_larger_dim():
    data = dl.Spectrum(np.arange(1.0, 41.0) ** -1.5, np.ones(40), noise=0.1)
    problem = replace(make(width=60.0, sampling=dl.FullBatch(100.0)), data=data)
    experiment = dl.simulate(problem, seeds=16)
    wrong = replace(dl.solve(replace(problem, network=dl.MLP(2, 60.0, richness=1.5))), problem=problem)
    comparison = compare(wrong, experiment)
    assert comparison.verdict is Verdict.DISAGREES
    assert "dim" not in comparison.explanation
    edge = replace(problem, optimizer=dl.GradientDescent(0.5))
    comparison = compare(dl.solve(edge), dl.simulate(edge, seeds=16))
    assert "at a lower learning rate or a larger width, samples or batch" in comparison.explanation


@pytest.mark.parametrize(("name", "at"), [("gradient_correlation", (0, 0)), ("feature_correlation", (0, -1))])
def test_wrong_correlation_is_rejected_though_the_losses_agree(name, at):
    theory, experiment = pair()
    matrix = getattr(theory, name).copy()
    matrix[-1][at] *= 3.0
    matrix[-1][at[::-1]] = matrix[-1][at]
    wrong = replace(theory, _matrices={name: matrix})
    assert compare(wrong, experiment, tolerance=0.0).verdict is Verdict.DISAGREES
    comparison = compare(wrong, experiment, tolerance=0.5)
    assert comparison.verdict is Verdict.DISAGREES, "whatever the tolerance: size does not explain it"
    rejected = [each.label for each in comparison.observables if each.p_value < LEVEL]
    assert rejected == [f"{name}[2]"]


def test_few_seeds_leave_it_undecided():
    theory, experiment = pair()
    for count in (2, 5, 7):
        comparison = compare(theory, some_seeds(experiment, np.arange(count)))
        assert comparison.verdict is Verdict.UNDECIDED
        assert "to agree takes 8 networks or more" in comparison.explanation
        assert comparison.p_value >= LEVEL
    assert compare(theory, some_seeds(experiment, np.arange(8))).verdict is Verdict.AGREES


def test_what_does_not_scatter_must_match_even_with_few_seeds():
    problem = make(centered=True)
    wrong = replace(dl.solve(make(centered=True, noise=0.5)), problem=problem)
    comparison = compare(wrong, dl.simulate(problem, dim=40, seeds=3))
    assert comparison.verdict is Verdict.DISAGREES
    assert comparison.p_value == 0.0
    assert comparison["test_loss"].z[0] == -math.inf
    assert comparison.to_dict()["observables"][0]["z"][0] is None


def test_rounding_errors_do_not_count():
    """Without noise the loss falls to zero; what is left in theory and networks is rounding."""
    problem = make(lr=0.2, steps=150, depth=1, sampling=dl.Population(), noise=0.0, centered=True)
    comparison = compare(dl.solve(problem), dl.simulate(problem, dim=40, seeds=10))
    assert comparison["test_loss"].theory[-1] < 1e-12
    assert comparison.verdict is Verdict.AGREES
    assert comparison["test_loss"].relative_error[-1] == 0.0


# --- divergence ----------------------------------------------------------------------------------------------


def diverging(lr=0.8):
    return make(lr=lr, sampling=dl.Population(), centered=True)


def test_both_diverge():
    problem = diverging()
    comparison = compare(dl.solve(problem), dl.simulate(problem, dim=60, seeds=4))
    assert comparison.verdict is Verdict.AGREES
    assert "4 of 4 networks do" in comparison.explanation
    assert "of 128 such networks drawn 128 diverge; there is nothing more to compare" in comparison.explanation
    assert comparison.near_edge
    assert 1 <= comparison.steps < problem.steps
    assert all(np.isfinite(each.mean).all() for each in comparison.observables)


def test_only_one_diverges():
    wild, tame = diverging(), diverging(lr=0.05)
    solved = replace(dl.solve(tame), problem=wild)
    comparison = compare(solved, dl.simulate(wild, dim=60, seeds=9))
    assert comparison.verdict is Verdict.DISAGREES
    assert "theory does not diverge, 9 of 9 networks do at steps" in comparison.explanation

    trained = replace(dl.simulate(tame, dim=60, seeds=9), problem=wild)
    comparison = compare(dl.solve(wild), trained)
    assert comparison.verdict is Verdict.DISAGREES
    assert "0 of 9 networks do" in comparison.explanation


def test_divergence_that_the_run_is_too_short_to_show_is_no_disagreement():
    """Theory diverges at the last step, seeds perhaps one step later: the steps before decide."""
    problem = make()
    theory, experiment = pair()
    cut = replace(theory, problem=problem, status=dl.Status(diverged_at=11))
    comparison = compare(cut, experiment)
    assert comparison.steps == 11
    assert comparison.verdict is Verdict.AGREES
    assert "before that" in comparison.explanation


# --- the edge of stability -----------------------------------------------------------------------------------


def test_deviation_near_the_edge_is_expected_and_decides_nothing():
    problem = make(lr=0.1, steps=25, depth=3, width=0.5)
    comparison = compare(dl.solve(problem), dl.simulate(problem, dim=80, seeds=12))
    assert comparison.near_edge
    assert comparison.p_value < LEVEL
    assert comparison.verdict is Verdict.UNDECIDED
    assert "but their size explains it; at dim 80 the mean is expected to deviate" in comparison.explanation
    assert "should agree at a lower learning rate or a larger dim" in comparison.explanation


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"lr": 0.1}, False),
        ({"lr": 0.2}, True),
        ({"lr": 0.05, "momentum": 0.8}, False),
        ({"lr": 0.06, "depth": 3, "sampling": dl.OnlineSGD(1.0), "centered": True}, False),
        ({"lr": 0.14, "depth": 3, "sampling": dl.OnlineSGD(1.0), "centered": True}, True),
        ({"lr": 0.1, "sampling": dl.Population(), "centered": True}, False),
        ({"lr": 0.2, "sampling": dl.Population(), "centered": True}, True),
        ({"lr": 0.05, "weight_decay": 1.0}, False),
        ({"lr": lambda step: min(step / 300, 0.1)}, False),
    ],
)
def test_edge_of_stability(options, expected):
    """Where networks of dimension 50 to 400 were seen to differ from theory, and where not."""
    problem = make(steps=40, **options)
    comparison = compare(dl.solve(problem), dl.simulate(problem, dim=100, seeds=2, record="losses"))
    assert comparison.near_edge is expected


# --- input and output ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"richness": 1.2}, r"network\.richness = 1\.0 in theory and 1\.2 in experiment"),
        ({"lr": 0.06}, r"optimizer\.lr = 0\.05 in theory and 0\.06"),
        ({"steps": 13}, "steps = 12 in theory and 13"),
        ({"sampling": dl.OnlineSGD(2.0)}, r"sampling\.type = 'FullBatch' in theory and 'OnlineSGD'"),
        ({"gram": [[1.0]]}, r"data\.target_gram = None in theory and \[\[1\.0\]\]"),
    ],
)
def test_problems_must_be_the_same(change, message):
    with pytest.raises(ValueError, match=message):
        compare(dl.solve(make()), dl.simulate(make(**change), dim=10, seeds=2))


def test_a_learning_rate_function_equals_its_values():
    function, values = make(lr=lambda step: 0.1 / (1 + step)), make(lr=tuple(0.1 / (1 + t) for t in range(12)))
    assert compare(dl.solve(function), dl.simulate(values, dim=20, seeds=2)).steps == 12


def test_bad_arguments():
    theory, experiment = pair()
    with pytest.raises(ValueError, match="theory must be a Solution"):
        compare(experiment, theory)
    with pytest.raises(ValueError, match="experiment must be an Ensemble"):
        compare(theory, theory)
    with pytest.raises(ValueError, match="tolerance must be a finite number, zero or above, got -1"):
        compare(theory, experiment, tolerance=-1)


@pytest.mark.parametrize("seeds", [1, 2, 9])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("record", ["all", "losses"])
def test_smallest_cases(seeds, steps, record):
    still = make(steps=steps, centered=True, noise=0.0, lr=[0.0] * steps)  # whose losses do not scatter
    for problem in (make(steps=steps), still):
        comparison = compare(dl.solve(problem), dl.simulate(problem, dim=8, seeds=seeds, record=record))
        # Correlations of nine such networks scatter so much that together with them nothing would be noticed.
        agrees = seeds == 9 and (problem is still or record == "losses")
        assert comparison.verdict is (Verdict.AGREES if agrees else Verdict.UNDECIDED)
        assert len(comparison.observables) == (9 if record == "all" else 2)
        json.dumps(comparison.to_dict(), allow_nan=False)
        assert str(comparison)


def test_dictionary_and_summary():
    comparison = compare(*pair())
    document = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    assert document["verdict"] == "agrees" == str(comparison.verdict)
    assert document["p_value"] == comparison.p_value
    layers = [(each["name"], each["layer"]) for each in document["observables"]]
    assert layers[3] == ("feature_correlation", 1)
    assert len(document["observables"][0]["theory"]) == 12
    lines = str(comparison).splitlines()
    assert lines[0].startswith("agrees: no deviation beyond the scatter of the networks; an error of ")
    assert lines[0].endswith("in the train loss throughout would have been detected")
    assert lines[1].startswith("seeds: 16, dim: 120, inputs: gaussian, steps: 12; p = ")
    assert len(lines) == 3 + len(comparison.observables)


# --- long runs -----------------------------------------------------------------------------------------------


def test_theory_by_panels_is_compared_like_theory_at_every_step():
    """Both theories agree to 1e-6, so that scores differ by that times mean / standard error, well below 1e-3."""
    problem = make(lr=0.02, steps=200, depth=1)
    experiment = dl.simulate(problem, dim=16, seeds=4)
    theory = dl.solve(problem, method="panels")
    panels, dense = (compare(each, experiment) for each in (theory, dl.solve(problem, method="dense")))
    for name in ("test_loss", "train_loss"):
        assert_allclose(panels[name].z, dense[name].z, atol=1e-3)
        assert len(panels[name].times) == 200
    for label in ("feature_correlation[1]", "gradient_correlation[1]", "residual_correlation"):
        few, every = panels[label], dense[label]
        assert 32 < len(few.times) < 60
        assert (few.times[0], few.times[-1]) == (0, 199)
        assert_allclose(few.z, every.z[few.times], atol=1e-3)
    assert panels.verdict is dense.verdict
    assert panels.near_edge == dense.near_edge
    figure = plot_comparison(theory, experiment, panels)
    scores, expected = (axes.lines[-1].get_xydata() for axes in (figure.axes[1], figure.axes[2]))
    assert len(scores) == 200
    assert len(expected) == len(theory.times)


def test_theory_by_coarse_steps_is_compared_by_its_losses():
    problem = make(lr=0.001, steps=1010, depth=1, sampling=dl.OnlineSGD(1.0))
    theory, experiment = dl.solve(problem), dl.simulate(problem, dim=10, seeds=2)
    assert theory.stats["method"] == "coarse"
    comparison = compare(theory, experiment)
    assert [each.label for each in comparison.observables] == ["test_loss", "train_loss"]
    assert_allclose(comparison["test_loss"].theory, theory.at(np.arange(1010)).test_loss)
    assert len(plot_comparison(theory, experiment, comparison).axes) == 2


@pytest.mark.parametrize(
    ("rule", "modes", "said"),
    [
        (dl.NormalizedDescent(0.1, per="global"), 40, True),
        (dl.GradientDescent(0.1), 40, False),
        (dl.NormalizedDescent(0.1, per="global"), None, False),
    ],
    ids=["normalised", "plain", "many directions"],
)
def test_sizes_of_gradients_that_scatter_are_named(rule, modes, said):
    """On a power law, but not of descent that takes gradients as they are, nor with sixty equal directions."""
    few = dl.Spectrum.power_law(1.5, 0.8, modes, noise=0.1) if modes else dl.Spectrum([1.0], [0.02], [60.0], noise=0.1)
    problem = dl.Problem(dl.MLP(2, 64, centered=True), few, dl.OnlineSGD(64), rule, steps=10)
    theory, networks = dl.solve(problem), dl.simulate(problem, seeds=10, record="losses")
    off = replace(networks, test_loss=1.5 * networks.test_loss)  # whatever the reason
    found = compare(theory, off)
    assert found.verdict is Verdict.DISAGREES
    assert ("about 4.4 directions" in found.explanation) == said
    assert ("varies at any width" in found.explanation) == said


def test_curvature_that_networks_measured_is_compared():
    """D = 10^5, 12 networks: they agree with theory, and would not with that of another rate."""
    problem = dl.Problem(
        dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=10
    )
    wanted = dl.Curvature([0, 9], 4)
    networks = dl.simulate(problem, 10**5, 12, method="reduced", record="losses", curvature=wanted)
    found = dl.compare(dl.solve(problem), networks)
    assert found.verdict == dl.Verdict.AGREES
    assert found["ritz_values[0]"].z.shape == (2,)
    wrong = replace(networks, ritz_values=1.01 * networks.ritz_values)
    assert dl.compare(dl.solve(problem), wrong).p_value < 0.01


def test_singular_values_that_networks_measured_are_compared():
    """D = 300, 12 networks, two outputs: values that have left the bulk, at the times at which they have."""
    problem = dl.Problem(
        dl.MLP(depth=2, width=1.0, richness=8.0, init_scale=[0.5, 0.8, 1.0]), dl.Isotropic(0.1, np.diag([1.0, 0.3])),
        dl.Population(), dl.GradientDescent(0.03), steps=8,
    )  # fmt: skip
    wanted = dl.Curvature([0, 5, 7], 2, singular_values=2)
    networks = dl.simulate(problem, 300, 12, record="losses", curvature=wanted)
    found = dl.compare(dl.solve(problem), networks)
    assert found.verdict == dl.Verdict.AGREES
    assert found["singular_values[0]"].times.tolist() == [5, 7]
    assert found["singular_values_2[0]"].times.tolist() == [7]
    wrong = replace(networks, singular_values=1.01 * networks.singular_values)
    assert dl.compare(dl.solve(problem), wrong)["singular_values[0]"].p_value < 0.01
