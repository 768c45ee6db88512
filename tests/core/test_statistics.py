"""Slopes on log-log plots."""

import math

import numpy as np
import pytest

from deeplinear._core.statistics import loglog_slope


def test_fits_a_power_law_with_its_standard_error():
    values, rng = np.array([1.0, 2.0, 4.0, 8.0]), np.random.default_rng(0)
    scattered = [loglog_slope(values, 0.1 * values**0.7 * np.exp(0.05 * rng.standard_normal(4))) for _ in range(2000)]
    exponents, errors = np.array(scattered).T
    assert exponents.mean() == pytest.approx(0.7, abs=0.005)
    assert np.sqrt((errors**2).mean()) == pytest.approx(exponents.std(), rel=0.05)
    assert math.isnan(loglog_slope(np.array([1.0]), np.array([0.1]))[0])  # one point is no law
    assert math.isnan(loglog_slope(np.array([1.0, 2.0]), np.array([0.1, 0.2]))[1])


def test_points_on_a_power_law_have_its_exponent():
    x = np.array([1.0, 2.0, 4.0])
    assert loglog_slope(x, 3 * x**1.5) == pytest.approx((1.5, 0.0), abs=1e-12)
