"""Metadata as columns of a table in PostgreSQL, and filters on these columns."""

from dataclasses import dataclass
from datetime import date, datetime

import numpy as np

from sklearn_simlearn.index import _metadata

# PostgreSQL truncates longer names without an error.
MAX_NAME_BYTES = 63

COMPARISONS = ("<", "<=", ">", ">=", "!=")


@dataclass
class Column:
    """Values of a column, and their type in PostgreSQL."""

    type: str
    values: list


def check_name(name):
    """Return a name; raise unless PostgreSQL accepts it without a change."""
    if not isinstance(name, str) or not 0 < len(name.encode()) <= MAX_NAME_BYTES:
        raise ValueError(
            "Names of tables and columns must be strings of 1 to "
            f"{MAX_NAME_BYTES} bytes; got {name!r}."
        )
    if "\0" in name:
        raise ValueError(f"Names must not contain the character NUL; got {name!r}.")


def read_columns(metadata, n_items, taken):
    """Return metadata as columns of a table.

    Parameters
    ----------
    metadata : list of dict, frame, structured array or None
        One row per item.

    n_items : int
        Number of items.

    taken : set of str
        Names of other columns, which metadata must not use.

    Returns
    -------
    columns : dict of str to Column
    """
    metadata = _metadata.check_metadata(metadata, n_items)
    if metadata is None:
        return {}
    if isinstance(metadata, list):
        names = dict.fromkeys(name for row in metadata for name in row)
        table = {name: [row.get(name) for row in metadata] for name in names}
    elif isinstance(metadata, np.ndarray):
        table = {name: _plain_values(metadata[name]) for name in metadata.dtype.names}
    else:
        table = {name: _plain_values(metadata[name]) for name in metadata.columns}
    columns = {}
    for name, values in table.items():
        check_name(name)
        if name in taken:
            raise ValueError(
                f"metadata must not have a column {name!r}, which holds ids or items. "
                "Rename it, or set `id_column` and `item_column`."
            )
        values = [_plain(value) for value in values]
        columns[name] = Column(_find_type(name, values), values)
    return columns


def _plain_values(column):
    """Return the values of a column of an array or a frame as a list."""
    if hasattr(column, "to_list"):
        return column.to_list()
    if column.dtype.kind == "M":
        column = column.astype("M8[us]")  # Python's times have microseconds
    return column.tolist()


def _plain(value):
    """Return a value as a built-in type of Python; None if it is missing."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value).__name__ == "NAType":  # missing value of pandas
        return None
    # NaN and NaT are not equal to themselves.
    is_missing = isinstance(value, float | datetime) and value != value
    return None if is_missing else value


def _find_type(name, values):
    kinds = {type(value) for value in values if value is not None}
    if not kinds or all(issubclass(kind, str) for kind in kinds):
        return "text"
    if kinds == {bool}:
        return "bool"
    if kinds == {int} and all(
        -(2**63) <= value < 2**63 for value in values if value is not None
    ):
        return "int8"
    if kinds <= {int, float}:
        return "float8"
    if all(issubclass(kind, datetime) for kind in kinds):
        with_zone = {value.tzinfo is not None for value in values if value is not None}
        if len(with_zone) == 1:
            return "timestamptz" if with_zone == {True} else "timestamp"
    elif kinds == {date}:
        return "date"
    raise ValueError(
        f"The column {name!r} of metadata holds "
        f"{', '.join(sorted(kind.__name__ for kind in kinds))}. Use numbers, strings, "
        "booleans, dates or times, with one type per column."
    )


def read_filter(filter, columns):
    """Return a filter as conditions on columns.

    Parameters
    ----------
    filter : dict
        Dict from columns to a value, a list of values, or a dict of comparisons.

    columns : collection of str
        Columns of the table.

    Returns
    -------
    conditions : list of (column, operator, value)
        Conditions that are combined with AND. The operator is one of `COMPARISONS`,
        "=", "any", "null" or "not null", and never contains text of the user.
    """
    conditions = []
    for name, value in filter.items():
        if name not in columns:
            raise ValueError(
                f"filter has the unknown column {name!r}. Columns: {sorted(columns)}."
            )
        if isinstance(value, dict):
            conditions += [(name, *_compare(name, *pair)) for pair in value.items()]
        elif isinstance(value, list | tuple | set | frozenset | np.ndarray):
            values = [_plain(one) for one in value]
            if None in values:
                raise ValueError(
                    f"filter lists a missing value for {name!r}. Filter by None alone."
                )
            conditions.append((name, "any", values))
        else:
            value = _plain(value)
            conditions.append((name, "null" if value is None else "=", value))
    return conditions


def _compare(name, operator, value):
    if operator not in COMPARISONS:
        raise ValueError(
            f"filter has the unknown operator {operator!r} for {name!r}. Operators: "
            f"{', '.join(map(repr, COMPARISONS))}."
        )
    value = _plain(value)
    if value is not None:
        return operator, value
    if operator == "!=":
        return "not null", None
    raise ValueError(f"filter compares {name!r} with a missing value by {operator!r}.")
