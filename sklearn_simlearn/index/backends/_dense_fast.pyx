"""Kernels of dense items: scores tile by tile, and a running top k.

These scores only select the candidates for the top k. Candidates are scored again with
a fixed order of summation. So the results depend neither on the number of threads nor
on the batches of queries.

Scores of many queries are computed by BLAS. For few queries, reading the items takes
most of the time, so 8-bit codes of the items are stored, too. With codes c of an item d
and k of a query q, steps s and t, and errors d - s c and q - t k,

(dense-bound)  <q, d> <= s t <k, c> + |t k| |d - s c| + |q - t k| |d| .
"""

from cython cimport floating
from cython.parallel cimport prange, threadid
from libc.float cimport DBL_MIN, FLT_MIN
from libc.math cimport INFINITY, sqrt
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from scipy.linalg.cython_blas cimport dgemm, sgemm
import numpy as np

from sklearn_simlearn.index.backends._top cimport (
    find_large, is_listed, just_below, push, sort_best
)

# Number of items that are scored at a time, and size of the first part of these that is
# searched.
cdef enum:
    TILE = 1024
    PART = 64

# Below this number of queries, a loop is faster than BLAS.
cdef enum:
    FEW = 4

cdef fused code_t:
    int8_t   # of an item
    int16_t  # of a query


