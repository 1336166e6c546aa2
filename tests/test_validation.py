"""Samples held out for early stopping."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from sklearn_simlearn import OASIS, SparseMahalanobisLearner, _validation
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._validation import Validation
from sklearn_simlearn.metrics import Judgements, PairwiseRelevance


def held_out(y, n_per_object, seed=0, **options):
    """Return the rows that are held out of samples with this relevance."""
    relevance = check_relevance(y)
    X = np.ones((len(relevance), 2))
    rng = np.random.default_rng(seed)
    train = Validation(X, relevance, n_per_object, rng, **options).train
    return np.setdiff1d(np.arange(len(relevance)), train)


def test_as_many_of_each_class_that_has_enough():
    y = np.repeat([0, 1, 2, -1], [9, 6, 5, 20])
    rows = held_out(y, 4)
    assert_array_equal(np.unique(y[rows], return_counts=True), [[0, 1], [4, 4]])
    assert set(held_out(y, 4, seed=1)) != set(rows)


def test_samples_of_columns_and_of_pairs():
    y = np.zeros((20, 3))
    y[:8, 0], y[6:14, 1], y[14:17, 2] = 1, 0.5, 1
    rows = held_out(y, 2)
    assert 2 <= len(rows) <= 4
    assert ((y[rows, :2] > 0).sum(axis=0) >= 2).all()
    assert not y[rows, 2].any()
    labels = np.repeat(np.arange(3), 6)
    pairs = sparse.csr_array((labels[:, None] == labels).astype(float))
    rows = held_out(PairwiseRelevance(pairs), 2)
    assert_array_equal(np.bincount(labels[rows]), [2, 2, 2])


def test_the_number_of_queries_is_bounded(monkeypatch):
    y = np.repeat(np.arange(5), 10)
    monkeypatch.setattr(_validation, "MAX_QUERIES", 7)
    assert max(np.bincount(y[held_out(y, 3)])) == 2
    monkeypatch.setattr(_validation, "MAX_PAIRS", 150)
    assert len(held_out(y, 3)) == 3


def test_samples_that_query_each_other_are_of_few_classes(monkeypatch):
    y = np.repeat(np.arange(5), 10)
    monkeypatch.setattr(_validation, "MAX_QUERIES", 6)
    rows = held_out(y, 3, among_themselves=True)
    assert_array_equal(np.sort(np.bincount(y[rows], minlength=5)), [0, 0, 0, 3, 3])


@pytest.mark.parametrize("learner", [OASIS, SparseMahalanobisLearner])
def test_a_number_does_not_go_with_judgements(learner, rng):
    X, documents = rng.random((10, 4)), rng.random((30, 4))
    y = Judgements(rng.integers(0, 2, size=(10, 30)), documents)
    with pytest.raises(ValueError, match="holdout=2 holds out samples of each class"):
        learner(holdout=2).fit(X, y)


def test_a_number_does_not_go_with_triplets(rng):
    with pytest.raises(ValueError, match="judgements or triplets"):
        OASIS(holdout=2).fit_triplets(rng.random((10, 4)), [[0, 1, 2], [3, 4, 5]])


def test_a_number_needs_samples_in_memory(rng):
    array = pytest.importorskip("dask.array")
    X = array.from_array(rng.random((40, 4)), chunks=(20, 4))
    y = array.from_array(np.repeat(np.arange(4), 10), chunks=20)
    with pytest.raises(ValueError, match="holdout=2 needs the samples in memory"):
        OASIS(holdout=2).fit(X, y)
