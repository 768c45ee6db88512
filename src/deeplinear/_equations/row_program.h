/* A loop over rows of a list of operations, which knows products and entrywise operations, and no physics.
 *
 * This file is included once for real and once for complex numbers, after row_products.h. An operation is a line of
 * OPERATION integers: its code, the number of its axes, which are the last ones, for each axis the length at row t as a pair (l0, l1) that stands
 * for l0 + l1 t, and for each of its operands y, x and m the number of a root, the place in it at row t as a pair
 * (o0, o1), and a stride for each axis. The codes are those of recording.py. In a product the last axis is the row;
 * there the stride of M is that between its rows.
 */

#ifndef ROW_PROGRAM
#define ROW_PROGRAM
enum { MOST_AXES = 5, OPERAND = 3 + MOST_AXES, OPERATION = 2 + 2 * MOST_AXES + 3 * OPERAND };
enum { COPY, ADD, SUBTRACT, MULTIPLY, DIVIDE, ACCUMULATE, CHOOSE, DIFFERS, EQUALS, TIMES_LOWER, TIMES_UPPER, TIMES_SYMMETRIC };
#endif

/* An entrywise operation along one axis; the usual strides have loops of their own, which compilers turn into vectors. */
#define ALONG(expression) \
    if (sy == 1 && sx == 1 && sm == 1) { for (Py_ssize_t i = 0; i < n; i++) { const NUMBER a = x[i], b = m[i]; y[i] = expression; } } \
    else if (sy == 1 && sx == 1 && sm == 0) { const NUMBER b = *m; for (Py_ssize_t i = 0; i < n; i++) { const NUMBER a = x[i]; y[i] = expression; } } \
    else if (sy == 1 && sx == 0 && sm == 1) { const NUMBER a = *x; for (Py_ssize_t i = 0; i < n; i++) { const NUMBER b = m[i]; y[i] = expression; } } \
    else for (Py_ssize_t i = 0; i < n; i++) { const NUMBER a = x[i * sx], b = m[i * sm]; y[i * sy] = expression; }

MULTIVERSION static void NAME(entrywise)(
    int64_t code, Py_ssize_t n, NUMBER *y, Py_ssize_t sy, const NUMBER *x, Py_ssize_t sx, const NUMBER *m, Py_ssize_t sm)
{
    (void)m; (void)sm;
    switch (code) {
    case COPY:
        if (sy == 1 && sx == 1) for (Py_ssize_t i = 0; i < n; i++) y[i] = x[i];
        else for (Py_ssize_t i = 0; i < n; i++) y[i * sy] = x[i * sx];
        break;
    case ADD: ALONG(a + b) break;
    case SUBTRACT: ALONG(a - b) break;
    case MULTIPLY: ALONG(a * b) break;
    case DIVIDE: ALONG(a / b) break;
    case DIFFERS: ALONG(a != b) break;
    case EQUALS: ALONG(a == b) break;
    case CHOOSE: for (Py_ssize_t i = 0; i < n; i++) if (m[i * sm] != 0) y[i * sy] = x[i * sx];
        break;
    case ACCUMULATE:
        if (sy == 0) {
            NUMBER sum = 0;
            if (sx == 1 && sm == 1) for (Py_ssize_t i = 0; i < n; i++) sum += x[i] * m[i];
            else if (sx == 1 && sm == 0) { for (Py_ssize_t i = 0; i < n; i++) sum += x[i]; sum *= *m; }
            else for (Py_ssize_t i = 0; i < n; i++) sum += x[i * sx] * m[i * sm];
            *y += sum;
        }
        else for (Py_ssize_t i = 0; i < n; i++) y[i * sy] += x[i * sx] * m[i * sm];
        break;
    }
}

static void NAME(nest)(
    int64_t code, int axes, const Py_ssize_t *length, NUMBER *y, const int64_t *sy, NUMBER *x, const int64_t *sx,
    NUMBER *m, const int64_t *sm, Py_ssize_t block)
{
    if (axes > 1) {
        for (Py_ssize_t i = 0; i < *length; i++)
            NAME(nest)(code, axes - 1, length + 1, y + i * *sy, sy + 1, x + i * *sx, sx + 1, m + i * *sm, sm + 1, block);
        return;
    }
    const Py_ssize_t e = *length;
    switch (code) {
    case TIMES_LOWER: NAME(times_lower)(y, x, m, *sm, e, block); break;
    case TIMES_UPPER:
        for (Py_ssize_t i = 0; i < e; i++) y[i] = 0;
        NAME(times_upper)(y, x, m, *sm, e, block);
        break;
    case TIMES_SYMMETRIC: NAME(times_symmetric)(y, x, m, *sm, e); break;
    default: NAME(entrywise)(code, e, y, *sy, x, *sx, m, *sm);
    }
}

static void NAME(run)(
    const int64_t *operations, Py_ssize_t count, NUMBER *const *roots, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t block)
{
    for (Py_ssize_t t = start; t < stop; t++) {
        for (Py_ssize_t k = 0; k < count; k++) {
            const int64_t *op = operations + k * OPERATION, *operand = op + 2 + 2 * MOST_AXES;
            Py_ssize_t length[MOST_AXES];
            NUMBER *at[3];
            const int axes = (int)op[1], from = MOST_AXES - axes;
            for (int i = from; i < MOST_AXES; i++) length[i] = op[2 + 2 * i] + op[3 + 2 * i] * t;
            for (int i = 0; i < 3; i++) {
                const int64_t *o = operand + i * OPERAND;
                at[i] = roots[o[0]] + o[1] + o[2] * t;
            }
            NAME(nest)(
                op[0], axes, length + from, at[0], operand + 3 + from, at[1], operand + OPERAND + 3 + from, at[2],
                operand + 2 * OPERAND + 3 + from, block);
        }
    }
}
