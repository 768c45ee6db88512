"""One code for NumPy and PyTorch: which library an array belongs to, and new arrays beside it.

NumPy's own namespace follows the array API standard; PyTorch's does through ``array_api_compat``.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
"""An array of NumPy, or a tensor of PyTorch, which is used as if it were one."""


usual_arithmetic = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
"""Decorates what computes: a caller may have asked NumPy to raise where a number underflows, which is harmless here."""


def namespace(x: Array) -> Any:
    """Return the library of an array, as the array API standard has it."""
    if isinstance(x, np.ndarray):
        return np
    return _torch() if is_tensor(x) else x.__array_namespace__()


def is_tensor(x: Array) -> bool:
    """Return whether an array is one of PyTorch, whose steps may be replayed on a card."""
    return not hasattr(x, "__array_namespace__")


@cache
def _torch() -> ModuleType:
    import array_api_compat.torch

    module: ModuleType = array_api_compat.torch
    return module


@contextmanager
def computing(like: Array) -> Iterator[None]:
    """Compute without warnings of overflow, since divergence is an answer, and without a record for derivatives."""
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(like, np.ndarray):
            yield
        else:
            with _torch().inference_mode():
                yield


def zeros(shape: Sequence[int], like: Array) -> Array:
    """Return zeros of the library, device and kind of another array."""
    made: Array = namespace(like).zeros(tuple(shape), dtype=like.dtype, device=like.device)
    return made


def beside(values: Array, like: Array) -> Array:
    """Return real values of NumPy as an array of the library and device of another."""
    if isinstance(like, np.ndarray):
        return values
    placed: Array = namespace(like).asarray(np.array(values), device=like.device)  # PyTorch wants what it could write
    return placed


def alike(x: Array, other: Array) -> Array:
    """Return an array with numbers of the kind of another, real or complex: PyTorch multiplies no matrices of two."""
    if isinstance(x, np.ndarray) or x.dtype == other.dtype:
        return x
    made: Array = namespace(x).astype(x, other.dtype)
    return made


def to_numpy(x: Array) -> NDArray[Any]:
    """Return the values of an array in NumPy; on a device this waits until they are there."""
    return x if isinstance(x, np.ndarray) else x.cpu().numpy()  # type: ignore[redundant-expr]


def finite(x: Array) -> Array:
    """Return an array with zeros for what has overflowed, so that products with causal zeros are zero."""
    xp = namespace(x)
    made: Array = xp.where(xp.isfinite(x), x, xp.zeros_like(x))
    return made


def identity(size: int, like: Array) -> Array:
    """Return a small identity, to be read only, in the library and on the device of another array."""
    return _identity(size, namespace(like), like.device)


@cache
def _identity(size: int, xp: Any, device: Any) -> Array:
    made: Array = xp.eye(size, dtype=xp.float64, device=device)
    return made


class ComparedByValue:
    """A dataclass with arrays, two of which are equal where all their fields are; unknown values equal each other."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = [each.name for each in fields(self)]  # type: ignore[arg-type]  # it is one of a dataclass
        return all(_are_equal(getattr(self, name), getattr(other, name)) for name in names)


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    return bool(one == other)
