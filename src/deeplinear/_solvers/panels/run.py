"""Panels: the same equations on a coarse time grid, for horizons of up to millions of steps.

After a start of single steps, time is covered by panels that grow as training slows down (see ``_time/grid.py``).
The rows of a panel are swept until they stand still (``sweep.py``). What a panel leaves unresolved is read off the
last coefficients of its polynomials (``error.py``); it is done again at half the length if that is too much, and by
single steps, which are exact, where panels do not work.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, computing, to_numpy
from deeplinear._core.cached import cached_property
from deeplinear._core.device import CPU, Device
from deeplinear._core.progress import Progress
from deeplinear._equations.chain import Chain
from deeplinear._equations.system import Equations
from deeplinear._problem.problem import Problem
from deeplinear._solvers.base import Overlaps, Unresolved
from deeplinear._solvers.panels import replicas
from deeplinear._solvers.panels.error import VANISHED, Errors, grows, larger
from deeplinear._solvers.panels.nodes import NodesInTime
from deeplinear._solvers.panels.sweep import ROUNDING, SETTLED, Panel
from deeplinear._solvers.panels.work import PROBED, START, step_work
from deeplinear._solvers.rounding import amplification
from deeplinear._time.grid import PANEL_NODES, Grid

_FIRST = 2 * PANEL_NODES
"""Length of the first panel."""

_MOST_GROUPS = 32
"""Groups of single steps, at most, before another panel is tried."""

_ALTERNATING = 0.1
"""Part of a panel's error, at most, that may alternate from step to step, as it must to be amplified."""

_REFUSALS = 6
"""Panels that are refused for one problem, in a row, while most others would take them, before it is left out."""

_LEFT_OUT = 0.25
"""Part of a batch that is left out when the rest moves to equations of its own."""

_STIFFER = 1.05
"""Growth of learning rate times kernel after which that is tried again."""


