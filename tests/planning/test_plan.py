"""Budgets: closed forms of frontiers and exponents, brute force, costs of networks, critical batches."""

import io
import math
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import deeplinear as dl
from deeplinear._core import claims
from deeplinear._core.files import sealed
from deeplinear._core.refusal import Refusal
from deeplinear._planning import plan as plan_module
from deeplinear._planning.batch import critical_size
from deeplinear._planning.budget import Envelope, envelope
from deeplinear._planning.frontier import frontier
from deeplinear._planning.kept import _name, open_store, solve_kept
from factories import maker
from strategies import on_random

make = maker("sampling", "steps", depth=1, width=1.0, noise=0.3, lr=0.05)
ONLINE = make(dl.OnlineSGD(0.5), 16)


def updates(problem: dl.Problem) -> float:
    """Cost of width times updates."""
    return float(problem.network.width) * (problem.steps - 1.0)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found() -> dl.Plan:
    return dl.plan(ONLINE, 20.0, values={"width": [0.5, 1.0, 2.0]})


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.5), (0.6, 1.2)])
def test_the_frontier_of_two_powers(a: float, b: float) -> None:
    """L = N^-a + T^-b at the cost N T: the least loss goes as C^(-ab/(a+b)), at N ~ C^(b/(a+b))."""
    width, steps = np.geomspace(1, 1e4, 41), np.geomspace(1, 1e5, 101)
    loss = width[:, None] ** -a + steps**-b
    grid, compute = {"width": width}, np.geomspace(1e3, 1e5, 9)
    result = frontier(grid, steps, loss, width[:, None] * steps, compute)
    assert result.is_inside.all()
    expected = {"loss": -a * b / (a + b), "width": b / (a + b), "steps": a / (a + b)}
    for name, exponent in expected.items():
        # The parabola's third order is what is left, 1 % of a step of the grid.
        assert result.exponents[name][0] == pytest.approx(exponent, abs=0.01), name
    exact = (a / b * compute**b) ** (1 / (a + b))
    np.testing.assert_allclose(result.values["width"], exact, rtol=0.02)
    np.testing.assert_allclose(result.loss, exact**-a + (compute / exact) ** -b, rtol=1e-3)
    np.testing.assert_allclose(result.values["width"] * result.values["steps"], compute, rtol=1e-9)


def test_ends_of_the_grid_are_not_fitted() -> None:
    width, steps = np.array([1.0, 2.0, 4.0]), np.geomspace(1, 100, 21)
    loss = width[:, None] ** -1.0 + steps**-1.0
    result = frontier({"width": width}, steps, loss, width[:, None] * steps, np.geomspace(1, 1e4, 9))
    assert not result.is_inside[[0, -1]].any()
    assert np.isnan(result.exponents["loss"][0]) or result.is_inside.sum() > 2
    assert result.values["width"][-1] == 4.0
    # The smallest first; then the larger neighbour is too dear, or a smaller one has had the longest run.
    assert result.notes[0] == "smallest width"
    assert result.notes[-1] == "longest run, largest width"
    assert [not note for note in result.notes] == result.is_inside.tolist()


def test_why_a_budget_is_left_out() -> None:
    """Inside the grid too, a neighbour may be too dear for one update, or have had the longest run already."""
    width, steps = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0])
    steep = np.array([[9.0, 8.5, 8.0], [4.0, 2.0, 1.0], [6.0, 5.0, 4.0]])
    result = frontier({"width": width}, steps, steep, width[:, None] * steps, np.array([2.0, 4.0]))
    assert result.notes == ("one update at width 4 costs more", "width 1 is at the longest run")


def test_the_lazy_exponent_of_steps() -> None:
    """At infinite width a lazy network falls as t^-source, and its compute is its time."""
    network = dl.MLP(1, "infinite", parameterization="ntk", centered=True)
    problem = dl.Problem(network, dl.Spectrum.power_law(1.5, 0.6), dl.Population(), dl.GradientDescent(0.1), 120)
    result = dl.plan(problem, 119.0, over=["steps"], cost=lambda each: each.steps - 1.0)
    late = result.frontier.compute > 50
    slope = np.polyfit(np.log(result.frontier.compute[late]), np.log(result.frontier.loss[late]), 1)[0]
    assert -slope == pytest.approx(dl.lazy_exponent(0.6), abs=0.01)  # the first term left out is of order 1 / t


