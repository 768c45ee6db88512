"""Figures of the appendix: stable learning rates, the first steps of SGD, exponents of hard tasks."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._reproduce.agreement import measured_slope
from deeplinear._reproduce.claim import LINE_WIDTH, MOVES, Check, Claim
from deeplinear._reproduce.measure import STAYING, half_way, jackknife, late_exponent, lists
from deeplinear._reproduce.panel import (
    Line,
    OverSteps,
    Panel,
    RateOverValues,
    Size,
    SlopeOverValues,
    Stability,
    Training,
)
from deeplinear._reproduce.results import Edge, Edges, Trained, Trainings
from deeplinear._scaling import loglog_slope

# --- A1: the largest stable learning rate ---------------------------------------------------------------------

RICHNESS, RICH = 16.0, (0.5, 8.0)
"""Richness at nu = 1, and the range of widths in which NTK networks are still rich."""

WIDTHS = (0.5, 1.0, 2.0, 4.0, 8.0, 64.0, 512.0, 4096.0, 32768.0, 262144.0)


def stable(depth: int, parameterization: str) -> list[Line]:
    """Several widths; networks where they are small enough."""
    group = f"{'NTK' if parameterization == 'ntk' else 'muP'}, L = {depth}"

    def problem(width: float) -> dl.Problem:
        network = dl.MLP(depth, width, richness=RICHNESS, parameterization=parameterization)
        return dl.Problem(network, dl.Isotropic(), dl.Population(), dl.GradientDescent(0.01), steps=30)

    return [Line(nu, f"{group}, ν = {nu:g}", problem(nu), networks=nu <= RICH[1], group=group) for nu in WIDTHS]


def growth(lines: list[Edge]) -> tuple[float, tuple[float, float]]:
    """Power of nu with which the rate grows where networks are rich: of theory, and of networks with its error."""
    rich = [each for each in lines if RICH[0] <= each.line.value <= RICH[1]]
    widths = np.array([each.line.value for each in rich])
    measured, errors = np.array([each.measured for each in rich]).T
    return loglog_slope(widths, np.array([each.lr for each in rich]))[0], measured_slope(widths, measured, errors)


def grown(results: Edges, group: str, low: float, high: float) -> tuple[Check, Check]:
    """Check the power of nu with which the rate of a group grows."""
    theory, networks = growth(results.group(group))
    return (
        Check(f"power of nu, {group}", "theory", theory, None, low, high),
        Check(f"power of nu, {group}", "networks", *networks, low, high),
    )


def flat_in_mup(results: Edges) -> Claim:
    """In muP the largest stable rate does not depend on width."""
    return Claim(
        "in muP the largest stable rate does not depend on nu",
        f"{STAYING}; from nu = {RICH[0]:g} to {RICH[1]:g}",
        grown(results, "muP, L = 3", -MOVES, MOVES),
    )


def grows_in_ntk(results: Edges) -> Claim:
    """The paper's exponent of growth."""
    return Claim(
        "in rich NTK networks it grows as nu^(1-1/L)",
        RIVALS,
        tuple(check for depth in DEPTHS for check in grows_as(results, depth, 1 - 1 / depth)),
        why="All L + 1 weight layers share the growth of the function, so the kernel of a rich network goes as "
        "gamma0^(2L/(L+1)) and the rate as nu^(1-1/(L+1)); at L = 1 the paper's law would be no growth at all.",
    )


def grows_by_our_law(results: Edges) -> Claim:
    """The exponent that follows from L + 1 weight layers."""
    return Claim(
        "in rich NTK networks it grows as nu^(1-1/(L+1))",
        RIVALS,
        tuple(check for depth in DEPTHS for check in grows_as(results, depth, 1 - 1 / (depth + 1))),
        why=f"The law is that of large gamma0; here it is {RICHNESS / math.sqrt(RICH[1]):.1f} at the widest.",
        ours=True,
    )


DEPTHS = (1, 2, 3)
RIVALS = (
    f"from nu = {RICH[0]:g} to {RICH[1]:g} the power of nu at each depth is closer to this law than half way to the "
    "other of 1-1/L and 1-1/(L+1)"
)


def grows_as(results: Edges, depth: int, law: float) -> tuple[Check, Check]:
    """Check one of the two laws at one depth."""
    close = half_way(law, 1 - 1 / depth, 1 - 1 / (depth + 1))
    return grown(results, f"NTK, L = {depth}", law - close, law + close)


def saturates(results: Edges) -> Claim:
    """Wide NTK networks are lazy, and their rate no longer grows."""
    checks, reached = [], []
    for depth in DEPTHS:
        *_, a, b = results.group(f"NTK, L = {depth}")
        local = math.log(b.lr / a.lr) / math.log(b.line.value / a.line.value)
        name = f"power of nu, L = {depth}, from {a.line.value:g} to {b.line.value:g}"
        checks.append(Check(name, "theory", local, None, -MOVES, MOVES))
        reached.append(f"{b.lr:.3g} at L = {depth}")
    return Claim(
        "in wide NTK networks it saturates",
        f"between the two largest nu the power of nu lies within ± {MOVES:g}, where a rate counts as staying",
        tuple(checks),
        f"it reaches {', '.join(reached)}",
    )


