"""What the page can ask for: each answer is the library's, and what nobody waits for ends."""

import dataclasses
import itertools
import re
from importlib.resources import files
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.applications import Starlette

import deeplinear as dl
from deeplinear._core.dataset import FIELDS
from deeplinear._explore import curvature, rates, tasks
from deeplinear._explore.kinds import KINDS
from deeplinear._explore.presets import PRESETS
from deeplinear._explore.problems import read_problem
from deeplinear._explore.progress import PACE
from deeplinear._theory.status import Status
from explorer import PROBLEM, changed, last_line, quiet, until


def test_solve_is_the_library(client: httpx.Client) -> None:
    theory = dl.solve(read_problem(PROBLEM))
    result = last_line(client.post("/api/solve", json={"problem": PROBLEM}))["result"]
    for name in ("times", "test_loss", "train_loss", "kernel"):
        np.testing.assert_array_equal(result[name], getattr(theory, name))
    for name in ("bias", "width", "data", "label_noise"):
        np.testing.assert_array_equal(result[name], getattr(theory.decomposition, name))


def test_a_brief_answer_has_the_first_steps_of_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, messages = PROBLEM | {"steps": 60}, []
    theory, request = dl.solve(read_problem(problem)), {"problem": problem, "brief": True}
    monkeypatch.setattr(PACE, "seconds_per_number", 1e-10)
    assert tasks.read("solve", request).is_soon
    whole = tasks.solve(request, lambda **message: messages.append(message))
    np.testing.assert_array_equal(whole["test_loss"], theory.test_loss)
    assert not any("first" in message for message in messages)

    monkeypatch.setattr(PACE, "seconds_per_number", 2.6e-8)
    assert not tasks.read("solve", request).is_soon
    first = tasks.solve(request, lambda **message: messages.append(message))
    assert 8 <= first["steps"] < 60
    assert {"stage": "solving", "first": first["steps"]} in messages
    np.testing.assert_array_equal(first["test_loss"], theory.test_loss[: first["steps"]])
    assert PACE.seconds_per_number != 2.6e-8  # learned from what was solved

    monkeypatch.setattr(PACE, "seconds_per_number", 1e-4)  # so slow that too few steps would be seen
    assert tasks.solve(request, quiet)["steps"] == 60


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


@pytest.mark.parametrize("group", ["CORRELATIONS", "RESPONSES"])
def test_the_page_has_words_for_every_function_of_two_times(group: str) -> None:
    text = (files("deeplinear._explore") / "page" / "words.js").read_text()
    block = re.search(rf"const {group} = {{(.*?)}};", text, re.DOTALL)
    assert block is not None
    names = [name for name in KINDS if FIELDS[name].is_symmetric == (group == "CORRELATIONS")]
    assert re.findall(r"(\w+):", block[1]) == names


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


def test_the_optimum_of_the_curve_is_that_of_the_search_and_no_dip() -> None:
    network = {"type": "MLP", "depth": 4, "width": 0.5, "richness": 3.0}
    problem = {
        "network": network,
        "data": {"type": "Isotropic", "noise": 1.0},
        "sampling": {"type": "FullBatch", "samples": 0.5},
        "optimizer": {"type": "GradientDescent", "lr": 0.01},
        "steps": 40,
    }
    answer = tasks.rates({"problem": problem}, quiet)
    found = dl.optimal_lr(read_problem(problem))
    assert found.dips  # past the edge of stability
    assert answer["optimum"]["lr"] == pytest.approx(found.lr, rel=1e-3)
    assert answer["test_loss"].min() == answer["optimum"]["loss"] == pytest.approx(found.loss, rel=1e-6)


def test_a_loss_that_is_rounding_errors_is_not_the_lowest() -> None:
    problem = dl.Problem(
        dl.MLP(2, 1.0, centered=True), dl.Isotropic(0.5), dl.FullBatch(1.0), dl.SAM(0.02, rho=0.1), steps=40
    )
    lrs = [0.005, 0.01, 0.02]
    solved = dl.solve([problem.replace(lr=lr) for lr in lrs])
    solved[2] = dataclasses.replace(solved[2], status=Status(None, 30))
    points = [rates.Point.of(lr, theory) for lr, theory in zip(lrs, solved, strict=True)]
    assert min(points, key=lambda point: point.test_loss).lr == 0.02
    assert [point.fails for point in points] == [False, False, True]
    assert points[rates.lowest(points)].lr == 0.01


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
    problem = PROBLEM | {"sampling": {"type": "OnlineSGD", "batch": 0.5}, "steps": 400}
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


def test_sharpness_is_the_library(client: httpx.Client) -> None:
    result = last_line(client.post("/api/sharpness", json={"problem": PROBLEM}))["result"]
    found = dl.sharpness(read_problem(PROBLEM), curvature.looked_at(read_problem(PROBLEM)), curvature.VECTORS)
    assert result["times"] == found.times.tolist()
    assert (result["times"][0], result["times"][-1]) == (0, PROBLEM["steps"] - 1)
    for name in ("largest", "largest_error", "lowest", "lowest_error", "edge", "limit"):
        np.testing.assert_array_equal(result[name], getattr(found, name))
    assert result["outliers"] == [list(each) for each in found.outliers]


