"""How far a curvature may go before a step overshoots, for the rule that a run follows."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from deeplinear._problem.phase import Stage
from deeplinear._problem.problem import Problem

Array = NDArray[np.float64]


def stage_at(problem: Problem, step: int) -> Stage:
    """Return the phase that a step belongs to."""
    return next(stage for stage in problem.stages if stage.start <= step < stage.stop)


def rate_factors(problem: Problem, step: int, scales: Mapping[int, Array] | None = None) -> Array:
    """Return the factors P on the rates of the weight layers at a step, shape (L + 1,).

    ``scales`` are what a rule that divides gradients by the sizes of those of each layer multiplies them with.
    """
    stage = stage_at(problem, step)
    factors: Array = np.array(problem.layer_rates(stage.optimizer), float)
    if stage.optimizer.scaling is not None and stage.optimizer.scaling.by_layer and scales is not None:
        factors *= np.array([float(scales[layer][0, 0]) for layer in range(len(factors))])
    return factors


def limit(problem: Problem, step: int, scales: Mapping[int, Array] | None = None) -> float:
    """Return the largest eigenvalue of P H at which a small deviation does not grow, if nothing else changes.

    A deviation along an eigenvector of P H with eigenvalue x follows the rule on a parabola, stable for

        lr x < 2                      plain descent
        lr x < 2 (1 + mu)             momentum mu
        lr x < 2 (1 + mu)/(1 + 2 mu)  Nesterov's

    where weight decay (one for all layers) adds to x, and lr counts what gradients are scaled down by. There is no such
    limit, and it is nan, where a step is not linear in the deviation: orthogonal steps, and gradients that are taken
    elsewhere by a length that does not shrink with them (SAM); or where it depends on a mean of the weights.
    """
    stage = stage_at(problem, step)
    optimizer, now = stage.optimizer, step - stage.start + stage.since
    if optimizer.orthogonal is not None or optimizer.averaging is not None or optimizer.ascent is not None:
        return np.nan
    plain = optimizer.plain
    lr, mu, decay = (float(np.real(each(stage.of)[now])) for each in (plain.rates, plain.momenta, plain.decays))
    if optimizer.scaling is not None and not optimizer.scaling.by_layer and scales is not None:
        lr *= float(next(iter(scales.values()))[0, 0])
    if lr == 0.0:
        return np.inf
    return 2.0 * (1.0 + mu) / (1.0 + 2.0 * mu if plain.nesterov else 1.0) / lr - decay
