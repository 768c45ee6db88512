"""Writes down the operations of a step.

The equations fill a few rows of two small problems with arrays that write down what is done to them (``recording.py``).
Places and lengths are linear in the row and in the number of times, and follow from these few. What is not, or depends
on values, is refused with ``NotRecordable``, and Python fills the rows as it would without all this.
"""

import functools
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from deeplinear._equations.coefficients import Coefficients, row_set
from deeplinear._equations.program import (
    AXES,
    BY_TIME,
    ROOT_AXES,
    Affine,
    Name,
    Operations,
    Program,
    Values,
    Whole,
    coefficient_arrays,
    given,
)
from deeplinear._equations.recording import PRODUCTS, NotRecordable, Operation, Recorded, recording
from deeplinear._equations.two_time import Room

Equations = Any
"""Whatever has ``fill``, which fills rows."""

_SMALL = {11: (1, 6), 13: (6, 12)}
"""Times of the small problems, and rows that they write down.

The lengths are those of nothing else, so that strides tell the axes of an array apart. Three rows tell what is linear,
and the last one is predicted.
"""

_TAPED_AXES = 8


class _Row(NamedTuple):
    """A row that was written down: what is the same in all rows, and numbers that depend on it."""

    alike: list[Hashable]
    numbers: Whole


