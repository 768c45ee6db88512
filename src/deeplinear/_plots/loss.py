"""Pictures of solutions and comparisons: theory dashed, experiment solid with a standard-error band."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from deeplinear._core.files import write_atomically
from deeplinear._experiment.ensemble import Ensemble
from deeplinear._problem.problem import Problem
from deeplinear._theory.solution import PARTS, Solution

if TYPE_CHECKING:
    from deeplinear._comparison.compare import Comparison

Array = NDArray[np.float64]

FORMATS = (".png", ".svg", ".pdf")
"""File formats of pictures."""

# Okabe and Ito's colours, which colour-blind readers can tell apart; these also differ in grey.
_LOSSES = {"test_loss": ("test loss", "#0072B2"), "train_loss": ("train loss", "#E69F00")}
_PARTS: dict[str, dict[str, Any]] = {
    "bias": {"color": "#000000", "linestyle": (0, (1, 1))},
    "width": {"color": "#009E73", "linestyle": (0, (5, 1, 1, 1))},
    "data": {"color": "#CC79A7", "linestyle": (0, (3, 1, 1, 1, 1, 1))},
    "label_noise": {"color": "#999999", "linestyle": "solid"},
}
_THEORY: dict[str, Any] = {"color": "black", "linestyle": (0, (4, 2)), "linewidth": 1.1, "zorder": 3}
_DECADE = 10.0
_INK, _BAND = "#444444", "#DDDDDD"
_ROUNDING = 1e-9
"""Values this far below those at the start are left out of the picture: rounding, not training."""

_KINDS = {
    "FullBatch": "full batch",
    "OnlineSGD": "online SGD",
    "MultiPassSGD": "multi-pass SGD",
    "PowerLaw": "power law",
}
_SPELLED = {"mup": "muP", "ntk": "NTK", "depth-mup": "depth-muP", "none": "unscaled"}

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 7,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.8,
    "legend.handlelength": 2.4,
    "lines.linewidth": 2.2,
    "lines.solid_capstyle": "round",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "savefig.dpi": 200,
    "svg.fonttype": "none",
    "svg.hashsalt": "deeplinear",
    "text.usetex": False,
}


def plot_solution(solution: Solution, ax: Axes | None = None) -> Figure:
    """Draw the losses that theory predicts and the parts of the test loss, over training steps.

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
    with _style(solution.problem.steps):
        if ax is None:
            figure = _new_figure(4.6, 3.3)
            ax = figure.add_subplot()
            _title(figure, *in_words(solution.problem))
        for name, (label, color) in _losses(solution).items():
            style = _THEORY | {"color": color, "linewidth": 1.8}
            ax.plot(solution.times, _drawable(getattr(solution, name)), label=label, **style)
        for part in PARTS:
            values = _drawable(getattr(solution.decomposition, part))
            if np.isfinite(values).any():
                label = "noise of test labels" if part == "label_noise" else f"{part} part of test loss"
                ax.plot(solution.times, values, linewidth=0.9, label=label, **_PARTS[part])
        _log_axis(ax)
        ax.set_ylabel("mean squared residual")
        _step_axis(ax, solution)
        _mark_divergence(ax, solution)
        ax.legend(loc="best", ncols=2)
        return _figure_of(ax)


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
    with _style(theory.problem.steps):
        has_layers = experiment.feature_correlation is not None and theory.axis.has_two_time
        figure = _new_figure(7.2 if has_layers else 4.6, 4.4)
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
            columns = math.ceil(len(_labelled(features)) / 5)
            features.legend(title="layer $\\ell$", title_fontsize=7, loc="best", ncols=columns, handlelength=1.6)
            _step_axis(features, theory, label=False)
            _step_axis(gradients, theory)
        figure.align_ylabels()
        size = f"experiment: {len(experiment.seeds)} networks of input dimension {experiment.dim}"
        _title(figure, *in_words(theory.problem), size, *([] if comparison is None else [_verdict(comparison)]))
        return figure


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a picture, in the format that the suffix of ``path`` names; a reader never sees half of it."""
    suffix = picture_suffix(path)
    dates = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # equal pictures, equal files
    with _style():
        write_atomically(path, lambda temporary: figure.savefig(temporary, metadata=dates[suffix]))


def picture_suffix(path: str | Path) -> str:
    """Return the suffix of ``path`` if it names a format that can be written."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"a picture must end in {' or '.join(FORMATS)}, got {str(path)!r}")
    return suffix


