"""How the optimal learning rate moves with the size of a model."""

import math
import re

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._learning_rate import ladder, optimal_lr
from deeplinear._learning_rate.measured import _exponent
from deeplinear._planning.moves import find_jumps
from deeplinear._planning.transfer import transfer
from deeplinear._planning.verdict import CHEAP, STAYS, Evidence, Named, judge
from deeplinear._problem.edit import replace
from deeplinear._problem.rate import rate_of
from deeplinear._solvers.base import Unresolved
from deeplinear._theory.curves import curves
from factories import checkerboard, maker

make = maker("network", "sampling", network=dl.MLP(2, 1.0), noise=0.3, sampling=dl.OnlineSGD(0.5), lr=0.05, steps=15)


# --- exponents -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameterization", ["mup", "ntk"])
def test_one_step_of_online_sgd(parameterization):
    L, nu, batch = 3, 0.5, 0.2
    network = dl.MLP(L, nu, parameterization=parameterization, centered=True)
    problem = make(network, dl.OnlineSGD(batch), noise=0.0, steps=2)
    width_term = L * (L + 1) * (2 * L + 1) / (6 * nu)
    by_width = transfer(problem, "width", [nu])
    assert by_width.local_exponents[0] == pytest.approx(width_term / ((L + 1) ** 2 + width_term), rel=1e-5)
    by_batch = transfer(problem, "batch", [batch])
    assert by_batch.local_exponents[0] == pytest.approx(1 / (1 + batch), rel=1e-5)
    assert math.isnan(by_batch.exponent)


@pytest.mark.parametrize(
    ("over", "sampling"), [("width", dl.FullBatch(2.0)), ("samples", dl.FullBatch(2.0)), ("batch", dl.OnlineSGD(2.0))]
)
def test_local_exponents_are_those_of_nearby_optima(over, sampling):
    network = dl.MLP(2, 2.0, parameterization="ntk")
    problem, step = make(network, sampling), 0.01
    near = [optimal_lr(replace(problem, {over: 2.0 * math.exp(shift)})).lr for shift in (-step, step)]
    expected = math.log(near[1] / near[0]) / (2 * step)
    assert transfer(problem, over, [2.0]).local_exponents[0] == pytest.approx(expected, abs=2e-3)


# --- what is known of networks -------------------------------------------------------------------------------


def test_the_optimum_of_rich_networks_moves_with_width_in_ntk_and_stays_in_mup():
    def exponent(parameterization):
        network = dl.MLP(3, 1.0, richness=4.0, parameterization=parameterization)
        return transfer(make(network, dl.Population(), steps=30, noise=0.1), "width", [0.5, 2.0]).exponent

    assert exponent("ntk") == pytest.approx(0.6, abs=0.1)
    assert abs(exponent("mup")) < 0.15


@pytest.mark.slow
def test_the_optimum_moves_with_depth_unless_branches_are_scaled():
    def optima(depths, **branch):
        problem = make(dl.ResNet(2, 1.0, **branch), dl.Population(), steps=4)
        return transfer(problem, "depth", depths, lrs=[0.01])

    unscaled = optima([2, 4, 8], branch_scaling="none")
    assert unscaled.lr[0] > 30 * unscaled.lr[-1]
    assert np.isnan(unscaled.local_exponents).all()
    scaled = optima([8, 32, math.inf])
    distances = np.log(scaled.lr[:2] / scaled.lr[2])
    assert 0 < distances[0] < 0.5
    assert distances[1] / distances[0] == pytest.approx(8 / 32, abs=0.05)
    assert scaled.exponent == pytest.approx(math.log(scaled.lr[1] / scaled.lr[0], 4))  # without the limit


def test_wide_networks_tend_to_the_infinite_limit():
    found = transfer(make(sampling=dl.FullBatch(2.0)), "width", [4.0, 64.0, math.inf])
    assert abs(math.log(found.lr[1] / found.lr[2])) < 0.4 * abs(math.log(found.lr[0] / found.lr[2]))
    assert abs(found.local_exponents[1]) < 0.1
    assert math.isnan(found.local_exponents[2])


