"""A network by definition, with dense matrices, and its training in loops: what simulated programs must equal."""

import math

import numpy as np

import deeplinear as dl
from deeplinear._experiment.sizes import sizes_of
from deeplinear._experiment.targets import draw_targets
from deeplinear._rules.averages import EMA, TailMean
from factories import maker

DIM, SEED = 8, 5
GRAM = ((1.0, 0.3), (0.3, 0.5))
AVERAGES = (EMA(0.0), EMA(0.7), TailMean(0.4), TailMean(1.0))


make = maker(
    *("optimizer", "network", "sampling", "data"),
    network=dl.MLP(3, (0.6, 1.5, 1.2), 0.8),
    noise=0.3,
    sampling=dl.FullBatch(1.5),
    lr=0.05,
    steps=6,
)


class Dense:
    """Weights, samples and targets of the network that ``train(problem, DIM, SEED, SEED)`` trains."""

    def __init__(self, problem):
        self.problem, self.sizes = problem, sizes_of(problem, DIM)
        self.gamma0 = problem.network.gamma0
        self.beta = problem.network.branch_factor if problem.network.skip else None
        init, self.data, draw = (generator(*words) for words in ((SEED, 1), (SEED, 2), (0, 3)))
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


def generator(*words):
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
