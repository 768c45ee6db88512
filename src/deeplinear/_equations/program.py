"""A step of the equations as a list of operations, and the list at work on a batch of problems.

Starting an operation from Python takes longer than a small one takes. But a step is a fixed list of operations, and the
row matters only to where they read and write, and how much. ``recorder.py`` writes the list down, and compiled code
that knows products and no physics (``row_program.h``) runs it over all rows.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import threads
from deeplinear._core.cached import cached_property
from deeplinear._equations import products
from deeplinear._equations.coefficients import Coefficients
from deeplinear._equations.two_time import Room

Values = NDArray[Any]
Whole = NDArray[np.int64]
Name = tuple[Any, ...]

AXES, ROOT_AXES = 5, 6
"""Most axes of an operation, as in ``row_program.h``, and of an array that it has parts of."""

_MOST_PLACED = 64
"""Sizes of problems for which places are remembered."""

_START, _READ, _PAYS = 4e-8, 1.5e-10, 1e-3
"""Seconds to start an operation, and to read a number of a matrix, measured; work that is worth starting a thread."""

compiled: Any = products.compiled_rows

BY_TIME = ("sigma", "reuse", "subsampling")
"""Coefficients whose second axis is that of times, unless it has length 1."""

_FIELDS = tuple(field.name for field in fields(Coefficients) if field.name != "structure")


class Affine(NamedTuple):
    """Whole numbers at row t of T times, ``one + t * row + T * times``."""

    one: Whole
    row: Whole
    times: Whole

    def without_row(self, times: int) -> Whole:
        """Return the numbers at row 0."""
        return self.one + times * self.times


@dataclass(frozen=True)
class Operations:
    """A list of operations.

    Attributes
    ----------
    codes, axes
        What each does, and over how many axes, the last ones, shape (operations,).
    roots
        Number of the root that each operand is part of, shape (operations, 3).
    lengths
        Of the axes, shape (operations, axes); 1 where there are fewer.
    indices
        Index of the first entry of an operand in its root, shape (operations, 3, axes of a root).
    steps
        How far each axis moves that index, shape (operations, 3, axes, axes of a root).
    """

    codes: Whole
    axes: Whole
    roots: Whole
    lengths: Affine
    indices: Affine
    steps: Whole

    def placed(self, strides: Whole, times: int) -> Whole:
        """Return lines of numbers, as ``row_program.h`` reads them, given the strides of all roots."""
        count, of_operand = len(self.codes), strides[self.roots]
        lines = np.zeros((count, 2 + 2 * AXES + 3 * (3 + AXES)), np.int64)
        lines[:, 0], lines[:, 1] = self.codes, self.axes
        lines[:, 2 : 2 + 2 * AXES : 2], lines[:, 3 : 2 + 2 * AXES : 2] = (
            self.lengths.without_row(times),
            self.lengths.row,
        )
        operands = lines[:, 2 + 2 * AXES :].reshape(count, 3, 3 + AXES)
        operands[..., 0] = self.roots
        operands[..., 1] = (self.indices.without_row(times) * of_operand).sum(axis=-1)
        operands[..., 2] = (self.indices.row * of_operand).sum(axis=-1)
        operands[..., 3:] = (self.steps * of_operand[:, :, None]).sum(axis=-1)
        return lines


@dataclass(frozen=True)
class Program:
    """What is done in every row.

    Attributes
    ----------
    before, first, step
        Operations that make constants, those of the first row, and those of every other.
    roots
        Names of all arrays that operations have parts of.
    shapes
        Shapes of those that the operations make for themselves, by number of root.
    constants
        Numbers that are given, by number of root.
    """

    before: Operations
    first: Operations
    step: Operations
    roots: list[Name]
    shapes: dict[int, Affine]
    constants: dict[int, Values]
    given: dict[Name, tuple[int, ...]]

    @cached_property
    def _placed(self) -> dict[Hashable, tuple[Whole, ...]]:
        return {}

    @cached_property
    def _arrays(self) -> dict[int, "_Own"]:
        return {}

    def placed(self, strides: Whole, times: int) -> tuple[Whole, ...]:
        """Return the three lists of operations as lines of numbers, which are remembered for equal strides."""
        key = times, strides.tobytes()
        if key not in self._placed:
            if len(self._placed) >= _MOST_PLACED:
                self._placed.clear()
            self._placed[key] = tuple(part.placed(strides, times) for part in (self.before, self.first, self.step))
        return self._placed[key]

    def arrays(self, times: int) -> "_Own":
        """Return where the arrays that operations make for themselves stand."""
        if times not in self._arrays:
            if len(self._arrays) >= _MOST_PLACED:
                self._arrays.clear()
            self._arrays[times] = _Own.of(self, times)
        return self._arrays[times]

    def batch_stride(self, root: int, array: Values) -> int:
        """Return the bytes between the parts of two problems in an array that is given, 0 if there is one problem.

        In the small problems the axis of problems has length 1.
        """
        of_one = self.given[self.roots[root]]
        grown = (axis for axis, (one, many) in enumerate(zip(of_one, array.shape, strict=True)) if one == 1 < many)
        return array.strides[next(grown)]


@dataclass(frozen=True)
class _Own:
    """Memory of the arrays that a program makes for itself.

    Attributes
    ----------
    starts, strides
        Place of each root in its piece of memory, and strides of its axes, in numbers.
    is_constant, is_kept, is_spent
        Which roots are constants, made before all rows, and made in every row.
    constants
        The first piece of memory.
    kept, spent
        Length of the others, for one problem.
    """

    starts: Whole
    strides: Whole
    is_constant: NDArray[np.bool_]
    is_kept: NDArray[np.bool_]
    is_spent: NDArray[np.bool_]
    constants: Values
    kept: int
    spent: int

    @classmethod
    def of(cls, program: Program, times: int) -> "_Own":
        """Place everything for problems with so many times."""
        count = len(program.roots)
        starts, strides = np.zeros(count, np.int64), np.zeros((count, ROOT_AXES), np.int64)
        kinds = [name[0] for name in program.roots]
        ends = {"constant": 0, "made": 0, "row": 0}
        for root, kind in enumerate(kinds):
            if kind not in ends:
                continue
            if kind == "constant":
                lengths = np.array(program.constants[root].shape + (1,) * (ROOT_AXES - program.constants[root].ndim))
            else:
                lengths = program.shapes[root].without_row(times) + (times - 1) * program.shapes[root].row
            strides[root] = [*np.cumprod(lengths[::-1])[::-1][1:], 1]
            starts[root] = ends[kind]
            ends[kind] += -(-int(lengths.prod()) // 8) * 8  # whole lines of the cache
        constants = np.zeros(ends["constant"])
        for root, values in program.constants.items():
            constants[starts[root] : starts[root] + values.size] = values.ravel()
        which = {kind: np.array([each == kind for each in kinds], bool) for kind in ends}
        return cls(
            starts, strides, which["constant"], which["made"], which["row"], constants, ends["made"], ends["row"]
        )


class Steps:
    """A program at work on the equations of a batch of problems."""

    def __init__(self, program: Program, c: Coefficients, room: Room) -> None:
        times, self._kind = room.size // c.structure.outputs, c.gamma0.dtype
        arrays, size = dict(given(c, room)), self._kind.itemsize
        self._given = {root: arrays[name] for root, name in enumerate(program.roots) if name in arrays}
        self._own = own = program.arrays(times)
        strides = own.strides.copy()
        for root, array in self._given.items():
            strides[root, : array.ndim] = [stride // size for stride in array.strides]
        before, self._first, self._lines = program.placed(strides, times)
        self._constants = own.constants.astype(self._kind)
        self._kept = np.empty((c.batch, own.kept), self._kind)
        self._spent = np.empty(own.spent, self._kind)  # one place for all problems, as one follows the other
        first, apart = size * own.starts, np.zeros(len(strides), np.intp)
        first[own.is_constant] += _address(self._constants)
        first[own.is_kept] += _address(self._kept)
        first[own.is_spent] += _address(self._spent)
        apart[own.is_kept] = self._kept.strides[0]
        for root, array in self._given.items():
            first[root] = _address(array)
            apart[root] = program.batch_stride(root, array) if c.batch > 1 else 0
        self._pointers = (first + apart * np.arange(c.batch)[:, None]).astype(np.intp)
        self._is_complex, self._block = self._kind.kind == "c", products.SETS * c.structure.outputs
        self._seconds = len(self._lines) * _START + room.size**2 * len(room.two_time) * _READ
        self._run(before, 0, 1)

    def __call__(self, start: int, stop: int) -> None:
        """Fill the rows of all times from start to stop."""
        if start == 0:
            self._run(self._first, 0, 1)
        self._run(self._lines, max(start, 1), stop)

    def _run(self, lines: Whole, start: int, stop: int) -> None:
        """Do operations for all problems, one after the other, on the cores that are free if that pays."""
        problems = len(self._pointers)
        if problems == 1 or problems * (stop - start) * self._seconds < _PAYS:
            compiled.run_program(lines, self._pointers, start, stop, self._block, self._is_complex)
            return
        turns = iter(range(problems))

        def take_turns() -> None:
            spent = np.empty_like(self._spent)
            pointers = self._pointers.copy()
            pointers[:, self._own.is_spent] += _address(spent) - _address(self._spent)
            for turn in turns:
                compiled.run_program(lines, pointers[turn : turn + 1], start, stop, self._block, self._is_complex)

        threads.on_free_cores(take_turns, problems)


def given(c: Coefficients, room: Room) -> Iterator[tuple[Name, Any]]:
    """Yield what a step finds there and leaves behind, by name: coefficients, functions of two times and of one."""
    yield from coefficient_arrays(c)
    yield from ((("two_time", i), function.matrix) for i, function in enumerate(room.two_time))
    yield from ((("series", i), series.array) for i, series in enumerate(room.series_of_time))


def coefficient_arrays(c: Coefficients) -> Iterator[tuple[Name, Values]]:
    """Yield the arrays of coefficients by name."""
    for name in _FIELDS:
        value = getattr(c, name)
        if isinstance(value, tuple):
            yield from (((name, i), each) for i, each in enumerate(value) if each is not None)
        elif value is not None:
            yield (name,), value


def _address(array: Values) -> int:
    return int(array.__array_interface__["data"][0])
