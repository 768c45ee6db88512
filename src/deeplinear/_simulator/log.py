"""What is kept of the training of one network."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._simulator.data import Stream
from deeplinear._simulator.history import correlation, empty_history, stack_layers
from deeplinear._simulator.sizes import Sizes

Array = NDArray[np.float64]

RECORDS = ("all", "losses")
"""What may be kept: losses and correlations, or losses alone."""

DIVERGED = 1e12
"""A test loss this many times the first one counts as divergence."""


@dataclass(frozen=True)
class Run:
    """What one network did. From the step ``diverged_at`` on, losses are inf and the rest is nan.

    Attributes
    ----------
    test_loss, train_loss
        Before each update, shape (T,).
    diverged_at
        First step whose loss is beyond bounds, -1 if none.
    correlations
        ``feature_correlation`` (L + 1, n, n), ``gradient_correlation`` (L, n, n),
        ``error_correlation`` and ``residual_correlation`` (n, n), with n = T C time-major; empty
        where only losses are kept.
    errors
        The errors v(t), shape (T, D, C), if asked for.
    """

    test_loss: Array
    train_loss: Array
    diverged_at: int
    correlations: dict[str, Array]
    errors: Array | None


class Log:
    """The record of a run in progress.

    Parameters
    ----------
    steps
        Number T of steps planned.
    sizes
        Counts of the network.
    correlations, errors
        Whether to keep them beside the losses.

    Attributes
    ----------
    reached
        Number of steps so far with losses within bounds.
    """

    def __init__(self, steps: int, sizes: Sizes, *, correlations: bool, errors: bool) -> None:
        self.reached = 0
        self._n = steps * sizes.outputs
        self._test_loss, self._train_loss = np.full((2, steps), np.inf)
        self._wants_correlations, self._wants_errors = correlations, errors

        def histories(*field_sizes: int) -> list[Array]:
            return [empty_history(steps, sizes.outputs, size) for size in field_sizes]

        self._unit = sizes.unit
        self._error = histories(sizes.dim) if errors else []
        self._felt = histories(sizes.dim) if correlations else []
        self._residual = histories(sizes.samples) if correlations else []
        self._h = histories(sizes.dim, *sizes.widths) if correlations else []
        self._g = histories(*sizes.widths) if correlations else []

    def losses(self, t: int, test: float, train: float) -> bool:
        """Keep the losses of step t; return False, and keep nothing, if they are out of bounds."""
        bound = DIVERGED * (self._test_loss[0] if t else test)
        if not (math.isfinite(test) and math.isfinite(train) and test <= bound):
            return False
        self._test_loss[t], self._train_loss[t] = test, train
        self.reached = t + 1
        return True

    def fields(self, t: int, error: Array, felt: Array, residual: Array, h: list[Array], g: list[Array]) -> None:
        """Keep the fields of step t, each of shape (size, C), as far as they are wanted."""
        everything = (
            (self._error, [error]),
            (self._felt, [felt]),
            (self._residual, [residual]),
            (self._h, h),
            (self._g, g),
        )
        for histories, fields in everything:
            for history, field in zip(histories, fields, strict=False):
                history[t] = field.T

    def finish(self, stream: Stream) -> Run:
        """Correlate what was kept."""
        return Run(
            test_loss=self._test_loss,
            train_loss=self._train_loss,
            diverged_at=self.reached if self.reached < len(self._test_loss) else -1,
            correlations=self._correlate(stream) if self._wants_correlations else {},
            errors=self._error[0].transpose(0, 2, 1) if self._wants_errors else None,
        )

    def _correlate(self, stream: Stream) -> dict[str, Array]:
        error = correlation(self._felt[0][: self.reached], self._unit)
        residual = stream.residual_correlation(self._residual[0][: self.reached], error)
        features = (correlation(h[: self.reached], None if layer else self._unit) for layer, h in enumerate(self._h))
        gradients = (correlation(g[: self.reached]) for g in self._g)
        return {
            "feature_correlation": stack_layers(features, len(self._h), self._n),
            "gradient_correlation": stack_layers(gradients, len(self._g), self._n),
            "error_correlation": stack_layers([error], 1, self._n)[0],
            "residual_correlation": stack_layers([residual], 1, self._n)[0],
        }
