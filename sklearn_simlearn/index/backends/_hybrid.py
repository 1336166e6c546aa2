"""Exact search of items with a sparse and a dense part, in one pass."""

from contextlib import nullcontext

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn.index.backends._blocked_items import check, check_arrays
from sklearn_simlearn.index.backends._dense import (
    CODED,
    N_QUERIES_GRADED,
    DenseItems,
)
from sklearn_simlearn.index.backends._dense_bounds_fast import bound_items
from sklearn_simlearn.index.backends._dense_codes_fast import (
    INSTRUCTIONS,
    Block,
    Graded,
    Queries,
    unit_queries,
)
from sklearn_simlearn.index.backends._dense_grades import GROUP, grade
from sklearn_simlearn.index.backends._inverted import (
    BLOCKS_PER_SPAN,
    MEMORY,
    InvertedFile,
)
from sklearn_simlearn.index.backends._inverted_fast import Bounds
from sklearn_simlearn.index.backends._split_fast import split_rows

# Length of the tiles in which bounds of the items of a block are stored.
TILE = 1_024

# Beginning of the names of the arrays of the dense part.
DENSE = "dense_"


class HybridItems(InvertedFile):
    """Items with sparse and dense columns, searched exactly.

    The score of an item is the sum of the scores of its two parts. The sums of the
    inverted file start at an upper bound of the score of the dense part, which is
    computed from codes. If the sum of an item reaches the limit, its dense part is
    scored. If the item may still be among the best, its sparse part is scored, too.

    Dense parts are stored as `DenseItems`, each block of which holds the items of one
    or several blocks of the inverted file.

    Parameters
    ----------
    D : canonical csr_array of shape (n_items, n_features)
        Items, float32 or float64.

    is_dense : bool ndarray of shape (n_features,)
        Mask of the dense columns.

    n_threads : int, default=1
        Number of threads that build the file.

    block_length : int, default=None
        Largest number of items per block of the inverted file, at most 65536, the
        default.
    """

    # Number of queries per call of the kernel. Their bounds take 12 MiB. The kernel
    # computes the bounds of 6 queries at a time, so this is a multiple of 6.
    _n_queries = 48

    # Listed items are scored without sums.
    _cost_of_item = 20

    # The scores of dense parts are similar, so few words can be skipped.
    _share = 0.05

    def __init__(self, D, *, is_dense, n_threads=1, block_length=None):
        self._set_columns(is_dense)
        super().__init__(D, n_threads=n_threads, block_length=block_length)

    def _set_columns(self, is_dense):
        self._is_dense = is_dense
        self._n_dense = int(np.count_nonzero(is_dense))
        # Number of each column among the columns of its kind, sparse or dense.
        self._place = np.empty(len(is_dense), dtype=np.int32)
        self._place[is_dense] = np.arange(self._n_dense)
        self._place[~is_dense] = np.arange(len(is_dense) - self._n_dense)

    def _start(self, n_threads, parts):
        self._dense = DenseItems(
            np.empty((0, self._n_dense), dtype=self.dtype),
            block_length=BLOCKS_PER_SPAN * self._block_length,
        )
        super()._start(n_threads, parts)

    @property
    def _n_words(self):
        return len(self._is_dense) - self._n_dense

    def _split(self, X):
        """Return the CSR arrays of the sparse columns, and the dense columns."""
        n_values = len(X.data) - np.count_nonzero(self._is_dense[X.indices])
        indptr = np.zeros(X.shape[0] + 1, dtype=np.int64)
        words = np.empty(n_values, dtype=np.int32)
        values = np.empty(n_values, dtype=self.dtype)
        dense = np.zeros((X.shape[0], self._n_dense), dtype=self.dtype)
        split_rows(
            X.indptr.astype(np.int64, copy=False),
            X.indices.astype(np.int32, copy=False),
            X.data.astype(self.dtype, copy=False),
            self._is_dense.view(np.uint8),
            self._place,
            indptr,
            words,
            values,
            dense,
        )
        return indptr, words, values, dense

    def _convert(self, Q):
        return self._split(Q)

    def _find_dense(self, Q):
        return _DenseParts(self._dense, Q, max(self._lengths))

    def add(self, D, *, n_threads=1):
        """Append items as new rows."""
        *parts, dense = self._split(D)
        words = sparse.csr_array((D.shape[0], self._n_words), dtype=self.dtype)
        words.indptr, words.indices, words.data = parts
        super().add(words, n_threads=n_threads)
        self._dense.add(dense, n_threads=n_threads)

    def _find_merged(self, n_added):
        # Blocks of the inverted file are merged whenever dense ones are.
        first = self._dense._find_merged(n_added)
        row = sum(self._dense._lengths[:first])
        return int(np.searchsorted(np.cumsum(self._lengths), row, side="right"))

    def remove(self, rows):
        """Exclude these rows from all later searches."""
        super().remove(rows)
        self._dense.remove(rows)

    def fork(self):
        """Return an independent copy that shares the blocks."""
        other = super().fork()
        other._dense = self._dense.fork()
        return other

    def take(self, rows):
        """Return some items as rows."""
        parts = [super().take(rows), sparse.csr_array(self._dense.take(rows))]
        joined = sparse.hstack(parts, format="csr", dtype=self.dtype)
        columns = np.concatenate(
            [np.flatnonzero(~self._is_dense), np.flatnonzero(self._is_dense)]
        )
        joined = sparse.csr_array(
            (joined.data, columns[joined.indices], joined.indptr), shape=joined.shape
        )
        joined.sort_indices()
        return joined

    def to_arrays(self):
        """Return the arrays for `from_arrays`, without copies."""
        dense = self._dense.to_arrays().items()
        arrays = super().to_arrays() | {"is_dense": self._is_dense}
        return arrays | {DENSE + name: array for name, array in dense}

    def _restore(self, arrays, verify):
        check_arrays(arrays, {"is_dense": np.bool_})
        verify(["is_dense"])
        check(len(arrays["is_dense"]) == self.n_features, "'is_dense' is out of range")
        self._set_columns(np.array(arrays["is_dense"]))
        self._dense = dense = DenseItems.from_arrays(
            {
                name.removeprefix(DENSE): array
                for name, array in arrays.items()
                if name.startswith(DENSE)
            },
            verify=lambda names: verify([DENSE + name for name in names]),
        )
        check(
            (dense.n_features, dense.dtype) == (self._n_dense, self.dtype)
            and dense.n_items == self.n_items
            and np.isin(np.cumsum(dense._lengths), np.cumsum(self._lengths)).all(),
            "the dense parts do not fit the words",
        )

    def verify(self):
        """Check the contents of all blocks now."""
        super().verify()
        self._dense.verify()


