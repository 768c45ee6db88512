"""Files of results: a full disk, files that are damaged, and results on their way between processes."""

import copy
import gc
import json
import os
import pickle
import re
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import deeplinear as dl
from factories import maker

make = maker("steps", depth=2, width=1.0, noise=0.3, sampling=dl.FullBatch(2.0), lr=0.05, steps=6)


OBSERVABLES = [
    *("times", "test_loss", "train_loss", "kernel"),
    *("feature_correlation", "gradient_correlation", "error_correlation", "residual_correlation"),
    *("feature_response", "gradient_response", "error_response", "residual_response"),
]


def assert_same(found: dl.Solution, expected: dl.Solution, names: list[str] = OBSERVABLES) -> None:
    for name in names:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    assert found.status == expected.status
    assert found.stats == expected.stats
    np.testing.assert_array_equal(found.decomposition.bias, expected.decomposition.bias)
    np.testing.assert_array_equal(found.variance.interaction, expected.variance.interaction)


@pytest.mark.skipif(os.name != "posix", reason="needs permissions of POSIX")
def test_files_have_the_permissions_of_any_other_file(tmp_path: Path) -> None:
    problem, before = make(), os.umask(0o027)
    try:
        problem.save(tmp_path / "problem.toml")
        assert os.umask(0o027) == 0o027, "the umask of the process is left as it is"
    finally:
        os.umask(before)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["run.foo", "run.png", "run"])
def test_results_are_saved_under_the_name_of_their_format(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"path must end in \.nc, got '.*{re.escape(name)}'"):
        dl.solve(make()).save(tmp_path / name)
    assert not list(tmp_path.iterdir())


class TestFullDisk:
    SCRIPT = """
import os, resource, signal, sys
import deeplinear as dl

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then to write more is an error, as on a disk that is full
problem = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=40)
results = {"theory.nc": dl.solve(problem), "networks.nc": dl.simulate(problem, dim=10, seeds=2)}
for name, result in results.items():
    for size in (0, 1000, 10_000, 50_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        try:
            result.save(name)
        except OSError as error:
            print(error.strerror)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert not [each for each in os.listdir() if each != "script.py"], os.listdir()
for name, result in results.items():
    result.save(name)
"""

    def test_to_save_raises_and_the_process_lives(self, tmp_path: Path) -> None:
        pytest.importorskip("resource")
        (tmp_path / "script.py").write_text(self.SCRIPT)
        command = [sys.executable, "-B", "script.py"]  # kept bytecode would be cut off too, in silence
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout.splitlines() == ["File too large"] * 8
        assert dl.Solution.load(tmp_path / "theory.nc").problem.steps == 40
        assert dl.Ensemble.load(tmp_path / "networks.nc").dim == 10


