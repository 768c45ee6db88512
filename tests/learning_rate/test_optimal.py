"""The largest stable and the optimal learning rate."""

import importlib
import json
import math
from pathlib import Path

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._learning_rate import max_stable_lr, optimal_lr
from deeplinear._learning_rate.grid import Grid
from deeplinear._learning_rate.minima import LrMinimum
from deeplinear._learning_rate.optimal import OptimalLr
from deeplinear._learning_rate.refine import find_minimum
from deeplinear._problem.edit import replace
from deeplinear._problem.rate import with_rate
from deeplinear._theory.sensitivity import sensitivity
from factories import checkerboard, maker, some_slow

make = maker("network", "sampling", network=dl.MLP(3, 1.0), noise=0.3, sampling=dl.FullBatch(2.0), lr=0.05, steps=20)


def lazy(depth, **options):
    network = dl.MLP(depth, "infinite", parameterization="ntk", centered=True)
    return make(network, dl.Population(), noise=0.0, **options)


PROBLEMS = {
    "full batch": make(),
    "population": make(sampling=dl.Population(), noise=0.0),
    "online": make(sampling=dl.OnlineSGD(0.3)),
    "multi-pass": make(sampling=dl.MultiPassSGD(2.0, 0.5)),
    "rich": make(dl.MLP(3, 16.0, 2.0)),
    "overfitting": make(dl.MLP(3, 4.0, centered=True), dl.FullBatch(1.0), noise=2.0),
    "momentum": make(momentum=0.9),
    "decay": make(dl.MLP(3, 1.0, centered=True), weight_decay=3.0),
    "resnet": make(dl.ResNet(4, 1.0)),
    "ntk": make(dl.MLP(2, [0.5, 2.0], parameterization="ntk")),
    "spectrum": dl.Problem(
        dl.MLP(2, 30.0, 0.5), dl.Spectrum.power_law(2.0, 1.0), dl.OnlineSGD(20.0), dl.GradientDescent(0.1), 20
    ),
}


# --- the largest stable rate ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "steps"), checkerboard([1, 3], [2, 40]))
def test_a_linear_model_is_stable_up_to_two_over_its_kernel(depth, steps):
    found = max_stable_lr(lazy(depth, steps=steps), tolerance=1e-6)
    assert found.lr <= 2 / (depth + 1) <= found.unstable_lr
    assert found.unstable_lr == pytest.approx(found.lr, rel=1e-6)


@pytest.mark.parametrize(
    "name",
    some_slow(PROBLEMS, "full batch", "multi-pass", "rich", "ntk"),  # whose best rates are found below
)
def test_stability_is_judged_by_the_last_train_loss(name):
    problem = PROBLEMS[name]
    found = max_stable_lr(problem)
    assert 1 < found.unstable_lr / found.lr < 1.001
    below, above = (dl.solve(with_rate(problem, lr)) for lr in (found.lr, found.unstable_lr))
    assert not below.status.diverged
    if not problem.optimizer.weight_decay:
        assert below.train_loss[-1] <= below.train_loss[0] < above.train_loss[-1]


def test_a_transient_that_recovers_is_stable():
    problem = make(sampling=dl.OnlineSGD(0.3), steps=40)
    training = dl.solve(with_rate(problem, 0.99 * max_stable_lr(problem).lr)).train_loss
    assert training.max() > 1.5 * training[0] > training[-1]


def test_overfitting_is_stable():
    problem = PROBLEMS["overfitting"]
    solution = dl.solve(with_rate(problem, 0.5 * max_stable_lr(problem).lr))
    assert solution.test_loss[-1] > solution.test_loss[0]


def test_forgetting_a_subtracted_function_is_stable():
    problem = PROBLEMS["decay"]
    found = max_stable_lr(problem).lr
    solution = dl.solve(with_rate(problem, 0.5 * found))
    assert solution.train_loss[-1] > solution.train_loss[0]
    assert found > 0.3


