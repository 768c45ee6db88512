"""Devices of PyTorch against NumPy; PyTorch on the processor stands in for a graphics card."""

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

import deeplinear as dl
from deeplinear._core.dataset import LOSSES
from deeplinear._core.device import CPU, Device, find_device, searching_on
from deeplinear._experiment import simulate as experiment
from deeplinear._experiment.ensemble import CORRELATIONS
from deeplinear._experiment.methods import Counts
from deeplinear._solvers.choose import Choice
from deeplinear._solvers.dense import DenseRun
from deeplinear._theory.sensitivity import _names, derivatives
from deeplinear._theory.written import MATRICES, PARTS
from factories import SAMPLINGS, checkerboard, maker
from needs import need_torch
from strategies import problems

DEVICE = "torch:cpu"
CLOSE = 1e-11  # both round in double precision, in a different order

GRAM = [[1.0, 0.3], [0.3, 0.5]]


@pytest.fixture(scope="session")
def torch():
    return need_torch()[0]


make = maker("network", "sampling", network=dl.MLP(3, 0.8), noise=0.3, sampling=SAMPLINGS[1], lr=0.02, steps=10)


def assert_close(actual, expected):
    assert type(actual) is np.ndarray
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    scale = np.abs(expected[finite]).max(initial=1e-300)
    assert np.abs(actual[finite] - expected[finite]).max(initial=0.0) <= CLOSE * scale


def assert_same(actual, expected):
    assert actual.status == expected.status
    for name in ("test_loss", "train_loss", "kernel", *MATRICES):
        assert_close(getattr(actual, name), getattr(expected, name))
    for name in PARTS:
        assert_close(getattr(actual.decomposition, name), getattr(expected.decomposition, name))
    total = expected.test_loss
    for name, part in vars(expected.variance).items():  # differences, so exact relative to the loss
        assert_close(getattr(actual.variance, name) + total, part + total)


# Theory --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("torch")
@settings(max_examples=25, deadline=None, derandomize=True)
@given(problems())
def test_any_problem(problem):
    assert_same(dl.solve(problem, device=DEVICE), dl.solve(problem))


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(("depth", "sampling"), checkerboard([4, 300, math.inf], SAMPLINGS))
def test_residual_networks(depth, sampling):
    problem = make(dl.ResNet(depth, 0.7), sampling, steps=5, data=dl.Isotropic(0.3, GRAM))
    actual, expected = dl.solve(problem, device=DEVICE), dl.solve(problem)
    assert_same(actual, expected)
    assert actual.stats.get("depth_nodes") == expected.stats.get("depth_nodes")


@pytest.mark.usefixtures("torch")
def test_small_batches():
    data = dl.Spectrum([1.0, 0.5, 0.1], [1.0, 0.5, 0.2], multiplicity=[1, 3, 5], noise=0.2)
    problem = make(dl.MLP(2, 20.0), dl.OnlineSGD(4.0, small_batch=True), data=data)
    assert_same(dl.solve(problem, device=DEVICE), dl.solve(problem))


@pytest.mark.usefixtures("torch")
def test_striped_products(monkeypatch):
    monkeypatch.setattr("deeplinear._equations.products._BLOCK", 7)
    monkeypatch.setattr("deeplinear._equations.products._LAUNCH", 7)
    monkeypatch.setattr("deeplinear._equations.products._LAUNCH_ON_DEVICE", 7)
    problem = make(steps=40)
    assert_same(dl.solve(problem, device=DEVICE), dl.solve(problem))


@pytest.mark.usefixtures("torch")
def test_a_list_is_one_batch_whatever_its_size(monkeypatch):
    monkeypatch.setattr("deeplinear._solvers.dense._CACHE", 1.0)  # on the processor, one problem at a time
    several = [make(lr=0.01 * (1 + i), steps=20) for i in range(9)] + [make(lr=0.8, steps=20)]
    actual, expected = dl.solve(several, device=DEVICE), dl.solve(several)
    assert {solution.stats["batch"] for solution in actual} == {10}
    assert {solution.stats["batch"] for solution in expected} == {1}
    assert expected[-1].status.diverged
    for ours, theirs in zip(actual, expected, strict=True):
        assert_same(ours, theirs)


@pytest.mark.usefixtures("torch")
def test_solutions_do_all_they_do_elsewhere(tmp_path):
    problem = make()
    actual, expected = dl.solve(problem, device=DEVICE), dl.solve(problem)
    for name in ("h", "g"):  # a root of covariances, so that rounding counts with its root as well
        np.testing.assert_allclose(actual.sample_sites(4)[name], expected.sample_sites(4)[name], atol=1e-6)
    actual.save(tmp_path / "solution.nc")
    assert_same(dl.Solution.load(tmp_path / "solution.nc"), expected)


