"""How training data reach the network: plain frozen data, no numerics.

Each rule is summed up by two numbers that enter the equations (see ``docs`` of the closure):
``reuse`` multiplies what the data remember of earlier steps, ``subsampling`` the white noise that
drawing a batch adds at each step. A finite network is told how many examples are ``drawn`` (0 where the data are
unlimited), whether they are ``fresh`` at every step, and the probability ``keep`` with which each enters a step.
"""

from dataclasses import dataclass, field, replace

from deeplinear._core import checks
from deeplinear._core.about import About, Kind, check_fields
from deeplinear._core.refusal import Refusal

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
    symbol=r"\alpha_B",
    check=checks.positive,
    unit="B/D",
    start=0.5,
    count=64,
    usual=(0.02, 20.0),
    usual_count=(1, 2048),
    log=True,
)
_SMALL_BATCH = About(
    "Correct for tiny batches",
    "Keep noise of order 1/B in the theory, for data whose directions are counted.",
    "switch",
    check=checks.flag,
)


@dataclass(frozen=True)
class Population:
    """Gradient descent on the population loss: unlimited data at every step.

    Examples
    --------
    >>> Population()
    Population()
    """

    kind = Kind("population", "population", "Unlimited data")
    reuse = 0.0
    subsampling = 0.0
    small_batch = False
    drawn = 0.0
    fresh = True
    keep = 1.0

    def merged(self, steps: float) -> "Population":
        """The rule of one step that stands for several: the same, as there is no noise."""
        return self


@dataclass(frozen=True)
class FullBatch:
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
    kind = Kind("full-batch", "full batch", "Full batch")
    subsampling = 0.0
    small_batch = False
    fresh = False
    keep = 1.0

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

    def merged(self, steps: float) -> "FullBatch":
        """The rule of one step that stands for several: the same, as there is no noise."""
        return self


@dataclass(frozen=True)
class OnlineSGD:
    """One-pass stochastic gradient descent: a fresh batch at every step.

    Parameters
    ----------
    batch
        Size of a batch in units of the input dimension, B/D (the count B where the data are
        dimension-free). Positive.
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

    batch: float = field(metadata=_BATCH.metadata)
    small_batch: bool = field(default=False, metadata=_SMALL_BATCH.metadata)
    kind = Kind("online", "online SGD", "Fresh batches")
    reuse = 0.0
    fresh = True
    keep = 1.0

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def drawn(self) -> float:
        """One batch, in the units of ``batch``."""
        return self.batch

    @property
    def subsampling(self) -> float:
        """1 / alpha_B."""
        return 1.0 / self.batch

    def merged(self, steps: float) -> "OnlineSGD":
        """The rule of one step that stands for several, with as much noise as all of them."""
        return replace(self, batch=steps * self.batch)


@dataclass(frozen=True)
class MultiPassSGD:
    """Stochastic gradient descent on a fixed data set, over and over.

    At every step each example is kept with probability ``batch / samples``, independently, and
    the gradient is divided by that probability. ``batch = samples`` is full-batch training.

    Parameters
    ----------
    samples
        Size of the data set in units of the input dimension, P/D. Positive.
    batch
        Expected size of a batch in the same units, B/D. Positive, at most ``samples``.

    Examples
    --------
    >>> MultiPassSGD(samples=2.0, batch=0.5).keep
    0.25
    """

    samples: float = field(metadata=_SAMPLES.metadata)
    batch: float = field(metadata=_BATCH.metadata)
    kind = Kind("multi-pass", "multi-pass SGD", "Batches, many passes")
    small_batch = False
    fresh = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.batch > self.samples:
            raise Refusal("batch", self.batch, f"at most samples ({self.samples!r})")

    @property
    def drawn(self) -> float:
        """The data set, in the units of ``samples``."""
        return self.samples

    @property
    def keep(self) -> float:
        """Probability with which each example enters a step."""
        return self.batch / self.samples

    @property
    def reuse(self) -> float:
        """1 / alpha."""
        return 1.0 / self.samples

    @property
    def subsampling(self) -> float:
        """(1 - b) / (b alpha), with b the probability of keeping an example."""
        return (1.0 - self.keep) / self.batch

    def merged(self, steps: float) -> "MultiPassSGD":
        """The rule of one step that stands for several: it keeps b' with (1 - b') / b' = (1 - b) / (steps b)."""
        keep = steps * self.keep / (1.0 - self.keep + steps * self.keep)
        return replace(self, batch=keep * self.samples)


Sampling = Population | FullBatch | OnlineSGD | MultiPassSGD