def test_forgetting_a_subtracted_function_is_stable_however_large_it_is():
    """A richness below what networks that are not centered may have was refused, as if this one were not."""
    found = []
    for richness in (1e-50, 1e-120):
        network = dl.MLP(1, 1.0, richness, centered=True)
        optimizer = dl.GradientDescent(0.1, weight_decay=1e-3)
        lazy = dl.Problem(network, dl.Isotropic(0.1), dl.FullBatch(2.0), optimizer, 8)
        found.append(dl.max_stable_lr(lazy).lr)
        with pytest.raises(ArithmeticError, match=r"no learning rate from .* lowers the test loss"):
            dl.optimal_lr(lazy)
    assert found[1] == pytest.approx(found[0], rel=2e-3)


def test_a_schedule_is_scaled_as_a_whole():
    warmup = [0.0] * 12 + [0.05] * 8
    found = max_stable_lr(make(lr=warmup))
    assert found.is_factor
    assert "schedule factor" in str(found)
    assert dl.solve(make(lr=[found.unstable_lr * rate for rate in warmup])).train_loss[-1] > 2.09


def test_rich_ntk_networks_bear_higher_rates_when_wide_and_mup_networks_do_not():
    def edges(parameterization):
        network = dl.MLP(3, 1.0, richness=4.0, parameterization=parameterization)
        problem = make(network, dl.Population(), noise=0.0, steps=30)
        return [max_stable_lr(replace(problem, {"width": width})).lr for width in (1.0, 4.0)]

    (mup_low, mup_high), (ntk_low, ntk_high) = edges("mup"), edges("ntk")
    assert abs(math.log(mup_high / mup_low, 4)) < 0.2
    assert math.log(ntk_high / ntk_low, 4) == pytest.approx(2 / 3, abs=0.1)  # 1 - 1 / depth


# --- the optimum ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 4])
def test_one_step_of_a_linear_model_solves_it(depth):
    found = optimal_lr(lazy(depth, steps=2, lr=0.03))
    assert found.lr == pytest.approx(1 / (depth + 1), rel=1e-5)
    assert found.loss == pytest.approx(0.0, abs=1e-10)
    assert found.curvature == pytest.approx(2.0, rel=1e-3)
    assert not found.at_edge


@pytest.mark.parametrize("depth", [1, 3])
def test_one_step_of_online_sgd(depth):
    L, nu, batch = depth, 0.5, 0.2
    found = optimal_lr(make(dl.MLP(L, nu, centered=True), dl.OnlineSGD(batch), noise=0.0, steps=2))
    quadratic = (1 + 1 / batch) * ((L + 1) ** 2 + L * (L + 1) * (2 * L + 1) / (6 * nu))
    assert found.lr == pytest.approx((L + 1) / quadratic, rel=1e-6)
    assert found.loss == pytest.approx(1 - (L + 1) ** 2 / quadratic, rel=1e-9)
    assert found.curvature == pytest.approx(2 * quadratic * found.lr**2, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        *(
            pytest.param(name, "test", marks=[pytest.mark.slow] * (name in ("full batch", "overfitting", "population")))
            for name in PROBLEMS
        ),
        *(
            pytest.param(name, "train", marks=[] if name in ("full batch", "overfitting") else [pytest.mark.slow])
            for name in PROBLEMS
        ),
    ],
)
def test_no_rate_is_better(name, objective):
    problem = PROBLEMS[name]
    found = optimal_lr(problem, objective=objective, tolerance=1e-5)
    assert found.is_resolved
    at = with_rate(problem, found.lr)
    loss = f"{objective}_loss"
    assert found.loss == pytest.approx(getattr(dl.solve(at), loss)[-1], rel=1e-7)
    slope = getattr(sensitivity(at, "lr"), f"d_{loss}")["lr"][-1] * found.lr
    assert abs(slope / found.curvature) < 1e-5  # how far the rate is from the zero of the slope
    others = [with_rate(problem, found.lr * 2.0**power) for power in np.arange(-5, 5, 0.25)]
    assert all(getattr(each, loss)[-1] >= found.loss * (1 - 1e-9) for each in dl.solve(others))


