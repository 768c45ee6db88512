"""The gallery of reproduced figures: a directive that shows what ``deeplinear reproduce --out docs/gallery`` wrote.

That is ``claims.json`` and a picture for each of its panels, named by the panel's id.
"""

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

LIST = "gallery/claims.json"

_EMPHASIS = {"does not hold": "**does not hold**"}


class Gallery(SphinxDirective):
    """One section for each panel; a sentence where there are none yet."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        path = Path(self.env.srcdir) / LIST
        self.env.note_dependency(str(path))
        if not path.exists():
            return self.parse_text_to_nodes("No figures have been reproduced into this copy of the documentation yet.")
        document = json.loads(path.read_text())
        lines = [line for panel in document["panels"] for line in section(panel)]
        holder = nodes.Element()
        self.state.nested_parse(StringList(lines, source=str(path)), 0, holder, match_titles=True)
        made = f"Made on {document['date']} by `{document['command']}`, version {document['version']}."
        return [*self.parse_text_to_nodes(made), *holder.children]


def section(panel: dict[str, Any]) -> list[str]:
    """Return the section of one panel: picture, and claims with what was measured."""
    title = f"{panel['id']}: {panel['title']}"
    lines = [f"## {title}", "", f"```{{image}} /gallery/{panel['id']}.png", f":alt: {title}", "```", ""]
    if panel["claims"]:
        lines += ["| claim | bound | measured | outcome |", "|---|---|---|---|"]
        lines += [_row(each) for each in panel["claims"]]
    return [*lines, ""]


def _row(claim: dict[str, Any]) -> str:
    text = claim["text"] + (" (not the paper's)" if claim["ours"] else "")
    measured = claim["measured"] + (f"; {claim['why']}" if claim["why"] else "")
    outcome = _EMPHASIS.get(claim["outcome"], claim["outcome"])
    return f"| {_cell(text)} | {_cell(claim['bound'])} | {_cell(measured)} | {outcome} |"


def _cell(text: str) -> str:
    """Escape what Markdown would read as markup."""
    for mark in "\\|*_`<[$":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("\n", " ")


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("gallery", Gallery)
    return {"parallel_read_safe": True}
