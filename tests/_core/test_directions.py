"""The leading directions of wide data."""

import numpy as np
from numpy.testing import assert_allclose
from scipy import sparse

from sklearn_simlearn._core import directions
from sklearn_simlearn._core.directions import principal_directions


def test_principal_directions_span_the_rows(rng, monkeypatch):
    X = rng.standard_normal((20, 50))
    assert principal_directions(X, rng) is None
    monkeypatch.setattr(directions, "MAX_DIRECTIONS", 30)
    for rows in (X, sparse.csr_array(X)):
        found = principal_directions(rows, rng)
        A, b = found.A, found.b
        assert_allclose(A @ A.T, np.eye(20), atol=1e-10)
        assert_allclose((X @ A.T) @ (X @ A.T).T, X @ X.T)
        assert not b.any()
    monkeypatch.setattr(directions, "MAX_DIRECTIONS", 6)
    A = principal_directions(X, rng).A
    _, _, Vt = np.linalg.svd(X)
    assert_allclose(np.abs(A @ Vt[:6].T), np.eye(6), atol=1e-8)
    monkeypatch.setattr(directions, "MAX_ENTRIES", 200)
    assert principal_directions(X, rng).A.shape == (4, 50)
    monkeypatch.setattr(directions, "MAX_ROWS", 3)
    assert principal_directions(X, rng).A.shape == (3, 50)
    # Few features of many rows.
    monkeypatch.setattr(directions, "MAX_ROWS", 100)
    tall = rng.standard_normal((90, 50))
    _, _, Vt = np.linalg.svd(tall)
    for rows in (tall, sparse.csr_array(tall)):
        A = principal_directions(rows, rng).A
        assert_allclose(np.abs(A @ Vt[:4].T), np.eye(4), atol=1e-8)
    # Equal rows have one direction.
    assert principal_directions(np.ones((5, 50)), rng).A.shape == (1, 50)


def test_rows_of_zeros_have_one_arbitrary_direction(rng):
    for n_samples in (5, 700):
        for container in (np.asarray, sparse.csr_array):
            found = principal_directions(container(np.zeros((n_samples, 600))), rng)
            assert_allclose(found.A @ found.A.T, [[1]])