def test_the_search_may_start_anywhere():
    expected = optimal_lr(PROBLEMS["online"])
    for lr in (1e-7, 30.0):
        assert optimal_lr(replace(PROBLEMS["online"], {"lr": lr})).lr == pytest.approx(expected.lr, rel=1e-5)


def test_a_horizon_is_a_shorter_problem():
    problem = PROBLEMS["online"]
    found = optimal_lr(problem, horizon=9)
    assert found.horizon == 9
    assert found == optimal_lr(replace(problem, {"steps": 10}))


def test_a_schedule_has_an_optimal_factor():
    problem = PROBLEMS["online"]
    expected = optimal_lr(problem).lr
    for schedule in ([0.02] * 20, lambda step: 0.02):
        found = optimal_lr(replace(problem, {"lr": schedule}))
        assert found.is_factor
        assert 0.02 * found.lr == pytest.approx(expected, rel=1e-5)


def test_says_whether_the_optimum_is_at_the_edge_of_stability():
    rich = make(dl.MLP(3, 16.0, 2.0), steps=40)
    at_edge = optimal_lr(rich, objective="train")
    assert at_edge.at_edge
    assert "at the edge of stability" in str(at_edge)
    assert not optimal_lr(rich).at_edge  # overfitting sets the best rate for the test loss
    assert not optimal_lr(PROBLEMS["online"]).at_edge


def test_says_when_the_loss_is_down_to_rounding():
    found = optimal_lr(lazy(1, steps=40))
    assert not found.is_resolved
    assert 0 <= found.loss < 1e-12
    assert not found.at_edge
    assert "down to rounding" in str(found)


def test_label_noise_does_not_hide_that_nothing_is_left_to_learn():
    problem = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(0.5), dl.Population(), dl.GradientDescent(0.05), 120)
    found = optimal_lr(problem)
    assert not found.is_resolved
    assert found.loss == pytest.approx(0.25, abs=1e-12)
    assert found.losses.min() == pytest.approx(0.25, abs=1e-12)


def test_what_is_left_to_learn_counts_beside_large_label_noise():
    quiet, noisy = (
        dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(noise), dl.Population(), dl.GradientDescent(0.05), 40)
        for noise in (0.0, 3.0)
    )
    expected, actual = optimal_lr(quiet), optimal_lr(noisy)
    assert actual.lr == pytest.approx(expected.lr, rel=1e-4)
    assert actual.loss - 9.0 == pytest.approx(expected.loss, rel=1e-4)
    assert (actual.at_edge, actual.is_resolved) == (expected.at_edge, True)


def test_where_there_is_nothing_to_learn_no_rate_is_good():
    data = dl.Isotropic(target_gram=[[0.0]], noise=0.5)
    network = dl.MLP(2, 1.0, centered=True)
    problem = dl.Problem(network, data, dl.OnlineSGD(1.0), dl.GradientDescent(0.1), 4)
    with pytest.raises(ArithmeticError, match=r"no learning rate from .* lowers the test loss"):
        optimal_lr(problem)


def test_where_nothing_moves_every_rate_is_stable():
    inputs_of_zero = dl.Spectrum([0.0], [0.2], [4.0])
    problem = dl.Problem(dl.MLP(2, 9.0), inputs_of_zero, dl.Population(), dl.GradientDescent(0.05), 20)
    with pytest.raises(ArithmeticError, match="training does not diverge at any learning rate up to"):
        max_stable_lr(problem)


