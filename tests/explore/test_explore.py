"""The explorer without a browser: what it reads, refuses and writes, and what it leaves running."""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import queue
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import matplotlib
import numpy as np
import psutil
import pytest
import uvicorn
from starlette.applications import Starlette
from typer.testing import CliRunner

import deeplinear as dl
from deeplinear._cli import app as cli
from deeplinear._explore import app as explorer_app
from deeplinear._explore import connections, pool, rates, tasks
from deeplinear._explore import folder as folders
from deeplinear._explore.app import LARGEST_BODY, make_app
from deeplinear._explore.code import python_lines
from deeplinear._explore.controls import CONTROLS, KINDS
from deeplinear._explore.presets import PRESETS
from deeplinear._explore.problems import SHAPES, field_of, read_problem
from deeplinear._explore.serve import configuration
from explorer import running_explorer

PROBLEM: dict[str, Any] = {
    "network": {"type": "MLP", "depth": 2, "width": 1.0},
    "data": {"type": "Isotropic", "noise": 0.3},
    "sampling": {"type": "FullBatch", "samples": 2.0},
    "optimizer": {"type": "GradientDescent", "lr": 0.05},
    "steps": 20,
}


def changed(part: str, **values: Any) -> dict[str, Any]:
    return PROBLEM | {part: PROBLEM[part] | values}


def quiet(**_: Any) -> None:
    pass


def last_line(response: httpx.Response) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(response.text.strip().splitlines()[-1])
    return answer


@pytest.fixture(scope="module")
def app() -> Starlette:
    return make_app()


@pytest.fixture(scope="module")
def client(app: Starlette) -> Iterator[httpx.Client]:
    """A client of a server in this process, so that tests can look inside and change its limits."""
    with served(app) as connected:
        yield connected


@contextlib.contextmanager
def served(app: Starlette) -> Iterator[httpx.Client]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(configuration(app))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=60) as connected:
        yield connected
    server.should_exit = True
    thread.join()


# --- controls and presets ---------------------------------------------------------------------------------------


def test_every_field_of_a_problem_has_a_control() -> None:
    power_law = type(dl.Spectrum.power_law(2.0, 1.0))
    kinds = [dl.MLP, dl.ResNet, dl.Isotropic, dl.Spectrum, power_law, dl.Population, dl.FullBatch, dl.OnlineSGD]
    kinds += [dl.MultiPassSGD, dl.GradientDescent]
    fields = {(kind.__name__, field.name) for kind in kinds for field in dataclasses.fields(kind) if field.init}
    controls = {(kind, control.name) for control in CONTROLS for kind in control.kinds}
    assert controls - fields == {("GradientDescent", "schedule")}  # the page's own word
    assert fields <= controls
    assert {kind for _, _, words in KINDS.values() for kind, _ in words} == {kind.__name__ for kind in kinds}
    assert [control.name for control in CONTROLS if not control.part] == ["steps"]


def test_every_control_has_words_and_its_slider_ends_are_allowed() -> None:
    for control in CONTROLS:
        assert control.label
        assert control.help
        assert control.allowed or control.widget in ("choice", "switch")  # which show all that is allowed
        if control.widget != "slider":
            continue
        assert control.symbol
        counts = [] if control.count is None else list(control.count)
        for kind in control.kinds or ("",):
            for value in (control.low, control.high, control.default, *counts):
                problem = json.loads(json.dumps(PROBLEM))
                table = problem[control.part] if control.part else problem
                if kind:
                    needed = {other.name: other.default for other in CONTROLS if kind in other.kinds}
                    table.clear()
                    table.update({"type": kind} | {name: each for name, each in needed.items() if each is not None})
                table[control.name] = value
                if "batch" in table and "samples" in table:
                    other = "samples" if control.name == "batch" else "batch"
                    table[other] = value
                read_problem(problem)


def test_presets_cover_the_panels_and_can_be_read() -> None:
    panels = "1a 1b 1c 2a 2b 3a 3b 3c 3d 4a 4b 4c 5a 5b 6a 6b 6c 7a 7b A1 A2a A2b A3"
    assert " ".join(preset["id"] for preset in PRESETS if preset["group"].startswith("Panels")) == panels
    assert [preset["id"] for preset in PRESETS if preset["group"] == "Tour"] == [
        "width", "depth", "richness", "data", "batch", "lr",
    ]  # fmt: skip
    assert len({preset["id"] for preset in PRESETS}) == len(PRESETS)
    for preset in PRESETS:
        assert preset["see"].endswith(".")
        for curve in ({"problem": preset["problem"]}, *preset["pins"]):
            read_problem(curve["problem"])


def problems_of(ident: str, part: str, name: str) -> dict[float, dl.Problem]:
    """Problems of a preset by the value of the field in which they differ."""
    preset = next(each for each in PRESETS if each["id"] == ident)
    return {each["problem"][part][name]: read_problem(each["problem"]) for each in (preset, *preset["pins"])}


def curves_of(ident: str, part: str, name: str) -> dict[float, dl.Solution]:
    problems = problems_of(ident, part, name)
    return dict(zip(problems, dl.solve(list(problems.values())), strict=True))


