"""Problem objects: what is refused and how, equality, printing, TOML."""

import dataclasses
import math
import pickle
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings

import deeplinear as dl
from deeplinear._core import checks
from deeplinear._core.about import described, parts_of
from deeplinear._core.refusal import Refusal
from deeplinear._rules.series import series_values
from factories import maker
from strategies import problems

problem = maker("width", depth=2, width=1.0, sampling=dl.FullBatch(2.0), lr=0.1, steps=10)


REFUSED = [
    # what is tried, and what the message must say: argument, what is allowed, value
    (lambda: dl.MLP(0, 1.0), r"depth must be a whole number, at least 1, got 0"),
    (lambda: dl.MLP(2.5, 1.0), r"depth must be a whole number, at least 1, got 2.5"),
    (lambda: dl.MLP(True, 1.0), r"depth must be a whole number, at least 1, got True"),
    (lambda: dl.MLP("3", 1.0), r"depth must be a whole number, at least 1, got '3'"),
    (lambda: dl.MLP(math.inf, 1.0), r"depth must be a whole number, at least 1, got inf"),
    (lambda: dl.MLP(2, 0), r"width must be a positive finite number, got 0"),
    (lambda: dl.MLP(2, -1.0), r"width must be a positive finite number, got -1.0"),
    (lambda: dl.MLP(2, math.nan), r"width must be a positive finite number, got nan"),
    (lambda: dl.MLP(2, math.inf), r"width must be a positive finite number, got inf; for the limit write 'infinite'"),
    (
        lambda: dl.MLP(2, "wide"),
        r"width must be a positive finite number, one for each hidden layer, or 'infinite', got 'wide'",
    ),
    (lambda: dl.MLP(2, [1.0, -2.0]), r"width\[1\] must be a positive finite number, got -2.0"),
    (lambda: dl.MLP(2, [1.0, 2.0, 3.0]), r"width must be one number or one per hidden layer \(2\), got 3 values"),
    (lambda: dl.MLP(2, 1.0, richness=0), r"richness must be a positive finite number, got 0"),
    (lambda: dl.MLP(2, 1.0, richness=math.inf), r"richness must be a positive finite number, got inf"),
    (lambda: dl.MLP(2, 1.0, parameterization="sp"), r"parameterization must be 'mup' or 'ntk' or 'standard', got 'sp'"),
    (lambda: dl.MLP(2, 1.0, centered=1), r"centered must be True or False, got 1"),
    (lambda: dl.Isotropic(noise=-0.1), r"noise must be a finite number, zero or above, got -0.1"),
    (lambda: dl.Isotropic(noise=math.nan), r"noise must be a finite number, zero or above, got nan"),
    (lambda: dl.Isotropic(target_gram=[[1, 2], [3, 4]]), r"target_gram must be symmetric, got"),
    (lambda: dl.Isotropic(target_gram=[[1, 2], [2, 1]]), r"target_gram must be positive semidefinite, got lowest"),
    (lambda: dl.Isotropic(target_gram=[1, 2]), r"target_gram must be a square matrix, got shape \(2,\)"),
    (lambda: dl.Isotropic(target_gram=[[math.nan]]), r"target_gram must have finite entries"),
    (lambda: dl.Isotropic(target_gram="one"), r"target_gram must be a square matrix of numbers, got 'one'"),
    (lambda: dl.FullBatch(0), r"samples must be a positive finite number, got 0"),
    (lambda: dl.FullBatch(math.inf), r"samples must be a positive finite number, got inf"),
    (lambda: dl.OnlineSGD(-1), r"batch must be a positive finite number, got -1"),
    (lambda: dl.OnlineSGD(math.nan), r"batch must be a positive finite number, got nan"),
    (lambda: dl.MultiPassSGD(1.0, 2.0), r"batch must be at most samples \(1.0\), got 2.0"),
    (lambda: dl.MultiPassSGD(-1.0, 2.0), r"samples must be a positive finite number, got -1.0"),
    (lambda: dl.GradientDescent(0), r"lr must be a positive finite number, got 0"),
    (lambda: dl.GradientDescent(math.nan), r"lr must be a positive finite number, got nan"),
    (lambda: dl.GradientDescent([0.1, math.nan]), r"lr\[1\] must be a finite number, zero or above, got nan"),
    (lambda: dl.GradientDescent([0.1, -0.1]), r"lr\[1\] must be a finite number, zero or above, got -0.1"),
    (lambda: dl.GradientDescent("fast"), r"lr must be a positive finite number, got 'fast'"),
    (
        lambda: dl.GradientDescent(0.1, momentum=1.0),
        r"momentum must be a number from 0 up to .* 1, got 1",
    ),
    (lambda: dl.GradientDescent(0.1, weight_decay=-1), r"weight_decay must be a finite number, zero or above, got -1"),
    (lambda: dl.GradientDescent(0.1, nesterov=True), r"nesterov must be False without momentum"),
    (lambda: dl.schedules.piecewise(0.1, at=[0.5, 0.2], factors=[0.5, 0.1]), r"at must be in rising order, got"),
    (
        lambda: dl.schedules.piecewise(0.1, at=[0.5], factors=[0.5, 0.1]),
        r"factors must be one for each of at \(1\), got",
    ),
    (lambda: dl.schedules.piecewise(0.1, at=0.5, factors=[0.1]), r"at must be a list of numbers, got 0.5"),
    (lambda: problem(steps=0), r"steps must be a whole number, at least 1, got 0"),
    (lambda: problem(steps=1.5), r"steps must be a whole number, at least 1, got 1.5"),
    (
        lambda: problem(optimizer=dl.GradientDescent([0.1] * 9)),
        r"lr must be one number or one per step .* got 9",
    ),
    (lambda: problem(optimizer=dl.GradientDescent(lambda step: -1)), r"lr\[0\] must be a finite number, zero or above"),
    (lambda: problem(network="MLP"), r"network must be MLP or ResNet, got 'MLP'"),
    (
        lambda: dataclasses.replace(problem(), sampling=None),
        r"sampling must be Population or FullBatch or .*, got None",
    ),
]


