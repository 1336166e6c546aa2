"""Ranking measures over a relevance and a similarity matrix.

Each measure needs only the ranks of the relevant items, which
:func:`rank_relevant_items` finds without sorting the whole list.
"""

from dataclasses import dataclass
from functools import partial
from numbers import Integral

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.utils import check_array, gen_batches
from sklearn.utils._chunking import get_chunk_n_rows
from sklearn.utils._param_validation import Interval, StrOptions, validate_params
from sklearn.utils.validation import _check_sample_weight

from sklearn_simlearn.metrics._ranking_fast import (
    best_precision_from,
    count_hits,
    first_reciprocal_rank,
    rank_relevant,
    sum_precisions,
)

# The codes of the kernel. Scikit-learn's way with ties, "threshold", starts from the
# same intervals of ranks as "average" and differs in what it sums.
TIES = {"average": 0, "threshold": 0, "optimistic": 1, "pessimistic": 2, "index": 3}

# Choices that several measures share; `_TIES` leaves out "threshold", which knows
# thresholds on the score but no ranks.
_TIES = {"ties": [StrOptions(set(TIES) - {"threshold"})]}
_CUT = {"k": [Interval(Integral, 1, None, closed="left"), None]}
_COMMON = {
    "relevance": ["array-like", "sparse matrix"],
    "similarity": ["array-like"],
    "empty": [StrOptions({"skip", "zero", "error"})],
    "junk": ["array-like", "sparse matrix", None],
    "average": ["boolean"],
    "sample_weight": ["array-like", None],
    "n_jobs": [Integral, None],
}


@dataclass
class Ranks:
    """Ranks of the relevant items of several queries, best first.

    Attributes
    ----------
    offsets : ndarray of shape (n_queries + 1,)
        Query i owns the slots ``offsets[i]`` to ``offsets[i + 1] - 1`` of the others.

    n_above, n_tied : ndarray of shape (n_slots,)
        The item occupies one of the ranks ``n_above + 1`` to ``n_above + n_tied``.

    item : ndarray of shape (n_slots,)
        Its column.
    """

    offsets: np.ndarray
    n_above: np.ndarray
    n_tied: np.ndarray
    item: np.ndarray
    relevance: np.ndarray
    similarity: np.ndarray

    @property
    def n_relevant(self):
        return np.diff(self.offsets)

    @property
    def query(self):
        """Query of each slot."""
        return np.repeat(np.arange(len(self.n_relevant)), self.n_relevant)

    @property
    def place(self):
        """Position of each slot among the relevant items of its query, from 0."""
        return np.arange(len(self.item)) - np.repeat(self.offsets[:-1], self.n_relevant)


def rank_relevant_items(relevance, similarity, *, ties="average", n_jobs=None):
    """Ranks of the relevant items, for sound input.

    Parameters
    ----------
    relevance : ndarray of shape (n_queries, n_items)
        Positive where relevant, zero where not, negative where the item is taken off
        the query's list.

    similarity : ndarray of shape (n_queries, n_items), float32 or float64
        Larger is more similar; no NaN.

    ties : {"average", "threshold", "optimistic", "pessimistic", "index"}
        What becomes of items of equal similarity.

    n_jobs : int, default=None
        Threads, by joblib's convention.

    Returns
    -------
    ranks : Ranks
    """
    sign = relevance
    if relevance.dtype != np.int8:
        sign = np.sign(relevance).astype(np.int8)
    n_relevant = np.count_nonzero(sign > 0, axis=1)
    offsets = np.concatenate([[0], np.cumsum(n_relevant)]).astype(np.int64)
    n_above, n_tied, item = np.empty((3, offsets[-1]), dtype=np.int32)
    rank_relevant(
        np.ascontiguousarray(similarity),
        np.ascontiguousarray(sign),
        offsets,
        TIES[ties],
        min(effective_n_jobs(n_jobs), max(1, len(sign))),
        n_above,
        n_tied,
        item,
    )
    return Ranks(offsets, n_above, n_tied, item, relevance, similarity)


# -- Measures of ranks: one value a query, NaN where nothing is relevant --


def _average_precision(ranks, *, ties, interpolation, k, denominator="reachable"):
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
    n_relevant = ranks.n_relevant
    if k is not None and denominator == "reachable":
        n_relevant = np.minimum(n_relevant, k)
    return _divide(total, n_relevant)


