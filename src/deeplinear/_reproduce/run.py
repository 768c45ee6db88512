"""Reproduce panels: run what is not kept yet, check the claims, draw, and write the gallery."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from deeplinear._core.build import version
from deeplinear._core.files import write_atomically
from deeplinear._core.json import plain
from deeplinear._core.progress import Progress, read_progress
from deeplinear._reproduce import jobs
from deeplinear._reproduce.agreement import Agreement
from deeplinear._reproduce.claim import Claim
from deeplinear._reproduce.compute import compute, plan_panels
from deeplinear._reproduce.draw import draw, to_png
from deeplinear._reproduce.page import template, write_page
from deeplinear._reproduce.panel import OverRates, Panel
from deeplinear._reproduce.plan import Plan


@dataclass(frozen=True)
class Reproduction:
    """The outcome of one panel.

    Attributes
    ----------
    id, title
        Which panel.
    claims
        Statements with their bounds, the measured numbers, and whether they hold.
    agreements
        How far theory and networks are apart, curve by curve.
    picture
        The PNG file.
    seconds
        Time that it took to compute its results, in this run or an earlier one.
    """

    id: str
    title: str
    claims: tuple[Claim, ...]
    agreements: tuple[Agreement, ...]
    picture: Path
    seconds: float
    panel: Panel = field(repr=False)
    plan: Plan = field(repr=False)


def reproduce(
    ids: Iterable[str] | None = None,
    scale: str = "quick",
    out: str | Path = "reproduction",
    *,
    device: str = "cpu",
    command: str = "",
    progress: Progress | bool | None = None,
) -> list[Reproduction]:
    """Reproduce figures of the paper: solve, train networks, check the claims, draw pictures, write a gallery.

    Each curve is kept in a file in ``out/results`` as soon as it is computed: an interrupted run resumes, and drawing
    again trains nothing. The folder may be copied to another machine.

    Parameters
    ----------
    ids
        Panels such as "1a", or whole figures such as "1"; all by default.
    scale
        ``"quick"``, about six minutes on two cores for everything, or ``"full"``, with as many networks as it
        takes to decide most claims; ``"tiny"`` is for tests.
    out
        Folder for ``index.html`` (the gallery), a PNG file for each panel, ``claims.json`` and the results.
    device
        Where networks are trained, as for ``simulate``.
    command
        What to say in the gallery about how it was made; this call by default.
    progress
        True for a line on stderr; or called as ``progress(done, total)``, in milliseconds of work as estimated
        beforehand.

    Returns
    -------
    list of Reproduction
        One for each panel, in the order of the paper.

    Raises
    ------
    ValueError
        If there is no such panel or scale.
    ImportError
        If Jinja2, which makes the gallery, is not installed: ``pip install 'deeplinear[reproduce]'``.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (panel,) = reproduce(["1c"], scale="tiny", out=folder)
    >>> panel.id, len(panel.claims)
    ('1c', 2)
    """
    plans = plan_panels(ids, scale)
    template()  # what is missing is said before anything is computed
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    kept = compute(plans, folder / "results", device, read_progress(progress))
    found = [_finish(plan, [kept[jobs.key(job)] for job in plan.jobs], folder) for plan in plans]
    made = {
        "command": command or f"deeplinear.reproduce(scale={scale!r})",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "version": version(),
        "scale": scale,
    }
    document = made | {"panels": [_document(each) for each in found]}
    text = json.dumps(plain(document), indent=1, ensure_ascii=False)
    write_atomically(folder / "claims.json", lambda path: path.write_text(text + "\n", encoding="utf-8"))
    write_page(folder / "index.html", found, made)
    return found


def _finish(plan: Plan, data: list[xr.Dataset], folder: Path) -> Reproduction:
    """Check the claims of a panel and draw it."""
    panel, results = plan.panel, plan.results(data)
    picture = folder / f"{panel.id}.png"
    png = to_png(draw(panel, results, note(plan)))
    write_atomically(picture, lambda path: path.write_bytes(png))
    with np.errstate(divide="ignore", invalid="ignore"):
        claims = tuple(claim(results) for claim in panel.claims)
    return Reproduction(
        id=panel.id,
        title=panel.title,
        claims=claims,
        agreements=tuple(results.agreements),
        picture=picture,
        seconds=sum(json.loads(each.attrs["made"])["seconds"] for each in data),
        panel=panel,
        plan=plan,
    )


def note(plan: Plan) -> str:
    """Say what was trained."""
    if not any(line.networks for line in plan.lines) or plan.size.seeds == 1:
        return ""
    what = "modes" if plan.lines[0].problem.data.dimension_free else "inputs"
    middle = "median" if isinstance(plan.panel.view, OverRates) else "mean"
    return f"networks: D = {plan.size.dim} {what}, {middle} of {plan.size.seeds} for each curve"


def _document(found: Reproduction) -> dict[str, Any]:
    return {
        "id": found.id,
        "title": found.title,
        "claims": [claim.document() for claim in found.claims],
        "agreement": [asdict(each) for each in found.agreements],
        "seconds": round(found.seconds, 2),
    }