# Searches and geometry -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("torch")
@settings(max_examples=15, deadline=None, derandomize=True)
@given(problems())
def test_derivatives_of_any_problem(problem):
    """With the learning rate, as searches take them, and with another field, each by a complex step."""
    points = [(problem, name) for name in {"lr", _names(problem, None)[-1]}]
    expected = derivatives(points)
    with searching_on(DEVICE):
        actual = derivatives(points)
    for ours, theirs in zip(actual, expected, strict=True):
        for name in LOSSES:
            assert_close(getattr(ours.slope, name), getattr(theirs.slope, name))


@pytest.mark.usefixtures("torch")
def test_searches_solve_on_their_device(monkeypatch):
    problem, used = make(dl.MLP(2, 0.8), steps=5), []
    fill = DenseRun.fill

    def noted(run, *rest, **more):
        if run.equations.c.structure.steps > 1:  # losses before training are looked at anywhere
            used.append(run.equations.c.gamma0)
        return fill(run, *rest, **more)

    monkeypatch.setattr(DenseRun, "fill", noted)
    searches = {
        "plan": lambda **more: dl.plan(problem, 1000.0, "width", values={"width": [0.5, 1.0]}, **more).losses,
        "transfer": lambda **more: dl.transfer(problem, "width", [1.0], field="momentum", **more).loss,
        "optimal": lambda **more: np.array([dl.optimal(problem, ["momentum"], starts=1, **more).loss]),
    }
    for name, search in searches.items():
        used.clear()
        found = search(device=DEVICE)
        assert used, name
        assert not any(isinstance(each, np.ndarray) for each in used), name
        used.clear()
        assert_close(found, search())  # on the processor again
        assert used, name
        assert all(isinstance(each, np.ndarray) for each in used), name
    experiment = {"dim": 6, "seeds": 2}
    here, there = (dl.transfer(problem, "width", [1.0], experiment=experiment, device=each) for each in ("cpu", DEVICE))
    assert_close(there.experiment.loss, here.experiment.loss)


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    "problem",
    [
        make(dl.MLP(2, 0.8), dl.OnlineSGD(0.5), steps=6),
        make(dl.MLP(2, 0.8), steps=6, data=dl.Isotropic(0.3, GRAM)),
        make(dl.MLP(2, 0.8), steps=6, optimizer=dl.Muon(0.02)),
        pytest.param(make(dl.ResNet(math.inf, 0.8), steps=6), marks=pytest.mark.slow),
    ],
    ids=["fresh batches", "two outputs", "Muon", "infinite depth"],
)
def test_curvature_and_landscapes(problem):
    for operator in ("hessian", "kernel"):
        expected, actual = (
            dl.sharpness(problem, [0, 5], 4, operator=operator, device=each) for each in ("cpu", DEVICE)
        )
        # Directions are differences, which divide rounding errors by their length.
        np.testing.assert_allclose(actual.ritz_values, expected.ritz_values, rtol=1e-7, atol=1e-7 * expected.largest[0])
    ways = ["line", "sharpest"] + (["twins"] if problem.sampling.subsamples else [])
    for along in ways:
        expected, actual = (dl.landscape(problem, along, device=each) for each in ("cpu", DEVICE))
        np.testing.assert_allclose(actual.test_loss, expected.test_loss, rtol=1e-9)


def waits(torch, monkeypatch):
    """Count how often values are copied from the device, which waits until it has computed them."""
    count, copy = [], torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: (count.append(1), copy(tensor))[1])
    return count


def test_theory_does_not_wait_for_the_device_at_every_step(torch, monkeypatch):
    count = waits(torch, monkeypatch)
    dl.solve(make(steps=40), device=DEVICE)
    # Two losses now and then; at the end the curves and label noise, and where rounding shows, once for 64 steps.
    assert len(count) <= 2 * 40 / 8 + 8 + 2


@pytest.mark.usefixtures("torch")
def test_runs_are_long_later_on_a_device():
    device = find_device(DEVICE)
    methods = {400: ("dense", "dense"), 1000: ("condensed", "dense"), 4000: ("panels", "dense"), 4001: ("panels",) * 2}
    for steps, expected in methods.items():
        assert tuple(Choice(device=each).solver(make(steps=steps)).name for each in (CPU, device)) == expected


@pytest.mark.usefixtures("torch")
def test_a_few_long_runs_are_solved_on_the_processor():
    problem = make(dl.MLP(1, 1.0), dl.Population(), steps=5000)
    for method in ("auto", "panels"):
        actual, expected = (dl.solve(problem, method=method, device=each) for each in (DEVICE, "cpu"))
        assert actual.stats["method"] == "panels"
        np.testing.assert_array_equal(actual.test_loss, expected.test_loss)
    with pytest.raises(ValueError, match=r'method must be .* on torch:cpu, got "condensed": it needs the processor'):
        dl.solve(problem, method="condensed", device=DEVICE)


