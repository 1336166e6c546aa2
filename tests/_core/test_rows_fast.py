"""Kernels of rows against SciPy and NumPy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from sklearn_simlearn._core._rows_fast import add_rows, check_csr
from sklearn_simlearn._core.rows import canonical_csr, unit_rows


def check(indptr, columns, values, n_columns=5, low=0.1, high=10.0, dtype=np.float64):
    arrays = (np.array(part, dtype=np.int32) for part in (indptr, columns))
    return check_csr(*arrays, np.array(values, dtype=dtype), n_columns, low, high)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (([0, 2, 2, 3], [0, 4, 1], [1, -2, 3]), (True, True)),
        (([0], [], []), (True, True)),
        (([0, 2], [1, 1], [1, 2]), (False, False)),
        (([0, 2], [2, 1], [1, 2]), (False, False)),
        (([0, 2], [1, 5], [1, 2]), (False, False)),
        (([0, 2], [-1, 2], [1, 2]), (False, False)),
        (([0, 2], [1, 2], [1, 0]), (False, False)),
        (([0, 2, 1], [1, 2], [1, 2]), (False, False)),
        (([0, 9, 2], [1, 2], [1, 2]), (False, False)),
        (([0, -3, 2], [1, 2], [1, 2]), (False, False)),
        (([1, 2], [1, 2], [1, 2]), (False, False)),
        (([0, 1], [1, 2], [1, 2]), (False, False)),
        (([0, 2], [1, 2], [1]), (False, False)),
        (([0, 2], [1, 2], [1, np.nan]), (True, False)),
        (([0, 2], [1, 2], [1, -np.inf]), (True, False)),
        (([0, 2], [1, 2], [1, 11]), (True, False)),
        (([0, 2], [1, 2], [0.01, 0.01]), (True, False)),
        (([0, 2], [1, 2], [0.01, 1]), (True, True)),
    ],
)
def test_faults_of_rows(parts, expected, dtype):
    assert check(*parts, dtype=dtype) == expected


def test_canonical_rows_are_not_copied(rng, dtype):
    X = sparse.random_array((9, 8), density=0.3, rng=rng, format="csr", dtype=dtype)
    X.sort_indices()
    assert canonical_csr(X) is X
    wide = X.copy()
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    narrow = canonical_csr(wide)
    assert narrow.indices.dtype == narrow.indptr.dtype == np.int32
    assert wide.indices.dtype == np.int64
    assert (narrow != X).nnz == 0


def test_flags_that_are_wrong(rng):
    X = sparse.random_array((9, 8), density=0.5, rng=rng, format="csr")
    expected = X.toarray()
    X.indices[: X.indptr[1]] = X.indices[: X.indptr[1]][::-1].copy()
    X.data[: X.indptr[1]] = X.data[: X.indptr[1]][::-1].copy()
    X.has_canonical_format = X.has_sorted_indices = True
    before = X.indices.copy()
    found = canonical_csr(X)
    assert (np.diff(found.indices[: found.indptr[1]]) > 0).all()
    np.testing.assert_array_equal(found.toarray(), expected)
    np.testing.assert_array_equal(X.indices, before)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_unit_length(dtype, index, rng):
    X = rng.standard_normal((20, 7)).astype(dtype)
    X[rng.random(X.shape) < 0.5] = 0
    X[[3, 19]] = 0
    lengths = np.linalg.norm(X.astype(np.float64), axis=1, keepdims=True)
    expected = np.divide(X, lengths, out=np.zeros_like(X, float), where=lengths > 0)
    rows = sparse.csr_array(X)
    rows.indices, rows.indptr = rows.indices.astype(index), rows.indptr.astype(index)
    before, tolerance = X.copy(), 4 * np.finfo(dtype).eps
    for given in (X, np.asfortranarray(X), rows):
        unit = unit_rows(given)
        assert unit.dtype == dtype
        found = unit.toarray() if sparse.issparse(unit) else unit
        assert_allclose(found, expected, rtol=tolerance)
        assert_array_equal(X, before)
    for shape in ((0, 3), (3, 0)):
        assert unit_rows(np.empty(shape, dtype)).shape == shape


def test_weighted_sums_of_rows(rng, dtype):
    A, B = rng.standard_normal((2, 5, 37)).astype(dtype)
    of_A, of_B = rng.standard_normal((2, 5)).astype(dtype)
    out = np.full_like(A, np.nan)
    add_rows(A, B, of_A, of_B, out)
    assert_array_equal(out, of_A[:, None] * A + of_B[:, None] * B)
