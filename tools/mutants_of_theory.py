"""Wrong lines for the equations and the solvers that fill them."""

from mutants_suite import Suite

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
            ("a: Array = xp.tril(", "a: Array = 1.1 * xp.tril("),
            ("(*rates.shape, steps)), k=-1)", "(*rates.shape, steps)), k=0)"),
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
            ('"f_bar": f[::-1]', '"f_bar": f'),
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
            ("return Sandwich(filled, self.dh, u, r)", "return Sandwich(filled, self.dh, r, u)"),
        ],
        "_equations/layers.py": [
            (
                "(times_or_one(f_bar, rho, f), times_or_one(f_bar, f_bar, rho))",
                "(times_or_one(f_bar, rho), times_or_one(f_bar, f_bar, rho))",
            ),
            (
                "(times_or_one(f_bar, rho, f), times_or_one(f_bar, f_bar, rho))",
                "(times_or_one(f_bar, f), times_or_one(f_bar, f_bar, rho))",
            ),
            (
                "(times_or_one(f_bar, rho, f), times_or_one(f_bar, f_bar, rho))",
                "(times_or_one(f_bar, rho, f), times_or_one(f_bar, rho))",
            ),
            (
                "(times_or_one(f_bar, rho, f), times_or_one(f_bar, f_bar, rho))",
                "(times_or_one(f_bar, rho, f), times_or_one(f_bar, f_bar))",
            ),
            ("times(f, f, c.whole_gamma0))", "times(f, c.whole_gamma0))"),
            ("(c.feedback, *c.f_bar)", "(None, *c.f_bar)"),
            (
                "kernel += times(initial, w.initial(R[rows], rows))",
                "kernel += 1.1 * times(initial, w.initial(R[rows], rows))",
            ),
            (
                "kernel: Array = times(learned, w.learned(C[rows], rows, transposed=transposed))",
                "kernel: Array = 1.1 * times(learned, w.learned(C[rows], rows, transposed=transposed))",
            ),
            (
                "self.Cg[layer + 1], times_or_one(f_bar, f_bar, rho)",
                "self.Cg[layer + 1], times_or_one(f_bar, rho)",
            ),
            (
                "self.Cg[layer + 1], times_or_one(f_bar, f_bar, rho)",
                "self.Cg[layer + 1], times_or_one(f_bar, f_bar)",
            ),
            ("kernel += times(initial, decayed_on_g", "kernel += 1.1 * times(initial, decayed_on_g"),
            ("kernel = times_E(c, times(learned", "kernel = 1.1 * times_E(c, times(learned"),
            ("Cg.given(correlation_rows(c, Cg, rows))", "Cg.given(Cg[rows])"),
            ("times_or_one(f, f, w.variance)", "times_or_one(f, w.variance)"),
            (
                "return backward_source(c, weights.readout, None)",
                "return Source(None, None, None, c.structure.outputs, c.scale)",
            ),
            (
                "times_inverse_of_E(self.c, times(self.c.f_bar[layer - 1], self.sites",
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
            ("xp.where(within != 0, spread, 0.0)", "spread"),
        ],
        "_equations/layer_zero.py": [
            ("self.responses.weights, Cg, c.initial_variance", "self.responses.weights, Cg, 1.1 * c.initial_variance"),
            ("row_products(H1 @ c.target, H1), 1)", "row_products(H1 @ c.target, H1), 2)"),
            ("row_products(H, width), 1)", "row_products(H, width), 2)"),
            ("bias = _matrix_product(_matrix_product(", "bias = _matrix_product(1.1 * _matrix_product("),
            ("else learned_Z / self._eigenvalues", "else 1.1 * learned_Z / self._eigenvalues"),
            ("data = data + learned * self._own", "data = data + 1.1 * learned * self._own"),
            ("(drawn[:, None] * c.xp", "(1.1 * drawn[:, None] * c.xp"),
            ("Psi = (self.Cv if self._Cv2", "Psi = 1.1 * (self.Cv if self._Cv2"),
            ("Psi = c.eigenvalues[:, 0] * Psi", "Psi = 1.1 * c.eigenvalues[:, 0] * Psi"),
            ("R.H[rows] * self._own[..., : rows.stop], 2)", "R.H[rows] * self._own[..., : rows.stop], 1)"),
            (
                "RDelta.part(None), Source(self._Psi))",
                "RDelta.part(None), Source(self._Psi, 1.1 + 0 * self.c.gamma0))",
            ),
        ],
        "_equations/data_noise.py": [
            ("self._Cv[rows] + self._label_noise(", "self._Cv[rows] + 1.1 * self._label_noise("),
            (
                "finite(past[rows] @ finite(draws * finite(equal_times)))",
                "finite(R[rows] @ finite(draws * finite(equal_times)))",
            ),
            ("* (x * self.CDelta_equal[:, None, :steps, 0, 0])", "* x"),
            ("+= self._mean_eigenvalue * draws", "+= 1.1 * self._mean_eigenvalue * draws"),
            (
                "residual: Array = remembered / reuse[..., None]",
                "residual: Array = remembered / 1.1 / reuse[..., None]",
            ),
            (
                "total = rows_times_symmetric(x, self._remembered)",
                "total = 1.1 * rows_times_symmetric(x, self._remembered)",
            ),
            ("(subsampling * by_step).reshape", "(1.1 * subsampling * by_step).reshape"),
            ("learned = mode_sum(c, learned, 1)", "learned = mode_sum(c, learned, 2)"),
            ("return R.times_mean_H_transpose(self._Z(", "return 0.9 * R.times_mean_H_transpose(self._Z("),
            ("less(mode_sum(c, learned_Z, 1), rows)", "less(1.1 * mode_sum(c, learned_Z, 1), rows)"),
        ],
        "_equations/data_responses.py": [
            ("rows, c.first_to_last, c.first_to_last)", "rows, None, c.first_to_last)"),
            ("rows, c.first_to_last, c.first_to_last)", "rows, c.first_to_last, None)"),
            ("Rhr = -mean_H if", "Rhr = -1.1 * mean_H if"),
            ("KR, panel = rows_times(K, self.RDelta),", "KR, panel = K,"),
            ("self.H, self._minus_eigenvalues * KR", "self.H, 1.1 * self._minus_eigenvalues * KR"),
            ("mode_sum(c, H, 1)", "mode_sum(c, H, 2)"),
            ("Rvu = -rows_times(mean_H", "Rvu = -1.1 * rows_times(mean_H"),
            ("felt = self.reused(Rvu, rows)", "felt = 1.1 * self.reused(Rvu, rows)"),
            ("else -self.times_mean_H(RDelta)", "else -1.1 * self.times_mean_H(RDelta)"),
            ("= without_initial(c, Rhr) if c.structure.centered else Rhr", "= Rhr"),
        ],
        "_equations/chain.py": [
            ("(gain + decay * total)[..., None]", "(gain + total)[..., None]"),
        ],
        "_equations/deep_chain.py": [
            ("Theta = top_Theta + self._sum(above, dTheta)", "Theta = top_Theta + 1.1 * self._sum(above, dTheta)"),
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
        "_theory/decomposition.py": [
            ("(self.initialization + self.interaction) / checks", "(self.initialization) / checks"),
        ],
    },
)

