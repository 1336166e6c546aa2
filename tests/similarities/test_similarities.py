"""Hand-made similarities against their formulas, dense and naive."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from peak_memory import bounded_memory
from scipy import sparse

from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
)


@pytest.fixture
def bags(rng):
    """Return training counts, queries and items; word 0 is in none, word 1 in all."""
    train, queries, items = (
        rng.poisson(0.7, size=(n, 12)).astype(float) for n in (30, 6, 9)
    )
    train[:, 0], train[:, 1] = 0, 1
    train[0, 2] = 9  # no query or item has a larger count
    return train, queries, items


def idf(train):
    frequency = np.maximum((train > 0).sum(axis=0), 1)
    return np.log(len(train) / frequency)


def cosine(a, b):
    return a @ b / np.sqrt((a @ a) * (b @ b))


def pairwise(formula, queries, items):
    return np.array([[formula(q, d) for d in items] for q in queries])


def check(similarity, bags, formula, dtype="float64"):
    """Compare dense and CSR input with the formula; check the type of encodings."""
    train, queries, items = bags
    expected = pairwise(formula, queries, items)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-9}
    for container in (np.asarray, sparse.csr_array, sparse.csr_matrix):
        X, Q, D = (container(part.astype(dtype)) for part in (train, queries, items))
        similarity.fit(X)
        S = similarity.similarity(Q, D)
        assert S.dtype == dtype
        assert_allclose(S, expected, **tolerance)
        if container is not np.asarray:
            assert sparse.issparse(similarity.transform(Q))
            assert sparse.issparse(similarity.transform_database(D))
            assert_array_equal(Q.toarray(), queries.astype(dtype))  # unchanged


@pytest.mark.parametrize("use_idf", [True, False])
def test_cosine(use_idf, bags, dtype):
    w = idf(bags[0]) if use_idf else np.ones(12)
    check(
        CosineSimilarity(use_idf=use_idf),
        bags,
        lambda q, d: cosine(w * q, w * d),
        dtype,
    )


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("use_idf", [True, False])
def test_negative_evidence(beta, use_idf, bags, dtype):
    w = idf(bags[0]) if use_idf else np.ones(12)
    mean = beta * bags[0].mean(axis=0)
    check(
        NegativeEvidenceSimilarity(beta, use_idf=use_idf),
        bags,
        lambda q, d: cosine(w * (q - mean), w * (d - mean)),
        dtype,
    )


def test_shared_absence_is_evidence():
    # Both lack a word that all training samples have, so both are more similar.
    queries, items = [[1.0, 0, 1, 0]], [[1.0, 0, 0, 1]]
    similarity = NegativeEvidenceSimilarity(1.0, use_idf=False).fit([[0.0, 1, 0, 0]])
    assert_allclose(similarity.similarity(queries, items), [[(1 + 1) / (2 + 1)]])


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_samples_that_equal_the_mean_are_similar_to_nothing(container, dtype, rng):
    for n_samples in (1, 2, 3, 7):
        X = container(np.repeat(rng.random((1, 9)), n_samples, axis=0).astype(dtype))
        similarity = NegativeEvidenceSimilarity(1.0, use_idf=False).fit(X)
        assert_array_equal(similarity.similarity(X), 0)


@pytest.mark.parametrize("normalize", [True, False])
def test_burstiness(normalize, bags, dtype):
    w = idf(bags[0])
    total = np.sqrt(bags[0]).sum(axis=0)
    total[total == 0] = 1

    def formula(q, d):
        tau = 1 / np.sqrt(np.sqrt(d).sum()) if normalize else 1
        return tau * (w**2 * q * d**0.25 / np.sqrt(total)).sum()

    check(BurstinessSimilarity(normalize=normalize), bags, formula, dtype)


def asymmetric(q, d, p, lam):
    return -((d - q)[d > q] ** p).sum() - lam * ((q - d)[q > d] ** p).sum()


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("lam", [0.3, 1.0, 20.0])
def test_asymmetric(p, lam, bags, dtype):
    check(
        AsymmetricSimilarity(p, lam=lam),
        bags,
        lambda q, d: asymmetric(q, d, p, lam),
        dtype,
    )


@pytest.mark.parametrize("factor", [0.1, 1.0])
def test_adaptive_asymmetric(factor, bags, dtype):
    train = bags[0]

    def formula(q, d):
        lam = factor * train.sum() / np.minimum(q, train).sum() - 1
        return asymmetric(q, d, 1, lam)

    check(AsymmetricSimilarity(factor=factor), bags, formula, dtype)


def test_counts_beyond_the_training_data_are_clipped():
    similarity = AsymmetricSimilarity(lam=2.0).fit([[3, 0], [0, 1]])
    assert similarity.max_count_ == 3
    assert_array_equal(similarity.similarity([[9, 0]], [[5, 0], [3, 0]]), [[0, 0]])


def test_memory_does_not_grow_with_the_largest_count():
    X = sparse.csr_array(([1.0, 1e6, 2.0], ([0, 1, 1], [0, 5, 999])), shape=(2, 1000))
    similarity = AsymmetricSimilarity(lam=2.0).fit(X)
    assert similarity.transform(X).shape[1] > 10**9
    with bounded_memory(10**8):
        S = similarity.similarity(X)
    assert_array_equal(S, [[0, -1e6 - 4], [-2e6 - 5, 0]])


def test_query_of_no_known_word_gets_a_finite_score():
    S = AsymmetricSimilarity().fit([[1, 0], [2, 0]]).similarity([[0, 3]], [[1, 0]])
    assert np.isfinite(S).all()


def test_empty_rows_score_zero_not_nan():
    X = np.array([[1.0, 2, 0], [0, 0, 0], [0, 1, 1]])
    for similarity in (CosineSimilarity(), BurstinessSimilarity()):
        S = similarity.fit(X).similarity(X)
        assert_array_equal(S[1], 0)
        assert_array_equal(S[:, 1], 0)


@pytest.mark.parametrize("X", [[[1.5, 0.0]], sparse.csr_array([[1.5, 0.0]])])
def test_fractions_are_refused(X):
    with pytest.raises(ValueError, match="X has fractions"):
        AsymmetricSimilarity().fit(X)
    similarity = AsymmetricSimilarity().fit([[1, 0]])
    with pytest.raises(ValueError, match="X has fractions"):
        similarity.similarity(X)


@pytest.mark.parametrize("similarity", [AsymmetricSimilarity(), BurstinessSimilarity()])
def test_negative_counts_are_refused(similarity):
    with pytest.raises(ValueError, match="Negative values"):
        similarity.fit([[-1, 0]])


def test_adaptive_lambda_has_no_square():
    with pytest.raises(ValueError, match="needs p=1"):
        AsymmetricSimilarity(2).fit([[1, 0]])


def test_cap_on_counts_bounds_the_encoding():
    X = sparse.csr_array([[1000.0, 0.0], [3.0, 1.0]])
    assert AsymmetricSimilarity().fit(X).transform(X).shape == (2, 2 * 1000 + 2)
    capped = AsymmetricSimilarity(lam=2.0, max_count=4).fit(X)
    assert capped.transform(X).shape == (2, 2 * 4 + 2)
    # Larger counts are clipped: the rows are (4, 0) and (3, 1).
    assert_array_equal(capped.similarity(X), [[0, -1 - 2], [-2 - 1, 0]])
