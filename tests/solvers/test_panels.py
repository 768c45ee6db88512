"""Panels: sums on the grid against plain sums, solutions against the dense method and against finer ones."""

import re
import time
import tracemalloc
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.polynomial import legendre

import deeplinear as dl
from agreement import true_error
from deeplinear._equations.training import responses
from deeplinear._equations.two_time import Causal, Symmetric
from deeplinear._solvers import choose
from deeplinear._solvers.base import Unresolved
from deeplinear._solvers.choose import Choice
from deeplinear._solvers.panels import solver
from deeplinear._solvers.panels.error import rest
from deeplinear._solvers.panels.run import PanelRun
from deeplinear._solvers.panels.settle import Sweeps, Unknown, settle
from deeplinear._solvers.panels.solver import Panels
from deeplinear._time.grid import PANEL_NODES, Grid, breaks, panel_sums, panel_times, to_legendre
from deeplinear._time.propagator import GridPropagator
from factories import smooth_problem as make
from factories import some_slow
from spectra import FOUR_MODES


@pytest.mark.parametrize("length", [8, 9, 16, 100, 5000, 10**5])
def test_sums_over_a_panel_are_those_over_its_steps(length):
    inside, whole = panel_sums(length)
    steps = np.arange(1, length + 1)
    values = legendre.legvander(2 * steps / length - 1, PANEL_NODES - 1) @ to_legendre()  # steps from nodes
    np.testing.assert_allclose(whole, values.sum(axis=0), rtol=0, atol=1e-12 * length)
    np.testing.assert_allclose(inside[-1], values[:-1].sum(axis=0), rtol=0, atol=1e-12 * length)
    # A sum up to real times: of (2s - 1), up to but not including t, it is (t - 1)^2.
    times = panel_times(length)
    np.testing.assert_allclose(inside @ (2 * times - 1), (times - 1) ** 2, rtol=1e-9, atol=1e-9)


def test_a_grid_sums_and_interpolates_over_all_its_sets():
    grid = Grid([1] * 4 + [9, 30])
    assert len(grid) == 4 + 2 * PANEL_NODES
    assert grid.end == 42
    cubes = grid.times**3
    np.testing.assert_allclose(grid.sums()[-1] @ cubes, sum(s**3 for s in range(42)), rtol=1e-12)
    steps = np.arange(43)
    np.testing.assert_allclose(grid.interpolation(steps) @ cubes, steps**3.0, rtol=1e-9, atol=1e-9)
    grid.remove()
    assert grid.end == 12
    assert grid.last == slice(4, 4 + PANEL_NODES)
    np.testing.assert_allclose(grid.sums()[-1] @ grid.times, sum(range(12)), rtol=1e-12)


def test_the_propagator_on_a_grid_is_that_of_every_step():
    rates = 0.02 / (1 + np.arange(60) / 100)
    rule = dl.GradientDescent(rates, weight_decay=0.3)
    d, a = (each[0] for each in responses(dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(), dl.Population(), rule, 60)))
    grid = Grid()
    on_grid = GridPropagator(rates, 0.3, grid)
    for length in [*[1] * 8, 20, 32]:
        grid.add(length)
        lost, found_d, found_a, misfit = on_grid.rows()
        end = grid.end
        assert misfit < 1e-7
        np.testing.assert_allclose([1.0 + lost[-1], found_d[-1]], d[end], rtol=1e-9)
        np.testing.assert_allclose(
            found_a[-1] @ np.cos(grid.times / 40), a[end] @ np.cos(np.arange(60) / 40), rtol=1e-8
        )


@pytest.mark.parametrize("exponent", [1.0, 4.0, 12.0])
def test_a_panel_says_how_badly_a_polynomial_follows_weight_decay(exponent):
    length = 200
    grid = Grid([length])
    *_, misfit = GridPropagator(exponent / length, 1.0, grid).rows()
    decay = np.log1p(-exponent / length)
    steps = np.arange(length)
    nodes_to_steps = grid.interpolation(steps)
    true = np.abs(nodes_to_steps @ np.exp(decay * grid.times) - np.exp(decay * steps)).max()
    assert true < 3 * misfit < 300 * true


