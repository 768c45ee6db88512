"""The gallery that is kept: its numbers are those of the present code."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.statistics import loglog_slope
from deeplinear._reproduce.figures import PANELS
from deeplinear._reproduce.panel import Size
from deeplinear._reproduce.plan import Plan

KEPT = Path(__file__).parents[2] / "docs" / "gallery" / "claims.json"


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    """Panels of the gallery by id."""
    return {panel["id"]: panel for panel in json.loads(KEPT.read_text())["panels"]}


def computed(name: str, size: Size) -> list[Any]:
    """Claims of a panel, from a fresh run. Theory is that of any scale."""
    panel = replace(PANELS[name], sizes={"quick": size})
    plan = Plan.of(panel, "quick")
    results = plan.results([job.run(lambda _: None, "cpu") for job in plan.jobs])
    return [claim(results) for claim in panel.claims]


def test_it_has_all_panels_and_claims(kept):
    assert {name: len(panel["claims"]) for name, panel in kept.items()} == {
        name: len(panel.claims) for name, panel in PANELS.items()
    }


def test_an_outcome_is_what_its_numbers_say(kept):
    for panel in kept.values():
        for claim in panel["claims"]:
            found = {check["outcome"] for check in claim["checks"]}
            assert claim["outcome"] in found, claim["text"]
            assert "does not hold" not in found or claim["outcome"] == "does not hold", claim["text"]


def test_the_readme_counts_the_outcomes(kept):
    count = Counter(claim["outcome"] for panel in kept.values() for claim in panel["claims"])
    hold, fail, open_ = (count[each] for each in ("holds", "does not hold", "undecided"))
    said = f"of {count.total()}, {hold} hold, {fail} do not and {open_} are undecided"
    assert said in " ".join((KEPT.parents[2] / "README.md").read_text().split())


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param("3d", Size(20, 3), marks=pytest.mark.slow),
        pytest.param("4a", Size(100, 16), marks=pytest.mark.slow),
        ("A2a", PANELS["A2a"].sizes["quick"]),
        ("A2b", Size(20, 3)),
    ],
)
def test_claims_are_those_of_a_fresh_run(kept, name, size):
    """Numbers of theory to 1e-6; those of networks, where there are enough of them, within four errors."""
    trained = size.seeds >= 16
    for claim, old in zip(computed(name, size), kept[name]["claims"], strict=True):
        assert (claim.text, claim.bound) == (old["text"], old["bound"])
        for check, number in zip(claim.checks, old["checks"], strict=True):
            assert check.name == number["name"]
            if check.source == "theory":
                assert check.value == pytest.approx(number["value"], rel=1e-6, abs=1e-9), check.name
            elif trained:
                error = np.hypot(check.error, number["error"])
                assert abs(check.value - number["value"]) < 4 * error, check.name


@pytest.mark.parametrize("name", ["2a", *(pytest.param(name, marks=pytest.mark.slow) for name in ("2b", "5b", "7a"))])
def test_optima_are_those_of_a_fresh_search(kept, name):
    """The exponent of theory, to what a search for the optimum leaves."""
    lines = PANELS[name].study.lines  # type: ignore[union-attr]
    fresh, _ = loglog_slope(
        np.array([line.value for line in lines]), np.array([dl.optimal_lr(each.problem).lr for each in lines])
    )
    (old,) = (each for each in kept[name]["claims"][0]["checks"] if each["source"] == "theory")
    assert fresh == pytest.approx(old["value"], abs=1e-3)


@pytest.mark.parametrize(("name", "claim", "check"), [("2a", 0, 1), ("2b", 0, 1), ("A1", 2, 5)])
def test_findings_quote_the_numbers_that_are_kept(kept, name, claim, check):
    number = kept[name]["claims"][claim]["checks"][check]
    assert number["source"] == "networks"
    text = (KEPT.parents[1] / "findings.md").read_text()
    assert rf"${number['value']:.4f} \pm {number['error']:.4f}$" in text, number["name"]
