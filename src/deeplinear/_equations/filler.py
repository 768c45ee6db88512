"""Fills the rows of equations, by a program where a step can be recorded and that pays."""

from collections.abc import Callable, Hashable
from dataclasses import replace

import numpy as np

from deeplinear._core.cached import cached_property
from deeplinear._equations import system
from deeplinear._equations.coefficients import Coefficients, row_set
from deeplinear._equations.data_sets import DataSets
from deeplinear._equations.program import BY_TIME, Program, Steps, coefficient_arrays, compiled
from deeplinear._equations.recorder import Equations, recorded
from deeplinear._equations.recording import NotRecordable
from deeplinear._equations.training import growing_weights
from deeplinear._equations.two_time import Room

_FEW, _MANY, _DEEP = 20, 200, 16
"""Least number of steps for which a step is recorded, and that for networks with more layers than the last number.

Recording takes the time of 200 steps by Python, and once for all problems of a structure. That is 25 ms for three
layers, which nobody notices.
"""

_MOST_PROGRAMS = 256

_programs: dict[Hashable, Program | None] = {}
"""Programs of the structures that were recorded in this process; None where a step is not a list of operations."""


class Filler:
    """Fills the rows of equations one time after the other, by a program where a step can be recorded and that pays.

    Parameters
    ----------
    equations
        What is filled.
    fill
        Fills rows of them.
    make
        Makes equations like these of recorded coefficients in a room; None if their steps are not to be recorded.
    """

    def __init__(
        self,
        equations: Equations,
        fill: Callable[[slice], None],
        make: Callable[[Coefficients, Room], Equations] | None,
    ) -> None:
        self._equations, self._fill = equations, fill
        self._make = make if make is not None and _pays(equations.c) else None

    def __call__(self, start: int, stop: int) -> None:
        """Fill the rows of all times from start to stop."""
        if self._steps is not None:
            self._steps(start, stop)
            return
        for time in range(start, stop):
            self._fill(row_set(self._equations.c, time))

    @cached_property
    def _steps(self) -> Steps | None:
        """The program at work, None if there is none."""
        c, make = self._equations.c, self._make
        if make is None:
            return None
        structure = make, *_structure_of(c)
        if structure not in _programs:
            if len(_programs) >= _MOST_PROGRAMS:
                _programs.pop(next(iter(_programs)))
            try:
                _programs[structure] = recorded(c, make)
            except NotRecordable:
                _programs[structure] = None
        program = _programs[structure]
        return None if program is None else Steps(program, c, self._equations.room)


def plain_equations(c: Coefficients, room: Room) -> Equations:
    """Return equations of weights that nobody trains, which is all that a record needs."""
    return system.Equations(c, growing_weights(c, room).layers, room)


def _structure_of(c: Coefficients) -> tuple[Hashable, ...]:
    """Return what the steps of two batches must share to be the same operations."""
    s = c.structure
    shapes = tuple(
        (name, tuple("times" if name[0] in BY_TIME and n > 1 else n for n in array.shape[1:]))
        for name, array in coefficient_arrays(c)
    )
    data = DataSets(s.sets.reused, s.sets.subsampled, s.sets.resized)
    return replace(s, steps=0, rules=(), sets=data, probed=s.measures_gradients), c.is_isotropic, shapes


def _pays(c: Coefficients) -> bool:
    """Return whether steps may be alike, and recording them is worth its time.

    This depends on the problem alone, so that equal problems have equal answers to the last bit. They are not alike in
    phases, batches that several rows see, nodes in depth, and matrices of weights.
    """
    s = c.structure
    if compiled is None or not isinstance(c.gamma0, np.ndarray):
        return False
    if s.depth_nodes or s.sets.sets or s.sets.tasks or s.sets.twice or any(rule.traits.orthogonal for rule in s.rules):
        return False
    return s.steps >= (_FEW if s.depth <= _DEEP else _MANY)
