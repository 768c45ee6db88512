"""Numbers on the pages of findings and limits that take minutes to measure.

    python docs/measured.py [names of tables]        (half an hour on one core for all of them)

measures each table anew, or those that are named, and writes it into its page, between two comments.
"""

import itertools
import json
import math
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._comparison.near_edge import expected_deviation
from deeplinear._problem.rate import rate_of

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

GROUPS = 20
"""Parts of the networks that are left out in turn to find the standard error."""


def small_batch(richness: float, batch: int, networks: int = 1500) -> list[tuple[float, float]]:
    """Return the mean deviation of theory from networks over 30 steps, in the test loss, and its standard error.

    Once with the noise of order 1/B dropped and once with it kept; errors are those of leaving out each twentieth of
    the networks in turn.
    """

    def problem(keep: bool) -> dl.Problem:
        return dl.Problem(
            network=dl.MLP(depth=2, width=128, richness=richness, centered=True),
            data=dl.Spectrum.power_law(capacity=1.5, source=0.8, modes=40, noise=0.2),
            sampling=dl.OnlineSGD(batch, small_batch=keep),
            optimizer=dl.GradientDescent(RATES[batch]),
            steps=30,
        )

    losses = dl.simulate(problem(True), seeds=networks, record="losses").test_loss
    found = []
    for keep in (False, True):
        theory = dl.solve(problem(keep)).test_loss
        everyone, *without = (
            float(np.abs(theory / kept.mean(axis=0) - 1)[1:].mean())
            for kept in (losses, *(np.delete(losses, np.s_[part::GROUPS], axis=0) for part in range(GROUPS)))
        )
        found.append((everyone, float(np.std(without) * np.sqrt(GROUPS - 1))))
    return found


def small_batches() -> Table:
    """Return deviations by richness and batch."""
    table = [["", *(f"B = {batch}" for batch in RATES)]]
    for richness in (0.2, 1.0):
        found = [small_batch(richness, batch) for batch in RATES]
        for name, deviations in zip(("dropped", "kept"), zip(*found, strict=True), strict=True):
            cells = [f"{100 * each:.1f} ± {100 * error:.1f} %" for each, error in deviations]
            table.append([f"richness {richness:g}, {name}", *cells])
    return table


# --- the largest stable rate in rich networks -----------------------------------------------------------------

WIDTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
STABLE_DIM, STABLE_NETWORKS = 50, 16
"""Input dimension and number of the networks whose largest stable rate is looked for, at each width."""


def rich(depth: int, width: float, lr: float = 0.01) -> dl.Problem:
    """Return a rich problem in NTK parameterization."""
    network = dl.MLP(depth, width, richness=16.0, parameterization="ntk")
    return dl.Problem(network, dl.Isotropic(), dl.Population(), dl.GradientDescent(lr), steps=30)


def stable_networks(depth: int, width: float, around: float) -> tuple[float, float]:
    """Return the mean logarithm of the largest stable rate of networks, and its standard error.

    That of each network is between two rungs of a ladder of ratio 1.072: below the first one at which its loss ends
    above where it began.
    """
    rates = around * np.geomspace(0.6, 1.7, 16)
    runs = [dl.simulate(rich(depth, width, lr), STABLE_DIM, STABLE_NETWORKS, record="losses") for lr in rates.tolist()]
    unstable = np.array([run.train_loss[:, -1] > run.train_loss[:, 0] for run in runs] + [[True] * STABLE_NETWORKS])
    first = unstable.argmax(axis=0)
    logs = np.log(rates[0]) + (first - 0.5) * np.log(rates[1] / rates[0])
    return float(logs.mean()), float(logs.std(ddof=1) / np.sqrt(STABLE_NETWORKS))


