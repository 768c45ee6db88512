"""Fair timings: warm up first, take turns, least of several repeats; and where they were taken.

Times are those of the processor, not of the clock: for work on one thread they are equal on an idle machine, and
others who use it disturb them less.
"""

import datetime
import os
import platform
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_LONG = 5.0
"""Work that takes more seconds than this is not repeated: warming up makes no difference to it."""


def race(works: Mapping[Any, Callable[[], Any]], repeats: int = 3) -> dict[Any, float]:
    """Seconds of the fastest of several repeats of each work, after one to warm up.

    The works take turns, so that a machine that is busy for a while is busy for all of them.
    """
    times: dict[Any, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            if not turn or min(times[name]) <= _LONG:
                start = time.process_time()
                work()
                times[name].append(time.process_time() - start)
    return {name: min(taken[1:] or taken) for name, taken in times.items()}


def least(work: Callable[[], Any], repeats: int = 3) -> float:
    """Seconds of the fastest of several repeats, after one to warm up."""
    return race({"": work}, repeats)[""]


def peak_bytes(work: Callable[[], Any]) -> int:
    """Most memory that Python and NumPy hold at once during the work."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


class Peak:
    """Most memory that this process takes from here on; known on Linux only."""

    def __init__(self) -> None:
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self._before: float | None = self._read("VmRSS")
        except OSError:
            self._before = None

    def bytes(self) -> float | None:
        """Return it, less what the process had before."""
        return None if self._before is None else self._read("VmHWM") - self._before

    @staticmethod
    def _read(name: str) -> float:
        status = Path("/proc/self/status").read_text()
        return 1024.0 * float(status.split(f"{name}:")[1].split()[0])


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Growth exponent: slope of log time against log size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def circumstances() -> dict[str, str]:
    """Date, machine and how busy it is, to stand beside what is measured now."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "date": str(datetime.date.today()),
        "machine": f"{_processor()}, {os.cpu_count()} cores; Python {platform.python_version()}, "
        f"NumPy {np.__version__}, {blas['name']} {blas['version']}",
        "load": load,
    }


def _processor() -> str:
    listed = Path("/proc/cpuinfo")
    names = (
        [line for line in listed.read_text().splitlines() if line.startswith("model name")] if listed.exists() else []
    )
    return names[0].partition(":")[2].strip() if names else platform.processor() or platform.machine()
