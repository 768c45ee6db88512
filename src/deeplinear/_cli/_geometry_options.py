"""Options of the commands that look at curvature and landscapes."""

from typing import Any, NamedTuple

from deeplinear import EMA, TailMean
from deeplinear._cli._grid import read_values
from deeplinear._cli._options import FINITE, Finite, Group, make_option, read_average
from deeplinear._cli._readers import number
from deeplinear._core.refusal import Refusal

_PANEL = "Curvature"
_LINE = "Line"


def _numbers(option: str, text: str | None) -> list[Any] | None:
    """Read the numbers of an option, if it is given."""
    if text is None:
        return None
    values = read_values(option, text)
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in values):
        raise Refusal(option, text, "numbers separated by commas, or low:high:count")
    return values


class Look(NamedTuple):
    """Which curvature to look at."""

    at: list[Any] | None
    vectors: int
    operator: str


def _look(values: dict[str, Any]) -> Look:
    return Look(_numbers("--at", values["at"]), values["vectors"], values["operator"])


LOOK = Group(
    "look",
    (
        make_option(
            "at",
            str | None,
            None,
            "--at",
            metavar="STEPS",
            show_default="ten, evenly spaced",
            help="Steps to look at: 0,50,199 or 0:100:11.",
            rich_help_panel=_PANEL,
        ),
        make_option(
            "vectors",
            int,
            16,
            "--vectors",
            metavar="K",
            help="Number of directions in Lanczos's iteration, 2 or more; the more, the smaller the error.",
            rich_help_panel=_PANEL,
        ),
        make_option(
            "operator",
            str,
            "hessian",
            "--operator",
            metavar="hessian|kernel",
            help="What to look at: the Hessian of the training loss, or the tangent kernel.",
            rich_help_panel=_PANEL,
        ),
    ),
    _look,
)


def _measured(values: dict[str, Any]) -> Finite | None:
    made = FINITE.build(values | {"record": "losses"})
    return None if made.dim is None else made


MEASURED = Group(
    "finite",
    (
        make_option(
            "dim",
            int | None,
            None,
            "--dim",
            metavar="D",
            show_default="no networks",
            help="Also train networks of this input dimension, and measure the same in them.",
            rich_help_panel="Experiment",
        ),
        *(each for each in FINITE.parameters if each.name in ("seeds", "workers", "method")),
    ),
    _measured,
)


class Line(NamedTuple):
    """Along which line to look, and where on it."""

    along: str | EMA | TailMean | tuple[int, int]
    positions: list[Any] | None


def _line(values: dict[str, Any]) -> Line:
    return Line(_along(values["along"]), _numbers("--positions", values["positions"]))


def _along(text: str) -> str | EMA | TailMean | tuple[int, int]:
    """Read the name of a line, two steps such as ``0,50``, or an average such as ``tail=0.5``."""
    if "=" in text:
        return read_average("--along", text)
    if "," not in text:
        return text
    try:
        first, second = (number(each) for each in text.split(","))
    except ValueError:
        raise Refusal("--along", text, "the name of a line, or two steps such as 0,50") from None
    return first, second  # type: ignore[return-value]  # what is no step is refused where steps are known


LINE = Group(
    "line",
    (
        make_option(
            "along",
            str,
            "line",
            "--along",
            metavar="line|T1,T2|ema=DECAY|tail=PART|twins|gradient|sharpest",
            help="From the first weights to the last; between those of two steps; from the last to an average of all; "
            "between two networks with the same start and different batches; around the last weights, along minus the "
            "gradient or the direction of largest curvature.",
            rich_help_panel=_LINE,
        ),
        make_option(
            "positions",
            str | None,
            None,
            "--positions",
            metavar="VALUES",
            show_default="0:1:25 between two points, -4:4:41 around one",
            help="Where on the line: 0 and 1 are its two points; around one point, 1 is as far as the next step goes.",
            rich_help_panel=_LINE,
        ),
    ),
    _line,
)
