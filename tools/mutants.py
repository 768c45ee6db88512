"""Put one wrong factor at a time into every equation and see that some test turns red.

    python tools/mutants.py [words to select mutants by]

Each mutant is a copy of the package with one line changed; the quick tests run against it and must
fail. A mutant that survives is printed, and the exit code is 1.
"""

import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Suite(NamedTuple):
    """Tests, and by file what they must catch: text that stands there once, and wrong text in its place."""

    tests: list[str]
    mutants: dict[str, list[tuple[str, str]]]


class Mutant(NamedTuple):
    """One wrong line, and the tests that must catch it."""

    tests: list[str]
    file: str
    right: str
    wrong: str


EQUATIONS = Suite(
    tests=[
        "solvers/test_dense.py",
        "equations/test_facts.py",
        "equations/test_residual.py",
        "equations/test_infinite_depth.py",
        "equations/test_small_batch.py",
        "equations/test_products.py",
        "equations/test_small_richness.py",
    ],
    mutants={
        "_time/propagator.py": [
            ("force = -weight_decay * self.change", "force = -1.1 * weight_decay * self.change"),
            (
                "self.velocity = momentum * self.velocity + force",
                "self.velocity = 1.1 * momentum * self.velocity + force",
            ),
            ("(momentum * self.velocity + force if nesterov", "(self.velocity + force if nesterov"),
        ],
        "_equations/coefficients.py": [
            (
                "0.0 if infinite else 1.0 / (nu[-1] * gamma0)",
                "0.0 if infinite else 1.0 / (nu[0] * gamma0)",
            ),
            ('"initial_variance": first_to_last * ', '"initial_variance": '),
            ("/ in_units_of_scale**2", "/ in_units_of_scale"),
            ("1.0 if infinite else nu[0] / nu[-1]", "1.0 if infinite else nu[-1] / nu[0]"),
            ("if infinite else nu[1:] / nu[:-1]", "if infinite else nu[:-1] / nu[1:]"),
            (
                "f = np.array([1.0] + [network.branch_factor] * (len(nu) - 1))",
                "f = np.array([network.branch_factor] * len(nu))",
            ),
            ('"k": f[::-1]', '"k": f'),
        ],
        "_problem/network.py": [
            ("self.branch / self.depth**self.branch_power", "self.branch / self.depth"),
            ('return 1.0 if self.parameterization == "mup" else 1.0 / root', "return 1.0 / root"),
        ],
        "_problem/sampling.py": [
            ("(1.0 - self.keeps(steps)) / self.batches(steps)", "1.0 / self.batches(steps)"),
        ],
        "_equations/source.py": [
            ("self.on(x), self.correlation", "x, self.correlation"),
            ("self._transposed(rows_times_symmetric", "(rows_times_symmetric"),
            ("return times(covariance, self.factor)", "return covariance"),
            ("return times(product, self.factor)", "return product"),
            ("return self._transposed(own)", "return own"),
            ("own = self.d[..., rows, None] * own", "pass"),
            ("tile(over_time(x, self.outputs)", "tile(1.1 * over_time(x, self.outputs)"),
            ("* namespace(profile).tile(identity(self.outputs, profile), times_of)", ""),
            ("shift: Array = lost[..., :e] / self.scale", "shift: Array = 1.1 * lost[..., :e] / self.scale"),
            ("self.d - 1.0 if self.lost is None else", "self.d - 1.0 if True else"),
            ("        profile[..., : self.outputs] = 1.0", "        pass"),
            ("            y[..., : self.outputs] += over_time", "            over_time"),
            ("sum(others, start=first)", "first"),
        ],
        "_equations/site.py": [
            ("own_source *= self.gamma0", "own_source *= 1.0"),
            ("add_identity(own_source, rows)", "pass"),
            ("self.dh, self.dg, 1, rows)", "self.dh, self.dg, 0, rows)"),
            ("self.dg, self.dh, 0, rows)", "self.dg, self.dh, 1, rows)"),
            ("u.scaled(self._gamma0_squared)", "u.scaled(self.gamma0)"),
            ("fill_sandwich(filled, self.dh, (u, r), rows)", "fill_sandwich(filled, self.dh, (r, u), rows)"),
        ],
        "_equations/layers.py": [
            ("(times_or_one(k, rho, f), times_or_one(k, k, rho))", "(times_or_one(k, rho), times_or_one(k, k, rho))"),
            ("(times_or_one(k, rho, f), times_or_one(k, k, rho))", "(times_or_one(k, f), times_or_one(k, k, rho))"),
            ("(times_or_one(k, rho, f), times_or_one(k, k, rho))", "(times_or_one(k, rho, f), times_or_one(k, rho))"),
            ("(times_or_one(k, rho, f), times_or_one(k, k, rho))", "(times_or_one(k, rho, f), times_or_one(k, k))"),
            ("times(f, f, c.whole_gamma0))", "times(f, c.whole_gamma0))"),
            ("(c.feedback, *c.k)", "(None, *c.k)"),
            ("kernel += times(initial, w.initial(R, rows))", "kernel += 1.1 * times(initial, w.initial(R, rows))"),
            (
                "kernel: Array = times(learned, w.learned(C, rows, transposed=transposed))",
                "kernel: Array = 1.1 * times(learned, w.learned(C, rows, transposed=transposed))",
            ),
            (
                "self.Cg[layer + 1], times_or_one(k, k, rho)",
                "self.Cg[layer + 1], times_or_one(k, rho)",
            ),
            (
                "self.Cg[layer + 1], times_or_one(k, k, rho)",
                "self.Cg[layer + 1], times_or_one(k, k)",
            ),
            ("kernel += times(initial, decayed_on_g", "kernel += 1.1 * times(initial, decayed_on_g"),
            ("kernel = times_E(c, times(learned", "kernel = 1.1 * times_E(c, times(learned"),
            ("_weight_kernel(w, R, correlation_rows(c, Cg, rows),", "_weight_kernel(w, R, Cg[rows],"),
            ("times_or_one(f, f, w.variance)", "times_or_one(f, w.variance)"),
            (
                "return backward_source(c, weights.readout, None)",
                "return Source(None, None, None, c.structure.outputs, c.scale)",
            ),
            (
                "times_inverse_of_E(self.c, times(self.c.k[layer - 1], self.sites",
                "times_inverse_of_E(self.c, times(None, self.sites",
            ),
            ("return times(self.c.f[layer - 1], self.sites", "return times(None, self.sites"),
            ("Q = B + self.right", "Q = B + 0.9 * self.right"),
            ("Y = A + self.left", "Y = A + 0.9 * self.left"),
            ("self._Gamma[layer + 1], self.r[layer]", "self._Gamma[layer + 1], Source(self.Cg[layer + 1])"),
            ("self._cov_a[layer - 1], self.u[layer]", "self._cov_a[layer - 1], Source(self.Ch[layer - 1])"),
        ],
        "_equations/increments.py": [
            ("y: Array = _spread(c.scale, x) * x", "y: Array = x"),
            ("y[..., :outputs] = over_time(x, outputs)", "pass"),
            ("y: Array = x / scale", "y: Array = x"),
            ("- over_time(x[..., outputs:], outputs) / scale", ""),
            ("own = scale * own + _over_rows", "own = own + _over_rows"),
            ("restored = scale * own", "restored = own"),
            ("    restored[..., :outputs] = own[..., :outputs]", "    pass"),
            ("    y[..., : c.structure.outputs] = 0.0", "    pass"),
        ],
        "_equations/weights.py": [
            ("decayed = x * _spread(dd(self.d, rows), x) if self.decays else x", "decayed = x"),
        ],
        "_equations/layer_zero.py": [
            ("past @ (draws * finite(equal_times)) @ past.T", "R @ (draws * finite(equal_times)) @ R.T"),
            ("rows, c.first_to_last, c.first_to_last)", "rows, None, c.first_to_last)"),
            ("rows, c.first_to_last, c.first_to_last)", "rows, c.first_to_last, None)"),
            ("Rhr = -self.mean_H(rows)", "Rhr = -1.1 * self.mean_H(rows)"),
            ("KR, panel = rows_times(K, self.RDelta),", "KR, panel = K,"),
            ("self.H, -c.eigenvalues * KR", "self.H, -1.1 * c.eigenvalues * KR"),
            ("mode_sum(c, H, 1)", "mode_sum(c, H, 2)"),
            ("Rvu = -rows_times(self.mean_H(rows)", "Rvu = -1.1 * rows_times(self.mean_H(rows)"),
            ("felt = self.reused(Rvu, rows)", "felt = 1.1 * self.reused(Rvu, rows)"),
            ("Rhr = -self.times_mean_H(RDelta)", "Rhr = -1.1 * self.times_mean_H(RDelta)"),
            ("= without_initial(c, Rhr) if c.structure.centered else Rhr", "= Rhr"),
            ("self.responses.weights, Cg, c.initial_variance", "self.responses.weights, Cg, 1.1 * c.initial_variance"),
            ("row_products(H1 @ c.target, H1), 1)", "row_products(H1 @ c.target, H1), 2)"),
            ("row_products(H, width), 1)", "row_products(H, width), 2)"),
            ("bias = R.H1[..., rows, :] @ c.target", "bias = 1.1 * R.H1[..., rows, :] @ c.target"),
            ("data = for_all_modes(self._times_Z, D)", "data = 1.1 * for_all_modes(self._times_Z, D)"),
            ("data = data + D * self._own", "data = data + 1.1 * D * self._own"),
            ("(drawn[:, None] * c.xp", "(1.1 * drawn[:, None] * c.xp"),
            (
                "residual: Array = remembered / reuse[..., None]",
                "residual: Array = remembered / 1.1 / reuse[..., None]",
            ),
            (
                "total = rows_times_symmetric(x, self._remembered)",
                "total = 1.1 * rows_times_symmetric(x, self._remembered)",
            ),
            ("errors: Array = self.Cv[rows] + noise", "errors: Array = self.Cv[rows] + 1.1 * noise"),
            ("(subsampling * by_step).reshape", "(1.1 * subsampling * by_step).reshape"),
            ("Psi = c.eigenvalues[:, 0] * self.Cv[rows] if", "Psi = 1.1 * c.eigenvalues[:, 0] * self.Cv[rows] if"),
            ("add_identity(learned, rows, self._mean_eigenvalue)", "add_identity(learned, rows)"),
            ("return R.times_mean_H_transpose(self._Z", "return 0.9 * R.times_mean_H_transpose(self._Z"),
            ("R.H[rows] * self._own[..., : rows.stop], 2)", "R.H[rows] * self._own[..., : rows.stop], 1)"),
            (
                "R.RDelta.part(None), (Source(self._Psi),)",
                "R.RDelta.part(None), (Source(self._Psi, 1.1 + 0 * c.sigma2),)",
            ),
        ],
        "_equations/chain.py": [
            ("(gain + decay * total)[..., None]", "(gain + total)[..., None]"),
        ],
        "_equations/deep_chain.py": [
            ("D = top_D + self._sum(above, dD)", "D = top_D + 1.1 * self._sum(above, dD)"),
            ("                dY = self.A[rows] +", "                dY = 1.1 * self.A[rows] +"),
            ("dQ = self.B[rows] +", "dQ = 1.1 * self.B[rows] +"),
            ("mixed = mixed + self._edge *", "mixed = mixed + 0.9 * self._edge *"),
            ("through = self._gamma0**2 *", "through = self._gamma0 *"),
            ("incoming + self._edge * rows_times", "incoming + 0.9 * self._edge * rows_times"),
        ],
        "_solvers/dense.py": [
            (
                "eq.replica(same_data=True), eq.replica(same_data=False)",
                "eq.replica(same_data=False), eq.replica(same_data=False)",
            ),
        ],
        "_theory/solution.py": [
            ("(self.initialization + self.interaction) / checks", "(self.initialization) / checks"),
        ],
    },
)

