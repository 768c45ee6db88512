"""The best schedule: against brute force, closed forms and networks, and never worse than the named shapes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from deeplinear._learning_rate.search import Excess
from deeplinear._planning.families import FAMILIES, tuned
from deeplinear._planning.rates import Rates
from deeplinear._planning.scales import SCALES
from deeplinear._planning.schedule import _descend, _hats, _places
from factories import maker, some_slow

make = maker("sampling", "steps", depth=2, width=1.0, noise=0.3, lr=0.05)
ONLINE = make(dl.OnlineSGD(0.5), 16)


def rates_of(problem: dl.Problem, objective: str = "test") -> Rates:
    return Rates(problem, Excess.of(problem, objective), lambda _: None)


@pytest.fixture(scope="module")
def online() -> dl.OptimalSchedule:
    return dl.optimal_schedule(ONLINE)


@pytest.mark.parametrize("sampling", [dl.FullBatch(1.5), dl.OnlineSGD(0.4), dl.MultiPassSGD(1.5, 0.5)])
@pytest.mark.parametrize("objective", ["test", "train"])
def test_slopes_of_knots_are_sums_over_steps(sampling: dl.FullBatch, objective: str) -> None:
    """A knot moves every rate; its slope is that of single rates, each by a complex step of its own, to 1e-9."""
    problem = make(sampling, 14, optimizer=dl.GradientDescent(0.05, momentum=0.5, weight_decay=0.01))
    rates, values = rates_of(problem, objective), 0.08 * np.exp(-0.1 * np.arange(14.0))
    hats = _hats(14, 5)
    ((height, slopes),) = rates.slopes([(values, values * hats)])
    ((same, single),) = rates.slopes([(values, np.diag(values))])
    assert height == pytest.approx(same, rel=1e-14)
    np.testing.assert_allclose(slopes, hats @ single, rtol=1e-9, atol=1e-12)
    assert single[-1] == 0  # the rate of the last step has no effect
    nearby = [rates.heights([values + sign * 1e-5 * values * hats[2]])[0] for sign in (-1, 1)]
    assert slopes[2] == pytest.approx((nearby[1] - nearby[0]) / 2e-5, rel=1e-6)  # of order 1e-10 / 1e-5 and h^2


@pytest.mark.parametrize("of", ["momentum", "weight_decay", "batch"])
def test_slopes_of_momentum_and_batches(of: str) -> None:
    """Along directions of free numbers: sums of those of single steps, each by its own complex step, to 1e-9."""
    problem = make(dl.OnlineSGD(0.5), 12, optimizer=dl.GradientDescent(0.05, momentum=0.5, weight_decay=0.01))
    steps, scale = Rates(problem, Excess.of(problem, "test"), lambda _: None, of), SCALES[of]
    rng, hats = np.random.default_rng(1), _hats(12, 5)
    base, change = rng.uniform(0.2, 0.8, 12), 0.3 * rng.standard_normal(12)
    values = scale.moved(base, change)
    _, (_, slopes) = steps.slopes([(base, hats), (values, scale.directions(values, hats))])
    ((_, single),) = steps.slopes([(values, np.eye(12))])
    exact = np.array([np.imag(moved_by_hand(of, base, change + 1e-30j * hat)) / 1e-30 for hat in hats])
    np.testing.assert_allclose(slopes, exact @ single, rtol=1e-9, atol=1e-12)
    nearby = [steps.heights([scale.moved(base, change + sign * 1e-5 * hats[2])])[0] for sign in (-1, 1)]
    assert slopes[2] == pytest.approx((nearby[1] - nearby[0]) / 2e-5, rel=1e-6)
    if of == "batch":
        assert values[:-1].sum() == pytest.approx(base[:-1].sum(), rel=1e-14)


def moved_by_hand(of: str, base: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Values after a change, by definition and analytic in the change."""
    if of == "weight_decay":
        return (base + 0.01) * np.exp(change) - 0.01
    if of == "momentum":
        odds = base / (1 - base) * np.exp(change)
        return odds / (1 + odds)
    values = base * np.exp(change)
    return values * base[:-1].sum() / values[:-1].sum()


