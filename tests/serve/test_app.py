"""The service: requests, limits, changes, and a new index in the folder."""

import json
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline

pytest.importorskip("starlette")
pytest.importorskip("msgspec")
from starlette.testclient import TestClient

from sklearn_simlearn import MemoryVectorQuery
from sklearn_simlearn.compose import SimilarityUnion, make_retrieval_pipeline
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.index._journal import JOURNAL
from sklearn_simlearn.reranking import QueryExpansion
from sklearn_simlearn.serve import Limits, _app, create_app
from sklearn_simlearn.serve import _messages as messages
from sklearn_simlearn.serve._served import ServedIndex
from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BM25Similarity,
    CosineSimilarity,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 8))
COUNTS = sparse.csr_array(RNG.poisson(0.3, size=(50, 20)).astype(float))
TEXTS = [f"word{i} topic{i % 5} common" for i in range(50)]
METADATA = [{"lang": "de" if i % 2 else "en", "year": 2000 + i} for i in range(50)]
DEEP: list = []
for _ in range(800):
    DEEP = [DEEP]
TOKEN = "secret"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def fit(samples, **params):
    estimator = CosineSimilarity(use_idf=False)
    if isinstance(samples, list):
        estimator = make_retrieval_pipeline(CountVectorizer(), BM25Similarity())
    return SimilarityIndex(estimator, **params)


@pytest.fixture(scope="module")
def saved_texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    index = fit(TEXTS, store_items=True)
    ids = [f"n{i}" for i in range(50)]
    index.fit(TEXTS, ids=ids, metadata=METADATA).save(folder)
    return folder


@pytest.fixture
def texts(saved_texts, tmp_path):
    """Return a folder with an index of texts, which a test may change."""
    return Path(shutil.copytree(saved_texts, tmp_path / "texts"))


@pytest.fixture
def client(texts):
    with TestClient(create_app(texts, token=TOKEN)) as client:
        yield client


def post(client, path, body, status=200, **options):
    response = client.post(f"/indexes/{path}", json=body, **options)
    assert response.status_code == status, response.text
    return response.json()


def ask(index, body, status=200):
    """Search once in an index in memory."""
    with TestClient(create_app(index)) as client:
        answer = post(client, "index/search", body, status)
    return answer if status != 200 else answer["results"]


def ids_of(results):
    return [result["id"] for result in results]


# -- searches --


