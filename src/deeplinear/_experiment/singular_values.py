r"""The largest singular values of weight matrices in training, each over the root of its fan-in.

Of an explicit matrix all are computed. A matrix that is revealed is known along the directions that training has looked
at; outside of these it is a Gaussian matrix that nobody has drawn yet. What it does to further directions can be drawn
as before, and the bidiagonalisation of Golub and Kahan looks at one more on each side in every step,

    W V = U B ,     W^T U = V B^T + remainder

so that its singular values follow from a few hundred numbers, at any size. It is done when training is over, so that
networks are the same whether it is done or not, and all times look at the same matrix.

**How many steps.** The values at the end of a bulk lie n^(-2/3) apart, relative to them, which some n^(1/3) steps tell
apart; singular values that stand alone take fewer. More than a few hundred would not change four digits.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, namespace, to_numpy, zeros
from deeplinear._experiment.draws import Draws
from deeplinear._experiment.in_place import copied
from deeplinear._experiment.network import FiniteNetwork
from deeplinear._experiment.revealed import SPENT, Revealed, Weight

Floats = NDArray[np.float64]

_MOST = 400
"""Steps that resolve the end of a bulk to 2e-5, however large a matrix is."""


class SingularValues(Protocol):
    """Keeps what is needed of the weights at some steps, and has their singular values in the end."""

    def note(self, step: int) -> None:
        """Take note of the weights that the network has now."""

    def values(self) -> dict[int, Floats]:
        """Largest singular values of each weight matrix by step, shape (..., L, count), zero where there is none."""


class OfExplicit:
    """Singular values of explicit matrices.

    Parameters
    ----------
    network
        The network in training.
    count
        How many to keep of each weight matrix.
    """

    def __init__(self, network: FiniteNetwork, count: int) -> None:
        self._network, self._count = network, count
        self._found: dict[int, Floats] = {}

    def note(self, step: int) -> None:
        """Compute them now: the weights will change."""
        every = []
        for layer, weight in enumerate(self._network.weights[:-1]):
            values = to_numpy(namespace(weight).linalg.svdvals(weight)) * self._network.fan_in(layer)
            every.append(_first(values, self._count))
        self._found[step] = np.stack(every, axis=-2)

    def values(self) -> dict[int, Floats]:
        """Return them."""
        return self._found


class OfRevealed:
    """Singular values of matrices that are revealed, several networks together.

    Parameters
    ----------
    network
        The network in training, all of whose weights but the readout are revealed.
    count
        How many to keep of each weight matrix.
    draws
        Random numbers for what is drawn of the matrices when it comes to that.
    """

    def __init__(self, network: FiniteNetwork, count: int, draws: Draws) -> None:
        self._network, self._count, self._draws = network, count, draws
        self._coefficients: dict[int, list[Array]] = {}

    def note(self, step: int) -> None:
        """Keep what the weights are made of now."""
        self._coefficients[step] = [copied(weight.coefficients) for weight in self._matrices]

    def values(self) -> dict[int, Floats]:
        """Draw as much of the matrices as their singular values need."""
        layers = [self._of_layer(layer, weight) for layer, weight in enumerate(self._matrices)]
        return {step: np.stack([each[step] for each in layers], axis=-2) for step in self._coefficients}

    def _of_layer(self, layer: int, weight: Weight) -> dict[int, Floats]:
        found, steps = {}, steps_needed(min(weight.shape), self._count)
        weight.forget_divergence()
        bases = weight.bases()
        initial = weight.continued(bases, self._draws, (steps + 1) * len(self._coefficients))
        for step, every in self._coefficients.items():
            coefficients = every[layer]
            matrix = _Sum(initial, coefficients[..., :1], weight.learned(coefficients, bases))
            found[step] = matrix.largest(steps, self._count) * self._network.fan_in(layer)
        return found

    @property
    def _matrices(self) -> list[Weight]:
        return self._network.weights[:-1]  # type: ignore[return-value]  # they pass for arrays


class _Sum:
    """The matrix d W_0 + learned, with W_0 revealed, and what was learned among its first rows and columns."""

    def __init__(self, initial: Revealed, d: Array, learned: Array) -> None:
        self._initial, self._d, self._learned = initial, d, learned

    def times(self, x: Array, *, transposed: bool) -> Array:
        """Return its product with vectors, or that of its transpose."""
        learned = self._learned.mT if transposed else self._learned
        product = self._d * self._initial.apply(x, transposed=transposed)
        product[:, : learned.shape[-2]] += learned @ x[:, : learned.shape[-1]]
        return product

    def largest(self, steps: int, count: int) -> Floats:
        """Return the largest singular values after so many steps of the iteration, shape (networks, count)."""
        v = self._start()
        networks, rows = v.shape[0], self._initial.sides(transposed=True)[0].space.coordinates
        left, right = (zeros((networks, steps, size), v) for size in (rows, v.shape[1]))
        lengths = zeros((2, networks, steps), v)  # on the diagonal of B, and beside it
        for step in range(steps):
            right[:, step] = v[..., 0]
            u, lengths[0, :, step] = _orthogonal(self.times(v, transposed=False), left[:, :step])
            left[:, step] = u[..., 0]
            v, lengths[1, :, step] = _orthogonal(self.times(u, transposed=True), right[:, : step + 1])
        diagonal, beside = to_numpy(lengths)
        return _of_bidiagonal(diagonal, beside, count)

    def _start(self) -> Array:
        """Return a vector that is not orthogonal to anything: half in what is known, half outside of it."""
        drawn = self._initial.sides(transposed=False)[0].space.gaussian(1)
        parts = drawn[:, : self._learned.shape[-1]], drawn[:, self._learned.shape[-1] :]
        start = namespace(drawn).concat([_unit(part)[0] for part in parts], axis=1)
        return _unit(start)[0]


def steps_needed(size: int, count: int) -> int:
    """Steps of the iteration that a matrix with so many rows or columns takes, whichever are fewer.

    Examples
    --------
    >>> [steps_needed(size, count=1) for size in (10, 400, 10**5, 10**9)]
    [11, 60, 216, 430]
    """
    return min(size + 1, min(_MOST, math.ceil(4 * math.cbrt(size))) + 20 + 10 * count)


def _orthogonal(x: Array, others: Array) -> tuple[Array, Array]:
    """Return x outside of orthonormal rows, as a unit vector, and its length there; both zero if that is rounding."""
    size = _unit(x)[1]
    for _ in range(2):
        x = x - others.mT @ (others @ x)
    unit, length = _unit(x)
    is_new = length > SPENT * size
    return unit * is_new, (length * is_new)[:, 0, 0]


def _unit(x: Array) -> tuple[Array, Array]:
    """Return a vector over its length, zero if it is zero, and its length, shape (networks, 1, 1)."""
    length = namespace(x).sqrt((x * x).sum(axis=-2, keepdims=True))
    return x / namespace(x).where(length > 0.0, length, 1.0 + 0.0 * length), length


def _of_bidiagonal(diagonal: Floats, beside: Floats, count: int) -> Floats:
    """Return the largest singular values of upper bidiagonal matrices, (networks, count), nan of those not finite."""
    from scipy.linalg import eigvalsh_tridiagonal  # slow to import

    steps = diagonal.shape[-1]
    found = np.zeros((len(diagonal), count))
    above = np.concatenate([beside[:, :-1], np.zeros((len(beside), 1))], axis=1)
    for values, on, off in zip(found, diagonal**2 + above**2, diagonal[:, 1:] * above[:, :-1], strict=True):
        if not (np.isfinite(on).all() and np.isfinite(off).all()):
            values[:] = np.nan
            continue
        squares = eigvalsh_tridiagonal(on, off, select="i", select_range=(max(0, steps - count), steps - 1))
        values[: len(squares)] = np.sqrt(np.maximum(squares[::-1], 0.0))
    return found


def _first(values: Floats, count: int) -> Floats:
    """Return the first values, and zeros if there are fewer."""
    found = np.zeros((*values.shape[:-1], count))
    found[..., : min(count, values.shape[-1])] = values[..., :count]
    return found
