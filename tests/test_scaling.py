"""Exponents of loss curves, and those that theory expects."""

import numpy as np
import pytest

import deeplinear as dl

TIMES = np.arange(1001)


def test_a_power_law_has_its_exponent_in_every_window():
    losses = np.append(7.0, 5.0 * TIMES[1:] ** -0.7)  # step 0 has no logarithm, and is left out
    law = dl.fit_exponent(TIMES, losses, start=10, stop=1000)
    assert (law.exponent, law.start, law.stop) == (pytest.approx(0.7, abs=1e-12), 10.0, 1000.0)
    assert law.standard_error < 1e-12
    windows = dl.local_exponents(TIMES, losses, per_decade=2)
    assert [each.exponent for each in windows] == pytest.approx([0.7] * 6, abs=1e-12)
    assert [each.stop for each in windows[:-1]] == [each.start for each in windows[1:]]
    assert (windows[0].start, windows[-1].stop) == (1.0, 1000.0)


def test_the_error_of_an_exponent_says_how_far_the_slope_drifts():
    bent = dl.fit_exponent(TIMES, 1.0 / (10.0 + TIMES), start=1, stop=1000)
    straight = dl.fit_exponent(TIMES, 1.0 / (10.0 + TIMES), start=300, stop=1000)
    assert bent.standard_error > 10 * straight.standard_error
    assert straight.exponent == pytest.approx(1.0, abs=0.03)


def test_expected_exponents():
    assert dl.lazy_exponent(0.6) == 0.6
    assert dl.rich_exponent(0.6, 1) == pytest.approx(2 * 0.6 / 1.6)
    assert dl.rich_exponent(0.6, 10_000) == pytest.approx(1.0, abs=1e-4)
    assert dl.rich_exponent(1.0, 5) == 1.0  # where hard tasks end
    assert dl.rich_exponent(2.0, 5) == dl.lazy_exponent(2.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dl.fit_exponent(TIMES, 1.0 + TIMES, 0.5, 100), "start and stop must be an interval within 1 .. 1000"),
        (lambda: dl.fit_exponent(TIMES, 1.0 - TIMES, 1, 100), "losses must be positive and finite"),
        (lambda: dl.fit_exponent(TIMES, TIMES[:5], 1, 100), "times and losses must be curves of one length"),
        (lambda: dl.local_exponents([1.0, 1.1, 1.2], [3.0, 2.0, 1.0]), "times must span at least 1/2 of a decade"),
        (
            lambda: dl.local_exponents([0.0, 1.0, 2.0], [3.0, 2.0, 1.0]),
            "times must be increasing, with at least 3 values",
        ),
        (
            lambda: dl.local_exponents([1.0, 9.0, 5.0], [3.0, 2.0, 1.0]),
            "times must be increasing, with at least 3 values",
        ),
        (lambda: dl.rich_exponent(-1.0, 2), "source"),
    ],
)
def test_what_has_no_exponent_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
