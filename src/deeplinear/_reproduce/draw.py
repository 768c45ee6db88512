"""Pictures of panels: theory dashed, networks solid with a band, in two shades of one colour.

The band is one standard error of the mean; over learning rates it is from quartile to quartile around the median, since
some networks diverge there.
"""

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter
from numpy.typing import NDArray
from PIL import Image

from deeplinear._core.dataset import FIELDS
from deeplinear._core.statistics import typical_loss
from deeplinear._plots.style import BAND, INK, THEORY, log_axis, new_figure, styled, theory_in
from deeplinear._plots.transfer import MARKERS, lr_axis, smooth
from deeplinear._reproduce.measure import late_exponent
from deeplinear._reproduce.panel import (
    OverRates,
    OverSizes,
    OverSteps,
    OverValues,
    Panel,
    RateOverValues,
    SlopeOverValues,
)
from deeplinear._reproduce.results import Costs, Edges, Optima, Trained, Trainings

Array = NDArray[np.float64]

_WIDTH, _HEIGHT, _DPI = 5.4, 3.4, 200
_COLORS = 96
"""Size of the palette: enough for bands that overlap, and a third of the bytes."""

_GREY = "#999999"
"""Of the line that stands for all networks in a legend."""

_PATTERNS: Sequence[Any] = ((0, (1, 1)), (0, (5, 1, 1, 1)), "solid")
"""Of lines that are neither theory nor networks."""

_Key = tuple[Any, str]
"""What stands for something in a legend, one artist or several over each other, and its label."""


def draw(panel: Panel, results: Any, note: str) -> Figure:
    """Draw a panel; ``note`` says in small letters what was trained."""
    with styled():
        figure = new_figure(_WIDTH, _HEIGHT)
        figure.suptitle(f"{panel.id}   {panel.title}", x=0.01, ha="left", fontsize=9)
        _VIEWS[type(panel.view)](figure, panel.view, results)
        figure.supxlabel(note, x=0.01, ha="left", fontsize=6, color=INK)
        return figure


def to_png(figure: Figure) -> bytes:
    """Return a picture as a small PNG file."""
    with styled():
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=_DPI)
        image = Image.open(buffer).convert("RGB").quantize(_COLORS, dither=Image.Dither.NONE)
        packed = io.BytesIO()
        image.save(packed, format="png", optimize=True)
        return packed.getvalue()


def _over_steps(figure: Figure, view: OverSteps, results: Trainings) -> None:
    ax = figure.add_subplot()
    first = 1 if view.x == "log" else 0
    drawn = [each for each in results if each.line.drawn]
    last = max(len(each.mean()) - 1 if each.has_networks else 0 for each in drawn) or max(e.times[-1] for e in drawn)
    keys: list[_Key] = []
    for color, each in zip(_sequence(len(drawn)), drawn, strict=True):
        for name in view.losses:
            thin = 0.55 if name == "train_loss" else 1.0
            _curve(ax, each, name, color, first, last, thin)
        keys.append(_key(each.line.label, color, each.has_networks))
    if view.guides is not None:
        guides = view.guides(results)
        patterns = dict(zip(dict.fromkeys(label for label, _, _ in guides), _PATTERNS, strict=False))
        for label, x, y in guides:
            ax.plot(x, y, color=INK, linestyle=patterns[label], linewidth=1.0, zorder=4)
        keys += [(Line2D([], [], color=INK, linestyle=each, linewidth=1.0), label) for label, each in patterns.items()]
    if len(view.losses) > 1:
        keys += [
            (Line2D([], [], color=INK, linewidth=width), FIELDS[name].meaning)
            for name, width in (("test_loss", 2.2), ("train_loss", 1.2))
        ]
    ax.set_xscale(view.x)
    ax.set_xlim(view.xlim if view.xlim is not None else (first, last))
    if view.xlim is not None:
        ax.set_xlim(view.xlim[0], min(view.xlim[1], last))
    ax.set_xlabel("training step $t$")
    ax.set_ylabel("loss" if len(view.losses) > 1 else FIELDS[view.losses[0]].meaning)
    _set_y(ax, view.y, view.ylim)
    _legend(figure, keys)


def _curve(ax: Axes, each: Trained, name: str, color: Any, first: int, last: float, thin: float) -> None:
    """One line: networks solid with a band, theory dashed over it in a darker shade."""
    known = (each.times >= first) & (each.times <= 1.2 * last)
    style = theory_in(color) if each.has_networks else THEORY | {"color": color, "linewidth": 1.6}
    ax.plot(each.times[known], _positive(each.theory(name)[known]), **style)
    if each.has_networks:
        mean, error = each.mean(name)[first:], each.error(name)[first:]
        steps = np.arange(first, first + len(mean), dtype=float)
        _band(ax, steps, _positive(mean), error, color, linewidth=2.2 * thin)


