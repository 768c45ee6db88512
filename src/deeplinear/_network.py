"""The networks that can be trained: plain frozen data, no numerics."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from deeplinear import _checks

INFINITE = "infinite"
"""The word for the limit of infinite width, ``MLP(width="infinite")``."""


@dataclass(frozen=True)
class MLP:
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
        How far features move during training: gamma0 in muP. Positive.
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

    depth: int
    width: float | tuple[float, ...] | Literal["infinite"]
    richness: float = 1.0
    parameterization: str = "mup"
    centered: bool = False

    def __post_init__(self) -> None:
        depth = _checks.whole("depth", self.depth)
        values = {
            "depth": depth,
            "width": _width(self.width, depth),
            "richness": _checks.positive("richness", self.richness),
            "parameterization": _checks.word("parameterization", self.parameterization, ("mup", "ntk")),
            "centered": _checks.flag("centered", self.centered),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def widths(self) -> tuple[float, ...]:
        """Width of each hidden layer, in the units of ``width``; ``inf`` in the infinite limit."""
        if self.width == INFINITE:
            return (math.inf,) * self.depth
        if isinstance(self.width, tuple):
            return self.width
        assert isinstance(self.width, float)
        return (self.width,) * self.depth

    @property
    def gamma0(self) -> float:
        """The richness that stands in the equations, after the parameterization (0 if lazy)."""
        if self.parameterization == "ntk":
            return self.richness / math.sqrt(self.widths[-1])
        return self.richness

    @property
    def inverse_output_scale(self) -> float:
        """1 / (nu gamma0^2), the variance of the function at initialisation; exact at infinite width."""
        if self.parameterization == "ntk":
            return 1.0 / self.richness**2
        return 1.0 / (self.widths[-1] * self.richness**2)


def _width(width: Any, depth: int) -> float | tuple[float, ...] | str:
    if isinstance(width, str):
        return _checks.word("width", width, (INFINITE,))
    if not isinstance(width, Iterable):
        if width == math.inf:
            raise ValueError(f"width must be a positive finite number, got {width!r}; for the limit write '{INFINITE}'")
        return _checks.positive("width", width)
    widths = tuple(_checks.positive(f"width[{i}]", w) for i, w in enumerate(width))
    if len(widths) != depth:
        raise ValueError(f"width must be one number or one per hidden layer ({depth}), got {len(widths)} values")
    return widths[0] if len(set(widths)) == 1 else widths