def test_stories_are_true() -> None:
    order = (0.25, 0.5, 1.0, 2.0, 4.0)
    mup, ntk = curves_of("wider-mup", "network", "width"), curves_of("wider-ntk", "network", "width")
    losses = np.array([mup[name].test_loss for name in order])
    assert (np.diff(losses, axis=0) < 0).all()  # wider is ahead at every step
    early, late = (np.array([ntk[name].test_loss[step] for name in order]) for step in (25, -1))
    assert (np.diff(early) < 0).all()
    assert (np.diff(late) > 0).all()
    batches = curves_of("small-batch", "sampling", "batch")
    assert [size for size, theory in batches.items() if theory.status.diverged] == [0.05]
    peaks = [batches[size].test_loss.max() for size in (0.1, 0.2, 0.5)]
    assert peaks == sorted(peaks, reverse=True)
    data = curves_of("double", "sampling", "samples")
    assert data[1.0].test_loss[-1] > data[0.4].test_loss[-1] > data[3.0].test_loss[-1]
    rates = curves_of("lr", "optimizer", "lr")
    assert rates[0.25].status.diverged
    assert rates[0.003].test_loss[-1] > rates[0.01].test_loss[-1] > rates[0.03].test_loss[-1]


def test_the_optimum_stays_in_mup_and_moves_in_ntk() -> None:
    found = {}
    for ident in ("2a", "2b"):
        problems = problems_of(ident, "network", "width")
        found[ident] = dl.optimal_lr(problems[4.0]).lr / dl.optimal_lr(problems[0.5]).lr
    assert found["2a"] > 2  # from width 0.5 to 4
    assert 0.8 < found["2b"] < 1.25


# --- problems ---------------------------------------------------------------------------------------------------


def test_the_words_of_the_page() -> None:
    assert read_problem(PROBLEM) == dl.Problem.from_dict(PROBLEM)
    deep = read_problem(changed("network", type="ResNet", depth="infinite"))
    assert deep.network.depth == np.inf
    for shape, (words, _) in SHAPES.items():
        scheduled = read_problem(changed("optimizer", schedule=shape))
        rates = [0.05 * eval(words.format(steps=20), {"math": __import__("math"), "t": t}) for t in range(20)]
        np.testing.assert_array_equal(scheduled.optimizer.lr, rates)


@pytest.mark.parametrize(
    ("problem", "field", "words"),
    [
        (changed("network", width=-1), "network.width", "width must be a positive finite number, got -1"),
        (changed("network", width="wide"), "network.width", "'infinite'"),
        (changed("network", depth=0), "network.depth", "depth must be a whole number"),
        (changed("network", depth=10**9), "network.depth", "depth must be at most 256"),
        (changed("data", noise="much"), "data.noise", "noise must be"),
        (changed("data", target_gram=[[1, 2], [3, 4]]), "data.target_gram", "symmetric"),
        (changed("sampling", type="MultiPassSGD", batch=3.0), "sampling.batch", "batch must be at most samples"),
        (changed("optimizer", momentum=1), "optimizer.momentum", "momentum must be"),
        (changed("optimizer", schedule="sudden"), "optimizer.schedule", "schedule must be constant or warmup"),
        (PROBLEM | {"steps": 0.5}, "steps", "steps must be a whole number"),
        (PROBLEM | {"steps": 10**8}, "steps", "steps must be at most"),
        (changed("data", type="Spectrum", eigenvalues=[1.0] * 3000), "data.eigenvalues", "at most 2000 entries"),
        (changed("network", kind="MLP"), None, "'kind' is not known"),
        ({"steps": 3}, None, "missing"),
        ([], None, "must be an object"),
        (None, None, "must be an object"),
    ],
)  # fmt: skip
def test_bad_values_are_refused_beside_their_control(
    client: httpx.Client, problem: Any, field: str, words: str
) -> None:
    response = client.post("/api/solve", json={"problem": problem})
    assert response.status_code == 400
    assert response.json()["field"] == field
    assert words in response.json()["error"]


def test_field_of_knows_every_control() -> None:
    for control in CONTROLS:
        assert field_of(f"{control.name} must be something") == ".".join(filter(None, (control.part, control.name)))


# --- tasks ------------------------------------------------------------------------------------------------------


def test_solve_is_the_library(client: httpx.Client) -> None:
    theory = dl.solve(read_problem(PROBLEM))
    result = last_line(client.post("/api/solve", json={"problem": PROBLEM}))["result"]
    for name in ("times", "test_loss", "train_loss", "kernel"):
        np.testing.assert_array_equal(result[name], getattr(theory, name))
    for name in ("bias", "width", "data", "label_noise"):
        np.testing.assert_array_equal(result[name], getattr(theory.decomposition, name))
    first = tasks.solve({"problem": PROBLEM, "only": 7}, quiet)
    np.testing.assert_array_equal(first["test_loss"], theory.test_loss[:7])


