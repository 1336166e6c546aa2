"""A shard, which is an index on a worker: what workers are asked to do with it.

A change makes a new shard, which shares the items with the old one. So the result of a
task never changes, and Dask can make a lost shard again by running its tasks again.
"""

from typing import NamedTuple

import numpy as np

from sklearn_simlearn.index._encoded_items import as_kind
from sklearn_simlearn.index._filters import read_exclude, read_filter
from sklearn_simlearn.index._ids import Ids, read_ids
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
    return _copy(template).fit(X, ids=rows.ids, metadata=rows.metadata)


def open_folder(folder, estimator, mmap, verify, trusted):
    """A shard in a folder."""
    return SimilarityIndex.load(
        folder, mmap=mmap, estimator=estimator, verify=verify, trusted=trusted
    )


def number(shard, runs):
    """The shard with ids that are rows of the whole."""
    shard = _copy(shard)
    ids = shard._ids
    rows = runs.place(np.arange(len(ids.values)))
    shard._ids = Ids(rows, np.array(ids.alive))
    return shard


def add(shard, rows):
    """The shard with more items."""
    return _fork(shard).add(rows.read(), ids=rows.ids, metadata=rows.metadata)


def remove(shard, ids):
    """The shard without those of some items that it has."""
    ids = read_ids(ids)
    return _fork(shard).remove(ids[shard._ids.find(ids) >= 0])


def compact(shard):
    """The shard without the memory of removed items."""
    return _fork(shard).compact()


def adopt(shard, estimator):
    """The shard with another estimator, and what became of the items."""
    shard = _fork(shard)
    what = shard.set_estimator(estimator)
    return shard, what


def first_of(pair):
    return pair[0]


def _copy(index):
    """A shallow copy; that of `copy` would go through pickle."""
    other = type(index).__new__(type(index))
    other.__dict__.update(vars(index))
    return other


def _fork(index):
    """A copy that can be changed while the index stays as it is."""
    other = _copy(index)
    other._items = index._items.fork()
    return other


# -- tasks that ask a shard --


def second_of(pair):
    return pair[1]


def describe(shard):
    """The description of a shard; None if it is empty."""
    if shard is None:
        return None
    names = getattr(shard, "feature_names_in_", None)
    return Description(
        n_rows=len(shard._ids.values),
        n_features=shard._items.n_features,
        dtype=np.dtype(shard._items.dtype),
        backend=shard.backend_,
        id_kind="strings" if shard._ids.values.dtype.kind == "U" else "integers",
        is_numbered=shard._ids.is_numbered,
        removed=np.flatnonzero(~shard._ids.alive),
        n_features_in=getattr(shard, "n_features_in_", None),
        names_in=None if names is None else list(names),
    )


def answer(shard, Q, k, runs, exclude, filter):
    """Scores, rows of the whole and ids of the best items for encoded queries."""
    allowed = excluded = None
    if filter is not None:
        metadata = shard.metadata_ if callable(filter) else None
        allowed = read_filter(filter, shard._ids, metadata)
    if exclude is not None:
        excluded = read_exclude(exclude, shard._ids, Q.shape[0])
    scores, rows = shard._items.search(
        as_kind(Q, shard.backend_, shard._items.dtype),
        max(1, min(k, len(shard._ids.values))),
        allowed=allowed,
        excluded=excluded,
        n_threads=shard._n_threads,
    )
    return scores, runs.place(rows), shard._ids.take(rows)


def find(shard, ids, runs):
    """Rows of the whole that have some ids; -1 for those that the shard lacks."""
    return runs.place(shard._ids.find(ids))


def current(shard, runs):
    """Ids and metadata of all items, and their rows of the whole."""
    rows = runs.place(np.flatnonzero(shard._ids.alive))
    return rows, shard._ids.current(), shard.metadata_


def save(shard, folder):
    """Store the shard in a folder."""
    shard.save(folder, include_estimator=False)


def ids_in_bucket(shard, bucket, n_buckets):
    """Those ids of a shard that fall into one of several buckets."""
    ids = shard._ids.current()
    if ids.dtype.kind == "U":
        # Padding with zeros does not change the sum.
        points = np.ascontiguousarray(ids).view(np.uint32).reshape(len(ids), -1)
        return ids[points.sum(axis=1) % n_buckets == bucket]
    return ids[ids % n_buckets == bucket]


def find_repeated(*parts):
    """Some ids that occur more than once."""
    unique, n_times = np.unique(np.concatenate(parts), return_counts=True)
    return unique[n_times > 1][:3].tolist()