def test_the_frontier_of_random_features() -> None:
    """With frozen input weights L = N^-ab + t^-b, so at the cost N t the least loss goes as C^(-ab/(1+a))."""
    a, b = 1.5, 0.6
    rule = dl.GradientDescent(0.1, layer_lr={"input": 0.0})
    network = dl.MLP(1, 16.0, richness=1e-3, centered=True)
    problem = dl.Problem(network, dl.Spectrum.power_law(a, b), dl.Population(), rule, 40)
    result = dl.plan(problem, 2000.0, values={"width": [8, 16, 32, 64, 128]}, cost=updates)
    exponent, error = result.frontier.exponents["loss"]
    assert exponent == pytest.approx(-a * b / (1 + a), abs=0.02)
    assert error < 0.01


def test_brute_force(found: dl.Plan) -> None:
    """Every model and horizon with its best rate by optimal_lr: none within the budget is better than the plan."""
    assert found.cost == dl.training_cost(found.problem) <= 20.0
    for i, width in enumerate(found.grid["width"]):
        for j, horizon in list(enumerate(found.horizons))[::3]:
            problem = dl.Problem(dl.MLP(1, width), ONLINE.data, ONLINE.sampling, ONLINE.optimizer, int(horizon) + 1)
            best = dl.optimal_lr(problem)
            assert found.costs[i, j] == dl.training_cost(problem)
            # Rates are a factor 1.19 apart, and the loss is flat around its best, or ends at a cliff.
            assert best.loss * (1 - 1e-6) <= found.losses[i, j] <= best.loss * 1.03
            assert found.costs[i, j] > 20.0 or best.loss >= found.loss / 1.03
    assert dl.solve(found.problem).test_loss[-1] == pytest.approx(found.loss, rel=1e-9)


@on_random(st.data(), 2, 12)
def test_nothing_within_the_budget_is_better(data: st.DataObject) -> None:
    """Every width, every number of updates and 150 rates: none of the runs within the budget has less loss."""
    draw = data.draw
    problem = make(dl.OnlineSGD(draw(st.sampled_from([0.5, 1.0, 2.0]))), draw(st.integers(8, 30)))
    problem = problem.replace(depth=draw(st.integers(1, 2)), noise=draw(st.sampled_from([0.0, 0.3])))
    widths = [0.5, 1.0, 2.0]
    dearest = dl.training_cost(problem.replace(width=widths[-1]))
    compute = dearest * draw(st.floats(0.05, 0.9))
    found = dl.plan(problem, compute, values={"width": widths})
    assert found.cost == dl.training_cost(found.problem) <= compute
    assert dl.solve(found.problem).test_loss[-1] == pytest.approx(found.loss, rel=1e-9)
    for width in widths:
        model = problem.replace(width=width)
        one = dl.training_cost(model) / (model.steps - 1)
        longest = min(int(compute / one), model.steps - 1)
        if longest:
            runs = dl.solve([model.replace(lr=lr) for lr in np.geomspace(0.01, 1.0, 150).tolist()])
            assert found.loss <= min(run.test_loss[1 : longest + 1].min() for run in runs) * (1 + 1e-6)


def test_the_last_run_of_the_table_is_the_answer() -> None:
    """A budget that a ladder of horizons would waste a tenth of, on the problem of the command line."""
    problem = make(dl.FullBatch(2.0), 120).replace(depth=3)
    result = dl.plan(problem, 1000.0)
    assert result.values == {"width": 0.5, "steps": 84.0}
    assert result.loss == pytest.approx(0.21966, rel=1e-4)
    last = {name: float(each[-1]) for name, each in result.runs.items()}
    lr = float(result.problem.optimizer.rates(1)[0])
    assert last == {"loss": result.loss, "cost": result.cost, "lr": lr} | result.values
    assert (np.diff(result.runs["loss"]) <= 0).all()
    assert (result.runs["cost"] <= result.frontier.compute * (1 + 1e-9)).all()


