"""Train many finite networks: seeds, workers, memory and progress. One network is ``train``'s job."""

import time
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deeplinear._core import memory
from deeplinear._core.dataset import LOSSES
from deeplinear._core.device import CPU, Device, find_device
from deeplinear._core.progress import Counter, Progress, read_progress
from deeplinear._core.threads import one_blas_thread
from deeplinear._experiment.arguments import check_curvature, read_arguments, read_data, read_method
from deeplinear._experiment.curvature import Curvature
from deeplinear._experiment.ensemble import CORRELATIONS, LINES, MORE_LOSSES, SINGULAR, SPECTRA, Ensemble
from deeplinear._experiment.methods import EXPLICIT, REDUCED, Counts, Need
from deeplinear._experiment.train import train, train_revealed
from deeplinear._problem.averages import Average, read_averages
from deeplinear._problem.from_data import Fit
from deeplinear._problem.problem import Problem

_REPORT = 0.01
"""Part of all training steps between two reports of progress."""


def simulate(
    problem: Problem,
    dim: int | None = None,
    seeds: int | Iterable[int] = 16,
    *,
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
    workers
        Number of networks trained at the same time; all cores by default. On a device, the number of threads that
        draw random numbers.
    record
        ``"all"``, or ``"losses"`` to leave out the correlations, which need memory of the order
        of seeds * depth * (steps * outputs)^2.
    method
        How matrices are kept, which does not change the distribution of the networks. ``"explicit"``: every entry.
        ``"lazy"``: a Gaussian matrix is drawn only along the vectors that training applies it to, so that a network
        takes time and memory proportional to its width and not to the square of it. ``"reduced"``: in
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
        trained on Gaussian samples with the spectrum of the problem. Explicit matrices on the processor only.
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
    seed_list, worker_count, sizes = read_arguments(problem, dim, seeds, workers, record)
    if problem.hint:
        warnings.warn(problem.hint, stacklevel=2)
    place = find_device(device)
    check_curvature(problem, curvature)
    counts = Counts(problem, sizes, problem.data.finite(dim), record, read_averages(averages), curvature)
    rows = None if data is None else read_data(problem, data, method, place)
    kept = read_method(method if rows is None else EXPLICIT, counts, place)
    start = time.perf_counter()
    results, diverged_at = train_all(counts, kept, seed_list, worker_count, place, read_progress(progress), rows=rows)
    return Ensemble(
        problem=problem,
        dim=sizes.dim,
        seeds=tuple(seed_list),
        times=np.arange(problem.steps),
        test_loss=results["test_loss"],
        train_loss=results["train_loss"],
        **{name: results.get(name) for name in CORRELATIONS},
        diverged_at=diverged_at,
        method=kept,
        inputs="gaussian" if rows is None else "rows",
        averages=counts.averages,
        averaged_test_loss=results["averaged_test_loss"],
        task_loss=results["task_loss"],
        curvature=curvature,
        **{name: results.get(name) for name in (*SPECTRA, SINGULAR, *LINES)},
        stats={"seconds": time.perf_counter() - start, "seeds": len(seed_list), "workers": worker_count},
    )


def simulation_memory(
    problem: Problem,
    dim: int | None = None,
    seeds: int | Iterable[int] = 16,
    workers: int | None = None,
    record: str = "all",
    method: str = "auto",
    averages: Sequence[Average] = (),
) -> int:
    """Estimate the memory that ``simulate`` takes at its peak, in bytes.

    Counted are weights or what is known of them, optimizer state, data and histories of the networks trained at the
    same time, and the results of all seeds.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=3, width=1.0), dl.GradientDescent(0.1)
    >>> problem = dl.Problem(network, dl.Isotropic(), dl.Population(), optimizer, steps=1000)
    >>> all_of_it, losses = (simulation_memory(problem, 500, 16, 2, record) for record in ("all", "losses"))
    >>> print(f"{all_of_it / 1e9:.1f} GB, {losses / 1e9:.2f} GB")
    1.4 GB, 0.01 GB
    """
    seed_list, worker_count, sizes = read_arguments(problem, dim, seeds, workers, record)
    counts = Counts(problem, sizes, problem.data.finite(dim), record, read_averages(averages))
    kept = read_method(method, counts, CPU)
    need = counts.need(kept)
    together = 1 if kept == EXPLICIT else need.together(len(seed_list), worker_count)
    return worker_count * together * need.in_flight + len(seed_list) * need.result


def train_all(
    counts: Counts,
    method: str,
    seeds: Sequence[int],
    workers: int,
    device: Device = CPU,
    progress: Progress | None = None,
    *,
    mirrored: bool = False,
    rows: Fit | None = None,
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.int64]]:
    """Train one network per seed; return what was recorded, by name, and the steps of divergence.

    Every array has a leading axis of seeds. ``mirrored`` takes the mirror images of all random numbers, where
    matrices are not explicit; ``rows`` are samples in place of Gaussian ones, where they are.
    """
    problem, dim, record = counts.problem, counts.sizes.dim, counts.record
    instead = _less_memory(counts, method, given_rows=rows is not None)
    parts, trainers = _parts(counts.need(method), method, len(seeds), workers, device, instead)
    results = {name: np.empty((len(seeds), *shape)) for name, shape in counts.result_shapes.items()}
    diverged_at = np.full(len(seeds), -1)
    counter = Counter(progress, len(seeds) * problem.steps, every=_REPORT)
    how: dict[str, Any] = {"device": device, "workers": workers if device != CPU else 1, "advance": counter.advance}
    how |= {"averages": counts.averages, "curvature": counts.curvature}

    def train_part(part: int | slice) -> None:
        chosen = seeds[part]
        if method == EXPLICIT:
            run = train(problem, dim, chosen, chosen, record, rows=rows, **how)
        else:
            assert not isinstance(chosen, int)
            run = train_revealed(problem, dim, chosen, record, reduced=method == REDUCED, mirrored=mirrored, **how)
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


def _less_memory(counts: Counts, method: str, given_rows: bool) -> str:
    """Say which other arguments take less memory, as the end of a sentence; empty if none does."""
    needs = counts.need(method).in_flight
    options = []
    can_reduce = method == EXPLICIT and REDUCED in counts.methods and counts.resolves(REDUCED) and not given_rows
    if can_reduce and counts.need(REDUCED).in_flight < needs:
        options.append("method='reduced'")
    if counts.record == "all" and replace(counts, record="losses").need(method).in_flight < 0.5 * needs:
        options.append("record='losses'")
    return f", or use {' or '.join(options)}" if options else ""


def _parts(
    need: Need, method: str, seeds: int, workers: int, device: Device, instead: str
) -> tuple[Sequence[int | slice], int]:
    """Return which seeds are trained together, and how many of these parts at once; MemoryError if none fits.

    ``instead`` is the end of the advice.
    """
    if device == CPU:
        together = 1 if method == EXPLICIT else need.together(seeds, workers)
        while together > 1 and workers * together * need.in_flight + seeds * need.result > device.available():
            together //= 2
        needed = workers * together * need.in_flight + seeds * need.result
        memory.require(needed, "the simulation", f"lower dim, seeds, steps or workers{instead}")
        if method == EXPLICIT:
            return range(seeds), workers
        return [slice(first, first + together) for first in range(0, seeds, together)], workers
    memory.require(seeds * need.result, "keeping the results", f"lower seeds or steps{instead}")
    memory.require(need.in_flight, "one network", f"lower dim or steps{instead}", device)
    together = device.available() // need.in_flight
    return [slice(first, first + together) for first in range(0, seeds, together)], 1
