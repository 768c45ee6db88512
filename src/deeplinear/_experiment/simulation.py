"""A simulation that is asked for: its arguments, checked once, and what it needs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from numpy.typing import ArrayLike

from deeplinear._core import checks, memory
from deeplinear._core.device import CPU, Device, find_device
from deeplinear._core.threads import count_cores
from deeplinear._experiment.arguments import check_curvature, read_data, read_method, read_seeds
from deeplinear._experiment.curvature import Curvature
from deeplinear._experiment.methods import EXPLICIT, REDUCED, Counts, Need
from deeplinear._experiment.record import RECORDS
from deeplinear._problem.from_data import Fit
from deeplinear._problem.problem import Problem, check_problem
from deeplinear._rules.averages import Average, read_averages


@dataclass(frozen=True)
class Simulation:
    """Networks to train, and how.

    Attributes
    ----------
    counts
        What is trained, and what is kept of one network.
    method
        How its matrices are kept.
    seeds
        Seed of each network.
    workers
        Number of networks trained at the same time; on a device, of threads that draw random numbers.
    device
        Where to train.
    rows
        Samples in place of Gaussian ones, where matrices are explicit.
    mirrored
        Whether to take the mirror images of all random numbers, where matrices are not explicit.
    """

    counts: Counts
    method: str
    seeds: Sequence[int]
    workers: int
    device: Device = CPU
    rows: Fit | None = None
    mirrored: bool = False

    @classmethod
    def read(
        cls,
        problem: Problem,
        dim: int | None = None,
        seeds: int | Iterable[int] = 16,
        workers: int | None = None,
        record: str = "all",
        method: str = "auto",
        averages: Sequence[Average] = (),
        curvature: Curvature | None = None,
        data: tuple[ArrayLike, ArrayLike] | None = None,
        device: str = "cpu",
    ) -> "Simulation":
        """Check the arguments of ``simulate``, and decide what they leave open."""
        check_problem(problem)
        counts = Counts.of(problem, dim)
        seed_list = read_seeds(seeds)
        worker_count = count_cores() if workers is None else checks.whole("workers", workers)
        checks.word("record", record, RECORDS)
        place = find_device(device)
        check_curvature(problem, curvature)
        counts = replace(counts, record=record, averages=read_averages(averages), curvature=curvature)
        rows = None if data is None else read_data(problem, data, method, place)
        kept = read_method(method if rows is None else EXPLICIT, counts, place)
        return cls(counts, kept, seed_list, min(worker_count, len(seed_list)), place, rows)

    @property
    def drawers(self) -> int:
        """Threads that draw random numbers of networks trained together."""
        return 1 if self.device == CPU else self.workers

    @property
    def memory(self) -> int:
        """Bytes taken on the processor at the peak, as far as there is room for them.

        Counted are weights or what is known of them, optimizer state, data and histories of the networks trained at the
        same time, and the results of all seeds.

        Examples
        --------
        >>> import deeplinear as dl
        >>> network, optimizer = dl.MLP(depth=3, width=1.0), dl.GradientDescent(0.1)
        >>> problem = dl.Problem(network, dl.Isotropic(), dl.Population(), optimizer, steps=1000)
        >>> all_of_it, losses = (Simulation.read(problem, 500, 16, 2, record).memory for record in ("all", "losses"))
        >>> print(f"{all_of_it / 1e9:.1f} GB, {losses / 1e9:.2f} GB")
        1.4 GB, 0.01 GB
        """
        need = self.counts.need(self.method)
        return self._bytes(need, self._together(need))

    def parts(self) -> tuple[Sequence[int | slice], int]:
        """Return which seeds are trained together, and how many of these parts at once; MemoryError if none fits."""
        need, instead, count = self.counts.need(self.method), self._less_memory(), len(self.seeds)
        if self.device == CPU:
            together = self._together(need)
            while together > 1 and self._bytes(need, together) > self.device.available():
                together //= 2
            needed = self._bytes(need, together)
            memory.require(needed, "the simulation", f"lower dim, seeds, steps or workers{instead}")
            return (range(count) if self.method == EXPLICIT else _slices(count, together)), self.workers
        memory.require(count * need.result, "keeping the results", f"lower seeds or steps{instead}")
        memory.require(need.in_flight, "one network", f"lower dim or steps{instead}", self.device)
        return _slices(count, self.device.available() // need.in_flight), 1

    def _together(self, need: Need) -> int:
        """Number of networks that are best trained as one batch on the processor."""
        return 1 if self.method == EXPLICIT else need.together(len(self.seeds), self.workers)

    def _bytes(self, need: Need, together: int) -> int:
        """Bytes on the processor, where each worker trains so many networks as one batch."""
        return self.workers * together * need.in_flight + len(self.seeds) * need.result

    def _less_memory(self) -> str:
        """Say which other arguments take less memory, as the end of a sentence; empty if none does."""
        counts, method = self.counts, self.method
        needs = counts.need(method).in_flight
        options = []
        can_reduce = method == EXPLICIT and REDUCED in counts.methods and counts.resolves(REDUCED) and self.rows is None
        if can_reduce and counts.need(REDUCED).in_flight < needs:
            options.append("method='reduced'")
        if counts.record == "all" and replace(counts, record="losses").need(method).in_flight < 0.5 * needs:
            options.append("record='losses'")
        return f", or use {' or '.join(options)}" if options else ""


def _slices(count: int, together: int) -> list[slice]:
    return [slice(first, first + together) for first in range(0, count, together)]
