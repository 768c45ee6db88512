"""Progress, as people ask for it."""

import inspect

import pytest

import deeplinear as dl
from deeplinear._core.progress import Line, read_progress
from factories import maker

make = maker("lr", depth=1, width=1.0, sampling=dl.FullBatch(2.0), lr=0.05, steps=5)


BATCHES = make(sampling=dl.OnlineSGD(0.5))
WORKS = {
    "solve": lambda progress: dl.solve(make(), progress=progress),
    "simulate": lambda progress: dl.simulate(make(), 8, 2, progress=progress),
    "finite_size": lambda progress: dl.finite_size(make(), 8, pairs=2, progress=progress),
    "sweep": lambda progress: dl.sweep(make(), {"lr": [0.1]}, workers=1, progress=progress),
    "transfer": lambda progress: dl.transfer(make(), "width", [1.0], progress=progress),
    "optimal_lr": lambda progress: dl.optimal_lr(make(), progress=progress),
    "max_stable_lr": lambda progress: dl.max_stable_lr(make(), progress=progress),
    "optimal": lambda progress: dl.optimal(make(), ["weight_decay"], starts=1, progress=progress),
    "optimal_schedule": lambda progress: dl.optimal_schedule(make(), knots=2, progress=progress),
    "plan": lambda progress: dl.plan(make(), 1e3, "width", values={"width": [1.0]}, progress=progress),
    "critical_batch": lambda progress: dl.critical_batch(BATCHES, 0.8, [0.5, 1.0, 2.0], progress=progress),
    "sharpness": lambda progress: dl.sharpness(make(), [1], 2, progress=progress),
    "landscape": lambda progress: dl.landscape(make(), progress=progress),
    "weight_spectra": lambda progress: dl.weight_spectra(make(), [1], progress=progress),
}


def test_all_that_takes_progress_is_tried_here() -> None:
    public = {name: getattr(dl, name) for name in dl.__all__}
    functions = {name: each for name, each in public.items() if inspect.isfunction(each)}
    taking = {name for name, each in functions.items() if "progress" in inspect.signature(each).parameters}
    assert taking == {*WORKS, "reproduce"}  # whose progress tests of the gallery see


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_true_shows_a_line_that_ends(work, capsys: pytest.CaptureFixture[str]) -> None:
    work(True)
    shown = capsys.readouterr().err
    assert "100 % after" in shown
    assert shown.endswith("\n")
    with pytest.raises(ValueError, match=r"progress must be True, or a function of \(done, total\), got 3"):
        work(3)


def test_a_line_is_not_shown_too_often(capsys: pytest.CaptureFixture[str]) -> None:
    line = Line()
    for done in range(1000):
        line(done, 1000)
    assert capsys.readouterr().err.count("%") < 10
    assert read_progress(print) is print
    assert read_progress(False) is None
    WORKS["solve"](False)
    assert capsys.readouterr().err == ""
