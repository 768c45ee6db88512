"""The kernels for a card, on the processor by Triton's interpreter, against products of PyTorch.

Run by ``test_replay.py`` in a process of its own, since Triton decides at import whether it interprets.
"""

import numpy as np
import torch

from deeplinear._equations import device_rows
from deeplinear._equations.device_past import PastOnCard
from deeplinear._equations.device_rows import Blocks, DeviceRows
from deeplinear._equations.fixed_point import MEMORY, Accelerated, Past, solve

SIZE, BLOCK = 11, 16
OF_A_CARD = device_rows.column_blocks, device_rows.dot_blocks
draw = torch.Generator().manual_seed(0)
cases = 0


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=draw)


def agree(actual, expected):
    global cases
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    cases += 1


def check(t, lead, parts=None):
    """All products of a row, with small blocks in so many parts; or with those that a card has, if none are given."""
    blocks = None if parts is None else Blocks(4, 4, 1, 2, parts)
    device_rows.column_blocks, device_rows.dot_blocks = OF_A_CARD if blocks is None else [lambda e, lead: blocks] * 2
    rows, known = DeviceRows(torch.tensor([t])), (torch.arange(SIZE) <= t).double()
    within = known * known[:, None]
    F, C, x = random(2, *lead, SIZE, SIZE).tril() * within, random(*lead, SIZE, SIZE), random(*lead, 1, SIZE) * known
    C = (C + C.mT) * within
    ones = [1] * (len(lead) - 1)
    factor, profile = random(lead[0], *ones, 1, 1), random(lead[0], *ones, SIZE)
    own = slice(t, t + 1)

    agree(rows.rows_times(x, F[0], SIZE, BLOCK), x @ F[0])
    agree(rows.rows_times_transpose(x, F[0], SIZE, BLOCK), x @ F[0].mT)
    agree(rows.rows_times_symmetric(x, C, SIZE), x @ C)
    agree(rows.take(C), C[..., own, :])
    put = torch.zeros_like(C)
    rows.put(put, x, mirror=True)
    expected = torch.zeros_like(C)
    expected[..., own, :] = x
    expected[..., :, own] = x.mT
    agree(put, expected)

    resolvent = F[0].clone()
    resolvent[..., own, :] = 0.0
    expected = x @ resolvent
    expected[..., 0, t] += 1.0
    rows.fill_resolvent(resolvent, x, SIZE, BLOCK)
    agree(resolvent[..., own, :], expected)
    pair, expected = torch.zeros_like(F), x @ F
    expected[1] *= factor
    expected[1][..., 0, t] += 1.0
    rows.fill_pair(x, F, pair, factor, 1, BLOCK)
    agree(pair[..., own, :], expected)

    d = profile[..., None, :]
    first = factor * d * ((d * F[0][..., own, :]) @ C)
    expected = first @ F[0].mT + F[1][..., own, :] @ C @ F[1].mT
    filled = torch.zeros_like(C)
    rows.fill_sandwich(filled, F, [(C, factor, profile), (C, None, None)], SIZE, BLOCK)
    agree(filled[..., own, :] + filled[..., own].mT, 2 * expected)
    if len(lead) > 1:
        return
    first = factor * d * (d * F[0][..., own, :]).sum(-1, keepdim=True) * known
    expected = first @ F[0].mT + F[1][..., own, :].sum(-1, keepdim=True) * known @ F[1].mT
    filled = torch.zeros_like(C)
    rows.fill_sandwich(filled, F, [(None, factor, profile), (None, None, None)], SIZE, BLOCK)
    agree(filled[..., own, :], expected)
    expected = (factor * F[0] * C + 2 * factor * d.mT * d * F[1])[..., own, :]
    agree(rows.sum_of_rows(F[0], C, factor, F[1], 2 * factor, profile, SIZE), expected)
    agree(rows.sum_of_rows(F[0], C, None, F[1], None, None, SIZE), (F[0] * C + F[1])[..., own, :])
    agree(
        rows.sum_of_rows(F[0], C[..., own, :], factor, F[1][..., own, :], None, None, SIZE),
        (factor * F[0] * C + F[1])[..., own, :],
    )
    filled = torch.zeros_like(C)
    rows.fill_sum(filled, C, C, factor, profile, SIZE)
    agree(filled[..., own, :], (C + factor * d.mT * d * C)[..., own, :])


def check_sweeps(batch):
    """A linear sweep of 20 unknowns, whose memory is used for three starts; the last problem has unknowns of zero."""
    global cases
    A, b = 0.3 * random(batch, 20, 20) / 20**0.5, random(batch, 20, 1)
    A[1:] *= 2.0
    A[-1, :15], b[-1, :15] = 0.0, 0.0

    def sweep(x):
        return (A @ x[..., None] + b)[..., 0]

    like = torch.zeros(batch, 20, dtype=torch.float64)
    here, there = (Accelerated(sweep, like, past) for past in (Past(MEMORY, like), PastOnCard(like)))
    for start in (like, random(batch, 20), 1e-3 * random(batch, 20)):
        (expected, _), (actual, moving) = (
            solve(each, start, 1e-12, 40, np.zeros(batch, bool)) for each in (here, there)
        )
        assert not moving.any()
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(actual, torch.linalg.solve(torch.eye(20) - A, b)[..., 0], rtol=1e-10, atol=1e-10)
        cases += 1
    there.begin(start)
    there.advance()
    torch.testing.assert_close(there.x, sweep(start))  # of which nothing is remembered
    like[0, 0] = torch.inf
    assert solve(there, like, 1e-12, 40, np.zeros(batch, bool))[1].tolist() == [True] + [False] * (batch - 1)


def check_parallel_residuals():
    """Two sweeps that moved alike, and none."""
    global cases
    x, dx, df, residual = (random(2, 20) for _ in range(4))
    df[1] *= 1e-8
    here, there = pasts = Past(MEMORY, x), PastOnCard(x)
    for past in pasts:
        for _ in range(2):
            past.add(dx, df, x, residual)
    torch.testing.assert_close(there.combined(residual), here.combined(residual), rtol=1e-9, atol=0.0)
    there.forget()
    assert not there.combined(residual).any()
    cases += 1


if __name__ == "__main__":
    for t, lead, parts in ((6, (2,), 1), (6, (2, 3), 3), (SIZE - 1, (2,), 2)):
        check(t, lead, parts)
    check(6, (2,))
    for e, lead in ((1, 1), (11, 2), (200, 512), (200, 1024), (200, 5000), (512, 3), (513, 3), (4000, 1)):
        for of_blocks, rows_or_columns in zip(OF_A_CARD, ("columns", "rows"), strict=True):
            found = of_blocks(e, lead)
            blocks = -(-e // getattr(found, rows_or_columns))
            assert 1 <= found.programs <= blocks
            assert found.parts >= 1
    check_sweeps(3)
    check_parallel_residuals()
    print(f"{cases} cases agree")
