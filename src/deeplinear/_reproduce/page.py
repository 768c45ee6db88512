"""The gallery: one HTML file with everything in it, made from the template ``gallery.html`` beside this file.

Jinja2 makes it. Nothing else needs Jinja2, so it is not among the default dependencies; ``deeplinear[reproduce]``
brings it.
"""

import base64
import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeplinear._core.files import write_atomically
from deeplinear._reproduce.claim import SIGNIFICANT, Outcome, quantity
from deeplinear._reproduce.figures import COLUMNS, TITLES

if TYPE_CHECKING:
    from jinja2 import Template

    from deeplinear._reproduce.run import Reproduction

_CLASSES = {Outcome.HOLDS: "yes", Outcome.FAILS: "no", Outcome.UNDECIDED: "open"}


def template() -> "Template":
    """Return the template of the gallery.

    Raises
    ------
    ImportError
        If Jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise ImportError("the gallery is made with Jinja2: pip install 'deeplinear[reproduce]'") from None
    text = Path(__file__).with_name("gallery.html").read_text(encoding="utf-8")
    return Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True).from_string(text)


def write_page(path: Path, found: list["Reproduction"], made: dict[str, str]) -> None:
    """Write the gallery of panels; ``made`` says with what command, when and with which version."""
    outcomes = [claim.outcome for each in found for claim in each.claims]
    held, failed, undecided = (outcomes.count(each) for each in Outcome)
    figures = itertools.groupby(found, lambda each: each.panel.figure)
    text = template().render(
        found=found,
        made=made,
        figures=[_figure(name, list(panels)) for name, panels in figures],
        classes=_CLASSES,
        count=len(outcomes),
        held=held,
        failed=failed,
        undecided=undecided,
        significant=f"{SIGNIFICANT:g}",
        took=_minutes(sum(each.seconds for each in found)),
    )
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"


def _figure(name: str, panels: list["Reproduction"]) -> dict[str, Any]:
    return {
        "name": name,
        "label": "Table 1" if name == "T1" else f"Figure {name}",
        "title": TITLES[name],
        "columns": min(COLUMNS[name], len(panels)),
        "panels": [_panel(each) for each in panels],
    }


def _panel(found: "Reproduction") -> dict[str, Any]:
    size, lines = found.plan.size, found.plan.lines
    return {
        "found": found,
        "picture": base64.b64encode(found.picture.read_bytes()).decode(),
        "networks": "none" if not found.agreements else f"D = {size.dim}, {size.seeds} for each curve",
        "problems": "\n".join(f"# {line.label or index}\n{line.problem.to_toml()}" for index, line in enumerate(lines)),
        "agreements": [
            {
                "label": each.label,
                "deviation": quantity(100 * each.deviation, 100 * each.error),
                "rms_z": f"{each.rms_z:.2g}" if math.isfinite(each.rms_z) else "–",
                "verdict": each.verdict,
            }
            for each in found.agreements
        ],
    }