SMOOTH = {
    "full batch": {},
    "few samples": {"sampling": dl.FullBatch(0.6), "richness": 0.4},
    "population": {"sampling": dl.Population()},
    "infinite width": {"width": "infinite", "lr": 0.02},
    "unequal widths": {"depth": 3, "width": [0.5, 1.0, 2.0], "centered": True},
    "lazy": {"width": "infinite", "parameterization": "ntk", "centered": True},
    "residual": {"network": dl.ResNet, "depth": 3},
    "residual, population": {"network": dl.ResNet, "depth": 3, "sampling": dl.Population(), "centered": True},
    "infinite depth": {"network": dl.ResNet, "depth": np.inf, "steps": 100, "lr": 0.004, "branch": 0.5},
    "infinite depth, large branches": {"network": dl.ResNet, "depth": np.inf, "steps": 120, "lr": 0.01},
    "infinite depth, population, weight decay": {
        "network": dl.ResNet,
        "depth": np.inf,
        "sampling": dl.Population(),
        "steps": 120,
        "weight_decay": 0.2,
        "centered": True,
        "lr": 0.01,
    },
    "many layers": {"network": dl.ResNet, "depth": 300, "steps": 120, "lr": 0.01},
    "outputs": {"gram": [[1.0, 0.3], [0.3, 0.5]], "steps": 150},
    "residual, outputs": {"gram": [[1.0, 0.3], [0.3, 0.5]], "steps": 150, "network": dl.ResNet},
    "spectrum": {"data": FOUR_MODES},
    "weight decay": {"weight_decay": 0.2},
    "schedule": {"lr": lambda step: 0.03 / (1 + step / 50)},
    "cosine with weight decay": {"lr": lambda s: 0.01 * (1 + np.cos(np.pi * s / 300)), "weight_decay": 0.1},
}


SLOW = (
    "full batch",
    "residual, population",
    "many layers",
    "infinite depth, large branches",
    "infinite depth, population, weight decay",
    "residual, outputs",
    "weight decay",
    "schedule",
)
"""Of what these put together or take apart, each part is in a case that is quicker or has more of them."""


@pytest.mark.parametrize("name", some_slow(SMOOTH, *SLOW))
def test_agrees_with_the_dense_method(name):
    problem = make(**SMOOTH[name])
    exact, solution = dl.solve(problem, method="dense"), dl.solve(problem, method="panels")
    assert solution.stats["method"] == "panels"
    assert solution.stats["nodes"] == len(solution.times) < 0.6 * problem.steps
    assert solution.stats["error"] <= 1e-6
    assert true_error(solution, exact) <= 10 * solution.stats["error"]

    nodes = np.flatnonzero(solution.times == np.round(solution.times))
    steps = solution.times[nodes].astype(int)
    scale = exact.test_loss[0]
    for ours, theirs in [
        *zip(vars(solution.decomposition).values(), vars(exact.decomposition).values(), strict=True),
        *zip(vars(solution.variance).values(), vars(exact.variance).values(), strict=True),
        (solution.kernel, exact.kernel),
    ]:
        assert np.abs(ours[nodes] - theirs[steps]).max() <= 1e-6 * scale
    C = problem.data.outputs
    rows, columns = (np.add.outer(C * index, np.arange(C)).ravel() for index in (nodes, steps))
    ours, theirs = solution.gradient_correlation, exact.gradient_correlation
    assert np.abs(ours[:, rows][..., rows] - theirs[:, columns][..., columns]).max() <= 1e-6 * np.abs(theirs).max()


