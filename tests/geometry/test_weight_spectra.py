"""Singular values of weights: known laws, and networks.

Networks: D = 400, explicit matrices, 4 of them (seeds 0 .. 3). Outliers within 1 %, ends of the bulk within 3 % (there
the largest of D values lies below by some D^(-2/3)), overlaps of singular vectors within 0.02.
"""

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._experiment.training import Training
from deeplinear._geometry import weights
from deeplinear._geometry.weight_spectra import ACCURACY
from factories import maker, some_slow

DIM, SEEDS = 400, 4


make = maker("network", "optimizer", "sampling", "data", noise=0.1, sampling=dl.FullBatch(4.0), steps=20)


def small(**more):
    return dl.MLP(depth=2, width=1.0, richness=8.0, init_scale=[0.5, 0.8, 1.0], **more)


CASES = {
    "unequal widths": make(dl.MLP(depth=2, width=[1.0, 0.7], richness=10.0), dl.GradientDescent(0.02), steps=30),
    "decay, layers": make(small(), dl.GradientDescent(0.03, weight_decay=0.2, layer_lr=[1, 0.7, 1]), dl.Population()),
    "strong decay": make(
        dl.MLP(depth=2, width=1.0, richness=3.0), dl.GradientDescent(0.03, weight_decay=1.0), dl.Population()
    ),
    "centered, online": make(small(centered=True), dl.GradientDescent(0.03), dl.OnlineSGD(1.0)),
    "two outputs": make(small(), dl.GradientDescent(0.03), data=dl.Isotropic(0.1, [[1.0, 0.2], [0.2, 0.6]])),
    "residual": make(
        dl.ResNet(depth=3, width=1.0, richness=12.0, init_scale=[0.5, 0.5, 0.5, 1.0]), dl.GradientDescent(0.01)
    ),
}


def trained(problem, monkeypatch):
    """Singular values and vectors of the weights of networks at the last step, and their target."""
    found, step = [], Training._step

    def keeping(self, t, phase, stage):
        if t == problem.steps - 1:
            matrices = [w / np.sqrt(w.shape[1]) for w in self._rule.evaluated[:-1]]
            found.append(([np.linalg.svd(w, full_matrices=False) for w in matrices], self._task.targets[phase][:, 0]))
        return step(self, t, phase, stage)

    monkeypatch.setattr(Training, "_step", keeping)
    dl.simulate(problem, DIM, SEEDS, record="losses", method="explicit", workers=1)
    return found


@pytest.mark.parametrize("name", CASES)
def test_networks_have_these_singular_values(name, monkeypatch):
    problem = CASES[name]
    theory = dl.weight_spectra(problem, at=problem.steps - 1)
    networks = trained(problem, monkeypatch)
    assert any(theory.outliers[0])
    for layer, outliers in enumerate(theory.outliers[0]):
        mean = np.mean([svd[layer][1] for svd, _ in networks], axis=0)
        np.testing.assert_allclose(mean[: len(outliers)], outliers, rtol=0.01)
        np.testing.assert_allclose(mean[len(outliers)], theory.edge[0, layer], rtol=0.03)
    if not np.isnan(theory.target_alignment[0]):
        overlaps = [abs(svd[0].Vh[0] @ target) / np.linalg.norm(target) for svd, target in networks]
        assert np.mean(overlaps) == pytest.approx(theory.target_alignment[0], abs=0.02)
    for layer, expected in enumerate(theory.neighbour_alignment[0]):
        if not np.isnan(expected):
            overlaps = [abs(svd[layer].U[:, 0] @ svd[layer + 1].Vh[0]) for svd, _ in networks]
            assert np.mean(overlaps) == pytest.approx(expected, abs=0.02)


def lazy(richness, centered=True, **more):
    network = dl.MLP(depth=2, width=1.0, richness=richness, centered=centered, **more)
    return make(network, dl.GradientDescent(0.05), noise=0.3, sampling=dl.FullBatch(2.0))


RICHNESS = [1.0, 0.3, 0.1, 0.01, 0.002, 1e-4, 1e-8, 1e-12, 1e-20, 1e-40, 1e-100, 1e-200, 1e-300]


