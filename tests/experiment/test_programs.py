"""Update rules, schedules, layers, averages and phases of finite networks, against loops over dense matrices."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ks_2samp

import deeplinear as dl
from deeplinear._experiment.data_sets import data_sets
from deeplinear._experiment.ensemble import CORRELATIONS, LOSSES, MORE_LOSSES, Ensemble
from deeplinear._experiment.simulate import simulate, simulation_memory
from deeplinear._experiment.sizes import sizes_of
from deeplinear._experiment.targets import draw_targets
from deeplinear._experiment.train import train
from deeplinear._problem import schedules
from deeplinear._problem.averages import EMA, TailMean
from deeplinear._problem.more_optimizers import SAM, Muon, NormalizedDescent, ScheduleFree
from deeplinear._problem.phase import Phase

DIM, SEED = 8, 5
GRAM = ((1.0, 0.3), (0.3, 0.5))
AVERAGES = (EMA(0.0), EMA(0.7), TailMean(0.4), TailMean(1.0))


def make(optimizer=None, network=None, sampling=None, data=None, steps=6, phases=()):
    return dl.Problem(
        network or dl.MLP(3, (0.6, 1.5, 1.2), 0.8),
        data or dl.Isotropic(0.3),
        sampling or dl.FullBatch(1.5),
        optimizer or dl.GradientDescent(0.05),
        steps,
        phases,
    )


# --- a network by definition, with dense matrices ------------------------------------------------------------------


class Dense:
    """Weights, samples and targets of the network that ``train(problem, DIM, SEED, SEED)`` trains."""

    def __init__(self, problem):
        self.problem, self.sizes = problem, sizes_of(problem, DIM)
        self.gamma0 = problem.network.gamma0
        self.beta = problem.network.branch_factor if problem.network.skip else None
        init, self.data, draw = (_generator(*words) for words in ((SEED, 1), (SEED, 2), (0, 3)))
        widths = self.sizes.widths
        shapes = zip((*widths, widths[-1]), (DIM, *widths[:-1], self.sizes.outputs), strict=True)
        scales = problem.network.initial_scales
        self.weights = [scale * init.standard_normal(shape) for shape, scale in zip(shapes, scales, strict=True)]
        targets = draw_targets(draw, problem.data.finite(DIM), problem)
        self.targets = [target.T / math.sqrt(DIM) for target in targets]
        self.start = self.function(self.weights) if problem.network.centered else 0.0

    def scaled(self, weights):
        """Matrices whose product is the function, last first."""
        below = [weights[0] / math.sqrt(DIM)]
        for weight in weights[1:-1]:
            layer = weight / math.sqrt(weight.shape[1])
            below.append(layer if self.beta is None else np.eye(len(layer)) + self.beta * layer)
        return [weights[-1].T * math.sqrt(DIM) / (len(weights[-1]) * self.gamma0), *below[::-1]]

    def function(self, weights):
        return np.linalg.multi_dot(self.scaled(weights))

    def samples(self, count):
        """Inputs and label noise of unit variance."""
        return self.data.standard_normal((count, DIM)), self.data.standard_normal((count, self.sizes.outputs))

    def test_loss(self, weights, target, noise):
        gap = target - (self.function(weights) - self.start)
        return np.sum(gap**2) + len(gap) * noise**2

    def train_loss(self, weights, x, y):
        return np.sum((y - x @ (self.function(weights) - self.start).T) ** 2) / len(x)

    def gradient(self, weights, x, y, mask=1.0):
        """N_L gamma0^2 times minus the gradient of half the train loss, for every weight."""
        residual = mask * (y - x @ (self.function(weights) - self.start).T)
        signal = residual.T @ x / len(x)
        chain = self.scaled(weights)[::-1]  # first to last
        widths = [weight.shape[1] for weight in weights[1:-1]]
        scales = [1 / math.sqrt(DIM), *((self.beta or 1.0) / math.sqrt(width) for width in widths)]
        scales.append(math.sqrt(DIM) / (len(weights[-1]) * self.gamma0))
        found = []
        for layer, scale in enumerate(scales):
            above, below = np.eye(len(chain[-1])), np.eye(DIM)
            for matrix in chain[:layer:-1]:
                above = above @ matrix
            for matrix in chain[:layer]:
                below = matrix @ below
            found.append(scale * len(weights[-1]) * self.gamma0**2 * above.T @ signal @ below.T)
        return [*found[:-1], found[-1].T]

    def norms(self, gradient):
        return np.array([np.linalg.norm(each) / math.sqrt(self.sizes.widths[-1]) for each in gradient])


def _generator(*words):
    return np.random.default_rng(np.random.SeedSequence(words))


def by_hand(problem, rule):
    """Losses of full-batch training: ``rule`` is a generator that yields weights, and is sent the gradient at any."""
    dense, noise = Dense(problem), problem.data.noise
    x, eps = dense.samples(dense.sizes.samples)
    y = x @ dense.targets[0].T + noise * eps
    steps = rule(dense, [weight.copy() for weight in dense.weights], lambda weights: dense.gradient(weights, x, y))
    history = [[weight.copy() for weight in weights] for _, weights in zip(range(problem.steps), steps, strict=False)]
    test = [dense.test_loss(weights, dense.targets[0], noise) for weights in history]
    averaged = []
    for average in AVERAGES:
        shares = average.weights(problem.steps)
        for t in range(problem.steps):
            mixed = [np.tensordot(shares[t], layer, 1) for layer in map(np.array, zip(*history, strict=True))]
            averaged.append(dense.test_loss(mixed, dense.targets[0], noise))
    return (
        np.array(test),
        np.array([dense.train_loss(weights, x, y) for weights in history]),
        np.array(averaged).reshape(len(AVERAGES), -1),
    )


def momentum_rule(scaled, mu, lr, decay, rates, decays, nesterov=False):
    """Descent along ``scaled(dense, t, gradient)``; all numbers by step, factors by layer."""

    def rule(dense, weights, gradient):
        buffers = [np.zeros_like(weight) for weight in weights]
        for t in range(dense.problem.steps):
            yield weights
            found = scaled(dense, t, gradient(weights))
            for layer, each in enumerate(found):
                force = each - decay[t] * decays[layer] * weights[layer]
                buffers[layer] = mu[t] * buffers[layer] + force
                step = mu[t] * buffers[layer] + force if nesterov else buffers[layer]
                weights[layer] = weights[layer] + lr[t] * rates[layer] * step

    return rule


def as_is(dense, t, gradient):
    return gradient


def clipped(limit, by_layer):
    def scaled(dense, t, gradient):
        norms = dense.norms(gradient)
        norms = norms if by_layer else np.full_like(norms, np.sqrt(np.sum(norms**2)))
        return [each * min(1.0, limit / norm) for each, norm in zip(gradient, norms, strict=True)]

    return scaled


def normalized(beta2, by_layer):
    means = []

    def scaled(dense, t, gradient):
        squares = dense.norms(gradient) ** 2
        squares = squares if by_layer else np.full_like(squares, squares.sum())
        means.append(squares)
        ages = np.arange(t, -1, -1.0)
        mean = (1 - beta2) * beta2**ages @ np.array(means) / (1 - beta2 ** (t + 1))
        return [each / math.sqrt(size) for each, size in zip(gradient, mean, strict=True)]

    return scaled


def muon_rule(optimizer):
    """Newton-Schulz acts on singular values, each on its own."""

    def rule(dense, weights, gradient):
        total = [np.zeros_like(weight) for weight in weights]
        for _ in range(dense.problem.steps):
            yield weights
            found = gradient(weights)
            for layer, each in enumerate(found):
                if layer == len(weights) - 1 or (layer == 0 and not optimizer.input):
                    weights[layer] = weights[layer] + optimizer.plain.lr * each
                    continue
                total[layer] = optimizer.momentum * total[layer] + each
                ahead = optimizer.momentum * total[layer] + each if optimizer.nesterov else total[layer]
                left, values, right = np.linalg.svd(ahead, full_matrices=False)
                values = values / np.linalg.norm(values)
                for _ in range(optimizer.iterations):  # on each singular value by itself
                    values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
                above = len(weights[layer])
                weights[layer] = weights[layer] + optimizer.lr * math.sqrt(above) * (left * values) @ right

    return rule


def raw_rule(lr, direction):
    """Steps of weights of variance 1 / fan-in, V = W / sqrt(fan-in), along ``direction`` of their own gradients."""

    def rule(dense, weights, gradient):
        roots = [math.sqrt(weight.shape[1]) for weight in weights[:-1]] + [math.sqrt(len(weights[-1]))]
        raw = [weight / root for weight, root in zip(weights, roots, strict=True)]
        for _ in range(dense.problem.steps):
            weights = [root * each for each, root in zip(raw, roots, strict=True)]
            yield weights
            found = direction([root * each for each, root in zip(gradient(weights), roots, strict=True)])
            raw = [each + lr * step for each, step in zip(raw, found, strict=True)]

    return rule


def unit_by_layer(gradient):
    return [each / np.linalg.norm(each) for each in gradient]


def unit(gradient):
    norm = math.sqrt(sum(np.sum(each**2) for each in gradient))
    return [each / norm for each in gradient]


def unit_below(gradient):
    """The readout stays; singular values of the rest, which have one output, become what one iteration makes of 1."""
    return [*((3.4445 - 4.7750 + 2.0315) * each for each in unit_by_layer(gradient[:-1])), 0.0 * gradient[-1]]


def sam_rule(lr, rho):
    def rule(dense, weights, gradient):
        for _ in range(dense.problem.steps):
            yield weights
            first = gradient(weights)
            norm = np.sqrt(np.sum(dense.norms(first) ** 2))
            second = gradient([weight - rho * each / norm for weight, each in zip(weights, first, strict=True)])
            weights = [weight + lr * each for weight, each in zip(weights, second, strict=True)]

    return rule


def schedule_free_rule(lr, beta):
    def rule(dense, x, gradient):
        z = [weight.copy() for weight in x]
        for t in range(dense.problem.steps):
            yield x
            found = gradient([(1 - beta) * a + beta * b for a, b in zip(z, x, strict=True)])
            z = [a + lr * each for a, each in zip(z, found, strict=True)]
            x = [(1 - 1 / (t + 2)) * b + a / (t + 2) for a, b in zip(z, x, strict=True)]

    return rule


ONES, STEPS = np.ones(4), np.ones(6)
RESIDUAL = dl.ResNet(3, 1.2, 0.8, branch=0.9, branch_scaling=1.0)
MOMENTA = 0.9 - 0.1 * np.arange(6)
COSINE, LINEAR = schedules.cosine(0.1, warmup=0.3), schedules.linear(0.2)

BY_HAND = {
    "layers": (
        make(
            dl.GradientDescent(
                0.05, momentum=0.5, weight_decay=0.2, layer_lr=[1.0, 0.0, 2.0, 0.5], layer_decay={"hidden": 3.0}
            )
        ),
        momentum_rule(as_is, 0.5 * STEPS, 0.05 * STEPS, 0.2 * STEPS, [1.0, 0.0, 2.0, 0.5], [1.0, 3.0, 3.0, 1.0]),
    ),
    "schedules": (
        make(dl.GradientDescent(COSINE, momentum=MOMENTA, nesterov=True, weight_decay=LINEAR)),
        momentum_rule(as_is, MOMENTA, COSINE.values(6), LINEAR.values(6), ONES, ONES, nesterov=True),
    ),
    "initial scales": (
        make(network=dl.MLP(3, 1.0, init_scale={"input": 0.5, "hidden": 2.0, "readout": 0.0})),
        momentum_rule(as_is, 0 * STEPS, 0.05 * STEPS, 0 * STEPS, ONES, ONES),
    ),
    "standard": (
        make(network=dl.MLP(3, (0.5, 1.5, 2.0), parameterization="standard")),
        momentum_rule(as_is, 0 * STEPS, 0.05 * STEPS, 0 * STEPS, [1.0, 0.5, 1.5, 2.0], ONES),
    ),
    "a power of the depth": (
        make(network=RESIDUAL),
        momentum_rule(as_is, 0 * STEPS, 0.05 * STEPS, 0 * STEPS, [1.0, 3.0, 3.0, 1.0], ONES),
    ),
    "standard, normalised by layer": (
        make(NormalizedDescent(0.1), dl.MLP(3, (0.5, 1.5, 2.0), parameterization="standard")),
        raw_rule(0.1, unit_by_layer),
    ),
    "standard, normalised": (
        make(NormalizedDescent(0.1, per="global"), dl.MLP(3, (0.5, 1.5, 2.0), parameterization="standard")),
        raw_rule(0.1, unit),
    ),
    "standard, Muon": (
        make(
            Muon(0.1, 0.0, iterations=1, input=True, other=dl.GradientDescent(0.1, layer_lr={"readout": 0.0})),
            dl.MLP(3, (0.5, 1.5, 2.0), parameterization="standard"),
        ),
        raw_rule(0.1, unit_below),
    ),
    "a power of the depth, normalised by layer": (
        make(NormalizedDescent(0.1), replace(RESIDUAL, branch_scaling=0.75)),
        momentum_rule(normalized(0.0, True), 0 * STEPS, 0.1 * STEPS, 0 * STEPS, [1, 3**-0.25, 3**-0.25, 1], ONES),
    ),
    "a power of the depth, normalised": (
        make(NormalizedDescent(0.1, per="global"), replace(RESIDUAL, branch_scaling=0.75)),
        momentum_rule(normalized(0.0, False), 0 * STEPS, 0.1 * STEPS, 0 * STEPS, [1, 3**0.5, 3**0.5, 1], ONES),
    ),
    "clip": (
        make(dl.GradientDescent(0.1, momentum=0.5, weight_decay=0.1, clip=0.7)),
        momentum_rule(clipped(0.7, False), 0.5 * STEPS, 0.1 * STEPS, 0.1 * STEPS, ONES, ONES),
    ),
    "clip by layer": (
        make(dl.GradientDescent(0.1, clip=0.4, clip_by="layer")),
        momentum_rule(clipped(0.4, True), 0 * STEPS, 0.1 * STEPS, 0 * STEPS, ONES, ONES),
    ),
    "normalised": (
        make(NormalizedDescent(0.1, per="global")),
        momentum_rule(normalized(0.0, False), 0 * STEPS, 0.1 * STEPS, 0 * STEPS, ONES, ONES),
    ),
    "normalised by layer": (
        make(NormalizedDescent(0.1, beta2=0.8, momentum=0.5, layer_lr=[1.0, 2.0, 1.0, 0.3])),
        momentum_rule(normalized(0.8, True), 0.5 * STEPS, 0.1 * STEPS, 0 * STEPS, [1.0, 2.0, 1.0, 0.3], ONES),
    ),
    "Muon": (
        make(rule := Muon(0.05, momentum=0.8, other=dl.GradientDescent(0.1)), data=dl.Isotropic(0.2, GRAM)),
        muon_rule(rule),
    ),
    "Muon, Nesterov, input": (make(rule := Muon(0.05, nesterov=True, input=True, iterations=3)), muon_rule(rule)),
    "Muon, residual": (make(rule := Muon(0.05, momentum=0.0), RESIDUAL), muon_rule(rule)),
    "Muon, depth-muP": (
        make(Muon(0.05, other=rule.plain), replace(RESIDUAL, branch_scaling="depth-mup")),
        muon_rule(Muon(0.05 / math.sqrt(3), other=rule.plain)),
    ),
    "SAM": (make(SAM(0.05, 0.4), dl.MLP(2, (1.5, 0.8), centered=True)), sam_rule(0.05, 0.4)),
    "schedule-free": (make(ScheduleFree(0.1, 0.7)), schedule_free_rule(0.1, 0.7)),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_rules_are_those_of_a_loop_over_dense_matrices(name):
    problem, rule = BY_HAND[name]
    if name == "a power of the depth":
        assert_allclose(problem.layer_rates(problem.optimizer), [1, 3, 3, 1])
    run = train(problem, DIM, SEED, SEED, averages=AVERAGES)
    test, train_loss, averaged = by_hand(problem, rule)
    assert_allclose(run.test_loss, test, rtol=1e-10)
    assert_allclose(run.train_loss, train_loss, rtol=1e-10)
    assert_allclose(run.averaged_test_loss, averaged, rtol=1e-10)
    assert_allclose(run.averaged_test_loss[0], run.test_loss, rtol=1e-12)  # EMA(0) is the last weights
    assert run.task_loss.shape == (0, problem.steps)


@pytest.mark.parametrize("limit", [0.7, 0.4])
def test_clipping_is_active_in_what_was_compared(limit):
    problem = BY_HAND["clip" if limit == 0.7 else "clip by layer"][0]
    free = train(replace(problem, optimizer=replace(problem.optimizer, clip=None)), DIM, SEED, SEED)
    assert np.abs(train(problem, DIM, SEED, SEED).test_loss / free.test_loss - 1).max() > 0.02


# --- phases --------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("gram", [((1.0,),), GRAM])
def test_targets_overlap_with_the_one_before(gram):
    spectrum = dl.Spectrum([2.0, 0.5], [gram, np.multiply(2.0, gram)], [20, 12])
    phases = [Phase(1, overlap) for overlap in (1.0, 0.6, 1.0, 0.0, -1.0, -0.3)]
    problem = make(network=dl.MLP(1, 5.0), sampling=dl.Population(), data=spectrum, phases=phases)
    first, second, same, third, opposite, last = draw_targets(_generator(1), spectrum.finite(None), problem)
    assert same is second
    assert_array_equal(opposite, -third)
    for mode, factor in ((slice(0, 20), 1.0), (slice(20, 32), 2.0)):
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


# --- identities ----------------------------------------------------------------------------------------------------


def same(one, other, tolerance=0.0):
    ours, theirs = (train(make(each), DIM, SEED, SEED, averages=AVERAGES) for each in (one, other))
    for name in (*LOSSES, "averaged_test_loss"):
        assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=tolerance)


def test_rules_that_change_nothing():
    plain = dl.GradientDescent(0.05, momentum=0.6, weight_decay=0.1)
    same(replace(plain, layer_lr=[1.0] * 4, layer_decay={"input": 1.0}), plain)
    same(replace(plain, clip=1e9), plain)
    same(replace(plain, clip=1e9, clip_by="layer"), plain)
    same(replace(plain, lr=schedules.constant(0.05)), plain)
    same(ScheduleFree(0.05, layer_lr=[0.0] * 4), dl.GradientDescent([0.0] * 6), 1e-14)


def test_sharpness_aware_descent_with_a_small_radius_is_plain():
    plain = dl.GradientDescent(0.05, momentum=0.6)
    ours, theirs = (train(make(each), DIM, SEED, SEED).test_loss for each in (SAM(0.05, 1e-6, momentum=0.6), plain))
    difference = np.abs(ours / theirs - 1).max()
    assert 1e-9 < difference < 1e-4
    twice = train(make(SAM(0.05, 2e-6, momentum=0.6)), DIM, SEED, SEED).test_loss
    assert_allclose(np.abs(twice / theirs - 1).max(), 2 * difference, rtol=0.01)  # proportional to it


def test_muon_of_one_output_without_momentum_is_layerwise_normalised():
    # The gradient has rank one, so that all iterations leave is a factor: their action on the number 1.
    factor = 1.0
    for _ in range(5):
        factor = 3.4445 * factor - 4.7750 * factor**3 + 2.0315 * factor**5
    muon = Muon(0.1, momentum=0.0, other=dl.GradientDescent([0.0] * 6))
    network = dl.MLP(3, 1.5)
    steps = NormalizedDescent(0.1 * factor, layer_lr={"input": 0.0, "readout": 0.0})
    ours, theirs = (train(make(rule, network), DIM, SEED, SEED) for rule in (muon, steps))
    assert_allclose(ours.test_loss, theirs.test_loss, rtol=1e-10)


@pytest.mark.parametrize("method", ["explicit", "lazy", "reduced"])
def test_frozen_layers_stay(method):
    for frozen, layers in (({"readout": 0.0}, [1]), ({"readout": 0.0, "hidden": 0.0}, [0, 1])):
        problem = make(dl.GradientDescent(0.1, layer_lr=frozen), dl.MLP(2, 1.0))
        g = simulate(problem, DIM, 2, workers=1, method=method).gradient_correlation
        # g_2 is the readout, and g_1 is what the hidden weights make of it
        for layer in range(2):
            change = np.ptp(g[:, layer], axis=(1, 2)) / g[:, layer, 0, 0]
            assert (change < 1e-10).all() if layer in layers else (change > 1e-3).all()


def test_nothing_to_learn_makes_no_step():
    still = dl.Isotropic(0.0, [[0.0]])
    network = dl.MLP(2, 1.0, centered=True)
    rules = [NormalizedDescent(0.1), NormalizedDescent(0.1, "global", 0.9), Muon(0.1), SAM(0.1, 1.0)]
    for rule in (*rules, dl.GradientDescent(0.1, clip=1.0)):
        for method in ("explicit", "reduced"):
            if rule.orthogonal is None or method == "explicit":
                problem = make(rule, network, dl.Population(), still)
                assert_array_equal(simulate(problem, DIM, 2, workers=1, method=method).test_loss, np.zeros((2, 6)))


# --- matrices that are not explicit, devices, files, costs ---------------------------------------------------------

DISTRIBUTIONS = {
    "clip, SAM in a second phase": make(
        dl.GradientDescent(0.1, clip=0.5),
        dl.MLP(2, 1.0),
        phases=[Phase(3), Phase(3, target_overlap=0.4, optimizer=SAM(0.05, 0.3))],
    ),
    "schedule-free, batches": make(ScheduleFree(0.15), dl.MLP(2, 1.0), dl.OnlineSGD(schedules.linear(2.0, end=0.5))),
    "normalised, residual": make(
        NormalizedDescent(0.1, beta2=0.5, layer_lr={"hidden": 2.0}),
        dl.ResNet(3, 1.0, branch=3**-0.5, branch_scaling="none", init_scale={"hidden": 0.5}),
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
    pytest.importorskip("torch")
    problem = DISTRIBUTIONS.get(name) or make(Muon(0.05, nesterov=True), data=dl.Isotropic(0.2, GRAM))
    for method in ("explicit",) if name == "Muon" else ("explicit", "reduced"):
        ours, theirs = (
            simulate(problem, 12, 3, workers=1, method=method, averages=AVERAGES, device=device)
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
    assert_allclose(simulation_memory(problem, dim, 4, **options), peak, rtol=0.3)