def test_longer_training_of_online_sgd_needs_lower_rates():
    found = transfer(make(), "steps", [20, 40])
    assert found.exponent < -0.2
    assert found.optima[1].horizon == 39
    assert found.lr[0] == pytest.approx(optimal_lr(make(steps=20)).lr, rel=1e-5)


def test_dimension_free_data():
    law = dl.Spectrum.power_law(2.0, 1.75)
    network = dl.MLP(2, 32.0, 0.4, parameterization="ntk")
    problem = dl.Problem(network, law, dl.OnlineSGD(32.0), dl.GradientDescent(0.1), 10)
    found = transfer(problem, "width", [16.0, 64.0])
    assert found.exponent == pytest.approx(found.local_exponents.mean(), abs=0.15)


# --- curves --------------------------------------------------------------------------------------------------


def test_curves_are_those_of_solve_and_enclose_the_optima():
    problem = make()
    found = transfer(problem, "width", [0.5, 2.0])
    assert found.loss.shape == (2, len(found.lrs))
    assert found.lrs[0] < found.lr.min() / 4
    assert found.lrs[-1] > 2 * found.lr.max()
    for width, row, optimum in zip(found.values, found.loss, found.optima, strict=True):
        expected = [dl.solve(replace(problem, {"width": width, "lr": lr})).test_loss[-1] for lr in found.lrs]
        np.testing.assert_allclose(row, expected, rtol=1e-12)
        assert optimum.loss <= row.min()


def test_given_rates_are_sorted_and_do_not_change_the_optima():
    found = transfer(make(), "batch", [0.5], lrs=[0.1, 0.01], objective="train")
    np.testing.assert_array_equal(found.lrs, [0.01, 0.1])
    assert found.optima[0] == optimal_lr(make(), objective="train", tolerance=1e-5)


def test_a_schedule_is_scaled_as_a_whole():
    constant, scheduled = (transfer(make(lr=lr), "width", [1.0], lrs=[0.1]) for lr in (0.05, [0.05] * 15))
    assert 0.05 * scheduled.lr[0] == pytest.approx(constant.lr[0], rel=1e-5)
    assert scheduled.local_exponents[0] == pytest.approx(constant.local_exponents[0], rel=1e-3)
    assert scheduled.loss[0, 0] == dl.solve(make(lr=[0.1 * 0.05] * 15)).test_loss[-1]


# --- experiment ----------------------------------------------------------------------------------------------


def test_networks_have_the_predicted_optima_and_regrets():
    problem = make(dl.MLP(1, 1.0), dl.OnlineSGD(0.5), steps=6)
    lrs = 0.05 * 2.0 ** np.arange(0, 3.1, 0.5)
    found = transfer(problem, "batch", [1.0, 0.25], lrs=lrs, experiment={"dim": 60, "seeds": 24, "workers": 2})
    measured = found.experiment
    assert measured.loss.shape == (2, len(lrs), 24)
    # Intervals of 95 %, twice as wide; corrections of order 1/D are to be expected beyond that.
    for name, predicted in (("lr", found.lr), ("regret", found.regret)):
        low, high = (getattr(measured, f"{name}_{end}") for end in ("low", "high"))
        assert (predicted >= low - (high - low)).all()
        assert (predicted <= high + (high - low)).all()
    assert (measured.lr_error < 0.1 * measured.lr).all()
    assert measured.exponent_low < found.exponent < measured.exponent_high
    assert measured.regret[1] == found.regret[1] == 0.0  # it is its own
    assert 0.03 < measured.regret_low[0] < measured.regret_high[0]
    assert (measured.diverged == 0).all()
    assert "measured" in str(found)
    dataset = found.to_xarray()
    assert dataset.measured_loss.dims == ("batch", "lr", "seed")
    np.testing.assert_array_equal(dataset.measured_regret, measured.regret)
    assert dataset.attrs["measured_verdict"] == found.measured_verdict


