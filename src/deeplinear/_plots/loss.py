"""Pictures of solutions and comparisons: theory dashed, experiment solid with a standard-error band."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from deeplinear._core.statistics import standard_error
from deeplinear._core.words import counted, percent
from deeplinear._experiment.ensemble import Ensemble
from deeplinear._experiment.measured import Measured, recorded
from deeplinear._plots.curves import (
    draw_band,
    draw_pair,
    drawable,
    last_step,
    mark_divergence,
    mark_phases,
    mark_rounding,
    step_axis,
)
from deeplinear._plots.layers import draw_layers
from deeplinear._plots.style import BAND, INK, THEORY, figure_of, labelled, log_axis, new_figure, put_title, styled
from deeplinear._plots.words import in_words, told_apart
from deeplinear._theory.solution import Solution
from deeplinear._theory.written import PARTS

if TYPE_CHECKING:
    from deeplinear._comparison.compare import Comparison
    from deeplinear._geometry.landscape import Landscape

Array = NDArray[np.float64]

# Okabe and Ito's colours, which colour-blind readers can tell apart; these also differ in grey.
LOSSES = {"test_loss": ("test loss", "#0072B2"), "train_loss": ("train loss", "#E69F00")}
"""Losses, with their names and colours."""

_PARTS: dict[str, dict[str, Any]] = {
    "bias": {"color": "#000000", "linestyle": (0, (1, 1))},
    "width": {"color": "#009E73", "linestyle": (0, (5, 1, 1, 1))},
    "data": {"color": "#CC79A7", "linestyle": (0, (3, 1, 1, 1, 1, 1))},
    "label_noise": {"color": "#999999", "linestyle": "solid"},
}
_MORE = {"averaged_test_loss": "YlGnBu", "task_loss": "YlOrBr"}
"""Losses of averaged weights and of the tasks of phases, with the colours of their curves, dark to light."""


_LONG_LABEL = 28
"""Letters of a label beyond which it takes several lines."""

_BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
"""Where the legend of a picture with many curves stands: beside them, to cover none."""


def theory_with(color: Any) -> dict[str, Any]:
    """Look of one of several theories."""
    return THEORY | {"color": color, "linewidth": 1.6}


def plot_solution(solution: Solution, ax: Axes | None = None) -> Figure:
    """Draw the losses that theory predicts and the parts of the test loss, over training steps.

    Losses of averaged weights and of the tasks of all phases are drawn too where there are any, and then no parts.

    Parameters
    ----------
    solution
        What to draw.
    ax
        Axes to draw into; a new figure by default.

    Examples
    --------
    >>> import deeplinear as dl
    >>> solution = dl.solve(dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=50
    ... ))
    >>> figure = plot_solution(solution)
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['mean squared residual']
    """
    with styled(solution.problem.steps):
        place: dict[str, Any] = {"loc": "best", "ncols": 2}
        if ax is None:
            figure, place = new_figure(6.0, 3.3), _BESIDE
            ax = figure.add_subplot()
            put_title(figure, *in_words(solution.problem))
        for name, (label, color) in losses_of(solution).items():
            style = THEORY | {"color": color, "linewidth": 1.8}
            ax.plot(solution.times, drawable(getattr(solution, name)), label=label, **style)
        more = _more_losses(solution)
        for each in more:
            ax.plot(solution.times, drawable(each.of(solution)), color=each.color, linewidth=1.2, label=each.label)
        for part in () if more else PARTS:
            values = drawable(getattr(solution.decomposition, part))
            if np.isfinite(values).any():
                label = "noise of test labels" if part == "label_noise" else f"{part} part of test loss"
                ax.plot(solution.times, values, linewidth=0.9, label=label, **_PARTS[part])
        log_axis(ax)
        ax.set_ylabel("mean squared residual")
        step_axis(ax, last_step(solution))
        mark_phases(ax, solution)
        mark_divergence(ax, solution)
        mark_rounding(ax, solution)
        ax.legend(**place)
        return figure_of(ax)


def plot_solutions(solutions: Sequence[Solution], ax: Axes | None = None, kind: str = "loss") -> Figure:
    """Draw the losses of several solutions over each other, each called by what its problem does not share with all.

    With ``kind="kernel"`` their effective tangent kernels are drawn.

    Examples
    --------
    >>> import deeplinear as dl
    >>> narrow = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=50
    ... )
    >>> figure = plot_solutions([dl.solve(narrow), dl.solve(narrow.replace(width=4.0, lr=0.1))])
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['width 1, lr 0.05', 'width 4, lr 0.1', 'train loss']
    """
    shared, labels = told_apart([each.problem for each in solutions])
    with styled(max(each.problem.steps for each in solutions)):
        place: dict[str, Any] = {"loc": "best"}
        if ax is None:
            figure, place = new_figure(6.0, 3.3), _BESIDE
            ax = figure.add_subplot()
            put_title(figure, *shared)
        colors = matplotlib.colormaps["cividis"](np.linspace(0.05, 0.88, len(solutions)))
        dotted: dict[str, Any] = {"linestyle": ":", "linewidth": 1.2}
        has_train, is_loss = False, kind == "loss"
        for solution, label, color in zip(solutions, labels, colors, strict=True):
            name = "\n".join(textwrap.wrap(label, _LONG_LABEL))
            curve = solution.test_loss if is_loss else solution.kernel
            ax.plot(solution.times, drawable(curve), label=name, **theory_with(color))
            if is_loss and "train_loss" in losses_of(solution):
                has_train = True
                ax.plot(solution.times, drawable(solution.train_loss), color=color, **dotted)
        if is_loss:
            log_axis(ax)
        ax.set_ylabel("mean squared residual" if is_loss else "effective tangent kernel")
        step_axis(ax, max(map(last_step, solutions)))
        keys = [Line2D([], [], color=INK, label="train loss", **dotted)] if has_train else []
        if len(solutions) > 1:
            ax.legend(handles=[*labelled(ax), *keys], title="test loss" if is_loss else "", title_fontsize=7, **place)
        return figure_of(ax)


def plot_experiment(experiment: Ensemble | Measured, ax: Axes | None = None) -> Figure:
    """Draw the losses of networks, their mean with its standard error as a band, over training steps.

    Examples
    --------
    >>> import deeplinear as dl
    >>> figure = plot_experiment(dl.measured(test_loss=[[1.0, 0.5, 0.4], [0.9, 0.5, 0.3]]))
    >>> figure.axes[0].get_lines()[0].get_label()
    'test loss'
    """
    with styled(len(experiment.times)):
        if ax is None:
            figure = new_figure(4.6, 3.3)
            ax = figure.add_subplot()
            words = [] if experiment.problem is None else in_words(experiment.problem)
            put_title(figure, *words, _size(experiment))
        for name, (label, color) in LOSSES.items():
            steps, mean, error = _mean(experiment, name)
            if steps.size:
                draw_band(ax, steps, mean, error, color, label)
        log_axis(ax)
        ax.set_ylabel("mean squared residual")
        step_axis(ax, max(1, int(experiment.times[-1])))
        _legend(ax, [] if len(experiment.seeds) == 1 else [_error_key()])
        return figure_of(ax)


def plot_comparison(
    theory: Solution, experiment: Ensemble | Measured, comparison: Comparison | None = None, ax: Axes | None = None
) -> Figure:
    """Draw theory against experiment: losses, their z-scores, and the correlations of every layer.

    Of a single network there are no z-scores; its relative deviation from theory is drawn in their place.

    Parameters
    ----------
    theory, experiment
        The two to compare, of one problem.
    comparison
        Its verdict goes into the title if it is given.
    ax
        Axes to draw the losses into, and nothing else; a new figure with everything by default.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=20
    ... )
    >>> figure = plot_comparison(dl.solve(problem), dl.simulate(problem, dim=30, seeds=4))
    >>> len(figure.axes)
    4
    """
    with styled(theory.problem.steps):
        if ax is not None:
            _draw_losses(ax, theory, experiment)
            step_axis(ax, last_step(theory))
            return figure_of(ax)
        has_layers = getattr(experiment, "feature_correlation", None) is not None and theory.axis.has_two_time
        figure = new_figure(7.2 if has_layers else 4.6, 4.4)
        grid = figure.add_gridspec(6, 2 if has_layers else 1, width_ratios=[1.25, 1] if has_layers else [1])
        losses = figure.add_subplot(grid[:4, 0])
        scores = figure.add_subplot(grid[4:, 0], sharex=losses)
        _draw_losses(losses, theory, experiment)
        _draw_scores(scores, theory, experiment)
        step_axis(losses, last_step(theory), label=False)
        step_axis(scores, last_step(theory))
        if has_layers:
            features = figure.add_subplot(grid[:3, 1])
            gradients = figure.add_subplot(grid[3:, 1], sharex=features)
            draw_layers(features, theory, experiment, "feature_correlation", "features $C_h^\\ell(t, t)$")
            draw_layers(gradients, theory, experiment, "gradient_correlation", "gradients $C_g^\\ell(t, t)$")
            columns = math.ceil(len(labelled(features)) / 5)
            features.legend(title="layer $\\ell$", title_fontsize=7, loc="best", ncols=columns, handlelength=1.6)
            step_axis(features, last_step(theory), label=False)
            step_axis(gradients, last_step(theory))
        figure.align_ylabels()
        words = [*in_words(theory.problem), _size(experiment)]
        put_title(figure, *words, *([] if comparison is None else [_verdict(comparison)]))
        return figure


class _More(NamedTuple):
    """One of the losses of averaged weights, or of tasks."""

    name: str
    row: int
    label: str
    color: Any

    def of(self, solution: Solution) -> Array:
        """Its values."""
        values: Array = getattr(solution, self.name)[self.row]
        return values


def _more_losses(solution: Solution) -> list[_More]:
    averages = [f"test loss of {each}" for each in solution.solver.averages]
    tasks = [f"test loss on task {phase + 1}" for phase in range(len(solution.task_loss))]
    found = []
    for (name, map_name), labels in zip(_MORE.items(), (averages, tasks), strict=True):
        colors = matplotlib.colormaps[map_name](np.linspace(0.9, 0.5, max(len(labels), 1)))
        found += [_More(name, row, label, colors[row]) for row, label in enumerate(labels)]
    return found


def _verdict(comparison: Comparison) -> str:
    verdict = f"verdict: {comparison.verdict}, p = {comparison.p_value:.2g}"
    first = comparison.observables[0]
    least, name = first.max_detectable, first.name.replace("_", " ")
    return f"{verdict}, would detect an error of {percent(least)} in the {name}" if least < 1.0 else verdict


def _size(experiment: Ensemble | Measured) -> str:
    """Say how many networks there are, and how large."""
    count = len(experiment.seeds)
    of = "" if experiment.dim is None else f" of input dimension {experiment.dim}"
    return f"experiment: {counted(count, 'network')}{of}"


def _mean(experiment: Ensemble | Measured, name: str) -> tuple[NDArray[np.int64], Array, Array]:
    """Return the steps at which every network has a loss, its mean and the standard error of that."""
    steps, values = recorded(experiment, name)
    return steps, np.asarray(values.mean(axis=0)), standard_error(values)


def _draw_losses(ax: Axes, theory: Solution, experiment: Ensemble | Measured) -> None:
    for name, (label, color) in losses_of(theory, experiment).items():
        draw_pair(ax, theory.times, getattr(theory, name), *_mean(experiment, name), color, label)
    for more in () if experiment.has_only_losses else _more_losses(theory):
        if more.row < getattr(experiment, more.name).shape[1]:
            mean, error = (of(more.name)[more.row] for of in (experiment.mean, experiment.standard_error))
            draw_pair(ax, theory.times, more.of(theory), experiment.times, mean, error, more.color, more.label)
    log_axis(ax)
    mark_phases(ax, theory)
    ax.set_ylabel("mean squared residual")
    mark_divergence(ax, theory)
    mark_rounding(ax, theory)
    keys = [] if len(experiment.seeds) == 1 else [_error_key()]
    _legend(ax, [Line2D([], [], label="theory", **THEORY), *keys])


def _error_key() -> Patch:
    return Patch(color=BAND, label="± standard error")


def _legend(ax: Axes, more: list[Any]) -> None:
    ax.legend(handles=[*labelled(ax), *more], loc="best")


def _draw_scores(ax: Axes, theory: Solution, experiment: Ensemble | Measured) -> None:
    ax.axhline(0, color=INK, linewidth=0.6)
    if len(experiment.seeds) == 1:
        _draw_deviation(ax, theory, experiment)
        return
    ax.axhspan(-2, 2, color=BAND, alpha=0.6, linewidth=0)
    largest = 3.0
    for name, (_, color) in losses_of(theory, experiment).items():
        steps, mean, error = _mean(experiment, name)
        z = _z_scores(theory.at(steps)[name].values, mean, error)
        largest = max(largest, np.nanmax(np.abs(z), initial=0.0))
        ax.plot(steps, z, color=color, linewidth=1.4)
    ax.set_ylim(-1.08 * largest, 1.08 * largest)
    ax.set_ylabel("z-score")
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))


def _draw_deviation(ax: Axes, theory: Solution, experiment: Ensemble | Measured) -> None:
    """Relative deviation of a single network from theory."""
    for name, (_, color) in losses_of(theory, experiment).items():
        steps, mean, _error = _mean(experiment, name)
        ax.plot(steps, 100 * (drawable(mean) / drawable(theory.at(steps)[name].values) - 1), color=color, linewidth=1.4)
    ax.set_ylabel("deviation (%)")


def _z_scores(expected: Array, mean: Array, error: Array) -> Array:
    """Deviations in units of the standard error; nan where there is nothing but rounding."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (drawable(mean) - drawable(expected)) / error
        return np.where(np.isfinite(z) & (error > 1e-9 * np.abs(mean)), z, np.nan)


def losses_of(
    theory: Solution | Landscape, experiment: Ensemble | Measured | None = None
) -> dict[str, tuple[str, str]]:
    """Losses to draw: all that were measured; where no example is seen twice, the train loss is the test loss."""
    if experiment is not None and experiment.problem is None:  # measured elsewhere
        return {name: style for name, style in LOSSES.items() if recorded(experiment, name)[0].size}
    one_curve = np.array_equal(theory.train_loss, theory.test_loss)
    return {name: style for name, style in LOSSES.items() if name == "test_loss" or not one_curve}
