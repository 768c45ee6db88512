"""Update rules, schedules, layers, averages and phases: against the reference, identities and closed forms."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase
from scipy.integrate import quad

import deeplinear as dl
from agreement import assert_close, of_every_program, under_names_of_the_reference
from deeplinear._core.threads import one_blas_thread
from deeplinear._equations import orthogonal
from deeplinear._equations.matrix_averages import MatrixAverage
from deeplinear._solvers.reference import reference
from strategies import on_random, programs

FULL = dl.FullBatch(2.0)
GRAM = [[1.0, 0.3], [0.3, 0.5]]


def make(optimizer, network=None, sampling=FULL, steps=10, data=None, phases=()):
    network = network or dl.MLP(depth=3, width=[1.0, 0.5, 2.0])
    return dl.Problem(network, data or dl.Isotropic(0.3), sampling, optimizer, steps, phases)


def losses(problem):
    solution = dl.solve(problem)
    return np.concatenate([solution.test_loss, solution.train_loss])


@on_random(programs(), few=25, many=300, phases=[Phase.explicit, Phase.generate])
def test_any_program_agrees_with_the_reference(problem):
    muon = any(stage.optimizer.orthogonal for stage in problem.stages)  # which takes the reference long
    averages = [dl.TailMean(0.5)] if muon else [dl.EMA(0.7), dl.TailMean(0.5)]
    with one_blas_thread():
        expected, solution = reference(problem, averages), dl.solve(problem, averages=averages)
    found = of_every_program(solution) | {"kernel": solution.kernel}
    for name, actual in found.items():
        assert_close(actual, expected[name], 1e-9)
    assert_close(solution.averaged_test_loss, expected["averaged_test_loss"], 1e-9)
    if len(problem.stages) > 1:
        assert_close(solution.task_loss, expected["task_loss"], 1e-9)


@pytest.mark.parametrize(
    "rule",
    [
        dl.ScheduleFree(0.05, beta=0.7),
        dl.GradientDescent(0.05, 0.5, nesterov=True, weight_decay=0.3),
        dl.SAM(0.05, 0.2, weight_decay=0.3),
        dl.NormalizedDescent(0.05, beta2=0.5),
    ],
    ids=lambda rule: type(rule).__name__,
)
@pytest.mark.parametrize("muon_first", [True, False])
def test_matrices_of_muon_in_phases_of_other_rules(rule, muon_first):
    muon = dl.Muon(0.05, 0.5, nesterov=True, other=dl.GradientDescent(0.03, weight_decay=0.2))
    rules = (muon, rule, muon) if muon_first else (rule, muon, rule)
    problem = make(
        rules[0],
        dl.MLP(2, 1.0),
        steps=7,
        phases=[dl.Phase(2), dl.Phase(3, optimizer=rules[1]), dl.Phase(2, optimizer=rules[2])],
    )
    averages = [dl.EMA(0.5)]
    expected, solution = reference(problem, averages), dl.solve(problem, averages=averages)
    for name in ("test_loss", "train_loss", "averaged_test_loss"):
        assert_close(getattr(solution, name), expected[name], 1e-12)


def test_samples_that_are_kept_keep_their_labels_in_units_of_the_noise():
    """Phases with other label noise see the same errors of labels, times their own noise."""
    phases = [dl.Phase(3, noise=0.8), dl.Phase(3, noise=0.2, new_samples=False)]
    problem = make(dl.GradientDescent(0.1), steps=6, phases=phases)
    expected, solution = reference(problem), dl.solve(problem)
    for name in ("test_loss", "train_loss"):
        assert_close(getattr(solution, name), expected[name], 1e-12)


class TestIdentities:
    """Two programs that are one."""

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (dl.GradientDescent(0.03, layer_lr=[1.0] * 4, layer_decay={}), dl.GradientDescent(0.03)),
            (dl.GradientDescent(dl.schedules.constant(0.03), 0.5), dl.GradientDescent([0.03] * 10, 0.5)),
            (dl.GradientDescent(0.03, clip=1e6), dl.GradientDescent(0.03)),
            (dl.GradientDescent(0.3, clip=1e-3), dl.NormalizedDescent(3e-4, per="global")),
            (
                dl.GradientDescent(0.3, clip=1e-3, clip_by="layer", momentum=0.5),
                dl.NormalizedDescent(3e-4, momentum=0.5),
            ),
        ],
        ids=["layers", "schedule", "large clip", "small clip", "small clip by layer"],
    )
    def test_rules(self, one, other):
        assert_close(losses(make(one)), losses(make(other)), 1e-13)

    def test_muon_of_one_output_without_momentum_is_normalised_descent(self):
        """The iteration takes the only singular value, which is 1, to a number."""
        value = 1.0
        for _ in range(5):
            value = 3.4445 * value - 4.7750 * value**3 + 2.0315 * value**5
        only_hidden = {"input": 0.0, "readout": 0.0}
        network = dl.MLP(depth=3, width=0.8)
        muon = dl.Muon(0.02, momentum=0.0, other=dl.GradientDescent(0.02, layer_lr=only_hidden))
        normalised = dl.NormalizedDescent(0.02 * value, layer_lr=only_hidden)
        assert_close(losses(make(muon, network)), losses(make(normalised, network)), 1e-12)

    @pytest.mark.parametrize(
        ("lr", "options"),
        [
            (0.002, {}),
            (0.02, {"network": dl.MLP(3, 1.0, centered=True), "steps": 70}),
            (0.02, {"data": dl.Isotropic(0.3, GRAM), "steps": 40}),
            (0.02, {"sampling": dl.OnlineSGD(0.5)}),
        ],
        ids=["smooth", "oscillating", "two outputs", "noise"],
    )
    def test_muon_through_directions_of_gradients(self, lr, options, monkeypatch):
        """Those that are missed are rounding."""
        rules = [dl.Muon(lr, other=dl.GradientDescent(other)) for other in (0.02, 0.03)]
        problems = [make(rule, **({"network": dl.MLP(3, 1.0), "steps": 80} | options)) for rule in rules]
        few = [solution.test_loss for solution in dl.solve(problems)]
        monkeypatch.setattr(orthogonal, "_MANY", 10**6)
        for found, solution in zip(few, dl.solve(problems), strict=True):
            assert_close(found, solution.test_loss, 1e-11)

    def test_muon_with_several_outputs_is_not(self):
        data, network = dl.Isotropic(0.3, GRAM), dl.MLP(depth=2, width=0.8)
        only_hidden = {"input": 0.0, "readout": 0.0}
        muon = dl.Muon(0.02, momentum=0.0, other=dl.GradientDescent(0.02, layer_lr=only_hidden))
        normalised = dl.NormalizedDescent(0.02, layer_lr=only_hidden)
        ours, theirs = (dl.solve(make(rule, network, data=data)).test_loss for rule in (muon, normalised))
        assert abs(ours[-1] / theirs[-1] - 1.0) > 1e-2

    def test_averages(self):
        solution = dl.solve(make(dl.GradientDescent(0.03, 0.5)), averages=[dl.EMA(0.0), dl.TailMean(1e-9), dl.EMA(0.9)])
        assert_close(solution.averaged_test_loss[0], solution.test_loss, 1e-13)
        assert_close(solution.averaged_test_loss[1], solution.test_loss, 1e-13)
        assert solution.averaged_test_loss[2, -1] > 1.1 * solution.test_loss[-1]

    @pytest.mark.parametrize("average", [dl.EMA(0.0), dl.EMA(0.7), dl.TailMean(0.4), dl.TailMean(1.0)])
    def test_averages_of_matrices_that_grow(self, average):
        history = np.random.default_rng(0).standard_normal((9, 2, 9, 9))
        running = MatrixAverage(average, history[0])
        for t, share in enumerate(average.weights(9)):
            history[t, :, t:] = history[t, :, :, t:] = 0.0  # what has been learned by step t
            running.update(history[t], t)
            assert_close(running.mean(9), np.tensordot(share, history, 1), 1e-14)

    def test_a_mean_of_all_weights_is_descent_without_a_schedule(self):
        """With beta = 0 gradients are taken at the fast weights, and their mean is reported."""
        plain = dl.solve(make(dl.GradientDescent(0.05)), averages=[dl.TailMean(1.0)])
        free = dl.solve(make(dl.ScheduleFree(0.05, beta=0.0)))
        assert_close(free.test_loss, plain.averaged_test_loss[0], 1e-13)

    @pytest.mark.parametrize("method", ["panels", "coarse", "condensed"])
    def test_that_mean_is_known_to_every_step_alone(self, method):
        """Number 50 of ``make fuzz``: with beta = 0 it was taken for plain descent, and the fast weights reported."""
        with pytest.raises(ValueError, match=f'"dense" or "auto" with schedule-free, got "{method}"'):
            dl.solve(make(dl.ScheduleFree(0.05, beta=0.0), sampling=dl.OnlineSGD(1.0), steps=600), method=method)

    def test_a_loss_up_the_slope_is_no_divergence(self):
        """Number 46 of ``make fuzz``: far up the slope the loss is huge, which that of the first weights is not."""
        start = dl.solve(make(dl.GradientDescent(0.001))).test_loss[0]
        solution = dl.solve(make(dl.SAM(0.001, rho=3e5)))
        assert solution.status.diverged_at == 1
        assert_close(solution.test_loss[0], start, 1e-13)
        slow = dl.solve(make(dl.SAM(1e-60, rho=3e5)))
        assert slow.status.diverged_at is None
        assert_close(slow.test_loss, np.full(10, start), 1e-9)

    @pytest.mark.parametrize("rule", [dl.NormalizedDescent(0.02), dl.GradientDescent(0.02, clip=0.1, clip_by="layer")])
    def test_a_gradient_of_zero_is_not_divided_by_its_size(self, rule):
        """Layers below a readout of zero have no gradient at first."""
        problem = make(rule, dl.MLP(2, 1.0, init_scale={"readout": 0.0}), steps=6)
        expected = reference(problem)
        assert_close(dl.solve(problem).test_loss, expected["test_loss"], 1e-9)

    def test_orthogonal_steps_of_branches_that_count_nothing(self):
        """Number 126 of ``make fuzz``: hidden matrices behind a branch of zero have no gradient, and stay."""
        muon = dl.Muon(0.02, other=dl.GradientDescent(0.03))
        problem = make(muon, dl.ResNet(2, 1.0, branch=0.0))
        plain = make(dl.GradientDescent(0.03), dl.ResNet(2, 1.0, branch=0.0))
        assert_close(losses(problem), losses(plain), 1e-12)
        assert_close(dl.solve(problem).test_loss, reference(problem)["test_loss"], 1e-9)

    def test_orthogonal_steps_without_a_gradient(self):
        """Number 230 of ``make fuzz``: where two layers begin at zero nothing is ever learned."""
        problem = make(dl.Muon(0.02), dl.MLP(3, 1.0, init_scale={"input": 0.0, "readout": 0.0}))
        expected = reference(problem)["test_loss"]
        assert_close(expected, np.full(10, expected[0]), 1e-14)
        assert_close(dl.solve(problem).test_loss, expected, 1e-12)

    def test_phases_on_infinitely_many_modes(self):
        """Number 246 of ``make fuzz``: how far modes reach was asked of one target alone."""
        data, first = dl.Spectrum.power_law(1.5, 1.2), dl.Phase(4)
        one = make(dl.GradientDescent(0.03), data=data, steps=4)
        two = make(dl.GradientDescent(0.03), data=data, steps=8, phases=[first, dl.Phase(4, target_overlap=0.5)])
        assert_close(dl.solve(two).test_loss[:4], dl.solve(one).test_loss, 1e-12)

    def test_the_slope_of_sharpness_awareness(self):
        """It is plain descent to first order in rho."""
        plain = dl.solve(make(dl.GradientDescent(0.03))).test_loss
        small, smaller = (dl.solve(make(dl.SAM(0.03, rho))).test_loss - plain for rho in (1e-3, 1e-4))
        assert np.abs(small - 10 * smaller).max() < 0.01 * np.abs(small).max()
        assert np.abs(small).max() > 1e-4

    def test_sharpness_awareness_on_batches_of_a_data_set(self):
        """All of it is the full batch; batches of a very large one are fresh, up to B/P."""
        rule = dl.SAM(0.03, 0.2)
        whole, full = (losses(make(rule, sampling=each)) for each in (dl.MultiPassSGD(2.0, 2.0), FULL))
        assert_close(whole, full, 1e-13)
        # Rows that are added after a first look at a batch see all examples, and no draw.
        whole, full = (
            dl.sharpness(make(rule, sampling=each), at=[3, 6], vectors=3) for each in (dl.MultiPassSGD(2.0, 2.0), FULL)
        )
        assert_close(whole.ritz_values, full.ritz_values, 1e-7)
        online = dl.solve(make(rule, sampling=dl.OnlineSGD(0.5))).test_loss
        gaps = [
            np.abs(dl.solve(make(rule, sampling=dl.MultiPassSGD(samples, 0.5))).test_loss - online).max()
            for samples in (1000.5, 10000.5)
        ]
        assert gaps[0] / gaps[1] == pytest.approx(10.0, rel=0.02)

    @pytest.mark.parametrize("sampling", [FULL, dl.OnlineSGD(0.5), dl.MultiPassSGD(2.0, 0.5), dl.Population()])
    def test_two_phases_that_are_one(self, sampling):
        phases = [dl.Phase(4), dl.Phase(6, new_samples=sampling.fresh)]
        rule = dl.GradientDescent(dl.schedules.cosine(0.05), momentum=0.5, weight_decay=0.1)
        whole, parts = (make(rule, sampling=sampling, phases=each) for each in ((), phases))
        assert_close(losses(parts), losses(whole), 1e-12)

    def test_phases_of_different_rules_are_one_after_another(self):
        """A phase does not know what follows, and begins with what came before."""
        rules = dl.GradientDescent(0.05), dl.Muon(0.02), dl.SAM(0.03, 0.1)
        phases = [dl.Phase(4, optimizer=rule, new_samples=False) for rule in rules]
        whole = dl.solve(make(rules[0], steps=12, phases=phases))
        first = dl.solve(make(rules[0], steps=8, phases=phases[:2]))
        assert_close(first.test_loss, whole.test_loss[:8], 1e-12)
        alone = dl.solve(make(rules[0], steps=4))
        assert_close(alone.test_loss, whole.test_loss[:4], 1e-12)

    def test_a_problem_of_the_first_steps(self):
        rule = dl.GradientDescent(dl.schedules.linear(0.05))
        problem = make(rule, phases=[dl.Phase(4), dl.Phase(6, 0.5, sampling=dl.OnlineSGD(dl.schedules.linear(1.0)))])
        assert_close(dl.solve(problem.first(7)).test_loss, dl.solve(problem).test_loss[:7], 1e-13)
        # A schedule of a phase goes on in phases without one of their own.
        phases = [dl.Phase(4, optimizer=rule), dl.Phase(6, 0.5)]
        problem = make(dl.GradientDescent(0.01), phases=phases)
        for steps in (3, 7):
            assert_close(dl.solve(problem.first(steps)).test_loss, dl.solve(problem).test_loss[:steps], 1e-13)

    def test_nothing_is_learned_of_a_target_turned_round(self):
        """On the opposite target the error of the old network is twice its function, and the old task is forgotten."""
        lazy = dl.MLP(1, "infinite", parameterization="ntk", centered=True)
        phases = [dl.Phase(300), dl.Phase(300, target_overlap=-1.0)]
        problem = make(dl.GradientDescent(0.1), lazy, dl.Population(), 600, dl.Isotropic(), phases)
        solution = dl.solve(problem)
        assert solution.test_loss[299] < 1e-12
        assert solution.test_loss[300] == pytest.approx(4.0)
        assert solution.task_loss[0, -1] == pytest.approx(4.0)
        assert_close(solution.task_loss[0, :300], solution.test_loss[:300], 1e-12)
        assert_close(solution.task_loss[1, 300:], solution.test_loss[300:], 1e-12)


class TestClosedForms:
    """What is known without these equations."""

    def test_random_features(self):
        """Only the readout trains, on features whose covariance has the law of Marchenko and Pastur."""
        nu, lr, steps = 1.7, 0.2, 30
        network = dl.MLP(depth=1, width=nu, richness=0.7, centered=True)
        rule = dl.GradientDescent(lr, layer_lr={"input": 0.0})
        solution = dl.solve(make(rule, network, dl.Population(), steps, dl.Isotropic()))
        low, high = (1 - nu**-0.5) ** 2, (1 + nu**-0.5) ** 2

        def density(x):
            return nu * math.sqrt((high - x) * (x - low)) / (2 * math.pi * x)

        for t in (0, 1, 5, 29):
            expected = quad(lambda x, t=t: density(x) * (1 - lr * x) ** (2 * t), low, high, limit=200)[0]
            assert solution.test_loss[t] == pytest.approx(expected, rel=1e-8)

    def test_a_frozen_network(self):
        solution = dl.solve(make(dl.GradientDescent(0.1, layer_lr={"input": 0, "hidden": 0, "readout": 0})))
        assert_close(solution.test_loss, np.full(10, solution.test_loss[0]), 1e-14)

    def test_initial_scales_in_front_of_the_readout(self):
        """The function at initialisation has the product of all variances."""
        network = dl.MLP(depth=2, width=2.0, init_scale=[0.5, 3.0, 0.2])
        loss = dl.solve(make(dl.GradientDescent(0.1), network, steps=1, data=dl.Isotropic())).test_loss[0]
        assert loss == pytest.approx(1.0 + (0.5 * 3.0 * 0.2) ** 2 / 2.0, rel=1e-14)

    def test_standard_parameterisation_is_its_table(self):
        """NTK with rates that are the fan-in of each layer."""
        width = (0.5, 2.0)
        standard = dl.MLP(2, width, parameterization="standard", richness=1.3)
        ntk = dl.MLP(2, width, parameterization="ntk", richness=1.3)
        ours = losses(make(dl.GradientDescent(0.05), standard))
        assert_close(ours, losses(make(dl.GradientDescent(0.05, layer_lr=[1.0, *width]), ntk)), 1e-14)

    def test_powers_of_the_depth(self):
        """beta = branch / depth^p with rates times depth^(2p - 1), which 1/2 leaves as depth-muP has it."""
        half, words = (dl.ResNet(3, 1.0, branch_scaling=each) for each in (0.5, "depth-mup"))
        assert_close(losses(make(dl.GradientDescent(0.05), half)), losses(make(dl.GradientDescent(0.05), words)), 1e-14)
        complete, none = dl.ResNet(4, 1.0, branch_scaling=1.0), dl.ResNet(4, 1.0, branch=0.25, branch_scaling="none")
        rates = {"hidden": 4.0}
        ours = losses(make(dl.GradientDescent(0.05), complete))
        assert_close(ours, losses(make(dl.GradientDescent(0.05, layer_lr=rates), none)), 1e-14)

    @pytest.mark.parametrize(
        ("rule", "power"), [(dl.NormalizedDescent(0.05), -0.25), (dl.NormalizedDescent(0.05, per="global"), 0.5)]
    )
    def test_powers_of_the_depth_with_steps_of_their_own_size(self, rule, power):
        """depth^(p - 1) where the size of a layer's gradient cancels, depth^(2p - 1) where one size is shared."""
        scaled = dl.ResNet(4, 1.0, branch_scaling=0.75)
        none = dl.ResNet(4, 1.0, branch=4**-0.75, branch_scaling="none")
        theirs = make(replace(rule, layer_lr={"hidden": 4**power}), none)
        assert_close(losses(make(rule, scaled)), losses(theirs), 1e-14)

    @pytest.mark.parametrize(
        "rule",
        [
            pytest.param(dl.NormalizedDescent(1.0), id="by layer"),
            pytest.param(dl.NormalizedDescent(1.0, per="global"), id="global", marks=pytest.mark.slow),
            pytest.param(dl.Muon(1.0, other=dl.GradientDescent(0.03)), id="Muon", marks=pytest.mark.slow),
        ],
    )
    def test_the_best_rate_of_steps_of_their_own_size_stays_with_depth(self, rule):
        """In CompleteP, from 8 layers to 32, of which 7/8 and 31/32 are branches; a factor of the depth would be 4."""
        networks = [dl.ResNet(depth, 1.0, centered=True, branch_scaling=1.0) for depth in (8, 32)]
        rates = [dl.optimal_lr(make(rule, network, dl.OnlineSGD(1.0))).lr for network in networks]
        assert rates[1] / rates[0] == pytest.approx(1.0, abs=0.1)

    @pytest.mark.parametrize("power", [0.5, 1.0])
    def test_deep_networks_approach_infinite_depth(self, power):
        """Differences fall as 1 / depth."""
        gaps = []
        limit = dl.solve(make(dl.GradientDescent(0.03), dl.ResNet(math.inf, 1.0, branch_scaling=power))).test_loss
        for depth in (16, 32):
            network = dl.ResNet(depth, 1.0, branch_scaling=power)
            gaps.append(np.abs(dl.solve(make(dl.GradientDescent(0.03), network)).test_loss - limit).max())
        assert gaps[0] / gaps[1] == pytest.approx(2.0, rel=0.15)


