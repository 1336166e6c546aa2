"""Re-ranking: steps that look again at the best items of a search.

A step is an estimator with `fit(database)` and `rerank(queries, ids, scores)`, which
returns ids and scores, each row in its new order. An index fits it on itself, and hands
it the queries as `Queries`.
"""

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._base import is_fitted
from sklearn_simlearn.index._encoded_items import as_kind
from sklearn_simlearn.index._filters import cut_lists, read_exclude

# Queries that are re-ranked at a time, which bounds what a step has to hold.
N_QUERIES = 256


@dataclass
class Queries:
    """The queries of a running search, as re-ranking steps see them.

    Attributes
    ----------
    index : SimilarityIndex
        The index that is searched.

    X : samples
        As `search` got them.

    features : LocalFeatures or None
        Of the queries, if `search` got any.

    ids : ndarray or None
        Of the queries, if these are items of the index.
    """

    index: Any
    X: Any
    features: Any = None
    ids: np.ndarray | None = None
    groups: Any = None
    excluded: tuple | None = None
    allowed: np.ndarray | None = None

    def encode(self):
        """Surrogate queries, one row per list of candidates."""
        sets = self.index._read_sets(self.groups, num_samples(self.X))
        parts = [Q for _, _, Q in self.index._encode_queries(self.X, sets, 1)]
        return (
            sparse.vstack(parts, "csr") if sparse.issparse(parts[0]) else _join(parts)
        )

    def encode_items(self, ids):
        """Surrogate queries of stored items."""
        raw = _metadata.take(self.index._stored_items(), self.index._ids.find(ids))
        return Queries(self.index, raw).encode()

    def search(self, Q, k):
        """Ids and scores of the best items for surrogate queries.

        The filter of the running search holds for this one too.
        """
        index = self.index
        scores, rows = index._items.search(
            as_kind(Q, index.backend_, index._items.dtype),
            k,
            allowed=self.allowed,
            n_threads=index._n_threads,
        )
        return index._ids.take(rows), scores

    def is_excluded(self, ids):
        """Mask of candidates that are the query itself, or that the user excludes.

        They stay in the lists until the end, and a step may learn nothing from them.
        """
        if self.ids is not None:
            return ids == self.ids[:, None]
        if self.excluded is None:
            return np.zeros(ids.shape, dtype=bool)
        rows = self.index._ids.find(ids.ravel()).reshape(ids.shape)
        return _are_listed(rows, self.excluded)


