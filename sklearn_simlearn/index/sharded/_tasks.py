"""A shard, which is an index on a worker: what workers are asked to do with it.

A change makes a new shard, which shares the items with the old one. So the result of a
task never changes, and Dask can make a lost shard again by running its tasks again.
"""

from copy import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sklearn_simlearn.index._encoded_items import as_kind
from sklearn_simlearn.index._filters import read_exclude, read_filter
from sklearn_simlearn.index._ids import Ids, number_on
from sklearn_simlearn.index._index import SimilarityIndex


class Description(NamedTuple):
    """What the shards of an index must have in common, and how many items one has."""

    n_rows: int
    n_features: int
    dtype: np.dtype
    backend: str
    id_kind: str
    is_numbered: bool
    removed: np.ndarray
    n_features_in: int | None
    names_in: list | None
    has_metadata: bool


# -- tasks whose result is a shard --


class Sent:
    """What is sent once and used by many tasks. Dask does not look inside."""

    def __init__(self, value):
        self.value = value


def unpack(sent):
    return sent.value


def build(template, rows):
    """A shard with some rows; None if there are none."""
    X = rows.read()
    if X.shape[0] == 0 if hasattr(X, "shape") else len(X) == 0:
        return None
    return copy(template).fit(X, ids=rows.ids, metadata=rows.metadata)


def open_folder(folder, estimator, mmap, verify, trusted):
    """A shard in a folder."""
    return SimilarityIndex.load(
        folder, mmap=mmap, estimator=estimator, verify=verify, trusted=trusted
    )


def number(shard, first_id):
    """The shard with consecutive numbers as ids."""
    ids = shard._state.ids
    numbers = number_on(first_id, ids.n_rows)
    return _with(shard, ids=Ids(numbers, np.array(ids.alive)))


def add(shard, rows):
    """The shard with more items, of which none is compacted: rows stay in place."""
    X = rows.read()
    ids, metadata = shard._state.read_new(X, rows.ids, rows.metadata)
    return shard._snapshot(shard._add(shard._state, X, ids, metadata))


def remove(shard, ids):
    """The shard without those of some items that it has."""
    rows = shard._state.ids.find(ids)
    return shard._snapshot(shard._state.remove(rows[rows >= 0]))


def compact(shard):
    """The shard without the memory of removed items."""
    return shard._snapshot(shard._state.compact(n_threads=shard._n_threads))


def adopt(shard, estimator):
    """The shard with another estimator."""
    return shard._snapshot().set_estimator(estimator)


def _with(shard, **changed):
    return shard._snapshot(replace(shard._state, **changed))


# -- tasks that ask a shard --


def describe(shard):
    """The description of a shard; None if it is empty."""
    if shard is None:
        return None
    state = shard._state
    ids, features = state.ids, state.features
    return Description(
        n_rows=ids.n_rows,
        n_features=state.items.n_features,
        dtype=np.dtype(state.items.dtype),
        backend=state.backend,
        id_kind="strings" if ids.values.dtype.kind == "U" else "integers",
        is_numbered=ids.is_numbered,
        removed=np.flatnonzero(~ids.alive),
        n_features_in=features.n_features,
        names_in=None if features.names is None else list(features.names),
        has_metadata=state.metadata is not None,
    )


def answer(shard, Q, k, runs, exclude, filter):
    """Scores, rows of the whole and ids of the best items for encoded queries."""
    state, allowed, excluded = shard._state, None, None
    if filter is not None:
        allowed = read_filter(filter, state.ids, state.current_metadata)
    if exclude is not None:
        excluded = read_exclude(exclude, state.ids, Q.shape[0])
    scores, rows = state.items.search(
        as_kind(Q, state.backend, state.items.dtype),
        min(k, state.ids.n_rows),
        allowed=allowed,
        excluded=excluded,
        n_threads=shard._n_threads,
    )
    return scores, runs.place(rows), state.ids.take(rows)


def find(shard, ids, runs):
    """Rows of the whole that have some ids; -1 for those that the shard lacks."""
    return runs.place(shard._state.ids.find(ids))


def current(shard, runs):
    """Ids and metadata of all items, and their rows of the whole."""
    state = shard._state
    rows = runs.place(np.flatnonzero(state.ids.alive))
    return rows, state.ids.current(), state.current_metadata()


def metadata_of(shard, rows):
    """Metadata of some rows of the shard."""
    return shard._state.metadata.take(rows)


def save(shard, folder):
    """Store the shard in a folder."""
    shard.save(folder, include_estimator=False)


def ids_in_bucket(shard, bucket, n_buckets):
    """Those ids of a shard that fall into one of several buckets."""
    ids = shard._state.ids.current()
    if ids.dtype.kind == "U":
        # Padding with zeros does not change the sum.
        points = np.ascontiguousarray(ids).view(np.uint32).reshape(len(ids), -1)
        return ids[points.sum(axis=1) % n_buckets == bucket]
    return ids[ids % n_buckets == bucket]


def find_repeated(*parts):
    """Some ids that occur more than once."""
    unique, n_times = np.unique(np.concatenate(parts), return_counts=True)
    return unique[n_times > 1][:3].tolist()
