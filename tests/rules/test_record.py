"""Losses of random problems with every update rule are those on record, of when each engine had rules of its own."""

import json

import pytest

from documentation import ROOT, script

RECORD = script(ROOT / "benchmarks" / "rules_record.py")
KEPT = json.loads(RECORD.RECORD.read_text())["problems"]


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 10))])
def test_losses_are_those_on_record(part):
    for number in range(part, RECORD.PROBLEMS, 10):
        assert RECORD.deviation(RECORD.losses(number), KEPT[number]) <= 1.0, number
