"""The commands ``sharpness`` and ``landscape``."""

from pathlib import Path

import numpy as np
import pytest

import deeplinear as dl
from command_line import document, refused, run
from deeplinear._cli import _fields

pytestmark = pytest.mark.usefixtures("in_folder")

FAST = ("--depth", "2", "--richness", "2", "--steps", "12")
SMALL = (*FAST, "--lr", "0.05")
PROBLEM = dl.Problem(
    dl.MLP(2, 1.0, richness=2.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=12
)
LOOK = ("--at", "0,6,11", "--vectors", "8")


class TestSharpness:
    def test_a_table_and_a_picture(self) -> None:
        result = run("sharpness", *SMALL, *LOOK)
        assert result.exit_code == 0, result.output
        found = dl.sharpness(PROBLEM, [0, 6, 11], 8)
        row = next(line for line in result.stdout.splitlines() if line.startswith("│ 11 "))
        assert f" {found.largest[-1]:.4g} " in row
        assert "edge of a bulk" in row
        assert str(found) in result.stdout
        assert "picture: sharpness.png" in result.stdout
        assert Path("sharpness.png").read_bytes().startswith(b"\x89PNG")
        assert "theory: done" in result.stderr

    def test_the_document_is_what_the_library_says(self) -> None:
        parsed = document("sharpness", *SMALL, *LOOK, "--operator", "kernel")
        found = dl.sharpness(PROBLEM, [0, 6, 11], 8, operator="kernel")
        assert dl.Problem.from_dict(parsed["problem"]) == PROBLEM
        assert parsed["operator"] == "kernel"
        assert parsed["times"] == [0, 6, 11]
        for name in ("largest", "largest_error", "lowest", "limit"):
            assert parsed[name] == getattr(found, name).tolist(), name
        assert parsed["experiment"] is None
        assert not list(Path().iterdir()), "no file unless asked for"

    def test_networks_stand_beside(self) -> None:
        parsed = document("sharpness", *SMALL, *LOOK, "--dim", "40", "--seeds", "3", "--method", "lazy")
        curvature = dl.Curvature([0, 6, 11], 8)
        networks = dl.simulate(PROBLEM, 40, 3, record="losses", method="lazy", curvature=curvature)
        assert networks.ritz_values is not None
        measured = parsed["experiment"]
        assert (measured["dim"], measured["seeds"], measured["method"]) == (40, [0, 1, 2], "lazy")
        np.testing.assert_array_equal(measured["ritz_values"]["mean"], networks.ritz_values.mean(axis=0))
        result = run("sharpness", *SMALL, *LOOK, "--dim", "40", "--seeds", "3")
        assert "3 networks of input dimension 40" in result.stdout
        assert f" {parsed['ritz_values'][-1][0]:.5g} " in result.stdout

    def test_steps_are_read_as_a_range_or_chosen(self) -> None:
        assert document("sharpness", *SMALL, "--vectors", "3", "--at", "2:10:5")["times"] == [2, 4, 6, 8, 10]
        assert len(document("sharpness", *SMALL, "--vectors", "3")["times"]) == 10

    def test_divergence_is_said(self) -> None:
        parsed = document("sharpness", *FAST, "--lr", "5", "--vectors", "3", "--at", "0,11", code=3)
        assert parsed["largest"][0] > 0
        assert parsed["largest"][1] is None

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("--at", "12"), "at must be one or more steps from 0 to 11"),
            (("--at", "1.5"), "at must be a whole number"),
            (("--at", "0:x:3"), "--at must be values separated by commas"),
            (("--vectors", "1"), "vectors must be"),
            (("--operator", "gauss"), "operator must be"),
            (("--dim", "10", "--width", "infinite"), "width must be finite"),
            (("--out", "a.nc"), "--out must end in .png or .svg or .pdf"),
        ],
    )
    def test_what_is_not_allowed(self, arguments: tuple[str, ...], words: str) -> None:
        assert words in refused("sharpness", *SMALL, *arguments)


class TestLandscape:
    def test_a_table_and_a_picture(self) -> None:
        result = run("landscape", *SMALL)
        assert result.exit_code == 0, result.output
        found = dl.landscape(PROBLEM)
        assert f"{found.train_loss[-1]:.4g}" in result.stdout
        assert str(found) in result.stdout
        assert Path("landscape.png").read_bytes().startswith(b"\x89PNG")

    @pytest.mark.parametrize(
        ("text", "along"),
        [("gradient", "gradient"), ("2,9", (2, 9)), ("tail=0.5", dl.TailMean(0.5)), ("ema=0.9", dl.EMA(0.9))],
        ids=str,
    )
    def test_every_line_is_what_the_library_says(self, text: str, along: str | dl.EMA | dl.TailMean) -> None:
        parsed = document("landscape", *SMALL, "--along", text, "--positions", "0:1:3")
        found = dl.landscape(PROBLEM, along, [0.0, 0.5, 1.0])
        assert parsed["positions"] == [0.0, 0.5, 1.0]
        assert parsed["train_loss"] == found.train_loss.tolist()
        assert parsed["test_loss"] == found.test_loss.tolist()
        assert parsed["barrier"] == (None if np.isnan(found.barrier) else found.barrier)

    def test_divergence_is_said(self) -> None:
        assert "training diverged at step" in refused("landscape", *FAST, "--lr", "5", "--quiet", code=3)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("--along", "up"), "along must be"),
            (("--along", "1,2,3"), "--along must be the name of a line, or two steps"),
            (("--along", "3,12"), "along must be two steps from 0 to 11"),
            (("--along", "ema=2"), "--along ema must be"),
            (("--along", "mean=2"), "--along must look like ema=0.99 or tail=0.5"),
            (("--along", "twins"), "along must be another line unless batches are drawn"),
            (("--positions", "0:x:3"), "--positions must be values separated by commas"),
            (("--positions", "left"), "--positions must be numbers separated by commas"),
        ],
    )
    def test_what_is_not_allowed(self, arguments: tuple[str, ...], words: str) -> None:
        assert words in refused("landscape", *SMALL, *arguments)


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("sharpness", ("--at", "--vectors", "--operator", "--dim", "--seeds", "--workers", "--method", "--out")),
        ("landscape", ("--along", "--positions", "--out")),
    ],
)
def test_help_is_complete(command: str, flags: tuple[str, ...]) -> None:
    text = run(command, "--help").stdout
    for flag in (*flags, "--json", *(field.flag for field in _fields.FIELDS)):
        assert flag in text, flag
    assert f"deeplinear {command}" in text
    assert "Exit codes" in text
    assert f"deeplinear {command}" in run("--help").stdout
