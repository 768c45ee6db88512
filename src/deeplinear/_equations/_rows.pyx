# cython: language_level=3
"""Products with the single row of a step, compiled; what they mean stands in ``products.py``, ``source.py`` and ``site.py``.

For one row an operation on arrays takes less time than to start it. Here several of them are one, and all zeros above
the diagonal are skipped. Leading axes are one axis of matrices; a ``block`` is a number of rows that may depend on each
other (see ``row_products.h``).
"""

cimport cython
from libc.stdint cimport int64_t, intptr_t
import numpy as np

ctypedef double complex Complex

cdef extern from *:
    """
    #include <complex.h>
    #include <stdint.h>
    #ifndef ROWS_SOURCE /* given by setup.py */
    #define ROWS_SOURCE ""
    #endif
    /* Which version runs is decided where it runs. Other compilers make the one that all processors of a kind can run. */
    #if defined(MULTIVERSION)
    #elif defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
    #define MULTIVERSION __attribute__((target_clones("avx512f", "avx2", "default")))
    #else
    #define MULTIVERSION
    #endif

    #define NUMBER double
    #define NAME(x) x##_real
    #include "row_products.h"
    #include "row_program.h"
    #undef NUMBER
    #undef NAME
    #define NUMBER double complex
    #define NAME(x) x##_complex
    #include "row_products.h"
    #include "row_program.h"
    """
    const char *ROWS_SOURCE
    void times_lower_real(double*, const double*, const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t) noexcept nogil
    void times_lower_complex(Complex*, const Complex*, const Complex*, Py_ssize_t, Py_ssize_t, Py_ssize_t) noexcept nogil
    void times_upper_real(double*, const double*, const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t) noexcept nogil
    void times_upper_complex(Complex*, const Complex*, const Complex*, Py_ssize_t, Py_ssize_t, Py_ssize_t) noexcept nogil
    void times_symmetric_real(double*, const double*, const double*, Py_ssize_t, Py_ssize_t) noexcept nogil
    void times_symmetric_complex(Complex*, const Complex*, const Complex*, Py_ssize_t, Py_ssize_t) noexcept nogil
    void run_real(const int64_t*, Py_ssize_t, double**, Py_ssize_t, Py_ssize_t, Py_ssize_t) noexcept nogil
    void run_complex(const int64_t*, Py_ssize_t, Complex**, Py_ssize_t, Py_ssize_t, Py_ssize_t) noexcept nogil
    const Py_ssize_t OPERATION
    const Py_ssize_t MOST_AXES

SOURCE = ROWS_SOURCE.decode("ascii")


ctypedef fused number:
    double
    Complex


cdef inline void times_lower(
    number *y, const number *x, const number *m, Py_ssize_t stride, Py_ssize_t e, Py_ssize_t block
) noexcept nogil:
    if number is double:
        times_lower_real(y, x, m, stride, e, block)
    else:
        times_lower_complex(y, x, m, stride, e, block)


cdef inline void times_upper(
    number *y, const number *x, const number *m, Py_ssize_t stride, Py_ssize_t e, Py_ssize_t block
) noexcept nogil:
    if number is double:
        times_upper_real(y, x, m, stride, e, block)
    else:
        times_upper_complex(y, x, m, stride, e, block)


cdef inline void times_symmetric(
    number *y, const number *x, const number *m, Py_ssize_t stride, Py_ssize_t e
) noexcept nogil:
    if number is double:
        times_symmetric_real(y, x, m, stride, e)
    else:
        times_symmetric_complex(y, x, m, stride, e)


cdef int _check_layout(const number[:, :, :] m, Py_ssize_t e) except -1:
    """Refuse matrices of which rows do not follow each other in memory."""
    cdef bint is_whole = m.strides[2] == sizeof(number) and m.strides[1] == m.shape[2] * m.strides[2]
    if e > m.shape[1] or not (is_whole or m.shape[2] == 1):  # along an axis of length 1 a stride means nothing
        raise ValueError("matrices must be whole, and have a row for every step")
    return 0


cdef int _check_rows(const number[:, :, :] x, Py_ssize_t matrices) except -1:
    """Refuse rows that are not contiguous, or that cannot be told apart by matrix."""
    if (x.shape[2] > 1 and x.strides[2] != sizeof(number)) or matrices % x.shape[0]:
        raise ValueError("rows must be contiguous, and as many as there are matrices or a part of these")
    return 0


