"""Pictures of transfer: losses against the rate or another field, how optima move, and what it costs to keep one."""

import math
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from deeplinear._core.statistics import typical_loss
from deeplinear._core.words import percent
from deeplinear._planning.axes import Axis
from deeplinear._planning.transferred import Transfer
from deeplinear._planning.verdict import CHEAP
from deeplinear._plots.style import BAND, INK, THEORY, figure_of, log_axis, new_figure, put_title, styled
from deeplinear._plots.words import in_words
from deeplinear._problem.edit import about_field

Array = NDArray[np.float64]

MARKERS = "osD^vPXph*<>"
"""One for each curve, so that curves can be told apart without colours."""

_BELOW_ONE, _DECADES = (0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999), (0, 0.001, 0.01, 0.1, 1, 10, 100)
"""Ticks of fields that may be zero: of those below one, and of others."""

_RATES = Axis("lr", np.finfo(float).tiny, math.inf)

_ROOM = 1.6
"""How far above the curves' left ends the picture goes, as a factor: losses beyond stability are not of interest."""


def plot_transfer(transfer: Transfer, ax: Axes | None = None) -> Figure:
    """Draw the loss against the field that is followed for each value, the optimum and the regret against the value.

    Theory is dashed; of the experiment the median over networks is solid, with a band from quartile to quartile.
    Optima have markers, one for each value: filled for theory, open for the experiment, with intervals of 95 %.
    The verdict stands above. Into given axes only the losses are drawn.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0, parameterization="ntk"),
    ...     dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.05), steps=15,
    ... )
    >>> from deeplinear._planning.transfer import transfer
    >>> figure = plot_transfer(transfer(problem, over="width", values=[1, 2]))
    >>> [ax.get_xlabel() for ax in figure.axes]
    ['learning rate', 'width', 'width']
    """
    with styled():
        if ax is not None:
            _draw_curves(ax, transfer)
            return figure_of(ax)
        figure = new_figure(9.6, 3.7)
        curves, optima, regret = figure.subplots(1, 3, width_ratios=[1.3, 1, 0.8])
        _draw_curves(curves, transfer)
        _draw_optima(optima, transfer)
        _draw_regret(regret, transfer)
        put_title(figure, *in_words(transfer.problem, (transfer.over, transfer.field)), *_verdicts(transfer))
        return figure


def _verdicts(transfer: Transfer) -> list[str]:
    found = {"theory": transfer.verdict, "networks": transfer.measured_verdict}
    return [f"{what}: {verdict}".replace("-", "−") for what, verdict in found.items() if verdict]


def _draw_curves(ax: Axes, transfer: Transfer) -> None:
    """Loss against learning rate, a curve for each value."""
    measured = transfer.experiment
    colors = _colors(transfer)
    for index, color in enumerate(colors):
        theory = THEORY if measured is not None else THEORY | {"color": color, "linewidth": 1.6}
        ax.plot(*smooth(*_curve(transfer, index), transfer.axis), **theory)
        marker: dict[str, Any] = {"marker": MARKERS[index % len(MARKERS)], "color": color, "zorder": 5}
        if measured is not None:
            search = measured.searches[index]
            median, low, high = (np.where(np.isfinite(each), each, np.nan) for each in typical_loss(search.losses))
            ax.plot(search.tried, median, color=color, zorder=2)
            ax.fill_between(search.tried, low, high, color=color, alpha=0.25, linewidth=0)
            ax.plot(search.value, median[search.best], markersize=7.5, markerfacecolor="white", **marker)
        place = (transfer.best[index], transfer.optima[index].loss)
        ax.plot(*place, markersize=6, markeredgecolor="black", markeredgewidth=0.7, **marker)
    losses = np.concatenate([_curve(transfer, index)[1] for index in range(len(colors))])
    losses = np.append(losses, [optimum.loss for optimum in transfer.optima])  # alone, if all that was tried diverges
    losses = losses[losses > np.finfo(float).tiny]  # which stands for zero, where there is nothing to learn
    ax.set_yscale("log")
    if len(losses):
        top = max(float(np.nanmax(transfer.loss[np.isfinite(transfer.loss[:, 0]), 0], initial=0.0)), losses.min())
        ax.set_ylim(losses.min() / _ROOM**0.4, top * _ROOM**0.4)
    log_axis(ax)
    _field_axis(ax, transfer, "x")
    ax.set_xlabel("schedule factor" if _is_factor(transfer) else _name(transfer, transfer.field))
    ax.set_ylabel(f"{transfer.objective} loss at the last step")
    _legend(ax, transfer, colors)


