"""Metadata as columns of a table in PostgreSQL."""

from dataclasses import dataclass
from datetime import date, datetime

from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._conditions import list_columns, read_column

# PostgreSQL truncates longer names without an error.
MAX_NAME_BYTES = 63


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
    columns = {}
    for name in list_columns(metadata):
        check_name(name)
        if name in taken:
            raise ValueError(
                f"metadata must not have a column {name!r}, which holds ids or items. "
                "Rename it, or set `id_column` and `item_column`."
            )
        values = read_column(metadata, name)
        columns[name] = Column(_find_type(name, values), values)
    return columns


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
