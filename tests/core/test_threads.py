"""One thread for BLAS, in every library that has been loaded."""

import sys
from types import ModuleType

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from deeplinear._core import threads


def test_libraries_are_looked_for_again_when_modules_have_been_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    known = threads._libraries()
    assert threads._libraries() is known
    monkeypatch.setitem(sys.modules, "imported_later", ModuleType("imported_later"))  # it may have brought a library
    again = threads._libraries()
    assert again is not known
    assert again.info() == known.info() == threadpool_info()


def test_every_library_has_one_thread_in_the_block() -> None:
    def counts() -> set[int]:
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2, user_api="blas"):  # tests have one
        assert counts() == {2}
        with threads.one_blas_thread():
            assert counts() == {1}
        assert counts() == {2}
