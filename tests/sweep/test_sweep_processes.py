"""Sweeps in several processes, some of which end before their time."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import deeplinear as dl
from deeplinear._core import claims as claims_module
from deeplinear._core.claims import Claims
from deeplinear._core.pool import LocalProcesses
from deeplinear._sweep import cluster as dask_cluster
from deeplinear._sweep import store
from deeplinear._sweep import sweep as _sweep
from deeplinear._sweep.sweep import open_sweep, sweep
from deeplinear._sweep.work import Task, run_task
from sweeps import counts, is_running, ladder, open_gate, pids, wait_for


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
        code = "import sys; from pathlib import Path; from deeplinear._core.claims import Claims\n"
        code += "import os; Claims(Path(sys.argv[1])).take('a'); os.kill(os.getpid(), 9)"
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
        first, second = Claims(tmp_path), Claims(tmp_path)
        assert first.take("a")
        assert not second.take("a")
        first.release("a")
        assert not list((tmp_path / "claims").iterdir())
        first.close()
        second.close()

    def test_what_a_dead_process_left_on_finished_work_is_deleted(self, problem: dl.Problem, tmp_path: Path) -> None:
        """As where it is killed when its result is written, and its claim not yet given up."""
        sweep(problem, {"lr": [0.01]}, tmp_path / "a.zarr", workers=1)
        folder = tmp_path / "a.zarr" / store.WORK_FOLDER / "claims"
        (folder / "theory-000000.0").write_text("0" * 32)
        mine = Claims(folder.parent)
        assert mine.take("theory-000001")
        sweep(problem, {"lr": [0.01]}, tmp_path / "a.zarr", workers=1)
        assert [path.name for path in folder.iterdir()] == ["theory-000001.0"]
        mine.close()

    def test_another_machine_is_given_time(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        far, near = Claims(tmp_path), Claims(tmp_path)
        assert far.take("a")
        owner = json.loads((tmp_path / "owners" / far.id).read_text())
        (tmp_path / "owners" / far.id).write_text(json.dumps(owner | {"machine": "elsewhere"}))
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

    @pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b"3", b"{}", b'{"host": 1}', b"\xff\x00", b"[" * 10**5])
    def test_an_owner_that_cannot_be_read_is_given_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, garbage: bytes
    ) -> None:
        lost, near = Claims(tmp_path), Claims(tmp_path)
        assert lost.take("a")
        (tmp_path / "owners" / lost.id).write_bytes(garbage)
        assert not near.take("a")
        monkeypatch.setattr(claims_module, "PATIENCE", 0.0)
        wait_for(lambda: near.take("a"))
        near.close()
        lost.close()

    @pytest.mark.parametrize("garbage", [b"x" * 300, b"../../x", b"\xff\x00", b"\n"])
    def test_a_claim_that_cannot_be_read_is_given_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, garbage: bytes
    ) -> None:
        near = Claims(tmp_path)
        (tmp_path / "claims" / "a.0").write_bytes(garbage)
        (tmp_path / "claims" / "a.mine").write_bytes(garbage)
        assert not near.take("a")
        monkeypatch.setattr(claims_module, "PATIENCE", 0.0)
        wait_for(lambda: near.take("a"))
        near.close()

    def test_folders_in_place_of_claims_and_owners(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(claims_module, "PATIENCE", 0.0)
        near, owner = Claims(tmp_path), "0" * 32
        (tmp_path / "claims" / "a.0").mkdir()
        (tmp_path / "claims" / "b.0").write_text(owner)
        (tmp_path / "owners" / owner).mkdir()
        for name in "ab":
            wait_for(lambda name=name: near.take(name))
        near.close()
        assert not list((tmp_path / "claims").iterdir())

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
from deeplinear._sweep.sweep import sweep
from deeplinear._sweep import sweep as module
module.run_task = counting_tasks.counted
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
        lrs = ladder(16)
        monkeypatch.setenv("COUNT_LARGEST_FREE", str(lrs[7]))
        process = self.start(problem, tmp_path, lrs)
        points = tmp_path / "a.zarr" / store.WORK_FOLDER / "points"
        # Eight are finished, and each of the two processes has begun one that it cannot finish.
        wait_for(lambda: len(list(points.glob("experiment-*"))) == 8 and len(counts(tmp_path, "begun")) == 10)
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_for(lambda: not any(map(is_running, pids(tmp_path, "begun"))))  # its processes end too
        kept = open_sweep(tmp_path / "a.zarr")
        assert kept.lr.values[kept.measured_done].tolist() == lrs[:8]

        open_gate(tmp_path)
        assert self.start(problem, tmp_path, lrs).wait() == 0
        found = open_sweep(tmp_path / "a.zarr")
        assert found.measured_done.all()
        again = [f"{lr:g}" for lr in lrs[8:10]]
        assert counts(tmp_path, "begun") == Counter({f"{lr:g}": 1 for lr in lrs} | dict.fromkeys(again, 2))
        assert not list((tmp_path / "a.zarr" / store.WORK_FOLDER / "claims").iterdir())
        np.testing.assert_array_equal(
            found.measured_test_loss,
            sweep(problem, {"lr": lrs}, theory=False, experiment={"dim": 8, "seeds": 2}, workers=1).measured_test_loss,
        )

    def test_two_processes_share_a_store(
        self, problem: dl.Problem, counting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COUNT_PROCESSES", "2")
        lrs = ladder(14)
        both = [self.start(problem, tmp_path, lrs, workers=1) for _ in range(2)]
        assert [process.wait() for process in both] == [0, 0]
        assert counts(tmp_path) == Counter({f"{lr:g}": 1 for lr in lrs})
        assert len(pids(tmp_path)) == 2
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
        monkeypatch.setattr(_sweep, "run_task", counting.counted)
        asked = iter(range(10**6))

        def is_there(processes: LocalProcesses) -> bool:  # at the third time of asking, however busy the machine is
            if next(asked) < 2:
                return False
            wait_for(lambda: not processes._idle.empty())
            return True

        monkeypatch.setattr(LocalProcesses, "is_started", property(is_there))
        found = sweep(problem, {"lr": ladder(32 * 6)})
        assert found.done.all()
        assert os.getpid() in pids(tmp_path)
        assert len(pids(tmp_path)) > 1
        assert set(counts(tmp_path).values()) == {1}

    def test_what_waits_is_not_begun_when_processes_are_ended(
        self, problem: dl.Problem, counting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An interrupted run ends at once, however much is left to do."""
        monkeypatch.setenv("COUNT_LARGEST_FREE", "0")
        pool = LocalProcesses(1)
        task = Task((problem,), np.arange(problem.steps), None)
        futures = [pool.submit(counting.counted, task) for _ in range(3)]
        wait_for(lambda: counts(tmp_path, "begun"))
        pool.close()
        assert len(pids(tmp_path, "begun")) == 1
        for future in futures:
            with pytest.raises(CancelledError):
                future.result(timeout=0)

    def test_a_killed_process_is_replaced(
        self, problem: dl.Problem, counting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COUNT_LARGEST_FREE", "0")
        pool = LocalProcesses(1)
        task = Task((problem,), np.arange(problem.steps), None)
        future = pool.submit(counting.counted, task)
        wait_for(lambda: counts(tmp_path, "begun"))
        (pid,) = pids(tmp_path, "begun")
        os.kill(pid, signal.SIGKILL)
        open_gate(tmp_path)
        np.testing.assert_array_equal(pool.result(future)["test_loss"], run_task(task)["test_loss"])
        pool.close()
        assert len(pids(tmp_path, "begun")) == 2
        assert pid not in pids(tmp_path)

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
            "import deeplinear as dl\nfrom deeplinear._sweep.sweep import sweep\n"
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

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
    def test_a_killed_worker_loses_nothing(
        self, problem: dl.Problem, cluster: Any, counting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_sweep, "run_task", counting.counted)
        lrs, killed, kept = ladder(30), [], []
        cluster_client = importlib.import_module("distributed").Client(cluster, set_as_default=False)
        cluster_client.run(_set_seconds, 0.1)

        def kill(done: int, total: int) -> None:
            if done >= 8 and not killed:
                found = open_sweep(tmp_path / "a.zarr")
                kept.extend(f"{lr:g}" for lr in found.lr.values[found.measured_done])
                killed.append(next(iter(cluster_client.run(os.getpid).values())))
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
        assert len(pids(tmp_path)) >= 2
        ended = counts(tmp_path)
        assert set(ended) == {f"{lr:g}" for lr in lrs}
        assert len(kept) >= 8
        assert all(ended[lr] == 1 for lr in kept)  # others that the worker had finished may not have been handed over
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
        monkeypatch.setattr(dask_cluster, "_ANSWER_SECONDS", 0.5)
        with pytest.raises(ConnectionError, match=r"scheduler .*127.0.0.1:9 does not answer within 0.5 s"):
            sweep(problem, {"lr": [0.1]}, tmp_path / "a.zarr", scheduler=address)
        assert not (tmp_path / "a.zarr").exists()

    def test_a_scheduler_that_accepts_and_says_nothing(self, problem: dl.Problem, tmp_path: Path) -> None:
        pytest.importorskip("distributed", reason="needs Dask: pip install 'deeplinear[sweep]'")
        problem.save(tmp_path / "problem.toml")
        script = (
            "import socket, deeplinear as dl\nfrom deeplinear._sweep.sweep import sweep\n"
            "from deeplinear._sweep import cluster\ncluster._ANSWER_SECONDS = 0.3\n"
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


def test_a_worker_imports_nothing_that_it_does_not_need() -> None:
    """What is slow to import would cost every process of a sweep about as much as a hundred short solutions."""
    code = "import sys, deeplinear._sweep.work; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "deeplinear._theory.solve" in loaded
    assert not {"xarray", "pandas", "matplotlib", "scipy.optimize", "scipy.interpolate", "torch", "rich"} & set(loaded)
