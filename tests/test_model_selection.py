"""Splitters, and the estimator that keeps its training fold."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.model_selection import GridSearchCV, cross_val_score

from sklearn_simlearn.metrics import map_scorer
from sklearn_simlearn.model_selection import (
    KeepTrainingData,
    ObjectKFold,
    ObjectShuffleSplit,
    QuerySplit,
)
from sklearn_simlearn.similarities import CosineSimilarity, NegativeEvidenceSimilarity

OBJECT_SPLITTERS = [
    ObjectKFold(4),
    ObjectKFold(4, shuffle=True, random_state=0),
    ObjectShuffleSplit(6, test_size=0.3, random_state=0),
]
each_splitter = pytest.mark.parametrize("splitter", OBJECT_SPLITTERS, ids=repr)


@each_splitter
def test_objects_stay_whole_and_distractors_are_dealt_out(splitter, counts):
    X, y = counts
    n_distractors = []
    for train, test in splitter.split(X, y):
        assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(66))
        assert set(y[train][y[train] >= 0]).isdisjoint(y[test])
        assert np.unique(y[test][y[test] >= 0]).size >= 2
        n_distractors.append(np.count_nonzero(y[test] == -1))
    assert 0 < max(n_distractors) < 6


@each_splitter
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_columns_in_common_hold_samples_together(splitter, container):
    # Samples 3 i, 3 i + 1 and 3 i + 2 form a chain: neighbours share a column.
    y = np.zeros((30, 20))
    for i in range(10):
        y[[3 * i, 3 * i + 1], 2 * i] = 1
        y[[3 * i + 1, 3 * i + 2], 2 * i + 1] = 0.5
    for train, test in splitter.split(np.zeros((30, 1)), container(y)):
        assert set(train // 3).isdisjoint(test // 3)


def test_folds_of_one_seed_are_the_same(counts):
    X, y = counts
    for splitter in OBJECT_SPLITTERS[1:] + [QuerySplit(y == 0, random_state=0)]:
        first, second = (
            np.concatenate([test for _, test in splitter.split(X, y)]) for _ in range(2)
        )
        assert_array_equal(first, second)


@each_splitter
def test_splitter_as_cv(splitter, counts):
    X, y = counts
    search = GridSearchCV(
        NegativeEvidenceSimilarity(),
        {"beta": [0.0, 0.5]},
        scoring=map_scorer,
        cv=splitter,
    ).fit(X, y)
    assert 0 < search.best_score_ < 1


def test_query_split_keeps_queries_in_the_test(counts):
    X, y = counts
    is_query = np.zeros(66, dtype=bool)
    is_query[:60:5] = True
    seen = set()
    for train, test in QuerySplit(
        is_query, n_splits=50, test_size=0.25, random_state=0
    ).split(X, y):
        assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(66))
        assert is_query[test].sum() == 12
        # Of the four others of each object one is in the test; of six distractors 2.
        assert_array_equal(np.bincount(y[test] + 1), [2] + [2] * 12)
        seen.update(test)
    assert seen == set(range(66))
    scores = cross_val_score(
        CosineSimilarity(),
        X,
        y,
        scoring=map_scorer,
        cv=QuerySplit(is_query, n_splits=3, random_state=0),
    )
    assert ((scores > 0) & (scores < 1)).all()


def test_bad_query_split(counts):
    X, y = counts
    with pytest.raises(ValueError, match="one boolean for each of the 66 samples"):
        next(QuerySplit([True, False]).split(X, y))
    with pytest.raises(ValueError, match="one boolean for each of the 66 samples"):
        next(QuerySplit(np.arange(66)).split(X, y))
    with pytest.raises(ValueError, match=r"test_size must be in \[0, 1\)"):
        next(QuerySplit(y == 0, test_size=2).split(X, y))


def test_objects_need_targets(counts):
    X, y = counts
    with pytest.raises(ValueError, match="requires y"):
        next(ObjectKFold(2).split(X, None))
    with pytest.raises(ValueError, match="got 65 and 66"):
        next(ObjectKFold(2).split(X, y[:-1]))


def test_training_data_is_kept_as_it_was_given(counts):
    X, y = counts
    model = KeepTrainingData(CosineSimilarity()).fit(X, y)
    assert model.training_data_[0] is X
    assert model.n_features_in_ == 40
    assert model.estimator_ is not model.estimator