def test_texts(client):
    body = {"queries": [{"text": "word7"}, {"text": "topic3"}], "k": 3}
    first, second = post(client, "texts/search", body)["results"]
    assert first[0]["id"] == "n7"
    assert first[0]["text"] == TEXTS[7]
    assert first[0]["metadata"] == {"lang": "de", "year": 2007}
    assert ids_of(second) == ["n3", "n8", "n13"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vectors(dtype):
    index = fit(X).fit(X.astype(dtype))
    queries = [{"vector": row.tolist()} for row in X[:3]]
    expected = index.search(X[:3].astype(dtype), k=4)
    results = ask(index, {"queries": queries, "k": 4})
    assert [ids_of(part) for part in results] == expected.ids.tolist()
    scores = [[result["score"] for result in part] for part in results]
    assert_allclose(scores, expected.scores, rtol=1e-5)
    # A dict holds the non-zeros.
    queries[1] = {"vector": {str(i): value for i, value in enumerate(X[1])}}
    assert [ids_of(p) for p in ask(index, {"queries": queries, "k": 4})] == [
        ids_of(part) for part in results
    ]


def test_sparse_vectors():
    index = fit(COUNTS).fit(COUNTS)
    row = COUNTS[[4]]
    query = dict(zip(map(str, row.indices.tolist()), row.data.tolist(), strict=True))
    (results,) = ask(index, {"queries": [{"vector": query}]})
    assert ids_of(results) == index.search(row).ids[0].tolist()
    (results,) = ask(index, {"queries": [{"vector": row.toarray()[0].tolist()}]})
    assert ids_of(results) == index.search(row).ids[0].tolist()


def test_ids_as_queries():
    for index in (fit(X).fit(X), fit(X, store_items=True).fit(X)):
        results = ask(index, {"queries": [{"id": 5}, {"id": 7}], "k": 3})
        assert [ids_of(part) for part in results] == index.search(
            X[[5, 7]], k=3
        ).ids.tolist()
        assert ask(index, {"queries": [{"id": 77}]}, 404) == {
            "error": "The index has no item with the id 77."
        }
        assert "integers" in ask(index, {"queries": [{"id": "a"}]}, 422)["error"]
    asymmetric = SimilarityIndex(AsymmetricSimilarity()).fit(COUNTS)
    answer = ask(asymmetric, {"queries": [{"id": 5}]}, 422)
    assert "store_items=True" in answer["error"]
    mixed = {"queries": [{"id": 5}, {"vector": X[6].tolist()}], "k": 3}
    assert [ids_of(part) for part in ask(index, mixed)] == index.search(
        X[[5, 6]], k=3
    ).ids.tolist()


def test_several_queries_as_one():
    index = fit(X).fit(X)
    queries = [{"vector": row.tolist()} for row in X[:3]]
    (results,) = ask(index, {"queries": queries, "combine": True, "k": 5})
    scores = index.estimator_.similarity(X[:3], X).mean(axis=0)
    best = np.argsort(-scores)[:5]
    assert ids_of(results) == best.tolist()
    assert_allclose([result["score"] for result in results], scores[best])
    by_id = {"queries": [{"id": i} for i in range(3)], "combine": True, "k": 5}
    assert ids_of(ask(index, by_id)[0]) == best.tolist()
    sparse_index = fit(COUNTS).fit(COUNTS)
    (results,) = ask(sparse_index, by_id)
    scores = sparse_index.estimator_.similarity(COUNTS[:3], COUNTS).mean(axis=0)
    assert_allclose([r["score"] for r in results], np.sort(scores)[::-1][:5])


def test_memory_vectors():
    index = SimilarityIndex(MemoryVectorQuery()).fit(X)
    queries = [{"vector": row.tolist()} for row in X[:3]]
    (results,) = ask(index, {"queries": queries, "combine": True, "k": 5})
    expected = index.search(X[:3], k=5, groups=[0, 0, 0])
    assert ids_of(results) == expected.ids[0].tolist()


def test_reranking_steps_are_applied():
    index = fit(X, rerank=[QueryExpansion()], store_items=True).fit(X)
    expected = index.search(X[:2], k=5)
    queries = [{"vector": X[0].tolist()}, {"id": 1}]
    results = ask(index, {"queries": queries, "k": 5})
    assert [ids_of(part) for part in results] == expected.ids.tolist()
    assert ids_of(ask(index, {"queries": queries[:1], "exclude": [0]})[0])[0] != 0


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_records(frame):
    table = {"text": TEXTS, "a": X[:, 0], "b": X[:, 1]}
    words = make_pipeline(TfidfVectorizer(), CosineSimilarity(use_idf=False))
    numbers = CosineSimilarity(use_idf=False)
    union = SimilarityUnion(
        [
            ("words", words, "text"),
            ("numbers", numbers, ["a", "b"]),
        ]
    )
    index = SimilarityIndex(union, store_items=True).fit(frame(table))
    record = {"text": "word3", "a": 1, "b": 0.5}
    (results,) = ask(index, {"queries": [{"record": record}], "k": 3})
    expected = index.search(frame([record]), k=3)
    assert ids_of(results) == expected.ids[0].tolist()
    assert results[0]["text"] == TEXTS[results[0]["id"]]
    answer = ask(index, {"queries": [{"record": {"text": "a"}}]}, 422)
    assert "must have the columns" in answer["error"]
    for wrong in ({"a": "text"}, {"a": [1]}, {"text": 3, "a": "text"}):
        ask(index, {"queries": [{"record": record | wrong}]}, 422)


def test_filters_and_exclusions(client):
    body = {"queries": [{"text": "common"}], "k": 50}
    count = lambda **more: len(post(client, "texts/search", body | more)["results"][0])  # noqa: E731
    assert count() == 50
    assert count(filter={"lang": "de"}) == 25
    assert count(filter={"lang": ["de", "en"], "year": {"<": 2010, ">=": 2005}}) == 5
    assert count(filter={"year": {">": 3000}}) == 0
    assert count(exclude=["n1", "n2", "unknown"]) == 48
    for filter, fault in [
        ({"length": 1}, "unknown column"),
        ({"year": "a"}, "numbers"),
        ({"year": {"~": 1}}, "unknown operator"),
    ]:
        answer = post(client, "texts/search", body | {"filter": filter}, 422)
        assert fault in answer["error"]


def test_explanations(client):
    body = {"queries": [{"text": "word7 common"}], "ids": ["n7", "n8"]}
    first, second = post(client, "texts/explain", body)["explanations"]
    assert first["id"] == "n7"
    assert [part["name"] for part in first["parts"]] == ["word7", "common"]
    assert [part["name"] for part in second["parts"]] == ["common"]
    total = sum(part["value"] for part in first["parts"])
    assert first["score"] == pytest.approx(total)
    (found,) = post(client, "texts/search", {"queries": body["queries"], "k": 1})[
        "results"
    ]
    assert found[0]["score"] == pytest.approx(first["score"])
    # For several queries, it is the mean.
    body["queries"] += [{"id": "n8"}]
    combined = {"queries": body["queries"], "combine": True}
    (found,) = post(client, "texts/search", combined)["results"]
    scores = {result["id"]: result["score"] for result in found}
    first, _ = post(client, "texts/explain", body)["explanations"]
    assert first["score"] == pytest.approx(scores["n7"])
    post(client, "texts/explain", body | {"ids": ["x"]}, 404)


@pytest.mark.parametrize("queries", [[3], [3, 5], [3, None]])
def test_explanations_without_original_items(queries):
    index = SimilarityIndex(CosineSimilarity(use_idf=False)).fit(X)
    vectors = [X[6 if id_ is None else id_].tolist() for id_ in queries]
    named = [
        {"vector": vector} if id_ is None else {"id": id_}
        for id_, vector in zip(queries, vectors, strict=True)
    ]
    with TestClient(create_app(index)) as client:
        found, expected = (
            post(client, "index/explain", {"queries": some, "ids": [9, 2]})
            for some in (named, [{"vector": vector} for vector in vectors])
        )
    for one, other in zip(found["explanations"], expected["explanations"], strict=True):
        assert one["id"] == other["id"]
        assert one["score"] == pytest.approx(other["score"])
        names = [part["name"] for part in one["parts"]]
        assert names == [part["name"] for part in other["parts"]]


def test_items_are_not_queries_if_they_are_encoded_differently():
    estimator = make_retrieval_pipeline(CountVectorizer(), BM25Similarity())
    body = {"queries": [{"id": 3}], "ids": [2]}
    with TestClient(create_app(SimilarityIndex(estimator).fit(TEXTS))) as client:
        answer = post(client, "index/explain", body, 422)
    assert "store_items=True" in answer["error"]


def test_explanations_of_sets():
    index = SimilarityIndex(MemoryVectorQuery()).fit(X)
    body = {"queries": [{"vector": row.tolist()} for row in X[:3]], "ids": [4]}
    with TestClient(create_app(index)) as client:
        (found,) = post(client, "index/explain", body)["explanations"]
    ((expected,),) = index.explain(X[:3], [[4]], groups=[0, 0, 0])
    assert found["score"] == pytest.approx(expected.score)


def test_description(client):
    description = client.get("/indexes/texts").json()
    assert client.get("/indexes").json() == {"indexes": [description]}
    columns = description.pop("columns")
    assert description == {
        "name": "texts",
        "n_items": 50,
        "query": "text",
        "accepts_ids": True,
        "is_writable": True,
        "has_thumbnails": False,
    }
    lang, year = columns
    assert lang == {"name": "lang", "kind": "text", "values": ["de", "en"]}
    assert (year["kind"], year["minimum"], year["maximum"]) == ("number", 2000, 2049)


def test_metadata_of_any_type():
    frame = pd.DataFrame(
        {
            "when": pd.date_range("2020-01-01", periods=50),
            "n": [np.nan, *range(49)],
            "kind": pd.Categorical(["a", "b"] * 25),
            "flag": [True, False] * 25,
        }
    )
    index = fit(X).fit(X, metadata=frame)
    (results,) = ask(index, {"queries": [{"id": 0}], "k": 1})
    assert results[0]["metadata"] == {
        "when": "2020-01-01T00:00:00",
        "n": None,
        "kind": "a",
        "flag": True,
    }
    with TestClient(create_app(index)) as client:
        kinds = [c["kind"] for c in client.get("/indexes/index").json()["columns"]]
    assert kinds == ["other", "number", "text", "boolean"]


def test_several_indexes(texts, tmp_path):
    fit(X).fit(X).save(tmp_path / "vectors")
    app = create_app({"a": texts, "b": tmp_path / "vectors"})
    with TestClient(app) as client:
        assert [d["name"] for d in client.get("/indexes").json()["indexes"]] == [
            "a",
            "b",
        ]
        post(client, "a/search", {"queries": [{"text": "word1"}]})
        post(client, "b/search", {"queries": [{"id": 1}]})
        assert client.get("/health").json()["indexes"] == {"a": 50, "b": 50}


def test_metrics(client):
    post(client, "texts/search", {"queries": [{"text": "word1"}]})
    post(client, "texts/search", {"queries": []}, 422)
    text = client.get("/metrics").text
    assert 'simlearn_requests_total{action="search",status="200"} 1.0' in text
    assert 'simlearn_requests_total{action="search",status="422"} 1.0' in text
    assert 'simlearn_items{index="texts"} 50.0' in text
    assert 'simlearn_journal_changes{index="texts"} 0.0' in text


# -- safety --


def test_names_of_files_are_not_served(tmp_path):
    path = tmp_path / "text"
    path.write_text("a word")
    words = CountVectorizer(input="filename")
    estimator = make_pipeline(words, CosineSimilarity(use_idf=False))
    index = SimilarityIndex(estimator).fit([str(path)])
    with pytest.raises(ValueError, match="opens files"):
        create_app(index)


# -- bad requests --


@pytest.mark.parametrize(
    ("body", "status", "fault"),
    [
        ({}, 422, "required field `queries`"),
        ({"queries": []}, 422, "length >= 1"),
        ({"queries": [{}]}, 422, "exactly one"),
        ({"queries": [{"vector": [1]}]}, 422, "must have the field 'text'"),
        ({"queries": [{"text": 3}]}, 422, "Expected `str"),
        ({"queries": [{"text": "a", "id": "n1"}]}, 422, "exactly one"),
        ({"queries": [{"text": "a"}], "k": 0}, 422, ">= 1"),
        ({"queries": [{"text": "a"}], "k": 1001}, 422, "at most 1000"),
        ({"queries": [{"text": "a"}], "k": 10**30}, 422, "k"),
        ({"queries": [{"text": "a"}], "k": 2.5}, 422, "not an integer"),
        ({"queries": [{"text": "a"}] * 101}, 422, "at most 100"),
        ({"queries": [{"text": "a"}], "exclude": ["n1"] * 101}, 422, "at most 100"),
        ({"queries": [{"text": "a"}], "more": 1}, 422, "unknown field"),
        ({"queries": [{"id": "unknown"}]}, 404, "no item"),
        ({"queries": [{"id": 10**30}]}, 422, "ids"),
        ([], 422, "Expected `object`"),
    ],
)
def test_bad_searches(client, body, status, fault):
    answer = post(client, "texts/search", body, status)
    assert fault in answer["error"]


@pytest.mark.parametrize(
    ("vector", "fault"),
    [
        ([1] * 7, "must have 8 numbers"),
        ([1e300] * 8, "too large"),
        ({"8": 1}, "not the number of a feature"),
        ({"-1": 1}, "not the number of a feature"),
        ({"a": 1}, "not the number of a feature"),
        ({"1": 1, "01": 1}, "twice"),
        (["a"] * 8, "Expected `float`"),
        ([None] * 8, "Expected `float`"),
    ],
)
def test_bad_vectors(vector, fault):
    index = fit(X).fit(X.astype(np.float32))
    assert fault in ask(index, {"queries": [{"vector": vector}]}, 422)["error"]


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"", {}, 400),
        (b"{", {}, 400),
        (b"\xff", {}, 400),
        (b'{"queries": [{"vector": [NaN]}]}', {}, 400),
        (b'{"queries": [{"vector": [1e999]}]}', {}, 422),
        (b"[" * 100_000, {}, 422),
        (b'{"queries":' + b"[" * 100_000, {}, 422),
        (b'{"queries": [{"text": "a"}], "filter": ' + b'{"a":' * 90_000, {}, 422),
        (b'{"queries": [{"text": "a"}]}', {"content-type": "text/plain"}, 415),
        (b'{"queries": [{"text": "a"}]}', {"content-encoding": "gzip"}, 200),
        (b" " * 2_000_001, {}, 413),
    ],
)
def test_bad_bodies(texts, content, headers, status):
    headers = {"content-type": "application/json"} | headers
    with TestClient(create_app(texts, limits=Limits(body=2_000_000))) as client:
        response = client.post(
            "/indexes/texts/search", content=content, headers=headers
        )
    assert response.status_code in (status, 400), response.text
    assert (response.status_code == 200) == (status == 200)


