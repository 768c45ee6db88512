"""Matrices that are drawn where training looks at them: the same networks as explicit ones, at any size."""

import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ks_2samp

import deeplinear as dl
from agreement import z_scores
from deeplinear._core.dataset import LOSSES
from deeplinear._core.device import CPU
from deeplinear._core.threads import one_blas_thread
from deeplinear._experiment import methods
from deeplinear._experiment.data_sets import data_sets
from deeplinear._experiment.draws import Draws
from deeplinear._experiment.ensemble import CORRELATIONS, MORE_LOSSES, Ensemble
from deeplinear._experiment.methods import Counts
from deeplinear._experiment.network import FiniteNetwork
from deeplinear._experiment.record import Log, Wanted
from deeplinear._experiment.revealed import Revealed
from deeplinear._experiment.revealed_network import draw_inputs, draw_network, draw_stream
from deeplinear._experiment.simulate import simulate
from deeplinear._experiment.simulation import Simulation
from deeplinear._experiment.sizes import sizes_of
from deeplinear._experiment.spaces import Space
from deeplinear._experiment.train import train_revealed
from deeplinear._experiment.training import Task, Training
from deeplinear._problem.phase import Phase
from deeplinear._rules import schedules
from deeplinear._rules.averages import EMA, TailMean
from deeplinear._rules.normalized import NormalizedDescent
from deeplinear._rules.sam import SAM
from deeplinear._rules.schedule_free import ScheduleFree
from factories import checkerboard

GRAM = ((1.0, 0.3), (0.3, 0.5))
SPECTRUM = dl.Spectrum([2.0, 0.5, 0.0], [0.7, 1.0, 0.3], [0.25, 0.5, 0.25], proportional=True, noise=0.2)
COUNTS = dl.Spectrum([1.0, 0.3, 0.1], [1.0, 0.5, 2.0], [12, 1, 14], noise=0.2)


def make(network=None, data=None, sampling=None, steps=4, lr=0.08, **optimizer):
    rule = dl.GradientDescent(lr, **optimizer)
    data = data or dl.Isotropic(0.3)
    return dl.Problem(network or dl.MLP(2, 1.0), data, sampling or dl.FullBatch(1.5), rule, steps)


REGIMES = {
    "full batch": make(),
    "population": make(sampling=dl.Population()),
    "online": make(sampling=dl.OnlineSGD(0.6)),
    "multi-pass": make(sampling=dl.MultiPassSGD(1.5, 0.6)),
    "one layer": make(dl.MLP(1, 1.0, richness=0.7)),
    "unequal, centered": make(dl.MLP(3, (0.6, 1.5, 1.0), centered=True)),
    "outputs": make(data=dl.Isotropic(0.2, GRAM), steps=3),
    "outputs, online": make(data=dl.Isotropic(0.2, GRAM), sampling=dl.OnlineSGD(0.7), steps=3),
    "residual": make(dl.ResNet(3, 1.2, branch=0.8)),
    "momentum, decay": make(momentum=0.8, weight_decay=0.2),
    "Nesterov, schedule": make(momentum=0.7, nesterov=True, weight_decay=0.1, lr=[0.1, 0.05, 0.0, 0.08]),
    "spectrum": make(data=SPECTRUM),
    "counts": make(dl.MLP(2, 24.0), COUNTS, dl.MultiPassSGD(30.0, 15.0)),
}
DIM = 20

