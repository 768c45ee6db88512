"""Weights in training: what has become of their initial values, and of the gradients that were added.

A weight layer l = 0 .. L (0 is the input layer, L the readout) is

    W_l(t) = d_l(t) W_l(0) + sum_{s<t} a_l(t, s) G_l(s)

with G_l(s) the outer product of the fields above and below it at time s. In the equations of the fields, every
kernel of a weight layer has an initial part, the variance of W_l(0) times d_l(t) d_l(s) times a response, and a learned
part, a_l(t, s) times a correlation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from deeplinear._core.arrays import Array, identity, namespace
from deeplinear._equations.two_time import Causal, Room


@dataclass(frozen=True)
class Weights:
    """One weight layer of a batch of problems.

    Attributes
    ----------
    variance
        Variance of its initial entries, shape (batch, 1, 1); None stands for 1.
    d
        Response to its initial value, shape (batch, rows).
    a
        Response to gradients, the same for every pair of outputs; in the readout within one output only.
    lost
        d - 1 where it is known other than as a difference, which it is at every step; None elsewhere.
    decays
        Whether d is other than 1.
    rate
        Factor on the learning rate, shape (batch, 1); None stands for 1.
    """

    d: Array
    a: Causal
    lost: Array | None
    decays: bool
    variance: Array | None = None
    rate: Array | None = None

    def initial(self, x: Array, rows: slice) -> Array:
        """Rows of variance dd o x, given those of x."""
        decayed = x * _spread(dd(self.d, rows), x) if self.decays else x
        return decayed if self.variance is None else decayed * _spread(self.variance, x)

    def learned(self, C: Array, rows: slice) -> Array:
        """Rows of a o C, given those of C."""
        product: Array = _spread(self.a[rows], C) * C  # eq-propagator
        return product

    @property
    def d_or_none(self) -> Array | None:
        """Return d, None where it is 1 at all times."""
        return self.d if self.decays else None


class WeightLayers:
    """All weight layers of a network.

    Attributes
    ----------
    input, readout
        The first and the last weight layer.
    hidden
        The matrices between hidden layers, first to last; one stands for all of them where they are alike.
    """

    def __init__(self, input: Weights, hidden: Sequence[Weights], readout: Weights) -> None:
        self.input, self.hidden, self.readout = input, tuple(hidden), readout

    def below(self, layer: int) -> Weights:
        """Return the weights below hidden layer 1, 2, ..."""
        if layer == 1:
            return self.input
        return self.hidden[layer - 2] if len(self.hidden) > 1 else self.hidden[0]

    @classmethod
    def alike(cls, weights: Weights, readout: Causal | None = None) -> "WeightLayers":
        """Return layers that all train in the same way; the readout acts within one output only."""
        last = weights if readout is None else Weights(weights.d, readout, weights.lost, weights.decays)
        return cls(weights, [weights], last)


class GrowingWeights:
    """Weights that all train in the same way, whose rows are filled as the time grid grows."""

    def __init__(self, room: Room, batch: int, outputs: int, decays: bool) -> None:
        self._outputs = outputs
        self._every = Weights(room.series((batch, room.size)), room.causal(batch), None, decays)
        self._readout = None if outputs == 1 else room.causal(batch)
        self.layers = WeightLayers.alike(self._every, self._readout)

    def append(self, rows: slice, d: Array, a: Array) -> None:
        """Fill rows, given d (r,) and a (r, e) over times."""
        xp = namespace(a)
        self._every.d[:, rows] = xp.repeat(d, self._outputs)
        self._every.a[rows] = xp.kron(a, xp.ones((self._outputs, self._outputs)))
        if self._readout is not None:
            self._readout[rows] = xp.kron(a, identity(self._outputs, a))


def over_outputs(d: Array, lost: Array, a: Array, outputs: int, decays: bool) -> WeightLayers:
    """Layers that all train in the same way, from d, d - 1 (batch, times) and a (batch, times, times)."""
    if outputs == 1:
        return WeightLayers.alike(Weights(d, Causal(a), lost, decays))
    (batch, steps), size, xp = d.shape, d.shape[-1] * outputs, namespace(a)
    d, lost = (xp.broadcast_to(x[..., None], (batch, steps, outputs)).reshape(batch, size) for x in (d, lost))
    shape = (batch, steps, outputs, steps, outputs)
    every = xp.broadcast_to(a[:, :, None, :, None], shape).reshape(batch, size, size)
    within = xp.where(xp.tile(identity(outputs, a), (steps, steps)) != 0, every, 0.0)  # every may be infinite
    return WeightLayers.alike(Weights(d, Causal(every), lost, decays), Causal(within))


def _spread(rows: Array, x: Array) -> Array:
    """Rows (batch, r, e) with an axis of nodes in depth, if another array has it."""
    return rows if rows.ndim == x.ndim else rows[:, None]


def dd(d: Array, rows: slice) -> Array:
    """Rows of d(t) d(s)."""
    outer: Array = d[..., rows, None] * d[..., None, : rows.stop]
    return outer
