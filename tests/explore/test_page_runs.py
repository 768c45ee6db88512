"""Real training runs on the page: files are fitted, the best schedule is drawn, and bad files are refused."""

from pathlib import Path

import httpx
import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._explore import tasks, uploads
from deeplinear._explore.runs import read_request
from explorer import quiet
from explorer_page import SLOW, Explorer
from made_runs import WARMUP, three


def written(folder: Path) -> list[Path]:
    """Write three runs as somebody logged them."""
    paths = []
    for each in three(every=160):
        rates = np.append(each.rates, each.rates[-1])[each.steps]
        rows = [f"{step},{loss:.6f},{lr:.8f}" for step, loss, lr in zip(each.steps, each.loss, rates, strict=True)]
        paths.append(folder / f"{each.name}.csv")
        paths[-1].write_text("\n".join(["step,loss,lr", *rows]))
    return paths


def test_the_answer_is_what_the_library_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    paths, files = written(tmp_path), []
    for index, path in enumerate(paths):
        files.append(f"{index:016x} {path.name}")
        uploads.path_in(tmp_path, files[-1]).write_bytes(path.read_bytes())
    answer = tasks.TASKS["runs"]({"files": files, "warmup": WARMUP, "steps": 9000, "shape": "wsd"}, quiet)
    fit = dl.fit_runs(paths, warmup=WARMUP)
    assert [run["name"] for run in answer["runs"]] == ["constant", "piecewise", "cosine"]
    assert answer["fit"] == str(fit)
    assert answer["loss"] == pytest.approx(fit.best_schedule(9000, "wsd").loss)
    assert answer["forecast"]["loss"][-1] == pytest.approx(answer["loss"], abs=1e-3)  # other stretches
    with pytest.raises(Refusal, match="a file is no longer here: choose them again"):
        tasks.TASKS["runs"]({"files": ["f" * 16 + " a.csv"], "steps": 9000, "shape": "wsd"}, quiet)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"files": []}, "choose one to 6 files, one for each run"),
        ({"files": ["0" * 16 + " a.csv"] * 7}, "choose one to 6 files, one for each run"),
        ({"steps": 3}, "steps must be a whole number, at least 10, got 3"),
        ({"steps": 10**9}, "steps must be at most 10000000 on this page, got 1000000000"),
        ({"warmup": -1}, "warmup must be a whole number, at least 0, got -1"),
        ({"shape": "step"}, "shape must be 'free' or 'wsd' or 'cosine' or 'linear' or 'constant', got 'step'"),
    ],
)
def test_wrong_requests_are_refused(change: dict[str, object], message: str) -> None:
    request = {"files": ["0" * 16 + " a.csv"], "steps": 9000, "shape": "free"} | change
    with pytest.raises(Refusal, match=message):
        read_request(request)


def test_files_are_fitted_and_drawn(own_explorer: Explorer, address: str, tmp_path: Path) -> None:
    explorer = own_explorer
    explorer.open(address)
    page = explorer.page
    (tmp_path / "bad.csv").write_text("epoch,accuracy\n1,0.5\n2,0.6\n")
    page.set_input_files("#runs-files-input", [tmp_path / "bad.csv"])
    explorer.wait_for_text("#runs-result", "bad has no column of losses")
    page.locator("#runs-warmup").fill(str(WARMUP))
    page.locator("#runs-steps").fill("9000")
    page.set_input_files("#runs-files-input", written(tmp_path))
    page.locator("#runs-plot .legend").wait_for(timeout=SLOW)
    explorer.wait_for_text("#runs-result", "best schedule of 9000 steps")
    names = page.evaluate("() => document.querySelector('#runs-plot').data.map(({name}) => name)")
    assert {"constant", "piecewise", "cosine", "predicted"} <= set(names)
    page.locator("#runs-shape").select_option("cosine")
    explorer.wait_for_text("#runs-result", "cosine schedule of 9000 steps")
    page.locator("#runs").screenshot(path=tmp_path / "runs.png")
    page.click("#runs-away")
    explorer.wait_for("document.querySelector('#runs-plot').hidden")


def test_the_server_answers(client: httpx.Client) -> None:
    answer = client.post("/api/runs", json={"files": [], "steps": 100, "shape": "free"})
    assert (answer.status_code, answer.json()["error"]) == (400, "choose one to 6 files, one for each run")