def test_momentum_and_batches_against_brute_force() -> None:
    """Two free values on a grid, which misses the bottom by half a step at most; the first momentum is idle."""
    problem = make(dl.OnlineSGD(0.5), 4, lr=0.1)
    momenta = [[0.5, *each, 0.5] for each in itertools.product(np.linspace(0.0, 0.9, 10), repeat=2)]
    pairs = itertools.product(np.geomspace(0.1, 1.2, 12), repeat=2)
    batches = [[*each, 1.5 - sum(each), 0.5] for each in pairs if sum(each) < 1.45]
    for of, tried in (("momentum", momenta), ("batch", batches)):
        steps = Rates(problem, Excess.of(problem, "test"), lambda _: None, of)
        best = min(steps.heights([np.array(each) for each in tried]))
        found = dl.optimal_schedule(problem, of=of, knots=3)
        assert best - 0.02 < np.log(found.loss - 0.09) <= best, of
        assert dl.solve(found.problem).test_loss[-1] == pytest.approx(found.loss, rel=1e-9)
        assert list(found.families) == ["constant"]
        assert found.gain["constant"] >= 0
    assert sum(found.schedule[:-1]) == pytest.approx(1.5)
    assert found.plot().axes[0].get_ylabel() == "batch size"
    assert "batch" in found.to_xarray()


@pytest.mark.parametrize("sampling", [dl.OnlineSGD(0.5), dl.MultiPassSGD(1.2, 0.4)])
def test_weight_decay_against_brute_force(sampling: dl.OnlineSGD) -> None:
    """Three values on a grid, zero among them; also where data repeat, and the labels' noise is learned."""
    problem = make(sampling, 4, lr=0.2, noise=0.8)
    grid = [0.0, *np.geomspace(0.05, 4.0, 11)]
    steps = Rates(problem, Excess.of(problem, "test"), lambda _: None, "weight_decay")
    best = min(steps.heights([np.array([*each, 0.0]) for each in itertools.product(grid, repeat=3)]))
    found = dl.optimal_schedule(problem, of="weight_decay", knots=3)
    assert best - 0.02 < np.log(found.loss - 0.64) <= best
    assert min(found.schedule) >= 0
    assert found.gain["constant"] >= 0
    assert dl.solve(found.problem).test_loss[-1] == pytest.approx(found.loss, rel=1e-9)
    assert str(found).splitlines()[0].split() == [
        "schedule",
        "test",
        "loss",
        "peak",
        "weight",
        "decay",
        "warm-up",
        "gain",
    ]
    assert found.plot().axes[0].get_ylabel() == "weight decay"


def test_weight_decay_that_is_zero_at_some_steps() -> None:
    """Zero has no logarithm, and is reached all the same."""
    problem = make(dl.OnlineSGD(1.0), 6, lr=0.05, noise=0.0)
    found = dl.optimal_schedule(problem, of="weight_decay")
    assert found.schedule[0] == 0.0
    assert found.loss <= dl.solve(problem).test_loss[-1]