def _hits_at_k(ranks, k):
    hits = np.empty(len(ranks.n_relevant))
    k = np.broadcast_to(np.asarray(k, dtype=np.int64), hits.shape)
    count_hits(
        ranks.offsets, ranks.n_above, ranks.n_tied, np.ascontiguousarray(k), hits
    )
    return hits


def _precision_at_k(ranks, k):
    return _blank(_hits_at_k(ranks, k) / k, ranks)


def _recall_at_k(ranks, k):
    return _divide(_hits_at_k(ranks, k), ranks.n_relevant)


def _r_precision(ranks):
    return _divide(_hits_at_k(ranks, ranks.n_relevant), ranks.n_relevant)


def _top4_score(ranks):
    return _blank(_hits_at_k(ranks, 4), ranks)


def _reciprocal_rank(ranks, k):
    out = np.empty(len(ranks.n_relevant))
    k = np.iinfo(np.int64).max if k is None else k
    first_reciprocal_rank(ranks.offsets, ranks.n_above, ranks.n_tied, k, out)
    return _blank(out, ranks)


def _ndcg_at_k(ranks, *, k, ties, gain="linear"):
    n_queries, query, place = len(ranks.n_relevant), ranks.query, ranks.place
    value = ranks.relevance[query, ranks.item].astype(np.float64)
    if gain == "exponential":
        value = np.exp2(value) - 1
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
    return _divide(dcg, ideal)


def _interpolated_precision(ranks, levels):
    best = np.empty(len(ranks.n_above))
    best_precision_from(ranks.offsets, ranks.n_above, ranks.n_tied, best)
    # The first relevant item at which recall reaches the level, where 1e-9 forgives
    # the rounding of levels such as 0.1.
    some = ranks.n_relevant > 0
    place = np.ceil(ranks.n_relevant[some, None] * levels - 1e-9).astype(np.int64) - 1
    curve = np.full((len(some), len(levels)), np.nan)
    curve[some] = best[ranks.offsets[:-1][some, None] + np.maximum(place, 0)]
    return curve


def _divide(value, by):
    """value / by, NaN where `by` is zero."""
    out = np.full(len(value), np.nan)
    return np.divide(value, by, out=out, where=by > 0)


def _blank(value, ranks):
    """NaN where a query has nothing relevant."""
    return np.where(ranks.n_relevant > 0, value, np.nan)


def settle_empty(value, empty):
    """Per-query values with the queries of no relevant item skipped, 0, or refused."""
    nothing = np.isnan(value) if value.ndim == 1 else np.isnan(value[:, 0])
    if empty == "error" and nothing.any():
        raise ValueError(
            f"{np.count_nonzero(nothing)} of {len(value)} queries have no relevant "
            'item. Pass empty="skip" to leave them out or empty="zero" to count them '
            "as 0."
        )
    if empty == "zero":
        value[nothing] = 0.0
    return value


def mean_over_queries(value, sample_weight=None):
    """Mean over the queries that have a value; weighted if asked."""
    counts = ~np.isnan(value)
    if not counts.any():
        raise ValueError(
            "No query has a relevant item, so there is nothing to average: every "
            "label occurs once, or the relevance is all zero."
        )
    weight = None if sample_weight is None else sample_weight[counts]
    return float(np.average(value[counts], weights=weight))


# -- Public functions --

_PARAMETERS = """relevance : {array-like, sparse matrix} of shape (n_queries, n_items)
        Positive where an item is relevant to a query, zero where it is not, negative
        where it is junk. Booleans will do.

    similarity : array-like of shape (n_queries, n_items)
        Larger is more similar; no NaN."""

_OPTIONS = """empty : {"skip", "zero", "error"}, default="skip"
        What a query with no relevant item is worth: nothing at all (NaN in the
        per-query values, left out of the mean), zero, or an error.

    junk : {array-like, sparse matrix} of shape (n_queries, n_items) or \
            array-like of shape (n_items,), default=None
        True where an item is taken off a query's list, or off every list, before
        ranks are counted.

    average : bool, default=False
        Return the mean over the queries instead of one value a query.

    sample_weight : array-like of shape (n_queries,), default=None
        Weights of the queries in the mean.

    n_jobs : int, default=None
        Threads over the queries. None means 1 unless in a
        :func:`joblib.parallel_config` context, -1 all cores."""

