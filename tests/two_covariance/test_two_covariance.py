"""The two-covariance model: estimates, likelihood ratios, sets of queries."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import multivariate_normal

from sklearn_simlearn import (
    MemoryVectorQuery,
    StartKeptWarning,
    TwoCovarianceSimilarity,
)
from sklearn_simlearn._core import directions
from sklearn_simlearn._core.covariances import Diagonalizer, estimate_moments
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.start import Start
from sklearn_simlearn._holdout import START, Choice
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import Judgements, PairwiseRelevance
from sklearn_simlearn.model_selection import make_query_sets
from sklearn_simlearn.similarities import CosineSimilarity
from sklearn_simlearn.two_covariance._encoders import (
    LikelihoodRatio,
    quadratic_weights,
    span_of_weights,
)
from sklearn_simlearn.two_covariance._path import (
    FORMS,
    Candidate,
    deviation_of_start,
    make_score,
    true_share,
)


def draw_covariances(rng, n_features):
    """Return a mean, B and W."""
    factors = rng.standard_normal((2, n_features, n_features))
    B, W = factors @ factors.transpose(0, 2, 1) / n_features
    floor = 0.3 * np.eye(n_features)
    return rng.standard_normal(n_features), B + floor, W + floor


def simulate(rng, sizes, n_features=4, model=None):
    """Return samples of the model, labels and the model."""
    mean, B, W = model or draw_covariances(rng, n_features)
    y = np.repeat(np.arange(len(sizes)), sizes)
    centres = rng.multivariate_normal(mean, B, size=len(sizes))
    noise = rng.multivariate_normal(np.zeros(len(mean)), W, size=len(y))
    return centres[y] + noise, y, (mean, B, W)


def read_model(model):
    """Return the mean, B and W that a plain fit has estimated."""
    inverse = np.linalg.inv(model.components_)
    return (
        inverse @ model.offset_,
        inverse @ np.diag(model.between_) @ inverse.T,
        inverse @ inverse.T,
    )


def log_ratio(queries, item, mean, B, W):
    """Log likelihood ratio of "same class", by Gaussians of stacked samples."""

    def log_density(samples):
        n = len(samples)
        covariance = np.kron(np.ones((n, n)), B) + np.kron(np.eye(n), W)
        return multivariate_normal(np.tile(mean, n), covariance).logpdf(samples.ravel())

    together = log_density(np.vstack([queries, item[None]]))
    return together - log_density(queries) - log_density(item[None])


@pytest.fixture
def hidden(rng):
    """Return known and new classes that differ in four of ten directions."""
    y = np.repeat(np.arange(40), 10)
    X = 3 * rng.standard_normal((400, 10))
    X[:, :4] = rng.standard_normal((40, 4))[y] + 0.3 * rng.standard_normal((400, 4))
    return (X[y < 20], y[y < 20]), (X[y >= 20], y[y >= 20])


# -- the likelihood ratio --


@pytest.mark.parametrize("n_queries", [1, 2, 3, 7])
def test_similarity_is_the_log_likelihood_ratio(n_queries, rng):
    X, y, _ = simulate(rng, [6] * 30)
    model = TwoCovarianceSimilarity(0.0, holdout=None).fit(X, y)
    assert len(model.between_) == 4
    estimates = read_model(model)
    queries, items = X[:n_queries], X[20:30]
    expected = np.array([log_ratio(queries, item, *estimates) for item in items])
    [found] = model.similarity(queries, items, groups=np.zeros(n_queries))
    # Up to a constant for each query.
    assert_allclose(found - found[0], expected - expected[0], rtol=0, atol=1e-10)
    if n_queries == 1:
        assert_allclose(found, model.similarity(queries, items)[0], atol=1e-12)


def test_the_weights_of_all_set_sizes_are_spanned(rng):
    beta = np.append(10.0 ** rng.uniform(-6, 4, size=100), 0.0)
    basis = span_of_weights(beta)
    assert basis.shape[1] < 25
    assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-10)
    weights = quadratic_weights(beta, [1, 2, 5, 37, 1000])
    assert_allclose(weights @ basis @ basis.T, weights, atol=1e-10)
    # A single query needs one column.
    assert_allclose(weights[0] @ basis[:, 1:], 0, atol=1e-12)
    assert span_of_weights(np.zeros(3)).shape == (3, 1)


def test_queries_in_sets_follow_the_order_of_the_groups(rng):
    beta = np.array([3.0, 0.5])
    ratio = LikelihoodRatio(beta, span_of_weights(beta))
    U = rng.standard_normal((5, 2))
    groups = ["b", "a", "b", "b", "a"]
    together = ratio.queries(U, groups)
    assert_allclose(together[0], ratio.queries(U[[1, 4]], [0, 0])[0])
    assert_allclose(together[1], ratio.queries(U[[0, 2, 3]], [0, 0, 0])[0])
    assert_allclose(together[0, :2], beta / (1 + 3 * beta) * (U[1] + U[4]))


# -- the estimates --


def test_recovers_both_covariances(rng):
    sizes = rng.integers(1, 9, size=4000)
    X, y, (mean, B, W) = simulate(rng, sizes, n_features=3)
    model = TwoCovarianceSimilarity(0.0, holdout=None).fit(X, y)
    found = read_model(model)
    assert_allclose(found[0], mean, atol=0.1)
    assert_allclose(found[1], B, atol=0.1 * np.abs(B).max())
    assert_allclose(found[2], W, atol=0.05 * np.abs(W).max())


def test_moments_of_classes(rng):
    sizes = [1, 1, 4, 7, 2]
    X, y, _ = simulate(rng, sizes)
    moments = estimate_moments(X, check_relevance(y))
    n, classes = len(y), range(5)
    means = np.array([X[y == c].mean(axis=0) for c in classes])
    within = sum((X[y == c] - means[c]).T @ (X[y == c] - means[c]) for c in classes)
    rest = means - X.mean(axis=0)
    spread = (rest * np.array(sizes)[:, None]).T @ rest
    factor = n - np.square(sizes).sum() / n
    assert_allclose(moments.mean, X.mean(axis=0))
    assert_allclose(moments.within, within / (n - 5))
    assert_allclose(moments.between, (spread - 4 * within / (n - 5)) / factor)
    assert_allclose(moments.total, np.cov(X.T, bias=True))


def test_blocks_do_not_change_the_moments(rng, monkeypatch):
    X, y, _ = simulate(rng, [5] * 8)
    pairs = PairwiseRelevance((y[:, None] == y).astype(float))
    expected = [estimate_moments(X, check_relevance(target)) for target in (y, pairs)]
    monkeypatch.setattr("sklearn_simlearn._core.covariances.BLOCK", 12)
    for target, moments in zip((y, pairs), expected, strict=True):
        for part, other in zip(
            estimate_moments(X, check_relevance(target)), moments, strict=True
        ):
            assert_allclose(part, other, atol=1e-12)


def test_distractors_are_separate_classes(rng):
    X, y, _ = simulate(rng, [5, 4, 1, 1, 1])
    marked = np.where(y > 1, -1, y)
    expected = estimate_moments(X, check_relevance(y))
    for part, other in zip(
        estimate_moments(X, check_relevance(marked)), expected, strict=True
    ):
        assert_allclose(part, other, atol=1e-12)


def test_moments_of_a_relevance_matrix(rng):
    X, y, _ = simulate(rng, [5, 4, 6])
    columns = np.eye(3)[y] * rng.uniform(1, 3, size=(15, 1))
    expected = estimate_moments(X, check_relevance(y))
    found = estimate_moments(X, check_relevance(columns))
    assert_allclose(found.within, expected.within)
    assert_allclose(found.between, expected.between)
    # A sample of two columns counts in both.
    columns[0, 1] = 1.0
    found = estimate_moments(X, check_relevance(columns))
    repeated = estimate_moments(X[[0, *range(15)]], check_relevance(np.append(1, y)))
    assert_allclose(found.within, repeated.within)
    assert_allclose(found.between, repeated.between)


def test_pairs_give_half_of_the_covariance_of_differences(rng):
    X, _, _ = simulate(rng, [2] * 10)
    links = np.zeros((20, 20))
    links[[0, 1, 4], [1, 2, 9]] = 2.0  # 0-1 and 1-2, but not 0-2
    links[3, 5] = -1.0
    found = estimate_moments(X, check_relevance(PairwiseRelevance(links)))
    differences = X[[0, 1, 4]] - X[[1, 2, 9]]
    assert_allclose(found.within, differences.T @ differences / 6)
    assert_allclose(found.between + found.within, np.cov(X.T))


def test_pairs_recover_both_covariances(rng):
    X, _, (_, B, W) = simulate(rng, [3] * 3000, n_features=3)
    same = sparse.kron(sparse.eye_array(3000), np.ones((3, 3)))
    model = TwoCovarianceSimilarity(0.0, holdout=None).fit(X, PairwiseRelevance(same))
    _, found_B, found_W = read_model(model)
    assert_allclose(found_B, B, atol=0.1 * np.abs(B).max())
    assert_allclose(found_W, W, atol=0.05 * np.abs(W).max())


@pytest.mark.parametrize("shrinkage", [0.0, 0.3, 1.0])
def test_coordinates_diagonalise_both(shrinkage, rng):
    X, y, _ = simulate(rng, [6] * 30)
    moments = estimate_moments(X, check_relevance(y))
    A, offset, beta = Diagonalizer(moments)(shrinkage)
    W = moments.within
    shrunk = (1 - shrinkage) * W + shrinkage * np.trace(W) / 4 * np.eye(4)
    assert_allclose(A @ shrunk @ A.T, np.eye(4), atol=1e-9)
    expected = A @ moments.between @ A.T
    assert_allclose(np.diag(np.maximum(np.diag(expected), 0)), np.diag(beta), atol=1e-9)
    assert_allclose(expected - np.diag(np.diag(expected)), 0, atol=1e-9)
    assert (np.diff(beta) <= 0).all()
    assert_allclose(offset, A @ X.mean(axis=0))


# -- degenerate data --


@pytest.mark.parametrize("holdout", [None, "objects", "samples"])
@pytest.mark.parametrize(
    "case", ["single samples", "few samples", "constant", "duplicates", "one class"]
)
@pytest.mark.filterwarnings("ignore::sklearn_simlearn.StartKeptWarning")
def test_degenerate_data(case, holdout, rng, dtype):
    sizes = [4] * 12 + [1] * 6
    X, y, _ = simulate(rng, sizes)
    if case == "few samples":
        X = np.hstack([X, rng.standard_normal((len(X), 100))])
    elif case == "constant":
        X[:, 1:3] = 0, 7
    elif case == "duplicates":
        X = X[np.searchsorted(y, y)]
    elif case == "one class":
        y = np.where(y == 0, 0, -1)
    X = X.astype(dtype)
    model = TwoCovarianceSimilarity(holdout=holdout, random_state=0).fit(X, y)
    # New samples may have values in a column that was constant.
    new = X + np.asarray(1e-3, dtype)
    S = model.similarity(new, X)
    assert S.dtype == dtype
    assert np.isfinite(S).all()
    if case == "duplicates":
        assert model.score(X, y) > 0.99


def test_directions_without_variance_do_not_count(rng):
    X, y, _ = simulate(rng, [6] * 30)
    padded = np.hstack([X, np.zeros((180, 3)), X[:, :1] + X[:, 1:2]])
    beta = Diagonalizer(estimate_moments(padded, check_relevance(y)))(0.1).beta
    assert_array_equal(np.flatnonzero(beta), np.arange(4))


def test_single_queries_and_sets_of_one_agree(hidden):
    (X, y), (new, _) = hidden
    model = TwoCovarianceSimilarity(random_state=0).fit(X, y)
    Q = model.transform(new, groups=np.arange(len(new)))
    assert_allclose(Q, model.transform(new), atol=1e-12)


# -- the fitted similarity --


def naive_score(form, rows, coordinates):
    """Return similarities of rows to each other by the formulas of the user guide."""
    A, offset, beta = coordinates
    U = rows @ A.T - offset
    if form != "whitened":
        U, beta = U[:, beta > 0], beta[beta > 0]
    if form in ("whitened", "discriminant"):
        if form == "discriminant":
            U = U * np.sqrt(beta / (1 + 2 * beta))
        U = U / np.linalg.norm(U, axis=1, keepdims=True)
        return U @ U.T
    if form == "unit ratio":
        U = U / np.linalg.norm(U, axis=1, keepdims=True) * np.sqrt((1 + beta).sum())
    linear, squares = beta / (1 + 2 * beta), beta**2 / ((1 + beta) * (1 + 2 * beta))
    return (U * linear) @ U.T - 0.5 * U**2 @ squares


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("max_directions", [15, 500])
def test_served_similarity(form, share, max_directions, counts, monkeypatch):
    X, y = counts
    monkeypatch.setattr(directions, "MAX_DIRECTIONS", max_directions)
    monkeypatch.setattr(
        "sklearn_simlearn.two_covariance._two_covariance.choose",
        lambda *_, **__: Choice(Candidate(form, 0.3, share), {}),
    )
    model = TwoCovarianceSimilarity(random_state=0).fit(X, y)
    start = Start.fit(X).items(X).toarray()
    coordinates = model.components_, model.offset_, model.between_
    expected = (1 - model.share_) * naive_score(form, start, coordinates)
    expected += model.share_ * start @ start.T
    assert_allclose(model.similarity(X), expected, atol=1e-8)
    Q, D = model.transform(X), model.transform_database(X)
    product = Q @ D.T
    product = product.toarray() if sparse.issparse(product) else product
    assert_allclose(product, expected, atol=1e-8)
    assert (model.form_, model.shrinkage_) == (form, 0.3)
    assert (model.share_ > 0) == (share > 0)
    assert model.components_.shape[1] == X.shape[1]


def test_full_shrinkage_whitens_to_the_centred_cosine(rng):
    X, y, _ = simulate(rng, [6] * 30)
    coordinates = Diagonalizer(estimate_moments(X, check_relevance(y)))(1.0)
    rest = X - X.mean(axis=0)
    rest /= np.linalg.norm(rest, axis=1, keepdims=True)
    encoder = make_score("whitened", coordinates, None).encode(None, None, X.dtype)
    assert_allclose(encoder.queries(X) @ encoder.items(X).T, rest @ rest.T, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_predicted_deviations(form, rng):
    """At a share of one half both parts of a mixture vary equally for a query."""
    X, y, model = simulate(rng, [8] * 200, n_features=12)
    moments = estimate_moments(X, check_relevance(y))
    score = make_score(form, Diagonalizer(moments)(0.0), None)
    items, _, _ = simulate(rng, [1] * 2000, model=model)
    encoder = score.encode(None, None, X.dtype)
    learned = encoder.queries(items[:300]) @ encoder.items(items[300:]).T
    start = items[:300] @ items[300:].T
    deviations = [np.sqrt(S.var(axis=1).mean()) for S in (learned, start)]
    share = true_share(0.5, score.deviation, deviation_of_start(moments))
    assert share * deviations[1] / ((1 - share) * deviations[0]) == pytest.approx(
        1, abs=0.2
    )
    assert true_share(0.0, score.deviation, 1.0) == 0
    assert true_share(0.5, 0.0, 1.0) == 0.5


def test_learns_what_helps_with_new_classes(hidden):
    (X, y), (new, new_y) = hidden
    model = TwoCovarianceSimilarity(random_state=0).fit(X, y)
    cosine = CosineSimilarity(use_idf=False).fit(X)
    assert model.holdout_gain_ > 0.2
    assert model.score(new, new_y) > cosine.score(new, new_y) + 0.2
    assert model.share_ < 1
    results = model.holdout_results_
    assert START in results["candidates"]
    assert len(results["candidates"]) >= 5


def test_keeps_the_start_if_classes_are_too_few(rng):
    X, y = rng.standard_normal((54, 8)), np.repeat(np.arange(9), 6)
    with pytest.warns(StartKeptWarning, match="9 classes"):
        model = TwoCovarianceSimilarity(random_state=0).fit(X, y)
    assert model.share_ == 1
    assert not hasattr(model, "components_")
    cosine = CosineSimilarity(use_idf=False).fit(X)
    assert_allclose(model.similarity(X), cosine.similarity(X))


def test_parameters_limit_the_candidates(hidden):
    (X, y), _ = hidden
    model = TwoCovarianceSimilarity(0.25, n_components=2, random_state=0).fit(X, y)
    assert model.shrinkage_ == 0.25
    assert model.components_.shape == (2, 10)
    candidates = set(model.holdout_results_["candidates"]) - {START}
    assert {candidate.shrinkage for candidate in candidates} == {0.25}


@pytest.mark.parametrize("kind", ["columns", "pairs"])
@pytest.mark.parametrize("holdout", ["objects", "samples", None])
def test_other_targets(kind, holdout, hidden):
    (X, y), (new, new_y) = hidden
    same = (y[:, None] == y).astype(float)
    target = np.eye(20)[y] if kind == "columns" else PairwiseRelevance(same)
    model = TwoCovarianceSimilarity(holdout=holdout, random_state=0).fit(X, target)
    assert model.score(new, new_y) > 0.5


@pytest.mark.parametrize("holdout", ["auto", "documents", None])
def test_judgements(holdout, hidden):
    """Queries and documents are two samples of each class."""
    (X, y), (new, new_y) = hidden
    queries, documents = slice(0, None, 2), slice(1, None, 2)
    relevance = (y[queries][:, None] == y[documents]).astype(float)
    target = Judgements(relevance, X[documents])
    model = TwoCovarianceSimilarity(holdout=holdout, random_state=0)
    model.fit(X[queries], target)
    cosine = CosineSimilarity(use_idf=False).fit(X)
    assert model.score(new, new_y) > cosine.score(new, new_y) + 0.1


def test_wide_sparse_and_dense_samples_agree(rng, monkeypatch):
    monkeypatch.setattr(directions, "MAX_DIRECTIONS", 20)
    y = np.repeat(np.arange(15), 6)
    X = rng.standard_normal((90, 60)) * (rng.uniform(size=(90, 60)) < 0.3)
    X[:, :5] += 2 * rng.standard_normal((15, 5))[y]
    for holdout in ("objects", None):
        model = TwoCovarianceSimilarity(holdout=holdout, random_state=0)
        dense = model.fit(X, y).similarity(X)
        found = model.fit(sparse.csr_array(X), y).similarity(sparse.csr_array(X))
        assert_allclose(found, dense, atol=1e-8)


# -- sets of queries --


@pytest.fixture
def faint(rng):
    """Return known and new classes, with three strong and twenty weak directions."""
    B = np.diag(np.repeat([4.0, 0.1], [3, 20]))
    model = np.zeros(23), B, np.eye(23)
    return [simulate(rng, [10] * n, model=model)[:2] for n in (300, 60)]


def test_sets_in_the_scorer_and_in_an_index(faint):
    (X, y), (new, new_y) = faint
    for holdout in ("objects", None):
        model = TwoCovarianceSimilarity(holdout=holdout, random_state=0).fit(X, y)
        sets = make_query_sets(new_y, size=5, random_state=0)
        single = model.score(new, new_y)
        assert model.score(new, new_y, groups=sets) > single + 0.05
        index = SimilarityIndex(model).fit(new)
        scores, ids = index.search(new[:10], k=5, groups=np.arange(10) // 4)
        S = model.similarity(new[:10], new, groups=np.arange(10) // 4)
        assert_allclose(scores, np.take_along_axis(S, ids, axis=1))


def test_sets_rank_better_than_memory_vectors_of_the_rows(faint):
    (X, y), (new, new_y) = faint
    sets = make_query_sets(new_y, size=5, random_state=0)
    model = TwoCovarianceSimilarity(holdout=None).fit(X, y)
    for method in ("average", "memory"):
        rival = MemoryVectorQuery(method=method).fit(X)
        ahead = model.score(new, new_y, groups=sets)
        assert ahead > rival.score(new, new_y, groups=sets) + 0.05


def test_frames_of_sets_have_the_names_of_the_groups(hidden):
    pytest.importorskip("pandas")
    (X, y), (new, _) = hidden
    model = TwoCovarianceSimilarity(random_state=0).set_output(transform="pandas")
    frame = model.fit(X, y).transform(new[:4], groups=["b", "a", "b", "a"])
    assert list(frame.index) == ["a", "b"]
    assert_array_equal(frame.to_numpy(), model.encoder_.queries(new[:4], [1, 0, 1, 0]))
