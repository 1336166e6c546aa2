"""Exact scores of items with a sparse and perhaps a dense part; header only."""

from cython cimport floating
from libc.float cimport DBL_EPSILON, FLT_EPSILON
from libc.math cimport fabs
from libc.stdint cimport INT32_MAX, int32_t, int64_t

from sklearn_simlearn._core.prefetch cimport prefetch
from sklearn_simlearn.index.backends._rows cimport dots, prefetch_row
from sklearn_simlearn.index.backends._top cimport push
from sklearn_simlearn.index.backends._visit cimport Visit, bound_words

# Number of items that are scored in parallel.
cdef enum:
    N_LANES = 4


cdef inline floating add_dense(
    const Visit* v, int64_t place, floating total
) noexcept nogil:
    """Return the score of an item, whose sparse part is given."""
    cdef floating more
    if v.n_dense == 0:
        return total
    dots(
        <const floating*>v.dense_items + place * v.n_dense, 1, v.n_dense,
        <const floating*>v.dense_query, &more)
    return total + more


cdef inline void fetch_dense(
    const Visit* v, int64_t place, Py_ssize_t n_bytes
) noexcept nogil:
    """Prefetch the dense part of an item, whose numbers take `n_bytes` bytes each."""
    prefetch_row(
        <const char*>v.dense_items + place * v.n_dense * n_bytes, v.n_dense * n_bytes)


cdef inline Py_ssize_t keep_likely(
    const Visit* v, Py_ssize_t n, int64_t* places, floating worst
) noexcept nogil:
    """Keep items that may be among the best, by the scores of their dense parts.

    `worst` is the k-th score so far. Return the number of items.
    """
    cdef double epsilon = FLT_EPSILON if floating is float else DBL_EPSILON
    cdef double score
    cdef Py_ssize_t i, n_kept = 0
    for i in range(n):
        score = add_dense(v, places[i], <floating>0)
        if score + 4 * epsilon * fabs(score) + bound_words(v, places[i]) >= worst:
            places[n_kept] = places[i]
            n_kept += 1
    return n_kept


cdef inline void fetch_row(
    const Visit* v, int64_t place, const floating* values
) noexcept nogil:
    """Prefetch the sparse part of an item."""
    cdef int32_t k
    for k in range(v.indptr[place], v.indptr[place + 1], 16):
        prefetch(&v.words[k])
        prefetch(&values[k])
        if floating is double:
            prefetch(&values[k] + 8)


cdef inline void score_rows(
    Visit* v, Py_ssize_t n, const int64_t* places, const floating* values,
    const floating* query, floating* best_scores,
) noexcept nogil:
    """Score items exactly, and push them onto the heap of the best.

    Words that are not in the query add 0. Several rows are summed in parallel, because
    each addition has to wait for the previous one of its sum.
    """
    cdef Py_ssize_t first = 0, lane
    cdef int32_t j, n_common
    # Local copies, because the compiler would read the fields again after each push.
    cdef const int32_t* indptr = v.indptr
    cdef const int32_t* words = v.words
    cdef int32_t[N_LANES] begin
    cdef int32_t[N_LANES] end
    cdef floating[N_LANES] total
    while first < n:
        for lane in range(first + N_LANES, min(first + 2 * N_LANES, n)):
            fetch_row(v, places[lane], values)
        n_common = INT32_MAX
        for lane in range(N_LANES):
            begin[lane], end[lane], total[lane] = 0, 0, 0
            if first + lane < n:
                begin[lane] = indptr[places[first + lane]]
                end[lane] = indptr[places[first + lane] + 1]
            n_common = min(n_common, end[lane] - begin[lane])
        for j in range(n_common):
            for lane in range(N_LANES):
                total[lane] += (
                    query[words[begin[lane] + j]] * values[begin[lane] + j])
        for lane in range(min(N_LANES, n - first)):
            for j in range(begin[lane] + n_common, end[lane]):
                total[lane] += query[words[j]] * values[j]
            push(
                best_scores, v.best_rows, v.n_found, v.k,
                add_dense(v, places[first + lane], total[lane]),
                v.first_row + places[first + lane])
        first += N_LANES
