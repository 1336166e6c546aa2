"""Encoders of the hand-made similarities."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.encoders import Encoder, storable
from sklearn_simlearn._core.products import take_columns
from sklearn_simlearn._core.rows import (
    canonical_csr,
    inverse,
    power,
    row_dots,
    scale_columns,
    scale_rows,
    side_by_side,
    sum_entries,
    unit_rows,
)
from sklearn_simlearn._core.typing import Matrix

# Largest number of entries of an encoding of counts in unary; they take 2 GiB.
MAX_UNARY = 2**27

# Rounding errors of a centred row, as a multiple of the machine epsilon.
NOISE = 8


@dataclass(frozen=True, eq=False)
class WeightedCosine(Encoder):
    """Cosine of weighted rows, raised to a power."""

    weights: np.ndarray
    exponent: float

    keeps_columns = True

    def items(self, X: Matrix) -> Matrix:
        """Return rows of unit length."""
        X = scale_columns(X, self.weights)
        return unit_rows(X if self.exponent == 1 else power(X, self.exponent))


@dataclass(frozen=True, eq=False)
class CentredCosine(Encoder):
    """Cosine of weighted rows minus a share of their mean; sparse data stays sparse."""

    weights: np.ndarray
    mean: np.ndarray
    share: float

    def name_columns(self, names: Sequence[str]) -> Sequence[str]:
        """Return the features, and the names of the two columns of the mean."""
        return [*names, "(mean)", "(mean)"]

    def queries(self, X: Matrix) -> Matrix:
        """Return rows and two more columns, divided by the norm of the centred row."""
        X, on_mean, scale = self._centre(X)
        extra = np.column_stack([np.ones(len(scale)), self._square - on_mean])
        return scale_rows(side_by_side(X, extra), scale)

    def items(self, X: Matrix) -> Matrix:
        """Return rows and two more columns, divided by the norm of the centred row."""
        X, on_mean, scale = self._centre(X)
        extra = np.column_stack([-on_mean, np.ones(len(scale))])
        return scale_rows(side_by_side(X, extra), scale)

    @property
    def _square(self) -> float:
        """Square of the length of what is subtracted from each row."""
        return self.share**2 * self.mean @ self.mean

    def _centre(self, X: Matrix) -> tuple[Matrix, np.ndarray, np.ndarray]:
        """Return weighted rows, and products and inverse norms of the centred rows.

        The products are those of the rows with what is subtracted. The inverse norm is
        0 if the rest of a row is a rounding error.
        """
        X = scale_columns(X, self.weights)
        on_mean = self.share * (X @ self.mean)
        square = row_dots(X, X) + self._square
        rest = square - 2 * on_mean
        is_noise = rest <= NOISE * np.finfo(X.dtype).eps * square
        return X, on_mean, inverse(np.sqrt(np.where(is_noise, 0, rest)))


@dataclass(frozen=True, eq=False)
class Burstiness(Encoder):
    """Weighted counts of the query times roots of the item's counts."""

    weights: np.ndarray
    normalize: bool

    keeps_columns = True

    def queries(self, X: Matrix) -> Matrix:
        """Return weighted counts."""
        return scale_columns(X, self.weights)

    def items(self, X: Matrix) -> Matrix:
        """Return counts to the power 1/4, scaled to unit length if `normalize`."""
        X = power(X, 0.25)
        return unit_rows(X) if self.normalize else X


@dataclass(frozen=True, eq=False)
class SaturatedCounts(Encoder):
    """Weighted counts of the query times the item's counts, which saturate at 1.

    Attributes
    ----------
    weights : ndarray of shape (n_features,)
        Weights of the words.

    half : float
        Count that is encoded as 1/2 in an item of mean length.

    b : float
        Share of `half` that is proportional to the length of the item.

    mean_length : float
        Mean length of the training samples.
    """

    weights: np.ndarray
    half: float
    b: float
    mean_length: float

    keeps_columns = True

    def queries(self, X: Matrix) -> Matrix:
        """Return weighted counts."""
        return scale_columns(X, self.weights)

    def items(self, X: Matrix) -> Matrix:
        """Return d / (d + h) for every count d; h depends on the length of the row."""
        length = row_sums(X) / self.mean_length
        half = (self.half * (1 - self.b + self.b * length)).astype(X.dtype)
        if not isinstance(X, np.ndarray):
            values = X.data / (X.data + np.repeat(half, np.diff(X.indptr)))
            return sparse.csr_array((values, X.indices, X.indptr), shape=X.shape)
        total = X + half[:, None]
        return np.divide(X, total, out=np.zeros_like(X), where=X > 0)


