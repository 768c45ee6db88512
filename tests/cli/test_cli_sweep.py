"""The commands that go over many problems."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xarray as xr

import deeplinear as dl
from command_line import document, refused, run
from deeplinear._cli import _report
from deeplinear._cli._grid import read_values
from deeplinear._sweep.sweep import open_sweep
from sweeps import wait_for

pytestmark = pytest.mark.usefixtures("in_folder")

SMALL = ("--depth", "1", "--steps", "5")
GRID = ("--over", "width=1,2", "--over", "lr=0.01:0.04:3log")


class TestSweep:
    def test_writes_a_store_and_shows_the_best(self) -> None:
        result = run("sweep", *SMALL, *GRID, "--experiment", "dim=10,seeds=2", "--workers", "1")
        assert result.exit_code == 0, result.output
        assert "6 points: 2 width x 3 lr" in result.stdout
        assert "lowest test loss at the last step" in result.stdout
        (store,) = Path().glob("sweep-*.zarr")
        assert f"result: {store}" in result.stdout
        assert "sweep: done" in result.stderr
        with xr.open_zarr(store) as found:
            assert dict(found.sizes) == {"width": 2, "lr": 3, "time": 5}
            assert found.lr.values.tolist() == [0.01, 0.02, 0.04]
            assert found.measured_test_loss.notnull().all()

    def test_goes_on_with_its_own_store_only(self) -> None:
        store = ("--store", "own.zarr")
        assert run("sweep", *SMALL, *GRID, *store).exit_code == 0
        assert run("sweep", *SMALL, *GRID, *store, "--resume").exit_code == 0
        assert "holds this sweep already" in refused("sweep", *SMALL, *GRID, *store, "--no-resume")
        assert "holds another sweep: it differs in grid" in refused("sweep", *SMALL, "--over", "lr=0.01", *store)

    def test_each_sweep_has_a_store_of_its_own(self) -> None:
        assert run("sweep", *SMALL, *GRID).exit_code == 0
        assert "holds this sweep already" in refused("sweep", *SMALL, *GRID, "--no-resume")
        assert run("sweep", *SMALL, "--over", "lr=0.01").exit_code == 0
        assert run("sweep", *SMALL, "--over", "lr=0.01", "--depth", "2").exit_code == 0
        assert len(list(Path().glob("sweep-*.zarr"))) == 3

    def test_a_grid_from_a_file_with_options_in_its_place(self) -> None:
        Path("grid.toml").write_text('[grid]\nnetwork.width = "1:4:3log"\nlr = [0.01, 0.02]\n')
        found = document("sweep", *SMALL, "--grid", "grid.toml", "--over", "lr=0.03")
        assert found["grid"] == {"network.width": [1, 2, 4], "lr": [0.03]}
        assert found["points"] == 3
        assert set(found["best"]["theory"]) == {"loss", "width", "lr"}

    def test_failures_are_listed(self) -> None:
        found = document("sweep", *SMALL, "--over", "lr=-1,0.01", "--experiment", "dim=5,seeds=2")
        assert found["failures"] == [
            {
                "kind": "theory",
                "at": {"lr": -1.0},
                "error": "ValueError: lr must be a positive finite number, got -1",
                "type": "ValueError",
            }
        ]
        assert "failed at lr -1: ValueError" in run("sweep", *SMALL, "--over", "lr=-1,0.01", "--store", "b").stdout

    def test_steps_in_the_grid(self) -> None:
        assert document("sweep", *SMALL, "--over", "steps=2,4")["best"]["theory"]["steps"] == 4

    def test_divergence_everywhere_has_its_exit_code(self) -> None:
        result = run("sweep", *SMALL, "--over", "lr=100,200", "--steps", "20")
        assert result.exit_code == 3
        assert "theory: training diverged at 2 points" in result.stdout

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((), "a sweep needs a grid"),
            (("--over", "lr"), "--over must be FIELD=VALUES"),
            (("--over", "lr=1:2:x"), "lr must be"),
            (
                ("--over", "lr=0.01:0.1"),
                "--over lr: a range is low:high:count, or low:high:countlog for equal ratios; '0.01",
            ),
            (("--over", "lr=0:2:3log"), "--over lr must be values separated by commas"),
            (("--over", "lr=[1,"), "--over lr must be values separated by commas"),
            (("--over", "lr=0.1", "--over", "lr=0.2"), "--over must have every field once, got lr twice"),
            (("--over", "speed=1"), "'speed' is not a field of this problem"),
            (("--over", "lr="), "grid['lr'] must have one value or more"),
            (("--over", "lr=0.1,0.1"), "grid['lr'] must have distinct values"),
            (("--over", "lr=0.1", "--experiment", "dim"), "--experiment must look like dim=200,seeds=16"),
            (("--over", "lr=0.1", "--no-theory"), "theory must be True"),
            (("--over", "lr=0.1", "--workers", "0"), "workers must be"),
            (("--grid", "missing.toml"), "missing.toml"),
        ],
    )
    def test_refusals(self, arguments: tuple[str, ...], words: str) -> None:
        assert words in refused("sweep", *SMALL, *arguments)
        assert not list(Path().glob("sweep*.zarr"))

    @pytest.mark.parametrize("text", ["[grid", "lr = [0.1]", "[grid]\nlr = 0.1", "[grid]\nlr = [0.1]\n[other]"])
    def test_files_that_are_no_grid(self, text: str) -> None:
        Path("grid.toml").write_text(text)
        assert "grid.toml" in refused("sweep", *SMALL, "--grid", "grid.toml")

    def test_a_scheduler_that_does_not_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("distributed", reason="needs Dask: pip install 'deeplinear[sweep]'")
        monkeypatch.setattr("deeplinear._sweep.cluster._ANSWER_SECONDS", 0.3)
        words = refused("sweep", *SMALL, *GRID, "--scheduler", "tcp://127.0.0.1:9")
        assert "scheduler tcp://127.0.0.1:9 does not answer" in words

    def test_an_interrupt_ends_it_quickly_and_keeps_what_is_done(self) -> None:
        command = [
            sys.executable,
            "-c",
            "from deeplinear._cli import main; main()",
            "sweep",
            "--over",
            "lr=0.001:0.01:64",
        ]
        command += ["--steps", "150", "--workers", "2", "--experiment", "dim=200,seeds=8", "--store", "sweep.zarr"]
        points = Path("sweep.zarr/.deeplinear/points")
        begin = time.monotonic()
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                wait_for(lambda: points.is_dir() and len(list(points.glob("theory-*"))) > 1)
                process.send_signal(signal.SIGINT)
                start = time.monotonic()
                _, stderr = process.communicate(timeout=60)
                assert time.monotonic() - start < max(5.0, start - begin)  # on a busy machine all takes longer
            finally:
                process.kill()
        assert process.returncode == 130
        assert stderr.splitlines()[-1] == "interrupted"
        assert not list(Path("sweep.zarr/.deeplinear/claims").iterdir())
        assert open_sweep("sweep.zarr").done.any()
        assert not [each for each in os.listdir("sweep.zarr/.deeplinear/points") if each.startswith(".")]


@pytest.mark.usefixtures("entries_only")
@pytest.mark.filterwarnings("ignore:at 1 point of 3 the losses depend")
def test_losses_that_are_rounding_errors_are_not_the_least() -> None:
    Path("sam.toml").write_text(
        dl.Problem(
            dl.MLP(2, 1.0, centered=True), dl.Isotropic(0.5), dl.FullBatch(1.0), dl.SAM(0.02, rho=0.1), steps=40
        ).to_toml()
    )
    arguments = ("sweep", "--problem", "sam.toml", "--over", "lr=0.005,0.01,0.02", "--workers", "1")
    found = document(*arguments)
    assert found["rounding"] == 1
    assert found["best"]["theory"]["lr"] == 0.01  # at 0.02 it is lower still
    text = "losses depend on rounding errors at 1 point, which does not count above"
    assert text in " ".join(run(*arguments).stdout.split())


class TestTransfer:
    ARGUMENTS = (
        "transfer",
        "--depth",
        "1",
        "--steps",
        "8",
        "--sampling",
        "online",
        "--noise",
        "0.5",
        "--values",
        "1,2,4",
    )

    def test_shows_the_optima_and_draws_them(self) -> None:
        result = run(*self.ARGUMENTS)
        assert result.exit_code == 0, result.output
        assert "optimum of each curve" in result.stdout
        assert "optimal lr ~ width^" in result.stdout
        assert "loss at 0." in result.stdout
        assert "transfer" in result.stdout.partition("theory: ")[2]
        assert "picture: transfer.png" in result.stdout
        assert Path("transfer.png").read_bytes().startswith(b"\x89PNG")

    def test_shows_progress(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_report, "_PATIENCE", 0.0)
        shown = run(*self.ARGUMENTS).stderr.splitlines()
        assert shown[0] == "transfer: started"
        assert re.fullmatch(r"transfer: \d\d % after \d+ s, about .* left", shown[1])
        assert shown[-2].startswith("transfer: 100 % after")

    def test_with_experiment_as_a_vector_picture_and_as_a_file(self) -> None:
        with_networks = (*self.ARGUMENTS, "--experiment", "dim=12,seeds=2", "--lrs", "0.05:0.8:5log")
        result = run(*with_networks, "--out", "transfer.pdf")
        assert result.exit_code == 0, result.output
        assert "measured lr" in result.stdout
        assert "measured lr ~ width^" in result.stdout
        assert "experiment: " in result.stdout
        assert Path("transfer.pdf").read_bytes().startswith(b"%PDF")
        assert run(*with_networks, "--out", "transfer.nc").exit_code == 0
        assert xr.load_dataset("transfer.nc").measured_loss.sizes == {"width": 3, "lr": 5, "seed": 2}

    def test_json(self) -> None:
        found = document(*self.ARGUMENTS[:-1], "1,infinite", "--objective", "train")
        assert found["values"] == [1.0, "infinite"]
        assert len(found["optima"]) == 2
        assert found["optima"][0]["lr"] > 0
        assert found["regret"][0] == 0
        assert "transfer" in found["verdict"]
        assert not Path("transfer.png").exists()

    def test_another_field(self) -> None:
        arguments = (*self.ARGUMENTS[:-1], "1,2", "--field", "momentum", "--bounds", "0,0.8")
        result = run(*arguments)
        assert result.exit_code == 0, result.output
        assert "optimal momentum" in result.stdout
        found = document(*arguments)
        assert found["field"] == "momentum"
        assert [found["tried"][0], found["tried"][-1]] == [0.0, 0.8]
        assert all(0 <= each["momentum"] <= 0.8 and each["binding"] in ("", "low", "high") for each in found["optima"])

    def test_refusals(self) -> None:
        assert "over must be" in refused(*self.ARGUMENTS, "--over", "noise")
        assert "objective must be" in refused(*self.ARGUMENTS, "--objective", "loss")
        assert "field must be" in refused(*self.ARGUMENTS, "--field", "noise")
        assert "bounds must be left out for lr" in refused(*self.ARGUMENTS, "--bounds", "0.1,0.2")
        assert "--out must end in" in refused(*self.ARGUMENTS, "--out", "a.txt")


class TestEstimate:
    def test_of_a_whole_sweep(self) -> None:
        result = run("estimate", "--steps", "30", "--over", "lr=0.001:0.1:100", "--over", "depth=1,2", "--dim", "20")
        assert result.exit_code == 0, result.output
        assert "200 points on" in result.stdout
        assert "simulate" in result.stdout

    def test_grows_with_the_number_of_points_and_leaves_out_what_cannot_be_simulated(self) -> None:
        few = document(
            "estimate", "--steps", "30", "--over", "lr=0.001:0.1:10", "--workers", "1", "--width", "infinite"
        )
        many = document(
            "estimate", "--steps", "30", "--over", "lr=0.001:0.1:1000", "--workers", "1", "--width", "infinite"
        )
        assert many["points"] == 100 * few["points"]
        assert many["theory"]["seconds"] > 20 * few["theory"]["seconds"]
        assert few["experiment"] is None


def test_values_keep_their_kind() -> None:
    assert read_values("lr", "0.1") == [0.1]
    assert read_values("width", "1:2:3") == [1.0, 1.5, 2.0]
    assert read_values("parameterization", "mup, ntk") == ["mup", "ntk"]
    assert read_values("depth", "3:1:3") == [3, 2, 1]
