"""Pictures of searches for learning rates: the loss against the rate, and which rates are stable."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from deeplinear._learning_rate import MaxStableLr, OptimalLr
from deeplinear._plots.style import BAND, INK, figure_of, log_axis, new_figure, put_title, styled
from deeplinear._plots.transfer import lr_axis, smooth

Array = NDArray[np.float64]

_COLOR = "#0072B2"
_SOLVED: dict[str, Any] = {"color": _COLOR, "linestyle": "none", "marker": "o", "markersize": 2.5}
_BEST: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": "black", "markersize": 6, "zorder": 5}
_OPEN = {"markerfacecolor": "white"}
_FAILED: dict[str, Any] = {"linestyle": "none", "marker": "x", "color": "#D55E00", "markersize": 4}

_BELOW = 50.0
"""Rates down to so many times less than the lowest minimum are shown."""

_ROOM = 1.6
"""How far above the losses of lower rates the picture goes, as a factor."""

_ROUNDING = 1e-12
"""Losses this far below the upper end are drawn as so much: they are rounding errors, or zero."""

_AROUND = 4.0
"""How far the picture of stable rates goes beyond them, as a factor."""

_LEAST, _MOST = 1e-6, 1e3
"""Losses between which the picture ends, in units of the largest that counts as stable; lower ones are at its end."""

_TOP = 0.97
"""Height, as a fraction of the picture, of marks of losses above it."""


def plot_optimal_lr(found: OptimalLr, ax: Axes | None = None) -> Figure:
    """Draw the loss against the learning rate, as far as it was solved, with the best rate and the one with a margin.

    Small points are the rates solved; the line between them has no minimum of its own. The band is where the loss is at
    most 5 % above its least.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.5), dl.OnlineSGD(0.5), dl.GradientDescent(0.1), steps=8
    ... )
    >>> figure = plot_optimal_lr(dl.optimal_lr(problem))
    >>> figure.axes[0].get_legend_handles_labels()[1]
    ['at most 5 % higher', 'diverges or above', 'with a margin', 'best']
    """
    with styled():
        ax = _axes(found, ax)
        best = found.minima[0]
        shown = found.lrs > min(found.nearly_best) / _BELOW
        lrs, losses = found.lrs[shown], found.losses[shown]
        places, first = np.unique(np.append(found.lr, lrs), return_index=True)
        heights = np.append(found.loss, losses)[first]
        heights = np.where(np.isfinite(heights), heights, np.nan)
        top = _ROOM * float(np.nanmax(heights[places <= found.lr]))
        least = _ROUNDING * top
        heights = np.maximum(heights, least)
        ax.axvspan(best.low, best.high, color=BAND, alpha=0.6, linewidth=0, label="at most 5 % higher")
        ax.plot(*smooth(places, heights), color=_COLOR, linewidth=1.4)
        ax.plot(places, heights, **_SOLVED)
        _mark_failed(ax, lrs[losses > top])
        margin = _BEST | _OPEN | {"marker": "D", "markersize": 8}
        ax.plot(found.safe_lr, max(found.safe_loss, least), **margin, label="with a margin")
        if len(found.minima) > 1:
            others = np.array([(each.lr, each.loss) for each in found.minima[1:]])
            ax.plot(*others.T, **_BEST | _OPEN, label="nearly as good")
        ax.plot(found.lr, max(found.loss, least), **_BEST, label="best")
        ax.set_xscale("log")
        lr_axis(ax)
        ax.set_xlabel(_name(found))
        log_axis(ax)
        ax.set_ylim(top=top)
        ax.set_ylabel(f"{found.objective} loss at step {found.horizon}")
        ax.legend(loc="best")
        return figure_of(ax)


def plot_max_stable_lr(found: MaxStableLr, ax: Axes | None = None) -> Figure:
    """Draw the train loss at the last step against the learning rate; rates that are stable are shaded.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.5), dl.OnlineSGD(0.5), dl.GradientDescent(0.1), steps=8
    ... )
    >>> figure = plot_max_stable_lr(dl.max_stable_lr(problem))
    >>> figure.axes[0].get_legend_handles_labels()[1]
    ['stable', 'largest loss that counts as stable', 'diverges or above']
    """
    with styled():
        ax = _axes(found, ax)
        low, high = found.lr / _AROUND, found.largest_lr * _AROUND
        shown = (found.lrs >= low) & (found.lrs <= high)
        lrs, losses, is_stable = found.lrs[shown], found.losses[shown], found.is_stable[shown]
        for number, (first, last) in enumerate(_stretches(is_stable)):
            start = lrs[first] if number else low
            ax.axvspan(start, lrs[last], color=BAND, linewidth=0.8, zorder=0, label=None if number else "stable")
        ax.axhline(found.bound, color=INK, linewidth=0.8, label="largest loss that counts as stable")
        heights = np.where(losses <= _MOST * found.bound, np.maximum(losses, _LEAST * found.bound), np.nan)
        ax.plot(lrs[is_stable], heights[is_stable], **_SOLVED)
        ax.plot(lrs[~is_stable], heights[~is_stable], **_FAILED)
        _mark_failed(ax, lrs[np.isnan(heights)])
        ax.set_xscale("log")
        ax.set_xlim(low, high)
        lr_axis(ax)
        ax.set_xlabel(_name(found))
        log_axis(ax)
        ax.set_ylabel("train loss at the last step")
        ax.legend(loc="best")
        return figure_of(ax)


def _axes(found: OptimalLr | MaxStableLr, ax: Axes | None) -> Axes:
    """Return the axes to draw into: those of a new figure, whose title is what was found, if none are given."""
    if ax is not None:
        return ax
    figure = new_figure(4.6, 3.6)
    put_title(figure, *str(found).split("; "))
    return figure.add_subplot()


def _mark_failed(ax: Axes, lrs: Array) -> None:
    """Mark rates whose loss is beyond the upper end of the picture."""
    if lrs.size:
        heights = np.full(lrs.size, _TOP)
        ax.plot(lrs, heights, **_FAILED, transform=ax.get_xaxis_transform(), label="diverges or above")


def _stretches(is_stable: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last index of each stretch of stable rates.

    Examples
    --------
    >>> _stretches(np.array([True, True, False, True, False]))
    [(0, 1), (3, 3)]
    """
    changes = np.diff(is_stable.astype(int), prepend=0, append=0)
    firsts, ends = np.flatnonzero(changes == 1), np.flatnonzero(changes == -1)
    return list(zip(firsts.tolist(), (ends - 1).tolist(), strict=True))


def _name(found: OptimalLr | MaxStableLr) -> str:
    return "schedule factor" if found.is_factor else "learning rate"
