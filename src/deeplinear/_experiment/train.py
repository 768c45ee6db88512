"""Training of a finite network, or of several together, with a record of losses and correlations."""

from collections.abc import Callable, Sequence

import numpy as np

from deeplinear._core.arrays import Array, computing
from deeplinear._core.device import CPU, Device
from deeplinear._experiment.descent import Descent
from deeplinear._experiment.draws import Draws
from deeplinear._experiment.generators import Generators
from deeplinear._experiment.network import FiniteNetwork
from deeplinear._experiment.record import Log, Run
from deeplinear._experiment.revealed_network import coordinates, draw_inputs, draw_network, draw_stream
from deeplinear._experiment.rows import row_stream
from deeplinear._experiment.sizes import Sizes, sizes_of
from deeplinear._experiment.streams import (
    Batches,
    FixedStream,
    FreshStream,
    Inputs,
    PopulationStream,
    Stream,
    draw_targets,
)
from deeplinear._problem.from_data import Fit
from deeplinear._problem.problem import Problem

# Second words of the seeds: which of a network's sources of randomness a generator feeds.
_INIT, _DATA, _TARGET, _REVEALED = 1, 2, 3, 4


def train(
    problem: Problem,
    dim: int | None,
    init_seed: int | Sequence[int],
    data_seed: int | Sequence[int],
    record: str = "all",
    *,
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
    sizes, finite = sizes_of(problem, dim), problem.data.finite(dim)
    beta = problem.network.branch_factor if problem.network.skip else None
    init, data = (_generators(*each, device, workers) for each in ((init_seed, _INIT), (data_seed, _DATA)))
    network = FiniteNetwork.draw(init, sizes, problem.network.gamma0, beta)
    inputs = Inputs.of(finite, sizes.unit, device)
    if rows is None:
        stream = _stream(problem, sizes, inputs, data)
        target = device.put(draw_targets(_generator(0, _TARGET), finite))
    else:
        assert isinstance(data, np.random.Generator)
        stream, target = row_stream(problem, sizes, inputs, data, rows), rows.weights
    log = Log(problem.steps, sizes, sizes, network.weights[-1], correlations=record == "all", errors=errors)
    return _descend(problem, network, stream, inputs, target, log, advance)


def train_revealed(
    problem: Problem,
    dim: int | None,
    seeds: Sequence[int],
    record: str = "all",
    *,
    reduced: bool,
    mirrored: bool = False,
    device: Device = CPU,
    workers: int = 1,
    advance: Callable[[int], None] | None = None,
) -> Run:
    """Train several networks together, whose Gaussian matrices are drawn only where they are looked at.

    In distribution, these are the networks that ``train`` trains. The target lies along chosen directions here.

    Parameters
    ----------
    problem, dim, record, device, workers, advance
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
    draws = Draws([_generator(seed, _REVEALED) for seed in seeds], device, workers, mirrored)
    space, inputs, target = draw_inputs(problem, sizes, finite, draws, device, reduced=reduced)
    network = draw_network(problem, sizes, space, draws, reduced=reduced)
    stream = draw_stream(problem, sizes, inputs, space, draws, reduced=reduced)
    kept = coordinates(problem, sizes, finite, reduced=reduced)
    log = Log(problem.steps, sizes, kept, network.weights[-1], correlations=record == "all", errors=False)
    return _descend(problem, network, stream, inputs, target, log, advance)


def _descend(
    problem: Problem,
    network: FiniteNetwork,
    stream: Stream,
    inputs: Inputs,
    target: Array,
    log: Log,
    advance: Callable[[int], None] | None,
) -> Run:
    """Train, whatever the matrices are made of."""
    descent = Descent(problem.optimizer, network.parameters, problem.steps)
    readout = network.weights[-1]
    together, done = 1 if readout.ndim == 2 else len(readout), 0
    with computing(target):
        for t in range(problem.steps):
            g = network.backward()
            function = network.predictor(g[0])
            if t == 0:
                subtracted = function if problem.network.centered else 0.0
            error = target - (function - subtracted)
            signal = stream.step(error)
            log.losses(t, inputs.loss(error, problem.data.noise), signal.train_loss)
            if log.is_over(t):
                break
            h = network.forward(signal.h_0)
            log.fields(t, error, inputs.felt(error), signal.residual, h, g)
            if t + 1 < problem.steps:
                descent.step(t, network.gradients(h, g))
            done = t + 1
            if advance:
                advance(together)
        run = log.finish(stream)
    if advance and done < problem.steps:
        advance(together * (problem.steps - done))
    return run


def _stream(problem: Problem, sizes: Sizes, inputs: Inputs, rng: np.random.Generator | Generators) -> Stream:
    sampling, noise = problem.sampling, problem.data.noise
    if not sampling.drawn:
        return PopulationStream(inputs, noise)
    if sampling.fresh:
        return FreshStream(inputs, sizes.samples, Batches(rng, sizes.samples, sizes.dim, sizes.outputs, noise))
    standard = rng.standard_normal((sizes.samples, sizes.dim))
    labels = noise * rng.standard_normal((sizes.samples, sizes.outputs))
    return FixedStream(inputs, standard, labels, sampling.keep, rng)


def _generators(
    seed: int | Sequence[int], purpose: int, device: Device, workers: int
) -> np.random.Generator | Generators:
    """Generator of one network, or of several."""
    if isinstance(seed, int):
        return _generator(seed, purpose)
    return Generators([_generator(each, purpose) for each in seed], device, workers)


def _generator(seed: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence([seed, purpose]))
