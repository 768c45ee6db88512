"""What surrounds the program: locale, settings of NumPy, long names, pipes, folders that cannot be written, size."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.files import read_toml_from
from deeplinear._core.progress import Line
from deeplinear._sweep import plan as plan_module
from deeplinear._sweep.plan import Plan

PROBLEM = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=6)
POWER_LAW = PROBLEM.replace(data=dl.Spectrum.power_law(1.5, 1.0), network=dl.MLP(2, 64.0), sampling=dl.FullBatch(50.0))
COMMAND = [sys.executable, "-c", "from deeplinear_command import main; main()"]


def test_toml_is_read_in_utf8_whatever_the_locale(tmp_path: Path) -> None:
    (tmp_path / "problem.toml").write_text(f"# η = 0.05, 学習率\n{PROBLEM.to_toml()}", encoding="utf-8")
    ascii_only = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code = "import sys, deeplinear as dl; dl.Problem.load('problem.toml').save('again.toml')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=ascii_only, check=True)
    assert dl.Problem.load(tmp_path / "again.toml") == PROBLEM


def test_no_text_file_is_read_or_written_by_the_locale() -> None:
    """Text of our own that has ASCII alone may be."""
    package = Path(dl.__file__).parent
    found = {
        path.name
        for path in package.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if (".read_text(" in line or ".write_text(" in line) and "utf-8" not in line
    }
    assert found <= {"claims.py", "assemble.py", "manifest.py"}


@pytest.mark.parametrize("source", ["-", "/dev/stdin"])
def test_a_problem_comes_through_a_pipe(source: str) -> None:
    text = PROBLEM.to_toml().encode()
    arguments = ["solve", "--problem", source, "--json"]
    done = subprocess.run([*COMMAND, *arguments], input=text, capture_output=True, check=True)
    assert b'"steps": 6' in done.stdout


def test_a_pipe_that_does_not_end_is_refused() -> None:
    with Path("/dev/zero").open("rb") as endless, pytest.raises(ValueError, match="x is not valid TOML: it has more"):
        read_toml_from(endless, "x")


@pytest.mark.parametrize("length", [248, 255, 256])
def test_long_names_are_refused_before_the_work_or_written(tmp_path: Path, length: int) -> None:
    name = "x" * (length - 3) + ".nc"
    done = subprocess.run(
        [*COMMAND, "solve", "--steps", "5", "--out", name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    if length <= 255:
        assert done.returncode == 0, done.stderr
        assert dl.Solution.load(tmp_path / name).problem.steps == 5
    else:
        assert done.returncode == 2
        assert "theory" not in done.stderr  # it was not begun
        assert "File name too long" in done.stderr


ASKED: dict[str, Callable[[], object]] = {
    "solve": lambda: dl.solve(PROBLEM).variance,
    "power law": lambda: dl.solve(POWER_LAW),
    "divergence": lambda: dl.solve(PROBLEM.replace(lr=5.0, steps=40)),
    "long online run": lambda: dl.solve(PROBLEM.replace(sampling=dl.OnlineSGD(0.5), steps=2500)),
    "decay": lambda: dl.solve(PROBLEM.replace(weight_decay=3.0, steps=300)),
    "networks": lambda: dl.simulate(PROBLEM, 16, 2),
    "networks that diverge": lambda: dl.simulate(PROBLEM.replace(lr=5.0, steps=300), 8, 2),
    "best rate": lambda: dl.optimal_lr(PROBLEM),
    "sharpness": lambda: dl.sharpness(PROBLEM, [1, 5], 3),
    "estimate": lambda: dl.estimate(PROBLEM.replace(sampling=dl.OnlineSGD(0.5), steps=10**5)),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_numpy_may_be_asked_to_raise(ask: Callable[[], object]) -> None:
    """Numbers that underflow are nobody's error."""
    with np.errstate(all="raise"):
        ask()


def read_only(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command that sees a folder as one that cannot be written."""
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    own = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(folder), *command]
    return subprocess.run(own, capture_output=True, text=True, check=False)


def test_a_complete_sweep_on_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    if read_only(tmp_path, "true").returncode:
        pytest.skip("this system lets no process mount folders")
    dl.sweep(PROBLEM, {"lr": [0.01, 0.02]}, tmp_path / "complete", workers=1)
    PROBLEM.save(tmp_path / "problem.toml")
    code = (
        "import sys, deeplinear as dl\n"
        "problem = dl.Problem.load(sys.argv[1] + '/problem.toml')\n"
        "found = dl.sweep(problem, {'lr': [0.01, 0.02]}, sys.argv[1] + '/complete', workers=1)\n"
        "print(bool(found.done.all()))\n"
        "dl.sweep(problem, {'lr': [0.01, 0.03]}, sys.argv[1] + '/other', workers=1)"
    )
    done = read_only(tmp_path, sys.executable, "-c", code, str(tmp_path))
    assert done.stdout == "True\n"
    assert "other cannot be read or written: Read-only file system" in done.stderr


def test_points_are_planned_without_looking_for_fields_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as fit a large sweep: what a point costs is to make its problem, and no more."""
    calls = 0
    replace = plan_module.replace

    def counted(*arguments: object) -> dl.Problem:
        nonlocal calls
        calls += 1
        return replace(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(plan_module, "replace", counted)
    plan = Plan.read(PROBLEM, {"lr": np.linspace(0.01, 0.1, 300), "width": [1.0, 2.0]}, True, None)
    assert plan.size == calls == 600
    text = str(plan.manifest())
    assert len(text) < 600 * 40


def test_a_line_of_progress_is_there_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    line = Line()
    line(0, 10_000)
    assert "0 % after" in capsys.readouterr().err
