"""Sweeps over the rows of one panel, which depend on each other, until they stand still.

First the responses are swept, with correlations frozen, then the correlations, which are linear in themselves, then all
of it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from deeplinear._equations.layer_zero import DataCovariances
from deeplinear._equations.two_time import Causal, Symmetric
from deeplinear._solvers.panels import guess
from deeplinear._solvers.panels.error import NOISE, Errors, relative
from deeplinear._solvers.panels.nodes import NodesInTime
from deeplinear._solvers.panels.settle import Unknown, settle

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

SMALL = 1e-4
"""Part of the initial loss that is left where losses are small differences."""

_INNER = (1e-1, 1e-4)
"""How much closer layer 0 is settled within a sweep: at first, and where what it leaves is noise to the sweeps."""

SWEEPS, _INNER_SWEEPS = 60, 20


class Panel:
    """Rows of a panel that has been placed.

    Parameters
    ----------
    nodes, errors
        All nodes so far, and what is made of their errors.
    rows, previous
        Rows of the panel, and the set of nodes before it.
    take
        Counts work, in units of that of a single step.
    """

    def __init__(
        self, nodes: NodesInTime, errors: Errors, rows: slice, previous: slice, take: Callable[[float], None]
    ) -> None:
        self._nodes, self._errors, self._rows, self._previous, self._take = nodes, errors, rows, previous, take
        self._equations = nodes.equations

    def settle(self, goal: float) -> float:
        """Solve for the rows; return the relative change of the last sweep."""
        rows, errors = self._rows, self._errors
        unknown_responses, unknown_correlations = self._guessed()
        settled = max(SETTLED * goal, 0.01 * ROUNDING)
        closely = settled
        coarse: Any = {"tolerance": _COARSE, "most_sweeps": SWEEPS // 2}
        if not settle(unknown_responses, lambda: self._sweep(True, False, _INNER[0] * closely), rows, **coarse) < 0.1:
            return np.inf
        if (
            not settle(unknown_correlations, lambda: self._sweep(False, True, _INNER[0] * closely), rows, **coarse)
            < 0.1
        ):
            return np.inf
        every = [*unknown_responses, *unknown_correlations]
        losses = 2 * [errors.losses(rows)]

        def sweep_all(tolerance: float) -> None:
            self._sweep(True, True, tolerance)
            losses.append(errors.losses(rows))

        # Losses can be small differences, which need more than what they are made of: here, and in the steps after a
        # panel, which do not settle with it.
        for closer in (1e-2, 1e-4) if errors.left(rows) < SMALL else (1.0, 1e-2, 1e-4):
            closely = max(closer * settled, NOISE)
            for inner in _INNER:
                sweep = partial(sweep_all, inner * closely)
                residual = settle(every, sweep, rows, tolerance=closely, most_sweeps=SWEEPS)
                if residual <= settled or not residual < _COARSE:
                    break
            change = float(relative(losses[-1] - losses[-2], np.maximum(losses[-1], errors.loss_floors)).max())
            if change <= settled or not residual <= settled:
                break
        return max(residual, change)

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
            sweep_noise(eq.data_covariances, chain.Cg_first, rows, tolerance)
        chain.forward(data.Rhr, rows, respond=respond, correlate=correlate)

    def _sweep_data(self, tolerance: float) -> None:
        """Fill rows of layer 0's responses: R_Delta and the transfer functions need each other."""
        data, chain, rows = self._equations.data, self._equations.chain, self._rows

        def sweep() -> None:
            data.step(chain.Rgu_hat_first(rows), chain.Cg_first, rows)

        if data.RDelta is None:
            sweep()
        else:
            settle([Unknown(data.RDelta)], sweep, rows, tolerance=tolerance, most_sweeps=_INNER_SWEEPS)

    def _response_floor(self) -> float:
        """A response is small where it makes no difference to 1 - gamma0 A Bhat, with Bhat about as large as a."""
        eq = self._equations
        every = [eq.weights.input, *eq.weights.hidden, eq.weights.readout]
        feedback = float(np.abs(eq.c.gamma0).max() * max(np.abs(w.a[self._rows]).max() for w in every))
        return _FLOOR / max(feedback, 1e-3)

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
    covariances: DataCovariances, Cg: Symmetric | None, rows: slice, tolerance: float, most_sweeps: int = _INNER_SWEEPS
) -> None:
    """Fill rows of layer 0's correlations: the noise and the error need each other."""
    if not covariances.noisy:
        covariances.step(Cg, rows)
    else:
        errors = [Unknown(covariances.Cv)]
        settle(errors, lambda: covariances.step(Cg, rows), rows, tolerance=tolerance, most_sweeps=most_sweeps)


def correlation(C: Symmetric) -> Unknown:
    """Return a correlation that is to be settled."""
    return Unknown(C, _FLOOR * max(float(np.abs(C.matrix[..., 0, 0]).max()), 1e-300))
