"""What is known of a field of a problem, said once.

Every field carries an ``About`` in its metadata, every part of a problem an ``AboutPart``, and every kind of part a
``Kind``. The command line, the page, pictures and the documentation read them there, and so do the checks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, Literal

from deeplinear._core.checks import Check, Wider

_FIELD, _PART = "about", "part"
_GREEK = {
    "\\alpha": "α", "\\beta": "β", "\\gamma": "γ", "\\eta": "η", "\\kappa": "κ",
    "\\lambda": "λ", "\\mu": "μ", "\\nu": "ν", "\\rho": "ρ", "\\sigma": "σ",
}  # fmt: skip

Form = Literal[
    "number", "whole", "numbers", "series", "layers", "list", "matrix", "choice", "word or number", "switch", "rule"
]  # fmt: skip
"""What a value looks like: a number, a whole one, one or several, one or several over time, one for each weight layer,
a list, rows of numbers, a word, a word or a number, on or off, an update rule with fields of its own."""


@dataclass(frozen=True)
class About:
    """What is known of a field.

    Attributes
    ----------
    label
        Its name in plain words.
    help
        What it does, in one or two sentences.
    form
        What its values look like.
    symbol
        Its letter in the equations, in LaTeX.
    check
        Takes its name and a value, and returns the value as it is kept or refuses it. None where the class checks
        the field beside others.
    allowed
        What is allowed, in words; what the check says by default.
    unit
        What a size is counted in, such as ``"N/D"``: a ratio to the input dimension, unless the data are counted.
    choices
        The words that are allowed, each with the words that people know it by.
    start
        Value with which the command line and the page begin where the class has no default, or a dull one.
    count
        The same where sizes are counts and not ratios.
    usual, usual_count
        Range that is worth looking at, of ratios and of counts.
    log
        Whether it is looked at in ratios and not in differences.
    infinite
        Whether it has a limit of infinity.
    """

    label: str
    help: str
    form: Form = "number"
    symbol: str = ""
    check: Check | None = None
    allowed: str = ""
    unit: str = ""
    choices: Mapping[str, str] = field(default_factory=dict, hash=False)
    start: Any = None
    count: Any = None
    usual: tuple[float, float] = (0.0, 1.0)
    usual_count: tuple[float, float] | None = None
    log: bool = False
    infinite: bool = False

    def __post_init__(self) -> None:
        if self.check is not None and not self.allowed:
            object.__setattr__(self, "allowed", self.check.allowed)

    @property
    def allowed_alone(self) -> str:
        """What is allowed of a single value, in words, where several or none are allowed too."""
        return self.check.one.allowed if isinstance(self.check, Wider) else self.allowed  # type: ignore[redundant-expr]

    @property
    def metadata(self) -> dict[str, "About"]:
        """What ``dataclasses.field`` takes."""
        return {_FIELD: self}

    @property
    def letter(self) -> str:
        r"""The symbol as plain text: Greek letters as such, with an underscore before an index.

        Examples
        --------
        >>> About("Richness", "How far features move.", symbol=r"\gamma_0").letter
        'γ_0'
        """
        text = self.symbol.replace("_k^2", "²_k")
        for name, letter in _GREEK.items():
            text = text.replace(name, letter)
        return text

    @property
    def placeholder(self) -> str:
        r"""What stands for a value where somebody types it.

        Examples
        --------
        >>> About("Learning rate", "Size of each step.", symbol=r"\eta").placeholder
        'ETA'
        >>> About("Scaling", "With width.", "choice", choices={"mup": "muP", "ntk": "NTK"}).placeholder
        'mup|ntk'
        """
        words = "|".join(self.choices)
        of_form = {"choice": words, "word or number": f"{words}|P", "switch": ""}
        of_form |= {"list": "LIST", "matrix": "MATRIX", "layers": "LAYERS"}
        symbol = self.symbol.partition("_")[0].removeprefix("\\").upper()
        return of_form.get(self.form, self.unit or symbol or "X")


@dataclass(frozen=True)
class AboutPart:
    """What is known of a part of a problem: its name in plain words, what it is, the kinds there are.

    ``start`` is the kind with which the command line and the page begin. ``missing`` has words, in small letters, for
    kinds that people ask for and that there cannot be, each with the reason and what comes nearest.
    """

    label: str
    help: str
    kinds: Sequence[Any]
    start: Any
    missing: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def metadata(self) -> dict[str, "AboutPart"]:
        """What ``dataclasses.field`` takes."""
        return {_PART: self}

    @property
    def listed(self) -> tuple[Any, ...]:
        """The kinds, the one to begin with first."""
        return (self.start, *(kind for kind in self.kinds if kind is not self.start))

    @property
    def classes(self) -> list[str]:
        """Names of the classes of values, without those of special cases, which methods of others make."""
        general = [kind for kind in self.kinds if not any(kind in each.__subclasses__() for each in self.kinds)]
        return [kind.__name__ for kind in general]

    def why_missing(self, word: Any) -> str:
        """Return why there is no kind of this name, to follow a refusal; nothing where no reason is known."""
        known = str(word).lower().replace("-", "").replace("_", "")
        return f": {self.missing[known]}" if known in self.missing else ""


@dataclass(frozen=True)
class Kind:
    """What a kind of part is called: as an option, in titles of pictures, in plain words, and in Python.

    ``call`` is what makes one, where it is not the class itself.
    """

    option: str
    title: str
    label: str
    call: str = ""


@dataclass(frozen=True)
class Described:
    """A field of a kind, with all that is known of it."""

    name: str
    about: About
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether the field has no default."""
        return self.default is MISSING


def described(kind: Any) -> tuple[Described, ...]:
    """Return the fields that a kind, or a part of a problem, is made from.

    Examples
    --------
    >>> import deeplinear as dl
    >>> [each.about.label for each in described(dl.OnlineSGD)]
    ['Batch size', 'Correct for tiny batches']
    """
    return _described(kind if isinstance(kind, type) else type(kind))


@cache
def _described(kind: Any) -> tuple[Described, ...]:
    """Worked out once, since large sweeps make problems by the hundred thousand."""
    return tuple(
        Described(each.name, each.metadata[_FIELD], each.default)
        for each in fields(kind)
        if each.init and _FIELD in each.metadata
    )


def parts_of(problem: Any) -> dict[str, AboutPart]:
    """Return what is known of the parts of a problem, by name."""
    return {each.name: each.metadata[_PART] for each in fields(problem) if _PART in each.metadata}


def check_fields(part: Any) -> None:
    """Check every field of a part that says how, and keep what the check returns."""
    for each in described(part):
        if each.about.check is not None:
            keep(part, **{each.name: each.about.check(each.name, getattr(part, each.name))})


def keep(part: Any, /, **values: Any) -> None:
    """Set fields of frozen data while it is being made."""
    for name, value in values.items():
        object.__setattr__(part, name, value)
