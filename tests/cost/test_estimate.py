import itertools
import math
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._core.words import in_bytes, in_time
from deeplinear._cost import estimate as cost
from deeplinear._cost.estimate import Cost, Estimate, _smaller, estimate, estimate_every_step, solve_seconds
from deeplinear._experiment.data_sets import data_sets, data_totals
from deeplinear._solvers.base import Unresolved
from deeplinear._solvers.choose import Choice
from deeplinear._solvers.condensed.solver import Condensed
from deeplinear._solvers.dense import Dense
from deeplinear._solvers.merged_steps import EXACT, MergedSteps
from deeplinear._solvers.panels.solver import Panels
from deeplinear._sweep.cost import SweepCost, estimate_sweep
from deeplinear._sweep.plan import Plan
from factories import maker

problem = maker(
    "steps", "depth", "sampling", depth=3, width=1.0, noise=0.3, sampling=dl.FullBatch(samples=2.0), lr=0.02, steps=100
)


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("sampling", [dl.Population(), dl.FullBatch(2.0), dl.OnlineSGD(0.5)])
def test_memory_of_a_solve_is_what_it_takes(sampling: object) -> None:
    each = problem(sampling=sampling, steps=150)
    dl.solve(problem(sampling=sampling, steps=20))  # which also records a step, once for all
    measured = peak_bytes(lambda: dl.solve(each))
    assert estimate(each).theory.bytes == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize("record", ["all", "losses"])
def test_memory_of_a_simulation_is_what_it_takes(record: str) -> None:
    each = problem(steps=80)
    measured = peak_bytes(lambda: dl.simulate(each, 150, 4, workers=2, record=record))
    assert estimate(each, 150, 4, workers=2, record=record).experiment.bytes == pytest.approx(measured, rel=0.35)


@pytest.fixture
def processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds of this process alone, since other tests run at the same time: estimates and work both ask this clock."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)


def typical(ratio: Callable[[], float]) -> float:
    """Median of several repeats; alone, ratios are within 0.6 to 1.5."""
    return float(np.median([ratio() for _ in range(3)]))


@pytest.mark.usefixtures("processor_time")
def test_time_of_a_solve_is_right_to_a_factor() -> None:
    each = problem(steps=150)
    ratio = typical(lambda: estimate(each).theory.seconds / dl.solve(each).stats["seconds"])
    assert 1 / 4 < ratio < 4


@pytest.mark.usefixtures("processor_time")
def test_time_of_a_simulation_is_right_to_a_factor() -> None:
    each = problem(steps=100)

    def ratio() -> float:
        measured = dl.simulate(each, 150, 2, workers=1).stats["seconds"]
        return estimate(each, 150, 2, workers=1).experiment.seconds / measured

    assert 1 / 4 < typical(ratio) < 4


@pytest.mark.usefixtures("processor_time")
@pytest.mark.parametrize(("method", "dim", "seeds"), [("lazy", 5000, 2), ("reduced", 10**6, 16)])
def test_time_and_memory_of_revealed_matrices_are_counted(method: str, dim: int, seeds: int) -> None:
    each = problem(steps=60)
    measured = dl.simulate(each, dim, seeds, workers=1, method=method).stats["seconds"]
    cost = estimate(each, dim, seeds, workers=1, method=method).experiment
    assert 1 / 5 < cost.seconds / measured < 5
    assert cost.bytes < 1e9


@pytest.mark.usefixtures("processor_time")
def test_more_work_costs_more() -> None:
    short, long = (problem(steps=steps, sampling=dl.OnlineSGD(0.5)) for steps in (100, 1000))
    objects = 3 * 3000  # of the layers, whatever the steps
    quick, slow = estimate_every_step(short).theory, estimate_every_step(long).theory
    assert slow.bytes - objects == 100 * (quick.bytes - objects)
    assert 50 < slow.seconds / quick.seconds < 10**4, "between quadratic and beyond cubic, as matrices leave the cache"
    small, large = (estimate(problem(), dim, 4, method="explicit").experiment for dim in (100, 5000))
    assert large.seconds > 100 * small.seconds
    assert large.bytes > 100 * small.bytes


