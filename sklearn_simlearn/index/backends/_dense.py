"""Exact search of dense items."""

from contextlib import nullcontext

import numpy as np

from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn.index.backends._blocked_items import N_QUERIES, BlockedItems
from sklearn_simlearn.index.backends._dense_fast import (
    Block,
    Queries,
    encode,
    find_best,
    finish_search,
    make_scratch,
)

# With fewer items, one thread is done before another one has started.
PRODUCTS_PER_THREAD = 4_000_000

# Range of the number of features for which 8-bit codes are stored. With fewer features,
# codes save no time. With more, a sum of codes may overflow.
CODED = range(32, 2**17)

# Largest number of queries for which codes are used. BLAS is faster for more queries.
N_QUERIES_CODED = 16


class DenseItems(BlockedItems):
    """Dense items, searched exactly.

    Batches of many queries are multiplied with all items. For few queries, 8-bit codes
    of the items determine which items to score.

    Parameters
    ----------
    D : C-contiguous ndarray of shape (n_items, n_features)
        Items, float32 or float64. They are not copied and must not be changed
        afterwards.

    n_threads : int, default=1
        Number of threads that compute the codes.

    block_length : int, default=262144
        Largest number of items per block, at most 262144.
    """

    # With shorter blocks, calls of the kernel would take a tenth of the time of a
    # query.
    _max_length = 262_144

    _layout = {
        "items": None,
        "longest": np.float64,
        "codes": np.int8,
        "steps": None,
        "errors": None,
    }

    def _find_best(self, Q, alive, excluded, n_threads, scores, rows):
        n_products = self.n_items * self.n_features * min(len(Q), N_QUERIES)
        n_threads = min(n_threads, 1 + n_products // PRODUCTS_PER_THREAD)
        # Bound of the rounding error of sums in any order of the terms.
        relative = 4 * (self.n_features + 2) * np.finfo(self.dtype).eps
        length = np.sqrt(np.einsum("ij,ij->i", Q, Q, dtype=np.float64))
        is_coded = self.n_features in CODED and len(Q) <= N_QUERIES_CODED
        codes, steps, errors = _encode(Q, np.int16, is_coded)
        steps, reach = steps.astype(np.float64, copy=False), length + errors
        # The kernel starts its own threads.
        with nullcontext() if is_coded else one_blas_thread():
            for first in range(0, Q.shape[0], N_QUERIES):
                chunk = slice(first, first + N_QUERIES)
                scratch = make_scratch(
                    n_threads, len(Q[chunk]), scores.shape[1], self.dtype
                )
                queries = Queries(
                    codes[chunk],
                    steps[chunk],
                    reach[chunk],
                    excluded[0][first : first + N_QUERIES + 1],
                    excluded[1],
                )
                for block_rows, (items, longest, item_codes, *coded) in self._read():
                    margin = longest * (relative * length[chunk] + errors[chunk])
                    find_best(
                        Q[chunk],
                        queries,
                        Block(block_rows.start, item_codes, alive[block_rows], margin),
                        items,
                        *coded,
                        n_threads,
                        *scratch,
                    )
                finish_search(*scratch[2:], scores[chunk], rows[chunk])

    def _convert(self, Q):
        return np.ascontiguousarray(Q, dtype=self.dtype)

    def _cut(self, D):
        for first in range(0, D.shape[0], self._block_length):
            yield D[first : first + self._block_length]

    def _make_block(self, D):
        items = np.ascontiguousarray(D, dtype=self.dtype)
        squares = np.einsum("ij,ij->i", items, items, dtype=np.float64)
        longest = np.sqrt(squares.max(initial=0, keepdims=True))
        return items, longest, *_encode(items, np.int8, self.n_features in CODED)

    def _take(self, block, kept):
        return block[0][kept]

    @staticmethod
    def _stack(parts):
        return np.concatenate(parts)

    def _find_shapes(self, block, length):
        n_codes = self.n_features if self.n_features in CODED else 0
        rows = [(length, self.n_features), (1,), (length, n_codes)]
        return [*rows, (length,), (length,)]

    def _check_contents(self, block, length):
        """Do nothing: the kernels require only the shapes."""


def _encode(X, dtype, is_coded):
    """Return codes of rows, their steps and their errors; see (dense-bound)."""
    n_rows, n_features = X.shape
    codes = np.empty((n_rows, n_features if is_coded else 0), dtype=dtype)
    steps, errors = np.zeros((2, n_rows), dtype=X.dtype)
    if is_coded:
        # Codes of items are at least -128, so sums of products of codes fit into int32.
        largest = (2**31 - 1) // (128 * n_features)
        encode(X, min(largest, np.iinfo(dtype).max), codes, steps, errors)
    return codes, steps, errors