class TestDepth:
    """Update rules on nodes in depth agree with layer by layer."""

    @pytest.mark.parametrize(
        ("rule", "options"),
        [
            (dl.GradientDescent(0.03, clip=1.0), {}),
            (dl.SAM(0.03, 0.1), {}),
            (dl.ScheduleFree(0.03), {}),
            (dl.GradientDescent(0.03, layer_lr={"hidden": 0.5, "readout": 0.0}), {"init_scale": {"hidden": 0.5}}),
            (dl.GradientDescent(0.03), {"branch_scaling": 1.0}),
        ],
        ids=["clip", "sam", "schedule-free", "layers", "CompleteP"],
    )
    def test_many_layers(self, rule, options):
        from deeplinear._solvers.dense import Dense

        problem = make(rule, dl.ResNet(300, 1.0, **options), steps=5)
        (by_layer,) = Dense(depth_nodes=0).solve([problem])
        solution = dl.solve(problem)
        assert solution.stats["depth_nodes"]
        assert_close(solution.test_loss, by_layer.curves.test_loss, 1e-7)


def test_programs_of_one_kind_are_solved_together():
    rules = [dl.Muon(lr, other=dl.GradientDescent(0.03)) for lr in (0.01, 0.03)]
    rules += [dl.SAM(0.03, rho) for rho in (0.05, 0.1)]
    rules += [dl.GradientDescent(0.03, clip=clip, layer_lr=[1, 2, 1, rate]) for clip, rate in ((0.5, 0.0), (1.0, 3.0))]
    rules += [dl.NormalizedDescent(0.03, layer_lr=[1, 2, 1, 3], per="global")]  # which is of another kind than clipping
    together = dl.solve([make(rule) for rule in rules])
    assert [each.stats["batch"] for each in together] == [2] * 6 + [1]
    for rule, solution in zip(rules, together, strict=True):
        assert_close(solution.test_loss, dl.solve(make(rule)).test_loss, 1e-12)


