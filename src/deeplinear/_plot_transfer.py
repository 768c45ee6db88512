"""Pictures of learning-rate transfer: losses against the rate with the optima marked, and how the optima move."""

import math
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from deeplinear._plot import _BAND, _INK, _THEORY, _log_axis, _new_figure, _style, _title, in_words
from deeplinear._transfer import Transfer

Array = NDArray[np.float64]

_MARKERS = "osD^vPXph*<>"
"""One for each curve, so that curves can be told apart without colours."""

_ROOM = 1.6
"""How far above the curves' left ends the picture goes, as a factor: losses beyond stability are not of interest."""


def plot_transfer(transfer: Transfer) -> Figure:
    """Draw the loss against the learning rate for each value, and the optimum against the value.

    Theory is dashed, the experiment solid with a band of one standard error. Optima have markers, one for each value:
    filled for theory, open for the experiment.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0, parameterization="ntk"),
    ...     dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.05), steps=15,
    ... )
    >>> from deeplinear._transfer import transfer
    >>> figure = plot_transfer(transfer(problem, over="width", values=[1, 2]))
    >>> [ax.get_xlabel() for ax in figure.axes]
    ['learning rate', 'width']
    """
    with _style():
        figure = _new_figure(7.2, 3.5)
        curves, optima = figure.subplots(1, 2, width_ratios=[1.3, 1])
        _draw_curves(curves, transfer)
        _draw_optima(optima, transfer)
        _title(figure, *_words(transfer))
        return figure


def _words(transfer: Transfer) -> list[str]:
    """Describe what all curves have in common."""
    varied = (f"{transfer.over} ", "lr ", f"{transfer.problem.steps} steps" if transfer.over == "steps" else "lr ")
    lines = [line.split(", ") for line in in_words(transfer.problem)]
    lines = [[word for word in line if not word.startswith(varied)] for line in lines]
    return [", ".join(line) for line in lines if line]


def _draw_curves(ax: Axes, transfer: Transfer) -> None:
    """Loss against learning rate, a curve for each value."""
    measured = transfer.experiment
    colors = _colors(transfer)
    for index, color in enumerate(colors):
        theory = _THEORY if measured is not None else _THEORY | {"color": color, "linewidth": 1.6}
        ax.plot(*_smooth(*_curve(transfer, index)), **theory)
        optimum = transfer.optima[index]
        marker: dict[str, Any] = {"marker": _MARKERS[index % len(_MARKERS)], "color": color, "zorder": 5}
        if measured is not None:
            mean, error = _mean_and_error(measured.loss[index])
            ax.plot(transfer.lrs, mean, color=color, zorder=2)
            low = np.maximum(mean - error, 1e-2 * mean)
            ax.fill_between(transfer.lrs, low, mean + error, color=color, alpha=0.25, linewidth=0)
            least = np.interp(np.log(measured.lr[index]), np.log(transfer.lrs), mean)
            ax.plot(measured.lr[index], least, markersize=7.5, markerfacecolor="white", **marker)
        ax.plot(optimum.lr, optimum.loss, markersize=6, markeredgecolor="black", markeredgewidth=0.7, **marker)
    ax.set_xscale("log")
    losses = np.concatenate([_curve(transfer, index)[1] for index in range(len(colors))])
    top = max(float(np.nanmax(transfer.loss[np.isfinite(transfer.loss[:, 0]), 0], initial=0.0)), np.nanmin(losses))
    ax.set_yscale("log")
    ax.set_ylim(np.nanmin(losses) / _ROOM**0.4, top * _ROOM**0.4)
    _log_axis(ax)
    _lr_axis(ax)
    ax.set_xlabel("schedule factor" if transfer.optima[0].is_factor else "learning rate")
    ax.set_ylabel(f"{transfer.objective} loss at the last step")
    _legend(ax, transfer, colors)


def _draw_optima(ax: Axes, transfer: Transfer) -> None:
    """Optimum against value, with the fitted power laws."""
    measured, colors = transfer.experiment, _colors(transfer)
    at = _positions(transfer.values)
    labels: list[Line2D | Patch] = []
    if measured is not None:
        ax.errorbar(at, measured.lr, measured.lr_error, fmt="none", ecolor=_INK, elinewidth=1.0, capsize=2.5, zorder=2)
        labels += _draw_fit(ax, transfer, measured.lr, measured.exponent, measured.exponent_error, is_theory=False)
    labels += _draw_fit(ax, transfer, transfer.lr, transfer.exponent, transfer.exponent_error, is_theory=True)
    for index, color in enumerate(colors):
        marker: dict[str, Any] = {"marker": _MARKERS[index % len(_MARKERS)], "linestyle": "none", "color": color}
        ax.plot(
            at[index],
            transfer.lr[index],
            markersize=6,
            markeredgecolor="black",
            markeredgewidth=0.7,
            zorder=5,
            **marker,
        )
        if measured is not None:
            ax.plot(at[index], measured.lr[index], markersize=7.5, markerfacecolor="white", zorder=4, **marker)
    ax.set_xscale("log")
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    if high < 3 * low:  # a flat line should look flat
        middle = math.sqrt(low * high)
        ax.set_ylim(middle / math.sqrt(3), middle * math.sqrt(3))
    _log_axis(ax)
    low, high = ax.get_ylim()
    if high < 10 * low:
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6, 8)))
    ax.xaxis.set_major_locator(FixedLocator(at.tolist()))
    names = ["∞" if math.isinf(value) else f"{value:g}" for value in transfer.values]
    ax.xaxis.set_major_formatter(FuncFormatter(lambda _, position: names[position] if position is not None else ""))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(transfer.over)
    ax.set_ylabel("optimal " + ("factor" if transfer.optima[0].is_factor else "learning rate"))
    if measured is not None:
        labels.append(Patch(color=_BAND, label="± standard error"))
    if labels:
        ax.legend(handles=labels, loc="best")


