"""Figure 4: residual networks."""

import itertools
import math

import numpy as np
from numpy.typing import NDArray

import deeplinear as dl
from deeplinear._core.statistics import loglog_slope
from deeplinear._reproduce.claim import LINE_WIDTH, Check, Claim
from deeplinear._reproduce.measure import ROUNDING, both, follows, jackknife, lists, ordered, steps_to
from deeplinear._reproduce.panel import Line, OverSteps, Panel, Size, Training
from deeplinear._reproduce.results import Trained, Trainings

Array = NDArray[np.float64]

SIZES = {"tiny": Size(16, 3, 20, 3), "quick": Size(10**4, 8), "full": Size(10**5, 32)}


def problem(depth: float = 16, richness: float = 1.0, branch: float = 1.0) -> dl.Problem:
    """Training on the population loss."""
    network = dl.ResNet(depth, 1.0, richness=richness, branch=branch, centered=True)
    return dl.Problem(network, dl.Isotropic(), dl.Population(), dl.GradientDescent(0.01), steps=40)


def same_initial_slope(results: Trainings) -> Claim:
    """The first step does not depend on richness."""
    theory = exponent(results, [each.theory() for each in results])
    value, error = jackknife([each.networks() for each in results], lambda *losses: exponent(results, [*losses]))
    return Claim(
        "the initial slope of the loss does not depend on gamma0",
        "the change in the first step goes as gamma0 to a power that is zero in theory, where it is exact (below "
        f"{ROUNDING:g}), and below 0.01 in networks, a tenth of what counts as a change elsewhere",
        (
            Check("power of gamma0", "theory", theory, None, -ROUNDING, ROUNDING),
            Check("power of gamma0", "networks", value, error, -0.01, 0.01),
        ),
    )


def exponent(results: Trainings, losses: list[Array]) -> float:
    """Power of the lines' value with which the first step changes the loss."""
    return loglog_slope(results.values, np.array([loss[0] - loss[1] for loss in losses]))[0]


def faster_when_rich(results: Trainings) -> Claim:
    """The richer, the sooner the loss is low."""
    return Claim(
        "training is faster the larger gamma0",
        "the number of steps to a test loss of 0.1, a tenth of the initial one, falls from each gamma0 to the next: "
        "the statement itself",
        ordered(results.lines[::-1], lambda loss: steps_to(loss, 0.1), "steps"),
        f"steps in theory: {lists(results.labels, [steps_to(each.theory(), 0.1) for each in results])}",
    )


def initial_kernel(network: dl.ResNet) -> float:
    """Kernel at initialisation: of L + 1 weight layers, those on branches count beta^2 each.

    C_h and C_g grow by 1 + beta^2 with every block that lies between, so the first layer and the readout give
    (1 + beta^2)^(L-1) each and a branch gives beta^2 (1 + beta^2)^(L-2).
    """
    L, square = network.layers, network.beta**2
    return float((1 + square) ** (L - 1) * (2 + (L - 1) * square / (1 + square)))


def branch_changes_the_kernel(results: Trainings) -> Claim:
    """The initial kernel grows with the branch scale, as the closed form says."""
    checks: list[Check] = []
    for a, b in itertools.pairwise(results):
        (first, second) = (initial_kernel(each.line.problem.network) for each in (a, b))
        found = float(b.theory("kernel")[0] / a.theory("kernel")[0])
        name = f"from {a.line.label} to {b.line.label}"
        off = found / (second / first) - 1
        checks.append(
            Check(f"growth of the kernel over that, less 1, {name}", "theory", off, None, -ROUNDING, ROUNDING)
        )
        checks += both(f"log of the first step {name}", [a, b], first_step_ratio, low=0.0)
    kernels = [initial_kernel(each.line.problem.network) for each in results]
    return Claim(
        "the branch scale changes the initial kernel",
        "the kernel grows from each beta_0 to the next by the factor that the closed form "
        "(1 + beta^2)^(L-1) (2 + (L-1) beta^2 / (1 + beta^2)) says, to rounding, and the first step with it",
        tuple(checks),
        f"closed form: {lists(results.labels, kernels)}",
    )


def first_step_ratio(first: Array, second: Array) -> float:
    """Logarithm of the change in the first step, of one loss over another; nan where one of them rises."""
    ratio = (second[0] - second[1]) / (first[0] - first[1])
    return math.log(ratio) if ratio > 0 else math.nan


def branch_changes_the_dynamics(results: Trainings) -> Claim:
    """At equal loss the kernel has grown by different amounts: features are learned differently."""
    growth = [kernel_growth(each) for each in results]
    return Claim(
        "the branch scale changes how features are learned, too",
        "by the time the loss is halved the kernel has grown by a fraction that differs between the beta_0: the "
        f"logarithm of the largest over the smallest is above {LINE_WIDTH:g}, what counts as a difference elsewhere, "
        "and would be zero if only the initial kernel changed",
        (
            Check(
                "log of the largest over the smallest growth",
                "theory",
                math.log(max(growth) / min(growth)),
                None,
                LINE_WIDTH,
            ),
        ),
        f"growth: {lists(results.labels, growth)}",
    )


def kernel_growth(each: Trained) -> float:
    """Fraction by which the kernel has grown when the loss is down to half, in theory."""
    loss, kernel = each.theory(), each.theory("kernel")
    return float(np.interp(math.log(2.0), -np.log(loss / loss[0]), kernel / kernel[0] - 1))


def converges_in_depth(results: Trainings) -> Claim:
    """The distance to the curve of infinite depth shrinks as 1/L."""
    limit, finite = results[-1].theory(), results.lines[:-1]
    depths = results.values[:-1]

    def power(*losses: Array) -> float:
        return loglog_slope(depths, np.array([np.abs(loss - limit).max() for loss in losses]))[0]

    distance = [float(np.abs(each.theory() - limit).max()) for each in finite]
    return Claim(
        "the curves converge to that of infinite depth",
        "the largest distance over all steps goes as a power of L below -0.5: half way between a distance that stays "
        "and one that falls as 1/L, the order of steps of size 1/L in the depth",
        both("power of L", finite, power, high=-0.5),
        f"distance in theory: {lists(results.labels[:-1], distance)}",
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
