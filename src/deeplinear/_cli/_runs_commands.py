"""The command ``runs``: fit real training runs, predict others, find the best schedule."""

import inspect
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from deeplinear import RunsFit, fit_runs, schedules
from deeplinear._cli._commands import command, written_lines
from deeplinear._cli._errors import OK
from deeplinear._cli._options import REPORT, Group, make_option, out
from deeplinear._cli._pictures import save_picture
from deeplinear._cli._readers import number
from deeplinear._cli._report import Report, table
from deeplinear._core import checks
from deeplinear._core.build import version
from deeplinear._core.files import PICTURES
from deeplinear._core.refusal import Refusal

_SHAPES = ("constant", "cosine", "linear", "wsd")
_FORM = "SHAPE:STEPS or SHAPE:STEPS:OPTION=VALUE, as in wsd:50000 or wsd:50000:decay=0.1 or cosine:20000:end=0.1"


class Asked(NamedTuple):
    """Files, how to read them, and what to predict."""

    files: list[str]
    reading: dict[str, Any]
    law: str
    predict: list[str]
    best: list[int]
    stop: str | None
    peak: float | None


def _asked(values: dict[str, Any]) -> Asked:
    names = ("steps", "loss", "lr", "warmup", "smoothing")
    reading = {name: values[name] for name in names if values[name] is not None}
    return Asked(
        values["files"],
        reading,
        values["law"],
        values["predict"] or [],
        [checks.whole("--best", number(text), at_least=10) for text in values["best"] or []],
        values["stop"],
        values["peak"],
    )


_FILES = inspect.Parameter(
    "files",
    inspect.Parameter.KEYWORD_ONLY,
    annotation=Annotated[
        list[str],
        typer.Argument(metavar="FILES...", help="CSV files, TensorBoard event files, or folders of these."),
    ],
)

_COLUMN = "Name of the column of {}, unless it is called so or the like."

ASKED = Group(
    "asked",
    (
        _FILES,
        make_option(
            "predict", list[str] | None, None, "--predict", metavar="SHAPE:STEPS", help=f"Predict a run: {_FORM}."
        ),
        make_option("best", list[str] | None, None, "--best", metavar="STEPS", help="Find the best schedule."),
        make_option(
            "stop", str | None, None, "--stop", metavar="STEP:STEPS", help="Say what it costs to stop at a step."
        ),
        make_option(
            "peak", float | None, None, "--peak", metavar="RATE", show_default="that of the runs", help="Largest rate."
        ),
        make_option("law", str, "auto", "--law", metavar="auto|plain|norm", help="SGD: plain; Adam with decay: norm."),
        make_option("warmup", int, 0, "--warmup", metavar="STEPS", help="Steps of warm-up that were not logged."),
        make_option("smoothing", int, 0, "--smoothing", metavar="STEPS", help="Steps that a logged loss is a mean of."),
        make_option("steps", str | None, None, "--steps", metavar="NAME", help=_COLUMN.format("steps")),
        make_option("loss", str | None, None, "--loss", metavar="NAME", help=_COLUMN.format("losses")),
        make_option("lr", str | None, None, "--lr", metavar="NAME", help=_COLUMN.format("rates")),
    ),
    _asked,
)


@command(ASKED, REPORT, out("runs.png", PICTURES))
def runs(asked: Asked, report: Report, out: Path | None) -> int:
    """Fit the law of learning-rate schedules to real training runs, and predict others.

    The errors of runs that were left out, and the band, say how far to trust it.

    Exit codes: 0 done, 2 bad input.

    Example: deeplinear runs a.csv b.csv c.csv --warmup 2000 --predict wsd:50000 --best 50000
    """
    fit = fit_runs(asked.files, law=asked.law, **asked.reading)
    if out is not None:
        save_picture(out, fit)
    predicted = {text: fit.forecast(*_schedule(fit, text, asked.peak)) for text in asked.predict}
    best = {steps: fit.best_schedule(steps, peak=asked.peak) for steps in asked.best}
    stopping = None if asked.stop is None else fit.stopping(*_stop(asked.stop), peak=asked.peak)
    document = {
        "command": "runs",
        "version": version(),
        "law": fit.law,
        "values": fit.values,
        "ranges": fit.ranges,
        "held_out": fit.held_out,
        "band": fit.band,
        "warnings": fit.warnings,
        "predictions": {
            text: {"loss": each.loss[-1], "low": each.low[-1], "high": each.high[-1], "warnings": each.warnings}
            for text, each in predicted.items()
        },
        "best": {
            str(steps): {
                "lr": each.lr,
                "loss": each.loss,
                "low": each.low,
                "high": each.high,
                "decay_begins": each.decay_begins,
                "others": each.compared,
                "warnings": each.warnings,
            }
            for steps, each in best.items()
        },
        "stopping": None if stopping is None else {**vars(stopping), "cost": stopping.cost},
        "file": None if out is None else str(out),
    }
    lines = [str(fit)]
    rows = [
        [text, f"{each.loss[-1]:.4f}", f"{each.low[-1]:.4f} to {each.high[-1]:.4f}"] for text, each in predicted.items()
    ]
    shown = [table("predictions", ["run", "last loss", "90 % band"], rows)] if rows else []
    warned = dict.fromkeys(text for each in predicted.values() for text in each.warnings)
    lines_after = [*warned, *map(str, best.values()), *([] if stopping is None else [str(stopping)])]
    report.result(document, *lines, *shown, *lines_after, *written_lines("picture", out))
    return OK


def _schedule(fit: RunsFit, text: str, peak: float | None) -> tuple[schedules.Schedule, int]:
    """Read a schedule such as ``wsd:50000:decay=0.1``, with the warm-up of the runs."""
    shape, *parts = text.split(":")
    if shape not in _SHAPES or not parts:
        raise Refusal("--predict", text, _FORM, verb="look like")
    try:
        steps = checks.whole("--predict", number(parts[0]), at_least=10)
        options = {name: number(value) for name, _, value in (part.partition("=") for part in parts[1:])}
        warmup = min(fit.warmup, steps // 2) / steps
        make = getattr(schedules, shape)
        return make(fit.peak if peak is None else peak, warmup=warmup, **options), steps
    except (TypeError, ValueError) as error:
        if isinstance(error, Refusal):
            raise
        raise Refusal("--predict", text, _FORM, verb="look like") from None


def _stop(text: str) -> tuple[int, int]:
    at, _, steps = text.partition(":")
    try:
        return checks.whole("--stop", number(at), at_least=10), checks.whole("--stop", number(steps), at_least=10)
    except ValueError:
        raise Refusal("--stop", text, "STEP:STEPS, as in 16000:24000", verb="look like") from None
