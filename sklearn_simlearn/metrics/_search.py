"""Rankings of an estimator, measured a block of queries at a time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike

from sklearn_simlearn._core.dask import in_memory, read_partitions
from sklearn_simlearn._core.groups import (
    Sets,
    read_query_groups,
    refuse_mixed_sets,
    set_relevance,
)
from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.relevance import (
    Relevance,
    check_query_mask,
    check_relevance,
    stack_targets,
)
from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn._core.unwrap import Model, find_model
from sklearn_simlearn.metrics._measure import Ranks, rank_relevant_items
from sklearn_simlearn.metrics._queries import rows_per_block


def measure_queries(
    estimator: Any,
    X: MatrixLike,
    y: Any,
    measures: dict[str, Callable[[Ranks], np.ndarray]],
    *,
    counts_self: set[str] | frozenset[str] = frozenset(),
    graded: bool = False,
    database: tuple | None = None,
    query_mask: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    ties: str = "average",
    n_jobs: int | None = None,
) -> tuple[Sets, dict[str, np.ndarray]]:
    """Measure the rankings of an estimator, a block of queries at a time.

    Parameters
    ----------
    measures : dict of callable
        From :class:`Ranks` of some queries to one value, or row, for each.

    counts_self : set of str
        Measures for which a query is an item too, relevant to itself. For the others
        it is taken off its own list.

    graded : bool
        Whether some measure uses the weights in a relevance matrix.

    database : tuple (X, y) or None
        Items to search in; if None, the documents of Judgements, or the other samples
        of `X`.

    groups : array-like of shape (n_samples,) or None
        Samples that query together; each on its own if None.

    Returns
    -------
    sets : Sets
        What queries: sets of samples, of one sample each without groups.

    values : dict of ndarray
        What each measure returned, one entry per set.
    """
    model = find_model(estimator)
    X = read_partitions(X)
    if isinstance(y, Judgements):
        task = _judged_task(model, X, y, query_mask, groups)
    else:
        task = _sample_task(model, X, in_memory(y), database, query_mask, groups)
    X, sets = model.prepare(X), task.sets
    items = X if task.items is None else task.items
    compare = model.compare_with(
        items, in_groups=groups is not None, n_threads=effective_n_jobs(n_jobs)
    )

    blocks = []
    n_items = num_samples(items)
    for _, block in sets.blocks(sets.sizes, rows_per_block(n_items, len(sets.rows))):
        relevant = task.find_relevance(block, graded)
        similarity = compare(X, block.rows, block.of_row)
        if np.isnan(similarity).any():
            raise ValueError(
                f"The similarity of {estimator!r} is NaN for some pairs, so there is "
                "no ranking to score."
            )
        options = {"ties": ties, "n_jobs": n_jobs}
        ranks = ranks_with_self = rank_relevant_items(relevant, similarity, **options)
        if task.items is None and not counts_self.isdisjoint(measures):
            relevant = relevant.copy()
            relevant[block.of_row, block.rows] = 1
            ranks_with_self = rank_relevant_items(relevant, similarity, **options)
        blocks.append(
            [
                of_ranks(ranks_with_self if name in counts_self else ranks)
                for name, of_ranks in measures.items()
            ]
        )
    values = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return sets, dict(zip(measures, values, strict=True))


class _Task(NamedTuple):
    """Who queries, what is searched, and what is relevant.

    Attributes
    ----------
    sets : Sets
        Samples that query together, or one by one.

    items : prepared samples or None
        Items to rank for every query; None for the samples themselves.

    find_relevance : callable
        From some of the sets, and whether relevance is graded, to the relevance of all
        items to them; negative for items that are taken off the list.
    """

    sets: Sets
    items: Any
    find_relevance: Callable[[Sets, bool], np.ndarray]


def _sample_task(
    model: Model,
    X: MatrixLike,
    y: Any,
    database: tuple | None,
    query_mask: ArrayLike | None,
    groups: ArrayLike | None,
) -> _Task:
    """Samples that query each other, or a database of samples."""
    n_samples = num_samples(X)
    relevance = check_relevance(y, n_samples=n_samples)
    sets = _find_sets(model, relevance.can_query, query_mask, groups)
    refuse_mixed_sets(relevance, sets)
    if database is None:
        return _Task(sets, None, _relevance_of(relevance, None))
    items = model.prepare(read_partitions(database[0]))
    both = stack_targets(y, in_memory(database[1]))
    relevance = check_relevance(both, n_samples=n_samples + num_samples(items))
    return _Task(sets, items, _relevance_of(relevance, n_samples))


def _relevance_of(relevance: Relevance, n_before: int | None):
    """Function that finds the relevance of samples, or of those after `n_before`."""

    def find_relevance(block, graded):
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
    """Queries that search in the documents they were judged against."""
    if num_samples(X) != len(y):
        raise ValueError(
            f"X and y must have the same number of queries; got {num_samples(X)} and "
            f"{len(y)}."
        )
    if model.is_pairwise:
        raise TypeError(
            "A precomputed similarity has no documents to compare with: Judgements "
            "need an estimator that takes samples."
        )
    sets = _find_sets(model, np.ones(len(y), dtype=bool), query_mask, groups)
    if groups is None and y.query_ids is not None:
        sets = sets._replace(names=y.query_ids[sets.rows])

    def find_relevance(block, graded):
        relevant = y.relevance[block.rows].toarray()
        if not graded:
            relevant = np.sign(relevant).astype(np.int8)
        if (block.sizes > 1).any():
            relevant = np.minimum.reduceat(relevant, block.offsets[:-1], axis=0)
        return relevant

    documents = model.prepare(read_partitions(y.documents))
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
            "There is no query: every sample is a distractor, or left out by "
            "query_mask or groups."
        )
    return sets


def refuse_perfect(relevant: np.ndarray) -> None:
    """Raise if a query has no irrelevant item: any similarity would be perfect."""
    perfect = (relevant > 0).any(axis=1) & (relevant != 0).all(axis=1)
    if perfect.any():
        raise ValueError(
            f"{np.count_nonzero(perfect)} queries have no irrelevant item among those "
            "to rank, so any similarity would score 1 on them. If this is a fold of a "
            "cross-validation, split with StratifiedKFold, KFold(shuffle=True) or "
            "sklearn_simlearn.model_selection.ObjectKFold."
        )
