"""What the benchmarks rest on: the peer solves the same equations, and errors are seen where there are some."""

import copy
import dataclasses
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._solvers.panels.solver import Panels
from deeplinear._time.grid import breaks
from factories import some_slow

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


def load(name):
    return importlib.import_module(name)


@pytest.mark.parametrize(("damping", "richness"), [(0.0, 0.5), pytest.param(0.5, 1.0, marks=pytest.mark.slow)])
def test_the_peer_converges_to_the_same_answer(damping, richness):
    problem = load("problems").mlp(12, depth=3, lr=0.03, richness=richness)
    found = load("peer").fixed_point(problem, damping, tolerance=1e-12)
    np.testing.assert_allclose(found.test_loss, dl.solve(problem).test_loss, rtol=1e-9)


def test_the_peer_reports_that_it_fails():
    found = load("peer").fixed_point(load("problems").mlp(40, depth=3, lr=0.1), 0.5)
    assert found.test_loss is None
    assert found.reason == "overflow"


def test_the_page_of_the_peers_shows_what_is_kept(tmp_path, monkeypatch):
    peers = load("peers")
    monkeypatch.setattr("pictures.IMAGES", tmp_path)
    kept = json.loads(peers.STORE.read_text())
    assert peers.page(kept) == peers.PAGE.read_text()
    assert (tmp_path / "peers.png").stat().st_size > 5000
    for part in kept.values():
        assert part["settings"] == peers.SETTINGS
        assert {each["repository"]: each["commit"] for each in peers.PEERS.values()}.items() <= part["versions"].items()


def test_training_on_fixed_inputs_is_the_problem_of_the_peer():
    peers, lr = load("peers"), 1e-6
    kernel, labels = peers.gram(4)
    losses = dl.solve(peers.shared(kernel, labels, lr, 2)).test_loss
    assert losses[0] == pytest.approx((labels**2).mean(), rel=1e-12)
    slope = -2 * (peers.DEPTH + 1) * labels @ kernel @ labels / len(labels) ** 2
    assert (losses[1] - losses[0]) / lr == pytest.approx(slope, rel=1e-4)  # the next order is lr times the kernel


def test_mean_squares_of_streaming_sgd_are_those_of_lazy_theory():
    """Noise of order 1/B included; what is left is the square of the small richness."""
    peers = load("peers")
    values, power = np.array([1.0, 0.4, 0.1]), np.array([0.5, 1.0, 2.0])
    data = dl.Spectrum(values.tolist(), power.tolist(), noise=peers.NOISE)
    sampling = dl.OnlineSGD(3.0, small_batch=True)
    problem = dl.Problem(dl.MLP(1, "infinite", peers.LAZY), data, sampling, dl.GradientDescent(0.1), 30)
    np.testing.assert_allclose(dl.solve(problem).test_loss, peers.moments(values, power, 0.2, 3, 30), rtol=1e-7)


def test_another_version_of_a_peer_is_refused(tmp_path, monkeypatch):
    (tmp_path / "theory_utils.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "theory_utils", raising=False)
    with pytest.raises(SystemExit, match="not that of thebuckleylab/jpc at 7d6cc05"):
        load("peers").peer("theory_utils")
    del sys.modules["theory_utils"]


def test_random_problems_are_reproducible_and_fit_for_panels():
    honesty = load("honesty")
    seeds = range(0, honesty.PROBLEMS, 6)
    problems = [honesty.draw(seed) for seed in seeds]
    assert problems[7] == honesty.draw(seeds[7])
    assert all(Panels().why_not(problem) is None for problem in problems)
    assert max(problem.steps for problem in problems) > 1000
    for kind in ("network", "data", "sampling"):
        assert len({type(getattr(problem, kind)) for problem in problems}) == 2
    rough = [
        problem.optimizer.rates(problem.steps)
        for seed, problem in zip(seeds, problems, strict=True)
        if seed >= honesty.ROUGH
    ]
    assert sum(len(breaks(rates)) > 0 for rates in rough) > 50 / 6
    assert all(len(set(rates)) > 1 for rates in rough)


def test_true_errors_are_seen():
    honesty = load("honesty")
    problem = load("problems").mlp(100, depth=1)
    exact = dl.solve(problem, method="dense")
    assert honesty.true_error(exact, exact, 1e-5) == 0
    wrong = copy.copy(exact)
    losses = exact.train_loss.copy()
    losses[60] *= 1 + 1e-5
    object.__setattr__(wrong, "train_loss", losses)
    assert honesty.true_error(exact, wrong, 1e-5) == pytest.approx(1e-5, rel=1e-3)
    rounded = dataclasses.replace(exact, status=dl.Status(rounding_at=50))
    assert honesty.true_error(exact, rounded, 1e-5) == np.inf
    assert honesty.true_error(wrong, rounded, 1e-5) == np.inf
    assert honesty.true_error(dataclasses.replace(wrong, status=rounded.status), rounded, 1e-5) == 0


@pytest.mark.slow
def test_the_page_can_be_written_from_what_is_stored(tmp_path, monkeypatch):
    run = load("run")
    monkeypatch.setattr("pictures.IMAGES", tmp_path)
    stored = json.loads(run.STORE.read_text())
    page = run.page(stored)
    for name in run.SECTIONS:
        assert f"(images/{name}.png)" in page
        assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_the_crossover_is_where_the_curves_cross():
    crossover = load("sections.panels").crossover
    runs = [{"steps": steps, "dense": steps**3 * 1e-8, "panels": 1.0} for steps in (100, 400, 1000)]
    assert crossover(runs) == pytest.approx(1e8 ** (1 / 3))
    assert crossover(runs[:2]) is None


# Problems of ``make fuzz`` that take little time, and some that did not hold once.
QUICK = [0, 1, 2, 3, 5, 6, *range(9, 13), *range(15, 19), 20, 22, 23, 24, 26, 29, 30, 32, 33, *range(35, 39), 42, 45]
QUICK += [56, 75, 182, 200, 587, 1687, 2463, 2900]


@pytest.mark.parametrize("seed", some_slow(QUICK, *QUICK[1::2]))
def test_random_problems_hold(seed):
    fuzz = load("fuzz")
    record = fuzz.check(seed)
    record["outcomes"].pop("memory", None)  # measured in a process of its own only
    assert not fuzz.failures([record])


@pytest.mark.usefixtures("entries_only")
def test_fuzzing_compares_errors_up_to_where_losses_depend_on_rounding(monkeypatch):
    """As number 535 of ``make fuzz``: a jump into instability, whose losses both methods say depend on rounding."""
    checks, solve = load("fuzz_checks"), dl.solve
    rates = np.where(np.arange(160) < 100, 0.05, 0.4)
    problem = dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(0.3), dl.FullBatch(3.0), dl.GradientDescent(rates.tolist()), 160)
    exact = solve(problem, method="dense")
    checks.condensed(problem, exact)
    silent = dataclasses.replace(exact, status=dl.Status())
    monkeypatch.setattr(dl, "solve", lambda *_, method: silent if method == "dense" else solve(problem, method=method))
    with pytest.raises(checks.Broken, match="the losses depend on rounding errors"):
        checks.condensed(problem, exact)


