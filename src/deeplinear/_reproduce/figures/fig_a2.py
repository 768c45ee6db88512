"""Figure A2: the first steps of online SGD."""

from collections.abc import Callable
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._reproduce.claim import LINE_WIDTH, Check, Claim
from deeplinear._reproduce.measure import half_way, jackknife, lists
from deeplinear._reproduce.panel import (
    Line,
    OverSteps,
    Panel,
    Size,
    Training,
)
from deeplinear._reproduce.results import Trainings

LR = 0.01


def early(width: float, batch: float) -> dl.Problem:
    """A few steps on fresh batches."""
    network = dl.MLP(4, width, richness=1.0, centered=True)
    return dl.Problem(network, dl.Isotropic(), dl.OnlineSGD(batch), dl.GradientDescent(LR), steps=21)


def powers(results: Trainings) -> list[tuple[str, Any, Any]]:
    """The first factor, and that of the paper's caption, to the power of the step."""
    steps = np.arange(6)
    found = [("(first factor)$^t$", steps, dl.first_step_growth(each.line.problem) ** steps) for each in results]
    return found + [("(paper's caption)$^t$", steps, caption_factor(each.line.problem) ** steps) for each in results]


def caption_factor(problem: dl.Problem) -> float:
    """The factor in the caption of the paper's figure."""
    L, nu, batch = problem.network.depth, problem.network.width, problem.sampling.drawn
    return (1 - L * LR) ** 2 + (L * LR) ** 2 * (1 / batch + 1 / nu + 2 / (batch * nu))  # type: ignore[operator]


def text_factor(problem: dl.Problem) -> float:
    """The factor in the recursion of the paper's appendix, with L where L + 1 is right."""
    L, nu, batch = problem.network.depth, problem.network.width, problem.sampling.drawn
    width = LR**2 * L * (L + 1) * (2 * L + 1) / (6 * nu)  # type: ignore[operator]
    return (1 - L * LR) ** 2 + (L * LR) ** 2 / batch + width * (1 + 1 / batch)


def noiseless_factor(problem: dl.Problem) -> float:
    """The factor of an infinite batch and an infinite width."""
    return (1 - (problem.network.layers + 1) * LR) ** 2


def caption_predicts(results: Trainings) -> Claim:
    """Powers of the caption's factor."""
    return Claim(
        "the loss of the first steps goes as [(1 - L lr)^2 + (L lr)^2 (1/alpha_B + 1/nu + 2/(alpha_B nu))]^t, the "
        "formula in the caption of the figure",
        FIRST_STEPS,
        first_steps(results, caption_factor),
        why="The factor of the first step has L + 1 where this has L, and another term of the width.",
    )


def predicts_the_first_steps(results: Trainings) -> Claim:
    """Powers of the corrected factor."""
    return Claim(
        "the loss of the first steps goes as a power of the corrected factor",
        FIRST_STEPS,
        first_steps(results, dl.first_step_growth),
        why="Where width and batch are small the growth slows down from step to step, at any richness: the weights "
        "remember the noise of earlier batches. The factor is exact for the first step only.",
        ours=True,
    )


FIRST_STEPS = (
    f"over the first three steps theory deviates from the power by less than {LINE_WIDTH:g}, about the width of a line"
)


def first_steps(results: Trainings, factor: Callable[[dl.Problem], float]) -> tuple[Check, ...]:
    """Check the largest deviation of the first three steps from powers of a factor."""
    checks = []
    for each in results:
        growth = factor(each.line.problem)
        off = max(abs(growth**step / (each.theory()[step] / each.theory()[0]) - 1) for step in (1, 2, 3))
        checks.append(Check(f"deviation at {each.line.label}", "theory", off, None, high=LINE_WIDTH))
    return tuple(checks)


def text_predicts(results: Trainings) -> Claim:
    """The factor of the recursion in the text has L where L + 1 is right."""
    return Claim(
        "the first step multiplies the loss by the factor of the paper's recursion, (1 - L lr)^2 + (L lr)^2/alpha_B + "
        "lr^2 L(L+1)(2L+1)/(6 nu) (1 + 1/alpha_B)",
        "theory is closer to it than half way to the corrected factor",
        first_step(results, text_factor, dl.first_step_growth),
        why="L + 1 weight layers move, not L: (1 - L lr)^2 and (L lr)^2 / alpha_B must have L + 1.",
    )


def predicts_the_first_step(results: Trainings) -> Claim:
    """The corrected factor is the growth in the first step, in theory and in networks."""
    checks = list(first_step(results, dl.first_step_growth, text_factor))
    for each in results:
        growth, rival = dl.first_step_growth(each.line.problem), noiseless_factor(each.line.problem)
        value, error = jackknife([each.networks()], lambda loss: float(loss[1] / loss[0]))
        close = half_way(growth, rival)
        checks.append(Check(f"growth at {each.line.label}", "networks", value, error, growth - close, growth + close))
    factors = [dl.first_step_growth(each.line.problem) for each in results]
    return Claim(
        "the first step multiplies the loss by the corrected factor, (1 - (L+1) lr)^2 + ((L+1) lr)^2/alpha_B + "
        "lr^2 L(L+1)(2L+1)/(6 nu) (1 + 1/alpha_B)",
        "theory is closer to it than half way to the paper's recursion, and networks, which cannot tell these two, "
        "than half way to (1 - (L+1) lr)^2, the factor without noise of batch and width",
        tuple(checks),
        f"corrected factor: {lists(results.labels, factors, '{:.4f}')}",
        ours=True,
    )


def first_step(
    results: Trainings, factor: Callable[[dl.Problem], float], rival: Callable[[dl.Problem], float]
) -> tuple[Check, ...]:
    """Check the growth of theory in the first step against a factor, to half way to a rival."""
    checks = []
    for each in results:
        expected = factor(each.line.problem)
        close = half_way(expected, rival(each.line.problem))
        growth = float(each.theory()[1] / each.theory()[0])
        name = f"growth less factor at {each.line.label}"
        checks.append(Check(name, "theory", growth - expected, None, -close, close))
    return tuple(checks)


PANELS = (
    Panel(
        "A2a",
        "First steps of online SGD, batch sizes",
        "The first steps multiply the loss by (1 - L lr)^2 + (L lr)^2 (1/alpha_B + 1/nu + 2/(alpha_B nu)), "
        "approximately.",
        "L = 4, nu = 0.25",
        "gamma0 = 1, centered, lr 0.01",
        Training(tuple(Line(b, f"B/D = {b:g}", early(0.25, b)) for b in (0.05, 0.1, 0.2, 1.0))),
        OverSteps(guides=powers, ylim=(0.3, 2.5)),
        (caption_predicts, text_predicts, predicts_the_first_step, predicts_the_first_steps),
        {"tiny": Size(20, 4, 6, 2), "quick": Size(10**4, 64), "full": Size(10**5, 256)},
    ),
    Panel(
        "A2b",
        "First steps of online SGD, widths",
        "Narrow networks rise first, by the same formula.",
        "L = 4, alpha_B = 0.05",
        "gamma0 = 1, centered, lr 0.01",
        Training(tuple(Line(nu, f"ν = {nu:g}", early(nu, 0.05)) for nu in (0.25, 0.5, 1.0, 4.0))),
        OverSteps(guides=powers, ylim=(0.3, 2.5)),
        (caption_predicts, text_predicts, predicts_the_first_step, predicts_the_first_steps),
        {"tiny": Size(20, 4, 6, 2), "quick": Size(10**4, 64), "full": Size(10**5, 256)},
    ),
)
