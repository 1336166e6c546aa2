"""Encoder of HistogramRankSVM, and the scale of its similarity."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.encoders import Encoder, Sides
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.histogram._table import CountTable

# Number of samples whose similarities determine the scale of the learned similarity.
N_COMPARED = 500


@dataclass(frozen=True, eq=False)
class WeightTable(Encoder):
    """Counts compared by a table of weights; encoded rows are CSR."""

    table: CountTable

    def name_columns(self, names: Sequence[str]) -> Sequence[str]:
        """Return names with word and count, and a name of the last two columns."""
        counts = np.repeat(names, self.table.weights.shape[1] - 1).tolist()
        return [*counts, "(unmatched)", "(unmatched)"]

    def queries(self, X: Matrix) -> sparse.csr_array:
        """Return, per word, the weights of the query's count with all item counts."""
        return self.table.encode_queries(X)

    def items(self, X: Matrix) -> sparse.csr_array:
        """Return, per word, an indicator of the item's count."""
        return self.table.encode_items(X)

    def compare(self, sides: Sides) -> np.ndarray:
        """Return the similarities, computed by the table without encodings."""
        return self.table.similarity(sides.queries.X, sides.items.X, sides.n_threads)


def find_scale(learned: Encoder, start: Encoder, X: sparse.csr_array) -> float:
    """Return the ratio of the spreads of the two similarities: (histogram-scale)."""
    X = X[np.linspace(0, X.shape[0] - 1, min(N_COMPARED, X.shape[0])).astype(int)]
    sides = Sides(X, X)
    spread = _find_spread(sides.similarity(learned))
    start_spread = _find_spread(sides.similarity(start))
    return spread / start_spread if spread > 0 and start_spread > 0 else 1.0


def _find_spread(S):
    """Return the standard deviation over all items except the query."""
    others = S[~np.eye(len(S), dtype=bool)].reshape(len(S), -1)
    return float(np.sqrt(others.var(axis=1, dtype=np.float64).mean()))
