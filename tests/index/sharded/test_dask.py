"""ShardedIndex: same results as one index, even if workers are lost; learning."""

import gc
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    HistogramRankSVM,
    MemoryVectorQuery,
    SparseMahalanobisLearner,
)
from sklearn_simlearn._core import dask_batches, storage
from sklearn_simlearn.index import SearchResult, ShardedIndex, SimilarityIndex
from sklearn_simlearn.index.sharded._state import Runs
from sklearn_simlearn.metrics import map_scorer, retrieval_report
from sklearn_simlearn.similarities import AsymmetricSimilarity, CosineSimilarity

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
pa = pytest.importorskip("pyarrow")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL"),
    pytest.mark.filterwarnings("ignore:No weights are better than 0"),
    pytest.mark.filterwarnings("ignore:The objective still falls"),
]

LEARNERS = [
    (CosineSimilarity(), "sparse"),
    (AsymmetricSimilarity(p=2, lam=3.0), "dense"),
    (OASIS(n_triplets=200, random_state=0), "dense"),
    (OASIS(holdout=None, n_triplets=200, random_state=0), "sparse"),
    (MemoryVectorQuery(CosineSimilarity()), "dense"),
    (AngularBilinearRanker(n_references=15, random_state=0), "sparse"),
    (HistogramRankSVM(random_state=0), "sparse"),
    (SparseMahalanobisLearner(n_random_triplets=200, max_iter=5), "sparse"),
    (make_pipeline(Normalizer(), CosineSimilarity(use_idf=False)), "dense"),
]

# Transformer without a fit, whose outputs are compared by the cosine.
COSINE = Normalizer()

N_WORKERS = 4


