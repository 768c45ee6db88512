"""Figure 6: power-law data."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import deeplinear as dl
from deeplinear._reproduce.claim import Check, Claim
from deeplinear._reproduce.measure import both, follows_in_log_time, half_way, late_exponent
from deeplinear._reproduce.panel import Line, OverSteps, Panel, Size, Training
from deeplinear._reproduce.results import Trained, Trainings

Array = NDArray[np.float64]

SMALL_BATCH = "theory keeps the 1/B part of the gradient noise, which the paper's leaves out"

DEPTH, BATCH, STEPS = 4, 16, 300
EASY, HARD = 1.5, 0.5


def problem(
    width: float | str,
    source: float,
    batch: float,
    richness: float,
    lr: float,
    steps: int,
    *,
    small_batch: bool = False,
) -> dl.Problem:
    """Training on fresh batches of power-law data; an infinite batch is the population loss."""
    network = dl.MLP(DEPTH, width, richness=richness, centered=True)  # type: ignore[arg-type]
    sampling = dl.Population() if math.isinf(batch) else dl.OnlineSGD(batch, small_batch)
    return dl.Problem(network, dl.Spectrum.power_law(2.0, source), sampling, dl.GradientDescent(lr), steps)


def widths(counts: tuple[int, ...], source: float, richness: float, lr: float, late: dl.Problem) -> Training:
    """Several widths at B = 16, the infinite width, the limit without noise, and its late times, which are not drawn.

    The infinite width is followed for ten times as long as it is drawn, since its exponent is asked for.
    """
    lines = [Line(n, f"N = {n}", problem(n, source, BATCH, richness, lr, STEPS, small_batch=True)) for n in counts]
    wide = problem("infinite", source, BATCH, richness, lr, 10 * STEPS, small_batch=True)
    limit = problem("infinite", source, math.inf, richness, lr, STEPS)
    return Training(
        (
            *lines,
            Line(math.inf, "N = ∞", wide, networks=False),
            Line(math.inf, "N = B = ∞", limit, networks=False),
            Line(math.inf, "N = B = ∞, late", late, networks=False, drawn=False),
        )
    )


def infinitely_wide(results: Trainings) -> tuple[Trained, Trained]:
    """Lines of infinite width whose exponents are asked for: with fresh batches, and without noise at late times."""
    return results[-3], results[-1]


def guides(*exponents: float) -> Callable[[Trainings], list[tuple[str, Any, Any]]]:
    """Return straight lines of given exponents, through the curve of infinite width at a tenth of what is drawn."""

    def lines(results: Trainings) -> list[tuple[str, Any, Any]]:
        wide, _ = infinitely_wide(results)
        steps = min(STEPS, wide.times[-1]) * np.array([0.1, 1.0])
        level = 0.6 * np.interp(steps[0], wide.times, wide.theory())
        return [(f"$t^{{-{b:.3g}}}$", steps, level * (steps / steps[0]) ** -b) for b in exponents]

    return lines


LAWS = "the laws for lazy and rich networks, b, 2b/(1+b) and (L+1)b/(1+Lb)"


def lazy_exponent(results: Trainings) -> Claim:
    """The easy task falls with the lazy exponent."""
    law = dl.lazy_exponent(EASY)
    close = half_way(law, 2 * EASY / (1 + EASY), (DEPTH + 1) * EASY / (1 + DEPTH * EASY))
    _, late = infinitely_wide(results)
    return Claim(
        f"wide networks have the lazy exponent {law:g}",
        f"over the last decade of steps the exponent is within {close:.3g} of it: half way to the nearest "
        f"other of {LAWS}; ± is how far it still drifts",
        (Check(f"exponent at {late.line.label}", "theory", *late_exponent(late), law - close, law + close),),
    )


def bends_away(results: Trainings) -> Claim:
    """Networks of finite width are slower at the end."""
    law = dl.lazy_exponent(EASY)
    slow = law - half_way(law, 2 * EASY / (1 + EASY), (DEPTH + 1) * EASY / (1 + DEPTH * EASY))
    last = float(results[0].times[-1])

    def exponent(loss: Array) -> float:
        return dl.fit_exponent(np.arange(len(loss)), loss, last / 10, last).exponent

    checks: list[Check] = []
    for each in results.trained:
        checks += both(f"exponent at {each.line.label}", [each], exponent, high=slow)
    return Claim(
        "networks of finite width bend away to slower decay",
        f"over the last decade of steps their exponent is below {slow:.3g}, where it no longer counts as lazy",
        tuple(checks),
    )


def faster_than_lazy(results: Trainings) -> Claim:
    """The hard task is learned faster than by a lazy network."""
    paper = 2 * HARD / (1 + HARD)
    least = (HARD + paper) / 2
    return Claim(
        f"the hard task is learned faster than the lazy t^(-{HARD:g})",
        f"over the last decade of steps the exponent is above {least:.3g}: half way between the lazy b = {HARD:g} and "
        f"the paper's 2b/(1+b) = {paper:.3f}; ± is how far it still drifts",
        tuple(
            Check(f"exponent at {each.line.label}, B = {batch}", "theory", *late_exponent(each), least)
            for each, batch in zip(infinitely_wide(results), (BATCH, "∞"), strict=True)
        ),
    )


def paper_exponent(results: Trainings) -> Claim:
    """The exponent that the paper gives for all depths."""
    paper, ours = 2 * HARD / (1 + HARD), dl.rich_exponent(HARD, DEPTH)
    close = half_way(paper, HARD, ours)
    _, late = infinitely_wide(results)
    rate = late.line.problem.optimizer.lr
    return Claim(
        f"the exponent is 2b/(1+b) = {paper:.3f}, whatever the depth",
        f"over the last decade, to step {late.times[-1] + 1:.0g} at lr {rate:g}, it is within {close:.3g} of that: "
        f"half way to the nearest other of {LAWS}; ± is how far it still drifts",
        (Check(f"exponent at {late.line.label}", "theory", *late_exponent(late), paper - close, paper + close),),
        why=f"With L hidden layers the late exponent is (L+1)b/(1+Lb), here {ours:.3f}; 2b/(1+b) is its value at "
        "L = 1. A3 has richer networks, which get there sooner.",
    )


PANELS = (
    Panel(
        "6a",
        "Power-law data, batch sizes",
        "Theory follows SGD down to small batches.",
        "L = 4, N = 1024",
        f"capacity 2, source 1, gamma0 = 1, centered, lr 0.03, 200 steps, muP; {SMALL_BATCH}",
        Training(
            tuple(Line(b, f"B = {b}", problem(1024, 1.0, b, 1.0, 0.03, 200, small_batch=True)) for b in (2, 4, 16, 128))
        ),
        OverSteps(x="log"),
        (follows_in_log_time,),
        {"tiny": Size(30, 2, 10, 2), "quick": Size(300, 16), "full": Size(1000, 640)},
    ),
    Panel(
        "6b",
        "Easy task, widths",
        "On easy tasks the exponent is the lazy one; networks of finite width fall behind.",
        "L = 4, B = 16, source b > 1",
        f"b = {EASY}, capacity 2, gamma0 = 0.5, centered, lr 0.05, 300 steps, muP; {SMALL_BATCH}",
        widths((32, 128, 512), EASY, 0.5, 0.05, problem("infinite", EASY, math.inf, 0.5, 0.05, 20_000)),
        OverSteps(x="log", xlim=(1, STEPS), guides=guides(EASY)),
        (lazy_exponent, bends_away, follows_in_log_time),
        {"tiny": Size(30, 2, 40), "quick": Size(200, 16), "full": Size(500, 1536)},
    ),
    Panel(
        "6c",
        "Hard task, widths",
        "On hard tasks networks that learn features are faster than lazy ones.",
        "L = 4, B = 16, source b < 1",
        f"b = {HARD}, capacity 2, gamma0 = 1, centered, lr 0.01, 300 steps, muP; {SMALL_BATCH}",
        # As the kernel grows, larger rates reach the edge of stability before the exponent has settled.
        widths((16, 64, 256), HARD, 1.0, 0.01, problem("infinite", HARD, math.inf, 1.0, 2e-5, 40_000_000_000)),
        OverSteps(x="log", xlim=(1, STEPS), guides=guides(HARD, 2 * HARD / (1 + HARD))),
        (faster_than_lazy, paper_exponent, follows_in_log_time),
        {"tiny": Size(30, 2, 40), "quick": Size(500, 16), "full": Size(1000, 1536)},
    ),
)
