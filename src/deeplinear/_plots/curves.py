"""What pictures over training steps have in common: the axis of steps, curves with their bands, marks."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter
from numpy.typing import NDArray

from deeplinear._plots.style import INK, THEORY
from deeplinear._theory.solution import Solution
from deeplinear._theory.status import Status

Array = NDArray[np.float64]

_ROUNDING = 1e-9
"""Values this far below those at the start are left out of the picture: rounding, not training."""

_EVERY = 8
"""Up to so many steps each has its number on the axis."""

_FEW = 25
"""Up to so many recorded steps each has a mark."""


def draw_pair(
    ax: Axes,
    nodes: NDArray[Any],
    expected: Array,
    steps: NDArray[np.int64],
    mean: Array,
    error: Array,
    color: Any,
    label: str,
) -> None:
    """Draw one observable: experiment solid with its band, theory dashed over it."""
    draw_band(ax, steps, mean, error, color, label)
    ax.plot(nodes, drawable(expected), **THEORY)


def draw_band(ax: Axes, steps: NDArray[np.int64], mean: Array, error: Array, color: Any, label: str) -> None:
    """Draw a mean over networks, and its standard error as a band; marks where few steps were recorded."""
    mean = drawable(mean)
    marks: dict[str, Any] = (
        {"marker": "o", "markersize": 3.5} if 1 < len(steps) <= _FEW and np.diff(steps).max() > 1 else {}
    )
    ax.plot(steps, mean, color=color, label=label, **marks)
    low, high = np.maximum(mean - error, 1e-2 * mean), mean + error  # a band down to zero has no place on a log axis
    ax.fill_between(steps, low, high, color=color, alpha=0.25, linewidth=0)


def drawable(values: Array) -> Array:
    """Return what a log axis can show: nan for the rest, and for what is rounding beside the first or largest value."""
    finite = np.where(np.isfinite(values), values, np.nan)
    largest = np.nanmax(finite, initial=0.0)
    scale = min(largest, finite[0]) if finite[0] > 0 else largest
    return np.where(finite > _ROUNDING * scale, finite, np.nan)


def last_step(theory: Solution) -> int:
    """Return where a picture ends: with the run, or some time after a divergence."""
    last = max(1, theory.problem.steps - 1)
    if theory.status.diverged_at is not None:
        last = min(last, max(10, 2 * theory.status.diverged_at))
    return last


def step_axis(ax: Axes, last: int, label: bool = True) -> None:
    """Draw steps from 0 to the last, at log(t + 1): logarithmic late, and smooth down to step 0."""
    ax.set_xscale("function", functions=(_log1p, np.expm1))
    ax.set_xlim(0, last)
    coarse = [10**k for k in range(math.floor(math.log10(last)) + 1)]
    some = sorted({m * power for power in coarse for m in (1, 3) if m * power <= last})
    ticks = list(range(1, last + 1)) if last <= _EVERY else coarse if len(coarse) > 4 else some
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


def mark_phases(ax: Axes, theory: Solution) -> None:
    """Draw a line where a phase begins."""
    for stage in theory.problem.stages[1:]:
        ax.axvline(stage.start, color=INK, linewidth=0.5, alpha=0.5)


def mark_divergence(ax: Axes, theory: Solution) -> None:
    """Draw a line where theory diverges, and say so."""
    if theory.status.diverged_at is not None:
        ax.axvline(theory.status.diverged_at, color=INK, linestyle=":", linewidth=0.9)
        ax.set_title(f"theory: {Status(theory.status.diverged_at)}")  # the legend has what rounding errors do


def mark_rounding(ax: Axes, theory: Solution) -> None:
    """Draw a line where rounding errors have grown into the losses, with an entry for the legend."""
    at = theory.status.rounding_at
    if at is not None:
        label = f"rounding errors from step {at} on"
        ax.axvline(at, color="#D55E00", linestyle=(0, (4, 2)), linewidth=0.9, label=label)
