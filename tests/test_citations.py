"""What a result is cited with."""

import re

import pytest

import deeplinear as dl
from deeplinear._citations import OF_NETWORK, OF_RULE, entries
from factories import maker


def keys(of):
    return re.findall(r"^@\w+\{(\w+),$", dl.citations(of), re.M)


problem = maker("network", "optimizer", sampling=dl.FullBatch(2.0), steps=4)
BASE = ["deeplinear", "bordelon2025deep"]
GD = dl.GradientDescent(0.01)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (problem(dl.MLP(2, 1.0, parameterization="standard"), GD), []),
        (problem(dl.MLP(2, 1.0), GD), ["yang2021tuning"]),
        (problem(dl.ResNet(2, 1.0), GD), ["yang2021tuning", "bordelon2024depthwise", "yang2024tensor"]),
        (problem(dl.ResNet(2, 1.0, branch_scaling=1.0), GD), ["yang2021tuning", "dey2025lazy"]),
        (problem(dl.ResNet(2, 1.0, branch_scaling="none"), GD), ["yang2021tuning"]),
        (
            problem(dl.MLP(2, 1.0), GD, phases=(dl.Phase(2, optimizer=dl.ScheduleFree(0.01)), dl.Phase(2))),
            ["yang2021tuning", "defazio2024road"],
        ),
        (problem(dl.MLP(2, 1.0), dl.Muon(0.01)), ["yang2021tuning", "jordan2024muon"]),
    ],
)
def test_it_names_what_the_problem_has(made, expected):
    assert keys(made) == BASE + expected


def test_a_result_is_cited_as_its_problem():
    made = problem(dl.MLP(2, 1.0), GD)
    assert dl.citations(dl.solve(made)) == dl.citations(made)
    assert dl.citations(dl.simulate(made, dim=6, seeds=2)) == dl.citations(made)
    assert dl.citations(dl.compare(dl.solve(made), dl.simulate(made, dim=20, seeds=4))) == dl.citations(made)
    assert f"version = {{{dl.__version__}}}" in dl.citations(made)


def test_what_has_no_problem_is_refused():
    for other in (3, dl.max_stable_lr(problem(dl.MLP(1, 1.0), GD))):
        with pytest.raises(ValueError, match=r"of must be a problem.*pass the problem itself"):
            dl.citations(other)


def test_every_entry_is_whole_and_used():
    known = entries()
    listed = [keys for table in (*OF_NETWORK.values(), OF_RULE) for keys in table.values()]
    assert {*known} == {*BASE, *(key for keys in listed for key in keys)}
    for key, text in known.items():
        assert text.count("{") == text.count("}"), key
        for field in ("author", "title", "year"):
            assert re.search(rf"^  {field} = \{{.+\}},?$", text, re.M), (key, field)
