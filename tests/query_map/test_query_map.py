"""Maps of queries and documents, and the shift of judged documents."""

import pickle
import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import check_grad
from sklearn.base import clone

from sklearn_simlearn import OASIS, QueryDocumentMap, StartKeptWarning
from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn.contract._samples import storage_states
from sklearn_simlearn.datasets import load_categories
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import Judgements, RetrievalScorer, average_precision
from sklearn_simlearn.query_map import _softmax
from sklearn_simlearn.query_map._encoders import SHARE_OF_NEW, digest_rows
from sklearn_simlearn.query_map._softmax import SoftmaxMaps
from sklearn_simlearn.similarities import CosineSimilarity

ndcg = RetrievalScorer("ndcg", k=10)


@pytest.fixture(scope="module")
def categories():
    """Return queries and judgements, for training and for a test."""
    data = load_categories()
    y = Judgements(data.relevance, data.document_vectors)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:200], order[200:]
    Q = data.query_vectors
    return Q[train], y[train], Q[test], y[test]


def gain(model, Q, y):
    cosine = CosineSimilarity(use_idf=False).fit(y.documents)
    return ndcg(model, Q, y) - ndcg(cosine, Q, y)


@pytest.fixture(scope="module")
def fitted(categories):
    Q, y, _, _ = categories
    return QueryDocumentMap(random_state=0).fit(Q, y)


# -- learning --


def test_the_gain_on_new_queries_is_that_of_the_holdout(fitted, categories):
    _, _, Q_test, y_test = categories
    found = gain(fitted, Q_test, y_test)
    assert found > 0.02
    assert fitted.holdout_gain_ == pytest.approx(found, abs=0.04)
    results = fitted.holdout_results_
    n_iter, shift = results["candidates"][results["best_index"]]
    assert (fitted.n_iter_, fitted.shift_) == (max(n_iter, 1), shift)
    assert len(fitted.loss_curve_) == n_iter
    assert len(set(results["candidates"])) == 12


@pytest.mark.parametrize("maps", ["both", "queries"])
def test_maps_improve_their_loss_and_new_queries(maps, categories):
    Q, y, Q_test, y_test = categories
    model = QueryDocumentMap(maps, shift=False, random_state=0).fit(Q, y)
    assert model.shift_ == 0
    if model.query_map_ is not None:
        assert model.loss_curve_[-5:].mean() < model.loss_curve_[:5].mean()
    assert gain(model, Q_test, y_test) > -0.01


def test_the_shift_alone_helps_judged_documents(categories):
    Q, y, Q_test, y_test = categories
    model = QueryDocumentMap(None, random_state=0).fit(Q, y)
    assert model.query_map_ is None
    assert model.document_map_ is None
    assert model.shift_ > 0
    assert gain(model, Q_test, y_test) > 0.02


def test_few_queries_choose_among_few_candidates(categories):
    Q, y, Q_test, y_test = categories
    for n, n_candidates in ((39, 2), (40, 12)):
        model = QueryDocumentMap(max_iter=4, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StartKeptWarning)
            model.fit(Q[:n], y[:n])
        assert len(model.holdout_results_["candidates"]) == n_candidates
    few = QueryDocumentMap(shift=False, random_state=0)
    with pytest.warns(StartKeptWarning):
        few.fit(Q[:39], y[:39])
    assert gain(few, Q_test, y_test) == 0


def test_the_shift_is_the_formula(rng):
    Q, D = rng.standard_normal((12, 5)), rng.standard_normal((20, 5))
    R = np.zeros((12, 20))
    R[0, 3], R[1, 3], R[2, 4] = 2, 1, 1
    model = QueryDocumentMap(None, holdout=None).fit(Q, Judgements(R, D))
    unit = Q / np.linalg.norm(Q, axis=1, keepdims=True)
    items = D / np.linalg.norm(D, axis=1, keepdims=True)
    for document, mean in ((3, 2 * unit[0] + unit[1]), (4, unit[2])):
        items[document] += 0.6 * mean / np.linalg.norm(mean)
        items[document] /= np.linalg.norm(items[document])
    assert_allclose(model.transform_database(D), items)
    assert_allclose(model.transform(Q), unit)


