"""Memory vectors: the kernels against NumPy, the maths, then the estimator."""

import time

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse, stats
from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, normalize
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_simlearn import MemoryVectorQuery
from sklearn_simlearn._core.groups import sets_of_one
from sklearn_simlearn.base import EncodedSimilarityMixin, Encoder
from sklearn_simlearn.contract import check_learner
from sklearn_simlearn.contract._samples import storage_states
from sklearn_simlearn.memory._memory_fast import (
    dense_grams,
    dense_sums,
    solve_grams,
    sparse_grams,
)
from sklearn_simlearn.memory._weights import VectorSpace
from sklearn_simlearn.metrics import RetrievalScorer, map_scorer
from sklearn_simlearn.model_selection import make_query_sets
from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    CosineSimilarity,
    SelectiveMatchKernel,
)


def memory_vector(X):
    """Return (X^+) 1 of unit rows, as in the paper."""
    X = normalize(np.asarray(X, dtype=np.float64))
    return np.linalg.pinv(X).sum(axis=1)


def unit_rows(rng, *shape):
    X = rng.standard_normal(shape)
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


# -- kernels --

# Three sets of 3, 1 and 2 rows; a row may be in several.
ROWS = np.array([4, 0, 2, 1, 5, 4])
OFFSETS = np.array([0, 3, 4, 6])
SETS = [ROWS[:3], ROWS[3:4], ROWS[4:]]


@pytest.fixture
def queries_and_items(rng, dtype):
    Q, D = rng.standard_normal((2, 7, 9)).astype(dtype)
    Q[rng.random(Q.shape) < 0.4] = 0
    D[rng.random(D.shape) < 0.4] = 0
    return Q, D


def reference_grams(Q, D):
    Q, D = Q.astype(np.float64), D.astype(np.float64)
    grams = [Q[rows] @ D[rows].T for rows in SETS]
    return np.concatenate([((K + K.T) / 2).ravel() for K in grams])


def freeze(*arrays):
    # joblib hands workers memory-mapped, read-only arrays.
    for array in arrays:
        array.flags.writeable = False
    return arrays


