"""Re-ranking steps against naive references, and the index that applies them."""

import pickle
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from sklearn_simlearn import HistogramRankSVM, MemoryVectorQuery
from sklearn_simlearn.datasets import load_digit_words, make_visual_words
from sklearn_simlearn.feature_extraction import LocalFeatures
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.reranking import (
    Diffusion,
    KReciprocal,
    NeighborAveraging,
    QueryExpansion,
    SpatialVerification,
)
from sklearn_simlearn.reranking._graph import estimate_group_size
from sklearn_simlearn.similarities import CosineSimilarity

SIZE = 100


def make_features(n_points, n_words=8, random_state=0, **given):
    """Return images of random features on a square of SIZE pixels."""
    rng = np.random.default_rng(random_state)
    n = sum(n_points)
    arrays = {
        "x": rng.uniform(0, SIZE, n),
        "y": rng.uniform(0, SIZE, n),
        "scale": np.exp(rng.uniform(0, 1.5, n)),
        "angle": rng.uniform(0, 360, n),
        "words": rng.integers(0, n_words, n),
        "image_sizes": np.tile([SIZE, SIZE // 2], (len(n_points), 1)),
    }
    return LocalFeatures(np.append(0, np.cumsum(n_points)), **(arrays | given))


def move(features, matrix, noise=0.0, random_state=0):
    """Return features of one image after a similarity transform."""
    matrix = np.asarray(matrix, dtype=float)
    rng = np.random.default_rng(random_state)
    place = matrix @ np.stack([features.x, features.y, np.ones(features.n_points)])
    place = place[:2] / place[2] + rng.normal(0, noise, (2, features.n_points))
    turn = np.degrees(np.arctan2(matrix[1, 0], matrix[0, 0]))
    return LocalFeatures(
        features.offsets,
        *place,
        scale=features.scale * np.hypot(matrix[0, 0], matrix[1, 0]),
        angle=features.angle + turn,
        words=features.words,
        image_sizes=features.image_sizes,
    )


def similarity_matrix(ratio, degrees, shift):
    c, s = ratio * np.cos(np.radians(degrees)), ratio * np.sin(np.radians(degrees))
    return np.array([[c, -s, shift[0]], [s, c, shift[1]], [0, 0, 1]])


def find_inliers(query, item, step):
    """Return the most inliers of any match, and its transform, by a double loop."""
    f32 = np.float32
    order_q, order_d = (np.argsort(part.words, kind="stable") for part in (query, item))
    matches = []
    for word in np.unique(query.words):
        left = order_q[query.words[order_q] == word]
        right = order_d[item.words[order_d] == word]
        if 0 < len(left) * len(right) <= step.max_pairs_per_word:
            matches += [(p, r) for p in left for r in right]
    side = float(query.image_sizes.max() * item.image_sizes.max())
    limit = f32(step.max_distance**2 * side)
    cos_q, sin_q, cos_d, sin_d = (
        function(np.radians(part.angle.astype(float))).astype(f32)
        for part in (query, item)
        for function in (np.cos, np.sin)
    )
    log_q, log_d = np.log(query.scale), np.log(item.scale)
    best, transform, chosen_best = 0, np.full((3, 3), np.nan), []
    for p, r in matches:
        cos = cos_q[p] * cos_d[r] + sin_q[p] * sin_d[r]
        sin = cos_q[p] * sin_d[r] - sin_q[p] * cos_d[r]
        ratio = item.scale[r] / query.scale[p]
        a, b = ratio * cos, ratio * sin
        chosen = []
        for i, j in matches:
            ux, uy = query.x[i] - query.x[p], query.y[i] - query.y[p]
            ex = (item.x[j] - item.x[r]) - (a * ux - b * uy)
            ey = (item.y[j] - item.y[r]) - (b * ux + a * uy)
            other_cos = cos_q[i] * cos_d[j] + sin_q[i] * sin_d[j]
            other_sin = cos_q[i] * sin_d[j] - sin_q[i] * cos_d[j]
            change = (log_d[j] - log_q[i]) - (log_d[r] - log_q[p])
            if (
                ex * ex + ey * ey <= limit * ratio
                and other_cos * cos + other_sin * sin
                >= f32(np.cos(np.radians(step.max_angle)) - 1e-6)
                and abs(change) <= f32(np.log(step.max_scale_ratio) + 1e-6)
                and all(i != used and j != taken for used, taken in chosen)
            ):
                chosen.append((i, j))
        if len(chosen) > best:
            best, chosen_best = len(chosen), chosen
            transform = [
                [
                    a,
                    -b,
                    item.x[r]
                    - (np.float64(a) * query.x[p] - np.float64(b) * query.y[p]),
                ],
                [
                    b,
                    a,
                    item.y[r]
                    - (np.float64(b) * query.x[p] + np.float64(a) * query.y[p]),
                ],
                [0, 0, 1],
            ]
    return best, transform, np.array(chosen_best).reshape(-1, 2)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"max_distance": 0.3, "max_angle": 90, "max_scale_ratio": 4},
        {"max_distance": 0.5, "max_angle": 180, "max_pairs_per_word": 3},
        {"max_distance": 0.2, "max_angle": 0, "max_pairs_per_word": 1000},
    ],
)
def test_verification_is_the_double_loop(params):
    queries = make_features([12, 0, 25, 1], random_state=1)
    database = LocalFeatures.concatenate(
        [
            make_features([20, 9, 0], random_state=2),
            move(queries, similarity_matrix(1.3, 40, (5, -8)), noise=4),
        ]
    )
    step = SpatialVerification(**params).fit(database)
    ids = np.tile(np.arange(len(database)), (len(queries), 1))
    found = step.verify(queries, ids, return_inliers=True)
    for i, j in np.ndindex(ids.shape):
        n_inliers, transform, inliers = find_inliers(queries[i], database[j], step)
        assert found.n_inliers[i, j] == n_inliers
        np.testing.assert_allclose(found.transforms[i, j], transform, rtol=1e-6)
        np.testing.assert_array_equal(found.inliers[i, j], inliers)
    assert found.n_inliers.max() > 3
    threaded = clone(step).set_params(n_jobs=2).fit(database).verify(queries, ids)
    np.testing.assert_array_equal(threaded.n_inliers, found.n_inliers)
    np.testing.assert_array_equal(threaded.transforms, found.transforms)


