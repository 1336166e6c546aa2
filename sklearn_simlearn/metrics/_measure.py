"""Ranks of the relevant items, and the table of measures.

A measure is a function of the ranks of the relevant items.
:func:`rank_relevant_items` finds these ranks without sorting the whole list. `MEASURES`
lists the measures for the scorer and the reports. The public functions are in
`_ranking` and `_precision_recall`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from numbers import Integral
from typing import Any, Literal, TypeAlias

import numpy as np

from sklearn_simlearn._core.sklearn import (
    Interval,
    StrOptions,
    validate_parameter_constraints,
)
from sklearn_simlearn._core.threads import count_threads
from sklearn_simlearn.metrics._ranking_fast import (
    count_hits,
    first_reciprocal_rank,
    mark_lists,
    measure_sorted,
    rank_relevant,
    sum_precisions,
)

Ties: TypeAlias = Literal["average", "optimistic", "pessimistic", "index"]
Empty: TypeAlias = Literal["skip", "zero", "error"]

# Codes of the kernel. "threshold", the rule of scikit-learn, uses the same intervals of
# ranks as "average", but other sums.
TIES = {"average": 0, "threshold": 0, "optimistic": 1, "pessimistic": 2, "index": 3}

CUT = Interval(Integral, 1, None, closed="left")
COMMON_CONSTRAINTS = {
    "relevance": ["array-like", "sparse matrix"],
    "similarity": ["array-like"],
    # "threshold" defines thresholds on the score instead of ranks. Only average
    # precision supports it.
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
        The slots ``offsets[i]`` to ``offsets[i + 1] - 1`` of the other arrays belong to
        query i.

    n_above, n_tied : ndarray of shape (n_slots,)
        The item occupies one of the ranks ``n_above + 1`` to ``n_above + n_tied``. A
        relevant item that is not on the list of its query has no rank: ``n_tied`` is
        0, ``n_above`` is the length of the list, and its slot comes last.

    item : ndarray of shape (n_slots,)
        Column of the item of each slot.

    relevance, similarity : ndarray of shape (n_queries, n_items)
        Relevance and similarity that were ranked.
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
    def item_relevance(self) -> np.ndarray:
        """Relevance of the item of each slot."""
        return self.relevance[self.query, self.item].astype(np.float64)

    @property
    def item_similarity(self) -> np.ndarray:
        """Similarity of the item of each slot."""
        return self.similarity[self.query, self.item]

    @property
    def place(self) -> np.ndarray:
        """Position of each slot among the relevant items of its query, from 0."""
        return np.arange(len(self.item)) - np.repeat(self.offsets[:-1], self.n_relevant)


@dataclass
class SlotRanks(Ranks):
    """Ranks whose `relevance` and `similarity` have one entry per slot."""

    @property
    def item_relevance(self) -> np.ndarray:
        return self.relevance

    @property
    def item_similarity(self) -> np.ndarray:
        return self.similarity


def rank_relevant_items(
    relevance: np.ndarray,
    similarity: np.ndarray,
    *,
    junk: np.ndarray | None = None,
    ties: str = "average",
    n_jobs: int | None = None,
) -> Ranks:
    """Rank the relevant items of each query. The input is not checked.

    Parameters
    ----------
    relevance : ndarray of shape (n_queries, n_items)
        Positive if relevant, zero if not, negative if the item is removed from the list
        of the query.

    similarity : ndarray of shape (n_queries, n_items), float32 or float64
        Larger is more similar. NaN is not allowed.

    junk : ndarray of shape (n_queries, n_items), default=None
        Non-zero for items that are removed from the list, regardless of their
        relevance.

    ties : {"average", "threshold", "optimistic", "pessimistic", "index"}, \
            default="average"
        Order of items of equal similarity.

    n_jobs : int, default=None
        Number of threads, as in joblib.

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
        min(count_threads(n_jobs), max(1, len(sign))),
        n_above,
        n_tied,
        item,
    )
    return Ranks(offsets, n_above, n_tied, item, relevance, similarity)


