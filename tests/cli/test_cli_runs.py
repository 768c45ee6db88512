"""The command ``runs``."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import deeplinear as dl
from command_line import document, refused, run
from made_runs import PEAK, WARMUP, three

pytestmark = pytest.mark.usefixtures("written")


@pytest.fixture
def written(in_folder: None) -> None:
    """Three files as somebody logged them, with a rate for each logged step."""
    for each in three(every=160):
        rows = zip(each.steps, each.loss, np.append(each.rates, each.rates[-1])[each.steps], strict=True)
        text = "\n".join(f"{step},{loss:.6f},{lr:.8f}" for step, loss, lr in rows)
        Path(f"{each.name}.csv").write_text("step,loss,lr\n" + text)


FILES = ("constant.csv", "piecewise.csv", "cosine.csv")
READ = ("--warmup", str(WARMUP), "--law", "norm")


@cache
def fit() -> dl.RunsFit:
    return dl.fit_runs(list(FILES), warmup=WARMUP, law="norm")


def test_a_table_predictions_and_a_picture() -> None:
    result = run("runs", *FILES, *READ, "--predict", "wsd:12000", "--best", "9000", "--stop", "4000:8000")
    assert result.exit_code == 0, result.output
    wsd = dl.schedules.wsd(PEAK, warmup=WARMUP / 12000)
    assert f" {fit().predict(wsd, 12000):.4f} " in result.stdout
    for words in ("norm law, 3 runs", "held out", "best schedule of 9000 steps", "Stopping now costs"):
        assert words in result.stdout
    assert Path("runs.png").read_bytes().startswith(b"\x89PNG")


def test_the_document_is_what_the_library_says() -> None:
    parsed = document("runs", *FILES, *READ, "--predict", "wsd:12000:decay=0.1", "--best", "9000")
    assert parsed["values"] == pytest.approx(fit().values)
    wsd = dl.schedules.wsd(PEAK, warmup=WARMUP / 12000, decay=0.1)
    assert parsed["predictions"]["wsd:12000:decay=0.1"]["loss"] == pytest.approx(fit().predict(wsd, 12000))
    assert len(parsed["best"]["9000"]["lr"]) == 9000
    assert not Path("runs.png").exists()


def test_what_makes_no_sense_is_refused() -> None:
    assert "--predict must look like SHAPE:STEPS or" in refused("runs", "constant.csv", "--predict", "wsd12000")
    assert "--predict must look like SHAPE:STEPS or" in refused("runs", "constant.csv", "--predict", "wsd:9000:fall=1")
    assert "--stop must look like STEP:STEPS" in refused("runs", "constant.csv", "--stop", "4000")
    assert "there is no file" in refused("runs", "missing.csv")
    assert "loss must be a column of numbers of constant: step, loss, lr" in refused(
        "runs", "constant.csv", "--loss", "nll"
    )
