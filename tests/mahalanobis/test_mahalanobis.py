"""SparseMahalanobisLearner: kernels against their formulas, solvers, the estimator."""

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

from sklearn_simlearn import SparseMahalanobisLearner, StartKeptWarning
from sklearn_simlearn._core.progress import FitCallback
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.rows import (
    inverse_document_frequency,
)
from sklearn_simlearn._core.start import Start
from sklearn_simlearn.datasets import make_visual_words
from sklearn_simlearn.mahalanobis import _problem
from sklearn_simlearn.mahalanobis._neighbors import (
    _find_common,
    _find_common_dense,
    _find_nearest,
    find_neighbors,
)
from sklearn_simlearn.mahalanobis._problem import (
    Pairs,
    Problem,
    descend,
    draw_queries,
    find_limits,
)
from sklearn_simlearn.metrics import PairwiseRelevance
from sklearn_simlearn.similarities import CosineSimilarity

# Most tests need only a few iterations.
pytestmark = pytest.mark.filterwarnings("ignore:The objective still falls")


@pytest.fixture(scope="module")
def noisy_words():
    """Return objects whose words are often replaced by others of their group."""
    data = make_visual_words(
        n_objects=10,
        n_images_per_object=30,
        n_words=600,
        n_words_per_object=25,
        noise=0.5,
        zipf_exponent=0.5,
        random_state=0,
    )
    return data.data, data.target, data.words


def make_problem(rng, y, *, n_words=25, dtype=np.float64, n_threads=1):
    """Return a problem with random counts, many of them equal, and a random support."""
    X = rng.poisson(0.4, size=(len(y), n_words)).astype(dtype)
    X = normalize(sparse.csr_array(X), norm="l1")
    neighbors = sparse.random_array((n_words, n_words), density=0.1, rng=rng)
    start = sparse.diags_array(rng.uniform(0.5, 2, size=n_words), format="csr")
    pairs = Pairs(start, neighbors.tocsr())
    return Problem(X, check_relevance(y), pairs, n_threads=n_threads)


def naive_units(problem, m):
    """Return S_ij ** 2 / (S_ii S_jj), by dense products."""
    X, M = problem.X.toarray().astype(float), problem.pairs.matrix(m).toarray()
    S = X @ M @ X.T
    own = np.diagonal(S)
    inverse = np.divide(1, own, out=np.zeros_like(own), where=own > 0)
    return S**2 * inverse * inverse[:, None]


def naive_triplets(problem, triplets, mined_at):
    """Yield every triplet with its weight: hard triplets, then listed ones."""
    unit = naive_units(problem, mined_at)
    relevance = problem.relevance.graded_block(*[slice(0, problem.n_items)] * 2)
    found = []
    for k, (i, weight) in enumerate(
        zip(triplets.queries, triplets.weight, strict=True)
    ):
        others = np.flatnonzero(np.arange(len(unit)) != i)
        for j in others[relevance[i, others] > 0]:
            for bad in others[relevance[i, others] == 0]:
                # Equal similarities may differ by rounding.
                if unit[i, bad] > unit[i, j] + 1e-12:
                    found.append((i, j, bad, weight * relevance[i, j]))
        for t in range(*triplets.listed_start[k : k + 2]):
            found.append((i, *triplets.listed[t], weight * triplets.listed_weight[t]))
    return found


def naive_loss(problem, m, found, margin):
    unit = naive_units(problem, m)
    return sum(w * max(unit[i, b] - unit[i, j] + margin, 0) for i, j, b, w in found)


def graded_target(rng, n_items):
    """Return a relevance matrix with weights, junk, and several objects or none."""
    y = rng.uniform(size=(n_items, 4)) * (rng.random((n_items, 4)) < 0.35)
    y[rng.random((n_items, 4)) < 0.05] = -1
    y[0], y[1] = [0.5, 0, 0, 1], [1, 0, 0, 0]
    return y


def mine(problem, m, rng, *, n_random=0):
    queries = np.flatnonzero(problem.relevance.find_queries())
    weight = rng.uniform(1, 2, size=len(queries))
    return problem.mine(m, queries, weight, n_random, rng)[0]


