"""Mixin of similarities whose queries may be sets of samples."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.encoders import Sides
from sklearn_simlearn._core.groups import name_sets
from sklearn_simlearn._core.products import inner_products
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.typing import Matrix, MatrixLike
from sklearn_simlearn.base import EncodedSimilarityMixin
from sklearn_simlearn.metrics import map_scorer


class QuerySetsMixin(EncodedSimilarityMixin):
    """Mixin for similarities whose encoder also encodes sets of queries.

    The method `queries` of `encoder_` takes `groups`, the set of each query, and
    returns one row per set.
    """

    def similarity(
        self,
        X: MatrixLike,
        Y: MatrixLike | None = None,
        groups: ArrayLike | None = None,
    ) -> np.ndarray:
        """Return the similarity of every query, or set of queries, to every item.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        Y : {array-like, sparse matrix} of shape (n_items, n_features), default=None
            Items; `X` itself if None.

        groups : array-like of shape (n_queries,), default=None
            Set of each query. If None, each query is a separate set.

        Returns
        -------
        S : ndarray of shape (n_sets, n_items)
            Larger is more similar. One row for each group, in sorted order.
        """
        check_is_fitted(self)
        rows = self._check_rows(X)
        items = rows if Y is None or Y is X else self._check_rows(Y)
        return self._compare_sets(rows, items, groups)

    def _compare_sets(
        self, X: Matrix, Y: Matrix, groups: ArrayLike | None
    ) -> np.ndarray:
        """Return the similarities of checked queries to checked items."""
        if groups is None:
            return Sides(X, Y).similarity(self.encoder_)
        return inner_products(self.encoder_.queries(X, groups), self.encoder_.items(Y))

    def transform(self, X: MatrixLike, groups: ArrayLike | None = None) -> Matrix:
        """Encode queries, alone or in sets.

        The inner products of the encoded queries with the rows of `transform_database`
        are the similarity.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        groups : array-like of shape (n_queries,), default=None
            Set of each query: integers, strings, or other values that can be sorted.
            The queries of a set should be of one class. If None, each query is a
            separate set.

        Returns
        -------
        Q : ndarray or csr_array of shape (n_sets, n_features_out)
            One row for each group, in the sorted order of ``np.unique(groups)``; these
            are also the index of a pandas frame. Without groups, one row per query.
        """
        check_is_fitted(self)
        Q = self._encode_sets(self._check_rows(X), groups)
        return name_sets(self, Q, groups)

    def _encode_sets(self, X: Matrix, groups: ArrayLike | None) -> Matrix:
        """Return the encoded sets of checked queries."""
        return self.encoder_.queries(X, groups)

    def score(
        self,
        X: MatrixLike,
        y: TargetLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        query_mask: ArrayLike | None = None,
    ) -> float:
        """Return the mean average precision of samples or sets that query the others.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples, which are both queries and items.

        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
            Labels, where the integer -1 marks a distractor; or a relevance matrix,
            positive if a sample is relevant, negative if it is junk; or a
            :class:`~sklearn_simlearn.metrics.PairwiseRelevance`. An item is relevant to
            a set if it is relevant to all its queries.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples as queries. The weight of a set is their mean.

        groups : array-like of shape (n_samples,), default=None
            Set of each sample, -1 or None for those that do not query. If None, each
            sample queries alone.
            :func:`~sklearn_simlearn.model_selection.make_query_sets` draws sets.

        query_mask : array-like of shape (n_samples,), dtype bool, default=None
            Samples that query. All other samples are only searched, even if they belong
            to a set.

        Returns
        -------
        score : float
            Between 0 and 1.
        """
        return map_scorer(
            self,
            X,
            y,
            sample_weight=sample_weight,
            groups=groups,
            query_mask=query_mask,
        )