@pytest.mark.parametrize(("attempt", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_bad_values_are_refused_by_name(attempt, message):
    with pytest.raises(Refusal, match=message) as refused:
        attempt()
    found = refused.value
    assert message.startswith(found.field)  # a name has no letter that means more in a regular expression
    assert found.allowed in str(found)
    copy = pickle.loads(pickle.dumps(found))
    assert str(copy) == str(found)
    assert (copy.field, copy.allowed) == (found.field, found.allowed)


def test_a_refusal_carries_the_value():
    with pytest.raises(Refusal) as refused:
        dl.MLP(2, [1.0, -2.0])
    assert (refused.value.field, refused.value.value, refused.value.allowed) == ("width", -2.0, checks.positive.allowed)


def test_every_field_says_what_it_is():
    for part, about in parts_of(dl.Problem).items():
        assert about.start in about.kinds
        for kind in about.kinds:
            assert {each.name for each in described(kind)} == {each.name for each in fields(kind) if each.init}, part
            assert kind.kind.option
            for each in described(kind):
                assert each.about.help.endswith(".")
                assert each.about.allowed
                if each.about.check and not each.is_required:
                    each.about.check(each.name, each.default)


def test_numbers_of_other_kinds_are_taken():
    network = dl.MLP(np.int64(3), np.float32(0.5), richness=2)
    assert network == dl.MLP(3, 0.5, 2.0)
    assert isinstance(network.depth, int)
    assert isinstance(network.richness, float)
    assert dl.MLP(2, np.array([1.0, 2.0])).width == (1.0, 2.0)
    assert dl.MLP(2, [1.5, 1.5]) == dl.MLP(2, 1.5)


def test_a_constant_rate_takes_no_room_however_many_the_steps():
    assert problem(steps=10**15).steps == 10**15


def test_layers_take_no_room_however_many_there_are():
    deep = dl.ResNet(10**15, 1.0, init_scale={"hidden": 0.5})
    assert problem(network=deep, optimizer=dl.GradientDescent(0.1, layer_lr={"input": 0})).network.depth == 10**15
    assert dl.MLP(10**15, 1.0).log_initial_gain == 0.0


def test_problems_are_immutable_comparable_hashable_and_printable():
    one, other = problem(), problem()
    assert one == other
    assert hash(one) == hash(other)
    assert one != problem(steps=11)
    assert eval(repr(one), vars(dl)) == one
    with pytest.raises(AttributeError):
        one.steps = 3
    with pytest.raises(AttributeError):
        one.network.depth = 3


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems())
def test_toml_round_trip(drawn):
    again = dl.Problem.from_toml(drawn.to_toml())
    if callable(drawn.optimizer.lr):
        assert again.optimizer.lr == tuple(drawn.optimizer.rates(drawn.steps))
    else:
        assert again == drawn


def test_a_file_round_trip(tmp_path):
    path = tmp_path / "problem.toml"
    problem().save(path)
    assert dl.Problem.load(path) == problem()
    assert [file.name for file in tmp_path.iterdir()] == ["problem.toml"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("depth", "dept", r"'dept' \(did you mean 'depth'\?\) is not known in network; allowed: type, depth, width"),
        ("steps", "step", r"'step' \(did you mean 'steps'\?\) is not known in the problem; allowed: network, data, "),
        (
            "depth = 2",
            "dept = 2\nwidht = 3",
            r"'dept' .* and 'widht' .*'width'\?\) are not known in network",
        ),
        ("[data]", "[data]\nlr = 1\n[extra]", r"'extra' is not known in the problem.*'lr' is not known in data"),
        ('"MLP"', '"CNN"', r"network.type must be 'MLP' or 'ResNet', got 'CNN'"),
        ("samples = 2.0", "", r"sampling: missing 1 required positional argument: 'samples'"),
        ("depth = 2", "depth = ", r"is not valid TOML"),
        ("steps = 10", "", r"missing: steps"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path, old, new, message):
    path = tmp_path / "problem.toml"
    path.write_text(problem().to_toml().replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        dl.Problem.load(path)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"the folder of .* does not exist"):
        problem().save(tmp_path / "missing" / "problem.toml")


def test_words_are_taken_as_they_are_printed() -> None:
    assert dl.MLP(2, 1.0, parameterization="muP") == dl.MLP(2, 1.0, parameterization="mup")
    assert dl.MLP(2, 1.0, parameterization="NTK").parameterization == "ntk"
    assert dl.ResNet(2, 1.0, branch_scaling="depth-muP") == dl.ResNet(2, 1.0)
    assert dl.MLP(2, "Infinite").width == "infinite"
    with pytest.raises(ValueError, match="record must be 'all' or 'losses', got 'ALL'"):
        dl.simulate(
            dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), 3), 5, record="ALL"
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dl.solve(3), "problem must be a Problem, or a sequence of them, got int"),
        (lambda: dl.solve("x"), "problem must be a Problem, or a sequence of them, got str"),
        (lambda: dl.estimate("x"), "problem must be a Problem, got 'x'"),
        (lambda: dl.first_step_growth(3), "problem must be a Problem, got 3"),
        (lambda: dl.first_rise_lr(3), "problem must be a Problem, got 3"),
        (lambda: dl.Problem.from_toml(3), "text must be TOML, as a string, got 3"),
        (
            lambda: dl.Problem(dl.MLP, dl.Isotropic(), dl.FullBatch(1.0), dl.GradientDescent(0.1), 3),
            r"network must be MLP or ResNet, got the class itself: write MLP\(...\)",
        ),
    ],
)
def test_a_wrong_type_is_refused_with_what_is_wanted(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_ratio_that_looks_like_a_count_gets_a_hint() -> None:
    with pytest.warns(UserWarning, match="width 512 is 512 times the input dimension D here"):
        dl.solve(problem(512, lr=0.01, steps=2))
    with pytest.warns(UserWarning, match="batch 64 is 64 times"):
        dl.simulate(problem(sampling=dl.OnlineSGD(64), steps=2), dim=3, seeds=1)
    counted = dl.Spectrum([1.0], [1.0])
    for fine in (problem(16.0), problem(100.5), problem(1e6), problem("infinite"), problem(512, data=counted)):
        assert fine.hint == ""


def test_schedules_of_millions_of_steps_are_checked_at_once() -> None:
    """Step by step they took seconds, also of an estimate; what is wrong is still named by its step."""
    asked = []

    def holds(value: float) -> bool:
        asked.append(value)
        return 0 <= value < math.inf

    each = checks.Number("a number in a range", holds)
    values = series_values("lr", dl.schedules.cosine(0.1), 10**6, each)
    assert len(asked) == 2
    np.testing.assert_array_equal(values, dl.schedules.cosine(0.1).values(10**6))
    below = checks.Number("a number in a range", lambda value: value < 0.05)
    with pytest.raises(ValueError, match=r"lr\[0\] must be a number in a range, got 0.1"):
        series_values("lr", dl.schedules.cosine(0.1), 100, below)


def test_parts_are_refused_with_names_that_can_be_imported() -> None:
    good = {"network": dl.MLP(2, 1.0), "data": dl.Isotropic(), "sampling": dl.Population()}
    good["optimizer"] = dl.GradientDescent(0.1)
    for name in good:
        with pytest.raises(ValueError, match=f"{name} must be .*, got 3") as refused:
            dl.Problem(**good | {name: 3}, steps=4)
        named = str(refused.value).removeprefix(f"{name} must be ").partition(", got")[0].split(" or ")
        assert all(hasattr(dl, each) for each in named)
    with pytest.raises(ValueError, match=r"data is Isotropic, and Spectrum\.power_law has it"):
        dl.Problem(**good, steps=4).replace(capacity=2.0)
