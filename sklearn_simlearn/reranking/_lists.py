"""Lists of candidates: ids and scores, one row per query, the best first."""

import numpy as np

from sklearn_simlearn.index._ids import Ids, check_ids


def make_ids(ids, n_items):
    """Return the ids of a database; consecutive numbers if the user passes none."""
    return Ids(np.arange(n_items) if ids is None else check_ids(ids, n_items))


def read_candidates(known, ids, scores, step):
    """Check the candidates that are passed to a step.

    Parameters
    ----------
    known : Ids
        Ids of the database on which the step was fitted.

    ids : array-like of shape (n_queries, n_candidates)
        Ids; -1 or "" if there are no more.

    scores : array-like of shape (n_queries, n_candidates) or None
        Similarities; -inf if there are no more.

    step : object
        The step, for error messages.

    Returns
    -------
    ids : ndarray
        Checked ids.

    scores : ndarray or None
        Checked scores.

    rows : ndarray of shape (n_queries, n_candidates)
        Numbers of the items in the database; -1 if there are no more.
    """
    ids = np.asarray(ids)
    if ids.ndim != 2:
        raise ValueError(
            f"ids must have one row per query; got an array of shape {ids.shape}."
        )
    if scores is not None:
        scores = np.asarray(scores)
        if scores.dtype not in (np.float32, np.float64):
            scores = scores.astype(np.float64)
        if scores.shape != ids.shape:
            raise ValueError(
                f"ids and scores must have the same shape; got {ids.shape} and "
                f"{scores.shape}."
            )
        if np.isnan(scores).any():
            raise ValueError("scores must not contain NaN.")
    rows = known.find(ids.ravel()).reshape(ids.shape)
    unknown = (rows < 0) & (ids != known.nothing)
    if unknown.any():
        raise ValueError(
            f"{type(step).__name__} was fitted on a database without the id "
            f"{ids[unknown][0].item()!r}. Fit it on all items of the index."
        )
    return ids, scores, rows


def sort_lists(value, ids, scores):
    """Return values and ids in descending order of the values, then of the scores."""
    order = np.lexsort((-scores, -value), axis=1)
    return tuple(np.take_along_axis(part, order, axis=1) for part in (value, ids))


def fractions(scores):
    """Return numbers in (0, 1) in the order of the scores; equal scores stay equal.

    They are added to integers to break ties.
    """
    n_candidates = scores.shape[1]
    order = np.argsort(-scores, axis=1, kind="stable")
    descending = np.take_along_axis(scores, order, axis=1)
    is_lower = np.zeros(scores.shape, dtype=bool)
    np.less(descending[:, 1:], descending[:, :-1], out=is_lower[:, 1:])
    value = 1 - (1 + np.cumsum(is_lower, axis=1)) / (n_candidates + 1)
    out = np.empty(scores.shape)
    np.put_along_axis(out, order, value, axis=1)
    return out


def affinities(scores, is_excluded=None):
    """Scale scores to 0 for the last candidate and 1 for the first.

    Scores may be negative and may have any scale. If a query is in the database, it
    finds itself first, and all other affinities would be small. Therefore excluded
    candidates are ignored for the scale, and their affinity is 1.
    """
    if is_excluded is not None:
        others = affinities(np.where(is_excluded, -np.inf, scores))
        return np.where(is_excluded, 1, others)
    last = np.where(np.isfinite(scores), scores, np.inf)
    last = last.min(axis=1, keepdims=True, initial=np.inf)
    height = np.subtract(
        scores, last, where=np.isfinite(scores), out=np.zeros(scores.shape)
    )
    top = height.max(axis=1, keepdims=True, initial=0)
    return np.divide(height, top, out=np.zeros(scores.shape), where=top > 0)
