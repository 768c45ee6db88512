"""Networks trained on the rows of a real data set."""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ks_2samp

import deeplinear as dl
from deeplinear._core.threads import one_blas_thread
from factories import some_slow
from real_data import digits, losses
from spectra import REGIMES, make

X, Y = digits(standardised=True)


@cache
def spectrum():
    return dl.Spectrum.from_data(X, Y)


LEVEL = 0.001
"""Of all tests of distributions together."""
SIZES = {"width": 24.0, "samples": 100.0, "batch": 20.0, "lr": 0.01, "steps": 25}


@pytest.mark.parametrize("regime", some_slow(REGIMES, "full batch"))  # multiple passes draw samples too
def test_losses_are_those_of_a_trainer_on_the_original_columns(regime):
    """Networks of independent draws, in a basis and a code of their own; logarithms, since inputs have heavy tails."""
    problem = make(spectrum(), regime, **SIZES)
    ours = np.log(dl.simulate(problem, seeds=150, record="losses", data=(X, Y)).test_loss)
    with one_blas_thread():
        theirs = np.log(losses(problem, X, Y, 100))
    for step in (0, 4, 24):
        assert ks_2samp(ours[:, step], theirs[:, step]).pvalue > LEVEL / (3 * len(REGIMES))
    error = np.sqrt(ours.var(axis=0) / len(ours) + theirs.var(axis=0) / len(theirs))
    assert np.abs((ours.mean(axis=0) - theirs.mean(axis=0)) / error).max() < 4


def test_the_test_loss_is_the_mean_over_all_rows():
    problem = make(spectrum(), "online", **SIZES | {"steps": 1})
    both = np.column_stack([Y, np.roll(Y, 1)])
    for y, data in ((Y, spectrum()), (both, dl.Spectrum.from_data(X, both))):
        problem = make(data, "online", **SIZES | {"steps": 1}, centered=True)
        centred = y - y.mean(axis=0)
        expected = np.sum(centred**2) / len(X)  # the network says nothing yet
        assert_allclose(dl.simulate(problem, seeds=2, data=(X, y)).test_loss[:, 0], expected, rtol=1e-10)


def test_with_all_data_rows_and_gaussian_samples_are_the_same():
    problem = make(spectrum(), "population", **SIZES)
    rows, gaussian = dl.simulate(problem, seeds=3, data=(X, Y)), dl.simulate(problem, seeds=3)
    assert (rows.inputs, gaussian.inputs) == ("rows", "gaussian")
    assert "inputs='gaussian'" in repr(gaussian)
    assert_allclose(rows.residual_correlation[:, 0, 0], rows.train_loss[:, 0])
    centered = make(spectrum(), "population", **SIZES | {"steps": 1}, centered=True)
    assert_allclose(dl.simulate(centered, data=(X, Y)).test_loss, dl.simulate(centered).test_loss, rtol=1e-10)


def test_residuals_between_outputs_with_all_data():
    y = np.column_stack([Y, X[:, 20] ** 2])
    data = dl.Spectrum.from_data(X, y)
    problem = make(data, "population", **SIZES | {"steps": 1}, centered=True)
    centred = y - y.mean(axis=0)
    found = dl.simulate(problem, seeds=1, data=(X, y)).residual_correlation[0]
    assert_allclose(found, centred.T @ centred / len(y), rtol=1e-8)


def test_comparison_says_what_it_compared():
    """Heavy tails: theory of Gaussian inputs is too optimistic for rows, and right for its own."""
    problem = make(spectrum(), "full batch", width=128.0, samples=256.0, lr=0.01, steps=60)
    theory = dl.solve(problem)
    rows, gaussian = (
        dl.compare(theory, dl.simulate(problem, seeds=24, record="losses", data=data)) for data in ((X, Y), None)
    )
    assert (rows.inputs, gaussian.inputs) == ("rows", "gaussian")
    assert "trained on rows of the data set, while theory assumes Gaussian inputs" in rows.explanation
    assert "inputs: rows" in str(rows)
    assert "rows" not in gaussian.explanation
    assert rows["test_loss"].relative_error[-1] > 3 * gaussian["test_loss"].relative_error[-1]


def test_seeds_and_files(tmp_path):
    problem = make(spectrum(), "multi-pass", **SIZES)
    alone = dl.simulate(problem, seeds=[3], data=(X, Y), workers=1)
    together = dl.simulate(problem, seeds=4, data=(X, Y), workers=2)
    assert_array_equal(alone.test_loss[0], together.test_loss[3])
    together.save(tmp_path / "rows.nc")
    assert dl.Ensemble.load(tmp_path / "rows.nc").inputs == "rows"
    assert "inputs='rows'" in repr(together)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": X}, r"data must be a pair \(x, y\) of inputs and targets, got ndarray"),
        ({"data": (X, Y[:-1])}, r"y must have as many rows as x \(1797\), got 1796"),
        ({"data": (X, -2 * Y)}, "data must be the rows that the problem was made from"),
        ({"data": (X[:500], Y[:500])}, "data must be the rows that the problem was made from"),
        ({"method": "lazy"}, "method must be 'explicit' where rows of data are given, got 'lazy'"),
        ({"problem": make(dl.Isotropic(), width=1.0, samples=2.0, batch=0.5), "dim": 61}, "data must be the rows"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    problem = make(spectrum(), **SIZES)
    with pytest.raises(ValueError, match=message):
        dl.simulate(**{"problem": problem, "data": (X, Y), **arguments})
