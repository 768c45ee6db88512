"""How training data reach the network: plain frozen data, no numerics.

Each rule is summed up by two numbers that enter the equations (see ``_equations/layer_zero.py``):
``reuse`` multiplies what the data remember of earlier steps, ``subsampling`` the white noise that
drawing a batch adds at each step, if the rule ``subsamples``. The rule also says whether its batch ``changes_in_time``.
A finite network is told how many examples are ``drawn`` (0 where the data are unlimited), whether they are ``fresh``
at every step, and the probability ``keeps`` with which each enters a step. Whoever counts asks for the ``sizes`` of
data set and batch and for the ``examples`` that all updates see. ``_Rule`` has the answers of a rule without batches.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.about import About, Kind, check_fields
from deeplinear._core.refusal import Refusal
from deeplinear._rules.schedules import Schedule
from deeplinear._rules.series import Series, SeriesCheck, is_constant, series_values

_SAMPLES = About(
    "Data set size",
    "Number of examples in the data set.",
    symbol=r"\alpha",
    check=checks.positive,
    unit="P/D",
    start=2.0,
    count=512,
    usual=(0.1, 20.0),
    usual_count=(8, 8192),
    log=True,
)
_BATCH = About(
    "Batch size",
    "Number of examples in each step. Small batches make noisy steps.",
    "series",
    symbol=r"\alpha_B",
    check=SeriesCheck(checks.positive, checks.positive, functions=False),
    unit="B/D",
    start=0.5,
    count=64,
    usual=(0.02, 20.0),
    usual_count=(1, 2048),
    log=True,
)
_SMALL_BATCH = About(
    "Correct for tiny batches",
    "Keep the noise of order 1/B in the theory; only for data whose sizes are counts.",
    "switch",
    check=checks.flag,
)


class _Rule:
    """What all rules have in common, answered for one that takes all its data at every step."""

    subsamples: ClassVar[bool] = False
    small_batch: bool = False

    @property
    def changes_in_time(self) -> bool:
        """Whether the batch depends on the step."""
        return False

    @property
    def sizes(self) -> dict[str, float]:
        """Size of the data set and of the largest batch, as far as the rule has them, by the names of their fields."""
        return {}

    def subsampling(self, steps: int) -> NDArray[Any]:
        """No noise at any of ``steps`` steps, shape (steps,)."""
        return np.zeros(steps)

    def keeps(self, steps: int) -> NDArray[Any]:
        """Probability of each example at each step, 1, shape (steps,)."""
        return np.ones(steps)

    def first(self, count: int, steps: int) -> Self:
        """The same rule for the first ``count`` of ``steps`` steps alone."""
        return self

    def merged(self, steps: float) -> Self:
        """The rule of one step that stands for several: the same, as there is no noise."""
        return self

    def steady(self, steps: int) -> Self:
        """The same rule with the largest batch of ``steps`` steps at all of them."""
        return self

    def smaller(self, part: float) -> Self:
        """The same rule with a part of its sizes, which are counts, of one example at least."""
        sizes = {name: max(1.0, part * size) for name, size in self.sizes.items()}
        return replace(self, **sizes)  # type: ignore[type-var]


class _Batches(_Rule):
    """What rules that draw batches have in common."""

    batch: float | tuple[float, ...] | Schedule
    subsamples: ClassVar[bool] = True

    @property
    def changes_in_time(self) -> bool:
        """Whether the batch depends on the step."""
        return not is_constant(self.batch)

    def batches(self, steps: int) -> NDArray[Any]:
        """Size of the batch, or its mean, at each of ``steps`` steps, shape (steps,)."""
        return series_values("batch", self.batch, steps, checks.positive)

    def examples(self, steps: int) -> float:
        """Number of examples that the updates between ``steps`` steps see in all, in the units of ``batch``."""
        return float(self.batches(steps)[:-1].sum())

    def first(self, count: int, steps: int) -> Self:
        """The same rule for the first ``count`` of ``steps`` steps alone."""
        return self._with_batch(tuple(self.batches(steps)[:count].tolist())) if self.changes_in_time else self

    def steady(self, steps: int) -> Self:
        """The same rule with the largest batch of ``steps`` steps at all of them."""
        return self._with_batch(float(self.batches(steps).max())) if self.changes_in_time else self

    def _with_batch(self, batch: float | tuple[float, ...]) -> Self:
        return replace(self, batch=batch)  # type: ignore[type-var]


@dataclass(frozen=True)
class Population(_Rule):
    """Gradient descent on the population loss: unlimited data at every step.

    Examples
    --------
    >>> Population()
    Population()
    """

    kind: ClassVar[Kind] = Kind("population", "population", "Unlimited data")
    reuse: ClassVar[float] = 0.0
    drawn: ClassVar[float] = 0.0
    fresh: ClassVar[bool] = True

    def examples(self, steps: int) -> float:
        """One for each of the updates between ``steps`` steps."""
        return steps - 1.0


@dataclass(frozen=True)
class FullBatch(_Rule):
    """Gradient descent on the same ``samples`` examples at every step.

    Parameters
    ----------
    samples
        Size of the data set in units of the input dimension, P/D (the count P where the data
        are dimension-free). Positive.

    Examples
    --------
    >>> FullBatch(samples=2.0)
    FullBatch(samples=2.0)
    """

    samples: float = field(metadata=_SAMPLES.metadata)
    kind: ClassVar[Kind] = Kind("full-batch", "full batch", "Full batch")
    fresh: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def drawn(self) -> float:
        """The data set, in the units of ``samples``."""
        return self.samples

    @property
    def reuse(self) -> float:
        """1 / alpha."""
        return 1.0 / self.samples

    @property
    def sizes(self) -> dict[str, float]:
        """Size of the data set, by the name of its field."""
        return {"samples": self.samples}

    def examples(self, steps: int) -> float:
        """Number of examples that the updates between ``steps`` steps see in all, in the units of ``samples``."""
        return self.samples * (steps - 1)


@dataclass(frozen=True)
class OnlineSGD(_Batches):
    """One-pass stochastic gradient descent: a fresh batch at every step.

    Parameters
    ----------
    batch
        Size of a batch in units of the input dimension, B/D (the count B where the data are
        dimension-free). Positive; one number, one for each step, or a schedule of ``deeplinear.schedules``.
    small_batch
        Whether the theory keeps the noise that the error along a direction of the data makes in the gradient
        along the same direction, of order 1/B. The limit of large batches drops it; at B = 1 to 4 it is
        one to three per cent of the loss, and keeping it makes lazy networks exact. For dimension-free data
        and one output. Networks always have it.

    Examples
    --------
    >>> OnlineSGD(batch=0.25)
    OnlineSGD(batch=0.25, small_batch=False)
    """

    batch: float | tuple[float, ...] | Schedule = field(metadata=_BATCH.metadata)
    small_batch: bool = field(default=False, metadata=_SMALL_BATCH.metadata)
    kind: ClassVar[Kind] = Kind("online", "online SGD", "Fresh batches")
    reuse: ClassVar[float] = 0.0
    fresh: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def drawn(self) -> float:
        """The largest batch, in the units of ``batch``."""
        return _largest(self.batch)

    @property
    def sizes(self) -> dict[str, float]:
        """Size of the largest batch, by the name of its field."""
        return {"batch": self.drawn}

    def subsampling(self, steps: int) -> NDArray[Any]:
        """1 / alpha_B at each of ``steps`` steps, shape (steps,)."""
        return 1.0 / self.batches(steps)

    def merged(self, steps: float) -> Self:
        """The rule of one step that stands for several, with as much noise as all of them."""
        assert not self.changes_in_time
        return replace(self, batch=steps * self.batch)  # type: ignore[operator]


@dataclass(frozen=True)
class MultiPassSGD(_Batches):
    """Stochastic gradient descent on a fixed data set, over and over.

    At every step each example is kept with probability ``batch / samples``, independently, and
    the gradient is divided by that probability. ``batch = samples`` is full-batch training.

    Parameters
    ----------
    samples
        Size of the data set in units of the input dimension, P/D. Positive.
    batch
        Expected size of a batch in the same units, B/D. Positive, at most ``samples``; one number, one for each
        step, or a schedule of ``deeplinear.schedules``.

    Examples
    --------
    >>> MultiPassSGD(samples=2.0, batch=0.5).keeps(2)
    array([0.25, 0.25])
    """

    samples: float = field(metadata=_SAMPLES.metadata)
    batch: float | tuple[float, ...] | Schedule = field(metadata=_BATCH.metadata)
    kind: ClassVar[Kind] = Kind("multi-pass", "multi-pass SGD", "Batches, many passes")
    fresh: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)
        if _largest(self.batch) > self.samples:
            raise Refusal("batch", self.batch, f"at most samples ({self.samples!r})")

    @property
    def drawn(self) -> float:
        """The data set, in the units of ``samples``."""
        return self.samples

    @property
    def sizes(self) -> dict[str, float]:
        """Size of the data set and of the largest batch, by the names of their fields."""
        return {"samples": self.samples, "batch": _largest(self.batch)}

    def keeps(self, steps: int) -> NDArray[Any]:
        """Probability with which each example enters each of ``steps`` steps, shape (steps,)."""
        return np.asarray(self.batches(steps) / self.samples)

    @property
    def reuse(self) -> float:
        """1 / alpha."""
        return 1.0 / self.samples

    def subsampling(self, steps: int) -> NDArray[Any]:
        """(1 - b) / (b alpha) at each step, with b the probability of keeping an example, shape (steps,)."""
        return np.asarray((1.0 - self.keeps(steps)) / self.batches(steps))

    def merged(self, steps: float) -> Self:
        """The rule of one step that stands for several: it keeps b' with (1 - b') / b' = (1 - b) / (steps b)."""
        (b,) = self.keeps(1)
        return replace(self, batch=steps * b / (1.0 - b + steps * b) * self.samples)


def _largest(batch: Series) -> float:
    if isinstance(batch, Schedule):
        return batch.peak
    return max(batch) if isinstance(batch, tuple) else batch  # type: ignore[return-value]


Sampling = Population | FullBatch | OnlineSGD | MultiPassSGD
