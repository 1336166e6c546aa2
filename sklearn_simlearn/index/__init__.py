"""Search: the best items for a query, for any estimator."""

from sklearn_simlearn.index._index import SimilarityIndex
from sklearn_simlearn.index._postgres import PostgresIndex

__all__ = ["PostgresIndex", "SimilarityIndex"]
