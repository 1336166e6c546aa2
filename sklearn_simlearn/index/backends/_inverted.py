"""Exact search of sparse items with an inverted file."""

import numpy as np
from scipy import sparse

from sklearn_simlearn.index.backends._blocked_items import (
    N_QUERIES,
    BlockedItems,
    check,
    check_offsets,
    check_range,
)
from sklearn_simlearn.index.backends._invert_fast import invert
from sklearn_simlearn.index.backends._inverted_fast import (
    Block,
    Queries,
    Scratch,
    find_best,
    finish_search,
)

# Initial bound on the sum of skipped words, as a share of the k-th score. It is adapted
# per query.
SHARE = 0.25


class InvertedFile(BlockedItems):
    """Sparse items, searched exactly.

    For each block of items, the file stores the items and, per word, the *postings*:
    the items that have the word, with its values rounded up to 8 bits. A search reads
    the postings of the most important words, until the other words cannot lift further
    items into the top k. The few candidates that remain are scored exactly.

    Parameters
    ----------
    D : canonical csr_array of shape (n_items, n_features)
        Items with values of any sign, float32 or float64. They are not copied and must
        not be changed afterwards.

    n_threads : int, default=1
        Number of threads that build the file.

    block_length : int, default=65536
        Largest number of items per block, at most 65536.
    """

    _max_length = 65_536  # positions within a block are uint16

    _layout = {
        "indptr": np.int32,
        "words": np.int32,
        "values": None,
        "start": np.int32,
        "places": np.uint16,
        "codes": np.uint8,
        "row_words": np.int32,
        "rows": np.uint8,
        "steps": None,
        "zero": np.uint8,
    }

    def _find_best(self, Q, alive, excluded, n_threads, scores, rows):
        indptr, words, values = Q
        n_queries, k = scores.shape
        n_threads, n_lists = min(n_threads, n_queries), int(np.diff(indptr).max())
        scratch = Scratch(n_threads, n_lists, k)
        query_rows = np.zeros((n_threads, self.n_features + 1), dtype=self.dtype)
        n_found = np.zeros(n_queries, dtype=np.int64)
        share = np.full(n_queries, SHARE)
        for first in range(0, n_queries, N_QUERIES):
            chunk = slice(first, first + N_QUERIES)
            offsets = slice(first, first + N_QUERIES + 1)
            queries = Queries(indptr[offsets], words, excluded[0][offsets], excluded[1])
            for block_rows, block in self._read():
                item_indptr, item_words, item_values, *postings, steps, zero = block
                find_best(
                    queries,
                    values,
                    Block(
                        block_rows.start,
                        item_indptr,
                        item_words,
                        *postings,
                        zero,
                        alive[block_rows],
                    ),
                    item_values,
                    steps,
                    n_threads,
                    scratch,
                    query_rows,
                    scores[chunk],
                    rows[chunk],
                    n_found[chunk],
                    share[chunk],
                )
        finish_search(n_found, scores, rows)

    def _convert(self, Q):
        """Return queries with the dtypes of the kernels."""
        return (
            Q.indptr.astype(np.int64, copy=False),
            Q.indices.astype(np.int32, copy=False),
            Q.data.astype(self.dtype, copy=False),
        )

    def _cut(self, D):
        """Yield parts of D that fit into blocks."""
        first = 0
        while first < D.shape[0]:
            end = int(D.indptr[first]) + self._max_values
            last = np.searchsorted(D.indptr, end, side="right") - 1
            last = min(first + self._block_length, last)
            begin, end = D.indptr[first], D.indptr[last]
            part = sparse.csr_array((last - first, D.shape[1]), dtype=D.dtype)
            # Arrays are set one by one: the constructor would copy parts of larger
            # arrays.
            part.indptr = D.indptr[first : last + 1] - begin
            part.indices, part.data = D.indices[begin:end], D.data[begin:end]
            yield part
            first = last

    def _make_block(self, D):
        indptr = D.indptr.astype(np.int32)
        words = np.asarray(D.indices, dtype=np.int32)
        values = np.asarray(D.data, dtype=self.dtype)
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
        n_postings, n_rows = block[4].size, block[6].size
        vectors = [length + 1, n_values, n_values, n_words + 1, n_postings, n_postings]
        shapes = [(size,) for size in vectors]
        return [*shapes, (n_rows,), (n_rows, length), (n_words,), (1,)]

    def _check_contents(self, block, length):
        indptr, words, _, start, places, _, _, _, steps, _ = block
        check_offsets(indptr, len(words), "indptr")
        check_offsets(start, len(places), "start")
        check_range(words, self.n_features, "words")
        check_range(places, length, "places")
        check(
            bool((np.isfinite(steps) & (steps > 0)).all()), "'steps' must be positive"
        )
