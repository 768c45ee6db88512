"""Programs of training with matrices that are not explicit, on devices, in files, and what they cost."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ks_2samp

import deeplinear as dl
from deeplinear._core.dataset import CORRELATIONS, LOSSES
from deeplinear._experiment.ensemble import MORE_LOSSES, Ensemble
from deeplinear._experiment.simulate import simulate
from deeplinear._experiment.simulation import Simulation
from deeplinear._problem.phase import Phase
from deeplinear._rules import schedules
from deeplinear._rules.averages import EMA, TailMean
from deeplinear._rules.muon import Muon
from deeplinear._rules.normalized import NormalizedDescent
from deeplinear._rules.sam import SAM
from deeplinear._rules.schedule_free import ScheduleFree
from dense_loops import AVERAGES, DIM, GRAM, make

DISTRIBUTIONS = {
    "clip, SAM in a second phase": make(
        dl.GradientDescent(0.1, clip=0.5),
        dl.MLP(2, 1.0),
        phases=[Phase(3), Phase(3, target_overlap=0.4, optimizer=SAM(0.05, 0.3))],
    ),
    "schedule-free, batches": make(ScheduleFree(0.15), dl.MLP(2, 1.0), dl.OnlineSGD(schedules.linear(2.0, end=0.5))),
    "normalised, residual": make(
        NormalizedDescent(0.1, beta2=0.5, layer_lr={"hidden": 2.0}),
        dl.ResNet(3, 1.0, init_scale={"hidden": 0.5}),
        dl.MultiPassSGD(1.5, 0.5),
    ),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_equal_in_distribution(name):
    problem, level = DISTRIBUTIONS[name], 0.001 / (3 * 4)
    averages = (EMA(0.5), TailMean(0.5))
    found = [
        simulate(problem, 20, seeds, workers=1, record="losses", method=method, averages=averages)
        for method, seeds in (("explicit", 250), ("reduced", 800))
    ]
    curves = [np.log(np.stack([each.test_loss, each.train_loss, *_more(each)])[..., -1]) for each in found]
    for ours, theirs in zip(*curves, strict=True):
        assert ks_2samp(ours, theirs).pvalue > level
        error = np.hypot(ours.std() / np.sqrt(len(ours)), theirs.std() / np.sqrt(len(theirs)))
        assert abs(ours.mean() - theirs.mean()) < 4.5 * error


def _more(experiment):
    return [*np.moveaxis(experiment.averaged_test_loss, 1, 0), *np.moveaxis(experiment.task_loss, 1, 0)]


@pytest.mark.parametrize("name", [*DISTRIBUTIONS, "Muon"])
def test_networks_that_are_trained_together_on_a_device(name):
    """With one average where directions are revealed: more of them bring directions that are new by a part r = 1e-12 of
    a vector, which rounding errors turn by 1e-4, and devices draw other networks then."""
    pytest.importorskip("torch")
    problem = DISTRIBUTIONS.get(name) or make(Muon(0.05, nesterov=True), data=dl.Isotropic(0.2, GRAM))
    for method in ("explicit",) if name == "Muon" else ("explicit", "reduced"):
        averages = AVERAGES if method == "explicit" else AVERAGES[1:2]
        ours, theirs = (
            simulate(problem, 12, 3, workers=1, method=method, averages=averages, device=device)
            for device in ("torch:cpu", "cpu")
        )
        for observable in (*LOSSES, *MORE_LOSSES, *CORRELATIONS):
            expected = getattr(theirs, observable)
            atol = 1e-10 * np.abs(expected).max(initial=0.0)
            assert_allclose(getattr(ours, observable), expected, atol=atol)


def test_a_seed_gives_the_same_bits_in_any_company():
    for problem in DISTRIBUTIONS.values():
        alone, together = (
            simulate(problem, 30, seeds, workers=1, method="reduced", averages=AVERAGES) for seeds in ([3], 5)
        )
        for name in (*LOSSES, *MORE_LOSSES, *CORRELATIONS):
            assert_array_equal(getattr(together, name)[3], getattr(alone, name)[0])


def test_divergence():
    problem = make(
        dl.GradientDescent(3.0), steps=60, phases=[Phase(20), Phase(40, target_overlap=0.5)], network=dl.MLP(2, 1.0)
    )
    for method in ("explicit", "reduced"):
        experiment = simulate(problem, DIM, 2, workers=1, method=method, averages=[EMA(0.5)], record="losses")
        for seed, end in enumerate(experiment.diverged_at):
            assert 0 < end < 20
            for losses in (experiment.averaged_test_loss[seed], experiment.task_loss[seed]):
                assert np.isinf(losses[:, end:]).all()
                assert np.isfinite(losses[:, :end]).all()


def test_save_and_load(tmp_path):
    problem = DISTRIBUTIONS["clip, SAM in a second phase"]
    for averages in ((), AVERAGES):
        experiment = simulate(problem, 10, 2, averages=averages)
        experiment.save(tmp_path / "experiment.nc")
        loaded = Ensemble.load(tmp_path / "experiment.nc")
        assert loaded.averages == averages
        for name in MORE_LOSSES:
            assert_array_equal(getattr(loaded, name), getattr(experiment, name))
    labelled = experiment.to_xarray()
    assert labelled.averaged_test_loss.dims == ("seed", "average", "time")
    assert labelled.task_loss.dims == ("seed", "phase", "time")
    assert experiment.mean("task_loss").shape == (2, 6)


def test_refusals():
    muon = make(Muon(0.1))
    assert simulate(muon, DIM, 1).method == "explicit"
    for method in ("lazy", "reduced"):
        message = rf"method must be 'auto' or 'explicit', got '{method}': orthogonal steps \(Muon\) need every entry"
        with pytest.raises(ValueError, match=message):
            simulate(muon, DIM, 1, method=method)
    with pytest.raises(ValueError, match=r"averages must be a sequence of EMA or TailMean, got 0\.9"):
        simulate(make(), DIM, 1, averages=[0.9])
    with pytest.raises(ValueError, match="averages must be a sequence of EMA or TailMean, got 'EMA'"):
        simulate(make(), DIM, 1, averages="EMA")
    with pytest.raises(ValueError, match='method must be "dense" or "auto" with averages, got \'panels\''):
        dl.solve(make(), averages=[EMA(0.9)], method="panels")
    phases = [Phase(3), Phase(3, target_overlap=0.5)]
    single = make(network=dl.MLP(1, 5.0), data=dl.Spectrum([1.0, 0.5], [1.0, 1.0]), sampling=dl.Population())
    with pytest.raises(ValueError, match="target_overlap must be 1 or -1 in a simulation, got 2 different targets: 2"):
        simulate(replace(single, phases=phases))


@pytest.mark.parametrize(
    ("optimizer", "averages"),
    [
        (dl.GradientDescent(0.01, momentum=0.5), (EMA(0.9), TailMean(0.5))),
        (ScheduleFree(0.01), ()),
        (SAM(0.01, 0.1), (TailMean(1.0),)),
        (Muon(0.01), ()),
    ],
    ids=lambda each: str(each)[:20],
)
@pytest.mark.parametrize(("method", "dim"), [("explicit", 120), ("reduced", 10**6)])
def test_memory_estimate(optimizer, averages, method, dim):
    if optimizer.orthogonal is not None and method != "explicit":
        return
    phases = [Phase(20), Phase(20, sampling=dl.FullBatch(3.0))]
    problem = make(optimizer, dl.MLP(3, 1.0), steps=40, phases=phases)
    options = {"record": "losses", "method": method, "averages": averages, "workers": 1}
    simulate(problem, 10, 1, **options)
    tracemalloc.start()
    try:
        simulate(problem, dim, 4, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert_allclose(Simulation.read(problem, dim, 4, **options).memory, peak, rtol=0.3)
