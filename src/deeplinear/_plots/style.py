"""How all pictures look: fonts, colours, axes, titles and files."""

import io
import math
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, MaxNLocator, NullFormatter, NullLocator

from deeplinear._core.files import PICTURES, write_atomically
from deeplinear._core.refusal import Refusal

SCREEN_DPI = 110
"""Resolution of pictures on a screen."""

THEORY: dict[str, Any] = {"color": "black", "linestyle": (0, (4, 2)), "linewidth": 1.1, "zorder": 3}
"""Look of what theory says."""

INK, BAND = "#444444", "#DDDDDD"
"""Colours of lines and bands that are not data."""

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


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a picture, in the format that the suffix of ``path`` names; a reader never sees half of it."""
    suffix = picture_suffix(path)
    dates = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # equal pictures, equal files
    with styled():
        write_atomically(path, lambda temporary: figure.savefig(temporary, metadata=dates[suffix]))


def picture_suffix(path: str | Path) -> str:
    """Return the suffix of ``path`` if it names a format that can be written."""
    suffix = Path(path).suffix.lower()
    if suffix not in PICTURES:
        raise Refusal("a picture", str(path), f"in {' or '.join(PICTURES)}", verb="end")
    return suffix


_FEWEST_TICKS = 3
_DIGITS: tuple[tuple[float, ...], ...] = (
    (1, 2, 5),
    (1, 2, 3, 5),
    (1, 1.5, 2, 3, 4, 5, 7),
    (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9),
    tuple(digit / 10 for digit in range(10, 100)),
)
"""Digits of round numbers, coarse to fine."""


@contextmanager
def styled(steps: int | None = None) -> Iterator[None]:
    """Set the look of everything made inside, and of nothing else; a single step is a point, not a line."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        if steps == 1:
            matplotlib.rcParams["lines.marker"] = "o"
        yield


def theory_in(color: Any) -> dict[str, Any]:
    """Look of what theory says of networks that are drawn in a colour: a dark shade of it, to be seen on their line.

    Examples
    --------
    >>> theory_in((1.0, 0.5, 0.0))["color"]
    (0.5, 0.25, 0.0)
    """
    red, green, blue = to_rgb(color)
    return THEORY | {"color": (red / 2, green / 2, blue / 2)}


class Picture(Figure):
    """A figure that notebooks show also where ``matplotlib.pyplot`` was not imported."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        with styled():
            self.savefig(content, format="png", dpi=SCREEN_DPI)
        return content.getvalue()


def new_figure(width: float, height: float) -> Picture:
    """Return an empty figure."""
    figure = Picture(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def figure_of(ax: Axes) -> Figure:
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure


def put_title(figure: Figure, *parts: str) -> None:
    """Write the parts above everything else, as many on a line as have room."""
    room = int(16 * figure.get_figwidth())  # letters on a line
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 2 <= room:
            lines[-1] += f"; {part}"
        else:
            lines += textwrap.wrap(part, room)
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=8, linespacing=1.4)


def labelled(ax: Axes) -> list[Line2D]:
    return [line for line in ax.get_lines() if not str(line.get_label()).startswith("_")]


_LARGEST = 1e280
"""Where a logarithmic axis ends, so that its margins are numbers."""

_FAR = 1e100
"""From where on ticks beyond the ends of an axis may not be numbers."""


def log_axis(ax: Axes) -> None:
    """Logarithmic values: plain numbers if they span little, powers of ten otherwise."""
    low, high = ax.dataLim.intervaly
    if high > _LARGEST or 0.0 < low < 1.0 / _LARGEST:  # margins would leave the range of numbers
        low = low if low > 0.0 else high / _LARGEST
        ax.set_ylim(max(low, 1.0 / _LARGEST) / 10.0, min(high, _LARGEST) * 10.0)
    ax.set_yscale("log")
    log_ticks(ax.yaxis, *ax.get_ylim())


def log_ticks(axis: Axis, low: float, high: float) -> None:
    """Mark a logarithmic axis that goes from ``low`` to ``high``: plain numbers if that is little, or powers of ten."""
    decades = math.log10(high) - math.log10(low)
    if decades < 3.0:
        axis.set_major_locator(_PlainTicks())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif high > _FAR or low < 1.0 / _FAR:  # the usual ticks go on beyond the ends of the axis
        powers = np.linspace(math.ceil(math.log10(low)), math.floor(math.log10(high)), 6)
        axis.set_major_locator(FixedLocator((10.0 ** np.unique(powers.round())).tolist()))
        axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


class _PlainTicks(Locator):
    """Ticks at round numbers, wherever a logarithmic axis begins and ends."""

    def __call__(self) -> list[float]:
        assert self.axis is not None
        return self.tick_values(*self.axis.get_view_interval())

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        """Return the ticks between two values."""
        return plain_ticks(min(vmin, vmax), max(vmin, vmax))


def plain_ticks(low: float, high: float) -> list[float]:
    """Return round numbers from ``low`` to ``high``, as few as three or more.

    Examples
    --------
    >>> plain_ticks(0.095, 0.19), plain_ticks(0.5, 30.0), plain_ticks(0.4, 0.45)
    ([0.1, 0.12, 0.14, 0.16, 0.18], [0.5, 1.0, 2.0, 5.0, 10.0, 20.0], [0.4, 0.41, 0.42, 0.43, 0.44, 0.45])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in _DIGITS:
        marks = [float(f"{digit * 10.0**power:.6g}") for power in powers for digit in digits]
        inside = [mark for mark in marks if low <= mark <= high]
        if len(inside) >= _FEWEST_TICKS:
            return inside
    return [float(each) for each in MaxNLocator(4).tick_values(low, high) if low <= each <= high]
