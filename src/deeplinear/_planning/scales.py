"""Fields that may change from step to step, as free numbers: one for each step, of which all values are allowed.

Learning rates are positive, so their logarithm is free. Momentum is between 0 and 1, so the logarithm of its odds
m / (1 - m) is. Weight decay may be zero, so the logarithm of a little more than it is free. Batches are positive and
use up a number of examples between them, so their logarithm is free up to a common factor.
"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deeplinear._problem.problem import Problem

Array = NDArray[np.float64]


class Scale:
    """A field whose logarithm is free: the learning rate."""

    def moved(self, base: Array, change: Array) -> Array:
        """Return the values after a change of the free numbers, both of shape (steps,)."""
        return base * np.exp(change)

    def directions(self, values: Array, along: Array) -> Array:
        """Return the change of the values per unit along directions of the free numbers, both of shape (n, steps)."""
        return values * along

    def scaled(self, values: Array, factor: float) -> Array:
        """Return values that are higher, or lower, by a factor."""
        return values * factor


class Odds(Scale):
    """A field between 0 and 1: the logarithm of its odds is free."""

    def moved(self, base: Array, change: Array) -> Array:
        """Return the values after a change of the free numbers."""
        return self.scaled(base, np.exp(change))

    def directions(self, values: Array, along: Array) -> Array:
        """Return the change of the values per unit along directions."""
        return values * (1.0 - values) * along

    def scaled(self, values: Array, factor: float | Array) -> Array:
        """Return values whose odds are multiplied by a factor."""
        return factor * values / (1.0 + (factor - 1.0) * values)


class Offset(Scale):
    """A field that may be zero: the logarithm of what is an offset above it is free."""

    offset: ClassVar[float] = 0.01

    def moved(self, base: Array, change: Array) -> Array:
        """Return the values after a change of the free numbers; none is below zero."""
        return np.maximum((base + self.offset) * np.exp(change) - self.offset, 0.0)

    def directions(self, values: Array, along: Array) -> Array:
        """Return the change of the values per unit along directions."""
        return (values + self.offset) * along


class Shared(Scale):
    """A field whose sum over all steps but the last, which has no effect, is held."""

    def moved(self, base: Array, change: Array) -> Array:
        """Return the values after a change of the free numbers."""
        values: Array = base * np.exp(change - change.max())
        factor = float(base[:-1].sum() / values[:-1].sum())
        return values * factor

    def directions(self, values: Array, along: Array) -> Array:
        """Return the change of the values per unit along directions."""
        mean: Array = along[:, :-1] @ values[:-1] / values[:-1].sum()
        moved: Array = values * (along - mean[:, None])
        return moved


SCALES: dict[str, Scale] = {"lr": Scale(), "momentum": Odds(), "weight_decay": Offset(), "batch": Shared()}
"""What can have a best schedule."""


def with_schedules(problem: Problem) -> list[str]:
    """Return the fields of a problem that can have a best schedule.

    Batches can where they are fresh, so that examples are what they share; a data set can be drawn from without end.
    """
    fields = {"lr": True, **{name: name in problem.optimizer.series for name in ("momentum", "weight_decay")}}
    fields["batch"] = problem.sampling.fresh and problem.sampling.subsamples
    return [name for name, is_one in fields.items() if is_one]


def values_of(problem: Problem, name: str) -> Array:
    """Return the values of a field at every step, shape (steps,)."""
    if name == "batch":
        batches: Any = problem.sampling
        return np.array(batches.batches(problem.steps), float)
    series = {"lr": "rates", "momentum": "momenta", "weight_decay": "decays"}[name]
    return np.array(getattr(problem.optimizer, series)(problem.steps), float)
