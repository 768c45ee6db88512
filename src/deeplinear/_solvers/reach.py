"""How far a run has trained, against how far the modes of its data reach.

Modes that stand for infinitely many end at some eigenvalue. Once training has learned the slowest of them, the
loss falls to zero although the data have slower ones left to learn.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import to_numpy
from deeplinear._equations.system import Equations
from deeplinear._problem.problem import Problem

_ROUNDING = 1e-9
"""What rounding may take off a mode that is not learned at all."""


def check_reach(problems: Sequence[Problem], solved: Equations, ends: Sequence[int] | NDArray[np.int64]) -> None:
    """Raise ArithmeticError if one of the problems was trained beyond the reach of its modes.

    The slowest mode, of eigenvalue lam, has been trained for the time s at which exp(-s lam) is what is left of it.
    Where the loss is above its initial value slow modes do not matter. Steps or nodes from ``ends`` on, where a problem
    has diverged, hold whatever came of it.
    """
    for index, (problem, end) in enumerate(zip(problems, ends, strict=True)):
        modes = problem.modes
        if np.isinf(modes.reach):
            continue
        slowest = int(np.argmin(modes.eigenvalues))
        # Rows of a step have one entry for each output of each target that a phase has.
        H1 = np.abs(to_numpy(solved.data.H1[index, slowest]).real)
        left = H1.reshape(len(H1) // solved.c.structure.outputs, -1).max(axis=1)[:end]
        loss = to_numpy(solved.loss_curve(slice(0, len(left)))[index]).real
        counted = (left > 0) & (np.abs(loss) <= loss[:1])  # a loss that rounding errors grow in may be negative
        learned = -np.log(left[counted].min(initial=1.0))
        if learned > max(modes.eigenvalues[slowest] * modes.reach, _ROUNDING):
            raise ArithmeticError(
                f"training reached eigenvalues below {1 / modes.reach:.1g}, beyond the modes that represent "
                f"{problem.data!r}; lower steps or lr, or take a finite number of modes"
            )
