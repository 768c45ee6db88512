"""The schedule that the fitted law calls best for a run of so many steps."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.drawn import Drawn
from deeplinear._rules import schedules
from deeplinear._rules.schedules import Schedule
from deeplinear._runs.path import Paths
from deeplinear._runs.solve_law import Fitted

Array = NDArray[np.float64]

_KNOTS = 25
"""Places after the warm-up at which a free schedule has a rate of its own; straight lines connect them."""

_STAIRS = 200
"""Stairs of a free schedule, where it is written as one of ``deeplinear.schedules``."""

_PLACES = 1500
"""Places of the coarse axis on which schedules are compared."""

_DECAYS = np.array([0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0])
_ENDS = np.array([0.0, 0.03, 0.1, 0.2, 0.3, 0.5])
"""Fractions of all steps after the warm-up in which WSD decays, and ends of schedules, that are tried first."""

_HALVINGS = 8
"""Times that the grid shrinks around the best of these."""

_TOLERANCE, _NEARBY = 1e-9, 1e-4
"""Decrease of the loss, as a fraction, that is not worth a step of the descent, and distance of its differences."""

_FALLEN = 0.98
"""Fraction of the peak below which a schedule has begun to decay."""

_COMPARED = ("constant", "cosine", "linear", "wsd")

SHAPES = ("free", *_COMPARED)


@dataclass(frozen=True, eq=False)
class RunSchedule(Drawn):
    """The schedule that a fitted law calls best.

    Attributes
    ----------
    lr
        Learning rate at every step, with the warm-up, shape (steps,).
    loss
        Loss after the last step.
    low, high
        90 % band of this loss, as of every prediction.
    shape
        What was asked for.
    compared
        Loss of the best schedule of every named shape, with the same peak and warm-up.
    decay_begins
        Step from which on the rate is below 98 % of its peak.
    schedule
        The same as one of ``deeplinear.schedules``; that of a free shape has stairs.
    warnings
        What to know before relying on it.
    """

    lr: Array = field(repr=False)
    loss: float
    low: float
    high: float
    shape: str
    compared: Mapping[str, float]
    decay_begins: int
    schedule: Schedule
    warnings: tuple[str, ...]

    def lambda_lr(self, optimizer: Any) -> Any:
        """Return it as a PyTorch ``LambdaLR``; the optimizer's own rate has to be the peak."""
        from torch.optim.lr_scheduler import LambdaLR

        peak, last = float(self.lr.max()), len(self.lr) - 1
        factors = (self.lr / peak).tolist()
        return LambdaLR(optimizer, lambda step: factors[min(step, last)])

    def __str__(self) -> str:
        steps, peak = len(self.lr), float(self.lr.max())
        lines = [
            f"{'best' if self.shape == 'free' else self.shape} schedule of {steps} steps: hold {peak:.3g} until step "
            f"{self.decay_begins} ({100 * self.decay_begins / steps:.0f} %), then fall to {self.lr[-1]:.2g}",
            f"loss {self.loss:.4g} ({self.low:.4g} to {self.high:.4g})",
        ]
        others = {name: loss for name, loss in self.compared.items() if name != self.shape}
        lines.append("others: " + ", ".join(f"{name} {loss - self.loss:+.4f}" for name, loss in others.items()))
        return "\n".join([*lines, *self.warnings])


