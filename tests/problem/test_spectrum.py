"""Data with a spectrum: what is refused, what is kept, and limits that must agree."""

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import deeplinear as dl
from agreement import assert_agrees_with_the_reference
from deeplinear._experiment.simulation import Simulation
from spectra import GRAM, REGIMES, make
from strategies import networks, on_random, optimizers, samplings, spectra

# --- what is refused ------------------------------------------------------------------------------------------

REFUSED = [
    (lambda: dl.Spectrum([], []), r"eigenvalues must be a sequence of one or more numbers, got \[\]"),
    (lambda: dl.Spectrum(1.0, [1.0]), r"eigenvalues must be a sequence of one or more numbers, got 1.0"),
    (lambda: dl.Spectrum("ab", [1.0]), r"eigenvalues must be a sequence of numbers, got 'ab'"),
    (lambda: dl.Spectrum([1.0, -0.1], [1.0, 1.0]), r"eigenvalues\[1\] must be zero or above, got -0.1"),
    (lambda: dl.Spectrum([1.0, math.inf], [1.0, 1.0]), r"eigenvalues\[1\] must be a finite number, got inf"),
    (lambda: dl.Spectrum([1.0], [1.0, 2.0]), r"target_power must have one entry per eigenvalue \(1\), got 2"),
    (lambda: dl.Spectrum([1.0], [-1.0]), r"target_power\[0\] must be zero or above, got -1.0"),
    (lambda: dl.Spectrum([1.0], [math.nan]), r"target_power\[0\] must be finite, got nan"),
    (lambda: dl.Spectrum([1.0, 1.0], [[1.0], [1.0]]), r"target_power must have shape .*, got \(2, 1\)"),
    (lambda: dl.Spectrum([1.0], [[[1.0, 0.0]]]), r"target_power must have shape .*, got \(1, 1, 2\)"),
    (lambda: dl.Spectrum([1.0, 1.0], [1.0, GRAM]), r"target_power must be one number or one square matrix per mode"),
    (lambda: dl.Spectrum([1.0], [[[1, 2], [0, 1]]]), r"target_power\[0\] must be a symmetric matrix, got \[\[1.0, 2"),
    (lambda: dl.Spectrum([1.0], [[[1, 2], [2, 1]]]), r"target_power\[0\] must be a positive semidefinite matrix"),
    (lambda: dl.Spectrum([1.0], [1.0], [1.0, 2.0]), r"multiplicity must have one entry per eigenvalue \(1\), got 2"),
    (lambda: dl.Spectrum([1.0], [1.0], [0.0]), r"multiplicity\[0\] must be above zero, got 0.0"),
    (
        lambda: dl.Spectrum([1.0, 2.0], [1.0, 1.0], [0.5, 0.4], proportional=True),
        r"multiplicity must be fractions that sum to 1 if proportional, got 0.9",
    ),
    (lambda: dl.Spectrum([1.0], [1.0], proportional=1), r"proportional must be True or False, got 1"),
    (lambda: dl.Spectrum([1.0], [1.0], noise=-1), r"noise must be a finite number, zero or above, got -1"),
    (lambda: dl.Spectrum.power_law(1.0, 1.0), r"capacity must be above 1 and at most 100, got 1.0"),
    (lambda: dl.Spectrum.power_law(1.5, 0.0), r"source must be a positive finite number, got 0.0"),
    (lambda: dl.Spectrum.power_law(1.5, 1.0, modes=0), r"modes must be a whole number, at least 1, got 0"),
    (lambda: dl.Spectrum([1.0], [1.0]).compress(0), r"tolerance must be a positive finite number, got 0"),
]


