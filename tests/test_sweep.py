"""Sweeps: what they compute, what they survive, what they refuse."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import deeplinear as dl
from deeplinear import _sweep
from deeplinear._sweep import open_sweep, sweep
from deeplinear._sweeping import claims as claims_module
from deeplinear._sweeping import drive, runners, store
from deeplinear._sweeping.claims import Claims
from deeplinear._sweeping.plan import Plan
from deeplinear._sweeping.runners import LocalProcesses
from deeplinear._sweeping.work import Task, run_task

COUNTING = """
import os, time, uuid
from pathlib import Path
from deeplinear._sweeping.work import run_task

FOLDER = Path(os.environ["COUNT_FOLDER"])
SECONDS = float(os.environ.get("COUNT_SECONDS", "0"))


def note(what, task):
    for problem in task.problems:
        (FOLDER / f"{what}-{problem.optimizer.lr:g}-{os.getpid()}-{uuid.uuid4().hex}").touch()


def counted(task):
    note("begun", task)
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
def problem() -> dl.Problem:
    return dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=6)


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a module whose functions leave files behind, and importable in every process."""
    (tmp_path / "counting_tasks.py").write_text(COUNTING)
    (tmp_path / "counts").mkdir()
    monkeypatch.setenv("COUNT_FOLDER", str(tmp_path / "counts"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("counting_tasks", None)
    return importlib.import_module("counting_tasks")


def counts(folder: Path, what: str = "ended") -> Counter[str]:
    """How often each learning rate was computed."""
    return Counter(path.name.split("-")[1] for path in (folder / "counts").glob(f"{what}-*"))


def wait_for(condition: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def ladder(count: int) -> list[float]:
    return [round(0.001 * (1 + index), 4) for index in range(count)]


class TestResults:
    def test_every_point_is_what_solve_gives(self, problem: dl.Problem) -> None:
        found = sweep(problem, {"width": [0.5, 2.0], "optimizer.lr": [0.02, 0.05], "depth": [1, 3]}, workers=1)
        assert found.test_loss.dims == ("width", "lr", "depth", "time")
        for width in (0.5, 2.0):
            for depth in (1, 3):
                each = dl.Problem(
                    dl.MLP(depth, width), problem.data, problem.sampling, dl.GradientDescent(0.02), problem.steps
                )
                expected = dl.solve(each)
                at = found.sel(width=width, lr=0.02, depth=depth)
                np.testing.assert_allclose(at.test_loss, expected.test_loss, rtol=1e-12)
                np.testing.assert_allclose(at.train_loss, expected.train_loss, rtol=1e-12)
        assert found.done.all()
        assert (found.failure == "").all()
        assert (found.diverged_at == -1).all()
        assert dl.Problem.from_toml(found.attrs["problem"]) == problem

    def test_experiment_has_mean_and_standard_error(self, problem: dl.Problem) -> None:
        found = sweep(problem, {"lr": [0.02, 50.0]}, theory=False, experiment={"dim": 20, "seeds": 3}, workers=1)
        expected = dl.simulate(dl.Problem.from_toml(problem.to_toml().replace("lr = 0.05", "lr = 0.02")), 20, 3)
        np.testing.assert_allclose(found.measured_test_loss.sel(lr=0.02), expected.mean("test_loss"))
        np.testing.assert_allclose(found.measured_train_loss_error.sel(lr=0.02), expected.standard_error("train_loss"))
        assert found.measured_diverged.values.tolist() == [0, 3]
        assert "test_loss" not in found

    def test_divergence_is_an_answer(self, problem: dl.Problem) -> None:
        found = sweep(problem, {"lr": [0.02, 50.0]}, workers=1)
        end = int(found.diverged_at.sel(lr=50.0))
        assert end > 0
        assert np.isinf(found.test_loss.sel(lr=50.0)[end:]).all()

    def test_shorter_curves_are_filled_up_with_nan(self, problem: dl.Problem) -> None:
        found = sweep(problem, {"steps": [2, 5]}, workers=1)
        assert found.sizes["time"] == 5
        assert np.isfinite(found.test_loss.sel(steps=2)).sum() == 2
        assert np.isnan(found.test_loss.sel(steps=2)[2:]).all()

    def test_long_curves_are_kept_at_some_steps(self, problem: dl.Problem) -> None:
        found = sweep(problem, {"steps": [20, 1200]}, workers=1)
        assert 200 < found.sizes["time"] < 450
        assert found.time.values[[0, -1]].tolist() == [0, 1199]
        long = dl.solve(dl.Problem(problem.network, problem.data, problem.sampling, problem.optimizer, 1200))
        for step in (0, 7, 1199):
            expected = long.at(step).test_loss
            np.testing.assert_allclose(found.test_loss.sel(steps=1200, time=step), expected, rtol=1e-10)
        assert np.isfinite(found.test_loss.sel(steps=20, time=19))
        assert np.isnan(found.test_loss.sel(steps=20)[found.time > 19]).all()

    def test_axes_of_words_lists_and_infinite_width(self, problem: dl.Problem) -> None:
        found = sweep(problem, {"parameterization": ["mup", "ntk"], "width": [1, "infinite"]}, workers=1)
        assert found.parameterization.values.tolist() == ["mup", "ntk"]
        assert found.width.values.tolist() == [1.0, np.inf]
        assert found.done.all()
        lists = sweep(problem, {"width": [[1, 2], [2, 1]], "centered": [True, False]}, workers=1)
        assert lists.width.values.tolist() == ["[1, 2]", "[2, 1]"]
        assert lists.centered.dtype == bool

    def test_a_schedule_that_is_a_function_keeps_its_values(self, problem: dl.Problem) -> None:
        schedule = dl.GradientDescent(lambda step: 0.05 / (1 + step))
        decaying = dl.Problem(problem.network, problem.data, problem.sampling, schedule, problem.steps)
        found = sweep(decaying, {"noise": [0.1, 0.3]}, workers=2)
        np.testing.assert_allclose(found.test_loss.sel(noise=0.3), dl.solve(decaying).test_loss, rtol=1e-12)

    def test_the_store_is_zarr(self, problem: dl.Problem, tmp_path: Path) -> None:
        found = sweep(problem, {"lr": [0.02, -1.0]}, tmp_path / "a.zarr", experiment={"dim": 10, "seeds": 2}, workers=1)
        with xr.open_zarr(tmp_path / "a.zarr") as opened:
            assert opened.load().identical(found)
        assert open_sweep(tmp_path / "a.zarr").identical(found)
        assert found.attrs["complete"]

    def test_progress_counts_points(self, problem: dl.Problem, tmp_path: Path) -> None:
        seen: list[tuple[int, int]] = []
        grid = {"lr": ladder(40)}
        sweep(problem, grid, tmp_path / "a.zarr", workers=1, progress=lambda *now: seen.append(now))
        assert seen[0] == (0, 40)
        assert seen[-1] == (40, 40)
        assert len(seen) > 2
        seen.clear()
        sweep(problem, grid, tmp_path / "a.zarr", progress=lambda *now: seen.append(now))
        assert set(seen) == {(40, 40)}

    def test_other_processes_give_the_same(self, problem: dl.Problem) -> None:
        grid = {"lr": ladder(40)}
        assert sweep(problem, grid, workers=2).identical(sweep(problem, grid, workers=1))


class TestFailures:
    def test_an_invalid_point_is_recorded(self, problem: dl.Problem) -> None:
        found = sweep(problem, {"width": [-1.0, 1.0]}, experiment={"dim": 10, "seeds": 2}, workers=1)
        assert "width must be" in str(found.failure.sel(width=-1.0).item())
        assert found.done.all()
        assert np.isnan(found.test_loss.sel(width=-1.0)).all()
        assert np.isfinite(found.measured_test_loss.sel(width=1.0)).all()

    def test_what_only_the_experiment_cannot_do(self, problem: dl.Problem) -> None:
        found = sweep(problem, {"width": [1.0, "infinite"]}, experiment={"dim": 10, "seeds": 2}, workers=1)
        assert (found.failure == "").all()
        assert "width" in str(found.measured_failure.sel(width=np.inf).item())

    def test_an_error_in_a_batch_costs_one_point(self, problem: dl.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
        from deeplinear._sweeping import work

        def solve(problems: Any) -> Any:
            if any(each.optimizer.lr == 0.003 for each in problems):
                raise ArithmeticError("not resolved")
            return dl.solve(problems)

        monkeypatch.setattr(work, "solve", solve)
        found = sweep(problem, {"lr": ladder(6)}, workers=1)
        assert found.failure.values.tolist() == ["", "", "ArithmeticError: not resolved", "", "", ""]
        assert np.isfinite(found.test_loss).all("time").sum() == 5

    def test_want_of_memory_is_tried_again(
        self, problem: dl.Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from deeplinear import _memory

        grid, path = {"lr": [0.01], "steps": [3, 4]}, tmp_path / "a.zarr"
        available = _memory.require

        def require(*arguments: Any) -> None:
            raise MemoryError("too large")

        monkeypatch.setattr(_memory, "require", require)
        assert (sweep(problem, grid, path, workers=1).failure == "MemoryError: too large").all()
        monkeypatch.setattr(_memory, "require", available)
        assert (sweep(problem, grid, path, workers=1).failure == "").all()
        assert (xr.open_zarr(path).failure == "").all()

    def test_a_point_that_kills_its_process_is_recorded(
        self, problem: dl.Problem, counting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(drive, "run_task", counting.deadly)
        monkeypatch.setattr(runners, "ATTEMPTS", 2)
        found = sweep(problem, {"lr": [0.02, 0.03], "steps": [3, 4]}, workers=2)
        assert "died 2 times" in str(found.failure.sel(lr=0.02, steps=3).item())
        assert (found.failure == "").sum() == 3
        assert counts(tmp_path, "begun")["0.02"] == 1 + 2 * runners.ATTEMPTS  # with the other lr, and alone

    def test_a_damaged_file_is_computed_again(self, problem: dl.Problem, tmp_path: Path) -> None:
        path, grid = tmp_path / "a.zarr", {"lr": [0.01, 0.02], "steps": [3, 4]}
        first = sweep(problem, grid, path, workers=1)
        file = next((path / store.WORK_FOLDER / "points").iterdir())
        file.write_bytes(file.read_bytes()[:50])
        assert not open_sweep(path).done.all()
        assert sweep(problem, grid, path, workers=1).identical(first)


class TestRefusals:
    @pytest.mark.parametrize(
        ("grid", "words"),
        [
            ({"speed": [1]}, "grid: 'speed' is not a field of this problem; allowed: depth, width"),
            ({}, "grid must be a mapping from one or more fields"),
            ([1, 2], "grid must be a mapping"),
            ({"lr": []}, r"grid\['lr'\] must have one value or more"),
            ({"lr": 0.1}, r"grid\['lr'\] must be a sequence"),
            ({"parameterization": "mup"}, r"grid\['parameterization'\] must be a sequence"),
            ({"lr": [0.1, 0.1]}, r"grid\['lr'\] must have distinct values"),
            ({"width": [1, 1.0]}, r"grid\['width'\] must have distinct values"),
            ({"lr": [0.1], "optimizer.lr": [0.2]}, "grid must have every field once, got optimizer.lr twice"),
            ({"lr": [lambda step: 0.1]}, r"grid\['lr'\]\[0\] must be a number or one number per step"),
            ({"lr": [dl.Isotropic()]}, r"grid\['lr'\]\[0\] must be a number"),
            ({"lr": [-1.0, 0.0]}, "every point of the grid is invalid; the first: ValueError: lr must be"),
        ],
    )
    def test_grids(self, problem: dl.Problem, grid: Any, words: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=words):
            sweep(problem, grid, tmp_path / "a.zarr")
        assert not (tmp_path / "a.zarr").exists()

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"theory": False}, "theory must be True where experiment is None"),
            ({"theory": 1}, "theory must be True or False"),
            ({"experiment": {"dim": 3, "workers": 2}}, "experiment must be a dict of dim and seeds"),
            ({"experiment": {"dim": 0}}, r"experiment\['dim'\] must be a whole number"),
            ({"experiment": {"dim": 3, "seeds": 0}}, "seeds must be a whole number"),
            ({"workers": 0}, "workers must be a whole number"),
            ({"workers": 2, "scheduler": "tcp://127.0.0.1:1"}, "workers must be None with a scheduler"),
            ({"store": "s3://bucket/a.zarr"}, "store must be the path of a folder"),
            ({"resume": "yes"}, "resume must be True or False"),
        ],
    )
    def test_arguments(self, problem: dl.Problem, arguments: dict[str, Any], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            sweep(problem, {"lr": [0.1]}, **arguments)

    def test_not_a_problem(self) -> None:
        with pytest.raises(ValueError, match="problem must be a Problem"):
            sweep("problem", {"lr": [0.1]})  # type: ignore[arg-type]

    def test_a_store_of_another_sweep(self, problem: dl.Problem, tmp_path: Path) -> None:
        path = tmp_path / "a.zarr"
        first = sweep(problem, {"lr": [0.1]}, path, workers=1)
        with pytest.raises(ValueError, match="holds another sweep: it differs in grid"):
            sweep(problem, {"lr": [0.1, 0.2]}, path)
        with pytest.raises(ValueError, match="holds another sweep: it differs in experiment"):
            sweep(problem, {"lr": [0.1]}, path, experiment={"dim": 10})
        with pytest.raises(ValueError, match="holds this sweep already"):
            sweep(problem, {"lr": [0.1]}, path, resume=False)
        assert open_sweep(path).identical(first)

    def test_a_store_that_is_something_else(self, problem: dl.Problem, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "mine").write_text("mine")
        with pytest.raises(ValueError, match="store must be a folder, got the file"):
            sweep(problem, {"lr": [0.1]}, tmp_path / "file")
        with pytest.raises(ValueError, match="has something else in it"):
            sweep(problem, {"lr": [0.1]}, tmp_path / "folder")
        with pytest.raises(ValueError, match="store must hold a sweep"):
            open_sweep(tmp_path / "folder")
        with pytest.raises(OSError, match="cannot be written: Not a directory"):
            sweep(problem, {"lr": [0.1]}, tmp_path / "file" / "a.zarr")
        assert (tmp_path / "file").read_text() == (tmp_path / "folder" / "mine").read_text() == "mine"

    def test_a_store_that_cannot_be_written(
        self, problem: dl.Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "mkdir", refuse)
        with pytest.raises(OSError, match=r"store .*a\.zarr cannot be written: Permission denied"):
            sweep(problem, {"lr": [0.1]}, tmp_path / "a.zarr")

    def test_a_full_disk_loses_nothing(
        self, problem: dl.Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, grid, calls = tmp_path / "a.zarr", {"lr": [0.01], "steps": [3, 4, 5]}, []
        write = store.write_atomically

        def full(*arguments: Any) -> None:
            calls.append(arguments)
            if len(calls) > 1:
                raise OSError(28, "No space left on device")
            write(*arguments)

        monkeypatch.setattr(store, "write_atomically", full)
        with pytest.raises(OSError, match="No space left"):
            sweep(problem, grid, path, workers=1)
        monkeypatch.undo()
        assert open_sweep(path).done.sum() == 1
        assert sweep(problem, grid, path, workers=1).done.all()

    def test_zarr_is_needed_for_a_store_only(self, problem: dl.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_sweep, "find_spec", lambda name: None)
        with pytest.raises(ImportError, match=r"pip install 'deeplinear\[sweep\]'"):
            sweep(problem, {"lr": [0.1]}, "a.zarr")
        assert sweep(problem, {"lr": [0.1]}, workers=1).done.all()


class TestClaims:
    def test_one_of_two_gets_it(self, tmp_path: Path) -> None:
        first, second = Claims(tmp_path), Claims(tmp_path)
        assert first.take("a")
        assert not second.take("a")
        first.release("a")
        assert second.take("a")
        second.close()
        assert first.take("a")
        first.close()
        assert not list((tmp_path / "claims").iterdir())
        assert not list((tmp_path / "owners").iterdir())

    def test_what_a_dead_process_had_is_taken_over_once(self, tmp_path: Path) -> None:
        code = "import sys; from pathlib import Path; from deeplinear._sweeping.claims import Claims\n"
        code += "import os; Claims(Path(sys.argv[1])).take('a'); os.kill(os.getpid(), 9)"
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
        first, second = Claims(tmp_path), Claims(tmp_path)
        assert first.take("a")
        assert not second.take("a")
        first.release("a")
        assert not list((tmp_path / "claims").iterdir())
        first.close()
        second.close()

    def test_another_machine_is_given_time(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        far, near = Claims(tmp_path), Claims(tmp_path)
        assert far.take("a")
        owner = json.loads((tmp_path / "owners" / far.id).read_text())
        (tmp_path / "owners" / far.id).write_text(json.dumps(owner | {"host": "elsewhere", "pid": 0}))
        assert not near.take("a")
        monkeypatch.setattr(claims_module, "PATIENCE", 0.1)
        assert not near.take("a")
        time.sleep(0.05)
        os.utime(tmp_path / "owners" / far.id)  # a sign of life
        assert not near.take("a")
        time.sleep(0.15)
        assert near.take("a")
        near.close()
        far.close()

    def test_signs_of_life_are_given(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(claims_module, "HEARTBEAT", 0.02)
        claims = Claims(tmp_path)
        before = (tmp_path / "owners" / claims.id).stat().st_mtime_ns
        wait_for(lambda: (tmp_path / "owners" / claims.id).stat().st_mtime_ns > before)
        claims.close()


class TestInterruptions:
    SCRIPT = """
