"""Ranking measures over a relevance and a similarity matrix.

A measure is a function of the ranks of the relevant items, which
:func:`rank_relevant_items` finds without sorting the whole list. The decorator
:func:`measure` makes a public function of it, and enters it into the table that the
scorer and the report go by.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from inspect import Parameter, Signature, cleandoc, signature
from numbers import Integral

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import check_array, gen_batches

from sklearn_simlearn._sklearn import (
    Interval,
    StrOptions,
    check_sample_weight,
    get_chunk_n_rows,
    validate_parameter_constraints,
    validate_params,
)
from sklearn_simlearn._typing import MatrixLike
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

CUT = Interval(Integral, 1, None, closed="left")
COMMON_CONSTRAINTS = {
    "relevance": ["array-like", "sparse matrix"],
    "similarity": ["array-like"],
    # Without "threshold", which knows thresholds on the score but no ranks.
    "ties": [StrOptions(set(TIES) - {"threshold"})],
    "empty": [StrOptions({"skip", "zero", "error"})],
    "junk": ["array-like", "sparse matrix", None],
    "average": ["boolean"],
    "sample_weight": ["array-like", None],
    "n_jobs": [Integral, None],
}


# -- ranks --


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

    relevance, similarity : ndarray of shape (n_queries, n_items)
        What the ranks were found from.
    """

    offsets: np.ndarray
    n_above: np.ndarray
    n_tied: np.ndarray
    item: np.ndarray
    relevance: np.ndarray
    similarity: np.ndarray

    @property
    def n_relevant(self) -> np.ndarray:
        return np.diff(self.offsets)

    @property
    def query(self) -> np.ndarray:
        """Query of each slot."""
        return np.repeat(np.arange(len(self.n_relevant)), self.n_relevant)

    @property
    def place(self) -> np.ndarray:
        """Position of each slot among the relevant items of its query, from 0."""
        return np.arange(len(self.item)) - np.repeat(self.offsets[:-1], self.n_relevant)


def rank_relevant_items(
    relevance: np.ndarray,
    similarity: np.ndarray,
    *,
    junk: np.ndarray | None = None,
    ties: str = "average",
    n_jobs: int | None = None,
) -> Ranks:
    """Ranks of the relevant items, for sound input.

    Parameters
    ----------
    relevance : ndarray of shape (n_queries, n_items)
        Positive where relevant, zero where not, negative where the item is taken off
        the query's list.

    similarity : ndarray of shape (n_queries, n_items), float32 or float64
        Larger is more similar; no NaN.

    junk : ndarray of shape (n_queries, n_items), default=None
        Not zero where an item is taken off the list, whatever its relevance.

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
    if junk is not None:
        sign = np.where(junk != 0, np.int8(-1), sign)
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


# -- what makes a measure of a function of ranks --


@dataclass(frozen=True)
class Measure:
    """A measure as the scorer and the report know it.

    Attributes
    ----------
    of_ranks : callable
        From :class:`Ranks`, and options, to one value per query. It need not care for
        queries with no relevant item.

    constraints : dict
        Of its options, in scikit-learn's terms.

    counts_self : bool
        Whether a query that is among the items counts, as relevant to itself. For the
        other measures it is taken off its own list.

    is_graded : bool
        Whether the weights of a relevance matrix matter.

    check : callable or None
        Called with the options, to refuse those that do not go together.
    """

    of_ranks: Callable[..., np.ndarray]
    constraints: dict
    counts_self: bool
    is_graded: bool
    check: Callable[[dict], None] | None

    @property
    def options(self) -> dict[str, Parameter]:
        _, *options = signature(self.of_ranks).parameters.values()
        return {option.name: option for option in options}

    def bind(self, **given) -> Callable[[Ranks], np.ndarray]:
        """The measure with its options set, the others at their defaults.

        Options that it does not have are refused, but for `ties`: ranks depend on it in
        any case.
        """
        known = self.options
        unknown = given.keys() - known.keys() - {"ties"}
        if unknown:
            raise ValueError(
                f"{self.of_ranks.__name__} has no option {min(unknown)!r}; it has "
                f"{', '.join(known) or 'none'}."
            )
        validate_parameter_constraints(
            {"ties": COMMON_CONSTRAINTS["ties"]} | self.constraints,
            given,
            caller_name=self.of_ranks.__name__,
        )
        options = {
            name: given.get(name, option.default) for name, option in known.items()
        }
        if self.check is not None:
            self.check(options)

        def value_per_query(ranks):
            value = np.asarray(self.of_ranks(ranks, **options), dtype=np.float64)
            value[ranks.n_relevant == 0] = np.nan
            return value

        return value_per_query


MEASURES: dict[str, Measure] = {}


def measure(
    name: str,
    *,
    counts_self: bool = False,
    is_graded: bool = False,
    check: Callable[[dict], None] | None = None,
    **constraints,
):
    """Decorator: make a public function of a function of ranks, and enter it as `name`.

    The public function takes the relevance and the similarity, then the options of the
    decorated one, then the options that all measures share. It has a signature and a
    docstring to match: the docstring of the decorated function describes its own
    options and gives examples, the rest is added.
    """

    def register(of_ranks):
        entry = Measure(of_ranks, constraints, counts_self, is_graded, check)
        MEASURES[name] = entry

        def function(*args, **kwargs):
            given = function.__signature__.bind(*args, **kwargs)
            given.apply_defaults()
            return _measure_matrices(entry, **given.arguments)

        update_wrapper(function, of_ranks)
        del function.__wrapped__  # it takes ranks, and is not what help should show
        function.__signature__ = _public_signature(entry)
        function.__doc__ = _public_docstring(of_ranks, entry)
        return validate_params(
            COMMON_CONSTRAINTS | constraints, prefer_skip_nested_validation=True
        )(function)

    return register


def _measure_matrices(
    entry,
    relevance,
    similarity,
    *,
    ties="average",
    empty="skip",
    junk=None,
    average=False,
    sample_weight=None,
    n_jobs=None,
    **options,
):
    """What every public measure does; its arguments are those they share."""
    if "ties" in entry.options:
        options["ties"] = ties
    value = _per_query(
        entry.bind(**options),
        relevance,
        similarity,
        junk=junk,
        ties=ties,
        n_jobs=n_jobs,
    )
    if sample_weight is not None:
        sample_weight = check_query_weight(sample_weight, value)
    value = settle_empty(value, empty)
    return mean_over_queries(value, sample_weight) if average else value


def _public_signature(entry):
    _, *shared = signature(_measure_matrices).parameters.values()
    own = entry.options
    shared = [
        p for p in shared if p.name not in own and p.kind != Parameter.VAR_KEYWORD
    ]
    # Stable: options that may be given by position stay before the others.
    parameters = [*shared[:2], *own.values(), *shared[2:]]
    return Signature(sorted(parameters, key=lambda p: p.kind))


_PARAMETERS = """\
Parameters
----------
relevance : {array-like, sparse matrix} of shape (n_queries, n_items)
    Positive where an item is relevant to a query, zero where it is not, negative
    where it is junk. Booleans will do.

