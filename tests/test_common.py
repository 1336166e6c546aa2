"""Contracts of all learners and hand-made similarities."""

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
from tested_estimators import LEARNERS, VARIANTS, has_holdout

from sklearn_simlearn import _holdout
from sklearn_simlearn.contract import CHECKS
from sklearn_simlearn.metrics import map_scorer
from sklearn_simlearn.model_selection import KeepTrainingData
from sklearn_simlearn.similarities import CosineSimilarity

WITH_HOLDOUT = [learner for learner in LEARNERS if has_holdout(learner)]

# Some of the data is noise, from which nothing can be learned. Some settings make too
# few iterations to converge. Some data has few classes.
pytestmark = [
    pytest.mark.filterwarnings("ignore:No weights are better than 0"),
    pytest.mark.filterwarnings("ignore:The objective still falls"),
    pytest.mark.filterwarnings("ignore:holdout=.objects. keeps the start"),
    pytest.mark.filterwarnings("ignore:.* does not use idf"),
]

each_learner = pytest.mark.parametrize("learner", LEARNERS, ids=repr)

# Checks that scikit-learn has, but does not run by `parametrize_with_checks`.
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


# The data of scikit-learn's checks has few classes, so that hold-outs keep the start.
# The checks run again on the path that learns.


@pytest.fixture
def candidates(monkeypatch):
    """Let every hold-out choose a learned candidate; return the list of the choices.

    All samples are learned from and judged, in one fold, and the start finds nothing.
    """
    chosen = []

    def make_folds(relevance, *args):
        rows = np.arange(len(relevance))
        return [_holdout.Fold(rows, rows, rows)]

    def record(self, candidate, encoder):
        measure(self, candidate, encoder)
        if candidate is _holdout.START:
            of_start = self.measures[-1][candidate]
            self.measures[-1][candidate] = type(of_start)(*map(np.zeros_like, of_start))

    def choose(self):
        choice = pick(self)
        # For noise, some learners have no candidate.
        if len(self.measures[-1]) > 1:
            chosen.append(choice.candidate)
        return choice

    measure, pick = _holdout.Judge.record, _holdout.Judge.choose
    monkeypatch.setattr(_holdout, "make_folds", make_folds)
    monkeypatch.setattr(_holdout.Judge, "record", record)
    monkeypatch.setattr(_holdout.Judge, "choose", choose)
    return chosen


@parametrize_with_checks(WITH_HOLDOUT)
def test_sklearn_contract_on_the_path_that_learns(estimator, check, candidates):
    check(estimator)
    assert _holdout.START not in candidates


@pytest.mark.parametrize("learner", WITH_HOLDOUT, ids=repr)
@pytest.mark.parametrize("check", MORE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_more_checks_on_the_path_that_learns(learner, check, candidates):
    check(type(learner).__name__, learner)
    assert _holdout.START not in candidates


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