PANELS = Suite(
    tests=["solvers/test_panels.py"],
    mutants={
        "_time/grid.py": [
            ("sums -= legendre.legvander(ends, NODES - 1) / 2", "sums -= legendre.legvander(ends, NODES - 1) / 3"),
            ("* h ** (k - 1) * derivatives", "* h**k * derivatives"),
            ("self._weight = np.append(self._weight, whole)", "self._weight = np.append(self._weight, 1.01 * whole)"),
            ("(steps[mine] - starts[index] + 1) / length", "(steps[mine] - starts[index]) / length"),
        ],
        "_time/propagator.py": [
            ("decay = np.log1p(-rate * self._weight_decay)", "decay = -rate * self._weight_decay"),
            ("- self._log_d - self._decay)", "- self._log_d)"),
            ("max(misfit, _exponential_misfit(decay, self._grid.lengths[-1]))", "misfit"),
            ("return legendre.legval(radau_nodes(), coefficients), float(misfit)", "return rates[:NODES], 0.0"),
        ],
        "_solvers/panels/run.py": [
            ("good = residual <= max(0.1 * self._goal, _ROUNDING)", "good = residual <= 0.1"),
            ("error = max(error, self._truncation(rows)) if good", "error = error if good"),
            (
                "self.error_floor if index < losses else max(1.0 / (1.0 + added)",
                "self.error_floor if index < losses else max(1e9",
            ),
            ("        self.equations.room.clear(rows)", "        pass"),
            ("self.diverged_at[0] = self.grid.end\n", "self.diverged_at[0] = self.grid.end + 1\n"),
            (
                "eq.replica(same_data=True), eq.replica(same_data=False)",
                "eq.replica(same_data=True), (eq.replica(same_data=True)[0], eq.replica(same_data=False)[1])",
            ),
        ],
        "_equations/weights.py": [
            ("xp.where(within != 0, spread, 0.0)", "spread"),
        ],
        "_equations/two_time.py": [
            ("target[common] = source[common]", "target[common] = 0.0"),
            ("self.matrix[..., : rows.stop, rows] = values.mT", "pass"),
        ],
        "_solvers/panels/settle.py": [
            ("float(np.abs(new - z).max())", "float(np.abs(new - z).min())"),
            ("min(recent) > 0.5 * min(before)", "True"),
        ],
    },
)

