"""Fits: known parameters are found within their errors, derivatives are right, and bad requests are refused."""

from functools import cache

import numpy as np
import pytest
from scipy import stats

import deeplinear as dl
from deeplinear._fit.parameters import Parameter, losses_and_slopes
from factories import maker

make = maker("lr", depth=1, width=1.0, richness=1.5, noise=0.4, sampling=dl.FullBatch(2.0), lr=0.1, steps=21)
TRUE = {"richness": 1.5, "noise": 0.4}
REPEATS, NETWORKS = 20, 8


@cache
def networks() -> dl.Ensemble:
    return dl.simulate(make(), 2000, REPEATS * NETWORKS, method="reduced", record="losses")


def some(repeat: int, count: int = NETWORKS) -> dl.Measured:
    """Curves of networks that no other repeat has."""
    chosen = slice(repeat * NETWORKS, repeat * NETWORKS + count)
    return dl.measured(test_loss=networks().test_loss[chosen], train_loss=networks().train_loss[chosen])


def test_intervals_hold_as_often_as_they_say() -> None:
    """Of 20 intervals of 95 %, 16 or more hold (fewer in 3 of 1000 cases), and errors are as large as the spread."""
    found = [dl.fit(some(repeat), make(richness=1.0, noise=0.2), list(TRUE)) for repeat in range(REPEATS)]
    for name, true in TRUE.items():
        assert sum(each.low[name] < true < each.high[name] for each in found) >= 16
        spread = np.std([each.values[name] for each in found], ddof=1)
        assert 0.6 < np.mean([each.errors[name] for each in found]) / spread < 1.6  # 4 errors of a spread from 20
    assert 0.3 < np.mean([each.chi2_per_dof for each in found]) < 3.0
    assert all(each.converged for each in found)


def test_theory_is_fitted_exactly_from_a_wrong_start_with_gaps() -> None:
    theory = dl.solve(make())
    rows = np.stack([theory.test_loss, theory.train_loss])[:, ::3]
    curves = dl.measured(test_loss=rows[0], train_loss=np.where(np.arange(7) == 2, np.nan, rows[1]), steps=3)
    found = dl.fit(curves, make(richness=0.5, noise=0.0, lr=0.05), ["richness", "noise", "lr"])
    for name, true in (TRUE | {"lr": 0.1}).items():
        assert found.values[name] == pytest.approx(true, rel=1e-6)
    assert found.chi2 < 1e-8
    assert found.problem.optimizer.lr == found.values["lr"]


def test_several_runs_share_their_parameters_and_differ_in_the_rest() -> None:
    truths = [make(width=width, lr=lr) for width, lr in ((0.5, 0.1), (1.0, 0.05), (2.0, 0.1))]
    curves = [
        dl.simulate(each, 2000, range(8 * run, 8 * run + 8), method="reduced", record="losses")
        for run, each in enumerate(truths)
    ]
    guesses = [each.replace(richness=1.0, noise=0.1) for each in truths]
    found = dl.fit(curves, guesses, ["richness", "noise", "width"])
    assert found.factors == ("width",)
    for name, true in (TRUE | {"width": 1.0}).items():
        assert abs(found.values[name] - true) < 4 * found.errors[name]
    assert [each.network.width for each in found.problems] == pytest.approx(
        [found.values["width"] * each.network.width for each in truths]
    )
    alone, together = (dl.fit(*given, ["richness", "noise"]) for given in ((curves[0], guesses[0]), (curves, guesses)))
    assert together.errors["richness"] < alone.errors["richness"]
    assert "width x" in str(found)
    figure = found.plot()
    assert len(figure.axes[0].get_lines()) == 6