# -- kernels --


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), graded=st.booleans())
def test_loss_is_the_sum_over_all_triplets(seed, graded):
    rng = np.random.default_rng(seed)
    y = graded_target(rng, 14) if graded else rng.integers(-1, 4, size=14)
    y[:3] = y[1] if graded else [0, 0, 2]
    problem = make_problem(rng, y)
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

    # Norm of the error over hundreds of unknowns, by one-sided differences.
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
    monkeypatch.setattr(_problem, "BLOCK", 7)
    blocked = problem.evaluate(m, triplets, 0.05)
    assert value == blocked[0]
    assert_allclose(slope, blocked[1], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("graded", [False, True])
def test_dense_products_give_the_objective_of_the_postings(rng, dtype, graded):
    y = graded_target(rng, 40) if graded else np.arange(40) % 6
    problem = make_problem(rng, y, dtype=dtype)
    triplets = mine(problem, problem.pairs.start, rng, n_random=30)
    m = rng.random(len(problem.pairs.start))
    results = []
    for dense in (None, problem.X.toarray()):
        problem.dense = dense
        results.append(problem.evaluate(m, triplets, 0.05))
    tol = 1e-5 if dtype == "float32" else 1e-12
    for walked, multiplied in zip(*results, strict=True):
        assert_allclose(multiplied, walked, rtol=tol, atol=tol * np.abs(walked).max())


def test_many_thresholds_are_summed_in_blocks(rng):
    # More relevant items than one block of prefix sums has.
    problem = make_problem(rng, np.arange(300) % 2)
    triplets = mine(problem, problem.pairs.start, rng)
    triplets = triplets._replace(weight=np.where(np.arange(300) < 2, 1.0, 0.0))
    m = rng.random(len(problem.pairs.start))
    unit = naive_units(problem, m)
    mined_at = naive_units(problem, problem.pairs.start)
    _, _, losses = problem.evaluate(m, triplets, 0.05)
    for i in range(2):
        good = np.flatnonzero((np.arange(300) % 2 == i) & (np.arange(300) != i))
        bad = np.flatnonzero(np.arange(300) % 2 != i)
        is_hard = mined_at[i, bad] > mined_at[i, good][:, None]
        hinge = np.maximum(unit[i, bad] - unit[i, good][:, None] + 0.05, 0)
        assert losses[i] == pytest.approx((is_hard * hinge).sum())


# -- triplets --


def test_hard_triplets_are_counted_right_on_a_small_case():
    # A query and five items in ascending similarity: bad, good, bad, good, bad.
    X = np.array([[0, 4], [4, 1], [3, 1], [2, 1], [1, 1], [1, 2]])
    y = np.array([0, 1, 0, 1, 0, 1])
    pairs = Pairs(sparse.eye_array(2, format="csr"), sparse.csr_array((2, 2)))
    rows = normalize(sparse.csr_array(X.astype(float)), norm="l1")
    problem = Problem(rows, check_relevance(y), pairs)
    rng = np.random.default_rng(0)
    triplets, mean = problem.mine(pairs.start, np.array([0]), np.ones(1), 0, rng)
    # The last bad item ranks above both good items, the middle one above one of them.
    assert triplets.n_hard == 3
    assert_array_equal(triplets.ranked, [5, ~4, 3, ~2])
    assert mean == pytest.approx((1 / 2 + 1 / 10) / 2)


def test_random_triplets_are_valid(rng):
    problem = make_problem(rng, graded_target(rng, 40))
    triplets = mine(problem, problem.pairs.start, rng, n_random=500)
    relevance = problem.relevance.graded_block(slice(0, 40), slice(0, 40))
    query = np.repeat(triplets.queries, np.diff(triplets.listed_start))
    good, bad = triplets.listed.T
    assert len(good) == 500
    assert (relevance[query, good] > 0).all()
    assert (relevance[query, bad] == 0).all()  # neither relevant nor junk
    assert (triplets.listed != query[:, None]).all()
    assert_array_equal(triplets.listed_weight, relevance[query, good])


def test_queries_are_drawn_per_object_and_weighted_against_imbalance(rng):
    y = np.repeat([0, 1, 2, -1], [50, 8, 2, 10])
    queries, weight = draw_queries(check_relevance(y), 20, rng)
    assert_array_equal(np.unique(y[queries], return_counts=True)[1], [20, 8, 2])
    assert_allclose(weight, np.array([1, 20 / 8, 20 / 2])[y[queries]])


def test_queries_of_a_column_are_equally_likely(rng):
    y = np.repeat([0, 1, 2], [15, 9, 6])
    members = np.eye(3)[y]
    counts = np.zeros(30)
    for _ in range(300):
        queries, _ = draw_queries(check_relevance(members), 3, rng)
        assert_array_equal(members[queries].sum(axis=0), [3, 3, 3])
        counts[queries] += 1
    assert_allclose(counts / 300, np.array([3 / 15, 3 / 9, 3 / 6])[y], atol=0.12)


def test_pairwise_relevance_queries_by_linked_samples(rng):
    y = np.repeat([0, 1, 2], [12, 6, 2])
    pairwise = PairwiseRelevance((y[:, None] == y).astype(float))
    for seed in range(3):
        drawn = [
            draw_queries(check_relevance(target), 5, np.random.default_rng(seed))
            for target in (y, pairwise)
        ]
        assert_array_equal(drawn[0][0], drawn[1][0])
        assert_array_equal(drawn[0][1], drawn[1][1])


# -- the unknowns --


def naive_start(X):
    """Return the cosine of tf-idf to the power 3/4, by dense arithmetic."""
    rows = (X.toarray() * inverse_document_frequency(X)) ** 0.75
    return normalize(rows) @ normalize(rows).T


def stand_still(**parameters):
    return SparseMahalanobisLearner(
        alpha=1e12, holdout=None, max_iter=1, random_state=0, **parameters
    )


def test_start_of_counts_is_the_shared_one(counts):
    X, y = counts
    learner = stand_still().fit(X, y)
    assert learner.power_ == 0.75
    assert_allclose(learner.similarity(X), naive_start(X), atol=1e-6)
    rows = Start.fit(X).items(X)
    assert_allclose(learner.similarity(X), (rows @ rows.T).toarray(), atol=1e-6)


def test_start_of_the_paper_is_the_cosine_of_tfidf(counts):
    X, y = counts
    learner = stand_still(init="tfidf").fit(X, y)
    assert learner.power_ == 1
    cosine = CosineSimilarity().fit(X)
    assert_allclose(learner.similarity(X), cosine.similarity(X), atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "init"),
    [("frequencies", "auto"), ("used words", "auto"), ("used words", "tfidf")],
)
def test_start_of_other_data_is_the_cosine(rng, counts, kind, init):
    X, y = counts
    if kind == "frequencies":
        X = normalize(X, norm="l1")
    else:  # every used word is in every sample, one word is in none
        X = np.pad(X.toarray() + 1, [(0, 0), (0, 1)])
    learner = stand_still(init=init).fit(X, y)
    assert learner.power_ == 1
    expected = normalize(X) @ normalize(X).T
    expected = expected.toarray() if sparse.issparse(expected) else expected
    assert_allclose(learner.similarity(X), expected, atol=1e-6)


