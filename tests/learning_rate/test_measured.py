"""Tables of the documentation that take long to measure: some of their cells again."""

import numpy as np
import pytest

from documentation import DOCS, script

measured = script(DOCS / "measured.py")


@pytest.mark.slow
@pytest.mark.parametrize(("source", "depth"), [(0.3, 1), (0.5, 2)])
def test_slopes_of_hard_tasks(source, depth):
    """At a rate 1e5 times larger and to the end of the first decade only, which differ by less than is shown."""
    rows = {tuple(row[:3]): row[3:] for row in measured.read("hard_tasks")[1:]}
    (slope,) = measured.hard_task(source, depth, lr=1e5 * measured.LR, last=2)
    assert slope == pytest.approx(float(rows["5", f"{source:g}", str(depth)][0]), abs=1e-3)


def test_deeper_networks_are_closer_to_the_law_of_their_depth():
    for _, _, depth, *_, slope, law, of_one_layer in measured.read("hard_tasks")[1:]:
        if depth != "1":
            assert abs(float(slope) - float(law)) < abs(float(slope) - float(of_one_layer))


@pytest.mark.slow
def test_small_batches():
    """With a sixth of the networks, whose own error is found alike."""
    header, *rows = measured.read("small_batches")
    found = measured.small_batch(richness=1.0, batch=1, networks=250)
    for row, (deviation, error) in zip(rows[2:], found, strict=True):
        recorded, its_error = map(float, row[header.index("B = 1")].removesuffix(" %").split(" ± "))
        assert abs(100 * deviation - recorded) < 4 * np.hypot(100 * error, its_error)


def test_expected_deviations():
    """Counts add up, and where a deviation was seen it is most often within a factor of 3 of what was expected."""
    for row in measured.read("finite_size")[1:]:
        dim, networks, seen, within_2, within_3, high, low, others, too_high = map(int, row)
        assert networks == measured.SIZES[dim]
        assert seen + others == measured.PROBLEMS
        assert within_2 <= within_3 == seen - high - low
        assert within_3 > high + low
        assert too_high <= others