@pytest.mark.parametrize(
    ("sampling", "last", "depth"),
    [pytest.param(dl.FullBatch(1.2), 3000, 1, marks=pytest.mark.slow), (dl.Population(), 10**4, 2)],
    ids=["full batch", "population"],
)
def test_long_runs_agree_with_a_finer_tolerance(sampling, last, depth):
    problem = make(sampling, steps=last, depth=depth)
    coarse, fine = (dl.solve(problem, tolerance=tolerance) for tolerance in (1e-5, 1e-7))
    assert coarse.stats["nodes"] < fine.stats["nodes"] < 600
    steps = np.unique(np.geomspace(1, last - 1, 300).astype(int))
    for name in ("test_loss", "train_loss"):
        ours, theirs = coarse.at(steps)[name].values, fine.at(steps)[name].values
        assert np.abs(ours / theirs - 1).max() <= 10 * coarse.stats["error"]


@pytest.mark.parametrize(
    ("alpha", "tolerance", "change"),
    [
        (2.0, 1e-6, {"steps": 10**5, "depth": 1}),
        pytest.param(  # has converged before
            8.0, 1e-4, {"steps": 2000, "depth": np.inf, "network": dl.ResNet}, marks=pytest.mark.slow
        ),
    ],
    ids=["finite depth", "infinite depth"],
)
def test_long_runs_end_where_theory_says(alpha, tolerance, change):
    """A well-determined fit has the loss of least squares, sigma^2 alpha / (alpha - 1)."""
    solution = dl.solve(make(dl.FullBatch(alpha), **change), method="panels", tolerance=tolerance)
    assert solution.stats["nodes"] < 400
    np.testing.assert_allclose(solution.test_loss[-1], 0.09 * alpha / (alpha - 1), rtol=1e-8)
    np.testing.assert_allclose(solution.train_loss[-1], 0.09 * (alpha - 1) / alpha, rtol=1e-8)


def test_a_run_that_oscillates_is_solved_step_by_step():
    problem = make(dl.Population(), depth=2, lr=0.3, steps=250, width=1.0)
    exact, solution = dl.solve(problem, method="dense"), dl.solve(problem, method="panels")
    assert solution.stats["lengths"].count(1) > 200
    assert true_error(solution, exact) <= 1e-9


def test_settling_reports_the_largest_change_of_the_last_sweep():
    response, rows = Causal(np.ones((1, 4, 4))), slice(2, 4)

    def sweep():
        response.matrix[0, 3, 1] += 0.5  # and nothing else

    assert settle([Unknown(response)], sweep, rows, tolerance=1e-9, most_sweeps=1) == 0.5


def test_rows_of_a_correlation_are_written_with_the_columns_that_mirror_them():
    correlation, rows = Symmetric(np.zeros((1, 4, 4))), slice(2, 4)
    values = np.array([[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 4.0, 7.0]]])
    correlation[rows] = values
    assert np.array_equal(correlation.matrix, correlation.matrix.mT)
    assert np.array_equal(correlation[rows], values)


def test_panels_that_do_not_settle_are_refused(monkeypatch):
    """Then every step is taken, and exact; sweeps that end with a change of 1e-4 have not settled."""
    problem = make(steps=60)
    exact = dl.solve(problem)
    monkeypatch.setattr(Sweeps, "settle", lambda *arguments, **options: np.array([1e-4]))
    solution = dl.solve(problem, method="panels")
    assert solution.stats["nodes"] == 60
    assert true_error(solution, exact) <= 1e-12


def test_what_is_left_unresolved_counts_in_every_layer(monkeypatch):
    """A feature or gradient correlation that no polynomial follows, beside losses that are constant."""
    problem = make(steps=60)
    panels = PanelRun([problem], 1e-6)
    panels.fill()
    rows = panels.nodes.rows(panels.grid.last)
    assert panels.errors.truncation(rows) < 1e-6
    flat = np.repeat(panels.errors.equal_times(rows)[..., :1], PANEL_NODES, axis=-1)
    rough = 1 + 0.01 * (-1.0) ** np.arange(PANEL_NODES)
    for index in range(flat.shape[1]):
        values = flat.copy()
        values[:, index] *= rough
        monkeypatch.setattr(panels.errors, "equal_times", lambda _, values=values: values)
        assert panels.errors.truncation(rows) > 1e-4


