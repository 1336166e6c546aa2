"""Filters on metadata as dicts of columns and conditions, for all indexes."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import date, datetime
from typing import NamedTuple

import numpy as np

COMPARISONS = ("<", "<=", ">", ">=", "!=")

# Functions that read values from texts in ISO format, by the kind of a column.
FROM_TEXT = {
    "dates": date.fromisoformat,
    "times": datetime.fromisoformat,
    "times with time zones": datetime.fromisoformat,
}


class Condition(NamedTuple):
    """Condition on a column.

    The operator is one of `COMPARISONS`, "=", "any", "null" or "not null".
    """

    column: str
    operator: str
    value: object


def read_conditions(filter, columns):
    """Return a dict filter as a list of conditions, all of which must hold.

    Parameters
    ----------
    filter : dict
        Dict from columns to a value, a list of values, a pair of an operator and a
        value, or a dict of operators and values.

    columns : collection of str
        Columns of the metadata.

    Returns
    -------
    conditions : list of Condition
    """
    conditions = []
    for name, value in filter.items():
        if name not in columns:
            raise ValueError(
                f"filter has the unknown column {name!r}. Columns: "
                f"{sorted(map(str, columns))}."
            )
        if _is_comparison(value):
            value = dict([value])
        if isinstance(value, dict):
            conditions += [_compare(name, *pair) for pair in value.items()]
        elif isinstance(value, list | tuple | set | frozenset | np.ndarray):
            values = [as_builtin(one) for one in value]
            if None in values:
                raise ValueError(
                    f"filter has a list with a missing value for {name!r}. To find "
                    "missing values, filter by None."
                )
            conditions.append(Condition(name, "any", values))
        else:
            value = as_builtin(value)
            operator = "null" if value is None else "="
            conditions.append(Condition(name, operator, value))
    return conditions


def _is_comparison(value):
    """Return whether a value is a pair such as ("<", 10)."""
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], str)
        and value[0] in COMPARISONS
    )


def _compare(name, operator, value):
    if operator not in COMPARISONS:
        raise ValueError(
            f"filter has the unknown operator {operator!r} for {name!r}. Operators: "
            f"{', '.join(map(repr, COMPARISONS))}."
        )
    value = as_builtin(value)
    if value is not None:
        return Condition(name, operator, value)
    if operator == "!=":
        return Condition(name, "not null", None)
    raise ValueError(f"filter compares {name!r} with a missing value by {operator!r}.")


def list_columns(table):
    """Return the names of the columns of metadata."""
    if isinstance(table, Sequence):
        return dict.fromkeys(name for row in table for name in row)
    return table.dtype.names if isinstance(table, np.ndarray) else list(table.columns)


def read_column(table, name):
    """Return a column of metadata as a list of Python values; None if missing."""
    if isinstance(table, Sequence):
        values = [row.get(name) for row in table]
    else:
        column = table[name]
        if hasattr(column, "to_list"):
            values = column.to_list()
        else:
            if column.dtype.kind == "M":
                column = column.astype("M8[us]")  # Python's times have microseconds
            values = column.tolist()
    return [as_builtin(value) for value in values]


def as_builtin(value):
    """Return a value as a built-in type of Python; None if it is missing."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value).__name__ == "NAType":  # missing value of pandas
        return None
    # NaN and NaT are not equal to themselves.
    is_missing = isinstance(value, float | datetime) and value != value
    return None if is_missing else value


