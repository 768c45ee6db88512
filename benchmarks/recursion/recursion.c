/* One problem, written out: an MLP of width 1 on a full batch (reuse = 1/alpha) or fresh ones (draws = 1/alpha_B).
 *
 * A yardstick for how fast a step can be: the same row products as the library's, and nothing around them. Matrices are
 * T x T; F[l] = (dh/du, dh/dr, dg/du over gamma0, dg/dr) of layer l.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
typedef ssize_t Py_ssize_t;
#define MULTIVERSION __attribute__((target_clones("avx512f", "avx2", "default")))
#define NUMBER double
#define NAME(x) x##_real
#include "row_products.h"
#define BLOCK 16
/* For all entries of the row. */
#define EACH for (long s = 0; s < e; s++)

static void mirror(double *C, long T, long t) { for (long s = 0; s < t; s++) C[s * T + t] = C[t * T + s]; }

/* Row t of F_u S_u F_u^T scale + F_r S_r F_r^T; without S_r it is 1 1^T. */
static void sandwich(double *C, const double *Fu, const double *Su, double scale, const double *Fr, const double *Sr,
                     long T, long t, double *x) {
    const long e = t + 1;
    times_symmetric_real(x, Fu + t * T, Su, T, e);
    EACH { x[s] *= scale; C[t * T + s] = 0; }
    times_upper_real(C + t * T, x, Fu, T, e, BLOCK);
    if (Sr) times_symmetric_real(x, Fr + t * T, Sr, T, e);
    else { double sum = 0; EACH sum += Fr[t * T + s]; EACH x[s] = sum; }
    times_upper_real(C + t * T, x, Fr, T, e, BLOCK);
    mirror(C, T, t);
}

void recursion(long L, long T, double lr, double gamma0, double reuse, double draws, double noise, double *loss) {
    const long M = T * T;
    double *all = calloc((6 * (L + 2) + 8) * M + 8 * T, sizeof(double)), *next = all;
#define TAKE(n) (next += (n), next - (n))
    double *F[64][4], *Ch[64], *Cg[64], *x = TAKE(T), *k = TAKE(T), *y = TAKE(T), *z = TAKE(T), *drawn = TAKE(T), *means = TAKE(T);
    for (long l = 0; l <= L; l++) { for (int i = 0; i < 4; i++) F[l][i] = TAKE(M); Ch[l] = TAKE(M); Cg[l] = TAKE(M); }
    double *K = TAKE(M), *H = TAKE(M), *R = TAKE(M), *Rhr = TAKE(M), *Cv = TAKE(M), *Psi = TAKE(M), *Z = TAKE(M);
    const double g2 = gamma0 * gamma0;
    for (long t = 0; t < T; t++) {
        const long e = t + 1, at = t * T;
        for (long l = L; l >= 1; l--) {
            EACH k[s] = (s < t) * lr * (l == L ? 1 : Cg[l + 1][at + s]) + (l == L ? 0 : F[l + 1][2][at + s]);
            times_lower_real(F[l][2] + at, k, F[l][0], T, e, BLOCK);
            times_lower_real(F[l][3] + at, k, F[l][1], T, e, BLOCK);
            EACH F[l][3][at + s] *= gamma0;
            F[l][3][at + t] += 1;
            sandwich(Cg[l], F[l][2], Ch[l - 1], g2, F[l][3], l == L ? 0 : Cg[l + 1], T, t, x);
        }
        EACH K[at + s] = F[1][2][at + s] + (s < t) * lr * Cg[1][at + s];
        if (reuse) times_lower_real(x, K + at, R, T, e, BLOCK); else EACH x[s] = K[at + s];
        times_lower_real(H + at, x, H, T, t, BLOCK);
        EACH H[at + s] *= -1;
        H[at + t] = 1;
        times_symmetric_real(y, H + at, Cg[1], T, e);              /* the initial function */
        means[t] = 0;
        EACH { means[t] += H[at + s]; z[s] = (s == t) - H[at + s]; y[s] /= g2; }
        if (reuse) times_symmetric_real(x, z, Z, T, e); else EACH x[s] = z[s] * draws * drawn[s];
        EACH k[s] = y[s] - x[s];
        EACH Cv[at + s] = x[s];
        times_upper_real(Cv + at, k, H, T, e, BLOCK);
        EACH Cv[at + s] += means[t] * means[s];
        mirror(Cv, T, t);
        loss[t] = Cv[at + t] + noise * noise;
        if (reuse) {
            times_lower_real(y, H + at, K, T, e, BLOCK);
            EACH y[s] *= -reuse;
            times_lower_real(R + at, y, R, T, t, BLOCK);
            R[at + t] = 1;
            times_lower_real(Rhr + at, R + at, H, T, e, BLOCK);
            EACH Rhr[at + s] *= -1;
            EACH Z[at + s] = reuse * (Cv[at + s] + noise * noise);
            mirror(Z, T, t);
            times_symmetric_real(x, z, Z, T, e);                   /* with this row of Z */
            EACH k[s] = 0;
            times_upper_real(k, Z + at, H, T, e, BLOCK);
            EACH Psi[at + s] = Cv[at + s] + k[s] - x[s];
            mirror(Psi, T, t);
            times_symmetric_real(y, R + at, Psi, T, e);
            EACH Ch[0][at + s] = 0;
            times_upper_real(Ch[0] + at, y, R, T, e, BLOCK);
        } else {
            EACH Rhr[at + s] = -H[at + s];
            drawn[t] = loss[t];
            EACH Ch[0][at + s] = Cv[at + s] - x[s] + (s == t) * draws * drawn[t];
        }
        mirror(Ch[0], T, t);
        for (long l = 1; l <= L; l++) {
            const double *below = l == 1 ? Rhr : F[l - 1][1];
            EACH k[s] = below[at + s] / (l == 1 ? gamma0 : 1) + gamma0 * (s < t) * lr * Ch[l - 1][at + s];
            times_lower_real(F[l][0] + at, k, F[l][2], T, e, BLOCK);
            times_lower_real(F[l][1] + at, k, F[l][3], T, e, BLOCK);
            F[l][0][at + t] += 1;
            if (l < L) sandwich(Ch[l], F[l][0], Ch[l - 1], 1, F[l][1], Cg[l + 1], T, t, x);
        }
    }
    free(all);
}
