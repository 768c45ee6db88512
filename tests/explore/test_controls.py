"""The page's controls and presets: what they are, which problems they make, and what is refused beside them."""

import dataclasses
import json
from typing import Any

import httpx
import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._explore.controls import CONTROLS, PARTS, field_of
from deeplinear._explore.presets import PRESETS
from deeplinear._explore.problems import read_problem
from explorer import PROBLEM, changed


# --- controls and presets ---
def test_every_field_of_a_problem_has_a_control() -> None:
    power_law = type(dl.Spectrum.power_law(2.0, 1.0))
    kinds = [dl.MLP, dl.ResNet, dl.Isotropic, dl.Spectrum, power_law, dl.Population, dl.FullBatch, dl.OnlineSGD]
    rules = [dl.GradientDescent, dl.NormalizedDescent, dl.Muon, dl.ScheduleFree, dl.SAM]
    kinds += [dl.MultiPassSGD, *rules]
    fields = {(kind.__name__, field.name) for kind in kinds for field in dataclasses.fields(kind) if field.init}
    controls = {(kind, control.name) for control in CONTROLS for kind in control.kinds}
    own = {(rule.__name__, word) for rule in rules for word in ("schedule", "warmup", "shape", "knots")}
    own |= {("Two", word) for word in ("steps", "target_overlap", "new_samples")}
    own.add(("Uploaded", "file"))
    assert controls - fields == own  # the page's own words
    assert fields <= controls
    assert {kind for about in PARTS.values() for kind in about.kinds} == set(kinds)
    assert [control.name for control in CONTROLS if not control.part] == ["steps"]
    assert [control.name for control in CONTROLS if control.first] == ["lr", "steps"]


def test_every_control_has_words_and_its_slider_ends_are_allowed() -> None:
    for control in CONTROLS:
        assert control.label
        assert control.help
        assert control.allowed or control.widget in ("choice", "switch")  # which show all that is allowed
        if control.widget != "slider":
            continue
        assert control.symbol or control.name in ("warmup", "clip", "iterations", "other") or control.part == "phases"
        counts = [] if control.count is None else list(control.count)
        for kind in control.kinds or ("",):
            for value in (*control.ends[kind], control.default, *counts):
                problem = json.loads(json.dumps(PROBLEM))
                table = problem.setdefault(control.part, {}) if control.part else problem
                if kind:
                    needed = {other.name: other.default for other in CONTROLS if kind in other.kinds}
                    assert control.default == control.defaults.get(kind, control.default) or control.name == "momentum"
                    table.clear()
                    table.update({"type": kind} | {name: each for name, each in needed.items() if each is not None})
                table[control.name] = value
                problem["steps"] = 2000 if control.part == "phases" else problem["steps"]
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
    sizes = {preset["id"]: (preset["dim"], preset["seeds"]) for preset in PRESETS if preset["dim"]}
    assert sizes == {"6a": (300, 16), "6b": (200, 16), "6c": (500, 16), "7a": (200, 48), "7b": (200, 48)}


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


