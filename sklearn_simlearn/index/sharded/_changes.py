"""Changes of a sharded index. Each function returns a new state."""

from functools import reduce

import numpy as np

from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._ids import check_ids, number_on, read_ids
from sklearn_simlearn.index.sharded import _tasks
from sklearn_simlearn.index.sharded._remote import ask, derive
from sklearn_simlearn.index.sharded._sources import Rows, find_parts, is_in_memory
from sklearn_simlearn.index.sharded._state import (
    assemble,
    build_shards,
    refuse_repeated,
    send,
    survey,
    unavailable,
)


def ask_all(client, shards, function, arguments, missing=None):
    """Return the results of all shards, or of those that are available.

    If a shard is not available and `missing` is a set, add the number of the shard to
    `missing`. If `missing` is None, raise an error that names the shard.
    """
    answers, faults = ask(client, shards.futures, function, arguments)
    if faults and missing is None:
        raise unavailable(shards.names, faults)
    if faults:
        missing.update(faults)
    return [part for i, part in enumerate(answers) if i not in faults]


def find(client, shards, ids):
    """Return the row of each id in each shard; -1 if the shard does not have it."""
    arguments = [(ids, runs) for runs in shards.runs]
    return np.stack(ask_all(client, shards, _tasks.find, arguments))


def add(client, shards, template, X, ids, metadata):
    """Add rows in memory to a shard, or partitions and files as new shards."""
    if ids is None and not shards.common.is_numbered:
        raise ValueError("The index was fitted with ids. Pass ids for new items.")
    if is_in_memory(X):
        return _add_rows(client, shards, X, ids, metadata)
    return _add_shards(client, shards, template, X, ids, metadata)


def _add_rows(client, shards, X, ids, metadata):
    """Add rows in memory to the smallest shard."""
    n_items = num_samples(X)
    if ids is None:
        ids = number_on(shards.next_id, n_items)
    else:
        ids = check_ids(ids, n_items, X, metadata)
        known = find(client, shards, ids).max(axis=0) >= 0
        if known.any():
            raise ValueError(
                f"The index already has items with the ids {ids[known][:3].tolist()}. "
                "Remove them first, or replace them with `upsert`."
            )
    return _add_new(client, shards, X, ids, metadata)


def upsert_rows(client, shards, X, ids, metadata):
    """Add rows in memory, and remove old rows with the same ids."""
    ids = check_ids(ids, num_samples(X), X, metadata)
    rows = find(client, shards, ids)
    remaining = _without(client, shards, ids, rows)
    return _add_new(client, remaining, X, ids, metadata)


def _add_new(client, shards, X, ids, metadata):
    next_id = shards.next_id
    if shards.common.is_numbered:
        next_id = max(next_id, int(ids.max(initial=-1)) + 1)
    smallest = int(np.argmin([runs.length.sum() for runs in shards.runs]))
    rows = Rows(_metadata.as_table(X), ids, metadata)
    futures = _derive(client, shards, [smallest], _tasks.add, [(rows,)])
    runs, n_items = list(shards.runs), num_samples(X)
    runs[smallest] = runs[smallest].append(shards.n_rows, n_items)
    return shards._replace(
        futures=futures,
        runs=tuple(runs),
        n_rows=shards.n_rows + n_items,
        next_id=next_id,
    )


def _add_shards(client, shards, template, X, ids, metadata):
    """Add partitions or files as new shards."""
    names, parts = find_parts(X, ids, metadata, 1)
    new = assemble(
        client,
        names,
        build_shards(client, template, parts),
        (shards.estimator, shards.model),
        first_row=shards.n_rows,
        first_id=shards.next_id,
        like=shards.common,
    )
    if not shards.common.is_numbered:
        refuse_repeated(client, [*shards.futures, *new.futures])
    return new._replace(
        names=shards.names + new.names,
        futures=shards.futures + new.futures,
        runs=shards.runs + new.runs,
        removed=np.concatenate([shards.removed, new.removed]),
        common=shards.common,
    )


