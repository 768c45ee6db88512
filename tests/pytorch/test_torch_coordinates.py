"""Coordinate checks of modules of PyTorch."""

import numpy as np
import pytest

import deeplinear as dl
from needs import need_torch

torch, dt = need_torch()

nn = torch.nn
DIM = 16


def of_problem(parameterization):
    """A factory of nonlinear networks with the parameterization of a problem, whose function is zero at first."""

    def factory(width, seed):
        network = dl.MLP(2, width / DIM, parameterization=parameterization, init_scale={"readout": 0.0})
        problem = dl.Problem(network, dl.Isotropic(), dl.FullBatch(4.0), dl.GradientDescent(0.2), 10)
        module = dt.network(problem, DIM, seed=seed, activation=torch.relu)
        optimizer, (x, y, _) = dt.optimizer(problem, module), next(iter(dt.data(problem, DIM, seed=seed)))

        def train():
            optimizer.zero_grad()
            (module(x) - y).square().sum(1).mean().div(2).backward()
            optimizer.step()

        return module, train, x

    return factory


def test_a_nonlinear_network_in_mup_is_stable_and_in_the_others_is_not():
    widths, seeds = [64, 512], {"seeds": 5}
    checks = {name: dl.coordinate_check(of_problem(name), widths, experiment=seeds) for name in ("mup", "ntk")}
    assert checks["mup"].names == ("layers.0", "layers.1", "layers.2")
    assert checks["mup"].stable
    assert not checks["ntk"].stable
    np.testing.assert_allclose(checks["mup"].powers[1, :2], 0.0, atol=0.1)  # hidden layers; standard errors are 0.03
    np.testing.assert_allclose(
        checks["ntk"].powers[1, :2], -1.0, atol=0.1
    )  # a half of it from the readout, zero at first
    assert checks["ntk"].verdict.startswith("not stable: the update of layers.")
    assert "±" in checks["ntk"].verdict


def test_layers_are_modules_with_weights_of_their_own():
    def factory(width, seed):
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(DIM, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, 1))
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        x = torch.randn(20, DIM)

        def train():
            optimizer.zero_grad()
            module(x).square().mean().backward()
            optimizer.step()

        return module, train, x

    check = dl.coordinate_check(factory, [32, 64], step=2, experiment={"seeds": 2})
    assert check.names == ("0", "3")
    assert check.measured.size.shape == (2, 2)
    assert check.predicted is None
    assert np.isnan(check.largest_deviation)
    assert check.plot().axes[0].get_xlabel() == "width"


def test_factories_are_refused_that_change_their_layers():
    def factory(width, seed):
        module = nn.Sequential(*[nn.Linear(2, 2) for _ in range(width)])
        return module, lambda: None, torch.ones(1, 2)

    with pytest.raises(ValueError, match="the same layers at every width"):
        dl.coordinate_check(factory, [1, 2])
    with pytest.raises(ValueError, match="seeds alone"):
        dl.coordinate_check(factory, [1, 2], experiment={"dim": 3})