def test_no_rate_that_was_tried_is_better_than_the_measured_optimum():
    found = transfer(make(steps=6), "width", [0.5, 1.0], experiment={"dim": 16, "seeds": 6})
    for search in found.experiment.searches:
        assert search.tried[0] < search.value < search.tried[-1]
        logs = np.log(search.losses)
        scores = np.minimum(logs, np.median(logs, axis=1).min() + math.log(3)).mean(axis=1)
        assert scores.min() == scores[search.best]


def test_matrices_of_networks_are_kept_as_asked():
    problem, lrs = make(steps=6), [0.02, 0.04]
    found = transfer(problem, "width", [0.5], lrs=lrs, experiment={"dim": 16, "seeds": 3, "method": "reduced"})
    ensemble = dl.simulate(replace(problem, {"width": 0.5, "lr": 0.04}), dim=16, seeds=3, method="reduced")
    np.testing.assert_array_equal(found.experiment.loss[0, 1], ensemble.test_loss[:, -1])


def test_the_interval_of_the_exponent_holds_as_often_as_those_of_the_rates():
    """Rates with normal errors that are known: the slope is normal, and its interval of 95 % holds in 95 % of cases."""
    values, rng, held = np.array([0.5, 1.0, 2.0, 8.0]), np.random.default_rng(0), 0
    spread, repeats = np.array([0.05, 0.1, 0.02, 0.07]), 4000
    for _ in range(repeats):
        log_lr = 0.3 * np.log(values) + spread * rng.standard_normal(4)
        _, low, high = _exponent(values, log_lr, log_lr - 1.96 * spread, log_lr + 1.96 * spread)
        held += low < 0.3 < high
    assert held / repeats == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / repeats))


# --- regret and verdict --------------------------------------------------------------------------------------


def test_regret_is_the_extra_loss_at_the_rate_of_the_smallest_value():
    problem = make(sampling=dl.FullBatch(2.0))
    found = transfer(problem, "width", [2.0, 0.5, math.inf])
    for width, regret, optimum in zip((2.0, 0.5, "infinite"), found.regret, found.optima, strict=True):
        kept = dl.solve(replace(problem, {"width": width, "lr": found.lr[1]})).test_loss[-1]
        noise = problem.data.noise**2
        assert regret == pytest.approx(max((kept - noise) / (optimum.loss - noise) - 1, 0.0), abs=1e-9)
    assert found.label_noise == noise
    assert found.regret[1] == 0.0
    np.testing.assert_array_equal(found.to_xarray().regret, found.regret)


def test_more_label_noise_does_not_make_a_rate_transfer():
    """On the whole population noise changes no optimum, and no regret."""
    quiet, noisy = (
        transfer(make(dl.MLP(1, 1.0, richness=4.0, parameterization="ntk"), dl.Population(), noise=noise, steps=4),
                 "width", [0.5, 4.0])
        for noise in (0.0, 3.0)
    )  # fmt: skip
    np.testing.assert_allclose(noisy.regret, quiet.regret, rtol=1e-6)
    assert quiet.verdict.startswith("does not transfer")
    assert noisy.verdict.startswith("does not transfer")
    words = r"gives a test loss of 9\.\d+ instead of 9(\.\d+)?, .* above the label noise, at width 4$"
    assert re.search(words, noisy.verdict)
    assert noisy.label_noise == 9.0
    train = transfer(make(dl.MLP(1, 1.0), dl.FullBatch(2.0), steps=8), "width", [0.5, 4.0], objective="train")
    assert train.label_noise == 0.0


def test_a_rate_that_diverges_at_larger_values_has_infinite_regret():
    problem = make(dl.ResNet(2, 1.0, branch_scaling="none"), dl.Population(), steps=6)
    found = transfer(problem, "depth", [2, 16], lrs=[0.01])
    assert found.regret.tolist() == [0.0, math.inf]
    assert found.verdict.startswith("does not transfer: the best rate moves as depth^-")


