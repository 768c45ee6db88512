"""Random numbers of networks that are trained together, in an order that does not depend on who is together.

Every network has a generator of its own, and all of them are asked for the same amounts in the same order. Small
amounts come out of a supply that each generator fills at once, since a call takes longer than a hundred numbers.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array
from deeplinear._core.device import Device

_SUPPLY = 16_384
"""Most numbers that a generator makes at once; the first supply is smaller, and each is twice the last."""

_SMALL = 4096
"""Amounts up to this come out of a supply."""


class Draws:
    """Gaussian, uniform and chi variables of several networks, with a leading axis of networks.

    Parameters
    ----------
    each
        The generator of each network.
    device
        Where the numbers go.
    workers
        Number of networks whose numbers are drawn at the same time, if they are many.
    mirrored
        Whether to give the mirror image of every number: of a Gaussian one its negative, of a uniform one u
        1 - u, and of a chi variable the one that is as far on the other side of the median in probability. These
        have the same distribution, and what is linear in them averages out over a network and its mirror image.

    Examples
    --------
    >>> from deeplinear._core.device import CPU
    >>> generators = [np.random.default_rng(seed) for seed in (0, 1)]
    >>> Draws(generators, CPU).normal(3, 1).shape
    (2, 3, 1)
    """

    def __init__(
        self, each: Sequence[np.random.Generator], device: Device, workers: int = 1, mirrored: bool = False
    ) -> None:
        self._each, self._device, self._mirrored = each, device, mirrored
        self._threads = ThreadPoolExecutor(workers) if workers > 1 else None
        self._normals, self._uniforms = _Supply(self._normal_numbers), _Supply(self._uniform_numbers)

    @property
    def networks(self) -> int:
        """How many networks there are."""
        return len(self._each)

    def zeros(self, *shape: int) -> Array:
        """Return zeros of shape (networks, *shape) where the numbers go."""
        return self._device.put(np.zeros((self.networks, *shape)))

    def normal(self, rows: int, columns: int) -> Array:
        """Draw Gaussian numbers, shape (networks, rows, columns)."""
        drawn = self._normals.take(rows * columns)
        return self._device.put((-drawn if self._mirrored else drawn).reshape(-1, rows, columns))

    def random(self, shape: tuple[int, int]) -> Array:
        """Draw numbers between 0 and 1, shape (networks, *shape)."""
        return self._device.put(self._uniform(shape[0] * shape[1]).reshape(-1, *shape))

    def chi(self, freedom: NDArray[np.float64]) -> Array:
        """Draw the norm of a Gaussian vector for each number of dimensions, shape (networks, len(freedom))."""
        from scipy.special import gammaincinv  # slow to import

        return self._device.put(np.sqrt(2.0 * gammaincinv(freedom / 2.0, self._uniform(len(freedom)))))

    def _uniform(self, count: int) -> NDArray[np.float64]:
        drawn = self._uniforms.take(count)
        return 1.0 - drawn if self._mirrored else drawn

    def _normal_numbers(self, count: int) -> NDArray[np.float64]:
        return self._fill(count, lambda rng, out: rng.standard_normal(out=out))

    def _uniform_numbers(self, count: int) -> NDArray[np.float64]:
        return self._fill(count, lambda rng, out: rng.random(out=out))

    def _fill(
        self, count: int, draw: Callable[[np.random.Generator, NDArray[np.float64]], object]
    ) -> NDArray[np.float64]:
        numbers = np.empty((self.networks, count))
        list((self._threads.map if self._threads else map)(draw, self._each, numbers))  # a list, so that it is done
        return numbers


class _Supply:
    """Numbers that were drawn ahead, of each network, and are handed out in order."""

    def __init__(self, draw: Callable[[int], NDArray[np.float64]]) -> None:
        self._draw, self._left, self._next = draw, draw(0), _SUPPLY // 16

    def take(self, count: int) -> NDArray[np.float64]:
        """Return the next numbers, shape (networks, count), which are the caller's."""
        if count > _SMALL:
            return self._draw(count)
        if count > self._left.shape[1]:
            self._left = self._draw(max(count, self._next))
            self._next = min(2 * self._next, _SUPPLY)
        taken, self._left = self._left[:, :count].copy(), self._left[:, count:]
        return taken
