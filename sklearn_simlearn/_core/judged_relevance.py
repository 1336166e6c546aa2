"""Relevance of documents to queries, read from judgements."""

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.relevance import PairRelevance
from sklearn_simlearn._core.rows import canonical_csr, number_patterns
from sklearn_simlearn._core.targets import DISTRACTOR


class JudgedRelevance(PairRelevance):
    """Relevance of documents to queries; both are rows of one set of samples.

    Only documents are items. A query is junk for the other queries.

    Parameters
    ----------
    pairs : csr_array of shape (n_samples, n_samples)
        Positive if a document (column) is relevant to a query (row), negative if it is
        junk, without stored zeros.

    is_item : ndarray of shape (n_samples,), dtype bool
        Samples that are documents.
    """

    def __init__(self, pairs: sparse.csr_array, is_item: np.ndarray):
        super().__init__(pairs)
        self.is_item = is_item

    @classmethod
    def of(cls, relevance: sparse.csr_array) -> "JudgedRelevance":
        """Return the relevance of queries stacked on documents."""
        n_queries, n_documents = relevance.shape
        n = n_queries + n_documents
        entries = relevance.tocoo()
        stored = entries.data != 0
        row, column = entries.row[stored], entries.col[stored] + n_queries
        pairs = sparse.csr_array((entries.data[stored], (row, column)), shape=(n, n))
        return cls(pairs, np.arange(n) >= n_queries)

    def graded_block(self, queries, items):
        relevance = self.pairs[queries][:, items].toarray()
        relevance[relevance < 0] = -1
        relevance[:, ~self.is_item[items]] = -1
        return relevance

    def objects(self):
        """Number the queries; documents do not belong to an object."""
        objects = np.full(len(self), DISTRACTOR, dtype=np.int64)
        objects[self.can_query] = np.arange(np.count_nonzero(self.can_query))
        return objects

    def kinds(self):
        return number_patterns(canonical_csr(self.pairs.maximum(0)))

    def take(self, rows):
        return JudgedRelevance(self.pairs[rows][:, rows], self.is_item[rows])

    def items_of(self, X):
        return X[np.flatnonzero(self.is_item)]

    def _judge_queries(self):
        n_items = np.count_nonzero(self.is_item)
        is_query = self.can_query & (np.diff(self.pairs.indptr) < n_items)
        return is_query, np.zeros(len(self), dtype=bool)

    def require_triplets(self):
        if not self.find_queries().any():
            raise ValueError(
                "y holds no triplet: no query has both a relevant document and one "
                "that is not relevant."
            )