@pytest.mark.parametrize(
    ("search", "steps"),
    [(optimal_lr, 12), pytest.param(optimal_lr, 170, marks=pytest.mark.slow), (max_stable_lr, 12)],
)
def test_progress_of_the_search(steps, search):
    reports = []
    problem = make(sampling=dl.OnlineSGD(0.3), steps=steps)
    found = search(problem, progress=lambda *each: reports.append(each))
    assert found == search(problem)
    done, totals = zip(*reports, strict=True)
    assert done == tuple(sorted(done))
    assert totals == tuple(sorted(totals))
    assert all(each < total for each, total in reports[:-1])
    assert done[-1] == totals[-1]
    assert len(reports) > 5 * steps  # every step of every rate is a chance to stop


def test_an_error_in_progress_stops_the_search():
    calls = 0

    def fail(done, total):
        nonlocal calls
        calls += 1
        if done:
            raise KeyboardInterrupt

    problem = make(sampling=dl.OnlineSGD(0.3), steps=200)
    with pytest.raises(KeyboardInterrupt):
        optimal_lr(problem, progress=fail)
    assert calls < 100  # the ceiling, and a step or two


def test_refusals():
    problem = make(steps=5)
    with pytest.raises(ValueError, match=r"horizon must be at most steps - 1 \(4\), got 5"):
        optimal_lr(problem, horizon=5)
    with pytest.raises(ValueError, match="horizon must be a whole number, at least 1, got 0"):
        optimal_lr(problem, horizon=0)
    with pytest.raises(ValueError, match="objective must be 'test' or 'train', got 'val'"):
        optimal_lr(problem, objective="val")
    with pytest.raises(ValueError, match="steps must be at least 2 for the learning rate to matter, got 1"):
        max_stable_lr(make(steps=1))
    with pytest.raises(ValueError, match="tolerance must be a number from 1e-12 up to 1, got 0"):
        max_stable_lr(problem, tolerance=0)
    with pytest.raises(ValueError, match="problem must be a Problem, got 3"):
        optimal_lr(3)


# --- against brute force ---------------------------------------------------------------------------------------

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
BRUTE_FORCE = json.loads((Path(__file__).parent / "brute_force.json").read_text())
"""Of problems that ``benchmarks/best_rate.py`` draws and solves at a thousand rates, 0.6 % apart: the least loss that
three neighbours have together, the last of the first three that are unstable, the first of the last three stable; and
the least that the largest loss within 20 % of a rate can be."""


@pytest.fixture
def drawn(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("best_rate")


@pytest.mark.parametrize("seed", [87, pytest.param(36, marks=pytest.mark.slow)])
def test_no_rate_searched_is_better_but_narrow_dips(drawn, seed):
    rough, which = drawn.draw(seed), f"{drawn.objective(seed)}_loss"
    found = optimal_lr(rough, objective=drawn.objective(seed))
    assert found.loss <= found.losses.min()
    assert found.dips
    assert found.rounding_at is None
    for lr, loss in found.dips:
        assert loss < found.loss
        rates = [lr * (1 + 0.001 * shift) for shift in (-2, -1, 0, 1, 2)]
        around = max(getattr(dl.solve(with_rate(rough, rate)), which)[-1] for rate in rates)
        assert around > found.loss or loss > 0.999 * found.loss


@pytest.mark.parametrize(("seed", "least"), BRUTE_FORCE["least_loss"].items())
def test_hard_problems_against_brute_force(drawn, seed, least):
    """Oscillation with momentum, holes, spikes, cliffs and rough losses past the edge, where searches have failed."""
    problem, which = drawn.draw(int(seed)), drawn.objective(int(seed))
    found = optimal_lr(problem, objective=which)
    assert found.rounding_at is None
    assert found.loss <= 1.002 * least
    assert drawn.around(problem, which, found) <= 1.002 * least


def test_a_gap_in_rough_losses_is_no_optimum(drawn):
    """Past the edge losses are rough, and a search for the exact minimum leads into gaps between spikes.

    It had returned 0.0411 here, 70 times the best rate.
    """
    network = dl.MLP(4, 0.5, richness=3.0)
    problem = dl.Problem(network, dl.Isotropic(1.0), dl.FullBatch(0.5), dl.GradientDescent(0.01), steps=40)
    found = optimal_lr(problem)
    assert drawn.around(problem, "test", found) <= 1.01 * found.loss
    assert found.lr < 0.025


def test_a_better_minimum_that_the_margin_has_led_to_is_taken():
    """Twelve steps make losses oscillate with the rate, and those in between were taken for known: it had 0.2228."""
    network = dl.MLP(3, 1.0, richness=3.0, parameterization="ntk")
    found = optimal_lr(dl.Problem(network, dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.05), steps=12))
    assert found.loss == pytest.approx(0.2172, abs=1e-4)
    assert found.loss <= found.safe_loss


