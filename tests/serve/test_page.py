"""The page in Chromium: typing, clicks, uploads, filters, errors, narrow and dark."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from browser import Page, check_pages
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

pytest.importorskip("uvicorn")
import uvicorn

from sklearn_simlearn.comparison import _command_line as command
from sklearn_simlearn.compose import make_retrieval_pipeline
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.serve import Limits, create_app
from sklearn_simlearn.similarities import BM25Similarity, CosineSimilarity


@pytest.fixture(scope="module")
def browser(chromium):
    with check_pages.open_browser(chromium) as browser:
        yield browser


@pytest.fixture(scope="module")
def serve():
    """Serve folders from a thread; return the address of the page."""
    running = []

    def start(*folders):
        app = create_app({folder.name: folder for folder in folders})
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        listener = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        running.append((server, thread))
        host, port = listener.getsockname()
        return f"http://{host}:{port}/"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join()


TEXTS = [
    "a red apple and a green apple on a table",
    "a red car in front of a house",
    "green grass around an old house",
    "the boy eats an apple",
    "a blue car, fast and loud",
    "old trees and green leaves",
    "a table of wood from old trees",
    "the blue sea and the blue sky " * 30,
]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    metadata = [
        {
            "kind": "thing" if "car" in text or "table" in text else "scene",
            "words": 10 * i,
        }
        for i, text in enumerate(TEXTS)
    ]
    metadata += [{"kind": "filler", "words": i} for i in range(40)]
    texts = [*TEXTS, *(f"filler number {i} of many" for i in range(40))]
    estimator = make_retrieval_pipeline(CountVectorizer(), BM25Similarity())
    index = SimilarityIndex(estimator, store_items=True)
    index.fit(texts, ids=[f"t{i}" for i in range(len(texts))], metadata=metadata)
    folder = tmp_path_factory.mktemp("page") / "texts"
    index.save(folder)
    return folder


@pytest.fixture(scope="module")
def url(serve, texts):
    return serve(texts)


def test_texts(browser, url):
    page = Page(browser, url)
    assert page.ask("document.activeElement.id") == "text"
    page.photograph("texts_empty")
    page.search("red apple")
    assert page.ids()[0] == "t0"
    assert TEXTS[0] in page.ask("document.querySelector('#results').innerText")
    # Why this result?
    page.click("#results > li:first-child .actions button:last-child")
    page.wait("document.querySelector('.why table') !== null")
    why = page.ask("document.querySelector('.why').innerText")
    assert "apple" in why
    assert "red" in why
    page.photograph("texts_results")
    # Search with a result.
    page.click("#results > li:first-child .actions button:first-child")
    page.wait_for_results("document.querySelectorAll('#chips li').length === 1")
    page.wait("!document.querySelector('#results').innerText.includes('t0')")
    assert "t3" in page.ids()
    # Words and the item together, as one query.
    page.click("#text")
    page.type("sea")
    page.click("#go")
    page.wait("document.querySelector('#results').innerText.includes('t7')")
    # Remove the item from the query.
    page.click("#chips button")
    page.wait("document.querySelectorAll('#chips li').length === 0")
    page.wait("document.querySelector('#results b')?.innerText === 't7'")
    assert page.faults() == []


def test_filters(browser, url):
    page = Page(browser, url)
    page.search("car house")
    page.choose("#filters select", '"thing"')
    page.wait("!document.querySelector('#results').innerText.includes('scene')")
    page.wait_for_results()
    page.click("#filters input:last-of-type")
    page.type("20")
    page.press("Tab")
    page.wait("document.querySelector('#results b')?.innerText === 't1'")
    page.wait_for_results("document.querySelectorAll('#results > li').length < 4")
    page.photograph("texts_filters")
    assert page.faults() == []


def test_more_results_and_keys(browser, url):
    page = Page(browser, url)
    page.search("filler")
    assert len(page.ids()) == 20
    page.click("#more")
    page.wait("document.querySelectorAll('#results > li').length === 40")
    page.ask("document.activeElement.blur()")
    page.press("/")
    assert page.ask("document.activeElement.id") == "text"
    page.press("ArrowDown")
    page.press("ArrowDown")
    second = "document.activeElement === document.querySelectorAll('#results > li')[1]"
    assert page.ask(second)
    page.press("ArrowUp")
    page.press("ArrowUp")
    assert page.ask("document.activeElement.id") == "text"
    page.press("Tab")
    page.press("Enter")
    page.wait_for_results()


@pytest.mark.parametrize("width", [360, 1000])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_widths_and_schemes(browser, url, width, scheme):
    page = Page(browser, url)
    page.resize(width, scheme)
    page.search("the old blue house")
    page.click("#results > li:first-child .actions button:last-child")
    page.wait("document.querySelector('.why table') !== null")
    page.ask("scrollTo(0, 0)")
    page.photograph(f"texts_{width}_{scheme}")
    assert page.faults() == []
    ground = page.ask("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 300) == (scheme == "dark")


def test_errors_are_shown(browser, serve, texts, tmp_path):
    vectors = tmp_path / "vectors"
    X = np.random.default_rng(0).normal(size=(20, 3))
    SimilarityIndex(CosineSimilarity(use_idf=False)).fit(X).save(vectors)
    page = Page(browser, serve(vectors, texts))
    page.type("1, a")
    page.press("Enter")
    page.wait("!document.querySelector('#error').hidden")
    assert "numbers" in page.ask("document.querySelector('#error').innerText")
    page.ask("document.querySelector('#text').value = ''")
    page.type("1, 2")
    page.press("Enter")
    page.wait("document.querySelector('#error').innerText.includes('3 numbers')")
    page.photograph("vectors_error")
    page.search(", 3")
    assert page.ask("document.querySelector('#error').hidden")
    # Another index.
    page.choose("#index", "texts")
    assert page.ids() == []
    page.click("#text")
    page.search("apple")
    # No results.
    page.choose("#filters input", 1e6)
    page.wait("document.querySelector('#status').innerText.startsWith('Nothing found')")


def test_the_service_has_stopped(browser, url):
    page = Page(browser, url)
    page.ask("window.fetch = () => Promise.reject(new TypeError('failed'))")
    page.type("apple")
    page.press("Enter")
    page.wait("document.querySelector('#error').innerText.includes('does not answer')")


def test_photographs(browser, serve, tmp_path):
    cv2 = pytest.importorskip("cv2")
    from sklearn_simlearn.feature_extraction import ColorHistograms, ImageReader

    rng = np.random.default_rng(0)
    paths = []
    for i in range(12):
        pixels = np.zeros((60, 80, 3), dtype=np.uint8)
        pixels[:] = rng.integers(0, 255, size=3)
        pixels[20:40, 20:60] = rng.integers(0, 255, size=3)
        paths.append(tmp_path / f"photograph {i}.png")
        cv2.imwrite(str(paths[-1]), pixels)
    estimator = make_pipeline(ImageReader(), ColorHistograms())
    index = SimilarityIndex(estimator).fit(list(map(str, paths)))
    index.save(tmp_path / "photographs")
    page = Page(browser, serve(tmp_path / "photographs"))
    assert page.ask("document.querySelector('#text').hidden")
    assert "Drop photographs" in page.ask("document.querySelector('#hint').innerText")
    page.upload("#files", paths[3])
    page.wait_for_results()
    assert page.ids()[0] == "3"
    wait_for_pictures(page, 12)
    # A second one is dropped: both are one query.
    page.drop(paths[5])
    page.wait("document.querySelectorAll('#chips img').length === 2")
    page.wait_for_results()
    assert set(page.ids()[:2]) == {"3", "5"}
    page.photograph("photographs")
    page.click("#results > li:first-child .actions button")
    page.wait("document.querySelector('.why table') !== null")
    assert "feature" in page.ask("document.querySelector('.why').innerText")
    for width in (390, 1440):
        for scheme in ("light", "dark"):
            page.resize(width, scheme)
            page.photograph(f"photographs_{width}_{scheme}")
            assert page.faults() == []
    # A file that is not a photograph.
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"text")
    page.upload("#files", bad)
    page.wait("document.querySelector('#error').innerText.includes('is not a JPEG')")
    page.click("#chips li:last-child button")
    page.wait_for_results("document.querySelector('#error').hidden")
    check_large_photographs(page, paths, tmp_path)
    # A click on a result searches with it, and leaves it out.
    first = page.ids()[0]
    page.click("#results > li:first-child .picture")
    page.wait_for_results(f"document.querySelector('#results b').innerText != {first}")
    wait_for_pictures(page, 11)
    assert page.ask("document.querySelectorAll('#chips img').length") == 1
    assert page.ask("document.querySelector('#chips img').naturalWidth") > 0
    # The index does not store photographs, but their encodings.
    page.click("#results > li:first-child .actions button")
    page.wait("document.querySelector('.why table') !== null")
    assert [fault for fault in page.faults() if "422" not in fault] == []


def check_large_photographs(page, paths, folder):
    """Search with several photographs that are larger than a request together."""
    import cv2

    large = []
    for number in (7, 9):
        pixels = cv2.resize(cv2.imread(str(paths[number])), (2400, 1800))
        large.append(folder / f"large {number}.bmp")
        cv2.imwrite(str(large[-1]), pixels)
    assert sum(path.stat().st_size for path in large) > Limits().body
    page.click("#chips li:last-child button")
    page.click("#chips li:last-child button")
    page.wait("document.querySelectorAll('#chips li').length === 0")
    page.upload("#files", *large)
    page.wait("document.querySelectorAll('#chips img').length === 2")
    page.wait_for_results()
    assert set(page.ids()[:2]) == {"7", "9"}


def wait_for_pictures(page, n_pictures):
    """Wait until all results are shown as pictures that were loaded."""
    page.wait(
        "(() => { const all = [...document.querySelectorAll('#results .picture img')];"
        "all.forEach(image => image.loading = 'eager');"
        f"return all.length === {n_pictures} && all.every(i => i.naturalWidth > 0);"
        "})()"
    )


# -- indexes that the command line saves --


@pytest.fixture
def save(tmp_path, monkeypatch):
    """Save an index by the command line; return its folder."""

    def save(*arguments):
        monkeypatch.chdir(tmp_path)
        assert command.main([*map(str, arguments), "--save", "index"]) == 0
        return tmp_path / "index"

    return save


@pytest.fixture
def start_service():
    """Serve a folder by the command line; return the address of the page."""
    processes: list = []

    def start(folder):
        program = [sys.executable, "-m", "sklearn_simlearn"]
        process = subprocess.Popen(
            [*program, "serve", folder, "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        processes.append(process)
        return process.stdout.readline().split()[-1]

    yield start
    for process in processes:
        process.terminate()
        assert process.wait(timeout=100) in (0, -15)
        process.stdout.close()


TOPICS = ["apple tree", "fast car", "blue sea", "old house"]
DOCUMENTS = [f"{TOPICS[i % 4]} number{i} of many words" for i in range(60)]


def search_for_the_sea(page):
    page.search("blue sea")
    assert len(page.ids()) >= 10
    assert set(page.ids()[:10]) <= {f"d{i}" for i in range(2, 60, 4)}
    assert "blue sea number" in page.ask("document.querySelector('.text').innerText")


def test_from_judgements_to_results(browser, save, serve, tmp_path):
    folder = tmp_path / "collection"
    (folder / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": f"d{i}", "text": t}) for i, t in enumerate(DOCUMENTS)]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    lines = [json.dumps({"_id": f"q{i}", "text": t}) for i, t in enumerate(TOPICS)]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    rows = [f"q{i % 4}\td{i}\t1" for i in range(60)]
    head = "query-id\tcorpus-id\tscore"
    (folder / "qrels" / "test.tsv").write_text("\n".join([head, *rows]))
    page = Page(browser, serve(save("--beir", folder)))
    search_for_the_sea(page)
    page.photograph("collection")


def test_from_a_table_of_texts_to_results(browser, save, serve, tmp_path):
    rows = [f"d{i},{text},{i % 3}" for i, text in enumerate(DOCUMENTS)]
    (tmp_path / "texts.csv").write_text("\n".join(["id,text,shelf", *rows]))
    page = Page(browser, serve(save("--texts", "texts.csv")))
    search_for_the_sea(page)
    # The column shelf is a filter.
    page.choose("#filters select", "1")
    page.wait("!document.querySelector('#results').innerText.includes('d2\\n')")
    page.wait_for_results()
    assert page.ids()[0] in {f"d{i}" for i in range(10, 60, 12)}
    assert page.faults() == []


def test_from_a_folder_of_photographs_to_results(
    browser, save, start_service, tmp_path
):
    cv2 = pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    (tmp_path / "photographs").mkdir()
    for i in range(8):
        squares = rng.integers(0, 255, (12, 16, 3)).astype(np.uint8)
        pixels = cv2.resize(squares, (320, 240), interpolation=cv2.INTER_NEAREST)
        for view in range(2):
            turn = cv2.getRotationMatrix2D((160, 120), 8 * view, 1 + view / 10)
            cv2.imwrite(
                str(tmp_path / "photographs" / f"{i} {view}.jpg"),
                cv2.warpAffine(pixels, turn, (320, 240), borderMode=cv2.BORDER_REFLECT),
            )
        turn = cv2.getRotationMatrix2D((160, 120), -8, 1)
        query = cv2.warpAffine(pixels, turn, (320, 240), borderMode=cv2.BORDER_REFLECT)
        cv2.imwrite(str(tmp_path / f"query {i}.jpg"), query)
    page = Page(browser, start_service(save("--images", "photographs")))
    page.drop(tmp_path / "query 5.jpg")
    page.wait_for_results()
    assert len(page.ids()) >= 10
    assert {Path(name).name for name in page.ids()[:2]} == {"5 0.jpg", "5 1.jpg"}
    wait_for_pictures(page, 16)
    page.photograph("two_commands_photographs")
    assert page.faults() == []
