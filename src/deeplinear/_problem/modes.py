"""Checks of the lists that make up a spectrum: an error names the entry that is wrong."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.refusal import Refusal
from deeplinear._problem.data import Matrix

Array = NDArray[np.float64]


def read_eigenvalues(value: Any) -> tuple[float, ...]:
    """Return the variances of the modes."""
    eigenvalues = _vector("eigenvalues", value)
    _check_each("eigenvalues", eigenvalues, eigenvalues >= 0, "zero or above")
    return tuple(eigenvalues.tolist())


def _vector(name: str, value: Any) -> Array:
    """Return value as a vector of finite numbers, at least one."""
    try:
        numbers = np.array(value, dtype=float)
    except (TypeError, ValueError):
        raise Refusal(name, value, "a sequence of numbers", got=_short(value)) from None
    except OverflowError:
        raise Refusal(name, value, "a sequence of finite numbers", got="one that is too large") from None
    if numbers.ndim != 1 or not numbers.size:
        raise Refusal(name, value, "a sequence of one or more numbers", got=_short(value))
    _check_each(name, numbers, np.isfinite(numbers), "a finite number")
    return numbers


def _check_each(name: str, values: Array, allowed: NDArray[np.bool_], expected: str) -> None:
    if not allowed.all():
        index = int(np.argmin(allowed))
        raise Refusal(f"{name}[{index}]", values[index].tolist(), expected)


def _check_length(name: str, values: Array, count: int) -> None:
    if len(values) != count:
        raise Refusal(name, len(values), f"one entry per eigenvalue ({count})", verb="have")


def read_target_power(value: Any, count: int) -> tuple[float, ...] | tuple[Matrix, ...]:
    """Return the target power of ``count`` modes: a number of each, or a matrix over the outputs."""
    try:
        power = np.array(value, dtype=float)
    except (TypeError, ValueError):
        allowed = "one number or one square matrix per mode, all alike"
        raise Refusal("target_power", value, allowed, got=_short(value)) from None
    except OverflowError:
        raise Refusal("target_power", value, "finite entries", verb="have", got="one that is too large") from None
    if power.ndim not in (1, 3) or power.shape[1:2] != power.shape[2:3] or not power.size:
        raise Refusal("target_power", power.shape, "shape (modes,) or (modes, outputs, outputs)", verb="have")
    _check_length("target_power", power, count)
    finite = np.isfinite(power).reshape(count, -1).all(axis=1)
    _check_each("target_power", power, finite, "finite")
    if power.ndim == 1:
        _check_each("target_power", power, power >= 0, "zero or above")
        return tuple(power.tolist())
    scale = np.abs(power).max(axis=(1, 2))
    _check_each("target_power", power, np.abs(power - power.mT).max(axis=(1, 2)) <= 1e-12 * scale, "a symmetric matrix")
    lowest = np.linalg.eigvalsh(power)[:, 0]
    _check_each("target_power", power, lowest >= -1e-12 * scale, "a positive semidefinite matrix")
    return tuple(tuple(tuple(row) for row in gram) for gram in power.tolist())


def read_multiplicity(value: Any, count: int, proportional: bool) -> tuple[float, ...]:
    """Return how many directions each of ``count`` modes has, or which fraction of them."""
    multiplicity = _vector("multiplicity", value)
    _check_length("multiplicity", multiplicity, count)
    _check_each("multiplicity", multiplicity, multiplicity > 0, "above zero")
    if proportional and abs(multiplicity.sum() - 1) > 1e-9:
        total = float(multiplicity.sum())
        raise Refusal("multiplicity", total, "fractions that sum to 1 if proportional", got=f"{total:.12g}")
    return tuple(multiplicity.tolist())


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:76]} ..."