similarity : array-like of shape (n_queries, n_items)
    Larger is more similar; no NaN.

"""

_TIES = """\
ties : {"average", "optimistic", "pessimistic", "index"}, default="average"
    What becomes of items of equal similarity: the exact expectation over all their
    orders, relevant ones first, relevant ones last, or lower columns first.

"""

_OPTIONS = """\
empty : {"skip", "zero", "error"}, default="skip"
    What a query with no relevant item is worth: nothing at all (NaN in the values
    per query, left out of the mean), zero, or an error.

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

"""

_RETURNS = """\
Returns
-------
value : ndarray of shape (n_queries,) or float
    One value per query, or their mean with ``average=True``.

"""


def _public_docstring(of_ranks, entry):
    """The docstring of the decorated function with the shared parts added."""
    text, _, examples = cleandoc(of_ranks.__doc__ or "").partition("Examples\n---")
    summary, _, own = text.partition("Parameters\n----------\n")
    ties = "" if "ties" in entry.options else _TIES
    parts = [summary.rstrip(), "\n\n", _PARAMETERS, own, ties, _OPTIONS, _RETURNS]
    examples = f"Examples\n---{examples}\n" if examples else ""
    return "".join(parts) + examples


# -- checks, blocks and means that measures, scorer and report share --


def _per_query(of_ranks, relevance, similarity, *, junk, ties, n_jobs):
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
        ranks = rank_relevant_items(
            _dense_rows(relevance, block),
            similarity[block],
            junk=None if junk is None else _dense_rows(junk, block),
            ties=ties,
            n_jobs=n_jobs,
        )
        return of_ranks(ranks)

    n_queries, n_items = similarity.shape
    blocks = gen_batches(n_queries, rows_per_block(n_items, n_queries))
    return np.concatenate([measure_block(block) for block in blocks])


def rows_per_block(n_items: int, n_queries: int) -> int:
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


def check_query_weight(sample_weight: ArrayLike, X) -> np.ndarray:
    """Check weights of the samples as queries."""
    return check_sample_weight(sample_weight, X, ensure_non_negative=True)


def settle_empty(value: np.ndarray, empty: str) -> np.ndarray:
    """Values per query with those of no relevant item skipped, zero, or refused."""
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


def mean_over_queries(
    value: np.ndarray, sample_weight: np.ndarray | None = None
) -> float:
    """Mean over the queries that have a value; weighted if asked."""
    counts = ~np.isnan(value)
    if not counts.any():
        raise ValueError(
            "No query has a relevant item, so there is nothing to average: every "
            "label occurs once, or the relevance is all zero."
        )
    if sample_weight is None:
        return float(value[counts].mean())
    weight = sample_weight[counts]
    if not weight.any():
        raise ValueError("Every query with a relevant item has a sample_weight of 0.")
    return float(np.average(value[counts], weights=weight))


# -- the measures --


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
    curve = _per_query(
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
