"""Form of the queries and items of an index, and their texts."""

from collections.abc import Sequence

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_simlearn._core.targets import show_ids
from sklearn_simlearn.feature_extraction._reader import ImageTransformer


def find_form(index):
    """Return the form of the queries and items of an index.

    Parameters
    ----------
    index : SimilarityIndex
        Index with an estimator.

    Returns
    -------
    form : {"vector", "text", "photograph", "record"}
    """
    steps = list_steps(index.estimator_)
    if any(isinstance(step, ImageTransformer) for step in steps):
        return "photograph"
    sample = index._state.sample.first_part
    if hasattr(sample, "columns") or _holds(sample, dict):
        return "record"
    return "text" if _holds(sample, str) else "vector"


def list_steps(estimator):
    """Return an estimator and all estimators in its parameters."""
    params = estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {}
    found = (value for value in params.values() if isinstance(value, BaseEstimator))
    return [estimator, *found]


def find_texts(table):
    """Return the texts of original items, or None if they are not texts."""
    if _holds(table, str):
        return table
    if hasattr(table, "columns") and "text" in list(table.columns):
        return [str(text) for text in table["text"]]
    return None


def read_records(records, like):
    """Return records as samples of an index.

    Parameters
    ----------
    records : list of dict
        Values by the name of the column.

    like : list of dict or frame
        Some items of the index.
    """
    if isinstance(like, Sequence):
        return records
    check_columns(records, list(like.columns), "A record")
    return as_frame(records, like)


def check_columns(rows, columns, name):
    """Raise unless each dict of a list has a value for each column."""
    for row in rows:
        if row.keys() != set(columns):
            raise ValueError(
                f"{name} must have the columns {show_ids([*map(str, columns)])}; got "
                f"{show_ids(sorted(row))}."
            )


def as_frame(rows, like):
    """Return records as a frame of pandas or polars with the types of another one."""
    try:
        if hasattr(like, "astype"):
            frame = type(like)(rows, columns=list(like.columns))
            return frame.astype(like.dtypes.to_dict())
        return type(like)(rows, schema=like.schema)
    except Exception as error:
        # pandas and polars raise errors of many types.
        raise ValueError(f"A value has the wrong type: {error}.") from error


def _holds(table, kind):
    is_list = isinstance(table, Sequence) or (
        isinstance(table, np.ndarray) and table.ndim == 1
    )
    return is_list and len(table) > 0 and isinstance(table[0], kind)