def _over_values(figure: Figure, view: OverValues, results: Trainings) -> None:
    ax, keys = figure.add_subplot(), []
    for color, fraction in zip(_sequence(len(view.at)), view.at, strict=True):
        step = round(fraction * (len(results[0].times) - 1))
        trained = results.trained
        ax.plot(results.values, [each.theory()[step] for each in results], **theory_in(color))
        at = np.array([each.line.value for each in trained])
        mean, error = (np.array([f(each)[step] for each in trained]) for f in (Trained.mean, Trained.error))
        _band(ax, at, mean, error, color, marker="o", markersize=3)
        keys.append(_key(f"step {step}", color, marker="o", markersize=3))
    ax.set_xlabel(view.x)
    ax.set_ylabel("test loss")
    _set_y(ax, view.y, None)
    _legend(figure, keys)


def _over_rates(figure: Figure, view: OverRates, results: Optima) -> None:
    ax, keys = figure.add_subplot(), []
    top, bottom = [], []
    for index, (color, each) in enumerate(zip(_sequence(len(results)), results, strict=True)):
        rates, losses = each.curve
        last = min(each.lrs[-1], view.beyond * each.lr)
        shown = np.isfinite(losses) & (rates >= each.lrs[0]) & (rates <= last)
        ax.plot(*smooth(rates[shown], losses[shown]), **theory_in(color))
        tried, networks = each.tried
        median, low, high = (np.where(np.isfinite(level), level, np.nan) for level in typical_loss(networks))
        near = tried <= last
        ax.plot(tried[near], median[near], color=color)
        ax.fill_between(tried[near], low[near], high[near], color=color, alpha=0.25, linewidth=0)
        marker: dict[str, Any] = {"marker": MARKERS[index % len(MARKERS)], "color": color, "zorder": 6}
        lr = each.measured_lr[0]
        least = median[int(np.argmin(np.abs(tried - lr)))]
        ends = np.clip(each.measured_interval, tried[0], tried[-1])
        bar = [[lr - ends[0]], [ends[1] - lr]]
        ax.errorbar(lr, least, xerr=bar, markersize=6.5, markerfacecolor="white", elinewidth=1, capsize=2, **marker)
        best = float(each.data["optimal_loss"].item())
        ax.plot(each.lr, best, markersize=6, markeredgecolor="black", markeredgewidth=0.7, linestyle="none", **marker)
        keys.append(_key(each.line.label, color, marker=marker["marker"], markersize=5, linewidth=1.8))
        top.append(losses[shown][0])
        bottom.append(min(best, float(np.nanmin(median))))
    ax.set_xscale("log")
    ax.set_xlabel("learning rate")
    ax.set_ylabel("test loss at the last step")
    _set_y(ax, "log", (min(bottom) / 1.3, max(top) * 1.3))
    lr_axis(ax)
    dot: dict[str, Any] = {"marker": "o", "color": INK, "markersize": 5, "linestyle": "none"}
    keys += [
        (Line2D([], [], **dot, markeredgecolor="black"), "optimum, theory"),
        (Line2D([], [], **dot, markerfacecolor="white"), "optimum, networks"),
    ]
    _legend(figure, keys, band="quartiles of networks")


def _rate_over_values(figure: Figure, view: RateOverValues, results: Edges) -> None:
    ax, keys = figure.add_subplot(), []
    groups = list(dict.fromkeys(each.line.group for each in results))
    for index, (color, name) in enumerate(zip(_sequence(len(groups)), groups, strict=True)):
        lines = results.group(name)
        values = [each.line.value for each in lines]
        ax.plot(values, [each.lr for each in lines], **theory_in(color))
        ax.plot(values, [each.largest_lr for each in lines], color=color, linewidth=1.0, linestyle=":")
        trained = [each for each in lines if each.has_networks]
        mean, error = np.array([each.measured for each in trained]).T
        style: dict[str, Any] = {"marker": MARKERS[index], "markersize": 4}
        _band(ax, np.array([each.line.value for each in trained]), mean, error, color, **style)
        keys.append(_key(name, color, **style))
    keys.append((Line2D([], [], color=INK, linewidth=1.0, linestyle=":"), "theory, beyond holes"))
    ax.set_xscale("log")
    ax.set_xlabel(view.x)
    ax.set_ylabel("end of the first stable interval")
    _set_y(ax, "log", None)
    lr_axis(ax)
    _legend(figure, keys)


