"""What the page can start from: the tour of the controls, a few stories, and the panels of the paper.

Each is a problem, what is varied around it, the view to look at and a sentence that says what to see.
"""

from collections.abc import Iterable
from typing import Any

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


def _law(source: float, capacity: float = 1.5) -> Problem:
    return {"type": "PowerLaw", "capacity": capacity, "source": source, "noise": 0.0}


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
) -> dict[str, Any]:
    """Return a preset whose curve number ``live`` follows the controls, while the others are pinned."""
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
        "training is faster, and sooner at its limit.",
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
_short_ntk = _problem({"richness": 3.0, "parameterization": "ntk"}, _full(4.0), 0.03, 12)

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
        "Trained long with noisy labels, a data set about as large as the number of unknowns is the worst: "
        "the network fits the noise. Less or more data does better.",
        _fan(
            _problem({"depth": 1, "richness": 0.5}, _full(1.0), 0.2, 300, {"type": "Isotropic", "noise": 0.6}),
            "sampling", "samples", (0.4, 1.0, 3.0),
        ), 1, train=True, x="log",
    ),
]  # fmt: skip

_res = _problem({"type": "ResNet", "depth": 16, "width": 1.0, "branch": 1.0}, _POPULATION, 0.02, 80, _CLEAN)
_res_unscaled = _problem({"type": "ResNet", "branch_scaling": "none"}, _full(2.0), 0.02, 12)
_res_scaled = _problem({"type": "ResNet", "branch": 1.25}, _full(2.0), 0.02, 12)
_law_problem = _problem({"depth": 4, "width": 1024}, _online(16), 0.02, 100, _law(1.25))
_law_rates = {"depth": 3, "width": 256, "richness": 0.4}
_sgd_narrow = _problem({"depth": 4, "width": 0.25}, _online(0.5), 0.01, 100, _CLEAN)
_sgd_small = _problem({"depth": 4}, _online(0.05), 0.02, 80, _CLEAN)

