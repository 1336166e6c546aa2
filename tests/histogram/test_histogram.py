"""HistogramRankSVM: kernels against their formulas, the solver, the estimator."""

import itertools

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
from sklearn_simlearn._core.encoders import Sides
from sklearn_simlearn._core.progress import FitCallback
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn.histogram import _histogram, _table
from sklearn_simlearn.histogram._histogram_fast import (
    Words,
    ascend,
    find_cuts,
    score_queries,
)
from sklearn_simlearn.histogram._pattern import find_mergers
from sklearn_simlearn.histogram._solver import (
    N_SLOTS,
    Search,
    count_words,
    group_words,
    halve,
    invert,
    parametrise,
)
from sklearn_simlearn.histogram._start import _halve_in_pairs, choose_hand_made
from sklearn_simlearn.histogram._table import (
    WeightTable,
    find_gains,
    find_truncation,
    make_pattern,
    truncate,
)
from sklearn_simlearn.similarities import AsymmetricSimilarity, CosineSimilarity


def plain(*args, **options):
    """Return the learner of the paper, without a hold-out."""
    return HistogramRankSVM(*args, holdout=None, **options)


def counts_of(X, n):
    return truncate(sparse.csr_array(X), n)


def naive_similarity(Q, D, weights, group, scale=None):
    """Return the double sum of the definition; s(q, d) - s(q, 0) is scaled."""
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
    """Return Phi(q, d) of every item, the factor of the gains."""
    q, D = np.minimum(q, n).astype(int), np.minimum(D, n).astype(int)
    phi = np.zeros((len(D), n_groups, n + 1, n + 1))
    for j, d in enumerate(D):
        for i in np.flatnonzero(d):
            phi[j, group[i], 0, d[i]] += 1
            if q[i]:
                phi[j, group[i], q[i], d[i]] += 1
    return phi


def naive_loss(score, relevance, pairwise):
    """Return the loss of one query by its definition."""
    u, v = score[relevance > 0], score[relevance == 0]
    weight = relevance[relevance > 0] / relevance[relevance > 0].sum()
    if pairwise:
        return weight @ np.maximum(0, 1 - u[:, None] + v).mean(axis=1)
    return weight @ np.maximum(0, 1 - u + v.max())


def random_counts(rng, n_rows, n_words, rate=0.8):
    return rng.poisson(rate, size=(n_rows, n_words)).astype(np.float64)


def pose(model, X, y, loss="max"):
    """Return the solver of a learner, before its first pass."""
    relevance = check_relevance(y)
    queries = np.flatnonzero(relevance.find_queries())
    pattern = make_pattern(model.weight_pattern, model.truncation)
    return model._pose(sparse.csr_array(X), relevance, queries, pattern, loss)


# -- counts and tables --


def test_postings_are_the_transposed_items(rng):
    X = random_counts(rng, 7, 5)
    start, postings = invert(counts_of(X, 3), 5)
    for word in range(5):
        part = postings[start[word] : start[word + 1]]
        assert_array_equal(part >> 4, np.flatnonzero(X[:, word]))
        assert_array_equal(part & 15, np.minimum(X[part >> 4, word], 3))


def test_words_are_counted_by_group_and_count(rng):
    X = random_counts(rng, 7, 5)
    X[2] = 0
    group = np.array([0, 1, 0, 1, 1])
    totals = count_words(counts_of(X, 2), group, (2, 3, 3))
    clipped = np.minimum(X, 2)
    for g in range(2):
        assert not totals[:, g, 0].any()
        for count in (1, 2):
            expected = np.count_nonzero(clipped[:, group == g] == count, axis=1)
            assert_array_equal(totals[:, g, count], expected)


def test_rows_of_counts_can_be_taken(rng):
    X = random_counts(rng, 9, 6)
    X[[3, 8]] = 0
    for rows in ([4, 3, 4], [8], []):
        rows = np.array(rows, dtype=int)
        for got, expected in zip(
            counts_of(X, 2).take(rows), counts_of(X[rows], 2), strict=True
        ):
            assert_array_equal(got, expected)
    assert_array_equal(counts_of(X, 2).lengths(), np.minimum(X, 2).sum(axis=1))


@st.composite
def tables(draw):
    """Return a table of random weights, and counts to compare."""
    seed = draw(st.integers(0, 2**32 - 1))
    n = draw(st.integers(1, 6))
    n_groups = draw(st.integers(1, 4))
    n_words = draw(st.integers(1, 12))
    pattern = make_pattern(draw(st.sampled_from([None, "symmetric"])), n)
    n_merged = draw(st.integers(0, 3))
    slope = draw(st.sampled_from([0.0, 0.4]))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    rng = np.random.default_rng(seed)
    for _ in range(n_merged):
        mergers = list(find_mergers(pattern))
        if len(mergers) > 1:
            pattern = mergers[rng.integers(len(mergers))]
    of_bin = rng.standard_normal((n_groups, pattern.max() + 1))
    of_bin[:, pattern[0, 0]] = 0
    group = rng.integers(0, n_groups, n_words, dtype=np.int32)
    table = WeightTable(of_bin[:, pattern], group, 1.5 * n_words, slope)
    return table, *rng.poisson(1.5, size=(2, 5, n_words)).astype(dtype)


