"""Sources of the items of a sharded index."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sklearn_simlearn._core.dask import (
    cut,
    is_partitioned,
    matching_blocks,
    read_rows,
    row_blocks,
)
from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn.datasets import load_npz
from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._ids import check_ids


class Rows:
    """Items of a shard, with ids and metadata. Dask does not inspect this object."""

    def __init__(self, X, ids=None, metadata=None):
        self.X, self.ids, self.metadata = X, ids, metadata

    def read(self):
        """Return the items. Items of a file are read or mapped into memory now."""
        return read_file(self.X) if isinstance(self.X, str) else read_rows(self.X)


def read_file(path):
    """Return the samples of an .npy or .npz file, without unpickling."""
    if path.endswith(".npy"):
        return np.load(path, mmap_mode="r")
    return load_npz(path, max_bytes=None, require_target=False).data


def is_files(X):
    """Return whether X is a list of files."""
    return (
        isinstance(X, Sequence)
        and len(X) > 0
        and all(isinstance(path, str | os.PathLike) for path in X)
        and all(Path(path).suffix in (".npy", ".npz") for path in X)
    )


def is_in_memory(X):
    """Return whether X is in the memory of this process."""
    return not (is_partitioned(X) or is_files(X))


def find_parts(X, ids, metadata, n_shards):
    """Return the names of the shards, and the `Rows` of each shard, possibly delayed.

    Parameters
    ----------
    X : Dask collection, list of files or samples
        Items.

    ids, metadata : as for X, or None
        One entry per item. For files, lists with one entry per file.

    n_shards : int
        Number of shards for samples in memory.
    """
    if is_partitioned(X):
        from dask import delayed

        parts = zip(
            row_blocks(X),
            matching_blocks(ids, X, "ids"),
            matching_blocks(metadata, X, "metadata"),
            strict=True,
        )
        rows = [delayed(Rows, pure=False)(*part) for part in parts]
        return [f"partition {i}" for i in range(len(rows))], rows
    if is_files(X):
        names = [os.path.abspath(path) for path in X]
        ids, metadata = (
            _one_per_file(values, len(names), name)
            for values, name in ((ids, "ids"), (metadata, "metadata"))
        )
        parts = zip(names, ids, metadata, strict=True)
        return names, [Rows(*part) for part in parts]
    n_items = num_samples(X)
    lengths = [
        len(part) for part in np.array_split(np.arange(n_items), min(n_shards, n_items))
    ]
    ids = None if ids is None else check_ids(ids, n_items, X, metadata)
    columns = [_metadata.as_table(X), ids, _metadata.check_metadata(metadata, n_items)]
    parts = [
        [None] * len(lengths) if column is None else cut(column, lengths)
        for column in columns
    ]
    stops = np.cumsum(lengths)
    names = [
        f"rows {stop - n} to {stop - 1}"
        for n, stop in zip(lengths, stops.tolist(), strict=True)
    ]
    return names, [Rows(*part) for part in zip(*parts, strict=True)]


def _one_per_file(values, n_files, name):
    if values is None:
        return [None] * n_files
    if len(values) != n_files or any(np.ndim(part) == 0 for part in values):
        raise ValueError(
            f"{name} of items in files must be a list with the {name} of each file."
        )
    return list(values)
