"""Singular values of the weights over training, from theory."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from deeplinear._core.drawn import Drawn
from deeplinear._core.progress import Progress, read_progress
from deeplinear._core.refusal import Refusal
from deeplinear._equations.chain import Layers
from deeplinear._equations.coefficients import Coefficients
from deeplinear._equations.extension import Extension
from deeplinear._equations.increments import backward_source, times_E
from deeplinear._equations.weights import Weights
from deeplinear._geometry.sharpness import read_steps
from deeplinear._geometry.visit import Stop, check_range, visit
from deeplinear._geometry.weights import Fields, Singular, singular
from deeplinear._problem.problem import Problem

Array = NDArray[np.float64]

ACCURACY = 3e-3
"""How much outliers may be off, relative to them: directions that training hardly takes are lost in rounding."""


@dataclass(frozen=True, eq=False)
class WeightSpectra(Drawn):
    """Singular values of the weight matrices at some steps of training, each over the root of its fan-in.

    Weight layers are numbered 0 (input) to L - 1; the readout is a vector, or a few. For dimension-free data, whose
    input weights have no bulk, layer 0 is nan.

    Attributes
    ----------
    problem
        What was solved.
    times
        The steps, shape (n,).
    edge
        Upper end of the bulk of singular values, shape (n, L).
    outliers
        For each step and layer, the singular values beyond it, largest first, with a relative error of 2e-4, or of 3e-3
        near it.
    update
        Singular values of what was learned, largest first, shape (n, L, number of evaluations), zero beyond their
        number.
    update_rank
        Effective number of its directions: the square of the sum of the squared singular values, over the sum of their
        fourth powers; shape (n, L), nan where nothing was learned.
    target_alignment
        Overlap of the target with the right singular vector of the largest outlier of layer 0, shape (n,); nan where
        there is none, or where there are several outputs or targets.
    neighbour_alignment
        Overlap of the left singular vector of the largest outlier of a layer with the right one of the next layer,
        shape (n, L - 1); nan where either has none, or in residual networks.

    Examples
    --------
    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=1.0, richness=6.0), dl.Isotropic(0.1), dl.FullBatch(4.0), dl.GradientDescent(0.02),
    ...     steps=20,
    ... )
    >>> found = dl.weight_spectra(problem, at=[0, 19])
    >>> print(found.edge[-1], [[round(value, 2) for value in layer] for layer in found.outliers[-1]])
    [2. 2.] [[2.02], [2.1]]
    """

    problem: Problem
    times: NDArray[np.int64] = field(repr=False)
    edge: Array = field(repr=False)
    outliers: tuple[tuple[tuple[float, ...], ...], ...] = field(repr=False)
    update: Array = field(repr=False)
    update_rank: Array = field(repr=False)
    target_alignment: Array = field(repr=False)
    neighbour_alignment: Array = field(repr=False)

    def __str__(self) -> str:
        parts = []
        for layer, (edge, found) in enumerate(zip(self.edge[-1], self.outliers[-1], strict=True)):
            if not np.isnan(edge):
                count = {0: "no outlier", 1: "one at"}.get(len(found), f"{len(found)}, the largest at")
                largest = f" {found[0]:.3g}" if found else ""
                parts.append(f"layer {layer} has {count}{largest} (bulk to {edge:.3g})")
        return f"weights of {self.problem.summary}, at step {self.times[-1]}: {', '.join(parts)}"


def weight_spectra(
    problem: Problem, at: int | Iterable[int] | None = None, *, progress: Progress | bool | None = None
) -> WeightSpectra:
    """Predict the singular values of each weight matrix over training: its bulk, and those that have left it.

    Parameters
    ----------
    problem
        What is trained. Hidden layers have a finite width, and every one of them is solved.
    at
        Step or steps to look at; ten of them, evenly spaced, by default.
    progress
        True for a line on stderr; or called as ``progress(done, total)``, counted in evaluations of the network.

    Raises
    ------
    ValueError
        If an argument is not allowed, or width or depth are infinite.

    Examples
    --------
    Without training there is the law of Marchenko and Pastur, and nothing beyond it:

    >>> import deeplinear as dl
    >>> problem = dl.Problem(
    ...     dl.MLP(depth=2, width=4.0), dl.Isotropic(), dl.Population(), dl.GradientDescent(0.1), steps=2
    ... )
    >>> found = dl.weight_spectra(problem, at=0)
    >>> print(found.edge, found.outliers)  # 1 + sqrt(rows / columns)
    [[3. 2.]] (((), ()),)
    """
    steps = read_steps(problem, at)
    if problem.network.depth >= 256 or np.isinf(problem.network.end_widths[0]):
        raise Refusal("problem", problem.network, "a network of finite width and fewer than 256 layers")
    found: dict[int, list[Singular | None]] = {}
    alignments: dict[int, tuple[float, list[float]]] = {}

    def look(stop: Stop) -> None:
        layers = [_Layer(problem, stop, layer) for layer in range(problem.network.layers)]
        found[stop.step] = [layer.spectrum for layer in layers]
        neighbours = [_overlap(*pair) for pair in pairwise(layers)]
        alignments[stop.step] = (layers[0].along_target(), neighbours)

    end_at = visit(problem, steps, 1, look, read_progress(progress))
    if 0 <= end_at <= steps[-1]:
        raise ArithmeticError(f"training diverged at step {end_at}; look at earlier steps")
    return _result(problem, steps, found, alignments)


class _Layer:
    """A weight layer at a stop of training, with the fields around it.

    Those above are g, or in a centered network g~ of ``increments.py``: they span the same directions, and of g itself
    all but the first would be lost in rounding at small richness.
    """

    def __init__(self, problem: Problem, stop: Stop, layer: int) -> None:
        self._problem, self._layer = problem, layer
        self._eq = stop.extension.equations
        s = self._eq.c.structure
        self._end = stop.extension.count * s.outputs
        self.has_bulk = layer > 0 or not problem.data.dimension_free
        self.fields = self._fields(stop.extension)
        check_range(problem, *self.fields)
        self.spectrum = self._singular() if self.has_bulk else None

    def _singular(self) -> Singular:
        try:
            return singular(self.fields)
        except (np.linalg.LinAlgError, ValueError):  # products of fields have overflown, or are all rounding
            check_range(self._problem, np.inf)
            raise

    def _cut(self, matrix: Array) -> Array:
        return np.asarray(matrix[: self._end, : self._end])

    def _fields(self, extension: Extension) -> Fields:
        c, chain, layer = self._eq.c, self._eq.chain, self._layer
        assert isinstance(chain, Layers)
        w = self._eq.weights.below(layer + 1)
        variance = 1.0 if w.variance is None else float(w.variance[0, 0, 0])
        nu = np.array([1.0, *self._problem.network.widths])
        ratio = float(nu[layer + 1] / nu[layer])
        branch = 1.0 if (f := c.f[layer]) is None else float(f[0, 0, 0])
        if layer == 0:
            C_h = self._eq.data_covariances.Ch.matrix[0]
            R_h = float(c.feedback[0, 0, 0]) * self._eq.data.Rhr.matrix[0]
        else:
            C_h, R_h = _at(chain.Ch(), layer - 1)[0], chain.responses.sites[layer].dh_dr.matrix[0]
            R_h = R_h if (f_bar := c.f_bar[layer - 1]) is None else float(f_bar[0, 0, 0]) * R_h
        R_g = float(c.gamma0[0, 0, 0]) * self._cut(_at(chain.Rgu_hat(), layer)[0])
        group = c.structure.groups[layer]
        last = extension.weights_at(extension.count - 1)[group]
        outputs = c.structure.outputs
        X = np.diag(np.repeat(np.asarray(last[0, 1 : 1 + extension.count]), outputs))
        if w.X is not None:
            X = self._cut(np.asarray(w.X[0]))
        return Fields(
            C_h=self._cut(C_h),
            C_g=self._cut(chain.covariances.Cg[layer + 1].matrix[0]),
            B=variance * _decayed(c, w, self._cut(R_h)),
            G=R_g * np.asarray(w.d[0, : self._end]),
            X=float(c.whole_gamma0[0, 0, 0]) * branch * times_E(c, X.T[None])[0].T,
            d=float(1.0 + last[0, 0]),
            variance=variance,
            ratio=ratio,
        )

    def along_target(self) -> float:
        """Overlap of the target with the right singular vector of the largest outlier of the input weights."""
        c = self._eq.c
        if self.spectrum is None or not self.spectrum.right or c.structure.outputs * c.structure.sets.count > 1:
            return np.nan
        mean = np.asarray(self._eq.data.H1[0, :, : self._end, 0])  # of v_k over w_k
        if self._eq.data.RDelta is not None:
            mean = mean @ self._cut(self._eq.data.RDelta.matrix[0]).T
        power = np.asarray(c.target)[0, :, 0, 0] * np.asarray(c.weight)[0, :, 0, 0]
        signal = (power * np.asarray(c.eigenvalues)[0, :, 0, 0]) @ mean  # <h_0, w*>
        on_r, on_h = self.spectrum.right[0]
        return float(abs((on_h + self.fields.A.T @ on_r) @ signal) / np.sqrt(power.sum()))


def _overlap(below: _Layer, above: _Layer) -> float:
    """Overlap of the left singular vector of the largest outlier below with the right one above."""
    if below.spectrum is None or not below.spectrum.left or above.spectrum is None or not above.spectrum.right:
        return np.nan
    chain = below._eq.chain
    assert isinstance(chain, Layers)
    if below._eq.c.structure.skip:
        return np.nan
    # Both are made of the same two Gaussian sources, what comes from below (u~) and from above (r~).
    c, end = below._eq.c, below._end
    site = chain.responses.sites[above._layer]
    weights = [below._eq.weights.below(layer + 1) for layer in (below._layer, above._layer)]
    h = [np.asarray(each[0, :end, :end]) for each in site.dh.matrix]
    g = [np.asarray(each[0, :end, :end]) for each in site.dg.matrix]
    g[0] = float(c.gamma0[0, 0, 0]) * g[0]
    h[0], g[0] = (each * np.asarray(weights[0].d[0, :end]) for each in (h[0], g[0]))
    h[1], g[1] = (_decayed(c, weights[1], each) for each in (h[1], g[1]))
    on_u, on_g = below.spectrum.left[0]
    on_r, on_h = above.spectrum.right[0]
    left = [(on_g + below.fields.B.T @ on_u) @ each for each in g]
    right = [(on_h + above.fields.A.T @ on_r) @ each for each in h]
    left[0], right[1] = left[0] + on_u, right[1] + on_r
    sources = (below.fields.variance * below.fields.C_h, above.fields.ratio * above.fields.variance * above.fields.C_g)
    return float(abs(sum(x @ C @ y for x, C, y in zip(left, sources, right, strict=True))))


def _decayed(c: Coefficients, w: Weights, response: Array) -> Array:
    """Return the response to what initial weights make of g, given that to what decayed ones make of it."""
    return np.asarray(backward_source(c, w, None).on(response[None])[0])


def _at(each: Iterable[Array], index: int) -> Array:
    return list(each)[index]


def _result(
    problem: Problem,
    steps: list[int],
    found: dict[int, list[Singular | None]],
    alignments: dict[int, tuple[float, list[float]]],
) -> WeightSpectra:
    layers = problem.network.layers
    most = max((len(each.update) for step in steps for each in found[step] if each is not None), default=0)
    edge, update = np.full((len(steps), layers), np.nan), np.zeros((len(steps), layers, most))
    outliers = []
    for index, step in enumerate(steps):
        for layer, each in enumerate(found[step]):
            if each is not None:
                edge[index, layer] = each.edge
                update[index, layer, : len(each.update)] = each.update
        outliers.append(tuple(() if each is None else tuple(map(float, each.outliers)) for each in found[step]))
    largest = update.max(axis=-1, initial=0.0, keepdims=True)
    each_part = update / np.where(largest > 0, largest, 1.0)  # of the largest, whose fourth power may be too small
    with np.errstate(invalid="ignore"):
        rank = (each_part**2).sum(axis=-1) ** 2 / (each_part**4).sum(axis=-1)
    return WeightSpectra(
        problem=problem,
        times=np.array(steps),
        edge=edge,
        outliers=tuple(outliers),
        update=update,
        update_rank=rank,
        target_alignment=np.array([alignments[step][0] for step in steps]),
        neighbour_alignment=np.array([alignments[step][1] for step in steps]).reshape(len(steps), layers - 1),
    )