NETWORKS = Suite(
    tests=["experiment/test_exact.py", "comparison/test_finite_size.py"],
    mutants={
        "_experiment/revealed.py": [
            ("far.known_images @ rest - far.known @ image", "far.known_images @ rest"),
            ("SPENT = 1e-13", "SPENT = 1e-3"),
            ("SPENT = 1e-13", "SPENT = 0.0"),
            ("self._scale * self.coefficients[:, 0, 1 :", "self.coefficients[:, 0, 1 :"),
            ("self.coefficients[..., :1] * (near", "(near"),
            ("return (first + second)[..., 0]", "return first[..., 0] * 1.01"),
        ],
        "_experiment/spaces.py": [
            ("sizes[index] - np.arange(float(kept[index]))", "np.full(kept[index], float(sizes[index]))"),
            ("self._known += count", "pass"),
        ],
        "_experiment/revealed_network.py": [
            ("branch = beta if beta is not None and layer else 1.0", "branch = 1.0"),
            ("fan_in = (sizes.unit, *sizes.widths[:-1])", "fan_in = (sizes.unit, *sizes.widths[1:])"),
            ("np.sqrt(counts[alike])[:, None, None] * ", ""),
            ("if (data.keeps == 1.0).all() else None", "if True else None"),
            ("backward += stage.steps * (losses + averages)", "backward += stage.steps * losses"),
        ],
        "_experiment/draws.py": [
            ("gammaincinv(freedom / 2.0,", "gammaincinv(freedom / 2.0 - 0.25,"),
            ("-drawn if self._mirrored", "drawn if self._mirrored"),
        ],
        "_experiment/history.py": [("    product /= unit\n", "    product /= size\n")],
        "_comparison/finite_size.py": [
            ("squares.std(axis=0, ddof=1) / (2 * root * scatter)", "squares.std(axis=0, ddof=1) / (root * scatter)"),
            ("middle.std(axis=0, ddof=1) / root", "middle.std(axis=0, ddof=1) / (2 * root)"),
            ("room = accuracy - np.abs(effect.relative_shift)", "room = accuracy + 0 * effect.relative_shift"),
        ],
    },
)