@pytest.fixture(scope="module")
def client():
    # Workers start faster if they are forked from a process with all imports. The
    # package itself imports its modules late.
    config = {"distributed.worker.multiprocessing-method": "forkserver"}
    with dask.config.set(config):
        context = distributed.utils.get_mp_context()
        context.set_forkserver_preload(
            ["dask.dataframe", "distributed", "sklearn_simlearn.index"]
        )
    with (
        dask.config.set(config),
        distributed.LocalCluster(
            n_workers=N_WORKERS,
            threads_per_worker=1,
            memory_limit="1GiB",
            dashboard_address=":0",
            silence_logs="CRITICAL",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def all_workers(client):
    """Wait until workers that an earlier test has killed are restarted.

    On a busy machine, Dask abandons a worker that does not restart in time, and starts
    another one.
    """
    try:
        client.wait_for_workers(N_WORKERS, timeout=30)
    except TimeoutError:
        n_missing = N_WORKERS - len(client.scheduler_info(n_workers=-1)["workers"])
        client.cluster.scale(len(client.cluster.worker_spec) + n_missing)
        client.wait_for_workers(N_WORKERS, timeout=60)


@pytest.fixture
def points(rng):
    """Return points of small integers, so that many similarities are equal."""
    return rng.integers(0, 3, (400, 6)).astype(np.float32)


def assert_same(found, expected):
    for array, wanted in zip(found, expected, strict=True):
        assert_array_equal(array, wanted)
        assert array.dtype.kind == wanted.dtype.kind


def kill(client, address=None):
    """Kill a worker with SIGKILL."""
    pids = client.run(os.getpid)
    os.kill(pids[address or next(iter(pids))], signal.SIGKILL)


def home(client, index, shard):
    """Return the address of the worker that holds a shard."""
    (addresses,) = client.who_has([index._state.futures[shard]]).values()
    return addresses[0]


# -- answers --


def test_rows_of_a_shard_are_runs():
    rows = np.array([20, 21, 22, 5, 6, 40, 3])  # not ascending after additions
    runs = Runs.of(rows)
    assert_array_equal(runs.expand(), rows)
    assert_array_equal(runs.place(np.array([0, 4, 6, -1])), [20, 6, 3, -1])
    everything = np.arange(50)
    expected = [list(rows).index(row) if row in rows else -1 for row in everything]
    assert_array_equal(runs.find(everything), expected)
    assert_array_equal(runs.without(np.array([5, 21])).expand(), [20, 22, 6, 40, 3])
    left = runs.renumbered(np.array([2, 5, 21])).expand()
    assert_array_equal(left, [18, 19, 4, 37, 2])


@pytest.mark.parametrize(("learner", "kind"), LEARNERS, ids=repr)
def test_shards_answer_as_one_index(learner, kind, counts, client, tmp_path):
    X, y = counts[0].toarray() if kind == "dense" else counts[0], counts[1]
    names = np.array([f"item {i}" for i in range(66)])
    metadata = [{"number": i} for i in range(66)]
    learner = clone(learner).fit(X, y)
    # BLAS may round the encodings differently for other blocks of rows.
    one = SimilarityIndex(learner).fit(X[:16], ids=names[:16], metadata=metadata[:16])
    for part in (slice(16, 31), slice(31, 46)):
        one.add(X[part], ids=names[part], metadata=metadata[part])
    index = ShardedIndex(learner, n_shards=3)
    index.fit(X[:46], ids=names[:46], metadata=metadata[:46])

    def check(k=7, **options):
        assert_same(index.search(X[:9], k, **options), one.search(X[:9], k, **options))

    check(k=50)
    for either in (one, index):
        either.add(X[46:], ids=names[46:], metadata=metadata[46:])
        either.remove(names[::5])
    check()
    check(filter=np.arange(one.n_items_) % 3 == 0)
    check(filter=list(names[40:]))
    check(filter=lambda row: row["number"] > 30)
    check(exclude=[names[: i + 1] for i in range(9)])
    assert_array_equal(index.ids_, one.ids_)
    assert index.metadata_ == one.metadata_
    index.save(tmp_path, include_estimator=False)
    opened = ShardedIndex.load(tmp_path, estimator=learner).compact()
    assert opened.n_items_ == one.n_items_
    mask = np.arange(one.n_items_) % 3 == 0
    assert_same(opened.search(X, 7, filter=mask), one.search(X, 7, filter=mask))


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_any_sequence_of_changes(client, data):
    seed = data.draw(st.integers(0, 1000))
    rng = np.random.default_rng(seed)

    def draw(n):
        return rng.integers(0, 3, (n, 4)).astype(np.float64)

    X = draw(data.draw(st.integers(1, 40)))
    n_shards = data.draw(st.integers(1, 5))
    one = SimilarityIndex(COSINE).fit(X)
    index = ShardedIndex(COSINE, n_shards=n_shards).fit(X)
    for change in data.draw(
        st.lists(st.sampled_from(["add", "remove", "compact"]), max_size=4)
    ):
        if change == "add":
            more = draw(rng.integers(1, 9))
            one.add(more)
            index.add(more)
        elif change == "remove":
            gone = rng.choice(one.ids_, rng.integers(0, one.n_items_ + 1), False)
            one.remove(gone)
            index.remove(gone)
        else:
            one.compact()
            index.compact()
        queries, k = draw(3), int(rng.integers(1, 12))
        assert_same(index.search(queries, k), one.search(queries, k))
        options = {"exclude": rng.integers(0, 50, 3)}
        if one.n_items_ > 0:
            options["filter"] = rng.random(one.n_items_) < 0.5
        assert_same(
            index.search(queries, k, **options), one.search(queries, k, **options)
        )
    assert_array_equal(index.ids_, one.ids_)
    assert index.n_items_ == one.n_items_


@pytest.mark.parametrize("backend", ["faiss", "usearch"])
def test_other_backends(backend, client, points, tmp_path):
    pytest.importorskip(backend)
    options = {"faiss": {"factory": "Flat"}, "usearch": {"exact": True}}[backend]
    params = {"backend": backend, "backend_options": options}
    one = SimilarityIndex(COSINE, **params).fit(points[:300])
    index = ShardedIndex(COSINE, **params).fit(points[:300])
    for either in (one, index):
        either.add(points[300:]).remove([3, 100, 350])
    scores, _ = one.search(points[:20], 9)
    assert_allclose(index.search(points[:20], 9)[0], scores, rtol=1e-5)
    index.save(tmp_path, include_estimator=False)
    with pytest.raises(RuntimeError, match="trusted"):
        ShardedIndex.load(tmp_path, estimator=COSINE)


def test_groups_and_blocks_of_queries(counts, client, monkeypatch):
    X, y = counts
    learner = MemoryVectorQuery(CosineSimilarity()).fit(X, y)
    groups = np.arange(20) % 4
    expected = SimilarityIndex(learner).fit(X).search(X[:20], 6, groups=groups)
    index = ShardedIndex(learner).fit(X)
    found = index.search(X[:20], 6, groups=groups)
    assert_allclose(found[0], expected[0], rtol=1e-12)
    assert_array_equal(found[1], expected[1])
    expected = index.search(X[:12], 6, exclude=np.arange(12))
    monkeypatch.setattr("sklearn_simlearn.index.sharded._search.MESSAGE", 1)
    with sklearn.config_context(working_memory=0.01):
        assert_same(index.search(X[:12], 6, exclude=np.arange(12)), expected)


def test_a_new_estimator(counts, client):
    X, y = counts[0].toarray(), counts[1]
    plain = OASIS(holdout=None, n_triplets=100, random_state=0)
    index = ShardedIndex(plain).fit(X, y)
    index.remove([1, 30])
    longer = clone(plain).set_params(n_triplets=900).fit(X, y)
    assert index.set_estimator(longer) is index
    assert index.estimator is plain
    assert index.estimator_ is longer
    one = SimilarityIndex(longer).fit(X).remove([1, 30])
    assert_same(index.search(X[:9]), one.search(X[:9]))
    cosine = CosineSimilarity().fit(X)
    with pytest.raises(ValueError, match="not encode items as they are stored"):
        index.set_estimator(cosine)
    index = ShardedIndex(longer, store_items=True).fit(X).remove([1, 30])
    assert index.set_estimator(cosine) is index
    one = SimilarityIndex(cosine).fit(X).remove([1, 30])
    assert_same(index.search(X[:9]), one.search(X[:9]))


def test_upsert_and_results(client, points):
    X, names = points, np.array([f"n{i}" for i in range(400)])

    def describe(rows):
        return [{"row": int(i)} for i in rows]

    one = SimilarityIndex(COSINE).fit(
        X[:300], ids=names[:300], metadata=describe(range(300))
    )
    index = ShardedIndex(COSINE, n_shards=3)
    index.fit(X[:300], ids=names[:300], metadata=describe(range(300)))
    rows, ids = np.arange(300, 320), np.r_[names[[3, 250, 120]], names[300:317]]
    for each in (one, index):
        assert each.upsert(X[rows], ids, metadata=describe(rows)) is each
        assert len(each) == 317
    found, expected = index.search(X[:30], 12), one.search(X[:30], 12)
    assert_same(found, expected)
    assert isinstance(found, SearchResult)
    assert found.missing == []
    # The metadata is that of the searched state, even after later changes.
    index.remove(index.ids_[:200]).compact()
    assert found.metadata == expected.metadata
    assert found.to_frame().equals(expected.to_frame())
    one.remove(one.ids_[:200])
    assert_same(index.search(X[:30], 12), one.search(X[:30], 12))
    assert_array_equal(index.ids_, one.ids_)
    for call, message in [
        (lambda: index.upsert(X[:1], None, describe([1])), "requires the ids"),
        (lambda: index.upsert(X[:2], ["a", "a"], describe([1, 2])), "unique"),
        (lambda: index.upsert(X[:1], ["a"]), "has metadata"),
        (lambda: index.upsert(da.from_array(X[:4]), names[:4]), "in the memory"),
        (lambda: index.search(X, filter="row"), "filter must be a boolean mask"),
        (lambda: index.search(X, k=True), "k must be"),
    ]:
        state = index._state
        with pytest.raises(ValueError, match=message):
            call()
        assert index._state is state


def test_changes_compact_the_shards(client, points):
    index = ShardedIndex(COSINE, n_shards=3).fit(points[:300])
    one = SimilarityIndex(COSINE).fit(points[:300])
    for first in range(0, 240, 40):
        for each in (index, one):
            each.remove(range(first, first + 40))
            each.add(points[300:310])
        held = sum(int(runs.length.sum()) for runs in index._state.runs)
        assert held <= len(index) / 0.75 + 40
        assert len(index._state.removed) <= 0.25 * held + 40
        assert_same(index.search(points[:20], 15), one.search(points[:20], 15))
        mask = np.arange(len(one)) % 3 == 0
        found = index.search(points[:20], 15, filter=mask)
        assert_same(found, one.search(points[:20], 15, filter=mask))
    assert_array_equal(index.ids_, one.ids_)


# -- sources --


def test_every_source_gives_the_same_index(client, points, tmp_path):
    X, names = points, np.array([f"n{i}" for i in range(400)])
    expected = SimilarityIndex(COSINE).fit(X).search(X[:30], 12)
    named = SimilarityIndex(COSINE).fit(X, ids=names).search(X[:30], 12)
    cut = [X[:90], X[90:90], X[90:250], X[250:]]
    array = da.concatenate([da.from_array(part, chunks=(200, 3)) for part in cut])
    table = {"name": names, "vector": list(X), "even": np.arange(400) % 2}
    pd.DataFrame(table).to_parquet(tmp_path / "table", row_group_size=150)
    frame = dd.read_parquet(tmp_path / "table", split_row_groups=True)
    assert frame.npartitions == 3
    dense, sparse_files = [], []
    for i, part in enumerate([X[:90], X[90:250], X[250:]]):
        np.save(tmp_path / f"{i}.npy", part)
        sparse.save_npz(tmp_path / f"{i}.npz", sparse.csr_array(part))
        dense.append(tmp_path / f"{i}.npy")
        sparse_files.append(str(tmp_path / f"{i}.npz"))
        folder = tmp_path / "indexes" / f"{i}"
        SimilarityIndex(COSINE).fit(part).save(folder, include_estimator=i == 0)

    def fit(source, **options):
        return ShardedIndex(COSINE).fit(source, **options).search(X[:30], 12)

    assert_same(fit(array), expected)
    assert_same(fit(frame["vector"]), expected)
    assert_same(fit(frame[["vector"]]), expected)
    vectors = pd.Series(list(X)).astype(pd.ArrowDtype(pa.list_(pa.float32())))
    assert_same(fit(dd.from_pandas(vectors, npartitions=2)), expected)
    with pytest.raises(RuntimeError, match="convert-string"):
        fit(dd.from_pandas(pd.Series(list(X)), npartitions=2))
    assert_same(fit(dense), expected)
    of_words = SimilarityIndex(COSINE).fit(sparse.csr_array(X)).search(X[:30], 12)
    assert_same(fit(sparse_files), of_words)
    assert_same(fit(frame["vector"], ids=frame["name"]), named)
    parts = [names[:90], names[90:250], names[250:]]
    assert_same(fit(dense, ids=parts), named)
    opened = ShardedIndex.load(tmp_path / "indexes", trusted=())
    assert_same(opened.search(X[:30], 12), expected)
    assert opened.shards_ == [str(tmp_path / "indexes" / f"{i}") for i in range(3)]

    index = ShardedIndex(COSINE).fit(frame["vector"], metadata=frame[["even"]])
    _, ids = index.search(X[:30], 12, filter=lambda table: table["even"] == 1)
    assert (ids % 2 == 1).all()
    # Items that are not in memory become new shards.
    index = ShardedIndex(COSINE).fit(dense[:1]).add(dense[1:])
    assert_same(index.search(X[:30], 12), expected)
    assert index.shards_ == [str(path) for path in dense]
    wide = pd.DataFrame(X, columns=list("abcdef"))
    cosine = CosineSimilarity().fit(wide)
    index = ShardedIndex(cosine).fit(dd.from_pandas(wide, npartitions=3, sort=False))
    assert_array_equal(index.feature_names_in_, list("abcdef"))
    one = SimilarityIndex(cosine).fit(wide)
    assert_same(index.search(wide[:30], 12), one.search(wide[:30], 12))


def test_invalid_arguments_are_refused(client, points, tmp_path):
    X = points
    for source, options, message in [
        (da.from_array(X, chunks=(100, 6)), {"ids": np.arange(399)}, "one entry per"),
        (da.from_array(X, chunks=(100, 6)), {"ids": np.arange(400) // 2}, "unique"),
        (X, {"ids": np.zeros(400, int)}, "unique"),
        (da.zeros((0, 6)), {}, "no items"),
        ([tmp_path / "no.npy"], {}, "no.npy"),
    ]:
        with pytest.raises((ValueError, RuntimeError), match=message):
            ShardedIndex(COSINE).fit(source, **options)
    with pytest.raises(ValueError, match="Fit the estimator first"):
        ShardedIndex(CosineSimilarity()).fit(da.from_array(X))
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", X.astype(np.float64))
    with pytest.raises(ValueError, match=r"same dtype, but it is float32 in .*a\.npy"):
        ShardedIndex(COSINE).fit([tmp_path / "a.npy", tmp_path / "b.npy"])
    with pytest.raises(ValueError, match="a list with the ids of each file"):
        ShardedIndex(COSINE).fit([tmp_path / "a.npy"], ids=np.arange(400))

    index = ShardedIndex(COSINE).fit(X, ids=np.arange(400))
    index.save(tmp_path / "saved", include_estimator=False)
    for call, message in [
        (lambda: index.search(X, 0), "k must be"),
        (lambda: index.search(X, partial="maybe"), "partial must be"),
        (lambda: index.search(X, filter=np.ones(3, bool)), "400 items; got shape"),
        (lambda: index.search(X, filter=lambda row: True), "requires metadata"),
        (lambda: index.search(X, exclude=[1]), "per query"),
        (lambda: index.search(X, filter=["a"]), "integers"),
        (lambda: index.search(X[:, :5]), "features"),
        (lambda: index.add(X), "Pass ids for new items"),
        (lambda: index.add(X, ids=np.arange(400)), "already has"),
        (lambda: index.add(X[:, :5], ids=np.arange(400, 800)), "features"),
        (lambda: index.remove([5, 999]), "no items with the ids"),
        (lambda: SimilarityIndex.load(tmp_path / "saved"), "ShardedIndex"),
        (lambda: ShardedIndex.load(tmp_path / "nowhere"), "not hold a saved index"),
        (lambda: ShardedIndex.load(tmp_path / "saved"), "require an estimator"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    assert index.n_items_ == 400
    with pytest.raises(TypeError, match="Use `save`"):
        pickle.dumps(index)
    with pytest.raises(AttributeError, match="not fitted"):
        _ = ShardedIndex(COSINE).ids_


def test_no_client(monkeypatch):
    def find_none():
        raise ValueError("No global client found and no address provided")

    monkeypatch.setattr(distributed, "get_client", find_none)
    with pytest.raises(ValueError, match="no current Dask client"):
        ShardedIndex(COSINE).fit(np.eye(3))


def test_the_example_of_the_guide(client, tmp_path):
    page = Path(__file__).parents[3] / "doc" / "user_guide" / "scaling.rst"
    _, _, code = page.read_text(encoding="utf-8").partition("   # search.py\n")
    code, _, _ = code.partition("\nTo run the same example")
    script = tmp_path / "search.py"
    script.write_text(textwrap.dedent(code), encoding="utf-8")
    process = subprocess.run(
        [sys.executable, script, client.scheduler.address],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("]") == 5


def test_a_save_that_fails_leaves_the_old_index(client, points, tmp_path, monkeypatch):
    index = ShardedIndex(COSINE).fit(points[:200])
    index.save(tmp_path)
    before = index.search(points[:9])
    index.add(points[200:])
    files = sorted(path.name for path in tmp_path.iterdir())

    def fail(*args):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "write_folder", fail)
        with pytest.raises(OSError, match="disk full"):
            index.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    opened = ShardedIndex.load(tmp_path, trusted=())
    assert_same(opened.search(points[:9]), before)
    assert index.n_items_ == 400
    index.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3  # header, arrays, shards
    opened = ShardedIndex.load(tmp_path, trusted=())
    assert_same(opened.search(points[:9]), index.search(points[:9]))


# -- faults --


def slowly(table):
    """Accept all items after a delay; used as a slow filter."""
    time.sleep(0.1)
    return np.ones(len(table), dtype=bool)


def test_workers_killed_in_the_middle_of_a_batch(client, all_workers, points):
    metadata = pd.DataFrame({"row": np.arange(400)})
    index = ShardedIndex(COSINE).fit(points, metadata=metadata)
    index.search(points[:1])
    one = SimilarityIndex(COSINE).fit(points)
    expected = one.search(points[:50], 9)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(2):
            address = home(client, index, 0)
            searches = [
                pool.submit(index.search, points[:50], 9, filter=slowly)
                for _ in range(4)
            ]
            time.sleep(0.05)
            kill(client, address)
            for search in searches:
                assert_same(search.result(), expected)

        # Also lose a worker while items are added.
        more = points[::-1][:100]
        searches = [
            pool.submit(index.search, points[:50], 9, filter=slowly) for _ in range(3)
        ]
        smallest = int(np.argmin([runs.length.sum() for runs in index._state.runs]))
        address = home(client, index, smallest)
        adding = pool.submit(index.add, more, metadata=metadata[:100])
        time.sleep(0.05)
        kill(client, address)
        one.add(more)
        afterwards = one.search(points[:50], 9)
        for search in searches:
            found = search.result()
            before = np.array_equal(found[1], expected[1])
            assert_same(found, expected if before else afterwards)
        adding.result()
    assert_same(index.search(points[:50], 9), afterwards)


def end_the_worker(table):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_query_that_kills_its_workers(client, all_workers, points):
    metadata = pd.DataFrame({"row": np.arange(400)})
    index = ShardedIndex(COSINE, n_shards=1).fit(points, metadata=metadata)
    expected = index.search(points[:9])
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        pytest.raises(RuntimeError, match="workers were lost"),
    ):
        index.search(points[:9], filter=end_the_worker)
    assert_same(index.search(points[:9]), expected)


def test_an_unavailable_shard(client, all_workers, points, tmp_path):
    paths = [tmp_path / f"{i}.npy" for i in range(3)]
    for path, part in zip(paths, np.split(points[:300], 3), strict=True):
        np.save(path, part)
    index = ShardedIndex(COSINE).fit(paths)
    expected = index.search(points[:9])
    paths[1].rename(tmp_path / "away")
    kill(client, home(client, index, 1))
    with pytest.raises(
        RuntimeError, match=r"are not available: .*1\.npy.*No such file"
    ):
        index.search(points[:9])
    found = index.search(points[:9], partial="allow")
    assert found.missing == [str(paths[1])]
    rest = np.r_[0:100, 200:300]
    others = SimilarityIndex(COSINE).fit(points[rest], ids=rest).search(points[:9])
    assert_same(found, others)
    with pytest.raises(RuntimeError, match="are not available"):
        index.remove([5])
    (tmp_path / "away").rename(paths[1])
    assert_same(index.search(points[:9]), expected)
    found = index.search(points[:9], partial="allow")
    assert_same(found, expected)
    assert found.missing == []


@pytest.mark.parametrize("fault", ["missing", "header", "block"])
def test_a_saved_shard_that_is_damaged(client, points, tmp_path, fault):
    X = points[:300]
    metadata = pd.DataFrame({"row": range(300)})
    index = ShardedIndex(COSINE, n_shards=3).fit(X, metadata=metadata)
    index.save(tmp_path / "saved")
    (shard,) = (tmp_path / "saved").glob("shards-*/0001")
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "saved", copy)
    (shard,) = copy.glob("shards-*/0001")
    if fault == "missing":
        shutil.rmtree(shard)
    else:
        (path,) = (
            [shard / "index.json"]
            if fault == "header"
            else shard.glob("arrays-*/items_items_0.npy")
        )
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(data)
    if fault == "block":  # verified when it is first read
        opened = ShardedIndex.load(copy, trusted=())
    else:
        with pytest.warns(UserWarning, match=r"are not available: '.*0001'"):
            opened = ShardedIndex.load(copy, trusted=())
    assert len(opened) == 300
    with pytest.raises(RuntimeError, match=r"are not available: '.*0001'"):
        opened.search(X[:9])
    found = opened.search(X[:9], partial="allow")
    assert found.missing == [str(shard)]
    rest = np.r_[0:100, 200:300]
    others = SimilarityIndex(COSINE).fit(X[rest], ids=rest).search(X[:9])
    assert_same(found, others)
    assert_array_equal(found.to_frame()["row"], found.ids.ravel())


def test_forged_rows_are_refused(client, points, tmp_path):
    index = ShardedIndex(COSINE, n_shards=2).fit(points[:20])
    index.remove([3, 12]).save(tmp_path)
    header, arrays, _ = storage.open_folder(tmp_path, mmap=False)
    arrays = {name: np.array(array) for name, array in arrays.items()}
    forgeries: list = [
        {"removed": [3.0, 12.0]},
        {"removed": [12, 3]},
        {"removed": [-1, 3]},
        {"removed": [3, 20]},
        {"removed": [3, 2**63 - 1]},
        {"removed": [[3, 12]]},
        {"start_0": [1]},  # row 10 is in two runs
        {"start_0": [-1]},
        {"start_1": [11]},  # row 20 does not exist
        {"start_1": [2**63 - 1]},
        {"start_0": [0, 5]},
        {"start_0": [0, 5], "length_0": [20, -10]},
        {"n_rows": 23},
        {"n_rows": -1},
        {"n_rows": 2**63},
        {"next_id": -1},
        {"next_id": 10**30},
        {"shards": header["shards"][:1] * 2},
    ]
    for forged in forgeries:
        values = {name: forged.get(name, value) for name, value in header.items()}
        rows = {name: np.array(forged.get(name, arrays[name])) for name in arrays}
        storage.write_folder(tmp_path, values, rows)
        with pytest.raises(storage.DamagedError):
            ShardedIndex.load(tmp_path, estimator=COSINE)
    storage.write_folder(tmp_path, header, arrays)
    again = ShardedIndex.load(tmp_path, estimator=COSINE)
    assert_array_equal(again.ids_, index.ids_)
    # An index without items has no rows.
    again.remove(again.ids_).compact().save(tmp_path)
    assert len(ShardedIndex.load(tmp_path, estimator=COSINE)) == 0


def test_memory_of_workers_stays_bounded(client, all_workers, rng):
    X = rng.random((20_000, 64), dtype=np.float32)
    before = held_keys(client)
    index, one = ShardedIndex(COSINE).fit(X), SimilarityIndex(COSINE).fit(X)
    for i in range(6):
        for either in (index, one):
            either.add(X[:50]).remove(np.arange(20 * i, 20 * i + 20))
    changed = int(np.argmax([len(runs.start) for runs in index._state.runs]))
    kill(client, home(client, index, changed))
    assert_same(index.search(X[:20]), one.search(X[:20]))
    # Workers hold exactly one version of each shard: items, their codes with a step and
    # an error, ids, and the mask of removed items.
    shards = {future.key for future in index._state.futures}
    deadline = time.monotonic() + 20
    while held_keys(client) - before != shards and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.1)
    assert held_keys(client) - before == shards
    n_bytes = client.nbytes(shards, summary=False)
    assert sum(n_bytes.values()) < 1.1 * 20_300 * (5 * 64 + 8 + 8 + 1)


def held_keys(client):
    return {key for keys in client.has_what().values() for key in keys}


# -- size of messages --


def count_sent_bytes():
    """Count the bytes that this process sends from now on."""
    from distributed.comm import tcp

    if not hasattr(tcp.TCP, "n_sent"):
        write = tcp.TCP.write

        async def counted(self, *args, **kwargs):
            n_bytes = await write(self, *args, **kwargs)
            tcp.TCP.n_sent += n_bytes
            return n_bytes

        tcp.TCP.write = counted
    tcp.TCP.n_sent = 0


def sent_bytes():
    from distributed.comm import tcp

    return tcp.TCP.n_sent


@contextmanager
def counted_bytes(client):
    """Return the bytes sent by client and scheduler together, and by each worker."""
    client.run(count_sent_bytes)
    count_sent_bytes()
    result = {}
    yield result
    result["client"] = sent_bytes()
    result["workers"] = sum(client.run(sent_bytes).values())


def test_bytes_over_the_wire(client, all_workers, rng):
    X = rng.random((20_000, 64), dtype=np.float32)
    index = ShardedIndex(COSINE).fit(X)
    index.search(X[:1])
    n_queries, k, n_batches = 100, 10, 5
    with counted_bytes(client) as sent, ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda _: index.search(X[:n_queries], k), range(n_batches)))
    n_messages = n_batches * N_WORKERS
    queries = n_messages * n_queries * 64 * 4
    results = n_messages * n_queries * k * (4 + 8 + 8)
    # Queries and results pass through the scheduler. Each message has a header.
    head = 20_000
    assert queries < sent["client"] < 2 * queries + results + n_messages * head
    assert results < sent["workers"] < 2 * results + n_messages * head
    assert sent["workers"] < X.nbytes / 5

    with counted_bytes(client) as sent:
        index.add(X[:10])
        index.remove([0])
    assert sent["workers"] < n_messages * head


# -- learning --


@pytest.fixture(scope="module")
def digits():
    """Return training digits sorted by class, in ten partitions of one class each."""
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32)
    order = np.argsort(y[:1200], kind="stable")
    lengths = tuple(np.bincount(y[:1200]).tolist())
    X_train, y_train = X[:1200][order], y[:1200][order]
    partitions = (
        da.from_array(X_train, chunks=(lengths, 64)),
        da.from_array(y_train, chunks=(lengths,)),
    )
    return X_train, y_train, partitions, (X[1200:], y[1200:])


