"""The optimizers as they act on real weights: recursions in place, with buffers where they need them.

With G_t minus the gradient, every weight layer l follows

    m_{t+1} = momentum m_t + G_t - decay W_t
    W_{t+1} = W_t + lr_t m_{t+1}                                   plain and heavy-ball momentum
    W_{t+1} = W_t + lr_t (momentum m_{t+1} + G_t - decay W_t)      Nesterov

with rate and decay times the factors of the layer. Before that, G_t may be divided by its size, or be taken at other
weights. To a rule, weights are whatever arrays it is given: the matrices themselves, or coefficients of gradients.

Gradients have rank C, so each update is one or two passes over a weight and makes no copy of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, namespace
from deeplinear._experiment.in_place import add, add_outer, copied, zeros_beside
from deeplinear._experiment.network import Outer
from deeplinear._problem.optimizer import Optimizer, Scaling

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of X, X X^T X and (X X^T)^2 X in an iteration."""


@dataclass(frozen=True)
class Gradient:
    """Minus the gradient at one evaluation.

    Attributes
    ----------
    outers
        G_0 .. G_L, as they act on the weights.
    squares
        Their squared norms over N_L, shape (L + 1,) or (networks, L + 1), when asked for.
    """

    outers: list[Outer]
    squares: Callable[[], Array]


class Rule:
    """An update rule on real weights, as plain descent would have it.

    Attributes
    ----------
    weights
        Those that count: losses are theirs.
    evaluated
        Where gradients are taken; the same, unless the rule says otherwise.
    radius
        How far up the slope gradients are taken a second time, if they are.
    """

    def __init__(self, weights: list[Array]) -> None:
        self.weights = self.evaluated = weights
        self.radius: float | None = None

    def step(self, t: int, gradient: Gradient) -> None:
        """Take the weights from step t of the rule to t + 1."""
        raise NotImplementedError


