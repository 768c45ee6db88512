"""Arrays that write down what is done to them, so that a step of the equations becomes a list of operations.

No numbers are computed: whoever asks for a value is refused with ``NotRecordable``.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]


class Code(IntEnum):
    """Operations, as ``row_program.h`` knows them; y is written, x and m are read."""

    COPY = 0  # y = x
    ADD = 1  # y = x + m
    SUBTRACT = 2  # y = x - m
    MULTIPLY = 3  # y = x m
    DIVIDE = 4  # y = x / m
    ACCUMULATE = 5  # y += x m
    CHOOSE = 6  # y = x where m is not zero
    DIFFERS = 7  # y = 1 where x is not m, else 0
    EQUALS = 8  # y = 1 where x is m, else 0
    TIMES_LOWER = 9  # a row y = x M with M lower triangular
    TIMES_UPPER = 10  # a row y = x M^T with M lower triangular
    TIMES_SYMMETRIC = 11  # a row y = x M with M symmetric


PRODUCTS = (Code.TIMES_LOWER, Code.TIMES_UPPER, Code.TIMES_SYMMETRIC)


class NotRecordable(Exception):
    """Something was done to a recorded array that no list of operations can do."""


class Operation(NamedTuple):
    """One operation over ``shape``; each operand is a view of that shape, but that M of a product is whole matrices."""

    code: Code
    shape: tuple[int, ...]
    y: Values
    x: Values
    m: Values


class Tape:
    """Operations in the order in which they were done.

    Attributes
    ----------
    made
        Arrays that operations, or requests for zeros, have made. Every entry has a number of its own, so that a view
        tells by its first one what it is a part of. Arrays of other numbers are constants.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.made: list[Values] = []
        self._entries = 0

    def write(self, code: Code, y: Values, x: Values, m: Values | None = None) -> None:
        """Write down an operation on views that are spread to the shape of y; nothing where that is empty."""
        if y.size:
            x = _spread(x, y.shape)
            self.operations.append(Operation(code, y.shape, y, x, x if m is None else _spread(m, y.shape)))

    def make(self, shape: Sequence[int]) -> Values:
        """Return memory for a result."""
        end = self._entries + math.prod(shape)
        made = np.arange(self._entries, end).reshape(shape)
        self._entries = end
        self.made.append(made)
        return made


def _spread(x: Values, shape: tuple[int, ...]) -> Values:
    return x if x.shape == shape else np.broadcast_to(x, shape)


_tape: ContextVar[Tape] = ContextVar("tape")


@contextmanager
def recording() -> Iterator[Tape]:
    """Write down what is done to ``Recorded`` arrays."""
    token = _tape.set(Tape())
    try:
        yield _tape.get()
    finally:
        _tape.reset(token)


