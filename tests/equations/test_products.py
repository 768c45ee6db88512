"""Compiled products, against the same ones in NumPy."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

import deeplinear as dl
from deeplinear._equations import products
from deeplinear._equations.layers import _weight_kernel
from deeplinear._equations.products import SETS, times
from deeplinear._equations.site import Site
from deeplinear._equations.source import Source, fill_sum
from deeplinear._equations.two_time import Causal, Given, Room, Symmetric
from deeplinear._equations.weights import Weights
from deeplinear._problem.edit import replace_unchecked
from deeplinear._solvers.panels.solver import Panels
from deeplinear._theory.curves import curves
from factories import maker
from needs import need

Array = NDArray[np.complex128] | NDArray[np.float64]


@pytest.fixture(autouse=True)
def _compiled() -> None:
    need("compiled", products._rows is not None, "install gcc and Python's headers, then the package again")


@pytest.fixture
def in_numpy(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], object]:
    """Run something as if nothing were compiled."""

    def run(something: Callable[[], object]) -> object:
        with monkeypatch.context() as patch:
            patch.setattr(products, "_rows", None)
            return something()

    return run


RNG = np.random.default_rng(0)


def numbers(kind: type, *shape: int) -> Array:
    values = RNG.standard_normal(shape)
    return values + 1j * RNG.standard_normal(shape) if kind is complex else values


def causal_matrix(kind: type, *shape: int, blocks: bool) -> Causal:
    """A lower triangle; with blocks, as after panels, all but the last 5 rows are full within blocks of 8."""
    size = shape[-1]
    row, column = np.indices((size, size))
    kept = (row >= column) | ((row // SETS == column // SETS) & (row < size - 5) & blocks)
    return Causal(numbers(kind, *shape) * kept)


def symmetric(kind: type, *shape: int) -> Symmetric:
    values = numbers(kind, *shape)
    return Symmetric(values + values.mT)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.parametrize("e", [1, 3, 4, 8, 29, 45])
@pytest.mark.parametrize(("stack", "rows"), [((1,), (1,)), ((2, 3), (3,)), ((2, 3), (2, 3)), ((2, 3, 2), (3, 2))])
def test_products(in_numpy, stack, rows, e, kind, blocks):
    x = numbers(kind, *rows, 1, e)
    for product, matrix in (
        (products.rows_times, causal_matrix(kind, *stack, 45, 45, blocks=blocks)),
        (products.rows_times_transpose, causal_matrix(kind, *stack, 45, 45, blocks=blocks)),
        (products.rows_times_symmetric, symmetric(kind, *stack, 45, 45)),
    ):
        found = product(x, matrix)
        assert found.shape == (*stack, 1, e)
        np.testing.assert_allclose(found, in_numpy(partial(product, x, matrix)), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("kind", [float, complex])
def test_two_rows_times_a_symmetric_matrix(kind):
    x, matrix = numbers(kind, 3, 2, 29), symmetric(kind, 3, 45, 45)
    expected = x @ matrix.matrix[:, :29, :29]
    np.testing.assert_allclose(products.rows_times_symmetric(x, matrix), expected, rtol=1e-12, atol=1e-12)


def test_rows_that_are_part_of_a_matrix_or_may_not_be_written_to():
    matrix, lower = numbers(float, 2, 60, 60), causal_matrix(float, 2, 60, 60, blocks=False)
    row = matrix[:, 30:31, :30]
    row.flags.writeable = False
    expected = row @ lower.matrix[:, :30, :30]
    np.testing.assert_allclose(products.rows_times(row, lower), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("x", "matrix"),
    [
        (np.ones((1, 1, 6)), np.ones((1, 8, 8))[:, :6, :6]),
        (np.ones((1, 1, 6)), np.ones((1, 4, 4))),
        (np.ones((1, 6, 1)).mT[..., ::2], np.ones((1, 8, 8))),
        (np.ones((2, 1, 6)), np.ones((3, 8, 8))),
    ],
)
def test_what_would_be_read_wrongly_is_refused(x, matrix):
    with pytest.raises(ValueError, match="must be"):
        products.rows_times(x, Causal(matrix))


@pytest.mark.parametrize("kind", [float, complex])
def test_resolvents(in_numpy, kind):
    """Row by row, (1 - kernel)^-1 of a strictly causal kernel."""
    size = 21
    kernel = causal_matrix(kind, 2, 3, size, size, blocks=False).matrix * (1 - np.eye(size)) / 4
    found, expected = Causal(np.zeros_like(kernel)), np.linalg.inv(np.eye(size) - kernel)

    def fill() -> None:
        for t in range(size):
            rows = slice(t, t + 1)
            products.fill_resolvent(found, kernel[..., rows, : t + 1], rows, panel=False)

    for run in (lambda fill: fill(), in_numpy):
        found.clear(slice(0, size))
        run(fill)
        np.testing.assert_allclose(found.matrix, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.parametrize("has_factor", [False, True])
@pytest.mark.parametrize("decays", [False, True])
def test_sums(in_numpy, kind, has_factor, decays):
    x, y = symmetric(kind, 3, 12, 12), symmetric(kind, 3, 12, 12)
    factor, d = numbers(kind, 3, 1, 1) if has_factor else None, numbers(kind, 3, 12) if decays else None
    source = Source(y, factor, d)

    def fill() -> Array:
        filled = Symmetric(np.zeros_like(x.matrix))
        for t in range(12):
            fill_sum(filled, x, source, slice(t, t + 1))
        return filled.matrix

    np.testing.assert_allclose(fill(), in_numpy(fill), rtol=1e-12)
    profile = d[:, :, None] * d[:, None] if decays else 1.0
    np.testing.assert_allclose(fill(), x.matrix + (factor if has_factor else 1.0) * profile * y.matrix, rtol=1e-12)


@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.parametrize("decays", [False, True])
def test_kernels_of_weights(in_numpy, kind, decays):
    """From whole functions and from the one row of a response that is asked for; with and without factors."""
    R, a = (causal_matrix(kind, 3, 12, 12, blocks=False) for _ in range(2))
    C = symmetric(kind, 3, 12, 12)
    d, variance = numbers(kind, 3, 12), numbers(kind, 3, 1, 1)
    w = Weights(d, a, d - 1, decays, variance)
    rows, profile = slice(6, 7), d[:, 6, None, None] * d[:, None, :7] if decays else 1.0
    for initial, learned in ((None, None), (numbers(kind, 3, 1, 1), numbers(kind, 3, 1, 1))):
        for response in (R, Given(R[rows])):
            fill = partial(_weight_kernel, w, response, C, rows, initial, learned)
            expected = times(learned, a[rows] * C[rows]) + times(initial, variance * profile * R[rows])
            np.testing.assert_allclose(fill(), expected, rtol=1e-12)
            np.testing.assert_allclose(fill(), in_numpy(fill), rtol=1e-12)


@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.parametrize("batch", [(1,), (3,), (3, 2)])
@pytest.mark.parametrize("decays", [False, True])
def test_a_site(in_numpy, batch, kind, decays):
    """Rows one after the other, from random kernels, with a source that is constant in time and one with a factor."""
    size = 21
    gamma0 = 0.5 + numbers(kind, batch[0], *[1] * len(batch), 1) ** 2
    A, B = (causal_matrix(kind, *batch, size, size, blocks=False).matrix / size for _ in range(2))
    B = B * (1 - np.eye(size))
    factor = numbers(kind, batch[0], 1, 1) if len(batch) == 1 else None
    d = numbers(kind, batch[0], *[1] * (len(batch) - 1), size) if decays else None
    u, r = Source(symmetric(kind, *batch, size, size), factor, d), Source(None, None, d)

    def run() -> list[Array]:
        room = Room(size, np.zeros(1, kind))
        site = Site(room, batch, gamma0)
        Cg, Ch = room.symmetric(*batch), room.symmetric(*batch)
        of_g, of_h = site.correlation_of_g(u, r, Cg), site.correlation_of_h(u, r, Ch)
        for t in range(size):
            rows = slice(t, t + 1)
            site.backward(B[..., rows, : t + 1], rows)
            of_g.fill(rows)
            site.A = A[..., rows, : t + 1]
            site.forward(rows)
            of_h.fill(rows)
        return [each.matrix for each in (site.dh, site.dg, Ch, Cg)]

    for found, expected in zip(run(), in_numpy(run), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


problem = maker("network", "sampling", "data", noise=0.3, lr=0.1, steps=40)


PROBLEMS = {
    "multilayer": problem(dl.MLP(3, 1.0), dl.FullBatch(2.0)),
    "unequal widths": problem(dl.MLP(3, (1.0, 2.0, 0.5)), dl.MultiPassSGD(2.0, 1.0)),
    "weight decay": problem(dl.MLP(2, 1.0), dl.FullBatch(2.0), weight_decay=0.1, momentum=0.5),
    "residual": problem(dl.ResNet(3, 1.0), dl.OnlineSGD(1.0)),
    "infinite depth": problem(dl.ResNet(float("inf"), 1.0, branch=0.5), dl.FullBatch(2.0), steps=10),
    "modes": problem(dl.MLP(2, 1.0), dl.FullBatch(2.0), dl.Spectrum([1.0, 0.5, 0.1], [1.0, 1.0, 1.0], noise=0.2)),
    "outputs": problem(dl.MLP(2, 1.0), dl.FullBatch(2.0), dl.Isotropic(0.3, target_gram=[[1.0, 0.2], [0.2, 0.5]])),
    "population": problem(dl.MLP(2, 1.0, parameterization="ntk"), dl.Population()),
}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("nudge", [0.0, 1e-3j])
def test_whole_solutions(in_numpy, name, nudge):
    """Two problems at a time, also with complex rates, of which derivatives are made."""
    batch = [replace_unchecked(PROBLEMS[name], {"lr": lr + nudge}) for lr in (0.1, 0.07)]
    for found, expected in zip(curves(batch), in_numpy(lambda: curves(batch)), strict=True):
        for loss in ("test", "train"):
            np.testing.assert_allclose(found.loss(loss), expected.loss(loss), rtol=1e-11)


def test_single_steps_after_panels(in_numpy):
    """Rows of panels are full in blocks, which steps after them must not skip; where the rate jumps there are some."""
    rates = (0.005,) * 100 + (0.01,) * 100
    long = replace(PROBLEMS["multilayer"], optimizer=dl.GradientDescent(rates), steps=200)
    lengths = Panels().solve([long])[0].axis.lengths
    assert (1, True) in [(length, before > 1) for before, length in pairwise(lengths)]
    found, expected = dl.solve(long, method="panels"), in_numpy(lambda: dl.solve(long, method="panels"))
    assert found.stats["nodes"] == expected.stats["nodes"]
    np.testing.assert_allclose(found.test_loss, expected.test_loss, rtol=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_sites_of_short_runs(steps):
    """Their covariances are read through a matrix that may not be written to."""
    sites = dl.solve(replace(PROBLEMS["multilayer"], steps=steps)).sample_sites(10)
    assert sites.h.sizes["time"] == steps
