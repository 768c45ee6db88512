"""Many long runs on one grid, as on a device; PyTorch on the processor stands in for a graphics card."""

from dataclasses import replace

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.device import CPU, Device, find_device
from deeplinear._equations.coefficients import coefficients, structure
from deeplinear._equations.products import solve_block
from deeplinear._equations.system import Equations, kept
from deeplinear._equations.training import growing_weights
from deeplinear._equations.two_time import Causal, Room
from deeplinear._solvers.base import Unresolved
from deeplinear._solvers.choose import Choice, answers, batches
from deeplinear._solvers.panels import solver
from deeplinear._solvers.panels.run import PanelRun
from deeplinear._solvers.panels.settle import Sweeps, Unknown
from deeplinear._solvers.panels.solver import FEW, Panels
from deeplinear._theory.sensitivity import derivatives
from deeplinear._time.grid import Grid
from deeplinear._time.propagator import GridPropagator
from factories import maker, some_slow
from needs import need_torch

DEVICE = "torch:cpu"
TOLERANCE = 1e-6

make = maker("width", "sampling", depth=2, width=0.8, noise=0.3, sampling=dl.FullBatch(1.5), lr=0.01, steps=160)


@pytest.fixture(scope="module")
def device():
    need_torch()
    return find_device(DEVICE)


@pytest.fixture
def _any_number(monkeypatch):
    monkeypatch.setattr(solver, "FEW", 2)


def spectrum(index):
    return dl.Spectrum([2.0, 0.3, 0.05], [0.3, 1.0, 2.0], [0.2, 0.5, 0.3], proportional=True, noise=0.1 * index)


def falling(index):
    return (0.01 * (1 + 0.2 * index) * (1 + np.cos(np.pi * np.arange(160) / 160))).tolist()


GRAM = [[1.0, 0.3], [0.3, 0.5]]

KINDS = {
    "full batch": lambda i: {"sampling": dl.FullBatch(1.2 + 0.3 * i), "lr": 0.01 * (1 + 0.2 * i)},
    "population": lambda i: {"sampling": dl.Population(), "richness": 0.4 + 0.2 * i},
    "weight decay": lambda i: {"weight_decay": 0.05 * (1 + i), "centered": True},
    "spectrum": lambda i: {"data": spectrum(i), "sampling": dl.FullBatch(1.0 + 0.4 * i)},
    "centered": lambda i: {"centered": True, "richness": 0.3 + 0.2 * i},
    "residual": lambda i: {"network": dl.ResNet, "depth": 3, "branch": 0.5 + 0.1 * i},
    "two outputs": lambda i: {"gram": GRAM, "noise": 0.1 * (1 + i)},
    "schedule": lambda i: {"lr": falling(i), "weight_decay": 0.1},
    "jump": lambda i: {"lr": [0.01 * (1 + 0.1 * i)] * 80 + [0.003 * (1 + i)] * 80},
    "phases": lambda i: {"phases": (dl.Phase(80), dl.Phase(80, target_overlap=0.2 * i, noise=0.1 * i))},
}


def some(kind, count=6):
    return [make(0.6 + 0.2 * index, **KINDS[kind](index)) for index in range(count)]


def outcomes(problems, **options):
    """What becomes of each problem of a list: an answer, or the reason why there is none."""
    try:
        return Panels(TOLERANCE, **options).solve(problems)
    except Unresolved as reason:
        return reason.outcomes


def losses(answer, name="test_loss"):
    steps = np.arange(round(answer.axis.times[-1]) + 1 if answer.diverged_at is None else answer.diverged_at)
    return answer.axis.at(getattr(answer.curves, name), steps)


