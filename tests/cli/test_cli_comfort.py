"""What makes the command line easy: help everywhere, files that say only what matters, hints, devices."""

import importlib.util
import io
import re
import runpy
import sys
import time
import warnings
from functools import cache
from pathlib import Path

import pytest
import typer

import deeplinear as dl
from command_line import document, in_folder, refused, run  # noqa: F401
from deeplinear import _cli
from deeplinear._cli import _report
from deeplinear._cli._report import Report
from needs import need

pytestmark = pytest.mark.usefixtures("in_folder")


@pytest.fixture(scope="session")
def torch() -> None:
    need("torch", importlib.util.find_spec("torch") is not None, "pip install 'deeplinear[gpu]'")


COMMANDS = tuple(sorted(typer.main.get_command(_cli.app).commands))  # type: ignore[attr-defined]
WITHOUT_DEVICE = {"estimate", "explore", "fit", "runs"}  # as docs/devices.md says


@cache
def help_of(command: str) -> str:
    shown = run(command, "-h")
    assert shown.exit_code == 0
    return str(shown.output)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_short_to_ask_for_and_shows_defaults_that_people_can_read(command: str) -> None:
    assert help_of(command) == run(command, "--help").output
    for word in ("MISSING", "dataclass", "factory", "<class", "object at"):
        assert word not in help_of(command).replace("package is missing", ""), word


def test_options_complete_in_shells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))  # whatever started the tests
    assert "--install-completion" in run("-h").stdout
    assert "complete -o default -F" in run("--show-completion", "bash").stdout


def test_a_file_may_say_only_what_is_special() -> None:
    Path("part.toml").write_text("steps = 7\n[network]\nwidth = 2.0\n")
    found = document("solve", "--problem", "part.toml", "--depth", "1", "--noise", "0.1")
    assert found["problem"]["steps"] == 7
    assert found["problem"]["network"]["width"] == 2.0
    assert found["problem"]["network"]["depth"] == 1
    plain = document("solve", "--steps", "7", "--depth", "1", "--noise", "0.1", "--width", "2")
    assert found["problem"] == plain["problem"]
    Path("rule.toml").write_text('[optimizer]\ntype = "Muon"\nlr = 0.02\n')
    assert document("solve", "--problem", "rule.toml", "--steps", "3")["problem"]["optimizer"]["type"] == "Muon"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[network]\nwidht = 2.0\n",
            "part.toml: 'widht' (did you mean 'width'?) is not known in network; allowed: type",
        ),
        ("stepps = 3\n", "part.toml: 'stepps' (did you mean 'steps'?) is not known in the problem; allowed: network"),
        (
            "[network]\nwidht = 2.0\n[data]\nnose = 1.0\n",
            "in network; allowed: type, depth, width, richness, parameterization",
        ),
        (
            "[network]\nwidht = 2.0\n[data]\nnose = 1.0\n",
            "; 'nose' (did you mean 'noise'?) is not known in data; allowed",
        ),
        ('[network]\ntype = "CNN"\n', "part.toml: network.type must be 'MLP' or 'ResNet', got 'CNN'"),
        ("network = 3\n", "part.toml: network must be a table, got 3"),
        ("[network\n", "part.toml is not valid TOML"),
        ("[network]\nwidth = -1.0\n", "width must be a positive finite number, got -1.0"),
    ],
)
def test_files_with_unknown_words_are_refused(text: str, words: str) -> None:
    Path("part.toml").write_text(text)
    assert words in refused("solve", "--problem", "part.toml")


def test_a_ratio_that_looks_like_a_count_gets_a_hint_and_is_solved(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(UserWarning, match="for 512 neurons write 512 / D"):
        assert run("solve", "--width", "512", "--steps", "3").exit_code == 0
    # As the program shows it, which python -m starts too.
    monkeypatch.setattr(
        sys,
        "argv",
        ["deeplinear", "compare", "--samples", "300", "--steps", "3", "--dim", "5", "--seeds", "2", "--json"],
    )
    monkeypatch.setattr(sys, "warnoptions", [])
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with pytest.raises(SystemExit):
            runpy.run_module("deeplinear", run_name="__main__")
    shown = capfd.readouterr().err
    assert shown.count("warning: samples 300 is 300 times the input dimension D here; for 300 samples") == 1
    counts = ("--data", "power-law", "--width", "512")
    assert run("solve", *counts, "--steps", "3").exit_code == 0  # a warning would be an error here


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "--dim", "6", "--seeds", "2"),
        ("solve",),
        ("simulate", "--dim", "6", "--seeds", "2"),
        ("sharpness", "--dim", "6", "--seeds", "2", "--at", "0,3"),
        ("landscape",),
        ("plan", "--over", "width", "--values", "width=1,2", "--compute", "1000"),
        pytest.param(("optimal", "--over", "lr", "--starts", "1"), marks=pytest.mark.slow),
        ("sweep", "--over", "lr=0.01,0.02", "--experiment", "dim=6,seeds=2"),
        pytest.param(("transfer", "--values", "1,2", "--experiment", "dim=6,seeds=2"), marks=pytest.mark.slow),
    ],
    ids=lambda arguments: arguments[0],
)
def test_every_command_that_computes_takes_a_device(arguments: tuple[str, ...]) -> None:
    given = (*arguments, "--steps", "4", "--depth", "1", "--json")
    assert run(*given, "--device", "torch:cpu").exit_code == run(*given).exit_code
    refusal = refused(*given[:-1], "--device", "abacus")
    assert "device must be" in refusal
    assert refusal.rstrip().endswith("got 'abacus'")  # and no list of devices, most of which are not here


