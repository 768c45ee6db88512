"""A finite network, or several together, from its seeds to the record of its training."""

from collections.abc import Callable, Sequence

import numpy as np

from deeplinear._core.device import CPU, Device
from deeplinear._experiment.data_sets import DataSet, data_sets
from deeplinear._experiment.draws import Draws
from deeplinear._experiment.generators import Generators
from deeplinear._experiment.methods import EXPLICIT, REDUCED, Counts
from deeplinear._experiment.network import FiniteNetwork
from deeplinear._experiment.record import Log, Run, Wanted
from deeplinear._experiment.revealed_network import draw_inputs, draw_network, draw_stream
from deeplinear._experiment.rows import label_gram, row_stream
from deeplinear._experiment.simulation import Simulation
from deeplinear._experiment.singular_values import OfExplicit, OfRevealed, SingularValues
from deeplinear._experiment.sizes import Sizes, sizes_of
from deeplinear._experiment.streams import (
    Batches,
    Inputs,
    Stream,
    fixed_stream,
    fresh_stream,
    population_stream,
)
from deeplinear._experiment.targets import draw_targets, join_targets
from deeplinear._experiment.training import Task, Training
from deeplinear._problem.from_data import Fit
from deeplinear._problem.problem import Problem
from deeplinear._rules.layers import spread

# Second words of the seeds: which of a network's sources of randomness a generator feeds.
INIT, DATA, _TARGET, _REVEALED, TEST, _UNSEEN = 1, 2, 3, 4, 5, 6


def train(asked: Simulation, seeds: int | Sequence[int], advance: Callable[[int], None] | None = None) -> Run:
    """Train the network of one seed with explicit matrices on the processor, or those of several seeds together.

    Parameters
    ----------
    asked
        What is asked for.
    seeds
        Which of its seeds.
    advance
        Called with the number of steps taken since the last call, summed over networks.
    """
    if asked.method == EXPLICIT:
        return train_explicit(asked, seeds, seeds, advance=advance)
    assert not isinstance(seeds, int)
    return train_revealed(asked, seeds, advance)


def train_explicit(
    asked: Simulation,
    init_seed: int | Sequence[int],
    data_seed: int | Sequence[int],
    *,
    errors: bool = False,
    advance: Callable[[int], None] | None = None,
) -> Run:
    """Train one network with NumPy, or several together on a device of PyTorch.

    Parameters
    ----------
    asked, advance
        As for ``train``.
    init_seed, data_seed
        Seeds of the initial weights, and of inputs, label noise and batches. The target depends
        on neither, so runs that share one seed differ in the other source of randomness only. On a device
        sequences, with a seed for each network.
    errors
        Whether to keep the errors v(t) as well.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=1, width=1.0, centered=True), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), steps=3
    ... )
    >>> asked = Simulation.read(problem, 20, method="explicit")
    >>> one, other = train_explicit(asked, 0, 0, errors=True), train_explicit(asked, 1, 0, errors=True)
    >>> one.errors.shape, np.array_equal(one.errors[0], other.errors[0])
    ((3, 20, 1), True)
    """
    counts, device, rows = asked.counts, asked.device, asked.rows
    problem, sizes, curvature = counts.problem, counts.sizes, counts.curvature
    init, data = (_generators(*each, device, asked.drawers) for each in ((init_seed, INIT), (data_seed, DATA)))
    network = explicit_network(problem, sizes, init)
    task = explicit_task(problem, sizes.dim, data, rows, device)
    log = Log(problem.steps, sizes, sizes, network.weights[-1], _wanted(counts, errors))
    gram = None if rows is None else label_gram(rows)
    count = 0 if curvature is None else curvature.singular_values
    singular = OfExplicit(network, count) if count else None
    return Training(task, network, log, counts.averages, gram, curvature, singular).run(advance)


def explicit_network(problem: Problem, sizes: Sizes, rng: np.random.Generator | Generators) -> FiniteNetwork:
    """Draw a network with every entry of its weights."""
    network = problem.network
    scales = None if network.init_scale is None else spread(network.initial_scales, network.layers + 1).tolist()
    return FiniteNetwork.draw(rng, sizes, network.gamma0, network.branch_factor if network.skip else None, scales)


