"""Spaces of vectors, with as many coordinates as can be told apart.

Training applies Gaussian matrices to vectors and adds the results up. Whatever happens is the same after a rotation of
neurons, of samples, or of inputs of equal variance. So a vector needs no more coordinates than directions that have
been looked at: along these a fresh Gaussian vector has coordinates from N(0, 1), and the rest of it, in the n - k
dimensions that are left after k directions, is one new direction with the length of a Gaussian vector there, a chi
variable of n - k degrees of freedom. The cost does not depend on n then. Where n is not larger than the number of
directions that will be looked at, or where coordinates must be told apart (a batch chooses samples), all n are kept.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array
from deeplinear._experiment.draws import Draws


class Space:
    """Vectors over some directions, in blocks within which directions are alike.

    Parameters
    ----------
    draws
        Where random numbers come from.
    blocks
        Number of dimensions of each block.
    most
        How many vectors there will be in each block at most that are not sums of others; None to keep
        every coordinate.

    Attributes
    ----------
    size
        Number of dimensions.
    coordinates
        Number of coordinates that are kept.
    starts
        First coordinate of each block, shape (blocks,).

    Examples
    --------
    >>> from deeplinear._core.device import CPU
    >>> space = Space(Draws([np.random.default_rng(0)], CPU), [10**9], most=3)
    >>> space.size, space.coordinates
    (1000000000, 3)
    >>> first, second = space.gaussian(1)[0, :, 0], space.gaussian(1)[0, :, 0]
    >>> print((first / 1e9**0.5).round(3), (second[1] / 1e9**0.5).round(3))
    [1. 0. 0.] 1.0
    """

    def __init__(self, draws: Draws, blocks: Sequence[int], most: int | None = None) -> None:
        sizes, kept = np.array(blocks), kept_coordinates(blocks, most)
        ends = np.cumsum(kept)
        self.draws, self.size, self.coordinates = draws, int(sizes.sum()), int(kept.sum())
        self.starts = ends - kept
        self._known = 0
        cut = np.flatnonzero(kept < sizes)
        self._cut = list(zip(self.starts[cut].tolist(), ends[cut].tolist(), strict=True))
        self._lengths = [draws.chi(sizes[index] - np.arange(float(kept[index]))) for index in cut]

    def reserve(self, count: int) -> None:
        """Take the first ``count`` coordinates of each block as directions that are known from the start."""
        self._known += count

    def gaussian(self, columns: int) -> Array:
        """Draw vectors with independent coordinates from N(0, 1), shape (networks, coordinates, columns)."""
        vectors = self.draws.normal(self.coordinates, columns)
        if not self._cut:
            return vectors
        for column in range(columns):
            for (start, end), lengths in zip(self._cut, self._lengths, strict=True):
                new = start + self._known
                if new >= end:
                    raise RuntimeError(f"more than {end - start} directions were looked at in a space made for these")
                vectors[:, new, column] = lengths[:, self._known]
                vectors[:, new + 1 : end, column] = 0.0
            self._known += 1
        return vectors


def kept_coordinates(blocks: Sequence[int], most: int | None) -> NDArray[np.int64]:
    """Number of coordinates that a space keeps of each block."""
    counts = np.array(blocks, dtype=np.int64)
    return counts if most is None else np.minimum(counts, most)
