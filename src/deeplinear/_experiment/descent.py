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

from deeplinear._core.arrays import Array, beside, namespace
from deeplinear._experiment.in_place import add, add_outer, zeros_beside
from deeplinear._experiment.network import Outer
from deeplinear._rules.rule import Optimizer, Scaling


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


@dataclass(frozen=True)
class Factors:
    """Factors of each weight layer, first to last.

    Attributes
    ----------
    rates, decays
        On the learning rate and on the weight decay.
    sizes
        On the squared norm of its gradient where that is divided by.
    orthogonal
        On the learning rate of orthogonal steps.
    """

    rates: Sequence[float]
    decays: Sequence[float]
    sizes: Sequence[float]
    orthogonal: Sequence[float]

    @classmethod
    def none(cls, layers: int) -> "Factors":
        """All of them 1."""
        return cls(*[[1.0] * layers] * 4)

    def of(self, layers: Sequence[int]) -> "Factors":
        """Those of some layers."""
        every = (self.rates, self.decays, self.sizes, self.orthogonal)
        return Factors(*([each[layer] for layer in layers] for each in every))


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
    factors
        Of each weight; 1 unless given.
    """

    def __init__(self, optimizer: Optimizer, weights: list[Array], steps: int, factors: Factors | None = None) -> None:
        super().__init__(weights)
        factors = factors or Factors.none(len(weights))
        self._rates = by_layer(optimizer.rates(steps), factors.rates)
        self._decays = by_layer(optimizer.decays(steps), factors.decays)
        self._momenta, self._nesterov = optimizer.momenta(steps), optimizer.nesterov
        self._buffers = zeros_beside(weights) if self._momenta.any() else None
        self._scaler = None if optimizer.scaling is None else Scaler(optimizer.scaling, factors.sizes)
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
    sizes
        Factors on the squared norms of all layers.
    """

    def __init__(self, scaling: Scaling, sizes: Sequence[float]) -> None:
        self._rule, self._sizes = scaling, sizes
        self._mean: Array | float = 0.0

    def scaled(self, t: int, gradient: Gradient) -> list[Outer]:
        """Return the gradients of step t of the rule after division; a gradient of zero stays zero."""
        squares, rule = gradient.squares(), self._rule
        xp = namespace(squares)
        squares = squares * beside(np.asarray(self._sizes), squares)
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


def by_layer(steps: NDArray[np.float64], layers: Sequence[float]) -> NDArray[np.float64]:
    """Numbers of every step and layer, shape (steps, layers)."""
    table: NDArray[np.float64] = np.asarray(steps)[:, None] * np.asarray(layers)
    return table
