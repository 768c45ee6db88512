"""What a problem would cost, before it is solved or simulated: seconds and bytes.

Bytes are counted. Seconds are the memory traffic of the work, counted, over a rate that is measured on
the spot, so that they hold for this machine as busy as it is now. Training that diverges ends earlier.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import psutil

from deeplinear._core.device import CPU
from deeplinear._core.threads import one_blas_thread
from deeplinear._equations.coefficients import Structure
from deeplinear._equations.products import rows_times, rows_times_symmetric
from deeplinear._experiment.methods import EXPLICIT, Counts
from deeplinear._experiment.simulate import read_arguments, read_method, simulate, simulation_memory
from deeplinear._experiment.sizes import Sizes, sizes_of
from deeplinear._problem.problem import Problem
from deeplinear._problem.spectrum import PowerLaw, Spectrum
from deeplinear._solvers.dense import dense_memory
from deeplinear._solvers.panels.solver import MOST_ROWS, panels_memory
from deeplinear._theory.solve import chosen_method, plan, solve
from deeplinear._time.grid import breaks

_FLOAT = 8
_PROBE = 128e6
"""Most bytes that a measurement touches: more than a processor's cache, little enough to be quick."""
_PROBE_STEPS = 12
_PROBE_SECONDS = 0.03
"""A shorter run does not stand out from the noise."""

# Very deep networks are solved on nodes along their depth, on few of them and then on more, and each step is
# swept until it settles: these many are usual.
_FEWER_NODES, _SWEEPS = 5, 10

_PANEL_SWEEPS = 15
"""Passes over all matrices that panels usually take, in units of one dense pass over as many nodes."""

_NODES_AFTER_BREAK = 60
"""Nodes in time that panels take until they are long again after a schedule jumps or bends."""


def _panel_nodes(problem: Problem) -> int:
    """Nodes in time that panels rarely exceed: 190 at a thousand steps, 45 more for each further decade."""
    lr, nodes = problem.optimizer.lr, 190 + 45 * math.log10(max(problem.steps, 1000) / 1000)
    if isinstance(lr, tuple):  # a jump is two neighbouring steps
        nodes += _NODES_AFTER_BREAK * int((np.diff(breaks(np.array(lr)), prepend=-2) > 1).sum())
    return round(min(nodes, problem.steps, MOST_ROWS / problem.data.outputs))


_COARSE_RUNS = 2.5
"""Cost of all runs of coarse steps, in units of the finest."""


def _coarse_steps(problem: Problem) -> int:
    """Steps of the finest run that coarse steps usually need: 20 in each relaxation time of the first kernel."""
    kernel = float(solve(replace(problem, steps=1)).kernel[0])
    rate = problem.optimizer.rates(1)[0] * problem.data.modes.eigenvalues.max() * kernel
    return round(128 + 20 * float(rate) * problem.steps)


@dataclass(frozen=True)
class Cost:
    """Time and memory of one piece of work."""

    seconds: float
    bytes: int


@dataclass(frozen=True)
class Estimate:
    """What ``solve`` and ``simulate`` would take.

    Attributes
    ----------
    theory
        Cost of ``solve``.
    experiment
        Cost of ``simulate``, or ``None`` if no ``dim`` was given.
    method
        How the theory would be solved.
    available
        Memory available now, in bytes.

    Examples
    --------
    >>> print(Estimate(Cost(2.0, 10**9), Cost(90.0, 10**6), "dense", available=2 * 10**9))
    theory (dense): 2.0 s, 1.0 GB; experiment: 1.5 min, 1.0 MB; fits into the 2.0 GB available
    """

    theory: Cost
    experiment: Cost | None
    method: str
    available: int

    @property
    def fits(self) -> bool:
        """Whether there is memory for both together, as ``compare`` needs it."""
        needed = self.theory.bytes + (self.experiment.bytes if self.experiment else 0)
        return needed <= self.available

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self) | {"fits": self.fits}

    def __str__(self) -> str:
        parts = [f"theory ({self.method}): {in_time(self.theory.seconds)}, {in_bytes(self.theory.bytes)}"]
        if self.experiment:
            parts.append(f"experiment: {in_time(self.experiment.seconds)}, {in_bytes(self.experiment.bytes)}")
        parts.append(f"{'fits' if self.fits else 'does not fit'} into the {in_bytes(self.available)} available")
        return "; ".join(parts)


