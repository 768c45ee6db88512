"""Update rules as the slow reference has them: on weights that are combinations of initial values and gradients.

A weight layer is W = d W(0) + sum_{i, i'} X(i, i') g(i) h(i')^T, with one entry of X for each pair of (row, output)
pairs. Rules act on (d, X) as optimisers act on weights, and are written down in the same way.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._problem.phase import Stage
from deeplinear._problem.problem import Problem
from deeplinear._problem.sampling import MultiPassSGD, OnlineSGD
from deeplinear._rules.averages import Average
from deeplinear._rules.binding import bound, numbers_of
from deeplinear._rules.numbers import Numbers
from deeplinear._rules.rule import Look, Rule
from deeplinear._rules.vectors import Memory, Vector

Array = NDArray[Any]

_A, _B, _C = 3.4445, -4.7750, 2.0315
"""Coefficients of the iteration of Newton and Schulz."""


@dataclass(frozen=True)
class Row:
    """An evaluation of the network.

    Attributes
    ----------
    d, X
        Of every weight layer, first to last.
    roles
        ``"reported"`` if its losses are those of a step, ``"shown"`` if correlations are, or of which average it is.
    stage, phase
        The phase of training that it belongs to, and its number.
    data_set
        Number of the examples that it sees.
    batch
        Size of the batch of its step, where batches are drawn.
    shares_batch
        Whether another row of its step sees the same batch.
    step
        Number of its step.
    """

    d: list[float]
    X: list[Array]
    roles: tuple[str, ...]
    stage: Stage
    phase: int
    data_set: float
    batch: float
    shares_batch: bool
    step: int


class _Weight:
    """(d, X) of one layer, which add up and are scaled as weights are."""

    __array_ufunc__ = None  # so that numbers of NumPy scale them too

    def __init__(self, d: float, X: Array) -> None:
        self.d, self.X = d, X

    def __add__(self, other: "_Weight") -> "_Weight":
        return _Weight(self.d + other.d, self.X + other.X)

    def __rmul__(self, factor: float) -> "_Weight":
        return _Weight(factor * self.d, factor * self.X)


Correlations = list[tuple[Array, Array]]
"""Of the fields around each layer so far: C_g above and C_h below."""


class _Weights(Vector):
    """All layers, with the operations of a rule done at once and one by one."""

    __slots__ = ("asked", "layers")

    def __init__(self, layers: list[_Weight], asked: "_Asked") -> None:
        self.layers, self.asked = layers, asked

    def keep_as(self, name: str) -> None:
        """Nothing is to be done: it is what it is."""

    @property
    def base(self) -> int:
        """Not counted here."""
        return 0

    def only(self, *layers: str) -> "_Weights":
        """Return the same in some layers, and zero in the rest."""
        roles = ["input", *["hidden"] * (len(self.layers) - 2), "readout"]
        pairs = zip(roles, self.layers, strict=True)
        return _Weights([(1.0 if role in layers else 0.0) * layer for role, layer in pairs], self.asked)

    def __add__(self, other: Any) -> "_Weights":
        pairs = zip(self.layers, other.layers, strict=True)
        return _Weights([one + two for one, two in pairs], self.asked)

    def __sub__(self, other: Any) -> "_Weights":
        difference: _Weights = self + -1.0 * other
        return difference

    def __mul__(self, number: Any) -> "_Weights":
        values = number.values[:, 0] if isinstance(number, Numbers) else [number]
        every = values if len(values) > 1 else [values[0]] * len(self.layers)
        return _Weights([each * layer for each, layer in zip(every, self.layers, strict=True)], self.asked)

    __rmul__ = __mul__

    def inners(self, other: Any) -> Numbers:
        """Inner products by layer: sums of X_1 with C_g X_2 C_h."""
        found = []
        for layer, (one, two) in enumerate(zip(self.layers, other.layers, strict=True)):
            if one.d or two.d:
                raise ValueError("the reference has no size of initial weights")
            above, below = self.asked.correlations[layer]
            rows = len(above)
            product = np.sum(one.X[:rows, :rows] * (above @ two.X[:rows, :rows] @ below))
            found.append([self.asked.squared_factors[layer] * product])
        return Numbers(np.array(found))

    def orthogonal(self, iterations: int = 5) -> "_Weights":
        """Return what iterations of Newton and Schulz make of each layer, of the size of initial weights."""
        made = []
        for layer, one in enumerate(self.layers):
            factor = self.asked.factors[layer]
            X = newton_schulz(one.X, *self.asked.correlations[layer], iterations)
            made.append((1.0 / factor if factor else 0.0) * _Weight(0.0, X))
        return _Weights(made, self.asked)


class _Asked:
    """What rules ask for: correlations, and the factors in front of the gradients of all layers."""

    def __init__(self, problem: Problem) -> None:
        network = problem.network
        L, nu = network.layers, np.array(network.widths)
        nu = nu if np.isfinite(nu[0]) else np.ones(L)
        branches = [network.branch_factor if network.skip and 0 < layer < L else 1.0 for layer in range(L + 1)]
        ratios = [*(nu / nu[-1]), 1.0]
        self.correlations: Correlations = []
        self.factors = [network.gamma0 * branch for branch in branches]
        self.squared_factors = [ratio * each**2 for ratio, each in zip(ratios, self.factors, strict=True)]


def correlations_around(problem: Problem, Cg: Array, Ch: Array) -> Correlations:
    """Return what rules look at after an evaluation."""
    outputs, L, rows = problem.data.outputs, problem.network.layers, len(Ch[0])
    one = np.kron(np.ones((rows // outputs, rows // outputs)), np.eye(outputs))
    return [(one if layer == L else Cg[layer + 1], Ch[layer]) for layer in range(L + 1)]


def train(problem: Problem, averages: Sequence[Average]) -> Generator[Row | None, Correlations, None]:
    """Train: yield every row to be evaluated, and be sent what rules look at; None at the end."""
    C, layers = problem.data.outputs, problem.network.layers + 1
    most = problem.steps * (2 + len(averages)) * C  # rows, at most
    asked, memory = _Asked(problem), Memory({})
    W = _Weights([_Weight(1.0, np.zeros((most, most))) for _ in range(layers)], asked)
    past: list[list[_Weight]] = []
    row, data_set = 0, 0.0
    shares = [average.weights(problem.steps) for average in averages]

    for phase, stage in enumerate(problem.stages):
        rule, traits = stage.optimizer, stage.optimizer.traits
        numbers = numbers_of(rule, stage.of, layers - 2, problem.units)
        if stage.since == 0:
            memory = Memory({})
        data_set += stage.new_samples
        fresh = stage.sampling.fresh and stage.sampling.subsamples
        batches = _batches(stage)
        for step in range(stage.steps):
            now = stage.since + step
            data_set += fresh
            at = _Moment(stage, phase, data_set, fresh, batches[stage.since_samples + step], stage.start + step).row
            past.append(W.layers)
            taken = _at(rule, numbers, now).step(W, memory, now)
            roles = ("shown",) if traits.elsewhere else ("reported", "shown")
            asked.correlations = yield at(_looked(next(taken)), *roles, shares_batch=traits.looks > 1)
            G = _gradient(row, C, most, asked, layers)
            row += 1
            for index, share in enumerate(shares):
                weights = [_combined(share[len(past) - 1], [one[layer] for one in past]) for layer in range(layers)]
                yield at(weights, f"average {index}", own_data=True)
                row += 1
            if traits.elsewhere:
                yield at(W.layers, "reported", own_data=True)
                row += 1
            try:
                while True:
                    asked.correlations = yield at(_looked(taken.send(G)), shares_batch=True)
                    G = _gradient(row, C, most, asked, layers)
                    row += 1
            except StopIteration as stop:
                W = stop.value
    yield None


def _at(rule: Rule, numbers: dict[str, Array], t: int) -> Rule:
    """Return a rule with its numbers at a step."""
    return bound(
        rule, {name: Numbers(values[t if len(values) > 1 else 0][:, None]) for name, values in numbers.items()}
    )


def _looked(look: Look) -> list[_Weight]:
    """Weights of all layers at which a rule looks."""
    assert isinstance(look.weights, _Weights)
    return look.weights.layers


@dataclass(frozen=True)
class _Moment:
    """A step of training, at which rows are evaluated; as in ``Row``, and whether its samples are ``fresh``."""

    stage: Stage
    phase: int
    data_set: float
    fresh: bool
    batch: float
    step: int

    def row(self, weights: list[_Weight], *roles: str, own_data: bool = False, shares_batch: bool = False) -> Row:
        """Return the row of these weights; ``own_data`` if it sees other samples than training does, where fresh."""
        number, d, X = self.data_set + 0.5 * (own_data and self.fresh), [w.d for w in weights], [w.X for w in weights]
        return Row(d, X, roles, self.stage, self.phase, number, self.batch, shares_batch, self.step)


def newton_schulz(M: Array, above: Array, below: Array, iterations: int) -> Array:
    """Bring a combination of outer products closer to an orthogonal matrix, given the correlations of its fields."""
    rows = len(above)
    X = M[:rows, :rows]
    square = np.sum((above @ X @ below) * X)
    X = X / np.sqrt(square) if square else np.zeros_like(X)
    for _ in range(iterations):
        S = X @ below @ X.T @ above
        X = _A * X + _B * S @ X + _C * S @ S @ X
    return np.pad(X, (0, len(M) - rows))


def _batches(stage: Stage) -> Array:
    """Size of the batch at each step of the sampling rule; 1 where none are drawn."""
    match stage.sampling:
        case OnlineSGD() | MultiPassSGD():
            return stage.sampling.batches(stage.of_samples)
    return np.ones(stage.of_samples)


def _gradient(row: int, outputs: int, most: int, asked: _Asked, layers: int) -> _Weights:
    """The gradient of a row: one outer product for each output, in every layer."""
    X = np.zeros((most, most))
    own = range(row * outputs, (row + 1) * outputs)
    X[own, own] = 1.0
    return _Weights([_Weight(0.0, X)] * layers, asked)


def _combined(shares: Array, weights: list[_Weight]) -> _Weight:
    total = 0.0 * weights[0]
    for share, weight in zip(shares, weights, strict=False):
        total = total + share * weight
    return total
