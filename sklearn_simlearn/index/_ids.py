"""What the user calls the items, and which of them are still there."""

import numpy as np


class Ids:
    """Ids by row, and rows by id.

    Parameters
    ----------
    values : ndarray of shape (n_rows,), int64 or str
        Unique among the rows that are alive.

    alive : ndarray of shape (n_rows,), dtype bool, default=None
        False where an item was removed; all are there if None.

    is_numbered : bool, default=False
        Whether items are numbered as they come, because the user gave no ids.

    verify : callable, default=None
        ``verify(start, stop)`` is called before rows are first read.
    """

    def __init__(self, values, alive=None, *, is_numbered=False, verify=None):
        self.values = values
        self.alive = np.ones(len(values), dtype=bool) if alive is None else alive
        self.is_numbered = is_numbered
        self._verify = verify
        self._sorted = None

    def __getstate__(self):
        state = vars(self) | {"_verify": None, "_sorted": None}
        return state | {"values": np.array(self.values), "alive": np.array(self.alive)}

    @property
    def n_alive(self):
        return int(np.count_nonzero(self.alive))

    @property
    def has_removed(self):
        return self.n_alive < len(self.values)

    def take(self, rows):
        """Ids of rows; -1 or "" where the row is -1."""
        found = rows >= 0
        if not found.any():
            return np.full(rows.shape, self.nothing, dtype=self.values.dtype)
        if self._verify is not None:
            self._verify(int(rows[found].min()), int(rows.max()) + 1)
        ids = self.values[rows]
        ids[~found] = self.nothing
        return ids

    def current(self):
        """Ids of the items that are there, in their order."""
        if self._verify is not None:
            self._verify(0, len(self.values))
        return self.values[self.alive] if self.has_removed else np.array(self.values)

    def find(self, ids):
        """Rows of ids; -1 for those that no item has."""
        ids = self.convert(ids)
        values, rows = self._lookup()
        if len(values) == 0:
            return np.full(ids.shape, -1, dtype=np.int64)
        place = np.minimum(np.searchsorted(values, ids), len(values) - 1)
        return np.where(values[place] == ids, rows[place], -1)

    def number(self, n_items):
        """Ids for new items of a user who gives none."""
        if not self.is_numbered:
            raise ValueError("The index has ids: give those of the new items as well.")
        start = int(self.values.max(initial=-1)) + 1
        return np.arange(start, start + n_items)

    def append(self, ids):
        """Ids with those of new items at the end, if none of them is there already."""
        values, rows = self._lookup()
        known = self.find(ids) >= 0
        if known.any():
            raise ValueError(
                f"The index already has items with the ids {_show(ids[known])}: "
                "remove them first."
            )
        new_rows = np.arange(len(self.values), len(self.values) + len(ids))
        joined = Ids(
            np.concatenate([self.values, ids]),
            np.append(self.alive, np.ones(len(ids), dtype=bool)),
            is_numbered=self.is_numbered,
        )
        # Merged, because sorting a large index for a few more items takes longer.
        order = np.argsort(ids)
        place = np.searchsorted(values, ids[order])
        wide = values.astype(np.result_type(values, ids), copy=False)
        joined._sorted = (
            np.insert(wide, place, ids[order]),
            np.insert(rows, place, new_rows[order]),
        )
        return joined

    def without(self, rows):
        """Ids with some rows removed."""
        alive = np.array(self.alive)
        alive[rows] = False
        values = self.values
        remaining = Ids(
            values, alive, is_numbered=self.is_numbered, verify=self._verify
        )
        values, sorted_rows = self._lookup()
        kept = alive[sorted_rows]
        remaining._sorted = values[kept], sorted_rows[kept]
        return remaining

    def compact(self):
        """Ids of the items that are there, as rows of their own."""
        return Ids(self.current(), is_numbered=self.is_numbered)

    def convert(self, ids):
        """Ids that the user asks for, in the type of those that are stored."""
        ids = read_ids(ids)
        if (ids.dtype.kind == "U") != (self.values.dtype.kind == "U") and len(ids):
            kind = "strings" if self.values.dtype.kind == "U" else "integers"
            raise ValueError(f"The ids of this index are {kind}.")
        return ids if len(ids) else ids.astype(self.values.dtype)

    @property
    def nothing(self):
        """What stands where there is no item."""
        return "" if self.values.dtype.kind == "U" else -1

    def _lookup(self):
        """Ids in sorted order, and their rows."""
        if self._sorted is None:
            rows = np.flatnonzero(self.alive)
            values = self.current()
            order = np.argsort(values, kind="stable")
            self._sorted = values[order], rows[order]
        return self._sorted


def check_ids(ids, n_items):
    """Ids of new items, one per item and unique."""
    ids = read_ids(ids)
    if len(ids) != n_items:
        raise ValueError(
            f"ids must name each item; got {len(ids)} ids for {n_items} items."
        )
    unique, n_times = np.unique(ids, return_counts=True)
    if len(unique) < n_items:
        raise ValueError(f"ids must be unique; repeated: {_show(unique[n_times > 1])}.")
    return ids


def read_ids(ids):
    """A list of integers or of strings as an array."""
    array = np.asarray(ids)
    if array.ndim == 1 and array.size == 0:
        return array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iuUOT":
        raise _no_ids(array)
    if array.dtype.kind in "iu":
        if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
            raise ValueError("ids must fit into 64-bit signed integers.")
        return array.astype(np.int64, copy=False)
    if array.dtype.kind != "U" or not isinstance(ids, np.ndarray):
        # NumPy would turn a mixture of numbers and strings into strings.
        values = list(ids)
        if all(isinstance(value, str) for value in values):
            return np.array(values, dtype=str)
        if not all(
            isinstance(value, int | np.integer) and not isinstance(value, bool)
            for value in values
        ):
            raise _no_ids(array)
        return np.array(values, dtype=np.int64)
    return array


def _no_ids(array):
    return ValueError(
        "ids must be one-dimensional and hold integers only, or strings only; got "
        f"shape {array.shape} and dtype {array.dtype}."
    )


def _show(ids):
    """A few ids for an error message."""
    shown = ", ".join(repr(value) for value in ids[:3].tolist())
    return shown + (", ..." if len(ids) > 3 else "")
