"""Curvature of networks: exact products with the Hessian, the same in distribution however matrices are kept."""

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._core.device import CPU
from deeplinear._experiment.curvature import Directions, lanczos, ritz
from deeplinear._experiment.draws import Draws
from deeplinear._experiment.network import FiniteNetwork
from deeplinear._experiment.revealed import Weight
from deeplinear._experiment.singular_values import _Sum
from deeplinear._experiment.sizes import Sizes, sizes_of
from deeplinear._experiment.spaces import Space
from deeplinear._experiment.streams import Inputs, SampleBatch
from factories import maker

make = maker(depth=2, width=[1.0, 0.5], noise=0.3, sampling=dl.FullBatch(2.0), lr=0.05, steps=8)


def gradients(network, batch, target):
    """All entries of G, as one vector."""
    g = network.backward()
    error = target - network.predictor(g[0])
    h = network.forward(batch.signal(error, batch.see(error).residual))
    return np.concatenate([(x.scale * x.left @ x.right.T).ravel() for x in network.outers(h, g)])


def hessian_by_differences(network, batch, target, step=1e-5):
    weights, columns = network.weights, []
    for weight in weights:
        for index in np.ndindex(weight.shape):
            kept, sides = weight[index], []
            for sign in (1, -1):
                weight[index] = kept + sign * step
                sides.append(gradients(network, batch, target))
            weight[index] = kept
            columns.append((sides[0] - sides[1]) / (2 * step))
    return -np.stack(columns, axis=1)


def iterate(H, start, scale, vectors):
    """Lanczos's iteration with whole matrices, of scale H scale."""
    v, diagonal, beside, taken = np.sqrt(scale) * start, [], [], []
    for _ in range(vectors):
        taken.append(v / np.linalg.norm(v))
        v = np.sqrt(scale) * (H @ (np.sqrt(scale) * taken[-1]))
        diagonal.append(taken[-1] @ v)
        for _ in range(2):
            for each in taken:
                v = v - (each @ v) * each
        beside.append(np.linalg.norm(v))
    return np.array([diagonal, beside])


@pytest.mark.parametrize("problem", [make(), make(network=dl.ResNet(depth=3, width=1.0)),
                                     make(data=dl.Isotropic(0.3, [[1.0, 0.3], [0.3, 0.5]]))])  # fmt: skip
def test_products_are_those_with_all_second_derivatives(problem):
    """A network of 6 inputs, whose Hessian is found entry by entry, with other rates in each layer."""
    rng, sizes = np.random.default_rng(0), sizes_of(problem, 6)
    beta = problem.network.branch_factor if problem.network.skip else None
    network = FiniteNetwork.draw(rng, sizes, 0.8, beta)
    batch, target = draw_batch(rng, sizes)
    rates = [1.0, 0.5, 2.0, 1.5][: problem.network.layers + 1]
    H, G = hessian_by_differences(network, batch, target), gradients(network, batch, target)
    np.testing.assert_allclose(H, H.T, atol=1e-7 * np.abs(H).max())
    scale = np.concatenate([np.full(w.size, rate) for w, rate in zip(network.weights, rates, strict=True)])
    g = network.backward()
    directions = Directions(network, batch, g, target - network.predictor(g[0]), rates)
    np.testing.assert_allclose(lanczos(directions, "hessian", 5), iterate(H, G, scale, 5), rtol=1e-6)


def draw_batch(rng, sizes: Sizes, samples=12):
    inputs = Inputs(np.ones((sizes.dim, 1)), sizes.unit)
    standard, labels = (rng.standard_normal((samples, columns)) for columns in (sizes.dim, sizes.outputs))
    batch = SampleBatch(inputs, standard, 0.3 * labels)
    return batch, rng.standard_normal((sizes.dim, sizes.outputs))