CHANGING = dl.OnlineSGD(schedules.linear(1.5, end=0.4))
PROGRAMS = {
    "layers": replace(
        make(dl.MLP(2, 1.0, init_scale={"input": 0.5, "hidden": 1.5})),
        optimizer=dl.GradientDescent(0.08, momentum=0.5, layer_lr=[1.0, 0.0, 2.0], layer_decay=[3.0, 1.0, 1.0]),
    ),
    "frozen readout of zero": make(dl.MLP(2, 1.0, init_scale={"readout": 0.0}), layer_lr={"input": 0.0}),
    "clip": make(data=dl.Isotropic(0.2, GRAM), clip=0.3, momentum=0.5),
    "normalised, residual": replace(
        make(dl.ResNet(3, 1.2, branch_scaling=1.0)), optimizer=NormalizedDescent(0.1, beta2=0.8)
    ),
    "SAM, outputs": replace(
        make(data=dl.Isotropic(0.2, GRAM), sampling=dl.OnlineSGD(0.7)), optimizer=SAM(0.08, 0.3, momentum=0.5)
    ),
    "clip, multi-pass": make(sampling=dl.MultiPassSGD(1.5, schedules.linear(1.0)), clip=0.3),
    "schedule-free": replace(make(sampling=CHANGING), optimizer=ScheduleFree(0.1, 0.6)),
    "schedule-free, residual": replace(make(dl.ResNet(3, 1.2)), optimizer=ScheduleFree(0.1, 0.6)),
    "phases": replace(
        make(dl.MLP(2, 1.0, centered=True), data=dl.Isotropic(0.2, GRAM)),
        phases=[
            Phase(1),
            Phase(1, target_overlap=0.4, optimizer=SAM(0.05, 0.2)),
            Phase(1, target_overlap=-0.5, new_samples=False, noise=0.5),
            Phase(1, sampling=dl.OnlineSGD(1.0)),
        ],
    ),
    "phases, spectrum": replace(make(data=SPECTRUM), phases=[Phase(2), Phase(2, target_overlap=0.4)]),
}


def dim_of(problem, dim=DIM):
    return int(problem.data.finite(None).weight.sum()) if problem.data.dimension_free else dim


# --- the same network, if the numbers that are drawn are those of a given matrix ----------------------------------


def both(problem, dim, monkeypatch, seed=3, averages=()):
    """Train a network whose matrices are revealed, and the explicit one that has the same entries."""
    sizes, finite, rng = sizes_of(problem, dim), problem.data.finite(dim), np.random.default_rng(seed)
    draws, hidden, batches = Draws([rng], CPU), {}, []

    def entries(matrix):
        return hidden.setdefault(matrix, rng.standard_normal((1, *matrix.shape)))

    def unseen(self, far, direction):
        return (entries(self) if far is self._left else entries(self).mT) @ direction

    monkeypatch.setattr(Revealed, "_unseen", unseen)
    count = len(averages)
    space, inputs, targets = draw_inputs(problem, sizes, finite, draws, CPU, count, reduced=False)
    network = draw_network(problem, sizes, space, draws, count, reduced=False)
    sets = data_sets(problem, sizes.unit)
    initial = [*network.parameters[:-1], network.weights[-1].copy()]
    scales = [float(each[0, 0, 0]) for each in initial[:-1]]

    def run(network, stream):
        wanted = Wanted(correlations=True, errors=True, averages=count, tasks=len(problem.stages))
        log = Log(problem.steps, sizes, sizes, initial[-1], wanted)
        return Training(Task(problem, inputs, targets, sets, stream), network, log, averages).run()

    def revealed_stream(data):
        for batch in draw_stream(data, sizes.outputs, inputs, space, draws, reduced=False):
            batches.append(batch)
            yield batch

    revealed = run(network, revealed_stream)
    weights = [scale * entries(weight) for scale, weight in zip(scales, network.weights[:-1], strict=True)]
    twin = FiniteNetwork([*weights, initial[-1]], network.gamma0, network.unit, network.beta)

    def explicit_stream(data):
        for batch in batches[data.start : data.stop]:
            yield replace(batch, standard=entries(batch.standard)) if data.drawn else batch

    return revealed, run(twin, explicit_stream), network


def assert_same(revealed, explicit, tolerance):
    for name in LOSSES:
        assert_allclose(getattr(revealed, name), getattr(explicit, name), rtol=tolerance)
    for name in MORE_LOSSES:
        assert_allclose(getattr(revealed, name), getattr(explicit, name), rtol=tolerance)
    for name, matrix in explicit.correlations.items():
        assert_allclose(revealed.correlations[name], matrix, atol=tolerance * np.abs(matrix).max())


@pytest.mark.parametrize("name", REGIMES)
def test_it_is_the_explicit_network_with_the_same_entries(name, monkeypatch):
    problem = REGIMES[name]
    revealed, explicit, _ = both(problem, dim_of(problem, 12), monkeypatch)
    assert_same(revealed, explicit, 1e-11)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_those_of_the_explicit_network_with_the_same_entries(name, monkeypatch):
    problem = PROGRAMS[name]
    revealed, explicit, _ = both(problem, 16, monkeypatch, averages=(EMA(0.5), TailMean(0.5)))
    assert_same(revealed, explicit, 1e-11)


