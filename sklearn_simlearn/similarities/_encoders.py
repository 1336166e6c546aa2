"""Encoders of the hand-made similarities."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import row_norms

from sklearn_simlearn._core.encoders import Encoder
from sklearn_simlearn._core.rows import (
    append_columns,
    canonical_csr,
    inverse,
    power,
    scale_columns,
    unit_rows,
)
from sklearn_simlearn._core.storable import storable
from sklearn_simlearn._core.typing import Matrix

# Most entries that counts written in unary may have: 2 GiB of them.
MAX_UNARY = 2**27


@dataclass(frozen=True, eq=False)
class WeightedCosine(Encoder):
    """The cosine of weighted rows to a power."""

    weights: np.ndarray
    exponent: float

    def items(self, X: Matrix) -> Matrix:
        """Return rows of unit length."""
        X = scale_columns(X, self.weights)
        return unit_rows(X if self.exponent == 1 else power(X, self.exponent))


@dataclass(frozen=True, eq=False)
class CentredCosine(Encoder):
    """The cosine of weighted rows less a share of their mean; sparse stays sparse."""

    weights: np.ndarray
    mean: np.ndarray
    share: float

    def queries(self, X: Matrix) -> Matrix:
        """Return the rows and two more columns, over the norm of the centred row."""
        X, on_mean, scale = self._centre(X)
        rest = self.share * (self.share * self.mean @ self.mean - on_mean)
        extra = np.column_stack([np.ones(len(scale)), rest])
        return append_columns(X, extra, scale)

    def items(self, X: Matrix) -> Matrix:
        """Return the rows and two more columns, over the norm of the centred row."""
        X, on_mean, scale = self._centre(X)
        extra = np.column_stack([-self.share * on_mean, np.ones(len(scale))])
        return append_columns(X, extra, scale)

    def _centre(self, X):
        """Return weighted rows, their products with the mean, one over their norm."""
        X = scale_columns(X, self.weights)
        on_mean = X @ self.mean
        norm2 = (
            row_norms(X, squared=True)
            - 2 * self.share * on_mean
            + self.share**2 * self.mean @ self.mean
        )
        return X, on_mean, inverse(np.sqrt(np.maximum(norm2, 0)))


@dataclass(frozen=True, eq=False)
class Burstiness(Encoder):
    """Weighted counts of the query against roots of the item's counts."""

    weights: np.ndarray
    normalize: bool

    def queries(self, X: Matrix) -> Matrix:
        """Return weighted counts."""
        return scale_columns(X, self.weights)

    def items(self, X: Matrix) -> Matrix:
        """Return counts to the power 1/4, of unit length if asked."""
        X = power(X, 0.25)
        return unit_rows(X) if self.normalize else X


@dataclass(frozen=True, eq=False)
class SaturatedCounts(Encoder):
    """Weighted counts of the query against the item's counts, which level off at 1.

    Attributes
    ----------
    weights : ndarray of shape (n_features,)
        Weights of the words.

    half : float
        Count that gives 1/2 in an item of mean length.

    b : float
        Share of `half` that is proportional to the length of the item.

    mean_length : float
        Mean length.
    """

    weights: np.ndarray
    half: float
    b: float
    mean_length: float

    def queries(self, X: Matrix) -> Matrix:
        """Return weighted counts."""
        return scale_columns(X, self.weights)

    def items(self, X: Matrix) -> Matrix:
        """Return d / (d + half of a row of this length) for every count d."""
        length = row_sums(X) / self.mean_length
        half = (self.half * (1 - self.b + self.b * length)).astype(X.dtype)
        if sparse.issparse(X):
            values = X.data / (X.data + np.repeat(half, np.diff(X.indptr)))
            return sparse.csr_array((values, X.indices, X.indptr), shape=X.shape)
        total = X + half[:, None]
        return np.divide(X, total, out=np.zeros_like(X), where=X > 0)