class Recorded:
    """An array of which shapes and places are known, but no values."""

    device = "a tape"
    dtype = np.dtype(float)

    def __init__(self, values: Values) -> None:
        self.values = values

    @classmethod
    def of_shape(cls, shape: Sequence[int]) -> Self:
        """Return an array that is given."""
        return cls(_tape.get().make(shape))

    def __array_namespace__(self) -> Any:
        return _Library

    def __array__(self, *_: Any, **__: Any) -> Values:
        raise NotRecordable("its values were asked for")

    def __bool__(self) -> bool:
        raise NotRecordable("its values were asked for")

    def __float__(self) -> float:
        raise NotRecordable("its values were asked for")

    __array_ufunc__ = None  # NumPy leaves operations to this class

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return self.values.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.values.ndim

    @property
    def mT(self) -> "Recorded":
        """The last two axes exchanged."""
        return Recorded(self.values.mT)

    @property
    def products(self) -> Any:
        """Products of rows with whole functions of two times."""
        return _Products

    def __iter__(self) -> Iterator["Recorded"]:
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> "Recorded":
        return Recorded(_part(self.values, index))

    def __setitem__(self, index: Any, values: "Recorded | Values | float") -> None:
        place, given = _part(self.values, index), _values(values)
        if not _is_same(place, given):  # which was changed in place already
            _tape.get().write(Code.COPY, place, given)

    def reshape(self, *shape: Any) -> "Recorded":
        """Return the same entries in another shape, copied where they must be."""
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        view = self.values.reshape(wanted)
        if view.size and not np.may_share_memory(view, self.values):
            view = _copied(self.values).reshape(wanted)
        return Recorded(view)

    def sum(self, axis: int, keepdims: bool = False) -> "Recorded":
        """Sum over an axis."""
        shape = list(self.shape)
        shape[axis] = 1
        total = _tape.get().make(shape)
        _tape.get().write(Code.COPY, total, _constant(0.0))
        onto = np.broadcast_to(total, self.shape)
        _tape.get().write(Code.ACCUMULATE, onto, self.values, _constant(1.0))
        return Recorded(total if keepdims else total.squeeze(axis))

    def __neg__(self) -> "Recorded":
        return self * -1.0

    def __add__(self, other: Any) -> "Recorded":
        return _entrywise(Code.ADD, self, other)

    def __radd__(self, other: Any) -> "Recorded":
        return _entrywise(Code.ADD, other, self)

    def __sub__(self, other: Any) -> "Recorded":
        return _entrywise(Code.SUBTRACT, self, other)

    def __rsub__(self, other: Any) -> "Recorded":
        return _entrywise(Code.SUBTRACT, other, self)

    def __mul__(self, other: Any) -> "Recorded":
        return _entrywise(Code.MULTIPLY, self, other)

    def __rmul__(self, other: Any) -> "Recorded":
        return _entrywise(Code.MULTIPLY, other, self)

    def __truediv__(self, other: Any) -> "Recorded":
        return _entrywise(Code.DIVIDE, self, other)

    def __rtruediv__(self, other: Any) -> "Recorded":
        return _entrywise(Code.DIVIDE, other, self)

    def __pow__(self, power: int) -> "Recorded":
        if power != 2:
            raise NotRecordable(f"power {power}")
        return self * self

    def __iadd__(self, other: Any) -> Self:
        return self._in_place(Code.ADD, other)

    def __isub__(self, other: Any) -> Self:
        return self._in_place(Code.SUBTRACT, other)

    def __imul__(self, other: Any) -> Self:
        return self._in_place(Code.MULTIPLY, other)

    def _in_place(self, code: Code, other: Any) -> Self:
        _tape.get().write(code, self.values, self.values, _values(other))
        return self

    def __ne__(self, other: object) -> "Recorded":  # type: ignore[override]
        return _entrywise(Code.DIFFERS, self, other)

    def __eq__(self, other: object) -> "Recorded":  # type: ignore[override]
        return _entrywise(Code.EQUALS, self, other)

    __hash__ = None  # type: ignore[assignment]

    def __matmul__(self, other: "Recorded") -> "Recorded":
        x, m = self.values, _values(other)
        batch = np.broadcast_shapes(x.shape[:-2], m.shape[:-2])
        rows, inner, columns = x.shape[-2], x.shape[-1], m.shape[-1]
        y = _tape.get().make((*batch, rows, columns))
        _tape.get().write(Code.COPY, y, _constant(0.0))
        whole = (*batch, rows, inner, columns)
        _tape.get().write(
            Code.ACCUMULATE,
            np.broadcast_to(y[..., :, None, :], whole),
            np.broadcast_to(x[..., :, :, None], whole),
            np.broadcast_to(m[..., None, :, :], whole),
        )
        return Recorded(y)

    def __rmatmul__(self, other: Any) -> "Recorded":
        return Recorded(_values(other)) @ self


def _part(values: Values, index: Any) -> Values:
    part: Any = values[index]
    if not isinstance(part, np.ndarray) or (part.size and not np.may_share_memory(part, values)):
        raise NotRecordable("an index that makes no view")
    found: Values = part
    return found


def _is_same(x: Values, other: Values) -> bool:
    return x.shape == other.shape and x.strides == other.strides and (not x.size or x.item(0) == other.item(0))


def _constant(value: float) -> Values:
    return np.array(value)


def _values(x: Any) -> Values:
    if isinstance(x, Recorded):
        return x.values
    return np.asarray(x, float)  # a constant


def _entrywise(code: Code, x: Any, m: Any) -> Recorded:
    x, m = _values(x), _values(m)
    y = _tape.get().make(np.broadcast_shapes(x.shape, m.shape))
    _tape.get().write(code, y, x, m)
    return Recorded(y)


def _copied(x: Values) -> Values:
    y = _tape.get().make(x.shape)
    _tape.get().write(Code.COPY, y, x)
    return y


class _Linalg:
    """Linear algebra of recorded arrays."""

    @staticmethod
    def diagonal(x: Recorded) -> Recorded:
        return Recorded(np.linalg.diagonal(x.values))


