"""Ranks of the relevant items, and what makes a ranking measure of a function of them.

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

from sklearn_simlearn._core.sklearn import (
    Interval,
    StrOptions,
    check_sample_weight,
    get_chunk_n_rows,
    validate_parameter_constraints,
    validate_params,
)
from sklearn_simlearn.metrics._ranking_fast import rank_relevant

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
    value = values_per_query(
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


def values_per_query(of_ranks, relevance, similarity, *, junk, ties, n_jobs):
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