class TestDamage:
    @pytest.fixture(params=["theory", "networks"])
    def saved(self, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path]:
        result = dl.solve(make()) if request.param == "theory" else dl.simulate(make(), dim=10, seeds=2)
        path = tmp_path / "result.nc"
        result.save(path)
        return type(result), path

    def test_every_kind_of_damage_is_seen(self, saved: tuple[Any, Path]) -> None:
        """One wrong bit, anywhere, is damage; in the line at the end it may go unseen, and does no harm."""
        kind, path = saved
        whole = path.read_bytes()
        expected = kind.load(path).test_loss
        rng = np.random.default_rng(1)
        for place in rng.integers(0, len(whole) - 200, 40):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << rng.integers(8)
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=r"result.nc is damaged: its content has changed"):
                kind.load(path)
        for place in range(len(whole) - 98, len(whole), 7):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            try:
                np.testing.assert_array_equal(kind.load(path).test_loss, expected)
            except ValueError as error:
                assert "result.nc is damaged" in str(error)  # noqa: PT017

    @pytest.mark.parametrize("content", [b"", b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"{}", bytes(5000)])
    def test_other_content_is_refused(self, saved: tuple[Any, Path], content: bytes) -> None:
        kind, path = saved
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"result.nc is not a deeplinear.* file, or it is damaged"):
            kind.load(path)

    def test_a_truncated_file_is_refused(self, saved: tuple[Any, Path]) -> None:
        kind, path = saved
        whole = path.read_bytes()
        for length in np.linspace(0, len(whole) - 100, 11).astype(int):
            path.write_bytes(whole[:length])
            with pytest.raises(ValueError, match=r"result.nc is not a deeplinear.* file, or it is damaged"):
                kind.load(path)

    def test_what_is_missing_is_named(self, saved: tuple[Any, Path]) -> None:
        kind, path = saved
        dataset = xr.load_dataset(path, engine="h5netcdf")
        needed = {"problem", "stats"} | ({"diverged_at", "axis", "solver"} if kind is dl.Solution else {"dim"})
        for name in needed:
            without = dataset.copy()
            without.attrs = {key: value for key, value in dataset.attrs.items() if key != name}
            without.to_netcdf(path, engine="h5netcdf")
            with pytest.raises(ValueError, match=rf"result.nc is not complete: it has no attribute {name}; a complete"):
                kind.load(path)
        for variable in ("test_loss", "time"):
            dataset.drop_vars(variable).to_netcdf(path, engine="h5netcdf")
            with pytest.raises(ValueError, match=rf"complete: it has no variable {variable}; a complete .* train_loss"):
                kind.load(path)
        dataset.drop_attrs().to_netcdf(path, engine="h5netcdf")
        with pytest.raises(ValueError, match=r"is not a deeplinear.* file: its kind is None"):
            kind.load(path)

    def test_a_solution_of_a_version_without_a_step_of_the_status_is_read(self, tmp_path: Path) -> None:
        problem = dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(), dl.FullBatch(2.0), dl.GradientDescent(0.1), steps=3)
        solution, path = dl.solve(problem), tmp_path / "result.nc"
        solution.save(path)
        dataset = xr.load_dataset(path, engine="h5netcdf")
        del dataset.attrs["rounding_at"]
        dataset.to_netcdf(path, engine="h5netcdf")
        again = dl.Solution.load(path)
        assert again.status == solution.status == dl.Status()
        np.testing.assert_array_equal(again.test_loss, solution.test_loss)

    def test_what_makes_no_sense_is_refused(self, saved: tuple[Any, Path]) -> None:
        kind, path = saved
        dataset = xr.load_dataset(path, engine="h5netcdf")
        number = "diverged_at" if kind is dl.Solution else "dim"
        for name, value in (("problem", "steps = "), ("problem", 3), ("stats", "{"), ("stats", "3"), (number, "many")):
            dataset.assign_attrs({name: value}).to_netcdf(path, engine="h5netcdf")
            with pytest.raises(ValueError, match=r"result.nc cannot be read: "):
                kind.load(path)
        turned = dataset.drop_vars("test_loss").assign(test_loss=("other", [1.0, 2.0]))
        turned.to_netcdf(path, engine="h5netcdf")
        with pytest.raises(ValueError, match=r"nc cannot be read: test_loss must have the axes .*, got \('other'"):
            kind.load(path)

    def test_values_are_checked_against_the_problem(self, saved: tuple[Any, Path]) -> None:
        """Losses of nan, below zero, infinite before a divergence, or of another number of steps are refused."""
        kind, path = saved
        whole = path.read_bytes()
        for name in ("test_loss", "train_loss", *(("kernel", "bias", "label_noise") if kind is dl.Solution else ())):
            for value in (np.nan, -5.0, np.inf):
                path.write_bytes(whole)
                with h5py.File(path, "r+") as file:
                    file[name][..., 3] = value
                with pytest.raises(ValueError, match=f"nc cannot be read: {name} must be numbers .* zero or above"):
                    kind.load(path)
        path.write_bytes(whole)
        dataset = xr.load_dataset(path, engine="h5netcdf")
        for steps in (20, 99_999_999, 10**15):
            more = re.sub("^steps = .*", f"steps = {steps}", dataset.attrs["problem"])
            dataset.assign_attrs(problem=more).to_netcdf(path, engine="h5netcdf")
            with pytest.raises(ValueError, match=f"axis must be that of {steps} steps|time .* from 0 to {steps - 1}"):
                kind.load(path)
            if kind is dl.Solution:
                axes = [{"kind": "every step", "steps": steps}, {"kind": "merged steps", "steps": steps}]
                axes[1] |= {"exact": 10**15, "intervals": 10**15}
                for axis in axes:
                    changed = dataset.assign_attrs(problem=more, axis=json.dumps(axis))
                    changed.to_netcdf(path, engine="h5netcdf")
                    with pytest.raises(ValueError, match=f"axis must be that of {steps} steps at"):
                        kind.load(path)
        fewer = dataset.isel(layer=slice(1, None))
        fewer.to_netcdf(path, engine="h5netcdf")
        with pytest.raises(ValueError, match=r"nc cannot be read: feature_correlation must be of shape"):
            kind.load(path)

    def test_what_stands_in_another_file_is_not_read(self, saved: tuple[Any, Path], tmp_path: Path) -> None:
        kind, path = saved
        shape = dict(kind.load(path).to_xarray()["test_loss"].sizes)
        elsewhere = tmp_path / "secret"
        elsewhere.write_bytes(bytes(8 * int(np.prod(list(shape.values())))))
        whole = path.read_bytes()

        def external(file: Any) -> None:
            file.create_dataset("test_loss", (*shape.values(),), "f8", external=[(str(elsewhere), 0, 10**6)])

        def linked(file: Any) -> None:
            file["test_loss"] = h5py.ExternalLink(str(elsewhere), "/a")

        def virtual(file: Any) -> None:
            layout = h5py.VirtualLayout((*shape.values(),), "f8")
            layout[...] = h5py.VirtualSource(str(elsewhere), "a", (*shape.values(),))
            file.create_virtual_dataset("test_loss", layout)

        for change in (external, linked, virtual, lambda file: file.create_group("test_loss")):
            path.write_bytes(whole)
            with h5py.File(path, "r+") as file:
                del file["test_loss"]
                change(file)
            with pytest.raises(ValueError, match=r"or it is damaged: test_loss is not stored in it"):
                kind.load(path)

    def test_a_small_file_does_not_take_gigabytes(self, saved: tuple[Any, Path]) -> None:
        """Unknown names are not read, and what is read is not much larger than the file."""
        kind, path = saved
        with h5py.File(path, "r+") as file:
            file.create_dataset("unknown", (10**9,), "f8", chunks=(10**6,), compression="gzip")
            file.create_group("others")["mine"] = h5py.ExternalLink("/dev/zero", "/a")
            file.attrs["array"] = np.zeros(1000)
        assert kind.load(path).problem == make()
        with h5py.File(path, "r+") as file:
            del file["error_correlation"]
            file.create_dataset("error_correlation", (20_000, 40_000), "f8", chunks=(1000, 1000), compression="gzip")
        with pytest.raises(ValueError, match=r"or it is damaged: it is .* MB long, .* would take 6.4e\+03 MB"):
            kind.load(path)

    @pytest.mark.parametrize("deep", ["a = " + 5000 * "[" + 5000 * "]", "[network.width" + 5000 * ".a" + "]"])
    def test_nesting_is_refused_with_a_sentence(self, saved: tuple[Any, Path], deep: str) -> None:
        kind, path = saved
        with h5py.File(path, "r+") as file:
            file.attrs["problem"] = deep
        with pytest.raises(ValueError, match=r"nc cannot be read: tables and lists are nested more than 32 times"):
            kind.load(path)
        with pytest.raises(ValueError, match=r"tables and lists are nested"):
            dl.Problem.from_toml(deep)
        toml = path.with_suffix(".toml")
        toml.write_text(deep)
        with pytest.raises(ValueError, match=r"result.toml is not valid TOML: tables and lists are nested more than"):
            dl.Problem.load(toml)
        with h5py.File(path, "r+") as file:
            file.attrs["problem"] = make().to_toml()
            file.attrs["stats"] = 5000 * "[" + 5000 * "]"
        with pytest.raises(ValueError, match=r"nc cannot be read: its attributes are nested too deeply"):
            kind.load(path)

    def test_a_file_that_another_program_has_rewritten_is_read(self, saved: tuple[Any, Path]) -> None:
        kind, path = saved
        before = kind.load(path)
        with h5py.File(path, "r+") as file:
            file.attrs["comment"] = "mine"
        np.testing.assert_array_equal(kind.load(path).test_loss, before.test_loss)


