"""Fields of problems by name."""

import pytest

import deeplinear as dl
from deeplinear._problem.edit import about_field, field_names, get_field, replace, replace_unchecked


@pytest.fixture
def problem():
    return dl.Problem(
        dl.ResNet(3, 1.0), dl.Isotropic(0.2), dl.MultiPassSGD(2.0, 0.5), dl.GradientDescent([0.1, 0.2]), 2
    )


def test_every_field_has_a_short_and_a_long_name(problem):
    names = field_names(problem)
    assert len(set(names)) == len(names)
    assert {"depth", "branch", "noise", "samples", "batch", "lr", "steps"} <= set(names)
    assert get_field(problem, "branch") == get_field(problem, "network.branch") == 1.0
    assert get_field(problem, "steps") == 2


def test_replaces_several_fields_of_several_parts_at_once(problem):
    changed = replace(problem, {"width": 3, "sampling.samples": 4.0, "batch": 3.0, "steps": 3, "lr": [0.1] * 3})
    assert changed.network == dl.ResNet(3, 3.0)
    assert changed.sampling == dl.MultiPassSGD(4.0, 3.0)
    assert (changed.steps, changed.optimizer.lr, changed.data) == (3, (0.1, 0.1, 0.1), problem.data)
    assert problem.network.width == 1.0


def test_replaces_whole_parts_and_fields_of_these(problem):
    changed = replace(problem, {"network": dl.MLP(2, [1.0, 2.0]), "width": 0.5, "sampling": dl.Population()})
    assert (changed.network, changed.sampling) == (dl.MLP(2, 0.5), dl.Population())


def test_a_law_is_replaced_by_what_it_is_made_from(problem):
    law = replace(problem, {"data": dl.Spectrum.power_law(1.5, 0.5)})
    assert "eigenvalues" not in field_names(law)
    assert replace(law, {"capacity": 2.0, "noise": 0.1}).data == dl.Spectrum.power_law(2.0, 0.5, noise=0.1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"widht": 1.0}, r"'widht' is not a field of this problem \(did you mean 'width'\?\); allowed: depth, width"),
        ({"data.width": 1.0}, "'data.width' is not a field"),
        (
            {"sampling": dl.Population(), "samples": 1.0},
            "'samples' is not a field of this problem: sampling is Population, and FullBatch and MultiPassSGD have it",
        ),
        ({"rho": 1.0}, "'rho' is not a field of this problem: optimizer is GradientDescent, and SAM has it; allowed"),
        ({"width": 1.0, "network.width": 2.0}, "width must be given once, got it as width and network.width"),
        ({"width": -1.0}, "width must be a positive finite number, got -1.0"),
        ({"batch": 5.0}, r"batch must be at most samples \(2.0\), got 5.0"),
        ({"steps": 3}, "lr must be one number or one per step"),
        ({"network": 3}, "network must be MLP or ResNet, got 3"),
        ({"network": 3, "width": 1.0}, "'width' is not a field"),
    ],
)
def test_refusals(problem, values, message):
    with pytest.raises(ValueError, match=message):
        replace(problem, values)


@pytest.fixture
def program():
    muon = dl.Muon(0.02, other=dl.GradientDescent(0.1))
    phases = (dl.Phase(3), dl.Phase(3, 0.5, sampling=dl.OnlineSGD(0.5), noise=0.4, optimizer=muon))
    return dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.2), dl.FullBatch(2.0), muon, 6, phases)


def test_fields_inside_of_rules_and_phases_have_paths(program):
    assert get_field(program, "lr") == 0.02
    assert get_field(program, "other.lr") == get_field(program, "optimizer.other.lr") == 0.1
    assert get_field(program, "phases.1.batch") == get_field(program, "phases.1.sampling.batch") == 0.5
    assert get_field(program, "phases.1.other.lr") == 0.1
    assert about_field(program, "phases.1.noise").label == "Label noise"
    assert not [name for name in field_names(program) if "." in name]


def test_replaces_fields_inside_of_rules_and_phases(program):
    values = {"other.momentum": 0.5, "phases.1.noise": 0.0, "phases.1.optimizer.lr": 0.03, "phases.1.other.lr": 0.2}
    changed = replace(program, values | {"lr": 0.01, "phases.0.target_overlap": 1.0})
    assert changed.optimizer == dl.Muon(0.01, other=dl.GradientDescent(0.1, 0.5))
    assert changed.phases[1].optimizer == dl.Muon(0.03, other=dl.GradientDescent(0.2))
    assert (changed.phases[1].noise, changed.phases[0]) == (0.0, program.phases[0])
    plain = replace(program, {"phases.1.optimizer": dl.GradientDescent(0.3), "other": None})
    assert (plain.phases[1].optimizer, plain.optimizer.other) == (dl.GradientDescent(0.3), None)


def test_phases_may_be_given_with_fields_of_theirs_and_set_the_steps(program):
    assert replace(program, {"phases.0.steps": 5}).steps == 8
    again = replace(
        program, {"phases": [dl.Phase(2), dl.Phase(2)], "phases.1.target_overlap": 0.1, "phases.1.steps": 4}
    )
    assert (again.phases, again.steps) == ((dl.Phase(2), dl.Phase(4, 0.1)), 6)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"phases.2.noise": 1.0},
            "'phases.2.noise' is not a field of this problem .*; allowed: depth, .*phases.1.noise",
        ),
        ({"phases.0.lr": 1.0}, "'phases.0.lr' is not a field of this problem"),
        ({"phases.0.steps": 5, "steps": 6}, r"phases must add up to the 6 steps of the problem"),
        ({"phases.1.noise": -1.0}, "noise must be a finite number, zero or above, got -1.0"),
        ({"other": None, "other.lr": 0.1}, "other must be given whole, or some of its fields, got both"),
        ({"other.lr": 0.1, "optimizer.other.lr": 0.2}, "lr must be given once"),
        ({"phases": 3}, "phases must be a sequence of Phase, got 3"),
    ],
)
def test_refusals_inside_of_rules_and_phases(program, values, message):
    with pytest.raises(ValueError, match=message):
        replace(program, values)


def test_unchecked_values_enter_the_formulas_of_their_part(problem):
    changed = replace_unchecked(problem, {"samples": 2j, "network.parameterization": "ntk", "width": 4 + 0j})
    assert changed.sampling.reuse == -0.5j
    assert changed.network.gamma0 == 0.5 + 0j
    assert problem.sampling.samples == 2.0


def test_a_problem_replaces_its_own_fields_by_name(problem):
    changed = problem.replace({"network.width": 2.0}, noise=0.5, lr=0.1, steps=3)
    assert changed == replace(problem, {"width": 2.0, "noise": 0.5, "lr": 0.1, "steps": 3})
    assert problem.replace() == problem
    with pytest.raises(ValueError, match="'learning_rate' is not a field of this problem; allowed: depth, width"):
        problem.replace(learning_rate=0.1)
