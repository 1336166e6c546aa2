"""Journal of a saved index: changes survive, and damage is reported."""

import os
import sqlite3
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import Normalizer

from sklearn_simlearn._core.storage import DamagedError, pack, unpack
from sklearn_simlearn.compose import make_retrieval_pipeline
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.index._journal import (
    JOURNAL,
    LOCK,
    TABLE,
    Journal,
    ReplacedError,
    lock_writer,
)
from sklearn_simlearn.similarities import BM25Similarity, CosineSimilarity

RNG = np.random.default_rng(0)
DENSE = RNG.normal(size=(40, 6))
SPARSE = sparse.random_array((40, 30), density=0.2, rng=RNG, format="csr")
TEXTS = [f"word{i} word{i % 5} common" for i in range(40)]


def frame(rows):
    return pd.DataFrame({"year": np.arange(len(rows)), "name": list(map(str, rows))})


def make_index(X, **params):
    estimator = CosineSimilarity(use_idf=False)
    if isinstance(X, list):
        estimator = make_retrieval_pipeline(CountVectorizer(), BM25Similarity())
    return SimilarityIndex(estimator, **params)


def open_journal(folder, **options):
    """Open an index that writes its changes to the journal."""
    index = SimilarityIndex.load(folder, trusted=(), **options)
    index._journal = Journal(folder)
    return index


def assert_same(found, expected, X):
    # Scores may differ by rounding if items are in other blocks.
    first, second = found.search(X, k=8), expected.search(X, k=8)
    assert_allclose(first.scores, second.scores, rtol=1e-6)
    assert_array_equal(first.ids, second.ids)
    assert_array_equal(found.ids_, expected.ids_)
    if expected.metadata_ is not None:
        assert_array_equal(np.array(found.metadata_), np.array(expected.metadata_))


def change(index, X, metadata):
    """Make a change of each kind."""

    def make(rows):
        given = None if metadata is None else metadata(rows)
        return [X[row] for row in rows] if isinstance(X, list) else X[rows], given

    for rows in ([20, 21, 22], [23]):
        items, given = make(rows)
        index.add(items, ids=[f"n{row}" for row in rows], metadata=given)
    index.remove(["n3", "n21"])
    items, given = make([30, 31])
    index.upsert(items, ids=["n20", "n4"], metadata=given)
    index.remove(["n20"])


@pytest.mark.parametrize("store_items", [False, True])
@pytest.mark.parametrize(
    ("X", "metadata"),
    [
        (DENSE, None),
        (DENSE.astype(np.float32), frame),
        (SPARSE, lambda rows: [{"row": row} for row in rows]),
        (TEXTS, lambda rows: np.array([(row,) for row in rows], dtype=[("n", int)])),
    ],
    ids=["dense", "float32", "sparse", "texts"],
)
def test_changes_are_replayed(tmp_path, X, metadata, store_items):
    index = make_index(X, store_items=store_items)
    rows = range(20)
    index.fit(
        X[:20],
        ids=[f"n{row}" for row in rows],
        metadata=None if metadata is None else metadata(rows),
    )
    index.save(tmp_path)
    writer = open_journal(tmp_path)
    change(writer, X, metadata)
    assert writer._journal.n_changes == 5
    # A process that reads sees the changes while the journal is open, and afterwards.
    again = SimilarityIndex.load(tmp_path, trusted=())
    assert_same(again, writer, X[:5])
    writer._journal.close()
    again = SimilarityIndex.load(tmp_path, trusted=())
    change(index, X, metadata)
    assert_same(again, index, X[:5])
    assert again._journal is None
    assert SimilarityIndex.load(tmp_path).n_items_ == index.n_items_
    # The next save contains the changes and starts an empty journal.
    again.save(tmp_path)
    assert not list(tmp_path.rglob(f"{JOURNAL}*"))
    assert_same(SimilarityIndex.load(tmp_path, trusted=()), index, X[:5])


def test_numbers_continue(tmp_path):
    index = make_index(DENSE).fit(DENSE[:10])
    index.save(tmp_path)
    writer = open_journal(tmp_path)
    writer.add(DENSE[10:12]).remove([11]).add(DENSE[12:13])
    writer._journal.close()
    again = SimilarityIndex.load(tmp_path, trusted=())
    assert again.ids_[-2:].tolist() == [10, 12]
    assert again.add(DENSE[13:14]).ids_[-1] == 13


@pytest.mark.parametrize("backend", ["faiss", "usearch"])
def test_backends(tmp_path, backend):
    pytest.importorskip(backend)
    options = {"faiss": {"factory": "Flat"}, "usearch": {"exact": True}}[backend]
    index = SimilarityIndex(Normalizer(), backend=backend, backend_options=options)
    index.fit(DENSE[:20]).save(tmp_path)
    writer = open_journal(tmp_path)
    writer.add(DENSE[20:22]).remove([3])
    writer._journal.close()
    again = SimilarityIndex.load(tmp_path, trusted=())
    assert_same(again, writer, DENSE[:5])


