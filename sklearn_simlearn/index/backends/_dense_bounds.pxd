"""Bounds of the scores of dense items, by codes or by BLAS; header only."""

from cython cimport floating
from libc.float cimport DBL_MIN
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
from scipy.linalg.cython_blas cimport dgemm, sgemm

from sklearn_simlearn.index.backends._dense_codes_fast cimport (
    GROUP, Block, Graded, Queries
)
from sklearn_simlearn.index.backends._dense_views cimport (
    CodedItems, CodedQueries, bound_group, view_graded_group, view_graded_queries,
    view_group, view_queries
)
from sklearn_simlearn.index.backends._rows cimport (
    dots, find_tops, prefetch_bytes, scale
)

# Number of items per call of BLAS.
cdef enum:
    TILE = 1024

# Below this number of queries, a loop is faster than BLAS.
cdef enum:
    FEW = 4

# Codes are loaded from memory this number of bytes before they are read.
cdef enum:
    EARLY = 8192

# Items whose bounds are in memory, and the scratch of a thread.
cdef struct Span:
    Py_ssize_t first
    Py_ssize_t n_items
    Py_ssize_t n_features
    Py_ssize_t stride
    bint is_graded
    double unit  # of the bounds of a query
    double error  # bound of their error
    float* bounds
    float* tops
    int32_t* groups
    int32_t* found
    float* pick_bounds
    int64_t* picks
    Py_ssize_t n_picks


cdef inline bint has_codes(Queries queries, Block block) noexcept nogil:
    return queries.codes.shape[1] > 0 and block.codes.shape[1] > 0


cdef inline bint is_normal(double unit) noexcept nogil:
    return DBL_MIN <= unit < INFINITY


cdef inline void bound_span(
    Span span, const floating[:, ::1] Q, Queries queries, Block block, Graded graded,
    const floating* items, floating* products,
) noexcept nogil:
    """Compute the bounds of a span, and the largest of each group."""
    if graded.is_used:
        bound_by_grades(span, Q.shape[0], queries.instructions, graded)
    elif has_codes(queries, block):
        bound_by_codes(span, Q.shape[0], queries, block)
    else:
        bound_by_products(span, Q, queries, block, items, products)


cdef inline void bound_by_grades(
    Span span, Py_ssize_t n_queries, int instructions, Graded graded
) noexcept nogil:
    """Compute the bounds of a span by graded codes, and the largest of each group."""
    cdef CodedItems coded_items
    cdef CodedQueries coded_queries = view_graded_queries(graded)
    cdef Py_ssize_t group
    cdef Py_ssize_t n_bytes = graded.items.shape[1] * 4 * GROUP
    for group in range((span.n_items + GROUP - 1) // GROUP):
        coded_items = view_graded_group(graded, span.first // GROUP + group)
        prefetch_bytes(coded_items.codes + EARLY, n_bytes)
        bound_group(
            &coded_items, &coded_queries, n_queries, instructions,
            span.bounds + group * GROUP, span.stride, span.tops + group)


cdef inline void bound_by_codes(
    Span span, Py_ssize_t n_queries, Queries queries, Block block
) noexcept nogil:
    """Compute the bounds of a span, and the largest of each group."""
    cdef CodedItems coded_items
    cdef CodedQueries coded_queries = view_queries(queries, 0)
    cdef Py_ssize_t group
    cdef Py_ssize_t n_bytes = block.codes.shape[1] * 4 * GROUP
    for group in range((span.n_items + GROUP - 1) // GROUP):
        coded_items = view_group(block, span.first // GROUP + group)
        prefetch_bytes(coded_items.codes + EARLY, n_bytes)
        bound_group(
            &coded_items, &coded_queries, n_queries, queries.instructions,
            span.bounds + group * GROUP, span.stride, span.tops + group)


cdef inline void bound_by_products(
    Span span, const floating[:, ::1] Q, Queries queries, Block block,
    const floating* items, floating* products,
) noexcept nogil:
    """Compute products instead of bounds, and the largest of each group."""
    cdef Py_ssize_t tile, first, n, query
    cdef double unit
    cdef float* bounds
    for tile in range((span.n_items + TILE - 1) // TILE):
        first = tile * TILE
        n = min(TILE, span.n_items - first)
        if floating is float:
            multiply(Q, items + first * Q.shape[1], n, span.bounds + first, span.stride)
        else:
            multiply(Q, items + first * Q.shape[1], n, products, TILE)
        for query in range(Q.shape[0]):
            bounds = span.bounds + query * span.stride + first
            if floating is double:
                unit = queries.lengths[query] * block.longest
                scale(products + query * TILE, n, 1 / unit if is_normal(unit) else 0,
                      bounds)
            find_tops(
                bounds, n, span.tops + (query * span.stride + first) // GROUP)


cdef inline void multiply(
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
