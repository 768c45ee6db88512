"""A slow, plain solver of the closed equations, which the fast solver is tested against.

The equations are those of Bordelon & Pehlevan 2025 for deep linear MLPs and residual networks,
corrected and extended to unequal widths, several outputs, linear optimizers and every sampling. Each
is written once, for whole matrices, in the paper's letters. Two fields live in each hidden layer l = 1..L, ``h``
(forward) and ``g`` (backward); layer 0 has the error ``v``, the residuals ``Delta`` and ``h_0``.
``C`` is the correlation of a field with itself over pairs of times, ``Rab`` the response of field a
to a kick of source b. Rows and columns are pairs (time, output), time-major: output c at time t is
index outputs t + c.

Causality makes the equations solvable: within one step the order is g_L .. g_1, v, Delta, h_0 ..
h_L, and row t follows from rows before t and from what precedes it in this order. So the matrices
grow by one row per stage, an evaluation of the network as ``reference_rules`` asks for it. A stage pads them with zeros
and evaluates every equation once, in causal order, after which the new row is exact; an unknown entry only ever meets a
zero of a strictly causal matrix. Rows that are known stay as they are: an inverse of the whole spreads the rounding
errors of large entries over all rows. A run that explodes ends at the step from which nothing is known. The cost,
O(L T^4) for an MLP and O(L^4 T^4) for a residual network, is of no concern here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._problem.problem import Problem
from deeplinear._problem.sampling import FullBatch, MultiPassSGD, OnlineSGD, Population
from deeplinear._rules.averages import Average
from deeplinear._solvers.reference_rules import Row, correlations_around, train

Array = NDArray[np.floating[Any]]

_DIVERGED = 1e12
"""Training counts as diverged once the loss is this many times its initial value."""


@dataclass
class _Kernels:
    """Order parameters on the times so far; the last two axes are (time, output) pairs.

    Of one network with itself, or across a pair of replicas: networks that share their
    initialisation or their data but not both. Replicas have the same responses; only their
    cross-correlations differ.
    """

    Ch: Array  # layers 0..L
    Rhr: Array
    Cg: Array  # layers 1..L; index 0 stays zero
    Rgu: Array
    Cv: Array
    CDelta: Array
    RDelta: Array
    Rvu: Array
    K: Array
    Noise: Array
    bias: Array  # the three parts of Cv
    width: Array
    data: Array

    @classmethod
    def empty(cls, depth: int) -> "_Kernels":
        layered = {"Ch", "Rhr", "Cg", "Rgu"}
        return cls(**{f.name: np.zeros((depth + 1, 0, 0) if f.name in layered else (0, 0)) for f in fields(cls)})

    def grow(self, outputs: int) -> dict[str, Array]:
        """Add one time, with zeros for all that is not known yet; return what was known."""
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, old in known.items():
            setattr(self, name, np.pad(old, [(0, 0)] * (old.ndim - 2) + [(0, outputs)] * 2))
        return known

    def keep(self, known: dict[str, Array]) -> None:
        """Let what was known be as it was."""
        for name, old in known.items():
            size = old.shape[-1]
            getattr(self, name)[..., :size, :size] = old

    def cut(self, size: int) -> None:
        """Leave the first rows only."""
        for f in fields(self):
            setattr(self, f.name, getattr(self, f.name)[..., :size, :size])


def reference(problem: Problem, averages: Sequence[Average] = ()) -> dict[str, Array]:
    """Solve a problem row by row with whole matrices.

    Returns
    -------
    dict
        ``test_loss``, ``train_loss``: shape (T,).
        ``Cv``, ``CDelta``, ``RDelta``, ``Rvu``, ``K``: shape (CT, CT). ``CDelta`` is the correlation
        of the residuals on the training set, diagonal in time for fresh batches.
        ``Ch``, ``Rhr`` (layers 0..L), ``Cg``, ``Rgu`` (layers 1..L): shape (layers, CT, CT).
        ``bias``, ``width``, ``data``: shape (T,), parts of the test loss driven by the target, by the
        initial weights and by sampling; they sum to the test loss less the label noise.
        ``kernel``: shape (T,), mean eigenvalue of the tangent kernel.
        ``overlap_data``, ``overlap_init``: shape (T,), what C_v(t, t) becomes across two networks that
        share only the data (and batches), or only the initialisation.
        ``averaged_test_loss``: shape (averages, T). ``task_loss``: shape (phases, T).
        From the step on at which a run explodes, curves are inf and matrices zero.
    """
    if np.isinf(problem.network.depth):
        raise ValueError("the reference needs a finite depth, got inf")
    if problem.network.gamma0 == 0:
        raise ValueError("the reference needs gamma0 > 0, got 0 (NTK at infinite width)")
    outputs, L = problem.data.outputs, problem.network.layers
    network, same_data, same_init = (_Kernels.empty(L) for _ in range(3))
    training, rows = train(problem, averages), []
    row = next(training)
    every = (network, same_data, same_init)
    while row is not None:
        rows.append(row)
        known = [kernels.grow(outputs) for kernels in every]
        with np.errstate(over="ignore", invalid="ignore"):
            explodes = not _fill(problem, rows, *every) or _is_large(problem, rows, network.Cv)
        for kernels, old in zip(every, known, strict=True):
            kernels.keep(old)
        if explodes and row.step:
            rows = [each for each in rows if each.step < row.step]
            for kernels in every:
                kernels.cut(len(rows) * outputs)
            break
        row = training.send(correlations_around(problem, network.Cg, network.Ch))
    return _results(problem, rows, *every, len(averages))


def _fill(problem: Problem, rows: list[Row], network: _Kernels, same_data: _Kernels, same_init: _Kernels) -> bool:
    """Evaluate the last row of everything; return whether it is made of numbers."""
    try:
        _evaluate(problem, rows, network, network, shares_init=True, shares_data=True)
        _evaluate(problem, rows, same_data, network, shares_init=False, shares_data=True)
        _evaluate(problem, rows, same_init, network, shares_init=True, shares_data=False)
    except np.linalg.LinAlgError:  # of what has overflowed
        return False
    every = (getattr(network, f.name) for f in fields(network))
    return all(np.isfinite(each).all() for each in every if each.dtype != object)  # numbers of many digits have no end


def _is_large(problem: Problem, rows: list[Row], Cv: Array) -> bool:
    """Whether training counts as diverged: by the loss at its weights or at those reported, in units of the first one.

    What a centered network subtracts is no divergence where decaying weights uncover it.
    """
    if not {"reported", "shown"} & set(rows[-1].roles):
        return False
    network, outputs = problem.network, problem.data.outputs
    loss, first = (
        np.trace(Cv[own, own]) + outputs * row.stage.noise**2
        for own, row in ((slice(-outputs, None), rows[-1]), (slice(outputs), rows[0]))
    )
    decays = any(stage.optimizer.plain.has_decay(stage.of) for stage in problem.stages)
    size = np.sum(problem.modes.weight * problem.modes.eigenvalues) * outputs
    uncovered = size * network.initial_variance / network.richness**2 if network.centered and decays else 0.0
    return bool(loss > _DIVERGED * (first + uncovered))


def _results(
    problem: Problem, rows: list[Row], net: _Kernels, same_data: _Kernels, same_init: _Kernels, averages: int
) -> dict[str, Array]:
    """Losses of the rows that are reported, matrices over those that training takes."""
    outputs, R = problem.data.outputs, len(rows)

    def over_time(M: Array) -> Array:
        trace: Array = np.einsum("tctc->t", M.reshape(R, outputs, R, outputs))  # over outputs, at each time
        return trace

    def of(role: str) -> Any:
        return [index for index, row in enumerate(rows) if role in row.roles]

    def shown(M: Array) -> Array:
        pairs = (np.array(of("shown"))[:, None] * outputs + np.arange(outputs)).ravel()
        return M[..., pairs[:, None], pairs]

    noise = outputs * np.array([row.stage.noise for row in rows]) ** 2
    test = over_time(net.Cv) + noise
    losses = {
        "test_loss": test,
        "train_loss": over_time(net.CDelta),
        **{"bias": over_time(net.bias), "width": over_time(net.width), "data": over_time(net.data)},
        "overlap_data": over_time(same_data.Cv),
        "overlap_init": over_time(same_init.Cv),
    }
    kernel = _tangent_kernel(problem, rows, np.stack([over_time(Cg) / outputs for Cg in net.Cg[1:]]))
    matrices = {name: shown(getattr(net, name)) for name in ("Cv", "CDelta", "RDelta", "Rvu", "K", "Ch", "Rhr")}
    matrices |= {"Cg": shown(net.Cg[1:]), "Rgu": shown(net.Rgu[1:])}
    averaged = [test[of(f"average {index}")] for index in range(averages)]
    curves = {name: curve[of("reported")] for name, curve in losses.items()} | {
        "kernel": kernel[of("shown")],
        "averaged_test_loss": np.array(averaged).reshape(averages, -1) if averages else np.zeros((0, problem.steps)),
        "task_loss": _task_losses(problem, rows, net, test)[:, of("reported")],
    }

    def longer(values: Array, axes: int, size: int, rest: float) -> Array:
        return np.pad(
            values, [(0, 0)] * (values.ndim - axes) + [(0, size - values.shape[-1])] * axes, constant_values=rest
        )

    return {name: longer(curve, 1, problem.steps, np.inf) for name, curve in curves.items()} | {
        name: longer(M, 2, problem.steps * outputs, 0.0) for name, M in matrices.items()
    }


def _task_losses(problem: Problem, rows: list[Row], net: _Kernels, test: Array) -> Array:
    """Test losses of all rows on the targets of all phases: v(t) + w - w(t) is the error on another target w."""
    outputs, sigma, modes = problem.data.outputs, [row.stage.noise for row in rows], problem.modes
    one = np.eye(outputs * len(rows))
    losses = np.zeros((len(problem.stages), len(rows)))
    for task, stage in enumerate(problem.stages):
        for t, row in enumerate(rows):
            own = slice(outputs * t, outputs * (t + 1))
            change = test[t] + outputs * (stage.noise**2 - sigma[t] ** 2)
            for lam, gram, p in zip(modes.eigenvalues, modes.target, modes.weight, strict=True):
                H = np.linalg.inv(one + lam * net.K @ net.RDelta)[own].reshape(outputs, len(rows), outputs)
                # <v(t) w> for the target w of a phase, and <w w(t)>.
                mean = {
                    phase: sum(H[:, s] @ gram * _overlap(problem, other.phase, phase) for s, other in enumerate(rows))
                    for phase in (task, row.phase)
                }
                apart = 2.0 * (1.0 - _overlap(problem, task, row.phase)) * np.trace(gram)
                change += p * lam * (apart + 2.0 * np.trace(mean[task] - mean[row.phase]))
            losses[task, t] = change
    return losses


def _overlap(problem: Problem, one: int, other: int) -> float:
    """Overlap of the targets of two phases."""
    early, late = sorted((one, other))
    return float(np.prod([stage.target_overlap for stage in problem.stages[early + 1 : late + 1]]))


def _tangent_kernel(problem: Problem, rows: list[Row], gain: Array) -> Array:
    """Sum over weight layers of the gain above, C_g(t, t) in the rows of ``gain``, times the mean gain of those below.

    The mean gain of initial weights is the product of squared factors in front of them; a skip passes a field as it is.
    Each layer counts by the factor on its learning rate in the first phase.
    """
    L, branch2 = problem.network.layers, problem.network.branch_factor**2
    nu = np.array(problem.network.widths)
    ratios = np.ones(L) if np.isinf(nu[0]) else np.append(nu[0] / nu[-1], nu[1:] / nu[:-1])
    rates = problem.layer_rates(problem.stages[0].optimizer)
    d2 = (problem.network.initial_scales[:, None] * np.array([row.d for row in rows]).T) ** 2
    total = np.zeros(len(rows))
    below = ratios[0] * np.ones(len(rows))  # mean squared gain from the input to the layer below
    for layer in range(L):
        factor = 1.0 if layer == 0 else branch2 * ratios[layer]
        total += rates[layer] * factor * below * gain[layer]
        below = below * d2[0] if layer == 0 else below * (problem.network.skip + factor * d2[layer])
    kernel: Array = total + rates[L] * below
    return kernel


def _evaluate(
    problem: Problem, rows: list[Row], net: _Kernels, own: _Kernels, *, shares_init: bool, shares_data: bool
) -> None:
    """Evaluate every equation once in causal order, in place.

    ``net`` belongs to one network (then ``own`` is ``net``) or to two replicas; the memory kernels A, B
    and K are made by each network's ``own`` correlations. What replicas do not share has no covariance.
    """
    L, nu, gamma0 = problem.network.layers, (np.nan, *problem.network.widths), problem.network.gamma0
    skip, beta = problem.network.skip, problem.network.branch_factor
    outputs, modes = problem.data.outputs, problem.modes
    times, layers = len(rows), range(1, L + 1)
    one, zero = np.eye(outputs * times), np.zeros((outputs * times, outputs * times))
    every_time, every_pair, same_output = np.ones((times, times)), np.ones((outputs, outputs)), np.eye(outputs)
    d = problem.network.initial_scales[:, None] * np.array([row.d for row in rows]).T  # with the initial scale
    dd = [np.kron(np.outer(d_l, d_l), every_pair) for d_l in d]  # for elementwise products
    overlaps = np.array([[_overlap(problem, one_.phase, other.phase) for other in rows] for one_ in rows])

    def learned(layer: int, C_: Array, transposed: bool) -> Array:
        # What a weight layer has learned: X of every row with the correlation of the field that it is applied to.
        kernel = np.zeros_like(one)
        for t, row in enumerate(rows):
            X = row.X[layer][: outputs * times, : outputs * times]
            for output in range(outputs * t, outputs * (t + 1)):
                kernel[output] = (X.T if transposed else X) @ C_[output]
        return kernel

    def from_below(layer: int) -> tuple[Array, Array]:
        # The weights below h: what they have learned from g, and the covariance of what is left of the initial ones.
        f = 1.0 if layer == 1 else beta
        Rhr = net.Rhr[0] / (nu[L] * gamma0) if layer == 1 else net.Rhr[layer - 1]
        A = f * (dd[layer - 1] * Rhr + f * gamma0 * learned(layer - 1, own.Ch[layer - 1], transposed=False))
        return A, shares_init * f**2 * dd[layer - 1] * net.Ch[layer - 1]

    def from_above(layer: int) -> tuple[Array, Array]:
        # The weights above g likewise; for the last layer they are the readout.
        if layer == L:
            readout = np.kron(every_time, same_output)  # what C_g is above the readout
            return gamma0 * learned(L, readout, transposed=True), shares_init * dd[L] * readout
        rho = _ratio(nu[layer + 1], nu[layer])
        B = beta * rho * (dd[layer] * net.Rgu[layer + 1] + beta * gamma0 * learned(layer, own.Cg[layer + 1], True))
        return B, shares_init * beta**2 * rho * dd[layer] * net.Cg[layer + 1]

    def hidden(layer: int) -> None:
        # h_l = h_{l-1} + A_l g_l + f_l u_l and g_l = g_{l+1} + B_l h_l + fbar_l r_l, for all layers that share their
        # neurons, as one linear system. Without skip connections each layer is on its own.
        chain = layers if skip else [layer]
        names = [(field, i) for field in "hg" for i in chain]
        driven_by: dict[Any, Array] = {}  # the factor of the second field in the equation of the first
        cov: dict[Any, Array] = {}  # of the source in a field's equation
        for i in chain:
            h, g = ("h", i), ("g", i)
            driven_by[h, g], cov[h] = from_below(i)
            driven_by[g, h], cov[g] = from_above(i)
            driven_by[h, ("h", i - 1)] = driven_by[g, ("g", i + 1)] = one
        system = np.block([[one * (x == y) - driven_by.get((x, y), zero) for y in names] for x in names])
        # Responses of every field to every source, then what the closure needs of them.
        inverse = np.linalg.inv(system).reshape(len(names), len(one), len(names), len(one))
        F = {(x, y): inverse[i, :, j] for i, x in enumerate(names) for j, y in enumerate(names)}
        h, g = ("h", layer), ("g", layer)
        net.Rhr[layer] = F[h, g] * (1.0 if layer == L else beta)
        net.Rgu[layer] = F[g, h] * (1.0 if layer == 1 else beta)
        net.Ch[layer] = sum(F[h, y] @ cov[y] @ F[h, y].T for y in names)
        net.Cg[layer] = sum(F[g, y] @ cov[y] @ F[g, y].T for y in names)

    def layer_zero() -> None:
        # v = w - r0 - K h_0, where r0 comes from the initial first layer and K from what it has learned.
        net.K = _ratio(nu[1], nu[L]) * (dd[0] * net.Rgu[1] / gamma0 + learned(0, own.Cg[1], transposed=True))
        cov_r0 = shares_init * _ratio(nu[1], nu[L]) / (nu[L] * gamma0**2) * dd[0] * net.Cg[1]
        # Centering puts r0(t) - r0(0) in the place of r0(t).
        S = one - np.kron(every_time * (np.arange(times) == 0), same_output) if problem.network.centered else one
        cov_r0 = S @ cov_r0 @ S.T

        def H(lam: float) -> Array:  # the transfer function of a mode, from w or -r0 to v
            return np.linalg.inv(one + lam * net.K @ net.RDelta)

        net.bias, net.width, net.data, net.Rvu = zero.copy(), zero.copy(), zero.copy(), zero.copy()
        for lam, gram, p in zip(modes.eigenvalues, modes.target, modes.weight, strict=True):
            net.bias += p * lam * H(lam) @ np.kron(overlaps, gram) @ H(lam).T
            net.width += p * lam * H(lam) @ cov_r0 @ H(lam).T
            net.data += p * lam * H(lam) @ (lam * net.K @ net.Noise @ net.K.T) @ H(lam).T
            net.Rvu -= p * lam * H(lam) @ net.K
        net.Cv = net.bias + net.width + net.data

        _residuals(rows, outputs, net, shares_data)

        # h_0 = u + lam RDelta v for a mode, with cov u = lam Noise.
        net.Ch[0], net.Rhr[0] = zero, zero
        for lam, gram, p in zip(modes.eigenvalues, modes.target, modes.weight, strict=True):
            dh_dw = lam * net.RDelta @ H(lam)
            dh_du = one - dh_dw @ net.K
            net.Ch[0] += p * dh_dw @ (np.kron(overlaps, gram) + cov_r0) @ dh_dw.T
            net.Ch[0] += p * dh_du @ (lam * net.Noise) @ dh_du.T
            net.Rhr[0] -= p * dh_dw @ S

    for layer in reversed(layers):
        hidden(layer)  # the new row of g is exact from here on
    layer_zero()
    for layer in layers:
        hidden(layer)  # and now that of h


def _residuals(rows: list[Row], outputs: int, net: _Kernels, shares_data: bool) -> None:
    """Delta on the training set, what it remembers (RDelta), and the noise that samples add to h_0, in place.

    Rows remember those of the same data set.
    """
    every_pair = np.ones((outputs, outputs))
    one, same_time = np.eye(outputs * len(rows)), np.kron(np.eye(len(rows)), every_pair)
    numbers = np.array([row.data_set for row in rows])
    same_set = np.kron(numbers[:, None] == numbers, every_pair)
    steps = np.array([row.step if row.shares_batch else -1.0 - index for index, row in enumerate(rows)])
    same_draw = np.kron(steps[:, None] == steps, every_pair)
    sigmas = np.array([row.stage.noise for row in rows])
    Cy = net.Cv + np.kron(np.outer(sigmas, sigmas), np.eye(outputs))  # errors on fresh examples
    reuse = np.repeat([_reuse(row) for row in rows], outputs)
    draws = np.repeat([_draws(row) for row in rows], outputs)
    # A step weighs each residual by c = 1/b or 0, which adds variance (1 - b)/b CDelta(t, t) at that step only.
    # CDelta(t, t) has it from the steps before t, by RDelta - 1; Noise from t as well. Rows that see one draw have
    # the same c: <c^2> = 1/b of what one does to the other, and c - 1 times residuals that do not feel it.
    seen = np.where(reuse > 0, reuse, 1.0)
    within = (same_draw - same_time) * (1.0 + draws / seen) * reuse[:, None] * same_set * net.Rvu
    elsewhere = (1.0 - same_draw + same_time) * reuse[:, None] * same_set * net.Rvu
    net.RDelta = np.linalg.inv(one - within - elsewhere)
    unfelt = (one - within) @ net.RDelta
    own_draw, later = draws[:, None] * same_draw, unfelt - one
    net.CDelta = unfelt @ (same_set * Cy) @ unfelt.T + later @ (own_draw * net.CDelta / seen) @ later.T
    remembered = reuse[:, None] * same_set * Cy + own_draw * net.CDelta
    net.Noise = shares_data * net.RDelta @ remembered @ net.RDelta.T


def _ratio(x: float, y: float) -> float:
    return 1.0 if x == y else x / y  # widths that are infinite together count as equal


def _reuse(row: Row) -> float:
    """1 / alpha of the data set that a row sees again.

    The rules are told apart here on purpose, not asked: what they say of themselves is what this checks.
    """
    match row.stage.sampling:
        case FullBatch(samples=alpha) | MultiPassSGD(samples=alpha):
            return 1.0 / alpha
        case OnlineSGD() if row.shares_batch:
            return float(1.0 / row.batch)
    return 0.0


def _draws(row: Row) -> float:
    """Strength of the noise that a batch of its own adds to a row; the rules are told apart on purpose, as above."""
    match row.stage.sampling:
        case OnlineSGD() if not row.shares_batch:
            return float(1.0 / row.batch)
        case MultiPassSGD(samples=alpha):
            b = row.batch / alpha
            return float((1.0 - b) / (b * alpha))
        case Population() | FullBatch() | OnlineSGD():
            return 0.0
