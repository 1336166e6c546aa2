"""The exact backend that fits the kind of data."""

from collections.abc import Callable

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import safe_sparse_dot

from sklearn_simlearn._rows import canonical_csr
from sklearn_simlearn._typing import Matrix
from sklearn_simlearn.index._dense import DenseItems
from sklearn_simlearn.index._inverted import InvertedFile


def store(D, n_threads=1):
    """Items for exact search: an inverted file if they are sparse, arrays otherwise."""
    backend = InvertedFile if sparse.issparse(D) else DenseItems
    return backend(D, n_threads=n_threads)


def products_with(D: Matrix, n_threads: int = 1) -> Callable[[Matrix], np.ndarray]:
    """A function from queries to their inner products with the rows of D.

    The inverted file of sparse items is made once, for the first queries it serves.
    """
    D = canonical_csr(D) if sparse.issparse(D) else np.asarray(D)
    items = None

    def products(Q):
        nonlocal items
        if not sparse.issparse(Q):
            return safe_sparse_dot(np.asarray(Q), D.T, dense_output=True)
        if not sparse.issparse(D):
            return safe_sparse_dot(Q, D.T, dense_output=True)
        if Q.dtype != D.dtype:
            return (Q @ D.T).toarray()
        if items is None:
            items = store(D, n_threads=n_threads)
        return items.scores(canonical_csr(Q), n_threads=n_threads)

    return products
