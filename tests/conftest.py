"""Data that several test modules share."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_blobs


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def blobs():
    """Three overlapping classes, non-negative."""
    X, y = make_blobs(
        90, 5, centers=3, cluster_std=4.0, center_box=(0, 10), random_state=0
    )
    return X - X.min(), y


@pytest.fixture
def counts():
    """Sparse word counts of 12 objects with 5 samples each, and 6 distractors."""
    rng = np.random.default_rng(0)
    prototypes = rng.poisson(0.4, size=(12, 40))
    y = np.concatenate([np.repeat(np.arange(12), 5), np.full(6, -1)])
    X = rng.poisson(0.3, size=(66, 40))
    X[:60] += rng.binomial(prototypes[y[:60]], 0.7)
    return sparse.csr_array(X.astype(np.float64)), y
