"""OASIS: the kernels against their formulas, then the estimator."""

import signal
import threading
import time

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.callback import ProgressBar
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import normalize

from sklearn_simlearn import OASIS
from sklearn_simlearn._oasis import LEARNED, _sweep
from sklearn_simlearn._oasis_fast import sweep_sparse, sweep_support, take_steps


def reference_sweep(W, X, triplets, C, symmetric=None, support=None):
    """The updates as the user guide writes them, one triplet per line of maths."""
    W, X, loss, n_updates = W.astype(float), X.astype(float), 0.0, 0
    for q, positive, negative in X[triplets]:
        if symmetric == "dissimilarity":
            a, b = q - positive, q - negative
            V = np.outer(b, b) - np.outer(a, a)
        else:
            V = np.outer(q, positive - negative)
        if support is not None:
            V = V * support
        hinge = max(0.0, 1 - np.sum(V * W))
        loss += hinge
        if hinge > 0 and V.any():
            W = W + min(C, hinge / np.sum(V**2)) * V
            if symmetric == "online":
                W = (W + W.T) / 2
            n_updates += 1
    return W, loss, n_updates


@pytest.fixture
def problem(rng):
    """Rows with zeros, an all-zero row, a zero column; triplets with repeats."""
    X = rng.standard_normal((30, 9)) * (rng.random((30, 9)) < 0.6)
    X[3], X[:, 2] = 0, 0
    return X, rng.integers(30, size=(400, 3))


# -- kernels --


@pytest.mark.parametrize("container", [np.ascontiguousarray, sparse.csr_array])
@pytest.mark.parametrize("symmetric", LEARNED)
@pytest.mark.parametrize("C", [1e-3, 0.1, 1e3])
def test_sweep_matches_reference(container, symmetric, C, problem, dtype):
    X, triplets = problem
    start = np.eye(9)
    expected_W, expected_loss, expected_updates = reference_sweep(
        start, X.astype(dtype), triplets, C, symmetric
    )
    W, loss, n_updates = _sweep(
        start.astype(dtype), container(X.astype(dtype)), triplets, C, LEARNED[symmetric]
    )
    # With C = 1000 every step is a full one, and rounding grows from step to step.
    rtol = 1e-8 if dtype == "float64" else (2e-2 if C > 1 else 1e-4)
    assert W.dtype == dtype
    assert_allclose(W, expected_W, rtol=rtol, atol=rtol * np.abs(expected_W).max())
    assert_allclose(loss, expected_loss, rtol=rtol)
    assert abs(n_updates - expected_updates) <= (0 if dtype == "float64" else 4)


def test_sweep_over_several_blocks_of_wide_rows(rng, dtype):
    X = rng.standard_normal((40, 300)).astype(dtype) / 10
    triplets = rng.integers(40, size=(500, 3))
    expected, _, _ = reference_sweep(np.eye(300), X, triplets, 0.1)
    for rows in (X, sparse.csr_array(X)):
        W, _, _ = _sweep(np.eye(300, dtype=dtype), rows, triplets, 0.1, 0)
        tolerance = 1e-9 if dtype == "float64" else 1e-3
        assert_allclose(W, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_sweep_on_a_support_matches_reference(index_dtype, problem, rng, dtype):
    X, triplets = problem
    support = (rng.random((9, 9)) < 0.3) | np.eye(9, dtype=bool)
    expected, expected_loss, expected_updates = reference_sweep(
        np.eye(9), X.astype(dtype), triplets, 0.1, support=support
    )
    W = sparse.csr_array(support.astype(dtype))
    W.data[:] = np.eye(9)[support]
    rows = sparse.csr_array(X.astype(dtype))
    rows.indices = rows.indices.astype(index_dtype)
    rows.indptr = rows.indptr.astype(index_dtype)
    W, loss, n_updates = _sweep(W, rows, triplets, 0.1, 0)
    tolerance = 1e-9 if dtype == "float64" else 1e-4
    assert_allclose(W.toarray(), expected, rtol=tolerance, atol=tolerance)
    assert_allclose(loss, expected_loss, rtol=tolerance)
    assert n_updates == expected_updates


def every_sweep(W, X, triplet, C, symmetric=None):
    """W after one triplet, by the dense and by the sparse kernel."""
    for rows in (X, sparse.csr_array(X)):
        yield _sweep(W.copy(), rows, np.array([triplet]), C, LEARNED[symmetric])


@pytest.mark.parametrize("symmetric", [None, "dissimilarity"])
def test_uncapped_step_satisfies_its_triplet_exactly(symmetric):
    # With C out of the way the passive-aggressive step closes the margin to 1.
    X = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]])
    for W, loss, n_updates in every_sweep(
        np.zeros((2, 2)), X, [0, 1, 2], 1e9, symmetric
    ):
        if symmetric is None:
            margin = X[0] @ W @ (X[1] - X[2])
        else:
            a, b = X[0] - X[1], X[0] - X[2]
            margin = b @ W @ b - a @ W @ a
        assert_allclose(margin, 1.0)
        assert (loss, n_updates) == (1.0, 1)


