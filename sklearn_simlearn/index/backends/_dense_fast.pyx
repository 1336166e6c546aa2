"""Search of dense items: bounds of the scores, and a running top k.

Bounds select the candidates for the top k; see `_dense_codes_fast`. Candidates are
scored with a fixed order of summation. Therefore the results do not depend on the
number of threads, the batches of queries or the instruction set. If there are no codes,
products by BLAS replace the bounds, with the same margin.
"""

from cython cimport floating
from cython.parallel cimport prange, threadid
from libc.float cimport DBL_MIN, FLT_MIN
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
import numpy as np

from sklearn_simlearn.index.backends._dense_bounds cimport (
    TILE, Span, bound_span, has_codes, is_normal
)
from sklearn_simlearn.index.backends._dense_codes_fast cimport (
    GROUP, Block, Graded, Queries, round_up
)
from sklearn_simlearn.index.backends._dense_views cimport (
    CodedItems, CodedQueries, bound_group, view_group, view_queries
)
from sklearn_simlearn.index.backends._rows cimport dots, prefetch_row
from sklearn_simlearn.index.backends._top cimport (
    find_large, is_listed, just_below, push, sort_best
)

# Largest number of bounds that a thread holds in memory.
cdef enum:
    MOST_BOUNDS = 262144

# Smallest number of groups whose best item is scored first. If more than MANY items of
# a group have to be scored, it is faster to read its 8-bit codes first. Items are
# scored in N_ROUNDS rounds.
cdef enum:
    N_PICKS = 48
    MANY = 8
    N_ROUNDS = 4

# Number of items that are loaded from memory before they are scored.
cdef enum:
    AHEAD = 4


