"""OASIS: the kernels against their formulas, the path, then the estimator."""

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg, sparse
from sklearn.callback import ProgressBar
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import normalize

from sklearn_simlearn import OASIS, StartKeptWarning
from sklearn_simlearn._core import directions
from sklearn_simlearn._core.covariances import Diagonalizer, estimate_moments
from sklearn_simlearn._core.encoders import Sides
from sklearn_simlearn._core.progress import FitCallback
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.sklearn import get_threadpool_controller
from sklearn_simlearn._core.start import Start
from sklearn_simlearn._core.triplets import triplet_sampler
from sklearn_simlearn._holdout import START, Choice, settle
from sklearn_simlearn._validation import Validation
from sklearn_simlearn.metrics import average_precision
from sklearn_simlearn.oasis import _path as oasis_path
from sklearn_simlearn.oasis import _steps as oasis_steps
from sklearn_simlearn.oasis._oasis_fast import find_hardest, sweep_sparse, take_steps
from sklearn_simlearn.oasis._path import Candidate, make_metric
from sklearn_simlearn.oasis._steps import LEARNED, draw_stream, sweep
from sklearn_simlearn.similarities import CosineSimilarity


def reference_sweep(W, X, triplets, C, symmetric=None):
    """Make the updates of the user guide, one triplet at a time."""
    W, X, loss, n_updates = W.astype(float), X.astype(float), 0.0, 0
    for q, positive, negative in X[triplets]:
        if symmetric == "dissimilarity":
            a, b = q - positive, q - negative
            V = np.outer(b, b) - np.outer(a, a)
        else:
            V = np.outer(q, positive - negative)
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
    """Return rows with zeros, a zero row and a zero column; triplets with repeats."""
    X = rng.standard_normal((30, 9)) * (rng.random((30, 9)) < 0.6)
    X[3], X[:, 2] = 0, 0
    return X, rng.integers(30, size=(400, 3))


@pytest.fixture(autouse=True)
def sparse_rows_stay_sparse(monkeypatch):
    """Use the sparse kernel although the rows of these tests are rather dense."""
    monkeypatch.setattr(oasis_steps, "DENSE_FROM", 2.0)


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
    W, loss, n_updates = sweep(
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
        W, _, _ = sweep(np.eye(300, dtype=dtype), rows, triplets, 0.1, 0)
        tolerance = 1e-9 if dtype == "float64" else 1e-3
        assert_allclose(W, expected, rtol=tolerance, atol=tolerance)


def every_sweep(W, X, triplet, C, symmetric=None):
    """Return W after one triplet, by the dense and by the sparse kernel."""
    for rows in (X, sparse.csr_array(X)):
        yield sweep(W.copy(), rows, np.array([triplet]), C, LEARNED[symmetric])


@pytest.mark.parametrize("symmetric", [None, "dissimilarity"])
def test_uncapped_step_satisfies_its_triplet_exactly(symmetric):
    # If C does not limit the step, the margin after the step is 1.
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
        # All products with a query of zeros are zero, but its distances are not.
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
    gram, norm2 = np.eye(2, dtype=dtype), np.ones(2)
    gram.flags.writeable = norm2.flags.writeable = False
    take_steps(np.zeros(2), gram, norm2, 1.0, np.empty(2, dtype=dtype))
    # A read-only W, from another process, is copied.
    frozen = np.eye(3, dtype=dtype)
    frozen.flags.writeable = False
    W, _, n_updates = sweep(frozen, X, triplets, 1.0, 0, in_place=False)
    assert n_updates == 1
    assert W is not frozen


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.5, 5.0]))
@settings(max_examples=15, deadline=None)
def test_mistake_bound(seed, C):
    # Theorem 1: with U of margin 1 on all triplets, the mistakes are at most
    # max(R^2, 1 / C) |U - I|^2.
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((4, 4))
    X = rng.standard_normal((40, 4))
    triplets = rng.integers(40, size=(300, 3))
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
        W, _, _ = sweep(W, X, triplet[None], C, 0)
    assert mistakes <= bound


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.5, 5.0]))
@settings(max_examples=15, deadline=None)
def test_mistake_bound_against_any_matrix(seed, C):
    # Theorem 1: with the losses l* of any U, the mistakes are at most
    # max(R^2, 1 / C) (|U|^2 - 2 tr U + n + 2 C sum l*).
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 4))
    triplets = rng.integers(40, size=(300, 3))
    q, delta = X[triplets[:, 0]], X[triplets[:, 1]] - X[triplets[:, 2]]
    # Exchange the items of triplets so that a random matrix satisfies 90 % of them.
    U = rng.standard_normal((4, 4))
    turned = np.sign(np.einsum("ti,ij,tj->t", q, U, delta))
    turned[rng.random(300) < 0.1] *= -1
    triplets[turned < 0] = triplets[turned < 0][:, [0, 2, 1]]
    delta[turned < 0] *= -1
    R2 = ((q**2).sum(axis=1) * (delta**2).sum(axis=1)).max()

    W, mistakes = np.eye(4), 0
    for triplet, p, a in zip(triplets, q, delta, strict=True):
        mistakes += p @ W @ a <= 0
        W, _, _ = sweep(W, X, triplet[None], C, 0)
    assert mistakes > 0
    for other in (np.zeros((4, 4)), np.eye(4), 0.1 * U, U, 10 * U):
        loss = np.maximum(0, 1 - np.einsum("ti,ij,tj->t", q, other, delta)).sum()
        norm = np.sum(other**2) - 2 * np.trace(other) + 4
        assert mistakes <= max(R2, 1 / C) * (norm + 2 * C * loss)