# --- problems ---
def test_the_words_of_the_page() -> None:
    assert read_problem(PROBLEM) == dl.Problem.from_dict(PROBLEM)
    deep = read_problem(changed("network", type="ResNet", depth="infinite"))
    assert deep.network.depth == np.inf
    for shape in dl.schedules.SHAPES[1:]:
        scheduled = read_problem(changed("optimizer", schedule=shape, warmup=0.2))
        options = {"power": {"exponent": 1.0}, "piecewise": {"at": [0.5], "factors": [0.1]}}.get(shape, {})
        assert scheduled.optimizer.lr == getattr(dl.schedules, shape)(0.05, warmup=0.2, **options)
    wsd = read_problem(changed("optimizer", schedule="wsd", shape=["end=0.1", "decay=0.3"]))
    assert wsd.optimizer.lr == dl.schedules.wsd(0.05, decay=0.3, end=0.1)
    assert read_problem(changed("optimizer", warmup=0.5)).optimizer.lr == dl.schedules.constant(0.05, warmup=0.5)
    assert read_problem(changed("optimizer", schedule="constant", warmup=0)).optimizer.lr == 0.05
    drawn = read_problem(changed("optimizer", schedule="drawn", knots=[[0, 1], [0.5, 2], [1, 0]]))
    np.testing.assert_allclose(drawn.optimizer.rates(20)[[0, 19]], [0.05, 0.0])
    assert drawn.optimizer.rates(20).max() == pytest.approx(0.05 * (1 + 2 * 9 / 19))
    muon = read_problem(changed("optimizer", type="Muon", other=0.1, momentum=0.9))
    assert muon.optimizer == dl.Muon(0.05, momentum=0.9, other=dl.GradientDescent(0.1))
    frozen = read_problem(changed("optimizer", layer_lr=["input=0", "readout = 2"]))
    assert frozen.optimizer.layer_lr.to_dict() == {"input": 0.0, "hidden": 1.0, "readout": 2.0}
    assert read_problem(changed("network", init_scale=[1, 0.5, 2])).network.init_scale == (1.0, 0.5, 2.0)
    two = read_problem(PROBLEM | {"phases": {"type": "Two", "steps": 5, "target_overlap": 0.2}})
    assert two.phases == (dl.Phase(15), dl.Phase(5, target_overlap=0.2))
    assert read_problem(PROBLEM | {"phases": {"type": "One"}}).phases == ()
    complete = read_problem(changed("network", type="ResNet", branch_scaling="1"))
    assert complete.network.branch_scaling == 1.0


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
        (changed("optimizer", schedule="sudden"), "optimizer.schedule", "schedule must be constant or linear"),
        (changed("optimizer", schedule=["cosine"]), "optimizer.schedule", "schedule must be constant or linear"),
        (changed("optimizer", schedule="cosine") | {"steps": 10**5}, "optimizer.schedule", "beyond 20000 steps"),
        (changed("optimizer", schedule="cosine", lr=-1), "optimizer.lr", "lr.peak must be a finite number"),
        (changed("optimizer", schedule="cosine", lr="fast"), "optimizer.lr", "lr.peak must be a finite number"),
        (changed("optimizer", warmup=1), "optimizer.warmup", "lr.warmup must be a number from 0 up to"),
        (changed("optimizer", schedule="linear", shape=["end=2"]), "optimizer.shape", "lr.end must be a number from 0"),
        (changed("optimizer", schedule="linear", shape=["speed=2"]), "optimizer.lr", "got 'speed'"),
        (changed("optimizer", schedule="linear", shape=["end=much"]), "optimizer.shape", "numbers by name"),
        (changed("optimizer", schedule="linear", shape=[0.5]), "optimizer.shape", "numbers by name"),
        (changed("optimizer", schedule="drawn"), "optimizer.knots", "knots must be 2 to 64 pairs"),
        (changed("optimizer", schedule="drawn", knots=[[0, 1], [1]]), "optimizer.knots", "2 to 64 pairs"),
        (changed("optimizer", schedule="drawn", knots=[[0, 1], [0.9, 0]]), "optimizer.knots", "rising from 0 to 1"),
        (changed("optimizer", schedule="drawn", knots=[[0, 1], [1, 11]]), "optimizer.knots", "got factors [1, 11]"),
        (changed("optimizer", schedule="drawn", knots=[[0, 1], [1, 0]], lr="x"), "optimizer.lr", "lr must be"),
        (PROBLEM | {"data": {"type": "Uploaded"}}, "data.file", "choose a file"),
        (PROBLEM | {"data": {"type": "Uploaded", "file": ["x"]}}, "data.file", "choose a file"),
        (PROBLEM | {"data": {"type": "Uploaded", "file": "0" * 16 + " x"}}, "data.file", "no longer here"),
        (PROBLEM | {"data": {"type": "Uploaded", "file": "../../etc/hosts x"}}, "data.file", "choose a file"),
        (changed("optimizer", layer_lr=["input=x"]), "optimizer.layer_lr", "numbers by name"),
        (changed("optimizer", layer_lr=["head=1"]), "optimizer.layer_lr", "no other names than input, hidden"),
        (changed("optimizer", layer_lr=[1, 0]), "optimizer.layer_lr", "one number for each of 3 weight layers"),
        (changed("network", init_scale=[1, -1, 1]), "network.init_scale", "init_scale[1] must be a finite number"),
        (changed("optimizer", clip=0), "optimizer.clip", "clip must be a positive finite number"),
        (changed("optimizer", type="Muon", other=-1), "optimizer.lr", "lr must be a positive finite number"),
        (changed("optimizer", type="SAM", rho=0), "optimizer.rho", "rho must be a positive finite number"),
        (changed("optimizer", type="Adam"), None, "it acts on single entries of a matrix"),
        (changed("network", type="ResNet", branch_scaling="x"), "network.branch_scaling", "branch_scaling must be"),
        (PROBLEM | {"phases": {"type": "Two", "steps": 20}}, "phases.steps", "less than all steps (20), got 20"),
        (PROBLEM | {"phases": {"type": "Two", "steps": "x"}}, "phases.steps", "phases.steps must be a whole number"),
        (PROBLEM | {"phases": {"type": "Two", "steps": 5, "target_overlap": 2}}, "phases.target_overlap", "-1 to 1"),
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
        inside = "phases." if (control.part, control.name) == ("phases", "steps") else ""
        refusal = Refusal(inside + control.name, None, "something")
        assert field_of(refusal) == ".".join(filter(None, (control.part, control.name)))
    assert field_of(ValueError("width must be something")) is None  # the type says what it is about, not its words
