"""The ranking measures, over a relevance and a similarity matrix."""

import numpy as np
from numpy.typing import ArrayLike

from sklearn_simlearn._core.sklearn import StrOptions, validate_params
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn.metrics._measure import (
    COMMON_CONSTRAINTS,
    CUT,
    TIES,
    Ranks,
    check_query_weight,
    mean_over_queries,
    measure,
    settle_empty,
    values_per_query,
)
from sklearn_simlearn.metrics._ranking_fast import (
    best_precision_from,
    count_hits,
    first_reciprocal_rank,
    sum_precisions,
)


def _refuse_threshold_with_cut(options):
    if options["ties"] == "threshold" and options["k"] is not None:
        raise ValueError(
            'ties="threshold" has no ranks to cut off at k: tied items are all in or '
            'all out. Use ties="average" with a cut-off.'
        )


@measure(
    "map",
    ties=[StrOptions(set(TIES))],
    interpolation=[StrOptions({"step", "trapezoid"})],
    k=[CUT, None],
    denominator=[StrOptions({"reachable", "relevant"})],
    check=_refuse_threshold_with_cut,
)
def average_precision(
    ranks, *, ties="average", interpolation="step", k=None, denominator="reachable"
):
    """Average precision of each query.

    The mean, over the relevant items of a query, of the precision at their ranks.
    Published figures differ by the choices below; see the
    :ref:`User Guide <measures>`.

    Parameters
    ----------
    ties : {"average", "threshold", "optimistic", "pessimistic", "index"}, \
            default="average"
        What becomes of items of equal similarity: the exact expectation over all
        their orders; one step of the precision-recall curve for all of them, as in
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

    Examples
    --------
    >>> from sklearn_simlearn.metrics import average_precision
    >>> average_precision([[1, 0, 1], [0, 1, 0]], [[0.9, 0.8, 0.7], [0.1, 0.9, 0.5]])
    array([0.833..., 1.        ])
    """
    total = np.empty(len(ranks.n_relevant))
    sum_precisions(
        ranks.offsets,
        ranks.n_above,
        ranks.n_tied,
        np.iinfo(np.int64).max if k is None else k,
        interpolation == "trapezoid",
        ties == "threshold",
        total,
    )
    n_relevant = np.maximum(ranks.n_relevant, 1)
    if k is not None and denominator == "reachable":
        n_relevant = np.minimum(n_relevant, k)
    return total / n_relevant


