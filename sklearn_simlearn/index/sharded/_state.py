"""State of a sharded index: its shards and the rows that they hold."""

import warnings
from collections.abc import Mapping
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from sklearn_simlearn.index._filters import PerQuery, check_filter, split_filter
from sklearn_simlearn.index._ids import number_on
from sklearn_simlearn.index._state import REMOVED_SHARE, Features
from sklearn_simlearn.index.sharded import _tasks
from sklearn_simlearn.index.sharded._remote import (
    ask,
    derive,
    find_workers,
    large_messages,
)

# Fields that must be equal in the descriptions of all shards.
ALIKE = ("n_features", "dtype", "backend", "id_kind", "is_numbered", "n_features_in")


class Runs(NamedTuple):
    """Global rows that a shard holds, in its order, as runs of consecutive rows."""

    start: np.ndarray
    length: np.ndarray

    def place(self, rows):
        """Return global rows for rows of the shard; -1 is unchanged."""
        if len(self.start) == 0:
            return np.full_like(rows, -1)
        first = np.cumsum(self.length) - self.length
        run = np.searchsorted(first, rows, side="right") - 1
        return np.where(rows >= 0, self.start[run] + rows - first[run], -1)

    def find(self, rows):
        """Return rows of the shard for global rows; -1 for rows of other shards."""
        if len(self.start) == 0:
            return np.full_like(rows, -1)
        order = np.argsort(self.start)
        run = order[np.searchsorted(self.start[order], rows, side="right") - 1]
        within = rows - self.start[run]
        is_here = (within >= 0) & (within < self.length[run])
        first = np.cumsum(self.length) - self.length
        return np.where(is_here, first[run] + within, -1)

    def append(self, start, length):
        """Return the runs with one more at the end."""
        if len(self.start) and self.start[-1] + self.length[-1] == start:
            longer = self.length.copy()
            longer[-1] += length
            return Runs(self.start, longer)
        return Runs(np.append(self.start, start), np.append(self.length, length))

    def without(self, removed):
        """Return the runs without some global rows, which must be sorted."""
        rows = self.expand()
        return Runs.of(rows[~np.isin(rows, removed)])

    def renumbered(self, removed):
        """Return the runs after some global rows are dropped, with rows renumbered."""
        rows = self.without(removed).expand()
        return Runs.of(rows - np.searchsorted(removed, rows))

    def expand(self):
        """Return all global rows, in the order of the shard."""
        rows = np.repeat(self.start - np.cumsum(self.length) + self.length, self.length)
        return rows + np.arange(len(rows))

    @classmethod
    def of(cls, rows):
        """Return rows as runs of consecutive rows."""
        begins = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        return cls(rows[begins], np.diff(begins, append=len(rows)))


class Shards(NamedTuple):
    """Immutable state of the index. A change replaces it as a whole.

    Attributes
    ----------
    names : tuple of str
        Names of the shards in messages.

    futures : tuple of Future
        Futures of the shards.

    runs : tuple of Runs
        Global rows that each shard holds.

    removed : ndarray of int64
        Global rows that were removed, in ascending order.

    n_rows : int
        Number of global rows, including those of removed items.

    next_id : int
        Id of the next item, if the index assigns ids.

    common : Description
        Common description of the shards.

    estimator, model : object
        Fitted estimator, and its model.
    """

    names: tuple
    futures: tuple
    runs: tuple
    removed: np.ndarray
    n_rows: int
    next_id: int
    common: Any
    estimator: Any
    model: Any

    @property
    def n_items(self):
        """Return the number of items that were not removed."""
        return self.n_rows - len(self.removed)

    @property
    def features(self):
        """Return the features of the original items."""
        names = self.common.names_in
        names = None if names is None else np.array(names, dtype=object)
        return Features(self.common.n_features_in, names)

    @property
    def should_compact(self):
        """Return whether enough rows were removed to compact the shards."""
        n_held = sum(int(runs.length.sum()) for runs in self.runs)
        return n_held - self.n_items > REMOVED_SHARE * n_held

    def cut_filter(self, filter, n_results):
        """Return the part of a filter for each shard."""
        filter = split_filter(filter, n_results)
        if isinstance(filter, PerQuery):
            parts = [self._cut_filter(part) for part in filter]
            return [PerQuery(of_shard) for of_shard in zip(*parts, strict=True)]
        return self._cut_filter(filter)

    def _cut_filter(self, filter):
        if filter is not None and not isinstance(filter, Mapping):
            check_filter(filter)
            if not callable(filter) and np.asarray(filter).dtype == bool:
                return self._cut_mask(np.asarray(filter))
        return [filter] * len(self.names)

    def _cut_mask(self, mask):
        """Return the part of a mask of all items for each shard."""
        if mask.shape != (self.n_items,):
            raise ValueError(
                "A mask as filter must have one boolean for each of the "
                f"{self.n_items} items; got shape {mask.shape}."
            )
        parts = []
        for start, length in self.runs:
            first, last = (
                rows - np.searchsorted(self.removed, rows)
                for rows in (start, start + length)
            )
            pieces = [mask[i:j] for i, j in zip(first, last, strict=True)]
            parts.append(np.concatenate([mask[:0], *pieces]))
        return parts


