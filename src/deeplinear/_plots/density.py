"""Pictures of the density of a spectrum."""

from collections.abc import Iterable
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deeplinear._core.refusal import Refusal
from deeplinear._geometry.sharpness import Sharpness
from deeplinear._plots.geometry import NAMES, axes_of
from deeplinear._plots.style import figure_of, styled


def plot_density(sharpness: Sharpness, steps: int | Iterable[int] | None = None, ax: Axes | None = None) -> Figure:
    """Draw the density of the spectrum, as seen from where the iteration began, at some steps.

    Each Ritz value is a tick below the curve, which is smoothed over what their number resolves.

    Parameters
    ----------
    sharpness
        What to draw.
    steps
        One or more of its ``times``; the first, the middle and the last of those that are known by default.
    ax
        Axes to draw into; a new figure by default.

    Returns
    -------
    Figure
        What was drawn into.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=20
    ... )
    >>> figure = plot_density(dl.sharpness(problem, at=[0, 19]))
    >>> figure.axes[0].get_legend_handles_labels()[1]
    ['step 0', 'step 19']
    """
    with styled():
        shown = _steps(sharpness, steps)
        ax = axes_of(sharpness, ax)
        ritz = [sharpness.ritz_values[sharpness.times == step][0] for step in shown]
        room = 0.15 * (np.nanmax(ritz) - np.nanmin(ritz)) or 1.0
        grid = np.linspace(np.nanmin(ritz) - room, np.nanmax(ritz) + room, 600)
        colors = matplotlib.colormaps["cividis"](np.linspace(0.1, 0.85, len(shown)))
        lines: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "linestyle": "none", "clip_on": False}
        for place, (step, values, color) in enumerate(zip(shown, ritz, colors, strict=True)):
            ax.plot(grid, sharpness.density(step, grid), color=color, linewidth=1.6, label=f"step {step}")
            below = np.full_like(values, -0.04 * (place + 1))
            ax.plot(values, below, marker="|", markersize=6, color=color, **lines)
        ax.set_xlim(grid[0], grid[-1])
        ax.set_ylim(bottom=0.0)
        ax.tick_params(axis="x", pad=4 + 8 * len(shown))
        ax.set_xlabel(NAMES[sharpness.operator])
        ax.set_ylabel("density seen from the gradient")
        ax.legend(loc="best")
        return figure_of(ax)


def _steps(sharpness: Sharpness, steps: int | Iterable[int] | None) -> list[int]:
    """Return the steps whose density is drawn."""
    known = sharpness.times[np.isfinite(sharpness.ritz_values[:, 0])].tolist()
    if steps is None:
        wanted = sorted({known[0], known[len(known) // 2], known[-1]}) if known else []
    else:
        wanted = list(steps) if isinstance(steps, Iterable) else [steps]
    if not wanted or not set(wanted) <= set(known):
        raise Refusal("steps", steps, f"one or more of {known}")
    return wanted
