"""Sweeps: what they compute, what they survive, what they refuse."""

import json
import shutil
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import xarray as xr

import deeplinear as dl
from deeplinear._core import memory, pool
from deeplinear._core import store as core_store
from deeplinear._sweep import records, store
from deeplinear._sweep import sweep as _sweep
from deeplinear._sweep.plan import Plan
from deeplinear._sweep.sweep import open_sweep, sweep
from sweeps import counts, ladder


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

    def test_long_curves_are_kept_at_some_steps(self) -> None:
        problem = dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.02), steps=6)
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
        from deeplinear._sweep import work

        def solve(problems: Any, **_: Any) -> Any:
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

        grid, path = {"lr": [0.01], "steps": [3, 4]}, tmp_path / "a.zarr"
        available = memory.require

        def require(*arguments: Any) -> None:
            raise MemoryError("too large")

        monkeypatch.setattr(memory, "require", require)
        assert (sweep(problem, grid, path, workers=1).failure == "MemoryError: too large").all()
        monkeypatch.setattr(memory, "require", available)
        assert (sweep(problem, grid, path, workers=1).failure == "").all()
        assert (xr.open_zarr(path).failure == "").all()

    def test_a_point_that_kills_its_process_is_recorded(
        self, problem: dl.Problem, counting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_sweep, "run_task", counting.deadly)
        monkeypatch.setattr(pool, "ATTEMPTS", 2)
        found = sweep(problem, {"lr": [0.02, 0.03], "steps": [3, 4]}, workers=2)
        assert "died 2 times" in str(found.failure.sel(lr=0.02, steps=3).item())
        assert (found.failure == "").sum() == 3
        assert counts(tmp_path, "begun")["0.02"] == 1 + 2 * pool.ATTEMPTS  # with the other lr, and alone

    def test_a_damaged_file_is_computed_again(self, problem: dl.Problem, tmp_path: Path) -> None:
        path, grid = tmp_path / "a.zarr", {"lr": [0.01, 0.02], "steps": [3, 4]}
        first = sweep(problem, grid, path, workers=1)
        file = next((path / store.WORK_FOLDER / "points").iterdir())
        file.write_bytes(file.read_bytes()[:50])
        with pytest.warns(UserWarning, match=r"1 of the 2 files of results in the store .* are damaged"):
            assert not open_sweep(path).done.all()
        assert sweep(problem, grid, path, workers=1).identical(first)