@dataclass(frozen=True)
class Search:
    """Runs of so many steps that a law is asked about.

    Rates are looked at on a coarse axis, where a run has many steps.

    Attributes
    ----------
    fitted
        The law.
    steps, peak, warmup
        Number of steps, largest rate, and steps until it is reached.
    """

    fitted: Fitted
    steps: int
    peak: float
    warmup: int

    @property
    def places(self) -> int:
        """Places on the coarse axis."""
        return min(self.steps, _PLACES)

    @property
    def share(self) -> float:
        """Fraction of steps in the warm-up."""
        return self.warmup / self.steps

    def losses(self, candidates: list[Array]) -> Array:
        """Return the loss after the last step of each schedule, given on the coarse axis."""
        paths = Paths.of(candidates, [np.array([self.places])] * len(candidates))
        stretched = replace(paths, lengths=paths.lengths * (self.steps / self.places))
        return np.concatenate(self.fitted.losses(stretched))

    def tuned(self, name: str) -> tuple[Schedule, float]:
        """Return the best schedule of a named shape, and its last loss."""
        grid, make = self._family(name)
        best, least, width = grid[0], math.inf, 0.25 * np.ptp(grid, axis=0)
        places = grid
        for _ in range(_HALVINGS):  # a grid around the best place, which shrinks
            found = self.losses([make(each).values(self.places) for each in places])
            if found.min() < least:
                best, least = places[np.argmin(found)], float(found.min())
            offsets = np.stack(np.meshgrid(*([-1.0, 0.0, 1.0],) * len(best)), -1).reshape(-1, len(best))
            places = np.clip(best + offsets * width, grid.min(axis=0), grid.max(axis=0))
            width = width / 2
        return make(best), least

    def _family(self, name: str) -> tuple[Array, Callable[[Array], Schedule]]:
        """Return places to try first, and what makes a schedule of one."""
        if name == "wsd":
            grid = np.stack(np.meshgrid(_DECAYS * (1.0 - self.share), _ENDS), -1).reshape(-1, 2)
            return grid, lambda at: schedules.wsd(self.peak, self.share, decay=float(at[0]), end=float(at[1]))
        if name == "constant":
            return np.ones((1, 1)), lambda _: schedules.constant(self.peak, self.share)
        shape = getattr(schedules, name)
        return _ENDS[:, None], lambda at: shape(self.peak, self.share, end=float(at[0]))

    def free(self, start: Array, *, monotone: bool) -> Array:
        """Descend from a schedule on the coarse axis, with the rate free at knots that are denser towards the end."""
        from scipy.optimize import minimize  # slow to import

        at, rise = np.arange(self.places), math.ceil(self.share * self.places)
        knots = rise + (1.0 - np.linspace(1.0, 0.0, _KNOTS) ** 1.5) * (self.places - 1 - rise)

        def rates_of(place: Array) -> Array:
            heights = np.cumprod(place) if monotone else place
            return np.where(at < rise, start, self.peak * np.interp(at, knots, heights))

        def both(place: Array) -> tuple[float, Array]:
            change = np.where(place < 0.5, _NEARBY, -_NEARBY)
            moved = place + np.diag(change)
            found = self.losses([rates_of(each) for each in (place, *moved)])
            return float(found[0]), (found[1:] - found[0]) / change

        first = np.clip(np.interp(knots, at, start) / self.peak, 1e-3, 1.0)
        if monotone:
            first = np.minimum(first / np.append(1.0, first[:-1]), 1.0)
        bounds = [(0.0, 1.0)] * _KNOTS
        found = minimize(both, first, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": _TOLERANCE})
        return rates_of(found.x)


def find_schedule(search: Search, shape: str, *, monotone: bool) -> tuple[Schedule, Array, dict[str, float]]:
    """Return the best schedule of a shape, its rates at every step, and the losses of all named shapes."""
    tuned = {name: search.tuned(name) for name in _COMPARED}
    compared = {name: loss for name, (_, loss) in tuned.items()}
    if shape != "free":
        schedule = tuned[shape][0]
        return schedule, schedule.values(search.steps), compared
    start = min(tuned.values(), key=lambda each: each[1])[0]
    found = search.free(start.values(search.places), monotone=monotone)
    rates = np.interp(np.linspace(0, search.places - 1, search.steps), np.arange(search.places), found)
    rates[: search.warmup] = start.values(search.steps)[: search.warmup]
    at = np.unique(np.linspace(search.warmup, search.steps, _STAIRS, endpoint=False).astype(int))
    factors = [float(each.mean() / search.peak) for each in np.split(rates, at)[1:]]
    stairs = schedules.piecewise(search.peak, (at / search.steps).tolist(), factors, search.share)
    return stairs, rates, compared
