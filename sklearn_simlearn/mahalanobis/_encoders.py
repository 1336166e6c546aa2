"""Encoders of the similarity under a sparse matrix M."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.encoders import Encoder, Encodings, Sides
from sklearn_simlearn._core.rows import canonical_csr, inverse, row_dots, scale_rows
from sklearn_simlearn._core.typing import Matrix


@dataclass(frozen=True, eq=False)
class Matches(Encoder):
    """Inner product q' M d of word frequencies."""

    M: sparse.csr_array
    power: float

    keeps_columns = True

    def queries(self, X: Matrix) -> Matrix:
        """Return the frequencies times M."""
        return self.weigh(self.items(X))

    def items(self, X: Matrix) -> Matrix:
        """Return the frequencies."""
        return frequencies(X, self.power)

    def weigh(self, F: Matrix) -> Matrix:
        """Return frequencies times M."""
        Q = F @ self.M.astype(F.dtype, copy=False)
        return canonical_csr(Q) if sparse.issparse(Q) else Q

    def squares(self, X: Matrix) -> np.ndarray:
        """Return x' M x of each row."""
        F = self.items(X)
        return row_dots(F, self.weigh(F))


@dataclass(frozen=True, eq=False)
class MatrixCosine(Encoder):
    """Cosine under M: q' M d / sqrt(q' M q d' M d)."""

    matches: Matches

    keeps_columns = True

    def queries(self, X: Matrix) -> Matrix:
        """Return X M, divided by the length of X under M."""
        F = self.matches.items(X)
        Q = self.matches.weigh(F)
        return scale_rows(Q, inverse(np.sqrt(row_dots(F, Q))))

    def items(self, X: Matrix) -> Matrix:
        """Return X, divided by its length under M."""
        F = self.matches.items(X)
        return scale_rows(F, inverse(np.sqrt(row_dots(F, self.matches.weigh(F)))))


@dataclass(frozen=True, eq=False)
class MixedCosine(Encoder):
    """Cosine under a mixture of two matrices.

    q' M d is linear in M, so the similarities are computed from those of both matrices.
    """

    learned: Matches
    start: Matches
    share: float

    keeps_columns = True

    @cached_property
    def cosine(self) -> MatrixCosine:
        """Cosine under the mixed matrix."""
        M = interpolate(self.learned.M, self.start.M, self.share)
        return MatrixCosine(Matches(M, self.start.power))

    def queries(self, X: Matrix) -> Matrix:
        """Return the queries under the mixed matrix."""
        return self.cosine.queries(X)

    def items(self, X: Matrix) -> Matrix:
        """Return the items under the mixed matrix."""
        return self.cosine.items(X)

    def compare(self, sides: Sides) -> np.ndarray:
        """Return the similarities, computed from those of the two matrices."""
        S = interpolate(
            sides.similarity(self.learned), sides.similarity(self.start), self.share
        )
        q, d = (
            inverse(np.sqrt(self._squares(side)))
            for side in (sides.queries, sides.items)
        )
        return S * q[:, None] * d

    def _squares(self, side: Encodings) -> np.ndarray:
        learned, start = (
            side.value(part, part.squares) for part in (self.learned, self.start)
        )
        return interpolate(learned, start, self.share)


def frequencies(X: Matrix, power: float) -> Matrix:
    """Raise values to a power, then scale rows to a sum of 1; keep rows of zeros."""
    if power != 1:
        X = X**power if isinstance(X, np.ndarray) else X.power(power)
    return scale_rows(X, inverse(np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()))


def interpolate(learned: Any, start: Any, share: float) -> Any:
    """Return the mean of two numbers, arrays or matrices; `share` weighs the start."""
    return (1 - share) * learned + share * start
