"""The source distribution: whoever unpacks it can run every test."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from documentation import ROOT

PARTS = [".ci", ".github", "benchmarks", "docs", "src", "tests", "tools"]
MADE = ["__pycache__", "_build", "generated", "results", "*.egg-info", "*.pyc", "*.so", "*.pyd", "_rows.c"]


def test_it_has_every_file_of_the_project(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77", reason="needs setuptools 77, which builds the package")
    project = tmp_path / "project"
    shutil.copytree(ROOT, project, ignore=lambda folder, names: _others(Path(folder), names))
    (project / "tests" / "__pycache__").mkdir()
    (project / "tests" / "__pycache__" / "left.pyc").touch()
    code = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    built = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=project, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    with tarfile.open(tmp_path / built.stdout.splitlines()[-1]) as archive:
        packed = {Path(*Path(member.name).parts[1:]) for member in archive.getmembers() if member.isfile()}
    wanted = {path.relative_to(project) for path in project.rglob("*") if path.is_file() and ".pyc" not in path.suffix}
    wanted = {path for path in wanted if not any(part.endswith(".egg-info") for part in path.parts)}
    assert Path("tests/conftest.py") in wanted
    assert sorted(wanted - packed) == []
    assert not [path for path in packed if path.suffix in (".pyc", ".so")]


def _others(folder: Path, names: list[str]) -> set[str]:
    """What does not belong to the project, or was made from it."""
    made = {name for name in names if any(Path(name).match(each) for each in MADE)}
    if folder != ROOT:
        return made
    files = {
        ".pre-commit-config.yaml",
        "CITATION.cff",
        "LICENSE",
        "MANIFEST.in",
        "Makefile",
        "pyproject.toml",
        "setup.py",
    }
    return {name for name in names if name not in {*PARTS, *files} and not name.endswith(".md")} | made