@pytest.mark.parametrize("init", ["auto", "tfidf", "identity", "given"])
@pytest.mark.parametrize("words", ["vectors", "graph", None])
def test_matrix_is_symmetric_non_negative_and_on_its_support(noisy_words, init, words):
    X, y, vectors = noisy_words
    n_words = len(vectors)
    if init == "given":
        init = np.eye(n_words)
        init[0, 7] = init[7, 0] = 0.5
    options = {"n_neighbors": 1, "words": words}
    if words == "graph":
        options = {"words": kneighbors_graph(vectors, 1, mode="distance")}
    elif words == "vectors":
        options["words"] = vectors
    learner = SparseMahalanobisLearner(
        **options, init=init, holdout=None, max_iter=5, random_state=0
    ).fit(X, y)
    M, support = learner.M_.toarray(), learner.support_.toarray()
    assert_array_equal(M, M.T)
    assert M.min() == 0
    assert not M[~support].any()
    assert support.diagonal().all()
    if words is not None:
        expected = kneighbors_graph(vectors, 1).toarray() + np.eye(n_words) > 0
        if not isinstance(init, str):
            expected[0, 7] = True
        assert_array_equal(support, expected | expected.T)
    assert np.count_nonzero(M - np.diag(np.diag(M))) > 0


def test_nearest_words_are_those_of_the_exact_search(rng):
    words = rng.normal(size=(50, 4))
    X = sparse.csr_array((3, 50))
    found = find_neighbors(X, words, 3, 1, lambda name: False)
    assert_array_equal(found.toarray(), kneighbors_graph(words, 3).toarray())