_TIES_OPTION = """ties : {"average", "optimistic", "pessimistic", "index"}, \
            default="average"
        What becomes of items of equal similarity: the exact expectation over all
        their orders, relevant ones first, relevant ones last, or lower columns
        first."""

_RETURNS = """value : ndarray of shape (n_queries,) or float
        One value a query, or their mean with ``average=True``."""


def _documented(function):
    """Fill in the parts that the docstrings of all measures share."""
    function.__doc__ = (
        function.__doc__.replace("%(parameters)s", _PARAMETERS)
        .replace("%(options)s", _OPTIONS)
        .replace("%(ties)s", _TIES_OPTION)
        .replace("%(returns)s", _RETURNS)
    )
    return function


def _per_query(measure, relevance, similarity, *, junk, ties, n_jobs):
    """Check the input and measure its ranks, in blocks that bound the scratch."""
    similarity = check_array(
        similarity,
        dtype=[np.float64, np.float32],
        order="C",
        ensure_all_finite=False,
        input_name="similarity",
    )
    relevance = _check_mask(relevance, "relevance", similarity.shape)
    if junk is not None:
        if not sparse.issparse(junk) and np.ndim(junk) == 1:
            if len(junk) != similarity.shape[1]:
                raise ValueError(
                    f"junk has {len(junk)} entries for {similarity.shape[1]} items; "
                    "give one for each item, or a matrix of the shape of similarity."
                )
            junk = np.broadcast_to(junk, similarity.shape)
        junk = _check_mask(junk, "junk", similarity.shape)

    def measure_block(block):
        if np.isnan(similarity[block]).any():
            raise ValueError("similarity contains NaN: no rank can be given to it.")
        sign = _dense_rows(relevance, block)
        if junk is not None:
            sign = np.where(_dense_rows(junk, block) != 0, -1, sign)
        return measure(
            rank_relevant_items(sign, similarity[block], ties=ties, n_jobs=n_jobs)
        )

    n_queries, n_items = similarity.shape
    blocks = gen_batches(n_queries, rows_per_block(n_items, n_queries))
    return np.concatenate([measure_block(block) for block in blocks])


def rows_per_block(n_items, n_queries):
    """Queries whose similarity, relevance and ranks fit in the working memory."""
    return get_chunk_n_rows(32 * n_items, max_n_rows=n_queries)


def _dense_rows(matrix, block):
    rows = matrix[block]
    rows = rows.toarray() if sparse.issparse(rows) else rows
    return rows.view(np.int8) if rows.dtype == bool else rows


def _check_mask(mask, name, shape):
    mask = check_array(mask, accept_sparse="csr", dtype=None, input_name=name)
    if mask.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold booleans or numbers; got {mask.dtype}.")
    if mask.shape != shape:
        raise ValueError(
            f"{name} and similarity must have the same shape; got {mask.shape} and "
            f"{shape}."
        )
    return mask


def _finish(value, empty, average, sample_weight):
    if sample_weight is not None:
        sample_weight = _check_sample_weight(sample_weight, value)
    value = settle_empty(value, empty)
    return mean_over_queries(value, sample_weight) if average else value


@_documented
@validate_params(
    _COMMON
    | _CUT
    | {
        "ties": [StrOptions(set(TIES))],
        "interpolation": [StrOptions({"step", "trapezoid"})],
        "denominator": [StrOptions({"reachable", "relevant"})],
    },
    prefer_skip_nested_validation=True,
)
def average_precision(
    relevance,
    similarity,
    *,
    ties="average",
    interpolation="step",
    k=None,
    denominator="reachable",
    empty="skip",
    junk=None,
    average=False,
    sample_weight=None,
    n_jobs=None,
):
    """Average precision of each query.

    The mean, over the relevant items of a query, of the precision at their ranks.
    Published figures differ by the choices below; see the
    :ref:`User Guide <measures>`.

    Parameters
    ----------
    %(parameters)s

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

    %(options)s

    Returns
    -------
    %(returns)s

    Examples
    --------
    >>> from sklearn_simlearn.metrics import average_precision
    >>> average_precision([[1, 0, 1], [0, 1, 0]], [[0.9, 0.8, 0.7], [0.1, 0.9, 0.5]])
    array([0.833..., 1.        ])
    """
    if ties == "threshold" and k is not None:
        raise ValueError(
            'ties="threshold" has no ranks to cut off at k: tied items are all in or '
            'all out. Use ties="average" with a cut-off.'
        )
    measure = partial(
        _average_precision,
        ties=ties,
        interpolation=interpolation,
        k=k,
        denominator=denominator,
    )
    value = _per_query(
        measure, relevance, similarity, junk=junk, ties=ties, n_jobs=n_jobs
    )
    return _finish(value, empty, average, sample_weight)