def assert_as_alone(actual, expected):
    allowed = 10 * max(actual.stats["error"], expected.stats["error"], 1e-12)
    assert (actual.diverged_at, actual.rounding_at) == (expected.diverged_at, expected.rounding_at)
    assert actual.stats["error"] <= TOLERANCE
    for name in ("test_loss", "train_loss"):
        ours, theirs = losses(actual, name), losses(expected, name)
        scale = np.maximum(theirs, expected.stats["error_floor"] * theirs[0])
        assert np.abs(ours - theirs).max() <= allowed * scale.max()
        assert (np.abs(ours - theirs) / scale).max() <= allowed


@pytest.mark.usefixtures("_any_number")
@pytest.mark.parametrize("kind", some_slow(KINDS, "centered", "jump", "spectrum"))
def test_a_batch_is_solved_as_each_problem_is_alone(device, kind):
    problems = some(kind)
    (members,) = Panels(device=device).batches(problems)
    actual, expected = (outcomes([problems[i] for i in members], device=each) for each in (device, CPU))
    assert {answer.stats["batch"] for answer in actual} == {len(problems)}
    assert {answer.stats["nodes"] for answer in actual} == {len(actual[0].axis.times)}
    for ours, theirs in zip(actual, expected, strict=True):
        assert_as_alone(ours, theirs)