def test_step_by_hand():
    # q = (1, 2), x+ - x- = (-3, 1): |V|^2 = 5 * 10, hinge 1 - (-3 + 2) = 2.
    X = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]])
    for W, _, _ in every_sweep(np.eye(2), X, [0, 1, 2], 1.0):
        assert_allclose(W, np.eye(2) + 2 / 50 * np.array([[-3, 1], [-6, 2]]))
    for W, _, _ in every_sweep(np.eye(2), X, [0, 1, 2], 0.01):
        assert_allclose(W, np.eye(2) + 0.01 * np.array([[-3, 1], [-6, 2]]))


def test_satisfied_triplet_leaves_W_alone():
    X = np.array([[1.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    for W, loss, n_updates in every_sweep(np.eye(2), X, [0, 1, 2], 1.0):
        assert_array_equal(W, np.eye(2))
        assert (loss, n_updates) == (0.0, 0)


@pytest.mark.parametrize(
    ("X", "symmetric"),
    [
        *((np.ones((3, 2)), symmetric) for symmetric in LEARNED),
        *((np.zeros((3, 2)), symmetric) for symmetric in LEARNED),
        # A zero query has distances, but no products.
        *((np.array([[0.0, 0], [1, 2], [3, 4]]), s) for s in (None, "online")),
    ],
)
def test_impossible_triplets_are_skipped(X, symmetric):
    for W, loss, n_updates in every_sweep(np.eye(2), X, [0, 1, 2], 1.0, symmetric):
        assert_array_equal(W, np.eye(2))
        assert (loss, n_updates) == (1.0, 0)


def test_kernels_accept_read_only_data(dtype):
    # joblib hands workers memory-mapped, read-only arrays.
    X = sparse.csr_array(np.eye(3, dtype=dtype))
    triplets = np.array([[0, 1, 2]])
    for array in (X.data, X.indices, X.indptr, triplets):
        array.flags.writeable = False
    rows = X.data, X.indices, X.indptr, triplets, 1.0
    sweep_sparse(np.eye(3, dtype=dtype), *rows, 0, 1)
    sweep_support(np.ones(3, dtype=dtype), X.indices, X.indptr, *rows, 1)
    gram, norm2 = np.eye(2, dtype=dtype), np.ones(2)
    gram.flags.writeable = norm2.flags.writeable = False
    take_steps(np.zeros(2), gram, norm2, 1.0, np.empty(2, dtype=dtype))
    # A read-only W, from another process, is copied.
    frozen = np.eye(3, dtype=dtype)
    frozen.flags.writeable = False
    W, _, n_updates = _sweep(frozen, X, triplets, 1.0, 0, in_place=False)
    assert n_updates == 1
    assert W is not frozen


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.5, 5.0]))
@settings(max_examples=40, deadline=None)
def test_mistake_bound(seed, C):
    # Theorem 1: with U of margin 1 on all triplets, the mistakes are at most
    # max(R^2, 1 / C) |U - I|^2.
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((4, 4))
    X = rng.standard_normal((40, 4))
    triplets = rng.integers(40, size=(600, 3))
    q, delta = X[triplets[:, 0]], X[triplets[:, 1]] - X[triplets[:, 2]]
    margin = np.einsum("ti,ij,tj->t", q, U, delta)
    triplets = triplets[np.abs(margin) > 0.1]
    flip = margin[np.abs(margin) > 0.1] < 0
    triplets[flip] = triplets[flip][:, [0, 2, 1]]
    U = U / 0.1
    V2 = (X[triplets[:, 0]] ** 2).sum(1) * (
        (X[triplets[:, 1]] - X[triplets[:, 2]]) ** 2
    ).sum(1)
    bound = max(V2.max(), 1 / C) * np.sum((U - np.eye(4)) ** 2)

    W, mistakes = np.eye(4), 0
    for triplet in triplets:
        delta = X[triplet[1]] - X[triplet[2]]
        mistakes += X[triplet[0]] @ W @ delta <= 0
        W, _, _ = _sweep(W, X, triplet[None], C, 0)
    assert mistakes <= bound


