"""The scripts that problems write for plain PyTorch."""

import itertools
import runpy

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._experiment.train import DATA, explicit_task, generator
from factories import maker, some_slow
from needs import need_torch

torch, dt = need_torch()

CLOSE = 1e-11  # both round in double precision; weights are multiplied by other factors
DIM, STEPS = 12, 6
NETWORKS = [
    dl.MLP(1, 0.8, parameterization="standard"),
    dl.MLP(2, 0.8, init_scale=[0.5, 1.0, 2.0], centered=True),
    dl.MLP(3, [0.5, 1.0, 0.7], richness=0.5, parameterization="ntk"),
    dl.ResNet(3, 0.8, branch=1.3, branch_scaling=1.0),
]
SAMPLINGS = [
    dl.Population(),
    dl.FullBatch(1.5),
    dl.OnlineSGD([0.4, 0.4, 0.6, 0.6, 0.5, 0.5]),
    dl.MultiPassSGD(1.5, 0.5),
]
OPTIMIZERS = [
    dl.GradientDescent(0.03),
    dl.GradientDescent(
        dl.schedules.cosine(0.03, warmup=0.3),
        momentum=0.8,
        nesterov=True,
        weight_decay=0.5,
        layer_lr={"readout": 0.5},
        layer_decay={"input": 2.0},
    ),
    dl.GradientDescent(0.03, momentum=0.5),
]
DATASETS = [
    dl.Isotropic(0.3),
    dl.Isotropic(0.3, [[1.0, 0.3], [0.3, 0.5]]),
    dl.Spectrum([2.0, 0.5], [1.0, 0.5], multiplicity=[0.4, 0.6], proportional=True),
]
make = maker("sampling", network=NETWORKS[1], noise=0.3, sampling=SAMPLINGS[1], lr=0.03, steps=STEPS)


def names_of(problem, dim=DIM):
    """What the script defines."""
    namespace = {"__name__": "script"}
    exec(compile(problem.to_pytorch_code(dim), "script", "exec"), namespace)
    return namespace


@pytest.fixture(autouse=True)
def _double_precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def assert_as_simulated(problem, dim):
    """The training loop of the script, from the weights and on the data of a seed, has the losses of ``simulate``."""
    script, module = names_of(problem, dim), dt.network(problem, dim)
    network = script["Network"]()
    with torch.no_grad():
        for mine, given in zip(network.layers, module.layers, strict=True):
            mine.weight.copy_(given.weight * (1.0 if given is module.layers[-1] else given.multiplier))
    task = explicit_task(problem, dim, generator(0, DATA))
    target = torch.from_numpy(task.targets[0]) / task.inputs.unit**0.5
    train, test = np.array(script["train"](network, dt.data(problem, dim), target)).T
    expected = dl.simulate(problem, dim, [0], method="explicit", record="losses")
    np.testing.assert_allclose(train, expected.train_loss[0], rtol=CLOSE)
    np.testing.assert_allclose(test, expected.test_loss[0], rtol=CLOSE)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda sampling: sampling.kind.option)
@pytest.mark.parametrize("network", range(len(NETWORKS)))
def test_the_loop_of_a_script_is_that_of_simulate(network, sampling):
    for optimizer, data in zip(OPTIMIZERS, itertools.islice(itertools.cycle(DATASETS), network, None), strict=False):
        assert_as_simulated(dl.Problem(NETWORKS[network], data, sampling, optimizer, STEPS), DIM)


def test_dimension_free_data_need_no_dim():
    data = dl.Spectrum([1.0, 0.5, 0.1], [1.0, 1.0, 2.0], noise=0.1)
    assert_as_simulated(dl.Problem(dl.MLP(2, 9), data, dl.FullBatch(8), dl.GradientDescent(0.05), STEPS), None)


@pytest.mark.parametrize(  # multiple passes draw a data set too
    "sampling", some_slow(SAMPLINGS, SAMPLINGS[1]), ids=lambda sampling: sampling.kind.option
)
def test_a_script_draws_what_simulate_draws_in_distribution(sampling):
    problem, dim, seeds = make(sampling, data=DATASETS[1]), 40, 100
    script, losses = names_of(problem, dim), []
    for seed in range(seeds):
        torch.manual_seed(seed)
        target = script["draw_target"]()
        losses.append(script["train"](script["Network"](), script["draw_batches"](target), target))
    expected = dl.simulate(problem, dim, seeds, method="explicit", record="losses")
    for actual, wanted in zip(np.array(losses).T, (expected.train_loss.T, expected.test_loss.T), strict=True):
        error = np.hypot(actual.std(axis=1), wanted.std(axis=1)) / seeds**0.5
        difference = np.abs(actual.mean(axis=1) - wanted.mean(axis=1))
        # The noise adds to the population loss exactly, and a centered network starts from a loss without scatter.
        assert (difference <= 4 * error + 1e-12).all()
        assert error[-1] < 0.05 * wanted[-1].mean()


def test_a_script_runs_by_itself(tmp_path, capsys):
    path = tmp_path / "script.py"
    path.write_text(make().to_pytorch_code(DIM))
    torch.set_default_dtype(torch.float32)
    runpy.run_path(str(path), run_name="__main__")
    assert torch.get_default_dtype() == torch.float64
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == STEPS
    assert lines[0].startswith("    0  train loss ")
    assert "deeplinear" not in [name.split(".")[0] for name in path.read_text().split("import ")[1:]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"optimizer": dl.Muon(0.1)}, "optimizer must be GradientDescent without clip in a script, got Muon"),
        ({"optimizer": dl.GradientDescent(0.1, clip=1.0)}, "got GradientDescent with clip: deeplinear.torch has every"),
        ({"momentum": (0.1,) * STEPS}, "momentum must be one number in a script"),
    ],
)
def test_rules_that_plain_pytorch_lacks_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        make(**change).to_pytorch_code(DIM)


def test_phases_are_refused():
    start = make()
    problem = dl.Problem(
        start.network, start.data, start.sampling, start.optimizer, 4, phases=(dl.Phase(2), dl.Phase(2))
    )
    with pytest.raises(ValueError, match="phases must be none in a script, got 2 phases"):
        problem.to_pytorch_code(DIM)
