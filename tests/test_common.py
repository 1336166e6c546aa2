"""Contracts that every learner and every hand-made similarity keeps."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    ClassPosteriorSimilarity,
    HistogramRankSVM,
    MemoryVectorQuery,
    SparseMahalanobisLearner,
)
from sklearn_simlearn.contract import CHECKS
from sklearn_simlearn.metrics import map_scorer
from sklearn_simlearn.model_selection import KeepTrainingData
from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BM25Similarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
)

# One line per class, with settings cheap enough for the whole suite: these go through
# scikit-learn's checks too.
LEARNERS = [
    OASIS(n_triplets=2000, random_state=0),
    AngularBilinearRanker(n_references=15, tol=1e-9, random_state=0),
    ClassPosteriorSimilarity(random_state=0),
    HistogramRankSVM(truncation=2, n_word_groups=2, random_state=0),
    MemoryVectorQuery(),
    SparseMahalanobisLearner(max_iter=5, random_state=0),
    AsymmetricSimilarity(),
    BM25Similarity(),
    BurstinessSimilarity(),
    CosineSimilarity(),
    NegativeEvidenceSimilarity(),
]

# Other settings that take other paths through the code.
VARIANTS = [
    OASIS(holdout=None, n_triplets=200, random_state=0),
    AngularBilinearRanker(
        holdout=None, matrix="full", n_references=15, tol=1e-9, random_state=0
    ),
    ClassPosteriorSimilarity(CosineSimilarity(), random_state=0),
    HistogramRankSVM(holdout=None, loss="pairwise", truncation=1),
    MemoryVectorQuery(CosineSimilarity()),
    SparseMahalanobisLearner(holdout=None, max_iter=5, random_state=0),
    AsymmetricSimilarity(p=2, lam=3.0),
    BM25Similarity(k1=0, b=1.0, method="robertson"),
    BM25Similarity(method="atire"),
    BM25Similarity(method="bm25l"),
    BM25Similarity(method="bm25+"),
    CosineSimilarity(use_idf=False),
    CosineSimilarity(power=0.75),
]

# Some of the data is noise, from which a learner rightly learns nothing, some of the
# settings are too cheap to converge, and some data has few classes.
pytestmark = [
    pytest.mark.filterwarnings("ignore:No weights are better than 0"),
    pytest.mark.filterwarnings("ignore:The objective still falls"),
    pytest.mark.filterwarnings("ignore:holdout=.objects. keeps the start"),
    pytest.mark.filterwarnings("ignore:.* does without idf"),
]

each_learner = pytest.mark.parametrize("learner", LEARNERS, ids=repr)

# Checks of scikit-learn that its own `parametrize_with_checks` leaves out.
MORE_CHECKS = [
    estimator_checks.check_dataframe_column_names_consistency,
    estimator_checks.check_global_output_transform_pandas,
    estimator_checks.check_global_set_output_transform_polars,
    estimator_checks.check_inplace_ensure_writeable,
    estimator_checks.check_param_validation,
    estimator_checks.check_set_output_transform,
    estimator_checks.check_set_output_transform_pandas,
    estimator_checks.check_set_output_transform_polars,
    estimator_checks.check_transformer_get_feature_names_out,
    estimator_checks.check_transformer_get_feature_names_out_pandas,
]


@parametrize_with_checks([*LEARNERS, KeepTrainingData(CosineSimilarity())])
def test_sklearn_contract(estimator, check):
    check(estimator)


@each_learner
@pytest.mark.parametrize("check", MORE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_sklearn_contract_beyond_the_default_checks(learner, check):
    check(type(learner).__name__, learner)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("learner", [*LEARNERS, *VARIANTS], ids=repr)
def test_contract(learner, check):
    check(learner)


@each_learner
def test_set_output_does_not_touch_similarity_and_score(learner, counts):
    X, y = counts[0].toarray(), counts[1]
    plain = clone(learner).fit(X, y)
    framed = clone(learner).set_output(transform="pandas").fit(X, y)
    assert_array_equal(framed.similarity(X), plain.similarity(X))
    assert framed.score(X, y) == plain.score(X, y)


@each_learner
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_grid_search_in_a_pipeline(learner, n_jobs, counts):
    X, y = counts[0][:60], counts[1][:60]
    search = GridSearchCV(
        make_pipeline(Binarizer(), clone(learner)),
        {"binarizer__threshold": [0, 1]},
        scoring=map_scorer,
        cv=StratifiedKFold(2),
        n_jobs=n_jobs,
    )
    search.fit(X, y)
    assert 0 < search.best_score_ <= 1
    assert search.score(X, y) == map_scorer(search.best_estimator_, X, y)


@each_learner
def test_score_under_metadata_routing(learner, counts):
    X, y = counts
    with sklearn.config_context(enable_metadata_routing=True):
        learner = clone(learner).set_score_request(query_mask=True)
        model = make_pipeline(Binarizer(), learner)
        model.fit(X, y)
        mask = np.arange(66) % 5 == 0
        X_binary = Binarizer().fit_transform(X)
        expected = clone(learner).fit(X_binary, y).score(X_binary, y, query_mask=mask)
        assert model.score(X, y, query_mask=mask) == expected
