"""Products of one row with functions of two times on a graphics card, as ``_rows.pyx`` has them for the processor.

Which row it is stands in the memory of the card: the kernels read it there, and skip whatever lies beyond it. So they
can be recorded once and replayed for every row. Matrices are as wide as the whole training; rows are zero beyond their own
time. Only one row at a time of double precision is known here.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

Array = Any
"""A tensor of PyTorch."""

_BUSY = 512
"""Blocks that keep a large card busy: columns of few matrices are summed in parts until there are as many."""

STAGES = 1
_NUMBERS = ["n1", "n2", "x0", "x1", "x2", "xn", "m0", "m1", "m2", "mn", "o0", "o1", "o2", "part", "f1"]
"""Counts and strides of leading axes, for which kernels are not compiled anew."""


@triton.jit
def _at(index, n1, n2, s0, s1, s2):
    """Offset of one of the leading positions, of which there are three axes."""
    index = index.to(tl.int64)
    return (index // (n1 * n2)) * s0 + ((index // n2) % n1) * s1 + (index % n2) * s2


@triton.jit(do_not_specialize=_NUMBERS)
def _columns(
    out, x, m, row, gamma, width, line, out_line,
    n1, n2, x0, x1, x2, m0, m1, m2, o0, o1, o2, part, f1,
    WHICH: tl.constexpr, AT_ROW: tl.constexpr, PARTS: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Sum_s x(s) m(s, c) over s from c on: rows times a causal function, or a part of that sum."""
    block, which_part, lead = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    t = tl.load(row)
    x += _at(lead, n1, n2, x0, x1, x2)
    m += _at(lead, n1, n2, m0, m1, m2)
    first = block * C
    c = first + tl.arange(0, C)
    length = tl.cdiv(tl.maximum(t + 1 - first, 0), PARTS * R) * R
    start = first + which_part * length
    stop = tl.minimum(start + length, t + 1)
    total = tl.zeros((R, C), tl.float64)
    for s in tl.range(start, stop, R, num_stages=STAGES):
        at = s + tl.arange(0, R)
        value = tl.load(x + at, mask=at < stop, other=0.0)
        tile = tl.load(m + at[:, None] * line + c[None, :], mask=(at < stop)[:, None] & (c <= t)[None, :], other=0.0)
        total += value[:, None] * tile
    values = tl.sum(total, axis=0)
    out += _at(lead, n1, n2, o0, o1, o2)
    if PARTS > 1:
        tl.store(out + which_part.to(tl.int64) * part + c, values, mask=c < width)
    else:
        _put(out, values, c, t, lead, gamma, width, out_line, n1, n2, f1, WHICH, AT_ROW)


