"""Nodes in time, with a row of the equations for each node and output, and room that grows with their number."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import memory
from deeplinear._core.arrays import Array, beside, to_numpy
from deeplinear._core.device import CPU, Device
from deeplinear._equations import system
from deeplinear._equations.coefficients import coefficients, structure
from deeplinear._equations.filler import Filler, plain_equations
from deeplinear._equations.system import Equations
from deeplinear._equations.training import growing_weights
from deeplinear._equations.two_time import Room
from deeplinear._problem.problem import Problem
from deeplinear._solvers.base import Unresolved
from deeplinear._solvers.panels.work import MOST_ROWS, PROBED, ROOM, more_room
from deeplinear._time.grid import Grid, breaks
from deeplinear._time.propagator import GridPropagator


class NodesInTime:
    """The grid that the problems of a batch share, their learning rates and their equations.

    Attributes
    ----------
    problems, depth_nodes, outputs
        What is solved, on so many nodes in depth (0: every layer), and the number of outputs.
    grid
        The time grid.
    equations
        Every two-time function, with a row for each node and output; other ones when there is more room.
    propagators, factors
        How each group of weight layers is trained, and the factor on its learning rate, shape (batch, 1).
    ends
        Steps at which a panel must end.
    """

    def __init__(self, problems: Sequence[Problem], depth_nodes: int = 0, device: Device = CPU) -> None:
        first = problems[0]
        self.problems, self.depth_nodes, self.outputs = list(problems), depth_nodes, first.data.outputs
        self.grid = Grid()
        self._device = device
        optimizers = [problem.stages[0].optimizer for problem in problems]
        if any(each.has_schedule or problem.phases for each, problem in zip(optimizers, problems, strict=True)):
            rates = np.stack([rates_of(problem) for problem in problems])
        else:
            rates = np.array([[each.lr] for each in optimizers])
        factors, decays = (
            np.stack([of_layers(problem, each) for problem, each in zip(problems, optimizers, strict=True)])
            for of_layers in (Problem.layer_rates, Problem.layer_decays)
        )
        weight_decay = np.array([[each.weight_decay] for each in optimizers])
        groups = dict.fromkeys(structure(first).groups)
        self.factors = {group: factors[:, group, None] for group in groups}
        self.propagators = {
            group: GridPropagator(self.factors[group] * rates, decays[:, group, None] * weight_decay, self.grid)
            for group in groups
        }
        self.ends = ends_of(first)
        self._phase_nodes = [0]  # first node of each phase so far
        self._allocate(min(first.steps, ROOM))

    @property
    def steps(self) -> int:
        """Number of steps that are to be covered."""
        return self.problems[0].steps

    def rows(self, nodes: slice) -> slice:
        """Rows of some nodes."""
        return slice(nodes.start * self.outputs, nodes.stop * self.outputs)

    @property
    def every_step_fits(self) -> bool:
        """Whether every step may have a row."""
        return self.steps * self.outputs <= MOST_ROWS

    def place(self, length: int) -> tuple[slice, NDArray[Any]]:
        """Append a set to the grid, and to the weights; return its rows and misfits of the learning rate, (batch,)."""
        nodes, count = self.grid.add(length), len(self.grid)
        if count * self.outputs > MOST_ROWS + PROBED * self.outputs and not self.every_step_fits:
            raise Unresolved(
                f"panels reached step {self.grid.end} of {self.steps} with {count} nodes: training does not become "
                "smooth enough; lower lr or steps, or raise tolerance"
            )
        if count > self.equations.c.structure.steps:
            self.resize(self._larger())
        numbers, misfits = [], []
        for propagator in self.propagators.values():
            lost, d, a, misfit = propagator.rows()
            numbers.append(np.concatenate([lost[..., None], d[..., None], a], axis=-1))
            misfits.append(misfit)
        # All of it goes to a device at once.
        self._weights.append(nodes.start, beside(np.stack(numbers).transpose(2, 0, 1, 3), self.equations.c.gamma0))
        return self.rows(nodes), np.max(misfits, axis=0)

    def fill_step(self) -> slice:
        """Append a single step, and fill its rows, which are returned."""
        rows = self.place(1)[0]
        self._fill(len(self.grid) - 1, len(self.grid))
        return rows

    def remove(self, sets: int, rows: slice) -> None:
        """Take so many sets, which have these rows, from the grid again."""
        for _ in range(sets):
            self.grid.remove()
        self.equations.room.clear(rows)

    def begin_phase(self) -> None:
        """Let the next node be the first of a phase, if it is, which has a target and a data set of its own."""
        begun, stages = len(self._phase_nodes), self.problems[0].stages
        if begun < len(stages) and self.grid.end + 1 == stages[begun].start:
            self._phase_nodes.append(len(self.grid))
            self.resize(self.equations.c.structure.steps)

    def resize(self, size: int, members: NDArray[np.int64] | None = None) -> None:
        """Take other equations with room for another number of nodes, and copy everything there.

        With ``members`` go on with these problems of the batch only.
        """
        before = self.equations.room
        if members is not None:
            self.problems = [self.problems[index] for index in members]
            self.factors = {group: factor[members] for group, factor in self.factors.items()}
            for propagator in self.propagators.values():
                propagator.keep(members)
        self._allocate(size)
        before.copy_to(self.equations.room, members)

    def _larger(self) -> int:
        size = self.equations.c.structure.steps
        return max(len(self.grid), min(self.steps, more_room(size, self.outputs)))

    def _allocate(self, size: int) -> None:
        """Make room for a number of nodes."""
        first = self.problems[0]
        ends = [*self._phase_nodes[1:], *[size] * (1 + len(first.stages) - len(self._phase_nodes))]
        lengths = tuple(np.diff(ends, prepend=0).tolist())
        shape, batch = structure(first, self.depth_nodes, size, lengths), len(self.problems)
        needed = system.memory(shape, batch, complex_numbers=any(problem.is_complex for problem in self.problems))
        memory.require(needed, "solving", "lower outputs, or raise tolerance", self._device)
        c = coefficients(self.problems, self.depth_nodes, size, self._device, lengths)
        room = Room(shape.size, c.gamma0, batch * system.kept(shape))
        self._weights = growing_weights(c, room)
        self.equations = Equations(c, self._weights.layers, room)
        self._fill = Filler(self.equations, self.equations.fill, plain_equations)

    def answers_to(self, node: int) -> NDArray[Any]:
        """How the modes answer to a disturbance of a single step, shape (batch, modes, steps, outputs, outputs)."""
        first, probed = self.rows(slice(node, node + 1)), self.rows(slice(node, node + PROBED))
        answer = to_numpy(self.equations.data.H.matrix[:, :, probed, first]).real
        return np.array(answer).reshape(*answer.shape[:2], PROBED, self.outputs, self.outputs)


def rates_of(problem: Problem) -> Array:
    """Learning rate at each step, shape (steps,)."""
    each = (stage.optimizer.rates(stage.of)[stage.since : stage.since + stage.steps] for stage in problem.stages)
    return np.concatenate(list(each))


def ends_of(problem: Problem) -> NDArray[np.int64]:
    """Steps at which a panel must end: where the schedule breaks, and the last of each phase."""
    optimizer = problem.stages[0].optimizer
    bent = breaks(rates_of(problem)) if optimizer.has_schedule or problem.phases else np.zeros(0, np.int64)
    return np.union1d(bent, [stage.stop - 1 for stage in problem.stages])
