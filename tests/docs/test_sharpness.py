"""Tables of the findings on sharpness: some of their cells again, by theory, to the digits that are shown."""

import pytest

import deeplinear as dl
from documentation import DOCS, script

measured, sharpness = script(DOCS / "measured.py"), script(DOCS / "sharpness.py")


def rows(name: str) -> list[list[str]]:
    return measured.read(name, "findings-sharpness.md", "sharpness")


def test_the_page_has_every_table_and_picture() -> None:
    for name in sharpness.TABLES:
        assert len(rows(name)) > 10, name
        assert (sharpness.IMAGES / f"sharpness-{name}.png").exists()


def test_the_sharpness_returns_to_the_edge() -> None:
    row = next(row for row in rows("edge") if row[0] == "0.07")
    each = sharpness.problem(dl.GradientDescent(0.07), sharpness.EDGE_STEPS)
    found = dl.sharpness(each, [4, 5, 149, 150], sharpness.VECTORS)
    run = sharpness.Run(found, dl.solve(each).train_loss, found.ritz_values[None, -2:, 0])
    assert [run.crosses, run.rises, run.end] == row[3:6]
    assert f"{run.ritz:.2f}" == row[7]


def test_muP_keeps_the_sharpening() -> None:
    for name, value in (("width, muP", "4"), ("width, NTK", "4"), ("depth", "1")):
        options = sharpness.VALUES[name][value]
        found = dl.sharpness(sharpness.problem(sharpness.SLOW, sharpness.SLOW_STEPS, **options), [0, 119, 120])
        first, *last = found.largest
        shown = next(row for row in rows("sizes") if row[:2] == [name, value])
        assert shown[2] == f"{first:.2f}"
        assert shown[4] == f"{sum(last) / 2 - first:+.2f}"


@pytest.mark.parametrize("name", ["edge", "rules", "sizes"])
def test_networks_are_as_sharp_as_theory_says(name: str) -> None:
    """Below the largest rates no mean of networks is further away than 4 standard errors and what D shifts it by.

    That is below 0.3 % at D = 10^5, and 2 % at D = 10^3, where samples are drawn from.
    """
    compared = 0
    for row in rows(name)[1:]:
        *_, ritz, networks = row
        if ritz == "not known" or (name != "sizes" and float(row[-9]) > 0.07):
            continue
        mean, error = map(float, networks.split(" ± "))
        shift = 0.02 if row[0].startswith("batches") else 0.003
        assert mean == pytest.approx(float(ritz), abs=4 * error + shift * mean), row
        compared += 1
    assert compared >= 5
