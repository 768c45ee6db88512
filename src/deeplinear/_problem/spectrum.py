"""Data with structure: directions of unequal variance, each with its share of the target."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from deeplinear._core import checks, memory
from deeplinear._core.about import About, Kind, check_fields, keep
from deeplinear._core.cached import cached_property
from deeplinear._core.refusal import Refusal
from deeplinear._problem.data import NOISE, Matrix, Modes, directions
from deeplinear._problem.from_data import fit_rows
from deeplinear._problem.modes import read_eigenvalues, read_multiplicity, read_target_power
from deeplinear._problem.power_law import infinite_power_law, power_law
from deeplinear._problem.quadrature import HORIZON, Uncountable, compress

_SHORTEST = 1e4
"""Horizon that all shorter ones count as: little would be gained by still fewer modes."""

_MOMENTA = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
"""Momenta that others count as: the next one up, or the last."""

_SHOWN = 4

_BYTES_PER_MODE, _BYTES_PER_INPUT = 180, 32
"""Memory for each mode of a spectrum while it is made, and for each input of networks on a power law, as measured."""

_EIGENVALUES = About(
    "Input variances",
    "Variance of the inputs along the directions of each mode.",
    "list",
    symbol=r"\lambda_k",
    allowed="numbers, zero or above",
)
_TARGET_POWER = About(
    "Target powers",
    "Squared weight of the target along each direction of a mode.",
    "list",
    symbol="w_k^2",
    allowed="numbers, zero or above, one for each mode",
)
_MULTIPLICITY = About(
    "Directions in each mode",
    "Number of directions that share each mode, or the fraction of them; by default all modes have the same.",
    "list",
    symbol="p_k",
    allowed="positive numbers, one for each mode; fractions must sum to 1",
)
_PROPORTIONAL = About(
    "Modes are fractions",
    "Whether modes are fractions of D directions, and sizes ratios to D; otherwise both are counts.",
    "switch",
    check=checks.flag,
)
_CAPACITY = About(
    "Decay of the inputs",
    "The variance of direction k is k^-a: the larger a is, the fewer directions matter.",
    symbol="a",
    check=checks.Number("above 1 and at most 100", lambda value: 1 < value <= 100),
    start=1.5,
    usual=(1.05, 4.0),
)
_SOURCE = About(
    "Ease of the task",
    "The share of direction k in the target is k^(-ab-1): the larger b is, the easier the task; below 1 it is hard.",
    symbol="b",
    check=checks.positive,
    start=1.0,
    usual=(0.1, 3.0),
)


@dataclass(frozen=True)
class Spectrum:
    """Gaussian inputs with a given covariance spectrum, and a linear target with noise.

    Along a direction of mode k the inputs have variance ``eigenvalues[k]`` and the target has the squared weight
    ``target_power[k]``. There are two limits:

    - *Dimension-free*: a fixed, possibly infinite list of directions, x_k ~ N(0, lam_k) and
      y = sum_k w_k x_k + noise * eps. ``width``, ``samples`` and ``batch`` of the problem are counts N, P and B,
      and the network is ``f(x) = 1 / (N gamma0) w_L . prod_l (W_l / sqrt N) . W_0 x``. The equations hold for
      large counts; whether counts are large is judged against the number of directions being learned.
    - *Proportional*: D directions with D to infinity, a fraction of them in each mode, and
      y = sum_k w_k x_k / sqrt(D) + noise * eps. Sizes are ratios to D, as for ``Isotropic``, which is the
      case of one mode.

    Parameters
    ----------
    eigenvalues
        Variance of the inputs along the directions of each mode, zero or above.
    target_power
        Squared target weight w_k^2 along each direction of a mode, zero or above; for C outputs a C x C
        matrix per mode, symmetric and positive semidefinite.
    multiplicity
        How many directions share each mode (one by default), or which fraction of them if ``proportional``
        (equal by default; they must sum to 1). Positive; the theory takes any number, the simulation whole ones.
    proportional
        Whether the second of the two limits is meant.
    noise
        Standard deviation of the label noise, zero or above.

    Examples
    --------
    >>> Spectrum(eigenvalues=[1.0, 0.25], target_power=[1.0, 2.0], multiplicity=[1, 8])
    Spectrum(eigenvalues=(1.0, 0.25), target_power=(1.0, 2.0), multiplicity=(1.0, 8.0), proportional=False, noise=0.0)
    >>> Spectrum([2.0, 0.5], [1.0, 1.0], [0.2, 0.8], proportional=True).modes.weight
    array([0.2, 0.8])
    >>> Spectrum([1.0, 0.1], [[[1.0, 0.2], [0.2, 0.5]], [[0.0, 0.0], [0.0, 1.0]]]).outputs
    2
    """

    eigenvalues: tuple[float, ...] = field(metadata=_EIGENVALUES.metadata)
    target_power: tuple[float, ...] | tuple[Matrix, ...] = field(metadata=_TARGET_POWER.metadata)
    multiplicity: tuple[float, ...] | None = field(default=None, metadata=_MULTIPLICITY.metadata)
    proportional: bool = field(default=False, metadata=_PROPORTIONAL.metadata)
    noise: float = field(default=0.0, metadata=NOISE.metadata)
    kind: ClassVar[Kind] = Kind("spectrum", "spectrum", "Own spectrum")

    @staticmethod
    def counts(proportional: bool) -> bool:
        """Whether sizes beside such data are counts, with this value of ``proportional``."""
        return not proportional

    def __post_init__(self) -> None:
        keep(self, eigenvalues=read_eigenvalues(self.eigenvalues))
        keep(self, target_power=read_target_power(self.target_power, len(self.eigenvalues)))
        check_fields(self)
        if self.multiplicity is not None:
            keep(self, multiplicity=read_multiplicity(self.multiplicity, len(self.eigenvalues), self.proportional))

    def __repr__(self) -> str:
        if len(self.eigenvalues) > _SHOWN:
            limit = "proportional" if self.proportional else "dimension-free"
            low, high = min(self.eigenvalues), max(self.eigenvalues)
            return f"Spectrum({len(self.eigenvalues)} modes from {low:.4g} to {high:.4g}, {limit}, noise={self.noise})"
        names = ("eigenvalues", "target_power", "multiplicity", "proportional", "noise")
        return f"Spectrum({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    @classmethod
    def power_law(cls, capacity: float, source: float, modes: int | None = None, noise: float = 0.0) -> "Spectrum":
        """Return a power law: eigenvalues k^-capacity, target w_k^2 lam_k = k^(-capacity * source - 1), k = 1, 2, ...

        Parameters
        ----------
        capacity
            Decay of the eigenvalues, above 1 (so that their sum is finite) and at most 100.
        source
            Decay of the target, positive and at most 1000; easier tasks have a larger one. An infinitely wide lazy
            network without sampling noise learns as time^-source.
        modes
            How many modes to take, k = 1 .. modes. ``None`` means all of them, to infinity: the sums over k are then
            taken over a few dozen modes that represent all of them, with an error of 1e-7 in the sense of ``compress``.
            They are those that a run of so many steps, with its momentum, can tell apart. Training that gets further,
            as it cannot where it is stable, or to eigenvalues below 1e-12 is refused with an ``ArithmeticError``. The
            result remembers its law: it is written to a file as such, and ``simulate`` with ``dim=D`` trains on its
            first D modes.
        noise
            Standard deviation of the label noise.

        Examples
        --------
        >>> Spectrum.power_law(1.5, 0.5, modes=2)
        Spectrum(eigenvalues=(1.0, 0.3535533905932738), target_power=(1.0, 0.8408964152537145), \
multiplicity=None, proportional=False, noise=0.0)
        >>> law = Spectrum.power_law(capacity=1.5, source=0.5, noise=0.1)
        >>> law
        PowerLaw(capacity=1.5, source=0.5, noise=0.1)
        >>> len(law.eigenvalues) < 110
        True
        """
        law = PowerLaw(capacity=capacity, source=source, noise=noise)
        if modes is None:
            return law
        memory.require(_BYTES_PER_MODE * checks.whole("modes", modes), "a spectrum of so many modes", "lower modes")
        return _from_modes(law.finite(modes), noise=law.noise)

    @classmethod
    def from_data(cls, x: Any, y: Any) -> "Spectrum":
        """Return the spectrum of a data set, taken as the population that training samples from.

        Means are subtracted from inputs and targets (the networks have no bias: train them on centred
        data). Modes are the eigenvectors of the covariance x^T x / samples. The target power of a mode is the squared
        weight of the least-squares fit of y along it, and the noise is the root mean square of what that fit leaves,
        over samples and outputs. So the test loss is predicted on the data set itself, and
        the samples and batches of a problem are counts of rows drawn from it.

        Theory then uses a Gaussian surrogate in place of the rows: it ignores that real inputs are not Gaussian and
        that residuals depend on them. ``simulate`` trains on this surrogate too, unless it is given the rows,
        ``simulate(problem, data=(x, y))``; its ``inputs``, and those of ``compare``, say which of the two was used.

        Parameters
        ----------
        x
            Inputs, shape (samples, features). Constant columns and directions without variance are left out.
            Columns whose scales differ by more than 10^7 are refused, since the smaller eigenvalues would be lost in
            rounding. There must be more samples than directions, otherwise any target would be fitted without noise.
        y
            Targets, shape (samples,) or (samples, outputs).

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> x = rng.standard_normal((5000, 2)) * [1.0, 0.1]
        >>> y = x @ [0.5, 3.0] + 0.2 * rng.standard_normal(5000)
        >>> spectrum = Spectrum.from_data(x, y)
        >>> np.round(spectrum.eigenvalues, 2), np.round(spectrum.target_power, 1), round(spectrum.noise, 2)
        (array([1.01, 0.01]), array([0.2, 8.9]), 0.2)
        """
        fit = fit_rows(x, y)
        return _from_modes(fit.modes, noise=fit.noise)

    def compress(self, tolerance: float = 1e-6, momentum: float = 0.0) -> "Spectrum":
        """Return a spectrum with fewer modes and the same predictions, so that cost does not grow with their number.

        In each decade, modes are replaced by the nodes of a Gauss rule for the sums over modes that
        the equations take, which are compared with the exact ones: they agree to ``tolerance`` for everything that
        training can do to a mode, exp(-s lam) with s up to 10^12 / lam_max or (1 - c lam)^t with c up to 1.9 / lam_max.
        The tolerance is relative, until a sum is a thousandth of its initial value. Momentum makes modes swing, each at
        its own pace, which is covered up to the momentum that is given. Training at the very edge of stability on a
        continuum of largest eigenvalues is not covered.

        A smooth spectrum takes about 7 modes per decade of eigenvalues, and a rough target up to twice as many. The
        result can be solved but not, in general, simulated, since its multiplicities are not whole.

        Parameters
        ----------
        tolerance
            Relative error allowed, positive.
        momentum
            The largest momentum of training, at least 0 and below 1. Near 1 it takes several times as many modes.

        Examples
        --------
        >>> many = Spectrum.power_law(1.5, 0.5, modes=10_000)
        >>> few = many.compress()
        >>> len(few.eigenvalues) < 60
        True
        """
        fewer = compress(
            self.modes,
            checks.positive("tolerance", tolerance),
            momentum=checks.fraction_below_one("momentum", momentum),
        )
        if len(fewer.eigenvalues) >= len(self.eigenvalues):
            return self
        if self.proportional:
            fewer = _filled_up(fewer)
        return _from_modes(fewer, proportional=self.proportional, noise=self.noise)

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is cached out of copies, so that a copy may be changed."""
        return {name: value for name, value in self.__dict__.items() if name != "modes"}

    @property
    def outputs(self) -> int:
        """Number C of outputs."""
        first = self.target_power[0]
        return len(first) if isinstance(first, tuple) else 1

    @property
    def dimension_free(self) -> bool:
        """Whether sizes in a problem are counts; otherwise they are ratios to the input dimension."""
        return not self.proportional

    @property
    def own_dim(self) -> int | None:
        """Number of directions, where the data fix it; None where the input dimension is to be chosen."""
        return None if self.proportional else int(self.modes.weight.sum())

    @cached_property
    def modes(self) -> Modes:
        """The spectrum as the equations take it."""
        count = len(self.eigenvalues)
        if self.multiplicity is not None:
            weight = np.array(self.multiplicity)
        else:
            weight = np.full(count, 1.0 / count if self.proportional else 1.0)
        target = np.array(self.target_power).reshape(count, self.outputs, self.outputs)
        return Modes(np.array(self.eigenvalues), target, weight)

    def modes_within(self, horizon: float, momentum: float) -> Modes:
        """Return the modes that training up to a horizon tells apart: all that are given."""
        return self.modes

    def finite(self, dim: int | None) -> Modes:
        """Return the modes of a network with ``dim`` inputs, each with its number of directions as weight."""
        if self.proportional:
            return directions(self.modes, dim)
        weight = self.modes.weight
        broken = np.flatnonzero(weight != np.round(weight))
        if len(broken):
            k = int(broken[0])
            raise Refusal(
                "multiplicity",
                float(weight[k]),
                "whole in a simulation",
                got=f"{weight[k]:.6g} for mode {k}",
                rest=": a compressed spectrum can be solved, not simulated",
            )
        total = int(weight.sum())
        if dim is not None and checks.whole("dim", dim) != total:
            raise Refusal("dim", dim, f"{total}, the number of directions of the spectrum, or left out")
        return self.modes


