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

ROOT = Path(__file__).parents[1]
TESTS = ["test_dense.py", "test_facts.py", "test_residual.py", "test_infinite_depth.py", "test_small_batch.py"]

# (file, text that stands there once, wrong text in its place)
MUTANTS = [
    ("_propagator.py", "force = -weight_decay * weight", "force = -1.1 * weight_decay * weight"),
    ("_propagator.py", "velocity = momentum * velocity + force", "velocity = 1.1 * momentum * velocity + force"),
    ("_propagator.py", "(momentum * velocity + force if nesterov", "(velocity + force if nesterov"),
    (
        "_coefficients.py",
        "0.0 if infinite else 1.0 / (nu[-1] * network.gamma0)",
        "0.0 if infinite else 1.0 / (nu[0] * network.gamma0)",
    ),
    ("_coefficients.py", '"initial_variance": first_to_last * ', '"initial_variance": '),
    ("_coefficients.py", "1.0 if infinite else nu[0] / nu[-1]", "1.0 if infinite else nu[-1] / nu[0]"),
    ("_coefficients.py", "if infinite else nu[1:] / nu[:-1]", "if infinite else nu[:-1] / nu[1:]"),
    ("_coefficients.py", '"sigma2": data.noise**2', '"sigma2": data.noise'),
    ("_coefficients.py", "f = np.array([1.0] + [beta] * (len(nu) - 1))", "f = np.array([beta] * len(nu))"),
    ("_coefficients.py", '"k": f[::-1]', '"k": f'),
    ("_network.py", "return self.branch / math.sqrt(self.depth) if", "return self.branch / self.depth if"),
    ("_network.py", "return 1.0 / self.richness**2", "return 1.0 / self.richness"),
    ("_sampling.py", "return (1.0 - self.keep) / self.batch", "return 1.0 / self.batch"),
    ("_closure/site.py", "to_r *= self.gamma0", "to_r *= 1.0"),
    ("_closure/site.py", "to_u *= self.gamma0", "to_u *= 1.0"),
    ("_closure/site.py", "add_identity(to_r, rows)", "pass"),
    ("_closure/site.py", "add_identity(to_u, rows)", "pass"),
    ("_closure/site.py", "self._gamma0_squared * u(x, e)", "self.gamma0 * u(x, e)"),
    (
        "_closure/hidden.py",
        "B = decayed(c, Rgu_hat, rows) + times(k, c.a[:, rows, :e])",
        "B = decayed(c, Rgu_hat, rows) + 1.1 * times(k, c.a[:, rows, :e])",
    ),
    ("_closure/hidden.py", "times(k, c.a[:, rows, :e]) * Cg", "c.a[:, rows, :e] * Cg"),
    ("_closure/hidden.py", "B = decayed(c, Rgu_hat, rows) +", "B = 1.1 * decayed(c, Rgu_hat, rows) +"),
    ("_closure/hidden.py", "return times(k, c.rho[layer - 1], B)", "return times(k, B)"),
    ("_closure/hidden.py", "return times(k, c.rho[layer - 1], B)", "return times(c.rho[layer - 1], B)"),
    ("_closure/hidden.py", "A = decayed(c, Rhr, rows) +", "A = 1.1 * decayed(c, Rhr, rows) +"),
    ("_closure/hidden.py", "+ times(f, c.gamma0) * c.a[", "+ times(f, c.a[:, rows, :e] ** 0) * c.a["),
    ("_closure/hidden.py", "+ times(f, c.gamma0) * c.a[", "+ c.gamma0 * c.a["),
    ("_closure/hidden.py", "return times(f, A)", "return A"),
    ("_closure/hidden.py", "return dd(c, rows) * x if c.structure.decays else x", "return x"),
    ("_closure/hidden.py", "c.feedback * Rhr_data[", "Rhr_data["),
    ("_closure/hidden.py", "return times(self.c.k[layer - 1], self.sites", "return times(None, self.sites"),
    ("_closure/hidden.py", "return times(self.c.f[layer - 1], self.sites", "return times(None, self.sites"),
    (
        "_closure/hidden.py",
        "times(k, c.xp.sqrt(rho))",
        "times(k, rho)",
    ),
    ("_closure/hidden.py", "weighted(self.Ch[layer - 1], self.c, self.c.f[layer - 1])", "plain(self.Ch[layer - 1])"),
    ("_closure/hidden.py", "w = times(c.d[:, None, :e], factor)", "w = c.d[:, None, :e]"),
    ("_closure/hidden.py", "Q = B + self.right", "Q = B + 0.9 * self.right"),
    ("_closure/hidden.py", "Y = A + self.left", "Y = A + 0.9 * self.left"),
    (
        "_closure/hidden.py",
        "above = self._Gamma[layer + 1][:, rows, :e] + times(k, k,",
        "above = self._Gamma[layer + 1][:, rows, :e] + times(k,",
    ),
    (
        "_closure/hidden.py",
        "below = self._cov_a[layer - 1][:, rows, :e] + times(f, f,",
        "below = self._cov_a[layer - 1][:, rows, :e] + times(f,",
    ),
    ("_closure/hidden.py", "* c.xp.tile(identity(outputs, c.d), (1, rows.stop // outputs))", ""),
    (
        "_closure/hidden.py",
        "return times(c.xp.tile(over_time, (e // outputs,)), w)",
        "return times(c.xp.tile(over_time, (e // outputs,)))",
    ),
    ("_closure/data.py", "K = c.first_to_last * (decayed", "K = (decayed"),
    ("_closure/data.py", "(decayed(c, Rgu_hat, rows) + c.a", "(decayed(c, Rgu_hat, rows) + 1.1 * c.a"),
    ("_closure/data.py", "KR = rows_times(K, self.RDelta, e)", "KR = K"),
    ("_closure/data.py", "resolvent_rows(-c.eigenvalues * KR", "resolvent_rows(-1.1 * c.eigenvalues * KR"),
    ("_closure/data.py", "resolvent_rows(c.reuse * Rvu", "resolvent_rows(1.1 * c.reuse * Rvu"),
    ("_closure/data.py", "Rhr = -self._times_moment(RDelta, 1, e)", "Rhr = -1.1 * self._times_moment(RDelta, 1, e)"),
    ("_closure/data.py", "            subtract_initial(Rhr, outputs)", "            pass"),
    (
        "_closure/data.py",
        "rows_times(self._times_moment(RDelta, 2, e), self.K, e)",
        "1.1 * rows_times(self._times_moment(RDelta, 2, e), self.K, e)",
    ),
    (
        "_closure/data.py",
        "scaled: Array = c.initial_variance[:, None] * y",
        "scaled: Array = 1.1 * c.initial_variance[:, None] * y",
    ),
    (
        "_closure/data.py",
        "source = c.eigenvalues * for_all_modes",
        "source = 1.1 * c.eigenvalues * for_all_modes",
    ),
    ("_closure/data.py", "bias = R.H1[..., rows, :] @ c.target", "bias = 1.1 * R.H1[..., rows, :] @ c.target"),
    (
        "_closure/data.py",
        "source = c.reuse * (F @ self.Cv[:, :e, :e] +",
        "source = c.reuse * (1.1 * F @ self.Cv[:, :e, :e] +",
    ),
    (
        "_closure/data.py",
        "source += c.subsampling * self._past_draws(F, e)",
        "source += 1.1 * c.subsampling * self._past_draws(F, e)",
    ),
    (
        "_closure/data.py",
        "noise[..., rows] += c.subsampling * residual",
        "noise[..., rows] += 1.1 * c.subsampling * residual",
    ),
    ("_closure/data.py", "residual = noise[..., rows] / c.reuse", "residual = noise[..., rows]"),
    ("_closure/data.py", "+ trace * noise -", "+ 1.1 * trace * noise -"),
    ("_closure/data.py", "- rows_times_transpose(noise, R.J, e)", "- 0.9 * rows_times_transpose(noise, R.J, e)"),
    ("_closure/data.py", "Ch = scale * rows_times_transpose(", "Ch = 1.1 * scale * rows_times_transpose("),
    ("_closure/data.py", "source += HK * self._own", "source += 1.1 * HK * self._own"),
    (
        "_closure/data.py",
        "own = c.subsampling[:, None] * c.eigenvalues**2",
        "own = c.subsampling[:, None] * c.eigenvalues",
    ),
    ("_closure/data.py", "mode_sum(c, F * self._own[..., :e], 0)", "mode_sum(c, 0.9 * F * self._own[..., :e], 0)"),
    ("_closure/chain.py", "(gain + decay * total)[..., None]", "(gain + total)[..., None]"),
    (
        "_closure/depth.py",
        "D = top_D + self._sum(above, dD)",
        "D = top_D + 1.1 * self._sum(above, dD)",
    ),
    ("_closure/depth.py", "dY = self.A[..., rows, :e] +", "dY = 1.1 * self.A[..., rows, :e] +"),
    ("_closure/depth.py", "dQ = self.B[..., rows, :e] +", "dQ = 1.1 * self.B[..., rows, :e] +"),
    ("_closure/depth.py", "mixed = mixed + self._edge *", "mixed = mixed + 0.9 * self._edge *"),
    ("_closure/depth.py", "through = self._gamma0**2 *", "through = self._gamma0 *"),
    ("_closure/depth.py", "incoming + self._edge * rows_times", "incoming + 0.9 * self._edge * rows_times"),
    ("_dense.py", "same_data = DataCovariances(self.data)", "same_data = DataCovariances(self.data, same_data=False)"),
    ("_solution.py", "RZ - RZ.T + Z)", "RZ - RZ.T)"),
    ("_solution.py", "(self.initialization + self.interaction) / members", "(self.initialization) / members"),
]