@pytest.mark.usefixtures("torch")
def test_too_large_a_problem_is_refused_before_it_starts(monkeypatch):
    monkeypatch.setattr(Device, "available", lambda device: 10**9 if device == CPU else 10**6)
    with pytest.raises(MemoryError, match=r"needs about 0\.\d\d GB, but only 0\.00 GB are available on torch:cpu"):
        dl.solve(make(steps=200), device=DEVICE)


# Experiment ----------------------------------------------------------------------------------------------

EXPERIMENTS = {
    **{type(sampling).__name__: make(sampling=sampling) for sampling in SAMPLINGS},
    "outputs": make(dl.MLP(2, [0.5, 1.5], centered=True), dl.OnlineSGD(0.5), data=dl.Isotropic(0.3, GRAM)),
    "population": make(sampling=dl.Population(), data=dl.Isotropic(0.3, GRAM)),
    "residual": make(dl.ResNet(3, 1.0), weight_decay=0.3),
    "momentum": make(momentum=0.5, weight_decay=0.3),
    "Nesterov": make(momentum=0.5, nesterov=True),
    "modes": make(dl.MLP(2, 20.0), dl.FullBatch(30.0), data=dl.Spectrum([1.0, 0.1], [1.0, 1.0], [5, 10])),
    "divergence": make(lr=1.2, steps=40),
}


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_same_networks(name):
    problem = EXPERIMENTS[name]
    dim = None if problem.data.dimension_free else 20
    actual, expected = dl.simulate(problem, dim, [4, 0, 7], device=DEVICE), dl.simulate(problem, dim, [4, 0, 7])
    np.testing.assert_array_equal(actual.diverged_at, expected.diverged_at)
    assert (expected.diverged_at >= 0).any() == (name == "divergence")
    assert actual.seeds == expected.seeds
    for observable in (*LOSSES, *CORRELATIONS):
        assert_close(getattr(actual, observable), getattr(expected, observable))


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("method", ["lazy", "reduced"])
@pytest.mark.parametrize(
    "problem",
    [
        make(momentum=0.8, weight_decay=0.1),
        make(dl.ResNet(3, 1.0), SAMPLINGS[2], data=dl.Isotropic(0.2, GRAM)),
        make(sampling=dl.MultiPassSGD(1.5, 0.5)),
    ],
    ids=["momentum", "residual", "multi-pass"],
)
def test_revealed_matrices_on_a_device(problem, method):
    actual, expected = (dl.simulate(problem, 60, [4, 0, 7], method=method, device=each) for each in (DEVICE, "cpu"))
    for observable in (*LOSSES, *CORRELATIONS):
        assert_close(getattr(actual, observable), getattr(expected, observable))


@pytest.mark.usefixtures("torch")
def test_as_many_networks_together_as_memory_holds(monkeypatch):
    expected = dl.simulate(make(), 20, 5)
    counts = replace(Counts.of(make(), 20), record="all")
    calls, room = [], 2.5 * counts.need("explicit").in_flight
    monkeypatch.setattr(Device, "available", lambda device: 10**9 if device == CPU else int(room))
    drawn = []
    draw = experiment.train
    monkeypatch.setattr(experiment, "train", lambda *a, **k: (drawn.append(a[1]), draw(*a, **k))[1])
    actual = dl.simulate(make(), 20, 5, device=DEVICE, progress=lambda done, total: calls.append((done, total)))
    assert [tuple(seeds) for seeds in drawn] == [(0, 1), (2, 3), (4,)]
    assert calls[-1] == (50, 50)
    assert_close(actual.feature_correlation, expected.feature_correlation)
    monkeypatch.setattr(Device, "available", lambda device: 10**9 if device == CPU else 1000)
    with pytest.raises(MemoryError, match=r"one network needs about .* are available on torch:cpu; lower dim"):
        dl.simulate(make(), 20, 5, device=DEVICE)


def test_training_does_not_wait_for_the_device_at_every_step(torch, monkeypatch):
    count = waits(torch, monkeypatch)
    dl.simulate(make(steps=80), 10, 2, record="losses", device=DEVICE)
    assert len(count) <= 2 * 80 / 8 + 8


# Devices -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("name", ["gpu", "cpu:", "cuda:x", "", 3])
def test_unknown_devices_are_refused(name):
    for work in (dl.solve, lambda problem, device: dl.simulate(problem, 10, 2, device=device)):
        with pytest.raises(ValueError, match=r"device must be .* got " + repr(name)):
            work(make(), device=name)


def test_a_device_that_is_not_here_is_refused(torch):
    missing = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(ValueError, match=f"device must be .* finds on this machine, .* got '{missing}': "):
        find_device(missing)


def test_without_pytorch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for work in (dl.solve, lambda problem, device: dl.simulate(problem, 10, 2, device=device)):
        with pytest.raises(ImportError, match=r"device 'cuda' needs PyTorch: pip install 'deeplinear\[gpu\]'"):
            work(make(), device="cuda")
    assert dl.solve(make(), device="cpu").stats["method"] == "dense"
