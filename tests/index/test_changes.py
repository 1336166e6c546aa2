"""Changes of an index: atomic, in any order, with bounded cost."""

import copy
import pickle
import time

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import Normalizer

from sklearn_simlearn import MemoryVectorQuery
from sklearn_simlearn.feature_extraction import LocalFeatures
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.reranking import QueryExpansion
from sklearn_simlearn.similarities import CosineSimilarity

PRODUCT = MemoryVectorQuery(method="sum", normalize=False)

BACKENDS = {
    "inverted": {},
    "dense": {},
    "faiss": {"factory": "Flat"},
    "usearch": {"exact": True},
}
each_backend = pytest.mark.parametrize("backend", BACKENDS)


def make_index(backend="auto", **params):
    if backend in ("faiss", "usearch"):
        pytest.importorskip(backend)
    options = BACKENDS.get(backend)
    return SimilarityIndex(
        Normalizer(), backend=backend, backend_options=options, **params
    )


def assert_same(found, expected):
    assert_allclose(found[0], expected[0], rtol=1e-6)
    assert_array_equal(found[1], expected[1])


# -- all or nothing --


def test_a_fit_that_fails_leaves_the_index_unchanged(counts):
    X, _ = counts
    index = SimilarityIndex(CosineSimilarity()).fit(X[:20], ids=np.arange(20) + 100)
    before = index.search(X[:5])
    index.set_params(rerank=[QueryExpansion()])
    with pytest.raises(ValueError, match="store_items=True"):
        index.fit(X)
    index.set_params(rerank=None)
    assert_same(index.search(X[:5]), before)
    assert_array_equal(index.ids_, np.arange(20) + 100)
    assert len(index) == 20


class FailsLater(BaseEstimator):
    """Transformer that fails on values above 100."""

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        if np.max(X) > 100:
            raise RuntimeError("too large")
        return np.asarray(X)


@each_backend
def test_an_upsert_that_fails_changes_nothing(rng, backend):
    if backend in ("faiss", "usearch"):
        pytest.importorskip(backend)
    X = rng.random((30, 4)).astype(np.float32)
    index = SimilarityIndex(FailsLater(), backend=backend, store_items=True)
    index.fit(X, metadata=[{"i": i} for i in range(30)])
    before, state = index.search(X[:5]), index._state
    for change, ids in ((index.add, [98, 99]), (index.upsert, [3, 99])):
        with pytest.raises(RuntimeError, match="too large"):
            change(1000 * X[:2], ids=ids, metadata=[{"i": 3}, {"i": 99}])
        assert index._state is state
    assert_same(index.search(X[:5]), before)


@pytest.mark.parametrize("backend", ["faiss", "usearch"])
def test_an_index_of_another_library_survives_a_failed_addition(
    backend, rng, monkeypatch
):
    X = rng.standard_normal((40, 8)).astype(np.float32)
    index = make_index(backend).fit(X[:30])
    before = index.search(X[:5])
    cls = type(index._state.items)
    grow = cls._grow

    def grow_and_fail(self, library_index, D, n_threads):
        grow(self, library_index, D, n_threads)
        raise MemoryError("no room")

    monkeypatch.setattr(cls, "_grow", grow_and_fail)
    with pytest.raises(MemoryError):
        index.add(X[30:])
    monkeypatch.undo()
    assert_same(index.search(X[:5]), before)
    index.add(X[30:])
    assert_same(index.search(X[:5]), make_index(backend).fit(X).search(X[:5]))


@each_backend
def test_copies_change_independently(rng, backend):
    X = rng.standard_normal((60, 8)).astype(np.float32)
    index = make_index(backend, store_items=True).fit(X[:40])
    twin, snapshot = copy.copy(index), index._snapshot()
    index.add(X[40:50]).remove([1])
    twin.add(X[50:60]).remove([2])
    left = np.delete(np.arange(50), 1)
    expected = make_index(backend).fit(X[left], ids=left).search(X[:9])
    assert_same(index.search(X[:9]), expected)
    rows = np.delete(np.r_[0:40, 50:60], 2)
    numbers = np.delete(np.arange(50), 2)
    expected = make_index(backend).fit(X[rows], ids=numbers).search(X[:9])
    assert_same(twin.search(X[:9]), expected)
    assert_same(snapshot.search(X[:9]), make_index(backend).fit(X[:40]).search(X[:9]))
    thawed = pickle.loads(pickle.dumps(snapshot))
    assert_same(thawed.search(X[:9]), snapshot.search(X[:9]))


