"""Inner products of sparse queries with all items of a block."""

from cython cimport floating
from cython.parallel cimport prange
from libc.stdint cimport int32_t, int64_t

from sklearn_simlearn._core.prefetch cimport prefetch

# Postings are scattered: prefetch them this number of words ahead.
cdef enum:
    AHEAD = 6


def score_queries(
    const int64_t[::1] indptr,           # in: queries as rows
    const int32_t[::1] query_words,      # in
    const floating[::1] query_values,    # in
    const int64_t[::1] start,            # in: postings of the items, word by word
    const int32_t[::1] places,           # in
    const floating[::1] weights,         # in
    int n_threads,
    floating[:, :] out,                  # in, out: zeros on entry, rows contiguous
):
    """Compute the inner products of queries and the items of a block.

    The terms are added in the order of SciPy's product of the two, so both give equal
    results to the last bit.
    """
    cdef Py_ssize_t query
    cdef int64_t k, last
    cdef int32_t word
    if out.shape[1] == 0:
        return
    for query in prange(
        out.shape[0], nogil=True, num_threads=n_threads, schedule="dynamic"
    ):
        last = indptr[query + 1]
        for k in range(indptr[query], last):
            if k + 2 * AHEAD < last:
                prefetch(&start[query_words[k + 2 * AHEAD]])
            if k + AHEAD < last:
                word = query_words[k + AHEAD]
                if start[word] < start[word + 1]:
                    prefetch(&places[start[word]])
                    prefetch(&weights[start[word]])
            word = query_words[k]
            if start[word] < start[word + 1]:
                walk(
                    &places[start[word]], &weights[start[word]],
                    start[word + 1] - start[word], query_values[k], &out[query, 0])


cdef inline void walk(
    const int32_t* places, const floating* weights, Py_ssize_t n, floating factor,
    floating* scores,
) noexcept nogil:
    """Add the postings of a word."""
    cdef Py_ssize_t p
    for p in range(n):
        scores[places[p]] += factor * weights[p]