def test_divergence_is_an_answer(client: httpx.Client) -> None:
    result = last_line(client.post("/api/solve", json={"problem": changed("optimizer", lr=5.0)}))["result"]
    assert result["diverged_at"] is not None
    assert result["test_loss"][-1] is None


def test_correlations_are_thinned_and_summed_over_outputs() -> None:
    problem = changed("data", target_gram=[[1.0, 0.2], [0.2, 0.5]]) | {"steps": 130}
    answer = tasks.correlations({"problem": problem, "kind": "gradient_correlation", "layer": 1}, quiet)
    assert answer["values"].shape == (tasks.HEAT_MAP, tasks.HEAT_MAP)
    theory = dl.solve(read_problem(problem))
    t, s = 100, 37
    whole = theory.gradient_correlation[0].reshape(130, 2, 130, 2)[answer["times"][t], :, answer["times"][s], :]
    assert answer["values"][t, s] == pytest.approx(np.trace(whole), rel=1e-12)
    assert answer["layers"] == [1, 2]


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_rates_mark_the_optimum(schedule: str) -> None:
    problem = changed("optimizer", schedule=schedule) | {"steps": 12}
    answer = tasks.rates({"problem": problem}, quiet)
    best = answer["optimum"]["loss"]
    assert best == pytest.approx(dl.optimal_lr(read_problem(problem)).loss)
    assert min(answer["test_loss"]) >= best * (1 - 1e-9)
    nearest = int(np.argmin(np.abs(np.log(answer["lrs"] / answer["optimum"]["lr"]))))
    at_nearest = read_problem(changed("optimizer", schedule=schedule, lr=float(answer["lrs"][nearest])) | {"steps": 12})
    assert answer["test_loss"][nearest] == pytest.approx(dl.solve(at_nearest).test_loss[-1], rel=1e-9)


WITH_EDGES = [
    PROBLEM,
    changed("data", noise=0.0) | {"steps": 40},
    changed("optimizer", lr=0.01, momentum=0.9) | {"steps": 25},
    changed("network", depth=3, richness=3.0, parameterization="ntk") | {"steps": 12},
    changed("sampling", samples=0.5) | {"steps": 30},
    changed("optimizer", lr=0.01, momentum=0.95) | {"steps": 20, "sampling": {"type": "OnlineSGD", "batch": 0.5}},
]


@pytest.mark.parametrize("problem", WITH_EDGES)
def test_the_curve_over_rates_is_resolved_and_nowhere_below_its_optimum(problem: dict[str, Any]) -> None:
    answer = tasks.rates({"problem": problem}, quiet)
    optimum = answer["optimum"]
    at = answer["lrs"].tolist().index(optimum["lr"])
    assert answer["drawn"][at]  # it stands on the curve
    assert answer["test_loss"][at] == optimum["loss"] == answer["test_loss"].min()

    # Where it is drawn it is resolved.
    lrs, losses = (np.log(answer[name][answer["drawn"]]) for name in ("lrs", "test_loss"))
    assert (np.diff(lrs) <= np.log(32) / 15 + 1e-9).all()  # no gap
    # Solved again at rates half-way between neighbours, the loss is near the line.
    half = (lrs[1:] + lrs[:-1]) / 2
    between = [replace_lr(problem, float(np.exp(lr))) for lr in half]
    found = np.log([theory.test_loss[-1] for theory in dl.solve(between)])
    off = np.abs(found - (losses[1:] + losses[:-1]) / 2)
    assert off.max() < 2 * np.log1p(rates.OFF), np.exp(half[off.argmax()])
    # The line ends where it does not, or where training fails, or with the picture.
    end = answer["lrs"][answer["drawn"]].max()
    assert end == answer["lrs"][-1] or answer["unstable"][-1] == (end, answer["lrs"][-1])


def replace_lr(problem: dict[str, Any], lr: float) -> dl.Problem:
    return read_problem(problem | {"optimizer": problem["optimizer"] | {"lr": lr}})


def test_a_jagged_curve_ends_where_it_cannot_be_resolved() -> None:
    def points(losses: list[float], ratio: float) -> list[rates.Point]:
        return [rates.Point(ratio**index, loss, loss, 1.0, loss > 1) for index, loss in enumerate(losses)]

    smooth = points([0.5, 0.4, 0.34, 0.3, 0.27], 1.1)
    assert rates.between(smooth) == []
    assert rates.unstable(smooth) == []
    jagged = [0.5, 0.4, 0.3, 0.31, 0.5, 0.32, 0.6, 0.31]
    assert len(rates.between(points(jagged, 1.1))) == 6  # solved between ...
    fine = points(jagged, 1.001)
    assert rates.between(fine) == []  # ... as far as that helps
    assert rates.unstable(fine) == [(fine[1].lr, fine[2].lr), (fine[2].lr, fine[-1].lr)]
    assert rates.drawn(fine) == [True, True, True, False, False, False, False, False]  # the optimum is always shown
    failing = points([0.5, 0.48, 0.47, 2.0, np.inf], 1.001)
    assert rates.unstable(failing) == [(failing[2].lr, failing[-1].lr)]
    hole = points([0.5, 3.0, 0.5, 0.48, 0.46, 0.44, 0.43], 1.001)
    assert rates.unstable(hole) == [(hole[0].lr, hole[2].lr)]  # below the optimum the line goes on
    assert rates.drawn(hole) == [True, False, True, True, True, True, True]


