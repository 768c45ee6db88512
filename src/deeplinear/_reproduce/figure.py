"""A panel of the paper to take apart: its problems, and its picture."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import deeplinear as dl
from deeplinear._core.device import CPU
from deeplinear._core.progress import Progress, read_progress
from deeplinear._core.refusal import Refusal
from deeplinear._reproduce import jobs
from deeplinear._reproduce.compute import compute, plan_panels
from deeplinear._reproduce.figures import PANELS
from deeplinear._reproduce.panel import Panel, Timing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PaperPanel:
    """A panel of the paper.

    Attributes
    ----------
    id, title
        Such as "3b", and what it shows in a few words.
    says
        What the paper concludes from it, in other words.
    given, choices
        Parameters that the paper gives, and those that are chosen here because it gives none.
    problems
        What is solved and trained, by the names of the curves or points.
    """

    id: str
    title: str
    says: str
    given: str
    choices: str
    problems: dict[str, dl.Problem] = field(repr=False)

    def plot(self, scale: str = "quick", *, progress: Progress | bool | None = None) -> "Figure":
        """Solve the problems, train networks, and draw the panel as ``reproduce`` does; nothing is kept.

        Parameters
        ----------
        scale
            Size of the experiment, as for ``reproduce``; the picture takes seconds to minutes.
        progress
            True for a line on stderr; or called as ``progress(done, total)``.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, which has ``savefig``.
        """
        from deeplinear._reproduce.draw import draw  # slow to import
        from deeplinear._reproduce.run import note

        (plan,) = plan_panels([self.id], scale)
        with tempfile.TemporaryDirectory() as folder:
            data = compute([plan], Path(folder), CPU.name, read_progress(progress))
        return draw(plan.panel, plan.results([data[jobs.key(job)] for job in plan.jobs]), note(plan))


def figure(id: str) -> PaperPanel:
    """Return a panel of the paper with its problems, to be changed, solved and drawn.

    Parameters
    ----------
    id
        Such as "3b".

    Examples
    --------
    >>> panel = figure("3b")
    >>> panel.title, len(panel.problems)
    ('Overfitting: test loss against data', 17)
    >>> panel.problems["α = 2"].summary
    'MLP depth 4, 300 steps'
    """
    panel = PANELS.get(str(id))
    if panel is None:
        parts = [each.id for each in PANELS.values() if each.figure == id] or list(PANELS)
        raise Refusal("id", id, f"one of {', '.join(parts)}")
    return PaperPanel(panel.id, panel.title, panel.says, panel.given, panel.choices, _problems(panel))


def _problems(panel: Panel) -> dict[str, dl.Problem]:
    """Name the problems of a panel as its picture does."""
    if isinstance(panel.study, Timing):
        lines = [(f"{each.what}, {each.label}", line) for each in panel.study.series for line in each.lines]
        return {f"{name} = {line.label}": line.problem for name, line in lines}
    return {line.label: line.problem for line in panel.study.lines}
