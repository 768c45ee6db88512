"""A plain loop of PyTorch gives the losses of ``simulate``, for every network, sampling rule and optimiser."""

import copy
import itertools
import subprocess
import sys

import numpy as np
import pytest

import deeplinear as dl
from factories import maker
from needs import need_torch

torch, dt = need_torch()

CLOSE = 1e-12  # both round in double precision, in a different order; 6e-15 was seen
DIM, STEPS, SEED = 12, 6, 3
GRAM = [[1.0, 0.3], [0.3, 0.5]]
LR = 0.03

NETWORKS = [
    dl.MLP(1, 0.8, parameterization="standard"),
    dl.MLP(2, 0.8, init_scale=[0.5, 1.0, 2.0]),
    dl.MLP(3, [0.5, 1.0, 0.7], richness=0.5, parameterization="ntk", centered=True),
    dl.ResNet(3, 0.8, branch=1.3, centered=True),
    dl.ResNet(3, 0.8, branch_scaling=1.0, init_scale={"hidden": 0.5, "readout": 2.0}),
]
SAMPLINGS = [
    dl.Population(),
    dl.FullBatch(1.5),
    dl.OnlineSGD([0.4, 0.4, 0.6, 0.6, 0.5, 0.5]),
    dl.MultiPassSGD(1.5, 0.5),
]
OPTIMIZERS = {
    "plain": dl.GradientDescent(LR),
    "nesterov": dl.GradientDescent(
        dl.schedules.cosine(LR, warmup=0.3),
        momentum=0.8,
        nesterov=True,
        weight_decay=0.5,
        layer_lr={"readout": 0.5},
        layer_decay={"input": 2.0},
    ),
    "clipped": dl.GradientDescent(LR, momentum=[0.0, 0.5, 0.2, 0.3, 0.4, 0.5], clip=0.3),
    "clipped by layer": dl.GradientDescent(LR, clip=0.3, clip_by="layer"),
    "normalised": dl.NormalizedDescent(LR, beta2=0.9, momentum=0.5),
    "normalised globally": dl.NormalizedDescent(LR, per="global", weight_decay=0.5),
    "Muon": dl.Muon(LR, other=dl.GradientDescent(0.01, momentum=0.3)),
    "Muon with input": dl.Muon(LR, nesterov=True, input=True),
    "schedule-free": dl.ScheduleFree(LR, layer_lr={"input": 0.5}),
    "SAM": dl.SAM(LR, rho=0.1, momentum=0.5),
}
DATA = [
    dl.Isotropic(0.3),
    dl.Isotropic(0.3, GRAM),
    dl.Spectrum([2.0, 0.5], [1.0, 0.5], multiplicity=[0.4, 0.6], proportional=True, noise=0.2),
    dl.Isotropic(),
]
make = maker(
    "network", network=NETWORKS[1], data=DATA[1], sampling=SAMPLINGS[1], optimizer=OPTIMIZERS["plain"], steps=5
)


def trained(problem, dim=DIM, seed=SEED, data=None):
    """Train and test losses of a module at every step."""
    module, batches = dt.network(problem, dim, seed=seed), dt.data(problem, dim, seed=seed, data=data)
    optimizer = dt.optimizer(problem, module)

    def loss(batch, weight):
        return (weight * (module(batch.x) - batch.y).square().sum(1)).mean()

    losses = []
    for step, batch in enumerate(batches):

        def closure(batch=batch):
            optimizer.zero_grad()
            half = loss(batch, batch.weight) / 2
            half.backward()
            return half

        optimizer.eval()
        with torch.no_grad():
            losses.append([loss(each, 1.0).item() for each in (batch, batches.test(step))])
        optimizer.train()
        optimizer.step(closure)
    return np.array(losses).T


