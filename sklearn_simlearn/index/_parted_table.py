"""Table that grows without copying all rows."""

from collections.abc import Sequence
from copy import deepcopy
from functools import reduce

import numpy as np

from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._conditions import SortedColumns, read_conditions

# If more than one row in this number is found, rows are marked instead of sorted.
MANY = 10


class PartedTable:
    """Table in immutable parts. Added rows become a new part.

    Preceding parts that are shorter than a new part are merged with it. Therefore each
    row is copied a logarithmic number of times, and the number of parts is logarithmic.

    `find` sorts the columns that a filter uses, and keeps the sorted columns.

    Parameters
    ----------
    *parts : tables of one kind
        Parts. A `_metadata.Stored` is read on first access.
    """

    def __init__(self, *parts):
        self._parts = parts
        self._columns = ()

    @property
    def first_part(self):
        """Return some rows that show the type of the table."""
        return self._read()[0]

    def append(self, table):
        """Return the table with more rows at its end."""
        parts = list(self._read())
        while parts and _count(parts[-1]) < 2 * _count(table):
            table = _metadata.join(parts.pop(), table)
        longer = PartedTable(*parts, table)
        longer._columns = self._columns
        return longer

    def take(self, rows):
        """Return some rows as a plain table."""
        parts = self._read()
        if len(parts) == 1:
            return _metadata.take(parts[0], rows)
        ends = np.cumsum([_count(part) for part in parts])
        which = np.searchsorted(ends, rows, side="right")
        starts = np.concatenate([[0], ends[:-1]])
        taken = [
            _metadata.take(part, rows[which == i] - starts[i])
            for i, part in enumerate(parts)
            if i == 0 or (which == i).any()
        ]
        table = reduce(_metadata.join, taken)
        return _metadata.take(table, np.argsort(np.argsort(which, kind="stable")))

    def whole(self):
        """Return all rows as a plain table."""
        parts = self._read()
        if len(parts) > 1:
            # The assignment is atomic. Other threads read the same rows from old parts.
            self._parts = (reduce(_metadata.join, parts),)
        return self._parts[0]

    def find(self, filter):
        """Return the rows that satisfy a dict of columns and conditions.

        The result is a boolean mask of all rows, or the rows in ascending order if they
        are few.
        """
        # The columns of a part are sorted once, for all tables that share the part.
        known = {id(columns.table): columns for columns in self._columns}
        self._columns = tuple(
            known.get(id(part)) or SortedColumns(part) for part in self._read()
        )
        names = {name for columns in self._columns for name in columns.names}
        conditions = read_conditions(filter, names)
        found, n_rows = [], 0
        for columns in self._columns:
            rows = columns.find(conditions)
            found.append(rows + n_rows if n_rows else rows)
            n_rows += _count(columns.table)
        rows = found[0] if len(found) == 1 else np.concatenate(found)
        if len(rows) * MANY > n_rows:
            mask = np.zeros(n_rows, dtype=bool)
            mask[rows] = True
            return mask
        # Rows with the same value are in ascending order already.
        return rows if (rows[1:] > rows[:-1]).all() else np.sort(rows)

    def _read(self):
        if any(isinstance(part, _metadata.Stored) for part in self._parts):
            self._parts = tuple(
                part.read() if isinstance(part, _metadata.Stored) else part
                for part in self._parts
            )
        return self._parts

    def __getstate__(self):
        table = self.whole()
        if isinstance(table, _metadata.StoredBytes):
            table = list(table)
        return {"_parts": (table,), "_columns": ()}


def _count(table):
    return table.shape[0] if hasattr(table, "shape") else len(table)


def independent(table):
    """Return a copy of a table that shares no memory with the original."""
    if isinstance(table, Sequence) and all(
        isinstance(row, str | bytes) for row in table
    ):
        return list(table)
    return deepcopy(table)
