"""Do the intervals of measured best rates hold what they estimate as often as they say?

python benchmarks/measured_rate.py [--repeats 200]

Populations of a thousand small networks are trained once, at rates a factor 2^(1/16) apart; between these the loss of
each is interpolated. Then, many times over, a few of them are drawn with replacement and their best rate is measured
from a grid of ratio sqrt(2) that stands anywhere. What it should be is the best rate of the whole population, found by
brute force. The losses are kept in ``out/measured_rate``, and ``benchmarks/measured_rate.md`` is written. The exit code
is 1 if some interval held less often than a correct one does in 999 of 1000 tries.
"""

import argparse
import datetime
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.stats import binom

import deeplinear as dl
from deeplinear._core.files import write_atomically
from deeplinear._learning_rate.measured_optimum import CONFIDENCE, FAILED, find_best
from deeplinear._problem.rate import with_rate

Array = NDArray[np.float64]

HERE = Path(__file__).parent
STORE = HERE.parent / "out" / "measured_rate"
NETWORKS = 1000
COUNTS = (4, 8, 16, 32)
CHANCE = 1e-3
"""How often a correct interval may be found wanting."""

_LARGE = 1e9
"""Losses that are interpolated; larger ones count as this, and what is above a tenth of it as a divergence."""


@dataclass(frozen=True)
class Population:
    """Networks whose losses are known at every rate between two.

    ``losses_at`` gives those of some networks at a rate.
    """

    name: str
    networks: int
    low: float
    high: float
    losses_at: Callable[[float, NDArray[np.int64]], Array]

    def best(self) -> float:
        """Best rate of the whole population, by brute force."""
        lrs = np.geomspace(self.low, self.high, 1500)
        with np.errstate(divide="ignore"):
            logs = np.log([self.losses_at(lr, np.arange(self.networks)) for lr in lrs.tolist()])
        ceiling = np.median(logs, axis=1).min() + math.log(FAILED)
        return float(lrs[np.argmin(np.minimum(logs, ceiling).mean(axis=1))])


@dataclass(frozen=True)
class Outcome:
    """What repeated measurements came to: which intervals held, and their widths and the errors in log(lr)."""

    held: NDArray[np.bool_]
    widths: Array
    errors: Array


def measure(population: Population, count: int, repeats: int, seed: int) -> Outcome:
    """Measure the best rate of so many networks, again and again."""
    rng = np.random.default_rng(seed)
    truth, held, widths, errors = population.best(), [], [], []
    for _ in range(repeats):
        drawn = rng.integers(population.networks, size=count)
        first = population.low * 2.0 ** (0.5 * rng.random())
        lrs = first * 2.0 ** (0.5 * np.arange(int(2 * math.log2(population.high / first)) + 1))
        found = find_best(lambda lr, drawn=drawn: population.losses_at(lr, drawn), lrs)
        held.append(found.low <= truth <= found.high)
        widths.append(math.log(found.high / found.low) if found.low > 0 else math.inf)
        errors.append(math.log(found.value / truth))
    return Outcome(np.array(held), np.array(widths), np.array(errors))


def fewest(repeats: int) -> int:
    """Fewest intervals that hold, of so many correct ones, but for bad luck."""
    return int(binom.ppf(CHANCE, repeats, CONFIDENCE))


# --- populations ---------------------------------------------------------------------------------------------


def regressions(name: str, samples: int, steps: int, noise: float, networks: int = 500) -> Population:
    """Linear regressions on Gaussian data in 8 dimensions, each with its own, by gradient descent from zero.

    The loss at any rate is known in closed form, from the eigenvalues of the data. Every fit has its own largest stable
    rate, right above the best one in long runs.
    """
    rng = np.random.default_rng(0)
    data = rng.standard_normal((networks, samples, 8)) / math.sqrt(samples)
    labels = rng.standard_normal((networks, samples)) * noise / math.sqrt(samples)
    left, values, right = np.linalg.svd(data, full_matrices=False)
    target = right.sum(axis=2) / math.sqrt(8)  # of the vector of ones, in the directions of each data set
    fitted = target + np.einsum("nsk,ns->nk", left, labels) / values

    def losses_at(lr: float, chosen: NDArray[np.int64]) -> Array:
        start = fitted[chosen]
        with np.errstate(over="ignore", invalid="ignore"):
            error = start - target[chosen] - (1 - lr * values[chosen] ** 2) ** steps * start
            loss = (error**2).sum(axis=1) + noise**2
        return np.where(loss < _LARGE / 10, loss, np.inf)

    return Population(name, networks, 0.03, 8.0, losses_at)


