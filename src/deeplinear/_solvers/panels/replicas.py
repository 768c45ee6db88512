"""Overlaps of replicas on the nodes of a run: their responses are those of one network, only the sources differ."""

from functools import partial

import numpy as np

from deeplinear._core.arrays import computing, to_numpy
from deeplinear._solvers.base import Overlaps
from deeplinear._solvers.panels import guess
from deeplinear._solvers.panels.nodes import NodesInTime
from deeplinear._solvers.panels.settle import settle
from deeplinear._solvers.panels.sweep import SETTLED, SWEEPS, correlation, sweep_noise


def overlaps(nodes: NodesInTime, tolerance: float) -> Overlaps:
    """Return the overlaps, once all rows are filled to a tolerance."""
    eq = nodes.equations
    (same_data, _), (same_init, chain) = eq.replica(same_data=True), eq.replica(same_data=False)
    assert chain is not None
    with np.errstate(under="ignore"), computing(eq.c.gamma0):
        for each in nodes.grid.sets():
            rows = nodes.rows(each)
            if each.stop - each.start == 1:
                eq.fill_covariances(rows, chain, same_init)
                same_data.step(None, rows)
                continue
            for C in [*chain.sources(), *chain.correlations(), same_init.Cv, same_data.Cv]:
                C[rows] = guess.constant(C, rows, nodes.outputs)
            settle(
                [correlation(C) for C in chain.sources()],
                partial(eq.fill_covariances, rows, chain, same_init),
                rows,
                tolerance=SETTLED * tolerance,
                most_sweeps=SWEEPS,
            )
            sweep_noise(same_data, None, rows, SETTLED * tolerance, most_sweeps=SWEEPS)
    return Overlaps(
        same=eq.equal_times.error,
        same_data=to_numpy(same_data.Cv.diagonal()),
        same_init=to_numpy(same_init.Cv.diagonal()),
        independent=eq.equal_times.bias,
    )
