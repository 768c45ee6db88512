"""A finite network: its weights, and the fields that they define. Knows nothing of data or optimizers.

Layers are numbered 0 (input) to L (last hidden). Every field has one column per output, shape
(N_l, C), so that a network with several outputs needs no other code. Networks that are trained together
have a leading axis in all arrays:

    g_L = W_L                               backward fields, of the weights alone
    g_l = W_l^T g_{l+1} / sqrt(N_l)
    w   = sqrt(U) / (N_L gamma0) W_0^T g_1  the function: f_c(x) = w_c . x / sqrt(U)
    h_1 = W_0 h_0 / sqrt(U)                 forward fields, driven by the data through h_0
    h_{l+1} = W_l h_l / sqrt(N_l)

where U is the input dimension D, or 1 where the data are dimension-free. With h_0 = sqrt(U)/P X^T Delta, minus the
gradient of ``1/(2P) sum Delta^2`` times N_L gamma0^2 is

    G_l = gamma0 / sqrt(N_l) g_{l+1} h_l^T  (N_0 = U),        G_L = gamma0 h_L

In a residual network the layers between hidden ones (1 <= l < L) add a branch to a stream:

    g_l = g_{l+1} + beta W_l^T g_{l+1} / sqrt(N),   h_{l+1} = h_l + beta W_l h_l / sqrt(N),   G_l -> beta G_l
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deeplinear._core.arrays import Array, identity, namespace
from deeplinear._experiment.generators import Generators
from deeplinear._experiment.sizes import Sizes


@dataclass(frozen=True)
class Outer:
    """The matrix ``scale * left @ right.T``, kept as its factors of shape (rows, C) and (columns, C)."""

    scale: float
    left: Array
    right: Array

    @property
    def square(self) -> Array:
        """Squared Frobenius norm, shape () or (networks,)."""
        products = (self.left.mT @ self.left) * (self.right.mT @ self.right)
        square: Array = self.scale**2 * namespace(products).sum(products, axis=(-2, -1))
        return square

    def times(self, factor: Array) -> "Outer":
        """Return it times a number, or one for each network."""
        return Outer(self.scale, self.left * factor[..., None, None], self.right)


@dataclass(frozen=True)
class FiniteNetwork:
    """Weights of one network, which an optimizer changes in place.

    Attributes
    ----------
    weights
        W_0 of shape (N_1, D), W_l of shape (N_{l+1}, N_l) and the readout W_L of shape (N_L, C). All but the last
        are used through ``@``, ``mT`` and ``shape`` only.
    gamma0
        Richness.
    unit
        U: the input dimension, or 1 where the data are dimension-free.
    beta
        Strength of residual branches; ``None`` without skip connections.
    """

    weights: list[Array]
    gamma0: float
    unit: int
    beta: float | None = None

    @classmethod
    def draw(
        cls,
        rng: np.random.Generator | Generators,
        sizes: Sizes,
        gamma0: float,
        beta: float | None = None,
        scales: Sequence[float] | None = None,
    ) -> "FiniteNetwork":
        """Draw every weight from N(0, 1), times the scale of its layer if there is one."""
        shapes = zip((*sizes.widths, sizes.widths[-1]), (sizes.dim, *sizes.widths[:-1], sizes.outputs), strict=True)
        weights = [rng.standard_normal(shape) for shape in shapes]
        for weight, scale in zip(weights, scales if scales is not None else (), strict=False):
            weight *= scale
        return cls(weights, gamma0, sizes.unit, beta)

    @property
    def parameters(self) -> list[Array]:
        """What an optimizer changes, one array for each of ``gradients``."""
        return list(self.weights)

    @property
    def rounding(self) -> float:
        """By how much, relative to it, the function of the same weights may differ when it is computed again."""
        return 0.0

    def use(self, parameters: Sequence[Array]) -> None:
        """Take these for the parameters from now on."""
        self.weights[:] = parameters

    def backward(self) -> list[Array]:
        """Return g_1 .. g_L; they stay what they are when the weights change."""
        readout = self.weights[-1]
        fields: list[Array] = [namespace(readout).asarray(readout, copy=True)]
        for weight in reversed(self.weights[1:-1]):
            fields.append(self.join(fields[-1], weight.mT @ fields[-1] * _fan_in_scale(weight)))
        return fields[::-1]

    def predictor(self, g_1: Array) -> Array:
        """Return the function as a weight vector per output, shape (D, C)."""
        function: Array = self.weights[0].mT @ g_1 * self.predictor_scale  # eq-network
        return function

    @property
    def predictor_scale(self) -> float:
        """What W_0^T g_1 is multiplied with in the function."""
        width = int(self.weights[-2].shape[-2])
        return math.sqrt(self.unit) / (width * self.gamma0)

    def forward(self, h_0: Array) -> list[Array]:
        """Return h_0 .. h_L."""
        fields = [h_0, self.weights[0] @ h_0 * self.fan_in(0)]  # eq-fields
        for layer, weight in enumerate(self.weights[1:-1], 1):
            fields.append(self.join(fields[-1], weight @ fields[-1] * self.fan_in(layer)))
        return fields

    def fan_in(self, layer: int) -> float:
        """What a field is multiplied with that goes through weight layer 0, 1, ..."""
        return 1.0 / math.sqrt(self.unit) if layer == 0 else _fan_in_scale(self.weights[layer])

    def gradients(self, h: list[Array], g: list[Array]) -> list[Outer]:
        """Return G_0 .. G_L, as they act on ``parameters``."""
        return self.outers(h, g)

    def outers(self, h: list[Array], g: list[Array]) -> list[Outer]:
        """Return G_0 .. G_L, one per weight."""
        beta = 1.0 if self.beta is None else self.beta
        scales = [1.0 / math.sqrt(self.unit), *(beta * _fan_in_scale(weight) for weight in self.weights[1:-1])]
        # eq-updates
        hidden = [Outer(scale * self.gamma0, left, right) for scale, left, right in zip(scales, g, h[:-1], strict=True)]
        return [*hidden, Outer(self.gamma0, h[-1], identity(h[-1].shape[-1], h[-1]))]

    def squares(self, h: list[Array], g: list[Array]) -> Array:
        """Return the squared norms of G_0 .. G_L over N_L, shape (L + 1,), or (networks, L + 1)."""
        width = self.weights[-2].shape[-2]
        squares = [outer.square / width for outer in self.outers(h, g)]
        every: Array = namespace(h[0]).stack(squares, axis=-1)
        return every

    def join(self, stream: Array | None, through: Array) -> Array:
        """Pass a field through a layer, beside the stream if there is one, which the input layer has not."""
        return through if self.beta is None or stream is None else stream + self.beta * through  # eq-resnet


def _fan_in_scale(weight: Array) -> float:
    return 1.0 / math.sqrt(weight.shape[-1])