@pytest.mark.parametrize(
    "path",
    [
        "/indexes/other/search",
        "/indexes/../texts/search",
        "/indexes/%2e%2e%2f%2e%2e%2fetc/search",
        "/indexes//search",
        "/page.html",
        "/..%2f..%2fetc/passwd",
        "/indexes/texts/arrays",
        "/index.json",
    ],
)
def test_unknown_addresses(client, path):
    body = {"queries": [{"text": "a"}]}
    response = client.post(path, json=body)
    assert response.status_code in (404, 405)
    assert response.json().keys() == {"error"}
    assert client.get(path).status_code in (404, 405)


def test_host_names(texts):
    app = create_app(texts, allowed_hosts=["localhost"])
    with TestClient(app, base_url="http://localhost:8000") as client:
        assert client.get("/health").status_code == 200
        hostile = client.get("/health", headers={"host": "evil.example"})
        assert hostile.status_code == 400


def test_headers_for_browsers(client):
    for path in ("/", "/page.js", "/health", "/nothing"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_headers_of_a_fault(texts, monkeypatch):
    monkeypatch.setattr(_app.ServedIndex, "search", lambda *args: 1 / 0)
    with TestClient(create_app(texts), raise_server_exceptions=False) as client:
        body = {"queries": [{"text": "a"}]}
        response = client.post("/indexes/texts/search", json=body)
        assert response.status_code == 500
        assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ZeroDivisionError("a detail"), 500, "The request failed. See the log."),
        (FileNotFoundError(2, "a detail", "/a/path"), 503, "A file of the index could"),
    ],
)
def test_a_fault_of_the_service_shows_no_details(
    error, status, message, texts, monkeypatch
):
    def fail(*args):
        raise error

    monkeypatch.setattr(_app.ServedIndex, "search", fail)
    with TestClient(create_app(texts), raise_server_exceptions=False) as client:
        answer = post(client, "texts/search", {"queries": [{"text": "a"}]}, status)
        assert answer["error"].startswith(message)
        assert "detail" not in answer["error"]
        assert "path" not in answer["error"]


