"""Refusing work that does not fit into memory, before it starts."""

import sys

from deeplinear._core.device import CPU, Device


def require(needed: float, what: str, advice: str, device: Device = CPU) -> None:
    """Raise MemoryError with the estimate if ``needed`` bytes are more than is available on a device."""
    available = device.available()
    needed = min(needed, sys.float_info.max)  # a count of bytes may be a whole number beyond all others
    if needed > available:
        raise MemoryError(
            f"{what} needs about {needed / 1e9:.2f} GB, but only {available / 1e9:.2f} GB are available"
            f"{'' if device == CPU else f' on {device.name}'}; {advice}"
        )
