"""The simulator against numerical differentiation, a naive trainer, and exact statements about it."""

import math
import threading
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_info, threadpool_limits

import deeplinear as dl
from deeplinear._core.dataset import LOSSES, labelled
from deeplinear._core.threads import one_blas_thread
from deeplinear._experiment.ensemble import CORRELATIONS, Ensemble
from deeplinear._experiment.network import FiniteNetwork
from deeplinear._experiment.simulate import simulate
from deeplinear._experiment.simulation import Simulation
from deeplinear._experiment.sizes import Sizes, sizes_of
from deeplinear._experiment.steps import Gradient, Steps
from deeplinear._experiment.streams import Inputs, fixed_stream
from deeplinear._experiment.targets import draw_targets
from factories import maker
from networks import train

GRAM = ((1.0, 0.3), (0.3, 0.5))


make = maker(depth=2, width=1.0, richness=0.8, noise=0.3, sampling=dl.FullBatch(1.5), lr=0.05, steps=6)


def first_target(rng, problem, dim):
    """The target w* of shape (D, C) that networks of a problem learn in its first phase."""
    return draw_targets(rng, problem.data.finite(dim), problem)[0]


# --- an independent network: f from the definition, trained on raw weights at the raw rate -------------------


def product(weights, dim, gamma0, beta=None):
    """The matrix M (C, D) with f(x) = M x, straight from the definition of the network."""
    chain = weights[0] / math.sqrt(dim)
    for weight in weights[1:-1]:
        layer = weight / math.sqrt(weight.shape[1])
        chain = (layer if beta is None else np.eye(len(layer)) + beta * layer) @ chain
    return math.sqrt(dim) / (len(weights[-1]) * gamma0) * weights[-1].T @ chain


def naive_loss(weights, inputs, labels, gamma0, mask=1.0, beta=None):
    residual = labels - inputs @ product(weights, inputs.shape[1], gamma0, beta).T
    return np.sum(mask * residual**2) / (2 * len(inputs))


def differentiate(loss, weights, step=1e-5):
    gradients = []
    for weight in weights:
        gradient = np.empty_like(weight)
        for index in np.ndindex(*weight.shape):
            value = weight[index]
            weight[index] = value + step
            above = loss(weights)
            weight[index] = value - step
            gradient[index] = (above - loss(weights)) / (2 * step)
            weight[index] = value
        gradients.append(gradient)
    return gradients


def loss_gradient(weights, signal, dim, gamma0):
    """Gradient of the naive loss, from products of whole matrices; signal is dLoss/dM, shape (C, D)."""
    scaled = [weights[0] / math.sqrt(dim)]
    scaled += [weight / math.sqrt(weight.shape[1]) for weight in weights[1:-1]]
    scaled += [weights[-1].T * math.sqrt(dim) / (len(weights[-1]) * gamma0)]
    scales = [1 / math.sqrt(dim), *(1 / math.sqrt(w.shape[1]) for w in weights[1:-1])]
    scales += [math.sqrt(dim) / (len(weights[-1]) * gamma0)]
    gradients = []
    for layer, scale in enumerate(scales):
        above = np.eye(len(scaled[-1]))
        for matrix in scaled[:layer:-1]:
            above = above @ matrix
        below = np.eye(dim)
        for matrix in scaled[:layer]:
            below = matrix @ below
        gradients.append(scale * above.T @ signal @ below.T)
    gradients[-1] = gradients[-1].T
    return gradients


