"""Kinds of `y`: labels, relevance by pairs, and the base of others; ids in tables."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from numbers import Integral, Real
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.utils import check_array

from sklearn_simlearn._core.rows import canonical_csr
from sklearn_simlearn._core.typing import MatrixLike

DISTRACTOR = -1  # label of a sample without a class

# Number of ids that an error message shows.
N_SHOWN = 3


class SlicedTarget(ABC):
    """Base of a `y` that is not an array.

    scikit-learn takes rows of `y` by ``y[rows, ...]``. If the object has `iloc`, it
    uses `take`, `iloc` and `loc` instead. The second way does not need an array
    namespace, so it also works with ``array_api_dispatch=True``.
    """

    _array_attribute: ClassVar[str]  # the attribute that holds numbers

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples."""

    @abstractmethod
    def __getitem__(self, rows: Any) -> Self:
        """Return the part for some samples."""

    def _find_rows(self, rows: Any) -> np.ndarray:
        """Return numbers of rows, given by an int, slice, mask or array of int."""
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
            Must be 0.

        Returns
        -------
        part : object
            Part of the same class.
        """
        if axis != 0:
            raise ValueError(f"{type(self).__name__} has no axis {axis} to take from.")
        indices = np.asarray(indices)  # of floats if it is empty
        return self[indices if indices.size else slice(0)]

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
            f"`{self._array_attribute}`. To split its rows, use KFold or ShuffleSplit."
        )


# target of a fit or a score: labels, a relevance matrix, pairs or judgements
TargetLike: TypeAlias = MatrixLike | SlicedTarget


class PairwiseRelevance(SlicedTarget):
    """Relevance of samples to each other, given pair by pair.

    Pass it as `y` wherever labels are accepted: to learners, scorers, splitters and
    :func:`retrieval_report`. Relevance by pairs need not be symmetric or transitive: A
    and B may show one object, B and C another. Cross-validation takes rows and columns
    together, so that a fold has the pairs of its samples.

    Parameters
    ----------
    matrix : {array-like, sparse matrix} of shape (n_samples, n_samples)
        Positive if sample j (column) is relevant to sample i (row) as a query, and the
        value is its weight; zero if it is not; negative if it is junk for this query.
        The diagonal is ignored.

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
                f"{matrix.shape}. Pass a matrix with other columns as y itself."
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
    """Return `y` as an array of one or two dimensions."""
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
    """Return labels of any kind as integers 0, 1, ..., and the classes in order.

    Labels of distractors become -1, which is not among the classes.
    """
    if y.dtype.kind in ("O", "T"):  # T: strings of variable width
        y = _read_objects(y.astype(object))
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
                "The labels are only -1 and 1, which is ambiguous: -1 means a "
                "distractor, relevant to nothing. Use 0 and 1 for two classes, or "
                "another label than 1 for one class among distractors."
            )
        distractor = np.flatnonzero(classes == DISTRACTOR)
        if len(distractor):
            labels[codes == distractor[0]] = DISTRACTOR
            labels[codes > distractor[0]] -= 1
            classes = np.delete(classes, distractor[0])
    return labels, classes


def _read_objects(y: np.ndarray) -> np.ndarray:
    """Return labels as Python objects; numbers with a fraction as floats."""
    if any(_is_missing(label) for label in y):
        raise ValueError(
            "Input y contains NaN or None. Use the integer label -1 for samples that "
            "have no class."
        )
    if all(isinstance(v, Real) for v in y) and any(isinstance(v, float) for v in y):
        return _as_floats(y)
    return y


def _as_floats(y: np.ndarray) -> np.ndarray:
    floats = y.astype(np.float64)
    if (floats != y).any():
        raise ValueError("y mixes floats with integers that floats cannot represent.")
    return floats


def _is_missing(label: Any) -> bool:
    # pandas.NA == pandas.NA is neither True nor False.
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


# -- ids --


def read_ids(ids: Any, name: str) -> list[str]:
    """Return ids as strings.

    Parameters
    ----------
    ids : array-like
        Strings only, or integers only, which become strings.

    name : str
        Name of the argument, for messages.
    """
    # As a list, since NumPy would convert a mixture of numbers and strings to strings.
    values = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    types = {type(value) for value in values}
    if all(issubclass(type_, str) for type_ in types):
        return values
    if all(issubclass(t, int | np.integer) and t is not bool for t in types):
        return [str(value) for value in values]
    found = ", ".join(sorted(type_.__name__ for type_ in types))
    # Often the value is missing: None or NaN.
    for row, value in enumerate(values):
        if not isinstance(value, str | int | np.integer) or type(value) is bool:
            found += f"; row {row} holds {value!r}"
            break
    raise TypeError(
        f"{name} must hold strings only, or integers only; it holds values of type "
        f"{found}."
    )


def string_array(ids: Sequence[str], name: str) -> np.ndarray:
    """Return strings as an array; raise if one has a null character.

    NumPy removes null characters at the end of a string.
    """
    if "\0" in "".join(ids):
        bad = next(id_ for id_ in ids if "\0" in id_)
        raise ValueError(
            f"{name} must not hold null characters; got {show_ids([bad])}."
        )
    return np.array(ids, dtype=str)


def number_ids(ids: Iterable[str], numbers: dict[str, int]) -> np.ndarray:
    """Return the number of each id; add new ids to `numbers`."""
    return np.array(
        [numbers.setdefault(id_, len(numbers)) for id_ in ids], dtype=np.int64
    )


def find_ids(
    ids: Sequence[str], known: dict[str, int], what: str, column: str
) -> np.ndarray:
    """Return the number of each id in `known`; raise if an id is missing.

    Parameters
    ----------
    ids : sequence of str
        Ids in a column of a table.

    known : dict
        Numbers of the known ids.

    what : str
        Place of the known ids, for the message.

    column : str
        Column of the table that holds the ids, for the message.
    """
    numbers = np.array([known.get(id_, -1) for id_ in ids], dtype=np.int64)
    missing = np.flatnonzero(numbers < 0).tolist()
    if len(missing):
        unknown = list(dict.fromkeys(ids[i] for i in missing))
        raise ValueError(
            f"The column {column!r} holds ids that are not in {what}, first in row "
            f"{missing[0]}: {show_ids(unknown)}."
        )
    return numbers


def refuse_repeated(ids: Sequence[str], name: str) -> None:
    """Raise if an id occurs twice."""
    if len(set(ids)) < len(ids):
        repeated = [id_ for id_, count in Counter(ids).items() if count > 1]
        raise ValueError(
            f"{name} must be unique; more than once: {show_ids(repeated)}."
        )


def show_ids(ids: Sequence[str]) -> str:
    """Return a few ids, and the number of the others."""
    shown = ", ".join(repr(id_[:50]) for id_ in ids[:N_SHOWN])
    more = len(ids) - N_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def read_column(table: Any, name: str) -> Any:
    """Return a column of a frame or of a dict of columns."""
    try:
        return table[name]
    except Exception as error:
        columns = getattr(table, "columns", None)
        columns = list(table) if columns is None else list(columns)
        raise ValueError(
            f"The table has no column {name!r}; it has {columns}."
        ) from error
