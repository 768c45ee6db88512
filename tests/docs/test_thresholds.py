"""Numbers of steps from which on runs are solved otherwise stand in texts as they stand in the code."""

import re

import pytest

from deeplinear._solvers.choose import _SHORT_ON_DEVICE, SHORT, SHORT_CURVE
from documentation import ROOT

STATED = {
    "src/deeplinear/_theory/solve.py": [SHORT_CURVE, SHORT, _SHORT_ON_DEVICE],
    "docs/choose.md": [SHORT_CURVE, SHORT],
    "docs/explore.md": [SHORT],
    "docs/theory/condensed.md": [SHORT, SHORT_CURVE],
    "src/deeplinear/_learning_rate/stable.py": [SHORT_CURVE],
    "src/deeplinear/_learning_rate/optimal.py": [SHORT_CURVE],
}
THRESHOLD = re.compile(r"(?:than|above|most|from)\s+(\d+)\s+steps\s+(?:times\s+outputs|on\b)")


@pytest.mark.parametrize("path", STATED)
def test_texts_state_the_thresholds_of_the_code(path: str) -> None:
    found = {int(number) for number in THRESHOLD.findall((ROOT / path).read_text())}
    assert found == set(STATED[path])


def test_no_other_text_states_one() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py"), ROOT / "README.md"]
    stating = {page.relative_to(ROOT).as_posix() for page in pages if THRESHOLD.search(page.read_text())}
    assert stating == set(STATED)
