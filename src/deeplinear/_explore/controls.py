"""The controls of the page: every field of a problem in plain words, with its symbol and its range.

All of it comes from what the fields say of themselves; what is added here is what only the page has.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import deeplinear as dl
from deeplinear._core import checks
from deeplinear._core.about import About, Described, described, parts_of
from deeplinear._core.refusal import Refusal
from deeplinear._explore.problems import DRAWN, MOST, MOST_FACTOR, SECOND_PHASE, UPLOADED


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
        ``"slider"``, ``"choice"``, ``"switch"``, ``"text"`` or ``"file"``.
    default
        Value at the start.
    defaults
        The same for each kind, of which some differ.
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
    first
        Whether it stands above all parts.
    """

    part: str
    name: str
    kinds: tuple[str, ...]
    label: str
    symbol: str
    help: str
    widget: str
    default: Any
    defaults: dict[str, Any] = field(default_factory=dict)
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
    first: bool = False


PARTS = parts_of(dl.Problem)
"""What is known of each part of a problem."""

_PHASES = "phases"
_ONE, _TWO = "One", "Two"
"""A part of the page's own: whether a second phase of training follows."""

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
    "layer_decay", "clip", "clip_by", "per", "iterations", "input",
}  # fmt: skip
"""Fields that few people change."""

_FIRST = {"lr", "steps"}
"""Fields that most people change."""

_MOST = {"depth": MOST["layers"], "steps": MOST["steps"]}
"""Largest values that the page takes."""

_SEVERAL = {"width"}
"""Fields of which several values can be typed; rates that change have the schedule."""

_WIDGETS = {
    "number": "slider", "whole": "slider", "numbers": "slider", "series": "slider",
    "layers": "text", "list": "text", "matrix": "text", "word or number": "choice",
}  # fmt: skip

_MORE_CHOICES = {"branch_scaling": (("1", "CompleteP"),)}
"""Numbers that have a name, where a word or a number is allowed."""

_RULES = tuple(kind.__name__ for kind in PARTS["optimizer"].listed)
_SHAPE_WORDS = {"wsd": "stable, then decay", "piecewise": "steps", DRAWN: "drawn by hand"}
_SHAPES = tuple((each, _SHAPE_WORDS.get(each, each)) for each in (*dl.schedules.SHAPES, DRAWN))
_OWN = (
    Control(
        "optimizer", "schedule", _RULES, "Schedule", "η(t)", "How the learning rate changes over training.",
        "choice", "constant", choices=_SHAPES, more=True,
    ),
    Control(
        "optimizer", "warmup", _RULES, "Warm-up", "", "Fraction of all steps in which the learning rate rises.",
        "slider", 0.0, allowed=checks.fraction_below_one.allowed, ends=dict.fromkeys(_RULES, (0.0, 0.9)), more=True,
    ),
    Control(
        "optimizer", "shape", _RULES, "Details of the schedule", "", "Numbers that differ from the usual ones.",
        "text", None, allowed="numbers by name, such as end=0.1 or decay=0.3 or exponent=2, separated by commas",
        several=True, optional=True, more=True,
    ),
    Control(
        "optimizer", "knots", _RULES, "Knots of a schedule drawn by hand", "",
        "The view Schedule draws them: fractions of training, each with a factor on the learning rate.",
        "text", ((0, 1), (1, 0)), allowed=f"0, 1; 0.5, 1; 1, 0.1 and the like, with factors up to {MOST_FACTOR:g}",
        rows=True, more=True,
    ),
    Control(
        "data", "file", (UPLOADED,), "File", "",
        "Examples of your own. They stay on this machine, and are deleted when the explorer ends.", "file", None,
        allowed="a CSV file whose last column is the target, or an npz file with arrays x and y",
    ),
)  # fmt: skip
"""Words of the page: of the schedule of ``lr``, which is then the largest rate, and of data in a file."""


def _controls() -> Iterator[Control]:
    """Controls of each part in turn, then those of the problem itself."""
    for part, about in PARTS.items():
        found: dict[str, dict[str, Described]] = {}
        for kind in about.listed:
            for each in described(kind):
                found.setdefault(each.name, {})[kind.__name__] = each
        yield from (_control(part, name, of_kinds) for name, of_kinds in found.items())
    yield from _OWN
    yield from (_second_phase(each) for each in described(dl.Phase) if each.name in SECOND_PHASE)
    yield from (_control("", each.name, {"": each}) for each in described(dl.Problem))