def test_costs_of_networks() -> None:
    """6 operations for each weight, example and update, counted by hand."""
    data = dl.Spectrum([1.0, 0.5], [1.0, 1.0], multiplicity=[1.0, 7.0])
    rule = dl.GradientDescent(0.1)
    assert dl.training_cost(dl.Problem(dl.MLP(2, 4.0), data, dl.OnlineSGD(3.0), rule, 3)) == 6 * (32 + 16) * 3 * 2
    uneven = dl.Problem(dl.MLP(2, (1.0, 3.0)), dl.Isotropic(), dl.FullBatch(2.0), rule, 6)
    assert dl.training_cost(uneven) == 6 * (1 + 3) * 2 * 5
    growing = dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(), dl.OnlineSGD([1.0, 2.0, 9.0]), rule, 3)
    assert dl.training_cost(growing) == 6 * 3  # the last step has no update
    assert dl.training_cost(dl.Problem(dl.MLP(1, 1.0), dl.Isotropic(), dl.Population(), rule, 3)) == 12


def test_costs_of_rules() -> None:
    """SAM looks at two gradients; each iteration of Muon multiplies X X^T, its square, and that with X."""
    rules = {"plain": dl.GradientDescent(0.1), "sam": dl.SAM(0.1, rho=0.05), "muon": dl.Muon(0.1, iterations=3)}
    rules["input too"] = dl.Muon(0.1, iterations=3, input=True)
    cost = {
        name: dl.training_cost(dl.Problem(dl.MLP(2, (4.0, 3.0)), dl.Isotropic(), dl.OnlineSGD(0.5), rule, 6))
        for name, rule in rules.items()
    }
    assert cost["plain"] == 6 * (4 + 12) * 0.5 * 5
    assert cost["sam"] == 2 * cost["plain"]
    assert cost["muon"] - cost["plain"] == 5 * 3 * 2 * (3 * 3 * 4 + 3 * 3 * 3 + 3 * 3 * 4)
    assert cost["input too"] - cost["muon"] == 5 * 3 * 2 * (4 + 1 + 4)


def test_impossible_models_are_left_out() -> None:
    """A batch above the number of samples does not stop the others; if all are impossible, this is said."""
    problem, grid = make(dl.MultiPassSGD(1.0, 0.5), 8), [0.25, 0.5, 1.0, 2.0]
    result = dl.plan(problem, 20.0, over=["batch", "steps"], values={"batch": grid})
    alone = dl.plan(problem, 20.0, over=["batch", "steps"], values={"batch": grid[:3]})
    np.testing.assert_array_equal(result.losses[:3], alone.losses)
    assert (result.loss, result.values) == (alone.loss, alone.values)
    assert np.isinf(result.losses[3]).all()
    assert np.isinf(result.costs[3]).all()
    assert str(result).splitlines()[-1] == "left out: batch 2, as batch must be at most samples (1.0), got 2.0"
    assert "batch 2" not in [text.get_text() for text in result.plot().axes[0].get_legend().get_texts()]
    with pytest.raises(Refusal, match="batch must be at most samples"):
        dl.plan(problem, 20.0, over=["batch", "steps"], values={"batch": [2.0, 3.0]})


def test_a_budget_beyond_the_grid() -> None:
    """Budgets end where the best run is paid for, no row comes twice, and this is said."""
    result = dl.plan(make(dl.FullBatch(2.0), 12), 1e6)
    assert result.frontier.compute[-1] == result.cost < 1e6
    rows = list(zip(result.runs["cost"], result.runs["loss"], strict=True))
    assert len(set(rows)) > len(rows) / 2
    assert "the budget pays for every run that was tried: try more steps or larger values" in str(result)
    assert "pays for every" not in str(dl.plan(make(dl.FullBatch(2.0), 12), 50.0))


def test_words_and_the_picture(found: dl.Plan) -> None:
    start = f"test loss {found.loss:.4g} for {found.cost:.4g} of 20 D^3 operations: width {found.values['width']:g}, "
    assert str(found).startswith(f"{start}{found.values['steps'] - 1:g} updates, lr ")
    figure = found.plot()
    assert figure.axes[0].get_ylabel() == "test loss above label noise"
    handles, labels = figure.axes[0].get_legend_handles_labels()
    star = handles[labels.index("best run")]
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (found.cost, found.loss - found.label_noise)
    assert labels[:3] == ["width 0.5", "width 1", "width 2"]
    np.testing.assert_allclose(figure.axes[0].get_lines()[0].get_ydata(), found.losses[0] - 0.09)