def test_a_similarity_transform_is_found():
    query = make_features([40], n_words=10_000)
    matrix = similarity_matrix(1.5, 70, (30, -20))
    database = LocalFeatures.concatenate([make_features([40], random_state=5), query])
    seen = LocalFeatures.concatenate([database, move(query, matrix)])
    found = SpatialVerification(0.01).fit(seen).verify(query, [[0, 1, 2]])
    assert found.n_inliers.tolist() == [[0, 40, 40]]
    np.testing.assert_allclose(found.transforms[0, 1], np.eye(3), atol=1e-4)
    np.testing.assert_allclose(found.transforms[0, 2], matrix, atol=1e-3)


@pytest.mark.parametrize("refine", ["affine", "homography"])
def test_a_fit_to_the_inliers_finds_what_a_similarity_cannot(refine):
    query = make_features([60], n_words=10_000)
    matrix = similarity_matrix(1, 10, (3, 4))
    matrix[0, 1] += 0.25
    if refine == "homography":
        matrix[2] = [1e-3, 5e-4, 1]
    database = move(query, matrix)
    plain = SpatialVerification(0.1).fit(database).verify(query, [[0]])
    refined = SpatialVerification(0.1, refine=refine).fit(database)
    found = refined.verify(query, [[0]], return_inliers=True)
    assert plain.n_inliers[0, 0] < found.n_inliers[0, 0] == len(found.inliers[0, 0])
    exact = SpatialVerification(0.1, refine=refine, max_angle=90).fit(database)
    fitted = exact.verify(query, [[0]])
    assert fitted.n_inliers[0, 0] == 60
    np.testing.assert_allclose(fitted.transforms[0, 0], matrix, atol=1e-2)


@pytest.mark.parametrize("refine", [None, "affine", "homography"])
def test_features_that_determine_nothing(refine):
    same = make_features([30], x=np.full(30, 7.0), y=np.full(30, 7.0))
    one, none = make_features([1]), make_features([0])
    huge = make_features([5], x=np.full(5, 3e38), y=np.full(5, -3e38))
    tiny = make_features([5], scale=np.full(5, 1e-38))
    database = LocalFeatures.concatenate([same, one, none, huge, tiny])
    step = SpatialVerification(refine=refine, max_pairs_per_word=100).fit(database)
    ids = np.tile(np.arange(5), (5, 1))
    n_inliers = step.verify(database, ids).n_inliers
    assert n_inliers[0, 0] > 5
    assert n_inliers[1, 1] == 1
    assert (n_inliers[2] == 0).all()
    only_empty = SpatialVerification(refine=refine).fit(none)
    assert only_empty.verify(none, [[0]]).n_inliers[0, 0] == 0