def test_failed_panels_leave_no_trace():
    """Label noise, several outputs and growing storage, with panels that fail in between."""
    problem = make(lr=0.12, richness=0.5, steps=140, gram=[[1.0, 0.2], [0.2, 0.5]], depth=2)
    exact, solution = dl.solve(problem, method="dense"), dl.solve(problem, method="panels")
    assert solution.stats["lengths"].count(1) > 100
    assert true_error(solution, exact) <= 10 * max(solution.stats["error"], 1e-12)


def test_divergence_is_reported_with_its_step():
    problem = make(lr=0.8, steps=2000)
    exact, solution = dl.solve(make(lr=0.8, steps=100), method="dense"), dl.solve(problem)
    assert solution.status == exact.status
    step = solution.status.diverged_at
    assert np.isposinf(solution.test_loss[-1])
    losses = solution.at([step - 1, step, 1999])
    assert np.isfinite(losses.test_loss[0])
    assert np.isposinf(losses.test_loss[1:]).all()
    assert not np.isnan(solution.feature_correlation).any()


@pytest.mark.parametrize("top", some_slow([0.6, 1.0], 1.0))
def test_an_instability_that_begins_late_is_not_missed(top):
    """A smooth solution goes on to exist beyond the edge of stability, but training leaves it."""
    problem = make(dl.FullBatch(4.0), depth=1, width=1.0, lr=np.linspace(0.05, top, 400), steps=400)
    exact = dl.solve(problem, method="dense")
    assert not exact.test_loss[-1] < 2 * exact.test_loss[200]
    with pytest.raises(ArithmeticError, match="training is at the edge of stability around step"):
        dl.solve(problem, method="panels")


@pytest.mark.parametrize("top", some_slow([0.3, 0.4], 0.3))
def test_an_instability_that_stops_itself_is_not_missed(top):
    """What has grown lowers the kernel, so that it no longer grows when a trial of the stability ends."""
    rates = np.linspace(0.02, top, 300)
    with pytest.raises(ArithmeticError, match="training is at the edge of stability around step"):
        dl.solve(make(dl.FullBatch(2.0), depth=1, width=1.0, lr=rates, steps=300), method="panels")


def test_an_instability_that_has_stopped_itself_after_a_few_steps_is_not_missed():
    """As number 272 of ``make check-panels``: a disturbance grows ninetyfold in eight steps, and has then died out."""
    data = dl.Spectrum.power_law(1.984, 1.138, modes=17, noise=0.1)
    rates, network = np.repeat([0.076, 1.13], [398, 74]), dl.MLP(1, 119.3, richness=0.593)
    problem = dl.Problem(network, data, dl.FullBatch(109.8), dl.GradientDescent(rates), 472)
    with pytest.raises(ArithmeticError, match="training is at the edge of stability around step"):
        dl.solve(problem, method="panels", tolerance=1e-3)


def test_a_bump_of_the_learning_rate_within_a_panel_is_tried_at_its_top():
    def rate(step):
        return 0.02 + 0.5 * np.exp(-(((step - 200) / 25) ** 2))

    problem = make(dl.FullBatch(2.0), depth=1, width=1.0, lr=rate, steps=300)
    assert dl.solve(problem).status.rounding_at is not None
    with pytest.raises(ArithmeticError, match="training is at the edge of stability around step"):
        dl.solve(problem, method="panels", tolerance=1e-3)


def test_errors_of_panels_that_grow_in_single_steps_are_not_hidden():
    """After a jump the run is unstable, which single steps follow, but from what panels have left of the seeds."""
    problem = make(dl.FullBatch(2.0), depth=1, width=1.0, lr=[0.05] * 150 + [0.3] * 150, steps=300)
    with pytest.raises(ArithmeticError, match=r"training is at the edge of stability around step 1[5-9]"):
        dl.solve(problem, method="panels")


