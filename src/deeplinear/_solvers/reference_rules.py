"""Update rules as the slow reference has them: on weights that are combinations of initial values and gradients.

A weight layer is W = d W(0) + sum_{i, i'} X(i, i') g(i) h(i')^T, with one entry of X for each pair of (row, output)
pairs. Rules act on (d, X) as optimisers act on weights, and are written down in the same way.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._problem.averages import Average
from deeplinear._problem.phase import Stage
from deeplinear._problem.problem import Problem
from deeplinear._problem.sampling import MultiPassSGD, OnlineSGD

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
        rule, plain = stage.optimizer, stage.optimizer.plain
        if stage.since == 0:
            W = list(x) if phase and problem.stages[phase - 1].optimizer.averaging is not None else W
            m, v, seen = [0.0 * w for w in W], np.zeros(layers), 0
            x = list(W)
        data_set += stage.new_samples
        fresh = stage.sampling.fresh and stage.sampling.subsamples
        batches = _batches(stage)
        factors, decays = problem.layer_rates(rule), problem.layer_decays(rule)
        own, counted = problem.orthogonal_rates(), problem.size_factors(rule)
        for step in range(stage.steps):
            now = stage.since + step
            mu, kappa = plain.momenta(stage.of)[now], decays * plain.decays(stage.of)[now]
            eta = factors * plain.rates(stage.of)[now]
            data_set += fresh

            def at(weights: list[_Weight], *roles: str, own_data: bool = False, shares_batch: bool = False) -> Row:
                number = data_set + 0.5 * (own_data and fresh)  # noqa: B023  # it is called at once
                return Row(
                    [w.d for w in weights], [w.X for w in weights], roles, stage, phase, number,  # noqa: B023
                    batches[stage.since_samples + step], shares_batch, stage.start + step,  # noqa: B023
                )  # fmt: skip

            reported = x if rule.averaging is not None else W
            past.append(list(reported))
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

            squares, correlations = counted * np.array(sizes[0]), sizes[1]
            if rule.scaling is not None and not rule.scaling.by_layer:
                squares = np.full(layers, squares.sum())
            seen += 1
            for layer in range(layers):
                scale = 1.0
                if rule.scaling is not None and rule.scaling.clip is not None:
                    scale = min(1.0, rule.scaling.clip / np.sqrt(squares[layer])) if squares[layer] else 1.0
                elif rule.scaling is not None:
                    beta2 = rule.scaling.beta2
                    v[layer] = beta2 * v[layer] + (1.0 - beta2) * squares[layer]
                    scale = 1.0 / np.sqrt(v[layer] / (1.0 - beta2**seen)) if v[layer] else 0.0  # nothing to divide
                orthogonal = rule.orthogonal
                if orthogonal is not None and (0 < layer < layers - 1 or (layer == 0 and orthogonal.input)):
                    m[layer] = orthogonal.momentum * m[layer] + G[layer]
                    M = orthogonal.momentum * m[layer] + G[layer] if orthogonal.nesterov else m[layer]
                    step_ = newton_schulz(M.X, *correlations[layer], orthogonal.iterations)
                    branch = problem.network.branch_factor if layer else 1.0
                    lr = own[layer] * rule.rates(stage.of)[now] / (problem.network.gamma0 * branch) if branch else 0.0
                    W[layer] = W[layer] + lr * _Weight(0.0, step_)
                    continue
                force = scale * G[layer] + -kappa[layer] * W[layer]
                m[layer] = mu * m[layer] + force
                W[layer] = W[layer] + eta[layer] * (mu * m[layer] + force if plain.nesterov else m[layer])
            if rule.averaging is not None:
                c = 1.0 / (now + 2)
                x = [(1.0 - c) * mean + c * w for mean, w in zip(x, W, strict=True)]
    yield None


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