@pytest.mark.parametrize("name", PROGRAMS)
def test_reduced_networks_have_room_for_all_that_is_looked_at(name):
    for averages in ((), (EMA(0.5), TailMean(0.5))):
        simulate(PROGRAMS[name], 10**5, 2, method="reduced", averages=averages)


@pytest.mark.parametrize(
    ("problem", "tolerance"),
    [
        (make(steps=60), 1e-9),  # more steps than neurons, inputs or samples
        (make(dl.MLP(2, 2.0), sampling=dl.FullBatch(4.0), steps=300, lr=0.15), 1e-9),  # converges: nothing new for long
        (make(data=dl.Isotropic(0.3, GRAM), sampling=dl.MultiPassSGD(2.0, 0.5), steps=40), 1e-9),
        (make(dl.ResNet(4, 1.0), sampling=dl.OnlineSGD(2.0), steps=60, lr=0.03), 1e-9),
        (make(dl.MLP(2, 10.0), dl.Spectrum(0.1 ** np.arange(10.0), np.ones(10)), dl.FullBatch(20.0), 120), 1e-9),
    ],
    ids=["more steps than neurons", "converged", "outputs", "residual", "ten decades of eigenvalues"],
)
def test_long_runs_spend_all_directions(problem, tolerance, monkeypatch):
    revealed, explicit, network = both(problem, dim_of(problem, 8), monkeypatch)
    assert_same(revealed, explicit, tolerance)
    for weight in network.weights[:-1]:
        for side in weight.sides(False):
            directions = side.known[0]
            used = directions[np.abs(directions).max(axis=1) > 0]
            assert len(used) <= side.space.size
            assert len(used) < len(directions)
            assert_allclose(used @ used.T, np.eye(len(used)), atol=1e-12)


# --- the same distribution ----------------------------------------------------------------------------------------

TRAINED = {"explicit": 400, "lazy": 800, "reduced": 1600}
LAZY = ("full batch", "multi-pass", "outputs, online")
REPEATED = ("one layer", "unequal, centered", "outputs", "momentum, decay", "Nesterov, schedule", "population")
"""Regimes whose reduced networks are left to ``make check-slow``; the others have all of their parts."""
LEVEL = 0.001
"""Of all tests of distributions together, each at this over their number."""
COMPARED = ("test_loss", "train_loss", "feature_correlation", "gradient_correlation", "error_correlation")


@pytest.fixture(scope="module")
def trained():
    """Networks of every regime, kept every way."""
    cache = {}

    def of(name, method):
        if (name, method) not in cache:
            problem = REGIMES[name]
            cache[name, method] = simulate(problem, dim_of(problem), TRAINED[method], workers=1, method=method)
        return cache[name, method]

    return of


def last(experiment, name):
    """One number of each network at the last step, of the last layer where there are several.

    Logarithms, since at this size a few networks are near divergence and would make up all of the variance.
    """
    values = getattr(experiment, name)
    return np.log(values[:, -1] if values.ndim == 2 else values.reshape(len(values), -1)[:, -1])


@pytest.mark.parametrize(
    ("method", "name"),
    [("lazy", name) for name in LAZY]
    + [pytest.param("reduced", name, marks=[pytest.mark.slow] * (name in REPEATED)) for name in REGIMES],
)
def test_equal_in_distribution(method, name, trained):
    count = (len(LAZY) + len(REGIMES)) * len(COMPARED)
    for observable in COMPARED:
        ours, theirs = (last(trained(name, each), observable) for each in (method, "explicit"))
        assert ks_2samp(ours, theirs).pvalue > LEVEL / count, observable
        spread = np.hypot(ours.std() / np.sqrt(len(ours)), theirs.std() / np.sqrt(len(theirs)))
        assert abs(ours.mean() - theirs.mean()) < 4.5 * spread, observable
        ratio, error = ours.std() / theirs.std(), np.hypot(_relative_error(ours), _relative_error(theirs))
        assert abs(ratio - 1) < 4.5 * error, observable


def _relative_error(values):
    """Standard error of the standard deviation, relative, from the fourth moment."""
    squares = (values - values.mean()) ** 2
    return 0.5 * squares.std() / squares.mean() / np.sqrt(len(values))


