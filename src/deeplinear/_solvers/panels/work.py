"""Work and memory of panels: what single steps and sweeps take, and how many rows there is room for."""

from dataclasses import replace

from deeplinear._equations import system
from deeplinear._equations.coefficients import Structure
from deeplinear._time.grid import PANEL_NODES

START = 4 * PANEL_NODES
"""Single steps at the start."""

ROOM = START + 20 * PANEL_NODES
"""Nodes for which there is room at first; there is half as much again when it is used up."""

_OVERHEAD = 200
"""Rows of matrices whose products take as long as all else that a step does."""

MOST_ROWS = 2400
"""Rows (nodes times outputs) at which to give up, unless every step has a row by then."""

PROBED = 64
"""Single steps that are taken on trial, to see whether a disturbance of one step dies out."""


def single_steps_work(steps: int, outputs: int) -> float:
    """Work of so many single steps."""
    return steps * (step_work(0) + (steps * outputs) ** 2 / 3)


def step_work(rows: int) -> float:
    """Work of a single step at so many rows."""
    return float(_OVERHEAD**2 + rows**2)


def more_room(size: int, outputs: int) -> int:
    """Half as many nodes again, but no more than are taken before panels are given up, with the steps of a trial."""
    most = max(PROBED + MOST_ROWS // outputs, size + PANEL_NODES)
    return min(size + size // 2, most)


def panels_memory(shape: Structure, nodes: int) -> int:
    """Bytes that panels take at most, with so many nodes in time: matrices, and their copies when there is more room.

    Counted are also the steps of a trial after the last panel.
    """
    room = before = min(shape.steps, ROOM)
    while room < min(nodes + PROBED, shape.steps):
        room, before = min(shape.steps, more_room(room, shape.outputs)), room
    return sum(system.memory(replace(shape, steps=size)) for size in (room, max(before, nodes)))
