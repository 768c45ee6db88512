"""Curvature of the loss of a finite network: its Hessian, applied exactly, in Lanczos's iteration from the gradient.

A direction V in weight space is a sum of gradients and of what the Hessian has made of earlier directions. Each of
these is of low rank, g h^T summed over outputs, so that directions are kept as factors and are never matrices. Along V
every field has a derivative,

    g'_L = V_L ,   g'_l = (W_l^T g'_{l+1} + V_l^T g_{l+1}) / sqrt(N_l)
    w'   = sqrt(U) / (N_L gamma0) (W_0^T g'_1 + V_0^T g_1) ,   Delta' = -X w' / sqrt(U) ,   h'_0 = sqrt(U)/P X^T Delta'
    h'_{l+1} = (W_l h'_l + V_l h_l) / sqrt(N_l)

by the rule of products, so that minus the derivative of G_l, which is the Hessian times V, has the factors

    -gamma0 / sqrt(N_l) (g'_{l+1} h_l^T + g_{l+1} h'_l^T)

Of the tangent kernel, g'_l and V_l h_l are left out of the fields that go back.
"""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.about import keep
from deeplinear._core.arrays import Array, identity, namespace, to_numpy
from deeplinear._experiment.network import FiniteNetwork
from deeplinear._experiment.streams import Batch

POSITIONS = np.linspace(0.0, 1.0, 25)
"""Where on a line losses are kept."""

OPERATORS, STARTS = ("hessian", "kernel"), ("first", "now")

_MOST_LOOKS = 10_000
"""Most steps at which curvature is measured."""

_LOST = 1e-9
"""What is left of a squared norm after orthogonalising, relative to it, and is rounding."""

_BLURRED = 1e-5
"""Rounding error of a direction's squared length at which the iteration ends: the terms that it is made of cancel."""


@dataclass(frozen=True)
class Curvature:
    """What to measure about the curvature of networks.

    Parameters
    ----------
    at
        Steps at which to measure it, each at least 0.
    vectors
        Number of directions of Lanczos's iteration, 2 or more.
    operator
        ``"hessian"``, or ``"kernel"`` for the tangent kernel.
    singular_values
        Number of largest singular values of each weight matrix, over the root of its fan-in, to keep as well.
    start
        Whether directions begin with the ``"first"`` gradient of training, or with the one ``"now"``.
    line
        Whether to record the losses along the straight line between the weights of the first and the last step of
        ``at`` as well, at 25 positions from 0 to 1, as ``landscape`` predicts them.

    Examples
    --------
    >>> Curvature(at=[20, 0])
    Curvature(at=(0, 20), vectors=16, operator='hessian', singular_values=0, start='first', line=False)
    """

    at: Sequence[int]
    vectors: int = 16
    operator: str = "hessian"
    singular_values: int = 0
    start: str = "first"
    line: bool = False

    def __post_init__(self) -> None:
        at = checks.listed("at", self.at, _MOST_LOOKS)
        steps = tuple(sorted({checks.whole("at", step, at_least=0) for step in at}))
        checks.whole("vectors", self.vectors, at_least=2)
        checks.word("operator", self.operator, OPERATORS)
        checks.whole("singular_values", self.singular_values, at_least=0)
        checks.word("start", self.start, STARTS)
        keep(self, at=steps)

    @property
    def passes(self) -> int:
        """Number of forward and backward passes in all: for gradients, for every direction, and along the line."""
        return 1 + len(self.at) * (1 + self.vectors) + self.line * len(POSITIONS)

    def is_due(self, step: int) -> bool:
        """Whether something is to be done at a step: the first gradient is kept, to start from."""
        return step in self.at or (step == 0 and self.start == "first")