def naive_train(problem, dim, seed):
    """Losses and errors of the network that ``train(problem, dim, seed, seed)`` should train."""
    init, data, draw = (np.random.default_rng(np.random.SeedSequence(s)) for s in ([seed, 1], [seed, 2], [0, 3]))
    sizes, gamma0, rule, noise = sizes_of(problem, dim), problem.network.gamma0, problem.optimizer, problem.data.noise
    fan_in = (dim, *sizes.widths[:-1])
    weights = [init.standard_normal((n, m)) for n, m in zip(sizes.widths, fan_in, strict=True)]
    weights.append(init.standard_normal((sizes.widths[-1], sizes.outputs)))
    momenta = [np.zeros_like(weight) for weight in weights]
    target = first_target(draw, problem, dim).T / math.sqrt(dim)
    start = product(weights, dim, gamma0) if problem.network.centered else 0.0
    online, population = isinstance(problem.sampling, dl.OnlineSGD), isinstance(problem.sampling, dl.Population)
    test, train_losses, errors = [], [], []
    for t in range(problem.steps):
        gap = target - (product(weights, dim, gamma0) - start)
        test.append(np.sum(gap**2) + sizes.outputs * noise**2)
        errors.append(gap.T * math.sqrt(dim))
        if population:
            train_losses.append(test[-1])
            signal = -gap
        else:
            if online or t == 0:
                inputs = data.standard_normal((sizes.samples, dim))
                label_noise = noise * data.standard_normal((sizes.samples, sizes.outputs))
            residual = inputs @ gap.T + label_noise
            train_losses.append(np.sum(residual**2) / sizes.samples)
            keep = problem.sampling.keeps(problem.steps)[t]
            if keep < 1.0:
                residual = residual * (data.random((sizes.samples, 1)) < keep) / keep
            signal = -residual.T @ inputs / sizes.samples
        raw_rate = sizes.widths[-1] * gamma0**2
        lr = rule.rates(problem.steps)[t]
        for i, gradient in enumerate(loss_gradient(weights, signal, dim, gamma0)):
            force = -raw_rate * gradient - rule.weight_decay * weights[i]
            momenta[i] = rule.momentum * momenta[i] + force
            step = rule.momentum * momenta[i] + force if rule.nesterov else momenta[i]
            weights[i] = weights[i] + lr * step
    return np.array(test), np.array(train_losses), np.array(errors)


@pytest.mark.parametrize(
    ("widths", "gram", "keep", "beta"),
    [
        ((7,), 1.0, 1.0, None),
        ((6, 6, 6), 1.0, 1.0, None),
        ((4, 9, 6), 1.0, 1.0, None),
        ((5, 8), GRAM, 1.0, None),
        ((5, 4), GRAM, 0.4, None),
        ((6, 6, 6, 6), GRAM, 0.4, 0.6),
    ],
    ids=["one layer", "equal", "unequal", "outputs", "multi-pass", "residual"],
)
def test_first_update_is_the_numerical_gradient_of_the_loss(widths, gram, keep, beta):
    dim, samples, gamma0, noise, lr = 5, 8, 0.7, 0.3, 0.1
    gram = np.atleast_2d(gram)
    sizes = Sizes(dim, widths, samples, len(gram))
    network = FiniteNetwork.draw(np.random.default_rng(0), sizes, gamma0, beta)
    target = first_target(np.random.default_rng(1), make(gram=gram), dim)
    rng, same = np.random.default_rng(2), np.random.default_rng(2)
    inputs, label_noise = rng.standard_normal((samples, dim)), noise * rng.standard_normal((samples, len(gram)))
    of_inputs = Inputs(np.ones((dim, 1)), dim)
    stream = fixed_stream(of_inputs, inputs, label_noise, np.ones(1), np.array([keep]), rng)
    same.standard_normal(inputs.size + label_noise.size)
    mask = (same.random((samples, 1)) < keep) / keep if keep < 1 else np.ones((samples, 1))
    assert mask.any()
    assert keep == 1 or not mask.all()
    labels = inputs @ target / math.sqrt(dim) + label_noise
    before = [weight.copy() for weight in network.weights]
    expected = differentiate(lambda weights: naive_loss(weights, inputs, labels, gamma0, mask, beta), network.weights)

    g = network.backward()
    error, batch = target - network.predictor(g[0]), next(stream)
    seen = batch.see(error)
    h = network.forward(batch.signal(error, seen.residual))
    descent = Steps(dl.GradientDescent(lr), network.parameters, steps=1)
    descent.step(0, Gradient(network.gradients(h, g), lambda: network.squares(h, g)))

    assert_allclose(seen.train_loss, 2 * naive_loss(before, inputs, labels, gamma0, beta=beta), rtol=1e-12)
    for old, new, gradient in zip(before, network.weights, expected, strict=True):
        scale = np.abs(gradient).max()
        assert_allclose(new - old, -widths[-1] * gamma0**2 * lr * gradient, rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampling": dl.Population(), "depth": 1},
        {"sampling": dl.OnlineSGD(0.6), "depth": 3},
        {"sampling": dl.MultiPassSGD(2.0, 0.5)},
        {"width": (0.5, 2.0, 1.2), "depth": 3, "centered": True},
        {"gram": GRAM, "width": (0.5, 1.5)},
        {"gram": GRAM, "sampling": dl.MultiPassSGD(2.0, 0.5), "momentum": 0.8, "weight_decay": 0.2},
        {"momentum": 0.9},
        {"momentum": 0.7, "nesterov": True},
        {"weight_decay": 0.3},
        {"momentum": 0.8, "weight_decay": 0.2, "centered": True},
        {"momentum": 0.8, "weight_decay": 0.2, "nesterov": True},
        {
            "gram": GRAM,
            "momentum": 0.8,
            "weight_decay": 0.2,
            "nesterov": True,
            "lr": [0.1, 0.08, 0.05, 0.0, 0.02, 0.01],
        },
    ],
    ids=str,
)
def test_trajectory_is_that_of_a_naive_trainer(options):
    problem = make(**options)
    run = train(problem, 8, 5, 5, errors=True)
    test, train_losses, errors = naive_train(problem, 8, 5)
    assert_allclose(run.test_loss, test, rtol=1e-10)
    assert_allclose(run.train_loss, train_losses, rtol=1e-10)
    assert_allclose(run.errors, errors, atol=1e-10)


