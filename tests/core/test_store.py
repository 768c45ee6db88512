"""Results in a folder: those of two builds are never mixed, whatever keeps them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core import build, pool, store
from deeplinear._core.build import OtherBuild, run_as
from deeplinear._core.store import ARRAYS, Store
from deeplinear._sweep import plan as sweep_plan
from deeplinear._sweep import sweep as sweep_module

PROBLEM = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=5)
GRID = {"steps": [2, 3, 4, 5]}


def another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (store, pool, sweep_plan):
        monkeypatch.setattr(module, "this_build", lambda: "99.0")


def swept(path: Path) -> Any:
    return dl.sweep(PROBLEM, GRID, path, workers=1)


def planned(path: Path) -> Any:
    return dl.plan(PROBLEM.replace(sampling=dl.OnlineSGD(0.5)), 20.0, values={"width": [0.5, 1.0]}, store=path)


def drawn(path: Path) -> Any:
    return dl.reproduce(["1c"], scale="tiny", out=path)


KEPT = {"sweep": swept, "plan": planned, "figures": drawn}


@pytest.mark.parametrize("ask", KEPT.values(), ids=KEPT)
def test_results_of_two_builds_are_not_mixed(
    ask: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is refused, with the choice to keep both or to start anew."""
    ask(tmp_path)
    monkeypatch.setattr(sweep_module, "run_task", None)
    ask(tmp_path)  # nothing is computed again
    monkeypatch.undo()
    here = build.this_build()
    another_build(monkeypatch)
    with pytest.raises(OtherBuild) as refused:
        ask(tmp_path)
    assert f"has results of deeplinear {here}, with which those of this deeplinear 99.0 are not mixed" in str(
        refused.value
    )
    assert "choose another store to keep both, or delete this one to start anew" in str(refused.value)
    ask(tmp_path / "of its own")


def test_a_sweep_that_was_stopped_is_not_finished_by_another_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if what describes it is lost; reading it is allowed."""

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dl.sweep(PROBLEM, GRID, tmp_path / "a", workers=1, progress=stop)
    another_build(monkeypatch)
    with pytest.raises(OtherBuild):
        swept(tmp_path / "a")
    assert dl.open_sweep(tmp_path / "a").done.sum() == 2
    (tmp_path / "a" / ".deeplinear" / "manifest.json").unlink()
    with pytest.raises(OtherBuild):
        swept(tmp_path / "a")
    monkeypatch.undo()
    assert swept(tmp_path / "a").done.all()


@pytest.mark.parametrize("name", ["method", "tolerance"])
def test_how_theory_is_solved_belongs_to_a_sweep(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept(tmp_path)
    monkeypatch.setattr(sweep_plan, "SOLVED", sweep_plan.SOLVED | {name: "other"})
    with pytest.raises(ValueError, match="holds another sweep: it differs in solved"):
        swept(tmp_path)


def test_a_worker_of_another_build_is_refused() -> None:
    assert run_as(build.this_build(), abs, -3) == 3
    with pytest.raises(OtherBuild, match=r"a worker runs deeplinear .*, and this is deeplinear 99.0"):
        run_as("99.0", abs, -3)


def test_a_local_worker_of_another_build_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the source changes between two starts of processes."""
    monkeypatch.setattr(pool, "this_build", lambda: "99.0")
    with pytest.raises(OtherBuild, match=r"a worker runs deeplinear .*, and this is deeplinear 99.0"):
        dl.sweep(PROBLEM, GRID, workers=2)


def test_a_build_is_known_by_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "src" / "deeplinear"
    for name in ("_theory/solve.py", "_plots/plot.py"):
        (package / name).parent.mkdir(parents=True)
        (package / name).write_text("1")
    monkeypatch.setattr(build, "_PACKAGE", package)
    find = build.this_build.__wrapped__
    assert find() == dl.__version__  # installed
    (tmp_path / "pyproject.toml").touch()
    first = find()
    assert first.startswith(f"{dl.__version__} (source ")
    (package / "_plots" / "plot.py").write_text("2")  # which computes nothing
    assert find() == first
    (package / "_theory" / "solve.py").write_text("2")
    assert find() != first


def test_what_is_complete_is_only_read(tmp_path: Path) -> None:
    """So that it may be in a folder that cannot be written."""

    def opened() -> Store[Any]:
        return Store(tmp_path, tmp_path, tmp_path / "work", {"a": "1"}, ARRAYS)

    first = opened()
    assert not list(tmp_path.iterdir())
    assert first.take("a")
    first.put("a", {"x": np.arange(3.0)})
    first.close()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    second = opened()
    ((name, value),) = second.results()
    assert (name, value["x"].tolist()) == ("a", [0.0, 1.0, 2.0])
    assert second.is_done("a")
    second.close()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
