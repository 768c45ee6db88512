"""Networks, exports and long work on the page, in a real browser."""

from pathlib import Path
from typing import Any

import httpx
import matplotlib
import numpy as np
import pytest

import deeplinear as dl
from deeplinear._explore.problems import read_problem
from explorer import PROBLEM, until
from explorer_page import SLOW, Explorer


def test_exports(own_explorer: Explorer, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = own_explorer
    explorer.open(address)
    page = explorer.page

    def download(kind: str) -> Path:
        page.click("#export")
        with page.expect_download(timeout=SLOW) as waiting:
            page.click(f"[data-export={kind}]")
        path = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(path)
        return path

    assert download("png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in download("svg").read_text()
    rows = [line.split(",") for line in download("csv").read_text().splitlines()]
    theory = dl.solve(read_problem(PROBLEM))
    test = [float(row[3]) for row in rows if row[1] == "test_loss"]
    np.testing.assert_array_equal(test, theory.test_loss)
    np.testing.assert_array_equal(dl.Solution.load(download("netcdf")).kernel, theory.kernel)
    page.click("#export")
    page.click("[data-export=python]")
    page.wait_for_selector("#python[open]")
    lines = page.locator("#python code").inner_text()
    matplotlib.use("agg")
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    names: dict[str, Any] = {}
    exec(compile(lines, "lines", "exec"), names)
    np.testing.assert_array_equal(names["ax"].lines[0].get_ydata(), theory.test_loss)
    names["plt"].close("all")


def test_experiment_with_progress_and_cancel(
    own_explorer: Explorer, client: httpx.Client, address: str, tmp_path: Path
) -> None:
    explorer = own_explorer
    explorer.open(address)
    page = explorer.page
    explorer.control("experiment.dim").fill("40")
    page.click("#train")
    page.wait_for_selector(".verdict", timeout=SLOW)
    explorer.wait_for_text("#experiment-result", "8 networks of input dimension 40")
    explorer.wait_for_text("#experiment-result", "z-score")
    assert any("networks" in trace["name"] for trace in explorer.traces)
    z = next(trace for trace in explorer.traces if trace["name"].startswith("z,"))
    networks = dl.simulate(read_problem(PROBLEM), 40, 8, record="losses")
    comparison = dl.compare(dl.solve(read_problem(PROBLEM)), networks)
    np.testing.assert_array_equal(z["y"], comparison["train_loss" if "train" in z["name"] else "test_loss"].z)

    # A link trains the same networks again, also those of a pinned curve.
    page.click("#pin")
    explorer.control("network.width").fill("2")
    explorer.wait_for_value("network", "width", 2)
    explorer.wait_for("decodeURIComponent(location.hash).includes('\"trained\":true')")
    other = Explorer(page.context.new_page())
    other.page.goto(page.url)
    other.wait_for("document.querySelector('#plot').data?.some((trace) => trace.name.startsWith('z,'))")
    assert next(trace for trace in other.traces if trace["name"].startswith("z,"))["y"] == z["y"]
    other.page.close()
    page.get_by_role("button", name="Remove").click()
    explorer.control("network.width").fill("1")

    page.wait_for_selector(".verdict", timeout=SLOW)
    page.click("#export")
    with page.expect_download(timeout=SLOW) as waiting:
        page.click("[data-export=networks]")
    waiting.value.save_as(tmp_path / "networks.nc")
    np.testing.assert_array_equal(dl.Ensemble.load(tmp_path / "networks.nc").test_loss, networks.test_loss)

    # A longer one, cancelled on the way: nothing goes on at the server.
    explorer.control("steps").fill("1500")
    explorer.control("optimizer.lr").fill("0.000001")
    explorer.control("experiment.dim").fill("600")
    explorer.control("experiment.seeds").fill("24")
    page.click("#train")
    page.wait_for_selector("#experiment-progress progress[value]", timeout=SLOW)
    explorer.wait_for("document.querySelector('#experiment-progress span').textContent.includes('left')")
    page.click("#experiment-progress button")
    explorer.wait_for("document.querySelector('#experiment-result').textContent === 'Cancelled.'")
    page.locator("#experiment-progress").wait_for(state="hidden", timeout=SLOW)
    wait_until_idle(page)

    # And one that is left behind by closing the page.
    page.click("#train")
    page.wait_for_selector("#experiment-progress progress[value]", timeout=SLOW)
    page.close()
    assert until(lambda: client.get("/api/load").json()["long"] == 0)


def wait_until_idle(page: Any) -> None:
    ask = "async () => { const load = await (await fetch('api/load')).json(); return load.long === 0; }"
    page.wait_for_function(ask, timeout=SLOW, polling=200)


def test_long_solves_can_be_cancelled(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    page = explorer.page
    page.select_option("[id='optimizer-type']", "SAM")  # of which every step is solved, and that takes long
    explorer.wait_for_value("optimizer", "type", "SAM")
    explorer.control("optimizer.lr").fill("0.000001")  # at which nothing diverges
    explorer.control("steps").fill("1000")
    page.wait_for_selector("#progress progress[value]", timeout=SLOW)
    page.click("#progress button")
    explorer.wait_for_text("#status", "Cancelled")
    wait_until_idle(page)


def test_the_search_for_the_best_rate_shows_how_far_it_is(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    page = explorer.page
    page.select_option('[id="sampling-type"]', "OnlineSGD")
    explorer.control("steps").fill("400")
    page.click("#view-rates")
    explorer.wait_for(
        "/1 of 2: finding the best learning rate · \\d+ %/.test(document.querySelector('#progress span').textContent)"
    )
    explorer.wait_for_count("#progress progress[value]", 1)
    page.click("#progress button")
    explorer.wait_for_text("#status", "Cancelled")
    wait_until_idle(page)
