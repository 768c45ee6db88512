"""Many modes stand in for more: compression, and power laws with infinitely many."""

import dataclasses
import math
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import zeta

import deeplinear as dl
from deeplinear._equations.coefficients import structure
from deeplinear._problem import power_law as _power_law
from deeplinear._problem.data import Modes
from deeplinear._problem.power_law import infinite_power_law
from deeplinear._problem.quadrature import compress
from deeplinear._problem.spectrum import PowerLaw
from deeplinear._solvers import dense
from deeplinear._solvers.condensed import solver as condensed
from deeplinear._solvers.panels import solver as panels
from deeplinear._solvers.reach import check_reach
from deeplinear._theory.curves import curves
from factories import checkerboard
from spectra import REGIMES, make


@pytest.mark.parametrize("regime", REGIMES)
def test_compression_of_many_modes_keeps_the_losses(regime):
    many = dl.Spectrum.power_law(1.3, 0.6, modes=3000, noise=0.1)
    few = many.compress()
    assert len(few.eigenvalues) < 60
    expected, solution = (dl.solve(make(data, regime, width=128.0, samples=256.0, steps=30)) for data in (many, few))
    assert expected.test_loss[-1] < 0.3 * expected.test_loss[0]
    assert_allclose(solution.test_loss, expected.test_loss, rtol=1e-8)
    assert_allclose(solution.train_loss, expected.train_loss, rtol=1e-8)
    assert_allclose(solution.feature_correlation, expected.feature_correlation, rtol=1e-7, atol=1e-12)


def test_compression_of_a_hundred_thousand_modes():
    many = dl.Spectrum.power_law(1.5, 0.5, modes=100_000, noise=0.1)
    few = many.compress()
    assert len(few.eigenvalues) < 60
    expected, solution = (dl.solve(make(data, width=128.0, samples=256.0, steps=6)) for data in (many, few))
    assert_allclose(solution.test_loss, expected.test_loss, rtol=1e-8)
    # Long after, in the lazy limit, where each mode follows (1 - c lam)^t.
    for rate in (0.2, 1.0, 1.9):
        for power in (1, 10, 100, 1000, 10_000):
            full, short = (
                (m.weight * m.eigenvalues * m.target[:, 0, 0] * (1 - rate * m.eigenvalues) ** power).sum()
                for m in (many.modes, few.modes)
            )
            assert short == pytest.approx(full, rel=1e-6), (rate, power)


def rough(kind, count=2000):
    rng = np.random.default_rng(3)
    k = np.arange(1.0, count + 1)
    if kind == "random targets":
        return dl.Spectrum(k**-1.4, rng.standard_normal(count) ** 2)
    if kind == "sparse targets":
        return dl.Spectrum(k**-1.4, (rng.random(count) < 0.01) * 1.0)
    if kind == "multiplicities and zeros":
        return dl.Spectrum((k**-1.4) * (rng.random(count) < 0.9), k**-0.2, rng.integers(1, 9, count))
    if kind == "two outputs":
        weights = rng.standard_normal((count, 2)) * k[:, None] ** -0.2
        return dl.Spectrum(k**-1.4, weights[:, :, None] * weights[:, None, :])
    if kind == "Marchenko-Pastur":
        singular = np.linalg.svd(rng.standard_normal((600, 400)), compute_uv=False)
        return dl.Spectrum(singular**2 / 600, np.ones(400), proportional=True)
    return dl.Spectrum(np.exp(-k / 5), np.ones(count))


