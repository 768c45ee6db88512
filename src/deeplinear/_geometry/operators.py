"""Curvature inside the theory: products of the Hessian with directions that are sums of gradients.

A direction in weight space is V = sum_i q(i) F G(i) over evaluations i of the gradient, with F the factors on the
rates of the weight layers. The gradient at W + x V is another evaluation, for any number x. So the Hessian times V,
which is minus the derivative of G along V, is a sum over evaluations again,

    H V = -dG/dx = -sum_j s_j G(W + x_j V) / eps ,      x_j = j eps ,  s_j = 2/3, -1/12 for j = 1, 2, and odd

up to eps^4. What directions are made of cancels more and more as the iteration goes on, if 0 is far from the spectrum,
so that it ends where rounding shows. Products of gradients are known, so directions have products too,

    <V, F^-1 V'> = sum_ij q(i) q'(j) M(i, j) ,          M(i, j) = sum_l F_l <G_l(i), G_l(j)> / gamma0^2

in which F H is symmetric, and the iteration of Lanczos runs on the numbers q. Of the Hessian, the part of Gauss and
Newton leaves out the curvature of the network: the residuals change by what the derivative of the function along V
makes of them, and are sent back at the weights as they are. Its eigenvalues are those of the tangent kernel.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeplinear._equations.extension import Extension

Array = NDArray[np.float64]

STENCIL = ((1, 2.0 / 3.0), (2, -1.0 / 12.0))
"""Steps along a direction, and what their evaluations count in the derivative, which is odd."""

EPS = 0.025
"""How far a step goes, as the norm of its weights over the root of a width: its error is about eps^4, 4e-7."""

_LAZIEST = 0.01
"""gamma0 below which steps do not become longer: the function then is linear in the weights, to rounding."""

_LOST = 1e-9
"""What is left of a squared norm after orthogonalising, relative to it, and is rounding."""

_BLURRED, _ASYMMETRIC = 1e-5, 1e-4
"""Rounding error of a direction's squared length at which the iteration ends, and how far from symmetric the operator
may turn out to be, relative to its size."""


class Tridiagonal(NamedTuple):
    """The matrix that the iteration of Lanczos makes of an operator: ``diagonal`` (K,) and ``beside`` it (K,).

    The last number beside the diagonal leads to the direction that was not taken any more; it is zero where there is
    none.
    """

    diagonal: Array
    beside: Array


class Rows:
    """Evaluations around the weights at one time, whose gradients are the directions of the iteration.

    Parameters
    ----------
    extension
        Filled up to the time that is looked at, with room for ``rows_needed``.
    rates
        Factors on the rates of the weight layers.
    branch_rate
        Part of those of hidden weights that makes up for weak branches, so that it moves the network no farther.
    eps
        As ``EPS``.
    start
        Whether directions begin with the ``"first"`` gradient of training, or with the one ``"now"``.

    Attributes
    ----------
    start
        The direction of that gradient.
    """

    def __init__(
        self, extension: Extension, rates: Array, branch_rate: float = 1.0, *, eps: float = EPS, start: str = "first"
    ) -> None:
        self._extension, self._rates, self._eps = extension, rates, eps
        self._moves = rates**2
        self._moves[1:-1] /= branch_rate
        self._at = extension.weights_at(extension.count - 1)
        self._size = extension.equations.c.structure.steps
        self._metric, self._plain = np.zeros((2, self._size, self._size))
        self.start = self._sum({self._measure(0): 1.0})
        self._largest = float(self._metric[0, 0])  # which sets the rounding errors of all products
        if start == "now":
            self.start = self.gradient_now()

    def gradient_now(self) -> Array:
        """Evaluate the gradient at the weights as they are, and return its direction."""
        return self._sum({self._evaluate(): 1.0})

    def product(self, one: Array, other: Array) -> float:
        """Product of two directions, in which the operators are symmetric."""
        return float(one @ self._metric @ other)

    def hessian(self, direction: Array) -> Array:
        """Hessian times a direction."""
        return self._sum(self._derivative(direction))

    def gauss_newton(self, direction: Array) -> Array:
        """The part of Gauss and Newton of the Hessian, times a direction."""
        return self._sum({self._evaluate(signal=self._derivative(direction)): 1.0})

    def shifted(self, direction: Array) -> dict[int, Array]:
        """Return the weights after a step along a direction, as an extension takes them."""
        weights = {group: values.copy() for group, values in self._at.items()}
        for group, values in weights.items():
            values[:, 1:] += self._rates[group] * direction
        return weights

    def rounding(self, direction: Array) -> float:
        """Rounding error of the squared length of a direction: the parts that it is made of may cancel."""
        size = np.abs(direction)
        return float(np.finfo(float).eps * (size @ np.abs(self._metric) @ size + self._largest * size.sum() ** 2))

    def length(self, direction: Array) -> float:
        """Norm of a direction over the root of the last width and gamma0, of weak branches by what they do."""
        return float(np.sqrt(direction @ self._plain @ direction))

    def _sum(self, factors: dict[int, float]) -> Array:
        made = np.zeros(self._size)
        made[list(factors)] = list(factors.values())
        return made

    def _derivative(self, direction: Array) -> dict[int, float]:
        """Evaluate along a direction; return the factors whose sum is minus the derivative of a gradient."""
        gamma0 = float(self._extension.equations.c.whole_gamma0[0, 0, 0])
        eps = self._eps / (max(gamma0, _LAZIEST) * self.length(direction))
        return {
            self._evaluate(sign * steps * eps * direction): -sign * factor / eps  # eq-stencil
            for steps, factor in STENCIL
            for sign in (1, -1)
        }

    def _evaluate(self, shift: Array | None = None, signal: dict[int, float] | None = None) -> int:
        """Add an evaluation at shifted weights."""
        weights = self._at if shift is None else self.shifted(shift)
        return self._measure(self._extension.evaluate(weights, signal))

    def _measure(self, row: int) -> int:
        """Keep the products of a gradient with those before, and return its row."""
        products = self._extension.products(row)[:, 0]
        # Where nodes stand for layers, products are those of input weights, all matrices between, and readout.
        those = slice(None) if len(products) == len(self._rates) else [0, 1, -1]
        for kept, factors in ((self._metric, self._rates), (self._plain, self._moves)):
            kept[row, : row + 1] = kept[: row + 1, row] = np.tensordot(factors[those], products, 1)  # eq-metric
        return row


OPERATORS: dict[str, Callable[[Rows, Array], Array]] = {"hessian": Rows.hessian, "kernel": Rows.gauss_newton}
"""What may be looked at, by its name: the Hessian, and the tangent kernel."""


STARTS = ("first", "now")
"""With which gradient directions may begin."""


def rows_needed(operator: str, vectors: int) -> int:
    """Number of evaluations that the iteration takes, at most."""
    return 1 + vectors * (2 * len(STENCIL) + (operator == "kernel"))


def lanczos(rows: Rows, operator: str, vectors: int) -> tuple[Tridiagonal, list[Array]]:
    """Iterate an operator from a gradient, up to so many times; return its matrix and the directions."""
    apply, product = OPERATORS[operator], rows.product
    diagonal, beside, taken = np.zeros(vectors), np.zeros(vectors), list[Array]()
    direction, square = rows.start, product(rows.start, rows.start)
    for k in range(vectors):
        if not square > 0.0 or rows.rounding(direction) > _BLURRED * square:
            return Tridiagonal(diagonal[:k], beside[:k]), taken
        taken.append(direction / np.sqrt(square))
        image = apply(rows, taken[-1])
        diagonal[k] = product(taken[-1], image)
        size = product(image, image)
        known = [*np.zeros(k - 1), beside[k - 1]] if k else []
        apart = [product(each, image) - value for each, value in zip(taken, known, strict=False)]
        if max(map(abs, apart), default=0.0) > _ASYMMETRIC * np.sqrt(max(size, 0.0)):
            return Tridiagonal(diagonal[:k], beside[:k]), taken[:k]
        for _ in range(2):  # once leaves what the products of the first round have lost
            for each in taken:
                image = image - product(each, image) * each
        square, rounding = product(image, image), rows.rounding(image)
        if square <= _LOST * size and rounding <= _LOST * size:  # nothing is left
            return Tridiagonal(diagonal[: k + 1], beside[: k + 1]), taken
        beside[k], direction = np.sqrt(max(square, rounding)), image
    return Tridiagonal(diagonal, beside), taken