def test_a_valley_past_a_cliff_is_found(drawn):
    """Between losses of twenty times the best; without it the loss was 7.9 % higher."""
    found = optimal_lr(replace(drawn.draw(20048), {"steps": 12}))
    assert found.loss == pytest.approx(0.01287, rel=1e-3)


def test_rates_a_period_apart_do_not_tell_what_is_between_them(drawn):
    """Momentum makes the loss oscillate with the rate; number 7000 of the benchmark had 0.43 % too much loss."""
    found = optimal_lr(drawn.draw(7000))
    assert found.loss <= 1.002 * 0.1302752956886562  # of brute force


def test_a_narrow_minimum_says_so():
    narrow = LrMinimum(0.1, 1.0, 0.0998, 0.1003)
    rest = {"safe_lr": 0.05, "safe_loss": 1.5, "horizon": 9, "objective": "test", "is_factor": False, "dips": ()}
    none = np.array([])
    found = OptimalLr(0.1, 1.0, 1.0, at_edge=False, is_resolved=True, minima=(narrow,), lrs=none, losses=none, **rest)
    assert str(found).endswith("loss 1 at step 9, in a minimum 0.5 % wide; with a margin 0.05: 1.5")


@pytest.mark.parametrize(("seed", "known"), BRUTE_FORCE["stable"].items())
def test_stable_rates_with_holes_against_brute_force(drawn, seed, known):
    found = max_stable_lr(drawn.draw(int(seed)))
    assert found.unstable_lr <= known["first_unstable"]
    assert found.largest_lr >= known["largest_stable"]
    assert found.largest_lr > 1.01 * found.lr  # there is a hole
    assert "above it only in places" in str(found)


def test_a_stable_stretch_far_above_the_first_unstable_rate():
    network = dl.MLP(2, 6.622, richness=2.503, centered=True)
    problem = dl.Problem(
        network, dl.Isotropic(1.0), dl.Population(), dl.GradientDescent(0.1, weight_decay=1.0), steps=4
    )
    found = max_stable_lr(problem, tolerance=1e-12)  # which is as close as rounding allows
    assert found.largest_lr == pytest.approx(0.9999, rel=0.01)
    assert found.lr < 0.6


def test_any_rate_will_do_to_begin_with():
    problem = make(dl.MLP(1, 1.0), steps=5)
    best, stable = optimal_lr(problem), max_stable_lr(problem)
    for lr in (1e-300, 1e-12, 1e12, 1e300):
        other = replace(problem, {"lr": lr})
        assert optimal_lr(other) == best, lr
        assert max_stable_lr(other) == stable, lr


def power_law_at_the_edge(lr):
    network = dl.MLP(3, 256, richness=3.2, parameterization="ntk")
    data = dl.Spectrum.power_law(capacity=2.0, source=1.75)
    return optimal_lr(dl.Problem(network, data, dl.OnlineSGD(128), dl.GradientDescent(lr), steps=51))


