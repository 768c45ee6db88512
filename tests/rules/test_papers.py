"""Every built-in rule against others' implementations, and plain NumPy written from its paper.

Theory and networks run one text of a rule, so that neither checks it. Here it takes steps on three matrices, down a
quartic loss whose gradients mix them, and so do ``torch.optim``, optax, and a few lines of NumPy.
"""

import importlib.util

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._experiment.steps import Gradient, Steps
from needs import need, need_torch

STEPS = 12
SHAPES = ((6, 5), (4, 6), (4, 1))
DRAW = np.random.default_rng(7)
START = [DRAW.standard_normal(shape) for shape in SHAPES]
PULL = [DRAW.standard_normal(shape) for shape in SHAPES]
RATES = dl.schedules.cosine(0.05).values(STEPS)


def slope(weights):
    """Gradient of sum (W - P)^2 / 2 + (sum W^2)^2 / 80."""
    size = sum(np.sum(weight**2) for weight in weights)
    return [weight - pull + size * weight / 20.0 for weight, pull in zip(weights, PULL, strict=True)]


def ours(rule):
    """Weights after each step by the text of the rule, and those that count."""
    weights = [weight.copy() for weight in START]
    steps = Steps(rule, weights, STEPS, width=1)
    found = []
    for t in range(STEPS):
        steps.begin(t)
        wanted = True
        while wanted:
            down = [-each for each in slope(steps.evaluated)]
            squares = np.array([np.sum(each**2) for each in down])
            wanted = steps.receive(Gradient(down, lambda squares=squares: squares))
        found.append([weight.copy() for weight in weights])
    return found


def assert_same(found, expected, tolerance=1e-12):
    assert len(found) == len(expected) == STEPS
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max())


def by_hand(step):
    """Weights after each step of a function of the weights, a memory and the number of the step."""
    weights, memory, found = [weight.copy() for weight in START], {}, []
    for t in range(STEPS):
        weights = step(weights, memory, t)
        found.append(weights)
    return found


def size(matrices):
    return np.sqrt(sum(np.sum(each**2) for each in matrices))


# Gradient descent ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_descent_is_that_of_torch(nesterov, decay):
    torch, _ = need_torch()
    weights = [torch.tensor(weight, requires_grad=True) for weight in START]
    theirs = torch.optim.SGD(weights, 0.05, momentum=0.8, nesterov=nesterov, weight_decay=decay)
    expected = []
    for rate in RATES:
        for group in theirs.param_groups:
            group["lr"] = rate
        for weight, each in zip(weights, slope([weight.detach().numpy() for weight in weights]), strict=True):
            weight.grad = torch.tensor(each)
        theirs.step()
        expected.append([weight.detach().numpy().copy() for weight in weights])
    rule = dl.GradientDescent(dl.schedules.cosine(0.05), momentum=0.8, nesterov=nesterov, weight_decay=decay)
    assert_same(ours(rule), expected)


def test_rates_and_decays_of_layers():
    def step(weights, memory, t):
        factors, decays = (1.0, 0.5, 2.0), (0.0, 1.0, 3.0)
        pairs = zip(weights, slope(weights), factors, decays, strict=True)
        return [w - 0.03 * factor * (g + 0.2 * decay * w) for w, g, factor, decay in pairs]

    rule = dl.GradientDescent(0.03, weight_decay=0.2, layer_lr=[1.0, 0.5, 2.0], layer_decay=[0.0, 1.0, 3.0])
    assert_same(ours(rule), by_hand(step))


@pytest.mark.parametrize("by", ["global", "layer"])
def test_clipping(by):
    def step(weights, memory, t):
        gradient = slope(weights)
        sizes = [size([each]) if by == "layer" else size(gradient) for each in gradient]
        clipped = [g * min(1.0, 2.0 / norm) for g, norm in zip(gradient, sizes, strict=True)]
        memory["m"] = [0.5 * m + g for m, g in zip(memory.get("m", [0.0] * 3), clipped, strict=True)]
        return [w - 0.1 * m for w, m in zip(weights, memory["m"], strict=True)]

    assert_same(ours(dl.GradientDescent(0.1, clip=2.0, clip_by=by, momentum=0.5)), by_hand(step))


# Rules with sizes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per", ["global", "layer"])
@pytest.mark.parametrize("beta2", [0.0, 0.9])
def test_normalised_descent(per, beta2):
    def step(weights, memory, t):
        gradient = slope(weights)
        squares = np.array([np.sum(g**2) for g in gradient])
        squares = squares if per == "layer" else np.full(3, squares.sum())
        memory["v"] = beta2 * memory.get("v", 0.0) + (1 - beta2) * squares
        v = memory["v"] / (1 - beta2 ** (t + 1))
        return [w - RATES[t] * g / np.sqrt(each) for w, g, each in zip(weights, gradient, v, strict=True)]

    assert_same(ours(dl.NormalizedDescent(dl.schedules.cosine(0.05), per=per, beta2=beta2)), by_hand(step))


def test_sam():
    """Foret et al. 2021, equations 2 and 3."""

    def step(weights, memory, t):
        gradient = slope(weights)
        up = [w + 0.3 * g / size(gradient) for w, g in zip(weights, gradient, strict=True)]
        return [w - RATES[t] * g for w, g in zip(weights, slope(up), strict=True)]

    assert_same(ours(dl.SAM(dl.schedules.cosine(0.05), rho=0.3)), by_hand(step))


