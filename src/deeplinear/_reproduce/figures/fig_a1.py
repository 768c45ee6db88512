"""Figure A1: the largest stable learning rate."""

import math

import numpy as np

import deeplinear as dl
from deeplinear._core.statistics import loglog_slope
from deeplinear._reproduce.agreement import measured_slope
from deeplinear._reproduce.claim import MOVES, Check, Claim
from deeplinear._reproduce.measure import STAYING, half_way
from deeplinear._reproduce.panel import (
    Line,
    Panel,
    RateOverValues,
    Size,
    Stability,
)
from deeplinear._reproduce.results import Edge, Edges

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
        reached.append(f"{b.lr:.3g} at L = {depth} ({b.largest_lr:.3g} beyond holes)")
    return Claim(
        "in wide NTK networks it saturates",
        f"between the two largest nu the power of nu lies within ± {MOVES:g}, where a rate counts as staying",
        tuple(checks),
        f"it reaches {', '.join(reached)}",
    )


PANELS = (
    Panel(
        "A1",
        "Largest stable learning rate",
        "In muP it does not depend on width; in NTK it grows while networks are rich, then saturates.",
        "NTK and muP",
        f"population loss, 30 steps, gamma0 = {RICHNESS:g} (in NTK at nu = 1); stable: the loss at the end is not "
        "above that at the start; the rates are those at which the first stable interval ends, and dotted the largest "
        "stable ones, since past that end some rates train again",
        Stability((*stable(1, "ntk"), *stable(2, "ntk"), *stable(3, "ntk"), *stable(3, "mup"))),
        RateOverValues("width  ν = N/D"),
        (flat_in_mup, grows_in_ntk, grows_by_our_law, saturates),
        {"tiny": Size(8, 3, 6), "quick": Size(10**4, 16), "full": Size(10**5, 256)},
    ),
)
