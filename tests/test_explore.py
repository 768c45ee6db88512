"""The explorer without a browser: what it reads, refuses and writes, and what it leaves running."""

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
from deeplinear._explore import tasks
from deeplinear._explore.app import LARGEST_BODY, make_app
from deeplinear._explore.code import python_lines
from deeplinear._explore.controls import CONTROLS, KINDS
from deeplinear._explore.presets import PRESETS
from deeplinear._explore.problems import SHAPES, field_of, read_problem
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
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
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
    nothing_to_learn = changed("network", centered=True) | {"data": {"target_gram": [[0.0]]}}
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


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"dim": 5000}, "experiment.dim", "dim must be a whole number from 1 to 2000, got 5000"),
        ({"dim": 1.5}, "experiment.dim", "dim must be"),
        ({"seeds": "many"}, "experiment.seeds", "seeds must be"),
        ({"problem": PROBLEM | {"steps": 5000}}, "steps", "at most 2000"),
        ({"problem": changed("network", width="infinite")}, "network.width", "width"),
        ({"problem": changed("network", width=500.0)}, "network.width", "at most 20000"),
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
    line, dot = drawn({"view": "rates"} | curve, monkeypatch).axes[0].lines
    np.testing.assert_allclose(line.get_xdata(), rates["lrs"], rtol=1e-12)
    np.testing.assert_allclose(line.get_ydata(), rates["test_loss"], rtol=1e-9)
    assert dot.get_xdata()[0] == rates["optimum"]["lr"]
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


# --- bounds -----------------------------------------------------------------------------------------------------


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
    assert "pip install 'deeplinear[explore]'" in run(cli, ["explore", "--no-browser"]).stderr
    monkeypatch.delitem(sys.modules, "deeplinear._explore.serve")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = run(cli, ["explore", "--no-browser"])
    assert result.exit_code == 2
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