def newton_schulz(matrix, iterations=5):
    """Jordan et al. 2024: X <- a X + b (X X^T) X + c (X X^T)^2 X, from X over its Frobenius norm."""
    X = matrix / np.linalg.norm(matrix)
    for _ in range(iterations):
        A = X @ X.T
        X = 3.4445 * X - 4.7750 * A @ X + 2.0315 * A @ A @ X
    return X


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("with_input", [False, True])
def test_muon(nesterov, with_input):
    def step(weights, memory, t):
        gradient = slope(weights)
        made = []
        for layer, (w, g) in enumerate(zip(weights, gradient, strict=True)):
            if layer == 1 or (with_input and layer == 0):
                m = memory[layer] = 0.9 * memory.get(layer, 0.0) + g
                made.append(w - RATES[t] * np.sqrt(len(w)) * newton_schulz(g + 0.9 * m if nesterov else m))
            else:
                m = memory[layer] = 0.4 * memory.get(layer, 0.0) + g + 0.1 * w
                made.append(w - 0.02 * m)
        return made

    other = dl.GradientDescent(0.02, momentum=0.4, weight_decay=0.1)
    rule = dl.Muon(dl.schedules.cosine(0.05), 0.9, nesterov, input=with_input, other=other)
    assert_same(ours(rule), by_hand(step), 1e-11)


def test_schedule_free_descent():
    """Defazio et al. 2024, equations 2 to 4 with constant weights, from t = 0."""

    def step(weights, memory, t):
        x, z = weights, memory.get("z", weights)
        y = [0.1 * fast + 0.9 * mean for fast, mean in zip(z, x, strict=True)]
        memory["z"] = [fast - 0.05 * g for fast, g in zip(z, slope(y), strict=True)]
        c = 1.0 / (t + 2)
        return [(1 - c) * mean + c * fast for mean, fast in zip(x, memory["z"], strict=True)]

    assert_same(ours(dl.ScheduleFree(0.05)), by_hand(step))


# Optax ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def optax():
    need("optax", importlib.util.find_spec("optax") is not None, "pip install optax")
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    return pytest.importorskip("optax")


def of_optax(optax, transformation, evaluate=lambda params, state: params):
    """Weights after each step of a transformation of gradients, and what counts of them."""
    params = list(START)
    state, found = transformation.init(params), []
    for _ in range(STEPS):
        updates, state = transformation.update([np.asarray(each) for each in slope(params)], state, params)
        params = [np.asarray(each) for each in optax.apply_updates(params, updates)]
        found.append([np.asarray(each) for each in evaluate(params, state)])
    return found


def test_clipping_is_that_of_optax(optax):
    transformation = optax.chain(optax.clip_by_global_norm(2.0), optax.sgd(0.1, momentum=0.5))
    assert_same(ours(dl.GradientDescent(0.1, clip=2.0, momentum=0.5)), of_optax(optax, transformation))


def test_sam_is_that_of_optax(optax):
    adversary = optax.chain(optax.contrib.normalize(), optax.sgd(0.3))
    transformation = optax.contrib.sam(optax.sgd(0.05), adversary, sync_period=2, opaque_mode=True)
    params = list(START)
    state, found = transformation.init(params), []
    for _ in range(STEPS):
        given = [np.asarray(each) for each in slope(params)]
        updates, state = transformation.update(
            given, state, params, grad_fn=lambda params, _: slope([np.asarray(each) for each in params])
        )
        params = [np.asarray(each) for each in optax.apply_updates(params, updates)]
        found.append(params)
    assert_same(ours(dl.SAM(0.05, rho=0.3)), found)


def test_schedule_free_descent_is_that_of_optax(optax):
    """Whose mean leaves out the first weights: c is 1 / (t + 1) there."""
    transformation = optax.contrib.schedule_free(optax.sgd(0.05), 0.05, b1=0.9)
    expected = of_optax(optax, transformation, lambda params, state: state.z)

    def step(weights, memory, t):
        x, z = memory.get("x", weights), weights
        y = [0.1 * fast + 0.9 * mean for fast, mean in zip(z, x, strict=True)]
        z = [fast - 0.05 * g for fast, g in zip(z, slope(y), strict=True)]
        memory["x"] = [mean + (fast - mean) / (t + 1) for mean, fast in zip(x, z, strict=True)]
        return z

    assert_same(by_hand(step), expected, 1e-7)


def test_orthogonal_steps_are_those_of_optax(optax):
    """Without Nesterov's momentum, from which optax subtracts a bias; that of plain momentum is a factor."""
    hidden = START[1]
    plain = optax.contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=0)
    transformation = optax.contrib.scale_by_muon(
        beta=0.9, nesterov=False, eps=0.0, weight_dimension_numbers=lambda params: [plain for _ in params]
    )
    state, momentum = transformation.init([hidden]), np.zeros_like(hidden)
    for t in range(4):
        gradient = PULL[1] * (t + 1) - hidden
        updates, state = transformation.update([gradient], state, [hidden])
        momentum = 0.9 * momentum + gradient
        np.testing.assert_allclose(np.asarray(updates[0]), newton_schulz(momentum), rtol=1e-5, atol=1e-6)
