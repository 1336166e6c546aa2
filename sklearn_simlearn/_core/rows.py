"""Checks of samples, and arithmetic on their rows."""

from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy import sparse
from sklearn.utils import get_tags
from sklearn.utils.validation import check_non_negative, validate_data

from sklearn_simlearn._core._rows_fast import check_csr, scale_to_unit
from sklearn_simlearn._core.typing import Matrix

# Number of values that are processed at a time. A copy of all values would double the
# memory.
BLOCK = 2**20

# All counts from here on are one bin when the frequencies of counts are compared.
# Pixels of the value 255 are not among them.
MANY = 256


def check_rows(estimator, X, *, reset: bool) -> Matrix:
    """Check samples and return them in the form that kernels take.

    Parameters
    ----------
    estimator : object
        Estimator that receives the samples. If `reset`, their number of features and
        their names are stored in it; otherwise they are compared with the stored ones.

    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Samples in any storage state. They are not changed.

    reset : bool
        True in `fit`.

    Returns
    -------
    rows : ndarray or csr_array of shape (n_samples, n_features)
        float32 or float64. An array is C-contiguous; for CSR see `canonical_csr`.
    """
    if not reset and _are_sound(X, estimator):
        return X
    try:
        X = validate_data(
            estimator,
            X,
            reset=reset,
            accept_sparse="csr" if get_tags(estimator).input_tags.sparse else False,
            dtype=[np.float64, np.float32],
            order="C",
        )
    except ValueError as error:
        if _are_texts(X):
            name = type(estimator).__name__
            raise ValueError(
                f"{name} takes vectors or counts of words, but got texts ({error}). "
                f"Convert them: make_retrieval_pipeline(CountVectorizer(), {name}()) "
                "converts samples, queries and documents."
            ) from error
        raise
    if sparse.issparse(X):
        X = canonical_csr(X)
    _refuse_extremes(X)
    return X


def _are_texts(X):
    """Return True if samples are a one-dimensional collection of strings."""
    if not isinstance(X, list | tuple) and len(getattr(X, "shape", ())) != 1:
        return False
    return len(X) > 0 and isinstance(next(iter(X)), str)


def _are_sound(X, estimator):
    """Return True if X needs no conversion and has no invalid value.

    The checks of scikit-learn take as long as a search of about ten thousand vectors.
    """
    if not (
        type(X) in (np.ndarray, sparse.csr_array)
        and X.dtype in (np.float64, np.float32)
        and X.ndim == 2
        and X.shape[0] > 0
        and X.shape[1] == getattr(estimator, "n_features_in_", None)
        and not hasattr(estimator, "feature_names_in_")
    ):
        return False
    low, high = _bounds(X.dtype)
    if type(X) is sparse.csr_array:
        accepts_sparse = get_tags(estimator).input_tags.sparse
        return accepts_sparse and _check_csr(X, low, high)[1]
    if not X.flags.c_contiguous:
        return False
    squares = _squares(X)
    # A comparison with NaN is False.
    return bool(((squares >= X.shape[1] * low**2) & (squares <= high**2)).all())


def _check_csr(X, low=0.0, high=np.inf):
    """Return whether CSR rows are canonical, and whether their values are in range."""
    indptr, columns, values = X.indptr, X.indices, X.data
    if not (
        columns.dtype == np.int32 == indptr.dtype
        and values.dtype in (np.float32, np.float64)
        and columns.flags.c_contiguous
        and indptr.flags.c_contiguous
        and values.flags.c_contiguous
    ):
        return False, False
    return check_csr(indptr, columns, values, X.shape[1], low, high)


