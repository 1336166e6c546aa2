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

from sklearn_simlearn import ClassPosteriorSimilarity, StartKeptWarning
from sklearn_simlearn._core.rows import unit_rows
from sklearn_simlearn.metrics import PairwiseRelevance
from sklearn_simlearn.posterior import _posterior, _probabilities
from sklearn_simlearn.posterior._probabilities import (
    RIDGE,
    RIDGE_SHARPNESS,
    SHRINKAGE,
    Coordinates,
    Ridge,
    fit_logistic,
    fit_means,
)
from sklearn_simlearn.similarities import CosineSimilarity


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, train_size=400, test_size=400, random_state=0)


@pytest.fixture
def cones(rng):
    """Return unit rows of three classes."""
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
        ridge = Ridge(rows, y, 4.0, 1000, np.random.default_rng(0))
        # It is computed in single precision.
        assert_allclose(ridge.of(rows[::3]), expected, atol=1e-4)


def test_landmarks_solve_the_normal_equations(cones, monkeypatch):
    X, y = cones
    monkeypatch.setattr(_probabilities, "BLOCK", 7)
    ridge = Ridge(X, y, 4.0, 20, np.random.default_rng(0))
    L = ridge.landmarks
    assert L.shape == (20, 5)
    sharpness = 4.0 / np.mean(1 - X @ X.T)
    K, K_LL = (np.exp(sharpness * (A @ L.T - 1)) for A in (X, L))
    penalty = _probabilities.LANDMARK_RIDGE * (1 + len(X) / 2**14)
    gram = K.T @ K + RIDGE * K_LL + penalty * np.eye(20)
    expected = np.linalg.solve(gram, K.T @ (y[:, None] == np.arange(3)))
    assert_allclose(ridge.coefficients, expected, atol=1e-3 * abs(expected).max())


def test_few_landmarks_come_close(cones):
    X, y = cones
    full = Ridge(X, y, 4.0, 1000, np.random.default_rng(0))
    part = Ridge(X, y, 4.0, 25, np.random.default_rng(0))
    assert part.landmarks.shape[0] == 25
    agree = np.argmax(part.of(X), axis=1) == np.argmax(full.of(X), axis=1)
    assert np.count_nonzero(agree) > 55


def test_many_equal_rows_have_coefficients(rng):
    rows = np.repeat(unit_rows(1 + 0.3 * rng.random((3, 4))), 1000, axis=0)
    for dtype in (np.float32, np.float64):
        ridge = Ridge(rows.astype(dtype), np.repeat([0, 1, 2], 1000), 1.5, 300, rng)
        assert_array_equal(np.argmax(ridge.of(rows[::1000]), axis=1), [0, 1, 2])


def test_a_mixture_is_the_mean_of_its_parts(cones):
    X, y = cones
    model = ClassPosteriorSimilarity(random_state=0)
    start = _posterior.fit_start(None, X, y)
    trial = _posterior._Trial(model, start, X, y, np.random.default_rng(0))
    parts = [trial.probabilities("rows", *part) for part in _posterior.MIXED]
    expected = sum(part.items(X) for part in parts) / len(parts)
    mixture = trial.probabilities("rows", "mixture", 1.0)
    assert_allclose(mixture.items(X), expected, atol=1e-12)
    assert_allclose(mixture.queries(X), expected, atol=1e-12)
    assert_allclose(expected.sum(axis=1), 1)


def test_means_are_a_softmax_of_cosines(cones):
    X, y = cones
    means = np.stack([X[y == c].mean(axis=0) for c in range(3)])
    expected = softmax(20 * X @ unit_rows(means).T, axis=1)
    assert_allclose(fit_means(X, y, 20.0).of(X), expected)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_logistic_is_that_of_centred_and_scaled_rows(cones, n_classes, container):
    X, y = cones
    X, y = X[y < n_classes], y[y < n_classes]
    rows = container(X)
    fitted = fit_logistic(rows, Coordinates(rows, np.random.default_rng(0)), y, 10.0)
    Z = X - X.mean(axis=0)
    Z /= np.sqrt((Z**2).sum(axis=1).mean())
    model = LogisticRegression(C=10.0, tol=1e-3, max_iter=300).fit(Z, y)
    assert_allclose(fitted.of(rows), model.predict_proba(Z), atol=1e-8)


def test_discriminants_whiten_the_covariance_within_classes(cones):
    X, y = cones
    affine = Coordinates(X, np.random.default_rng(0)).discriminate(y)
    assert affine.A.shape == (2, 5)  # number of classes minus one
    rest = X - np.stack([X[y == c].mean(axis=0) for c in range(3)])[y]
    within = rest.T @ rest / len(X)
    shrunk = (1 - SHRINKAGE) * within + SHRINKAGE * np.trace(within) / 5 * np.eye(5)
    assert_allclose(affine.A @ shrunk @ affine.A.T, np.eye(2), atol=1e-10)
    between = affine.items(np.stack([X[y == c].mean(axis=0) for c in range(3)]))
    assert (between @ between.T)[np.triu_indices(3, 1)].max() < 0


