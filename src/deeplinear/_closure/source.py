"""Random sources that drive the fields, by their covariances, and what responses make of these."""

from collections.abc import Sequence
from typing import NamedTuple

from deeplinear._arrays import Array, namespace
from deeplinear._closure.causal import (
    SETS,
    compiled,
    rows_times_symmetric,
    rows_times_transpose,
    times,
    write_symmetric,
)


class Source(NamedTuple):
    """A source whose covariance is factor d(t) d(s) matrix(t, s), where None stands for 1.

    Without a matrix it is a source that is constant in time, and independent over outputs.
    """

    matrix: Array | None  # (*batch, rows, rows)
    factor: Array | None = None  # (batch, 1, 1)
    d: Array | None = None  # (batch, rows)
    outputs: int = 1

    def scaled(self, factor: Array) -> "Source":
        """Return the source with its covariance times a factor."""
        return self._replace(factor=times(factor, self.factor))

    def rows(self, rows: slice) -> Array:
        """Rows of the covariance, if it has a matrix."""
        assert self.matrix is not None
        covariance = self.matrix[..., rows, : rows.stop]
        if self.d is not None:
            covariance = dd(self.d, rows) * covariance
        return times(covariance, self.factor)

    def times(self, x: Array, e: int) -> Array:
        """Rows (batch, r, e) times the leading e x e block of the covariance."""
        d = None if self.d is None else self.d[:, None, :e]
        x = times(x, d)
        if self.matrix is not None:
            product = rows_times_symmetric(x, self.matrix, e)
        else:
            by_step = x.reshape(*x.shape[:-1], e // self.outputs, self.outputs)
            over_time = by_step.sum(axis=-2)
            product = namespace(x).tile(over_time, (e // self.outputs,))
        return times(product, d, self.factor)


def dd(d: Array, rows: slice) -> Array:
    """Rows of d(t) d(s)."""
    outer: Array = d[:, rows, None] * d[:, None, : rows.stop]
    return outer


def fill_sandwich(filled: Array, responses: Array, sources: Sequence[Source], rows: slice) -> None:
    """Fill rows of sum_i F_i S_i F_i^T, with causal responses F_i (i, *batch, rows, rows) to independent sources."""
    e = rows.stop
    fast = compiled(responses, e - rows.start)
    if fast is not None and all(source.d is None for source in sources):
        fast.fill_sandwich(filled, responses, sources, e, SETS)
        return
    weighted = [source.times(responses[i, ..., rows, :e], e)[None] for i, source in enumerate(sources)]
    first, *others = rows_times_transpose(namespace(responses).concat(weighted), responses, e)
    write_symmetric(filled, sum(others, start=first), rows)


def fill_sum(filled: Array, matrix: Array, source: Source, rows: slice) -> None:
    """Fill rows of the sum of a symmetric matrix and the covariance of a source."""
    fast = compiled(filled, rows.stop - rows.start)
    assert source.matrix is not None
    if fast is not None and source.d is None:
        fast.fill_sum(filled, matrix, source.matrix, source.factor, rows.stop)
    else:
        write_symmetric(filled, matrix[..., rows, : rows.stop] + source.rows(rows), rows)