@storable
@dataclass(frozen=True, eq=False)
class AdaptivePenalty:
    """The penalty of each query, from what it shares with the training samples.

    Attributes
    ----------
    alpha : float
        Factor of the penalty.

    reached, n_reach : ndarray
        Columns of the unary training counts, and how many samples have each.
    """

    alpha: float
    reached: np.ndarray
    n_reach: np.ndarray

    def __call__(self, unary: sparse.csr_array) -> np.ndarray:
        """Return one penalty per row; alpha - 1 for a row that shares nothing."""
        place = np.searchsorted(self.reached, unary.indices)
        place = np.minimum(place, len(self.reached) - 1)
        n_reach = np.zeros(len(place))
        if len(self.reached):
            is_reached = self.reached[place] == unary.indices
            n_reach = np.where(is_reached, self.n_reach[place], 0)
        row = np.repeat(np.arange(unary.shape[0]), np.diff(unary.indptr))
        common = np.bincount(row, n_reach, minlength=unary.shape[0])
        ratio = np.ones(unary.shape[0])
        np.divide(self.n_reach.sum(), common, out=ratio, where=common > 0)
        return self.alpha * ratio - 1


@dataclass(frozen=True, eq=False)
class UnaryCounts(Encoder):
    """Counts in unary, so that sums of minima are inner products.

    Attributes
    ----------
    p : {1, 2}
        Exponent of the differences.

    penalty : float or AdaptivePenalty
        The factor lambda of what only the query has.

    max_count : int
        Larger counts are read as this one.
    """

    p: int
    penalty: float | AdaptivePenalty
    max_count: int

    def queries(self, X: Matrix) -> sparse.csr_array:
        """Return what (q, d) gains over (q, 0) and (0, d) together, level by level.

        With p = 1 it is 1 + lambda for each j <= min(q, d). With p = 2 it is 2 q for
        each j <= d, and (1 - lambda) (2 j - 1 - 2 q) more for each j <= q.
        """
        X = clip_counts(X, self.max_count)
        unary = write_unary(X, self.max_count)
        if isinstance(self.penalty, AdaptivePenalty):
            lam = self.penalty(unary)
        else:
            lam = np.full(X.shape[0], self.penalty)
        own = np.asarray(power(X, self.p).sum(axis=1)).ravel()
        extra = np.column_stack([np.ones(len(lam)), -lam * own])

        lam = np.repeat(lam, np.diff(unary.indptr))
        if self.p == 1:
            unary.data[:] = 1 + lam
            return append_columns(unary, extra)
        level = unary.indices % self.max_count + 1
        count = np.repeat(X.data, X.data.astype(np.int64))
        unary.data[:] = (1 - lam) * (2 * level - 1 - 2 * count)
        return append_columns(sparse.hstack([unary, 2 * X], format="csr"), extra)

    def items(self, X: Matrix) -> sparse.csr_array:
        """Return counts in unary, and what the item costs against an empty query."""
        X = clip_counts(X, self.max_count)
        unary = write_unary(X, self.max_count)
        own = np.asarray(power(X, self.p).sum(axis=1)).ravel()
        extra = np.column_stack([-own, np.ones(X.shape[0])])
        if self.p == 2:
            unary = sparse.hstack([unary, X], format="csr")
        return append_columns(unary, extra)


def row_sums(X: Matrix) -> np.ndarray:
    """Return the sum of each row, in double precision."""
    return np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()


def clip_counts(X: Matrix, max_count: int) -> sparse.csr_array:
    """Return counts as CSR, larger ones read as `max_count`."""
    X = canonical_csr(X)
    counts = np.minimum(X.data, max_count)
    return sparse.csr_array((counts, X.indices, X.indptr), shape=X.shape)


def write_unary(X: sparse.csr_array, max_count: int) -> sparse.csr_array:
    """Return counts in unary: column i * max_count + j - 1 is 1 where x_i >= j."""
    n_entries = X.data.sum(dtype=np.float64)
    if n_entries > MAX_UNARY:
        raise ValueError(
            f"The counts in X add up to {n_entries:.3g}, too many to be written in "
            f"unary: set max_count, which is {max_count} now, to a lower number."
        )
    counts = X.data.astype(np.int64)
    start = np.cumsum(counts) - counts
    level = np.arange(counts.sum()) - np.repeat(start, counts)
    column = np.repeat(X.indices.astype(np.int64), counts) * max_count + level
    indptr = np.concatenate([[0], np.cumsum(counts)])[X.indptr]
    return canonical_csr(
        sparse.csr_array(
            (np.ones(len(column), dtype=X.dtype), column, indptr),
            shape=(X.shape[0], X.shape[1] * max_count),
        )
    )
