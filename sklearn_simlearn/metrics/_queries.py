"""Measures of queries of an estimator or of matrices, in blocks that bound memory."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import check_array, gen_batches

from sklearn_simlearn._core.dask import in_memory, read_partitions
from sklearn_simlearn._core.groups import (
    Sets,
    read_query_groups,
    refuse_mixed_sets,
    set_relevance,
)
from sklearn_simlearn._core.judgements import Judgements, check_judgements
from sklearn_simlearn._core.relevance import Relevance, check_relevance, stack_targets
from sklearn_simlearn._core.rows import check_query_mask
from sklearn_simlearn._core.sklearn import (
    check_sample_weight,
    get_chunk_n_rows,
    num_samples,
)
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.threads import count_threads
from sklearn_simlearn._core.typing import Matrix, MatrixLike
from sklearn_simlearn._core.unwrap import Model, find_model
from sklearn_simlearn.metrics._measure import MEASURES, Ranks, rank_relevant_items

# -- estimators --


def measure_queries(
    estimator: Any,
    X: MatrixLike,
    y: TargetLike,
    measures: dict[str, Callable[[Ranks], np.ndarray]],
    *,
    counts_self: set[str] | frozenset[str] = frozenset(),
    graded: bool = False,
    database: tuple[Any, Any] | None = None,
    query_mask: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    ties: str = "average",
    n_jobs: int | None = None,
) -> tuple[Sets, dict[str, np.ndarray]]:
    """Measure the rankings of an estimator, a block of queries at a time.

    Parameters
    ----------
    estimator, X, y, query_mask, groups, ties, n_jobs
        As for :func:`retrieval_report`.

    measures : dict of callable
        Functions of :class:`Ranks` that return one value, or row, per query.

    counts_self : set of str, default=frozenset()
        Names of the measures for which a query counts as relevant to itself. For other
        measures, the query is removed from its own list.

    graded : bool, default=False
        True if a measure uses the weights of a relevance matrix.

    database : tuple (X, y), default=None
        Items to search. If None, the documents of Judgements, or the other samples of
        `X`.

    Returns
    -------
    sets : Sets
        Sets of samples that query. Without groups, each set is one sample.

    values : dict of ndarray
        Values of each measure, one entry per set.
    """
    model = find_model(estimator)
    X = read_partitions(X)
    if isinstance(y, Judgements):
        task = _judged_task(model, X, y, query_mask, groups)
    else:
        task = _sample_task(model, X, in_memory(y), database, query_mask, groups)
    sets = task.sets
    if task.items is None:
        X, items = model.prepare_samples(X)
    else:
        X, items = model.prepare_queries(X), task.items
    compare = model.compare_with(
        items, in_groups=groups is not None, n_threads=count_threads(n_jobs)
    )

    blocks = []
    n_items = num_samples(items)
    for _, block in sets.blocks(sets.sizes, rows_per_block(n_items, len(sets.rows))):
        relevant = task.find_relevance(block, graded)
        similarity = compare(X, block.rows, block.of_row)
        if np.isnan(similarity).any():
            raise ValueError(
                f"The similarity of {estimator!r} is NaN for some pairs of samples, "
                "which cannot be ranked."
            )
        rank = partial(rank_relevant_items, ties=ties, n_jobs=n_jobs)
        ranks = ranks_with_self = rank(relevant, similarity)
        if task.items is None and not counts_self.isdisjoint(measures):
            relevant = relevant.copy()
            relevant[block.of_row, block.rows] = 1
            ranks_with_self = rank(relevant, similarity)
        blocks.append(
            [
                of_ranks(ranks_with_self if name in counts_self else ranks)
                for name, of_ranks in measures.items()
            ]
        )
    values = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return sets, dict(zip(measures, values, strict=True))


class _Task(NamedTuple):
    """Queries, items and their relevance.

    Attributes
    ----------
    sets : Sets
        Samples that query together or alone.

    items : prepared samples or None
        Items to rank for every query; None if the samples query each other.

    find_relevance : callable
        ``find_relevance(sets, graded)`` returns the relevance of all items to some
        sets. Items with negative relevance are removed from the list.
    """

    sets: Sets
    items: Any
    find_relevance: Callable[[Sets, bool], np.ndarray]


def _sample_task(
    model: Model,
    X: MatrixLike,
    y: TargetLike,
    database: tuple[Any, Any] | None,
    query_mask: ArrayLike | None,
    groups: ArrayLike | None,
) -> _Task:
    """Return the task of samples that query each other, or a database of samples."""
    n_samples = num_samples(X)
    has_database = database is not None
    relevance = check_relevance(y, n_samples=n_samples, has_database=has_database)
    sets = _find_sets(model, relevance.can_query, query_mask, groups)
    refuse_mixed_sets(relevance, sets)
    if database is None:
        return _Task(sets, None, _relevance_of(relevance, None))
    items = model.prepare_items(read_partitions(database[0]))
    both = stack_targets(y, in_memory(database[1]))
    relevance = check_relevance(
        both, n_samples=n_samples + num_samples(items), has_database=True
    )
    return _Task(sets, items, _relevance_of(relevance, n_samples))


def _relevance_of(
    relevance: Relevance, n_before: int | None
) -> Callable[[Sets, bool], np.ndarray]:
    """Return a function that finds the relevance of the samples after `n_before`."""

    def find_relevance(block: Sets, graded: bool) -> np.ndarray:
        items = slice(n_before or 0, len(relevance))
        relevant = set_relevance(relevance, block, items, graded=graded)
        if n_before is None:
            relevant[block.of_row, block.rows] = -1
        refuse_perfect(relevant)
        return relevant

    return find_relevance


def _judged_task(
    model: Model,
    X: MatrixLike,
    y: Judgements,
    query_mask: ArrayLike | None,
    groups: ArrayLike | None,
) -> _Task:
    """Return the task of queries that search the documents of judgements."""
    check_judgements(y, num_samples(X))
    model.refuse_steps_of_queries()
    if model.is_pairwise:
        raise TypeError(
            "A precomputed similarity cannot be compared with documents. With "
            "Judgements, use an estimator that takes samples."
        )
    sets = _find_sets(model, np.ones(len(y), dtype=bool), query_mask, groups)
    if groups is None and y.query_ids is not None:
        sets = sets._replace(names=y.query_ids[sets.rows])

    def find_relevance(block: Sets, graded: bool) -> np.ndarray:
        relevant = y.relevance[block.rows].toarray()
        if not graded:
            relevant = np.sign(relevant).astype(np.int8)
        if (block.sizes > 1).any():
            relevant = np.minimum.reduceat(relevant, block.offsets[:-1], axis=0)
        return relevant

    documents = model.prepare_items(read_partitions(y.documents))
    return _Task(sets, documents, find_relevance)


def _find_sets(
    model: Model,
    can_query: np.ndarray,
    query_mask: ArrayLike | None,
    groups: ArrayLike | None,
) -> Sets:
    if query_mask is not None:
        can_query = can_query & check_query_mask(query_mask, len(can_query))
    if groups is not None and not model.takes_groups:
        raise TypeError(
            "groups needs an estimator whose `similarity` takes groups, such as "
            f"MemoryVectorQuery; got {model.learner!r}."
        )
    sets = read_query_groups(groups, can_query)
    if len(sets.rows) == 0:
        raise ValueError(
            "There is no query: every sample is a distractor, or is excluded by "
            "query_mask or groups."
        )
    return sets


def refuse_perfect(relevant: np.ndarray) -> None:
    """Raise if a query has only relevant items: any similarity would score 1."""
    perfect = (relevant > 0).any(axis=1) & (relevant != 0).all(axis=1)
    if perfect.any():
        raise ValueError(
            f"{np.count_nonzero(perfect)} queries have no irrelevant item among those "
            "to rank, so any similarity would score 1 for them. In a cross-validation, "
            "split with StratifiedKFold, KFold(shuffle=True) or "
            "sklearn_simlearn.model_selection.ObjectKFold."
        )


# -- matrices --


class Lists(NamedTuple):
    """Lists to rank, given by matrices; the fields are parameters of all measures."""

    relevance: MatrixLike
    similarity: ArrayLike
    junk: MatrixLike | None
    ties: str
    n_jobs: int | None


def measure_matrices(
    name: str,
    lists: Lists,
    empty: str,
    average: bool,
    sample_weight: ArrayLike | None,
    **options: Any,
) -> np.ndarray | float:
    """Measure lists that are given by matrices.

    Parameters
    ----------
    name : str
        Name in the table of measures.

    lists : Lists
        Lists to measure.

    empty, average, sample_weight
        As for :func:`average_precision`.

    **options : dict
        Options of this measure, except `ties`.

    Returns
    -------
    value : ndarray of shape (n_queries,) or float
        One value per query, or their mean with ``average=True``.
    """
    of_ranks = MEASURES[name].bind(ties=lists.ties, **options)
    lists = check_lists(lists)
    if sample_weight is not None:
        sample_weight = check_query_weight(sample_weight, lists.similarity)
    value = settle_empty(values_per_query(of_ranks, lists), empty)
    return mean_over_queries(value, sample_weight) if average else value


def check_lists(lists: Lists) -> Lists:
    """Return lists with checked matrices of one shape."""
    S = check_array(
        lists.similarity,
        dtype=[np.float64, np.float32],
        order="C",
        ensure_all_finite=False,
        input_name="similarity",
    )
    relevance, junk = _check_mask(lists.relevance, "relevance", S.shape), lists.junk
    if junk is not None:
        if not sparse.issparse(junk) and np.ndim(junk) == 1:
            if np.size(junk) != S.shape[1]:
                raise ValueError(
                    f"junk has {np.size(junk)} entries for {S.shape[1]} items. Pass "
                    "one entry per item, or a matrix of the shape of similarity."
                )
            junk = np.broadcast_to(junk, S.shape)
        junk = _check_mask(junk, "junk", S.shape)
    return lists._replace(relevance=relevance, similarity=S, junk=junk)


def values_per_query(
    of_ranks: Callable[[Ranks], np.ndarray], lists: Lists
) -> np.ndarray:
    """Measure the ranks of checked lists, in blocks that bound the memory."""
    S: Any = lists.similarity

    def measure_block(block: slice) -> np.ndarray:
        if np.isnan(S[block]).any():
            raise ValueError("similarity contains NaN, which cannot be ranked.")
        ranks = rank_relevant_items(
            _dense_rows(lists.relevance, block),
            S[block],
            junk=None if lists.junk is None else _dense_rows(lists.junk, block),
            ties=lists.ties,
            n_jobs=lists.n_jobs,
        )
        return of_ranks(ranks)

    n_queries, n_items = S.shape
    blocks = gen_batches(n_queries, rows_per_block(n_items, n_queries))
    return np.concatenate([measure_block(block) for block in blocks])


def rows_per_block(n_items: int, n_queries: int) -> int:
    """Return the number of queries whose arrays fit in the working memory."""
    return get_chunk_n_rows(32 * n_items, max_n_rows=n_queries)


def _dense_rows(matrix: Any, block: slice) -> np.ndarray:
    rows = matrix[block]
    rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
    return rows.view(np.int8) if rows.dtype == bool else rows


def _check_mask(mask: MatrixLike, name: str, shape: tuple[int, ...]) -> Matrix:
    mask = check_array(mask, accept_sparse="csr", dtype=None, input_name=name)
    if mask.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold booleans or numbers; got {mask.dtype}.")
    if mask.shape != shape:
        raise ValueError(
            f"{name} and similarity must have the same shape; got {mask.shape} and "
            f"{shape}."
        )
    return mask


def check_query_weight(sample_weight: ArrayLike, X: MatrixLike) -> np.ndarray:
    """Return checked weights of the samples as queries."""
    return check_sample_weight(sample_weight, X, ensure_non_negative=True)


def settle_empty(value: np.ndarray, empty: str) -> np.ndarray:
    """Keep NaN, return zero or raise for queries without a relevant item."""
    nothing = np.isnan(value) if value.ndim == 1 else np.isnan(value[:, 0])
    if empty == "error" and nothing.any():
        raise ValueError(
            f"{np.count_nonzero(nothing)} of {len(value)} queries have no relevant "
            'item. Pass empty="skip" to skip them or empty="zero" to count them '
            "as 0."
        )
    if empty == "zero":
        value[nothing] = 0.0
    return value


def mean_over_queries(
    value: np.ndarray, sample_weight: np.ndarray | None = None
) -> float:
    """Return the mean over queries with a value, weighted if weights are given."""
    counts = ~np.isnan(value)
    if not counts.any():
        raise ValueError(
            "No query has a relevant item: every label occurs once, or all relevance "
            "is zero."
        )
    if sample_weight is None:
        return float(value[counts].mean())
    weight = sample_weight[counts]
    if not weight.any():
        raise ValueError("Every query with a relevant item has a sample_weight of 0.")
    return float(np.average(value[counts], weights=weight))
