"""Exact search of items with a sparse and a dense part, in one pass."""

from contextlib import nullcontext
from typing import Any

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
from sklearn_simlearn.index.backends._dense_grades import check_grades, grade
from sklearn_simlearn.index.backends._inverted import InvertedFile
from sklearn_simlearn.index.backends._split_fast import split_rows

# Bounds of the items of a block are stored in tiles of this length.
TILE = 1024


class HybridItems(InvertedFile):
    """Items with sparse and dense columns, searched exactly.

    The score is the sum of the scores of both parts. The sums of the inverted file
    start at the bounds by the codes of the dense part. An item whose sum reaches the
    limit is scored by its dense part, and then by its sparse part if it may still be
    among the best.

    Parameters
    ----------
    D : canonical csr_array of shape (n_items, n_features)
        Items, float32 or float64.

    is_dense : bool ndarray of shape (n_features,)
        Mask of the dense columns.

    n_threads : int, default=1
        Number of threads that build the file.

    block_length : int, default=65536
        Largest number of items per block, at most 65536.
    """

    _layout: dict[str, Any] = InvertedFile._layout | {
        f"dense_{name}": dtype for name, dtype in DenseItems._layout.items()
    }

    # The bounds of this number of queries take 4 MiB.
    _n_queries = 16

    # The scores of dense parts lie close together, so few words can be skipped.
    _share = 0.05

    def __init__(self, D, *, is_dense, n_threads=1, block_length=None):
        self._set_columns(is_dense)
        super().__init__(D, n_threads=n_threads, block_length=block_length)

    def _set_columns(self, is_dense):
        self._is_dense = is_dense
        self._n_dense = int(np.count_nonzero(is_dense))
        # Number of each column among those of its kind.
        self._place = np.empty(len(is_dense), dtype=np.int32)
        self._place[is_dense] = np.arange(self._n_dense)
        self._place[~is_dense] = np.arange(len(is_dense) - self._n_dense)

    @property
    def _n_words(self):
        return len(self._is_dense) - self._n_dense

    @property
    def _dense(self):
        """Return dense items without blocks, which encode the dense parts."""
        items = DenseItems.__new__(DenseItems)
        items.n_features, items.dtype = self._n_dense, self.dtype
        return items

    def _split(self, X):
        """Return the arrays of the sparse columns of CSR rows, and the dense ones."""
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

    def _bound_dense(self, Q):
        n_queries = len(Q)
        is_coded = self._n_dense in CODED
        n_words = -(-self._n_dense // 4) if is_coded else 0
        nothing = np.zeros(n_queries + 1, dtype=np.int64)
        queries = Queries(Q, n_words, INSTRUCTIONS, nothing, nothing)
        stride = -(-max(self._lengths) // TILE) * TILE
        bounds = np.empty((n_queries, stride), dtype=np.float32)
        tops = np.empty((n_queries, stride // 64), dtype=np.float32)
        products = np.empty((n_queries, TILE), dtype=self.dtype)

        is_graded = is_coded and n_queries <= N_QUERIES_GRADED
        units = np.empty(Q.shape, dtype=np.float32)
        if is_graded:
            unit_queries(Q, units)

        def bound(arrays, is_listed):
            items, longest, *codes = arrays[:5]
            if is_listed or len(items) == 0:
                return (items,)
            graded = grade(units, arrays[5:], INSTRUCTIONS) if is_graded else Graded()
            ranges = np.empty((n_queries, 4))
            block = Block(0, np.empty(0, dtype=np.uint8), longest[0], *codes)
            with nullcontext() if is_coded and codes[0].size else one_blas_thread():
                bound_items(
                    Q, queries, block, graded, items, products, tops, bounds, ranges
                )
            return items, bounds, ranges

        return bound

    def add(self, D, *, n_threads=1):
        """Append items as new rows."""
        # Blocks are shorter than those of dense items. The best items of all blocks
        # determine the limit of a search, and so which graded codes save time.
        self._n_searched = self.n_items + D.shape[0]
        super().add(D, n_threads=n_threads)

    def _make_block(self, D):
        *parts, dense = self._split(D)
        words = sparse.csr_array((D.shape[0], self._n_words), dtype=self.dtype)
        words.indptr, words.indices, words.data = parts
        coded = self._dense._make_block(dense, self._n_searched)
        return *super()._make_block(words), *coded

    def _take(self, block, kept):
        words = super()._take(block, kept)
        dense = sparse.csr_array(block[10][kept])
        joined = sparse.hstack([words, dense], format="csr", dtype=self.dtype)
        columns = np.concatenate(
            [np.flatnonzero(~self._is_dense), np.flatnonzero(self._is_dense)]
        )
        joined = sparse.csr_array(
            (joined.data, columns[joined.indices], joined.indptr), shape=joined.shape
        )
        joined.sort_indices()
        return joined

    def _find_shapes(self, block, length):
        dense = self._dense._find_shapes(block[10:], length)
        return [*super()._find_shapes(block, length), *dense]

    def _check_contents(self, block, length):
        super()._check_contents(block, length)
        check_grades(block[15:], self._n_dense, length)

    def to_arrays(self):
        """Return the arrays for `from_arrays`, without copies."""
        return super().to_arrays() | {"is_dense": self._is_dense}

    def _restore(self, arrays, verify):
        check_arrays(arrays, {"is_dense": np.bool_})
        verify(["is_dense"])
        check(len(arrays["is_dense"]) == self.n_features, "'is_dense' is out of range")
        self._set_columns(np.array(arrays["is_dense"]))
