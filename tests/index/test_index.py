"""SimilarityIndex, compared with the full similarity and a stable sort."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sample_data import polars_frame
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import DBSCAN, SpectralClustering
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.manifold import TSNE
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer, Normalizer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    HistogramRankSVM,
    MemoryVectorQuery,
    SparseMahalanobisLearner,
)
from sklearn_simlearn.index import SimilarityIndex, _folder
from sklearn_simlearn.metrics import map_scorer
from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
    SelectiveMatchKernel,
)

LEARNERS = [
    CosineSimilarity(),
    NegativeEvidenceSimilarity(),
    BurstinessSimilarity(),
    AsymmetricSimilarity(),
    AsymmetricSimilarity(p=2, lam=3.0),
    OASIS(n_triplets=200, random_state=0),
    MemoryVectorQuery(),
    MemoryVectorQuery(CosineSimilarity()),
    AngularBilinearRanker(n_references=15, random_state=0),
    HistogramRankSVM(random_state=0),
    SparseMahalanobisLearner(n_random_triplets=200, max_iter=5, random_state=0),
]

# Backends with options under which they compare all items.
EXHAUSTIVE = {
    "inverted": {},
    "dense": {},
    "faiss": {"factory": "Flat"},
    "usearch": {"exact": True},
}

pytestmark = [
    pytest.mark.filterwarnings("ignore:No weights are better than 0"),
    pytest.mark.filterwarnings("ignore:The objective still falls"),
]

each_learner = pytest.mark.parametrize("learner", LEARNERS, ids=repr)
each_kind = pytest.mark.parametrize("kind", ["dense", "sparse"])


def as_kind(X, kind):
    return X.toarray() if kind == "dense" else X


def assert_best(found, similarity, ids, k, order=None):
    """Assert that the results are a stable sort of the similarity, up to rounding.

    Parameters
    ----------
    found : tuple (scores, ids)
    similarity : ndarray of shape (n_queries, n_items)
        Similarities; -inf for items that must not be found.
    ids : ndarray of shape (n_items,)
    order : ndarray, default=None
        Ids in the order of the index, if it differs from `ids`.
    """
    scores, found_ids = found
    assert scores.shape == found_ids.shape == (len(similarity), k)
    best = -np.sort(-similarity, axis=1)[:, :k]
    n_best = best.shape[1]
    eps = np.finfo(scores.dtype).eps
    size = np.abs(similarity[np.isfinite(similarity)]).max(initial=1)
    rounding = 200 * eps * size
    assert_allclose(scores[:, :n_best], best, rtol=0, atol=rounding)
    assert np.isneginf(scores[:, n_best:]).all()

    place = {id_: i for i, id_ in enumerate(ids.tolist())}
    for q, row in enumerate(found_ids.tolist()):
        real = [
            id_ for id_, score in zip(row, scores[q], strict=True) if score > -np.inf
        ]
        assert len(set(real)) == len(real)
        rows = np.array([place[id_] for id_ in real], dtype=int)
        # The score of each id is correct, so the order differs from that of the stable
        # sort only by rounding.
        assert_allclose(
            similarity[q, rows], scores[q, : len(rows)], rtol=0, atol=rounding
        )
        tied = np.flatnonzero(np.diff(scores[q, : len(rows)]) == 0)
        turn = {
            id_: i for i, id_ in enumerate((ids if order is None else order).tolist())
        }
        assert all(turn[real[i]] < turn[real[i + 1]] for i in tied)


# -- the contract --


@parametrize_with_checks(
    [
        SimilarityIndex(CosineSimilarity(use_idf=False)),
        SimilarityIndex(Normalizer(), store_items=True),
        SimilarityIndex(make_pipeline(PCA(1), Normalizer()), n_neighbors=2),
    ]
)
def test_sklearn_contract(estimator, check):
    check(estimator)


@each_learner
@each_kind
@pytest.mark.parametrize("backend", ["auto", "inverted", "dense"])
def test_index_ranks_as_the_similarity(learner, kind, backend, counts, tmp_path):
    X, y = as_kind(counts[0], kind), counts[1]
    names = np.array([f"item {i}" for i in range(66)])
    learner = clone(learner).fit(X, y)
    full = learner.similarity(X[:9], X)

    def check(index, rows, k=7, **options):
        expected = np.where(np.isin(np.arange(66), rows), full, -np.inf)
        found = index.search(X[:9], k, **options)
        assert_best(found, expected, names, k, order=index.ids_)

    first, last = np.arange(40), np.arange(40, 66)
    index = SimilarityIndex(learner, backend=backend, store_items=True)
    index.fit(X[:40], ids=names[:40])
    check(index, first)
    check(index, first, k=50)
    index.add(X[40:], ids=names[40:])
    everything = np.arange(66)
    check(index, everything)
    gone = np.arange(0, 66, 5)
    left = np.setdiff1d(everything, gone)
    index.remove(names[gone])
    check(index, left)

    some = np.arange(66) % 3 == 0
    check(index, left[some[left]], filter=some[left])
    check(index, np.intersect1d(left, last), filter=list(names[last]))
    expected = np.where(np.isin(everything, left), full, -np.inf)
    expected[np.arange(9), np.arange(9)] = -np.inf
    assert_best(index.search(X[:9], 7, exclude=names[:9]), expected, names, 7)

    index.save(tmp_path, include_estimator=False)
    for mmap in (True, False):
        opened = SimilarityIndex.load(tmp_path, mmap=mmap, estimator=learner)
        check(opened, left)
        opened.compact()
        check(opened, left)
        opened.add(X[gone], ids=names[gone])
        check(opened, everything)
    index.compact()
    check(index, left)
    check(pickle.loads(pickle.dumps(index)), left)
    check(index, left[some[left]], filter=some[left])


@pytest.mark.parametrize("backend", ["faiss", "usearch"])
@pytest.mark.parametrize("learner", [LEARNERS[0], LEARNERS[5], LEARNERS[7]], ids=repr)
def test_other_backends_rank_as_the_similarity_if_exhaustive(
    backend, learner, counts, tmp_path
):
    pytest.importorskip(backend)
    X, y = counts[0].toarray().astype(np.float32), counts[1]
    learner = clone(learner).fit(X, y)
    index = SimilarityIndex(
        learner, backend=backend, backend_options=EXHAUSTIVE[backend]
    )
    index.fit(X[:50]).add(X[50:])
    full = learner.similarity(X[:9], X)
    ids = np.arange(66)
    assert_best(index.search(X[:9], 7), full, ids, 7)
    index.remove([2, 3, 60])
    full[:, [2, 3, 60]] = -np.inf
    assert_best(index.search(X[:9], 7), full, ids, 7)
    index.save(tmp_path, include_estimator=False)
    with pytest.raises(ValueError, match=f"The package {backend} does not check"):
        SimilarityIndex.load(tmp_path, estimator=learner)
    opened = SimilarityIndex.load(tmp_path, estimator=learner, trusted=())
    assert_best(opened.search(X[:9], 7), full, ids, 7)
    thawed = pickle.loads(pickle.dumps(opened.compact()))
    assert_best(thawed.search(X[:9], 7), full, ids, 7)


def test_search_options_change_without_a_new_index(rng):
    pytest.importorskip("faiss")
    X = rng.standard_normal((400, 8)).astype(np.float32)
    index = SimilarityIndex(
        Normalizer(),
        backend="faiss",
        backend_options={"factory": "IVF8,Flat", "nprobe": 1},
    ).fit(X)
    n_found = np.isfinite(index.search(X[:5], 400)[0]).sum(axis=1)
    assert (n_found < 400).all()
    with pytest.raises(ValueError, match="found fewer than 399 neighbours"):
        index.set_params(n_neighbors=399).kneighbors(X[:5])
    index.set_search_options(nprobe=8)
    assert np.isfinite(index.search(X[:5], 400)[0]).all()
    assert index.backend_options == {"factory": "IVF8,Flat", "nprobe": 1}
    with pytest.raises(ValueError, match="'efSearch', 'nprobe'"):
        index.set_search_options(factory="Flat")


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_index_after_any_changes(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed"))
    # Few distinct values, so that there are ties.
    pool = rng.integers(-1, 2, size=(60, 8)).astype(np.float64)
    kind = data.draw(st.sampled_from(["dense", "sparse"]))
    learner = MemoryVectorQuery(method="sum", normalize=False)
    X = sparse.csr_array(pool) if kind == "sparse" else pool
    learner.fit(X)
    backend = data.draw(st.sampled_from(["auto", "inverted", "dense"]))
    index = SimilarityIndex(learner, backend=backend).fit(X[:20])
    order, free = list(range(20)), list(range(20, 60))
    for _ in range(data.draw(st.integers(0, 6))):
        change = data.draw(st.sampled_from(["add", "remove", "compact", "pickle"]))
        if change == "add" and free:
            new = [free.pop() for _ in range(min(3, len(free)))]
            index.add(X[new], ids=new)
            order += new
        elif change == "remove" and order:
            gone = rng.choice(order, size=min(4, len(order)), replace=False)
            index.remove(gone)
            order = [i for i in order if i not in gone]
        elif change == "compact":
            index.compact()
        elif change == "pickle":
            index = pickle.loads(pickle.dumps(index))
    assert_array_equal(index.ids_, order)
    k = data.draw(st.integers(1, 30))
    scores, ids = index.search(X[:6], k)
    S = pool[:6] @ pool[order].T if order else np.empty((6, 0))
    best = np.argsort(-S, axis=1, kind="stable")[:, :k]
    # The products are small integers, so there is no rounding.
    n_best = best.shape[1]
    assert_array_equal(ids[:, :n_best], np.array(order, dtype=int)[best])
    assert_array_equal(scores[:, :n_best], np.take_along_axis(S, best, axis=1))
    assert (ids[:, n_best:] == -1).all()


# -- estimators --


def test_fitted_estimators_are_not_fitted_again(counts):
    X, y = counts
    learner = OASIS(holdout=None, n_triplets=200, random_state=0)
    index = SimilarityIndex(learner)
    with pytest.raises(ValueError, match="y"):
        index.fit(X)
    index.fit(X, y)
    assert not hasattr(learner, "W_")
    assert hasattr(index.estimator_, "W_")
    fitted = clone(learner).fit(X, y)
    state = pickle.dumps(fitted)
    index = SimilarityIndex(fitted).fit(X[:30])
    assert index.estimator_ is fitted
    assert pickle.dumps(fitted) == state


@each_kind
def test_pipelines_and_searches(kind, counts):
    X, y = as_kind(counts[0], kind), counts[1]
    model = make_pipeline(Binarizer(), CosineSimilarity())
    search = GridSearchCV(
        model,
        {"binarizer__threshold": [0, 1]},
        scoring=map_scorer,
        cv=StratifiedKFold(2),
    ).fit(X[:60], y[:60])
    for estimator in (search, search.best_estimator_, FrozenEstimator(search)):
        index = SimilarityIndex(estimator).fit(X)
        binary = search.best_estimator_[0].transform(X)
        full = search.best_estimator_[-1].similarity(binary)
        assert_best(index.search(X), full, index.ids_, 10)


def test_transformer_is_compared_by_the_cosine_of_its_output(blobs):
    X, _ = blobs
    scaler = StandardScaler().fit(X)
    scores, ids = SimilarityIndex(scaler).fit(X).search(X[:5], 5)
    Z = scaler.transform(X)
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    assert_best((scores, ids), Z[:5] @ Z.T, np.arange(len(X)), 5)


def test_texts(tmp_path):
    texts = ["red wine", "white wine", "red car", "blue sky"]
    index = SimilarityIndex(TfidfVectorizer(), store_items=True).fit(texts, ids=texts)
    assert index.search(["a sky"], 1)[1].tolist() == [["blue sky"]]
    index.save(tmp_path)
    opened = SimilarityIndex.load(tmp_path, trusted=())
    assert_array_equal(
        opened.search(["red wine"], 3)[1], index.search(["red wine"], 3)[1]
    )
    assert_array_equal(
        opened.kneighbors(n_neighbors=2)[1], index.kneighbors(None, 2)[1]
    )


def test_frames_keep_feature_names(blobs):
    X = pd.DataFrame(blobs[0], columns=list("abcde"))
    index = SimilarityIndex(StandardScaler()).fit(X)
    assert index.feature_names_in_.tolist() == list("abcde")
    assert index.search(X[:3], 1)[1].ravel().tolist() == [0, 1, 2]


@each_kind
def test_groups_search_as_one(kind, counts):
    X, _ = as_kind(counts[0], kind), counts[1]
    groups = np.arange(20) % 4
    model = make_pipeline(Binarizer(), MemoryVectorQuery()).fit(X)
    index = SimilarityIndex(model).fit(X)
    full = model[-1].similarity(
        Binarizer().transform(X[:20]), Binarizer().transform(X), groups=groups
    )
    for working_memory in (1024, 1e-3):
        with sklearn.config_context(working_memory=working_memory):
            found = index.search(X[:20], 6, groups=groups)
            assert_best(found, full, np.arange(66), 6)
    # The queries of each set are excluded from its results.
    members = [np.flatnonzero(groups == group) for group in range(4)]
    for group, rows in enumerate(members):
        full[group, rows] = -np.inf
    found = index.search(X[:20], 6, groups=groups, exclude=members)
    assert_best(found, full, np.arange(66), 6)
    with pytest.raises(ValueError, match="same number of samples"):
        index.search(X, groups=groups)
    with pytest.raises(ValueError, match="MemoryVectorQuery"):
        SimilarityIndex(CosineSimilarity()).fit(X).search(X[:20], groups=groups)


def test_similarity_without_vectors_is_refused(rng):
    X = rng.standard_normal((5, 8))
    with pytest.raises(TypeError, match="not an inner-product"):
        SimilarityIndex(SelectiveMatchKernel(n_dims=2)).fit(X)


# -- search --


@each_kind
def test_items_without_a_common_word_rank_by_their_score(kind):
    # Zero is better than a negative score, and ties are ordered by row.
    X = sparse.csr_array([[-1.0, 0, 0], [0, 1.0, 0], [1.0, 0, 0], [0, 0, 0]])
    X = as_kind(X, kind)
    index = SimilarityIndex(MemoryVectorQuery(method="sum", normalize=False)).fit(X)
    scores, ids = index.search(X[[2]], 4)
    assert_array_equal(ids, [[2, 1, 3, 0]])
    assert_array_equal(scores, [[1, 0, 0, -1]])


@each_kind
def test_search_does_not_depend_on_threads_and_working_memory(kind, counts):
    X = as_kind(counts[0], kind)
    index = SimilarityIndex(CosineSimilarity()).fit(X)
    scores, ids = index.search(X, 6, exclude=index.ids_)
    assert (ids != index.ids_[:, None]).all()
    for n_jobs in (2, -1):
        index.n_jobs = n_jobs
        again = index.search(X, 6, exclude=index.ids_)
        assert_array_equal(again[0], scores)
        assert_array_equal(again[1], ids)
    with sklearn.config_context(working_memory=0.01):
        again = index.search(X, 6, exclude=index.ids_)
        # BLAS may sum in another order for another number of queries.
        assert_allclose(again[0], scores, rtol=1e-12)
        assert_array_equal(again[1], ids)


def test_too_few_items_are_marked(counts):
    X = counts[0]
    for ids, nothing in [(None, -1), ([f"{i}" for i in range(66)], "")]:
        index = SimilarityIndex(CosineSimilarity()).fit(X, ids=ids)
        few = index.ids_[[3, 4]]
        scores, found = index.search(X[:2], 5, filter=few, exclude=[few[:1], []])
        assert_array_equal(np.isfinite(scores).sum(axis=1), [1, 2])
        assert (found[~np.isfinite(scores)] == nothing).all()
        assert_array_equal(np.sort(found[1, :2]), few)


METADATA = {
    "dicts": lambda year: [{"year": int(y), "tags": ["x"]} for y in year],
    "pandas": lambda year: pd.DataFrame(
        {"year": year, "name": [f"n{y}" for y in year]}
    ),
    "polars": lambda year: polars_frame(
        {"year": year, "name": [f"n{y}" for y in year]}
    ),
    "structured": lambda year: np.array(
        [(y, f"n{y}") for y in year], dtype=[("year", int), ("name", "U8")]
    ),
}


@pytest.mark.parametrize("kind", METADATA)
def test_filter_by_metadata(kind, counts, tmp_path):
    X, year = counts[0], np.arange(66) % 7
    make = METADATA[kind]
    index = SimilarityIndex(CosineSimilarity())
    index.fit(X[:40], ids=np.arange(40) + 100, metadata=make(year[:40]))
    index.add(X[40:], ids=np.arange(40, 66) + 100, metadata=make(year[40:]))
    index.remove([103, 110])
    index.save(tmp_path, include_estimator=False)
    opened = SimilarityIndex.load(tmp_path, estimator=index.estimator_)
    thawed = pickle.loads(pickle.dumps(opened))
    for each in (index, opened, thawed, index.compact()):
        _, ids = each.search(X[:4], 7, filter=lambda row: row["year"] == 3)
        assert_array_equal(np.sort(ids[0]), np.flatnonzero(year == 3)[2:] + 100)
        years = np.delete(year, [3, 10])
        metadata = each.metadata_
        if kind == "dicts":
            assert [row["year"] for row in metadata] == years.tolist()
            assert metadata[0]["tags"] == ["x"]
        else:
            assert type(metadata) is type(make(year))
            assert_array_equal(metadata["year"], years)
            assert list(metadata["name"]) == [f"n{y}" for y in years]
    with pytest.raises(ValueError, match="metadata"):
        index.add(X[:2], ids=[1, 2])
    with pytest.raises(ValueError, match="boolean mask"):
        index.search(X[:4], filter=lambda row: "everything")


# -- neighbours --


@each_kind
def test_neighbors_are_those_of_scikit_learn(kind, counts):
    X = as_kind(counts[0], kind)
    index = SimilarityIndex(
        CosineSimilarity(use_idf=False), n_neighbors=4, store_items=True
    ).fit(X)
    neighbors = NearestNeighbors(n_neighbors=4, metric="cosine").fit(X)
    for Z in (X[:9], None):
        distances, indices = index.kneighbors(Z)
        expected = neighbors.kneighbors(Z)
        assert_allclose(distances, expected[0], atol=1e-12)
        assert indices.shape == expected[1].shape
        assert_array_equal(indices[:, 0], index.kneighbors(Z, 1, False)[:, 0])
        for mode in ("connectivity", "distance"):
            graph = index.kneighbors_graph(Z, mode=mode)
            other = neighbors.kneighbors_graph(Z, mode=mode)
            assert type(graph) is type(other)
            assert graph.shape == other.shape
            assert_array_equal(graph.indptr, other.indptr)
            assert_allclose(graph.data, other.data, atol=1e-12)
        for radius in (0.0, 0.3, 0.7, 3.0):
            found = index.radius_neighbors(Z, radius + 1e-9)
            expected = neighbors.radius_neighbors(Z, radius + 1e-9, sort_results=True)
            for i in range(len(found[0])):
                assert_allclose(found[0][i], expected[0][i], atol=1e-12)
                assert set(found[1][i]) == set(expected[1][i])
            graph = index.radius_neighbors_graph(Z, radius + 1e-9, mode="distance")
            assert graph.nnz == sum(map(len, expected[1]))


def test_neighbors_are_numbered_without_removed_items(counts):
    X = counts[0]
    index = SimilarityIndex(CosineSimilarity(), store_items=True).fit(X)
    index.remove(np.arange(0, 60, 2))
    graph = index.kneighbors_graph(X)
    assert graph.shape == (66, 36)
    assert_array_equal(index.compact().kneighbors_graph(X).toarray(), graph.toarray())
    own = index.kneighbors(n_neighbors=3, return_distance=False)
    assert (own != np.arange(36)[:, None]).all()


def test_similarities_without_a_distance_are_refused(counts):
    X, y = counts
    index = SimilarityIndex(BurstinessSimilarity()).fit(X)
    for method in (index.kneighbors, index.kneighbors_graph, index.radius_neighbors):
        with pytest.raises(ValueError, match=r"not a distance.*queries.*unit length"):
            method(X)
    index = SimilarityIndex(OASIS(holdout=None, n_triplets=100, random_state=0)).fit(
        X, y
    )
    with pytest.raises(ValueError, match=r"not a distance.*items.*unit length"):
        index.transform(X)
    index = SimilarityIndex(CosineSimilarity()).fit(X)
    with pytest.raises(ValueError, match="store_items=True"):
        index.kneighbors()
    with pytest.raises(ValueError, match="number of items, 66"):
        index.kneighbors(X, 67)
    with pytest.raises(ValueError, match="mode"):
        index.kneighbors_graph(X, mode="cosine")
    with pytest.raises(ValueError, match="radius"):
        index.radius_neighbors(X, -1)


@pytest.fixture
def clusters():
    """Return vectors around three directions."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 30)
    return np.eye(3)[y] + 0.1 * rng.standard_normal((90, 3)), y


