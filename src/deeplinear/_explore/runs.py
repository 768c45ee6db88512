"""What the page asks about real training runs: the law fitted to them, and the best schedule of a longer run."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import deeplinear as dl
from deeplinear._core import checks
from deeplinear._core.refusal import Refusal
from deeplinear._explore.progress import Report
from deeplinear._explore.uploads import path_in, read_file

MOST_RUNS = 6
"""Most files, as many as the server keeps."""

LONGEST_RUN = 10_000_000
"""Most steps of a run that is asked about."""

_POINTS = 300
"""Points of a line."""

_SHAPES = ("free", "wsd", "cosine", "linear", "constant")

Array = NDArray[np.float64]


def runs(request: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return losses of runs with the fitted law over them, and the best schedule of a shape for so many steps."""
    files, warmup, steps, shape = read_request(request)
    report(stage="fitting the runs")
    with tempfile.TemporaryDirectory() as folder:
        fit = dl.fit_runs([_named(file, Path(folder)) for file in files], warmup=warmup)
    report(stage="finding the best schedule")
    best = fit.best_schedule(steps, shape)
    at = np.unique(np.linspace(max(steps // 50, 1), steps, _POINTS).astype(int))
    found = fit.forecast(best.lr, at)
    return {
        "runs": [_drawn(run.name, run.steps, run.loss, fit.predict(run.rates, run.steps)) for run in fit.runs],
        "forecast": {"steps": found.steps, "loss": found.loss, "low": found.low, "high": found.high},
        "lr": {"steps": at - 1, "values": best.lr[at - 1]},
        "fit": str(fit),
        "best": str(best),
        "loss": best.loss,
        "band": fit.band,
    }


def read_request(request: dict[str, Any]) -> tuple[list[str], int, int, str]:
    """Check what is asked for, and return files, warm-up, steps and the shape of the schedule."""
    files = request.get("files")
    if not isinstance(files, list) or not 0 < len(files) <= MOST_RUNS:
        raise Refusal("files", files, "some", text=f"choose one to {MOST_RUNS} files, one for each run")
    warmup = checks.whole("warmup", request.get("warmup", 0), at_least=0)
    steps = checks.whole("steps", request.get("steps"), at_least=10)
    if steps > LONGEST_RUN:
        raise Refusal("steps", steps, f"at most {LONGEST_RUN} on this page")
    return [read_file(file) for file in files], warmup, steps, checks.word("shape", request.get("shape"), _SHAPES)


def _named(file: str, folder: Path) -> Path:
    """Put a file where it has the name that it came with."""
    kept = path_in(Path(tempfile.gettempdir()), file)
    if not kept.exists():
        raise Refusal("file", file, "here", text="a file is no longer here: choose them again")
    place = folder / file[:16] / file[17:]
    place.parent.mkdir()
    shutil.copyfile(kept, place)
    return place


def _drawn(name: str, steps: NDArray[np.int64], loss: Array, law: Array) -> dict[str, Any]:
    shown = np.unique(np.linspace(0, len(steps) - 1, _POINTS).astype(int))
    return {"name": name, "steps": steps[shown], "loss": loss[shown], "law": law[shown]}