def test_ntk_parameterization_only_changes_gamma0():
    ntk = dl.MLP(2, 0.5, richness=0.4, parameterization="ntk")
    mup = dl.MLP(2, 0.5, richness=ntk.gamma0)
    rest = (dl.Isotropic(0.1), dl.FullBatch(1.0), dl.GradientDescent(0.05), 4)
    assert_array_equal(
        train(dl.Problem(ntk, *rest), 10, 0, 0).test_loss, train(dl.Problem(mup, *rest), 10, 0, 0).test_loss
    )


# --- statements of the theory that hold without solving it ----------------------------------------------------


@pytest.mark.parametrize("width", [0.5, (0.5, 1.0, 2.0), (2.0, 1.0, 0.5)])
def test_initial_correlations(width):
    problem = make(depth=3, width=width, richness=0.7, steps=1)
    experiment = simulate(problem, 200, 48)
    widths = problem.network.widths
    expected = {
        "error_correlation": 1 + 1 / (widths[-1] * 0.7**2),
        "gradient_correlation": [widths[-1] / nu for nu in widths],  # 1 at the readout, nu_{l+1}/nu_l per layer
    }
    for name, value in expected.items():
        mean, error = (f(name)[..., 0, 0] for f in (experiment.mean, experiment.standard_error))
        assert np.all(error < 0.1 * np.array(value))
        assert np.all(np.abs(mean - value) < 4 * error)


def test_centered_networks_start_at_zero():
    experiment = simulate(make(centered=True, gram=GRAM, width=0.4), 12, 3)
    assert_allclose(experiment.error_correlation[:, :2, :2], np.broadcast_to(GRAM, (3, 2, 2)), rtol=1e-12)
    assert_allclose(experiment.test_loss[:, 0], 1.5 + 2 * 0.3**2, rtol=1e-12)


@pytest.mark.parametrize(("method", "least", "error"), [("explicit", 1e-10, 1e-5), ("reduced", 1e-4, 1e-4)])
def test_lazy_centered_networks_are_right_or_refused(method, least, error):
    """What is learned is a difference of functions as large as 1 / richness, of which rounding takes its part."""
    limit, lazy = (
        dl.simulate(make(richness=each, centered=True, steps=20), 60, 4, method=method).test_loss
        for each in (2 * least, 1.001 * least)
    )
    np.testing.assert_allclose(lazy, limit, rtol=error)
    with pytest.raises(ValueError, match=f"richness must be at least {least:g} for centered networks with {method}"):
        dl.simulate(make(richness=0.5 * least, centered=True), 60, 4, method=method)


def test_lazy_networks_are_compared_without_reduced_ones():
    problem = make(richness=1e-8, centered=True, lr=0.01)
    experiment = dl.simulate(problem, 60, 4)
    assert experiment.method == "explicit"
    assert math.isfinite(dl.compare(dl.solve(problem), experiment).finite_size)
    with pytest.raises(ValueError, match=r"richness must be at least 0\.0001"):
        dl.finite_size(problem, 60)


