"""Pictures of what finite size does to networks: how far their mean is from theory, and how much they scatter."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deeplinear._comparison.finite_size import FiniteSize
from deeplinear._plots.curves import drawable, step_axis
from deeplinear._plots.loss import LOSSES
from deeplinear._plots.style import INK, THEORY, figure_of, log_axis, new_figure, put_title, styled
from deeplinear._plots.words import in_words

_MOST = 200.0
"""Largest shift and scatter in the picture, in per cent of theory: beyond are those of networks that diverge."""


def plot_finite_size(found: FiniteSize, ax: Axes | None = None) -> Figure:
    """Draw losses of networks of that size, and beside them shift and scatter as a percentage of theory.

    Theory is dashed, the mean of networks is solid, and the band is one standard deviation between networks. In the
    picture of the shift the band is its standard error. Into given axes only the losses are drawn.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=10
    ... )
    >>> [ax.get_ylabel() for ax in plot_finite_size(dl.finite_size(problem, 100, pairs=8)).axes]
    ['mean squared residual', 'shift of the mean (% of theory)', 'scatter (% of theory)']
    """
    with styled(found.problem.steps):
        if ax is not None:
            _draw_losses(ax, found)
            return figure_of(ax)
        figure = new_figure(9.6, 3.3)
        losses, shifts, scatters = figure.subplots(1, 3)
        _draw_losses(losses, found)
        _draw_shifts(shifts, found)
        _draw_scatters(scatters, found)
        put_title(figure, *in_words(found.problem), found.size)
        return figure


def _draw_losses(ax: Axes, found: FiniteSize) -> None:
    steps = np.arange(found.problem.steps)
    for name, (label, color) in LOSSES.items():
        effect = found[name]
        with np.errstate(invalid="ignore"):  # where both have overflowed
            mean = drawable(effect.theory + effect.shift)
        low = np.maximum(mean - effect.scatter, 1e-2 * mean)  # a band down to zero has no place on a log axis
        ax.plot(steps, mean, color=color, label=label)
        ax.fill_between(steps, low, mean + effect.scatter, color=color, alpha=0.25, linewidth=0)
        ax.plot(steps, drawable(effect.theory), **THEORY)
    log_axis(ax)
    _finish(ax, found, "mean squared residual")
    ax.legend(loc="best")


def _draw_shifts(ax: Axes, found: FiniteSize) -> None:
    steps = np.arange(found.problem.steps)
    ax.axhline(0.0, color=INK, linewidth=0.6)
    for name, (_, color) in LOSSES.items():
        effect = found[name]
        shift, error = 100 * effect.relative_shift, 100 * effect.relative_shift_error
        ax.plot(steps, shift, color=color)
        ax.fill_between(steps, shift - error, shift + error, color=color, alpha=0.25, linewidth=0)
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, -_MOST), min(high, _MOST))
    _finish(ax, found, "shift of the mean (% of theory)")


def _draw_scatters(ax: Axes, found: FiniteSize) -> None:
    for name, (_, color) in LOSSES.items():
        ax.plot(np.arange(found.problem.steps), 100 * found[name].relative_scatter, color=color)
    ax.set_ylim(0.0, min(ax.get_ylim()[1], _MOST))
    _finish(ax, found, "scatter (% of theory)")


def _finish(ax: Axes, found: FiniteSize, label: str) -> None:
    step_axis(ax, max(1, found.problem.steps - 1))
    ax.set_ylabel(label)
