"""AngularBilinearRanker: kernels against formulas, the solver against others, and the
estimator."""

from functools import partial

import numpy as np
import pytest
import sklearn
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from sklearn_simlearn import AngularBilinearRanker, StartKeptWarning
from sklearn_simlearn._core.encoders import mix
from sklearn_simlearn._core.progress import FitCallback
from sklearn_simlearn._core.rows import (
    unit_rows,
)
from sklearn_simlearn.angular import _angular, _candidates, _dual
from sklearn_simlearn.angular._angular_fast import smo
from sklearn_simlearn.angular._grams_fast import (
    Blocks,
    count_kinds,
    grams_csr,
    grams_dense,
)
from sklearn_simlearn.metrics import PairwiseRelevance
from sklearn_simlearn.similarities import CosineSimilarity

# The paper's form: no hold-out, no share of the query.
plain = partial(AngularBilinearRanker, holdout=None)

each_matrix = pytest.mark.parametrize("matrix", ["diagonal", "full"])


def features(q, X, matrix):
    """Return the factor of W as a vector for each row: q * x, or all of q x'."""
    if matrix == "diagonal":
        return X * q
    return np.einsum("i,nj->nij", q, X).reshape(len(X), -1)


def regulariser(d, sigma, matrix):
    """Return A = I - sigma / d 11', or the same around the identity matrix."""
    one = np.ones(d) if matrix == "diagonal" else np.eye(d).ravel()
    return np.eye(len(one)) - sigma / d * np.outer(one, one)


def kappa(sigma, d):
    return sigma / (d * (1 - sigma))


def all_pairs(n_relevant, n_irrelevant):
    i = np.repeat(np.arange(n_relevant, dtype=np.int32), n_irrelevant)
    j = np.tile(np.arange(n_irrelevant, dtype=np.int32), n_relevant) + n_relevant
    return i, j.astype(np.int32)


def run_smo(K, i, j, C, *, tol=1e-3, max_iter=10**5, alpha=None):
    """Run the kernel on one block; return alpha, scores, and the report by name."""
    alpha = np.zeros(len(i)) if alpha is None else alpha
    beta = np.bincount(i, alpha, len(K)) - np.bincount(j, alpha, len(K))
    scores, report = K @ beta, np.empty((1, 5))
    smo(
        K.ravel(),
        np.array([0, K.size]),
        np.array([0, len(K)]),
        i,
        j,
        np.array([0, len(i)]),
        C,
        tol,
        max_iter,
        1,
        alpha,
        scores,
        report,
    )
    names = ["n_steps", "violation", "sum_alpha", "quadratic", "hinge"]
    return alpha, scores, dict(zip(names, report[0], strict=True))


def violation(alpha, gradient, C):
    """Return Eq. 11 of the paper, for each triplet."""
    down = np.where(alpha > 0, np.maximum(gradient, 0), 0)
    up = np.where(alpha < C, np.maximum(-gradient, 0), 0)
    return np.maximum(down, up)


def random_problem(rng, d=7, n_relevant=6, n_irrelevant=5, shift=0.3):
    q = normalize(rng.standard_normal((1, d)))[0]
    X = rng.standard_normal((n_relevant + n_irrelevant, d))
    X[:n_relevant] += shift * q
    return q, normalize(X)


# -- Gram matrices --


@each_matrix
@pytest.mark.parametrize("sigma", [0.0, 0.6, 0.999])
@pytest.mark.parametrize("kind", ["dense", "int32", "int64"])
def test_grams_match_the_numeric_inverse(matrix, sigma, kind, dtype, rng):
    X = rng.standard_normal((12, 5)) * (rng.random((12, 5)) < 0.7)
    X, references = X.astype(dtype), X[:3].astype(dtype)
    sizes, owner = np.array([4, 1, 6]), np.array([2, 0, 1])
    rows = rng.permutation(12)[:11].astype(np.int64)
    offsets, gram_offsets = (
        np.concatenate([[0], np.cumsum(n)]) for n in (sizes, sizes**2)
    )
    out = np.full(gram_offsets[-1], np.nan)
    for array in (X, references, rows):
        array.flags.writeable = False  # joblib hands workers read-only memory maps
    layout = Blocks(owner, rows, offsets, gram_offsets)
    common = (layout, matrix == "diagonal", kappa(sigma, 5), 2, out)
    if kind == "dense":
        grams_dense(X, references, *common)
    else:
        arrays = []
        for part in (sparse.csr_array(X), sparse.csr_array(references)):
            arrays += [part.data, part.indices.astype(kind)]
            arrays += [part.indptr.astype(np.int64)]
        grams_csr(*arrays, 5, *common)

    inverse = np.linalg.inv(regulariser(5, sigma, matrix))
    for b in range(3):
        q = references[owner[b]].astype(np.float64)
        Z = features(q, X[rows[offsets[b] : offsets[b + 1]]].astype(float), matrix)
        actual = out[gram_offsets[b] : gram_offsets[b + 1]].reshape(len(Z), len(Z))
        # Products are computed in float64 for data of any precision.
        assert_allclose(actual, Z @ inverse @ Z.T, rtol=1e-9, atol=1e-9)


# -- solver --


