"""Sweeps whose work is counted, for tests."""

import importlib
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

COUNTING = """
import os, time, uuid
from pathlib import Path
from deeplinear._sweep.work import run_task

FOLDER = Path(os.environ["COUNT_FOLDER"])
SECONDS = float(os.environ.get("COUNT_SECONDS", "0"))
LARGEST_FREE = float(os.environ.get("COUNT_LARGEST_FREE", "inf"))
PROCESSES = int(os.environ.get("COUNT_PROCESSES", "1"))


def note(what, task):
    for problem in task.problems:
        (FOLDER / f"{what}-{problem.optimizer.lr:g}-{os.getpid()}-{uuid.uuid4().hex}").touch()


def wait_until(condition):
    while not condition():
        time.sleep(0.01)


def counted(task):
    # Larger rates than the largest free one wait for the gate, and all for as many processes as there should be.
    note("begun", task)
    if any(problem.optimizer.lr > LARGEST_FREE for problem in task.problems):
        wait_until(FOLDER.with_name("gate").exists)
    wait_until(lambda: len({path.name.split("-")[2] for path in FOLDER.glob("begun-*")}) >= PROCESSES)
    time.sleep(SECONDS)
    result = run_task(task)
    note("ended", task)
    return result


def deadly(task):
    note("begun", task)
    if (0.02, 3) in [(problem.optimizer.lr, problem.steps) for problem in task.problems]:
        os.kill(os.getpid(), 9)
    return run_task(task)
"""


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a module whose functions leave files behind, and importable in every process."""
    (tmp_path / "counting_tasks.py").write_text(COUNTING)
    (tmp_path / "counts").mkdir()
    monkeypatch.setenv("COUNT_FOLDER", str(tmp_path / "counts"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("counting_tasks", None)
    return importlib.import_module("counting_tasks")


def counts(folder: Path, what: str = "ended") -> Counter[str]:
    """How often each learning rate was computed."""
    return Counter(path.name.split("-")[1] for path in (folder / "counts").glob(f"{what}-*"))


def pids(folder: Path, what: str = "ended") -> set[int]:
    """Which processes computed something."""
    return {int(path.name.split("-")[2]) for path in (folder / "counts").glob(f"{what}-*")}


def open_gate(folder: Path) -> None:
    """Let those go on that wait."""
    (folder / "gate").touch()


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_for(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def ladder(count: int) -> list[float]:
    return [round(0.001 * (1 + index), 4) for index in range(count)]
