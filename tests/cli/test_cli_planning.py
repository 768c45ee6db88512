"""The commands ``optimal`` and ``plan``."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import deeplinear as dl
from command_line import document, refused, run
from deeplinear._cli import _planning_commands

pytestmark = pytest.mark.usefixtures("in_folder", "_remembered")

FAST = ("--depth", "1", "--sampling", "online", "--batch", "0.5", "--noise", "0.3", "--lr", "0.05", "--steps", "8")
PROBLEM = dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.05), steps=8)


@pytest.fixture
def _remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that ask the library for the same again get the same result, since a search takes seconds."""
    for name in ("find_optimum", "find_plan"):
        monkeypatch.setattr(_planning_commands, name, _once(getattr(_planning_commands, name)))


@cache
def _once(search: Any) -> Any:
    results: dict[str, Any] = {}

    def remembered(*arguments: Any, progress: Any, **options: Any) -> Any:
        asked = repr((arguments, options))
        if asked not in results:
            results[asked] = search(*arguments, **options, progress=progress)
        return results[asked]

    return remembered


@cache
def optimum() -> dl.Optimum:
    return dl.optimal(PROBLEM, ["lr", "richness"], bounds={"richness": (0.5, 2.0)}, starts=1)


class TestOptimal:
    OPTIONS = ("--over", "lr,richness", "--bounds", "richness=0.5,2", "--starts", "1")

    def test_a_table_and_a_picture(self) -> None:
        result = run("optimal", *FAST, *self.OPTIONS)
        assert result.exit_code == 0, result.output
        found = optimum()
        assert f" {found.values['lr']:.4g} " in result.stdout
        assert f"stable up to {found.stable_factor:.3g} times this learning rate" in result.stdout
        assert Path("optimal.png").read_bytes().startswith(b"\x89PNG")

    def test_the_document_is_what_the_library_says(self) -> None:
        parsed = document("optimal", *FAST, *self.OPTIONS)
        found = optimum()
        assert dl.Problem.from_dict(parsed["problem"]) == found.problem
        assert parsed["values"] == found.values
        assert parsed["curvature"] == found.curvature.tolist()
        assert parsed["minima"][0] == {"values": found.values, "loss": found.loss}
        assert not list(Path().iterdir()), "no file unless asked for"

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("--over", "depth"), "over must be among"),
            (("--over", "lr", "--bounds", "lr=0.2,0.1"), "two numbers, the second one larger"),
            (("--over", "lr", "--bounds", "lr"), "--bounds must be FIELD=LOW,HIGH, once for each field"),
            (("--over", "lr", "--bounds", "lr=1"), "two finite numbers, low and high"),
            (("--starts", "0"), "starts must be a whole number"),
        ],
    )
    def test_what_is_not_allowed(self, arguments: tuple[str, ...], words: str) -> None:
        assert words in refused("optimal", *FAST, *arguments)


def test_tables_call_the_rates_of_a_schedule_factors() -> None:
    options = ("--depth", "1", "--sampling", "online", "--steps", "8", "--lr", "linear(0.02)")
    shown = run("optimal", *options, "--over", "lr", "--starts", "1").stdout
    assert re.search(r"┃\s+lr factor ┃", shown)
    assert "with this lr factor the largest rate of the schedule is" in shown
    shown = run("transfer", *options, "--over", "width", "--values", "1,2").stdout
    assert "optimal lr factor" in shown
    assert "lr factors multiply the schedule, whose largest rate is 0.02" in shown


class TestPlan:
    OPTIONS = ("--compute", "20", "--values", "width=0.5,1,2")

    def test_a_table_and_a_picture(self) -> None:
        result = run("plan", *FAST, *self.OPTIONS)
        assert result.exit_code == 0, result.output
        assert str(dl.plan(PROBLEM, 20.0, values={"width": [0.5, 1, 2]})) in result.stdout
        assert Path("plan.png").read_bytes().startswith(b"\x89PNG")

    def test_the_document_is_what_the_library_says(self) -> None:
        parsed = document("plan", *FAST, *self.OPTIONS)
        found = dl.plan(PROBLEM, 20.0, values={"width": [0.5, 1, 2]})
        assert dl.Problem.from_dict(parsed["problem"]) == found.problem
        assert parsed["values"] == found.values
        assert parsed["frontier"]["loss"] == found.frontier.loss.tolist()
        assert parsed["frontier"]["notes"] == list(found.frontier.notes)
        assert parsed["cost"] == found.cost
        assert parsed["runs"]["loss"][-1] == parsed["loss"]

    def test_the_last_row_of_the_table_is_the_answer(self) -> None:
        lines = run("plan", *FAST, *self.OPTIONS).stdout.splitlines()
        last = [each.strip() for each in [line for line in lines if line.startswith("│")][-1].split("│")[1:-1]]
        found = dl.plan(PROBLEM, 20.0, values={"width": [0.5, 1, 2]})
        lr = float(found.problem.optimizer.rates(1)[0])
        updates = found.problem.steps - 1
        assert last[:5] == [f"{each:.4g}" for each in (20.0, found.loss, found.values["width"], updates, lr)]

    def test_models_are_kept(self) -> None:
        assert run("plan", *FAST, *self.OPTIONS, "--store", "kept").exit_code == 0
        assert len(list(Path("kept").rglob("*.npz"))) == 3

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("--compute", "0.01"), "compute must be at least"),
            (("--compute", "abc"), "--compute must be a number, got 'abc'"),
            (("--over", "noise"), "over must be"),
            (("--values", "depth=1,2"), "values must be given for fields in over other than steps"),
        ],
    )
    def test_what_is_not_allowed(self, arguments: tuple[str, ...], words: str) -> None:
        assert words in refused("plan", *FAST, *arguments)
