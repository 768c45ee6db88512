"""Finite networks, watched while they train."""

import pytest

import deeplinear as dl
from deeplinear._core.threads import one_blas_thread
from deeplinear._experiment.network import FiniteNetwork
from deeplinear._experiment.simulation import Simulation
from deeplinear._experiment.train import train_explicit


def train(problem, dim, init_seed, data_seed, record="all", *, averages=(), errors=False):
    """The run of one network with explicit matrices."""
    asked = Simulation.read(problem, dim, 1, 1, record, "explicit", averages)
    return train_explicit(asked, init_seed, data_seed, errors=errors)


def steps_of(case, dim, seed):
    """Weights and fields of one network at every step."""
    original, steps = FiniteNetwork.gradients, []

    def spy(self, h, g):
        steps.append(([weight.copy() for weight in self.weights], h, g))
        return original(self, h, g)

    one_more = dl.Problem(case.network, case.data, case.sampling, case.optimizer, case.steps + 1)
    with pytest.MonkeyPatch.context() as patch, one_blas_thread():
        patch.setattr(FiniteNetwork, "gradients", spy)
        train(one_more, dim, seed, seed, "losses")
    return steps
