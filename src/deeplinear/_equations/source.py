"""Random sources that drive the fields, by their covariances, and what responses make of these."""

from typing import NamedTuple

from deeplinear._core.arrays import Array, identity, namespace, zeros
from deeplinear._equations.products import (
    SETS,
    add_identity,
    compiled,
    over_time,
    rows_times_symmetric,
    rows_times_transpose,
    times,
)
from deeplinear._equations.rooted import Rooted
from deeplinear._equations.two_time import Causal, Symmetric
from deeplinear._equations.weights import dd


class Source(NamedTuple):
    """A source whose covariance is factor d(t) d(s) correlation(t, s), where None stands for 1.

    Without a correlation it is a source that is constant in time, and independent over outputs. With a ``scale`` it is
    the source r~ of ``increments.py``: F stands for d(t), and e_0 for what is constant in time.
    """

    correlation: Symmetric | None
    factor: Array | None = None  # (batch, 1, 1)
    d: Array | None = None  # (batch, rows), or with more axes of length 1 before the last
    outputs: int = 1
    scale: Array | None = None  # (batch, 1, 1)
    lost: Array | None = None  # d - 1, where that is known better than by the difference

    @property
    def compiled(self) -> bool:
        """Whether the compiled products know such a source."""
        return self.scale is None or (self.d is None and self.correlation is not None)

    @property
    def arguments(self) -> tuple[Array | None, Array | None, Array | None]:
        """What the compiled products take: a matrix, a factor, and a profile d over time, where None stands for 1."""
        return None if self.correlation is None else self.correlation.matrix, self.factor, self.d

    def scaled(self, factor: Array) -> "Source":
        """Return the source with its covariance times a factor."""
        return self._replace(factor=times(factor, self.factor))

    def rows(self, rows: slice) -> Array:
        """Rows of the covariance up to their own time."""
        if self.correlation is None:
            profile = self._profile(rows.stop)
            times_of = ((rows.stop - rows.start) // self.outputs, rows.stop // self.outputs)
            covariance = dd(profile, rows) * namespace(profile).tile(identity(self.outputs, profile), times_of)
        else:
            covariance = self._sandwiched(self.correlation, rows)
        return times(covariance, self.factor)

    def times(self, x: Array) -> Array:
        """Rows (batch, r, e) times the leading e x e block of the covariance."""
        e = x.shape[-1]
        if self.correlation is not None:
            product = self._transposed(rows_times_symmetric(self.on(x), self.correlation))
        elif self.d is None and self.scale is None:
            product = namespace(x).tile(over_time(x, self.outputs), (e // self.outputs,))
        elif self.d is None:
            product = namespace(x).zeros_like(x)
            product[..., : self.outputs] = x[..., : self.outputs]
        else:
            profile = self._profile(e)[..., None, :]
            product = profile * namespace(x).tile(over_time(x * profile, self.outputs), (e // self.outputs,))
        return times(product, self.factor)

    def times_root(self, x: Array) -> Array:
        """Rows (..., r, e) times a root of the leading e x e block, of a correlation that is kept by one."""
        e = x.shape[-1]
        if isinstance(self.correlation, Rooted):
            product = self.on(x) @ self.correlation.Z[:, :e]
        elif self.d is None and self.scale is None:
            product = over_time(x, self.outputs)
        else:
            product = over_time(x * self._profile(e)[..., None, :], self.outputs)
        return product if self.factor is None else product * self.factor**0.5

    def _shift(self, e: int) -> Array:
        """(d - 1) / scale, shape (batch, e)."""
        assert self.d is not None
        assert self.scale is not None
        lost = self.d - 1.0 if self.lost is None else self.lost.reshape(self.d.shape)
        shift: Array = lost[..., :e] / self.scale.reshape(-1, *[1] * (self.d.ndim - 1))
        return shift

    def _profile(self, e: int) -> Array:
        """How a source that was drawn once changes in time, shape (batch, e)."""
        if self.scale is None:
            assert self.d is not None
            return self.d[..., :e]
        profile = zeros((len(self.scale), e), self.scale) if self.d is None else self._shift(e)
        profile[..., : self.outputs] = 1.0
        return profile

    def on(self, x: Array) -> Array:
        """Rows times diag(d), or times F."""
        if self.d is None:
            return x
        e = x.shape[-1]
        y: Array = x * self.d[..., None, :e]
        if self.scale is not None:
            y[..., : self.outputs] += over_time(x * self._shift(e)[..., None, :], self.outputs)
        return y

    def _transposed(self, x: Array) -> Array:
        """Rows times diag(d), or times F^T."""
        if self.d is None:
            return x
        e = x.shape[-1]
        y: Array = x * self.d[..., None, :e]
        if self.scale is not None:
            y += self._shift(e)[..., None, :] * namespace(x).tile(x[..., : self.outputs], (e // self.outputs,))
        return y

    def _sandwiched(self, correlation: Symmetric, rows: slice) -> Array:
        """Rows of diag(d) correlation diag(d), or of F correlation F^T."""
        own = correlation[rows]
        if self.d is None:
            return own
        own = self.d[..., rows, None] * own
        if self.scale is not None:
            count = (rows.stop - rows.start) // self.outputs
            initial = namespace(own).tile(correlation.matrix[..., : self.outputs, : rows.stop], (count, 1))
            own = own + self._shift(rows.stop)[..., rows, None] * initial
        return self._transposed(own)


class Sandwich:
    """The correlation sum_i F_i S_i F_i^T that responses F_i (i, *batch, ...) make of independent sources S_i."""

    def __init__(self, filled: Symmetric, responses: Causal, *sources: Source) -> None:
        self._filled, self._responses, self._sources = filled, responses, sources
        are_compiled = all(source.compiled for source in sources)
        self._weighted = [source.arguments for source in sources] if are_compiled else None

    def fill(self, rows: slice) -> None:
        """Fill rows of the correlation."""
        filled, responses, e = self._filled, self._responses, rows.stop
        if isinstance(filled, Rooted):
            own = responses[rows]
            filled.add(rows, [source.times_root(own[i]) for i, source in enumerate(self._sources)])
            return
        fast = compiled(filled, e - rows.start)
        if fast is not None and self._weighted is not None:
            fast.fill_sandwich(filled.matrix, responses.matrix, self._weighted, e, SETS)
            return
        own = responses[rows]
        through = namespace(own).concat([source.times(own[i])[None] for i, source in enumerate(self._sources)])
        first, *others = rows_times_transpose(through, responses)  # eq-sandwich
        filled[rows] = sum(others, start=first)


def fill_sum(filled: Symmetric, other: Symmetric, source: Source, rows: slice) -> None:
    """Fill rows of the sum of a symmetric function and the covariance of a source."""
    if isinstance(filled, Rooted) and isinstance(other, Rooted):
        one = namespace(filled.matrix).zeros_like(filled[rows])
        add_identity(one, rows)
        filled.add(rows, [other.Z[:, rows], source.times_root(one)])
        return
    fast = compiled(filled, rows.stop - rows.start)
    if fast is not None and source.compiled:
        fast.fill_sum(filled.matrix, other.matrix, *source.arguments, rows.stop)
    else:
        filled[rows] = other[rows] + source.rows(rows)