@pytest.mark.parametrize(
    "rule", [dl.OnlineSGD, lambda batch: dl.MultiPassSGD(2.0, batch)], ids=["online", "multi-pass"]
)
def test_batches_that_change_and_those_that_do_not_stand_in_one_list(rule):
    problems = [
        make(dl.GradientDescent(0.03), sampling=rule(batch)) for batch in (0.5, [0.5] * 5 + [1.0] * 5, [0.5] * 10)
    ]
    for problem, solution in zip(problems, dl.solve(problems), strict=True):
        assert_close(solution.test_loss, reference(problem)["test_loss"], 1e-12)


def test_results_are_kept_in_files(tmp_path):
    problem = make(dl.SAM(0.03, 0.1), phases=[dl.Phase(5), dl.Phase(5, 0.5)])
    solution = dl.solve(problem, averages=[dl.EMA(0.5), dl.TailMean(0.5)])
    solution.save(tmp_path / "solution.nc")
    loaded = dl.Solution.load(tmp_path / "solution.nc")
    assert loaded.problem == problem
    for name in ("averaged_test_loss", "task_loss", "feature_correlation"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(solution, name))
    assert loaded.solver == solution.solver
    assert_close(loaded.variance.bias, solution.variance.bias)


@pytest.mark.parametrize("averages", [(), (dl.EMA(0.5),)])
@pytest.mark.parametrize("phases", [(), (dl.Phase(5), dl.Phase(5, 0.5))])
@pytest.mark.parametrize("method", ["dense", "reference"])
def test_sets_of_curves_keep_their_shapes_in_files_without_any(method, phases, averages, tmp_path):
    solution = dl.solve(make(dl.GradientDescent(0.03), phases=phases), method=method, averages=averages)
    solution.save(tmp_path / "solution.nc")
    loaded = dl.Solution.load(tmp_path / "solution.nc")
    for one in (solution, loaded):
        assert one.averaged_test_loss.shape == (len(averages), 10)
        assert one.task_loss.shape == (len(phases), 10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda: make(dl.Muon(0.1), dl.ResNet(math.inf, 1.0)),
            "optimizer must be a rule that does not treat layers separately",
        ),
        (
            lambda: make(dl.NormalizedDescent(0.1), dl.MLP(2, "infinite", parameterization="ntk")),
            "optimizer must be GradientDescent without clip in the lazy limit",
        ),
        (lambda: dl.solve(make(dl.ScheduleFree(0.1))).variance, "optimizer must be another one for the analysis"),
        (lambda: dl.solve(make(dl.SAM(0.1, 0.1))).sample_sites(3), "optimizer must be another one for drawing neurons"),
        (
            lambda: dl.solve(make(dl.GradientDescent(0.1, clip=1.0)), method="panels"),
            'method must be "dense" or "auto" with gradient descent and clip',
        ),
        (
            lambda: dl.solve(make(dl.GradientDescent(0.1), phases=[dl.Phase(5), dl.Phase(5)]), method="condensed"),
            'method must be "dense" or "auto" with phases',
        ),
    ],
)
def test_what_theory_cannot_hold_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        change()