def estimate(
    problem: Problem,
    dim: int | None = None,
    seeds: int | Iterable[int] = 16,
    workers: int | None = None,
    record: str = "all",
    method: str = "auto",
) -> Estimate:
    """Estimate the cost of solving a problem, and of simulating it if ``dim`` is given.

    Takes about a second at most, whatever the problem.

    Parameters
    ----------
    problem
        What would be solved.
    dim, seeds, workers, record, method
        As for ``simulate``. Time is measured for explicit matrices and counted for the others, where it is right
        within a factor of two or three.

    Raises
    ------
    ValueError
        If an argument is not allowed, or an infinitely wide network is to be simulated.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=3, width=1.0), dl.GradientDescent(0.1, momentum=0.9)
    >>> problem = dl.Problem(network, dl.Isotropic(), dl.OnlineSGD(0.5), optimizer, steps=10**6)
    >>> cost = estimate(problem)
    >>> cost.fits, cost.method, f"{cost.theory.bytes / 1e12:.0f} TB"
    (False, 'dense', '184 TB')
    """
    experiment = None
    if dim is not None:
        memory = simulation_memory(problem, dim, seeds, workers, record, method)
        experiment = Cost(_simulation_seconds(problem, dim, seeds, workers, record, method), memory)
    work = work_of(problem)
    theory = Cost(work.passes * solve_seconds(problem)(work.shape.steps), work.bytes)
    return Estimate(theory, experiment, work.method, available=psutil.virtual_memory().available)


class Work(NamedTuple):
    """How a problem is solved: at so many steps or nodes, how often all matrices there are gone through, and bytes."""

    method: str
    shape: Structure
    passes: float
    bytes: int


def work_of(problem: Problem) -> Work:
    """Say what the method that is chosen for a problem has to do."""
    method, shape = chosen_method(problem), plan(problem)
    # The solution on fewer nodes in depth is kept to compare with.
    copies = 1 + _FEWER_NODES / shape.nodes if shape.nodes else 1
    if method == "panels":
        nodes = _panel_nodes(problem)
        # A panel on nodes in depth takes twice the sweeps, but a step there is swept many times as well.
        passes = 2 * _PANEL_SWEEPS / _SWEEPS if shape.nodes else _PANEL_SWEEPS
        return Work(method, replace(shape, steps=nodes), passes, round(copies * panels_memory(shape, nodes)))
    passes = 1.0
    if method == "coarse":
        shape, passes = replace(shape, steps=min(problem.steps, _coarse_steps(problem))), _COARSE_RUNS
    return Work(method, shape, passes, round(copies * dense_memory(shape, 1)))


def solve_seconds(problem: Problem) -> Callable[[int], float]:
    """Return the time that the first ``t`` steps of a dense solve take, as a function of t.

    Step t reads the leading e x e block, e = t C, of every matrix in ``matrices_read`` once.
    """
    shape = plan(problem)
    overhead = _overhead(problem)
    seconds_per_byte = _seconds_per_byte(shape)
    bytes_per_step = _FLOAT * matrices_read(shape) * shape.outputs**2  # times t^2

    def seconds(steps: int) -> float:
        return steps * overhead + bytes_per_step * steps**3 / 3 * seconds_per_byte

    return seconds


def matrices_read(shape: Structure) -> float:
    """Count the matrices read in one step; a product with a causal one reads half of it."""
    causal, symmetric = products(shape)
    return causal / 2 + symmetric


def products(shape: Structure) -> tuple[float, float]:
    """Count the products with causal, and with other, matrices in one step.

    A hidden layer takes 8 causal products (rows of two responses of h and of g, and their transposes in
    C_h and C_g) and 4 with correlations; the last layer, whose C_h is not needed, takes 6 and 1. Skip connections add
    12 and 4 for the two cut chains. Layer 0 takes 12 with a data set and one mode.
    """
    modes = shape.modes
    if shape.nodes:
        causal, symmetric = (_SWEEPS * (shape.nodes + _FEWER_NODES) * each for each in (14, 8))
    else:
        causal, symmetric = 8 * shape.depth - 2, 4 * shape.depth - 3
        if shape.skip:
            causal += 12 * (shape.depth - 1)
            symmetric += 4 * (shape.depth - 1)
    causal += 2 * modes  # H, C_v
    symmetric += 1  # the initial function in C_v
    if shape.reuses_data or shape.subsamples:
        causal += 1  # Z with the mean of H
    if shape.reuses_data:
        causal += 5  # R_Delta with K, its own rows, and its transpose in C_h; R_hr
        symmetric += 3  # C_v in the noise, and in C_Delta and Psi together; Psi in C_h
    return causal, symmetric


def _overhead(problem: Problem) -> float:
    """Measure the seconds of a step whose matrices are tiny."""
    steps = min(problem.steps, _PROBE_STEPS)
    small = _shortened(problem, steps)
    return float(np.median([solve(small).stats["seconds"] for _ in range(3)])) / steps