@_documented
def mean_average_precision(relevance, similarity, **options):
    """Mean over the queries of :func:`average_precision`.

    Parameters
    ----------
    %(parameters)s

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


@_documented
@validate_params(
    _COMMON | _TIES | {"k": [Interval(Integral, 1, None, closed="left")]},
    prefer_skip_nested_validation=True,
)
def precision_at_k(
    relevance,
    similarity,
    k=10,
    *,
    ties="average",
    empty="skip",
    junk=None,
    average=False,
    sample_weight=None,
    n_jobs=None,
):
    """Share of relevant items among the first `k`.

    Parameters
    ----------
    %(parameters)s

    k : int, default=10
        Number of ranks. The denominator is always `k`, also where a list is shorter or
        has fewer relevant items.

    %(ties)s

    %(options)s

    Returns
    -------
    %(returns)s

    Examples
    --------
    >>> from sklearn_simlearn.metrics import precision_at_k
    >>> precision_at_k([[1, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]], k=2)
    array([0.5, 0.5])
    """
    value = _per_query(
        partial(_precision_at_k, k=k),
        relevance,
        similarity,
        junk=junk,
        ties=ties,
        n_jobs=n_jobs,
    )
    return _finish(value, empty, average, sample_weight)


@_documented
@validate_params(
    _COMMON | _TIES | {"k": [Interval(Integral, 1, None, closed="left")]},
    prefer_skip_nested_validation=True,
)
def recall_at_k(
    relevance,
    similarity,
    k=10,
    *,
    ties="average",
    empty="skip",
    junk=None,
    average=False,
    sample_weight=None,
    n_jobs=None,
):
    """Share of the relevant items that are among the first `k`.

    Parameters
    ----------
    %(parameters)s

    k : int, default=10
        Number of ranks. The denominator is the number of relevant items, also where it
        exceeds `k`.

    %(ties)s

    %(options)s

    Returns
    -------
    %(returns)s

    Examples
    --------
    >>> from sklearn_simlearn.metrics import recall_at_k
    >>> recall_at_k([[1, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]], k=2)
    array([0.5, 1. ])
    """
    value = _per_query(
        partial(_recall_at_k, k=k),
        relevance,
        similarity,
        junk=junk,
        ties=ties,
        n_jobs=n_jobs,
    )
    return _finish(value, empty, average, sample_weight)


@_documented
@validate_params(_COMMON | _TIES, prefer_skip_nested_validation=True)
def r_precision(
    relevance,
    similarity,
    *,
    ties="average",
    empty="skip",
    junk=None,
    average=False,
    sample_weight=None,
    n_jobs=None,
):
    """Precision at the rank that equals the number of relevant items.

    Parameters
    ----------
    %(parameters)s

    %(ties)s

    %(options)s

    Returns
    -------
    %(returns)s

    Examples
    --------
    >>> from sklearn_simlearn.metrics import r_precision
    >>> r_precision([[1, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]])
    array([0.5, 1. ])
    """
    value = _per_query(
        _r_precision,
        relevance,
        similarity,
        junk=junk,
        ties=ties,
        n_jobs=n_jobs,
    )
    return _finish(value, empty, average, sample_weight)


@_documented
@validate_params(_COMMON | _TIES | _CUT, prefer_skip_nested_validation=True)
def reciprocal_rank(
    relevance,
    similarity,
    *,
    k=None,
    ties="average",
    empty="skip",
    junk=None,
    average=False,
    sample_weight=None,
    n_jobs=None,
):
    """One over the rank of the first relevant item.

    Parameters
    ----------
    %(parameters)s

    k : int, default=None
        Zero where the first relevant item comes after rank `k`.

    %(ties)s

    %(options)s

    Returns
    -------
    %(returns)s

    Examples
    --------
    >>> from sklearn_simlearn.metrics import reciprocal_rank
    >>> reciprocal_rank([[0, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]])
    array([0.333..., 1.        ])
    """
    value = _per_query(
        partial(_reciprocal_rank, k=k),
        relevance,
        similarity,
        junk=junk,
        ties=ties,
        n_jobs=n_jobs,
    )
    return _finish(value, empty, average, sample_weight)


@_documented
@validate_params(
    _COMMON | _TIES | _CUT | {"gain": [StrOptions({"linear", "exponential"})]},
    prefer_skip_nested_validation=True,
)
def ndcg_at_k(
    relevance,
    similarity,
    k=None,
    *,
    gain="linear",
    ties="average",
    empty="skip",
    junk=None,
    average=False,
    sample_weight=None,
    n_jobs=None,
):
    """Normalised discounted cumulative gain of the first `k` items.

    Parameters
    ----------
    %(parameters)s

    k : int, default=None
        Number of ranks that count; all of them if None. The denominator is the gain of
        the best possible list, cut off at `k` too.

    gain : {"linear", "exponential"}, default="linear"
        An item's gain is its relevance, as in :func:`sklearn.metrics.ndcg_score`, or
        ``2 ** relevance - 1``. The gain on rank r counts ``1 / log2(r + 1)``.

    %(ties)s

    %(options)s

    Returns
    -------
    %(returns)s

    Examples
    --------
    >>> from sklearn_simlearn.metrics import ndcg_at_k
    >>> ndcg_at_k([[3, 0, 1], [0, 1, 0]], [[9, 8, 7], [1, 9, 5]])
    array([0.963..., 1.        ])
    """
    measure = partial(_ndcg_at_k, k=k, ties=ties, gain=gain)
    value = _per_query(
        measure, relevance, similarity, junk=junk, ties=ties, n_jobs=n_jobs
    )
    return _finish(value, empty, average, sample_weight)


@_documented
@validate_params(_COMMON | _TIES, prefer_skip_nested_validation=True)
def top4_score(
    relevance,
    similarity,
    *,
    ties="average",
    empty="skip",
    junk=None,
    average=False,
    sample_weight=None,
    n_jobs=None,
):
    """Number of relevant items among the first four: UKbench's N-S score.

    Every object of UKbench has four images and each of them queries all images, itself
    included, so that 4 is perfect. A query that is in the database counts: leave it in
    `relevance` and `similarity`.

    Parameters
    ----------
    %(parameters)s

    %(ties)s

    %(options)s

    Returns
    -------
    %(returns)s

    Examples
    --------
    >>> from sklearn_simlearn.metrics import top4_score
    >>> top4_score([[1, 1, 0, 1, 1, 0]], [[9, 8, 7, 6, 5, 4]])
    array([3.])
    """
    value = _per_query(
        _top4_score, relevance, similarity, junk=junk, ties=ties, n_jobs=n_jobs
    )
    return _finish(value, empty, average, sample_weight)


@_documented
@validate_params(
    _COMMON | _TIES | {"recall_levels": ["array-like", None]},
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
    %(parameters)s

    recall_levels : array-like of shape (n_levels,), default=None
        Levels between 0 and 1; 0, 0.01, ..., 1 if None.

    ties : {"average", "optimistic", "pessimistic", "index"}, default="average"
        What becomes of items of equal similarity: relevant ones evenly mixed among
        the others, relevant ones first, relevant ones last, or lower columns first.

    %(options)s

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
    measure = partial(_interpolated_precision, levels=levels)
    curve = _per_query(
        measure, relevance, similarity, junk=junk, ties=ties, n_jobs=n_jobs
    )
    curve = settle_empty(curve, empty)
    if average:
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, curve)
        curve = np.array([mean_over_queries(c, sample_weight) for c in curve.T])
    return curve, levels


def check_recall_levels(levels):
    if levels is None:
        return np.linspace(0, 1, 101)
    levels = np.asarray(levels, dtype=np.float64)
    if levels.ndim != 1 or not ((levels >= 0) & (levels <= 1)).all():
        raise ValueError("recall_levels must be numbers between 0 and 1.")
    return levels