PROGRAMS = Suite(
    tests=["experiment/test_programs.py"],
    mutants={
        "_experiment/descent.py": [
            ("add_outer(momentum, outer, keep=mu)", "add_outer(momentum, outer)"),
            ("squares = self._mean / (1.0 - rule.beta2 ** (t + 1))", "squares = self._mean"),
            ("xp.clip(rule.clip * inverse, None, 1.0)", "rule.clip * inverse"),
            ("squares = squares * beside(np.asarray(self._sizes), squares)", "pass"),
            ("        self._move(1.0)", "        pass"),
            ("        self._move(-1.0)", "        self._move(1.0)"),
        ],
        "_experiment/more_rules.py": [
            ("fan_out = weight.shape[-2]", "fan_out = weight.shape[-1]"),
            ("by_layer(optimizer.rates(steps), factors.orthogonal)", "by_layer(optimizer.rates(steps), factors.sizes)"),
            ("c = 1.0 / (t + 2)", "c = 1.0 / (t + 1)"),
            ("add(between, mean, self._beta, keep=0.0)", "add(between, fast, self._beta, keep=0.0)"),
        ],
        "_problem/network.py": [
            ("power - 1 if own_size", "power - 0.5 if own_size"),
        ],
        "_problem/problem.py": [
            ("fan_ins / fan_ins[-1]  # eq-standard-size", "fan_ins  # eq-standard-size"),
            ("np.sqrt(fan_ins / np.append(fan_ins[1:], fan_ins[-1]))", "np.sqrt(fan_ins / fan_ins[-1])"),
        ],
        "_experiment/network.py": [
            ("squares = [outer.square / width for", "squares = [outer.square for"),
            ("            weight *= scale\n", "            pass\n"),
        ],
        "_experiment/averages.py": [
            (
                "add(mean, weight, 1.0 - self._decay, keep=self._decay)",
                "add(mean, weight, self._decay, keep=self._decay)",
            ),
            ("            self._change(self._inside.popleft(), -1.0)", "            self._inside.popleft()"),
        ],
        "_experiment/training.py": [
            ("if not stage.since:", "if True:"),
            ("rule.step(t - stage.start + stage.since, gradient)", "rule.step(t - stage.start, gradient)"),
            ("if self._subtracted is None:", "if True:"),
            ("train_loss = seen.train_loss if counted is None else", "train_loss = seen.train_loss if True else"),
            ("self._log.task_loss(t, phase, self._task.inputs.loss(target + minus_function, stage.noise))", "pass"),
        ],
        "_experiment/targets.py": [
            ("math.sqrt(1 - overlap**2) * next(left)", "(1 - overlap) * next(left)"),
            ("np.concatenate([*known, rng.standard_normal", "np.concatenate([rng.standard_normal"),
        ],
        "_experiment/streams.py": [
            (
                "yield SampleBatch(inputs, standard, noise * label_noise, keep, kept)",
                "yield SampleBatch(inputs, standard, label_noise, keep, kept)",
            ),
        ],
        "_experiment/history.py": [
            ("np.kron(np.outer(noises, noises), gram)", "np.kron(np.outer(noises, noises), np.ones_like(gram))"),
        ],
    },
)

