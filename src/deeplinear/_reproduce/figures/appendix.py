"""Figures of the appendix: stable learning rates, the first steps of SGD, exponents of hard tasks."""

import math
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._reproduce.measure import SIGNIFICANT, lists, with_error
from deeplinear._reproduce.panel import (
    Claim,
    Line,
    OverSteps,
    Panel,
    RateOverValues,
    Size,
    SlopeOverValues,
    Stability,
    Training,
)
from deeplinear._reproduce.results import Edge, Edges, Trainings, slope

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


def growth(lines: list[Edge], measured: bool = False) -> tuple[float, float]:
    """Exponent of the rate in nu where networks are rich."""
    rich = [each for each in lines if RICH[0] <= each.line.value <= RICH[1]]
    rates = np.array([each.measured[0] if measured else each.lr for each in rich])
    return slope(np.array([each.line.value for each in rich]), rates)


def flat_in_mup(results: Edges) -> Claim:
    """In muP the largest stable rate does not depend on width."""
    lines = results.group("muP, L = 3")
    theory, networks = growth(lines), growth(lines, measured=True)
    return Claim(
        "in muP the largest stable rate does not depend on nu",
        f"nu^({with_error(*theory)}) (theory), nu^({with_error(*networks)}) (networks)",
        abs(theory[0]) < 0.1 and abs(networks[0]) < 0.1,
    )


def grows_in_ntk(results: Edges) -> Claim:
    """The paper's exponent of growth."""
    found = {depth: growth(results.group(f"NTK, L = {depth}")) for depth in (1, 2, 3)}
    measured = {depth: growth(results.group(f"NTK, L = {depth}"), measured=True) for depth in found}
    text = "; ".join(
        f"L = {depth}: {with_error(*each)} (theory), {with_error(*measured[depth])} (networks), "
        f"paper {1 - 1 / depth:.3f}, 1 - 1/(L+1) = {1 - 1 / (depth + 1):.3f}"
        for depth, each in found.items()
    )
    off = [abs(each[0] - (1 - 1 / depth)) for depth, each in found.items()]
    return Claim(
        "in rich NTK networks it grows as nu^(1-1/L)",
        text,
        max(off) < 0.1,
        "All L + 1 weight layers share the growth of the function, so the kernel of a rich network goes as "
        "gamma0^(2L/(L+1)) and the rate as nu^(1-1/(L+1)); at L = 1 the paper's law would be no growth at all.",
    )


def saturates(results: Edges) -> Claim:
    """Wide NTK networks are lazy, and their rate no longer grows."""
    text, local = [], []
    for depth in (1, 2, 3):
        *_, a, b = results.group(f"NTK, L = {depth}")
        local.append(math.log(b.lr / a.lr) / math.log(b.line.value / a.line.value))
        text.append(f"L = {depth}: nu^{local[-1]:.2f} from {a.line.value:g} to {b.line.value:g}, up to {b.lr:.3g}")
    return Claim("in wide NTK networks it saturates", "; ".join(text), max(local) < 0.1)


# --- A2: the first steps of online SGD ------------------------------------------------------------------------

LR = 0.01


def early(width: float, batch: float) -> dl.Problem:
    """A few steps on fresh batches."""
    network = dl.MLP(4, width, richness=1.0, centered=True)
    return dl.Problem(network, dl.Isotropic(), dl.OnlineSGD(batch), dl.GradientDescent(LR), steps=21)


def powers(results: Trainings) -> list[tuple[str, Any, Any]]:
    """The first factor, to the power of the step."""
    steps = np.arange(6)
    return [("(first factor)$^t$", steps, dl.first_step_growth(each.line.problem) ** steps) for each in results]


def printed_factor(problem: dl.Problem) -> float:
    """The factor as the paper prints it, with L where L + 1 is right."""
    L, nu, batch = problem.network.depth, problem.network.width, problem.sampling.batch  # type: ignore[union-attr]
    width = LR**2 * L * (L + 1) * (2 * L + 1) / (6 * nu)  # type: ignore[operator]
    return (1 - L * LR) ** 2 + (L * LR) ** 2 / batch + width * (1 + 1 / batch)


def predicts_the_first_step(results: Trainings) -> Claim:
    """The corrected factor is the growth in the first step, within the error of the networks."""
    z, text = [], []
    for each in results:
        ratio = each.networks()[:, 1] / each.networks()[:, 0]
        error = float(ratio.std(ddof=1) / math.sqrt(len(ratio)))
        factor = dl.first_step_growth(each.line.problem)
        z.append((float(ratio.mean()) - factor) / error)
        text.append(f"{each.line.label}: {factor:.4f} against {with_error(float(ratio.mean()), error, 4)}")
    return Claim(
        "the corrected factor is the growth in the first step", "; ".join(text), max(map(abs, z)) < SIGNIFICANT
    )


def predicts_the_first_steps(results: Trainings) -> Claim:
    """Its powers predict a few more steps."""
    off = [max(abs(dl.first_step_growth(e.line.problem) ** t / e.theory()[t] - 1) for t in range(4)) for e in results]
    return Claim(
        "its powers predict the first three steps to 10 %",
        f"largest deviation from theory: {lists(results.labels, [100 * each for each in off], '{:.2g} %')}",
        max(off) < 0.10,
        "Where width and batch are small the growth slows down from step to step, at any richness: the weights "
        "remember the noise of earlier batches. The factor is exact for the first step only.",
    )