class SortedColumns:
    """Columns of a table in sorted order, so that conditions become ranges.

    A column is sorted when a filter first uses it. After that, the time of a filter is
    proportional to the number of rows that satisfy its most selective condition.

    Parameters
    ----------
    table : list of dict, frame or structured array
        Metadata, which must not change.
    """

    def __init__(self, table):
        self.table = table
        self._names = None
        self._sorted = {}

    @property
    def names(self):
        """Return the names of the columns."""
        if self._names is None:
            self._names = list_columns(self.table)
        return self._names

    def find(self, conditions):
        """Return the rows that satisfy all conditions, in any order."""
        found = [self._find_ranges(condition) for condition in conditions]
        if not found:
            return np.arange(len(self.table))
        found.sort(key=lambda pair: sum(stop - start for start, stop in pair[1]))
        column, ranges = found[0]
        parts = [column.rows[start:stop] for start, stop in ranges]
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        for column, ranges in found[1:]:
            # A row satisfies a condition if its position in the sorted column falls
            # into one of the ranges, whose starts and ends alternate.
            bounds = np.ravel(ranges)
            place = np.searchsorted(bounds, column.places[rows], side="right")
            rows = rows[place % 2 == 1]
        return rows

    def _find_ranges(self, condition):
        name = condition.column
        column = self._sorted.get(name)
        if column is None:
            column = SortedColumn(name, read_column(self.table, name))
            self._sorted[name] = column
        return column, column.find_ranges(condition)


class SortedColumn:
    """Column of a table in sorted order, missing values last.

    Attributes
    ----------
    rows : ndarray of shape (n_rows,)
        Rows of the table in the order of their values.

    places : ndarray of shape (n_rows,)
        Position of each row in this order.
    """

    def __init__(self, name, values):
        kinds = {_find_kind(value) for value in values} - {None}
        if len(kinds) > 1 or "other" in kinds:
            types = {type(value).__name__ for value in values if value is not None}
            raise ValueError(
                f"The column {name!r} of the metadata holds "
                f"{', '.join(sorted(types))}. Filter by columns of numbers, strings, "
                "booleans, dates or times, with one type per column."
            )
        self.name, self.kind = name, next(iter(kinds), None)
        present = [i for i, value in enumerate(values) if value is not None]
        missing = [i for i, value in enumerate(values) if value is None]
        present.sort(key=values.__getitem__)
        self._values = [values[i] for i in present]
        self.rows = np.array(present + missing, dtype=np.int64)
        self.places = np.empty_like(self.rows)
        self.places[self.rows] = np.arange(len(values))

    def find_ranges(self, condition):
        """Return ascending ranges of positions, as pairs, that satisfy a condition."""
        operator, value = condition.operator, condition.value
        n_present, n_rows = len(self._values), len(self.rows)
        if operator == "null":
            return [(n_present, n_rows)]
        if operator == "not null":
            return [(0, n_present)]
        if operator == "any":
            # A range without positions keeps the list from being empty.
            return sorted({(0, 0), *map(self._find_equal, value)})
        first, last = self._find_equal(value)
        return {
            "=": [(first, last)],
            "!=": [(0, first), (last, n_present)],
            "<": [(0, first)],
            "<=": [(0, last)],
            ">": [(last, n_present)],
            ">=": [(first, n_present)],
        }[operator]

    def _find_equal(self, value):
        """Return start and end of the values that are equal to a value."""
        if isinstance(value, str) and self.kind in FROM_TEXT:
            value = self._read_text(value)
        if self.kind == "times" and _find_kind(value) == "dates":
            value = datetime(value.year, value.month, value.day)
        if self.kind not in (None, _find_kind(value)):
            raise ValueError(
                "The filter does not fit the types of its columns: "
                f"{self.name!r} holds {self.kind}; got {value!r}."
            )
        values = self._values
        return bisect_left(values, value), bisect_right(values, value)

    def _read_text(self, text):
        """Return the date or time that a text in ISO format denotes."""
        try:
            return FROM_TEXT[self.kind](text)
        except ValueError:
            raise ValueError(
                f"The filter compares {self.name!r}, which holds {self.kind}, with "
                f"{text!r:.80}. Write them as in '2024-01-31' or '2024-01-31T12:00'."
            ) from None


def _find_kind(value):
    """Return the name of the kind of values with which a value can be compared."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "booleans"
    if isinstance(value, int | float):
        return "numbers"
    if isinstance(value, str):
        return "strings"
    if isinstance(value, datetime):
        return "times" if value.tzinfo is None else "times with time zones"
    return "dates" if isinstance(value, date) else "other"
