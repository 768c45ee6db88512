"""Panels: the same equations on a coarse time grid, for horizons of up to millions of steps.

After a start of single steps, time is covered by panels that grow as training slows down (see ``_time/grid.py``).
The rows of a panel are swept until they stand still (``sweep.py``). What a panel leaves unresolved is read off the
last coefficients of its polynomials (``error.py``); it is done again at half the length if that is too much, and by
single steps, which are exact, where panels do not work.
"""

import math
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array
from deeplinear._core.cached import cached_property
from deeplinear._core.progress import Progress
from deeplinear._equations.chain import Chain
from deeplinear._equations.system import Equations
from deeplinear._problem.problem import Problem
from deeplinear._solvers.base import Overlaps, Unresolved
from deeplinear._solvers.panels import replicas
from deeplinear._solvers.panels.error import VANISHED, Errors, grows
from deeplinear._solvers.panels.nodes import NodesInTime
from deeplinear._solvers.panels.sweep import ROUNDING, SETTLED, SMALL, Panel
from deeplinear._solvers.panels.work import PROBED, START, step_work
from deeplinear._solvers.rounding import amplification
from deeplinear._time.grid import PANEL_NODES, Grid

_FIRST = 2 * PANEL_NODES
"""Length of the first panel."""

_MOST_GROUPS = 32
"""Groups of single steps, at most, before another panel is tried."""

_ALTERNATING = 0.1
"""Part of a panel's error, at most, that may alternate from step to step, as it must to be amplified."""

_STIFFER = 1.05
"""Growth of learning rate times kernel after which that is tried again."""