@pytest.mark.parametrize("symmetric", LEARNED)
def test_64_bit_indices(symmetric, problem, dtype):
    X, triplets = problem
    rows = sparse.csr_array(X.astype(dtype))
    expected, _, _ = sweep(
        np.eye(9, dtype=dtype), rows, triplets, 0.1, LEARNED[symmetric]
    )
    rows.indices = rows.indices.astype(np.int64)
    rows.indptr = rows.indptr.astype(np.int64)
    W, _, _ = sweep(np.eye(9, dtype=dtype), rows, triplets, 0.1, LEARNED[symmetric])
    assert_array_equal(W, expected)


def test_dense_blocks_of_sparse_rows(problem, monkeypatch):
    X, triplets = problem
    expected, _, _ = sweep(np.eye(9), X, triplets, 0.1, 0)
    monkeypatch.setattr(oasis_steps, "DENSE_FROM", 0.1)
    monkeypatch.setattr(oasis_steps, "_sweep_sparse", None)
    W, _, _ = sweep(np.eye(9), sparse.csr_array(X), triplets, 0.1, 0)
    assert_array_equal(W, expected)


def test_hardest_negative(problem, rng):
    X, triplets = problem
    W = rng.standard_normal((9, 9))
    negatives = rng.integers(
        30, size=(50, 4)
    )  # one block, so the negatives are chosen by the initial W
    similarity = X[triplets[:50, 0]] @ W @ X.T
    hardest = [
        row[np.argmax(s[row])] for row, s in zip(negatives, similarity, strict=True)
    ]
    several = np.column_stack([triplets[:50, :2], negatives])
    one = np.column_stack([triplets[:50, :2], hardest])
    W_several, *counts_several = sweep(W.copy(), X, several, 0.1, 0)
    W_one, *counts_one = sweep(W.copy(), X, one, 0.1, 0)
    assert_array_equal(W_several, W_one)
    assert counts_several == counts_one


@pytest.mark.parametrize("n_features", [3, 16, 41])
def test_kernel_of_the_hardest_negatives(n_features, rng, dtype):
    # Products of small integers are exact, and some are tied: the first is taken.
    X = rng.integers(-2, 3, (30, n_features)).astype(dtype)
    qW = rng.integers(-2, 3, (50, n_features)).astype(dtype)
    triplets = rng.integers(30, size=(50, 12))
    hardest = np.empty(50, dtype=np.int64)
    find_hardest(X, qW, triplets, hardest)
    negatives = triplets[:, 2:]
    best = np.argmax(np.einsum("tnf,tf->tn", X[negatives], qW), axis=1)
    assert_array_equal(hardest, negatives[np.arange(50), best])


@pytest.mark.parametrize("kind", ["labels", "columns"])
def test_stream_of_several_negatives(kind, counts):
    _, y = counts
    if kind == "columns":
        y = (y[:, None] == np.arange(12)).astype(float)
    relevance = check_relevance(y)
    sampler = triplet_sampler(relevance)
    drawn = draw_stream(sampler, np.random.default_rng(0), 4)(6000)
    assert drawn.shape == (6000, 6)
    block = relevance.block(slice(None), slice(None))
    assert (block[drawn[:, 0], drawn[:, 1]] == 1).all()
    assert not block[drawn[:, :1], drawn[:, 2:]].any()
    # The triplets do not depend on the size of the batches.
    stream = draw_stream(sampler, np.random.default_rng(0), 4)
    parts = np.concatenate([stream(1), stream(2999), stream(3000)])
    assert_array_equal(parts, drawn)


# -- the path --