def test_sharpness_after_a_divergence_and_without_a_limit_is_null(client: httpx.Client) -> None:
    diverging = last_line(client.post("/api/sharpness", json={"problem": changed("optimizer", lr=5.0)}))["result"]
    assert diverging["largest"][0] > 0
    assert diverging["largest"][-1] is None
    muon = changed("optimizer", type="Muon", other=0.1)
    assert set(last_line(client.post("/api/sharpness", json={"problem": muon}))["result"]["limit"]) == {None}


def test_sharpness_of_a_run_that_is_too_long_is_refused(client: httpx.Client) -> None:
    answer = last_line(client.post("/api/sharpness", json={"problem": PROBLEM | {"steps": 3000}}))
    assert answer["field"] == "steps"
    assert "Lower the steps to 1000, or call dl.sharpness in Python." in answer["error"]


LAW = {"type": "PowerLaw", "capacity": 2.0, "source": 1.0}


def test_landscape_and_weights_need_last_weights() -> None:
    diverging = changed("optimizer", lr=5.0)
    for task in (tasks.landscape, tasks.weights):
        with pytest.raises(ArithmeticError, match=r"training blows up at step \d+, so that .*: lower the rate"):
            task({"problem": diverging, "along": "line"}, quiet)
    with pytest.raises(ValueError, match="along must be line or gradient or sharpest or ema or twins, got 'home'"):
        tasks.read("landscape", {"problem": PROBLEM, "along": "home"})
    twins = {"problem": PROBLEM | {"sampling": {"type": "OnlineSGD", "batch": 1.0}, "steps": 5}, "along": "twins"}
    np.testing.assert_array_equal(
        tasks.landscape(twins, quiet)["test_loss"], dl.landscape(read_problem(twins["problem"]), "twins").test_loss
    )


@pytest.mark.parametrize(
    ("task", "problem", "field", "words"),
    [
        ("schedule", PROBLEM | {"steps": 201}, "steps", "at most 200 for this, got 201: the best schedule of a longer"),
        ("schedule", PROBLEM | {"steps": 2}, "steps", "at least 3 for a schedule to matter"),
        ("plan", changed("network", width="infinite"), "network.width", "width must be one finite number for a plan"),
        ("plan", changed("network", width=[1.0, 2.0]), "network.width", "width must be one finite number for a plan"),
        ("plan", changed("optimizer", schedule="cosine"), "optimizer.schedule", "schedule must be constant for a plan"),
        ("plan", PROBLEM | {"data": LAW}, None, "infinitely many inputs"),
        ("plan", PROBLEM | {"steps": 1}, "steps", "steps must be at least 2 for a plan, got 1"),
        ("plan", PROBLEM | {"steps": 5000}, "steps", "or call dl.plan in Python"),
    ],
)
def test_plans_that_cannot_be_made(
    client: httpx.Client, task: str, problem: dict[str, Any], field: str | None, words: str
) -> None:
    answer = last_line(client.post(f"/api/{task}", json={"problem": problem}))
    assert words in answer["error"]
    assert answer["field"] == field


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


def test_networks_of_a_power_law_are_compared_with_as_many_modes(client: httpx.Client) -> None:
    """Networks without scatter at the start would differ from infinitely many modes there, however little."""
    law = {"data": LAW, "steps": 8}
    problem = changed("network", width=64, centered=True) | law | {"sampling": {"type": "OnlineSGD", "batch": 64}}
    answer = last_line(client.post("/api/experiment", json={"problem": problem, "dim": 30, "seeds": 8}))["result"]
    assert answer["verdict"] == "agrees"
    assert answer["test_loss"]["z"][0] == 0
    cut = read_problem(problem).replace(data=dl.Spectrum.power_law(2.0, 1.0, modes=30))
    np.testing.assert_array_equal(
        answer["test_loss"]["mean"], dl.simulate(cut, seeds=8, record="losses").mean("test_loss")
    )
    refused = last_line(client.post("/api/experiment", json={"problem": problem, "dim": 2001, "seeds": 8}))
    assert "dim must be at most 2000 for a power law, got 2001" in refused["error"]


@pytest.mark.slow
def test_the_networks_of_panel_6a_agree() -> None:
    preset = next(each for each in PRESETS if each["id"] == "6a")
    answer = tasks.experiment({name: preset[name] for name in ("problem", "dim", "seeds")}, quiet)
    assert answer["verdict"] == "agrees"


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
    problem = changed("optimizer", momentum=0.5) | {"steps": 2_000_000}  # momentum is solved step by step
    answer = last_line(client.post("/api/solve", json={"problem": problem}))
    assert answer["field"] == "steps"
    assert re.search(r"theory \(condensed\): [\d.]+ \w+, .* stops after 600 s\. Lower the steps", answer["error"])


def test_netcdf_is_the_solution(app: Starlette, client: httpx.Client, tmp_path: Any) -> None:
    before = set(app.state.folder.iterdir())
    response = client.post("/api/netcdf", json={"problem": PROBLEM})
    path = tmp_path / "theory.nc"
    path.write_bytes(response.content)
    loaded = dl.Solution.load(path)
    np.testing.assert_array_equal(loaded.feature_correlation, dl.solve(read_problem(PROBLEM)).feature_correlation)
    assert set(app.state.folder.iterdir()) <= before  # handed on and deleted
