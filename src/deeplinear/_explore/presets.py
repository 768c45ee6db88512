"""What the page can start from: the tour of the controls, a few stories, and the panels of the paper.

Each is a problem, what is varied around it, the view to look at and a sentence that says what to see. The problems of
the panels are those of the reproduced figures.
"""

import math
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from deeplinear._reproduce.figures import PANELS
from deeplinear._reproduce.panel import Line, Size

Problem = dict[str, Any]


def _problem(
    network: Problem, sampling: Problem, lr: float, steps: int, data: Problem | None = None, **optimizer: Any
) -> Problem:
    return {
        "network": {"type": "MLP", "depth": 3, "width": 1.0} | network,
        "data": {"type": "Isotropic", "noise": 0.3} if data is None else data,
        "sampling": sampling,
        "optimizer": {"type": "GradientDescent", "lr": lr} | optimizer,
        "steps": steps,
    }


def _full(samples: float) -> Problem:
    return {"type": "FullBatch", "samples": samples}


def _online(batch: float) -> Problem:
    return {"type": "OnlineSGD", "batch": batch}


_CLEAN = {"type": "Isotropic", "noise": 0.0}
_POPULATION = {"type": "Population"}


def _fan(problem: Problem, part: str, name: str, values: Iterable[Any]) -> list[Problem]:
    """One problem for each value of a field."""
    return [problem | {part: problem[part] | {name: value}} for value in values]


def _preset(
    group: str,
    ident: str,
    name: str,
    see: str,
    problems: list[Problem],
    live: int,
    *,
    view: str = "loss",
    x: str = "linear",
    y: str = "log",
    train: bool = False,
    size: Size | None = None,
) -> dict[str, Any]:
    """Return a preset whose curve number ``live`` follows the controls, while the others are pinned.

    Networks are trained in this size, if one is given.
    """
    return {
        "group": group,
        "id": ident,
        "name": name,
        "see": see,
        "problem": problems[live],
        "pins": [{"problem": problem} for index, problem in enumerate(problems) if index != live],
        "view": view,
        "x": x,
        "y": y,
        "train": train,
        "dim": size and size.dim,
        "seeds": size and size.seeds,
    }


_TOUR, _STORY, _PAPER = "Tour", "Stories", "Panels of the paper"

_base = _problem({}, _full(2.0), 0.03, 120)
_batches = _problem({}, _online(0.5), 0.04, 80)

_tour = [
    _preset(
        _TOUR, "width", "Width",
        "Wider networks have more neurons in each layer. Random starting weights then average out: the loss starts "
        "lower and falls faster, until width no longer limits it.",
        _fan(_base, "network", "width", (0.25, 1.0, 4.0)), 1,
    ),
    _preset(
        _TOUR, "depth", "Depth",
        "Deeper networks multiply more layers. At the same learning rate each step changes more of them at once, so "
        "training is faster, and reaches its limit sooner.",
        _fan(_base, "network", "depth", (1, 2, 3, 5)), 2,
    ),
    _preset(
        _TOUR, "richness", "Richness",
        "Richness is how far the features inside the network move. Small values start far from the answer and hardly "
        "move (lazy); large values start near zero and learn features.",
        _fan(_base, "network", "richness", (0.5, 1.0, 3.0)), 1,
    ),
    _preset(
        _TOUR, "data", "Data",
        "More examples bring the loss on new data (dashed) closer to the loss on the training set (dotted). With "
        "few, the network fits its examples, noise included, and the gap opens.",
        _fan(_base, "sampling", "samples", (0.5, 1.0, 2.0, 8.0)), 2, train=True,
    ),
    _preset(
        _TOUR, "batch", "Batch",
        "Each step sees a fresh batch. Small batches give noisy steps: the loss falls more slowly, and below some "
        "size it rises before it falls, or blows up.",
        _fan(_batches, "sampling", "batch", (0.05, 0.1, 0.5, 2.0)), 2,
    ),
    _preset(
        _TOUR, "lr", "Learning rate",
        "Too small a learning rate is slow. Too large, and every step overshoots: the loss climbs instead of "
        "falling. The best one lies just below the edge.",
        _fan(_base, "optimizer", "lr", (0.003, 0.01, 0.03, 0.25)), 2,
    ),
]  # fmt: skip

_widths = (0.25, 0.5, 1.0, 2.0, 4.0)
_mup = _problem({"depth": 4, "richness": 3.0}, _POPULATION, 0.005, 120, _CLEAN)
_ntk = _problem({"depth": 4, "richness": 3.0, "parameterization": "ntk"}, _POPULATION, 0.005, 120, _CLEAN)
_short_mup = _problem({"richness": 3.0}, _full(4.0), 0.03, 12)

_mup_widths, _ntk_widths = (_fan(problem, "network", "width", _widths) for problem in (_mup, _ntk))