def test_slow_and_many_requests(texts, monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(_app.ServedIndex, "search", lambda *args: go_on.wait(20))
    limits = Limits(seconds=0.2, waiting=1)
    with TestClient(create_app(texts, limits=limits)) as client:
        body = {"queries": [{"text": "a"}]}
        answer = post(client, "texts/search", body, 503)
        assert "more than 0.2 s" in answer["error"]
        # The thread is still busy.
        assert "waiting" in post(client, "texts/search", body, 503)["error"]
        assert client.get("/health").status_code == 200
        go_on.set()


# -- changes --


def test_changes_are_durable(client, texts):
    item = {"id": "new", "text": "fresh words", "metadata": METADATA[0]}
    answer = post(client, "texts/add", {"items": [item]}, headers=HEADERS)
    assert answer == {"n_items": 51, "ids": ["new"]}
    search = {"queries": [{"text": "word3"}], "k": 1}
    item = {"id": "n9", "text": "word3 word3", "metadata": METADATA[1]}
    post(client, "texts/upsert", {"items": [item]}, headers=HEADERS)
    post(client, "texts/remove", {"ids": ["n3", "n4"]}, headers=HEADERS)
    expected = post(client, "texts/search", search)["results"]
    assert expected[0][0]["id"] == "n9"
    assert 'journal_changes{index="texts"} 3.0' in client.get("/metrics").text
    # The answers came after the changes were stored.
    again = SimilarityIndex.load(texts, trusted=())
    assert again.n_items_ == 49
    assert "new" in again.ids_
    # A save empties the journal.
    assert post(client, "texts/save", None, headers=HEADERS) == {"n_items": 49}
    assert 'journal_changes{index="texts"} 0.0' in client.get("/metrics").text
    assert SimilarityIndex.load(texts).n_items_ == 49
    post(client, "texts/remove", {"ids": ["n5"]}, headers=HEADERS)
    assert SimilarityIndex.load(texts).n_items_ == 48
    assert post(client, "texts/search", search)["results"] == expected


@pytest.mark.parametrize(
    ("items", "fault"),
    [
        ([{"id": "n1", "text": "a", "metadata": {}}], "already has items"),
        ([{"text": "a", "metadata": {}}], "Pass ids"),
        ([{"id": "x", "text": "a"}], "Pass metadata"),
        ([{"id": "x", "metadata": {}}], "exactly one"),
        (
            [{"id": "x", "text": "a", "metadata": {}}, {"id": "y", "text": "a"}],
            "must have metadata, or none",
        ),
        ([{"id": "x", "text": "a"}, {"text": "a"}], "must have ids, or none"),
        ([{"id": 3, "text": "a", "metadata": {}}], "ids of this index are strings"),
        ([{"id": "x", "text": "a", "metadata": {}}] * 2, "unique"),
        ([{"id": "x", "text": "a", "metadata": {"deep": DEEP}}], "recursion"),
        ([], "length >= 1"),
    ],
)
def test_bad_items(client, texts, items, fault):
    answer = post(client, "texts/add", {"items": items}, 422, headers=HEADERS)
    assert fault in answer["error"]
    assert SimilarityIndex.load(texts).n_items_ == 50


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"n": np.arange(50), "s": ["a"] * 50}),
        pl.DataFrame({"n": np.arange(50), "s": ["a"] * 50}),
        np.array([(i, "a") for i in range(50)], dtype=[("n", int), ("s", "U5")]),
    ],
    ids=["pandas", "polars", "array"],
)
def test_metadata_of_new_items(tmp_path, table):
    fit(X).fit(X, metadata=table).save(tmp_path / "x")
    with TestClient(create_app(tmp_path / "x", token=TOKEN)) as client:
        item = {"vector": X[3].tolist(), "metadata": {"s": "b", "n": 3}}
        answer = post(client, "x/add", {"items": [item]}, headers=HEADERS)
        assert answer == {"n_items": 51, "ids": [50]}
        found = post(client, "x/search", {"queries": [{"id": 50}], "k": 2})
        assert found["results"][0][1]["metadata"] == {"n": 3, "s": "b"}
        for metadata in ({"n": 3}, {"n": "text", "s": "b"}):
            item = {"vector": X[3].tolist(), "metadata": metadata}
            post(client, "x/add", {"items": [item]}, 422, headers=HEADERS)
    again = SimilarityIndex.load(tmp_path / "x")
    assert len(again) == 51