def test_rates_report_how_far_the_search_is() -> None:
    reports: list[dict[str, Any]] = []
    tasks.rates({"problem": PROBLEM}, lambda **message: reports.append(message))
    told = [report for report in reports if report]
    assert [stage for stage, _ in itertools.groupby(told, lambda report: report["stage"])] == [
        "1 of 2: finding the best learning rate",
        "2 of 2: loss at each learning rate",
    ]
    assert told[0]["part"] < 0.5
    assert told[-1]["part"] == 1.0


def test_a_search_that_nobody_waits_for_ends(client: httpx.Client) -> None:
    problem = PROBLEM | {"sampling": {"type": "OnlineSGD", "batch": 0.5}, "steps": 600}
    with client.stream("POST", "/api/rates", json={"problem": problem}) as stream:
        lines = stream.iter_lines()
        while '"part": 0.' not in (line := next(lines)):
            assert "error" not in line
        assert "1 of 2" in line
        assert client.get("/api/load").json()["long"] == 1
    assert until(lambda: client.get("/api/load").json()["long"] == 0, seconds=5)


def test_rates_of_a_run_that_is_too_long_are_refused(client: httpx.Client) -> None:
    answer = last_line(client.post("/api/rates", json={"problem": PROBLEM | {"steps": 3000}}))
    assert answer["field"] == "steps"
    assert "Lower the steps to 1000" in answer["error"]


def test_rates_without_an_optimum_say_so() -> None:
    nothing_to_learn = changed("network", centered=True) | {"data": {"target_gram": [[0.0]], "noise": 0.3}}
    answer = tasks.rates({"problem": nothing_to_learn}, quiet)
    assert answer["optimum"] is None
    assert "no learning rate" in answer["note"]
    assert len(answer["test_loss"]) == len(answer["lrs"])


def test_experiment_is_the_library(client: httpx.Client) -> None:
    request = {"problem": PROBLEM, "dim": 40, "seeds": 8}
    answer = last_line(client.post("/api/experiment", json=request))["result"]
    networks = dl.simulate(read_problem(PROBLEM), 40, 8, record="losses")
    comparison = dl.compare(dl.solve(read_problem(PROBLEM)), networks)
    np.testing.assert_array_equal(answer["test_loss"]["mean"], networks.mean("test_loss"))
    np.testing.assert_array_equal(answer["test_loss"]["z"], comparison["test_loss"].z)
    assert answer["verdict"] == comparison.verdict


def test_experiments_of_a_million_inputs(client: httpx.Client) -> None:
    request = {"problem": PROBLEM, "dim": 10**6, "seeds": 8}
    answer = last_line(client.post("/api/experiment", json=request))["result"]
    assert (answer["method"], answer["dim"]) == ("reduced", 10**6)
    theory = dl.solve(read_problem(PROBLEM))
    np.testing.assert_allclose(answer["test_loss"]["mean"], theory.test_loss, rtol=0.01)


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"dim": 2 * 10**6}, "experiment.dim", "dim must be a whole number from 1 to 1000000, got 2000000"),
        ({"dim": 1.5}, "experiment.dim", "dim must be"),
        ({"seeds": "many"}, "experiment.seeds", "seeds must be"),
        ({"problem": PROBLEM | {"steps": 5000}}, "steps", "at most 2000"),
        ({"problem": changed("network", width="infinite")}, "network.width", "width"),
        ({"problem": changed("network", width=500.0), "dim": 10**6}, "network.width", "at most 100000000"),
        (
            {"problem": changed("network", width=90.0, depth=60) | {"steps": 2000}, "seeds": 64},
            "experiment.dim",
            "Lower",
        ),
    ],
)  # fmt: skip
def test_bad_experiments(client: httpx.Client, changes: dict[str, Any], field: str, words: str) -> None:
    request = {"problem": PROBLEM, "dim": 200, "seeds": 4} | changes
    answer = last_line(client.post("/api/experiment", json=request))
    assert answer["field"] == field
    assert words in answer["error"]


def test_what_would_take_too_long_is_refused_with_its_estimate(client: httpx.Client) -> None:
    problem = changed("optimizer", momentum=0.5) | {"steps": 500_000}  # momentum is solved step by step
    answer = last_line(client.post("/api/solve", json={"problem": problem}))
    assert answer["field"] == "steps"
    assert re.search(r"theory \(dense\): [\d.]+ \w+, [\d.]+ TB; does not fit .* Lower the steps", answer["error"])


def test_netcdf_is_the_solution(app: Starlette, client: httpx.Client, tmp_path: Any) -> None:
    response = client.post("/api/netcdf", json={"problem": PROBLEM})
    path = tmp_path / "theory.nc"
    path.write_bytes(response.content)
    loaded = dl.Solution.load(path)
    np.testing.assert_array_equal(loaded.feature_correlation, dl.solve(read_problem(PROBLEM)).feature_correlation)
    assert list(app.state.folder.iterdir()) == []  # handed on and deleted


