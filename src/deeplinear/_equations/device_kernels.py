"""Kernels for one row of functions of two times on a graphics card, which ``device_rows.py`` starts.

The number of the row stands in the memory of the card. What lies beyond it is not read, and written as zero where a row
is new. Leading axes are three at most, with the strides of each array along them: x, m (a matrix), o (what comes out),
f (a factor) and p (a profile over time).
"""

import triton
import triton.language as tl

_NUMBERS = ["n1", "n2", *(f"{array}{axis}" for array in "xmofp" for axis in "012"), "xn", "mn", "part"]
"""Counts and strides of leading axes, for which kernels are not compiled anew."""


@triton.jit
def _at(index, n1, n2, s0, s1, s2):
    """Offset of one of the leading positions, of which there are three axes."""
    index = index.to(tl.int64)
    return (index // (n1 * n2)) * s0 + ((index // n2) % n1) * s1 + (index % n2) * s2


@triton.jit(do_not_specialize=_NUMBERS)
def columns(
    out, x, m, row, gamma, width, line, out_line,
    n1, n2, x0, x1, x2, m0, m1, m2, o0, o1, o2, part, f0, f1, f2,
    WHICH: tl.constexpr, AT_ROW: tl.constexpr, PARTS: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Sum_s x(s) m(s, c) over s from c on: rows times a causal function, or a part of that sum.

    Programs take blocks of columns in turns.
    """
    which_part, lead = tl.program_id(1), tl.program_id(2)
    t = tl.load(row)
    x += _at(lead, n1, n2, x0, x1, x2)
    m += _at(lead, n1, n2, m0, m1, m2)
    out += _at(lead, n1, n2, o0, o1, o2)
    gamma += _at(lead, n1, n2, f0, f1, f2)
    for block in range(tl.program_id(0), tl.cdiv(width, C), tl.num_programs(0)):
        first = block * C
        c = first + tl.arange(0, C)
        length = tl.cdiv(tl.maximum(t + 1 - first, 0), PARTS * R) * R
        start = first + which_part * length
        stop = tl.minimum(start + length, t + 1)
        total = tl.zeros((R, C), tl.float64)
        for s in range(start, stop, R):
            at = s + tl.arange(0, R)
            value = tl.load(x + at, mask=at < stop, other=0.0)
            inside = (at < stop)[:, None] & (c <= t)[None, :]
            total += value[:, None] * tl.load(m + at[:, None] * line + c[None, :], mask=inside, other=0.0)
        values = tl.sum(total, axis=0)
        if PARTS > 1:
            tl.store(out + which_part.to(tl.int64) * part + c, values, mask=c < width)
        else:
            _put(out, values, c, t, lead // (n1 * n2), gamma, width, out_line, WHICH, AT_ROW)


@triton.jit(do_not_specialize=_NUMBERS)
def add_parts(
    out, parts, row, gamma, width, out_line, n1, n2, x0, x1, x2, o0, o1, o2, part, f0, f1, f2,
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
    out += _at(lead, n1, n2, o0, o1, o2)
    gamma += _at(lead, n1, n2, f0, f1, f2)
    _put(out, values, c, t, lead // (n1 * n2), gamma, width, out_line, WHICH, AT_ROW)


@triton.jit
def _put(out, values, c, t, first, gamma, width, out_line, WHICH: tl.constexpr, AT_ROW: tl.constexpr):
    """Store a row; the one of number WHICH on the first axis times gamma and with the identity, or all if it is -2."""
    if WHICH >= 0:
        is_own = first == WHICH
        values = tl.where(is_own, values * tl.load(gamma) + tl.where(c == t, 1.0, 0.0), values)
    if WHICH == -2:
        values += tl.where(c == t, 1.0, 0.0)
    if AT_ROW:
        out += t * out_line
    tl.store(out + c, values, mask=c < width)


@triton.jit(do_not_specialize=_NUMBERS)
def dots(
    out, x, m, row, factor, profile, width, line, x_line, out_line,
    n1, n2, x0, x1, x2, xn, m0, m1, m2, mn, o0, o1, o2, f0, f1, f2, p0, p1, p2,
    CAUSAL: tl.constexpr, X_AT_ROW: tl.constexpr, FACTOR: tl.constexpr, PROFILE: tl.constexpr, MIRROR: tl.constexpr,
    COUNT: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Sum_s m(r, s) x(s): rows times a symmetric function, or the transpose of a causal one, summed over several.

    Programs take blocks of rows in turns.
    """
    lead = tl.program_id(1)
    t = tl.load(row)
    x += _at(lead, n1, n2, x0, x1, x2)
    m += _at(lead, n1, n2, m0, m1, m2)
    out += _at(lead, n1, n2, o0, o1, o2)
    profile += _at(lead, n1, n2, p0, p1, p2)
    if X_AT_ROW:
        x += t * x_line
    for block in range(tl.program_id(0), tl.cdiv(width, R), tl.num_programs(0)):
        r = block * R + tl.arange(0, R)
        stop = t + 1
        if CAUSAL:
            stop = tl.minimum(stop, (block + 1) * R)
        if block * R > t:
            stop = t * 0
        total = tl.zeros((R, C), tl.float64)
        for n in tl.static_range(COUNT):
            for s in range(0, stop, C):
                at = s + tl.arange(0, C)
                value = tl.load(x + n * xn + at, mask=at < stop, other=0.0)
                if PROFILE:
                    value *= tl.load(profile + at, mask=at < stop, other=0.0)
                inside = (r <= t)[:, None] & (at < stop)[None, :]
                total += tl.load(m + n * mn + r[:, None] * line + at[None, :], mask=inside, other=0.0) * value[None, :]
        values = tl.sum(total, axis=1)
        if FACTOR:
            values *= tl.load(factor + _at(lead, n1, n2, f0, f1, f2))
        if PROFILE:
            values *= tl.load(profile + r, mask=r <= t, other=0.0)
        if MIRROR:
            tl.store(out + t * out_line + r, values, mask=r <= t)
            tl.store(out + r * out_line + t, values, mask=r <= t)
        else:
            tl.store(out + r, values, mask=r < width)


@triton.jit(do_not_specialize=_NUMBERS)
def move(
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
def drawn_once(
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
def add_source(
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


@triton.jit
def sum_of_rows(
    out, x, y, z, row, of_product, of_last, profile, width, x_line, y_line, z_line, x1, y1, z1, f1, g1, p1,
    PRODUCT: tl.constexpr, LAST: tl.constexpr, PROFILE: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Row of factor x o y + factor (profile profile^T) o z."""
    number = tl.program_id(1).to(tl.int64)
    t = tl.load(row)
    c = tl.program_id(0) * C + tl.arange(0, C)
    known = c <= t
    values = tl.load(x + number * x1 + t * x_line + c, mask=known, other=0.0)
    values *= tl.load(y + number * y1 + t * y_line + c, mask=known, other=0.0)
    if PRODUCT:
        values *= tl.load(of_product + number * f1)
    last = tl.load(z + number * z1 + t * z_line + c, mask=known, other=0.0)
    if LAST:
        last *= tl.load(of_last + number * g1)
    if PROFILE:
        profile += number * p1
        last *= tl.load(profile + c, mask=known, other=0.0) * tl.load(profile + t)
    tl.store(out + number * width + c, values + last, mask=c < width)


@triton.jit
def combination(out, products, RIDGE: tl.constexpr, M: tl.constexpr):
    """Solve G c = r, with G and r, (M, M) and (M,), side by side: what combines residuals, of which some may be zero.

    G is positive, so that elimination needs no pivots. What is not finite has factors of zero.
    """
    number, i = tl.program_id(0), tl.arange(0, M)
    products += number * M * (M + 1)
    gram = tl.load(products + i[:, None] * (M + 1) + i[None, :])
    right = tl.load(products + i * (M + 1) + M)
    on_diagonal = i[:, None] == i[None, :]
    length = tl.sqrt(tl.sum(tl.where(on_diagonal, gram, 0.0), axis=0))
    length = tl.where(length > 0, length, 1.0)
    gram = gram / length[:, None] / length[None, :] + tl.where(on_diagonal, RIDGE, 0.0)
    right = right / length
    for k in tl.static_range(M):
        row = tl.sum(tl.where(i[:, None] == k, gram, 0.0), axis=0)
        pivot = tl.sum(tl.where(i == k, row, 0.0))
        column = tl.sum(tl.where(i[None, :] == k, gram, 0.0), axis=1)
        factor = tl.where(i == k, 0.0, column / pivot)
        right -= factor * tl.sum(tl.where(i == k, right, 0.0))
        gram -= factor[:, None] * row[None, :]
    found = right / tl.sum(tl.where(on_diagonal, gram, 0.0), axis=0) / length
    tl.store(out + number * M + i, tl.where(tl.abs(found) < float("inf"), found, 0.0))