@pytest.mark.parametrize(
    "params", [{"holdout": "samples"}, {"holdout": None, "n_triplets": 20_000}]
)
def test_oasis_on_partitions_of_one_class_each(params, digits, client):
    X, y, partitions, test = digits
    oasis = OASIS(random_state=0, **params)
    here = clone(oasis).fit(X, y).score(*test)
    there = clone(oasis).fit(*partitions)
    # Other random seeds change the result by 0.007 (benchmarks/bench_scale.py).
    assert there.score(*test) > here - 0.01
    assert there.n_features_in_ == 64
    # Threads of this process give a bitwise equal result.
    with dask.config.set(scheduler="threads"):
        threads = clone(oasis).fit(*partitions)
    assert_array_equal(there.transform(X[:9]), threads.transform(X[:9]))
    assert_array_equal(there.loss_curve_, threads.loss_curve_)


def test_oasis_in_rounds(digits, client, monkeypatch):
    X, _, partitions, test = digits
    oasis = OASIS(holdout=None, n_triplets=9000, psd=2500, random_state=0)
    monkeypatch.setattr(dask_batches, "TOGETHER", 4)
    there = clone(oasis).fit(*partitions)
    assert there.n_triplets_ == 9000
    assert there.score(*test) > CosineSimilarity().fit(X).score(*test) + 0.02
    assert np.linalg.eigvalsh(there.W_).min() > -1e-4