# -- estimator --


@pytest.fixture
def words(counts):
    """Sparse unit rows, their labels without distractors in the way of plain checks."""
    X, y = counts
    return normalize(X), y


def test_learning_beats_the_identity():
    X, y = load_digits(return_X_y=True)
    X = normalize(X)
    oasis = OASIS(random_state=0).fit(X[:900], y[:900])
    start = OASIS(n_triplets=1, C=1e-12, random_state=0).fit(X[:900], y[:900])
    assert oasis.score(X[900:], y[900:]) > start.score(X[900:], y[900:]) + 0.08


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_batches_equal_one_sweep_over_the_same_triplets(container, problem):
    X, triplets = problem
    X = container(X)
    whole = OASIS().fit_triplets(X, triplets)
    stream = OASIS()
    for start in range(0, 400, 130):
        stream.partial_fit_triplets(X, triplets[start : start + 130])
    assert_allclose(stream.W_, whole.W_, rtol=1e-10, atol=1e-12)
    assert stream.n_triplets_ == whole.n_triplets_ == 400
    expected, _, n_updates = reference_sweep(
        np.eye(9), X if container is np.asarray else X.toarray(), triplets, 0.1
    )
    assert_allclose(whole.W_, expected, atol=1e-10)
    assert whole.n_updates_ == n_updates


def test_partial_fit_goes_on(words):
    X, y = words
    oasis = OASIS(n_triplets=300, random_state=0)
    first = oasis.partial_fit(X, y).W_.copy()
    second = oasis.partial_fit(X, y).W_
    assert oasis.n_triplets_ == 600
    again = OASIS(n_triplets=300, random_state=0).partial_fit(X, y)
    assert_array_equal(again.W_, first)
    assert_array_equal(again.partial_fit(X, y).W_, second)
    # The second call draws other triplets than the first.
    repeated = OASIS(n_triplets=300, init=first, random_state=0).fit(X, y)
    assert np.abs(repeated.W_ - second).max() > 0


def test_interval_does_not_change_what_is_learned(words):
    X, y = words
    for options in ({}, {"n_models": 2}):
        whole = OASIS(n_triplets=12_000, random_state=0, **options).fit(X, y)
        pieces = clone(whole).set_params(validation_interval=700).fit(X, y)
        assert_array_equal(whole.W_, pieces.W_)


def test_partial_fit_may_declare_the_width(words):
    X, y = words
    oasis = OASIS(n_triplets=100, random_state=0)
    oasis.partial_fit(X[:, :30], y, n_features=40)
    assert oasis.W_.shape == (40, 40)
    assert_array_equal(oasis.W_[30:], np.eye(40)[30:])
    oasis.partial_fit(X, y)
    with pytest.raises(ValueError, match="X has 30 features"):
        oasis.partial_fit(X[:, :30], y)


