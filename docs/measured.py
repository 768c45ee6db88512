"""Numbers on the pages of findings and limits that take minutes to measure.

    python docs/measured.py [names of tables]        (half an hour on one core for all of them)

measures each table anew, or those that are named, and writes it into its page, between two comments.
"""

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import deeplinear as dl

Table = list[list[str]]

# --- hard tasks: the exponent depends on depth ----------------------------------------------------------------

DECADES = (1, 2, 3, 4)
"""Slopes are fitted between these powers of ten of the training time, lr times steps."""

LR = 1e-8
"""Small, since kernels grow to 3.5e7 and lr times kernel has to stay below 2; the slopes do not depend on it."""


def hard_task(source: float, depth: int, richness: float = 5.0, lr: float = LR, last: int = DECADES[-1]) -> list[float]:
    """Return the exponents of the population loss at infinite width, decade by decade up to 10^last."""
    problem = dl.Problem(
        network=dl.MLP(depth, "infinite", richness),
        data=dl.Spectrum.power_law(capacity=1.5, source=source),
        sampling=dl.Population(),
        optimizer=dl.GradientDescent(lr),
        steps=round(10**last / lr) + 1,
    )
    theory = dl.solve(problem, tolerance=1e-5)
    edges = [10**power / lr for power in range(DECADES[0], last + 1)]
    fits = (dl.fit_exponent(theory.times, theory.test_loss, *window) for window in itertools.pairwise(edges))
    return [each.exponent for each in fits]


def hard_tasks() -> Table:
    """Return slopes by source, depth and decade, beside the two laws."""
    decades = [f"10^{power} to 10^{power + 1}" for power in DECADES[:-1]]
    table = [["richness", "b", "L", *decades, "(L+1)b/(1+Lb)", "2b/(1+b)"]]
    for richness, source in [(5.0, 0.3), (5.0, 0.5), (5.0, 0.7), (1.0, 0.5)]:
        for depth in (1, 2, 3, 4):
            slopes = hard_task(source, depth, richness)
            laws = [dl.rich_exponent(source, depth), dl.rich_exponent(source, depth=1)]
            table.append([f"{richness:g}", f"{source:g}", str(depth), *(f"{each:.3f}" for each in slopes + laws)])
    return table


# --- small batches: the noise of order 1/B --------------------------------------------------------------------

RATES = {1: 0.02, 2: 0.04, 4: 0.06, 8: 0.08, 16: 0.08}
"""Learning rate by batch size."""


def small_batch(richness: float, batch: int, networks: int = 1500) -> tuple[float, float]:
    """Return the mean deviation of the test loss from networks over 30 steps: noise of order 1/B dropped, and kept."""

    def problem(keep: bool) -> dl.Problem:
        return dl.Problem(
            network=dl.MLP(depth=2, width=128, richness=richness, centered=True),
            data=dl.Spectrum.power_law(capacity=1.5, source=0.8, modes=40, noise=0.2),
            sampling=dl.OnlineSGD(batch, small_batch=keep),
            optimizer=dl.GradientDescent(RATES[batch]),
            steps=30,
        )

    mean = dl.simulate(problem(True), seeds=networks, record="losses").mean("test_loss")
    dropped, kept = (np.abs(dl.solve(problem(keep)).test_loss / mean - 1)[1:].mean() for keep in (False, True))
    return float(dropped), float(kept)


def small_batches() -> Table:
    """Return deviations by richness and batch."""
    table = [["", *(f"B = {batch}" for batch in RATES)]]
    for richness in (0.2, 1.0):
        found = [small_batch(richness, batch) for batch in RATES]
        for name, deviations in zip(("dropped", "kept"), zip(*found, strict=True), strict=True):
            table.append([f"richness {richness:g}, {name}", *(f"{100 * each:.1f} %" for each in deviations)])
    return table


# --- the edge of stability: whether `compare` says when it is near --------------------------------------------

PROBLEMS, DIM, NETWORKS = 120, 200, 24


def random_problems(count: int = PROBLEMS, seed: int = 1) -> Iterator[dl.Problem]:
    """Yield problems with learning rates from a tenth of the largest stable one up to it."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        samples, keep = np.exp(rng.uniform(np.log([0.5, 0.2]), np.log([3.0, 1.0])))
        rules = [
            dl.Population(),
            dl.FullBatch(samples),
            dl.OnlineSGD(samples),
            dl.MultiPassSGD(samples, keep * samples),
        ]
        problem = dl.Problem(
            network=dl.MLP(
                depth=int(rng.integers(1, 5)),
                width=float(np.exp(rng.uniform(np.log(0.3), np.log(3.0)))),
                richness=float(np.exp(rng.uniform(np.log(0.5), np.log(2.0)))),
                centered=bool(rng.integers(2)),
            ),
            data=dl.Isotropic(noise=float(rng.choice([0.0, 0.3]))),
            sampling=rules[rng.integers(len(rules))],
            optimizer=dl.GradientDescent(0.01, momentum=float(rng.choice([0.0, 0.0, 0.5]))),
            steps=40,
        )
        lr = float(np.exp(rng.uniform(np.log(0.1), 0.0))) * dl.max_stable_lr(problem).lr
        yield replace(problem, optimizer=replace(problem.optimizer, lr=lr))


def near_edge() -> Table:
    """Return how many problems ``compare`` flags, of those where theory and networks differ and of the others."""
    counts = np.zeros((2, 2), int)
    for problem in random_problems():
        networks = dl.simulate(problem, DIM, NETWORKS, record="losses")
        comparison = dl.compare(dl.solve(problem), networks)
        differ = any(
            ((np.abs(each.relative_error) > 0.05) & (np.abs(each.z) > 4)).any()
            for each in (comparison["test_loss"], comparison["train_loss"])
        )
        counts[int(not differ), int(not comparison.near_edge)] += 1
    rows = zip(("differ by more than 5 % and 4 standard errors", "do not"), counts.tolist(), strict=True)
    return [["theory and networks", "flagged", "not flagged"], *([name, *map(str, row)] for name, row in rows)]


# --- pages ----------------------------------------------------------------------------------------------------

HERE = Path(__file__).parent
TABLES: dict[str, tuple[str, Callable[[], Table]]] = {
    "hard_tasks": ("findings.md", hard_tasks),
    "small_batches": ("findings.md", small_batches),
    "near_edge": ("limits.md", near_edge),
}
"""Page and measurement of each table."""


def _cut(name: str) -> tuple[str, str, str]:
    """Return what stands before, in and after the table on its page."""
    before, begin, rest = (HERE / TABLES[name][0]).read_text().partition(f"<!-- docs/measured.py {name} -->\n")
    table, end, after = rest.partition("<!-- end -->")
    if not (begin and end):
        raise ValueError(f"{TABLES[name][0]} must have a place for {name}, between two comments")
    return before + begin, table, end + after


def read(name: str) -> Table:
    """Return a table as it stands on its page."""
    lines = [line for line in _cut(name)[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("|---")]


def write(name: str, table: Table) -> None:
    """Write a table into its page."""
    before, _, after = _cut(name)
    header, *rows = (f"| {' | '.join(row)} |" for row in table)
    lines = ["", header, "|---" * len(table[0]) + "|", *rows, ""]
    (HERE / TABLES[name][0]).write_text(before + "\n".join(lines) + "\n" + after)


if __name__ == "__main__":
    for name in sys.argv[1:] or TABLES:
        write(name, TABLES[name][1]())