def test_one_panel_and_a_notebook(found: dl.Plan) -> None:
    figure = found.plot()
    assert dl.plot(found, ax=figure.axes[1]) is figure
    assert found._repr_html_().startswith("<div><strong>Plan</strong><pre>test loss")


def test_several_fields() -> None:
    result = dl.plan(
        make(dl.MultiPassSGD(4.0, 0.5), 8), 30.0, over=["batch", "depth", "steps"],
        values={"batch": [0.25, 0.5, 1.0], "depth": [1, 2]},
    )  # fmt: skip
    assert result.losses.shape == (3, 2, len(result.horizons))
    assert set(result.values) == {"batch", "depth", "steps"}
    assert result.cost <= 30.0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"compute": 0.1}, "compute must be at least .*, the cost of the cheapest run, got 0.1"),
        ({"compute": -1.0}, "compute must be a positive finite number"),
        ({"over": []}, "over must be one or more distinct names"),
        ({"over": ["lr"]}, "over must be 'width' or 'steps' or 'batch' or 'depth', got 'lr'"),
        ({"over": ["samples"]}, "got 'samples'"),
        ({"values": {"depth": [1]}}, "values must be given for fields in over other than steps"),
        ({"values": {"width": []}}, "one or more distinct numbers"),
        ({"values": {"width": [1.0, -2.0]}}, r"values\['width'\] must be a positive finite number, got -2.0"),
        ({"values": [0.5, 1, 2]}, "values must be a dictionary of lists of numbers by name of the field"),
        ({"cost": lambda _: math.nan}, "cost must be a positive finite number, got nan"),
        ({"cost": lambda _: -1}, "cost must be a positive finite number, got -1"),
        ({"cost": lambda _: "a"}, "cost must be a positive finite number, got 'a'"),
        ({"cost": 3.0}, "cost must be a function of a problem, got 3.0"),
    ],
)
def test_refusals(options: dict[str, Any], text: str) -> None:
    with pytest.raises(Refusal, match=text):
        dl.plan(ONLINE, **({"compute": 20.0} | options))


def test_what_has_no_cost_or_a_schedule_is_refused() -> None:
    wide = make(dl.OnlineSGD(0.5), 8, network=dl.MLP(1, "infinite"))
    with pytest.raises(Refusal, match="cost must be given for an infinite network"):
        dl.plan(wide, 20.0, over=["steps"])
    endless = dl.Problem(dl.MLP(1, 8.0), dl.Spectrum.power_law(1.5, 0.6), dl.OnlineSGD(4.0), dl.GradientDescent(0.1), 8)
    with pytest.raises(Refusal, match="cost must be given where the spectrum is infinite"):
        dl.training_cost(endless)
    with pytest.raises(Refusal, match="lr must be one number, as every horizon has its own, got a schedule"):
        dl.plan(make(dl.OnlineSGD(0.5), 8, lr=dl.schedules.linear(0.1)), 20.0)


def test_the_critical_size_of_a_hyperbola() -> None:
    batches = np.geomspace(0.05, 50, 25)
    assert critical_size(batches, 7 * (1 + 3.0 / batches))[0] == pytest.approx(3.0, rel=1e-3)
    assert np.isnan(critical_size(batches, 100 / batches)).all()  # halves all the way
    steps = np.where(batches < 1, np.inf, 7 * (1 + 3.0 / batches))
    assert critical_size(batches, steps)[0] == pytest.approx(3.0, rel=1e-3)


@pytest.mark.parametrize("seed", range(20))
def test_the_error_of_a_critical_size_holds(seed: int) -> None:
    """Few sizes, far apart: the true one is within the error."""
    rng = np.random.default_rng(seed)
    batches = np.geomspace(rng.uniform(0.1, 0.5), rng.uniform(4, 16), int(rng.integers(5, 10)))
    true = float(np.exp(rng.uniform(np.log(batches[1]), np.log(batches[-2]))))
    size, error = critical_size(batches, 20 * (1 + true / batches))
    assert abs(size - true) < error