def test_what_is_lost_in_rounding_is_no_regret():
    problem = make(dl.MLP(1, 1.0, richness=2.0), dl.Population(), noise=0.0, steps=60)
    found = transfer(problem, "width", [1.0, 1.1], lrs=[0.1])
    assert not found.optima[1].is_resolved
    assert found.regret.tolist() == [0.0, 0.0]
    assert found.verdict.startswith("transfers in practice: it is not clear how the best rate moves with width, but")


@pytest.mark.parametrize(
    ("exponent", "regret", "words"),
    [
        (0.02, 0.01, "transfers: the best rate stays (width^0.02), and that of width 1 costs at most 1 % more loss"),
        (
            -0.3,
            0.01,
            "transfers in practice: the best rate moves as width^-0.30, but that of width 1 costs at most 1 % more "
            "loss",
        ),
        (
            0.02,
            0.2,
            "does not transfer: the best rate stays (width^0.02), but that of width 1 costs 20 % more loss at width 4",
        ),
        (
            0.6,
            31.0,
            "does not transfer: the best rate moves as width^0.60, and that of width 1 costs 32 times as much loss at "
            "width 4",
        ),
        (
            0.6,
            math.inf,
            "does not transfer: the best rate moves as width^0.60, and that of width 1 diverges at width 4",
        ),
    ],
)
def test_verdicts(exponent, regret, words):
    regrets = np.array([regret, 0.0])
    assert judge(Named("width"), np.array([4.0, 1.0]), Evidence((exponent, exponent), (regrets, regrets))) == words


def test_networks_decide_what_their_intervals_decide():
    def verdict(exponent, low, high):
        regrets = (np.array([0.0, low]), np.array([0.0, high]))
        return judge(Named("width"), np.array([1.0, 4.0]), Evidence(exponent, regrets))

    assert verdict((-0.05, 0.05), -0.01, CHEAP).startswith("transfers: the best rate stays (width^(-0.05 to 0.05))")
    assert verdict((-0.05, STAYS + 0.01), 0.0, 0.01).startswith("transfers in practice: the best rate goes as width^(")
    assert verdict((0.2, 0.3), 0.01, 0.2).startswith("undecided: the best rate moves as width^(0.20 to 0.30), and")
    assert verdict((-math.inf, math.inf), -1.0, math.inf).endswith("may cost any amount of loss at width 4")
    assert verdict((-0.05, 0.05), 0.06, 0.2).startswith("does not transfer: the best rate stays")
    assert judge(Named("width"), np.array([1.0]), Evidence((math.nan,) * 2, (np.zeros(1),) * 2)) == ""


def test_optima_that_vary_do_not_stay_and_numbers_are_plain():
    """Without a trend the exponent is zero, however much they scatter."""
    values, regret = np.array([0.326531, 1.0, 2.0, 4.0]), np.array([0.0, 3.5, 0.2, 0.0])
    optima = np.array([0.179, 0.145, 0.164, 0.176])
    known = Evidence((-0.001, -0.001), (regret, regret), range=float(optima.max() / optima.min()))
    words = judge(Named("width"), values, known)
    assert words.startswith("does not transfer: the best rate varies by a factor of 1.23 without a trend, and that of")
    assert words.endswith("that of width 0.327 costs 350 % more loss at width 1")
    still = judge(Named("width"), values, Evidence((-0.001, -0.001), (regret, regret), range=1.02))
    assert "the best rate stays (width^0)" in still


