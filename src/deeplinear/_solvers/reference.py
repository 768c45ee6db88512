"""A slow, plain solver of the closed equations, which the fast solver is tested against.

The equations are those of Bordelon & Pehlevan 2025 for deep linear MLPs and residual networks,
corrected and extended to unequal widths, several outputs, linear optimizers and every sampling. Each
is written once, for whole matrices, in the paper's letters. Two fields live in each hidden layer l = 1..L, ``h``
(forward) and ``g`` (backward); layer 0 has the error ``v``, the residuals ``Delta`` and ``h_0``.
``C`` is the correlation of a field with itself over pairs of times, ``Rab`` the response of field a
to a kick of source b. Rows and columns are pairs (time, output), time-major: output c of C at time t
is index C t + c.

Causality makes the equations solvable: within one step the order is g_L .. g_1, v, Delta, h_0 ..
h_L, and row t follows from rows before t and from what precedes it in this order. So the matrices
grow by one time per stage. A stage pads them with zeros and evaluates every equation once, in causal
order, after which the new row is exact; an unknown entry only ever meets a zero of a strictly causal
matrix. The cost, O(L T^4) for an MLP and O(L^4 T^4) for a residual network, is of no concern here.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeplinear._problem.network import ResNet
from deeplinear._problem.optimizer import GradientDescent
from deeplinear._problem.problem import Problem
from deeplinear._problem.sampling import FullBatch, MultiPassSGD, OnlineSGD, Population

Array = NDArray[np.floating[Any]]


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

    def grow(self, outputs: int) -> None:
        """Add one time, with zeros for all that is not known yet."""
        for f in fields(self):
            old = getattr(self, f.name)
            setattr(self, f.name, np.pad(old, [(0, 0)] * (old.ndim - 2) + [(0, outputs)] * 2))


def reference(problem: Problem) -> dict[str, Array]:
    """Solve a problem step by step with whole matrices.

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
    """
    if np.isinf(problem.network.depth):
        raise ValueError("the reference needs a finite depth, got inf")
    if problem.network.gamma0 == 0:
        raise ValueError("the reference needs gamma0 > 0, got 0 (NTK at infinite width)")
    T, C, L = problem.steps, problem.data.outputs, problem.network.layers
    d, a = propagator(problem.optimizer, T)
    network, same_data, same_init = (_Kernels.empty(L) for _ in range(3))
    for t in range(T):
        for kernels in (network, same_data, same_init):
            kernels.grow(C)
        now = d[: t + 1], a[: t + 1, : t + 1]
        _evaluate(problem, *now, network, network, shares_init=True, shares_data=True)
        _evaluate(problem, *now, same_data, network, shares_init=False, shares_data=True)
        _evaluate(problem, *now, same_init, network, shares_init=True, shares_data=False)

    def over_time(M: Array) -> Array:
        trace: Array = np.einsum("tctc->t", M.reshape(T, C, T, C))  # over outputs, at each time
        return trace

    k = network
    return {
        "test_loss": over_time(k.Cv) + C * problem.data.noise**2,
        "train_loss": over_time(k.CDelta),
        **{"Cv": k.Cv, "CDelta": k.CDelta, "RDelta": k.RDelta, "Rvu": k.Rvu, "K": k.K},
        **{"Ch": k.Ch, "Cg": k.Cg[1:], "Rhr": k.Rhr, "Rgu": k.Rgu[1:]},
        **{"bias": over_time(k.bias), "width": over_time(k.width), "data": over_time(k.data)},
        "kernel": _tangent_kernel(problem, d, np.stack([over_time(C_) / C for C_ in k.Cg[1:]])),
        "overlap_data": over_time(same_data.Cv),
        "overlap_init": over_time(same_init.Cv),
    }


def _tangent_kernel(problem: Problem, d: Array, gain: Array) -> Array:
    """Sum over weight layers of the gain above, C_g(t, t) in the rows of ``gain``, times the mean gain of those below.

    The mean gain of initial weights is the product of squared factors in front of them; a skip passes a field as it is.
    """
    L, branch2 = problem.network.layers, problem.network.branch_factor**2
    nu = np.array(problem.network.widths)
    ratios = np.ones(L) if np.isinf(nu[0]) else np.append(nu[0] / nu[-1], nu[1:] / nu[:-1])
    total = np.zeros_like(d)
    below = ratios[0] * np.ones_like(d)  # mean squared gain from the input to the layer below
    for layer in range(L):
        factor = 1.0 if layer == 0 else branch2 * ratios[layer]
        total += (1.0 if layer == 0 else factor) * below * gain[layer]
        below = below * d**2 if layer == 0 else below * (problem.network.skip + factor * d**2)
    kernel: Array = total + below
    return kernel


def propagator(optimizer: GradientDescent, steps: int) -> tuple[Array, Array]:
    """Return (d, a): a weight is W(t) = d(t) W(0) + sum_{s<t} a(t, s) G_s for gradients G_s."""
    eta, mu, wd = optimizer.rates(steps), optimizer.momentum, optimizer.weight_decay

    def run(W: float, kick: int | None) -> list[float]:
        m, path = 0.0, []
        for t in range(steps):
            path.append(W)
            G = (1.0 if t == kick else 0.0) - wd * W
            m = mu * m + G
            W = W + eta[t] * (mu * m + G if optimizer.nesterov else m)
        return path

    return np.array(run(1.0, None)), np.array([run(0.0, s) for s in range(steps)]).T


def _evaluate(
    problem: Problem, d: Array, a: Array, k: _Kernels, own: _Kernels, *, shares_init: bool, shares_data: bool
) -> None:
    """Evaluate every equation once in causal order, in place.

    ``k`` belongs to one network (then ``own`` is ``k``) or to two replicas; the memory kernels A, B
    and K are made by each network's ``own`` correlations. What replicas do not share has no covariance.
    """
    L, nu, gamma0 = problem.network.layers, (np.nan, *problem.network.widths), problem.network.gamma0
    skip, beta = (True, problem.network.beta) if isinstance(problem.network, ResNet) else (False, 1.0)
    C, sigma, modes = problem.data.outputs, problem.data.noise, problem.data.modes
    times, layers = len(d), range(1, L + 1)
    one, zero = np.eye(C * times), np.zeros((C * times, C * times))
    every_time, every_pair, same_output = np.ones((times, times)), np.ones((C, C)), np.eye(C)
    same_time = np.kron(np.eye(times), every_pair)
    dd, aa = np.kron(np.outer(d, d), every_pair), np.kron(a, every_pair)  # for elementwise products

    def from_below(layer: int) -> tuple[Array, Array]:
        # The weights below h: what they have learned from g, and the covariance of what is left of the initial ones.
        f = 1.0 if layer == 1 else beta
        Rhr = k.Rhr[0] / (nu[L] * gamma0) if layer == 1 else k.Rhr[layer - 1]
        A = f * (dd * Rhr + f * gamma0 * aa * own.Ch[layer - 1])
        return A, shares_init * f**2 * dd * k.Ch[layer - 1]

    def from_above(layer: int) -> tuple[Array, Array]:
        # The weights above g likewise; for the last layer they are the readout.
        if layer == L:
            return gamma0 * np.kron(a, same_output), shares_init * np.kron(np.outer(d, d), same_output)
        rho = _ratio(nu[layer + 1], nu[layer])
        B = beta * rho * (dd * k.Rgu[layer + 1] + beta * gamma0 * aa * own.Cg[layer + 1])
        return B, shares_init * beta**2 * rho * dd * k.Cg[layer + 1]

    def hidden(layer: int) -> None:
        # h_l = h_{l-1} + A_l g_l + f_l u_l and g_l = g_{l+1} + B_l h_l + k_l r_l, for all layers that share their
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
        k.Rhr[layer] = F[h, g] * (1.0 if layer == L else beta)
        k.Rgu[layer] = F[g, h] * (1.0 if layer == 1 else beta)
        k.Ch[layer] = sum(F[h, y] @ cov[y] @ F[h, y].T for y in names)
        k.Cg[layer] = sum(F[g, y] @ cov[y] @ F[g, y].T for y in names)

    def layer_zero() -> None:
        # v = w - r0 - K h_0, where r0 comes from the initial first layer and K from what it has learned.
        k.K = _ratio(nu[1], nu[L]) * (dd * k.Rgu[1] / gamma0 + aa * own.Cg[1])
        cov_r0 = shares_init * _ratio(nu[1], nu[L]) / (nu[L] * gamma0**2) * dd * k.Cg[1]
        # Centering puts r0(t) - r0(0) in the place of r0(t).
        S = one - np.kron(every_time * (np.arange(times) == 0), same_output) if problem.network.centered else one
        cov_r0 = S @ cov_r0 @ S.T

        def H(lam: float) -> Array:  # the transfer function of a mode, from w or -r0 to v
            return np.linalg.inv(one + lam * k.K @ k.RDelta)

        k.bias, k.width, k.data, k.Rvu = zero.copy(), zero.copy(), zero.copy(), zero.copy()
        for lam, gram, p in zip(modes.eigenvalues, modes.target, modes.weight, strict=True):
            k.bias += p * lam * H(lam) @ np.kron(every_time, gram) @ H(lam).T
            k.width += p * lam * H(lam) @ cov_r0 @ H(lam).T
            k.data += p * lam * H(lam) @ (lam * k.K @ k.Noise @ k.K.T) @ H(lam).T
            k.Rvu -= p * lam * H(lam) @ k.K
        k.Cv = k.bias + k.width + k.data

        residuals()

        # h_0 = u + lam RDelta v for a mode, with cov u = lam Noise.
        k.Ch[0], k.Rhr[0] = zero, zero
        for lam, gram, p in zip(modes.eigenvalues, modes.target, modes.weight, strict=True):
            dh_dw = lam * k.RDelta @ H(lam)
            dh_du = one - dh_dw @ k.K
            k.Ch[0] += p * dh_dw @ (np.kron(every_time, gram) + cov_r0) @ dh_dw.T
            k.Ch[0] += p * dh_du @ (lam * k.Noise) @ dh_du.T
            k.Rhr[0] -= p * dh_dw @ S

    def residuals() -> None:
        # Delta on the training set, what it remembers (RDelta), and the noise that samples add to h_0.
        Cy = k.Cv + sigma**2 * np.kron(every_time, same_output)  # errors on fresh examples
        match problem.sampling:
            case Population():
                k.RDelta, k.CDelta, k.Noise = one, Cy, zero
            case OnlineSGD(batch=alpha_B):
                k.RDelta, k.CDelta = one, same_time * Cy
                k.Noise = k.CDelta / alpha_B
            case FullBatch(samples=alpha):
                k.RDelta = np.linalg.inv(one - k.Rvu / alpha)
                k.CDelta = k.RDelta @ Cy @ k.RDelta.T
                k.Noise = k.CDelta / alpha
            case MultiPassSGD(samples=alpha, batch=alpha_B):
                # A step weighs each residual by 1/b or 0, which adds variance (1 - b)/b CDelta(t, t) at that step
                # only. CDelta(t, t) has it from the steps before t, by RDelta - 1; Noise from t as well.
                b = alpha_B / alpha
                k.RDelta = np.linalg.inv(one - k.Rvu / alpha)
                draws, later = (1 - b) / b * same_time, k.RDelta - one
                k.CDelta = k.RDelta @ Cy @ k.RDelta.T + later @ (draws * k.CDelta) @ later.T
                k.Noise = k.RDelta @ (Cy + draws * k.CDelta) @ k.RDelta.T / alpha
        k.Noise = shares_data * k.Noise

    for layer in reversed(layers):
        hidden(layer)  # the new row of g is exact from here on
    layer_zero()
    for layer in layers:
        hidden(layer)  # and now that of h


def _ratio(x: float, y: float) -> float:
    return 1.0 if x == y else x / y  # widths that are infinite together count as equal
