"""Pictures of plans: schedules and what they do to the loss."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from deeplinear._core.words import percent
from deeplinear._planning.optimum import Optimum
from deeplinear._planning.schedule import OptimalSchedule
from deeplinear._plots.style import INK, log_axis, new_figure, put_title, styled
from deeplinear._plots.transfer import lr_axis
from deeplinear._plots.words import in_words
from deeplinear._problem.edit import about_field

_LOOKS: dict[str, dict[str, Any]] = {
    "constant": {"color": "#999999", "linestyle": "solid"},
    "linear": {"color": "#0072B2", "linestyle": (0, (5, 1))},
    "cosine": {"color": "#E69F00", "linestyle": (0, (3, 1, 1, 1))},
    "wsd": {"color": "#009E73", "linestyle": (0, (1, 1))},
}
"""Colours that colour-blind readers can tell apart, and dashes that all can."""

_HIGHEST = 2.0
"""Losses up to this many times the least are shown."""

_BEST: dict[str, Any] = {"color": "black", "linewidth": 2.2, "zorder": 4}


def plot_schedule(found: OptimalSchedule) -> Figure:
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
        figure = new_figure(7.2, 3.2)
        rates, losses = figure.subplots(1, 2)
        _draw_rates(rates, found)
        _draw_losses(losses, found)
        words = [line.split(", ") for line in in_words(found.problem)]
        put_title(figure, *(", ".join(word for word in line if not word.startswith("lr ")) for line in words))
        return figure


def plot_optimum(found: Optimum) -> Figure:
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
        count = len(found.values)
        figure = new_figure(1.0 + 2.4 * count, 2.8)
        for ax, name in zip(np.atleast_1d(figure.subplots(1, count, sharey=True)), found.values, strict=True):
            _draw_profile(ax, found, name)
        figure.axes[0].set_ylabel(f"{found.objective} loss at the last step")
        put_title(figure, *in_words(found.problem))
        return figure


def _draw_profile(ax: Axes, found: Optimum, name: str) -> None:
    values, losses = found.profiles[name]
    highest = _HIGHEST * found.loss
    ax.plot(values, np.where(losses < 10 * highest, losses, np.nan), color="#0072B2", linewidth=1.6)
    for bound in found.bounds[name]:
        if values[0] <= bound <= values[-1]:
            ax.axvline(bound, color=INK, linewidth=0.8, linestyle=(0, (1, 1)))
    ax.plot(found.values[name], found.loss, "o", color="black", markersize=6, zorder=4)
    ax.set_ylim(top=min(highest, 1.1 * float(np.max(losses[np.isfinite(losses)]))))
    if values[0] > 0:
        ax.set_xscale("log")
        lr_axis(ax)
    ax.set_xlabel(about_field(found.problem, name).label.lower())


def _draw_rates(ax: Axes, found: OptimalSchedule) -> None:
    steps = found.problem.steps - 1  # the rate of the last step has no effect
    for name, family in found.families.items():
        ax.plot(family.schedule.values(found.problem.steps)[:steps], linewidth=1.4, **_LOOKS[name])
    ax.plot(found.schedule[:steps], **_BEST)
    ax.set_ylim(bottom=0.0)
    ax.set_ylabel("learning rate")
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