@pytest.mark.parametrize("command", COMMANDS)
def test_only_commands_that_compute_nothing_themselves_have_no_device(command: str) -> None:
    assert ("--device" in help_of(command)) == (command not in WITHOUT_DEVICE)


@pytest.mark.usefixtures("torch")
def test_a_sweep_on_a_device_has_the_same_results() -> None:
    network, optimizer = dl.MLP(2, 1.0), dl.GradientDescent(0.05)
    problem = dl.Problem(network, dl.Isotropic(0.3), dl.FullBatch(2.0), optimizer, steps=8)
    here, there = (dl.sweep(problem, {"lr": [0.02, 0.05]}, device=device, workers=1) for device in ("cpu", "torch:cpu"))
    assert abs(here.test_loss - there.test_loss).max() < 1e-12
    with pytest.raises(ValueError, match="workers must be 1, without a scheduler, on a device, got 2"):
        dl.sweep(problem, {"lr": [0.02]}, device="torch:cpu", workers=2)


class TestProgress:
    """What is shown on stderr while a command works."""

    def test_nothing_is_started_before_arguments_are_checked(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(ValueError, match="wrong"), Report(json=False, quiet=False).stage("theory"):
            raise ValueError("wrong")
        assert capsys.readouterr().err == ""

    def test_work_is_announced_once_when_it_first_reports(self, capsys: pytest.CaptureFixture[str]) -> None:
        with Report(json=False, quiet=False).stage("theory") as progress:
            assert progress is not None
            progress(1, 3)
            progress(2, 3)
        first, last = capsys.readouterr().err.splitlines()
        assert first == "theory: started"
        assert last.startswith("theory: done in ")

    def test_a_terminal_has_a_bar_in_units_of_work(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        monkeypatch.setattr(sys, "stderr", terminal := Terminal())
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "120")
        with Report(json=False, quiet=False).stage("theory", lambda done: done**2) as progress:
            assert progress is not None
            assert terminal.getvalue() == ""  # nothing has been started
            progress(1, 2)
        assert re.search(r"theory .* 25%.* elapsed .* left ", terminal.getvalue())

    def test_work_that_does_not_report_is_announced_after_a_while(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_report, "_BEGUN", 0.01)
        with Report(json=False, quiet=False).stage("theory"):
            deadline = time.monotonic() + 10.0
            while not (shown := capsys.readouterr().err) and time.monotonic() < deadline:
                time.sleep(0.01)
        assert shown == "theory: started\n"


def test_a_file_that_is_replaced_is_named() -> None:
    first, second = (run("solve", "--steps", "4", "--out", "again.nc").stdout for _ in range(2))
    assert re.search(r"result: again.nc \([\d.]+ kB\)", first)
    assert re.search(r"result: again.nc \([\d.]+ kB, in place of an older file\)", second)


def test_tables_have_whole_steps() -> None:
    shown = run("solve", "--steps", "50000", "--lr", "0.01", "--out", "long.png").stdout
    rows = [line.split("│")[1].strip() for line in shown.splitlines() if line.startswith("│")]
    assert all(re.fullmatch(r"\d+", step) for step in rows)
    assert rows[0] == "0"
    assert rows[-1] == "49999"
    assert len(rows) > 6


def test_too_few_seeds_to_decide_are_no_disagreement() -> None:
    found = run("compare", "--steps", "5", "--dim", "30", "--seeds", "2", "--json")
    assert '"verdict": "undecided"' in found.stdout
    assert found.exit_code == 0
    assert "or these networks cannot decide" in " ".join(run("compare", "--help").stdout.replace("│", " ").split())


def test_help_of_switches_names_no_value() -> None:
    for line in run("compare", "--help").stdout.splitlines():
        assert "<bool>" not in line or "--help" in line