def test_warm_start(words):
    X, y = words
    oasis = OASIS(n_triplets=200, random_state=0).fit(X, y)
    resumed = clone(oasis).set_params(warm_start=True).fit(X, y).fit(X, y)
    assert np.abs(resumed.W_ - oasis.W_).max() > 0
    from_array = OASIS(n_triplets=200, init=oasis.W_, random_state=0).fit(X, y)
    assert_array_equal(resumed.W_, from_array.W_)
    with pytest.raises(ValueError, match="warm_start=False"):
        resumed.fit(X[:, :20], y)


def test_init(words):
    X, y = words
    for init, expected in [
        ("identity", np.eye(40)),
        ("zero", np.zeros((40, 40))),
        ("tfidf", np.diag(np.log(66 / np.diff(X.tocsc().indptr)) ** 2)),
        (np.full((40, 40), 0.5), np.full((40, 40), 0.5)),
        (sparse.csr_array(np.eye(40) * 3), np.eye(40) * 3),
    ]:
        oasis = OASIS(C=1e-300, n_triplets=1, init=init, random_state=0).fit(X, y)
        assert_allclose(oasis.W_, expected, atol=1e-250)
    with pytest.raises(ValueError, match=r"init must have shape \(40, 40\)"):
        OASIS(init=np.eye(3)).fit(X, y)


@pytest.mark.parametrize("symmetric", ["final", "online", "dissimilarity"])
def test_symmetric_variants(symmetric, words):
    X, y = words
    oasis = OASIS(n_triplets=500, symmetric=symmetric, random_state=0)
    init = np.random.default_rng(0).standard_normal((40, 40))
    W = oasis.set_params(init=init).fit(X, y).W_
    assert_allclose(W, W.T)
    if symmetric == "final":
        plain = OASIS(n_triplets=500, init=init, random_state=0).fit(X, y).W_
        assert_allclose(W, (plain + plain.T) / 2)


def test_dissimilarity_is_minus_a_squared_distance(words):
    X, y = words
    for psd in (None, "final"):
        oasis = OASIS(
            n_triplets=300, symmetric="dissimilarity", psd=psd, random_state=0
        )
        S = oasis.fit(X, y).similarity(X[:5], X)
        difference = X[:5].toarray()[:, None] - X.toarray()
        expected = -np.einsum("qdi,ij,qdj->qd", difference, oasis.W_, difference)
        assert_allclose(S, expected, atol=1e-10)


@pytest.mark.parametrize("psd", ["final", 100])
def test_psd(psd, words):
    X, y = words
    oasis = OASIS(n_triplets=450, psd=psd, random_state=0).fit(X, y)
    assert np.linalg.eigvalsh(oasis.W_).min() > -1e-10
    assert_allclose(oasis.components_.T @ oasis.components_, oasis.W_, atol=1e-10)
    embedded = oasis.transform(X)
    assert_allclose(embedded, oasis.transform_database(X))
    assert_allclose(embedded @ embedded.T, oasis.similarity(X))
    assert embedded.shape[1] == len(oasis.get_feature_names_out())
    plain = OASIS(n_triplets=450, random_state=0).fit(X, y).W_
    values, vectors = np.linalg.eigh((plain + plain.T) / 2)
    projected = (vectors * np.maximum(values, 0)) @ vectors.T
    if psd == "final":
        assert_allclose(oasis.W_, projected, atol=1e-10)
    else:
        assert np.abs(oasis.W_ - projected).max() > 1e-4


@pytest.mark.parametrize("psd", [None, "final"])
@pytest.mark.parametrize("n_components", [1, 5, 30, 40])
def test_low_rank_is_the_best_of_its_rank(psd, n_components, words):
    X, y = words
    options = {"n_triplets": 450, "psd": psd, "random_state": 0}
    oasis = OASIS(n_components=n_components, **options).fit(X, y)
    W = OASIS(**options).fit(X, y).W_
    assert_allclose(oasis.W_, W)
    Q, D = oasis.transform(X), oasis.transform_database(X)
    rank = min(n_components, np.linalg.matrix_rank(W))
    assert Q.shape == D.shape == (66, rank)
    U, s, Vt = np.linalg.svd(W)
    best = (U[:, :rank] * s[:rank]) @ Vt[:rank]
    assert_allclose(Q @ D.T, X @ best @ X.T, atol=1e-8)


