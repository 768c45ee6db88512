"""Figure 2: whether the optimal learning rate moves with width."""

import math

import deeplinear as dl
from deeplinear._reproduce.claim import MOVES, Claim
from deeplinear._reproduce.measure import MOVING, STAYING, moves, optima
from deeplinear._reproduce.panel import Line, OverRates, Panel, Rates, Size
from deeplinear._reproduce.results import Optima

WIDTHS = (0.5, 1.0, 2.0, 4.0)
SIZES = {"tiny": Size(12, 3, 6, 2), "quick": Size(10**4, 16), "full": Size(10**5, 192)}
CHOICES = "L = 3, gamma0 = 4 (in NTK at nu = 1), full batch of alpha = 4, label noise 0.1, test loss after 9 steps"
LRS = (0.012, 0.2, 17)


def widths(parameterization: str) -> Rates:
    """Several widths."""

    def problem(width: float) -> dl.Problem:
        network = dl.MLP(3, width, richness=4.0, parameterization=parameterization)
        return dl.Problem(network, dl.Isotropic(0.1), dl.FullBatch(4.0), dl.GradientDescent(0.05), steps=10)

    return Rates("width", tuple(Line(width, f"ν = {width:g}", problem(width), group="nu") for width in WIDTHS), LRS)


def moves_right(results: Optima) -> Claim:
    """The optimum grows with width, in theory and in networks."""
    return Claim("the optimum moves right with nu", MOVING, moves(results, low=MOVES, high=math.inf), optima(results))


def stays(results: Optima) -> Claim:
    """The optimum does not move with width."""
    return Claim("the optimum stays where it is", STAYING, moves(results, -MOVES, MOVES), optima(results))


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