_paper = [
    _preset(
        _PAPER, "1a", "1a Widths in NTK",
        "As width grows the network tends to a linear model; wider is not always faster.",
        _ntk_widths, 2,
    ),
    _preset(
        _PAPER, "1b", "1b Widths in muP",
        "The loss falls with width at every step.",
        _mup_widths, 2,
    ),
    _preset(
        _PAPER, "1c", "1c Depths",
        "One curve for each depth; train real networks to see them follow.",
        _fan(_problem({}, _full(2.0), 0.02, 100), "network", "depth", (1, 2, 3, 4, 6)), 2,
    ),
    _preset(
        _PAPER, "2a", "2a Learning rates in NTK",
        "The best learning rate (dot) moves to the right with width.",
        _fan(_short_ntk, "network", "width", (0.5, 1.0, 4.0, 16.0)), 1, view="rates", x="log",
    ),
    _preset(
        _PAPER, "2b", "2b Learning rates in muP",
        "The best learning rate stays where it is.",
        _fan(_short_mup, "network", "width", (0.5, 1.0, 4.0, 16.0)), 1, view="rates", x="log",
    ),
    _preset(
        _PAPER, "3a", "3a Data set sizes",
        "Smaller data sets are fitted faster (dotted), and the gap to new data (dashed) grows.",
        _fan(
            _problem({"depth": 4, "richness": 2.0}, _full(1.0), 0.03, 120),
            "sampling", "samples", (0.5, 1.0, 2.0, 4.0),
        ), 1, train=True,
    ),
    _preset(
        _PAPER, "3b", "3b Test loss against data",
        "At late steps the order of the curves is not that of the data set sizes.",
        _fan(_problem({"depth": 4}, _full(1.0), 0.03, 250, {"type": "Isotropic", "noise": 0.6}),
             "sampling", "samples", (0.5, 0.75, 1.0, 1.5, 3.0)), 2, x="log",
    ),
    _preset(
        _PAPER, "3c", "3c Batch sizes",
        "Smaller batches slow training down, but there is no plateau.",
        _fan(_sgd_narrow, "sampling", "batch", (0.1, 0.25, 0.5, 1.0, 4.0)), 2,
    ),
    _preset(
        _PAPER, "3d", "3d Widths at a small batch",
        "The noise of small batches lifts the loss at first; wider networks start lower and recover sooner.",
        _fan(_sgd_small, "network", "width", (0.25, 0.5, 1.0, 4.0)), 2,
    ),
    _preset(
        _PAPER, "4a", "4a Residual: richness",
        "The same slope at the start; faster later on with more richness.",
        _fan(_res | {"network": _res["network"] | {"centered": True}}, "network", "richness", (0.5, 1.0, 2.0)), 1,
    ),
    _preset(
        _PAPER, "4b", "4b Residual: branch strength",
        "The kernel at the start and what follows both change.",
        _fan(_res, "network", "branch", (0.5, 1.0, 1.5)), 1,
    ),
    _preset(
        _PAPER, "4c", "4c Residual: depth",
        "The curves converge: the infinitely deep network is their limit.",
        _fan(_problem({"type": "ResNet", "branch": 1.2}, _POPULATION, 0.02, 60, _CLEAN),
             "network", "depth", (1, 2, 4, 16, "infinite")), 2,
    ),
    _preset(
        _PAPER, "5a", "5a Residual rates, unscaled",
        "Without scaling the best rate shifts by orders of magnitude with depth.",
        _fan(_res_unscaled, "network", "depth", (1, 2, 4, 8)), 1, view="rates", x="log",
    ),
    _preset(
        _PAPER, "5b", "5b Residual rates, scaled",
        "With branches that shrink as 1/√L the best rate approaches a limit.",
        _fan(_res_scaled, "network", "depth", (2, 4, 8, 16)), 1, view="rates", x="log",
    ),
    _preset(
        _PAPER, "6a", "6a Power law: batch sizes",
        "Theory follows training down to small batches.",
        _fan(_law_problem, "sampling", "batch", (4, 16, 64)), 1, x="log",
    ),
    _preset(
        _PAPER, "6b", "6b Easy power law: widths",
        "The loss falls as a power of time, until finite width bends it away.",
        _fan(_law_problem, "network", "width", (16, 64, 1024)), 2, x="log",
    ),
    _preset(
        _PAPER, "6c", "6c Hard power law: widths",
        "Feature learning falls faster than a lazy network could.",
        _fan(_law_problem | {"data": _law(0.5)}, "network", "width", (16, 64, 1024)), 2, x="log",
    ),
    _preset(
        _PAPER, "7a", "7a Power-law rates in NTK",
        "The best learning rate moves with width: tuning does not transfer.",
        _fan(_problem(_law_rates | {"parameterization": "ntk"}, _online(128), 0.1, 30, _law(1.75, 2.0)),
             "network", "width", (16, 64, 256)), 1, view="rates", x="log",
    ),
    _preset(
        _PAPER, "7b", "7b Power-law rates in muP",
        "The best learning rate stays: tuning transfers.",
        _fan(_problem(_law_rates, _online(128), 0.1, 30, _law(1.75, 2.0)), "network", "width", (16, 64, 256)),
            1, view="rates", x="log",
    ),
    _preset(
        _PAPER, "A1", "A1 Largest stable rate",
        "The right wall of each curve is the largest stable rate: in NTK it moves with width.",
        _fan(_problem({"richness": 5.0, "parameterization": "ntk"}, _full(2.0), 0.03, 20),
             "network", "width", (0.5, 2.0, 8.0)), 1, view="rates", x="log",
    ),
    _preset(
        _PAPER, "A2a", "A2a Early loss: batch sizes",
        "The first steps already tell which batches are too small.",
        _fan(
            _problem({"depth": 4, "width": 0.25}, _online(0.5), 0.02, 12, _CLEAN),
            "sampling", "batch", (0.05, 0.1, 0.25, 1.0),
        ), 2,
    ),
    _preset(
        _PAPER, "A2b", "A2b Early loss: widths",
        "At a batch this small the first steps raise the loss, whatever the width.",
        _fan(_sgd_small | {"steps": 12}, "network", "width", (0.25, 0.5, 1.0, 4.0)), 2,
    ),
    _preset(
        _PAPER, "A3", "A3 Hard-task exponents",
        "On logarithmic axes each task is nearly a line, the harder the flatter.",
        _fan(_problem({"depth": 3, "width": "infinite"}, _POPULATION, 0.05, 200, _law(0.5)), "data", "source",
             (0.3, 0.5, 0.7)), 1, x="log",
    ),
]  # fmt: skip

PRESETS = [*_tour, *_stories, *_paper]
