"""Measure speed and memory, as ratios within one run, and write ``benchmarks/results.md``.

python benchmarks/run.py [names of sections]
"""

import datetime
import math
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import deeplinear as dl
from deeplinear._closure.causal import _BLOCK, _stripes
from deeplinear._coefficients import Structure
from deeplinear._dense import dense_memory
from deeplinear._estimate import products
from deeplinear._reference import reference
from deeplinear._solve import plan
from deeplinear._threads import one_blas_thread
from measure import exponent, least, peak_bytes

RESULTS = Path(__file__).parent / "results.md"
Row = tuple[str, str, str]


def mlp(steps: int, depth: int = 4, lr: float = 0.01) -> dl.Problem:
    data, rule = dl.Isotropic(noise=0.3), dl.GradientDescent(lr)
    return dl.Problem(dl.MLP(depth, 1.0), data, dl.FullBatch(2.0), rule, steps)


def residual(depth: float, steps: int, width: float = 1.0, lr: float = 0.01) -> dl.Problem:
    data, rule = dl.Isotropic(noise=0.3), dl.GradientDescent(lr)
    return dl.Problem(dl.ResNet(depth, width), data, dl.FullBatch(2.0), rule, steps)


def entries_read(shape: Structure, e: int) -> float:
    """Entries of matrices that step e reads: of causal ones the stripes that are not zero."""
    causal, symmetric = products(shape)
    striped = e * e if e <= _BLOCK else sum((s.stop - s.start) * (e - s.start) for s in _stripes(1, e, _BLOCK))
    return causal * striped + symmetric * e * e


def dense() -> Iterator[Row]:
    """The dense solver moves its bytes as fast as memory gives them, and keeps only what it must."""
    matrix, vector = np.ones((4000, 4000)), np.ones(4000)
    with one_blas_thread():
        one_thread = matrix.nbytes / least(lambda: matrix @ vector, 9)
    for steps in (400, 800):
        problem = mlp(steps)
        shape = plan(problem)
        moved = 8 * sum(entries_read(shape, e) for e in range(1, steps + 1))
        rate = moved / least(lambda problem=problem: dl.solve(problem), 2)
        yield (
            f"bandwidth of `solve`, L = 4, full batch, T = {steps}, over that of a 4000 x 4000 matrix-vector product",
            f"{rate / one_thread:.2f}",
            f"{rate / 1e9:.1f} against {one_thread / 1e9:.1f} GB/s on one thread",
        )
        peak = peak_bytes(lambda problem=problem: dl.solve(problem))
        kept = dense_memory(shape, 1)
        yield f"peak memory over the matrices it keeps, T = {steps}", f"{peak / kept:.2f}", f"{kept / 1e6:.0f} MB kept"


def batches() -> Iterator[Row]:
    """Many short problems as one list."""
    for steps, count in ((50, 64), (100, 64), (200, 64)):
        problems = [mlp(steps, lr=0.005 + 0.0001 * i) for i in range(count)]
        together = least(lambda problems=problems: dl.solve(problems), 1)
        apart = least(lambda problems=problems: [dl.solve(problem) for problem in problems], 1)
        per_problem = f"{1e3 * together / count:.1f} ms a problem as a list"
        yield f"{count} problems of T = {steps}: one by one over as a list", f"{apart / together:.2f}", per_problem


def against_simulation() -> Iterator[Row]:
    """Theory against training networks until the mean curve is known as well as stated."""
    problem, dim, seeds, wanted = mlp(200), 500, 8, 0.01
    theory = least(lambda: dl.solve(problem), 2)
    experiment = dl.simulate(problem, dim, seeds, record="losses")
    error = (experiment.standard_error("test_loss") / experiment.mean("test_loss")).max()
    needed = math.ceil(seeds * (error / wanted) ** 2)
    seconds = least(lambda: dl.simulate(problem, dim, seeds, record="losses"), 1) / seeds * needed
    yield (
        "networks of D = N = 500, P = 1000 trained until the mean test loss has a standard error of 1 %, over `solve`",
        f"{seconds / theory:.1f}",
        f"L = 4, T = 200: {needed} networks, {seconds:.1f} s, against {theory:.2f} s",
    )


