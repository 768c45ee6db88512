"""Code cites the equations of the documentation by their labels."""

import re

from documentation import DOCS, ROOT

STEPS = {"derivation.md"}
"""Pages whose equations are steps on the way to others, which no line of code is."""

SOURCES = sorted((ROOT / "src" / "deeplinear").rglob("*.py"))


def test_every_equation_is_cited_and_every_citation_exists() -> None:
    labels = {
        label
        for page in (DOCS / "theory").glob("*.md")
        if page.name not in STEPS
        for label in re.findall(r"^:label: (eq-[\w-]+)$", page.read_text(), re.M)
    }
    cited = {label for source in SOURCES for label in re.findall(r"\beq-[a-z0-9A-Z-]+", source.read_text())}
    assert labels - cited == set(), "no line of code cites these equations"
    assert cited - labels == set(), "these equations are cited, but the documentation has none of them"
