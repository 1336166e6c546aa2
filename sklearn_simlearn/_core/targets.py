"""Kinds of `y`: labels, relevance by pairs, and the base of what is not an array."""

from abc import ABC, abstractmethod
from copy import copy
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.utils import check_array

from sklearn_simlearn._core.rows import canonical_csr
from sklearn_simlearn._core.typing import MatrixLike

DISTRACTOR = -1  # label of a sample that belongs to no class


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
        the value is its weight; zero where it is not; negative where it is junk for
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

    def __init__(self, matrix: MatrixLike) -> None:
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

    def __getitem__(self, rows: Any) -> Self:
        rows = self._find_rows(rows)
        part = copy(self)
        part.matrix = self.matrix[rows][:, rows]
        return part

    def __repr__(self) -> str:
        n_pairs = np.count_nonzero(self.matrix.data > 0)
        return f"PairwiseRelevance(n_samples={len(self)}, n_pairs={n_pairs})"


# -- labels --


def as_array(y: Any) -> np.ndarray:
    """`y` as an array of one or two dimensions."""
    if y is None:
        raise ValueError(
            "This estimator requires y to be passed, but the target y is None: give "
            "labels or a relevance matrix."
        )
    try:
        y = np.asarray(y)
    except ValueError:
        raise ValueError(
            "y is ragged: its rows differ in length. For several labels per sample "
            "pass a relevance matrix, such as MultiLabelBinarizer().fit_transform(y)."
        ) from None
    if y.ndim not in (1, 2):
        raise ValueError(
            f"y must be 1-dimensional (labels) or 2-dimensional (a relevance matrix); "
            f"got shape {y.shape}."
        )
    if y.dtype.kind == "O" and any(isinstance(v, list | tuple | set) for v in y.flat):
        raise ValueError(
            "y holds lists. For several labels per sample pass a relevance matrix, "
            "such as MultiLabelBinarizer().fit_transform(y)."
        )
    return y


def read_labels(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return labels of any kind as the integers 0, 1, ..., and the classes they name.

    Labels of distractors become -1, which is not among the classes.
    """
    if y.dtype.kind == "O":
        y = _read_objects(y)
    kind = y.dtype.kind
    if kind == "f":
        y = _as_integers(y)
    elif kind == "c":
        raise ValueError("Complex data not supported: y must hold labels.")
    elif kind not in "ObiuSU":
        raise ValueError(f"Unknown label type: y has dtype {y.dtype}.")
    try:
        classes, codes = np.unique(y, return_inverse=True)
    except TypeError:
        raise TypeError(
            "y mixes labels of different types: use integers only, or strings only."
        ) from None

    labels = codes.astype(np.int64)
    if classes.dtype.kind == "i" or (
        classes.dtype.kind == "O" and all(isinstance(c, Integral) for c in classes)
    ):
        if len(classes) == 2 and classes[0] == DISTRACTOR and classes[1] == 1:
            raise ValueError(
                "The labels are -1 and 1 alone, which is ambiguous: -1 means a "
                "distractor, relevant to nothing. Use 0 and 1 for two classes, or any "
                "label but 1 for one class among distractors."
            )
        distractor = np.flatnonzero(classes == DISTRACTOR)
        if len(distractor):
            labels[codes == distractor[0]] = DISTRACTOR
            labels[codes > distractor[0]] -= 1
            classes = np.delete(classes, distractor[0])
    return labels, classes


def _read_objects(y: np.ndarray) -> np.ndarray:
    """Labels as Python objects; those that are numbers with a fraction as floats."""
    if any(_is_missing(label) for label in y):
        raise ValueError(
            "Input y contains NaN or None. Use the integer label -1 for samples that "
            "belong to no class."
        )
    if all(isinstance(v, Real) for v in y) and any(isinstance(v, float) for v in y):
        return _as_floats(y)
    return y


def _as_floats(y: np.ndarray) -> np.ndarray:
    floats = y.astype(np.float64)
    if (floats != y).any():
        raise ValueError("y mixes floats with integers too large for them.")
    return floats


def _is_missing(label: Any) -> bool:
    # The NA of pandas is neither equal to itself nor unequal.
    return label is None or type(label).__name__ == "NAType" or label != label


def _as_integers(y: np.ndarray) -> np.ndarray:
    if not np.isfinite(y).all():
        raise ValueError("Input y contains NaN or infinity.")
    if (y != np.rint(y)).any():
        raise ValueError(
            "Unknown label type: y holds real numbers. Labels are integers or strings; "
            "for graded relevance pass a matrix of shape (n_samples, n_columns)."
        )
    n_bits = np.finfo(y.dtype).nmant + 1
    if (np.abs(y) >= 2.0**n_bits).any():
        raise ValueError(
            f"y holds labels of 2**{n_bits} or more as {y.dtype}, which cannot "
            "distinguish neighbouring integers. Pass them as integers or strings."
        )
    return y.astype(np.int64)
