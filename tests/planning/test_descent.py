"""Descent within bounds, from batches of values and past cliffs."""

import numpy as np
import pytest
from numpy.typing import NDArray

from deeplinear._planning.descent import Surface, descend

Array = NDArray[np.float64]


def banana(x: Array) -> tuple[float, Array]:
    """Rosenbrock's function, whose minimum 0 is at (1, 1) in a bent valley."""
    value = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    return value, np.array([-2 * (1 - x[0]) - 400 * x[0] * (x[1] - x[0] ** 2), 200 * (x[1] - x[0] ** 2)])


def surface_of(function: object) -> Surface:
    return Surface(lambda places: [function(place)[0] for place in places], function)  # type: ignore[operator]


def test_a_bent_valley() -> None:
    found = descend(surface_of(banana), np.array([-1.2, 1.0]), most_steps=100, tolerance=1e-14)
    assert found.has_converged
    np.testing.assert_allclose(found.x, 1.0, atol=1e-5)
    assert found.steps < 60


@pytest.mark.parametrize("high", [[0.5, 2.0], [2.0, 0.3]])
def test_a_bound_binds(high: list[float]) -> None:
    """The best point of the box, found on a grid along the bound that holds it."""
    found = descend(surface_of(banana), np.array([0.0, 0.0]), most_steps=100, tolerance=1e-14, high=np.array(high))
    grid = np.linspace(-1, 2, 300_001)
    if high[0] < 1:
        best = min(banana(np.array([high[0], y]))[0] for y in grid[::100] if y <= high[1])
    else:
        best = min(banana(np.array([x, high[1]]))[0] for x in grid[::100])
    assert best * (1 - 1e-2) <= found.value <= best * (1 + 1e-6)
    assert (found.x <= high).all()


def test_a_cliff_is_not_crossed() -> None:
    """Values fall towards a cliff at 1, past which there are none."""

    def cliff(x: Array) -> tuple[float, Array]:
        return (float(-x[0]), np.array([-1.0])) if x[0] < 1 else (np.inf, np.array([np.nan]))

    found = descend(surface_of(cliff), np.zeros(1), most_steps=50, tolerance=1e-6)
    assert 0.99 < found.x[0] < 1.0


def test_the_end_is_never_above_the_start() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        places, heights = rng.normal(size=(5, 3)), rng.normal(size=5)

        def bumps(x: Array, places: Array = places, heights: Array = heights) -> tuple[float, Array]:
            each = heights * np.exp(-((x - places) ** 2).sum(axis=1))
            return float(each.sum()), (-2 * (x - places) * each[:, None]).sum(axis=0)

        start = rng.normal(size=3)
        found = descend(surface_of(bumps), start, most_steps=5, tolerance=1e-9)
        assert found.value <= bumps(start)[0]
        assert found.value == bumps(found.x)[0]


def test_steps_are_counted_and_limited() -> None:
    found = descend(surface_of(banana), np.array([-1.2, 1.0]), most_steps=3, tolerance=1e-14)
    assert found.steps == 3
    assert not found.has_converged
