"""Learners learn from judgements of queries against documents."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    ClassPosteriorSimilarity,
    HistogramRankSVM,
    QueryDocumentMap,
    SparseMahalanobisLearner,
)
from sklearn_simlearn.metrics import Judgements, RetrievalScorer
from sklearn_simlearn.similarities import CosineSimilarity

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
    assert model.shrinkage_ < 1
    assert model.holdout_gain_ > model.holdout_error_ > 0
    start = CosineSimilarity(power=0.75).fit(D)
    assert model.score(Q[48:], y[48:]) > start.score(Q[48:], y[48:])


@each_learner
def test_statistics_are_those_of_the_documents(learner, collection):
    # A word of all queries and of no document: it is as rare as can be.
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
    with pytest.raises(ValueError, match="does not go with y, which holds judgements"):
        learner.set_params(holdout="objects").fit(Q, y)
    with pytest.raises(ValueError, match="needs one class per sample"):
        ClassPosteriorSimilarity().fit(Q, y)
    assert not hasattr(learner, "encoder_")