def printed_is_off(results: Trainings) -> Claim:
    """The factor as printed has L where L + 1 is right."""
    printed = [printed_factor(each.line.problem) for each in results]
    right = [float(each.theory()[1] / each.theory()[0]) for each in results]
    return Claim(
        "the factor as the paper prints it is the growth in the first step",
        f"printed {lists(results.labels, printed, '{:.4f}')}; exact {lists(results.labels, right, '{:.4f}')}",
        max(abs(a - b) for a, b in zip(printed, right, strict=True)) < 1e-4,
        "L + 1 weight layers move, not L: (1 - L lr)^2 and (L lr)^2 / alpha_B must have L + 1.",
    )


# --- A3: exponents of hard tasks ------------------------------------------------------------------------------


CLOSE = 0.05
"""How far a fitted exponent may be from a law."""


def hard(depth: int) -> list[Line]:
    """Several hard tasks, at infinite width without noise."""

    def problem(source: float) -> dl.Problem:
        network = dl.MLP(depth, "infinite", richness=5.0)
        data = dl.Spectrum.power_law(2.0, source)
        return dl.Problem(network, data, dl.Population(), dl.GradientDescent(2.5e-5), steps=4_000_000)

    group = f"L = {depth}"
    return [Line(b, f"b = {b:g}, {group}", problem(b), networks=False, group=group) for b in (0.3, 0.5, 0.9)]


def window(each: Any) -> tuple[float, float]:
    """The last decade of a curve."""
    last = float(each.times[-1])
    return last / 10, last


def fitted(results: Trainings, depth: int) -> tuple[str, float, float]:
    """Exponents at one depth: in words, and how far they are from either law at most."""
    lines = results.group(f"L = {depth}")
    laws = [(each.line.value, each.fit(*window(each))) for each in lines]
    text = ", ".join(f"{with_error(law.exponent, law.standard_error)} at b = {b:g}" for b, law in laws)
    paper = max((abs(law.exponent - 2 * b / (1 + b)) for b, law in laws), default=math.nan)
    ours = max((abs(law.exponent - dl.rich_exponent(b, depth)) for b, law in laws), default=math.nan)
    return f"L = {depth}: {text}", paper, ours


def one_layer(results: Trainings) -> Claim:
    """The paper's law at one hidden layer."""
    text, off, _ = fitted(results, 1)
    return Claim(
        f"with one hidden layer slopes agree with 2b/(1+b) (within {CLOSE})",
        f"{text}; off by {off:.3f} at most",
        off < CLOSE,
    )


def any_depth(results: Trainings) -> Claim:
    """The paper's law at four hidden layers."""
    text, off, _ = fitted(results, 4)
    return Claim(
        f"deeper networks have the same exponent 2b/(1+b) (within {CLOSE})",
        f"{text}; off by {off:.3f} at most",
        off < CLOSE,
        "The L + 1 weight layers share the growth of the function; the exponent is (L+1)b/(1+Lb), which is 2b/(1+b) "
        "at L = 1 only and tends to 1.",
    )


def our_law(results: Trainings) -> Claim:
    """The corrected law at four hidden layers."""
    text, paper, ours = fitted(results, 4)
    return Claim(
        f"the exponent is (L+1)b/(1+Lb) (within {CLOSE})",
        f"{text}; off by {ours:.3f} at most, and 2b/(1+b) by {paper:.3f}",
        ours < CLOSE and ours < paper,
        "Slopes still drift towards it over the last decade.",
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
        (flat_in_mup, grows_in_ntk, saturates),
        {"tiny": Size(8, 3, 6), "quick": Size(50, 16), "full": Size(200, 32)},
    ),
    Panel(
        "A2a",
        "First steps of online SGD, batch sizes",
        "The first steps multiply the loss by a factor that is known in closed form.",
        "L = 4, nu = 0.25",
        "gamma0 = 1, centered, lr 0.01",
        Training(tuple(Line(b, f"B/D = {b:g}", early(0.25, b)) for b in (0.05, 0.1, 0.2, 1.0))),
        OverSteps(guides=powers, ylim=(0.3, 2.5)),
        (predicts_the_first_step, predicts_the_first_steps, printed_is_off),
        {"tiny": Size(20, 4, 6, 2), "quick": Size(200, 64), "full": Size(1000, 64)},
    ),
    Panel(
        "A2b",
        "First steps of online SGD, widths",
        "Narrow networks rise first, by the same factor.",
        "L = 4, alpha_B = 0.05",
        "gamma0 = 1, centered, lr 0.01",
        Training(tuple(Line(nu, f"ν = {nu:g}", early(nu, 0.05)) for nu in (0.25, 0.5, 1.0, 4.0))),
        OverSteps(guides=powers, ylim=(0.3, 2.5)),
        (predicts_the_first_step, predicts_the_first_steps, printed_is_off),
        {"tiny": Size(20, 4, 6, 2), "quick": Size(200, 48), "full": Size(1000, 64)},
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
            window,
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