def test_dense_grams_match_reference(queries_and_items):
    Q, D = freeze(*queries_and_items)
    grams = np.empty(14)
    dense_grams(Q, D, *freeze(ROWS.copy(), OFFSETS.copy()), grams)
    assert_allclose(grams, reference_grams(Q, D), rtol=1e-13, atol=1e-13)
    dense_grams(Q, Q, ROWS, OFFSETS, grams)
    assert_allclose(grams, reference_grams(Q, Q), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_sparse_grams_match_reference(index_dtype, queries_and_items):
    arrays = []
    for matrix in map(sparse.csr_array, queries_and_items):
        arrays += [matrix.data, matrix.indices, matrix.indptr]
    for i in (1, 2, 4, 5):
        arrays[i] = arrays[i].astype(index_dtype)
    grams = np.empty(14)
    sparse_grams(*freeze(*arrays), 9, ROWS, OFFSETS, grams)
    assert_allclose(grams, reference_grams(*queries_and_items), rtol=1e-13, atol=1e-13)


def test_sparse_grams_add_up_duplicate_entries():
    # One row, the columns 2, 0, 2: (5, 0, 4) dense.
    arrays = [np.array([1.0, 5, 3]), np.array([2, 0, 2]), np.array([0, 3])]
    grams = np.empty(1)
    sparse_grams(*arrays, *arrays, 3, np.array([0]), np.array([0, 1]), grams)
    assert_array_equal(grams, [41])


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("shrinkage", [0.0, 0.3, 1.0])
def test_solve_grams_matches_reference(shrinkage, normalize, rng):
    X = rng.standard_normal((6, 9))
    parts = [X[:3], X[3:4], X[4:]]
    grams = np.concatenate([(part @ part.T).ravel() for part in parts])
    scale, weights = np.empty((2, 6))
    solved = np.zeros(3, dtype=np.uint8)
    solve_grams(
        grams, freeze(OFFSETS.copy())[0], shrinkage, normalize, scale, weights, solved
    )

    norm = np.linalg.norm(X, axis=1) if normalize else np.ones(6)
    assert_allclose(scale, 1 / norm)
    assert solved.all()
    for rows in (slice(0, 3), slice(3, 4), slice(4, 6)):
        unit = X[rows] / norm[rows, None]
        K = (1 - shrinkage) * unit @ unit.T + shrinkage * np.eye(len(unit))
        assert_allclose(weights[rows], np.linalg.solve(K, np.ones(len(K))))
    if normalize:
        assert_allclose(grams[:9:4], 1)  # scaled in place, for display


def test_solve_grams_leaves_singular_sets_to_the_caller():
    # Sets of duplicates, regular, with an indefinite matrix, and with an empty query.
    grams = np.array([1.0, 1, 1, 1, 2, 0, 0, 2, 1, 3, 3, 1, 0])
    scale, weights = np.empty((2, 7))
    solved = np.empty(4, dtype=np.uint8)
    solve_grams(grams, np.array([0, 2, 4, 6, 7]), 0.0, True, scale, weights, solved)
    assert_array_equal(solved, [0, 1, 0, 0])
    assert_allclose(weights[2:4], 1)
    assert scale[6] == 1


def test_dense_sums_match_reference(queries_and_items, rng):
    Q, _ = freeze(*queries_and_items)
    weights = rng.standard_normal(6)
    sums = np.empty((3, 9), dtype=Q.dtype)
    dense_sums(Q, ROWS, OFFSETS, freeze(weights)[0], sums)
    parts = np.split(weights, OFFSETS[1:-1])
    expected = [
        w @ Q[rows].astype(np.float64) for w, rows in zip(parts, SETS, strict=True)
    ]
    assert_allclose(sums, np.array(expected).astype(Q.dtype), rtol=1e-6, atol=1e-6)


# -- the maths --


def test_two_queries_by_hand():
    # If the cosine of two queries is c, each has the weight 1 / (1 + c).
    X = np.array([[2.0, 0.0], [0.6, 0.8]])
    memory = MemoryVectorQuery(alpha=0).fit(X)
    assert_allclose(memory.query_weights(X, [0, 0]), 1 / 1.6)
    assert_allclose(memory.transform(X, [0, 0]), [[1.0, 0.5]])
    assert_allclose(memory.similarity(X, groups=[0, 0]), [[1.0, 1.0]])


sets_of_vectors = st.tuples(
    st.integers(1, 8), st.integers(16, 40), st.integers(0, 2**32 - 1)
)


@given(sets_of_vectors)
@settings(max_examples=50, deadline=None)
def test_independent_queries_all_score_one_with_the_shortest_vector(case):
    n, d, seed = case
    rng = np.random.default_rng(seed)
    X = unit_rows(rng, n, d)
    m = MemoryVectorQuery(alpha=0).fit_transform(X, groups=np.zeros(n))[0]
    assert_allclose(X @ m, 1, rtol=0, atol=1e-8)
    # Other solutions differ by a vector orthogonal to the queries, so they are longer.
    _, _, V = np.linalg.svd(X)
    assert_allclose(V[n:] @ m, 0, atol=1e-8)
    assert_allclose(m, memory_vector(X), rtol=1e-7, atol=1e-8)


@given(sets_of_vectors, st.data())
@settings(max_examples=50, deadline=None)
def test_scale_and_order_of_queries_and_groups_do_not_matter(case, data):
    n, d, seed = case
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    groups = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    scale = np.array(data.draw(st.lists(st.floats(1e-6, 1e6), min_size=n, max_size=n)))
    order = np.array(data.draw(st.permutations(range(n))))
    memory = MemoryVectorQuery(alpha=0).fit(X)
    M, w = memory.transform(X, groups), memory.query_weights(X, groups)
    tolerance = {"rtol": 1e-6, "atol": 1e-8}

    assert_allclose(memory.transform(scale[:, None] * X, groups), M, **tolerance)
    assert_allclose(memory.transform(X[order], groups[order]), M, **tolerance)
    assert_allclose(
        memory.query_weights(X[order], groups[order]), w[order], **tolerance
    )
    # Other names reverse the order of the sets and do not change the sets.
    assert_allclose(memory.transform(X, -groups), M[::-1], **tolerance)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_orthogonal_queries_give_the_sum(container, dtype):
    X = container(np.diag([3.0, 1, 2, 5]).astype(dtype))
    groups = np.array([1, 0, 1, 1])
    by_memory = MemoryVectorQuery(alpha=0).fit_transform(X, groups=groups)
    by_sum = MemoryVectorQuery(method="sum").fit_transform(X, groups=groups)
    expected = [[0, 1, 0, 0], [1, 0, 1, 1]]
    for M in (by_memory, by_sum):
        assert_allclose(M if container is np.asarray else M.toarray(), expected)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_duplicates_share_their_weight(container, rng, dtype):
    X = rng.standard_normal((4, 30)).astype(dtype)
    memory = MemoryVectorQuery(alpha=0).fit(X)
    w = memory.query_weights(container(X), np.zeros(4))
    M = memory.transform(container(X), np.zeros(4))
    # Division by 3 and 0.1 is not exact, so the copies differ by rounding.
    copies = container(np.vstack([X, X[:1], 3 * X[:1], dtype_of(0.1, X) * X[:1]]))
    w_copies = memory.query_weights(copies, np.zeros(7))
    M_copies = memory.transform(copies, np.zeros(7))
    rtol = 1e-4 if dtype == "float32" else 1e-9
    assert_allclose(w_copies[[0, 4, 5, 6]], w[0] / 4, rtol=rtol)
    assert_allclose(w_copies[1:4], w[1:], rtol=rtol)
    if container is sparse.csr_array:
        M, M_copies = M.toarray(), M_copies.toarray()
    assert_allclose(M_copies, M, rtol=rtol, atol=rtol)


def dtype_of(value, X):
    return X.dtype.type(value)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    ("n", "d", "rank"),
    [(4, 12, 2), (12, 12, 12), (12, 12, 7), (13, 12, 12), (40, 12, 5)],
)
def test_singular_sets_match_the_pseudo_inverse(n, d, rank, container, rng):
    X = normalize(rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d)))
    M = MemoryVectorQuery(alpha=0).fit_transform(container(X), groups=np.zeros(n))
    M = M if container is np.asarray else M.toarray()
    expected = np.linalg.pinv(X, rcond=1e-6).sum(axis=1)
    assert_allclose(M[0], expected, rtol=1e-7, atol=1e-7 * np.linalg.norm(expected))


