"""What the package says of itself, in every place where it says so."""

import inspect
import re
import tomllib
from importlib.metadata import version

import deeplinear as dl
from documentation import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_version_is_the_same_everywhere():
    assert re.fullmatch(r"\d+\.\d+\.\d+", dl.__version__)
    assert version("deeplinear") == dl.__version__
    assert f"\nversion: {dl.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^## {re.escape(dl.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_authors_are_named_alike():
    (author,) = PROJECT["project"]["authors"]
    for file in ("CITATION.cff", "LICENSE", "docs/conf.py", "paper.md"):
        assert author["name"] in (ROOT / file).read_text(), file


def test_versions_of_python_are_the_same_everywhere():
    named = [word.rpartition(" ")[2] for word in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", word)]
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    (listed,) = re.findall(r"python: \[(.*)\]  # every version", workflow)
    assert listed == ", ".join(f'"{each}"' for each in named)
    minor = [each.partition(".")[2] for each in named]
    assert PROJECT["tool"]["cibuildwheel"]["build"] == [f"cp3{each}-*" for each in minor]


def test_hooks_are_programs_of_the_environment_of_the_tests():
    tools = {each.partition(">")[0] for each in PROJECT["project"]["optional-dependencies"]["test"]}
    hooks = re.findall(r"^ +entry: (\w+)", (ROOT / ".pre-commit-config.yaml").read_text(), re.M)
    assert len(hooks) == 4
    assert {*hooks, "pre-commit"} <= tools


def test_the_paper_counts_as_the_readme_does():
    counts = re.compile(r"of 60, (\d+ hold, \d+ do not and \d+ are undecided)", re.I)
    (paper,), (readme,) = (counts.findall((ROOT / name).read_text()) for name in ("paper.md", "README.md"))
    assert paper == readme


def test_findings_of_the_paper_have_the_numbers_of_their_pages():
    findings = (ROOT / "paper.md").read_text().partition("\n# Findings\n")[2].partition("\n# ")[0]
    pages = "\n".join(page.read_text() for page in sorted((ROOT / "docs").glob("findings*.md")))
    numbers = re.findall(r"\d+\.\d{2,}", findings)
    assert len(numbers) > 15
    assert [number for number in numbers if not re.search(rf"(?<!\d){re.escape(number)}(?!\d)", pages)] == []


def test_the_paper_cites_what_is_listed():
    listed = re.findall(r"^@\w+\{(\w+),", (ROOT / "src" / "deeplinear" / "citations.bib").read_text(), re.M)
    text = (ROOT / "paper.md").read_text().partition("---\n\n")[2]
    cited = set(re.findall(r"@(\w+)", text))
    assert cited == set(listed) - {"deeplinear"}


def test_the_list_of_changes_has_all_that_can_be_called():
    """Results are the answers of functions and need no line of their own."""
    text = (ROOT / "CHANGELOG.md").read_text()
    results = {name for name in dl.__all__ if inspect.isclass(found := getattr(dl, name)) and not _is_given(found)}
    missing = [name for name in dl.__all__ if name not in results and not re.search(rf"`{name}\b", text)]
    assert missing == []


def _is_given(found: type) -> bool:
    """Whether users make objects of a class: it is a problem, or a part of one."""
    return found.__module__.startswith(("deeplinear._problem.", "deeplinear._rules."))