def test_a_million_equal_words_take_bounded_time():
    n = 10**6
    many = make_features([n], words=np.zeros(n, dtype=int))
    rich = make_features([10**5], n_words=10**5)
    start = time.process_time()
    assert SpatialVerification().fit(many).verify(many, [[0]]).n_inliers == 0
    step = SpatialVerification(max_pairs_per_word=2**31 - 1).fit(many)
    assert step.verify(many, [[0]]).n_inliers == 0  # more matches than are examined
    found = SpatialVerification(refine="homography").fit(rich).verify(rich, [[0]])
    assert found.n_inliers[0, 0] > 1000
    assert time.process_time() - start < 20


coordinate = st.floats(-(2.0**127), 2.0**127, width=32)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            coordinate,
            coordinate,
            st.floats(2.0**-126, 2.0**127, width=32),
            coordinate,
            st.integers(0, 2),
        ),
        max_size=12,
    ),
    st.sampled_from([None, "affine", "homography"]),
)
def test_any_geometry_is_verified(points, refine):
    columns = list(zip(*points, strict=True)) or [()] * 5
    features = LocalFeatures(
        [0, len(points)], *columns[:4], words=np.array(columns[4], dtype=int)
    )
    step = SpatialVerification(refine=refine).fit(features)
    found = step.verify(features, [[0]], return_inliers=True)
    inliers = found.inliers[0, 0]
    assert found.n_inliers[0, 0] == len(inliers) <= len(points)
    for column in inliers.T:
        assert len(np.unique(column)) == len(column)
    np.testing.assert_array_equal(
        features.words[inliers[:, 0]], features.words[inliers[:, 1]]
    )


def test_features_from_read_only_memory(tmp_path):
    features = make_features([30, 30])
    features.save(tmp_path / "features")
    stored = LocalFeatures.load(tmp_path / "features")
    step, again = (SpatialVerification().fit(part) for part in (features, stored))
    ids = [[0, 1], [1, 0]]
    expected = step.verify(features, ids).n_inliers
    np.testing.assert_array_equal(again.verify(stored, ids).n_inliers, expected)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"similarity_weight": 0.5, "size_power": 0},
        {"similarity_weight": 9, "size_power": 1, "min_inliers": 4},
    ],
)
def test_order_is_by_inliers_and_similarity(params):
    features = make_features([40, 10, 60, 0, 25], n_words=30)
    step = SpatialVerification(**params).fit(features, ids=list("abcde"))
    lists = np.array([list("abcde")] * 2)
    scores = np.array([[-0.9, -0.8, -0.7, -0.8, -0.1], [0, 0, 0, 0, 0]])
    queries = features[[2, 1]]
    found, ids = step.rerank(queries, scores, lists)
    n_inliers = step.verify(queries, lists).n_inliers
    for i, n_query in enumerate([60, 10]):
        affinity = (scores[i] + 0.9) / 0.8 if i == 0 else np.zeros(5)
        expected = [
            (n >= step.min_inliers) * n * (n_query / max(n_item, 1)) ** step.size_power
            + step.similarity_weight * a
            for n, n_item, a in zip(
                n_inliers[i], features.points_per_image, affinity, strict=True
            )
        ]
        order = sorted(range(5), key=lambda j: (-expected[j], -scores[i, j]))
        assert ids[i].tolist() == lists[i, order].tolist()
        np.testing.assert_allclose(found[i], np.array(expected)[order])


def test_missing_candidates_stay_behind():
    features = make_features([40] * 3, n_words=1000)
    step = SpatialVerification().fit(features, ids=list("abc"))
    scores, ids = step.rerank(features[2], [[-0.9, -np.inf, -0.95]], [["a", "", "c"]])
    assert ids.tolist() == [["c", "a", ""]]
    assert scores[0, 0] == 40
    assert scores[0, 2] == -np.inf


def test_the_query_itself_sets_no_scale_for_similarities():
    """Check scores if the query is the first result.

    Compared with the query itself, all other items are almost equally similar.
    """
    features = make_features([20] * 8, n_words=60)
    X = sparse.csr_array(np.random.default_rng(0).integers(0, 4, (8, 12)) * 1.0)
    model = CosineSimilarity().fit(X)
    step = SpatialVerification().fit(features)
    with_query = SimilarityIndex(model, rerank=[step]).fit(X)
    scores, ids = with_query.search(X[:1], 7, exclude=[0], features=features[:1])
    without = SimilarityIndex(model, rerank=[step]).fit(X[1:], ids=np.arange(1, 8))
    expected, expected_ids = without.search(X[:1], 7, features=features[:1])
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected)