_PROBLEMS: dict[str, tuple[dl.Problem, int, float]] = {
    "fresh batches": (
        dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.05), 15),
        24,
        0.1,
    ),
    "rich, full batch": (
        dl.Problem(
            dl.MLP(3, 1.0, richness=4.0, parameterization="ntk"),
            dl.Isotropic(0.1),
            dl.FullBatch(4.0),
            dl.GradientDescent(0.05),
            10,
        ),
        24,
        0.06,
    ),
    "power law, some diverge": (
        dl.Problem(
            dl.MLP(3, 32, richness=3.2, parameterization="ntk"),
            dl.Spectrum.power_law(2.0, 1.75),
            dl.OnlineSGD(32),
            dl.GradientDescent(0.1),
            31,
        ),
        40,
        0.4,
    ),
}
"""Problems, sizes D of the networks, and a rate in the middle."""


def trained(name: str) -> Population:
    """Real networks, from the store if they are there."""
    problem, dim, middle = _PROBLEMS[name]
    path = STORE / f"{name.replace(' ', '_').replace(',', '')}.npz"
    if not path.exists():
        STORE.mkdir(parents=True, exist_ok=True)
        lrs = middle * 2.0 ** (np.arange(-40, 33) / 16)
        loss = [
            dl.simulate(with_rate(problem, lr), dim, NETWORKS, record="losses").test_loss[:, -1] for lr in lrs.tolist()
        ]
        with path.open("wb") as file:
            np.savez(file, lrs=lrs, loss=np.array(loss))
    with np.load(path) as kept:
        lrs, loss = kept["lrs"], kept["loss"]
    between = PchipInterpolator(np.log(lrs), np.log(np.minimum(loss, _LARGE)), axis=0, extrapolate=False)

    def losses_at(lr: float, chosen: NDArray[np.int64]) -> Array:
        found = np.exp(between(np.clip(math.log(lr), math.log(lrs[0]), math.log(lrs[-1]))))[chosen]
        return np.asarray(np.where(found < _LARGE / 10, found, np.inf))

    return Population(name, NETWORKS, float(lrs[0]), float(lrs[-1]), losses_at)


# --- the page ------------------------------------------------------------------------------------------------


def _width(widths: Array) -> str:
    middle = float(np.median(widths))
    return f"a factor {math.exp(middle):.2f}" if math.isfinite(middle) else "open"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="See whether intervals of measured best rates hold as often as they say."
    )
    parser.add_argument("--repeats", type=int, default=200, help="measurements of each kind (200)")
    repeats = parser.parse_args().repeats
    least = fewest(repeats)
    rows, wanting = [], 0
    for name in _PROBLEMS:
        population = trained(name)
        for count in COUNTS:
            found = measure(population, count, repeats, seed=1)
            wanting += int(found.held.sum() < least)
            scatter = found.errors.std(ddof=1)
            bias = f"{100 * found.errors.mean():+.1f} ± {100 * scatter / math.sqrt(repeats):.1f} %".replace("-", "−")
            rows.append(
                f"| {name} | {population.best():.3g} | {count} | {100 * found.held.mean():.1f} % | {bias} | "
                f"{100 * scatter:.0f} % | {_width(found.widths)} |"
            )
            print(rows[-1], flush=True)
    lines = [
        "## Measured best rates: do their intervals hold?",
        "",
        f"{datetime.date.today()}: {repeats} measurements of each kind, of networks drawn from {NETWORKS} that were "
        f"trained before. Intervals say {100 * CONFIDENCE:g} %; holding less than {least} times of {repeats} they "
        f"would be found wanting (once in a thousand by chance): {wanting or 'none'} of {len(rows)}. "
        "`python benchmarks/measured_rate.py` repeats it.",
        "",
        "| networks | best rate of all | how many | interval holds it | mean error | scatter | median width |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
    ]
    write_atomically(HERE / "measured_rate.md", lambda temporary: temporary.write_text("\n".join(lines)))
    return int(wanting > 0)


if __name__ == "__main__":
    sys.exit(main())
