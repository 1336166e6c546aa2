"""Items with sparse and dense columns: the search is exact.

`SIMLEARN_HYBRID_STATES=10000 pytest --timeout=0 tests/index/backends/test_hybrid.py`
draws 10,000 random states.
"""

import os

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from sklearn_simlearn._core.storage import DamagedError
from sklearn_simlearn.compose import SimilarityUnion
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.index.backends import _dense_grades
from sklearn_simlearn.index.backends._hybrid import HybridItems
from sklearn_simlearn.similarities import CosineSimilarity

N_STATES = int(os.environ.get("SIMLEARN_HYBRID_STATES", 150))


def draw_part(rng, shape, is_dense):
    """Return random numbers, some of which are outliers, tiny, constant or equal."""
    X = rng.standard_normal(shape)
    kind = rng.choice(["plain", "outliers", "tiny", "huge", "constant", "ties", "one"])
    if kind == "outliers":
        X[rng.random(shape) < 0.02] *= 1e3
    elif kind == "tiny":
        X *= 1e-15
    elif kind == "huge":
        X *= 1e12
    elif kind == "constant":
        X[:] = X[:1]
    elif kind == "ties":
        X = np.rint(X)
    elif kind == "one":
        X[:, 0] *= 1e4
    if rng.random() < 0.3:
        X = np.abs(X)
    if not is_dense:
        X[rng.random(shape) > rng.choice([0.05, 0.3, 0.9])] = 0
    return X


def draw_state(rng):
    """Return items and queries as CSR, and the mask of dense columns."""
    dtype = rng.choice([np.float32, np.float64])
    n_items, n_queries = int(rng.integers(1, 300)), int(rng.integers(1, 20))
    n_words, n_dense = int(rng.integers(1, 40)), int(rng.choice([1, 3, 16, 40]))
    is_dense = rng.permutation(np.arange(n_words + n_dense) < n_dense)
    X = np.empty((n_items + n_queries, n_words + n_dense))
    X[:, is_dense] = draw_part(rng, (len(X), n_dense), True)
    X[:, ~is_dense] = draw_part(rng, (len(X), n_words), False)
    X = sparse.csr_array(X.astype(dtype))
    return X[:n_items], X[n_items:], is_dense


def check_exact(items, D, Q, rng):
    """Compare searches with a search of all items, and this search with NumPy."""
    n_items = items.n_items
    k = int(rng.integers(1, 15))
    alive = np.ones(n_items, dtype=bool)
    removed = np.flatnonzero(rng.random(n_items) < 0.2)
    items.remove(removed)
    alive[removed] = False
    scores, rows = items.search(Q, n_items)
    D, Q_full = D.toarray().astype(np.float64), Q.toarray().astype(np.float64)
    S = Q_full @ D.T
    error = 64 * np.finfo(items.dtype).eps * (np.abs(Q_full) @ np.abs(D).T)
    for i in range(Q.shape[0]):
        n_found = alive.sum()
        found = rows[i, :n_found]
        assert_array_equal(np.sort(found), np.flatnonzero(alive))
        assert (np.abs(scores[i, :n_found] - S[i, found]) <= error[i, found]).all()
    allowed = rng.random(n_items) < rng.choice([0.01, 0.3, 1])
    listed = [np.flatnonzero(rng.random(n_items) < 0.1) for _ in range(Q.shape[0])]
    excluded = np.concatenate([[0], np.cumsum([len(part) for part in listed])])
    some, some_rows = items.search(
        Q,
        k,
        allowed=allowed,
        excluded=(excluded, np.concatenate(listed)),
        n_threads=int(rng.integers(1, 3)),
    )
    for i in range(Q.shape[0]):
        # Equal to the last bit, also in the order of ties.
        is_kept = (rows[i] >= 0) & allowed[rows[i]] & ~np.isin(rows[i], listed[i])
        best = np.flatnonzero(is_kept)[:k]
        n_found = len(best)
        assert_array_equal(some[i, :n_found], scores[i, best])
        assert_array_equal(some_rows[i, :n_found], rows[i, best])
        assert (some[i, n_found:] == -np.inf).all()


def test_search_is_exact_in_random_states():
    for seed in range(N_STATES):
        rng = np.random.default_rng(seed)
        D, Q, is_dense = draw_state(rng)
        length = int(rng.choice([9, 64, 100, 65536]))
        items = HybridItems(D[:1], is_dense=is_dense, block_length=length)
        first = 1
        while first < D.shape[0]:
            last = min(D.shape[0], first + int(rng.integers(1, 200)))
            items.add(D[first:last])
            first = last
        try:
            check_exact(items, D, Q, rng)
        except AssertionError as error:
            raise AssertionError(f"state {seed}") from error