def test_the_critical_batch() -> None:
    """Small batches save as many steps as they cost examples; the critical one draws about twice as many as these."""
    problem = make(dl.OnlineSGD(0.5), 80)
    result = dl.critical_batch(problem, 0.2, [0.125, 0.25, 0.5, 1, 2, 4, 8])
    assert (np.diff(result.steps) < 0).all()
    assert (np.diff(result.examples) > 0).all()
    assert 1.0 < result.critical < 4.0
    # The curve passes the loss where it says, at the rate that it says.
    at = int(np.ceil(result.steps[2]))
    run = dl.solve(make(dl.OnlineSGD(0.5), at + 1, lr=float(result.lrs[2]))).test_loss
    assert run[-1] <= 0.2
    assert str(result).splitlines()[-1].startswith(f"critical batch to test loss 0.2: {result.critical:.3g} ± ")


def test_the_critical_batch_does_not_depend_on_the_ladders() -> None:
    """Other sizes lead to the same within the error; the steps are those of brute force over rates."""
    problem = make(dl.OnlineSGD(0.5), 60)
    few, many = (dl.critical_batch(problem, 0.2, np.geomspace(0.25, 4, number)) for number in (5, 17))
    assert abs(few.critical - many.critical) < few.critical_error + many.critical_error
    assert many.critical_error < 0.03 * many.critical
    for batch, steps in zip(few.batches, few.steps, strict=True):
        rates = [problem.replace(batch=float(batch), lr=lr) for lr in np.geomspace(0.05, 0.5, 120).tolist()]
        losses = np.array([run.test_loss for run in dl.solve(rates)])
        first = int(np.flatnonzero(losses.min(axis=0) <= 0.2)[0])
        assert first - 1 < steps <= first


def test_critical_batches_that_are_refused() -> None:
    with pytest.raises(Refusal, match="the lowest that is reached within 16 steps, got 0"):
        dl.critical_batch(ONLINE, 0.01, [0.5, 1, 2])
    with pytest.raises(Refusal, match="sampling must have batches"):
        dl.critical_batch(make(dl.FullBatch(2.0), 16), 0.2, [0.5, 1, 2])
    with pytest.raises(Refusal, match="batches must be at least three distinct sizes"):
        dl.critical_batch(ONLINE, 0.2, [0.5, 1])
    with pytest.raises(Refusal, match=r"batches must be a sequence of numbers, got 0\.5"):
        dl.critical_batch(ONLINE, 0.2, 0.5)  # type: ignore[arg-type]
    with pytest.raises(Refusal, match=r"loss must be below 2\.09, the loss before training, got 1e\+30"):
        dl.critical_batch(ONLINE, 1e30, [0.5, 1, 2])


# --- kept models ----------------------------------------------------------------------------------------------


SHORT = make(dl.OnlineSGD(0.5), 6)
WIDTHS = {"width": [0.5, 1.0]}


def files(store: Path) -> list[Path]:
    return sorted((store / ".deeplinear-plan" / "models").glob("*.npz"))