class _DenseParts:
    """Dense items and bounds of their scores, for blocks in ascending order of rows."""

    def __init__(self, dense, Q, max_length):
        self._Q, self._blocks = Q, dense._read()
        self._held, self._arrays, self._graded = slice(0, 0), (), Graded()
        self._is_coded = dense.n_features in CODED
        n_words = -(-dense.n_features // 4) if self._is_coded else 0
        nothing = np.zeros(len(Q) + 1, dtype=np.int64)
        self._queries = Queries(Q, n_words, INSTRUCTIONS, nothing, nothing)
        self._units = None
        if self._is_coded and len(Q) <= N_QUERIES_GRADED:
            self._units = np.empty(Q.shape, dtype=np.float32)
            unit_queries(Q, self._units)
        # Bounds begin at a group, which may begin before the block.
        stride = -(-(max_length + GROUP) // TILE) * TILE
        self._bounds = MEMORY.bounds(len(Q), stride)

    def __call__(self, block, is_listed):
        """Return the dense items of a block, and bounds unless rows are listed."""
        start, stop = block.first_row, block.first_row + block.n_items
        while self._held.stop < stop:
            self._held, self._arrays = next(self._blocks)
            if self._units is not None and not is_listed:
                self._graded = grade(self._units, self._arrays[5:], INSTRUCTIONS)
        first, last = start - self._held.start, stop - self._held.start
        items = self._arrays[0][first:last]
        if is_listed:
            return items, None
        begin = first // GROUP * GROUP
        ranges = self._find_bounds(begin, last)
        return items, Bounds(self._bounds, first - begin, ranges)

    def _find_bounds(self, begin, last):
        """Set the bounds of items of the dense block, and return their ranges."""
        n_queries, stride = len(self._Q), self._bounds.shape[1]
        items, longest, *codes = self._arrays[:5]
        ranges = np.empty((n_queries, 4))
        is_blas = not (self._is_coded and codes[0].size)
        with one_blas_thread() if is_blas else nullcontext():
            bound_items(
                self._Q,
                self._queries,
                Block(0, np.empty(0, dtype=np.uint8), longest[0], *codes),
                self._graded,
                items,
                begin,
                last - begin,
                np.empty((n_queries, TILE), dtype=items.dtype),
                np.empty((n_queries, stride // GROUP), dtype=np.float32),
                self._bounds,
                ranges,
            )
        return ranges
