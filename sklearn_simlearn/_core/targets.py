"""Objects that cross-validation slices as `y`: their base, and relevance by pairs."""

from abc import ABC, abstractmethod
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.utils import check_array

from sklearn_simlearn._core.rows import canonical_csr
from sklearn_simlearn._core.typing import MatrixLike


class SlicedTarget(ABC):
    """Base of a `y` that is not an array.

    scikit-learn takes rows of `y` by ``y[rows, ...]`` or, of an object with `iloc`, by
    `take`, `iloc` and `loc`. The latter does not ask for an array namespace, so it also
    works with ``array_api_dispatch=True``.
    """

    _array_attribute: ClassVar[str]  # the attribute that holds numbers

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples."""

    @abstractmethod
    def __getitem__(self, rows: Any) -> Self:
        """Part for some samples."""

    def _find_rows(self, rows: Any) -> np.ndarray:
        """Numbers of rows that are given by an int, slice, mask or array of int."""
        if isinstance(rows, tuple):  # (rows, ...)
            rows = rows[0]
        return np.atleast_1d(np.arange(len(self))[rows])

    def take(self, indices: Any, axis: int = 0) -> Self:
        """Return the part for some samples, as ``y[indices]`` does.

        Parameters
        ----------
        indices : array-like of int
            Rows of the samples.

        axis : int, default=0
            Only 0 is possible.

        Returns
        -------
        part : object
            Of the same class.
        """
        if axis != 0:
            raise ValueError(f"{type(self).__name__} has no axis {axis} to take from.")
        return self[np.asarray(indices)]

    @property
    def iloc(self) -> Self:
        """The object itself, which is indexed by rows."""
        return self

    @property
    def loc(self) -> Self:
        """The object itself, which is indexed by rows."""
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError(
            f"{type(self).__name__} is not an array: use its attribute "
            f"`{self._array_attribute}`."
        )


class PairwiseRelevance(SlicedTarget):
    """Relevance of samples to each other, given pair by pair.

    Pass it as `y` wherever labels are accepted: to learners, scorers, splitters and
    :func:`retrieval_report`. Relevance by pairs need not be symmetric, nor transitive:
    A and B may show one object, B and C another. In a cross-validation, rows and
    columns are taken together, so that a fold keeps the pairs inside it.

    Parameters
    ----------
    matrix : {array-like, sparse matrix} of shape (n_samples, n_samples)
        Positive where sample j (column) is relevant to sample i (row) as a query, and
        the value says how much; zero where it is not; negative where it is junk for
        that query. The diagonal is ignored.

    Attributes
    ----------
    matrix : csr_array of shape (n_samples, n_samples)
        The pairs, without the diagonal.

    Examples
    --------
    >>> from sklearn_simlearn.metrics import PairwiseRelevance
    >>> y = PairwiseRelevance([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> y
    PairwiseRelevance(n_samples=3, n_pairs=4)
    >>> y[[0, 1]].matrix.toarray()
    array([[0., 1.],
           [1., 0.]])
    """

    _array_attribute = "matrix"

    def __init__(self, matrix: MatrixLike):
        matrix = check_array(
            matrix, accept_sparse="csr", dtype=np.float64, input_name="matrix"
        )
        if matrix.shape[0] != matrix.shape[1]:
            raise ValueError(
                "Pairwise relevance needs one row and one column per sample; got shape "
                f"{matrix.shape}. A matrix with other columns is passed as y itself."
            )
        matrix = canonical_csr(matrix).tocoo()
        off = matrix.row != matrix.col
        self.matrix = sparse.csr_array(
            (matrix.data[off], (matrix.row[off], matrix.col[off])), shape=matrix.shape
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples, twice."""
        return self.matrix.shape

    def __len__(self) -> int:
        return self.matrix.shape[0]

    def __getitem__(self, rows) -> "PairwiseRelevance":
        rows = self._find_rows(rows)
        part = copy(self)
        part.matrix = self.matrix[rows][:, rows]
        return part

    def __repr__(self):
        n_pairs = np.count_nonzero(self.matrix.data > 0)
        return f"PairwiseRelevance(n_samples={len(self)}, n_pairs={n_pairs})"