@pytest.mark.parametrize(
    "kind",
    [
        "random targets",
        "sparse targets",
        "multiplicities and zeros",
        "two outputs",
        "Marchenko-Pastur",
        "exponential decay",
    ],
)
def test_compression_of_rough_spectra(kind):
    many = rough(kind)
    few = many.compress()
    assert len(few.eigenvalues) <= 150
    sizes = {"width": 128.0, "samples": 256.0, "batch": 64.0, "lr": 0.1}
    if many.proportional:
        sizes = {"width": 1.0, "samples": 2.0, "batch": 0.5, "lr": 0.1}
        assert sum(few.multiplicity) == pytest.approx(1, abs=1e-12)
    expected, solution = (dl.solve(make(data, "multi-pass", steps=25, **sizes)) for data in (many, few))
    assert_allclose(solution.test_loss, expected.test_loss, rtol=1e-6)
    assert_allclose(solution.error_correlation, expected.error_correlation, rtol=1e-5, atol=1e-6)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(5, 400), st.floats(0.1, 3.0), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_compressed_spectra_are_spectra_with_the_same_sums(count, decay, outputs, seed):
    rng = np.random.default_rng(seed)
    lam = np.exp(-decay * rng.random(count) * 8)
    roots = rng.standard_normal((count, outputs, outputs)) * (rng.random((count, 1, 1)) < 0.7)
    modes = Modes(lam, roots @ roots.mT, rng.random(count) + 0.1)
    fewer = compress(modes, 1e-6)
    assert (fewer.weight > 0).all()
    assert (fewer.eigenvalues > 0).all()
    assert np.linalg.eigvalsh(fewer.target).min() >= -1e-9 * np.abs(fewer.target).max()
    for power in (0, 1):
        signal, signal_of_few = (m.weight * m.eigenvalues ** (power + 1) for m in (modes, fewer))
        assert signal_of_few.sum() == pytest.approx(signal.sum(), rel=1e-6)
        target = np.einsum("k,kab->ab", signal, modes.target)
        assert_allclose(np.einsum("k,kab->ab", signal_of_few, fewer.target), target, atol=1e-6 * np.trace(target))


def test_a_short_spectrum_is_left_alone():
    short = dl.Spectrum([1.0, 0.5, 0.1], [1.0, 2.0, 3.0], noise=0.1)
    assert short.compress() is short
    assert dl.Spectrum([0.0, 0.0], [1.0, 1.0]).compress().eigenvalues == (0.0, 0.0)


@pytest.mark.parametrize(("capacity", "source"), [(1.01, 0.5), (1.5, 0.2), (2.0, 2.0), (6.0, 0.05), (100.0, 0.001)])
def test_infinite_power_laws_have_the_sums_of_zeta_functions(capacity, source):
    modes = dl.Spectrum.power_law(capacity, source).modes
    signal = modes.weight * modes.eigenvalues
    assert len(signal) < 110
    for order in (0, 1, 2):
        assert (signal * modes.eigenvalues**order).sum() == pytest.approx(zeta(capacity * (order + 1)), rel=1e-7)
        target = (signal * modes.target[:, 0, 0] * modes.eigenvalues**order).sum()
        assert target == pytest.approx(zeta(capacity * (source + order) + 1), rel=1e-7)


def test_an_infinite_power_law_is_the_limit_of_many_modes():
    """What k modes leave out falls as k^(-capacity source); at finite width and samples as the trace they leave out."""
    for options, slope in (({"width": "infinite", "regime": "population"}, 1.2), ({}, 0.5)):
        infinite = dl.solve(make(dl.Spectrum.power_law(1.5, 0.8), **options)).test_loss[-1]
        counts = [dl.Spectrum.power_law(1.5, 0.8, modes=count) for count in (100, 1000, 10_000)]
        gaps = np.array([infinite - dl.solve(make(data, **options)).test_loss[-1] for data in counts])
        assert_allclose(np.log10(gaps[:-1] / gaps[1:]), slope, atol=0.1)


def all_modes(capacity, source, monkeypatch):
    """Modes of an infinite power law before they are compressed."""
    with monkeypatch.context() as patch:
        patch.setattr(_power_law, "compress", lambda modes, *_: modes)
        return infinite_power_law.__wrapped__(capacity, source)


@pytest.mark.parametrize(("capacity", "source"), [(1.5, 0.5), (1.1, 0.1), (2.0, 2.0), (4.0, 0.3), (10.0, 1.0)])
def test_the_error_of_an_infinite_power_law_is_as_stated_up_to_its_reach(capacity, source, monkeypatch):
    """At times between those that compression looks at; beyond the reach, far more is missing."""
    law = dl.Spectrum.power_law(capacity, source).modes
    assert law.reach == 1e12
    times = 10 ** np.random.default_rng(0).uniform(-2, 12, 1000)

    def learned(modes, times):
        return np.exp(-np.outer(times, modes.eigenvalues)) @ (modes.weight * modes.eigenvalues * modes.target[:, 0, 0])

    modes = all_modes(capacity, source, monkeypatch)
    exact, found = learned(modes, times), learned(law, times)
    scale = np.maximum(exact, 1e-3 * learned(modes, [0.0]))
    assert (np.abs(found - exact) <= _power_law.TOLERANCE * scale).all()
    assert learned(law, [1e20]) < 1e-6 * 1e20**-source