# --- A2: the first steps of online SGD ------------------------------------------------------------------------

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


# --- A3: exponents of hard tasks ------------------------------------------------------------------------------


def hard(depth: int) -> list[Line]:
    """Several hard tasks, at infinite width without noise."""

    def problem(source: float) -> dl.Problem:
        network = dl.MLP(depth, "infinite", richness=5.0)
        data = dl.Spectrum.power_law(2.0, source)
        return dl.Problem(network, data, dl.Population(), dl.GradientDescent(2.5e-5), steps=4_000_000)

    group = f"L = {depth}"
    return [Line(b, f"b = {b:g}, {group}", problem(b), networks=False, group=group) for b in (0.3, 0.5, 0.9)]


def laws(source: float, depth: int) -> tuple[float, float, float]:
    """What the exponent could be: lazy, the paper's, ours."""
    return source, 2 * source / (1 + source), dl.rich_exponent(source, depth)


def agree(results: Trainings, depth: int, which: int) -> tuple[Check, ...]:
    """Check the exponents at one depth against one of the laws."""
    checks = []
    for each in results.group(f"L = {depth}"):
        source = each.line.value
        law = laws(source, depth)[which]
        close = half_way(law, *laws(source, depth))
        checks.append(Check(f"exponent less {law:.3f} at b = {source:g}", "theory", *shifted(each, law), -close, close))
    return tuple(checks)


def shifted(each: Trained, law: float) -> tuple[float, float]:
    """Late exponent less a law, and its error."""
    exponent, error = late_exponent(each)
    return exponent - law, error


HALF_WAY = (
    "over the last decade of steps the exponent at each b is closer to the law than half way to the nearest other of "
    "b, 2b/(1+b) and (L+1)b/(1+Lb); ± is how far it still drifts"
)


NEAR_ONE = "Close to b = 1, where hard tasks end, the laws are so close together that it takes far longer runs to tell."


def one_layer(results: Trainings) -> Claim:
    """The paper's law at one hidden layer."""
    return Claim(
        "with one hidden layer the exponent is 2b/(1+b)",
        HALF_WAY,
        agree(results, 1, 1),
        why=NEAR_ONE,
    )


def any_depth(results: Trainings) -> Claim:
    """The paper's law at four hidden layers."""
    return Claim(
        "with four hidden layers the exponent is the same, 2b/(1+b)",
        HALF_WAY,
        agree(results, 4, 1),
        why="The L + 1 weight layers share the growth of the function; the exponent is (L+1)b/(1+Lb), which is "
        "2b/(1+b) at L = 1 only and tends to 1.",
    )


def our_law(results: Trainings) -> Claim:
    """The corrected law at four hidden layers."""
    return Claim(
        "with four hidden layers the exponent is (L+1)b/(1+Lb)",
        HALF_WAY,
        agree(results, 4, 2),
        why=NEAR_ONE,
        ours=True,
    )


PANELS = (
    Panel(
        "A1",
        "Largest stable learning rate",
        "In muP it does not depend on width; in NTK it grows while networks are rich, then saturates.",
        "NTK and muP",
        f"population loss, 30 steps, gamma0 = {RICHNESS:g} (in NTK at nu = 1); stable: the loss at the end is not "
        "above that at the start",
        Stability((*stable(1, "ntk"), *stable(2, "ntk"), *stable(3, "ntk"), *stable(3, "mup"))),
        RateOverValues("width  ν = N/D"),
        (flat_in_mup, grows_in_ntk, grows_by_our_law, saturates),
        {"tiny": Size(8, 3, 6), "quick": Size(10**4, 16), "full": Size(10**5, 64)},
    ),
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
    Panel(
        "A3",
        "Exponents of hard tasks",
        "Fitted slopes follow 2b/(1+b).",
        "several sources b < 1",
        "L = 1 and 4, capacity 2, gamma0 = 5, infinite width, population loss, lr 2.5e-5 (as the kernel grows, larger "
        "rates pass the edge of stability), 4 x 10^6 steps; slopes of the last decade; no networks, since the law is "
        "that of infinite width",
        Training((*hard(1), *hard(4))),
        SlopeOverValues(
            "source  b",
            {
                "lazy: b": lambda b: b,
                "paper: 2b/(1+b)": lambda b: 2 * b / (1 + b),
                "(L+1)b/(1+Lb), L = 4": lambda b: 5 * b / (1 + 4 * b),
            },
        ),
        (one_layer, any_depth, our_law),
        {"tiny": Size(1, 1, 200, 4), "quick": Size(1, 1), "full": Size(1, 1)},
    ),
)