class _Library:
    """What the equations ask of the library of their arrays, as the array API standard has it."""

    linalg = _Linalg
    float64 = np.dtype(float)

    @staticmethod
    def zeros(shape: Sequence[int], dtype: Any = None, device: Any = None) -> Recorded:
        """Zeros, which are written anew where this happens within a step."""
        made = _tape.get().make(shape)
        _tape.get().write(Code.COPY, made, _constant(0.0))
        return Recorded(made)

    @classmethod
    def zeros_like(cls, x: Recorded) -> Recorded:
        return cls.zeros(x.shape)

    @classmethod
    def ones_like(cls, x: Recorded) -> Recorded:
        made = _tape.get().make(x.shape)
        _tape.get().write(Code.COPY, made, _constant(1.0))
        return Recorded(made)

    @staticmethod
    def eye(size: int, dtype: Any = None, device: Any = None) -> Recorded:
        return Recorded(np.eye(size))  # a constant

    @staticmethod
    def asarray(x: Any, copy: bool = False, device: Any = None) -> Recorded:
        return Recorded(_copied(_values(x))) if copy else Recorded(_values(x))

    @staticmethod
    def concat(arrays: Sequence[Recorded], axis: int = 0) -> Recorded:
        values = [_values(each) for each in arrays]
        shape = list(values[0].shape)
        shape[axis] = sum(each.shape[axis] for each in values)
        made, start = _tape.get().make(shape), 0
        along = np.moveaxis(made, axis, 0)
        for each in values:
            part = np.moveaxis(along[start : start + each.shape[axis]], 0, axis)
            _tape.get().write(Code.COPY, part, each)
            start += each.shape[axis]
        return Recorded(made)

    @staticmethod
    def tile(x: Recorded, repeats: Sequence[int]) -> Recorded:
        values = x.values
        repeats = (*[1] * (values.ndim - len(repeats)), *repeats)
        apart = tuple(n for pair in zip(repeats, values.shape, strict=True) for n in pair)
        made = _tape.get().make(apart)
        _tape.get().write(Code.COPY, made, values.reshape([n for size in values.shape for n in (1, size)]))
        return Recorded(made.reshape([n * size for n, size in zip(repeats, values.shape, strict=True)]))

    @staticmethod
    def repeat(x: Recorded, count: int, axis: int) -> Recorded:
        values = np.moveaxis(x.values, axis, -1)
        made = _tape.get().make((*values.shape, count))
        _tape.get().write(Code.COPY, made, values[..., None])
        return Recorded(np.moveaxis(made.reshape(*values.shape[:-1], -1), -1, axis))

    @staticmethod
    def where(condition: Recorded, x: Recorded, m: Recorded) -> Recorded:
        shape = np.broadcast_shapes(condition.shape, _values(x).shape, _values(m).shape)
        made = _tape.get().make(shape)
        _tape.get().write(Code.COPY, made, _values(m))
        _tape.get().write(Code.CHOOSE, made, _values(x), condition.values)
        return Recorded(made)

    @staticmethod
    def moveaxis(x: Recorded, source: int, target: int) -> Recorded:
        return Recorded(np.moveaxis(x.values, source, target))

    @staticmethod
    def permute_dims(x: Recorded, axes: Sequence[int]) -> Recorded:
        return Recorded(np.transpose(x.values, axes))


class _Products:
    """Products of rows with functions of two times, as the compiled ones have them."""

    @classmethod
    def rows_times(cls, x: Recorded, lower: Recorded, e: int, block: int) -> Recorded:
        return cls._product(Code.TIMES_LOWER, x, lower, e)

    @classmethod
    def rows_times_transpose(cls, x: Recorded, lower: Recorded, e: int, block: int) -> Recorded:
        return cls._product(Code.TIMES_UPPER, x, lower, e)

    @classmethod
    def rows_times_symmetric(cls, x: Recorded, matrix: Recorded, e: int) -> Recorded:
        return cls._product(Code.TIMES_SYMMETRIC, x, matrix, e)

    @staticmethod
    def _product(code: Code, x: Recorded, matrices: Recorded, e: int) -> Recorded:
        rows, whole = x.values, matrices.values
        if rows.shape[-1] > 1 and rows.strides[-1] != rows.itemsize:
            rows = _copied(rows)
        leading = np.broadcast_shapes(rows.shape[:-2], whole.shape[:-2])
        y = _tape.get().make((*leading, rows.shape[-2], e))
        if e:
            m = np.broadcast_to(whole[..., None, :e, :e], (*y.shape[:-1], e, e))
            _tape.get().operations.append(Operation(code, y.shape, y, _spread(rows, y.shape), m))
        return Recorded(y)
