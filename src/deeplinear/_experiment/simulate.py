"""Train many finite networks: seeds, workers, memory and progress. One network is ``train``'s job."""

import time
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deeplinear._core.arrays import usual_arithmetic
from deeplinear._core.dataset import CORRELATIONS, LOSSES
from deeplinear._core.progress import Counter, Progress, read_progress
from deeplinear._core.threads import one_blas_thread
from deeplinear._experiment.arguments import seeds_from
from deeplinear._experiment.curvature import Curvature
from deeplinear._experiment.ensemble import LINES, MORE_LOSSES, SINGULAR, SPECTRA, Ensemble
from deeplinear._experiment.simulation import Simulation
from deeplinear._experiment.train import train
from deeplinear._problem.problem import Problem
from deeplinear._rules.averages import Average

_REPORT = 0.01
"""Part of all training steps between two reports of progress."""


@usual_arithmetic
def simulate(
    problem: Problem,
    dim: int | None = None,
    seeds: int | Iterable[int] = 16,
    *,
    seed: int | None = None,
    workers: int | None = None,
    record: str = "all",
    method: str = "auto",
    averages: Sequence[Average] = (),
    curvature: Curvature | None = None,
    data: tuple[ArrayLike, ArrayLike] | None = None,
    device: str = "cpu",
    progress: Progress | bool | None = None,
) -> Ensemble:
    """Train real networks of finite size on ``problem``, one per seed.

    Each seed draws its own initial weights, data and batches; the target is the same for all. The result of a seed does
    not depend on the other seeds or on the number of workers; on a device it is the same up to rounding.

    Parameters
    ----------
    problem
        What to train. Its ratios become counts at input dimension ``dim``: widths
        N_l = round(width_l * dim), samples P and batch B likewise, each at least 1. Where the data are
        dimension-free its sizes are counts already and are only rounded.
    dim
        Input dimension D, at least 1 and at least the number of outputs. A dimension-free ``Spectrum`` has a fixed
        number of directions, so ``dim`` can be left out; an infinite power law is cut off after its first ``dim``.
    seeds
        A number of seeds, for 0 .. seeds - 1, or the seeds themselves: distinct whole numbers, zero or above.
    seed
        The first seed, for seed .. seed + seeds - 1: other networks than those of seed 0. Only with a number of seeds.
    workers
        Number of networks trained at the same time; all cores by default. On a device, the number of threads that
        draw random numbers.
    record
        ``"all"``, or ``"losses"`` to leave out the correlations, which need memory of the order
        of seeds * depth * (steps * outputs)^2.
    method
        How matrices are kept, which does not change the distribution of the networks. ``"explicit"``: every entry.
        ``"lazy"``: a Gaussian matrix is drawn only along the vectors that training applies it to, so that a network
        takes time and memory proportional to its width rather than to the square of it. ``"reduced"``: in
        addition, among neurons, samples and inputs of equal variance, only the directions that training has looked at
        are kept. Time and memory then do not depend on ``dim`` at all, and grow as depth * steps^3 (depth^2 with skip
        connections). All samples are kept in multi-pass SGD, which chooses among them, and all inputs of variances that
        few others have. ``"auto"``: explicit where that takes less than half a second for each network, else the
        quickest; the result says which. Orthogonal steps (``Muon``) need explicit matrices. With explicit matrices a
        seed gives a different network than in the other two ways.
    averages
        Averages of the weights, such as ``EMA(0.99)`` or ``TailMean(0.5)``, whose test losses are wanted beside those
        of the weights.
    curvature
        ``Curvature(at=steps, vectors=16)`` to measure the Hessian of the training loss at some steps, as ``sharpness``
        predicts it: exact products with it, in Lanczos's iteration from the gradient. With ``singular_values`` also
        those of the weights, as ``weight_spectra`` predicts them, and with ``line`` the losses between two steps, as
        ``landscape`` predicts them.
    data
        A data set (x, y) to train on, of shapes (rows, features) and (rows,) or (rows, outputs), with
        ``Spectrum.from_data(x, y)`` as the data of the problem. Samples and batches are then rows drawn with
        replacement, and the test loss is the mean over all rows; means are subtracted. Without it, networks are
        trained on Gaussian samples with the spectrum of the problem. Rows need explicit matrices, on the processor.
    device
        ``"cpu"``, or a PyTorch device such as ``"cuda"``, where as many networks are trained together as its
        memory holds. See ``solve``.
    progress
        True for a line on stderr; or called now and then as ``progress(done, total)``, counted in training steps of
        one network, possibly from another thread but never twice at once.

    Raises
    ------
    ImportError
        If a device is asked for and PyTorch is missing.
    ValueError
        If an argument is not allowed, the problem has infinite width, or a centered network is so lazy that what it
        learns would be lost in rounding (richness below 1e-10 with explicit matrices, 1e-4 with the others, if all
        widths are 1).
    MemoryError
        Before anything is trained, if the memory available is not enough.

    Warns
    -----
    UserWarning
        If a ratio looks like a count, such as a width of 512 with isotropic data.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     network=dl.MLP(depth=2, width=1.0, centered=True),
    ...     data=dl.Isotropic(noise=0.1),
    ...     sampling=dl.FullBatch(samples=2.0),
    ...     optimizer=dl.GradientDescent(lr=0.05),
    ...     steps=10,
    ... )
    >>> experiment = dl.simulate(problem, dim=30, seeds=4)
    >>> experiment.test_loss.shape, experiment.feature_correlation.shape
    ((4, 10), (4, 3, 10, 10))
    >>> print(experiment.test_loss[:, 0])  # 1 + noise^2 where the initial function is subtracted
    [1.01 1.01 1.01 1.01]
    >>> dl.simulate(problem, dim=10**6, seeds=2).method  # matrices of 10^12 entries, of which few are looked at
    'reduced'
    """
    asked = Simulation.read(
        problem,
        dim,
        seeds if seed is None else seeds_from(seed, seeds),
        workers,
        record,
        method,
        averages,
        curvature,
        data=data,
        device=device,
    )
    if problem.hint:
        warnings.warn(problem.hint, stacklevel=2)
    start = time.perf_counter()
    results, diverged_at = train_all(asked, read_progress(progress))
    return Ensemble(
        problem=problem,
        dim=asked.counts.sizes.dim,
        seeds=tuple(asked.seeds),
        times=np.arange(problem.steps),
        test_loss=results["test_loss"],
        train_loss=results["train_loss"],
        **{name: results.get(name) for name in CORRELATIONS},
        diverged_at=diverged_at,
        method=asked.method,
        inputs="gaussian" if asked.rows is None else "rows",
        averages=asked.counts.averages,
        averaged_test_loss=results["averaged_test_loss"],
        task_loss=results["task_loss"],
        curvature=curvature,
        **{name: results.get(name) for name in (*SPECTRA, SINGULAR, *LINES)},
        stats={"seconds": time.perf_counter() - start, "seeds": len(asked.seeds), "workers": asked.workers},
    )


def train_all(
    asked: Simulation, progress: Progress | None = None
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.int64]]:
    """Train one network per seed; return what was recorded, by name, and the steps of divergence.

    Every array has a leading axis of seeds.
    """
    counts, seeds = asked.counts, asked.seeds
    parts, trainers = asked.parts()
    results = {name: np.empty((len(seeds), *shape)) for name, shape in counts.result_shapes.items()}
    diverged_at = np.full(len(seeds), -1)
    counter = Counter(progress, len(seeds) * counts.problem.steps, every=_REPORT)

    def train_part(part: int | slice) -> None:
        run = train(asked, seeds[part], counter.advance)
        losses = {name: getattr(run, name) for name in (*LOSSES, *MORE_LOSSES)}
        for name, value in (losses | run.correlations | run.spectra).items():
            results[name][part] = value
        diverged_at[part] = run.diverged_at

    with one_blas_thread(), ThreadPoolExecutor(trainers) as pool:
        futures = [pool.submit(train_part, part) for part in parts]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:  # an error in one network, or the user's interrupt, ends all of them
            counter.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results, diverged_at
