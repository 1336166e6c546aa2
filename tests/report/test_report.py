"""The report: its numbers, and a page that is safe, small and complete."""

import json
import re
import subprocess
from html.parser import HTMLParser
from itertools import chain

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sample_data import make_counts
from scipy import stats
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import PairwiseRelevance, retrieval_report
from sklearn_simlearn.report import RetrievalReport
from sklearn_simlearn.similarities import (
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
)

VOID = {"meta", "input"}
ATTACK = "</script><script>alert('x')</script><img src=x onerror=alert(1)>\"'&"


class Page(HTMLParser):
    """Tags, attributes and text of a page. Tags must be closed in reverse order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text = [], [], []
        self.open = []
        self.feed(text)
        self.close()
        assert self.open == []
        self.content = " ".join(self.text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text.append(data)


@pytest.fixture(scope="module")
def counts():
    """Return word counts, which the tests of this module share."""
    return make_counts()


@pytest.fixture(scope="module")
def models(counts):
    """Return three fitted similarities by name."""
    X, _ = counts
    return {
        "cosine": CosineSimilarity(use_idf=False).fit(X),
        "burstiness": BurstinessSimilarity().fit(X),
        "evidence": NegativeEvidenceSimilarity().fit(X),
    }


# -- numbers --


def test_table(models, counts):
    X, y = counts
    report = RetrievalReport(models, X, y)
    direct = {name: retrieval_report(model, X, y) for name, model in models.items()}
    scores = {name: r.average_precision for name, r in direct.items()}
    assert [line["similarity"] for line in report.table_] == (
        sorted(models, key=lambda name: -scores[name].mean())  # the best first
    )
    assert report.baseline_ == "cosine"
    assert report.best_ == report.table_[0]["similarity"]
    p_values = []
    for line in report.table_:
        name = line["similarity"]
        gains = scores[name] - scores["cosine"]
        assert_allclose(line["mAP"], scores[name].mean())
        assert_allclose(line["P@10"], direct[name].precision_at_10.mean())
        low, high = line["mAP interval"]
        assert low < line["mAP"] < high
        assert_allclose(report.gains_[name], gains)
        assert_allclose(line["gain"], gains.mean(), atol=1e-15)
        assert line["wins"] == np.count_nonzero(gains > 0)
        assert line["losses"] == np.count_nonzero(gains < 0)
        assert line["fit seconds"] is None
        assert line["query seconds"] > 0
        if name == "cosine":
            assert line["p"] is None
        else:
            p_values.append((stats.wilcoxon(gains).pvalue, line["p"]))
    (small, corrected), (large, larger) = sorted(p_values)
    assert_allclose(corrected, min(2 * small, 1))
    assert_allclose(larger, max(large, corrected))


def test_lists_of_queries(models, counts):
    X, y = counts
    report = RetrievalReport(models, X, y, n_shown=4)
    name = report._findings.challenger
    gains, scores = (
        report.gains_[name],
        report._findings.measured[name].report.average_precision,
    )
    gained, lost, worst, best = report._findings.shown.values()
    assert_allclose(gains[gained], np.sort(gains)[::-1][:4])
    assert (gains[gained] > 0).all()
    assert (gains[lost] < 0).all()
    assert_allclose(scores[worst], np.sort(scores)[:4])
    assert_allclose(scores[best], np.sort(scores)[::-1][:4])
    for place in (*gained, *worst):
        row = report.queries_[place]
        similarity = models[name].similarity(X[[row]], X)[0]
        similarity[row] = -np.inf
        items, found, relevance = zip(*report._findings.found[name][place], strict=True)
        assert row not in items
        assert_allclose(found, np.sort(similarity)[::-1][:8])
        assert_allclose(similarity[list(items)], found)
        assert list(relevance) == [y[item] == y[row] for item in items]


def test_several_baselines(models, counts):
    X, y = counts
    report = RetrievalReport(models, X, y, baselines=["cosine", "burstiness"])
    scores = {line["similarity"]: line["mAP"] for line in report.table_}
    assert report.baseline_ == max(("cosine", "burstiness"), key=scores.get)
    assert report._findings.challenger == "evidence"
    everything = RetrievalReport(models, X, y, baselines=list(models))
    assert everything.baseline_ == everything.best_
    assert "It is the baseline" in everything.to_html()
    assert RetrievalReport({"one": models["cosine"]}, X, y).to_html()


def test_estimators_that_are_not_fitted(counts):
    X, y = counts
    models = {"plain": CosineSimilarity(use_idf=False), "idf": CosineSimilarity()}
    report = RetrievalReport(models, X, y, X_train=X, y_train=y)
    assert all(line["fit seconds"] > 0 for line in report.table_)
    assert not hasattr(models["idf"], "idf_")
    assert hasattr(report.estimators_["idf"], "idf_")
    with pytest.raises(NotFittedError, match=r"'plain' is not fitted\. Fit it first"):
        RetrievalReport(models, X, y)


def test_pipelines_whose_last_step_needs_no_fit(counts):
    """The report and the index agree on which pipelines are fitted."""
    X, y = counts
    pipeline = make_pipeline(TfidfTransformer(), Normalizer())
    report = RetrievalReport({"tf-idf": pipeline}, X, y, X_train=X, y_train=y)
    assert report.table_[0]["fit seconds"] > 0
    fitted = SimilarityIndex(pipeline).fit(X).estimator_
    report = RetrievalReport({"tf-idf": fitted}, X, y)
    assert report.table_[0]["fit seconds"] is None
    with pytest.raises(NotFittedError, match=r"'tf-idf' is not fitted\. Fit it first"):
        RetrievalReport({"tf-idf": pipeline}, X, y)


# -- the page --


@pytest.mark.parametrize("content", ["images", "texts", "both", "neither"])
def test_page_is_whole(content, models, counts, rng):
    X, y = counts
    options = {}
    if content in ("images", "both"):
        options["images"] = rng.integers(0, 17, (len(y), 8, 8))
    if content in ("texts", "both"):
        options["texts"] = [f"text of sample {i}" for i in range(len(y))]
    report = RetrievalReport(models, X, y, **options)
    html = report.to_html()
    page = Page(html)
    for words in ("mean average precision", "Gain most", "Rank worst", *models):
        assert words in page.content
    assert ("text of sample" in html) == ("texts" in options)
    assert ("data:image/png" in html) == ("images" in options)
    # Nothing is loaded from outside, and the browser must refuse it.
    assert not re.search(r"https?:|//\w", re.sub(r"data:image/[^)]*", "", html))
    assert "default-src 'none'" in html
    named = {value for key, value in page.attributes if key == "class"}
    for found in report._findings.found.values():
        for row, _, _ in chain.from_iterable(found.values()):
            assert ("images" in options) == (f"thumb i{row}" in named)
    assert "pixels" in named or "images" not in options
    assert page.tags.count("article") == sum(map(len, report._findings.shown.values()))
    assert page.tags.count("svg") == 2
    # All queries, before any script sorts them, from the largest gain.
    gains = [
        float(v) for v in re.findall(r"<td class=\"(?:up|down)\">(.*?)</td>", html)
    ]
    assert len(gains) > 0
    assert page.tags.count("script") == 1


def test_text_from_data_is_escaped(models, counts, rng):
    X, y = counts
    labels = np.array([f"{label} {ATTACK}" for label in y], dtype=object)
    report = RetrievalReport(
        {f"{name} {ATTACK}": model for name, model in models.items()},
        X,
        labels,
        images=rng.random((len(y), 4, 4)),
        texts=[ATTACK] * len(y),
        title=ATTACK,
    )
    for html in (report.to_html(), report._repr_html_()):
        page = Page(html)
        assert "img" not in page.tags
        assert page.tags.count("script") == (html[:9] == "<!DOCTYPE")
        assert not [key for key, _ in page.attributes if key.startswith("on")]
        assert "<script>alert" not in html
    assert ATTACK in Page(report.to_html()).content
    # The frame in a notebook holds the same page.
    [(_, inner)] = [
        a for a in Page(report._repr_html_()).attributes if a[0] == "srcdoc"
    ]
    assert inner == report.to_html()


def test_page_of_a_hundred_queries_stays_small(models, counts, rng):
    X, y = counts
    X, y = X[np.tile(np.arange(60), 5)], np.tile(y[:60], 5)
    # Noise, since it compresses worst.
    images = [rng.integers(0, 256, (140, 200, 3), dtype=np.uint8) for _ in y]
    models = {name: models[name] for name in ("cosine", "burstiness")}
    report = RetrievalReport(models, X, y, images=images, n_shown=25)
    html = report.to_html()
    assert 75 <= html.count('class="query"') <= 100
    assert 1e6 < len(html.encode()) < 5e6


def test_many_queries_are_listed_in_part(models, counts, monkeypatch):
    X, y = counts
    monkeypatch.setattr("sklearn_simlearn.report._page.MAX_CELLS", 60)
    report = RetrievalReport(models, X, y)
    assert "Of 60 queries, the 10 that change most." in report.to_html()


def test_images_of_every_kind(models, counts):
    X, y = counts
    kinds = [
        np.zeros((50, 40)),
        np.ones((40, 50, 3)),
        np.full((60, 60, 4), 0.5),
        np.zeros((1, 90), dtype=bool),
    ]
    images = [kinds[i % 4] for i in range(len(y))]
    html = RetrievalReport(models, X, y, images=images).to_html()
    assert "data:image/jpeg" in html


@pytest.mark.parametrize("kind", ["matrix", "pairs", "mask"])
def test_targets_of_every_kind(kind, models, counts):
    X, y = counts
    options = {}
    target = (y[:, None] == np.arange(13)).astype(float)
    target[-1, 3] = -1  # junk
    if kind == "pairs":
        target = PairwiseRelevance(((y[:, None] == y) & (y >= 0)).astype(float))
    if kind == "mask":
        options["query_mask"] = np.arange(len(y)) < 20
    report = RetrievalReport(models, X, target, **options)
    assert len(report.queries_) == (20 if kind == "mask" else 60)
    assert Page(report.to_html())


def test_lone_surrogates_are_escaped(models, counts, tmp_path):
    X, y = counts
    labels = np.array([f"\udce4{label}" if label >= 0 else "other" for label in y])
    texts = [f"file\udcff{i}.png" for i in range(len(y))]
    report = RetrievalReport(models, X, labels, texts=texts, title="of \ud800.npz")
    report.save(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for shown in (r"\udce40", r"file\udcff1.png", r"of \ud800.npz"):
        assert shown in page
    assert report._repr_html_().encode()


def test_saving(models, counts, tmp_path, monkeypatch):
    X, y = counts
    report = RetrievalReport(models, X, y)
    path = tmp_path / "größe.html"
    report.save(path)
    assert path.read_text(encoding="utf-8") == report.to_html()
    assert 'charset="utf-8"' in report.to_html()

    def fail(source, target):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        report.save(tmp_path / "other.html")
    assert [p.name for p in tmp_path.iterdir()] == ["größe.html"]
    assert repr(report).startswith("RetrievalReport([")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": np.zeros((3, 2, 2))}, "images must have one entry for each of"),
        ({"texts": ["a"]}, "texts must have one entry for each of the 66 rows of X"),
        ({"n_shown": 0}, "n_shown must be at least 1"),
        ({"n_neighbors": 0}, "n_neighbors must be at least 1"),
        ({"baselines": ["nobody"]}, r"baselines contains \['nobody'\]"),
        ({"baselines": []}, "baselines must name at least one"),
    ],
)
def test_bad_options(options, message, models, counts, monkeypatch):
    """Check that bad options raise before anything is measured."""
    X, y = counts
    monkeypatch.setattr("sklearn_simlearn.report._report.measure_estimator", None)
    with pytest.raises(ValueError, match=message):
        RetrievalReport(models, X, y, **options)


def test_some_query_needs_a_relevant_item(models, counts):
    X, _ = counts
    with pytest.raises(ValueError, match="No query has a relevant item"):
        RetrievalReport(models, X, np.arange(X.shape[0]))


def test_estimators_need_names(models, counts):
    X, y = counts
    with pytest.raises(TypeError, match="a dict from names to estimators"):
        RetrievalReport(list(models.values()), X, y)
    with pytest.raises(TypeError, match="a dict from names to estimators"):
        RetrievalReport(dict(enumerate(models.values())), X, y)


def test_columns_of_a_frame(models, counts):
    pd = pytest.importorskip("pandas")
    X, y = counts
    frame = pd.DataFrame({"y": y, "text": [f"row {i}." for i in range(len(y))]})
    frame = frame[::-1]  # the labels of the index differ from the positions
    report = RetrievalReport(models, X[::-1], frame["y"], texts=frame["text"])
    row = int(report.queries_[report._findings.shown["Gain most"][0]])
    assert f"<blockquote>row {len(y) - 1 - row}.</blockquote>" in report.to_html()


# -- with JavaScript, in a browser --

# Actions of a reader; then the page prints their effects.
ACTIONS = """<script>
const heads = document.querySelectorAll("table.sortable thead tr:first-child th");
const table = document.querySelector("table.sortable").tBodies[0];
const names = () => Array.from(table.rows, row => row.dataset.name);
const found = {before: names()};
heads[0].click();
found.down = names();
heads[0].dispatchEvent(new KeyboardEvent("keydown", {key: "Enter"}));
found.up = names();
found.sorted = heads[0].getAttribute("aria-sort");
const curves = document.querySelectorAll("g[data-name]");
curves[0].dispatchEvent(new MouseEvent("mouseenter"));
found.lit = document.querySelectorAll("g.lit").length;
found.dim = document.querySelectorAll("g.dim").length;
const box = document.querySelector("input[data-filters='.query']");
box.value = "SAMPLE 17";
box.dispatchEvent(new Event("input"));
found.shown = Array.from(document.querySelectorAll(".query:not([hidden])"),
                         query => query.textContent.includes("sample 17"));
