"""The controls of the page: every field of a problem in plain words, with its symbol and its range.

All of it comes from what the fields say of themselves; what is added here is what only the page has.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import deeplinear as dl
from deeplinear._core import checks
from deeplinear._core.about import About, Described, described, parts_of
from deeplinear._core.refusal import Refusal
from deeplinear._explore.problems import MOST


@dataclass(frozen=True)
class Control:
    """One field of a problem on the page.

    Attributes
    ----------
    part, name
        Where the field stands in a problem; part is empty for a field of the problem itself.
    kinds
        Kinds of the part that have the field.
    label, symbol, help
        What it is called, its letter in the paper, and what it does.
    widget
        ``"slider"``, ``"choice"``, ``"switch"`` or ``"text"``.
    default
        Value at the start.
    allowed
        What may be typed, in words.
    ends
        Ends of the slider for each kind, which is logarithmic where ``log`` is set; any allowed value can be typed.
    count
        Default, low and high where sizes are counts and not ratios to the input dimension.
    infinite
        Kinds that may take the word "infinite".
    choices
        Values of a choice, with their words.
    several, rows
        Whether several numbers may be typed with commas, and whether rows of them with semicolons.
    optional
        Whether it may be left empty.
    more
        Whether it hides until asked for.
    """

    part: str
    name: str
    kinds: tuple[str, ...]
    label: str
    symbol: str
    help: str
    widget: str
    default: Any
    allowed: str = ""
    ends: dict[str, tuple[float, float]] = field(default_factory=dict)
    log: bool = False
    whole: bool = False
    count: tuple[float, float, float] | None = None
    infinite: tuple[str, ...] = ()
    choices: tuple[tuple[str, str], ...] = ()
    several: bool = False
    rows: bool = False
    optional: bool = False
    more: bool = False


PARTS = parts_of(dl.Problem)
"""What is known of each part of a problem."""

_STARTS: dict[str, Any] = {
    "steps": 150,  # so that theory follows the sliders at once
    "eigenvalues": (4.0, 1.0, 0.25),
    "target_power": (1.0, 1.0, 1.0),
    "multiplicity": (0.1, 0.3, 0.6),
    "proportional": True,
}
"""Values at the start that are the page's own: no spectrum is more usual than another."""

_MORE = {
    "centered", "init_scale", "target_gram", "small_batch", "momentum", "nesterov", "weight_decay", "layer_lr",
    "layer_decay", "clip", "clip_by",
}  # fmt: skip
"""Fields that few people change."""

_MOST = {"depth": MOST["layers"], "steps": MOST["steps"]}
"""Largest values that the page takes."""

_SEVERAL = {"width"}
"""Fields of which several values can be typed; rates that change have the schedule."""

_WIDGETS = {
    "number": "slider", "whole": "slider", "numbers": "slider", "series": "slider",
    "layers": "text", "list": "text", "matrix": "text",
}  # fmt: skip

_SCHEDULE = Control(
    "optimizer", "schedule", ("GradientDescent",), "Schedule", "η(t)", "How the learning rate changes over training.",
    "choice", "constant",
    choices=(("constant", "constant"), ("warmup", "warm-up"), ("cosine", "cosine"), ("decay", "1/√t")), more=True,
)  # fmt: skip
"""A word of the page for the values of ``lr`` at every step."""


def _controls() -> Iterator[Control]:
    """Controls of each part in turn, then those of the problem itself."""
    for part, about in PARTS.items():
        found: dict[str, dict[str, Described]] = {}
        for kind in about.listed:
            for each in described(kind):
                found.setdefault(each.name, {})[kind.__name__] = each
        yield from (_control(part, name, of_kinds) for name, of_kinds in found.items())
    yield _SCHEDULE
    yield from (_control("", each.name, {"": each}) for each in described(dl.Problem))


def _control(part: str, name: str, of_kinds: dict[str, Described]) -> Control:
    """Return the control of a field, which several kinds may have."""
    first = next(iter(of_kinds.values()))
    about = first.about
    return Control(
        part=part,
        name=name,
        kinds=tuple(of_kinds) if part else (),
        label=about.label,
        symbol=about.letter,
        help=about.help,
        widget=_WIDGETS.get(about.form, about.form),
        default=_STARTS.get(name, first.default if about.start is None else about.start),
        allowed=_allowed(name, about),
        ends={kind: each.about.usual for kind, each in of_kinds.items()},
        log=about.log,
        whole=about.form == "whole",
        count=None if about.usual_count is None else (about.count, *about.usual_count),
        infinite=tuple(kind for kind, each in of_kinds.items() if each.about.infinite),
        choices=tuple(about.choices.items()),
        several=name in _SEVERAL,
        rows=about.form == "matrix",
        optional=first.default is None,
        more=name in _MORE,
    )


def _allowed(name: str, about: About) -> str:
    """What may be typed, in words; choices and switches show it themselves."""
    if about.form in ("choice", "switch"):
        return ""
    if about.form == "series":
        return checks.positive.allowed if name in ("lr", "batch") else about.allowed
    typed = {
        "numbers": ", with commas",
        "layers": ", with commas",
        "list": ", with commas",
        "matrix": ", with semicolons between rows",
    }
    most = f", at most {_MOST[name]}" if name in _MOST else ""
    return about.allowed + typed.get(about.form, most)


CONTROLS = tuple(_controls())
"""Every control."""


def field_of(error: Exception) -> str | None:
    """Return the control that an error is about, None if it is about none.

    Examples
    --------
    >>> field_of(Refusal("width[1]", 0, "a positive finite number")), field_of(MemoryError("not enough memory"))
    ('network.width', None)
    """
    names = {control.name: ".".join(filter(None, (control.part, control.name))) for control in CONTROLS}
    names |= {"dim": "experiment.dim", "seeds": "experiment.seeds"}
    return names.get(error.field) if isinstance(error, Refusal) else None


def as_plain() -> dict[str, Any]:
    """Return everything as JSON can hold it."""
    parts = {
        name: {
            "label": about.label,
            "help": about.help,
            "kinds": [(kind.__name__, kind.kind.label if len(about.kinds) > 1 else "") for kind in about.listed],
        }
        for name, about in PARTS.items()
    }
    return {"parts": parts, "controls": [asdict(control) for control in CONTROLS]}
