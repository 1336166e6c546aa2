"""Exact scores of items with a sparse and perhaps a dense part; header only."""

from cython cimport floating
from libc.float cimport DBL_EPSILON, FLT_EPSILON
from libc.math cimport fabs
from libc.stdint cimport INT32_MAX, int32_t, int64_t

from sklearn_simlearn._core.prefetch cimport prefetch
from sklearn_simlearn.index.backends._rows cimport dots, prefetch_row
from sklearn_simlearn.index.backends._top cimport push
from sklearn_simlearn.index.backends._visit cimport Visit, bound_words, find_limit

# Number of items that are scored in parallel.
cdef enum:
    N_LANES = 4

# Number of postings that are read in the time of fetching an item.
cdef enum:
    MISS = 128

# Hybrid items are scored in N_ROUNDS rounds, those with larger sums first. Dense parts
# are loaded AHEAD items before they are read.
cdef enum:
    N_ROUNDS = 4
    AHEAD = 4


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


cdef inline void fetch_row(
    const Visit* v, int64_t place, const floating* query
) noexcept nogil:
    """Prefetch the sparse part of an item, whose values have the type of the query."""
    cdef const floating* values = <const floating*>v.values
    cdef int32_t k
    for k in range(v.indptr[place], v.indptr[place + 1], 16):
        prefetch(&v.words[k])
        prefetch(&values[k])
        if floating is double:
            prefetch(&values[k] + 8)


cdef inline void score_rows(
    Visit* v, Py_ssize_t n, const int64_t* places, const floating* query,
    floating* best_scores,
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
    cdef const floating* values = <const floating*>v.values
    cdef int32_t[N_LANES] begin
    cdef int32_t[N_LANES] end
    cdef floating[N_LANES] total
    while first < n:
        for lane in range(first + N_LANES, min(first + 2 * N_LANES, n)):
            fetch_row(v, places[lane], query)
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


cdef inline void score_hybrid(
    Visit* v, Py_ssize_t n_candidates, const floating* query, floating* best_scores
) noexcept nogil:
    """Score candidates with a dense part, in rounds by their sums."""
    cdef int32_t turn, limit, least, top = 0
    cdef Py_ssize_t i, n_left, n_now
    for i in range(n_candidates):
        top = max(top, v.candidates[i].sum)
    for turn in range(N_ROUNDS - 1, -1, -1):
        limit = find_limit(v, best_scores[0])
        least = limit + max(top - limit, 0) * turn // N_ROUNDS
        n_left = n_now = 0
        for i in range(n_candidates):
            if v.candidates[i].sum >= least:
                v.found[n_now] = v.candidates[i].place
                n_now += 1
            else:
                v.candidates[n_left] = v.candidates[i]
                n_left += 1
        n_candidates = n_left
        score_round(v, n_now, limit, query, best_scores)


cdef inline void score_round(
    Visit* v, Py_ssize_t n, int32_t limit, const floating* query,
    floating* best_scores,
) noexcept nogil:
    """Score the items that were found; sparse parts only of those that may be best."""
    cdef Py_ssize_t i, n_bytes = v.n_dense * sizeof(floating)
    cdef int64_t place
    for i in range(n):
        if i + AHEAD < n:
            prefetch_row(
                <const char*>v.dense_items + v.found[i + AHEAD] * n_bytes, n_bytes)
        place = v.found[i]
        if v.sums[place] < limit:
            continue
        v.n_summed += MISS
        if v.n_found[0] < v.k or is_likely(v, place, best_scores[0]):
            v.n_summed += MISS + v.indptr[place + 1] - v.indptr[place]
            score_rows(v, 1, &place, query, best_scores)
            limit = find_limit(v, best_scores[0])


cdef inline bint is_likely(
    const Visit* v, int64_t place, floating worst
) noexcept nogil:
    """Return whether an item may be among the best, by the score of its dense part.

    `worst` is the k-th score so far.
    """
    cdef double epsilon = FLT_EPSILON if floating is float else DBL_EPSILON
    cdef double score = add_dense(v, place, <floating>0)
    return score + 4 * epsilon * fabs(score) + bound_words(v, place) >= worst
