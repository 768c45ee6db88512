"""The paper's panels at a tiny scale: what is claimed, kept, drawn and shown."""

import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import xarray as xr
from PIL import Image
from typer.testing import CliRunner

import deeplinear as dl
from deeplinear._cli import app
from deeplinear._reproduce import jobs
from deeplinear._reproduce.claim import Claim, Outcome
from deeplinear._reproduce.compute import compute, plan_panels
from deeplinear._reproduce.cost import speed
from deeplinear._reproduce.figures import COLUMNS, PANELS, TITLES
from deeplinear._reproduce.jobs import Clock, Train, Tune, key
from deeplinear._reproduce.page import write_page
from deeplinear._reproduce.plan import Plan
from deeplinear._reproduce.store import open_store

pytestmark = pytest.mark.filterwarnings("default:waiting for another process")  # which makes results that tests share

PAPER = [
    "1a",
    "1b",
    "1c",
    "2a",
    "2b",
    "3a",
    "3b",
    "3c",
    "3d",
    "4a",
    "4b",
    "4c",
    "5a",
    "5b",
    "6a",
    "6b",
    "6c",
    "7a",
    "7b",
    "A1",
    "A2a",
    "A2b",
    "A3",
    "T1",
]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results that all tests share, also those that run in other processes, so that each is computed once."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "results"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture
def folder(results, tmp_path):
    """An own folder for pictures and page, with the shared results."""
    (tmp_path / "results").symlink_to(results)
    return tmp_path


# --- every panel ---------------------------------------------------------------------------------------------


def test_every_panel_of_the_paper_is_there():
    assert list(PANELS) == PAPER
    assert set(COLUMNS) == set(TITLES) == {panel.figure for panel in PANELS.values()}


LONG = {"1a", "1b", "2b", "3a", "3b", "3c", "3d", "4a", "4b", "4c", "5a", "5b", "6a", "6b", "7a", "7b", "A1"}
"""Panels that take seconds; others are of the same kinds, and every claim is tested in ``test_claims``."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in PAPER]
)
def test_a_panel_runs_and_its_claims_are_evaluated(name, folder, monkeypatch):
    monkeypatch.setattr(jobs, "_REPEATS", 1)  # of what is timed
    (found,) = dl.reproduce([name], scale="tiny", out=folder)
    assert found.id == name
    assert len(found.claims) == len(PANELS[name].claims) >= 1
    for claim in found.claims:
        assert claim.outcome in Outcome
        assert any(letter.isdigit() for letter in claim.measured), claim
    with Image.open(found.picture) as picture:
        assert picture.width > 1000
        assert len(picture.convert("L").getcolors()) > 10
    assert found.picture.stat().st_size < 100_000
    is_theory_only = not any(getattr(job, "dim", None) for job in found.plan.jobs) or name == "T1"
    assert bool(found.agreements) != is_theory_only


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_sizes_of_networks_are_whole(scale):
    """A batch of 12.5 examples would be another problem than the one that is solved."""
    for plan in plan_panels(None, scale):
        for line, job in zip(plan.lines, plan.jobs, strict=True):
            dim = getattr(job, "dim", None)
            if dim is None or line.problem.data.dimension_free:
                continue
            problem = line.problem
            ratios = [problem.network.width, *(getattr(problem.sampling, name, 1.0) for name in ("samples", "batch"))]
            for ratio in ratios:
                assert ratio * dim == pytest.approx(round(ratio * dim), abs=1e-6), (plan.panel.id, ratio, dim)


def test_given_values_of_the_paper_are_kept():
    def problems(name):
        return [line.problem for line in PANELS[name].study.lines]

    assert all(
        p.network.depth == 4 for name in ("1a", "1b", "3a", "3b", "3c", "3d", "6a", "6b", "6c") for p in problems(name)
    )
    assert all(p.network.richness == 2.0 for p in problems("3a"))
    assert all(p.network.width == 0.25 for name in ("3c", "A2a") for p in problems(name))
    assert all(p.sampling.batch == 0.05 for name in ("3d", "A2b") for p in problems(name))
    assert all(p.network.depth == 16 for name in ("4a", "4b") for p in problems(name))
    assert all(p.network.branch == 1.2 for p in problems("4c"))
    assert all(p.network.beta == 1.0 for p in problems("5a"))
    assert all(p.network.beta == pytest.approx(1.25 / math.sqrt(p.network.depth)) for p in problems("5b"))
    assert all(p.network.width == 1024 for p in problems("6a"))
    for p in problems("7a") + problems("7b"):
        assert (p.network.depth, p.sampling.batch, p.data.capacity, p.data.source) == (3, 128, 2.0, 1.75)
    assert problems("7b")[0].network.gamma0 == pytest.approx(0.4)
    assert problems("7a")[0].network.gamma0 == pytest.approx(0.4)


# --- what is kept --------------------------------------------------------------------------------------------


def test_drawing_again_trains_nothing(folder, monkeypatch):
    before = dl.reproduce(["1c"], scale="tiny", out=folder)

    def refuse(*_):
        raise AssertionError("nothing is to be computed")

    monkeypatch.setattr(jobs, "run", refuse)
    again = dl.reproduce(["1c"], scale="tiny", out=folder)
    assert repr(again[0].claims) == repr(before[0].claims)  # what is not a number does not equal itself
    assert json.loads((folder / "claims.json").read_text())["panels"][0]["id"] == "1c"


WITHOUT_DRAWING = """
import runpy, sys
for name in ("matplotlib", "PIL", "typer", "rich"):
    sys.modules[name] = None  # importing it fails
