"""Figure 3: how much data there are, and how large a batch."""

import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import deeplinear as dl
from deeplinear._core.dataset import LOSSES
from deeplinear._reproduce.claim import Check, Claim
from deeplinear._reproduce.measure import both, follows, follows_in_log_time, jackknife, lists, ordered, steps_to
from deeplinear._reproduce.panel import Line, OverSteps, OverValues, Panel, Size, Training
from deeplinear._reproduce.results import Trained, Trainings

Array = NDArray[np.float64]

SIZES = {"tiny": Size(20, 3, 30, 3), "quick": Size(10**4, 8), "full": Size(10**5, 32)}


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
    reached = [steps_to(each.theory("train_loss"), 0.1) for each in results]
    return Claim(
        "smaller data sets are fitted faster",
        "the number of steps to a train loss of 0.1, a tenth of a zero function's, grows from each size to the next: "
        "the statement itself",
        ordered(results.lines, lambda loss: steps_to(loss, 0.1), "steps", "train_loss"),
        f"steps in theory: {lists(results.labels, reached)}",
    )


def gap_grows(results: Trainings) -> Claim:
    """Test over train loss grows in the course of training, and more for small sets."""
    checks: list[Check] = []
    for each in results:
        name = f"growth of log(test / train) in the second half, {each.line.label}"
        checks += gaps(name, [each], lambda gap: gap[-1] - gap[len(gap) // 2])
    for few, many in itertools.pairwise(results):
        name = f"log(test / train) at the end, {few.line.label} less {many.line.label}"
        checks += gaps(name, [few, many], lambda first, second: first[-1] - second[-1])
    return Claim(
        "the gap between test and train loss builds up in training, and is wider the fewer the data",
        "the logarithm of test over train loss is larger at the end than half way, and at the end larger for each "
        "data set than for the next larger one: the statement itself",
        tuple(checks),
    )


def gaps(name: str, lines: list[Trained], statistic: Callable[..., float]) -> tuple[Check, Check]:
    """Check that a statistic of log(test / train) is positive, in theory and in networks."""

    def of_losses(*losses: Array) -> float:
        return float(statistic(*(np.log(test / train) for test, train in zip(losses[::2], losses[1::2], strict=True))))

    curves = [(each, loss) for each in lines for loss in LOSSES]
    theory = of_losses(*(each.theory(loss) for each, loss in curves))
    value, error = jackknife([each.networks(loss) for each, loss in curves], of_losses)
    return Check(name, "theory", theory, None, 0.0), Check(name, "networks", value, error, 0.0)


def overfits(results: Trainings) -> Claim:
    """Late in training the test loss rises with alpha somewhere, early it does not."""
    trained = results.trained
    late = np.array([each.theory()[-1] for each in trained])
    rises = [(late[high] / late[low], low, high) for low, high in itertools.combinations(range(len(late)), 2)]
    _, low, high = max(rises)
    pair = [trained[low], trained[high]]
    start = round(EARLY * (len(trained[0].times) - 1))
    labels = f"{pair[0].line.label} to {pair[1].line.label}"
    return Claim(
        "the test loss is not monotonic in alpha after long training",
        f"it rises from one alpha to a larger one at the last step, and does not between the same two at step {start}; "
        "the two are those between which theory rises most, so the choice owes nothing to the networks",
        (
            *both(f"log of the rise from {labels} at the end", pair, lambda a, b: math.log(b[-1] / a[-1]), low=0.0),
            *both(f"at step {start}", pair, lambda a, b: math.log(b[start] / a[start]), high=0.0),
        ),
    )


EARLY = 0.05
"""Fraction of the run that counts as early: the second of the times that the panel shows."""


def small_batches_are_slower(results: Trainings) -> Claim:
    """The smaller the batch, the later the loss is low."""
    return Claim(
        "smaller batches slow training down",
        "the number of steps to a test loss of 0.1, a tenth of the initial one, falls from each batch size to the "
        "next: the statement itself",
        ordered(results.lines[::-1], lambda loss: steps_to(loss, 0.1), "steps"),
        f"steps in theory: {lists(results.labels, [steps_to(each.theory(), 0.1) for each in results])}",
    )


def no_plateau(results: Trainings) -> Claim:
    """The loss falls as fast at the end as before."""

    def ratio(loss: Array) -> float:
        a, b, c = (round(part / 3 * (len(loss) - 1)) for part in (1, 2, 3))
        return float(np.log(loss[b] / loss[c]) / (c - b) / (np.log(loss[a] / loss[b]) / (b - a)))

    checks: list[Check] = []
    for each in results:
        checks += both(f"ratio at {each.line.label}", [each], ratio, low=0.5)
    return Claim(
        "there is no plateau: the loss goes on falling",
        "the rate of decay in the last third of the run, over that in the middle third, is above 0.5: half way between "
        "a plateau and an exponential decay",
        tuple(checks),
    )


def width_removes_the_rise(results: Trainings) -> Claim:
    """Narrow networks rise first, wide ones do not."""

    def rise(loss: Array) -> float:
        return float(np.log(loss[1:] / loss[0]).max())

    first, *_, last = results
    return Claim(
        "larger nu removes the early rise of the loss",
        "the largest loss after the first step is above the initial one at the smallest nu, below it at the largest, "
        "and falls from each nu to the next: the statement itself",
        (
            *both(f"log of the largest loss over the initial one at {first.line.label}", [first], rise, low=0.0),
            *both(f"the same at {last.line.label}", [last], rise, high=0.0),
            *ordered(results.lines[::-1], rise, "the same"),
        ),
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
        OverSteps(losses=LOSSES, ylim=(1e-4, 2.0)),
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
        {"tiny": Size(20, 3, 40, 7), "quick": Size(10**4, 8), "full": Size(10**5, 16)},
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
        {"tiny": Size(20, 3, 60, 3), "quick": Size(10**4, 8), "full": Size(10**5, 32)},
    ),
    Panel(
        "3d",
        "Online SGD, widths",
        "The loss of narrow networks rises first; width removes this.",
        "L = 4, alpha_B = 0.05",
        "gamma0 = 2, centered, no label noise, lr 0.01, 100 steps, muP",
        Training(tuple(Line(nu, f"ν = {nu:g}", online(nu, 0.05, 0.01, 100)) for nu in (0.25, 0.5, 1.0, 2.0))),
        OverSteps(x="log"),
        (width_removes_the_rise, follows_in_log_time),
        {"tiny": Size(20, 3, 20, 3), "quick": Size(10**4, 16), "full": Size(10**5, 64)},
    ),
)
