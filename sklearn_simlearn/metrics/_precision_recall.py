"""Average precision and precision-recall curves."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from sklearn_simlearn._core.sklearn import validate_params
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn.metrics._measure import (
    COMMON_CONSTRAINTS,
    MEASURES,
    Empty,
    Ranks,
    Ties,
)
from sklearn_simlearn.metrics._queries import (
    Lists,
    check_lists,
    check_query_weight,
    mean_over_queries,
    measure_matrices,
    settle_empty,
    values_per_query,
)
from sklearn_simlearn.metrics._ranking_fast import best_precision_from


@validate_params(
    COMMON_CONSTRAINTS | MEASURES["map"].constraints,
    prefer_skip_nested_validation=True,
)
def average_precision(
    relevance: MatrixLike,
    similarity: ArrayLike,
    *,
    ties: Ties | Literal["threshold"] = "average",
    interpolation: Literal["step", "trapezoid"] = "step",
    k: int | None = None,
    denominator: Literal["reachable", "relevant"] = "reachable",
    empty: Empty = "skip",
    junk: MatrixLike | None = None,
    average: bool = False,
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> np.ndarray | float:
    """Compute the average precision of each query.

    The average precision is the mean precision at the ranks of the relevant items.
    Published results differ in the choices that the parameters control; see the
    :ref:`User Guide <measures>`.

    Parameters
    ----------
    relevance : {array-like, sparse matrix} of shape (n_queries, n_items)
        Positive if an item is relevant to a query, zero if it is not, negative if it is
        junk, which is not ranked. A boolean matrix is accepted.

    similarity : array-like of shape (n_queries, n_items)
        Larger is more similar. NaN is not allowed.

    ties : {"average", "threshold", "optimistic", "pessimistic", "index"}, \
            default="average"
        Order of items of equal similarity. "average" is the exact expectation over all
        orders. "threshold" treats them as one step of the precision-recall curve, as
        :func:`sklearn.metrics.average_precision_score` does. "optimistic" ranks
        relevant items first, "pessimistic" ranks them last, "index" ranks lower columns
        first.

    interpolation : {"step", "trapezoid"}, default="step"
        Integration of the precision-recall curve: by its right end points, as in
        trec_eval, or by trapezoids, as in the Oxford and revisited Oxford benchmarks.

    k : int, default=None
        Count only relevant items among the first `k`. None counts all.

    denominator : {"reachable", "relevant"}, default="reachable"
        Denominator if `k` is given. "reachable" is the smaller of `k` and the number of
        relevant items, so that a perfect list scores 1. "relevant" is the number of
        relevant items, as in trec_eval.

    empty : {"skip", "zero", "error"}, default="skip"
        Result for a query without a relevant item. "skip" returns NaN, which the mean
        ignores; "zero" returns 0; "error" raises an error.

    junk : {array-like, sparse matrix} of shape (n_queries, n_items) or array-like of \
            shape (n_items,), default=None
        Mask of the items to remove from the list of a query, or from all lists, before
        ranks are computed.

    average : bool, default=False
        Whether to return the mean over the queries instead of one value per query.

    sample_weight : array-like of shape (n_queries,), default=None
        Weights of the queries in the mean.

    n_jobs : int, default=None
        Number of threads. None means 1 unless in a :func:`joblib.parallel_config`
        context, -1 means all cores.

    Returns
    -------
    value : ndarray of shape (n_queries,) or float
        One value per query, or their mean with ``average=True``.

    Examples
    --------
    >>> from sklearn_simlearn.metrics import average_precision
    >>> average_precision([[1, 0, 1], [0, 1, 0]], [[0.9, 0.8, 0.7], [0.1, 0.9, 0.5]])
    array([0.833..., 1.        ])
    """
    lists = Lists(relevance, similarity, junk, ties, n_jobs)
    return measure_matrices(
        "map",
        lists,
        empty,
        average,
        sample_weight,
        interpolation=interpolation,
        k=k,
        denominator=denominator,
    )


def mean_average_precision(
    relevance: MatrixLike,
    similarity: ArrayLike,
    *,
    ties: Ties | Literal["threshold"] = "average",
    interpolation: Literal["step", "trapezoid"] = "step",
    k: int | None = None,
    denominator: Literal["reachable", "relevant"] = "reachable",
    empty: Empty = "skip",
    junk: MatrixLike | None = None,
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> float:
    """Compute the mean of :func:`average_precision` over the queries.

    Parameters
    ----------
    relevance : {array-like, sparse matrix} of shape (n_queries, n_items)
        Positive if an item is relevant to a query, zero if it is not, negative if it is
        junk, which is not ranked. A boolean matrix is accepted.

    similarity : array-like of shape (n_queries, n_items)
        Larger is more similar. NaN is not allowed.

    ties : {"average", "threshold", "optimistic", "pessimistic", "index"}, \
            default="average"
        Order of items of equal similarity. "average" is the exact expectation over all
        orders. "threshold" treats them as one step of the precision-recall curve, as
        :func:`sklearn.metrics.average_precision_score` does. "optimistic" ranks
        relevant items first, "pessimistic" ranks them last, "index" ranks lower columns
        first.

    interpolation : {"step", "trapezoid"}, default="step"
        Integration of the precision-recall curve: by its right end points, as in
        trec_eval, or by trapezoids, as in the Oxford and revisited Oxford benchmarks.

    k : int, default=None
        Count only relevant items among the first `k`. None counts all.

    denominator : {"reachable", "relevant"}, default="reachable"
        Denominator if `k` is given. "reachable" is the smaller of `k` and the number of
        relevant items, so that a perfect list scores 1. "relevant" is the number of
        relevant items, as in trec_eval.

    empty : {"skip", "zero", "error"}, default="skip"
        Result for a query without a relevant item. "skip" returns NaN, which the mean
        ignores; "zero" returns 0; "error" raises an error.

    junk : {array-like, sparse matrix} of shape (n_queries, n_items) or array-like of \
            shape (n_items,), default=None
        Mask of the items to remove from the list of a query, or from all lists, before
        ranks are computed.

    sample_weight : array-like of shape (n_queries,), default=None
        Weights of the queries in the mean.

    n_jobs : int, default=None
        Number of threads. None means 1 unless in a :func:`joblib.parallel_config`
        context, -1 means all cores.

    Returns
    -------
    map : float
        Between 0 and 1.

    Examples
    --------
    >>> from sklearn_simlearn.metrics import mean_average_precision
    >>> mean_average_precision([[1, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]])
    0.9166...
    """
    mean = average_precision(
        relevance,
        similarity,
        ties=ties,
        interpolation=interpolation,
        k=k,
        denominator=denominator,
        empty=empty,
        junk=junk,
        average=True,
        sample_weight=sample_weight,
        n_jobs=n_jobs,
    )
    return float(mean)


@validate_params(
    COMMON_CONSTRAINTS | {"recall_levels": ["array-like", None]},
    prefer_skip_nested_validation=True,
)
def precision_recall_curve(
    relevance: MatrixLike,
    similarity: ArrayLike,
    *,
    recall_levels: ArrayLike | None = None,
    ties: Ties = "average",
    empty: Empty = "skip",
    junk: MatrixLike | None = None,
    average: bool = True,
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the mean interpolated precision at fixed levels of recall.

    The precision at recall r is the highest precision at any rank where the recall is
    at least r, as in trec_eval.

    Parameters
    ----------
    relevance : {array-like, sparse matrix} of shape (n_queries, n_items)
        Positive if an item is relevant to a query, zero if it is not, negative if it is
        junk, which is not ranked.

    similarity : array-like of shape (n_queries, n_items)
        Larger is more similar. NaN is not allowed.

    recall_levels : array-like of shape (n_levels,), default=None
        Levels of recall between 0 and 1; 0, 0.01, ..., 1 if None.

    ties : {"average", "optimistic", "pessimistic", "index"}, default="average"
        Order of items of equal similarity. "average" spreads relevant items evenly
        among the others, "optimistic" ranks them first, "pessimistic" ranks them last,
        "index" ranks lower columns first.

    empty : {"skip", "zero", "error"}, default="skip"
        Result for a query without a relevant item, as for :func:`average_precision`.

    junk : {array-like, sparse matrix} of shape (n_queries, n_items) or array-like of \
            shape (n_items,), default=None
        Items to remove from the lists, as for :func:`average_precision`.

    average : bool, default=True
        Whether to return the mean curve instead of one curve per query.

    sample_weight : array-like of shape (n_queries,), default=None
        Weights of the queries in the mean.

    n_jobs : int, default=None
        Number of threads.

    Returns
    -------
    precision : ndarray of shape (n_levels,) or (n_queries, n_levels)
        Mean curve, or one curve per query with ``average=False``.

    recall : ndarray of shape (n_levels,)
        The levels of recall.

    Examples
    --------
    >>> from sklearn_simlearn.metrics import precision_recall_curve
    >>> precision_recall_curve([[1, 0, 1]], [[9, 8, 7]], recall_levels=[0.5, 1])
    (array([1.        , 0.666...]), array([0.5, 1. ]))
    """
    levels = check_recall_levels(recall_levels)
    lists = check_lists(Lists(relevance, similarity, junk, ties, n_jobs))
    if sample_weight is not None:
        sample_weight = check_query_weight(sample_weight, lists.similarity)
    curve = values_per_query(lambda ranks: interpolated_precision(ranks, levels), lists)
    curve = settle_empty(curve, empty)
    if average:
        curve = np.array([mean_over_queries(c, sample_weight) for c in curve.T])
    return curve, levels


def interpolated_precision(ranks: Ranks, levels: np.ndarray) -> np.ndarray:
    """Return the highest precision at or above each recall; NaN if none is relevant."""
    best = np.empty(len(ranks.n_above))
    best_precision_from(ranks.offsets, ranks.n_above, ranks.n_tied, best)
    # Index of the relevant item at which recall reaches the level. 1e-9 compensates for
    # the rounding of levels such as 0.1.
    some = ranks.n_relevant > 0
    place = np.ceil(ranks.n_relevant[some, None] * levels - 1e-9).astype(np.int64) - 1
    curve = np.full((len(some), len(levels)), np.nan)
    curve[some] = best[ranks.offsets[:-1][some, None] + np.maximum(place, 0)]
    return curve


def check_recall_levels(levels: ArrayLike | None) -> np.ndarray:
    """Return checked levels of recall; 0, 0.01, ..., 1 if None."""
    if levels is None:
        return np.linspace(0, 1, 101)
    levels = np.asarray(levels, dtype=np.float64)
    if levels.ndim != 1 or not ((levels >= 0) & (levels <= 1)).all():
        raise ValueError("recall_levels must be a list of numbers between 0 and 1.")
    return levels