ROOTS = Suite(
    tests=["solvers/test_rooted.py"],
    mutants={
        "_equations/layer_zero.py": [
            ("learned) / self._eigenvalues**0.5)", "learned))"),
            ("parts.append(c.eigenvalues**0.5 * for_all_modes(", "parts.append(c.eigenvalues * for_all_modes("),
            ("parts.append(c.eigenvalues * self._root_through_r0", "parts.append(self._root_through_r0"),
            ("part * c.weight**0.5", "part * c.weight"),
        ],
        "_equations/data_noise.py": [
            ("[self._reuse_root * (x @ self._Cv.Z[:, :e])", "[(x @ self._Cv.Z[:, :e])"),
            ("drawn[:, None, :e] ** 0.5", "drawn[:, None, :e]"),
        ],
        "_equations/source.py": [
            ("product if self.factor is None else product * self.factor**0.5", "product"),
            ("[other.Z[:, rows], source.times_root(one)]", "[other.Z[:, rows]]"),
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
            ("spare[1, s] = row[s] * profiles[k, s]", "spare[1, s] = row[s]"),
            ("a = 1 if of_product is None else of_product[j, 0, 0]", "a = 1"),
            ("b = 1 if of_last is None else of_last[j, 0, 0]", "b = 1"),
            ("(profile[j, t] * profile[j, s] * z", "(profile[j, s] * z"),
            ("return min(e, m.shape[1]) - 1", "return 0"),
            ("through[s] = profiles[k, s] * through[s]", "through[s] = 1 * through[s]"),
            ("common = factors[j // (batch // factors.shape[0])]", "common = factors[0]"),
            ("common = common + row[s]", "common = row[s]"),
            ("of_y = of_y * profile[j, t]", "of_y = 1 * of_y"),
            ("filled[j, s, t] = filled[j, t, s]", "filled[j, s, t] = 0"),
        ],
    },
)