def test_lazy_networks_keep_the_bulk():
    """Centered, they move by the richness times what the lazy limit has, to terms of its second power; others by more,
    as their function at initialisation is as large as 1 / richness."""
    limit = dl.weight_spectra(lazy(1e-300), at=19)
    for richness in RICHNESS:
        found = dl.weight_spectra(lazy(richness), at=19)
        assert found.outliers == (((), ()),)
        moved, expected = found.update[..., 0] / richness, limit.update[..., 0] / 1e-300
        np.testing.assert_allclose(moved, expected, rtol=0.1 * richness + 1e-12)
        np.testing.assert_allclose(found.update_rank, 1.0, atol=0.01 * richness**2 + 1e-12)
    for richness in RICHNESS[:-2]:  # to which those that are not centered are limited
        other = dl.weight_spectra(lazy(richness, centered=False), at=19)
        assert other.outliers == (((), ()),)
        np.testing.assert_array_equal(other.edge, limit.edge)


@pytest.mark.parametrize("richness", some_slow([0.1, 1e-3, 1e-6], 0.1, 1e-6))
def test_lazy_networks_move_by_this_much(richness, monkeypatch):
    """Where the initial weights of a layer are as small as what it learns, that stands alone."""
    problem = lazy(richness, init_scale=[1.0, 0.1 * richness, 1.0])
    theory = dl.weight_spectra(problem, at=19)
    (outlier,) = theory.outliers[0][1]
    found = np.mean([svd[1][1] for svd, _ in trained(problem, monkeypatch)], axis=0)
    assert found[0] == pytest.approx(outlier, rel=0.01)
    assert found[1] == pytest.approx(theory.edge[0, 1], rel=0.03)
    far = dl.weight_spectra(lazy(1e-140, init_scale=[1.0, 1e-141, 1.0]), at=19).outliers[0][1][0]
    assert outlier / richness == pytest.approx(far / 1e-140, rel=richness)


@pytest.mark.parametrize("lr", [0.6, 5.0, 1e200])
def test_runs_that_diverge_are_said_to(lr):
    problem = make(dl.MLP(depth=2, width=1.0), dl.GradientDescent(lr))
    end = dl.solve(problem).status.diverged_at
    with pytest.raises(ArithmeticError, match=f"training diverged at step {end}; look at earlier steps"):
        dl.weight_spectra(problem)
    assert len(dl.weight_spectra(problem, at=range(end)).times) == end


def test_networks_report_them_too():
    problem = CASES["unequal widths"]
    wanted = dl.Curvature([0, 29], 2, singular_values=2)
    found = dl.simulate(problem, DIM, SEEDS, record="losses", curvature=wanted).singular_values.mean(axis=0)
    theory = dl.weight_spectra(problem, at=[0, 29])
    largest = [[each[0] if each else edge for each, edge in zip(*both, strict=True)]
               for both in zip(theory.outliers, theory.edge, strict=True)]  # fmt: skip
    np.testing.assert_allclose(found[..., 0], largest, rtol=0.03)


def test_networks_of_any_size_report_them():
    """D = 10^5, reduced, 3 of them: outliers within 0.1 % (they scatter by 0.03 %), ends of the bulk within 0.1 %."""
    problem = make(small(), dl.GradientDescent(0.03), steps=10)
    wanted = dl.Curvature([9], 2, singular_values=2)
    found = dl.simulate(problem, 10**5, 3, method="reduced", record="losses", curvature=wanted).singular_values
    theory = dl.weight_spectra(problem, at=9)
    expected = [[outlier, edge] for (outlier,), edge in zip(theory.outliers[0], theory.edge[0], strict=True)]
    np.testing.assert_allclose(found[:, 0].mean(axis=0), expected, rtol=1e-3)


def test_without_training_there_is_the_law_of_marchenko_and_pastur():
    found = dl.weight_spectra(make(dl.MLP(depth=3, width=[4.0, 1.0, 0.25]), dl.GradientDescent(0.1)), at=0)
    np.testing.assert_allclose(found.edge, [[3.0, 1.5, 1.5]])
    assert found.outliers == (((), (), ()),)
    assert np.isnan(found.update_rank).all()


