"""Pictures of geometry: curvature and singular values of weights over training, losses along lines in weight space."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from deeplinear._core.refusal import Refusal
from deeplinear._core.statistics import standard_error
from deeplinear._experiment.ensemble import Ensemble
from deeplinear._geometry.landscape import Landscape
from deeplinear._geometry.sharpness import Sharpness
from deeplinear._geometry.weight_spectra import WeightSpectra
from deeplinear._plots.loss import LOSSES, losses_of
from deeplinear._plots.style import INK, THEORY, figure_of, new_figure, put_title, styled
from deeplinear._plots.words import in_words
from deeplinear._rules.averages import Average

_LARGEST, _LOWEST = (color for _, color in LOSSES.values())
NAMES = {"hessian": "eigenvalue of the Hessian", "kernel": "eigenvalue of the tangent kernel"}
"""What is on the axis of eigenvalues."""

_LIMIT = "limit of stable steps"
_IN_SIGHT = 2.5
"""A limit up to this many times the largest eigenvalue is drawn; one that is farther away is only named."""

_LINES = {
    "line": "from the first weights (0) to the last (1)",
    "ema": "from the last weights (0) to their average (1)",
    "twins": "from one network (0) to its twin (1)",
    "gradient": "along minus the gradient, in steps of descent",
    "sharpest": "along the sharpest direction, in lengths of a step",
}


def plot_sharpness(sharpness: Sharpness, ax: Axes | None = None, experiment: Ensemble | None = None) -> Figure:
    """Draw the ends of the spectrum over training, and the limit above which steps overshoot.

    Dashed lines join the largest and the lowest eigenvalues, with bars for their errors. At the top a filled point is
    an eigenvalue that stands alone, an open one the edge of the continuous part of the spectrum. A dotted line follows
    this edge where eigenvalues stand beyond it.

    Parameters
    ----------
    sharpness
        What theory says.
    ax
        Axes to draw into; a new figure by default.
    experiment
        Networks of the same problem, measured at the same steps with the same operator and as many vectors. The mean of
        their largest and lowest Ritz values is drawn solid, with a band of a standard error, and over it the same
        values of theory in black: both approach the ends of the spectrum from inside.

    Returns
    -------
    Figure
        What was drawn into.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.1), steps=20
    ... )
    >>> figure = plot_sharpness(dl.sharpness(problem, at=[0, 10, 19]))
    >>> sorted(figure.axes[0].get_legend_handles_labels()[1])
    ['largest eigenvalue', 'limit of stable steps, 20', 'lowest eigenvalue']
    """
    with styled():
        size = [] if experiment is None else [_size(sharpness, experiment)]
        is_ours, ax = ax is None, axes_of(sharpness, ax, *size)
        if experiment is not None:
            _draw_networks(ax, sharpness, experiment)
        _draw_end(ax, sharpness, "largest", _LARGEST)
        _draw_alone(ax, sharpness)
        _draw_end(ax, sharpness, "lowest", _LOWEST)
        _draw_limit(ax, sharpness)
        ax.axhline(0.0, color=INK, linewidth=0.5, alpha=0.5, zorder=0)
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.set_xlabel("training step $t$")
        ax.set_ylabel(NAMES[sharpness.operator])
        _put_legend(ax, is_ours)
        return figure_of(ax)


def plot_landscape(landscape: Landscape, ax: Axes | None = None) -> Figure:
    """Draw train and test loss along a line in weight space.

    Where the train loss rises above the straight line between its ends, this line is drawn too.

    Parameters
    ----------
    landscape
        What to draw.
    ax
        Axes to draw into; a new figure by default.

    Returns
    -------
    Figure
        What was drawn into.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=20
    ... )
    >>> plot_landscape(dl.landscape(problem)).axes[0].get_xlabel()
    'from the first weights (0) to the last (1)'
    """
    with styled():
        ax = axes_of(landscape, ax)
        where = landscape.positions
        for name, (label, color) in losses_of(landscape).items():
            style = THEORY | {"color": color, "linewidth": 1.8}
            ax.plot(where, getattr(landscape, name), label=label, **style)
        if landscape.barrier > 0.0:
            label = f"barrier of the train loss, {landscape.barrier:.2g}"
            ax.plot(where[[0, -1]], landscape.train_loss[[0, -1]], color=INK, linewidth=0.8, label=label)
        ax.set_xlabel(_line_in_words(landscape.along))
        ax.set_ylabel("mean squared residual")
        ax.legend(loc="best")
        return figure_of(ax)


def plot_weight_spectra(spectra: WeightSpectra, ax: Axes | None = None) -> Figure:
    """Draw the largest singular values of each weight layer over training, relative to the end of its bulk.

    A dashed line follows the largest one, which is at 1 as long as none has left the bulk; points are all that have.

    Parameters
    ----------
    spectra
        What to draw.
    ax
        Axes to draw into; a new figure by default.

    Returns
    -------
    Figure
        What was drawn into.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0, richness=6.0), dl.Isotropic(0.1), dl.FullBatch(4.0), dl.GradientDescent(0.02),
    ...     steps=40,
    ... )
    >>> figure = plot_weight_spectra(dl.weight_spectra(problem, at=[0, 20, 39]))
    >>> figure.axes[0].get_legend_handles_labels()[1]
    ['layer 0', 'layer 1']
    """
    with styled():
        ax = axes_of(spectra, ax)
        layers = np.flatnonzero(np.isfinite(spectra.edge).any(axis=0))
        colors = matplotlib.colormaps["cividis"](np.linspace(0.1, 0.85, max(len(layers), 2)))
        for layer, color in zip(layers, colors, strict=False):
            edge, every = spectra.edge[:, layer], [each[layer] for each in spectra.outliers]
            edge = np.where(edge > 0.0, edge, np.nan)  # without a bulk there is no ratio to it
            largest = [each[0] if each else end for each, end in zip(every, edge, strict=True)]
            style = THEORY | {"color": color, "linewidth": 1.6}
            ax.plot(spectra.times, largest / edge, label=f"layer {layer}", **style)
            for step, end, outliers in zip(spectra.times, edge, every, strict=True):
                ax.plot([step] * len(outliers), np.array(outliers) / end, "o", color=color, markersize=3.5)
        ax.axhline(1.0, color=INK, linewidth=0.8, zorder=0)
        if not any(any(each) for each in spectra.outliers):  # nothing but lines at 1, of which all but one are covered
            ax.set_ylim(0.0, 2.0)
            nothing = "no singular value has left the bulk yet"
            ax.text(0.5, 0.56, nothing, transform=ax.transAxes, ha="center", fontsize=8)
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.set_xlabel("training step $t$")
        ax.set_ylabel("singular value over end of bulk")
        ax.legend(loc="best", ncols=1 + len(layers) // 8)
        return figure_of(ax)


def axes_of(result: Sharpness | Landscape | WeightSpectra, ax: Axes | None, *parts: str) -> Axes:
    """Return the axes to draw into: those of a new figure with a title, if none are given."""
    if ax is None:
        figure = new_figure(4.6, 3.6)
        put_title(figure, *in_words(result.problem), *parts)
        ax = figure.add_subplot()
    return ax


def _put_legend(ax: Axes, is_ours: bool) -> None:
    """Name the lines: below a picture of our own, and inside where there may be others around."""
    if is_ours:
        figure_of(ax).legend(loc="outside lower center", ncols=2)
    else:
        ax.legend(loc="best")


def _draw_end(ax: Axes, sharpness: Sharpness, name: str, color: str) -> None:
    """One end of the spectrum, with its errors."""
    values, errors = getattr(sharpness, name), getattr(sharpness, f"{name}_error")
    known = np.isfinite(values)
    bars: dict[str, Any] = {"ecolor": color, "elinewidth": 1.0, "capsize": 2.0, "markerfacecolor": "white"}
    dashed: dict[str, Any] = {"linestyle": THEORY["linestyle"], "linewidth": 1.6, "marker": "o", "markersize": 4}
    times, values, errors = sharpness.times[known], values[known], errors[known]
    ax.errorbar(times, values, errors, color=color, label=f"{name} eigenvalue", **bars, **dashed)


def _draw_alone(ax: Axes, sharpness: Sharpness) -> None:
    """Eigenvalues that stand alone at the top, and below them the edge of the continuous part."""
    alone = [(step, value) for step, each in zip(sharpness.times, sharpness.outliers, strict=True) for value in each]
    if not alone:
        return
    times, values = np.transpose(alone)
    ax.plot(times, values, "o", color=_LARGEST, markersize=4, zorder=4, label="stands alone")
    edge = np.where(np.isin(sharpness.times, times), sharpness.edge, np.nan)
    if np.isfinite(edge).any():
        dotted: dict[str, Any] = {"color": INK, "linestyle": ":", "marker": ".", "markersize": 4, "linewidth": 1.0}
        ax.plot(sharpness.times, edge, label="edge of the bulk", **dotted)


def _draw_networks(ax: Axes, sharpness: Sharpness, experiment: Ensemble) -> None:
    """Ends of the Ritz values of networks, and over them those of theory."""
    measured = experiment.ritz_values
    assert measured is not None  # _size has seen to it
    for end, name, color in ((np.fmax, "largest", _LARGEST), (np.fmin, "lowest", _LOWEST)):
        values = end.reduce(measured, axis=-1)
        mean, error = values.mean(axis=0), standard_error(values)
        ax.plot(sharpness.times, mean, color=color, alpha=0.6, label=f"{name} Ritz value, networks")
        ax.fill_between(sharpness.times, mean - error, mean + error, color=color, alpha=0.25, linewidth=0)
        label = "the same of theory" if end is np.fmax else None
        ax.plot(sharpness.times, end.reduce(sharpness.ritz_values, axis=-1), label=label, **THEORY)


def _draw_limit(ax: Axes, sharpness: Sharpness) -> None:
    """The limit above which steps overshoot, if there is one and it is near."""
    limit = np.where(np.isfinite(sharpness.limit), sharpness.limit, np.nan)
    lowest = np.fmin.reduce(limit)
    if not np.isfinite(lowest):
        return
    changes = np.fmax.reduce(limit) > lowest
    if lowest > _IN_SIGHT * np.fmax.reduce(sharpness.largest):
        ax.plot([], [], color=INK, linewidth=1.2, label=f"{_LIMIT}, {'from ' if changes else ''}{lowest:.3g}, is above")
        return
    ax.plot(
        sharpness.times,
        limit,
        color=INK,
        linewidth=1.2,
        marker="" if len(limit) > 1 else "_",
        label=_LIMIT if changes else f"{_LIMIT}, {lowest:.3g}",
    )


def _size(sharpness: Sharpness, experiment: Ensemble) -> str:
    """Check that networks were measured as theory was asked; return their number and size in words."""
    times, vectors = tuple(sharpness.times.tolist()), sharpness.ritz_values.shape[1]
    curvature = experiment.curvature
    if experiment.problem != sharpness.problem:
        raise Refusal("experiment", experiment, "networks of the same problem")
    wanted = (times, vectors, sharpness.operator, sharpness.start)
    if curvature is None or (curvature.at, curvature.vectors, curvature.operator, curvature.start) != wanted:
        asked = "at={}, vectors={}, operator={!r}, start={!r}".format(*wanted)
        raise Refusal("experiment", curvature, f"networks with Curvature({asked})")
    return f"experiment: {len(experiment.seeds)} networks of input dimension {experiment.dim}, {vectors} vectors"


def _line_in_words(along: Any) -> str:
    if isinstance(along, str):
        return _LINES[along]
    if isinstance(along, Average):
        return _LINES["ema"]
    return "from the weights of step {} (0) to those of step {} (1)".format(*along)
