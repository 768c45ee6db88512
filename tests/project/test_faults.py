"""The programs that try faults: some of their trials, and that they can fail."""

import dataclasses
import json
import random
from pathlib import Path

import pytest

from deeplinear._core import claims
from deeplinear._explore.tasks import TASKS
from documentation import ROOT, script

FAULTS = script(ROOT / "tools" / "faults.py")
PAGE = script(ROOT / "tools" / "faults_page.py")


def test_some_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in 80 of all; ``make faults`` tries the others."""
    monkeypatch.setattr(claims, "PATIENCE", 0.1)
    for name, faults, every in (
        ("stores", FAULTS.damaged_stores, 80),
        ("plans", FAULTS.damaged_plans, 16),
        ("files", FAULTS.damaged_files, 40),
    ):
        (tmp_path / name).mkdir()
        trials = list(faults(1, tmp_path / name))[::every]
        assert len(trials) > 7
        for kind, what, run in trials:
            assert run() in (FAULTS.RIGHT, FAULTS.SAID), (kind, what)


def test_other_data_are_seen(tmp_path: Path) -> None:
    expected = FAULTS.sweep(tmp_path / "a")
    assert FAULTS.check_store(tmp_path / "a", expected) == FAULTS.RIGHT
    wrong = expected.assign(test_loss=expected.test_loss * (1 + 1e-15))
    assert FAULTS.check_store(tmp_path / "a", wrong) == "open_sweep: other data"
    assert not FAULTS.Trial("kind", "what", "open_sweep: other data").held
    planned = FAULTS.plan(tmp_path / "b")
    assert FAULTS.check_plan(tmp_path / "b", planned) == FAULTS.RIGHT
    wrong = dataclasses.replace(planned, losses=planned.losses * (1 + 1e-15))
    assert FAULTS.check_plan(tmp_path / "b", wrong) == "plan: other data"


def test_figures_are_counted_by_kind() -> None:
    trials = [
        FAULTS.Trial("cut", "a", "right"),
        FAULTS.Trial("cut", "b", "KeyError()"),
        FAULTS.Trial("lost", "a", "said"),
    ]
    lines = FAULTS.table({"store": trials}).splitlines()
    assert lines[2:] == ["| store: cut | 2 | 1 | 1 |", "| store: lost | 1 | 1 | 0 |"]


def test_every_request_of_the_page_is_tried_with_wrong_values() -> None:
    assert set(PAGE.REQUESTS) == set(TASKS)
    choose, values, tried = random.Random(0), json.dumps(PAGE.UGLY), set()
    for _ in range(1000):
        tried.add(PAGE.mutated(choose)[0])
        assert json.dumps(PAGE.UGLY) == values  # else a value comes to contain itself, and has no end
    assert tried == set(TASKS)