@pytest.mark.usefixtures("_any_number")
def test_solutions_of_a_batch_have_all_that_others_have(device):
    problems = some("full batch", 3)
    actual, expected = (dl.solve(problems, method="panels", device=name) for name in (DEVICE, "cpu"))
    for ours, theirs in zip(actual, expected, strict=True):
        assert type(ours.test_loss) is np.ndarray
        nodes = np.intersect1d(ours.times, theirs.times)
        at, there = (np.searchsorted(each.times, nodes) for each in (ours, theirs))
        np.testing.assert_allclose(ours.kernel[at], theirs.kernel[there], rtol=1e-5)
        for parts in ("decomposition", "variance"):
            mine, its = (vars(getattr(each, parts)) for each in (ours, theirs))
            for name, values in its.items():
                np.testing.assert_allclose(mine[name][at], values[there], rtol=1e-5, atol=1e-6)
        correlation = theirs.feature_correlation[:, there][..., there]
        np.testing.assert_allclose(ours.feature_correlation[:, at][..., at], correlation, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("_any_number")
@pytest.mark.parametrize("kind", some_slow(["full batch", "weight decay"], "weight decay"))
def test_errors_of_a_batch_are_honest(device, kind):
    problems = some(kind, 4)
    for answer, exact in zip(outcomes(problems, device=device), dl.solve(problems, method="dense"), strict=True):
        for name in ("test_loss", "train_loss"):
            loss, found = getattr(exact, name), losses(answer, name)
            floor = answer.stats["error_floor"] * loss[0]
            error = (np.abs(found - loss) / np.maximum(loss, floor)).max()
            assert error <= 10 * max(answer.stats["error"], 1e-12)


@pytest.mark.usefixtures("_any_number")
def test_derivatives_of_a_batch(device):
    points = [(problem, name) for problem in some("full batch", 2) for name in ("lr", "richness")]
    actual, expected = (derivatives(points, choice=Choice("panels", 1e-8, each)) for each in (device, CPU))
    for ours, theirs in zip(actual, expected, strict=True):
        scale = np.abs(theirs.slope.test_loss).max()
        np.testing.assert_allclose(ours.slope.test_loss, theirs.slope.test_loss, rtol=0, atol=1e-7 * scale)


def rising(top):
    return make(1.0, dl.FullBatch(4.0), depth=1, lr=np.linspace(0.05, top, 400).tolist(), steps=400)


LATE, EDGE = [rising(top) for top in (0.07, 0.08, 0.09)], rising(0.8)


@pytest.mark.usefixtures("_any_number")
def test_what_cannot_go_on_does_not_spoil_the_others(device):
    """One diverges, one oscillates, which takes a row for every step, and one is not stable any more later on."""
    smooth = [make(1.0, dl.Population(), lr=0.01 * (1 + index)) for index in range(4)]
    diverging, oscillating = (replace(smooth[0], optimizer=dl.GradientDescent(lr)) for lr in (1.5, 0.3))
    actual, expected = (outcomes([*smooth, diverging, oscillating], device=each) for each in (device, CPU))
    for ours, theirs in zip(actual, expected, strict=True):
        assert_as_alone(ours, theirs)
    assert [answer.stats["batch"] for answer in actual] == [4, 4, 4, 4, 1, 1]
    assert actual[-2].diverged_at is not None
    assert actual[-1].stats["lengths"].count(1) > 100

    actual, expected = (outcomes([EDGE, *LATE], device=each) for each in (device, CPU))
    assert str(actual[0]) == str(expected[0])
    assert "edge of stability" in str(actual[0])
    for ours, theirs in zip(actual[1:], expected[1:], strict=True):
        assert ours.stats["batch"] == len(LATE)
        assert_as_alone(ours, theirs)


@pytest.mark.usefixtures("_any_number")
def test_what_is_not_resolved_is_solved_in_another_way_for_itself(device, monkeypatch):
    monkeypatch.setattr("deeplinear._solvers.choose.SHORT", 100)
    monkeypatch.setattr("deeplinear._solvers.choose._SHORT_ON_DEVICE", 100)
    problems, found = [*LATE, EDGE], {}
    for each in (device, CPU):
        choice = Choice(device=each, patience=10.0)
        todo = batches(problems, choice)
        found[each] = [answer for _, solved in answers(problems, choice, todo) for answer in solved]
    assert len(todo) == len(problems)
    for actual, expected in zip(found[device], found[CPU], strict=True):
        assert actual.solver.name == expected.solver.name == ("panels" if actual.stats["batch"] > 1 else "condensed")
        np.testing.assert_allclose(losses(actual), losses(expected), rtol=1e-6)
    assert [answer.stats["batch"] for answer in found[device]] == [len(LATE)] * len(LATE) + [1]
    with pytest.raises(ArithmeticError, match="training is at the edge of stability around step"):
        dl.solve([*LATE, EDGE], method="panels", device=DEVICE)


@pytest.mark.usefixtures("_any_number")
def test_a_batch_of_which_nothing_is_left_is_solved_one_by_one(device):
    problems = [replace(each, optimizer=dl.GradientDescent(1.5)) for each in some("full batch", 2)]
    actual, expected = (outcomes(problems, device=each) for each in (device, CPU))
    assert [answer.diverged_at for answer in actual] == [answer.diverged_at for answer in expected]
    assert None not in [answer.diverged_at for answer in actual]


# Which problems are solved together ----------------------------------------------------------------------


def test_on_the_processor_problems_are_solved_one_by_one():
    assert list(Panels().batches(some("full batch", 3))) == [[0], [1], [2]]


def test_on_a_device_those_of_one_structure_and_schedule_are_solved_together(device, monkeypatch):
    monkeypatch.setattr(solver, "FEW", 2)
    panels, jumps = Panels(device=device), some("jump", 2)
    later = [replace(each, optimizer=dl.GradientDescent([0.01] * 50 + [0.002] * 110)) for each in jumps]
    problems = [*some("full batch", 2), *jumps, *later, *some("phases", 2), make(depth=1), *some("full batch", 1)]
    assert list(panels.batches(problems)) == [[0, 1, 9], [2, 3], [4, 5], [6, 7], [8]]


def test_few_are_solved_on_the_processor(device):
    problems, panels = some("full batch", FEW), Panels(device=device)
    assert list(panels.batches(problems)) == [list(range(FEW))]
    assert list(panels.batches(problems[1:])) == [[index] for index in range(FEW - 1)]
    assert panels.memory(problems) > panels.memory(problems[1:]) == 0
    (answer,) = panels.solve(problems[:1])
    assert isinstance(answer.run.equations.c.gamma0, np.ndarray)
    deep = [make(network=dl.ResNet, depth=np.inf, lr=0.001 * (1 + index)) for index in range(FEW)]
    assert list(panels.batches(deep)) == [[index] for index in range(FEW)]


def test_as_many_as_fit_are_solved_together(device, monkeypatch):
    monkeypatch.setattr(solver, "FEW", 2)
    problems, panels = some("full batch", 7), Panels(device=device)
    room = 3.5 * panels._bytes_together(problems[:1])
    monkeypatch.setattr(Device, "available", lambda place: 10**10 if place == CPU else int(room))
    assert list(panels.batches(problems)) == [[0, 1, 2], [3, 4], [5, 6]]
    with pytest.raises(MemoryError, match=r"needs about .* are available on torch:cpu; solve fewer problems at a time"):
        panels.solve(problems)
    answers = panels.solve(problems[:3])
    assert {answer.stats["batch"] for answer in answers} == {3}


def test_a_batch_that_needs_more_room_than_there_is_falls_apart(device, monkeypatch):
    """Which the estimate does not foresee; then they are solved on the processor."""
    monkeypatch.setattr(solver, "FEW", 2)
    problems, panels = some("full batch", 2), Panels(device=device)
    monkeypatch.setattr(Panels, "_bytes_together", lambda *_: 1)
    monkeypatch.setattr(Device, "available", lambda place: 10**10 if place == CPU else 10**6)
    assert [answer.stats["batch"] for answer in panels.solve(problems)] == [1, 1]


def test_panels_are_asked_for_on_a_device_as_anywhere(device):
    choice = Choice("panels", device=device)
    choice.check()
    (batch,) = batches(some("full batch", FEW), choice)
    assert (batch.solver.name, batch.solver.device) == ("panels", device)


# Parts ---------------------------------------------------------------------------------------------------


def test_sweeps_hold_what_stands_still_until_the_others_do():
    """Two linear sweeps, of which one converges fast; it ends as it does alone, whatever the other still needs."""
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((9, 9)) / 3.0

    def ended(factors):
        function = Causal(np.ones((len(factors), 3, 10)))

        def sweep():
            rows = zip(factors, function[slice(0, 3)].reshape(len(factors), 9), strict=True)
            swept = [1.0 + factor * np.tanh(row @ mixing).reshape(3, 3) for factor, row in rows]
            function[slice(0, 3)] = np.stack(swept)

        sweeps = Sweeps([Unknown(function)], slice(0, 3))
        ignore = np.zeros(len(factors), bool)
        residual = sweeps.settle(sweep, tolerance=1e-9, most_sweeps=60, ignore=ignore)
        return function.matrix[:, :, :3], residual, sweeps.count

    both, alone = ended([0.05, 0.9]), [ended([factor]) for factor in (0.05, 0.9)]
    assert both[2][0] < both[2][1]
    for index, (matrix, residual, count) in enumerate(alone):
        np.testing.assert_allclose(both[0][index], matrix[0], rtol=1e-13)
        np.testing.assert_allclose(both[1][index], residual[0], rtol=1e-3)
        assert both[2][index] == count[0]


def test_sweeps_give_up_what_overflows_and_go_on_with_the_others():
    function = Causal(np.ones((2, 2, 4)))

    def sweep():
        values = function[slice(0, 2)]
        function[slice(0, 2)] = np.stack([0.5 * values[0] + 0.5, values[1] * np.inf])

    with np.errstate(invalid="ignore", over="ignore"):
        sweeps = Sweeps([Unknown(function)], slice(0, 2))
        residual = sweeps.settle(sweep, tolerance=1e-9, most_sweeps=60, ignore=np.zeros(2, bool))
    assert residual[0] <= 1e-9
    assert not np.isfinite(residual[1])
    np.testing.assert_allclose(function.matrix[0, :, :2], 1.0, rtol=1e-8)


def test_learning_rates_of_a_batch_are_those_of_each():
    step = np.arange(60)
    rates = np.stack([0.02 / (1 + step / 100), 0.01 + 1e-4 * step, np.full(60, 0.03)])
    decays = np.array([[0.3], [0.0], [0.1]])
    grid = Grid()
    together = GridPropagator(rates, decays, grid)
    apart = [GridPropagator(rate, decay[0], grid) for rate, decay in zip(rates, decays, strict=True)]
    for length in [*[1] * 8, 20, 32]:
        grid.add(length)
        every, each = together.rows(), [one.rows() for one in apart]
        for ours, *theirs in zip(every, *each, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)
        if length == 20:
            together.keep(np.array([0, 2]))
            apart = [apart[0], apart[2]]
    np.testing.assert_allclose(together.rate, [one.rate for one in apart])


def test_a_room_is_copied_to_one_for_some_problems_of_a_batch():
    problems = [make(width, steps=6) for width in (0.5, 1.0, 2.0)]

    def equations(members, size):
        shape, c = structure(problems[0], 0, size), coefficients([problems[index] for index in members], 0, size)
        room = Room(shape.size, c.gamma0, c.batch * kept(shape))
        return Equations(c, growing_weights(c, room).layers, room)

    def filled(eq):
        for number, each in enumerate(eq.room.two_time):
            each.matrix[...] = number + np.random.default_rng(number).standard_normal(each.matrix.shape)
        return eq

    before, after = filled(equations([0, 1, 2], 6)), equations([0, 2], 4)
    before.room.copy_to(after.room, np.array([0, 2]))
    for old, new in zip(before.room.two_time, after.room.two_time, strict=True):
        assert new.matrix.shape[-1] == 4
        chosen = np.take(old.matrix, [0, 2], axis=old.matrix.shape[:-2].index(3))[..., :4, :4]
        np.testing.assert_array_equal(new.matrix, chosen)


def test_a_singular_block_spoils_no_other_on_a_device(device):
    blocks, rows = np.stack([np.zeros((3, 3)), np.eye(3), 0.5 * np.eye(3)]), np.ones((3, 3, 4))
    with pytest.raises(np.linalg.LinAlgError):
        solve_block(blocks, rows)
    solved = solve_block(device.put(blocks), device.put(rows)).numpy()
    np.testing.assert_allclose(solved[[0, 2]], [np.ones((3, 4)), np.full((3, 4), 2.0)])
    assert np.isnan(solved[1]).all()


def test_problems_are_cut_out_of_a_run():
    """The rest goes on as if it had been without them from the start."""
    problems = some("full batch", 3)
    run, rest = PanelRun(problems, TOLERANCE), PanelRun([problems[0], problems[2]], TOLERANCE)
    with np.errstate(under="ignore"):
        for each in (run, rest):
            each._single_steps(32)
        run._left_out[1] = True
        run._cut_out(run.equations.c.structure.steps)
        for each in (run, rest):
            each._panel(16)
    assert run.members.tolist() == [0, 2]
    assert run.nodes.problems == rest.nodes.problems
    np.testing.assert_allclose(run.error, rest.error, rtol=1e-3)
    ours, theirs = (each.equations.loss_curve(slice(0, 40)) for each in (run, rest))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_what_holds_most_others_up_is_left_out():
    run = PanelRun(some("full batch", 5), TOLERANCE)
    good, bad = 0.1 * run._goal, 10 * run._goal
    for _ in range(5):
        assert not run._go_on_without(np.array([good, bad, good, good, good]))
    assert not run._go_on_without(np.array([bad, bad, good, bad, good]))  # most others do not want it either
    assert not run._go_on_without(np.array([good, good, good, bad, good]))  # the other one did
    for _ in range(4):
        assert not run._go_on_without(np.array([good, good, good, bad, good]))
    assert run._go_on_without(np.array([good, good, good, bad, good]))
    assert run._left_out.tolist() == [False, False, False, True, False]
