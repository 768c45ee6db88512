"""Training of one finite network, with a record of its losses and correlations."""

from collections.abc import Callable

import numpy as np

from deeplinear._network import ResNet
from deeplinear._problem import Problem
from deeplinear._sampling import FullBatch, MultiPassSGD, OnlineSGD
from deeplinear._simulator.data import (
    FixedStream,
    FreshStream,
    Inputs,
    PopulationStream,
    Stream,
    draw_targets,
)
from deeplinear._simulator.descent import Descent
from deeplinear._simulator.log import Log, Run
from deeplinear._simulator.network import FiniteNetwork
from deeplinear._simulator.sizes import Sizes, sizes_of

# Second words of the seeds: which of a network's sources of randomness a generator feeds.
_INIT, _DATA, _TARGET = 1, 2, 3


def train(
    problem: Problem,
    dim: int | None,
    init_seed: int,
    data_seed: int,
    record: str = "all",
    *,
    errors: bool = False,
    advance: Callable[[int], None] | None = None,
) -> Run:
    """Train one network.

    Parameters
    ----------
    problem
        What to train; its sizes are rounded to counts.
    dim
        Input dimension D; None where the data tell.
    init_seed, data_seed
        Seeds of the initial weights, and of inputs, label noise and batches. The target depends
        on neither, so runs that share one seed differ in the other source of randomness only.
    record
        ``"all"``, or ``"losses"`` for the losses alone.
    errors
        Whether to keep the errors v(t) as well.
    advance
        Called with the number of steps taken since the last call.

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
    beta = problem.network.beta if isinstance(problem.network, ResNet) else None
    network = FiniteNetwork.draw(_generator(init_seed, _INIT), sizes, problem.network.gamma0, beta)
    finite = problem.data.finite(dim)
    inputs = Inputs.of(finite, sizes.unit)
    stream = _stream(problem, sizes, inputs, _generator(data_seed, _DATA))
    descent = Descent(problem.optimizer, network.weights, problem.steps)
    target = draw_targets(_generator(0, _TARGET), finite)
    subtracted = network.predictor(network.backward()[0]) if problem.network.centered else 0.0

    log = Log(problem.steps, sizes, correlations=record == "all", errors=errors)
    with np.errstate(over="ignore", invalid="ignore"):  # divergence is an answer, not a warning
        for t in range(problem.steps):
            g = network.backward()
            error = target - (network.predictor(g[0]) - subtracted)
            signal = stream.step(error)
            if not log.losses(t, inputs.loss(error, problem.data.noise), signal.train_loss):
                break
            h = network.forward(signal.h_0)
            log.fields(t, error, inputs.felt(error), signal.residual, h, g)
            if t + 1 < problem.steps:
                descent.step(t, network.gradients(h, g))
            if advance:
                advance(1)
        run = log.finish(stream)
    if advance and log.reached < problem.steps:
        advance(problem.steps - log.reached)
    return run


def _stream(problem: Problem, sizes: Sizes, inputs: Inputs, rng: np.random.Generator) -> Stream:
    sampling, noise = problem.sampling, problem.data.noise
    if isinstance(sampling, OnlineSGD):
        return FreshStream(rng, sizes.samples, sizes.dim, sizes.outputs, noise, inputs)
    if isinstance(sampling, FullBatch | MultiPassSGD):
        keep = sampling.keep if isinstance(sampling, MultiPassSGD) else 1.0
        return FixedStream(rng, sizes.samples, sizes.dim, sizes.outputs, noise, keep, inputs)
    return PopulationStream(inputs, noise)


def _generator(seed: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence([seed, purpose]))
