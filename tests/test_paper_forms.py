"""`from_paper` of each learner against NumPy versions of the formulas of its paper."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import sklearn_simlearn
from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    HistogramRankSVM,
    MemoryVectorQuery,
    SparseMahalanobisLearner,
)
from sklearn_simlearn._core.paper import PaperFormMixin
from sklearn_simlearn._core.progress import FitCallback
from sklearn_simlearn._validation import Validation
from sklearn_simlearn.mahalanobis._problem import Problem
from sklearn_simlearn.oasis import _steps as oasis_steps

# Parameters that the papers state, and where.
STATED = {
    AngularBilinearRanker: {
        "matrix": "diagonal",  # section 4.3
        "C": 1,  # 4.3
        "candidates": "nearest",  # 3, step 3
        "n_neighbors": 10,  # 5.1
        "references": "medoids",  # 5.2
        "n_references": 1000,  # 5.2
        "n_candidates": 50,  # Table 1, the largest
        "sigma": 0.95,  # 5.2
        "query_dependent": True,
        "holdout": None,
    },
    HistogramRankSVM: {
        "penalty": "l2",  # Eq. 11
        "loss": "max",  # Eq. 11
        "length_slope": 0,  # Eq. 5
        "cross_fit": False,  # 3.3.1
        "truncation": "auto",  # 4.1
        "n_word_groups": 5,  # 4.2, on UKbench
        "holdout": None,
    },
    MemoryVectorQuery: {"method": "memory", "alpha": 0, "normalize": True},  # Eq. 4
    OASIS: {
        "C": 0.1,  # Fig. 5
        "symmetric": None,  # 2.1
        "psd": None,
        "n_components": None,
        "n_models": 1,
        "holdout": None,
    },
    SparseMahalanobisLearner: {
        "init": "tfidf",  # III-A
        "n_neighbors": 2,  # V-C
        "alpha": 0,  # Eq. 4
        "queries_per_object": 80,  # IV-B
        "holdout": 4,  # IV-D
    },
}
PAPER_LEARNERS = [*STATED]


# -- the constructor --


def test_learners_of_papers_have_the_constructor():
    public = [getattr(sklearn_simlearn, name) for name in sklearn_simlearn.__all__]
    found = [c for c in public if isinstance(c, type) and issubclass(c, PaperFormMixin)]
    assert sorted(found, key=lambda c: c.__name__) == PAPER_LEARNERS


@pytest.mark.parametrize("learner", PAPER_LEARNERS)
def test_paper_form_is_an_ordinary_estimator(learner):
    model = learner.from_paper()
    assert type(model) is learner
    expected = learner().get_params() | STATED[learner]
    assert model.get_params() == expected
    assert clone(model).get_params() == expected
    with pytest.raises(TypeError, match="no_such_parameter"):
        learner.from_paper(no_such_parameter=1)


def test_given_parameters_take_precedence():
    model = AngularBilinearRanker.from_paper(sigma=0.5, holdout="samples")
    assert model.sigma == 0.5
    assert model.holdout == "samples"
    assert model.candidates == "nearest"


def test_grid_search_over_a_paper_form(blobs):
    X, y = blobs
    learner = OASIS.from_paper(n_triplets=100, random_state=0)
    search = GridSearchCV(learner, {"C": [0.01, 0.1]}, cv=2).fit(X, y)
    assert search.best_estimator_.holdout is None


# -- OASIS: Chechik et al., 2010 --


def test_oasis_is_the_algorithm_of_the_paper(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.random((60, 7)), np.repeat(np.arange(4), 15)
    visited = []

    def spy(W, X, triplets, *rest):
        visited.append(triplets)
        return sweep(W, X, triplets, *rest)

    sweep = oasis_steps.sweep
    monkeypatch.setattr(oasis_steps, "sweep", spy)
    oasis = OASIS.from_paper(n_triplets=4000, random_state=0).fit(X, y)
    triplets = np.concatenate(visited)

    # Section 2.3: a uniform query, a uniform positive of its class, a uniform negative.
    q, positive, negative = triplets.T
    assert len(triplets) == 4000
    assert (y[q] == y[positive]).all()
    assert (q != positive).all()
    assert (y[q] != y[negative]).all()
    for drawn in (q, positive, negative):
        counts = np.bincount(drawn, minlength=60)
        assert abs(counts - 4000 / 60).max() < 5 * np.sqrt(4000 / 60)

    # Eqs. 8 and 11 with C = 0.1, from the identity.
    W = np.eye(7)
    for p, p_plus, p_minus in X[triplets]:
        V = np.outer(p, p_plus - p_minus)
        loss = max(0, 1 - p @ W @ p_plus + p @ W @ p_minus)
        W += min(0.1, loss / np.sum(V**2)) * V
    assert_allclose(oasis.W_, W, rtol=1e-9)
    assert_allclose(oasis.similarity(X[:5], X), X[:5] @ W @ X.T, rtol=1e-9)
    # Section 6.1
    index = np.linalg.norm((W + W.T) / 2) / np.linalg.norm(W)
    assert_allclose(oasis.symmetry_index_, index, rtol=1e-9)


# -- SparseMahalanobisLearner: Yan and Yu, 2013 --


class Iterations(FitCallback):
    """Callback that keeps the matrix after each iteration."""

    def __init__(self):
        self.matrices = []

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        if context.task_name == "iteration":
            self.matrices.append(fitted_estimator.M_.toarray())
        return False


def squared_cosines(A, B, M):
    """Return the similarity of Eq. 3."""
    own_a, own_b = ((X @ M * X).sum(axis=1) for X in (A, B))
    return (A @ M @ B.T) ** 2 / own_a[:, None] / own_b


def mean_average_precision(S, relevant):
    values = []
    for scores, is_relevant in zip(S, relevant, strict=True):
        hits = np.flatnonzero(is_relevant[np.argsort(-scores)])
        values.append(np.mean((np.arange(len(hits)) + 1) / (hits + 1)))
    return np.mean(values)


def test_mahalanobis_is_the_method_of_the_paper(monkeypatch):
    rng = np.random.default_rng(3)  # later iterations overfit
    y = np.concatenate([np.repeat([0, 1, 2], [12, 9, 5]), np.full(10, -1)])
    rates = rng.gamma(0.5, 1.0, size=(4, 30))
    X = rng.poisson(rates[y] + 0.4).astype(float)
    words = rng.standard_normal((30, 4))
    validations, mined = [], []
    initialise, mine = Validation.__init__, Problem.mine

    def spy(self, *args):
        validations.append(self)
        initialise(self, *args)

    def spy_mine(self, *args):
        mined.append(mine(self, *args))
        return mined[-1]

    monkeypatch.setattr(Validation, "__init__", spy)
    monkeypatch.setattr(Problem, "mine", spy_mine)
    seen = Iterations()
    learner = SparseMahalanobisLearner.from_paper(
        words=words, n_random_triplets=40, max_iter=10, random_state=0
    )
    learner.set_callbacks(seen).fit(sparse.csr_array(X), y)
    assert len(seen.matrices) > 2

    # Section IV-D: 4 positives per object are held out; object 2 has too few.
    train = validations[0].train
    held_out = np.setdiff1d(np.arange(len(y)), train)
    assert_array_equal(np.bincount(y[held_out]), [4, 4])
    F = X / X.sum(axis=1, keepdims=True)
    database, labels = F[train], y[train]

    # Section III: tf-idf on the diagonal, and the 2 nearest words, in either direction.
    idf = np.log(len(train)) - np.log((database > 0).sum(axis=0))
    distance = np.linalg.norm(words[:, None] - words, axis=2)
    mask = np.zeros((30, 30), dtype=bool)
    mask[np.arange(30)[:, None], np.argsort(distance, axis=1)[:, :3]] = True
    mask |= mask.T
    assert_array_equal(learner.support_.toarray(), mask)
    M = learner.M_.toarray()
    assert (M >= 0).all()
    assert not M[~mask].any()
    assert_allclose(M, M.T)

    # Section IV-B: hard triplets of all positives, then random ones; their weights.
    start = squared_cosines(database, database, np.diag(idf**2))
    n_positive = np.bincount(labels[labels >= 0])
    hard = [
        (i, j, k)
        for i in np.flatnonzero(labels >= 0)
        for j in np.flatnonzero((labels == labels[i]) & (np.arange(len(train)) != i))
        for k in np.flatnonzero((labels != labels[i]) & (start[i] > start[i, j]))
    ]
    assert learner.n_hard_triplets_ == len(hard)
    drawn = mined[0][0]
    drawn = np.column_stack(
        [np.repeat(drawn.queries, np.diff(drawn.listed_start)), drawn.listed]
    )
    assert len(drawn) == 40
    i, j, k = np.concatenate([hard, drawn]).T
    assert (labels[i] == labels[j]).all()
    assert (labels[i] != labels[k]).all()
    weight = n_positive.max() / n_positive[labels[i]]

    # Eq. 4, in units of the margin and of the sum of weights, without another term.
    S = squared_cosines(database, database, M)
    loss = weight @ np.maximum(0, S[i, k] - S[i, j] + learner.margin_)
    assert_allclose(learner.objective_, loss / weight.sum() / learner.margin_)

    # Each iteration is judged by the held-out positives, the best one is kept.
    relevant = labels == y[held_out, None]
    matrices = [np.diag(idf**2), *seen.matrices]
    measured = [
        mean_average_precision(squared_cosines(F[held_out], database, m), relevant)
        for m in matrices
    ]
    results = learner.holdout_results_
    assert_allclose(results["mean_average_precision"], measured, rtol=1e-6)
    best = int(np.argmax(measured))
    assert 0 < best < len(matrices) - 1
    assert results["best_index"] == best
    assert learner.n_iter_ == best
    assert_allclose(M, matrices[best])

    # Eq. 3 is the square of the similarity that is served.
    assert_allclose(learner.similarity(X) ** 2, squared_cosines(F, F, M))


# -- HistogramRankSVM: Qin et al., 2014 --


def joint_features(q, D, group, n_groups, n):
    """Return Psi of Eq. 7, summed over the words of each group (section 3.3.1)."""
    q, D = np.minimum(q, n).astype(int), np.minimum(D, n).astype(int)
    psi = np.zeros((len(D), n_groups, n + 1, n + 1))
    for row, d in zip(psi, D, strict=True):
        np.add.at(row, (group, q, d), 1)
    return psi.reshape(len(D), -1)


def solve_rank_svm(psis, y, lam, loss):
    """Minimise Eq. 11, or Eq. 9 for "pairwise", on the epigraph."""
    slopes, slack_of, costs = [], [], []
    for q, psi in enumerate(psis):
        relevant = np.flatnonzero((y == y[q]) & (np.arange(len(y)) != q))
        irrelevant = np.flatnonzero(y != y[q])
        rivals = [irrelevant] if loss == "max" else irrelevant[:, None]
        for u in relevant:
            for alternatives in rivals:
                slopes += [psi[u] - psi[v] for v in alternatives]
                slack_of += [len(costs)] * len(alternatives)
                costs.append(1 / len(relevant) if loss == "max" else 1.0)
    n_weights = psis[0].shape[1]
    A = np.hstack([slopes, np.eye(len(costs))[slack_of]])
    square = np.concatenate([np.full(n_weights, lam), np.zeros(len(costs))])
    linear = np.concatenate([np.zeros(n_weights), costs]) / np.sum(costs)
    result = minimize(
        lambda z: 0.5 * z @ (square / np.sum(costs) * z) + linear @ z,
        np.concatenate([np.zeros(n_weights), np.ones(len(costs))]),
        jac=lambda z: square / np.sum(costs) * z + linear,
        bounds=[(None, None)] * n_weights + [(0, None)] * len(costs),
        constraints={"type": "ineq", "fun": lambda z: A @ z - 1, "jac": lambda z: A},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert result.success
    return result.x[:n_weights], result.fun * np.sum(costs)


@pytest.mark.parametrize("loss", ["max", "pairwise"])
def test_rank_svm_is_the_problem_of_the_paper(loss):
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1, 2], 3)
    X = rng.poisson(rng.gamma(0.7, 0.6, size=(3, 20))[y] + 0.1).astype(float)
    alpha = 0.3
    options = {} if loss == "max" else {"loss": "pairwise"}
    svm = HistogramRankSVM.from_paper(
        alpha=alpha, n_word_groups=2, tol=1e-8, max_iter=1000, **options
    ).fit(X, y)

    # Section 4.1: fewer than 10 % of the words occur more than n times in any image.
    occurring = X[:, X.any(axis=0)]
    shares = [np.mean((occurring > n).any(axis=0)) for n in range(1, 9)]
    n = 1 + int(np.argmax(np.array(shares) < 0.1))
    assert svm.truncation_ == n > 1
    # Section 3.3.1: groups of equal size by frequency, up to ties.
    frequency = (X > 0).sum(axis=0)
    group = svm.word_groups_
    assert frequency[group == 0].max() < frequency[group == 1].min()
    n_ties = np.bincount(frequency).max()
    assert abs(np.sum(group[frequency > 0] == 0) - (frequency > 0).sum() / 2) <= n_ties

    n_losses = {"max": len(y), "pairwise": len(y) * 2 * 6}[loss]
    psis = [joint_features(q, X, group, 2, n) for q in X]
    w, objective = solve_rank_svm(psis, y, alpha * n_losses, loss)
    assert_allclose(svm.objective_ * n_losses, objective, rtol=1e-6)
    w = w.reshape(2, n + 1, n + 1)
    assert_allclose(svm.weights_, w - w[:, :1, :1], atol=1e-3)

    # Eq. 7, except for w_00 of all words, which no ranking depends on; and Eq. 12.
    learned = svm.weights_.ravel()
    S = np.array([psi @ learned for psi in psis])
    assert_allclose(svm.similarity(X), S, atol=1e-9)
    encoded = svm.transform(X) @ svm.transform_database(X).T
    assert_allclose(encoded.toarray(), S, atol=1e-9)


# -- AngularBilinearRanker: Kuang et al., 2013 --


def smo(Q, C, tol=1e-10):
    """Run algorithm 1: Eq. 13 for the variable that violates Eq. 11 most."""
    alpha = np.zeros(len(Q))
    while True:
        gradient = Q @ alpha - 1
        violation = np.where(
            ((alpha <= 0) & (gradient > 0)) | ((alpha >= C) & (gradient < 0)),
            0,
            abs(gradient),
        )
        i = np.argmax(violation)
        if violation[i] < tol:
            return alpha
        alpha[i] = np.clip(alpha[i] - gradient[i] / Q[i, i], 0, C)


def test_angular_ranker_is_the_method_of_the_paper():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 12)
    X = rng.standard_normal((3, 6))[y] + 0.9 * rng.standard_normal((36, 6))
    queries = rng.standard_normal((5, 6))
    ranker = AngularBilinearRanker.from_paper(n_candidates=15, tol=1e-10)
    ranker.fit(X, y)
    X, queries = (Z / np.linalg.norm(Z, axis=1, keepdims=True) for Z in (X, queries))

    # Fewer samples than references: all of them query (section 3, step 2).
    assert_allclose(ranker.reference_queries_, X)
    A = np.eye(6) - 0.95 / 6 * np.ones((6, 6))
    weights = []
    for q, x in enumerate(X):
        # Step 3: the images nearest to the reference are labelled.
        order = np.argsort(np.linalg.norm(X - x, axis=1))
        nearest = order[order != q][:15]
        relevant, others = nearest[y[nearest] == y[q]], nearest[y[nearest] != y[q]]
        i, j = (side.ravel() for side in np.meshgrid(relevant, others))
        assert ranker.n_triplets_[q] == len(i)
        if not len(i):
            weights.append(np.ones(6))
            continue
        # Eqs. 3, 8 and 10 with C = 1 and sigma = 0.95.
        differences = ((X[i] - X[j]) * x).T
        alpha = smo(differences.T @ np.linalg.inv(A) @ differences, 1.0)
        w = np.linalg.inv(A) @ differences @ alpha
        primal = w @ A @ w / 2 + np.maximum(0, 1 - differences.T @ w).sum()
        assert_allclose(ranker.dual_objective_[q], primal, rtol=1e-6)
        weights.append(w)
    assert sum(ranker.n_triplets_ > 0) > 20
    assert_allclose(ranker.reference_weights_, weights, rtol=1e-5, atol=1e-7)

    # The mean of the 10 nearest normalised transformations, then Eq. 1.
    for query, encoded, scores in zip(
        queries, ranker.transform(queries), ranker.similarity(queries, X), strict=True
    ):
        near = np.argsort(np.linalg.norm(X - query, axis=1))[:10]
        w = sum(weights[r] / np.linalg.norm(weights[r]) for r in near)
        surrogate = w * query / np.linalg.norm(w * query)
        assert_allclose(encoded / np.linalg.norm(encoded), surrogate, atol=1e-6)
        distance = np.linalg.norm(X - surrogate, axis=1)
        assert_array_equal(np.argsort(-scores), np.argsort(distance))


# -- MemoryVectorQuery: Sicre and Jegou, 2015 --


def test_memory_vector_is_that_of_the_paper():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((12, 32)), rng.standard_normal((9, 32))
    groups = np.repeat([0, 1, 2], [5, 4, 3])
    memory = MemoryVectorQuery.from_paper().fit(X)
    vectors = memory.transform(X, groups=groups)
    scores = memory.similarity(X, Y, groups=groups)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    items = Y / np.linalg.norm(Y, axis=1, keepdims=True)
    for group in range(3):
        columns = unit[groups == group].T
        # Eq. 4, also for n < d; every query scores 1.
        m = np.linalg.pinv(columns).T @ np.ones(columns.shape[1])
        solved = columns @ np.linalg.solve(columns.T @ columns, np.ones(len(columns.T)))
        assert_allclose(vectors[group], m)
        assert_allclose(vectors[group], solved)
        assert_allclose(columns.T @ vectors[group], 1)
        assert_allclose(scores[group], items @ m)
