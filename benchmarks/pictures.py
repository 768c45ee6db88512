"""Pictures of the benchmarks, in the style of the package's own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from deeplinear._plots.style import BAND, INK, log_axis, new_figure, save_figure, styled

__all__ = ["BAND", "COLORS", "INK", "log_axis", "picture", "sizes_axis"]

IMAGES = Path(__file__).parent / "images"
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""


@contextmanager
def picture(name: str, panels: int = 1) -> Iterator[list[Axes]]:
    """Give axes, two in a row, to draw into; then write ``images/<name>.png``."""
    IMAGES.mkdir(exist_ok=True)
    with styled():
        columns, rows = min(panels, 2), -(-panels // 2)
        figure = new_figure(0.4 + 2.9 * columns, 2.6 * rows)
        yield list(np.ravel(figure.subplots(rows, columns)))
        save_figure(figure, IMAGES / f"{name}.png")


def sizes_axis(axis: Axis, sizes: Sequence[float]) -> None:
    """Make an axis logarithmic, with ticks at the sizes that were measured, as far as there is room."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    log = np.log(sizes)
    shown = [log[0]]
    for each in log[1:]:
        if abs(each - shown[-1]) > 0.13 * abs(log[-1] - log[0]):
            shown.append(each)
    axis.set_major_locator(FixedLocator(np.exp(shown)))
    axis.set_minor_locator(FixedLocator(sizes))
    axis.set_major_formatter(
        FuncFormatter(lambda size, _: f"{size:.4g}" if size < 1e4 else f"$10^{{{np.log10(size):.0f}}}$")
    )
    axis.set_minor_formatter(NullFormatter())