@pytest.mark.parametrize(
    ("problem", "names"),
    [
        (make(), ["richness", "noise", "lr", "width", "samples"]),
        (make(depth=2, width=[1.0, 2.0]), ["width"]),
        (make(lr=[0.1] * 10 + [0.05] * 11), ["lr"]),
        (make(sampling=dl.OnlineSGD(0.5)), ["batch", "weight_decay"]),
        (
            dl.Problem(
                dl.MLP(1, 32.0), dl.Spectrum.power_law(1.5, 0.5), dl.FullBatch(64.0), dl.GradientDescent(0.1), 10
            ),
            ["capacity", "source", "richness"],
        ),
    ],
    ids=["numbers", "widths", "schedule", "batches", "power law"],
)
def test_slopes_are_those_of_differences(problem: dl.Problem, names: list[str]) -> None:
    free = [Parameter.of([problem], name) for name in names]
    varied = np.array([each.varied_start for each in free])

    def at(numbers):
        values = np.array([each.value(number) for each, number in zip(free, numbers, strict=True)])
        changed = problem
        for each, value in zip(free, values, strict=True):
            changed = each.put(changed, value)
        return losses_and_slopes([changed], free, values)[0]

    _, *slopes = at(varied)
    for index, slope in enumerate(slopes):
        step = 1e-4 * np.eye(len(free))[index]
        low, high = (at(varied + side * step)[0] for side in (-1, 1))
        expected = (high.test_loss - low.test_loss) / 2e-4
        np.testing.assert_allclose(slope.test_loss, expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max())


def test_exponents_of_a_power_law_are_found() -> None:
    problem = dl.Problem(
        dl.MLP(1, 32.0), dl.Spectrum.power_law(1.5, 0.6), dl.FullBatch(64.0), dl.GradientDescent(0.2), 30
    )
    theory = dl.solve(problem)
    found = dl.fit({"test_loss": theory.test_loss}, problem.replace(capacity=1.45, source=0.65), ["capacity", "source"])
    assert found.values == pytest.approx({"capacity": 1.5, "source": 0.6}, rel=1e-3)


@pytest.mark.slow
def test_long_runs_are_fitted_by_panels() -> None:
    problem = make(steps=1100, lr=0.02)
    theory = dl.solve(problem)
    assert theory.solver.name == "panels"
    steps = np.unique(np.geomspace(1, 1099, 40).astype(int))
    curve = dl.measured(test_loss=theory.at(steps).test_loss.values, steps=steps)
    found = dl.fit(curve, problem.replace(noise=0.38), "noise")
    assert found.values == pytest.approx({"noise": 0.4}, rel=1e-4)


def test_one_network_has_the_errors_of_drawn_ones() -> None:
    unknown = dl.fit(some(0, 1), make(noise=0.2), "noise")
    assert np.isnan(unknown.errors["noise"])
    assert "errors are not known: provide at least three networks, or their dim" in str(unknown)
    known = dl.fit(some(0, 1), make(noise=0.2), "noise", dim=2000)
    many = dl.fit(some(0), make(noise=0.2), "noise")
    ratio = known.errors["noise"] / many.errors["noise"]
    assert ratio == pytest.approx(np.sqrt(NETWORKS), rel=0.6)  # an error from 8 networks is known to a quarter
    assert abs(known.values["noise"] - 0.4) < 4 * known.errors["noise"]


def test_drawn_networks_that_diverge_give_no_errors() -> None:
    """Two networks of three inputs do not diverge, but some of those drawn do; what is infinite leaked a warning."""
    found = dl.fit(dl.simulate(make(0.45), 3, 2, workers=1), make(0.45), "noise")
    assert np.isnan(found.errors["noise"])
    assert "errors are not known" in str(found)


def test_curves_of_nothing_are_fitted_by_anything() -> None:
    nothing = make(data=dl.Spectrum([1.0], [0.0], [1.0], True), sampling=dl.Population(), centered=True, steps=3)
    found = dl.fit(dl.simulate(nothing, 4, 2, workers=1), nothing, "lr")
    assert np.isnan(found.errors["lr"])


def test_losses_of_zero_are_fitted_without_a_warning() -> None:
    assert not dl.fit(np.zeros((3, 21)), make(), "noise").explained


def test_a_theory_that_does_not_explain_the_curves_says_so() -> None:
    found = dl.fit(some(0), make(depth=3, noise=0.2), "noise")
    assert found.chi2_per_dof > 10
    assert "disagree with theory" in str(found)


