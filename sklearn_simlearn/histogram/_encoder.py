"""Encoder of HistogramRankSVM, and its scale."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.encoders import Encoder, Sides
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.histogram._table import CountTable

# Samples whose similarities set the scale of the learned one.
N_COMPARED = 500


@dataclass(frozen=True, eq=False)
class WeightTable(Encoder):
    """Counts compared by a table of weights; rows are CSR."""

    table: CountTable

    def queries(self, X: Matrix) -> sparse.csr_array:
        """Return, per word, the weights of the query's count against all counts."""
        return self.table.encode_queries(X)

    def items(self, X: Matrix) -> sparse.csr_array:
        """Return, per word, which count the item has."""
        return self.table.encode_items(X)

    def compare(self, sides: Sides) -> np.ndarray:
        """Return the similarities, read off the table."""
        return self.table.similarity(sides.queries.X, sides.items.X, sides.n_threads)


def find_scale(learned: Encoder, start: Encoder, X: sparse.csr_array) -> float:
    """(histogram-scale)  Ratio of the spreads of the two similarities over items."""
    X = X[np.linspace(0, X.shape[0] - 1, min(N_COMPARED, X.shape[0])).astype(int)]
    sides = Sides(X, X)
    spread = _find_spread(sides.similarity(learned))
    start_spread = _find_spread(sides.similarity(start))
    return spread / start_spread if spread > 0 and start_spread > 0 else 1.0


def _find_spread(S):
    """Return the standard deviation over the items other than the query."""
    others = S[~np.eye(len(S), dtype=bool)].reshape(len(S), -1)
    return float(np.sqrt(others.var(axis=1, dtype=np.float64).mean()))
