"""Free parameters of a fit: how a number becomes a field of every problem, and how losses change with it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.dataset import LOSSES
from deeplinear._core.refusal import Refusal
from deeplinear._problem.edit import field_names, get_field, replace
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import with_rate
from deeplinear._rules.series import is_constant
from deeplinear._solvers.choose import Choice
from deeplinear._theory.curves import Curve, curves
from deeplinear._theory.sensitivity import CONTINUOUS, derivatives

Array = NDArray[np.float64]

_CHOICE = Choice(tolerance=1e-5, only=("panels", "condensed", "dense"), patience=math.inf)
"""Long runs are solved by panels, or with a condensed past, more accurately than any network is known."""

EXPONENTS = ("capacity", "source")
"""Fields of a power law, whose modes are found by a quadrature that takes no complex numbers."""

_DIFFERENCE = 1e-3
"""Relative step of differences with respect to these: the quadrature is right to 1e-7, differences then to 1e-4."""

_FROM_ZERO = ("noise", "weight_decay", "momentum", "beta2", "beta", "rho", "branch")
"""Fields that may be zero, and are varied as they are; all others are varied by factors."""

_FRACTIONS = ("momentum", "beta2", "beta")
"""Fields that stay below 1."""

_START = 0.1
"""Where a field starts that is zero, at which losses may not depend on it."""


@dataclass(frozen=True)
class Parameter:
    """A free field.

    Attributes
    ----------
    name
        Of the field.
    is_factor
        Whether a common factor is varied, because problems, layers or steps have different values.
    start
        Its value to begin with.
    """

    name: str
    is_factor: bool
    start: float

    @classmethod
    def of(cls, problems: Sequence[Problem], name: str) -> "Parameter":
        """Take the value that all problems share, or a factor of 1 where they differ."""
        for problem in problems:
            allowed = [each for each in field_names(problem) if each in (*CONTINUOUS, *EXPONENTS)]
            if name not in allowed:
                raise Refusal("free", name, f"among {', '.join(allowed)} for this problem")
        values = [get_field(problem, name) for problem in problems]
        if any(value is None or isinstance(value, str) for value in values):
            raise Refusal("free", name, "a field with a number", got=f"{name} = {values[0]!r}")
        if not all(isinstance(value, float) and value == values[0] for value in values):
            return cls(name, True, 1.0)
        return cls(name, False, values[0] or _START)

    @property
    def is_log(self) -> bool:
        """Whether it is varied by factors."""
        return self.name not in _FROM_ZERO or self.is_factor

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which the number is that is varied."""
        if self.is_log:
            return -np.inf, np.inf
        return 0.0, 1.0 - 1e-6 if self.name in _FRACTIONS else np.inf

    def value(self, varied: float) -> float:
        """Return the value for a number that is varied."""
        return math.exp(varied) if self.is_log else varied

    @property
    def varied_start(self) -> float:
        """Where the number begins that is varied."""
        return math.log(self.start) if self.is_log else self.start

    def times(self, factor: float) -> float:
        """Return the number that is varied for a multiple of the start."""
        value = min(self.start * factor, 0.99) if self.name in _FRACTIONS else self.start * factor
        return math.log(value) if self.is_log else value

    def put(self, problem: Problem, value: float) -> Problem:
        """Return a problem with this value, or with its own times this factor."""
        if not self.is_factor:
            return replace(problem, {self.name: value})
        if self.name == "lr":
            own = get_field(problem, "lr")
            return with_rate(problem, value * own if isinstance(own, float) else value)
        return replace(problem, {self.name: _times(get_field(problem, self.name), value)})

    def scale(self, problem: Problem, value: float) -> float:
        """Derivative of the field that ``derivatives`` varies with respect to the number that is varied here."""
        if not self.is_factor:
            return value if self.is_log else 1.0
        own = get_field(problem, self.name)  # which has the factor already
        return own if isinstance(own, float) else 1.0


def _times(own: Any, factor: float) -> Any:
    if isinstance(own, tuple):
        return tuple(factor * each for each in own)
    if not is_constant(own):
        raise Refusal("free", own, "a field with numbers", got="a schedule")
    return factor * own


def losses_of(problems: Sequence[Problem]) -> list[Curve]:
    """Return the losses of problems."""
    return curves(problems, _CHOICE)


def losses_and_slopes(problems: Sequence[Problem], free: Sequence[Parameter], values: Array) -> list[list[Any]]:
    """Return, for each problem, its losses and their derivatives with respect to what is varied.

    Each entry has a ``Curve``, and one more for each parameter.
    """
    exact = [(index, each) for index, each in enumerate(free) if each.name not in EXPONENTS]
    points = [(problem, each.name) for problem in problems for _, each in exact]
    solved = iter(derivatives(points, choice=_CHOICE))
    found: list[list[Any]] = []
    for problem in problems:
        slopes: list[Any] = [None] * len(free)
        value = None
        for index, each in exact:
            derivative = next(solved)
            value, slopes[index] = derivative.value, _scaled(derivative.slope, each.scale(problem, values[index]))
        for index, each in enumerate(free):
            if each.name in EXPONENTS:
                slopes[index] = _difference(problem, each)
        found.append([value if value is not None else curves([problem], _CHOICE)[0], *slopes])
    return found


def _scaled(curve: Curve, factor: float) -> Curve:
    return Curve(curve.axis, factor * curve.test_loss, factor * curve.train_loss, curve.diverged_at)


def _difference(problem: Problem, each: Parameter) -> Curve:
    """Derivative with respect to the logarithm of an exponent, by a central difference."""
    own = get_field(problem, each.name)
    low, high = curves([replace(problem, {each.name: own * (1 + side * _DIFFERENCE)}) for side in (-1, 1)], _CHOICE)
    test, train = ((getattr(high, name) - getattr(low, name)) / (2 * _DIFFERENCE) for name in LOSSES)
    return Curve(low.axis, test, train, low.diverged_at)