def _slope_over_values(figure: Figure, view: SlopeOverValues, results: Trainings) -> None:
    ax, keys = figure.add_subplot(), list[_Key]()
    fine = np.linspace(0.0, 1.0, 101)
    for pattern, (label, law) in zip(_PATTERNS, view.laws.items(), strict=True):
        (line,) = ax.plot(fine, law(fine), color=INK, linewidth=1.0, linestyle=pattern)
        keys.append((line, label))
    groups = list(dict.fromkeys(each.line.group for each in results))
    for index, (color, name) in enumerate(zip(_sequence(len(groups)), groups, strict=True)):
        lines = results.group(name)
        exponents, drifts = zip(*(late_exponent(each) for each in lines), strict=True)
        style: dict[str, Any] = {"color": color, "marker": MARKERS[index], "markersize": 6, "linestyle": "none"}
        ax.errorbar([each.line.value for each in lines], exponents, drifts, zorder=5, **style)
        keys.append((Line2D([], [], **style), f"theory, {name}"))
    ax.set_xlabel(view.x)
    ax.set_ylabel("fitted exponent of the loss")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.05)
    _legend(figure, keys, theory=False)


def _over_sizes(figure: Figure, view: OverSizes, results: Costs) -> None:
    kinds = {
        "finite network": ("network",),
        "MLP theory": ("MLP theory",),
        "residual theory, panels": ("residual theory", "panels"),
    }
    axes = figure.subplots(1, 3, sharey=True)
    for ax, (title, shown) in zip(axes, kinds.items(), strict=True):
        series = [each for each in results.series if each.series.kind in shown]
        for index, (color, each) in enumerate(zip(_sequence(len(series)), series, strict=True)):
            exponent, _ = each.exponent
            said = ", panels" if each.series.what == "panels" else f" (table: {each.series.exponent:g})"
            sizes = each.sizes / each.sizes[0]
            if each.series.exponent is not None:
                ax.plot(sizes, sizes**each.series.exponent, **theory_in(color))
            ax.plot(
                sizes,
                each.seconds / each.seconds[0],
                color=color,
                marker=MARKERS[index],
                markersize=4,
                linewidth=1.4,
                label=f"{each.series.axis}$^{{{exponent:.2f}}}${said}",
            )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_title(title)
        ax.plot([], [], label="dashed: as in the table", **THEORY)
        ax.legend(loc="upper left", fontsize=6.5, handlelength=1.4)
        ax.yaxis.set_minor_formatter(NullFormatter())
    axes[0].set_ylim(0.5, 1e6)  # legends stand above the steepest line, 16 cubed
    axes[0].set_ylabel("time over that of the smallest")
    axes[1].set_xlabel("size over the smallest")


_VIEWS: dict[type, Any] = {
    OverSteps: _over_steps,
    OverValues: _over_values,
    OverRates: _over_rates,
    RateOverValues: _rate_over_values,
    SlopeOverValues: _slope_over_values,
    OverSizes: _over_sizes,
}


def _band(ax: Axes, x: Array, mean: Array, error: Array, color: Any, **style: Any) -> None:
    """Networks: solid, with a band of one standard error."""
    ax.plot(x, mean, color=color, **style)
    low = np.maximum(mean - error, 1e-2 * mean)  # a band down to zero has no place on a log axis
    ax.fill_between(x, low, mean + error, color=color, alpha=0.25, linewidth=0)


def _key(label: str, color: Any, has_networks: bool = True, **style: Any) -> _Key:
    """A line of the legend: networks with theory over them, or theory alone."""
    if not has_networks:
        return Line2D([], [], **THEORY | {"color": color, "linewidth": 1.6}), label
    return (Line2D([], [], color=color, **style), Line2D([], [], **theory_in(color))), label


def _legend(figure: Figure, keys: list[_Key], theory: bool = True, band: str = "± standard error") -> None:
    """Keys beside the axes, where they cover nothing."""
    common: list[_Key] = [
        (Line2D([], [], **THEORY), "dashed: theory"),
        (Line2D([], [], color=_GREY), "solid: networks"),
        (Patch(color=BAND), band),
    ]
    handles, labels = zip(*keys, *(common if theory else ()), strict=True)
    figure.legend(handles, labels, loc="outside right upper", handler_map={tuple: HandlerTuple(ndivide=1)})


def _sequence(count: int) -> Array:
    """Dark to light, distinct in grey too, and all light enough for dashes of a darker shade."""
    return np.asarray(matplotlib.colormaps["viridis"](np.linspace(0.25, 0.92, count) if count > 1 else [0.4]))


def _set_y(ax: Axes, scale: str, limits: tuple[float, float] | None) -> None:
    ax.set_yscale(scale)
    if limits is not None:
        ax.set_ylim(limits)
    if scale == "log":
        log_axis(ax)


def _positive(values: Array) -> Array:
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)
