"""Maps of queries and documents, a shift of judged documents, maps between models."""

from sklearn_simlearn.query_map._model_map import EmbeddingModelMap
from sklearn_simlearn.query_map._query_map import QueryDocumentMap

__all__ = ["EmbeddingModelMap", "QueryDocumentMap"]