def test_losses_are_said_in_plain_words():
    """A regret of 33 % that is 1.4e-5 of the loss is none; what is above the noise is said where noise is much."""
    values = np.array([1.0, 4.0])

    def verdict(regret, kept, least, noise):
        regrets, losses = np.array([0.0, regret]), (np.array([least, kept]), np.array([least, least]))
        known = Evidence((0.3, 0.3), (regrets, regrets), losses=losses, label_noise=noise)
        return judge(Named("width", loss="test loss"), values, known)

    assert verdict(0.33, 1.000014, 1.0, 0.99996).startswith("transfers in practice: the best rate moves as width^0.30")
    assert verdict(0.33, 1.000014, 1.0, 0.99996).endswith("costs at most 0 % more test loss")
    assert verdict(0.62, 0.021, 0.013, 0.0).endswith("gives a test loss of 0.021 instead of 0.013 at width 4")
    assert verdict(4.0, 0.25, 0.13, 0.1).endswith("0.25 instead of 0.13, 400 % more above the label noise, at width 4")
    assert "50 times as much above the label noise" in verdict(49.0, 1.01, 1.0, 0.9999)
    assert verdict(0.06, 0.12344, 0.12299, 0.0).endswith("0.1234 instead of 0.123 at width 4")


@pytest.mark.parametrize("own", [0.2, math.inf, math.nan])
def test_the_smallest_value_is_no_evidence_for_itself(own):
    """Its regret is zero by construction; the end of its interval says how well its own best value is known."""

    def verdict(most):
        regrets = (np.array([0.0, 0.0, 0.0]), np.array([0.01, own, most]))
        return judge(Named("width"), np.array([2.0, 1.0, 4.0]), Evidence((0.0, 0.02), regrets))

    assert verdict(0.03).startswith("transfers: the best rate stays")
    assert verdict(0.03).endswith("that of width 1 costs at most 3 % more loss")
    assert verdict(0.1).endswith("and that of width 1 costs at most 10 % more loss at width 4")
    assert verdict(0.1).startswith("undecided")


def test_networks_are_judged_at_the_other_values():
    """Sixteen networks of D = 20 know the best rate of width 1/2 poorly; at width 4 the one they found is cheap."""
    problem = make(dl.MLP(1, 1.0), dl.FullBatch(4.0), steps=10)
    experiment = {"dim": 20, "seeds": 16, "workers": 1}
    found = transfer(problem, "width", [0.5, 4.0], lrs=np.geomspace(0.05, 0.4, 5), experiment=experiment)
    own, other = found.experiment.regret_high
    assert own > CHEAP > other
    assert found.measured_verdict.startswith("transfers in practice: the best rate goes as width^(")
    assert found.measured_verdict.endswith(f"costs at most {100 * other:.2g} % more test loss above the label noise")


# --- the object and its refusals -----------------------------------------------------------------------------


def test_named_axes_and_a_table():
    found = transfer(make(), "width", [1.0, 2.0, 4.0])
    dataset = found.to_xarray()
    assert dataset.loss.dims == ("width", "lr")
    np.testing.assert_array_equal(dataset.optimal_lr.sel(width=2.0), found.lr[1])
    assert dataset.attrs["exponent"] == found.exponent
    lines = str(found).splitlines()
    assert dataset.attrs["verdict"] == found.verdict
    assert lines[0].split() == [
        "width",
        "optimal",
        "lr",
        "test",
        "loss",
        *f"loss at {found.lr[0]:.4g}".split(),
        "exponent",
    ]
    assert lines[-2].startswith("optimal lr ~ width^")
    assert "scatter about this law" in lines[-2]
    assert lines[-1] == found.verdict


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"over": "samples"}, "over must be 'width' or 'depth' or 'batch' or 'steps', got 'samples'"),
        ({"over": "lr"}, "over must be .* got 'lr'"),
        ({"values": []}, "values must be one or more distinct numbers"),
        ({"values": [1.0, 1.0]}, "values must be one or more distinct numbers"),
        ({"values": [1.0, -2.0]}, r"values\[1\] must be a positive finite number, got -2.0"),
        ({"values": 3.0}, "values must be a sequence of numbers, got 3.0"),
        ({"over": "batch", "values": [math.inf]}, r"values\[0\] must be a positive finite number, got inf"),
        ({"over": "depth", "values": [1.5]}, "depth must be a whole number"),
        ({"lrs": [0.1, 0.0]}, r"lrs\[1\] must be a positive finite number, got 0.0"),
        ({"objective": "loss"}, "objective must be 'test' or 'train', got 'loss'"),
        ({"experiment": {"dims": 3}}, "experiment must be a dict of dim, seeds, workers, device, method, got"),
        ({"experiment": {"method": "fast"}}, "method must be 'auto' or 'explicit' or 'lazy' or 'reduced', got 'fast'"),
        ({"experiment": 30}, "experiment must be a dict of dim, seeds, workers, device, method, got 30"),
        ({"problem": 3}, "problem must be a Problem, got 3"),
    ],
)
def test_refusals(changes, message):
    arguments = {"problem": make(), "over": "width", "values": [1.0]} | changes
    with pytest.raises(ValueError, match=message):
        transfer(**arguments)


