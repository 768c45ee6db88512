"""The law of schedules: stretches against a sum over every step, derivatives against differences."""

import numpy as np
import pytest

from deeplinear._runs.law import NORM, PLAIN, SEVERAL_PEAKS, Law
from deeplinear._runs.path import Paths
from deeplinear._time.decays import power_decay

REFERENCE = 3e-4


def drawn(seed: int, steps: int = 3000) -> np.ndarray:
    """Draw rates with a warm-up, a decay, and a drop."""
    rng = np.random.default_rng(seed)
    rates = REFERENCE * np.minimum(1.0, (np.arange(steps) + 1) / 300)
    rates *= 1 - rng.uniform(0.2, 0.8) * np.arange(steps) / steps
    rates[rng.integers(steps // 2, steps) :] *= rng.uniform(0.1, 0.5)
    return rates


def by_step(law: Law, rates: np.ndarray, shape: np.ndarray, step: int) -> tuple[float, float]:
    """M and the integral after some steps, summed over each of them."""
    at, norm, h = law.values(shape), 1.0, []
    for rate in rates[:step]:
        h.append((rate / REFERENCE / np.sqrt(norm)) ** at["p"])
        norm += -2 * law.decay * rate * norm + law.growth * rate**2
    widths = np.array(h) / 1000
    after = widths.sum() - np.cumsum(widths) + 0.5 * widths
    integral = float((power_decay(at["q"], at["c"] * after) * h * widths).sum())
    return float(power_decay(at["b"], at["c"] * widths.sum())), integral


@pytest.mark.parametrize(
    ("law", "shape"), [(PLAIN, [0.6, 20.0, 1.4]), (NORM, [0.5, 40.0]), (SEVERAL_PEAKS, [0.4, 10.0, 0.7])]
)
def test_stretches_are_as_good_as_steps(law: Law, shape: list[float]) -> None:
    for seed in range(3):
        rates, steps = drawn(seed), np.array([0, 700, 2000, 3000])
        (found,) = law.columns(Paths.of([rates], [steps]), REFERENCE, np.array(shape))
        assert found[0].tolist() == [1.0, 1.0, 0.0]
        direct = [by_step(law, rates, np.array(shape), step) for step in steps[1:]]
        # The rate changes by up to 4 % within a stretch, which is followed to second order; the step is 1/1000 of c.
        assert found[1:, 1:] == pytest.approx(np.array(direct), rel=2e-3)


@pytest.mark.parametrize(
    ("law", "shape"), [(PLAIN, [0.6, 20.0, 1.4]), (NORM, [0.5, 40.0]), (SEVERAL_PEAKS, [0.4, 10.0, 0.7])]
)
def test_slopes_are_derivatives(law: Law, shape: list[float]) -> None:
    steps = [np.arange(400, 3001, 200), np.array([3000])]
    paths, at = Paths.of([drawn(3), drawn(4)], steps), np.array(shape)
    columns, slopes = law.columns_and_slopes(paths, REFERENCE, at)
    for found, plain in zip(columns, law.columns(paths, REFERENCE, at), strict=True):
        assert found == pytest.approx(plain, rel=1e-12)
    for index in range(len(at)):
        step = 1e-5 * at[index] * np.eye(len(at))[index]
        above, below = (law.columns(paths, REFERENCE, at + sign * step) for sign in (1, -1))
        for slope, up, down in zip(slopes, above, below, strict=True):
            assert slope[index] == pytest.approx((up - down) / (2e-5 * at[index]), rel=1e-6, abs=1e-9)


def test_the_norm_grows_and_decays_as_it_says() -> None:
    paths = Paths.of([np.full(4000, 1e-3)], [np.array([4000])])
    law = Law(("b", "c"), decay=0.2, growth=500.0)
    middles = np.cumsum(paths.lengths[:, 0]) - 0.5 * paths.lengths[:, 0]
    rate, equilibrium = 2 * 0.2 * 1e-3, 500.0 * 1e-3 / (2 * 0.2)
    expected = equilibrium + (1 - equilibrium) * np.exp(-rate * middles)
    assert law.squared_norm(paths)[:, 0] == pytest.approx(expected, rel=1e-12)