@settings(deadline=None, max_examples=60)
@given(tables())
def test_similarity_and_product_of_the_encodings_are_the_double_sum(case):
    table, Q, D = case
    n = table.truncation
    length = np.minimum(D, n).sum(axis=1) / table.mean_length
    scale = 1 / (1 - table.length_slope + table.length_slope * length)
    expected = naive_similarity(Q, D, table.weights, table.word_groups, scale)
    queries = table.queries(sparse.csr_array(Q))
    items = table.items(sparse.csr_array(D))
    assert queries.dtype == items.dtype == Q.dtype
    tolerance = 1e-4 if Q.dtype == np.float32 else 1e-10
    assert_allclose((queries @ items.T).toarray(), expected, atol=tolerance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_table, "N_ITEMS", 3)
        patch.setattr(_table, "N_QUERIES", 2)
        S = table.compare(Sides(sparse.csr_array(Q), sparse.csr_array(D), 2))
    assert S.dtype == Q.dtype
    assert_allclose(S, expected, atol=tolerance)


def test_rows_without_words(counts):
    X, y = counts
    empty = sparse.csr_array((2, 40))
    for model in (plain(), HistogramRankSVM(random_state=0)):
        model.fit(X, y)
        assert model.similarity(empty, X).shape == (2, 66)
        assert_array_equal(model.similarity(empty), model.similarity(np.zeros((2, 40))))
    # If the query has no words, only the words of the items count.
    model = plain(length_slope=0).fit(X, y)
    weights, clipped = model.weights_, np.minimum(X.toarray(), 4).astype(int)
    expected = weights[model.word_groups_, 0, clipped].sum(axis=1)
    assert_allclose(model.similarity(empty, X), [expected] * 2, atol=1e-12)


# -- cuts --


def cut(X, group, n_groups, n, gain, relevance, pairwise, n_threads=1, scale=None):
    """Call the kernel for every row of X as a query."""
    counts = counts_of(X, n)
    totals = count_words(counts, group, (n_groups, n + 1, n + 1))
    of_item = (totals * gain[:, 0]).sum(axis=(1, 2))
    value, offset = np.empty((2, len(X)))
    cuts = np.zeros((len(X), n_groups, n + 1, n + 1))
    find_cuts(
        np.arange(len(X)),
        relevance,
        Words(*counts, *invert(counts, X.shape[1]), group),
        totals,
        gain,
        of_item,
        np.ones(len(X)) if scale is None else scale,
        pairwise,
        n_threads,
        value,
        offset,
        cuts,
    )
    return value, offset, cuts


def random_relevance(rng, n, dtype):
    """Return some relevant, irrelevant and junk items for each query."""
    relevance = rng.integers(-1, 2, size=(n, n)).astype(dtype)
    relevance[:, 0], relevance[:, 1] = 1, 0
    if dtype == np.float64:
        relevance *= rng.uniform(0.5, 2, size=(n, n))
        relevance[relevance < 0] = -1
    return relevance


# Few words: long postings, so cuts walk along rows. Many words: along postings.
@pytest.mark.parametrize("n_words", [3, 60])
@pytest.mark.parametrize("relevance_type", [np.int8, np.float64])
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("pairwise", [False, True])
def test_cuts_match_reference(n_words, relevance_type, n_threads, pairwise, rng):
    n, n_groups = 2, 3
    X = random_counts(rng, 12, n_words, rate=0.6)
    group = rng.integers(0, n_groups, n_words, dtype=np.int32)
    relevance = random_relevance(rng, 12, relevance_type)
    gain, other = rng.normal(scale=0.3, size=(2, n_groups, n + 1, n + 1))
    scale = rng.uniform(0.5, 2, size=12)
    value, offset, cuts = cut(
        X, group, n_groups, n, gain, relevance, pairwise, n_threads, scale
    )
    for i, q in enumerate(X):
        phi = naive_features(q, X, group, n_groups, n).reshape(12, -1)
        phi *= scale[:, None]
        score = phi @ gain.ravel()
        expected = naive_loss(score, relevance[i], pairwise)
        assert_allclose(value[i], expected, atol=1e-12)
        # The plane touches the loss here and supports it everywhere.
        assert_allclose(offset[i] + np.vdot(cuts[i], gain), expected, atol=1e-12)
        elsewhere = naive_loss(phi @ other.ravel(), relevance[i], pairwise)
        assert offset[i] + np.vdot(cuts[i], other) <= elsewhere + 1e-12


