"""Every training program through a file, the command line, a sweep and the page: all say what ``solve`` says."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import xarray as xr

import deeplinear as dl
from command_line import document, run
from deeplinear._explore.app import make_app
from deeplinear._problem.edit import replace
from explorer import last_line, served

pytestmark = pytest.mark.usefixtures("in_folder")

s = dl.schedules
RATE = 0.05


def program(optimizer, network=None, sampling=None, phases=()):
    return dl.Problem(
        network or dl.MLP(2, 1.0), dl.Isotropic(0.3), sampling or dl.FullBatch(2.0), optimizer, 6, phases=phases
    )


PLAIN = dl.GradientDescent(RATE)
SECOND = (dl.Phase(4), dl.Phase(2, target_overlap=0.5, noise=0.1, optimizer=dl.SAM(RATE, 0.1)))
PROGRAMS = {
    "rates by layer": (program(dl.GradientDescent(RATE, layer_lr=[1, 0.5, 2])), "layer_lr", [[1, 1, 1], [1, 0, 1]]),
    "decay by layer": (
        program(dl.GradientDescent(RATE, weight_decay=0.1, layer_decay={"readout": 0.0})),
        "weight_decay",
        [0.0, 0.2],
    ),
    "initial scales": (program(PLAIN, dl.MLP(2, 1.0, init_scale={"readout": 0.5})), "width", [1.0, 2.0]),
    "standard": (program(PLAIN, dl.MLP(2, 1.0, parameterization="standard")), "width", [1.0, 2.0]),
    "CompleteP": (program(PLAIN, dl.ResNet(2, 1.0, branch_scaling=1.0)), "branch_scaling", [0.5, 1.0]),
    "constant": (program(dl.GradientDescent(s.constant(RATE, warmup=0.3))), "lr", ["constant(0.02)", 0.05]),
    "linear": (program(dl.GradientDescent(s.linear(RATE))), "lr", ["linear(0.05, end=0.5)", 0.05]),
    "cosine": (program(dl.GradientDescent(s.cosine(RATE, warmup=0.2))), "lr", ["cosine(0.05)", 0.05]),
    "wsd": (program(dl.GradientDescent(s.wsd(RATE))), "lr", ["wsd(0.05, decay=0.5)", 0.05]),
    "power": (program(dl.GradientDescent(s.power(RATE, 0.5))), "lr", ["power(0.05, 1)", 0.05]),
    "piecewise": (
        program(dl.GradientDescent(s.piecewise(RATE, [0.5], [0.1]))),
        "lr",
        ["piecewise(0.05, at=[0.2], factors=[0.1])", 0.05],
    ),
    "schedules of momentum and decay": (
        program(dl.GradientDescent(RATE, s.linear(0.9), weight_decay=s.cosine(0.1))),
        "lr",
        [0.02, 0.05],
    ),
    "schedule of the batch": (program(PLAIN, sampling=dl.OnlineSGD(s.linear(2.0, end=0.5))), "lr", [0.02, 0.05]),
    "clip": (program(dl.GradientDescent(RATE, clip=0.5, clip_by="layer")), "clip", [0.1, 0.5]),
    "normalised": (program(dl.NormalizedDescent(RATE, "global")), "per", ["layer", "global"]),
    "second moment": (program(dl.NormalizedDescent(RATE, beta2=0.9, momentum=0.5)), "beta2", [0.0, 0.99]),
    "Muon": (program(dl.Muon(RATE, other=dl.GradientDescent(0.1, 0.9))), "other.momentum", [0.0, 0.9]),
    "schedule-free": (program(dl.ScheduleFree(RATE)), "beta", [0.0, 0.9]),
    "SAM": (program(dl.SAM(RATE, 0.1)), "rho", [0.05, 0.2]),
    "phases": (program(PLAIN, phases=SECOND), "phases.1.target_overlap", [0.0, 1.0]),
}
each_program = pytest.mark.parametrize(("problem", "field", "values"), PROGRAMS.values(), ids=PROGRAMS)
AVERAGES = ("--average", "ema=0.9", "--average", "tail=0.5")


@pytest.fixture(scope="module")
def page() -> Iterator[httpx.Client]:
    with served(make_app()) as client:
        yield client


@pytest.fixture
def file(problem: dl.Problem) -> str:
    Path("problem.toml").write_text(problem.to_toml())
    return "problem.toml"


@each_program
def test_a_file_on_the_command_line(problem, field, values, file):
    found = document("solve", "--problem", file, *AVERAGES)
    assert dl.Problem.from_dict(found["problem"]) == problem
    solved = dl.solve(problem, averages=[dl.EMA(0.9), dl.TailMean(0.5)])
    np.testing.assert_allclose(found["test_loss"], solved.test_loss, rtol=1e-13)
    np.testing.assert_allclose(found["averaged_test_loss"], solved.averaged_test_loss, rtol=1e-13)


@each_program
def test_a_sweep_over_a_field(problem, field, values, file):
    texts = json.dumps(values) if isinstance(values[0], list) else ",".join(map(str, values))
    result = run("sweep", "--problem", file, "--over", f"{field}={texts}", "--store", "store", "--quiet")
    assert result.exit_code == 0, result.output
    expected = dl.solve([replace(problem, {field: _meant(value)}) for value in values])
    assert not np.allclose(expected[0].test_loss, expected[1].test_loss, rtol=1e-3)  # the field matters
    with xr.open_zarr("store") as store:
        for losses, solution in zip(store.test_loss.values, expected, strict=True):
            np.testing.assert_allclose(losses, solution.test_loss, rtol=1e-12)


def _meant(value):
    """A schedule is written as it is called."""
    return eval(value, vars(s)) if isinstance(value, str) and "(" in value else value


@each_program
def test_the_page(problem, field, values, page):
    request = {"problem": tomllib.loads(problem.to_toml()), "average": "ema-0.9"}
    answer = last_line(page.post("/api/solve", json=request))["result"]
    solved = dl.solve(problem, averages=[dl.EMA(0.9)])
    np.testing.assert_allclose(answer["test_loss"], solved.test_loss, rtol=1e-6)
    np.testing.assert_allclose(answer["averaged"], solved.averaged_test_loss[0], rtol=1e-6)


def test_an_average_that_the_page_does_not_have(page):
    problem = tomllib.loads(PROGRAMS["SAM"][0].to_toml())
    response = page.post("/api/solve", json={"problem": problem, "average": "mean"})
    assert response.status_code == 400
    assert "average must be one of ema-0.5, ema-0.9" in response.json()["error"]
