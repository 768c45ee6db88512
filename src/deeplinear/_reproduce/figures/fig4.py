"""Figure 4: residual networks."""

import math

import numpy as np

import deeplinear as dl
from deeplinear._reproduce.measure import follows, lists, percent, steps_to
from deeplinear._reproduce.panel import Claim, Line, OverSteps, Panel, Size, Training
from deeplinear._reproduce.results import Trained, Trainings, slope

SIZES = {"tiny": Size(16, 3, 20, 3), "quick": Size(200, 16), "full": Size(1000, 32)}


def problem(depth: float = 16, richness: float = 1.0, branch: float = 1.0) -> dl.Problem:
    """Training on the population loss."""
    network = dl.ResNet(depth, 1.0, richness=richness, branch=branch, centered=True)
    return dl.Problem(network, dl.Isotropic(), dl.Population(), dl.GradientDescent(0.01), steps=40)


def first_slope(each: Trained, loss: np.ndarray) -> float:
    """Change of the loss in the first step, per unit of learning rate."""
    return float((loss[1] - loss[0]) / each.line.problem.optimizer.lr)


def slopes(results: Trainings) -> str:
    """First slopes of theory and of networks."""
    theory = lists(results.labels, [first_slope(each, each.theory()) for each in results])
    networks = lists(results.labels, [first_slope(each, each.mean()) for each in results])
    return f"first step over lr: {theory} (theory); {networks} (networks)"


def same_initial_slope(results: Trainings) -> Claim:
    """The first step does not depend on richness."""
    found = np.array([first_slope(each, each.theory()) for each in results])
    measured = np.array([first_slope(each, each.mean()) for each in results])
    return Claim(
        "the initial slope of the loss does not depend on gamma0",
        f"{slopes(results)}; spread {percent(np.ptp(found) / abs(found.mean()))} (theory), "
        f"{percent(np.ptp(measured) / abs(measured.mean()))} (networks)",
        bool(np.ptp(found) < 1e-3 * abs(found.mean()) and np.ptp(measured) < 0.01 * abs(measured.mean())),
    )


def faster_when_rich(results: Trainings) -> Claim:
    """The richer, the sooner the loss is low."""
    reached = [steps_to(each, 0.1) for each in results]
    return Claim(
        "training is faster the larger gamma0",
        f"steps to test loss 0.1: {lists(results.labels, reached)}",
        reached == sorted(reached, reverse=True) and reached[0] > reached[-1],
    )


def branch_changes_the_kernel(results: Trainings) -> Claim:
    """The first slope grows with the branch scale."""
    found = [-first_slope(each, each.theory()) for each in results]
    return Claim(
        "the branch scale changes the initial kernel",
        slopes(results),
        found == sorted(found) and found[-1] > 1.2 * found[0],
    )


def branch_changes_the_dynamics(results: Trainings) -> Claim:
    """In units of the initial kernel, training still differs."""
    growth = [float(each.theory("kernel")[-1] / each.theory("kernel")[0]) for each in results]
    return Claim(
        "the branch scale changes the later dynamics too",
        f"kernel at the end over that at the start: {lists(results.labels, growth)}",
        max(growth) > 1.05 * min(growth),
    )


def converges_in_depth(results: Trainings) -> Claim:
    """The distance to the curve of infinite depth shrinks as 1/L."""
    limit, finite = results[-1].theory(), results.lines[:-1]
    distance = [float(np.abs(each.theory() - limit).max()) for each in finite]
    deep = len(finite) // 2 if len(finite) > 2 else 0
    exponent, error = slope(results.values[deep:-1], np.array(distance[deep:]))
    return Claim(
        "the curves converge to that of infinite depth",
        f"largest distance: {lists(results.labels[:-1], distance)}; it goes as "
        f"L^({exponent:.2f} ± {error:.2f}) at large L",
        distance == sorted(distance, reverse=True) and exponent < -0.5,
    )


DEPTHS = (2, 4, 8, 16, 32)

PANELS = (
    Panel(
        "4a",
        "Residual networks, richness",
        "Richer networks train faster, yet all start with the same kernel.",
        "L = 16, beta = beta_0 / sqrt(L)",
        "nu = 1, beta_0 = 1, population loss, centered, lr 0.01, 40 steps",
        Training(tuple(Line(g, f"γ₀ = {g:g}", problem(richness=g)) for g in (0.5, 1.0, 2.0, 4.0))),
        OverSteps(),
        (same_initial_slope, faster_when_rich, follows),
        SIZES,
    ),
    Panel(
        "4b",
        "Residual networks, branch scale",
        "The branch scale changes the initial kernel and the learning of features.",
        "L = 16, beta = beta_0 / sqrt(L)",
        "nu = 1, gamma0 = 1, population loss, centered, lr 0.01, 40 steps",
        Training(tuple(Line(b, f"β₀ = {b:g}", problem(branch=b)) for b in (0.25, 0.5, 0.75, 1.0, 1.25))),
        OverSteps(),
        (branch_changes_the_kernel, branch_changes_the_dynamics, follows),
        SIZES,
    ),
    Panel(
        "4c",
        "Residual networks, depth",
        "With the depth the curves tend to a limit.",
        "beta_0 = 1.2, beta = beta_0 / sqrt(L)",
        "nu = 1, gamma0 = 1, population loss, centered, lr 0.01, 40 steps",
        Training(
            (
                *(Line(depth, f"L = {depth}", problem(depth, branch=1.2)) for depth in DEPTHS),
                Line(math.inf, "L = ∞", problem(math.inf, branch=1.2), networks=False),
            )
        ),
        OverSteps(),
        (converges_in_depth, follows),
        SIZES,
    ),
)
