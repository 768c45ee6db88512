"""Figure 1: width and depth of multilayer networks."""

import numpy as np

import deeplinear as dl
from deeplinear._reproduce.measure import SIGNIFICANT, follows, lists, percent, steps_to, violations
from deeplinear._reproduce.panel import Claim, Line, OverSteps, Panel, Size, Training
from deeplinear._reproduce.results import Trainings, slope

WIDTHS = (0.5, 1.0, 2.0, 4.0)
SIZES = {"tiny": Size(20, 3, 20, 3), "quick": Size(200, 16), "full": Size(1000, 32)}
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
    scale = limit[0]
    distance = [float(np.abs(each.theory() - limit).max() / scale) for each in finite]
    exponent, error = slope(results.values[:-1], np.array(distance))
    measured = f"largest distance over the initial loss: {lists(results.labels[:-1], distance)}"
    shrinks = distance == sorted(distance, reverse=True)
    return Claim(
        "the loss tends to that of a linear model as nu grows",
        f"{measured}; it goes as nu^({exponent:.2f} ± {error:.2f})",
        shrinks and exponent < 0,
    )


def wider_is_not_always_faster(results: Trainings) -> Claim:
    """Some wider network has a higher loss late in training."""
    pairs = [(a, b) for i, a in enumerate(results) for b in results.lines[i + 1 :]]
    gain, narrow, wide = max(
        ((float(b.theory()[-1] / a.theory()[-1]), a, b) for a, b in pairs), key=lambda each: each[0]
    )
    early = float(wide.theory()[5] / narrow.theory()[5])
    return Claim(
        "wider is not always faster",
        f"at the last step the loss at {wide.line.label} is {gain:.3g} times that at {narrow.line.label} "
        f"(at step 5: {early:.3g} times)",
        gain > 1.0,
    )


def falls_with_width(results: Trainings) -> Claim:
    """In muP the loss falls with width at every step."""
    pairs = [violations(b, a) for a, b in zip(results.lines, results.lines[1:], strict=False)]
    wrong, worst = sum(each[0] for each in pairs), max(each[1] for each in pairs)
    steps = len(pairs) * len(results[0].times)
    return Claim(
        "the loss falls with nu at every step",
        f"theory: {wrong} of {steps} steps go the other way; networks: at most {worst:.1f} standard errors",
        wrong == 0 and worst < SIGNIFICANT,
    )


def depth_speeds_up(results: Trainings) -> Claim:
    """How long each depth takes."""
    half = [steps_to(each, 0.1) for each in results]
    errors = ", ".join(f"{each.label}: {percent(each.error)}" for each in results.agreements)
    return Claim(
        "depth changes how fast the loss falls",
        f"steps to test loss 0.1: {lists(results.labels, half)}; deviations {errors}",
        len({round(each, 1) for each in half}) == len(half),
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
        (follows, depth_speeds_up),
        SIZES,
    ),
)
