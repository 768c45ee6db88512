"""Time grids: what a sum over past training steps is, in terms of values at a few times.

A grid consists of single steps and of panels. A panel stands for many steps; what happens in it is known at
its ``PANEL_NODES`` nodes, which are real-valued times, and is a polynomial in between. Sums of the polynomial over
the integer steps are taken exactly, so it is discrete gradient descent that is solved, not its flow.

A sum from the first step of a panel up to a real time t is the polynomial F with F(t + 1) - F(t) = f(t) that
vanishes at the first step. By the formula of Euler and Maclaurin, which is exact for polynomials,

    F = int f - f / 2 + sum_{k >= 2} B_k / k! f^(k-1)          with the Bernoulli numbers B_k

and its cost does not grow with the length of the panel.
"""

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

Array = NDArray[Any]

_KEPT = 400
"""Steps, about, that are kept of long curves."""

_APART, _STANDS_OUT, _SMOOTH = 3, 8.0, 1e-9
"""A schedule bends where its second difference is so many times that of steps so far away, and not rounding."""

PANEL_NODES = 8
"""Nodes of a panel; single steps come in groups of as many, so that all row sets begin at multiples of it."""


@cache
def radau_nodes() -> Array:
    """Right Radau nodes, in (-1, 1], the last one at 1."""
    polynomial = np.zeros(PANEL_NODES + 1)
    polynomial[-2:] = -1.0, 1.0
    inner = legendre.legroots(legendre.legdiv(polynomial, [-1.0, 1.0])[0])
    return np.append(np.sort(inner.real), 1.0)


@cache
def to_legendre() -> Array:
    """Matrix from values at the nodes to Legendre coefficients."""
    return np.asarray(np.linalg.inv(legendre.legvander(radau_nodes(), PANEL_NODES - 1)))


@lru_cache(maxsize=64)
def panel_sums(length: int) -> tuple[Array, Array]:
    """Sums over the ``length`` integer steps of a panel, as weights of the values at its nodes.

    Returns
    -------
    inside
        Sums from the first step up to, but not including, the time of each node, shape (nodes, nodes).
    whole
        Sum over all steps, shape (nodes,).

    Examples
    --------
    >>> inside, whole = panel_sums(50)
    >>> times = panel_times(50)
    >>> round(float(whole @ times**3), 3), float(sum(range(1, 51)) ** 2)
    (1625625.0, 1625625.0)
    """
    from scipy.special import bernoulli, factorial  # slow to import

    x, h = radau_nodes(), 2.0 / length
    ends = np.concatenate([x, [1.0 + h, -1.0 + h]])
    basis = np.eye(PANEL_NODES)
    sums = np.stack([legendre.legval(ends, legendre.legint(b)) for b in basis], axis=1) / h
    sums -= legendre.legvander(ends, PANEL_NODES - 1) / 2
    numbers = bernoulli(PANEL_NODES)
    for k in range(2, PANEL_NODES + 1, 2):
        derivatives = np.stack([legendre.legval(ends, legendre.legder(b, k - 1)) for b in basis], axis=1)
        sums += numbers[k] / factorial(k) * h ** (k - 1) * derivatives  # eq-euler-maclaurin
    weights = (sums[:-1] - sums[-1]) @ to_legendre()
    return weights[:-1], weights[-1]


def panel_times(length: int) -> Array:
    """Times of the nodes of a panel of ``length`` steps, counted from the last step before it."""
    times: Array = length * (radau_nodes() + 1) / 2
    return times