cdef extern from *:
    """
    #include <math.h>
    #include "simd.h"

    /* Loop of constant length, which the compiler keeps in registers. */
    #define SIMLEARN_FOLD(width)                                                    \\
        for (int lane = 0; lane < width; lane++)                                    \\
            part[lane] += part[lane + width];

    /* out[i] = X[i] @ y, summed in sixteen interleaved parts. */
    #define SIMLEARN_DOTS(name, real)                                               \\
        SIMLEARN_CLONES                                                             \\
        static void name(const real *X, ptrdiff_t n_rows, ptrdiff_t n_cols,         \\
                         const real *y, real *out)                                  \\
        {                                                                           \\
            for (ptrdiff_t i = 0; i < n_rows; i++) {                                \\
                const real *x = X + i * n_cols;                                     \\
                real part[16] = {0};                                                \\
                ptrdiff_t j = 0;                                                    \\
                for (; j + 16 <= n_cols; j += 16)                                   \\
                    for (int lane = 0; lane < 16; lane++)                           \\
                        part[lane] += x[j + lane] * y[j + lane];                    \\
                for (int lane = 0; j + lane < n_cols; lane++)                       \\
                    part[lane] += x[j + lane] * y[j + lane];                        \\
                SIMLEARN_FOLD(8) SIMLEARN_FOLD(4) SIMLEARN_FOLD(2) SIMLEARN_FOLD(1) \\
                out[i] = part[0];                                                   \\
            }                                                                       \\
        }
    SIMLEARN_DOTS(dots_float, float)
    SIMLEARN_DOTS(dots_double, double)

    /* codes[j] = x[j] * unit, rounded; returns the sum of the squared errors. */
    #define SIMLEARN_ENCODE(name, real, code)                                       \\
        SIMLEARN_CLONES                                                             \\
        static double name(const real *x, ptrdiff_t n, double unit, code *codes)    \\
        {                                                                           \\
            double part[16] = {0};                                                  \\
            ptrdiff_t j = 0;                                                        \\
            for (; j + 16 <= n; j += 16)                                            \\
                for (int lane = 0; lane < 16; lane++) {                             \\
                    double exact = x[j + lane] * unit, rounded = rint(exact);       \\
                    codes[j + lane] = (code)(int32_t)rounded;                       \\
                    part[lane] += (exact - rounded) * (exact - rounded);            \\
                }                                                                   \\
            for (int lane = 0; j + lane < n; lane++) {                              \\
                double exact = x[j + lane] * unit, rounded = rint(exact);           \\
                codes[j + lane] = (code)(int32_t)rounded;                           \\
                part[lane] += (exact - rounded) * (exact - rounded);                \\
            }                                                                       \\
            SIMLEARN_FOLD(8) SIMLEARN_FOLD(4) SIMLEARN_FOLD(2) SIMLEARN_FOLD(1)     \\
            return part[0];                                                         \\
        }
    SIMLEARN_ENCODE(encode_float_item, float, int8_t)
    SIMLEARN_ENCODE(encode_double_item, double, int8_t)
    SIMLEARN_ENCODE(encode_float_query, float, int16_t)
    SIMLEARN_ENCODE(encode_double_query, double, int16_t)

    /* out[i] = codes[i] @ query */
    SIMLEARN_CLONES
    static void code_dots(const int8_t *codes, ptrdiff_t n_rows, ptrdiff_t n_cols,
                          const int16_t *query, int32_t *out)
    {
        for (ptrdiff_t i = 0; i < n_rows; i++) {
            const int8_t *row = codes + i * n_cols;
            int32_t sum = 0;
            for (ptrdiff_t j = 0; j < n_cols; j++)
                sum += (int32_t)query[j] * (int16_t)row[j];
            out[i] = sum;
        }
    }

    /* out[i] = dots[i] * step * steps[i] + reach * errors[i] */
    #define SIMLEARN_BOUNDS(name, real)                                             \\
        SIMLEARN_CLONES                                                             \\
        static void name(const int32_t *dots, const real *steps,                    \\
                         const real *errors, ptrdiff_t n_rows, real step,           \\
                         real reach, real *out)                                     \\
        {                                                                           \\
            for (ptrdiff_t i = 0; i < n_rows; i++)                                  \\
                out[i] = (real)dots[i] * step * steps[i] + reach * errors[i];       \\
        }
    SIMLEARN_BOUNDS(bounds_float, float)
    SIMLEARN_BOUNDS(bounds_double, double)
    """
    double encode_float_item(
        const float* x, Py_ssize_t n, double unit, int8_t* codes) noexcept nogil
    double encode_double_item(
        const double* x, Py_ssize_t n, double unit, int8_t* codes) noexcept nogil
    double encode_float_query(
        const float* x, Py_ssize_t n, double unit, int16_t* codes) noexcept nogil
    double encode_double_query(
        const double* x, Py_ssize_t n, double unit, int16_t* codes) noexcept nogil
    void code_dots(
        const int8_t* codes, Py_ssize_t n_rows, Py_ssize_t n_cols, const int16_t* query,
        int32_t* out) noexcept nogil
    void bounds_float(
        const int32_t* dots, const float* steps, const float* errors, Py_ssize_t n_rows,
        float step, float reach, float* out) noexcept nogil
    void bounds_double(
        const int32_t* dots, const double* steps, const double* errors,
        Py_ssize_t n_rows, double step, double reach, double* out) noexcept nogil
    void dots_float(
        const float* X, Py_ssize_t n_rows, Py_ssize_t n_cols, const float* y,
        float* out) noexcept nogil
    void dots_double(
        const double* X, Py_ssize_t n_rows, Py_ssize_t n_cols, const double* y,
        double* out) noexcept nogil


cdef inline double encode_row(
    const floating* x, Py_ssize_t n, double unit, code_t* codes
) noexcept nogil:
    """Set codes = round(x * unit), and return the sum of the squared errors."""
    if floating is float:
        if code_t is int8_t:
            return encode_float_item(x, n, unit, codes)
        else:
            return encode_float_query(x, n, unit, codes)
    else:
        if code_t is int8_t:
            return encode_double_item(x, n, unit, codes)
        else:
            return encode_double_query(x, n, unit, codes)


def encode(
    const floating[:, ::1] X,            # in
    int largest,                         # in: largest code
    code_t[:, ::1] codes,                # out
    floating[::1] steps,                 # out
    floating[::1] errors,                # out
):
    """Compute codes and steps of rows, and the errors |x - step * codes|."""
    cdef Py_ssize_t i, j, n_features = X.shape[1]
    cdef floating top, tiny = FLT_MIN if floating is float else DBL_MIN
    cdef double square
    with nogil:
        for i in range(X.shape[0]):
            top = 0
            for j in range(n_features):
                top = max(top, X[i, j], -X[i, j])
            # A step below the range of normal numbers would not be exact.
            steps[i] = max(top / largest, tiny)
            square = encode_row(
                &X[i, 0], n_features, 1 / <double>steps[i], &codes[i, 0])
            # Slightly larger, so that the result is an upper bound despite rounding.
            errors[i] = <floating>(steps[i] * sqrt(square) * (1 + 1e-6)) + tiny