def test_graph_serves_estimators_of_scikit_learn(clusters):
    X, y = clusters

    def index(n_neighbors):
        return SimilarityIndex(CosineSimilarity(use_idf=False), n_neighbors=n_neighbors)

    classifier = make_pipeline(
        index(5), KNeighborsClassifier(n_neighbors=5, metric="precomputed")
    )
    assert classifier.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) == 1
    same = KNeighborsClassifier(n_neighbors=5, metric="cosine").fit(X[::2], y[::2])
    assert_array_equal(classifier.predict(X[1::2]), same.predict(X[1::2]))

    spectral = SpectralClustering(
        3, affinity="precomputed_nearest_neighbors", n_neighbors=29, random_state=0
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Graph is not fully connected")
        labels = make_pipeline(index(29), spectral).fit_predict(X)
    assert len(set(zip(labels, y, strict=True))) == 3

    graph = index(5).fit(X).radius_neighbors_graph(X, 0.05, mode="distance")
    dbscan = DBSCAN(eps=0.05, min_samples=5)
    expected = clone(dbscan).set_params(metric="cosine").fit_predict(X)
    dbscan.set_params(metric="precomputed")
    assert_array_equal(dbscan.fit_predict(graph), expected)
    # The 29 nearest items are enough for the same clusters.
    assert_array_equal(make_pipeline(index(29), dbscan).fit_predict(X), expected)

    tsne = TSNE(metric="precomputed", init="random", perplexity=5, random_state=0)
    embedding = make_pipeline(index(16), tsne).fit_transform(X)
    nearest = KNeighborsClassifier(1).fit(embedding[::2], y[::2])
    assert nearest.score(embedding[1::2], y[1::2]) == 1


# -- another estimator --


def test_set_estimator_keeps_items_that_stay_the_same(counts):
    X, y = counts
    for store_items in (False, True):
        old = OASIS(holdout=None, n_triplets=100, random_state=0).fit(X, y)
        new = OASIS(holdout=None, n_triplets=500, random_state=1).fit(X, y)
        index = SimilarityIndex(old, store_items=store_items).fit(X).remove([3])
        items = index._state.items
        assert index.set_estimator(new) is index
        assert index._state.items is items
        assert index.estimator_ is new
        assert index.estimator is old
        full = new.similarity(X)
        full[:, 3] = -np.inf
        assert_best(index.search(X, 5), full, np.arange(66), 5)


@each_kind
def test_set_estimator_encodes_items_that_change(kind, counts):
    X = as_kind(counts[0], kind)
    old, new = CosineSimilarity().fit(X), CosineSimilarity().fit(X[:20])
    index = SimilarityIndex(old, store_items=True).fit(X[:60]).add(X[60:]).remove([3])
    items = index._state.items
    assert index.set_estimator(new) is index
    assert index._state.items is not items
    full = new.similarity(X)
    full[:, 3] = -np.inf
    assert_best(index.search(X, 5), full, np.arange(66), 5)

    index = SimilarityIndex(old).fit(X)
    before = index.search(X, 5)
    with pytest.raises(ValueError, match="store_items=True"):
        index.set_estimator(new)
    assert_array_equal(index.search(X, 5)[1], before[1])
    assert index.estimator_ is old
    with pytest.raises(NotFittedError):
        index.set_estimator(CosineSimilarity())


# -- bad input --


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.arange(65), "65 ids for 66 items"),
        (np.zeros(66, int), "unique; repeated: 0"),
        ([*map(str, range(65)), "a\0"], "null characters; got 'a"),
        (["a", 1] * 33, "integers only, or strings only"),
        (np.arange(66.0), "integers only, or strings only"),
        (np.arange(66) > 3, "integers only, or strings only"),
        (np.arange(132).reshape(66, 2), "integers only, or strings only"),
        ([None] * 66, "integers only, or strings only"),
        (np.arange(66, dtype=np.uint64) + 2**63, "64-bit"),
    ],
)
def test_bad_ids(ids, message, counts):
    with pytest.raises(ValueError, match=message):
        SimilarityIndex(CosineSimilarity()).fit(counts[0], ids=ids)