class Grid:
    """Nodes in time, in sets that are solved together: a single step, or a panel of many steps.

    Attributes
    ----------
    times
        Time of each node, shape (nodes,); the last of each set is an integer.
    lengths
        Number of steps in each set.
    """

    def __init__(self, lengths: Iterable[int] = ()) -> None:
        self.times: Array = np.zeros(0)
        self.lengths: list[int] = []
        self._weight: Array = np.zeros(0)  # how much each node counts in a sum over all steps of its set
        for length in lengths:
            self.add(length)

    def __len__(self) -> int:
        return len(self.times)

    @property
    def end(self) -> int:
        """Last step that the grid covers, -1 if there is none."""
        return round(float(self.times[-1])) if len(self) else -1

    @property
    def last(self) -> slice:
        """Nodes of the last set."""
        return slice(len(self) - _count(self.lengths[-1]), len(self))

    @property
    def single(self) -> NDArray[np.bool_]:
        """Which nodes are single steps, shape (nodes,)."""
        return np.repeat([length == 1 for length in self.lengths], [_count(length) for length in self.lengths])

    def sets(self) -> Iterator[slice]:
        """Nodes of each set."""
        start = 0
        for length in self.lengths:
            yield slice(start, start + _count(length))
            start += _count(length)

    def add(self, length: int) -> slice:
        """Append a single step, or a panel of ``length`` steps; return its nodes."""
        times, whole = (np.ones(1), np.ones(1)) if length == 1 else (panel_times(length), panel_sums(length)[1])
        self.times = np.append(self.times, self.end + times)
        self._weight = np.append(self._weight, whole)
        self.lengths.append(length)
        return self.last

    def remove(self) -> None:
        """Take the last set back."""
        start = self.last.start
        self.times, self._weight = self.times[:start], self._weight[:start]
        self.lengths.pop()

    def sums(self) -> Array:
        """Rows of Omega for the last set: sums over the steps before each of its nodes, shape (r, nodes)."""
        start, length = self.last.start, self.lengths[-1]
        inside = np.zeros((1, 1)) if length == 1 else panel_sums(length)[0]
        return np.concatenate([np.broadcast_to(self._weight[:start], (len(inside), start)), inside], axis=1)  # eq-omega

    def interpolation(self, steps: NDArray[np.int64]) -> Array:
        """Matrix from values at the nodes to values at integer steps, shape (steps, nodes)."""
        matrix = np.zeros((len(steps), len(self)))
        starts = np.cumsum([0, *self.lengths])  # first step of each set
        owner = np.searchsorted(starts, steps, side="right") - 1
        for index, nodes in enumerate(self.sets()):
            mine = owner == index
            length = self.lengths[index]
            x = 2.0 * (steps[mine] - starts[index] + 1) / length - 1.0
            if length == 1:
                matrix[mine, nodes] = 1.0
            elif mine.any():
                matrix[mine, nodes] = legendre.legvander(x, PANEL_NODES - 1) @ to_legendre()
        return matrix


def spaced_steps(last: int) -> NDArray[np.int64]:
    """Steps from 0 to the last at which a long curve is kept: about 400, as many in each decade.

    Examples
    --------
    >>> len(spaced_steps(10**6)), spaced_steps(10**6)[[0, 1, 2, -1]].tolist()
    (332, [0, 1, 2, 1000000])
    """
    return np.unique([0, *np.geomspace(1, last, _KEPT).round().astype(np.int64).tolist(), last])


def breaks(rates: Array) -> NDArray[np.int64]:
    """Last steps before a schedule jumps or bends, found by second differences that stand out from those around them.

    A polynomial follows a schedule up to such a step, and another one from there on.

    Examples
    --------
    >>> breaks(np.array([0.01] * 20 + [0.3] * 20))
    array([19, 20])
    >>> breaks(np.minimum(np.arange(40) / 25, 1.0))
    array([25])
    >>> breaks(np.cos(np.linspace(0, 3, 40)))
    array([], dtype=int64)
    """
    if rates.ndim == 0 or len(rates) < 3:
        return np.zeros(0, np.int64)
    bends = np.abs(np.diff(rates, n=2))  # bends[i] belongs to step i + 1
    around = np.pad(bends, _APART, mode="edge")
    usual = np.maximum(around[: len(bends)], around[2 * _APART :])
    return np.flatnonzero(bends > _STANDS_OUT * usual + _SMOOTH * np.abs(rates).max()) + 1


def _count(length: int) -> int:
    return 1 if length == 1 else PANEL_NODES