def stable_rates() -> Table:
    """Return exponents of the width, of theory and networks."""
    steps = "between neighbouring widths"
    table = [["L", "theory", steps, "networks ± sampling error", "1 - 1/(L+1)", "1 - 1/L"]]
    logs = np.log(WIDTHS)
    weights = (logs - logs.mean()) / ((logs - logs.mean()) ** 2).sum()  # of a straight line
    for depth in (1, 2, 3):
        theory = np.log([dl.max_stable_lr(rich(depth, width)).lr for width in WIDTHS])
        found = [stable_networks(depth, width, np.exp(rate)) for width, rate in zip(WIDTHS, theory, strict=True)]
        means, errors = np.array(found).T
        local = np.diff(theory) / np.diff(logs)
        networks = f"{weights @ means:.3f} ± {np.hypot.reduce(weights * errors):.3f}"
        span, laws = f"{local.min():.2f} to {local.max():.2f}", [f"{1 - 1 / n:.3f}" for n in (depth + 1, depth)]
        table.append([str(depth), f"{weights @ theory:.3f}", span, networks, *laws])
    return table


# --- finite size: whether `compare` knows what to expect ------------------------------------------------------

PROBLEMS = 60
SIZES = {60: 120, 240: 40}
"""Number of networks at each input dimension."""


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
        kind = dl.ResNet if rng.integers(4) == 0 else dl.MLP
        problem = dl.Problem(
            network=kind(
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


def deviations(problem: dl.Problem, dim: int, networks: int) -> tuple[float, float, float]:
    """Return what is expected of the losses, the least and the most that they may deviate, each at most 1.

    The least is the largest deviation beyond 4 standard errors, 0 if there is none; the most is the largest of
    deviations and 2 standard errors.
    """
    theory, experiment = dl.solve(problem), dl.simulate(problem, dim, networks, record="losses")
    expected = expected_deviation(problem, dim)
    if (experiment.diverged_at >= 0).any():
        return min(expected, 1.0), 1.0, 1.0
    least = most = 0.0
    for name in ("test_loss", "train_loss"):
        deviation = np.abs(experiment.mean(name) / getattr(theory, name) - 1)
        error = experiment.standard_error(name) / getattr(theory, name)
        least = max(least, deviation[deviation > 4 * error + 1e-9].max(initial=0.0))
        most = max(most, (deviation + 2 * error).max())
    return min(expected, 1.0), min(least, 1.0), min(most, 1.0)


def finite_size() -> Table:
    """Return how many deviations are resolved, and how far what ``compare`` expects is from them."""
    found = {dim: [deviations(each, dim, SIZES[dim]) for each in random_problems()] for dim in SIZES}
    return [["D", "networks", *COUNTED]] + [[str(dim), str(SIZES[dim]), *counted(rows)] for dim, rows in found.items()]


COUNTED = ["deviations", "within 2", "within 3", "too high", "too low", "the others", "too high"]


def counted(rows: list[tuple[float, float, float]]) -> list[str]:
    """Count deviations by how far what is expected is from them, and problems without any."""
    expected, least, most = np.array(rows).T
    seen = least > 0
    ratio = expected[seen] / least[seen]
    within = [((ratio >= 1 / factor) & (ratio <= factor)).sum() for factor in (2, 3)]
    others = [(~seen).sum(), (expected[~seen] > 3 * most[~seen]).sum()]
    return [str(each) for each in (seen.sum(), *within, (ratio > 3).sum(), (ratio < 1 / 3).sum(), *others)]


RULES: dict[str, Callable[[float], Any]] = {
    "clipped at 0.3": lambda lr: dl.GradientDescent(lr, clip=0.3),
    "normalised, half the rate": lambda lr: dl.NormalizedDescent(lr / 2, per="global"),
    "schedule-free": dl.ScheduleFree,
}
"""Rules at the rates of the random problems."""


def drawn_deviations(problem: dl.Problem, dim: int = 240, pairs: int = 64) -> tuple[float, float, float]:
    """Return the same as ``deviations``, by networks that are drawn in pairs."""
    expected, found = expected_deviation(problem, dim), dl.finite_size(problem, dim, pairs=pairs)
    if not math.isfinite(found.deviation):
        return min(expected, 1.0), 1.0, 1.0
    least = most = 0.0
    for name in ("test_loss", "train_loss"):
        deviation = np.abs(found[name].relative_shift)
        error = found[name].shift_error / found[name].theory
        least = max(least, deviation[deviation > 4 * error + 1e-9].max(initial=0.0))
        most = max(most, (deviation + 2 * error).max())
    return min(expected, 1.0), min(least, 1.0), min(most, 1.0)


def finite_size_of_rules() -> Table:
    """Return the same counts as ``finite_size`` for other update rules."""
    problems = list(random_problems())
    table = [["rule", *COUNTED]]
    for name, rule in RULES.items():
        tried = [replace(each, optimizer=rule(rate_of(each))) for each in problems]
        table.append([name, *counted([drawn_deviations(each) for each in tried])])
    return table


# --- finite size: coefficients of 1/D, and where that law fails -----------------------------------------------

LARGE, PAIRS = 10**6, 128
"""Input dimension at which coefficients are measured, and pairs of networks that are drawn."""

FRACTIONS = (0.1, 0.5, 0.9)
"""Learning rates in units of the largest stable one."""


def size_problem(network: Any, sampling: Any, noise: float = 0.3, steps: int = 30) -> dl.Problem:
    """Return a problem with isotropic data, whose learning rate is to be chosen."""
    return dl.Problem(network, dl.Isotropic(noise), sampling, dl.GradientDescent(0.01), steps)


SIZE_PROBLEMS = {
    "MLP, depth 1, full batch": size_problem(dl.MLP(1, 1.0), dl.FullBatch(2.0)),
    "MLP, depth 2, full batch": size_problem(dl.MLP(2, 1.0), dl.FullBatch(2.0)),
    "MLP, depth 4, full batch": size_problem(dl.MLP(4, 1.0), dl.FullBatch(2.0)),
    "the same, width 1/4": size_problem(dl.MLP(4, 0.25), dl.FullBatch(2.0)),
    "the same, width 4": size_problem(dl.MLP(4, 4.0), dl.FullBatch(2.0)),
    "residual, depth 4, full batch": size_problem(dl.ResNet(4, 1.0), dl.FullBatch(2.0)),
    "MLP, depth 2, P = D/2": size_problem(dl.MLP(2, 1.0), dl.FullBatch(0.5)),
    "MLP, depth 2, richness 4": size_problem(dl.MLP(2, 1.0, richness=4.0), dl.FullBatch(2.0)),
    "MLP, depth 2, population": size_problem(dl.MLP(2, 1.0), dl.Population()),
    "MLP, depth 2, online": size_problem(dl.MLP(2, 1.0), dl.OnlineSGD(0.5)),
}


def size_effect(problem: dl.Problem, dim: int, pairs: int = PAIRS) -> tuple[float, float, float]:
    """Return D times the relative shift of the final test loss, its standard error, and sqrt(D) times the scatter."""
    effect = dl.finite_size(problem, dim, pairs=pairs)["test_loss"]
    at_end = [float(each[-1] / effect.theory[-1]) for each in (effect.shift, effect.shift_error, effect.scatter)]
    return dim * at_end[0], dim * at_end[1], math.sqrt(dim) * at_end[2]


def with_error(value: float, error: float) -> str:
    """Write a number to the digits that its error leaves; it is not finite where networks diverge."""
    if not math.isfinite(value):
        return "networks diverge"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def size_coefficients() -> Table:
    """Return coefficients of 1/D, for several problems and learning rates, and of 1/sqrt(D) at the least one."""
    table = [["", *(f"{part:g} of the largest stable rate" for part in FRACTIONS), "scatter at half of it"]]
    for name, problem in SIZE_PROBLEMS.items():
        largest = dl.max_stable_lr(problem).lr
        rates = (replace(problem, optimizer=dl.GradientDescent(part * largest)) for part in FRACTIONS)
        found = [size_effect(each, LARGE) for each in rates]
        scatter = found[FRACTIONS.index(0.5)][2]
        table.append([name, *(with_error(*each[:2]) for each in found), f"{scatter:.2g}"])
    return table


EDGE = size_problem(dl.MLP(3, 0.5), dl.FullBatch(2.0), noise=0.0, steps=25)
EDGE_RATES = (0.05, 0.08, 0.1)
EDGE_DIMS = (10**2, 10**3, 10**4, 10**6, 10**9)


def size_law() -> Table:
    """Return D times the relative shift of a loss at several sizes, farther from the edge of stability and nearer."""
    table = [["lr", *(f"$D = 10^{round(math.log10(dim))}$" for dim in EDGE_DIMS)]]
    for lr in EDGE_RATES:
        problem = replace(EDGE, optimizer=dl.GradientDescent(lr))
        table.append([f"{lr:g}", *(with_error(*size_effect(problem, dim)[:2]) for dim in EDGE_DIMS)])
    return table


def size_predicted() -> Table:
    """Return what explicit networks do, as ``finite_size.py`` found it, beside what is predicted."""
    script = runpy.run_path(str(HERE / "finite_size.py"))
    recorded = json.loads(script["RESULTS"].read_text())
    table = [["", *(f"D = {dim}, {what}" for dim in script["NETWORKS"] for what in ("networks", "predicted"))]]
    for name, problem in script["PROBLEMS"].items():
        cells = []
        for row in recorded[name]["sizes"][: len(script["NETWORKS"])]:
            shift, error, _ = size_effect(problem, row["dim"], 2 * PAIRS)
            seen = (row["test_loss_bias"], row["test_loss_bias_error"])
            cells += [
                with_error(*(100 * each for each in pair)) for pair in (seen, (shift / row["dim"], error / row["dim"]))
            ]
        table.append([name, *cells])
    return table


# --- pages ----------------------------------------------------------------------------------------------------

HERE = Path(__file__).parent
TABLES: dict[str, tuple[str, Callable[[], Table]]] = {
    "hard_tasks": ("findings.md", hard_tasks),
    "small_batches": ("findings.md", small_batches),
    "stable_rates": ("findings.md", stable_rates),
    "finite_size": ("limits.md", finite_size),
    "finite_size_of_rules": ("limits.md", finite_size_of_rules),
    "size_coefficients": ("limits.md", size_coefficients),
    "size_law": ("limits.md", size_law),
    "size_predicted": ("limits.md", size_predicted),
}
"""Page and measurement of each table."""


def _cut(name: str, page: str, script: str = "measured") -> tuple[str, str, str]:
    """Return what stands before, in and after the table on its page."""
    before, begin, rest = (HERE / page).read_text().partition(f"<!-- docs/{script}.py {name} -->\n")
    table, end, after = rest.partition("<!-- end -->")
    if not (begin and end):
        raise ValueError(f"{page} must have a place for {name}, between two comments")
    return before + begin, table, end + after


def read(name: str, page: str | None = None, script: str = "measured") -> Table:
    """Return a table as it stands on its page."""
    lines = [line for line in _cut(name, page or TABLES[name][0], script)[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("|---")]


def write(name: str, table: Table, page: str, script: str = "measured") -> None:
    """Write a table into its page."""
    before, _, after = _cut(name, page, script)
    header, *rows = (f"| {' | '.join(row)} |" for row in table)
    lines = ["", header, "|---" * len(table[0]) + "|", *rows, ""]
    (HERE / page).write_text(before + "\n".join(lines) + "\n" + after)


if __name__ == "__main__":
    for name in sys.argv[1:] or TABLES:
        page, measure = TABLES[name]
        write(name, measure(), page)