def send(client, value):
    """Return a future of a value that Dask sends to each worker once."""
    with large_messages():
        return client.submit(_tasks.unpack, _tasks.Sent(value), pure=False)


def build_shards(client, template, parts):
    """Return shards of some rows, distributed over the workers."""
    from dask import delayed

    sent = send(client, template)
    make = delayed(_tasks.build, pure=False)
    with large_messages():
        return [
            client.compute(
                make(sent, part), workers=[address], allow_other_workers=True
            )
            for part, address in zip(parts, cycle(find_workers(client)), strict=False)
        ]


def open_shards(client, folders, estimator, **options):
    """Return shards in folders, distributed over the workers."""
    sent = send(client, estimator)
    return [
        client.submit(
            _tasks.open_folder,
            folder,
            sent,
            **options,
            pure=False,
            workers=[address],
            allow_other_workers=True,
        )
        for folder, address in zip(folders, cycle(find_workers(client)), strict=False)
    ]


def survey(client, names, futures, *, allow_missing=False):
    """Return the common description of the shards, and the description of each shard.

    The description of an empty shard is None. With `allow_missing`, so is that of a
    shard that is not available, and a warning is issued. If no shard is available, an
    error is raised.
    """
    found, faults = ask(client, futures, _tasks.describe, [()] * len(futures))
    if faults:
        error = unavailable(names, faults)
        if not allow_missing or len(faults) == len(names):
            raise error
        warnings.warn(str(error), stacklevel=3)
    filled = [(name, part) for name, part in zip(names, found, strict=True) if part]
    if not filled:
        raise ValueError("There are no items: all parts of X are empty.")
    for name, part in filled[1:]:
        _refuse_other_kind(filled[0], name, part)
    return filled[0][1], found


def _refuse_other_kind(first, name, part):
    for field in ALIKE:
        one, other = getattr(first[1], field), getattr(part, field)
        if one != other:
            raise ValueError(
                f"All shards must have the same {field}, but it is {one} in "
                f"{first[0]!r} and {other} in {name!r}."
            )


def assemble(client, names, futures, encoder, first_row=0, first_id=0, like=None):
    """Return the state of new shards.

    Parameters
    ----------
    client : distributed.Client

    names : list of str
        Names of the shards in messages.

    futures : list of Future
        Futures of the shards.

    encoder : tuple (estimator, model)
        Estimator of the queries, and its model.

    first_row : int, default=0
        First global row of the new shards.

    first_id : int, default=0
        Id of the first new item, if the index assigns ids.

    like : Description, default=None
        Description of the existing shards.
    """
    common, found = survey(client, names, futures)
    if like is not None:
        _refuse_other_kind(("the index", like), "the new items", common)
    filled = [i for i, part in enumerate(found) if part is not None]
    names, futures, found = (
        [values[i] for i in filled] for values in (names, futures, found)
    )
    runs, removed = [], []
    for part in found:
        runs.append(Runs(np.array([first_row]), np.array([part.n_rows])))
        removed.append(first_row + part.removed)
        first_row += part.n_rows
    next_id = first_id + first_row - int(runs[0].start[0])
    if common.is_numbered:
        number_on(next_id, 0)  # raises if the ids exceed 64 bits
        shift = first_id - int(runs[0].start[0])
        firsts = [(int(part.start[0]) + shift,) for part in runs]
        futures = derive(client, futures, _tasks.number, firsts)
    elif len(futures) > 1:
        refuse_repeated(client, futures)
    removed = np.concatenate(removed)
    return Shards(
        tuple(names),
        tuple(futures),
        tuple(runs),
        removed,
        first_row,
        next_id,
        common,
        *encoder,
    )


def refuse_repeated(client, futures):
    """Raise if several shards have the same id; check a share of the ids at a time."""
    n = len(futures)
    for bucket in range(n):
        parts, _ = ask(client, futures, _tasks.ids_in_bucket, [(bucket, n)] * n)
        repeated = _tasks.find_repeated(*parts)
        if repeated:
            raise ValueError(f"ids must be unique; repeated: {repeated}.")


def merge(answers, n_queries, k, common):
    """Return scores, global rows and ids of the k best items of all shards.

    Items with the same score are ordered by row.
    """
    nothing = "" if common.id_kind == "strings" else -1
    if not answers:
        answers = [
            (
                np.full((n_queries, 0), -np.inf, dtype=common.dtype),
                np.full((n_queries, 0), -1),
                np.full((n_queries, 0), nothing),
            )
        ]
    scores, rows, ids = (
        np.concatenate(parts, axis=1) for parts in zip(*answers, strict=True)
    )
    best = np.lexsort((rows, -scores), axis=1)[:, :k]
    found = [np.take_along_axis(part, best, axis=1) for part in (scores, rows, ids)]
    short = ((0, 0), (0, k - best.shape[1]))
    return tuple(
        np.pad(part, short, constant_values=filler)
        for part, filler in zip(found, (-np.inf, -1, nothing), strict=True)
    )


def unavailable(names, faults):
    """Return the error that names the shards with faults."""
    shown = "; ".join(f"{names[i]!r} ({faults[i]!r})" for i in sorted(faults))
    error = RuntimeError(
        f"These shards are not available: {shown}. Restore their source and try again, "
        'or search the others with partial="allow".'
    )
    error.__cause__ = next(iter(faults.values()))
    return error
