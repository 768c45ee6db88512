import gc
import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

# Matrices of tests are small, and tests run beside each other: threads of BLAS would mostly wait for one another, in
# loops that take whole cores. Read when NumPy and SciPy are loaded, here and in the processes that tests start.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# What a shell starts in the background ignores interrupts, and so would all processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("agreement", "command_line", "explorer", "explorer_page", "sweeps")

from browser import browser  # noqa: E402, F401
from command_line import in_folder  # noqa: E402, F401
from sweeps import counting  # noqa: E402, F401


@pytest.fixture(autouse=True)
def _rules_of_a_test_are_forgotten():
    """Classes of update rules that a test makes are not among the kinds that the next one lists."""
    from deeplinear._rules.rule import KNOWN

    known = dict(KNOWN)
    yield
    KNOWN.clear()
    KNOWN.update(known)


def pytest_collection_finish() -> None:
    """Spare the garbage collector what has been imported and collected, which stays: half a million objects."""
    _draw_once()
    gc.freeze()


@given(st.none())
def _draw_once(_: None) -> None:
    """Draw, so that Hypothesis meets its generators of random numbers while the garbage collector still knows them."""


@pytest.fixture
def entries_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep correlations by their entries alone, of which rounding takes more than of roots."""
    monkeypatch.setattr("deeplinear._solvers.dense._MOST_ROOTED", 0)