def test_equal_words_have_other_nearest_words():
    words = np.repeat(np.arange(10.0), 3)[:, None]
    (nearest,) = _find_nearest(words, 2)
    word = np.arange(30)[:, None]
    assert (nearest != word).all()
    assert_array_equal(nearest // 3, np.broadcast_to(word // 3, (30, 2)))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_common_words_are_found_in_blocks(rng, dtype, n_threads):
    X = sparse.random_array((60, 80), density=0.09, rng=rng, format="csr", dtype=dtype)
    U = normalize(X.T).toarray()
    common = U @ U.T
    np.fill_diagonal(common, 0)
    (nearest,) = _find_common(X, 3, n_threads)
    found = find_neighbors(X, None, 3, n_threads, lambda name: False).toarray()
    third = -np.sort(-common, axis=1)[:, 2:3]
    assert_array_equal(found, (common >= third) & (common > 0))
    blocks = list(_find_common(X, 3, n_threads, work_per_block=500))
    assert len(blocks) > 5
    assert_array_equal(np.concatenate(blocks), nearest)


def test_common_words_of_dense_samples_are_the_same(rng, dtype):
    X = sparse.random_array((60, 80), density=0.3, rng=rng, format="csr", dtype=dtype)
    for n_neighbors in (1, 3, 79):
        (walked,) = _find_common(X, n_neighbors, 1)
        (multiplied,) = _find_common_dense(X, n_neighbors)
        assert_array_equal(np.sort(multiplied), np.sort(walked))


def test_words_that_are_as_common_come_in_their_order():
    # Four words occur in the same samples, the fifth alone, and the last not at all.
    X = np.zeros((6, 6))
    X[:3, :4] = 1
    X[5, 4] = 1
    (nearest,) = _find_common(sparse.csr_array(X), 2, 1)
    expected = [[1, 2], [0, 2], [0, 1], [0, 1], [-1, -1], [-1, -1]]
    assert_array_equal(nearest, expected)


def test_products_that_underflow_are_not_common_words():
    X = np.array([[1, 1e-30, 1e-30], [1, 1e-30, 1e-30], [1, 1, 0], [1, 0, 1]])
    X = sparse.csr_array(X.astype(np.float32))
    (nearest,) = _find_common(X, 3, 1)
    assert_array_equal(nearest, [[1, 2, -1], [0, -1, -1], [0, -1, -1]])


# -- the solver --


@pytest.mark.parametrize(("n", "limits"), [(1, [1]), (2, [1, 2]), (9, [1, 2, 4, 8, 9])])
def test_limits_of_steps_double_up_to_the_last(n, limits):
    assert find_limits(n) == find_limits(np.int64(n)) == limits


@pytest.mark.parametrize("alpha", [1.0, 10.0])
def test_end_satisfies_the_conditions_of_the_bounds(rng, alpha):
    # With a margin of 2 no hinge has a kink within reach: the objective is smooth.
    problem = make_problem(rng, np.arange(40) % 8)
    problem.alpha = alpha
    start = problem.pairs.start
    triplets = mine(problem, start, rng)
    _, m, n_iter, has_ended = descend(problem, triplets, 2.0, 3000, 0.0)[-1]
    assert has_ended
    assert n_iter < 3000
    value, slope, _ = problem.evaluate(m, triplets, 2.0)
    start_value, start_slope, _ = problem.evaluate(start, triplets, 2.0)
    assert value < start_value
    small = 1e-4 * abs(start_slope).max()
    at_bound = m == 0
    assert at_bound.any()
    assert (~at_bound).any()
    assert (slope[at_bound] > -small).all()
    assert abs(slope[~at_bound]).max() < small


def test_result_does_not_depend_on_n_jobs(noisy_words):
    X, y, words = noisy_words
    learners = [
        SparseMahalanobisLearner(
            words=words, n_jobs=n_jobs, holdout="samples", max_iter=2, random_state=0
        ).fit(X, y)
        for n_jobs in (None, 3)
    ]
    assert learners[0].share_ < 1
    for learner in learners[1:]:
        assert_array_equal(learner.M_.toarray(), learners[0].M_.toarray())
        assert learner.holdout_gain_ == learners[0].holdout_gain_
        assert learner.objective_ == learners[0].objective_


def test_matching_neighbours_helps_if_words_are_replaced(noisy_words):
    X, y, words = noisy_words
    train = np.arange(len(y)) % 2 == 0
    scores = []
    for n_neighbors in (0, 3):
        learner = SparseMahalanobisLearner(
            n_neighbors, words=words, holdout="samples", random_state=0
        ).fit(X[train], y[train])
        scores.append(learner.score(X[~train], y[~train]))
    assert scores[1] > scores[0] + 0.02


def test_alpha_pulls_towards_the_start(noisy_words):
    X, y, words = noisy_words
    start = sparse.diags_array(inverse_document_frequency(X) ** 2)
    strays = []
    for alpha in (0.1, 10.0, 1000.0):
        learner = SparseMahalanobisLearner(
            words=words,
            init="tfidf",
            alpha=alpha,
            holdout=None,
            max_iter=30,
            random_state=0,
        ).fit(X, y)
        strays.append(sparse.linalg.norm(learner.M_ - start))
    assert strays[0] > 2 * strays[1] > 4 * strays[2]


def test_too_few_iterations_are_reported_without_a_holdout(noisy_words):
    X, y, words = noisy_words
    learner = SparseMahalanobisLearner(
        words=words, holdout="samples", max_iter=3, random_state=0
    )
    learner.fit(X, y)
    learner.set_params(holdout=None)
    with pytest.warns(ConvergenceWarning, match="max_iter=3") as caught:
        learner.fit(X, y)
    assert caught[0].filename == __file__
    learner.set_params(tol=1.0).fit(X, y)


# -- the hold-out --


def test_a_planted_gain_is_taken(noisy_words):
    X, y, words = noisy_words
    train = np.arange(len(y)) % 2 == 0
    learner = SparseMahalanobisLearner(words=words, holdout="samples", random_state=0)
    learner.fit(X[train], y[train])
    assert learner.share_ < 1
    assert learner.holdout_gain_ > learner.holdout_error_
    chosen = learner.holdout_results_["candidates"][
        learner.holdout_results_["best_index"]
    ]
    assert chosen == (learner.n_iter_, learner.share_)
    start = stand_still(words=words).fit(X[train], y[train])
    score = learner.score(X[~train], y[~train])
    assert score > 1.05 * start.score(X[~train], y[~train])


@pytest.mark.parametrize("holdout", ["objects", "samples"])
def test_the_start_is_kept_exactly_if_nothing_helps(holdout):
    # Objects without a word in common: the start ranks them perfectly.
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 8)
    words = 1 + rng.poisson(0.4, size=(96, 5))
    X = sparse.csr_array(np.einsum("io,iw->iow", np.eye(12)[y], words).reshape(96, 60))
    learner = SparseMahalanobisLearner(holdout=holdout, max_iter=8, random_state=0)
    learner.fit(X, y)
    assert learner.n_iter_ == 1
    assert learner.share_ == 1
    assert learner.holdout_gain_ == 0
    diagonal = inverse_document_frequency(X) ** 1.5
    unit = diagonal.mean()
    assert_array_equal(learner.M_.toarray(), np.diag(unit * (diagonal / unit)))


