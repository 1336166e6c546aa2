"""Results and arguments of a search."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sample_data import polars_frame
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import Normalizer

from sklearn_simlearn import MemoryVectorQuery
from sklearn_simlearn.index import SearchResult, SimilarityIndex
from sklearn_simlearn.index._ids import Ids
from sklearn_simlearn.similarities import CosineSimilarity

PRODUCT = MemoryVectorQuery(method="sum", normalize=False)

METADATA = {
    "dicts": lambda year: [{"year": int(y), "id": f"n{y}"} for y in year],
    "pandas": lambda year: pd.DataFrame({"year": year, "id": [f"n{y}" for y in year]}),
    "polars": lambda year: polars_frame({"year": year, "id": [f"n{y}" for y in year]}),
    "structured": lambda year: np.array(
        [(y, f"n{y}") for y in year], dtype=[("year", int), ("id", "U8")]
    ),
}


# -- results --


@pytest.mark.parametrize("kind", METADATA)
def test_result_has_the_metadata_of_its_state(kind, rng):
    X = rng.random((20, 5))
    index = SimilarityIndex(Normalizer())
    index.fit(X, ids=np.arange(20) + 100, metadata=METADATA[kind](np.arange(20)))
    result = index.search(X[:3], 4, filter=[101, 104, 107])
    index.remove(range(100, 119)).compact()
    assert isinstance(result, SearchResult)
    assert isinstance(result, tuple)
    scores, ids = result
    assert scores is result.scores
    assert ids is result.ids
    for same in (result, pickle.loads(pickle.dumps(result))):
        assert len(same.metadata) == 3
        for row, table in zip(same.ids, same.metadata, strict=True):
            if kind == "dicts":
                assert [of_item["year"] for of_item in table] == (
                    row[:3] - 100
                ).tolist()
            else:
                assert_array_equal(table["year"], row[:3] - 100)
        frame = same.to_frame()
        assert list(frame) == ["query", "rank", "id", "score", "year", "metadata_id"]
        assert_array_equal(frame["query"], np.repeat([0, 1, 2], 3))
        assert_array_equal(frame["rank"], np.tile([1, 2, 3], 3))
        assert_array_equal(frame["id"], ids[:, :3].ravel())
        assert_array_equal(frame["score"], scores[:, :3].ravel())
        assert_array_equal(frame["year"], ids[:, :3].ravel() - 100)
        assert frame["metadata_id"].tolist() == [f"n{y}" for y in frame["year"]]
        assert same.missing == []


def test_result_without_metadata(rng):
    X = rng.random((5, 3))
    result = SimilarityIndex(Normalizer()).fit(X).search(X[:2], 7)
    assert result.metadata is None
    frame = result.to_frame()
    assert list(frame) == ["query", "rank", "id", "score"]
    assert frame.shape == (10, 4)


def test_length_and_truth(rng):
    index = SimilarityIndex(Normalizer())
    assert index
    with pytest.raises(Exception, match="not fitted"):
        len(index)
    index.fit(rng.random((5, 3)))
    assert len(index.remove([1, 2])) == 3
    assert len(index.remove(index.ids_)) == 0
    assert index


# -- arguments --


def test_number_of_results(rng):
    X = rng.random((200, 3))
    index = SimilarityIndex(Normalizer()).fit(X)
    for k in (np.int8(3), np.uint8(3), np.int64(3)):
        assert_array_equal(index.search(X[:2], k), index.search(X[:2], 3))
    assert index.search(X[:2], np.int8(127)).ids.shape == (2, 127)
    for k in (True, False, np.True_, 0, -1, 2.0, "3", None):
        with pytest.raises(ValueError, match="k must be an integer of at least 1"):
            index.search(X[:2], k)


@pytest.mark.parametrize("filter", ["a", b"a", {"a"}, frozenset("a"), 5], ids=repr)
def test_an_invalid_filter_is_refused_with_the_valid_kinds(filter, rng):
    X = rng.random((3, 3))
    index = SimilarityIndex(Normalizer()).fit(X, ids=list("abc"))
    with pytest.raises(ValueError, match="filter must be a boolean mask"):
        index.search(X, filter=filter)


def test_function_filter_on_an_emptied_index(rng):
    X = rng.random((4, 3))
    for make in METADATA.values():
        index = SimilarityIndex(Normalizer()).fit(X, metadata=make(np.arange(4)))
        index.remove(index.ids_)
        for _ in range(2):
            found = index.search(X, 2, filter=lambda row: row["year"] == 3)
            assert np.isneginf(found.scores).all()
            assert_array_equal(found.ids, -1)
            assert [len(rows) for rows in found.metadata] == [0] * 4
            assert len(found.to_frame()) == 0
            index.compact()


@pytest.mark.parametrize(
    "ids", [[2**64], [2**63], [-(2**63) - 1], [2**63, 1], [1, 2**70]], ids=repr
)
def test_ids_beyond_64_bits(ids, rng):
    X = rng.random((len(ids), 3))
    index = SimilarityIndex(Normalizer())
    with pytest.raises(ValueError, match="64-bit signed integers"):
        index.fit(X, ids=ids)
    index.fit(X)
    for call in (
        lambda: index.add(X, ids=ids),
        lambda: index.remove(ids),
        lambda: index.search(X, filter=ids),
        lambda: index.search(X, exclude=ids),
    ):
        with pytest.raises(ValueError, match="64-bit signed integers"):
            call()
    index.upsert(X[:1], ids=[2**63 - 1])
    assert 2**63 - 1 in index.ids_


def test_numbers_of_numpy_as_parameters_are_saved(rng, tmp_path):
    X = rng.random((40, 8)).astype(np.float32)
    index = SimilarityIndex(
        Normalizer(),
        n_candidates=np.int64(7),
        n_neighbors=np.int32(3),
        store_items=np.True_,
        n_jobs=np.int64(1),
        backend_options={"block_length": np.int64(16)},
    ).fit(X)
    index.save(tmp_path)
    opened = SimilarityIndex.load(tmp_path, trusted=())
    assert (opened.n_candidates, opened.n_neighbors, opened.n_jobs) == (7, 3, 1)
    assert opened.store_items is True
    assert opened.backend_options == {"block_length": 16}
    assert_array_equal(opened.kneighbors(), index.kneighbors())


def test_numbers_of_numpy_as_options_of_faiss_are_saved(rng, tmp_path):
    pytest.importorskip("faiss")
    X = rng.random((200, 8)).astype(np.float32)
    options = {"factory": "IVF4,Flat", "nprobe": np.int64(2)}
    index = SimilarityIndex(Normalizer(), backend="faiss", backend_options=options)
    index.fit(X).set_search_options(nprobe=np.int64(4)).save(tmp_path)
    opened = SimilarityIndex.load(tmp_path, trusted=())
    assert_array_equal(opened.search(X[:5]), index.search(X[:5]))


# -- ids in any order --


@pytest.mark.parametrize("names", [False, True])
def test_ids_that_do_not_ascend(names, rng):
    X = rng.standard_normal((30, 5))
    numbers = rng.permutation(1000)[:30]
    ids = np.array([f"n{i}" for i in numbers]) if names else numbers
    nothing = "" if names else -1
    index = SimilarityIndex(Normalizer()).fit(X[:20], ids=ids[:20])
    index.add(X[20:], ids=ids[20:])
    assert_array_equal(index.search(X, 1).ids[:, 0], ids)
    gone = [0, 7, 21, 29]
    for _ in range(2):
        if index._state.ids.n_alive == 30:
            index.remove(ids[gone])
        left = np.setdiff1d(np.arange(30), gone)
        assert_array_equal(index.ids_, ids[left])
        assert_array_equal(index.search(X[left], 1).ids[:, 0], ids[left])
        found = index.search(X[left], 1, filter=ids[left])
        assert_array_equal(found.ids[:, 0], ids[left])
        assert index.search(X, 1, filter=ids[gone]).ids.tolist() == [[nothing]] * 30
        others = index.search(X[left], 25, exclude=ids[left]).ids
        for i, row in zip(left, others, strict=True):
            assert set(row) == set(ids[left]) - {ids[i]}
        with pytest.raises(ValueError, match="no items with the ids"):
            index.remove(ids[gone[:1]])
        index.compact()
    # The user may reuse the id of a removed item.
    index.add(X[gone[::-1]], ids=ids[gone])
    assert_array_equal(index.search(X[gone[::-1]], 1).ids[:, 0], ids[gone])


def test_numbering_after_remove_and_compact(rng):
    X = rng.random((10, 3))
    index = SimilarityIndex(Normalizer()).fit(X[:6])
    index.remove([5, 2]).compact().add(X[6:8])
    assert index.ids_.tolist() == [0, 1, 3, 4, 6, 7]
    assert_array_equal(index.search(X[6:8], 1).ids, [[6], [7]])


def test_ids_appended_to_the_same_ids_do_not_meet():
    ids = Ids(np.arange(4)).append(np.array([7, 5]))  # its buffer has free places
    first, second = ids.append(np.array([20, 10])), ids.append(np.array([30, 11]))
    assert first.current().tolist() == [0, 1, 2, 3, 7, 5, 20, 10]
    assert second.current().tolist() == [0, 1, 2, 3, 7, 5, 30, 11]
    assert first.find([10, 20, 30]).tolist() == [7, 6, -1]


def test_an_id_that_returns_is_found_in_its_last_row():
    ids = Ids(np.array([3, 1]))
    for last in range(2, 9):
        ids = ids.without(ids.find([1])).append(np.array([1]))
        assert ids.find([1, 3, 2]).tolist() == [last, 0, -1]


@pytest.mark.parametrize("values", [range(9), [4, 2, 3], [8, 0, 5, 1], [6], []])
@pytest.mark.parametrize("start", [-(2**63), -5, 0, 2**63 - 9])
def test_ids_are_found_by_value(values, start):
    known = {start + value: row for row, value in enumerate(values)}
    asked = [*range(start, start + 9), -(2**63), -1, 0, 3, 2**63 - 1]
    ids = Ids(np.array(list(known), dtype=np.int64))
    assert ids.find(asked).tolist() == [known.get(id_, -1) for id_ in asked]


# -- distances --


def test_added_items_without_unit_length_have_no_distance(rng):
    X = rng.standard_normal((12, 4))
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    index = SimilarityIndex(PRODUCT).fit(unit[:8])
    assert index.kneighbors(unit[:3], 1)[1].ravel().tolist() == [0, 1, 2]
    index.add(unit[8:10])
    assert index.kneighbors(unit[8:9], 1)[1].ravel().tolist() == [8]
    index.add(3 * X[10:])
    for method in (index.kneighbors, index.radius_neighbors, index.transform):
        with pytest.raises(ValueError, match=r"items do not\s+have unit length"):
            method(unit[:3])
    index = SimilarityIndex(PRODUCT).fit(unit[:8]).upsert(3 * X[:1], [0])
    with pytest.raises(ValueError, match=r"items do not\s+have unit length"):
        index.kneighbors(unit[:3], 1)


@pytest.mark.parametrize("is_compact", [False, True])
def test_radius_neighbors_after_remove(is_compact, rng):
    X = rng.random((90, 3))
    index = SimilarityIndex(CosineSimilarity(use_idf=False), store_items=True).fit(X)
    index.remove(np.arange(0, 90, 3))
    if is_compact:
        index.compact()
    left = X[np.arange(90) % 3 > 0]
    neighbors = NearestNeighbors(metric="cosine").fit(left)
    for Z in (X[:20], None):
        for radius in (0.02, 0.1, 3.0):
            distances, indices = index.radius_neighbors(Z, radius)
            expected = neighbors.radius_neighbors(Z, radius, sort_results=True)
            for i in range(len(distances)):
                assert_allclose(distances[i], expected[0][i], atol=1e-12)
                assert set(indices[i]) == set(expected[1][i])
            graph = index.radius_neighbors_graph(Z, radius)
            assert graph.shape == (len(distances), 60)
    index.remove(index.ids_)
    distances, indices = index.radius_neighbors(X[:2], 1.0)
    assert [len(row) for row in distances] == [len(row) for row in indices] == [0, 0]
    assert index.radius_neighbors_graph(X[:2], 1.0).shape == (2, 0)
