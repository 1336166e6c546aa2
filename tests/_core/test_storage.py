"""Saved indexes: a saved index opens unchanged, or the error names the damage.

`SIMLEARN_FUZZ_COPIES=10000 pytest tests/_core/test_storage.py -k damaged` tries 10,000
damaged copies of each index.
"""

import gc
import json
import os
import sys
import threading
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    HistogramRankSVM,
    MemoryVectorQuery,
    SparseMahalanobisLearner,
)
from sklearn_simlearn._core import storage
from sklearn_simlearn.feature_extraction import LocalFeatures
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import map_scorer
from sklearn_simlearn.reranking import QueryExpansion, SpatialVerification
from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
)

N_COPIES = int(os.environ.get("SIMLEARN_FUZZ_COPIES", 60))


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    # The inverted file stores frequent and rare words in different ways.
    rate = np.repeat([0.6, 0.08], 15)
    return sparse.csr_array(rng.poisson(rate, size=(60, 30)).astype(np.float64))


@pytest.fixture
def index(X):
    metadata = [{"year": i % 5} for i in range(60)]
    index = SimilarityIndex(CosineSimilarity(), store_items=True)
    return index.fit(X, ids=[f"n{i}" for i in range(60)], metadata=metadata)


def arrays_of(folder):
    (generation,) = Path(folder).glob("arrays-*")
    return generation


# -- stored values --


def test_opened_index_is_the_saved_one(index, X, tmp_path):
    index.remove(["n3", "n4"]).save(tmp_path)
    for mmap in (True, False):
        opened = SimilarityIndex.load(tmp_path, mmap=mmap, trusted=(), verify=True)
        for found, expected in zip(
            opened.search(X, 5), index.search(X, 5), strict=True
        ):
            assert_array_equal(found, expected)
        assert_array_equal(opened.ids_, index.ids_)
        assert list(opened.metadata_) == list(index.metadata_)
        assert opened.n_features_in_ == 30
        assert opened.get_params()["store_items"] is True
        assert_array_equal(
            opened.kneighbors(return_distance=False),
            index.kneighbors(return_distance=False),
        )
        # The opened index can be changed, and saved to the same folder.
        opened.add(X[:1], ids=["x"], metadata=[{"year": 9}]).compact().save(tmp_path)
        again = SimilarityIndex.load(tmp_path, trusted=())
        assert "x" in again.search(X[:1], 3)[1]
        index.save(tmp_path)


def test_nothing_is_pickled(index, tmp_path):
    index.save(tmp_path)
    names = {path.suffix for path in arrays_of(tmp_path).iterdir()}
    assert names == {".npy", ".skops"}
    for path in arrays_of(tmp_path).glob("*.npy"):
        np.load(path, allow_pickle=False)
    evil = np.array([print], dtype=object)
    np.save(arrays_of(tmp_path) / "ids.npy", evil, allow_pickle=True)
    forge_checksums(tmp_path)
    with pytest.raises(ValueError, match=r"header of ids\.npy"):
        SimilarityIndex.load(tmp_path)


def test_frame_as_items_and_feature_names(X, tmp_path):
    frame = pd.DataFrame(X.toarray(), columns=[f"word {i}" for i in range(30)])
    index = SimilarityIndex(CosineSimilarity(), store_items=True).fit(frame)
    index.save(tmp_path)
    opened = SimilarityIndex.load(tmp_path, trusted=())
    assert_array_equal(opened.feature_names_in_, index.feature_names_in_)
    items = opened._state.items
    opened.set_estimator(CosineSimilarity().fit(frame[:20]))
    assert opened._state.items is not items


def test_values_that_cannot_be_stored_are_refused(X, tmp_path):
    index = SimilarityIndex(CosineSimilarity()).fit(X, metadata=[{"x": print}] * 60)
    with pytest.raises(ValueError, match="metadata cannot be saved"):
        index.save(tmp_path / "a", include_estimator=False)
    index = SimilarityIndex(CosineSimilarity(), backend_options={"x": print})
    with pytest.raises(TypeError):
        index.fit(X)
    # The failed save leaves no files.
    assert not any((tmp_path / "a").glob("*"))