class _Small:
    """A problem with a few times, whose equations write down what they do.

    Attributes
    ----------
    operations, made
        All operations, and all arrays that they made.
    rows
        Of each row that is asked for, where its operations start and stop, and where the arrays that they made.
    """

    def __init__(self, c: Coefficients, times: int, make: Callable[[Coefficients, Room], Equations]) -> None:
        with recording() as tape:
            small = _with_times(c, times)
            room = Room(times * c.structure.outputs, small.gamma0)
            equations = make(small, room)
            start = len(tape.operations)
            equations.fill(row_set(small, 0))
            self.first = slice(start, len(tape.operations))
            self.rows: dict[int, tuple[slice, slice]] = {}
            for row in _SMALL[times]:
                start, made = len(tape.operations), len(tape.made)
                equations.fill(row_set(small, row))
                self.rows[row] = slice(start, len(tape.operations)), slice(made, len(tape.made))
        self.operations, self.made = tape.operations, tape.made
        self._names_of: dict[int, list[Name]] = {}
        self.given: dict[Name, Values] = {name: array.values for name, array in given(small, room)}
        self._roots = [(("made", number), array) for number, array in enumerate(self.made) if array.size]
        self._starts = [array.item(0) for _, array in self._roots]
        for name, array in self.given.items():
            if array.size:
                self._roots[bisect_right(self._starts, array.item(0)) - 1] = name, array

    def root(self, view: Values) -> tuple[Name, Values, int]:
        """Return the array that a view is part of, and where it begins."""
        if view.dtype.kind == "i":
            entry = view.item(0)
            at = bisect_right(self._starts, entry) - 1
            return *self._roots[at], entry - self._starts[at]
        core = np.ascontiguousarray(view[tuple(slice(None) if step else slice(1) for step in view.strides)])
        return ("constant", core.shape, core.tobytes()), core, 0

    def described(self, operations: Sequence[Operation], made: slice) -> _Row:
        """Return what operations do; arrays made in their own row go by their number in it."""
        alike: list[Hashable] = []
        numbers: list[int] = []
        for each in operations:
            axes = len(each.shape)
            if axes > _TAPED_AXES:
                raise NotRecordable(f"an operation over {axes} axes")
            numbers += [*each.shape, *[1] * (_TAPED_AXES - axes)]
            line: list[Hashable] = [each.code, axes]
            for place, operand in enumerate(each[2:]):
                strides = operand.strides
                if place == 2 and each.code in PRODUCTS:  # whole matrices: after the row comes the stride between rows
                    strides = strides[:-1]
                name, array, start = self.root(operand)
                if name[0] == "made" and name[1] >= made.start:
                    name = ("row", name[1] - made.start)
                step = [_digits(s // 8, array) if n > 1 else None for s, n in zip(strides, each.shape, strict=True)]
                line += [name, *step, *[None] * (_TAPED_AXES - axes)]
                numbers += _digits(start, array)
            alike.append(tuple(line))
        for array in self.made[made]:
            alike.append(array.ndim)
            numbers += [*array.shape, *[1] * (ROOT_AXES - array.ndim)]
        return _Row(alike, np.array(numbers, np.int64))

    def split(self) -> tuple[list[Operation], list[Operation]]:
        """Return the operations that make constants, and those of the first row that do not."""
        start, made = next(iter(self.rows.values()))
        early, end = self.operations[: start.start], made.start
        wanted: set[Name] = set()
        for of_row, _ in self.rows.values():
            for each in self.operations[of_row]:
                y, *read = self._names(each)
                if y[0] == "made" and y[1] < end:
                    raise NotRecordable("a row changes what was there before all rows")
                wanted.update(name for name in read if name[0] == "made" and name[1] < end)
        needed = self._sources(early, wanted)
        constants = {id(each) for each in needed}
        first = [each for each in self.operations[self.first] if id(each) not in constants]
        wanted = {name for each in first for name in self._names(each)[1:] if name[0] == "made"}
        wanted -= {self._names(each)[0] for each in first}
        constants |= {id(each) for each in self._sources(self.operations[: self.first.start], wanted)}
        return [each for each in early if id(each) in constants], first

    def _names(self, operation: Operation) -> list[Name]:
        if (known := self._names_of.get(id(operation))) is None:
            known = self._names_of[id(operation)] = [self.root(operand)[0] for operand in operation[2:]]
        return known

    def _sources(self, operations: Sequence[Operation], wanted: set[Name]) -> list[Operation]:
        """Return the operations that make some arrays, and what these are made of."""
        wanted, needed = set(wanted), []
        for each in reversed(operations):
            y, *read = self._names(each)
            if y in wanted:
                needed.append(each)
                if any(name[0] in ("two_time", "series") for name in read):
                    raise NotRecordable("a constant is made of what rows fill")
                wanted.update(name for name in read if name[0] == "made")
        return needed[::-1]


def recorded(c: Coefficients, make: Callable[[Coefficients, Room], Equations]) -> Program:
    """Return the program of a step.

    Parameters
    ----------
    c
        Coefficients of any problem of the structure.
    make
        Makes its equations in a room.

    Raises
    ------
    NotRecordable
        If a step is not a fixed list of operations.
    """
    small = {times: _Small(c, times, make) for times in _SMALL}
    rows = {
        (row, times): each.described(each.operations[of_row], made)
        for times, each in small.items()
        for row, (of_row, made) in each.rows.items()
    }
    parts = {times: each.split() for times, each in small.items()}
    ends = {times: slice(len(each.made), None) for times, each in small.items()}
    names: dict[Name, int] = {}
    before, first = (
        _operations(
            *_affine({(0, times): each.described(parts[times][part], ends[times]) for times, each in small.items()}),
            names,
        )
        for part in range(2)
    )
    shapes: dict[int, Affine] = {}
    of_row = _affine(rows)
    step = _operations(*of_row, names)
    alike, numbers = of_row
    count = sum(isinstance(line, tuple) for line in alike)
    for number in range(len(alike) - count):
        if ("row", number) in names:
            start = count * (_TAPED_AXES + 3 * ROOT_AXES) + number * ROOT_AXES
            shapes[names["row", number]] = Affine(*(part[start : start + ROOT_AXES] for part in numbers))
    for name, root in names.items():
        if name[0] == "made":
            each = [[*small[times].made[name[1]].shape] for times in _SMALL]
            each = [shape + [1] * (ROOT_AXES - len(shape)) for shape in each]
            by_time = (np.array(each[1]) - each[0]) // 2
            shapes[root] = Affine(np.array(each[0]) - 11 * by_time, 0 * by_time, by_time)
    constants = {root: np.frombuffer(name[2]).reshape(name[1]) for name, root in names.items() if name[0] == "constant"}
    sizes = {name: array.shape for name, array in small[11].given.items()}
    return Program(before, first, step, list(names), shapes, constants, sizes)


def _affine(rows: dict[tuple[int, int], _Row]) -> tuple[list[Hashable], Affine]:
    """Return what rows (row, times) have alike, and their numbers as what is linear in both; all rows must agree."""
    alike = functools.reduce(_merged, (row.alike for row in rows.values()))
    numbers = {where: row.numbers for where, row in rows.items()}
    few, many = _SMALL
    first, known = min(rows)[0], 6 if (6, few) in numbers else 0
    by_row = (numbers[known, few] - numbers[first, few]) // max(known - first, 1)
    by_time = (numbers[known, many] - numbers[known, few]) // (many - few)
    found = Affine(numbers[known, few] - known * by_row - few * by_time, by_row, by_time)
    for (row, times), values in numbers.items():
        if (found.one + row * found.row + times * found.times != values).any():
            raise NotRecordable("places or lengths that are not linear in the row and the number of times")
    return alike, found


def _merged(some: list[Hashable], other: list[Hashable]) -> list[Hashable]:
    """Return what two rows have alike; None stands for what one of them cannot tell, the stride of a single entry."""
    if some == other:
        return some
    merged: list[Hashable] = []
    for each, too in zip(some, other, strict=False):
        pairs = (
            list(zip(each, too, strict=False)) if isinstance(each, tuple) and isinstance(too, tuple) else [(each, too)]
        )
        if any(a != b and a is not None and b is not None for a, b in pairs):
            raise NotRecordable("operations that depend on the row")
        merged.append(tuple(b if a is None else a for a, b in pairs) if isinstance(each, tuple) else each)
    if len(some) != len(other):
        raise NotRecordable("operations that depend on the row")
    return merged


def _operations(alike: list[Hashable], numbers: Affine, names: dict[Name, int]) -> Operations:
    """Return operations as arrays; axes of length 1 are left out, and roots get numbers."""
    lines = [line for line in alike if isinstance(line, tuple)]
    count, width = len(lines), _TAPED_AXES + 3 * ROOT_AXES
    every = [part[: count * width].reshape(count, width) for part in numbers]
    lengths = np.stack([part[:, :_TAPED_AXES] for part in every])
    lengths_kept = np.zeros((3, count, AXES), np.int64)
    lengths_kept[0] = 1
    steps = np.zeros((count, 3, AXES, ROOT_AXES), np.int64)
    roots, axes = np.zeros((count, 3), np.int64), np.ones(count, np.int64)
    for number, line in enumerate(lines):
        last = line[1] - 1 if line[0] in PRODUCTS else None
        kept = [axis for axis in range(_TAPED_AXES) if axis == last or lengths[:, number, axis].tolist() != [1, 0, 0]]
        if len(kept) > AXES:
            raise NotRecordable(f"an operation over {len(kept)} axes")
        axes[number] = max(len(kept), 1)
        target = slice(AXES - len(kept), AXES)
        lengths_kept[:, number, target] = lengths[:, number, kept]
        for operand in range(3):
            name, *each = line[2 + operand * (1 + _TAPED_AXES) : 2 + (operand + 1) * (1 + _TAPED_AXES)]
            roots[number, operand] = names.setdefault(name, len(names))
            if kept:
                steps[number, operand, target] = [each[axis] or (0,) * ROOT_AXES for axis in kept]
    indices = [part[:, _TAPED_AXES:].reshape(count, 3, ROOT_AXES) for part in every]
    codes = np.array([line[0] for line in lines], np.int64)
    return Operations(codes, axes, roots, Affine(*lengths_kept), Affine(*indices), steps)


def _with_times(c: Coefficients, times: int) -> Coefficients:
    """Return recorded coefficients of one problem with so many times."""

    def small(name: Name, array: Values) -> Any:
        shape = [1, *array.shape[1:]]
        if name[0] in BY_TIME and shape[1] > 1:
            shape[1] = times
        return Recorded.of_shape(shape)

    arrays = {name: small(name, array) for name, array in coefficient_arrays(c)}
    found: dict[str, Any] = {}
    for field in fields(c):
        value = getattr(c, field.name)
        if isinstance(value, tuple):
            found[field.name] = tuple(arrays.get((field.name, i)) for i in range(len(value)))
        else:
            found[field.name] = arrays.get((field.name,))
    made = Coefficients(**found | {"structure": replace(c.structure, steps=times)})
    vars(made)["is_isotropic"] = c.is_isotropic  # which looks at values
    return made


def _digits(number: int, array: Values) -> tuple[int, ...]:
    """Return a distance between entries of a whole array by its axes."""
    found = [0] * ROOT_AXES
    for axis, (length, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        if length > 1:
            found[axis], number = divmod(number, stride // array.itemsize)
    if number:
        raise NotRecordable("a place that is none of its array")
    return tuple(found)
