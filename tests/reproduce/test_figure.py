"""Panels of the paper to take apart."""

import matplotlib.pyplot as plt
import pytest

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._reproduce.figures import PANELS


@pytest.mark.parametrize("name", PANELS)
def test_every_panel_has_its_problems(name: str) -> None:
    panel, lines = dl.figure(name), PANELS[name].study.lines
    assert (panel.id, panel.title) == (name, PANELS[name].title)
    assert list(panel.problems.values()) == [line.problem for line in lines]
    assert all(line.label in label for label, line in zip(panel.problems, lines, strict=True))


def test_a_panel_is_drawn_as_it_is_reproduced() -> None:
    picture = dl.figure("1c").plot("tiny")
    (ax,) = picture.axes
    assert picture.get_suptitle() == "1c   " + dl.figure("1c").title
    (legend,) = picture.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert [label for label in labels if label in dl.figure("1c").problems] == ["L = 1", "L = 3", "L = 6"]
    assert len(ax.get_lines()) == 6
    plt.close(picture)


def test_problems_may_be_changed() -> None:
    problem = dl.figure("3b").problems["α = 2"]
    assert dl.solve(problem.replace(steps=10, width=2.0)).test_loss[0] == 1 + 0.5**2 + 1 / (2.0**2 * 2.0)


@pytest.mark.parametrize(("name", "listed"), [("3", "one of 3a, 3b, 3c, 3d, got '3'"), (3, "one of 1a, 1b, .*, got 3")])
def test_a_whole_figure_is_refused_with_its_panels(name: str, listed: str) -> None:
    with pytest.raises(Refusal, match=f"^id must be {listed}$"):
        dl.figure(name)
