"""Re-ranking steps, which reorder the best items of a search.

A step is an estimator with `fit(database)` and `rerank(queries, scores, ids)`. `rerank`
returns scores and ids, with each row in its new order. An index fits a step on an
immutable snapshot of itself, and passes the queries as `Queries`.
"""

from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._base import is_fitted
from sklearn_simlearn.index._encoded_items import as_kind
from sklearn_simlearn.index._filters import (
    cut_allowed,
    cut_lists,
    read_exclude,
    search_items,
)

# Number of queries that are re-ranked at a time. It bounds the memory of a step.
N_QUERIES = 256


@dataclass
class Queries:
    """Queries of a running search, passed to re-ranking steps.

    Attributes
    ----------
    index : SimilarityIndex
        Snapshot of the index.

    X : samples
        Queries as passed to `search`.

    features : LocalFeatures or None
        Local features of the queries, if passed to `search`.

    ids : ndarray or None
        Ids of the queries, if the queries are items of the index.
    """

    index: Any
    X: Any
    features: Any = None
    ids: np.ndarray | None = None
    groups: Any = None
    excluded: tuple | None = None
    allowed: Any = None

    def encode(self):
        """Return encoded queries, one row per list of candidates."""
        sets = self.index._read_sets(self.groups, num_samples(self.X))
        parts = [Q for _, _, Q in self.index._encode_queries(self.X, sets, 1)]
        return (
            sparse.vstack(parts, "csr") if sparse.issparse(parts[0]) else _join(parts)
        )

    def encode_items(self, ids):
        """Return stored items, encoded as queries."""
        rows = self.index._state.ids.find(ids)
        return Queries(self.index, stored_items(self.index).take(rows)).encode()

    def search(self, Q, k):
        """Return scores and ids of the best items for encoded queries.

        The filter of the running search is applied, too.
        """
        state = self.index._state
        scores, rows = search_items(
            state.items,
            as_kind(Q, state.backend, state.items.dtype),
            k,
            self.allowed,
            None,
            self.index._n_threads,
        )
        return scores, state.ids.take(rows)

    def is_excluded(self, ids):
        """Return the mask of candidates that are the query itself or excluded.

        These candidates are removed only after the last step. A step must not learn
        from them.
        """
        if self.ids is not None:
            return ids == self.ids[:, None]
        if self.excluded is None:
            return np.zeros(ids.shape, dtype=bool)
        rows = self.index._state.ids.find(ids.ravel()).reshape(ids.shape)
        return _are_listed(rows, self.excluded)


@dataclass(frozen=True)
class Steps:
    """Fitted re-ranking steps, and the index that they were fitted on."""

    state: Any
    given: Any
    fitted: tuple

    def serve(self, index):
        """Return whether the steps were fitted on this snapshot of an index."""
        return self.state is index._state and self.given is index.rerank


def fit_steps(index):
    """Fit the re-ranking steps of an index in turn, on a snapshot of it.

    If a step searches the index, the steps before it re-rank the results.
    """
    if index.rerank is None and index._state.lost_steps:
        raise ValueError(
            "The index was saved with re-ranking steps, which are not stored "
            f"({', '.join(index._state.lost_steps)}). Set them with "
            "`set_params(rerank=[...])`, or search without them after "
            "`set_params(rerank=[])`."
        )
    given = list(index.rerank or [])
    for step in given:
        if not (hasattr(step, "fit") and hasattr(step, "rerank")):
            raise TypeError(f"Re-ranking steps must have fit and rerank; got {step!r}.")
    steps = Steps(index._state, index.rerank, ())
    for step in given:
        index._steps = steps
        # Do not clone: a clone of the step would have an unfitted verifier.
        fitted = step if is_fitted(step) else copy(step).fit(index)
        steps = replace(steps, fitted=(*steps.fitted, fitted))
    return steps


def search_again(index, steps, X, k, *, groups, exclude, allowed, features):
    """Return scores and rows of the best items after re-ranking."""
    n_queries = num_samples(X)
    n_results = index._read_sets(groups, n_queries).n_sets
    if features is not None and num_samples(features) != n_queries:
        raise ValueError(
            f"features must have one image per query; got {num_samples(features)} "
            f"for {n_queries} queries."
        )
    if exclude is not None:
        exclude = read_exclude(exclude, index._state.ids, n_results)
    # Queries of the same set must be in the same batch.
    length = max(n_queries, 1) if groups is not None else N_QUERIES
    scores, rows = [], []
    for start in range(0, max(n_queries, 1), length):
        batch = slice(start, start + length)
        queries = Queries(
            index,
            _metadata.take(X, np.arange(n_queries)[batch]),
            None if features is None else features[batch],
            groups=groups,
            excluded=None if exclude is None else cut_lists(exclude, batch),
            allowed=cut_allowed(allowed, batch),
        )
        found = _apply(steps, queries, k)
        scores.append(found[0])
        rows.append(found[1])
    return _join(scores), _join(rows)


def neighbor_lists(index, k):
    """Yield scores and ids of a search for the stored items, in batches.

    A list holds the best k items, re-ranked by the steps that are fitted so far. It
    includes the item itself.
    """
    raw, ids = stored_items(index), index._state.ids
    alive = np.flatnonzero(ids.alive)
    is_known = index._steps is not None and index._steps.serve(index)
    steps = index._steps.fitted if is_known else ()
    for start in range(0, len(alive), N_QUERIES):
        rows = alive[start : start + N_QUERIES]
        queries = Queries(index, raw.take(rows), ids=ids.take(rows))
        scores, found = _apply(steps, queries, k)
        yield scores, ids.take(found)


def stored_items(index):
    """Return the original items of an index, by row."""
    if index._state.raw is None:
        raise ValueError(
            "This re-ranking step uses original items, which the index stores only "
            "with store_items=True."
        )
    return index._state.raw


def _apply(steps, queries, k):
    """Return scores and rows of the k best items for a batch of queries.

    Excluded items are removed only after re-ranking. If a query is an item of the
    index, the steps can use it among its own neighbours.
    """
    index, ids = queries.index, queries.index._state.ids
    n_more = 0
    if queries.excluded is not None:
        n_more = int(np.diff(queries.excluded[0]).max(initial=0))
    n_candidates = index.n_candidates + n_more
    scores, rows = index._search(
        queries.X,
        max(k + n_more, n_candidates),
        index._read_sets(queries.groups, num_samples(queries.X)),
        allowed=queries.allowed,
    )
    scores = scores.astype(np.float64)
    for step in steps:
        candidates = ids.take(rows[:, :n_candidates])
        best, best_ids = step.rerank(queries, scores[:, :n_candidates], candidates)
        best_rows = ids.find(best_ids.ravel()).reshape(best_ids.shape)
        for i in range(len(rows)):
            scores[i], rows[i] = _put_first(best[i], best_rows[i], scores[i], rows[i])
    if queries.excluded is not None:
        dropped = _are_listed(rows, queries.excluded)
        scores[dropped], rows[dropped] = -np.inf, -1
        order = np.argsort(dropped, axis=1, kind="stable")
        scores = np.take_along_axis(scores, order, axis=1)
        rows = np.take_along_axis(rows, order, axis=1)
    return scores[:, :k], rows[:, :k]


def _put_first(best_scores, best_rows, scores, rows):
    """Return the list of a step, followed by the candidates that it dropped.

    The dropped candidates keep their order and their differences in score. Their scores
    are shifted below those of the step.
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
