"""ClassPosteriorSimilarity: posteriors against their formulas, then the estimator."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from threadpoolctl import threadpool_limits

from sklearn_simlearn import ClassPosteriorSimilarity
from sklearn_simlearn._core.rows import unit_rows
from sklearn_simlearn.metrics import PairwiseRelevance
from sklearn_simlearn.posterior import _posterior
from sklearn_simlearn.posterior._posterior import (
    RIDGE,
    RIDGE_SHARPNESS,
    _Features,
    _Means,
)
from sklearn_simlearn.similarities import CosineSimilarity


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, train_size=400, test_size=400, random_state=0)


@pytest.fixture
def cones(rng):
    """Unit rows of three classes."""
    y = np.repeat([0, 1, 2], 20)
    return unit_rows(np.eye(5)[y] + 0.4 * rng.standard_normal((60, 5))), y


def test_ridge_is_kernel_ridge_regression(cones):
    X, y = cones
    one_hot = (y[:, None] == np.arange(3)).astype(float)
    spread = np.mean(1 - X @ X.T)
    model = KernelRidge(alpha=RIDGE, kernel="rbf", gamma=2.0 / spread).fit(X, one_hot)
    expected = softmax(RIDGE_SHARPNESS * model.predict(X[::3]), axis=1)
    for container in (np.asarray, sparse.csr_array):
        rows = container(X)
        ridge = _posterior._Ridge(rows, y, 4.0, 1000, np.random.default_rng(0))
        assert_allclose(ridge.of(rows[::3]), expected, atol=1e-5)


def test_few_landmarks_come_close(cones):
    X, y = cones
    full = _posterior._Ridge(X, y, 4.0, 1000, np.random.default_rng(0))
    part = _posterior._Ridge(X, y, 4.0, 30, np.random.default_rng(0))
    assert part.features.landmarks.shape[0] == 30
    agree = np.argmax(part.of(X), axis=1) == np.argmax(full.of(X), axis=1)
    assert np.count_nonzero(agree) > 55


def test_a_mixture_is_the_mean_of_its_parts(cones):
    X, y = cones
    model = ClassPosteriorSimilarity(random_state=0)
    rng = np.random.default_rng(0)
    parts = [model._fit_posterior(*part, X, y, rng) for part in _posterior.MIXED]
    mixture = model._fit_posterior("mixture", 1.0, X, y, rng)
    expected = sum(part.probabilities(X) for part in parts) / 3
    assert_allclose(mixture.of(X), expected, atol=1e-10)
    assert_allclose(expected.sum(axis=1), 1)
    # What the hold-out tries is the same.
    tried = dict(model._try_posteriors(X, y, np.random.default_rng(0)))
    assert_array_equal(tried["mixture", 1.0].of(X), mixture.of(X))


def test_means_are_a_softmax_of_cosines(cones):
    X, y = cones
    means = np.stack([X[y == c].mean(axis=0) for c in range(3)])
    expected = softmax(20 * X @ unit_rows(means).T, axis=1)
    assert_allclose(_Means(X, y, 20.0).of(X), expected)


def test_features_have_the_kernel_as_inner_product(cones):
    X, y = cones
    for sharpness, kernel in ((None, X @ X.T), (3.0, np.exp(3 * (X @ X.T - 1)))):
        Z = _Features(X, y, sharpness, 1000, np.random.default_rng(0))(X)
        assert_allclose(Z @ Z.T, kernel, atol=1e-6)


def test_equal_rows_are_no_trouble():
    X = np.repeat(np.eye(3), 8, axis=0)
    y = np.repeat([0, 1, 2], 8)
    model = ClassPosteriorSimilarity(random_state=0).fit(X, y)
    assert model.score(X, y) == 1


def test_it_beats_what_a_user_would_pick(digits):
    X_train, X_test, y_train, y_test = digits
    lda = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto")
    logistic = LogisticRegression(max_iter=1000).fit(X_train / 16, y_train)
    rivals = {
        "cosine": X_test,
        "LDA": lda.fit(X_train, y_train).transform(X_test),
        "logistic regression": logistic.predict_proba(X_test / 16),
    }
    model = ClassPosteriorSimilarity(random_state=0).fit(X_train, y_train)
    score = model.score(X_test, y_test)
    for name, Z in rivals.items():
        rival = CosineSimilarity(use_idf=False).fit(Z).score(Z, y_test)
        assert score > rival, name


@pytest.mark.parametrize(
    "estimator",
    [
        CosineSimilarity(use_idf=False, power=0.75),
        make_pipeline(MinMaxScaler(), LinearDiscriminantAnalysis()),
    ],
    ids=["learner", "pipeline"],
)
def test_it_composes_with_an_estimator(estimator, digits):
    X_train, X_test, y_train, y_test = digits
    model = ClassPosteriorSimilarity(estimator, random_state=0)
    assert model.fit(X_train, y_train).score(X_test, y_test) > 0.85


def test_it_composes_with_a_classifier(digits):
    X_train, X_test, y_train, y_test = digits
    forest = RandomForestClassifier(50, random_state=0)
    model = ClassPosteriorSimilarity(classifier=forest, random_state=0)
    model.fit(X_train, y_train)
    assert model.posterior_ == "classifier"
    assert model.score(X_test, y_test) > 0.8


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("weight", [0.75, 1.0])
def test_the_similarity_is_the_probability_of_one_class(weight, container, rng):
    y = np.repeat([0, 1, 2], 4)
    X = unit_rows(np.eye(5)[y] + 0.4 * rng.random((12, 5)))
    p = rng.dirichlet(np.ones(3), 12)

    class Known(LogisticRegression):
        def predict_proba(self, X):
            return p[: X.shape[0]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_posterior, "MIN_CLASS_SIZE", 5)
        fixed = _posterior.Settings("means", 1.0, weight)
        patch.setattr(_posterior, "WITHOUT_HOLDOUT", fixed)
        model = ClassPosteriorSimilarity(
            CosineSimilarity(use_idf=False), classifier=Known()
        ).fit(container(X), y)
    together = np.einsum("ic,jc->ij", p, p)
    expected = (1 - weight) * X @ X.T + weight * together
    assert_allclose(model.similarity(container(X)), expected, atol=1e-12)
    # As distances ask for it, although the probabilities are not.
    for rows in (model.transform(container(X)), model.transform_database(container(X))):
        rows = rows.toarray() if sparse.issparse(rows) else rows
        assert_allclose(np.linalg.norm(rows, axis=1), 1)


def test_noise_keeps_the_rows():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 10)), rng.integers(0, 10, 200)
    model = ClassPosteriorSimilarity(random_state=0).fit(X, y)
    assert model.posterior_ == "none"
    assert_array_equal(model.transform(X), unit_rows(X))


def test_small_classes_have_no_holdout(rng):
    y = np.repeat(np.arange(30), 2)
    centers = rng.standard_normal((30, 20))
    X = centers[y] + 0.8 * rng.standard_normal((60, 20))
    X_test = centers[y] + 0.8 * rng.standard_normal((60, 20))
    model = ClassPosteriorSimilarity(random_state=0).fit(X, y)
    assert (model.posterior_, model.weight_) == ("means", 0.25)
    assert not hasattr(model, "holdout_results_")
    cosine = CosineSimilarity(use_idf=False).fit(X)
    assert model.score(X_test, y) > cosine.score(X_test, y)


def test_what_is_not_of_classes_is_refused(counts):
    X, y = counts
    several = (np.random.default_rng(0).random((66, 5)) < 0.4).astype(float)
    junk = (y[:, None] == np.arange(12)).astype(float)
    junk[0, 3] = -1
    pairs = PairwiseRelevance((y[:, None] == y) * 1.0)
    for target in (several, junk, pairs):
        with pytest.raises(ValueError, match="one class per sample"):
            ClassPosteriorSimilarity().fit(X, target)
    columns = (y[:, None] == np.arange(12)).astype(float)
    by_columns = ClassPosteriorSimilarity(random_state=0).fit(X, columns)
    by_labels = ClassPosteriorSimilarity(random_state=0).fit(X, y)
    assert_array_equal(by_columns.similarity(X), by_labels.similarity(X))


def test_blas_threads_do_not_matter(digits):
    X_train, X_test, y_train, _ = digits
    results = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, user_api="blas"):
            model = ClassPosteriorSimilarity(random_state=0).fit(X_train, y_train)
        with threadpool_limits(1, user_api="blas"):
            results.append(model.transform(X_test))
    assert_array_equal(*results)


def test_classes_are_the_labels_of_the_user(digits):
    X, _, y, _ = digits
    names = np.array([f"digit {label}" for label in range(10)])
    model = ClassPosteriorSimilarity(random_state=0).fit(X[:300], names[y[:300]])
    assert_array_equal(model.classes_, names)
    shifted = np.where(y[:300] == 0, -1, 10 * y[:300])  # distractors are of no class
    model.fit(X[:300], shifted)
    assert_array_equal(model.classes_, np.arange(10, 100, 10))


def test_ridge_of_equal_rows_knows_nothing(rng):
    rows = np.tile([1.0, 0.0, 0.0], (6, 1))
    ridge = _posterior._Ridge(rows, np.repeat([0, 1], 3), 1.0, 10, rng)
    assert_allclose(ridge.probabilities(rows), 0.5, atol=1e-6)
