"""The networks that can be trained: plain frozen data, no numerics."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from deeplinear._core import checks
from deeplinear._core.about import About, Kind, check_fields, keep
from deeplinear._core.refusal import Refusal
from deeplinear._core.words import INFINITE

_LEAST_RICHNESS = 1e-100
"""Below this the loss of a network that is not centered, and what is made of it, would leave the range of numbers."""


_MOST_LOG_GAIN = 100 * math.log(10)
"""Likewise for branches that amplify more, as the logarithm of their gain."""


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
_PARAMETERIZATIONS = {"mup": "muP", "ntk": "NTK"}
_PARAMETERIZATION = About(
    "Scaling with width",
    "In muP features move alike at every width; in NTK they move less the wider the network is.",
    "choice",
    check=checks.Word(tuple(_PARAMETERIZATIONS)),
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
_BRANCH_SCALING = About(
    "Scaling with depth",
    "In depth-muP the branches shrink as 1/√L, so that very deep networks have a limit.",
    "choice",
    check=checks.Word(tuple(_BRANCH_SCALINGS)),
    choices=_BRANCH_SCALINGS,
)


@dataclass(frozen=True)
class Network:
    """What multilayer and residual networks have in common; not made directly."""

    skip: ClassVar[bool] = False
    """Whether layers add to what comes from below."""
    changes_slowly_with_depth: ClassVar[bool] = False
    """Whether one layer differs little from the next in a deep network."""

    depth: int | float = field(metadata=_DEPTH.metadata)
    width: float | tuple[float, ...] | Literal["infinite"] = field(metadata=_WIDTH.metadata)
    richness: float = field(default=1.0, metadata=_RICHNESS.metadata)
    parameterization: str = field(default="mup", metadata=_PARAMETERIZATION.metadata)
    centered: bool = field(default=False, metadata=_CENTERED.metadata)

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.centered and self.richness < _LEAST_RICHNESS:
            raise Refusal(
                "richness",
                self.richness,
                f"at least {_LEAST_RICHNESS:g} unless centered",
                rest=": the function at initialisation is as large as 1 / richness",
            )

    @property
    def layers(self) -> int:
        """Number of hidden layers; finite depth only."""
        return int(self.depth)

    @property
    def branch_factor(self) -> float:
        """Factor in front of what a hidden weight matrix adds."""
        return 1.0

    @property
    def log_initial_gain(self) -> float:
        """Logarithm of how much the initial hidden weights amplify in all."""
        return 0.0

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
        """1 in muP, 1 / sqrt(nu_L) in NTK."""
        root: float = self.end_widths[1] ** 0.5  # not math.sqrt, which refuses complex widths
        return 1.0 / root if self.parameterization == "ntk" else 1.0

    @property
    def initial_variance(self) -> float:
        """Variance of the function at initialisation, 1 / (nu_L gamma0^2), times the squared richness."""
        return 1.0 if self.parameterization == "ntk" else 1.0 / self.end_widths[1]


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
        ``"mup"`` keeps gamma0 = richness whatever the width; ``"ntk"`` takes
        gamma0 = richness / sqrt(width), with the width of the last hidden layer.
    centered
        Whether the function at initialisation is subtracted from the output.

    Examples
    --------
    >>> MLP(depth=3, width=0.5)
    MLP(depth=3, width=0.5, richness=1.0, parameterization='mup', centered=False)
    >>> MLP(depth=2, width=[0.5, 2.0], parameterization="ntk", richness=2.0).gamma0
    1.414213562373095
    """

    depth: int = field(metadata=_DEPTH.metadata)
    kind = Kind("mlp", "MLP", "Multilayer")

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, depth=checks.whole("depth", self.depth))
        keep(self, width=_width(self.width, self.depth))


@dataclass(frozen=True)
class ResNet(Network):
    """A deep linear network whose layers add to a residual stream.

    ``f(x) = sqrt(D) / (N gamma0) w_L . prod_l (1 + beta W_l / sqrt N) . (W_0 / sqrt D) x``, every
    weight drawn from N(0, 1).

    Parameters
    ----------
    depth
        Number L of hidden layers, at least 1; ``math.inf`` is the limit of infinite depth, which
        exists with ``branch_scaling="depth-mup"``.
    width
        Width of every hidden layer, as for ``MLP``: one number or ``"infinite"``.
    richness, parameterization, centered
        As for ``MLP``.
    branch
        Strength of the branches, zero or above.
    branch_scaling
        ``"depth-mup"`` takes beta = branch / sqrt(depth), ``"none"`` takes beta = branch.

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
    branch_scaling: str = field(default="depth-mup", metadata=_BRANCH_SCALING.metadata)
    kind = Kind("resnet", "ResNet", "Residual")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth != math.inf:
            keep(self, depth=checks.whole("depth", self.depth))
        if not isinstance(self.width, str) and isinstance(self.width, Iterable):
            raise Refusal("width", self.width, "one number in a residual network")
        keep(self, width=_width(self.width, 1))
        if self.log_initial_gain > _MOST_LOG_GAIN:
            power = self.log_initial_gain / math.log(10)
            why = f": initial weights would amplify 10^{power:.0f} times, and at most 10^100 is allowed"
            raise Refusal("branch", self.branch, f"smaller at depth {self.depth}", rest=why)
        if self.depth == math.inf and self.branch_scaling != "depth-mup":
            raise Refusal(
                "branch_scaling",
                self.branch_scaling,
                "'depth-mup' at infinite depth",
                rest=": without it the network has no limit",
            )

    @property
    def log_initial_gain(self) -> float:
        """Logarithm of how much the initial branches amplify in all, (1 + beta^2)^(L - 1) or exp(branch^2)."""
        if self.depth == math.inf:
            return self.branch**2
        log: float = (self.depth - 1) * np.log1p(self.beta**2)  # not math.log1p, which refuses complex branches
        return log

    @property
    def beta(self) -> float:
        """Factor in front of every branch: branch or branch / sqrt(depth)."""
        return self.branch / math.sqrt(self.depth) if self.branch_scaling == "depth-mup" else self.branch  # eq-branch

    @property
    def branch_factor(self) -> float:
        """Beta, or at infinite depth the branch itself, whose square then multiplies integrals over layer time."""
        return self.branch if self.depth == math.inf else self.beta

    @property
    def changes_slowly_with_depth(self) -> bool:  # type: ignore[override]
        """Whether one layer differs little from the next in a deep network."""
        return self.branch_scaling == "depth-mup"


def _width(width: Any, depth: int) -> float | tuple[float, ...] | str:
    if isinstance(width, str):
        return checks.word("width", width, (INFINITE,))
    if not isinstance(width, Iterable):
        if width == math.inf:
            raise Refusal("width", width, checks.positive.allowed, rest=f"; for the limit write '{INFINITE}'")
        return checks.positive("width", width)
    widths = tuple(checks.positive(f"width[{i}]", w) for i, w in enumerate(width))
    if len(widths) != depth:
        raise Refusal("width", widths, f"one number or one per hidden layer ({depth})", got=f"{len(widths)} values")
    return widths[0] if len(set(widths)) == 1 else widths