def test_power_law_data_at_the_edge():
    """A local search ends at 0.739 with a loss of 0.00168, or at 1.056 with 0.00163."""
    assert power_law_at_the_edge(0.6).loss < 0.00157


@pytest.mark.slow
def test_power_law_data_at_the_edge_whatever_the_start():
    assert power_law_at_the_edge(0.05) == power_law_at_the_edge(0.6)


def test_other_minima_nearly_as_good(drawn):
    problem = drawn.draw(22)
    found = optimal_lr(problem)
    best, other = found.minima
    assert (best.lr, best.loss) == (found.lr, found.loss)
    assert best.lr == pytest.approx(0.01475, rel=0.01)  # past the edge of stability; no calm run tells of it
    assert other.lr == pytest.approx(0.00142, rel=0.05)
    assert other.loss < 1.05 * best.loss
    for each in found.minima:
        assert each.low < each.lr < each.high
        ends = [dl.solve(with_rate(problem, lr)).test_loss[-1] for lr in (each.low, each.high)]
        assert max(ends) / each.loss == pytest.approx(1.05, abs=0.01)
    assert f"nearly as good: {other.lr:.4g}" in str(found)


def test_a_rate_with_a_margin_stays_off_a_cliff():
    problem = make(dl.MLP(2, 4.0), noise=0.0, steps=60)
    found = optimal_lr(problem)
    assert found.at_edge
    around = [dl.solve(with_rate(problem, found.safe_lr * factor)).test_loss[-1] for factor in (1 / 1.2, 1.0, 1.2)]
    assert around[1] == pytest.approx(found.safe_loss)
    # No rate of a fine grid has a smaller loss at the worst of the rates within its margin.
    rates = np.geomspace(0.3 * found.lr, found.lr, 20) * np.array([[1 / 1.2], [1.0], [1.2]])
    losses = [each.test_loss[-1] for each in dl.solve([with_rate(problem, float(rate)) for rate in rates.flat])]
    worst = np.max(np.reshape(losses, rates.shape), axis=0)
    assert max(around) <= 1.05 * min(worst)


@pytest.mark.parametrize(("seed", "least"), BRUTE_FORCE["margin"].items())
def test_no_rate_with_a_margin_is_much_better(drawn, seed, least):
    problem, objective = drawn.draw(int(seed)), drawn.objective(int(seed))
    safe = optimal_lr(problem, objective=objective).safe_lr
    around = dl.solve([with_rate(problem, float(safe * factor)) for factor in np.geomspace(1 / 1.2, 1.2, 61)])
    assert max(getattr(each, f"{objective}_loss")[-1] for each in around) <= 1.05 * least


@pytest.mark.parametrize(
    ("sampling", "noise", "lr"),
    [
        pytest.param(dl.FullBatch(2.0), 0.5, 0.018514, id="rough"),
        pytest.param(dl.OnlineSGD(0.5), 0.3, 0.014040, id="smooth"),
    ],
)
def test_a_run_of_200_steps_takes_fewer_solutions_than_a_plain_grid(sampling, noise, lr):
    """Of 84, which 48 rates and four rounds of nine take; with label noise losses past the edge are nearly as low."""
    problem = dl.Problem(dl.MLP(2, 1.0), dl.Isotropic(noise), sampling, dl.GradientDescent(0.05), 200)
    found = optimal_lr(problem)
    assert found.lr == pytest.approx(lr, rel=1e-3)
    assert len(found.lrs) + len(found.dips) < 84


# --- which places are solved -----------------------------------------------------------------------------------


def grid_of(function, resolution=0.02):
    """A grid of a function, from rungs between -4 and 3, divided until none promises less than a thousandth below."""
    grid = Grid(lambda places: [function(x) for x in places], 4)
    grid.add(np.arange(-4.0, 3.0, 0.5 * math.log(2.0)).tolist())
    grid.divide(resolution, 250, lambda: min(grid.values) - 1e-3)
    return grid