def in_words(problem: Problem) -> list[str]:
    """Describe network, data with sampling, and optimizer, each in a few words.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=3, width=0.5), dl.GradientDescent(lr=0.05, momentum=0.9)
    >>> for words in in_words(dl.Problem(network, dl.Isotropic(0.3), dl.FullBatch(2.0), optimizer, steps=10)):
    ...     print(words)
    MLP, depth 3, width 0.5, richness 1, muP
    full batch, samples 2, noise 0.3
    lr 0.05, momentum 0.9, 10 steps
    """
    sampling, data = problem.sampling, problem.data
    outputs = [f"{data.outputs} outputs"] if data.outputs > 1 else []
    return [
        ", ".join([type(problem.network).__name__, *_fields_in_words(problem.network)]),
        ", ".join([*_kind(sampling), *_fields_in_words(sampling), *_kind(data), *_fields_in_words(data), *outputs]),
        ", ".join([*_fields_in_words(problem.optimizer), f"{problem.steps} steps"]),
    ]


def _kind(part: Any) -> list[str]:
    """Say what a part is, if it is not what is usual."""
    name = type(part).__name__
    return [] if name == "Isotropic" else [_KINDS.get(name, name.lower())]


def _fields_in_words(part: Any) -> Iterator[str]:
    """Fields of a part; options that are off or absent, and matrices, are left out."""
    for field in fields(part):
        value, name = getattr(part, field.name), field.name.replace("_", " ")
        if not field.init or value is None or value is False or (value == 0 and field.default == 0):
            continue
        if value is True:
            yield name
        elif isinstance(value, str):
            yield f"{value} {name}" if name == "width" else _SPELLED.get(value, value)
        elif isinstance(value, tuple) and not isinstance(value[0], tuple):
            yield f"{name} {_short(value)}"
        elif callable(value):
            yield f"{name} schedule"
        elif not isinstance(value, tuple):
            yield f"{name} {value:g}"


def _short(values: tuple[float, ...]) -> str:
    if len(values) > 5:
        return f"{values[0]:g} .. {values[-1]:g}"
    return "/".join(f"{value:g}" for value in values)


@contextmanager
def _style(steps: int | None = None) -> Iterator[None]:
    """Set the look of everything made inside, and of nothing else; a single step is a point, not a line."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        if steps == 1:
            matplotlib.rcParams["lines.marker"] = "o"
        yield


def _new_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _figure_of(ax: Axes) -> Figure:
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure


def _title(figure: Figure, *parts: str) -> None:
    """Write the parts above everything else, as many on a line as have room."""
    room = int(16 * figure.get_figwidth())  # letters on a line
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 2 <= room:
            lines[-1] += f"; {part}"
        else:
            lines += textwrap.wrap(part, room)
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=8, linespacing=1.4)


def _verdict(comparison: Comparison) -> str:
    verdict = f"verdict: {comparison.verdict}, p = {comparison.p_value:.2g}"
    least = comparison["test_loss"].max_detectable
    return f"{verdict}, would notice a test loss off by {100 * least:.2g} %" if math.isfinite(least) else verdict


def _draw_losses(ax: Axes, theory: Solution, experiment: Ensemble) -> None:
    for name, (label, color) in _losses(theory).items():
        mean, error = experiment.mean(name), experiment.standard_error(name)
        _draw_pair(ax, theory.times, getattr(theory, name), experiment.times, mean, error, color, label)
    _log_axis(ax)
    ax.set_ylabel("mean squared residual")
    _mark_divergence(ax, theory)
    keys = [Line2D([], [], label="theory", **_THEORY), Patch(color=_BAND, label="± standard error")]
    ax.legend(handles=[*_labelled(ax), *keys], loc="best")


def _draw_scores(ax: Axes, theory: Solution, experiment: Ensemble) -> None:
    ax.axhspan(-2, 2, color=_BAND, alpha=0.6, linewidth=0)
    ax.axhline(0, color=_INK, linewidth=0.6)
    largest = 3.0
    for name, (_, color) in _losses(theory).items():
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
        _log_axis(ax)
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
    ax.plot(nodes, expected, **_THEORY)


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


def _losses(theory: Solution) -> dict[str, tuple[str, str]]:
    """Losses to draw: where no example is seen twice, the train loss is the test loss."""
    one_curve = np.array_equal(theory.train_loss, theory.test_loss)
    return {name: style for name, style in _LOSSES.items() if name == "test_loss" or not one_curve}


def _labelled(ax: Axes) -> list[Line2D]:
    return [line for line in ax.get_lines() if not str(line.get_label()).startswith("_")]


def _log_axis(ax: Axes) -> None:
    """Logarithmic values: plain numbers if they span little, powers of ten otherwise."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    decades = math.log10(high / low)
    if decades < 2.5:
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5) if decades < 1 else (1, 2, 5)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


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


def _mark_divergence(ax: Axes, theory: Solution) -> None:
    if theory.status.diverged_at is not None:
        ax.axvline(theory.status.diverged_at, color=_INK, linestyle=":", linewidth=0.9)
        ax.set_title(f"theory: {theory.status}")
