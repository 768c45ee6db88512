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

    def __init__(self, d: float, X: Array) -> None:
        self.d, self.X = d, X

    def __add__(self, other: "_Weight") -> "_Weight":
        return _Weight(self.d + other.d, self.X + other.X)

    def __rmul__(self, factor: float) -> "_Weight":
        return _Weight(factor * self.d, factor * self.X)


Sizes = tuple[list[float], list[tuple[Array, Array]]]
"""Squared norms of the last gradients of all layers, and the correlations (C_g above, C_h below) of each layer."""


def gradient_sizes(problem: Problem, Cg: Array, Ch: Array) -> Sizes:
    """Return what rules look at after an evaluation: norms are over the root of the last width."""
    network, C = problem.network, problem.data.outputs
    L, gamma0 = network.layers, network.gamma0
    nu = np.array(network.widths) if np.isfinite(network.widths[0]) else np.ones(L)
    last, squares, correlations = slice(-C, None), [], []
    for layer in range(L + 1):
        rows = len(Ch[0])
        above = np.kron(np.ones((rows // C, rows // C)), np.eye(C)) if layer == L else Cg[layer + 1]
        branch = network.branch_factor if network.skip and 0 < layer < L else 1.0
        ratio = 1.0 if layer == L else nu[layer] / nu[-1]
        squares.append(float(ratio * (branch * gamma0) ** 2 * np.sum(above[last, last] * Ch[layer][last, last])))
        correlations.append((above, Ch[layer]))
    return squares, correlations


def train(problem: Problem, averages: Sequence[Average]) -> Generator[Row | None, Sizes, None]:
    """Train: yield every row to be evaluated, and be sent what rules look at; None at the end."""
    C, layers = problem.data.outputs, problem.network.layers + 1
    most = problem.steps * (2 + len(averages)) * C  # rows, at most
    W = [_Weight(1.0, np.zeros((most, most))) for _ in range(layers)]
    x = list(W)  # the mean of the weights, for rules that keep it
    past: list[list[_Weight]] = []
    row, data_set = 0, 0.0
    shares = [average.weights(problem.steps) for average in averages]

    for phase, stage in enumerate(problem.stages):
        rule = stage.optimizer
        if stage.since == 0:
            W = list(x) if phase and problem.stages[phase - 1].optimizer.averaging is not None else W
            buffers = _Buffers([0.0 * w for w in W], np.zeros(layers))
            x = list(W)
        data_set += stage.new_samples
        fresh = stage.sampling.fresh and stage.sampling.subsamples
        batches, update = _batches(stage), _Update(problem, stage, buffers)
        for step in range(stage.steps):
            now = stage.since + step
            data_set += fresh
            at = _Moment(stage, phase, data_set, fresh, batches[stage.since_samples + step], stage.start + step).row
            past.append(list(W if rule.averaging is None else x))
            if rule.averaging is not None:
                y = [(1.0 - rule.averaging) * w + rule.averaging * mean for w, mean in zip(W, x, strict=True)]
                sizes = yield at(y, "shown")
            else:
                sizes = yield at(W, "reported", "shown", shares_batch=rule.ascent is not None)
            G = [_gradient(row, C, most) for _ in W]
            row += 1
            for index, share in enumerate(shares):
                weights = [_combined(share[len(past) - 1], [one[layer] for one in past]) for layer in range(layers)]
                yield at(weights, f"average {index}", own_data=True)
                row += 1
            if rule.averaging is not None:
                yield at(x, "reported", own_data=True)
                row += 1
            if rule.ascent is not None:
                up = rule.ascent / np.sqrt(sum(sizes[0])) if sum(sizes[0]) else 0.0
                sizes = yield at([w + -up * g for w, g in zip(W, G, strict=True)], shares_batch=True)
                G = [_gradient(row, C, most) for _ in W]
                row += 1
            W = update(now, W, G, sizes)
            if rule.averaging is not None:
                c = 1.0 / (now + 2)
                x = [(1.0 - c) * mean + c * w for mean, w in zip(x, W, strict=True)]
    yield None


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


@dataclass
class _Buffers:
    """What rules keep between steps: momentum and mean squared size of each layer, and the number of gradients."""

    m: list[_Weight]
    v: Array
    seen: int = 0


class _Update:
    """The update of all weights in one phase, which goes on with the buffers of another where that is its own."""

    def __init__(self, problem: Problem, stage: Stage, buffers: _Buffers) -> None:
        rule = stage.optimizer
        self._problem, self._stage, self._rule, self._buffers = problem, stage, rule, buffers
        self._factors, self._decays = problem.layer_rates(rule), problem.layer_decays(rule)
        self._own, self._counted = problem.orthogonal_rates(), problem.size_factors(rule)

    def __call__(self, now: int, W: list[_Weight], G: list[_Weight], sizes: Sizes) -> list[_Weight]:
        """Return the weights after a step, given gradients and what the rule looks at."""
        plain, of = self._rule.plain, self._stage.of
        mu, kappa = plain.momenta(of)[now], self._decays * plain.decays(of)[now]
        eta, scales, m = self._factors * plain.rates(of)[now], self._scales(sizes[0]), self._buffers.m
        updated = []
        for layer, (w, g) in enumerate(zip(W, G, strict=True)):
            if self._is_orthogonal(layer):
                updated.append(w + self._orthogonal_step(now, layer, g, sizes[1][layer]))
                continue
            force = scales[layer] * g + -kappa[layer] * w
            m[layer] = mu * m[layer] + force
            updated.append(w + eta[layer] * (mu * m[layer] + force if plain.nesterov else m[layer]))
        return updated

    def _scales(self, sizes: list[float]) -> list[float]:
        """Factors on the gradients of all layers."""
        scaling, kept = self._rule.scaling, self._buffers
        squares = self._counted * np.array(sizes)
        kept.seen += 1
        if scaling is None:
            return [1.0] * len(squares)
        if not scaling.by_layer:
            squares = np.full(len(squares), squares.sum())
        if scaling.clip is not None:
            return [min(1.0, scaling.clip / np.sqrt(square)) if square else 1.0 for square in squares]
        beta2 = scaling.beta2
        kept.v = beta2 * kept.v + (1.0 - beta2) * squares
        return [1.0 / np.sqrt(v / (1.0 - beta2**kept.seen)) if v else 0.0 for v in kept.v]  # 0: nothing to divide

    def _is_orthogonal(self, layer: int) -> bool:
        """Whether a layer takes orthogonal steps: hidden ones do, and the first where the rule says so."""
        orthogonal, last = self._rule.orthogonal, self._problem.network.layers
        return orthogonal is not None and (0 < layer < last or (layer == 0 and orthogonal.input))

    def _orthogonal_step(self, now: int, layer: int, g: _Weight, correlations: tuple[Array, Array]) -> _Weight:
        rule, network, m = self._rule.orthogonal, self._problem.network, self._buffers.m
        assert rule is not None
        m[layer] = rule.momentum * m[layer] + g
        M = rule.momentum * m[layer] + g if rule.nesterov else m[layer]
        X = newton_schulz(M.X, *correlations, rule.iterations)
        branch, rate = network.branch_factor if layer else 1.0, self._rule.rates(self._stage.of)[now]
        lr = self._own[layer] * rate / (network.gamma0 * branch) if branch else 0.0
        return lr * _Weight(0.0, X)


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


def _gradient(row: int, outputs: int, most: int) -> _Weight:
    """The gradient of a row: one outer product for each output."""
    X = np.zeros((most, most))
    own = range(row * outputs, (row + 1) * outputs)
    X[own, own] = 1.0
    return _Weight(0.0, X)


def _combined(shares: Array, weights: list[_Weight]) -> _Weight:
    total = 0.0 * weights[0]
    for share, weight in zip(shares, weights, strict=False):
        total = total + float(share) * weight
    return total