def explicit_task(
    problem: Problem,
    dim: int | None,
    rng: np.random.Generator | Generators,
    rows: Fit | None = None,
    device: Device = CPU,
) -> Task:
    """Return what a network learns, with every entry of its samples, which ``rng`` draws when their step comes."""
    sizes, finite = sizes_of(problem, dim), problem.data.finite(dim)
    inputs = Inputs.of(finite, sizes.unit, device)
    if rows is None:
        targets = [device.put(each) for each in draw_targets(generator(0, _TARGET), finite, problem)]
    else:
        assert isinstance(rng, np.random.Generator)
        targets = join_targets([rows.weights], problem)

    def stream(each: DataSet) -> Stream:
        if rows is None:
            return _stream(each, sizes, inputs, rng)
        return row_stream(each, inputs, rng, rows)  # type: ignore[arg-type]  # one network

    return Task(problem, inputs, targets, data_sets(problem, sizes.unit), stream)


def train_revealed(asked: Simulation, seeds: Sequence[int], advance: Callable[[int], None] | None = None) -> Run:
    """Train several networks together, whose Gaussian matrices are drawn only where they are looked at.

    In distribution, these are the networks of ``train_explicit``. The target lies along chosen directions here.

    Parameters
    ----------
    asked, seeds, advance
        As for ``train``.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=1, width=1.0, centered=True), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), steps=3
    ... )
    >>> asked = Simulation.read(problem, 10**9, method="reduced")
    >>> print(train_revealed(asked, [0, 1]).test_loss.round(3))
    [[1.    0.65  0.441]
     [1.    0.65  0.441]]
    """
    counts, device, reduced = asked.counts, asked.device, asked.method == REDUCED
    problem, sizes, curvature = counts.problem, counts.sizes, counts.curvature
    count, probes = len(counts.averages), counts.probes
    draws = _draws(asked, seeds, _REVEALED)
    space, inputs, targets = draw_inputs(problem, sizes, counts.finite, draws, device, count, probes, reduced=reduced)
    network = draw_network(problem, sizes, space, draws, count, probes, reduced=reduced)

    def stream(each: DataSet) -> Stream:
        return draw_stream(each, sizes.outputs, inputs, space, draws, reduced=reduced)

    log = Log(problem.steps, sizes, counts.kept(asked.method), network.weights[-1], _wanted(counts))
    task = Task(problem, inputs, targets, data_sets(problem, sizes.unit, probes), stream)
    singular: SingularValues | None = None
    if curvature is not None and curvature.singular_values:
        singular = OfRevealed(network, curvature.singular_values, _draws(asked, seeds, _UNSEEN))
    return Training(task, network, log, counts.averages, None, curvature, singular).run(advance)


def _wanted(counts: Counts, errors: bool = False) -> Wanted:
    """What is kept beside the losses: of targets, the losses where there is more than one phase."""
    tasks = len(counts.problem.stages) if len(counts.problem.stages) > 1 else 0
    return Wanted(counts.record == "all", errors, len(counts.averages), tasks, counts.curvature)


def _stream(data: DataSet, sizes: Sizes, inputs: Inputs, rng: np.random.Generator | Generators) -> Stream:
    """Draw explicit samples."""
    if not data.drawn:
        return population_stream(inputs, data.noises)
    if data.fresh:
        return fresh_stream(inputs, Batches(rng, sizes.dim, sizes.outputs), data.noises, data.samples)
    count = int(data.samples[0])
    standard, labels = (rng.standard_normal((count, columns)) for columns in (sizes.dim, sizes.outputs))
    return fixed_stream(inputs, standard, labels, data.noises, data.keeps, rng)


def _generators(
    seed: int | Sequence[int], purpose: int, device: Device, workers: int
) -> np.random.Generator | Generators:
    """Generator of one network, or of several."""
    if isinstance(seed, int):
        return generator(seed, purpose)
    return Generators([generator(each, purpose) for each in seed], device, workers)


def _draws(asked: Simulation, seeds: Sequence[int], purpose: int) -> Draws:
    """Random numbers of networks whose matrices are revealed."""
    return Draws([generator(seed, purpose) for seed in seeds], asked.device, asked.drawers, asked.mirrored)


def generator(seed: int, purpose: int) -> np.random.Generator:
    """Return the generator of one source of randomness of a network."""
    return np.random.default_rng(np.random.SeedSequence([seed, purpose]))
