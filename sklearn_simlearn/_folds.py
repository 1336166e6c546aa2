"""Folds of the hold-out: rows to learn from, and rows that are held out."""

from typing import NamedTuple

import numpy as np

from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.warn import StartKeptWarning, warn_user

# Smallest number of classes. Fewer classes do not show how a similarity ranks new ones.
MIN_CLASSES = 10

# Share of the samples that `"samples"` holds out in a fold.
SHARE = 0.2

# Smallest number of queries with relevant documents. Fewer queries do not show how new
# queries are ranked.
MIN_QUERIES = 10

# Largest number of folds of queries.
MAX_FOLDS = 5

# Share of the documents that `"documents"` holds out in a fold.
SHARE_OF_DOCUMENTS = 0.5

# Largest number of documents that the held-out queries of a fold search: those judged
# for them, and a sample of the others.
MAX_DOCUMENTS = 20_000

# Largest number of held-out samples of a fold that are searched.
MAX_ROWS = 1000

# Number of held-out samples of all folds, up to which `"samples"` adds folds, so that
# the choice does not depend on a few samples.
ENOUGH = 500

# Largest number of held-out samples of all folds that query. More do not change the
# choice.
MAX_QUERIES = 1000

# Largest number of rows to learn from that are also searched, for precision at 1: with
# "samples", and with "objects", which has more folds.
MAX_OTHERS, MAX_OTHERS_OF_OBJECTS = 4000, 500

# Number of held-out classes of a fold from which on their lists show a loss at rank 1.
# In lists of fewer classes, nearly every similarity finds a relevant item first.
ENOUGH_CLASSES = 5


class Fold(NamedTuple):
    """Rows to learn from, and held-out rows that query and that are searched.

    With labels, the queries are among the items. `others` are rows to learn from that
    are also searched, for precision at 1.
    """

    train: np.ndarray
    queries: np.ndarray
    items: np.ndarray
    others: np.ndarray = np.empty(0, dtype=np.intp)


def make_folds(
    relevance: Relevance, holdout: str, rng, max_rows: int = MAX_ROWS
) -> list[Fold]:
    """Return the folds; an empty list, with a warning, if there is too little data."""
    if isinstance(relevance, JudgedRelevance):
        return _hold_out_queries(relevance, rng, with_documents=holdout == "documents")
    hold_out = _hold_out_samples if holdout == "samples" else _hold_out_objects
    return hold_out(relevance, rng, max_rows)


