"""Fits: known parameters and other schedules are recovered, however runs are given; what is open is said."""

from functools import cache

import numpy as np
import pytest

import deeplinear as dl
from made_runs import PEAK, WARMUP, losses, made, three

fitted = cache(lambda law: dl.fit_runs(three(law), law=law))

WSD = dl.schedules.wsd(PEAK, warmup=WARMUP / 12000, decay=0.2, end=0.05)


@pytest.mark.parametrize("law", ["plain", "norm"])
def test_a_law_is_recovered_and_predicts_another_schedule(law: str) -> None:
    fit = fitted(law)
    assert fit.values["irreducible loss"] == pytest.approx(2.5, abs=2e-3)
    assert fit.values["source"] == pytest.approx(0.5, rel=0.01)
    steps = np.arange(500, 12001, 500)
    assert fit.predict(WSD, steps) == pytest.approx(losses(WSD.values(12000), steps, law), abs=1e-3)
    assert fit.predict(WSD, 12000) == pytest.approx(fit.predict(WSD, steps)[-1], abs=2e-4)  # cut differently


def test_the_law_is_chosen_by_runs_that_were_left_out() -> None:
    """With the norm a lower rate late in a run does more than the plain law says, and less with each step before."""
    for law in ("plain", "norm"):
        assert dl.fit_runs(three(law)).law == law


def test_errors_of_runs_that_were_left_out_are_errors_of_fits_without_them() -> None:
    runs = three("norm")
    fit = dl.fit_runs(runs, law="plain")
    for left in range(3):
        others = dl.fit_runs([run for index, run in enumerate(runs) if index != left], law="plain")
        off = np.abs(others.predict(runs[left].lr, runs[left].steps) - runs[left].loss)
        assert fit.held_out[runs[left].name] == pytest.approx(off.mean(), rel=0.2)  # which also averages neighbours


def test_noise_and_outliers_hardly_move_a_fit() -> None:
    runs = three(noise=0.004, every=8)
    wild = runs[0].loss.copy()
    wild[::50] += 2.0
    moved = dl.fit_runs([dl.Run(runs[0].steps, wild, runs[0].lr, name="wild"), *runs[1:]], law="norm")
    true = losses(WSD.values(12000), np.array([12000]))[0]
    # Three runs of a thousand losses with 0.004 each; the outliers would move their mean by 0.04.
    assert moved.predict(WSD, 12000) == pytest.approx(true, abs=0.01)
    assert dl.fit_runs(runs, law="norm").predict(WSD, 12000) == pytest.approx(true, abs=0.003)


def test_rates_may_be_given_in_any_form() -> None:
    schedule = dl.schedules.cosine(PEAK, warmup=WARMUP / 8000, end=0.1)
    steps, rates = np.arange(240, 8001, 80), schedule.values(8000)
    loss = losses(rates, steps)
    whole = dl.Run(steps, loss, rates)
    for run in (
        dl.Run(steps, loss, schedule),
        dl.Run(steps[:-20], loss[:-20], schedule, total=8000),
        dl.Run(steps, loss, np.append(rates, rates[-1])[steps], warmup=WARMUP),
        dl.Run(steps[:-20], loss[:-20], rates),
    ):
        # Between two logged steps the cosine is straight to 1e-4 of the peak; the rise ends at its first logged value.
        assert run.rates == pytest.approx(whole.rates[: len(run.rates)], abs=3e-3 * PEAK)
    constant = dl.Run(steps, loss, 3e-4, warmup=100)
    assert constant.rates == pytest.approx(3e-4 * np.minimum(1.0, (np.arange(8000) + 1) / 100))


def test_a_drop_between_logged_steps_is_seen() -> None:
    run = made(dl.schedules.piecewise(PEAK, [0.5], [0.1]))
    logged = dl.Run(run.steps, run.loss, run.rates[run.steps - 1])
    assert logged.rates.sum() == pytest.approx(run.rates.sum(), rel=0.02)


def test_losses_logged_at_other_steps_give_the_same_fit() -> None:
    runs = three()
    thinned = [dl.Run(run.steps[::3], run.loss[::3], run.lr, name=run.name) for run in runs[:2]]
    found = dl.fit_runs([*thinned, runs[2]], law="norm")
    assert found.values["source"] == pytest.approx(0.5, rel=0.01)


def test_averages_over_steps_are_told() -> None:
    """Means over 400 steps lag by 200; told, they give the loss of the middle."""
    runs = []
    for kind in three(every=400, first=600):
        at = [np.arange(step - 399, step + 1) for step in kind.steps]
        means = np.array([losses(kind.rates, steps).mean() for steps in at])
        runs.append((kind, means))
    told = dl.fit_runs([dl.Run(k.steps, m, k.lr, smoothing=400, name=k.name) for k, m in runs], law="norm")
    untold = dl.fit_runs([dl.Run(k.steps, m, k.lr, name=k.name) for k, m in runs], law="norm")
    true = losses(WSD.values(12000), np.array([12000]))[0]
    errors = [abs(fit.predict(WSD, 12000) - true) for fit in (told, untold)]
    assert errors[0] < 0.3 * errors[1]
    assert errors[0] < 2e-3