def test_one_class_and_distractors_keep_the_rows(cones):
    X, y = cones
    model = ClassPosteriorSimilarity(random_state=0)
    with pytest.warns(StartKeptWarning):
        model.fit(X, np.where(y == 2, 2, -1))
    assert model.posterior_ == "none"


@pytest.fixture
def parallel(rng):
    """Return rows of 20 classes whose cosines are all above 0.99."""
    y = np.repeat(np.arange(20), 10)
    noise = rng.standard_normal((200, 40)) * np.linspace(3, 0.2, 40)
    return 50 + rng.standard_normal((20, 40))[y] + noise, y


def test_nearly_parallel_rows_are_distinguished(parallel):
    X, y = parallel
    rows = unit_rows(X)
    assert (rows @ rows.T).min() > 0.99
    logistic = fit_logistic(rows, Coordinates(rows, np.random.default_rng(0)), y, 10.0)
    assert np.mean(np.argmax(logistic.of(rows), axis=1) == y) > 0.9
    train, test = np.arange(200) % 2 == 0, np.arange(200) % 2 == 1
    model = ClassPosteriorSimilarity(random_state=0).fit(X[train], y[train])
    best = model.holdout_results_
    assert best["candidates"][best["best_index"]].rows == "discriminants"
    cosine = CosineSimilarity(use_idf=False).fit(X[train])
    assert model.score(X[test], y[test]) > cosine.score(X[test], y[test]) + 0.2


def test_of_equal_candidates_the_best_at_rank_1_is_taken():
    results = {
        "candidates": [None, "a", "b", "c"],
        "gain": np.array([0, 0.100, 0.098, 0.05]),
        "error": np.full(4, 0.01),
        "gain_at_1": np.array([0, 0.01, 0.03, 0.05]),
        "best_index": 1,
    }
    choice = _posterior.Choice("a", {"holdout_results_": results})
    taken = _posterior._prefer_rank_1(choice)
    assert taken.candidate == "b"
    assert taken.attributes["holdout_gain_"] == 0.098
    assert taken.attributes["holdout_results_"]["best_index"] == 2
    kept = _posterior.Choice(None, {"holdout_results_": {**results, "best_index": 0}})
    assert _posterior._prefer_rank_1(kept) is kept


def test_equal_rows_are_allowed():
    X = np.repeat(np.eye(3), 8, axis=0)
    y = np.repeat([0, 1, 2], 8)
    model = ClassPosteriorSimilarity(random_state=0).fit(X, y)
    assert model.score(X, y) == 1


def test_it_ranks_better_than_the_baselines(digits):
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
@pytest.mark.parametrize("share", [0.25, 0.0])
def test_the_similarity_is_the_probability_of_one_class(share, container, rng):
    y = np.repeat([0, 1, 2], 4)
    X = unit_rows(np.eye(5)[y] + 0.4 * rng.random((12, 5)))
    p = rng.dirichlet(np.ones(3), 12)

    class Known(LogisticRegression):
        def predict_proba(self, X):
            return p[: X.shape[0]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_posterior, "MIN_CLASS_SIZE", 5)
        fixed = _posterior.Candidate("rows", "means", 1.0, share)
        patch.setattr(_posterior, "WITHOUT_HOLDOUT", fixed)
        model = ClassPosteriorSimilarity(
            CosineSimilarity(use_idf=False), classifier=Known()
        ).fit(container(X), y)
    together = np.einsum("ic,jc->ij", p, p)
    expected = share * X @ X.T + (1 - share) * together
    assert_allclose(model.similarity(container(X)), expected, atol=1e-12)
    # Rows have unit length, as distances need it, although the probabilities do not.
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
    assert (model.posterior_, model.share_) == ("means", 0.75)
    assert not hasattr(model, "holdout_results_")
    cosine = CosineSimilarity(use_idf=False).fit(X)
    assert model.score(X_test, y) > cosine.score(X_test, y)


def test_targets_without_classes_are_refused(counts):
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
    shifted = np.where(y[:300] == 0, -1, 10 * y[:300])  # distractors have no class
    model.fit(X[:300], shifted)
    assert_array_equal(model.classes_, np.arange(10, 100, 10))


def test_ridge_of_equal_rows_is_uniform(rng):
    rows = np.tile([1.0, 0.0, 0.0], (6, 1))
    ridge = Ridge(rows, np.repeat([0, 1], 3), 1.0, 10, rng)
    assert_allclose(ridge.probabilities(rows), 0.5, atol=1e-4)
