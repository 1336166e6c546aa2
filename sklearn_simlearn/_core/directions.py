"""Affine maps of rows, and the projection of wide data on its leading directions."""

from dataclasses import dataclass

import numpy as np
from scipy import linalg
from sklearn.utils.extmath import safe_sparse_dot

from sklearn_simlearn._core.encoders import Encoder
from sklearn_simlearn._core.products import inner_products
from sklearn_simlearn._core.rows import unit_rows
from sklearn_simlearn._core.typing import Matrix

# Number of coordinates to learn in. Data with more features is projected.
MAX_DIRECTIONS = 500

# Largest number of rows from which the leading directions are computed.
MAX_ROWS = 2000

# Largest number of entries of the matrix of directions, for large vocabularies.
MAX_ENTRIES = 2**26


@dataclass(frozen=True, eq=False)
class Affine(Encoder):
    """Rows x A' - b, scaled to unit length if `unit` is set."""

    A: np.ndarray
    b: np.ndarray
    unit: bool = True

    def items(self, X: Matrix) -> np.ndarray:
        """Return the mapped rows."""
        rows = (X @ self.A.T - self.b).astype(X.dtype, copy=False)
        return unit_rows(rows) if self.unit else rows

    def after(self, other: "Affine | None") -> "Affine":
        """Return this map of the unscaled output of another map."""
        if other is None:
            return self
        return Affine(self.A @ other.A, self.A @ other.b + self.b, self.unit)

    def astype(self, dtype) -> "Affine":
        """Return the map in another precision."""
        A, b = (array.astype(dtype, copy=False) for array in (self.A, self.b))
        return Affine(A, b, self.unit)


def principal_directions(X: Matrix, rng: np.random.Generator) -> Affine | None:
    """Return the map to the leading directions; None if X has few features."""
    n_samples, n_features = X.shape
    if n_features <= MAX_DIRECTIONS:
        return None
    if n_samples > MAX_ROWS:
        X = X[np.sort(rng.choice(n_samples, MAX_ROWS, replace=False))]
    n = X.shape[0]
    rank = min(n, MAX_DIRECTIONS, max(1, MAX_ENTRIES // n_features))
    # The smaller of two problems is solved: with X X' = U L U', the directions are the
    # rows of L^(-1/2) U' X, and with X' X = V L V', those of V'.
    is_tall = n_features < n
    if is_tall:
        gram = safe_sparse_dot(X.T, X, dense_output=True)
    else:
        gram = inner_products(X, X)
    last = len(gram) - 1
    values, vectors = linalg.eigh(gram, subset_by_index=[last + 1 - rank, last])
    if values[-1] <= 0:  # all rows are zero, and have no direction
        return Affine(np.eye(1, n_features, dtype=X.dtype), np.zeros(1, X.dtype), False)
    keep = values > values[-1] * n * np.finfo(X.dtype).eps
    leading = vectors[:, keep][:, ::-1]
    if not is_tall:
        leading = X.T @ (leading / np.sqrt(values[keep][::-1]))
    A = np.ascontiguousarray(leading.T)
    return Affine(A, np.zeros(len(A), dtype=A.dtype), unit=False)


def project(X: Matrix, directions: Affine | None) -> np.ndarray:
    """Return dense rows in the coordinates to learn in."""
    if directions is not None:
        return directions.items(X)
    return X if isinstance(X, np.ndarray) else X.toarray()
