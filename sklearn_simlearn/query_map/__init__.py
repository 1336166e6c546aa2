"""Learned maps of vectors: of queries and documents, and between embedding models."""

from sklearn_simlearn.query_map._model_map import EmbeddingModelMap
from sklearn_simlearn.query_map._query_map import QueryDocumentMap

__all__ = ["EmbeddingModelMap", "QueryDocumentMap"]
