"""The commands that look at curvature and landscapes: ``sharpness`` and ``landscape``."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from deeplinear import Curvature, Ensemble, Problem, Sharpness
from deeplinear import landscape as find_landscape
from deeplinear import sharpness as find_sharpness
from deeplinear._cli._commands import check_finite, command, document_of, train, words_of, written_lines
from deeplinear._cli._errors import DIVERGED, OK, fail
from deeplinear._cli._geometry_options import LINE, LOOK, MEASURED, Line, Look
from deeplinear._cli._options import DEVICE, PROBLEM, REPORT, Finite, out
from deeplinear._cli._pictures import save_picture
from deeplinear._cli._report import Report, table
from deeplinear._core.failures import in_words
from deeplinear._core.files import PICTURES
from deeplinear._core.statistics import standard_error

_FOUND = (
    "times", "largest", "largest_error", "lowest", "lowest_error", "edge", "outliers", "limit", "ritz_values",
    "ritz_weights", "residuals", "curvature_unit",
)  # fmt: skip
_SHOWN = 11
"""Most rows of a table."""


@command(PROBLEM, LOOK, MEASURED, DEVICE, REPORT, out("sharpness.png", PICTURES))
def sharpness(
    problem: Problem, look: Look, finite: Finite | None, device: str, report: Report, out: Path | None
) -> int:
    """Predict the largest and lowest eigenvalues of the Hessian over training, and whether steps overshoot; draw them.

    Eigenvalues are in units in which plain descent is stable below 2 / lr. With --dim, networks are trained too and
    their Ritz values are set beside those of theory, which are found in the same way.

    Exit codes: 0 done, 2 bad input, 3 training diverged before the last of the steps, 4 not enough memory.

    Example: deeplinear sharpness --depth 3 --richness 2 --lr 0.05 --steps 60 --at 0,5,10,20,40 --dim 2000 --seeds 8
    """
    if finite is not None:
        check_finite(problem, finite)
    with report.stage("theory") as progress:
        found = find_sharpness(problem, look.at, look.vectors, operator=look.operator, device=device, progress=progress)
    networks = None
    if finite is not None:
        curvature = Curvature(found.times.tolist(), look.vectors, look.operator)
        networks = train(problem, finite, device, report, curvature=curvature)
    if out is not None:
        save_picture(out, found, networks)
    document = document_of("sharpness", problem, out) | {
        "operator": found.operator,
        **{name: getattr(found, name) for name in _FOUND},
        "experiment": None if networks is None else _measured(networks),
    }
    shown = _table(found, networks)
    report.result(document, *words_of(problem, networks), shown, str(found), *written_lines("picture", out))
    return OK if np.isfinite(found.largest[-1]) else DIVERGED


@command(PROBLEM, LINE, DEVICE, REPORT, out("landscape.png", PICTURES))
def landscape(problem: Problem, line: Line, device: str, report: Report, out: Path | None) -> int:
    """Predict train and test loss along a straight line in weight space, and whether there is a barrier; draw them.

    Exit codes: 0 done, 2 bad input, 3 training diverged before the last weights, 4 not enough memory.

    Example: deeplinear landscape --sampling online --batch 0.5 --lr 0.01 --steps 60 --along twins
    """
    try:
        with report.stage("theory") as progress:
            found = find_landscape(problem, line.along, line.positions, device=device, progress=progress)
    except ArithmeticError as error:
        fail(in_words(error), DIVERGED)
    if out is not None:
        save_picture(out, found)
    document = document_of("landscape", problem, out) | {
        "along": line.along if isinstance(line.along, str | tuple) else str(line.along),
        **{name: getattr(found, name) for name in ("positions", "train_loss", "test_loss", "barrier")},
    }
    picked = np.unique(np.linspace(0, len(found.positions) - 1, _SHOWN).round().astype(int))
    columns = (found.positions, found.train_loss, found.test_loss)
    rows = [[f"{values[index]:.4g}" for values in columns] for index in picked]
    shown = table("losses along the line", ["position", "train loss", "test loss"], rows)
    report.result(document, *words_of(problem), shown, str(found), *written_lines("picture", out))
    return OK


def _measured(networks: Ensemble) -> dict[str, Any]:
    assert networks.ritz_values is not None
    return {
        "dim": networks.dim,
        "seeds": networks.seeds,
        "method": networks.method,
        "diverged_at": networks.diverged_at,
        "ritz_values": {
            "mean": networks.ritz_values.mean(axis=0),
            "standard_error": standard_error(networks.ritz_values),
        },
    }


def _table(found: Sharpness, networks: Ensemble | None) -> Table:
    """Show the ends of the spectrum at every step that was looked at, and the largest Ritz values beside networks'."""
    columns = ["step", "largest", "±", "which is", "lowest", "±", "limit"]
    rows = [
        [
            f"{found.times[index]}",
            f"{found.largest[index]:.4g}",
            f"{found.largest_error[index]:.1g}",
            kind,
            f"{found.lowest[index]:.4g}",
            f"{found.lowest_error[index]:.1g}",
            f"{found.limit[index]:.4g}",
        ]
        for index, kind in enumerate(found.kinds)
    ]
    if networks is not None and networks.ritz_values is not None:
        columns += ["theory's Ritz value", "networks'", "±"]
        largest = networks.ritz_values[..., 0]
        beside = (found.ritz_values[:, 0], largest.mean(axis=0), standard_error(largest))
        for row, ours, theirs, error in zip(rows, *beside, strict=True):
            row += [f"{ours:.5g}", f"{theirs:.5g}", f"{error:.1g}"]
    return table(f"eigenvalues of the {'Hessian' if found.operator == 'hessian' else 'tangent kernel'}", columns, rows)
