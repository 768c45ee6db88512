"""What the benchmarks rest on: the peer solves the same equations, and errors are seen where there are some."""

import copy
import dataclasses
import importlib
import json
from pathlib import Path

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._solvers.panels.solver import Panels
from deeplinear._time.grid import breaks

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


def test_random_problems_are_reproducible_and_fit_for_panels():
    honesty = load("honesty")
    seeds = range(0, honesty.PROBLEMS, 3)
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
    assert sum(len(breaks(rates)) > 0 for rates in rough) > 50 / 3
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


# Problems of ``make fuzz`` that take little time.
QUICK = [0, 1, 2, 3, 5, 6, *range(9, 13), *range(15, 19), 20, 22, 23, 24, 26, 29, 30, 32, 33, *range(35, 39), 42, 45]


@pytest.mark.parametrize("seed", QUICK)
def test_random_problems_hold(seed):
    fuzz = load("fuzz")
    record = fuzz.check(seed)
    record["outcomes"].pop("memory", None)  # measured in a process of its own only
    assert not fuzz.failures([record])


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
    assert "| a | 1 | 0 | 0 | 1 |" in fuzz.table([record])


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
