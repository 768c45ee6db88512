"""Where a prediction depends on rounding.

An instability that begins late in training, because the learning rate or the kernel has grown, may find nothing to grow
from: what it would amplify has been trained away, far below the last digit. Then rounding errors take its place. Exact
arithmetic would leave the smooth run later or never, another order of summation at another step; finite networks
have rounding of their own.

How much errors are amplified is told by the transfer functions H_k(t, s), the answer at time t to a disturbance at
time s. Independent errors of C_v, each in proportion to the loss of its time, add to the loss at time t

    sum_k p_k lam_k / (sum_k p_k lam_k) sum_{s<=t} |H_k(t, s)|^2 loss(s)

times their relative size. It stays of order one where training is stable, and it does where training is unstable from
the start, as then the loss grows with it. A loss that has died out is a difference of terms that have not, and has
errors as if it were some part of the initial one.

H_k answers with the kernel as it is, and with steps as they are. What the kernel does in turn, or the size of a
gradient that steps are divided by, may be unstable too, which is not seen that way. Then a run begins to swing, more
and more, or swings without end from early on and may be chaotic. Where losses look like that, the problem is solved
once more with a rate that is changed a little, and the two are compared.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, beside, computing, finite, namespace, to_numpy
from deeplinear._core.device import Device
from deeplinear._equations.rooted import Rooted
from deeplinear._equations.system import Equations
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import rate_of, with_rate
from deeplinear._solvers.base import Answer, Solver, Unresolved

LOSS_FLOOR = 1e-5
"""Losses are accurate relative to their value, or to this fraction of the initial one if it is larger."""

DEPENDS = 1e6
"""Amplification from which losses are said to depend on rounding: 1e-12, what rounding leaves of correlations, is then
1e-6 of the loss. In runs of 300 to 1100 steps that were solved again with more digits, it was a few times less."""

_DEPENDS_BY_ROOTS = 1e16
"""The same where correlations are kept by their roots: then errors grow by the square root of the amplification, from
2e-15 as measured against more digits."""

DIED_OUT = 1e-2
"""Part of the initial loss that a loss has the rounding errors of, at least: of 1e-14, a few times what was seen."""

_CHANGE = 1e-12
"""Relative change of the rate by which it is measured how much errors are amplified."""

_ORDER, _WITHIN = 8, 8
"""Order of differences by which swings are told from a smooth loss, and steps among which the largest counts."""

_DIFFERENCES = np.array([math.comb(_ORDER, k) * (-1) ** k for k in range(_ORDER + 1)]) / 2**_ORDER
"""Factors of successive values in their difference of that order, scaled to be 1 for values of 1 and -1 in turns."""

_SEEN, _GROWTH, _GRADUAL = 1e-7, 1e5, 5
"""Swings of log losses that are no rounding errors, how much they grow where rounding errors may grow with them, and
the least number of steps in which those do that grow by themselves: what a schedule does is seen at once. Differences
of a smooth loss that falls fast may be above 1e-7, so any larger swings are looked at too."""

_LARGE, _LONG = 1e-2, 24
"""Swings of log losses that may be chaotic, where they stay so large for this many steps."""

_AT_ONCE = 64
"""Steps that are looked at together, to need little memory."""


def amplification(
    equations: Equations, steps: slice, single: NDArray[Any] | None = None, least: float = LOSS_FLOOR
) -> NDArray[Any]:
    """How much errors of one step are amplified in the losses at some steps or nodes, shape (batch, steps).

    Parameters
    ----------
    equations
        Filled up to these steps.
    steps
        Which steps, or nodes of a grid.
    single
        Which nodes stand for one step, as only these have a response of their own; all of them by default. Or one over
        the number of steps that each stands for, where these have equal parts in its response.
    least
        Part of the initial loss that a loss has the errors of, at least.
    """
    c, outputs = equations.c, equations.c.structure.outputs
    rows, end = slice(steps.start * outputs, steps.stop * outputs), steps.stop * outputs
    with computing(c.gamma0):
        losses = finite(abs(equations.loss_curve(slice(0, steps.stop))))  # what has diverged answers to nothing before
        from_steps = _at_least(losses, least)
        if single is not None:
            from_steps = from_steps * beside(np.asarray(single[: steps.stop], float), losses)
        share = abs(c.moments[1])  # which may be complex, as in derivatives
        share = share / share.sum(axis=1)[:, None]
        squares = (share * abs(equations.data.H.matrix[:, :, rows, :end]) ** 2).sum(axis=1)
        over_outputs = squares.reshape(c.batch, steps.stop - steps.start, outputs, steps.stop, outputs)
        added = (over_outputs.sum(axis=4).sum(axis=2) @ from_steps[..., None])[..., 0] / outputs  # eq-rounding
        return to_numpy(added / _at_least(losses, LOSS_FLOOR)[:, steps])


def _at_least(losses: Array, part: float) -> Array:
    """Losses of all steps from the first on, raised to a part of the first."""
    xp = namespace(losses)
    raised: Array = xp.where(losses > part * losses[:, :1], losses, part * losses[:, :1])
    return raised


def rounding_at(equations: Equations, ends: NDArray[np.int64], single: NDArray[np.bool_] | None = None) -> list[int]:
    """First step or node of each problem at which its losses depend on rounding; -1 if they do not before it ends."""
    steps = equations.c.structure.steps
    most = _DEPENDS_BY_ROOTS if isinstance(equations.data_covariances.Cv, Rooted) else DEPENDS
    found = np.full(len(ends), -1)
    for start in range(0, steps, _AT_ONCE):
        those = slice(start, min(start + _AT_ONCE, steps))
        depends = amplification(equations, those, single, DIED_OUT) > most
        depends &= np.arange(those.start, those.stop) < ends[:, None]
        new = depends.any(axis=1) & (found < 0)
        found[new] = start + depends[new].argmax(axis=1)
        if (found >= 0).all():
            break
    return [int(each) for each in found]


def with_measured_rounding(problem: Problem, answer: Answer, solver: Solver, device: Device) -> Answer:
    """Return the answer; if its losses swing as if from rounding errors, solved once more, with the step of these.

    A device without room for a second solution leaves the answer as it is.
    """
    losses, stretches = answer.curves.test_loss, answer.axis.stretches
    if answer.rounding_at is not None or np.iscomplexobj(losses):
        return answer
    above_floor = np.maximum(losses, LOSS_FLOOR * losses[0])
    if not any(may_be_unstable(above_floor[each]) for each in stretches):
        return answer
    if solver.estimate(problem).bytes > device.available():
        return answer
    try:
        (other,) = solver.solve([with_rate(problem, rate_of(problem) * (1 + _CHANGE))])
    except Unresolved:
        return answer
    end = min(problem.steps if each.diverged_at is None else each.diverged_at for each in (answer, other))
    steps = np.concatenate([answer.axis.times[each] for each in stretches]).round().astype(np.int64)
    steps = steps[steps < end]
    mine, others = (each.axis.at(each.curves.test_loss, steps) for each in (answer, other))
    # What an approximation leaves out, if anything, is amplified too, and may be some times as large.
    allowed, error = DEPENDS * _CHANGE, answer.solver.error_in_time
    if error is not None and answer.stats.get("error") != 0.0:
        allowed = min(allowed, error / 10)
    differs = np.flatnonzero(np.abs(mine - others) > allowed * np.maximum(mine, LOSS_FLOOR * losses[0]))
    if not len(differs):
        return answer
    at = int(steps[differs[0]])
    return replace(answer, rounding_at=at, stats=answer.stats | {"rounding_at": at})


def may_be_unstable(losses: NDArray[Any]) -> bool:
    """Return whether losses at all steps begin to swing, gradually, after they had been smooth; or swing all the time.

    Examples
    --------
    >>> steps = np.arange(200.0)
    >>> may_be_unstable(np.exp(-steps / 50))
    False
    >>> may_be_unstable(np.exp(-steps / 50) * (1 + 1e-16 * (-1.2) ** steps))
    True
    >>> may_be_unstable(1 + 0.1 * (-1) ** steps)
    True
    """
    losses = losses[np.isfinite(losses)]  # those before a divergence
    if len(losses) < _ORDER + 2 * _WITHIN or losses[0] <= 0:
        return False
    swings = np.abs(np.convolve(np.log(np.maximum(losses, LOSS_FLOOR * losses[0])), _DIFFERENCES, "valid"))
    most = swings.max()
    if most <= _SEEN:
        return False
    largest, among = swings, 1
    while among < _WITHIN:  # twice as many in each round
        largest, among = np.maximum(largest[:-among], largest[among:]), 2 * among
    if most > _LARGE:
        edges = np.flatnonzero(np.diff(largest > _LARGE, prepend=False, append=False))
        if (edges[1::2] - edges[::2]).max(initial=0) >= _LONG:
            return True
    least = largest.min()  # below which nothing can hide
    seen = (_SEEN * 10.0**power for power in range(math.ceil(math.log10(most / _SEEN))))
    return any(_grow_gradually(largest, each / _GROWTH, each) for each in seen if each / _GROWTH > least)


def _grow_gradually(sizes: NDArray[np.float64], hidden_below: float, seen_above: float) -> bool:
    """Whether sizes grow from one to the other in several steps."""
    hidden = np.append(np.flatnonzero(sizes < hidden_below), math.inf)
    seen = np.flatnonzero(sizes > seen_above)
    first = np.append(seen, math.inf)[np.searchsorted(seen, hidden[:-1])]  # the next after each that is hidden
    after = hidden[1:]  # the next that is hidden, which must not come before
    return bool(((first < after) & (first - hidden[:-1] >= _GRADUAL) & (first < math.inf)).any())
