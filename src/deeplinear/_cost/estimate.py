"""What a problem would cost, before it is solved or simulated: seconds and bytes.

Bytes are counted. Seconds are the memory traffic of the work, counted, over a rate that is measured on
the spot, so that they hold for this machine as busy as it is now. Training that diverges ends earlier.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from deeplinear._core.arrays import usual_arithmetic
from deeplinear._core.device import CPU
from deeplinear._core.refusal import Refusal
from deeplinear._core.threads import one_blas_thread
from deeplinear._core.words import in_bytes, in_time
from deeplinear._cost.model import numbers_per_step
from deeplinear._equations import system
from deeplinear._equations.coefficients import Structure
from deeplinear._equations.products import rows_times, rows_times_symmetric
from deeplinear._equations.two_time import Causal, Symmetric
from deeplinear._experiment.methods import EXPLICIT
from deeplinear._experiment.simulate import simulate
from deeplinear._experiment.simulation import Simulation
from deeplinear._experiment.sizes import Sizes, sizes_of
from deeplinear._problem.problem import Problem, check_problem
from deeplinear._problem.spectrum import Spectrum
from deeplinear._solvers.base import Solver, Work
from deeplinear._solvers.choose import Choice
from deeplinear._solvers.dense import Dense
from deeplinear._theory.solve import solve

_FLOAT = 8
_PROBE = 128e6
"""Most bytes that a measurement touches: more than a processor's cache, little enough to be quick."""
_MOST_PRODUCTS = 4096
"""Most products that a measurement makes: in short runs a step takes the time of its calls, whatever they touch."""
_PROBE_STEPS, _PROBE_RECORDED = 12, 24
_PROBE_LAYERS = 64
"""Most layers of a network that a measurement solves or trains, where all hidden layers are alike."""
_PROBE_MODES = 4096
"""Most modes of the data that a measurement solves: each takes as long as any other."""
_PROBE_SECONDS = 0.03
"""A shorter run does not stand out from the noise."""
_MOST_PROBED = 6e8
"""Numbers that the beginning of a run may go through, in half a second: counted, so that all machines do the same."""

_MOST_LISTED = 200_000
"""Most steps of a run of which an estimate goes through every step in turn, which takes seconds then."""
_MOST_TABULATED = 2_000_000
"""Most steps of a run of which an estimate holds a number for every step."""


@dataclass(frozen=True)
class Cost:
    """Time and memory of one piece of work.

    Attributes
    ----------
    seconds, bytes
        What it takes.
    most_seconds, most_bytes
        What it takes at most, where a run may take more than its beginning shows; None where it may not.

    Examples
    --------
    >>> print(Cost(2.0, 16 * 10**6, most_seconds=9.0, most_bytes=170 * 10**6))
    2.0 s, 16.0 MB (up to 9.0 s, 170.0 MB if training comes to oscillate)
    """

    seconds: float
    bytes: int
    most_seconds: float | None = None
    most_bytes: int | None = None

    def __str__(self) -> str:
        words = f"{in_time(self.seconds)}, {in_bytes(self.bytes)}"
        if self.most_seconds is None or self.most_bytes is None:
            return words
        most = f"{in_time(self.most_seconds)}, {in_bytes(self.most_bytes)}"
        return f"{words} (up to {most} if training comes to oscillate)"


def too_large(available: int, **costs: Cost | None) -> list[str]:
    """Return the names of what needs more memory than is available; all of them if it is only too much together.

    Examples
    --------
    >>> too_large(10, theory=Cost(1.0, 8), experiment=Cost(1.0, 20)), too_large(10, theory=Cost(1.0, 8))
    (['experiment'], [])
    >>> too_large(10, theory=Cost(1.0, 8), experiment=Cost(1.0, 6))
    ['theory', 'experiment']
    """
    needs = {name: cost.bytes for name, cost in costs.items() if cost}
    alone = [name for name, need in needs.items() if need > available]
    return alone or (list(needs) if sum(needs.values()) > available else [])


