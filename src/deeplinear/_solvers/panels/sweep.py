"""Sweeps over the rows of one panel, which depend on each other, until they stand still.

First the responses are swept, with correlations frozen, then the correlations, which are linear in themselves, then all
of it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, namespace, to_numpy
from deeplinear._equations.layer_zero import DataCovariances
from deeplinear._equations.two_time import Causal, Symmetric
from deeplinear._solvers.panels import guess
from deeplinear._solvers.panels.error import NOISE, Errors, larger, relative
from deeplinear._solvers.panels.nodes import NodesInTime
from deeplinear._solvers.panels.settle import Sweeps, Unknown, settle

_SWEEP, _SWEEP_IN_DEPTH = 5.0, 1.0
"""Cost of a sweep over a panel, in units of that of a single step; with nodes in depth, that is many sweeps itself."""

SETTLED = 1e-2
"""Change of the last sweep, in units of the tolerance."""

ROUNDING = 3e-9
"""Change that is put down to rounding, where sweeps do not reduce it any more."""

_COARSE = 1e-3
"""Change at which the first, partial sweeps end."""

_FLOOR = 1e-3
"""Correlations that are this fraction of their initial value, or less, are settled to that scale only."""

_INNER = (1e-1, 1e-4)
"""How much closer layer 0 is settled within a sweep: at first, and where what it leaves is noise to the sweeps."""

SWEEPS, _INNER_SWEEPS = 60, 20


class Panel:
    """Rows of a panel that has been placed, for all problems of a batch.

    Parameters
    ----------
    nodes, errors
        All nodes so far, and what is made of their errors.
    rows, previous
        Rows of the panel, and the set of nodes before it.
    counts
        Problems that are waited for, shape (batch,).
    take
        Counts work, in units of that of a single step.
    """

    def __init__(
        self,
        nodes: NodesInTime,
        errors: Errors,
        rows: slice,
        previous: slice,
        counts: NDArray[np.bool_],
        take: Callable[[float], None],
    ) -> None:
        self._nodes, self._errors, self._rows, self._previous, self._take = nodes, errors, rows, previous, take
        self._equations = nodes.equations
        self._counts = counts.copy()

    def settle(self, goal: float) -> NDArray[np.float64]:
        """Solve for the rows; return the relative change of the last sweep, infinite where they did not settle."""
        settled = max(SETTLED * goal, 0.01 * ROUNDING)
        responses, correlations = self._guessed()
        if not self._settle_coarsely(responses, correlations, settled):
            return np.full(len(self._counts), np.inf)
        every, errors, rows = Sweeps([*responses, *correlations], self._rows), self._errors, self._rows
        residual, change = np.full((2, len(self._counts)), np.inf)
        losses = 2 * [errors.losses(rows)]

        def sweep_all(tolerance: float) -> None:
            self._sweep(True, True, tolerance)
            losses.append(errors.losses(rows))

        # Losses are differences, often small ones, which need more than what they are made of: here, and in the steps
        # after a panel, which do not settle with it.
        waiting = self._counts.copy()
        for closer in (1e-2, 1e-4):
            closely = max(closer * settled, NOISE)
            trying, last = waiting, np.full(len(waiting), len(losses) - 1)
            for inner in _INNER:
                before = len(losses)
                sweep = partial(sweep_all, inner * closely)
                found = every.settle(sweep, tolerance=closely, most_sweeps=SWEEPS, ignore=~trying)
                residual[trying] = found[trying]
                last[trying] = before + every.count[trying] - 1
                trying = trying & ~((residual <= settled) | ~(residual < _COARSE))
                if not trying.any():
                    break
            change[waiting] = _last_changes(losses, last, errors.loss_floors)[waiting]
            waiting = waiting & ~((change <= settled) | ~(residual <= settled))
            if not waiting.any():
                break
        return np.where(self._counts, larger(residual, change), np.inf)

    def _settle_coarsely(self, responses: list[Unknown], correlations: list[Unknown], settled: float) -> bool:
        """Settle responses, then correlations, to start from; return whether most do. What does not counts no more."""
        for unknowns, respond in ((responses, True), (correlations, False)):
            sweep = partial(self._sweep, respond, not respond, _INNER[0] * settled)
            waiting = self._counts
            residual = settle(unknowns, sweep, self._rows, tolerance=_COARSE, most_sweeps=SWEEPS // 2, ignore=~waiting)
            self._counts = waiting & (residual < 0.1)
            if 2 * self._counts.sum() <= waiting.sum():
                return False
        return True

    def _guessed(self) -> tuple[list[Unknown], list[Unknown]]:
        """Guess the rows; return responses and correlations that are to be settled."""
        nodes, eq, rows = self._nodes, self._equations, self._rows
        responses, correlations = self._unknowns()
        for each in responses:
            each[rows] = guess.response(each, rows, nodes.rows(self._previous), nodes.grid, nodes.outputs)
        for C in [*correlations, *eq.chain.correlations(), eq.data_covariances.Cv]:
            C[rows] = guess.constant(C, rows, nodes.outputs)
        floor = self._response_floor()
        return [Unknown(each, floor) for each in responses], [correlation(C) for C in correlations]

    def _sweep(self, respond: bool, correlate: bool, tolerance: float) -> None:
        """Fill the rows once; layer 0 is settled to a tolerance."""
        eq, data, chain, rows = self._equations, self._equations.data, self._equations.chain, self._rows
        self._take(_SWEEP_IN_DEPTH if self._nodes.depth_nodes else _SWEEP)
        chain.prepare(data.Rhr, rows)
        chain.backward(rows, respond=respond, correlate=correlate)
        if respond:
            self._sweep_data(tolerance)
        if correlate:
            sweep_noise(eq.data_covariances, chain.Cg_first, rows, tolerance, ignore=~self._counts)
        chain.forward(data.Rhr, rows, respond=respond, correlate=correlate)

    def _sweep_data(self, tolerance: float) -> None:
        """Fill rows of layer 0's responses: R_Delta and the transfer functions need each other."""
        data, chain, rows = self._equations.data, self._equations.chain, self._rows

        def sweep() -> None:
            data.step(chain.Rgu_hat_first(rows), chain.Cg_first, rows)

        if data.RDelta is None:
            sweep()
        else:
            unknowns, ignore = [Unknown(data.RDelta)], ~self._counts
            settle(unknowns, sweep, rows, tolerance=tolerance, most_sweeps=_INNER_SWEEPS, ignore=ignore)

    def _response_floor(self) -> Array:
        """A response is small where it makes no difference to 1 - gamma0 A Bhat, with Bhat about as large as a."""
        eq, xp = self._equations, self._equations.c.xp
        every = [eq.weights.input, *eq.weights.hidden, eq.weights.readout]
        largest = xp.max(xp.stack([xp.max(xp.abs(w.a[self._rows]), axis=(1, 2)) for w in every]), axis=0)
        feedback = xp.abs(eq.c.gamma0)[:, 0, 0] * largest
        floor: Array = _FLOOR / xp.where(feedback < 1e-3, 1e-3, feedback)
        return floor

    def _unknowns(self) -> tuple[list[Causal], list[Symmetric]]:
        """Responses and correlations that a sweep reads before it writes them."""
        eq = self._equations
        responses = [eq.data.Rhr, *eq.chain.kernels()]
        if eq.data.RDelta is not None:
            responses.append(eq.data.RDelta)
        correlations = [*eq.chain.sources()]
        if eq.data_covariances.noisy:
            correlations.append(eq.data_covariances.Cv)
        return responses, correlations


