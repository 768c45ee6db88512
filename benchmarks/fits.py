"""Simulation-based calibration of ``fit``: known values among those that it thinks possible.

    python benchmarks/fits.py [draws]        (ten minutes on one core for the default of 500)

Values are drawn at random, networks are trained with them, and the fit starts from others. The rank of a known value is
the probability that the fit gives to smaller ones. If errors mean what they say, ranks are uniform, and 95 % intervals
hold in 95 % of draws. Results are written to ``fits.md``.
"""

import contextlib
import datetime
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import deeplinear as dl

DRAWS, NETWORKS, DIM = 500, 8, 10**5

PAGE = Path(__file__).with_suffix(".md")


def problem(richness: float, noise: float, lr: float) -> dl.Problem:
    """Return the problem with these values."""
    network = dl.MLP(depth=2, width=1.0, richness=richness)
    return dl.Problem(network, dl.Isotropic(noise), dl.FullBatch(2.0), dl.GradientDescent(lr), steps=21)


def ranks_of(draw: int) -> dict[str, float]:
    """Fit the networks of one draw, and return the rank of each known value."""
    rng = np.random.default_rng(draw)
    known = {"richness": float(np.exp(rng.uniform(-0.5, 0.7))), "noise": float(rng.uniform(0.2, 0.6))}
    known["lr"] = float(np.exp(rng.uniform(np.log(0.02), np.log(0.06))))
    seeds = range(10**6 + NETWORKS * draw, 10**6 + NETWORKS * (draw + 1))
    trained = dl.simulate(problem(**known), DIM, seeds, method="reduced", record="losses", workers=1)
    found = dl.fit(trained, problem(1.0, 0.4, 0.03), list(known))
    law = stats.t(NETWORKS - 1)
    ranks = {}
    for name, value in known.items():
        own, error = found.values[name], found.errors[name]
        is_factor = name != "noise"
        away = np.log(value / own) / (error / own) if is_factor else (value - own) / error
        ranks[name] = float(law.cdf(away))
    return ranks


def page(ranks: dict[str, NDArray[np.float64]]) -> str:
    """Write what was counted."""
    count = len(next(iter(ranks.values())))
    lines = [
        "## Fits of known values",
        "",
        f"{datetime.date.today()}: {count} draws of richness, noise and rate (depth 2, {NETWORKS} networks of "
        f"D = {DIM}), all three of which are fitted from other values. Promise: the rank of the known value among "
        "those that the fit thinks possible is uniform (Kolmogorov-Smirnov), and 95 % intervals hold in 95 % "
        "of draws. A "
        "fit that says that theory does not explain the curves has no ranks. `python benchmarks/fits.py` repeats it.",
        "",
        "| field | ranks | p that they are uniform | in the lowest, ..., highest fifth | 95 % intervals hold |",
        "|---|---|---|---|---|",
    ]
    for name, all_ranks in ranks.items():
        known = all_ranks[np.isfinite(all_ranks)]
        fifths = ", ".join(map(str, np.histogram(known, np.linspace(0, 1, 6))[0]))
        held = np.mean((known > 0.025) & (known < 0.975))
        p_value = stats.kstest(known, "uniform").pvalue
        lines.append(f"| {name} | {len(known)} | {p_value:.2g} | {fifths} | {100 * held:.1f} % |")
    return "\n".join(lines) + "\n"


def main(draws: int) -> None:
    """Draw, fit, and write the page."""
    found = []
    with contextlib.suppress(KeyboardInterrupt):  # an interrupted run writes what it has
        for number in range(draws):
            found.append(ranks_of(number))
            print(f"{number + 1} of {draws}", end="\r", flush=True)
    PAGE.write_text(page({name: np.array([each[name] for each in found]) for name in found[0]}))
    print(PAGE.read_text())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS)
