"""Dask collections as blocks of rows, for all that works on more data than memory."""

from collections.abc import Callable

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.sklearn import num_samples, safe_indexing


def is_partitioned(X) -> bool:
    """Whether X is a collection of Dask, which nobody should turn into one array."""
    return hasattr(X, "__dask_graph__")


def row_blocks(X, name: str = "X") -> list:
    """The blocks of rows of a Dask array, frame or column, as delayed objects."""
    if not hasattr(X, "to_delayed"):
        raise TypeError(
            f"{name} must be a Dask array, DataFrame or Series; got {type(X).__name__}."
        )
    # The optimizer may merge partitions of a frame, and of each column in another way.
    return np.ravel(whole_rows(X).to_delayed(optimize_graph=False)).tolist()


def whole_rows(X):
    """The collection, if no row of it is cut; or one that holds whole rows."""
    is_cut = getattr(X, "numblocks", (1, 1))[1:] not in ((), (1,))
    return X.rechunk({1: -1}) if is_cut else X


def blocks_beside(values, X, name: str) -> list:
    """What belongs to the rows of X, in the same blocks: of Dask, or cut to them.

    Parameters
    ----------
    values : Dask collection, array-like or None
        One entry per row of X; None stands for nothing.

    X : Dask collection
        The rows.

    name : str
        What an error message calls the values.
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
            "cut to them: give it as a Dask collection with the same partitions, or "
            "call X.compute_chunk_sizes() first."
        )
    if num_samples(values) != lengths.sum():
        raise ValueError(
            f"{name} must have one entry per row of X; got {num_samples(values)} for "
            f"{lengths.sum():.0f} rows."
        )
    return cut(values, lengths.astype(np.int64))


def cut(table, lengths) -> list:
    """Consecutive parts of a table of any kind."""
    stops = np.cumsum(lengths).tolist()
    return [
        safe_indexing(table, slice(start, stop))
        for start, stop in zip([0, *stops], stops, strict=False)
    ]


def read_rows(block):
    """Samples of a block: a column of vectors becomes an array, others are kept."""
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
    """Arrays or sparse arrays, one under the other."""
    if sparse.issparse(parts[0]):
        return sparse.vstack(parts, format="csr")
    return np.concatenate(parts)


def settle(*values) -> tuple:
    """Delayed values, computed and kept where they are."""
    from dask import compute, delayed, persist

    kept = persist(*values)
    compute(*[delayed(_note, pure=False)(value) for value in kept])
    return kept


def _note(value):
    """Nothing, once a value is there."""


def in_memory(y):
    """Targets that a scorer needs as a whole."""
    return y.compute() if is_partitioned(y) else y


def read_partitions(X):
    """Samples in partitions, if X is a Dask collection; X itself otherwise."""
    if not is_partitioned(X):
        return X
    from dask import compute, delayed

    blocks = settle(*[delayed(read_rows, pure=False)(block) for block in row_blocks(X)])
    lengths = compute(*[delayed(num_samples, pure=False)(block) for block in blocks])
    filled = np.flatnonzero(lengths)
    return PartitionedRows([blocks[i] for i in filled], np.array(lengths)[filled])


class PartitionedRows:
    """Samples that lie in blocks on the workers of a cluster.

    Parameters
    ----------
    blocks : list of Delayed
        Blocks of rows, which are there already.

    lengths : ndarray of int
        Number of rows of each.
    """

    def __init__(self, blocks: list, lengths: np.ndarray):
        self.blocks, self.lengths = blocks, lengths

    @property
    def shape(self) -> tuple[int]:
        return (int(self.lengths.sum()),)

    def __len__(self) -> int:
        return self.shape[0]

    def map(self, function: Callable, *args) -> "PartitionedRows":
        """The results of a function of each block."""
        from dask import delayed

        apply = delayed(_apply, pure=False)
        shared = delayed(_Opaque(function, args), pure=False)
        blocks = settle(*[apply(shared, block) for block in self.blocks])
        return PartitionedRows(list(blocks), self.lengths)

    def take(self, rows: np.ndarray):
        """Some rows, in memory, in the order of their numbers."""
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
        """What a function of each block and of more returns, in memory."""
        from dask import compute, delayed

        apply = delayed(_apply, pure=False)
        shared = delayed(_Opaque(function, args), pure=False)
        return compute(*[apply(shared, block) for block in self.blocks])


def take_rows(X, rows):
    """Some rows of samples of any kind."""
    return X.take(rows) if isinstance(X, PartitionedRows) else safe_indexing(X, rows)


class _Opaque:
    """A call. Dask does not look inside."""

    def __init__(self, function, args):
        self.function, self.args = function, args


def _apply(call, block):
    return call.function(block, *call.args)
