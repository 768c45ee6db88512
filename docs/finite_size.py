"""How far finite networks are from the limit: measure it, for the page on what the theory does not cover.

    python docs/finite_size.py [names of problems]        (about a quarter of an hour on one core for all of them)

trains networks of four sizes on each problem, of six on the one near the edge of stability, and writes mean and spread
of the final losses to ``finite_size.json``; the first few of the smallest networks are written on their own as well, so
that a test can repeat them.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import deeplinear as dl

RESULTS = Path(__file__).with_suffix(".json")

NETWORKS = {50: 8000, 100: 8000, 200: 4000, 400: 2000}
"""How many networks are trained at each input dimension; seeds are 0, 1, 2, ..."""

LARGER = {"near the edge": {1000: 200, 2000: 48}}
"""Further sizes, where those above do not show how the deviation ends."""

REPEATED = (50, 100)
"""Input dimension and number of the networks that a test trains again."""


def problem(network: Any, sampling: Any, lr: float, noise: float = 0.3, steps: int = 30) -> dl.Problem:
    """Return a problem with isotropic data."""
    return dl.Problem(network, dl.Isotropic(noise), sampling, dl.GradientDescent(lr), steps)


PROBLEMS = {
    "full batch": problem(dl.MLP(depth=2, width=0.8), dl.FullBatch(1.5), lr=0.04),
    "online": problem(dl.MLP(depth=3, width=1.0), dl.OnlineSGD(0.5), lr=0.03),
    "residual": problem(dl.ResNet(depth=6, width=1.0), dl.FullBatch(2.0), lr=0.03),
    "deep, P = D": problem(dl.MLP(depth=4, width=1.0, centered=True), dl.FullBatch(1.0), lr=0.03, noise=0.0, steps=60),
    "near the edge": problem(dl.MLP(depth=3, width=0.5), dl.FullBatch(2.0), lr=0.1, noise=0.0, steps=40),
}


def measure(case: dl.Problem, dim: int, networks: int) -> dict[str, float]:
    """Compare the final losses of ``networks`` networks with theory.

    Returns
    -------
    dict
        For each loss ``bias``, the relative deviation of the mean from theory, its standard error ``bias_error``, and
        ``spread``, the standard deviation of single networks relative to theory.
    """
    theory = dl.solve(case)
    experiment = dl.simulate(case, dim, networks, record="losses")
    found: dict[str, float] = {"dim": dim, "networks": networks}
    for name in ("test_loss", "train_loss"):
        expected, measured = getattr(theory, name)[-1], getattr(experiment, name)[:, -1]
        spread = float(measured.std(ddof=1) / expected)
        found |= {
            f"{name}_bias": float(measured.mean() / expected - 1),
            f"{name}_bias_error": spread / math.sqrt(networks),
            f"{name}_spread": spread,
        }
    return found


def sizes(name: str) -> dict[int, int]:
    """Return how many networks of a problem are trained at each input dimension."""
    return NETWORKS | LARGER.get(name, {})


def main(names: list[str]) -> None:
    """Measure the named problems, or all, and keep what is known of the others."""
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if names else {}
    for name in names or PROBLEMS:
        case = PROBLEMS[name]
        rows = []
        for dim, networks in sizes(name).items():
            rows.append(measure(case, dim, networks))
            bias, error, spread = (100 * rows[-1][f"test_loss_{what}"] for what in ("bias", "bias_error", "spread"))
            print(f"{name:14} D = {dim:4}: {bias:6.2f} ± {error:.2f} %, single networks {spread:.1f} %", flush=True)
        results[name] = {"repeated": measure(case, *REPEATED), "sizes": rows}
    RESULTS.write_text(json.dumps({name: results[name] for name in PROBLEMS}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
