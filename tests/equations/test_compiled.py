"""A compiled module is used only with the source that it was compiled from."""

import importlib
import shutil
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import SimpleNamespace

import pytest

import deeplinear._equations
from deeplinear._equations import compiled, products
from needs import need

FOLDER = Path(__file__).parents[2] / "src" / "deeplinear" / "_equations"


@pytest.fixture
def sources(tmp_path):
    if not FOLDER.exists():
        pytest.skip("the source is not here: an installed package is tested")
    for name in compiled.SOURCES:
        shutil.copy(FOLDER / name, tmp_path)
    return tmp_path


def need_compiled():
    need("compiled", products._rows is not None, "install gcc and Python's headers, then the package again")


def test_it_is_used_with_its_own_source(sources):
    need_compiled()
    assert compiled.load(sources) is products._rows


@pytest.mark.parametrize("name", compiled.SOURCES)
def test_a_source_that_has_changed_since_is_told(sources, name):
    need_compiled()
    with (sources / name).open("a") as file:
        file.write("\n")
    with pytest.warns(RuntimeWarning, match="install the package again"):
        assert compiled.load(sources) is None


@pytest.fixture
def of_the_package(tmp_path, monkeypatch):
    """A folder in place of that of the package, where the compiled module is looked for."""
    monkeypatch.setattr(deeplinear._equations, "__path__", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, compiled.MODULE, raising=False)
    monkeypatch.delattr(deeplinear._equations, "_rows", raising=False)
    importlib.invalidate_caches()
    return tmp_path


def test_none_that_was_compiled_is_no_cause_for_a_warning(of_the_package):
    assert compiled.load(of_the_package) is None


def test_one_that_does_not_load_is_told(of_the_package):
    (of_the_package / f"_rows{EXTENSION_SUFFIXES[0]}").write_bytes(b"of another machine")
    with pytest.warns(
        RuntimeWarning, match=r"do not load \(.*_rows.*\), so NumPy computes them.*install the package again"
    ):
        assert compiled.load(of_the_package) is None


def test_one_that_does_not_know_its_source_is_stale(sources):
    assert compiled.is_stale(SimpleNamespace(), sources)


def test_an_installation_without_sources_has_nothing_to_compare(tmp_path):
    assert not compiled.is_stale(SimpleNamespace(), tmp_path)