def test_averaged_rankers_do_not_depend_on_n_jobs(words):
    X, y = words
    options = {"n_triplets": 700, "n_models": 3, "validation_interval": 200}
    one = OASIS(random_state=0, **options).fit(X, y)
    two = OASIS(random_state=0, n_jobs=2, **options).fit(X, y)
    assert_array_equal(one.W_, two.W_)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        other_processes = OASIS(random_state=0, **options).fit(X, y)
    assert_array_equal(one.W_, other_processes.W_)
    assert one.n_updates_ > 700
    dense = OASIS(random_state=0, **options).fit(X.toarray(), y)
    assert_array_equal(dense.W_, two.fit(X.toarray(), y).W_)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        other_processes.fit(X.toarray(), y)
    assert_array_equal(dense.W_, other_processes.W_)
    # Not three times the same ranker.
    alone = OASIS(n_triplets=700, random_state=0).fit(X, y)
    assert np.abs(alone.W_ - one.W_).max() > 1e-3


def test_rankers_on_a_dask_cluster(words):
    distributed = pytest.importorskip("distributed")
    X, y = words
    options = {"n_triplets": 300, "n_models": 2, "random_state": 0}
    here = OASIS(**options).fit(X, y)
    with (
        distributed.Client(processes=False, n_workers=1, dashboard_address=None),
        joblib.parallel_config(backend="dask"),
    ):
        there = OASIS(**options).fit(X, y)
    assert_array_equal(here.W_, there.W_)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_hogwild_learns(container, words):
    X, y = words
    X = container(X.toarray())
    plain = OASIS(n_triplets=5000, random_state=0).fit(X, y)
    wild = OASIS(n_triplets=5000, parallel="hogwild", n_jobs=2, random_state=0).fit(
        X, y
    )
    assert wild.n_triplets_ == 5000
    assert wild.score(X, y) > 0.95 * plain.score(X, y)
    assert wild.loss_curve_[0] < 1.0
    with pytest.raises(ValueError, match="set n_models=1"):
        OASIS(parallel="hogwild", n_models=2).fit(X, y)


def test_support_keeps_W_sparse(words, rng):
    X, y = words
    support = sparse.csr_array((rng.random((40, 40)) < 0.1).astype(float))
    oasis = OASIS(n_triplets=2000, support=support, random_state=0).fit(X, y)
    allowed = (support.toarray() > 0) | np.eye(40, dtype=bool)
    assert sparse.issparse(oasis.W_)
    assert not oasis.W_.toarray()[~allowed].any()
    assert sparse.issparse(oasis.transform(X))
    from_dense = clone(oasis).fit(X.toarray(), y)
    assert_allclose(from_dense.W_.toarray(), oasis.W_.toarray())
    # The same steps as a dense W confined to the support.
    triplets = rng.integers(66, size=(300, 3))
    expected, _, _ = reference_sweep(
        np.eye(40), X.toarray(), triplets, 0.1, support=allowed
    )
    given_triplets = OASIS(support=support).fit_triplets(X, triplets)
    assert_allclose(given_triplets.W_.toarray(), expected, atol=1e-10)

    symmetric = clone(oasis).set_params(symmetric="final").fit(X, y).W_
    assert_allclose(symmetric.toarray(), symmetric.toarray().T)
    factors = clone(oasis).set_params(n_components=6).fit(X, y)
    assert factors.transform(X).shape == (66, 6)
    warm = clone(oasis).set_params(init=np.diag(np.arange(40.0)), C=1e-300)
    assert_allclose(warm.fit(X, y).W_.diagonal(), np.arange(40), atol=1e-250)