def rows_times(x, lower, Py_ssize_t e, Py_ssize_t block):
    """Return a row (..., 1, e) times causal matrices (..., rows, rows), of whose axes the row has all or the last."""
    return _product(x, lower, e, block, _LOWER)


def rows_times_transpose(x, lower, Py_ssize_t e, Py_ssize_t block):
    """Return a row (..., 1, e) times the transposes of causal matrices."""
    return _product(x, lower, e, block, _UPPER)


def rows_times_symmetric(x, matrix, Py_ssize_t e):
    """Return one or a few rows (..., r, e) times symmetric matrices."""
    return _product(x, matrix, e, 1, _SYMMETRIC)


cdef enum _Kind:
    _LOWER, _UPPER, _SYMMETRIC


cdef _product(x, matrices, Py_ssize_t e, Py_ssize_t block, _Kind kind):
    rows = x.shape[-2]
    product = np.empty((*matrices.shape[:-2], rows, e), matrices.dtype)
    flat, x, matrices = product.reshape(-1, rows, e), x.reshape(-1, rows, e), _stacked(matrices, 3)
    if matrices.dtype.char == "d":
        _fill_product[double](flat, x, matrices, block, kind)
    else:
        _fill_product[Complex](flat, x, matrices, block, kind)
    return product


cdef _stacked(matrices, int axes):
    """Matrices with their leading axes made into one; of four axes that are left, the first stays as it is."""
    if matrices is None or matrices.ndim == axes:
        return matrices
    return matrices.reshape(*matrices.shape[: axes - 3], -1, *matrices.shape[-2:])


cdef _rows_of(profile):
    """Return a profile with its leading axes made into one."""
    return None if profile is None else profile.reshape(-1, profile.shape[-1])


@cython.boundscheck(False)
@cython.wraparound(False)
cdef int _fill_product(
    number[:, :, :] y, const number[:, :, :] x, const number[:, :, :] m, Py_ssize_t block, _Kind kind
) except -1:
    cdef Py_ssize_t i, j, k, e = y.shape[2], size = m.shape[2]
    _check_layout(m, e)
    _check_rows(x, m.shape[0])
    with nogil:
        for i in range(m.shape[0]):
            j = i % x.shape[0]
            for k in range(y.shape[1]):
                if kind == _LOWER:
                    times_lower(&y[i, k, 0], &x[j, k, 0], &m[i, 0, 0], size, e, block)
                elif kind == _UPPER:
                    y[i, k, :] = 0
                    times_upper(&y[i, k, 0], &x[j, k, 0], &m[i, 0, 0], size, e, block)
                else:
                    times_symmetric(&y[i, k, 0], &x[j, k, 0], &m[i, 0, 0], size, e)
    return 0


def fill_resolvent(matrix, kernel, Py_ssize_t e, Py_ssize_t block):
    """Fill row e - 1 of matrices F (..., rows, rows) with 1 + kernel F, given that row (..., 1, e) of the kernel."""
    if matrix.dtype.char == "d":
        _fill_resolvent[double](_stacked(matrix, 3), _stacked(kernel, 3), e, block)
    else:
        _fill_resolvent[Complex](_stacked(matrix, 3), _stacked(kernel, 3), e, block)


@cython.boundscheck(False)
@cython.wraparound(False)
cdef int _fill_resolvent(
    number[:, :, :] F, const number[:, :, :] kernel, Py_ssize_t e, Py_ssize_t block
) except -1:
    cdef Py_ssize_t i, size = F.shape[2]
    _check_layout(F, e)
    _check_rows(kernel, F.shape[0])
    with nogil:
        for i in range(F.shape[0]):
            # The kernel is zero at equal times, so that all of F that counts is there.
            times_lower(&F[i, e - 1, 0], &kernel[i % kernel.shape[0], 0, 0], &F[i, 0, 0], size, e - 1, block)
            F[i, e - 1, e - 1] = 1
    return 0


def fill_pair(row, matrices, filled, factor, Py_ssize_t which, Py_ssize_t block):
    """Fill row e - 1 of two causal matrices ``filled`` (2, *batch, rows, rows) with a row times two others.

    The row is (*batch, 1, e). One of the two products, ``which``, is multiplied by a factor, one for equally many
    matrices of the batch each, and 1 is added to it on the diagonal.
    """
    row, matrices, filled, factor = _stacked(row, 3), _stacked(matrices, 4), _stacked(filled, 4), factor.reshape(-1)
    if filled.dtype.char == "d":
        _fill_pair[double](row, matrices, filled, factor, which, block)
    else:
        _fill_pair[Complex](row, matrices, filled, factor, which, block)


