"""The best of several fields at once: the least loss at the last step."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.device import searching_on
from deeplinear._core.drawn import Drawn
from deeplinear._core.progress import Counter, Progress, read_progress
from deeplinear._core.words import percent
from deeplinear._learning_rate import OBJECTIVES, OptimalLr, max_stable_lr, optimal_lr
from deeplinear._learning_rate.ladder import check
from deeplinear._planning.axes import at, axes_of, check_corners
from deeplinear._planning.joint import SEARCH, JointSearch
from deeplinear._problem.problem import Problem
from deeplinear._problem.rate import has_schedule, in_words, rate_of

Array = NDArray[np.float64]


@dataclass(frozen=True)
class JointMinimum:
    """A minimum of the loss over several fields: their values, and the loss at the last step."""

    values: Mapping[str, float]
    loss: float


@dataclass(frozen=True, eq=False)
class Optimum(Drawn):
    """The values of several fields that together leave the lowest loss at the last step.

    Attributes
    ----------
    problem
        The problem with these values.
    values
        The values by name of the field; ``lr`` is a factor where the problem has a schedule.
    loss
        Loss at the last step.
    binding
        Fields that sit at a bound, with ``"low"`` or ``"high"``: the loss would be lower beyond it.
    at_margin
        Whether the margin of stability holds the optimum back from lower losses at an edge.
    at_edge
        Whether the optimum is just below an edge, as ``optimal_lr`` judges it or because the margin holds it back:
        where the loss rises steeply with the learning rate, though training may still come down.
    safe_lr, safe_loss
        The best rate with a margin at these values of the other fields, and its loss (see ``optimal_lr``); nan where
        the learning rate is not searched over, or this rate is beyond its bounds.
    minima
        The optimum and other minima found, best first. End points between which there is a way without a barrier of 1 %
        of the loss, such as those in a flat valley, count as one minimum.
    profiles
        For each field, values around the optimum and the loss there with the others held fixed, each of shape (41,).
    curvature
        Second derivatives of the loss with respect to the coordinates of the fields, shape (fields, fields), in the
        order of ``values``. Coordinates are logarithms: log(x); log(x + 0.001) where the lower bound is zero; and
        log(1 / (1 - x)) for momentum and other fractions below one. Exact slopes are subtracted, so errors are about
        1e-4 of the largest entry.
    stable_factor
        How many times higher the learning rate can be before training no longer comes down: the margin of stability.
        It is measured to the end of the first stable interval (see ``max_stable_lr``); below 1 the optimum lies
        beyond it.
    bounds
        Lowest and highest value searched, for each field.
    objective
        ``"test"`` or ``"train"``.
    """

    problem: Problem
    values: Mapping[str, float]
    loss: float
    binding: Mapping[str, str]
    at_margin: bool
    minima: tuple[JointMinimum, ...] = field(repr=False)
    profiles: Mapping[str, tuple[Array, Array]] = field(repr=False)
    curvature: Array = field(repr=False)
    stable_factor: float
    bounds: Mapping[str, tuple[float, float]]
    objective: str
    at_edge: bool = False
    safe_lr: float = math.nan
    safe_loss: float = math.nan

    @property
    def stability(self) -> list[str]:
        """Lines that say how far away an edge is."""
        far = f"{self.stable_factor:.3g} times this learning rate"
        if not self.at_edge:
            return [f"stable up to {far}"]
        held = "held back by its margin from" if self.at_margin else "just below"
        line = f"{held} an edge, where the loss rises steeply with the learning rate"
        if math.isfinite(self.safe_lr):
            name = in_words(self.problem, "lr")
            line += f"; with a margin {name} {self.safe_lr:.4g}: {self.objective} loss {self.safe_loss:.4g}"
        return [line, f"training comes down up to {far}"]

    @property
    def names_in_words(self) -> list[str]:
        """What tables call the values: the rates of a schedule by their common factor."""
        return [in_words(self.problem, name) for name in self.values]

    @property
    def factors(self) -> list[str]:
        """A line that says what comes of a factor on a schedule; none where there is none."""
        if "lr" not in self.values or not has_schedule(self.problem):
            return []
        peak = self.problem.optimizer.rates(self.problem.steps).max()
        return [f"with this lr factor the largest rate of the schedule is {peak:.4g}"]

    def __str__(self) -> str:
        lines = [f"{self.objective} loss {self.loss:.4g} at step {self.problem.steps - 1}"]
        for name, value in self.values.items():
            end = f", at its {self.binding[name]} bound" if name in self.binding else ""
            lines.append(f"{in_words(self.problem, name):14}{value:10.4g}{end}")
        lines += self.factors
        lines += self.stability
        for other in self.minima[1:]:
            values = ", ".join(f"{in_words(self.problem, name)} {value:.4g}" for name, value in other.values.items())
            lines.append(f"another minimum, {percent(other.loss / self.loss - 1.0)} higher: {values}")
        return "\n".join(lines)


def optimal(
    problem: Problem,
    over: Iterable[str],
    *,
    bounds: Mapping[str, Sequence[float]] | None = None,
    objective: str = "test",
    margin: float = 0.05,
    starts: int = 4,
    device: str = "cpu",
    progress: Progress | bool | None = None,
) -> Optimum:
    """Find the values of several fields that together leave the lowest loss at the last step.

    From several starts, spread over the bounds, all fields descend together along exact derivatives of the loss. The
    learning rate of each start is the best of all rates, and at the end it is looked for again among all rates, so that
    the optimum is global in the rate. In the other fields it is the best of the minima that the starts lead to.

    Parameters
    ----------
    problem
        What to train, and the first start.
    over
        Names of fields with one finite value each: ``lr``, ``momentum``, ``weight_decay``, ``richness``, ``width``,
        ``samples``, ``batch``, ``branch``, ``clip``, ``beta2``, ``rho``, ``beta``, if the problem has them. A
        schedule of learning rates is scaled as a whole.
    bounds
        Lowest and highest value of fields in ``over``. By default all rates, weight decay up to 1, and the usual range
        for other fields, such as a momentum up to 0.99, extended to the problem's own value.
    objective
        ``"test"`` or ``"train"`` loss.
    margin
        Safety margin: by what fraction the learning rate must be able to rise. The loss, without the label noise, may
        then rise by a tenth; a larger rise counts against the values. Without a margin (0) descents end in narrow dips
        at the edge of stability.
    starts
        Number of starts, at least 1.
    device
        ``"cpu"``, or a PyTorch device such as ``"cuda"``, where all problems are then solved.
    progress
        True for a line on stderr; or called as ``progress(done, total)``, counted in steps of solutions; ``total`` is
        a guess until the end.

    Raises
    ------
    ValueError
        If a field cannot be searched over, bounds are empty, or values within them do not go together.
    ArithmeticError
        If training diverges at every start, or no learning rate lowers the loss.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0), dl.Isotropic(0.5), dl.OnlineSGD(0.5), dl.GradientDescent(0.1), steps=12
    ... )
    >>> found = optimal(problem, ["lr", "richness"], starts=2)
    >>> found.loss <= dl.optimal_lr(problem).loss
    True
    """
    check(problem)
    objective, count = checks.word("objective", objective, OBJECTIVES), checks.whole("starts", starts)
    margin = checks.non_negative("margin", margin)
    axes = axes_of(problem, over, bounds)
    check_corners(problem, axes)
    work = count * (SEARCH + 10 * (2.5 * len(axes) + 4))
    search = JointSearch(problem, axes, objective, margin, Counter(read_progress(progress), work, scale=problem.steps))
    with searching_on(device):
        return _optimum(search, count)


def _optimum(search: JointSearch, starts: int) -> Optimum:
    """Search, and say what was found."""
    bottoms = search.run(starts)
    best = bottoms[0]
    losses = search.losses([each.x for each in bottoms])
    values = search.values(best.x)
    found = at(search.problem, values)
    stable = max_stable_lr(found).lr / rate_of(found)
    profiles, curvature = search.profiles(best), search.curvature(best)
    at_margin = search.penalty(best.x) > 0
    edge = _edge(search, found)
    search.counter.end()
    return Optimum(
        problem=found,
        values=values,
        loss=losses[0],
        binding=search.binding(best),
        at_margin=at_margin,
        minima=tuple(JointMinimum(search.values(each.x), loss) for each, loss in zip(bottoms, losses, strict=True)),
        profiles=profiles,
        curvature=curvature,
        stable_factor=stable,
        bounds={axis.name: (axis.low, axis.high) for axis in search.axes},
        objective=search.excess.objective,
        at_edge=at_margin or (edge is not None and edge.at_edge),
        **_safe(search, values, edge),
    )


def _edge(search: JointSearch, found: Problem) -> OptimalLr | None:
    """What is known of all rates at the best values of the other fields; None where the rate is not searched over."""
    if "lr" not in (axis.name for axis in search.axes):
        return None
    try:
        return optimal_lr(found, objective=search.excess.objective)
    except ArithmeticError:
        return None


def _safe(search: JointSearch, values: Mapping[str, float], edge: OptimalLr | None) -> dict[str, float]:
    """Return the rate with a margin and its loss, if it is within the bounds; that of a schedule as a factor."""
    if edge is None:
        return {}
    lr = edge.safe_lr * (values["lr"] if edge.is_factor else 1.0)
    (axis,) = (axis for axis in search.axes if axis.name == "lr")
    return {"safe_lr": lr, "safe_loss": edge.safe_loss} if axis.low <= lr <= axis.high else {}