class TestDamage:
    """``tools/faults.py`` damages every file in every way; these are the ways that once did harm, and what is said."""

    GRID: ClassVar = {"lr": [0.01, 0.02], "steps": [3, 4]}

    @pytest.fixture
    def path(self, problem: dl.Problem, tmp_path: Path) -> Path:
        sweep(problem, self.GRID, tmp_path / "a.zarr", workers=1)
        return tmp_path / "a.zarr"

    @pytest.mark.parametrize("damage", ["{", "[]", "3", "{}", '{"layout": 2}', "\x00", "[" * 10**5, None])
    def test_a_lost_description_is_written_anew(self, problem: dl.Problem, path: Path, damage: str | None) -> None:
        expected = open_sweep(path)
        manifest = path / store.WORK_FOLDER / "manifest.json"
        written = manifest.read_text()
        results = [file.stat().st_mtime_ns for file in sorted(manifest.parent.glob("points/*"))]
        if damage is None:
            manifest.unlink()
        else:
            manifest.write_text(damage)
        with pytest.raises(ValueError, match=r"a.zarr is damaged: the description .* 2 of its files of results are"):
            open_sweep(path)
        with pytest.raises(ValueError, match="holds this sweep already, damaged; resume it"):
            sweep(problem, self.GRID, path, resume=False)
        assert sweep(problem, self.GRID, path, workers=1).identical(expected)
        assert open_sweep(path).identical(expected)
        assert manifest.read_text() == written
        assert [file.stat().st_mtime_ns for file in sorted(manifest.parent.glob("points/*"))] == results

    def test_a_store_without_description_is_not_taken_for_another_sweep(self, problem: dl.Problem, path: Path) -> None:
        """Batches of all sweeps have equal names."""
        (path / store.WORK_FOLDER / "manifest.json").unlink()
        with pytest.raises(ValueError, match=r"is lost, and 2 of its 2 intact results belong to a different sweep"):
            sweep(problem, {"lr": [0.03, 0.04], "steps": [3, 4]}, path, workers=1)
        assert sweep(problem, self.GRID, path, workers=1).done.all()

    def test_results_of_another_sweep_are_not_taken(self, problem: dl.Problem, path: Path, tmp_path: Path) -> None:
        expected = open_sweep(path)
        sweep(problem, {"lr": [0.03, 0.04], "steps": [3, 4]}, tmp_path / "b.zarr", workers=1)
        points, foreign = (root / store.WORK_FOLDER / "points" for root in (path, tmp_path / "b.zarr"))
        for file in points.iterdir():
            shutil.copy(foreign / file.name, file)
        with pytest.warns(UserWarning, match=r"2 of the 2 files of results .* damaged and count as not done: theory-0"):
            assert not open_sweep(path).done.any()
        assert sweep(problem, self.GRID, path, workers=1).identical(expected)

    def test_foreign_arrays_are_not_taken(self, problem: dl.Problem, path: Path) -> None:
        expected = open_sweep(path)
        for file in (path / store.WORK_FOLDER / "points").iterdir():
            np.savez(file, test_loss=np.ones(2))
        assert sweep(problem, self.GRID, path, workers=1).identical(expected)

    @pytest.mark.parametrize("lost", ["diverged_at/0.0", "steps/0", "test_loss/.zarray", ".zmetadata", ".zattrs"])
    def test_a_lost_piece_of_the_zarr_group_is_noticed_and_written_anew(
        self, problem: dl.Problem, path: Path, lost: str
    ) -> None:
        expected = open_sweep(path)
        (path / lost).unlink()
        with pytest.warns(UserWarning, match=rf"the Zarr group in .* is damaged \({lost}\).* call sweep again"):
            assert open_sweep(path).identical(expected)
        assert sweep(problem, self.GRID, path, workers=1).identical(expected)
        with xr.open_zarr(path) as published:
            assert published.load().identical(expected)
        assert open_sweep(path).identical(expected)

    def test_truncated_attributes_of_the_zarr_group(self, problem: dl.Problem, path: Path) -> None:
        (path / ".zattrs").write_text((path / ".zattrs").read_text()[:20])
        expected = sweep(problem, self.GRID, path, workers=1)
        with xr.open_zarr(path) as published:
            assert published.load().identical(expected)

    def test_a_store_of_an_earlier_version_is_refused(self, problem: dl.Problem, path: Path) -> None:
        manifest = path / store.WORK_FOLDER / "manifest.json"
        document = json.loads(manifest.read_text()) | {"layout": 1, "deeplinear_version": "0.0.9"}
        manifest.write_text(json.dumps({name: value for name, value in document.items() if name != "sha256"}))
        for attempt in (lambda: open_sweep(path), lambda: sweep(problem, self.GRID, path)):
            with pytest.raises(ValueError, match=r"was written by deeplinear 0.0.9, whose stores this version"):
                attempt()

    def test_what_is_left_without_the_own_folder(self, problem: dl.Problem, path: Path) -> None:
        shutil.rmtree(path / store.WORK_FOLDER)
        for attempt in (lambda: open_sweep(path), lambda: sweep(problem, self.GRID, path)):
            with pytest.raises(ValueError, match=r"xarray.open_zarr may still read what it published"):
                attempt()


