"""Scores of listed dense items."""

from cython cimport floating
from libc.stdint cimport int64_t, uint8_t

from sklearn_simlearn.index.backends._rows cimport dots, prefetch_row
from sklearn_simlearn.index.backends._top cimport is_listed, push

# Number of items to prefetch ahead.
cdef enum:
    AHEAD = 4


def score_listed(
    const floating[:, ::1] Q,            # in
    const floating[:, ::1] items,        # in: items of a block
    int64_t first_row,
    const int64_t[::1] listed,           # in: positions of the items to score
    const uint8_t[::1] alive,            # in: items that may be returned
    const int64_t[::1] excluded_start,   # in: start of the rows of each query
    const int64_t[::1] excluded,         # in: excluded rows, sorted per query
    floating[:, ::1] best_scores,        # in, out: heaps of the queries
    int64_t[:, ::1] best_rows,           # in, out
    int64_t[::1] n_found,                # in, out
):
    """Update the heaps of each query with some items of a block."""
    cdef Py_ssize_t query, i, n_features = items.shape[1]
    cdef int64_t place
    cdef floating score
    with nogil:
        for query in range(Q.shape[0]):
            for i in range(listed.shape[0]):
                if i + AHEAD < listed.shape[0]:
                    prefetch_row(
                        &items[listed[i + AHEAD], 0], n_features * sizeof(floating))
                place = listed[i]
                if not alive[place] or is_listed(
                    first_row + place, &excluded[0], excluded_start[query],
                    excluded_start[query + 1],
                ):
                    continue
                dots(&items[place, 0], 1, n_features, &Q[query, 0], &score)
                push(
                    &best_scores[query, 0], &best_rows[query, 0], &n_found[query],
                    best_scores.shape[1], score, first_row + place)
