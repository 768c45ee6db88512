"""Exponents of the best that a budget buys, against laws that are known, and networks at three points of a frontier.

    python docs/budgets.py [names of tables]        (five minutes on one core)

writes the tables into ``findings-horizon.md``, between two comments each.
"""

import math
import sys
from collections.abc import Callable

import numpy as np

import deeplinear as dl
from deeplinear._core.statistics import loglog_slope

Table = list[list[str]]

CAPACITY = 1.5
STEPS, WIDTHS = 160, (8, 16, 32, 64, 128, 256, 512, 1024)
PHASES = {"Ia": 0.6, "II": 1.2}
"""Source exponents of random features, below and above 1: phases of arXiv 2405.15074."""
BUDGETS = (30.0, 100.0, 300.0)
"""At which networks are trained, in units of the input dimension cubed."""
RATES = {"lazy": (1, 1e-3), "rich, L = 1": (1, 5.0), "rich, L = 2": (2, 5.0)}
"""Depth and richness of networks of infinite width."""
SOURCE = 0.5
UPDATES, LATE = 200, 16
"""Longest run, and from where on exponents are fitted."""
PER_RUN = 25
"""Horizons of a run that are fitted, evenly spaced in their logarithm."""


def features(source: float) -> dl.Problem:
    """Return random features: a hidden layer that is never trained."""
    network = dl.MLP(depth=1, width=64.0, richness=1e-3, centered=True)
    rule = dl.GradientDescent(0.1, layer_lr={"input": 0.0})
    return dl.Problem(network, dl.Spectrum.power_law(CAPACITY, source), dl.Population(), rule, STEPS)


def width_times_updates(problem: dl.Problem) -> float:
    """Return the cost of random features."""
    return float(problem.network.width) * (problem.steps - 1)  # type: ignore[arg-type]


def published(source: float, capacity: float = CAPACITY) -> dict[str, float]:
    """Return the exponents of loss, width and steps against the budget.

    With loss = t^-b + N^-ab below b = 1. Above, t^-b meets 1 / (N t^(1 - 1/a)), which is larger than what is left to
    infinite time.
    """
    a, b = capacity, source
    if source < 1:
        return {"loss": -a * b / (1 + a), "width": 1 / (1 + a), "steps": a / (1 + a)}
    return {"loss": -a * b / (1 + a * b), "width": (1 + a * b - a) / (1 + a * b), "steps": a / (1 + a * b)}


def feature_frontiers() -> Table:
    """Return exponents of frontiers of random features, beside the published ones."""
    names = ("loss", "width", "steps")
    table = [["phase", "source", *(f"{name}{what}" for name in names for what in ("", ", published"))]]
    for phase, source in PHASES.items():
        found = dl.plan(features(source), 1e5, values={"width": WIDTHS}, cost=width_times_updates).frontier
        cells = []
        for name in names:
            cells += ["{:.3f} ± {:.3f}".format(*found.exponents[name]), f"{published(source)[name]:.3f}"]
        table.append([phase, f"{source:g}", *cells])
        print(table[-1], flush=True)
    return table


def rich_problem(name: str) -> dl.Problem:
    """Return an infinitely wide network without noise."""
    depth, richness = RATES[name]
    data = dl.Spectrum.power_law(CAPACITY, SOURCE)
    network = dl.MLP(depth, "infinite", richness, centered=True)
    return dl.Problem(network, data, dl.Population(), dl.GradientDescent(0.1), UPDATES + 1)


def rich_frontiers() -> Table:
    """Return exponents of the loss at the best rate, against updates and against rate times updates."""
    names = ("best rate ~ updates", "loss ~ updates", "loss ~ rate x updates")
    table = [["network", f"loss after {UPDATES}", *(each for name in names for each in (name, "law"))]]
    for name, (depth, richness) in RATES.items():
        found = dl.plan(rich_problem(name), UPDATES, ("steps",), cost=lambda each: each.steps - 1.0)
        late = np.unique(np.rint(np.geomspace(1, UPDATES, PER_RUN)).astype(int)) - 1
        late = late[found.horizons[late] >= LATE]
        t, rates, losses = found.horizons[late].astype(float), found.lrs[late], found.losses[late]
        law = dl.rich_exponent(SOURCE, depth) if richness > 1 else dl.lazy_exponent(SOURCE)
        cells = [f"{losses[-1]:.4f}"]
        for x, y, expected in ((t, rates, SOURCE / law - 1), (t, losses, -SOURCE), (rates * t, losses, -law)):
            cells += ["{:.3f} ± {:.3f}".format(*loglog_slope(x, y)), f"{expected:.3f}"]
        table.append([name, *cells])
        print(table[-1], flush=True)
    return table


def frontier_networks() -> Table:
    """Return what networks do at the best problem of three budgets."""
    problem = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.1), steps=120)
    table = [["budget", "width", "updates", "batch", "rate", "loss", "networks"]]
    for budget in BUDGETS:
        values = {"width": [0.25, 0.5, 1.0, 2.0], "batch": [0.25, 0.5, 1.0, 2.0]}
        best = dl.plan(problem, budget, ("width", "batch", "steps"), values=values)
        networks = dl.simulate(best.problem, dim=10**5, seeds=8, method="reduced", record="losses")
        mean, error = networks.mean("test_loss")[-1], networks.standard_error("test_loss")[-1]
        digits = 1 - math.floor(math.log10(error))
        rate = float(best.problem.optimizer.rates(1)[0])
        chosen = [f"{each:g}" for each in (best.values["width"], best.values["steps"] - 1, best.values["batch"])]
        measured = f"{mean:.{digits}f} ± {error:.{digits}f}"
        table.append([f"{budget:g}", *chosen, f"{rate:.3f}", f"{best.loss:.{digits}f}", measured])
        print(table[-1], flush=True)
    return table


TABLES: dict[str, Callable[[], Table]] = {
    "feature_frontiers": feature_frontiers,
    "rich_frontiers": rich_frontiers,
    "frontier_networks": frontier_networks,
}


if __name__ == "__main__":
    from measured import write

    for name in sys.argv[1:] or TABLES:
        write(name, TABLES[name](), "findings-horizon.md", "budgets")
