"""Test that all storage states of data give the result of dense float64 data."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import get_tags
from tested_estimators import LEARNERS, VARIANTS

from sklearn_simlearn import QueryDocumentMap, metrics
from sklearn_simlearn.contract._samples import storage_states
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import RetrievalScorer, retrieval_report
from sklearn_simlearn.model_selection import ObjectKFold
from sklearn_simlearn.similarities import AsymmetricSimilarity, SelectiveMatchKernel

ESTIMATORS = [*LEARNERS, *VARIANTS, SelectiveMatchKernel(n_dims=2)]

seeds = st.integers(0, 2**32 - 1)


def draw_samples(rng):
    """Return counts of at least ten classes, some rows and columns empty; labels."""
    n_classes, n_words = rng.integers(10, 13), 2 * rng.integers(2, 9)
    y = np.concatenate([np.repeat(np.arange(n_classes), 4), np.full(2, -1)])
    X = rng.poisson(rng.gamma(0.3, 2.0, size=(n_classes + 1, n_words))[y])
    X[rng.integers(len(y), size=3)] = 0
    X[:, rng.integers(n_words)] = 0
    order = rng.permutation(len(y))
    return X[order].astype(np.float64), y[order]


def store(rng, X):
    """Return the name of a random state of storage, and X in this state."""
    states = storage_states(sparse.csr_array(X))
    name = rng.choice(sorted(states))
    return name, states[name]


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
@settings(max_examples=4, deadline=None)
@given(seed=seeds)
def test_estimators(estimator, seed):
    rng = np.random.default_rng(seed)
    X, y = draw_samples(rng)
    queries = rng.integers(len(X), size=rng.integers(1, 5))
    expected = clone(estimator).fit(X, y).similarity(X[queries], X)
    (train, Z), (of_queries, Q), (of_items, D) = (
        store(rng, part) for part in (X, X[queries], X)
    )
    fitted = clone(estimator).fit(Z, y)
    where = f"fitted on {train}, queries {of_queries}, items {of_items}"
    S = fitted.similarity(Q, D)
    # Maps are optimised in single precision, so sums of another order remain visible.
    atol = 1e-6 if isinstance(estimator, QueryDocumentMap) else 1e-8
    assert_allclose(S, expected, rtol=1e-6, atol=atol, err_msg=where)
    if hasattr(fitted, "transform_database"):
        product = fitted.transform(Q) @ fitted.transform_database(D).T
        product = product.toarray() if sparse.issparse(product) else product
        assert_allclose(product, expected, rtol=1e-6, atol=atol, err_msg=where)
        index = SimilarityIndex(fitted).fit(D)
        scores, rows = index.search(Q, k=3)
        found = np.take_along_axis(expected, rows, axis=1)
        assert_allclose(scores, found, rtol=1e-5, atol=1e-6, err_msg=where)
        best = -np.sort(-expected, axis=1)[:, :3]
        assert_allclose(scores, best, rtol=1e-5, atol=1e-6, err_msg=where)
    if get_tags(estimator).target_tags.required:
        assert np.isfinite(S).all()


@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_scorer_report_and_splitter(seed):
    rng = np.random.default_rng(seed)
    X, y = draw_samples(rng)
    # Differences of counts are exact, and so are their ties.
    model = AsymmetricSimilarity(lam=2.0).fit(X)
    columns = (y[:, None] == np.arange(y.max() + 1)).astype(rng.choice(["i1", "f4"]))
    name, Z = store(rng, X)
    expected = RetrievalScorer()(model, X, y)
    for target in (y, y.tolist(), columns, sparse.coo_array(columns)):
        assert RetrievalScorer()(model, Z, target) == pytest.approx(expected), name
    report = retrieval_report(model, Z, y)
    assert np.nanmean(report.average_precision) == pytest.approx(expected), name
    for train, test in ObjectKFold(3).split(Z, y):
        assert not np.isin(y[test][y[test] >= 0], y[train]).any()


RELEVANCE_TYPES = ["?", "u1", "i1", "i8", "f4", "f8"]
MEASURES = {
    "average_precision": {},
    "precision_at_k": {"k": 2},
    "recall_at_k": {"k": 2},
    "r_precision": {},
    "reciprocal_rank": {},
    "ndcg_at_k": {},
    "top4_score": {},
}


@pytest.mark.parametrize("name", MEASURES)
@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_measures(name, seed):
    rng = np.random.default_rng(seed)
    n_queries, n_items = rng.integers(1, 5), rng.integers(1, 12)
    relevance = rng.random((n_queries, n_items)) < 0.4
    junk = rng.random(n_items) < 0.2
    S = rng.integers(-2, 3, size=(n_queries, n_items)).astype(float)
    S[rng.random(S.shape) < 0.1] = rng.choice([-np.inf, np.inf])
    measure, options = getattr(metrics, name), MEASURES[name]
    expected = measure(np.where(junk, -1.0, relevance), S, **options)
    as_type = relevance.astype(rng.choice(RELEVANCE_TYPES))
    stored = [as_type, np.asfortranarray(as_type), sparse.csr_array(as_type)]
    stored += [sparse.dia_array(as_type.astype(float)), as_type.tolist()]
    for form in stored:
        for scores in (S, np.repeat(S, 2, axis=1)[:, ::2], S.astype("f4"), S.tolist()):
            value = measure(form, scores, junk=junk, **options)
            assert_allclose(value, expected, rtol=1e-6)
