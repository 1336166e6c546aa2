"""Parameters that have no effect with the other parameters."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    ClassPosteriorSimilarity,
    QueryDocumentMap,
    SparseMahalanobisLearner,
)
from sklearn_simlearn.base import SimilarityLearner
from sklearn_simlearn.metrics import Judgements

GRAPH = sparse.csr_array(np.eye(6, k=1) + np.eye(6, k=-1))

CASES = {
    "neighbours of a single matrix": (
        AngularBilinearRanker(query_dependent=False, holdout=None, random_state=0),
        {"n_neighbors": 2},
    ),
    "number of given references": (
        AngularBilinearRanker(references=[0, 9, 20], holdout=None, random_state=0),
        {"n_references": 2},
    ),
    "neighbours in a graph": (
        SparseMahalanobisLearner(words=GRAPH, holdout=None, max_iter=3, random_state=0),
        {"n_neighbors": 1},
    ),
    "landmarks of a classifier": (
        ClassPosteriorSimilarity(classifier=LogisticRegression(), random_state=0),
        {"n_landmarks": 3},
    ),
    "penalty without maps": (
        QueryDocumentMap(maps=None, holdout=None, random_state=0),
        {"alpha": 1.0},
    ),
    "steps without maps": (
        QueryDocumentMap(maps=None, holdout=None, random_state=0),
        {"max_iter": 2},
    ),
}


@pytest.fixture
def samples():
    """Return three classes that differ in their words, and labels."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 10)
    X = rng.random((30, 6))
    X[np.arange(30), 2 * y] += 2
    return X, y


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("case", CASES)
def test_a_parameter_without_effect_raises(case, samples, monkeypatch):
    X, y = samples
    learner, unused = CASES[case]
    if isinstance(learner, QueryDocumentMap):
        y = Judgements((y[:, None] == y[::2]).astype(float), X[::2])
    [(name, value)] = unused.items()
    expected = learner.fit(X, y).similarity(X)
    learner.set_params(**unused)
    try:
        with pytest.raises(ValueError, match=f"{name}={value} has no effect with"):
            learner.fit(X, y)
        # The earlier fit is still there, and the parameter really has no effect.
        assert_array_equal(learner.similarity(X), expected)
        monkeypatch.setattr(SimilarityLearner, "_refuse_unused", lambda self: None)
        assert_array_equal(learner.fit(X, y).similarity(X), expected)
    finally:
        learner.set_params(**{name: type(learner)().get_params()[name]})


def test_values_of_the_paper_are_taken(samples):
    X, y = samples
    ranker = AngularBilinearRanker.from_paper(query_dependent=False, random_state=0)
    assert ranker.n_neighbors != AngularBilinearRanker().n_neighbors
    assert ranker.fit(X, y).matrix_ == "diagonal"


@pytest.mark.parametrize("unused", [{"symmetric": "final"}, {"psd": "final"}])
def test_the_plain_form_of_oasis_has_its_own_parameters(unused, samples):
    with pytest.raises(ValueError, match="symmetric and psd"):
        OASIS(holdout="samples", **unused).fit(*samples)
