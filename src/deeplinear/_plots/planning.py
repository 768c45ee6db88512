"""Pictures of plans: schedules and what they do to the loss."""

import math
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from deeplinear._core.words import percent
from deeplinear._planning.batch import CriticalBatch
from deeplinear._planning.optimum import Optimum
from deeplinear._planning.plan import Plan
from deeplinear._planning.schedule import OptimalSchedule
from deeplinear._plots.style import INK, THEORY, figure_of, log_axis, new_figure, put_title, styled
from deeplinear._plots.transfer import lr_axis
from deeplinear._plots.words import in_words
from deeplinear._problem.edit import about_field
from deeplinear._problem.rate import has_schedule

_LOOKS: dict[str, dict[str, Any]] = {
    "constant": {"color": "#999999", "linestyle": "solid"},
    "linear": {"color": "#0072B2", "linestyle": (0, (5, 1))},
    "cosine": {"color": "#E69F00", "linestyle": (0, (3, 1, 1, 1))},
    "wsd": {"color": "#009E73", "linestyle": (0, (1, 1))},
}
"""Colours that colour-blind readers can tell apart, and dashes that all can."""

_HIGHEST = 2.0
"""Losses up to this many times the least are shown."""

_FLAT = 3.0
"""What the axis of best rates spans at least, as a factor: what hardly changes should look flat."""

_BEST: dict[str, Any] = {"color": "black", "linewidth": 2.2, "zorder": 4}


def plot_schedule(found: OptimalSchedule, ax: Axes | None = None) -> Figure:
    """Draw the best rates and the loss over training, beside the best schedules of named shapes.

    The legend says how much less loss the best schedule leaves at the last step than each of them.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.5), dl.OnlineSGD(0.5), dl.GradientDescent(0.1), steps=8
    ... )
    >>> figure = plot_schedule(dl.optimal_schedule(problem, knots=2))
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['learning rate', 'test loss']
    """
    with styled():
        if ax is not None:
            _draw_rates(ax, found)
            return figure_of(ax)
        figure = new_figure(7.2, 3.2)
        rates, losses = figure.subplots(1, 2)
        _draw_rates(rates, found)
        _draw_losses(losses, found)
        put_title(figure, *in_words(found.problem, [found.of]))
        return figure


def plot_optimum(found: Optimum, ax: Axes | None = None) -> Figure:
    """Draw the loss along each field, with the others at their best; the optimum is a point, a bound a grey line.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.5), dl.OnlineSGD(0.5), dl.GradientDescent(0.1), steps=8
    ... )
    >>> figure = plot_optimum(dl.optimal(problem, ["lr", "richness"], starts=1))
    >>> [ax.get_xlabel() for ax in figure.axes]
    ['learning rate', 'richness']
    """
    with styled():
        if ax is not None:
            _draw_profile(ax, found, next(iter(found.values)))
            return figure_of(ax)
        count = len(found.values)
        figure = new_figure(1.0 + 2.4 * count, 2.8)
        for panel, name in zip(np.atleast_1d(figure.subplots(1, count, sharey=True)), found.values, strict=True):
            _draw_profile(panel, found, name)
        put_title(figure, *in_words(found.problem))
        return figure


def plot_plan(found: Plan, ax: Axes | None = None) -> Figure:
    """Draw the loss of every model against its cost, with the frontier, and the best values against the budget.

    Lines are models, dark to light along the first field, and the star is the best run within the budget. Points of the
    frontier, which are between values of the grid, are open where the best cannot be compared with its neighbours (see
    ``Frontier.notes``); the dashed line is the power law of the others.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=1, width=1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.1), steps=12
    ... )
    >>> figure = plot_plan(dl.plan(problem, 20.0, values={"width": [0.5, 1.0, 2.0]}))
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['test loss above label noise', 'best width', 'best updates']
    """
    with styled():
        if ax is not None:
            _draw_models(ax, found)
            return figure_of(ax)
        names = [name for name, values in found.frontier.values.items() if len(np.unique(values)) > 1]
        figure = new_figure(3.4 + 2.6 * len(names), 3.2)
        axes = np.atleast_1d(figure.subplots(1, 1 + len(names), width_ratios=[1.3] + [1.0] * len(names)))
        _draw_models(axes[0], found)
        for panel, name in zip(axes[1:], names, strict=True):
            _draw_law(panel, found, name, found.frontier.values[name])
            panel.set_ylabel("best updates" if name == "steps" else f"best {name}")
        put_title(figure, *in_words(found.problem, ["lr", "steps", *found.grid]))
        return figure


