"""Types of the public interface."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

# array-like or sparse matrix, as scikit-learn takes them
MatrixLike: TypeAlias = ArrayLike | sparse.sparray | sparse.spmatrix

# ndarray or csr_array
Matrix: TypeAlias = np.ndarray[Any, Any] | sparse.csr_array

# sparse output, by the configuration `sparse_interface` of scikit-learn
SparseRows: TypeAlias = sparse.csr_array | sparse.csr_matrix

# `random_state` of an estimator
RandomState: TypeAlias = int | np.random.RandomState | None

# photographs: files, their bytes, or arrays of pixels
ImagesLike: TypeAlias = (
    Sequence[str | os.PathLike[str] | bytes | ArrayLike] | np.ndarray[Any, Any]
)

TextsLike: TypeAlias = Sequence[str] | np.ndarray[Any, Any]


class Frame(Protocol):
    """Data frame of pandas or polars."""

    @property
    def columns(self) -> Any: ...

    def __len__(self) -> int: ...

    def __getitem__(self, key: Any, /) -> Any: ...


# rows of metadata: a dict per item, a frame, or a structured array
MetadataLike: TypeAlias = Sequence[Mapping[str, Any]] | Frame | np.ndarray[Any, Any]

# items that a search may return: ids, conditions on metadata, or a function of metadata
FilterLike: TypeAlias = ArrayLike | Mapping[str, Any] | Callable[..., ArrayLike]


class DaskCollection(Protocol):
    """Array, frame or column of Dask."""

    def __dask_graph__(self) -> Any: ...


# rows of a cluster: a Dask collection, files, or rows in memory
PartitionsLike: TypeAlias = (
    MatrixLike | DaskCollection | Sequence[str | os.PathLike[str]]
)