def test_a_plan_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is not solved again, whatever the budget, the cost or the rate of the problem."""
    plain = dl.plan(SHORT, 20.0, values=WIDTHS)
    first = dl.plan(SHORT, 20.0, values=WIDTHS, store=tmp_path / "kept")
    np.testing.assert_array_equal(first.losses, plain.losses)
    np.testing.assert_array_equal(first.lrs, plain.lrs)
    assert len(files(tmp_path / "kept")) == 2
    solved: list[dl.Problem] = []
    monkeypatch.setattr(plan_module, "envelope", lambda model, *_: solved.append(model) or envelope(model, *_))
    again = dl.plan(SHORT.replace(lr=0.7), 10.0, values=WIDTHS, store=tmp_path / "kept", cost=updates)
    np.testing.assert_array_equal(again.losses, plain.losses)
    assert not solved
    dl.plan(SHORT, 20.0, values={"width": [1.0, 2.0]}, store=str(tmp_path / "kept"))
    assert [each.network.width for each in solved] == [2.0]
    dl.plan(SHORT, 20.0, values={"width": [1.0]}, store=tmp_path / "kept", objective="train")
    assert len(solved) == 2  # another loss


def _sealed(**arrays: Any) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return bytes(sealed(content))


def _folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path, Path], object]] = {
    "truncated": lambda path, _: path.write_bytes(path.read_bytes()[:-100]),
    "of another model": lambda path, other: shutil.copy(other, path),
    "foreign arrays with a checksum": lambda path, _: path.write_bytes(_sealed(mine=np.arange(3.0))),
    "text with a checksum": lambda path, _: path.write_bytes(sealed(io.BytesIO(b"mine"))),
    "too short": lambda path, _: path.write_bytes(_sealed(losses=np.ones(3), lrs=np.ones(3), model=path.stem)),
    "without its model": lambda path, _: path.write_bytes(_sealed(losses=np.zeros(6), lrs=np.ones(6))),
    "a folder": lambda path, _: _folder_instead(path),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_model_is_solved_again(tmp_path: Path, damage: Callable[[Path, Path], object]) -> None:
    first = dl.plan(SHORT, 20.0, values=WIDTHS, store=tmp_path)
    damage(*files(tmp_path))
    again = dl.plan(SHORT, 20.0, values=WIDTHS, store=tmp_path)
    np.testing.assert_array_equal(again.losses, first.losses)
    np.testing.assert_array_equal(again.lrs, first.lrs)
    assert all(each.is_file() for each in files(tmp_path))


@pytest.mark.parametrize("name", ["models", "owners", "claims"])
def test_a_store_without_its_folders_is_refused_by_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / ".deeplinear-plan" / name
    folder.parent.mkdir()
    folder.write_text("mine")
    with pytest.raises(OSError, match=f"store {re.escape(str(tmp_path))} cannot be read or written"):
        dl.plan(SHORT, 20.0, values=WIDTHS, store=tmp_path)


def test_what_another_process_works_on_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Envelope(np.arange(6.0), np.ones(6))
    name = _name(SHORT, "test")
    other = open_store(tmp_path, [name])
    assert other.take(name)
    monkeypatch.setattr(claims, "QUIET", 0.1)
    threading.Timer(0.6, lambda: other.put(name, kept)).start()
    with pytest.warns(UserWarning, match=r"waiting for another process, which is at work on the store .* after 60 s"):
        (found,) = solve_kept([SHORT], "test", tmp_path, lambda _: pytest.fail("it was claimed"))
    other.close()
    np.testing.assert_array_equal(found.losses, kept.losses)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_plan_on_a_cluster_survives_a_worker_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes of a cluster share a plan; one is killed at a model; the other ends it, and it is resumed here."""
    distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'deeplinear[sweep]'")
    problem, values = SHORT.replace(steps=60), {"width": np.geomspace(0.5, 4.0, 12).tolist()}
    options = {"values": values, "store": tmp_path / "kept"}
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        pids = client.run(os.getpid)
        shared = [client.submit(dl.plan, problem, 500.0, **options, workers=[each], pure=False) for each in pids]
        while len(files(tmp_path / "kept")) < 3:
            time.sleep(0.01)
        os.kill(next(iter(pids.values())), signal.SIGKILL)
        assert len(files(tmp_path / "kept")) < 12  # there was work left
        there = shared[1].result(timeout=60)
    monkeypatch.setattr(plan_module, "envelope", lambda *_: pytest.fail("all of it is there"))
    here = dl.plan(problem, 500.0, **options)
    monkeypatch.undo()
    alone = dl.plan(problem, 500.0, values=values)
    for each in (there, here):
        np.testing.assert_array_equal(each.losses, alone.losses)


def test_stores_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(Refusal, match=r"store must be new or hold plans; the folder .* has something else in it"):
        dl.plan(SHORT, 20.0, values=WIDTHS, store=tmp_path)
    with pytest.raises(Refusal, match="store must be a folder, got the file"):
        dl.plan(SHORT, 20.0, values=WIDTHS, store=tmp_path / "note.txt")


# --- epochs ---------------------------------------------------------------------------------------------------


def test_repeating_against_collecting() -> None:
    """Where examples have a price, fewer are bought the higher it is; epochs are counted from what is drawn."""

    def cost(price: float) -> Any:
        return lambda each: dl.training_cost(each) + price * each.sampling.samples

    problem = make(dl.MultiPassSGD(1.0, 0.5), 10)
    cheap, dear = (
        dl.plan(problem, 60.0, ("samples", "steps"), values={"samples": [1, 2, 4]}, cost=cost(price))
        for price in (1.0, 20.0)
    )
    assert cheap.values["samples"] > dear.values["samples"]
    for each in (cheap, dear):
        assert each.epochs == pytest.approx((each.problem.steps - 1) * 0.5 / each.values["samples"])
    assert f"which is {dear.epochs:.3g} passes over the data" in str(dear)
    assert math.isnan(dl.plan(SHORT, 20.0, values=WIDTHS).epochs)
