"""Results in notebooks: a small picture and a table."""

import base64
import html
import io
from typing import Any

from matplotlib.figure import Figure

from deeplinear._core.dataset import LOSSES
from deeplinear._experiment.ensemble import Ensemble
from deeplinear._experiment.measured import Measured, recorded
from deeplinear._plots.plot import plot
from deeplinear._plots.style import SCREEN_DPI, styled
from deeplinear._plots.words import in_words
from deeplinear._theory.solution import Solution

Rows = list[tuple[str, str]]


def html_of(result: Any) -> str:
    """Return a result as a piece of a page."""
    rows = _rows(result)
    table = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for name, value in rows
    )
    text = f"<table>{table}</table>" if rows else f"<pre>{html.escape(str(result))}</pre>"
    title = html.escape(type(result).__name__)
    return f"<div><strong>{title}</strong>{text}{_image(plot(result), title)}</div>"


def _image(figure: Figure, title: str) -> str:
    content = io.BytesIO()
    with styled():
        figure.savefig(content, format="png", dpi=SCREEN_DPI)
    data = base64.b64encode(content.getvalue()).decode()
    return f'<img alt="{title}" src="data:image/png;base64,{data}">'


def _rows(result: Any) -> Rows:
    """Names and values of a table; none where the text of the result is one already."""
    if isinstance(result, Solution):
        return [*_problem(result), *_solution(result)]
    if isinstance(result, Ensemble):
        size = f"{len(result.seeds)} of input dimension {result.dim}"
        return [*_problem(result), ("networks", size), *_losses(result)]
    if isinstance(result, Measured):
        return [("networks", str(len(result.seeds))), *_losses(result)]
    return []


def _problem(result: Solution | Ensemble) -> Rows:
    return list(zip(("network", "data", "training", "phases"), in_words(result.problem), strict=False))


def _solution(solution: Solution) -> Rows:
    ends = {name: getattr(solution, name) for name in LOSSES}
    rows = [(name.replace("_", " "), f"{curve[0]:.4g} to {curve[-1]:.4g}") for name, curve in ends.items()]
    return [*rows, ("status", str(solution.status)), ("solved by", solution.solver.name)]


def _losses(experiment: Ensemble | Measured) -> Rows:
    """Means at the first and the last step that every network has."""
    rows = []
    for name in LOSSES:
        steps, values = recorded(experiment, name)
        if steps.size:
            mean = values.mean(axis=0)
            rows.append((name.replace("_", " "), f"{mean[0]:.4g} at step {steps[0]} to {mean[-1]:.4g} at {steps[-1]}"))
    return rows