def test_first_online_step_of_a_lazy_network_at_finite_size():
    # One hidden layer, centered, richness -> 0: v(1) = v - lr (|g|^2/N + W^T W/N) X^T X v / B, and the average over
    # Gaussian g, W, X is exact at any size; as dim grows it is the theory's growth of the loss in one step.
    dim, lr = 40, 0.3
    width = batch = dim // 2
    network = {"depth": 1, "width": 0.5, "richness": 1e-3, "centered": True, "noise": 0.0}
    experiment = simulate(make(**network, sampling=dl.OnlineSGD(0.5), lr=lr, steps=2), dim, 1500, record="losses")
    expected = 1 - 4 * lr + lr**2 * (4 + (dim + 3) / width) * (1 + (dim + 1) / batch)
    mean, error = experiment.mean("test_loss")[1], experiment.standard_error("test_loss")[1]
    assert error < 0.03 * expected
    assert abs(mean - expected) < 4 * error


def test_target_has_the_gram_matrix():
    gram = np.array([[1.0, 0.5, 0.0], [0.5, 0.25, 0.0], [0.0, 0.0, 2.0]])  # singular
    target = first_target(np.random.default_rng(0), make(gram=gram), 7)
    assert_allclose(target.T @ target / 7, gram, atol=1e-12)


def test_correlations_are_consistent_with_losses_and_each_other():
    problem = make(gram=GRAM, noise=0.2, steps=5, width=(0.5, 1.5))
    experiment = simulate(problem, 20, 2)
    n = 10
    assert experiment.feature_correlation.shape == (2, 3, n, n)
    assert experiment.gradient_correlation.shape == (2, 2, n, n)

    def trace(name):
        return np.einsum("sicic->si", getattr(experiment, name).reshape(2, 5, 2, 5, 2))

    assert_allclose(trace("error_correlation") + 2 * 0.2**2, experiment.test_loss, rtol=1e-12)
    assert_allclose(trace("residual_correlation"), experiment.train_loss, rtol=1e-12)
    for name in CORRELATIONS:
        value = getattr(experiment, name)
        assert_array_equal(value, np.swapaxes(value, -1, -2))


def test_residual_correlation_by_sampling():
    population = train(make(sampling=dl.Population(), noise=0.5, gram=GRAM), 10, 0, 0)
    difference = population.correlations["residual_correlation"] - population.correlations["error_correlation"]
    assert_allclose(difference, np.kron(np.ones((6, 6)), 0.25 * np.eye(2)), atol=1e-12)
    assert_array_equal(population.train_loss, population.test_loss)
    assert_array_equal(population.correlations["feature_correlation"][0], population.correlations["error_correlation"])

    online = train(make(sampling=dl.OnlineSGD(0.5), gram=GRAM), 10, 0, 0)
    blocks = online.correlations["residual_correlation"].reshape(6, 2, 6, 2).transpose(0, 2, 1, 3)
    assert not blocks[~np.eye(6, dtype=bool)].any()
    assert_allclose(np.trace(blocks[range(6), range(6)], axis1=1, axis2=2), online.train_loss, rtol=1e-12)


def test_multi_pass_with_all_samples_is_full_batch():
    full, multi = (train(make(sampling=s), 12, 3, 3).test_loss for s in (dl.FullBatch(1.5), dl.MultiPassSGD(1.5, 1.5)))
    assert_array_equal(full, multi)


def test_replicas_share_what_their_seeds_share():
    problem = make(sampling=dl.MultiPassSGD(1.0, 0.5))

    def errors(init, data):
        return train(problem, 10, init, data, "losses", errors=True).errors

    same, other_data, other_init = errors(1, 1), errors(1, 2), errors(2, 1)
    assert same.shape == (6, 10, 1)
    assert_array_equal(same[0], other_data[0])  # at the start the data have not been seen
    assert not np.allclose(same[1], other_data[1])
    assert not np.allclose(same[0], other_init[0])
    centered = make(centered=True)
    assert_array_equal(*(train(centered, 10, s, s, "losses", errors=True).errors[0] for s in (1, 2)))  # same target


# --- seeds, workers, threads ----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"momentum": 0.5, "gram": GRAM, "sampling": dl.MultiPassSGD(1.5, 0.5)}])
def test_a_seed_gives_the_same_bits_in_any_company(options):
    problem = make(depth=3, steps=15, **options)
    alone = simulate(problem, 60, [3], workers=1)
    together = simulate(problem, 60, 6, workers=1)
    parallel = simulate(problem, 60, [5, 3, 1, 0], workers=4)
    for name in (*LOSSES, *CORRELATIONS):
        assert_array_equal(getattr(together, name)[3], getattr(alone, name)[0])
        assert_array_equal(getattr(parallel, name), getattr(together, name)[[5, 3, 1, 0]])
    assert not np.array_equal(together.test_loss[0], together.test_loss[1])


