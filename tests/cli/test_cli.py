import io
import json
import math
import os
import signal
import subprocess
import sys
import time
import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import xarray as xr

import deeplinear as dl
from command_line import document, refused, run
from deeplinear._cli import _commands, _fields, main
from deeplinear._equations import products
from deeplinear._problem.problem import PARTS
from factories import some_slow

pytestmark = pytest.mark.usefixtures("in_folder")

SMALL = ("--steps", "6", "--dim", "12", "--seeds", "4")
TOML = """
steps = 6
[network]
depth = 2
width = 0.5
[data]
noise = 0.1
[sampling]
type = "MultiPassSGD"
samples = 2.0
batch = 0.5
[optimizer]
lr = 0.02
"""


class TestCommands:
    def test_compare_shows_a_table_and_writes_a_picture(self) -> None:
        result = run("compare", *SMALL)
        assert result.exit_code in (0, 1), result.output
        assert "test_loss" in result.stdout or "test loss" in result.stdout
        assert "picture: compare.png" in result.stdout
        assert Path("compare.png").read_bytes().startswith(b"\x89PNG")
        assert "theory: done" in result.stderr
        assert "experiment: done" in result.stderr

    def test_compare_takes_files_of_curves(self) -> None:
        problem = ("--steps", "9", "--noise", "0.3", "--lr", "0.05")
        assert document("simulate", *problem, "--dim", "400", "--seeds", "8", "--out", "networks.nc")["seeds"]
        networks = dl.Ensemble.load("networks.nc")
        for seed in range(8):
            rows = [f"{step},{networks.train_loss[seed, step]}" for step in range(9 - seed % 2)]
            Path(f"run{seed}.csv").write_text("\n".join(["iter,loss", *rows]))
        files = [f"run{seed}.csv" for seed in range(8)]
        found = document("compare", *files, *problem, "--dim", "400")
        assert found["comparison"]["verdict"] == "agrees"
        assert found["comparison"]["steps"] == 8
        assert found["experiment"] == {"files": files, "runs": 8, "dim": 400}
        off = document("compare", "run0.csv", *problem[:-1], "0.002", "--dim", "400", code=1)
        assert off["comparison"]["seeds"] == 1
        shown = run("compare", "run*.csv", *problem)  # as where no shell finds the files
        assert "8 runs, steps 0 to 7: train loss at 8 steps" in shown.stdout
        assert refused("compare", "gone.csv", *problem).startswith("error: there is no file gone.csv")
        assert "test_loss must be a column of numbers" in refused("compare", *files, *problem, "--test-loss", "iter2")

    def test_fit_finds_fields_and_says_where_theory_explains_nothing(self) -> None:
        problem = ("--steps", "12", "--noise", "0.3", "--depth", "1")
        run("simulate", *problem, "--lr", "0.1", "--dim", "300", "--seeds", "8", "--out", "networks.nc")
        networks = dl.Ensemble.load("networks.nc")
        columns = [f"run {seed} - {name}_loss" for name in ("test", "train") for seed in range(8)]
        table = [*networks.test_loss, *networks.train_loss]
        lines = [",".join(["step", *columns])] + [
            ",".join(map(str, (t, *(row[t] for row in table)))) for t in range(12)
        ]
        Path("all.csv").write_text("\n".join(lines))
        found = document("fit", "all.csv", *problem, "--free", "lr, noise", "--lr", "0.02", "--dim", "300")
        assert found["low"]["lr"] < 0.1 < found["high"]["lr"]
        assert found["explained"]
        assert found["problem"]["optimizer"]["lr"] == found["values"]["lr"]
        shown = run("fit", "all.csv", *problem, "--lr", "0.02")
        assert shown.exit_code == 0
        assert "picture: fit.png" in shown.stdout
        assert "agree with theory at these values" in shown.stdout
        wrong = run("fit", "all.csv", *problem[:-1], "4", "--richness", "3", "--free", "noise", "--lr", "0.1")
        assert wrong.exit_code == 1
        assert "theory does not explain these curves" in wrong.stdout
        assert "free must be among" in refused("fit", "all.csv", *problem, "--free", "rate")

    def test_solve_writes_what_xarray_opens(self) -> None:
        result = run("solve", "--steps", "6")
        assert result.exit_code == 0, result.output
        assert "result: solve.nc" in result.stdout
        assert xr.load_dataset("solve.nc").sizes["time"] == 6
        solution = dl.Solution.load("solve.nc")
        assert (solution.test_loss == dl.solve(solution.problem).test_loss).all()

    def test_solve_draws_a_picture_if_asked(self) -> None:
        assert run("solve", "--steps", "6", "--out", "curve.svg").exit_code == 0
        assert "<svg" in Path("curve.svg").read_text()

    def test_simulate_writes_what_xarray_opens(self) -> None:
        result = run("simulate", *SMALL, "--record", "losses", "--workers", "2")
        assert result.exit_code == 0, result.output
        experiment = dl.Ensemble.load("simulate.nc")
        assert experiment.test_loss.shape == (4, 6)
        assert experiment.feature_correlation is None

    def test_networks_of_any_size_are_trained(self) -> None:
        result = run("simulate", *SMALL[:2], "--dim", "1000000", "--seeds", "2", "--method", "reduced")
        assert result.exit_code == 0, result.output
        assert "2 networks of input dimension 1000000, reduced matrices" in result.stdout
        assert dl.Ensemble.load("simulate.nc").method == "reduced"
        assert document("compare", *SMALL, "--method", "lazy")["experiment"]["method"] == "lazy"

    def test_estimate_says_whether_it_fits(self) -> None:
        result = run("estimate", "--steps", "1000000")
        assert result.exit_code == 0
        assert "NOT ENOUGH memory for simulate: " in result.stdout
        assert "with --record losses simulate takes " in result.stdout
        lossy = run("estimate", "--steps", "1000000", "--record", "losses")
        assert "enough memory: " in lossy.stdout
        both = run("estimate", "--steps", "10000000", "--optimizer", "schedule-free")
        assert "NOT ENOUGH memory for solve and simulate: " in both.stdout

    def test_estimate_leaves_out_what_cannot_be_simulated(self) -> None:
        assert document("estimate", "--width", "infinite")["experiment"] is None

    def test_quiet_shows_no_progress(self) -> None:
        result = run("solve", "--steps", "6", "--quiet")
        assert result.stderr == ""
        assert "result: solve.nc" in result.stdout

    def test_version(self) -> None:
        first, second = run("--version").stdout.splitlines()
        assert first.startswith("deeplinear 0.")
        assert second == f"products of steps: {products.COMPUTED}"
        assert ("computed by NumPy" if products._rows is None else "compiled") == products.COMPUTED


