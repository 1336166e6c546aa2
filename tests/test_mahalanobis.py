"""SparseMahalanobisLearner: kernels against their formulas, solvers, the estimator."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import check_grad
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import normalize

from sklearn_simlearn import SparseMahalanobisLearner, _mahalanobis
from sklearn_simlearn._mahalanobis import _draw_per_column, _Pairs, _Problem
from sklearn_simlearn._mahalanobis_fast import score_queries
from sklearn_simlearn._relevance import check_relevance
from sklearn_simlearn.datasets import make_visual_words
from sklearn_simlearn.similarities import CosineSimilarity

# Most tests need but a few iterations.
pytestmark = pytest.mark.filterwarnings("ignore:The objective still falls")


@pytest.fixture
def noisy_words():
    """Objects whose words are often mistaken for others of their group."""
    data = make_visual_words(
        n_objects=10,
        n_images_per_object=40,
        n_words=1000,
        n_words_per_object=25,
        noise=0.5,
        zipf_exponent=0.5,
        random_state=0,
    )
    return data.data, data.target, data.words


def make_problem(rng, y, *, n_words=25, dtype=np.float64, n_threads=1, held_out=()):
    """A problem with random counts, many of them equal, and a random support."""
    n_items = len(y)
    X = rng.poisson(0.4, size=(n_items, n_words)).astype(dtype)
    X = normalize(sparse.csr_array(X), norm="l1")
    neighbors = sparse.random_array((n_words, n_words), density=0.1, rng=rng)
    start = sparse.diags_array(rng.uniform(0.5, 2, size=n_words), format="csr")
    left_out = np.isin(np.arange(n_items), held_out)
    pairs = _Pairs(start, neighbors)
    return _Problem(X, check_relevance(y), left_out, pairs, n_threads)


def naive_units(problem, m):
    """S_ij ** 2 / (S_ii S_jj), by dense products."""
    X, M = problem.X.toarray().astype(float), problem.pairs.matrix(m).toarray()
    S = X @ M @ X.T
    own = np.diagonal(S)
    inverse = np.divide(1, own, out=np.zeros_like(own), where=own > 0)
    return S**2 * inverse * inverse[:, None]


def naive_triplets(problem, triplets, mined_at):
    """Every triplet one by one, with its weight: hard ones, then those listed."""
    unit = naive_units(problem, mined_at)
    relevance = problem.relevance.graded_block(*[slice(0, problem.n_items)] * 2)
    listed_start, listed, listed_weight = triplets.arrays[4:]
    found = []
    for k, (i, weight) in enumerate(
        zip(triplets.queries, triplets.weight, strict=True)
    ):
        others = np.flatnonzero((np.arange(len(unit)) != i) & ~problem.held_out)
        for j in others[relevance[i, others] > 0]:
            for bad in others[relevance[i, others] == 0]:
                # The sums are in another order: equal ones may differ a little.
                if unit[i, bad] > unit[i, j] + 1e-12:
                    found.append((i, j, bad, weight * relevance[i, j]))
        for t in range(listed_start[k], listed_start[k + 1]):
            found.append((i, *listed[t], weight * listed_weight[t]))
    return found


def naive_loss(problem, m, found, margin):
    unit = naive_units(problem, m)
    return sum(w * max(unit[i, b] - unit[i, j] + margin, 0) for i, j, b, w in found)


def graded_target(rng, n_items):
    """A relevance matrix with weights, junk, several objects a sample and none."""
    y = rng.uniform(size=(n_items, 4)) * (rng.random((n_items, 4)) < 0.35)
    y[rng.random((n_items, 4)) < 0.05] = -1
    y[0], y[1] = [0.5, 0, 0, 1], [1, 0, 0, 0]
    return y


def mine(problem, m, rng, *, max_hard=None, n_random=0, weight=None):
    rest = problem.relevance.take(np.flatnonzero(~problem.held_out))
    queries = np.flatnonzero(~problem.held_out)[rest.find_queries()]
    weight = rng.uniform(1, 2, size=len(queries)) if weight is None else weight
    return problem.mine(m, queries, weight, max_hard, n_random, rng)


# -- kernels --


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), graded=st.booleans())
def test_loss_is_the_sum_over_all_triplets(seed, graded):
    rng = np.random.default_rng(seed)
    y = graded_target(rng, 14) if graded else rng.integers(-1, 4, size=14)
    y[:3] = y[1] if graded else [0, 0, 2]
    problem = make_problem(rng, y, held_out=[3])
    start = problem.pairs.start
    triplets = mine(problem, start, rng, n_random=20)
    found = naive_triplets(problem, triplets, start)
    assert triplets.n_hard == len(found) - 20
    assert sum(weight for *_, weight in found) == pytest.approx(1)
    m = rng.random(len(start)) * (rng.random(len(start)) < 0.8)
    for margin in (1e-3, 0.1, 2.0):
        value, _, losses = problem.evaluate(m, triplets, margin)
        assert losses.sum() == pytest.approx(naive_loss(problem, m, found, margin))
        assert value == pytest.approx(losses.sum() / margin)


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("n_random", [0, 50])
def test_gradient_is_that_of_the_loss(rng, graded, n_random):
    y = graded_target(rng, 24) if graded else np.arange(24) % 5
    problem = make_problem(rng, y)
    triplets = mine(problem, problem.pairs.start, rng, n_random=n_random)
    found = naive_triplets(problem, triplets, problem.pairs.start)
    m = rng.uniform(0.1, 1, size=len(problem.pairs.start))

    def loss(m):
        return naive_loss(problem, m, found, 0.05) / 0.05

    def slope(m):
        return problem.evaluate(m, triplets, 0.05)[1]

    # Of one-sided differences with steps of 1e-7, over hundreds of unknowns.
    error = check_grad(loss, slope, m, epsilon=1e-7)
    assert error < 1e-5 * np.linalg.norm(slope(m))


def test_single_precision_comes_close_to_double(rng):
    y = np.arange(30) % 5
    results = []
    for dtype in (np.float32, np.float64):
        problem = make_problem(np.random.default_rng(0), y, dtype=dtype)
        m = np.random.default_rng(1).random(len(problem.pairs.start))
        triplets = mine(problem, problem.pairs.start, np.random.default_rng(2))
        results.append(problem.evaluate(m, triplets, 0.05)[:2])
    (value, slope), (exact_value, exact_slope) = results
    assert value == pytest.approx(exact_value, rel=1e-5)
    assert_allclose(slope, exact_slope, atol=1e-5 * abs(exact_slope).max())


@pytest.mark.parametrize("n_threads", [2, 3, 16])
def test_evaluation_does_not_depend_on_the_number_of_threads(rng, n_threads):
    y = np.arange(60) % 7
    problem = make_problem(rng, y)
    triplets = mine(problem, problem.pairs.start, rng, n_random=30)
    m = rng.random(len(problem.pairs.start))
    value, slope, losses = problem.evaluate(m, triplets, 0.05)
    problem.n_threads = n_threads
    again = problem.evaluate(m, triplets, 0.05)
    assert value == again[0]
    assert_array_equal(slope, again[1])
    assert_array_equal(losses, again[2])


def test_losses_of_many_queries_are_added_up_in_blocks(rng, monkeypatch):
    problem = make_problem(rng, np.arange(60) % 7)
    triplets = mine(problem, problem.pairs.start, rng)
    m = rng.random(len(problem.pairs.start))
    value, slope, _ = problem.evaluate(m, triplets, 0.05)
    monkeypatch.setattr(_mahalanobis, "BLOCK", 7)
    blocked = problem.evaluate(m, triplets, 0.05)
    assert value == blocked[0]
    assert_allclose(slope, blocked[1], rtol=1e-9, atol=1e-15)


def test_only_visited_queries_count(rng):
    problem = make_problem(rng, np.arange(40) % 6)
    triplets = mine(problem, problem.pairs.start, rng)
    m = rng.random(len(problem.pairs.start))
    _, slope, losses = problem.evaluate(m, triplets, 0.05)
    some, rest = np.arange(0, 40, 3), np.setdiff1d(np.arange(40), np.arange(0, 40, 3))
    parts = [problem.evaluate(m, triplets, 0.05, visited) for visited in (some, rest)]
    assert_allclose(parts[0][1] + parts[1][1], slope, rtol=1e-9, atol=1e-12)
    assert_array_equal(parts[0][2] + parts[1][2], losses)
    assert not parts[0][2][rest].any()


def test_inverted_file_scores_as_the_product_to_the_bit(rng, dtype):
    Q = sparse.random_array((20, 50), density=0.2, rng=rng, format="csr", dtype=dtype)
    D = sparse.random_array((30, 50), density=0.2, rng=rng, format="csr", dtype=dtype)
    file = D.tocsc()
    for n_threads in (1, 2):
        arrays = []
        for part in (Q, file):
            arrays += [part.indptr.astype("i8"), part.indices.astype("i4"), part.data]
        for array in arrays:
            array.flags.writeable = False
        out = np.full((20, 30), np.nan, dtype=dtype)
        score_queries(*arrays, n_threads, out)
        assert_array_equal(out, (Q @ D.T).toarray())


# -- triplets --


def test_hard_triplets_are_counted_right_on_a_small_case():
    # A query and five items, more alike from left to right: bad, good, bad, good, bad.
    X = np.array([[0, 4], [4, 1], [3, 1], [2, 1], [1, 1], [1, 2]])
    y = np.array([0, 1, 0, 1, 0, 1])
    pairs = _Pairs(sparse.eye_array(2, format="csr"), sparse.csr_array((2, 2)))
    problem = _Problem(
        normalize(sparse.csr_array(X.astype(float)), norm="l1"),
        check_relevance(y),
        np.zeros(6, dtype=bool),
        pairs,
        1,
    )
    rng = np.random.default_rng(0)
    triplets = problem.mine(pairs.start, np.array([0]), np.ones(1), None, 0, rng)
    # The last bad item is above both good ones, the one before above one of them.
    assert triplets.n_hard == 3
    assert_array_equal(triplets.arrays[1], [5, ~4, 3, ~2])


def test_a_subset_of_the_hard_triplets(rng):
    problem = make_problem(rng, graded_target(rng, 40))
    start = problem.pairs.start
    everything = mine(problem, start, rng)
    hard = {triplet[:3] for triplet in naive_triplets(problem, everything, start)}
    some = mine(problem, start, rng, max_hard=100)
    assert some.n_hard == everything.n_hard == len(hard) > 200
    first, listed, weight = some.arrays[4:]
    query = np.repeat(some.queries, np.diff(first))
    drawn = [tuple(map(int, (i, *pair))) for i, pair in zip(query, listed, strict=True)]
    assert len(set(drawn)) == 100
    assert set(drawn) <= hard
    relevance = problem.relevance.graded_block(slice(0, 40), slice(0, 40))
    assert_array_equal(weight, relevance[query, listed[:, 0]])
    assert some.arrays[0][-1] == 0  # no rankings beside them
    # All are equally likely: each is drawn about as often as any other.
    counts = dict.fromkeys(hard, 0)
    for _ in range(200):
        first, listed, _ = mine(problem, start, rng, max_hard=100).arrays[4:]
        query = np.repeat(some.queries, np.diff(first))
        for i, (j, bad) in zip(query, listed, strict=True):
            counts[int(i), int(j), int(bad)] += 1
    expected = 200 * 100 / len(hard)
    observed = np.array(list(counts.values()))
    chi_squared = ((observed - expected) ** 2 / expected).sum()
    assert abs(chi_squared - len(hard)) < 5 * np.sqrt(2 * len(hard))


def test_random_triplets_are_sound(rng):
    problem = make_problem(rng, graded_target(rng, 40), held_out=[5, 6, 7])
    triplets = mine(problem, problem.pairs.start, rng, n_random=500, max_hard=0)
    relevance = problem.relevance.graded_block(slice(0, 40), slice(0, 40))
    first, listed, weight = triplets.arrays[4:]
    query = np.repeat(triplets.queries, np.diff(first))
    assert len(listed) == 500
    assert (relevance[query, listed[:, 0]] > 0).all()
    assert (relevance[query, listed[:, 1]] == 0).all()  # neither relevant nor junk
    assert not np.isin(listed, [5, 6, 7]).any()
    assert (listed != query[:, None]).all()
    assert_array_equal(weight, relevance[query, listed[:, 0]])


def test_queries_are_drawn_per_object_and_weighted_against_imbalance(rng):
    y = np.repeat([0, 1, 2, -1], [50, 8, 2, 10])
    learner = SparseMahalanobisLearner(queries_per_object=20)
    nobody = np.zeros(len(y), dtype=bool)
    queries, weight = learner._choose_queries(check_relevance(y), nobody, rng)
    assert_array_equal(np.unique(y[queries], return_counts=True)[1], [20, 8, 2])
    assert_allclose(weight, np.array([1, 20 / 8, 20 / 2])[y[queries]])
    held_out = np.isin(np.arange(len(y)), [0, 51])
    queries, _ = learner._choose_queries(check_relevance(y), held_out, rng)
    assert not held_out[queries].any()


def test_entries_are_drawn_evenly_from_each_column(rng):
    positive = sparse.csr_array((rng.random((30, 3)) < 0.5).astype(float))
    counts = np.zeros((30, 3))
    for _ in range(300):
        row, column = _draw_per_column(positive, 4, rng)
        assert_array_equal(np.bincount(column), [4, 4, 4])
        np.add.at(counts, (row, column), 1)
    present = positive.toarray() > 0
    assert not counts[~present].any()
    assert_allclose(
        counts[present] / 300,
        (4 / present.sum(axis=0))[None].repeat(30, 0)[present],
        atol=0.12,
    )


# -- the unknowns --


def test_start_is_the_cosine_of_tfidf(counts):
    X, y = counts
    learner = SparseMahalanobisLearner(alpha=1e9, holdout=None, max_iter=1)
    assert_allclose(
        learner.fit(X, y).similarity(X),
        CosineSimilarity().fit(X).similarity(X),
        atol=1e-6,
    )


def test_words_that_all_samples_have_make_the_start_the_identity(rng):
    X = rng.poisson(3, size=(30, 6)) + 1.0
    learner = SparseMahalanobisLearner(alpha=1e9, holdout=None, max_iter=1)
    learner.fit(X, np.arange(30) % 3)
    plain = CosineSimilarity(use_idf=False).fit(X)
    assert_allclose(learner.similarity(X), plain.similarity(X), atol=1e-6)


@pytest.mark.parametrize("init", ["tfidf", "identity", "given"])
@pytest.mark.parametrize("words", ["vectors", "graph", None])
@pytest.mark.parametrize("solver", ["lbfgs", "sgd"])
def test_matrix_is_symmetric_non_negative_and_on_its_support(
    noisy_words, init, words, solver
):
    X, y, vectors = noisy_words
    if init == "given":
        init = np.eye(1000)
        init[0, 7] = init[7, 0] = 0.5
    if words == "graph":
        words = kneighbors_graph(vectors, 1, mode="distance")
    elif words == "vectors":
        words = vectors
    learner = SparseMahalanobisLearner(
        1, words=words, init=init, solver=solver, max_iter=5, random_state=0
    ).fit(X, y)
    M, support = learner.M_.toarray(), learner.support_.toarray()
    assert_array_equal(M, M.T)
    assert M.min() == 0
    assert not M[~support].any()
    assert support.diagonal().all()
    if words is not None:
        expected = kneighbors_graph(vectors, 1).toarray() + np.eye(1000) > 0
        if not isinstance(init, str):
            expected[0, 7] = True
        assert_array_equal(support, expected | expected.T)
    assert np.count_nonzero(M - np.diag(np.diag(M))) > 0


def test_a_vocabulary_with_doubles_finds_others_than_the_word_itself():
    words = np.repeat(np.arange(10.0), 3)[:, None]
    found = list(_mahalanobis._find_nearest(words, 2))
    row, column = np.concatenate(found, axis=1)
    assert_array_equal(np.bincount(row), np.full(30, 2))
    assert (row != column).all()
    assert_array_equal(row // 3, column // 3)


def test_large_vocabularies_use_faiss_where_it_is_installed(rng, monkeypatch):
    pytest.importorskip("faiss")
    words = rng.normal(size=(5000, 4)).astype(np.float32)

    def find():
        row, column = np.concatenate(list(_mahalanobis._find_nearest(words, 2)), axis=1)
        return set(zip(row.tolist(), column.tolist(), strict=True))

    exact = find()
    monkeypatch.setattr(_mahalanobis, "MAX_EXACT", 1000)
    assert len(find() & exact) > 0.95 * len(exact)


def test_large_vocabularies_do_without_faiss(rng, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(_mahalanobis, "MAX_EXACT", 10)
    words = rng.normal(size=(50, 4))
    row, column = np.concatenate(list(_mahalanobis._find_nearest(words, 3)), axis=1)
    expected = kneighbors_graph(words, 3).toarray()
    found = np.zeros_like(expected)
    found[row, column] = 1
    assert_array_equal(found, expected)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_common_words_are_found_in_blocks(rng, dtype, n_threads):
    X = sparse.random_array((60, 80), density=0.1, rng=rng, format="csr", dtype=dtype)
    U = normalize(X.T).toarray()
    common = U @ U.T
    np.fill_diagonal(common, 0)
    found = list(_mahalanobis._find_common(X, 3, n_threads))
    row, column = np.concatenate(found, axis=1)
    found = np.zeros_like(common, dtype=bool)
    found[row, column] = True
    third = -np.sort(-common, axis=1)[:, 2:3]
    assert_array_equal(found, (common >= third) & (common > 0))
    blocks = list(_mahalanobis._find_common(X, 3, n_threads, work_per_block=500))
    assert len(blocks) > 5
    assert_array_equal(np.concatenate(blocks, axis=1), [row, column])


def test_words_that_are_as_common_come_in_their_order():
    # Four words are in the same samples, the fifth is alone, the last is nowhere.
    X = np.zeros((6, 6))
    X[:3, :4] = 1
    X[5, 4] = 1
    (found,) = _mahalanobis._find_common(sparse.csr_array(X), 2, 1)
    row, column = found
    assert_array_equal(row, [0, 0, 1, 1, 2, 2, 3, 3])
    assert_array_equal(column, [1, 2, 0, 2, 0, 1, 0, 1])


def test_products_that_underflow_are_no_common_words():
    X = np.array([[1, 1e-30, 1e-30], [1, 1e-30, 1e-30], [1, 1, 0], [1, 0, 1]])
    X = sparse.csr_array(X.astype(np.float32))
    (found,) = _mahalanobis._find_common(X, 3, 1)
    assert_array_equal(found, [[0, 0, 1, 2], [1, 2, 0, 0]])


# -- solvers --


def optimise(X, y, **parameters):
    return SparseMahalanobisLearner(
        holdout=None, tol=0, max_iter=3000, random_state=0, **parameters
    ).fit(X, y)


@pytest.mark.parametrize("alpha", [1.0, 10.0])
def test_end_satisfies_the_conditions_of_the_bounds(counts, alpha):
    # With a margin of 2 no hinge has a kink within reach: the objective is smooth.
    X, y = counts
    learner = optimise(X, y, margin=2.0, alpha=alpha, n_random_triplets=0)
    learner_at_start = optimise(X, y, margin=2.0, alpha=1e9, n_random_triplets=0)
    frequencies = learner._check_samples(X, reset=False)
    pairs = _Pairs(learner._check_init(frequencies), learner.support_)
    problem = _Problem(
        frequencies, check_relevance(y), np.zeros(66, dtype=bool), pairs, 1
    )
    rng = np.random.default_rng(0)
    queries, weight = learner._choose_queries(problem.relevance, problem.held_out, rng)
    triplets = learner._mine(problem, pairs.start, queries, weight, rng)
    m = learner.M_[pairs.first, pairs.second] / pairs.unit
    value, slope, _ = learner._evaluate(problem, m, triplets, 2.0)
    start_slope = learner._evaluate(problem, pairs.start, triplets, 2.0)[1]
    assert value == pytest.approx(learner.objective_)
    assert learner.objective_ < learner_at_start.objective_
    small = 1e-4 * abs(start_slope).max()
    at_bound = m == 0
    assert at_bound.any()
    assert (~at_bound).any()
    assert (slope[at_bound] > -small).all()
    assert abs(slope[~at_bound]).max() < small


def test_result_does_not_depend_on_n_jobs(noisy_words):
    X, y, words = noisy_words
    for parameters in ({}, {"solver": "sgd"}):
        learners = [
            SparseMahalanobisLearner(
                words=words, n_jobs=n_jobs, max_iter=4, random_state=0, **parameters
            ).fit(X, y)
            for n_jobs in (None, 2, 3)
        ]
        for learner in learners[1:]:
            assert_array_equal(learner.M_.toarray(), learners[0].M_.toarray())
            assert_array_equal(learner.holdout_scores_, learners[0].holdout_scores_)
            assert learner.objective_ == learners[0].objective_


@pytest.mark.parametrize("solver", ["lbfgs", "sgd"])
def test_learning_beats_tfidf_on_new_images(noisy_words, solver):
    X, y, words = noisy_words
    train = np.arange(len(y)) % 2 == 0
    learner = SparseMahalanobisLearner(words=words, solver=solver, random_state=0)
    learner.fit(X[train], y[train])
    cosine = CosineSimilarity().fit(X[train]).score(X[~train], y[~train])
    assert learner.score(X[~train], y[~train]) > 1.05 * cosine


def test_matching_neighbours_pays_where_words_are_mistaken(noisy_words):
    X, y, words = noisy_words
    train = np.arange(len(y)) % 2 == 0
    scores = []
    for n_neighbors in (0, 3):
        learner = SparseMahalanobisLearner(n_neighbors, words=words, random_state=0)
        learner.fit(X[train], y[train])
        scores.append(learner.score(X[~train], y[~train]))
    assert scores[1] > scores[0] + 0.02


def test_satisfied_queries_are_left_out_and_looked_at_in_the_end():
    X, y = make_visual_words(
        10, 20, noise=0, n_clutter=60, return_X_y=True, random_state=0
    )
    visits = []

    class Spy(SparseMahalanobisLearner):
        def _evaluate(self, problem, m, triplets, margin, visited=None):
            result = super()._evaluate(problem, m, triplets, margin, visited)
            visits.append((visited, result))
            return result

    parameters = {"margin": 0.005, "holdout": None, "random_state": 0}
    lazy = Spy(active_interval=3, **parameters).fit(X, y)
    n_visited = [200 if visited is None else len(visited) for visited, _ in visits]
    assert min(n_visited) < 150
    assert max(n_visited) == 200
    # In the end nobody is left out.
    assert visits[-1][0] is None
    assert visits[-1][1][0] == lazy.objective_
    eager = SparseMahalanobisLearner(active_interval=10**9, **parameters).fit(X, y)
    assert lazy.objective_ < 1.2 * eager.objective_


def test_fresh_triplets_are_fewer_as_learning_goes_on(noisy_words):
    X, y, words = noisy_words
    parameters = {"words": words, "max_iter": 12, "random_state": 0}
    once = SparseMahalanobisLearner(**parameters).fit(X, y)
    again = SparseMahalanobisLearner(refresh_triplets=4, **parameters).fit(X, y)
    assert again.n_hard_triplets_ < 0.5 * once.n_hard_triplets_


def test_alpha_pulls_towards_the_start(noisy_words):
    X, y, words = noisy_words
    strays = []
    for alpha in (0.01, 1.0, 100.0):
        learner = SparseMahalanobisLearner(
            words=words, alpha=alpha, holdout=None, max_iter=30, random_state=0
        ).fit(X, y)
        start = learner._check_init(learner._check_samples(X, reset=False))
        strays.append(sparse.linalg.norm(learner.M_ - start))
    assert strays[0] > 2 * strays[1] > 4 * strays[2]


def test_too_few_iterations_are_reported_where_nothing_else_decides(noisy_words):
    X, y, words = noisy_words
    learner = SparseMahalanobisLearner(words=words, max_iter=3, random_state=0)
    learner.fit(X, y)  # the hold-out decides
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        learner.set_params(holdout=None).fit(X, y)
    learner.set_params(tol=1.0).fit(X, y)


# -- the hold-out --


def test_the_best_iteration_is_kept(noisy_words):
    X, y, words = noisy_words
    learner = SparseMahalanobisLearner(words=words, random_state=0).fit(X, y)
    scores = learner.holdout_scores_
    assert len(scores) == learner.n_iter_ + 1
    assert learner.best_iter_ == np.argmax(scores) > 0
    assert learner.n_iter_ - learner.best_iter_ <= 10
    shorter = SparseMahalanobisLearner(
        words=words, max_iter=learner.best_iter_, random_state=0
    ).fit(X, y)
    assert_array_equal(shorter.M_.toarray(), learner.M_.toarray())
    assert_array_equal(shorter.holdout_scores_, scores[: learner.best_iter_ + 1])


def test_nothing_gained_leaves_the_start():
    # Labels at random: whatever is learned is of no use for others.
    rng = np.random.default_rng(0)
    X = sparse.csr_array(rng.poisson(0.3, size=(120, 60)).astype(float))
    y = rng.permutation(np.repeat(np.arange(30), 4))
    learner = SparseMahalanobisLearner(random_state=3).fit(X, y)
    cosine = CosineSimilarity().fit(X)
    assert learner.holdout_scores_[0] >= learner.holdout_scores_[1:].max() - 0.05
    if learner.best_iter_ == 0:
        assert_allclose(learner.similarity(X), cosine.similarity(X), atol=1e-10)


@pytest.mark.parametrize(
    ("sizes", "holdout", "n_held_out"),
    [
        ([10, 10, 5], "auto", 4 + 4),  # the third has too few to spare
        ([10, 10, 6], "samples", 4 + 4 + 4),
        ([5] * 10, "auto", 2 * 5),
        ([5] * 9, "auto", 9),
        ([5, 2, 2], "auto", 1),
        ([2] * 9, "auto", None),
        ([30] * 10, "objects", 2 * 30),
        ([30] * 10, None, None),
        ([5, 1, 1, 1, 5], "objects", 5),  # a single sample has none to find
    ],
)
def test_what_is_held_out(rng, sizes, holdout, n_held_out):
    y = np.concatenate([np.repeat(np.arange(len(sizes)), sizes), [-1, -1]])
    learner = SparseMahalanobisLearner(holdout=holdout)
    held_out = learner._hold_out(check_relevance(y), rng)
    if n_held_out is None:
        assert held_out is None
        return
    assert len(held_out.queries) == len(set(held_out.queries)) == n_held_out
    assert (y[held_out.queries] >= 0).all()
    if held_out.query_each_other:
        rest = np.setdiff1d(np.arange(len(y)), held_out.queries)
        assert not np.isin(y[rest], y[held_out.queries]).any()


def test_held_out_samples_query_the_rest_but_not_each_other(rng):
    y = np.repeat([0, 1], 12)
    problem = make_problem(rng, y)
    start = problem.pairs.start
    learner = SparseMahalanobisLearner(holdout="samples")
    held_out = learner._hold_out(problem.relevance, rng)
    rest = np.setdiff1d(np.arange(24), held_out.queries)
    unit = naive_units(problem, start)
    total = 0
    for i in held_out.queries:
        order = rest[np.argsort(-unit[i, rest], kind="stable")]
        hits = y[order] == y[i]
        total += np.mean(np.cumsum(hits)[hits] / (np.flatnonzero(hits) + 1))
    # Ties, if any, are averaged by the measure.
    expected = total / len(held_out.queries)
    assert held_out.score(problem, start) == pytest.approx(expected, abs=0.02)


# -- batches --


def test_batches_teach_as_a_whole_does(noisy_words):
    X, y, words = noisy_words
    train = np.arange(len(y)) % 2 == 0
    X_train, y_train = X[train], y[train]
    learner = SparseMahalanobisLearner(words=words, random_state=0)
    cosine = CosineSimilarity().fit(X_train).score(X[~train], y[~train])
    for _ in range(4):
        for batch in range(2):
            learner.partial_fit(X_train[batch::2], y_train[batch::2])
    assert learner.n_iter_ == 8
    assert learner.score(X[~train], y[~train]) > 1.05 * cosine


def test_batches_go_on_from_a_fit_and_a_fit_starts_anew(noisy_words):
    X, y, words = noisy_words
    learner = SparseMahalanobisLearner(words=words, max_iter=5, random_state=0)
    M = learner.fit(X, y).M_.toarray()
    margin = learner.margin_
    learner.partial_fit(X, y)
    assert 0 < abs(learner.M_.toarray() - M).max() < abs(M).max()
    assert learner.margin_ == margin
    assert not hasattr(learner, "holdout_scores_")
    assert_array_equal(learner.fit(X, y).M_.toarray(), M)


def test_a_failed_batch_leaves_the_learner_as_it_was(noisy_words):
    X, y, words = noisy_words
    learner = SparseMahalanobisLearner(words=words, random_state=0)
    with pytest.raises(ValueError, match="y must give some sample"):
        learner.partial_fit(X, np.zeros(len(y), dtype=int))
    assert not hasattr(learner, "n_features_in_")
    learner.partial_fit(X, y)
    M = learner.M_.toarray()
    with pytest.raises(ValueError, match="999 features"):
        learner.partial_fit(X[:, :-1], y)
    with pytest.raises(ValueError, match="y must give some sample"):
        learner.partial_fit(X, np.zeros(len(y), dtype=int))
    assert_array_equal(learner.M_.toarray(), M)
    twin = SparseMahalanobisLearner(words=words, random_state=0)
    twin.partial_fit(X, y).partial_fit(X, y)
    assert_array_equal(learner.partial_fit(X, y).M_.toarray(), twin.M_.toarray())


# -- the estimator --


def test_empty_samples_score_zero(noisy_words):
    X, y, words = noisy_words
    X = X.tolil()
    X[3] = 0
    X = X.tocsr()
    learner = SparseMahalanobisLearner(words=words, max_iter=3, random_state=0)
    for Z in (X, X.toarray()):
        S = learner.fit(Z, y).similarity(Z)
        assert np.isfinite(S).all()
        assert not S[3].any()
        assert not S[:, 3].any()
        assert_allclose(np.delete(S.diagonal(), 3), 1)


def test_counts_and_frequencies_serve_alike(noisy_words):
    X, y, words = noisy_words
    learner = SparseMahalanobisLearner(words=words, max_iter=5, random_state=0)
    by_counts = learner.fit(X, y).similarity(X)
    frequencies = normalize(X, norm="l1")
    assert_allclose(learner.similarity(frequencies), by_counts, atol=1e-12)
    assert_allclose(learner.fit(frequencies, y).similarity(X), by_counts, atol=1e-6)


def test_similarity_by_threads_is_the_product_of_the_encodings(noisy_words):
    X, y, words = noisy_words
    learner = SparseMahalanobisLearner(words=words, max_iter=5, random_state=0)
    learner.fit(X, y).set_params(n_jobs=2)
    product = learner.transform(X) @ learner.transform_database(X).T
    assert_array_equal(learner.similarity(X), product.toarray())


def test_queries_and_items_of_different_kinds(noisy_words):
    X, y, words = noisy_words
    learner = SparseMahalanobisLearner(words=words, max_iter=3, random_state=0)
    S = learner.fit(X, y).similarity(X[:5], X)
    assert_allclose(learner.similarity(X[:5].toarray(), X), S, rtol=1e-10)
    assert_allclose(learner.similarity(X[:5], X.toarray()), S, rtol=1e-10)
    assert_allclose(learner.similarity(X[:5].astype(np.float32), X), S, rtol=1e-5)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"init": np.eye(39)}, r"init must have shape \(40, 40\)"),
        ({"init": -np.eye(40)}, "Negative values in data passed to init"),
        ({"init": np.zeros((40, 40))}, "symmetric matrix with positive entries"),
        ({"init": np.triu(np.ones((40, 40)))}, "symmetric matrix with positive"),
        ({"words": np.ones((39, 3))}, "a row for each of the 40 features"),
        ({"words": sparse.eye_array(40, 41)}, "a column too if it is a sparse graph"),
        ({"words": np.full((40, 3), np.nan)}, "words contains NaN"),
        ({"holdout": "samples"}, "y has no object with 6 samples"),
        ({"holdout": "objects", "holdout_fraction": 0.99}, "leaves none to train on"),
        ({"margin": 0.0}, "margin"),
        ({"solver": "adam"}, "solver"),
    ],
)
def test_bad_parameters_are_named_before_any_work(counts, parameters, message):
    X, y = counts
    learner = SparseMahalanobisLearner(**parameters)
    with pytest.raises(ValueError, match=message):
        learner.fit(X, y)
    assert not hasattr(learner, "n_features_in_")


def test_negative_values_are_refused(counts):
    X, y = counts
    learner = SparseMahalanobisLearner(max_iter=1, random_state=0)
    with pytest.raises(ValueError, match="Negative values"):
        learner.fit(-X, y)
    learner.fit(X, y)
    with pytest.raises(ValueError, match="Negative values"):
        learner.transform(-X)


class Watch:
    """A callback that records tasks and asks to stop, or fails, after some."""

    def __init__(self, after, error=None):
        self.after, self.error, self.names, self.fitted = after, error, [], []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        self.names.append(context.task_name)
        if context.task_name != "iteration":
            return False
        self.fitted.append(fitted_estimator)
        if len(self.fitted) < self.after:
            return False
        if self.error is not None:
            raise self.error
        return True


@pytest.mark.parametrize("solver", ["lbfgs", "sgd"])
def test_callbacks_see_neighbours_and_iterations_and_can_stop(noisy_words, solver):
    X, y, words = noisy_words
    watch = Watch(after=3)
    learner = SparseMahalanobisLearner(
        words=words, solver=solver, holdout=None, random_state=0
    )
    learner.set_callbacks(watch).fit(X, y)
    assert watch.names == ["neighbours"] + ["iteration"] * 3 + ["fit"]
    assert learner.n_iter_ == 3
    last = watch.fitted[-1]
    assert_array_equal(last.similarity(X), learner.similarity(X))


@pytest.mark.parametrize("solver", ["lbfgs", "sgd"])
def test_an_interrupted_fit_leaves_nothing_behind(noisy_words, solver):
    X, y, words = noisy_words
    learner = SparseMahalanobisLearner(words=words, solver=solver, random_state=0)
    learner.set_callbacks(Watch(after=2, error=KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        learner.fit(X, y)
    assert not [name for name in vars(learner) if name.endswith("_")]
    learner.set_callbacks(Watch(after=100)).fit(X, y)
    assert learner.score(X, y) > CosineSimilarity().fit(X).score(X, y)
