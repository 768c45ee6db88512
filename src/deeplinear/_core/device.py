"""Where arrays live: NumPy on the processor, or PyTorch on a device such as a graphics card."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.arrays import Array
from deeplinear._core.refusal import Refusal

_SOON = 0.1
"""Seconds in which the memory that is free is taken to stay so."""

_USABLE = 0.95
"""Part of a device's memory that is not left to workspaces and gaps."""


@dataclass(frozen=True)
class Device:
    """A place for arrays, and the library that computes there.

    Attributes
    ----------
    name
        As the user gave it.
    torch_device
        PyTorch's name of it; None for NumPy on the processor.
    """

    name: str
    torch_device: Any = None

    def put(self, values: NDArray[Any]) -> Array:
        """Return an array of NumPy as one that lives here."""
        if self.torch_device is None:
            return values
        import torch

        placed: Array = torch.from_numpy(np.ascontiguousarray(values)).to(self.torch_device)
        return placed

    def empty(self, shape: tuple[int, ...]) -> Array:
        """Return an array of double precision that lives here, not filled."""
        if self.torch_device is None:
            return np.empty(shape)
        import torch

        made: Array = torch.empty(shape, dtype=torch.float64, device=self.torch_device)
        return made

    def available(self) -> int:
        """Memory that is free now, in bytes; of a device that part which large arrays can count on."""
        if self.torch_device is None or self.torch_device.type != "cuda":
            import psutil  # slow to import

            return _free_memory(psutil.virtual_memory, round(time.monotonic() / _SOON))
        import torch

        free, _ = torch.cuda.mem_get_info(self.torch_device)
        # What PyTorch holds and does not use is free as well.
        unused = torch.cuda.memory_reserved(self.torch_device) - torch.cuda.memory_allocated(self.torch_device)
        return int(_USABLE * (free + unused))


@lru_cache(maxsize=1)
def _free_memory(ask: Callable[[], Any], _: int) -> int:
    """Ask the operating system, which takes as long as a step of training, no more than once at a time."""
    return int(ask().available)


CPU = Device("cpu")

_OF_SEARCHES: ContextVar[Device] = ContextVar("device of searches", default=CPU)


def device_of_searches() -> Device:
    """Return where a search solves its problems."""
    return _OF_SEARCHES.get()


@contextmanager
def searching_on(name: str) -> Iterator[Device]:
    """Solve the problems of all searches that are begun inside on a device.

    One search calls another, which calls a third: they take the device from here, so that none has to hand it on.
    """
    token = _OF_SEARCHES.set(find_device(name))
    try:
        yield _OF_SEARCHES.get()
    finally:
        _OF_SEARCHES.reset(token)


def find_device(name: str) -> Device:
    """Return a device by its name, checked to be there and to work in double precision.

    Parameters
    ----------
    name
        ``"cpu"`` is NumPy on the processor. Any other is PyTorch's name of a device, such as ``"cuda"`` or
        ``"cuda:1"``; ``"torch:cpu"`` is PyTorch on the processor, for tests.

    Raises
    ------
    ImportError
        If PyTorch is needed and missing.
    ValueError
        If there is no such device.
    """
    if name == CPU.name:
        return CPU
    if not isinstance(name, str):
        raise Refusal("device", name, '"cpu" or a PyTorch device such as "cuda"')
    try:
        import array_api_compat.torch  # noqa: F401
        import torch
    except ImportError:
        raise ImportError(f"device {name!r} needs PyTorch: pip install 'deeplinear[gpu]'") from None
    try:
        device = Device(name, torch.device(name.removeprefix("torch:")))
        device.put(np.zeros(1))
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = "" if "Expected one of" in str(error) else f": {str(error).splitlines()[0]}"  # most are not here
        allowed = '"cpu" or a device that PyTorch finds on this machine, such as "cuda"'
        raise Refusal("device", name, allowed, rest=reason) from None
    return device