@pytest.mark.parametrize(("attempt", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_bad_values_are_named(attempt, message):
    with pytest.raises(ValueError, match=message):
        attempt()


FRACTIONS = dl.Spectrum([1.0, 0.1], [1.0, 1.0], [0.995, 0.005], proportional=True)


@pytest.mark.parametrize(
    ("data", "dim", "message"),
    [
        (dl.Isotropic(), None, "dim must be given where sizes are ratios to the input dimension, got None"),
        (FRACTIONS, None, "dim must be given where sizes are ratios to the input dimension, got None"),
        (FRACTIONS, 50, "dim must give every mode a direction: 200 is enough, got 50"),
        (
            dl.Spectrum([1.0, 0.1], [1.0, 1.0]),
            3,
            "dim must be 2, the number of directions of the spectrum, or left out",
        ),
        (dl.Spectrum([1.0], [1.0], [1.5]), None, "multiplicity must be whole in a simulation, got 1.5 for mode 0"),
        (
            dl.Spectrum([1.0], [GRAM]),
            None,
            r"target_power\[0\] must have a rank of at most 1, .* in a simulation, got 2",
        ),
        (dl.Spectrum.power_law(1.5, 1.0), None, "dim must be given for an infinite power law: how many of its modes"),
        (dl.Spectrum.power_law(1.5, 1.0), 0, "dim must be a whole number, at least 1, got 0"),
    ],
    ids=str,
)
def test_dimensions_that_do_not_fit_are_refused(data, dim, message):
    for call in (dl.simulate, Simulation.read):
        with pytest.raises(ValueError, match=message):
            call(make(data), dim)


# --- plain data -----------------------------------------------------------------------------------------------


def test_spectra_are_values():
    one = dl.Spectrum(np.array([1.0, 0.5]), np.array([GRAM, GRAM]), noise=0.1)
    other = dl.Spectrum([1, 0.5], [GRAM, GRAM], noise=0.1)
    assert one == other
    assert hash(one) == hash(other)
    assert one != dl.Spectrum([1, 0.5], [GRAM, GRAM])
    assert isinstance(one.target_power[0][0], tuple)
    with pytest.raises(AttributeError):
        one.noise = 1.0
    assert one.modes is one.modes
    for copied in (copy.copy(one), pickle.loads(pickle.dumps(one))):
        assert copied == one
        assert "modes" not in vars(copied)


def test_long_spectra_are_printed_in_brief():
    text = repr(dl.Spectrum.power_law(1.5, 0.5, modes=1000, noise=0.1))
    assert text == "Spectrum(1000 modes from 3.162e-05 to 1, dimension-free, noise=0.1)"


def test_a_power_law_is_known_by_its_law():
    law = dl.Spectrum.power_law(1.5, 0.5, noise=0.1)
    assert isinstance(law, dl.Spectrum)
    assert law == dl.Spectrum.power_law(1.5, 0.5, noise=0.1)
    assert law != dl.Spectrum.power_law(1.5, 0.6, noise=0.1)
    problem = make(law)
    assert 'type = "PowerLaw"' in problem.to_toml()
    assert "eigenvalues" not in problem.to_toml()
    assert dl.Problem.from_toml(problem.to_toml()) == problem
    assert_allclose(law.finite(3).eigenvalues, dl.Spectrum.power_law(1.5, 0.5, modes=3).eigenvalues)
    explicit = dl.Spectrum.power_law(1.5, 0.5, modes=500)
    assert_allclose(np.array(explicit.eigenvalues) * explicit.target_power, np.arange(1, 501) ** -1.75)


@pytest.mark.parametrize(
    "data",
    [
        dl.Spectrum([1.0, 0.5], [1.0, 0.0], noise=0.2),
        dl.Spectrum([1.0, 0.0], [GRAM, GRAM], [0.25, 0.75], proportional=True),
        dl.Spectrum.power_law(1.3, 0.7, modes=3000),
    ],
)
def test_problems_with_spectra_are_kept_in_files(data, tmp_path):
    problem = make(data, steps=3)
    assert dl.Problem.from_toml(problem.to_toml()) == problem
    dl.solve(problem).save(tmp_path / "theory.nc")
    assert dl.Solution.load(tmp_path / "theory.nc").problem == problem


# --- the equations --------------------------------------------------------------------------------------------


@on_random(st.data(), few=25, many=300)
def test_dense_solver_agrees_with_the_reference(draw):
    steps = draw.draw(st.integers(1, 7))
    problem = dl.Problem(
        draw.draw(networks()), draw.draw(spectra()), draw.draw(samplings()), draw.draw(optimizers(steps)), steps
    )
    assert_agrees_with_the_reference(problem)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("gram", [None, GRAM])
def test_isotropic_data_are_the_case_of_one_mode_in_both_limits(regime, gram):
    """Isotropic at dimension D is dimension-free with lam = 1/D, D directions, g0 / sqrt(D), D eta and counts."""
    dim, power = 40, [1.0] if gram is None else [gram]
    ratios = {"width": 0.8, "samples": 1.5, "batch": 0.5, "lr": 0.05}
    counts = {name: dim * value for name, value in ratios.items()} | {"richness": 1 / math.sqrt(dim)}
    expected = dl.solve(make(dl.Isotropic(0.3, gram), regime, **ratios))
    proportional = dl.solve(make(dl.Spectrum([1.0], power, proportional=True, noise=0.3), regime, **ratios))
    shared = dl.solve(make(dl.Spectrum([1 / dim], power, [dim], noise=0.3), regime, **counts))
    listed = dl.solve(make(dl.Spectrum([1 / dim] * dim, power * dim, noise=0.3), regime, **counts))
    for solution, unit in ((proportional, 1), (shared, dim), (listed, dim)):
        for name in ("test_loss", "train_loss", "error_correlation", "gradient_correlation"):
            assert_allclose(getattr(solution, name), getattr(expected, name), rtol=1e-11, atol=1e-13)
        assert_allclose(unit * solution.feature_correlation, expected.feature_correlation, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("regime", REGIMES)
def test_networks_of_isotropic_data_are_the_same_in_both_limits(regime):
    """To rounding, network by network: the two definitions of a finite network differ in units only."""
    dim = 20
    ratios = {"width": 0.8, "samples": 1.5, "batch": 0.5, "lr": 0.05}
    counts = {name: dim * value for name, value in ratios.items()} | {"richness": 1 / math.sqrt(dim)}
    expected = dl.simulate(make(dl.Isotropic(0.3), regime, **ratios), dim, 2)
    one_mode = dl.simulate(make(dl.Spectrum([1.0], [1.0], proportional=True, noise=0.3), regime, **ratios), dim, 2)
    counted = dl.simulate(make(dl.Spectrum([1 / dim], [1.0], [dim], noise=0.3), regime, **counts), None, 2)
    assert counted.dim == dim
    for experiment, unit in ((one_mode, 1), (counted, dim)):
        for name in ("test_loss", "train_loss", "error_correlation", "gradient_correlation", "residual_correlation"):
            assert_allclose(getattr(experiment, name), getattr(expected, name), rtol=1e-9, atol=1e-12)
        assert_allclose(unit * experiment.feature_correlation, expected.feature_correlation, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("proportional", [False, True])
def test_repeated_eigenvalues_are_one_mode(regime, proportional):
    weight = [0.25, 0.25, 0.5] if proportional else [1, 3, 1]
    joined = [0.5, 0.5] if proportional else [4, 1]
    power = [0.5, 1.5, 0.3]
    mean = np.average(power[:2], weights=weight[:2])
    sizes = {"width": 0.8, "samples": 1.5, "batch": 0.5, "lr": 0.02}
    apart = dl.solve(make(dl.Spectrum([1.0, 1.0, 0.2], power, weight, proportional, 0.1), regime, **sizes))
    together = dl.solve(make(dl.Spectrum([1.0, 0.2], [mean, 0.3], joined, proportional, 0.1), regime, **sizes))
    assert_allclose(apart.test_loss, together.test_loss, rtol=1e-12)
    assert_allclose(apart.feature_correlation, together.feature_correlation, rtol=1e-12)


@pytest.mark.parametrize("regime", REGIMES)
def test_directions_without_variance_do_not_matter(regime):
    with_zeros = dl.Spectrum([0.5, 0.0, 0.2], [1.0, 7.0, 2.0], [3, 5, 1], noise=0.1)
    without = dl.Spectrum([0.5, 0.2], [1.0, 2.0], [3, 1], noise=0.1)
    assert_allclose(dl.solve(make(with_zeros, regime)).test_loss, dl.solve(make(without, regime)).test_loss, rtol=1e-13)
    nothing = dl.solve(make(dl.Spectrum([0.0], [1.0], noise=0.5), regime))
    assert_allclose(nothing.test_loss, 0.25)
    experiment = dl.simulate(make(with_zeros, regime), None, 2)
    assert experiment.dim == 9
    assert np.isfinite(experiment.test_loss).all()


def test_without_target_there_is_nothing_but_the_initial_function_and_noise():
    data = dl.Spectrum([1.0, 0.3], [0.0, 0.0], [4, 10], noise=0.2)
    solution = dl.solve(make(data, "online"))
    assert not solution.decomposition.bias.any()
    assert solution.test_loss[0] == pytest.approx(7.0 / 48 + 0.04)
    centered = dl.solve(make(data, "population", centered=True))
    assert_allclose(centered.test_loss, 0.04, rtol=1e-13)