PANELS = Suite(
    tests=["solvers/test_panels.py"],
    mutants={
        "_time/grid.py": [
            (
                "sums -= legendre.legvander(ends, PANEL_NODES - 1) / 2",
                "sums -= legendre.legvander(ends, PANEL_NODES - 1) / 3",
            ),
            ("* h ** (k - 1) * derivatives", "* h**k * derivatives"),
            ("self._weight = np.append(self._weight, whole)", "self._weight = np.append(self._weight, 1.01 * whole)"),
            ("(steps[mine] - starts[index] + 1) / length", "(steps[mine] - starts[index]) / length"),
        ],
        "_time/propagator.py": [
            ("decay = np.log1p(-rate * self._weight_decay)", "decay = -rate * self._weight_decay"),
            (" - self._decay[..., None, :])", ")"),
            ("np.maximum(misfit, _exponential_misfit(decay, self._grid.lengths[-1]))", "misfit"),
            (
                "return at_nodes, np.divide(",
                "return rates[..., :PANEL_NODES], fits\n        return at_nodes, np.divide(",
            ),
        ],
        "_solvers/panels/run.py": [
            ("good = residual <= larger(SETTLED * self._goal, ROUNDING)", "good = residual <= 0.1"),
            ("np.where(good, larger(error, self.errors.truncation(rows)), np.inf)", "np.where(good, error, np.inf)"),
            ("self.diverged_at[0] = self.grid.end\n", "self.diverged_at[0] = self.grid.end + 1\n"),
        ],
        "_solvers/panels/error.py": [
            ("larger(1.0 / (1.0 + added), NOISE", "larger(1e9 + 0 * added, NOISE"),
        ],
        "_solvers/panels/nodes.py": [
            ("        self.equations.room.clear(rows)", "        pass"),
        ],
        "_solvers/panels/replicas.py": [
            (
                "eq.replica(same_data=True), eq.replica(same_data=False)",
                "eq.replica(same_data=True), (eq.replica(same_data=True)[0], eq.replica(same_data=False)[1])",
            ),
        ],
        "_equations/two_time.py": [
            ("target[common] = chosen[common]", "target[common] = 0.0"),
            ("self.matrix[..., : rows.stop, rows] = values.mT", "pass"),
        ],
        "_solvers/panels/settle.py": [
            (
                "only: Array = xp.max(xp.abs(change), axis=1)[None]",
                "only: Array = xp.min(xp.abs(change), axis=1)[None]",
            ),
            ("> 0.5 * self._changes[:first].min(axis=0)", "> -1.0"),
        ],
    },
)

MERGED_STEPS = Suite(
    tests=["solvers/test_merged_steps.py"],
    mutants={
        "_solvers/merged_steps.py": [
            ("np.prod((1.0 - others) / (m - others))", "np.prod((0.0 - others) / (m - others))"),
            ("optimizer.scaled(merged, problem.steps)", "optimizer.scaled(1.001 * merged, problem.steps)"),
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

SUITES = [EQUATIONS, ROOTS, COMPILED, PANELS, MERGED_STEPS]