def test_float32_is_accurate_on_ill_conditioned_sets(rng):
    # Near-duplicates: singular values of the set from about 2 down to 1e-4.
    for spread in (1e-2, 1e-3, 1e-4):
        X = unit_rows(rng, 1, 128) + spread * unit_rows(rng, 5, 128)
        X = X.astype(np.float32)
        m = MemoryVectorQuery(alpha=0).fit_transform(X, groups=np.zeros(5))[0]
        expected = memory_vector(X)
        assert m.dtype == np.float32
        assert np.linalg.norm(m - expected) < 1e-4 * np.linalg.norm(expected)
        assert_allclose(normalize(X.astype(np.float64)) @ m, 1, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("n", "d"), [(4, 12), (12, 12), (30, 12)])
@pytest.mark.parametrize("alpha", [1e-3, 0.5, 20.0])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_ridge_matches_its_formula(n, d, alpha, container, rng):
    X = rng.standard_normal((n, d))
    X[1] = X[0]
    unit = normalize(X)
    w = (1 + alpha) * np.linalg.solve(unit @ unit.T + alpha * np.eye(n), np.ones(n))
    memory = MemoryVectorQuery(alpha=alpha).fit(X)
    M = memory.transform(container(X), np.zeros(n))
    assert_allclose(memory.query_weights(container(X), np.zeros(n)), w, rtol=1e-7)
    M = M if container is np.asarray else M.toarray()
    assert_allclose(M[0], w @ unit, rtol=1e-7, atol=1e-9)


def test_large_ridge_approaches_the_sum(rng):
    X, groups = rng.standard_normal((9, 20)), np.arange(9) % 2
    total = MemoryVectorQuery(method="sum").fit_transform(X, groups=groups)
    assert_allclose(
        MemoryVectorQuery(alpha=np.inf).fit_transform(X, groups=groups), total
    )
    distance = [
        np.linalg.norm(
            MemoryVectorQuery(alpha=alpha).fit_transform(X, groups=groups) - total
        )
        for alpha in (0, 1, 100, 10_000)
    ]
    assert_array_equal(np.argsort(distance), [3, 2, 1, 0])
    assert distance[3] < 1e-3


def test_more_queries_than_features_need_no_matrix_of_the_queries(rng):
    # The Gram matrix would take 20 GB.
    X = rng.standard_normal((50_000, 8))
    m = MemoryVectorQuery(alpha=0).fit_transform(X, groups=np.zeros(50_000))[0]
    assert_allclose(m, memory_vector(X), rtol=1e-8)


def test_many_sets_of_mixed_sizes_match_one_at_a_time(rng, dtype):
    groups = rng.integers(0, 300, size=1500)
    X = rng.standard_normal((1500, 6)).astype(dtype)  # n below, at and above d
    X[5] = 0
    M = MemoryVectorQuery(alpha=0).fit_transform(X, groups=groups)
    assert len(np.unique(np.bincount(groups))) > 5
    expected = [memory_vector(X[groups == g]) for g in np.unique(groups)]
    assert_allclose(M, expected, rtol=1e-3 if dtype == "float32" else 1e-6, atol=1e-5)


def test_blocks_do_not_change_the_result(rng, monkeypatch):
    X = rng.standard_normal((60, 10))
    groups = rng.integers(0, 20, size=60)
    for method in ("memory", "max"):
        memory = MemoryVectorQuery(method=method).fit(X)
        whole = memory.similarity(X, groups=groups)
        with monkeypatch.context() as patch:
            patch.setattr("sklearn_simlearn.memory._weights.NUMBERS_PER_CALL", 50)
            patch.setattr(
                "sklearn_simlearn.memory._encoder.get_chunk_n_rows", lambda *_, **__: 7
            )
            assert_allclose(memory.similarity(X, groups=groups), whole)


def wide_rows(n_rows, n_features=500_000, n_stored=50):
    """Return CSR rows of a vocabulary that is much larger than their words."""
    rng = np.random.default_rng(0)
    columns = rng.integers(0, n_features, size=(n_rows, n_stored))
    data = rng.integers(1, 4, size=n_rows * n_stored).astype(np.float64)
    indptr = n_stored * np.arange(n_rows + 1)
    X = sparse.csr_array((data, columns.ravel(), indptr), shape=(n_rows, n_features))
    X.sum_duplicates()
    return X


def test_sparse_sets_cost_what_they_store():
    X = wide_rows(20_000)
    groups = np.arange(20_000) // 2
    space = VectorSpace(X, X)
    assert len(list(space.blocks(sets_of_one(np.arange(20_000))))) <= 2

    def seconds(function):
        start = time.process_time()
        function()
        return time.process_time() - start

    memory = MemoryVectorQuery().fit(X)
    cosine = CosineSimilarity().fit(X)
    by_cosine = seconds(lambda: cosine.transform(X))
    assert seconds(lambda: memory.transform(X)) < 20 * by_cosine + 0.1
    assert seconds(lambda: memory.transform(X, groups)) < 20 * by_cosine + 0.1


def test_sparse_sets_match_dense_ones(rng):
    X = wide_rows(60, n_features=30, n_stored=5)
    groups = rng.integers(0, 15, size=60)
    for alpha in (0, 3.0):
        memory = MemoryVectorQuery(alpha=alpha).fit(X)
        M = memory.transform(X, groups)
        assert M.has_canonical_format
        assert_allclose(M.toarray(), memory.transform(X.toarray(), groups), atol=1e-9)


