"""Losses as functions of the rate, momentum, decay or batch of every step, and their slopes by complex steps."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._learning_rate.ladder import Advance, solve_or_none
from deeplinear._learning_rate.search import Excess
from deeplinear._problem.edit import replace, replace_unchecked
from deeplinear._problem.problem import Problem
from deeplinear._theory.curves import Curve

Array = NDArray[np.float64]

_STEP = 1e-30
"""Imaginary part of a unit along a direction: its square is below all rounding."""


@dataclass(frozen=True)
class Rates:
    """A problem whose rate, or another field, is free at every step.

    Attributes
    ----------
    problem
        Where all else comes from.
    excess
        The loss that is minimised, less what no rate can lower.
    advance
        Called with the number of solutions that were made.
    of
        The field that is free: ``"lr"``, ``"momentum"``, ``"weight_decay"`` or ``"batch"``.
    """

    problem: Problem
    excess: Excess
    advance: Advance
    of: str = "lr"

    def with_rates(self, rates: Array) -> Problem:
        """Return the problem with these rates, shape (steps,)."""
        return replace(self.problem, {self.of: tuple(rates.tolist())})

    def curves(self, series: Sequence[Array]) -> list[Curve | None]:
        """Return the losses with several series of rates, each of shape (steps,)."""
        return solve_or_none([self.with_rates(rates) for rates in series], self.advance)

    def heights(self, series: Sequence[Array]) -> list[float]:
        """Logarithm of the excess loss at the last step, for each series; inf where it diverges or is only rounding."""
        return [np.inf if curve is None else self._height(curve) for curve in self.curves(series)]

    def slopes(self, places: Sequence[tuple[Array, Array]]) -> list[tuple[float, Array]]:
        """Return logarithms of the excess loss at the last step, and their derivatives along directions.

        Parameters
        ----------
        places
            For each place its rates, shape (steps,), and the change of these per unit along each of n directions,
            shape (n, steps).

        Returns
        -------
        list of float, Array
            For each place its height, and its slopes, shape (n,); nan where the height is infinite.
        """
        nudged = [
            replace_unchecked(self.problem, {self.of: tuple((rates + 1j * _STEP * each).tolist())})
            for rates, directions in places
            for each in directions
        ]
        solved = iter(solve_or_none(nudged, self.advance))
        return [self._slope(list(itertools.islice(solved, len(directions)))) for _, directions in places]

    def _slope(self, solved: Sequence[Curve | None]) -> tuple[float, Array]:
        """Height of a place and its slopes, of its curves with complex rates."""
        losses = np.array([np.inf if each is None else each.loss(self.excess.objective)[-1] for each in solved])
        value = float(losses[0].real) - self.excess.label_noise
        if not np.isfinite(losses).all():
            return np.inf, np.full(len(losses), np.nan)
        if value <= self.excess.rounding:  # nothing is left to learn
            return float(np.log(self.excess.rounding)), np.zeros(len(losses))
        return float(np.log(value)), losses.imag / _STEP / value

    def _height(self, curve: Curve) -> float:
        if curve.rounding_at is not None:
            return np.inf
        return float(np.log(max(float(self.excess(curve)[-1]), self.excess.rounding)))
