"""Figure 5: whether the optimal learning rate moves with depth."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import deeplinear as dl
from deeplinear._core.statistics import loglog_slope
from deeplinear._reproduce.claim import MOVES, Check, Claim
from deeplinear._reproduce.measure import STAYING, moves, optima
from deeplinear._reproduce.panel import Line, OverRates, Panel, Rates, Size
from deeplinear._reproduce.results import Optima, Tuned

Array = NDArray[np.float64]

TINY, QUICK = Size(12, 3, 6, 2), Size(10**4, 16)
CHOICES = "nu = 1, gamma0 = 1, population loss without label noise, test loss after 10 steps"


ORDERS = 3.0
"""Orders of magnitude that are several."""


def across(depths: tuple[int, ...], branch: float, scaling: str, lrs: tuple[float, float, int] | None = None) -> Rates:
    """Several depths."""

    def problem(depth: int) -> dl.Problem:
        network = dl.ResNet(depth, 1.0, branch=branch, branch_scaling=scaling)
        return dl.Problem(network, dl.Isotropic(), dl.Population(), dl.GradientDescent(0.01), steps=11)

    return Rates("depth", tuple(Line(depth, f"L = {depth}", problem(depth), group="L") for depth in depths), lrs)


def shift(first: Tuned, last: Tuned) -> tuple[Check, Check]:
    """How many orders of magnitude the optimum falls between two depths, in theory and in networks."""
    (a, a_error), (b, b_error) = first.measured_lr, last.measured_lr
    error = math.hypot(a_error / a, b_error / b) / math.log(10)
    name = f"orders of magnitude from {first.line.label} to {last.line.label}"
    return (
        Check(name, "theory", math.log10(first.lr / last.lr), None, ORDERS),
        Check(name, "networks", math.log10(a / b), error, ORDERS),
    )


def shifts_by_orders(results: Optima) -> Claim:
    """Without branch scaling the optimum falls by orders of magnitude."""
    return Claim(
        "the optimum shifts by several orders of magnitude",
        f"by more than {ORDERS:g} from the shallowest to the deepest: several are at least that many",
        shift(results[0], results[-1]),
        optima(results),
    )


def stays(results: Optima) -> Claim:
    """With branch scaling the optimum is said to stay."""
    factors = [f"{a.lr / b.lr:.2f} from {a.line.label} to {b.line.label}" for a, b in itertools.pairwise([*results])]
    return Claim(
        "the optimum does not shift significantly as depth increases",
        STAYING,
        moves(results, -MOVES, MOVES),
        f"{optima(results)}; it falls by a factor {', '.join(factors)}",
        "Shallow networks are far from the limit of infinite depth, and their optima with them. What the scaling of "
        "the branches gives is that there is a limit.",
    )


def settles(results: Optima) -> Claim:
    """With branch scaling the optimum has a limit."""
    return Claim(
        "the optimum settles: each doubling of the depth moves it by less",
        "the logarithm of the factor by which a doubling moves it goes as a power of L below -0.5: half way between a "
        "shift that stays and one that falls as 1/L, the order in which curves converge (4c)",
        (
            Check("power of L", "theory", shrinking(results.values, [each.lr for each in results])[0], None, high=-0.5),
            Check("power of L", "networks", *measured_shrinking(results), high=-0.5),
        ),
        optima(results),
        ours=True,
    )


def shrinking(depths: Array, lrs: Sequence[float]) -> tuple[float, float]:
    """Power of L with which log(lr(L) / lr(2 L)) falls."""
    shifts = -np.diff(np.log(lrs))
    return loglog_slope(depths[:-1], shifts) if (shifts > 0).all() else (math.nan, math.nan)


def measured_shrinking(results: Optima) -> tuple[float, float]:
    """The same of networks, with what the error of each optimum does to it."""
    lr, error = np.array([each.measured_lr for each in results]).T
    value = shrinking(results.values, lr)[0]
    moved = [shrinking(results.values, lr * np.exp(unit * error / lr))[0] - value for unit in np.eye(len(lr))]
    return value, float(np.sqrt(np.square(moved).sum()))


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
        {"tiny": TINY, "quick": QUICK, "full": Size(10**5, 64)},
    ),
    Panel(
        "5b",
        "Learning rates, branches scaled",
        "With beta = beta_0 / sqrt(L) the best learning rate has a limit; the paper says that it hardly moves.",
        "beta_0 = 1.25, beta = beta_0 / sqrt(L)",
        CHOICES,
        across((2, 4, 8, 16, 32), 1.25, "depth-mup", (0.008, 0.32, 17)),
        OverRates(),
        (stays, settles),
        {"tiny": TINY, "quick": QUICK, "full": Size(10**5, 32)},
    ),
)