def test_invalid_verifications_are_named():
    features = make_features([10, 10])
    step = SpatialVerification().fit(features)
    with pytest.raises(ValueError, match=r"without the id 7\. Fit it on all"):
        step.rerank(features, [[1.0], [1.0]], [[7], [1]])
    with pytest.raises(ValueError, match="2 images for 1 lists"):
        step.rerank(features, [[1.0]], [[0]])
    with pytest.raises(ValueError, match="the same shape"):
        step.rerank(features, [[1.0]], [[0], [1]])
    with pytest.raises(ValueError, match="NaN"):
        step.rerank(features, [[1.0], [np.nan]], [[0], [1]])
    with pytest.raises(ValueError, match="LocalFeatures with words"):
        step.rerank(np.ones((1, 3)), [[1.0]], [[0]])
    with pytest.raises(ValueError, match="LocalFeatures with words"):
        SpatialVerification().fit(make_features([3], words=None))
    with pytest.raises(ValueError, match="max_angle"):
        SpatialVerification(max_angle=200).fit(features)
    index = SimilarityIndex(
        CosineSimilarity(), rerank=[SpatialVerification()], store_items=True
    )
    with pytest.raises(ValueError, match="fit SpatialVerification on the LocalF"):
        index.fit(np.eye(3))


# -- neighbours --


@pytest.fixture(scope="module")
def words():
    data = make_visual_words(12, 6, n_words=300, random_state=0)
    return data.data, data.target


def fit_index(X, estimator=None, **params):
    estimator = CosineSimilarity() if estimator is None else estimator
    return SimilarityIndex(estimator, store_items=True, **params).fit(X)


def full_lists(index, X):
    scores, ids = index.set_params(rerank=[]).search(X, k=min(100, index.n_items_))
    return ids, scores


def relative(scores):
    """Return affinities: 1 for the best, 0 for the last of the list."""
    low, high = scores.min(axis=1, keepdims=True), scores.max(axis=1, keepdims=True)
    return (scores - low) / (high - low)


def naive_neighborhood(near, half_sets, affinity):
    members = set(near)
    for j in near:
        if len(set(near) & half_sets[j]) >= 2 / 3 * len(half_sets[j]):
            members |= half_sets[j]
    weights = {j: np.exp(affinity.get(j, 0) - 1) for j in members}
    total = sum(weights.values())
    return {j: weight / total for j, weight in weights.items()}


def test_k_reciprocal_agrees_with_a_naive_version(words):
    X, _ = words
    X, queries = X[10:], X[:10]
    k1, k2, mix, n = 7, 3, 0.2, X.shape[0]
    index = fit_index(X)
    ids, scores = full_lists(index, X)
    affinity = relative(scores)
    near = [set(row[: k1 + 1]) for row in ids]
    half = [set(row[: 1 + round(k1 / 2)]) for row in ids]
    half_sets = [{j for j in half[i] if i in half[j]} for i in range(n)]
    known = [
        dict(zip(i[: 2 * (k1 + 1)], a, strict=False))
        for i, a in zip(ids, affinity, strict=True)
    ]
    vectors = [
        naive_neighborhood([j for j in near[i] if i in near[j]], half_sets, known[i])
        for i in range(n)
    ]
    dense = np.array([[v.get(j, 0) for j in range(n)] for v in vectors])
    means = np.array([dense[row[:k2]].mean(axis=0) for row in ids])
    limit = scores[:, k1]

    query_ids, query_scores = full_lists(index, queries)
    step = KReciprocal(k1, k2, mix).fit(index)
    found_scores, found_ids = step.rerank(queries, query_scores, query_ids)
    for q, (row, s) in enumerate(zip(query_ids, query_scores, strict=True)):
        a = relative(s[None])[0]
        reciprocal = [
            j for j, x in zip(row[: k1 + 1], s, strict=False) if x >= limit[j]
        ]
        own = naive_neighborhood(reciprocal, half_sets, dict(zip(row, a, strict=True)))
        vector = np.array([own.get(j, 0) for j in range(n)])
        vector = vector + dense[row[: k2 - 1]].sum(axis=0)
        vector /= vector.sum()
        jaccard = np.minimum(vector, means).sum(axis=1) / np.maximum(vector, means).sum(
            axis=1
        )
        expected = (1 - mix) * jaccard[row] + mix * a
        order = np.argsort(-expected, kind="stable")
        np.testing.assert_allclose(found_scores[q], expected[order], rtol=1e-5)
        np.testing.assert_array_equal(found_ids[q], row[order])


