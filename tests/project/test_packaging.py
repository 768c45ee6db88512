"""The source distribution, with which whoever unpacks it can run every test, and its build."""

import os
import runpy
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from documentation import ROOT

PARTS = [".ci", ".github", "benchmarks", "docs", "src", "tests", "tools"]
MADE = ["__pycache__", "_build", "generated", "results", "*.egg-info", "*.pyc", "*.so", "*.pyd", "_rows.c"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files of the project, and some that were made from them."""
    pytest.importorskip("setuptools", minversion="77", reason="needs setuptools 77, which builds the package")
    project = tmp_path_factory.mktemp("sources") / "project"
    shutil.copytree(ROOT, project, ignore=lambda folder, names: _others(Path(folder), names))
    (project / "tests" / "__pycache__").mkdir()
    (project / "tests" / "__pycache__" / "left.pyc").touch()
    return project


@pytest.fixture(scope="module")
def packed(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack the source distribution."""
    return built(project, tmp_path_factory.mktemp("packed") / "dist")


def built(project: Path, folder: Path) -> Path:
    """Pack the source distribution of a project into a folder."""
    folder.mkdir()
    code = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    ended = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"SOURCE_DATE_EPOCH": "1767225600"},
    )
    assert ended.returncode == 0, ended.stderr
    return folder / ended.stdout.splitlines()[-1]


def test_it_has_every_file_of_the_project(project: Path, packed: Path) -> None:
    with tarfile.open(packed) as archive:
        found = {Path(*Path(member.name).parts[1:]) for member in archive.getmembers() if member.isfile()}
    wanted = {path.relative_to(project) for path in project.rglob("*") if path.is_file() and ".pyc" not in path.suffix}
    wanted = {path for path in wanted if not any(part.endswith(".egg-info") for part in path.parts)}
    assert Path("tests/conftest.py") in wanted
    assert sorted(wanted - found) == []
    assert not [path for path in found if path.suffix in (".pyc", ".so")]


def test_two_builds_of_one_moment_are_equal_to_the_bit(project: Path, packed: Path, tmp_path: Path) -> None:
    """Whenever the files were written, whoever may read them, and from whichever folder they come."""
    again = tmp_path / "elsewhere" / "project"
    shutil.copytree(project, again)
    for number, path in enumerate(sorted(again.rglob("*.py"), reverse=True)):
        path.write_bytes(path.read_bytes())
        path.chmod(0o600)
        os.utime(path, (number, number))
    assert built(again, tmp_path / "dist").read_bytes() == packed.read_bytes()
    with tarfile.open(packed) as archive:
        assert {member.mtime for member in archive.getmembers()} == {1767225600}


@pytest.fixture
def build_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """What builds the compiled products, with a compiler that knows neither flags nor complex numbers of C99."""
    setuptools = pytest.importorskip(
        "setuptools", minversion="77", reason="needs setuptools 77, which builds the package"
    )
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    command = runpy.run_path(str(ROOT / "setup.py"))["BuildRows"](setuptools.Distribution())
    command.compiler = SimpleNamespace(compiler_type="msvc")
    monkeypatch.setattr(command, "get_ext_fullpath", lambda _: str(tmp_path / "_rows.pyd"))
    (tmp_path / "_rows.pyd").touch()
    return command


def test_a_compiler_that_cannot_is_named_aloud(
    build_rows: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_rows.build_extension(SimpleNamespace(name="deeplinear._equations._rows"))
    said = capsys.readouterr().err
    assert "are not compiled: this compiler has no complex numbers of C99.\nNumPy computes them" in said
    assert not list(tmp_path.iterdir()), "what an earlier build has left would be taken for this one's"


def test_who_needs_compiled_products_has_an_error(build_rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPLINEAR_COMPILED", "require")
    with pytest.raises(OSError, match="this compiler has no complex numbers of C99"):
        build_rows.build_extension(SimpleNamespace(name="deeplinear._equations._rows"))


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