def test_one_triplet_by_hand():
    # z = q * (x_i - x_j) = (1, -1) / sqrt(2), of length 1 and orthogonal to (1, 1): Q
    # is 1 for any sigma, alpha = 1 and w = z, unless C is smaller.
    q = np.array([1.0, 1.0]) / np.sqrt(2)
    X = np.eye(2)
    for sigma in (0.0, 0.9):
        ranker = plain(sigma=sigma, C=5.0)
        ranker.fit_triplets(np.vstack([q, X]), [[0, 1, 2]])
        assert_allclose(ranker.reference_weights_, [[0.5**0.5, -(0.5**0.5)]])
        assert_allclose(ranker.dual_objective_, [0.5])
        assert_allclose(ranker.dual_gap_, [0], atol=1e-15)
        assert_allclose(ranker.angles_, [np.pi / 2])
        ranker.set_params(C=0.25).fit_triplets(np.vstack([q, X]), [[0, 1, 2]])
        assert_allclose(
            ranker.reference_weights_, [[0.125**0.5 / 2, -(0.125**0.5) / 2]]
        )
        assert_allclose(ranker.dual_objective_, [0.25 - 0.25**2 / 2])


def test_one_triplet_that_tilts_towards_the_identity_by_hand():
    # q = (1, 0), z = (1, 0): t = 1, kappa = sigma / (2 (1 - sigma)) = 1/2 at sigma =
    # 1/2, Q = 1 + 1/2, alpha = 2/3, w = alpha (z + kappa (1, 1)) = (1, 1/3).
    X = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    ranker = plain(sigma=0.5).fit_triplets(X, [[0, 1, 2]])
    assert_allclose(ranker.reference_weights_, [[1, 1 / 3]])
    assert_allclose(ranker.dual_objective_, [1 / 3])
    assert_allclose(ranker.angles_, [np.arctan2(1, 1) - np.arctan2(1 / 3, 1)])
    # As a matrix: z = q (x_i - x_j)' = [[1, -1], [0, 0]], Q = 2 + 1/2, alpha = 2/5.
    ranker.set_params(matrix="full").fit_triplets(X, [[0, 1, 2]])
    assert_allclose(ranker.directions_, [[0.4, -0.4]])
    assert_allclose(ranker.identity_weights_, [0.2])
    W = np.array([[0.6, -0.4], [0, 0.2]])
    angle = np.arccos(np.trace(W) / np.linalg.norm(W) / np.sqrt(2))
    assert_allclose(ranker.angles_, [angle])


@each_matrix
@pytest.mark.parametrize("sigma", [0.0, 0.5, 0.95, 0.999])
@pytest.mark.parametrize("C", [1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3])
def test_smo_reaches_the_optimum_of_an_independent_solver(matrix, sigma, C, rng):
    q, X = random_problem(rng)
    Z = features(q, X, matrix)
    A = regulariser(7, sigma, matrix)
    inverse = np.linalg.inv(A)
    i, j = all_pairs(6, 5)
    D = Z[i] - Z[j]
    alpha, _, report = run_smo(Z @ inverse @ Z.T, i, j, C, tol=1e-10)

    # Computed from alpha only, with full matrices.
    assert alpha.min() >= 0
    assert alpha.max() <= C
    w = inverse @ D.T @ alpha
    assert violation(alpha, D @ w - 1, C).max() <= 1e-9
    dual = alpha.sum() - w @ A @ w / 2
    primal = w @ A @ w / 2 + C * np.maximum(0, 1 - D @ w).sum()
    # Weak duality: nothing can be better than `dual` by more than the gap.
    assert primal - dual <= 1e-6 * dual
    assert_allclose(report["sum_alpha"] - report["quadratic"] / 2, dual)
    assert_allclose(report["quadratic"] / 2 + C * report["hinge"], primal)

    # The other solver works on alpha / C, where the box is the unit one.
    Q = D @ inverse @ D.T * C
    other = minimize(
        lambda a: (a @ Q @ a / 2 - a.sum(), Q @ a - 1),
        np.zeros(len(D)),
        jac=True,
        bounds=[(0, 1)] * len(D),
        method="L-BFGS-B",
        options={"maxiter": 10**5, "maxfun": 10**6, "ftol": 1e-15, "gtol": 1e-9},
    )
    assert_allclose(-other.fun * C, dual, rtol=1e-6)


@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
def test_smo_solves_the_problem_of_liblinear(C, rng):
    q, X = random_problem(rng, d=20, n_relevant=12, n_irrelevant=12)
    Z = features(q, X, "diagonal")
    i, j = all_pairs(12, 12)
    D = Z[i] - Z[j]
    _, _, report = run_smo(Z @ Z.T, i, j, C)
    sign = np.where(np.arange(len(D)) % 2, 1, -1)  # LinearSVC needs two classes
    svc = LinearSVC(
        C=C, loss="hinge", fit_intercept=False, tol=1e-6, max_iter=10**6
    ).fit(D * sign[:, None], sign)
    w = svc.coef_[0]
    expected = w @ w / 2 + C * np.maximum(0, 1 - D @ w).sum()
    assert_allclose(report["quadratic"] / 2 + C * report["hinge"], expected, rtol=1e-2)
    dual = report["sum_alpha"] - report["quadratic"] / 2
    assert_allclose(dual, expected, rtol=1e-4)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n_relevant=st.integers(1, 9),
    n_irrelevant=st.integers(1, 9),
    d=st.integers(1, 12),
    log_C=st.floats(-3, 3),
    sigma=st.sampled_from([0.0, 0.3, 0.95, 0.999]),
    coarse=st.booleans(),
)
# Of rank 1 and 2, with a large C: millions of steps without conjugate gradients.
@example(1, 4, 2, 1, 2.0, 0.999, True)
@example(361125004, 5, 9, 2, 3.0, 0.999, True)
@example(852017905, 7, 8, 2, 3.0, 0.999, True)
@example(1046402100, 9, 8, 2, 3.0, 0.999, False)
def test_smo_always_ends_in_an_optimum(
    seed, n_relevant, n_irrelevant, d, log_C, sigma, coarse
):
    rng = np.random.default_rng(seed)
    q, X = random_problem(rng, d, n_relevant, n_irrelevant)
    if coarse:  # with equal, orthogonal and zero candidates
        X = np.rint(2 * X)
    C = 10.0**log_C
    Z = X * q
    inverse = np.linalg.inv(regulariser(d, sigma, "diagonal"))
    i, j = all_pairs(n_relevant, n_irrelevant)
    K = Z @ inverse @ Z.T
    alpha, scores, report = run_smo(K, i, j, C, tol=1e-5)
    assert alpha.min() >= 0
    assert alpha.max() <= C
    beta = np.bincount(i, alpha, len(Z)) - np.bincount(j, alpha, len(Z))
    assert_allclose(scores, K @ beta, atol=1e-6)
    assert violation(alpha, (K @ beta)[i] - (K @ beta)[j] - 1, C).max() <= 1.1e-5
    assert report["violation"] <= 1e-5


