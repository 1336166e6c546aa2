"""Base classes of the re-ranking steps."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.sklearn import DocLinkMixin, fit_context
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.reranking._lists import read_candidates


class RerankingStep(DocLinkMixin, BaseEstimator):
    """Base of steps that re-rank the candidates of a search.

    A subclass sets `_ids`, the ids of the database, in `fit`, and implements
    ``_rerank(queries, scores, ids, rows)``. `rows` are the numbers of the candidates in
    the database; -1 if there are no more.
    """

    _ids: Any

    def rerank(
        self, queries: Any, scores: ArrayLike, ids: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray]:
        """Re-rank candidates.

        Parameters
        ----------
        queries : samples or LocalFeatures
            Queries, as for the `search` of the index; for
            :class:`SpatialVerification`, local features with one image per query. Steps
            that use only the graph of the items ignore the queries.

        scores : array-like of shape (n_queries, n_candidates)
            Scores of the candidates, the best first.

        ids : array-like of shape (n_queries, n_candidates)
            Ids of the candidates; -1 or "" if there are no more.

        Returns
        -------
        scores : ndarray of shape (n_queries, n_candidates)
            New scores.

        ids : ndarray of shape (n_queries, n_candidates)
            Ids in their new order.
        """
        check_is_fitted(self)
        ids, scores, rows = read_candidates(self._ids, ids, scores, self)
        return self._rerank(queries, scores, ids, rows)


class IndexStep(RerankingStep):
    """Base of steps that are fitted on a snapshot of an index.

    A subclass implements ``_fit(index)``. Later changes of the index do not affect the
    snapshot.
    """

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, database: SimilarityIndex, y: object = None) -> Self:
        """Fit the step on the items of an index.

        Parameters
        ----------
        database : SimilarityIndex
            A fitted index with ``store_items=True``.

        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        self : object
            The step itself.
        """
        if not isinstance(database, SimilarityIndex):
            raise TypeError(
                f"{type(self).__name__} must be fitted on a SimilarityIndex; got "
                f"{type(database).__name__}."
            )
        self._fit(database._snapshot())
        return self
