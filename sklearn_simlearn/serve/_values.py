"""Conversion of metadata to JSON, and descriptions of columns for filters."""

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta

import numpy as np

from sklearn_simlearn.index._conditions import as_builtin, list_columns, read_column
from sklearn_simlearn.serve._messages import Column

# Largest number of values of a column that the description of an index lists.
MAX_VALUES = 50

# Types of values that JSON represents without conversion.
PLAIN = (str, bool, int, type(None))


def as_rows(table):
    """Return the rows of metadata as dicts of values for JSON."""
    if isinstance(table, Sequence):
        return [as_json(row) for row in table]
    columns = {str(name): read_column(table, name) for name in list_columns(table)}
    names = list(columns)
    return [
        dict(zip(names, map(as_json, values), strict=True))
        for values in zip(*columns.values(), strict=True)
    ]


def as_json(value):
    """Convert a value to one that JSON can represent."""
    value = as_builtin(value)
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): as_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [as_json(part) for part in value]
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


def describe_columns(table):
    """Return the columns of metadata, with their values if there are few of them."""
    return [
        _describe(str(name), read_column(table, name)) for name in list_columns(table)
    ]


def _describe(name, values):
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds == {bool}:
        return Column(name, "boolean", [False, True])
    if kinds and kinds <= {int, float}:
        finite = [value for value in present if np.isfinite(value)]
        few = _list_few(finite)
        if not finite:
            return Column(name, "number")
        return Column(name, "number", few, float(min(finite)), float(max(finite)))
    if kinds == {str}:
        return Column(name, "text", _list_few(present))
    return Column(name, "other")


def _list_few(values):
    different = set(values)
    return sorted(different) if len(different) <= MAX_VALUES else []