def test_smo_on_equal_candidates():
    # All margins are 0 for every w, so every alpha reaches its bound in one sweep.
    i, j = all_pairs(2, 3)
    alpha, scores, report = run_smo(np.zeros((5, 5)), i, j, 2.0)
    assert_array_equal(alpha, 2.0)
    assert_array_equal(scores, 0.0)
    assert report == {
        "n_steps": 6,
        "violation": 0,
        "sum_alpha": 12,
        "quadratic": 0,
        "hinge": 6,
    }


def test_smo_from_its_own_solution_takes_no_step(rng):
    q, X = random_problem(rng)
    i, j = all_pairs(6, 5)
    K = (X * q) @ (X * q).T
    alpha, _, report = run_smo(K, i, j, 10.0)
    assert report["n_steps"] > 0
    again, _, report = run_smo(K, i, j, 10.0, alpha=alpha.copy())
    assert report["n_steps"] == 0
    assert_array_equal(again, alpha)


def test_smo_stops_at_max_iter(rng):
    q, X = random_problem(rng, shift=0)
    i, j = all_pairs(6, 5)
    K = (X * q) @ (X * q).T
    _, _, report = run_smo(K, i, j, 1e3, tol=1e-10, max_iter=1)
    # The limit is checked after a sweep, so the last sweep may exceed it.
    assert len(i) <= report["n_steps"] < 2 * len(i)
    assert report["violation"] > 1e-10


# -- references --


@pytest.fixture
def clusters():
    """Return four classes of 15 samples in 8 dimensions, and 5 distractors."""
    rng = np.random.default_rng(0)
    y = np.concatenate([np.repeat(np.arange(4), 15), np.full(5, -1)])
    means = rng.standard_normal((5, 8))
    means[-1] = 0
    return means[y] + 0.8 * rng.standard_normal((65, 8)), y


def test_medoids_are_samples_and_centers_are_not(clusters):
    X, y = clusters
    unit = normalize(X)
    for references in ("medoids", "random"):
        ranker = plain(references=references, n_references=6, random_state=0).fit(X, y)
        assert_allclose(ranker.reference_queries_, unit[ranker.reference_indices_])
        assert 1 < len(np.unique(ranker.reference_indices_)) <= 6
        assert (y[ranker.reference_indices_] >= 0).all()
    ranker.set_params(references="centers").fit(X, y)
    assert ranker.reference_queries_.shape == (6, 8)
    assert_allclose(np.linalg.norm(ranker.reference_queries_, axis=1), 1)
    S = ranker.reference_queries_ @ unit[y >= 0].T
    assert_array_equal(ranker.reference_indices_, S.argmax(axis=1))


@pytest.mark.parametrize("references", ["medoids", "centers", "random"])
def test_more_references_than_samples_make_all_of_them_references(references, clusters):
    X, y = clusters
    ranker = plain(references=references).fit(X, y)
    assert_array_equal(ranker.reference_indices_, np.flatnonzero(y >= 0))


def test_references_can_be_given_as_rows_or_as_queries(clusters):
    X, y = clusters
    rows = np.array([3, 20, 33])
    by_row = plain(references=rows, random_state=0).fit(X, y)
    assert_array_equal(by_row.reference_indices_, rows)
    for queries in (7 * X[rows], sparse.csr_array(7 * X[rows])):
        by_query = plain(references=queries, random_state=0)
        by_query.fit(X, y)
        assert_array_equal(by_query.reference_indices_, rows)
        assert_allclose(by_query.reference_queries_, by_row.reference_queries_)
        assert isinstance(by_query.reference_queries_, np.ndarray)
    in_sparse = clone(by_query).fit(sparse.csr_array(X), y)
    assert sparse.issparse(in_sparse.reference_queries_)


def test_references_without_a_triplet_have_the_identity(clusters):
    X, y = clusters
    y = y.copy()
    y[0] = 99  # alone in its class
    ranker = plain(references=[0, 1], n_neighbors=1, random_state=0)
    ranker.fit(X, y)
    assert_array_equal(ranker.n_triplets_ > 0, [False, True])
    assert_array_equal(ranker.reference_weights_[0], np.ones(8))
    assert ranker.angles_[0] == 0
    assert ranker.n_steps_[0] == 0
    # Queries next to this reference are ranked by the cosine.
    assert_allclose(ranker.transform(X[:1]), normalize(X[:1]))


