"""Figure 1: width and depth of multilayer networks."""

import itertools
import math

import numpy as np
from numpy.typing import NDArray

import deeplinear as dl
from deeplinear._core.statistics import loglog_slope
from deeplinear._reproduce.claim import Check, Claim
from deeplinear._reproduce.measure import both, follows, lists, ordered, steps_to
from deeplinear._reproduce.panel import Line, OverSteps, Panel, Size, Training
from deeplinear._reproduce.results import Trainings

Array = NDArray[np.float64]

WIDTHS = (0.5, 1.0, 2.0, 4.0)
SIZES = {"tiny": Size(20, 3, 20, 3), "quick": Size(10**4, 8), "full": Size(10**5, 32)}
CHOICES = "full batch of alpha = 2 without label noise, gamma0 = 3 (in NTK at nu = 1), lr 0.01, 200 steps"


def problem(depth: int, width: float | str, parameterization: str = "mup") -> dl.Problem:
    """Full-batch training."""
    network = dl.MLP(depth, width, richness=3.0, parameterization=parameterization)  # type: ignore[arg-type]
    return dl.Problem(network, dl.Isotropic(), dl.FullBatch(2.0), dl.GradientDescent(0.01), steps=200)


def widths(parameterization: str) -> Training:
    """Several widths, and the limit of infinite width."""
    lines = [Line(width, f"ν = {width:g}", problem(4, width, parameterization)) for width in WIDTHS]
    limit = Line(np.inf, "ν = ∞", problem(4, "infinite", parameterization), networks=False)
    return Training((*lines, limit))


def tends_to_linear(results: Trainings) -> Claim:
    """The distance to the linear model shrinks with width."""
    limit, finite = results[-1].theory(), results.lines[:-1]
    widths = results.values[:-1]

    def distance(loss: Array) -> float:
        return float(np.abs(loss - limit).max() / limit[0])

    def exponent(*losses: Array) -> float:
        return loglog_slope(widths, np.array([distance(loss) for loss in losses]))[0]

    far = [distance(each.theory()) for each in finite]
    return Claim(
        "the loss tends to that of a linear model as nu grows",
        "the largest distance over all steps goes as a power of nu below -0.5: half way between a distance that stays "
        "and one that falls as 1/nu, the first order of the expansion in gamma0^2 = g^2/nu",
        both("power of nu", finite, exponent, high=-0.5),
        f"distance over the initial loss, theory: {lists(results.labels[:-1], far)}",
    )


def wider_is_not_always_faster(results: Trainings) -> Claim:
    """The widest of the networks has the highest loss late in training."""
    narrow, wide = results.trained[0], results.trained[-1]
    early = float(wide.theory()[5] / narrow.theory()[5])
    return Claim(
        "wider is not always faster",
        "one step at which the widest networks have a higher loss than the narrowest is enough; it is looked for at "
        "the last step, where differences of speed have added up",
        both(
            f"log of the last loss at {wide.line.label} over that at {narrow.line.label}",
            [narrow, wide],
            lambda first, second: math.log(second[-1] / first[-1]),
            low=0.0,
        ),
        f"at step 5 the ratio is {early:.3g} (theory)",
    )


def falls_with_width(results: Trainings) -> Claim:
    """In muP the loss falls with width at every step."""
    checks: list[Check] = []
    for a, b in itertools.pairwise(results):
        name = f"largest log of the loss at {b.line.label} over that at {a.line.label}"
        checks += both(name, [a, b], lambda first, second: float(np.log(second / first).max()), high=0.0)
    return Claim(
        "the loss falls with nu at every step",
        "the largest ratio over all steps is below 1, from each width to the next: the statement itself",
        tuple(checks),
    )


def deeper_is_faster(results: Trainings) -> Claim:
    """The deeper, the sooner the loss is low."""
    return Claim(
        "the deeper the network, the sooner its test loss is down to 0.1",
        "the number of steps to a tenth of a zero function's loss, 1, falls from each depth to the next: the statement "
        "itself",
        ordered(results.lines[::-1], lambda loss: steps_to(loss, 0.1), "steps"),
        f"steps in theory: {lists(results.labels, [steps_to(each.theory(), 0.1) for each in results])}",
        ours=True,
    )


PANELS = (
    Panel(
        "1a",
        "Widths in NTK parameterization",
        "With nu the network turns into a linear model, and wider is not always better.",
        "L = 4",
        CHOICES,
        widths("ntk"),
        OverSteps(),
        (tends_to_linear, wider_is_not_always_faster, follows),
        SIZES,
    ),
    Panel(
        "1b",
        "Widths in muP",
        "At constant gamma0 the loss falls faster the wider the network.",
        "L = 4",
        CHOICES,
        widths("mup"),
        OverSteps(),
        (falls_with_width, follows),
        SIZES,
    ),
    Panel(
        "1c",
        "Depths in muP",
        "Theory follows networks of any depth.",
        "MLP, muP",
        "nu = 1, full batch of alpha = 2 without label noise, gamma0 = 3, lr 0.01, 200 steps",
        Training(tuple(Line(depth, f"L = {depth}", problem(depth, 1.0)) for depth in (1, 2, 3, 4, 6))),
        OverSteps(),
        (follows, deeper_is_faster),
        SIZES,
    ),
)
