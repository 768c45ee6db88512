"""The table of best peaks over the horizon: its shape, and some of its cells again."""

import pytest

import deeplinear as dl
from documentation import DOCS, script

measured, horizon = script(DOCS / "measured.py"), script(DOCS / "horizon.py")
ROWS = measured.read("best_peaks", "findings-horizon.md", "horizon")


def test_the_page_has_every_row_and_its_picture() -> None:
    assert [row[:2] for row in ROWS[1:]] == [[task, shape] for task in horizon.TASKS for shape in horizon.SHAPES]
    assert (horizon.IMAGES / "horizon-peaks.png").exists()


@pytest.mark.parametrize("row", ROWS[1::3], ids=lambda row: " ".join(row[:2]))
def test_best_peaks(row: list[str]) -> None:
    task, shape, *peaks = row
    best = dl.optimal_lr(horizon.problem(horizon.TASKS[task], shape, int(horizon.HORIZONS[3])))
    assert peaks[3] == f"{best.lr:.3f}"