@pytest.mark.parametrize("regime", REGIMES)
def test_an_infinite_power_law_is_compressed_enough_for_the_losses(regime, monkeypatch):
    """Compressed a thousand times finer, the losses differ by less than the tolerance."""
    law = dl.Spectrum.power_law(1.5, 0.5)
    finer = compress(all_modes(1.5, 0.5, monkeypatch), 1e-3 * _power_law.TOLERANCE)
    fine = dl.Spectrum(finer.eigenvalues, finer.target[:, 0, 0], finer.weight)
    found, expected = dl.solve([make(data, regime, steps=100, lr=0.05) for data in (law, fine)])
    assert_allclose(found.test_loss, expected.test_loss, rtol=_power_law.TOLERANCE)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("capacity", "source"), [(3.0, 0.3), (1.2, 0.5), (1.1, 2.0)])
def test_short_runs_have_fewer_modes_and_the_same_losses(capacity, source, momentum, monkeypatch):
    law = dl.Spectrum.power_law(capacity, source)
    finer = compress(all_modes(capacity, source, monkeypatch), 1e-4 * _power_law.TOLERANCE)
    fine = dl.Spectrum(finer.eigenvalues, finer.target[:, 0, 0], finer.weight)
    rule = dl.GradientDescent(0.05, momentum)
    few, many = (dl.Problem(dl.MLP(3, 100.0), data, dl.OnlineSGD(50.0), rule, 120) for data in (law, fine))
    long = law.modes_within(math.inf, momentum)
    assert len(few.modes.weight) < len(long.weight) - 0.4 * len(law.modes.weight)
    assert_allclose(dl.solve(few).test_loss, dl.solve(many).test_loss, rtol=_power_law.TOLERANCE)


@pytest.mark.parametrize("sampling", [dl.Population(), dl.OnlineSGD(1000.0), dl.FullBatch(1000.0)])
@pytest.mark.parametrize(("capacity", "source"), [(1.02, 1.0), (1.02, 3.0), (1.1, 0.3), (4.0, 0.1)])
def test_modes_below_the_reach_of_short_runs_are_as_good_as_never_learned(capacity, source, sampling, monkeypatch):
    """At capacities near 1 most of the variance is in these modes, and at a small source most of the target."""
    law = dl.Spectrum.power_law(capacity, source)
    finer = compress(all_modes(capacity, source, monkeypatch), 1e-4 * _power_law.TOLERANCE)
    fine = dl.Spectrum(finer.eigenvalues, finer.target[:, 0, 0], finer.weight)
    network = dl.MLP(1, "infinite", richness=1e-3, parameterization="ntk", centered=True)
    few, many = (
        dl.solve(dl.Problem(network, data, sampling, dl.GradientDescent(0.9), 100)).test_loss for data in (law, fine)
    )
    assert_allclose(few, many, rtol=0.5 * _power_law.TOLERANCE, atol=0.5e-3 * _power_law.TOLERANCE * many[0])


@pytest.mark.parametrize(
    ("capacity", "source", "momentum", "part", "steps"),
    [
        (1.5, 0.3, 0.97, 0.9, 100),
        (1.5, 1.0, 0.9, 0.99, 100),
        (1.1, 1.0, 0.9, 0.1, 100),
        (1.02, 0.3, 0.97, 0.9, 300),
        (1.3, 0.5, 0.99, 0.7, 250),
        (2.0, 1.0, 0.45, 0.95, 40),
    ],
)
def test_with_momentum_every_mode_swings_at_its_own_pace(capacity, source, momentum, part, steps, monkeypatch):
    """A lazy network against the recursion of each mode by itself, at a part of the largest stable rate."""
    law, lr = dl.Spectrum.power_law(capacity, source), part * (1 + momentum)
    network = dl.MLP(1, "infinite", parameterization="ntk", centered=True)  # its kernel is 2
    problem = dl.Problem(network, law, dl.Population(), dl.GradientDescent(lr, momentum), steps)
    modes = all_modes(capacity, source, monkeypatch)
    signal = modes.weight * modes.eigenvalues * modes.target[:, 0, 0]
    left, moved, expected = np.ones(len(signal)), np.zeros(len(signal)), []
    for _ in range(steps):
        expected.append(signal @ left**2)
        moved = momentum * moved + 2 * lr * modes.eigenvalues * left
        left = left - moved
    losses = dl.solve(problem, method="dense").test_loss
    assert_allclose(losses, expected, rtol=_power_law.TOLERANCE, atol=1e-3 * _power_law.TOLERANCE * expected[0])


