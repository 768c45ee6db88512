"""Pictures of fits: the measured curves, and theory at the fitted values over them."""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from deeplinear._core.statistics import standard_error
from deeplinear._experiment.measured import recorded
from deeplinear._fit.result import Fit
from deeplinear._plots.curves import draw_pair, step_axis
from deeplinear._plots.loss import plot_comparison
from deeplinear._plots.style import THEORY, figure_of, labelled, log_axis, new_figure, put_title, styled
from deeplinear._plots.words import in_words
from deeplinear._problem.edit import field_names, get_field


def plot_fit(found: Fit, ax: Axes | None = None) -> Figure:
    """Draw measured losses, and theory at the fitted values dashed over them.

    Of one run all of ``plot_comparison`` is drawn, of several the test loss (or train loss) of each.
    """
    if len(found.comparisons) == 1:
        comparison = found.comparisons[0]
        figure = plot_comparison(comparison.theory, comparison.experiment, comparison, ax)
        if ax is None:
            with styled():
                put_title(figure, *in_words(found.problem), f"fitted: {_values(found)}")
        return figure
    with styled():
        if ax is None:
            figure = new_figure(4.6, 3.6)
            ax = figure.add_subplot()
            put_title(figure, f"{len(found.problems)} runs; fitted: {_values(found)}")
        colors = matplotlib.colormaps["cividis"](np.linspace(0.05, 0.92, len(found.comparisons)))
        last = 1
        labels = _labels(found)
        for index, comparison in enumerate(found.comparisons):
            name = comparison.observables[0].name
            steps, values = recorded(comparison.experiment, name)
            mean, error = np.asarray(values.mean(axis=0)), standard_error(values)
            theory = comparison.theory
            draw_pair(ax, theory.times, getattr(theory, name), steps, mean, error, colors[index], labels[index])
            last = max(last, int(steps[-1]))
        log_axis(ax)
        step_axis(ax, last)
        ax.set_ylabel("mean squared residual")
        ax.legend(handles=[*labelled(ax), Line2D([], [], label="theory, fitted", **THEORY)], loc="best")
        return figure_of(ax)


def _labels(found: Fit) -> list[str]:
    """Name each run by the numbers in which its problem differs from the others."""
    names = [name for name in field_names(found.problem) if all(name in field_names(each) for each in found.problems)]
    labels = [[f"run {index + 1}"] for index in range(len(found.problems))]
    for name in names:
        values = [get_field(each, name) for each in found.problems]
        if len(set(values)) > 1 and all(isinstance(value, int | float) for value in values):
            for label, value in zip(labels, values, strict=True):
                label.append(f"{name.replace('_', ' ')} {value:.4g}")
    return [", ".join(label[1:] or label) for label in labels]


def _values(found: Fit) -> str:
    return ", ".join(
        f"{name}{' x' if name in found.factors else ''} {value:.4g} ± {found.errors[name]:.2g}"
        for name, value in found.values.items()
    )