CHANGES = [
    ("add", {"items": [{"id": "x", "text": "a", "metadata": {}}]}),
    ("upsert", {"items": [{"id": "n1", "text": "a", "metadata": {}}]}),
    ("remove", {"ids": ["n1"]}),
    ("save", None),
]


@pytest.mark.parametrize(("action", "body"), CHANGES)
@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Basic secret",
     "secret", "Bearer sécret".encode(), b"Bearer \xff"],
)  # fmt: skip
def test_a_wrong_token_never_writes(client, texts, action, body, authorization):
    headers = {} if authorization is None else {"Authorization": authorization}
    post(client, f"texts/{action}", body, 401, headers=headers)
    assert SimilarityIndex.load(texts).n_items_ == 50


@pytest.mark.parametrize(("action", "body"), CHANGES)
def test_without_a_token_the_service_is_read_only(texts, action, body):
    with TestClient(create_app(texts)) as client:
        post(client, f"texts/{action}", body, 403, headers=HEADERS)
    assert not list(texts.rglob(f"{JOURNAL}*"))


def test_a_token_of_other_letters(texts):
    token = "gehéim ключ"
    with TestClient(create_app(texts, token=token)) as client:
        for given, status in ((token, 200), ("gehéim", 401)):
            headers = {"Authorization": f"Bearer {given}".encode()}
            post(client, "texts/remove", {"ids": ["n1"]}, status, headers=headers)