@cython.boundscheck(False)
@cython.wraparound(False)
cdef int _fill_pair(
    const number[:, :, :] row,
    const number[:, :, :, :] matrices,
    number[:, :, :, :] filled,
    const number[:] factor,
    Py_ssize_t which,
    Py_ssize_t block,
) except -1:
    cdef Py_ssize_t i, j, s, e = row.shape[2], size = filled.shape[3], shared = filled.shape[1] // factor.shape[0]
    cdef number scale
    _check_rows(row, filled.shape[1])
    for i in range(2):
        _check_layout(matrices[i], e)
        _check_layout(filled[i], e)
    with nogil:
        for i in range(2):
            for j in range(filled.shape[1]):
                times_lower(&filled[i, j, e - 1, 0], &row[j % row.shape[0], 0, 0], &matrices[i, j, 0, 0], size, e, block)
                if i == which:
                    scale = factor[j // shared]
                    for s in range(e):
                        filled[i, j, e - 1, s] = scale * filled[i, j, e - 1, s]
                    filled[i, j, e - 1, e - 1] = filled[i, j, e - 1, e - 1] + 1
    return 0


def fill_sandwich(filled, responses, weighted, Py_ssize_t e, Py_ssize_t block):
    """Fill row and column e - 1 of symmetric matrices (*batch, rows, rows) with sum_i F_i S_i F_i^T.

    ``weighted`` has for each S_i a symmetric matrix, a factor and a profile p over rows, S_i = factor p matrix p, where
    None stands for 1.
    """
    if filled.dtype.char == "d":
        _fill_sandwich[double](_stacked(filled, 3), _stacked(responses, 4), weighted, e, block)
    else:
        _fill_sandwich[Complex](_stacked(filled, 3), _stacked(responses, 4), weighted, e, block)


@cython.boundscheck(False)
@cython.wraparound(False)
cdef int _fill_sandwich(
    number[:, :, :] filled, const number[:, :, :, :] responses, weighted, Py_ssize_t e, Py_ssize_t block
) except -1:
    cdef Py_ssize_t i, j, k = 0, s, t = e - 1, size = filled.shape[2], batch = filled.shape[0]
    cdef number[:, :] spare = np.empty((2, e), complex if number is Complex else float)
    cdef number *through = &spare[0, 0]
    cdef const number *row
    cdef const number[:, :, :] matrices
    cdef const number[:] factors
    cdef const number[:, :] profiles
    cdef number common
    _check_layout(filled, e)
    filled[:, t, :e] = 0
    for i, (matrix, factor, profile) in enumerate(weighted):
        _check_layout(responses[i], e)
        matrices = _stacked(matrix, 3)
        factors = None if factor is None else factor.reshape(-1)
        profiles = _rows_of(profile)
        if matrices is not None:
            _check_layout(matrices, e)
        for j in range(batch):
            row = &responses[i, j, t, 0]
            if profiles is not None:
                k = j * profiles.shape[0] // batch
                for s in range(e):
                    spare[1, s] = row[s] * profiles[k, s]
                row = &spare[1, 0]
            if matrices is not None:
                times_symmetric(through, row, &matrices[j, 0, 0], size, e)
            else:  # 1 for all times
                common = 0
                for s in range(e):
                    common = common + row[s]
                for s in range(e):
                    through[s] = common
            if profiles is not None:
                for s in range(e):
                    through[s] = profiles[k, s] * through[s]
            if factors is not None:
                common = factors[j // (batch // factors.shape[0])]
                for s in range(e):
                    through[s] = common * through[s]
            times_upper(&filled[j, t, 0], through, &responses[i, j, 0, 0], size, e, block)
    for j in range(batch):
        _mirror(filled, j, t)
    return 0


def fill_sum(filled, x, y, factor, profile, Py_ssize_t e):
    """Fill row and column e - 1 of symmetric matrices (batch, rows, rows) with x + factor p y p, where None is 1."""
    if filled.dtype.char == "d":
        _fill_sum[double](filled, x, y, factor, profile, e)
    else:
        _fill_sum[Complex](filled, x, y, factor, profile, e)


@cython.boundscheck(False)
@cython.wraparound(False)
cdef int _fill_sum(
    number[:, :, :] filled,
    const number[:, :, :] x,
    const number[:, :, :] y,
    const number[:, :, :] factor,
    const number[:, :] profile,
    Py_ssize_t e,
) except -1:
    cdef Py_ssize_t j, s, t = e - 1
    cdef number of_y
    for j in range(filled.shape[0]):
        of_y = 1 if factor is None else factor[j, 0, 0]
        if profile is not None:
            of_y = of_y * profile[j, t]
        for s in range(e):
            filled[j, t, s] = of_y * y[j, t, s]
            if profile is not None:
                filled[j, t, s] = filled[j, t, s] * profile[j, s]
            filled[j, t, s] = filled[j, t, s] + x[j, t, s]
        _mirror(filled, j, t)
    return 0


def sum_of_rows(x, y, of_product, z, of_last, profile, Py_ssize_t e):
    """Return row e - 1 of a x o y + b p z p, shape (batch, 1, e), with factors a and b and a profile p over rows.

    Here o is the product entry by entry. None stands for a factor or a profile of 1. Each of x, y and z is a stack of
    matrices (batch, rows, rows), or has this one row of them (batch, 1, e).
    """
    total = np.empty((z.shape[0], 1, e), z.dtype)
    if z.dtype.char == "d":
        _sum_of_rows[double](total, x, y, of_product, z, of_last, profile)
    else:
        _sum_of_rows[Complex](total, x, y, of_product, z, of_last, profile)
    return total


@cython.boundscheck(False)
@cython.wraparound(False)
cdef int _sum_of_rows(
    number[:, :, :] total,
    const number[:, :, :] x,
    const number[:, :, :] y,
    const number[:, :, :] of_product,
    const number[:, :, :] z,
    const number[:, :, :] of_last,
    const number[:, :] profile,
) except -1:
    cdef Py_ssize_t j, s, e = total.shape[2], t = e - 1
    cdef Py_ssize_t of_x = _row_number(x, e), of_y = _row_number(y, e), of_z = _row_number(z, e)
    cdef number a, b
    for j in range(total.shape[0]):
        a = 1 if of_product is None else of_product[j, 0, 0]
        b = 1 if of_last is None else of_last[j, 0, 0]
        if profile is None:
            for s in range(e):
                total[j, 0, s] = a * (x[j, of_x, s] * y[j, of_y, s]) + b * z[j, of_z, s]
        else:
            for s in range(e):
                total[j, 0, s] = a * (x[j, of_x, s] * y[j, of_y, s]) + b * (profile[j, t] * profile[j, s] * z[j, of_z, s])
    return 0


cdef Py_ssize_t _row_number(const number[:, :, :] m, Py_ssize_t e) except -1:
    """Return where row e - 1 stands in a stack of matrices, or in one that has this row only."""
    if m.shape[2] < e or 1 < m.shape[1] < e:
        raise ValueError("rows must be as long as the one that is wanted")
    return min(e, m.shape[1]) - 1


@cython.boundscheck(False)
@cython.wraparound(False)
cdef inline void _mirror(number[:, :, :] filled, Py_ssize_t j, Py_ssize_t t) noexcept:
    """Copy row t of a symmetric matrix to its column."""
    cdef Py_ssize_t s
    for s in range(t):
        filled[j, s, t] = filled[j, t, s]


def run_program(
    const int64_t[:, ::1] operations, const intptr_t[:, ::1] roots, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t block, bint is_complex
):
    """Do the operations of a list (see ``row_program.h``) at all rows from start to stop, for one problem after the other.

    Each problem has a line of ``roots``, the addresses of what operations read and write. No lock of Python is held.
    """
    cdef Py_ssize_t i, count = operations.shape[0]
    if operations.shape[1] != OPERATION:
        raise ValueError("an operation is a line of as many integers as row_program.h says")
    if not count:
        return
    with nogil:
        for i in range(roots.shape[0]):
            if is_complex:
                run_complex(&operations[0, 0], count, <Complex**>&roots[i, 0], start, stop, block)
            else:
                run_real(&operations[0, 0], count, <double**>&roots[i, 0], start, stop, block)


AXES = MOST_AXES