# -- candidates --


def candidates_of(ranker, X, y):
    """Return the rows of relevant and irrelevant candidates of each reference."""
    blocks = []
    original = _candidates.choose_candidates

    def spy(*args):
        blocks.extend(original(*args))
        return blocks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_candidates, "choose_candidates", spy)
        ranker.fit(X, y)
    return {
        ranker.reference_indices_[block.reference]: np.split(
            block.rows, [block.n_relevant]
        )
        for block in blocks
    }


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("how", ["balanced", "nearest", "hard", "random"])
def test_candidates(how, container, clusters):
    X, y = clusters
    ranker = plain(
        references=[2, 18, 40], candidates=how, n_candidates=9, random_state=0
    )
    unit = normalize(X)
    chosen = candidates_of(ranker, container(X), y)
    for q, (relevant, irrelevant) in chosen.items():
        assert (y[relevant] == y[q]).all()
        assert (y[irrelevant] != y[q]).all()
        both = np.concatenate([relevant, irrelevant])
        assert q not in both
        assert len(np.unique(both)) == 9
        order = np.argsort(-unit @ unit[q], kind="stable")
        order = order[order != q]
        if how == "nearest":
            assert set(both) == set(order[:9])
        elif how == "hard":
            assert set(relevant) == set(order[y[order] == y[q]][:4])
            assert set(irrelevant) == set(order[y[order] != y[q]][:5])
        elif how == "balanced":
            assert len(relevant) == 4
    if how in ("balanced", "random"):
        assert chosen.keys() == {2, 18, 40}
        other = candidates_of(clone(ranker).set_params(random_state=1), X, y)
        assert any(
            not np.array_equal(chosen[q][0], other[q][0]) for q in chosen.keys() & other
        )


def test_equally_near_candidates_are_taken_from_the_first():
    # All are at the same distance, up to rounding errors that depend on the order.
    rng = np.random.default_rng(0)
    X = np.vstack(
        [np.ones(6), [rng.permutation(np.arange(6) + 0.5) for _ in range(12)]]
    )
    y = np.array([0, *([0, 1] * 6)])
    ranker = plain(references=[0], candidates="hard", n_candidates=6)
    for container in (np.asarray, sparse.csr_array):
        ((relevant, irrelevant),) = candidates_of(ranker, container(X), y).values()
        assert_array_equal(relevant, [1, 3, 5])
        assert_array_equal(irrelevant, [2, 4, 6])


def test_junk_and_distractors(clusters):
    X, y = clusters
    matrix = (y[:, None] == np.arange(4)).astype(float)
    matrix[5:15, 0] = -1  # junk for class 0, otherwise distractors
    ranker = plain(references=[0, 20], n_candidates=200)
    chosen = candidates_of(ranker, X, matrix)
    assert_array_equal(chosen[0][0], [1, 2, 3, 4])
    assert_array_equal(chosen[0][1], np.arange(15, 65))
    assert_array_equal(chosen[20][1], np.setdiff1d(np.arange(65), np.arange(15, 30)))


def test_candidates_are_drawn_evenly(rng):
    kinds = rng.integers(-1, 2, (2000, 150)).astype(np.int8)
    kinds[0], kinds[1] = 1, -1
    counts = np.zeros(len(kinds), dtype=np.int64)
    count_kinds(kinds, 1, counts)
    assert_array_equal(counts, (kinds == 1).sum(axis=1))
    for n in (20, 60):
        ranks = _candidates._draw_ranks(counts, n, rng)
        drawn = _candidates._take_drawn(kinds, 1, ranks, counts)
        for row, columns in zip(kinds, drawn, strict=True):
            pool = np.flatnonzero(row == 1)
            assert len(columns) == min(n, len(pool))
            assert (np.diff(columns) > 0).all()
            assert np.isin(columns, pool).all()
        # All columns are drawn about equally often.
        count = np.bincount(np.concatenate(drawn), minlength=150)
        assert_allclose(count, count.mean(), rtol=0.2)


@pytest.mark.parametrize("candidates", ["balanced", "random", "hard", "nearest"])
def test_the_working_memory_does_not_change_the_candidates(candidates, counts):
    X, y = counts
    ranker = AngularBilinearRanker(
        candidates=candidates, n_candidates=6, holdout=None, random_state=0
    )
    expected = clone(ranker).fit(X, y).similarity(X)
    with sklearn.config_context(working_memory=0.01):
        assert_array_equal(ranker.fit(X, y).similarity(X), expected)


@pytest.mark.parametrize("size", [11, 19, 21, 40])
def test_ranks_are_drawn_evenly(size, rng):
    ranks = _candidates._draw_ranks(np.full(5000, size), 10, rng)
    assert (np.diff(ranks, axis=1) > 0).all()
    count = np.bincount(ranks.ravel(), minlength=size)
    assert len(count) == size
    assert_allclose(count, 50_000 / size, rtol=0.15)


# -- the learned similarity --


def matrices(ranker):
    """Return every W as a full matrix."""
    V, k = ranker.directions_, ranker.identity_weights_
    Q, eye = ranker.reference_queries_, np.eye(ranker.n_features_in_)
    V, Q = (part.toarray() if sparse.issparse(part) else part for part in (V, Q))
    if ranker.matrix_ == "diagonal":
        W = np.array([np.diag(v) for v in V])
    else:
        W = np.einsum("ni,nj->nij", Q, V)
        if not ranker.query_dependent:
            W = W.sum(axis=0, keepdims=True)
    return W + k[:, None, None] * eye


