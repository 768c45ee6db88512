"""The command ``reproduce``: the paper's figures and table, each with its claims checked."""

import inspect
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

import deeplinear as dl
from deeplinear._cli._commands import command
from deeplinear._cli._errors import OK
from deeplinear._cli._options import REPORT, Group, make_option
from deeplinear._cli._report import Report, table
from deeplinear._core.device import find_device
from deeplinear._core.words import in_bytes, in_time
from deeplinear._reproduce import SCALES
from deeplinear._reproduce.claim import Outcome

if TYPE_CHECKING:  # the problems of all figures take longer to load than the other commands
    from deeplinear._reproduce.plan import Plan


@dataclass(frozen=True)
class Choice:
    """What to reproduce, how, and where to."""

    ids: list[str] | None
    scale: str
    out: Path
    device: str
    only_list: bool


def _choice(values: dict[str, Any]) -> Choice:
    device = find_device(values["device"]).name
    return Choice(values["ids"] or None, values["scale"], Path(values["out"]), device, values["only_list"])


_IDS = inspect.Parameter(
    "ids",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[IDS]...", help="Panels (1a) or whole figures (1, A2, T1); all by default.", show_default=False
        ),
    ],
)

CHOICE = Group(
    "choice",
    (
        _IDS,
        make_option("scale", str, "quick", "--scale", metavar="|".join(SCALES[1:]), help="Size of the experiments."),
        make_option(
            "out", str, "reproduction", "--out", metavar="DIR", help="Folder for gallery, pictures and results."
        ),
        make_option("device", str, "cpu", "--device", metavar="NAME", help="Where networks are trained, such as cuda."),
        make_option(
            "only_list",
            bool,
            False,
            "--list",
            help="List the panels and the time each would take, and do nothing else.",
        ),
    ),
    _choice,
)


@command(CHOICE, REPORT)
def reproduce(choice: Choice, report: Report) -> int:
    """Reproduce every figure of the paper, check its claims, and collect everything in a gallery.

    Results are kept in DIR/results: an interrupted run resumes, and drawing again trains nothing.

    Exit codes: 0 done, whether the claims hold or not; 2 bad input, 4 not enough memory, 5 a package is missing.

    Examples: deeplinear reproduce --list

    deeplinear reproduce 2 A1 --out transfer

    deeplinear reproduce --scale full --out gallery
    """
    from deeplinear._reproduce.compute import plan_panels

    if choice.only_list:
        plans = plan_panels(choice.ids, choice.scale)
        rows = [_cost(plan, choice.out / "results") for plan in plans]
        report.result({"command": "reproduce", "scale": choice.scale, "panels": rows}, _listed(rows, choice))
        return OK
    with report.stage("reproduce") as progress:
        found = dl.reproduce(
            choice.ids,
            choice.scale,
            choice.out,
            device=choice.device,
            command=shlex.join(["deeplinear", *sys.argv[1:]]),
            progress=progress,
        )
    page = choice.out / "index.html"
    document = {"command": "reproduce", "scale": choice.scale, "gallery": str(page), "claims": _documents(found)}
    report.result(document, _claims(found), f"gallery: {page} ({in_bytes(page.stat().st_size)})")
    return OK


def _cost(plan: "Plan", folder: Path) -> dict[str, Any]:
    """What a panel would take, of which some may be there already."""
    from deeplinear._reproduce.cost import speed
    from deeplinear._reproduce.store import path

    left = [job for job in plan.jobs if not path(folder, job).exists()]
    parts = [speed().parts(job) for job in left]
    return {
        "id": plan.panel.id,
        "title": plan.panel.title,
        "results": len(plan.jobs),
        "kept": len(plan.jobs) - len(left),
        "theory_seconds": sum(theory for theory, _ in parts),
        "experiment_seconds": sum(experiment for _, experiment in parts),
        "bytes": max((job.work.bytes for job in left), default=0.0),
    }


def _listed(rows: list[dict[str, Any]], choice: Choice) -> Table:
    shown = [
        [
            row["id"],
            row["title"],
            in_time(row["theory_seconds"]),
            in_time(row["experiment_seconds"]),
            in_bytes(row["bytes"]),
            f"{row['kept']} of {row['results']}",
        ]
        for row in rows
    ]
    total = [sum(row[name] for row in rows) for name in ("theory_seconds", "experiment_seconds")]
    shown.append(["all", "", *map(in_time, total), "", ""])
    title = f"what is left to do at scale {choice.scale}, about, on this machine's processor"
    return table(title, ["", "panel", "theory", "networks", "memory", "kept"], shown)


def _claims(found: "list[dl.Reproduction]") -> Table:
    shown = Table(title="claims", title_justify="left", title_style="bold")
    for column in ("", "claim", "measured", "outcome"):
        shown.add_column(column, overflow="fold")
    for panel in found:
        for claim in panel.claims:
            word = "DOES NOT HOLD" if claim.outcome is Outcome.FAILS else str(claim.outcome)
            shown.add_row(panel.id, claim.text + (" (ours)" if claim.ours else ""), claim.measured, word)
    return shown


def _documents(found: "list[dl.Reproduction]") -> list[dict[str, Any]]:
    return [{"id": panel.id, **claim.document()} for panel in found for claim in panel.claims]
