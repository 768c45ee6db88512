"""Pictures of coordinate checks: sizes and updates against the width."""

import math

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from deeplinear._comparison.coordinates import CoordinateCheck
from deeplinear._core.words import counted
from deeplinear._plots.style import THEORY, figure_of, log_axis, new_figure, put_title, styled, theory_in
from deeplinear._plots.transfer import MARKERS

_LEAST = 10.0
"""What the axis of sizes spans at least, as a factor, so that a size that stays looks as if it did."""


def plot_coordinates(check: CoordinateCheck, ax: Axes | None = None) -> Figure:
    """Draw sizes on the left and updates on the right, a line for each field: theory dashed, networks with bars.

    Into given axes only the updates are drawn.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=1, width=1.0), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), steps=4
    ... )
    >>> [ax.get_ylabel() for ax in plot_coordinates(dl.coordinate_check(problem, widths=[1, 2])).axes]
    ['size', 'size of the update']
    """
    with styled():
        if ax is not None:
            _draw(ax, check, "update")
            return figure_of(ax)
        figure = new_figure(7.2, 3.4)
        left, right = figure.subplots(1, 2)
        _draw(left, check, "size")
        _draw(right, check, "update")
        put_title(figure, f"after {counted(check.step, 'step')}", check.verdict.replace("-", "−"))
        return figure


def _draw(ax: Axes, check: CoordinateCheck, what: str) -> None:
    colors = matplotlib.colormaps["cividis"](np.linspace(0.05, 0.92, len(check.names)))
    keys = []
    for index, (name, color) in enumerate(zip(check.names, colors, strict=True)):
        marker = MARKERS[index % len(MARKERS)]
        if check.measured is not None:
            values, errors = getattr(check.measured, what)[:, index], getattr(check.measured, f"{what}_error")[:, index]
            ax.errorbar(check.widths, values, errors, color=color, marker=marker, markersize=4, linewidth=1.4)
        if check.predicted is not None:
            style = theory_in(color) if check.measured is not None else THEORY | {"color": color, "marker": marker}
            ax.plot(check.widths, getattr(check.predicted, what)[:, index], markersize=4, **style)
        if np.isfinite(getattr(check.predicted or check.measured, what)[:, index]).any():
            keys.append(Line2D([], [], color=color, marker=marker, markersize=4, linewidth=1.4, label=name))
    ax.set_xscale("log")
    ax.set_xticks(check.widths, [f"{width:g}" for width in check.widths])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("width")
    ax.set_ylabel("size" if what == "size" else "size of the update")
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    room = max(math.sqrt(_LEAST * low / high), 1.0)
    ax.set_ylim(low / room, high * room)
    log_axis(ax)
    ax.legend(handles=keys, ncols=2 if len(keys) > 4 else 1)