# -- the estimator --


class Doubler(TransformerMixin, BaseEstimator):
    """Transformer that skops does not trust."""

    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        return 2 * X


def test_estimator_is_loaded_on_request_only(index, X, tmp_path):
    index.save(tmp_path)
    opened = SimilarityIndex.load(tmp_path)
    assert opened.estimator is None
    with pytest.raises(ValueError, match="without its estimator"):
        opened.search(X)
    with pytest.raises(ValueError, match="without its estimator"):
        opened.save(tmp_path)
    assert opened.set_estimator(index.estimator_) is opened
    assert_array_equal(opened.search(X)[1], index.search(X)[1])

    index.save(tmp_path, include_estimator=False)
    with pytest.raises(ValueError, match="saved without its estimator"):
        SimilarityIndex.load(tmp_path, trusted=())
    other = CosineSimilarity().fit(X[:9])
    with pytest.raises(ValueError, match="does not encode items as they are stored"):
        SimilarityIndex.load(tmp_path, estimator=other)


def test_types_that_are_not_trusted_are_refused(X, tmp_path):
    model = make_pipeline(Doubler(), CosineSimilarity()).fit(X)
    SimilarityIndex(model).fit(X).save(tmp_path)
    with pytest.raises(ValueError, match=r"not trusted.*Doubler"):
        SimilarityIndex.load(tmp_path, trusted=())
    name = f"{Doubler.__module__}.Doubler"
    with pytest.raises(ValueError, match=r"not trusted.*Doubler"):
        SimilarityIndex.load(tmp_path, trusted=[name + "x"])