def test_what_theory_does_not_explain_leads_and_has_no_intervals() -> None:
    """However few the runs: of three, chi^2 of 120 "did not decide about theory"."""
    for count, dim in ((3, None), (3, 2000), (1, 2000), (8, None)):
        found = dl.fit(some(0, count), make(depth=3, noise=0.2), "noise", dim=dim)
        assert not found.explained
        first, _, row, *_ = str(found).splitlines()
        assert first == "theory does not explain these curves: the values come nearest, and have no intervals"
        assert row.endswith(" none")
        assert np.isnan([found.errors["noise"], found.low["noise"], found.high["noise"]]).all()
        right = dl.fit(some(0, count), make(noise=0.2), "noise", dim=dim)
        assert right.explained
        assert "theory does not explain" not in str(right)


def test_a_value_at_its_bound_has_no_interval() -> None:
    quiet = dl.simulate(make(noise=0.0), 2000, range(500, 508), method="reduced", record="losses")
    found = dl.fit(dl.measured(test_loss=0.97 * quiet.test_loss), make(noise=0.2), "noise")
    assert found.values["noise"] == pytest.approx(0.0, abs=1e-5)
    assert found.at_bounds == ("noise",)
    assert np.isnan(found.errors["noise"])
    assert found.explained == ("none: at its bound" in str(found))


@pytest.mark.parametrize("start", [0.001, 0.02, 0.5, 3.0])
def test_the_search_starts_again_where_it_ends_far_away(start) -> None:
    """From 0.5, where training diverges, it stopped at 0.4722 ± 9e-8, with chi^2 of 1e8."""
    found = dl.fit(some(2), make(lr=start), "lr")
    assert found.low["lr"] < 0.1 < found.high["lr"]
    assert found.chi2_per_dof < 4
    both = dl.fit(some(2), make(lr=start, richness=6.0), ["lr", "richness"])
    assert both.chi2_per_dof < 4


def tanh_networks(count: int, size: int, lr: float, steps: int) -> dl.Measured:
    """Losses of networks of two hidden layers with an activation, noise 0.3, and twice as many examples as inputs."""
    losses = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        target, weights, readout = rng.normal(size=size), rng.normal(size=(2, size, size)), rng.normal(size=size)
        inputs = rng.normal(size=(3 * size, size)) / np.sqrt(size)
        labels = inputs @ target + 0.3 * rng.normal(size=3 * size)
        x, y = inputs[: 2 * size], labels[: 2 * size]
        for _ in range(steps):
            first = np.tanh(inputs @ weights[0].T)
            second = np.tanh(first @ weights[1].T / np.sqrt(size))
            error = labels - second @ readout / np.sqrt(size)
            losses.append((np.mean(error[2 * size :] ** 2), np.mean(error[: 2 * size] ** 2)))
            pull = error[: 2 * size] / (2 * np.sqrt(size)) * np.sqrt(size)
            back = (1 - second[: 2 * size] ** 2) * np.outer(pull, readout) / np.sqrt(size)
            below = (1 - first[: 2 * size] ** 2) * (back @ weights[1])
            readout = readout + lr * second[: 2 * size].T @ pull / np.sqrt(size)
            weights[1] += lr * back.T @ first[: 2 * size] / np.sqrt(size)
            weights[0] += lr * below.T @ x / np.sqrt(size)
        assert y.shape == (2 * size,)
    test, train = np.moveaxis(np.reshape(losses, (count, steps, 2)), 2, 0)
    return dl.measured(test_loss=test, train_loss=train, dim=size)


def test_a_fit_that_absorbs_what_is_wrong_says_so() -> None:
    """Tanh networks "agreed" with three free fields, and a rate that was off fourfold, without another word."""
    curves = tanh_networks(8, 100, 0.02, 41)
    problem = dl.Problem(
        dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.02), steps=41
    )  # fmt: skip
    assert not dl.fit(curves, problem, ["lr", "noise"]).explained
    found = dl.fit(curves, problem, ["lr", "richness", "noise"])
    assert found.explained
    assert found.far["lr"] < 0.4
    assert f"lr is {found.far['lr']:.2g} times the value given: if that is known, do not set it free" in str(found)
    assert "with 3 free fields, networks of another kind (with an activation, say) may fit as well" in str(found)
    assert found.unnoticed["width"] > 2
    assert "these curves would not show if others were wrong: width (by a factor of " in str(found)
    assert dl.fit(some(0), make(noise=0.2), "noise").unnoticed.keys() <= {"width"}


