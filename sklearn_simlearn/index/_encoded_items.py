"""Encodings in the forms that backends read, and checks of encodings."""

import numpy as np
from scipy import sparse
from sklearn.utils.extmath import row_norms

from sklearn_simlearn._core.rows import canonical_csr
from sklearn_simlearn.compose._parts import WeightedSum


def encode_items(model, X):
    """Return encoded items that do not share memory with X."""
    if not model.has_encodings:
        raise TypeError(
            f"{model.learner!r} is not an inner-product similarity and cannot be "
            "indexed. Use its method `similarity` to rank items."
        )
    encoded = as_rows(model.encode_items(model.prepare_items(X)))
    given = _list_arrays(X)
    is_own = all(
        part.flags.owndata
        and not any(np.may_share_memory(part, other) for other in given)
        for part in _list_arrays(encoded)
    )
    return encoded if is_own else encoded.copy()


def _list_arrays(X):
    """Return the arrays that hold the rows of a NumPy or SciPy array."""
    if sparse.issparse(X):
        return [part for part in vars(X).values() if isinstance(part, np.ndarray)]
    return [X] if isinstance(X, np.ndarray) else []


def as_rows(encoded):
    """Return encodings as sorted CSR without zeros, or as a C-contiguous array."""
    if not sparse.issparse(encoded):
        encoded = np.asarray(encoded)
        dtype = encoded.dtype if encoded.dtype in (np.float32, np.float64) else float
        return np.ascontiguousarray(encoded, dtype=dtype)
    if encoded.dtype not in (np.float32, np.float64):
        encoded = encoded.astype(np.float64)
    return canonical_csr(encoded)


def as_kind(encoded, backend, dtype=None):
    """Return rows in the form that a backend reads, sparse or dense."""
    encoded = as_rows(encoded)
    if backend in ("inverted", "hybrid"):
        if not sparse.issparse(encoded):
            encoded = canonical_csr(encoded)
    elif sparse.issparse(encoded):
        encoded = encoded.toarray()
    return encoded if dtype is None else encoded.astype(dtype, copy=False)


def have_unit_length(encoded):
    """Return whether all rows have length 1 or consist of zeros."""
    norms = row_norms(encoded, squared=True)
    tolerance = 4 * np.sqrt(np.finfo(norms.dtype).eps)
    return bool(np.all((np.abs(norms - 1) <= tolerance) | (norms == 0)))


def agree(encoded, expected):
    """Return whether two encodings are equal up to rounding."""
    encoded, expected = as_rows(encoded), as_rows(expected)
    if encoded.shape != expected.shape:
        return False
    if sparse.issparse(encoded) != sparse.issparse(expected):
        return False
    if sparse.issparse(encoded):
        if not (
            np.array_equal(encoded.indptr, expected.indptr)
            and np.array_equal(encoded.indices, expected.indices)
        ):
            return False
        encoded, expected = encoded.data, expected.data
    # Parts of an encoding in double precision may be computed in single precision.
    eps = np.finfo(np.float32).eps
    scale = np.abs(encoded).max(initial=0)
    return np.allclose(encoded, expected, rtol=1e3 * eps, atol=10 * eps * scale)


def find_dense_columns(model, X):
    """Return the mask of the columns from dense parts of a union.

    Parameters
    ----------
    model : Model
        Model of the items.

    X : samples
        Some items.

    Returns
    -------
    is_dense : bool ndarray or None
        None if the model is not a union, or has parts of one kind only.
    """
    if not isinstance(getattr(model.learner, "encoder_", None), WeightedSum):
        return None
    is_dense = _are_dense(model, X)
    return is_dense if is_dense.any() and not is_dense.all() else None


def _are_dense(model, X):
    X, encoder = model.prepare_items(X), getattr(model.learner, "encoder_", None)
    if isinstance(encoder, WeightedSum):
        return np.concatenate(
            [_are_dense(part.model, part.columns.take(X)) for part in encoder.parts]
        )
    encoded = model.encode_items(X)
    return np.full(encoded.shape[1], not sparse.issparse(encoded))
