"""What a set of runs leaves open, in sentences; thresholds were measured in ``benchmarks/runs.md``."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from deeplinear._runs.run import Run

Array = NDArray[np.float64]

_LOW = 0.5
"""Fraction of its peak to which the rate of some run must fall for its noise to be seen."""

_OUTSIDE = 1.05
"""Factor beyond the rates of the runs that is still within them."""

_LONGER = 3.2
"""Factor on the longest run that was measured."""

_VAGUE = 4.0
"""Ratio of the largest to the least value of a parameter among fits to some of the runs."""

_RISE = 0.02
"""Rise of the loss while the rate does not rise, as a fraction of its range."""


def about_runs(runs: Sequence[Run], ranges: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """Say what runs do not tell about themselves, and which run to do."""
    found = []
    longest = max(runs, key=lambda run: run.steps[-1])
    if all(_lowest(run) > _LOW * run.peak for run in runs):
        drop = longest.steps[-1] * 2 // 3
        found.append(
            f"no run has a rate that falls to half of its peak or below, so what a decay gains is not known: do a run "
            f"whose rate drops to a tenth, at step {drop} say"
        )
    if len(runs) == 1:
        found.append("one run cannot check the law: do a second one with another schedule")
    vague = [name for name, (low, high) in ranges.items() if name != "cutoff" and high > _VAGUE * max(low, 1e-300)]
    if vague and len(runs) > 1:
        found.append(f"not determined by these runs: {', '.join(vague)}; predictions may be good all the same")
    for run in runs:
        rise = _rise(run)
        if rise > 0:
            found.append(
                f"the loss of {run.name} rises by {rise:.2g} while its rate does not: the law only falls; on training "
                f"data or fresh batches it should not"
            )
    return tuple(found)


def about_rates(runs: Sequence[Run], rates: Array) -> tuple[str, ...]:
    """Say where a schedule is beyond those of the runs."""
    found = []
    peaks = [run.peak for run in runs]
    peak, lowest = float(rates.max()), float(rates[rates > 0][-1]) if rates.any() else 0.0
    if peak > _OUTSIDE * max(peaks):
        found.append(
            f"the peak rate {peak:.3g} is above those of the runs (up to {max(peaks):.3g}); the law cannot tell that "
            f"training diverges"
        )
    elif peak < min(peaks) / _OUTSIDE and len(set(peaks)) == 1:
        found.append(f"the peak rate {peak:.3g} is below that of the runs ({max(peaks):.3g}), which is all they tell")
    seen = min(_lowest(run) for run in runs)
    if lowest < seen / _OUTSIDE and len(rates) > 1 and lowest < peak:
        found.append(f"the last rate {lowest:.2g} is below the least of the runs ({seen:.2g})")
    longest = max(int(run.steps[-1]) for run in runs)
    if len(rates) > _LONGER * longest:
        found.append(f"{len(rates)} steps are {len(rates) / longest:.2g} times as many as the longest run has")
    return tuple(found)


def _lowest(run: Run) -> float:
    """Return the least rate after the warm-up."""
    later = run.rates[run.rises :]
    return float(later[later > 0].min(initial=run.peak))


def _rise(run: Run) -> float:
    """Return by how much the loss rises in the end while the rate does not; 0 if by little."""
    size = max(len(run.loss) // 10, 2)
    means = np.array([part.mean() for part in np.array_split(run.loss, max(len(run.loss) // size, 2))])
    lowest = int(np.argmin(means))
    rise = float(means[-1] - means[lowest])
    at = min(int(run.steps[min(lowest * size, len(run.steps) - 1)]), len(run.rates) - 1)
    falls = run.rates[-1] <= _OUTSIDE * run.rates[at]
    return rise if falls and rise > _RISE * np.ptp(run.loss) else 0.0