def test_one_service_writes(texts):
    with (
        TestClient(create_app(texts, token=TOKEN)),
        pytest.raises(ValueError, match="Another process writes"),
    ):
        create_app(texts, token=TOKEN)
    with TestClient(create_app(texts, token=TOKEN)):
        pass


def test_bad_services(texts, tmp_path):
    with pytest.raises(ValueError, match="token must not be empty"):
        create_app(texts, token="")
    with pytest.raises(ValueError, match="in memory only"):
        create_app(fit(X).fit(X), token=TOKEN)
    with pytest.raises(ValueError, match="not a saved index"):
        create_app({"a": texts, "b": tmp_path}, token=TOKEN)
    for name in ("", "a/b", 3):
        with pytest.raises(ValueError, match="Names of indexes must be strings"):
            create_app({name: texts})
    # The folder is not locked after an error.
    with TestClient(create_app(texts, token=TOKEN)):
        pass


# -- a new index in the folder --


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_new_index_is_loaded(texts, monkeypatch):
    with TestClient(create_app(texts, token=TOKEN)) as client:
        monkeypatch.setattr(_app, "WATCH", 30)
        item = {"id": "old", "text": "old", "metadata": METADATA[0]}
        post(client, "texts/add", {"items": [item]}, headers=HEADERS)
        other = fit(TEXTS, store_items=True)
        other.fit(TEXTS[:5], ids=list("abcde"), metadata=METADATA[:5]).save(texts)
        answer = post(client, "texts/remove", {"ids": ["old"]}, 409, headers=HEADERS)
        assert "Another index was saved" in answer["error"]
        post(client, "texts/save", None, 409, headers=HEADERS)
        assert SimilarityIndex.load(texts).n_items_ == 5


