"""The site works where file systems do not tell cases apart, and its dead links are found."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import deeplinear as dl
from documentation import DOCS, ROOT, pages, script

CHECK = script(ROOT / "tools" / "check_site.py").check


def test_pages_of_the_reference_differ_by_more_than_case() -> None:
    renamed = script(DOCS / "_ext" / "filenames.py").filename_map(dl.__all__)
    assert "deeplinear.Transfer" in renamed
    files = [renamed.get(f"deeplinear.{name}", f"deeplinear.{name}").lower() for name in dl.__all__]
    assert [name for name, count in Counter(files).items() if count > 1] == []


def test_no_two_files_of_the_project_differ_by_case_alone() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.splitlines() or [str(page) for page in pages()]
    assert [name for name, count in Counter(name.lower() for name in names).items() if count > 1] == []


@pytest.mark.parametrize(
    ("link", "fault"),
    [
        ("b.html", None),
        ("b.html#place", None),
        ("folder/", None),
        ("#here", None),
        ("https://elsewhere/", None),
        ("c.html", "a.html links to c.html, which is not there"),
        ("B.html", "a.html links to B.html, which is not there"),
        ("b.html#lost", "a.html links to b.html#lost, a place that the page does not have"),
        ("#lost", "a.html links to #lost, a place that the page does not have"),
    ],
)
def test_dead_links_are_found(tmp_path: Path, link: str, fault: str | None) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "index.html").write_text('<a href="../b.html">back</a>')
    (tmp_path / "a.html").write_text(f'<p id="here"><a href="{link}">a link</a></p>')
    (tmp_path / "b.html").write_text('<h1 id="place">b</h1>')
    assert CHECK(tmp_path) == ([] if fault is None else [fault])


def test_files_that_differ_by_case_are_found(tmp_path: Path) -> None:
    for name in ("Transfer.html", "transfer.html"):
        (tmp_path / name).write_text(name)
    if len(list(tmp_path.iterdir())) == 2:  # a file system that tells them apart
        assert CHECK(tmp_path) == ["Transfer.html and transfer.html differ by case alone"]


def test_the_page_on_pytorch_is_built_without_it() -> None:
    """Types of a package that is not there know no operators."""
    code = "from sphinx.ext.autodoc.mock import mock\nwith mock(['torch']):\n    import deeplinear.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