def plot_critical_batch(found: CriticalBatch, ax: Axes | None = None) -> Figure:
    """Draw the steps that reach the loss, and the best rate, against the batch size; a line marks the critical one.

    On the dashed line twice the batch takes half the steps. Into given axes only the steps are drawn.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=1, width=1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.1), steps=60
    ... )
    >>> figure = plot_critical_batch(dl.critical_batch(problem, loss=0.2, batches=[0.25, 0.5, 1, 2, 4]))
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['steps to test loss 0.2', 'best learning rate']
    """
    with styled():
        if ax is not None:
            _draw_steps(ax, found)
            return figure_of(ax)
        figure = new_figure(7.2, 3.2)
        steps, rates = figure.subplots(1, 2)
        _draw_steps(steps, found)
        room = max(math.sqrt(_FLAT * np.nanmin(found.lrs) / np.nanmax(found.lrs)), 1.1)
        rates.set_ylim(np.nanmin(found.lrs) / room, np.nanmax(found.lrs) * room)
        _draw_best(rates, found, found.lrs)
        rates.set_ylabel("best learning rate")
        put_title(figure, *in_words(found.problem, ["lr", "batch"]))
        return figure


def _draw_steps(ax: Axes, found: CriticalBatch) -> None:
    """Steps against the batch size, and as few as if nothing were lost by larger batches."""
    known = np.isfinite(found.steps)
    batches, steps = found.batches[known], found.steps[known]
    ax.plot(batches, steps[0] * batches[0] / batches, label="half the steps for twice the batch", **THEORY)
    if math.isfinite(found.critical):
        ax.axvline(found.critical, color=INK, linewidth=0.8, label=f"critical batch, {found.critical:.3g}")
    never = found.batches[~known]
    if never.size:
        top: dict[str, Any] = {"linestyle": "none", "marker": "x", "color": "#D55E00", "markersize": 5}
        label = f"not within {found.problem.steps} steps"
        ax.plot(never, np.full(never.size, 0.97), transform=ax.get_xaxis_transform(), label=label, **top)
    _draw_best(ax, found, found.steps)
    ax.set_ylabel(f"steps to {found.objective} loss {found.loss:.4g}")
    ax.legend(loc="best")


def _draw_best(ax: Axes, found: CriticalBatch, values: NDArray[np.float64]) -> None:
    values = np.where(np.isfinite(values), values, np.nan)
    ax.plot(found.batches, values, color="#0072B2", linewidth=1.6, marker="o", markersize=4)
    ax.set_xscale("log")
    lr_axis(ax)
    log_axis(ax)
    ax.set_xlabel("batch")


