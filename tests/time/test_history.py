"""Nodes that stand for the steps of the past."""

import numpy as np
import pytest

from deeplinear._time.history import BLOCK_NODES, Block, condensation, joined

EXACT = Block(32, BLOCK_NODES), Block(32 + BLOCK_NODES, BLOCK_NODES)
STEPS = np.arange(32, 32 + 2 * BLOCK_NODES)


def polynomial(times, alternates, degree=BLOCK_NODES - 1):
    """Some polynomial; of half the degree, and another one on odd steps, where it is to alternate."""
    x = (np.asarray(times) - 40.0) / 30.0
    if not alternates:
        return x**degree - 0.3 * x**2 + 1.0
    degree //= 2
    return np.where(np.round(times - 32) % 2 == 1, x**degree + 2.0, 1.0 - x**2)


@pytest.mark.parametrize("alternates", [False, True])
def test_values_and_sums_of_polynomials_are_exact(alternates):
    block = joined(*EXACT, alternates)
    how = condensation(*EXACT, block, 0)
    y = polynomial(STEPS, alternates)
    x = np.random.default_rng(1).normal(size=len(STEPS))
    assert (how.moments @ x) @ (how.values @ y) == pytest.approx(x @ y, rel=1e-12)
    np.testing.assert_allclose(how.values @ how.moments.T, np.eye(BLOCK_NODES), atol=1e-12)
    assert block.weights.sum() == pytest.approx(block.length)


@pytest.mark.parametrize("alternates", [False, True])
def test_two_condensed_blocks_are_one_again(alternates):
    """As if all of their steps had been condensed at once."""
    first, second = (
        joined(Block(start, BLOCK_NODES), Block(start + BLOCK_NODES, BLOCK_NODES), alternates)
        for start in (0, 2 * BLOCK_NODES)
    )
    block = joined(first, second, alternates)
    how = condensation(first, second, block, 0)
    old = np.concatenate([first.nodes, second.nodes])
    if alternates:  # nodes of odd steps are given the time of the even step before
        odd = np.tile(np.arange(BLOCK_NODES) >= BLOCK_NODES // 2, 2)
        y, new = old**3 + odd, block.nodes**3 + (np.arange(BLOCK_NODES) >= BLOCK_NODES // 2)
    else:
        y, new = old**5, block.nodes**5
    np.testing.assert_allclose(how.values @ y, new, rtol=1e-12, atol=1e-12 * new.max())


def test_the_rule_is_exact_up_to_its_degree():
    block = Block(0, 400)
    for degree in (2 * BLOCK_NODES - 1, 2 * BLOCK_NODES):
        exact = sum((step / 200 - 1) ** degree for step in range(400))
        found = block.weights @ (block.nodes / 200 - 1) ** degree
        assert (abs(found - exact) < 1e-10) == (degree < 2 * BLOCK_NODES)


def test_white_noise_becomes_a_density():
    """A sum over steps of x v y is one over nodes, for smooth x, y and strength v of the noise."""
    block = joined(*EXACT, False)
    how = condensation(*EXACT, block, 0)
    x, v, y = (polynomial(STEPS, False, degree) for degree in (5, 3, 4))
    found = (how.moments @ x) @ ((how.densities @ v) * (how.moments @ y))
    assert found == pytest.approx(x @ (v * y), rel=1e-12)


def test_what_is_left_out_of_a_wave_has_the_order_of_the_nodes():
    left = []
    first, second = Block(0, 128), Block(128, 128)
    how = condensation(first, second, joined(first, second, False), 0)
    for waves in (1.0, 2.0):
        y = np.cos(2 * np.pi * waves * np.concatenate([first.nodes, second.nodes]) / 256)
        left.append(np.abs(y - how.moments.T @ (how.values @ y)).max())
    assert BLOCK_NODES - 3 < np.log2(left[1] / left[0]) < BLOCK_NODES + 2


def test_smooth_blocks_have_forgotten_what_alternates():
    smooth = joined(*EXACT, False)
    assert joined(smooth, Block(64, BLOCK_NODES), True) is None
    assert joined(joined(*EXACT, True), Block(64, BLOCK_NODES), True) == Block(32, 3 * BLOCK_NODES, True)