class Directions:
    """Directions around the weights of a network, as sums of terms g h^T.

    Parameters
    ----------
    network, batch
        The network, and the data of its loss.
    g, error
        Its backward fields and its error.
    rates
        Factors on the rates of the weight layers.
    first
        Fields h and g of the gradient to start from; those here and now unless given.
    """

    def __init__(
        self,
        network: FiniteNetwork,
        batch: Batch,
        g: list[Array],
        error: Array,
        rates: Sequence[float],
        first: tuple[list[Array], list[Array]] | None = None,
    ) -> None:
        self._network, self._rates, self._g = network, rates, g
        self._batch = batch.without_noise()
        self._h = network.forward(batch.signal(error, batch.see(error).residual))
        self._scales = [outer.scale for outer in network.outers(self._h, g)]
        self._outputs = g[-1].shape[-1]
        one = identity(self._outputs, g[-1])
        self._terms: list[list[tuple[Array, Array]]] = []  # factors of each layer, of each term
        self._products: list[list[Array]] = []
        h, g = (self._h, g) if first is None else first
        self._add([*zip(g, h[:-1], strict=True), (h[-1], one)])

    def products(self) -> list[list[Array]]:
        """Products of all terms, <., F .> over the last width, each of shape (..., 1, 1)."""
        return self._products

    def apply(self, factors: list[Array], kind: str) -> None:
        """Add what the operator of this name makes of a sum of terms, with factors of shape (..., 1, 1)."""
        network, batch, kernel = self._network, self._batch, kind == "kernel"
        weights, last = network.weights, len(self._g)
        slopes = [self._times(last, factors, identity(self._outputs, self._g[-1]))]
        for layer in reversed(range(1, last)):
            through = weights[layer].mT @ slopes[0] + self._transposed_times(layer, factors, self._g[layer])
            slopes.insert(0, network.join(slopes[0], through * network.fan_in(layer)))
        function = network.predictor(slopes[0]) + network.predictor_scale * self._transposed_times(
            0, factors, self._g[0]
        )
        error = -function
        fields = [batch.signal(error, batch.see(error).residual)]
        for layer in range(last):
            through = weights[layer] @ fields[-1]
            if not kernel:
                through = through + self._times(layer, factors, self._h[layer])
            below = fields[-1] if layer else None
            fields.append(network.join(below, through * network.fan_in(layer)))
        one = identity(self._outputs, self._g[-1])
        concat = namespace(fields[0]).concat
        terms = [
            (-g, back) if kernel else (concat([-slope, -g], axis=-1), concat([h, back], axis=-1))
            for g, slope, h, back in zip(self._g, slopes, self._h[:-1], fields[:-1], strict=True)
        ]
        self._add([*terms, (-fields[-1], one)])

    def _times(self, layer: int, factors: list[Array], x: Array) -> Array:
        """V_l x."""
        return self._sum(layer, factors, [left @ (right.mT @ x) for left, right in self._layer(layer)])

    def _transposed_times(self, layer: int, factors: list[Array], x: Array) -> Array:
        """V_l^T x."""
        return self._sum(layer, factors, [right @ (left.mT @ x) for left, right in self._layer(layer)])

    def _sum(self, layer: int, factors: list[Array], each: list[Array]) -> Array:
        total: Array = functools.reduce(operator.add, [f * x for f, x in zip(factors, each, strict=True)])
        return self._rates[layer] * self._scales[layer] * total

    def _layer(self, layer: int) -> list[tuple[Array, Array]]:
        return [term[layer] for term in self._terms]

    def _add(self, term: list[tuple[Array, Array]]) -> None:
        self._terms.append(term)
        width = self._network.weights[-2].shape[-2]
        row = []
        for other in self._terms:
            each = [
                rate * scale**2 * ((one[0].mT @ two[0]) * (one[1].mT @ two[1])).sum(axis=(-2, -1), keepdims=True)
                for rate, scale, one, two in zip(self._rates, self._scales, term, other, strict=True)
            ]
            row.append(functools.reduce(operator.add, each) / width)
        self._products.append(row)


def lanczos(directions: Directions, kind: str, vectors: int) -> NDArray[np.float64]:
    """Iterate from the gradient; return the diagonal and what is beside it, (2, ..., vectors), nan from its end on."""

    def product(one: list[Array], other: list[Array], *, size: bool = False) -> Array:
        """Product of two directions; with ``size`` that of the sizes of all terms."""
        M = directions.products()
        pairs = ((x * y, M[max(i, j)][min(i, j)]) for i, x in enumerate(one) for j, y in enumerate(other))
        return functools.reduce(operator.add, [xy * (abs(m) if size else m) for xy, m in pairs])

    first = directions.products()[0][0]
    diagonal, beside, taken = [], [], []
    direction, square = [first * 0.0 + 1.0], first
    for k in range(vectors):
        root = namespace(first).sqrt(square)
        taken.append([x / root for x in direction])
        directions.apply(taken[-1], kind)
        image = [first * 0.0] * (k + 1) + [first * 0.0 + 1.0]
        size = product(image, image)
        diagonal.append(product(taken[-1], image))
        for _ in range(2):
            for each in taken:
                overlap = product(each, image)
                image = [x - overlap * (each[i] if i < len(each) else 0.0) for i, x in enumerate(image)]
        square = product(image, image)
        terms = product([abs(x) for x in image], [abs(x) for x in image], size=True)
        beside.append(namespace(first).sqrt(namespace(first).where(square > _LOST * size, square, 0.0 * square)))
        # nan ends the iteration of a network, and not those beside it
        known = (square > _LOST * size) & (np.finfo(float).eps * terms < _BLURRED * square)
        direction, square = image, namespace(first).where(known, square, first * np.nan)
    return np.stack([to_numpy(namespace(first).concat(each, axis=-1)[..., 0, :]) for each in (diagonal, beside)])


def ritz(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Ritz values, largest first, and their weights, shape (2, ..., vectors), nan where the iteration ended."""
    from scipy.linalg import eigh_tridiagonal  # slow to import

    found = np.full(matrices.shape, np.nan)
    for network in np.ndindex(matrices.shape[1:-1]):
        diagonal, beside = matrices[(slice(None), *network)]
        known = np.isfinite(diagonal)
        if known.any():
            values, vectors = eigh_tridiagonal(diagonal[known], beside[known][:-1])
            found[(slice(None), *network, slice(0, len(values)))] = values[::-1], vectors[0, ::-1] ** 2
    return found