def _draw_fit(
    ax: Axes, transfer: Transfer, lrs: Array, exponent: float, error: float, *, is_theory: bool
) -> list[Line2D]:
    """Draw a fitted power law through the points; nothing if there is none."""
    if not math.isfinite(exponent):
        return []
    finite = np.isfinite(transfer.values)
    x, y = np.log(transfer.values[finite]), np.log(lrs[finite])
    fitted = np.exp(y.mean() + exponent * (x - x.mean()))
    order = np.argsort(x)
    what = "theory" if is_theory else "experiment"
    slope = f"{exponent:.3f}".replace("-", "−") + (f" ± {error:.3f}" if math.isfinite(error) else "")
    style = _THEORY if is_theory else {"color": _INK, "linewidth": 1.6, "alpha": 0.6}
    return ax.plot(np.exp(x)[order], fitted[order], label=f"{what}: slope {slope}", **style)


def _legend(ax: Axes, transfer: Transfer, colors: Array) -> None:
    measured = transfer.experiment
    keys = []
    for index, value in enumerate(transfer.values):
        style: dict[str, Any] = {
            "linestyle": "solid" if measured is not None else _THEORY["linestyle"],
            "linewidth": 1.8,
        }
        label = f"{transfer.over} " + ("∞" if math.isinf(value) else f"{value:g}")
        keys.append(
            Line2D(
                [],
                [],
                color=colors[index],
                marker=_MARKERS[index % len(_MARKERS)],
                markersize=5,
                markeredgecolor="black",
                markeredgewidth=0.6,
                label=label,
                **style,
            )
        )
    ax.legend(handles=keys, loc="lower left")  # below curves that come down from the left


def _curve(transfer: Transfer, index: int) -> tuple[Array, Array]:
    """Learning rates and losses of one value: those asked for, and those of the search, close at the optimum."""
    optimum = transfer.optima[index]
    lrs = np.concatenate([transfer.lrs, optimum.lrs, [optimum.lr]])
    losses = np.concatenate([transfer.loss[index], optimum.losses, [optimum.loss]])
    shown = (lrs >= transfer.lrs[0]) & (lrs <= transfer.lrs[-1])
    _, first = np.unique(lrs, return_index=True)
    first = first[shown[first]]
    return lrs[first], np.where(np.isfinite(losses[first]) & (losses[first] > 0), losses[first], np.nan)


def _smooth(lrs: Array, losses: Array) -> tuple[Array, Array]:
    """Points close enough for a smooth line, log against log, without any new extremum."""
    finite = np.isfinite(losses)
    if finite.sum() < 3:
        return lrs, losses
    x, y = np.log(lrs[finite]), np.log(losses[finite])
    apart = np.diff(x, prepend=-np.inf) > 1e-9  # rates that differ by rounding are one
    x, y = x[apart], y[apart]
    fine = np.linspace(x[0], x[-1], 400)
    return np.exp(fine), np.exp(PchipInterpolator(x, y)(fine))


def _mean_and_error(loss: Array) -> tuple[Array, Array]:
    """Mean over seeds and its standard error, nan where a network diverged."""
    finite = np.isfinite(loss).all(axis=-1, keepdims=True)
    loss = np.where(finite, loss, np.nan)
    count = loss.shape[-1]
    error = loss.std(axis=-1, ddof=1) / math.sqrt(count) if count > 1 else np.zeros(len(loss))
    return loss.mean(axis=-1), error


def _positions(values: Array) -> Array:
    """Where values stand on the axis: infinity a little beyond the largest."""
    finite = values[np.isfinite(values)]
    beyond = 2.0 * finite.max() if len(finite) else 1.0
    return np.where(np.isfinite(values), values, beyond)


def _colors(transfer: Transfer) -> Array:
    """Dark to light by rank of the value, distinct in grey too."""
    ranks = np.argsort(np.argsort(transfer.values)) / max(len(transfer.values) - 1, 1)
    return np.asarray(matplotlib.colormaps["cividis"](0.05 + 0.87 * ranks))


def _lr_axis(ax: Axes) -> None:
    low, high = ax.get_xlim()
    subs = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    ax.xaxis.set_major_locator(LogLocator(subs=subs))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
