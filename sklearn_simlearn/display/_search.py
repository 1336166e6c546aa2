"""Results of some queries and their relevance, for pictures of results."""

from typing import NamedTuple

import numpy as np

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
    if isinstance(y, Judgements):
        return _find_documents(find_model(estimator), X, y, queries, n_neighbors)
    model = find_model(estimator)
    n_samples = num_samples(X)
    if X_database is None:
        X, items = model.prepare_samples(X)
    else:
        X, items = model.prepare_queries(X), model.prepare_items(X_database)
    n_items = num_samples(items)
    n_neighbors = min(n_neighbors, n_items - (X_database is None))
    compare = model.compare_with(items)
    relevance = None
    if y is not None:
        target = y if X_database is None else stack_targets(y, y_database)
        relevance = check_relevance(target, has_database=X_database is not None)
    first_item = 0 if X_database is None else n_samples

    found = []
    n_rows = get_chunk_n_rows(32 * n_items, max_n_rows=max(len(queries), 1))
    for start in range(0, len(queries), n_rows):
        rows = np.asarray(queries[start : start + n_rows])
        similarity = np.array(compare(X, rows, None), dtype=np.float64)
        if X_database is None:
            similarity[np.arange(len(rows)), rows] = -np.inf  # not itself
        best = np.argsort(-similarity, axis=1, kind="stable")[:, :n_neighbors]
        judged = None
        if relevance is not None:
            block = relevance.block(rows, slice(first_item, first_item + n_items))
            judged = np.take_along_axis(block, best, axis=1)
        found.append((best, np.take_along_axis(similarity, best, axis=1), judged))
    best, similarity, judged = zip(*found, strict=True)
    return Found(
        np.concatenate(best),
        np.concatenate(similarity),
        None if relevance is None else np.concatenate(judged),
    )


def _find_documents(model, X, y, queries, n_neighbors) -> Found:
    """Return the best documents for some rows of X."""
    model.refuse_steps_of_queries()
    compare = model.compare_with(model.prepare_items(y.documents))
    X = model.prepare_queries(X)
    queries, n_neighbors = np.asarray(queries), min(n_neighbors, y.shape[1])
    found = []
    n_rows = get_chunk_n_rows(32 * y.shape[1], max_n_rows=max(len(queries), 1))
    for start in range(0, len(queries), n_rows):
        rows = queries[start : start + n_rows]
        similarity = np.asarray(compare(X, rows, None), dtype=np.float64)
        best = np.argsort(-similarity, axis=1, kind="stable")[:, :n_neighbors]
        judged = np.sign(y.relevance[rows].toarray()).astype(np.int8)
        found.append(
            [np.take_along_axis(M, best, axis=1) for M in (similarity, judged)]
        )
        found[-1].insert(0, best)
    return Found(*(np.concatenate(parts) for parts in zip(*found, strict=True)))