class TestJson:
    def test_compare(self) -> None:
        result = run("compare", *SMALL, "--json")
        parsed = json.loads(result.stdout)
        assert result.exit_code in (0, 1)
        assert parsed["command"] == "compare"
        assert parsed["comparison"]["verdict"]
        assert parsed["file"] is None
        assert not list(Path().iterdir()), "no file unless asked for"

    def test_solve_agrees_with_the_library(self) -> None:
        parsed = document("solve", "--problem", _file(TOML))
        solution = dl.solve(dl.Problem.from_toml(TOML))
        assert parsed["test_loss"] == solution.test_loss.tolist()
        assert parsed["status"] == {"diverged_at": None, "text": "completed"}
        assert dl.Problem.from_dict(parsed["problem"]) == solution.problem

    def test_simulate(self) -> None:
        parsed = document("simulate", *SMALL[:-1], "3,7", "--out", "runs.nc")
        assert parsed["seeds"] == [3, 7]
        assert len(parsed["test_loss"]["mean"]) == 6
        assert parsed["file"] == "runs.nc"
        assert Path("runs.nc").exists()

    def test_estimate(self) -> None:
        parsed = document("estimate", *SMALL)
        assert parsed["fits"] is True
        assert parsed["theory"]["bytes"] > 0
        assert parsed["experiment"]["seconds"] > 0

    def test_divergence_is_null_not_infinity(self) -> None:
        parsed = document("solve", "--lr", "5", "--steps", "6", code=3)
        assert parsed["test_loss"][-1] is None
        assert parsed["status"]["diverged_at"] == 2


