"""Refusing work that does not fit into memory, before it starts."""

import psutil


def require(needed: float, what: str, advice: str) -> None:
    """Raise MemoryError with the estimate if ``needed`` bytes are more than is available."""
    available = psutil.virtual_memory().available
    if needed > available:
        raise MemoryError(
            f"{what} needs about {needed / 1e9:.2f} GB and {available / 1e9:.2f} GB are available; {advice}"
        )