@pytest.mark.parametrize(
    "learner",
    [
        CosineSimilarity(),
        NegativeEvidenceSimilarity(),
        BurstinessSimilarity(),
        AsymmetricSimilarity(),
        OASIS(n_triplets=200, random_state=0),
        MemoryVectorQuery(CosineSimilarity()),
        AngularBilinearRanker(n_references=15, random_state=0),
        HistogramRankSVM(),
        SparseMahalanobisLearner(n_random_triplets=200, max_iter=5, random_state=0),
        make_pipeline(FunctionTransformer(), CosineSimilarity()),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:No weights are better than 0")
@pytest.mark.filterwarnings("ignore:The objective still falls")
def test_learners_come_back_from_the_folder(learner, counts, tmp_path):
    X, y = counts
    index = SimilarityIndex(clone(learner)).fit(X, y)
    index.save(tmp_path)
    opened = SimilarityIndex.load(tmp_path, trusted=())
    for found, expected in zip(opened.search(X), index.search(X), strict=True):
        assert_array_equal(found, expected)


def test_best_estimator_of_a_search_comes_back(counts, tmp_path):
    X, y = counts[0][:60], counts[1][:60]
    search = GridSearchCV(
        make_pipeline(CosineSimilarity()),
        {"cosinesimilarity__use_idf": [False, True]},
        scoring=map_scorer,
        cv=StratifiedKFold(2),
    ).fit(X, y)
    index = SimilarityIndex(search).fit(X)
    index.save(tmp_path)
    opened = SimilarityIndex.load(tmp_path, trusted=())
    assert isinstance(opened.estimator_, Pipeline)
    assert_array_equal(opened.search(X)[1], index.search(X)[1])


# -- saving --


def test_interrupted_save_leaves_the_old_index(index, X, tmp_path, monkeypatch):
    index.save(tmp_path)
    before = index.search(X, 5)[1]
    new = SimilarityIndex(index.estimator_).fit(X[:20])
    n_calls = 0

    def fail_at(step):
        def fsync(descriptor):
            nonlocal n_calls
            n_calls += 1
            if n_calls == step:
                raise KeyboardInterrupt

        return fsync

    step = 0
    while True:
        step, n_calls = step + 1, 0
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail_at(step))
            try:
                new.save(tmp_path)
            except KeyboardInterrupt:
                if len(list(tmp_path.glob("arrays-*"))) == 2:
                    break  # The last call comes after the header was replaced.
            else:
                break
        opened = SimilarityIndex.load(tmp_path, trusted=(), verify=True)
        assert_array_equal(opened.search(X, 5)[1], before)
        assert len(list(tmp_path.glob("arrays-*"))) == 1
    assert step > 10
    assert SimilarityIndex.load(tmp_path, trusted=(), verify=True).n_items_ == 20


def test_save_that_was_killed_leaves_the_old_index(index, X, tmp_path):
    index.save(tmp_path)
    stray = tmp_path / "arrays-0123"
    stray.mkdir()
    (stray / "ids.npy").write_bytes(b"half")
    (stray / storage.HEADER).write_bytes(b"{")
    assert SimilarityIndex.load(tmp_path, verify=True).n_items_ == 60


def test_readers_see_the_old_or_the_new_index(index, X, tmp_path):
    few = SimilarityIndex(index.estimator_).fit(X[:20])
    answers = {
        each.n_items_: each.search(X[:4], 5)[1].tolist() for each in (index, few)
    }
    index.save(tmp_path, include_estimator=False)
    failures, done = [], threading.Event()

    def write():
        for _ in range(5):
            for each in (few, index):
                each.save(tmp_path, include_estimator=False)
        done.set()

    def read():
        while not done.is_set():
            try:
                opened = SimilarityIndex.load(
                    tmp_path, estimator=index.estimator_, verify=True
                )
                if opened.search(X[:4], 5)[1].tolist() != answers[opened.n_items_]:
                    failures.append("a mixture of both")
            except Exception as error:
                failures.append((error, error.__cause__))

    threads = [threading.Thread(target=each) for each in (write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_threads_open_an_index_at_the_same_time(index, tmp_path):
    """Open a folder in threads while callbacks of the garbage collector run."""
    index.save(tmp_path, include_estimator=False)
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    failures = []

    def slow(*args):
        sum(range(200))

    def read():
        try:
            for _ in range(40):
                storage.open_folder(tmp_path)
        except Exception as error:
            failures.append((error, error.__cause__))

    threads = [threading.Thread(target=read) for _ in range(4)]
    gc.callbacks.append(slow)
    gc.set_threshold(20)
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(slow)
    assert failures == []


# -- damage --


def test_blocks_are_verified_when_they_are_first_touched(X, tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "BLOCK", 64)
    index = SimilarityIndex(CosineSimilarity()).fit(X, ids=np.arange(60) + 1000)
    index.save(tmp_path)
    path = arrays_of(tmp_path) / "ids.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # byte of the last item
    path.write_bytes(data)
    opened = SimilarityIndex.load(tmp_path, trusted=())
    assert_array_equal(opened.search(X[:3], 1)[1].ravel(), [1000, 1001, 1002])
    with pytest.raises(ValueError, match=r"block \d+ of ids.npy fails its checksum"):
        opened.search(X[59:], 1)
    for options in ({"verify": True}, {"mmap": False}):
        with pytest.raises(ValueError, match=r"ids.npy fails its checksum"):
            SimilarityIndex.load(tmp_path, **options)


def test_folders_that_hold_no_index(tmp_path):
    with pytest.raises(ValueError, match="is not a saved index"):
        SimilarityIndex.load(tmp_path)
    with pytest.raises(ValueError, match="is not a saved index"):
        SimilarityIndex.load(tmp_path / "nowhere")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in folders")
def test_a_header_that_is_not_a_file_is_not_read(index, tmp_path):
    index.save(tmp_path)
    (tmp_path / storage.HEADER).unlink()
    os.mkfifo(tmp_path / storage.HEADER)
    with pytest.raises(ValueError, match="is not a saved index"):
        SimilarityIndex.load(tmp_path)


def test_a_header_that_is_too_long_is_not_read(index, tmp_path, monkeypatch):
    index.save(tmp_path)
    monkeypatch.setattr(storage, "MAX_HEADER", 100)
    with pytest.raises(ValueError, match=r"index.json has more than 100 bytes"):
        SimilarityIndex.load(tmp_path)
    with pytest.raises(ValueError, match=r"header of the index exceeds 100 bytes"):
        index.save(tmp_path / "new")


def test_a_header_of_other_software_is_not_replaced(index, tmp_path):
    header = tmp_path / storage.HEADER
    header.write_text('{"name": "mine"}')
    with pytest.raises(ValueError, match="Save the index to another folder"):
        index.save(tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ['{"name": "mine"}']
    header.unlink()
    index.save(tmp_path)
    header.write_bytes(header.read_bytes()[:-5])  # damaged
    index.save(tmp_path)
    SimilarityIndex.load(tmp_path, verify=True)


def test_other_formats_are_named(index, tmp_path):
    index.save(tmp_path)
    header = read_header(tmp_path)
    header["content"]["version"] = 99
    write_header(tmp_path, header["content"])
    with pytest.raises(ValueError, match="format 99"):
        SimilarityIndex.load(tmp_path)


def test_a_forged_number_of_features_takes_no_memory(index, X, tmp_path):
    index.save(tmp_path)
    content = read_header(tmp_path)["content"]
    content["index"]["n_features_in"] = 10**6
    write_header(tmp_path, content)
    opened = SimilarityIndex.load(tmp_path, trusted=())
    opened.explain(X[:1], ["n3"])  # imports what is needed
    tracemalloc.start()
    try:
        opened.explain(X[:1], ["n3"])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10**6


def test_a_forged_number_of_empty_texts_takes_no_memory(index, tmp_path):
    """Check that NumPy does not allocate a character for each of them."""
    index.save(tmp_path)
    (path,) = tmp_path.glob("arrays-*/ids.npy")
    header = {"descr": "<U0", "fortran_order": False, "shape": (10**13,)}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    forge_checksums(tmp_path)
    with pytest.raises(storage.DamagedError, match="does not match its size"):
        SimilarityIndex.load(tmp_path)


def read_header(folder):
    return json.loads((Path(folder) / storage.HEADER).read_bytes())


def write_header(folder, content):
    header = {"content": content, "checksum": storage._checksum(content)}
    (Path(folder) / storage.HEADER).write_text(json.dumps(header))


def forge_checksums(folder):
    """Make the header agree with the current content of the files."""
    content = read_header(folder)["content"]
    for name in content["files"]:
        data = (arrays_of(folder) / name).read_bytes()
        content["files"][name] = {
            "size": len(data),
            "checksums": [
                zlib.crc32(data[start : start + storage.BLOCK])
                for start in range(0, len(data), storage.BLOCK)
            ],
        }
    write_header(folder, content)


class Folder:
    """Files of a saved index, which are restored before each damage."""

    def __init__(self, folder):
        self.folder = folder
        self.files = {
            path.relative_to(folder): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix != ".skops"
        }
        self.arrays = [name for name in self.files if name.suffix == ".npy"]
        self.touched = []

    def restore(self):
        for name in self.touched:
            (self.folder / name).write_bytes(self.files[name])
        self.touched = []

    def write(self, name, data):
        self.touched.append(name)
        (self.folder / name).write_bytes(data)

    def forge(self):
        self.touched.append(Path(storage.HEADER))
        forge_checksums(self.folder)


def pick(rng, values):
    return values[rng.integers(len(values))]


def flip_bytes(folder, rng):
    name = pick(rng, list(folder.files))
    data = bytearray(folder.files[name])
    for _ in range(rng.integers(1, 4)):
        data[rng.integers(len(data))] ^= int(rng.integers(1, 256))
    folder.write(name, data)


def cut_file(folder, rng):
    name = pick(rng, list(folder.files))
    data = folder.files[name]
    folder.write(name, data[: rng.integers(len(data))])


def lengthen_file(folder, rng):
    name = pick(rng, list(folder.files))
    folder.write(name, folder.files[name] + bytes(int(rng.integers(1, 100))))


def swap_arrays(folder, rng):
    one, other = pick(rng, folder.arrays), pick(rng, folder.arrays)
    folder.write(one, folder.files[other])
    folder.write(other, folder.files[one])


def forge_header(folder, rng):
    content = json.loads(folder.files[Path(storage.HEADER)])["content"]
    for _ in range(rng.integers(1, 3)):
        change_leaf(content, rng)
    folder.touched.append(Path(storage.HEADER))
    write_header(folder.folder, content)


def change_leaf(node, rng):
    while True:
        if not node:
            return
        key = pick(rng, list(node) if isinstance(node, dict) else range(len(node)))
        if isinstance(node[key], dict | list) and rng.random() < 0.9:
            node = node[key]
            continue
        values = [0, -1, 1, 3, 2**31, 2**63, 10**30, None, True, "", "dense", "faiss"]
        values += ["inverted", "../..", [], {}, [[]], 0.5, "arrays-0", "csr", "list"]
        if rng.random() < 0.2:
            del node[key]
        else:
            node[key] = pick(rng, values)
        return


def forge_values(folder, rng):
    """Write invalid values with correct checksums."""
    name = pick(rng, folder.arrays)
    data = bytearray(folder.files[name])
    start = int.from_bytes(data[8:10], "little") + 10
    if len(data) > start:
        for _ in range(rng.integers(1, 6)):
            place = start + 4 * rng.integers((len(data) - start + 3) // 4)
            values = [
                b"\xff" * 8,
                b"\xff" * 4 + b"\0" * 4,
                b"\0" * 8,
                b"\xff" * 7 + b"\x7f",
            ]
            values += [bytes(rng.integers(0, 256, 8, dtype=np.uint8)), b"\1\0\0\0"]
            values += [np.float64(np.nan).tobytes(), np.float64(1e300).tobytes()]
            value = pick(rng, values)
            data[place : place + len(value)] = value[: len(data) - place]
    folder.write(name, data)
    folder.forge()


def forge_shape(folder, rng):
    """Replace an array by another one, with correct checksums."""
    name = pick(rng, folder.arrays)
    array = np.load(folder.folder / name)
    others = [
        array[: len(array) // 2],
        np.concatenate([array, array]),
        array[..., None],
        array.astype("float32") if array.dtype.kind in "biuf" else array[:0],
        array.astype("int64") if array.dtype.kind in "biu" else array[:1],
        np.zeros(0),
        np.zeros((3, 0, 2)),
        np.array(5),
        array.byteswap().view(array.dtype.newbyteorder()),
        np.asfortranarray(np.zeros((4, 5))),
    ]
    path = folder.folder / name
    np.save(path, pick(rng, others))
    folder.touched.append(name)
    folder.forge()


def forge_swap(folder, rng):
    swap_arrays(folder, rng)
    folder.forge()


DAMAGES = [flip_bytes, cut_file, lengthen_file, swap_arrays]
FORGERIES = [forge_header, forge_values, forge_shape, forge_swap]


def use(folder, estimator, X, rng, trusted=None):
    """Return results of an opened index that read all of its arrays."""
    index = SimilarityIndex.load(
        folder, mmap=bool(rng.integers(2)), estimator=estimator, trusted=trusted
    )
    answers = [
        index.search(X[:5], 4),
        index.search(X[:5], 4, exclude=index.ids_[:5], filter=index.ids_[::2]),
        index.search(X[:5], 4, filter=lambda row: row["year"] == 3),
        index.kneighbors(X[:5], 3),
        index.kneighbors(n_neighbors=3),
    ]
    index.add(X[:2], ids=np.array([91, 92]), metadata=[{"year": 3}] * 2)
    index.remove(index.ids_[:3])
    answers.append(index.search(X[:5], 4))
    answers.append(index.compact().search(X[:5], 4))
    return [array.tolist() for pair in answers for array in pair]


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("inverted", "damaged"),
        ("inverted", "forged"),
        ("dense", "damaged"),
        ("dense", "forged"),
        # Forged files of these backends are opened only with `trusted`.
        ("faiss", "damaged"),
        ("usearch", "damaged"),
    ],
)
@pytest.mark.filterwarnings(
    "ignore::RuntimeWarning"
)  # from NaN and other forged values
def test_damaged_copies_raise_or_return_correct_results(kind, how, X, tmp_path):
    if kind in ("faiss", "usearch"):
        pytest.importorskip(kind)
    estimator = CosineSimilarity().fit(X)
    index = SimilarityIndex(estimator, backend=kind, store_items=True)
    index.fit(X, ids=np.arange(60), metadata=[{"year": i % 5} for i in range(60)])
    index.remove([7, 8]).save(tmp_path, include_estimator=False)
    trusted = () if kind in ("faiss", "usearch") else None
    try_copies(tmp_path, how, lambda rng: use(tmp_path, estimator, X, rng, trusted))


def try_copies(folder, how, answer):
    """Damage a saved index. It raises an error or returns correct results."""
    right = answer(np.random.default_rng(0))
    files = Folder(folder)
    n_refused = 0
    for copy in range(N_COPIES):
        rng = np.random.default_rng(copy)
        damage = pick(rng, DAMAGES if how == "damaged" else FORGERIES)
        damage(files, rng)
        try:
            found = answer(rng)
        except ValueError:
            n_refused += 1
        else:
            # With forged checksums, the results may differ.
            assert found == right or how == "forged", (copy, damage.__name__)
        files.restore()
    assert answer(np.random.default_rng(0)) == right
    assert n_refused > N_COPIES / 4


# -- local features as items --


def count_words(features):
    counts = (np.ones(features.n_points), (features.image_of_point, features.words))
    return sparse.coo_array(counts, shape=(len(features), 30)).tocsr()


@pytest.fixture
def features_index():
    """Return images of random features. The last ten are shifted copies."""
    rng = np.random.default_rng(0)
    x, y, scale, angle = rng.uniform(1, 100, (4, 200))
    features = LocalFeatures(
        np.arange(0, 401, 20),
        np.append(x, x + 9),
        np.append(y, y - 5),
        np.append(scale, scale),
        np.append(angle, angle),
        descriptors=rng.integers(0, 255, (400, 4), dtype=np.uint8),
        words=np.tile(rng.integers(0, 30, 200), 2),
        image_sizes=np.full((20, 2), 110),
    )
    index = SimilarityIndex(
        make_pipeline(FunctionTransformer(count_words), CosineSimilarity()),
        rerank=[SpatialVerification()],
        store_items=True,
    )
    return index.fit(features, ids=[f"image {i}" for i in range(20)]), features


def use_features(folder, estimator, features, mmap=True):
    index = SimilarityIndex.load(folder, mmap=mmap, estimator=estimator)
    index.set_params(rerank=[SpatialVerification(), QueryExpansion(2)])
    answers = index.search(features[:5], 6, exclude=index.ids_[:5])
    descriptors = int(index._state.raw.whole().descriptors.sum())
    return [*(array.tolist() for array in answers), descriptors]


def test_an_index_of_local_features_comes_back(features_index, tmp_path):
    index, features = features_index
    index.remove(["image 3"]).save(tmp_path, include_estimator=False)
    for mmap in (True, False):
        opened = SimilarityIndex.load(
            tmp_path, mmap=mmap, estimator=index.estimator_, verify=True
        )
        opened.set_params(rerank=[SpatialVerification()])
        for found, expected in zip(
            opened.search(features, 5), index.search(features, 5), strict=True
        ):
            assert_array_equal(found, expected)
        raw = opened._state.raw.whole()
        assert_array_equal(raw.descriptors, features.descriptors)
        assert not raw.descriptors.flags.writeable
    # The opened index can be changed, and saved to the same folder.
    opened.add(features[:1], ids=["again"]).compact().save(tmp_path)
    again = SimilarityIndex.load(tmp_path, estimator=index.estimator_)
    again.set_params(rerank=[SpatialVerification()])
    assert "again" in again.search(features[:1], 3)[1]
    assert again.n_items_ == 20
    with pytest.raises(ValueError, match="metadata must be a list of dicts"):
        index.fit(features, metadata=features)


@pytest.mark.parametrize("how", ["damaged", "forged"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # from forged values
def test_damaged_copies_of_local_features(how, features_index, tmp_path):
    index, features = features_index
    index.save(tmp_path, include_estimator=False)
    try_copies(
        tmp_path,
        how,
        lambda rng: use_features(
            tmp_path, index.estimator_, features, mmap=bool(rng.integers(2))
        ),
    )
