"""Queries and documents as two sides of one set of samples."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from sklearn_simlearn import _folds
from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.triplets import triplet_sampler
from sklearn_simlearn._folds import make_folds
from sklearn_simlearn._holdout import read_holdout

# Rows are three queries, columns four documents; the last query has nothing relevant.
R = np.array([[2, 0, -1, 0], [0, 1, 0, 3], [0, 0, 0, 0]], dtype=float)


@pytest.fixture
def judged():
    return JudgedRelevance.of(sparse.csr_array(R))


def test_only_queries_query_and_only_documents_are_items(judged):
    assert len(judged) == 7
    assert_array_equal(judged.can_query, [1, 1, 0, 0, 0, 0, 0])
    assert_array_equal(judged.find_queries(), [1, 1, 0, 0, 0, 0, 0])
    block = judged.graded_block(slice(0, 3), slice(0, 7))
    assert_array_equal(block[:, :3], -1)
    assert_array_equal(block[:, 3:], np.where(R < 0, -1, R))
    assert_array_equal(judged.block(np.arange(2), np.arange(3, 7)), np.sign(R[:2]))
    X = np.arange(7)[:, None]
    assert_array_equal(judged.items_of(X), [[3], [4], [5], [6]])


def test_batches_leave_queries_out(judged):
    (_, rows, relevance), *_ = judged.batches(np.arange(2), graded=True)
    assert_array_equal(rows, [0, 1])
    assert_array_equal(relevance[:, :3], -1)
    assert_array_equal(relevance[1, 3:], [0, 1, 0, 3])


def test_some_rows(judged):
    part = judged.take(np.array([1, 4, 6]))
    assert_array_equal(part.is_item, [False, True, True])
    assert_array_equal(part.graded_block(slice(0, 1), slice(1, 3)), [[1, 3]])


def test_a_stored_zero_is_not_relevant():
    stored = sparse.csr_array(([1.0, 0.0], [0, 1], [0, 2]), shape=(1, 3))
    judged = JudgedRelevance.of(stored)
    assert_array_equal(judged.block(slice(0, 1), slice(1, 4)), [[1, 0, 0]])


def test_triplets_are_of_queries_and_documents(judged):
    sampler = triplet_sampler(judged)
    triplets = sampler.draw(500, np.random.default_rng(0))
    query, positive, negative = triplets.T
    assert set(query) == {0, 1}
    assert (R[query, positive - 3] > 0).all()
    assert (R[query, negative - 3] == 0).all()
    weak = triplet_sampler(judged, threshold=1.5).draw(300, np.random.default_rng(0))
    assert (R[weak[:, 0], weak[:, 1] - 3] > 1.5).all()
    # A pair up to the threshold is a negative.
    assert ((weak[:, 0] == 1) & (weak[:, 2] == 4)).any()


def test_no_triplet_is_named():
    nothing = JudgedRelevance.of(sparse.csr_array((2, 3)))
    with pytest.raises(ValueError, match="no query has both a relevant document"):
        nothing.require_triplets()
    all_relevant = JudgedRelevance.of(sparse.csr_array(np.ones((2, 3))))
    with pytest.raises(ValueError, match="no query has both a relevant document"):
        all_relevant.require_triplets()


# -- the hold-out --


def make_judgements(n_queries, n_documents, seed=0):
    rng = np.random.default_rng(seed)
    relevance = (rng.random((n_queries, n_documents)) < 0.1) * 1.0
    relevance[:, 0] = 1
    return JudgedRelevance.of(sparse.csr_array(relevance))


def test_queries_are_held_out_once_against_all_documents():
    judged = make_judgements(23, 40)
    folds = make_folds(judged, "queries", np.random.default_rng(0))
    assert len(folds) == 5
    tested = np.concatenate([fold.queries for fold in folds])
    assert_array_equal(np.sort(tested), np.arange(23))
    for fold in folds:
        assert_array_equal(fold.items, np.arange(23, 63))
        rest = np.union1d(fold.train, fold.queries)
        assert_array_equal(rest, np.arange(63))
        assert not np.intersect1d(fold.train, fold.queries).size


def test_documents_are_held_out_with_the_queries():
    judged = make_judgements(23, 40)
    for fold in make_folds(judged, "documents", np.random.default_rng(0)):
        assert len(fold.items) == 20
        assert not np.intersect1d(fold.train, fold.items).size
        assert not np.intersect1d(fold.train, fold.queries).size
        assert judged.is_item[fold.items].all()


def test_many_documents_are_sampled_and_judged_ones_kept(monkeypatch):
    monkeypatch.setattr(_folds, "MAX_DOCUMENTS", 30)
    judged = make_judgements(15, 200)
    for fold in make_folds(judged, "queries", np.random.default_rng(0)):
        relevant = judged.block(fold.queries, np.arange(15, 215)) > 0
        judged_for = np.flatnonzero(relevant.any(axis=0)) + 15
        assert np.isin(judged_for, fold.items).all()
        assert len(fold.items) == max(30, len(judged_for))


def test_few_queries_keep_the_start():
    with pytest.warns(UserWarning, match="9 queries with relevant documents"):
        assert (
            make_folds(make_judgements(9, 40), "queries", np.random.default_rng()) == []
        )


def test_holdout_must_suit_the_kind_of_y(judged):
    labels = check_relevance([0, 0, 1, 1])
    assert read_holdout("auto", judged) == "queries"
    assert read_holdout("auto", labels) == "objects"
    with pytest.raises(ValueError, match="triplets: pass 'queries', 'documents'"):
        read_holdout("samples", judged)
    with pytest.raises(ValueError, match="pass 'objects', 'samples'"):
        read_holdout("documents", labels)