def depth() -> Iterator[Row]:
    """Residual networks: time against depth, and against other ways."""
    depths = [4, 8, 16, 32, 64, 128, 255]
    for steps in (100, 200):
        times = [least(lambda d=d, steps=steps: dl.solve(residual(d, steps)), 1) for d in depths]
        per_layer = ", ".join(f"{d}: {t:.2f}" for d, t in zip(depths, times, strict=True))
        yield (
            f"growth exponent of time in depth, L = 4 .. 255, T = {steps}",
            f"{exponent(depths, times):.2f}",
            per_layer,
        )
    memory = [dense_memory(plan(residual(d, 200)), 1) for d in depths]
    yield (
        "memory at T = 200, L = 4 and 255",
        f"{memory[0] / 1e6:.0f} and {memory[-1] / 1e6:.0f} MB",
        "proportional to L",
    )
    many, few = residual(255, 200), residual(1000, 200)
    by_nodes = least(lambda: dl.solve(few), 1)
    by_layers = least(lambda: dl.solve(many), 1) * 1000 / 255
    yield "L = 1000, T = 200: layer by layer (from L = 255) over nodes in depth", f"{by_layers / by_nodes:.1f}", ""
    limit = least(lambda: dl.solve(residual(math.inf, 200)), 1)
    yield "infinite depth, T = 200", f"{limit:.1f} s", "two solutions, the error from their difference"
    for d in (2, 4, 8):
        small = residual(d, 16)
        with one_blas_thread():
            pairs = least(lambda small=small: reference(small), 1)
        ours = least(lambda small=small: dl.solve(small), 3)
        yield f"L = {d}, T = 16: all-pairs reference over `solve`", f"{pairs / ours:.0f}", ""
    problem = residual(16, 100)
    ours = least(lambda: dl.solve(problem), 1)
    trained = least(lambda: dl.simulate(problem, 1000, 1, record="losses"), 1)
    yield "one residual network of N = D = 1000, P = 2000, L = 16, T = 100 over `solve`", f"{trained / ours:.1f}", ""


def modes() -> Iterator[Row]:
    """Structured data: cost against the number of modes."""
    counts, times = [1, 10, 30, 100, 300], []
    rule = dl.GradientDescent(0.1)
    for count in counts:
        spectrum = dl.Spectrum.power_law(1.5, 1.0, modes=count)
        problem = dl.Problem(dl.MLP(3, 100.0), spectrum, dl.FullBatch(100.0), rule, 100)
        times.append(least(lambda problem=problem: dl.solve(problem), 1))
    listed = ", ".join(f"{c}: {t:.2f}" for c, t in zip(counts, times, strict=True))
    growth = exponent(counts[2:], times[2:])
    yield "growth exponent of time in modes, 30 .. 300, L = 3, T = 100", f"{growth:.2f}", f"{listed} s"
    compress = least(lambda: dl.Spectrum.power_law(1.5, 1.0, modes=100_000).compress(), 1)
    small = dl.Spectrum.power_law(1.5, 1.0, modes=100_000).compress()
    problem = dl.Problem(dl.MLP(3, 100.0), small, dl.FullBatch(100.0), rule, 100)
    seconds = least(lambda: dl.solve(problem), 1)
    memory = dense_memory(plan(problem), 1)
    yield (
        "10^5 modes, T = 100, by compression",
        f"{compress + seconds:.2f} s",
        f"{len(small.eigenvalues)} modes; {compress:.2f} s to compress, {memory / 1e6:.0f} MB",
    )


def horizons() -> Iterator[Row]:
    """Long horizons: panels against dense stepping, and growth with the number of steps."""

    def problem(steps: int, depth: int = 3) -> dl.Problem:
        data, rule = dl.Isotropic(noise=0.3), dl.GradientDescent(0.005)
        return dl.Problem(dl.MLP(depth, 1.0), data, dl.FullBatch(1.2), rule, steps)

    short = problem(1000)
    exact, panels = dl.solve(short, method="dense"), dl.solve(short, method="panels")
    ratio = least(lambda: dl.solve(short, method="dense"), 1) / least(lambda: dl.solve(short, method="panels"), 1)
    error = np.abs(panels.at(exact.times)["test_loss"].values / exact.test_loss - 1).max()
    yield "T = 1000, L = 3: dense over panels", f"{ratio:.0f}", f"relative error {error:.0e}"
    for power in (3, 4, 5, 6, 7):
        solution = dl.solve(problem(10**power), method="panels")
        seconds = least(lambda power=power: dl.solve(problem(10**power), method="panels"), 1)
        yield f"T = 10^{power}, L = 3, tolerance 1e-6", f"{seconds:.1f} s", f"{len(solution.times)} nodes"
    million = problem(10**6, depth=4)
    yield "T = 10^6, L = 4", f"{least(lambda: dl.solve(million), 1):.1f} s", ""


SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    "dense": dense,
    "batches": batches,
    "simulation": against_simulation,
    "depth": depth,
    "modes": modes,
    "horizons": horizons,
}


def main() -> None:
    chosen = sys.argv[1:] or list(SECTIONS)
    lines = [
        "# Benchmarks",
        "",
        f"{datetime.date.today()}, {os.cpu_count()} cores ({platform.processor() or platform.machine()}), "
        f"Python {platform.python_version()}, NumPy {np.__version__}. "
        "Every ratio is measured within one run; least of several repeats.",
        "",
    ]
    for name in chosen:
        section = SECTIONS[name]
        lines += [f"## {(section.__doc__ or '').rstrip('.')}", "", "| what | measured | details |", "|---|---|---|"]
        for what, measured, details in section():
            print(f"{what}: {measured}  ({details})", flush=True)
            lines.append(f"| {what} | {measured} | {details} |")
        lines.append("")
    if chosen == list(SECTIONS):
        RESULTS.write_text("\n".join(lines))
        print(f"written to {RESULTS}")


if __name__ == "__main__":
    main()