GEOMETRY = Suite(
    tests=["geometry/test_sharpness.py", "geometry/test_landscape.py", "geometry/test_weight_spectra.py"],
    mutants={
        "_geometry/operators.py": [
            ("STENCIL = ((1, 2.0 / 3.0), (2, -1.0 / 12.0))", "STENCIL = ((1, 2.0 / 3.0), (2, 1.0 / 12.0))"),
            ("values[:, 1:] += self._rates[group] * direction", "values[:, 1:] += direction"),
            ("rates = self._rates if len(products)", "rates = np.ones_like(self._rates) if len(products)"),
        ],
        "_geometry/rates.py": [
            ("2.0 * (1.0 + mu) / (1.0 + 2.0 * mu if", "2.0 / (1.0 + 2.0 * mu if"),
            ("lr *= float(next(iter(scales.values()))[0, 0])", "pass"),
        ],
        "_geometry/spectrum.py": [
            ("((k + delta) ** -2 for k", "((k + delta) ** -1 for k"),
        ],
        "_geometry/weights.py": [
            ("uu = f.variance * f.C_h + f.B @ gu_tilde", "uu = f.variance * f.C_h + 0.0 * f.B @ gu_tilde"),
            ("hr_tilde = f.ratio * gu.T - f.C_h @ f.A.T", "hr_tilde = f.ratio * gu.T"),
            ("float(1.0 / (s - d2 * f.ratio * left))", "float(1.0 / (s - d2 * left))"),
            ("[d2 * g_right * self._R - s * above, self.inside]", "[d2 * g_left * self._R - s * above, self.inside]"),
            ("self._known = root * self._g.T @ gu", "self._known = self._g.T @ gu"),
        ],
        "_geometry/weight_spectra.py": [
            ("B=variance * R_h * d,", "B=variance * R_h,"),
            ("X=gamma0 * branch * X,", "X=gamma0 * X,"),
            ("left[0], right[1] = left[0] + on_u, right[1] + on_r", "pass"),
        ],
        "_geometry/landscape.py": [
            ("values[:, 1 : 1 + rows] = 0.0", "pass"),
        ],
        "_equations/extension.py": [
            (
                "subsampling=extended(c.subsampling, 0.0 if s.subsamples else None)",
                "subsampling=extended(c.subsampling, None)",
            ),
            ("*(number if fresh else s.sets.sets[row],) * extra", "*(s.sets.sets[row],) * extra"),
        ],
        "_equations/layer_zero.py": [
            ("K[..., : own.start] += K[..., own] @ factors", "pass"),
            ("mixed = self.Ch.matrix[:, rows, : own.start] @ factors.mT", "continue"),
        ],
    },
)