def test_the_kernel_has_as_many_eigenvalues_as_samples():
    """Of 5 samples; the iteration ends after that, and never meets a negative one."""
    problem = make()
    rng, sizes = np.random.default_rng(0), sizes_of(problem, 30)
    network = FiniteNetwork.draw(rng, sizes, 1.0)
    batch, target = draw_batch(rng, sizes, samples=5)
    g = network.backward()
    found = lanczos(Directions(network, batch, g, target - network.predictor(g[0]), [1.0] * 3), "kernel", 9)
    values = ritz(found)[0]
    assert np.isfinite(values).sum() == 5
    assert (values[:5] > 0).all()


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(make(), marks=pytest.mark.slow),  # multiple passes draw samples too
        make(sampling=dl.OnlineSGD(0.5)),
        make(sampling=dl.MultiPassSGD(2.0, 0.5)),
    ],
)
def test_every_way_of_keeping_matrices_gives_the_same_distribution(problem):
    """D = 40, 200 networks each: means of all Ritz values within 4.5 standard errors, spreads within 30 %."""
    wanted = dl.Curvature([0, 7], 4)
    found = [
        dl.simulate(problem, 40, 200, method=method, record="losses", curvature=wanted).ritz_values
        for method in ("explicit", "lazy", "reduced")
    ]
    for other in found[1:]:
        spread = [each.std(axis=0, ddof=1) for each in (found[0], other)]
        z = (found[0].mean(axis=0) - other.mean(axis=0)) / np.hypot(*spread) * np.sqrt(200)
        assert np.abs(z).max() < 4.5
        assert np.abs(np.log(spread[1] / spread[0])).max() < np.log(1.3)


def test_singular_values_have_the_same_distribution_however_matrices_are_kept():
    """D = 20 (all directions are looked at in the end), 120 networks each: means within 4.5 standard errors, spreads
    within 35 %, correlations of a value with itself at another time (0.74 to 0.95) within 0.2."""
    problem = make(optimizer=dl.GradientDescent(0.1, weight_decay=0.2), network=dl.MLP(2, [1.0, 0.5], richness=4.0))
    wanted = dl.Curvature([0, 7], 2, singular_values=2)
    explicit, *others = (
        dl.simulate(problem, 20, 120, method=method, record="losses", curvature=wanted).singular_values.reshape(120, -1)
        for method in ("explicit", "lazy", "reduced")
    )
    for other in others:
        spread = [each.std(axis=0, ddof=1) for each in (explicit, other)]
        z = (explicit.mean(axis=0) - other.mean(axis=0)) / np.hypot(*spread) * np.sqrt(120)
        assert np.abs(z).max() < 4.5
        assert np.abs(np.log(spread[1] / spread[0])).max() < np.log(1.35)
        memory = [np.diag(np.corrcoef(each.T), 4) for each in (explicit, other)]  # (layer, number) now and later
        np.testing.assert_allclose(*memory, atol=0.2)


def test_singular_values_of_revealed_matrices_are_those_of_the_matrix():
    """A matrix of 30 x 20 that is known along 4 directions on each side is drawn to the end, and is then looked at."""
    draws = Draws([np.random.default_rng(seed) for seed in range(3)], CPU)
    rows, columns = Space(draws, [30]), Space(draws, [20])
    weight = Weight(rows, columns, scale=0.5, initial=0.7, gradients=4, evaluations=4, probes=1, outputs=1)
    for step in range(4):
        _, _ = weight @ columns.gaussian(1), weight.mT @ rows.gaussian(1)
        weight.keep_gradient()
        weight.coefficients[..., 1 + step] = 0.3 * step
    above, below = bases = weight.bases()
    learned = weight.learned(weight.coefficients, bases)
    matrix = _Sum(weight.continued(bases, draws, 60), weight.coefficients[..., :1], learned)
    found = matrix.largest(21, 20)
    every = np.tile(np.eye(20), (3, 1, 1))
    whole = np.concatenate([matrix.times(every[..., i : i + 1], transposed=False) for i in range(20)], axis=-1)
    np.testing.assert_allclose(found, np.linalg.svd(whole, compute_uv=False), rtol=1e-9, atol=1e-9)
    known = weight.sides(transposed=False)[0].known[:, :1].mT  # a direction that training has looked at
    np.testing.assert_allclose(above @ (whole[:, :8, :8] @ (below.mT @ known)), weight @ known, atol=1e-9)


