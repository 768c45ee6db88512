"""Pictures of solutions and comparisons: theory dashed, experiment solid with a standard-error band."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from deeplinear._experiment.ensemble import Ensemble
from deeplinear._plots.style import BAND, INK, THEORY, figure_of, labelled, log_axis, new_figure, put_title, styled
from deeplinear._plots.words import in_words
from deeplinear._theory.solution import PARTS, Solution

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
_DECADE = 10.0
_ROUNDING = 1e-9
"""Values this far below those at the start are left out of the picture: rounding, not training."""


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
        if ax is None:
            figure = new_figure(4.6, 3.3)
            ax = figure.add_subplot()
            put_title(figure, *in_words(solution.problem))
        for name, (label, color) in losses_of(solution).items():
            style = THEORY | {"color": color, "linewidth": 1.8}
            ax.plot(solution.times, _drawable(getattr(solution, name)), label=label, **style)
        more = _more_losses(solution)
        for each in more:
            ax.plot(solution.times, _drawable(each.of(solution)), color=each.color, linewidth=1.2, label=each.label)
        for part in () if more else PARTS:
            values = _drawable(getattr(solution.decomposition, part))
            if np.isfinite(values).any():
                label = "noise of test labels" if part == "label_noise" else f"{part} part of test loss"
                ax.plot(solution.times, values, linewidth=0.9, label=label, **_PARTS[part])
        log_axis(ax)
        ax.set_ylabel("mean squared residual")
        _step_axis(ax, solution)
        _mark_phases(ax, solution)
        _mark_divergence(ax, solution)
        ax.legend(loc="best", ncols=2)
        return figure_of(ax)


def plot_comparison(theory: Solution, experiment: Ensemble, comparison: Comparison | None = None) -> Figure:
    """Draw theory against experiment: losses, their z-scores, and the correlations of every layer.

    Parameters
    ----------
    theory, experiment
        The two to compare, of one problem.
    comparison
        Its verdict goes into the title if it is given.

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
        has_layers = experiment.feature_correlation is not None and theory.axis.has_two_time
        figure = new_figure(7.2 if has_layers else 4.6, 4.4)
        grid = figure.add_gridspec(6, 2 if has_layers else 1, width_ratios=[1.25, 1] if has_layers else [1])
        losses = figure.add_subplot(grid[:4, 0])
        scores = figure.add_subplot(grid[4:, 0], sharex=losses)
        _draw_losses(losses, theory, experiment)
        _draw_scores(scores, theory, experiment)
        _step_axis(losses, theory, label=False)
        _step_axis(scores, theory)
        if has_layers:
            features = figure.add_subplot(grid[:3, 1])
            gradients = figure.add_subplot(grid[3:, 1], sharex=features)
            _draw_layers(features, theory, experiment, "feature_correlation", 0, "features $C_h^\\ell(t, t)$")
            _draw_layers(gradients, theory, experiment, "gradient_correlation", 1, "gradients $C_g^\\ell(t, t)$")
            columns = math.ceil(len(labelled(features)) / 5)
            features.legend(title="layer $\\ell$", title_fontsize=7, loc="best", ncols=columns, handlelength=1.6)
            _step_axis(features, theory, label=False)
            _step_axis(gradients, theory)
        figure.align_ylabels()
        size = f"experiment: {len(experiment.seeds)} networks of input dimension {experiment.dim}"
        put_title(figure, *in_words(theory.problem), size, *([] if comparison is None else [_verdict(comparison)]))
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
    averages = [f"test loss of {each}" for each in getattr(solution.solver, "averages", ())]
    tasks = [f"test loss on task {phase + 1}" for phase in range(len(solution.task_loss))]
    found = []
    for (name, map_name), labels in zip(_MORE.items(), (averages, tasks), strict=True):
        colors = matplotlib.colormaps[map_name](np.linspace(0.9, 0.5, max(len(labels), 1)))
        found += [_More(name, row, label, colors[row]) for row, label in enumerate(labels)]
    return found


def _verdict(comparison: Comparison) -> str:
    verdict = f"verdict: {comparison.verdict}, p = {comparison.p_value:.2g}"
    least = comparison["test_loss"].max_detectable
    return f"{verdict}, would notice a test loss off by {100 * least:.2g} %" if math.isfinite(least) else verdict


def _draw_losses(ax: Axes, theory: Solution, experiment: Ensemble) -> None:
    for name, (label, color) in losses_of(theory).items():
        mean, error = experiment.mean(name), experiment.standard_error(name)
        _draw_pair(ax, theory.times, getattr(theory, name), experiment.times, mean, error, color, label)
    for more in _more_losses(theory):
        if more.row < getattr(experiment, more.name).shape[1]:
            mean, error = (of(more.name)[more.row] for of in (experiment.mean, experiment.standard_error))
            _draw_pair(ax, theory.times, more.of(theory), experiment.times, mean, error, more.color, more.label)
    log_axis(ax)
    _mark_phases(ax, theory)
    ax.set_ylabel("mean squared residual")
    _mark_divergence(ax, theory)
    keys = [Line2D([], [], label="theory", **THEORY), Patch(color=BAND, label="± standard error")]
    ax.legend(handles=[*labelled(ax), *keys], loc="best")