@pytest.mark.usefixtures("entries_only")
class TestRounding:
    """SAM at a rate at which rounding errors grow into the losses, the lowest of all, before training diverges."""

    PROBLEM = dl.Problem(
        dl.MLP(2, 1.0, centered=True), dl.Isotropic(0.5), dl.FullBatch(1.0), dl.SAM(0.02, rho=0.1), steps=40
    )
    GRID: ClassVar[dict[str, list[float]]] = {"lr": [0.005, 0.01, 0.02]}
    WORDS = "at 1 point of 3 the losses depend on rounding errors, from step"

    def test_the_data_set_says_from_which_step_on(self) -> None:
        with pytest.warns(UserWarning, match=self.WORDS) as warned:
            found = sweep(self.PROBLEM, self.GRID, workers=1)
        assert len(warned) == 1
        step = dl.solve(self.PROBLEM).status.rounding_at
        assert step is not None
        assert found.rounding_at.values.tolist() == [-1, -1, step]
        assert (found.diverged_at == -1).all()

    def test_a_store_keeps_it(self, tmp_path: Path) -> None:
        with pytest.warns(UserWarning, match=self.WORDS):
            found = sweep(self.PROBLEM, self.GRID, tmp_path / "kept", workers=1)
        with pytest.warns(UserWarning, match=self.WORDS):
            assert open_sweep(tmp_path / "kept").identical(found)
        with xr.open_zarr(tmp_path / "kept") as published:
            assert published.load().identical(found)

    def test_a_store_without_it_is_refused(self, tmp_path: Path) -> None:
        """Stores of layout 3 have no such steps, and -1 would say that there are none."""
        sweep(self.PROBLEM, {"lr": [0.005]}, tmp_path / "kept", workers=1)
        manifest = tmp_path / "kept" / store.WORK_FOLDER / "manifest.json"
        document = json.loads(manifest.read_text()) | {"layout": 3}
        document.pop("sha256")
        manifest.write_text(records.to_json(document))
        with pytest.raises(ValueError, match=r"they have layout 3, and this version reads layout 5"):
            open_sweep(tmp_path / "kept")


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
        with pytest.raises(OSError, match="cannot be read or written: Not a directory"):
            sweep(problem, {"lr": [0.1]}, tmp_path / "file" / "a.zarr")
        assert (tmp_path / "file").read_text() == (tmp_path / "folder" / "mine").read_text() == "mine"

    def test_a_store_that_cannot_be_written(
        self, problem: dl.Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "mkdir", refuse)
        with pytest.raises(OSError, match=r"store .*a\.zarr cannot be read or written: Permission denied"):
            sweep(problem, {"lr": [0.1]}, tmp_path / "a.zarr")

    def test_a_full_disk_loses_nothing(
        self, problem: dl.Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, grid, calls = tmp_path / "a.zarr", {"lr": [0.01], "steps": [3, 4, 5]}, []
        write = core_store.write_atomically

        def full(*arguments: Any) -> None:
            calls.append(arguments)
            if len(calls) > 1:
                raise OSError(28, "No space left on device")
            write(*arguments)

        monkeypatch.setattr(core_store, "write_atomically", full)
        said = r"store .*a\.zarr cannot be read or written: No space left"
        with pytest.raises(OSError, match=said):
            sweep(problem, grid, path, workers=1)
        monkeypatch.undo()
        assert open_sweep(path).done.sum() == 1

        def full_at_the_end(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(xr.Dataset, "to_zarr", full_at_the_end)
        with pytest.raises(OSError, match=said):
            sweep(problem, grid, path, workers=1)
        monkeypatch.undo()
        assert sweep(problem, grid, path, workers=1).done.all()

    def test_zarr_is_needed_for_a_store_only(self, problem: dl.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_sweep, "find_spec", lambda name: None)
        with pytest.raises(ImportError, match=r"pip install 'deeplinear\[sweep\]'"):
            sweep(problem, {"lr": [0.1]}, "a.zarr")
        assert sweep(problem, {"lr": [0.1]}, workers=1).done.all()


def test_batches_do_not_depend_on_who_asks(problem: dl.Problem) -> None:
    plan = Plan.read(problem, {"lr": ladder(100), "depth": [1, 2]}, True, {"dim": 5, "seeds": 2})
    members = [index for batch in plan.batches if batch.kind == "theory" for index in batch.members]
    assert sorted(members) == list(range(200))
    assert max(len(batch.members) for batch in plan.batches) <= 32
    again = Plan.from_manifest(json.loads(json.dumps(plan.manifest())))
    assert again.batches == plan.batches