def test_oasis_on_all_kinds_of_partitions(counts, client):
    X, y = counts
    names = np.array([f"class {label}" for label in y])
    names[y < 0] = "none"
    frame = dd.from_pandas(
        pd.DataFrame(X.toarray(), columns=[f"w{i}" for i in range(X.shape[1])]),
        npartitions=3,
        sort=False,
    )
    oasis = OASIS(holdout=None, n_triplets=500, random_state=0)
    from_frame = clone(oasis).fit(frame, da.from_array(names, chunks=22))
    assert from_frame.feature_names_in_[0] == "w0"
    blocks = [
        da.from_delayed(dask.delayed(X[i : i + 22]), (22, X.shape[1]), meta=X[:0])
        for i in (0, 22, 44)
    ]
    from_csr = clone(oasis).fit(da.concatenate(blocks), names)
    assert_allclose(from_csr.W_, from_frame.W_, rtol=1e-8, atol=1e-10)
    relevance = (y[:, None] == np.arange(12)).astype(float)
    from_matrix = clone(oasis).fit(da.concatenate(blocks), relevance)
    assert from_matrix.n_updates_ > 50
    by_default = OASIS(n_triplets=500, random_state=0).fit(da.concatenate(blocks), y)
    start = CosineSimilarity(power=0.75).fit(X)
    assert by_default.score(X, y) > start.score(X, y) - 0.01