JUMPS = {
    "down": [0.01] * 150 + [0.002] * 150,
    "up": [0.002] * 150 + [0.02] * 150,
    "restarts": [0.01 * (1 + np.cos(np.pi * (step % 100) / 100)) for step in range(300)],
    "warm-up": [0.02 * min(1.0, (step + 1) / 90, (300 - step) / 100) for step in range(300)],
}


@pytest.mark.parametrize("name", some_slow(JUMPS, "up"))  # which restarts have too
def test_panels_end_where_the_learning_rate_jumps_or_bends(name):
    problem = make(lr=JUMPS[name])
    exact, solution = dl.solve(problem, method="dense"), dl.solve(problem, method="panels")
    assert true_error(solution, exact) <= 10 * solution.stats["error"]
    ends = np.cumsum(solution.stats["lengths"]) - 1
    assert set(breaks(np.array(JUMPS[name]))[:1]) <= set(ends)
    assert solution.stats["lengths"].count(1) < 120


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([0.01] * 20 + [0.3] * 20, [19, 20]),
        (np.minimum(np.arange(40) / 25, 1.0), [25]),
        (0.1 / (1 + np.arange(1000) / 100), []),
        (1 + np.cos(np.arange(1000) / 300), []),
        (0.9 ** np.arange(300), []),
        (1.0 / np.sqrt(1 + np.arange(300)), []),
        (np.minimum(np.arange(10**5) / 10**4, 1.0), [10**4]),
        ([0.1, 0.2], []),
    ],
)
def test_breaks_of_a_schedule(rates, expected):
    assert breaks(np.array(rates)).tolist() == expected


def test_an_exact_fit_that_has_long_converged_stays_resolved():
    """Such jumps made panels short, until these were given up at step 5000."""
    solution = dl.solve(make(dl.FullBatch(0.5), 100_000, 0.05, depth=1, width=1.0), method="panels")
    assert len(solution.times) < 250
    assert solution.train_loss[-1] < 1e-12


def test_a_coefficient_that_is_small_by_chance_does_not_hide_the_rest():
    falling = 10.0 ** -np.arange(PANEL_NODES)
    chance = falling * np.where(np.arange(PANEL_NODES) < PANEL_NODES - 2, 1.0, 1e-3)
    values = [np.linalg.solve(to_legendre(), each) for each in (falling, chance)]
    fair, by_chance = (rest(each, 1.0) for each in values)
    assert fair == pytest.approx(1e-8, rel=0.1)
    assert by_chance == pytest.approx(1e-3 * fair, rel=0.1)


def test_panels_that_do_not_pay_are_given_up_for_every_step():
    """Oscillating runs take single steps by panels too, and failed panels besides."""
    problem = make(dl.Population(), depth=2, lr=0.3, steps=250, width=1.0)
    with pytest.raises(Unresolved, match="far more work than usual"):
        Panels(patience=0.5).solve([problem])
    (answer,) = Panels(patience=5.0).solve([make()])
    assert answer.axis.times[-1] == 299


def test_memory_of_panels_is_bounded_by_its_estimate():
    problem = make(depth=1, steps=400)
    tracemalloc.start()
    dl.solve(problem, method="panels")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < Panels().estimate(problem).bytes < 6 * peak


@cache
def of_400_steps(method):
    return dl.solve(make(depth=1, steps=400), method=method)


def test_at_is_exact_at_nodes_and_refuses_other_times():
    for method in ("dense", "panels"):
        solution = of_400_steps(method)
        nodes = np.flatnonzero(solution.times == np.round(solution.times))
        found = solution.at(solution.times[nodes])
        np.testing.assert_allclose(found.test_loss, solution.test_loss[nodes], rtol=1e-13)
        assert float(solution.at(7).train_loss) == solution.train_loss[7]
        for wrong in (400, -1, 2.5, [], "now", [[1]]):
            with pytest.raises(ValueError, match="step must be whole numbers from 0 to 399"):
                solution.at(wrong)