class PanelRun:
    """Solution of a batch of problems on one grid of nodes in time.

    A panel is taken if it is good for every problem, and as long as the worst of them allows. A problem that cannot go
    on, or holds most others up, is left out: what is said of a problem on its own (divergence, ``Unresolved``) is only
    said there. Its place in the batch is filled with whatever comes, until that is cut out.

    Attributes
    ----------
    nodes
        The time grid and the equations.
    errors
        What the errors of losses and correlations are relative to.
    members
        Which of the problems the batch still consists of, by their positions, shape (batch,).
    begun
        Whether a panel has been taken.
    error
        Estimate of the relative error of the losses, shape (batch,).
    diverged_at
        Step at which training diverged, -1 if it did not, shape (batch,).
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        tolerance: float,
        depth_nodes: int = 0,
        most_work: float = math.inf,
        device: Device = CPU,
    ) -> None:
        count, self.tolerance = len(problems), tolerance
        self.nodes = NodesInTime(problems, depth_nodes, device)
        self.errors = Errors(self.nodes, tolerance)
        self._work_left = most_work
        self.diverged_at: NDArray[np.int64] = np.full(count, -1)
        self.begun, self.error, self._panel_error = False, np.zeros(count), np.zeros(count)
        self._goal = tolerance  # of a single panel
        self._probed = np.zeros(count)  # largest learning rate times kernel at which disturbances were seen to die out
        self.members: NDArray[np.int64] = np.arange(count)
        self._alone = count == 1
        self._left_out, self._held_up = np.zeros(count, bool), np.zeros(count, int)

    def fill(self, progress: Progress | None = None) -> None:
        """Cover all steps; stop early if training diverges."""
        ignored = np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore")
        with ignored, computing(self.equations.c.gamma0):
            self._fill(progress)
            self._cut_out(len(self.grid))

    def _fill(self, progress: Progress | None) -> None:
        steps, ends = self.nodes.steps, self.nodes.ends
        length, groups = _FIRST, 1
        self._single_steps(min(START, steps))
        while self.grid.end < steps - 1 and not (self.diverged_at >= 0).any():
            if self._left_out.mean() > _LEFT_OUT:
                self._cut_out(self.equations.c.structure.steps)
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
            errors = self._panel(length)
            error = float(errors[~self._left_out].max())
            shrink = 0.85 * (self._goal / max(error, 1e-300)) ** (1 / PANEL_NODES)
            if error <= self._goal:
                groups = 1
                length = int(length * max(0.5, min(2.0, shrink)))
            elif not self._go_on_without(errors):
                length = length // 2 if length > PANEL_NODES else 0
            if progress is not None:
                progress(self.grid.end + 1, steps)

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
        """Test losses at whole steps, shape (steps, batch), as a function that keeps nothing else of the run."""
        grid, at_nodes = self.grid, to_numpy(self.equations.loss_curve(slice(0, len(self.grid)))).T
        return lambda steps: grid.interpolation(steps) @ at_nodes

    def _single_steps(self, count: int) -> None:
        """Take exact steps."""
        for _ in range(count):
            self._take(1.0)
            self.nodes.begin_phase()
            rows = self.nodes.fill_step()
            if not self.errors.initial.size:
                self._begin(rows)
            diverges = self.equations.diverges(self.grid.last)[:, 0]
            if self._alone and diverges[0]:
                self.diverged_at[0] = self.grid.end
                return
            unsettled = f"step {self.grid.end} was not resolved along the depth; lower branch or lr"
            self._leave_out(diverges | self.chain.unsettled, Unresolved(unsettled))
            if self._panel_error.any():
                self._amplify()

    def _begin(self, rows: slice) -> None:
        """Take note of the first step, which has these rows."""
        self.errors.begin(rows)
        left = [
            _least_loss(problem) / max(float(at_first), 1e-300)
            for problem, at_first in zip(self.nodes.problems, self.errors.initial[:, 0], strict=True)
        ]
        self._goal /= float(self.errors.added_up(np.array(left)).max())

    @property
    def exhausted(self) -> bool:
        """Whether as much work has been done as was given."""
        return self._work_left < 0

    def _take(self, steps: float) -> None:
        """Count the work of so many steps here; raise Unresolved when as much is done as was given."""
        self._work_left -= steps * step_work(len(self.grid) * self.nodes.outputs)
        if self.exhausted:
            raise Unresolved(
                f"panels have reached step {self.grid.end} of {self.nodes.steps} with far more work than usual, "
                "because training does not become smooth enough; lower lr or raise tolerance"
            )

    def _leave_out(self, these: NDArray[np.bool_], reason: Unresolved) -> None:
        """Leave problems out; raise the reason if none remains."""
        self._left_out |= these
        if self._left_out.all():
            raise reason

    def _go_on_without(self, errors: NDArray[np.float64]) -> bool:
        """Leave out what has had panels refused, time after time, that most others would have taken; say whether so."""
        refused = ~(errors <= self._goal) & ~self._left_out
        if 2 * refused.sum() >= (~self._left_out).sum():
            return False
        self._held_up = np.where(refused, self._held_up + 1, 0)
        late = self._held_up >= _REFUSALS
        self._left_out |= late
        return bool(late.any())

    def _cut_out(self, size: int) -> None:
        """Go on with room for another number of nodes, and without what was left out."""
        if not self._left_out.any():
            self.nodes.resize(size)
            return
        kept = np.flatnonzero(~self._left_out)
        self.nodes.resize(size, kept)
        self.errors.initial = self.errors.initial[kept]
        self.members, self.diverged_at, self.error = self.members[kept], self.diverged_at[kept], self.error[kept]
        self._panel_error, self._probed = self._panel_error[kept], self._probed[kept]
        self._left_out, self._held_up = self._left_out[kept], self._held_up[kept]

    def _amplify(self) -> None:
        """Count what a step has made of the errors of panels before it."""
        node = len(self.grid) - 1
        amplified = amplification(self.equations, slice(node, node + 1), self.grid.single)[:, 0]
        self.error = larger(self.error, _ALTERNATING * self._panel_error * amplified)
        self._leave_out(~(self.error <= self.tolerance), self._at_the_edge())

    def _check_that_oscillations_end(self) -> None:
        """Raise Unresolved if, after hundreds of single steps, disturbances still alternate and do not die out.

        Not if every step may have a row, nor if the schedule breaks, which disturbs as well.
        """
        ends, end = self.nodes.ends, self.grid.end
        broken = ((ends > end - PROBED) & (ends <= end)).any()
        if self.nodes.every_step_fits or (self.diverged_at >= 0).any() or broken:
            return
        answers = self.nodes.answers_to(len(self.grid) - PROBED)
        self._leave_out(np.array([grows(answer) for answer in answers]), self._at_the_edge())

    def _at_the_edge(self) -> Unresolved:
        return Unresolved(
            f"training is at the edge of stability around step {self.grid.end}, which panels cannot follow; lower lr"
        )

    def _panel(self, length: int) -> NDArray[np.float64]:
        """Append a panel; return its errors, infinite where it did not settle. It is removed if one is too large."""
        previous, alternating = self.grid.last, self.errors.alternating()
        rows, misfit = self.nodes.place(length)
        error, counts = larger(misfit, alternating), ~self._left_out
        if (error <= self._goal)[counts].all():
            panel = Panel(self.nodes, self.errors, rows, previous, counts, self._take)
            try:
                residual = panel.settle(self._goal)
            except np.linalg.LinAlgError:
                residual = np.full(len(error), np.inf)
            # What has not settled is a jump to the steps after the panel.
            good = residual <= larger(SETTLED * self._goal, ROUNDING)
            if good.any():
                error = np.where(good, larger(error, self.errors.truncation(rows)), np.inf)
            else:
                error = np.full(len(error), np.inf)
            if (error <= self._goal)[counts].all():
                self._accept(error, residual, self.errors.left(rows))
                return error
        self.nodes.remove(1, rows)
        return np.where(np.isfinite(error), error, np.inf)

    def _accept(self, error: NDArray[np.float64], residual: NDArray[np.float64], left: NDArray[np.float64]) -> None:
        """Count the errors of a panel that is taken, after which a part of the initial loss is left."""
        self.begun, self._panel_error = True, larger(larger(self._panel_error, error), residual)
        self.error = larger(self.error, self._panel_error * self.errors.added_up(left))
        vanished = left < 1e-3 * self.errors.floor
        self.error = np.where(vanished, larger(self.error, VANISHED / self.errors.floor), self.error)
        self._held_up[:] = 0
        self._check_stability()

    def _check_stability(self) -> None:
        """Raise Unresolved if a disturbance of one step would grow, which a panel, being smooth, never shows."""
        nodes, count = self.nodes, len(self.grid)
        kernel = to_numpy(self.chain.kernel()[:, self.grid.last]).real
        stiffness = (self._rate().real * kernel).max(axis=1)
        due = ~(stiffness <= _STIFFER * self._probed) & ~self._left_out
        if not due.any():
            return
        with ExitStack() as held:  # a schedule that is not smooth would seem to answer
            for group, propagator in nodes.propagators.items():
                held.enter_context(propagator.held(nodes.factors[group] * stiffness[:, None] / kernel[:, -1:]))
            for _ in range(PROBED):
                self._take(1.0)
                nodes.fill_step()  # which may make room in new equations
        growing = np.array([grows(answer) for answer in nodes.answers_to(count)])
        nodes.remove(PROBED, nodes.rows(slice(count, count + PROBED)))
        self._leave_out(due & growing, self._at_the_edge())
        self._probed = np.where(growing, self._probed, larger(self._probed, stiffness))

    def _rate(self) -> NDArray[Any]:
        """Learning rate at the last nodes of the weights that train fastest, without their factor, (batch, nodes)."""
        nodes = self.nodes
        factors = np.stack([nodes.factors[group][:, 0] for group in nodes.propagators], axis=1)  # which the kernel has
        rates = np.stack([each.rate[:, self.grid.last] for each in nodes.propagators.values()], axis=1)
        problems, fastest = np.arange(len(factors)), np.abs(factors).argmax(axis=1)
        factor = factors[problems, fastest]
        rate: NDArray[Any] = rates[problems, fastest] / np.where(factor == 0, 1.0, factor)[:, None]
        return rate

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
