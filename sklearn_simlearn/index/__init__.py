"""Search: the best items for a query, for any estimator."""

from sklearn_simlearn.index._index import SimilarityIndex

__all__ = ["SimilarityIndex"]
