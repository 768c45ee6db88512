"""The commands that go over many problems: ``sweep`` and ``transfer``."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from deeplinear import Problem, Transfer
from deeplinear import sweep as run_sweep
from deeplinear import transfer as find_transfer
from deeplinear._cli._commands import command, document_of, words_of, written_lines
from deeplinear._cli._errors import DIVERGED, NO_MEMORY, OK
from deeplinear._cli._options import DEVICE, PROBLEM, REPORT, out
from deeplinear._cli._pictures import save_picture
from deeplinear._cli._report import Report, table
from deeplinear._cli._sweep_options import ALONG, EXPERIMENT, GRID, PLACE, THEORY, Along, Place
from deeplinear._core.dataset import write_dataset
from deeplinear._core.files import PICTURES
from deeplinear._core.refusal import Refusal
from deeplinear._core.words import INFINITE
from deeplinear._sweep.sweep import default_store
from deeplinear._sweep.work import OUT_OF_MEMORY

if TYPE_CHECKING:
    import xarray as xr

_SHOWN = 5
"""Most failures that are shown."""


@command(PROBLEM, GRID, THEORY, EXPERIMENT, PLACE, DEVICE, REPORT)
def sweep(
    problem: Problem,
    grid: dict[str, list[Any]],
    theory: bool,
    experiment: dict[str, Any] | None,
    place: Place,
    device: str,
    report: Report,
) -> int:
    """Solve and simulate a problem for all combinations of values; write a Zarr store that xarray opens.

    An interrupted sweep resumes when the command is run again; several commands may share one store.

    Exit codes: 0 done (points that fail are listed), 2 bad input, 3 training diverged at every point, 4 no point
    had enough memory, 5 a package is missing.

    Example: deeplinear sweep --over width=0.5:8:5log --over lr=0.002:0.05:20log --steps 100 --store widths.zarr
    """
    if not grid:
        needs = "a sweep needs a grid: --over FIELD=VALUES or --grid FILE.toml"
        raise Refusal("--over", grid, "FIELD=VALUES", text=needs)
    store = place.store or default_store(problem, grid, theory, experiment)
    with report.stage("sweep") as advance:
        found = run_sweep(
            problem,
            grid,
            store,
            theory=theory,
            experiment=experiment,
            workers=place.workers,
            scheduler=place.scheduler,
            resume=place.resume,
            device=device,
            progress=None if advance is None else _since_start(advance),
        )
    failures, best = _failures(found), _best(found)
    diverged = {kind: int((found[name] >= least).sum()) for kind, (name, least) in _DIVERGED.items() if name in found}
    rounding = int((found["rounding_at"] >= 0).sum()) if "rounding_at" in found else 0
    points = math.prod(found.sizes[dim] for dim in _dims(found))
    document = document_of("sweep", problem, store) | {
        "grid": grid,
        "points": points,
        "failures": failures,
        "diverged": diverged,
        "rounding": rounding,
        "best": best,
    }
    counts = f"{points} points: {' x '.join(f'{found.sizes[dim]} {dim}' for dim in _dims(found))}"
    shown = _shown(best, diverged, rounding, failures)
    report.result(document, *words_of(problem), counts, *shown, f"result: {store}")
    return _code(points, failures, diverged)


def _shown(
    best: dict[str, dict[str, Any]], diverged: dict[str, int], rounding: int, failures: list[dict[str, Any]]
) -> list[str | Table]:
    """Say where the loss is least, and where there is none that counts."""
    shown: list[str | Table] = []
    if best:
        rows = [[kind, *map(_short, at.values())] for kind, at in best.items()]
        columns = ["", *next(iter(best.values()))]
        shown.append(table("lowest test loss at the last step", columns, rows))
    shown += [f"{kind}: training diverged at {count} points" for kind, count in diverged.items() if count]
    if rounding:
        where = "1 point, which does" if rounding == 1 else f"{rounding} points, which do"
        shown.append(f"theory: losses depend on rounding errors at {where} not count above")
    shown += [f"{each['kind']}: failed at {_place_of(each)}: {each['error']}" for each in failures[:_SHOWN]]
    if len(failures) > _SHOWN:
        shown.append(f"{len(failures) - _SHOWN} more failures: see failure and measured_failure in the result")
    return shown


@command(PROBLEM, ALONG, EXPERIMENT, DEVICE, REPORT, out("transfer.png", (".nc", *PICTURES)))
def transfer(
    problem: Problem, along: Along, experiment: dict[str, Any] | None, device: str, report: Report, out: Path | None
) -> int:
    """Find the best learning rate, or another field, at several sizes, say whether it transfers, and draw a picture.

    Exit codes: 0 done, 2 bad input (or no learning rate lowers the loss), 4 not enough memory.

    Example: deeplinear transfer --over width --values 0.5,1,2,4 --parameterization ntk --experiment dim=200,seeds=8
    """
    with report.stage("transfer") as progress:
        found = find_transfer(
            problem,
            along.over,
            along.values,
            field=along.field,
            bounds=along.bounds,
            lrs=along.lrs,
            objective=along.objective,
            experiment=experiment,
            device=device,
            progress=progress,
        )
    if out is not None and out.suffix.lower() in PICTURES:
        save_picture(out, found)
    elif out is not None:
        write_dataset(out, found.to_xarray())
    document = document_of("transfer", problem, out) | _transfer_document(found)
    what = "picture" if out is not None and out.suffix.lower() in PICTURES else "result"
    report.result(document, *words_of(problem), _optima(found), *_conclusions(found), *written_lines(what, out))
    return OK


_DIVERGED = {"theory": ("diverged_at", 0), "experiment": ("measured_diverged", 1)}
_FAILURES = {"theory": "failure", "experiment": "measured_failure"}
_LOSSES = {"theory": "test_loss", "experiment": "measured_test_loss"}


def _since_start(advance: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Leave out of the progress what an earlier run had finished, since it says nothing of the time left."""
    first: int | None = None

    def since_start(done: int, total: int) -> None:
        nonlocal first
        first = done if first is None else first
        advance(done - first, max(total - first, 1))

    return since_start