sys.argv[1:] = [FOLDER, "--scale", "tiny", "A2a"]
runpy.run_path(TOOL, run_name="__main__")
"""


def test_results_can_be_computed_where_nothing_can_be_drawn(tmp_path, monkeypatch):
    tool = Path(__file__).parents[2] / "tools" / "compute_gallery.py"
    code = WITHOUT_DRAWING.replace("FOLDER", repr(str(tmp_path))).replace("TOOL", repr(str(tool)))
    subprocess.run([sys.executable, "-c", code], check=True)
    monkeypatch.setattr(jobs, "run", None)
    (found,) = dl.reproduce(["A2a"], scale="tiny", out=tmp_path)
    assert found.picture.exists()


def test_processes_compute_what_one_computes(tmp_path, monkeypatch):
    """Jobs run in two processes; what is timed stays in this one, where nothing else runs then."""
    (plan,) = plan_panels(["A2a"], "tiny")
    timed = Clock(plan.jobs[0].problem, "theory", None)
    single = compute([plan], tmp_path / "single", "cpu", None)
    monkeypatch.setattr("deeplinear._reproduce.compute._WORTH_PROCESSES", 0.0)
    monkeypatch.setattr("deeplinear._reproduce.compute.count_cores", lambda: 2)
    ran, run = [], jobs.run
    monkeypatch.setattr(jobs, "run", lambda job, *others: ran.append(job) or run(job, *others))
    seen = []
    both = replace(plan, jobs=(timed, *plan.jobs))
    found = compute([both], tmp_path / "several", "cpu", lambda done, total: seen.append((done, total)))
    assert ran == [timed]
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
    for name, data in single.items():
        xr.testing.assert_equal(found[name], data)


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, monkeypatch):
    """The third job is interrupted; what the first two found is there, and is not computed again."""
    count = 0
    run = jobs.run

    def interrupted(*arguments):
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(jobs, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dl.reproduce(["1b"], scale="tiny", out=tmp_path)
    assert len(list((tmp_path / "results").glob("*.nc"))) == 2
    count = 10
    dl.reproduce(["1b"], scale="tiny", out=tmp_path)
    assert count == 10 + len(Plan.of(PANELS["1b"], "tiny").jobs) - 2


def test_a_damaged_result_is_computed_again(tmp_path):
    dl.reproduce(["1c"], scale="tiny", out=tmp_path)
    (damaged, *_) = sorted((tmp_path / "results").glob("*.nc"))
    damaged.write_bytes(damaged.read_bytes()[:200])
    dl.reproduce(["1c"], scale="tiny", out=tmp_path)
    assert xr.load_dataset(damaged, engine="h5netcdf")["test_loss"].size


def test_results_are_told_apart_by_all_they_depend_on():
    problem = PANELS["1c"].study.lines[0].problem
    found = {key(Train(problem, dim, seeds)) for dim in (10, 20) for seeds in (2, 3)}
    found.add(key(Train(PANELS["1c"].study.lines[1].problem, 10, 2)))
    assert len(found) == 5
    assert key(Train(problem, 10, 2)) == key(Train(problem, 10, 2))


def test_networks_may_be_kept_in_another_way():
    problem = Plan.of(PANELS["7b"], "tiny").jobs[0].problem
    usual, reduced = (Tune(problem, "width", 512.0, None, 200, 1000, method) for method in ("auto", "reduced"))
    assert key(usual) != key(reduced)
    assert "method" not in usual.settings  # results that were kept before there was a choice are still found
    assert reduced.work.experiment < 0.2 * usual.work.experiment


def test_kept_results_are_those_of_solve_and_simulate(folder):
    dl.reproduce(["1c"], scale="tiny", out=folder)
    job = Plan.of(PANELS["1c"], "tiny").jobs[-1]
    (data,) = (data for _, data in open_store(folder / "results", [job]).results())
    assert data["test_loss"].values == pytest.approx(dl.solve(job.problem).test_loss, rel=1e-12)
    networks = dl.simulate(job.problem, job.dim, job.seeds, record="losses")
    assert data["measured_train_loss"].values == pytest.approx(
        networks.train_loss, rel=1e-6
    )  # kept in single precision


def test_progress_ends_when_all_is_done(tmp_path):
    seen = []
    dl.reproduce(["3d"], scale="tiny", out=tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]
    assert len({total for _, total in seen}) == 1


# --- what can go wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ids": ["9z"]}, "ids must be panels or figures .*1a.*, got '9z'"),
        ({"scale": "huge"}, "scale must be .*quick.*, got 'huge'"),
        ({"ids": "1a"}, "ids must be a list .*, got '1a'"),
    ],
)
def test_bad_arguments_are_named(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        dl.reproduce(**arguments, out=tmp_path)


# --- command line --------------------------------------------------------------------------------------------


def test_list_says_what_there_is_and_what_it_takes(tmp_path):
    def listed(scale):
        result = CliRunner().invoke(app, ["reproduce", "--list", "--scale", scale, "--json", "--out", str(tmp_path)])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)["panels"]

    quick, full = listed("quick"), listed("full")
    assert [each["id"] for each in quick] == PAPER
    networks = [sum(each["experiment_seconds"] for each in found) for found in (quick, full)]
    # Networks whose matrices are drawn where they are looked at take as long at every size: only their number grows,
    # and the counts of figures 6 and 7.
    assert networks[1] > 2 * networks[0] > 0
    assert not any(tmp_path.iterdir())


def test_command_prints_claims_and_writes_the_gallery(folder):
    result = CliRunner().invoke(app, ["reproduce", "1c", "--scale", "tiny", "--out", str(folder)])
    assert result.exit_code == 0, result.output
    assert "theory follows" in " ".join(result.stdout.split())
    assert (folder / "index.html").exists()


def test_estimates_are_of_the_right_order(tmp_path, monkeypatch):
    """Within a factor ten of what the solutions and networks of a panel really take, the lesser of two times.

    In seconds of the processor, which do not depend on what else it does.
    """
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    speed.cache_clear()
    found = [dl.reproduce(["3a"], "tiny", tmp_path / str(attempt))[0] for attempt in range(2)]
    estimate = sum(speed().seconds(job) for job in found[0].plan.jobs)
    assert 0.1 < estimate / min(each.seconds for each in found) < 10


# --- the page ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gallery(results, tmp_path_factory):
    """The gallery of all panels."""
    folder = tmp_path_factory.mktemp("gallery")
    (folder / "results").symlink_to(results)
    dl.reproduce(scale="tiny", out=folder)
    return folder / "index.html"


@pytest.mark.parametrize("which", [pytest.param("made now", marks=pytest.mark.slow), "committed"])
def test_every_picture_loads_in_a_browser(which, request, browser):
    committed = Path(__file__).parents[2] / "docs" / "gallery" / "index.html"
    gallery = committed if which == "committed" else request.getfixturevalue("gallery")  # which takes long to make
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(gallery.as_uri())
    widths = page.eval_on_selector_all("img", "all => all.map(each => each.complete ? each.naturalWidth : 0)")
    assert len(widths) == len(PAPER)
    assert min(widths) > 1000
    assert [url for url in asked if not url.startswith("data:")] == [gallery.as_uri()]
    rows = page.locator("h2#claims + div tr").count()
    assert rows == 1 + sum(len(panel.claims) for panel in PANELS.values())
    for link in page.eval_on_selector_all("nav a", "all => all.map(each => each.getAttribute('href'))"):
        assert page.locator(f'[id="{link[1:]}"]').count() == 1
    page.close()


@pytest.mark.slow
def test_the_page_can_be_read_on_a_narrow_window_and_in_the_dark(gallery, browser):
    page = browser.new_page(viewport={"width": 380, "height": 800}, color_scheme="dark")
    page.goto(gallery.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, background[4:-1].split(","))) < 64
    page.close()
    page = browser.new_page(color_scheme="light")
    page.goto(gallery.as_uri())
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.close()


def test_what_a_claim_says_is_not_taken_for_markup(folder, tmp_path):
    (found,) = dl.reproduce(["1c"], "tiny", folder)
    claim = Claim("a < b", "<b>1</b>", (), "<b>2</b>", "<b>3</b>")
    write_page(
        tmp_path / "page.html",
        [replace(found, claims=(claim,))],
        dict.fromkeys(("command", "date", "version", "scale"), "<b>"),
    )
    text = (tmp_path / "page.html").read_text()
    assert "<b>" not in text
    assert "a &lt; b" in text


def test_without_jinja_it_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match="deeplinear\\[reproduce\\]"):
        dl.reproduce(["1c"], "tiny", tmp_path / "out")
    assert not (tmp_path / "out").exists()