@pytest.mark.parametrize("kind", ["plain", "outliers", "near ties"])
def test_one_query_uses_graded_codes(kind, dtype, rng, monkeypatch):
    # Codes of few bits, which leave large errors, for blocks of any size.
    monkeypatch.setattr(_dense_grades, "SMALLEST_BLOCK", 1)
    monkeypatch.setattr(_dense_grades, "ITEMS_PER_FEATURE", 0)
    grades = np.array([5, 20, 30])
    monkeypatch.setattr(_dense_grades, "_choose_grades", lambda *args: grades)
    X = rng.standard_normal((3_004, 104)) * 0.95 ** np.arange(104)
    if kind == "outliers":
        X[rng.random(len(X)) < 0.01] *= 50
    elif kind == "near ties":
        X[:, 30:] = X[0, 30:] + 1e-6 * X[:, 30:]
    X[:, :30][rng.random((len(X), 30)) < 0.8] = 0
    X = sparse.csr_array(X.astype(dtype))
    items = HybridItems(X[4:], is_dense=np.arange(104) >= 30, block_length=1_000)
    assert items.to_arrays()["dense_graded_0"].size > 0
    everything, rows = items.search(X[:4], 3_000)
    opened = HybridItems.from_arrays(items.to_arrays())
    for k in (1, 10, 300):
        for query in range(4):
            found = opened.search(X[[query]], k)
            assert_array_equal(found[0][0], everything[query, :k])
            assert_array_equal(found[1][0], rows[query, :k])


def test_bounds_of_outliers_are_close(rng, monkeypatch):
    monkeypatch.setattr(_dense_grades, "SMALLEST_BLOCK", 1)
    monkeypatch.setattr(_dense_grades, "ITEMS_PER_FEATURE", 0)
    grades = np.array([5, 20, 30])
    monkeypatch.setattr(_dense_grades, "_choose_grades", lambda *args: grades)
    X = rng.standard_normal((3_001, 100)).astype(np.float32)
    X[1_500] *= 50
    items = HybridItems(sparse.csr_array(X[1:]), is_dense=np.arange(100) >= 10)
    ((_, block),) = items._dense._read()
    outliers = block[-1]
    assert 1_499 in outliers
    dense, found = items._find_dense(X[:1, 10:].copy())(items._open()[0], False)
    scores = dense @ X[0, 10:]
    bounds, (_, top, unit, error) = np.asarray(found.bounds), found.ranges[0]
    assert (bounds[0, :3_000] * unit + error >= scores).all()
    assert bounds[0, :3_000].max() == top
    assert_allclose(bounds[0, outliers] * unit, scores[outliers], rtol=1e-4)


def test_many_items_in_several_blocks(rng):
    Q = rng.random((6, 40))
    D = rng.standard_normal((20_000, 40)).astype(np.float32)
    D[:, :20][rng.random((20_000, 20)) < 0.8] = 0
    D, Q = sparse.csr_array(D), sparse.csr_array(Q.astype(np.float32))
    items = HybridItems(D, is_dense=np.arange(40) >= 20, block_length=7000)
    check_exact(items, D, Q, rng)


def test_arrays_are_restored_and_checked(rng):
    D, Q, is_dense = draw_state(np.random.default_rng(3))
    items = HybridItems(D, is_dense=is_dense)
    arrays = items.to_arrays()
    assert_array_equal(HybridItems.from_arrays(arrays).search(Q, 5), items.search(Q, 5))
    assert_array_equal(items.take(np.arange(D.shape[0])).toarray(), D.toarray())
    for name, array in [
        ("is_dense", is_dense[1:]),
        ("is_dense", ~is_dense),
        ("is_dense", is_dense.astype(np.int64)),
        ("dense_items_0", arrays["dense_items_0"][:, 1:]),
        ("dense_alive", arrays["dense_alive"][1:]),
        ("words_0", arrays["words_0"] + 1000),
    ]:
        with pytest.raises(DamagedError):
            HybridItems.from_arrays(arrays | {name: array}).search(Q, 5)
    with pytest.raises(DamagedError):
        HybridItems.from_arrays({n: a for n, a in arrays.items() if n != "is_dense"})


def test_a_union_is_searched_in_one_pass(rng, tmp_path):
    X = np.abs(rng.standard_normal((500, 60)))
    X[:, :30][rng.random((500, 30)) < 0.8] = 0
    union = SimilarityUnion(
        [
            ("words", SparseCosine(), slice(0, 30)),
            ("vectors", CosineSimilarity(use_idf=False), slice(30, 60)),
        ]
    ).fit(X)
    index = SimilarityIndex(union).fit(X)
    assert index.backend_ == "hybrid"
    S = union.similarity(X[:9], X)
    scores, ids = index.search(X[:9], 20)
    assert_allclose(scores, -np.sort(-S, axis=1)[:, :20])
    assert_allclose(np.take_along_axis(S, ids, axis=1), scores)
    index.save(tmp_path, include_estimator=False)
    opened = SimilarityIndex.load(tmp_path, estimator=union)
    assert opened.backend_ == "hybrid"
    assert_array_equal(opened.search(X[:9], 20), (scores, ids))
    inverted = SimilarityIndex(union, backend="inverted").fit(X)
    assert_allclose(inverted.search(X[:9], 20).scores, scores)
    with pytest.raises(ValueError, match="'hybrid' requires a SimilarityUnion"):
        SimilarityIndex(CosineSimilarity(use_idf=False), backend="hybrid").fit(X)


class SparseCosine(CosineSimilarity):
    """Cosine whose encodings are sparse for all samples."""

    def __init__(self):
        super().__init__(use_idf=False)

    def fit(self, X, y=None):
        return super().fit(sparse.csr_array(X), y)

    def _check_rows(self, X, *, reset=False):
        return super()._check_rows(sparse.csr_array(X), reset=reset)