RULES = Suite(
    tests=["solvers/test_any_program.py"],
    mutants={
        "_equations/training.py": [
            ("where = {group: weights - self._up * last", "where = {group: weights + self._up * last"),
            ("(1.0 - beta) * z + beta * self._means[group]", "beta * z + (1.0 - beta) * self._means[group]"),
            ("+ rule.since + 2.0)", "+ rule.since + 1.0)"),
            ("+ (1.0 - beta2) * square", "+ square"),
            ("v / (1.0 - beta2**self._gradients)", "v"),
            ("track.change = self._means[group]", "pass"),
            ("if group not in elsewhere:", "if True:"),
            ("ratio = clip * _over_root(square)", "ratio = clip * _over_root(square) ** 2"),
        ],
        "_equations/matrix_track.py": [
            ("V = V @ q @ q", "V = V @ q"),
            ("_C * (V @ V)", "_C * V"),
            ("constant * gain * part + w * q", "constant * part + w * q"),
            ("+= constant / norm * m", "+= constant * m"),
            ("(U * (w / square))", "(U * w)"),
            ("m = momentum * m\n", "m = 1.0 * m\n"),
            ("share[..., None] * (mean - X)", "0.0 * (mean - X)"),
            ("force = -decay[..., None] * self._X", "force = 0.0 * self._X"),
        ],
        "_equations/matrix_averages.py": [
            ("total *= 1.0 - share", "pass"),
            ("-= old", "-= 0.5 * old"),
            ("total / self._average.length(self._step - 1)", "total / self._average.length(self._step)"),
        ],
        "_equations/chain.py": [
            ("ratio if layer + 1 == c.structure.depth else _over(ratio, c.rho[layer])", "ratio"),
            ("both = times(c.f[layer], c.f[layer], ratio, Cg * Ch)", "both = times(c.f[layer], ratio, Cg * Ch)"),
        ],
        "_equations/deep_chain.py": [
            ("edges = beta2[..., None] * (each", "edges = (each"),
        ],
        "_equations/weights.py": [
            ("decayed if self.variance is None else decayed *", "decayed if True else decayed *"),
            ("return C @ (X if transposed else X.mT)", "return C @ (X.mT if transposed else X)"),
            ("squares if self.variance is None else self.variance[..., 0] * squares", "squares"),
        ],
        "_equations/data_sets.py": [
            ("reuse += [draws[step] if shares else sampling.reuse]", "reuse += [sampling.reuse]"),
            ("number += stage.new_samples", "number += 1"),
            (
                "stage.target_overlap for stage in problem.stages[early + 1 : late + 1]",
                "1.0 for stage in problem.stages[:0]",
            ),
        ],
        "_equations/layer_zero.py": [
            ("sigma[:, rows, None] * sigma[:, None, : rows.stop] * within", "sigma[:, rows, None] ** 2 * within"),
            ("*= 1.0 + again[:, None, None]", "*= 1.0"),
            ("e = second - second[..., first] @ before", "e = second"),
            ("by_step[:, :, 1:] += parts[:, :, :-1] @ before.mT", "pass"),
            ("by_step[:, :, :-1] += parts[:, :, 1:] @ before", "pass"),
            ("equal[steps[1:], :, steps[:-1], :] = before[1:]", "pass"),
        ],
        "_equations/system.py": [
            ("- bias(equal.mean) + bias(equal.mean + shift)", "+ bias(equal.mean + shift)"),
            ("CDelta_equal[:, times] = 0.0", "CDelta_equal[:, times] *= 1.0"),
        ],
        "_problem/network.py": [
            ("else 2 * power - 1)", "else power)"),
            ("return np.array([1.0, *widths])", "return np.array([*widths, 1.0])"),
        ],
    },
)

