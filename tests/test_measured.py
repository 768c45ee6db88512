"""Tables of the documentation that take long to measure: some of their cells again."""

import pytest

from documentation import DOCS, script

measured = script(DOCS / "measured.py")


@pytest.mark.parametrize(("source", "depth"), [(0.3, 1), (0.5, 3)])
def test_slopes_of_hard_tasks(source, depth):
    """At a rate 1e5 times larger and to the end of the first decade only, which differ by less than is shown."""
    rows = {tuple(row[:3]): row[3:] for row in measured.read("hard_tasks")[1:]}
    (slope,) = measured.hard_task(source, depth, lr=1e5 * measured.LR, last=2)
    assert slope == pytest.approx(float(rows["5", f"{source:g}", str(depth)][0]), abs=1e-3)


def test_deeper_networks_are_closer_to_the_law_of_their_depth():
    for _, _, depth, *_, slope, law, of_one_layer in measured.read("hard_tasks")[1:]:
        if depth != "1":
            assert abs(float(slope) - float(law)) < abs(float(slope) - float(of_one_layer))


def test_small_batches():
    """With a third of the networks: the standard error of the mean loss is then 0.5 %."""
    header, *rows = measured.read("small_batches")
    found = measured.small_batch(richness=1.0, batch=1, networks=500)
    for row, deviation in zip(rows[2:], found, strict=True):
        assert 100 * deviation == pytest.approx(float(row[header.index("B = 1")].removesuffix(" %")), abs=1.0)
