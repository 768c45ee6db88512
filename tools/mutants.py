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
            ("force = -weight_decay * weight", "force = -1.1 * weight_decay * weight"),
            ("velocity = momentum * velocity + force", "velocity = 1.1 * momentum * velocity + force"),
            ("(momentum * velocity + force if nesterov", "(velocity + force if nesterov"),
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
            ('"sigma2": data.noise**2', '"sigma2": data.noise'),
            (
                "f = np.array([1.0] + [network.branch_factor] * (len(nu) - 1))",
                "f = np.array([network.branch_factor] * len(nu))",
            ),
            ('"k": f[::-1]', '"k": f'),
        ],
        "_problem/network.py": [
            ("return self.branch / math.sqrt(self.depth) if", "return self.branch / self.depth if"),
            ("return 1.0 / root if", "return root if"),
        ],
        "_problem/sampling.py": [
            ("return (1.0 - self.keep) / self.batch", "return 1.0 / self.batch"),
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
            ("(_product(k, rho, f), _product(k, k, rho))", "(_product(k, rho), _product(k, k, rho))"),
            ("(_product(k, rho, f), _product(k, k, rho))", "(_product(k, f), _product(k, k, rho))"),
            ("(_product(k, rho, f), _product(k, k, rho))", "(_product(k, rho, f), _product(k, rho))"),
            ("(_product(k, rho, f), _product(k, k, rho))", "(_product(k, rho, f), _product(k, k))"),
            ("times(f, f, c.whole_gamma0))", "times(f, c.whole_gamma0))"),
            ("(c.feedback, *c.k)", "(None, *c.k)"),
            ("kernel += times(initial, w.initial(R, rows))", "kernel += 1.1 * times(initial, w.initial(R, rows))"),
            (
                "kernel: Array = times(learned, w.learned(C, rows))",
                "kernel: Array = 1.1 * times(learned, w.learned(C, rows))",
            ),
            (
                "self.Cg[layer + 1], _product(k, k, rho)",
                "self.Cg[layer + 1], _product(k, rho)",
            ),
            (
                "self.Cg[layer + 1], _product(k, k, rho)",
                "self.Cg[layer + 1], _product(k, k)",
            ),
            ("kernel += times(initial, decayed_on_g", "kernel += 1.1 * times(initial, decayed_on_g"),
            ("kernel = times_E(c, times(learned", "kernel = 1.1 * times_E(c, times(learned"),
            ("_weight_kernel(w, R, correlation_rows(c, Cg, rows),", "_weight_kernel(w, R, Cg[rows],"),
            ("_product(f, f)", "f"),
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
            ("return x * _spread(dd(self.d, rows), x) if self.decays else x", "return x"),
        ],
        "_equations/layer_zero.py": [
            ("past @ draws @ past.T", "R @ draws @ R.T"),
            ("rows, c.first_to_last, c.first_to_last)", "rows, None, c.first_to_last)"),
            ("rows, c.first_to_last, c.first_to_last)", "rows, c.first_to_last, None)"),
            ("Rhr = -self.mean_H(rows)", "Rhr = -1.1 * self.mean_H(rows)"),
            ("KR, panel = rows_times(K, self.RDelta),", "KR, panel = K,"),
            ("self.H, -c.eigenvalues * KR", "self.H, -1.1 * c.eigenvalues * KR"),
            ("mode_sum(c, H, 1)", "mode_sum(c, H, 2)"),
            ("Rvu = -rows_times(self.mean_H(rows)", "Rvu = -1.1 * rows_times(self.mean_H(rows)"),
            ("self.RDelta, c.reuse * Rvu", "self.RDelta, 1.1 * c.reuse * Rvu"),
            ("Rhr = -self.times_mean_H(RDelta)", "Rhr = -1.1 * self.times_mean_H(RDelta)"),
            ("= without_initial(c, Rhr) if c.structure.centered else Rhr", "= Rhr"),
            ("self.responses.weights, Cg, c.initial_variance", "self.responses.weights, Cg, 1.1 * c.initial_variance"),
            ("row_products(H1 @ c.target, H1), 1)", "row_products(H1 @ c.target, H1), 2)"),
            ("row_products(H, width), 1)", "row_products(H, width), 2)"),
            ("bias = R.H1[..., rows, :] @ c.target", "bias = 1.1 * R.H1[..., rows, :] @ c.target"),
            ("data = for_all_modes(self._times_Z, D)", "data = 1.1 * for_all_modes(self._times_Z, D)"),
            ("data = data + D * self._own", "data = data + 1.1 * D * self._own"),
            ("c.subsampling[:, None] * Cv[..., rows])", "1.1 * c.subsampling[:, None] * Cv[..., rows])"),
            ("@ F.mT / c.reuse", "@ F.mT"),
            ("= c.reuse * (rows_times_symmetric(", "= c.reuse * (1.1 * rows_times_symmetric("),
            ("errors: Array = self.Cv[rows] + noise", "errors: Array = self.Cv[rows] + 1.1 * noise"),
            ("noise = over_time(x, outputs) @", "noise = 1.1 * over_time(x, outputs) @"),
            ("= self.c.subsampling * by_step", "= 1.1 * self.c.subsampling * by_step"),
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
            ("xp.kron(a, identity(self._outputs, a))", "xp.kron(a, xp.ones((self._outputs, self._outputs)))"),
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
            ("self._scale * self.coefficients[0, 1 :", "self.coefficients[0, 1 :"),
            ("float(self.coefficients[0, 0]) * (near", "(near"),
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
            ("samples if sampling.keep == 1.0 else None", "samples"),
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

SIMULATOR = Suite(
    tests=["experiment/test_simulate.py", "experiment/test_spectrum_networks.py"],
    mutants={
        "_experiment/network.py": [
            ("(before_readout.shape[-2] * self.gamma0)", "(before_readout.shape[-1] * self.gamma0)"),
            ("self.weights[0] @ h_0 / math.sqrt(self.unit)", "self.weights[0] @ h_0 / self.unit"),
            ("scales = [1.0 / math.sqrt(self.unit),", "scales = [1.1 / math.sqrt(self.unit),"),
            ("beta * _fan_in_scale(weight) for", "_fan_in_scale(weight) for"),
            ("Outer(self.gamma0, h[-1],", "Outer(1.0, h[-1],"),
            ("stream + self.beta * through", "stream + through"),
            ("return 1.0 / math.sqrt(weight.shape[-1])", "return 1.0 / math.sqrt(weight.shape[-2])"),
        ],
        "_experiment/descent.py": [
            ("add_outer(momentum, gradient, keep=mu)", "add_outer(momentum, gradient, keep=1.0)"),
            ("_add(momentum, weight, -decay)", "_add(momentum, weight, -1.1 * decay)"),
            ("_add(weight, momentum, lr * mu)", "_add(weight, momentum, lr)"),
            (
                "lr, keep=1.0 - lr * decay)\n            return",
                "lr, keep=1.0 - decay)\n            return",
            ),
            ("elif keep == 1.0 and outer.left", "elif outer.left"),
        ],
        "_experiment/streams.py": [
            ("felt: Array = self.deviation * error", "felt: Array = 1.0 * error"),
            ("+ error.shape[-1] * noise**2", "+ noise**2"),
            ("/ math.sqrt(self.unit) + label_noise", "/ math.sqrt(self.unit)"),
            ("(math.sqrt(self.unit) / standard.shape[-2])", "(math.sqrt(self.unit) / standard.shape[-1])"),
            ("h_0 = self._inputs.deviation * self._inputs.felt(error)", "h_0 = self._inputs.felt(error)"),
            ("< self._keep) / self._keep", "< self._keep)"),
            ("every: Array = error_correlation + at_all_times(gram, steps)", "every: Array = error_correlation"),
            ("return standard, self._noise * label_noise", "return standard, label_noise"),
            ("math.sqrt(dim) * directions @ roots", "directions @ roots"),
            ("* np.sqrt(np.maximum(values, 0.0))", "* np.maximum(values, 0.0)"),
            (
                "mean: Array = _sum_of_squares(residual) / samples",
                "mean: Array = _sum_of_squares(residual) / (samples + 1)",
            ),
        ],
        "_experiment/train.py": [
            ("subtracted = function if problem.network.centered else 0.0", "subtracted = 0.0"),
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
            ("keep = steps * self.keep / (1.0 - self.keep + steps * self.keep)", "keep = min(steps * self.keep, 1.0)"),
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

MUTANTS = [
    Mutant(suite.tests, file, right, wrong)
    for suite in (EQUATIONS, PANELS, NETWORKS, SIMULATOR, MERGED_STEPS, COMPILED)
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