import sys
import counting_tasks
import deeplinear as dl
from deeplinear._sweep import sweep
from deeplinear._sweeping import drive
drive.run_task = counting_tasks.counted
problem = dl.Problem.load(sys.argv[1])
lrs = [float(lr) for lr in sys.argv[3].split(",")]
sweep(problem, {"lr": lrs}, sys.argv[2], theory=False, experiment={"dim": 8, "seeds": 2}, workers=int(sys.argv[4]))
"""

    def start(self, problem: dl.Problem, folder: Path, lrs: list[float], workers: int = 2) -> "subprocess.Popen[bytes]":
        problem.save(folder / "problem.toml")
        (folder / "script.py").write_text(self.SCRIPT)
        text = ",".join(map(str, lrs))
        arguments = ["script.py", "problem.toml", "a.zarr", text, str(workers)]
        return subprocess.Popen([sys.executable, *arguments], cwd=folder)

    def test_sigkill_loses_nothing_and_repeats_nothing(
        self, problem: dl.Problem, counting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COUNT_SECONDS", "0.1")
        lrs = ladder(16)
        process = self.start(problem, tmp_path, lrs)
        points = tmp_path / "a.zarr" / store.WORK_FOLDER / "points"
        wait_for(lambda: points.is_dir() and len(list(points.glob("experiment-*"))) >= 5)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept = open_sweep(tmp_path / "a.zarr")
        done = [f"{lr:g}" for lr in kept.lr.values[kept.measured_done]]
        assert 5 <= len(done) < 16
        begun = counts(tmp_path, "begun")
        time.sleep(0.3)
        assert counts(tmp_path, "begun") == begun  # its processes are gone too

        assert self.start(problem, tmp_path, lrs).wait() == 0
        found = open_sweep(tmp_path / "a.zarr")
        assert found.measured_done.all()
        again = counts(tmp_path, "begun")
        assert all(again[lr] == 1 for lr in done), "what was finished was computed again"
        assert sum(again.values()) <= len(lrs) + 4  # nothing but what was under way
        assert not list((tmp_path / "a.zarr" / store.WORK_FOLDER / "claims").iterdir())
        np.testing.assert_array_equal(
            found.measured_test_loss,
            sweep(problem, {"lr": lrs}, theory=False, experiment={"dim": 8, "seeds": 2}, workers=1).measured_test_loss,
        )

    def test_two_processes_share_a_store(
        self, problem: dl.Problem, counting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COUNT_SECONDS", "0.3")
        lrs = ladder(14)
        both = [self.start(problem, tmp_path, lrs, workers=1) for _ in range(2)]
        assert [process.wait() for process in both] == [0, 0]
        assert counts(tmp_path) == Counter({f"{lr:g}": 1 for lr in lrs})
        pids = {path.name.split("-")[2] for path in (tmp_path / "counts").glob("ended-*")}
        assert len(pids) == 2
        with xr.open_zarr(tmp_path / "a.zarr") as opened:
            assert opened.measured_done.all()

    def test_an_interrupt_keeps_what_is_finished(self, problem: dl.Problem, tmp_path: Path) -> None:
        def interrupt(done: int, total: int) -> None:
            if done:
                raise KeyboardInterrupt

        grid = {"lr": [0.01], "steps": [3, 4, 5]}
        with pytest.raises(KeyboardInterrupt):
            sweep(problem, grid, tmp_path / "a.zarr", workers=1, progress=interrupt)
        assert open_sweep(tmp_path / "a.zarr").done.sum() == 1
        assert not list((tmp_path / "a.zarr" / store.WORK_FOLDER / "claims").iterdir())
        assert sweep(problem, grid, tmp_path / "a.zarr", workers=1).done.all()


class TestLocalProcesses:
    def test_a_sweep_moves_to_other_processes_when_they_are_there(
        self, problem: dl.Problem, counting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_sweep, "_TRIAL_SECONDS", 0.0)
        monkeypatch.setattr(_sweep, "_WORTH_SECONDS", 0.0)
        monkeypatch.setattr(_sweep, "count_cores", lambda: 2)
        monkeypatch.setattr(counting, "SECONDS", 0.3)  # here only
        monkeypatch.setattr(drive, "run_task", counting.counted)
        found = sweep(problem, {"lr": ladder(32 * 12)})
        assert found.done.all()
        pids = {int(path.name.split("-")[2]) for path in (tmp_path / "counts").glob("ended-*")}
        assert os.getpid() in pids
        assert len(pids) > 1
        assert set(counts(tmp_path).values()) == {1}

    def test_a_killed_process_is_replaced(
        self, problem: dl.Problem, counting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COUNT_SECONDS", "0.5")
        pool = LocalProcesses(1)
        task = Task((problem,), np.arange(problem.steps), None)
        future = pool.submit(counting.counted, task)
        wait_for(lambda: counts(tmp_path, "begun"))
        pid = int(next((tmp_path / "counts").glob("begun-*")).name.split("-")[2])
        os.kill(pid, signal.SIGKILL)
        np.testing.assert_array_equal(pool.result(future)["test_loss"], run_task(task)["test_loss"])
        pool.close()

    def test_a_process_that_cannot_start_is_an_error(
        self, problem: dl.Problem, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        pool = LocalProcesses(1)
        with pytest.raises(RuntimeError, match="a worker process could not start"):
            pool.result(pool.submit(run_task, Task((problem,), np.arange(problem.steps), None)))
        pool.close()

    def test_a_script_needs_no_main_guard(self, problem: dl.Problem, tmp_path: Path) -> None:
        problem.save(tmp_path / "problem.toml")
        (tmp_path / "plain.py").write_text(
            "import deeplinear as dl\nfrom deeplinear._sweep import sweep\n"
            "found = sweep(dl.Problem.load('problem.toml'), {'steps': [2, 3], 'lr': [0.1]}, workers=2)\n"
            "print(int(found.done.sum()))"
        )
        done = subprocess.run([sys.executable, "plain.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("2\n", "")


class TestDask:
    """A real cluster: several processes on this machine, which talk over loopback."""

    @pytest.fixture
    def cluster(self, counting: Any) -> Any:
        distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'deeplinear[sweep]'")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
        ) as cluster:
            yield cluster

    @pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
    def test_a_killed_worker_loses_nothing(
        self, problem: dl.Problem, cluster: Any, counting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(drive, "run_task", counting.counted)
        lrs, killed = ladder(30), []
        cluster_client = importlib.import_module("distributed").Client(cluster, set_as_default=False)
        cluster_client.run(_set_seconds, 0.1)

        def kill(done: int, total: int) -> None:
            if done >= 8 and not killed:
                pids = cluster_client.run(os.getpid)
                killed.append(next(iter(pids.values())))
                os.kill(killed[0], signal.SIGKILL)

        found = sweep(
            problem,
            {"lr": lrs},
            tmp_path / "a.zarr",
            theory=False,
            experiment={"dim": 8, "seeds": 2},
            scheduler=cluster_client,
            progress=kill,
        )
        cluster_client.close()
        assert killed
        assert found.measured_done.all()
        assert (found.measured_failure == "").all()
        pids = {path.name.split("-")[2] for path in (tmp_path / "counts").glob("ended-*")}
        assert len(pids) >= 2
        ended = counts(tmp_path)
        assert set(ended) == {f"{lr:g}" for lr in lrs}
        # At most what the worker had finished and not handed over yet.
        assert sum(ended.values()) <= len(lrs) + 1
        expected = sweep(problem, {"lr": lrs}, theory=False, experiment={"dim": 8, "seeds": 2}, workers=1)
        np.testing.assert_array_equal(found.measured_test_loss, expected.measured_test_loss)

    def test_an_address_is_enough(self, problem: dl.Problem, cluster: Any) -> None:
        grid = {"lr": ladder(40)}
        found = sweep(problem, grid, scheduler=cluster.scheduler_address)
        assert found.identical(sweep(problem, grid, workers=1))

    @pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "127.0.0.1:9"])
    def test_a_scheduler_that_does_not_answer(
        self, problem: dl.Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
    ) -> None:
        pytest.importorskip("distributed", reason="needs Dask: pip install 'deeplinear[sweep]'")
        monkeypatch.setattr(runners, "_ANSWER_SECONDS", 0.5)
        with pytest.raises(ConnectionError, match=r"scheduler .*127.0.0.1:9 does not answer within 0.5 s"):
            sweep(problem, {"lr": [0.1]}, tmp_path / "a.zarr", scheduler=address)
        assert not (tmp_path / "a.zarr").exists()

    def test_a_scheduler_that_accepts_and_says_nothing(self, problem: dl.Problem, tmp_path: Path) -> None:
        pytest.importorskip("distributed", reason="needs Dask: pip install 'deeplinear[sweep]'")
        problem.save(tmp_path / "problem.toml")
        script = (
            "import socket, deeplinear as dl\nfrom deeplinear._sweep import sweep\n"
            "from deeplinear._sweeping import runners\nrunners._ANSWER_SECONDS = 0.3\n"
            "silent = socket.create_server(('127.0.0.1', 0))\n"
            "address = f'tcp://127.0.0.1:{silent.getsockname()[1]}'\n"
            "sweep(dl.Problem.load('problem.toml'), {'lr': [0.1]}, scheduler=address)"
        )
        ended = subprocess.run(
            [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30
        )
        assert ended.returncode == 1
        assert "does not answer within 0.3 s" in ended.stderr.splitlines()[-1]

    @pytest.mark.parametrize("scheduler", [3, "nonsense://x"])
    def test_what_is_no_scheduler(self, problem: dl.Problem, scheduler: Any) -> None:
        pytest.importorskip("distributed", reason="needs Dask: pip install 'deeplinear[sweep]'")
        with pytest.raises(ValueError, match="scheduler must be an address"):
            sweep(problem, {"lr": [0.1]}, scheduler=scheduler)


def _set_seconds(seconds: float) -> None:
    module = importlib.import_module("counting_tasks")
    module.SECONDS = seconds  # type: ignore[attr-defined]


def test_batches_do_not_depend_on_who_asks(problem: dl.Problem) -> None:
    plan = Plan.read(problem, {"lr": ladder(100), "depth": [1, 2]}, True, {"dim": 5, "seeds": 2})
    members = [index for batch in plan.batches if batch.kind == "theory" for index in batch.members]
    assert sorted(members) == list(range(200))
    assert max(len(batch.members) for batch in plan.batches) <= 32
    again = Plan.from_manifest(json.loads(json.dumps(plan.manifest())))
    assert again.batches == plan.batches


def test_a_worker_imports_nothing_that_it_does_not_need() -> None:
    """What is slow to import would cost every process of a sweep about as much as a hundred short solutions."""
    code = "import sys, deeplinear._sweeping.work; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "deeplinear._solve" in loaded
    assert not {"xarray", "pandas", "matplotlib", "scipy.optimize", "scipy.interpolate", "torch", "rich"} & set(loaded)