def test_parameters_are_those_of_the_constructor(rng, tmp_path):
    pytest.importorskip("faiss")
    X = rng.standard_normal((400, 8)).astype(np.float32)
    options = {"factory": "IVF8,Flat", "nprobe": 1}
    estimator, other = Normalizer().fit(X), Normalizer("l1").fit(X)
    index = SimilarityIndex(
        estimator, backend="faiss", backend_options=options, store_items=True
    ).fit(X)
    params = index.get_params(deep=False)
    assert index.set_search_options(nprobe=8) is index
    assert index.set_estimator(other) is index
    assert all(value is params[name] for name, value in index.get_params(False).items())
    assert options == {"factory": "IVF8,Flat", "nprobe": 1}
    # The option stays if items are encoded again or the index is loaded.
    index.save(tmp_path, include_estimator=False)
    for each in (index, SimilarityIndex.load(tmp_path, estimator=other, trusted=())):
        assert np.isfinite(each.search(X[:5], 400).scores).all()
        each.set_estimator(estimator)
        assert np.isfinite(each.search(X[:5], 400).scores).all()
    # A new fit uses the parameters.
    assert not np.isfinite(index.fit(X).search(X[:5], 400).scores).all()
    assert not hasattr(clone(index), "estimator_")


# -- data of the caller --


@pytest.mark.parametrize("kind", ["csr", "csc", "array", "frame", "dicts", "features"])
def test_stored_items_are_independent_of_the_caller(kind, rng):
    X = rng.integers(1, 5, size=(20, 6)).astype(np.float64)
    estimator = Normalizer()
    if kind == "dicts":
        from sklearn.feature_extraction import DictVectorizer

        given = [{f"w{j}": value for j, value in enumerate(row)} for row in X]
        estimator = DictVectorizer()
    elif kind == "features":
        pytest.importorskip("sklearn_simlearn.feature_extraction")
        n_points = np.full(20, 3)
        given = LocalFeatures(
            np.concatenate([[0], np.cumsum(n_points)]),
            x=rng.random(60),
            y=rng.random(60),
            scale=np.ones(60),
            angle=np.zeros(60),
            words=rng.integers(0, 9, 60),
        )
        index = SimilarityIndex(_WordCounts(), store_items=True).fit(given)
        before = index._state.raw.whole().words.copy()
        given.words[:] = 1
        assert_array_equal(index._state.raw.whole().words, before)
        return
    else:
        given = {
            "csr": sparse.csr_array,
            "csc": sparse.csc_array,
            "array": np.array,
            "frame": pd.DataFrame,
        }[kind](X)
    index = SimilarityIndex(estimator, store_items=True)
    ids = np.arange(20)
    index.fit(given[:15], ids=ids[:15])
    index.add(given[15:], ids=ids[15:])
    whole = SimilarityIndex(estimator, store_items=True).fit(given, ids=ids)
    before = index.kneighbors(), whole.kneighbors()
    if kind == "dicts":
        for row in given:
            row.update(dict.fromkeys(row, 1.0))
    elif kind == "frame":
        given.iloc[:, :] = 1
    elif kind == "array":
        given[:, :3] = 9
    else:
        given.data[:30] = 9
        given.indices[:] = given.indices[::-1].copy()
    ids[:] = 7
    assert_array_equal(index.kneighbors(), before[0])
    assert_array_equal(whole.kneighbors(), before[1])
    assert_array_equal(whole.ids_, np.arange(20))


class _WordCounts(BaseEstimator):
    """Histograms of the words of local features."""

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        counts = np.zeros((len(X), 9))
        np.add.at(counts, (X.image_of_point, X.words), 1)
        return counts


def test_metadata_is_independent_of_the_caller(rng):
    X = rng.random((4, 3))
    rows = [{"tags": ["x"]} for _ in range(4)]
    table = np.array([(1,), (2,), (3,), (4,)], dtype=[("year", int)])
    listed = SimilarityIndex(Normalizer()).fit(X, metadata=rows)
    structured = SimilarityIndex(Normalizer()).fit(X, metadata=table)
    rows[0]["tags"].append("y")
    table["year"] = 9
    assert listed.metadata_[0] == {"tags": ["x"]}
    assert_array_equal(structured.metadata_["year"], [1, 2, 3, 4])


# -- upsert --


