"""A picture of a sweep: the test loss at the last step against one field, a curve for each value of another."""

from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import NDArray

from deeplinear._core.refusal import Refusal
from deeplinear._plots.style import (
    THEORY,
    figure_of,
    labelled,
    log_axis,
    log_ticks,
    new_figure,
    put_title,
    styled,
    theory_in,
)
from deeplinear._plots.words import in_words
from deeplinear._problem.edit import about_field
from deeplinear._problem.problem import Problem

if TYPE_CHECKING:
    import xarray as xr

Array = NDArray[np.float64]

KIND = "deeplinear.Sweep"
"""What the data set of a sweep says it is."""

_MARKERS = "osD^vPXp"

_ROUNDING = "rounding errors"
"""What the legend calls losses into which these have grown."""


def is_sweep(result: Any) -> bool:
    """Whether this is the data set of a sweep."""
    return getattr(result, "attrs", {}).get("kind") == KIND


def plot_sweep(found: "xr.Dataset", ax: Axes | None = None) -> Figure:
    """Draw the test loss at the last step: against the last field of the grid, a curve for each value of the first.

    Theory is dashed; networks have marks, and their standard error. Points that diverged are left out, and losses into
    which rounding errors have grown are crosses beside the curves.

    Raises
    ------
    ValueError
        If the grid has more than two fields: choose values of the others first, with ``sel`` or ``isel``.
    """
    fields = [str(name) for name in _losses(found).dims if name != "time"]
    if not 1 <= len(fields) <= 2:
        text = f"a picture has one or two fields, this sweep {len(fields)} ({', '.join(fields)}): choose with sel first"
        raise Refusal("result", fields, "a sweep over one or two fields", text=text)
    with styled():
        problem = Problem.from_toml(found.attrs["problem"])
        place: dict[str, Any] = {"loc": "best"}
        if ax is None:
            figure, place = new_figure(5.4, 3.3), {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
            ax = figure.add_subplot()
            put_title(figure, *in_words(problem, fields))
        x, others = fields[-1], found[fields[0]].values if len(fields) == 2 else [None]
        colors = matplotlib.colormaps["cividis"](np.linspace(0.05, 0.92, len(others)))
        for index, value in enumerate(others):
            curve = found if value is None else found.isel({fields[0]: index})
            label = "" if value is None else f"{_name(problem, fields[0])} {_short(value)}"
            _draw(ax, curve, x, colors[index], label, _MARKERS[index % len(_MARKERS)])
        _axes(ax, found, problem, x)
        is_theory = "test_loss" in found
        both = is_theory and "measured_test_loss" in found
        keys = [*labelled(ax), *([Line2D([], [], label="theory", **THEORY)] if both else [])]
        title = "theory" if is_theory and not both else None
        if keys:
            ax.legend(handles=keys, title=title, title_fontsize=7, **place)
        return figure_of(ax)


def _losses(found: "xr.Dataset") -> Any:
    return found["test_loss" if "test_loss" in found else "measured_test_loss"]


def _name(problem: Problem, field: str) -> str:
    return about_field(problem, field).label.lower()


def _short(value: Any) -> str:
    if not isinstance(value, float | int | np.number):
        return str(value)
    return "∞" if np.isinf(value) else f"{value:g}"


def _last(curves: Any) -> Array:
    """Loss at the last step of each curve; shorter ones are filled up with nan."""
    values = np.moveaxis(curves.values, curves.dims.index("time"), -1)
    known = ~np.isnan(values)
    last = values.shape[-1] - 1 - known[..., ::-1].argmax(axis=-1)
    final = np.take_along_axis(values, last[..., None], axis=-1)[..., 0]
    return np.where(np.isfinite(final), final, np.nan)


def _draw(ax: Axes, curve: "xr.Dataset", x: str, color: Any, label: str, marker: str) -> None:
    at, is_named = _positions(curve[x].values), label or "networks"
    if "measured_test_loss" in curve:
        mean, error = _last(curve["measured_test_loss"]), _last(curve["measured_test_loss_error"])
        ax.errorbar(at, mean, error, color=color, marker=marker, markersize=4, linewidth=1.4, capsize=2)
        ax.plot([], [], color=color, marker=marker, markersize=4, linewidth=1.4, label=is_named)
    if "test_loss" in curve:
        style = theory_in(color) if "measured_test_loss" in curve else THEORY | {"color": color, "linewidth": 1.6}
        name = label if "measured_test_loss" not in curve and label else "_"
        last, is_rounding = _last(curve["test_loss"]), _is_rounding(curve)
        ax.plot(at, np.where(is_rounding, np.nan, last), marker=marker, markersize=3.5, label=name, **style)
        if is_rounding.any():
            is_first = _ROUNDING not in ax.get_legend_handles_labels()[1]
            crosses = {"linestyle": "none", "marker": "x", "markersize": 5, "color": color}
            ax.plot(at[is_rounding], last[is_rounding], label=_ROUNDING if is_first else "_", **crosses)


def _is_rounding(curve: "xr.Dataset") -> NDArray[np.bool_]:
    """Points whose loss at the last step is one that rounding errors have grown into."""
    if "rounding_at" not in curve:
        return np.zeros(curve["test_loss"].isel(time=0).shape, bool)
    return np.asarray(curve["rounding_at"].values >= 0)


def _positions(values: NDArray[Any]) -> Array:
    """Where values stand on the axis: infinity beyond the largest number, words in their order."""
    if values.dtype.kind not in "iuf":
        return np.arange(len(values), dtype=float)
    finite = values[np.isfinite(values)]
    return np.where(np.isfinite(values), values, 2.0 * finite.max() if len(finite) else 1.0)


def _axes(ax: Axes, found: "xr.Dataset", problem: Problem, x: str) -> None:
    values = found[x].values
    at = _positions(values)
    if is_log := values.dtype.kind in "iuf" and at.min() > 0 and at.max() > 3 * at.min():
        ax.set_xscale("log")
    if len(at) <= 10:
        ax.set_xticks(at, [_short(value) for value in values.tolist()])
    elif is_log:
        log_ticks(ax.xaxis, *ax.get_xlim())
    else:
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    log_axis(ax)
    ax.set_xlabel(_name(problem, x))
    ax.set_ylabel("test loss at the last step")
