"""Covariances between and within classes, and the coordinates that diagonalise both.

(two-covariance)  x = m + y_c + e,  y_c ~ N(0, B),  e ~ N(0, W).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike
from scipy import linalg, sparse
from sklearn.utils import gen_batches

from sklearn_simlearn._core.directions import Affine
from sklearn_simlearn._core.relevance import PairRelevance, Relevance

# Values of a block of rows in double precision, so that a block stays in the cache.
BLOCK = 2**18

# Smallest shrinkage of W, so that W can be inverted.
FLOOR = 1e-9

# Variances between classes below this share of the larger of 1 and the largest variance
# are rounding errors.
NEGLIGIBLE = 1e-8


class Moments(NamedTuple):
    """Estimates from samples.

    Attributes
    ----------
    mean : ndarray of shape (n_features,)
        The mean m.

    within : ndarray of shape (n_features, n_features)
        Unbiased estimate of W.

    between : ndarray of shape (n_features, n_features)
        Unbiased estimate of B, which need not be positive semi-definite.

    total : ndarray of shape (n_features, n_features)
        Covariance of the samples.
    """

    mean: np.ndarray
    within: np.ndarray
    between: np.ndarray
    total: np.ndarray


def estimate_moments(
    rows: np.ndarray, relevance: Relevance, precision: DTypeLike = np.float64
) -> Moments:
    """Return the moments of samples.

    The columns of a relevance matrix are classes, and a sample may be in several. A
    sample without a class is a separate class. Pairs need not form classes: the
    differences of relevant samples have the covariance 2 W.

    Products within a block of samples of classes are summed in `precision`, then in
    double precision.
    """
    if isinstance(relevance, PairRelevance):
        return _moments_of_pairs(rows, relevance.pairs)
    return _moments_of_classes(rows, relevance.memberships.tocoo(), precision)


def _moments_of_classes(rows, members, precision):
    """Return sums of squares of the analysis of variance: (two-covariance-moments)."""
    n_rows, n_features = rows.shape
    alone = np.flatnonzero(np.bincount(members.row, minlength=n_rows) == 0)
    of = np.concatenate([members.row, alone])
    label = np.concatenate([members.col, members.shape[1] + np.arange(len(alone))])
    _, label, size = np.unique(label, return_inverse=True, return_counts=True)
    n, n_classes = len(of), len(size)

    means = np.zeros((n_classes, n_features))
    for batch in _blocks(n, n_features):
        of_class = sparse.csr_array(
            (np.ones(len(of[batch])), (label[batch], np.arange(len(of[batch])))),
            shape=(n_classes, len(of[batch])),
        )
        means += of_class @ rows[of[batch]].astype(np.float64)
    mean = means.sum(axis=0) / n
    means /= size[:, None]

    within = np.zeros((n_features, n_features))
    rounded = means.astype(precision)
    for batch in _blocks(n, n_features):
        rest = rows[of[batch]].astype(precision, copy=False)
        rest -= rounded[label[batch]]
        within += rest.T @ rest
    weighted = np.sqrt(size)[:, None] * (means - mean)
    spread = weighted.T @ weighted
    total = (within + spread) / n
    within /= max(n - n_classes, 1)
    # The mean of `spread` is (n - sum(size^2) / n) B + (n_classes - 1) W.
    factor = max(n - np.square(size, dtype=np.float64).sum() / n, 1.0)
    return Moments(mean, within, (spread - (n_classes - 1) * within) / factor, total)


def _moments_of_pairs(rows, pairs):
    """Return the covariance of samples, and half of that of relevant differences."""
    n_rows, n_features = rows.shape
    linked = (pairs > 0).astype(np.float64)
    linked = (linked + linked.T).tocsr()
    degree = linked.sum(axis=1)
    mean = rows.mean(axis=0, dtype=np.float64)
    total, within = np.zeros((2, n_features, n_features))
    for batch in _blocks(n_rows, n_features):
        rest = rows[batch] - mean
        total += rest.T @ rest
        # The rows of this block of the Laplacian of the pairs.
        block = linked[batch]
        columns = np.unique(block.indices)
        neighbours = block[:, columns] @ (rows[columns] - mean)
        within += rest.T @ (degree[batch][:, None] * rest - neighbours)
    within = (within + within.T) / (2 * degree.sum())
    return Moments(mean, within, total / (n_rows - 1) - within, total / n_rows)


def _blocks(n_rows, n_features):
    return gen_batches(n_rows, max(1, BLOCK // n_features))


class Coordinates(NamedTuple):
    """Coordinates A (x - m) in which W is the identity and B is diagonal.

    Attributes
    ----------
    A : ndarray of shape (n_features, n_features)
        One row per coordinate.

    offset : ndarray of shape (n_features,)
        A m.

    beta : ndarray of shape (n_features,)
        Variances between classes, in descending order.
    """

    A: np.ndarray
    offset: np.ndarray
    beta: np.ndarray

    def leading(self, rank: int | None) -> "Coordinates":
        """Return the coordinates with the largest variances between classes."""
        return Coordinates(self.A[:rank], self.offset[:rank], self.beta[:rank])

    def discriminants(self) -> "Coordinates":
        """Return the coordinates that vary between classes, at least one."""
        return self.leading(max(1, int(np.count_nonzero(self.beta))))

    def weigh(self, weights: np.ndarray) -> Affine:
        """Return the map whose cosine weighs the products of coordinates."""
        root = np.sqrt(weights)
        return Affine(root[:, None] * self.A, root * self.offset)


def linear_weights(beta: np.ndarray) -> np.ndarray:
    """Return the weights of products in (two-covariance-ratio)."""
    return beta / (1 + 2 * beta)


class Diagonalizer:
    """Coordinates for several shrinkages of W; each is computed once."""

    def __init__(self, moments: Moments):
        self.moments = moments
        self._known: dict[float, Coordinates] = {}

    def __call__(self, shrinkage: float) -> Coordinates:
        """Return the coordinates for W shrunk towards a multiple of the identity."""
        if shrinkage not in self._known:
            self._known[shrinkage] = self._diagonalize(shrinkage)
        return self._known[shrinkage]

    def _diagonalize(self, shrinkage):
        mean, within, between, total = self.moments
        scale = np.trace(within) / len(within) or np.trace(total) / len(total) or 1.0
        shrunk = (1 - shrinkage) * within
        shrunk[np.diag_indices_from(shrunk)] += max(shrinkage, FLOOR) * scale
        beta, V = linalg.eigh(between, shrunk, driver="gvd")
        A = np.ascontiguousarray(V[:, ::-1].T)
        beta = np.where(beta > NEGLIGIBLE * max(1.0, beta[-1]), beta, 0)[::-1]
        return Coordinates(A, A @ mean, beta)