def _draw_models(ax: Axes, found: Plan) -> None:
    """Loss of every model against its cost, as it trains for longer, and the frontier."""
    losses = found.losses.reshape(-1, found.losses.shape[-1]) - found.label_noise
    costs = found.costs.reshape(losses.shape)
    count = found.losses.shape[0] if found.grid else 1
    colors = matplotlib.colormaps["cividis"](np.linspace(0.05, 0.92, count))
    marker = "o" if losses.shape[1] == 1 else None
    names = [f"{name} {value:g}" for name, values in list(found.grid.items())[:1] for value in values] or [""]
    for index in range(len(losses)):
        first, is_new = index * count // len(losses), index % (len(losses) // count) == 0
        if not np.isfinite(costs[index]).any():
            continue  # an impossible model
        label = names[first] if is_new and len(names) > 1 else None
        ax.plot(costs[index], losses[index], color=colors[first], linewidth=1.2, marker=marker, label=label)
    star: dict[str, Any] = {"marker": "*", "markersize": 13, "color": "#D55E00", "markeredgecolor": "white"}
    ax.plot(found.cost, found.loss - found.label_noise, linestyle="none", zorder=5, label="best run", **star)
    _draw_law(ax, found, "loss", found.frontier.loss)
    ax.set_ylabel(f"{found.objective} loss above label noise")


def _draw_law(ax: Axes, found: Plan, name: str, values: NDArray[np.float64]) -> None:
    """What is best against the budget, with its power law."""
    inside, compute = found.frontier.is_inside, found.frontier.compute
    point: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": "black", "markersize": 4, "zorder": 4}
    ax.plot(compute[inside], values[inside], **point)
    ax.plot(compute[~inside], values[~inside], markerfacecolor="white", **point)
    exponent, _ = found.frontier.exponents.get(name, (math.nan, math.nan))
    if math.isfinite(exponent):
        x, y = np.log(compute[inside]), np.log(values[inside])
        law = np.exp(y.mean() + exponent * (x - x.mean()))
        ax.plot(compute[inside], law, label=f"slope {exponent:.3f}".replace("-", "−"), **THEORY)
    if ax.get_legend_handles_labels()[1]:
        ax.legend(loc="lower left" if name == "loss" else "upper left")
    ax.set_xscale("log")
    log_axis(ax)
    ax.set_xlabel(f"compute ({found.unit})" if found.unit else "compute")


def _draw_profile(ax: Axes, found: Optimum, name: str) -> None:
    values, losses = found.profiles[name]
    highest = _HIGHEST * found.loss
    ax.plot(values, np.where(losses < 10 * highest, losses, np.nan), color="#0072B2", linewidth=1.6)
    for bound in found.bounds[name]:
        if values[0] <= bound <= values[-1]:
            ax.axvline(bound, color=INK, linewidth=0.8, linestyle=(0, (1, 1)))
    ax.plot(found.values[name], found.loss, "o", color="black", markersize=6, zorder=4, clip_on=False)
    ax.set_ylim(top=min(highest, 1.1 * float(np.max(losses[np.isfinite(losses)]))))
    if values[0] > 0:
        ax.set_xscale("log")
        lr_axis(ax)
    is_factor = name == "lr" and has_schedule(found.problem)
    ax.set_xlabel("schedule factor" if is_factor else about_field(found.problem, name).label.lower())
    if name == next(iter(found.values)):
        ax.set_ylabel(f"{found.objective} loss at the last step")


def _draw_rates(ax: Axes, found: OptimalSchedule) -> None:
    steps = found.problem.steps - 1  # the rate of the last step has no effect
    for name, family in found.families.items():
        ax.plot(family.schedule.values(found.problem.steps)[:steps], linewidth=1.4, **_LOOKS[name])
    ax.plot(found.schedule[:steps], **_BEST)
    ax.set_ylim(bottom=0.0)
    ax.set_ylabel(about_field(found.problem, found.of).label.lower())
    _time_axis(ax)


def _draw_losses(ax: Axes, found: OptimalSchedule) -> None:
    for name, family in found.families.items():
        label = f"{name.upper() if name == 'wsd' else name}: best ends {percent(found.gain[name])} lower"
        ax.plot(family.losses, label=label, linewidth=1.4, **_LOOKS[name])
    ax.plot(found.losses, label="best schedule", **_BEST)
    log_axis(ax)
    ax.set_ylabel(f"{found.objective} loss")
    _time_axis(ax)
    ax.legend(loc="best")


def _time_axis(ax: Axes) -> None:
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_xlabel("training step $t$")
