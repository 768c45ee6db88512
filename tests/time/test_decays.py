"""Decays of power-law spectra and what a source leaves behind: against quadrature by SciPy, and differences."""

import numpy as np
import pytest
from scipy.integrate import quad

from deeplinear._time.decays import RATES, left_behind, mode_weights, power_decay


@pytest.mark.parametrize("exponent", [0.1, 0.5, 1.3, 3.0])
def test_the_modes_together_decay_in_closed_form(exponent: float) -> None:
    x = np.append(0.0, np.logspace(-3, 6, 40))
    weights, _ = mode_weights(exponent)
    found = np.exp(-x[:, None] * RATES) @ weights
    assert found == pytest.approx(power_decay(exponent, x), rel=1e-5)  # 4e-6 by the width of the panels
    direct = [quad(lambda y, each=each: np.exp(-each * y ** (1 / exponent)), 0.0, 1.0)[0] for each in x[:20]]
    assert power_decay(exponent, x[:20]) == pytest.approx(direct, rel=1e-8)


def test_weights_have_the_derivative_that_they_say() -> None:
    for exponent in (0.2, 1.7):
        above, below = (mode_weights(exponent + step)[0] for step in (1e-5, -1e-5))
        assert mode_weights(exponent)[1] == pytest.approx((above - below) / 2e-5, abs=1e-8)


def test_a_source_decays_as_the_modes_do() -> None:
    rng = np.random.default_rng(1)
    widths, sources = rng.exponential(2.0, 6), rng.normal(size=6)
    ends = np.cumsum(widths)
    (left,) = left_behind(widths, sources)
    for index, end in enumerate(ends):
        parts = zip(ends[: index + 1] - widths[: index + 1], ends, sources, strict=False)
        direct = sum(
            source * quad(lambda x, end=end: float(power_decay(1.4, end - x)), start, stop)[0]
            for start, stop, source in parts
        )
        assert left[index] @ mode_weights(1.4)[0] == pytest.approx(direct, rel=1e-5)


def test_tangents_are_derivatives() -> None:
    rng = np.random.default_rng(2)
    widths, sources, wider, more = rng.uniform(0.1, 3.0, (4, 8, 2))
    _, tangent = left_behind(widths, sources, (wider, more))
    above, below = (left_behind(widths + step * wider, sources + step * more)[0] for step in (1e-6, -1e-6))
    assert tangent == pytest.approx((above - below) / 2e-6, rel=1e-6, abs=1e-7)