@dataclass(frozen=True)
class Estimate:
    """How much time and memory ``solve`` and ``simulate`` would take.

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
    losses_bytes
        What the experiment would take if it recorded losses only (``record="losses"``); None without an experiment.

    Examples
    --------
    >>> print(Estimate(Cost(2.0, 10**9), Cost(90.0, 10**6), "dense", available=2 * 10**9))
    theory (dense): 2.0 s, 1.0 GB; experiment: 1.5 min, 1.0 MB; fits into the 2.0 GB available
    >>> print(Estimate(Cost(2.0, 10**9), Cost(90.0, 10**10), "dense", available=2 * 10**9, losses_bytes=10**6))
    theory (dense): 2.0 s, 1.0 GB; experiment: 1.5 min, 10.0 GB; experiment does not fit into the 2.0 GB available; \
with record='losses' it takes 1.0 MB
    """

    theory: Cost
    experiment: Cost | None
    method: str
    available: int
    losses_bytes: int | None = None

    @property
    def fits(self) -> bool:
        """Whether there is memory for both together, as ``compare`` needs it."""
        return not self.too_large

    @property
    def too_large(self) -> list[str]:
        """What does not fit: ``"theory"``, ``"experiment"``, or both, which may also be too large only together."""
        return too_large(self.available, theory=self.theory, experiment=self.experiment)

    @property
    def losses_fit(self) -> bool:
        """Whether the experiment would fit if it recorded losses only, and does not as it is."""
        if self.losses_bytes is None or "experiment" not in self.too_large:
            return False
        beside = 0 if self.theory.bytes > self.available else self.theory.bytes
        return beside + self.losses_bytes <= self.available

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self) | {"fits": self.fits}

    def __str__(self) -> str:
        parts = [f"theory ({self.method}): {self.theory}"]
        if self.experiment:
            parts.append(f"experiment: {self.experiment}")
        parts.append(f"{fitting(self.too_large)} into the {in_bytes(self.available)} available")
        if self.losses_fit and self.losses_bytes is not None:
            parts.append(f"with record='losses' it takes {in_bytes(self.losses_bytes)}")
        return "; ".join(parts)


def fitting(large: list[str]) -> str:
    """Say what does not fit, if anything."""
    return f"{' and '.join(large)} {'do' if len(large) > 1 else 'does'} not fit" if large else "fits"


@usual_arithmetic
def estimate(
    problem: Problem,
    dim: int | None = None,
    seeds: int | Iterable[int] = 16,
    workers: int | None = None,
    record: str = "all",
    method: str = "auto",
) -> Estimate:
    """Estimate the cost of solving a problem, and of simulating it if ``dim`` is given.

    This takes about a second, however many steps there are, or a few seconds for millions of inputs. The cost of
    ``solve`` is that of the method with which it begins. Where a long run still oscillates after a few hundred steps,
    the estimate covers the abandoned attempt and a solution at every step. Where a run oscillates only later, more of
    the past is kept, which takes up to ``most_seconds`` and ``most_bytes``.

    Parameters
    ----------
    problem
        What would be solved.
    dim, seeds, workers, record, method
        As for ``simulate``. Time is measured for explicit matrices and estimated from counts for the others, where it
        is right to within a factor of two or three.

    Raises
    ------
    ValueError
        If an argument is not allowed, or an infinitely wide network is to be simulated; or if there are more than
        200 000 steps and phases, SAM or a function of the step, or more than 2 000 000 and a schedule or weight decay.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=3, width=1.0), dl.ScheduleFree(0.1)
    >>> problem = dl.Problem(network, dl.Isotropic(), dl.OnlineSGD(0.5), optimizer, steps=10**6)
    >>> cost = estimate(problem)
    >>> cost.fits, cost.method, f"{cost.theory.bytes / 1e12:.0f} TB"
    (False, 'dense', '184 TB')
    """
    check_problem(problem)
    _check_steps(problem)
    experiment = losses_bytes = None
    if dim is not None:
        asked = Simulation.read(problem, dim, seeds, workers, record, method)
        experiment = Cost(simulation_seconds(asked), asked.memory)
        losses_bytes = Simulation.read(problem, dim, asked.seeds, workers, "losses", method).memory
    method, theory = _solving(problem, Choice())
    return Estimate(theory, experiment, method, CPU.available(), losses_bytes)


def estimate_every_step(problem: Problem) -> Estimate:
    """Return what solving every step as it is would take, which functions of two times at every pair need."""
    method, theory = _solving(problem, Choice("dense"))
    return Estimate(theory, None, method, available=CPU.available())


def _check_steps(problem: Problem) -> None:
    """Refuse runs so long that an estimate would itself take the memory and the time that it is to warn of."""
    rules = [stage.optimizer for stage in problem.stages]
    listed = {
        "phases": bool(problem.phases),
        "SAM": any(rule.ascent is not None for rule in rules),
        "functions of the step": any(rule.functions for rule in rules),
    }
    limits = [(name, _MOST_LISTED) for name, found in listed.items() if found]
    if any(stage.optimizer.changes_in_time or stage.sampling.changes_in_time for stage in problem.stages):
        limits.append(("a schedule", _MOST_TABULATED))
    elif any(rule.plain.has_decay(1) for rule in rules):
        limits.append(("weight decay", _MOST_TABULATED))
    for name, most in limits:
        if problem.steps > most:
            raise Refusal("steps", problem.steps, f"at most {most} for an estimate with {name}")