def test_what_is_smooth_is_interpolated():
    def smooth(x):
        return 0.5 * math.sin(x) + math.log(math.cosh(x - 0.4))

    grid = grid_of(smooth)
    assert len(grid.places) < 30
    at, values = grid.curve()
    for x in np.linspace(-0.5, 1.5, 50):  # around the minimum
        assert np.interp(x, at, values) == pytest.approx(smooth(x), abs=0.02)


def test_what_is_rough_is_solved_throughout():
    def rough(x):
        return math.log(math.cosh(x) * (1 + 0.3 * (x > 0) * math.sin(5000 * x * x)))

    inside = np.array([x for x in grid_of(rough).places if 0.1 < x < 0.6])
    assert np.diff(inside).max() < 2 * 0.02


def test_a_stable_stretch_between_rates_that_diverge_is_not_left_out():
    """Beside rough losses, a rate that diverges does not end the search."""

    def function(x):
        if x > 0.6 or 0.45 < x < 0.5:
            return math.inf
        return math.log((1.0 if x < 0.52 else 0.6) * math.exp(-0.2 * x) * (1 + 0.3 * (x > 0.2) * math.sin(90 * x)))

    grid = grid_of(function)
    assert grid.places[grid.best] > 0.5


def test_what_is_halved_does_not_depend_on_how_many_are_solved_together():
    def function(x):
        return math.log(math.cosh(x) * (1 + 0.3 * (x > 0) * math.sin(50 * x * x)))

    grids = [Grid(lambda places: [function(x) for x in places], count) for count in (1, 2, 16)]
    for grid in grids:
        grid.add(np.arange(-4.0, 3.0, 0.3).tolist())
        grid.divide(0.01, 250, lambda grid=grid: min(grid.values) - 1e-3)
    assert max(grid.values[grid.best] for grid in grids) < min(grid.values[grid.best] for grid in grids) + 1e-3


# --- minima from values ----------------------------------------------------------------------------------------


def minimum_of(function, *places, tolerance=1e-4):
    """The minimum that is found from some places, and how many others were solved for it."""
    solved = []

    def solve(some):
        solved.extend(some)
        return [math.log(each) if math.isfinite(each := function(x)) else math.inf for x in some]

    grid = Grid(solve, 4)
    grid.add(places)
    found = find_minimum(grid, min(places, key=function), tolerance)
    assert found.x in solved  # what is reported is what was solved
    assert found.value == pytest.approx(function(found.x), rel=1e-14)
    return found, len(solved) - len(places)


@pytest.mark.parametrize("steepness", [10.0, 30.0, 300.0, 2400.0])
def test_a_minimum_before_a_cliff(steepness):
    """A function that falls slowly until an exponential takes over, and is infinite soon after."""

    def function(x):
        return math.inf if x > 0.5 else 1 - 0.1 * x + math.exp(steepness * (x - 0.3))

    found, solved = minimum_of(function, -0.5, 0.0, 1.0)
    assert found.x == pytest.approx(0.3 + math.log(0.1 / steepness) / steepness, abs=1e-6)
    assert found.curvature == pytest.approx(0.1 * steepness, rel=1e-3)
    assert solved <= 40


def test_a_minimum_between_exponentials():
    """A loss that falls to nothing, until another part of it that grows as fast as rates near an edge takes over."""

    def function(x):
        return math.exp(-16 * x) + math.exp(600 * (x - 0.3) - 8)

    found, solved = minimum_of(function, 0.0, 0.2, 0.4)
    exact = (math.log(16 / 600) + 188) / 616
    assert found.x == pytest.approx(exact, abs=1e-6)
    assert found.curvature == pytest.approx(16 * 616 * math.exp(-16 * exact), rel=0.02)
    assert solved <= 25