@pytest.mark.parametrize(
    ("rule", "momentum"),
    [
        (dl.GradientDescent(0.1), 0.0),
        (dl.GradientDescent(0.1, momentum=0.3), 0.5),
        (dl.GradientDescent(0.1, momentum=tuple(np.linspace(0.9, 0.0, 20))), 0.9),
        (dl.GradientDescent(0.1, momentum=0.9999), 0.999),
        (dl.ScheduleFree(0.1, beta=0.97), 0.98),
        (dl.Muon(0.1, momentum=0.0, other=dl.GradientDescent(0.1, momentum=0.8)), 0.8),
    ],
)
def test_modes_are_those_of_the_largest_momentum(rule, momentum):
    law = dl.Spectrum.power_law(1.5, 1.0)
    problem = dl.Problem(dl.MLP(2, 10.0), law, dl.OnlineSGD(5.0), rule, 20)
    assert problem.modes is infinite_power_law(1.5, 1.0, problem.modes.reach, momentum)


def test_a_spectrum_is_compressed_for_momentum_too():
    many = dl.Spectrum.power_law(1.1, 1.0, modes=2000)
    network = dl.MLP(1, "infinite", parameterization="ntk", centered=True)

    def losses(data):
        rule = dl.GradientDescent(1.5, momentum=0.9)
        return dl.solve(dl.Problem(network, data, dl.Population(), rule, 60)).test_loss

    expected, off = losses(many), []
    for momentum in (0.0, 0.9):
        few = many.compress(1e-6, momentum)
        assert len(few.eigenvalues) < 120
        off.append(np.abs(losses(few) / expected - 1).max())
    assert off[0] > 1e-3
    assert off[1] < 1e-6


@pytest.mark.parametrize(
    ("rule", "steps", "reach"),
    [
        (dl.GradientDescent(0.1), 3, 1e4),
        (dl.GradientDescent(0.1), 200, 1e5),
        (dl.GradientDescent(0.1, momentum=0.9), 200, 1e6),
        (dl.GradientDescent(0.1), 10**9, 1e11),
        (dl.GradientDescent(0.1, momentum=lambda step: 0.5), 200, 1e12),
        (dl.Muon(0.1), 200, 1e12),
    ],
)
def test_modes_reach_as_far_as_training_may_get(rule, steps, reach):
    problem = dl.Problem(dl.MLP(2, 10.0), dl.Spectrum.power_law(1.5, 1.0), dl.OnlineSGD(5.0), rule, steps)
    assert problem.modes.reach == pytest.approx(reach)


@pytest.mark.parametrize(
    ("method", "phases"),
    [("dense", ()), ("panels", ()), ("condensed", ()), ("dense", (dl.Phase(100), dl.Phase(3, target_overlap=0.5)))],
)
def test_training_beyond_the_reach_of_a_power_law_is_refused(method, phases, monkeypatch):
    """A lazy network of depth 1 has kernel 2, so 100 steps of rate 0.1 take it to time 19.8.

    Real power laws reach much further, so this one is cut off after 20 modes.
    """
    law = dl.Spectrum.power_law(1.5, 0.5)
    network = dl.MLP(depth=1, width="infinite", parameterization="ntk", centered=True, richness=1e-3)
    steps = 103 if phases else 100
    wide, narrow = (dataclasses.replace(law.finite(20), reach=reach) for reach in (19.95, 19.65))

    def problem(modes):  # which keeps its modes
        monkeypatch.setattr(PowerLaw, "modes_within", lambda *_: modes)
        structure.cache_clear()  # equal problems have equal modes elsewhere
        return dl.Problem(network, law, dl.Population(), dl.GradientDescent(0.1), steps, phases)

    for modes in (law.modes, wide):
        assert not dl.solve(problem(modes), method=method).status.diverged
    with pytest.raises(ArithmeticError, match=r"training reached eigenvalues below 0\.05"):
        dl.solve(problem(narrow), method=method)
    with pytest.raises(ArithmeticError, match="lower steps or lr"):
        curves([problem(narrow)])