# --- progress ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lrs", "experiment"), checkerboard([[0.05, 0.1, 0.2], None], [None, {"dim": 20, "seeds": [3, 5]}])
)
def test_progress_counts_up_to_the_end(lrs, experiment):
    reports = []
    found = transfer(
        make(steps=4), "width", [1, 2], lrs=lrs, experiment=experiment, progress=lambda *each: reports.append(each)
    )
    done, totals = zip(*reports, strict=True)
    assert list(done) == sorted(done)
    trained = 0 if experiment is None else 2 * sum(len(each.tried) for each in found.experiment.searches)
    assert done[-1] == totals[-1] == 2 * (20 + len(found.lrs) + 1) + trained
    assert all(each <= total for each, total in reports)
    assert len(reports) >= 2 + 1 + trained / 2


# Jumps ---------------------------------------------------------------------------------------------------------


def places(*lrs):
    """An optimum at the first rate, with others nearly as good."""
    return [math.log(lr) for lr in lrs]


def nowhere(*_):
    """Following an optimum does not lead to the next one."""
    return False


def test_a_minimum_that_moves_does_not_jump():
    moving = [places(0.1), places(0.2), places(0.4)]
    assert find_jumps(np.array([1.0, 2.0, 4.0]), moving, np.full(3, 1.0), nowhere) == ()
    unknown = [places(0.1), places(0.3, 2.0)]
    assert find_jumps(np.array([1.0, 2.0]), unknown, np.full(2, math.nan), nowhere) == ()


def test_another_minimum_is_a_jump():
    away = [places(0.1), places(0.3)]
    assert find_jumps(np.array([2.0, 4.0]), away, np.zeros(2), nowhere) == ((2.0, 4.0),)
    other_is_nearer = [places(0.3, 0.11), places(0.1)]
    assert find_jumps(np.array([4.0, 2.0]), other_is_nearer, np.full(2, math.nan), nowhere) == ((2.0, 4.0),)
    one_of_four = [places(0.1), places(0.2), places(3.0, 0.4), places(6.0, 0.8)]  # the others double
    assert find_jumps(np.array([1.0, 2.0, 4.0, 8.0]), one_of_four, np.full(4, math.nan), nowhere) == ((2.0, 4.0),)
    assert find_jumps(np.array([2.0, 4.0]), away, np.zeros(2), lambda *_: True) == ()  # it moves far, but smoothly
    regret = np.array([0.0, 0.3])
    evidence = Evidence((0.5, 0.5), (regret, regret), ((2.0, 4.0),))
    assert "jumps to another minimum between width 2 and 4" in judge(Named("width"), np.array([2.0, 4.0]), evidence)


def test_a_minimum_that_moves_far_but_smoothly_is_followed():
    """The best weight decay falls fourfold while the samples double, which had passed for a jump."""
    problem = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.6), dl.FullBatch(1.2), dl.GradientDescent(0.1), 15)
    found = transfer(problem, "samples", [1.2, 2.4], field="weight_decay")
    assert found.best[0] > 4 * found.best[1]
    assert found.jumps == ()
    assert "moves as samples^-2" in found.verdict


