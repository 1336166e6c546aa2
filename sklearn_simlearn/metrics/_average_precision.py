"""Average precision over a relevance and a similarity matrix."""

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
from sklearn_simlearn.metrics._queries import measure_matrices


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
    """Average precision of each query.

    The mean, over the relevant items of a query, of the precision at their ranks.
    Published figures differ by the choices below; see the
    :ref:`User Guide <measures>`.

    Parameters
    ----------
    relevance : {array-like, sparse matrix} of shape (n_queries, n_items)
        Positive where an item is relevant to a query, zero where it is not, negative
        where it is junk. A boolean matrix is accepted.

    similarity : array-like of shape (n_queries, n_items)
        Larger is more similar; no NaN.

    ties : {"average", "threshold", "optimistic", "pessimistic", "index"}, \
            default="average"
        Order of items of equal similarity: the exact expectation over all orders; one
        step of the precision-recall curve for all of them, as in
        :func:`sklearn.metrics.average_precision_score`; relevant ones first; relevant
        ones last; lower columns first.

    interpolation : {"step", "trapezoid"}, default="step"
        Area under the precision-recall curve by its right end points, as in
        trec_eval, or by the trapezoids of the Oxford and revisited Oxford benchmarks.

    k : int, default=None
        Count relevant items on the first `k` ranks only.

    denominator : {"reachable", "relevant"}, default="reachable"
        With a cut-off, divide by the smaller of `k` and the number of relevant items,
        so that a perfect list scores 1, or by the number of relevant items, as
        trec_eval does.

    empty : {"skip", "zero", "error"}, default="skip"
        Value of a query with no relevant item: NaN, which the mean leaves out, zero,
        or an error.

    junk : {array-like, sparse matrix} of shape (n_queries, n_items) or array-like of \
            shape (n_items,), default=None
        True where an item is taken off a query's list, or off every list, before ranks
        are counted.

    average : bool, default=False
        Return the mean over the queries instead of one value per query.

    sample_weight : array-like of shape (n_queries,), default=None
        Weights of the queries in the mean.

    n_jobs : int, default=None
        Threads over the queries. None means 1 unless in a
        :func:`joblib.parallel_config` context, -1 all cores.

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
    return measure_matrices(
        MEASURES["map"],
        relevance,
        similarity,
        {
            "ties": ties,
            "interpolation": interpolation,
            "k": k,
            "denominator": denominator,
        },
        ties=ties,
        empty=empty,
        junk=junk,
        average=average,
        sample_weight=sample_weight,
        n_jobs=n_jobs,
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
    """Mean over the queries of :func:`average_precision`.

    Parameters
    ----------
    relevance : {array-like, sparse matrix} of shape (n_queries, n_items)
        Positive where an item is relevant to a query, zero where it is not, negative
        where it is junk. A boolean matrix is accepted.

    similarity : array-like of shape (n_queries, n_items)
        Larger is more similar; no NaN.

    ties : {"average", "threshold", "optimistic", "pessimistic", "index"}, \
            default="average"
        Order of items of equal similarity: the exact expectation over all orders; one
        step of the precision-recall curve for all of them, as in
        :func:`sklearn.metrics.average_precision_score`; relevant ones first; relevant
        ones last; lower columns first.

    interpolation : {"step", "trapezoid"}, default="step"
        Area under the precision-recall curve by its right end points, as in
        trec_eval, or by the trapezoids of the Oxford and revisited Oxford benchmarks.

    k : int, default=None
        Count relevant items on the first `k` ranks only.

    denominator : {"reachable", "relevant"}, default="reachable"
        With a cut-off, divide by the smaller of `k` and the number of relevant items,
        so that a perfect list scores 1, or by the number of relevant items, as
        trec_eval does.

    empty : {"skip", "zero", "error"}, default="skip"
        Value of a query with no relevant item: NaN, which the mean leaves out, zero,
        or an error.

    junk : {array-like, sparse matrix} of shape (n_queries, n_items) or array-like of \
            shape (n_items,), default=None
        True where an item is taken off a query's list, or off every list, before ranks
        are counted.

    sample_weight : array-like of shape (n_queries,), default=None
        Weights of the queries in the mean.

    n_jobs : int, default=None
        Threads over the queries. None means 1 unless in a
        :func:`joblib.parallel_config` context, -1 all cores.

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
    return average_precision(
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