def _draw_scores(ax: Axes, theory: Solution, experiment: Ensemble) -> None:
    ax.axhspan(-2, 2, color=BAND, alpha=0.6, linewidth=0)
    ax.axhline(0, color=INK, linewidth=0.6)
    largest = 3.0
    for name, (_, color) in losses_of(theory).items():
        expected = theory.at(experiment.times)[name].values
        z = _z_scores(expected, experiment.mean(name), experiment.standard_error(name))
        largest = max(largest, np.nanmax(np.abs(z), initial=0.0))
        ax.plot(experiment.times, z, color=color, linewidth=1.4)
    ax.set_ylim(-1.08 * largest, 1.08 * largest)
    ax.set_ylabel("z-score")
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))


def _draw_layers(ax: Axes, theory: Solution, experiment: Ensemble, name: str, first: int, title: str) -> None:
    """Equal-time correlations of each layer from ``first`` on, averaged over outputs; dark to light."""
    outputs = theory.problem.data.outputs
    curves = (getattr(theory, name), experiment.mean(name), experiment.standard_error(name))
    expected, mean, error = (_equal_times(values, outputs) for values in curves)
    colors = matplotlib.colormaps["cividis"](np.linspace(0.2, 0.95, first + len(expected)))
    for layer, (ours, theirs, band) in enumerate(zip(expected, mean, error, strict=True), start=first):
        _draw_pair(ax, theory.times, ours, experiment.times, theirs, band, colors[layer], f"{layer}")
    shown = np.stack([_drawable(curve) for curve in expected])
    if np.nanmax(shown, initial=1.0) > _DECADE * np.nanmin(shown, initial=1.0):
        log_axis(ax)
    ax.set_ylabel(title)


def _draw_pair(
    ax: Axes,
    nodes: NDArray[Any],
    expected: Array,
    steps: NDArray[np.int64],
    mean: Array,
    error: Array,
    color: Any,
    label: str,
) -> None:
    """One observable: experiment solid with its band, theory dashed over it."""
    mean, expected = _drawable(mean), _drawable(expected)
    ax.plot(steps, mean, color=color, label=label)
    low, high = np.maximum(mean - error, 1e-2 * mean), mean + error  # a band down to zero has no place on a log axis
    ax.fill_between(steps, low, high, color=color, alpha=0.25, linewidth=0)
    ax.plot(nodes, expected, **THEORY)


def _drawable(values: Array) -> Array:
    """What a log axis can show: nan for the rest, and for what is rounding beside the first or largest value."""
    finite = np.where(np.isfinite(values), values, np.nan)
    largest = np.nanmax(finite, initial=0.0)
    scale = min(largest, finite[0]) if finite[0] > 0 else largest
    return np.where(finite > _ROUNDING * scale, finite, np.nan)


def _z_scores(expected: Array, mean: Array, error: Array) -> Array:
    """Deviations in units of the standard error; nan where there is nothing but rounding."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (_drawable(mean) - _drawable(expected)) / error
        return np.where(np.isfinite(z) & (error > 1e-9 * np.abs(mean)), z, np.nan)


def _equal_times(matrices: Array, outputs: int) -> Array:
    """Diagonals over time, averaged over outputs: (layers, n, n) to (layers, T)."""
    diagonals = np.diagonal(matrices, axis1=-2, axis2=-1)
    return np.asarray(diagonals.reshape(len(matrices), -1, outputs).mean(axis=-1))


def losses_of(theory: Solution | Landscape) -> dict[str, tuple[str, str]]:
    """Losses to draw: where no example is seen twice, the train loss is the test loss."""
    one_curve = np.array_equal(theory.train_loss, theory.test_loss)
    return {name: style for name, style in LOSSES.items() if name == "test_loss" or not one_curve}


def _step_axis(ax: Axes, theory: Solution, label: bool = True) -> None:
    """Steps from 0 on, at log(t + 1): logarithmic late, and smooth down to step 0."""
    ax.set_xscale("function", functions=(_log1p, np.expm1))
    last = max(1, theory.problem.steps - 1)
    if theory.status.diverged_at is not None:
        last = min(last, max(10, 2 * theory.status.diverged_at))
    ax.set_xlim(0, last)
    coarse = [10**k for k in range(math.floor(math.log10(last)) + 1)]
    ticks = coarse if len(coarse) > 4 else sorted({m * power for power in coarse for m in (1, 3) if m * power <= last})
    ax.xaxis.set_major_locator(FixedLocator([0, *ticks]))
    ax.xaxis.set_minor_locator(FixedLocator([m * power for power in coarse for m in range(2, 10) if m * power <= last]))
    ax.xaxis.set_major_formatter(
        FuncFormatter(lambda step, _: f"{step:g}" if step < 1e5 else f"$10^{{{math.log10(step):.0f}}}$")
    )
    ax.xaxis.set_minor_formatter(NullFormatter())
    if label:
        ax.set_xlabel("training step $t$")
    else:
        ax.tick_params(labelbottom=False)


def _log1p(step: Array) -> Array:
    """log(1 + t), also where a margin of the axis asks for t below zero."""
    return np.asarray(np.log1p(np.maximum(step, -0.9)))


def _mark_phases(ax: Axes, theory: Solution) -> None:
    for stage in theory.problem.stages[1:]:
        ax.axvline(stage.start, color=INK, linewidth=0.5, alpha=0.5)


def _mark_divergence(ax: Axes, theory: Solution) -> None:
    if theory.status.diverged_at is not None:
        ax.axvline(theory.status.diverged_at, color=INK, linestyle=":", linewidth=0.9)
        ax.set_title(f"theory: {theory.status}")