def test_few_classes_keep_the_start_with_a_warning(noisy_words):
    X, y, _ = noisy_words
    few = y < 9
    with pytest.warns(StartKeptWarning, match='Pass holdout="samples" if'):
        learner = SparseMahalanobisLearner(random_state=0).fit(X[few], y[few])
    assert learner.share_ == 1


# -- batches --


def test_batches_rank_as_well_as_one_fit(noisy_words):
    X, y, words = noisy_words
    train = np.arange(len(y)) % 2 == 0
    X_train, y_train = X[train], y[train]
    learner = SparseMahalanobisLearner(words=words, random_state=0)
    start = stand_still(words=words).fit(X_train, y_train)
    for _ in range(4):
        for batch in range(2):
            learner.partial_fit(X_train[batch::2], y_train[batch::2])
    assert learner.n_iter_ == 8
    score = learner.score(X[~train], y[~train])
    assert score > 1.05 * start.score(X[~train], y[~train])


def test_batches_continue_a_fit_and_a_fit_starts_again(noisy_words):
    X, y, words = noisy_words
    learner = SparseMahalanobisLearner(
        words=words, holdout="samples", max_iter=4, random_state=0
    )
    M = learner.fit(X, y).M_.toarray()
    margin, power = learner.margin_, learner.power_
    learner.partial_fit(X, y)
    assert 0 < abs(learner.M_.toarray() - M).max() < abs(M).max()
    assert learner.margin_ == margin
    assert learner.power_ == power
    assert not hasattr(learner, "holdout_gain_")
    learner.fit(X, y)
    assert_array_equal(learner.M_.toarray(), M)
    assert not hasattr(learner, "_stream")