def test_new_documents_are_not_shifted_and_nothing_is_lost(categories):
    Q, y, Q_test, y_test = categories
    known = np.arange(y.shape[1]) % 2 == 0
    half = Judgements(y.relevance[:, known], y.documents[known])
    model = QueryDocumentMap(holdout="documents", random_state=0)
    model.fit(Q, half)
    assert model.shift_ == 0
    assert gain(model, Q_test, y_test) > -0.01
    with pytest.warns(StartKeptWarning):
        shift = QueryDocumentMap(None, holdout="documents", random_state=0).fit(Q, half)
    assert shift.shift_ == 0


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_new_documents_move_a_part_of_the_way(categories, form):
    Q, y, Q_test, y_test = categories
    is_known = np.arange(y.shape[1]) % 2 == 0
    half = Judgements(y.relevance[:, is_known], y.documents[is_known])
    model = QueryDocumentMap(shift=False, holdout=None, random_state=0).fit(Q, half)
    D = y.documents / np.linalg.norm(y.documents, axis=1, keepdims=True)
    share = np.where(is_known, 1, SHARE_OF_NEW)[:, None]
    moved = D + share * (D @ model.document_map_ - D)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    assert_allclose(model.transform_database(form(y.documents)), moved, atol=1e-5)
    new = Judgements(y_test.relevance[:, ~is_known], y.documents[~is_known])
    assert gain(model, Q_test, new) > 0.01


def test_with_labels_all_items_are_mapped_alike(rng):
    X, y = rng.standard_normal((120, 5)), np.repeat(np.arange(20), 6)
    model = QueryDocumentMap(holdout=None, random_state=0).fit(X, y)
    new = rng.standard_normal((9, 5))
    mapped = new @ model.document_map_
    mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
    assert_allclose(model.transform_database(new), mapped)


def test_maps_of_queries_leave_an_index_valid(categories):
    Q, y, Q_test, _ = categories
    model = QueryDocumentMap("queries", shift=False, holdout=None, random_state=0)
    model.fit(Q, y)
    assert model.document_map_ is None
    cosine = CosineSimilarity(use_idf=False).fit(y.documents)
    assert_array_equal(
        model.transform_database(y.documents), cosine.transform_database(y.documents)
    )
    assert np.abs(model.transform(Q_test) - cosine.transform(Q_test)).max() > 0.01


# -- known and new documents --


def test_documents_are_recognised_in_any_order_and_storage(fitted, categories, rng):
    D = categories[1].documents
    expected = fitted.transform_database(D)
    order = rng.permutation(len(D))
    assert_allclose(fitted.transform_database(D[order]), expected[order], atol=1e-6)
    assert_allclose(fitted.transform_database(D[5:9]), expected[5:9], atol=1e-6)
    new = rng.standard_normal((7, D.shape[1])).astype(D.dtype)
    extended = fitted.transform_database(np.concatenate([new, D]))
    assert_allclose(extended[7:], expected, atol=1e-6)
    # A new document is encoded without a shift, and so is a changed one.
    plain = fitted.encoder_.base
    assert_allclose(extended[:7], plain.items(new), atol=1e-6)
    changed = D[:5] * np.float32(1 + 1e-6)
    assert_allclose(fitted.transform_database(changed), plain.items(changed), atol=1e-6)
    shifted = fitted.encoder_.known.find(D) >= 0
    assert 0.5 < shifted.mean() < 1
    assert np.abs(expected - plain.items(D))[shifted].max() > 0.1
    for form in (D.astype(np.float64), sparse.csr_array(D), np.asfortranarray(D)):
        assert_allclose(fitted.transform_database(form), expected, atol=1e-6)


def test_equal_documents_share_a_shift(rng):
    Q, D = rng.standard_normal((12, 4)), rng.standard_normal((20, 4))
    D[1] = D[0]
    R = np.zeros((12, 20))
    R[0, 0] = R[1, 1] = 1
    model = QueryDocumentMap(None, holdout=None).fit(Q, Judgements(R, D))
    items = model.transform_database(D)
    assert_array_equal(items[0], items[1])
    assert len(model.encoder_.known.digests) == 1
    mean = (Q[:2] / np.linalg.norm(Q[:2], axis=1, keepdims=True)).sum(axis=0)
    assert_allclose(
        model.encoder_.directions[0], mean / np.linalg.norm(mean), atol=1e-12
    )


def test_digests_agree_in_all_states_of_storage(rng):
    X = sparse.random_array((40, 30), density=0.2, rng=rng, format="csr")
    X.data = np.ceil(9 * X.data)
    expected = digest_rows(X.toarray())
    model = CosineSimilarity(use_idf=False).fit(X)
    for name, form in storage_states(X).items():
        for dtype in (np.float32, np.float64):
            rows = model._check_rows(form.astype(dtype))
            assert_array_equal(digest_rows(rows), expected, err_msg=name)
    occupied = np.diff(X.indptr) > 0
    assert len(np.unique(expected[occupied], axis=0)) == np.count_nonzero(occupied)
    assert not expected[~occupied].any()
    # Zeros of both signs, columns and values that are exchanged, equal sums.
    rows = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, -0.0], [1.0, 2.0, -0.0], [3, 0, 0]])
    digests = digest_rows(rows)
    assert_array_equal(digests[0], digests[2])
    assert len(np.unique(digests, axis=0)) == 3


