"""Bounds of the scores of items of a block; see `_dense_codes_fast`."""

from cython cimport floating
from libc.float cimport DBL_MIN, FLT_MIN
from libc.math cimport INFINITY

from sklearn_simlearn.index.backends._dense_bounds cimport (
    Span, bound_span, has_codes, is_normal
)
from sklearn_simlearn.index.backends._dense_codes_fast cimport (
    GROUP, Block, Graded, Queries
)
from sklearn_simlearn.index.backends._rows cimport dots, find_tops, prefetch_row


def bound_items(
    const floating[:, ::1] Q,            # in
    Queries queries,
    Block block,
    Graded graded,
    const floating[:, ::1] items,        # in: items of the block
    Py_ssize_t first,                    # in: first item to bound, a multiple of GROUP
    Py_ssize_t n_items,                  # in: number of items to bound
    floating[:, ::1] products,           # scratch
    float[:, ::1] tops,                  # scratch: query, group
    float[:, ::1] bounds,                # out: query, item
    double[:, ::1] ranges,               # out: of each query
):
    """Compute upper bounds of the scores of some items of a block.

    A score is at most bound * unit + error. The `ranges` of a query are a mean bound,
    the largest bound, the unit and the error.
    """
    cdef Span span
    cdef Py_ssize_t query, group
    cdef double unit, tiny = FLT_MIN if floating is float else DBL_MIN
    cdef bint is_coded = has_codes(queries, block)
    span.first, span.n_items, span.n_features = first, n_items, items.shape[1]
    span.bounds, span.tops, span.stride = &bounds[0, 0], &tops[0, 0], bounds.shape[1]
    with nogil:
        bound_span(span, Q, queries, block, graded, &items[first, 0], &products[0, 0])
        if graded.is_used:
            bound_outliers(span, Q, queries, block, graded, &items[first, 0])
        for query in range(Q.shape[0]):
            ranges[query, 0] = <float>find_mean(&bounds[query, 0], span.n_items)
            ranges[query, 1] = tops[query, 0]
            for group in range((span.n_items + GROUP - 1) // GROUP):
                ranges[query, 1] = max(ranges[query, 1], tops[query, group])
            unit = queries.lengths[query] * block.longest
            ranges[query, 3] = queries.margin * unit
            if not graded.is_used:
                ranges[query, 3] += queries.errors[query] * unit
            ranges[query, 3] += tiny * span.n_features
            if not is_normal(unit) and queries.lengths[query] > 0 and block.longest > 0:
                ranges[query, 3] = INFINITY
            if floating is float and not is_coded:
                unit = 1
            ranges[query, 2] = unit


cdef void bound_outliers(
    Span span, const floating[:, ::1] Q, Queries queries, Block block, Graded graded,
    const floating* items,
) noexcept nogil:
    """Replace the bounds of items whose graded codes give no bound by products."""
    cdef Py_ssize_t query, i, place, n = span.n_features
    cdef Py_ssize_t begin = 0, end = graded.outliers.shape[0]
    cdef double unit
    cdef floating product
    # Outliers ascend.
    while begin < end and graded.outliers[begin] < span.first:
        begin += 1
    while end > begin and graded.outliers[end - 1] >= span.first + span.n_items:
        end -= 1
    for i in range(begin, end):
        place = graded.outliers[i] - span.first
        prefetch_row(items + place * n, n * sizeof(floating))
    for query in range(Q.shape[0]):
        unit = queries.lengths[query] * block.longest
        for i in range(begin, end):
            place = graded.outliers[i] - span.first
            dots(items + place * n, 1, n, &Q[query, 0], &product)
            span.bounds[place] = <float>(product / unit if is_normal(unit) else 0)
        for i in range(begin, end):
            place = (graded.outliers[i] - span.first) // GROUP * GROUP
            find_tops(
                span.bounds + place, min(GROUP, span.n_items - place),
                span.tops + place // GROUP)
        span.bounds += span.stride
        span.tops += span.stride // GROUP


cdef double find_mean(const float* x, Py_ssize_t n) noexcept nogil:
    """Return the mean of every sixteenth number."""
    cdef Py_ssize_t i
    cdef double total = 0
    for i in range(0, n, 16):
        total += x[i]
    return total / ((n + 15) // 16)