_stories = [
    _preset(
        _STORY, "wider-mup", "Wider is better in muP ...",
        "In muP each wider network is ahead at every step. Open the next story to see the same widths in NTK.",
        _mup_widths, 2,
    ),
    _preset(
        _STORY, "wider-ntk", "... but not in NTK",
        "In NTK wider networks move their features less and become linear models: ahead at first, behind at the end.",
        _ntk_widths, 2,
    ),
    _preset(
        _STORY, "optimum-stays", "The optimum stays",
        "Loss at the last step against the learning rate. In muP the best rate (dot) hardly moves with width: tune a "
        "small network, then train a large one.",
        _fan(_short_mup, "network", "width", (0.5, 1.0, 4.0)), 1, view="rates", x="log",
    ),
    _preset(
        _STORY, "small-batch", "Too small a batch blows up first",
        "All of these have the same learning rate. The smaller the batch, the higher the loss climbs at the start; "
        "the smallest never comes back.",
        _fan(_problem({"width": 0.25}, _online(0.5), 0.06, 80), "sampling", "batch", (0.05, 0.1, 0.2, 0.5)), 3,
    ),
    _preset(
        _STORY, "double", "More data can hurt before it helps",
        "After long training on noisy labels, a data set about as large as the number of unknowns is worst: "
        "the network fits the noise. Less or more data does better.",
        _fan(
            _problem({"depth": 1, "richness": 0.5}, _full(1.0), 0.2, 300, {"type": "Isotropic", "noise": 0.6}),
            "sampling", "samples", (0.4, 1.0, 3.0),
        ), 1, train=True, x="log",
    ),
]  # fmt: skip


class _Look(NamedTuple):
    """How the page shows a panel.

    Attributes
    ----------
    see
        A sentence that says what to see.
    live
        Which of the curves that are shown follows the controls.
    values, group
        Values and group of the curves that are shown; all of them by default.
    steps
        Most steps, where the figure has more than a page can wait for.
    x, train
        Scale of the steps, and whether the train loss is shown.
    """

    see: str
    live: int = 1
    values: tuple[float, ...] | None = None
    group: str | None = None
    steps: int | None = None
    x: str = "linear"
    train: bool = False


_LOOKS = {
    "1a": _Look("As width grows the network tends to a linear model; wider is not always faster."),
    "1b": _Look("The loss falls with width at every step."),
    "1c": _Look("One curve for each depth; train real networks to see them follow.", 2),
    "2a": _Look("The best learning rate (dot) moves to the right with width."),
    "2b": _Look("The best learning rate stays where it is."),
    "3a": _Look("Smaller data sets are fitted faster (dotted), and the gap to new data (dashed) grows.", train=True),
    "3b": _Look(
        "At late steps the order of the curves is not that of the data set sizes.",
        2,
        (0.5, 0.8, 1.0, 1.5, 3.0),
        x="log",
    ),
    "3c": _Look("Smaller batches slow training down, but there is no plateau.", 2),
    "3d": _Look(
        "The noise of small batches lifts the loss at first; wider networks start lower and recover sooner.", 2, x="log"
    ),
    "4a": _Look("The same slope at the start; faster later on with more richness."),
    "4b": _Look("The kernel at the start and what follows both change.", 3),
    "4c": _Look("The curves converge: the infinitely deep network is their limit.", 2),
    "5a": _Look("Without scaling the best rate shifts by orders of magnitude with depth."),
    "5b": _Look("With branches that shrink as 1/√L the best rate approaches a limit."),
    "6a": _Look("Theory follows training down to small batches.", 2, steps=100, x="log"),
    "6b": _Look("The loss falls as a power of time, until finite width bends it away.", 2, steps=100, x="log"),
    "6c": _Look("Feature learning falls faster than a lazy network could.", 2, steps=100, x="log"),
    "7a": _Look("The best learning rate moves with width: tuning does not transfer.", values=(64, 128, 512), steps=30),
    "7b": _Look("The best learning rate stays: tuning transfers.", values=(64, 128, 512), steps=30),
    "A1": _Look(
        "The right wall of each curve is the largest stable rate: in NTK it moves with width.",
        values=(0.5, 2.0, 8.0),
        group="NTK, L = 2",
    ),
    "A2a": _Look("The first steps already show which batches are too small.", 2),
    "A2b": _Look("At a batch this small the first steps raise the loss, whatever the width.", 2),
    "A3": _Look(
        "On logarithmic axes each task is nearly a line, the harder the flatter.", group="L = 4", steps=200, x="log"
    ),
}


def _panel(ident: str, look: _Look) -> dict[str, Any]:
    """Return the preset of a panel of the paper."""
    panel = PANELS[ident]
    lines = [
        line
        for line in panel.study.lines
        if (look.values is None or line.value in look.values) and (look.group is None or line.group == look.group)
    ]
    over_rates, live = panel.study.over_rates, lines[look.live]
    return _preset(
        _PAPER,
        ident,
        f"{ident} {panel.title}",
        look.see,
        [_plain(line, look.steps) for line in lines],
        look.live,
        view="rates" if over_rates else "loss",
        x="log" if over_rates else look.x,
        train=look.train,
        # The modes of a power law count, where other sizes are ratios and networks of any size will do.
        size=panel.sizes["quick"] if live.networks and live.problem.data.dimension_free else None,
    )


def _plain(line: Line, most: int | None) -> Problem:
    """Return the problem of a curve as the page writes it."""
    problem = replace(line.problem, steps=min(line.problem.steps, most or line.problem.steps))
    document = tomllib.loads(problem.to_toml())
    if document["network"]["depth"] == math.inf:
        document["network"]["depth"] = "infinite"
    return document


_paper = [_panel(ident, look) for ident, look in _LOOKS.items()]

PRESETS = [*_tour, *_stories, *_paper]
"""Everything that the page can start from, in the order in which it is offered."""
