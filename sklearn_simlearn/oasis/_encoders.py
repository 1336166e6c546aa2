"""Encoders of the plain form of OASIS."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sklearn_simlearn._core.encoders import Encoder
from sklearn_simlearn._core.rows import row_dots, side_by_side
from sklearn_simlearn._core.typing import Matrix


@dataclass(frozen=True, eq=False)
class Bilinear(Encoder):
    """Bilinear form q' W x. Items are stored unchanged."""

    W: np.ndarray

    keeps_columns = True

    def queries(self, X: Matrix) -> Matrix:
        """Return X W."""
        return X @ self.W

    def items(self, X: Matrix) -> Matrix:
        """Return the rows themselves."""
        return X


@dataclass(frozen=True, eq=False)
class Factors(Encoder):
    """Bilinear form q' L' R x, with R = L if only one factor is given."""

    left: np.ndarray
    right: np.ndarray | None = None

    def queries(self, X: Matrix) -> Matrix:
        """Return X L'."""
        return X @ self.left.T

    def items(self, X: Matrix) -> Matrix:
        """Return X R'."""
        return X @ (self.left if self.right is None else self.right).T


@dataclass(frozen=True, eq=False)
class Dissimilarity(Encoder):
    """Negative squared distance under W, from an encoder of q' W x.

    -(q - x)' W (q - x) = 2 q' W x - x' W x - q' W q for a symmetric W.
    """

    bilinear: Encoder

    def name_columns(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names of the bilinear encoder, and names of two more columns."""
        names = self.bilinear.name_columns(names)
        return [*names, "(lengths)", "(lengths)"] if len(names) else ()

    def queries(self, X: Matrix) -> Matrix:
        """Return the columns of 2 q' W x, 1 and -q' W q."""
        left, own = self.bilinear.queries(X), self._own(X)
        return side_by_side(2 * left, np.column_stack([np.ones_like(own), -own]))

    def items(self, X: Matrix) -> Matrix:
        """Return the columns of x, -x' W x and 1."""
        right, own = self.bilinear.items(X), self._own(X)
        return side_by_side(right, np.column_stack([-own, np.ones_like(own)]))

    def _own(self, X):
        return row_dots(self.bilinear.queries(X), self.bilinear.items(X))
