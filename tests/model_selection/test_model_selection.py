"""Splitters, and the estimator that keeps its training fold."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.model_selection import GridSearchCV, cross_val_score

from sklearn_simlearn.metrics import PairwiseRelevance, map_scorer
from sklearn_simlearn.model_selection import (
    KeepTrainingData,
    ObjectKFold,
    ObjectShuffleSplit,
    QuerySplit,
    make_query_sets,
)
from sklearn_simlearn.similarities import CosineSimilarity, NegativeEvidenceSimilarity

OBJECT_SPLITTERS = [
    ObjectKFold(4),
    ObjectKFold(4, shuffle=True, random_state=0),
    ObjectShuffleSplit(6, test_size=0.3, random_state=0),
]
each_splitter = pytest.mark.parametrize("splitter", OBJECT_SPLITTERS, ids=repr)


@each_splitter
def test_objects_stay_whole_and_distractors_are_distributed(splitter, counts):
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
    pairs = PairwiseRelevance(container(y @ y.T))
    for target in (container(y), pairs):
        for train, test in splitter.split(np.zeros((30, 1)), target):
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
        # One of the four other samples per object, and 2 of 6 distractors, are tested.
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


def test_query_split_with_pairs(counts):
    X, y = counts
    pairs = PairwiseRelevance((y[:, None] == y) & (y != -1))
    split = QuerySplit(np.arange(66) % 5 == 0, random_state=0)
    for (train, test), (same_train, same_test) in zip(
        split.split(X, y), split.split(X, pairs), strict=True
    ):
        assert_array_equal(train, same_train)
        assert_array_equal(test, same_test)


@pytest.mark.parametrize("kind", ["labels", "columns", "pairs"])
def test_query_sets_are_of_one_class_and_leave_a_relevant_item(kind):
    y = np.array([0] * 7 + [1] * 3 + [2] + [-1] * 2 + [3] * 2)
    relevant = (y[:, None] == y) & (y != -1)
    target = {
        "labels": y,
        "columns": (y[:, None] == np.arange(4)).astype(float),
        "pairs": PairwiseRelevance(relevant),
    }[kind]
    groups = make_query_sets(target, 3, random_state=0)
    assert_array_equal(groups, make_query_sets(target, 3, random_state=0))
    assert (groups[y == -1] == -1).all()
    sizes = {0: [3, 3], 1: [2], 2: [1], 3: [1, 1]}
    if kind == "pairs":
        sizes[2] = []  # a single sample does not have a relevant one
    for label, expected in sizes.items():
        drawn = groups[y == label]
        assert_array_equal(
            np.unique(drawn[drawn >= 0], return_counts=True)[1], expected
        )
    numbers = np.unique(groups[groups >= 0])
    assert_array_equal(numbers, np.arange(len(numbers)))
    mask = np.arange(len(y)) < 4
    masked = make_query_sets(target, 3, query_mask=mask, random_state=0)
    assert np.count_nonzero(masked[:4] >= 0) == 3
    assert (masked[4:] == -1).all()


def test_query_sets_share_all_columns():
    # Samples 0 and 1 have the same columns, sample 2 only one of them.
    y = np.array([[1.0, 1, 0], [2, 1, 0], [1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1]])
    groups = make_query_sets(y, 2, random_state=0)
    for number in np.unique(groups[groups >= 0]):
        assert len(np.unique(np.sign(y[groups == number]), axis=0)) == 1


def test_no_query_sets():
    assert_array_equal(make_query_sets([-1, -1]), [-1, -1])
    with pytest.raises(ValueError, match="'size' parameter"):
        make_query_sets([0, 0], 0)
    with pytest.raises(ValueError, match="one boolean for each of the 2 samples"):
        make_query_sets([0, 0], query_mask=[True])


def test_objects_need_targets(counts):
    X, y = counts
    with pytest.raises(ValueError, match="requires y"):
        next(ObjectKFold(2).split(X, None))
    with pytest.raises(ValueError, match="got 65 and 66"):
        next(ObjectKFold(2).split(X, y[:-1]))


def test_training_data_is_kept_unchanged(counts):
    X, y = counts
    model = KeepTrainingData(CosineSimilarity()).fit(X, y)
    assert model.training_data_[0] is X
    assert model.n_features_in_ == 40
    assert model.estimator_ is not model.estimator
