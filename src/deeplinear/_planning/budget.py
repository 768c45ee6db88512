"""What training a network costs, and how low its loss gets with the best constant rate of every horizon."""

import itertools
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.refusal import Refusal
from deeplinear._learning_rate.ladder import Advance, ceiling, solve_rates
from deeplinear._learning_rate.search import Excess
from deeplinear._problem.problem import Problem
from deeplinear._rules.traits import traits_of

Array = NDArray[np.float64]

_ITERATIONS = 5
"""Iterations of an orthogonal step, of rules without a field of this name."""

_RATIO = 2.0**0.25
"""Of neighbouring rates. The best of them is within 9 % of the best of all."""

_TOGETHER, _MOST = 12, 96
"""Rates that are solved at a time, and in all: these span a factor of 17 million."""


def training_cost(problem: Problem) -> float:
    """Count the floating-point operations of training: 6 for each weight, example and update.

    Two are for the forward pass and four for the backward pass. There are N D input weights and N^2 weights in each
    hidden matrix; the readout is small compared with these. Where sizes are ratios to the input dimension D the cost is
    in units of D^3. Where they are counts, D is the number of modes. With ``Population`` an update counts as one
    example. Rules that look at several gradients an update, as ``SAM`` at two, cost as many times. Where steps are made
    orthogonal, as by ``Muon``, each iteration multiplies three matrices: 4 n^2 m + 2 n^3 operations for one of n by m
    weights, n the smaller.

    Parameters
    ----------
    problem
        With T steps there are T - 1 updates.

    Raises
    ------
    ValueError
        If the network or the spectrum is infinite.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, sampling = dl.MLP(depth=3, width=2.0), dl.OnlineSGD(batch=0.5)
    >>> training_cost(dl.Problem(network, dl.Isotropic(), sampling, dl.GradientDescent(0.1), steps=11))
    300.0
    >>> training_cost(dl.Problem(network, dl.Isotropic(), sampling, dl.SAM(0.1, rho=0.05), steps=11))
    600.0
    """
    network = problem.network
    if math.isinf(network.depth) or math.isinf(network.end_widths[0]):
        raise Refusal("cost", None, "given for an infinite network", got="none")
    if problem.data.dimension_free and problem.data.own_dim is None:
        raise Refusal("cost", None, "given where the spectrum is infinite", got="none")
    dim, widths, rule = float(problem.data.own_dim or 1), list(network.given_widths), problem.optimizer
    first, does = (dim, widths[0], 1), traits_of(rule)
    hidden = [(n, m, 1) for n, m in itertools.pairwise(widths)] or [(widths[0], widths[0], network.layers - 1)]
    passes = 6.0 * does.looks * sum(n * m * count for n, m, count in (first, *hidden))
    passes *= problem.sampling.examples(problem.steps)
    turned = [*(hidden if "hidden" in does.orthogonal else []), *([first] if "input" in does.orthogonal else [])]
    products = sum(count * (4.0 * min(n, m) ** 2 * max(n, m) + 2.0 * min(n, m) ** 3) for n, m, count in turned)
    return float(passes + getattr(rule, "iterations", _ITERATIONS) * products * (problem.steps - 1))


@dataclass(frozen=True)
class Envelope:
    """The least loss that any constant rate reaches at each step.

    Attributes
    ----------
    losses
        The loss, shape (steps,).
    lrs
        The rate that reaches it, of rates a factor 1.19 apart, shape (steps,).
    """

    losses: Array
    lrs: Array = field(repr=False)


def envelope(problem: Problem, excess: Excess, advance: Advance | None = None) -> Envelope:
    """Solve a ladder of rates, down to where lower ones are best at no step, and take the best at every step."""
    top = ceiling(problem, None if advance is None else lambda _: advance(0.0))
    losses, rates = np.empty((0, problem.steps)), np.empty(0)
    while len(rates) < _MOST:
        more = top / _RATIO ** np.arange(len(rates), len(rates) + _TOGETHER)
        solved = solve_rates(problem, more.tolist(), advance)
        losses = np.concatenate([losses, [np.asarray(each.loss(excess.objective), float) for each in solved]])
        rates = np.concatenate([rates, more])
        best = np.argmin(losses, axis=0)
        if best[1:].max() < len(rates) - 4:
            break
    return Envelope(losses[best, np.arange(problem.steps)], rates[best])
