/* Products of one row with a matrix of which only the entries on one side of the diagonal count.
 *
 * This file is included once for real and once for complex numbers: NUMBER is the type, NAME(x) the name of a function
 * for it. A matrix has rows that are `stride` numbers apart. Of row r the first min(e, next multiple of `block` after r)
 * entries are read, since rows come in blocks within which they may depend on each other; `block` is a multiple of 4.
 *
 * Matrices are larger than the caches near the processor, so time goes into reading them: once, in order, and for four
 * rows at a time where the result would otherwise be read and written as often as the matrix.
 */

static inline Py_ssize_t NAME(width)(Py_ssize_t r, Py_ssize_t e, Py_ssize_t block) {
    Py_ssize_t end = (r / block + 1) * block;
    return end < e ? end : e;
}

/* y = x M, with M lower triangular, or full where block >= e. */
MULTIVERSION static void NAME(times_lower)(
    NUMBER *restrict y, const NUMBER *restrict x, const NUMBER *restrict m,
    Py_ssize_t stride, Py_ssize_t e, Py_ssize_t block)
{
    Py_ssize_t r = 0, s;
    for (s = 0; s < e; s++) y[s] = 0;
    for (; r + 4 <= e; r += 4) {
        const NUMBER *m0 = m + r * stride, *m1 = m0 + stride, *m2 = m1 + stride, *m3 = m2 + stride;
        const NUMBER x0 = x[r], x1 = x[r + 1], x2 = x[r + 2], x3 = x[r + 3];
        const Py_ssize_t end = NAME(width)(r + 3, e, block);
        for (s = 0; s < end; s++) y[s] += x0 * m0[s] + x1 * m1[s] + x2 * m2[s] + x3 * m3[s];
    }
    for (; r < e; r++) {
        const NUMBER *m0 = m + r * stride;
        const NUMBER x0 = x[r];
        const Py_ssize_t end = NAME(width)(r, e, block);
        for (s = 0; s < end; s++) y[s] += x0 * m0[s];
    }
}

/* y += x M^T, with M lower triangular. */
MULTIVERSION static void NAME(times_upper)(
    NUMBER *restrict y, const NUMBER *restrict x, const NUMBER *restrict m,
    Py_ssize_t stride, Py_ssize_t e, Py_ssize_t block)
{
    for (Py_ssize_t r = 0; r < e; r++) {
        const NUMBER *m0 = m + r * stride;
        const Py_ssize_t end = NAME(width)(r, e, block);
        NUMBER sum = 0;
        for (Py_ssize_t s = 0; s < end; s++) sum += x[s] * m0[s];
        y[r] += sum;
    }
}

/* y = x M, with M symmetric, of which the lower triangle is read. */
MULTIVERSION static void NAME(times_symmetric)(
    NUMBER *restrict y, const NUMBER *restrict x, const NUMBER *restrict m,
    Py_ssize_t stride, Py_ssize_t e)
{
    Py_ssize_t r = 0, s;
    for (s = 0; s < e; s++) y[s] = 0;
    for (; r + 4 <= e; r += 4) {
        const NUMBER *m0 = m + r * stride, *m1 = m0 + stride, *m2 = m1 + stride, *m3 = m2 + stride;
        const NUMBER x0 = x[r], x1 = x[r + 1], x2 = x[r + 2], x3 = x[r + 3];
        NUMBER y0 = 0, y1 = 0, y2 = 0, y3 = 0;
        for (s = 0; s < r; s++) {
            y0 += x[s] * m0[s];
            y1 += x[s] * m1[s];
            y2 += x[s] * m2[s];
            y3 += x[s] * m3[s];
            y[s] += x0 * m0[s] + x1 * m1[s] + x2 * m2[s] + x3 * m3[s];
        }
        y[r] += y0 + x0 * m0[r] + x1 * m1[r] + x2 * m2[r] + x3 * m3[r];
        y[r + 1] += y1 + x0 * m1[r] + x1 * m1[r + 1] + x2 * m2[r + 1] + x3 * m3[r + 1];
        y[r + 2] += y2 + x0 * m2[r] + x1 * m2[r + 1] + x2 * m2[r + 2] + x3 * m3[r + 2];
        y[r + 3] += y3 + x0 * m3[r] + x1 * m3[r + 1] + x2 * m3[r + 2] + x3 * m3[r + 3];
    }
    for (; r < e; r++) {
        const NUMBER *m0 = m + r * stride;
        const NUMBER x0 = x[r];
        NUMBER y0 = 0;
        for (s = 0; s < r; s++) {
            y0 += x[s] * m0[s];
            y[s] += x0 * m0[s];
        }
        y[r] += y0 + x0 * m0[r];
    }
}
