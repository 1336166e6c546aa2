"""Kernels of dense items: products by BLAS, tile by tile, and a running top k.

BLAS adds in an order that depends on the shape of a product and on the machine. Its
scores only tell which items may be among the best. These are scored anew in one fixed
order, so results depend neither on threads nor on which queries are asked together.
"""

from cython cimport floating
from cython.parallel cimport prange, threadid
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t
from scipy.linalg.cython_blas cimport dgemm, sgemm
import numpy as np

from sklearn_simlearn.index._top cimport (
    find_large, is_listed, just_below, push, sort_best
)

# Items whose scores are found at a time.
cdef enum:
    TILE = 1024

# Below this number of queries reading the items takes the time, not their products.
cpdef enum:
    FEW = 4


cdef extern from *:
    """
    #include "_simd.h"

    /* A loop of known length, which the compiler keeps in registers. */
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
    """
    void dots_float(
        const float* X, Py_ssize_t n_rows, Py_ssize_t n_cols, const float* y,
        float* out) noexcept nogil
    void dots_double(
        const double* X, Py_ssize_t n_rows, Py_ssize_t n_cols, const double* y,
        double* out) noexcept nogil


cdef void multiply(
    const floating[:, ::1] queries, const floating* items, Py_ssize_t n_items,
    floating* out, Py_ssize_t stride,
) noexcept nogil:
    """out = queries @ items.T, where rows of out are `stride` apart"""
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
    """out = X @ y"""
    if floating is float:
        dots_float(X, n_rows, n_cols, y, out)
    else:
        dots_double(X, n_rows, n_cols, y, out)


def make_scratch(n_threads, n_queries, k, dtype):
    """Memory that `find_best` works in, and per thread the best items it found."""
    return (
        np.empty((n_threads, n_queries, TILE), dtype=dtype),
        np.empty((n_threads, TILE), dtype=np.int32),
        np.empty((n_threads, n_queries, k), dtype=dtype),
        np.empty((n_threads, n_queries, k), dtype=np.int64),
        np.zeros((n_threads, n_queries), dtype=np.int64),
    )


def find_best(
    const floating[:, ::1] queries,      # in
    const double[::1] margin,            # in: how far scores by BLAS may be off
    int64_t first_row,                   # of the block
    const floating[:, ::1] items,        # in: a block
    const uint8_t[::1] alive,            # in: items to choose from
    const int64_t[::1] excluded_start,   # in: rows left out per query, in order
    const int64_t[::1] excluded,         # in
    int n_threads,
    floating[:, :, ::1] tile_scores,     # scratch: thread, query, item
    int32_t[:, ::1] found,               # scratch
    floating[:, :, ::1] best_scores,     # in, out: heaps of thread and query
    int64_t[:, :, ::1] best_rows,        # in, out
    int64_t[:, ::1] n_found,             # in, out
):
    """Look through a block for the best items of each query."""
    cdef Py_ssize_t n_items = items.shape[0], tile
    cdef int t
    for tile in prange(
        (n_items + TILE - 1) // TILE, nogil=True, num_threads=n_threads,
        schedule="dynamic", chunksize=1,
    ):
        t = threadid()
        visit_tile(
            tile * TILE, min(TILE, n_items - tile * TILE), queries, margin, first_row,
            items, alive, excluded_start, excluded, &tile_scores[t, 0, 0], &found[t, 0],
            best_scores[t], best_rows[t], n_found[t],
        )


cdef void visit_tile(
    Py_ssize_t first, Py_ssize_t n_items, const floating[:, ::1] queries,
    const double[::1] margin, int64_t first_row, const floating[:, ::1] items,
    const uint8_t[::1] alive, const int64_t[::1] excluded_start,
    const int64_t[::1] excluded, floating* scores, int32_t* found,
    floating[:, ::1] best_scores, int64_t[:, ::1] best_rows, int64_t[::1] n_found,
) noexcept nogil:
    cdef Py_ssize_t k = best_scores.shape[1], n_features = queries.shape[1]
    cdef Py_ssize_t query, i, place
    cdef int32_t n_large
    cdef floating limit, score
    multiply(queries, &items[first, 0], n_items, scores, TILE)
    for query in range(queries.shape[0]):
        limit = -INFINITY
        if n_found[query] == k:
            limit = just_below(<floating>(best_scores[query, 0] - margin[query]))
        n_large = find_large(scores + query * TILE, <int32_t>n_items, limit, found)
        for i in range(n_large):
            place = first + found[i]
            if alive[place] and not is_listed(
                first_row + place, &excluded[0], excluded_start[query],
                excluded_start[query + 1],
            ):
                dots(&items[place, 0], 1, n_features, &queries[query, 0], &score)
                push(
                    &best_scores[query, 0], &best_rows[query, 0], &n_found[query], k,
                    score, first_row + place)


def finish_search(
    floating[:, :, ::1] part_scores,     # in: heaps of thread and query
    int64_t[:, :, ::1] part_rows,        # in
    const int64_t[:, ::1] n_part,        # in
    floating[:, ::1] best_scores,        # out
    int64_t[:, ::1] best_rows,           # out
):
    """The best items of each query among those of all threads, in order."""
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
