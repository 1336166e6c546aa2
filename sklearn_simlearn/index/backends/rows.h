/* Loops over rows of dense items and queries; header only. */
#ifndef SIMLEARN_ROWS_H
#define SIMLEARN_ROWS_H

#include <math.h>

#include "simd.h"

/* out[i] = X[i] @ y. */
#define SIMLEARN_DOT_ROWS(name, real)                                   \
    SIMLEARN_CLONES                                                     \
    static void name(const real *X, ptrdiff_t n_rows, ptrdiff_t n_cols, \
                     const real *y, real *out)                          \
    {                                                                   \
        for (ptrdiff_t i = 0; i < n_rows; i++) {                        \
            const real *x = X + i * n_cols;                             \
            SIMLEARN_DOT_ROW(real, x, y, n_cols)                        \
            out[i] = part[0];                                           \
        }                                                               \
    }
SIMLEARN_DOT_ROWS(dots_float, float)
SIMLEARN_DOT_ROWS(dots_double, double)

/* codes[j] = x[j] * unit, rounded; returns the sum of the squared errors. */
#define SIMLEARN_ENCODE(name, real)                                             \
    SIMLEARN_CLONES                                                             \
    static double name(const real *x, ptrdiff_t n, double unit, int8_t *codes)  \
    {                                                                           \
        double part[16] = {0};                                                  \
        ptrdiff_t j = 0;                                                        \
        for (; j + 16 <= n; j += 16)                                            \
            for (int lane = 0; lane < 16; lane++) {                             \
                double exact = x[j + lane] * unit, rounded = rint(exact);       \
                codes[j + lane] = (int8_t)(int32_t)rounded;                     \
                part[lane] += (exact - rounded) * (exact - rounded);            \
            }                                                                   \
        for (int lane = 0; j + lane < n; lane++) {                              \
            double exact = x[j + lane] * unit, rounded = rint(exact);           \
            codes[j + lane] = (int8_t)(int32_t)rounded;                         \
            part[lane] += (exact - rounded) * (exact - rounded);                \
        }                                                                       \
        SIMLEARN_ADD_UP                                                         \
        return part[0];                                                         \
    }
SIMLEARN_ENCODE(encode_float, float)
SIMLEARN_ENCODE(encode_double, double)

/* Largest magnitude of a row. */
#define SIMLEARN_PEAK(name, real)                                               \
    SIMLEARN_CLONES                                                             \
    static double name(const real *x, ptrdiff_t n)                              \
    {                                                                           \
        real part[16] = {0};                                                    \
        ptrdiff_t j = 0;                                                        \
        for (; j + 16 <= n; j += 16)                                            \
            for (int lane = 0; lane < 16; lane++) {                             \
                real size = x[j + lane] < 0 ? -x[j + lane] : x[j + lane];       \
                part[lane] = size > part[lane] ? size : part[lane];             \
            }                                                                   \
        for (int lane = 0; j + lane < n; lane++) {                              \
            real size = x[j + lane] < 0 ? -x[j + lane] : x[j + lane];           \
            part[lane] = size > part[lane] ? size : part[lane];                 \
        }                                                                       \
        for (int lane = 1; lane < 16; lane++)                                   \
            part[0] = part[lane] > part[0] ? part[lane] : part[0];              \
        return part[0];                                                         \
    }
SIMLEARN_PEAK(peak_float, float)
SIMLEARN_PEAK(peak_double, double)

/* Load a row from memory; of a long row the beginning, as the processor loads the rest. */
static inline void prefetch_row(const void *row, ptrdiff_t n_bytes)
{
    prefetch_bytes(row, n_bytes < 2048 ? n_bytes : 2048);
}

/* out = products * factor */
SIMLEARN_CLONES
static void scale(const double *products, ptrdiff_t n, double factor, float *out)
{
    for (ptrdiff_t j = 0; j < n; j++)
        out[j] = (float)(products[j] * factor);
}

/* Largest bound of every 64. */
SIMLEARN_CLONES
static void find_tops(const float *bounds, ptrdiff_t n, float *tops)
{
    for (; n >= 64; n -= 64, bounds += 64) {
        float part[16];
        for (int lane = 0; lane < 16; lane++)
            part[lane] = bounds[lane];
        for (int j = 16; j < 64; j += 16)
            for (int lane = 0; lane < 16; lane++)
                part[lane] = bounds[j + lane] > part[lane] ? bounds[j + lane] : part[lane];
        for (int width = 8; width > 0; width /= 2)
            for (int lane = 0; lane < width; lane++)
                part[lane] =
                    part[lane + width] > part[lane] ? part[lane + width] : part[lane];
        *tops++ = part[0];
    }
    if (n > 0) {
        *tops = bounds[0];
        for (ptrdiff_t j = 1; j < n; j++)
            *tops = bounds[j] > *tops ? bounds[j] : *tops;
    }
}

#endif