def test_targets_that_cannot_be_learned(digits, client):
    _, y, (X, _), _ = digits
    for call, error, message in [
        (lambda: OASIS().fit(X, y[:5]), ValueError, "one entry per row"),
        (lambda: OASIS().fit(X, da.from_array(y)), ValueError, "partitions"),
        (lambda: OASIS().fit(X, np.arange(1200)), ValueError, "no triplet"),
        (lambda: OASIS(holdout=None).fit(X, y[:, None]), ValueError, "single column"),
        (lambda: OASIS(holdout=None).fit(X / 0, y), ValueError, "NaN|infinity"),
        (lambda: OASIS(psd="final").fit(X, y), ValueError, "plain form"),
        (lambda: HistogramRankSVM().fit(X, y), TypeError, "in memory"),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_partial_fit_over_partitions(digits, client):
    X, y, partitions, test = digits
    for learner in (
        SparseMahalanobisLearner(random_state=0),
        OASIS(n_triplets=2000, random_state=0),
    ):
        there = clone(learner).partial_fit(*partitions).partial_fit(*partitions)
        order = np.random.default_rng(0).permutation(1200)
        here = clone(learner)
        for rows in np.array_split(np.tile(order, 2), 20):
            here.partial_fit(X[rows], y[rows])
        assert there.score(*test) > here.score(*test) - 0.01
        assert there.score(*test) > CosineSimilarity().fit(X).score(*test)


def test_scores_of_partitions(digits, counts, client):
    X, y, partitions, _ = digits
    model = make_pipeline(StandardScaler(), OASIS(holdout="samples", random_state=0))
    model.fit(X[::3], y[::3])
    # Products of partitions have other rounding errors, so items of nearly equal
    # similarity may change places.
    with sklearn.config_context(working_memory=8):
        score = map_scorer(model, *partitions)
    assert_allclose(score, map_scorer(model, X, y), rtol=1e-6)
    words, labels = counts
    learner = SparseMahalanobisLearner(max_iter=3, random_state=0).fit(words, labels)
    blocks = da.concatenate(
        [
            da.from_delayed(dask.delayed(words[i : i + 22]), (22, 30), meta=words[:0])
            for i in (0, 22, 44)
        ]
    )
    weight = np.linspace(1, 2, 66)
    assert_allclose(
        map_scorer(learner, blocks, labels, sample_weight=weight),
        map_scorer(learner, words, labels, sample_weight=weight),
    )
    report, expected = (
        retrieval_report(
            learner, words[:9], labels[:9], X_database=items, y_database=labels
        )
        for items in (blocks, words)
    )
    assert_allclose(report.ndcg_at_10, expected.ndcg_at_10)
    with pytest.raises(TypeError, match="in memory"):
        retrieval_report(MemoryVectorQuery().fit(words), blocks, labels, groups=labels)


# -- joblib's backend --


@contextmanager
def on_the_cluster():
    with joblib.parallel_config(backend="dask"):
        yield


def test_grid_search_and_cross_validation(digits, client):
    X, y = digits[0][::4], digits[1][::4]
    pipeline = make_pipeline(
        StandardScaler(), OASIS(holdout=None, n_triplets=500, random_state=0)
    )
    search = GridSearchCV(pipeline, {"oasis__C": [0.01, 0.1]}, cv=2)
    here = clone(search).fit(X, y)
    with on_the_cluster():
        there = clone(search).fit(X, y)
        scores = cross_val_score(pipeline, X, y, cv=3)
    assert_allclose(
        there.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"]
    )
    assert there.best_params_ == here.best_params_
    assert_allclose(scores, cross_val_score(pipeline, X, y, cv=3))


def test_rankers_and_references(digits, client):
    X, y = digits[0][::4], digits[1][::4]
    rankers = OASIS(holdout=None, n_triplets=300, n_models=3, random_state=0)
    references = AngularBilinearRanker(n_references=20, random_state=0)
    for learner in (rankers, references):
        here = clone(learner).fit(X, y)
        with on_the_cluster():
            there = clone(learner).fit(X, y)
        assert_array_equal(here.transform(X[:9]), there.transform(X[:9]))


def test_numbers_of_removed_items_are_not_given_again(client, rng, tmp_path):
    X = rng.normal(size=(40, 5))
    index = ShardedIndex(COSINE).fit(X[:10])
    index.remove([8, 9]).compact().add(X[10:12])
    assert sorted(index.ids_.tolist()) == [*range(8), 10, 11]
    # Ids of the user count, too.
    index.add(X[12:13], ids=[13])
    index.add(X[13:15])
    assert sorted(index.ids_.tolist())[-4:] == [11, 13, 14, 15]
    index.remove([14, 15]).compact().save(tmp_path)
    opened = ShardedIndex.load(tmp_path, estimator=index.estimator_)
    opened.add(X[15:16])
    assert sorted(opened.ids_.tolist())[-3:] == [11, 13, 16]
    # Partitions become new shards.
    opened.add(da.from_array(X[16:20], chunks=(2, 5)))
    assert sorted(opened.ids_.tolist())[-5:] == [16, 17, 18, 19, 20]
    found = opened.search(X[16:20], k=1)[1].ravel()
    assert found.tolist() == [17, 18, 19, 20]
    opened.add(X[20:21], ids=[2**63 - 1])
    with pytest.raises(ValueError, match="cannot be numbered"):
        opened.add(X[21:22])