class TestProblem:
    def test_every_field_of_every_kind_is_an_option(self) -> None:
        for part, kinds in PARTS.items():
            assert set(kinds) == set(_fields.KINDS[part].values())
            names = {name for kind in kinds for name in _fields.names(kind)}
            assert names == {field.inside or field.name for field in _fields.FIELDS if field.part == part}

    def test_help_lists_every_field(self) -> None:
        for command in ("compare", "solve", "simulate", "estimate"):
            text = run(command, "--help").stdout
            assert "Exit codes" in text
            for field in _fields.FIELDS:
                assert field.flag in text, f"{command} {field.flag}"

    def test_help_has_examples_and_exit_codes(self) -> None:
        text = run("--help").stdout
        for words in ("deeplinear compare", "Exit codes", "130"):
            assert words in text

    def test_defaults_are_a_problem(self) -> None:
        assert given() == dl.Problem(
            dl.MLP(3, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.03), steps=200
        )

    @pytest.mark.parametrize(
        ("arguments", "part", "expected"),
        [
            (["--depth", "2", "--width", "1,2"], "network", dl.MLP(2, [1.0, 2.0])),
            (["--depth", "2", "--width", "1", "--width", "2"], "network", dl.MLP(2, [1.0, 2.0])),
            (["--width", "infinite", "--richness", "0.5", "--centered"], "network",
             dl.MLP(3, "infinite", richness=0.5, centered=True)),
            (["--parameterization", "ntk"], "network", dl.MLP(3, 1.0, parameterization="ntk")),
            (["--network", "resnet", "--depth", "8", "--branch", "0.2", "--branch-scaling", "none"], "network",
             dl.ResNet(8, 1.0, branch=0.2, branch_scaling="none")),
            (["--noise", "0", "--target-gram", "1,0.2;0.2,0.5"], "data", dl.Isotropic(0.0, [[1, 0.2], [0.2, 0.5]])),
            (["--target-gram", "[[1, 0.2], [0.2, 0.5]]"], "data", dl.Isotropic(0.3, [[1, 0.2], [0.2, 0.5]])),
            (["--data", "power-law", "--source", "0.5"], "data", dl.Spectrum.power_law(1.5, 0.5, noise=0.3)),
            (["--data", "power-law"], "network", dl.MLP(3, 256.0)),
            (["--data", "spectrum", "--eigenvalues", "1,0.5", "--target-power", "1,2", "--proportional"], "data",
             dl.Spectrum([1.0, 0.5], [1.0, 2.0], proportional=True, noise=0.3)),
            (["--sampling", "population"], "sampling", dl.Population()),
            (["--sampling", "online"], "sampling", dl.OnlineSGD(0.5)),
            (["--sampling", "multi-pass", "--samples", "3"], "sampling", dl.MultiPassSGD(3.0, 0.5)),
            (["--lr", "0.1,0.2,0", "--steps", "3"], "optimizer", dl.GradientDescent([0.1, 0.2, 0.0])),
            (["--momentum", "0.9", "--nesterov", "--weight-decay", "0.01"], "optimizer",
             dl.GradientDescent(0.03, 0.9, True, 0.01)),
        ],
    )  # fmt: skip
    def test_options_make_parts(self, arguments: list[str], part: str, expected: object) -> None:
        assert getattr(given("--steps", "3", *arguments), part) == expected

    def test_options_take_the_place_of_fields_in_a_file(self) -> None:
        problem = given("--problem", _file(TOML), "--depth", "3", "--batch", "1.5")
        assert problem == dl.Problem(
            dl.MLP(3, 0.5), dl.Isotropic(0.1), dl.MultiPassSGD(2.0, 1.5), dl.GradientDescent(0.02), steps=6
        )

    def test_a_switch_of_a_file_can_be_turned_off(self) -> None:
        path = _file(TOML.replace("width = 0.5", "width = 0.5\ncentered = true"))
        assert given("--problem", path).network.centered
        assert not given("--problem", path, "--no-centered").network.centered

    def test_another_kind_keeps_the_fields_it_shares_with_the_file(self) -> None:
        assert given("--problem", _file(TOML), "--sampling", "full-batch").sampling == dl.FullBatch(2.0)

    def test_what_a_file_leaves_out_has_the_defaults_of_the_library(self) -> None:
        assert given("--problem", _file(TOML.replace("noise = 0.1", ""))).data == dl.Isotropic(0.0)

    def test_infinite_depth_can_be_written_as_json(self) -> None:
        problem = dl.Problem(
            dl.ResNet(math.inf, 1.0), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), steps=3
        )
        parsed = json.loads(json.dumps(_commands.document_of("solve", problem, None), allow_nan=False))
        assert parsed["problem"]["network"]["depth"] == "infinite"


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--sampling", "multi-pass", "--batch", "3"], "batch must be at most samples (2.0), got 3.0"),
            (["--batch", "1"], "--batch cannot be used with sampling full-batch, only with online or multi-pass"),
            (["--sampling", "sometimes"], "sampling must be full-batch or population or online or multi-pass"),
            (["--depth", "2.5"], "depth must be a whole number, at least 1, got 2.5"),
            (["--depth", "two"], "--depth must be a number, got 'two'"),
            (["--width", "wide"], "--width must be a number, or several separated by commas, or infinite, got 'wide'"),
            (["--target-gram", "[1"], "--target-gram must be a matrix"),
            (["--width", "1,2"], "width must be one number or one per hidden layer (3), got 2 values"),
            (["--lr", "-1"], "lr must be a positive finite number, got -1"),
            (["--lr", "0.1,0.2"], "lr"),
            (["--nesterov"], "nesterov must be False without momentum"),
            (["--problem", "missing.toml"], "missing.toml: No such file or directory"),
            (["--data", "spectrum"], "data: missing 2 required positional arguments: 'eigenvalues' and 'target_power'"),
            (["--eigenvalues", "1,2"], "--eigenvalues cannot be used with data isotropic, only with spectrum"),
            (["--dept", "3"], "--dept"),
            (["--out", "result.txt"], "--out must end in .nc or .png or .svg or .pdf, got 'result.txt'"),
            (["--out", "missing/result.nc"], "--out: the folder 'missing' does not exist"),
        ],
    )
    def test_bad_options(self, arguments: list[str], message: str) -> None:
        assert message in refused("solve", *arguments)

    def test_an_unknown_word_in_a_file(self) -> None:
        message = refused("solve", "--problem", _file(TOML.replace("noise", "nose")))
        assert "'nose' (did you mean 'noise'?) is not known in data; allowed: type, noise" in message
        assert "problem.toml" in message

    def test_a_file_that_is_not_toml(self) -> None:
        assert "not valid TOML" in refused("solve", "--problem", _file("steps = = 3"))

    def test_bad_options_of_an_experiment(self) -> None:
        assert "--seeds must be" in refused("simulate", "--seeds", "few")
        assert "record must be 'all' or 'losses'" in refused("simulate", "--record", "some")
        assert "method must be 'auto' or 'explicit'" in refused("simulate", "--method", "exact")
        assert "an infinitely wide network can be solved, not simulated" in refused("simulate", "--width", "infinite")
        assert "--dim must be a whole number, got '1.5'" in refused("simulate", "--dim", "1.5")
        assert "--dim must be a whole number, got 'inf'" in refused("simulate", "--dim", "inf")
        assert "dim must be a whole number, at least 1, got 0" in refused("simulate", "--dim", "0")

    def test_counts_are_read_as_steps_are(self) -> None:
        found = document("simulate", "--dim", "2e1", "--seeds", "3.0", "--steps", "2e0", "--workers", "1.0")
        assert found["dim"] == 20
        assert len(found["seeds"]) == 3
        assert len(found["times"]) == 2

    def test_matrices_that_do_not_fit_are_to_be_reduced(self) -> None:
        words = refused("simulate", "--dim", "1e6", "--method", "explicit", "--record", "losses", code=4)
        assert words.rstrip().endswith("lower dim, seeds, steps or workers, or use method='reduced'")

    def test_compare_refuses_before_it_solves(self) -> None:
        start = time.process_time()
        assert "width must be finite" in refused("compare", "--width", "infinite", "--steps", "2000")
        assert time.process_time() - start < 2

    @pytest.mark.skipif(os.geteuid() == 0, reason="the super-user may write everywhere")
    def test_a_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "locked").mkdir(mode=0o500)
        assert "cannot write into the folder 'locked'" in refused("solve", "--out", "locked/a.nc")

    def test_a_file_as_folder(self) -> None:
        Path("file").touch()
        assert "does not exist" in refused("solve", "--out", "file/a.nc")

    def test_unknown_commands_and_options(self) -> None:
        assert "No such command 'sovle'" in refused("sovle")
        assert "--nope" in refused("--nope")

    def test_values_that_are_nested_without_end(self) -> None:
        for command in (("solve", "--problem"), ("sweep", "--grid")):
            nested = "[" * 5000 + "]" * 5000
            message = refused(*command, _file(f"[grid]\nlr = {nested}" if "--grid" in command else f"steps = {nested}"))
            assert "nested more than 32 times" in message
        assert "nested too deeply" in refused("solve", "--target-gram", "[" * 10**6)
        refused("solve", "--target-gram", "[" * 5000 + "]" * 5000)  # JSON that Python reads from 3.13 on

    def test_numbers_beyond_all_floats(self) -> None:
        for field in _fields.FIELDS:
            if field.about.form not in ("switch", "choice"):
                kind = [] if field.part is None else [f"--{field.part}", field.kinds[0]]
                message = refused("solve", *kind, field.flag, "1" + "0" * 400)
                assert "int too large" not in message
        assert "lr must be a positive finite number, got inf" in refused("solve", "--lr", "1" + "0" * 400)

    def test_arithmetic_that_fails_is_a_sentence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for error in (ZeroDivisionError("float division by zero"), OverflowError("math range error")):
            monkeypatch.setattr(_commands, "solve_theory", _raising(error))
            message = refused("solve", "--steps", "3", "--quiet")
            assert f"overflow or underflow ({error}): use less extreme values" in message
        monkeypatch.setattr(_commands, "solve_theory", _raising(ArithmeticError("no rate lowers the loss")))
        assert refused("solve", "--steps", "3", "--quiet") == "error: no rate lowers the loss"

    def test_many_seeds_are_not_listed_before_they_are_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given: list[object] = []

        def simulate(problem: dl.Problem, dim: int, seeds: object, **_: object) -> None:
            given.append(seeds)
            raise MemoryError("1000000000 networks need 8 GB and 1 GB is available: lower seeds")

        monkeypatch.setattr(_commands, "simulate_networks", simulate)
        message = refused("simulate", "--seeds", "1000000000", "--dim", "1", code=4)
        assert message == "error: 1000000000 networks need 8 GB and 1 GB is available: lower seeds"
        assert given == [10**9]
        monkeypatch.setattr(_commands, "simulate_networks", _raising(MemoryError()))
        assert "there is not enough memory" in refused("simulate", "--quiet", code=4)

    def test_ranges_are_bounded(self) -> None:
        assert "at most 1000000" in refused("sweep", "--over", "lr=0.01:0.02:1000000000")

    def test_a_scheduler_that_is_no_address(self) -> None:
        for text in ("foo", "tcp://", "tcp://host", "host:8786", "tcp://host:port"):
            message = refused("sweep", "--over", "lr=0.01,0.02", "--scheduler", text)
            assert message == f"error: scheduler must be an address such as 'tcp://127.0.0.1:8786', got {text!r}"

    def test_a_missing_package_has_its_own_exit_code(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("deeplinear._sweep.sweep.find_spec", lambda _: None)
        message = refused("sweep", "--over", "lr=0.01,0.02", "--steps", "3", code=5)
        assert message == "error: a store needs Zarr: pip install 'deeplinear[sweep]'"
        assert "5 a package is missing" in " ".join(run("--help").stdout.split())

    def test_not_enough_memory(self) -> None:
        message = refused("solve", "--steps", "1000000", "--average", "ema=0.9", code=4)  # which takes every step
        assert "needs about" in message
        assert "GB are available" in message
        assert not Path("solve.nc").exists()


class TestDivergence:
    def test_solve_says_so_and_still_writes(self) -> None:
        result = run("solve", "--lr", "5", "--steps", "6")
        assert result.exit_code == 3
        assert "training diverged at step 2: lower the learning rate" in result.stdout
        assert Path("solve.nc").exists()

    def test_simulate_counts_networks(self) -> None:
        result = run("simulate", *SMALL, "--lr", "50", "--steps", "20")
        assert result.exit_code == 3
        assert "4 of 4 networks diverged" in result.stdout


class TestProcess:
    """The installed command, as a shell runs it."""

    def test_a_command_runs(self) -> None:
        command = [*_command(), "solve", "--steps", "6", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["command"] == "solve"
        assert done.stderr == ""

    def test_what_takes_long_to_load_is_loaded_when_it_is_needed(self) -> None:
        """Pictures, tables with named axes and PyTorch would each take longer to load than all the rest."""
        code = "import sys, deeplinear._cli; print(*sys.modules)"
        loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        assert "deeplinear._planning.plan" in loaded
        assert not {"matplotlib", "xarray", "pandas", "torch", "array_api_compat", "scipy.stats"} & set(loaded)

    def test_errors_have_no_traceback(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr(sys, "argv", ["deeplinear", "solve", "--depth", "0"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert capfd.readouterr() == ("", "error: depth must be a whole number, at least 1, got 0\n")

    @pytest.mark.parametrize("module", some_slow(["deeplinear", "scipy", "deeplinear._cli._options"], "scipy"))
    def test_interrupt_while_the_library_loads(self, module: str) -> None:
        interrupt = f"""
import os, signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from deeplinear_command import main
main()"""
        done = subprocess.run([sys.executable, "-c", interrupt, "solve"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (130, "interrupted\n")

    def test_the_program_is_the_one_that_is_installed(self) -> None:
        settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
        assert settings["project"]["scripts"] == {"deeplinear": "deeplinear_command:main"}

    @pytest.mark.parametrize(
        "arguments", some_slow(["solve --steps 6 --quiet", "solve --help"], "solve --steps 6 --quiet")
    )
    def test_output_that_nobody_reads(self, arguments: str) -> None:
        command = [*_command(), *arguments.split()]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()  # as head does when it has enough
            assert process.stderr.read() == ""
        assert process.returncode == 141

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
    def test_output_that_cannot_be_written(self) -> None:
        with Path("/dev/full").open("w") as full:
            command = [*_command(), "solve", "--steps", "6", "--json"]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert len(done.stderr.splitlines()) == 1

    def test_a_terminal_of_plain_letters(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "argv", ["deeplinear", "compare", *SMALL, "--quiet"])
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
        monkeypatch.setenv("COLUMNS", "20")
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, 1)
        sys.stdout.seek(0)
        shown = sys.stdout.read()
        assert "| theory | experiment |   +- |" in shown  # in full, although 20 columns have no room for it
        assert "feature 3" in shown
        assert "..." not in shown

    @pytest.mark.parametrize(
        "arguments",
        [
            "--richness 1e-150 --centered",
            "--richness 1e150",
            "--lr 1e300",
            "--lr 1e-300 --momentum 0.999",
            "--lr 30 --depth 12",
            "--noise 1e150",
            "--width 1e-12 --depth 6",
            "--network resnet --depth 4 --branch 1e100",
            "--data spectrum --eigenvalues 0,0 --target-power 0,0",
            "--data spectrum --eigenvalues 1e300,1e-300 --target-power 1,1",
            "--data power-law --capacity 99 --source 1e-9",
            "--sampling online --batch 1e-200",
            "--weight-decay 1e200",
            "--target-gram 0",
        ],
    )
    def test_ugly_problems_leave_nothing_but_an_answer(
        self, arguments: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """One JSON document, or one sentence: no warning about numbers that left their range."""
        monkeypatch.setattr(sys, "argv", ["deeplinear", "solve", "--steps", "12", "--json", *arguments.split()])
        monkeypatch.setattr(sys, "warnoptions", ["error"])  # so that the command line hides none
        monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
        monkeypatch.setenv("PYTHONWARNINGS", "error")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(SystemExit) as ended:
                main()
        out, errors = capfd.readouterr()
        if ended.value.code in (0, 3):
            assert json.loads(out)["command"] == "solve"
            assert errors == ""
        else:
            assert ended.value.code == 2
            assert errors.startswith("error: ")
            assert len(errors.splitlines()) == 1
            assert out == ""

    def test_interrupt_ends_cleanly(self) -> None:
        command = [*_command(), "solve", "--steps", "3000"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert process.stderr.readline() == "theory: started\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        assert process.returncode == 130
        assert errors == "interrupted\n"
        assert not Path("solve.nc").exists()


def given(*arguments: str) -> dl.Problem:
    """The problem that options describe."""
    return dl.Problem.from_dict(document("solve", *arguments)["problem"])


def _raising(error: Exception) -> Callable[..., object]:
    def function(*_: object, **__: object) -> None:
        raise error

    return function


def _file(text: str) -> str:
    Path("problem.toml").write_text(text)
    return "problem.toml"


def _command() -> list[str]:
    return [sys.executable, "-c", "from deeplinear_command import main; main()"]