def test_storage_of_sets_does_not_matter(counts):
    X, _ = counts
    groups = np.arange(66) % 20
    memory = MemoryVectorQuery(CosineSimilarity()).fit(X)
    expected = memory.similarity(X.toarray(), groups=groups)
    for name, Z in storage_states(X).items():
        S = memory.similarity(Z, groups=groups)
        assert_allclose(S, expected, rtol=1e-9, atol=1e-12, err_msg=name)


def test_empty_queries_have_no_part_in_the_vector():
    X = np.array([[0.0, 0, 0], [1, 0, 0], [0, 0, 0]])
    memory = MemoryVectorQuery(alpha=0).fit(X)
    assert_allclose(memory.transform(X, [0, 0, 1]), [[1, 0, 0], [0, 0, 0]])
    assert_array_equal(memory.transform(X), X)


def test_unnormalised_queries(rng):
    X = rng.standard_normal((4, 10))
    memory = MemoryVectorQuery(alpha=0, normalize=False).fit(X)
    assert_allclose(memory.similarity(X, groups=np.zeros(4)), np.ones((1, 4)))
    assert_array_equal(memory.transform_database(X), X)
    assert_allclose(memory.transform(X), X / (X**2).sum(axis=1, keepdims=True))


# -- other ways to pool, other similarities --


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("base", [None, CosineSimilarity()])
def test_pooling_of_scores(base, container, counts, dtype):
    X = counts[0].toarray().astype(dtype)
    Q, D, groups = X[:12], X[12:], np.arange(12) % 5
    base = base or CosineSimilarity(use_idf=False)
    single = base.fit(X).similarity(Q, D)
    for method, pool in [("sum", np.sum), ("average", np.mean), ("max", np.max)]:
        memory = MemoryVectorQuery(base, method=method).fit(container(X))
        S = memory.similarity(container(Q), container(D), groups)
        expected = [pool(single[groups == g], axis=0) for g in range(5)]
        assert S.dtype == dtype
        assert_allclose(S, expected, rtol=1e-5, atol=1e-6)


def test_maximum_has_a_vector_for_single_queries_only(rng):
    X = rng.standard_normal((6, 4))
    memory = MemoryVectorQuery(method="max").fit(X)
    assert_allclose(
        memory.transform(X) @ memory.transform_database(X).T, memory.similarity(X)
    )
    with pytest.raises(ValueError, match="maximum of scores is not an inner product"):
        memory.transform(X, np.zeros(6))


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_memory_of_another_similarity(container, counts):
    X = counts[0].toarray()
    groups = np.arange(66) % 20
    base = CosineSimilarity().fit(X)
    memory = MemoryVectorQuery(CosineSimilarity(), alpha=0).fit(container(X))
    S = memory.similarity(container(X), groups=groups)
    w, grams = memory.query_weights(container(X), groups, return_gram=True)
    for g in range(20):
        K = base.similarity(X[groups == g])
        assert_allclose(grams[g], K, atol=1e-12)
        assert_allclose(w[groups == g], np.linalg.solve(K, np.ones(len(K))))
        assert_allclose(S[g], w[groups == g] @ base.similarity(X[groups == g], X))
        assert_allclose(S[g, groups == g], 1)


class Bilinear(EncodedSimilarityMixin, BaseEstimator):
    """x' W y with a W that is neither symmetric nor positive."""

    W = np.array([[2.0, 1.0], [-0.5, 0.1]])

    def fit(self, X, y=None):
        self._check_rows(X, reset=True)
        self.encoder_ = BilinearEncoder()
        return self


class BilinearEncoder(Encoder):
    def queries(self, X):
        return X @ Bilinear.W.astype(X.dtype)

    def items(self, X):
        return X


def test_both_directions_of_an_asymmetric_similarity_count_alike():
    X = np.array([[1.0, 0.0], [1.0, 2.0]])
    memory = MemoryVectorQuery(Bilinear(), alpha=0, normalize=False).fit(X)
    w, grams = memory.query_weights(X, [0, 0], return_gram=True)
    K = X @ Bilinear.W @ X.T
    assert_allclose(grams[0], (K + K.T) / 2)
    assert_allclose(w, np.linalg.solve((K + K.T) / 2, [1, 1]))
    assert_allclose(memory.transform(X, [0, 0]), [w @ X @ Bilinear.W])


class Negative(BaseEstimator):
    """Similarity that falls with the distance, which is not a kernel."""

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def similarity(self, X, Y=None):
        return -np.abs(X[:, None] - (X if Y is None else Y)).sum(axis=2)


@pytest.mark.parametrize("base", [Negative(), AsymmetricSimilarity(lam=1.0)])
def test_negative_kernel_matrices_fall_back_to_the_sum(base):
    X = np.array([[1.0, 0], [3, 4], [1, 1], [1, 1]])
    memory = MemoryVectorQuery(base, alpha=0).fit(X)
    single = Negative().similarity(X)
    assert_allclose(memory.query_weights(X, [0, 0, 1, 1]), 1)
    assert_allclose(memory.similarity(X, X), single)
    expected = [single[:2].sum(axis=0), single[2:].sum(axis=0)]
    assert_allclose(memory.similarity(X, X, [0, 0, 1, 1]), expected)


