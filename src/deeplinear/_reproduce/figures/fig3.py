"""Figure 3: how much data there are, and how large a batch."""

import math

import numpy as np

import deeplinear as dl
from deeplinear._reproduce.measure import SIGNIFICANT, follows, lists, percent, steps_to, violations
from deeplinear._reproduce.panel import Claim, Line, OverSteps, OverValues, Panel, Size, Training
from deeplinear._reproduce.results import Trainings

SIZES = {"tiny": Size(20, 3, 30, 3), "quick": Size(200, 16), "full": Size(1000, 32)}


def full_batch(samples: float, noise: float, lr: float, steps: int) -> dl.Problem:
    """Training on a fixed data set."""
    network = dl.MLP(4, 1.0, richness=2.0)
    return dl.Problem(network, dl.Isotropic(noise), dl.FullBatch(samples), dl.GradientDescent(lr), steps=steps)


def online(width: float, batch: float, lr: float, steps: int) -> dl.Problem:
    """Training on fresh batches."""
    network = dl.MLP(4, width, richness=2.0, centered=True)
    return dl.Problem(network, dl.Isotropic(), dl.OnlineSGD(batch), dl.GradientDescent(lr), steps=steps)


def fits_small_sets_faster(results: Trainings) -> Claim:
    """Small data sets reach a given train loss first."""
    reached = [steps_to(each, 0.1, "train_loss") for each in results]
    pairs = list(zip(results.lines, results.lines[1:], strict=False))
    wrong = sum(a.theory("train_loss")[10] >= b.theory("train_loss")[10] for a, b in pairs)
    return Claim(
        "smaller data sets are fitted faster",
        f"steps to train loss 0.1: {lists(results.labels, reached)}",
        wrong == 0 and reached == sorted(reached),
    )