@pytest.mark.parametrize("right", [1.0, 0.3])
def test_a_function_that_is_infinite_on_the_left(right):
    def function(x):
        return math.inf if x < -0.1 or x > 0.5 else 1 + (x - 0.1) ** 2

    assert minimum_of(function, -0.3, 0.0, right)[0].x == pytest.approx(0.1, abs=1e-4)


def test_a_smooth_minimum_takes_six_values():
    found, solved = minimum_of(lambda x: 1 + (x - 0.1) ** 2 + 0.3 * (x - 0.1) ** 3, -0.3, 0.0, 0.3, tolerance=1e-5)
    assert found.x == pytest.approx(0.1, abs=1e-7)
    assert found.curvature == pytest.approx(2.0, rel=1e-3)
    assert solved <= 6


def test_where_a_function_is_rough_the_best_place_is_returned():
    found, _ = minimum_of(lambda x: 2 + math.sin(4000 * x), 0.0, 0.1, 0.2)
    assert found.value <= 2 + math.sin(400)


# --- what is said ------------------------------------------------------------------------------------------------


def test_what_is_reported_is_what_was_solved():
    """Losses beside the optimum had been raised to it; rough, with momentum and a schedule."""
    problem = wsd_with_momentum()
    found = optimal_lr(problem)
    lrs = np.append(found.lrs, [lr for lr, _ in found.dips])
    losses = np.append(found.losses, [loss for _, loss in found.dips])
    solved = [run.test_loss[-1] for run in dl.solve([with_rate(problem, lr) for lr in lrs.tolist()])]
    np.testing.assert_allclose(losses, np.where(np.isfinite(losses), solved, math.inf), rtol=1e-7)
    assert found.losses.min() == found.loss


def test_a_minimum_is_judged_by_its_largest_loss():
    """It returned a rate around which losses go up to 0.13914, and had seen one where they go up to 0.13754."""
    problem = wsd_with_momentum()
    found = optimal_lr(problem)

    def worst(lr):
        rates = lr * np.exp(np.linspace(-0.002, 0.002, 21))
        losses = [run.test_loss[-1] for run in dl.solve([with_rate(problem, rate) for rate in rates.tolist()])]
        return min(max(losses[start : start + 11]) for start in range(11))

    least = min(worst(lr) for lr, _ in [(0.09693, 0), *sorted(found.dips, key=lambda dip: dip[1])[:5]])
    assert worst(found.lr) <= 1.002 * least


def test_no_minimum_nearly_as_good_is_better(drawn):
    for problem in (wsd_with_momentum(), drawn.draw(22), drawn.draw(38)):
        losses = [each.loss for each in optimal_lr(problem).minima]
        assert losses == sorted(losses)


def test_says_how_far_a_cliff_is():
    """Right above the rate the loss is 5 % higher; the width of 15 % that was stated is on the other side."""
    found = optimal_lr(wsd_with_momentum())
    ahead = found.minima[0].high / found.lr - 1
    assert ahead < 0.03
    assert f"5 % more loss at a rate {100 * ahead:.2g} % higher" in str(found)
    assert "5 % more loss" not in str(optimal_lr(PROBLEMS["online"]))


def wsd_with_momentum():
    network = dl.MLP(3, 0.8887428781431211, richness=1.1724367090331533, parameterization="ntk")
    rule = dl.GradientDescent(dl.schedules.wsd(1.0, warmup=0.2), momentum=0.8)
    return dl.Problem(network, dl.Isotropic(0.2), dl.FullBatch(1.378147793866338), rule, 33)


def test_a_schedule_that_is_zero_before_the_horizon_is_refused():
    problem = make(lr=[0.0] * 5 + [0.1] * 5, steps=10)
    with pytest.raises(ValueError, match=r"lr must be above zero at some step before step 5, .* zero at all of them"):
        dl.optimal_lr(problem, horizon=5)
    with pytest.raises(ValueError, match="lr must be above zero at some step before step 9"):
        dl.max_stable_lr(make(lr=[0.0] * 9 + [0.1], steps=10))