def _control(part: str, name: str, of_kinds: dict[str, Described]) -> Control:
    """Return the control of a field, which several kinds may have."""
    first = next(iter(of_kinds.values()))
    about = first.about
    if about.form == "rule":
        return _rate_of_others(part, name, tuple(of_kinds))
    defaults = {
        kind: _STARTS.get(name, each.default if each.about.start is None else each.about.start)
        for kind, each in of_kinds.items()
    }
    return Control(
        part=part,
        name=name,
        kinds=tuple(of_kinds) if part else (),
        label=about.label,
        symbol=about.letter,
        help=about.help,
        widget=_WIDGETS.get(about.form, about.form),
        default=next(iter(defaults.values())),
        defaults=defaults if part else {},
        allowed=_allowed(name, about),
        ends={kind: each.about.usual for kind, each in of_kinds.items()},
        log=about.log,
        whole=about.form == "whole",
        count=None if about.usual_count is None else (about.count, *about.usual_count),
        infinite=tuple(kind for kind, each in of_kinds.items() if each.about.infinite),
        choices=(*about.choices.items(), *_MORE_CHOICES.get(name, ())),
        several=name in _SEVERAL,
        rows=about.form == "matrix",
        optional=first.default is None,
        more=name in _MORE,
        first=name in _FIRST and part != _PHASES,
    )


def _second_phase(each: Described) -> Control:
    """Return the control of a field of the second phase."""
    start = SECOND_PHASE[each.name]
    made = _control(_PHASES, each.name, {_TWO: each})
    return replace(made, default=start, defaults={_TWO: start})


def _rate_of_others(part: str, name: str, kinds: tuple[str, ...]) -> Control:
    """Return the control of the rule of other weights, of which the page has the learning rate."""
    return Control(
        part, name, kinds, "Learning rate of other weights", "", "For the readout and, as a rule, the input weights.",
        "slider", None, dict.fromkeys(kinds), f"{checks.positive.allowed}; if empty, the same as above",
        dict.fromkeys(kinds, (0.0005, 2.0)), log=True, optional=True,
    )  # fmt: skip


def _allowed(name: str, about: About) -> str:
    """What may be typed, in words; choices and switches show it themselves."""
    if about.form in ("choice", "switch", "word or number"):
        return ""
    if about.form == "series":
        return about.allowed_alone
    typed = {
        "numbers": ", separated by commas",
        "list": ", separated by commas",
        "matrix": ", with semicolons between rows",
    }
    most = f", at most {_MOST[name]}" if name in _MOST else ""
    if about.form == "layers":
        return "one number for each weight layer, separated by commas, or by name, such as input=1, readout=0"
    return about.allowed_alone + typed.get(about.form, most)


CONTROLS = tuple(_controls())
"""Every control."""


_SCHEDULED = {"shape": "schedule", "warmup": "warmup", "end": "shape", "decay": "shape", "exponent": "shape"}
"""Controls of what a schedule is made from."""


def field_of(error: Exception) -> str | None:
    """Return the control that an error is about, None if it is about none.

    Examples
    --------
    >>> field_of(Refusal("width[1]", 0, "a positive finite number")), field_of(MemoryError("not enough memory"))
    ('network.width', None)
    """
    names = {control.name: ".".join(filter(None, (control.part, control.name))) for control in CONTROLS}
    names |= {"dim": "experiment.dim", "seeds": "experiment.seeds"}
    if not isinstance(error, Refusal):
        return None
    if error.field.startswith("phases."):
        return error.field
    outer, _, inner = error.field.partition(".")  # such as lr.warmup, of a schedule
    return names.get(_SCHEDULED.get(inner, outer)) if inner else names.get(outer)


def as_plain() -> dict[str, Any]:
    """Return everything as JSON can hold it."""
    parts: dict[str, dict[str, Any]] = {
        name: {
            "label": about.label,
            "help": about.help,
            "kinds": [(kind.__name__, kind.kind.label if len(about.kinds) > 1 else "") for kind in about.listed],
        }
        for name, about in PARTS.items()
    }
    parts["data"]["kinds"].append((UPLOADED, "Your own data"))
    parts[_PHASES] = {
        "label": "Phases",
        "help": "Whether training goes on with another task.",
        "kinds": [(_ONE, "One task"), (_TWO, "A second task follows")],
    }
    return {"parts": parts, "controls": [asdict(control) for control in CONTROLS]}
