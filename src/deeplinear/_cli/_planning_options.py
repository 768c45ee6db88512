"""Options of the commands that plan a run."""

from pathlib import Path
from typing import Any, NamedTuple

from deeplinear._cli._grid import read_values
from deeplinear._cli._options import Group, make_option
from deeplinear._core.refusal import Refusal

_PANEL = "Plan"


class Choice(NamedTuple):
    """What may be chosen, and within which bounds."""

    over: list[str]
    bounds: dict[str, tuple[Any, Any]]
    margin: float
    starts: int
    objective: str


class Budget(NamedTuple):
    """What there is to spend, and what may be chosen."""

    compute: float
    over: list[str]
    values: dict[str, list[Any]]
    objective: str
    store: Path | None


def _named(option: str, texts: list[str] | None, form: str) -> dict[str, list[Any]]:
    """Read texts such as ``width=1,2``, one for each field."""
    found: dict[str, list[Any]] = {}
    for text in texts or []:
        name, equals, values = text.partition("=")
        if not equals or name.strip() in found:
            raise Refusal(option, text, f"{form}, once for each field")
        found[name.strip()] = read_values(f"{option} {name.strip()}", values)
    return found


def _choice(values: dict[str, Any]) -> Choice:
    bounds = _named("--bounds", values["bounds"], "FIELD=LOW,HIGH")
    return Choice(
        _words(values["over"]),
        {name: tuple(each) for name, each in bounds.items()},
        values["margin"],
        values["starts"],
        values["objective"],
    )


def _budget(values: dict[str, Any]) -> Budget:
    tried = _named("--values", values["values"], "FIELD=VALUES")
    return Budget(values["compute"], _words(values["over"]), tried, values["objective"], values["store"])


def _words(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _over(default: str, allowed: str) -> Any:
    return make_option(
        "over",
        str,
        default,
        "--over",
        metavar="FIELDS",
        help=f"What may be chosen, separated by commas: {allowed}.",
        rich_help_panel=_PANEL,
    )


_OBJECTIVE = make_option(
    "objective", str, "test", "--objective", metavar="test|train", help="Which loss counts.", rich_help_panel=_PANEL
)

CHOICE = Group(
    "choice",
    (
        _over("lr,momentum,weight_decay", "lr, momentum, weight_decay, richness, width, samples, batch and others"),
        make_option(
            "bounds",
            list[str] | None,
            None,
            "--bounds",
            metavar="FIELD=LOW,HIGH",
            help="Lowest and highest value of a field; repeat for more.",
            rich_help_panel=_PANEL,
        ),
        make_option(
            "margin",
            float,
            0.05,
            "--margin",
            metavar="FRACTION",
            help="Safety margin: how much higher the learning rate could still go.",
            rich_help_panel=_PANEL,
        ),
        make_option(
            "starts", int, 4, "--starts", metavar="N", help="Number of starts of the search.", rich_help_panel=_PANEL
        ),
        _OBJECTIVE,
    ),
    _choice,
)

BUDGET = Group(
    "budget",
    (
        make_option(
            "compute",
            float,
            1000.0,
            "--compute",
            metavar="C",
            help="The budget: 6 for each weight, example and update, in units of the input dimension cubed where sizes "
            "are ratios to it.",
            rich_help_panel=_PANEL,
        ),
        _over("width,steps", "width, steps, batch, depth, samples"),
        make_option(
            "values",
            list[str] | None,
            None,
            "--values",
            metavar="FIELD=VALUES",
            help="Values to try, such as width=0.5,1,2 or width=0.5:8:5log; repeat for more fields.",
            show_default="a quarter to four times the problem's own",
            rich_help_panel=_PANEL,
        ),
        _OBJECTIVE,
        make_option(
            "store",
            Path | None,
            None,
            "--store",
            metavar="FOLDER",
            show_default=False,
            help="Folder that keeps solved models, to resume after an interruption or share work with other processes.",
            rich_help_panel=_PANEL,
        ),
    ),
    _budget,
)
