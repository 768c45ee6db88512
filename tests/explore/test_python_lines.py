"""The Python lines of a view run and draw what the page shows; malformed views are refused."""

import json
from pathlib import Path
from typing import Any

import httpx
import matplotlib
import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._explore import tasks
from deeplinear._explore.code import python_lines
from deeplinear._explore.controls import CONTROLS, field_of
from deeplinear._explore.problems import read_problem
from explorer import PROBLEM, changed, quiet


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
        changed("optimizer", schedule="cosine", warmup=0.2, momentum=0.5, shape=["end=0.1"]),
        changed("optimizer", schedule="piecewise", clip=0.5, clip_by="layer", layer_lr=["input=0"]),
        changed("optimizer", schedule="drawn", knots=[[0, 1], [0.4, 1.5], [1, 0.1]]),
        changed("optimizer", type="NormalizedDescent", beta2=0.9, per="global"),
        changed("optimizer", type="Muon", momentum=0.5, nesterov=True, other=0.1, schedule="linear"),
        changed("optimizer", type="ScheduleFree", beta=0.5),
        changed("optimizer", type="SAM", rho=0.1, weight_decay=0.1),
        PROBLEM | {"phases": {"type": "Two", "steps": 4, "target_overlap": 0.5, "new_samples": False}},
        changed("network", type="ResNet", branch_scaling="1", init_scale=[1, 0.5, 2]),
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
    found = tasks.sharpness({"problem": PROBLEM}, quiet)
    limit, largest, lowest = drawn({"view": "sharpness"} | curve, monkeypatch).axes[0].get_legend_handles_labels()[0]
    for line, name in ((largest[0], "largest"), (lowest[0], "lowest"), (limit, "limit")):
        np.testing.assert_array_equal(line.get_xdata(), found["times"])
        np.testing.assert_array_equal(line.get_ydata(), found[name])
    heat = tasks.correlations({"problem": PROBLEM, "kind": "feature_correlation", "layer": 2}, quiet)
    view = {"view": "correlations", "kind": "feature_correlation", "layer": 2, "relative": False}
    image = drawn(view | curve, monkeypatch).axes[0].collections[0]
    np.testing.assert_array_equal(np.ravel(image.get_array()), heat["values"].ravel())


def test_python_lines_of_geometry_and_plans(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    problem = changed("network", depth=1) | {"steps": 5}
    curve = one_curve(problem)
    lines = drawn({"view": "landscape", "along": "gradient"} | curve, monkeypatch).axes[0].lines
    found = tasks.landscape({"problem": problem, "along": "gradient"}, quiet)
    np.testing.assert_array_equal(lines[0].get_ydata(), found["test_loss"])
    np.testing.assert_array_equal(lines[1].get_ydata(), found["train_loss"])
    spectra = tasks.weights({"problem": problem}, quiet)
    lines = drawn({"view": "weights"} | curve, monkeypatch).axes[0].lines
    np.testing.assert_array_equal(lines[0].get_xdata(), spectra["times"])
    plan = tasks.plan({"problem": problem}, quiet)
    lines = drawn({"view": "plan"} | curve, monkeypatch).axes[0].lines
    np.testing.assert_allclose(lines[1].get_ydata(), plan["losses"][1] - plan["label_noise"], rtol=1e-12)
    assert "the best model is at an end of the grid" in capsys.readouterr().out
    schedule = drawn({"view": "schedule"} | curve, monkeypatch).axes[0].lines[0]
    np.testing.assert_array_equal(schedule.get_ydata(), tasks.solve({"problem": problem}, quiet)["test_loss"])


def test_python_lines_read_the_rows_of_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((50, 3))
    text = "a,target,b\n" + "\n".join(",".join(map(repr, row)) for row in rows.tolist())
    np.savez("rows.npz", x=rows[:, [0, 2]], y=rows[:, 1])
    Path("rows.csv").write_text(text)
    for digits, name in (("0" * 16, "rows.csv"), ("1" * 16, "rows.npz")):
        Path(f"upload-{digits}").write_bytes(Path(name).read_bytes())
        sizes = {"network": {"depth": 1, "width": 16}, "sampling": {"type": "FullBatch", "samples": 20}}
        problem = PROBLEM | sizes | {"data": {"type": "Uploaded", "file": f"{digits} {name}"}, "steps": 5}
        axes = drawn({"view": "loss"} | one_curve(problem, experiment={"dim": 2, "seeds": 8}), monkeypatch).axes[0]
        answer = tasks.experiment({"problem": problem, "dim": 2, "seeds": 8}, quiet)
        theory = tasks.solve({"problem": problem}, quiet)
        np.testing.assert_allclose(axes.lines[0].get_ydata(), theory["test_loss"], rtol=1e-12)
        np.testing.assert_allclose(axes.lines[1].get_ydata(), answer["test_loss"]["mean"], rtol=1e-12)
    assert "rows of the data set" in capsys.readouterr().out


def test_python_lines_train_the_same_networks(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    view = {"view": "loss"} | one_curve(PROBLEM, experiment={"dim": 30, "seeds": 8})
    axes = drawn(view, monkeypatch).axes[0]
    mean = dl.simulate(read_problem(PROBLEM), 30, 8, record="losses").mean("test_loss")
    np.testing.assert_array_equal(axes.lines[1].get_ydata(), mean)
    assert len(axes.collections) == 1
    assert capsys.readouterr().out.startswith("agrees: no deviation beyond the scatter")
    law = {"network": {"depth": 1, "width": 16}, "data": {"type": "PowerLaw", "capacity": 1.5, "source": 1.0}}
    problem = PROBLEM | law | {"sampling": {"type": "Population"}, "steps": 5}
    view = {"view": "loss"} | one_curve(problem, experiment={"dim": 12, "seeds": 8})
    networks = tasks.experiment({"problem": problem, "dim": 12, "seeds": 8}, quiet)
    np.testing.assert_array_equal(drawn(view, monkeypatch).axes[0].lines[1].get_ydata(), networks["test_loss"]["mean"])


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


@pytest.mark.parametrize("value", [10**400, -(10**400), [10**400]], ids=["large", "negative", "list"])
def test_numbers_beyond_all_floats_are_refused_in_every_field(value: Any) -> None:
    for part, kind, name in number_fields():
        problem = json.loads(json.dumps(PROBLEM))
        problem["steps"] = 100
        if part:
            needed = {other.name: other.default for other in CONTROLS if kind in other.kinds}
            problem[part] = {"type": kind} | {each: usual for each, usual in needed.items() if usual is not None}
        (problem[part] if part else problem)[name] = value
        with pytest.raises(Refusal, match=f"{name} must be below 1.8e.308, got a number of") as refused:
            tasks.read("solve", json.loads(json.dumps({"problem": problem})))
        assert field_of(refused.value) == ".".join(filter(None, (part, name)))


def test_numbers_beyond_all_floats_are_refused_by_the_server(client: httpx.Client) -> None:
    response = client.post("/api/solve", json={"problem": changed("network", width=10**400)})
    assert response.status_code == 400
    assert "width must be below 1.8e+308, got a number of" in response.json()["error"]
    assert response.json()["field"] == "network.width"
    for name in ("dim", "seeds"):
        request = {"problem": PROBLEM, "dim": 50, "seeds": 2} | {name: 10**400}
        response = client.post("/api/experiment", json=request)
        assert response.status_code == 400
        assert response.json()["error"].startswith(f"{name} must be a whole number from 1 to")
    assert client.post("/api/correlations", json={"problem": PROBLEM, "kind": "x", "layer": 10**400}).status_code == 400
