"""Correlations of every layer over training steps, theory dashed over networks."""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from deeplinear._core.dataset import FIELDS
from deeplinear._experiment.ensemble import Ensemble
from deeplinear._experiment.measured import Measured
from deeplinear._plots.curves import draw_pair, drawable
from deeplinear._plots.style import log_axis
from deeplinear._theory.solution import Solution

Array = NDArray[np.float64]

_DECADE = 10.0


def draw_layers(ax: Axes, theory: Solution, experiment: Ensemble | Measured, name: str, title: str) -> None:
    """Draw equal-time correlations of each layer, averaged over outputs; dark to light."""
    outputs, first = theory.problem.data.outputs, FIELDS[name].first_layer or 0
    curves = (getattr(theory, name), experiment.mean(name), experiment.standard_error(name))
    expected, mean, error = (_equal_times(values, outputs) for values in curves)
    colors = matplotlib.colormaps["cividis"](np.linspace(0.2, 0.95, first + len(expected)))
    for layer, (ours, theirs, band) in enumerate(zip(expected, mean, error, strict=True), start=first):
        draw_pair(ax, theory.pair_times, ours, experiment.times, theirs, band, colors[layer], f"{layer}")
    shown = np.stack([drawable(curve) for curve in expected])
    if np.nanmax(shown, initial=1.0) > _DECADE * np.nanmin(shown, initial=1.0):
        log_axis(ax)
    ax.set_ylabel(title)


def _equal_times(matrices: Array, outputs: int) -> Array:
    """Diagonals over time, averaged over outputs: (layers, n, n) to (layers, T)."""
    diagonals = np.diagonal(matrices, axis1=-2, axis2=-1)
    return np.asarray(diagonals.reshape(len(matrices), -1, outputs).mean(axis=-1))
