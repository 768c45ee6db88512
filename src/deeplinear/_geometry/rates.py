"""How far a curvature may go before a step overshoots, for the rule that a run follows."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deeplinear._equations.rules import orthogonal_layers, stretch_of
from deeplinear._problem.phase import Stage
from deeplinear._problem.problem import Problem

Array = NDArray[np.float64]


class Feels(Protocol):
    """What a rule made of the last gradients, if it looks at their sizes, as in ``Stop``."""

    @property
    def gains(self) -> Array | None:
        """By layer, what a step with rates of 1 and without momentum adds of the last gradient, shape (L + 1,)."""


def stage_at(problem: Problem, step: int) -> Stage:
    """Return the phase that a step belongs to."""
    return next(stage for stage in problem.stages if stage.start <= step < stage.stop)


def rate_factors(problem: Problem, step: int, rule: Feels) -> Array:
    """Return the factors F on the rates of the weight layers at a step, shape (L + 1,)."""
    stage = stage_at(problem, step)
    factors: Array = np.array(problem.layer_rates(stage.optimizer), float)
    if rule.gains is None:
        return factors
    if stage.optimizer.scaling is not None and stage.optimizer.scaling.by_layer:
        factors = np.array(rule.gains)
    if _only_rescales(problem, stage):
        ratio = stage.optimizer.rates(stage.of)[step - stage.start + stage.since] / _numbers(stage, step)[0]
        for layer in orthogonal_layers([stretch_of(stage)], len(factors)):
            factors[layer] = rule.gains[layer] * ratio
    return factors


def limit(problem: Problem, step: int, rule: Feels) -> float:
    """Return the largest eigenvalue of F H at which a small deviation does not grow, if nothing else changes.

    A deviation along an eigenvector of F H with eigenvalue x follows the rule on a parabola, stable for

        lr x < 2                      plain descent
        lr x < 2 (1 + mu)             momentum mu
        lr x < 2 (1 + mu)/(1 + 2 mu)  Nesterov's

    where weight decay (one for all layers) adds to x, and lr counts what gradients are scaled down by. There is no such
    limit, and it is nan, where a step is not linear in the deviation: orthogonal steps that mix gradients, or
    gradients that are taken elsewhere by a length that does not shrink with them (SAM); where it depends on a mean of
    the weights; and it is not known of rules that somebody else wrote. Orthogonal steps do not mix gradients of one
    output without momentum, but divide them by their size.
    """
    stage = stage_at(problem, step)
    optimizer = stage.optimizer
    mixes = optimizer.orthogonal is not None and not _only_rescales(problem, stage)
    if mixes or optimizer.looks_elsewhere or optimizer.is_own:
        return np.nan
    lr, mu, decay = _numbers(stage, step)
    if optimizer.orthogonal is not None and (mu or decay):
        return np.nan  # which the other weights have
    if optimizer.scaling is not None and not optimizer.scaling.by_layer and rule.gains is not None:
        factors = problem.layer_rates(optimizer)
        largest = int(np.argmax(factors))
        lr *= rule.gains[largest] / factors[largest] if factors[largest] else 1.0
    if lr == 0.0:
        return np.inf
    return 2.0 * (1.0 + mu) / (1.0 + 2.0 * mu if optimizer.plain.nesterov else 1.0) / lr - decay


def _only_rescales(problem: Problem, stage: Stage) -> bool:
    """Whether orthogonal steps do no more than to divide each gradient by its size, in units of a rate beside them."""
    rule = stage.optimizer.orthogonal
    if rule is None or problem.data.outputs > 1:
        return False
    lr = stage.optimizer.plain.rates(stage.of)
    return rule.momentum == 0.0 and bool((lr > 0).all())


def _numbers(stage: Stage, step: int) -> tuple[float, float, float]:
    """Rate, momentum and weight decay of plain steps."""
    plain, now = stage.optimizer.plain, step - stage.start + stage.since
    lr, mu, decay = (float(np.real(each(stage.of)[now])) for each in (plain.rates, plain.momenta, plain.decays))
    return lr, mu, decay
