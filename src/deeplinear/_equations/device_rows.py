"""Products of one row with functions of two times on a graphics card, as ``_rows.pyx`` has them for the processor.

Which row it is stands in the memory of the card: the kernels read it there, and skip whatever lies beyond it. So they
can be recorded once and replayed for every row. Matrices are as wide as the whole training; rows are zero beyond their
own time. Only single rows of double precision are known here.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import triton

from deeplinear._equations import device_kernels as kernels

Array = Any
"""A tensor of PyTorch."""

_BUSY = 512
"""Blocks that keep a large card busy: columns of few matrices are summed in parts until there are as many."""

_AT_ONCE_COLUMNS, _AT_ONCE_DOTS = 1024, 4096
"""Programs of one warp among which the blocks of many small matrices are shared, the best of some tried for 512
matrices of 200 rows: starting one for each block takes longer than what they do in early rows."""


class Blocks(NamedTuple):
    """How the products of a row are shared out."""

    rows: int  # of a block
    columns: int
    warps: int
    programs: int  # that share the blocks of a matrix
    parts: int = 1  # into which sums are cut


class DeviceRows:
    """The products, of the row whose number a tensor of one entry has."""

    def __init__(self, row: Array) -> None:
        self._row = row
        self._other = torch.cuda.Stream(row.device) if row.is_cuda else None

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
        through = filled.new_empty((*responses.shape[:-2], e))
        first, *others = zip(through, responses, weighted, strict=True)
        with beside(self._other):
            for each in others:
                self._fill_from(*each)
        self._fill_from(*first)
        join(self._other)
        self._dot(filled, through[0], responses[0], causal=True, mirror=True, more=(through, responses))

    def _fill_from(self, through: Array, own: Array, source: tuple[Array, Array, Array]) -> None:
        """Fill a row of responses times the covariance of a source."""
        matrix, factor, profile = source
        if matrix is None:
            self._drawn_once(through, own, factor, profile)
        else:
            self._dot(through, own, matrix, causal=False, factor=factor, profile=profile, at_row=True)

    def fill_sum(
        self, filled: Array, x: Array, y: Array | None, factor: Array | None, profile: Array | None, e: int
    ) -> None:
        """Fill a row of x + factor profile y profile, and the column."""
        C = 256
        own = x if y is None else y
        kernels.add_source[(triton.cdiv(e, C), len(filled))](
            filled, x, own, self._row, *_factors(filled, factor, profile), filled.stride(-2), _line(profile),
            filled.stride(0), x.stride(0), own.stride(0), _line(factor),
            Y=y is not None, FACTOR=factor is not None, PROFILE=profile is not None, C=C,
        )  # fmt: skip

    def sum_of_rows(
        self,
        x: Array,
        y: Array,
        of_product: Array | None,
        z: Array,
        of_last: Array | None,
        profile: Array | None,
        e: int,
    ) -> Array:
        """Row of factor x o y + factor (profile profile^T) o z, shape (batch, 1, e).

        Each of x, y and z is a stack of matrices (batch, e, e), or has the row alone.
        """
        C = 256
        out = z.new_empty((len(z), 1, e))
        lines = (0 if each.shape[-2] == 1 else each.stride(-2) for each in (x, y, z))
        kernels.sum_of_rows[(triton.cdiv(e, C), len(z))](
            out, x, y, z, self._row, *_factors(z, of_product, of_last, profile), e,
            *lines, *map(_line, (x, y, z, of_product, of_last, profile)),
            PRODUCT=of_product is not None, LAST=of_last is not None, PROFILE=profile is not None, C=C,
        )  # fmt: skip
        return out

    def _move(self, values: Array, matrix: Array, *, take: bool, mirror: bool) -> None:
        """Copy a row of a matrix to values, or the other way."""
        e, leading, C = matrix.shape[-1], matrix.shape[:-2], 256
        n0, n1, n2 = _three(leading)
        of_values, of_m = _strides(values, leading, 2), _strides(matrix, leading, 2)
        kernels.move[(triton.cdiv(e, C), n0 * n1 * n2)](
            values, matrix, self._row, e, values.stride(-1), matrix.stride(-2), n1, n2, *of_values, *of_m,
            TAKE=take, MIRROR=mirror, C=C,
        )  # fmt: skip

    def _times(self, out: Array, x: Array, lower: Array, which: int = -1, gamma: Array | None = None) -> None:
        """Sums over columns into ``out``, which is a row, or a matrix whose row of this number is filled."""
        e, at_row = x.shape[-1], which != -1
        leading = lower.shape[:-2]
        n0, n1, n2 = _three(leading)
        lead = n0 * n1 * n2
        R, C, warps, programs, parts = column_blocks(e, lead)
        line = out.stride(-2) if at_row else 0
        mine = _strides(out, leading, 2 if at_row else 1)
        number = x if gamma is None else gamma
        of_gamma = _factor_strides(gamma, leading, trailing=1)
        of_x, of_m = _strides(x.expand(*leading, e), leading, 1), _strides(lower, leading, 2)
        if parts == 1:
            kernels.columns[(programs, 1, lead)](
                out, x, lower, self._row, number, e, lower.stride(-2), line, n1, n2, *of_x, *of_m, *mine, 0, *of_gamma,
                WHICH=which, AT_ROW=at_row, PARTS=1, R=R, C=C, num_warps=warps,
            )  # fmt: skip
            return
        sums = x.new_empty((parts, *leading, e))
        of_sums = _strides(sums[0], leading, 1)
        kernels.columns[(programs, parts, lead)](
            sums, x, lower, self._row, number, e, lower.stride(-2), 0, n1, n2, *of_x, *of_m, *of_sums,
            sums.stride(0), *of_gamma,
            WHICH=-1, AT_ROW=False, PARTS=parts, R=R, C=C, num_warps=warps,
        )  # fmt: skip
        kernels.add_parts[(triton.cdiv(e, 128), lead)](
            out, sums, self._row, number, e, line, n1, n2, *of_sums, *mine, sums.stride(0), *of_gamma,
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
        R, C, warps, programs, _ = dot_blocks(e, n0 * n1 * n2)
        count, xn, mn = (1, 0, 0) if more is None else (len(more[0]), more[0].stride(0), more[1].stride(0))
        of_x = _strides(x, leading, 2 if at_row else 1)
        kernels.dots[(programs, n0 * n1 * n2)](
            out, x, matrix, self._row, *_factors(x, factor, profile), e, matrix.stride(-2),
            x.stride(-2) if at_row else 0, out.stride(-2) if mirror else 0,
            n1, n2, *of_x, xn, *_strides(matrix, leading, 2), mn,
            *_strides(out, leading, 2 if mirror else 1), *_factor_strides(factor, leading),
            *_factor_strides(profile, leading, trailing=1),
            CAUSAL=causal, X_AT_ROW=at_row, FACTOR=factor is not None, PROFILE=profile is not None, MIRROR=mirror,
            COUNT=count, R=R, C=C, num_warps=warps,
        )  # fmt: skip

    def _drawn_once(self, out: Array, own: Array, factor: Array | None, profile: Array | None) -> None:
        e, C = out.shape[-1], 512
        kernels.drawn_once[(triton.cdiv(e, C), len(out))](
            out, own, self._row, *_factors(own, factor, profile), e, own.stride(-2), _line(profile), own.stride(0),
            out.stride(0), _line(factor), FACTOR=factor is not None, PROFILE=profile is not None, C=C,
        )  # fmt: skip


@contextmanager
def beside(stream: Any) -> Iterator[None]:
    """Start what is started inside on another stream, which waits for what was started before on the present one.

    Small operations that do not depend on each other then take the time of one; without another stream nothing changes.
    """
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield


def join(stream: Any) -> None:
    """Let the present stream wait for the other one."""
    if stream is not None:
        torch.cuda.current_stream().wait_stream(stream)


def column_blocks(e: int, lead: int) -> Blocks:
    """How sums over rows of so many matrices are shared out, by blocks of columns."""
    if e <= 512:
        return Blocks(32, 32, 1, _shared(triton.cdiv(e, 32), lead, _AT_ONCE_COLUMNS))
    blocks = triton.cdiv(e, 64)
    return Blocks(32, 64, 4, blocks, parts=max(1, min(16, _BUSY * 2 // (blocks * lead))))


def dot_blocks(e: int, lead: int) -> Blocks:
    """How products with rows of so many matrices are shared out, by blocks of rows."""
    if e <= 512:
        return Blocks(4, 32, 1, _shared(triton.cdiv(e, 4), lead, _AT_ONCE_DOTS))
    return Blocks(2, 512, 4, triton.cdiv(e, 2))


def _shared(blocks: int, lead: int, programs: int) -> int:
    """Programs for each of so many matrices, where there are to be no more than some in all."""
    return max(1, min(blocks, programs // lead))


def _three(leading: Sequence[int]) -> tuple[int, int, int]:
    """Lengths of leading axes as three of them; those of length 1 at the end do not count."""
    lengths = _padded(list(leading), leading, 1)
    return lengths[0], lengths[1], lengths[2]


def _strides(x: Array, leading: Sequence[int], trailing: int) -> tuple[int, int, int]:
    """Strides of the three leading axes of an array, zero along axes that it repeats."""
    axes = zip(x.stride(), x.shape[: x.ndim - trailing], strict=False)
    of = [0 if length == 1 else stride for stride, length in axes]
    padded = _padded(of, leading, 0)
    return padded[0], padded[1], padded[2]


def _padded(numbers: list[int], leading: Sequence[int], filler: int) -> list[int]:
    """Numbers of leading axes, shortened or padded to three."""
    assert all(length == 1 for length in leading[3:])
    return [*numbers[:3], *[filler] * (3 - len(numbers))]


def _factor_strides(factor: Array | None, leading: Sequence[int], trailing: int = 2) -> tuple[int, int, int]:
    """Strides of a factor or of a profile over time, which lacks the first axis where there are pairs."""
    if factor is None:
        return 0, 0, 0
    lacking = len(leading) + trailing - factor.ndim
    return _strides(factor[(None,) * lacking], leading, trailing)


def _factors(like: Array, *factors: Array | None) -> list[Array]:
    """Return pointers for kernels; those of factors that are 1 are not read."""
    return [like if factor is None else factor for factor in factors]


def _line(x: Array | None) -> int:
    """Stride over the batch of what problems have one of each, zero if all share it."""
    return 0 if x is None or len(x) == 1 else int(x.stride(0))