def sweep_noise(
    covariances: DataCovariances,
    Cg: Symmetric | None,
    rows: slice,
    tolerance: float,
    most_sweeps: int = _INNER_SWEEPS,
    ignore: NDArray[np.bool_] | None = None,
) -> None:
    """Fill rows of layer 0's correlations: the noise and the error need each other."""
    if not covariances.noisy:
        covariances.step(Cg, rows)
    else:
        errors, sweep = [Unknown(covariances.Cv)], partial(covariances.step, Cg, rows)
        settle(errors, sweep, rows, tolerance=tolerance, most_sweeps=most_sweeps, ignore=ignore)


def correlation(C: Symmetric) -> Unknown:
    """Return a correlation that is to be settled."""
    xp, first = namespace(C.matrix), abs(C.matrix[..., 0, 0])
    largest = xp.max(first.reshape(len(first), -1), axis=1)
    return Unknown(C, _FLOOR * xp.where(largest < 1e-300, 1e-300, largest))


def _last_changes(losses: Sequence[Array], last: NDArray[np.int64], floors: NDArray[Any]) -> NDArray[np.float64]:
    """Relative change of the losses of each problem in the sweep that was its last one, shape (batch,)."""
    every = to_numpy(namespace(losses[0]).stack(list(losses)))
    problems = np.arange(len(last))
    after, before = every[last, problems], every[last - 1, problems]
    return np.asarray(relative(after - before, larger(after, floors)).max(axis=(1, 2)))