def test_layers_that_do_not_learn_stay_as_they_are():
    found = dl.weight_spectra(make(small(), dl.GradientDescent(0.05, layer_lr=[0.0, 1.0, 1.0])), at=19)
    assert found.outliers[0][0] == ()
    np.testing.assert_allclose(found.edge[0, 0], 1.0)
    np.testing.assert_array_equal(found.update[0, 0], 0.0)
    assert found.outliers[0][1]


def test_the_first_step_has_one_direction():
    problem = make(small(), dl.GradientDescent(0.03))
    np.testing.assert_allclose(dl.weight_spectra(problem, at=1).update_rank, 1.0)
    assert (dl.weight_spectra(problem, at=10).update_rank < 1.5).all()


def test_an_outlier_leaves_the_bulk_and_turns_to_the_target():
    found = dl.weight_spectra(make(small(), dl.GradientDescent(0.01), steps=40))
    counts = np.array([[len(layer) for layer in step] for step in found.outliers])
    assert (counts[0] == 0).all()
    assert (counts[-1] == 1).all()
    assert (np.diff(counts, axis=0) >= 0).all()
    known = found.target_alignment[np.isfinite(found.target_alignment)]
    assert (np.diff(known) > 0).all()
    assert known[-1] > 0.95
    assert str(found).startswith("weights of MLP depth 2, 40 steps, at step 39: layer 0 has one at")


def test_muon_moves_many_directions():
    found = dl.weight_spectra(make(dl.MLP(depth=2, width=1.0), dl.Muon(0.1), steps=10), at=9)
    assert found.update_rank[0, 1] > 1.5


@pytest.mark.parametrize("network", [dl.MLP(depth=2, width="infinite"), dl.ResNet(depth=float("inf"), width=1.0)])
def test_infinite_networks_are_refused(network):
    with pytest.raises(ValueError, match="a network of finite width and fewer than 256 layers"):
        dl.weight_spectra(make(network, dl.GradientDescent(0.1)))


FEW = make(dl.MLP(depth=2, width=1.0, richness=6.0), dl.GradientDescent(0.1), steps=5)
MANY = make(dl.MLP(depth=2, width=1.0, richness=6.0), dl.GradientDescent(0.02), steps=20)
"""Five directions that differ, and twenty that hardly do, with an outlier of layer 0 just beyond the bulk."""


def test_what_outliers_are_off_by_comes_from_directions_that_are_lost_in_rounding(monkeypatch):
    """Where none are lost it does not matter which count; otherwise near the bulk it does, within what is stated."""

    def outliers(problem, least):
        monkeypatch.setattr(weights, "_INDEPENDENT", least)
        return np.array(dl.weight_spectra(problem, at=problem.steps - 1).outliers[0])[:, 0]

    few, many = (np.array([outliers(each, least) for least in (1e-10, 1e-12, 1e-14)]) for each in (FEW, MANY))
    np.testing.assert_allclose(few, few[:1].repeat(3, axis=0), rtol=1e-9)
    spread = np.ptp(many, axis=0) / many[1]
    assert 3e-4 < spread[0] < ACCURACY
    assert spread[1] < 1e-4  # farther from its bulk


@pytest.mark.slow
@pytest.mark.parametrize("problem", [FEW, MANY], ids=["few", "many"])
def test_what_outliers_are_off_by_does_not_come_from_the_size_of_networks(problem):
    """Reduced, 8 seeds. Networks scatter as D^(-1/2) about one value: theory's, to that or to lost directions."""
    last = problem.steps - 1
    theory = np.array(dl.weight_spectra(problem, at=last).outliers[0])[:, 0]
    lost = 0.0 if problem is FEW else ACCURACY
    for dim in (10**4, 10**5, 10**6):
        wanted = dl.Curvature([last], 2, singular_values=1)
        found = dl.simulate(problem, dim, 8, method="reduced", record="losses", curvature=wanted).singular_values
        found = found[:, 0, :, 0]
        error = found.std(axis=0, ddof=1) / np.sqrt(8)
        assert (error < 0.6 * dim**-0.5).all()
        assert (np.abs(found.mean(axis=0) - theory) < 4.0 * error + lost * theory).all()
