"""A finite network, or several together, from its seeds to the record of its training."""

from collections.abc import Callable, Sequence

import numpy as np

from deeplinear._core.device import CPU, Device
from deeplinear._experiment.curvature import Curvature
from deeplinear._experiment.data_sets import DataSet, data_sets
from deeplinear._experiment.draws import Draws
from deeplinear._experiment.generators import Generators
from deeplinear._experiment.network import FiniteNetwork
from deeplinear._experiment.record import Log, Run, Wanted
from deeplinear._experiment.revealed_network import coordinates, draw_inputs, draw_network, draw_stream
from deeplinear._experiment.rows import label_gram, row_stream
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
from deeplinear._problem.averages import Average
from deeplinear._problem.from_data import Fit
from deeplinear._problem.layers import spread
from deeplinear._problem.problem import Problem

# Second words of the seeds: which of a network's sources of randomness a generator feeds.
INIT, DATA, _TARGET, _REVEALED, TEST, _UNSEEN = 1, 2, 3, 4, 5, 6


def train(
    problem: Problem,
    dim: int | None,
    init_seed: int | Sequence[int],
    data_seed: int | Sequence[int],
    record: str = "all",
    *,
    averages: Sequence[Average] = (),
    curvature: Curvature | None = None,
    errors: bool = False,
    rows: Fit | None = None,
    device: Device = CPU,
    workers: int = 1,
    advance: Callable[[int], None] | None = None,
) -> Run:
    """Train one network with NumPy, or several together on a device of PyTorch.

    Parameters
    ----------
    problem
        What to train; its sizes are rounded to counts.
    dim
        Input dimension D; None where the data tell.
    init_seed, data_seed
        Seeds of the initial weights, and of inputs, label noise and batches. The target depends
        on neither, so runs that share one seed differ in the other source of randomness only. On a device
        sequences, with a seed for each network.
    record
        ``"all"``, or ``"losses"`` for the losses alone.
    averages
        Averages of the weights whose test losses are wanted.
    curvature
        Curvature to be measured on the way.
    errors
        Whether to keep the errors v(t) as well.
    rows
        A data set whose rows are drawn, with replacement, in place of Gaussian samples; one network in NumPy only.
    device
        Where to train.
    workers
        On a device, number of networks whose random numbers are drawn at the same time.
    advance
        Called with the number of steps taken since the last call, summed over networks.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=1, width=1.0, centered=True), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), steps=3
    ... )
    >>> one, other = train(problem, 20, 0, 0, errors=True), train(problem, 20, 1, 0, errors=True)
    >>> one.errors.shape, np.array_equal(one.errors[0], other.errors[0])
    ((3, 20, 1), True)
    """
    sizes = sizes_of(problem, dim)
    init, data = (_generators(*each, device, workers) for each in ((init_seed, INIT), (data_seed, DATA)))
    network = explicit_network(problem, sizes, init)
    task = explicit_task(problem, dim, data, rows, device)
    wanted = Wanted(record == "all", errors, len(averages), _tasks(problem), curvature)
    log = Log(problem.steps, sizes, sizes, network.weights[-1], wanted)
    gram = None if rows is None else label_gram(rows)
    count = 0 if curvature is None else curvature.singular_values
    singular = OfExplicit(network, count) if count else None
    return Training(task, network, log, averages, gram, curvature, singular).run(advance)


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


def train_revealed(
    problem: Problem,
    dim: int | None,
    seeds: Sequence[int],
    record: str = "all",
    *,
    reduced: bool,
    averages: Sequence[Average] = (),
    curvature: Curvature | None = None,
    mirrored: bool = False,
    device: Device = CPU,
    workers: int = 1,
    advance: Callable[[int], None] | None = None,
) -> Run:
    """Train several networks together, whose Gaussian matrices are drawn only where they are looked at.

    In distribution, these are the networks that ``train`` trains. The target lies along chosen directions here.

    Parameters
    ----------
    problem, dim, record, averages, curvature, device, workers, advance
        As for ``train``.
    seeds
        Seed of each network.
    reduced
        Whether fields have as many coordinates as directions can be told apart, or all of them.
    mirrored
        Whether to take the mirror images of all random numbers.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=1, width=1.0, centered=True), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), steps=3
    ... )
    >>> print(train_revealed(problem, 10**9, [0, 1], reduced=True).test_loss.round(3))
    [[1.    0.65  0.441]
     [1.    0.65  0.441]]
    """
    sizes, finite = sizes_of(problem, dim), problem.data.finite(dim)
    draws = Draws([generator(seed, _REVEALED) for seed in seeds], device, workers, mirrored)
    count, probes = len(averages), 0 if curvature is None else curvature.passes
    space, inputs, targets = draw_inputs(problem, sizes, finite, draws, device, count, probes, reduced=reduced)
    network = draw_network(problem, sizes, space, draws, count, probes, reduced=reduced)
    kept = coordinates(problem, sizes, finite, count, probes, reduced=reduced)

    def stream(each: DataSet) -> Stream:
        return draw_stream(each, sizes.outputs, inputs, space, draws, reduced=reduced)

    wanted = Wanted(record == "all", False, count, _tasks(problem), curvature)
    log = Log(problem.steps, sizes, kept, network.weights[-1], wanted)
    task = Task(problem, inputs, targets, data_sets(problem, sizes.unit, probes), stream)
    singular: SingularValues | None = None
    if curvature is not None and curvature.singular_values:
        more = Draws([generator(seed, _UNSEEN) for seed in seeds], device, workers, mirrored)
        singular = OfRevealed(network, curvature.singular_values, more)
    return Training(task, network, log, averages, None, curvature, singular).run(advance)


def _tasks(problem: Problem) -> int:
    """Number of targets whose losses are kept: none where there is one phase."""
    return len(problem.stages) if len(problem.stages) > 1 else 0


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


def generator(seed: int, purpose: int) -> np.random.Generator:
    """Return the generator of one source of randomness of a network."""
    return np.random.default_rng(np.random.SeedSequence([seed, purpose]))