class Descent(Rule):
    """Gradient descent with momentum or without, whose gradients may be divided by their size or taken up the slope.

    Parameters
    ----------
    optimizer
        The rule.
    weights
        C-ordered float64 arrays, changed by every call of ``step``.
    steps
        Number of steps of the schedules.
    rates, decays
        Factors of each weight on the learning rate and on the weight decay; 1 unless given.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        weights: list[Array],
        steps: int,
        rates: Sequence[float] | None = None,
        decays: Sequence[float] | None = None,
    ) -> None:
        super().__init__(weights)
        ones = [1.0] * len(weights)
        self._rates = _table(optimizer.rates(steps), ones if rates is None else rates)
        self._decays = _table(optimizer.decays(steps), ones if decays is None else decays)
        self._momenta, self._nesterov = optimizer.momenta(steps), optimizer.nesterov
        self._buffers = zeros_beside(weights) if self._momenta.any() else None
        self._scaler = None if optimizer.scaling is None else Scaler(optimizer.scaling)
        self.radius = optimizer.ascent

    def step(self, t: int, gradient: Gradient) -> None:
        """Take the weights from step t of the rule to t + 1."""
        outers = gradient.outers if self._scaler is None else self._scaler.scaled(t, gradient)
        mu = float(self._momenta[t])
        for layer, (weight, outer) in enumerate(zip(self.weights, outers, strict=True)):
            lr, decay = float(self._rates[t, layer]), float(self._decays[t, layer])
            if self._buffers is None:
                add_outer(weight, outer, lr, keep=1.0 - lr * decay)
                continue
            momentum = self._buffers[layer]
            add_outer(momentum, outer, keep=mu)
            if decay:
                add(momentum, weight, -decay)
            if self._nesterov:
                add_outer(weight, outer, lr, keep=1.0 - lr * decay)
                add(weight, momentum, lr * mu)
            else:
                add(weight, momentum, lr)


class Scaler:
    """Divides gradients by their size: where they are too large, or by the root of a running mean of its square.

    Parameters
    ----------
    scaling
        The rule.
    """

    def __init__(self, scaling: Scaling) -> None:
        self._rule = scaling
        self._mean: Array | float = 0.0

    def scaled(self, t: int, gradient: Gradient) -> list[Outer]:
        """Return the gradients of step t of the rule after division; a gradient of zero stays zero."""
        squares, rule = gradient.squares(), self._rule
        xp = namespace(squares)
        if not rule.by_layer:
            squares = xp.broadcast_to(xp.sum(squares, axis=-1, keepdims=True), squares.shape)
        if rule.clip is None:
            self._mean = rule.beta2 * self._mean + (1.0 - rule.beta2) * squares
            squares = self._mean / (1.0 - rule.beta2 ** (t + 1))
        norms = xp.sqrt(squares)
        inverse = 1.0 / xp.where(norms > 0, norms, xp.ones_like(norms))
        factors = inverse if rule.clip is None else xp.clip(rule.clip * inverse, None, 1.0)
        if rule.clip is not None:
            factors = xp.where(norms > 0, factors, xp.ones_like(norms))
        return [outer.times(factors[..., layer]) for layer, outer in enumerate(gradient.outers)]


class Ascent:
    """Goes up the slope and back, in place.

    Parameters
    ----------
    weights
        Those that are moved.
    gradient
        Minus the gradient there.
    radius
        How far, in norms of all weights over sqrt(N_L).
    """

    def __init__(self, weights: list[Array], gradient: Gradient, radius: float) -> None:
        squares = gradient.squares()
        xp = namespace(squares)
        norm = xp.sqrt(xp.sum(squares, axis=-1))
        step = radius / xp.where(norm > 0, norm, xp.ones_like(norm))
        self._weights = weights
        self._outers = [outer.times(step) for outer in gradient.outers]

    def __enter__(self) -> None:
        self._move(-1.0)

    def __exit__(self, *error: object) -> None:
        self._move(1.0)

    def _move(self, factor: float) -> None:
        for weight, outer in zip(self._weights, self._outers, strict=True):
            add_outer(weight, outer, factor)


class Muon(Rule):
    """Orthogonal steps for hidden matrices, plain ones for the rest; explicit weights only.

    With X the momentum after iterations of Newton and Schulz, W_l <- W_l + lr sqrt(N_{l+1}) X: weights of layer l act
    divided by sqrt(N_l), so that a step has the size sqrt(N_{l+1} / N_l) lr, which keeps features of order one.

    Parameters
    ----------
    optimizer
        The rule, with ``orthogonal``.
    weights, steps
        As in ``Descent``.
    rates, decays
        As in ``Descent``, for the weights that take no orthogonal steps.
    """

    def __init__(
        self, optimizer: Optimizer, weights: list[Array], steps: int, rates: Sequence[float], decays: Sequence[float]
    ) -> None:
        super().__init__(weights)
        assert optimizer.orthogonal is not None
        self._rule, self._rates = optimizer.orthogonal, optimizer.rates(steps)
        self._layers = range(0 if self._rule.input else 1, len(weights) - 1)
        self._momenta = zeros_beside([weights[layer] for layer in self._layers])
        self._rest = [layer for layer in range(len(weights)) if layer not in self._layers]
        own = [weights[layer] for layer in self._rest]
        factors = ([each[layer] for layer in self._rest] for each in (rates, decays))
        self._plain = Descent(optimizer.plain, own, steps, *factors)

    def step(self, t: int, gradient: Gradient) -> None:
        """Take the weights from step t of the rule to t + 1."""
        outers = gradient.outers
        for layer, momentum in zip(self._layers, self._momenta, strict=True):
            weight = self.weights[layer]
            add_outer(momentum, outers[layer], keep=self._rule.momentum)
            ahead = momentum
            if self._rule.nesterov:
                ahead = self._rule.momentum * momentum
                add_outer(ahead, outers[layer])
            fan_out = weight.shape[-2]
            add(weight, orthogonal(ahead, self._rule.iterations), float(self._rates[t]) * fan_out**0.5)
        self._plain.step(t, Gradient([outers[layer] for layer in self._rest], gradient.squares))


def orthogonal(matrix: Array, iterations: int) -> Array:
    """Return a matrix of Frobenius norm 1 along ``matrix`` after iterations of Newton and Schulz; zero stays zero.

    Examples
    --------
    >>> orthogonal(np.diag([1.0, 0.5]), iterations=5).round(2)
    array([[0.69, 0.  ],
           [0.  , 1.11]])
    """
    xp = namespace(matrix)
    norm = xp.sqrt(xp.sum(matrix * matrix, axis=(-2, -1), keepdims=True))
    x: Array = matrix / xp.where(norm > 0, norm, xp.ones_like(norm))
    a, b, c = NEWTON_SCHULZ
    is_tall = x.shape[-2] > x.shape[-1]
    for _ in range(iterations):
        gram = x.mT @ x if is_tall else x @ x.mT
        polynomial = b * gram + c * (gram @ gram)
        x = a * x + (x @ polynomial if is_tall else polynomial @ x)
    return x


class ScheduleFree(Rule):
    """Gradients between fast weights z and their mean x, which counts.

    y = (1 - beta) z + beta x, then z <- z + lr G and x <- (1 - c) x + c z with c = 1 / (t + 2).

    Parameters
    ----------
    optimizer
        The rule, with ``averaging``.
    weights, steps, rates
        As in ``Descent``; the weights become x.
    """

    def __init__(self, optimizer: Optimizer, weights: list[Array], steps: int, rates: Sequence[float]) -> None:
        super().__init__(weights)
        assert optimizer.averaging is not None
        self._beta, self._rates = optimizer.averaging, _table(optimizer.rates(steps), rates)
        self._fast = [copied(weight) for weight in weights]
        self.evaluated = [copied(weight) for weight in weights]

    def step(self, t: int, gradient: Gradient) -> None:
        """Take all weights from step t of the rule to t + 1."""
        c = 1.0 / (t + 2)
        everything = zip(self.weights, self._fast, self.evaluated, gradient.outers, strict=True)
        for layer, (mean, fast, between, outer) in enumerate(everything):
            add_outer(fast, outer, float(self._rates[t, layer]))
            add(mean, fast, c, keep=1.0 - c)
            add(between, mean, self._beta, keep=0.0)
            add(between, fast, 1.0 - self._beta)


def rule_of(
    optimizer: Optimizer, weights: list[Array], steps: int, rates: Sequence[float], decays: Sequence[float]
) -> Rule:
    """Return the rule of an optimizer on some weights; arguments are as in ``Descent``."""
    if optimizer.orthogonal is not None:
        return Muon(optimizer, weights, steps, rates, decays)
    if optimizer.averaging is not None:
        return ScheduleFree(optimizer, weights, steps, rates)
    return Descent(optimizer, weights, steps, rates, decays)


def _table(steps: NDArray[np.float64], layers: Sequence[float]) -> NDArray[np.float64]:
    """Numbers of every step and layer, shape (steps, layers)."""
    table: NDArray[np.float64] = np.asarray(steps)[:, None] * np.asarray(layers)
    return table