# --- Python lines -----------------------------------------------------------------------------------------------


def drawn(view: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    text = python_lines(view)
    exec(compile(text, "lines", "exec"), {})
    figure = plt.gcf()
    plt.close("all")
    return figure


def one_curve(problem: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"curves": [{"name": "mine", "color": "#0072B2", "problem": problem, **more}], "x": "linear", "y": "log"}


@pytest.mark.parametrize(
    "problem",
    [
        PROBLEM,
        changed("optimizer", schedule="warmup", momentum=0.5),
        changed("network", type="ResNet", depth="infinite"),
        changed("network", width="infinite", depth=1),
        changed("data", type="Spectrum", eigenvalues=[2.0, 0.5], target_power=[1.0, 1.0], proportional=True),
        changed("data", type="PowerLaw", capacity=1.5, source=1.0) | {"network": {"depth": 2, "width": 32}},
    ],
)
def test_python_lines_draw_the_same_losses(problem: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem | {"steps": 10}
    figure = drawn({"view": "loss", "train": True} | one_curve(problem), monkeypatch)
    test, train = (line.get_ydata() for line in figure.axes[0].lines)
    answer = tasks.solve({"problem": problem}, quiet)
    np.testing.assert_array_equal(test, answer["test_loss"])
    np.testing.assert_array_equal(train, answer["train_loss"])
    assert figure.axes[0].get_yscale() == "log"


def test_python_lines_of_the_other_views(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = one_curve(PROBLEM)
    answer = tasks.solve({"problem": PROBLEM}, quiet)
    kernel = drawn({"view": "kernel"} | curve, monkeypatch).axes[0].lines[0].get_ydata()
    np.testing.assert_array_equal(kernel, answer["kernel"])
    parts = [line.get_ydata() for line in drawn({"view": "decomposition"} | curve, monkeypatch).axes[0].lines]
    for part, name in zip(parts, ("bias", "width", "data", "label_noise", "test_loss"), strict=True):
        np.testing.assert_array_equal(part, answer[name])
    rates = tasks.rates({"problem": PROBLEM}, quiet)
    lrs, losses = (rates[name][rates["drawn"]] for name in ("lrs", "test_loss"))
    line, dot = drawn({"view": "rates"} | one_curve(PROBLEM, rates=lrs.tolist()), monkeypatch).axes[0].lines
    np.testing.assert_array_equal(line.get_xdata(), lrs)
    np.testing.assert_allclose(line.get_ydata(), losses, rtol=1e-9)
    assert dot.get_xdata()[0] == pytest.approx(rates["optimum"]["lr"], rel=1e-3)
    line, dot = drawn({"view": "rates"} | curve, monkeypatch).axes[0].lines  # the page has not drawn it yet
    assert dot.get_xdata()[0] in line.get_xdata()
    heat = tasks.correlations({"problem": PROBLEM, "kind": "feature_correlation", "layer": 2}, quiet)
    view = {"view": "correlations", "kind": "feature_correlation", "layer": 2, "relative": False}
    image = drawn(view | curve, monkeypatch).axes[0].collections[0]
    np.testing.assert_array_equal(np.ravel(image.get_array()), heat["values"].ravel())


def test_python_lines_train_the_same_networks(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    view = {"view": "loss"} | one_curve(PROBLEM, experiment={"dim": 30, "seeds": 8})
    axes = drawn(view, monkeypatch).axes[0]
    mean = dl.simulate(read_problem(PROBLEM), 30, 8, record="losses").mean("test_loss")
    np.testing.assert_array_equal(axes.lines[1].get_ydata(), mean)
    assert len(axes.collections) == 1
    assert "sign-flip test" in capsys.readouterr().out


@pytest.mark.parametrize("view", [{}, {"view": "loss"}, {"view": "loss", "curves": []}, {"view": "loss", "curves": [3]},
                                  {"view": "loss", "curves": [{"problem": PROBLEM}]}])  # fmt: skip
def test_bad_views_are_refused(client: httpx.Client, view: dict[str, Any]) -> None:
    assert client.post("/api/python", json=view).status_code == 400


@pytest.mark.parametrize("experiment", [3, "x", [1, 2], {}, {"dim": 3}, {"dim": "3", "seeds": 4},
                                        {"dim": [], "seeds": 1}, {"dim": 1.5, "seeds": 1},
                                        {"dim": 0, "seeds": 1}])  # fmt: skip
def test_malformed_experiments_of_a_view_are_refused(client: httpx.Client, experiment: Any) -> None:
    response = client.post("/api/python", json={"view": "loss"} | one_curve(PROBLEM, experiment=experiment))
    assert response.status_code == 400
    assert "experiment must be an object with whole numbers dim and seeds" in response.json()["error"]


@pytest.mark.parametrize("kind", [None, 3, [], {}, ["feature_correlation"], "__proto__", "x" * 1000])
def test_malformed_kinds_are_refused(client: httpx.Client, kind: Any) -> None:
    for path, body in (
        ("/api/python", {"view": "correlations", "kind": kind} | one_curve(PROBLEM)),
        ("/api/correlations", {"problem": PROBLEM, "kind": kind}),
    ):
        response = client.post(path, json=body)
        assert response.status_code == 400
        assert response.json()["error"].startswith("kind must be feature_correlation or")
        assert len(response.json()["error"]) < 700


@pytest.mark.parametrize("layer", [1.0, "1", [1], True, {}])
def test_malformed_layers_are_refused(client: httpx.Client, layer: Any) -> None:
    body = {"problem": PROBLEM, "kind": "feature_correlation", "layer": layer}
    response = client.post("/api/correlations", json=body)
    assert response.status_code == 400
    assert "layer must be a whole number or null" in response.json()["error"]


def number_fields() -> list[tuple[str, str, str]]:
    return [
        (control.part, kind, control.name)
        for control in CONTROLS
        for kind in control.kinds or ("",)
        if control.widget in ("slider", "text")
    ]


def test_numbers_beyond_all_floats_are_refused_in_every_field(client: httpx.Client) -> None:
    for part, kind, name in number_fields():
        for value in (10**400, -(10**400), [10**400]):
            problem = json.loads(json.dumps(PROBLEM))
            if part:
                needed = {other.name: other.default for other in CONTROLS if kind in other.kinds}
                problem[part] = {"type": kind} | {each: usual for each, usual in needed.items() if usual is not None}
            (problem[part] if part else problem)[name] = value
            response = client.post("/api/solve", json={"problem": problem})
            assert response.status_code == 400, (part, kind, name)
            assert f"{name} must be below 1.8e+308, got a number of" in response.json()["error"]
            assert response.json()["field"] == ".".join(filter(None, (part, name)))
    for name in ("dim", "seeds"):
        request = {"problem": PROBLEM, "dim": 50, "seeds": 2} | {name: 10**400}
        response = client.post("/api/experiment", json=request)
        assert response.status_code == 400
        assert response.json()["error"].startswith(f"{name} must be a whole number from 1 to")
    assert client.post("/api/correlations", json={"problem": PROBLEM, "kind": "x", "layer": 10**400}).status_code == 400


# --- bounds -----------------------------------------------------------------------------------------------------


def test_two_hundred_at_once_are_answered_or_refused_whole(client: httpx.Client) -> None:
    """None of them is told that it is accepted and then left without an answer."""
    limits = httpx.Limits(max_connections=200)
    with httpx.Client(base_url=client.base_url, timeout=60, limits=limits) as many, ThreadPoolExecutor(200) as threads:
        answers = list(threads.map(lambda _: many.post("/api/solve", json={"problem": PROBLEM}), range(200)))
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert sum(answer.status_code == 200 for answer in answers) >= 98  # as many as there is room for
    for answer in answers:
        if answer.status_code == 200:
            assert "result" in last_line(answer)
        else:
            assert "waiting already; try again" in answer.json()["error"]
            assert answer.headers["retry-after"]


@pytest.fixture
def stuck_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """A client of a server whose processes never end to read what they are given."""
    script = "import sys; print('{}', flush=True); sys.stdin.read()"
    monkeypatch.setattr(pool, "_COMMAND", (sys.executable, "-c", script))
    monkeypatch.setattr(pool, "READING", 0.2)
    monkeypatch.setattr(pool, "_PATIENCE", 0.05)
    with served(make_app()) as connected:
        yield connected


def test_reading_a_request_is_bounded_in_time(stuck_client: httpx.Client) -> None:
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda _: stuck_client.post("/api/solve", json={"problem": PROBLEM}), range(6)))
    assert [answer.status_code for answer in answers] == [400] * 6
    assert "reading this took longer than" in answers[0].json()["error"]
    assert until(lambda: stuck_client.get("/api/load").json() == {"short": 0, "long": 0})


def test_who_hangs_up_while_a_request_is_read_ends_that(
    stuck_client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "READING", 1000.0)
    with contextlib.suppress(httpx.ReadTimeout):
        stuck_client.post("/api/solve", json={"problem": PROBLEM}, timeout=0.3)
    assert until(lambda: stuck_client.get("/api/load").json() == {"short": 0, "long": 0}, seconds=5)


def test_who_hangs_up_ends_the_writing_of_a_file(app: Starlette, client: httpx.Client) -> None:
    long = changed("optimizer", momentum=0.5) | {"steps": 900}
    with pytest.raises(httpx.ReadTimeout):
        client.post("/api/netcdf", json={"problem": long}, timeout=1.0)
    assert until(lambda: client.get("/api/load").json() == {"short": 0, "long": 0}, seconds=5)
    assert until(lambda: list(app.state.folder.iterdir()) == [])


def hung_up(connection: socket.socket, seconds: float) -> bytes:
    """What the server sends until it closes the connection."""
    connection.settimeout(seconds)
    received = b""
    while chunk := connection.recv(4096):
        received += chunk
    return received


def test_half_sent_requests_are_closed(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SLOWEST_REQUEST", 0.5)
    monkeypatch.setattr(explorer_app, "SLOWEST_BODY", 0.3)
    at = (client.base_url.host, client.base_url.port)
    head = b"POST /api/solve HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 100\r\n"
    beginnings = (b"", b"GET / HT", head, head + b"\r\n", head + b"\r\n{", head.replace(b"json", b"xml") + b"\r\n{")
    opened = [socket.create_connection(at) for _ in range(40) for _ in beginnings]
    for connection, beginning in zip(opened, beginnings * 40, strict=True):
        connection.sendall(beginning)
    assert client.get("/api/load").status_code == 200  # others are served meanwhile
    answers = [hung_up(connection, 10) for connection in opened]
    for beginning, answer in zip(beginnings * 40, answers, strict=True):
        status = answer.split(b"\r\n")[0]
        expected = b"" if not beginning else b"HTTP/1.1 415" if b"xml" in beginning else b"HTTP/1.1 408"
        assert status.startswith(expected)
        assert bool(status) == bool(beginning)  # nothing is said to who said nothing
    for connection in opened:
        connection.close()


def test_slow_requests_that_arrive_in_time_are_answered(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SLOWEST_REQUEST", 1.0)
    body = json.dumps({"problem": PROBLEM}).encode()
    head = (
        f"POST /api/solve HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    )
    with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
        connection.settimeout(20)
        for _ in range(3):  # on one connection, which together takes longer than one request may
            for part in (head[:20], head[20:] + "\r\n\r\n", body[:50].decode(), body[50:].decode()):
                connection.sendall(part.encode())
                time.sleep(0.1)
            received = b""
            while b"\r\n0\r\n" not in received:
                received += connection.recv(65536)
            assert b'"result"' in received


def test_answers_that_nobody_reads_do_not_keep_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = """import sys
print('{"ready": true}', flush=True)
for line in sys.stdin:
    print('{"progress": {}}', flush=True)
    print('{"result": 1}', flush=True)"""
    monkeypatch.setattr(pool, "_COMMAND", (sys.executable, "-c", answers))

    async def last_lines() -> list[bytes]:
        processes = pool.Pool(1, 5, tmp_path)
        left_open = []
        for _ in range(3):  # each is left at its last line, and the next has the one process there is
            lines = processes.run("solve", {}, 10.0)
            left_open.append(lines)
            async with asyncio.timeout(20):
                while b"result" not in (line := await anext(lines)):
                    pass
            await processes.settled()
            assert processes.tasks == 0
        await processes.close()
        return [line]

    assert asyncio.run(last_lines()) == [b'{"result": 1}\n']


def test_who_does_not_read_is_hung_up_on(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SLOWEST_READER", 0.3)
    whole = int(client.head("/plotly.js").headers["content-length"])
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((client.base_url.host, client.base_url.port))
        connection.sendall(b"GET /plotly.js HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 3)
        time.sleep(1.5)
        connection.settimeout(10)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(2**20):
                received += len(chunk)
    assert received < whole


def test_connections_are_bounded(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST", 5)
    at = (client.base_url.host, client.base_url.port)
    opened = [socket.create_connection(at) for _ in range(8)]
    time.sleep(0.1)
    opened[-1].sendall(b"GET /api/load HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    answer = hung_up(opened[-1], 10)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"more than 5 connections are open already" in answer
    for connection in opened:
        connection.close()


def test_folders_of_killed_servers_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with running_explorer() as (_, process):
        assert until(lambda: list(tmp_path.glob(f"deeplinear-explore-{process.pid}-*")))
        left = next(tmp_path.glob(f"deeplinear-explore-{process.pid}-*"))
        (left / "theory.nc").write_bytes(b"half a file")
        os.kill(process.pid, 9)
        process.wait()
    assert left.exists()
    dead = process.pid  # nobody has this number now
    others = [
        tmp_path / "deeplinear-explore-mine",
        tmp_path / f"deeplinear-explore-{os.getpid()}-abc",
        tmp_path / "tmpabc",
    ]
    for folder in others:
        folder.mkdir()
    (tmp_path / f"deeplinear-explore-{dead}-file").touch()
    (tmp_path / f"deeplinear-explore-{dead}-link").symlink_to(others[0])
    held = tmp_path / f"deeplinear-explore-{dead}-held"  # by a process that is not seen from here
    held.mkdir()
    lock = folders._lock(held)
    with folders.own_folder() as own:
        assert own.exists()
        assert not left.exists()
        assert all(folder.exists() for folder in (*others, held))
        assert (tmp_path / f"deeplinear-explore-{dead}-file").exists()
        assert (tmp_path / f"deeplinear-explore-{dead}-link").is_symlink()
        assert not folders._is_abandoned(own)
    assert not own.exists()
    assert lock is not None
    os.close(lock)


def test_requests_are_bounded_and_must_be_ours(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    solve = "/api/solve"
    assert (
        client.post(solve, content=b" " * (LARGEST_BODY + 1), headers={"content-type": "application/json"}).status_code
        == 413
    )
    assert client.post(solve, content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    for text in (b"{", b"[1]", b"[" * 100_000):
        assert client.post(solve, content=text, headers={"content-type": "application/json"}).status_code == 400
    assert client.post("/api/nothing", json={}).status_code == 404
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400
    assert client.post(solve, json={"problem": PROBLEM}, headers={"origin": "http://evil.example"}).status_code == 403
    assert client.post(solve, json={"problem": PROBLEM}, headers={"origin": str(client.base_url)}).status_code == 200
    assert client.get("/page/../app.py").status_code == 404
    page = client.get("/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert client.get("/plotly.js").status_code == 200
    monkeypatch.setitem(explorer_app.LIMITS, "rates", 0.0)
    assert "took longer than 0 s" in last_line(client.post("/api/rates", json={"problem": PROBLEM}))["error"]


def test_everything_the_page_needs_is_in_the_package(client: httpx.Client) -> None:
    index = client.get("/").text
    for path in re.findall(r'(?:src|href)="([^"#]+)"', index):
        assert client.get("/" + path).status_code == 200, path
    scripts = [client.get(f"/page/{name}").text for name in ("main.js", "controls.js", "plot.js", "style.css")]
    for text in (index, *scripts):
        assert not re.findall(r"https?://(?!www\.w3\.org)", text)


# --- the command ------------------------------------------------------------------------------------------------


def test_command_refuses_what_it_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner().invoke
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = run(cli, ["explore", "--no-browser", "--port", port])
        assert result.exit_code == 2
        assert f"port must be free, got {port}" in result.stderr
    assert "port must be from 0 to 65535" in run(cli, ["explore", "--port", "99999"]).stderr
    monkeypatch.setattr(explorer_app, "find_spec", lambda _: None)
    result = run(cli, ["explore", "--no-browser"])
    assert result.exit_code == 5
    assert "pip install 'deeplinear[explore]'" in result.stderr
    monkeypatch.delitem(sys.modules, "deeplinear._explore.serve")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = run(cli, ["explore", "--no-browser"])
    assert result.exit_code == 5
    assert "(uvicorn): pip install 'deeplinear[explore]'" in result.stderr


def test_command_opens_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = queue.SimpleQueue[str]()
    monkeypatch.setattr("webbrowser.open", opened.put)
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: None)
    result = CliRunner().invoke(cli, ["explore", "--port", "0"])
    assert result.exit_code == 0
    assert opened.get(timeout=10) in result.stdout


# --- a real server ----------------------------------------------------------------------------------------------


def workers_of(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def until(condition: Any, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_server_from_start_to_end() -> None:
    with running_explorer() as (address, process):
        # Bound to this machine alone.
        listening = [each for each in psutil.Process(process.pid).net_connections() if each.status == "LISTEN"]
        assert [each.laddr.ip for each in listening] == ["127.0.0.1"]

        # Fifty requests at once, each with its own answer.
        with httpx.Client(base_url=address, timeout=60, limits=httpx.Limits(max_connections=50)) as client:
            problems = [changed("network", width=0.5 + 0.05 * index) for index in range(50)]
            with ThreadPoolExecutor(50) as threads:
                answers = list(threads.map(lambda each: client.post("api/solve", json={"problem": each}), problems))
            for problem, answer in zip(problems, answers, strict=True):
                assert answer.status_code == 200
                expected = dl.solve(read_problem(problem)).test_loss[-1]
                assert last_line(answer)["result"]["test_loss"][-1] == expected

            # Who hangs up ends the work.
            long = changed("optimizer", lr=1e-6) | {"steps": 1500}
            request = {"problem": long, "dim": 500, "seeds": 64}
            with client.stream("POST", "api/experiment", json=request) as stream:
                lines = stream.iter_lines()
                while "training" not in next(lines):
                    pass
                assert client.get("api/load").json() == {"short": 0, "long": 1}
            assert until(lambda: client.get("api/load").json() == {"short": 0, "long": 0})
            assert until(lambda: all(each.cpu_percent(0.2) < 20 for each in workers_of(process.pid)))

        workers = workers_of(process.pid)
        assert workers
        # Interrupted in the middle of work, it leaves nothing behind.
        sock = socket.create_connection(tuple(listening[0].laddr))
        body = json.dumps({"problem": long, "dim": 500, "seeds": 64}).encode()
        headers = {"host": "127.0.0.1", "content-type": "application/json", "content-length": len(body)}
        head = ["POST /api/experiment HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        sock.sendall("\r\n".join(head).encode() + body)
        assert b"200 OK" in sock.recv(1000)
        workers += workers_of(process.pid)
    sock.close()
    assert process.returncode == 0
    assert until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in workers))


def test_workers_end_when_the_server_is_killed() -> None:
    with running_explorer() as (address, process):
        httpx.get(address + "api/page")
        assert until(lambda: len(workers_of(process.pid)) == 2)
        workers = workers_of(process.pid)
        os.kill(process.pid, 9)
        process.wait()
        assert until(
            lambda: not any(psutil.pid_exists(each.pid) and each.status() != psutil.STATUS_ZOMBIE for each in workers)
        )