def test_the_watch(texts, monkeypatch):
    monkeypatch.setattr(_app, "WATCH", 0.05)
    with TestClient(create_app(texts, token=TOKEN)) as client:
        other = fit(TEXTS, store_items=True)
        other.fit(TEXTS[:5], ids=list("abcde"), metadata=METADATA[:5]).save(texts)
        wait_until(lambda: client.get("/health").json()["indexes"] == {"texts": 5})
        post(client, "texts/remove", {"ids": ["a"]}, headers=HEADERS)
        assert SimilarityIndex.load(texts).n_items_ == 4
        # An index that cannot be loaded does not replace the one that is served.
        other.save(texts, include_estimator=False)
        time.sleep(0.2)
        post(client, "texts/search", {"queries": [{"text": "word1"}]})
        post(client, "texts/remove", {"ids": ["b"]}, 409, headers=HEADERS)


def test_a_reload_that_fails(texts, caplog):
    """Check that changes go on if the folder is damaged for a while."""
    served = ServedIndex("texts", texts, is_writable=True, max_pixels=1)
    (ids,) = texts.glob("arrays-*/ids.npy")
    whole = ids.read_bytes()
    ids.write_bytes(whole[:-1])
    served.refresh(force=True)
    ids.write_bytes(whole)
    assert served.remove(messages.Ids(["n1"])).n_items == 49
    assert SimilarityIndex.load(texts).n_items_ == 49
    # A journal of another program.
    fit(TEXTS, store_items=True).fit(TEXTS[:5]).save(texts)
    (arrays,) = texts.glob("arrays-*")
    (arrays / JOURNAL).write_bytes(b"not a database" * 1000)
    served.refresh()
    assert "was not loaded again: The journal" in caplog.messages[-1]
    (arrays / JOURNAL).unlink()
    served.refresh()
    assert len(served.index) == 5
    served.close()


# -- the description --


