"""Progress, as people ask for it."""

import pytest

import deeplinear as dl
from deeplinear._core.progress import Line, read_progress
from factories import maker

make = maker("lr", depth=1, width=1.0, sampling=dl.FullBatch(2.0), lr=0.05, steps=5)


@pytest.mark.parametrize(
    "work",
    [
        lambda progress: dl.solve(make(), progress=progress),
        lambda progress: dl.simulate(make(), 8, 2, progress=progress),
        lambda progress: dl.finite_size(make(), 8, pairs=2, progress=progress),
        lambda progress: dl.sweep(make(), {"lr": [0.1]}, workers=1, progress=progress),
        lambda progress: dl.transfer(make(), "width", [1.0], progress=progress),
        lambda progress: dl.optimal_lr(make(), progress=progress),
        lambda progress: dl.max_stable_lr(make(), progress=progress),
    ],
    ids=["solve", "simulate", "finite_size", "sweep", "transfer", "optimal_lr", "max_stable_lr"],
)
def test_true_shows_a_line_that_ends(work, capsys: pytest.CaptureFixture[str]) -> None:
    work(True)
    shown = capsys.readouterr().err
    assert "100 % after" in shown
    assert shown.endswith("\n")
    work(False)
    assert capsys.readouterr().err == ""
    with pytest.raises(ValueError, match=r"progress must be True, or a function of \(done, total\), got 3"):
        work(3)


def test_a_line_is_not_shown_too_often(capsys: pytest.CaptureFixture[str]) -> None:
    line = Line()
    for done in range(1000):
        line(done, 1000)
    assert capsys.readouterr().err.count("%") < 10
    assert read_progress(print) is print
