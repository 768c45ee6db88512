"""Errors as sentences."""

from deeplinear._core.failures import in_words
from deeplinear._solvers.base import Unresolved


def test_what_is_not_resolved_says_so_in_its_own_words():
    """It is an error of arithmetic too, but not of numbers that overflow."""
    assert in_words(Unresolved("panels have reached step 40; lower lr")) == "panels have reached step 40; lower lr"
    assert "overflow" in in_words(OverflowError("math range error"))