def test_cut_worked_by_hand():
    # Query and relevant item share word 0, the irrelevant item has word 1 twice.
    X = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    relevance = np.array([[-1, 1, 0], [1, -1, 0], [0, 0, 1]], dtype=np.int8)
    gain = np.zeros((1, 3, 3))
    gain[0, 0] = [0, 0.1, 0.2]  # gain of an item by its counts 1 and 2
    gain[0, 1, 1] = 0.5  # additional gain if both have a word once
    group = np.zeros(2, dtype=np.int32)
    for pairwise in (False, True):
        value, offset, cuts = cut(X, group, 1, 2, gain, relevance, pairwise)
        # s(q, u) = 0.1 + 0.5, s(q, v) = 0.2
        assert_allclose(value[:2], 1 - 0.6 + 0.2)
        assert_allclose(offset[:2], 1)
        assert_array_equal(cuts[0], [[[0, -1, 1], [0, -1, 0], [0, 0, 0]]])


def test_satisfied_query_has_the_zero_plane():
    X = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    relevance = np.array([[-1, 1, 0]] * 3, dtype=np.int8)
    gain = np.zeros((1, 3, 3))
    gain[0, 1, 1] = 2.0
    for pairwise in (False, True):
        value, offset, cuts = cut(
            X, np.zeros(2, dtype=np.int32), 1, 2, gain, relevance, pairwise
        )
        assert value[0] == offset[0] == 0
        assert not cuts[0].any()


def test_kernels_accept_read_only_data(rng):
    X = random_counts(rng, 6, 8)
    counts = counts_of(X, 2)
    start, postings = invert(counts, 8)
    group = np.zeros(8, dtype=np.int32)
    relevance = random_relevance(rng, 6, np.int8)
    gain, of_item, scale = np.zeros((1, 3, 3)), np.zeros(6), np.ones(6)
    totals = count_words(counts, group, (1, 3, 3))
    queries, capacity = np.arange(6), np.ones(6)
    planes, offsets = np.zeros((6, 2, 3)), np.zeros((6, 2))
    for array in (
        *counts, start, postings, group, relevance, gain, of_item, scale, totals,
        queries, capacity, planes, offsets,
    ):  # fmt: skip
        array.flags.writeable = False
    S = np.empty((6, 6))
    words = Words(*counts, start, postings, group)
    score_queries(words, gain, of_item, of_item, scale, 1, S)
    assert not S.any()
    find_cuts(
        queries, relevance, words, totals, gain, of_item, scale, False,
        1, np.empty(6), np.empty(6), np.zeros((6, 1, 3, 3)),
    )  # fmt: skip
    ascend(planes, offsets, np.zeros((6, 2)), capacity, 1.0, np.zeros(3), 2)


def test_cuts_in_blocks_are_those_of_all_queries_at_once(rng):
    X = random_counts(rng, 12, 20)
    relevance = check_relevance(np.repeat([0, 1, 2], 4))
    counts, group = counts_of(X, 2), np.zeros(20, dtype=np.int32)
    factor, gain = np.ones(12), rng.standard_normal((1, 3, 3))
    search = Search(counts, group, relevance, np.arange(12), factor, gain.shape, 2)
    at_once = search.cut(gain, True)
    search.n_queries_at_once = 5
    for part, whole in zip(search.cut(gain, True), at_once, strict=True):
        assert_array_equal(part, whole)


# -- the solver --


def test_ascent_closes_the_gap_of_the_small_problem(rng):
    planes, offsets = rng.standard_normal((15, 4, 6)), rng.uniform(size=(15, 4))
    offsets[3, 2:] = -np.inf  # planes that are not set
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


