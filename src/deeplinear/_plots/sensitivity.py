"""A picture of derivatives: by how many per cent the test loss changes with one per cent of each field."""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deeplinear._plots.curves import step_axis
from deeplinear._plots.style import INK, figure_of, new_figure, put_title, styled
from deeplinear._plots.words import in_words
from deeplinear._problem.edit import about_field
from deeplinear._theory.sensitivity import Sensitivity

_STYLES = ("-", "--", "-.", ":")
"""Lines of fields in turn, so that they can be told apart without colours."""


def plot_sensitivity(found: Sensitivity, ax: Axes | None = None) -> Figure:
    """Draw d log(test loss) / d log(field) over training steps, for each field whose value is not zero.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=20
    ... )
    >>> figure = plot_sensitivity(dl.sensitivity(problem, ["lr", "noise"]))  # noise is zero
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['learning rate']
    """
    with styled(len(found.times)):
        if ax is None:
            figure = new_figure(4.6, 3.3)
            ax = figure.add_subplot()
            put_title(figure, *in_words(found.problem))
        names = [name for name, value in found.at.items() if value != 0.0]
        colors = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, max(len(names), 1)))
        ax.axhline(0, color=INK, linewidth=0.6)
        for index, name in enumerate(names):
            with np.errstate(invalid="ignore", divide="ignore"):  # where training has diverged, or nothing is left
                slope = found.at[name] * found.d_test_loss[name] / found.test_loss
            slope = np.where(np.isfinite(slope), slope, np.nan)
            label = about_field(found.problem, name).label.lower()
            style = _STYLES[index % len(_STYLES)]
            ax.plot(found.times, slope, color=colors[index], linestyle=style, linewidth=1.6, label=label)
        step_axis(ax, max(1, int(found.times[-1])))
        ax.set_ylabel("% of test loss per % of field")
        if names:
            ax.legend(loc="best")
        return figure_of(ax)
