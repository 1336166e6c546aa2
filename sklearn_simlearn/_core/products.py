"""Inner products of encoded queries and items."""

from collections.abc import Callable

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import safe_sparse_dot

from sklearn_simlearn._core._products_fast import score_queries
from sklearn_simlearn._core.rows import canonical_csr
from sklearn_simlearn._core.typing import Matrix

# Number of items whose scores stay in the cache, and of queries per call of a kernel,
# which cannot be interrupted.
N_ITEMS = 65_536
N_QUERIES = 256

# Number of columns per entry of items beyond which empty columns are removed. Counts in
# unary may have that many. Sorting an entry takes as long as storing a hundred columns.
WIDE = 100


class Postings:
    """Sparse items by their words, for inner products with all of them.

    Parameters
    ----------
    D : canonical csr_array of shape (n_items, n_features)
        Items. They are copied.
    """

    def __init__(self, D: sparse.csr_array):
        self.shape, self.dtype = D.shape, D.dtype
        self._columns = None
        if D.shape[1] > WIDE * D.nnz:
            self._columns = np.unique(D.indices)
            D = take_columns(D, self._columns)
        self._blocks = []
        for first in range(0, D.shape[0], N_ITEMS):
            block = D[first : first + N_ITEMS].tocsc()
            start = block.indptr.astype(np.int64, copy=False)
            places = block.indices.astype(np.int32, copy=False)
            self._blocks.append((start, places, block.data))

    def scores(self, Q: sparse.csr_array, n_threads: int = 1) -> np.ndarray:
        """Return Q @ D.T as a dense array, exactly equal to SciPy's product."""
        if self._columns is not None:
            Q = take_columns(Q, self._columns)
        indptr = Q.indptr.astype(np.int64, copy=False)
        words = Q.indices.astype(np.int32, copy=False)
        out = np.zeros((Q.shape[0], self.shape[0]), dtype=self.dtype)
        for i, block in enumerate(self._blocks):
            rows = slice(i * N_ITEMS, (i + 1) * N_ITEMS)
            for first in range(0, Q.shape[0], N_QUERIES):
                score_queries(
                    indptr[first : first + N_QUERIES + 1],
                    words,
                    Q.data,
                    *block,
                    n_threads,
                    out[first : first + N_QUERIES, rows],
                )
        return out


def take_columns(X: sparse.csr_array, columns: np.ndarray) -> sparse.csr_array:
    """Return some columns of X; the cost does not depend on the width of X.

    Parameters
    ----------
    X : csr_array

    columns : ndarray
        Columns in ascending order.
    """
    place = np.searchsorted(columns, X.indices)
    found = np.append(columns, -1)[place] == X.indices
    indptr = np.append(0, np.cumsum(found))[X.indptr]
    parts = X.data[found], place[found], indptr
    return sparse.csr_array(parts, shape=(X.shape[0], len(columns)))


def products_with(D: Matrix, n_threads: int = 1) -> Callable[[Matrix], np.ndarray]:
    """Return a function from queries to their inner products with the rows of D.

    The postings of sparse items are built at the first call with sparse queries.
    """
    D = canonical_csr(D) if sparse.issparse(D) else np.asarray(D)
    postings: dict[np.dtype, Postings] = {}

    def products(Q: Matrix) -> np.ndarray:
        if not (sparse.issparse(Q) and sparse.issparse(D)):
            Q = Q if sparse.issparse(Q) else np.asarray(Q)
            return safe_sparse_dot(Q, D.T, dense_output=True)
        # Integers and booleans become floats.
        dtype = np.result_type(Q.dtype, D.dtype, np.float32)
        if dtype not in postings:
            postings[dtype] = Postings(D.astype(dtype, copy=False))
        Q = canonical_csr(Q.astype(dtype, copy=False))
        return postings[dtype].scores(Q, n_threads=n_threads)

    return products


def inner_products(Q: Matrix, D: Matrix, n_threads: int = 1) -> np.ndarray:
    """Return Q D' as a dense array."""
    return products_with(D, n_threads)(Q)