cdef inline void find_bounds(
    const int8_t[:, ::1] codes, const floating[::1] steps, const floating[::1] errors,
    Py_ssize_t first, Py_ssize_t n_items, const int16_t* query, floating step,
    floating reach, int32_t* scratch, floating* out,
) noexcept nogil:
    """Compute (dense-bound) of a tile, without its last term."""
    code_dots(&codes[first, 0], n_items, codes.shape[1], query, scratch)
    if floating is float:
        bounds_float(scratch, &steps[first], &errors[first], n_items, step, reach, out)
    else:
        bounds_double(scratch, &steps[first], &errors[first], n_items, step, reach, out)


cdef void multiply(
    const floating[:, ::1] queries, const floating* items, Py_ssize_t n_items,
    floating* out, Py_ssize_t stride,
) noexcept nogil:
    """Compute out = queries @ items.T, where rows of out are `stride` apart."""
    cdef Py_ssize_t i
    cdef int m = <int>n_items, n = <int>queries.shape[0], k = <int>queries.shape[1]
    cdef int ld = <int>stride
    cdef char yes = b"T", no = b"N"
    cdef floating alpha = 1, beta = 0
    if n < FEW or k == 0:
        for i in range(n):
            dots(items, n_items, k, &queries[i, 0], out + i * stride)
    elif floating is float:
        sgemm(&yes, &no, &m, &n, &k, &alpha, <float*>items, &k, <float*>&queries[0, 0],
              &k, &beta, out, &ld)
    else:
        dgemm(&yes, &no, &m, &n, &k, &alpha, <double*>items, &k,
              <double*>&queries[0, 0], &k, &beta, out, &ld)


cdef inline void dots(
    const floating* X, Py_ssize_t n_rows, Py_ssize_t n_cols, const floating* y,
    floating* out,
) noexcept nogil:
    """Compute out = X @ y."""
    if floating is float:
        dots_float(X, n_rows, n_cols, y, out)
    else:
        dots_double(X, n_rows, n_cols, y, out)


cdef class Queries:
    """Codes of queries, with the rows to exclude for each."""

    cdef const int16_t[:, ::1] codes        # in: no columns if items have no codes
    cdef const double[::1] steps            # in
    cdef const double[::1] reach            # in: |t k|
    cdef const int64_t[::1] excluded_start  # in: start of the rows of each query
    cdef const int64_t[::1] excluded        # in: excluded rows, sorted per query

    def __init__(self, codes, steps, reach, excluded_start, excluded):
        self.codes, self.steps, self.reach = codes, steps, reach
        self.excluded_start, self.excluded = excluded_start, excluded


cdef class Block:
    """Items of a block, without their values."""

    cdef int64_t first_row
    cdef const int8_t[:, ::1] codes         # in
    cdef const uint8_t[::1] alive           # in: items that may be returned
    cdef const double[::1] margin           # in: last term, with rounding errors

    def __init__(self, first_row, codes, alive, margin):
        self.first_row = first_row
        self.codes, self.alive, self.margin = codes, alive, margin


def make_scratch(n_threads, n_queries, k, dtype):
    """Return scratch memory of `find_best`, and the heaps of each thread."""
    return (
        np.empty((n_threads, n_queries, TILE), dtype=dtype),
        np.empty((n_threads, TILE), dtype=np.int32),
        np.empty((n_threads, n_queries, k), dtype=dtype),
        np.empty((n_threads, n_queries, k), dtype=np.int64),
        np.zeros((n_threads, n_queries), dtype=np.int64),
    )