def mean_average_precision(
    relevance: MatrixLike, similarity: ArrayLike, **options
) -> float:
    """Mean over the queries of :func:`average_precision`.

    Parameters
    ----------
    relevance : {array-like, sparse matrix} of shape (n_queries, n_items)
        Positive where an item is relevant to a query, zero where it is not, negative
        where it is junk.

    similarity : array-like of shape (n_queries, n_items)
        Larger is more similar; no NaN.

    **options : dict
        Any other argument of :func:`average_precision`.

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
    return average_precision(relevance, similarity, average=True, **options)


def _hits_at_k(ranks, k):
    hits = np.empty(len(ranks.n_relevant))
    k = np.broadcast_to(np.asarray(k, dtype=np.int64), hits.shape)
    count_hits(
        ranks.offsets, ranks.n_above, ranks.n_tied, np.ascontiguousarray(k), hits
    )
    return hits


@measure("precision", k=[CUT])
def precision_at_k(ranks, k=10):
    """Share of relevant items among the first `k`.

    Parameters
    ----------
    k : int, default=10
        Number of ranks. The denominator is always `k`, also where a list is shorter or
        has fewer relevant items.

    Examples
    --------
    >>> from sklearn_simlearn.metrics import precision_at_k
    >>> precision_at_k([[1, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]], k=2)
    array([0.5, 0.5])
    """
    return _hits_at_k(ranks, k) / k


@measure("recall", k=[CUT])
def recall_at_k(ranks, k=10):
    """Share of the relevant items that are among the first `k`.

    Parameters
    ----------
    k : int, default=10
        Number of ranks. The denominator is the number of relevant items, also where it
        exceeds `k`.

    Examples
    --------
    >>> from sklearn_simlearn.metrics import recall_at_k
    >>> recall_at_k([[1, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]], k=2)
    array([0.5, 1. ])
    """
    return _hits_at_k(ranks, k) / np.maximum(ranks.n_relevant, 1)


@measure("r_precision")
def r_precision(ranks):
    """Precision at the rank that equals the number of relevant items.

    Examples
    --------
    >>> from sklearn_simlearn.metrics import r_precision
    >>> r_precision([[1, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]])
    array([0.5, 1. ])
    """
    return _hits_at_k(ranks, ranks.n_relevant) / np.maximum(ranks.n_relevant, 1)


@measure("reciprocal_rank", k=[CUT, None])
def reciprocal_rank(ranks, *, k=None):
    """One over the rank of the first relevant item.

    Parameters
    ----------
    k : int, default=None
        Zero where the first relevant item comes after rank `k`.

    Examples
    --------
    >>> from sklearn_simlearn.metrics import reciprocal_rank
    >>> reciprocal_rank([[0, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]])
    array([0.333..., 1.        ])
    """
    out = np.empty(len(ranks.n_relevant))
    k = np.iinfo(np.int64).max if k is None else k
    first_reciprocal_rank(ranks.offsets, ranks.n_above, ranks.n_tied, k, out)
    return out


@measure(
    "ndcg",
    is_graded=True,
    k=[CUT, None],
    gain=[StrOptions({"linear", "exponential"})],
    ties=COMMON_CONSTRAINTS["ties"],
)
def ndcg_at_k(ranks, k=None, *, gain="linear", ties="average"):
    """Normalised discounted cumulative gain of the first `k` items.

    Parameters
    ----------
    k : int, default=None
        Number of ranks that count; all of them if None. The denominator is the gain of
        the best possible list, cut off at `k` too.

    gain : {"linear", "exponential"}, default="linear"
        An item's gain is its relevance, as in :func:`sklearn.metrics.ndcg_score`, or
        ``2 ** relevance - 1``. The gain on rank r counts ``1 / log2(r + 1)``.

    ties : {"average", "optimistic", "pessimistic", "index"}, default="average"
        What becomes of items of equal similarity: the exact expectation over all
        their orders, those of the largest gain first, those of the largest gain last,
        or lower columns first.

    Examples
    --------
    >>> from sklearn_simlearn.metrics import ndcg_at_k
    >>> ndcg_at_k([[3, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]])
    array([0.963..., 1.        ])
    """
    n_queries, query, place = len(ranks.n_relevant), ranks.query, ranks.place
    value = _relative_gains(ranks, gain)
    n_ranks = int((ranks.n_above + ranks.n_tied).max(initial=0))
    discount = 1 / np.log2(np.arange(2, n_ranks + 2))
    if k is not None:
        discount[k:] = 0
    best = value[np.lexsort((-value, query))]
    ideal = np.bincount(query, best * discount[place], minlength=n_queries)

    if ties in ("optimistic", "pessimistic"):
        # Relevant items of equal similarity hold consecutive ranks, but their gains
        # may differ: the first of these ranks goes to the largest, or the smallest.
        score = ranks.similarity[query, ranks.item]
        group = np.cumsum((place == 0) | (score != np.roll(score, 1)))
        value = value[np.lexsort((-value if ties == "optimistic" else value, group))]
    cumulative = np.concatenate([[0], np.cumsum(discount)])
    expected = cumulative[ranks.n_above + ranks.n_tied] - cumulative[ranks.n_above]
    dcg = np.bincount(query, value * expected / ranks.n_tied, minlength=n_queries)
    return dcg / np.where(ranks.n_relevant > 0, ideal, 1)


def _relative_gains(ranks, gain):
    """Gains over the largest of the query, which nDCG does not depend on.

    So none overflows. With r the relevance and m the largest of the query,
    (2^r - 1) / (2^m - 1) = 2^(r - m) (1 - 2^-r) / (1 - 2^-m).
    """
    relevance = ranks.relevance[ranks.query, ranks.item].astype(np.float64)
    some = ranks.n_relevant > 0
    if not some.any():
        return relevance
    largest = np.maximum.reduceat(relevance, ranks.offsets[:-1][some])
    largest = np.repeat(largest, ranks.n_relevant[some])
    if gain == "linear":
        return relevance / largest
    from_one = np.expm1(-np.log(2) * relevance) / np.expm1(-np.log(2) * largest)
    return np.exp2(relevance - largest) * from_one


@measure("top4", counts_self=True)
def top4_score(ranks):
    """Number of relevant items among the first four: UKbench's N-S score.

    Every object of UKbench has four images and each of them queries all images, itself
    included, so that 4 is perfect. A query that is in the database counts: leave it in
    `relevance` and `similarity`.

    Examples
    --------
    >>> from sklearn_simlearn.metrics import top4_score
    >>> top4_score([[1, 1, 0, 1, 1, 0]], [[9, 8, 7, 6, 5, 4]])
    array([3.])
    """
    return _hits_at_k(ranks, 4)


# -- curves --


@validate_params(
    COMMON_CONSTRAINTS | {"recall_levels": ["array-like", None]},
    prefer_skip_nested_validation=True,
)
def precision_recall_curve(
    relevance,
    similarity,
    *,
    recall_levels=None,
    ties="average",
    empty="skip",
    junk=None,
    average=True,
    sample_weight=None,
    n_jobs=None,
):
    """Interpolated precision at fixed levels of recall, averaged over the queries.

    The precision at recall r is the best precision at any rank where recall is at
    least r, the convention of trec_eval.

    Parameters
    ----------
    relevance : {array-like, sparse matrix} of shape (n_queries, n_items)
        Positive where an item is relevant to a query, zero where it is not, negative
        where it is junk.

    similarity : array-like of shape (n_queries, n_items)
        Larger is more similar; no NaN.

    recall_levels : array-like of shape (n_levels,), default=None
        Levels between 0 and 1; 0, 0.01, ..., 1 if None.

    ties : {"average", "optimistic", "pessimistic", "index"}, default="average"
        What becomes of items of equal similarity: relevant ones evenly mixed among
        the others, relevant ones first, relevant ones last, or lower columns first.

    empty : {"skip", "zero", "error"}, default="skip"
        What a query with no relevant item is worth, as for :func:`average_precision`.

    junk : {array-like, sparse matrix} of shape (n_queries, n_items) or array-like of \
            shape (n_items,), default=None
        Items to take off the lists, as for :func:`average_precision`.

    average : bool, default=True
        Return the mean curve instead of one curve per query.

    sample_weight : array-like of shape (n_queries,), default=None
        Weights of the queries in the mean.

    n_jobs : int, default=None
        Threads over the queries.

    Returns
    -------
    precision : ndarray of shape (n_levels,) or (n_queries, n_levels)
        Mean over the queries, or one curve each with ``average=False``.

    recall : ndarray of shape (n_levels,)
        The levels.

    Examples
    --------
    >>> from sklearn_simlearn.metrics import precision_recall_curve
    >>> precision_recall_curve([[1, 0, 1]], [[9, 8, 7]], recall_levels=[0.5, 1])
    (array([1.        , 0.666...]), array([0.5, 1. ]))
    """
    levels = check_recall_levels(recall_levels)
    curve = values_per_query(
        lambda ranks: interpolated_precision(ranks, levels),
        relevance,
        similarity,
        junk=junk,
        ties=ties,
        n_jobs=n_jobs,
    )
    curve = settle_empty(curve, empty)
    if average:
        if sample_weight is not None:
            sample_weight = check_query_weight(sample_weight, curve)
        curve = np.array([mean_over_queries(c, sample_weight) for c in curve.T])
    return curve, levels


def interpolated_precision(ranks: Ranks, levels: np.ndarray) -> np.ndarray:
    """Highest precision from each level of recall on, NaN where nothing is relevant."""
    best = np.empty(len(ranks.n_above))
    best_precision_from(ranks.offsets, ranks.n_above, ranks.n_tied, best)
    # The first relevant item at which recall reaches the level, where 1e-9 forgives
    # the rounding of levels such as 0.1.
    some = ranks.n_relevant > 0
    place = np.ceil(ranks.n_relevant[some, None] * levels - 1e-9).astype(np.int64) - 1
    curve = np.full((len(some), len(levels)), np.nan)
    curve[some] = best[ranks.offsets[:-1][some, None] + np.maximum(place, 0)]
    return curve


def check_recall_levels(levels: ArrayLike | None) -> np.ndarray:
    """Check levels of recall; 0, 0.01, ..., 1 if None."""
    if levels is None:
        return np.linspace(0, 1, 101)
    levels = np.asarray(levels, dtype=np.float64)
    if levels.ndim != 1 or not ((levels >= 0) & (levels <= 1)).all():
        raise ValueError("recall_levels must be numbers between 0 and 1.")
    return levels
