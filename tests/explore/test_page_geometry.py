"""Views of curvature, of lines in weight space and of weights, in a real browser."""

import numpy as np

import deeplinear as dl
from deeplinear._explore.curvature import VECTORS, looked_at
from deeplinear._explore.problems import read_problem
from explorer import PROBLEM
from explorer_page import SLOW, Explorer


def test_sharpness_follows_the_controls(explorer: Explorer, address: str) -> None:
    problem = PROBLEM | {"steps": 100, "network": PROBLEM["network"] | {"depth": 3, "richness": 2.0}}
    explorer.open(address, problem=problem, view="sharpness", x="linear", y="linear")
    page = explorer.page
    page.wait_for_selector("#view-sharpness[aria-selected=true]", timeout=SLOW)
    explorer.control("optimizer.lr").fill("0.04")
    explorer.wait_for_value("optimizer", "lr", 0.04)
    moved = read_problem(problem | {"optimizer": PROBLEM["optimizer"] | {"lr": 0.04}})
    found = dl.sharpness(moved, looked_at(moved), VECTORS)
    traces = {trace["name"]: trace for trace in explorer.traces}
    np.testing.assert_array_equal(traces["largest"]["x"], found.times)
    np.testing.assert_array_equal(traces["largest"]["y"], found.largest)
    np.testing.assert_array_equal(traces["lowest"]["y"], found.lowest)
    np.testing.assert_array_equal(traces["edge of stability"]["y"], found.limit)
    explorer.wait_for_text("#see", f"goes from {found.largest[0]:.3g} to {found.largest[-1]:.3g}")
    explorer.wait_for_text("#see", "Steps overshoot above 50, the edge of stability (dash-dotted)")
    ink = "getComputedStyle(document.documentElement).getPropertyValue('--ink').trim()"
    edge = "document.querySelector('#plot').data.find(({ name }) => name === 'edge of stability')"
    assert page.evaluate(
        f"() => {edge}.line.color === {ink} && {edge}.line.dash !== 'solid' && {edge}.showlegend !== false"
    )
    page.click("#pin")
    explorer.control("optimizer.lr").fill("0.001")
    explorer.wait_for_value("optimizer", "lr", 0.001)
    explorer.wait_for_traces(3)  # the largest of each, and the one limit that is near
    explorer.wait_for_text("#see", "Steps overshoot above 2000, the edge of stability:")


def test_landscapes_and_weights_follow_the_controls(explorer: Explorer, address: str) -> None:
    problem = PROBLEM | {"network": PROBLEM["network"] | {"richness": 6.0}}
    explorer.open(address, problem=problem, view="landscape")
    page = explorer.page
    np.testing.assert_array_equal(explorer.traces[0]["y"], dl.landscape(read_problem(problem)).test_loss)
    page.select_option("#along", "sharpest")
    explorer.control("optimizer.lr").fill("0.02")
    explorer.wait_for_value("optimizer", "lr", 0.02)
    moved = read_problem(problem | {"optimizer": PROBLEM["optimizer"] | {"lr": 0.02}})
    found = dl.landscape(moved, "sharpest")
    explorer.wait_for(f"document.querySelector('#plot').data[0].x[0] === {found.positions[0]}")
    np.testing.assert_array_equal(explorer.traces[1]["y"], found.train_loss)
    page.select_option("#along", "twins")  # which a full batch does not have
    explorer.wait_for("document.querySelector('#status').textContent.includes('unless batches are drawn')")

    page.select_option("#along", "line")
    explorer.wait_for("document.querySelector('#plot').layout.legend.title.text === 'dashed: theory'")
    page.click("#pin")  # with several curves, only test losses are named
    explorer.control("optimizer.lr").fill("0.021")
    explorer.wait_for("document.querySelector('#plot').layout.legend.title.text === 'dashed: theory<br>dotted: train'")
    explorer.control("optimizer.lr").fill("0.02")
    page.get_by_role("button", name="Remove").click()
    explorer.wait_for_value("optimizer", "lr", 0.02)

    page.click("#view-weights")
    explorer.wait_for("document.querySelector('#plot').data[0]?.name === 'layer 0'")
    spectra = dl.weight_spectra(moved, looked_at(moved))
    over = [each[0][0] / end[0] if each[0] else 1.0 for each, end in zip(spectra.outliers, spectra.edge, strict=True)]
    np.testing.assert_allclose(explorer.traces[0]["y"], over, rtol=1e-12)
    page.wait_for_selector("#about[href='reference/weight_spectra']", state="attached", timeout=SLOW)
    page.goto(f"{address}reference/weight_spectra")
    explorer.wait_for_text("pre", "Predict the singular values of each weight matrix")