def _hold_out_samples(relevance, rng, max_rows):
    """Return folds that hold out a share of each class."""
    objects = relevance.objects()
    folds = []
    parts = _divide_classes(objects, rng)
    for test in parts:
        rest = np.setdiff1d(np.arange(len(objects)), test)
        if all(relevance.take(rows).find_queries().any() for rows in (test, rest)):
            items = _limit(test, objects, rng, max_rows)
            queries = _limit(items, objects, rng, MAX_QUERIES // len(parts))
            others = _draw_others(rest, rng, MAX_OTHERS)
            folds.append(Fold(rest, queries, items, others))
    if not folds:
        warn_user(
            "The start is kept, since the samples are too few to hold some out as "
            'holdout="samples" does. Set holdout=None to learn without a hold-out.',
            StartKeptWarning,
        )
    return folds


def _hold_out_objects(relevance, rng, max_rows):
    """Return folds that hold out whole classes."""
    objects = relevance.objects()
    sizes = np.bincount(objects[objects >= 0])
    classes = rng.permutation(np.flatnonzero(sizes > 1))
    if len(classes) < MIN_CLASSES:
        warn_user(
            f"The start is kept, since the {len(classes)} classes in y are fewer than "
            f"the {MIN_CLASSES} that are necessary for a hold-out of classes. Pass "
            'holdout="samples" if future queries are of the classes in y.',
            StartKeptWarning,
        )
        return []
    n_folds = 3 if np.median(sizes[classes]) < 6 else min(5, len(classes) // 2)
    folds = []
    for held_out in np.array_split(classes, n_folds):
        is_test = np.isin(objects, held_out)
        items = _limit(np.flatnonzero(is_test), objects, rng, max_rows)
        queries = _limit(items, objects, rng, MAX_QUERIES // n_folds)
        rest = np.flatnonzero(~is_test)
        others = rest[:0]
        if len(held_out) < ENOUGH_CLASSES:
            others = _draw_others(rest, rng, MAX_OTHERS_OF_OBJECTS)
        folds.append(Fold(rest, queries, items, others))
    return folds


def _hold_out_queries(relevance, rng, *, with_documents):
    """Return folds of the queries, which search all or only held-out documents."""
    queries = rng.permutation(np.flatnonzero(relevance.find_queries()))
    if len(queries) < MIN_QUERIES:
        warn_user(
            f"The start is kept, since {len(queries)} queries with relevant documents "
            f"are fewer than the {MIN_QUERIES} that a hold-out needs. Set "
            "holdout=None to learn without a hold-out.",
            StartKeptWarning,
        )
        return []
    documents = np.flatnonzero(relevance.is_item)
    n_folds = MAX_FOLDS if len(queries) < MAX_ROWS else 3
    folds = []
    for held_out in np.array_split(queries, n_folds):
        others = np.setdiff1d(np.arange(len(relevance)), held_out)
        items = documents
        if with_documents:
            n_items = round(SHARE_OF_DOCUMENTS * len(documents))
            items = np.sort(rng.choice(documents, n_items, replace=False))
            others = np.setdiff1d(others, items)
        if not relevance.take(others).find_queries().any():
            continue
        held_out = np.sort(held_out[: MAX_ROWS // n_folds])
        folds.append(Fold(others, held_out, _sample(items, held_out, relevance, rng)))
    return folds


def _sample(documents, queries, relevance, rng):
    """Return at most `MAX_DOCUMENTS`, including those judged for the queries."""
    n_more = MAX_DOCUMENTS - len(documents)
    if n_more >= 0:
        return documents
    judged = np.intersect1d(documents, relevance.pairs[queries].indices)
    others = np.setdiff1d(documents, judged)
    n_others = max(0, MAX_DOCUMENTS - len(judged))
    return np.union1d(judged, rng.choice(others, n_others, replace=False))


def _divide_classes(objects, rng):
    """Return disjoint parts of the samples: a share of each class, at least two.

    A class with fewer than four samples is in one part as a whole, or in none.
    """
    known = np.flatnonzero(objects >= 0)
    row, place, size = shuffle_within(objects[known], rng)
    row = known[row]
    n_taken = np.maximum(2, np.rint(SHARE * size).astype(np.int64))
    part = np.where((place // n_taken + 1) * n_taken <= size, place // n_taken, -1)
    is_small = size < 4
    small = rng.permutation(np.unique(objects[row[is_small]]))
    n_small = max(1, int(np.rint(SHARE * len(small))))
    part_of_object = np.full(objects.max(initial=-1) + 1, -1)
    part_of_object[small] = np.arange(len(small)) // n_small
    part[is_small] = part_of_object[objects[row[is_small]]]

    parts, n_held_out = [], 0
    for i in range(round(1 / SHARE)):
        parts.append(np.sort(row[part == i]))
        n_held_out += len(parts[-1])
        if n_held_out >= ENOUGH:
            break
    return parts


def _draw_others(rest, rng, limit):
    """Return at most `limit` of the rows to learn from."""
    if len(rest) <= limit:
        return rest
    return np.sort(rng.choice(rest, limit, replace=False))


def _limit(rows, objects, rng, max_rows):
    """Return at most `max_rows` of the rows, evenly from all classes."""
    order, place, _ = shuffle_within(objects[rows], rng)
    first = np.lexsort((objects[rows][order], place // 2))[:max_rows]
    return np.sort(rows[order[first]])


def shuffle_within(
    objects: np.ndarray, rng: np.random.Generator | np.random.RandomState
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows in random order, their positions in their class, and its size."""
    row = rng.permutation(len(objects))
    row = row[np.argsort(objects[row], kind="stable")]
    _, first, size = np.unique(objects[row], return_index=True, return_counts=True)
    return row, np.arange(len(row)) - np.repeat(first, size), np.repeat(size, size)