def test_files_hold_everything(tmp_path):
    solution = of_400_steps("panels")
    solution.save(tmp_path / "run.nc")
    again = dl.Solution.load(tmp_path / "run.nc")
    assert (again.times == solution.times).all()
    assert again.stats == solution.stats
    assert (again.at([3, 333]).test_loss == solution.at([3, 333]).test_loss).all()
    np.testing.assert_allclose(again.variance.data, solution.variance.data, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sampling": dl.OnlineSGD(0.5)}, "where batches are drawn"),
        ({"sampling": dl.MultiPassSGD(1.0, 0.5)}, "where batches are drawn"),
        ({"lr": 0.1, "weight_decay": 6.0}, "where weights decay within a few steps"),
    ],
)
def test_what_panels_cannot_do_is_dense(change, reason):
    problem = make(**change, steps=2000)
    assert Choice().solver(problem).name != "panels"
    with pytest.raises(ValueError, match=f'method must be "dense" or "auto" {reason}'):
        dl.solve(problem, method="panels")


def test_the_choice_of_method():
    assert Choice().solver(make(steps=400)).name == "dense"
    assert Choice().solver(make(steps=2000)).name == "panels"
    assert Choice("dense").solver(make(steps=2000)).name == "dense"
    with pytest.raises(
        ValueError,
        match="method must be 'auto' or 'dense' or 'panels' or 'coarse' or 'condensed' or 'reference', got 'fast'",
    ):
        dl.solve(make(), method="fast")
    short, long = dl.solve([make(steps=20), make(steps=1200, depth=1)])
    assert [short.stats["method"], long.stats["method"]] == ["dense", "panels"]
    with pytest.raises(ValueError, match='solve with method="dense"'):
        long.sample_sites(3)


def test_giving_up_is_an_error_unless_another_method_can_take_over(monkeypatch):
    monkeypatch.setattr("deeplinear._solvers.panels.nodes.MOST_ROWS", 150)
    monkeypatch.setattr("deeplinear._solvers.choose.SHORT", 150)
    problem = make(dl.Population(), depth=2, lr=0.3, steps=300, width=1.0)
    assert dl.solve(problem).stats["method"] == "condensed"
    with pytest.raises(ArithmeticError, match=r"panels reached step \d+ of 300 with \d+ nodes"):
        dl.solve(problem, method="panels")
    monkeypatch.setattr(Choice, "instead", lambda *arguments: None)
    with pytest.raises(ArithmeticError, match="lower lr or steps, or raise tolerance"):
        dl.solve(problem)


@pytest.mark.slow
@pytest.mark.parametrize("lr", [0.01, 0.05, 0.1])
def test_a_noisy_fit_that_has_long_converged_stays_resolved(lr):
    problem = make(dl.FullBatch(2.0), 200_001, lr, noise=1.0, depth=1, width=1.0)
    solution = dl.solve(problem, method="panels")
    assert len(solution.times) < 250
    # Least squares: sigma^2 (1 + 1 / (alpha - 1)) on new examples, sigma^2 (1 - 1 / alpha) on those of the fit.
    assert solution.test_loss[-1] == pytest.approx(2.0, rel=1e-6)
    assert solution.train_loss[-1] == pytest.approx(0.5, rel=1e-6)


def test_what_is_not_finite_is_never_taken_for_resolved():
    values = np.linspace(1.0, 2.0, PANEL_NODES)
    assert rest(values**9, 1.0) > 0
    assert rest(np.zeros(PANEL_NODES), 0.0) == 0.0
    for wrong in (np.nan, np.inf):
        values[3] = wrong
        with np.errstate(invalid="ignore"):  # as while panels run
            assert np.isposinf(rest(values, wrong))


@pytest.mark.parametrize("data", [dl.Spectrum([0.0], [0.2], [4.0]), dl.Spectrum([1.0], [0.0], [4.0])])
def test_what_has_no_loss_is_solved_at_few_nodes(data):
    """Inputs, or a target, that are zero: nothing to learn, and a scale of zero for all that is relative."""
    network = dl.MLP(2, 9.0, richness=0.5, centered=True)
    solution = dl.solve(dl.Problem(network, data, dl.FullBatch(50.0), dl.GradientDescent(0.1), 20_000))
    assert solution.status.diverged_at is None
    assert solution.stats["method"] == "panels"
    assert solution.stats["nodes"] < 250
    np.testing.assert_array_equal(solution.test_loss, 0.0)


