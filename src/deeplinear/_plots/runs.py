"""Pictures of real training runs: the fitted law over their losses, its residuals, and what it predicts."""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from deeplinear._plots.style import BAND, INK, THEORY, figure_of, labelled, new_figure, put_title, styled
from deeplinear._runs.result import Forecast, RunsFit
from deeplinear._runs.schedule import RunSchedule

Array = NDArray[np.float64]

_POINTS = 400
"""Points of a line of rates."""

_FIRST = 0.1
"""Part of a run, in its beginning, whose loss need not fit into the picture."""


def plot_runs_fit(found: RunsFit, ax: Axes | None = None) -> Figure:
    """Draw the losses of all runs with the law over them, their rates, and the residuals with the 90 % band.

    Examples
    --------
    >>> import numpy as np
    >>> import deeplinear as dl
    >>> steps = np.arange(20, 1001, 20)
    >>> fit = dl.fit_runs(dl.Run(steps, 1 + 4 / steps**0.5, 0.1), law="plain")
    >>> [ax.get_ylabel() for ax in plot_runs_fit(fit).axes]
    ['loss', 'learning rate', 'loss - law']
    """
    with styled():
        colors = matplotlib.colormaps["cividis"](np.linspace(0.05, 0.92, len(found.runs)))
        if ax is not None:
            _draw_losses(ax, found, colors)
            return figure_of(ax)
        figure = new_figure(7.2, 3.4)
        grid = figure.add_gridspec(2, 2, width_ratios=(1.4, 1.0))
        _draw_losses(figure.add_subplot(grid[:, 0]), found, colors)
        rates, rest = figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, 1])
        band = found.band
        rest.axhspan(-band, band, color=BAND, linewidth=0)
        rest.axhline(0.0, **THEORY)
        laws = found.fitted.losses(found.data.paths)
        for run, law, loss, at, color in zip(
            found.runs, laws, found.data.losses, found.data.middles, colors, strict=True
        ):
            shown = np.unique(np.linspace(0, len(run.rates) - 1, _POINTS).astype(int))
            rates.plot(shown, run.rates[shown], color=color, linewidth=1.4)
            rest.plot(at, loss - law, color=color, linewidth=1.0)
        for each, label in ((rates, "learning rate"), (rest, "loss - law")):
            each.set_ylabel(label)
            each.set_xlim(left=0)
        rates.set_ylim(bottom=0)
        rest.set_xlabel("step")
        values = ", ".join(f"{name} {value:.3g}" for name, value in found.values.items())
        put_title(figure, f"{found.law} law", values, f"90 % band of a new run ± {band:.2g} (grey)")
        return figure


def plot_forecast(found: Forecast, ax: Axes | None = None) -> Figure:
    """Draw predicted losses with their band."""
    with styled():
        figure, ax = _axes(ax)
        ax.fill_between(found.steps, found.low, found.high, color=BAND, linewidth=0, label="90 % band")
        ax.plot(found.steps, found.loss, **THEORY, marker="o" if len(found.steps) == 1 else None, label="law")
        ax.set_xlabel("step")
        ax.set_ylabel("loss")
        ax.legend()
        return figure


def plot_run_schedule(found: RunSchedule, ax: Axes | None = None) -> Figure:
    """Draw the rates of a schedule, and below each other by how much other shapes are worse."""
    with styled():
        if ax is not None:
            _draw_rates(ax, found)
            return figure_of(ax)
        figure = new_figure(7.2, 2.8)
        rates, others = figure.subplots(1, 2, width_ratios=(1.5, 1.0))
        _draw_rates(rates, found)
        names = sorted(found.compared, key=lambda name: found.compared[name])
        worse = [found.compared[name] - found.loss for name in names]
        others.barh(range(len(names)), worse, color=INK, height=0.6)
        for index, value in enumerate(worse):
            others.text(max(value, 0.0), index, f" {value:+.4f}", va="center", fontsize=7)
        others.set_yticks(range(len(names)), names)
        others.invert_yaxis()
        others.margins(x=0.25)
        others.set_xlabel("loss above this schedule")
        put_title(figure, f"{found.shape} schedule", f"loss {found.loss:.4g} ({found.low:.4g} to {found.high:.4g})")
        return figure


def _draw_losses(ax: Axes, found: RunsFit, colors: Array) -> None:
    laws = found.fitted.losses(found.data.paths)
    lows, highs = [], []
    for run, law, at, color in zip(found.runs, laws, found.data.middles, colors, strict=True):
        ax.plot(run.steps, run.loss, color=color, label=run.name)
        ax.plot(at, law, **THEORY)
        later = run.loss[run.steps >= _FIRST * run.steps[-1]]
        lows.append(float(later.min()))
        highs.append(float(later.max()))
    room = 0.05 * (max(highs) - min(lows))
    ax.set_ylim(min(lows) - room, max(highs) + room)
    ax.set_xlim(left=0)
    ax.set_xlabel("step")
    ax.set_ylabel("loss")
    ax.legend(handles=[*(line for line in labelled(ax)), Line2D([], [], label="law", **THEORY)])


def _draw_rates(ax: Axes, found: RunSchedule) -> None:
    shown = np.unique(np.linspace(0, len(found.lr) - 1, _POINTS).astype(int))
    ax.plot(shown, found.lr[shown], color="black")
    ax.axvline(found.decay_begins, color=INK, linewidth=0.8, linestyle=(0, (2, 2)))
    ax.set_xlim(0, len(found.lr))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("step")
    ax.set_ylabel("learning rate")


def _axes(ax: Axes | None) -> tuple[Figure, Axes]:
    if ax is not None:
        return figure_of(ax), ax
    figure = new_figure(4.2, 3.0)
    return figure, figure.add_subplot()
