"""Descent within bounds, from batches of values and past cliffs."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

import deeplinear as dl
from deeplinear._core.progress import Counter
from deeplinear._planning.axes import axes_of
from deeplinear._planning.descent import Surface, descend, descend_all
from deeplinear._planning.joint import JointSearch

Array = NDArray[np.float64]


def banana(x: Array) -> tuple[float, Array]:
    """Rosenbrock's function, whose minimum 0 is at (1, 1) in a bent valley."""
    value = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    return value, np.array([-2 * (1 - x[0]) - 400 * x[0] * (x[1] - x[0] ** 2), 200 * (x[1] - x[0] ** 2)])


def surface_of(function: object) -> Surface:
    return Surface(
        lambda places: [function(place)[0] for place in places],  # type: ignore[operator]
        lambda places: [function(place) for place in places],  # type: ignore[operator]
    )


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
    assert not found.has_converged  # at a slope of 1


def test_it_ends_where_slopes_are_not_finite() -> None:
    """A value without a gradient is a place to end, never one to step from."""
    surface = Surface(lambda places: [float(x @ x) for x in places], lambda places: [(np.inf, np.full(2, np.nan))])
    found = descend(surface, np.ones(2), most_steps=5, tolerance=1e-6)
    assert found.value == 2.0
    assert found.x.tolist() == [1.0, 1.0]
    assert not found.has_converged


def test_descents_side_by_side_are_those_of_each_alone() -> None:
    """They share batches, and nothing else: as many batches as the longest takes."""
    asked: list[int] = []

    def slopes(places: Sequence[Array]) -> list[tuple[float, Array]]:
        asked.append(len(places))
        return [banana(place) for place in places]

    surface = Surface(lambda places: [banana(place)[0] for place in places], slopes)
    starts = [np.array([-1.2, 1.0]), np.array([2.0, 0.0]), np.array([0.0, 3.0])]
    ends = descend_all(surface, starts, most_steps=100, tolerance=1e-10)
    alone = [descend(surface_of(banana), start, most_steps=100, tolerance=1e-10) for start in starts]
    for end, other in zip(ends, alone, strict=True):
        np.testing.assert_array_equal(end.x, other.x)
        assert (end.value, end.steps, end.has_converged) == (other.value, other.steps, other.has_converged)
    assert asked[0] == 3
    assert len(asked) < 2 * max(end.steps for end in ends)


@pytest.mark.parametrize("seed", range(3))
def test_converged_means_a_small_gradient(seed: int) -> None:
    """In random bowls of very different curvatures: it has converged where the gradient is small."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    bend = turn @ np.diag(10.0 ** rng.uniform(-1, 3, 5)) @ turn.T
    bowl = surface_of(lambda x: (float(0.5 * x @ bend @ x), bend @ x))
    found = descend(bowl, rng.normal(size=5), most_steps=200, tolerance=1e-4)
    assert found.has_converged == bool((np.abs(bend @ found.x) <= 0.02).all())
    assert found.value < 0.01


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


class ValleySearch(JointSearch):
    """A search over two coordinates whose heights are those of a valley that is drawn here."""

    def __init__(self, bend: float, barrier: float) -> None:
        problem = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(), dl.FullBatch(2.0), dl.GradientDescent(0.1), steps=4)
        axes = axes_of(problem, ["richness", "width"], {"richness": (0.01, 100.0), "width": (0.01, 100.0)})
        super().__init__(problem, axes, "test", 0.0, Counter(None, 1))
        self._bend, self._barrier = bend, barrier

    def _heights(self, places: Sequence[Array]) -> list[float]:
        return [self._slope(place)[0] for place in places]

    def _slope(self, place: Array) -> tuple[float, Array]:
        x, y = place
        away, hill = y - self._bend * x**2, 1 - x**2
        slope = [-2 * self._bend * x * away - 4 * self._barrier * x * hill, away]
        return away**2 / 2 + self._barrier * hill**2, np.array(slope)


@pytest.mark.parametrize(
    ("bend", "barrier", "count"), [(0, 0.005, 1), (1, 0, 1), (1, 0.005, 1), (0, 0.02, 2), (1, 0.02, 2)]
)
def test_ends_in_one_valley_are_one_minimum(bend: float, barrier: float, count: int) -> None:
    """Also where the valley is curved, so that the straight way between them climbs its side."""
    search = ValleySearch(bend, barrier)
    ends = [search.descend(np.array([x, bend + 0.1])) for x in (-1.0, 1.0)]
    assert [end.x[0] for end in ends] == pytest.approx([-1.0, 1.0], abs=0.2)
    assert len(search.distinct(ends)) == count