def canonical_csr(X, *, keep_zeros: bool = False) -> sparse.csr_array:
    """Return CSR with sorted, unique columns; remove stored zeros unless kept.

    Indices and offsets have one integer type: 32 bits if these suffice. The arrays may
    be those of X, so do not write to them.
    """
    if type(X) is sparse.csr_array and X.ndim == 2:
        if X.indices.dtype == np.int64 and max(X.nnz, *X.shape) < 2**31:
            X = _with_values(X, X.data)
            X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        if _check_csr(X)[0]:
            return X
    X = X.tocsr() if sparse.issparse(X) else sparse.csr_array(X)
    # Built again from its arrays, since the flags of X may be wrong.
    index = np.int32 if max(X.nnz, *X.shape) < 2**31 else np.int64
    parts = (
        np.ascontiguousarray(X.data),
        np.ascontiguousarray(X.indices, dtype=index),
        np.ascontiguousarray(X.indptr, dtype=index),
    )
    X = sparse.csr_array(parts, shape=X.shape)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if not (keep_zeros or X.data.all()):
        X = X.copy()
        X.eliminate_zeros()
    return X


def _refuse_extremes(X):
    """Raise if the square of a row leaves the range of the floating-point type."""
    low, high = _bounds(X.dtype)
    rows = np.arange(X.shape[0])
    if not sparse.issparse(X):
        # One pass over the array finds the few rows that may be bad.
        squares = _squares(X)
        rows = np.flatnonzero((squares > high**2) | (squares < X.shape[1] * low**2))
        X = X[rows]
    largest = _largest_magnitudes(X)
    bad = np.flatnonzero((largest > high) | ((largest < low) & (largest > 0)))
    if len(bad):
        raise ValueError(
            f"The largest magnitude in row {rows[bad[0]]} of X is "
            f"{largest[bad[0]]:.3g}, and squares of such values leave the range of "
            f"{X.dtype}: scale X so that the rows reach from {low:.0e} to {high:.0e}."
        )


@cache
def _bounds(dtype):
    """Return the magnitudes between which sums of squares keep their precision."""
    info = np.finfo(dtype)
    return 1e4 * np.sqrt(info.tiny), 1e-4 * np.sqrt(info.max)


