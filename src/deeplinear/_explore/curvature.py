"""Where the page looks at the curvature of a run, and how closely."""

import numpy as np

import deeplinear as dl

VECTORS = 12
"""Directions that are looked at."""

_TIMES = 8


def looked_at(problem: dl.Problem) -> list[int]:
    """Return the steps at which the page shows the curvature: closer at first, where it changes most.

    Examples
    --------
    >>> network, optimizer = dl.MLP(depth=2, width=1.0), dl.GradientDescent(0.1)
    >>> looked_at(dl.Problem(network, dl.Isotropic(), dl.Population(), optimizer, steps=100))
    [0, 2, 8, 18, 32, 51, 73, 99]
    """
    return sorted({round(step) for step in (problem.steps - 1) * np.linspace(0.0, 1.0, _TIMES) ** 2})