@pytest.mark.parametrize(("rows", "columns"), [(6, 5), (9, 4), (4, 9), (5, 5)])
def test_a_revealed_matrix_is_gaussian(rows, columns):
    # Two looks from each side are four of the directions of each space, so what is left are one to five dimensions.
    networks = 5000
    draws = Draws([np.random.default_rng([7, rows, columns, i]) for i in range(networks)], CPU)
    out, into = Space(draws, [rows], 3), Space(draws, [columns], 4)
    x = into.gaussian(1)
    matrix = Revealed(out, into, 2)
    y = matrix @ x
    z = matrix.mT @ y
    w = matrix @ (z + x)
    actual = [np.log(np.sum(each**2, axis=(1, 2))) for each in (y, z, w)]
    rng = np.random.default_rng([8, rows, columns])
    x, matrix = rng.standard_normal((networks, columns, 1)), rng.standard_normal((networks, rows, columns))
    y = matrix @ x
    z = matrix.mT @ y
    expected = [np.log(np.sum(each**2, axis=(1, 2))) for each in (y, z, matrix @ (z + x))]
    for ours, theirs in zip(actual, expected, strict=True):
        assert ks_2samp(ours, theirs).pvalue > LEVEL / 12
        assert abs(ours.mean() - theirs.mean()) < 4 * np.hypot(ours.std(), theirs.std()) / np.sqrt(networks)


def test_mirrored_networks_have_the_same_distribution_and_opposite_noise():

    def last_losses(dim, seeds):
        asked = Simulation.read(make(), dim, seeds, 1, "losses", "reduced")
        both = (asked, replace(asked, mirrored=True))
        return (train_revealed(each, asked.seeds).test_loss[:, -1] for each in both)

    plain, mirrored = last_losses(2000, 400)
    assert ks_2samp(plain, mirrored).pvalue > LEVEL
    assert np.corrcoef(plain, mirrored)[0, 1] < -0.8
    assert ks_2samp(*last_losses(DIM, 2000)).pvalue > LEVEL


# --- large networks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "width", "richness"), [(1, 1.0, 1.0), (3, 1.0, 1.0), (2, 0.5, 1.5)])
def test_scatter_at_the_start_has_its_closed_form(depth, width, richness):
    # D Var = 4c + 2c^2 (1 + L/nu), c = 1/(nu g0^2); a variance from n networks is known to sqrt(2/n).
    networks, dim = 3000, 10**6
    problem = make(dl.MLP(depth, width, richness), sampling=dl.Population(), steps=1)
    loss = simulate(problem, dim, networks, record="losses", method="reduced").test_loss[:, 0]
    c = 1 / (width * richness**2)
    expected = 4 * c + 2 * c**2 * (1 + depth / width)
    assert abs(dim * loss.var() / expected - 1) < 4 * np.sqrt(2 / networks)


@pytest.mark.parametrize("name", [name for name in REGIMES if name != "multi-pass"])  # which keeps all samples
@pytest.mark.parametrize("dim", [10**4, 10**6, 10**9])
def test_large_networks_are_the_theory(name, dim):
    problem = REGIMES[name]
    if problem.data.dimension_free:
        problem = replace(
            problem,
            network=dl.MLP(2, float(dim)),
            data=replace(COUNTS, eigenvalues=[1.0 / dim, 0.3, 0.1 / dim], multiplicity=[dim, 1, dim]),
            sampling=dl.OnlineSGD(1.5 * dim),
        )
    actual_dim = None if problem.data.dimension_free else dim
    experiment = simulate(problem, actual_dim, 64, workers=1, method="reduced")
    theory = dl.solve(problem)
    for observable in (*LOSSES, *CORRELATIONS):
        values, expected = getattr(experiment, observable), getattr(theory, observable)
        assert np.sqrt((z_scores(values, expected) ** 2).mean()) < 4.0, observable
        scale = np.abs(expected).max()
        assert np.abs(values - expected).max() < 60 * scale / np.sqrt(dim), observable


def test_cost_does_not_depend_on_the_size():
    problem = make(steps=20)
    assert Simulation.read(problem, 10**9, 4, 1).memory == Simulation.read(problem, 10**5, 4, 1).memory
    assert Simulation.read(problem, 10**9, 4, 1).memory < 20e6


