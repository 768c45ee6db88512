"""How far networks of a given size are expected to be from the limit: an estimate from theory alone.

Networks of finite size scatter about the limit, and since losses are not linear in what scatters, the mean over
networks is shifted by half the second derivative times a variance. What matters most is the tangent kernel. Its
term of weight layer l is a product of squared gains, forward through the layers below and backward through those
above, each of which is a mean over N neurons and scatters with variance 2/N (a residual block less); and the
error is seen through P examples, with variance 2/P. To the loss, a higher kernel is a higher learning rate. So with
s^2 the relative variance of the kernel and F(x) the loss at x times the learning rate,

    shift = s^2 F''(1) / 2 ,     F''(1) = [F(1 + x) + F(1 - x) - 2 F(1)] / x^2 ,     x = sqrt(3) s ,

which is Gauss-Hermite quadrature with three nodes: in small networks it notices that some of them diverge.

At the edge of stability, where the train loss rises with the learning rate, this is not all: modes at the edge of the
spectrum are what is left of the loss there, and finite networks have fewer of them. They were seen to lie below
theory by 100 s^2 to 200 s^2 of the loss in large networks, and by nearly all of it in small ones.

Rules that evaluate the gradient elsewhere (``SAM``), or take its directions alone (``Muon``), are not described by a
kernel and a rate. Networks were seen to be 19 % from theory under SAM where this estimate would be 1 %, and 4 % under
Muon where it would be 0.7 %; so there is none for them.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeplinear._experiment.sizes import Sizes, sizes_of
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import rate_of, with_rate
from deeplinear._theory.solve import solve

Array = NDArray[np.float64]

_STEEP = 1.5
"""Power of the learning rate beyond which a train loss that rises with it counts as one at the edge of stability."""

_AT_THE_EDGE = 120.0
"""Shift at the edge of stability, in units of the variance of the kernel, in large networks."""

_WIDEST = 0.3
"""Largest relative change of the learning rate from which curvature is found: much lower rates hardly train."""

_ROUNDING = 1e-9
"""Losses below this fraction of the largest one are put down to rounding."""

_NUDGE = 0.01
"""Relative change of the learning rate that tells whether the train loss rises."""


def expected_deviation(problem: Problem, dim: int | None) -> float:
    """Estimate by how much the mean loss of networks deviates from theory, relative and at most over steps and losses.

    It falls as 1/D in large networks. How well it does is measured on random problems that were not used to find it,
    in ``docs/limits.md`` (``docs/measured.py finite_size``). It is infinite where some of the networks are expected
    to diverge, and nan for a rule without an estimate. It takes four solutions: theory is solved again, so that a wrong
    one does not count.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(4, 0.7, centered=True), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.02), steps=40
    ... )
    >>> [round(expected_deviation(problem, dim), 4) for dim in (1000, 10_000)]
    [0.0326, 0.0032]
    """
    return expected_shift_and_scatter(problem, dim)[0]


def expected_shift_and_scatter(problem: Problem, dim: int | None) -> tuple[float, float]:
    """Estimate the largest relative deviation of the mean loss, and how much the losses of single networks scatter.

    To first order, a network has the loss at another learning rate, that of its kernel; at the start, and in batches of
    fresh examples, a loss scatters about as much as the kernel does.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=31
    ... )
    >>> [round(each, 4) for each in expected_shift_and_scatter(problem, 10**4)]
    [0.0004, 0.0185]
    """
    sizes = sizes_of(problem, dim)
    variance = kernel_variance(problem, sizes)
    if not has_estimate(problem):
        return math.nan, math.nan
    spread = min(math.sqrt(3.0 * variance), _WIDEST)
    factors = (1.0, 1.0 + spread, 1.0 - spread, 1.0 + _NUDGE)
    try:
        at, higher, lower, nudged = _losses([with_rate(problem, factor * rate_of(problem)) for factor in factors])
    except ArithmeticError:  # a long run past the edge of stability
        return math.inf, math.inf
    except MemoryError:  # a theory that was solved elsewhere, say
        return math.nan, math.nan
    if not (np.isfinite(at).all() and np.isfinite(higher).all()):
        return math.inf, math.inf
    scale = np.maximum(at + _ROUNDING * at.max(), np.finfo(float).tiny)
    shift = 0.5 * variance * np.abs(higher + lower - 2.0 * at) / (spread**2 * scale)
    edge = _AT_THE_EDGE * variance if _is_steep(at[1], nudged[1]) else 0.0
    slope = np.abs(higher - lower) / (2.0 * spread * scale)
    fresh = 0.0 if problem.sampling.reuse or not sizes.samples else 2.0 / sizes.samples
    scatter = math.sqrt(variance + fresh) * max(1.0, float(slope.max()))
    return max(edge / (1.0 + edge), float(shift.max())), scatter


def has_estimate(problem: Problem) -> bool:
    """Whether theory alone says how far networks deviate: not where a rule steps uphill or takes orthogonal steps.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(), dl.Population(), dl.SAM(0.1, rho=0.1), steps=2)
    >>> has_estimate(problem), has_estimate(problem.replace(optimizer=dl.GradientDescent(0.1)))
    (False, True)
    """
    rules = [stage.optimizer for stage in problem.stages]
    return all(rule.ascent is None and rule.orthogonal is None for rule in rules)


def kernel_variance(problem: Problem, sizes: Sizes) -> float:
    """Relative variance of the tangent kernel between networks, at the start, and of the sample mean along the error.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=1, width=1.0), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), steps=2
    ... )
    >>> kernel_variance(problem, sizes_of(problem, dim=100))  # of (w^2 + |W_0 x|^2) / 2, each with variance 2 / N
    0.01
    """
    network = problem.network
    widths = np.array(sizes.widths, dtype=float)
    forward, backward = np.append(2.0 / widths, 0.0), np.insert(2.0 / widths, 0, 0.0)
    weights = np.ones(len(widths) + 1)
    if network.skip:
        squared = network.branch_factor**2
        block = (2.0 * squared + squared**2) / (1.0 + squared) ** 2  # of a sum of a vector and a random one
        forward[1:-1] *= block
        backward[1:-1] *= block
        weights[1:-1] = squared / (1.0 + squared)
    below, above = np.cumsum(forward) - forward, np.cumsum(backward[::-1])[::-1] - backward
    # Of two terms the factors in common are those below the lower and above the upper one; both sums are monotonic.
    shared = np.minimum(below[:, None], below) + np.minimum(above[:, None], above)
    examples = 2.0 / sizes.samples if problem.sampling.reuse else 0.0
    return float(weights @ shared @ weights / weights.sum() ** 2) + examples


def _losses(problems: Sequence[Problem]) -> list[Array]:
    """Test and train loss of each problem at every step, shape (2, steps)."""
    # One at a time, so that no more memory is needed than for the theory itself.
    found = (solve(each).at(np.arange(each.steps)) for each in problems)
    return [np.stack([each.test_loss.values, each.train_loss.values]) for each in found]


def _is_steep(loss: Array, nudged: Array) -> bool:
    """Whether the train loss rises with the learning rate, somewhere, by more than a power of it.

    Compared are upper envelopes, the largest loss from each step on, since with momentum the loss oscillates, and
    these oscillations only shift; and losses below a hundredth of the largest do not count.
    """
    envelope, higher = (np.maximum.accumulate(each[::-1]) for each in (loss, nudged))
    floor = 0.01 * envelope[-1]
    return bool((higher + floor > (1.0 + _NUDGE) ** _STEEP * (envelope + floor)).any())
