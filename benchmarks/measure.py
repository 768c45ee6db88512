"""Fair timings: warm up first, least of several repeats, everything that is compared in one run."""

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np


def least(work: Callable[[], Any], repeats: int = 3) -> float:
    """Seconds of the fastest of several repeats, after one to warm up; work of many seconds is done once."""
    start = time.perf_counter()
    work()
    first = time.perf_counter() - start
    if first > 5.0:
        return first
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_bytes(work: Callable[[], Any]) -> int:
    """Most memory that Python and NumPy hold at once during the work."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def exponent(sizes: list[float], times: list[float]) -> float:
    """Growth exponent: slope of log time against log size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
