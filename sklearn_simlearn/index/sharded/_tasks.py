"""Dask tasks of a shard, which is an index on a worker.

A change returns a new shard that shares the items with the old shard. The result of a
task therefore never changes, and Dask can rebuild a lost shard by running its tasks
again.
"""

from copy import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sklearn_simlearn.index._encoded_items import as_kind
from sklearn_simlearn.index._filters import read_exclude, read_filter, search_items
from sklearn_simlearn.index._ids import Ids, number_on
from sklearn_simlearn.index._index import SimilarityIndex
from sklearn_simlearn.index._state import Change


class Description(NamedTuple):
    """Description of a shard: common properties of all shards, and number of items."""

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
    """Value that is sent once and used by many tasks. Dask does not inspect it."""

    def __init__(self, value):
        self.value = value


def unpack(sent):
    """Return the value that was sent."""
    return sent.value


def build(template, rows):
    """Return a shard with some rows; None if there are no rows."""
    X = rows.read()
    if X.shape[0] == 0 if hasattr(X, "shape") else len(X) == 0:
        return None
    return copy(template).fit(X, ids=rows.ids, metadata=rows.metadata)


def open_folder(folder, estimator, mmap, verify, trusted):
    """Return a shard in a folder."""
    return SimilarityIndex.load(
        folder, mmap=mmap, estimator=estimator, verify=verify, trusted=trusted
    )


def number(shard, first_id):
    """Return the shard with consecutive numbers as ids."""
    ids = shard._state.ids
    numbers = number_on(first_id, ids.n_rows)
    return _with(shard, ids=Ids(numbers, np.array(ids.alive)))


def add(shard, rows):
    """Return the shard with more items. Rows keep their numbers."""
    change = shard._read_change("add", rows.read(), rows.ids, rows.metadata)
    return shard._snapshot(shard._state.apply(change, n_threads=shard._n_threads))


def remove(shard, ids):
    """Return the shard without some items. Ids of other shards are ignored."""
    ids = shard._state.ids.convert(ids)
    change = Change("remove", ids[shard._state.ids.find(ids) >= 0])
    return shard._snapshot(shard._state.apply(change, n_threads=shard._n_threads))


def compact(shard):
    """Return the shard without the memory of removed items."""
    return shard._snapshot(shard._state.compact(n_threads=shard._n_threads))


def adopt(shard, estimator):
    """Return the shard with another estimator."""
    return shard._snapshot().set_estimator(estimator)


def _with(shard, **changed):
    return shard._snapshot(replace(shard._state, **changed))


# -- tasks that read a shard --


def describe(shard):
    """Return the description of a shard; None if it is empty."""
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
    """Return scores, global rows and ids of the best items for encoded queries."""
    state, excluded = shard._state, None
    allowed = read_filter(filter, state.ids, state.metadata, Q.shape[0])
    if exclude is not None:
        excluded = read_exclude(exclude, state.ids, Q.shape[0])
    scores, rows = search_items(
        state.items,
        as_kind(Q, state.backend, state.items.dtype),
        min(k, state.ids.n_rows),
        allowed,
        excluded,
        shard._n_threads,
    )
    return scores, runs.place(rows), state.ids.take(rows)


def find(shard, ids, runs):
    """Return the global rows of ids; -1 for ids that are not in the shard."""
    return runs.place(shard._state.ids.find(ids))


def current(shard, runs):
    """Return ids, metadata and global rows of all items."""
    state = shard._state
    rows = runs.place(np.flatnonzero(state.ids.alive))
    return rows, state.ids.current(), state.current_metadata()


def metadata_of(shard, rows):
    """Return the metadata of some rows of the shard."""
    return shard._state.metadata.take(rows)


def encoded_of(shard, ids):
    """Return the mask of known ids, and the encodings of these items."""
    return shard._find_encoded(ids)


def save(shard, folder):
    """Store the shard in a folder."""
    shard.save(folder, include_estimator=False)


def ids_in_bucket(shard, bucket, n_buckets):
    """Return the ids of a shard that fall into one of several buckets."""
    ids = shard._state.ids.current()
    if ids.dtype.kind == "U":
        # Padding with zeros does not change the bucket.
        points = np.ascontiguousarray(ids).view(np.uint32).reshape(len(ids), -1)
        return ids[points.sum(axis=1) % n_buckets == bucket]
    return ids[ids % n_buckets == bucket]


def find_repeated(*parts):
    """Return some ids that occur more than once."""
    unique, n_times = np.unique(np.concatenate(parts), return_counts=True)
    return unique[n_times > 1][:3].tolist()