def test_recording_losses_only_changes_nothing_else():
    problem = make()
    everything, losses = (simulate(problem, 20, 2, record=record) for record in ("all", "losses"))
    for name in LOSSES:
        assert_array_equal(getattr(everything, name), getattr(losses, name))
    assert all(getattr(losses, name) is None for name in CORRELATIONS)
    assert losses.stats["seeds"] == 2


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_blas_limit_is_lifted_by_the_last_to_leave():
    with threadpool_limits(2, user_api="blas"):  # tests have one
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(blas_threads()) == {1}
        second.__exit__(None, None, None)
        assert set(blas_threads()) == {2}


# --- divergence, progress, memory -----------------------------------------------------------------------------


def test_divergence_is_an_answer():
    calls = []
    experiment = simulate(make(lr=5.0, steps=40), 20, 3, progress=lambda *call: calls.append(call))
    assert calls[-1] == (120, 120)
    for seed, stop in enumerate(experiment.diverged_at):
        assert 0 < stop < 40
        for name in LOSSES:
            assert np.isfinite(getattr(experiment, name)[seed, :stop]).all()
            assert np.isposinf(getattr(experiment, name)[seed, stop:]).all()
        for name in CORRELATIONS:
            value = getattr(experiment, name)[seed]
            assert np.isfinite(value[..., :stop, :stop]).all()
            assert np.isnan(value[..., stop:, :]).all()
            assert np.isnan(value[..., :, stop:]).all()
    assert np.isposinf(experiment.mean("test_loss")[-1])
    assert np.isnan(experiment.standard_error("test_loss")[-1])


def test_no_divergence_is_minus_one():
    assert_array_equal(simulate(make(), 10, 2).diverged_at, [-1, -1])


def test_progress_counts_up_to_the_total():
    calls = []
    simulate(make(steps=300), 5, 3, workers=3, record="losses", progress=lambda *call: calls.append(call))
    done = [call[0] for call in calls]
    assert 50 < len(calls) < 150
    assert done == sorted(done)
    assert calls[-1] == (900, 900)
    assert {call[1] for call in calls} == {900}


def test_an_error_in_progress_stops_the_simulation():
    reached = []

    def fail(done, total):
        reached.append(done)
        raise KeyError("stop here")

    threads = threading.active_count()
    with pytest.raises(KeyError, match="stop here"):
        simulate(make(steps=2000), 10, 40, workers=2, record="losses", progress=fail)
    assert threading.active_count() == threads
    assert max(reached) < 80_000 / 10


def test_too_little_memory_is_refused(monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10_000_000))
    with pytest.raises(
        MemoryError, match=r"needs about 0\.\d\d GB, but only 0\.01 GB are available; lower dim, seeds, steps"
    ):
        simulate(make(steps=300), 20, 16)
    simulate(make(steps=300), 20, 1, record="losses")


@pytest.mark.parametrize("record", ["all", "losses"])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_memory_estimate(record, momentum):
    problem = make(steps=80, momentum=momentum, depth=3, gram=GRAM)
    simulate(problem, 10, 1)
    tracemalloc.start()
    try:
        simulate(problem, 150, 3, workers=1, record=record)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert_allclose(Simulation.read(problem, 150, 3, 1, record).memory, peak, rtol=0.15)


# --- input and output -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 2.5}, "dim must be a whole number, at least 1, got 2.5"),
        ({"dim": 0}, "dim must be a whole number, at least 1, got 0"),
        ({"seeds": 0}, "seeds must be a whole number, at least 1, got 0"),
        ({"seeds": []}, "seeds must be one or more distinct whole numbers"),
        ({"seeds": [1, 1]}, "seeds must be one or more distinct whole numbers"),
        ({"seeds": [3, -1]}, r"seeds\[1\] must be a whole number, at least 0, got -1"),
        ({"workers": 0}, "workers must be a whole number, at least 1, got 0"),
        ({"record": "some"}, "record must be 'all' or 'losses', got 'some'"),
        ({"problem": "mlp"}, "problem must be a Problem, got 'mlp'"),
        ({"problem": make(width="infinite")}, "width must be finite in a simulation, got 'infinite'"),
        ({"problem": make(gram=GRAM), "dim": 1}, r"dim must be at least the number of outputs \(2\), got 1"),
    ],
    ids=str,
)
def test_bad_input_is_named(arguments, message):
    arguments = {"problem": make(), "dim": 10, **arguments}
    with pytest.raises(ValueError, match=message):
        simulate(**arguments)
    with pytest.raises(ValueError, match=message):
        Simulation.read(**arguments)