cdef class Scratch:
    """Memory of each thread."""

    cdef Py_ssize_t span                    # largest number of items of a span
    cdef float[:, :, ::1] bounds            # thread, query, item
    cdef float[:, :, ::1] tops              # thread, query, group: the largest bound
    cdef int32_t[:, ::1] found
    cdef float[:, ::1] pick_bounds          # heap of the best groups
    cdef int64_t[:, ::1] picks

    def __init__(self, n_threads, n_queries, n_items, k):
        # Several spans per thread, so that all threads end at about the same time.
        most = n_items if n_threads == 1 else n_items // (4 * n_threads)
        self.span = max(1, min(MOST_BOUNDS // n_queries, most) // TILE) * TILE
        n_groups, n_picks = self.span // GROUP, max(2 * k, N_PICKS)
        self.bounds = np.empty((n_threads, n_queries, self.span), dtype=np.float32)
        self.tops = np.empty((n_threads, n_queries, n_groups), dtype=np.float32)
        self.found = np.empty((n_threads, n_groups + 64 * GROUP), dtype=np.int32)
        self.pick_bounds = np.empty((n_threads, n_picks), dtype=np.float32)
        self.picks = np.empty((n_threads, n_picks), dtype=np.int64)


cdef Span open_span(
    Scratch scratch, int thread, Py_ssize_t number, Py_ssize_t n_items,
    Py_ssize_t n_features,
) noexcept nogil:
    cdef Span span
    span.n_features, span.stride = n_features, scratch.span
    span.first = number * scratch.span
    span.n_items = min(scratch.span, n_items - span.first)
    span.bounds = &scratch.bounds[thread, 0, 0]
    span.tops = &scratch.tops[thread, 0, 0]
    span.groups = &scratch.found[thread, 0]
    span.found = span.groups + scratch.span // GROUP
    span.pick_bounds = &scratch.pick_bounds[thread, 0]
    span.picks = &scratch.picks[thread, 0]
    span.n_picks = scratch.picks.shape[1]
    return span


def make_heaps(n_threads, n_queries, k, dtype):
    """Return the heaps of each thread, and memory for products in float64."""
    n_products = n_queries * TILE if dtype == np.float64 else 1
    return (
        np.empty((n_threads, n_products), dtype=dtype),
        np.empty((n_threads, n_queries, k), dtype=dtype),
        np.empty((n_threads, n_queries, k), dtype=np.int64),
        np.zeros((n_threads, n_queries), dtype=np.int64),
    )


def find_best(
    const floating[:, ::1] Q,            # in
    Queries queries,
    Block block,
    Graded graded,
    const floating[:, ::1] items,        # in: items of the block
    int n_threads,
    Scratch scratch,
    floating[:, ::1] products,           # scratch
    floating[:, :, ::1] best_scores,     # in, out: heaps of thread and query
    int64_t[:, :, ::1] best_rows,        # in, out
    int64_t[:, ::1] n_found,             # in, out
):
    """Update the heaps of each query with the items of a block."""
    cdef Py_ssize_t number
    cdef int t
    for number in prange(
        (items.shape[0] + scratch.span - 1) // scratch.span, nogil=True,
        num_threads=n_threads, schedule="dynamic", chunksize=1,
    ):
        t = threadid()
        visit_span(
            open_span(scratch, t, number, items.shape[0], items.shape[1]), Q, queries,
            block, graded, items, &products[t, 0], best_scores[t], best_rows[t],
            n_found[t])


cdef void visit_span(
    Span span, const floating[:, ::1] Q, Queries queries, Block block, Graded graded,
    const floating[:, ::1] items, floating* products, floating[:, ::1] best_scores,
    int64_t[:, ::1] best_rows, int64_t[::1] n_found,
) noexcept nogil:
    cdef Py_ssize_t query
    cdef const floating* first = &items[span.first, 0]
    cdef bint is_coded = has_codes(queries, block)
    bound_span(span, Q, queries, block, graded, first, products)
    span.is_graded = graded.is_used
    for query in range(Q.shape[0]):
        # Products in float32 are not divided.
        span.unit = queries.lengths[query] * block.longest
        span.error = queries.margin * span.unit
        if not graded.is_used:
            span.error += queries.errors[query] * span.unit
        if floating is float and not is_coded:
            span.unit = 1
        if graded.is_used:
            score_outliers(
                span, &Q[query, 0], queries, query, block, graded, first,
                best_scores.shape[1], &best_scores[query, 0], &best_rows[query, 0],
                &n_found[query])
        if n_found[query] < best_scores.shape[1]:
            score_picks(
                span, &Q[query, 0], queries, query, block, first, best_scores.shape[1],
                &best_scores[query, 0], &best_rows[query, 0], &n_found[query])
        score_large(
            span, &Q[query, 0], queries, query, block, first, best_scores.shape[1],
            &best_scores[query, 0], &best_rows[query, 0], &n_found[query])
        span.bounds += span.stride
        span.tops += span.stride // GROUP


cdef inline void score_picks(
    Span span, const floating* q, Queries queries, Py_ssize_t query, Block block,
    const floating* items, Py_ssize_t k, floating* best_scores, int64_t* best_rows,
    int64_t* n_found,
) noexcept nogil:
    """Score the best item of the best groups, so that the limit is high early."""
    cdef Py_ssize_t group, i, j, best
    cdef int64_t n = 0
    for group in range((span.n_items + GROUP - 1) // GROUP):
        push(span.pick_bounds, span.picks, &n, span.n_picks, span.tops[group], group)
    for i in range(n):
        best = span.picks[i] * GROUP
        for j in range(best + 1, min(best + GROUP, span.n_items)):
            if span.bounds[j] > span.bounds[best]:
                best = j
        span.bounds[best] = -INFINITY  # not to be scored again
        score(span, best, q, queries, query, block, items, k, best_scores, best_rows,
              n_found)


cdef inline void score_outliers(
    Span span, const floating* q, Queries queries, Py_ssize_t query, Block block,
    Graded graded, const floating* items, Py_ssize_t k, floating* best_scores,
    int64_t* best_rows, int64_t* n_found,
) noexcept nogil:
    """Score the items of a span whose graded codes give no bound."""
    cdef Py_ssize_t i, place
    for i in range(graded.outliers.shape[0]):
        place = graded.outliers[i] - span.first
        if 0 <= place < span.n_items:
            span.bounds[place] = -INFINITY  # not to be scored again
            score(span, place, q, queries, query, block, items, k, best_scores,
                  best_rows, n_found)


cdef inline void refine(
    Span span, int32_t first, Queries queries, Py_ssize_t query, Block block
) noexcept nogil:
    """Replace the bounds of a group, and the largest one, by those of 8-bit codes."""
    cdef CodedItems coded_items = view_group(block, (span.first + first) // GROUP)
    cdef CodedQueries coded_queries = view_queries(queries, query)
    cdef float[GROUP] bounds
    cdef float top
    cdef int i
    bound_group(
        &coded_items, &coded_queries, 1, queries.instructions, bounds, GROUP, &top)
    span.tops[first // GROUP] = top + round_up(queries.errors[query])
    for i in range(min(GROUP, <int32_t>span.n_items - first)):
        if span.bounds[first + i] > -INFINITY:
            span.bounds[first + i] = bounds[i] + round_up(queries.errors[query])


cdef inline void score_large(
    Span span, const floating* q, Queries queries, Py_ssize_t query, Block block,
    const floating* items, Py_ssize_t k, floating* best_scores, int64_t* best_rows,
    int64_t* n_found,
) noexcept nogil:
    """Score the items whose bound exceeds the limit; each score may raise it.

    Items with larger bounds are scored in earlier rounds, so that the limit rises
    quickly, and fewer items remain.
    """
    cdef int32_t n_groups = <int32_t>((span.n_items + GROUP - 1) // GROUP)
    cdef int32_t first, i, place, n_large, n_open, turn
    cdef float limit = find_limit(span, best_scores[0], n_found[0] == k), least
    cdef float top = find_top(span.tops, n_groups)
    for turn in range(N_ROUNDS if limit > -INFINITY else 1, 0, -1):
        least = limit
        if turn > 1 and top > limit:
            least += (top - limit) * (turn - 1) / N_ROUNDS
        n_open = find_large(span.tops, n_groups, least, span.groups)
        for first in range(0, n_open, 64):
            n_large = collect(
                span, first, min(first + 64, n_open), max(least, limit), queries, query,
                block)
            for i in range(n_large):
                if i + AHEAD < n_large:
                    place = span.found[i + AHEAD]
                    prefetch_row(
                        items + place * span.n_features,
                        span.n_features * sizeof(floating))
                place = span.found[i]
                if span.bounds[place] > limit:
                    span.bounds[place] = -INFINITY  # not to be scored again
                    score(span, place, q, queries, query, block, items, k, best_scores,
                          best_rows, n_found)
                    limit = find_limit(span, best_scores[0], n_found[0] == k)


cdef inline float find_top(const float* tops, int32_t n) noexcept nogil:
    cdef float top = tops[0]
    cdef int32_t i
    for i in range(1, n):
        top = max(top, tops[i])
    return top


cdef inline int32_t collect(
    Span span, int32_t first, int32_t last, float limit, Queries queries,
    Py_ssize_t query, Block block,
) noexcept nogil:
    """Find the items of some groups whose bound is large; return their number."""
    cdef int32_t i, j, begin, n, n_large, n_before = 0
    for i in range(first, last):
        begin = GROUP * span.groups[i]
        n = min(GROUP, <int32_t>span.n_items - begin)
        n_large = find_large(span.bounds + begin, n, limit, span.found + n_before)
        if span.is_graded and n_large > MANY:
            refine(span, begin, queries, query, block)
            n_large = find_large(span.bounds + begin, n, limit, span.found + n_before)
        for j in range(n_before, n_before + n_large):
            span.found[j] += begin
        n_before += n_large
    return n_before


cdef inline float find_limit(Span span, floating worst, bint is_full) noexcept nogil:
    """Return a number below the bounds of all items whose score may reach `worst`."""
    # The error of each product is at most a subnormal number.
    cdef double tiny = FLT_MIN if floating is float else DBL_MIN
    if not is_full or not is_normal(span.unit):
        return -INFINITY
    tiny *= span.n_features
    return just_below(<float>((worst - span.error - tiny) / span.unit))


cdef inline void score(
    Span span, Py_ssize_t place, const floating* q, Queries queries, Py_ssize_t query,
    Block block, const floating* items, Py_ssize_t k, floating* best_scores,
    int64_t* best_rows, int64_t* n_found,
) noexcept nogil:
    """Score an item, and push it onto the heap of the best."""
    cdef floating value
    cdef int64_t row = block.first_row + span.first + place
    if block.alive[span.first + place] and not is_listed(
        row, &queries.excluded[0], queries.excluded_start[query],
        queries.excluded_start[query + 1],
    ):
        dots(items + place * span.n_features, 1, span.n_features, q, &value)
        push(best_scores, best_rows, n_found, k, value, row)


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