@each_matrix
@pytest.mark.parametrize("sigma", [0.0, 0.95])
def test_solution_against_matrices_written_out(matrix, sigma, clusters):
    X, y = clusters
    ranker = plain(
        C=3.0, sigma=sigma, matrix=matrix, n_candidates=12, tol=1e-9, random_state=0
    )
    chosen = candidates_of(ranker, X, y)
    X, W = normalize(X), matrices(ranker)
    eye = np.eye(8)
    for r, q in enumerate(ranker.reference_indices_):
        i, j = (side.ravel() for side in np.meshgrid(*chosen[q]))
        margin = X[q] @ W[r] @ (X[i] - X[j]).T
        square, trace = np.sum(W[r] ** 2), np.trace(W[r])
        primal = (square - sigma / 8 * trace**2) / 2
        primal += 3.0 * np.maximum(0, 1 - margin).sum()
        assert_allclose(primal, ranker.dual_objective_[r], rtol=1e-6)
        assert_allclose(ranker.dual_gap_[r], 0, atol=1e-6)
        cosine = np.sum(W[r] * eye) / np.sqrt(square * 8)
        assert_allclose(np.cos(ranker.angles_[r]), cosine)
        assert ranker.n_triplets_[r] == len(i)
    assert (ranker.violation_ <= 1e-9).all()
    assert ranker.n_iter_ == np.ceil(ranker.n_steps_ / ranker.n_triplets_).max()


@each_matrix
@pytest.mark.parametrize("kind", ["dense", "sparse", "mixed", "mixed back"])
def test_surrogates_against_matrices_written_out(matrix, kind, clusters):
    X, y = clusters
    X, Q, y = X[:50], X[50:], y[:50]
    to_fit = sparse.csr_array(X) if kind in ("sparse", "mixed") else X
    query = sparse.csr_array(Q) if kind in ("sparse", "mixed back") else Q
    ranker = plain(matrix=matrix, n_neighbors=3, n_references=9, random_state=0).fit(
        to_fit, y
    )
    W = matrices(ranker)
    references = normalize(X)[ranker.reference_indices_]
    expected = []
    for q in normalize(Q):
        distance = np.linalg.norm(references - q, axis=1)
        near = np.argsort(distance)[:3]
        mean = sum(W[r] / np.linalg.norm(W[r]) for r in near)
        expected.append(mean.T @ q / np.linalg.norm(mean.T @ q))
    actual = ranker.transform(query)
    assert sparse.issparse(actual) == sparse.issparse(query)
    actual = actual.toarray() if sparse.issparse(actual) else actual
    assert_allclose(actual, expected, rtol=1e-7, atol=1e-9)
    assert_allclose(ranker.similarity(query, X), expected @ normalize(X).T, atol=1e-9)


def test_diagonal_surrogates_keep_the_zeros_of_the_query(counts):
    X, y = counts
    ranker = plain(random_state=0).fit(X, y)
    surrogates = ranker.transform(X)
    assert_array_equal(surrogates.indptr, X.indptr)
    assert_array_equal(surrogates.indices, X.indices)
    assert ranker.directions_.nnz <= X.nnz


def test_the_angle_shrinks_as_sigma_grows():
    X, y = load_digits(return_X_y=True)
    ranker = plain(n_candidates=20, tol=1e-8, random_state=0)
    angles, traces = [], []
    for sigma in (0.0, 0.3, 0.6, 0.9, 0.99, 0.999):
        ranker.set_params(sigma=sigma).fit(X[:200], y[:200])
        angles.append(ranker.angles_)
        traces.append(ranker.reference_weights_.sum(axis=1))
    # The penalty of each reference is reduced by the square of the trace.
    assert (np.diff(np.square(traces), axis=0) > 0).all()
    assert (np.diff(np.mean(angles, axis=1)) < 0).all()
    # The penalty ignores the sign: a reference may end up close to pi instead of 0.
    assert (np.sin(angles[-1]) < np.sin(angles[0])).all()


@each_matrix
def test_learning_ranks_better_than_the_cosine(matrix):
    X, y = load_digits(return_X_y=True)
    ranker = plain(matrix=matrix, n_references=100, random_state=0)
    cosine = CosineSimilarity(use_idf=False).fit(X)
    learned = ranker.fit(X[:900], y[:900]).score(X[900:], y[900:])
    assert learned > cosine.score(X[900:], y[900:]) + 0.05


def test_rows_of_zeros(clusters, dtype):
    X, y = clusters
    X = X.astype(dtype)
    X[[0, 20, -1]] = 0
    for Z in (X, sparse.csr_array(X)):
        for matrix in ("diagonal", "full"):
            ranker = plain(matrix=matrix, random_state=0).fit(Z, y)
            S = ranker.similarity(Z)
            assert np.isfinite(S).all()
            assert_array_equal(S[[0, 20, -1]], 0)
            assert np.isfinite(ranker.angles_).all()


def test_equal_candidates_leave_the_identity():
    X = np.array([[1.0, 2.0, 3.0]] * 3 + [[3.0, 1.0, 1.0]] * 6) / 7
    y = [0, 1, 1, 2, 2, 2, 3, 3, 3]
    ranker = plain(candidates="nearest", n_candidates=2).fit(X, y)
    empty = ranker.n_triplets_ > 0
    assert empty.any()
    assert_array_equal(ranker.reference_weights_[empty], 1)
    assert_array_equal(ranker.angles_, 0)


