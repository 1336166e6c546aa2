"""Tables with one row per item: slicing, concatenation, and conversion to arrays."""

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.sklearn import num_samples, safe_indexing
from sklearn_simlearn._core.storage import damaged
from sklearn_simlearn.index._frames import columns_from_arrays, columns_to_arrays
from sklearn_simlearn.index._texts import (
    StoredBytes,
    StoredTexts,
    encode_bytes,
    encode_texts,
)
from sklearn_simlearn.index.backends._blocked_items import check_offsets, check_range

# Kind of tables of local features in a folder.
FEATURES = "local features"


def take(table, rows):
    """Return some rows of a table of any kind."""
    if isinstance(table, Sequence):
        return [table[row] for row in rows]
    return safe_indexing(table, rows)


def join(first, second):
    """Return the concatenation of two tables of the same kind."""
    if sparse.issparse(first):
        return sparse.vstack([first, second], format="csr")
    if isinstance(first, Sequence):
        return [*first, *second]
    if isinstance(first, np.ndarray):
        return np.concatenate([first, second])
    if hasattr(first, "concatenate"):
        return first.concatenate([first, second])
    module = _frame_module(first)
    if module.__name__ == "pandas":
        return module.concat([first, second], ignore_index=True)
    return module.concat([first, second])


def as_table(X):
    """Return samples in a form that can be sliced, concatenated and stored."""
    if sparse.issparse(X):
        return X.tocsr()
    if isinstance(X, np.ndarray) or _frame_module(X) is not None:
        return X
    if hasattr(X, "concatenate"):  # a custom container, such as LocalFeatures
        return X
    if isinstance(X, Sequence) and isinstance(X[0], str | bytes | dict):
        return list(X)
    return np.asarray(X)


def check_metadata(metadata, n_items, like=None):
    """Return metadata, checked against the items and the metadata of the index."""
    if metadata is None:
        if like is not None:
            raise ValueError(
                "The index has metadata. Pass metadata of the new items, too."
            )
        return None
    kind = _kind(metadata)
    if kind in ("csr", FEATURES) or (kind == "array" and metadata.dtype.names is None):
        raise ValueError(
            "metadata must be a list of dicts, a pandas or polars frame, or a "
            f"structured array; got {type(metadata).__name__}."
        )
    if kind == "list" and not all(isinstance(row, dict) for row in metadata):
        raise ValueError("If metadata is a list, it must hold one dict per item.")
    if num_samples(metadata) != n_items:
        raise ValueError(
            f"metadata must have one row per item; got {num_samples(metadata)} for "
            f"{n_items} items."
        )
    if like is not None and _layout(metadata) != _layout(like):
        raise ValueError(
            "metadata must have the type and columns of the metadata of the index."
        )
    if kind == "pandas":
        return metadata.reset_index(drop=True)
    return list(metadata) if kind == "list" else metadata


def are_alike(first, second):
    """Return whether two tables have the same type and columns."""
    if _kind(first) != _kind(second):
        return False
    if hasattr(first, "columns"):
        return list(first.columns) == list(second.columns)
    return getattr(first, "shape", ())[1:] == getattr(second, "shape", ())[1:]


def to_arrays(table, name):
    """Return the arrays and the description of a table for `from_arrays`.

    Parameters
    ----------
    table : sparse matrix, ndarray, list, LocalFeatures, pandas or polars frame

    name : str
        Name of the table in error messages.
    """
    kind = _kind(table)
    if kind == "csr":
        table = table.tocsr()
        arrays = {part: getattr(table, part) for part in ("data", "indices", "indptr")}
        return arrays, {"kind": kind, "shape": list(table.shape)}
    if kind == FEATURES:
        return table._to_arrays(), {"kind": kind}
    if kind == "array" and table.dtype.kind != "O":
        return {"values": table}, {"kind": kind}
    if kind in ("array", "list"):
        rows = table.tolist() if kind == "array" else list(table)
        if rows and all(isinstance(row, bytes) for row in rows):
            return encode_bytes(rows), {"kind": "bytes"}
        return encode_texts(rows, name), {"kind": "list"}
    arrays, columns = columns_to_arrays(table, kind, name)
    return arrays, {"kind": kind, "columns": columns, "n_rows": len(table)}


def from_arrays(arrays, description):
    """Return a table from verified arrays; raise if they do not form one.

    Parameters
    ----------
    arrays : StoredArrays
    description : dict
    """
    try:
        kind = description["kind"]
        if kind == "csr":
            return _read_csr(arrays, description["shape"])
        if kind == FEATURES:
            # Imported here because feature_extraction imports modules of this package.
            from sklearn_simlearn.feature_extraction import LocalFeatures

            return LocalFeatures._from_arrays({n: arrays.read(n) for n in arrays})
        if kind == "array":
            return arrays.read("values")
        if kind == "list":
            return StoredTexts(arrays)
        if kind == "bytes":
            return StoredBytes(arrays)
        if kind in ("pandas", "polars"):
            columns, n_rows = description["columns"], description["n_rows"]
            return columns_from_arrays(arrays, columns, kind, n_rows)
    except Exception as error:
        # Forged descriptions raise errors of many types in pandas and polars.
        raise damaged(f"a table in it cannot be read ({error})") from error
    raise damaged("it holds a table of an unknown kind")


def _read_csr(arrays, shape):
    n_rows, n_columns = map(int, shape)
    data, indices, indptr = (
        arrays.read(part) for part in ("data", "indices", "indptr")
    )
    # Compare the values; SciPy checks their differences, which may overflow.
    if (
        data.dtype.kind not in "biuf"
        or indices.dtype not in (np.int32, np.int64)
        or indptr.dtype != indices.dtype
        or data.ndim != 1
        or data.shape != indices.shape
        or indptr.shape != (n_rows + 1,)
    ):
        raise ValueError("the arrays of a sparse matrix have wrong shapes or dtypes")
    check_offsets(indptr, len(indices), "indptr")
    check_range(indices, n_columns, "indices")
    return sparse.csr_array((data, indices, indptr), shape=(n_rows, n_columns))


class Stored:
    """Table in a folder, read on first access."""

    def __init__(self, arrays, description, n_rows=None):
        self._arrays, self._description, self._n_rows = arrays, description, n_rows

    def read(self):
        table = from_arrays(self._arrays, self._description)
        if self._n_rows not in (None, num_samples(table)):
            raise damaged("the numbers of rows of a table and of the index differ")
        return table


def _kind(table):
    if sparse.issparse(table):
        return "csr"
    if isinstance(table, np.ndarray):
        return "array"
    if isinstance(table, Sequence) and not isinstance(table, str):
        return "list"
    if hasattr(table, "concatenate"):
        return FEATURES
    module = _frame_module(table)
    if module is None:
        raise ValueError(
            f"{type(table).__name__} cannot be stored in an index. Use an array, a "
            "list, or a pandas or polars frame."
        )
    return module.__name__


def _layout(table):
    kind = _kind(table)
    if kind == "list":
        return kind
    return kind, list(table.dtype.names if kind == "array" else table.columns)


def _frame_module(table):
    """Return the package of a data frame."""
    package = type(table).__module__.partition(".")[0]
    if package in ("pandas", "polars") and hasattr(table, "columns"):
        return __import__(package)
    return None
