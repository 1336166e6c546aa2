"""Exact search of sparse items: the inverted file."""

import numpy as np
from scipy import sparse

from sklearn_simlearn.index._blocks import (
    N_QUERIES,
    BlockedItems,
    check_offsets,
    check_range,
)
from sklearn_simlearn.index._inverted_fast import (
    find_best,
    finish_search,
    invert,
    make_scratch,
    score_queries,
)

# Of the k-th score, what skipped words may add up to at first; it adapts per query.
SHARE = 0.25


class InvertedFile(BlockedItems):
    """Sparse items, searched exactly.

    Per block of items the file keeps the items as rows, and per word the *postings*:
    which items have it, and its value there. A search walks the postings of the words
    that matter most, as long as the others could still lift an item among the best.
    The few items that remain are scored by their rows.

    Parameters
    ----------
    D : canonical csr_array of shape (n_items, n_features)
        Items, of any sign; float32 or float64. They are copied.

    n_threads : int, default=1
        Number of threads that build the file.

    block_length : int, default=65536
        Largest number of items per block, no more than 65536.
    """

    _layout = {
        "indptr": np.int32,
        "words": np.int32,
        "values": None,
        "start": np.int32,
        "places": np.uint16,
        "weights": None,
        "most": None,
        "least": None,
    }

    def scores(self, Q, *, n_threads=1):
        """Q @ D.T of queries and all items, those of removed items included."""
        indptr, words, values = self._convert(Q)
        out = np.zeros((Q.shape[0], self.n_items), dtype=self.dtype)
        for rows, block in self._read():
            for first in range(0, Q.shape[0], N_QUERIES):
                score_queries(
                    indptr[first : first + N_QUERIES + 1],
                    words,
                    values,
                    *block[3:6],
                    n_threads,
                    out[first : first + N_QUERIES, rows],
                )
        return out

    def _find_best(self, Q, alive, excluded, n_threads, scores, rows):
        indptr, words, values = Q
        n_queries, k = scores.shape
        n_threads, n_lists = min(n_threads, n_queries), int(np.diff(indptr).max())
        scratch = make_scratch(n_threads, self.n_features, n_lists, k, self.dtype)
        n_found = np.zeros(n_queries, dtype=np.int64)
        share = np.full(n_queries, SHARE)
        for first in range(0, n_queries, N_QUERIES):
            chunk = slice(first, first + N_QUERIES)
            offsets = slice(first, first + N_QUERIES + 1)
            for block_rows, block in self._read():
                find_best(
                    indptr[offsets],
                    words,
                    values,
                    block_rows.start,
                    *block,
                    alive[block_rows],
                    excluded[0][offsets],
                    excluded[1],
                    n_threads,
                    *scratch,
                    scores[chunk],
                    rows[chunk],
                    n_found[chunk],
                    share[chunk],
                )
        finish_search(n_found, scores, rows)

    def _convert(self, Q):
        """Queries with the types of the kernels."""
        return (
            Q.indptr.astype(np.int64, copy=False),
            Q.indices.astype(np.int32, copy=False),
            Q.data.astype(self.dtype, copy=False),
        )

    def _cut(self, D):
        """D in parts that fit into blocks."""
        first = 0
        while first < D.shape[0]:
            end = int(D.indptr[first]) + self._max_values
            last = np.searchsorted(D.indptr, end, side="right") - 1
            last = min(first + self._block_length, last)
            begin, end = D.indptr[first], D.indptr[last]
            yield sparse.csr_array(
                (
                    D.data[begin:end],
                    D.indices[begin:end],
                    D.indptr[first : last + 1] - begin,
                ),
                shape=(last - first, D.shape[1]),
            )
            first = last

    def _make_block(self, D):
        indptr = D.indptr.astype(np.int32)
        words = np.array(D.indices, dtype=np.int32)
        values = np.array(D.data, dtype=self.dtype)
        return indptr, words, values, *invert(indptr, words, values, self.n_features)

    def _take(self, block, kept):
        indptr, words, values = block[:3]
        rows = sparse.csr_array(
            (values, words, indptr), shape=(len(indptr) - 1, self.n_features)
        )
        return rows[kept]

    @staticmethod
    def _stack(parts):
        return sparse.vstack(parts, format="csr")

    def _find_shapes(self, block, length):
        n_values, n_words = block[1].size, self.n_features
        n_least = n_words if block[7].size else 0
        sizes = [length + 1, n_values, n_values]
        sizes += [n_words + 1, n_values, n_values, n_words, n_least]
        return [(size,) for size in sizes]

    def _check_contents(self, block, length):
        indptr, words, _, start, places, *_ = block
        check_offsets(indptr, len(words), "indptr")
        check_offsets(start, len(places), "start")
        check_range(words, self.n_features, "words")
        check_range(places, length, "places")
