"""The solver that takes panels, as a configuration."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from deeplinear._core.progress import Progress
from deeplinear._equations.coefficients import Structure, structure
from deeplinear._problem.phase import AnyOptimizer
from deeplinear._problem.problem import Problem
from deeplinear._problem.series import is_listed
from deeplinear._solvers import depth
from deeplinear._solvers.answer import answer_from
from deeplinear._solvers.base import Answer, Solver, Unresolved, Work, not_plain
from deeplinear._solvers.panels.nodes import rates_of
from deeplinear._solvers.panels.run import PanelRun
from deeplinear._solvers.panels.work import MOST_ROWS, panels_memory, single_steps_work
from deeplinear._solvers.reach import check_reach
from deeplinear._solvers.rounding import rounding_at
from deeplinear._time.axis import NodesOfPanels
from deeplinear._time.grid import PANEL_NODES, breaks

_LEAST_RICHNESS = 1e-4
"""Below this panels do not know closely enough how far weights have decayed, which is divided by the richness."""

_PASSES, _PASSES_IN_DEPTH = 15.0, 3.0
"""Passes over all matrices that panels usually take, in units of dense ones, which on nodes in depth sweep as well."""

_OVERRUN = 4.0
"""Work of panels that are not asked for, in units of the usual one, at which to give up."""

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
    """

    name: ClassVar[str] = "panels"
    why_processor: ClassVar[str] = "they need the processor"
    goes_first: ClassVar[bool] = True  # panels keep most
    beginning: ClassVar[int] = _BEGINNING
    tolerance: float = 1e-6
    depth_nodes: int | None = None
    patience: float = math.inf
    overrun: float = math.inf

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
        run = PanelRun(problem, self.tolerance, shape.depth_nodes, single_steps_work(self.beginning, shape.outputs))
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

    def most_bytes(self, problem: Problem) -> int:
        """Those of the panels, or of the single steps that are taken before they are given up."""
        return max(self.estimate(problem).bytes, self.given_up(problem).bytes)

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

    def solve(self, problems: Sequence[Problem], progress: Progress | None = None) -> list[Answer]:
        """Solve problems one by one."""
        return [self._solve(problem, progress) for problem in problems]

    def _solve(self, problem: Problem, progress: Progress | None) -> Answer:
        start = time.perf_counter()
        most_work = self._most_work(problem)

        def run(nodes: int, progress: Progress | None) -> PanelRun:
            filled = PanelRun(problem, self.tolerance, nodes, most_work)
            filled.fill(progress)
            return filled

        run_, stats, nodes = depth.resolved(run, problem, self.depth_nodes, self.tolerance, progress)
        check_reach([problem], run_.equations)
        grid = run_.grid
        stats |= {
            "method": self.name,
            "nodes": len(grid),
            "lengths": grid.lengths,
            "tolerance": self.tolerance,
            "error": max(run_.error, stats.get("depth_error", 0.0)),
            "error_floor": run_.errors.floor,
            "seconds": time.perf_counter() - start,
            "batch": 1,
        }
        (node,) = rounding_at(run_.equations, len(grid) - (run_.diverged_at >= 0), grid.single)
        rounding = -1 if node < 0 else round(float(grid.times[node]))
        solver = replace(self, depth_nodes=nodes, patience=math.inf, overrun=math.inf)
        return answer_from(solver, run_, 0, NodesOfPanels(tuple(grid.lengths)), stats, rounding)


def _layers_and_decay(problem: Problem, optimizer: AnyOptimizer) -> tuple[Any, ...]:
    """What phases must share, since a panel knows how weights decay from the start of training on."""
    factors = (problem.layer_rates(optimizer), problem.layer_decays(optimizer))
    return (optimizer.plain.weight_decay, *(tuple(each.tolist()) for each in factors))
