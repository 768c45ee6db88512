"""Figure 2: whether the optimal learning rate moves with width."""

import deeplinear as dl
from deeplinear._reproduce.measure import optima, transfer_exponents
from deeplinear._reproduce.panel import Claim, Line, OverRates, Panel, Rates, Size
from deeplinear._reproduce.results import Optima

WIDTHS = (0.5, 1.0, 2.0, 4.0)
SIZES = {"tiny": Size(12, 3, 6, 2), "quick": Size(100, 16), "full": Size(500, 32)}
CHOICES = "L = 3, gamma0 = 4 (in NTK at nu = 1), full batch of alpha = 4, label noise 0.1, test loss after 9 steps"
LRS = (0.012, 0.2, 17)
STAYS = 0.15
"""Largest exponent that counts as staying."""


def widths(parameterization: str) -> Rates:
    """Several widths."""

    def problem(width: float) -> dl.Problem:
        network = dl.MLP(3, width, richness=4.0, parameterization=parameterization)
        return dl.Problem(network, dl.Isotropic(0.1), dl.FullBatch(4.0), dl.GradientDescent(0.05), steps=10)

    return Rates("width", tuple(Line(width, f"ν = {width:g}", problem(width), group="nu") for width in WIDTHS), LRS)


def moves_right(results: Optima) -> Claim:
    """The optimum grows with width, in theory and in networks."""
    rises = all(value > STAYS and value > 2 * error for value, error in (results.exponent, results.measured_exponent))
    return Claim(
        f"the optimum moves right with nu (exponent above {STAYS})",
        f"{transfer_exponents(results)}; theory: {optima(results)}",
        rises,
    )


def stays(results: Optima) -> Claim:
    """The optimum does not move with width."""
    exponents = (results.exponent, results.measured_exponent)
    return Claim(
        f"the optimum stays where it is (exponent within ± {STAYS})",
        f"{transfer_exponents(results)}; theory: {optima(results)}",
        all(abs(value) < STAYS for value, _ in exponents),
    )


PANELS = (
    Panel(
        "2a",
        "Learning rates in NTK parameterization",
        "Features learn more slowly the wider the network, so the best learning rate grows: it does not transfer.",
        "several widths",
        CHOICES,
        widths("ntk"),
        OverRates(beyond=1.5),
        (moves_right,),
        SIZES,
    ),
    Panel(
        "2b",
        "Learning rates in muP",
        "The best learning rate of a narrow network is that of a wide one.",
        "several widths",
        CHOICES,
        widths("mup"),
        OverRates(beyond=1.5),
        (stays,),
        SIZES,
    ),
)