def test_the_index_of_a_frame_as_ids(counts):
    X = counts[0]
    frame = pd.DataFrame(X.toarray() if sparse.issparse(X) else X).rename(columns=str)
    frame.index = [f"row {i}" for i in range(66)]
    index = SimilarityIndex(CosineSimilarity()).fit(frame[:50], ids="index")
    index.add(frame[50:60], ids="index").upsert(frame[55:], ids="index")
    assert set(index.ids_) == set(frame.index)
    # If the items are not a frame, the ids are the index of the metadata.
    metadata = pd.DataFrame({"a": range(66)}, index=range(100, 166))
    index = SimilarityIndex(CosineSimilarity())
    assert index.fit(X, ids="index", metadata=metadata).ids_.tolist() == list(
        metadata.index
    )
    assert index.fit(frame, ids="index", metadata=metadata).ids_[0] == "row 0"
    with pytest.raises(ValueError, match="integers only, or strings only"):
        index.fit(frame.set_index(frame.index.map(lambda name: (name, 1))), ids="index")
    for ids, message in [("index", "requires a pandas frame"), ("a", "got 'a'")]:
        with pytest.raises(ValueError, match=message):
            index.fit(X.tolist() if isinstance(X, np.ndarray) else X, ids=ids)


def test_bad_arguments_leave_the_index_usable(counts):
    X = counts[0]
    index = SimilarityIndex(CosineSimilarity())
    with pytest.raises(NotFittedError):
        index.search(X)
    assert not hasattr(index, "ids_")
    index.fit(X, ids=[f"{i}" for i in range(66)])
    before = index.search(X)
    for call, message in [
        (lambda: index.search(X, 0), "k must be an integer"),
        (lambda: index.search(X, 2.5), "k must be an integer"),
        (lambda: index.search(X[:, :5]), "features"),
        (lambda: index.search(X, filter=np.ones(65, bool)), "each of the 66 items"),
        (lambda: index.search(X, filter=[1, 2]), "are strings"),
        (lambda: index.search(X, filter=len), "requires metadata"),
        (lambda: index.search(X, exclude=["1"]), "got 1 for 66"),
        (lambda: index.add(X[:2]), "Pass ids for new items"),
        (lambda: index.add(X[:2], ids=["1", "x"]), "'1'"),
        (lambda: index.add(X[:2, :5], ids=["x", "y"]), "features"),
        (lambda: index.add(X[:1], ids=["x"], metadata=[{}]), "without metadata"),
        (lambda: index.remove(["x"]), "no items with the ids"),
        (lambda: index.fit(X, metadata=[{}]), "one row per item"),
        (lambda: index.fit(X, metadata=[1] * 66), "one dict per item"),
        (lambda: index.fit(X, metadata=X), "list of dicts"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
        assert_array_equal(index.search(X)[1], before[1])
    with pytest.raises(ValueError, match="'backend' parameter"):
        SimilarityIndex(CosineSimilarity(), backend="kd_tree").fit(X)


def test_unknown_ids_to_exclude_are_ignored(counts):
    X = counts[0]
    index = SimilarityIndex(CosineSimilarity()).fit(X)
    assert_array_equal(
        index.search(X, exclude=np.full(66, 1000))[1], index.search(X)[1]
    )
    assert_array_equal(index.search(X[:1], 2, filter=[5, 1000])[1], [[5, -1]])


def test_removing_everything(counts):
    X = counts[0]
    index = SimilarityIndex(CosineSimilarity()).fit(X)
    index.remove(index.ids_)
    assert np.isneginf(index.search(X)[0]).all()
    index.compact()
    assert np.isneginf(index.search(X)[0]).all()
    index.add(X[:3])
    assert index.search(X[:1], 1)[1] > -1


def test_index_does_not_change_the_data_of_the_caller(counts):
    X = counts[0].toarray()
    index = SimilarityIndex(CosineSimilarity(), store_items=True).fit(X)
    before = index.search(X)[1], index.kneighbors()[1]
    X[:] = 1
    assert_array_equal(index.kneighbors()[1], before[1])
    X = counts[0].toarray()
    X.flags.writeable = False
    assert_array_equal(index.search(X)[1], before[0])


@pytest.mark.parametrize("kind", ["dense", "sparse", "frame"])
def test_later_changes_of_the_items_do_not_reach_the_index(kind, counts):
    # OASIS stores the original items.
    X, y = counts[0].toarray(), counts[1]
    Q, oasis = X[:3].copy(), OASIS(holdout=None, n_triplets=100, random_state=0)
    given = {"dense": X, "sparse": counts[0].copy(), "frame": pd.DataFrame(X)}[kind]
    index = SimilarityIndex(oasis.fit(X, y)).fit(given)
    before = index.search(Q)
    if kind == "frame":
        given.iloc[:, :] = 1
    (given.data if kind == "sparse" else X)[:] = 1
    assert_array_equal(index.search(Q), before)


# -- numbers as ids --


@pytest.mark.parametrize("way", ["memory", "pickle", "folder", "encoded"])
def test_numbers_of_removed_items_are_not_given_again(way, counts, tmp_path):
    X, _ = counts
    index = SimilarityIndex(CosineSimilarity(), store_items=True).fit(X[:10])
    index.remove([8, 9])
    if way == "encoded":
        other = CosineSimilarity(use_idf=False).fit(X)
        index.set_estimator(other)
    index.compact()
    if way == "pickle":
        index = pickle.loads(pickle.dumps(index))
    if way == "folder":
        index.save(tmp_path)
        index = SimilarityIndex.load(tmp_path, trusted=())
    index.add(X[10:12])
    assert index.ids_.tolist() == [*range(8), 10, 11]
    index.remove(index.ids_).compact()
    index.save(tmp_path, include_estimator=False)
    index = SimilarityIndex.load(tmp_path, estimator=index.estimator_)
    assert index.add(X[:1]).ids_.tolist() == [12]
    # Ids of the user count, too.
    index.add(X[1:2], ids=[100]).remove([100]).compact()
    assert index.add(X[1:2]).ids_.tolist() == [12, 101]
    index.add(X[2:3], ids=[2**63 - 1])
    with pytest.raises(ValueError, match="cannot be numbered from 9223372036854775808"):
        index.add(X[3:4])
    assert index.ids_.tolist() == [12, 101, 2**63 - 1]


def test_numbers_continue_in_folders_without_next_id(counts, tmp_path, monkeypatch):
    X, _ = counts
    index = SimilarityIndex(CosineSimilarity()).fit(X[:3])
    write = _folder.write_folder

    def write_without(folder, header, *more):
        del header["next_id"]
        write(folder, header, *more)

    monkeypatch.setattr(_folder, "write_folder", write_without)
    index.save(tmp_path)
    opened = SimilarityIndex.load(tmp_path, trusted=())
    assert opened.add(X[:1]).ids_.tolist() == [0, 1, 2, 3]
