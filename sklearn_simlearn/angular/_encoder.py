"""Learned matrices, and the encoder that maps queries by them."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import gen_batches

from sklearn_simlearn._core.encoders import Encoder
from sklearn_simlearn._core.products import inner_products
from sklearn_simlearn._core.rows import row_dots, scale_rows
from sklearn_simlearn._core.sklearn import get_chunk_n_rows
from sklearn_simlearn._core.start import Start
from sklearn_simlearn._core.typing import Matrix


class Matrices(NamedTuple):
    """Learned matrices diag(v) + k I or q v' + k I, one per reference q.

    If `pooled`, there is a single matrix: diag(v) + k I, or k I plus the sum of q v'
    over all references.
    """

    queries: Matrix  # the references q
    directions: Matrix  # v
    identity_weights: np.ndarray  # k
    norms: np.ndarray  # |W|
    angles: np.ndarray  # between W and the identity
    diagonal: bool
    pooled: bool

    def apply(self, Q: Matrix, n_neighbors: int) -> Matrix:
        """Return the mean of W'q / |W| over the nearest references: (angular-mean)."""
        n_queries, n_references = Q.shape[0], self.queries.shape[0]
        cosines = inner_products(Q, self.queries)
        if self.pooled:
            on_identity = np.repeat(self.identity_weights / self.norms, n_queries)
            if self.diagonal:
                learned = multiply(Q, to_dense(self.directions) / self.norms[0])
            else:
                learned = (cosines / self.norms[0]) @ self.directions
        else:
            k = min(n_neighbors, n_references)
            nearest = largest(cosines, k)
            share = 1 / (k * self.norms[nearest])
            on_identity = np.sum(share * self.identity_weights[nearest], axis=1)
            if not self.diagonal:
                share = share * np.take_along_axis(cosines, nearest, axis=1)
            share = share.astype(Q.dtype).ravel()
            learned = sparse.csr_array(
                (share, nearest.ravel(), np.arange(n_queries + 1) * k),
                shape=(n_queries, n_references),
            )
            learned = learned @ self.directions
            if self.diagonal:
                learned = multiply(Q, like(learned, Q))
        surrogates = like(learned, Q) + scale_rows(Q, on_identity)
        return surrogates.astype(Q.dtype, copy=False)

    def mean_length(self) -> float:
        """Mean length of W'q / |W| over the references."""
        if self.pooled:
            own = self.apply(self.queries, 1)
        else:
            own = self.directions
            if self.diagonal:
                own = multiply(self.queries, own)
            own = own + scale_rows(self.queries, self.identity_weights)
            own = scale_rows(own, 1 / self.norms)
        return float(np.sqrt(row_dots(own, own)).mean())


@dataclass(frozen=True, eq=False)
class QueryMatrices(Encoder):
    """Queries mapped by the matrices of their nearest references.

    Parameters
    ----------
    start : Start
        Scales queries and items to unit length.

    matrices : Matrices
        One matrix per reference, or one for all.

    length : float
        Mean length of the surrogates of the references. All surrogates are divided by
        it.

    n_neighbors : int
        Number of references whose surrogates are averaged.
    """

    start: Start
    matrices: Matrices
    length: float
    n_neighbors: int

    keeps_columns = True

    def items(self, X: Matrix) -> Matrix:
        """Return the rows of the start."""
        return self.start.items(X)

    def queries(self, X: Matrix) -> Matrix:
        """Return mean surrogates, by blocks of queries: (angular-mean)."""
        Q = self.start.queries(X)
        width = self.matrices.queries.shape[0]
        width += 0 if sparse.issparse(Q) else Q.shape[1]
        n_rows = get_chunk_n_rows(32 * width, max_n_rows=Q.shape[0])
        parts = [
            self.matrices.apply(Q[batch], self.n_neighbors)
            for batch in gen_batches(Q.shape[0], n_rows)
        ]
        if sparse.issparse(Q):
            surrogates = sparse.vstack(parts, format="csr")
        else:
            surrogates = np.concatenate(parts)
        factor = 1 / self.length if self.length else 0
        return scale_rows(surrogates, np.full(Q.shape[0], factor))


def multiply(X, Y):
    """Return the elementwise product, sparse if X is sparse."""
    return sparse.csr_array(X.multiply(Y)) if sparse.issparse(X) else X * Y


def like(rows, X):
    """Return the rows in a container of the type of X."""
    return sparse.csr_array(rows) if sparse.issparse(X) else to_dense(rows)


def largest(S: np.ndarray, k: int) -> np.ndarray:
    """Return the columns of the k largest cosines of each row, in ascending order.

    Among equal cosines, the first are taken. Cosines are rounded first, so that dense
    and sparse data, and all BLAS libraries, break ties in the same way.
    """
    S = np.round(S, 5 if S.dtype == np.float32 else 12)
    threshold = np.partition(S, S.shape[1] - k, axis=1)[:, [S.shape[1] - k]]
    keep = threshold <= S
    for row in np.flatnonzero(np.count_nonzero(keep, axis=1) > k):
        tied = np.flatnonzero(S[row] == threshold[row])
        n_spare = np.count_nonzero(keep[row]) - k
        keep[row, tied[len(tied) - n_spare :]] = False
    return np.nonzero(keep)[1].reshape(len(S), k)


def to_dense(X):
    """Return an array."""
    return X.toarray() if sparse.issparse(X) else X
