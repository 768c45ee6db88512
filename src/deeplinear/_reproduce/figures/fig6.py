"""Figure 6: power-law data."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._reproduce.measure import follows, lists, with_error
from deeplinear._reproduce.panel import Claim, Line, OverSteps, Panel, Size, Training
from deeplinear._reproduce.results import Trained, Trainings

DEPTH, BATCH = 4, 16
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


def widths(counts: tuple[int, ...], source: float, richness: float, lr: float) -> Training:
    """Several widths at B = 16, the infinite width, and the limit without noise over a long time."""
    lines = [Line(n, f"N = {n}", problem(n, source, BATCH, richness, lr, 300, small_batch=True)) for n in counts]
    wide = Line(
        math.inf, "N = ∞", problem("infinite", source, BATCH, richness, lr, 300, small_batch=True), networks=False
    )
    limit = problem("infinite", source, math.inf, richness, lr, 20_000)
    return Training((*lines, wide, Line(math.inf, "N = B = ∞", limit, networks=False)))


def last_decade(each: Trained) -> tuple[float, float]:
    """Exponent of theory over the last decade, and how far it drifts there."""
    last = float(each.times[-1])
    law = each.fit(last / 10, last)
    return law.exponent, law.standard_error


def guides(*exponents: float) -> Callable[[Trainings], list[tuple[str, Any, Any]]]:
    """Return straight lines of given exponents, through the curve of infinite width at a tenth of the run."""

    def lines(results: Trainings) -> list[tuple[str, Any, Any]]:
        wide = results[-2]
        start = len(wide.times) // 10
        steps = np.array([start, len(wide.times)])
        return [(f"$t^{{-{b:.3g}}}$", steps, 0.6 * wide.theory()[start] * (steps / start) ** -b) for b in exponents]

    return lines


def slopes(results: Trainings) -> str:
    """Exponents of all curves."""
    found = [(each.line.label, with_error(*last_decade(each))) for each in results]
    return "last decade: " + ", ".join(f"{exponent} at {label}" for label, exponent in found)


def lazy_exponent(results: Trainings) -> Claim:
    """The easy task falls with the lazy exponent."""
    exponent, _ = last_decade(results[-1])
    expected = dl.lazy_exponent(EASY)
    return Claim(
        f"wide networks have the lazy exponent {expected:g}", slopes(results), abs(exponent - expected) < 0.1 * expected
    )


def bends_away(results: Trainings) -> Claim:
    """Narrow networks are slower at the end."""
    finite = results.lines[:-2]
    wide = last_decade(results[-2])[0]
    found = [last_decade(each)[0] for each in finite]
    factors = [float(each.mean()[-1] / results[-2].theory()[-1]) for each in finite]
    return Claim(
        "networks of finite width bend away to slower decay",
        f"exponent over the last decade less that of infinite width: "
        f"{lists(results.labels[:-2], [each - wide for each in found], '{:+.2f}')}; "
        f"loss of networks at the last step over that of infinite width: {lists(results.labels[:-2], factors)}",
        max(found) < wide - 0.1 and min(factors) > 1.5,
    )


def faster_than_lazy(results: Trainings) -> Claim:
    """The hard task is learned faster than by a lazy network."""
    exponent, error = last_decade(results[-1])
    batched = last_decade(results[-2])
    return Claim(
        f"the hard task is learned faster than the lazy t^(-{HARD:g})",
        f"exponent over the last decade: {with_error(exponent, error)} without noise, "
        f"{with_error(*batched)} at B = {BATCH}, both at N = ∞",
        exponent > HARD + 0.05 and batched[0] > HARD,
    )


def paper_exponent(results: Trainings) -> Claim:
    """The exponent that the paper gives for all depths."""
    exponent, error = last_decade(results[-1])
    paper, ours = 2 * HARD / (1 + HARD), dl.rich_exponent(HARD, DEPTH)
    return Claim(
        f"the exponent is 2b/(1+b) = {paper:.3f}, whatever the depth",
        f"{with_error(exponent, error)} over the last decade to step {results[-1].times[-1]:.0f}",
        abs(exponent - paper) < 0.05,
        f"With L hidden layers the late exponent is (L+1)b/(1+Lb), here {ours:.3f}, approached from below; "
        "2b/(1+b) is its value at L = 1 (see A3).",
    )


PANELS = (
    Panel(
        "6a",
        "Power-law data, batch sizes",
        "Theory follows SGD down to small batches.",
        "L = 4, N = 1024",
        "capacity 2, source 1, gamma0 = 1, centered, lr 0.03, 200 steps, muP; theory keeps the 1/B part of the noise",
        Training(
            tuple(Line(b, f"B = {b}", problem(1024, 1.0, b, 1.0, 0.03, 200, small_batch=True)) for b in (2, 4, 16, 128))
        ),
        OverSteps(x="log"),
        (follows,),
        {"tiny": Size(30, 2, 10, 2), "quick": Size(300, 8), "full": Size(1000, 32)},
    ),
    Panel(
        "6b",
        "Easy task, widths",
        "On easy tasks the exponent is the lazy one; networks of finite width fall behind.",
        "L = 4, B = 16, source b > 1",
        f"b = {EASY}, capacity 2, gamma0 = 0.5, centered, lr 0.05, 300 steps, muP",
        widths((32, 128, 512), EASY, 0.5, 0.05),
        OverSteps(x="log", xlim=(1, 300), guides=guides(EASY)),
        (lazy_exponent, bends_away, follows),
        {"tiny": Size(30, 2, 40), "quick": Size(200, 16), "full": Size(2000, 64)},
    ),
    Panel(
        "6c",
        "Hard task, widths",
        "On hard tasks networks that learn features are faster than lazy ones.",
        "L = 4, B = 16, source b < 1",
        f"b = {HARD}, capacity 2, gamma0 = 1, centered, lr 0.01, 300 steps, muP",
        widths((16, 64, 256), HARD, 1.0, 0.01),
        OverSteps(x="log", xlim=(1, 300), guides=guides(HARD, 2 * HARD / (1 + HARD))),
        (faster_than_lazy, paper_exponent, follows),
        {"tiny": Size(30, 2, 40), "quick": Size(500, 16), "full": Size(2000, 64)},
    ),
)
