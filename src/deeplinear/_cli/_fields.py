"""Fields of a problem as the command line has them, and the problem that given values describe.

A field of a problem is one line in ``FIELDS``, a new kind of network, data or sampling one word in ``KINDS``;
every command that takes a problem has them then.
"""

import json
import sys
import tomllib
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple

from deeplinear._problem.data import Isotropic
from deeplinear._problem.network import INFINITE, MLP, ResNet
from deeplinear._problem.optimizer import GradientDescent
from deeplinear._problem.problem import Problem
from deeplinear._problem.sampling import FullBatch, MultiPassSGD, OnlineSGD, Population
from deeplinear._problem.spectrum import PowerLaw, Spectrum

KINDS: dict[str, dict[str, type]] = {
    "network": {"mlp": MLP, "resnet": ResNet},
    "data": {"isotropic": Isotropic, "spectrum": Spectrum, "power-law": PowerLaw},
    "sampling": {"full-batch": FullBatch, "population": Population, "online": OnlineSGD, "multi-pass": MultiPassSGD},
    "optimizer": {"gradient-descent": GradientDescent},
}
"""What each part of a problem may be, by its word on the command line; the first is the default."""


def number(text: str) -> int | float:
    """Read one number; whole numbers stay whole, up to the largest float, beyond which they are infinite."""
    try:
        whole = int(text)
    except ValueError:
        return float(text)
    return whole if abs(whole) <= sys.float_info.max else float(text)


def numbers(text: str) -> int | float | list[int | float]:
    """Read one number, or several between commas."""
    values = [number(each) for each in text.split(",")]
    return values if len(values) > 1 else values[0]


def sequence(text: str) -> Any:
    """Read numbers between commas, or JSON."""
    return json.loads(text) if "[" in text else [number(each) for each in text.split(",")]


def widths(text: str) -> Any:
    """Read numbers, or the word for infinite width."""
    return text if text == INFINITE else numbers(text)


def matrix(text: str) -> Any:
    """Read a matrix as JSON, or as rows between semicolons."""
    return json.loads(text) if "[" in text else [[number(each) for each in row.split(",")] for row in text.split(";")]


_EXPECTED: dict[Callable[[str], Any], str] = {
    number: "a number",
    numbers: "a number, or several between commas",
    widths: f"a number, or several between commas, or {INFINITE}",
    sequence: "numbers between commas, or JSON",
    matrix: "a matrix such as '1,0.2;0.2,1' or JSON",
}


class Field(NamedTuple):
    """A field of a problem as an option.

    ``read`` turns text into a value, or is ``bool`` for a switch. ``default`` is for required fields, ``count`` its
    place where sizes are counts and not ratios; the other fields have the default of the library.
    """

    part: str | None
    name: str
    read: Callable[[str], Any]
    metavar: str
    help: str
    default: Any = None
    count: Any = None
    repeats: bool = False

    @property
    def flag(self) -> str:
        """The option's name as it is typed."""
        return "--" + self.name.replace("_", "-")

    @property
    def kinds(self) -> list[str]:
        """Words of the kinds that have this field."""
        return [word for word, kind in KINDS.get(self.part or "", {}).items() if self.name in names(kind)]