def _solving(problem: Problem, choice: Choice) -> tuple[str, Cost]:
    """Say how a problem is solved, and what that takes.

    Where panels do not begin, because training oscillates, they take single steps until it is smooth, or else until
    they give up. Then every step is solved, with its past condensed, unless nothing but panels can solve the run. A
    past that is not condensed at the beginning, as training swings, keeps more times.
    """
    solver, seconds = choice.solver(problem), solve_seconds(problem)
    works = [(solver, solver.estimate(problem))]
    beginning = Work(replace(Dense().shape(problem), steps=solver.beginning), 1.0, 0)
    if beginning.numbers < _MOST_PROBED and not solver.begins(problem):
        other = None if solver.goes_on else choice.instead(problem, solver)
        works = [(solver, solver.given_up(problem))]
        works += [] if other is None else [(other, other.estimate_of_oscillations(problem))]

    def cost(works: list[tuple[Solver, Work]]) -> tuple[float, int]:
        """Time of one after another, and memory of the largest."""
        times = (work.passes * seconds(min(work.shape.steps, each.most_steps(problem))) for each, work in works)
        return sum(times), max(work.bytes for _, work in works)

    usual, most = cost(works), cost([(each, each.most(problem)) for each in _in_turn(problem, choice)])
    return works[-1][0].name, Cost(*usual, *(most if most[1] > usual[1] else ()))


def _in_turn(problem: Problem, choice: Choice) -> Iterator[Solver]:
    """Yield the solver of a problem, and whatever solves it in the place of one that gives up."""
    solver: Solver | None = choice.solver(problem)
    while solver is not None:
        yield solver
        solver = choice.instead(problem, solver)


def solve_seconds(problem: Problem) -> Callable[[float], float]:
    """Return the time that the first ``t`` steps of a dense solve take, as a function of t.

    Step t reads the leading e x e block, e = t C, of every matrix in ``matrices_read`` once.
    """
    shape = Dense().shape(problem)
    overhead = _overhead(problem)
    seconds_per_byte = _seconds_per_byte(shape)
    bytes_per_step = _FLOAT * system.matrices_read(shape) * shape.outputs**2  # times t^2

    def seconds(steps: float) -> float:
        return steps * overhead + bytes_per_step * steps**3 / 3 * seconds_per_byte

    return seconds


def _overhead(problem: Problem) -> float:
    """Measure the seconds of a step whose matrices are tiny."""
    steps, nodes = min(problem.steps, _PROBE_RECORDED), Dense().shape(problem).depth_nodes
    # One number of nodes in depth, whether or not it is enough: what cannot be resolved has a cost, too.
    solver, small = Dense(depth_nodes=nodes), _shortened(problem, steps)
    probe = _fewer_modes(small if nodes else _shallower(small))
    whole, part = (sum(system.products(solver.shape(each))) for each in (small, probe))
    repeats = 1 if nodes else 3  # steps that are swept take long
    with one_blas_thread():
        times = [solver.solve([probe])[0].stats["seconds"] for _ in range(repeats)]
    return float(np.median(times)) * whole / part / steps