def test_negative_eigenvalues_are_left_out():
    # The eigenvalues are 2.1, 1 and -0.1. The vector of ones is the first eigenvector.
    u = np.array([[1, 1, 1], [1, -1, 0], [1, 1, -2]]) / np.sqrt([[3], [2], [6]])
    K = u.T @ np.diag([2.1, 1, -0.1]) @ u
    memory = MemoryVectorQuery("precomputed", alpha=0, normalize=False).fit(K)
    assert_allclose(memory.query_weights(K, [0, 0, 0]), 1 / 2.1)


def test_selective_match_kernel_as_the_similarity(rng):
    X = rng.standard_normal((9, 24)) * np.repeat(rng.random((9, 3)) < 0.8, 8, axis=1)
    X[:, 0] += 0.1
    groups = np.arange(9) % 2
    kernel = SelectiveMatchKernel(n_dims=8, binarize=False, selectivity=2.0).fit(X)
    memory = MemoryVectorQuery(kernel, alpha=0).fit(X)
    S = memory.similarity(X[:6], X, groups[:6])
    for g in range(2):
        rows = np.flatnonzero(groups[:6] == g)
        w = np.linalg.solve(kernel.similarity(X[rows]), np.ones(len(rows)))
        assert_allclose(memory.query_weights(X[:6], groups[:6])[rows], w)
        assert_allclose(S[g], w @ kernel.similarity(X[rows], X))
        assert_allclose(S[g, rows], 1)
    with pytest.raises(ValueError, match="is not an inner product"):
        memory.transform(X)
    assert not hasattr(memory, "transform_database")
    y = np.arange(9) % 3
    assert memory.score(X, y) == pytest.approx(kernel.score(X, y))


def test_precomputed_similarities(rng):
    X = unit_rows(rng, 12, 30)
    K, groups = X @ X.T, np.arange(12) % 4
    vectors = MemoryVectorQuery(alpha=0).fit(X)
    memory = MemoryVectorQuery("precomputed", alpha=0).fit(K)
    assert get_tags(memory).input_tags.pairwise
    assert_allclose(memory.query_weights(K, groups), vectors.query_weights(X, groups))
    expected = vectors.similarity(X, groups=groups)
    assert_allclose(memory.similarity(K, groups=groups), expected)
    W = memory.transform(K, groups)
    assert_allclose(W @ memory.transform_database(K).T, expected)
    assert_array_equal(W != 0, groups == np.arange(4)[:, None])

    # Items are known by their similarities to the queries.
    Y = unit_rows(rng, 5, 30)
    assert_allclose(
        memory.similarity(K, Y @ X.T, groups), vectors.similarity(X, Y, groups)
    )
    y = np.arange(12) % 2
    assert memory.score(K, y, groups=groups) == vectors.score(X, y, groups=groups)
    assert memory.score(K, y) == pytest.approx(vectors.score(X, y))
    for call in (memory.fit, memory.transform):
        with pytest.raises(ValueError, match=r"square matrix.*got shape \(5, 12\)"):
            call(K[:5])


def test_frozen_base_is_not_fitted_again(counts):
    X, _ = counts
    base = CosineSimilarity().fit(X)
    memory = MemoryVectorQuery(FrozenEstimator(base)).fit(X[:10])
    assert_allclose(memory.similarity(X[:3], X), base.similarity(X[:3], X))


def test_base_that_learns_from_labels_asks_for_them():
    class Supervised(CosineSimilarity):
        def __sklearn_tags__(self):
            tags = super().__sklearn_tags__()
            tags.target_tags.required = True
            tags.input_tags.positive_only = True
            return tags

    tags = get_tags(MemoryVectorQuery(Supervised()))
    assert tags.target_tags.required
    assert tags.input_tags.positive_only
    assert not get_tags(MemoryVectorQuery(alpha=0)).target_tags.required


def test_gram_matrices_for_display(rng):
    X = rng.standard_normal((7, 5))
    groups = np.array(["b", "a", "b", "b", "a", "c", "b"])
    weights, grams = (
        MemoryVectorQuery(alpha=0).fit(X).query_weights(X, groups, return_gram=True)
    )
    unit = normalize(X)
    for name, K in zip("abc", grams, strict=True):
        assert_allclose(K, unit[groups == name] @ unit[groups == name].T)
        assert_allclose(K @ weights[groups == name], 1)


# -- groups --


def test_sets_are_sorted_whatever_their_names(rng):
    X = rng.standard_normal((5, 8))
    memory = MemoryVectorQuery(alpha=0).fit(X)
    expected = [memory_vector(X[[1, 3]]), memory_vector(X[[0, 2, 4]])]
    for groups in (
        ["z", "b", "z", "b", "z"],
        [7, -1, 7, -1, 7],
        [0.5, 0.25, 0.5, 0.25, 0.5],
        [True, False, True, False, True],
        pd.Series(["z", "b", "z", "b", "z"], dtype="category"),
    ):
        assert_allclose(memory.transform(X, groups), expected)
        assert_allclose(memory.similarity(X, X, groups)[0, [1, 3]], 1)


