"""What the approximate methods achieve against the tolerance that was asked for."""

from typing import Any

import numpy as np

import deeplinear as dl
from sections import table

TITLE = "Achieved against requested error"

TOLERANCES = [10.0**-power for power in range(2, 11)]
MEAN, BATCH, ONLINE = dl.Isotropic(0.3), dl.FullBatch(2.0), dl.OnlineSGD(0.5)
MODES = dl.Spectrum([2.0, 1.0, 0.25], [0.5, 1.0, 2.0], [0.2, 0.3, 0.5], proportional=True, noise=0.3)
RICH, DEEPER = dl.MLP(1, 0.5, richness=2.0), dl.MLP(3, 1.0)
COSINE = dl.GradientDescent(dl.schedules.cosine(0.01))
PROBLEMS = {
    "panels": [
        dl.Problem(dl.MLP(2, 1.0), MEAN, BATCH, dl.GradientDescent(0.005), 600),
        dl.Problem(RICH, MODES, dl.Population(), COSINE, 800),
        dl.Problem(dl.ResNet(3, 1.0), MEAN, BATCH, dl.GradientDescent(0.003, weight_decay=0.02), 400),
    ],
    "condensed": [
        dl.Problem(dl.MLP(2, 1.0), MEAN, ONLINE, dl.GradientDescent(0.01), 600),
        dl.Problem(RICH, MODES, dl.MultiPassSGD(2.0, 0.5), dl.GradientDescent(0.01, momentum=0.5), 600),
        dl.Problem(DEEPER, MEAN, BATCH, dl.GradientDescent(0.01, clip=0.5), 400),
    ],
    "coarse": [
        dl.Problem(dl.MLP(1, 1.0), MEAN, ONLINE, dl.GradientDescent(0.002), 700),
        dl.Problem(dl.MLP(2, 1.0), MEAN, dl.MultiPassSGD(2.0, 0.6), dl.GradientDescent(0.002), 700),
        dl.Problem(RICH, MODES, ONLINE, dl.GradientDescent(0.002), 700),
    ],
}
"""Problems of each method, which every step is solved of as well."""


def errors(problem: dl.Problem, method: str) -> list[float | None]:
    """Largest error of the losses at each tolerance, as the method states its own; None where it gave up."""
    steps, found = np.arange(problem.steps), list[float | None]()
    exact = dl.solve(problem, method="dense")
    for tolerance in TOLERANCES:
        try:
            solution = dl.solve(problem, method=method, tolerance=tolerance)
        except ArithmeticError:
            found.append(None)
            continue
        losses, worst = solution.at(steps), []
        for name in ("test_loss", "train_loss"):
            curve = getattr(exact, name)
            scale = np.maximum(curve, solution.stats["error_floor"] * curve[0])
            worst.append(np.abs(losses[name].values - curve) / scale)
        found.append(float(np.max(worst)))
    return found


def measure() -> dict[str, Any]:
    """Solve every problem at every tolerance."""
    return {method: [errors(each, method) for each in problems] for method, problems in PROBLEMS.items()}


def headlines(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Say how many errors are below what was asked for."""
    parts = np.array([np.array(each, float) / TOLERANCES for rows in data.values() for each in rows])
    known = parts[np.isfinite(parts)]
    what = "true error of panels, condensed past and coarse steps below the tolerance, from 1e-2 to 1e-10"
    return [(what, f"{(known <= 1).sum()} of {known.size} runs, {np.isnan(parts).sum()} given up")]


def show(data: dict[str, Any]) -> list[str]:
    """Write the largest error of each method at each tolerance."""
    rows = []
    for index, tolerance in enumerate(TOLERANCES):
        cells = []
        for each in data.values():
            found = np.array([row[index] for row in each], float)
            given_up = int(np.isnan(found).sum())
            largest = f"{np.nanmax(found):.1e}" if given_up < len(found) else ""
            cells.append(", ".join([largest] * bool(largest) + [f"{given_up} given up"] * bool(given_up)))
        rows.append([f"{tolerance:.0e}", *cells])
    return [
        "The largest true error of the losses at all steps of three runs of 400 to 800 steps for each method, "
        "relative to the loss or to the part of the initial loss that `stats` calls `error_floor`; every step, solved "
        "densely, is the truth. A method that cannot keep a tolerance says so and gives up.",
        "",
        *table(["tolerance", *data], rows),
    ]
