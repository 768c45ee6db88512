"""The front door: from problems to solutions."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import overload

from deeplinear._core import checks, memory
from deeplinear._core.device import CPU, find_device
from deeplinear._core.progress import Progress, read_progress
from deeplinear._core.refusal import Refusal
from deeplinear._problem.problem import Problem
from deeplinear._rules.averages import Average, read_averages
from deeplinear._solvers.choose import METHODS, Choice, answers, batches, by_roots
from deeplinear._solvers.rounding import with_measured_rounding
from deeplinear._theory.solution import Solution


@overload
def solve(
    problem: Problem,
    *,
    method: str = "auto",
    tolerance: float = 1e-6,
    device: str = "cpu",
    averages: Sequence[Average] = (),
    progress: Progress | bool | None = None,
) -> Solution: ...
@overload
def solve(
    problem: Sequence[Problem],
    *,
    method: str = "auto",
    tolerance: float = 1e-6,
    device: str = "cpu",
    averages: Sequence[Average] = (),
    progress: Progress | bool | None = None,
) -> list[Solution]: ...
def solve(
    problem: Problem | Sequence[Problem],
    *,
    method: str = "auto",
    tolerance: float = 1e-6,
    device: str = "cpu",
    averages: Sequence[Average] = (),
    progress: Progress | bool | None = None,
) -> Solution | list[Solution]:
    """Predict how a network trains.

    The dense method solves every step exactly, in one causal pass: time grows as depth * (steps * outputs)^3,
    memory as depth * (steps * outputs)^2. Data with several modes add a matrix, and two products with it per step,
    for each mode.

    Panels solve the same equations, for every network, at a few nodes in time. The number of nodes grows as the
    logarithm of the number of steps, so millions of steps take seconds. They need losses that become smooth: training
    on all data or on the population loss, without momentum. While a run oscillates they take exact steps.

    A condensed past lets long runs be solved at every step, with noise, momentum, any schedule, and at the edge of
    stability: the longer ago something happened, the fewer rows are kept for it. Time then grows little faster than
    the number of steps, by about a millisecond per step. Two-time functions are found at pairs of up to 200 steps.

    Coarse steps, each of which stands for several, are extrapolated to single steps in long runs of stochastic gradient
    descent. They pay off for very many steps with a small learning rate, and give curves only.

    Parameters
    ----------
    problem
        One problem, or a sequence of them. Problems of equal shape (depth, steps, outputs, modes, kind
        of sampling, centering) are solved together, which saves most of the overhead of short ones.
    method
        ``"dense"``, ``"panels"``, ``"coarse"``, ``"condensed"``, or ``"auto"``: for runs that are long (more than 1000
        steps times outputs) panels if they are smooth, otherwise a condensed past, or coarse steps where these are
        fewer. If one of them does not resolve a run, or panels do not pay off, the next one is tried, and finally the
        dense method if that takes no more than a minute or two and fits into memory; otherwise the run is refused, and
        the message says what the dense method would take. On the processor a condensed past finds the losses of shorter
        runs too, from 400 steps times outputs on; if a function of two times is asked for, the dense method finds it
        then. ``"reference"`` is slow and plain, and shares no code with the others: it is there to check them, over a
        few dozen steps.
    tolerance
        Relative error of the losses that is allowed where something is approximated: residual networks of
        infinite depth, or of 256 layers and more with depth-muP branches, are solved through a few nodes in
        depth. ``Solution.stats`` reports the number of nodes and the error. The same holds for panels, coarse steps and
        a condensed past, where losses below a fraction ``error_floor`` of the initial one, 1e-5 as a rule, are accurate
        to that scale only. All else is exact to rounding; ``Solution.status`` says from which step on the losses depend
        on rounding errors.
    device
        ``"cpu"``, or a PyTorch device such as ``"cuda"`` or ``"cuda:1"`` (this needs
        ``pip install 'deeplinear[gpu]'``; ``"torch:cpu"`` is PyTorch on the processor, for tests). It pays off
        for many problems of equal shape, which are all solved together there, and for large dense ones. On a device a
        run counts as long above 4000 steps times outputs; a condensed past, and panels of fewer than eight problems,
        still run on the processor.
        Solutions hold NumPy arrays; matrices stay on the device until they are asked for.
    averages
        Averages of the weights, such as ``EMA(0.99)`` and ``TailMean(0.5)``, whose test losses are wanted beside those
        of the weights themselves.
    progress
        True for a line on stderr; or called as ``progress(done, total)``, counted in steps, summed over batches.

    Returns
    -------
    Solution
        Or a list of them, in the order of the problems. Those of a list keep their curves; what else is asked of one is
        found by solving it again. On a device all is kept.

    Raises
    ------
    ImportError
        If a device is asked for and PyTorch is missing.
    MemoryError
        Before anything is solved, if the matrices do not fit into the memory available.
    ArithmeticError
        If infinite depth, or a run that is too long for the dense method, was not resolved; or if an infinite power
        law was trained beyond the modes that represent it.

    Warns
    -----
    UserWarning
        If a ratio looks like a count, such as a width of 512 with isotropic data.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     network=dl.MLP(depth=2, width=1.0),
    ...     data=dl.Isotropic(noise=0.1),
    ...     sampling=dl.FullBatch(samples=2.0),
    ...     optimizer=dl.GradientDescent(lr=0.05),
    ...     steps=4,
    ... )
    >>> dl.solve(problem).test_loss.round(4)
    array([2.01  , 1.3152, 1.0512, 0.8991])
    """
    problems = [problem] if isinstance(problem, Problem) else problem
    if not isinstance(problems, Iterable) or isinstance(problems, str):  # type: ignore[redundant-expr]
        raise Refusal("problem", problem, "a Problem, or a sequence of them", got=type(problem).__name__)
    problems, tolerance = list(problems), checks.positive("tolerance", tolerance)
    checks.word("method", method, METHODS)
    for index, each in enumerate(problems):
        if not isinstance(each, Problem):
            raise Refusal(f"problem[{index}]", each, "a Problem")
    if hint := next((each.hint for each in problems if each.hint), ""):
        warnings.warn(hint, stacklevel=2)
    place = find_device(device)
    choice = Choice(method, tolerance, place, averages=read_averages(averages))
    choice.check()
    todo = batches(problems, choice)
    needed = [batch.solver.memory([problems[index] for index in batch.members]) for batch in todo]
    keeps_runs = isinstance(problem, Problem) or place != CPU
    memory.require(
        sum(needed) if keeps_runs else max(needed, default=0),
        "solving",
        "lower steps or outputs, or solve fewer problems at a time",
        place,
    )
    solutions: dict[int, Solution] = {}
    for batch, (members, found) in zip(todo, answers(problems, choice, todo, read_progress(progress)), strict=True):
        for index, answer in zip(members, found, strict=True):
            again = answer.solver if place == CPU else batch.solver
            checked = with_measured_rounding(problems[index], answer, again, place)
            if (steady := by_roots(problems[index], checked, choice)) is not checked:
                checked = with_measured_rounding(problems[index], steady, steady.solver, place)
            solutions[index] = Solution.of(problems[index], checked if keeps_runs else replace(checked, run=None))
    ordered = [solutions[index] for index in range(len(problems))]
    return ordered[0] if isinstance(problem, Problem) else ordered
