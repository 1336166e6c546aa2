"""EmbeddingModelMap: a map between the vectors of two models."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import orthogonal_procrustes
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_simlearn import EmbeddingModelMap
from sklearn_simlearn.compose import RetrievalPipeline
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.query_map import _model_map as module
from sklearn_simlearn.query_map._rotation import ShrunkenMaps, find_rotation
from sklearn_simlearn.similarities import CosineSimilarity


def list_failures(estimator):
    """Return the checks that pass labels, where vectors are required."""
    names = (
        "check_transformer_data_not_an_array",
        "check_transformer_general",
        "check_transformer_preserve_dtypes",
    )
    return dict.fromkeys(names, "y must be two-dimensional")


@parametrize_with_checks(
    [EmbeddingModelMap(random_state=0)], expected_failed_checks=list_failures
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture
def models(rng):
    """Return vectors of two models of different widths, which share a meaning."""
    meaning = rng.standard_normal((400, 12))
    noise = 0.4 * rng.standard_normal((400, 20))
    new = np.tanh(meaning @ rng.standard_normal((12, 20)) / 3 + noise)
    return new, meaning @ rng.standard_normal((12, 16))


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def count_kept(mapped, Y, k=10):
    """Return the share of neighbours per row, one query after another."""
    kept = []
    for i in range(len(mapped)):
        others = np.delete(np.arange(len(Y)), i)
        nearest = [
            set(others[np.argsort(-(Y[others] @ q), kind="stable")[:k]])
            for q in (Y[i], mapped[i])
        ]
        kept.append(len(nearest[0] & nearest[1]) / k)
    return np.array(kept)


def test_the_rotation_is_that_of_scipy(rng):
    X, Y = rng.standard_normal((2, 50, 6))
    assert_allclose(find_rotation(X.T @ Y), orthogonal_procrustes(X, Y)[0])
    assert_array_equal(ShrunkenMaps(X, Y).find(np.inf), find_rotation(X.T @ Y))
    narrow = find_rotation(X.T @ Y[:, :4])
    assert_allclose(narrow.T @ narrow, np.eye(4), atol=1e-12)


def test_the_map_is_ridge_regression_of_the_rest(rng):
    X, Y = rng.standard_normal((50, 6)), rng.standard_normal((50, 4))
    A = find_rotation(X.T @ Y)
    ridge = Ridge(alpha=3.0, fit_intercept=False).fit(X, Y - X @ A)
    assert_allclose(ShrunkenMaps(X, Y).find(3.0), A + ridge.coef_.T)


def test_the_measured_recall_is_that_of_new_items(models):
    new, old = models
    model = EmbeddingModelMap(random_state=0).fit(new[:300], old[:300])
    assert model.coef_.shape == (20, 16)
    assert model.recall_by_alpha_[model.alpha_] == model.recall_kept_
    mapped = model.transform(new[300:])
    assert_allclose(np.linalg.norm(mapped, axis=1), 1)
    kept = count_kept(mapped, unit(np.concatenate([old[300:], old[:300]])))
    error = np.hypot(model.recall_kept_error_, kept.std(ddof=1) / 10)
    assert abs(model.recall_kept_ - kept.mean()) < 2 * error
    random = count_kept(unit(old[:100][::-1]), unit(old))
    assert kept.mean() > 5 * random.mean()
    expected = count_kept(mapped, unit(old[300:])).mean()
    assert model.score(new[300:], old[300:]) == pytest.approx(expected)


def test_the_strongest_shrinkage_is_taken_within_an_error(models, rng):
    new, _ = models
    rotation = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    model = EmbeddingModelMap(random_state=0).fit(new, new @ rotation)
    assert model.alpha_ == np.inf
    assert model.recall_kept_ == 1
    assert_allclose(model.coef_, rotation, atol=1e-10)
    assert_array_equal(
        clone(model).set_params(alpha=np.inf).fit(new, new @ rotation).coef_,
        model.coef_,
    )
    stretched = new @ (rotation * np.linspace(0.1, 3, 20))
    model.fit(new, stretched)
    assert model.alpha_ < 100
    assert model.recall_kept_ > model.recall_by_alpha_[np.inf] + 0.1
    kept = np.array([[0.5, 0.4, 0.6, 0.5], [0.6, 0.5, 0.5, 0.5], [0.9, 0.8, 0.9, 1]])
    assert module._choose_strongest(kept) == 2
    assert module._choose_strongest(kept[:2]) == 0


def test_queries_of_the_new_model_search_the_index_of_the_old_one(models):
    new, old = models
    cosine = CosineSimilarity(use_idf=False)
    index = SimilarityIndex(cosine).fit(old)
    model = EmbeddingModelMap(random_state=0).fit(new[:300], old[:300])
    scores, ids = index.search(model.transform(new[300:]), k=5)
    S = unit(model.transform(new[300:])) @ unit(old).T
    assert_allclose(scores, -np.sort(-S)[:, :5])
    pipeline = RetrievalPipeline(
        [("cosine", FrozenEstimator(cosine.fit(old)))],
        query_steps=[("map", FrozenEstimator(model))],
    )
    again = SimilarityIndex(pipeline.fit(new[:5])).fit(old).search(new[300:], k=5)
    assert_array_equal(again[1], ids)


def test_few_items_blocks_and_fixed_strengths(models, monkeypatch):
    new, old = models
    expected = EmbeddingModelMap(2.0, random_state=0).fit(new, old)
    assert expected.alpha_ == 2
    assert list(expected.recall_by_alpha_) == [2]
    monkeypatch.setattr(module, "N_BYTES", 2**19)
    again = clone(expected).fit(new, old)
    assert again.recall_kept_ == expected.recall_kept_
    assert 0 <= EmbeddingModelMap().fit(new[:5], old[:5]).recall_kept_ <= 1
    monkeypatch.setattr(module, "MAX_ITEMS", 100)
    fewer = clone(expected).fit(new, old)
    assert fewer.recall_kept_ > expected.recall_kept_
    assert_array_equal(fewer.coef_, expected.coef_)
    scores = cross_val_score(EmbeddingModelMap(), new, old, cv=2)
    assert scores.min() > 0.2


def test_bad_input(models):
    new, old = models
    with pytest.raises(ValueError, match="one vector of the old model per row"):
        EmbeddingModelMap().fit(new, old[:, 0])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        EmbeddingModelMap().fit(new, old[:-1])
    with pytest.raises(ValueError, match="contains NaN"):
        EmbeddingModelMap().fit(new, np.full_like(old, np.nan))
    with pytest.raises(ValueError, match="minimum of 5 is required"):
        EmbeddingModelMap().fit(new[:4], old[:4])
    with pytest.raises(ValueError, match="alpha"):
        EmbeddingModelMap(0).fit(new, old)
    model = EmbeddingModelMap().fit(new, old)
    with pytest.raises(ValueError, match="y has 3 features, but the old model has 16"):
        model.score(new, old[:, :3])
