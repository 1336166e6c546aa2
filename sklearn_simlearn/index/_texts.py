"""Python values stored in arrays, as JSON or as bytes."""

import json
from collections.abc import Sequence

import numpy as np

from sklearn_simlearn._core.storage import damaged

REMEDY = "Use numbers, strings, lists, and dicts with strings as keys."


class StoredBytes(Sequence):
    """Sequence of stored bytes, such as files. Each is read when it is accessed."""

    name = "bytes"

    def __init__(self, arrays):
        self._arrays = arrays
        self._offsets = offsets = arrays.read("offsets")
        texts = arrays[self.name]
        if (
            offsets.ndim != 1
            or offsets.dtype.kind not in "iu"
            or texts.dtype != np.uint8
            or texts.ndim != 1
            or len(offsets) == 0
            or offsets[0] != 0
            or offsets[-1] != len(texts)
            or (offsets[1:] < offsets[:-1]).any()
        ):
            raise damaged(f"the offsets of its {self.name} are invalid")

    def __len__(self):
        return len(self._offsets) - 1

    def __getitem__(self, row):
        row = range(len(self))[row]
        start, stop = int(self._offsets[row]), int(self._offsets[row + 1])
        self._arrays.verify(self.name, start, stop)
        return self._arrays[self.name][start:stop].tobytes()


class StoredTexts(StoredBytes):
    """Sequence of values stored as JSON. Each is parsed when it is accessed."""

    name = "json"

    def __getitem__(self, row):
        try:
            return json.loads(super().__getitem__(row))
        except (ValueError, RecursionError):
            raise damaged(f"row {row} of a table is not JSON") from None


def encode_texts(values, name, column=None):
    """Return the arrays that `StoredTexts` reads; raise if a value would change.

    Parameters
    ----------
    values : list
        Python values.

    name : str
        Name of the table for error messages.

    column : str or int, default=None
        Column of the table for error messages.
    """
    place = "" if column is None else f"column {column!r}, "
    texts = []
    for row, value in enumerate(values):
        try:
            fault = _find_fault(value)
            if fault is None:
                texts.append(json.dumps(value, default=_to_python).encode())
        except (TypeError, ValueError, RecursionError) as error:
            fault = f"cannot be written as JSON ({error})"
        if fault is not None:
            raise ValueError(
                f"{name} cannot be saved: {place}row {row} {fault}. {REMEDY}"
            )
    return encode_bytes(texts, StoredTexts.name)


def encode_bytes(values, name=StoredBytes.name):
    """Return the arrays that `StoredBytes` reads."""
    lengths = [len(value) for value in values]
    return {
        name: np.frombuffer(b"".join(values), dtype=np.uint8),
        "offsets": np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
    }


def _find_fault(value):
    """Describe a part of a value that JSON cannot hold; None if there is none."""
    if value is None or isinstance(value, str | int | float | np.bool_ | np.integer):
        return None
    if isinstance(value, np.floating) and value.itemsize <= 8:
        return None
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                return f"has the key {key!r}, which is not a string"
            fault = _find_fault(part)
            if fault is not None:
                return f"at the key {key!r} {fault}"
        return None
    if isinstance(value, list):
        return next(filter(None, map(_find_fault, value)), None)
    return f"holds a value of type {type(value).__name__}"


def _to_python(value):
    """Return a NumPy number as a Python number."""
    return value.item()
