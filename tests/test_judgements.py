"""Test that learners learn from judgements of queries against documents."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    ClassPosteriorSimilarity,
    HistogramRankSVM,
    MemoryVectorQuery,
    QueryDocumentMap,
    SparseMahalanobisLearner,
    StartKeptWarning,
    _holdout,
)
from sklearn_simlearn.metrics import Judgements, RetrievalScorer
from sklearn_simlearn.similarities import BM25Similarity, CosineSimilarity

LEARNERS = [
    OASIS(n_triplets=1000, random_state=0),
    AngularBilinearRanker(tol=1e-8, max_iter=10_000, random_state=0),
    HistogramRankSVM(max_iter=5, tol=0.1, random_state=0),
    SparseMahalanobisLearner(max_iter=4, random_state=0),
    QueryDocumentMap(random_state=0),
]
each_learner = pytest.mark.parametrize(
    "learner", LEARNERS, ids=lambda learner: type(learner).__name__
)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def collection():
    """Return counts of queries and of documents, and relevance by hidden topics.

    Queries use other words for a topic than documents do, and all share noise words.
    """
    rng = np.random.default_rng(0)
    of_query, of_document = np.arange(60) % 12, np.arange(120) % 12
    queries = rng.poisson(0.3, size=(60, 40))
    documents = rng.poisson(1.0, size=(120, 40))
    queries[np.arange(60), of_query] += 2
    documents[np.arange(120), of_document] += 1
    documents[np.arange(120), 12 + of_document] += 3
    relevance = (of_query[:, None] == of_document) * 1.0
    return queries.astype(float), documents.astype(float), relevance


@each_learner
def test_a_learner_ranks_documents_for_queries(learner, collection):
    Q, D, R = collection
    y = Judgements(sparse.csr_array(R), documents=D)
    model = clone(learner).fit(Q[:48], y[:48])
    assert model.n_features_in_ == 40
    start = CosineSimilarity(power=0.75).fit(Q[:48], y[:48])
    ndcg = RetrievalScorer("ndcg", k=10)
    gain = ndcg(model, Q[48:], y[48:]) - ndcg(start, Q[48:], y[48:])
    assert gain > -0.02
    assert "ndcg_at_10" in model.holdout_results_
    assert 0 < model.score(Q[48:], y[48:]) <= 1
    # The same from sparse rows, and from sparse documents with dense queries.
    for queries, documents in (
        (sparse.csr_array(Q), sparse.csr_array(D)),
        (Q, sparse.csr_array(D)),
    ):
        again = clone(learner).fit(queries[:48], Judgements(R, documents)[:48])
        S = again.similarity(queries[48:], documents)
        assert_allclose(S, model.similarity(Q[48:], D), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("learner", LEARNERS[:2], ids=["OASIS", "Angular"])
@pytest.mark.parametrize("holdout", ["queries", "documents"])
def test_a_planted_gain_is_taken(learner, holdout, collection):
    Q, D, R = collection
    y = Judgements(R, documents=D)
    model = clone(learner).set_params(holdout=holdout).fit(Q[:48], y[:48])
    assert model.share_ < 1
    assert model.holdout_gain_ > model.holdout_error_ > 0
    start = CosineSimilarity(power=0.75).fit(D)
    assert model.score(Q[48:], y[48:]) > start.score(Q[48:], y[48:])


def test_all_candidates_are_judged_in_all_folds(collection):
    # Otherwise, the gain on a fold would depend on the choice of this fold.
    Q, D, R = collection
    model = OASIS(n_triplets=4000, random_state=0).fit(Q, Judgements(R, documents=D))
    assert len(model.holdout_results_["candidates"]) == 1 + 2 * 4


@each_learner
def test_statistics_are_those_of_the_documents(learner, collection):
    # A word that occurs in all queries, but in no document.
    Q, D, R = collection
    Q = Q.copy()
    Q[:, 39], D = 1, np.where(np.arange(40) == 39, 0, D)
    model = clone(learner).fit(Q, Judgements(R, documents=D))
    idf = getattr(model, "idf_", None)
    if idf is not None:
        assert idf[39] == pytest.approx(np.log(len(D)))


def test_hand_made_similarities_take_the_statistics_of_the_documents(collection):
    Q, D, R = collection
    from_judgements = CosineSimilarity().fit(Q, Judgements(R, documents=D))
    assert_array_equal(from_judgements.idf_, CosineSimilarity().fit(D).idf_)


def test_cross_validation_splits_queries(collection):
    Q, D, R = collection
    y = Judgements(R, documents=D)
    cv = KFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(LEARNERS[0], Q, y, cv=cv, error_score="raise")
    assert len(scores) == 3
    search = GridSearchCV(
        LEARNERS[0],
        {"C": [0.01, 0.1]},
        scoring=RetrievalScorer("ndcg", k=10),
        cv=cv,
        error_score="raise",
    ).fit(Q, y)
    assert 0 < search.best_score_ <= 1


# -- triplets --


def draw_triplets(R, rng, n_queries, offset):
    """Return triplets of rows of queries stacked on documents."""
    triplets = [
        (query, offset + rng.choice(np.flatnonzero(row)), offset + negative)
        for query, row in enumerate(R[:n_queries])
        for negative in rng.choice(np.flatnonzero(row == 0), 25)
    ]
    return np.array(triplets)


def start_of(X):
    return CosineSimilarity(power=0.75).fit(X)


@pytest.mark.parametrize("learner", LEARNERS[:2], ids=["OASIS", "Angular"])
@pytest.mark.parametrize("holdout", ["auto", "documents"])
def test_given_triplets_hold_out_queries(learner, holdout, collection, monkeypatch):
    Q, D, R = collection
    triplets = draw_triplets(R, np.random.default_rng(0), 48, 48)
    made = []
    make_folds = _holdout.make_folds

    def record(*args):
        made.append(make_folds(*args))
        return made[-1]

    monkeypatch.setattr(_holdout, "make_folds", record)
    X = np.concatenate([Q[:48], D])
    model = clone(learner).set_params(holdout=holdout).fit_triplets(X, triplets)
    folds = made[0]
    # All queries are held out once; documents are searched, and queries are not.
    assert_array_equal(np.sort(np.concatenate([f.queries for f in folds])), range(48))
    for fold in folds:
        assert fold.items.min() >= 48
        assert not np.intersect1d(fold.train, fold.queries).size
    assert model.share_ < 1
    assert model.holdout_results_["gain"][model.holdout_results_["best_index"]] > 0
    y = Judgements(R, documents=D)
    assert model.score(Q[48:], y[48:]) > start_of(D).score(Q[48:], y[48:])
    again = clone(model).fit_triplets(X, triplets)
    assert_array_equal(again.similarity(X), model.similarity(X))


@pytest.mark.parametrize("learner", LEARNERS[:2], ids=["OASIS", "Angular"])
def test_harmful_triplets_keep_the_start(learner, collection):
    Q, D, R = collection
    rng = np.random.default_rng(0)
    triplets = draw_triplets(R[rng.permutation(60)], rng, 60, 60)
    X = np.concatenate([Q, D])
    with pytest.warns(StartKeptWarning, match="keeps its start"):
        model = clone(learner).fit_triplets(X, triplets)
    start = start_of(D)
    assert_allclose(model.similarity(Q, D), start.similarity(Q, D), atol=1e-12)
    without = clone(learner).set_params(holdout=None).fit_triplets(X, triplets)
    y = Judgements(R, documents=D)
    assert without.score(Q, y) < start.score(Q, y)
    with pytest.raises(ValueError, match="is not valid for judgements or triplets"):
        clone(learner).set_params(holdout="samples").fit_triplets(X, triplets)


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, pl.Series])
def test_texts_without_a_vectorizer_are_refused_with_a_remedy(kind):
    texts = kind(["a cat", "a dog"])
    remedy = "make_retrieval_pipeline\\(CountVectorizer\\(\\), "
    for estimator in (OASIS(), BM25Similarity()):
        with pytest.raises(ValueError, match="got texts.*" + remedy):
            estimator.fit(texts, [0, 1])
        # A plain pipeline does not transform the documents.
        plain = make_pipeline(CountVectorizer(), estimator)
        y = Judgements(np.eye(2), documents=texts)
        with pytest.raises(ValueError, match="documents of y.*got texts.*" + remedy):
            plain.fit(texts, y)
    with pytest.raises(ValueError, match=r"^could not convert string to float"):
        OASIS().fit(pd.DataFrame({"word": ["a", "b"]}), [0, 1])


def test_bad_judgements_are_refused_before_any_work(collection):
    Q, D, R = collection
    y = Judgements(R, documents=D)
    learner = OASIS(random_state=0)
    with pytest.raises(ValueError, match="number of queries; got 10 and 60"):
        learner.fit(Q[:10], y)
    with pytest.raises(ValueError, match="40 features"):
        learner.fit(Q, Judgements(R, documents=D[:, :7]))
    with pytest.raises(ValueError, match="no query has both a relevant document"):
        learner.fit(Q, Judgements(0 * R, documents=D))
    with pytest.raises(ValueError, match="is not valid for judgements"):
        learner.set_params(holdout="objects").fit(Q, y)
    with pytest.raises(ValueError, match="needs one class per sample"):
        ClassPosteriorSimilarity().fit(Q, y)
    assert not hasattr(learner, "encoder_")


@each_learner
@pytest.mark.parametrize("side", [0, 1])
def test_vectors_with_nan_are_refused(learner, side, collection):
    Q, D, R = collection
    sides = [Q.copy(), D.copy()]
    sides[side][3, 5] = np.nan
    model = clone(learner)
    message = (
        "documents of y are not valid. .*contains NaN" if side else "X contains NaN"
    )
    for estimator in (model, CosineSimilarity(), MemoryVectorQuery()):
        with pytest.raises(ValueError, match=message):
            estimator.fit(sides[0], Judgements(R, documents=sides[1]))
        assert not hasattr(estimator, "encoder_")


@each_learner
def test_queries_without_a_relevant_document_do_not_count(learner, collection):
    Q, D, R = collection
    R = R.copy()
    R[::3] = 0
    y, is_judged = Judgements(R, documents=D), R.any(axis=1)
    model = clone(learner).fit(Q, y)
    assert np.isfinite(model.similarity(Q, D)).all()
    expected = model.score(Q[is_judged], y[is_judged])
    assert model.score(Q, y) == pytest.approx(expected)
    assert np.isfinite(model.holdout_results_["ndcg_at_10"]).all()
