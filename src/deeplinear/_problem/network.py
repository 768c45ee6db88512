"""The networks that can be trained: plain frozen data, no numerics."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.about import About, Kind, check_fields, keep
from deeplinear._core.refusal import Refusal
from deeplinear._core.words import INFINITE
from deeplinear._rules.layers import LayerCheck, Layers, PerLayer, check_count, every_layer

LEAST_RICHNESS = 1e-100
"""Below this the loss of a network that is not centered, and what is made of it, would leave the range of numbers."""


_MOST_LOG_GAIN = 100 * math.log(10)
"""Likewise for branches that amplify more, as the logarithm of their gain."""


_MOST_LISTED = 1024
"""Most hidden layers whose weights are told apart, unless their widths differ."""

_DEPTH = About(
    "Depth",
    "Number of hidden layers.",
    "whole",
    symbol="L",
    allowed=checks.Whole().allowed,
    start=3,
    usual=(1, 16),
)
_WIDTH = About(
    "Width",
    "Number of neurons in each hidden layer.",
    "numbers",
    symbol=r"\nu",
    allowed="a positive finite number, or one for each hidden layer",
    unit="N/D",
    start=1.0,
    count=256,
    usual=(0.05, 16.0),
    usual_count=(4, 4096),
    log=True,
    infinite=True,
)
_RICHNESS = About(
    "Richness",
    "How far features move during training: near 0 the network is lazy, and with large values it learns features.",
    symbol=r"\gamma_0",
    check=checks.positive,
    usual=(0.05, 10.0),
    log=True,
)
_PARAMETERIZATIONS = {"mup": "muP", "ntk": "NTK", "standard": "standard"}
_PARAMETERIZATION = About(
    "Scaling with width",
    "In muP features move equally far at every width; in NTK they move less the wider the network is; in the "
    "standard one steps grow with the width.",
    "choice",
    check=checks.Word(tuple(_PARAMETERIZATIONS), any_case=True),
    choices=_PARAMETERIZATIONS,
)
_CENTERED = About(
    "Start from zero output", "Subtract the output of the untrained network.", "switch", check=checks.flag
)
_BRANCH = About(
    "Branch strength",
    "How much each layer adds to the residual stream.",
    symbol=r"\beta_0",
    check=checks.non_negative,
    usual=(0.0, 4.0),
)
_BRANCH_SCALINGS = {"depth-mup": "depth-muP", "none": "unscaled"}


@dataclass(frozen=True)
class _WordOrPower:
    """One of a few words, or a power of 1 / depth."""

    allowed: str = f"{' or '.join(map(repr, _BRANCH_SCALINGS))}, or a power of 1/depth, zero or above"

    def __call__(self, name: str, value: Any, /) -> str | float:
        if isinstance(value, str) and value.lower() in _BRANCH_SCALINGS:
            return value.lower()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return checks.non_negative(name, value)
        raise Refusal(name, value, self.allowed)


_BRANCH_SCALING = About(
    "Scaling with depth",
    "In depth-muP the branches shrink as 1/√L, so that very deep networks have a limit. A number p lets them shrink as "
    "1/L^p, with rates of the hidden weights to match: 1 gives CompleteP.",
    "word or number",
    check=_WordOrPower(),
    choices=_BRANCH_SCALINGS,
)
_INIT_SCALE = About(
    "Initial scale of each layer",
    "Standard deviation of the initial weights of each layer, in units of the usual one.",
    "layers",
    check=LayerCheck(checks.non_negative),
)


@dataclass(frozen=True)
class Network:
    """What multilayer and residual networks have in common; not made directly."""

    skip: ClassVar[bool] = False
    """Whether layers add to what comes from below."""
    changes_slowly_with_depth: ClassVar[bool] = False
    """Whether one layer differs little from the next in a deep network."""
    branches_vanish: ClassVar[bool] = False
    """Whether infinitely many branches are so weak that their initial weights and squared gradients vanish."""

    depth: int | float = field(metadata=_DEPTH.metadata)
    width: float | tuple[float, ...] | Literal["infinite"] = field(metadata=_WIDTH.metadata)
    richness: float = field(default=1.0, metadata=_RICHNESS.metadata)
    parameterization: str = field(default="mup", metadata=_PARAMETERIZATION.metadata)
    centered: bool = field(default=False, metadata=_CENTERED.metadata)
    init_scale: PerLayer = field(default=None, metadata=_INIT_SCALE.metadata, kw_only=True)

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.centered and self.richness < LEAST_RICHNESS:
            raise Refusal(
                "richness",
                self.richness,
                f"at least {LEAST_RICHNESS:g} unless centered",
                rest=": the function at initialisation is as large as 1 / richness",
            )

    @property
    def layers(self) -> int:
        """Number of hidden layers; finite depth only."""
        return int(self.depth)

    @property
    def hidden_matrices(self) -> int | None:
        """Number of weight matrices between hidden layers; None where one entry of a list stands for all of them.

        This is so at infinite depth, and where there are so many of equal width that nobody lists them.
        """
        if self.depth == math.inf:
            return None
        return None if self.layers > _MOST_LISTED and len(self.given_widths) == 1 else self.layers - 1

    @property
    def branch_factor(self) -> float:
        """Factor in front of what a hidden weight matrix adds."""
        return 1.0

    @property
    def initial_scales(self) -> NDArray[Any]:
        """Standard deviation of the initial weights of each layer, first to last, shape (L + 1,).

        One entry stands for all hidden matrices at infinite depth, or where there are very many.
        """
        return every_layer("init_scale", self.init_scale, self.hidden_matrices)

    @property
    def fan_ins(self) -> NDArray[Any]:
        """Fan-in of each weight layer over D where weights have the variance 1 / fan-in, as standard ones do.

        Shape (L + 1,); ones in the other parameterizations, whose weights have variance 1.
        """
        count = 1 if self.hidden_matrices is None else self.hidden_matrices
        if self.parameterization != "standard":
            return np.ones(count + 2)
        widths = self.given_widths if len(self.given_widths) > 1 else self.given_widths * (count + 1)
        return np.array([1.0, *widths])

    def branch_rate(self, own_size: bool) -> float:
        """Factor on the learning rate of hidden weights that makes up for the number of branches.

        Parameters
        ----------
        own_size
            Whether steps have a size of their own, or that of the gradient of their layer.
        """
        return 1.0

    @property
    def log_initial_gain(self) -> float:
        """Logarithm of how much the initial hidden weights amplify in all."""
        scales = self.initial_scales[1:-1]
        if not scales.all():
            return -math.inf
        logs = 2 * np.log(np.abs(scales))
        return float(logs.sum() if self.hidden_matrices is not None else (self.layers - 1) * logs[0])

    @property
    def given_widths(self) -> tuple[float, ...]:
        """The one width of all hidden layers, or the width of each where they differ; ``inf`` in the infinite limit."""
        if isinstance(self.width, str):
            return (math.inf,)
        return self.width if isinstance(self.width, tuple) else (self.width,)

    @property
    def end_widths(self) -> tuple[float, float]:
        """Width of the first and of the last hidden layer; ``inf`` in the infinite limit."""
        return self.given_widths[0], self.given_widths[-1]

    @property
    def widths(self) -> tuple[float, ...]:
        """Width of each hidden layer, in the units of ``width``, ``inf`` in the infinite limit; finite depth only."""
        return self.given_widths if len(self.given_widths) > 1 else self.given_widths * self.layers

    @property
    def gamma0(self) -> float:
        """The richness that stands in the equations, after the parameterization (0 if lazy)."""
        return self.richness * self.gamma0_per_richness

    @property
    def gamma0_per_richness(self) -> float:
        """1 in muP, 1 / sqrt(nu_L) in the others."""
        root: float = self.end_widths[1] ** 0.5  # not math.sqrt, which refuses complex widths
        return 1.0 if self.parameterization == "mup" else 1.0 / root

    @property
    def initial_variance(self) -> float:
        """Variance of the function at initialisation, 1 / (nu_L gamma0^2), times the squared richness."""
        return 1.0 / self.end_widths[1] if self.parameterization == "mup" else 1.0

    def _check_limits(self) -> None:
        """Refuse what leaves the range of numbers, once depth and width are known."""
        check_count("init_scale", self.init_scale, self.hidden_matrices)
        if self.parameterization == "standard" and self.width == INFINITE:
            allowed = "'mup' or 'ntk' at infinite width"
            raise Refusal("parameterization", "standard", allowed, rest=": steps grow with the width")
        if self.log_initial_gain > _MOST_LOG_GAIN:
            power = self.log_initial_gain / math.log(10)
            why = f": initial weights would amplify 10^{power:.0f} times, and at most 10^100 is allowed"
            name = "init_scale" if self.init_scale is not None else "branch"
            raise Refusal(name, getattr(self, name), f"smaller at depth {self.depth}", rest=why)


@dataclass(frozen=True)
class MLP(Network):
    """A deep linear network without skip connections.

    ``f(x) = sqrt(D) / (N gamma0) w_L . prod_l (W_l / sqrt N) . (W_0 / sqrt D) x``, every weight
    drawn from N(0, 1).

    Parameters
    ----------
    depth
        Number L of hidden layers (L + 1 weight layers), at least 1.
    width
        Width of the hidden layers in units of the input dimension, N/D (the count N where the
        data are dimension-free). One number, or one per hidden layer, or the word
        ``"infinite"`` for the limit in which width outgrows data and input dimension.
    richness
        How far features move during training: gamma0 in muP. Positive; at least 1e-100 unless centered.
    parameterization
        ``"mup"`` keeps gamma0 = richness whatever the width; ``"ntk"`` takes gamma0 = richness / sqrt(width), with the
        width of the last hidden layer. ``"standard"`` does so too, and multiplies the learning rate of hidden weights
        and readout by their fan-in, as if weights had variance 1 / fan-in and one raw learning rate. Rules whose steps
        have a size of their own (``Muon``, ``NormalizedDescent``) also take the steps of such weights.
    centered
        Whether the function at initialisation is subtracted from the output.
    init_scale
        Standard deviation of the initial weights of each weight layer, in units of the usual one: one number for each
        of the L + 1 layers, first to last, or a mapping with some of ``input``, ``hidden`` and ``readout``.

    Examples
    --------
    >>> MLP(depth=3, width=0.5)
    MLP(depth=3, width=0.5, richness=1.0, parameterization='mup', centered=False, init_scale=None)
    >>> MLP(depth=2, width=[0.5, 2.0], parameterization="ntk", richness=2.0).gamma0
    1.414213562373095
    """

    depth: int = field(metadata=_DEPTH.metadata)
    kind: ClassVar[Kind] = Kind("mlp", "MLP", "Multilayer")

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.depth, float) and self.depth == math.inf:
            why = "; only a ResNet has a limit of infinite depth"
            raise Refusal("depth", self.depth, "a whole number, at least 1", rest=why)
        keep(self, depth=checks.whole("depth", self.depth))
        keep(self, width=_width(self.width, self.depth))
        self._check_limits()


@dataclass(frozen=True)
class ResNet(Network):
    """A deep linear network whose layers add to a residual stream.

    ``f(x) = sqrt(D) / (N gamma0) w_L . prod_l (1 + beta W_l / sqrt N) . (W_0 / sqrt D) x``, every
    weight drawn from N(0, 1).

    Parameters
    ----------
    depth
        Number L of hidden layers, at least 1; ``math.inf`` is the limit of infinite depth, which
        exists where branches shrink as 1 / sqrt(depth) or faster.
    width
        Width of every hidden layer, as for ``MLP``: one number or ``"infinite"``.
    richness, parameterization, centered, init_scale
        As for ``MLP``.
    branch
        Strength of the branches, zero or above.
    branch_scaling
        A number p takes beta = branch / depth^p, and multiplies the learning rate of the hidden weights by a power of
        the depth that makes a step change the stream equally at every depth: depth^(2 p - 1) where steps are as large
        as gradients, and depth^(p - 1) where those of each layer have a size of their own, as in Muon and in descent
        that is normalised by layer. ``"depth-mup"`` stands for 1/2, and 1 is the rule called CompleteP. ``"none"``
        takes beta = branch and changes no rate.

    Examples
    --------
    >>> ResNet(depth=16, width=1.0, branch=2.0).beta
    0.5
    """

    skip: ClassVar[bool] = True
    depth: int | float = field(metadata=replace(_DEPTH, usual=(1, 64), infinite=True).metadata)
    width: float | tuple[float, ...] | Literal["infinite"] = field(
        metadata=replace(_WIDTH, allowed=checks.positive.allowed).metadata
    )
    branch: float = field(default=1.0, metadata=_BRANCH.metadata)
    branch_scaling: str | float = field(default="depth-mup", metadata=_BRANCH_SCALING.metadata)
    kind: ClassVar[Kind] = Kind("resnet", "ResNet", "Residual")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth != math.inf:
            keep(self, depth=checks.whole("depth", self.depth))
        if not isinstance(self.width, str) and isinstance(self.width, Iterable):
            raise Refusal("width", self.width, "one number in a residual network")
        keep(self, width=_width(self.width, 1))
        if self.depth == math.inf and self.branch_power < 0.5:
            allowed = "'depth-mup' or a power of 0.5 or more at infinite depth"
            raise Refusal("branch_scaling", self.branch_scaling, allowed, rest=": without it the network has no limit")
        self._check_limits()

    @property
    def branch_power(self) -> float:
        """Power p of branches that scale as depth^-p."""
        words = {"depth-mup": 0.5, "none": 0.0}
        return words[self.branch_scaling] if isinstance(self.branch_scaling, str) else self.branch_scaling

    @property
    def initial_scales(self) -> NDArray[Any]:
        """As in every network; initial branches vanish at infinite depth if they shrink faster than 1 / sqrt(depth)."""
        scales = super().initial_scales
        return scales * [1.0, 0.0, 1.0] if self.branches_vanish else scales

    def branch_rate(self, own_size: bool) -> float:
        """As in every network; a power of the depth makes what all branches learn in a step the same at every depth.

        A step of L branches moves the stream by L beta times its size, and gradients of branches are as large as beta.
        """
        if self.branch_scaling == "none" or self.depth == math.inf:
            return 1.0
        power = self.branch_power
        factor: float = self.depth ** (power - 1 if own_size else 2 * power - 1)  # eq-branch-rate
        return factor

    @property
    def log_initial_gain(self) -> float:
        """Logarithm of how much the initial branches amplify in all, (1 + beta^2)^(L - 1) or exp(branch^2)."""
        with np.errstate(over="ignore"):  # too much is refused, by this number
            if self.depth == math.inf:
                return float(np.abs(self.branch * self.initial_scales[1]) ** 2)
            logs = np.log1p(np.abs(self.beta * self.initial_scales[1:-1]) ** 2)
        return float(logs.sum() if self.hidden_matrices is not None else (self.layers - 1) * logs[0])

    @property
    def beta(self) -> float:
        """Factor in front of every branch: branch / depth^p."""
        beta: float = self.branch / self.depth**self.branch_power  # eq-branch
        return beta

    @property
    def branch_factor(self) -> float:
        """Beta, or at infinite depth the branch itself, whose square then multiplies integrals over layer time."""
        return self.branch if self.depth == math.inf else self.beta

    @property
    def branches_vanish(self) -> bool:  # type: ignore[override]
        """True at infinite depth if branches shrink faster than 1 / sqrt(depth).

        Their gradients are of order depth^-p each, so that the sum of the squares is of order depth^(1 - 2p).
        """
        return self.depth == math.inf and self.branch_power > 0.5

    @property
    def changes_slowly_with_depth(self) -> bool:  # type: ignore[override]
        """Whether one layer differs little from the next in a deep network."""
        alike = isinstance(self.init_scale, Layers | None)
        return self.branch_power >= 0.5 and alike


def _width(width: Any, depth: int) -> float | tuple[float, ...] | str:
    if isinstance(width, str):
        if width.lower() != INFINITE:
            raise Refusal("width", width, f"{checks.positive.allowed}, one for each hidden layer, or {INFINITE!r}")
        return INFINITE
    if not isinstance(width, Iterable):
        if width == math.inf:
            raise Refusal("width", width, checks.positive.allowed, rest=f"; for the limit write '{INFINITE}'")
        return checks.positive("width", width)
    widths = tuple(checks.positive(f"width[{i}]", w) for i, w in enumerate(width))
    if len(widths) != depth:
        raise Refusal("width", widths, f"one number or one per hidden layer ({depth})", got=f"{len(widths)} values")
    return widths[0] if len(set(widths)) == 1 else widths