def _seconds_per_byte(shape: Structure) -> float:
    """Measure products over as many matrices as the solve has, or as many as are quick."""
    size = min(shape.size, 1024)
    count = max(1, round(min(dense_memory(shape, 1), _PROBE) / (_FLOAT * size**2)))
    matrices = np.ones((count, 1, size, size))
    rows = np.ones((1, shape.outputs, size))

    def products() -> None:
        for index, matrix in enumerate(matrices):
            # As in a step, about half of the traffic is causal and half is not.
            _ = (rows_times_symmetric if index % 3 == 0 else rows_times)(rows, matrix, size)

    full = -(-count // 3)
    with one_blas_thread():
        return _typical(products) / (_FLOAT * size**2 * (full + (count - full) / 2))


def _simulation_seconds(
    problem: Problem, dim: int, seeds: int | Iterable[int], workers: int | None, record: str, method: str = "auto"
) -> float:
    """Scale up a short run of as many networks as train at the same time; count, where matrices are not explicit."""
    seed_list, worker_count, sizes = read_arguments(problem, dim, seeds, workers, record)
    counts = Counts(problem, sizes, problem.data.finite(dim), record)
    kept = read_method(method, counts, CPU)
    if kept != EXPLICIT:
        return math.ceil(len(seed_list) / worker_count) * counts.need(kept).seconds
    part = min(1.0, math.sqrt(_PROBE / 4 / _entries(sizes) / _FLOAT))
    probe_dim = max(sizes.outputs, int(part * dim))
    probe = _smaller(problem, probe_dim, part)
    scale = _entries(sizes) / _entries(sizes_of(probe, probe_dim))

    def run(steps: int) -> float:
        short = _shortened(probe, steps)
        options = {"workers": worker_count, "record": "losses", "method": EXPLICIT}
        return _typical(lambda: simulate(short, probe_dim, worker_count, **options))  # type: ignore[arg-type]

    few, more = 2, 2 * _PROBE_STEPS
    start, end = run(few), run(more)
    if end < _PROBE_SECONDS:
        more *= 8
        end = run(more)
    per_step = max(end - start, 0.1 * end) / (more - few)
    setting_up = max(start - few * per_step, 0.0)
    one_network = scale * (setting_up + problem.steps * per_step)
    if record == "all":
        one_network += _correlation_seconds(problem, sizes)
    return math.ceil(len(seed_list) / worker_count) * one_network


def _smaller(problem: Problem, dim: int, part: float) -> Problem:
    """The same problem with ``dim`` inputs, and with a part of the sizes where these are counts.

    What a step costs does not depend on the variances of inputs.
    """
    data, network, sampling = problem.data, problem.network, problem.sampling
    if not data.dimension_free:
        return problem
    width = network.width
    fewer = tuple(max(1.0, part * each) for each in (width if isinstance(width, tuple) else (width,)))  # type: ignore[operator]
    network = replace(network, width=fewer if isinstance(width, tuple) else fewer[0])
    counts = {name: max(1.0, part * count) for name, count in vars(sampling).items() if name in ("samples", "batch")}
    if not isinstance(data, PowerLaw):
        data = Spectrum([1.0], data.modes.target[:1], [dim], noise=data.noise)  # type: ignore[arg-type]
    return replace(problem, network=network, data=data, sampling=replace(sampling, **counts))


def _entries(sizes: Sizes) -> int:
    """Numbers that every training step goes through: weights and inputs."""
    weights = sum(a * b for a, b in zip((sizes.dim, *sizes.widths), (*sizes.widths, sizes.outputs), strict=True))
    return weights + sizes.samples * sizes.dim


def _correlation_seconds(problem: Problem, sizes: Sizes) -> float:
    """Correlating every field over all pairs of times: (T C)^2 multiplications and additions per site."""
    side = 400
    block = np.ones((side, side))
    with one_blas_thread():
        per_product = _typical(lambda: block @ block.T) / side**3
    n, sites = problem.steps * sizes.outputs, 2 * sizes.dim + 2 * sum(sizes.widths) + sizes.samples
    return n**2 * sites * per_product


def _shortened(problem: Problem, steps: int) -> Problem:
    """The same problem over fewer steps, slow enough not to diverge."""
    return replace(problem, optimizer=replace(problem.optimizer, lr=1e-6), steps=steps)


def _typical(work: Callable[[], object], repeats: int = 3) -> float:
    """Time some work: the median of several repeats, since a busy machine will stay busy."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def in_time(seconds: float) -> str:
    """Write a duration for people.

    Examples
    --------
    >>> [in_time(s) for s in (0.004, 12.0, 600.0, 9000.0, 864000.0)]
    ['< 0.1 s', '12.0 s', '10.0 min', '2.5 h', '10.0 days']
    """
    if seconds < 0.1:
        return "< 0.1 s"
    for unit, length, enough in (("s", 1.0, 60.0), ("min", 60.0, 3600.0), ("h", 3600.0, 86400.0)):
        if seconds < enough:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds / 86400:.1f} days"


def in_bytes(count: float) -> str:
    """Write an amount of memory for people.

    Examples
    --------
    >>> [in_bytes(b) for b in (12, 3.45e6, 2e9, 2e13)]
    ['12 B', '3.5 MB', '2.0 GB', '20.0 TB']
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
