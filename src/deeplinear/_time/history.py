"""The past of a run, known at fewer and fewer nodes the longer ago it is.

What a step needs of the past are sums over earlier steps s of products of two functions, one of which belongs to the
step: x(s), a row of a response or of a correlation. The longer ago s is, the more slowly such rows vary, since what
varied fast has been forgotten. On a block of m steps a row then is a polynomial of degree below p, or one on its even
and another on its odd steps where training alternates, and p numbers say it all. Gauss's rule for sums over m steps,

    sum_s f(s) = sum_k w_k f(s_k)       for polynomials f of degree below 2 p

gives p nodes s_k with weights w_k. With the Lagrange polynomials L(s, k) of these nodes and P = W^-1 L^T, where
P L = 1,

    values       y(s) = sum_k L(s, k) y_k        so that    y_k = sum_s P(k, s) y(s)
    moments      x_k = sum_s x(s) L(s, k)        so that    sum_s x(s) y(s) = sum_k x_k y_k
    densities    v_k = v(s_k) / w_k              for noise that is white in time: sum_s x(s) v(s) y(s)

Two blocks become one of twice the length in the same way, with the nodes for steps. Nothing is assumed of what is
summed against a row: correlations may have a kink, responses a jump, and noise may be white.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BLOCK_NODES = 16
"""Nodes of a block."""


class Condensation(NamedTuple):
    """How the nodes, or steps, of some blocks become those of one."""

    first: int  # the first of the nodes that are replaced
    replaced: int  # how many these are
    values: Array  # P, shape (new, old)
    moments: Array  # L^T, shape (new, old)
    densities: Array  # shape (new, old)
    lost: Array  # what is left of moments, 1 - L P, shape (old, old); of values it is the transpose

    def of_outputs(self, outputs: int) -> "Condensation":
        """Return the same for rows, of which each time has several."""
        if outputs == 1:
            return self
        one = np.eye(outputs)
        spread = (np.kron(each, one) for each in (self.values, self.moments, self.densities, self.lost))
        return Condensation(outputs * self.first, outputs * self.replaced, *spread)


@dataclass(frozen=True)
class Block:
    """Consecutive steps that are known at ``BLOCK_NODES`` nodes.

    Attributes
    ----------
    start, length
        The first step, which is even, and the number of steps, which is even as well. A block of ``BLOCK_NODES`` steps
        has them for nodes.
    alternates
        Whether even and odd steps have nodes of their own, first the even ones.

    Examples
    --------
    >>> Block(32, 16).nodes[:3]
    array([32., 33., 34.])
    >>> block = Block(0, 100)
    >>> round(float(block.weights @ block.nodes**3), 3), sum(step**3 for step in range(100))
    (24502500.0, 24502500)
    """

    start: int
    length: int
    alternates: bool = False

    @property
    def nodes(self) -> Array:
        """Times of the nodes, shape (BLOCK_NODES,)."""
        if self.length == BLOCK_NODES:
            return self.start + np.arange(BLOCK_NODES, dtype=float)
        if not self.alternates:
            return self.start + _rule(self.length, BLOCK_NODES)[0]
        half = 2.0 * _rule(self.length // 2, BLOCK_NODES // 2)[0]
        return self.start + np.concatenate([half, 1.0 + half])

    @property
    def weights(self) -> Array:
        """Steps that each node stands for, shape (BLOCK_NODES,)."""
        if self.length == BLOCK_NODES:
            return np.ones(BLOCK_NODES)
        if not self.alternates:
            return _rule(self.length, BLOCK_NODES)[1]
        return np.tile(_rule(self.length // 2, BLOCK_NODES // 2)[1], 2)

    def _odd(self) -> Array:
        """Which nodes belong to odd steps."""
        nodes = np.arange(BLOCK_NODES)
        return nodes % 2 == 1 if self.length == BLOCK_NODES else nodes >= BLOCK_NODES // 2

    def basis(self, other: "Block") -> Array:
        """Lagrange polynomials of this block at the nodes of another one within it, a square matrix."""
        return self._basis(other.nodes, other._odd())

    def at(self, steps: Array) -> Array:
        """Lagrange polynomials of this block at whole steps within it, shape (steps, BLOCK_NODES)."""
        return self._basis(np.asarray(steps, float), np.asarray(steps) % 2 == 1)

    def _basis(self, times: Array, odd: Array) -> Array:
        if not self.alternates:
            return _lagrange(self.nodes, times)
        polynomials = _lagrange(self.nodes[: BLOCK_NODES // 2], times - odd)
        return np.concatenate([polynomials * ~odd[:, None], polynomials * odd[:, None]], axis=1)


def joined(first: Block, second: Block, alternates: bool) -> Block | None:
    """Return two neighbouring blocks as one; None if what alternates in it is not known any more."""
    if alternates and not all(each.alternates or each.length == BLOCK_NODES for each in (first, second)):
        return None
    return Block(first.start, first.length + second.length, alternates)


def condensation(first: Block, second: Block, block: Block, position: int) -> Condensation:
    """Return how two neighbours become one block; ``position`` is that of the first node of the first of them."""
    how = _from_zero(first.length, first.alternates, second.length, second.alternates, block.alternates)
    return how._replace(first=position)


@lru_cache(maxsize=1024)
def _from_zero(length: int, alternates: bool, then: int, then_alternates: bool, both_alternate: bool) -> Condensation:
    """How a block and then another become one, which depends on their lengths only."""
    first, second = Block(0, length, alternates), Block(length, then, then_alternates)
    block = Block(0, length + then, both_alternate)
    L = np.concatenate([block.basis(first), block.basis(second)])
    old, new = np.concatenate([first.weights, second.weights]), block.weights
    P = (L * old[:, None]).T / new[:, None]  # eq-condensed
    return Condensation(0, 2 * BLOCK_NODES, P, L.T, P * old / new[:, None], np.eye(2 * BLOCK_NODES) - L @ P)


@lru_cache(maxsize=256)
def _rule(length: int, count: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss's rule for sums over 0 .. length - 1, from the polynomials orthogonal over these."""
    n = np.arange(1, count)
    beside = np.sqrt(n**2 * (float(length) ** 2 - n**2) / (4.0 * (4.0 * n**2 - 1.0)))
    nodes, vectors = np.linalg.eigh(np.diag(beside, 1) + np.diag(beside, -1))
    return (length - 1) / 2 + nodes, length * vectors[0] ** 2


def _lagrange(nodes: Array, times: Array) -> Array:
    """Lagrange polynomials of some nodes at some times, shape (times, nodes), by the barycentric formula."""
    differences = (nodes[:, None] - nodes) * 4.0 / (nodes[-1] - nodes[0])
    np.fill_diagonal(differences, 1.0)
    distance = times[:, None] - nodes
    at_node = np.abs(distance) < 1e-12 * (nodes[-1] - nodes[0])
    terms = 1.0 / differences.prod(axis=1) / np.where(at_node, 1.0, distance)
    values: Array = terms / terms.sum(axis=1, keepdims=True)
    return np.where(at_node.any(axis=1)[:, None], at_node.astype(float), values)
