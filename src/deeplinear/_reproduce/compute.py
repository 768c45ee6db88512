"""What panels take, and doing it: everything up to the drawing, so that another machine can do it alone."""

from collections.abc import Iterable

import xarray as xr

from deeplinear._core import checks
from deeplinear._core.progress import Progress
from deeplinear._core.refusal import Refusal
from deeplinear._reproduce import jobs
from deeplinear._reproduce.cost import speed
from deeplinear._reproduce.figures import PANELS
from deeplinear._reproduce.panel import SCALES
from deeplinear._reproduce.plan import Plan
from deeplinear._reproduce.store import Store


def plan_panels(ids: Iterable[str] | None, scale: str) -> list[Plan]:
    """Return the plans of panels, in the order of the paper."""
    checks.word("scale", scale, SCALES)
    if isinstance(ids, str):
        raise Refusal("ids", ids, "a list of panels or figures")
    wanted = list(PANELS) if ids is None else list(ids)
    for each in wanted:
        if not any(each in (panel.id, panel.figure) for panel in PANELS.values()):
            raise Refusal("ids", each, f"panels or figures ({', '.join(PANELS)})")
    chosen = [panel for panel in PANELS.values() if panel.id in wanted or panel.figure in wanted]
    return [Plan.of(panel, scale) for panel in chosen]


def compute(plans: list[Plan], store: Store, device: str, progress: Progress | None) -> dict[str, xr.Dataset]:
    """Return the results of all jobs by their keys, running those that are not kept; draws nothing."""
    wanted = {jobs.key(job): job for plan in plans for job in plan.jobs}
    kept = {name: data for name, job in wanted.items() if (data := store.load(job)) is not None}
    missing = {name: job for name, job in wanted.items() if name not in kept}
    cost = {name: 1000 * speed().seconds(job) for name, job in missing.items()} if missing else {}
    total, done, reported = round(sum(cost.values())), 0.0, -1

    def report(milliseconds: float) -> None:
        nonlocal reported
        if progress is not None and round(milliseconds) > reported:  # what is left of a job may be guessed anew
            reported = round(milliseconds)
            progress(min(reported, total), total)

    for name, job in missing.items():
        start, own = done, cost[name]
        kept[name] = jobs.run(job, lambda fraction, start=start, own=own: report(start + fraction * own), device)  # type: ignore[misc]
        store.save(job, kept[name])
        done += own
        report(done)
    return kept
