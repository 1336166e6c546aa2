"""The similarity that learners start from."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from sklearn_simlearn._core.encoders import Encoder
from sklearn_simlearn._core.rows import (
    are_counts,
    inverse_document_frequency,
    power,
    scale_columns,
    unit_rows,
)
from sklearn_simlearn._core.typing import Matrix

# Exponent of tf-idf: between the plain cosine and that of tf-idf, and at least as good
# as the better of the two on all sets of counts in ``benchmarks/bench_defaults.py``.
POWER = 0.75


@dataclass(frozen=True, eq=False)
class Start(Encoder):
    """The cosine, or for counts the cosine of tf-idf to the power 3/4.

    Attributes
    ----------
    idf : ndarray of shape (n_features,) or None
        Weights of the words; None if the data does not hold counts.
    """

    idf: np.ndarray | None

    keeps_columns = True

    @classmethod
    def fit(cls, X: Matrix) -> Self:
        """Return the start for some training samples."""
        idf = inverse_document_frequency(X) if are_counts(X) else None
        return cls(idf if idf is not None and idf.any() else None)

    def items(self, X: Matrix) -> Matrix:
        """Return rows of unit length."""
        if self.idf is not None:
            X = power(scale_columns(X, self.idf), POWER)
        return unit_rows(X)