def test_unsorted_and_duplicate_indices(counts):
    X, y = counts
    tangled = X.copy()
    tangled.data = np.repeat(tangled.data / 2, 2)
    tangled.indices = np.repeat(tangled.indices, 2)
    tangled.indptr = tangled.indptr * 2
    tangled = sparse.csr_array((tangled.data, tangled.indices, tangled.indptr), X.shape)
    before = tangled.copy()
    ranker = plain(random_state=0).fit(X, y)
    again = clone(ranker).fit(tangled, y)
    assert_allclose(again.similarity(tangled), ranker.similarity(X), atol=1e-12)
    assert_array_equal(tangled.indices, before.indices)


# -- many triplets --


@each_matrix
def test_triplets_can_be_given(matrix, clusters):
    X, y = clusters
    ranker = plain(
        matrix=matrix, references=[1, 30], n_candidates=10, tol=1e-9, random_state=0
    )
    chosen = candidates_of(ranker, X, y)
    triplets = [
        (q, i, j) for q, both in chosen.items() for i in both[0] for j in both[1]
    ]
    triplets = np.random.default_rng(0).permutation(triplets)
    for Z in (X, sparse.csr_array(X)):
        again = clone(ranker).fit_triplets(Z, triplets)
        assert_array_equal(again.reference_indices_, [1, 30])
        assert_allclose(again.dual_objective_, ranker.dual_objective_)
        assert_allclose(again.similarity(X), ranker.similarity(X), atol=1e-6)
    # Half of the pairs form smaller problems.
    assert (clone(ranker).fit_triplets(X, triplets[::2]).n_triplets_ < 25).all()


@each_matrix
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_large_problems_are_solved_in_blocks(matrix, container, clusters, monkeypatch):
    X, y = container(clusters[0]), clusters[1]
    ranker = plain(
        matrix=matrix, references=[1, 30, 50], n_candidates=40, tol=1e-7, random_state=0
    ).fit(X, y)
    triplets = [(0, i, j) for i in range(1, 15) for j in range(15, 65) if (i + j) % 3]
    from_triplets = clone(ranker).fit_triplets(X, triplets)
    monkeypatch.setattr(_dual, "BLOCK_SIDE", 4)
    in_blocks = clone(ranker).fit(X, y)
    assert_allclose(in_blocks.dual_objective_, ranker.dual_objective_, rtol=1e-6)
    assert_allclose(in_blocks.dual_gap_, 0, atol=1e-4)
    assert (in_blocks.violation_ <= 1e-7).all()
    assert_array_equal(in_blocks.n_triplets_, ranker.n_triplets_)
    assert_allclose(in_blocks.similarity(X), ranker.similarity(X), atol=1e-5)
    again = clone(ranker).fit_triplets(X, triplets)
    assert_allclose(again.dual_objective_, from_triplets.dual_objective_, rtol=1e-6)


@each_matrix
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("max_free", [1000, 0])
def test_one_matrix_for_all_queries(matrix, container, max_free, clusters, monkeypatch):
    monkeypatch.setattr(_dual, "MAX_FREE", max_free)
    X, y = clusters
    ranker = plain(
        C=0.3,
        sigma=0.8,
        matrix=matrix,
        query_dependent=False,
        references=[1, 30, 50],
        n_candidates=12,
        tol=1e-6,
        max_iter=10**4,
        random_state=0,
    )
    chosen = candidates_of(ranker, container(X), y)
    unit = normalize(X)
    D = []
    for q, (relevant, irrelevant) in chosen.items():
        for i in relevant:
            D.append(features(unit[q], unit[i] - unit[irrelevant], matrix))
    D = np.concatenate(D)
    (W,) = matrices(ranker)
    w = np.diag(W) if matrix == "diagonal" else W.ravel()
    A = regulariser(8, 0.8, matrix)
    primal = w @ A @ w / 2 + 0.3 * np.maximum(0, 1 - D @ w).sum()
    assert_allclose(primal, ranker.dual_objective_[0], rtol=1e-5)
    assert_array_equal(ranker.n_triplets_, [108])
    cosine = np.trace(W) / np.linalg.norm(W) / np.sqrt(8)
    assert_allclose(np.cos(ranker.angles_), [cosine])
    expected = normalize(unit @ W)
    assert_allclose(ranker.transform(X), expected, atol=1e-12)


# -- fits --


@pytest.mark.parametrize("query_dependent", [True, False])
def test_result_does_not_depend_on_the_number_of_threads(query_dependent, clusters):
    X, y = clusters
    one, two, three = (
        plain(
            query_dependent=query_dependent, n_references=8, n_jobs=n, random_state=0
        ).fit(X, y)
        for n in (1, 2, 3)
    )
    for other in (two, three):
        assert_array_equal(other.directions_, one.directions_)
        assert_array_equal(other.dual_gap_, one.dual_gap_)


def test_problems_that_hit_max_iter_are_counted(clusters):
    X, y = clusters
    ranker = plain(C=1e4, tol=1e-9, max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning, match="did not reach tol=1e-09") as caught:
        ranker.fit(X, y)
    n_late = np.count_nonzero(ranker.violation_ > 1e-9)
    assert n_late > 0
    assert str(caught[0].message).startswith(f"{n_late} of 60 problems")
    ranker.set_params(query_dependent=False)
    with pytest.warns(ConvergenceWarning, match="1 of 1 problems did not reach"):
        ranker.fit(X, y)


