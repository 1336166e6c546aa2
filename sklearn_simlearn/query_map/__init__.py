"""Maps of queries and documents, and a shift of judged documents."""

from sklearn_simlearn.query_map._query_map import QueryDocumentMap

__all__ = ["QueryDocumentMap"]