def test_many_removals_compact(tmp_path):
    index = make_index(DENSE).fit(DENSE)
    index.save(tmp_path)
    writer = open_journal(tmp_path)
    for row in range(30):
        writer.remove([row])
    writer._journal.close()
    assert_same(SimilarityIndex.load(tmp_path, trusted=()), writer, DENSE[:5])


def test_a_change_that_fails_is_not_stored(tmp_path):
    make_index(DENSE).fit(DENSE[:20]).save(tmp_path)
    writer = open_journal(tmp_path)
    for fault in (
        lambda: writer.add(DENSE[:1], ids=[3]),
        lambda: writer.add(DENSE[:1, :4]),
        lambda: writer.add([[np.nan] * 6]),
        lambda: writer.remove([77]),
        lambda: writer.upsert(DENSE[:2], ids=[1, 1]),
    ):
        with pytest.raises(ValueError, match=r".+"):
            fault()
    assert writer._journal.n_changes == 0
    writer._journal._connection.close()
    with pytest.raises(OSError, match="could not be written"):
        writer.add(DENSE[:1])
    assert writer.n_items_ == 20
    writer._journal.close()


def test_one_process_writes(tmp_path):
    make_index(DENSE).fit(DENSE).save(tmp_path)
    lock = lock_writer(tmp_path)
    with pytest.raises(ValueError, match="Another process writes"):
        lock_writer(tmp_path)
    lock.close()
    lock_writer(tmp_path).close()


def test_another_index_is_saved_in_the_folder(tmp_path):
    make_index(DENSE).fit(DENSE[:20]).save(tmp_path)
    writer = open_journal(tmp_path)
    writer.add(DENSE[20:21])
    other = make_index(DENSE).fit(DENSE[:5])
    other.save(tmp_path)
    assert not writer._journal.is_current
    with pytest.raises(ReplacedError, match="Another index was saved"):
        writer.add(DENSE[21:22])
    assert writer.n_items_ == 21
    assert SimilarityIndex.load(tmp_path).n_items_ == 5
    writer._journal.close()
    journal = Journal(tmp_path)
    assert journal.is_current
    assert journal.n_changes == 0
    journal.close()


@pytest.mark.skipif(
    os.name == "nt" or os.geteuid() == 0, reason="needs a user without all rights"
)
def test_a_folder_that_cannot_be_written(tmp_path):
    make_index(DENSE).fit(DENSE[:20]).save(tmp_path)
    writer = open_journal(tmp_path)
    writer.add(DENSE[20:21])
    writer._journal.close()
    (arrays,) = tmp_path.glob("arrays-*")
    arrays.chmod(0o555)
    try:
        assert SimilarityIndex.load(tmp_path).n_items_ == 21
    finally:
        arrays.chmod(0o755)


# -- a process that is killed --

ADD = """
import sys
from test_journal import DENSE, open_journal
writer = open_journal(sys.argv[1])
for i in range(100_000):
    writer.add(DENSE[:3], ids=[f"{i}a", f"{i}b", f"{i}c"])
    print(i, flush=True)
"""


def test_a_killed_process_loses_no_change(tmp_path):
    folder = tmp_path / "index"
    make_index(DENSE).fit(DENSE[:2], ids=["x", "y"]).save(folder)
    here = os.path.dirname(__file__)
    process = subprocess.Popen(
        [sys.executable, "-c", ADD, folder],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([here, *sys.path])},
    )
    with process:
        for _ in range(40):
            last = int(process.stdout.readline())
        process.kill()
        # Lines that were printed before the end were acknowledged, too.
        last = int(([b"%d" % last] + process.stdout.read().split(b"\n")[:-1])[-1])
    ids = set(SimilarityIndex.load(folder, trusted=()).ids_) - {"x", "y"}
    n_changes = len(ids) // 3
    assert ids == {f"{i}{letter}" for i in range(n_changes) for letter in "abc"}
    assert n_changes in (last + 1, last + 2)


# -- damaged and forged journals --


@pytest.fixture
def folder(tmp_path):
    index = make_index(SPARSE, store_items=True)
    index.fit(SPARSE[:20], metadata=[{"row": row} for row in range(20)]).save(tmp_path)
    writer = open_journal(tmp_path)
    writer.add(SPARSE[20:22], metadata=[{"row": 20}, {"row": 21}])
    writer.remove([3])
    writer._journal.close()
    return tmp_path


def find_journal(folder):
    (path,) = folder.rglob(JOURNAL)
    return path