def _draw_optima(ax: Axes, transfer: Transfer) -> None:
    """Optimum against value, with the fitted power laws."""
    measured, colors = transfer.experiment, _colors(transfer)
    at = _positions(transfer.values)
    labels: list[Line2D] = []
    if measured is not None:
        tried = [search.tried[[0, -1]] for search in measured.searches]
        bars = np.clip([measured.low, measured.high], *np.transpose(tried)[:, None])
        _draw_intervals(ax, at, measured.best, *bars)
        labels += _draw_fit(ax, transfer, measured.best, measured.exponent, is_theory=False)
    labels += _draw_fit(ax, transfer, transfer.best, transfer.exponent, is_theory=True)
    for index, color in enumerate(colors):
        marker: dict[str, Any] = {"marker": MARKERS[index % len(MARKERS)], "linestyle": "none", "color": color}
        ax.plot(
            at[index],
            transfer.best[index],
            markersize=6,
            markeredgecolor="black",
            markeredgewidth=0.7,
            zorder=5,
            **marker,
        )
        if measured is not None:
            ax.plot(at[index], measured.best[index], markersize=7.5, markerfacecolor="white", zorder=4, **marker)
    ax.set_xscale("log")
    _field_axis(ax, transfer, "y")
    _value_axis(ax, transfer)
    ax.set_ylabel("optimal " + ("factor" if _is_factor(transfer) else _name(transfer, transfer.field)))
    if labels:
        ax.legend(handles=labels, loc="best")


def _draw_regret(ax: Axes, transfer: Transfer) -> None:
    """Extra loss at the rate of the smallest value; linear up to what is cheap, which is shaded, then logarithmic."""
    measured, at = transfer.experiment, _positions(transfer.values)
    ax.set_xscale("log")
    ax.set_yscale("symlog", linthresh=CHEAP)
    ax.axhspan(0, CHEAP, color=BAND, alpha=0.6, linewidth=0)
    finite = [transfer.regret] + ([] if measured is None else [measured.regret, measured.regret_high])
    highest = max(np.max(each[np.isfinite(each)], initial=CHEAP) for each in finite)
    top = 3.0 * highest
    if measured is not None:
        bars = np.clip([measured.regret_low, measured.regret_high], -CHEAP, top)
        _draw_intervals(ax, at, np.minimum(measured.regret, top), *bars)
    for index, color in enumerate(_colors(transfer)):
        marker: dict[str, Any] = {"marker": MARKERS[index % len(MARKERS)], "linestyle": "none", "color": color}
        filled: dict[str, Any] = {"markersize": 6, "markeredgecolor": "black", "markeredgewidth": 0.7, "zorder": 5}
        ax.plot(at[index], min(transfer.regret[index], top), **filled, **marker)
        if math.isinf(transfer.regret[index]):
            ax.annotate("diverges", (at[index], top), (-8, -3), textcoords="offset points", ha="right", va="center")
        if measured is not None:
            height = min(measured.regret[index], top)
            ax.plot(at[index], height, markersize=7.5, markerfacecolor="white", zorder=4, **marker)
    ax.set_ylim((-0.4 if measured is None else -1.1) * CHEAP, 1.3 * top)
    ticks = [0.0, CHEAP, *(mantissa * 10.0**power for power in range(-1, 12) for mantissa in (1, 3))]
    ax.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if tick <= top]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: percent(tick)))
    _value_axis(ax, transfer)
    kept = "rate" if transfer.field == "lr" else _name(transfer, transfer.field)
    extra = "extra loss above noise" if transfer.label_noise else "extra loss"
    ax.set_ylabel(f"{extra} at the {kept} of {_name(transfer)} {transfer.values.min():g}")


def _draw_intervals(ax: Axes, at: Array, middle: Array, low: Array, high: Array) -> None:
    away = np.maximum([middle - low, high - middle], 0.0)
    ax.errorbar(at, middle, away, fmt="none", ecolor=INK, elinewidth=1.0, capsize=2.5, zorder=2)


def _field_axis(ax: Axes, transfer: Transfer, which: str) -> None:
    """Scale an axis of the field that is followed: logarithmic, or in its coordinate where it may be zero."""
    along, axis = getattr(ax, f"{which}axis"), transfer.axis
    set_scale, set_limits = getattr(ax, f"set_{which}scale"), getattr(ax, f"set_{which}lim")
    if axis.low == 0:
        there, back = (np.vectorize(way, otypes=[float]) for way in (axis.coordinate, axis.value))  # also of no ticks
        set_scale("function", functions=(there, back))
        set_limits(0.0, axis.high)
        ticks = _BELOW_ONE if axis.high < 1 else _DECADES
        along.set_major_locator(FixedLocator([tick for tick in ticks if tick <= axis.high]))
        along.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
        along.set_minor_locator(NullLocator())
        return
    if which == "x":
        set_scale("log")
        lr_axis(ax)
        return
    low, high = ax.dataLim.intervaly
    if high < 3 * low:  # a flat line should look flat, also if it is flat but for rounding
        middle = math.sqrt(low * high)
        set_limits(middle / math.sqrt(3), middle * math.sqrt(3))
    set_scale("log")
    log_axis(ax)
    low, high = ax.get_ylim()
    if high < 10 * low:
        along.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6, 8)))