def reference_minimum(problem, X, pattern, alpha, loss):
    """Return the objective by SLSQP on the epigraph; each violation is a constraint."""
    _, to_gain = parametrise(problem.mean_difference, pattern)
    (search,) = problem.searches
    n_groups, n_counts, _ = search.shape
    slopes, slack_of, costs = [], [], []
    for block, rows, relevance in search.relevance.batches(search.queries):
        for q, row, c in zip(rows, relevance, problem.capacity[block], strict=True):
            phi = naive_features(X[q], X, search.group, n_groups, n_counts - 1)
            phi = search.factor[:, None] * phi.reshape(len(X), -1) @ to_gain
            relevant, irrelevant = np.flatnonzero(row > 0), np.flatnonzero(row == 0)
            rivals = [irrelevant] if loss == "max" else [[v] for v in irrelevant]
            for u in relevant:
                for alternatives in rivals:
                    for v in alternatives:
                        slopes.append(phi[u] - phi[v])
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
@pytest.mark.parametrize("loss", ["max", "pairwise"])
def test_objective_matches_an_independent_solver(alpha, slope, loss):
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1, 2], 3)
    X = rng.poisson(rng.gamma(0.5, 2, size=(3, 15))[y]).astype(np.float64)
    model = plain(
        alpha, loss=loss, truncation=1, n_word_groups=2, length_slope=slope, tol=1e-7
    ).fit(X, y)
    problem = pose(model, X, y, loss).problem
    expected = reference_minimum(problem, X, model.weight_pattern_, alpha, loss)
    assert_allclose(model.objective_, expected, atol=1e-5)
    assert model.dual_gap_ <= 1e-7 * model.objective_

    # At any tolerance, the true gap is at most the reported gap.
    for tol in (0.5, 0.1, 0.01):
        coarse = model.set_params(tol=tol).fit(X, y)
        assert coarse.objective_ - coarse.dual_gap_ <= expected + 1e-7
        assert expected <= coarse.objective_ + 1e-7


@pytest.mark.parametrize("alpha", [0.1, 100.0])
def test_objective_worked_by_hand(alpha):
    # Every query sees the same: s(q, u) - s(q, v) = the gain of (1, 1) = t'theta. The
    # minimum of alpha / 2 |theta|^2 + max(0, 1 - t'theta) lies along t.
    X = np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    model = plain(alpha, truncation=1, n_word_groups=1, length_slope=0, tol=1e-10).fit(
        X, [0, 0, 1, 1]
    )
    problem = pose(model, X, [0, 0, 1, 1]).problem
    _, to_gain = parametrise(problem.mean_difference, model.weight_pattern_)
    t2 = to_gain[3] @ to_gain[3]
    expected = 1 - t2 / (2 * alpha) if t2 < alpha else alpha / (2 * t2)
    assert_allclose(model.objective_, expected, rtol=1e-9)
    # The objective is strongly convex: the gap bounds the distance to the minimum.
    distance = np.sqrt(2 * model.dual_gap_ / alpha)
    gain = find_gains(model.weights_)[0, 1, 1]
    assert_allclose(gain, min(t2 / alpha, 1), atol=np.sqrt(t2) * distance + 1e-12)


def test_full_bundle_merges_planes_and_keeps_the_bound(counts):
    X, y = counts
    solver = pose(plain(0.1, truncation=2), X, y)
    capacity, bounds = solver.problem.capacity, []
    for _ in range(5 * N_SLOTS):
        solver.iterate(1e-9)
        bounds.append(solver.bound)
        assert solver.bound <= solver.objective
        assert (solver.mass.sum(axis=1) <= capacity * (1 + 1e-12)).all()
    assert_array_equal(bounds, np.sort(bounds))
    assert solver.gap < 1e-4


def test_loss_of_weights_of_zero_is_one(counts):
    X, y = counts
    for loss in ("max", "pairwise"):
        problem = pose(plain(), X, y, loss).problem
        value, _, _ = problem.cut(np.zeros((5, 5, 5)))
        assert_allclose(problem.capacity @ value, 1)


# -- the plain learner --


@pytest.mark.parametrize("loss", ["max", "pairwise"])
def test_learning_ranks_better_than_the_cosine(loss, counts):
    X, y = counts
    model = plain(loss=loss, truncation=2, n_word_groups=2)
    learned = model.fit(X[::2], y[::2]).score(X[1::2], y[1::2])
    assert learned > CosineSimilarity().fit(X[::2]).score(X[1::2], y[1::2])
    assert model.loss_ == loss
    assert model.share_ == 0
    assert model.hand_made_ is None
    assert not hasattr(model, "holdout_gain_")


def test_similarity_is_that_of_the_weights(counts):
    X, y = counts
    model = plain(length_slope=0).fit(X, y)
    dense = X.toarray()
    expected = naive_similarity(dense, dense, model.weights_, model.word_groups_)
    assert_allclose(model.similarity(X), expected, atol=1e-10)
    # Parameters that are set later do not change the fitted model.
    model.set_params(length_slope=0.5)
    assert_allclose(model.similarity(X), expected, atol=1e-10)


@pytest.mark.parametrize("holdout", [None, "objects", "samples"])
def test_result_does_not_depend_on_threads(holdout, counts):
    X, y = counts
    models = [
        HistogramRankSVM(holdout=holdout, n_jobs=n_jobs, random_state=0).fit(X, y)
        for n_jobs in (1, 3)
    ]
    for model in models[1:]:
        assert_array_equal(model.similarity(X), models[0].similarity(X))
        assert model.share_ == models[0].share_


