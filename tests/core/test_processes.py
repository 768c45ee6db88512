"""Processes that work for others: what they import, and how they say that they ended."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deeplinear._core.pool import LocalProcesses, WorkerLost
from deeplinear._core.processes import command, ended

SCRIPT = """
import asyncio, json, sys, tempfile
from pathlib import Path
import mine
from deeplinear._explore.pool import Pool
from deeplinear._core.pool import LocalProcesses

async def last_answer():
    with tempfile.TemporaryDirectory() as folder:
        pool = Pool(1, 1, Path(folder))
        lines = [line async for line in pool.run("solve", {"problem": json.loads(sys.argv[1])}, 60.0)]
        await pool.close()
        return json.loads(lines[-1])

processes = LocalProcesses(1)
print(processes.submit(mine.where, None).result())
processes.close()
print(sorted(asyncio.run(last_answer())))
"""


def test_workers_run_nothing_from_the_current_folder(tmp_path: Path) -> None:
    """Files there that are called as modules are not executed; modules of the parent are found where it found them."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    for name in ("scipy", "random", "json", "queue", "numpy", "deeplinear", "mine", "sitecustomize"):
        (here / f"{name}.py").write_text(f"open('{name} was run', 'w'); raise SystemExit(3)")
    (there / "mine.py").write_text("def where(_):\n    return __file__")
    (there / "script.py").write_text(SCRIPT)
    problem = (
        '{"network": {"type": "MLP", "depth": 1, "width": 1.0}, "data": {"type": "Isotropic"}, '
        '"sampling": {"type": "FullBatch", "samples": 2.0}, "optimizer": {"type": "GradientDescent", "lr": 0.05}, '
        '"steps": 3}'
    )
    done = subprocess.run(
        [sys.executable, there / "script.py", problem], cwd=here, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [str(there / "mine.py"), "['result']"]
    assert not list(here.glob("* was run"))


def test_a_process_sees_the_path_of_its_parent_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shown.py").write_text("import sys\ndef main(): print(*sys.path, sep='\\n')")
    monkeypatch.syspath_prepend(tmp_path)
    shown = subprocess.run(command("shown"), cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == sys.path


@pytest.mark.parametrize(("code", "how"), [("exit(7)", "with exit code 7"), ("kill(getpid(), 9)", "by SIGKILL")])
def test_what_is_said_of_a_process_that_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, how: str
) -> None:
    """It ran out of memory only if it was killed."""
    (tmp_path / "dying.py").write_text(f"from os import _exit as exit, getpid, kill\ndef now(_):\n    {code}")
    monkeypatch.syspath_prepend(tmp_path)
    dying = __import__("dying")
    processes = LocalProcesses(1)
    with pytest.raises(WorkerLost, match=f"died 3 times, the last time {how}") as caught:
        processes.submit(dying.now, None).result()
    processes.close()
    assert ("out of memory" in str(caught.value)) == (how == "by SIGKILL")
    assert ended(-signal.SIGTERM) == "by SIGTERM"
