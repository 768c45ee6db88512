"""The first step of training: by what factor the loss changes, and from which learning rate on it rises.

For a centered MLP of equal widths the first step is exact in closed form. With lam_k, w_k^2 and p_k the modes
of the data, V = sum_k p_k lam_k w_k^2 the loss at initialisation and n = (reuse + subsampling) (V + sigma^2)
the noise of the first gradient (1/alpha, or 1/alpha_B, times the loss),

    C_v(1) = sum_k p_k lam_k w_k^2 (1 - (L+1) eta lam_k)^2 + (L+1)^2 eta^2 n sum_k p_k lam_k^2
             + eta^2 L(L+1)(2L+1)/(6 nu) sum_k p_k lam_k [sum_k p_k lam_k^2 w_k^2 + n sum_k p_k lam_k]

The last term is what the random initial weights do: it is how a narrow network rises first. Everything
else is solved for two steps, which is exact as well. Only the rules of the first step matter, so a problem with phases
or schedules is first reduced to them.
"""

import math
from dataclasses import replace

import numpy as np

from deeplinear._core.refusal import Refusal
from deeplinear._problem.problem import Problem, check_problem
from deeplinear._problem.rate import with_rate
from deeplinear._theory.solve import solve

_NO_RISE = "the first step raises the loss at every learning rate, or at none: no rate is the smallest that does"


def first_step_growth(problem: Problem) -> float:
    """Factor by which the first step changes the test loss, not counting label noise.

    If there is nothing to learn, it is 1, or infinite if noise makes the first step raise the loss from zero.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     network=dl.MLP(depth=4, width=0.25, centered=True),
    ...     data=dl.Isotropic(),
    ...     sampling=dl.OnlineSGD(batch=0.05),
    ...     optimizer=dl.GradientDescent(lr=0.01),
    ...     steps=100,
    ... )
    >>> round(dl.first_step_growth(problem), 4)
    1.2045
    """
    check_problem(problem)
    beginning = _beginning(problem)
    if _has_closed_form(beginning):
        V, linear, quadratic = _coefficients(beginning)
        lr = float(beginning.optimizer.rates(2)[0])
        return _ratio(V - linear * lr + quadratic * lr**2, V)  # eq-early
    return _solved_growth(beginning)


def first_rise_lr(problem: Problem) -> float:
    """Smallest learning rate at which the first step raises the test loss; a factor where the rate is a schedule.

    The problem's own learning rate does not matter. A schedule is scaled as a whole, as by ``max_stable_lr``, and must
    not begin with zero. What varies is the rate of the first step, that of the first phase
    if this has an optimizer of its own. Weight decay must be 0.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network = dl.MLP(depth=3, width="infinite", parameterization="ntk", centered=True)
    >>> problem = dl.Problem(network, dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), steps=2)
    >>> dl.first_rise_lr(problem)  # 2 over the kernel, which is depth + 1
    0.5
    """
    check_problem(problem)
    beginning = _beginning(problem)
    if (decay := float(beginning.optimizer.plain.decays(2)[0])) > 0:
        raise Refusal("weight_decay", decay, "0 for the rate at which the loss first rises")
    rule = (problem.phases and problem.phases[0].optimizer) or problem.optimizer
    unit = float(beginning.optimizer.rates(2)[0]) if rule.has_schedule else 1.0
    if unit == 0:
        raise Refusal("lr", rule.lr, "above zero at step 0", got="a schedule that begins with zero")
    beginning = beginning.replace(lr=1.0)
    if _has_closed_form(beginning):
        _, linear, quadratic = _coefficients(beginning)
        if not linear > 0:
            raise ValueError(_NO_RISE)
        return linear / quadratic / unit  # eq-early-rise

    def rises(log_lr: float) -> float:
        return _solved_growth(with_rate(beginning, float(np.exp(log_lr)))) - 1.0

    from scipy.optimize import brentq  # slow to import, and rarely needed

    # Below any rate of interest the loss falls; the first sign change on a fine grid brackets the answer.
    grid = np.log(np.geomspace(1e-6, 1e3, 181) / max(float(problem.modes.eigenvalues.max()), 1e-12))
    signs = np.array([rises(each) for each in grid]) > 0
    if not signs.any() or signs[0]:
        raise ValueError(_NO_RISE)
    first = int(np.argmax(signs))
    return float(np.exp(brentq(rises, grid[first - 1], grid[first], xtol=1e-12))) / unit


def _beginning(problem: Problem) -> Problem:
    """Return two steps of training without phases, both by the rules of the first step."""
    first = problem.stages[0]
    return replace(
        problem,
        data=replace(problem.data, noise=first.noise),
        sampling=first.sampling.first(1, first.of_samples).steady(1),
        optimizer=first.optimizer.as_at_first(2, first.of),
        steps=2,
        phases=(),
    )


def _has_closed_form(problem: Problem) -> bool:
    network, rule = problem.network, problem.optimizer
    plain = rule.is_plain and not rule.nesterov
    alike = (problem.layer_rates(rule) == 1).all() and (network.initial_scales == 1).all()
    one_width = len(network.given_widths) == 1
    decays = rule.decays(2).any()
    return bool(plain and alike and one_width and not network.skip and network.centered and not decays)


def _coefficients(problem: Problem) -> tuple[float, float, float]:
    """C_v(1) = V - linear eta + quadratic eta^2."""
    L, nu, modes = problem.network.layers, problem.network.end_widths[0], problem.modes
    lam, p = modes.eigenvalues, modes.weight
    w2 = np.trace(modes.target, axis1=1, axis2=2)
    V = p @ (lam * w2)
    noise = (problem.sampling.reuse + problem.sampling.subsampling(2)[0]) * (V + problem.label_noise[0])
    signal = p @ (lam**2 * w2) + noise * (p @ lam)
    width = L * (L + 1) * (2 * L + 1) / (6 * nu) * (p @ lam) * signal
    linear = 2 * (L + 1) * (p @ (lam**2 * w2))
    quadratic = (L + 1) ** 2 * (p @ (lam**3 * w2) + noise * (p @ lam**2)) + width
    return float(V), float(linear), float(quadratic)


def _solved_growth(beginning: Problem) -> float:
    solution = solve(beginning)
    noise = solution.decomposition.label_noise
    return _ratio(float(solution.test_loss[1] - noise[1]), float(solution.test_loss[0] - noise[0]))


def _ratio(new: float, old: float) -> float:
    if old == 0:
        return 1.0 if new == 0 else math.inf
    return new / old