def _seconds_per_byte(shape: Structure) -> float:
    """Measure products over as many matrices as the solve has, or as many as are quick."""
    size = min(shape.size, 1024)
    count = min(max(1, round(min(system.memory(shape), _PROBE) / (_FLOAT * size**2))), _MOST_PRODUCTS)
    matrices = np.ones((count, 1, size, size))
    rows = np.ones((1, shape.outputs, size))

    def products() -> None:
        for index, matrix in enumerate(matrices):
            # As in a step, about half of the traffic is causal and half is not.
            _ = rows_times_symmetric(rows, Symmetric(matrix)) if index % 3 == 0 else rows_times(rows, Causal(matrix))

    full = -(-count // 3)
    with one_blas_thread():
        return _typical(products) / (_FLOAT * size**2 * (full + (count - full) / 2))


def batch_overhead(problem: Problem, together: int) -> float:
    """Measure the seconds of a step of one problem among others, whose matrices are tiny."""
    steps = min(problem.steps, _PROBE_RECORDED)
    batch = [_shortened(problem, steps)] * together
    return _typical(lambda: solve(batch)) / together / steps


def check_experiment(
    problem: Problem, dim: int | None, seeds: int | Iterable[int], workers: int | None, record: str, method: str
) -> None:
    """Refuse an experiment whose arguments are not allowed, before theory is solved for it."""
    Simulation.read(problem, dim, seeds, workers, record, method)


def simulation_seconds(asked: Simulation) -> float:
    """Scale up a short run of as many networks as train at the same time; count, where matrices are not explicit."""
    counts, workers = asked.counts, asked.workers
    problem, sizes = counts.problem, counts.sizes
    rounds = math.ceil(len(asked.seeds) / workers)
    is_orthogonal = bool(problem.optimizer.traits.orthogonal)  # whose steps take longer than their numbers say
    if asked.method != EXPLICIT or is_orthogonal:
        return rounds * counts.need(asked.method).seconds
    part = min(1.0, math.sqrt(_PROBE / 4 / numbers_per_step(sizes) / _FLOAT))
    probe_dim = max(sizes.outputs, int(part * sizes.dim))
    probe = _shallower(_smaller(problem, probe_dim, part))
    scale = numbers_per_step(sizes) / numbers_per_step(sizes_of(probe, probe_dim))

    def run(steps: int) -> float:
        short = _shortened(probe, steps)
        options = {"workers": workers, "record": "losses", "method": EXPLICIT}
        return _typical(lambda: simulate(short, probe_dim, workers, **options))  # type: ignore[arg-type]

    few, more = 2, 2 * _PROBE_STEPS
    start, end = run(few), run(more)
    if end < _PROBE_SECONDS:
        more *= 8
        end = run(more)
    per_step = max(end - start, 0.1 * end) / (more - few)
    setting_up = max(start - few * per_step, 0.0)
    one_network = scale * (setting_up + problem.steps * per_step)
    if counts.record == "all":
        one_network += _correlation_seconds(problem, sizes)
    return rounds * one_network


def _smaller(problem: Problem, dim: int, part: float) -> Problem:
    """The same problem with ``dim`` inputs, and with a part of the sizes where these are counts.

    What a step costs does not depend on the variances of inputs.
    """
    data, network, stage = problem.data, problem.network, problem.stages[0]
    if not data.dimension_free:
        return problem
    sampling = stage.sampling.steady(stage.of_samples).smaller(part)
    fewer = tuple(max(1.0, part * each) for each in network.given_widths)
    network = replace(network, width=fewer if len(fewer) > 1 else fewer[0])
    if data.own_dim is not None:
        data = Spectrum([1.0], data.modes.target[:1], [dim], noise=data.noise)  # type: ignore[arg-type]
    return replace(problem, network=network, data=data, sampling=sampling, phases=())


def _shallower(problem: Problem) -> Problem:
    """The same problem with fewer layers, where there are many and nothing is given for each of them."""
    network, rules = problem.network, [stage.optimizer.plain for stage in problem.stages]
    given = [network.width, network.init_scale, *(each for rule in rules for each in (rule.layer_lr, rule.layer_decay))]
    if network.layers <= _PROBE_LAYERS or any(isinstance(each, tuple) for each in given):
        return problem
    return replace(problem, network=replace(network, depth=_PROBE_LAYERS))


def _fewer_modes(problem: Problem) -> Problem:
    """The same problem with the first modes of its data, where there are many."""
    data = problem.data
    if len(data.modes.weight) <= _PROBE_MODES:
        return problem
    values, target, weight = (
        each[:_PROBE_MODES] for each in (data.modes.eigenvalues, data.modes.target, data.modes.weight)
    )
    share = weight / weight.sum() if not data.dimension_free else weight
    return replace(problem, data=Spectrum(values, target, share, not data.dimension_free, data.noise))  # type: ignore[arg-type]


def _correlation_seconds(problem: Problem, sizes: Sizes) -> float:
    """Correlating every field over all pairs of times: (T C)^2 multiplications and additions per site."""
    side = 400
    block = np.ones((side, side))
    with one_blas_thread():
        per_product = _typical(lambda: block @ block.T) / side**3
    n, sites = problem.steps * sizes.outputs, 2 * sizes.dim + 2 * sum(sizes.widths) + sizes.samples
    return n**2 * sites * per_product


def _shortened(problem: Problem, steps: int) -> Problem:
    """The first phase of a problem over so many steps, all alike, slow enough not to diverge."""
    lr = 1e-6 * math.exp(-max(problem.network.log_initial_gain, 0.0))
    stage = problem.stages[0]
    sampling, optimizer = stage.sampling.steady(stage.of_samples), stage.optimizer.steady(lr, stage.of)
    return replace(problem, sampling=sampling, optimizer=optimizer, steps=steps, phases=())


def _typical(work: Callable[[], object], repeats: int = 3) -> float:
    """Time some work: the median of several repeats, since a busy machine will stay busy."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))