@storable
@dataclass(frozen=True, eq=False)
class AdaptivePenalty:
    """Penalty of a query, computed from its overlap with the training samples.

    Attributes
    ----------
    factor : float
        Factor of the penalty.

    reached, n_reach : ndarray
        Columns of the unary training counts, and the number of samples in each.
    """

    factor: float
    reached: np.ndarray
    n_reach: np.ndarray

    def __call__(self, unary: sparse.csr_array) -> np.ndarray:
        """Return one penalty per row; factor - 1 for a row without overlap."""
        reached = take_columns(unary, self.reached)
        common = sum_entries(self.n_reach[reached.indices], reached.indptr, np.float64)
        ratio = np.ones(unary.shape[0])
        np.divide(self.n_reach.sum(), common, out=ratio, where=common > 0)
        return self.factor * ratio - 1


@dataclass(frozen=True, eq=False)
class UnaryCounts(Encoder):
    """Encoder of counts in unary, so that sums of minima are inner products.

    Attributes
    ----------
    p : {1, 2}
        Exponent of the differences.

    penalty : float or AdaptivePenalty
        The factor lambda of counts by which the query exceeds the item.

    max_count : int
        Largest count; larger counts are truncated to it.
    """

    p: int
    penalty: float | AdaptivePenalty
    max_count: int

    def name_columns(self, names: Sequence[str]) -> Sequence[str]:
        """Return the feature of each column, and names of the last two columns."""
        levels = np.repeat(names, self.max_count).tolist()
        squares = names if self.p == 2 else ()
        return [*levels, *squares, "(unmatched)", "(unmatched)"]

    def queries(self, X: Matrix) -> sparse.csr_array:
        """Return the columns of s(q, d) - s(q, 0) - s(0, d), one per count j of a word.

        With p = 1, the term is 1 + lambda for each j <= min(q, d). With p = 2, it is
        2 q for each j <= d, plus (1 - lambda) (2 j - 1 - 2 q) for each j <= q.
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
            return side_by_side(unary, extra)
        level = unary.indices % self.max_count + 1
        count = np.repeat(X.data, X.data.astype(np.int64))
        unary.data[:] = (1 - lam) * (2 * level - 1 - 2 * count)
        return side_by_side(unary, 2 * X, extra)

    def items(self, X: Matrix) -> sparse.csr_array:
        """Return counts in unary, and s(0, d)."""
        X = clip_counts(X, self.max_count)
        unary = write_unary(X, self.max_count)
        own = np.asarray(power(X, self.p).sum(axis=1)).ravel()
        extra = np.column_stack([-own, np.ones(X.shape[0])])
        squares = (X,) if self.p == 2 else ()
        return side_by_side(unary, *squares, extra)


def row_sums(X: Matrix) -> np.ndarray:
    """Return the sum of each row, in double precision."""
    return np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()


def clip_counts(X: Matrix, max_count: int) -> sparse.csr_array:
    """Return counts as CSR, truncated to `max_count`."""
    X = canonical_csr(X)
    counts = np.minimum(X.data, max_count)
    return sparse.csr_array((counts, X.indices, X.indptr), shape=X.shape)


def write_unary(X: sparse.csr_array, max_count: int) -> sparse.csr_array:
    """Return counts in unary: column i * max_count + j - 1 is 1 if x_i >= j."""
    n_entries = X.data.sum(dtype=np.float64)
    if n_entries > MAX_UNARY:
        raise ValueError(
            f"The sum of the counts in X is {n_entries:.3g}, which is too large for a "
            f"unary encoding. Set max_count to a number below {max_count}."
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