class TestOtherProcesses:
    def test_solutions_come_back_from_other_processes(self) -> None:
        problems = [make(), make(lr=lambda step: 0.1 / (1 + step)), make(steps=1200, depth=1, lr=0.02)]
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found = list(pool.map(dl.solve, problems))
        for solution, problem in zip(found, problems, strict=True):
            expected = dl.solve(problem)
            assert solution.stats["method"] == expected.stats["method"]
            np.testing.assert_allclose(solution.test_loss, expected.test_loss, rtol=1e-12)
            np.testing.assert_allclose(solution.feature_correlation, expected.feature_correlation, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found[1].problem.optimizer.lr, problems[1].optimizer.rates(6))

    @pytest.mark.parametrize(
        "problem",
        [
            make(),
            make(lr=50.0, steps=30),
            dl.Problem(dl.ResNet(float("inf"), 1.0), dl.Isotropic(), dl.FullBatch(2.0), dl.GradientDescent(0.05), 6),
            dl.Problem(
                dl.MLP(2, 1.0), dl.Isotropic(target_gram=np.eye(2)), dl.OnlineSGD(2.0), dl.GradientDescent(0.05), 6
            ),
        ],
        ids=["plain", "diverges", "infinite depth", "two outputs"],
    )
    def test_a_pickle_and_a_copy_are_the_same_solution(self, problem: dl.Problem, tmp_path: Path) -> None:
        solution = dl.solve(problem)
        assert_same(pickle.loads(pickle.dumps(solution)), solution)
        assert_same(copy.deepcopy(solution), solution)
        assert_same(copy.copy(solution), solution)
        solution.save(tmp_path / "a.nc")
        loaded = dl.Solution.load(tmp_path / "a.nc")
        assert_same(pickle.loads(pickle.dumps(loaded)), solution)
        assert_same(copy.deepcopy(loaded), solution)

    def test_coarse_steps_too(self) -> None:
        solution = dl.solve(
            dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(), dl.OnlineSGD(2.0), dl.GradientDescent(0.0002), 2000)
        )
        assert solution.stats["method"] == "coarse"
        again = pickle.loads(pickle.dumps(solution))
        np.testing.assert_array_equal(again.at([0, 1999]).test_loss, solution.at([0, 1999]).test_loss)
        with pytest.raises(ValueError, match="coarse steps have no feature_correlation"):
            _ = again.feature_correlation

    def test_a_pickle_is_small(self) -> None:
        """Curves and problem, no other problem of the batch; two-time functions that were asked for go along."""
        problems = [make(steps=100, lr=0.001 * (1 + index)) for index in range(8)]
        solution = dl.solve(problems)[3]
        curves = 8 * 8 * 100
        assert curves < len(pickle.dumps(solution)) < curves + 5000
        _ = solution.error_correlation, solution.variance
        size = len(pickle.dumps(solution))
        assert curves + 8 * 100**2 < size < 2 * curves + 8 * 100**2 + 5000
        np.testing.assert_allclose(
            pickle.loads(pickle.dumps(solution)).feature_correlation, solution.feature_correlation, rtol=1e-12
        )

    def test_a_deep_copy_shares_nothing_that_can_be_written(self) -> None:
        solution = dl.solve(make())
        copied = copy.deepcopy(solution)
        for name in OBSERVABLES:
            assert not np.shares_memory(getattr(solution, name), getattr(copied, name)), name
        copied.stats["method"] = "other"
        assert solution.stats["method"] == "dense"

    def test_every_result_can_be_pickled_and_copied(self) -> None:
        problem = make()
        theory, networks = dl.solve(problem), dl.simulate(problem, dim=10, seeds=3)
        results = [
            problem,
            networks,
            theory,
            theory.decomposition,
            theory.variance,
            dl.compare(theory, networks),
            dl.sensitivity(problem, "lr"),
            dl.estimate(problem),
            dl.optimal_lr(problem),
            dl.transfer(problem, "width", [1.0, 2.0]),
            dl.Problem(dl.MLP(1, 4), dl.Spectrum.power_law(1.5, 1.0), dl.Population(), dl.GradientDescent(0.01), 3),
        ]
        for result in results:
            for again in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
                assert type(again) is type(result)
                assert repr(again) == repr(result)
                for field in fields(result):
                    if not field.name.startswith("_"):
                        _assert_equal(getattr(again, field.name), getattr(result, field.name))