@dataclass(frozen=True)
class PowerLaw(Spectrum):
    """The power law with infinitely many modes that ``Spectrum.power_law`` returns.

    As a spectrum it is a compressed one, but it is compared, printed and stored as the law itself.

    Examples
    --------
    >>> law = PowerLaw(capacity=2.0, source=1.0)
    >>> law.finite(3).eigenvalues
    array([1.        , 0.25      , 0.11111111])
    """

    eigenvalues: tuple[float, ...] = field(init=False, compare=False)
    target_power: tuple[float, ...] = field(init=False, compare=False)
    multiplicity: tuple[float, ...] = field(init=False, compare=False)
    proportional: bool = field(init=False, compare=False, default=False)
    noise: float = field(default=0.0, metadata=NOISE.metadata)
    capacity: float = field(kw_only=True, metadata=_CAPACITY.metadata)
    source: float = field(kw_only=True, metadata=_SOURCE.metadata)
    kind: ClassVar[Kind] = Kind("power-law", "power law", "Power law", call="Spectrum.power_law")
    own_dim: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.source > 1000:
            allowed = "above 0 and at most 1000"
            raise Refusal("source", self.source, allowed, rest=": beyond it only the first mode counts")
        try:
            modes = infinite_power_law(self.capacity, self.source)
        except Uncountable:
            why = ": the power of its target is next to infinite"
            raise Refusal("source", self.source, f"larger at capacity {self.capacity:g}", rest=why) from None
        keep(
            self,
            eigenvalues=tuple(modes.eigenvalues.tolist()),
            target_power=tuple(modes.target[:, 0, 0].tolist()),
            multiplicity=tuple(modes.weight.tolist()),
        )

    def __repr__(self) -> str:
        return f"PowerLaw(capacity={self.capacity}, source={self.source}, noise={self.noise})"

    @cached_property
    def modes(self) -> Modes:
        """The compressed spectrum, which knows how far it reaches."""
        return infinite_power_law(self.capacity, self.source)

    def modes_within(self, horizon: float, momentum: float) -> Modes:
        """Return the modes that training up to a horizon tells apart.

        Parameters
        ----------
        horizon
            Training time, kernel times learning rate summed over steps, times the largest eigenvalue. It is rounded up
            to a power of ten, so that runs of similar length share their modes.
        momentum
            Momentum of training, rounded up likewise.
        """
        rounded = next((each for each in _MOMENTA if each >= momentum), _MOMENTA[-1])
        horizon *= max(1.0, (1.0 - momentum) / (1.0 - rounded))  # to which as many steps get
        decades = math.ceil(math.log10(min(max(horizon, _SHORTEST), HORIZON)))
        return infinite_power_law(self.capacity, self.source, 10.0**decades, rounded)

    def finite(self, dim: int | None) -> Modes:
        """Return the first ``dim`` modes."""
        if dim is None:
            raise Refusal("dim", None, "given for an infinite power law: how many of its modes to train on")
        memory.require(_BYTES_PER_INPUT * checks.whole("dim", dim), "a power law of so many inputs", "lower dim")
        return power_law(self.capacity, self.source, np.arange(1.0, dim + 1))


def _from_modes(modes: Modes, *, proportional: bool = False, noise: float = 0.0) -> Spectrum:
    target = modes.target[:, 0, 0] if modes.target.shape[1] == 1 else modes.target
    weight = None if (modes.weight == 1).all() else modes.weight
    return Spectrum(modes.eigenvalues, target, weight, proportional, noise)  # type: ignore[arg-type]


def _filled_up(modes: Modes) -> Modes:
    """Let fractions sum to 1 again, with a mode of eigenvalue zero: no sum that matters has it."""
    missing = 1.0 - modes.weight.sum()
    if missing <= 1e-12:
        return Modes(modes.eigenvalues, modes.target, modes.weight / modes.weight.sum())
    zero = np.zeros((1, *modes.target.shape[1:]))
    return Modes(np.append(modes.eigenvalues, 0.0), np.append(modes.target, zero, 0), np.append(modes.weight, missing))
