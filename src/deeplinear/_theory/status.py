"""How training went, and what is unknown once it has diverged."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Status:
    """How training went: completed, or diverged at a step.

    Attributes
    ----------
    diverged_at
        Step at which the loss blows up, None if it does not.
    rounding_at
        First step whose losses depend on rounding, None if there is none. Training has then become unstable after
        everything that could grow had been trained away, so that rounding errors grow instead. In exact arithmetic
        the losses leave their smooth course later or not at all, and in finite networks at another step.

    Examples
    --------
    >>> print(Status(diverged_at=12))
    diverged at step 12: lower the learning rate
    >>> print(Status(rounding_at=640))
    completed, but from step 640 on the losses depend on rounding errors: lower the learning rate
    >>> print(Status(diverged_at=652, rounding_at=640))  # in exact arithmetic it may not
    blew up at step 652, but from step 640 on the losses depend on rounding errors: lower the learning rate
    """

    diverged_at: int | None = None
    rounding_at: int | None = None

    @property
    def diverged(self) -> bool:
        """Whether the loss blew up (to 10^12 times its initial value) before the last step."""
        return self.diverged_at is not None

    def __str__(self) -> str:
        how = "completed" if self.diverged_at is None else f"diverged at step {self.diverged_at}"
        if self.rounding_at is not None:
            how = f"blew up at step {self.diverged_at}" if self.diverged else how
            how += f", but from step {self.rounding_at} on the losses depend on rounding errors"
            return f"{how}: lower the learning rate"
        return how if self.diverged_at is None else f"{how}: lower the learning rate"


def end_of(times: NDArray[Any], status: Status) -> int | None:
    """Index of the first time at which training has diverged."""
    return None if status.diverged_at is None else int(np.searchsorted(times, status.diverged_at))


def cut(series: Array, ended: int | None, length: int) -> Array:
    """Set a curve to inf from the divergence on, where it may have ended."""
    if ended is None:
        return series
    return np.append(series[:ended], np.full(length - ended, np.inf))


def cut_both(matrix: Array, ended: int | None, outputs: int) -> Array:
    """Set a two-time function to inf where either time is beyond the divergence."""
    if ended is not None:
        matrix = np.array(matrix)
        start = ended * outputs
        matrix[..., start:, :] = np.inf
        matrix[..., :, start:] = np.inf
    return matrix