class PanelRun:
    """Solution of one problem on a grid of nodes in time.

    Attributes
    ----------
    nodes
        The time grid and the equations.
    errors
        What the errors of losses and correlations are relative to.
    begun
        Whether a panel has been taken.
    error
        Estimate of the relative error of the losses.
    diverged_at
        Step at which training diverged, -1 if it did not, shape (1,).
    """

    def __init__(self, problem: Problem, tolerance: float, depth_nodes: int = 0, most_work: float = math.inf) -> None:
        self.problem, self.tolerance = problem, tolerance
        self.nodes = NodesInTime(problem, depth_nodes)
        self.errors = Errors(self.nodes, tolerance)
        self._work_left = most_work
        self.diverged_at = np.array([-1])
        self.begun, self.error, self._panel_error = False, 0.0, 0.0
        self._goal = tolerance  # of a single panel
        self._probed = 0.0  # largest product of learning rate and kernel at which disturbances were seen to die out

    def fill(self, progress: Progress | None = None) -> None:
        """Cover all steps; stop early if training diverges."""
        steps, ends = self.problem.steps, self.nodes.ends
        length, groups = _FIRST, 1
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            self._single_steps(min(START, steps))
            while self.grid.end < steps - 1 and self.diverged_at[0] < 0:
                left = int(ends[np.searchsorted(ends, self.grid.end, side="right")]) - self.grid.end
                # What follows a jump of the learning rate is fast at first, and unlike the panel before it.
                if min(length, left) < PANEL_NODES or self.grid.end in ends:
                    self._single_steps(min(groups * PANEL_NODES, steps - 1 - self.grid.end))
                    if groups == _MOST_GROUPS:
                        self._check_that_oscillations_end()
                    length, groups = _FIRST, min(2 * groups, _MOST_GROUPS)
                    continue
                # No panel is much shorter than the one before, from which its first guess is taken.
                length = -(-left // 2) if length < left < 2 * length else min(length, left)
                error = self._panel(length)
                shrink = 0.85 * (self._goal / max(error, 1e-300)) ** (1 / PANEL_NODES)
                if error <= self._goal:
                    groups = 1
                    length = int(length * max(0.5, min(2.0, shrink)))
                else:
                    length = length // 2 if length > PANEL_NODES else 0
                if progress is not None:
                    progress(self.grid.end + 1, steps)
        self.nodes.resize(len(self.grid))

    @property
    def grid(self) -> Grid:
        """The time grid."""
        return self.nodes.grid

    @property
    def equations(self) -> Equations:
        """Every two-time function, with a row for each node and output."""
        return self.nodes.equations

    @property
    def chain(self) -> Chain:
        """The hidden layers."""
        return self.equations.chain

    @property
    def test_losses(self) -> Callable[[NDArray[np.int64]], Array]:
        """Test losses at whole steps, shape (steps, 1), as a function that keeps nothing else of the run."""
        grid, at_nodes = self.grid, self.equations.loss_curve(slice(0, len(self.grid))).T
        return lambda steps: grid.interpolation(steps) @ at_nodes

    def _single_steps(self, count: int) -> None:
        """Take exact steps."""
        for _ in range(count):
            self._take(1.0)
            self.nodes.begin_phase()
            rows = self.nodes.place(1)[0]
            self.equations.fill(rows)
            if not self.errors.initial:
                self.errors.begin(rows)
                self._goal /= self.errors.added_up(_least_loss(self.problem) / max(self.errors.initial[0], 1e-300))
            if self.equations.diverges(self.grid.last)[0, 0]:
                self.diverged_at[0] = self.grid.end
                return
            if self.chain.unsettled[0]:
                raise Unresolved(f"step {self.grid.end} was not resolved along the depth; lower branch or lr")
            if self._panel_error:
                self._amplify()

    @property
    def exhausted(self) -> bool:
        """Whether as much work has been done as was given."""
        return self._work_left < 0

    def _take(self, steps: float) -> None:
        """Count the work of so many steps here; raise Unresolved when as much is done as was given."""
        self._work_left -= steps * step_work(len(self.grid) * self.nodes.outputs)
        if self.exhausted:
            raise Unresolved(
                f"panels have reached step {self.grid.end} of {self.problem.steps} with far more work than usual, "
                "because training does not become smooth enough; lower lr or raise tolerance"
            )

    def _amplify(self) -> None:
        """Count what a step has made of the errors of panels before it."""
        node = len(self.grid) - 1
        amplified = float(amplification(self.equations, slice(node, node + 1), self.grid.single)[0, 0])
        self.error = max(self.error, _ALTERNATING * self._panel_error * amplified)
        if not self.error <= self.tolerance:
            raise self._at_the_edge()

    def _check_that_oscillations_end(self) -> None:
        """Raise Unresolved if, after hundreds of single steps, disturbances still alternate and do not die out.

        Not if every step may have a row, nor if the schedule breaks, which disturbs as well.
        """
        ends, end = self.nodes.ends, self.grid.end
        broken = ((ends > end - PROBED) & (ends <= end)).any()
        if self.nodes.every_step_fits or self.diverged_at[0] >= 0 or broken:
            return
        if grows(self.nodes.answer_to(len(self.grid) - PROBED)):
            raise self._at_the_edge()

    def _at_the_edge(self) -> Unresolved:
        return Unresolved(
            f"training is at the edge of stability around step {self.grid.end}, which panels cannot follow; lower lr"
        )

    def _panel(self, length: int) -> float:
        """Append a panel; return its error, infinite if it did not settle. It is removed if that is too large."""
        previous, alternating = self.grid.last, self.errors.alternating()
        rows, misfit = self.nodes.place(length)
        error = max(misfit, alternating)
        if error <= self._goal:
            try:
                residual = Panel(self.nodes, self.errors, rows, previous, self._take).settle(self._goal)
            except np.linalg.LinAlgError:
                residual = np.inf
            # What has not settled is a jump to the steps after the panel, the larger the smaller losses are.
            allowed = SETTLED if self.errors.left(rows) < SMALL else 0.1
            good = residual <= max(allowed * self._goal, ROUNDING)
            error = max(error, self.errors.truncation(rows)) if good else np.inf
            if error <= self._goal:
                self.begun, self._panel_error = True, max(self._panel_error, error, residual)
                left, floor = self.errors.left(rows), self.errors.floor
                self.error = max(self.error, self._panel_error * self.errors.added_up(left))
                if left < 1e-3 * floor:
                    self.error = max(self.error, VANISHED / floor)
                self._check_stability()
                return error
        self.nodes.remove(1, rows)
        return error if np.isfinite(error) else np.inf

    def _check_stability(self) -> None:
        """Raise Unresolved if a disturbance of one step would grow, which a panel, being smooth, never shows."""
        nodes, count = self.nodes, len(self.grid)
        kernel = self.chain.kernel()[0, self.grid.last].real
        fastest = max(nodes.propagators, key=lambda group: abs(nodes.factors[group]))  # the kernel has their factors
        rate = nodes.propagators[fastest].rate[self.grid.last] / (nodes.factors[fastest] or 1.0)
        stiffness = float((rate.real * kernel).max())
        if stiffness <= _STIFFER * self._probed:
            return
        with ExitStack() as held:  # a schedule that is not smooth would seem to answer
            for group, propagator in nodes.propagators.items():
                held.enter_context(propagator.held(nodes.factors[group] * stiffness / kernel[-1]))
            for _ in range(PROBED):
                self._take(1.0)
                rows = nodes.place(1)[0]  # which may make room in new equations
                self.equations.fill(rows)
        answer = nodes.answer_to(count)
        nodes.remove(PROBED, nodes.rows(slice(count, count + PROBED)))
        if grows(answer):
            raise self._at_the_edge()
        self._probed = stiffness

    @cached_property
    def overlaps(self) -> Overlaps:
        """Overlaps of replicas."""
        return replicas.overlaps(self.nodes, self.tolerance)


def _least_loss(problem: Problem) -> float:
    """Label noise that is left on the training set when as much of it is fitted as there are directions."""
    data = problem.data
    left = (
        np.real(stage.noise) ** 2 * max(0.0, 1.0 - np.real(stage.sampling.reuse) * problem.modes.weight.sum())
        for stage in problem.stages
    )
    return float(data.outputs * min(left))
