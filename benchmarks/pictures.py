"""Pictures of the benchmarks, in the style of the package's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from deeplinear._plot import _BAND as BAND
from deeplinear._plot import _INK as INK
from deeplinear._plot import _new_figure, _style, save_figure

__all__ = ["BAND", "COLORS", "INK", "picture", "power"]

IMAGES = Path(__file__).parent / "images"
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""


@contextmanager
def picture(name: str, panels: int = 1) -> Iterator[list[Axes]]:
    """Give axes side by side to draw into, then write ``images/<name>.png``."""
    IMAGES.mkdir(exist_ok=True)
    with _style():
        figure = _new_figure(0.4 + 2.9 * panels, 2.7)
        yield list(np.atleast_1d(figure.subplots(1, panels)))
        save_figure(figure, IMAGES / f"{name}.png")


def power(ax: Axes, sizes: list[float], last: float, exponent: float, label: str) -> None:
    """Draw a thin line of the given slope that ends at a point of a curve."""
    ends = np.array([sizes[0], sizes[-1]], dtype=float)
    ax.plot(ends, last * (ends / ends[-1]) ** exponent, color=INK, linewidth=0.7, linestyle=":", label=label)
