"""Fit one form of the law to several runs: robust least squares with exact derivatives.

Each run counts as much as every other, however often it was logged. Residuals are weighed down smoothly where they are
larger than a few times their usual size. L0, A and N enter linearly and are never negative; for the start they are
solved for exactly at each place of a coarse grid of the other parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._runs.law import Law
from deeplinear._runs.path import Paths
from deeplinear._runs.run import Run

Array = NDArray[np.float64]
Steps = NDArray[np.int64]

_MOST = 60
"""Losses of a run that are fitted; neighbours are averaged where more were logged."""

_CHANGE = 0.04
"""Change of the rate, as a fraction of the peak, over which losses are not averaged."""

_ROBUST = 0.004
"""Residual, as a fraction of the range of all losses, from which on residuals count less."""

_ROUNDS, _CLOSE = 8, 1e-4
"""Rounds of least squares, and relative change of parameters that ends them."""

_BOUNDS = {"b": (0.02, 4.0), "c": (1e-2, 1e4), "q": (1.05, 4.0), "p": (0.2, 3.0)}
_GRID = {"b": (0.2, 0.4, 0.7, 1.1), "c": (1.0, 4.0, 16.0, 64.0, 256.0), "q": (1.5,), "p": (1.0,)}
"""Ranges of the nonlinear parameters, and where the search may start; c is per thousand steps at the largest rate."""


@dataclass(frozen=True, eq=False)
class Data:
    """Runs as they are fitted.

    Attributes
    ----------
    paths
        Their rates.
    losses
        Averages of neighbouring losses, one array for each run.
    counts
        How many losses each average has.
    steps
        Two steps for each average, at which the law is averaged, shape (averages, 2).
    reference
        The rate that rates are measured in: the largest.
    """

    paths: Paths
    losses: tuple[Array, ...]
    counts: tuple[Array, ...]
    steps: tuple[Steps, ...]
    reference: float

    @staticmethod
    def of(runs: Sequence[Run], start: int | None = None) -> "Data":
        """Average neighbouring losses of runs, from the step ``start`` on, or from the end of each warm-up."""
        parts = [_averaged(run, run.rises if start is None else start) for run in runs]
        steps = tuple(part[0] for part in parts)
        paths = Paths.of([run.rates for run in runs], steps)
        losses, counts = tuple(part[1] for part in parts), tuple(part[2] for part in parts)
        return Data(paths, losses, counts, steps, max(run.peak for run in runs))

    def __getitem__(self, runs: Sequence[int]) -> "Data":
        """Some of the runs."""
        losses, counts, steps = (tuple(each[run] for run in runs) for each in (self.losses, self.counts, self.steps))
        return Data(self.paths[runs], losses, counts, steps, self.reference)  # type: ignore[arg-type]

    @property
    def middles(self) -> list[Array]:
        """The step in the middle of what each average stands for."""
        return [np.asarray(each.mean(axis=1)) for each in self.steps]

    @property
    def span(self) -> float:
        """Range of all losses."""
        return float(max(each.max() for each in self.losses) - min(each.min() for each in self.losses))


@dataclass(frozen=True, eq=False)
class Fitted:
    """Parameters of a law: L0, A and N, and the nonlinear ones in the order of ``law.shape``."""

    law: Law
    reference: float
    linear: Array
    shape: Array

    def losses(self, paths: Paths) -> list[Array]:
        """Return the losses of runs at the steps that were asked for."""
        return [each @ self.linear for each in self.law.columns(paths, self.reference, self.shape)]

    @property
    def values(self) -> dict[str, float]:
        """All parameters, by their letters."""
        linear = dict(zip(("L0", "A", "N"), self.linear.tolist(), strict=True))
        return linear | self.law.values(self.shape)


def solve_law(law: Law, data: Data, weights: Sequence[float] | None = None, start: Fitted | None = None) -> Fitted:
    """Fit a law; runs count by ``weights``, equally by default.

    Large residuals get less weight (that of scipy's ``soft_l1``) in a few rounds of weighted least squares, each of
    which moves the nonlinear parameters while the linear ones follow (variable projection).
    """
    from scipy.optimize import least_squares  # slow to import

    valley = _Valley(law, data, weights)
    place = valley.grid() if start is None else np.log(start.shape)
    lower, upper = np.log([_BOUNDS[name] for name in law.shape]).T
    for _ in range(_ROUNDS):
        before = place
        place = least_squares(
            lambda at: valley.at(at)[0],
            np.clip(place, lower + 1e-9, upper - 1e-9),
            lambda at: valley.at(at)[1],
            bounds=(lower, upper),
            xtol=_CLOSE,
            ftol=_CLOSE**2,
            gtol=1e-15,
            max_nfev=60,
        ).x
        valley.reweigh(place)
        if np.abs(place - before).max() < 3.0 * _CLOSE:
            break
    return Fitted(law, data.reference, valley.linear(place), np.exp(place))


class _Valley:
    """Weighted residuals as a function of the logarithms of nonlinear parameters, at the best linear ones."""

    def __init__(self, law: Law, data: Data, weights: Sequence[float] | None) -> None:
        self.law, self.data = law, data
        of_runs = np.ones(len(data.losses)) if weights is None else np.asarray(weights, float)
        self.fixed = np.concatenate(
            [np.sqrt(weight * each / each.sum()) for weight, each in zip(of_runs, data.counts, strict=True)]
        )
        self.weights = self.fixed
        self.losses = np.concatenate(data.losses)
        self._place, self._found = b"", (np.empty(0), np.empty((0, 0)))

    def grid(self) -> Array:
        """Return the best place of the grid."""
        places = np.stack(np.meshgrid(*(_GRID[name] for name in self.law.shape), indexing="ij"), -1)
        logs = np.log(places.reshape(-1, len(self.law.shape)))
        return np.asarray(min(logs, key=lambda place: float(np.linalg.norm(self._projected(self._columns(place))[1]))))

    def at(self, place: Array) -> tuple[Array, Array]:
        """Return residuals, and their derivatives along the valley (as Kaufman has them)."""
        if place.tobytes() != self._place:
            shape = np.exp(place)
            columns, slopes = self.law.columns_and_slopes(self.data.paths, self.data.reference, shape)
            weighted = np.concatenate(columns) * self.weights[:, None]
            linear, residuals = self._projected(weighted)
            bent = np.stack([np.concatenate([run[index] for run in slopes]) @ linear for index in range(len(shape))], 1)
            bent *= shape * self.weights[:, None]
            basis, _ = np.linalg.qr(weighted[:, linear > 0])
            self._place, self._found = place.tobytes(), (residuals, bent - basis @ (basis.T @ bent))
        return self._found

    def linear(self, place: Array) -> Array:
        """Return the best L0, A and N."""
        return self._projected(self._columns(place))[0]

    def reweigh(self, place: Array) -> None:
        """Give large residuals less weight."""
        off = self.at(place)[0] / self.weights
        self.weights = self.fixed * (1.0 + (off / (_ROBUST * self.data.span)) ** 2) ** -0.25
        self._place = b""

    def _columns(self, place: Array) -> Array:
        columns = self.law.columns(self.data.paths, self.data.reference, np.exp(place))
        return np.asarray(np.concatenate(columns) * self.weights[:, None])

    def _projected(self, weighted: Array) -> tuple[Array, Array]:
        from scipy.optimize import nnls  # slow to import

        goal = self.losses * self.weights
        linear, _ = nnls(weighted, goal)
        return linear, weighted @ linear - goal


def _averaged(run: Run, start: int) -> tuple[Steps, Array, Array]:
    """Return means of neighbouring losses, two steps for each, and the number of losses in each.

    The mean of the law at these two steps is its mean over all steps that the average stands for, to third order.
    """
    middles = np.maximum(np.rint(run.steps - 0.5 * run.smoothing), 0).astype(np.int64)
    kept = np.flatnonzero(middles >= start)
    size = -(-len(kept) // _MOST)
    rates = run.rates[np.clip(middles[kept] - 1, 0, len(run.rates) - 1)]
    groups, first = [], 0
    for index in range(1, len(kept) + 1):
        ended = index == len(kept) or abs(rates[index] - rates[first]) > _CHANGE * run.peak
        if ended or index - first >= size:
            groups.append(kept[first:index])
            first = index
    centre = np.array([middles[group].mean() for group in groups])
    spread = np.array([np.sqrt(middles[group].var() + run.smoothing**2 / 12.0) for group in groups])
    steps = np.rint(centre[:, None] + spread[:, None] * np.array([-1.0, 1.0])).clip(0, run.steps[-1])
    losses = np.array([run.loss[group].mean() for group in groups])
    return steps.astype(np.int64), losses, np.array([float(len(group)) for group in groups])