def test_fields_that_take_the_place_of_each_other_are_not_determined() -> None:
    """What a lazy network learns does not depend on how lazy it is; a pseudo-inverse had an error of 0."""
    lazy = make(richness=1e-3, centered=True)
    curves = dl.simulate(lazy, 2000, range(300, 308), method="reduced", record="losses")
    found = dl.fit(curves, lazy.replace(richness=2e-3), ["richness", "noise"])
    assert "richness" in str(found)
    assert "not determined by these curves" in str(found)


def test_ranks_of_known_values_are_uniform() -> None:
    """Simulation-based calibration on 48 draws; ``benchmarks/fits.py`` has 500. Kolmogorov-Smirnov, p above 0.001."""
    rng, ranks = np.random.default_rng(8), []
    for draw in range(48):
        noise = float(rng.uniform(0.2, 0.6))
        first = 10**6 + 8 * draw
        trained = dl.simulate(
            make(noise=noise), 10**5, range(first, first + 8), method="reduced", record="losses", workers=1
        )
        found = dl.fit(trained, make(noise=0.4), "noise")
        ranks.append(stats.t.cdf((noise - found.values["noise"]) / found.errors["noise"], 7))
    assert stats.kstest(ranks, "uniform").pvalue > 0.001


def test_each_of_several_runs_has_its_own_verdict_by_number() -> None:
    """The second curve is that of another depth, which no noise explains; one run alone has no number."""
    other = dl.simulate(make(depth=3), 2000, 8, method="reduced", record="losses")
    found = dl.fit([some(0), other], [make(noise=0.2), make(noise=0.2)], "noise")
    runs = str(found).splitlines()[-2:]
    assert [line.split(": ")[0] for line in runs] == ["run 1", "run 2"]
    assert all("the curves of 8 networks" in line for line in runs)
    assert "disagree" in runs[1]
    assert "run 1" not in str(dl.fit(some(0), make(noise=0.2), "noise"))


def test_what_curves_do_not_determine_is_said() -> None:
    curve = dl.measured(train_loss=networks().train_loss[:8])
    found = dl.fit(curve, make(noise=0.4), ["richness", "lr", "width", "noise", "samples"])
    assert len(str(found).splitlines()) >= 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"free": "depth"}, "free must be among width, richness, noise, samples, lr, .* for this problem, got 'depth'"),
        ({"free": None, "curves": 0.5}, r"free must be one or more distinct names of fields, got None"),
        ({"free": 3}, r"free must be one or more distinct names of fields, got 3"),
        ({"free": [3]}, r"free must be one or more distinct names of fields, got \[3\]"),
        ({"free": "lr", "curves": 0.5}, "the curve has 1 values and theory has 21 steps"),
        ({"free": []}, r"free must be one or more distinct names of fields, got \[\]"),
        ({"free": ["lr", "lr"]}, "free must be one or more distinct names"),
        ({"free": "lr", "problem": [make(), make()]}, "curves must be a list of 2, one for each problem"),
        ({"free": "lr", "problem": 3}, "problem must be a Problem, or a list of them, got 3"),
        ({"free": "lr", "curves": np.ones(5)}, "the curve has 5 values and theory has 21 steps"),
        ({"free": "width", "problem": make(width="infinite")}, "free must be a field with a number, got width = 'inf"),
        ({"free": "clip"}, "free must be a field with a number, got clip = None"),
        ({"free": "lr", "loss": "all"}, "loss must be 'test' or 'train' or 'both', got 'all'"),
        ({"free": ["lr", "noise"], "curves": dl.measured([1.0, 0.9], steps=20)}, "fewer names than there are losses"),
    ],
)
def test_refusals(arguments, message) -> None:
    given = {"curves": np.ones(21), "problem": make()} | arguments
    with pytest.raises(ValueError, match=message):
        dl.fit(given.pop("curves"), given.pop("problem"), **given)


def test_networks_that_were_trained_for_longer_than_theory_are_refused() -> None:
    with pytest.raises(ValueError, match="the curve goes to step 20 and theory to 10: solve 21 steps"):
        dl.fit(networks(), make(steps=11), "noise")


def test_a_fit_draws_and_shows_itself() -> None:
    found = dl.fit(some(1), make(noise=0.2), "noise")
    assert len(found.plot().axes) == 2
    assert "noise 0.4" in found.plot().get_suptitle()
    assert "<pre>" in found._repr_html_()