@each_backend
def test_upsert_replaces_and_adds(rng, backend):
    X = rng.standard_normal((60, 8)).astype(np.float32)
    names = np.array([f"n{i}" for i in range(60)])
    index = make_index(backend, store_items=True)
    index.fit(X[:40], ids=names[:40], metadata=pd.DataFrame({"row": range(40)}))
    ids = np.r_[names[[5, 3]], names[40:42]]
    result = index.upsert(X[50:54], ids, metadata=pd.DataFrame({"row": range(50, 54)}))
    assert result is index
    rows = np.r_[np.delete(np.arange(40), [3, 5]), 50:54]
    order = np.r_[np.delete(names[:40], [3, 5]), ids]
    assert_array_equal(index.ids_, order)
    assert_array_equal(index.metadata_["row"], rows)
    expected = make_index(backend).fit(X[rows], ids=order)
    assert_same(index.search(X[:9], 12), expected.search(X[:9], 12))
    assert len(index) == len(expected) == 42
    assert_array_equal(
        index.kneighbors()[1][:, 0], index.compact().kneighbors()[1][:, 0]
    )


def test_upsert_has_the_checks_of_add(rng):
    X = rng.random((9, 3))
    index = SimilarityIndex(Normalizer()).fit(X[:5])
    for call, message in [
        (lambda: index.upsert(X[:2], None), "requires the ids"),
        (lambda: index.upsert(X[:2], [1, 1]), "unique"),
        (lambda: index.upsert(X[:2], ["a", "b"]), "are integers"),
        (lambda: index.upsert(X[:2], [1, 2], metadata=[{}, {}]), "without metadata"),
        (lambda: index.upsert(X[:2, :2], [1, 2]), "features"),
    ]:
        state = index._state
        with pytest.raises(ValueError, match=message):
            call()
        assert index._state is state
    with pytest.raises(NotFittedError):
        SimilarityIndex(Normalizer()).upsert(X, range(9))
    # New ids start after the largest id.
    assert index.upsert(X[5:7], [1, 20]).add(X[7:8]).ids_.tolist() == [
        0,
        2,
        3,
        4,
        1,
        20,
        21,
    ]


# -- removed rows --


@each_backend
def test_changes_compact_the_index_and_searches_do_not(rng, backend):
    X = rng.standard_normal((100, 8)).astype(np.float32)
    index = make_index(backend, store_items=True)
    index.fit(X, metadata=[{"i": i} for i in range(100)])
    index.remove(range(25))
    index.add(X[:1], metadata=[{"i": 100}])
    assert index._state.ids.n_rows == 101
    index.remove([25, 26])
    index.search(X[:3])
    assert index._state.ids.n_rows == index._state.items.n_items == 101
    index.remove([27])
    assert index._state.ids.n_rows == index._state.items.n_items == 74
    assert len(index) == 73
    rows = np.arange(28, 100)
    expected = make_index(backend).fit(X[np.r_[rows, 0]], ids=np.r_[rows, 100])
    assert_same(index.search(X[:9], 12), expected.search(X[:9], 12))
    found = index.search(X[:9], 12)
    assert [[row["i"] for row in of_query] for of_query in found.metadata] == (
        found.ids.tolist()
    )


@pytest.mark.parametrize("backend", ["inverted", "dense"])
def test_cycles_of_add_and_remove_cost_the_same(rng, backend):
    # `benchmarks/bench_search.py cycles` runs more cycles.
    X = rng.standard_normal((200, 4))
    index = make_index(backend, store_items=True).fit(X)
    seconds, n_rows, first = [], [], 0
    for _ in range(4):
        start = time.process_time()
        for _ in range(150):
            index.add(X[[first % 200]]).remove([first])
            n_rows.append(index._state.ids.n_rows)
            first += 1
        seconds.append(time.process_time() - start)
    assert max(n_rows) <= 270
    assert len(index) == 200
    assert min(seconds[2:]) < 2 * seconds[0]
    ids = index.ids_
    assert_array_equal(ids, np.arange(first, first + 200))
    expected = make_index(backend).fit(X[(ids - 200) % 200], ids=ids)
    assert_same(index.search(X[:9]), expected.search(X[:9]))


def test_parts_of_tables_keep_their_rows(rng):
    X = rng.standard_normal((300, 4))
    kinds = [
        lambda rows: [{"i": int(i)} for i in rows],
        lambda rows: pd.DataFrame({"i": rows}),
        lambda rows: np.array([(i,) for i in rows], dtype=[("i", int)]),
    ]
    for make in kinds:
        index = make_index(store_items=True).fit(X[:50], metadata=make(np.arange(50)))
        stop = 50
        for n_rows in (1, 1, 30, 2, 1, 100, 1, 1, 1):
            rows = np.arange(stop, stop + n_rows)
            index.add(X[rows], metadata=make(rows))
            stop += n_rows
            found = index.search(X[:stop], 3)
            assert_array_equal(found.ids[:, 0], np.arange(stop))
            assert_array_equal(found.to_frame()["i"], found.ids.ravel())
        raw = index._state.raw
        some = rng.permutation(stop)[:20]
        assert_array_equal(raw.take(some), X[some])
        assert_array_equal(raw.whole(), X[:stop])
