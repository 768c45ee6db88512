"""Figure 5: whether the optimal learning rate moves with depth."""

import numpy as np

import deeplinear as dl
from deeplinear._reproduce.measure import optima, percent, transfer_exponents
from deeplinear._reproduce.panel import Claim, Line, OverRates, Panel, Rates, Size
from deeplinear._reproduce.results import Optima

SIZES = {"tiny": Size(12, 3, 6, 2), "quick": Size(100, 16), "full": Size(800, 32)}
CHOICES = "nu = 1, gamma0 = 1, population loss without label noise, test loss after 10 steps"


MOVED = 0.25
"""Fraction by which the optimum may move at the last doubling of the depth."""


def across(depths: tuple[int, ...], branch: float, scaling: str, lrs: tuple[float, float, int] | None = None) -> Rates:
    """Several depths."""

    def problem(depth: int) -> dl.Problem:
        network = dl.ResNet(depth, 1.0, branch=branch, branch_scaling=scaling)
        return dl.Problem(network, dl.Isotropic(), dl.Population(), dl.GradientDescent(0.01), steps=11)

    return Rates("depth", tuple(Line(depth, f"L = {depth}", problem(depth), group="L") for depth in depths), lrs)


def shift(results: Optima) -> tuple[float, float]:
    """By what factor the optimum moves from the first to the last depth, in theory and in networks."""
    first, last = results[0], results[-1]
    return first.lr / last.lr, first.measured_lr[0] / last.measured_lr[0]


def shifts_by_orders(results: Optima) -> Claim:
    """Without branch scaling the optimum falls by orders of magnitude."""
    theory, networks = shift(results)
    return Claim(
        "the optimum shifts by orders of magnitude",
        f"by a factor {theory:.3g} (theory), {networks:.3g} (networks); theory: {optima(results)}; "
        f"{transfer_exponents(results)}",
        min(theory, networks) > 100,
    )


def stays(results: Optima) -> Claim:
    """With branch scaling the optimum settles."""
    theory, networks = shift(results)
    lrs = np.array([each.lr for each in results])
    local = lrs[:-1] / lrs[1:]
    settles = bool((np.diff(local) < 0).all()) and local[-1] < 1 + MOVED
    return Claim(
        f"the optimum does not shift significantly with depth (by less than {percent(MOVED)} at the last doubling)",
        f"from each depth to the next by {', '.join(f'{each:.2f}' for each in local)}, in all by {theory:.3g} "
        f"(theory), {networks:.3g} (networks); theory: {optima(results)}",
        settles,
        "It still moves between shallow networks, and settles as 1/L towards the optimum of infinite depth.",
    )


PANELS = (
    Panel(
        "5a",
        "Learning rates, branches not scaled",
        "Without scaled branches the best learning rate falls by orders of magnitude with depth.",
        "beta = 1",
        CHOICES,
        across((2, 4, 8, 16), 1.0, "none"),
        OverRates(),
        (shifts_by_orders,),
        SIZES,
    ),
    Panel(
        "5b",
        "Learning rates, branches scaled",
        "With beta = beta_0 / sqrt(L) the best learning rate hardly moves with depth.",
        "beta_0 = 1.25, beta = beta_0 / sqrt(L)",
        CHOICES,
        across((2, 4, 8, 16, 32), 1.25, "depth-mup", (0.008, 0.32, 17)),
        OverRates(),
        (stays,),
        SIZES,
    ),
)
