"""A step of the equations as a list of operations that compiled code runs over all rows.

Starting an operation from Python takes longer than a small one takes. A step is a fixed list of operations, of which
none depends on the row but by where it reads and writes, and how much. So the equations fill a few rows of two small
problems of the same structure with arrays that write down what is done to them (``recording.py``). Places and lengths
are linear in the row and in the number of times, and follow from these few; what is not, or asks for values, is refused,
and Python fills the rows as it would without all this.
"""

import functools
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.cached import cached_property
from deeplinear._equations import products
from deeplinear._equations.coefficients import Coefficients, row_set
from deeplinear._equations.recording import PRODUCTS, NotRecordable, Operation, Recorded, recording
from deeplinear._equations.two_time import Room

Values = NDArray[Any]
Whole = NDArray[np.int64]
Name = tuple[Hashable, ...]
Equations = Any

_SMALL = {11: (1, 5, 6), 13: (6, 12)}
"""Times of the small problems, and rows that they write down.

The lengths are those of nothing else, so that strides tell the axes of an array apart. Three rows tell what is linear,
and the others are predicted.
"""

compiled = products.compiled_rows

_PAYS = 250
"""Rows that Python fills in the time that recording takes, measured: then it is recorded."""

_AS_MUCH = 8
"""Problems for which a row takes Python twice the time of one, measured."""

_MOST_PLACED = 64

_FIELDS = tuple(field.name for field in fields(Coefficients) if field.name != "structure")

_TAPED_AXES, _ROOT_AXES = 8, 6
_AXES = 5  # of an operation that runs, as in row_program.h