def test_a_failed_batch_leaves_the_learner_unchanged(noisy_words):
    X, y, words = noisy_words
    learner = SparseMahalanobisLearner(words=words, random_state=0)
    with pytest.raises(ValueError, match="y holds no triplet"):
        learner.partial_fit(X, np.zeros(len(y), dtype=int))
    assert not hasattr(learner, "n_features_in_")
    learner.partial_fit(X, y)
    M = learner.M_.toarray()
    with pytest.raises(ValueError, match="599 features"):
        learner.partial_fit(X[:, :-1], y)
    with pytest.raises(ValueError, match="y holds no triplet"):
        learner.partial_fit(X, np.zeros(len(y), dtype=int))
    assert_array_equal(learner.M_.toarray(), M)
    twin = SparseMahalanobisLearner(words=words, random_state=0)
    twin.partial_fit(X, y).partial_fit(X, y)
    assert_array_equal(learner.partial_fit(X, y).M_.toarray(), twin.M_.toarray())


# -- the estimator --


def quick(**parameters):
    return SparseMahalanobisLearner(
        holdout=None, max_iter=3, random_state=0, **parameters
    )


def test_empty_samples_score_zero(noisy_words):
    X, y, words = noisy_words
    X = X.tolil()
    X[3] = 0
    X = X.tocsr()
    for Z in (X, X.toarray()):
        S = quick(words=words).fit(Z, y).similarity(Z)
        assert np.isfinite(S).all()
        assert not S[3].any()
        assert not S[:, 3].any()
        assert_allclose(np.delete(S.diagonal(), 3), 1)


def test_the_length_of_a_histogram_does_not_matter(noisy_words):
    X, y, words = noisy_words
    learner = quick(words=words).fit(X, y)
    lengths = normalize(X, norm="l1")
    assert_allclose(learner.similarity(lengths), learner.similarity(X), atol=1e-12)
    learner.set_params(init="tfidf")
    by_counts = learner.fit(X, y).similarity(X)
    assert_allclose(learner.fit(lengths, y).similarity(X), by_counts, atol=1e-6)