def test_knots_are_hats() -> None:
    np.testing.assert_allclose(_hats(20, 7).sum(axis=0), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(_hats(6, 5)[:, :5], np.eye(5))  # every rate is free
    assert _places(50, 13)[[0, -1]].tolist() == [0, 48]
    for steps in (14, 16, 23, 50):
        assert set(_places(steps, 7)) <= set(_places(steps, 13))  # so that more knots can only be better


def test_every_rate_free_against_brute_force() -> None:
    """Three rates on a grid of 9 each, over a factor of 10."""
    problem = make(dl.OnlineSGD(0.5), 4)
    grid = np.geomspace(0.06, 0.6, 9)
    series = [np.array([*each, 1.0]) for each in itertools.product(grid, repeat=3)]
    best = min(rates_of(problem).heights(series))
    found = dl.optimal_schedule(problem, knots=3)
    height = np.log(found.loss - 0.09)
    assert found.has_converged
    assert best - 0.05 < height <= best  # the grid has a ratio of 1.33, and misses the bottom by half of that


def test_the_best_polynomial() -> None:
    """Lazy and without noise the loss is a polynomial in each eigenvalue, whose best is known by least squares."""
    values, power = np.array([1.0, 0.6, 0.3, 0.1]), np.array([0.4, 0.3, 0.2, 0.1])
    network = dl.MLP(depth=1, width="infinite", parameterization="ntk", centered=True, richness=1e-3)
    problem = dl.Problem(
        network, dl.Spectrum(values, power / values), dl.Population(), dl.GradientDescent(0.1), steps=3
    )
    found = dl.optimal_schedule(problem, knots=2)
    # 1 + a x + b x^2 in each eigenvalue x, weighted by its share of the loss
    root = np.sqrt(power)
    terms, target = root[:, None] * values[:, None] ** [1, 2], -root
    rest = target - terms @ np.linalg.lstsq(terms, target)[0]
    assert found.loss == pytest.approx(rest @ rest, rel=1e-4)  # the descent stops at 1e-4 of the loss
    assert found.families["constant"].loss > 1.05 * found.loss


def test_named_shapes_against_brute_force(online: dl.OptimalSchedule) -> None:
    """No peak and warm-up on a grid is better than those found."""
    rates = rates_of(ONLINE)
    for name, family in FAMILIES.items():
        places = itertools.product(np.geomspace(0.04, 0.5, 16), [0.0, 0.1, 0.2, 0.4, 0.8])
        best = min(rates.heights([family(peak, warmup=warmup).values(16) for peak, warmup in places]))
        assert np.log(online.families[name].loss - 0.09) < best + 1e-4, name
        assert online.families[name].loss == pytest.approx(online.families[name].losses[-1])


def test_warm_ups_that_are_long_and_allow_high_peaks() -> None:
    """Without noise: no warm-up on a finer grid, with its own peak, is better than the one found by 1 %."""
    problem = make(dl.FullBatch(2.0), 24)
    rates, found = rates_of(problem), {each.schedule.shape: each for each in tuned(rates_of(problem))}
    for name, family in FAMILIES.items():
        peaks = found[name].schedule.peak * np.geomspace(0.3, 3, 24)
        places = itertools.product(peaks, np.linspace(0, 0.8, 17))
        best = np.exp(min(rates.heights([family(peak, warmup=warmup).values(24) for peak, warmup in places]))) + 0.09
        assert found[name].loss < 1.01 * best, name


POOR = dl.Problem(
    dl.MLP(1, 0.67980146, richness=0.52941612),
    dl.Isotropic(0.1),
    dl.OnlineSGD(1.69732076),
    dl.GradientDescent(0.02),
    11,
)


def test_a_large_first_step() -> None:
    """The best schedule begins with ten times the rate of the others, far from all named shapes."""
    losses = [dl.optimal_schedule(POOR, knots=knots).loss for knots in (7, 10)]
    assert losses[1] <= losses[0]
    assert losses[1] == pytest.approx(0.0184, rel=5e-3)


def test_two_large_first_steps() -> None:
    """The best of twenty descents from random rates begins with 0.87 and 0.20, then about 0.05; others end at 0.28."""
    network = dl.MLP(2, 0.6894748467183216, richness=0.5142814347760241)
    rule, sampling = dl.GradientDescent(0.05, weight_decay=0.01), dl.OnlineSGD(0.8039797287060408)
    found = dl.optimal_schedule(dl.Problem(network, dl.Isotropic(), sampling, rule, 13))
    assert found.loss < 0.1391


def drawn(seed: int, steps: int) -> dl.Problem:
    """Draw a problem with little noise or none, where many minima are poor."""
    rng = np.random.default_rng([seed, 37])
    sampling = [dl.OnlineSGD(rng.uniform(0.3, 2)), dl.FullBatch(rng.uniform(0.8, 4)), dl.MultiPassSGD(2.0, 0.5)][
        seed % 3
    ]
    network = dl.MLP(int(rng.integers(1, 4)), rng.uniform(0.5, 3), richness=np.exp(rng.uniform(-1, 1)))
    return make(sampling, steps, network=network, noise=0.1 * rng.integers(2))


@pytest.mark.parametrize("seed", some_slow(range(6), 2))
def test_descents_from_random_starts_are_no_better(seed: int) -> None:
    """Ten of them, with every rate free, about the best constant rate."""
    problem = drawn(seed, 7)
    rates, rng = rates_of(problem), np.random.default_rng(seed)
    starts = [np.exp(rng.normal(np.log(dl.optimal_lr(problem).lr), 0.7, 7)) for _ in range(20)]
    known = [start for start, height in zip(starts, rates.heights(starts), strict=True) if np.isfinite(height)][:10]
    best = min(end.value for _, end in _descend(rates, known, _hats(7, 6)))
    assert dl.optimal_schedule(problem).loss < 1.01 * (np.exp(best) + rates.excess.label_noise)


@pytest.mark.parametrize("seed", some_slow(range(4), 1))
def test_more_knots_are_never_worse(seed: int) -> None:
    problem = drawn(seed, 15)
    losses = [dl.optimal_schedule(problem, knots=knots).loss for knots in (7, 13, 14)]
    assert losses[1] <= losses[0]
    assert losses[2] <= losses[1]


@pytest.mark.slow
def test_slopes_that_overflow_near_an_edge() -> None:
    problem = make(dl.FullBatch(2.0), 200, lr=0.02)
    found = dl.optimal_schedule(problem)
    assert found.loss <= min(family.loss for family in found.families.values())
    assert dl.solve(found.problem).rounding_at is None


@pytest.mark.parametrize("seed", some_slow(range(3), 1))  # a full batch is below
def test_never_worse_than_named_shapes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sampling = [dl.OnlineSGD(rng.uniform(0.3, 1)), dl.FullBatch(rng.uniform(1, 3)), dl.MultiPassSGD(2.0, 0.7)][seed]
    network = dl.MLP(int(rng.integers(1, 4)), rng.uniform(0.5, 2), richness=rng.uniform(0.5, 2))
    found = dl.optimal_schedule(make(sampling, 12, network=network, noise=rng.uniform(0, 0.5)), knots=5)
    assert min(found.gain.values()) >= 0
    solved = dl.solve(found.problem)
    np.testing.assert_allclose(solved.test_loss, found.losses, rtol=1e-9)
    assert found.loss == found.losses[-1]


def test_it_gains(online: dl.OptimalSchedule) -> None:
    """Every named shape is beaten, and what is left to gain is little."""
    assert min(online.gain.values()) > 0.005
    assert online.slope < 0.05
    assert len(online.schedule) == 16
    assert dl.solve(online.problem).test_loss[-1] == pytest.approx(online.loss, rel=1e-9)


def test_networks_confirm_the_gain(online: dl.OptimalSchedule) -> None:
    """Ten wide networks with the best schedule and with the best of the named ones, against theory's difference."""
    best = min(online.families.values(), key=lambda family: family.loss)
    named = maker("sampling", "steps", depth=2, width=1.0, noise=0.3)(dl.OnlineSGD(0.5), 16, lr=best.schedule)
    runs = [
        dl.simulate(problem, dim=10**5, seeds=4, method="reduced", record="losses").test_loss[:, -1]
        for problem in (online.problem, named)
    ]
    difference = runs[1] - runs[0]
    error = difference.std(ddof=1) / 2
    assert abs(difference.mean() - (best.loss - online.loss)) < 4 * error
    assert difference.mean() > 10 * error


def test_the_problems_own_rates_do_not_matter() -> None:
    seen: list[tuple[int, int]] = []
    first = dl.optimal_schedule(make(dl.OnlineSGD(0.5), 6), progress=lambda *each: seen.append(each))
    assert seen[-1][0] == seen[-1][1]
    assert all(done <= total for done, total in seen)
    other = dl.optimal_schedule(make(dl.OnlineSGD(0.5), 6, lr=dl.schedules.cosine(3.0)))
    assert first.schedule == other.schedule


def test_losses_nearby_and_the_edge(online: dl.OptimalSchedule) -> None:
    assert not online.at_edge  # noise bounds these rates, not curvature
    full = dl.optimal_schedule(make(dl.FullBatch(2.0), 12), knots=4)
    assert full.has_converged  # so that it does not depend on rounding where the descent ended
    assert min(full.gain.values()) >= 0
    for found in (online, full):
        for factor, loss in zip((0.95, 1.05), found.nearby, strict=True):
            optimizer = found.problem.optimizer.scaled(factor, found.problem.steps)
            scaled = dl.Problem(ONLINE.network, ONLINE.data, found.problem.sampling, optimizer, found.problem.steps)
            assert dl.solve(scaled).test_loss[-1] == pytest.approx(loss, rel=1e-9)
            assert loss > found.loss
    assert full.at_edge
    assert str(full).splitlines()[-1].startswith("at the edge of stability: with rates 5 % higher the loss is")


def test_words_and_files(online: dl.OptimalSchedule) -> None:
    lines = str(online).splitlines()
    assert [line.split()[0] for line in lines] == ["schedule", "optimal", *FAMILIES]
    assert "not converged" not in str(online)
    stopped = replace(online, has_converged=False, slope=0.16)
    assert str(stopped).splitlines()[-1] == "not converged: 1 % more at one knot still changes the loss by 0.16 %"
    edge = replace(online, nearby=(online.loss, np.inf))
    assert str(edge).splitlines()[-1] == "at the edge of stability: with rates 5 % higher training diverges"
    table = online.to_xarray()
    assert table.sizes == {"schedule": 5, "time": 16}
    assert float(table.loss.sel(schedule="optimal", time=15)) == online.loss
    assert dl.Problem.from_toml(table.attrs["problem"]) == online.problem


@pytest.mark.parametrize(
    ("problem", "options", "text"),
    [
        (ONLINE, {"knots": 16}, r"knots must be at most steps - 1 \(15\), got 16"),
        (ONLINE, {"knots": 1}, "knots must be a whole number, at least 2, got 1"),
        (ONLINE, {"of": "noise"}, "of must be 'lr' or 'momentum' or 'weight_decay' or 'batch', got 'noise'"),
        (
            make(dl.MultiPassSGD(2.0, 0.5), 8),
            {"of": "batch"},
            "of must be 'lr' or 'momentum' or 'weight_decay', got 'batch'",
        ),
        (
            make(dl.FullBatch(2.0), 8, optimizer=dl.ScheduleFree(0.1)),
            {"of": "momentum"},
            "of must be 'lr', got 'moment",
        ),
        (ONLINE, {"objective": "both"}, "objective must be 'test' or 'train', got 'both'"),
        (make(dl.OnlineSGD(0.5), 2), {}, "steps must be at least 3 for a schedule to matter, got 2"),
        (3, {}, "problem must be a Problem, got 3"),
    ],
)
def test_refusals(problem: dl.Problem, options: dict[str, int], text: str) -> None:
    with pytest.raises(Refusal, match=text):
        dl.optimal_schedule(problem, **options)  # type: ignore[arg-type]


def test_phases_with_rules_of_their_own_are_refused() -> None:
    phases = (dl.Phase(8), dl.Phase(8, optimizer=dl.GradientDescent(0.1)))
    problem = dl.Problem(ONLINE.network, ONLINE.data, ONLINE.sampling, ONLINE.optimizer, 16, phases)
    with pytest.raises(Refusal, match="phases must have no optimizers of their own"):
        dl.optimal_schedule(problem)


def test_the_picture(online: dl.OptimalSchedule) -> None:
    rates, losses = online.plot().axes
    np.testing.assert_array_equal(rates.get_lines()[-1].get_ydata(), online.schedule[:-1])
    np.testing.assert_array_equal(losses.get_lines()[-1].get_ydata(), online.losses)
    assert [text.get_text().split(":")[0] for text in losses.get_legend().get_texts()] == [
        "constant", "linear", "cosine", "WSD", "best schedule",
    ]  # fmt: skip
