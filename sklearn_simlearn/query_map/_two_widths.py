"""Queries and documents with different numbers of features."""

from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_simlearn._core.encoders import Composite, Encoder, Encodings, storable
from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.rows import unit_rows
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.base import SimilarityMixin
from sklearn_simlearn.query_map._rotation import find_rotation


@storable
class Documents(SimilarityMixin, BaseEstimator):
    """Number and names of the features of documents, to check other documents."""


class TwoWidths:
    """Stack of queries and documents that differ in their number of features.

    Indexing returns an array if all rows are of one side, else another stack.

    Parameters
    ----------
    queries : ndarray of shape (n_queries, n_query_features)
        Checked queries.

    documents : ndarray of shape (n_documents, n_document_features)
        Checked documents.
    """

    def __init__(self, queries: np.ndarray, documents: np.ndarray):
        self.queries, self.documents = queries, documents
        self.dtype = documents.dtype
        self.shape = (
            len(queries) + len(documents),
            max(queries.shape[1], documents.shape[1]),
        )

    def __getitem__(self, rows: np.ndarray) -> "np.ndarray | TwoWidths":
        n_queries = len(self.queries)
        is_query = rows < n_queries
        if is_query.all():
            return self.queries[rows]
        documents = self.documents[rows[~is_query] - n_queries]
        if not is_query.any():
            return documents
        return TwoWidths(self.queries[rows[is_query]], documents)


@dataclass(frozen=True, eq=False)
class Rotated(Composite):
    """Encoder of documents, and of queries that are rotated into their space.

    Attributes
    ----------
    base : Encoder
        Encoder of rows with the features of the documents.

    rotation : ndarray of shape (n_query_features, n_document_features)
        Map with orthonormal rows or columns.
    """

    base: Encoder
    rotation: np.ndarray

    def combine(self, rows: Encodings) -> Matrix:
        """Return encodings by the base, of rotated queries or of documents."""
        if rows.side == "items":
            return rows(self.base)
        return self.base.queries(rotate(rows.X, self.rotation))


def rotate(X: Matrix, rotation: np.ndarray) -> np.ndarray:
    """Return unit rows in the space of the documents."""
    return unit_rows(unit_rows(X) @ rotation.astype(X.dtype, copy=False))


def align(X: TwoWidths, relevance: JudgedRelevance) -> tuple[np.ndarray, np.ndarray]:
    """Rotate queries into the space of the documents that are relevant to them.

    (query-map-rotation)  The rotation is the orthogonal map that maps queries closest
    to the means of their relevant documents.

    Returns
    -------
    rotation : ndarray of shape (n_query_features, n_document_features)
        The rotation.

    rows : ndarray of shape (n_samples, n_document_features)
        Rotated queries on top of the documents.
    """
    n_queries = len(X.queries)
    weights = relevance.pairs[:n_queries][:, n_queries:].maximum(0)
    means = unit_rows(weights @ unit_rows(X.documents.astype(np.float64)))
    queries = unit_rows(X.queries.astype(np.float64))
    rotation = find_rotation(queries.T @ means)
    rotated = rotate(X.queries, rotation).astype(X.dtype, copy=False)
    return rotation, np.concatenate([rotated, X.documents])
