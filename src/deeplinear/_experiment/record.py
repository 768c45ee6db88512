"""What is kept of the training of one network, or of several that are trained together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, namespace, to_numpy, zeros
from deeplinear._experiment.curvature import POSITIONS, Curvature, ritz
from deeplinear._experiment.data_sets import DataSet
from deeplinear._experiment.ensemble import LINES, SINGULAR, SPECTRA
from deeplinear._experiment.history import correlation, residual_correlation, stack_layers
from deeplinear._experiment.sizes import Sizes

RECORDS = ("all", "losses")
"""What may be kept: losses and correlations, or losses alone."""

DIVERGED = 1e12
"""A test loss this many times the first one counts as divergence."""

_WATCH = 8
"""Steps after which losses are looked at for divergence: a device must then be waited for."""


@dataclass(frozen=True)
class Run:
    """What a network did, in NumPy. From the step ``diverged_at`` on, losses are inf and the rest is nan.

    Networks that were trained together have a leading axis in all arrays.

    Attributes
    ----------
    test_loss, train_loss
        Before each update, shape (T,).
    diverged_at
        First step whose loss is beyond bounds, -1 if none, shape ().
    correlations
        ``feature_correlation`` (L + 1, n, n), ``gradient_correlation`` (L, n, n),
        ``error_correlation`` and ``residual_correlation`` (n, n), with n = T C time-major; empty
        where only losses are kept.
    errors
        The errors v(t), shape (T, D, C), if asked for.
    averaged_test_loss
        Test loss of averaged weights, shape (averages, T).
    task_loss
        Test loss on the target of each phase, shape (phases, T); (0, T) where there is one phase only.
    spectra
        ``ritz_values`` and ``ritz_weights``, each of shape (steps measured, vectors), ``singular_values`` of shape
        (steps measured, L, count) and losses along a line, shape (positions,), as far as they are asked for.
    """

    test_loss: NDArray[np.float64]
    train_loss: NDArray[np.float64]
    diverged_at: NDArray[np.int64]
    correlations: dict[str, NDArray[np.float64]]
    errors: NDArray[np.float64] | None
    averaged_test_loss: NDArray[np.float64]
    task_loss: NDArray[np.float64]
    spectra: dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Wanted:
    """What is to be kept beside the losses.

    Attributes
    ----------
    correlations, errors
        Whether they are.
    averages, tasks
        How many averages of the weights have a loss, and how many targets.
    curvature
        Curvature to be measured, if any.
    """

    correlations: bool = False
    errors: bool = False
    averages: int = 0
    tasks: int = 0
    curvature: Curvature | None = None


class Log:
    """The record of a run in progress, which stays on its device until it is finished.

    Parameters
    ----------
    steps
        Number T of steps planned.
    sizes
        Counts of the network.
    kept
        Numbers of coordinates that fields have in place of these counts.
    like
        The readout of the network, for the device and the leading axis, if there is one.
    wanted
        What to keep beside the losses.
    """

    def __init__(self, steps: int, sizes: Sizes, kept: Sizes, like: Array, wanted: Wanted) -> None:
        self._outputs, self._steps, self._sizes = sizes.outputs, steps, sizes
        self._wanted = wanted
        self._networks = like.shape[:-2]

        def empty(*shape: int) -> Array:
            made: Array = namespace(like).full((*self._networks, *shape), np.nan, dtype=like.dtype, device=like.device)
            return made

        def histories(*field_sizes: int) -> list[Array]:
            return [empty(steps, sizes.outputs, size) for size in field_sizes]

        self._test_loss, self._train_loss = empty(steps), empty(steps)
        self._averaged, self._tasks = empty(wanted.averages, steps), empty(wanted.tasks, steps)
        self._spectra: dict[int, NDArray[np.float64]] = {}  # by step
        self._line = np.full((2, *self._networks, len(POSITIONS)), np.nan)
        correlations = wanted.correlations
        self._error = histories(kept.dim) if wanted.errors else []
        self._felt = histories(kept.dim) if correlations else []
        self._residual = [zeros((*self._networks, steps, sizes.outputs, kept.samples), like)] if correlations else []
        self._h = histories(kept.dim, *kept.widths) if correlations else []
        self._g = histories(*kept.widths) if correlations else []

    def losses(self, t: int, test: Array, train: Array) -> None:
        """Keep the losses of step t."""
        self._test_loss[..., t], self._train_loss[..., t] = test, train

    def averaged_loss(self, t: int, average: int, test: Array) -> None:
        """Keep the test loss of an average of the weights at step t."""
        self._averaged[..., average, t] = test

    def task_loss(self, t: int, task: int, test: Array) -> None:
        """Keep the test loss on the target of a phase at step t."""
        self._tasks[..., task, t] = test

    def curvature(self, t: int, matrices: NDArray[np.float64]) -> None:
        """Keep the matrices of Lanczos's iteration at step t."""
        self._spectra[t] = ritz(matrices)

    def line(self, index: int, train: Array, test: Array) -> None:
        """Keep the losses at a position on a line."""
        for kept, loss in zip(self._line, (train, test), strict=True):
            kept[..., index] = loss if np.isscalar(loss) else to_numpy(loss)

    def is_over(self, t: int) -> bool:
        """Whether all networks have diverged by step t, as far as it is looked at."""
        return t % _WATCH == 0 and int(self._reached().max()) <= t

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
                history[..., t, :, : field.shape[-2]] = field.mT

    def finish(
        self,
        data: Sequence[DataSet],
        label_gram: Array | None = None,
        singular: Mapping[int, NDArray[np.float64]] | None = None,
    ) -> Run:
        """Correlate what was kept; arguments are as in ``residual_correlation``, and singular values by step."""
        reached, last = self._reached(), int(self._reached().max())
        test_loss, train_loss = to_numpy(self._test_loss), to_numpy(self._train_loss)
        averaged, tasks = to_numpy(self._averaged), to_numpy(self._tasks)
        correlations = self._correlate(data, label_gram, last) if self._wanted.correlations else {}
        errors = to_numpy(self._error[0].mT) if self._wanted.errors else None
        for network in np.ndindex(reached.shape):
            end = int(reached[network])
            for losses in (test_loss, train_loss, averaged, tasks):
                losses[(*network, ..., slice(end, None))] = np.inf
            for matrices in correlations.values():
                matrices[(*network, ..., slice(end * self._outputs, None), slice(None))] = np.nan
                matrices[(*network, ..., slice(None), slice(end * self._outputs, None))] = np.nan
            if errors is not None:
                errors[(*network, slice(end, None))] = np.nan
        diverged_at = np.where(reached < self._steps, reached, -1)
        averaged[np.isnan(averaged)] = np.inf  # of averages that diverged on their own
        spectra = self._finish_spectra(reached, singular or {})
        return Run(test_loss, train_loss, diverged_at, correlations, errors, averaged, tasks, spectra)

    def _finish_spectra(
        self, reached: NDArray[np.int64], singular: Mapping[int, NDArray[np.float64]]
    ) -> dict[str, NDArray[np.float64]]:
        """Return what was measured of the curvature, nan from a divergence on."""
        wanted = self._wanted.curvature
        if wanted is None:
            return {}
        reached = reached[..., None]
        nothing = np.full((2, *self._networks, wanted.vectors), np.nan)
        every = [np.where(step < reached, self._spectra.get(step, nothing), np.nan) for step in wanted.at]
        found = dict(zip(SPECTRA, np.stack(every, axis=-2), strict=True))
        if wanted.singular_values:
            none = np.full((*self._networks, len(self._sizes.widths), wanted.singular_values), np.nan)
            each = [np.where(step < reached[..., None], singular.get(step, none), np.nan) for step in wanted.at]
            found[SINGULAR] = np.stack(each, axis=-3)
        if wanted.line:
            found |= dict(zip(LINES, np.where(wanted.at[-1] < reached, self._line, np.nan), strict=True))
        return found

    def _reached(self) -> NDArray[np.int64]:
        """Number of steps of each network with losses within bounds, so far."""
        test, train = to_numpy(self._test_loss), to_numpy(self._train_loss)
        good = np.isfinite(test) & np.isfinite(train) & (test <= DIVERGED * test[..., :1])
        return np.where(good.all(axis=-1), self._steps, np.argmin(good, axis=-1))

    def _correlate(
        self, data: Sequence[DataSet], label_gram: Array | None, reached: int
    ) -> dict[str, NDArray[np.float64]]:
        def cut(history: Array) -> Array:
            return history[..., :reached, :, :]

        def stacked(matrices: Iterable[Array], layers: int) -> NDArray[np.float64]:
            n = self._steps * self._outputs
            return stack_layers(matrices, (*self._networks, layers, n, n))

        unit, widths = self._sizes.unit, self._sizes.widths
        error = correlation(cut(self._felt[0]), unit)
        residual = residual_correlation(data, cut(self._residual[0]), error, label_gram)
        features = (correlation(cut(h), size) for h, size in zip(self._h, (unit, *widths), strict=True))
        gradients = (correlation(cut(g), size) for g, size in zip(self._g, widths, strict=True))
        return {
            "feature_correlation": stacked(features, len(self._h)),
            "gradient_correlation": stacked(gradients, len(self._g)),
            "error_correlation": stacked([error], 1)[..., 0, :, :],
            "residual_correlation": stacked([residual], 1)[..., 0, :, :],
        }
