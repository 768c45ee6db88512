"""The project's Markdown as tests read it: pages, fenced blocks, links."""

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

_BLOCK = re.compile(
    r"^(?P<before>[^\n]*)\n(?P<fence>`{3,})(?P<info>[^\n`]+)\n(?P<text>.*?)^(?P=fence)\s*$", re.M | re.S
)
_NOT_RUN = re.compile(r"^(% not run: .+|<!-- not run: .+ -->)$")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes
    ----------
    kind
        First word of its information string, such as ``python``, ``console`` or ``{code-cell}``.
    text
        What stands in it, options of a directive left out.
    line
        Number of its first line on the page.
    is_run
        False if the line before it is a comment, ``% not run:`` or ``<!-- not run: -->``, that says why.
    """

    kind: str
    text: str
    line: int
    is_run: bool


def pages() -> list[Path]:
    """Return all pages written by hand: of the site, and of the repository."""
    made = {"_build", "generated", "gallery"}
    site = [page for page in DOCS.rglob("*.md") if not made & set(page.relative_to(DOCS).parts)]
    return sorted([*site, *ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.md")])


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    text = "\n" + page.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        body = re.sub(r"\A(:[^\n]*\n)+\n?", "", match["text"]) if match["info"].startswith("{") else match["text"]
        line = text[: match.start("fence")].count("\n") + 1
        found.append(Block(match["info"].split()[0], body, line, not _NOT_RUN.match(match["before"])))
    return found


def cells(page: Path) -> list[Block]:
    """Return the code cells of a page that is a notebook."""
    return [block for block in blocks(page) if block.kind == "{code-cell}"]


def links(page: Path) -> list[str]:
    """Return the targets of links and pictures on a page, blocks of code left out."""
    text = re.sub(r"^(`{3,})(?!\{(?:include|image)).*?^\1\s*$", "", page.read_text(), flags=re.M | re.S)
    directives = re.findall(r"^`{3,}\{(?:include|image)\} (\S+)", text, re.M)
    return re.findall(r"\]\(([^()\s]+)\)", re.sub(r"`[^`\n]*`(?!\])", "", text)) + directives


def script(path: Path) -> ModuleType:
    """Import a script that is not part of a package, with what lies beside it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
