"""Answers to 12 digits that the package ships, and what compares an installation with them."""

import copy
import json
import sys
from typing import Any

import numpy as np
import pytest

import deeplinear as dl
from command_line import document, run
from deeplinear import _check_values
from deeplinear._check_values import check, known, machine
from documentation import ROOT
from needs import need_torch


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    return known()


@pytest.fixture
def few(content: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Let the file have one problem of each method."""
    names = (
        "full batch",
        "two outputs, online",
        "unstable",
        "lazy, modes, 2000 steps",
        "lazy, modes, online, 2000 steps",
    )
    some = copy.deepcopy(content)
    some["problems"] = [each for each in some["problems"] if each["name"] in names]
    assert len(some["problems"]) == len(names)
    monkeypatch.setattr(_check_values, "known", lambda: some)
    return some


def test_this_installation_agrees() -> None:
    checked = check()
    assert {each.method: each.problems for each in checked} == {"dense": 42, "condensed": 5, "panels": 2, "coarse": 2}
    assert all(each.holds for each in checked), "\n".join(map(str, checked))


def test_every_feature_is_there(content: dict[str, Any]) -> None:
    problems = [dl.Problem.from_toml(each["problem"]) for each in content["problems"]]
    stages = [stage for problem in problems for stage in problem.stages]
    for kinds, values in (
        ((dl.MLP, dl.ResNet), [problem.network for problem in problems]),
        ((dl.Isotropic, dl.Spectrum), [problem.data for problem in problems]),
        ((dl.Population, dl.FullBatch, dl.OnlineSGD, dl.MultiPassSGD), [stage.sampling for stage in stages]),
        (
            (dl.GradientDescent, dl.NormalizedDescent, dl.Muon, dl.SAM, dl.ScheduleFree),
            [stage.optimizer for stage in stages],
        ),
    ):
        assert {type(value) for value in values} >= set(kinds)
    assert {problem.network.parameterization for problem in problems} == {"mup", "ntk", "standard"}
    assert {problem.data.outputs for problem in problems} == {1, 2}
    assert any(np.isinf(problem.network.depth) for problem in problems)


@pytest.mark.parametrize(
    ("problem", "name", "change"),
    [
        ("full batch", "test_loss", 1e-9),
        ("two outputs, online", "feature_correlation", 1e-9),
        ("two outputs, online", "residual_response", 1e-9),
        ("lazy, modes, 2000 steps", "test_loss", 1e-5),
        ("lazy, modes, online, 2000 steps", "train_loss", 1e-4),
    ],
)
def test_a_value_that_is_off_is_seen(few: dict[str, Any], problem: str, name: str, change: float) -> None:
    (entry,) = few["problems"] = [each for each in few["problems"] if each["name"] == problem]
    values = np.array(entry["values"][name])
    values.flat[np.abs(values).argmax()] *= 1 + change
    entry["values"][name] = values.tolist()
    wrong = [each for each in check() if not each.holds]
    assert {each.worst for each in wrong} == {problem}
    assert "DISAGREES, most of all on " in str(wrong[0])


def test_another_end_of_training_is_seen(few: dict[str, Any]) -> None:
    (entry,) = few["problems"] = [each for each in few["problems"] if each["name"] == "unstable"]
    entry["values"]["test_loss"][3] = 1e14
    assert [each.worst for each in check() if not each.holds] == ["unstable"]


def test_the_command_says_so(few: dict[str, Any], in_folder: None) -> None:
    found = document("check")
    assert (found["agrees"], found["machine"]) == (True, machine())
    assert [each["method"] for each in found["methods"]] == ["dense", "panels", "condensed", "coarse"]
    assert found["elsewhere"] == few["errors"]
    shown = run("check", "--quiet")
    assert shown.exit_code == 0
    assert f"all values agree ({machine()})" in shown.stdout
    few["problems"] = few["problems"][:1]
    few["problems"][0]["values"]["test_loss"][0] *= 1.001
    wrong = run("check", "--quiet")
    assert wrong.exit_code == 1
    assert "dense: DISAGREES, most of all on 'full batch'" in wrong.stdout


def test_a_device_is_checked_with_the_methods_that_it_has(few: dict[str, Any]) -> None:
    need_torch()
    found = document("check", "--device", "torch:cpu")
    assert found["agrees"]
    assert [each["method"] for each in found["methods"]] == ["dense", "panels", "coarse"]


def test_errors_of_every_method_are_kept(content: dict[str, Any]) -> None:
    methods = {method for each in content["problems"] for method in each["methods"]}
    for errors in content["errors"].values():
        assert set(errors) <= methods
        assert all(0 < error < 1e-6 for error in errors.values())


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="needs numbers of 80 bits")
@pytest.mark.parametrize("name", ["full batch", "two outputs, online", "Muon", "lazy, modes, online, 2000 steps"])
def test_the_script_makes_these_values(content: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    import make_check_values as script

    (entry,) = [each for each in content["problems"] if each["name"] == name]
    if name in script.LAZY:
        problem, methods = script.LAZY[name]
        values = script.by_recursion(problem)
    else:
        problem, methods = script._short()[name], ("dense",)
        values = script.by_reference(problem)
    again = json.loads(json.dumps(script.written(name, problem, values, methods)))
    assert {key: entry[key] for key in ("problem", "methods", "averages", "steps")} == {
        key: again[key] for key in ("problem", "methods", "averages", "steps")
    }
    for key, expected in entry["values"].items():
        np.testing.assert_allclose(again["values"][key], expected, rtol=1e-11, atol=1e-15)
