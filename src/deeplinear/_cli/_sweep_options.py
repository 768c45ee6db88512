"""Options of the commands that go over many problems."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from deeplinear._cli._grid import read_file, read_over, read_values
from deeplinear._cli._options import Group, make_option, workers_option
from deeplinear._core.refusal import Refusal

_PANEL = "Sweep"
_OVER_HELP = "A field and its values: lr=0.01,0.02 or width=0.5:8:5log or depth=2:8:4; repeat for more fields."


def _grid(values: dict[str, Any]) -> dict[str, list[Any]]:
    """Join the grid of the file and that of the options, which take the place of the same fields."""
    from_file = read_file(values["grid"]) if values["grid"] else {}
    return from_file | read_over(values["over"] or [])


def _experiment(values: dict[str, Any]) -> dict[str, Any] | None:
    """Read text such as ``dim=200,seeds=16``."""
    text = values["experiment"]
    if text is None:
        return None
    experiment: dict[str, Any] = {}
    for each in text.split(","):
        name, _, value = each.partition("=")
        if name.strip() not in ("dim", "seeds") or not re.fullmatch(r"[0-9]{1,18}", value.strip()):
            raise Refusal("--experiment", text, "like dim=200,seeds=16, with no other names", verb="look")
        experiment[name.strip()] = int(value)
    return experiment


_GRID_OPTIONS = (
    make_option(
        "over", list[str] | None, None, "--over", metavar="FIELD=VALUES", help=_OVER_HELP, rich_help_panel=_PANEL
    ),
    make_option(
        "grid",
        Path | None,
        None,
        "--grid",
        metavar="FILE.toml",
        show_default=False,
        help="Read fields and values from the table [grid] of a file.",
        rich_help_panel=_PANEL,
    ),
)

GRID = Group("grid", _GRID_OPTIONS, _grid)

EXPERIMENT = Group(
    "experiment",
    (
        make_option(
            "experiment",
            str | None,
            None,
            "--experiment",
            metavar="dim=D,seeds=N",
            show_default="none",
            help="Train networks at every point as well.",
            rich_help_panel="Experiment",
        ),
    ),
    _experiment,
)

THEORY = Group(
    "theory",
    (make_option("theory", bool, True, "--theory/--no-theory", help="Solve the theory.", rich_help_panel=_PANEL),),
    lambda values: values["theory"],
)


class Place(NamedTuple):
    """Where a sweep is kept and where it runs."""

    store: Path | None
    resume: bool
    workers: int | None
    scheduler: str | None


def _scheduler(text: str | None) -> str | None:
    """Refuse what is no address before Dask tries to reach it, which takes long and ends in its own words."""
    if text is not None and not re.fullmatch(r"[a-z]+://[^\s/]+:[0-9]{1,5}", text):
        raise Refusal("scheduler", text, "an address such as 'tcp://127.0.0.1:8786'")
    return text


PLACE = Group(
    "place",
    (
        make_option(
            "store",
            Path | None,
            None,
            "--store",
            metavar="FOLDER",
            show_default="sweep-*.zarr, one for each sweep",
            help="Zarr store for the results; a sweep that is already there is resumed.",
            rich_help_panel=_PANEL,
        ),
        make_option(
            "resume",
            bool,
            True,
            "--resume/--no-resume",
            help="Whether to resume a sweep that is already in the store, or to refuse it.",
            rich_help_panel=_PANEL,
        ),
        workers_option("Processes on this machine.", _PANEL),
        make_option(
            "scheduler",
            str | None,
            None,
            "--scheduler",
            metavar="ADDRESS",
            show_default=False,
            help="Scheduler of a Dask cluster to run on, such as tcp://10.0.0.1:8786.",
            rich_help_panel=_PANEL,
        ),
    ),
    lambda values: Place(values["store"], values["resume"], values["workers"], _scheduler(values["scheduler"])),
)


class Along(NamedTuple):
    """The field that a transfer goes over, its values, what is followed, the rates of the picture, and the loss."""

    over: str
    values: list[Any]
    field: str
    bounds: list[Any] | None
    lrs: list[Any] | None
    objective: str


def _along(values: dict[str, Any]) -> Along:
    at = read_values("--values", values["values"] or _VALUES.get(values["over"], ""))
    numbers = {
        name: None if values[name] is None else read_values(f"--{name}", values[name]) for name in ("bounds", "lrs")
    }
    sizes = [float("inf") if each in ("infinite", "inf") else each for each in at]
    return Along(values["over"], sizes, values["field"], numbers["bounds"], numbers["lrs"], values["objective"])


_VALUES = {"width": "0.5,1,2,4,8", "depth": "1,2,4,8"}

ALONG = Group(
    "along",
    (
        make_option(
            "over",
            str,
            "width",
            "--over",
            metavar="width|depth|samples|batch|steps",
            help="Field to vary while the optimum is followed.",
            rich_help_panel="Transfer",
        ),
        make_option(
            "values",
            str | None,
            None,
            "--values",
            metavar="VALUES",
            show_default="0.5,1,2,4,8 for width, 1,2,4,8 for depth",
            help="Its values: 1,2,4 or 0.5:8:5log; inf for infinite width or depth.",
            rich_help_panel="Transfer",
        ),
        make_option(
            "field",
            str,
            "lr",
            "--field",
            metavar="lr|weight_decay|momentum|batch|...",
            help="Field to follow; if it is not lr, the learning rate is kept fixed.",
            rich_help_panel="Transfer",
        ),
        make_option(
            "bounds",
            str | None,
            None,
            "--bounds",
            metavar="LOW,HIGH",
            show_default="what is usual",
            help="Lowest and highest value of a field other than lr.",
            rich_help_panel="Transfer",
        ),
        make_option(
            "lrs",
            str | None,
            None,
            "--lrs",
            metavar="VALUES",
            show_default="around the optima",
            help="Learning rates of the curves, and of the experiment.",
            rich_help_panel="Transfer",
        ),
        make_option(
            "objective",
            str,
            "test",
            "--objective",
            metavar="test|train",
            help="Loss to minimise.",
            rich_help_panel="Transfer",
        ),
    ),
    _along,
)
