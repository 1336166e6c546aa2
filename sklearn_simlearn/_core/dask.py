"""Dask collections as blocks of rows, for data that does not fit into memory."""

from collections.abc import Callable

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.sklearn import num_samples, safe_indexing


def is_partitioned(X) -> bool:
    """Return True if X is a Dask collection, which may not fit into memory."""
    return hasattr(X, "__dask_graph__")


def row_blocks(X, name: str = "X") -> list:
    """Return the row blocks of a Dask array, frame or column as delayed objects."""
    if not hasattr(X, "to_delayed"):
        raise TypeError(
            f"{name} must be a Dask array, DataFrame or Series; got {type(X).__name__}."
        )
    # The optimizer may merge partitions, differently for each column of a frame.
    return np.ravel(whole_rows(X).to_delayed(optimize_graph=False)).tolist()


def whole_rows(X):
    """Return a collection whose blocks hold whole rows."""
    is_cut = getattr(X, "numblocks", (1, 1))[1:] not in ((), (1,))
    return X.rechunk({1: -1}) if is_cut else X


def matching_blocks(values, X, name: str) -> list:
    """Return values that belong to the rows of X, in the blocks of X.

    Parameters
    ----------
    values : Dask collection, array-like or None
        One entry per row of X, or None.

    X : Dask collection
        The rows.

    name : str
        Name of the values in error messages.
    """
    X = whole_rows(X)
    n_blocks = X.npartitions
    if is_partitioned(values):
        blocks = row_blocks(values, name)
        if len(blocks) != n_blocks:
            raise ValueError(
                f"{name} must have the partitions of X; got {len(blocks)} of them for "
                f"{n_blocks}. Rechunk or repartition one of them."
            )
        return blocks
    if values is None:
        return [None] * n_blocks
    lengths = np.array(getattr(X, "chunks", [[np.nan]])[0], dtype=float)
    if np.isnan(lengths).any():
        raise ValueError(
            f"The lengths of the partitions of X are not known, so {name} cannot be "
            "divided. Pass it as a Dask collection with the same partitions, or call "
            "X.compute_chunk_sizes() first."
        )
    if num_samples(values) != lengths.sum():
        raise ValueError(
            f"{name} must have one entry per row of X; got {num_samples(values)} for "
            f"{lengths.sum():.0f} rows."
        )
    return cut(values, lengths.astype(np.int64))


def cut(table, lengths) -> list:
    """Return consecutive parts of a table of any kind."""
    stops = np.cumsum(lengths).tolist()
    return [
        safe_indexing(table, slice(start, stop))
        for start, stop in zip([0, *stops], stops, strict=False)
    ]


def read_rows(block):
    """Return the samples of a block; a column of vectors becomes an array."""
    if not hasattr(block, "iloc"):
        return block
    if block.ndim == 2 and block.shape[1] == 1 and len(block):
        is_vectors = np.ndim(block.iloc[0, 0]) == 1
        block = block.iloc[:, 0] if is_vectors else block
    return _stack_vectors(block) if block.ndim == 1 else block


def _stack_vectors(column):
    arrow = getattr(column.dtype, "pyarrow_dtype", None)
    dtype = arrow.value_type.to_pandas_dtype() if hasattr(arrow, "value_type") else None
    vectors = [np.asarray(vector, dtype=dtype) for vector in column]
    if any(vector.ndim != 1 for vector in vectors):
        raise ValueError(
            "A column of vectors must hold arrays or lists of numbers. Dask turns a "
            "column of objects into strings unless the configuration "
            "dataframe.convert-string is False."
        )
    if len({len(vector) for vector in vectors}) > 1:
        raise ValueError("The vectors in a column must have one length.")
    return np.stack(vectors) if vectors else np.empty((0, 0))


def stack(parts):
    """Concatenate the rows of arrays or sparse arrays."""
    if sparse.issparse(parts[0]):
        return sparse.vstack(parts, format="csr")
    return np.concatenate(parts)


def settle(*values) -> tuple:
    """Compute delayed values and keep them on their workers."""
    from dask import compute, delayed, persist

    kept = persist(*values)
    compute(*[delayed(_note, pure=False)(value) for value in kept])
    return kept


def _note(value):
    """Return None when the value is computed."""


def in_memory(y):
    """Return targets that a scorer needs as a whole."""
    return y.compute() if is_partitioned(y) else y


def read_partitions(X):
    """Return the partitions of X if it is a Dask collection, X itself otherwise."""
    if not is_partitioned(X):
        return X
    from dask import compute, delayed

    blocks = settle(*[delayed(read_rows, pure=False)(block) for block in row_blocks(X)])
    lengths = compute(*[delayed(num_samples, pure=False)(block) for block in blocks])
    filled = np.flatnonzero(lengths)
    return PartitionedRows([blocks[i] for i in filled], np.array(lengths)[filled])


class PartitionedRows:
    """Samples in blocks on the workers of a cluster.

    Parameters
    ----------
    blocks : list of Delayed
        Blocks of rows that are computed already.

    lengths : ndarray of int
        Number of rows of each block.
    """

    def __init__(self, blocks: list, lengths: np.ndarray):
        self.blocks, self.lengths = blocks, lengths

    @property
    def shape(self) -> tuple[int]:
        return (int(self.lengths.sum()),)

    def __len__(self) -> int:
        return self.shape[0]

    def map(self, function: Callable, *args) -> "PartitionedRows":
        """Apply a function to each block and keep the results on the workers."""
        from dask import delayed

        apply = delayed(_apply, pure=False)
        shared = delayed(_Opaque(function, args), pure=False)
        blocks = settle(*[apply(shared, block) for block in self.blocks])
        return PartitionedRows(list(blocks), self.lengths)

    def take(self, rows: np.ndarray):
        """Return some rows, in memory, in the order of `rows`."""
        from dask import compute, delayed

        stops = np.cumsum(self.lengths)
        block, rows = np.searchsorted(stops, rows, side="right"), np.asarray(rows)
        some = np.unique(block)
        take = delayed(safe_indexing, pure=False)
        parts = compute(
            *[
                take(self.blocks[i], rows[block == i] - (stops[i] - self.lengths[i]))
                for i in some
            ]
        )
        order = np.argsort(np.argsort(block, kind="stable"))
        return safe_indexing(stack(parts), order)

    def ask(self, function: Callable, *args) -> tuple:
        """Apply a function to each block and return the results in memory."""
        from dask import compute, delayed

        apply = delayed(_apply, pure=False)
        shared = delayed(_Opaque(function, args), pure=False)
        return compute(*[apply(shared, block) for block in self.blocks])


def take_rows(X, rows):
    """Return some rows of samples of any kind."""
    return X.take(rows) if isinstance(X, PartitionedRows) else safe_indexing(X, rows)


class _Opaque:
    """Function with arguments that Dask does not inspect."""

    def __init__(self, function, args):
        self.function, self.args = function, args


def _apply(call, block):
    return call.function(block, *call.args)