def gap_grows(results: Trainings) -> Claim:
    """Test over train loss grows in the course of training, and more for small sets."""
    ratios = [each.theory() / each.theory("train_loss") for each in results]
    last = [float(ratio[len(ratio) // 3]) for ratio in ratios]
    grows = all((np.diff(ratio[: len(ratio) // 3]) >= -1e-9).all() for ratio in ratios)
    return Claim(
        "the gap between test and train loss builds up in training, and is wider the fewer the data",
        f"test over train loss at a third of the run: {lists(results.labels, last)}",
        grows and last == sorted(last, reverse=True),
    )


def overfits(results: Trainings) -> Claim:
    """Early the test loss falls with alpha, late it has a peak."""
    values, early, late = results.values, _at(results, 0.05), _at(results, 1.0)
    rise = np.maximum.accumulate(late[::-1])[::-1][1:] / late[:-1]  # what more data can cost
    start = int(np.argmax(rise))
    peak = start + 1 + int(np.argmax(late[start + 1 :]))
    early_rise = float((np.maximum.accumulate(early[::-1])[::-1][1:] / early[:-1]).max())
    step = int(results[0].times[-1])
    return Claim(
        "the test loss is not monotonic in alpha after long training",
        f"theory: at step {step} it rises {percent(rise[start] - 1)} from alpha = {values[start]:g} to "
        f"{values[peak]:g}; at step {round(0.05 * step)} the largest rise is {percent(max(early_rise - 1, 0.0))}. "
        f"{_networks(results, start, peak)}",
        bool(rise[start] > 1.01 and early_rise < 1.01),
    )


def _at(results: Trainings, fraction: float) -> np.ndarray:
    return np.array([each.theory()[round(fraction * (len(each.times) - 1))] for each in results])


def _networks(results: Trainings, start: int, peak: int) -> str:
    """The same rise in networks, between the trained lines next to the two."""
    near = [min(results.trained, key=lambda each: abs(each.line.value - results.values[i])) for i in (start, peak)]
    low, high = (each.mean()[-1] for each in near)
    error = math.hypot(*(each.error()[-1] for each in near)) / low
    labels = " to ".join(each.line.label for each in near)
    return f"Networks: {100 * (high / low - 1):.0f} ± {100 * error:.0f} % from {labels}"


def small_batches_are_slower(results: Trainings) -> Claim:
    """At every step the loss is higher the smaller the batch."""
    pairs = [violations(b, a) for a, b in zip(results.lines, results.lines[1:], strict=False)]
    wrong, worst = sum(each[0] for each in pairs), max(each[1] for each in pairs)
    reached = [steps_to(each, 0.1) for each in results]
    return Claim(
        "smaller batches slow training down",
        f"steps to test loss 0.1: {lists(results.labels, reached)}; theory goes the other way "
        f"at {wrong} steps, networks by at most {worst:.1f} standard errors",
        wrong == 0 and worst < SIGNIFICANT,
    )


def no_plateau(results: Trainings) -> Claim:
    """The loss falls as fast at the end as before."""

    def rate(loss: np.ndarray, start: float, stop: float) -> float:
        a, b = (round(fraction * (len(loss) - 1)) for fraction in (start, stop))
        return float(np.log(loss[a] / loss[b]) / (b - a))

    ratios = [rate(each.mean(), 2 / 3, 1.0) / rate(each.mean(), 1 / 3, 2 / 3) for each in results]
    return Claim(
        "there is no plateau: the loss goes on falling at the same rate",
        f"networks: rate in the last third over that in the middle third: {lists(results.labels, ratios)}",
        min(ratios) > 0.7,
    )


def width_removes_the_rise(results: Trainings) -> Claim:
    """Narrow networks rise first, wide ones do not."""
    peaks = [float(each.theory().max() / each.theory()[0]) for each in results]
    measured = [float(each.mean().max() / each.mean()[0]) for each in results]
    return Claim(
        "larger nu removes the early rise of the loss",
        f"largest loss over the initial one: {lists(results.labels, peaks)} (theory); "
        f"{lists(results.labels, measured)} (networks)",
        peaks[0] > 1.05 and peaks[-1] <= 1.0 and peaks == sorted(peaks, reverse=True) and measured[-1] <= 1.02,
    )


SAMPLES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
TRAINED = (0.3, 0.5, 0.7, 0.9, 1.1, 1.5, 2.0, 3.0, 4.0)

PANELS = (
    Panel(
        "3a",
        "Train and test loss, data sets",
        "Small data sets are fitted sooner, and the gap between test and train loss builds up slowly.",
        "L = 4, gamma0 = 2",
        "nu = 1, no label noise, lr 0.01, 200 steps, muP",
        Training(tuple(Line(a, f"α = {a:g}", full_batch(a, 0.0, 0.01, 200)) for a in (0.5, 1.0, 2.0, 4.0))),
        OverSteps(losses=("test_loss", "train_loss"), ylim=(1e-4, 2.0)),
        (fits_small_sets_faster, gap_grows, follows),
        SIZES,
    ),
    Panel(
        "3b",
        "Overfitting: test loss against data",
        "Trained for long, more data can make the test loss worse.",
        "L = 4",
        "nu = 1, gamma0 = 2, label noise 0.5, lr 0.02, 300 steps, muP",
        Training(tuple(Line(a, f"α = {a:g}", full_batch(a, 0.5, 0.02, 300), networks=a in TRAINED) for a in SAMPLES)),
        OverValues("samples per dimension  α = P/D", at=(0.02, 0.05, 0.15, 0.4, 1.0)),
        (overfits, follows),
        {"tiny": Size(20, 3, 40, 7), "quick": Size(150, 16), "full": Size(1000, 32)},
    ),
    Panel(
        "3c",
        "Online SGD, batch sizes",
        "Small batches slow training down, but the loss does not stop falling.",
        "L = 4, nu = 0.25",
        "gamma0 = 2, centered, no label noise, lr 0.005, 200 steps, muP",
        Training(
            tuple(
                Line(batch, f"B/D = {batch:g}", online(0.25, batch, 0.005, 200)) for batch in (0.05, 0.1, 0.2, 0.5, 2.0)
            )
        ),
        OverSteps(),
        (small_batches_are_slower, no_plateau, follows),
        {"tiny": Size(20, 3, 60, 3), "quick": Size(200, 16), "full": Size(2000, 64)},
    ),
    Panel(
        "3d",
        "Online SGD, widths",
        "The loss of narrow networks rises first; width removes this.",
        "L = 4, alpha_B = 0.05",
        "gamma0 = 2, centered, no label noise, lr 0.01, 100 steps, muP",
        Training(tuple(Line(nu, f"ν = {nu:g}", online(nu, 0.05, 0.01, 100)) for nu in (0.25, 0.5, 1.0, 2.0))),
        OverSteps(x="log"),
        (width_removes_the_rise, follows),
        {"tiny": Size(20, 3, 20, 3), "quick": Size(400, 16), "full": Size(2000, 64)},
    ),
)
