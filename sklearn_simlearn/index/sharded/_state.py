"""The shards of an index as a whole: which rows they hold, how they come about."""

from itertools import cycle
from typing import NamedTuple

import numpy as np

from sklearn_simlearn.index._ids import number_on
from sklearn_simlearn.index.sharded import _tasks
from sklearn_simlearn.index.sharded._remote import (
    ask,
    derive,
    find_workers,
    large_messages,
)

# What the descriptions of all shards agree in.
ALIKE = ("n_features", "dtype", "backend", "id_kind", "is_numbered", "n_features_in")


class Runs(NamedTuple):
    """Rows of the whole that a shard holds, in its order: runs of consecutive ones."""

    start: np.ndarray
    length: np.ndarray

    def place(self, rows):
        """Rows of the whole, for rows of the shard; -1 stays."""
        if len(self.start) == 0:
            return np.full_like(rows, -1)
        first = np.cumsum(self.length) - self.length
        run = np.searchsorted(first, rows, side="right") - 1
        return np.where(rows >= 0, self.start[run] + rows - first[run], -1)

    def append(self, start, length):
        """With one more run at the end."""
        if len(self.start) and self.start[-1] + self.length[-1] == start:
            longer = self.length.copy()
            longer[-1] += length
            return Runs(self.start, longer)
        return Runs(np.append(self.start, start), np.append(self.length, length))

    def without(self, removed):
        """Without some rows of the whole, which are sorted."""
        rows = np.repeat(self.start - np.cumsum(self.length) + self.length, self.length)
        rows += np.arange(len(rows))
        rows = rows[~np.isin(rows, removed)]
        begins = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        return Runs(rows[begins], np.diff(begins, append=len(rows)))


class Shards(NamedTuple):
    """A state of the index. It is replaced as a whole, and never changed.

    Attributes
    ----------
    names : tuple of str
        What messages call the shards.

    futures : tuple of Future
        The shards.

    runs : tuple of Runs
        Which rows of the whole each of them holds.

    removed : ndarray of int64
        Rows of the whole that were removed, in order.

    n_rows : int
        Number of rows so far, those of removed items included.

    next_id : int
        Number of the next item, if items are numbered.
    """

    names: tuple
    futures: tuple
    runs: tuple
    removed: np.ndarray
    n_rows: int
    next_id: int

    def cut_mask(self, mask):
        """The part of a mask of all items that belongs to each shard."""
        if len(mask) != self.n_rows - len(self.removed):
            raise ValueError(
                "A mask as filter must have one boolean for each of the "
                f"{self.n_rows - len(self.removed)} items; got {len(mask)}."
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
    """A value that Dask sends to each worker once, and can send again."""
    with large_messages():
        return client.submit(_tasks.unpack, _tasks.Sent(value), pure=False)


def build_shards(client, template, parts):
    """Shards of some rows, on the workers in turn."""
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
    """Shards in folders, on the workers in turn."""
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


def survey(client, names, futures):
    """What shards have in common, and the description of each; None for empty ones."""
    found, faults = ask(client, futures, _tasks.describe, [()] * len(futures))
    if faults:
        raise unavailable(names, faults)
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
                f"Shards must be of one kind, but {field} is {one} in {first[0]!r} and "
                f"{other} in {name!r}."
            )


def assemble(client, names, futures, first_row=0, first_id=0, like=None):
    """A state of new shards, what they have in common, and whether they are numbered.

    Parameters
    ----------
    first_row : int, default=0
        Row of the whole at which they start.

    first_id : int, default=0
        Number of their first item, if items are numbered.

    like : Description, default=None
        Of shards that are there already.
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
        number_on(next_id, 0)  # raises if the ids do not fit into integers
        shift = first_id - int(runs[0].start[0])
        firsts = [(int(part.start[0]) + shift,) for part in runs]
        futures = derive(client, futures, _tasks.number, firsts)
    elif len(futures) > 1:
        refuse_repeated(client, futures)
    shards = Shards(
        tuple(names),
        tuple(futures),
        tuple(runs),
        np.concatenate(removed),
        first_row,
        next_id,
    )
    return shards, common, common.is_numbered


def refuse_repeated(client, futures):
    """Refuse ids that several shards have, looking at a share of all ids at a time."""
    n = len(futures)
    for bucket in range(n):
        parts, _ = ask(client, futures, _tasks.ids_in_bucket, [(bucket, n)] * n)
        repeated = _tasks.find_repeated(*parts)
        if repeated:
            raise ValueError(f"ids must be unique; repeated: {repeated}.")


def merge(answers, n_queries, k, empty, common):
    """The k best of all shards: by score, and of equal ones by the row of the whole."""
    if not answers:
        ids = np.full((n_queries, k), empty)
        return np.full((n_queries, k), -np.inf, dtype=common.dtype), ids
    scores, rows, ids = (
        np.concatenate(parts, axis=1) for parts in zip(*answers, strict=True)
    )
    best = np.lexsort((rows, -scores), axis=1)[:, :k]
    scores, ids = (np.take_along_axis(array, best, axis=1) for array in (scores, ids))
    short = ((0, 0), (0, k - scores.shape[1]))
    return (
        np.pad(scores, short, constant_values=-np.inf),
        np.pad(ids, short, constant_values=empty),
    )


def unavailable(names, faults):
    shown = "; ".join(f"{names[i]!r} ({faults[i]!r})" for i in sorted(faults))
    error = RuntimeError(
        f"These shards cannot be had: {shown}. Restore their source and try again, or "
        'search the others with partial="allow".'
    )
    error.__cause__ = next(iter(faults.values()))
    return error