def test_a_schedule_is_followed_on_panels_shorter_than_their_nodes():
    """What is left before a jump may be: rates of six steps, through eight nodes."""
    grid, rates = Grid(), np.linspace(0.1, 0.2, 10) ** 2
    on_grid = GridPropagator(rates, 0.0, grid)
    for _ in range(4):
        grid.add(1)
        on_grid.rows()
    grid.add(6)
    *_, a, misfit = on_grid.rows()
    assert misfit < 1e-12
    np.testing.assert_allclose(a[-1].sum(), rates[:-1].sum(), rtol=1e-12)


AT_THE_EDGE = dl.Problem(
    dl.MLP(4, 2.56, richness=2.721), dl.Isotropic(), dl.FullBatch(1.525), dl.GradientDescent(0.04548), steps=6445
)
"""The rich network raises its kernel up to the edge of stability and stays there; losses fall as a power of time."""


def test_panels_say_in_seconds_that_a_long_run_stays_at_the_edge():
    """Number 1273 of ``make fuzz``: panels never settle, and to solve every step takes half an hour."""
    start = time.process_time()
    with pytest.raises(Unresolved, match=r"edge of stability.*lower lr") as error:
        dl.solve(AT_THE_EDGE, method="panels")
    assert time.process_time() - start < 60  # 1.3 s
    assert int(re.search(r"around step (\d+)", str(error.value))[1]) < 1000


@pytest.mark.slow
def test_a_long_run_that_stays_at_the_edge_is_solved_with_a_condensed_past():
    solution, first = dl.solve(AT_THE_EDGE), dl.solve(replace(AT_THE_EDGE, steps=1000), method="dense")
    assert (solution.stats["method"], str(solution.status)) == ("condensed", "completed")
    np.testing.assert_allclose(solution.test_loss[:1000], first.test_loss, rtol=1e-8)
    assert solution.test_loss[-1] < solution.test_loss[1000] / 10  # 6e-8 after 3e-6


def test_the_edge_is_no_reason_to_give_up_where_every_step_can_be_solved():
    short = replace(AT_THE_EDGE, steps=300)
    solution, exact = dl.solve(short, method="panels"), dl.solve(short, method="dense")
    assert solution.stats["nodes"] == 300
    np.testing.assert_allclose(solution.test_loss, exact.test_loss, rtol=1e-9)


def test_panels_that_are_not_asked_for_are_given_up_after_several_times_their_usual_work():
    """Nothing oscillates here, but sweeps over panels do not settle (they do at lr = 0.015)."""
    slow = replace(AT_THE_EDGE, optimizer=dl.GradientDescent(0.02))
    with pytest.raises(Unresolved, match="far more work than usual"):
        Panels(overrun=0.2).solve([slow])
    assert Choice().solver(slow).overrun < Panels().overrun


def test_panels_that_are_asked_for_are_given_up_too_where_every_step_takes_too_long(monkeypatch):
    """Before minutes are spent on a run that hardly becomes smooth; 10^5 steps took many."""
    slow = replace(AT_THE_EDGE, optimizer=dl.GradientDescent(0.02))
    monkeypatch.setattr(solver, "_OVERRUN", 0.2)
    monkeypatch.setattr(choose, "_MOST_NUMBERS", 0)
    with pytest.raises(Unresolved, match="far more work than usual"):
        dl.solve(slow, method="panels")
    assert Choice("panels", hurries=False).solver(slow) == Panels()


def test_a_refusal_says_that_a_condensed_past_may_do(monkeypatch):
    monkeypatch.setattr(choose, "_MOST_NUMBERS", 0)
    with pytest.raises(Unresolved, match=r'lower lr; or take method="condensed", which may take some \d.* oscillates$'):
        dl.solve(AT_THE_EDGE)
