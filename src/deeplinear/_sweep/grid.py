"""The grid of a sweep: fields of a problem, and their values."""

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.refusal import Refusal
from deeplinear._core.words import INFINITE
from deeplinear._problem.edit import find_field, short_name
from deeplinear._problem.problem import Problem
from deeplinear._rules.layers import Layers
from deeplinear._rules.schedules import Schedule


@dataclass(frozen=True)
class Axis:
    """One field of a problem and the values it takes, as plain Python values."""

    field: str
    values: tuple[Any, ...]

    @property
    def name(self) -> str:
        """Short name of the field, which is the name of its dimension."""
        return short_name(self.field)

    @property
    def coordinate(self) -> NDArray[Any]:
        """Values as an array: numbers where all are numbers (infinite width is ``inf``), words where not.

        Examples
        --------
        >>> Axis("network.width", (1, 2.5, "infinite")).coordinate
        array([1. , 2.5, inf])
        >>> Axis("network.depth", (2, 4)).coordinate
        array([2, 4])
        >>> Axis("network.width", ([1, 2], [2, 1])).coordinate
        array(['[1, 2]', '[2, 1]'], dtype='<U6')
        """
        values = [math.inf if value == INFINITE else value for value in self.values]
        if all(isinstance(value, bool) for value in values) or all(isinstance(value, Real) for value in values):
            return np.array(values)
        return np.array([value if isinstance(value, str) else json.dumps(value) for value in self.values])


def read_grid(problem: Problem, grid: Any) -> tuple[Axis, ...]:
    """Check a mapping from fields to values and return its axes, in the same order.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=2, width=1.0), dl.GradientDescent(0.1)
    >>> problem = dl.Problem(network, dl.Isotropic(), dl.FullBatch(2.0), optimizer, steps=10)
    >>> read_grid(problem, {"lr": np.array([0.1, 0.2]), "network.width": [1, 2]})
    (Axis(field='optimizer.lr', values=(0.1, 0.2)), Axis(field='network.width', values=(1, 2)))
    """
    if not isinstance(grid, Mapping) or not grid:
        raise Refusal("grid", grid, "a mapping from one or more fields to their values")
    axes: list[Axis] = []
    for name, values in grid.items():
        try:
            field = str(find_field(problem, name))
        except ValueError as error:
            raise ValueError(f"grid: {error}") from None
        if field in [axis.field for axis in axes]:
            got = f"{field} twice, the second time as {name!r}"
            raise Refusal("grid", name, "every field once", verb="have", got=got)
        axes.append(Axis(field, _values(name, values)))
    return tuple(axes)


def points(axes: tuple[Axis, ...]) -> Iterator[dict[str, Any]]:
    """Every combination of values, the last field fastest."""
    for values in itertools.product(*(axis.values for axis in axes)):
        yield dict(zip((axis.field for axis in axes), values, strict=True))


def _values(name: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise Refusal(f"grid[{name!r}]", values, "a sequence of values")
    listed = tuple(_plain(f"grid[{name!r}][{index}]", value) for index, value in enumerate(values))
    if not listed:
        raise Refusal(f"grid[{name!r}]", [], "one value or more", verb="have", got="none")
    texts = [json.dumps(float(value) if type(value) is int else value) for value in listed]
    if len(set(texts)) < len(texts):
        raise Refusal(f"grid[{name!r}]", list(listed), "distinct values", verb="have")
    return listed


def _plain(name: str, value: Any) -> Any:
    """Return a value as a file can hold it."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Schedule | Layers):
        value = value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): _plain(name, each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(name, each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if callable(value):
        raise Refusal(name, value, "a number or one number per step", got=f"the function {value!r}")
    raise Refusal(name, value, "a number, a word, a schedule, or a list or mapping of numbers")
