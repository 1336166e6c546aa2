"""Rows for kernels: the one door for samples, and what is done to rows."""

import numpy as np
from scipy import sparse
from sklearn.utils import get_tags
from sklearn.utils.validation import check_non_negative, validate_data

from sklearn_simlearn._core.typing import Matrix

# Values looked at together where a copy of all of them would double the memory.
BLOCK = 2**20

# Counts from here on are not told apart when it is asked which one is frequent.
MANY = 255


def check_rows(estimator, X, *, reset: bool) -> Matrix:
    """Check samples and bring them into the one form that kernels take.

    Parameters
    ----------
    estimator : object
        The estimator they are passed to, which learns their number of features and
        names if `reset`, and compares with them otherwise.

    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Samples in any state of storage. They are not changed.

    reset : bool
        Whether this is a `fit`.

    Returns
    -------
    rows : ndarray or csr_array of shape (n_samples, n_features)
        float32 or float64. An array is C-contiguous; for CSR see `canonical_csr`.
    """
    if not reset and _are_sound(X, estimator):
        return X
    X = validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr" if get_tags(estimator).input_tags.sparse else False,
        dtype=[np.float64, np.float32],
        order="C",
    )
    if sparse.issparse(X):
        X = canonical_csr(X)
    _refuse_extremes(X)
    return X


def _are_sound(X, estimator):
    """Whether X is an array with nothing to mend or to refuse, by one look at it.

    The checks of scikit-learn cost as much as the search of some ten thousand vectors.
    """
    if not (
        type(X) is np.ndarray
        and X.dtype in (np.float64, np.float32)
        and X.ndim == 2
        and X.flags.c_contiguous
        and len(X) > 0
        and X.shape[1] == getattr(estimator, "n_features_in_", None)
        and not hasattr(estimator, "feature_names_in_")
    ):
        return False
    low, high = _bounds(X.dtype)
    squares = _squares(X)
    # Not so if one is NaN.
    return bool(((squares >= X.shape[1] * low**2) & (squares <= high**2)).all())


def canonical_csr(X, *, keep_zeros: bool = False) -> sparse.csr_array:
    """CSR with sorted columns, each at most once, and no stored zero unless kept.

    Indices and offsets are of one integer type, 32 bits where these suffice. The
    arrays may be those of X, so they are to be read only.
    """
    X = X.tocsr() if sparse.issparse(X) else sparse.csr_array(X)
    # Built anew from its parts: flags that X carries about itself may be wrong.
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
    """Refuse rows whose squares leave the range of the floating-point type."""
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


def _bounds(dtype):
    """Magnitudes between which squares and sums of them keep their precision."""
    info = np.finfo(dtype)
    return 1e4 * np.sqrt(info.tiny), 1e-4 * np.sqrt(info.max)


def _squares(X):
    """Squared length of each row of an array; infinite if it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.einsum("ij,ij->i", X, X)


def _largest_magnitudes(X):
    """Largest absolute value of each row, 0 for an empty one."""
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


# -- what the values are --


def check_counts(X: Matrix, whom: str) -> None:
    """Refuse negative numbers and fractions.

    Parameters
    ----------
    X : ndarray or csr_array
        Checked samples.

    whom : str
        Name of the estimator, for the message.
    """
    check_non_negative(X, whom)
    if not _are_integers(X):
        raise ValueError(
            f"{whom} compares counts, but X has fractions. Pass the raw counts, not "
            "weighted or normalised ones."
        )


def are_counts(X: Matrix) -> bool:
    """Whether the values look like counts of words.

    They are non-negative integers, and 1 is the most frequent one besides 0. So the
    integers of pixels do not pass.
    """
    values = X.data if sparse.issparse(X) else X.ravel()
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
    """log(n / n_i) of each feature, which n_i of the n rows have; n_i at least 1."""
    n_samples, n_features = X.shape
    if sparse.issparse(X):
        frequency = count_indices(X.indices, n_features)
    else:
        frequency = np.count_nonzero(X, axis=0)
    return np.log(n_samples) - np.log(np.maximum(frequency, 1))


def count_indices(indices: np.ndarray, n: int) -> np.ndarray:
    """How often each of the indices 0 to n - 1 occurs.

    By blocks, as NumPy counts in a copy of the widest type.
    """
    size = max(BLOCK, n)
    frequency = np.zeros(n, dtype=np.intp)
    for start in range(0, len(indices), size):
        frequency += np.bincount(indices[start : start + size], minlength=n)
    return frequency


# -- arithmetic, all of it on copies and of the dtype of X --


def scale_rows(X: Matrix, scale: np.ndarray) -> Matrix:
    """Each row multiplied by a number."""
    scale = scale.astype(X.dtype, copy=False)
    if not sparse.issparse(X):
        return X * scale[:, None]
    return _with_values(X, X.data * np.repeat(scale, np.diff(X.indptr)))


def scale_columns(X: Matrix, scale: np.ndarray) -> Matrix:
    """Each column multiplied by a number."""
    scale = scale.astype(X.dtype, copy=False)
    if not sparse.issparse(X):
        return X * scale
    return _with_values(X, X.data * scale[X.indices])


def power(X: Matrix, exponent: float) -> Matrix:
    """Magnitudes to a power, signs kept."""
    if sparse.issparse(X):
        return _with_values(X, np.sign(X.data) * np.abs(X.data) ** exponent)
    return np.sign(X) * np.abs(X) ** exponent


def unit_rows(X: Matrix) -> Matrix:
    """Rows of unit length; those of zeros stay."""
    return scale_rows(X, inverse(np.sqrt(row_dots(X, X))))


def row_dots(A: Matrix, B: Matrix) -> np.ndarray:
    """Products of the rows of A with those of B, one by one, in double precision."""
    if sparse.issparse(A) and A is B:
        return _with_values(A, np.square(A.data, dtype=np.float64)).sum(axis=1)
    if sparse.issparse(A) or sparse.issparse(B):
        if not sparse.issparse(A):
            A, B = B, A
        return A.astype(np.float64).multiply(B).sum(axis=1)
    return np.einsum("ij,ij->i", A, B, dtype=np.float64)


def append_columns(X: Matrix, extra: np.ndarray, scale=None) -> Matrix:
    """[X, extra], the rows multiplied by `scale` if there is one."""
    if sparse.issparse(X):
        out = sparse.hstack([X, sparse.csr_array(extra)], format="csr", dtype=X.dtype)
    else:
        out = np.hstack([X, extra]).astype(X.dtype, copy=False)
    return out if scale is None else scale_rows(out, scale)


def stack_rows(A: Matrix, B: Matrix) -> Matrix:
    """Return the rows of A, then those of B; CSR if one of them is sparse."""
    if sparse.issparse(A) or sparse.issparse(B):
        A, B = canonical_csr(A), canonical_csr(B)
        return canonical_csr(sparse.vstack([A, B], format="csr"))
    return np.concatenate([A, B])


def inverse(x: np.ndarray) -> np.ndarray:
    """1 / x, or 0 where x is not positive."""
    return np.divide(1, x, out=np.zeros_like(x), where=x > 0)


def _with_values(X, values):
    """CSR of the same places with other values."""
    return sparse.csr_array((values, X.indices, X.indptr), shape=X.shape)