def test_a_real_jump_is_told() -> None:
    """Number 22 of ``make check-best-rate``: the best is at 0.0143 from 47 steps on.

    The lower minimum goes on (0.0030, 0.0020, 0.0014), within 2 % of it.
    """
    network = dl.ResNet(8, 0.4818, richness=2.461, centered=True, branch=1.251)
    sampling = dl.MultiPassSGD(samples=0.4299, batch=0.4299)
    problem = dl.Problem(network, dl.Isotropic(0.3), sampling, dl.GradientDescent(0.01), steps=63)
    found = transfer(problem, "steps", [31, 47, 63])
    assert found.jumps == ((31.0, 47.0),)
    assert "jumps to another minimum between steps 31 and 47" in found.verdict


# --- what is not resolved -------------------------------------------------------------------------------------


def test_an_infinite_depth_that_is_not_resolved_does_not_end_the_call(monkeypatch):
    """Nodes in depth give up here at rates that shallow networks bear."""

    def curves_up_to(problems, *args, **options):
        if any(each.network.depth == math.inf and rate_of(each) > 0.1 for each in problems):
            raise Unresolved("infinite depth was not resolved")
        return curves(problems, *args, **options)

    monkeypatch.setattr(ladder, "curves", curves_up_to)
    problem = make(dl.ResNet(2, 1.0), dl.Population(), steps=2)
    found = transfer(problem, "depth", [1, math.inf], lrs=[0.05, 0.2])
    assert np.isnan(found.loss).tolist() == [[False, False], [False, True]]
    assert found.lr[0] > 0.1
    assert np.isnan(found.regret).tolist() == [False, True]
    assert found.verdict == "undecided: what the rate of depth 1 costs at depth infinite is not resolved"
    assert "unknown" in str(found)


@pytest.mark.usefixtures("entries_only")
def test_an_optimum_that_is_lost_in_rounding_errors_decides_nothing() -> None:
    problem = dl.Problem(
        dl.MLP(2, 2.0, centered=True), dl.Isotropic(0.5), dl.FullBatch(1.0), dl.SAM(0.02, rho=0.1), steps=40
    )
    found = dl.transfer(problem, "steps", [16, 40])
    assert [each.rounding_at is None for each in found.optima] == [True, False]
    assert found.optima[1].rounding_at == dl.solve(problem.replace(lr=found.lr[1])).status.rounding_at
    assert "on the losses depend on rounding errors" in str(found.optima[1])
    assert found.place(1) == "lost in rounding errors"
    assert np.isnan(found.regret[1])
    assert found.verdict == "undecided: what the rate of steps 16 costs at steps 40 is not resolved"


def test_the_rates_of_a_schedule_are_called_factors() -> None:
    schedule = dl.schedules.cosine(0.02, warmup=0.1)
    problem = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(schedule), steps=12)
    text = str(dl.transfer(problem, "width", [1.0, 2.0]))
    assert "optimal lr factor " in text.splitlines()[0]
    assert "lr factors multiply the schedule, whose largest rate is 0.02" in text
    assert "optimal lr factor ~ width^" in text
    best = dl.optimal(problem, ["lr"], starts=1)
    peak = best.problem.optimizer.rates(12).max()
    assert peak == pytest.approx(0.02 * best.values["lr"])
    assert str(best).splitlines()[1].split() == ["lr", "factor", f"{best.values['lr']:.4g}"]
    assert f"with this lr factor the largest rate of the schedule is {peak:.4g}" in str(best)
    assert best.plot().axes[0].get_xlabel() == "schedule factor"
    assert str(dl.sensitivity(problem, ["lr", "noise"])).splitlines()[1].split()[:3] == ["lr", "factor", "1"]
