"""A link on every page with cells to the notebook that it was made from, with its results."""

import re

from sphinx.application import Sphinx


def with_link(page: str, source: str) -> str:
    """Return the source of a page, with a link to its notebook below the title if it has cells."""
    if "```{code-cell}" not in source:
        return source
    link = f"{{nb-download}}`Download this page as a notebook <{page.split('/')[-1]}.ipynb>`"
    return re.sub(r"^# .*$", rf"\g<0>\n\n{link}", source, count=1, flags=re.MULTILINE)


def _add_link(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = with_link(page, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Read every page with its link."""
    app.connect("source-read", _add_link)
    return {"parallel_read_safe": True}