class _Row(NamedTuple):
    """A row that was written down: what is the same in all rows, and numbers that depend on it."""

    alike: list[Hashable]
    numbers: Whole


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
    codes
        What each does, shape (operations,).
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
    roots: Whole
    lengths: Affine
    indices: Affine
    steps: Whole

    def placed(self, strides: Whole, times: int) -> Whole:
        """Return the operations as lines of numbers, as ``row_program.h`` reads them, given the strides of all roots."""
        count, of_operand = len(self.codes), strides[self.roots]
        lines = np.zeros((count, 2 + 2 * _AXES + 3 * (3 + _AXES)), np.int64)
        lines[:, 0], lines[:, 1] = self.codes, _AXES
        lines[:, 2 : 2 + 2 * _AXES : 2], lines[:, 3 : 2 + 2 * _AXES : 2] = self.lengths.without_row(times), self.lengths.row
        operands = lines[:, 2 + 2 * _AXES :].reshape(count, 3, 3 + _AXES)
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
    def _placed(self) -> dict[Hashable, tuple[Whole, Whole, Whole]]:
        return {}

    @cached_property
    def _arrays(self) -> dict[int, "_Own"]:
        return {}

    def placed(self, strides: Whole, times: int) -> tuple[Whole, Whole, Whole]:
        """Return the three lists of operations as lines of numbers, which are remembered for equal strides."""
        key = times, strides.tobytes()
        if key not in self._placed:
            if len(self._placed) >= _MOST_PLACED:
                self._placed.clear()
            self._placed[key] = tuple(part.placed(strides, times) for part in (self.before, self.first, self.step))  # type: ignore[assignment]
        return self._placed[key]

    def arrays(self, times: int) -> "_Own":
        """Return where the arrays that operations make for themselves stand."""
        if times not in self._arrays:
            if len(self._arrays) >= _MOST_PLACED:
                self._arrays.clear()
            self._arrays[times] = _Own.of(self, times)
        return self._arrays[times]

    def batch_axis(self, root: int, shape: tuple[int, ...], batch: int) -> int:
        """Return the axis of problems of an array that is given; in the small problems it has length 1."""
        of_one = self.given[self.roots[root]]
        return next(axis for axis, (one, all) in enumerate(zip(of_one, shape, strict=True)) if one == 1 and all == batch)


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
        starts, strides = np.zeros(count, np.int64), np.zeros((count, _ROOT_AXES), np.int64)
        kinds = [name[0] for name in program.roots]
        ends = {"constant": 0, "made": 0, "row": 0}
        for root, kind in enumerate(kinds):
            if kind not in ends:
                continue
            if kind == "constant":
                lengths = np.array(program.constants[root].shape + (1,) * (_ROOT_AXES - program.constants[root].ndim))
            else:
                lengths = program.shapes[root].without_row(times) + (times - 1) * program.shapes[root].row
            strides[root] = [*np.cumprod(lengths[::-1])[::-1][1:], 1]
            starts[root] = ends[kind]
            ends[kind] += -(-int(lengths.prod()) // 8) * 8  # whole lines of the cache
        constants = np.zeros(ends["constant"])
        for root, values in program.constants.items():
            constants[starts[root] : starts[root] + values.size] = values.ravel()
        which = {kind: np.array([each == kind for each in kinds], bool) for kind in ends}
        return cls(starts, strides, which["constant"], which["made"], which["row"], constants, ends["made"], ends["row"])


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
            room = Room(times * c.structure.outputs, small.gamma0)  # type: ignore[arg-type]
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
        self.given: dict[Name, Values] = {name: array.values for name, array in given(small, room)}
        own = {_address(array) for array in self.given.values()}
        every = [*self.given.items(), *((("made", i), x) for i, x in enumerate(self.made) if _address(x) not in own)]
        self._roots = sorted(((_address(x), name, x) for name, x in every if x.size), key=lambda each: each[0])
        self._starts = [each[0] for each in self._roots]

    def root(self, view: Values) -> tuple[Name, Values, int]:
        """Return the array that a view is part of, and where it begins; an array that nobody made is a constant."""
        address = _address(view)
        at = bisect_right(self._starts, address) - 1
        if at >= 0:
            start, name, array = self._roots[at]
            if address < start + array.nbytes:
                return name, array, (address - start) // array.itemsize
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
                if name[0] == "made" and name[1] >= made.start:  # type: ignore[operator]
                    name = ("row", name[1] - made.start)  # type: ignore[operator]
                step = [_digits(s // 8, array) if n > 1 else None for s, n in zip(strides, each.shape, strict=True)]
                line += [name, *step, *[None] * (_TAPED_AXES - axes)]
                numbers += _digits(start, array)
            alike.append(tuple(line))
        for array in self.made[made]:
            alike.append(array.ndim)
            numbers += [*array.shape, *[1] * (_ROOT_AXES - array.ndim)]
        return _Row(alike, np.array(numbers, np.int64))

    def split(self) -> tuple[list[Operation], list[Operation]]:
        """Return the operations that make what later rows read of what was made before, and the others of the first row."""
        start, made = next(iter(self.rows.values()))
        early, end = self.operations[: start.start], made.start
        wanted: set[Name] = set()
        for of_row, _ in self.rows.values():
            for each in self.operations[of_row]:
                y, *read = self._names(each)
                if y[0] == "made" and y[1] < end:  # type: ignore[operator]
                    raise NotRecordable("a row changes what was there before all rows")
                wanted.update(name for name in read if name[0] == "made" and name[1] < end)  # type: ignore[operator]
        needed = self._sources(early, wanted)
        constants = {id(each) for each in needed}
        first = [each for each in self.operations[self.first] if id(each) not in constants]
        wanted = {name for each in first for name in self._names(each)[1:] if name[0] == "made"}
        known = {name for each in first for name in self._names(each)[:1]}
        of_first = self._sources(self.operations[: self.first.start], wanted - known)
        needed_too = {id(each) for each in of_first} | constants
        return [each for each in early if id(each) in needed_too], first

    def _names(self, operation: Operation) -> list[Name]:
        return [self.root(operand)[0] for operand in operation[2:]]

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
            *_affine({(0, times): each.described(parts[times][part], ends[times]) for times, each in small.items()}), names
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
            start = count * (_TAPED_AXES + 3 * _ROOT_AXES) + number * _ROOT_AXES
            shapes[names["row", number]] = Affine(*(part[start : start + _ROOT_AXES] for part in numbers))
    for name, root in names.items():
        if name[0] == "made":
            each = [[*small[times].made[name[1]].shape] for times in _SMALL]  # type: ignore[index]
            each = [shape + [1] * (_ROOT_AXES - len(shape)) for shape in each]
            by_time = (np.array(each[1]) - each[0]) // 2
            shapes[root] = Affine(np.array(each[0]) - 11 * by_time, 0 * by_time, by_time)
    constants = {root: np.frombuffer(name[2]).reshape(name[1]) for name, root in names.items() if name[0] == "constant"}  # type: ignore[call-overload,arg-type]
    sizes = {name: array.shape for name, array in small[11].given.items()}
    return Program(before, first, step, list(names), shapes, constants, sizes)


def _affine(rows: dict[tuple[int, int], _Row]) -> tuple[list[Hashable], Affine]:
    """Return what rows (row, times) have alike, and their numbers as what is linear in both; all rows must agree."""
    alike = functools.reduce(_merged, (row.alike for row in rows.values()))
    numbers = {where: row.numbers for where, row in rows.items()}
    few, many = _SMALL
    if (5, few) in numbers:
        by_row, known = numbers[6, few] - numbers[5, few], 6
    else:
        by_row, known = np.zeros_like(numbers[0, few]), 0
    by_time, rest = np.divmod(numbers[known, many] - numbers[known, few], many - few)
    found = Affine(numbers[known, few] - known * by_row - few * by_time, by_row, by_time)
    for (row, times), values in numbers.items():
        if rest.any() or (found.one + row * found.row + times * found.times != values).any():
            raise NotRecordable("places or lengths that are not linear in the row and the number of times")
    return alike, found


def _merged(some: list[Hashable], other: list[Hashable]) -> list[Hashable]:
    """Return what two rows have alike; None stands for what one of them cannot tell, the stride of a single entry."""
    if some == other:
        return some
    merged: list[Hashable] = []
    for each, too in zip(some, other, strict=False):
        pairs = list(zip(each, too, strict=False)) if isinstance(each, tuple) and isinstance(too, tuple) else [(each, too)]
        if any(a != b and a is not None and b is not None for a, b in pairs):
            raise NotRecordable("operations that depend on the row")
        merged.append(tuple(b if a is None else a for a, b in pairs) if isinstance(each, tuple) else each)
    if len(some) != len(other):
        raise NotRecordable("operations that depend on the row")
    return merged


def _operations(alike: list[Hashable], numbers: Affine, names: dict[Name, int]) -> Operations:
    """Return operations as arrays; axes of length 1 are left out, and roots get numbers."""
    lines = [line for line in alike if isinstance(line, tuple)]
    count, width = len(lines), _TAPED_AXES + 3 * _ROOT_AXES
    every = [part[: count * width].reshape(count, width) for part in numbers]
    lengths = np.stack([part[:, :_TAPED_AXES] for part in every])
    lengths_kept = np.zeros((3, count, _AXES), np.int64)
    lengths_kept[0] = 1
    steps = np.zeros((count, 3, _AXES, _ROOT_AXES), np.int64)
    roots = np.zeros((count, 3), np.int64)
    for number, line in enumerate(lines):
        last = line[1] - 1 if line[0] in PRODUCTS else None  # type: ignore[operator]
        kept = [axis for axis in range(_TAPED_AXES) if axis == last or lengths[:, number, axis].tolist() != [1, 0, 0]]
        if len(kept) > _AXES:
            raise NotRecordable(f"an operation over {len(kept)} axes")
        target = slice(_AXES - len(kept), _AXES)
        lengths_kept[:, number, target] = lengths[:, number, kept]
        for operand in range(3):
            name, *each = line[2 + operand * (1 + _TAPED_AXES) : 2 + (operand + 1) * (1 + _TAPED_AXES)]
            roots[number, operand] = names.setdefault(name, len(names))  # type: ignore[arg-type]
            if kept:
                steps[number, operand, target] = [each[axis] or (0,) * _ROOT_AXES for axis in kept]
    indices = [part[:, _TAPED_AXES:].reshape(count, 3, _ROOT_AXES) for part in every]
    return Operations(np.array([line[0] for line in lines], np.int64), roots, Affine(*lengths_kept), Affine(*indices), steps)


class Steps:
    """A program at work on the equations of a batch of problems."""

    def __init__(self, program: Program, c: Coefficients, room: Room) -> None:
        times, kind = room.size // c.structure.outputs, c.gamma0.dtype
        arrays = dict(given(c, room))
        found = {root: arrays[name] for root, name in enumerate(program.roots) if name in arrays}
        own = program.arrays(times)
        strides = own.strides.copy()
        for root, array in found.items():
            strides[root, : array.ndim] = [stride // kind.itemsize for stride in array.strides]
        before, self._first, self._lines = program.placed(strides, times)
        # What problems make in each row has one place for all of them, as one follows the other.
        constants, kept = own.constants.astype(kind), np.empty((c.batch, own.kept), kind)
        self._memory = constants, kept, np.empty(own.spent, kind), found
        per_problem = np.zeros(len(strides), np.intp)
        at = np.zeros(len(strides), np.intp)
        for which, memory in zip((own.is_constant, own.is_kept, own.is_spent), self._memory, strict=False):
            at[which] = _address(memory) + own.starts[which] * kind.itemsize
        per_problem[own.is_kept] = kept.strides[0]
        for root, array in found.items():
            at[root] = _address(array)
            per_problem[root] = array.strides[program.batch_axis(root, array.shape, c.batch)]
        self._pointers = at + per_problem * np.arange(c.batch)[:, None]
        self._is_complex, self._block = kind.kind == "c", products.SETS * c.structure.outputs
        self._run(before, 0, 1)

    def __call__(self, start: int, stop: int) -> None:
        """Fill the rows of all times from start to stop."""
        if start == 0:
            self._run(self._first, 0, 1)
        self._run(self._lines, max(start, 1), stop)

    def _run(self, lines: Whole, start: int, stop: int) -> None:
        compiled.run_program(lines, self._pointers, start, stop, self._block, self._is_complex)


class _Known:
    """What is known of the steps of one structure."""

    def __init__(self) -> None:
        self.program: Program | None = None
        self.is_refused = False
        self.rows = 0.0  # that Python has filled


_known: dict[Hashable, _Known] = {}


class Filler:
    """Fills the rows of equations one time after the other, by a program once it pays to record one.

    Parameters
    ----------
    equations
        What is filled.
    fill
        Fills rows of them.
    make
        Makes equations like these of recorded coefficients in a room; None if their steps are not to be recorded.
    """

    def __init__(
        self,
        equations: Equations,
        fill: Callable[[slice], None],
        make: Callable[[Coefficients, Room], Equations] | None,
    ) -> None:
        self._equations, self._fill, self._make = equations, fill, make
        c = equations.c
        self._weight = 1.0 + c.batch / _AS_MUCH
        self._steps: Steps | None = None
        may = make is not None and compiled is not None and isinstance(c.gamma0, np.ndarray) and _may_be_recorded(c)
        self._known = _known.setdefault((make, *_structure_of(c)), _Known()) if may else None

    def __call__(self, start: int, stop: int) -> None:
        """Fill the rows of all times from start to stop."""
        for time in range(start, stop):
            if self._known is not None and self._has_steps(self._known):
                assert self._steps is not None
                self._steps(time, stop)
                return
            self._fill(row_set(self._equations.c, time))
            if self._known is not None:
                self._known.rows += self._weight

    def _has_steps(self, known: _Known) -> bool:
        if self._steps is None and known.program is None and not known.is_refused and known.rows >= _PAYS:
            assert self._make is not None
            try:
                known.program = recorded(self._equations.c, self._make)
            except NotRecordable:
                known.is_refused = True
        if self._steps is None and known.program is not None:
            self._steps = Steps(known.program, self._equations.c, self._equations.room)
        return self._steps is not None


def _structure_of(c: Coefficients) -> tuple[Hashable, ...]:
    """Return what the steps of two batches must share to be the same operations."""
    s = c.structure
    shapes = tuple(
        (name, tuple("times" if by_time and n == s.steps > 1 else n for n in array.shape[1:]))
        for name, array, by_time in _coefficients(c)
    )
    numbers = (s.depth, s.outputs, s.modes, s.skip, s.centered, s.decays, s.groups, s.own_noise, s.measures_gradients)
    return *numbers, s.sets.reused, s.sets.subsampled, c.is_isotropic, shapes


def _may_be_recorded(c: Coefficients) -> bool:
    """Return whether steps may be alike: without phases, batches that several rows see, nodes and matrices of weights."""
    s = c.structure
    return not (s.depth_nodes or s.sets.sets or s.sets.tasks or s.sets.twice or any(rule.orthogonal for rule in s.rules))


def given(c: Coefficients, room: Room) -> Iterator[tuple[Name, Any]]:
    """Yield what a step finds there and leaves behind, by name: coefficients, functions of two times and of one."""
    yield from ((name, array) for name, array, _ in _coefficients(c))
    yield from ((("two_time", i), function.matrix) for i, function in enumerate(room.two_time))
    yield from ((("series", i), series.array) for i, series in enumerate(room.series_of_time))


def _coefficients(c: Coefficients) -> Iterator[tuple[Name, Any, bool]]:
    """Yield the arrays of coefficients by name, with whether their second axis may be that of times."""
    for name in _FIELDS:
        value = getattr(c, name)
        if isinstance(value, tuple):
            yield from (((name, i), each, False) for i, each in enumerate(value) if each is not None)
        elif value is not None:
            yield (name,), value, name in ("sigma", "reuse", "subsampling")


def _with_times(c: Coefficients, times: int) -> Coefficients:
    """Return recorded coefficients of one problem with so many times."""
    found: dict[str, Any] = {"scale": None, "structure": replace(c.structure, steps=times)}
    found |= {name: [None] * len(getattr(c, name)) for name in _FIELDS if isinstance(getattr(c, name), tuple)}
    for name, array, by_time in _coefficients(c):
        shape = [1, *array.shape[1:]]
        if by_time and shape[1] > 1:
            shape[1] = times
        recorded = Recorded(np.zeros(shape))
        if len(name) > 1:
            found[name[0]][name[1]] = recorded  # type: ignore[index]
        else:
            found[name[0]] = recorded  # type: ignore[index]
    made = Coefficients(**{name: tuple(each) if isinstance(each, list) else each for name, each in found.items()})
    vars(made)["is_isotropic"] = c.is_isotropic
    return made


def _address(array: Values) -> int:
    return int(array.__array_interface__["data"][0])


def _digits(number: int, array: Values) -> tuple[int, ...]:
    """Return a distance between entries of a whole array by its axes."""
    found = [0] * _ROOT_AXES
    for axis, (length, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        if length > 1:
            found[axis], number = divmod(number, stride // array.itemsize)
    if number:
        raise NotRecordable("a place that is none of its array")
    return tuple(found)