def test_without_groups_each_query_is_a_set(rng, dtype):
    X = rng.standard_normal((6, 4)).astype(dtype)
    memory = MemoryVectorQuery(alpha=0).fit(X)
    assert_allclose(memory.transform(X), normalize(X), rtol=1e-6)
    assert_array_equal(memory.transform(X), memory.transform(X, np.arange(6)))


def test_frames_are_indexed_by_group(rng):
    X = pd.DataFrame(rng.standard_normal((5, 3)), index=list("vwxyz"))
    groups = pd.Series(["q2", "q1", "q2", "q1", "q2"], index=X.index, name="query")
    plain = MemoryVectorQuery(alpha=0).fit_transform(X.to_numpy(), groups=groups)

    memory = MemoryVectorQuery(alpha=0).set_output(transform="pandas")
    for frame in (
        memory.fit_transform(X, groups=groups),
        memory.transform(X, groups=groups),
    ):
        assert frame.index.tolist() == ["q1", "q2"]
        assert frame.index.name == "query"
        assert frame.columns.tolist() == [f"memoryvectorquery{i}" for i in range(3)]
        assert_array_equal(frame.to_numpy(), plain)
    assert memory.transform(X).index.equals(X.index)

    memory.set_output(transform="polars")
    frame = memory.transform(X, groups)
    assert isinstance(frame, pl.DataFrame)
    assert_array_equal(frame.to_numpy(), plain)


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ([0, 0, 1], ValueError, "got 3 and 4"),
        ([[0, 1], [0, 1]], ValueError, "1d array"),
        ([0.0, np.nan, 1, 1], ValueError, "groups contains NaN"),
        (np.array(["a", None, "b", "b"], dtype=object), ValueError, "NaN or None"),
        (np.array(["a", 1, "b", 2], dtype=object), TypeError, "groups mixes labels"),
    ],
)
def test_bad_groups_are_refused(groups, error, message):
    X = np.eye(4)
    memory = MemoryVectorQuery(alpha=0).fit(X)
    for call in (memory.transform, memory.query_weights):
        with pytest.raises(error, match=message):
            call(X, groups)


# -- membership --


def test_membership_ratio_matches_the_densities(rng):
    X, Y = unit_rows(rng, 9, 50), unit_rows(rng, 20, 50)
    groups = np.array([0] * 5 + [1] * 3 + [2])
    n = np.array([5, 3, 1])[:, None]
    rho = 0.4

    for method, divisor in [("sum", 1), ("average", n)]:
        memory = MemoryVectorQuery(method=method).fit(X)
        score, ratio = memory.membership(X, Y, groups, cosine=rho)
        assert_allclose(score, memory.similarity(X, Y, groups))
        related = np.where(n > 1, n - 1, 1 - rho**2)
        expected = stats.norm.logpdf(
            score, rho / divisor, np.sqrt(related / 50) / divisor
        )
        expected -= stats.norm.logpdf(score, 0, np.sqrt(n / 50) / divisor)
        assert_allclose(ratio, expected)

    memory = MemoryVectorQuery(alpha=0).fit(X)
    score, ratio = memory.membership(X, Y, groups, cosine=rho)
    deviation = np.linalg.norm(memory.transform(X, groups), axis=1)[:, None] / np.sqrt(
        50
    )
    expected = stats.norm.logpdf(score, rho, np.sqrt(1 - rho**2) * deviation)
    expected -= stats.norm.logpdf(score, 0, deviation)
    assert_allclose(ratio, expected)
    from_sparse = memory.membership(sparse.csr_array(X), Y, groups, cosine=rho)
    assert_allclose(from_sparse[1], ratio)


def test_membership_under_a_ridge_expects_what_the_queries_score(rng):
    X = unit_rows(rng, 5, 50)
    memory = MemoryVectorQuery(alpha=2.0).fit(X)
    score, ratio = memory.membership(X, X, np.zeros(5), cosine=0.9)
    mean, deviation = (
        0.9 * score.mean(),
        np.linalg.norm(memory.transform(X, np.zeros(5))),
    )
    deviation /= np.sqrt(50)
    expected = stats.norm.logpdf(score, mean, np.sqrt(1 - 0.81) * deviation)
    assert_allclose(ratio, expected - stats.norm.logpdf(score, 0, deviation))


def test_membership_of_an_empty_set_is_undecided():
    X = np.zeros((1, 3))
    score, ratio = MemoryVectorQuery().fit(X).membership(X, np.eye(3))
    assert_array_equal(score, np.zeros((1, 3)))
    assert_array_equal(ratio, np.zeros((1, 3)))


