"""The similarity that learners start from."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from sklearn_simlearn._core.encoders import Encoder
from sklearn_simlearn._core.rows import (
    are_counts,
    document_frequency,
    inverse_document_frequency,
    power,
    scale_columns,
    unit_rows,
)
from sklearn_simlearn._core.typing import Matrix

# Exponent of tf-idf: between the plain cosine and that of tf-idf, and at least as good
# as the better of the two on all sets of counts in ``benchmarks/bench_defaults.py``.
POWER = 0.75


def informative_idf(X: Matrix) -> np.ndarray | None:
    """Return the inverse document frequencies; None if they would make all rows zero.

    This is so if no word occurs in some samples only.
    """
    frequency = document_frequency(X)
    some = (frequency > 0) & (frequency < X.shape[0])
    return inverse_document_frequency(X) if some.any() else None


@dataclass(frozen=True, eq=False)
class Start(Encoder):
    """The cosine, or for counts the cosine of tf-idf to the power 3/4.

    Attributes
    ----------
    idf : ndarray of shape (n_features,) or None
        Weights of the words; None if the data does not hold counts, or if all words
        occur in all samples or in none.
    """

    idf: np.ndarray | None

    keeps_columns = True

    @classmethod
    def fit(cls, X: Matrix) -> Self:
        """Return the start for some training samples."""
        return cls(informative_idf(X) if are_counts(X) else None)

    def items(self, X: Matrix) -> Matrix:
        """Return rows of unit length."""
        if self.idf is not None:
            X = power(scale_columns(X, self.idf), POWER)
        return unit_rows(X)