def test_panels_know_layers_and_schedules():
    """Rates, decay and initial scales by layer, and schedules of the rate, on a coarse grid in time."""
    rule = dl.GradientDescent(
        dl.schedules.cosine(0.02, warmup=0.1), weight_decay=0.05, layer_lr=[1.0, 0.5, 2.0], layer_decay={"readout": 0.0}
    )
    problem = make(rule, dl.MLP(2, 1.0, init_scale=[0.8, 1.2, 0.5]), steps=300)
    dense, panels = dl.solve(problem, method="dense"), dl.solve(problem, method="panels")
    assert len(panels.times) < 200
    steps = np.arange(0, 300, 37)
    np.testing.assert_allclose(panels.at(steps).test_loss, dense.test_loss[steps], rtol=1e-6)


@pytest.mark.parametrize(
    ("rule", "sampling"),
    [(dl.NormalizedDescent(0.02, per="global"), FULL), (dl.SAM(0.03, 0.2), dl.MultiPassSGD(2.0, 0.5))],
)
def test_names_of_the_reference_hold_for_programs(rule, sampling):
    """Overlaps of replicas under rules whose weights depend on gradients."""
    problem = make(rule, sampling=sampling)
    expected = reference(problem)
    for name, actual in under_names_of_the_reference(dl.solve(problem)).items():
        assert_close(actual, expected[name])