SIMULATOR = Suite(
    tests=["experiment/test_simulate.py", "experiment/test_spectrum_networks.py"],
    mutants={
        "_experiment/network.py": [
            ("width = int(self.weights[-2].shape[-2])", "width = int(self.weights[-2].shape[-1])"),
            ("return 1.0 / math.sqrt(self.unit) if layer == 0", "return 1.0 / self.unit if layer == 0"),
            ("scales = [1.0 / math.sqrt(self.unit),", "scales = [1.1 / math.sqrt(self.unit),"),
            ("beta * _fan_in_scale(weight) for", "_fan_in_scale(weight) for"),
            ("Outer(self.gamma0, h[-1],", "Outer(1.0, h[-1],"),
            ("stream + self.beta * through", "stream + through"),
            ("return 1.0 / math.sqrt(weight.shape[-1])", "return 1.0 / math.sqrt(weight.shape[-2])"),
        ],
        "_experiment/descent.py": [
            ("add_outer(momentum, outer, keep=mu)", "add_outer(momentum, outer, keep=1.0)"),
            ("add(momentum, weight, -decay)", "add(momentum, weight, -1.1 * decay)"),
            ("add(weight, momentum, lr * mu)", "add(weight, momentum, lr)"),
        ],
        "_experiment/in_place.py": [
            ("elif keep == 1.0 and outer.left", "elif outer.left"),
        ],
        "_experiment/streams.py": [
            ("felt: Array = self.deviation * error", "felt: Array = 1.0 * error"),
            ("+ error.shape[-1] * noise**2", "+ noise**2"),
            ("/ math.sqrt(self.unit) + label_noise", "/ math.sqrt(self.unit)"),
            ("(math.sqrt(self.unit) / standard.shape[-2])", "(math.sqrt(self.unit) / standard.shape[-1])"),
            ("residual * self.kept / self.keep", "residual * self.kept"),
            (
                "yield SampleBatch(inputs, standard, noise * label_noise)",
                "yield SampleBatch(inputs, standard, label_noise)",
            ),
            ("_sum_of_squares(residual) / self.standard.shape[-2]", "_sum_of_squares(residual)"),
        ],
        "_experiment/targets.py": [
            ("math.sqrt(size) * known[-1] @ roots", "known[-1] @ roots"),
            ("* np.sqrt(np.maximum(values, 0.0))", "* np.maximum(values, 0.0)"),
        ],
        "_experiment/training.py": [
            ("self._subtracted = function if self._task.problem.network.centered else 0.0", "self._subtracted = 0.0"),
        ],
        "_experiment/record.py": [
            ("zip(self._h, (unit, *widths), strict=True)", "zip(self._h, (unit, unit, *widths[1:]), strict=True)"),
            ("DIVERGED = 1e12", "DIVERGED = 1e300"),
        ],
        "_experiment/history.py": [
            ("history @ history.mT / unit", "history @ history.mT / (unit + 1)"),
            ("* same_step[:, None, :, None]", ""),
        ],
    },
)

MERGED_STEPS = Suite(
    tests=["solvers/test_merged_steps.py"],
    mutants={
        "_solvers/merged_steps.py": [
            ("np.prod((1.0 - others) / (m - others))", "np.prod((0.0 - others) / (m - others))"),
            ("lr=merged * optimizer.lr", "lr=1.001 * merged * optimizer.lr"),
            ("curve = curve + correction", "curve = curve + 0.5 * correction"),
            ("spacing = (problem.steps - 1) / count", "spacing = problem.steps / count"),
            ("np.append(first, then[-late:])", "np.append(first, then[-late - 1 : -1])"),
            ("if error <= self.tolerance:", "if error <= 1e3 * self.tolerance:"),
            ("error = max(error, _error_at_the_joint(problem, start.curves, curves))", "pass"),
        ],
        "_time/axis.py": [
            ("spaced = (self.steps - 1) / self.intervals", "spaced = self.steps / self.intervals"),
            ("spline(self.times[last:], curve[last:])(steps", "spline(self.times[last:], curve[last:])(1.01 * steps"),
        ],
        "_problem/sampling.py": [
            ("replace(self, batch=steps * self.batch)", "replace(self, batch=self.batch)"),
            ("steps * b / (1.0 - b + steps * b)", "min(steps * b, 1.0)"),
        ],
    },
)

COMPILED = Suite(
    tests=["equations/test_products.py"],
    mutants={
        "_equations/row_products.h": [
            ("end = (r / block + 1) * block;", "end = (r / block) * block;"),
            ("sum += x[s] * m0[s];", "sum += 1.1 * x[s] * m0[s];"),
            ("y[r] += sum;", "y[r] = sum;"),
            ("y1 += x[s] * m1[s];", "y1 += x[s] * m0[s];"),
            ("y2 + x0 * m2[r] + x1 * m2[r + 1]", "y2 + x0 * m2[r] + x1 * m1[r + 1]"),
            ("y[r] += y0 + x0 * m0[r];", "y[r] += y0;"),
        ],
        "_equations/_rows.pyx": [
            ("F[i, e - 1, e - 1] = 1\n", "F[i, e - 1, e - 1] = 2\n"),
            ("j = i % x.shape[0]\n", "j = 0\n"),
            ("scale = factor[j // shared]", "scale = factor[0]"),
            ("filled[i, j, e - 1, e - 1] + 1\n", "filled[i, j, e - 1, e - 1] + 2\n"),
            ("row[s] = responses[i, j, t, s] * profiles[k, s]", "row[s] = responses[i, j, t, s]"),
            ("through[s] = profiles[k, s] * through[s]", "through[s] = 1 * through[s]"),
            ("common = factors[j // (batch // factors.shape[0])]", "common = factors[0]"),
            ("common = common + row[s]", "common = row[s]"),
            ("of_y = of_y * profile[j, t]", "of_y = 1 * of_y"),
            ("filled[j, s, t] = filled[j, t, s]", "filled[j, s, t] = 0"),
        ],
    },
)