def test_digests_do_not_depend_on_blocks(rng, monkeypatch):
    from sklearn_simlearn.query_map import _encoders

    X = rng.standard_normal((50, 7)) * (rng.random((50, 7)) < 0.7)
    expected = digest_rows(X)
    monkeypatch.setattr(_encoders, "BLOCK", 16)
    assert_array_equal(digest_rows(X), expected)
    assert_array_equal(digest_rows(sparse.csr_array(X)), expected)


@pytest.mark.parametrize("train_sparse", [False, True])
@pytest.mark.parametrize("maps", [None, "queries"])
def test_a_shift_of_sparse_rows_stays_sparse(train_sparse, maps, rng):
    Q, D = rng.poisson(0.5, (30, 12)) * 1.0, rng.poisson(0.5, (50, 12)) * 1.0
    R = (rng.random((30, 50)) < 0.1) * 1.0
    form = sparse.csr_array if train_sparse else np.asarray
    model = QueryDocumentMap(maps, holdout=None, random_state=0)
    model.fit(form(Q), Judgements(R, form(D)))
    dense = model.transform_database(D)
    items = model.transform_database(sparse.csr_array(D))
    assert sparse.issparse(items)
    assert_allclose(items.toarray(), dense, atol=1e-9)
    S = model.similarity(sparse.csr_array(Q), sparse.csr_array(D))
    assert_allclose(S, model.similarity(Q, D), atol=1e-6)


def test_a_stored_model_recognises_documents(fitted, categories, tmp_path):
    _, _, Q_test, y_test = categories
    D = y_test.documents
    thawed = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(thawed.transform_database(D), fitted.transform_database(D))
    index = SimilarityIndex(fitted).fit(D)
    index.save(tmp_path / "index")
    again = SimilarityIndex.load(tmp_path / "index", trusted=[])
    again.add(D[:3])
    first, again_first = (one.search(Q_test, k=1)[0] for one in (index, again))
    assert_allclose(again_first, first, atol=1e-6)
    assert_allclose(
        again.estimator.transform_database(D), fitted.transform_database(D), atol=1e-6
    )


# -- the solver --


def problem(rng, both, n_items=9):
    Q, D = rng.standard_normal((6, 3)), rng.standard_normal((n_items, 3))
    X = np.concatenate([Q, D])
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    R = rng.integers(-1, 3, size=(6, n_items)).astype(float)
    R[:, 0], R[:, 1] = 2, 0
    relevance = JudgedRelevance.of(sparse.csr_array(R))
    maps = SoftmaxMaps(X, relevance, both=both, alpha=3.0, max_iter=10, rng=rng)
    return maps, X[:6], X[6:], R


def reference_loss(v, Q, D, R, both, alpha, temperature):
    """Return the loss of two maps, by loops over queries and documents."""
    V, U = v[:9].reshape(3, 3), v[9:].reshape(3, 3)
    loss = 0.5 * alpha / len(Q) * (v**2).sum()
    for q, relevant in zip(Q, R, strict=True):
        q = q + q @ V
        if both:
            q = q / np.linalg.norm(q)
        s = []
        for d in D:
            d = d + d @ U
            s.append(q @ d / (np.linalg.norm(d) if both else 1) / temperature)
        s = np.array(s)[relevant >= 0]
        weights = relevant[relevant >= 0]
        log_p = s - np.log(np.exp(s).sum())
        loss -= (weights / weights.sum() * log_p).sum() / len(Q)
    return loss


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("working_memory", [1024, 1e-3])
def test_gradients_are_those_of_the_loss(both, is_sparse, working_memory, rng):
    maps, Q, D, R = problem(rng, both)
    if is_sparse:
        maps.rows = sparse.csr_array(maps.rows)
    found = []

    class Recording(_softmax.Adam):
        def move(self, gradient, rate):
            found.append(gradient)

    maps.V = Recording(3, Q.dtype)
    maps.U = Recording(3, Q.dtype) if both else None
    start = rng.standard_normal((2, 3, 3)) * 0.3
    maps.V.value = start[0]
    if both:
        maps.U.value = start[1]
    else:
        start[1] = 0
    args = (Q, D, R, both, 3.0, maps.temperature)

    def gradient(v, *args):
        found.clear()
        maps.V.value = v[:9].reshape(3, 3)
        if both:
            maps.U.value = v[9:].reshape(3, 3)
        with sklearn.config_context(working_memory=working_memory):
            maps._step()
        return np.concatenate([g.ravel() for g in found])

    point = start.ravel() if both else start[0].ravel()

    def loss(v, *args):
        return reference_loss(v if both else np.append(v, np.zeros(9)), *args)

    error = check_grad(loss, gradient, point, *args)
    assert error < 1e-4 * np.linalg.norm(gradient(point))


