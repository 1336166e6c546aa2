"""Indexes that find the most similar items to a query, for any estimator."""

from sklearn_simlearn.index._explanation import Explanation
from sklearn_simlearn.index._index import SimilarityIndex
from sklearn_simlearn.index._result import SearchResult
from sklearn_simlearn.index.postgres import PostgresIndex
from sklearn_simlearn.index.sharded import ShardedIndex

__all__ = [
    "Explanation",
    "PostgresIndex",
    "SearchResult",
    "ShardedIndex",
    "SimilarityIndex",
]