COORDINATES = Suite(
    tests=["comparison/test_coordinate_check.py"],
    mutants={
        "_comparison/coordinate_sizes.py": [
            ("network.branch_factor**2 if network.skip", "network.branch_factor if network.skip"),
            ("found.features[..., layer, -outputs:, :]  #", "found.features[..., layer + 1, -outputs:, :]  #"),
            ("scales[layer] * np.repeat(learned[layer], outputs)", "scales[layer] * np.tile(learned[layer], outputs)"),
            ("- 2 * across + first", "- across + first"),
            ("rates[t][:, None], momenta[t]", "rates[t][:, None], momenta[0]"),
        ],
    },
)

PYTORCH = Suite(
    tests=["pytorch/test_torch_pages.py", "pytorch/test_torch_script.py", "pytorch/test_torch_training.py"],
    mutants={
        "_torch/plain.py": [
            ("rates = raw * squares *", "rates = raw * np.sqrt(squares) *"),
            ("/ (raw * squares)", "/ raw"),
            ("scales * np.sqrt(squares)", "scales * squares"),
        ],
        "_torch/network.py": [
            ("self.beta * through", "through"),
            ("root / (sizes.widths[-1]", "root / (sizes.widths[0]"),
            ("function - self._function(self._initial(), x) if", "function if"),
        ],
        "_torch/rules.py": [
            ("layer.gradient.sub_(weight, alpha=decay)", "layer.gradient.sub_(weight, alpha=2 * decay)"),
            ("pull.add_(momentum, alpha=mu)", "pull.add_(momentum)"),
            ("layer.weight.shape[0] ** 0.5", "layer.weight.shape[1] ** 0.5"),
            ("1.0 / (t + 2)", "1.0 / (t + 1)"),
            ("mean / (1.0 - rule.beta2 ** (t + 1))", "mean"),
            (".clamp(max=1.0)", ""),
        ],
        "_torch/optimizer.py": [
            ("radius / norm * layer.gradient", "radius * layer.gradient"),
            ("network.gamma0**2)", "network.gamma0)"),
        ],
        "_torch/data.py": [
            ("batch.kept[:, 0] / batch.keep", "batch.kept[:, 0] / 1.0"),
            ("math.sqrt(dim) * np.eye(dim)", "np.eye(dim)"),
        ],
    },
)

SUITES = [
    EQUATIONS,
    PANELS,
    NETWORKS,
    GEOMETRY,
    RULES,
    PROGRAMS,
    SIMULATOR,
    MERGED_STEPS,
    COMPILED,
    COORDINATES,
    PYTORCH,
]

MUTANTS = [
    Mutant(suite.tests, file, right, wrong)
    for suite in SUITES
    for file, lines in suite.mutants.items()
    for right, wrong in lines
]


COMPILED_SUFFIXES = (".pyx", ".h")


def compile_again(folder: Path) -> None:
    """Compile the products of a copy of the package, with pip as ``make test`` does, and put them into the copy."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    equations = Path("deeplinear", "_equations")
    for old in (folder / "src" / equations).glob("_rows.*.so"):
        old.unlink()
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--target", str(folder / "built")]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(folder)], check=True)
    (made,) = (folder / "built" / equations).glob("_rows.*.so")  # none means that there is no compiler
    shutil.copy(made, folder / "src" / equations)


def survives(mutant: Mutant) -> bool:
    """Whether the tests pass although the package is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src")
        target = Path(folder) / "src" / "deeplinear" / mutant.file
        text = target.read_text()
        target.write_text(text.replace(mutant.right, mutant.wrong))
        if target.suffix in COMPILED_SUFFIXES:
            compile_again(Path(folder))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
        tests = [str(ROOT / "tests" / name) for name in mutant.tests]
        environment = {"PYTHONPATH": f"{folder}/src", "PATH": "/usr/bin:/bin", "HYPOTHESIS_STORAGE_DIRECTORY": folder}
        command = [sys.executable, "-m", "pytest", *options, *tests]
        return subprocess.run(command, env=environment, cwd=folder, capture_output=True).returncode == 0


def main() -> int:
    """Run the chosen mutants, or all."""
    words = sys.argv[1:]
    chosen = [each for each in MUTANTS if not words or any(word in " ".join(each[1:]) for word in words)]
    survivors = 0
    with ThreadPoolExecutor(2) as pool:
        for mutant, alive in zip(chosen, pool.map(survives, chosen), strict=True):
            survivors += alive
            print("SURVIVED" if alive else "caught  ", mutant.file, "|", mutant.right, "->", mutant.wrong, flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