def test_bad_support(words):
    X, y = words
    support = sparse.csr_array((40, 40))
    with pytest.raises(ValueError, match=r"support must have shape \(40, 40\)"):
        OASIS(support=sparse.csr_array((3, 3))).fit(X, y)
    with pytest.raises(ValueError, match="psd needs a dense W"):
        OASIS(support=support, psd="final").fit(X, y)
    with pytest.raises(ValueError, match="symmetric must be None or"):
        OASIS(support=support, symmetric="online").fit(X, y)
    init = np.eye(40)
    init[0, 1] = init[5, 7] = 1
    with pytest.raises(ValueError, match="2 non-zeros outside of support"):
        OASIS(support=support, init=init).fit(X, y)


def test_large_vocabulary_needs_a_support():
    n_words = 500_000
    X = sparse.random_array((60, n_words), density=1e-4, rng=0).tocsr()
    y = np.repeat(np.arange(20), 3)
    with pytest.raises(ValueError, match=r"1\.86e\+03 GiB, more than max_memory=4\.0"):
        OASIS().fit(X, y)
    support = sparse.csr_array((n_words, n_words))
    oasis = OASIS(support=support, n_triplets=100, random_state=0).fit(X, y)
    assert oasis.W_.nnz == n_words
    assert oasis.similarity(X[:3]).shape == (3, 3)


# -- early stopping, callbacks, interruption --


def test_early_stopping_keeps_the_best(words):
    X, y = words
    oasis = OASIS(
        C=10.0,  # overshoots, so that the best comes early
        n_triplets=100_000,
        early_stopping=True,
        validation_fraction=0.4,
        validation_interval=100,
        n_iter_no_change=4,
        random_state=0,
    ).fit(X, y)
    scores = oasis.validation_scores_
    assert oasis.n_triplets_ < 100_000
    assert len(scores) - 1 - np.argmax(scores) == 4
    assert len(scores) == len(oasis.loss_curve_) + 1 == oasis.n_triplets_ // 100 + 1


def test_given_validation_samples_are_scored(words):
    X, y = words
    train = np.arange(66) % 2 == 0
    validation = X[~train], y[~train]
    oasis = OASIS(
        n_triplets=3000,
        early_stopping=True,
        validation_interval=500,
        n_iter_no_change=99,
        random_state=0,
    ).fit(X[train], y[train], validation=validation)
    assert oasis.score(*validation) == max(oasis.validation_scores_)
    start = OASIS(n_triplets=1, C=1e-300, random_state=0).fit(X[train], y[train])
    assert_allclose(oasis.validation_scores_[0], start.score(*validation))


def test_validation_needs_early_stopping(words):
    X, y = words
    with pytest.raises(ValueError, match="validation is for early_stopping=True"):
        OASIS().fit(X, y, validation=(X, y))


def test_refit_forgets_what_no_longer_applies(words):
    X, y = words
    oasis = OASIS(n_triplets=300, psd="final", early_stopping=True, random_state=0)
    oasis.set_params(validation_fraction=0.4).fit(X, y)
    assert oasis.components_.shape[1] == 40
    assert len(oasis.validation_scores_) == 2
    oasis.set_params(psd=None, n_components=3, early_stopping=False).fit(X, y)
    assert not hasattr(oasis, "components_")
    assert not hasattr(oasis, "validation_scores_")
    assert oasis.transform(X).shape == (66, 3)


def test_hold_out_without_a_pair_says_what_to_do(words):
    X, y = words
    with pytest.raises(ValueError, match="Raise validation_fraction or pass"):
        OASIS(early_stopping=True, validation_fraction=0.03, random_state=0).fit(X, y)


def test_loss_curve_is_the_mean_hinge(problem):
    X, triplets = problem
    oasis = OASIS(validation_interval=150).fit_triplets(X, triplets)
    W, losses = np.eye(9), []
    for start in (0, 150, 300):
        W, loss, _ = reference_sweep(W, X, triplets[start : start + 150], 0.1)
        losses.append(loss / len(triplets[start : start + 150]))
    assert_allclose(oasis.loss_curve_, losses)