@pytest.mark.parametrize("shrinkage", [0.1, 0.5])
def test_metrics_whiten_and_weigh(shrinkage, blobs):
    X, y = blobs
    within = np.zeros((5, 5))
    for label in range(3):
        rest = X[y == label] - X[y == label].mean(axis=0)
        within += rest.T @ rest / (len(X) - 3)
    shrunk = (1 - shrinkage) * within + shrinkage * np.trace(within) / 5 * np.eye(5)
    diagonalize = Diagonalizer(estimate_moments(X, check_relevance(y)))
    whitened = make_metric(diagonalize, "whitened", shrinkage)
    assert_allclose(whitened.A.T @ whitened.A, linalg.inv(shrunk), rtol=1e-4, atol=1e-4)
    assert_allclose(whitened.b, whitened.A @ X.mean(axis=0), rtol=1e-4, atol=1e-4)
    metric = make_metric(diagonalize, "discriminant", shrinkage)
    beta = diagonalize(shrinkage).beta[:2]
    expected = np.sqrt(beta / (1 + 2 * beta))[:, None] * whitened.A[:2]
    assert len(metric.A) == 2  # three classes
    assert_allclose(metric.A, expected, rtol=1e-5, atol=1e-6)


def test_metric_of_classes_without_spread():
    X = np.repeat(np.eye(3), 2, axis=0)
    y = np.repeat(np.arange(3), 2)
    diagonalize = Diagonalizer(estimate_moments(X, check_relevance(y)))
    metric = make_metric(diagonalize, "discriminant", 0.1)
    S = metric.items(X) @ metric.items(X).T
    assert_allclose(S[0], [1, 1, -0.5, -0.5, -0.5, -0.5], rtol=1e-4)


def make_path(X, y, **options):
    return oasis_path.Path(
        X,
        check_relevance(y),
        n_triplets=options.pop("n_triplets", 5000),
        n_models=1,
        n_components=None,
        known_classes=options.pop("known_classes", True),
        threshold=0.0,
        settings=oasis_steps.Settings(0.1),
    )


@pytest.mark.parametrize(
    ("known_classes", "metrics"),
    [(True, ["discriminant"]), (False, ["whitened", "discriminant"])],
)
def test_candidates_of_the_path(known_classes, metrics, counts):
    X, y = counts
    shares = oasis_path.SHARES
    rows = np.arange(66)
    rng = np.random.default_rng(0)
    sides = Sides(X[rows[1::2]], X[rows[1::2]])
    found = {
        candidate: sides.similarity(encoder)
        for candidate, encoder in make_path(X, y, known_classes=known_classes)(
            rows[::2], rng
        )
    }
    assert set(found) == {
        START,
        *(Candidate(None, None, n, s) for n in (1000, 4000) for s in shares),
        *(
            Candidate(metric, r, n, s)
            for metric in metrics
            for r in oasis_path.SHRINKAGES
            for n in (0, 4000)
            for s in shares
        ),
    }
    held_out = Start.fit(X[rows[::2]]).items(X[rows[1::2]])
    assert_allclose(found[START], (held_out @ held_out.T).toarray())
    # (oasis-cosine)  The unit diagonal, and the mix.
    learned = found[Candidate(None, None, 1000, 0.0)]
    assert_allclose(np.diagonal(learned), 1, rtol=1e-5)
    assert_allclose(
        found[Candidate(None, None, 1000, 0.3)],
        0.7 * learned + 0.3 * found[START],
        atol=1e-7,
    )
    few = make_path(X, y, n_triplets=30, known_classes=False)
    assert few._checkpoints(None) == [30]
    many = make_path(X, y, n_triplets=10**6, known_classes=False)
    assert many._checkpoints(None) == [1000, 4000, 16_000]


# -- the default form --


def test_known_digits():
    X, y = load_digits(return_X_y=True)
    oasis = OASIS(holdout="samples", n_triplets=4000, random_state=0)
    oasis.fit(X[:900], y[:900])
    assert oasis.score(X[900:], y[900:]) > 0.8
    assert oasis.holdout_gain_ > 2 * oasis.holdout_error_ > 0
    embedded = oasis.transform(X)
    assert_allclose(np.linalg.norm(embedded, axis=1), 1)
    assert_array_equal(embedded, oasis.transform_database(X))
    assert embedded.shape[1] == len(oasis.get_feature_names_out())


@pytest.fixture
def planted(rng):
    """Objects that differ in 3 of 20 features only; the others are noise."""
    y = np.repeat(np.arange(30), 6)
    X = 3 * rng.standard_normal((180, 20))
    X[:, :3] = 2 * rng.standard_normal((30, 3))[y] + 0.2 * rng.standard_normal((180, 3))
    return X, y


@pytest.mark.parametrize("holdout", ["objects", "samples"])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_planted_gain_is_taken(holdout, container, planted):
    X, y = planted
    oasis = OASIS(holdout=holdout, n_triplets=4000, random_state=0)
    oasis.fit(container(X[:120]), y[:120])
    test = slice(120, None) if holdout == "objects" else slice(0, 120)
    assert oasis.share_ < 1
    assert oasis.holdout_gain_ > 0.1
    cosine = CosineSimilarity(use_idf=False).fit(X)
    assert oasis.score(container(X[test]), y[test]) > 0.1 + cosine.score(
        X[test], y[test]
    )