def find_best(
    const floating[:, ::1] queries,      # in
    Queries coded,
    Block block,
    const floating[:, ::1] items,        # in: items of the block
    const floating[::1] steps,           # in
    const floating[::1] errors,          # in
    int n_threads,
    floating[:, :, ::1] tile_scores,     # scratch: thread, query, item
    int32_t[:, ::1] found,               # scratch
    floating[:, :, ::1] best_scores,     # in, out: heaps of thread and query
    int64_t[:, :, ::1] best_rows,        # in, out
    int64_t[:, ::1] n_found,             # in, out
):
    """Update the heaps of each query with the items of a block."""
    cdef Py_ssize_t tile
    cdef int t
    for tile in prange(
        (items.shape[0] + TILE - 1) // TILE, nogil=True, num_threads=n_threads,
        schedule="dynamic", chunksize=1,
    ):
        t = threadid()
        visit_tile(
            tile * TILE, queries, coded, block, items, steps, errors,
            &tile_scores[t, 0, 0], &found[t, 0], best_scores[t], best_rows[t],
            n_found[t])


cdef void visit_tile(
    Py_ssize_t first, const floating[:, ::1] queries, Queries coded, Block block,
    const floating[:, ::1] items, const floating[::1] steps,
    const floating[::1] errors, floating* scores, int32_t* found,
    floating[:, ::1] best_scores, int64_t[:, ::1] best_rows, int64_t[::1] n_found,
) noexcept nogil:
    cdef Py_ssize_t n_items = min(TILE, items.shape[0] - first)
    cdef Py_ssize_t query, begin, end
    cdef int32_t n_large
    cdef floating limit
    if coded.codes.shape[1] > 0:
        for query in range(queries.shape[0]):
            find_bounds(
                block.codes, steps, errors, first, n_items, &coded.codes[query, 0],
                <floating>coded.steps[query], <floating>coded.reach[query], found,
                scores + query * TILE)
    else:
        multiply(queries, &items[first, 0], n_items, scores, TILE)
    for query in range(queries.shape[0]):
        # Parts grow, because the first items raise the limit for later ones.
        begin = 0
        while begin < n_items:
            end = min(max(PART, 2 * begin), n_items)
            limit = -INFINITY
            if n_found[query] == best_scores.shape[1]:
                limit = just_below(
                    <floating>(best_scores[query, 0] - block.margin[query]))
            n_large = find_large(
                scores + query * TILE + begin, <int32_t>(end - begin), limit, found)
            score_large(
                n_large, found, first + begin, queries[query], items, coded, query,
                block, best_scores[query], &best_rows[query, 0], &n_found[query])
            begin = end


cdef inline void score_large(
    int32_t n_large, const int32_t* found, Py_ssize_t first,
    const floating[::1] query_values, const floating[:, ::1] items, Queries coded,
    Py_ssize_t query, Block block, floating[::1] best_scores, int64_t* best_rows,
    int64_t* n_found,
) noexcept nogil:
    """Score items whose bound is large, and push them onto the heap of the best."""
    cdef Py_ssize_t i, place
    cdef floating score
    for i in range(n_large):
        place = first + found[i]
        if block.alive[place] and not is_listed(
            block.first_row + place, &coded.excluded[0], coded.excluded_start[query],
            coded.excluded_start[query + 1],
        ):
            dots(&items[place, 0], 1, items.shape[1], &query_values[0], &score)
            push(
                &best_scores[0], best_rows, n_found, best_scores.shape[0], score,
                block.first_row + place)


def finish_search(
    floating[:, :, ::1] part_scores,     # in: heaps of thread and query
    int64_t[:, :, ::1] part_rows,        # in
    const int64_t[:, ::1] n_part,        # in
    floating[:, ::1] best_scores,        # out
    int64_t[:, ::1] best_rows,           # out
):
    """Merge the heaps of all threads, and sort the best items of each query."""
    cdef Py_ssize_t query, part, i, k = best_scores.shape[1]
    cdef int64_t n_found
    with nogil:
        for query in range(best_scores.shape[0]):
            n_found = 0
            for part in range(part_scores.shape[0]):
                for i in range(n_part[part, query]):
                    push(
                        &best_scores[query, 0], &best_rows[query, 0], &n_found, k,
                        part_scores[part, query, i], part_rows[part, query, i])
            sort_best(&best_scores[query, 0], &best_rows[query, 0], n_found)