def assert_as_simulated(problem, dim=DIM, data=None):
    expected = dl.simulate(problem, dim, [SEED], method="explicit", record="losses", data=data)
    train, test = trained(problem, dim, data=data)
    assert test[0] != test[-1]
    np.testing.assert_allclose(train, expected.train_loss[0], rtol=CLOSE)
    np.testing.assert_allclose(test, expected.test_loss[0], rtol=CLOSE)


def cases():
    """Every network, sampling rule and optimiser that make a problem; all but a few of them in ``make check-slow``.

    The few have every network with every sampling rule, and every optimiser twice: ``optimizer`` never asks for the
    sampling rule, nor ``data`` for the optimiser.
    """
    names = list(OPTIMIZERS)
    few = [names[(index + index // len(names)) % len(names)] for index in range(len(NETWORKS) * len(SAMPLINGS))]
    for index, (network, sampling, name) in enumerate(itertools.product(NETWORKS, SAMPLINGS, names)):
        if name != "SAM" or not isinstance(sampling, dl.MultiPassSGD):  # which Problem refuses
            words = (network.kind.option, network.parameterization, sampling.kind.option, name)
            data = DATA[(index + index // len(names)) % len(DATA)]
            is_one_of_the_few = name == few[index // len(names)]
            marks = [] if is_one_of_the_few else [pytest.mark.slow]
            yield pytest.param(network, data, sampling, OPTIMIZERS[name], id="-".join(words), marks=marks)


@pytest.mark.parametrize(("network", "data", "sampling", "optimizer"), list(cases()))
def test_losses_are_those_of_simulate(network, data, sampling, optimizer):
    assert_as_simulated(dl.Problem(network, data, sampling, optimizer, STEPS))


def test_phases_are_those_of_simulate():
    phases = (
        dl.Phase(3, optimizer=OPTIMIZERS["schedule-free"]),
        dl.Phase(2, target_overlap=0.3, noise=0.1),
        dl.Phase(2, new_samples=False, noise=0.1),
        dl.Phase(3, sampling=dl.OnlineSGD(0.5), target_overlap=-1.0, optimizer=dl.GradientDescent(LR, momentum=0.5)),
        dl.Phase(2, optimizer=dl.NormalizedDescent(LR, beta2=0.5)),
    )
    start = dl.Problem(NETWORKS[3], DATA[1], SAMPLINGS[1], OPTIMIZERS["plain"], 12, phases=phases)
    assert_as_simulated(start)


@pytest.mark.parametrize("sampling", [dl.Population(), dl.FullBatch(9), dl.OnlineSGD(4), dl.MultiPassSGD(9, 4)])
def test_rows_of_a_data_set_are_those_of_simulate(sampling):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 5)) * [3.0, 2.0, 1.0, 1.0, 0.5]
    y = np.tanh(x @ rng.standard_normal((5, 2)))
    problem = dl.Problem(dl.MLP(2, 8, richness=0.5), dl.Spectrum.from_data(x, y), sampling, dl.GradientDescent(0.02), 5)
    assert_as_simulated(problem, None, data=(x, y))
    assert_as_simulated(problem, None)


def test_data_are_the_same_when_drawn_again():
    batches = dt.data(make(sampling=SAMPLINGS[2], steps=STEPS), DIM, seed=1)
    assert len(batches) == STEPS
    for first, second in zip(batches, batches, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    other = next(iter(dt.data(make(sampling=SAMPLINGS[2], steps=STEPS), DIM, seed=2)))
    assert not torch.equal(next(iter(batches)).x, other.x)


def test_exact_test_rows_have_the_loss_of_many_samples():
    batches, module = dt.data(make(data=DATA[2]), DIM), dt.network(make(data=DATA[2]), DIM)
    exact, drawn = ((module(x) - y).square().detach() for x, y, _ in (batches.test(), batches.test(samples=20_000)))
    error = drawn.std() / len(drawn) ** 0.5
    assert error < 0.02 * exact.mean()
    assert abs(exact.mean() - drawn.mean()) < 4 * error


@pytest.mark.parametrize("name", ["nesterov", "normalised", "Muon", "schedule-free"])
def test_training_goes_on_from_a_saved_state(name):
    problem = make(optimizer=OPTIMIZERS[name], steps=STEPS)
    batches = list(dt.data(problem, DIM))
    module = dt.network(problem, DIM)
    optimizer = dt.optimizer(problem, module)
    for batch in batches[:3]:
        _step(module, optimizer, batch)
    other = dt.network(problem, DIM, seed=1)
    again = dt.optimizer(problem, other)
    other.load_state_dict(module.state_dict())
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # as through a file
    for batch in batches[3:]:
        _step(module, optimizer, batch)
        _step(other, again, batch)
    for one, two in zip(module.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def _step(module, optimizer, batch):
    optimizer.zero_grad()
    (batch.weight * (module(batch.x) - batch.y).square().sum(1)).mean().div(2).backward()
    optimizer.step()


def test_single_precision_trains_too():
    problem = make()
    module = dt.network(problem, DIM, seed=SEED).float()
    optimizer = dt.optimizer(problem, module)
    for batch in dt.data(problem, DIM, seed=SEED):
        _step(module, optimizer, dt.Batch(*(each.float() for each in batch)))
    assert all(weight.dtype == torch.float32 for weight in module.parameters())


def test_an_activation_acts_on_every_hidden_layer():
    module = dt.network(make(dl.ResNet(3, 0.8)), DIM, activation=torch.relu)
    x = dt.data(make(), DIM).test().x
    first, second, third = module.features(x)
    weights = [layer.weight for layer in module.layers]
    width = weights[1].shape[0]
    torch.testing.assert_close(first, x @ weights[0].T / DIM**0.5)
    torch.testing.assert_close(second, first + torch.relu(first) @ weights[1].T / (3 * width) ** 0.5)
    torch.testing.assert_close(module(x), torch.relu(third) @ weights[3].T * DIM**0.5 / width)


def test_a_centered_network_with_an_activation_starts_from_zero():
    module = dt.network(make(dl.MLP(2, 0.8, centered=True)), DIM, activation=torch.nn.GELU())
    x = dt.data(make(), DIM).test().x
    assert not module(x).any()
    with torch.no_grad():
        module.layers[0].weight.mul_(1.5)
    assert module(x).any()


def test_what_cannot_be_done_is_refused():
    problem = make()
    module = dt.network(problem, DIM)
    with pytest.raises(ValueError, match="activation must be None or a PyTorch function"):
        dt.network(problem, DIM, activation="relu")
    with pytest.raises(ValueError, match=r"module must be a module that .* made, got Linear"):
        dt.optimizer(problem, torch.nn.Linear(3, 3))
    with pytest.raises(ValueError, match="module must have 4 weight layers, got 3"):
        dt.optimizer(make(dl.MLP(3, 0.8)), module)
    with pytest.raises(ValueError, match="width must be finite in a simulation"):
        dt.network(make(dl.MLP(3, "infinite")), DIM)
    with pytest.raises(ValueError, match="step must be below the number of steps"):
        dt.data(problem, DIM).test(5)
    with pytest.raises(ValueError, match="call backward on the loss"):
        dt.optimizer(problem, module).step()
    sam = dt.optimizer(make(optimizer=dl.SAM(0.1, 0.1)), module)
    with pytest.raises(ValueError, match="closure must be given to step with SAM"):
        _step(module, sam, next(iter(dt.data(problem, DIM))))
    descent = dt.optimizer(problem, module)
    for batch in dt.data(problem, DIM):
        _step(module, descent, batch)
    with pytest.raises(ValueError, match="all 5 steps of the problem were taken"):
        _step(module, descent, batch)


def test_pytorch_is_imported_only_when_it_is_asked_for():
    code = """
import sys
import deeplinear
assert "torch" not in sys.modules
sys.modules["torch"] = None
try:
    import deeplinear.torch
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "deeplinear.torch needs PyTorch: pip install 'deeplinear[gpu]'\n"