def test_similarity_is_asymmetric_unless_asked(counts):
    X, y = counts
    model = plain(truncation=2, length_slope=0).fit(X, y)
    assert not np.allclose(model.weights_, model.weights_.swapaxes(1, 2))
    model.set_params(weight_pattern="symmetric").fit(X, y)
    assert_array_equal(model.weights_, model.weights_.swapaxes(1, 2))
    assert_allclose(model.similarity(X), model.similarity(X).T)


def test_weights_of_common_absence_are_zero(counts):
    X, y = counts
    model = plain(truncation=3, n_word_groups=4).fit(X, y)
    assert model.weights_.shape == (4, 4, 4)
    assert not model.weights_[:, 0, 0].any()


def test_groups_by_document_frequency():
    frequency = np.array([0, 5, 1, 1, 3, 9, 4, 1])
    counts = counts_of(np.arange(9)[:, None] < frequency, 1)
    # Seven words occur. Words of equal frequency share a group. A word that does not
    # occur is in the group of the rarest words.
    assert_array_equal(group_words(counts, 8, 3), [0, 2, 0, 0, 1, 2, 1, 0])
    assert_array_equal(group_words(counts, 8, 1), np.zeros(8))
    assert_array_equal(group_words(counts_of(np.zeros((2, 4)), 1), 4, 3), np.zeros(4))


def test_halves_keep_objects_whole():
    y = np.array([3, 3, -1, 5, 5, 9, 9, -1, -1, 7, 7])
    half = halve(check_relevance(y))
    for label in (3, 5, 7, 9):
        assert len(np.unique(half[y == label])) == 1
    assert 4 <= half.sum() <= 7
    assert half[y == -1].sum() == 2


def make_rare_words(rng, n_objects=40):
    """Return words of one frequency, many for few samples; objects differ in them."""
    y = np.repeat(np.arange(n_objects), 4)
    of_object = rng.integers(0, 3000, size=(n_objects, 24))
    X = np.zeros((len(y), 3000))
    for row, label in zip(X, y, strict=True):
        row[rng.choice(of_object[label], 12, replace=False)] += 1
        row[rng.integers(0, 3000, 80)] += 1
    return X, y


def test_cross_fit_words_are_not_rare_by_themselves(rng):
    X, y = make_rare_words(rng)
    alone = plain(truncation=1, cross_fit=False).fit(X[:80], y[:80])
    crossed = plain(truncation=1, cross_fit=True).fit(X[:80], y[:80])
    assert crossed.score(X[80:], y[80:]) > alone.score(X[80:], y[80:]) + 0.05
    assert_array_equal(crossed.word_groups_, alone.word_groups_)


def test_cross_fit_is_two_searches_with_the_words_of_the_other(rng):
    X, y = make_rare_words(rng)
    first, second = pose(plain(truncation=1, cross_fit=True), X, y).problem.searches
    for own, other in ((first, second), (second, first)):
        assert_array_equal(own.group, group_words(other.counts, X.shape[1], 5))
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
    model = plain(truncation=1, **options)
    assert len(pose(model, X, y).problem.searches) == n_searches


def test_one_half_without_queries_is_left_out(rng):
    X, y = make_rare_words(rng)
    y[y != 2] = -1
    (search,) = pose(plain(truncation=1, cross_fit=True), X, y).problem.searches
    assert len(search.queries) == 4


@pytest.mark.parametrize(
    ("n_ones", "n_twos", "n_large", "expected"),
    [(91, 9, 0, 1), (90, 10, 0, 2), (50, 41, 9, 2), (0, 0, 100, 15), (0, 0, 0, 1)],
)
def test_automatic_truncation(n_ones, n_twos, n_large, expected):
    # Fewer than 10 % of the words exceed n, as far as a posting can hold them. Other
    # samples, and words that do not occur, change nothing.
    largest = np.repeat([1, 2, 20, 0], [n_ones, n_twos, n_large, 50])
    X = np.stack([largest, np.minimum(largest, 1), np.zeros(len(largest))])
    assert find_truncation(sparse.csr_array(X)) == expected


def test_paper_truncation_is_of_the_largest_count_of_each_word(counts):
    X, y = counts
    n = find_truncation(X)
    for rows in (X, X.toarray()):
        assert plain(truncation="auto").fit(rows, y).truncation_ == n


def test_counts_beyond_the_truncation_are_alike(counts):
    X, y = counts
    model = plain(truncation=2).fit(X, y)
    clipped = X.copy()
    clipped.data = np.minimum(clipped.data, 2)
    assert_array_equal(model.similarity(X), model.similarity(clipped))


def test_unsorted_and_duplicate_entries(counts):
    X, y = counts
    model = plain().fit(X, y)
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
    assert_array_equal(plain().fit(messy, y).weights_, model.weights_)


