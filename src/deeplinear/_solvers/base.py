"""What a solver is, and what it answers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.progress import Progress
from deeplinear._equations.coefficients import Structure
from deeplinear._equations.system import Equations, matrices_read
from deeplinear._problem.phase import AnyOptimizer
from deeplinear._problem.problem import Problem
from deeplinear._rules.averages import Average
from deeplinear._rules.series import is_constant
from deeplinear._time.axis import TimeAxis

Array = NDArray[Any]


class Unresolved(ArithmeticError):
    """A solver cannot reach the tolerance for a problem, or not at a cost that pays; the text says what to change.

    Attributes
    ----------
    outcomes
        Of a batch of several problems: the answer to each, or why there is none. Empty for a problem on its own.
    """

    def __init__(self, reason: str, outcomes: "Sequence[Answer | Unresolved]" = ()) -> None:
        super().__init__(reason)
        self.outcomes = outcomes


def not_plain(problem: Problem) -> str | None:
    """Why training is more than plain descent, which long runs need, as the end of a sentence."""
    return next(filter(None, (_not_plain(stage.optimizer) for stage in problem.stages)), None)


def _not_plain(optimizer: AnyOptimizer) -> str | None:
    if not optimizer.is_plain:
        return f"with {optimizer.kind.title}" + (" and clip" if optimizer.scaling and optimizer.scaling.clip else "")
    if not is_constant(optimizer.momentum) or optimizer.momentum:
        return "with momentum"
    return None if is_constant(optimizer.weight_decay) else "with a schedule of weight_decay"


class Overlaps(NamedTuple):
    """C_v(t, t) between two networks that share all of their randomness or part of it, in NumPy, (batch, rows)."""

    same: Array  # they share everything
    same_data: Array  # they share the data and batches, but not the initial weights
    same_init: Array  # the other way round
    independent: Array  # neither


class Run(Protocol):
    """Equations of a batch of problems whose rows have all been filled."""

    diverged_at: NDArray[np.int64]

    @property
    def equations(self) -> Equations:
        """The equations."""
        ...

    @property
    def overlaps(self) -> Overlaps:
        """Overlaps of networks that share only part of their randomness."""
        ...

    @property
    def test_losses(self) -> Callable[[NDArray[np.int64]], Array]:
        """Test losses at whole steps, shape (steps, batch), as a function that keeps nothing else of the run."""
        ...


class Curves(NamedTuple):
    """Functions of one time, as in ``Solution`` and ``Decomposition``, each of shape (times,)."""

    test_loss: Array
    train_loss: Array
    kernel: Array
    bias: Array
    width: Array
    data: Array

    def map(self, change: Callable[[Array], Array]) -> "Curves":
        """Change each of them in the same way."""
        return Curves(*map(change, self))


@dataclass(frozen=True, eq=False)
class Answer:
    """What a solver found for one problem.

    Attributes
    ----------
    solver
        The configuration that finds the same answer again.
    axis
        The times of the curves.
    diverged_at, rounding_at
        Steps, as in ``Status``.
    curves
        Functions of one time: inf from a divergence on, and complex where a field of the problem is.
    stats
        How it was found, for people to read.
    averaged_test_loss, task_loss
        As in ``Solution``.
    run, index
        The filled equations, and which problem of their batch this is; None where there are none.
    matrices
        Functions of two times, as in ``Solution``, of a solver that has no equations to read them off.
    """

    solver: "Solver"
    axis: TimeAxis
    diverged_at: int | None
    rounding_at: int | None
    curves: Curves
    stats: dict[str, Any]
    averaged_test_loss: Array = field(default_factory=lambda: np.zeros((0, 0)))
    task_loss: Array = field(default_factory=lambda: np.zeros((0, 0)))
    run: Run | None = None
    index: int = 0
    matrices: Mapping[str, Array] = field(default_factory=dict)


class Work(NamedTuple):
    """What a solver has to do: its equations, how often all of their matrices are gone through, and the bytes held."""

    shape: Structure
    passes: float
    bytes: int

    @property
    def numbers(self) -> float:
        """Numbers that are read: step t reads the leading block of every matrix."""
        return self.passes * matrices_read(self.shape) * self.shape.size**3 / 3 / self.shape.outputs


@dataclass(frozen=True)
class Solver(ABC):
    """A way to solve the equations, with its options: a value that never changes.

    1. ``why_not`` says why a problem cannot be solved this way, as the end of a sentence; None if it can.
    2. ``estimate`` says what solving a problem takes.
    3. ``batches`` says which problems of a list are best solved together.
    4. ``solve`` answers such a batch. Diverging training is an answer. What is too large for the memory available is
       refused with MemoryError before it starts, and what cannot be resolved with ``Unresolved``.
    """

    name: ClassVar[str]
    is_automatic: ClassVar[bool] = True  # whether it may be taken without being asked for
    is_last: ClassVar[bool] = False  # that is tried: it can solve every problem, given time and memory
    takes_over: ClassVar[bool] = False  # what others have not resolved
    has_averages: ClassVar[bool] = False  # losses of averaged weights too
    why_processor: ClassVar[str] = ""  # why it runs on no other device, where it does not
    goes_first: ClassVar[bool] = False  # wherever it can, whatever others would take
    goes_on: ClassVar[bool] = False  # with a run, too, that does not begin as it should
    beginning: ClassVar[int] = 0  # steps whose work tells whether a run does

    @property
    def depth_nodes(self) -> int | None:
        """Number of nodes in depth, 0 where every layer is solved; None where that is not decided, or not known."""
        return None

    @property
    def error_in_time(self) -> float | None:
        """Relative error of the losses that is allowed where not every step is kept as it is; None where it is."""
        return None

    @property
    def averages(self) -> tuple[Average, ...]:
        """Averages of the weights whose losses are found too."""
        return ()

    @abstractmethod
    def why_not(self, problem: Problem) -> str | None:
        """Why the problem cannot be solved this way, None if it can."""

    @abstractmethod
    def estimate(self, problem: Problem) -> Work:
        """What it takes to solve the problem."""

    def batches(self, problems: Sequence[Problem]) -> Iterator[list[int]]:
        """Positions of problems that are solved together."""
        yield from ([index] for index in range(len(problems)))

    def estimate_of_oscillations(self, problem: Problem) -> Work:
        """Return the work of a run that oscillates at the edge of stability."""
        return self.estimate(problem)

    def most(self, problem: Problem) -> Work:
        """What it takes at most, where training begins smoothly and comes to oscillate later."""
        return self.estimate(problem)

    def memory(self, problems: Sequence[Problem]) -> int:
        """Bytes that the answers to a batch keep, as far as this is known beforehand."""
        return 0

    def overlaps(self, problem: Problem) -> Overlaps | None:
        """Overlaps of replicas, from a solver that finds them in a way of its own; None if its runs have them."""
        return None

    @property
    def of_two_times(self) -> "Solver":
        """What finds the functions of two times that a solution of this one has, and its answers do not."""
        return self

    def with_every_pair(self) -> "Solver":
        """Return a solver whose solutions have functions of two times at every pair, solved when they are asked for."""
        return self

    def hurried(self, part: float) -> "Solver":
        """Return a solver that gives up when it has done this part of the work of solving every step."""
        return self

    def begins(self, problem: Problem) -> bool:
        """Whether the run begins in a way that can be solved so, as far as that is tried beforehand."""
        return True

    def most_steps(self, problem: Problem) -> float:
        """Steps of its own beyond which it gives a run up."""
        return math.inf

    def given_up(self, problem: Problem) -> Work:
        """What it takes until a run that does not begin so is given up, or solved all the same."""
        return self.estimate(problem)

    @abstractmethod
    def solve(self, problems: Sequence[Problem], progress: Progress | None = None) -> list[Answer]:
        """Solve problems that belong to one batch; ``progress`` is called with the steps done and their number."""
