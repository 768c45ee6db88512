"""The gallery of reproduced figures: a directive that shows what ``gallery/gallery.json`` lists.

Each entry of the list has an ``id``, a ``title``, a ``picture`` (a file beside the list), ``parameters`` (words to
values, or one string) and ``claims``, each with ``claim``, ``measured`` and ``holds``.
"""

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

LIST = "gallery/gallery.json"


class Gallery(SphinxDirective):
    """One section for each entry of the list; a sentence where there is no list yet."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        path = Path(self.env.srcdir) / LIST
        self.env.note_dependency(str(path))
        if not path.exists():
            return self.parse_text_to_nodes("No figures have been reproduced into this copy of the documentation yet.")
        entries: list[dict[str, Any]] = json.loads(path.read_text())
        lines = [line for entry in entries for line in section(entry)]
        holder = nodes.Element()
        self.state.nested_parse(StringList(lines, source=str(path)), 0, holder, match_titles=True)
        return holder.children


def section(entry: dict[str, Any]) -> list[str]:
    """Return the section of one figure, as lines of MyST Markdown."""
    parameters = entry.get("parameters", "")
    if isinstance(parameters, dict):
        parameters = ", ".join(f"{name} = {value}" for name, value in parameters.items())
    lines = [f"## {entry['title']}", "", f"```{{image}} /gallery/{entry['picture']}", f":alt: {entry['title']}", "```"]
    if parameters:
        lines += ["", f"*{parameters}*"]
    if entry["claims"]:
        lines += ["", "| claim | measured | holds |", "|---|---|---|"]
        lines += [
            f"| {_cell(each['claim'])} | {_cell(each['measured'])} | {'yes' if each['holds'] else '**no**'} |"
            for each in entry["claims"]
        ]
    return [*lines, ""]


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("gallery", Gallery)
    return {"parallel_read_safe": True}