class Recorder(FitCallback):
    """A callback that counts, and stops after `stop_after` calls."""

    def __init__(self, stop_after=None):
        self.names, self.stop_after, self.fitted = [], stop_after, []

    def on_fit_task_end(self, estimator, context, *, X, y, fitted_estimator):
        self.names.append(context.task_name)
        self.fitted.append((fitted_estimator or estimator).score(X, y))
        return len(self.names) == self.stop_after


@pytest.mark.parametrize("query_dependent", [True, False])
def test_callbacks_follow_and_stop_the_fit(query_dependent, clusters, monkeypatch):
    X, y = clusters
    monkeypatch.setattr(_dual, "BATCH_SIZE", 2**15)
    ranker = plain(
        query_dependent=query_dependent,
        n_references=15,
        n_candidates=100,
        random_state=0,
    )
    recorder = Recorder()
    ranker.set_callbacks(recorder).fit(X, y)
    assert len(recorder.names) > 3
    part = "references" if query_dependent else "pass"
    assert recorder.names == [part] * (len(recorder.names) - 1) + ["fit"]
    assert recorder.fitted[-1] == ranker.score(X, y)
    assert recorder.fitted[-1] != recorder.fitted[0]

    stopped = clone(ranker).set_callbacks(Recorder(stop_after=1)).fit(X, y)
    assert 0 < stopped.n_steps_.sum() < ranker.n_steps_.sum()
    if query_dependent:
        rest = stopped.n_steps_ == 0
        assert_array_equal(stopped.reference_weights_[rest], 1)
    assert np.isfinite(stopped.score(X, y))


def test_sparse_data_too_wide_for_dense_rows(rng):
    X = sparse.random_array((40, 10**6), density=1e-5, rng=rng, format="csr")
    y = np.arange(40) % 4
    with sklearn.config_context(working_memory=10):
        ranker = plain(references="medoids", n_references=5, random_state=0)
        with pytest.raises(ValueError, match=r"38 MiB.*k-means.*references=\"random\""):
            ranker.fit(X, y)
        ranker.set_params(references="random").fit(X, y)
        assert ranker.transform(X).nnz <= X.nnz
        with pytest.raises(
            ValueError, match="38 MiB would be needed for dense weights"
        ):
            ranker.reference_weights_  # noqa: B018
        ranker.set_params(matrix="full").fit(X, y)
        ranker.set_params(query_dependent=False)
        with pytest.raises(ValueError, match=r"38 MiB .* single full matrix"):
            ranker.fit(X, y)


def test_memory_bounds_do_not_change_the_result(clusters):
    X, y = clusters
    ranker = plain(candidates="hard", n_references=20, random_state=0)
    whole = clone(ranker).fit(X, y).transform(X)
    with sklearn.config_context(working_memory=0.01):
        assert_allclose(ranker.fit(X, y).transform(X), whole, rtol=1e-10)


# -- errors --


def test_targets_that_leave_no_triplet(clusters):
    X, _ = clusters
    for bad in (np.zeros(65, int), np.arange(65), np.full(65, -1)):
        with pytest.raises(ValueError, match="y holds no triplet"):
            plain().fit(X, bad)
    only_junk = np.zeros((65, 2))
    only_junk[:3, 0], only_junk[3:, 0] = 1, -1
    with pytest.raises(ValueError, match="y holds no triplet"):
        plain().fit(X, only_junk)
    tight = np.repeat([0, 1], [33, 32])
    far_apart = np.eye(2)[tight] + 1e-3
    ranker = plain(candidates="nearest", n_candidates=5)
    with pytest.raises(ValueError, match="relevant and an irrelevant candidate in y"):
        ranker.fit(far_apart, tight)


@pytest.mark.parametrize(
    ("references", "message"),
    [
        ([0.5, 1.5], "must hold row numbers of X; got float64"),
        ([0, 65], "from 0 to 64; got 0 to 65"),
        ([-1, 3], "from 0 to 64; got -1 to 3"),
        (np.ones((2, 7)), r"the 8 features of X; got shape \(2, 7\)"),
        ([[np.nan] * 8], "references contains NaN"),
    ],
)
def test_bad_references(references, message, clusters):
    with pytest.raises(ValueError, match=message):
        plain(references=references).fit(*clusters)


@pytest.mark.parametrize(
    ("triplets", "message"),
    [
        ([[0, 1]], r"shape \(n_triplets, 3\); got int64 of shape \(1, 2\)"),
        ([[0.0, 1.0, 2.0]], "must be integers"),
        ([[0, 1, 65]], "from 0 to 64; got 0 to 65"),
        ([[-1, 1, 2]], "from 0 to 64; got -1 to 2"),
        (np.empty((0, 3), int), "0 sample"),
    ],
)
def test_bad_triplets(triplets, message, clusters):
    with pytest.raises(ValueError, match=message):
        plain().fit_triplets(clusters[0], triplets)


def test_full_matrices_have_no_vector_of_weights(clusters):
    ranker = plain(matrix="full", random_state=0).fit(*clusters)
    with pytest.raises(AttributeError, match="matrix_ is 'full'"):
        ranker.reference_weights_  # noqa: B018


def test_failed_fit_does_not_change_the_model(clusters):
    X, y = clusters
    ranker = plain(random_state=0).fit(X, y)
    before = ranker.similarity(X)
    with pytest.raises(ValueError, match="y holds no triplet"):
        ranker.fit(X, np.zeros(65, int))
    assert_array_equal(ranker.similarity(X), before)


