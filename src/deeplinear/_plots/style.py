"""How all pictures look: fonts, colours, axes, titles and files."""

import io
import math
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

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


def log_axis(ax: Axes) -> None:
    """Logarithmic values: plain numbers if they span little, powers of ten otherwise."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    decades = math.log10(high / low)
    if decades < 2.5:
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5) if decades < 1 else (1, 2, 5)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
