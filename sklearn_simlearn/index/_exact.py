"""The exact backend that fits the kind of data."""

from scipy import sparse

from sklearn_simlearn.index._dense import DenseItems
from sklearn_simlearn.index._inverted import InvertedFile


def store(D, n_threads=1):
    """Items for exact search: an inverted file if they are sparse, arrays otherwise."""
    backend = InvertedFile if sparse.issparse(D) else DenseItems
    return backend(D, n_threads=n_threads)
