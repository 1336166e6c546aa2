"""Photographs as queries, and thumbnails of items."""

import base64

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

pytest.importorskip("starlette")
pytest.importorskip("msgspec")
pytest.importorskip("cv2")
import cv2
from starlette.testclient import TestClient

from sklearn_simlearn.feature_extraction import BlockVisterms, ImageReader
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.serve import Limits, create_app
from sklearn_simlearn.similarities import CosineSimilarity

RNG = np.random.default_rng(0)
HEADERS = {"Authorization": "Bearer secret"}


def post(client, path, body, status=200, **options):
    response = client.post(f"/indexes/{path}", json=body, **options)
    assert response.status_code == status, response.text
    return response.json()


def photograph(size=(40, 30)):
    pixels = RNG.integers(0, 255, size=(*size, 3), dtype=np.uint8)
    return cv2.imencode(".png", pixels)[1].tobytes()


def test_photographs_as_queries(tmp_path):
    images = [photograph() for _ in range(6)]
    estimator = make_pipeline(ImageReader(), BlockVisterms(n_words=5, random_state=0))
    index = SimilarityIndex(estimator).fit(images)
    query = {"photograph": base64.b64encode(images[3]).decode()}
    with TestClient(create_app(index)) as client:
        assert client.get("/indexes/index").json()["query"] == "photograph"
        (results,) = post(client, "index/search", {"queries": [query]})["results"]
        assert results[0]["id"] == 3
        # A photograph and the id of its item have the same explanation.
        by_content, by_id = (
            post(client, "index/explain", {"queries": [one], "ids": [3, 1]})
            for one in (query, {"id": 3})
        )
        scores = [one["score"] for one in by_id["explanations"]]
        expected = [one["score"] for one in by_content["explanations"]]
        assert scores == pytest.approx(expected, rel=1e-5)
        # A text would be the name of a file.
        path = tmp_path / "image.png"
        path.write_bytes(images[0])
        post(client, "index/search", {"queries": [{"text": str(path)}]}, 422)
        bomb = bytearray(images[0])
        bomb[16:24] = (60_000).to_bytes(4, "big") * 2
        for data, fault in [
            (b"", "is empty"),
            (b"text", "is not a JPEG"),
            (images[0][:100], "truncated or damaged"),
            (bytes(bomb), "damaged"),
        ]:
            query = {"photograph": base64.b64encode(data).decode()}
            answer = post(client, "index/search", {"queries": [query]}, 422)
            assert fault in answer["error"]
        post(client, "index/search", {"queries": [{"photograph": "*"}]}, 422)


def make_index(n_items=6):
    images = [photograph((200, 170)) for _ in range(n_items)]
    estimator = make_pipeline(ImageReader(), BlockVisterms(n_words=5, random_state=0))
    return images, SimilarityIndex(estimator)


def read(jpeg):
    return cv2.imdecode(np.frombuffer(jpeg, dtype=np.uint8), cv2.IMREAD_COLOR)


@pytest.mark.parametrize("ids", [None, ["a/b", "../etc", "q?x=1&y", "é", "5", " "]])
def test_thumbnails(ids):
    images, index = make_index()
    index.fit(images, ids=ids)
    query = {"photograph": base64.b64encode(images[3]).decode()}
    with TestClient(create_app({"my photographs": index})) as client:
        assert client.get("/indexes/my photographs").json()["has_thumbnails"]
        body = {"queries": [query]}
        (results,) = post(client, "my photographs/search", body)["results"]
        assert len(results) == 6
        for result in results:
            response = client.get("/" + result["thumbnail"])
            assert response.status_code == 200
            assert response.headers["content-type"] == "image/jpeg"
            assert len(response.content) <= 2**15
            row = index.ids_.tolist().index(result["id"])
            small = read(response.content)
            assert max(small.shape) <= 160
            distances = [
                abs(cv2.resize(read(image), small.shape[1::-1]) - small.astype(float))
                for image in images
            ]
            assert np.argmin([distance.mean() for distance in distances]) == row


@pytest.fixture(scope="module")
def served_photographs():
    images, index = make_index()
    with TestClient(create_app(index.fit(images))) as client:
        yield client


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("thumbnail", 422),
        ("thumbnail?id=", 404),
        ("thumbnail?id=6", 404),
        ("thumbnail?id=x", 404),
        ("thumbnail?id=../0", 404),
        ("thumbnail?id=%2Fetc%2Fpasswd", 404),
        ("thumbnail?id=99999999999999999999", 404),
        ("thumbnail?id=%FF", 404),
        ("thumbnail?id=" + 2000 * "9", 404),
    ],
)
def test_unknown_thumbnails(served_photographs, address, status):
    response = served_photographs.get(f"/indexes/index/{address}")
    assert response.status_code == status
    assert "error" in response.json()


def test_the_pixels_of_a_request_are_limited():
    images, index = make_index()
    query = {"photograph": base64.b64encode(images[0]).decode()}
    limits = Limits(pixels=3 * 200 * 170)
    with TestClient(create_app(index.fit(images), limits=limits)) as client:
        post(client, "index/search", {"queries": [query] * 3})
        answer = post(client, "index/search", {"queries": [query] * 4}, 422)
        assert answer["error"].startswith("Photograph 3 has 170 x 200 pixels, but all")


def test_ids_of_any_size():
    images, index = make_index(3)
    ids = [2**63 - 1, -(2**63), 10**18]
    with TestClient(create_app(index.fit(images, ids=ids))) as client:
        for id_ in ids:
            response = client.get(f"/indexes/index/thumbnail?id={id_}")
            assert response.status_code == 200
        response = client.get(f"/indexes/index/thumbnail?id={2**63}")
        assert response.status_code == 422


def test_an_index_without_thumbnails():
    index = SimilarityIndex(CosineSimilarity(use_idf=False)).fit(np.eye(3))
    with TestClient(create_app(index)) as client:
        body = {"queries": [{"vector": [1, 0, 0]}]}
        (results,) = post(client, "index/search", body)["results"]
        assert "thumbnail" not in results[0]
        assert not client.get("/indexes/index").json()["has_thumbnails"]
        assert client.get("/indexes/index/thumbnail?id=0").status_code == 404


def test_thumbnails_of_new_items(tmp_path):
    images, index = make_index()
    index.fit(images[:5], ids=list("abcde")).save(tmp_path / "index")
    item = {"photograph": base64.b64encode(images[5]).decode(), "id": "new"}
    for is_there in (False, True):
        with TestClient(create_app(tmp_path / "index", token="secret")) as client:
            if not is_there:
                post(client, "index/add", {"items": [item]}, headers=HEADERS)
                post(client, "index/remove", {"ids": ["a"]}, headers=HEADERS)
            response = client.get("/indexes/index/thumbnail?id=new")
            assert max(read(response.content).shape) == 160
            assert client.get("/indexes/index/thumbnail?id=a").status_code == 404