class FailAtTheEnd(Recorder):
    def on_fit_task_end(self, estimator, context, *, X, y, fitted_estimator):
        if context.task_name == "fit":
            raise RuntimeError("at the end")


def test_refit_that_fails_at_its_end_changes_no_state(clusters):
    X, y = clusters
    ranker = plain(n_references=9, random_state=0).fit(X, y)
    before, surrogates = dict(vars(ranker)), ranker.transform(X)
    ranker.set_params(matrix="full", C=0.1).set_callbacks(FailAtTheEnd())
    with pytest.raises(RuntimeError, match="at the end"):
        ranker.fit(X[:, :5], y)
    ranker.set_params(matrix="auto", C=1.0).set_callbacks()
    assert {name for name in vars(ranker) if name.endswith("_")} == {
        name for name in before if name.endswith("_")
    }
    for name in ("directions_", "norms_", "idf_", "n_features_in_"):
        assert vars(ranker)[name] is before[name]
    assert_array_equal(ranker.transform(X), surrogates)


# -- the hold-out --


@pytest.fixture
def noisy():
    """Return twelve classes that differ in 4 of 40 features; the others are noise."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 12)
    X = rng.standard_normal((144, 40))
    X[:, :4] = 2.5 * rng.standard_normal((12, 4))[y] + 0.3 * X[:, :4]
    return X, y


@pytest.mark.parametrize("holdout", ["objects", "samples"])
def test_start_is_kept_exactly_if_nothing_helps(holdout, noisy, dtype, rng):
    # The cosine ranks perfectly, so nothing learned can be better.
    y = noisy[1]
    X = (np.eye(12)[y] + 0.01 * rng.standard_normal((144, 12))).astype(dtype)
    ranker = AngularBilinearRanker(holdout=holdout, random_state=0).fit(X, y)
    assert ranker.share_ == 1
    assert ranker.matrix_ is None
    assert ranker.holdout_gain_ == 0
    assert_array_equal(ranker.transform(X), unit_rows(X))
    assert_array_equal(ranker.transform_database(X), unit_rows(X))
    assert ranker.transform(X).dtype == dtype


@pytest.mark.parametrize("holdout", ["objects", "samples"])
def test_planted_gain_is_taken(holdout, noisy):
    X, y = noisy
    ranker = AngularBilinearRanker(holdout=holdout, random_state=0).fit(X, y)
    assert ranker.share_ < 1
    assert ranker.holdout_gain_ > ranker.holdout_error_ > 0
    results = ranker.holdout_results_
    assert results["candidates"][results["best_index"]] == (
        ranker.matrix_,
        ranker.share_,
    )
    assert len(results["candidates"]) == 1 + 2 * len(_angular.SHARES)
    given = clone(ranker).set_params(matrix="diagonal").fit(X, y)
    assert given.matrix_ in ("diagonal", None)
    assert len(given.holdout_results_["candidates"]) == 1 + len(_angular.SHARES)


def test_few_classes_keep_the_start_by_objects(clusters):
    ranker = AngularBilinearRanker(random_state=0)
    with pytest.warns(StartKeptWarning, match='Pass holdout="samples" if') as caught:
        ranker.fit(*clusters)
    assert caught[0].filename == __file__
    assert ranker.share_ == 1


@each_matrix
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_shrinkage_mixes_the_mean_surrogate_with_the_query(matrix, container, clusters):
    X, y = clusters
    ranker = plain(matrix=matrix, n_neighbors=2, n_references=9, random_state=0)
    ranker.fit(container(X), y)
    learned = ranker.encoder_.learned
    ranker.encoder_ = mix(learned, learned.start, 0.3, same_items=True)
    W = matrices(ranker)
    W /= np.linalg.norm(W, axis=(1, 2))[:, None, None]
    references = normalize(X)[ranker.reference_indices_]
    length = np.linalg.norm(np.einsum("nij,ni->nj", W, references), axis=1).mean()
    assert_allclose(ranker.mean_length_, length)
    expected = []
    for q in normalize(X):
        near = np.argsort(-references @ q)[:2]
        expected.append(0.7 * W[near].mean(axis=0).T @ q / length + 0.3 * q)
    actual = ranker.transform(container(X))
    actual = actual.toarray() if sparse.issparse(actual) else actual
    assert_allclose(actual, normalize(expected), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("holdout", ["objects", "samples"])
def test_choice_does_not_depend_on_the_number_of_threads(holdout, noisy):
    one, two = (
        AngularBilinearRanker(holdout=holdout, n_jobs=n, random_state=0).fit(*noisy)
        for n in (1, 2)
    )
    assert_array_equal(one.holdout_results_["gain"], two.holdout_results_["gain"])
    assert_array_equal(one.transform(noisy[0]), two.transform(noisy[0]))


def test_pairwise_relevance_is_learned_from(clusters):
    X, y = clusters
    pairs = (y[:, None] == y) & (y >= 0)
    from_labels = plain(n_references=9, random_state=0).fit(X, y)
    from_pairs = clone(from_labels).fit(X, PairwiseRelevance(pairs))
    assert_array_equal(from_pairs.directions_, from_labels.directions_)


def test_counts_start_from_weighted_words(counts):
    X, y = counts
    ranker = plain(random_state=0).fit(X, y)
    idf = np.log(X.shape[0] / np.maximum((X.toarray() > 0).sum(axis=0), 1))
    assert_allclose(ranker.idf_, idf)
    expected = normalize((X.toarray() * idf) ** 0.75)
    assert_allclose(ranker.transform_database(X).toarray(), expected)