def test_distributions_of_the_scores(rng):
    """(sum-h1) to (memory-h2) by simulation; the tests reject at 1 in 100."""
    n_sets, n, d, rho = 4000, 5, 512, 0.5
    X = unit_rows(rng, n_sets, n, d)
    unrelated, z = unit_rows(rng, 2, n_sets, d)
    groups = np.repeat(np.arange(n_sets), n)

    def vectors(method):
        memory = MemoryVectorQuery(method=method, alpha=0)
        return memory.fit_transform(X.reshape(-1, d), groups=groups)

    def p_value(M, Y, mean, variance):
        score = (np.einsum("ij,ij->i", M, Y) - mean) / np.sqrt(variance)
        return stats.kstest(score, "norm").pvalue

    # The formulas of the sum assume that z is orthogonal to the query.
    x = X[:, 0]
    aside = z - np.einsum("ij,ij->i", z, x)[:, None] * x
    aside /= np.linalg.norm(aside, axis=1, keepdims=True)
    related = rho * x + np.sqrt(1 - rho**2) * aside
    total = vectors("sum")
    assert p_value(total, unrelated, 0, n / d) > 0.01
    assert p_value(total, related, rho, (n - 1) / d) > 0.01

    # The formulas of the memory vector assume that z has any direction.
    m = vectors("memory")
    norm2 = np.einsum("ij,ij->i", m, m)
    assert p_value(m, unrelated, 0, norm2 / d) > 0.01
    free = rho * x + np.sqrt(1 - rho**2) * z
    assert p_value(m, free, rho, (1 - rho**2) * norm2 / d) > 0.01
    # If z is orthogonal to the query, the variance is smaller, since x' m = 1.
    assert p_value(m, related, rho, (1 - rho**2) * norm2 / d) < 1e-3
    assert p_value(m, related, rho, (1 - rho**2) * (norm2 - 1) / (d - 1)) > 0.01


def test_membership_needs_directions(rng):
    X = np.eye(3)
    for memory in (
        MemoryVectorQuery(CosineSimilarity(), alpha=0),
        MemoryVectorQuery(alpha=0, normalize=False),
    ):
        with pytest.raises(ValueError, match="base_similarity=None and normalize=True"):
            memory.fit(X).membership(X, X)
    with pytest.raises(ValueError, match='not available for method="max"'):
        MemoryVectorQuery(method="max").fit(X).membership(X, X)
    with pytest.raises(ValueError, match="'cosine' parameter"):
        MemoryVectorQuery().fit(X).membership(X, X, cosine=1.0)


# -- score --


def naive_score(X, y, sets):
    """Return scikit-learn's average precision of sets that query all other items."""
    unit, values = normalize(X), []
    for rows in sets:
        outside = np.setdiff1d(np.arange(len(X)), rows)
        score = unit[outside] @ memory_vector(X[rows])
        values.append(average_precision_score(y[outside] == y[rows[0]], score))
    return values


def test_score_of_given_sets(rng):
    y = np.repeat([0, 1, 2, -1], [12, 9, 7, 8])
    X = rng.standard_normal((36, 20)) + rng.standard_normal((4, 20))[y]
    groups = np.arange(36) // 3 * (y >= 0)  # distractors in group 0 do not query
    groups[:3] = 99
    memory = MemoryVectorQuery(alpha=0).fit(X)
    sets = [np.flatnonzero((groups == g) & (y >= 0)) for g in np.unique(groups[y >= 0])]
    sets = [rows for rows in sets if len(set(y[rows])) == 1]
    used = np.zeros(36, dtype=bool)
    used[np.concatenate(sets)] = True
    values = naive_score(X, y, sets)
    score = memory.score(X, y, groups=groups, query_mask=used)
    assert score == pytest.approx(np.mean(values), abs=1e-12)

    weight = np.where(used, rng.random(36), 0)
    expected = np.average(values, weights=[weight[rows].mean() for rows in sets])
    assert memory.score(X, y, weight, groups=groups) == pytest.approx(
        expected, abs=1e-12
    )


