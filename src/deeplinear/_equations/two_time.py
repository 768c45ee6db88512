"""Functions of two times, as types that know what they are: causal or symmetric.

``function[rows]`` are rows of it up to their own time, shape (..., r, e) for rows that end before row e, and
``function[rows] = values`` fills them. What lies beyond is zero until it is filled.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, namespace, zeros
from deeplinear._time.history import Condensation


class Replaying:
    """Whether a recorded step is being replayed on a device: its ``products``, which know the row; None otherwise."""

    products: Any = None


class TwoTime:
    """A function of two times of every problem of a batch.

    Attributes
    ----------
    matrix
        Shape (..., rows, rows), a row being a pair of time and output.
    """

    def __init__(self, matrix: Array, replaying: Replaying | None = None) -> None:
        self.matrix = matrix
        self._replaying = replaying or _NOTHING

    @property
    def replayed(self) -> Any:
        """Products of a row of it while a recorded step is replayed on a device; None otherwise."""
        return self._replaying.products

    def __getitem__(self, rows: slice) -> Array:
        if (products := self._replaying.products) is not None:
            own: Array = products.take(self.matrix)
            return own
        values: Array = self.matrix[..., rows, : rows.stop]
        return values

    def __setitem__(self, rows: slice, values: Array) -> None:
        raise NotImplementedError

    def given(self, values: Array) -> "Given":
        """Return rows that stand for those of a function like this one, shape (..., r, e)."""
        return Given(values, self._replaying)

    def part(self, *index: int | slice | None) -> Self:
        """Return the function at some positions of the leading axes, which shares its memory."""
        return type(self)(self.matrix[index], self._replaying)

    def block(self, rows: slice) -> Array:
        """Values at pairs of these rows, shape (..., r, r)."""
        values: Array = self.matrix[..., rows, rows]
        return values

    def diagonal(self) -> Array:
        """Values at equal times and outputs, shape (..., rows)."""
        values: Array = namespace(self.matrix).linalg.diagonal(self.matrix)
        return values

    def clear(self, rows: slice) -> None:
        """Set rows, and the columns of the same times, to zero."""
        self.matrix[..., rows, :] = 0.0
        self.matrix[..., :, rows] = 0.0

    def condense(self, how: Condensation, end: int) -> None:
        """Let fewer rows stand for some of the first ``end`` ones, and columns likewise; later ones move up."""
        filled = self.matrix[..., :end, :end]
        shorten(filled.mT, how, how.values, end)
        shorten(filled[..., self._earliest(how) :, :], how, self._columns(how), end)

    def _columns(self, how: Condensation) -> Array:
        """Return what becomes of columns, in which there is nothing before the ``_earliest`` row."""
        raise NotImplementedError

    def _earliest(self, how: Condensation) -> int:
        return 0


_NOTHING = Replaying()


class Causal(TwoTime):
    """A response or a kernel: what happens at one time depends on earlier ones, so the matrix is lower triangular."""

    def __setitem__(self, rows: slice, values: Array) -> None:
        if self.replayed is None:
            self.matrix[..., rows, : rows.stop] = values
        else:
            self.replayed.put(self.matrix, values, mirror=False)

    def _columns(self, how: Condensation) -> Array:
        return how.moments

    def _earliest(self, how: Condensation) -> int:
        return how.first


class Symmetric(TwoTime):
    """A correlation: rows that are filled are mirrored in the columns."""

    def __setitem__(self, rows: slice, values: Array) -> None:
        if self.replayed is None:
            self.matrix[..., rows, : rows.stop] = values
            self.matrix[..., : rows.stop, rows] = values.mT
        else:
            self.replayed.put(self.matrix, values, mirror=True)

    def _columns(self, how: Condensation) -> Array:
        return how.values


class Given(TwoTime):
    """Rows of a function that is not kept as a matrix; whoever asks for rows gets these."""

    def __getitem__(self, rows: slice) -> Array:
        return self.matrix


class Series(NamedTuple):
    """Functions of one time, along one of the axes of an array."""

    array: Array
    axis: int
    outputs: int  # rows of a time
    is_density: bool  # as in ``history.py``


class Room:
    """Everything that a system of equations keeps for its times, so that it can be cleared, and copied to more room.

    Parameters
    ----------
    size
        Number of rows, one for each time and output.
    like
        An array of the library, device and kind of all others.
    symmetric
        Kind of its symmetric functions.
    matrices
        Number of matrices that are likely to be asked for. They stand in one piece of memory, which is mapped in large
        pages: that makes steps of some hundred rows a third faster. It begins where a line of the cache does: with
        rows of whole lines, products are then a quarter faster. Causal ones fill it from the front, symmetric ones from
        the back.
    """

    def __init__(self, size: int, like: Array, matrices: int = 0, symmetric: type[Symmetric] = Symmetric) -> None:
        self.size: int = size
        self._symmetric = symmetric
        self._like = like
        self._piece: Array = _zeros_on_lines((matrices, size, size), like)
        self._free = (0, matrices)
        self.two_time: list[TwoTime] = []
        self._replaying = Replaying()
        self._elsewhere: list[TwoTime] = []
        self.series_of_time: list[Series] = []

    def causal(self, *leading: int) -> Causal:
        """Return a causal function, still zero, with these leading axes."""
        count, (start, stop) = math.prod(leading), self._free
        fits = count <= stop - start
        if fits:
            self._free = (start + count, stop)
        made = Causal(self._matrices(leading, start if fits else None), self._replaying)
        self._keep(made, fits)
        return made

    def symmetric(self, *leading: int) -> Symmetric:
        """Return a symmetric function, still zero, with these leading axes."""
        count, (start, stop) = math.prod(leading), self._free
        fits = count <= stop - start
        if fits:
            self._free = (start, stop - count)
        made = self._symmetric(self._matrices(leading, stop - count if fits else None), self._replaying)
        self._keep(made, fits)
        return made

    def stacks(self) -> list[TwoTime]:
        """Return all functions of two times with one leading axis; those that stand side by side are one."""
        start, stop = self._free
        side_by_side = (Causal(self._piece[:start]), Symmetric(self._piece[stop:]))
        alone = (type(each)(each.matrix.reshape(-1, self.size, self.size)) for each in self._elsewhere)
        return [*(each for each in side_by_side if len(each.matrix)), *alone]

    def _matrices(self, leading: tuple[int, ...], place: int | None) -> Array:
        """Matrices from a place in the piece of memory on, or others."""
        shape = (*leading, self.size, self.size)
        if place is None:
            return zeros(shape, self._like)
        taken: Array = self._piece[place : place + math.prod(leading)].reshape(shape)
        return taken

    def _keep(self, made: TwoTime, fits: bool) -> None:
        self.two_time.append(made)
        if not fits:
            self._elsewhere.append(made)

    def series(self, shape: Sequence[int], axis: int = -1, outputs: int = 1, *, is_density: bool = False) -> Array:
        """Return an array that holds functions of one time along an axis, still zero.

        The axis has a place for every row, or for every time, which has several ``outputs``.
        """
        made = zeros(shape, self._like)
        self.series_of_time.append(Series(made, axis, outputs, is_density))
        return made

    def replay(self, products: Any) -> None:
        """Let rows be multiplied by the products of a recorded step, or again as they are if there are none."""
        self._replaying.products = products

    def clear(self, rows: slice) -> None:
        """Set rows to zero in everything, and the columns of the same times."""
        for each in self.two_time:
            each.clear(rows)
        for array, axis, per_time, _ in self.series_of_time:
            along = namespace(array).moveaxis(array, axis, -1)
            along[..., rows.start // per_time : rows.stop // per_time] = 0.0

    def copy_to(self, other: "Room", members: NDArray[np.int64] | None = None) -> None:
        """Copy everything to a room of the same equations with more, or fewer, rows.

        And, if ``members`` are given, with these problems of a larger batch only.
        """
        old, new = (
            [*(each.matrix for each in room.two_time), *(each.array for each in room.series_of_time)]
            for room in (self, other)
        )
        for source, target in zip(old, new, strict=True):
            chosen = source if members is None else _members(source, target, members)
            common = tuple(slice(0, min(lengths)) for lengths in zip(chosen.shape, target.shape, strict=True))
            target[common] = chosen[common]

    def condense(self, how: Condensation, outputs: int, end: int) -> None:
        """Let fewer times stand for some of the first ``end`` ones, in everything; later ones move up."""
        of_rows = how.of_outputs(outputs)
        for each in self.stacks():
            each.condense(of_rows, outputs * end)
        for array, axis, per_time, is_density in self.series_of_time:
            mine, last = (of_rows, outputs * end) if per_time == 1 else (how, end)
            along = namespace(array).moveaxis(array, axis, -1)
            shorten(along, mine, mine.densities if is_density else mine.values, last)


def _members(values: Array, fewer: Array, members: NDArray[np.int64]) -> Array:
    """Values of some problems; their axis is the first along which the array for fewer problems is shorter."""
    lengths, xp = zip(values.shape, fewer.shape, strict=True), namespace(values)
    batch = next(axis for axis, (mine, its) in enumerate(lengths) if mine > its)
    chosen: Array = xp.take(values, xp.asarray(members, device=values.device), axis=batch)
    return chosen


def _zeros_on_lines(shape: Sequence[int], like: Array) -> Array:
    """Return zeros that begin where a line of the processor's cache does, of 64 bytes."""
    if not isinstance(like, np.ndarray):
        return zeros(shape, like)
    count, line = math.prod(shape), 64 // like.itemsize
    flat = zeros((count + line,), like)
    start = -flat.ctypes.data % 64 // like.itemsize
    return flat[start : start + count].reshape(tuple(shape))


def shorten(array: Array, how: Condensation, factors: Array, end: int) -> None:
    """Replace some places of the last axis by fewer, with factors (new, old), and move up later ones before an end."""
    start, stop, new = how.first, how.first + how.replaced, len(factors)
    array[..., start : start + new] = array[..., start:stop] @ factors.T
    left = end - stop
    array[..., start + new : start + new + left] = array[..., stop:end]
    array[..., start + new + left : end] = 0.0
