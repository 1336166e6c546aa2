"""Scores of listed dense items."""

from cython cimport floating
from libc.stdint cimport int64_t, uint8_t

from sklearn_simlearn.index.backends._rows cimport dots, prefetch_row
from sklearn_simlearn.index.backends._top cimport is_listed, push

# Number of items that all queries score while the items are in the cache, and of items
# to prefetch ahead.
cdef enum:
    TILE = 64
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
    cdef Py_ssize_t first = 0, query, i, n_listed = listed.shape[0]
    cdef Py_ssize_t n_features = items.shape[1]
    cdef int64_t place
    cdef floating score
    with nogil:
        while first < n_listed:
            for query in range(Q.shape[0]):
                for i in range(first, min(first + TILE, n_listed)):
                    if query == 0 and i + AHEAD < n_listed:
                        prefetch_row(
                            &items[listed[i + AHEAD], 0],
                            n_features * sizeof(floating))
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
            first += TILE