def test_a_damaged_journal_is_reported(folder):
    path, rng = find_journal(folder), np.random.default_rng(0)
    expected = SimilarityIndex.load(folder, trusted=())
    whole, n_refused = path.read_bytes(), 0
    for _ in range(60):
        data = bytearray(whole)
        if rng.random() < 0.2:
            data = data[: rng.integers(len(data))]
        else:
            for place in rng.integers(len(data), size=3):
                data[place] ^= int(rng.integers(1, 256))
        path.write_bytes(data)
        try:
            found = SimilarityIndex.load(folder, trusted=())
        except DamagedError:
            n_refused += 1
        else:
            # The bytes are not used, or the last changes are missing.
            n_items = found.n_items_
            assert n_items in (20, 21, 22)
            if n_items == 21:
                assert_same(found, expected, SPARSE[:5])
    assert n_refused > 20


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE VIEW more AS SELECT 1"],
        ["CREATE TRIGGER t AFTER INSERT ON changes BEGIN SELECT 1; END"],
        ["DROP TABLE changes", "CREATE VIEW changes AS SELECT 1 AS number, '' AS data"],
        ["DROP TABLE changes"],
        ["UPDATE changes SET data = 'text'"],
        ["UPDATE changes SET data = x'00'"],
        ["UPDATE changes SET data = zeroblob(100)"],
    ],
)
def test_a_forged_database_is_refused(folder, statements):
    with sqlite3.connect(find_journal(folder)) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    with pytest.raises(DamagedError, match=r"journal|change"):
        SimilarityIndex.load(folder)


@pytest.mark.skipif(os.name == "nt", reason="needs links and pipes")
@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_journal_is_a_regular_file(folder, tmp_path, end, kind):
    """Check that no file outside of the folder is opened, and that no call waits."""
    path, outside = find_journal(folder), tmp_path / "outside"
    path = path.with_name(path.name + end)
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(outside)
    else:
        (os.mkfifo if kind == "pipe" else os.mkdir)(path)
    for read in (SimilarityIndex.load, Journal):
        with pytest.raises(DamagedError, match="not a regular file"):
            read(folder)
    assert not outside.exists()


@pytest.mark.skipif(os.name == "nt", reason="needs links")
def test_a_lock_is_a_regular_file(folder, tmp_path):
    (folder / LOCK).symlink_to(tmp_path / "outside")
    with pytest.raises(DamagedError, match="not a regular file"):
        lock_writer(folder)
    assert not (tmp_path / "outside").exists()


def test_a_journal_that_cannot_be_opened(folder):
    find_journal(folder).write_bytes(b"not a database" * 1000)
    with pytest.raises(OSError, match="cannot be opened: file is not a database"):
        Journal(folder)


ENCODED = {"encoded": {"kind": "array"}}
ROWS = np.ones((1, 30))


@pytest.mark.parametrize(
    ("kind", "tables", "arrays", "message"),
    [
        ("drop", {}, {"ids": [1]}, "unknown kind"),
        ("remove", None, {"ids": [1]}, "unknown kind"),
        ("remove", {}, {}, "no array 'ids'"),
        ("remove", {}, {"ids": [77]}, "no items with the ids"),
        ("remove", {}, {"ids": ["a"]}, "ids of this index are integers"),
        ("add", {}, {"ids": [50]}, "is invalid"),
        ("add", {"encoded": 3}, {"ids": [50]}, "is invalid"),
        ("add", ENCODED, {"ids": [50], "encoded_values": ROWS}, "items are missing"),
        (
            "add",
            ENCODED | {"raw": {"kind": "array"}},
            {"ids": [50], "encoded_values": ROWS, "raw_values": [[1]]},
            "type of the other items",
        ),
        (
            "add",
            ENCODED,
            {"ids": [50], "encoded_values": np.inf * ROWS},
            "not finite",
        ),
        (
            "add",
            ENCODED,
            {"ids": [50], "encoded_values": np.ones((1, 31))},
            "wrong shape",
        ),
    ],
)
def test_a_forged_change_is_refused(folder, kind, tables, arrays, message):
    header = {"kind": kind, "tables": tables}
    data = pack(header, {name: np.array(array) for name, array in arrays.items()})
    with sqlite3.connect(find_journal(folder)) as connection:
        connection.execute("INSERT INTO changes (data) VALUES (?)", (data,))
    connection.close()
    with pytest.raises(ValueError, match=message):
        SimilarityIndex.load(folder)


def test_the_table_is_that_of_the_documentation(folder):
    with sqlite3.connect(find_journal(folder)) as connection:
        assert connection.execute("SELECT sql FROM sqlite_master").fetchall() == [
            (TABLE,)
        ]
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


# -- arrays as bytes --


def test_pack_and_unpack():
    arrays = {"a": np.arange(3), "b": np.zeros((0, 2)), "c": np.array(["x", "yy"])}
    data = pack({"n": 1}, arrays)
    index, found = unpack(data)
    assert index == {"n": 1}
    for name, array in arrays.items():
        assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        assert found[name].flags.aligned
    for cut in (0, 5, 20, len(data) - 1):
        with pytest.raises(DamagedError):
            unpack(data[:cut])
    with pytest.raises(DamagedError, match="after its end"):
        unpack(data + b"\0")
    with pytest.raises(ValueError, match="without pickle"):
        pack({}, {"a": np.array([{}])})
