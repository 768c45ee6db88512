"""More rules as they act on real weights: orthogonal steps, and gradients between weights and their mean."""

from deeplinear._core.arrays import Array, namespace
from deeplinear._experiment.descent import Descent, Factors, Gradient, Rule, by_layer
from deeplinear._experiment.in_place import add, add_outer, copied, zeros_beside
from deeplinear._rules.rule import Optimizer

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of X, X X^T X and (X X^T)^2 X in an iteration."""


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
    factors
        Of each weight.
    """

    def __init__(self, optimizer: Optimizer, weights: list[Array], steps: int, factors: Factors) -> None:
        super().__init__(weights)
        assert optimizer.orthogonal is not None
        self._rule, self._rates = optimizer.orthogonal, by_layer(optimizer.rates(steps), factors.orthogonal)
        self._layers = range(0 if self._rule.input else 1, len(weights) - 1)
        self._momenta = zeros_beside([weights[layer] for layer in self._layers])
        self._rest = [layer for layer in range(len(weights)) if layer not in self._layers]
        own = [weights[layer] for layer in self._rest]
        self._plain = Descent(optimizer.plain, own, steps, factors.of(self._rest))

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
            add(weight, orthogonal(ahead, self._rule.iterations), float(self._rates[t, layer]) * fan_out**0.5)
        self._plain.step(t, Gradient([outers[layer] for layer in self._rest], gradient.squares))


def orthogonal(matrix: Array, iterations: int) -> Array:
    """Return a matrix of Frobenius norm 1 along ``matrix`` after iterations of Newton and Schulz; zero stays zero.

    Examples
    --------
    >>> import numpy as np
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
    weights, steps, factors
        As in ``Descent``; the weights become x.
    """

    def __init__(self, optimizer: Optimizer, weights: list[Array], steps: int, factors: Factors) -> None:
        super().__init__(weights)
        assert optimizer.averaging is not None
        self._beta, self._rates = optimizer.averaging, by_layer(optimizer.rates(steps), factors.rates)
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


def rule_of(optimizer: Optimizer, weights: list[Array], steps: int, factors: Factors) -> Rule:
    """Return the rule of an optimizer on some weights; arguments are as in ``Descent``."""
    if optimizer.orthogonal is not None:
        return Muon(optimizer, weights, steps, factors)
    if optimizer.averaging is not None:
        return ScheduleFree(optimizer, weights, steps, factors)
    return Descent(optimizer, weights, steps, factors)
