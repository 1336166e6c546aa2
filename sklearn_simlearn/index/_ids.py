"""Ids of the items, with a mask of the items that were not removed."""

import threading
from functools import cached_property

import numpy as np

from sklearn_simlearn._core.targets import string_array

LARGEST = np.iinfo(np.int64).max


class Ids:
    """Immutable table of the ids of rows and of the rows of ids.

    Parameters
    ----------
    values : ndarray of shape (n_rows,), int64 or str
        Ids, unique among the items that were not removed.

    alive : ndarray of shape (n_rows,), dtype bool, default=None
        False for removed items. None means that no item was removed.

    next_id : int, default=None
        Next id if the index assigns ids; None if the user provides them. Ids of removed
        items are not reused.

    verify : callable, default=None
        ``verify(start, stop)`` is called before rows are first read.
    """

    def __init__(self, values, alive=None, *, next_id=None, verify=None):
        self.values = values
        self.alive = np.ones(len(values), dtype=bool) if alive is None else alive
        self.next_id = next_id
        self._verify = verify
        self._buffer = None
        self._parts = None  # a list of `_SortedPart`

    @classmethod
    def numbered(cls, n_items):
        """Return the ids 0, 1, ..., for items without user-provided ids."""
        return cls(np.arange(n_items), next_id=n_items)

    def __getstate__(self):
        state = vars(self) | {"_verify": None, "_buffer": None, "_parts": None}
        return state | {"values": np.array(self.values), "alive": np.array(self.alive)}

    @cached_property
    def n_alive(self):
        return int(np.count_nonzero(self.alive))

    @property
    def n_rows(self):
        return len(self.values)

    @property
    def has_removed(self):
        return self.n_alive < self.n_rows

    @property
    def is_numbered(self):
        return self.next_id is not None

    def take(self, rows):
        """Return the ids of rows; -1 or "" where the row is -1."""
        if self._verify is None and rows.min(initial=0) >= 0:
            return self.values[rows]
        found = rows >= 0
        if not found.any():
            return np.full(rows.shape, self.nothing, dtype=self.values.dtype)
        if self._verify is not None:
            self._verify(int(rows[found].min()), int(rows.max()) + 1)
        ids = self.values[rows]
        ids[~found] = self.nothing
        return ids

    def current(self):
        """Return a copy of the ids of the items that were not removed, by row."""
        self._verify_all()
        return self.values[self.alive] if self.has_removed else np.array(self.values)

    def find(self, ids):
        """Return the rows of ids; -1 for unknown ids."""
        ids = self.convert(ids)
        found = np.full(ids.shape, -1, dtype=np.int64)
        for part in self._sorted_parts():
            np.maximum(found, part.find(ids), out=found)
        if self.has_removed:
            found[~self.alive[found]] = -1
        return found

    def number(self, n_items):
        """Return ids for new items without user-provided ids."""
        if not self.is_numbered:
            raise ValueError("The index was fitted with ids. Pass ids for new items.")
        return number_on(self.next_id, n_items)

    def append(self, ids):
        """Return these ids with new ones appended. Raise if an id exists already."""
        known = self.find(ids) >= 0
        if known.any():
            raise ValueError(
                f"The index already has items with the ids {_show(ids[known])}. Remove "
                "them first, or replace them with `upsert`."
            )
        self._verify_all()
        joined = Ids(
            self.values,
            np.append(self.alive, np.ones(len(ids), dtype=bool)),
            next_id=self.next_id,
        )
        joined._buffer = (self._buffer or _Buffer(self.values)).extend(self.n_rows, ids)
        joined.values = joined._buffer.view(self.n_rows + len(ids))
        if self.is_numbered:
            joined.next_id = max(self.next_id, int(ids.max(initial=-1)) + 1)
        new = _SortedPart.sort(ids, self.n_rows + np.arange(len(ids)))
        joined._parts = _merge([*self._sorted_parts(), new])
        return joined

    def without(self, rows):
        """Return the ids with some rows removed."""
        remaining = Ids(self.values, self.alive.copy(), next_id=self.next_id)
        remaining.alive[rows] = False
        remaining._verify = self._verify
        remaining._buffer, remaining._parts = self._buffer, self._parts
        return remaining

    def compact(self):
        """Return the ids of the items that were not removed, with rows renumbered."""
        compact = Ids(self.current(), next_id=self.next_id)
        if self._parts is not None:
            place = np.cumsum(self.alive) - 1
            kept = [(part, self.alive[part.rows]) for part in self._parts]
            compact._parts = [
                _SortedPart(part.values[is_kept], place[part.rows[is_kept]])
                for part, is_kept in kept
            ]
        return compact

    def convert(self, ids):
        """Return user-provided ids, converted to the type of the stored ids."""
        ids = read_ids(ids)
        if (ids.dtype.kind == "U") != (self.values.dtype.kind == "U") and len(ids):
            kind = "strings" if self.values.dtype.kind == "U" else "integers"
            raise ValueError(f"The ids of this index are {kind}. Pass {kind}.")
        return ids if len(ids) else ids.astype(self.values.dtype)

    @property
    def nothing(self):
        """Return the id that marks a missing item."""
        return "" if self.values.dtype.kind == "U" else -1

    def _sorted_parts(self):
        if self._parts is None:
            self._verify_all()
            self._parts = [_SortedPart.sort(self.values, np.arange(self.n_rows))]
        return self._parts

    def _verify_all(self):
        if self._verify is not None:
            self._verify(0, self.n_rows)