found.hidden = document.querySelectorAll(".query[hidden]").length;
found.wide = document.documentElement.scrollWidth > window.innerWidth;
document.body.textContent = JSON.stringify(found);
</script>"""


def test_page_in_a_browser(models, counts, tmp_path, chromium):
    X, y = counts
    texts = [f"sample {i}." for i in range(len(y))]
    report = RetrievalReport(models, X, y, texts=texts)
    path = tmp_path / "report.html"
    path.write_text(report.to_html().replace("</body>", f"{ACTIONS}</body>"))
    options = "headless no-sandbox disable-gpu no-first-run disable-sync dump-dom"
    options += " disable-background-networking disable-component-update"
    done = subprocess.run(
        [
            chromium,
            *(f"--{option}" for option in options.split()),
            "--window-size=500,900",
            f"--user-data-dir={tmp_path / 'profile'}",
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    found = json.loads(re.search(r"<body.*?>(\{.*?\})", done.stdout)[1])
    assert found["before"] == list(report.estimators_)
    assert found["down"] == sorted(models, reverse=True)
    assert found["up"] == sorted(models)
    assert found["sorted"] == "ascending"
    assert (found["lit"], found["dim"]) == (1, 2)
    assert len(found["shown"]) > 0
    assert all(found["shown"])
    assert found["hidden"] > 0
    assert not found["wide"]  # tables scroll, the page does not


def test_judgements_are_reported_with_texts_and_ids():
    from sklearn.feature_extraction.text import CountVectorizer

    from sklearn_simlearn.compose import make_retrieval_pipeline
    from sklearn_simlearn.metrics import Judgements
    from sklearn_simlearn.similarities import BM25Similarity

    documents = ["a <b>cat</b>", "a dog", "ships at sea", "cats and dogs"]
    queries = ["cat cat", "dog"]
    y = Judgements(
        [[2, 0, -1, 0], [0, 1, 0, 1]],
        documents,
        query_ids=["q-cat", "q-dog"],
        document_ids=["d0", "d1", "d2", "d3"],
    )
    model = make_retrieval_pipeline(CountVectorizer(), BM25Similarity())
    report = RetrievalReport({"bm25": model.fit(queries, y)}, queries, y)
    assert report.queries_.tolist() == [0, 1]
    page = report.to_html()
    for text in ("q-cat", "q-dog", "a &lt;b&gt;cat&lt;/b&gt;", "ships at sea"):
        assert text in page
    counts = model[0].transform(documents).toarray() * 1.0
    vectors = y.with_documents(counts)
    bm25 = BM25Similarity().fit(counts)
    X = model[0].transform(queries).toarray() * 1.0
    page = RetrievalReport({"bm25": bm25}, X, vectors).to_html()
    assert "d3" in page
    page = RetrievalReport(
        {"bm25": bm25}, X, vectors, texts=queries, document_texts=documents
    ).to_html()
    assert "ships at sea" in page
    with pytest.raises(ValueError, match="document_texts"):
        RetrievalReport({"bm25": bm25}, X, vectors, document_texts=documents[:2])
    with pytest.raises(ValueError, match="requires Judgements"):
        RetrievalReport({"bm25": bm25}, counts, [0, 0, 1, 1], document_texts=documents)
    with pytest.raises(ValueError, match="images requires samples"):
        RetrievalReport({"bm25": bm25}, X, vectors, images=[0, 1])