def _assert_equal(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _assert_equal(one, other)
    elif hasattr(expected, "__dataclass_fields__") and not isinstance(expected, dl.Solution | dl.Ensemble):
        for field in fields(expected):
            _assert_equal(getattr(found, field.name), getattr(expected, field.name))
    else:
        assert repr(found) == repr(expected)
    if isinstance(expected, dict):
        assert json.dumps(found, default=str) == json.dumps(expected, default=str)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
class TestForks:
    SCRIPT = """
import faulthandler, os, random, sys, threading, time
import deeplinear as dl

problem = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=10)
expected = dl.solve(problem).variance.bias[-1]
ends = []

def work():
    while not ends:
        dl.solve(problem).variance

thread = threading.Thread(target=work)
thread.start()
waits = random.Random(0)
hung = 0
for _ in range(40):
    time.sleep(waits.uniform(0, 0.01))
    child = os.fork()
    if not child:
        faulthandler.dump_traceback_later(5, exit=True)
        os._exit(0 if dl.solve(problem).variance.bias[-1] == expected else 3)
    if os.waitpid(child, 0)[1]:
        hung += 1
        break
ends.append(True)
thread.join()
sys.exit(hung)
"""

    def test_a_child_of_a_process_that_solves_in_a_thread_can_solve(self) -> None:
        """Without coverage, which has a lock of its own: a child may inherit it closed, and wait for ever."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS")}
        process = subprocess.Popen(
            [sys.executable, "-c", self.SCRIPT],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        try:
            _, said = process.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with its children, which hold the pipe open
            process.communicate()
            raise
        assert process.returncode == 0, said

    def test_limits_end_with_the_threads_that_set_them(self) -> None:
        """A child has none of the other threads, so what they limited is free again; its own block stays."""
        script = """
import os, threading
from threadpoolctl import threadpool_info
from deeplinear._core.threads import one_blas_thread
import numpy

def counts():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

before, entered, leave = counts(), threading.Event(), threading.Event()

def hold():
    with one_blas_thread():
        entered.set()
        leave.wait()

def child(check):
    process = os.fork()
    if not process:
        os._exit(0 if check() else 1)
    return os.waitpid(process, 0)[1] == 0

thread = threading.Thread(target=hold)
thread.start()
entered.wait()
assert counts() == {1}
assert child(lambda: counts() == before)
with one_blas_thread():
    assert child(lambda: counts() == {1})
leave.set()
thread.join()
assert counts() == before
"""
        environment = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
        ended = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | environment,
        )
        assert ended.returncode == 0, ended.stderr


def test_a_damaged_file_without_a_checksum_is_refused_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing follows on stderr when what could not be opened is forgotten."""
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    path = tmp_path / "a.nc"
    dl.solve(make()).save(path)
    content = path.read_bytes()
    content = content[: content.rindex(b"\nsha256")]
    for damaged in (content[:1000], content[:5] + bytes(40) + content[45:], b"mine"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"is not a deeplinear\.Solution file, or it is damaged"):
            dl.Solution.load(path)
    gc.collect()
    assert not ignored
