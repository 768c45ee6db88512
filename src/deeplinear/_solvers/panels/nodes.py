"""Nodes in time, with a row of the equations for each node and output, and room that grows with their number."""

import numpy as np

from deeplinear._core import memory
from deeplinear._core.arrays import Array
from deeplinear._equations import system
from deeplinear._equations.coefficients import coefficients, is_complex, structure
from deeplinear._equations.system import Equations
from deeplinear._equations.training import growing_weights
from deeplinear._equations.two_time import Room
from deeplinear._problem.problem import Problem
from deeplinear._solvers.base import Unresolved
from deeplinear._solvers.panels.work import MOST_ROWS, PROBED, ROOM, more_room
from deeplinear._time.grid import Grid, breaks
from deeplinear._time.propagator import GridPropagator


class NodesInTime:
    """The grid of one run, its learning rates and its equations.

    Attributes
    ----------
    problem, depth_nodes, outputs
        What is solved, on so many nodes in depth (0: every layer), and the number of its outputs.
    grid
        The time grid.
    equations
        Every two-time function, with a row for each node and output; other ones when there is more room.
    propagators, factors
        How each group of weight layers is trained, and the factor on its learning rate.
    ends
        Steps at which a panel must end.
    """

    def __init__(self, problem: Problem, depth_nodes: int) -> None:
        self.problem, self.depth_nodes, self.outputs = problem, depth_nodes, problem.data.outputs
        self.grid = Grid()
        optimizer = problem.stages[0].optimizer
        rates = rates_of(problem) if optimizer.has_schedule or problem.phases else np.asarray(optimizer.lr)
        groups = dict.fromkeys(structure(problem).groups)
        self.factors, decays = problem.layer_rates(optimizer), problem.layer_decays(optimizer)
        self.propagators = {
            group: GridPropagator(self.factors[group] * rates, decays[group] * optimizer.weight_decay, self.grid)
            for group in groups
        }
        last = [stage.stop - 1 for stage in problem.stages]
        self.ends = np.union1d(breaks(rates), last)
        self._phase_nodes = [0]  # first node of each phase so far
        self._allocate(min(problem.steps, ROOM))

    def rows(self, nodes: slice) -> slice:
        """Rows of some nodes."""
        return slice(nodes.start * self.outputs, nodes.stop * self.outputs)

    @property
    def every_step_fits(self) -> bool:
        """Whether every step may have a row."""
        return self.problem.steps * self.outputs <= MOST_ROWS

    def place(self, length: int) -> tuple[slice, float]:
        """Append a set to the grid, and to the weights; return its rows and the misfit of the learning rate."""
        nodes, count, steps = self.grid.add(length), len(self.grid), self.problem.steps
        if count * self.outputs > MOST_ROWS + PROBED * self.outputs and not self.every_step_fits:
            raise Unresolved(
                f"panels reached step {self.grid.end} of {steps} with {count} nodes: training does not become "
                "smooth enough; lower lr or steps, or raise tolerance"
            )
        if count > self.equations.c.structure.steps:
            self.resize(self._larger())
        rows, misfits = self.rows(nodes), [0.0]
        for group, propagator in self.propagators.items():
            lost, d, a, misfit = propagator.rows()
            self._weights.append(group, rows, lost[None], a[None], d[None])
            misfits.append(misfit)
        return rows, max(misfits)

    def remove(self, sets: int, rows: slice) -> None:
        """Take so many sets, which have these rows, from the grid again."""
        for _ in range(sets):
            self.grid.remove()
        self.equations.room.clear(rows)

    def begin_phase(self) -> None:
        """Let the next node be the first of a phase, if it is, which has a target and a data set of its own."""
        begun, stages = len(self._phase_nodes), self.problem.stages
        if begun < len(stages) and self.grid.end + 1 == stages[begun].start:
            self._phase_nodes.append(len(self.grid))
            self.resize(self.equations.c.structure.steps)

    def resize(self, size: int) -> None:
        """Take other equations with room for another number of nodes, and copy everything there."""
        before = self.equations.room
        self._allocate(size)
        before.copy_to(self.equations.room)

    def _larger(self) -> int:
        size, steps = self.equations.c.structure.steps, self.problem.steps
        return max(len(self.grid), min(steps, more_room(size, self.outputs)))

    def _allocate(self, size: int) -> None:
        """Make room for a number of nodes."""
        ends = [*self._phase_nodes[1:], *[size] * (1 + len(self.problem.stages) - len(self._phase_nodes))]
        lengths = np.diff(ends, prepend=0).tolist()
        shape = structure(self.problem, self.depth_nodes, size, lengths)
        needed = system.memory(shape, complex_numbers=is_complex(self.problem))
        memory.require(needed, "solving", "lower outputs, or raise tolerance")
        c = coefficients([self.problem], self.depth_nodes, size, lengths=lengths)
        room = Room(shape.size, c.gamma0, system.kept(shape))
        self._weights = growing_weights(c, room)
        self.equations = Equations(c, self._weights.layers, room)

    def answer_to(self, node: int) -> Array:
        """How the modes answer to a disturbance of a single step, shape (modes, steps, outputs, outputs)."""
        first, probed = self.rows(slice(node, node + 1)), self.rows(slice(node, node + PROBED))
        answer = self.equations.data.H.matrix[0, :, probed, first].real.copy()
        found: Array = answer.reshape(len(answer), PROBED, self.outputs, self.outputs)
        return found


def rates_of(problem: Problem) -> Array:
    """Learning rate at each step, shape (steps,)."""
    each = (stage.optimizer.rates(stage.of)[stage.since : stage.since + stage.steps] for stage in problem.stages)
    return np.concatenate(list(each))