class RerankMixin:
    """What an index does with its re-ranking steps."""

    def _rerank(self, X, k, *, groups, exclude, allowed, features):
        """Scores and rows of the best items after re-ranking."""
        steps = self._find_steps()
        n_queries = num_samples(X)
        n_results = len(self._read_sets(groups, n_queries).sizes)
        if features is not None and num_samples(features) != n_queries:
            raise ValueError(
                f"features must have one image per query; got {num_samples(features)} "
                f"for {n_queries} queries."
            )
        if exclude is not None:
            exclude = read_exclude(exclude, self._ids, n_results)
        # Queries of a set cannot be parted.
        length = n_queries if groups is not None else N_QUERIES
        scores, rows = [], []
        for start in range(0, n_queries, length):
            batch = slice(start, start + length)
            part = range(start, min(start + length, n_queries))
            queries = Queries(
                self,
                _metadata.take(X, np.array(part)),
                None if features is None else features[batch],
                groups=groups,
                excluded=None if exclude is None else cut_lists(exclude, batch),
                allowed=allowed,
            )
            found = self._apply(steps, queries, k)
            scores.append(found[0])
            rows.append(found[1])
        return _join(scores), _join(rows)

    def _apply(self, steps, queries, k):
        """Scores and rows of the k best items for a batch of queries.

        What the user excludes is excluded from the result only: a query that is an
        item itself keeps its place among its neighbours until then.
        """
        n_more = 0
        if queries.excluded is not None:
            n_more = int(np.diff(queries.excluded[0]).max(initial=0))
        n_candidates = self.n_candidates + n_more
        scores, rows = self._search(
            queries.X,
            max(k + n_more, n_candidates),
            groups=queries.groups,
            allowed=queries.allowed,
        )
        scores = scores.astype(np.float64)
        for step in steps:
            ids = self._ids.take(rows[:, :n_candidates])
            ids, best = step.rerank(queries, ids, scores[:, :n_candidates])
            best_rows = self._ids.find(ids.ravel()).reshape(ids.shape)
            for i in range(len(rows)):
                scores[i], rows[i] = _put_first(
                    best[i], best_rows[i], scores[i], rows[i]
                )
        if queries.excluded is not None:
            dropped = _are_listed(rows, queries.excluded)
            scores[dropped], rows[dropped] = -np.inf, -1
            order = np.argsort(dropped, axis=1, kind="stable")
            scores = np.take_along_axis(scores, order, axis=1)
            rows = np.take_along_axis(rows, order, axis=1)
        return scores[:, :k], rows[:, :k]

    def _find_steps(self):
        """The fitted steps; fitted anew once items, estimator or steps have changed."""
        if self.rerank is None and self._saved_steps:
            raise ValueError(
                "The index was saved with re-ranking steps, which are not stored "
                f"({', '.join(self._saved_steps)}): give them anew by "
                "`set_params(rerank=[...])`, or go without by `set_params(rerank=[])`."
            )
        if self._steps is None or self._steps_from is not self.rerank:
            self._fit_steps()
        return self._steps

    def _fit_steps(self):
        """Fit the steps in turn; what each finds in the index is the work of those
        before it."""
        steps = list(self.rerank or [])
        for step in steps:
            if not (hasattr(step, "fit") and hasattr(step, "rerank")):
                raise TypeError(f"A re-ranking step has fit and rerank; got {step!r}.")
        self._steps, self._steps_from = [], self.rerank
        try:
            for step in steps:
                # Not a clone: a fitted verifier within a step stays fitted.
                self._steps.append(step if is_fitted(step) else copy(step).fit(self))
        except BaseException:
            self._steps = None
            raise

    def _stored_items(self):
        raw = self._table("_raw")
        if raw is None:
            raise ValueError(
                "This re-ranking step searches with stored items, which the index "
                "keeps only with store_items=True."
            )
        return raw

    def _neighbor_lists(self, k):
        """Ids and scores of what each item finds, itself included, batch by batch.

        Yields ids and scores of the best k, after the steps that are fitted so far.
        """
        raw, alive = self._stored_items(), np.flatnonzero(self._ids.alive)
        for start in range(0, len(alive), N_QUERIES):
            rows = alive[start : start + N_QUERIES]
            queries = Queries(self, _metadata.take(raw, rows), ids=self._ids.take(rows))
            scores, found = self._apply(self._steps, queries, k)
            yield self._ids.take(found), scores


def _put_first(best_scores, best_rows, scores, rows):
    """A list that a step has made, and what it left of the list before it.

    The rest keeps its order and its differences, at scores below those of the step.
    """
    is_found = best_rows >= 0
    best_scores, best_rows = best_scores[is_found], best_rows[is_found]
    is_rest = ~np.isin(rows, best_rows) & (rows >= 0)
    rest = scores[is_rest]
    if len(rest) and len(best_scores):
        rest = np.nextafter(best_scores[-1], -np.inf) + (rest - rest[0])
    out_scores = np.full(len(scores), -np.inf)
    out_rows = np.full(len(rows), -1, dtype=np.int64)
    joined = np.concatenate([best_scores, rest])[: len(rows)]
    out_scores[: len(joined)] = joined
    out_rows[: len(joined)] = np.concatenate([best_rows, rows[is_rest]])[: len(rows)]
    return out_scores, out_rows


def _are_listed(rows, lists):
    indptr, listed = lists
    mask = np.zeros(rows.shape, dtype=bool)
    for i in np.flatnonzero(np.diff(indptr)):
        mask[i] = np.isin(rows[i], listed[indptr[i] : indptr[i + 1]])
    return mask


def _join(parts):
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