def _squares(X):
    """Return the squared length of each row of an array; infinite on overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.einsum("ij,ij->i", X, X)


def _largest_magnitudes(X):
    """Return the largest absolute value of each row, 0 for an empty row."""
    if not sparse.issparse(X):
        return np.abs(X).max(axis=1, initial=0)
    largest = np.zeros(X.shape[0], dtype=X.dtype)
    occupied = np.flatnonzero(np.diff(X.indptr))
    if len(occupied):
        start = X.indptr[occupied]
        largest[occupied] = np.maximum(
            np.maximum.reduceat(X.data, start), -np.minimum.reduceat(X.data, start)
        )
    return largest


# -- kinds of values --


def check_counts(X: Matrix, name: str) -> None:
    """Raise if samples hold negative numbers or fractions.

    Parameters
    ----------
    X : ndarray or csr_array
        Checked samples.

    name : str
        Name of the estimator, for the message.
    """
    check_non_negative(X, name)
    if not _are_integers(X):
        raise ValueError(
            f"{name} compares counts, but X has fractions. Pass the raw counts instead "
            "of weighted or normalised counts."
        )


def are_counts(X: Matrix) -> bool:
    """Return True if the values look like counts of words.

    Counts are non-negative integers, and 1 is the most frequent one except 0. The
    integers of pixels do not pass.
    """
    values = X.ravel() if isinstance(X, np.ndarray) else X.data
    if values.min(initial=0) < 0 or not _are_integers(X):
        return False
    frequency = np.zeros(MANY + 1, dtype=np.int64)
    for start in range(0, len(values), BLOCK):
        few = np.minimum(values[start : start + BLOCK], MANY).astype(np.intp)
        frequency += np.bincount(few, minlength=MANY + 1)
    return bool(frequency[1] > 0 and frequency[1] >= frequency[2:MANY].max())


def _are_integers(X):
    values = X.data if sparse.issparse(X) else X.ravel()
    blocks = (values[i : i + BLOCK] for i in range(0, len(values), BLOCK))
    return all(np.array_equal(block, np.rint(block)) for block in blocks)


def inverse_document_frequency(X: Matrix) -> np.ndarray:
    """Return log(n / n_i) for each feature, which n_i >= 1 of the n rows have."""
    return np.log(X.shape[0]) - np.log(np.maximum(document_frequency(X), 1))


def document_frequency(X: Matrix) -> np.ndarray:
    """Return the number of rows in which each feature is not zero."""
    if isinstance(X, np.ndarray):
        return np.count_nonzero(X, axis=0)
    return count_indices(X.indices, X.shape[1])


def count_indices(indices: np.ndarray, n: int) -> np.ndarray:
    """Count how often each of the indices 0 to n - 1 occurs.

    Indices are counted in blocks, because NumPy counts in a copy of the widest type.
    """
    size = max(BLOCK, n)
    frequency = np.zeros(n, dtype=np.intp)
    for start in range(0, len(indices), size):
        frequency += np.bincount(indices[start : start + size], minlength=n)
    return frequency


# -- arithmetic: results are copies, and have the dtype of X --


def scale_rows(X: Matrix, scale: np.ndarray) -> Matrix:
    """Multiply each row by a number."""
    scale = scale.astype(X.dtype, copy=False)
    if isinstance(X, np.ndarray):
        return X * scale[:, None]
    if len(scale) > 1:
        scale = np.repeat(scale, X.indptr[1:] - X.indptr[:-1])
    return _with_values(X, X.data * scale)


def scale_columns(X: Matrix, scale: np.ndarray) -> Matrix:
    """Multiply each column by a number."""
    if isinstance(X, np.ndarray):
        return X * scale.astype(X.dtype, copy=False)
    # Only the entries that are needed are converted.
    return _with_values(X, X.data * scale[X.indices].astype(X.dtype, copy=False))


def power(X: Matrix, exponent: float) -> Matrix:
    """Raise magnitudes to a power and keep the signs."""
    if sparse.issparse(X):
        return _with_values(X, np.sign(X.data) * np.abs(X.data) ** exponent)
    return np.sign(X) * np.abs(X) ** exponent


def unit_rows(X: Matrix) -> Matrix:
    """Scale rows to unit length; rows of zeros are unchanged."""
    if isinstance(X, np.ndarray):
        scaled = np.empty(X.shape, dtype=X.dtype)
        starts = np.arange(X.shape[0] + 1) * X.shape[1]
        scale_to_unit(starts, X.ravel(), scaled.ravel())
        return scaled
    values = np.empty_like(X.data)
    scale_to_unit(X.indptr, X.data, values)
    return _with_values(X, values)


def row_dots(A: Matrix, B: Matrix) -> np.ndarray:
    """Return the product of each row of A with that row of B, in double precision."""
    if isinstance(A, np.ndarray):
        if isinstance(B, np.ndarray):
            return np.einsum("ij,ij->i", A, B, dtype=np.float64)
        return row_dots(B, A)
    if isinstance(B, np.ndarray) or B is not A:
        return A.astype(np.float64).multiply(B).sum(axis=1)
    return sum_entries(np.square(A.data, dtype=np.float64), A.indptr)


def sum_entries(
    values: np.ndarray, indptr: np.ndarray, dtype: DTypeLike | None = None
) -> np.ndarray:
    """Return the sum of the values of the entries of each row of CSR.

    If `dtype` is None, the sums have the dtype of the values.
    """
    dtype = values.dtype if dtype is None else dtype
    sums: np.ndarray = np.zeros(len(indptr) - 1, dtype=dtype)
    start = indptr[:-1]
    occupied = start < indptr[1:]
    if occupied.all():
        return np.add.reduceat(values, start, dtype=dtype, out=sums)
    if len(values):
        sums[occupied] = np.add.reduceat(values, start[occupied], dtype=dtype)
    return sums


def side_by_side(*parts: Matrix, dtype: DTypeLike | None = None) -> Matrix:
    """Return matrices side by side; CSR if one of them is sparse.

    If `dtype` is None, the result has the dtype of the first part.
    """
    dtype = parts[0].dtype if dtype is None else dtype
    if any(sparse.issparse(part) for part in parts):
        rows = [
            part if sparse.issparse(part) else sparse.csr_array(part) for part in parts
        ]
        return sparse.hstack(rows, format="csr", dtype=dtype)
    return np.hstack(parts).astype(dtype, copy=False)


def stack_rows(A: Matrix, B: Matrix) -> Matrix:
    """Return the rows of A, then those of B; CSR if one of them is sparse."""
    if sparse.issparse(A) or sparse.issparse(B):
        A, B = canonical_csr(A), canonical_csr(B)
        return canonical_csr(sparse.vstack([A, B], format="csr"))
    return np.concatenate([A, B])


def inverse(x: np.ndarray) -> np.ndarray:
    """Return 1 / x, or 0 where x is not positive."""
    return np.divide(1, x, out=np.zeros_like(x), where=x > 0)


def _with_values(X, values):
    """Return CSR with the same entries and other values."""
    # The constructor would take 50 times as long for a single row.
    changed = object.__new__(type(X))
    vars(changed).update(vars(X), data=values)
    return changed


def check_query_mask(query_mask: ArrayLike, n_samples: int) -> np.ndarray:
    """Check that `query_mask` holds one boolean per sample."""
    query_mask = np.asarray(query_mask)
    if query_mask.shape != (n_samples,) or query_mask.dtype != bool:
        raise ValueError(
            f"query_mask must hold one boolean for each of the {n_samples} samples; "
            f"got shape {query_mask.shape} and dtype {query_mask.dtype}."
        )
    return query_mask


def check_row_numbers(numbers: np.ndarray, n_samples: int, name: str) -> None:
    """Raise unless integers are row numbers of X."""
    if numbers.min() < 0 or numbers.max() >= n_samples:
        raise ValueError(
            f"{name} must be row numbers of X, from 0 to {n_samples - 1}; got "
            f"{numbers.min()} to {numbers.max()}."
        )


def one_hot(labels: np.ndarray) -> sparse.csr_array:
    """Return a row per sample with a 1 in the column of its label; none for -1."""
    member = labels >= 0
    return sparse.csr_array(
        (
            np.ones(np.count_nonzero(member)),
            labels[member],
            np.concatenate([[0], np.cumsum(member)]),
        ),
        shape=(len(labels), labels.max(initial=-1) + 1),
    )


def number_patterns(matrix: sparse.csr_array) -> np.ndarray:
    """Number the rows: the same number if entries are in the same columns."""
    known: dict[bytes, int] = {}
    columns = np.split(matrix.indices, matrix.indptr[1:-1])
    numbers = [known.setdefault(c.tobytes(), len(known)) for c in columns]
    return np.array(numbers, dtype=np.int64)


def starts_run(*columns: np.ndarray) -> np.ndarray:
    """Return the mask of rows that differ from the row before; True for the first."""
    starts = np.zeros(len(columns[0]), dtype=bool)
    starts[:1] = True
    for column in columns:
        starts[1:] |= column[1:] != column[:-1]
    return starts


def bounded_blocks(cost: np.ndarray, limit: float) -> Iterator[slice]:
    """Yield slices of consecutive entries of limited total cost.

    An entry whose cost alone exceeds the limit is yielded by itself.
    """
    total, start = np.cumsum(cost), 0
    while start < len(total):
        spent = total[start - 1] if start else 0
        stop = int(np.searchsorted(total, spent + limit, side="right"))
        stop = max(stop, start + 1)
        yield slice(start, stop)
        start = stop


def find_repeat(row: np.ndarray, column: np.ndarray) -> tuple[int, int] | None:
    """Return the places of a pair and of its first repetition; None without one."""
    order = np.lexsort((column, row))
    places = np.flatnonzero(~starts_run(row[order], column[order]))
    if len(places) == 0:
        return None
    place = places[order[places].argmin()]
    return int(order[place - 1]), int(order[place])


def count_per_row(matrix: sparse.csr_array, counted: np.ndarray) -> np.ndarray:
    """Count the stored entries of each row for which a mask is True."""
    before = np.concatenate([[0], np.cumsum(counted)])
    return np.diff(before[matrix.indptr])