# The same for panels, with the tests of their own.
PANEL_TESTS = ["test_panels.py"]
PANEL_MUTANTS = [
    ("_grid.py", "sums -= legendre.legvander(ends, NODES - 1) / 2", "sums -= legendre.legvander(ends, NODES - 1) / 3"),
    ("_grid.py", "* h ** (k - 1) * derivatives", "* h**k * derivatives"),
    (
        "_grid.py",
        "self._weight = np.append(self._weight, whole)",
        "self._weight = np.append(self._weight, 1.01 * whole)",
    ),
    ("_grid.py", "(steps[mine] - starts[index] + 1) / length", "(steps[mine] - starts[index]) / length"),
    ("_propagator.py", "decay = np.log1p(-rate * self._weight_decay)", "decay = -rate * self._weight_decay"),
    ("_propagator.py", "- self._log_d - self._decay)", "- self._log_d)"),
    ("_propagator.py", "max(misfit, _exponential_misfit(decay, self._grid.lengths[-1]))", "misfit"),
    (
        "_propagator.py",
        "return legendre.legval(radau_nodes(), coefficients), float(misfit)",
        "return rates[:NODES], 0.0",
    ),
    ("_panels.py", "np.kron(a, np.eye(outputs))", "np.kron(a, np.ones((outputs, outputs)))"),
    ("_panels.py", "good = residual <= max(0.1 * self.tolerance, _ROUNDING)", "good = residual <= 0.1"),
    ("_panels.py", "error = max(error, self._truncation(rows)) if good", "error = error if good"),
    ("_panels.py", "LOSS_FLOOR if index < losses else 1.0 / (1.0 + added)", "LOSS_FLOOR if index < losses else 1e9"),
    ("_panels.py", "            _clear(matrix, rows)", "            pass"),
    ("_panels.py", "new[common] = old[common]", "new[common] = 0.0"),
    ("_panels.py", "self.diverged_at[0] = self.grid.end\n", "self.diverged_at[0] = self.grid.end + 1\n"),
    ("_panels.py", "same_init = DataCovariances(eq.data, same_data=False)", "same_init = DataCovariances(eq.data)"),
    ("_closure/settle.py", "float(np.abs(new - z).max())", "float(np.abs(new - z).min())"),
    (
        "_closure/settle.py",
        "write_symmetric(self.matrix, values, rows)",
        "self.matrix[..., rows, : rows.stop] = values",
    ),
    ("_closure/settle.py", "min(recent) > 0.5 * min(before)", "True"),
]