def test_a_sample_is_not_an_item_of_its_own_query(rng):
    X = rng.standard_normal((8, 3))
    relevance = check_relevance(np.repeat([0, 1], 4))
    maps = SoftmaxMaps(X, relevance, both=False, alpha=0.0, max_iter=10, rng=rng)
    for _ in maps.learn_up_to(1):
        pass
    R = np.kron(np.eye(2), np.ones((4, 4))) - 2 * np.eye(8)
    expected = reference_loss(np.zeros(18), X, X, R, False, 0.0, maps.temperature)
    assert maps.losses == [pytest.approx(expected)]


def test_the_convex_loss_reaches_its_minimum(rng):
    from scipy.optimize import minimize

    maps, Q, D, R = problem(rng, both=False)
    args = (Q, D, R, False, 3.0, maps.temperature)
    best = minimize(
        lambda v: reference_loss(np.append(v, np.zeros(9)), *args), np.zeros(9)
    )
    maps.max_iter = 2000
    for _ in maps.learn_up_to(2000):
        pass
    assert_allclose(maps.V.value.ravel(), best.x, atol=2e-3)


@pytest.mark.parametrize("kind", ["judgements", "labels"])
def test_many_documents_are_drawn(kind, rng, monkeypatch):
    monkeypatch.setattr(_softmax, "MAX_ITEMS", 20)
    monkeypatch.setattr(_softmax, "BATCH", 4)
    if kind == "judgements":
        R = (rng.random((10, 60)) < 0.1) * 1.0
        R[:, 0] = 1
        relevance = JudgedRelevance.of(sparse.csr_array(R))
    else:
        relevance = check_relevance(np.arange(70) % 14)
    X = rng.standard_normal((70, 5)).astype(np.float32)
    maps = SoftmaxMaps(X, relevance, both=True, alpha=1.0, max_iter=5, rng=rng)
    batch = maps._next_batch()
    items, log_weights, D = maps._draw_items(batch)
    assert len(items) == len(np.unique(items)) == D.shape[0] == 20
    # The weights of the drawn documents add up to the number of all.
    assert np.exp(log_weights).sum() == pytest.approx(len(maps.items), rel=1e-5)
    relevant = (relevance.block(batch, np.arange(70)) > 0).any(axis=0)
    assert np.count_nonzero(relevant[items]) >= min(np.count_nonzero(relevant), 10)
    for _ in maps.learn_up_to(5):
        pass
    assert np.isfinite(maps.losses).all()


def test_every_query_comes_once_before_one_comes_again(rng, monkeypatch):
    monkeypatch.setattr(_softmax, "BATCH", 4)
    maps, *_ = problem(rng, both=False)
    drawn = np.concatenate([maps._next_batch() for _ in range(3)])
    assert_array_equal(np.bincount(drawn), [2] * 6)


def test_memory_does_not_change_the_result(categories):
    Q, y, Q_test, _ = categories
    model = QueryDocumentMap(holdout=None, max_iter=5, random_state=0)
    expected = clone(model).fit(Q, y).transform(Q_test)
    with sklearn.config_context(working_memory=1):
        assert_allclose(model.fit(Q, y).transform(Q_test), expected, atol=1e-4)


# -- parameters and other kinds of y --


def test_labels_are_learned_without_a_shift():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(20), 6)
    # Half of the features depend on the class, the others are noise.
    X = np.repeat([0.5, 2.0], 5) * rng.standard_normal((120, 10))
    X[:, :5] += rng.standard_normal((20, 5))[y]
    model = QueryDocumentMap(holdout="samples", random_state=0).fit(X, y)
    assert model.shift_ == 0
    assert model.holdout_gain_ > 0