def test_junk_is_neither_reward_nor_penalty(counts):
    # The losses do not depend on an item that is junk to every query, except through
    # the frequencies of words; with one group there is no such effect.
    X, y = counts
    matrix = (y[:, None] == np.arange(12)).astype(float)
    matrix[-1] = -1
    other = X.copy().tolil()
    other[65] = np.roll(X.toarray()[65], 7)
    model = plain(truncation=2, n_word_groups=1, loss="pairwise")
    expected = model.fit(X, matrix).weights_
    assert_array_equal(model.fit(other.tocsr(), matrix).weights_, expected)


def test_distractors_are_negatives(counts):
    X, y = counts
    model = plain(truncation=2, n_word_groups=1, loss="pairwise")
    with_distractors = model.fit(X, y).weights_
    assert not np.allclose(with_distractors, model.fit(X[:60], y[:60]).weights_)


def test_graded_relevance_weighs_the_relevant_items(counts):
    X, y = counts
    matrix = (y[:, None] == np.arange(12)).astype(float)
    model = plain(truncation=2, n_word_groups=1, loss="pairwise")
    even = model.fit(X, matrix).weights_
    assert_allclose(even, model.fit(X, y).weights_)
    assert_allclose(even, model.fit(X, 3 * matrix).weights_)
    matrix[::5] *= 4
    assert not np.allclose(even, model.fit(X, matrix).weights_)


# -- patterns --


def test_mergers_are_of_adjacent_bins():
    mergers = list(find_mergers(make_pattern(None, 1)))
    assert len(mergers) == 4  # the sides of the square, not its diagonals
    for pattern in mergers:
        assert_array_equal(np.unique(pattern), np.arange(3))
        assert pattern[0, 0] != pattern[1, 1]
        assert pattern[0, 1] != pattern[1, 0]
    # (0, 1) and (1, 0) are one bin if symmetric, next to both others.
    assert len(list(find_mergers(make_pattern("symmetric", 1)))) == 2


@pytest.mark.filterwarnings("ignore:No weights are better than 0")
@pytest.mark.parametrize("cv", [None, 2, StratifiedKFold(2)])
def test_each_merger_is_the_best_of_its_step(cv, counts):
    X, y = counts[0][:60], counts[1][:60]
    options = {"truncation": 1, "n_word_groups": 1, "loss": "pairwise"}
    learner = HistogramRankSVM(**options)
    history = learner.search_weight_pattern(X, y, n_bins=2, cv=cv)
    assert [pattern.max() + 1 for _, pattern in history] == [4, 3, 2]
    if cv is None:
        for (_, before), (value, after) in itertools.pairwise(history):
            values = {}
            for pattern in find_mergers(before):
                model = plain(weight_pattern=pattern, **options)
                values[pattern.tobytes()] = model.fit(X, y).score(X, y)
            assert values[after.tobytes()] == value == max(values.values())
    model = plain(weight_pattern=history[-1][1], **options).fit(X, y)
    for bin_ in range(2):
        assert np.ptp(model.weights_[0][history[-1][1] == bin_]) == 0
    assert learner.weight_pattern is None


def test_enough_bins_need_no_search(counts):
    ((_, pattern),) = plain(truncation=1, loss="pairwise").search_weight_pattern(
        *counts, n_bins=4
    )
    assert_array_equal(pattern, [[0, 1], [2, 3]])


def test_the_search_needs_a_truncation(counts):
    with pytest.raises(
        ValueError, match="needs an integer truncation; got truncation='auto'"
    ):
        plain(truncation="auto").search_weight_pattern(*counts, n_bins=4)


def test_mean_length_is_that_of_the_training_samples(counts):
    X, y = counts
    model = plain(truncation=2).fit(X, y)
    length = np.minimum(X.toarray(), 2).sum(axis=1)
    assert model.mean_length_ == pytest.approx(length.mean())
    # Cross-fit halves use the mean length of all samples.
    both = pose(model.set_params(cross_fit=True), X, y).problem.searches
    factor = np.sort(np.concatenate([search.factor for search in both]))
    (search,) = pose(model.set_params(cross_fit=False), X, y).problem.searches
    assert_array_equal(factor, np.sort(search.factor))


def test_length_slope_is_for_long_items_without_the_object(rng):
    # Background in half of the images makes them long, and similar to all others.
    y = np.repeat(np.arange(40), 4)
    X = rng.poisson(rng.gamma(0.1, 1.0, size=(40, 300))[y] + 0.05)
    X[::2] += rng.poisson(0.3, size=(80, 300))
    unscaled, scaled = (
        plain(n_word_groups=1, length_slope=slope)
        .fit(X[:80], y[:80])
        .score(X[80:], y[80:])
        for slope in (0.0, 0.3)
    )
    assert scaled > unscaled


