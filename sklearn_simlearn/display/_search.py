"""Results of some queries and their relevance, for pictures of results."""

from typing import NamedTuple

import numpy as np

from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.relevance import check_relevance, stack_targets
from sklearn_simlearn._core.sklearn import get_chunk_n_rows, num_samples
from sklearn_simlearn._core.unwrap import find_model


class Found(NamedTuple):
    """Best items of some queries.

    Attributes
    ----------
    items : ndarray of shape (n_queries, n_neighbors), dtype int64
        Rows of the database, the most similar first.

    similarity : ndarray of shape (n_queries, n_neighbors)

    relevance : ndarray of shape (n_queries, n_neighbors), dtype int8, or None
        1 for relevant items, 0 for others, -1 for junk; None without a target.
    """

    items: np.ndarray
    similarity: np.ndarray
    relevance: np.ndarray | None


def find_neighbors(
    estimator, X, y, queries, n_neighbors, X_database=None, y_database=None
) -> Found:
    """Return the best items for some rows of X, among the other rows or a database.

    With Judgements as `y`, the database consists of their documents.
    """
    model = find_model(estimator)
    among_themselves = X_database is None and not isinstance(y, Judgements)
    if among_themselves:
        X, items = model.prepare_samples(X)
    else:
        if isinstance(y, Judgements):
            model.refuse_steps_of_queries()
            X_database = y.documents
        X, items = model.prepare_queries(X), model.prepare_items(X_database)
    relevance, n_before = _read_relevance(X, y, X_database, y_database)
    n_items = num_samples(items)
    n_neighbors = min(n_neighbors, n_items - among_themselves)
    compare = model.compare_with(items)

    queries, found = np.asarray(queries), []
    n_rows = get_chunk_n_rows(32 * n_items, max_n_rows=max(len(queries), 1))
    for start in range(0, len(queries), n_rows):
        rows = queries[start : start + n_rows]
        similarity = np.array(compare(X, rows, None), dtype=np.float64)
        if among_themselves:
            similarity[np.arange(len(rows)), rows] = -np.inf
        best = np.argsort(-similarity, axis=1, kind="stable")[:, :n_neighbors]
        blocks = [similarity]
        if relevance is not None:
            blocks.append(relevance.block(rows, slice(n_before, n_before + n_items)))
        found.append([best, *(np.take_along_axis(M, best, axis=1) for M in blocks)])
    items, similarity, *judged = map(np.concatenate, zip(*found, strict=True))
    return Found(items, similarity, judged[0] if judged else None)


def _read_relevance(X, y, X_database, y_database):
    """Return the relevance of all samples, and the number of samples before the items.

    The relevance is None without a target.
    """
    if y is None:
        return None, 0
    if isinstance(y, Judgements):
        return JudgedRelevance.of(y.relevance), len(y)
    if X_database is None:
        return check_relevance(y), 0
    both = stack_targets(y, y_database)
    return check_relevance(both, has_database=True), num_samples(X)
