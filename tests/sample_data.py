"""Data that fixtures of several scopes share."""

import numpy as np
import pytest
from scipy import sparse


def make_counts():
    """Return counts of 12 objects with 5 samples each and 6 distractors, and labels."""
    rng = np.random.default_rng(0)
    prototypes = rng.poisson(0.4, size=(12, 40))
    y = np.concatenate([np.repeat(np.arange(12), 5), np.full(6, -1)])
    X = rng.poisson(0.3, size=(66, 40))
    X[:60] += rng.binomial(prototypes[y[:60]], 0.7)
    return sparse.csr_array(X.astype(np.float64)), y


def polars_frame(table, **options):
    """Return a table of polars, which has no package for free-threaded Python."""
    return pytest.importorskip("polars").DataFrame(table, **options)