def test_given_pattern_is_used(counts):
    X, y = counts
    pattern = [[7, 3, 3], [3, 9, 9], [3, 9, 5]]
    model = plain(truncation=2, weight_pattern=pattern, loss="pairwise").fit(X, y)
    assert_array_equal(model.weight_pattern_, [[2, 0, 0], [0, 3, 3], [0, 3, 1]])
    assert_array_equal(model.weights_[:, 1, 2], model.weights_[:, 1, 1])


# -- the hold-out --


def make_objects(rng, n_objects=40, n_clutter=0.1):
    """Return counts of objects with bursts, and clutter."""
    y = np.repeat(np.arange(n_objects), 4)
    X = rng.poisson(rng.gamma(0.1, 1.0, size=(n_objects, 200))[y] + n_clutter)
    return X.astype(np.float64), y


def test_a_gain_is_taken(rng):
    # A word is informative if it occurs twice, and noise if it occurs once.
    y = np.repeat(np.arange(60), 4)
    X = rng.binomial(1, 0.25, size=(240, 150)).astype(np.float64)
    for row, label in zip(X, y, strict=True):
        row[np.arange(3) + 3 * (label % 50)] = 2
    X[:, rng.permutation(150)] = X
    train = y < 40
    model = HistogramRankSVM(truncation=2, n_word_groups=1, random_state=0)
    model.fit(X[train], y[train])
    assert model.share_ < 1
    assert model.holdout_gain_ > model.holdout_error_ > 0
    assert model.weights_.any()
    learned = model.score(X[~train], y[~train])
    start = CosineSimilarity(power=0.75).fit(X[train]).score(X[~train], y[~train])
    assert learned > start + 0.05


def test_the_start_is_kept_exactly_if_it_is_the_best(rng):
    # Labels that are independent of the words.
    X = rng.poisson(0.3, size=(80, 50)).astype(np.float64)
    y = np.repeat(np.arange(20), 4)
    model = HistogramRankSVM(random_state=0).fit(X, y)
    assert model.share_ == 1
    assert model.loss_ is None
    assert model.holdout_gain_ == 0
    assert not hasattr(model, "weights_")
    start = model.hand_made_
    assert_array_equal(model.similarity(X), start.similarity(sparse.csr_array(X)))
    assert model.transform(X).shape == start.transform(X).shape
    assert model.transform(X).shape[1] == len(model.get_feature_names_out())


def test_categories_are_never_all_zeros():
    # Every query has an irrelevant duplicate, so the loss "max" finds no weights.
    X = np.repeat(np.array([[1, 0, 2], [0, 1, 1]] * 12), 2, axis=0)
    y = np.arange(48) // 4
    model = HistogramRankSVM(loss="max", random_state=0).fit(X, y)
    assert model.share_ == 1
    assert model.similarity(X).any()


def test_mixtures_are_inner_products(rng):
    X, y = make_objects(rng)
    model = HistogramRankSVM(random_state=0)
    candidate = _histogram.Candidate("pairwise", 0.25)
    hand_made = CosineSimilarity().fit(sparse.csr_array(X))
    attributes = model._learn_weights(
        sparse.csr_array(X),
        check_relevance(y),
        make_pattern(None, 4),
        candidate,
        hand_made,
        lambda *_: False,
    )
    model.n_features_in_ = X.shape[1]
    vars(model).update(attributes)
    table = model.encoder_.learned.base
    learned = table.compare(Sides(sparse.csr_array(X), sparse.csr_array(X)))
    expected = 0.75 * learned / model.scale_ + 0.25 * hand_made.similarity(X)
    assert_allclose(model.similarity(X), expected, atol=1e-10)
    product = model.transform(X) @ model.transform_database(X).T
    assert_allclose(product.toarray(), expected, atol=1e-10)
    # Both parts vary by the same amount over the other items.
    off = ~np.eye(len(X), dtype=bool)
    spread = [
        np.sqrt(S[off].reshape(len(X), -1).var(axis=1).mean())
        for S in (learned / model.scale_, hand_made.similarity(X))
    ]
    assert_allclose(*spread)
    assert model.scale_ == _histogram.find_scale(
        table, hand_made.encoder_, sparse.csr_array(X)
    )


def test_hand_made_similarity_is_chosen_by_the_samples(rng):
    # Items repeat some words. The cosine depends on these bursts, minima do not.
    y = np.repeat(np.arange(30), 4)
    words = rng.binomial(1, 0.1, size=(30, 200))
    X = words[y] * rng.binomial(1, 0.6, size=(120, 200))
    X += rng.binomial(1, 0.05, size=(120, 200)) * rng.integers(1, 30, size=(120, 200))
    X = sparse.csr_array(X.astype(np.float64))
    relevance = check_relevance(y)
    chosen = choose_hand_made(X, relevance, 1, np.random.default_rng(0))
    assert isinstance(chosen, AsymmetricSimilarity)
    again = choose_hand_made(X, relevance, 1, np.random.default_rng(0))
    assert repr(chosen) == repr(again)
    # With too few classes, the default is chosen.
    few = choose_hand_made(X[:36], relevance.take(np.arange(36)), 1, rng)
    assert repr(few) == "CosineSimilarity(power=0.75)"