@pytest.mark.parametrize(
    ("loss", "left", "end", "is_beyond"),
    [
        ((1.0, 0.9, 0.8), (1.0, 1.0, 0.5), 3, True),
        ((1.0, 0.9, 0.8), (1.0, 1.0, 0.5), 2, False),  # what follows a divergence
        ((1.0, 0.9, -9e16), (1.0, 1.0, 0.5), 3, False),  # rounding errors that have grown
        ((1.0, 9.0, 0.8), (1.0, 0.5, 1.0), 3, False),
        ((1.0, 0.9, np.nan), (1.0, 1.0, np.nan), 3, False),
    ],
)
def test_steps_at_which_the_loss_has_grown_or_diverged_do_not_count_as_trained(loss, left, end, is_beyond):
    problem = dl.Problem(dl.MLP(2, 50.0), dl.Spectrum.power_law(1.5, 0.5), dl.Population(), dl.GradientDescent(0.1), 3)
    solved = SimpleNamespace(
        c=SimpleNamespace(structure=SimpleNamespace(outputs=1)),
        data=SimpleNamespace(H1=np.broadcast_to(np.array(left)[:, None], (1, len(problem.modes.weight), 3, 1))),
        loss_curve=lambda steps: np.array([loss])[:, steps],
    )
    with pytest.raises(ArithmeticError, match="beyond the modes") if is_beyond else nullcontext():
        check_reach([problem], solved, [end])


@pytest.mark.parametrize(("method", "module"), [("dense", dense), ("panels", panels), ("condensed", condensed)])
def test_how_far_training_got_is_looked_up_before_a_divergence(method, module, monkeypatch):
    looked = []

    def check(problems, solved, ends):
        (end,) = ends
        looked.append(end)
        assert not solved.diverges(slice(0, end)).any()
        assert solved.diverges(slice(end, end + 1)).all()

    monkeypatch.setattr(module, "check_reach", check)
    law, network = dl.Spectrum.power_law(1.5, 0.5), dl.MLP(depth=2, width=50.0)
    assert dl.solve(
        dl.Problem(network, law, dl.Population(), dl.GradientDescent(1.5), steps=300), method=method
    ).status.diverged
    assert len(looked) == 1


def test_training_that_diverges_is_not_taken_for_training_beyond_reach():
    law = dl.Spectrum.power_law(1.5, 0.5)
    problem = dl.Problem(dl.MLP(depth=2, width=50.0), law, dl.Population(), dl.GradientDescent(5.0), steps=100)
    assert dl.solve(problem).status.diverged


@pytest.mark.parametrize(("depth", "source"), checkerboard([1, 3], [0.5, 1.5]))
def test_a_lazy_infinitely_wide_network_learns_each_mode_by_itself(depth, source):
    """Its loss is sum_k lam_k w_k^2 (1 - eta (L + 1) lam_k)^(2 t): here over all k to infinity, within 1e-7."""
    eta, steps, capacity = 0.25, 300, 1.5
    law = dl.Spectrum.power_law(capacity, source, noise=0.1)
    network = dl.MLP(depth, "infinite", parameterization="ntk", centered=True)
    rule = dl.GradientDescent(eta)
    shown = np.array([0, 1, 10, 100, 299])
    solution = dl.solve(dl.Problem(network, law, dl.Population(), rule, steps)).test_loss[shown]
    assert_allclose(solution - 0.01, infinite_sum(capacity, source, eta * (depth + 1), 2 * shown), rtol=1e-7)


def infinite_sum(capacity, source, rate, powers):
    """sum_k k^(-capacity source - 1) (1 - rate k^-capacity)^power: 10^5 terms, then a binomial series of zeta tails."""
    k = np.arange(1.0, 100_001.0)
    total = np.array([(k ** (-capacity * source - 1) * (1 - rate * k**-capacity) ** power).sum() for power in powers])
    for index, power in enumerate(powers):
        coefficient = 1.0
        for order in range(6):
            total[index] += coefficient * zeta(capacity * (source + order) + 1, 100_001)
            coefficient *= -rate * (power - order) / (order + 1)
    return total