def test_long_smooth_runs_are_estimated_as_panels() -> None:
    cost, longer = estimate(problem(steps=10**4)), estimate(problem(steps=10**6))
    assert cost.method == "panels"
    assert cost.theory.bytes < longer.theory.bytes < 10 * cost.theory.bytes


@pytest.mark.usefixtures("processor_time")
def test_a_sweep_of_long_smooth_runs_is_estimated_as_panels() -> None:
    """As many times one run as there are points, and memory for one of them in each process."""

    def cost(optimizer: dl.ScheduleFree | None) -> SweepCost:
        long = problem(steps=2 * 10**4, optimizer=optimizer)
        return estimate_sweep(Plan.read(long, {"lr": [0.01, 0.02, 0.03, 0.04]}, True, None), workers=2)

    one, smooth = estimate(problem(steps=2 * 10**4)).theory, cost(None).theory
    dense = cost(dl.ScheduleFree(0.01)).theory
    assert smooth.bytes == 2 * one.bytes
    assert smooth.seconds == pytest.approx(2 * one.seconds, rel=2)
    assert dense.bytes > 1000 * smooth.bytes
    assert dense.seconds > 1000 * smooth.seconds


def test_steps_add_up() -> None:
    seconds = solve_seconds(problem())
    values = [seconds(t) for t in (0, 1, 10, 50, 100)]
    assert values[0] == 0
    assert np.all(np.diff(values) > 0)


def test_what_does_not_fit_is_said_quickly() -> None:
    start = time.process_time()
    cost = estimate(problem(steps=10**6), dim=10**5)
    assert time.process_time() - start < 10
    assert not cost.fits
    assert "experiment does not fit" in str(cost)
    assert estimate(problem()).fits


def test_what_is_too_large_is_named() -> None:
    def found(theory: int, experiment: int, losses: int) -> tuple[list[str], bool]:
        asked = Estimate(Cost(1.0, theory), Cost(1.0, experiment), "dense", available=100, losses_bytes=losses)
        assert asked.fits == (asked.too_large == [])
        return asked.too_large, asked.losses_fit

    assert found(40, 60, 10) == ([], False)
    assert found(40, 61, 10) == (["theory", "experiment"], True)  # together
    assert found(40, 61, 61) == (["theory", "experiment"], False)
    assert found(101, 60, 10) == (["theory"], False)
    assert found(40, 101, 60) == (["experiment"], True)
    assert found(40, 101, 61) == (["experiment"], False)
    assert found(101, 101, 100) == (["theory", "experiment"], True)  # the experiment by itself
    assert SweepCost(9, Cost(1.0, 60), Cost(1.0, 60), workers=2, available=100).too_large == []
    assert SweepCost(9, Cost(1.0, 60), Cost(1.0, 160), workers=2, available=100).too_large == ["experiment"]


@pytest.mark.parametrize("depth", [math.inf, 10**9, pytest.param(300, marks=pytest.mark.slow)])
def test_what_nodes_in_depth_do_not_resolve_has_an_estimate(depth: float) -> None:
    """Branches that amplify millions of times: no number of nodes does, and 10^9 layers do not fit."""
    network = dl.ResNet(depth, 0.5, richness=0.2, branch=4.5, centered=True)
    for sampling, steps in ((dl.FullBatch(2.0), 88), (dl.OnlineSGD(0.5), 3000)):
        each = dl.Problem(network, dl.Isotropic(0.5), sampling, dl.GradientDescent(5e-5), steps)
        start = time.process_time()
        assert 0 < estimate(each).theory.seconds < math.inf
        assert time.process_time() - start < 10, "about a second"


def test_weights_that_decay_many_times_over_take_more_nodes() -> None:
    """Panels follow the exponential, so they grow no longer: 640 nodes where 230 would do without decay."""
    rule = dl.GradientDescent(2e-4, weight_decay=90.0)
    each = dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(0.5), dl.FullBatch(2.0), rule, 8000)
    nodes = dl.solve(each).stats["nodes"]
    assert nodes > 500
    assert nodes <= Panels().estimate(each).shape.steps <= 1.5 * nodes