FIELDS = (
    Field("network", "depth", number, "L", "Hidden layers; inf for a residual network of infinite depth.", 3),
    Field("network", "width", widths, "N/D", "Width, or one per layer, or infinite.", 1.0, 256, repeats=True),
    Field("network", "richness", number, "GAMMA", "How far features move: gamma0 in muP."),
    Field("network", "parameterization", str, "mup|ntk", "How richness depends on width."),
    Field("network", "centered", bool, "", "Subtract the function at initialisation."),
    Field("network", "branch", number, "BETA", "Scale of the residual branches."),
    Field("network", "branch_scaling", str, "depth-mup|none", "Whether branches shrink as 1/sqrt(depth)."),
    Field("data", "noise", number, "SIGMA", "Standard deviation of the label noise.", 0.3),
    Field("data", "target_gram", matrix, "MATRIX", "Overlaps of several outputs' targets: '1,0.2;0.2,1' or JSON."),
    Field("data", "eigenvalues", sequence, "LIST", "Variance of the inputs in each mode.", repeats=True),
    Field("data", "target_power", sequence, "LIST", "Squared target weight in each mode.", repeats=True),
    Field("data", "multiplicity", sequence, "LIST", "Number or fraction of directions in each mode.", repeats=True),
    Field("data", "proportional", bool, "", "Modes are fractions of D directions, and sizes ratios to D."),
    Field("data", "capacity", number, "A", "Eigenvalues are k^-A.", 1.5),
    Field("data", "source", number, "B", "Target power times eigenvalue is k^(-A B - 1).", 1.0),
    Field("sampling", "samples", number, "P/D", "Size of the data set.", 2.0, 512),
    Field("sampling", "batch", number, "B/D", "Size of a batch.", 0.5, 64),
    Field("sampling", "small_batch", bool, "", "Keep noise of order 1/B in the theory."),
    Field("optimizer", "lr", numbers, "ETA", "Learning rate: one, or one per step (commas).", 0.03, repeats=True),
    Field("optimizer", "momentum", number, "MU", "Momentum."),
    Field("optimizer", "nesterov", bool, "", "Look ahead with momentum."),
    Field("optimizer", "weight_decay", number, "LAMBDA", "Weight decay."),
    Field(None, "steps", number, "T", "Training steps.", 200),
)


def problem_from(values: dict[str, Any]) -> Problem:
    """Build a problem from a file or from defaults, with the options that were given in place of its fields."""
    path: Path | None = values["problem"]
    document: dict[str, Any] = tomllib.loads(Problem.load(path).to_toml()) if path else {}
    given = {field: _read(field, values[field.name]) for field in FIELDS if values[field.name] not in (None, [])}
    kinds = {part: _kind(part, values.get(part), document.get(part)) for part in KINDS}
    counts = issubclass(kinds["data"], Spectrum) and not (
        values["proportional"] or document.get("data", {}).get("proportional")
    )
    for part, kind in kinds.items():
        kept = {name: value for name, value in document.get(part, {}).items() if name in names(kind)}
        fallback = _defaults(kind, counts, required_only=path is not None)
        document[part] = {"type": kind.__name__} | fallback | kept | _options(part, kind, given)
    steps = {field.name: value for field, value in given.items() if field.part is None}
    return Problem.from_dict({"steps": _field("steps").default} | document | steps)


def names(kind: type) -> list[str]:
    """Names of the fields that a kind is made from."""
    return [field.name for field in fields(kind) if field.init]


def _options(part: str, kind: type, given: dict[Field, Any]) -> dict[str, Any]:
    """Return the values given for one part, all of which must suit its kind."""
    for field in given:
        if field.part == part and field.name not in names(kind):
            word = next(word for word, each in KINDS[part].items() if each is kind)
            raise ValueError(f"{field.flag} does not go with {part} {word}; it goes with {' or '.join(field.kinds)}")
    return {field.name: value for field, value in given.items() if field.part == part}


def _kind(part: str, word: str | None, table: dict[str, Any] | None) -> type:
    kinds = KINDS[part]
    if word is not None:
        if word not in kinds:
            raise ValueError(f"{part} must be {' or '.join(kinds)}, got {word!r}")
        return kinds[word]
    by_name = {kind.__name__: kind for kind in kinds.values()}
    return by_name[table["type"]] if table else next(iter(kinds.values()))


def _defaults(kind: type, counts: bool, required_only: bool) -> dict[str, Any]:
    """Defaults of the command line for the fields of one kind."""
    required = {field.name for field in fields(kind) if field.default is MISSING}
    own = (field for field in FIELDS if field.default is not None and field.name in names(kind))
    return {
        field.name: field.count if counts and field.count else field.default
        for field in own
        if field.name in required or not required_only
    }


def _read(field: Field, value: Any) -> Any:
    if isinstance(value, bool):
        return value
    text = ",".join(value) if field.repeats else value
    try:
        return field.read(text)
    except ValueError:  # also what json raises
        raise ValueError(f"{field.flag} must be {_EXPECTED[field.read]}, got {text!r}") from None


def _field(name: str) -> Field:
    return next(field for field in FIELDS if field.name == name)
