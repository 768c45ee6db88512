"""The solver that takes panels, as a configuration."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from deeplinear._core import memory
from deeplinear._core.device import CPU, Device
from deeplinear._core.progress import Progress
from deeplinear._equations import system
from deeplinear._equations.coefficients import Structure, structure
from deeplinear._problem.phase import AnyOptimizer
from deeplinear._problem.problem import Problem
from deeplinear._rules.series import is_listed
from deeplinear._solvers import depth
from deeplinear._solvers.answer import answer_from, curves_of
from deeplinear._solvers.base import Answer, Solver, Unresolved, Work, not_plain
from deeplinear._solvers.panels.nodes import ends_of, rates_of
from deeplinear._solvers.panels.run import PanelRun
from deeplinear._solvers.panels.settle import MEMORY
from deeplinear._solvers.panels.work import MOST_ROWS, panels_memory, single_steps_work
from deeplinear._solvers.reach import check_reach
from deeplinear._solvers.rounding import rounding_at
from deeplinear._time.axis import NodesOfPanels
from deeplinear._time.grid import PANEL_NODES, breaks

FEW = 8
"""Problems that are solved together on a device, at least: fewer are faster on the processor, one by one."""

_LEAST_RICHNESS = 1e-4
"""Below this panels do not know closely enough how far weights have decayed, which is divided by the richness."""

_PASSES, _PASSES_IN_DEPTH = 15.0, 3.0
"""Passes over all matrices that panels usually take, in units of dense ones, which on nodes in depth sweep as well."""

_OVERRUN = 4.0
"""Work of panels that are not asked for, in units of the usual one, at which to give up."""

_SHARED = 2.0
"""Work of a batch, in units of what a problem may take on its own: each has the nodes that any of them needs."""

_DECAY_IN_PANEL = 2.0
"""Exponent by which weights decay in the longest panels that follow it, to a tolerance of 1e-6."""

_BEGINNING = 300
"""Single steps whose work tells whether panels begin: at first they take 32, and a hundred more for each panel."""

_NODES_AFTER_BREAK = 60
"""Nodes in time that panels take until they are long again after a schedule jumps or bends."""


@dataclass(frozen=True)
class Panels(Solver):
    """Solve smooth long runs at nodes in time.

    Attributes
    ----------
    tolerance
        Relative error of the losses.
    depth_nodes
        Number of nodes in depth, 0 to solve every layer; None to take as many as the tolerance needs.
    patience, overrun
        Part of the work of solving every step, and multiple of the usual work, after which to give up.
    device
        Where many problems are solved together.
    """

    name: ClassVar[str] = "panels"
    goes_first: ClassVar[bool] = True  # panels keep most
    beginning: ClassVar[int] = _BEGINNING
    tolerance: float = 1e-6
    depth_nodes: int | None = None
    patience: float = math.inf
    overrun: float = math.inf
    device: Device = CPU

    @property
    def error_in_time(self) -> float:
        """Relative error of the losses."""
        return self.tolerance

    def why_not(self, problem: Problem) -> str | None:
        """Panels are polynomials in time, which follow no noise and no oscillation."""
        if reason := not_plain(problem):
            return reason
        if any(stage.sampling.subsamples for stage in problem.stages):
            return "where batches are drawn, whose noise is never smooth"
        optimizer, *others = (stage.optimizer for stage in problem.stages)
        if any(_layers_and_decay(problem, other) != _layers_and_decay(problem, optimizer) for other in others):
            return "with phases that differ in weight_decay, layer_decay or layer_lr"
        decay = abs(optimizer.decays(1)[0])
        factors = (problem.layer_rates(optimizer) * problem.layer_decays(optimizer)).max()
        largest_rate = float(np.abs(rates_of(problem)).max() * factors) if decay else 0.0
        if decay * largest_rate >= 0.5:
            return "where weights decay within a few steps (lr * weight_decay is 0.5 or more)"
        if decay and problem.network.centered and abs(problem.network.richness) < _LEAST_RICHNESS:
            return f"where weights of a centered network decay and its richness is below {_LEAST_RICHNESS:g}"
        return None

    def estimate(self, problem: Problem) -> Work:
        """As many nodes in time as panels rarely exceed: 190 at a thousand steps, 45 more for each further decade.

        More are needed after breaks of a schedule, and where weights decay many times over.
        """
        optimizer, nodes = problem.stages[0].optimizer, 190 + 45 * math.log10(max(problem.steps, 1000) / 1000)
        nodes += _NODES_AFTER_BREAK * (len(problem.stages) - 1)
        if optimizer.weight_decay:
            decay = float(np.abs(optimizer.weight_decay * rates_of(problem)).sum())
            nodes += PANEL_NODES * decay / _DECAY_IN_PANEL
        if is_listed(optimizer.lr) or problem.phases:  # a jump is two neighbouring steps
            jumps = breaks(rates_of(problem))
            nodes += _NODES_AFTER_BREAK * int((np.diff(jumps, prepend=-2) > 1).sum())
        count = round(min(nodes, problem.steps, MOST_ROWS / problem.data.outputs))
        shape = self._shape(problem)
        passes = depth.passes(shape) * (_PASSES_IN_DEPTH if shape.depth_nodes else _PASSES)
        return Work(
            replace(shape, steps=count), passes, round(depth.most_nodes(problem, shape) * panels_memory(shape, count))
        )

    def begins(self, problem: Problem) -> bool:
        """Whether a panel is found soon, so that ``estimate`` applies: training has become smooth and stable."""
        shape = self._shape(problem)
        run = PanelRun([problem], self.tolerance, shape.depth_nodes, single_steps_work(self.beginning, shape.outputs))
        try:
            run.fill()
        except Unresolved:
            return run.exhausted and run.begun
        return True

    def given_up(self, problem: Problem) -> Work:
        """As many single steps as are taken before panels are given up."""
        shape = self._shape(problem)
        rows = min(MOST_ROWS, (3.0 * self._most_work(problem) * shape.outputs) ** (1 / 3))
        count = min(problem.steps, math.ceil(rows / shape.outputs))
        return Work(replace(shape, steps=count), depth.passes(shape), panels_memory(shape, count))

    def most(self, problem: Problem) -> Work:
        """The work of the panels, or of the single steps that are taken before they are given up."""
        return max(self.estimate(problem), self.given_up(problem), key=lambda work: work.bytes)

    def _shape(self, problem: Problem) -> Structure:
        return structure(problem, depth.likely_nodes(problem) if self.depth_nodes is None else self.depth_nodes)

    def _most_work(self, problem: Problem) -> float:
        """Work after which to give up."""
        usual, outputs = self.estimate(problem).shape, problem.data.outputs
        passes = _PASSES_IN_DEPTH if usual.depth_nodes else _PASSES
        return min(
            self.patience * single_steps_work(problem.steps, outputs),
            self.overrun * passes * single_steps_work(usual.steps, outputs),
        )

    def hurried(self, part: float) -> "Panels":
        """Return the same with so much patience, and without much more work than usual."""
        return replace(self, patience=part, overrun=_OVERRUN)

    def batches(self, problems: Sequence[Problem]) -> Iterator[list[int]]:
        """On a device problems of equal structure, schedule breaks and phases, as many as fit; elsewhere one by one.

        So are few problems, and those on nodes in depth, which settle, and choose their number, each on its own.
        """
        if self.device == CPU:
            yield from super().batches(problems)
            return
        groups: dict[tuple[Any, ...], list[int]] = {}
        for index, problem in enumerate(problems):
            groups.setdefault(self._kind(problem), []).append(index)
        for members in groups.values():
            most = int(self.device.available() // self._bytes_together([problems[members[0]]]))
            if min(most, len(members)) < FEW or self._shape(problems[members[0]]).depth_nodes:
                yield from ([index] for index in members)
                continue
            count = -(-len(members) // most)
            yield from (each.tolist() for each in np.array_split(members, count))

    def memory(self, problems: Sequence[Problem]) -> int:
        """Bytes that the answers to a batch keep on a device; elsewhere it depends on how many nodes are taken."""
        shape, numbers = self.estimate(problems[0]).shape, any(problem.is_complex for problem in problems)
        return system.memory(shape, len(problems), complex_numbers=numbers) if self._are_many(problems) else 0

    def _are_many(self, problems: Sequence[Problem]) -> bool:
        """Whether problems of one batch are solved together."""
        return self.device != CPU and len(problems) >= FEW and not self._shape(problems[0]).depth_nodes

    def _kind(self, problem: Problem) -> tuple[Any, ...]:
        """What problems share that are solved on one grid."""
        changes = problem.stages[0].optimizer.has_schedule
        return (self._shape(problem), tuple(ends_of(problem).tolist()), changes, problem.is_complex)

    def _bytes_together(self, problems: Sequence[Problem]) -> int:
        """Bytes that are held while a batch is solved."""
        work, numbers = self.estimate(problems[0]), 1 + any(problem.is_complex for problem in problems)
        unknowns = PANEL_NODES * work.shape.outputs * work.shape.size * system.kept(work.shape)
        return len(problems) * numbers * (work.bytes + 8 * 2 * MEMORY * unknowns)

    def solve(self, problems: Sequence[Problem], progress: Progress | None = None) -> list[Answer]:
        """Solve problems one by one, or together on a device; what cannot go on with the others is solved on its own.

        ``Unresolved`` says what became of each problem, if there are several.
        """
        if len(problems) == 1:
            return list(self._answers(problems, CPU, progress).values())
        together = self._solve_together(problems, progress) if self._are_many(problems) else {}
        answers: list[Answer] = []
        outcomes: list[Answer | Unresolved] = []
        for index, problem in enumerate(problems):
            try:
                answers.append(together[index] if index in together else self.solve([problem])[0])
            except Unresolved as reason:
                outcomes.append(reason)
            else:
                outcomes.append(answers[-1])
        unresolved = [outcome for outcome in outcomes if isinstance(outcome, Unresolved)]
        if unresolved:
            raise Unresolved(str(unresolved[0]), outcomes) from unresolved[0]
        return answers

    def _solve_together(self, problems: Sequence[Problem], progress: Progress | None) -> dict[int, Answer]:
        """Solve a batch on the device; return the answers to problems that could go on together."""
        memory.require(self._bytes_together(problems), "solving", "solve fewer problems at a time", self.device)
        try:
            return self._answers(problems, self.device, progress)
        except (Unresolved, MemoryError):  # of all of them, on one grid; or there are far more nodes than usual
            return {}

    def _answers(self, problems: Sequence[Problem], device: Device, progress: Progress | None) -> dict[int, Answer]:
        """Solve problems on one grid; return the answers to those that could go on, by their positions."""
        start = time.perf_counter()
        most_work = max(map(self._most_work, problems)) * (1.0 if len(problems) == 1 else _SHARED)

        def run(nodes: int, progress: Progress | None) -> PanelRun:
            filled = PanelRun(problems, self.tolerance, nodes, most_work, device)
            filled.fill(progress)
            return filled

        run_, stats, nodes = depth.resolved(run, problems[0], self.depth_nodes, self.tolerance, progress)
        grid, ends = run_.grid, len(run_.grid) - (run_.diverged_at >= 0)
        check_reach(run_.nodes.problems, run_.equations, ends)
        seconds = time.perf_counter() - start
        solver = replace(self, depth_nodes=nodes, patience=math.inf, overrun=math.inf, device=CPU)
        axis, answers = NodesOfPanels(tuple(grid.lengths)), {}
        curves = curves_of(run_.equations, run_.equations.equal_times)
        for index, node in enumerate(rounding_at(run_.equations, ends, grid.single)):
            own = stats | {
                "method": self.name,
                "nodes": len(grid),
                "lengths": grid.lengths,
                "tolerance": self.tolerance,
                "error": max(float(run_.error[index]), stats.get("depth_error", 0.0)),
                "error_floor": run_.errors.floor,
                "seconds": seconds,
                "batch": len(run_.members),
            }
            rounding = -1 if node < 0 else round(float(grid.times[node]))
            answers[int(run_.members[index])] = answer_from(solver, run_, curves, index, axis, own, rounding)
        return answers


def _layers_and_decay(problem: Problem, optimizer: AnyOptimizer) -> tuple[Any, ...]:
    """What phases must share, since a panel knows how weights decay from the start of training on."""
    factors = (problem.layer_rates(optimizer), problem.layer_decays(optimizer))
    return (optimizer.plain.weight_decay, *(tuple(each.tolist()) for each in factors))
