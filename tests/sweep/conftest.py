"""The problem that most sweeps start from."""

import pytest

import deeplinear as dl


@pytest.fixture
def problem() -> dl.Problem:
    return dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=6)