def remove(client, shards, ids):
    """Remove items; raise if an id is unknown."""
    ids = read_ids(ids)
    rows = find(client, shards, ids)
    found = rows.max(axis=0, initial=-1)
    if (found < 0).any():
        unknown = ids[found < 0][:3].tolist()
        raise ValueError(f"The index has no items with the ids {unknown}.")
    return _without(client, shards, ids, rows)


def _without(client, shards, ids, rows):
    affected = np.flatnonzero((rows >= 0).any(axis=1))
    if len(affected) == 0:
        return shards
    futures = _derive(client, shards, affected, _tasks.remove, [(ids,)] * len(affected))
    removed = np.union1d(shards.removed, rows[rows >= 0])
    return shards._replace(futures=futures, removed=removed)


def compact(client, shards):
    """Free the memory of removed items, and renumber the rows."""
    everyone = range(len(shards.names))
    futures = _derive(client, shards, everyone, _tasks.compact, [()] * len(everyone))
    return shards._replace(
        futures=futures,
        runs=tuple(runs.renumbered(shards.removed) for runs in shards.runs),
        removed=shards.removed[:0],
        n_rows=shards.n_items,
    )


def set_estimator(client, shards, estimator, model):
    """Replace the estimator of all shards."""
    n_shards = len(shards.names)
    sent = send(client, estimator)
    futures = _derive(
        client, shards, range(n_shards), _tasks.adopt, [(sent,)] * n_shards
    )
    common, found = survey(client, shards.names, futures)
    # Shards that were encoded again have dropped removed items.
    runs = tuple(
        runs if part.n_rows == runs.length.sum() else runs.without(shards.removed)
        for runs, part in zip(shards.runs, found, strict=True)
    )
    return shards._replace(
        futures=futures,
        runs=runs,
        common=common._replace(is_numbered=shards.common.is_numbered),
        estimator=estimator,
        model=model,
    )


def fetch(client, shards):
    """Return ids and metadata of all items, in their order."""
    arguments = [(runs,) for runs in shards.runs]
    parts = ask_all(client, shards, _tasks.current, arguments)
    rows, ids, tables = zip(*parts, strict=True)
    order = np.argsort(np.concatenate(rows))
    table = (
        None
        if tables[0] is None
        else _metadata.take(reduce(_metadata.join, tables), order)
    )
    return np.concatenate(ids)[order], table


def fetch_metadata(client, shards, rows):
    """Return the metadata of some global rows."""
    places = [runs.find(rows) for runs in shards.runs]
    holders = [i for i, place in enumerate(places) if (place >= 0).any()] or [0]
    asked = shards._replace(
        names=tuple(shards.names[i] for i in holders),
        futures=tuple(shards.futures[i] for i in holders),
    )
    arguments = [(places[i][places[i] >= 0],) for i in holders]
    parts = ask_all(client, asked, _tasks.metadata_of, arguments)
    order = np.concatenate([np.flatnonzero(places[i] >= 0) for i in holders])
    return _metadata.take(reduce(_metadata.join, parts), np.argsort(order))


def fetch_encoded(client, shards, ids):
    """Return the mask of known ids, and the encodings of these items."""
    n_shards = len(shards.names)
    answers = ask_all(client, shards, _tasks.encoded_of, [(ids,)] * n_shards)
    masks, parts = zip(*answers, strict=True)
    order = np.argsort(np.concatenate([np.flatnonzero(mask) for mask in masks]))
    return np.any(masks, axis=0), reduce(_metadata.join, parts)[order]


def _derive(client, shards, affected, function, arguments):
    """Return the futures of all shards, with some of them replaced."""
    futures = list(shards.futures)
    made = derive(client, [futures[i] for i in affected], function, arguments)
    for i, future in zip(affected, made, strict=True):
        futures[i] = future
    return tuple(futures)
