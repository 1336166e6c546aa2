"""Exact search of sparse items with an inverted file."""

import math
import threading

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

# Spans of this number of full blocks consist of whole blocks, even if some of them are
# shorter. The dense part of a hybrid index has a block per span.
BLOCKS_PER_SPAN = 4

# Largest number of entries of an array that is kept for the next search, and of bounds.
MOST_KEPT = 2**20
MOST_BOUNDS = 2**22


class _Memory(threading.local):
    """Scratch memory of each thread, which later searches reuse."""

    def __init__(self):
        self._scratch, self._size = None, (0, 0, 0)
        self._query_rows, self._bounds = {}, np.empty((0, 0), dtype=np.float32)

    def scratch(self, *size):
        """Return scratch memory for given numbers of threads, lists and results."""
        largest = tuple(map(max, size, self._size))
        if largest != self._size:
            if math.prod(size) > MOST_KEPT:
                return Scratch(*size)
            self._size, self._scratch = largest, Scratch(*largest)
        return self._scratch

    def query_rows(self, n_threads, n_words, dtype):
        """Return an array of zeros, which the kernel must reset to zeros."""
        kept = self._query_rows.get(dtype)
        if kept is not None and kept.shape[0] >= n_threads and kept.shape[1] >= n_words:
            return kept
        rows = np.zeros((n_threads, n_words), dtype=dtype)
        if rows.size <= MOST_KEPT:
            self._query_rows[dtype] = rows
        return rows

    def bounds(self, n_queries, n_items):
        """Return an array with rows of at least `n_items` float32."""
        kept = self._bounds
        if kept.shape[0] < n_queries or kept.shape[1] < n_items:
            kept = np.empty((n_queries, n_items), dtype=np.float32)
            if kept.size <= MOST_BOUNDS:
                self._bounds = kept
        return kept


MEMORY = _Memory()


class InvertedFile(BlockedItems):
    """Sparse items, searched exactly.

    For each block of items, the file stores the items and, per word, the *postings*:
    the items that contain the word, with its values rounded up to 8 bits. A search
    reads the postings of the most important words, until the other words cannot bring
    more items into the top k. The few remaining candidates are scored exactly.

    Parameters
    ----------
    D : canonical csr_array of shape (n_items, n_features)
        Items with values of any sign, float32 or float64. They are not copied and must
        not be changed afterwards.

    n_threads : int, default=1
        Number of threads that build the file.

    block_length : int, default=None
        Largest number of items per block, at most 65536, the default.
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

    _open_block = Block

    # Number of queries per call of the kernel.
    _n_queries = N_QUERIES

    # Initial bound on the sum of skipped words, as a share of the k-th score. It is
    # adapted per query.
    _share = 0.25

    # If at most one item in this number is listed, the kernel reads only these items,
    # or only their sums.
    _cost_of_item = 10

    def _score_listed(self, Q, listed, alive, excluded, n_threads, scores, rows):
        self._find_best(Q, alive, excluded, n_threads, scores, rows, listed)

    def _find_best(self, Q, alive, excluded, n_threads, scores, rows, listed=None):
        indptr, words, values, dense = Q
        n_queries, k = scores.shape
        n_threads = min(n_threads, n_queries)
        n_lists = int((indptr[1:] - indptr[:-1]).max())
        scratch = MEMORY.scratch(n_threads, n_lists, k)
        query_rows = MEMORY.query_rows(n_threads, self._n_words + 1, self.dtype)
        n_found = np.zeros(n_queries, dtype=np.int64)
        share = np.full(n_queries, self._share)
        for first in range(0, n_queries, self._n_queries):
            chunk = slice(first, first + self._n_queries)
            offsets = slice(first, first + self._n_queries + 1)
            find_best(
                Queries(
                    indptr[offsets],
                    words,
                    excluded[0][offsets],
                    excluded[1],
                    share[chunk],
                ),
                values,
                self._open(),
                alive,
                listed,
                dense[chunk],
                self._find_dense(dense[chunk]),
                n_threads,
                scratch,
                query_rows,
                scores[chunk],
                rows[chunk],
                n_found[chunk],
            )
        finish_search(n_found, scores, rows)

    @property
    def _n_words(self):
        """Return the number of sparse columns."""
        return self.n_features

    def _find_dense(self, Q):
        """Return a function that finds dense items and their bounds, or None."""
        return None

    def _convert(self, Q):
        """Return queries with the dtypes of the kernels, and an empty dense part."""
        return (
            Q.indptr.astype(np.int64, copy=False),
            Q.indices.astype(np.int32, copy=False),
            Q.data.astype(self.dtype, copy=False),
            np.empty((Q.shape[0], 0), dtype=self.dtype),
        )

    def _cut(self, D):
        """Yield parts of D that fit into blocks."""
        first, span = 0, BLOCKS_PER_SPAN * self._block_length
        while first < D.shape[0]:
            end = int(D.indptr[first]) + self._max_values
            last = np.searchsorted(D.indptr, end, side="right") - 1
            last = min(first + self._block_length, last, first - first % span + span)
            begin, end = D.indptr[first], D.indptr[last]
            part = sparse.csr_array((last - first, D.shape[1]), dtype=D.dtype)
            # Set the arrays one by one, because the constructor would copy parts of
            # larger arrays.
            part.indptr = D.indptr[first : last + 1] - begin
            part.indices, part.data = D.indices[begin:end], D.data[begin:end]
            yield part
            first = last

    def _make_block(self, D):
        indptr = D.indptr.astype(np.int32)
        words = np.asarray(D.indices, dtype=np.int32)
        values = np.asarray(D.data, dtype=self.dtype)
        return indptr, words, values, *invert(indptr, words, values, self._n_words)

    def _take(self, block, kept):
        indptr, words, values = block[:3]
        rows = sparse.csr_array(
            (values, words, indptr), shape=(len(indptr) - 1, self._n_words)
        )
        return rows[kept]

    @staticmethod
    def _stack(parts):
        return sparse.vstack(parts, format="csr")

    def _find_shapes(self, block, length):
        n_values, n_words = block[1].size, self._n_words
        n_postings, n_rows = block[4].size, block[6].size
        vectors = [length + 1, n_values, n_values, n_words + 1, n_postings, n_postings]
        shapes = [(size,) for size in vectors]
        return [*shapes, (n_rows,), (n_rows, length), (n_words,), (1,)]

    def _check_contents(self, block, length):
        indptr, words, _, start, places, _, _, _, steps, _ = block
        check_offsets(indptr, len(words), "indptr")
        check_offsets(start, len(places), "start")
        check_range(words, self._n_words, "words")
        check_range(places, length, "places")
        check(
            bool((np.isfinite(steps) & (steps > 0)).all()), "'steps' must be positive"
        )