@pytest.mark.parametrize("dtype", [np.int64, np.float64, object])
def test_samples_of_group_minus_one_do_not_query(dtype, rng):
    y = np.repeat([0, 1, 2], 6)
    X = rng.standard_normal((18, 10)) + rng.standard_normal((3, 10))[y]
    groups = np.where(np.arange(18) % 6 < 4, np.arange(18) // 2, -1)
    sets = [np.flatnonzero(groups == g) for g in np.unique(groups) if g >= 0]
    score = MemoryVectorQuery(alpha=0).fit(X).score(X, y, groups=groups.astype(dtype))
    assert score == pytest.approx(np.mean(naive_score(X, y, sets)), abs=1e-12)


def test_score_with_a_relevance_matrix(rng):
    X = rng.standard_normal((9, 30))
    Y = np.zeros((9, 3))
    Y[[0, 1, 4], 0] = 1
    Y[[0, 1, 5], 1] = 1
    Y[[0, 6], 2] = 1  # not a column of sample 1, so not of the set {0, 1}
    Y[7, 0] = -1  # junk for that set
    groups = [0, 0] + list(range(1, 8))
    mask = np.arange(9) < 2
    m = memory_vector(X[:2])
    items = [2, 3, 4, 5, 6, 8]
    expected = average_precision_score(np.isin(items, [4, 5]), normalize(X)[items] @ m)
    score = (
        MemoryVectorQuery(alpha=0).fit(X).score(X, Y, groups=groups, query_mask=mask)
    )
    assert score == pytest.approx(expected)


def test_drawn_sets_are_scored_by_any_measure():
    X, y = load_digits(n_class=6, return_X_y=True)
    X, y = X[:300], y[:300]
    groups = make_query_sets(y, size=5, random_state=0)
    sets = [np.flatnonzero(groups == g) for g in range(groups.max() + 1)]
    X = PCA(16, random_state=0).fit_transform(X)
    memory = MemoryVectorQuery(alpha=0).fit(X)
    values = naive_score(X, y, sets)
    assert memory.score(X, y, groups=groups) == pytest.approx(np.mean(values))
    assert RetrievalScorer("precision", k=1)(memory, X, y, groups=groups) > 0.9


def test_without_groups_the_score_is_that_of_the_other_learners(blobs):
    X, y = blobs
    cosine = CosineSimilarity(use_idf=False).fit(X)
    for method in ("memory", "sum", "average", "max"):
        memory = MemoryVectorQuery(method=method).fit(X)
        expected = pytest.approx(map_scorer(cosine, X, y))
        assert memory.score(X, y) == expected
        assert memory.score(X, y, groups=np.arange(90)) == expected


@pytest.mark.parametrize("method", ["memory", "sum", "average", "max"])
def test_several_queries_find_more_than_one(method):
    X, y = load_digits(n_class=6, return_X_y=True)
    memory = MemoryVectorQuery(method=method).fit(X)
    groups = make_query_sets(y, size=5, random_state=0)
    assert memory.score(X, y, groups=groups) > memory.score(X, y) + 0.05


def test_the_ridge_helps_where_queries_are_many_for_the_dimensions():
    # Without a ridge, the vector of five queries in four dimensions fits noise.
    X, y = load_digits(n_class=5, return_X_y=True)
    X = PCA(4, random_state=0).fit_transform(X[:500])
    groups = make_query_sets(y[:500], size=5, random_state=0)
    default, plain = (
        memory.fit(X).score(X, y[:500], groups=groups)
        for memory in (MemoryVectorQuery(), MemoryVectorQuery(alpha=0))
    )
    assert plain < default - 0.05


def test_score_refuses_ambiguous_arguments(rng):
    X, y = rng.standard_normal((6, 10)), np.array([0, 0, 0, 1, 1, 1])
    memory = MemoryVectorQuery().fit(X)
    with pytest.raises(ValueError, match="not relevant to each other"):
        memory.score(X, y, groups=[0, 0, 1, 1, 2, 2])
    with pytest.raises(ValueError, match="There is no query"):
        memory.score(X, y, query_mask=np.zeros(6, dtype=bool))
    with pytest.raises(ValueError, match="There is no query"):
        memory.score(X, y, groups=np.full(6, -1))
    with pytest.raises(ValueError, match="No query has a relevant item"):
        memory.score(X, y, groups=y)
    with pytest.raises(ValueError, match="StratifiedKFold"):
        memory.score(X, [0] * 6)
    with pytest.raises(ValueError, match="got 3 and 6"):
        memory.score(X, y, groups=[0, 0, 1])


# -- scikit-learn --


@parametrize_with_checks(
    [
        MemoryVectorQuery(),
        MemoryVectorQuery(alpha=1.0, normalize=False),
        MemoryVectorQuery(method="max"),
    ]
)
def test_sklearn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "memory",
    [
        MemoryVectorQuery(),
        MemoryVectorQuery(CosineSimilarity()),
        MemoryVectorQuery(method="max"),
    ],
)
def test_contract_of_the_learners(memory):
    check_learner(memory)


@pytest.mark.parametrize(
    "params",
    [
        {"base_similarity": "cosine"},
        {"base_similarity": PCA()},
        {"method": "median"},
        {"alpha": -0.1},
        {"normalize": "l2"},
    ],
)
def test_bad_parameters_are_named(params):
    with pytest.raises(ValueError, match=f"'{next(iter(params))}' parameter"):
        MemoryVectorQuery(**params).fit(np.eye(3))


def test_groups_are_routed_through_a_pipeline(rng):
    X = rng.standard_normal((40, 12))
    y = np.arange(40) % 4
    groups = np.arange(40) % 8
    scaled = MaxAbsScaler().fit_transform(X)
    plain = MemoryVectorQuery().fit(scaled)
    with sklearn.config_context(enable_metadata_routing=True):
        memory = (
            MemoryVectorQuery()
            .set_transform_request(groups=True)
            .set_score_request(groups="sets")
        )
        model = make_pipeline(MaxAbsScaler(), memory)
        M = model.fit(X, y).transform(X, groups=groups)
        assert_array_equal(M, plain.transform(scaled, groups))
        assert_array_equal(model.fit_transform(X, y, groups=groups), M)
        score = model.score(X, y, sets=groups)
        assert score == plain.score(scaled, y, groups=groups)
        assert score != plain.score(scaled, y)


def test_search_scores_the_sets_it_is_given(rng):
    y = np.arange(48) % 4
    X = rng.standard_normal((48, 12)) + 0.5 * rng.standard_normal((4, 12))[y]
    groups = np.arange(48) % 12
    cv = StratifiedKFold(2)
    with sklearn.config_context(enable_metadata_routing=True):
        memory = MemoryVectorQuery().set_score_request(groups=True)
        search = GridSearchCV(
            make_pipeline(MaxAbsScaler(), memory),
            {"memoryvectorquery__method": ["memory", "sum"]},
            cv=cv,
        ).fit(X, y, groups=groups)
        values = []
        for train, test in cv.split(X, y):
            scaler = MaxAbsScaler().fit(X[train])
            memory = MemoryVectorQuery().fit(scaler.transform(X[train]))
            part = scaler.transform(X[test])
            values.append(memory.score(part, y[test], groups=groups[test]))
        assert search.cv_results_["mean_test_score"][0] == pytest.approx(
            np.mean(values)
        )
