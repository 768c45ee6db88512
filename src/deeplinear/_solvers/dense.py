"""Dense causal stepping: every step is a row of every matrix, one pass, exact.

Time O(L T^3), memory O(L T^2) in the number of steps T (times outputs) and layers L.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import memory
from deeplinear._core.arrays import Array, computing, to_numpy
from deeplinear._core.cached import cached_property
from deeplinear._core.device import CPU, Device
from deeplinear._core.progress import Progress
from deeplinear._equations import replay, system
from deeplinear._equations.aside import REPORTED
from deeplinear._equations.coefficients import Coefficients, Structure, coefficients, row_set, structure
from deeplinear._equations.filler import Filler, plain_equations
from deeplinear._equations.rooted import Rooted
from deeplinear._equations.rules import Evaluation, evaluations
from deeplinear._equations.system import Equations
from deeplinear._equations.training import Training
from deeplinear._equations.two_time import Room, Symmetric
from deeplinear._problem.problem import Problem
from deeplinear._rules.averages import Average
from deeplinear._solvers import depth
from deeplinear._solvers.answer import answer_from, curves_of
from deeplinear._solvers.base import Answer, Overlaps, Solver, Work
from deeplinear._solvers.reach import check_reach
from deeplinear._solvers.rounding import rounding_at
from deeplinear._time.axis import EveryStep

_WATCH, _WATCH_MANY = 8, 64
"""Steps after which losses are looked at for divergence: where each is followed by Python, and where many are one call,
or replayed on a device, which must then be waited for."""

_SLOW = 1e6
"""Entries of a matrix of all problems from which on a step takes so long that fewer of them are one call."""

_ADVICE = "lower steps or outputs, or solve fewer problems at a time"

_CACHE = 48e6
"""Bytes of matrices worth stepping together: with more problems than this hardly any time is saved, as measured for 50
to 400 steps; with a third of it a problem takes 1.2 to 1.7 times as long."""

_WITH_ROOTS = 5
"""Bytes that roots take, at most, relative to the equations without them."""

_MOST_ROOTED = 2e9
"""Rows to the third power, times layers and modes, up to which it takes some seconds to keep roots."""


@dataclass(frozen=True)
class Dense(Solver):
    """Solve every step.

    Attributes
    ----------
    tolerance
        Relative error of the losses that nodes in depth may make; all else is exact to rounding.
    depth_nodes
        Number of nodes in depth, 0 to solve every layer; None to take as many as the tolerance needs.
    device
        Where the matrices live.
    averages
        Averages of the weights whose losses are wanted too.
    roots
        Whether correlations are kept by their roots, which takes some five times as long and loses far less in rounding
        where training becomes unstable late (``rooted.py``).
    """

    name: ClassVar[str] = "dense"
    is_last: ClassVar[bool] = True
    has_averages: ClassVar[bool] = True
    tolerance: float = 1e-6
    depth_nodes: int | None = None
    device: Device = CPU
    averages: tuple[Average, ...] = ()
    roots: bool = False

    def why_not(self, problem: Problem) -> str | None:
        """Every problem can be solved this way, given time and memory."""
        return None

    def estimate(self, problem: Problem) -> Work:
        """One pass; where nodes stand for layers also those on fewer nodes, to compare with."""
        shape = self.shape(problem)
        kept = round(depth.most_nodes(problem, shape) * self.memory([problem]))
        if shape.depth_nodes and depth.may_need_layers(problem):
            kept = max(kept, system.memory(structure(problem, 0), averages=self.averages))
        return Work(shape, depth.passes(shape), kept)

    def shape(self, problem: Problem) -> Structure:
        """Return the structure of the equations."""
        return structure(problem, depth.likely_nodes(problem) if self.depth_nodes is None else self.depth_nodes)

    def batches(self, problems: Sequence[Problem]) -> Iterator[list[int]]:
        """Problems of equal structure, as many as fit into the cache of a processor or the memory of a device."""
        groups: dict[Structure, list[int]] = {}
        for index, problem in enumerate(problems):
            groups.setdefault(self.shape(problem), []).append(index)
        for members in groups.values():
            size = self.worth_batching(problems[members[0]])
            for start in range(0, len(members), size):
                yield members[start : start + size]

    def worth_batching(self, problem: Problem) -> int:
        """Return how many problems like this one are solved faster together than apart."""
        shape = self.shape(problem)
        if shape.depth_nodes or self.roots:  # on nodes in depth problems choose their number, each on its own
            return 1
        if self.device != CPU:
            return max(1, min(self.device.available() // self.memory([problem]), replay.most_problems(shape)))
        return max(1, int(_CACHE / system.memory(shape, averages=self.averages)))

    def memory(self, problems: Sequence[Problem]) -> int:
        """Bytes that the equations of a batch keep."""
        numbers = any(problem.is_complex for problem in problems)
        shape = self.shape(problems[0])
        kept = system.memory(shape, len(problems), complex_numbers=numbers, averages=self.averages)
        return _WITH_ROOTS * kept if self.roots else kept

    def why_no_roots(self, problem: Problem) -> str | None:
        """Why correlations are not kept by their roots for a problem; None if they can be, in some seconds."""
        shape = self.shape(problem)
        changes = len(set(shape.sets.sets)) > 1 or len({stage.sampling.reuse for stage in problem.stages}) > 1
        if shape.depth_nodes or shape.own_noise or changes or shape.sets.twice:
            return "on nodes in depth, with small_batch, or where examples change"
        if shape.subsamples and shape.outputs > 1:
            return "with several outputs where batches are drawn"
        if self.device != CPU or problem.is_complex:
            return "on a device, or for derivatives"
        numbers = shape.size**3 * ((3 if shape.skip else 1) * shape.depth + shape.modes)
        return "for so many steps" if numbers > _MOST_ROOTED else None

    def solve(self, problems: Sequence[Problem], progress: Progress | None = None) -> list[Answer]:
        """Solve problems of one structure together, on as many nodes in depth as are needed."""
        start = time.perf_counter()

        def filled(nodes: int, progress: Progress | None) -> DenseRun:
            memory.require(replace(self, depth_nodes=nodes).memory(problems), "solving", _ADVICE, self.device)
            run = DenseRun(problems, coefficients(problems, nodes, device=self.device), self.averages, roots=self.roots)
            run.fill(progress)
            return run

        run, stats, nodes = depth.resolved(filled, problems[0], self.depth_nodes, self.tolerance, progress)
        check_reach(problems, run.equations, run.rows_done)
        steps, step_of = problems[0].steps, run.step_of
        found = [step_of(row) for row in rounding_at(run.equations, run.rows_done)]
        stats |= {"method": self.name, "seconds": time.perf_counter() - start, "batch": len(problems)}
        solver = replace(self, depth_nodes=nodes, device=CPU)
        curves = curves_of(run.equations, run.equations.equal_times)
        return [
            answer_from(solver, run, curves, index, EveryStep(steps), stats, rounding, run.averaged(index))
            for index, rounding in enumerate(found)
        ]


class DenseRun:
    """Equations of a batch of equally shaped problems, filled step by step.

    Attributes
    ----------
    equations
        Every two-time function, with a row for each step and output.
    diverged_at
        Step at which each problem diverged, -1 if it did not, shape (batch,).
    """

    def __init__(
        self, problems: Sequence[Problem], c: Coefficients, averages: Sequence[Average] = (), *, roots: bool = False
    ) -> None:
        with computing(c.gamma0):
            kind = Rooted if roots else Symmetric
            room = Room(c.structure.size, c.gamma0, c.batch * system.kept(c.structure), kind)
            self._training = Training(problems, c, room, averages)
            self.equations = Equations(c, self._training.layers, room)
        self.diverged_at: NDArray[np.int64] = np.full(c.batch, -1)
        self.rows_done: NDArray[np.int64] = np.full(c.batch, c.structure.steps)
        self._averages: list[list[NDArray[Any]]] = [[] for _ in averages]

    def step_of(self, row: int) -> int:
        """Return the step that a row belongs to; -1 stands for none."""
        reported = self.equations.c.structure.reported
        return row if reported is None or row < 0 else int(np.searchsorted(reported, row, side="right")) - 1

    def averaged(self, index: int) -> NDArray[Any]:
        """Test losses of averaged weights of one problem, shape (averages, steps)."""
        steps = self.equations.c.structure.rules[-1].stop
        curves = np.full((len(self._averages), steps), np.inf)
        for curve, values in zip(curves, self._averages, strict=True):
            curve[: len(values)] = [each[index] for each in values]
        if (end := self.diverged_at[index]) >= 0:
            curves[:, end:] = np.inf
        return curves

    def fill(
        self, progress: Progress | None = None, look: Callable[[Evaluation, Training], None] | None = None
    ) -> None:
        """Fill all rows; stop early once every problem of the batch has diverged.

        ``look`` is called after each evaluation, while the weights still are those of its row.
        """
        c, training = self.equations.c, self._training
        with computing(c.gamma0), self._steps(self.equations.fill) as fill:
            if training.is_open or training.aside.is_needed or look is not None:
                self._fill_along(fill, progress, look)
            else:
                self._fill_known(fill, progress)
        self.rows_done = np.where(self.diverged_at < 0, c.structure.steps, self.diverged_at)
        self.diverged_at = np.array([self.step_of(int(row)) for row in self.diverged_at])

    def _fill_known(self, fill: Callable[[int, int], None], progress: Progress | None) -> None:
        """Fill all rows where weights are known beforehand: many of them in one call."""
        c = self.equations.c
        steps, is_slow = c.structure.steps, c.batch * c.structure.size**2 > _SLOW and not self._is_replayed
        # Whether a step along the depth can be solved is known right after it.
        every = 1 if c.structure.depth_nodes else _WATCH if is_slow else _WATCH_MANY
        for start in range(0, steps, every):
            stop = min(start + every, steps)
            fill(start, stop)
            if progress is not None:
                for step in range(start, stop):
                    progress(step + 1, steps)
            self._watch(slice(start, stop))
            if (self.diverged_at >= 0).all():
                break

    def _fill_along(
        self,
        fill: Callable[[int, int], None],
        progress: Progress | None,
        look: Callable[[Evaluation, Training], None] | None,
    ) -> None:
        """Fill one row after the other where weights follow from gradients, or somebody looks at them."""
        c, training = self.equations.c, self._training
        times, watched, steps = c.structure.steps, 0, c.structure.rules[-1].stop
        every = 1 if c.structure.depth_nodes else _WATCH
        for evaluation in evaluations(c.structure.rules):
            if training.aside.is_due(evaluation):
                self._look_aside(evaluation.row)
            training.note(evaluation)
            if training.aside.cannot_wait(evaluation):
                self._look_aside(evaluation.row)
            self._evaluate(evaluation, fill)
            training.learn(evaluation, self.equations)
            if look is not None:
                look(evaluation, training)
            if progress is not None:
                progress(evaluation.step + 1, steps)
            done = evaluation.row + 1
            if done % every == 0 or done == times:
                self._watch(slice(watched, done))
                watched = done
            if (self.diverged_at >= 0).all():
                break

    @contextmanager
    def _steps(
        self, fill: Callable[[slice], None], *others: Room, by_slices: bool = False
    ) -> Iterator[Callable[[int, int], None]]:
        """Make of what fills some rows what fills those of all times from one to another, by a record if it may."""
        if not self._is_replayed:
            is_recorded = fill == self.equations.fill and not isinstance(self.equations.data_covariances.Cv, Rooted)
            yield Filler(self.equations, fill, plain_equations if is_recorded else None)
            return
        steps = replay.Replay(self.equations.c, fill, (self.equations.room, *others))
        one_by_one = (lambda row: fill(row_set(self.equations.c, row))) if by_slices else steps

        def run(start: int, stop: int) -> None:
            for row in range(start, stop):
                one_by_one(row)

        try:
            yield run
        finally:
            steps.end()

    @cached_property
    def _is_replayed(self) -> bool:
        """Whether steps are recorded on a card, which needs weights that are known beforehand."""
        training = self._training
        return not training.is_open and not training.aside.is_needed and replay.why_not(self.equations.c) is None

    def _evaluate(self, evaluation: Evaluation, fill: Callable[[int, int], None]) -> None:
        """Fill the row of an evaluation.

        What overflows must not meet the zeros of weights that wait to be looked at, and did not learn from it: once a
        loss has grown, the row is taken back until each of them has been looked at alone, and from then on none waits.
        """
        aside, eq = self._training.aside, self.equations
        self._training.place(evaluation)
        fill(evaluation.row, evaluation.row + 1)
        if aside.steps and eq.grows(evaluation.row):
            eq.room.clear(row_set(eq.c, evaluation.row))
            aside.together = 1
            self._look_aside(evaluation.row)
            self._training.place(evaluation)
            fill(evaluation.row, evaluation.row + 1)

    def _look_aside(self, row: int) -> None:
        """Look at averages, and at weights that are reported in place of others, in the place of rows from one on."""
        outputs = self.equations.c.structure.outputs
        for number, waiting in self._training.aside.places(row):
            rows = slice(row * outputs, (row + len(waiting)) * outputs)
            if number == REPORTED:
                self.equations.reported.append((waiting, self.equations.passive(rows)))
            else:
                self._averages[number].extend(self.equations.passive_losses(rows).T)

    @cached_property
    def overlaps(self) -> Overlaps:
        """Overlaps of replicas: their responses are those of one network, only the sources differ."""
        eq = self.equations
        with computing(eq.c.gamma0):
            (same_data, _), (same_init, chain) = eq.replica(same_data=True), eq.replica(same_data=False)
            assert chain is not None

            def fill(rows: slice) -> None:
                eq.fill_covariances(rows, chain, same_init)
                same_data.step(None, rows)

            # Rows of several outputs are as long as all while they are replayed: what has overflowed would meet zeros.
            by_slices = eq.c.structure.outputs > 1 and bool((self.diverged_at >= 0).any())
            with self._steps(fill, same_data.room, same_init.room, by_slices=by_slices) as step:
                step(0, eq.c.structure.steps)
        reported, outputs = eq.c.structure.reported, eq.c.structure.outputs
        rows_of: Any = slice(None) if reported is None else (reported[:, None] * outputs + np.arange(outputs)).ravel()
        return Overlaps(
            same=eq.equal_times.error,
            same_data=to_numpy(same_data.Cv.diagonal())[:, rows_of],
            same_init=to_numpy(same_init.Cv.diagonal())[:, rows_of],
            independent=eq.equal_times.bias,
        )

    @property
    def test_losses(self) -> Callable[[NDArray[np.int64]], Array]:
        """Test losses at whole steps, shape (steps, batch), as a function that keeps nothing else of the run."""
        losses: NDArray[Any] = to_numpy(self.equations.loss_curve(slice(0, self.equations.c.structure.steps))).T
        reported = self.equations.c.structure.reported
        known = losses if reported is None else losses[reported]
        return lambda steps: known[steps]

    def _watch(self, steps: slice) -> None:
        diverges = self.equations.diverges(steps)
        if (reported := self.equations.c.structure.reported) is not None:
            # A loss up the slope may be large while that of the weights is not.
            diverges &= np.isin(np.arange(steps.start, steps.stop), reported)
        new = diverges.any(axis=1) & (self.diverged_at < 0)
        self.diverged_at[new] = steps.start + diverges[new].argmax(axis=1)
