"""Random numbers of several networks at once, each network with a generator of its own.

NumPy draws them, for a device as well, so that a seed means the same numbers everywhere.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array, computing, namespace
from deeplinear._core.device import Device


class Generators:
    """Stands in for a generator of NumPy: what it draws has a leading axis of networks, and lives on a device.

    Parameters
    ----------
    each
        The generator of each network.
    device
        Where the numbers go.
    workers
        Number of networks whose numbers are drawn at the same time.
    """

    def __init__(self, each: Sequence[np.random.Generator], device: Device, workers: int) -> None:
        self._each, self._device = each, device
        self._threads = ThreadPoolExecutor(workers)

    def standard_normal(self, size: tuple[int, ...] | None = None, *, out: Array | None = None) -> Array:
        """Draw Gaussian numbers of shape (networks, *size), or as many as ``out`` has and write them there."""
        shape = size if out is None else out.shape[1:]
        return self._fill(out, shape, lambda rng: rng.standard_normal(shape))

    def random(self, size: tuple[int, ...]) -> Array:
        """Draw numbers between 0 and 1, shape (networks, *size)."""
        return self._fill(None, size, lambda rng: rng.random(size))

    def _fill(
        self, out: Array | None, size: tuple[int, ...] | None, draw: Callable[[np.random.Generator], NDArray[Any]]
    ) -> Array:
        numbers = self._device.empty((len(self._each), *(size or ()))) if out is None else out

        def fill(index: int) -> None:
            drawn = draw(self._each[index])
            with computing(numbers):
                numbers[index] = namespace(numbers).asarray(drawn)  # straight to its place on the device

        list(self._threads.map(fill, range(len(self._each))))  # a list, so that errors come to light
        return numbers