def measure_lists(
    relevance: np.ndarray, similarity: np.ndarray, n_items: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Measure lists by sorting them; several times faster than measures of ranks.

    Parameters
    ----------
    relevance : ndarray of shape (n_queries, n_columns), dtype int8
        Positive if relevant, zero if not, negative if the item is removed from the list
        of the query.

    similarity : ndarray of shape (n_queries, n_columns), dtype float32
        Larger is more similar. Values that differ only in the last bit are tied.

    n_items : int, default=None
        Number of leading columns that form the lists; all if None. Each list must have
        a relevant item.

    Returns
    -------
    average_precision : ndarray of shape (n_queries,)
        Average precision of the lists.

    first, first_of_half : ndarray of shape (n_queries,)
        Precision at 1 of the lists, and its expectation if each item is removed with
        probability 1/2.

    first_of_all : ndarray of shape (n_queries,)
        Precision at 1 of the lists of all columns.
    """
    similarity = np.ascontiguousarray(similarity)
    n_items = similarity.shape[1] if n_items is None else n_items
    keys = np.empty((len(similarity), n_items), dtype=np.int32)
    values = np.empty((4, len(keys)))
    mark_lists(similarity.view(np.int32), relevance, keys, values[3])
    keys.sort(axis=1)
    measure_sorted(keys, *values[:3])
    return values[0], values[1], values[2], values[3]


# -- values per query, from ranks --


def _average_precision(
    ranks: Ranks,
    *,
    ties: str = "average",
    interpolation: str = "step",
    k: int | None = None,
    denominator: str = "reachable",
) -> np.ndarray:
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


def _refuse_threshold_with_cut(options: dict[str, Any]) -> None:
    if options["ties"] == "threshold" and options["k"] is not None:
        raise ValueError(
            'ties="threshold" does not support a cut-off k, since tied items have no '
            'ranks. Use ties="average" or k=None.'
        )


def _hits(ranks: Ranks, k: int | np.ndarray) -> np.ndarray:
    """Return the expected number of relevant items in the first k of each query."""
    hits = np.empty(len(ranks.n_relevant))
    k = np.broadcast_to(np.asarray(k, dtype=np.int64), hits.shape)
    count_hits(
        ranks.offsets, ranks.n_above, ranks.n_tied, np.ascontiguousarray(k), hits
    )
    return hits


def _precision(ranks: Ranks, k: int = 10) -> np.ndarray:
    return _hits(ranks, k) / k


def _recall(ranks: Ranks, k: int = 10) -> np.ndarray:
    return _hits(ranks, k) / np.maximum(ranks.n_relevant, 1)


def _r_precision(ranks: Ranks) -> np.ndarray:
    return _hits(ranks, ranks.n_relevant) / np.maximum(ranks.n_relevant, 1)


def _reciprocal_rank(ranks: Ranks, *, k: int | None = None) -> np.ndarray:
    out = np.empty(len(ranks.n_relevant))
    k = np.iinfo(np.int64).max if k is None else k
    first_reciprocal_rank(ranks.offsets, ranks.n_above, ranks.n_tied, k, out)
    return out


def _ndcg(
    ranks: Ranks, k: int | None = None, *, gain: str = "linear", ties: str = "average"
) -> np.ndarray:
    n_queries, query, place = len(ranks.n_relevant), ranks.query, ranks.place
    value = _relative_gains(ranks, gain)
    n_ranks = int((ranks.n_above + ranks.n_tied).max(initial=0))
    n_ranks = max(n_ranks, int(ranks.n_relevant.max(initial=0)))
    discount = 1 / np.log2(np.arange(2, n_ranks + 2))
    if k is not None:
        discount[k:] = 0
    best = value[np.lexsort((-value, query))]
    ideal = np.bincount(query, best * discount[place], minlength=n_queries)

    if ties in ("optimistic", "pessimistic"):
        # Relevant items of equal similarity have consecutive ranks. Sort them by gain,
        # the largest first or last.
        score = ranks.item_similarity
        group = np.cumsum((place == 0) | (score != np.roll(score, 1)))
        value = value[np.lexsort((-value if ties == "optimistic" else value, group))]
    cumulative = np.concatenate([[0], np.cumsum(discount)])
    expected = cumulative[ranks.n_above + ranks.n_tied] - cumulative[ranks.n_above]
    n_tied = np.maximum(ranks.n_tied, 1)
    dcg = np.bincount(query, value * expected / n_tied, minlength=n_queries)
    return dcg / np.where(ranks.n_relevant > 0, ideal, 1)


def _relative_gains(ranks: Ranks, gain: str) -> np.ndarray:
    """Return gains divided by the largest gain of the query.

    The division does not change nDCG, and prevents overflow. If r is the relevance and
    m the largest relevance of the query,
    (2^r - 1) / (2^m - 1) = 2^(r - m) (1 - 2^-r) / (1 - 2^-m).
    """
    relevance = ranks.item_relevance
    some = ranks.n_relevant > 0
    if not some.any():
        return relevance
    largest = np.maximum.reduceat(relevance, ranks.offsets[:-1][some])
    largest = np.repeat(largest, ranks.n_relevant[some])
    if gain == "linear":
        return relevance / largest
    from_one = np.expm1(-np.log(2) * relevance) / np.expm1(-np.log(2) * largest)
    return np.exp2(relevance - largest) * from_one


def _top4(ranks: Ranks) -> np.ndarray:
    return _hits(ranks, 4)


# -- the table --


@dataclass(frozen=True)
class Measure:
    """Entry of the table of measures.

    Attributes
    ----------
    name : str
        Name of the public function, and of the entries of a report.

    of_ranks : callable
        Function of :class:`Ranks` and options that returns one value per query. Values
        of queries without a relevant item are ignored.

    constraints : dict
        Constraints of the options, as in scikit-learn.

    counts_self : bool
        True if a query that is among the items counts as relevant to itself. For other
        measures, the query is removed from its own list.

    is_graded : bool
        True if the measure uses the weights of a relevance matrix.

    check : callable or None
        Function of all options that raises if they contradict each other.
    """

    name: str
    of_ranks: Callable[..., np.ndarray]
    constraints: dict[str, list[Any]] = field(default_factory=dict)
    counts_self: bool = False
    is_graded: bool = False
    check: Callable[[dict[str, Any]], None] | None = None

    @cached_property
    def options(self) -> dict[str, Any]:
        """Options with their defaults."""
        _, *options = signature(self.of_ranks).parameters.values()
        return {option.name: option.default for option in options}

    def bind(self, **given: Any) -> Callable[[Ranks], np.ndarray]:
        """Return the measure as a function of ranks alone.

        Options that are not given have their defaults. An unknown option raises an
        error. `ties` is always allowed, since the ranks depend on it.
        """
        unknown = given.keys() - self.options.keys() - {"ties"}
        if unknown:
            raise ValueError(
                f"{self.name} has no option {min(unknown)!r}. Its options are: "
                f"{', '.join(self.options) or 'none'}."
            )
        validate_parameter_constraints(
            {"ties": COMMON_CONSTRAINTS["ties"]} | self.constraints,
            given,
            caller_name=self.name,
        )
        options = {
            name: given.get(name, default) for name, default in self.options.items()
        }
        if self.check is not None:
            self.check(options)

        def value_per_query(ranks: Ranks) -> np.ndarray:
            value = np.asarray(self.of_ranks(ranks, **options), dtype=np.float64)
            value[ranks.n_relevant == 0] = np.nan
            return value

        return value_per_query


MEASURES = {
    "map": Measure(
        "average_precision",
        _average_precision,
        {
            "ties": [StrOptions(set(TIES))],
            "interpolation": [StrOptions({"step", "trapezoid"})],
            "k": [CUT, None],
            "denominator": [StrOptions({"reachable", "relevant"})],
        },
        check=_refuse_threshold_with_cut,
    ),
    "precision": Measure("precision_at_k", _precision, {"k": [CUT]}),
    "recall": Measure("recall_at_k", _recall, {"k": [CUT]}),
    "r_precision": Measure("r_precision", _r_precision),
    "reciprocal_rank": Measure("reciprocal_rank", _reciprocal_rank, {"k": [CUT, None]}),
    "ndcg": Measure(
        "ndcg_at_k",
        _ndcg,
        {
            "k": [CUT, None],
            "gain": [StrOptions({"linear", "exponential"})],
            "ties": COMMON_CONSTRAINTS["ties"],
        },
        is_graded=True,
    ),
    "top4": Measure("top4_score", _top4, counts_self=True),
}
