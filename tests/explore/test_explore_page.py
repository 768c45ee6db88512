"""The explorer's page in a real browser: curves, views, presets, pins and links."""

import json
from typing import Any

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._explore.presets import PRESETS
from deeplinear._explore.problems import read_problem
from explorer import PROBLEM
from explorer_page import DRAWN, IS_DRAWN, SLOW, Explorer


def test_newcomer_sees_a_curve_and_words(own_explorer: Explorer, address: str) -> None:
    explorer = own_explorer
    page = explorer.page
    page.goto(address)
    page.wait_for_selector(IS_DRAWN, timeout=SLOW)
    explorer.wait_for_traces(3)
    assert page.locator("#tour button").all_text_contents() == [
        "Width", "Depth", "Richness", "Data", "Batch", "Learning rate",
    ]  # fmt: skip
    explorer.wait_for_text("#see", "Wider networks")
    page.get_by_role("button", name="Batch", exact=True).click()
    explorer.wait_for_value("sampling", "type", "OnlineSGD")
    explorer.wait_for_traces(4)
    explorer.wait_for_text("#see", "fresh batch")


def test_moving_a_control_moves_the_curve(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    before = explorer.traces[-1]["y"]
    explorer.slider("network.richness").fill("330")
    explorer.wait_for(f"{DRAWN}?.network.richness > 3")
    after = explorer.traces[-1]["y"]
    richness = float(explorer.control("network.richness").input_value())
    moved = PROBLEM | {"network": PROBLEM["network"] | {"richness": richness}}
    np.testing.assert_array_equal(before, dl.solve(read_problem(PROBLEM)).test_loss)
    np.testing.assert_array_equal(after, dl.solve(read_problem(moved)).test_loss)


def test_long_runs_show_their_first_steps_first(explorer: Explorer, address: str) -> None:
    explorer.open(address, problem=PROBLEM | {"steps": 400, "network": PROBLEM["network"] | {"depth": 4}})
    requests: list[dict[str, Any]] = []
    explorer.page.on("request", lambda request: requests.append(json.loads(request.post_data or "{}")))
    explorer.control("network.width").fill("2")
    explorer.wait_for_value("network", "width", 2)
    assert [request.get("brief", False) for request in requests if "problem" in request] == [True, False]
    assert len(explorer.traces[-1]["y"]) == 400


def test_a_preset_a_pin_and_a_link(own_explorer: Explorer, address: str) -> None:
    explorer = own_explorer
    page = explorer.page
    explorer.open(address)
    page.select_option("#preset", "wider-ntk")
    explorer.wait_for_traces(5)
    page.get_by_role("button", name="Remove width 0.25").click()
    explorer.wait_for_traces(4)
    explorer.control("network.width").fill("8")
    explorer.wait_for_value("network", "width", 8)
    page.click("#pin")
    explorer.control("network.width").fill("3")
    explorer.wait_for_value("network", "width", 3)
    explorer.wait_for_traces(5)
    assert explorer.traces[-1]["name"] == "width 8"
    page.click("#log-x")
    page.click("#export")
    page.click("[data-export=link]")
    explorer.wait_for("document.querySelector('#status').textContent.includes('copied')")
    link = page.evaluate("() => navigator.clipboard.readText()")
    traces = explorer.traces
    other = Explorer(page.context.new_page())
    other.page.goto(link)
    other.wait_for_traces(5)
    assert other.traces == traces
    other.page.wait_for_selector("#log-x[aria-pressed=true]", timeout=SLOW)
    other.page.goto("about:blank")
    other.page.goto(f"{address}#nonsense")
    other.page.wait_for_selector(IS_DRAWN, timeout=SLOW)
    other.wait_for_text("#status", "could not be read")
    other.wait_for("location.hash !== '#nonsense'")
    assert other.state["preset"] == "width"  # the usual settings


@pytest.mark.parametrize(
    "state",
    [
        {"view": "__proto__"},
        {"view": "constructor", "kind": "toString", "x": "__proto__", "layer": "hasOwnProperty"},
        {"view": ["loss"], "kind": 3, "relative": "no", "train": {}, "dim": [], "seeds": None, "preset": {}},
        {"view": "correlations", "kind": None, "layer": 1e300},
        {"pins": {"length": 3}, "trained": "yes", "__proto__": {"view": "loss"}},
        {"pins": [None, {"problem": None}, {"problem": {"network": 3}}, {"problem": PROBLEM}]},
    ],
)
def test_a_link_with_strange_values_has_the_usual_ones_instead(
    explorer: Explorer, address: str, state: dict[str, Any]
) -> None:
    explorer.open(address, **state)
    explorer.wait_for("document.querySelector('#see').textContent.length > 10")
    assert explorer.state["view"] in ("loss", "correlations")
    assert isinstance(explorer.state["kind"], str)
    assert len(explorer.state["pins"]) <= 1
    explorer.page.click("#view-kernel")  # and goes on working
    explorer.wait_for("document.querySelector('#plot').data?.[0]?.name === 'theory'")


def test_views_and_hover(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    page = explorer.page
    theory = dl.solve(read_problem(PROBLEM))
    page.click("#view-kernel")
    explorer.wait_for("document.querySelector('#plot').data?.[0]?.name === 'theory'")
    np.testing.assert_array_equal(explorer.traces[0]["y"], theory.kernel)
    page.click("#view-decomposition")
    explorer.wait_for_traces(5)
    page.click("#view-correlations")
    explorer.wait_for("document.querySelector('#plot').data?.[0]?.type === 'heatmap'")
    page.click("#relative")
    page.select_option("#kind", "error_correlation")
    explorer.wait_for(
        f"Math.abs(document.querySelector('#plot').data[0].z[3][2] - {theory.error_correlation[3, 2]}) < 1e-12"
    )
    page.locator("#layer").wait_for(state="hidden", timeout=SLOW)
    page.click("#view-rates")
    explorer.wait_for("document.querySelector('#plot').data.some((trace) => trace.mode === 'markers')")
    best = next(trace for trace in explorer.traces if trace["mode"] == "markers")
    assert best["x"][0] == pytest.approx(dl.optimal_lr(read_problem(PROBLEM)).lr)
    explorer.wait_for_text("#see", "The best learning rate")
    line = next(trace for trace in explorer.traces if trace["mode"] == "lines" and "test" in trace["name"])
    assert best["x"][0] in line["x"]  # on the curve, which is nowhere lower
    assert best["y"][0] == min(loss for loss in line["y"] if loss is not None)
    explorer.wait_for_text("#see", "Shaded: training is unstable")
    shapes = page.evaluate("() => document.querySelector('#plot').layout.shapes.filter(({type}) => type === 'rect')")
    (shaded,) = shapes
    assert all(loss is None for lr, loss in zip(line["x"], line["y"], strict=True) if lr > shaded["x0"])
    page.click("#view-loss")
    explorer.wait_for_traces(2)
    page.hover("#plot .nsewdrag")
    page.wait_for_selector("#plot .hoverlayer .legend", timeout=SLOW)


def test_the_rate_with_a_margin_and_others_nearly_as_good_are_marked(explorer: Explorer, address: str) -> None:
    problem = PROBLEM | {"data": {"type": "Isotropic", "noise": 0.0}, "steps": 60}  # best at the edge of stability
    explorer.open(address, problem=problem, view="rates", x="log", y="log")
    explorer.wait_for("document.querySelector('#plot').data.some((trace) => trace.name.endsWith('margin'))")
    found = dl.optimal_lr(read_problem(problem))
    marked = {trace["name"].split(", ")[-1]: trace for trace in explorer.traces if trace["mode"] == "markers"}
    assert marked["best with a margin"]["x"][0] == pytest.approx(found.safe_lr)
    assert marked["best with a margin"]["y"][0] == pytest.approx(found.safe_loss)
    assert ("nearly as good" in marked) == (len(found.minima) > 1)
    bar = explorer.page.evaluate(
        "() => document.querySelector('#plot').data.find(({name}) => name.endsWith('best')).error_x"
    )
    assert marked["best"]["x"][0] + bar["array"][0] == pytest.approx(found.minima[0].high)
    assert marked["best"]["x"][0] - bar["arrayminus"][0] == pytest.approx(found.minima[0].low)
    for words in ("at the edge of stability", "To be safe, take", "(bar) the loss is at most 5 % higher"):
        explorer.wait_for_text("#see", words)


def test_nothing_offers_to_send_data_away(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    buttons = explorer.page.locator("#plot .modebar-btn").evaluate_all("(all) => all.map((each) => each.dataset.title)")
    assert buttons == ["Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"]


def test_curves_are_called_by_what_tells_them_apart(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    page = explorer.page
    explorer.wait_for_chips(["theory (now)"])
    page.click("#pin")
    explorer.control("network.width").fill("2")
    explorer.wait_for_value("network", "width", 2)
    explorer.wait_for_chips(["width 2 (now)", "width 1×"])
    page.select_option('[id="sampling-type"]', "Population")
    explorer.wait_for_value("sampling", "type", "Population")
    explorer.wait_for_chips(["unlimited data, width 2 (now)", "full batch, width 1, data set size 2×"])


def shorter(preset: dict[str, Any]) -> dict[str, Any]:
    """The same curves over a few steps: a search for the best rate solves each of them dozens of times."""
    most = 4 if preset["view"] == "rates" else 20

    def cut(problem: dict[str, Any]) -> dict[str, Any]:
        return problem | {"steps": min(problem["steps"], most)}

    pins = [pin | {"problem": cut(pin["problem"])} for pin in preset["pins"]]
    return preset | {"problem": cut(preset["problem"]), "pins": pins}


@pytest.mark.slow
def test_every_preset_is_drawn(own_explorer: Explorer, address: str) -> None:
    explorer = own_explorer
    page = explorer.page

    def answer(route: Any) -> None:
        described = route.fetch().json()
        route.fulfill(json=described | {"presets": [shorter(preset) for preset in described["presets"]]})

    page.route("**/api/page", answer)
    explorer.open(address)
    theory = "(trace) => trace.mode === 'lines' && trace.showlegend !== false"
    for preset in PRESETS:
        page.select_option("#preset", preset["id"])
        explorer.wait_for(f"document.querySelector('#see').textContent.startsWith({json.dumps(preset['see'])})")
        page.wait_for_selector(IS_DRAWN, timeout=SLOW)
        count = 1 + len(preset["pins"])
        explorer.wait_for(f"document.querySelector('#plot').data.filter({theory}).length === {count}")
        explorer.wait_for_count("#pins .chip", count)
        assert page.locator("#status.is-error").count() == 0