def _is_factor(transfer: Transfer) -> bool:
    return transfer.field == "lr" and bool(transfer.optima[0].is_factor)


def _value_axis(ax: Axes, transfer: Transfer) -> None:
    """Name the values below the points."""
    ax.xaxis.set_major_locator(FixedLocator(_positions(transfer.values).tolist()))
    names = ["∞" if math.isinf(value) else f"{value:g}" for value in transfer.values]
    ax.xaxis.set_major_formatter(FuncFormatter(lambda _, position: names[position] if position is not None else ""))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(_name(transfer))


def _name(transfer: Transfer, field: str | None = None) -> str:
    """Name of a field, by default of the one that is varied, in plain words."""
    return about_field(transfer.problem, field or transfer.over).label.lower()


def _draw_fit(ax: Axes, transfer: Transfer, best: Array, exponent: float, *, is_theory: bool) -> list[Line2D]:
    """Draw a fitted power law through the points; nothing if there is none."""
    if not math.isfinite(exponent):
        return []
    finite, free = np.isfinite(transfer.values), transfer.axis.free
    x, y = np.log(transfer.values[finite]), np.array([free.coordinate(each) for each in best[finite].tolist()])
    fitted = np.array([free.value(each) for each in (y.mean() + exponent * (x - x.mean())).tolist()])
    order = np.argsort(x)
    what = "theory" if is_theory else "experiment"
    slope = f"{exponent:.3f}".replace("-", "−")
    style = THEORY if is_theory else {"color": INK, "linewidth": 1.6, "alpha": 0.6}
    return ax.plot(np.exp(x)[order], fitted[order], label=f"{what}: slope {slope}", **style)


def _legend(ax: Axes, transfer: Transfer, colors: Array) -> None:
    measured = transfer.experiment
    keys = []
    for index, value in enumerate(transfer.values):
        style: dict[str, Any] = {
            "linestyle": "solid" if measured is not None else THEORY["linestyle"],
            "linewidth": 1.8,
        }
        label = f"{_name(transfer)} " + ("∞" if math.isinf(value) else f"{value:g}")
        keys.append(
            Line2D(
                [],
                [],
                color=colors[index],
                marker=MARKERS[index % len(MARKERS)],
                markersize=5,
                markeredgecolor="black",
                markeredgewidth=0.6,
                label=label,
                **style,
            )
        )
    # Against the rate curves come down from the left.
    ax.legend(handles=keys, loc="lower left" if transfer.field == "lr" else "best")


def _curve(transfer: Transfer, index: int) -> tuple[Array, Array]:
    """Values of the field and losses of one curve: those asked for, and those of the search, close at the optimum."""
    optimum, searched = transfer.optima[index], transfer.field == "lr"
    values = np.concatenate([transfer.tried, optimum.lrs if searched else [], transfer.best[index : index + 1]])
    losses = np.concatenate([transfer.loss[index], optimum.losses if searched else [], [optimum.loss]])
    shown = (values >= transfer.tried[0]) & (values <= transfer.tried[-1])
    _, first = np.unique(values, return_index=True)
    first = first[shown[first]]
    return values[first], np.where(np.isfinite(losses[first]) & (losses[first] > 0), losses[first], np.nan)


def smooth(values: Array, losses: Array, axis: Axis = _RATES) -> tuple[Array, Array]:
    """Points close enough for a smooth line, log against the coordinate of an axis, without any new extremum."""
    from scipy.interpolate import PchipInterpolator  # which takes longer to load than to draw

    finite = np.isfinite(losses)
    if finite.sum() < 3:
        return values, losses
    x, y = np.array([axis.coordinate(each) for each in values[finite].tolist()]), np.log(losses[finite])
    apart = np.diff(x, prepend=-np.inf) > 1e-9  # values that differ by rounding are one
    x, y = x[apart], y[apart]
    fine = np.union1d(np.linspace(x[0], x[-1], 400), x)
    return np.array([axis.value(each) for each in fine.tolist()]), np.exp(PchipInterpolator(x, y)(fine))


def _positions(values: Array) -> Array:
    """Where values stand on the axis: infinity a little beyond the largest."""
    finite = values[np.isfinite(values)]
    beyond = 2.0 * finite.max() if len(finite) else 1.0
    return np.where(np.isfinite(values), values, beyond)


def _colors(transfer: Transfer) -> Array:
    """Dark to light by rank of the value, distinct in grey too."""
    ranks = np.argsort(np.argsort(transfer.values)) / max(len(transfer.values) - 1, 1)
    return np.asarray(matplotlib.colormaps["cividis"](0.05 + 0.87 * ranks))


def lr_axis(ax: Axes) -> None:
    """Learning rates: round numbers where there is room for them."""
    low, high = ax.get_xlim()
    subs = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    ax.xaxis.set_major_locator(LogLocator(subs=subs))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