def test_several_peaks_tell_the_power_of_the_rate() -> None:
    runs = three()
    assert "power of rate" not in fitted("norm").values
    high = made(dl.schedules.constant(2 * PEAK, warmup=WARMUP / 8000))
    found = dl.fit_runs([*runs, high], law="norm").values
    assert found["power of rate"] == pytest.approx(1.0, abs=0.01)  # with which they were made


def test_what_runs_leave_open_is_said() -> None:
    runs, fit = three(), fitted("norm")
    assert fit.warnings == ()
    constant = dl.fit_runs([runs[0]], law="norm").warnings
    assert any("no run has a rate that falls" in each and "step 5333" in each for each in constant)
    assert any("one run cannot check" in each for each in constant)
    assert fit.forecast(WSD.scaled(0.9), 12000).warnings[0].startswith("the peak rate 0.00027 is below")
    assert fit.forecast(WSD.scaled(2.0), 12000).warnings[0].startswith("the peak rate 0.0006 is above")
    assert "5 times as many" in fit.forecast(PEAK, 40000).warnings[-1]
    assert "the last rate" in fit.forecast(dl.schedules.linear(PEAK), 8000).warnings[0]
    rising = runs[0].loss.copy()
    rising[-30:] += np.linspace(0.0, 0.5, 30)
    risen = dl.Run(runs[0].steps, rising, runs[0].lr, name="overfits")
    assert any("the loss of overfits rises" in each for each in dl.fit_runs([risen, *runs[1:]], law="norm").warnings)


def test_a_result_says_what_it_found() -> None:
    text = str(fitted("norm"))
    assert text.startswith("norm law, 3 runs")
    for word in ("irreducible loss", "held out", "90 % band", "piecewise"):
        assert word in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": [0, 10, 20]}, r"loss must be one number for each of 3 logged steps, got 100 in bad"),
        ({"steps": np.arange(100)[::-1] * 10}, r"they go back 99 times, first from 990 to 980; sort them"),
        ({"steps": np.append(np.arange(60), np.arange(50, 90)) * 10}, r"they go back from 590 to 500; after a restart"),
        ({"steps": np.repeat(np.arange(50), 2) * 10}, r"step 0 stands there twice; keep one loss for each step"),
        ({"steps": np.arange(100) + 0.5}, r"steps must be whole numbers, zero or above, got 0.5 in bad"),
        ({"loss": np.append(np.ones(99), np.nan)}, r"finite, got nan at step 990 of bad: leave out steps without"),
        ({"loss": np.append(np.ones(99), np.inf)}, r"finite, got inf at step 990 of bad: a run that diverged"),
        ({"loss": -np.ones(100)}, r"zero or above, got -1.0 at step 0 of bad"),
        ({"loss": "low"}, r"loss must be numbers, one for each logged step, got 'low'"),
        (
            {"lr": np.ones(50)},
            r"each of 100 logged steps, or for each training step up to the last \(990\), got 50 num",
        ),
        ({"lr": np.append(np.ones(99), -1.0)}, r"lr must be finite and zero or above, got -1.0"),
        ({"lr": 0.0}, r"lr must be above zero at some step, got zero at all of them"),
        ({"warmup": 990}, r"warmup must be below the last step \(990\), got 990"),
        ({"total": 500}, r"total must be a whole number, at least 990, got 500"),
        ({"steps": np.arange(5), "loss": np.ones(5)}, r"bad has 5 losses; log 8"),
    ],
)
def test_bad_runs_are_refused_in_a_sentence(change: dict[str, object], message: str) -> None:
    given = {"steps": np.arange(100) * 10, "loss": np.linspace(3, 2, 100), "lr": 0.1, "name": "bad"} | change
    with pytest.raises(ValueError, match=message):
        dl.Run(**given)


def test_bad_fits_are_refused_in_a_sentence() -> None:
    steps = np.arange(100) * 10
    rising = dl.Run(steps, np.linspace(2, 3, 100), 0.1, name="bad")
    with pytest.raises(
        ValueError, match=r"the loss of bad does not fall, from 2.05 to 2.95; the law is for training that works"
    ):
        dl.fit_runs(rising)
    with pytest.raises(ValueError, match="the loss of bad does not fall, from 2 to 2; the law"):
        dl.fit_runs(dl.Run(steps, np.full(100, 2.0), 0.1, name="bad"))
    with pytest.raises(ValueError, match="runs must be at least one run, got "):
        dl.fit_runs([])
    with pytest.raises(ValueError, match="law must be 'auto' or 'plain' or 'norm', got 'adam'"):
        dl.fit_runs(three(), law="adam")
    with pytest.raises(ValueError, match="has 1 losses from step 8000 on, where the fit starts; it needs 8"):
        dl.fit_runs(three(), start=8000)
    with pytest.raises(
        ValueError, match="source must be a Run, the path of a CSV or event file, or a table with named"
    ):
        dl.fit_runs(3)
    with pytest.raises(ValueError, match="steps must be a number of steps, or steps that rise"):
        fitted("norm").predict(0.1, [3, 2])
