"""Sizes of activations and gradients per neuron, and of what training adds to them, from correlations.

Everything follows from the correlations C_h^l and C_g^l, of theory or of a finite network, at step t:

    size of h_l      sqrt(C_h^l(t, t))
    size of g_l      sqrt(C_g^l(t, t)),     change sqrt(C_g^l(t, t) - 2 C_g^l(t, 0) + C_g^l(0, 0))
    change of f      sqrt(C_v(t, t) - 2 C_v(t, 0) + C_v(0, 0)),      the root mean square on new samples

h_l is what layer l carries of the signal that drives training: the inputs, averaged with the errors as weights. What
the learned part of the weights below adds to it, (W_{l-1}(t) - d(t) W_{l-1}(0)) h_{l-1}(t) / sqrt(N_{l-1}), is

    gamma0 sum_{s<t} a(t, s) C_h^{l-1}(t, s) g_l(s)

so that its size is the root of b^T C_g^l b with b(s) = gamma0 a(t, s) C_h^{l-1}(t, s). In a residual network what the
matrices between hidden layers learn is multiplied by beta^2. With several outputs, squares are summed over them.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.refusal import Refusal
from deeplinear._equations.training import responses
from deeplinear._problem.problem import Problem

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Correlations:
    """What sizes are computed from, up to step t.

    Attributes
    ----------
    features, gradients, errors
        C_h^0 .. C_h^L, C_g^1 .. C_g^L and C_v, shapes (..., L + 1, n, n), (..., L, n, n) and (..., n, n), with n = T C
        time-major.
    """

    features: Array
    gradients: Array
    errors: Array


def check_rule(problem: Problem) -> None:
    """Refuse problems whose learned weights are no fixed combination of gradients, or that have no layers."""
    if problem.network.depth == math.inf:
        raise Refusal("depth", math.inf, "finite, because layers are looked at one by one")
    if problem.phases:
        raise Refusal("phases", problem.phases, "none", got=f"{len(problem.phases)} phases")
    rule = problem.optimizer
    if not rule.is_plain:
        why = ": for other rules only PyTorch modules can be measured"
        raise Refusal("optimizer", rule, "GradientDescent without clip", got=rule.called, rest=why)


def names_of(problem: Problem) -> tuple[str, ...]:
    """Names of what has a size: h_1 .. h_L, g_1 .. g_L and the function."""
    layers = range(1, problem.network.layers + 1)
    return (*(f"h{layer}" for layer in layers), *(f"g{layer}" for layer in layers), "f")


def squared_sizes(problem: Problem, found: Correlations) -> tuple[Array, Array]:
    """Return squared sizes at the last step and those of updates, shapes (..., 2 L + 1).

    The function's size is nan, and everything where training has diverged.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        return _squared_sizes(problem, found)


def _squared_sizes(problem: Problem, found: Correlations) -> tuple[Array, Array]:
    outputs = problem.data.outputs
    network = problem.network
    scales = np.full(network.layers, network.gamma0)
    scales[1:] *= network.branch_factor**2 if network.skip else 1.0
    learned = _responses(problem, found.features.shape[-1] // outputs)
    h_sizes, h_updates = [], []
    for layer in range(network.layers):
        below = found.features[..., layer, -outputs:, :]  # C_h(t c, s c')
        row = scales[layer] * np.repeat(learned[layer], outputs) * below
        h_updates.append(np.einsum("...ci,...ij,...cj->...", row, found.gradients[..., layer, :, :], row))
        h_sizes.append(_last(found.features[..., layer + 1, :, :], outputs))
    g_sizes, g_updates = _last(found.gradients, outputs), _change(found.gradients, outputs)
    f_update = _change(found.errors, outputs)
    sizes = [np.stack(h_sizes, axis=-1), g_sizes, np.full_like(f_update, np.nan)[..., None]]
    updates = [np.stack(h_updates, axis=-1), g_updates, f_update[..., None]]
    return np.concatenate(sizes, axis=-1), np.concatenate(updates, axis=-1)


def _responses(problem: Problem, steps: int) -> Array:
    """Responses a(t, s) of the weights of each layer at the last of so many steps, shape (L + 1, steps)."""
    _, a = responses(problem.first(steps))
    return np.asarray(a[:, -1])


def _last(matrix: Array, outputs: int) -> Array:
    """C(t, t), summed over outputs."""
    return np.asarray(np.trace(matrix[..., -outputs:, -outputs:], axis1=-2, axis2=-1))


def _change(matrix: Array, outputs: int) -> Array:
    """C(t, t) - 2 C(t, 0) + C(0, 0), summed over outputs."""
    across = np.trace(matrix[..., -outputs:, :outputs], axis1=-2, axis2=-1)
    first = np.trace(matrix[..., :outputs, :outputs], axis1=-2, axis2=-1)
    return np.asarray(np.maximum(_last(matrix, outputs) - 2 * across + first, 0.0))