class Recorder:
    """A callback that counts the intervals and stops, or fails, after some."""

    def __init__(self, stop_after=None, error=None):
        self.stop_after, self.error, self.n_intervals = stop_after, error, 0

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        self.torn_down = True

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.task_name == "interval":
            self.n_intervals += 1
            self.model = fitted_estimator
            if self.n_intervals == self.stop_after:
                if self.error is not None:
                    raise self.error
                return True
        return False


def test_callbacks_see_each_interval_and_may_stop(words):
    X, y = words
    options = {"n_triplets": 1000, "validation_interval": 100, "random_state": 0}
    callback = Recorder()
    OASIS(**options).set_callbacks(callback).fit(X, y)
    assert callback.n_intervals == 10
    callback = Recorder(stop_after=3)
    oasis = OASIS(**options).set_callbacks(callback).fit(X, y)
    assert oasis.n_triplets_ == 300
    assert_array_equal(callback.model.similarity(X), oasis.similarity(X))


def test_progress_bar_of_scikit_learn(words, capsys):
    X, y = words
    oasis = OASIS(n_triplets=300, validation_interval=100, random_state=0)
    oasis.set_callbacks(ProgressBar()).fit(X, y)
    assert "OASIS" in capsys.readouterr().out


@pytest.mark.parametrize("fitted_before", [False, True])
def test_interrupted_fit_leaves_the_estimator_as_it_was(fitted_before, words):
    X, y = words
    oasis = OASIS(n_triplets=500, validation_interval=100, random_state=0)
    if fitted_before:
        before = oasis.fit(X[:, :30], y).W_.copy()
    callback = Recorder(stop_after=2, error=KeyboardInterrupt())
    oasis.set_callbacks(callback)
    for call in (oasis.fit, oasis.partial_fit):
        callback.n_intervals = 0
        width = 30 if call == oasis.partial_fit and fitted_before else 40
        with pytest.raises(KeyboardInterrupt):
            call(X[:, :width], y)
        assert callback.torn_down
        if fitted_before:
            assert_array_equal(oasis.W_, before)
            assert oasis.n_features_in_ == 30
        else:
            with pytest.raises(NotFittedError):
                oasis.transform(X)


def test_ctrl_c_is_honoured_within_a_second(words):
    X, y = words
    oasis = OASIS(n_triplets=10**9, random_state=0)
    start = time.monotonic()
    threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        oasis.fit(X, y)
    assert time.monotonic() - start < 1.5
    with pytest.raises(NotFittedError):
        oasis.transform(X)


# -- bad input --


@pytest.mark.parametrize(
    ("triplets", "message"),
    [
        ([[0, 1]], r"shape \(n_triplets, 3\)"),
        ([[0.5, 1, 2]], "must be integers"),
        ([[0, 1, 30]], "from 0 to 29; got 0 to 30"),
        ([[0, -1, 2]], "from 0 to 29; got -1 to 2"),
        (np.empty((0, 3), int), "minimum of 1 is required"),
    ],
)
def test_bad_triplets(triplets, message, problem):
    X, _ = problem
    for call in (OASIS().fit_triplets, OASIS().partial_fit_triplets):
        with pytest.raises(ValueError, match=message):
            call(X, triplets)


def test_unsorted_indices_and_duplicates_are_put_in_order(words):
    X, y = words
    messy = X.copy()
    for row in range(66):
        part = slice(messy.indptr[row], messy.indptr[row + 1])
        messy.indices[part] = messy.indices[part][::-1].copy()
        messy.data[part] = messy.data[part][::-1].copy()
    messy.has_sorted_indices = messy.has_canonical_format = False
    expected = OASIS(n_triplets=300, random_state=0).fit(X, y).W_
    assert_array_equal(OASIS(n_triplets=300, random_state=0).fit(messy, y).W_, expected)