def test_targets_that_cannot_be_learned_are_refused(rng):
    X, y = rng.standard_normal((20, 3)), np.repeat(np.arange(4), 5)
    with pytest.raises(ValueError, match="pass Judgements as y"):
        QueryDocumentMap(None).fit(X, y)
    judged = Judgements(np.eye(20), X)
    with pytest.raises(ValueError, match="Set shift=True"):
        QueryDocumentMap(None, shift=False).fit(X, judged)
    wide = sparse.random_array((20, 5000), density=0.01, rng=rng, format="csr")
    with pytest.raises(ValueError, match="TruncatedSVD"):
        QueryDocumentMap().fit(wide, Judgements(np.eye(20), wide))
    model = QueryDocumentMap(None, holdout=None).fit(wide, Judgements(np.eye(20), wide))
    assert sparse.issparse(model.encoder_.directions)


def test_the_result_is_exactly_the_same(categories):
    Q, y, Q_test, _ = categories
    model = QueryDocumentMap(max_iter=4, random_state=0)
    first = clone(model).fit(Q, y).transform(Q_test)
    assert_array_equal(model.fit(Q, y).transform(Q_test), first)


# -- two widths --


@pytest.fixture(scope="module")
def two_widths():
    """Return queries of 40 features, documents of 64, and judgements."""
    data = load_categories()
    Q = data.query_vectors
    turned = Q @ np.random.default_rng(0).standard_normal((64, 40)).astype(Q.dtype)
    return turned, Judgements(data.relevance, data.document_vectors)


@pytest.mark.parametrize(
    "options",
    [
        {"max_iter": 12},
        {"shift": False, "holdout": None, "max_iter": 12},
        {"maps": "queries", "shift": False, "holdout": "documents"},
        {"maps": None, "holdout": None},
    ],
)
def test_sides_of_different_widths(options, two_widths, tmp_path):
    Q, y = two_widths
    model = QueryDocumentMap(random_state=0, **options).fit(Q[::2], y[::2])
    assert model.query_map_.shape == (40, 64)
    assert model.n_features_in_ == 40
    popularity = np.asarray(y[::2].relevance.sum(axis=0)).ravel()
    R = y[1::2].relevance.toarray()
    by_popularity = average_precision(R, np.tile(popularity, (len(R), 1)))
    assert model.score(Q[1::2], y[1::2]) > 1.5 * np.nanmean(by_popularity)
    S = model.similarity(Q[:9], y.documents)
    encoded = model.transform(Q[:9]), model.transform_database(y.documents)
    assert_allclose(encoded[0] @ encoded[1].T, S, atol=1e-5)
    index = SimilarityIndex(model).fit(y.documents)
    index.save(tmp_path / "index")
    loaded = SimilarityIndex.load(tmp_path / "index", trusted=[])
    scores, _ = loaded.search(Q[:9], k=4)
    assert_allclose(scores, -np.sort(-S)[:, :4], atol=1e-5)
    if model.shift_ == 0:
        unit = model.query_map_ / np.linalg.norm(model.query_map_)
        mapped = Q[:9] @ unit.astype(Q.dtype)
        mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
        assert_allclose(mapped, encoded[0], atol=1e-5)
    for wrong in (model.transform_database, model.similarity):
        with pytest.raises(ValueError, match="40 features, but Documents is expecting"):
            wrong(Q)


def test_the_start_of_different_widths_is_a_rotation(rng):
    D = rng.standard_normal((80, 6))
    rotation = np.linalg.qr(rng.standard_normal((9, 6)))[0]
    Q = D[:60] @ rotation.T
    y = Judgements(np.eye(60, 80), D)
    with pytest.warns(StartKeptWarning):
        model = QueryDocumentMap(random_state=0).fit(Q[:50], y[:50])
    assert_allclose(model.query_map_, rotation, atol=1e-10)
    assert model.score(Q[50:], y[50:]) == 1
    assert model.holdout_gain_ == 0


def test_bad_widths(two_widths, rng):
    Q, y = two_widths
    with pytest.raises(ValueError, match="have 40 features and documents have 64"):
        QueryDocumentMap().fit(sparse.csr_array(Q), y)
    with pytest.raises(ValueError, match="40 features"):
        OASIS().fit(Q, y)
    wide = Judgements(np.eye(12, 20), rng.standard_normal((20, 5000)))
    with pytest.raises(ValueError, match="5000 features are too large"):
        QueryDocumentMap().fit(rng.standard_normal((12, 3)), wide)
    model = QueryDocumentMap(None, holdout=None).fit(Q, y)
    again = model.fit(Q, y.with_documents(y.documents[:, :40]))
    assert again.query_map_ is None
    assert again.similarity(Q[:3]).shape == (3, 3)