# --- seeds, batches, files, refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["lazy", "reduced"])
@pytest.mark.parametrize("name", ["full batch", "online", "multi-pass", "outputs", "residual", "spectrum"])
def test_a_seed_gives_the_same_bits_in_any_company(name, method):
    problem = replace(REGIMES[name], steps=7)
    alone = simulate(problem, 50, [3], workers=1, method=method)
    together = simulate(problem, 50, 6, workers=1, method=method)
    parallel = simulate(problem, 50, [5, 3, 1, 0], workers=3, method=method)
    for observable in (*LOSSES, *CORRELATIONS):
        assert_array_equal(getattr(together, observable)[3], getattr(alone, observable)[0])
        assert_array_equal(getattr(parallel, observable), getattr(together, observable)[[5, 3, 1, 0]])
    assert not np.array_equal(together.test_loss[0], together.test_loss[1])


def test_divergence_of_one_network_leaves_others_alone():
    problem = make(lr=0.9, steps=40)
    alone = [simulate(problem, 12, [seed], method="lazy") for seed in range(12)]
    together = simulate(problem, 12, 12, workers=1, method="lazy")
    assert (together.diverged_at >= 0).any()
    assert_array_equal(together.diverged_at, [each.diverged_at[0] for each in alone])
    for seed, each in enumerate(alone):
        assert_array_equal(together.test_loss[seed], each.test_loss[0])
        assert_array_equal(together.feature_correlation[seed], each.feature_correlation[0])


def test_nothing_to_learn_and_nothing_passed_on():
    still = dl.Isotropic(0.0, [[0.0]])
    problem = make(dl.ResNet(3, 1.0, branch=0.0, centered=True), still, dl.Population())
    experiment = simulate(problem, 10, 2, method="reduced")
    assert_array_equal(experiment.test_loss, np.zeros((2, 4)))


def test_the_result_says_which_way(tmp_path):
    for method in ("explicit", "lazy", "reduced"):
        experiment = simulate(make(), 10, 2, method=method)
        assert experiment.method == method
        assert f"method='{method}'" in repr(experiment)
        experiment.save(tmp_path / "experiment.nc")
        assert Ensemble.load(tmp_path / "experiment.nc").method == method


def test_auto_is_explicit_while_that_is_quick_and_never_asks_how_many():
    problem = make(dl.MLP(3, 1.0), steps=40)

    def chosen(dim, available=10**12, problem=problem):
        return methods.choose(Counts.of(problem, dim), available)

    assert [chosen(dim) for dim in (10, 500, 5000, 10**6)] == ["explicit", "explicit", "reduced", "reduced"]
    assert chosen(300, problem=replace(problem, steps=5000)) == "explicit"  # more steps than directions
    assert chosen(600, available=2e6) == "reduced"  # explicit does not fit
    assert simulate(problem, 10**6, 2, record="losses").method == "reduced"


def test_bad_methods_and_too_little_memory_are_refused(monkeypatch):
    for work in (simulate, Simulation.read):
        with pytest.raises(ValueError, match="method must be 'auto' or 'explicit' or 'lazy' or 'reduced', got 'exact'"):
            work(make(), 10, method="exact")
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=100_000_000))
    with pytest.raises(MemoryError, match=r"the simulation needs about \d+\.\d\d GB, but only 0\.10 GB are available"):
        simulate(make(), 10**6, 2, method="lazy")
    simulate(make(), 10**6, 2, method="reduced")


@pytest.mark.parametrize(
    ("case", "record"),
    checkerboard(
        [
            ("lazy", 1500, dl.FullBatch(1.5)),
            ("lazy", 1500, dl.OnlineSGD(0.5)),
            ("reduced", 10**6, dl.FullBatch(1.5)),
            ("reduced", 1500, dl.MultiPassSGD(1.5, 0.5)),
        ],
        ["all", "losses"],
    ),
)
def test_memory_estimate(case, record):
    method, dim, sampling = case
    problem = make(dl.MLP(3, 1.0), sampling=sampling, steps=40)
    simulate(problem, 10, 1, method=method)
    tracemalloc.start()
    try:
        simulate(problem, dim, 4, workers=1, record=record, method=method)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert_allclose(Simulation.read(problem, dim, 4, 1, record, method).memory, peak, rtol=0.3)


def test_workers_do_not_change_what_threads_draw(monkeypatch):
    asked, losses = Simulation.read(make(), 6000, 2, method="lazy"), []
    for count in (1, 3):
        monkeypatch.setattr(Simulation, "drawers", count)
        with one_blas_thread():
            losses.append(train_revealed(asked, asked.seeds).test_loss)
    assert_array_equal(*losses)