def test_without_dim_there_is_no_experiment() -> None:
    cost = estimate(problem(width="infinite"))
    assert cost.experiment is None
    assert cost.to_dict()["experiment"] is None
    assert cost.method == "dense"


def test_infinite_width_cannot_be_simulated() -> None:
    with pytest.raises(ValueError, match="width must be finite in a simulation"):
        estimate(problem(width="infinite"), dim=100)


def test_schedules_and_short_problems_are_taken() -> None:
    short = dl.Problem(
        dl.MLP(1, 1.0), dl.Isotropic(), dl.Population(), dl.GradientDescent([0.1, 0.2], momentum=0.9), steps=2
    )
    cost = estimate(short, dim=5, seeds=[3, 8])
    assert 0 < cost.theory.seconds < 1
    assert 0 < cost.experiment.seconds < 1


def test_amounts_read_well() -> None:
    assert in_time(59.0) == "59.0 s"
    assert in_time(7200) == "2.0 h"
    assert in_bytes(216e12) == "216.0 TB"


@pytest.mark.usefixtures("processor_time")
@pytest.mark.parametrize("outputs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_simulations_of_many_fixed_directions_are_estimated(outputs: int) -> None:
    """A probe of fewer directions stands for them."""
    count = 4000
    power = np.ones(count) if outputs == 1 else np.ones((count, 2, 2))
    data = dl.Spectrum(np.arange(1.0, count + 1) ** -1.5, power, noise=0.1)
    each = dl.Problem(dl.MLP(2, 50.0), data, dl.FullBatch(3000.0), dl.GradientDescent(0.02), steps=20)
    cost = estimate(each, dim=count, seeds=1, workers=1, record="losses", method="explicit").experiment
    measured = dl.simulate(each, seeds=1, workers=1, record="losses", method="explicit").stats["seconds"]
    assert 1 / 6 < cost.seconds / measured < 6


def test_wide_networks_on_counted_sizes_are_estimated_quickly() -> None:
    """Their width does not shrink with the number of inputs, so that of the probe must."""
    data = dl.Spectrum.power_law(1.5, 0.5)
    wide = dl.Problem(dl.MLP(2, [8192.0, 4096.0]), data, dl.FullBatch(3000.0), dl.GradientDescent(0.02), steps=20)
    cost: list[dl.Estimate] = []
    assert peak_bytes(lambda: cost.append(estimate(wide, dim=500, seeds=1, method="explicit"))) < 3e8
    assert cost[0].experiment.bytes > 3e8
    one = dl.Problem(dl.MLP(2, 600.0), data, dl.OnlineSGD(200.0), dl.GradientDescent(0.02), steps=20)
    part = _smaller(one, 50, 0.1)
    assert (part.network.width, part.sampling.batch) == (60.0, 20.0)
    isotropic = problem()
    assert _smaller(isotropic, 50, 0.1) is isotropic


def test_many_inputs_on_counted_sizes_are_estimated_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their target is drawn for all modes of one size together, not for thousands one by one."""
    calls, qr = [], np.linalg.qr
    monkeypatch.setattr(np.linalg, "qr", lambda numbers: calls.append(numbers.shape) or qr(numbers))
    data = dl.Spectrum.power_law(1.5, 0.5)
    wide = dl.Problem(dl.MLP(1, 40.0), data, dl.FullBatch(40.0), dl.GradientDescent(0.02), steps=20)
    assert estimate(wide, dim=10**4, seeds=1, method="explicit").experiment.bytes > 1e6
    assert 1 <= len(calls) < 20
    assert calls[0][0] > 1000


def test_any_number_of_seeds_is_refused_before_it_is_counted() -> None:
    few = problem(steps=1, depth=1)
    assert peak_bytes(lambda: estimate(few, dim=1, seeds=10**9)) < 1e8
    assert not estimate(few, dim=1, seeds=10**9).fits
    with pytest.raises(MemoryError, match=r"the simulation needs about \d+\.\d+ GB, but only .* lower dim, seeds"):
        dl.simulate(few, dim=1, seeds=10**10)


def test_jumps_of_a_schedule_take_memory() -> None:
    smooth, jumps = (
        dl.Problem(problem().network, problem().data, dl.Population(), dl.GradientDescent(rates), steps=4000)
        for rates in ([0.01] * 4000, [0.01] * 2000 + [0.005] * 2000)
    )
    solvers = [Choice().solver(each) for each in (smooth, jumps)]
    assert [solver.name for solver in solvers] == ["panels", "panels"]
    assert solvers[1].estimate(jumps).shape.steps == solvers[0].estimate(smooth).shape.steps + 60


@pytest.mark.parametrize(
    ("depth", "lr"), [(np.inf, 0.02), (np.inf, 1.0), pytest.param(10**4, 1.0, marks=pytest.mark.slow), (300, 1.0)]
)
def test_memory_of_nodes_in_depth_is_foreseen(depth: float, lr: float) -> None:
    """Of one number of nodes at a time. Where training diverges all numbers are tried, and then not too many layers."""
    network, rule = dl.ResNet(depth, width=1.0), dl.GradientDescent(lr)
    deep = dl.Problem(network, dl.Isotropic(0.3), dl.FullBatch(2.0), rule, steps=60)
    measured = peak_bytes(lambda: dl.solve(deep))
    assert measured < 1.2 * estimate(deep).theory.bytes < 3 * measured


@pytest.mark.parametrize(
    ("lr", "steps", "method"), [(0.01, 1100, "panels"), (0.045, 1100, "condensed"), (0.045, 6445, "condensed")]
)
def test_runs_that_oscillate_are_not_taken_for_smooth_ones(lr: float, steps: int, method: str) -> None:
    network, sampling = dl.MLP(4, 2.56, richness=2.721), dl.FullBatch(1.525)
    each = dl.Problem(network, dl.Isotropic(), sampling, dl.GradientDescent(lr), steps)
    smooth, found = Panels().estimate(each), estimate(each)
    assert found.method == method
    assert (found.theory.bytes == smooth.bytes) == (lr == 0.01)


@pytest.mark.parametrize(("momentum", "swings"), [(0.0, False), (0.5, False), (0.9, True)])
def test_responses_that_swing_with_momentum_keep_more_of_the_past(momentum: float, swings: bool) -> None:
    """As numbers 212 and 2511 of ``make fuzz``; here, too, the rate has grown by the time that they do."""
    rates = np.where(np.arange(1100) < 550, 0.002, 0.02).tolist()
    rule = dl.GradientDescent(rates, momentum)
    each = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.OnlineSGD(4.0), rule, 1100)
    smooth, found = Condensed().estimate(each), estimate(each)
    assert found.method == "condensed"
    assert (found.theory.bytes > smooth.bytes) == swings


def test_a_run_that_learns_nothing_has_a_cost() -> None:
    rule = dl.GradientDescent([0.0] * 1100, 0.5)
    each = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.FullBatch(4.0), rule, 1100)
    assert estimate(each).theory.bytes == Condensed().estimate(each).bytes


def test_oscillations_keep_more_of_the_past() -> None:
    """At the edge of stability a run takes more memory than a smooth one, and no more than is said of it."""
    network, sampling = dl.MLP(2, 2.56, richness=2.721), dl.FullBatch(1.525)
    edge = dl.Problem(network, dl.Isotropic(), sampling, dl.GradientDescent(0.09), 500)
    measured = peak_bytes(lambda: Condensed().solve([edge]))
    assert Condensed().estimate(edge).bytes < measured < Condensed().estimate_of_oscillations(edge).bytes


def test_a_run_that_comes_to_oscillate_takes_no_more_than_the_most() -> None:
    """As number 2659 of ``make fuzz``: the kernel grows until training is at the edge, where little is condensed."""
    data = dl.Spectrum([8.1e-4, 1.1e-5], [1.0e-3, 4.4e-6], [0.1, 0.9], proportional=True)
    rule = dl.GradientDescent(dl.schedules.cosine(23.4), weight_decay=0.0233)
    each = dl.Problem(dl.MLP(1, "infinite", richness=4.9), data, dl.FullBatch(2.9), rule, 1100)
    found = estimate(each)
    measured = peak_bytes(lambda: Choice().solver(each).solve([each]))
    assert found.method == "condensed"
    assert found.theory.most_bytes is not None
    assert found.theory.most_seconds is not None
    assert 2 * found.theory.bytes < measured < found.theory.most_bytes
    assert found.theory.most_seconds > 2 * found.theory.seconds
    assert "if training comes to oscillate" in str(found)


def test_room_is_made_once_more_where_a_run_has_a_few_steps_more_than_there_was_room_for() -> None:
    """As number 117 of ``make fuzz``: both rooms are held while one is copied to the other."""
    data, network = dl.Spectrum([0.0], [[[0.0, 0.0], [0.0, 0.0]]]), dl.ResNet(2, "infinite", parameterization="ntk")
    rule = dl.GradientDescent(0.15, momentum=0.999, weight_decay=11.0)
    each = dl.Problem(network, data, dl.Population(), rule, 248)
    solver, outcome = Condensed(), []
    measured = peak_bytes(lambda: outcome.append(solver.solve([each])[0].stats["nodes"]))
    assert outcome[-1] == 248
    assert 0.9 * solver.most(each).bytes < measured < 1.1 * solver.most(each).bytes


def test_every_step_takes_no_more_than_estimated() -> None:
    assert estimate(problem()).theory.most_bytes is None


def test_panels_that_are_given_up_count_in_memory_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    edge, panels = problem(depth=1, lr=0.22, steps=300), Panels(patience=0.5)

    def give_up() -> None:
        with pytest.raises(Unresolved, match="far more work than usual"):
            panels.solve([edge])

    assert peak_bytes(give_up) < panels.given_up(edge).bytes

    longer = edge.replace(steps=1500)
    wasted, solved = Choice().solver(longer).given_up(longer), Condensed().estimate_of_oscillations(longer)
    monkeypatch.setattr(cost, "solve_seconds", lambda _: lambda steps: steps**3)
    found = estimate(longer)
    assert found.method == "condensed"
    assert found.theory.bytes == wasted.bytes > solved.bytes
    assert found.theory.seconds == pytest.approx(sum(work.passes * work.shape.steps**3 for work in (wasted, solved)))


@pytest.mark.parametrize(
    ("data", "sampling", "width", "steps", "times"),
    [
        (dl.Isotropic(0.3), dl.OnlineSGD(0.5), 1.0, 10_000, 10),
        (dl.Isotropic(0.3), dl.MultiPassSGD(2.0, 0.5), 1.0, 2000, 10),
        (dl.Spectrum.power_law(1.5, 0.5, modes=30), dl.OnlineSGD(32), 64.0, 5000, 5),
    ],
    ids=["online", "multi-pass", "power law"],
)
def test_the_steps_of_long_sgd_runs_are_foreseen(data, sampling, width, steps, times) -> None:
    """Time goes as the third power of the steps at most: 1.26 of them is a factor of two."""
    each = dl.Problem(dl.MLP(1, width), data, sampling, dl.GradientDescent(times / 2 / steps), steps=steps)
    solver = MergedSteps()
    (answer,) = solver.solve([each])
    finest = (answer.stats["nodes"] - EXACT) / (1 - EXACT / steps)
    foreseen = solver.estimate(each).shape.steps
    least = EXACT  # below which all is quick
    assert 1 / 1.26 < max(foreseen, least) / max(finest, least) < 1.26


def test_long_sgd_runs_that_coarse_steps_give_up_have_their_past_condensed() -> None:
    each = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.3), dl.OnlineSGD(0.5), dl.GradientDescent(0.01), steps=10**5)
    solver = MergedSteps()
    assert solver.estimate(each).shape.steps > solver.most_steps(each) == 4000
    cost = estimate(each)
    assert cost.method == "condensed"
    assert cost.theory.seconds < 3 * solver.estimate(each).passes * solve_seconds(each)(4000)  # a busy machine


@pytest.mark.parametrize("steps", [10**9, 10**12])
@pytest.mark.parametrize("sampling", [dl.FullBatch(2.0), dl.OnlineSGD(0.5), dl.MultiPassSGD(2.0, 0.5)])
def test_an_estimate_holds_nothing_as_long_as_the_run(sampling: object, steps: int) -> None:
    each = problem(sampling=sampling, steps=steps)
    found: list[dl.Estimate] = []
    assert peak_bytes(lambda: found.append(estimate(each, dim=20))) < 2e8
    assert found[0].experiment is not None
    assert found[0].experiment.bytes > 8 * steps**2 > 0  # all correlations


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": dl.SAM(0.02, rho=0.1)}, "steps must be at most 200000 for an estimate with SAM, got 1000000000"),
        ({"lr": lambda step: 0.02}, "at most 10000000 where lr depends on the step, got 1000000000"),
        ({"lr": dl.schedules.cosine(0.02)}, "at most 10000000 where lr depends on the step, got 1000000000"),
        ({"weight_decay": 0.01}, "at most 2000000 for an estimate with weight decay"),
        ({"lr": dl.schedules.cosine(0.02), "steps": 3 * 10**6}, "at most 2000000 for an estimate with a schedule"),
        ({"lr": lambda step: 0.02, "steps": 3 * 10**5}, "at most 200000 for an estimate with functions of the step"),
        ({"phases": (dl.Phase(1), dl.Phase(10**9 - 1))}, "at most 200000 for an estimate with phases"),
    ],
)
def test_runs_too_long_for_an_estimate_are_refused_before_arrays_are_made(changes, message) -> None:
    """What is made before is a schedule of three million steps, and the list of a function of fewer."""

    def refused() -> None:
        with pytest.raises(ValueError, match=message):
            estimate(problem(steps=10**9).replace(changes))

    assert peak_bytes(refused) < 2e8


@pytest.mark.parametrize(
    "changes",
    [
        {"sampling": dl.Population()},
        {"sampling": dl.FullBatch(1.3)},
        {"sampling": dl.OnlineSGD(dl.schedules.cosine(0.7, end=0.2))},
        {"sampling": dl.MultiPassSGD(2.0, 0.5), "optimizer": dl.SAM(0.02, rho=0.1)},
        {"sampling": dl.MultiPassSGD(2.0, 2.0)},
        {"phases": (dl.Phase(30), dl.Phase(30, new_samples=False), dl.Phase(40, sampling=dl.OnlineSGD(0.3)))},
    ],
)
@pytest.mark.parametrize("probes", [0, 7])
def test_totals_of_data_sets_are_sums_over_their_steps(changes, probes) -> None:
    each = problem(steps=100).replace(changes)
    for data, totals in zip(data_sets(each, 13, probes), data_totals(each, 13, probes), strict=True):
        assert totals.steps == data.stop - data.start == len(data.samples)
        assert (totals.drawn, totals.fresh, totals.looks) == (data.drawn, data.fresh, data.looks)
        assert (totals.largest, totals.summed) == (data.samples.max(), data.samples.sum())
        assert totals.chooses == (data.keeps < 1.0).any()
        assert totals.asked == (data.residuals.sum(), data.signals.sum())


# --- very deep, or very many ------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [3000, 10**5, 10**9])
def test_what_an_estimate_does_is_bounded_however_deep(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every depth it solves as few layers and makes as few products, and says what a solve would take."""
    solved, products = [], []
    solve, rows_times = Dense.solve, cost.rows_times
    monkeypatch.setattr(
        Dense, "solve", lambda self, problems: solved.append(problems[0].network.layers) or solve(self, problems)
    )
    monkeypatch.setattr(cost, "rows_times", lambda *given: products.append(1) or rows_times(*given))
    deep = problem(1, depth)
    found: list[dl.Estimate] = []
    assert peak_bytes(lambda: found.append(estimate(deep))) < 50e6
    assert max(solved) <= 64
    assert len(products) < 20_000
    assert found[0].theory.bytes > 1000 * depth
    assert found[0].fits == (depth < 10**9)


@pytest.mark.parametrize("proportional", [False, True])
def test_what_an_estimate_does_is_bounded_however_many_modes(proportional: bool) -> None:
    """A hundred thousand modes took seconds and a million of them 4 GB, only to say that there is no room for them."""
    count = 100_000
    share = np.full(count, 1.0 / count if proportional else 1.0)
    many = dl.Spectrum(1.0 / np.arange(1.0, count + 1), np.ones(count), share, proportional)
    each = problem(400, data=many, sampling=dl.FullBatch(2.0 if proportional else 100.0))
    found: list[dl.Estimate] = []
    assert peak_bytes(lambda: found.append(estimate(each))) < 180e6
    assert found[0].theory.bytes > 8 * 400**2 * count
    few, more = solve_seconds(replace(each, data=many.power_law(2.0, 1.0, modes=1000))), solve_seconds(each)
    assert 10 < more(12) / few(12) < 1000, "in proportion to the modes"


def test_an_estimate_of_training_deep_networks_trains_shallow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    simulate = cost.simulate
    monkeypatch.setattr(
        cost, "simulate", lambda each, *args, **kw: trained.append(each.network.layers) or simulate(each, *args, **kw)
    )
    deep = problem(2, 10_000)
    assert estimate(deep, dim=3, seeds=1, workers=1, method="explicit").experiment.seconds > 0
    assert max(trained) <= 64


@pytest.mark.parametrize(
    "ask",
    [
        lambda deep: estimate(deep, dim=3),
        lambda deep: dl.simulate(deep, dim=3),
        dl.weight_spectra,
        dl.training_cost,
    ],
)
def test_no_list_of_layers_is_made_for_very_deep_networks(ask: Callable[[dl.Problem], object]) -> None:
    deep = problem(2, network=dl.ResNet(10**9, 1.0), sampling=dl.OnlineSGD(2.0))

    def refused() -> None:
        if ask is dl.training_cost:
            assert ask(deep) == pytest.approx(12e9)
            return
        with pytest.raises(ValueError, match=r"at most 100000 in a simulation, got 1000000000|fewer than 256 layers"):
            ask(deep)

    assert peak_bytes(refused) < 10e6


@pytest.mark.parametrize("seeds", [range(10**9), 10**9])
def test_many_seeds_are_counted_and_not_listed(seeds: object) -> None:
    found: list[dl.Estimate] = []
    few = problem(3)
    assert peak_bytes(lambda: found.append(estimate(few, dim=1, seeds=seeds, workers=1))) < 50e6
    assert found[0].experiment.bytes > 1e12


@pytest.mark.parametrize("seeds", [10**30, 1e30, range(10**13), range(10**30)])
def test_too_many_seeds_are_refused(seeds: object) -> None:
    with pytest.raises(Refusal, match=r"seeds must be (at most 1000000000000|one or more distinct .* below 2\*\*63)"):
        estimate(problem(3), dim=1, seeds=seeds)


def test_seeds_without_an_end_are_refused() -> None:
    with pytest.raises(
        Refusal, match="seeds must be a number or a range where there are more than 1000000, got a list"
    ):
        estimate(problem(3), dim=1, seeds=itertools.count())


def test_ranges_of_seeds_are_those_that_they_list() -> None:
    few = problem(3)
    listed, ranged = (dl.simulate(few, 4, seeds, workers=1) for seeds in ([7, 5, 3], range(7, 1, -2)))
    assert ranged.seeds == listed.seeds == (7, 5, 3)
    np.testing.assert_array_equal(ranged.test_loss, listed.test_loss)
    with pytest.raises(Refusal, match="seeds must be one or more distinct whole numbers"):
        dl.simulate(few, 4, range(-1, 3))
