"""Contracts every learner and every hand-made similarity keeps."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    HistogramRankSVM,
    MemoryVectorQuery,
    SparseMahalanobisLearner,
)
from sklearn_simlearn.metrics import map_scorer
from sklearn_simlearn.model_selection import KeepTrainingData
from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
)

# One line per learner, with settings cheap enough for the whole suite.
LEARNERS = [
    CosineSimilarity(),
    CosineSimilarity(use_idf=False),
    NegativeEvidenceSimilarity(),
    BurstinessSimilarity(),
    AsymmetricSimilarity(),
    AsymmetricSimilarity(p=2, lam=3.0),
    OASIS(n_triplets=200, random_state=0),
    OASIS(n_triplets=200, symmetric="dissimilarity", random_state=0),
    OASIS(n_triplets=200, psd="final", random_state=0),
    OASIS(n_triplets=200, n_models=2, n_components=1, random_state=0),
    MemoryVectorQuery(queries_per_set=1),  # more a set would score more than one query
    MemoryVectorQuery(CosineSimilarity(), queries_per_set=1),
    AngularBilinearRanker(n_references=15, tol=1e-9, random_state=0),
    AngularBilinearRanker(
        matrix="full", references="random", tol=1e-9, n_references=15, random_state=0
    ),
    AngularBilinearRanker(
        query_dependent=False,
        references="random",
        candidates="hard",
        n_references=5,
        random_state=0,
    ),
    HistogramRankSVM(),
    HistogramRankSVM(loss="topk", truncation=2, n_word_groups=2, symmetric=True),
    HistogramRankSVM(loss="pairwise", truncation=1),
    SparseMahalanobisLearner(n_random_triplets=200, max_iter=5, random_state=0),
    SparseMahalanobisLearner(
        solver="sgd", holdout=None, init="identity", max_iter=2, random_state=0
    ),
    SparseMahalanobisLearner(
        max_hard_triplets=50, refresh_triplets=2, max_iter=5, random_state=0
    ),
]

SUPERVISED = [learner for learner in LEARNERS if get_tags(learner).target_tags.required]

# Some of the data below is noise, from which a learner rightly learns nothing, and some
# of the settings above are too cheap to converge.
pytestmark = [
    pytest.mark.filterwarnings("ignore:No weights are better than 0"),
    pytest.mark.filterwarnings("ignore:The objective still falls"),
]

each_learner = pytest.mark.parametrize("learner", LEARNERS, ids=repr)
each_container = pytest.mark.parametrize(
    "container", [sparse.csr_array, sparse.csr_matrix]
)

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


def fit(learner, X, y):
    """A fitted clone; supervised ones see the labels."""
    return clone(learner).fit(X, y)


# -- the similarity --


@each_learner
def test_similarity_shape_and_default(learner, counts):
    X, y = counts
    learner = fit(learner, X, y)
    assert learner.similarity(X[:7], X[:4]).shape == (7, 4)
    assert isinstance(learner.similarity(X), np.ndarray)
    assert_array_equal(learner.similarity(X), learner.similarity(X, X))


@each_learner
def test_surrogate_queries_rank_as_the_similarity(learner, counts, dtype):
    X, y = counts[0].astype(dtype), counts[1]
    for Z in (X, X.toarray()):
        learner = fit(learner, Z, y)
        product = learner.transform(Z[:9]) @ learner.transform_database(Z).T
        product = product.toarray() if sparse.issparse(product) else product
        assert product.dtype == dtype
        S = learner.similarity(Z[:9], Z)
        assert_allclose(product, S, rtol=1e-4 if dtype == "float32" else 1e-10)
        assert_array_equal(np.argsort(product, 1), np.argsort(S, 1))


@each_learner
def test_surrogates_and_items_of_one_row_do_not_depend_on_the_others(learner, counts):
    X, y = counts
    learner = fit(learner, X, y)
    whole = learner.similarity(X)
    assert_allclose(learner.similarity(X[5:6], X[3:9])[0], whole[5, 3:9])


@each_learner
@each_container
def test_dense_and_sparse_agree(learner, container, counts, dtype):
    X, y = counts[0].astype(dtype), counts[1]
    from_dense = fit(learner, X.toarray(), y)
    from_sparse = fit(learner, container(X), y)
    tolerance = dict.fromkeys(("rtol", "atol"), 1e-4 if dtype == "float32" else 1e-9)
    assert_allclose(
        from_dense.similarity(X.toarray()), from_sparse.similarity(X), **tolerance
    )
    # Each takes the other's kind too.
    assert_allclose(
        from_dense.similarity(X), from_sparse.similarity(X.toarray()), **tolerance
    )


@each_learner
def test_sparse_stays_sparse_unless_it_is_embedded(learner, counts):
    # A stored item is as wide as the data, or a few components.
    X, y = counts
    D = fit(learner, X, y).transform_database(X)
    assert sparse.issparse(D) or D.shape[1] <= X.shape[1]


@each_learner
def test_64_bit_indices(learner, counts):
    X, y = counts
    wide = X.copy()
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    assert_array_equal(
        fit(learner, wide, y).similarity(wide), fit(learner, X, y).similarity(X)
    )


@each_learner
def test_learner_keeps_the_precision_of_its_data(learner, counts, dtype):
    X, y = counts[0].astype(dtype), counts[1]
    assert fit(learner, X, y).similarity(X).dtype == dtype


@each_learner
def test_set_output_does_not_touch_similarity_and_score(learner, counts):
    X, y = counts[0].toarray(), counts[1]
    plain = fit(learner, X, y)
    framed = clone(learner).set_output(transform="pandas").fit(X, y)
    assert_array_equal(framed.similarity(X), plain.similarity(X))
    assert framed.score(X, y) == plain.score(X, y)


# -- fit and score --


@each_learner
def test_refit_with_the_same_seed_is_identical(learner, counts):
    X, y = counts
    assert_array_equal(
        fit(learner, X, y).similarity(X), fit(learner, X, y).similarity(X)
    )


@each_learner
def test_pickle_keeps_the_similarity(learner, counts):
    X, y = counts
    learner = fit(learner, X, y)
    thawed = pickle.loads(pickle.dumps(learner))
    assert_array_equal(learner.similarity(X), thawed.similarity(X))


@each_learner
def test_using_a_learner_leaves_it_and_its_input_alone(learner, counts):
    X, y = counts
    before = X.copy()
    learner = fit(learner, X, y)
    state = pickle.dumps(learner)
    learner.similarity(X)
    learner.transform(X)
    learner.transform_database(X)
    learner.score(X, y)
    assert pickle.dumps(learner) == state
    assert_array_equal(X.toarray(), before.toarray())


@each_learner
def test_fit_takes_every_kind_of_target(learner, counts):
    X, y = counts
    matrix = (y[:, None] == np.arange(12)).astype(float)
    matrix[-1, 3] = -1  # junk
    names = np.where(y < 0, "none", y.astype(str))
    for target in (y, names, matrix, sparse.csr_array(matrix), pd.Series(y)):
        assert 0 < fit(learner, X, target).score(X, target) <= 1


@each_learner
def test_score_takes_masks_and_weights(learner, counts):
    X, y = counts
    learner = fit(learner, X, y)
    mask = np.arange(66) % 5 == 0
    by_mask = learner.score(X, y, query_mask=mask)
    assert by_mask == pytest.approx(learner.score(X, y, sample_weight=mask * 1.0))
    assert by_mask != learner.score(X, y)


@each_learner
@pytest.mark.parametrize("scoring", [None, map_scorer], ids=["score", "map_scorer"])
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_grid_search_in_a_pipeline(learner, scoring, n_jobs, counts):
    X, y = counts[0][:60], counts[1][:60]
    model = make_pipeline(Binarizer(), clone(learner))
    search = GridSearchCV(
        model,
        {"binarizer__threshold": [0, 1]},
        scoring=scoring,
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
        expected = fit(learner, X_binary, y).score(X_binary, y, query_mask=mask)
        assert model.score(X, y, query_mask=mask) == expected


@each_learner
def test_single_class_fold_is_refused_not_scored_as_perfect(learner, counts):
    X, y = counts
    learner = fit(learner, X, y)
    with pytest.raises(ValueError, match="StratifiedKFold"):
        learner.score(X[y == 0], y[y == 0])


# -- bad input --


@each_learner
def test_bad_input_names_the_argument_and_leaves_the_learner_usable(learner, counts):
    X, y = counts
    learner = fit(learner, X, y)
    before = learner.similarity(X)
    with_nan = X.copy()
    with_nan.data[0] = np.nan
    for bad, message in [
        (with_nan, "X contains NaN"),
        (X[:, :5], "X has 5 features"),
        (X.toarray()[0], "Expected 2D array"),
        (X.astype(complex), "Complex data not supported"),
    ]:
        with pytest.raises(ValueError, match=message):
            learner.similarity(bad)
        with pytest.raises(ValueError, match=message):
            learner.transform_database(bad)
    with pytest.raises(ValueError, match="X contains NaN"):
        learner.fit(with_nan, y)
    with pytest.raises(ValueError, match="got 65 and 66"):
        learner.score(X, y[:-1])
    with pytest.raises(ValueError, match="one boolean for each of the 66 samples"):
        learner.score(X, y, query_mask=np.arange(66))
    assert_array_equal(learner.similarity(X), before)


@pytest.mark.parametrize("learner", SUPERVISED, ids=repr)
def test_supervised_learners_refuse_targets_without_a_pair(learner, counts):
    X, _ = counts
    for y in (np.zeros(66, int), np.arange(66), np.full(66, -1), np.arange(66) / 7):
        learner = clone(learner)
        with pytest.raises(ValueError, match="y "):
            learner.fit(X, y)
        with pytest.raises(NotFittedError):
            learner.transform(X)
    with pytest.raises(ValueError, match="got 65 and 66"):
        clone(learner).fit(X, np.arange(65))