def _dims(found: "xr.Dataset") -> list[str]:
    return [str(name) for name in found[next(iter(found.data_vars))].dims if name != "time"]


def _failures(found: "xr.Dataset") -> list[dict[str, Any]]:
    """List points that failed: where, and why."""
    failures = []
    for kind, name in _FAILURES.items():
        if name in found:
            for index in np.argwhere(found[name].values != ""):
                failed, of_type = found[name][tuple(index)], found[f"{name}_type"][tuple(index)].item()
                failures.append({"kind": kind, "at": _coordinates(failed), "error": failed.item(), "type": of_type})
    twice = [each | {"kind": "experiment"} for each in failures if each["kind"] == "theory"]
    return [each for each in failures if each not in twice]  # values that are not allowed fail both


def _best(found: "xr.Dataset") -> dict[str, dict[str, Any]]:
    """Where the test loss at the last step is least, of theory and of the experiment; rounding errors do not count."""
    best = {}
    for kind, name in _LOSSES.items():
        if name in found:
            last = found[name].sel(time=found["steps"] - 1) if "steps" in found.dims else found[name].isel(time=-1)
            if name == "test_loss":
                last = last.where(found["rounding_at"] < 0)
            if np.isfinite(last).any():
                least = last.isel(last.argmin(...))
                best[kind] = {"loss": least.item()} | _coordinates(least)
    return best


def _coordinates(point: "xr.DataArray") -> dict[str, Any]:
    return {str(name): value.item() for name, value in point.coords.items() if name != "time"}


def _place_of(failure: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in failure["at"].items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _code(points: int, failures: list[dict[str, Any]], diverged: dict[str, int]) -> int:
    if diverged and all(count == points for count in diverged.values()):
        return DIVERGED
    lacking = [failure for failure in failures if failure["type"] == OUT_OF_MEMORY]
    return NO_MEMORY if failures and len(lacking) == points * len(diverged) else OK


def _optima(found: Transfer) -> Table:
    """One line for each curve."""
    measured = found.experiment
    columns = [
        found.over,
        f"optimal {found.field_in_words}",
        f"{found.objective} loss",
        found.kept_in_words,
        "local exponent",
        "",
    ]
    rows = []
    for index, (value, optimum) in enumerate(zip(found.values, found.optima, strict=True)):
        exponent = found.local_exponents[index]
        row = [f"{value:.4g}", f"{found.best[index]:.4g}", f"{optimum.loss:.4g}"]
        row += [found.loss_in_words(index), f"{exponent:.3f}" if math.isfinite(exponent) else "-", found.place(index)]
        if measured is not None:
            row += [measured.best_in_words(index), measured.regret_in_words(index), f"{measured.diverged[index]:.2g}"]
        rows.append(row)
    if measured is not None:
        columns += [f"measured {found.field_in_words} (95 %)", "regret (95 %)", "diverged"]
    return table("optimum of each curve", columns, rows)


def _conclusions(found: Transfer) -> list[str]:
    """Say how the optimum moves and whether it transfers, if there are two values or more to say it from."""
    verdicts = {"theory": found.verdict, "experiment": found.measured_verdict}
    return [*found.factors, *found.laws, *(f"{what}: {verdict}" for what, verdict in verdicts.items() if verdict)]


def _transfer_document(found: Transfer) -> dict[str, Any]:
    document: dict[str, Any] = {
        "over": found.over,
        "values": [INFINITE if value == math.inf else value for value in found.values.tolist()],
        "objective": found.objective,
        "field": found.field,
        "lrs" if found.field == "lr" else "tried": found.tried,
        "loss": found.loss,
        "optima": [
            {found.field: found.best[index], "loss": each.loss, "is_resolved": each.is_resolved}
            | ({"at_edge": each.at_edge} if found.field == "lr" else {"binding": each.binding})
            for index, each in enumerate(found.optima)
        ],
        "local_exponents": found.local_exponents,
        "exponent": found.exponent,
        "exponent_error": found.exponent_error,
        "kept_loss": found.kept_loss,
        "regret": found.regret,
        "verdict": found.verdict,
        "experiment": None,
    }
    if found.experiment is not None:
        document["experiment"] = found.experiment.of_each_value | found.experiment.of_all_values
        document["experiment"]["verdict"] = found.measured_verdict
    return document
