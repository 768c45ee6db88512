"""The explorer's page in a real browser."""

import json
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._explore.curvature import VECTORS, looked_at
from deeplinear._explore.presets import PRESETS
from deeplinear._explore.problems import read_problem
from explorer import PROBLEM, running_explorer

SLOW = 90_000  # milliseconds: a loaded machine
DRAWN = "JSON.parse(document.querySelector('#plot').dataset.key || 'null')"  # the problem whose curve is shown
IS_DRAWN = '#plot[data-key]:not([data-key=""])'


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running_explorer() as (url, _):
        yield url


class Explorer:
    """A page of the explorer, and what can be read off it."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def open(self, address: str, **state: Any) -> None:
        state = {"problem": PROBLEM} | state
        self.page.goto("about:blank")
        self.page.goto(f"{address}#{urllib.parse.quote(json.dumps(state))}")
        self.page.wait_for_selector(IS_DRAWN, timeout=SLOW)

    @property
    def state(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(urllib.parse.unquote(self.page.url.split("#", 1)[1]))
        return read

    @property
    def traces(self) -> list[dict[str, Any]]:
        keys = "({x, y, z, name, showlegend, mode}) => ({x, y, z, name, showlegend, mode})"
        read: list[dict[str, Any]] = self.page.evaluate(f"() => document.querySelector('#plot').data.map({keys})")
        return read

    def wait_for(self, condition: str) -> None:
        self.page.wait_for_function(f"() => {condition}", timeout=SLOW)

    def wait_for_traces(self, count: int) -> None:
        self.wait_for(f"document.querySelector('#plot').data?.length === {count}")

    def wait_for_value(self, part: str, field: str, value: Any) -> None:
        self.wait_for(f"{DRAWN}?.{part}.{field} === {json.dumps(value)}")

    def control(self, name: str) -> Any:
        return self.page.locator(f'[id="{name}"]')

    def slider(self, name: str) -> Any:
        return self.page.locator(".control", has=self.control(name)).locator("input[type=range]")


@pytest.fixture
def explorer(browser: Any, address: str) -> Iterator[Explorer]:
    context = browser.new_context(viewport={"width": 1300, "height": 900}, accept_downloads=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    opened = Explorer(page)
    yield opened
    context.close()
    assert errors == []
    ours = (address, "about:", "blob:", "data:")
    assert [url for url in requested if not url.startswith(ours)] == []  # works without a network


def test_newcomer_sees_a_curve_and_words(explorer: Explorer, address: str) -> None:
    page = explorer.page
    page.goto(address)
    page.wait_for_selector(IS_DRAWN, timeout=SLOW)
    explorer.wait_for_traces(3)
    assert page.locator("#tour button").all_text_contents() == [
        "Width", "Depth", "Richness", "Data", "Batch", "Learning rate",
    ]  # fmt: skip
    assert "Wider networks" in page.locator("#see").inner_text()
    page.get_by_role("button", name="Batch", exact=True).click()
    explorer.wait_for_value("sampling", "type", "OnlineSGD")
    explorer.wait_for_traces(4)
    assert "fresh batch" in page.locator("#see").inner_text()


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
    first = [request["only"] for request in requests if "only" in request]
    assert len(first) == 1
    assert 8 <= first[0] < 400
    assert len(explorer.traces[-1]["y"]) == 400


def test_a_preset_a_pin_and_a_link(explorer: Explorer, address: str) -> None:
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
    explorer.wait_for("document.querySelector('#status').textContent.includes('clipboard')")
    link = page.evaluate("() => navigator.clipboard.readText()")
    traces = explorer.traces
    other = Explorer(page.context.new_page())
    other.page.goto(link)
    other.wait_for_traces(5)
    assert other.traces == traces
    assert other.page.locator("#log-x").get_attribute("aria-pressed") == "true"
    other.page.goto("about:blank")
    other.page.goto(f"{address}#nonsense")
    other.page.wait_for_selector(IS_DRAWN, timeout=SLOW)
    assert "could not be read" in other.page.locator("#status").inner_text()
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
    assert page.locator("#layer").is_hidden()
    page.click("#view-rates")
    explorer.wait_for("document.querySelector('#plot').data.some((trace) => trace.mode === 'markers')")
    best = next(trace for trace in explorer.traces if trace["mode"] == "markers")
    assert best["x"][0] == pytest.approx(dl.optimal_lr(read_problem(PROBLEM)).lr)
    assert "The best learning rate" in page.locator("#see").inner_text()
    line = next(trace for trace in explorer.traces if trace["mode"] == "lines" and "test" in trace["name"])
    assert best["x"][0] in line["x"]  # on the curve, which is nowhere lower
    assert best["y"][0] == min(loss for loss in line["y"] if loss is not None)
    assert "Shaded: training is unstable" in page.locator("#see").inner_text()
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
    words = explorer.page.locator("#see").inner_text()
    assert "at the edge of stability" in words
    assert "With a margin take" in words
    assert "(bar) the loss is at most 5 % more" in words


def test_sharpness_follows_the_controls(explorer: Explorer, address: str) -> None:
    problem = PROBLEM | {"steps": 100, "network": PROBLEM["network"] | {"depth": 3, "richness": 2.0}}
    explorer.open(address, problem=problem, view="sharpness", x="linear", y="linear")
    page = explorer.page
    assert page.get_attribute("#view-sharpness", "aria-selected") == "true"
    explorer.control("optimizer.lr").fill("0.04")
    explorer.wait_for_value("optimizer", "lr", 0.04)
    moved = read_problem(problem | {"optimizer": PROBLEM["optimizer"] | {"lr": 0.04}})
    found = dl.sharpness(moved, looked_at(moved), VECTORS)
    traces = {trace["name"]: trace for trace in explorer.traces}
    np.testing.assert_array_equal(traces["largest"]["x"], found.times)
    np.testing.assert_array_equal(traces["largest"]["y"], found.largest)
    np.testing.assert_array_equal(traces["lowest"]["y"], found.lowest)
    np.testing.assert_array_equal(traces["steps overshoot above"]["y"], found.limit)
    words = page.locator("#see").inner_text()
    assert f"goes from {found.largest[0]:.3g} to {found.largest[-1]:.3g}" in words
    assert "Steps overshoot above 50 (solid line)" in words
    page.click("#pin")
    explorer.control("optimizer.lr").fill("0.001")
    explorer.wait_for_value("optimizer", "lr", 0.001)
    explorer.wait_for_traces(3)  # the largest of each, and the one limit that is near
    assert "Steps overshoot above 2.0e+3:" in page.locator("#see").inner_text()


def test_exports(explorer: Explorer, address: str, tmp_path: Path) -> None:
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
    script = f"import matplotlib\nmatplotlib.use('agg')\n{lines}\nprint(ax.lines[0].get_ydata().tolist())"
    printed = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    np.testing.assert_array_equal(json.loads(printed.stdout), theory.test_loss)


def test_experiment_with_progress_and_cancel(explorer: Explorer, address: str, tmp_path: Path) -> None:
    explorer.open(address)
    page = explorer.page
    explorer.control("experiment.dim").fill("40")
    page.click("#train")
    page.wait_for_selector(".verdict", timeout=SLOW)
    text = page.locator("#experiment-result").inner_text()
    assert "8 networks of input dimension 40" in text
    assert "z-score" in text
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
    assert page.locator("#experiment-progress").is_hidden()
    wait_until_idle(page)

    # And one that is left behind by closing the page.
    page.click("#train")
    page.wait_for_selector("#experiment-progress progress[value]", timeout=SLOW)
    other = page.context.new_page()
    other.goto(address)
    page.close()
    wait_until_idle(other)


def wait_until_idle(page: Any) -> None:
    ask = "async () => { const load = await (await fetch('api/load')).json(); return load.long === 0; }"
    page.wait_for_function(ask, timeout=SLOW, polling=200)


def test_long_solves_can_be_cancelled(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    page = explorer.page
    page.select_option('[id="sampling-type"]', "OnlineSGD")
    explorer.wait_for_value("sampling", "type", "OnlineSGD")
    explorer.control("steps").fill("1000")
    page.wait_for_selector("#progress progress[value]", timeout=SLOW)
    page.click("#progress button")
    assert "Cancelled" in page.locator("#status").inner_text()
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
    assert page.locator("#progress progress[value]").count() == 1
    page.click("#progress button")
    assert "Cancelled" in page.locator("#status").inner_text()
    wait_until_idle(page)


def test_bad_values_are_shown_beside_their_control(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    page = explorer.page
    before = explorer.traces
    width = explorer.control("network.width")
    width.fill("-3")
    error = explorer.control("network.width-error")
    error.wait_for(state="visible", timeout=SLOW)
    assert "width must be a positive finite number, got -3" in error.inner_text()
    assert width.get_attribute("aria-invalid") == "true"
    assert [trace["y"] for trace in explorer.traces] == [trace["y"] for trace in before]  # the last good curve stays
    assert "last curve that could be drawn" in page.locator("#pins").inner_text()
    width.fill("wide")
    explorer.wait_for("document.getElementById('network.width-error').textContent.includes('wide')")
    width.fill("0.5, 2")
    explorer.wait_for("document.getElementById('network.width-error').hidden")
    page.wait_for_selector(IS_DRAWN, timeout=SLOW)
    explorer.control("experiment.dim").fill("99999999")
    page.click("#train")
    dim = explorer.control("experiment.dim-error")
    dim.wait_for(state="visible", timeout=SLOW)
    assert "from 1 to 1000000" in dim.inner_text()


def test_keyboard_alone(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    page = explorer.page
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to the controls"
    page.focus("#view-loss")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#view-kernel[aria-selected=true]:focus", timeout=SLOW)
    page.keyboard.press("ArrowLeft")
    explorer.slider("optimizer.lr").focus()
    assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    explorer.wait_for(f"{DRAWN}?.optimizer.lr > 0.05")
    page.focus("#export")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.dataset.export") == "png"
    page.keyboard.press("Escape")
    assert not page.locator("[data-export=png]").is_visible()
    unlabelled = """() => [...document.querySelectorAll('input, select, button')]
        .filter((each) => each.checkVisibility())
        .filter((each) => !(each.labels?.length || each.getAttribute('aria-label') || each.textContent.trim()))
        .map((each) => each.id)"""
    assert page.evaluate(unlabelled) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_window_and_colours(browser: Any, address: str, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 375, "height": 700}, color_scheme=scheme)
    explorer = Explorer(context.new_page())
    explorer.open(address)
    page = explorer.page
    assert page.evaluate("() => document.documentElement.scrollWidth") == 375
    plot, controls = page.locator("#plot").bounding_box(), page.locator("#controls").bounding_box()
    assert plot["width"] > 300
    assert controls["y"] > plot["y"]
    ground = page.evaluate("() => document.querySelector('#plot').layout.paper_bgcolor")
    assert ground == {"light": "#ffffff", "dark": "#181d23"}[scheme]
    page.click("#theme")
    page.click("#theme")
    explorer.wait_for("document.querySelector('#plot').layout.paper_bgcolor === '#181d23'")
    context.close()


@pytest.fixture
def phone(browser: Any, address: str) -> Iterator[Explorer]:
    context = browser.new_context(viewport={"width": 375, "height": 812}, has_touch=True, is_mobile=True)
    explorer = Explorer(context.new_page())
    explorer.open(address)
    yield explorer
    context.close()


def is_in_sight(explorer: Explorer) -> bool:
    box = explorer.page.locator("#plot").bounding_box()
    return bool(box["y"] >= 0 and box["y"] + box["height"] <= 0.5 * 812 and box["height"] >= 190)


def test_the_picture_stays_in_sight_of_every_control(phone: Explorer) -> None:
    page = phone.page
    for more in page.locator("details.more").all():
        more.evaluate("(each) => (each.open = true)")
    last = phone.control("optimizer.weight_decay")
    last.scroll_into_view_if_needed()
    page.locator(".experiment").scroll_into_view_if_needed()
    assert is_in_sight(phone)
    phone.slider("optimizer.weight_decay").scroll_into_view_if_needed()
    before = phone.traces[-1]["y"]
    phone.slider("optimizer.weight_decay").fill("200")
    phone.wait_for(f"{DRAWN}?.optimizer.weight_decay === 0.5")
    assert phone.traces[-1]["y"] != before
    assert is_in_sight(phone)
    assert page.evaluate("() => document.documentElement.scrollWidth") == 375
    assert page.locator("#plot .modebar-btn").count() == 0

    # A finger on the picture scrolls the page as it does elsewhere.
    touch = page.context.new_cdp_session(page)
    top = page.evaluate("() => scrollY")
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": 200, "y": 120}]})
    for y in (140, 180, 220):
        touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": 200, "y": y}]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    phone.wait_for(f"scrollY < {top}")


def test_the_keyboard_never_lands_under_the_picture(phone: Explorer) -> None:
    page = phone.page
    where = """() => {
        const [at, picture] = [document.activeElement, document.querySelector('.picture')];
        const [own, above] = [at.getBoundingClientRect(), picture.getBoundingClientRect()];
        const isHidden = own.top < above.bottom && own.bottom > above.top && !picture.contains(at);
        return [at.id || at.textContent, isHidden || own.bottom > innerHeight];
    }"""
    for key, end in (("Tab", "train"), ("Shift+Tab", "preset")):
        reached: list[str] = []
        while end not in reached:
            page.keyboard.press(key)
            name, is_hidden = page.evaluate(where)
            assert not is_hidden, name
            reached.append(name)
            assert len(reached) < 60
    some = ("experiment.dim", "steps", "network.width", "pin", "view-loss")
    assert tuple(name for name in reached if name in some) == some  # from the bottom to the top, as they are seen


def test_nothing_offers_to_send_data_away(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    buttons = explorer.page.locator("#plot .modebar-btn").evaluate_all("(all) => all.map((each) => each.dataset.title)")
    assert buttons == ["Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"]


def test_curves_are_called_by_what_tells_them_apart(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    page = explorer.page

    def names() -> list[str]:
        texts: list[str] = page.locator("#pins .chip").all_text_contents()
        return texts

    assert names() == ["theory (now)"]
    page.click("#pin")
    explorer.control("network.width").fill("2")
    explorer.wait_for_value("network", "width", 2)
    assert names() == ["width 2 (now)", "width 1×"]
    page.select_option('[id="sampling-type"]', "Population")
    explorer.wait_for_value("sampling", "type", "Population")
    assert names() == ["unlimited data, width 2 (now)", "full batch, width 1, data set size 2×"]


def shorter(preset: dict[str, Any]) -> dict[str, Any]:
    """The same curves over a few steps: a search for the best rate solves each of them dozens of times."""
    most = 4 if preset["view"] == "rates" else 20

    def cut(problem: dict[str, Any]) -> dict[str, Any]:
        return problem | {"steps": min(problem["steps"], most)}

    pins = [pin | {"problem": cut(pin["problem"])} for pin in preset["pins"]]
    return preset | {"problem": cut(preset["problem"]), "pins": pins}


@pytest.mark.slow
def test_every_preset_is_drawn(explorer: Explorer, address: str) -> None:
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
        assert page.locator("#pins .chip").count() == count
        assert page.locator("#status.is-error").count() == 0


def test_update_rules_have_their_controls(explorer: Explorer, address: str) -> None:
    """Every kind can be chosen, begins with its own defaults, and its numbers reach the problem that is drawn."""
    explorer.open(address)
    page = explorer.page
    kinds = page.locator("[id='optimizer-type'] option").evaluate_all("all => all.map((each) => each.value)")
    assert kinds == ["GradientDescent", "NormalizedDescent", "Muon", "ScheduleFree", "SAM"]
    page.select_option("[id='optimizer-type']", "Muon")
    explorer.wait_for_value("optimizer", "type", "Muon")
    explorer.wait_for_value("optimizer", "momentum", 0.95)
    assert explorer.control("optimizer.clip").is_hidden()
    explorer.control("optimizer.other").fill("0.1")
    explorer.wait_for_value("optimizer", "other", 0.1)
    page.select_option("[id='optimizer-type']", "SAM")
    explorer.wait_for_value("optimizer", "momentum", 0)
    explorer.control("optimizer.rho").fill("0.2")
    explorer.wait_for_value("optimizer", "rho", 0.2)
    shown = np.array(explorer.traces[-1]["y"], dtype=float)
    expected = dl.Problem.from_dict(PROBLEM | {"optimizer": {"type": "SAM", "lr": 0.05, "rho": 0.2}})
    np.testing.assert_allclose(shown, dl.solve(expected).test_loss, rtol=1e-6)


def test_schedules_layers_and_clipping_are_typed(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    page = explorer.page
    page.locator("details.more:has([id='optimizer.clip']) > summary").click()
    page.select_option("[id='optimizer.schedule']", "wsd")
    explorer.control("optimizer.warmup").fill("0.2")
    explorer.control("optimizer.shape").fill("decay=0.3, end=0.1")
    explorer.control("optimizer.layer_lr").fill("input=0, readout=2")
    explorer.control("optimizer.clip").fill("0.5")
    explorer.wait_for_value("optimizer", "clip", 0.5)
    rate = dl.schedules.wsd(0.05, warmup=0.2, decay=0.3, end=0.1)
    rule = dl.GradientDescent(rate, layer_lr={"input": 0, "readout": 2}, clip=0.5)
    drawn = read_problem(page.evaluate(DRAWN))
    assert drawn.optimizer == rule
    np.testing.assert_allclose(np.array(explorer.traces[-1]["y"], dtype=float), dl.solve(drawn).test_loss, rtol=1e-6)
    explorer.wait_for("decodeURIComponent(location.hash).includes('\"clip\":0.5')")
    page.reload()  # a link has it all
    page.wait_for_selector(IS_DRAWN, timeout=SLOW)
    assert explorer.control("optimizer.layer_lr").input_value() == "input=0, readout=2"
    page.locator("details.more:has([id='optimizer.clip']) > summary").click()
    explorer.control("optimizer.clip").fill("")
    explorer.wait_for(f"{DRAWN}?.optimizer.clip === undefined")
    explorer.control("optimizer.layer_lr").fill("head=0")
    explorer.wait_for("!document.getElementById('optimizer.layer_lr-error').hidden")
    assert "layer_lr must be for input, hidden, readout" in page.locator("[id='optimizer.layer_lr-error']").inner_text()


def test_a_second_task_follows(explorer: Explorer, address: str) -> None:
    explorer.open(address)
    page = explorer.page
    page.select_option("[id='phases-type']", "Two")
    explorer.control("phases.steps").fill("8")
    explorer.wait_for_value("phases", "steps", 8)
    drawn = read_problem(page.evaluate(DRAWN))
    assert drawn.phases == (dl.Phase(12), dl.Phase(8, target_overlap=0.5))
    theory = dl.solve(drawn)
    first_task, _, test = (np.array(trace["y"], dtype=float) for trace in explorer.traces)
    np.testing.assert_allclose(test, theory.test_loss, rtol=1e-6)
    np.testing.assert_allclose(first_task, theory.task_loss[0], rtol=1e-6)
    assert "what is forgotten of it" in page.locator("#see").inner_text()
    explorer.control("phases.steps").fill("20")
    explorer.wait_for("!document.getElementById('phases.steps-error').hidden")
    page.select_option("[id='phases-type']", "One")
    explorer.wait_for(f"{DRAWN} && !{DRAWN}.phases")
    explorer.wait_for_traces(2)
