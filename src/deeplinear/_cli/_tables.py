"""Tables of results for the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from deeplinear import EMA, Comparison, TailMean
from deeplinear._cli._report import table
from deeplinear._core.words import percent


def observables_table(comparison: Comparison) -> Table:
    """Show the last value of each curve, and how far theory and experiment are apart over all of it."""
    rows = [
        [
            each.name.removesuffix("_correlation").replace("_", " ") + ("" if each.layer is None else f" {each.layer}"),
            f"{each.theory[-1]:.4g}",
            f"{each.mean[-1]:.4g}",
            f"{each.standard_error[-1]:.1g}",
            f"{each.max_z:.2f}",
            "" if math.isnan(each.max_z_beyond_size) else f"{each.max_z_beyond_size:.2f}",
            _in_percent(each.max_relative_error),
            "" if math.isnan(each.max_detectable) else _in_percent(each.max_detectable),
            f"{each.p_value:.2g}",
        ]
        for each in comparison.observables
        if len(each.theory)
    ]
    columns = ["", "theory", "experiment", "±", "max |z|", "beyond size", "max error", "would notice", "p"]
    return table("last values, and largest deviations over all steps", columns, rows)


def _in_percent(fraction: float) -> str:
    return percent(fraction) if math.isfinite(fraction) else f"{fraction} %"


def curves_table(title: str, columns: dict[str, Any]) -> Table:
    """Show curves at a few steps that grow in proportion; of times that are not whole steps none is shown."""
    times = np.asarray(columns["step"], dtype=float)
    whole = np.flatnonzero(times == times.round())
    wanted = np.geomspace(1, max(times[whole[-1]], 1), 8)
    nearest = np.abs(times[whole] - wanted[:, None]).argmin(axis=1)
    shown = np.unique([0, len(whole) - 1, *nearest])
    rows = [
        [f"{values[at]:.0f}" if name == "step" else f"{values[at]:.4g}" for name, values in columns.items()]
        for at in whole[shown]
    ]
    return table(title, list(columns), rows)


def more_losses(sets: Mapping[str, Any], averages: Sequence[EMA | TailMean]) -> dict[str, Any]:
    """Return the losses of averaged weights and of the tasks of phases, each as a column under its title."""
    titles = {
        "averaged_test_loss": [f"{each}" for each in averages],
        "task_loss": [f"task {phase + 1}" for phase in range(len(sets.get("task_loss", ())))],
    }
    return {title: values for name, each in sets.items() for title, values in zip(titles[name], each, strict=True)}