def test_a_check_that_fails_is_told(monkeypatch):
    fuzz = load("fuzz")

    def never(problem, solution):
        load("fuzz_checks")._holds(False, "wrong on purpose")

    def crash(problem, solution):
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(fuzz, "CHECKS", {"a": (never, lambda _: True), "b": (crash, lambda _: True)})
    record = fuzz.check(1)
    told = [message for _, message in fuzz.failures([record])]
    assert told[0] == "a: wrong on purpose"
    assert "ZeroDivisionError: on purpose" in told[1]
    assert "| a | 1 | 0 | 0 | 0 | 1 |" in fuzz.table([record])


def test_what_a_method_gives_up_is_not_counted_as_held(monkeypatch):
    fuzz, checks = load("fuzz"), load("fuzz_checks")

    def gives_up(*_, method):
        raise ArithmeticError("panels do not resolve this run")

    monkeypatch.setattr(checks.dl, "solve", gives_up)
    problem = dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(0.3), dl.FullBatch(3.0), dl.GradientDescent(0.1), 160)
    with pytest.raises(checks.GaveUp):
        checks.panels(problem, None)
    record = {"seed": 0, "outcomes": {"panels": "gave up: panels do not resolve this run"}}
    assert "| panels | 1 | 0 | 1 | 0 | 0 |" in fuzz.table([record])
    assert not fuzz.failures([record])


def test_some_problems_compare_panels_over_more_than_a_thousand_steps():
    checks, draw = load("fuzz_checks"), load("fuzz_problems").draw
    long = [draw(seed) for seed in (19, 99, 179, 259)]
    assert all(each.steps > 1000 for each in long)
    assert sum(checks.CHECKS["panels"][1](each) for each in long) >= 3


def test_fuzzing_goes_on_where_it_stopped(tmp_path):
    fuzz, path = load("fuzz"), tmp_path / "kept.jsonl"
    path.write_text(json.dumps({"seed": 0, "outcomes": {"answered": "held"}}) + "\n" + '{"seed": 1, "outco')
    assert list(fuzz.kept(path)) == [0]


def test_the_series_of_timings_shows_a_slowdown():
    history = load("history")
    before = {"a": 1.0, "b": 2.0}
    assert history.slower(before, {"a": 1.39, "b": 2.9, "new": 9.0}) == ["b"]
    series = [
        {"commit": name, "times": dict.fromkeys(history.CASES, value)} for name, value in (("x", 1.0), ("y", 2.5))
    ]
    shown = history.table(series).splitlines()
    assert shown[0].split() == ["x", "y"]
    assert all(line.endswith("         1       2.5") for line in shown[1:])


def test_every_kept_measurement_is_of_the_cases_of_today():
    history = load("history")
    assert history.kept(), "python benchmarks/history.py --keep makes the first"
    assert {*history.kept()[-1]["times"]} == {*history.CASES}


def test_the_multi_power_law_is_that_of_its_paper():
    """On stretches as over every step, where the rate changes at each of these; warm-up of 20 steps."""
    runs = load("runs")
    rates = 1e-3 * np.minimum(1.0, (np.arange(400) + 1) / 20)
    rates[200:300] *= 0.5
    rates[300:] *= np.linspace(0.5, 0.1, 100)
    steps = np.arange(40, 401, 20)
    run = dl.Run(steps, 3.0 - 0.001 * steps, rates)
    data = runs.Data.of([run])
    low, scale, alpha, gain, speed, beta, gamma = 2.0, 0.5, 0.4, 0.3, 3.0, 0.6, 0.7
    (found,) = runs.MultiPower(data, [run])(np.log([low, scale, alpha, gain, speed, beta, gamma]))
    eta, sums = rates / 1e-3, np.concatenate([[0.0], np.cumsum(rates / 1e-3)]) / 1000.0
    direct = []
    for step in steps:
        fall = sum(
            (eta[k - 1] - eta[k]) * (1 - (1 + speed * eta[k] ** -gamma * (sums[step] - sums[k])) ** -beta)
            for k in range(20, step)
        )
        direct.append(low + scale * sums[step] ** -alpha - gain * fall)
    np.testing.assert_allclose(found, direct, atol=3e-3)  # the rate changes by up to 4 % within a stretch
