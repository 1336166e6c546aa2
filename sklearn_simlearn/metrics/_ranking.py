"""Ranking measures of a relevance matrix and a similarity matrix."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from sklearn_simlearn._core.sklearn import validate_params
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn.metrics._measure import (
    COMMON_CONSTRAINTS,
    MEASURES,
    Empty,
    Ties,
)
from sklearn_simlearn.metrics._queries import Lists, measure_matrices


@validate_params(
    COMMON_CONSTRAINTS | MEASURES["precision"].constraints,
    prefer_skip_nested_validation=True,
)
def precision_at_k(
    relevance: MatrixLike,
    similarity: ArrayLike,
    k: int = 10,
    *,
    ties: Ties = "average",
    empty: Empty = "skip",
    junk: MatrixLike | None = None,
    average: bool = False,
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> np.ndarray | float:
    """Compute the share of relevant items among the first `k`.

    Parameters
    ----------
    relevance : {array-like, sparse matrix} of shape (n_queries, n_items)
        Positive if an item is relevant to a query, zero if it is not, negative if it is
        junk, which is not ranked. A boolean matrix is accepted.

    similarity : array-like of shape (n_queries, n_items)
        Larger is more similar. NaN is not allowed.

    k : int, default=10
        Number of ranks. The denominator is always `k`, even if a list is shorter or has
        fewer relevant items.

    ties : {"average", "optimistic", "pessimistic", "index"}, default="average"
        Order of items of equal similarity. "average" is the exact expectation over all
        orders. "optimistic" ranks relevant items first, "pessimistic" ranks them last,
        "index" ranks lower columns first.

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
    >>> from sklearn_simlearn.metrics import precision_at_k
    >>> precision_at_k([[1, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]], k=2)
    array([0.5, 0.5])
    """
    lists = Lists(relevance, similarity, junk, ties, n_jobs)
    return measure_matrices("precision", lists, empty, average, sample_weight, k=k)


@validate_params(
    COMMON_CONSTRAINTS | MEASURES["recall"].constraints,
    prefer_skip_nested_validation=True,
)
def recall_at_k(
    relevance: MatrixLike,
    similarity: ArrayLike,
    k: int = 10,
    *,
    ties: Ties = "average",
    empty: Empty = "skip",
    junk: MatrixLike | None = None,
    average: bool = False,
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> np.ndarray | float:
    """Compute the share of the relevant items that are among the first `k`.

    Parameters
    ----------
    relevance : {array-like, sparse matrix} of shape (n_queries, n_items)
        Positive if an item is relevant to a query, zero if it is not, negative if it is
        junk, which is not ranked. A boolean matrix is accepted.

    similarity : array-like of shape (n_queries, n_items)
        Larger is more similar. NaN is not allowed.

    k : int, default=10
        Number of ranks. The denominator is the number of relevant items, even if it
        exceeds `k`.

    ties : {"average", "optimistic", "pessimistic", "index"}, default="average"
        Order of items of equal similarity. "average" is the exact expectation over all
        orders. "optimistic" ranks relevant items first, "pessimistic" ranks them last,
        "index" ranks lower columns first.

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
    >>> from sklearn_simlearn.metrics import recall_at_k
    >>> recall_at_k([[1, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]], k=2)
    array([0.5, 1. ])
    """
    lists = Lists(relevance, similarity, junk, ties, n_jobs)
    return measure_matrices("recall", lists, empty, average, sample_weight, k=k)


@validate_params(
    COMMON_CONSTRAINTS | MEASURES["r_precision"].constraints,
    prefer_skip_nested_validation=True,
)
def r_precision(
    relevance: MatrixLike,
    similarity: ArrayLike,
    *,
    ties: Ties = "average",
    empty: Empty = "skip",
    junk: MatrixLike | None = None,
    average: bool = False,
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> np.ndarray | float:
    """Compute the precision at the rank that equals the number of relevant items.

    Parameters
    ----------
    relevance : {array-like, sparse matrix} of shape (n_queries, n_items)
        Positive if an item is relevant to a query, zero if it is not, negative if it is
        junk, which is not ranked. A boolean matrix is accepted.

    similarity : array-like of shape (n_queries, n_items)
        Larger is more similar. NaN is not allowed.

    ties : {"average", "optimistic", "pessimistic", "index"}, default="average"
        Order of items of equal similarity. "average" is the exact expectation over all
        orders. "optimistic" ranks relevant items first, "pessimistic" ranks them last,
        "index" ranks lower columns first.

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
    >>> from sklearn_simlearn.metrics import r_precision
    >>> r_precision([[1, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]])
    array([0.5, 1. ])
    """
    lists = Lists(relevance, similarity, junk, ties, n_jobs)
    return measure_matrices("r_precision", lists, empty, average, sample_weight)


@validate_params(
    COMMON_CONSTRAINTS | MEASURES["reciprocal_rank"].constraints,
    prefer_skip_nested_validation=True,
)
def reciprocal_rank(
    relevance: MatrixLike,
    similarity: ArrayLike,
    *,
    k: int | None = None,
    ties: Ties = "average",
    empty: Empty = "skip",
    junk: MatrixLike | None = None,
    average: bool = False,
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> np.ndarray | float:
    """Compute the reciprocal of the rank of the first relevant item.

    Parameters
    ----------
    relevance : {array-like, sparse matrix} of shape (n_queries, n_items)
        Positive if an item is relevant to a query, zero if it is not, negative if it is
        junk, which is not ranked. A boolean matrix is accepted.

    similarity : array-like of shape (n_queries, n_items)
        Larger is more similar. NaN is not allowed.

    k : int, default=None
        Last rank that counts. The value is zero if the first relevant item is after
        rank `k`. None counts all ranks.

    ties : {"average", "optimistic", "pessimistic", "index"}, default="average"
        Order of items of equal similarity. "average" is the exact expectation over all
        orders. "optimistic" ranks relevant items first, "pessimistic" ranks them last,
        "index" ranks lower columns first.

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
    >>> from sklearn_simlearn.metrics import reciprocal_rank
    >>> reciprocal_rank([[0, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]])
    array([0.333..., 1.        ])
    """
    lists = Lists(relevance, similarity, junk, ties, n_jobs)
    return measure_matrices(
        "reciprocal_rank", lists, empty, average, sample_weight, k=k
    )


@validate_params(
    COMMON_CONSTRAINTS | MEASURES["ndcg"].constraints,
    prefer_skip_nested_validation=True,
)
def ndcg_at_k(
    relevance: MatrixLike,
    similarity: ArrayLike,
    k: int | None = None,
    *,
    gain: Literal["linear", "exponential"] = "linear",
    ties: Ties = "average",
    empty: Empty = "skip",
    junk: MatrixLike | None = None,
    average: bool = False,
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> np.ndarray | float:
    """Compute the normalised discounted cumulative gain of the first `k` items.

    Parameters
    ----------
    relevance : {array-like, sparse matrix} of shape (n_queries, n_items)
        Positive if an item is relevant to a query, zero if it is not, negative if it is
        junk, which is not ranked. A boolean matrix is accepted.

    similarity : array-like of shape (n_queries, n_items)
        Larger is more similar. NaN is not allowed.

    k : int, default=None
        Number of ranks that count; all if None. The denominator is the gain of the best
        possible list, which is also cut off at `k`.

    gain : {"linear", "exponential"}, default="linear"
        Gain of an item: its relevance, as in :func:`sklearn.metrics.ndcg_score`, or
        ``2 ** relevance - 1``. The gain at rank r is multiplied by
        ``1 / log2(r + 1)``.

    ties : {"average", "optimistic", "pessimistic", "index"}, default="average"
        Order of items of equal similarity. "average" is the exact expectation over all
        orders. "optimistic" ranks larger gains first, "pessimistic" ranks them last,
        "index" ranks lower columns first.

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
    >>> from sklearn_simlearn.metrics import ndcg_at_k
    >>> ndcg_at_k([[3, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]])
    array([0.963..., 1.        ])
    """
    lists = Lists(relevance, similarity, junk, ties, n_jobs)
    return measure_matrices(
        "ndcg", lists, empty, average, sample_weight, k=k, gain=gain
    )


@validate_params(
    COMMON_CONSTRAINTS | MEASURES["top4"].constraints,
    prefer_skip_nested_validation=True,
)
def top4_score(
    relevance: MatrixLike,
    similarity: ArrayLike,
    *,
    ties: Ties = "average",
    empty: Empty = "skip",
    junk: MatrixLike | None = None,
    average: bool = False,
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> np.ndarray | float:
    """Count the relevant items among the first four: the N-S score of UKbench.

    Every object of UKbench has four images. Each image queries all images, including
    itself, so the perfect score is 4. The matrices `relevance` and `similarity` must
    therefore contain the query itself, if it is in the database.

    Parameters
    ----------
    relevance : {array-like, sparse matrix} of shape (n_queries, n_items)
        Positive if an item is relevant to a query, zero if it is not, negative if it is
        junk, which is not ranked. A boolean matrix is accepted.

    similarity : array-like of shape (n_queries, n_items)
        Larger is more similar. NaN is not allowed.

    ties : {"average", "optimistic", "pessimistic", "index"}, default="average"
        Order of items of equal similarity. "average" is the exact expectation over all
        orders. "optimistic" ranks relevant items first, "pessimistic" ranks them last,
        "index" ranks lower columns first.

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
    >>> from sklearn_simlearn.metrics import top4_score
    >>> top4_score([[1, 1, 0, 1, 1, 0]], [[9, 8, 7, 6, 5, 4]])
    array([3.])
    """
    lists = Lists(relevance, similarity, junk, ties, n_jobs)
    return measure_matrices("top4", lists, empty, average, sample_weight)
