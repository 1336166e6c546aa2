"""HistogramRankSVM: kernels against their formulas, the solver, the estimator."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold

from sklearn_simlearn import HistogramRankSVM
from sklearn_simlearn._histogram import (
    PAIRS,
    TOP,
    _finest_pattern,
    _gains,
    _group_words,
    _halve,
    _invert,
    _mergers,
    _parametrise,
    _Solver,
    _truncate,
)
from sklearn_simlearn._histogram_fast import (
    ascend,
    count_words,
    fill_postings,
    find_cuts,
    score_queries,
)
from sklearn_simlearn._relevance import check_relevance
from sklearn_simlearn.similarities import CosineSimilarity


def naive_similarity(Q, D, weights, group, scale=None):
    """The double sum of the definition, what the items add to s(q, 0) times a scale."""
    n = weights.shape[1] - 1
    S = np.zeros((len(Q), len(D)))
    for i, q in enumerate(np.minimum(Q, n).astype(int)):
        for j, d in enumerate(np.minimum(D, n).astype(int)):
            S[i, j] = weights[group, q, d].sum()
    if scale is not None:
        alone = naive_similarity(Q, np.zeros((1, Q.shape[1])), weights, group)
        S = alone + scale * (S - alone)
    return S


def naive_features(q, D, group, n_groups, n):
    """Phi(q, d) of every item: what the gains are multiplied with."""
    q, D = np.minimum(q, n).astype(int), np.minimum(D, n).astype(int)
    phi = np.zeros((len(D), n_groups, n + 1, n + 1))
    for j, d in enumerate(D):
        for i in np.flatnonzero(d):
            phi[j, group[i], 0, d[i]] += 1
            if q[i]:
                phi[j, group[i], q[i], d[i]] += 1
    return phi


def naive_loss(score, relevance, loss, k):
    """Loss of one query by its definition."""
    u, v = score[relevance > 0], score[relevance == 0]
    weight = relevance[relevance > 0] / relevance[relevance > 0].sum()
    if loss == PAIRS:
        return weight @ np.maximum(0, 1 - u[:, None] + v).mean(axis=1)
    return weight @ np.maximum(0, 1 - u + np.sort(v)[-k:].mean())


def random_counts(rng, n_rows, n_words, rate=0.8):
    return rng.poisson(rate, size=(n_rows, n_words)).astype(np.float64)


def pose(model, X, y):
    relevance = check_relevance(y)
    model.n_features_in_ = X.shape[1]
    rows = _truncate(X, model.truncation)
    is_query = relevance.find_queries()
    return model._pose(rows, relevance, is_query, model.truncation + 1)


# -- the inverted file --


def test_postings_are_the_transposed_items(rng):
    X = random_counts(rng, 7, 5)
    rows = _truncate(X, 3)
    start, postings = _invert(rows, 5)
    for word in range(5):
        part = postings[start[word] : start[word + 1]]
        assert_array_equal(part >> 4, np.flatnonzero(X[:, word]))
        assert_array_equal(part & 15, np.minimum(X[part >> 4, word], 3))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_scores_match_the_double_sum(n_threads, rng, dtype):
    Q, D = random_counts(rng, 6, 30), random_counts(rng, 9, 30)
    group = rng.integers(0, 3, 30, dtype=np.int32)
    weights = rng.standard_normal((3, 4, 4))
    weights[:, 0, 0] = 0
    q, d = np.minimum(Q, 3).astype(int), np.minimum(D, 3).astype(int)
    scale = rng.uniform(0.5, 2, size=9)
    S = np.empty((6, 9), dtype=dtype)
    score_queries(
        *_truncate(Q, 3),
        *_invert(_truncate(D, 3), 30),
        group,
        _gains(weights).astype(dtype),
        weights[group, 0, d].sum(axis=1).astype(dtype),
        weights[group, q, 0].sum(axis=1).astype(dtype),
        scale.astype(dtype),
        n_threads,
        S,
    )
    tolerance = 1e-4 if dtype == "float32" else 1e-12
    expected = naive_similarity(Q, D, weights, group, scale)
    assert_allclose(S, expected, rtol=tolerance, atol=tolerance)


@st.composite
def models(draw):
    """A model with any weights, and counts to compare."""
    seed = draw(st.integers(0, 2**32 - 1))
    n = draw(st.integers(1, 6))
    n_groups = draw(st.integers(1, 4))
    n_words = draw(st.integers(1, 12))
    symmetric = draw(st.booleans())
    n_merged = draw(st.integers(0, 3))
    rng = np.random.default_rng(seed)
    pattern = _finest_pattern(n, symmetric)
    for _ in range(n_merged):
        mergers = list(_mergers(pattern))
        if len(mergers) > 1:
            pattern = mergers[rng.integers(len(mergers))]
    of_bin = rng.standard_normal((n_groups, pattern.max() + 1))
    of_bin[:, pattern[0, 0]] = 0
    model = HistogramRankSVM()
    model.n_features_in_ = n_words
    model.truncation_, model.mean_length_ = n, 1.5 * n_words
    model.word_groups_ = rng.integers(0, n_groups, n_words, dtype=np.int32)
    model.weights_ = of_bin[:, pattern]
    return model, *rng.poisson(1.5, size=(2, 5, n_words)).astype(np.float64)


@settings(deadline=None, max_examples=60)
@given(models())
def test_similarity_is_the_double_sum_for_any_model(case):
    model, Q, D = case
    expected = naive_similarity(Q, D, model.weights_, model.word_groups_)
    assert_allclose(model.similarity(Q, D), expected, atol=1e-10)
    product = model.transform(Q) @ model.transform_database(D).T
    assert_array_equal(product.toarray(), model.similarity(Q, D))  # to the last bit

    model.set_params(length_slope=0.4)
    length = np.minimum(D, model.truncation_).sum(axis=1) / model.mean_length_
    expected = naive_similarity(
        Q, D, model.weights_, model.word_groups_, 1 / (0.6 + 0.4 * length)
    )
    assert_allclose(model.similarity(Q, D), expected, atol=1e-10)
    product = model.transform(Q) @ model.transform_database(D).T
    assert_allclose(product.toarray(), expected, atol=1e-10)


def test_rows_without_words(rng):
    X = random_counts(rng, 4, 6)
    X[1] = 0
    model = HistogramRankSVM()
    model.n_features_in_, model.truncation_, model.mean_length_ = 6, 2, 0.0
    model.word_groups_ = np.zeros(6, dtype=np.int32)
    model.weights_ = rng.standard_normal((1, 3, 3))
    model.weights_[:, 0, 0] = 0
    expected = naive_similarity(X, X, model.weights_, model.word_groups_)
    assert_allclose(model.similarity(X), expected, atol=1e-12)
    assert_array_equal(model.similarity(np.zeros((2, 6))), np.zeros((2, 2)))


# -- cuts --


def cut(X, group, n_groups, n, gain, relevance, loss, k=1, n_threads=1, scale=None):
    """Call the kernel for every row of X as a query."""
    rows = _truncate(X, n)
    totals = np.zeros((len(X), n_groups, n + 1), dtype=np.int32)
    count_words(*rows, group, totals)
    of_item = (totals * gain[:, 0]).sum(axis=(1, 2))
    value, offset = np.empty((2, len(X)))
    cuts = np.zeros((len(X), n_groups, n + 1, n + 1))
    find_cuts(
        np.arange(len(X)),
        relevance,
        *rows,
        *_invert(rows, X.shape[1]),
        group,
        totals,
        gain,
        of_item,
        np.ones(len(X)) if scale is None else scale,
        loss,
        k,
        n_threads,
        value,
        offset,
        cuts,
    )
    return value, offset, cuts


def random_relevance(rng, n, dtype):
    """Some relevant, some irrelevant, some junk for each."""
    relevance = rng.integers(-1, 2, size=(n, n)).astype(dtype)
    relevance[:, 0], relevance[:, 1] = 1, 0
    if dtype == np.float64:
        relevance *= rng.uniform(0.5, 2, size=(n, n))
        relevance[relevance < 0] = -1
    return relevance


each_loss = pytest.mark.parametrize(
    ("loss", "k"), [(TOP, 1), (TOP, 3), (TOP, 99), (PAIRS, 1)]
)


# Few words: long postings, so cuts walk along rows. Many words: along postings.
@pytest.mark.parametrize("n_words", [3, 60])
@pytest.mark.parametrize("relevance_type", [np.int8, np.float64])
@pytest.mark.parametrize("n_threads", [1, 2])
@each_loss
def test_cuts_match_reference(n_words, relevance_type, n_threads, loss, k, rng):
    n, n_groups = 2, 3
    X = random_counts(rng, 12, n_words, rate=0.6)
    group = rng.integers(0, n_groups, n_words, dtype=np.int32)
    relevance = random_relevance(rng, 12, relevance_type)
    gain, other = rng.normal(scale=0.3, size=(2, n_groups, n + 1, n + 1))
    scale = rng.uniform(0.5, 2, size=12)
    value, offset, cuts = cut(
        X, group, n_groups, n, gain, relevance, loss, k, n_threads, scale
    )
    for i, q in enumerate(X):
        phi = naive_features(q, X, group, n_groups, n).reshape(12, -1)
        phi *= scale[:, None]
        score = phi @ gain.ravel()
        expected = naive_loss(score, relevance[i], loss, k)
        assert_allclose(value[i], expected, atol=1e-12)
        # The plane touches the loss here and supports it everywhere.
        assert_allclose(offset[i] + np.vdot(cuts[i], gain), expected, atol=1e-12)
        elsewhere = naive_loss(phi @ other.ravel(), relevance[i], loss, k)
        assert offset[i] + np.vdot(cuts[i], other) <= elsewhere + 1e-12


def test_cut_worked_by_hand():
    # Query and relevant item share word 0, the irrelevant item has word 1 twice.
    X = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    relevance = np.array([[-1, 1, 0], [1, -1, 0], [0, 0, 1]], dtype=np.int8)
    gain = np.zeros((1, 3, 3))
    gain[0, 0] = [0, 0.1, 0.2]  # what an item gains by counts 1 and 2 of its own
    gain[0, 1, 1] = 0.5  # what it gains on top where both have a word once
    group = np.zeros(2, dtype=np.int32)
    for loss in (TOP, PAIRS):
        value, offset, cuts = cut(X, group, 1, 2, gain, relevance, loss)
        # s(q, u) = 0.1 + 0.5, s(q, v) = 0.2
        assert_allclose(value[:2], 1 - 0.6 + 0.2)
        assert_allclose(offset[:2], 1)
        assert_array_equal(cuts[0], [[[0, -1, 1], [0, -1, 0], [0, 0, 0]]])


def test_satisfied_query_has_the_zero_plane():
    X = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    relevance = np.array([[-1, 1, 0]] * 3, dtype=np.int8)
    gain = np.zeros((1, 3, 3))
    gain[0, 1, 1] = 2.0
    for loss in (TOP, PAIRS):
        value, offset, cuts = cut(
            X, np.zeros(2, dtype=np.int32), 1, 2, gain, relevance, loss
        )
        assert value[0] == offset[0] == 0
        assert not cuts[0].any()


def test_kernels_accept_read_only_data(rng):
    X = random_counts(rng, 6, 8)
    rows = _truncate(X, 2)
    start, postings = _invert(rows, 8)
    group = np.zeros(8, dtype=np.int32)
    relevance = random_relevance(rng, 6, np.int8)
    gain, of_item, scale = np.zeros((1, 3, 3)), np.zeros(6), np.ones(6)
    totals = np.zeros((6, 1, 3), dtype=np.int32)
    queries, capacity = np.arange(6), np.ones(6)
    planes, offsets = np.zeros((6, 2, 3)), np.zeros((6, 2))
    for array in (
        *rows, start, postings, group, relevance, gain, of_item, scale, totals, queries,
        capacity, planes, offsets,
    ):  # fmt: skip
        array.flags.writeable = False
    begin = np.concatenate([[0], start[:-1]])
    fill_postings(*rows, begin, np.empty_like(postings))
    count_words(*rows, group, np.zeros((6, 1, 3), dtype=np.int32))
    score_queries(
        *rows, start, postings, group, gain, of_item, of_item, scale, 1,
        np.empty((6, 6)),
    )  # fmt: skip
    find_cuts(
        queries, relevance, *rows, start, postings, group, totals, gain, of_item, scale,
        TOP, 1, 1, np.empty(6), np.empty(6), np.zeros((6, 1, 3, 3)),
    )  # fmt: skip
    ascend(planes, offsets, np.zeros((6, 2)), capacity, 1.0, np.zeros(3), 2)


# -- the solver --


def test_ascent_closes_the_gap_of_the_small_problem(rng):
    planes, offsets = rng.standard_normal((15, 4, 6)), rng.uniform(size=(15, 4))
    offsets[3, 2:] = -np.inf  # empty slots
    capacity = rng.uniform(0.5, 1.5, 15)
    mass, theta = np.zeros((15, 4)), np.empty(6)
    previous = -np.inf
    for _ in range(50):
        dual, primal = ascend(planes, offsets, mass, capacity, 0.7, theta, 20)
        assert previous <= dual + 1e-12
        assert dual <= primal + 1e-12
        previous = dual
    assert primal - dual < 1e-9

    def objective(theta):
        height = (planes @ theta + offsets).max(axis=1)
        return 0.35 * theta @ theta + capacity @ np.maximum(height, 0)

    assert_allclose(objective(theta), primal)
    for _ in range(100):
        assert objective(theta + rng.normal(scale=0.1, size=6)) >= dual
    assert (mass >= 0).all()
    assert (mass.sum(axis=1) <= capacity * (1 + 1e-12)).all()


def reference_minimum(problem, X, pattern, alpha, loss, k):
    """The objective by SLSQP on the epigraph, every violation a constraint."""
    _, to_gain = _parametrise(problem.mean_difference, pattern)
    (search,) = problem.searches
    n_groups, n_counts, _ = search.shape
    slopes, slack_of, costs = [], [], []
    for block, rows, relevance in search.relevance.search(search.queries):
        for q, row, c in zip(rows, relevance, problem.capacity[block], strict=True):
            phi = naive_features(X[q], X, search.group, n_groups, n_counts - 1)
            phi = search.scale[:, None] * phi.reshape(len(X), -1) @ to_gain
            relevant, irrelevant = np.flatnonzero(row > 0), np.flatnonzero(row == 0)
            if loss == "pairwise":
                rivals = [[(v,)] for v in irrelevant]
            else:
                rivals = [list(combinations(irrelevant, k))]
            for u in relevant:
                for alternatives in rivals:
                    for some in alternatives:
                        slopes.append(phi[u] - phi[list(some)].mean(axis=0))
                        slack_of.append(len(costs))
                    costs.append(c / len(relevant) / len(rivals))
    slopes, costs, n_theta = np.array(slopes), np.array(costs), to_gain.shape[1]
    A = np.hstack([slopes, np.eye(len(costs))[slack_of]])
    weight = np.concatenate([np.full(n_theta, alpha), np.zeros(len(costs))])
    linear = np.concatenate([np.zeros(n_theta), costs])
    result = minimize(
        lambda z: 0.5 * z @ (weight * z) + linear @ z,
        np.concatenate([np.zeros(n_theta), np.ones(len(costs))]),
        jac=lambda z: weight * z + linear,
        bounds=[(None, None)] * n_theta + [(0, None)] * len(costs),
        constraints={"type": "ineq", "fun": lambda z: A @ z - 1, "jac": lambda z: A},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert result.success
    return result.fun


@pytest.mark.parametrize("alpha", [0.05, 1.0])
@pytest.mark.parametrize("slope", [0.0, 0.3])
@pytest.mark.parametrize(("loss", "k"), [("max", 1), ("topk", 2), ("pairwise", 1)])
def test_objective_matches_an_independent_solver(alpha, slope, loss, k):
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1, 2], 3)
    X = rng.poisson(rng.gamma(0.5, 2, size=(3, 15))[y]).astype(np.float64)
    model = HistogramRankSVM(
        alpha,
        loss=loss,
        top_k=2,
        truncation=1,
        n_word_groups=2,
        length_slope=slope,
        tol=1e-7,
    ).fit(X, y)
    pattern = model.weight_pattern_
    expected = reference_minimum(pose(model, X, y), X, pattern, alpha, loss, k)
    assert_allclose(model.objective_, expected, atol=1e-5)
    assert model.dual_gap_ <= 1e-7 * model.objective_

    # Wherever the solver stops, the gap it reports covers the true one.
    for tol in (0.5, 0.1, 0.01):
        coarse = model.set_params(tol=tol).fit(X, y)
        assert coarse.objective_ - coarse.dual_gap_ <= expected + 1e-7
        assert expected <= coarse.objective_ + 1e-7


@pytest.mark.parametrize("alpha", [0.1, 100.0])
def test_objective_worked_by_hand(alpha):
    # Every query sees the same: s(q, u) - s(q, v) = the gain of (1, 1) = t'theta. The
    # minimum of alpha / 2 |theta|^2 + max(0, 1 - t'theta) lies along t.
    X = np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    model = HistogramRankSVM(alpha, truncation=1, n_word_groups=1, tol=1e-10)
    model.fit(X, [0, 0, 1, 1])
    problem = pose(model, X, [0, 0, 1, 1])
    _, to_gain = _parametrise(problem.mean_difference, model.weight_pattern_)
    t2 = to_gain[3] @ to_gain[3]
    expected = 1 - t2 / (2 * alpha) if t2 < alpha else alpha / (2 * t2)
    assert_allclose(model.objective_, expected, rtol=1e-9)
    # The objective is strongly convex: the gap bounds the distance to the minimum.
    distance = np.sqrt(2 * model.dual_gap_ / alpha)
    gain = _gains(model.weights_)[0, 1, 1]
    assert_allclose(gain, min(t2 / alpha, 1), atol=np.sqrt(t2) * distance + 1e-12)


def test_full_bundle_merges_planes_and_keeps_the_bound(counts):
    X, y = counts
    model = HistogramRankSVM(truncation=2)
    problem = pose(model, X, y)
    solver = _Solver(problem, _finest_pattern(2, False), 0.1)
    bounds = []
    for _ in range(5 * solver.n_slots):
        solver.iterate(1e-9)
        bounds.append(solver.bound)
        assert solver.bound <= solver.objective
        assert (solver.mass.sum(axis=1) <= problem.capacity * (1 + 1e-12)).all()
    assert_array_equal(bounds, np.sort(bounds))
    assert solver.gap < 1e-4


def test_loss_of_weights_of_zero_is_one(counts):
    X, y = counts
    for loss in ("max", "topk", "pairwise"):
        problem = pose(HistogramRankSVM(loss=loss), X, y)
        value, _, _ = problem.cut(np.zeros((5, 5, 5)))
        assert_allclose(problem.capacity @ value, 1)


# -- the estimator --


def test_learning_beats_the_cosine(counts):
    X, y = counts
    for loss in ("max", "topk", "pairwise"):
        model = HistogramRankSVM(loss=loss, truncation=2, n_word_groups=2)
        learned = model.fit(X[::2], y[::2]).score(X[1::2], y[1::2])
        assert learned > CosineSimilarity().fit(X[::2]).score(X[1::2], y[1::2])


def test_result_does_not_depend_on_threads(counts):
    X, y = counts
    models = [HistogramRankSVM(n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2, 4)]
    for model in models[1:]:
        assert_array_equal(model.weights_, models[0].weights_)
        assert_array_equal(model.similarity(X), models[0].similarity(X))


def test_similarity_is_asymmetric_unless_asked(counts):
    X, y = counts
    model = HistogramRankSVM(truncation=2).fit(X, y)
    assert not np.allclose(model.weights_, model.weights_.swapaxes(1, 2))
    model = HistogramRankSVM(truncation=2, symmetric=True).fit(X, y)
    assert_array_equal(model.weights_, model.weights_.swapaxes(1, 2))
    assert_allclose(model.similarity(X), model.similarity(X).T)


def test_weights_of_common_absence_are_zero(counts):
    X, y = counts
    model = HistogramRankSVM(truncation=3, n_word_groups=4).fit(X, y)
    assert model.weights_.shape == (4, 4, 4)
    assert not model.weights_[:, 0, 0].any()


def test_groups_by_document_frequency():
    frequency = np.array([0, 5, 1, 1, 3, 9, 4, 1])
    # Seven words are seen. Words of equal frequency stay together, unseen ones are
    # rare.
    groups = _group_words(frequency, 3)
    assert_array_equal(groups, [0, 2, 0, 0, 1, 2, 1, 0])
    assert_array_equal(_group_words(frequency, 1), np.zeros(8))
    assert_array_equal(_group_words(np.zeros(4, int), 3), np.zeros(4))


def test_halves_keep_objects_whole():
    y = np.array([3, 3, -1, 5, 5, 9, 9, -1, -1, 7, 7])
    half = _halve(check_relevance(y))
    for label in (3, 5, 7, 9):
        assert len(np.unique(half[y == label])) == 1
    assert 4 <= half.sum() <= 7
    assert half[y == -1].sum() == 2


def make_rare_words(rng, n_objects=40):
    """Words of one frequency, many for few samples: rare is what objects differ in."""
    y = np.repeat(np.arange(n_objects), 4)
    of_object = rng.integers(0, 3000, size=(n_objects, 24))
    X = np.zeros((len(y), 3000))
    for row, label in zip(X, y, strict=True):
        row[rng.choice(of_object[label], 12, replace=False)] += 1
        row[rng.integers(0, 3000, 80)] += 1
    return X, y


def test_cross_fit_words_are_not_rare_by_themselves(rng):
    X, y = make_rare_words(rng)
    plain = HistogramRankSVM(truncation=1, cross_fit=False).fit(X[:80], y[:80])
    crossed = HistogramRankSVM(truncation=1, cross_fit=True).fit(X[:80], y[:80])
    assert crossed.score(X[80:], y[80:]) > plain.score(X[80:], y[80:]) + 0.05
    assert_array_equal(crossed.word_groups_, plain.word_groups_)


def test_cross_fit_is_two_searches_with_the_words_of_the_other(rng):
    X, y = make_rare_words(rng)
    model = HistogramRankSVM(truncation=1, cross_fit=True)
    first, second = pose(model, X, y).searches
    for own, other in ((first, second), (second, first)):
        frequency = np.bincount(other.rows[1], minlength=X.shape[1])
        assert_array_equal(own.group, _group_words(frequency, 5))
        assert len(own.queries) == 80


@pytest.mark.parametrize(
    ("n_objects", "n_words", "options", "n_searches"),
    [
        (20, 3000, {}, 2),
        (19, 3000, {}, 1),
        (20, 100, {}, 1),  # a word is in most samples
        (20, 100, {"cross_fit": True}, 2),
        (20, 3000, {"n_word_groups": 1}, 1),
        (20, 3000, {"cross_fit": False}, 1),
    ],
)
def test_automatic_cross_fit(n_objects, n_words, options, n_searches, rng):
    X, y = make_rare_words(rng, n_objects)
    X = X.reshape(len(y), -1, n_words).sum(axis=1)
    model = HistogramRankSVM(truncation=1, **options)
    assert len(pose(model, X, y).searches) == n_searches


def test_one_half_without_queries_is_left_out(rng):
    X, y = make_rare_words(rng)
    model = HistogramRankSVM(truncation=1)
    assert model.fit(X, y, query_mask=y == 1).objective_ < 1


@pytest.mark.parametrize(
    ("n_ones", "n_twos", "n_large", "expected"),
    [(91, 9, 0, 1), (90, 10, 0, 2), (50, 41, 9, 2), (0, 0, 100, 15)],
)
def test_automatic_truncation(n_ones, n_twos, n_large, expected):
    # Fewer than 10 % of the counts exceed n, as far as a posting can hold them.
    X = np.repeat([1, 2, 20], [n_ones, n_twos, n_large]).reshape(10, 10)
    model = HistogramRankSVM(truncation="auto")
    assert model._check_pattern(X)[0] == expected
    assert model._check_pattern(sparse.csr_array(X))[0] == expected


def test_counts_beyond_the_truncation_are_alike(counts):
    X, y = counts
    model = HistogramRankSVM(truncation=2).fit(X, y)
    clipped = X.copy()
    clipped.data = np.minimum(clipped.data, 2)
    assert_array_equal(model.similarity(X), model.similarity(clipped))


def test_unsorted_and_duplicate_entries(counts):
    X, y = counts
    model = HistogramRankSVM().fit(X, y)
    # Each count as a sum of two entries, in descending order of words.
    rows = X.tocoo()
    order = np.lexsort([-rows.col, rows.row])
    messy = sparse.csr_array(
        (
            np.repeat(rows.data[order], 2) - np.tile([1, 0], X.nnz) * 1.0,
            np.repeat(rows.col[order], 2),
            2 * X.indptr,
        ),
        shape=X.shape,
    )
    messy.data[0::2] = 1.0
    messy.data[1::2] = rows.data[order] - 1
    assert_array_equal(model.similarity(messy), model.similarity(X))
    assert_array_equal(HistogramRankSVM().fit(messy, y).weights_, model.weights_)


def test_query_mask_trains_on_some_queries(counts):
    X, y = counts
    mask = np.arange(66) % 3 == 0
    model = HistogramRankSVM(truncation=2, loss="pairwise")
    masked = model.fit(X, y, query_mask=mask).weights_
    assert not np.allclose(masked, model.fit(X, y).weights_)
    everyone = model.fit(X, y, query_mask=np.ones(66, bool)).weights_
    assert_array_equal(everyone, model.fit(X, y).weights_)


def test_junk_is_neither_reward_nor_penalty(counts):
    # What an item that is junk to every query looks like makes no difference to the
    # losses, but for the frequencies of words: one group.
    X, y = counts
    matrix = (y[:, None] == np.arange(12)).astype(float)
    matrix[-1] = -1
    other = X.copy().tolil()
    other[65] = np.roll(X.toarray()[65], 7)
    model = HistogramRankSVM(truncation=2, n_word_groups=1, loss="topk")
    expected = model.fit(X, matrix).weights_
    assert_array_equal(model.fit(other.tocsr(), matrix).weights_, expected)


def test_distractors_are_negatives(counts):
    X, y = counts
    model = HistogramRankSVM(truncation=2, n_word_groups=1, loss="pairwise")
    with_distractors = model.fit(X, y).weights_
    assert not np.allclose(with_distractors, model.fit(X[:60], y[:60]).weights_)


def test_graded_relevance_weighs_the_relevant_items(counts):
    X, y = counts
    matrix = (y[:, None] == np.arange(12)).astype(float)
    model = HistogramRankSVM(truncation=2, n_word_groups=1, loss="topk")
    plain = model.fit(X, matrix).weights_
    assert_allclose(plain, model.fit(X, y).weights_)
    assert_allclose(plain, model.fit(X, 3 * matrix).weights_)
    matrix[::5] *= 4
    assert not np.allclose(plain, model.fit(X, matrix).weights_)


# -- patterns --


def test_mergers_are_of_adjacent_bins():
    mergers = list(_mergers(_finest_pattern(1, False)))
    assert len(mergers) == 4  # the sides of the square, not its diagonals
    for pattern in mergers:
        assert_array_equal(np.unique(pattern), np.arange(3))
        assert pattern[0, 0] != pattern[1, 1]
        assert pattern[0, 1] != pattern[1, 0]
    # (0, 1) and (1, 0) are one bin if symmetric, next to both others.
    assert len(list(_mergers(_finest_pattern(1, True)))) == 2


@pytest.mark.parametrize("pattern_cv", [None, 2, StratifiedKFold(2)])
def test_pattern_search(pattern_cv, counts):
    X, y = counts[0][:60], counts[1][:60]
    model = HistogramRankSVM(
        truncation=2,
        n_word_groups=1,
        n_weight_bins=5,
        loss="topk",
        pattern_cv=pattern_cv,
    ).fit(X, y)
    assert [bins.max() + 1 for _, bins in model.pattern_history_] == [9, 8, 7, 6, 5]
    assert_array_equal(model.pattern_history_[-1][1], model.weight_pattern_)
    for bin_ in range(5):
        tied = model.weights_[0][model.weight_pattern_ == bin_]
        assert np.ptp(tied) == 0


def test_each_merger_is_the_best_of_its_step(counts):
    X, y = counts
    options = {"truncation": 2, "n_word_groups": 1, "loss": "topk"}
    model = HistogramRankSVM(n_weight_bins=7, **options).fit(X, y)
    problem = pose(model, X, y)

    def judge(pattern):
        return problem.average_precision(model._solve(problem, pattern).gain())

    for (_, before), (value, after) in zip(
        model.pattern_history_[:-1], model.pattern_history_[1:], strict=True
    ):
        values = {pattern.tobytes(): judge(pattern) for pattern in _mergers(before)}
        assert values[after.tobytes()] == value == max(values.values())


def test_average_precision_of_the_search_is_that_of_the_score(counts):
    X, y = counts
    model = HistogramRankSVM(loss="topk").fit(X, y)
    # Weights in steps of 1/64: no sum of them is rounded, so ties are ties.
    model.weights_ = np.rint(64 * model.weights_) / 64
    value = pose(model, X, y).average_precision(_gains(model.weights_))
    assert value == pytest.approx(model.score(X, y), rel=1e-12)


def test_mean_length_is_that_of_the_training_samples(counts):
    X, y = counts
    model = HistogramRankSVM(truncation=2, length_slope=0.3, loss="topk").fit(X, y)
    length = np.minimum(X.toarray(), 2).sum(axis=1)
    assert model.mean_length_ == pytest.approx(length.mean())
    # Cross-fit halves have the mean length of all.
    both = pose(model.set_params(cross_fit=True), X, y).searches
    scale = np.sort(np.concatenate([search.scale for search in both]))
    (search,) = pose(model.set_params(cross_fit=False), X, y).searches
    assert_array_equal(scale, np.sort(search.scale))


def test_length_slope_is_for_long_items_without_the_object(rng):
    # Background in half of the images makes them long, and alike to everything.
    y = np.repeat(np.arange(40), 4)
    X = rng.poisson(rng.gamma(0.1, 1.0, size=(40, 300))[y] + 0.05)
    X[::2] += rng.poisson(0.3, size=(80, 300))
    plain, scaled = (
        HistogramRankSVM(n_word_groups=1, length_slope=slope)
        .fit(X[:80], y[:80])
        .score(X[80:], y[80:])
        for slope in (0.0, 0.3)
    )
    assert scaled > plain


def test_given_pattern_is_used(counts):
    X, y = counts
    pattern = [[7, 3, 3], [3, 9, 9], [3, 9, 5]]
    model = HistogramRankSVM(truncation=2, weight_pattern=pattern, loss="topk")
    model.fit(X, y)
    assert_array_equal(model.weight_pattern_, [[2, 0, 0], [0, 3, 3], [0, 3, 1]])
    assert_array_equal(model.weights_[:, 1, 2], model.weights_[:, 1, 1])
    assert not hasattr(model, "pattern_history_")


def test_enough_bins_need_no_search(counts):
    X, y = counts
    model = HistogramRankSVM(truncation=2, n_weight_bins=9).fit(X, y)
    assert not hasattr(model, "pattern_history_")
    assert_array_equal(model.weight_pattern_, np.arange(9).reshape(3, 3))


# -- messages --


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_pattern": np.eye(2)}, r"shape \(5, 5\) for truncation 4; got \(2, 2"),
        ({"weight_pattern": np.zeros((5, 5))}, "a single bin"),
        (
            {"weight_pattern": np.arange(25).reshape(5, 5), "symmetric": True},
            "a symmetric weight_pattern",
        ),
    ],
)
def test_bad_patterns_are_refused(options, message, counts):
    with pytest.raises(ValueError, match=message):
        HistogramRankSVM(**options).fit(*counts)


def test_values_that_are_not_counts_are_refused(counts):
    X, y = counts
    model = HistogramRankSVM().fit(X, y)
    with pytest.raises(ValueError, match="X has fractions"):
        HistogramRankSVM().fit(X * 0.5, y)
    with pytest.raises(ValueError, match="Negative values"):
        HistogramRankSVM().fit(-X, y)
    for method in (model.similarity, model.transform, model.transform_database):
        with pytest.raises(ValueError, match="X has fractions"):
            method(X.toarray() * 0.5)


def test_too_few_objects_for_two_halves_are_refused():
    with pytest.raises(ValueError, match="too few objects for two halves"):
        HistogramRankSVM(cross_fit=True).fit(np.eye(4), [0, 0, 1, 1])


def test_folds_without_a_query_are_refused(counts):
    X, y = counts[0][:60], counts[1][:60]
    model = HistogramRankSVM(n_weight_bins=2, truncation=1, pattern_cv=12)
    with pytest.raises(ValueError, match="y leaves a fold of pattern_cv"):
        model.fit(X, y)


def test_bad_query_masks_are_refused(counts):
    X, y = counts
    with pytest.raises(ValueError, match="one boolean for each of the 66 samples"):
        HistogramRankSVM().fit(X, y, query_mask=np.arange(66))
    with pytest.raises(ValueError, match="y must give some sample"):
        HistogramRankSVM().fit(X, y, query_mask=np.arange(66) >= 60)


@pytest.mark.parametrize(
    ("loss", "remedy"), [("max", 'loss="pairwise", or'), ("topk", "larger top_k")]
)
def test_weights_of_zero_are_named(loss, remedy):
    # Every query has an irrelevant twin: nothing can rank above it.
    X = np.array([[1, 0, 2], [0, 1, 1]] * 4)
    y = np.repeat([0, 1], 4)
    model = HistogramRankSVM(loss=loss, top_k=2)
    with pytest.warns(UserWarning, match=f"No weights are better than 0.*{remedy}"):
        model.fit(X, y)
    assert model.objective_ == pytest.approx(1)
    assert not model.similarity(X).any()


def test_too_few_passes_are_reported(counts):
    with pytest.warns(ConvergenceWarning, match="after max_iter=2 passes"):
        model = HistogramRankSVM(max_iter=2).fit(*counts)
    assert model.n_iter_ == 2
    assert model.dual_gap_ > 1e-3 * model.objective_


def test_failed_fit_leaves_the_former_model(counts):
    X, y = counts
    model = HistogramRankSVM().fit(X, y)
    before = model.weights_
    with pytest.raises(ValueError, match="y must give"):
        model.fit(X, np.arange(66))
    assert model.weights_ is before


def test_callbacks_see_the_passes_and_can_stop(counts):
    class Stop:
        def __init__(self, after):
            self.after, self.names, self.objectives = after, [], []

        def setup(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            pass

        def on_fit_task_begin(self, estimator, context):
            pass

        def on_fit_task_end(self, estimator, context, *, fitted_estimator):
            self.names.append(context.task_name)
            if context.task_name == "pass":
                self.objectives.append(fitted_estimator.objective_)
            return len(self.names) >= self.after

    X, y = counts
    stop = Stop(after=3)
    model = HistogramRankSVM(truncation=2).set_callbacks(stop).fit(X, y)
    assert stop.names == ["pass"] * 3 + ["fit"]
    assert model.n_iter_ == 3
    assert stop.objectives[-1] == model.objective_

    stop = Stop(after=2)
    model = HistogramRankSVM(truncation=2, n_weight_bins=2, loss="topk")
    model.set_callbacks(stop).fit(X, y)
    assert stop.names[:2] == ["merger", "merger"]
    assert model.weight_pattern_.max() + 1 == 7
