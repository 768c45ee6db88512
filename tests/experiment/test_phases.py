"""Phases of the training of finite networks: targets, samples and rules, against a loop over dense matrices."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import deeplinear as dl
from deeplinear._core.dataset import LOSSES
from deeplinear._experiment.data_sets import data_sets
from deeplinear._experiment.ensemble import CORRELATIONS
from deeplinear._experiment.simulate import simulate
from deeplinear._experiment.targets import draw_targets
from deeplinear._problem.phase import Phase
from deeplinear._rules import schedules
from deeplinear._rules.schedule_free import ScheduleFree
from dense_loops import DIM, GRAM, SEED, Dense, generator, make
from networks import train


def by_hand_in_phases(problem):
    """Plain descent through three phases: full batch; a new target and batches of a new set; kept samples."""
    dense = Dense(problem)
    noises, tests, trains, tasks = [stage.noise for stage in problem.stages], [], [], []
    weights, buffers = dense.weights, [np.zeros_like(weight) for weight in dense.weights]
    for phase, stage in enumerate(problem.stages):
        if phase < 2:
            x, eps = dense.samples(round(stage.sampling.samples * DIM))
        if stage.optimizer is not problem.optimizer and stage.since == 0:
            buffers = [np.zeros_like(weight) for weight in dense.weights]
        target = dense.targets[phase]
        y = x @ target.T + stage.noise * eps
        keeps = stage.sampling.keeps(stage.of_samples)[stage.since_samples :]
        for k in range(stage.steps):
            tests.append(dense.test_loss(weights, target, stage.noise))
            trains.append(dense.train_loss(weights, x, y))
            tasks.append([dense.test_loss(weights, *each) for each in zip(dense.targets, noises, strict=True)])
            mask = (dense.data.random((len(x), 1)) < keeps[k]) / keeps[k] if keeps[k] < 1 else 1.0
            lr = stage.optimizer.rates(stage.of)[stage.since + k]
            for layer, each in enumerate(dense.gradient(weights, x, y, mask)):
                buffers[layer] = stage.optimizer.momentum * buffers[layer] + each
            weights = [weight + lr * each for weight, each in zip(weights, buffers, strict=True)]
    return np.array(tests), np.array(trains), np.array(tasks).T


@pytest.mark.parametrize("centered", [False, True])
def test_phases_are_those_of_a_loop_over_dense_matrices(centered):
    multi_pass = dl.MultiPassSGD(2.0, schedules.linear(1.5))
    problem = make(
        dl.GradientDescent(schedules.cosine(0.08), momentum=0.5),
        dl.MLP(2, (0.8, 1.3), centered=centered),
        data=dl.Isotropic(0.3, GRAM),
        steps=9,
        phases=[
            Phase(3),
            Phase(3, target_overlap=-0.4, sampling=multi_pass, optimizer=dl.GradientDescent(0.05, momentum=0.8)),
            Phase(3, target_overlap=0.5, new_samples=False, sampling=multi_pass, noise=0.7),
        ],
    )
    run = train(problem, DIM, SEED, SEED)
    test, train_loss, tasks = by_hand_in_phases(problem)
    assert_allclose(run.test_loss, test, rtol=1e-10)
    assert_allclose(run.train_loss, train_loss, rtol=1e-10)
    assert_allclose(run.task_loss, tasks, rtol=1e-10)
    assert_array_equal(run.task_loss[1, 3:6], run.test_loss[3:6])
    residual = run.correlations["residual_correlation"]
    assert not residual[:6, 6:].any()  # other samples
    assert residual[6:12, 12:].any()  # the same ones


@pytest.mark.parametrize("sizes", [(20, 12), (16, 16)], ids=["unequal", "equal"])
@pytest.mark.parametrize("gram", [((1.0,),), GRAM])
def test_targets_overlap_with_the_one_before(gram, sizes):
    spectrum = dl.Spectrum([2.0, 0.5], [gram, np.multiply(2.0, gram)], sizes)
    phases = [Phase(1, overlap) for overlap in (1.0, 0.6, 1.0, 0.0, -1.0, -0.3)]
    problem = make(network=dl.MLP(1, 5.0), sampling=dl.Population(), data=spectrum, phases=phases)
    first, second, same, third, opposite, last = draw_targets(generator(1), spectrum.finite(None), problem)
    assert same is second
    assert_array_equal(opposite, -third)
    for mode, factor in ((slice(0, sizes[0]), 1.0), (slice(sizes[0], 32), 2.0)):
        size = mode.stop - mode.start
        for one, other, overlap in (
            (first, first, 1.0),
            (second, second, 1.0),
            (first, second, 0.6),
            (second, third, 0.0),
            (first, third, 0.0),
            (opposite, last, -0.3),
            (first, last, 0.0),
            (last, last, 1.0),
        ):
            assert_allclose(one[mode].T @ other[mode] / size, overlap * factor * np.array(gram), atol=1e-12)


def test_two_phases_with_the_same_target_and_samples_are_one():
    for sampling in (dl.FullBatch(1.5), dl.Population(), dl.OnlineSGD(0.5), dl.MultiPassSGD(1.5, 0.5)):
        for optimizer in (dl.GradientDescent(schedules.linear(0.1), momentum=0.8), ScheduleFree(0.1)):
            one = make(optimizer, sampling=sampling)
            two = replace(one, phases=[Phase(2), Phase(4, new_samples=False)])
            for method in ("explicit", "reduced"):
                ours, theirs = (simulate(each, DIM, 2, workers=1, method=method) for each in (two, one))
                for name in (*LOSSES, *CORRELATIONS):
                    assert_array_equal(getattr(ours, name), getattr(theirs, name))
                assert ours.task_loss.shape == (2, 2, 6)
                for phase in range(2):
                    assert_allclose(ours.task_loss[:, phase], ours.test_loss, rtol=1e-12)


def test_a_phase_starts_from_the_weights_that_count():
    # After one step of the fast weights their mean is half way, as after a step of half the rate.
    phases = [Phase(1), Phase(5, new_samples=False, optimizer=dl.GradientDescent(0.05))]
    ours = train(make(ScheduleFree(0.1), phases=phases), DIM, SEED, SEED)
    assert_allclose(ours.test_loss, train(make(dl.GradientDescent(0.05)), DIM, SEED, SEED).test_loss, rtol=1e-12)


def test_new_samples_and_batches_of_phases():
    problem = make(
        sampling=dl.OnlineSGD(schedules.linear(2.0, end=0.2)),
        steps=8,
        phases=[Phase(4), Phase(2, sampling=dl.OnlineSGD([0.5, 1.0])), Phase(2, sampling=dl.FullBatch(1.5))],
    )
    sets = data_sets(problem, 10)
    assert [data.samples.tolist() for data in sets] == [[20, 18, 16, 14], [5, 10], [15, 15]]
    run = train(problem, 10, SEED, SEED)
    equal_times = np.diag(run.correlations["residual_correlation"])
    assert_allclose(equal_times, run.train_loss, rtol=1e-12)  # each over its own number of samples
    rest = run.correlations["residual_correlation"] - np.diag(equal_times)
    assert_array_equal(np.argwhere(rest), [[6, 7], [7, 6]])
    reduced = simulate(problem, 10, 3, workers=1, method="reduced")
    assert_allclose(np.einsum("stt->st", reduced.residual_correlation), reduced.train_loss, rtol=1e-12)


def test_label_noise_with_unlimited_data_in_phases():
    problem = make(
        sampling=dl.Population(),
        data=dl.Isotropic(0.5, GRAM),
        steps=4,
        phases=[Phase(2), Phase(1, noise=1.0, new_samples=False), Phase(1)],
    )
    run = train(problem, DIM, SEED, SEED)
    labels = run.correlations["residual_correlation"] - run.correlations["error_correlation"]
    noise = np.diag([0.5, 0.5, 1.0])
    assert_allclose(labels[:6, :6], np.kron(noise.sum(0)[:, None] * noise.sum(0), np.eye(2)), atol=1e-12)
    assert not run.correlations["residual_correlation"][:6, 6:].any()  # a sample of another phase