def test_storage_of_the_samples_does_not_matter(noisy_words):
    X, y, words = noisy_words
    X, y = X[::2], y[::2]
    expected = quick(words=words).fit(X, y).M_.toarray()
    # Split each value into two entries, in descending order of the columns.
    doubled = sparse.csr_array(
        (
            np.repeat(X.data, 2)[::-1] / 2,
            np.repeat(X.indices, 2)[::-1].astype(np.int64),
            2 * (X.nnz - X.indptr[::-1]).astype(np.int64),
        ),
        shape=X.shape,
    )[::-1]
    for Z in (X.toarray(), np.asfortranarray(X.toarray()), doubled, X.tobsr()):
        assert_array_equal(quick(words=words).fit(Z, y).M_.toarray(), expected)


def test_similarity_is_the_product_of_the_encodings(noisy_words):
    X, y, words = noisy_words
    learner = quick(words=words).fit(X, y).set_params(n_jobs=2)
    product = learner.transform(X) @ learner.transform_database(X).T
    assert_allclose(learner.similarity(X), product.toarray(), rtol=1e-12)


def test_queries_and_items_of_different_kinds(noisy_words):
    X, y, words = noisy_words
    learner = quick(words=words).fit(X, y)
    S = learner.similarity(X[:5], X)
    assert_allclose(learner.similarity(X[:5].toarray(), X), S, rtol=1e-10)
    assert_allclose(learner.similarity(X[:5], X.toarray()), S, rtol=1e-10)
    assert_allclose(learner.similarity(X[:5].astype(np.float32), X), S, rtol=1e-5)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"init": np.eye(39)}, r"init must have shape \(40, 40\)"),
        ({"init": -np.eye(40)}, "Negative values in data passed to init"),
        ({"init": np.zeros((40, 40))}, "symmetric and have at least one positive"),
        (
            {"init": np.triu(np.ones((40, 40)))},
            "symmetric and have at least one positive",
        ),
        ({"words": np.ones((39, 3))}, "a row for each of the 40 features"),
        ({"words": sparse.eye_array(40, 41)}, "a sparse graph also needs a column"),
        ({"words": np.full((40, 3), np.nan)}, "words contains NaN"),
        ({"holdout": "words"}, "holdout"),
        ({"margin": 0.0}, "margin"),
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
    learner = quick()
    with pytest.raises(ValueError, match="Negative values"):
        learner.fit(-X, y)
    learner.fit(X, y)
    with pytest.raises(ValueError, match="Negative values"):
        learner.transform(-X)


class Watch(FitCallback):
    """A callback that records tasks; it asks to stop after some, or fails at one."""

    def __init__(self, after=None, fail_at=None):
        self.after, self.fail_at, self.names, self.fitted = after, fail_at, [], []

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        self.names.append(context.task_name)
        if context.task_name == self.fail_at:
            raise KeyboardInterrupt
        if context.task_name != "iteration":
            return False
        self.fitted.append(fitted_estimator)
        return len(self.fitted) == self.after


def test_callbacks_see_neighbours_and_iterations_and_can_stop(noisy_words):
    X, y, words = noisy_words
    watch = Watch(after=3)
    learner = SparseMahalanobisLearner(words=words, holdout=None, random_state=0)
    learner.set_callbacks(watch).fit(X, y)
    assert watch.names == ["neighbours"] + ["iteration"] * 3 + ["fit"]
    assert learner.n_iter_ == 3
    last = watch.fitted[-1]
    assert_array_equal(last.similarity(X), learner.similarity(X))


@pytest.mark.parametrize("fail_at", ["hold-out", "iteration", "fit"])
def test_a_fit_that_fails_leaves_the_old_state(noisy_words, fail_at):
    X, y, _ = noisy_words
    learner = SparseMahalanobisLearner(holdout="samples", max_iter=2, random_state=0)
    learner.set_callbacks(Watch(fail_at=fail_at))
    with pytest.raises(KeyboardInterrupt):
        learner.fit(X, y)
    assert not [name for name in vars(learner) if name.endswith("_")]
    learner.set_callbacks(Watch()).fit(X, y)
    before = dict(vars(learner))
    learner.set_callbacks(Watch(fail_at=fail_at))
    with pytest.raises(KeyboardInterrupt):
        learner.fit(X[:, :300], y)
    del before["_skl_callbacks"]
    assert before.items() <= vars(learner).items()
