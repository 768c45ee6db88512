"""Wrong lines for update rules, phases, averages and the geometry of the loss."""

from mutants_suite import Suite

RULES = Suite(
    tests=["solvers/test_any_program.py", "equations/test_aside.py"],
    mutants={
        "_equations/training.py": [
            ('still = Numbers(self.mask(("input", "readout")))', 'still = Numbers(self.mask(("hidden",)))'),
            ("if self._planned != evaluation.step:", "if True:"),
            ("return step - self.stretch.start + self.stretch.since", "return step - self.stretch.start"),
            (
                "        if not evaluation.rule.since:\n            self._kept, self._numbers = {}, {}",
                "        if False:\n            pass",
            ),
        ],
        "_equations/forms.py": [
            ("shift = shift + number * part.base if", "shift = shift if"),
            ("numbers[..., 0] += form.base - 1.0", "pass"),
            ("total[..., 2 + row : 3 + row] += number", "total[..., 2 + row : 3 + row] = number"),
        ],
        "_equations/aside.py": [
            ("means = shares[steps[0] : end, :end]", "means = shares[: end - steps[0], :end]"),
            ("left = evaluation.rule.stop - evaluation.step - 1", "left = evaluation.rule.stop - evaluation.step"),
            ("(is_last or self.together == 1)", "(self.together == 1)"),
        ],
        "_equations/two_time.py": [
            ("along[..., rows.start // per_time : rows.stop // per_time] = 0.0", "pass"),
        ],
        "_solvers/dense.py": [
            ("if aside.steps and eq.grows(evaluation.row):", "if False:"),
            ("eq.room.clear(row_set(eq.c, evaluation.row))", "pass"),
            ("            aside.together = 1\n", ""),
        ],
        "_equations/orthogonal.py": [
            ("V = V @ q @ q", "V = V @ q"),
            ("_C * (V @ V)", "_C * V"),
            ("        part *= gain\n", "        part *= 1.0\n"),
            ("+= rate * constant / norm * m", "+= rate * constant * m"),
            ("(U * (w / square))", "(U * w)"),
        ],
        "_equations/matrix_averages.py": [
            ("total *= self._average.carried(self._step)", "pass"),
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
        "_equations/data_noise.py": [
            ("sigma[:, rows, None] * sigma[:, None, columns] * within", "sigma[:, rows, None] ** 2 * within"),
            ("e = second - second[..., first] @ before", "e = second"),
            ("by_step[:, :, 1:] += parts[:, :, :-1] @ before.mT", "pass"),
            ("by_step[:, :, :-1] += parts[:, :, 1:] @ before", "pass"),
            ("equal[steps[1:], :, steps[:-1], :] = before[1:]", "pass"),
        ],
        "_equations/data_responses.py": [
            ("*= 1.0 + again[:, None, None]", "*= 1.0"),
        ],
        "_equations/system.py": [
            ("- bias(equal.mean) + bias(equal.mean + shift)", "+ bias(equal.mean + shift)"),
            ("kernel=False)\n        self.room.clear(rows)", "kernel=False)"),
        ],
        "_problem/network.py": [
            ("else 2 * power - 1)", "else power)"),
            ("return np.array([1.0, *widths])", "return np.array([*widths, 1.0])"),
        ],
    },
)

TEXTS = Suite(
    tests=["rules/test_record.py", "rules/test_papers.py"],
    mutants={
        "_rules/descent.py": [
            ("minimum(1.0, self.clip / norm)", "self.clip / norm"),
            ("rule.layer_decay * rule.weight_decay * weights", "rule.weight_decay * weights"),
            ("velocity = rule.momentum * velocity + pull\n", "velocity = velocity + pull\n"),
            ("weights + rule.layer_lr * rule.lr * velocity", "weights + rule.lr * velocity"),
        ],
        "_rules/normalized.py": [
            ("(1.0 - self.beta2 ** (t + 1))", "1.0"),
            ("(1.0 - self.beta2) * square", "square"),
            ("self.fan_in * gradient.norms2()", "gradient.norms2()"),
        ],
        "_rules/muon.py": [
            ("            momentum = self.momentum * momentum + own\n", "            pass\n"),
        ],
        "_rules/sam.py": [("weights - self.rho", "weights + self.rho")],
        "_rules/schedule_free.py": [
            ("(1.0 - self.beta) * (fast - weights)", "self.beta * (fast - weights)"),
            ("1.0 / (t + 2)", "1.0 / (t + 1)"),
        ],
    },
)

PROGRAMS = Suite(
    tests=[f"experiment/test_{name}.py" for name in ("update_rules", "phases", "program_methods")],
    mutants={
        "_experiment/steps.py": [
            ("each.shape[-2] ** 0.5 * orthogonal", "each.shape[-1] ** 0.5 * orthogonal"),
            ("            _add(weight, each, -number)", "            pass"),
            ("if part is not None and not others:", "if part is not None:"),
            ("keep if index == 0 else 1.0", "keep"),
        ],
        "_problem/network.py": [
            ("power - 1 if own_size", "power - 0.5 if own_size"),
        ],
        "_problem/problem.py": [
            ("rates = sizes = fan_ins / fan_ins[-1]", "rates = sizes = fan_ins"),
            ("np.sqrt(fan_ins / np.append(fan_ins[1:], fan_ins[-1]))", "np.sqrt(fan_ins / fan_ins[-1])"),
        ],
        "_experiment/network.py": [
            ("squares = [outer.square / width for", "squares = [outer.square for"),
            ("            weight *= scale\n", "            pass\n"),
        ],
        "_experiment/averages.py": [
            ("average.share(t), average.carried(t)", "average.carried(t), average.carried(t)"),
            ("            self._change(self._inside.popleft(), -1.0)", "            self._inside.popleft()"),
        ],
        "_experiment/training.py": [
            ("if not stage.since:", "if True:"),
            ("rule.begin(t - stage.start + stage.since)", "rule.begin(t - stage.start)"),
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
    tests=[
        "geometry/test_sharpness.py",
        "geometry/test_lowest.py",
        "geometry/test_landscape.py",
        "geometry/test_weight_spectra.py",
    ],
    mutants={
        "_geometry/operators.py": [
            ("STENCIL = ((1, 2.0 / 3.0), (2, -1.0 / 12.0))", "STENCIL = ((1, 2.0 / 3.0), (2, 1.0 / 12.0))"),
            ("values[:, 1:] += self._rates[group] * direction", "values[:, 1:] += direction"),
            ("self._metric, self._rates), (", "self._metric, np.ones_like(self._rates)), ("),
            ("self._moves[1:-1] /= branch_rate", "self._moves[1:-1] /= 1.0"),
        ],
        "_geometry/rates.py": [
            ("2.0 * (1.0 + mu) / (1.0 + 2.0 * mu if", "2.0 / (1.0 + 2.0 * mu if"),
            ("lr *= rule.gains[largest] / factors[largest] if factors[largest] else 1.0", "pass"),
            ("factors[layer] = rule.gains[layer] * ratio", "factors[layer] = rule.gains[layer]"),
        ],
        "_geometry/spectrum.py": [
            ("((k + delta) ** -2 for k", "((k + delta) ** -1 for k"),
            ("np.pi / np.sqrt(2.0 * count) * residual", "0.0 * residual"),
            ("abs(found.value - (last + gap / 3.0))", "0.0"),
        ],
        "_geometry/weights.py": [
            ("uu = f.variance * f.C_h + f.B @ gu_tilde", "uu = f.variance * f.C_h + 0.0 * f.B @ gu_tilde"),
            ("hr_tilde = f.ratio * gu.T - f.C_h @ f.A.T", "hr_tilde = f.ratio * gu.T"),
            ("float(1.0 / (s - d2 * f.ratio * left))", "float(1.0 / (s - d2 * left))"),
            ("[d2 * g_right * self._R - s * above, self.inside]", "[d2 * g_left * self._R - s * above, self.inside]"),
            ("self._known = root * self._g.T @ gu", "self._known = self._g.T @ gu"),
        ],
        "_geometry/weight_spectra.py": [
            ("B=variance * _decayed(c, w, self._cut(R_h)),", "B=variance * self._cut(R_h),"),
            ("* branch * times_E(c, X.T[None])[0].T,", "* times_E(c, X.T[None])[0].T,"),
            ("* branch * times_E(c, X.T[None])[0].T,", "* branch * X,"),
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
            ("reuse=extended(c.reuse, 0.0 if fresh and s.reuses_data else None)", "reuse=extended(c.reuse, None)"),
        ],
        "_equations/layer_zero.py": [
            ("mixed = self.Ch.matrix[:, rows, : own.start] @ factors.mT", "continue"),
        ],
        "_equations/data_responses.py": [
            ("K[..., : own.start] += K[..., own] @ factors", "pass"),
        ],
    },
)

CONDENSED = Suite(
    tests=["time/test_history.py", "solvers/test_condensed.py"],
    mutants={
        "_time/history.py": [
            ("P = (L * old[:, None]).T / new[:, None]", "P = L.T / new[:, None]"),
            ("P * old / new[:, None],", "P / new[:, None],"),
            ("- L @ P)", "- 0.999 * L @ P)"),
            ("4.0 * (4.0 * n**2 - 1.0)", "4.0 * (4.0 * n**2 + 1.0)"),
            ("times - odd)", "times)"),
            ("np.asarray(steps) % 2 == 1", "np.asarray(steps) % 2 == 0"),
            (
                "not all(each.alternates or each.length == BLOCK_NODES",
                "not any(each.alternates or each.length == BLOCK_NODES",
            ),
        ],
        "_equations/two_time.py": [
            ("return how.moments", "return how.values"),
            ("mine.densities if is_density else mine.values", "mine.values"),
        ],
        "_equations/training.py": [
            ("for form in (self._weights, *self._kept.values())}", "for form in (self._weights,)}"),
            ("self._kept = {name: longer(form) for name, form in before._kept.items()}", "self._kept = {}"),
            ("numbers[..., : form.numbers.shape[-1]] = form.numbers", "numbers[..., 1] = 1.0"),
        ],
        "_equations/layer_zero.py": [
            ("size), is_density=True)", "size))"),
        ],
        "_solvers/condensed/pairs.py": [
            ("= basis / block.weights", "= basis"),
            ("(values if is_symmetric else moments)", "moments"),
            ("place + known[late] - start] = 1.0", "place + known[late] - start] = 0.9"),
        ],
        "_solvers/condensed/replicas.py": [
            ("(self._same_data, self._same_init)", "(self._same_init, self._same_data)"),
        ],
        "_solvers/condensed/run.py": [
            ("outputs=c.structure.outputs, is_density=True)", "outputs=c.structure.outputs)"),
            ("for index in range(len(self.blocks) - 3, 0, -1):", "for index in range(len(self.blocks) - 3, -1, -1):"),
            ("1.0 / whole)[0, :end]", "1.0 * whole)[0, :end]"),
            ("self._left() if self._may_come_back else None", "None"),
        ],
        "_solvers/condensed/remainder.py": [
            ("float(ratio.max(initial=0.0))", "1e-4 * float(ratio.max(initial=0.0))"),
            ("np.maximum(np.concatenate(norms), floor[last].min() * self._largest_sums)", "np.concatenate(norms)"),
            ("np.maximum(self._largest_sums, before._largest_sums)", "self._largest_sums"),
        ],
    },
)

SUITES = [CONDENSED, RULES, TEXTS, PROGRAMS, GEOMETRY]