def test_the_description_fits_the_routes(client):
    description = client.get("/openapi.json").json()
    assert description["openapi"] == "3.1.0"
    search = description["components"]["schemas"]["Search"]
    assert search["properties"]["k"]["maximum"] == 1000
    # No index has thumbnails.
    assert "/indexes/{index}/thumbnail" not in description["paths"]
    for path, methods in description["paths"].items():
        for method, action in methods.items():
            is_change = action["operationId"] in ("add", "upsert", "remove", "save")
            assert ("403" in action["responses"]) == is_change
            path = path.replace("{index}", "texts")
            response = client.request(method, path, headers=HEADERS)
            assert response.status_code not in (404, 405, 500), path
            assert str(response.status_code) in action["responses"]
    json.dumps(description)


ITEM = {"text": "new", "id": "new", "metadata": {"year": 1, "lang": None}}


@pytest.mark.parametrize(
    ("action", "body", "is_valid"),
    [
        ("Search", {"queries": [{"text": "word1"}], "k": 3.0}, True),
        ("Search", {"queries": [{"id": "n3"}], "exclude": ["n3", "unknown"]}, True),
        (
            "Search",
            {"queries": [{"text": "word1"}], "filter": {"year": {"<": 9}}},
            True,
        ),
        ("Search", {"queries": [{"text": "word1"}], "filter": {"year": [1, 2]}}, True),
        ("Search", {"queries": [{"text": "word1"}], "filter": {"year": "1"}}, False),
        ("Search", {"queries": [{"text": "word1"}], "filter": {"m": 1}}, False),
        (
            "Search",
            {"queries": [{"text": "word1"}], "filter": {"year": {"~": 1}}},
            False,
        ),
        ("Search", {"queries": [{"text": "word1"}], "k": 3.5}, False),
        ("Search", {"queries": [{"text": "word1"}], "exclude": [3]}, False),
        ("Search", {"queries": [{"vector": [1.0]}]}, False),
        ("Search", {"queries": [{"text": "word1", "id": "n3"}]}, False),
        ("Search", {"queries": []}, False),
        ("Explain", {"queries": [{"text": "word1"}], "ids": ["n1"]}, True),
        ("Explain", {"queries": [{"text": "word1"}], "ids": []}, False),
        ("Items", {"items": [ITEM]}, True),
        ("Items", {"items": [{"text": "new", "metadata": {}}]}, False),
        ("Items", {"items": [{"text": "new", "id": "new"}]}, False),
        ("NamedItems", {"items": [ITEM]}, True),
        ("Ids", {"ids": ["n1"]}, True),
        ("Ids", {"ids": [1]}, False),
    ],
)
def test_the_description_fits_the_index(client, action, body, is_valid):
    description = client.get("/openapi.json").json()
    assert accepts(description, action, body) == is_valid
    name = {"Items": "add", "NamedItems": "upsert", "Ids": "remove"}.get(action, action)
    path = f"/indexes/texts/{name.lower()}"
    response = client.post(path, json=body, headers=HEADERS)
    assert response.status_code == (200 if is_valid else 422), response.text


def test_the_description_of_several_indexes(texts):
    vectors = SimilarityIndex(CosineSimilarity(use_idf=False)).fit(np.eye(12))
    with TestClient(create_app({"vectors": vectors, "texts": texts})) as client:
        description = client.get("/openapi.json").json()
    for query, is_valid in [
        ({"vector": [0.5] * 12}, True),
        ({"vector": {"11": 1}}, True),
        ({"id": 3}, True),
        ({"text": "word"}, True),
        ({"vector": [0.5] * 11}, False),
        ({"vector": [1e300] * 12}, False),
        ({"vector": {"111": 1}}, False),
        ({"photograph": ""}, False),
    ]:
        assert accepts(description, "Search", {"queries": [query]}) == is_valid
    # Items of the vectors are numbered, those of the texts have ids.
    items = {"items": [{"vector": [0.5] * 12}] * 2}
    assert accepts(description, "Items", items)
    items["items"][0] = items["items"][0] | {"id": 12}
    assert not accepts(description, "Items", items)
    assert not accepts(description, "NamedItems", items)


def accepts(description, name, body):
    """Return whether a body satisfies the schema of a message."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = description | {"$ref": f"#/components/schemas/{name}"}
    return jsonschema.Draft202012Validator(schema).is_valid(body)