def test_measuring_changes_no_network():
    problem = make(sampling=dl.OnlineSGD(0.5))
    plain, measured = (
        dl.simulate(problem, 40, 3, method="explicit", record="losses", curvature=curvature)
        for curvature in (None, dl.Curvature([3], 4))
    )
    np.testing.assert_array_equal(plain.test_loss, measured.test_loss)
    assert measured.mean("ritz_values").shape == (1, 4)
    with pytest.raises(ValueError, match=r"ritz_values was not recorded; simulate with curvature=Curvature"):
        plain.mean("ritz_values")


@pytest.mark.parametrize("problem", [make(), make(sampling=dl.OnlineSGD(0.5)), make(optimizer=dl.SAM(0.03, 0.1))])
def test_losses_along_a_line_are_those_of_theory(problem):
    """D = 10^5, 12 networks: at all positions within 4.5 standard errors of the landscape, and 0.5 %.

    The ends are the losses of the two steps.
    """
    wanted = dl.Curvature([1, 7], 2, line=True)
    found = dl.simulate(problem, 10**5, 12, method="reduced", record="losses", curvature=wanted)
    theory = dl.landscape(problem, (1, 7))
    for ours, values in ((theory.train_loss, found.line_train_loss), (theory.test_loss, found.line_test_loss)):
        error = values.std(axis=0, ddof=1) / np.sqrt(12)
        assert (np.abs(values.mean(axis=0) - ours) < 4.5 * error).all()
        np.testing.assert_allclose(values.mean(axis=0), ours, rtol=5e-3)
    np.testing.assert_allclose(found.line_test_loss[:, [0, -1]], found.test_loss[:, [1, 7]], rtol=1e-9)
    assert dl.compare(dl.solve(problem), found)["line_test_loss"].z.shape == (25,)


def test_files_keep_what_was_measured(tmp_path):
    wanted = dl.Curvature([0, 5], 3, "kernel", singular_values=2, line=True)
    found = dl.simulate(make(), 20, 2, curvature=wanted)
    found.save(tmp_path / "networks.nc")
    again = dl.Ensemble.load(tmp_path / "networks.nc")
    assert again.curvature == wanted
    for name in ("ritz_values", "ritz_weights", "singular_values", "line_train_loss", "line_test_loss"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))


@pytest.mark.parametrize("method", ["explicit", "reduced"])
def test_networks_that_diverge_have_no_curvature_any_more(method):
    wanted = dl.Curvature([0, 29], 3, singular_values=1)
    problem = make(optimizer=dl.GradientDescent(50.0), steps=30)
    found = dl.simulate(problem, 20, 2, method=method, record="losses", curvature=wanted)
    assert (found.diverged_at >= 0).all()
    for values in (found.ritz_values, found.singular_values):
        assert np.isfinite(values[:, 0]).all()
        assert np.isnan(values[:, 1]).all()


@pytest.mark.parametrize(
    ("curvature", "optimizer", "message"),
    [
        ((0, 3), dl.GradientDescent(0.05), "curvature must be a Curvature"),
        (dl.Curvature([8]), dl.GradientDescent(0.05), "at must be a step from 0 to 7, got 8"),
        (dl.Curvature([0]), dl.NormalizedDescent(0.05), "curvature must be None where"),
        (dl.Curvature([0]), dl.Muon(0.05, momentum=0.0), "curvature must be None where"),
    ],
)
def test_what_cannot_be_measured_is_refused(curvature, optimizer, message):
    with pytest.raises(ValueError, match=message):
        dl.simulate(make(optimizer=optimizer), 20, 2, curvature=curvature)


@pytest.mark.parametrize("arguments", [{"at": [-1]}, {"at": [0], "vectors": 1}, {"at": [0], "operator": "fisher"},
                                       {"at": [0], "singular_values": -1}])  # fmt: skip
def test_bad_wishes_are_refused(arguments):
    with pytest.raises(ValueError, match="must be"):
        dl.Curvature(**arguments)