class _SortedPart:
    """Ids of some rows, including removed items, in ascending order.

    Rows with the same id are in ascending order.
    """

    def __init__(self, values, rows):
        self.values, self.rows = values, rows
        self._is_run = (
            values.dtype.kind != "U" and (values[1:] == values[:-1] + 1).all()
        )

    @classmethod
    def sort(cls, values, rows):
        order = np.argsort(values, kind="stable")
        return cls(values[order], rows[order])

    def find(self, ids):
        """Return the last row of each id, the only one that can be alive; else -1."""
        if len(self.values) == 0:
            return np.full(ids.shape, -1, dtype=np.int64)
        if self._is_run:
            place = ids - self.values[0]
        else:
            place = self.values.searchsorted(ids, side="right") - 1
        # A place outside the part becomes one whose id differs.
        is_found = self.values.take(place, mode="clip") == ids
        return np.where(is_found, self.rows.take(place, mode="clip"), -1)


class _Buffer:
    """Array with spare capacity at its end. Written rows never change."""

    def __init__(self, array):
        self._array, self._n_used = array, len(array)
        self._lock = threading.Lock()

    def view(self, n_rows):
        return self._array[:n_rows]

    def extend(self, n_rows, more):
        """Return a buffer with the first `n_rows` rows of this buffer, then `more`.

        The memory is shared if it has enough capacity and no row after `n_rows` was
        written.
        """
        dtype = np.result_type(self._array, more)
        end = n_rows + len(more)
        with self._lock:
            has_room = self._n_used == n_rows and end <= len(self._array)
            if has_room and dtype == self._array.dtype:
                self._array[n_rows:end] = more
                self._n_used = end
                return self
        array = np.empty(end + end // 2, dtype=dtype)
        array[:n_rows], array[n_rows:end] = self._array[:n_rows], more
        larger = _Buffer(array)
        larger._n_used = end
        return larger


def _merge(parts):
    """Merge sorted parts until each is more than twice as long as the next."""
    while len(parts) > 1 and len(parts[-2].rows) < 2 * len(parts[-1].rows):
        *parts, first, second = parts
        values = np.concatenate([first.values, second.values])
        rows = np.concatenate([first.rows, second.rows])
        parts.append(_SortedPart.sort(values, rows))
    return parts


def number_on(start, n_items):
    """Return consecutive ids from `start`; raise if they do not fit into int64."""
    if start + n_items - 1 > LARGEST:
        raise ValueError(
            f"New items cannot be numbered from {start}, because the ids would not fit "
            "into 64-bit signed integers. Pass ids."
        )
    return np.arange(start, start + n_items, dtype=np.int64)


def check_ids(ids, n_items, *tables):
    """Return the ids of new items, one per item and unique.

    Parameters
    ----------
    ids : array-like of shape (n_items,) or "index"
        Ids; "index" for the index of the first of `tables` that is a pandas frame.

    n_items : int

    *tables : object
        Items and their metadata.
    """
    if isinstance(ids, str):
        ids = _find_index(ids, tables)
    ids = read_ids(ids)
    if len(ids) != n_items:
        raise ValueError(
            f"ids must have one entry per item; got {len(ids)} ids for {n_items} items."
        )
    unique, n_times = np.unique(ids, return_counts=True)
    if len(unique) < n_items:
        raise ValueError(f"ids must be unique; repeated: {_show(unique[n_times > 1])}.")
    return ids


def _find_index(ids, tables):
    """Return the index of the first pandas frame; raise if there is none."""
    if ids != "index":
        raise ValueError(f"ids must be 'index', None or a list of ids; got {ids!r}.")
    for table in tables:
        # Lists have a method of this name.
        index = getattr(table, "index", None)
        if hasattr(index, "to_numpy"):
            return index.to_numpy()
    raise ValueError(
        "ids='index' requires a pandas frame as items or metadata. Pass a list of ids."
    )


def read_ids(ids):
    """Return a list of integers or of strings as an array."""
    array = np.asarray(ids)
    if array.ndim == 1 and array.size == 0:
        return array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iuUOT":
        if array is not ids and array.dtype.kind == "f" and _are_integers(ids):
            raise _too_large()  # NumPy turns them into floats
        raise _no_ids(array)
    if array.dtype.kind in "iu":
        if array.dtype == np.uint64 and array.max() > LARGEST:
            raise _too_large()
        return array.astype(np.int64, copy=False)
    if array.dtype.kind != "U" or not isinstance(ids, np.ndarray):
        # NumPy would convert a mixture of numbers and strings to strings.
        values = list(ids)
        if all(isinstance(value, str) for value in values):
            return string_array(values, "ids")
        if not _are_integers(values):
            raise _no_ids(array)
        if not all(-LARGEST - 1 <= value <= LARGEST for value in values):
            raise _too_large()
        return np.array(values, dtype=np.int64)
    return array


def _are_integers(values):
    return all(
        isinstance(value, int | np.integer) and not isinstance(value, bool)
        for value in values
    )


def _too_large():
    return ValueError("ids must fit into 64-bit signed integers.")


def _no_ids(array):
    return ValueError(
        "ids must be one-dimensional and hold integers only, or strings only; got "
        f"shape {array.shape} and dtype {array.dtype}."
    )


def _show(ids):
    """Return a few ids for an error message."""
    shown = ", ".join(repr(value) for value in ids[:3].tolist())
    return shown + (", ..." if len(ids) > 3 else "")
