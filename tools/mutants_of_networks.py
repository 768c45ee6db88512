"""Wrong lines for real networks: those of the simulator, of PyTorch, and what is measured on them."""

from mutants_suite import Suite

NETWORKS = Suite(
    tests=["experiment/test_exact.py", "comparison/test_finite_size.py"],
    mutants={
        "_experiment/revealed.py": [
            ("far.known_images @ rest - far.known @ image", "far.known_images @ rest"),
            ("SPENT = 1e-13", "SPENT = 1e-3"),
            ("SPENT = 1e-13", "SPENT = 0.0"),
            ("self._scale * coefficients[:, 0, 1 :", "coefficients[:, 0, 1 :"),
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
            ("return None if chooses else outputs", "return None if False else outputs"),
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

SINGULAR_VALUES = Suite(
    tests=["experiment/test_curvature.py", "geometry/test_weight_spectra.py"],
    mutants={
        "_experiment/singular_values.py": [
            ("product = self._d * self._initial", "product = self._initial"),
            ("diagonal**2 + above**2", "diagonal**2"),
            ("(steps + 1) * len(self._coefficients)", "steps"),
            ("* self._network.fan_in(layer)\n        return found", "\n        return found"),
        ],
        "_experiment/revealed.py": [
            ("spaces[-1].reserve(basis.shape[-1])", "pass"),
            ("matrix._left.fill(left.known @ rows, left.known_images @ columns)", "pass"),
            ("product: Array = ends[0].mT @ (self._factors(coefficients) * ends[1])", "product = ends[0].mT @ ends[1]"),
            ("            used[~finite(used)] = 0.0\n", ""),
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

COORDINATES = Suite(
    tests=["comparison/test_coordinate_check.py"],
    mutants={
        "_comparison/coordinate_sizes.py": [
            ("network.branch_factor**2 if network.skip", "network.branch_factor if network.skip"),
            ("found.features[..., layer, -outputs:, :]  #", "found.features[..., layer + 1, -outputs:, :]  #"),
            ("scales[layer] * np.repeat(learned[layer], outputs)", "scales[layer] * np.tile(learned[layer], outputs)"),
            ("- 2 * across + first", "- across + first"),
            ("np.asarray(a[:, -1])", "np.asarray(a[:, 0])"),
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
        "_torch/optimizer.py": [
            ("state[_COUNTED] = steps.weights[layer]", "pass"),
            ("network.gamma0**2)", "network.gamma0)"),
        ],
        "_torch/data.py": [
            ("batch.kept[:, 0] / batch.keep", "batch.kept[:, 0] / 1.0"),
            ("math.sqrt(dim) * np.eye(dim)", "np.eye(dim)"),
        ],
    },
)

SUITES = [NETWORKS, SINGULAR_VALUES, SIMULATOR, COORDINATES, PYTORCH]