def survives(mutant: tuple[str, str, str]) -> bool:
    """Whether the tests pass although the package is wrong."""
    file, right, wrong = mutant
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src")
        target = Path(folder) / "src" / "deeplinear" / file
        text = target.read_text()
        if right not in text:
            raise SystemExit(f"{file} has no line with: {right}")
        target.write_text(text.replace(right, wrong, 1))
        tests = [str(ROOT / "tests" / name) for name in (PANEL_TESTS if mutant in PANEL_MUTANTS else TESTS)]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            str(ROOT / "pyproject.toml"),
        ]
        environment = {"PYTHONPATH": f"{folder}/src", "PATH": "/usr/bin:/bin", "HYPOTHESIS_STORAGE_DIRECTORY": folder}
        return subprocess.run([*command, *tests], env=environment, cwd=folder, capture_output=True).returncode == 0


def main() -> int:
    """Run the chosen mutants, or all."""
    words = sys.argv[1:]
    chosen = [
        mutant for mutant in MUTANTS + PANEL_MUTANTS if not words or any(word in " ".join(mutant) for word in words)
    ]
    survivors = 0
    with ThreadPoolExecutor(2) as pool:
        for mutant, alive in zip(chosen, pool.map(survives, chosen), strict=True):
            survivors += alive
            print("SURVIVED" if alive else "caught  ", mutant[0], "|", mutant[1], "->", mutant[2], flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
