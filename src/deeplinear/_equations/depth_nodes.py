"""Nodes in depth: what a sum over the layers of a very deep chain is, in terms of values at a few of them."""

import math

import numpy as np
from numpy.polynomial import legendre

from deeplinear._core.arrays import Array


class Nodes:
    """Where the nodes are, and what sums over edges are in terms of values at the nodes.

    Attributes
    ----------
    position
        Layer time of the nodes, from 0 (layer 1) to 1 (last layer), shape (nodes,).
    below, above
        Sum over the edges below, or above, each node: matrices over the nodes. At infinite depth integrals.
    total
        Sum over all edges, shape (nodes,).
    """

    def __init__(self, count: int, edges: int | None) -> None:
        ends = np.sort(legendre.legroots(legendre.legder([0] * (count - 1) + [1])).real)
        x = np.concatenate([[-1.0], ends, [1.0]])
        if edges is not None:  # the nearest edges, numbered 0 .. edges - 1
            numbers = np.unique(np.round((x + 1) / 2 * (edges - 1)))
            x = 2 * numbers / (edges - 1) - 1
        self._to_legendre = np.linalg.inv(legendre.legvander(x, len(x) - 1))
        self._edges = edges
        if edges is None:
            powers = np.eye(len(x))
            below = np.stack([legendre.legval(x, legendre.legint(p, lbnd=-1)) for p in powers], axis=1) / 2
            self.below = below @ self._to_legendre
            self.total = self.below[-1]
            self.above = self.total - self.below
            self.position = (x + 1) / 2
        else:
            self.below, through = (_sums_below(n, edges, len(x)) @ self._to_legendre for n in (numbers, numbers + 1))
            self.total = through[-1]
            self.above = self.total - through
            self.position = numbers / edges

    def to_layers(self) -> Array:
        """Matrix that interpolates from nodes to the lower layer of every edge, or leaves the nodes as they are."""
        if self._edges is None:
            return np.eye(len(self.position))
        x = 2 * np.arange(self._edges) / (self._edges - 1) - 1
        matrix: Array = legendre.legvander(x, len(self._to_legendre) - 1) @ self._to_legendre
        return matrix


def _sums_below(numbers: Array, edges: int, count: int) -> Array:
    """Sum of the first Legendre polynomials over the edges 0 .. n - 1, for each number n, shape (numbers, count).

    By the formula of Euler and Maclaurin, which for polynomials ends: the sum is the integral from -1/2 to n - 1/2 of
    sum_k c_k f^(2k), with (t/2) / sinh(t/2) = sum_k c_k t^(2k). So it takes the same time at any depth.
    """
    spacing = 2 / (edges - 1)
    ends = [(end - 0.5) * spacing - 1 for end in (numbers, np.zeros_like(numbers))]
    total = np.zeros((len(numbers), count))
    for k, c in enumerate(_midpoint_coefficients((count + 1) // 2)):
        for j, polynomial in enumerate(np.eye(count)):
            integral = legendre.legint(legendre.legder(polynomial, 2 * k))
            upper, lower = (legendre.legval(end, integral) for end in ends)
            total[:, j] += c * spacing ** (2 * k - 1) * (upper - lower)
    return total


def _midpoint_coefficients(count: int) -> list[float]:
    """First coefficients of (t/2) / sinh(t/2) in powers of t^2."""
    inverse = [1 / (4.0**k * math.factorial(2 * k + 1)) for k in range(count)]  # of sinh(t/2) / (t/2)
    coefficients = [1.0]
    for n in range(1, count):
        coefficients.append(-sum(inverse[k] * coefficients[n - k] for k in range(1, n + 1)))
    return coefficients
