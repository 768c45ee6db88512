"""Weights in training: what has become of their initial values, and of the gradients that were added.

A weight layer l = 0 .. L (0 is the input layer, L the readout) is

    W_l(t) = d_l(t) W_l(0) + sum_{s<t} a_l(t, s) G_l(s)

with G_l(s) the outer product of the fields above and below it at time s. In the equations of the fields, every
kernel of a weight layer has an initial part, the variance of W_l(0) times d_l(t) d_l(s) times a response, and a learned
part, a_l(t, s) times a correlation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
        d - 1, known other than as a difference.
    decays
        Whether d is other than 1.
    rate
        Factor on the learning rate, shape (batch, 1, 1); None stands for 1.
    X
        What has been learned by the row that is filled, as a matrix over pairs of rows (batch, rows, rows), where
        steps are orthogonal: the coefficient of every outer product of g of one row with h of another. None if only
        those of one row with itself occur, which ``a`` has.
    """

    d: Array
    a: Causal
    lost: Array
    decays: bool
    variance: Array | None = None
    rate: Array | None = None
    X: Array | None = None

    def initial(self, x: Array, rows: slice) -> Array:
        """Rows of variance dd o x, given those of x."""
        decayed = x * _spread(dd(self.d, rows), x) if self.decays else x  # eq-layer-kernels
        return decayed if self.variance is None else decayed * _spread(self.variance, x)

    def learned(self, C: Array, rows: slice, *, transposed: bool = False) -> Array:
        """Rows of a o C, given those of C, or of what stands for it where steps are orthogonal: C X^T, or C X."""
        if self.X is not None:
            X = self.X[:, : rows.stop, : rows.stop]
            return C @ (X if transposed else X.mT)  # eq-matrix-weights
        product: Array = _spread(self.a[rows], C) * C  # eq-propagator
        return product

    def mean_gain(self, outputs: int) -> Array:
        """What initial entries make of the mean square of a field, variance d^2, shape (batch, times)."""
        squares: Array = self.d[:, ::outputs] ** 2
        return squares if self.variance is None else self.variance[..., 0] * squares

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
        self.input: Weights = input
        self.hidden: tuple[Weights, ...] = tuple(hidden)
        self.readout: Weights = readout

    def below(self, layer: int) -> Weights:
        """Return the weights below hidden layer 1, 2, ..."""
        if layer == 1:
            return self.input
        return self.hidden[layer - 2] if len(self.hidden) > 1 else self.hidden[0]


class GrowingWeights:
    """Weights of a batch of problems whose rows are filled as training goes on.

    Layers that train alike are one group, and share their responses.

    Parameters
    ----------
    room, batch
        Where the responses stand, and number of problems.
    groups
        Group of each weight layer, first to last: the number of the first layer that trains alike.
    outputs, decays
        Number of outputs, and whether weights decay.
    variances, rates
        Variance of initial entries and factor on the learning rate of each weight layer, each of shape (batch, 1, 1);
        None stands for 1.
    orthogonal
        Groups that take orthogonal steps.
    """

    def __init__(
        self,
        room: Room,
        batch: int,
        groups: Sequence[int],
        outputs: int,
        decays: bool,
        variances: Sequence[Array | None],
        rates: Sequence[Array | None],
        orthogonal: Sequence[int] = (),
    ) -> None:
        self._outputs, self._last = outputs, groups[-1]
        self._groups = {
            group: Weights(room.series((batch, room.size)), room.causal(batch), room.series((batch, room.size)), decays)
            for group in dict.fromkeys(groups)
        }
        for group in orthogonal:
            self._groups[group] = replace(self._groups[group], X=self._groups[group].a.matrix)
        self._readout = None if outputs == 1 else room.causal(batch)
        every = [
            replace(self._groups[group], variance=variance, rate=rate)
            for group, variance, rate in zip(groups, variances, rates, strict=True)
        ]
        readout = every[-1] if self._readout is None else replace(every[-1], a=self._readout)
        alike = len({id(variance) for variance in variances[1:-1]}) == len(set(groups[1:-1])) == 1
        self.layers = WeightLayers(every[0], every[1:2] if alike else every[1:-1], readout)

    def X(self, group: int) -> Array:
        """Return the matrix of what a group has learned, to be filled, shape (batch, rows, rows)."""
        X = self._groups[group].X
        assert X is not None
        return X

    def numbers(self, group: int, row: int) -> Array:
        """Return d - 1 and then the numbers of all gradients that a group has at a time, shape (batch, 1 + times)."""
        w, outputs = self._groups[group], self._outputs
        learned = w.a.matrix[:, row * outputs, ::outputs]
        own: Array = namespace(learned).concat([w.lost[:, row * outputs, None], learned], axis=-1)
        return own

    def append(self, row: int, numbers: Array, X: Mapping[int, Array] | None = None) -> None:
        """Fill the rows of times from one on.

        Parameters
        ----------
        row
            The first time.
        numbers
            Of each time and group d - 1, d, and a over times, shape (times, groups, batch, 2 + times).
        X
            By group, what has been learned by orthogonal steps, shape (batch, rows, rows) for the first rows.
        """
        xp, outputs = namespace(numbers), self._outputs
        end = row + len(numbers)
        rows = slice(row * outputs, end * outputs)
        for index, (group, w) in enumerate(self._groups.items()):
            own = numbers[:, index].swapaxes(0, 1)  # (batch, times, ...)
            lost, d, a = own[..., 0], own[..., 1], own[..., 2 : 2 + end]
            if outputs > 1:
                lost, d = (xp.repeat(each, outputs, axis=-1) for each in (lost, d))
            w.lost[:, rows], w.d[:, rows] = lost, d
            if w.X is not None:
                self._fill_matrix(w.X, a[:, -1], (X or {}).get(group))
            elif self._readout is None:
                w.a[rows] = a
            else:
                spread = xp.repeat(xp.repeat(a, outputs, axis=-2), outputs, axis=-1)
                w.a[rows] = spread
                if group == self._last:
                    within = xp.tile(identity(outputs, a), a.shape[-2:])
                    self._readout[rows] = xp.where(within != 0, spread, 0.0)  # which may be infinite

    def _fill_matrix(self, read: Array, a: Array, X: Array | None) -> None:
        """Fill the matrix of a group: what orthogonal steps have learned, and other steps on the diagonal."""
        xp = namespace(read)
        end = a.shape[-1] * self._outputs
        read[:, :end, :end] = 0.0
        if X is not None:
            read[:, : X.shape[-1], : X.shape[-1]] = X
        if bool((a != 0).any()):  # of other steps, in other phases
            diagonal = a if self._outputs == 1 else xp.repeat(a, self._outputs, axis=-1)
            read[:, range(end), range(end)] += diagonal


def _spread(rows: Array, x: Array) -> Array:
    """Rows (batch, r, e) with an axis of nodes in depth, if another array has it."""
    return rows if rows.ndim == x.ndim else rows[:, None]


def dd(d: Array, rows: slice) -> Array:
    """Rows of d(t) d(s)."""
    outer: Array = d[..., rows, None] * d[..., None, : rows.stop]
    return outer