def test_smallest_network():
    experiment = simulate(make(width=0.01, sampling=dl.OnlineSGD(0.01)), 1, 1)
    assert experiment.feature_correlation.shape == (1, 3, 6, 6)
    assert np.isnan(experiment.standard_error("test_loss")).all()


def test_mean_and_standard_error():
    experiment = simulate(make(), 10, 5)
    values = experiment.feature_correlation
    assert_allclose(experiment.mean("feature_correlation"), values.mean(0))
    assert_allclose(experiment.standard_error("feature_correlation"), values.std(0, ddof=1) / math.sqrt(5))
    with pytest.raises(ValueError, match="name must be one of test_loss"):
        experiment.mean("loss")
    with pytest.raises(ValueError, match="error_correlation was not recorded"):
        simulate(make(), 10, 1, record="losses").mean("error_correlation")


def test_labels():
    dataset = simulate(make(gram=GRAM), 10, [4, 7]).to_xarray()
    assert dataset.test_loss.dims == ("seed", "time")
    times = ("time", "output", "time_prime", "output_prime")
    assert dataset.feature_correlation.dims == ("seed", "layer", *times)
    assert dataset.gradient_correlation.dims == ("seed", "gradient_layer", *times)
    assert dataset.error_correlation.dims == ("seed", *times)
    assert_array_equal(dataset.seed, [4, 7])
    assert_array_equal(dataset.layer, [0, 1, 2])
    assert_array_equal(dataset.gradient_layer, [1, 2])
    raw = train(make(gram=GRAM), 10, 7, 7).correlations["gradient_correlation"]
    entry = dataset.gradient_correlation.sel(seed=7, gradient_layer=2, time=3, output=1, time_prime=5, output_prime=0)
    assert_allclose(entry, raw[1, 3 * 2 + 1, 5 * 2])
    assert dl.Problem.from_toml(dataset.attrs["problem"]) == make(gram=GRAM)


def test_labels_without_seeds():
    found = labelled({"error_response": np.eye(3), "test_loss": np.ones(3)}, times=np.array([0, 2, 9]), depth=4)
    dataset = found.to_xarray()
    assert dataset.error_response.dims == ("time", "time_prime")
    assert set(dataset.coords) == {"time", "time_prime"}


@pytest.mark.parametrize("options", [{}, {"gram": GRAM, "lr": 5.0, "steps": 40}, {"lr": [0.1] * 6}], ids=str)
@pytest.mark.parametrize("record", ["all", "losses"])
def test_save_and_load(tmp_path, options, record):
    experiment = simulate(make(**options), 10, [2, 5], record=record)
    path = tmp_path / "experiment.nc"
    experiment.save(path)
    loaded = Ensemble.load(path)
    assert loaded.problem == experiment.problem
    assert (loaded.dim, loaded.seeds, loaded.stats) == (10, (2, 5), experiment.stats)
    for name in ("times", "diverged_at", *LOSSES, *CORRELATIONS):
        original, read = getattr(experiment, name), getattr(loaded, name)
        assert (original is None) == (read is None)
        if original is not None:
            assert original.dtype == read.dtype
            assert_array_equal(original, read)
    assert [file.name for file in tmp_path.iterdir()] == ["experiment.nc"]


def test_load_refuses_other_files(tmp_path):
    text, other = tmp_path / "text.nc", tmp_path / "other.nc"
    text.write_text("not a result")
    xr.Dataset({"x": ("t", [1.0])}).to_netcdf(other, engine="h5netcdf")
    for path in (text, other):
        with pytest.raises(ValueError, match=f"{path.name} is not a deeplinear.Ensemble file"):
            Ensemble.load(path)
    with pytest.raises(FileNotFoundError):
        Ensemble.load(tmp_path / "missing.nc")
