"""Base class of all indexes: the estimator, and queries in batches."""

from numbers import Integral

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core import unwrap
from sklearn_simlearn._core.groups import read_groups
from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.sklearn import DocLinkMixin, ItemsHtmlMixin
from sklearn_simlearn._core.threads import count_threads
from sklearn_simlearn.index import _metadata


class BaseIndex(ItemsHtmlMixin, DocLinkMixin, BaseEstimator):
    """Base class of the indexes, with an estimator that encodes items and queries.

    A subclass sets `estimator_` and `_model` to the result of `_take_estimator`.
    """

    def _take_estimator(self, X, y):
        """Return the estimator and its model. Fit the estimator if it is not fitted."""
        estimator = self.estimator
        if not is_fitted(estimator):
            if isinstance(y, Judgements):
                raise ValueError(
                    "An index is fitted on documents, not on queries with Judgements. "
                    "Fit the estimator on queries and Judgements first."
                )
            estimator = clone(estimator).fit(X, y)
        return estimator, unwrap.find_model(estimator)

    def _check_estimator(self):
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)  # raises; not called before, because it is slow
        if self._model is None:
            raise ValueError(
                "The index was opened without its estimator. Load it with `trusted` or "
                "`estimator`, or call `set_estimator`."
            )

    def _read_sets(self, groups, n_queries):
        """Return the sets of queries: one per group, or one per query."""
        if groups is not None and not self._model.takes_groups:
            raise ValueError(
                "groups requires an estimator that ends in a MemoryVectorQuery. Pass "
                "queries without groups."
            )
        return read_groups(groups, n_queries)

    def _encode_queries(self, X, sets, row_bytes):
        """Yield encoded queries in batches that fit into `working_memory`.

        Parameters
        ----------
        X : samples
            Queries.

        sets : Sets
            Sets of the queries, from `_read_sets`.

        row_bytes : int
            Largest size of an encoded query with its result.

        Yields
        ------
        batch : slice
            Range of the sets.

        part : samples
            Queries of these sets.

        Q : matrix
            Encodings of these queries, one row per set.
        """
        n_rows = max(1, int(get_config()["working_memory"] * 2**20 // row_bytes))
        are_single = sets.names is sets.rows  # the user passed no groups
        if are_single and sets.n_sets <= n_rows:
            Q = self._model.encode_queries(self._model.prepare_queries(X))
            yield slice(0, sets.n_sets), X, Q
            return
        for start, block in sets.blocks(sets.sizes, n_rows):
            batch = slice(start, start + len(block.sizes))
            part = _metadata.take(X, block.rows)
            params = {} if are_single else {"groups": block.of_row}
            Q = self._model.encode_queries(self._model.prepare_queries(part), **params)
            yield batch, part, Q

    @property
    def _n_threads(self):
        return count_threads(self.n_jobs)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if self.estimator is not None:
            inner = get_tags(self.estimator)
            tags.input_tags = inner.input_tags
            tags.target_tags.required = inner.target_tags.required
            tags.target_tags.multi_output = inner.target_tags.multi_output
        return tags


def check_k(k):
    """Return the number of results as an int. Raise unless it is positive."""
    if not isinstance(k, Integral) or isinstance(k, bool) or k < 1:
        raise ValueError(f"k must be an integer of at least 1; got {k!r}.")
    return int(k)


def as_plain(value):
    """Return a parameter with NumPy numbers converted to Python numbers."""
    if isinstance(value, dict):
        return {name: as_plain(part) for name, part in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def is_fitted(estimator):
    """Return whether an estimator, and each step of a pipeline, is fitted."""
    if isinstance(estimator, Pipeline):
        # Scikit-learn checks only the last step, which may not need a fit.
        return all(
            is_fitted(step)
            for name in ("query_steps", "document_steps", "steps")
            for step in unwrap.list_steps(getattr(estimator, name, None))
        )
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True