def test_halves_of_samples_keep_pairs_together(rng):
    objects = np.repeat(np.arange(30), rng.integers(2, 9, size=30))
    objects = rng.permutation(np.concatenate([objects, [-1] * 7]))
    first, second = _halve_in_pairs(objects, rng)
    assert_array_equal(
        np.sort(np.r_[first.train, first.queries]), np.arange(len(objects))
    )
    assert_array_equal(first.train, second.queries)
    for fold in (first, second):
        _, sizes = np.unique(objects[fold.queries], return_counts=True)
        assert (sizes > 1).all()


# -- storage --


def test_storage_states_agree(counts):
    X, y = counts
    model = HistogramRankSVM(random_state=0).fit(X, y)
    wide = X.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(int)
    for state in (np.asfortranarray(X.toarray()), wide, X.tocoo()):
        other = HistogramRankSVM(random_state=0).fit(state, y)
        assert_array_equal(other.similarity(state), model.similarity(X))
        assert sparse.issparse(other.transform(state))


def test_refit_that_fails_at_its_end_leaves_the_former_model(counts):
    X, y = counts

    class Raise(FitCallback):
        def on_fit_task_end(self, estimator, context):
            if context.task_name == "fit":
                raise RuntimeError("the end")

    model = plain(truncation=2).fit(X, y)
    before, state = model.similarity(X), set(vars(model))
    model.set_params(holdout="objects", truncation=1).set_callbacks(Raise())
    with pytest.raises(RuntimeError, match="the end"):
        model.fit(X[:, :30], y)
    assert_array_equal(model.similarity(X), before)
    assert set(vars(model)) - state <= {"_skl_callbacks"}


# -- messages --


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (np.eye(2), r"shape \(5, 5\) for truncation 4; got \(2, 2"),
        (np.zeros((5, 5)), "a single bin"),
    ],
)
def test_bad_patterns_are_refused(pattern, message, counts):
    with pytest.raises(ValueError, match=message):
        HistogramRankSVM(weight_pattern=pattern).fit(*counts)


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
    with pytest.raises(ValueError, match="too few objects for cross_fit"):
        plain(cross_fit=True).fit(np.eye(4), [0, 0, 1, 1])


def test_weights_of_zero_are_named():
    # Every query has an irrelevant duplicate, which ranks first under any weights.
    X = np.array([[1, 0, 2], [0, 1, 1]] * 4)
    y = np.repeat([0, 1], 4)
    with pytest.warns(UserWarning, match="No weights are better than 0.*Set holdout"):
        model = plain().fit(X, y)
    assert model.objective_ == pytest.approx(1)
    assert not model.similarity(X).any()


def test_too_few_passes_are_reported(counts):
    with pytest.warns(ConvergenceWarning, match="after max_iter=2 passes"):
        model = plain(max_iter=2).fit(*counts)
    assert model.n_iter_ == 2
    assert model.dual_gap_ > 1e-3 * model.objective_


def test_callbacks_see_the_passes_and_can_stop(counts):
    class Stop(FitCallback):
        def __init__(self, after):
            self.after, self.names, self.scores = after, [], []

        def on_fit_task_end(self, estimator, context, *, fitted_estimator):
            self.names.append(context.task_name)
            if context.task_name == "pass":
                self.scores.append(fitted_estimator.score(X, y))
            return len(self.names) >= self.after

    X, y = counts
    stop = Stop(after=3)
    model = plain(truncation=2, loss="pairwise").set_callbacks(stop).fit(X, y)
    assert stop.names == ["pass"] * 3 + ["fit"]
    assert model.n_iter_ == 3
    assert stop.scores[-1] == model.score(X, y)

    stop = Stop(after=2)
    model = HistogramRankSVM(random_state=0).set_callbacks(stop).fit(X, y)
    assert stop.names[:2] == ["hold-out", "hold-out"]
    assert len(stop.names) <= 4


def test_ctrl_c_interrupts_a_pass(interrupt_fit):
    waited = interrupt_fit(
        """
import numpy as np
from sklearn_simlearn import HistogramRankSVM
rng = np.random.default_rng(0)
X = rng.poisson(0.5, size=(3000, 400)).astype(float)
y = np.arange(3000) // 4
estimator = HistogramRankSVM(holdout=None, loss="pairwise", tol=1e-9)
""",
        after=1,
    )
    assert waited < 5
