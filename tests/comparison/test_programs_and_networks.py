"""Theory of update rules, schedules, averages and phases against ensembles of real networks.

Stated sizes: D = 10^5 with 24 networks (seeds 0 .. 23), 12 steps, by matrices that are drawn where they are looked at.
The mean over networks of every loss must lie within 4 standard errors of the theory at every step, and within 0.5 %.
That is enough to tell a rule from plain descent, which is asserted as well. Muon is trained with explicit matrices, at
D = 160 with 32 networks, within 4 standard errors and 6 %. Multi-pass SGD, which keeps all samples,
has D = 10^4, and 1 %.
"""

import numpy as np
import pytest

import deeplinear as dl
from agreement import z_scores
from factories import maker, some_slow

STEPS = 12
TWO = [[1.0, 0.3], [0.3, 0.5]]


make = maker(
    "optimizer", "network", "sampling", depth=2, width=[1.0, 0.6], noise=0.3, sampling=dl.FullBatch(2.0), steps=STEPS
)


plain = dl.GradientDescent(0.04)
online, cosine = dl.OnlineSGD(0.5), dl.schedules.cosine(0.08, warmup=0.2)

CASES = {
    "layers": make(dl.GradientDescent(0.04, weight_decay=0.5, layer_lr=[1, 0.3, 2], layer_decay={"input": 0.0})),
    "frozen hidden part": make(dl.GradientDescent(0.08, layer_lr={"input": 0.0, "hidden": 0.0})),
    "initial scales": make(plain, dl.MLP(2, 1.0, init_scale={"input": 0.7, "readout": 0.2})),
    "standard": make(plain, dl.MLP(2, 2.0, parameterization="standard")),
    "CompleteP": make(plain, dl.ResNet(4, 1.0, branch_scaling=1.0)),
    "schedules": make(dl.GradientDescent(cosine, dl.schedules.linear(0.6), weight_decay=[0.1 * t for t in range(12)])),
    "batch schedule": make(plain, sampling=dl.OnlineSGD(dl.schedules.linear(2.0, end=0.2))),
    "multi-pass, batch schedule": make(plain, sampling=dl.MultiPassSGD(2.0, dl.schedules.linear(1.0, end=0.2))),
    "clip": make(dl.GradientDescent(0.08, momentum=0.5, clip=0.5)),
    "clip that is not reached": make(dl.GradientDescent(0.04, clip=100.0)),
    "clip by layer, online": make(dl.GradientDescent(0.08, clip=0.3, clip_by="layer"), sampling=online),
    "normalised": make(dl.NormalizedDescent(0.05, momentum=0.5)),
    "second moment": make(dl.NormalizedDescent(0.05, per="global", beta2=0.9), sampling=online),
    "second moment, two outputs": make(dl.NormalizedDescent(0.03, beta2=0.8), data=dl.Isotropic(0.3, TWO)),
    "SAM": make(dl.SAM(0.04, 0.1)),
    "SAM, larger radius": make(dl.SAM(0.04, 0.3)),
    "SAM, online": make(dl.SAM(0.04, 0.2, momentum=0.5), sampling=online),
    "SAM, multi-pass": make(dl.SAM(0.04, 0.3), sampling=dl.MultiPassSGD(2.0, 0.4)),
    "schedule-free": make(dl.ScheduleFree(0.08), sampling=online),
    "fine-tuning": make(plain, phases=[dl.Phase(6), dl.Phase(6, 0.6)]),
    "the same samples": make(plain, phases=[dl.Phase(6), dl.Phase(6, 0.6, new_samples=False)]),
    "another rule": make(
        plain, phases=[dl.Phase(6, sampling=online), dl.Phase(6, -0.5, noise=0.6, optimizer=dl.SAM(0.03, 0.1))]
    ),
}  # fmt: skip

MUON = {
    "one hidden layer": make(dl.Muon(0.1, other=plain), dl.MLP(1, 1.0)),
    "without momentum": make(dl.Muon(0.1, momentum=0.0, other=plain), dl.MLP(2, 1.0)),
    "momentum": make(dl.Muon(0.04, momentum=0.9, other=plain), dl.MLP(3, 1.0)),
    "unequal widths, input, Nesterov": make(dl.Muon(0.04, 0.8, nesterov=True, input=True, other=plain)),
    "two outputs": make(dl.Muon(0.04, 0.8, other=plain), data=dl.Isotropic(0.3, TWO)),
}


def assert_agrees(problem, dim, seeds, relative, **options):
    theory, networks = dl.solve(problem), dl.simulate(problem, dim, seeds, record="losses", **options)
    for name in ("test_loss", "train_loss", "task_loss"):
        ours, theirs = getattr(theory, name), getattr(networks, name)
        if ours.size:
            assert np.abs(z_scores(theirs, ours)).max() < 4.0, name
            assert np.abs(theirs.mean(axis=0) / ours - 1).max() < relative, name
    return theory


@pytest.mark.parametrize("name", some_slow(CASES, "SAM, multi-pass"))  # each alone is there too
def test_rules(name):
    dim, relative = (10**4, 1e-2) if "multi-pass" in name else (10**5, 5e-3)
    assert_agrees(CASES[name], dim, 24, relative, method="reduced")


@pytest.mark.parametrize("name", some_slow(MUON, "momentum"))  # which others have too
def test_muon(name):
    assert_agrees(MUON[name], 160, 32, 0.06, method="explicit")


@pytest.mark.parametrize("name", [each for each in CASES if each != "clip that is not reached"])
def test_rules_matter(name):
    """Plain descent at the same rate is farther away than the tolerance."""
    problem = CASES[name]
    base = make(dl.GradientDescent(problem.optimizer.rates(STEPS)), sampling=dl.FullBatch(2.0), data=problem.data)
    theory, other = dl.solve(problem).test_loss, dl.solve(base).test_loss
    assert np.abs(theory / other - 1).max() > 0.02


def test_averages():
    problem = make(dl.GradientDescent(0.08), sampling=dl.OnlineSGD(0.5))
    averages = [dl.EMA(0.8), dl.TailMean(0.5), dl.TailMean(1.0)]
    theory = dl.solve(problem, averages=averages)
    networks = dl.simulate(problem, 10**5, 24, averages=averages, method="reduced", record="losses")
    assert np.abs(z_scores(networks.averaged_test_loss, theory.averaged_test_loss)).max() < 4.0
    assert np.abs(networks.averaged_test_loss.mean(axis=0) / theory.averaged_test_loss - 1).max() < 5e-3
    assert np.abs(theory.averaged_test_loss[:, -1] / theory.test_loss[-1] - 1).min() > 0.02


def test_averages_with_muon():
    averages = [dl.EMA(0.8), dl.TailMean(0.5)]
    theory = dl.solve(MUON["two outputs"], averages=averages)
    networks = dl.simulate(MUON["two outputs"], 160, 32, averages=averages, method="explicit", record="losses")
    assert np.abs(z_scores(networks.averaged_test_loss, theory.averaged_test_loss)).max() < 4.0
    assert np.abs(networks.averaged_test_loss.mean(axis=0) / theory.averaged_test_loss - 1).max() < 0.06
    assert np.abs(theory.averaged_test_loss[:, -1] / theory.test_loss[-1] - 1).min() > 0.1