@pytest.mark.parametrize("holdout", ["objects", "samples"])
@pytest.mark.parametrize("kind", ["counts", "dense"])
def test_start_is_kept_exactly_if_nothing_helps(holdout, kind, rng):
    y = np.repeat(np.arange(20), 4)
    if kind == "counts":  # objects share no words: the start is perfect
        X = sparse.csr_array(np.eye(20)[y])
    else:
        X = np.eye(20)[y] + 0.01 * rng.standard_normal((80, 20))
    oasis = OASIS(holdout=holdout, n_triplets=2000, random_state=0).fit(X, y)
    assert oasis.score(X, y) == 1
    assert oasis.share_ == 1
    assert oasis.holdout_gain_ == 0
    assert oasis.n_triplets_ == 0
    expected = Start.fit(X).items(X)
    encoded = oasis.transform(X)
    if kind == "counts":
        expected, encoded = expected.toarray(), encoded.toarray()
    assert_array_equal(encoded, expected)


def test_few_classes_keep_the_start(blobs):
    X, y = blobs
    with pytest.warns(StartKeptWarning, match='Pass holdout="samples" if'):
        oasis = OASIS(random_state=0).fit(X, y)
    assert oasis.share_ == 1


@pytest.mark.parametrize("metric", [None, "whitened", "discriminant"])
@pytest.mark.parametrize("share", [0.0, 0.6])
@pytest.mark.parametrize("max_directions", [15, 500])
def test_served_similarity(metric, share, max_directions, counts, monkeypatch, dtype):
    X, y = counts
    X = X.astype(dtype)
    monkeypatch.setattr(directions, "MAX_DIRECTIONS", max_directions)
    monkeypatch.setattr(
        "sklearn_simlearn.oasis._oasis.choose",
        lambda *_, **__: Choice(Candidate(metric, metric and 0.1, 300, share), {}),
    )
    oasis = OASIS(holdout="samples", random_state=0).fit(X, y)
    start = Start.fit(X).items(X)
    learned = start @ oasis.components_.T - oasis.offset_
    learned /= np.linalg.norm(learned, axis=1, keepdims=True)
    expected = (1 - share) * learned @ learned.T
    expected += share * (start @ start.T).toarray()
    Q, D = oasis.transform(X), oasis.transform_database(X)
    assert Q.dtype == D.dtype == dtype
    assert sparse.issparse(Q) == (share > 0)
    rtol = 1e-10 if dtype == "float64" else 1e-4
    assert_allclose(oasis.similarity(X), expected, rtol=rtol, atol=rtol)
    dense = OASIS(holdout="samples", random_state=0).fit(X.toarray(), y)
    assert_allclose(dense.similarity(X.toarray()), expected, rtol=1e-3, atol=1e-3)
    assert oasis.n_triplets_ == 300
    few = OASIS(holdout="samples", n_components=2, random_state=0).fit(X, y)
    assert few.components_.shape == (2, 40)
    assert_allclose(few.components_, oasis.components_[:2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("metric", ["whitened", "discriminant"])
def test_few_components_of_a_metric_are_those_that_separate_classes(metric, planted):
    X, y = planted
    with settle(Candidate(metric, 0.1, 0, 0.0)):
        full = OASIS(random_state=0).fit(X, y)
        few = OASIS(n_components=3, random_state=0).fit(X, y)
    assert_array_equal(few.components_, full.components_[:3])
    assert_array_equal(few.offset_, full.offset_[:3])
    rows = Start(None).items(X) @ full.components_.T
    means = np.array([rows[y == label].mean(axis=0) for label in np.unique(y)])
    inside = np.mean([rows[y == label].var(axis=0) for label in np.unique(y)], axis=0)
    separation = means.var(axis=0) / inside
    assert separation[:3].min() > separation[3:].max()


def test_default_form_does_not_depend_on_n_jobs(planted):
    X, y = planted
    options = {"n_triplets": 1000, "n_models": 2, "random_state": 0}
    one = OASIS(**options).fit(X, y)
    two = OASIS(n_jobs=2, **options).fit(X, y)
    assert one.share_ < 1
    assert_array_equal(one.components_, two.components_)
    assert one.holdout_gain_ == two.holdout_gain_
    for name in ("gain", "error"):
        assert_array_equal(one.holdout_results_[name], two.holdout_results_[name])


def test_variants_are_for_the_plain_form(counts):
    X, y = counts
    for options in ({"symmetric": "online"}, {"psd": "final"}):
        with pytest.raises(ValueError, match="Set holdout=None"):
            OASIS(**options).fit(X, y)


def test_relevance_matrix(counts):
    X, y = counts
    columns = (y[:, None] == np.arange(12)).astype(float)
    makes = {
        "objects": oasis_path.METRICS,
        "samples": oasis_path.METRICS_OF_KNOWN,
    }
    for holdout in makes:
        oasis = OASIS(holdout=holdout, n_triplets=1000, random_state=0)
        results = oasis.fit(X, columns).holdout_results_
        metrics = {c.metric for c in results["candidates"] if c}
        assert metrics == {None, *makes[holdout]}


def test_wide_data_takes_little_memory(rng):
    X = sparse.random_array((60, 500_000), density=1e-4, rng=rng).tocsr()
    y = np.repeat(np.arange(20), 3)
    oasis = OASIS(n_triplets=1000, random_state=0).fit(X, y)
    assert oasis.similarity(X[:3]).shape == (3, 3)
    with pytest.raises(ValueError, match=r"1\.86e\+03 GiB, more than 4.*a holdout"):
        OASIS(holdout=None).fit(X, y)


# -- the plain form --


@pytest.fixture
def words(counts):
    """Return sparse unit rows and their labels."""
    X, y = counts
    return normalize(X), y


def plain(**options):
    return OASIS(holdout=None, random_state=0, **options)


def test_plain_form_does_not_scale_rows(problem):
    X, _ = problem
    y = np.arange(30) % 4
    oasis = plain(n_triplets=300).fit(5 * X, y)
    sampler = triplet_sampler(check_relevance(y))
    (rng,) = make_generator(0).spawn(1)
    triplets = draw_stream(sampler, rng)(300)
    expected, _, n_updates = reference_sweep(np.eye(9), 5 * X, triplets, 0.1)
    assert_allclose(oasis.W_, expected, atol=1e-9)
    assert oasis.n_updates_ == n_updates
    assert_allclose(oasis.similarity(X), X @ expected @ X.T, atol=1e-8)
    assert_array_equal(oasis.transform_database(X), X)


def test_learning_ranks_better_than_the_identity():
    X, y = load_digits(return_X_y=True)
    X = normalize(X)
    oasis = plain().fit(X[:900], y[:900])
    start = plain(n_triplets=1, C=1e-12).fit(X[:900], y[:900])
    assert oasis.score(X[900:], y[900:]) > start.score(X[900:], y[900:]) + 0.08


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_batches_equal_one_sweep_over_the_same_triplets(container, problem):
    X, triplets = problem
    X = container(X)
    whole = OASIS(holdout=None).fit_triplets(X, triplets)
    stream = OASIS(holdout=None)
    for start in range(0, 400, 130):
        stream.partial_fit_triplets(X, triplets[start : start + 130])
    assert_allclose(stream.W_, whole.W_, rtol=1e-10, atol=1e-12)
    assert stream.n_triplets_ == whole.n_triplets_ == 400
    expected, _, n_updates = reference_sweep(
        np.eye(9), X if container is np.asarray else X.toarray(), triplets, 0.1
    )
    assert_allclose(whole.W_, expected, atol=1e-10)
    assert whole.n_updates_ == n_updates


@pytest.mark.parametrize("options", [{}, {"n_models": 2}, {"psd": "final"}])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_validation_keeps_the_best_interval(options, container, planted, monkeypatch):
    monkeypatch.setattr(oasis_steps, "INTERVAL", 100)
    validations = []
    initialise = Validation.__init__

    def spy(self, *args, **options):
        validations.append(self)
        initialise(self, *args, **options)

    monkeypatch.setattr(Validation, "__init__", spy)
    X, y = planted
    X = container(X)
    oasis = OASIS(holdout=3, n_triplets=1000, C=1.0, random_state=0, **options)
    oasis.fit(X, y)
    results = oasis.holdout_results_
    n_triplets = [c and c.n_triplets for c in results["candidates"]]
    assert n_triplets == [START, *range(100, 1001, 100)]
    best = results["best_index"]
    assert best == np.argmax(results["mean_average_precision"])
    assert oasis.n_triplets_ == n_triplets[best] > 0
    assert len(oasis.loss_curve_) == best

    # The held-out samples query each other.
    held_out = np.setdiff1d(np.arange(len(y)), validations[0].train)
    assert_array_equal(np.bincount(y[held_out]), np.full(y.max() + 1, 3))
    relevant = (y[held_out, None] == y[held_out]).astype(int)
    np.fill_diagonal(relevant, -1)
    measured = average_precision(relevant, oasis.similarity(X[held_out]))
    expected = results["mean_average_precision"][best]
    assert_allclose(measured.mean(), expected, rtol=1e-5)

    # A fit with this number of triplets has the same W.
    again = OASIS(holdout=3, n_triplets=oasis.n_triplets_, C=1.0, random_state=0)
    again.set_params(**options).fit(X, y)
    assert_array_equal(again.W_, oasis.W_)
    assert again.n_updates_ == oasis.n_updates_
    oasis.partial_fit(X, y)
    assert not hasattr(oasis, "holdout_gain_")


def test_validation_may_keep_the_start(rng):
    # Each class has its own word; the other features are random.
    y = np.repeat(np.arange(6), 8)
    X = 3 * np.eye(6)[y] + 0.01 * rng.random((48, 6))
    with pytest.warns(StartKeptWarning, match="OASIS keeps its start"):
        oasis = OASIS(holdout=2, n_triplets=100, random_state=0).fit(X, y)
    assert_array_equal(oasis.W_, np.eye(6))
    assert oasis.n_triplets_ == oasis.holdout_gain_ == 0


@pytest.mark.parametrize("holdout", [4, 100])
def test_validation_needs_samples_to_hold_out(holdout, counts):
    X, y = counts
    oasis = OASIS(holdout=holdout, n_triplets=10)
    with pytest.raises(ValueError, match=f"at least {holdout + 2}. y has too few"):
        oasis.fit(X, y)


def test_symmetry_index(words, planted):
    X, y = words
    assert plain(n_triplets=100, symmetric="final").fit(X, y).symmetry_index_ == 1
    oasis = plain(n_triplets=100)
    with pytest.raises(NotFittedError):
        oasis.symmetry_index_  # noqa: B018
    oasis.fit(X, y).W_ = np.array([[0.0, 3.0], [1.0, 0.0]])
    assert_allclose(oasis.symmetry_index_, np.sqrt(8 / 10))
    oasis = OASIS(n_triplets=1000, random_state=0).fit(*planted)
    with pytest.raises(AttributeError, match="Set holdout=None"):
        oasis.symmetry_index_  # noqa: B018


def test_partial_fit_continues(words):
    X, y = words
    oasis = OASIS(n_triplets=300, random_state=0)
    first = oasis.partial_fit(X, y).W_.copy()
    second = oasis.partial_fit(X, y).W_
    assert oasis.n_triplets_ == 600
    again = OASIS(n_triplets=300, random_state=0).partial_fit(X, y)
    assert_array_equal(again.W_, first)
    assert_array_equal(again.partial_fit(X, y).W_, second)
    # The second call draws other triplets than the first.
    repeated = plain(n_triplets=300).fit(X, y).partial_fit(X, y)
    assert np.abs(repeated.W_ - second).max() > 0


def test_partial_fit_starts_again_after_a_fit_with_a_holdout(planted):
    X, y = planted
    fitted = OASIS(n_triplets=1000, random_state=0).fit(X, y)
    fresh = OASIS(n_triplets=1000, random_state=0)
    assert_array_equal(fitted.partial_fit(X, y).W_, fresh.partial_fit(X, y).W_)
    assert not hasattr(fitted, "share_")
    assert fitted.n_triplets_ == 1000


def test_interval_does_not_change_the_similarity(words, monkeypatch):
    X, y = words
    for options in ({}, {"n_models": 2}):
        monkeypatch.setattr(oasis_steps, "INTERVAL", 10_000)
        whole = plain(n_triplets=12_000, **options).fit(X, y)
        monkeypatch.setattr(oasis_steps, "INTERVAL", 700)
        pieces = plain(n_triplets=12_000, **options).fit(X, y)
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


@pytest.mark.parametrize("symmetric", ["final", "online", "dissimilarity"])
def test_symmetric_variants(symmetric, words, dtype):
    X, y = words
    X = X.astype(dtype)
    W = plain(n_triplets=500, symmetric=symmetric, n_models=2).fit(X, y).W_
    assert W.dtype == dtype
    assert_allclose(W, W.T, rtol=1e-5, atol=1e-6)
    if symmetric == "final":
        W_plain = plain(n_triplets=500, n_models=2).fit(X, y).W_
        assert_array_equal(W, (W_plain + W_plain.T) / 2)


def test_dissimilarity_is_minus_a_squared_distance(words):
    X, y = words
    for psd in (None, "final"):
        oasis = plain(n_triplets=300, symmetric="dissimilarity", psd=psd)
        S = oasis.fit(X, y).similarity(X[:5], X)
        difference = X[:5].toarray()[:, None] - X.toarray()
        expected = -np.einsum("qdi,ij,qdj->qd", difference, oasis.W_, difference)
        assert_allclose(S, expected, atol=1e-10)


@pytest.mark.parametrize("psd", ["final", 100])
def test_psd(psd, words):
    X, y = words
    oasis = plain(n_triplets=450, psd=psd).fit(X, y)
    assert np.linalg.eigvalsh(oasis.W_).min() > -1e-10
    assert_allclose(oasis.components_.T @ oasis.components_, oasis.W_, atol=1e-10)
    embedded = oasis.transform(X)
    assert_allclose(embedded, oasis.transform_database(X))
    assert_allclose(embedded @ embedded.T, oasis.similarity(X))
    assert embedded.shape[1] == len(oasis.get_feature_names_out())
    W = plain(n_triplets=450).fit(X, y).W_
    values, vectors = np.linalg.eigh((W + W.T) / 2)
    projected = (vectors * np.maximum(values, 0)) @ vectors.T
    if psd == "final":
        assert_allclose(oasis.W_, projected, atol=1e-10)
    else:
        assert np.abs(oasis.W_ - projected).max() > 1e-4


def test_psd_does_not_depend_on_blas_threads(rng, monkeypatch):
    X = rng.standard_normal((40, 300)) / 10
    limits = []
    eigh = linalg.eigh

    def record(*args, **kwargs):
        libraries = get_threadpool_controller().info()
        limits.extend(x["num_threads"] for x in libraries if x["user_api"] == "blas")
        return eigh(*args, **kwargs)

    monkeypatch.setattr(oasis_steps.linalg, "eigh", record)
    plain(n_triplets=100, psd="final").fit(X, np.arange(40) % 8)
    assert set(limits) == {1}


@pytest.mark.parametrize("psd", [None, "final"])
@pytest.mark.parametrize("n_components", [1, 5, 30, 40])
def test_low_rank_is_the_best_of_its_rank(psd, n_components, words):
    X, y = words
    options = {"n_triplets": 450, "psd": psd}
    oasis = plain(n_components=n_components, **options).fit(X, y)
    W = plain(**options).fit(X, y).W_
    assert_allclose(oasis.W_, W)
    Q, D = oasis.transform(X), oasis.transform_database(X)
    rank = min(n_components, np.linalg.matrix_rank(W))
    assert Q.shape == D.shape == (66, rank)
    U, s, Vt = np.linalg.svd(W)
    best = (U[:, :rank] * s[:rank]) @ Vt[:rank]
    assert_allclose(Q @ D.T, X @ best @ X.T, atol=1e-8)


def test_averaged_rankers_do_not_depend_on_n_jobs(words, monkeypatch):
    X, y = words
    monkeypatch.setattr(oasis_steps, "INTERVAL", 200)
    options = {"n_triplets": 700, "n_models": 3}
    one = plain(**options).fit(X, y)
    two = plain(n_jobs=2, **options).fit(X, y)
    assert_array_equal(one.W_, two.W_)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        other_processes = plain(**options).fit(X, y)
    # Worker processes have the sparse rows as dense blocks: equal up to rounding.
    assert_allclose(one.W_, other_processes.W_, atol=1e-10)
    assert one.n_updates_ > 700
    dense = plain(**options).fit(X.toarray(), y)
    assert_array_equal(dense.W_, two.fit(X.toarray(), y).W_)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        other_processes.fit(X.toarray(), y)
    assert_array_equal(dense.W_, other_processes.W_)
    # The rankers differ.
    alone = plain(n_triplets=700).fit(X, y)
    assert np.abs(alone.W_ - one.W_).max() > 1e-3


def test_refit_forgets_what_no_longer_applies(planted):
    X, y = planted
    oasis = OASIS(n_triplets=1000, random_state=0).fit(X, y)
    assert oasis.components_.shape[1] == 20
    oasis.set_params(holdout=None, n_components=3).fit(X, y)
    for name in ("components_", "share_", "idf_", "offset_", "holdout_gain_"):
        assert not hasattr(oasis, name)
    assert oasis.transform(X).shape == (180, 3)
    oasis.partial_fit(X, y)
    oasis.set_params(holdout="objects").fit(X, y)
    assert not hasattr(oasis, "W_")
    assert not hasattr(oasis, "_rng")


def test_loss_curve_is_the_mean_hinge(problem, monkeypatch):
    X, triplets = problem
    monkeypatch.setattr(oasis_steps, "INTERVAL", 150)
    oasis = OASIS(holdout=None).fit_triplets(X, triplets)
    W, losses = np.eye(9), []
    for start in (0, 150, 300):
        W, loss, _ = reference_sweep(W, X, triplets[start : start + 150], 0.1)
        losses.append(loss / len(triplets[start : start + 150]))
    assert_allclose(oasis.loss_curve_, losses)


# -- callbacks and interruption --


class Recorder(FitCallback):
    """A callback that counts the intervals and stops, or fails, after some."""

    def __init__(self, stop_after=None, error=None, fail_at_end=False):
        self.stop_after, self.error, self.n_intervals = stop_after, error, 0
        self.fail_at_end = fail_at_end

    def teardown(self, estimator, context):
        self.torn_down = True

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.task_name == "interval":
            self.n_intervals += 1
            self.model = fitted_estimator
            if self.n_intervals == self.stop_after:
                if self.error is not None:
                    raise self.error
                return True
        elif context.parent is None and self.fail_at_end:
            raise RuntimeError("at the end")
        return False


def test_callbacks_see_each_interval_and_may_stop(words, monkeypatch):
    X, y = words
    monkeypatch.setattr(oasis_steps, "INTERVAL", 100)
    callback = Recorder()
    plain(n_triplets=1000).set_callbacks(callback).fit(X, y)
    assert callback.n_intervals == 10
    callback = Recorder(stop_after=3)
    oasis = plain(n_triplets=1000).set_callbacks(callback).fit(X, y)
    assert oasis.n_triplets_ == 300
    assert_array_equal(callback.model.similarity(X), oasis.similarity(X))


def test_callbacks_see_the_default_form(planted, monkeypatch):
    X, y = planted
    monkeypatch.setattr(oasis_steps, "INTERVAL", 500)
    callback = Recorder()
    oasis = OASIS(n_triplets=1000, random_state=0).set_callbacks(callback).fit(X, y)
    assert callback.n_intervals == 2
    assert_array_equal(callback.model.similarity(X), oasis.similarity(X))


def test_progress_bar_of_scikit_learn(words, capsys):
    pytest.importorskip("rich")
    X, y = words
    plain(n_triplets=300).set_callbacks(ProgressBar()).fit(X, y)
    assert "OASIS" in capsys.readouterr().out


@pytest.mark.parametrize("holdout", [None, "objects"])
@pytest.mark.parametrize("fitted_before", [False, True])
def test_failed_fit_leaves_the_estimator_unchanged(holdout, fitted_before, planted):
    X, y = planted
    oasis = OASIS(n_triplets=1000, holdout=holdout, random_state=0)
    if fitted_before:
        before = dict(vars(oasis.fit(X[:, :10], y)))
    for callback in (
        Recorder(stop_after=1, error=KeyboardInterrupt()),
        Recorder(fail_at_end=True),
    ):
        oasis.set_callbacks(callback)
        for call in (oasis.fit, oasis.partial_fit)[: 1 if holdout else 2]:
            callback.n_intervals = 0
            width = 10 if call == oasis.partial_fit and fitted_before else 20
            with pytest.raises((KeyboardInterrupt, RuntimeError)):
                call(X[:, :width], y)
            assert callback.torn_down
            if fitted_before:
                state = {
                    name: value
                    for name, value in vars(oasis).items()
                    if "callback" not in name
                }
                assert state.keys() == before.keys()
                assert all(state[name] is before[name] for name in before)
            else:
                with pytest.raises(NotFittedError):
                    oasis.transform(X)


def test_ctrl_c_interrupts_within_a_second(interrupt_fit):
    waited = interrupt_fit(
        """
import numpy as np
from sklearn_simlearn import OASIS, StartKeptWarning

X = np.random.default_rng(0).standard_normal((60, 40))
y = np.repeat(np.arange(12), 5)
estimator = OASIS(holdout=None, n_triplets=10**9, random_state=0)
"""
    )
    assert waited < 1


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


@pytest.mark.parametrize("holdout", [None, "samples"])
def test_storage_does_not_matter(holdout, counts):
    X, y = counts
    messy = X.copy()
    for row in range(66):
        part = slice(messy.indptr[row], messy.indptr[row + 1])
        messy.indices[part] = messy.indices[part][::-1].copy()
        messy.data[part] = messy.data[part][::-1].copy()
    messy.has_sorted_indices = messy.has_canonical_format = False
    for array in (messy.data, messy.indices, messy.indptr):
        array.flags.writeable = False
    oasis = OASIS(holdout=holdout, n_triplets=1000, random_state=0)
    expected = oasis.fit(X, y).similarity(X)
    for rows in (messy, X.tobsr(), X.tocoo(), sparse.csr_matrix(X)):
        assert_array_equal(oasis.fit(rows, y).similarity(rows), expected)
    strided = np.repeat(X.toarray(), 2, axis=1)[:, ::2]
    assert_allclose(oasis.fit(strided, y).similarity(strided), expected, atol=1e-8)


def test_batches_of_triplets_leave_nothing_to_hold_out(counts):
    X, _ = counts
    with pytest.warns(UserWarning, match="partial_fit_triplets learns without"):
        OASIS().partial_fit_triplets(X, [[0, 1, 9]])


@pytest.mark.parametrize("holdout", ["objects", "samples"])
@pytest.mark.parametrize("n_features", [5, 600])
def test_samples_of_zeros_keep_the_start(holdout, n_features):
    y = np.repeat(np.arange(12), 10)
    oasis = OASIS(holdout=holdout, n_triplets=100, random_state=0)
    assert oasis.fit(np.zeros((120, n_features)), y).share_ == 1


@pytest.mark.parametrize(
    ("dtype", "holdout", "limit"),
    [("float32", None, 4e8), ("float64", None, 1e76), ("float64", 2, 1.8e17)],
)
def test_the_plain_form_refuses_rows_whose_products_overflow(
    dtype, holdout, limit, rng
):
    X, y = rng.standard_normal((40, 5)), np.repeat(np.arange(8), 5)
    X = (limit * X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype)
    oasis = OASIS(holdout=holdout, n_triplets=500, random_state=0)
    assert np.isfinite(oasis.fit(X, y).similarity(X)).all()
    with pytest.raises(ValueError, match="scale X to lengths of at most"):
        oasis.fit(4 * X, y)
