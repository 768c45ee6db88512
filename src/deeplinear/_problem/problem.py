"""One training problem: network, data, sampling, optimizer and horizon meet here."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from deeplinear._core import checks
from deeplinear._core.about import About, AboutPart, check_fields, described, parts_of
from deeplinear._core.files import write_atomically
from deeplinear._core.refusal import Refusal
from deeplinear._problem.data import Isotropic
from deeplinear._problem.network import MLP, ResNet
from deeplinear._problem.optimizer import GradientDescent
from deeplinear._problem.sampling import FullBatch, MultiPassSGD, OnlineSGD, Population, Sampling
from deeplinear._problem.spectrum import PowerLaw, Spectrum

_NETWORK = AboutPart("Network", "What is trained: layers of linear neurons, from random weights.", (MLP, ResNet), MLP)
_DATA = AboutPart(
    "Data",
    "What there is to learn: a linear rule, seen through random examples.",
    (Isotropic, Spectrum, PowerLaw),
    Isotropic,
)
_SAMPLING = AboutPart(
    "Sampling",
    "Which examples each training step sees.",
    (Population, FullBatch, OnlineSGD, MultiPassSGD),
    FullBatch,
)
_OPTIMIZER = AboutPart(
    "Training", "How the weights are changed, and for how long.", (GradientDescent,), GradientDescent
)
_STEPS = About(
    "Training steps",
    "How long to train.",
    "whole",
    symbol="T",
    check=checks.Whole(),
    start=200,
    usual=(10, 1000),
    log=True,
)


@dataclass(frozen=True)
class Problem:
    """What is trained, on what, how, and for how long.

    Parameters
    ----------
    network, data, sampling, optimizer
        The four parts; see their own pages.
    steps
        Number T of values on each curve, at t = 0 .. T-1, each taken before its update.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     network=dl.MLP(depth=2, width=1.0),
    ...     data=dl.Isotropic(noise=0.1),
    ...     sampling=dl.FullBatch(samples=2.0),
    ...     optimizer=dl.GradientDescent(lr=0.05),
    ...     steps=100,
    ... )
    >>> dl.Problem.from_toml(problem.to_toml()) == problem
    True
    """

    network: MLP | ResNet = field(metadata=_NETWORK.metadata)
    data: Isotropic | Spectrum = field(metadata=_DATA.metadata)
    sampling: Sampling = field(metadata=_SAMPLING.metadata)
    optimizer: GradientDescent = field(metadata=_OPTIMIZER.metadata)
    steps: int = field(metadata=_STEPS.metadata)

    def __post_init__(self) -> None:
        for name, kinds in PARTS.items():
            if not isinstance(getattr(self, name), kinds):
                raise Refusal(name, getattr(self, name), " or ".join(kind.__name__ for kind in kinds))
        check_fields(self)
        if self.optimizer.has_schedule:
            self.optimizer.rates(self.steps)  # a schedule must fit the number of steps
        if self.sampling.small_batch and not (self.data.dimension_free and self.data.outputs == 1):
            raise Refusal(
                "small_batch",
                True,
                "False unless the data are dimension-free and have one output",
                rest=": in units of the input dimension no batch is small",
            )

    def __getstate__(self) -> dict[str, Any]:
        """A learning-rate function goes to another process as its values, as it does to a file."""
        return vars(self) | {"optimizer": self.optimizer.tabulated(self.steps)}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Problem":
        return self  # nothing about it can change

    def to_toml(self) -> str:
        """Return the problem as TOML text; a learning-rate function is written as its values."""
        document: dict[str, Any] = {"steps": self.steps}
        state = self.__getstate__()
        for name in PARTS:
            document[name] = {"type": type(state[name]).__name__} | _plain(state[name])
        return tomli_w.dumps(document)

    @classmethod
    def from_toml(cls, text: str) -> "Problem":
        """Read a problem from TOML text such as ``to_toml`` writes; every word must be known."""
        return cls.from_dict(tomllib.loads(text))

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "Problem":
        """Build a problem from nested dictionaries, as read from TOML."""
        _known("the problem", document, [*PARTS, "steps"])
        missing = [name for name in [*PARTS, "steps"] if name not in document]
        if missing:
            raise ValueError(f"the problem must have {', '.join([*PARTS, 'steps'])}; missing: {', '.join(missing)}")
        parts = {name: _part(name, document[name], kinds) for name, kinds in PARTS.items()}
        return cls(**parts, steps=document["steps"])

    def save(self, path: str | Path) -> None:
        """Write the problem to a TOML file."""
        write_atomically(path, lambda temporary: temporary.write_text(self.to_toml()))

    @classmethod
    def load(cls, path: str | Path) -> "Problem":
        """Read a problem from a TOML file."""
        try:
            return cls.from_toml(Path(path).read_text())
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path} is not valid TOML: {error}") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


PARTS: dict[str, tuple[type, ...]] = {name: about.kinds for name, about in parts_of(Problem).items()}
"""The kinds that each part of a problem may take; the first is the default in a TOML file."""


def _plain(part: Any) -> dict[str, Any]:
    """Fields of a part that TOML can hold; absent options are left out."""
    values = {each.name: getattr(part, each.name) for each in described(part)}
    return {name: value for name, value in values.items() if value is not None}


def _part(name: str, table: Any, kinds: tuple[type, ...]) -> Any:
    if not isinstance(table, dict):
        raise Refusal(name, table, "a table")
    by_name = {kind.__name__: kind for kind in kinds}
    kind = by_name[checks.word(f"{name}.type", table.get("type", kinds[0].__name__), list(by_name))]
    _known(name, table, ["type", *(each.name for each in described(kind))])
    try:
        return kind(**{key: value for key, value in table.items() if key != "type"})
    except TypeError as error:  # a required field is missing; the class's own message names it
        raise ValueError(f"{name}: {str(error).removeprefix(kind.__name__ + '.__init__() ')}") from None


def _known(where: str, table: dict[str, Any], allowed: list[str]) -> None:
    for key in table:
        if key not in allowed:
            text = f"{key!r} is not known in {where}; allowed: {', '.join(allowed)}"
            raise Refusal(key, table[key], ", ".join(allowed), text=text)
