"""The learning rate of a problem as one number: the rate itself, or a common factor of a schedule."""

from deeplinear._problem.edit import replace
from deeplinear._problem.problem import Problem


def has_schedule(problem: Problem) -> bool:
    """Return whether the learning rate depends on the step, so that it is varied by a common factor."""
    return problem.optimizer.has_schedule


def rate_of(problem: Problem) -> float:
    """Return the learning rate, or the factor 1 of a schedule."""
    return 1.0 if has_schedule(problem) else float(problem.optimizer.rates(1)[0])


def in_words(problem: Problem, name: str) -> str:
    """Return what the values of a field are called where results are listed: those of a schedule of rates are factors.

    Examples
    --------
    >>> import deeplinear as dl
    >>> optimizer = dl.GradientDescent(lr=dl.schedules.linear(0.1))
    >>> problem = dl.Problem(dl.MLP(depth=2, width=1.0), dl.Isotropic(), dl.Population(), optimizer, steps=5)
    >>> in_words(problem, "lr"), in_words(problem, "width")
    ('lr factor', 'width')
    """
    return "lr factor" if name == "lr" and has_schedule(problem) else name


def factors_in_words(problem: Problem) -> list[str]:
    """Return a line that says what factors on a schedule multiply; none where the rate is one number."""
    if not has_schedule(problem):
        return []
    return [
        f"lr factors multiply the schedule, whose largest rate is {problem.optimizer.rates(problem.steps).max():.4g}"
    ]


def changes_without_rate(problem: Problem) -> bool:
    """Return whether losses change at a learning rate of zero too: by another rule, or in another phase."""
    return bool(problem.phases) or problem.optimizer.other is not None


def with_rate(problem: Problem, rate: float) -> Problem:
    """Return the problem with another learning rate, or with its schedule multiplied by a factor.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=2, width=1.0), dl.GradientDescent(lr=[0.1, 0.2])
    >>> problem = dl.Problem(network, dl.Isotropic(), dl.Population(), optimizer, steps=2)
    >>> with_rate(problem, 0.5).optimizer.lr
    (0.05, 0.1)
    """
    if has_schedule(problem):
        return replace(problem, {"optimizer": problem.optimizer.scaled(rate, problem.steps)})
    return replace(problem, {"lr": rate})


def up_to(problem: Problem, step: int) -> Problem:
    """Return the problem with steps 0 .. ``step`` only; these are the same whatever follows."""
    return problem.first(step + 1)