@triton.jit(do_not_specialize=_NUMBERS)
def _together(
    out, parts, row, gamma, width, out_line, n1, n2, x0, x1, x2, o0, o1, o2, part, f1,
    WHICH: tl.constexpr, AT_ROW: tl.constexpr, PARTS: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Add up the parts of sums."""
    lead = tl.program_id(1)
    t = tl.load(row)
    c = tl.program_id(0) * C + tl.arange(0, C)
    parts += _at(lead, n1, n2, x0, x1, x2)
    values = tl.zeros((C,), tl.float64)
    for each in range(PARTS):
        values += tl.load(parts + each * part + c, mask=c < width, other=0.0)
    _put(out + _at(lead, n1, n2, o0, o1, o2), values, c, t, lead, gamma, width, out_line, n1, n2, f1, WHICH, AT_ROW)


@triton.jit
def _put(out, values, c, t, lead, gamma, width, out_line, n1, n2, f1, WHICH: tl.constexpr, AT_ROW: tl.constexpr):
    """Store a row; the one of number WHICH on the first axis times gamma and with the identity, or all if it is -2."""
    if WHICH >= 0:
        if lead // (n1 * n2) == WHICH:
            values = values * tl.load(gamma + (lead // n2) % n1 * f1) + tl.where(c == t, 1.0, 0.0)
    if WHICH == -2:
        values += tl.where(c == t, 1.0, 0.0)
    if AT_ROW:
        out += t * out_line
    tl.store(out + c, values, mask=c < width)


@triton.jit(do_not_specialize=_NUMBERS)
def _dots(
    out, x, m, row, factor, profile, width, line, x_line, out_line, profile_line,
    n1, n2, x0, x1, x2, xn, m0, m1, m2, mn, o0, o1, o2, f1,
    CAUSAL: tl.constexpr, X_AT_ROW: tl.constexpr, FACTOR: tl.constexpr, PROFILE: tl.constexpr, MIRROR: tl.constexpr,
    COUNT: tl.constexpr, R: tl.constexpr, C: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Sum_s m(r, s) x(s): rows times a symmetric function, or the transpose of a causal one, summed over several."""
    block, lead = tl.program_id(0), tl.program_id(1)
    t = tl.load(row)
    x += _at(lead, n1, n2, x0, x1, x2)
    m += _at(lead, n1, n2, m0, m1, m2)
    number = (lead // n2) % n1
    profile += number * profile_line
    r = block * R + tl.arange(0, R)
    stop = t + 1
    if CAUSAL:
        stop = tl.minimum(stop, (block + 1) * R)
    if block * R > t:
        stop = t * 0
    if X_AT_ROW:
        x += t * x_line
    total = tl.zeros((R, C), tl.float64)
    for n in tl.static_range(COUNT):
        for s in tl.range(0, stop, C, num_stages=STAGES):
            at = s + tl.arange(0, C)
            value = tl.load(x + n * xn + at, mask=at < stop, other=0.0)
            if PROFILE:
                value *= tl.load(profile + at, mask=at < stop, other=0.0)
            inside = (r <= t)[:, None] & (at < stop)[None, :]
            total += tl.load(m + n * mn + r[:, None] * line + at[None, :], mask=inside, other=0.0) * value[None, :]
    values = tl.sum(total, axis=1)
    if FACTOR:
        values *= tl.load(factor + number * f1)
    if PROFILE:
        values *= tl.load(profile + r, mask=r <= t, other=0.0)
    out += _at(lead, n1, n2, o0, o1, o2)
    if MIRROR:
        tl.store(out + t * out_line + r, values, mask=r <= t)
        tl.store(out + r * out_line + t, values, mask=r <= t)
    else:
        tl.store(out + r, values, mask=r < width)


@triton.jit(do_not_specialize=["n1", "n2", "x0", "x1", "x2", "m0", "m1", "m2"])
def _copy(
    values, m, row, width, step, line, n1, n2, x0, x1, x2, m0, m1, m2,
    TAKE: tl.constexpr, MIRROR: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Copy a row of a matrix, or fill it."""
    lead = tl.program_id(1)
    t = tl.load(row)
    c = tl.program_id(0) * C + tl.arange(0, C)
    values += _at(lead, n1, n2, x0, x1, x2)
    m += _at(lead, n1, n2, m0, m1, m2)
    if TAKE:
        tl.store(values + c, tl.load(m + t * line + c, mask=c <= t, other=0.0), mask=c < width)
    else:
        own = tl.load(values + c * step, mask=c <= t, other=0.0)
        tl.store(m + t * line + c, own, mask=c <= t)
        if MIRROR:
            tl.store(m + c * line + t, own, mask=c <= t)


@triton.jit
def _constant(
    out, x, row, factor, profile, width, x_line, profile_line, x1, o1, f1,
    FACTOR: tl.constexpr, PROFILE: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Row times the covariance of a source that is drawn once: its sum over times, at all times."""
    number = tl.program_id(1).to(tl.int64)
    t = tl.load(row)
    x += number * x1 + t * x_line
    profile += number * profile_line
    total = tl.zeros((C,), tl.float64)
    for s in range(0, t + 1, C):
        at = s + tl.arange(0, C)
        value = tl.load(x + at, mask=at <= t, other=0.0)
        if PROFILE:
            value *= tl.load(profile + at, mask=at <= t, other=0.0)
        total += value
    c = tl.program_id(0) * C + tl.arange(0, C)
    values = tl.sum(total, axis=0) + tl.zeros((C,), tl.float64)
    if FACTOR:
        values *= tl.load(factor + number * f1)
    if PROFILE:
        values *= tl.load(profile + c, mask=c <= t, other=0.0)
    tl.store(out + number * o1 + c, tl.where(c <= t, values, 0.0), mask=c < width)


@triton.jit
def _sum(
    filled, x, y, row, factor, profile, line, profile_line, z1, x1, y1, f1,
    Y: tl.constexpr, FACTOR: tl.constexpr, PROFILE: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Row of the sum of a symmetric function and the covariance of a source."""
    number = tl.program_id(1).to(tl.int64)
    t = tl.load(row)
    c = tl.program_id(0) * C + tl.arange(0, C)
    values = tl.zeros((C,), tl.float64) + 1.0
    if Y:
        values *= tl.load(y + number * y1 + t * line + c, mask=c <= t, other=0.0)
    if FACTOR:
        values *= tl.load(factor + number * f1)
    if PROFILE:
        profile += number * profile_line
        values *= tl.load(profile + c, mask=c <= t, other=0.0) * tl.load(profile + t)
    values += tl.load(x + number * x1 + t * line + c, mask=c <= t, other=0.0)
    filled += number * z1
    tl.store(filled + t * line + c, values, mask=c <= t)
    tl.store(filled + c * line + t, values, mask=c <= t)


class DeviceRows:
    """The products, of the row whose number a tensor of one entry has."""

    def __init__(self, row: Array) -> None:
        self._row = row

    def rows_times(self, x: Array, lower: Array, e: int, block: int) -> Array:
        """Rows x (..., r, e) times a causal matrix (..., e, e)."""
        leading = torch.broadcast_shapes(x.shape[:-1], (*lower.shape[:-2], 1))
        out = x.new_empty((*leading, e))
        self._times(out, x.expand(*leading, e), lower[..., None, :, :].expand(*leading, e, e))
        return out

    def take(self, matrix: Array) -> Array:
        """Return the row of a matrix (..., e, e), shape (..., 1, e)."""
        row: Array = matrix.new_empty((*matrix.shape[:-2], 1, matrix.shape[-1]))
        self._move(row, matrix, take=True, mirror=False)
        return row

    def put(self, matrix: Array, values: Array, *, mirror: bool) -> None:
        """Fill the row of a matrix (..., e, e) by values (..., 1, e), and the column if they are to be mirrored."""
        self._move(values.expand(*matrix.shape[:-2], 1, matrix.shape[-1]), matrix, take=False, mirror=mirror)

    def fill_resolvent(self, matrix: Array, kernel: Array, e: int, block: int) -> None:
        """Fill a row of F = 1 + kernel F."""
        leading = (*matrix.shape[:-2], 1)
        self._times(matrix[..., None, :, :], kernel, matrix[..., None, :, :].expand(*leading, e, e), which=-2)

    def fill_pair(self, row: Array, matrices: Array, filled: Array, factor: Array, which: int, block: int) -> None:
        """Fill rows of a pair with those of others times a kernel; one of them times a factor, with the identity."""
        e = row.shape[-1]
        leading = (*matrices.shape[:-2], 1)
        self._times(filled[..., None, :, :], row.expand(*leading, e), matrices[..., None, :, :], which, factor)

    def rows_times_transpose(self, x: Array, lower: Array, e: int, block: int) -> Array:
        """Rows x (..., r, e) times the transpose of a causal matrix (..., e, e)."""
        leading = torch.broadcast_shapes(x.shape[:-1], (*lower.shape[:-2], 1))
        out = x.new_empty((*leading, e))
        self._dot(out, x.expand(*leading, e), lower[..., None, :, :].expand(*leading, e, e), causal=True)
        return out

    def rows_times_symmetric(self, x: Array, matrix: Array, e: int) -> Array:
        """Rows x (..., r, e) times a symmetric matrix (..., e, e)."""
        out = x.new_empty(x.shape)
        self._dot(out, x, matrix[..., None, :, :].expand(*x.shape, e), causal=False)
        return out

    def fill_sandwich(
        self, filled: Array, responses: Array, weighted: Sequence[tuple[Array, Array, Array]], e: int, block: int
    ) -> None:
        """Fill a row of sum_i F_i S_i F_i^T, and the column; S_i is a matrix, a factor and a profile over time."""
        count, batch = responses.shape[:2]
        through = filled.new_empty((count, batch, e))
        for each, own, (matrix, factor, profile) in zip(through, responses, weighted, strict=True):
            if matrix is None:
                self._drawn_once(each, own, factor, profile)
            else:
                self._dot(each, own, matrix, causal=False, factor=factor, profile=profile, at_row=True)
        self._dot(filled, through[0], responses[0], causal=True, mirror=True, more=(through, responses))

    def fill_sum(
        self, filled: Array, x: Array, y: Array | None, factor: Array | None, profile: Array | None, e: int
    ) -> None:
        """Fill a row of x + factor profile y profile, and the column."""
        C = 256
        own = x if y is None else y
        _sum[(triton.cdiv(e, C), len(filled))](
            filled, x, own, self._row, *_factors(filled, factor, profile), filled.stride(-2), _line(profile),
            filled.stride(0), x.stride(0), own.stride(0), _line(factor),
            Y=y is not None, FACTOR=factor is not None, PROFILE=profile is not None, C=C,
        )  # fmt: skip

    def _move(self, values: Array, matrix: Array, *, take: bool, mirror: bool) -> None:
        """Copy a row of a matrix to values, or the other way."""
        e, leading, C = matrix.shape[-1], matrix.shape[:-2], 256
        n0, n1, n2 = _three(leading)
        of_values, of_m = _strides(values, leading, 2), _strides(matrix, leading, 2)
        _copy[(triton.cdiv(e, C), n0 * n1 * n2)](
            values, matrix, self._row, e, values.stride(-1), matrix.stride(-2), n1, n2, *of_values, *of_m,
            TAKE=take, MIRROR=mirror, C=C,
        )  # fmt: skip

    def _times(self, out: Array, x: Array, lower: Array, which: int = -1, gamma: Array | None = None) -> None:
        """Sums over columns into ``out``, which is a row, or a matrix whose row of this number is filled."""
        e, at_row = x.shape[-1], which != -1
        leading = lower.shape[:-2]
        n0, n1, n2 = _three(leading)
        lead = n0 * n1 * n2
        R, C, warps, parts = column_blocks(e, lead)
        blocks = triton.cdiv(e, C)
        line = out.stride(-2) if at_row else 0
        mine = _strides(out, leading, 2 if at_row else 1)
        number, f1 = (x if gamma is None else gamma), _line(gamma)
        of_x, of_m = _strides(x.expand(*leading, e), leading, 1), _strides(lower, leading, 2)
        if parts == 1:
            _columns[(blocks, 1, lead)](
                out, x, lower, self._row, number, e, lower.stride(-2), line, n1, n2, *of_x, *of_m, *mine, 0, f1,
                WHICH=which, AT_ROW=at_row, PARTS=1, R=R, C=C, STAGES=STAGES, num_warps=warps,
            )  # fmt: skip
            return
        sums = x.new_empty((parts, *leading, e))
        of_sums = _strides(sums[0], leading, 1)
        _columns[(blocks, parts, lead)](
            sums, x, lower, self._row, number, e, lower.stride(-2), 0, n1, n2, *of_x, *of_m, *of_sums, sums.stride(0), f1,
            WHICH=-1, AT_ROW=False, PARTS=parts, R=R, C=C, STAGES=STAGES, num_warps=warps,
        )  # fmt: skip
        _together[(triton.cdiv(e, 128), lead)](
            out, sums, self._row, number, e, line, n1, n2, *of_sums, *mine, sums.stride(0), f1,
            WHICH=which, AT_ROW=at_row, PARTS=parts, C=128,
        )  # fmt: skip

    def _dot(
        self,
        out: Array,
        x: Array,
        matrix: Array,
        *,
        causal: bool,
        factor: Array | None = None,
        profile: Array | None = None,
        at_row: bool = False,
        mirror: bool = False,
        more: tuple[Array, Array] | None = None,
    ) -> None:
        """Products with rows of a matrix; the sum over several where more of the rows and matrices are given."""
        e, leading = matrix.shape[-1], matrix.shape[:-2]
        n0, n1, n2 = _three(leading)
        R, C, warps = dot_blocks(e, n0 * n1 * n2)
        count, xn, mn = (1, 0, 0) if more is None else (len(more[0]), more[0].stride(0), more[1].stride(0))
        of_x = _strides(x, leading, 2 if at_row else 1)
        _dots[(triton.cdiv(e, R), n0 * n1 * n2)](
            out, x, matrix, self._row, *_factors(x, factor, profile), e, matrix.stride(-2), x.stride(-2) if at_row else 0,
            out.stride(-2) if mirror else 0, _line(profile), n1, n2, *of_x, xn, *_strides(matrix, leading, 2), mn,
            *_strides(out, leading, 2 if mirror else 1), _line(factor),
            CAUSAL=causal, X_AT_ROW=at_row, FACTOR=factor is not None, PROFILE=profile is not None, MIRROR=mirror,
            COUNT=count, R=R, C=C, STAGES=STAGES, num_warps=warps,
        )  # fmt: skip

    def _drawn_once(self, out: Array, own: Array, factor: Array | None, profile: Array | None) -> None:
        e, C = out.shape[-1], 512
        _constant[(triton.cdiv(e, C), len(out))](
            out, own, self._row, *_factors(own, factor, profile), e, own.stride(-2), _line(profile), own.stride(0),
            out.stride(0), _line(factor), FACTOR=factor is not None, PROFILE=profile is not None, C=C,
        )  # fmt: skip


def column_blocks(e: int, lead: int) -> tuple[int, int, int, int]:
    """Rows and columns of a block, its warps, and into how many parts sums over so many matrices are cut."""
    if e <= 512:
        return 32, 32, 1, 1
    parts = max(1, min(16, _BUSY * 2 // (triton.cdiv(e, 64) * lead)))
    return 32, 64, 4, parts


def dot_blocks(e: int, lead: int) -> tuple[int, int, int]:
    """Rows and columns of a block, and its warps."""
    return (8, 16, 1) if e <= 512 else (2, 512, 4)


def _three(leading: Sequence[int]) -> tuple[int, int, int]:
    """Lengths of leading axes as three: (1, batch, 1) of one, and (first, batch, 1) of two."""
    if len(leading) == 1:
        return 1, leading[0], 1
    if len(leading) == 2:
        return leading[0], leading[1], 1
    first, second, *others = leading
    return first, second, math.prod(others)


def _strides(x: Array, leading: Sequence[int], trailing: int) -> tuple[int, int, int]:
    """Strides of the three leading axes of an array, zero along axes that it repeats."""
    of = list(x.stride()[: x.ndim - trailing])
    of = [0 if length == 1 else stride for stride, length in zip(of, leading, strict=True)]
    if len(of) == 1:
        return 0, of[0], 0
    if len(of) == 2:
        return of[0], of[1], 0
    assert len(of) == 3
    return of[0], of[1], of[2]


def _factors(like: Array, *factors: Array | None) -> list[Array]:
    """Return pointers for kernels; those of factors that are 1 are not read."""
    return [like if factor is None else factor for factor in factors]


def _line(x: Array | None) -> int:
    """Stride over the batch of what problems have one of each, zero if all share it."""
    return 0 if x is None or len(x) == 1 else int(x.stride(0))