@pytest.mark.parametrize("size", [4, 12])
def test_the_size_of_groups_is_estimated(size):
    rng = np.random.default_rng(0)
    n_groups = 60 // size
    centers = np.repeat(rng.normal(size=(n_groups, 20)), size, axis=0)
    index = fit_index(
        centers + 0.5 * rng.normal(size=centers.shape), CosineSimilarity(use_idf=False)
    )
    step = KReciprocal().fit(index)
    assert step.k1_ == pytest.approx(1.5 * (size - 1), abs=2)
    assert step.k2_ == max(3, round(step.k1_ / 3))
    given = KReciprocal(step.k1_, step.k2_).fit(index)
    ids, scores = full_lists(index, centers[::size])
    for found, expected in zip(
        step.rerank(None, scores, ids), given.rerank(None, scores, ids), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_the_estimate_agrees_with_a_naive_version(words):
    X, _ = words
    index = fit_index(X)
    rows = index.search(X, k=X.shape[0])[1]
    n = len(rows)
    near = [[j for j in row if j != i] for i, row in enumerate(rows)]
    excess = []
    for k in range(1, n // 3):
        n_mutual = sum(i in near[j][:k] for i in range(n) for j in near[i][:k])
        excess.append(n_mutual / (n * k) - k / (n - 1))
    assert estimate_group_size(rows) == 1 + np.argmax(excess)


@pytest.mark.parametrize("n_items", [1, 2, 3])
def test_neighbourhoods_of_few_items(n_items):
    X = np.eye(3)[:n_items]
    index = fit_index(X, CosineSimilarity(use_idf=False), rerank=[KReciprocal()])
    assert index.search(X, k=n_items)[1][:, 0].tolist() == list(range(n_items))


def test_diffusion_is_the_solution_of_its_equations(words):
    X, _ = words
    X, queries = X[10:], X[:10]
    k, alpha, n = 2, 0.8, X.shape[0]
    index = fit_index(X)
    ids, scores = full_lists(index, X)
    W = np.zeros((n, n))
    for i in range(n):
        W[i, ids[i, : k + 1]] = relative(scores)[i, : k + 1]
    np.fill_diagonal(W, 0)
    W = (W / W.max(axis=1, keepdims=True)) ** 3
    W = np.minimum(W, W.T)
    degree = W.sum(axis=1)
    root = np.divide(1, np.sqrt(degree), out=np.zeros(n), where=degree > 0)
    S = root[:, None] * W * root
    query_ids, query_scores = full_lists(index, queries)
    Y = np.zeros((len(query_ids), n))
    for q, row in enumerate(query_ids):
        Y[q, row[: k + 1]] = relative(query_scores)[q, : k + 1] ** 3
    F = np.linalg.solve(np.eye(n) - alpha * S, Y.T).T
    step = Diffusion(k, alpha).fit(index)
    found_scores, found_ids = step.rerank(queries, query_scores, query_ids)
    reached = np.take_along_axis(F, found_ids, axis=1)
    np.testing.assert_allclose(
        np.where(found_scores > 0, found_scores, 0), reached, atol=1e-5
    )
    assert (np.diff(found_scores, axis=1) <= 0).all()
    assert (found_scores < 0).any()


@pytest.mark.parametrize("kind", ["tf-idf", "dense"])
def test_items_are_averaged_with_their_neighbours(words, kind):
    X, _ = words
    if kind == "dense":
        X = X.toarray()
    X, queries = X[10:], X[:10]
    index = fit_index(X)
    S = index.estimator_.similarity(X)
    np.fill_diagonal(S, -np.inf)
    D = index.estimator_.transform_database(X)
    D = D if kind == "dense" else D.toarray()
    mean = D.copy()
    for i, row in enumerate(np.argsort(-S, axis=1, kind="stable")[:, :3]):
        for j, weight in zip(row, [0.75, 0.5, 0.25], strict=True):
            mean[i] += weight * D[j]
    mean *= (np.linalg.norm(D, axis=1) / np.linalg.norm(mean, axis=1))[:, None]
    Q = index.estimator_.transform(queries)
    expected = np.asarray(Q @ mean.T)
    step = NeighborAveraging(3).fit(index)
    plain, ids = index.search(queries, k=len(S))
    scores, found = step.rerank(queries, plain, ids)
    np.testing.assert_allclose(
        scores, np.take_along_axis(expected, found, axis=1), rtol=1e-5
    )
    assert (np.diff(scores, axis=1) <= 0).all()
    assert step.n_neighbors_ == 3


def test_labels_decide_how_far_items_are_averaged():
    X, y = load_digit_words(return_X_y=True)
    index = fit_index(X[:600])
    step = NeighborAveraging(8).fit(index, y[:600])
    assert step.n_neighbors_ in (4, 8)
    assert step.holdout_gain_ > step.holdout_error_ > 0
    assert step.holdout_results_["candidates"] == [None, (8,), (4,), (2,), (1,)]
    # If neighbours do not share labels, the items are not averaged.
    wrong = np.random.default_rng(0).permutation(y[:600])
    step.fit(index, wrong)
    assert step.n_neighbors_ == 0
    plain = index.search(X[600:620], k=30)
    kept = index.set_params(rerank=[step]).search(X[600:620], k=30)
    np.testing.assert_allclose(plain[0], kept[0], rtol=1e-6)
    with pytest.raises(ValueError, match="600"):
        step.fit(index, y[:599])


def test_averages_follow_the_changes_of_the_index(words):
    X, _ = words
    model = CosineSimilarity().fit(X)
    changed = fit_index(X[:40], model, rerank=[NeighborAveraging()])
    changed.add(X[40:])
    changed.remove(changed.ids_[:10])
    again = fit_index(X[10:], model, rerank=[NeighborAveraging()])
    np.testing.assert_allclose(
        changed.search(X[:5], k=20)[0], again.search(X[:5], k=20)[0], rtol=1e-5
    )


class Shifted(BaseEstimator):
    """Similarity plus a constant, so that only differences have a meaning."""

    def fit(self, X, y=None):
        self.cosine_ = CosineSimilarity().fit(X)
        return self

    def similarity(self, X, Y=None):
        return self.transform(X) @ self.transform_database(X if Y is None else Y).T

    def transform(self, X):
        Q = self.cosine_.transform(X)
        return sparse.hstack([Q, -5 * np.ones((Q.shape[0], 1))], format="csr") * 0.01

    def transform_database(self, X):
        D = self.cosine_.transform_database(X)
        return sparse.hstack([D, np.ones((D.shape[0], 1))], format="csr")


@pytest.mark.parametrize(
    "step", [KReciprocal(), Diffusion(), QueryExpansion(3, exponent=1)], ids=str
)
def test_negative_and_small_scores_change_nothing(words, step):
    X, _ = words
    plain = fit_index(X[10:], rerank=[step]).search(X[:10], k=5)[1]
    shifted = fit_index(X[10:], Shifted(), rerank=[step]).search(X[:10], k=5)[1]
    assert (plain == shifted).mean() > 0.95


@pytest.mark.parametrize("exponent", [0, 2])
@pytest.mark.parametrize("kind", ["tf-idf", "histogram"])
def test_expansion_is_a_mean_of_surrogate_queries(words, exponent, kind):
    X, y = words
    model = CosineSimilarity().fit(X)
    if kind == "histogram":
        model = HistogramRankSVM(tol=0.5, holdout=None, random_state=0).fit(X, y)
    index = fit_index(X, model, rerank=[QueryExpansion(3, exponent=exponent)])
    queries = np.arange(5)
    scores, _ = index.search(X[queries], k=8, exclude=queries)
    S = model.similarity(X[queries], X)
    Q, D = model.transform(X).toarray(), model.transform_database(X).toarray()
    for q in queries:
        others = np.setdiff1d(np.arange(len(y)), q)
        others = others[np.argsort(-S[q, others], kind="stable")]
        best = others[:3]
        weight = relative(S[q, others][None])[0][:3] ** exponent
        mean = (Q[q] + weight @ Q[best]) / (1 + weight.sum())
        expected = mean @ D.T
        expected[q] = -np.inf
        np.testing.assert_allclose(scores[q], -np.sort(-expected)[:8], rtol=1e-6)


def test_expansion_uses_what_was_verified():
    features = make_features([30] * 6, n_words=5000)
    seen = LocalFeatures.concatenate([features, move(features, np.eye(3), noise=1)])
    X = sparse.random_array((12, 40), density=0.5, rng=np.random.default_rng(0))
    X = sparse.csr_array(X)
    verifier = SpatialVerification().fit(seen)
    step = QueryExpansion(2, verifier=verifier)
    index = fit_index(X, CosineSimilarity(use_idf=False), rerank=[step])
    scores, _ = index.search(X[:1], k=12, features=seen[:1])
    Q = index.estimator_.transform(X).toarray()
    expected = (2 * Q[0] + Q[6]) / 3 @ Q.T  # only the query and its duplicate
    np.testing.assert_allclose(scores[0], -np.sort(-expected))


# -- the index --


class Reverse(BaseEstimator):
    """Step that reverses the candidates."""

    def fit(self, database, y=None):
        self.database_ = database
        return self

    def rerank(self, queries, scores, ids):
        return -scores[:, ::-1], ids[:, ::-1]


def test_candidates_come_first_and_the_rest_follows(words):
    X, _ = words
    index = fit_index(X, rerank=[Reverse()], n_candidates=4)
    scores, ids = index.search(X[:3], k=20)
    plain_scores, plain = index.set_params(rerank=None).search(X[:3], k=20)
    np.testing.assert_array_equal(ids[:, :4], plain[:, 3::-1])
    np.testing.assert_array_equal(ids[:, 4:], plain[:, 4:])
    assert (np.diff(scores, axis=1) <= 0).all()
    assert (scores[:, 4] < scores[:, 3]).all()  # even if the scores are sorted again
    np.testing.assert_allclose(np.diff(scores[:, 4:]), np.diff(plain_scores[:, 4:]))
    np.testing.assert_array_equal(
        index.set_params(rerank=[Reverse()]).search(X[:3], k=2)[1], ids[:, :2]
    )


def test_excluded_items_are_not_counted_as_candidates(words):
    X, _ = words
    index = fit_index(X, rerank=[Reverse()], n_candidates=4)
    plain = fit_index(X).search(X[:3], k=8).ids
    ids = index.search(X[:3], k=5, exclude=plain[:, 1:3]).ids
    # Of six candidates, the worst first, two are excluded.
    np.testing.assert_array_equal(ids[:, :4], plain[:, [5, 4, 3, 0]])
    np.testing.assert_array_equal(ids[:, 4], plain[:, 6])


@pytest.mark.parametrize(
    "step",
    [Reverse(), QueryExpansion(), KReciprocal(), Diffusion(), NeighborAveraging()],
    ids=str,
)
def test_filter_and_exclude_hold_after_every_step(words, step):
    X, _ = words
    names = np.array([f"image {i}" for i in range(X.shape[0])])
    allowed = np.arange(X.shape[0]) % 3 > 0
    index = SimilarityIndex(
        CosineSimilarity(), rerank=[step], n_candidates=10, store_items=True
    ).fit(X, ids=names)
    exclude = [[name, "nobody"] for name in names[:20]]
    exclude[3] = names[:30].tolist()
    scores, ids = index.search(X[:20], k=15, filter=allowed, exclude=exclude)
    for row, left_out in zip(ids, exclude, strict=True):
        assert len(set(row)) == 15
        assert not set(row) & set(left_out)
        assert set(row) <= set(names[allowed])
    assert (np.diff(scores, axis=1) <= 0).all()
    few, found = index.search(X[:2], k=9, filter=names[:4])
    assert (found[:, :4] != "").all()
    assert (found[:, 4:] == "").all()
    assert (few[:, 4:] == -np.inf).all()


def test_sets_of_queries_are_reranked(words):
    X, _ = words
    X = X.toarray()
    groups = np.repeat([0, 1], 3)
    index = fit_index(X, MemoryVectorQuery(), rerank=[QueryExpansion(), KReciprocal()])
    _, ids = index.search(X[:6], k=5, groups=groups)
    assert ids.shape == (2, 5)
    verifier = SpatialVerification().fit(make_features([5] * len(X)))
    index.set_params(rerank=[verifier])
    with pytest.raises(ValueError, match="6 images for 2 lists"):
        index.search(X[:6], groups=groups, features=make_features([5] * 6))


def test_steps_follow_the_items(words):
    X, _ = words
    steps = [QueryExpansion(), KReciprocal()]
    index = fit_index(X[:40], rerank=steps, n_candidates=30)
    index.add(X[40:]).remove([0, 50, 51])
    fresh = SimilarityIndex(
        index.estimator_, rerank=steps, n_candidates=30, store_items=True
    )
    rows = np.setdiff1d(np.arange(X.shape[0]), [0, 50, 51])
    fresh.fit(X[rows], ids=rows)
    for compact in (False, True):
        if compact:
            index.compact()
        for found, expected in zip(
            index.search(X[:9], k=30), fresh.search(X[:9], k=30), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert not hasattr(steps[1], "n_items_")


def test_copies_of_an_index_with_steps(words, tmp_path):
    X, _ = words
    features = make_features([8] * X.shape[0])
    verifier = SpatialVerification().fit(features)
    index = fit_index(X, rerank=[verifier, KReciprocal()])
    expected = index.search(X[:4], features=features[:4])[1]
    again = pickle.loads(pickle.dumps(index))
    np.testing.assert_array_equal(
        again.search(X[:4], features=features[:4])[1], expected
    )
    with pytest.raises(
        ValueError, match="fit SpatialVerification on the LocalFeatures"
    ):
        clone(index).fit(X)
    frozen = fit_index(X, rerank=[FrozenEstimator(verifier), KReciprocal()])
    found = clone(frozen).fit(X).search(X[:4], features=features[:4])[1]
    np.testing.assert_array_equal(found, expected)

    index.save(tmp_path / "index", include_estimator=False)
    loaded = SimilarityIndex.load(tmp_path / "index", estimator=index.estimator_)
    with pytest.raises(ValueError, match=r"\(SpatialVerification, KReciprocal\)\. Set"):
        loaded.search(X[:4])
    assert loaded.set_params(rerank=[]).search(X[:4])[1].shape == (4, 10)
    loaded.set_params(rerank=[verifier, KReciprocal()])
    found = loaded.search(X[:4], features=features[:4])[1]
    np.testing.assert_array_equal(found, expected)


class WordCounts(TransformerMixin, BaseEstimator):
    """Transformer that counts the words of local features."""

    def fit(self, X, y=None):
        self.n_words_ = 1 + X.words.max()
        return self

    def transform(self, X):
        counts = (np.ones(X.n_points), (X.image_of_point, X.words))
        return sparse.coo_array(counts, shape=(len(X), self.n_words_)).tocsr()


def test_an_index_of_local_features_verifies_by_itself():
    features = make_features([30] * 20, n_words=100)
    seen = LocalFeatures.concatenate([features, move(features, np.eye(3), noise=1)])
    index = SimilarityIndex(
        make_pipeline(WordCounts(), CosineSimilarity()),
        rerank=[SpatialVerification(), KReciprocal(2, 2)],
        store_items=True,
    ).fit(seen[:30])
    index.add(seen[30:])
    _, ids = index.search(features, k=1, exclude=np.arange(20))
    np.testing.assert_array_equal(ids[:, 0], 20 + np.arange(20))


def test_steps_that_need_stored_items_raise(words):
    X, _ = words
    for step in (QueryExpansion(), KReciprocal(), Diffusion(), NeighborAveraging()):
        with pytest.raises(ValueError, match="store_items=True"):
            SimilarityIndex(CosineSimilarity(), rerank=[step]).fit(X)
        with pytest.raises(TypeError, match="must be fitted on a SimilarityIndex"):
            clone(step).fit(X)
    with pytest.raises(TypeError, match="must have fit and rerank"):
        fit_index(X, rerank=[CosineSimilarity()])
    index = fit_index(X, rerank=[SpatialVerification().fit(make_features([5] * 72))])
    with pytest.raises(ValueError, match="one image per query; got 2 for 3"):
        index.search(X[:3], features=make_features([5, 5]))
    with pytest.raises(ValueError, match="as `features`"):
        index.search(X[:3])
    few = SpatialVerification().fit(make_features([5] * 3))
    with pytest.raises(ValueError, match="Fit it on all items"):
        fit_index(X, rerank=[few, KReciprocal()])


@pytest.mark.parametrize(
    "step", [QueryExpansion(), KReciprocal(), Diffusion(), NeighborAveraging()], ids=str
)
def test_no_items_no_queries_and_no_candidates(words, step):
    X, _ = words
    index = fit_index(X, rerank=[step])
    with pytest.raises(ValueError, match="0 sample"):
        index.search(X[:0])
    fitted = clone(step).fit(index)
    scores, ids = fitted.rerank(X[:2], np.zeros((2, 0)), np.zeros((2, 0), dtype=int))
    assert scores.shape == ids.shape == (2, 0)
    index.remove(index.ids_)
    assert (index.search(X[:2], k=3).ids == -1).all()
    if not isinstance(step, QueryExpansion):
        with pytest.raises(ValueError, match="without items has no graph"):
            clone(step).fit(index)


@pytest.mark.parametrize("step", [QueryExpansion(), NeighborAveraging()], ids=str)
def test_one_query_per_list(words, step):
    X, _ = words
    fitted = clone(step).fit(fit_index(X))
    with pytest.raises(ValueError, match="got 2 queries for 1 lists"):
        fitted.rerank(X[:2], [[1.0, 0.5]], [[0, 1]])


def test_every_step_helps_on_digits():
    X, y = load_digit_words(return_X_y=True)
    X, y, queries, truth = X[200:1200], y[200:1200], X[:100], y[:100, None]
    index = fit_index(X)
    plain = (y[index.search(queries, k=20)[1]] == truth).mean()
    steps = [QueryExpansion(5), KReciprocal(20, 6), Diffusion(20), NeighborAveraging()]
    for step in steps:
        ids = index.set_params(rerank=[step]).search(queries, k=20)[1]
        assert (y[ids] == truth).mean() > plain + 0.03
