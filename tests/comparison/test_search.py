"""The command ``search``, and the way from a table of texts to results."""

import contextlib
import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from sklearn_simlearn.comparison._wording import WIDTH
from sklearn_simlearn.compose import make_retrieval_pipeline
from sklearn_simlearn.datasets import load_definitions
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import BM25Similarity, CosineSimilarity


def read_table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# -- vectors --


def test_a_saved_index_is_searched(saved, user_file, words, tmp_path, run):
    X = words[0].toarray()
    queries = tmp_path / "queries.npz"
    np.savez(queries, X=X[:3])  # no y
    results = tmp_path / "found.csv"
    code, out, err = run("search", saved, queries, "-k", 4, "--output", results)
    assert (code, err) == (0, "")
    scores, ids = SimilarityIndex.load(saved, trusted=()).search(X[:3], k=4)
    lines = [line.split() for line in out.splitlines()]
    for query in range(3):
        title, *found = lines[5 * query : 5 * query + 5]
        assert title == ["query", str(query)]
        assert found == [
            [str(rank), f"{score:.4g}", str(id_)]
            for rank, (score, id_) in enumerate(
                zip(scores[query], ids[query], strict=True), start=1
            )
        ]
    table = read_table(results)
    assert [row["query"] for row in table] == list("000011112222")
    assert [row["rank"] for row in table] == list("123412341234")
    assert [int(row["id"]) for row in table] == ids.ravel().tolist()
    assert [float(row["score"]) for row in table] == scores.ravel().tolist()

    # The whole file of samples has labels as well, and CSR parts.
    code, out, _ = run("search", saved, user_file, "-k", 200)
    assert code == 0
    assert len(out.splitlines()) == 120 * 121


def test_a_query_without_a_known_word(tmp_path, run):
    texts = ["a red cat", "two dogs", "red mats"]
    bm25 = make_retrieval_pipeline(CountVectorizer(), BM25Similarity())
    SimilarityIndex(bm25).fit(texts).save(tmp_path / "index")
    code, out, err = run("search", tmp_path / "index", "zebra", "red", "-k", 3)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    note = "   all scores are 0: the items are not ordered by similarity"
    assert lines[:2] == ["query 0: zebra", note]
    assert lines[5] == "query 1: red"
    assert note not in lines[2:]


def test_ids_that_are_not_unicode_are_escaped(words, user_file, tmp_path, run):
    X, y = words
    folder, results = tmp_path / "index", tmp_path / "found.csv"
    ids = [f"\udcff{i}" for i in range(len(y))]
    SimilarityIndex(CosineSimilarity()).fit(X, ids=ids).save(folder)
    assert SimilarityIndex.load(folder).ids_.tolist() == ids
    with contextlib.redirect_stdout(io.StringIO()):
        code, _, err = run("search", folder, user_file, "-k", 1, "--output", results)
    assert (code, err) == (0, "")
    assert read_table(results)[3]["id"] == r"\udcff3"


def test_only_trusted_types_are_loaded(words, leading, user_file, tmp_path, run):
    X, _ = words
    folder = tmp_path / "index"
    SimilarityIndex(leading(50)).fit(X).save(folder)
    code, out, err = run("search", folder, user_file)
    assert (code, out) == (2, "")
    name = f"{leading.__module__}.Leading"
    assert name in err
    assert err.endswith("list them in --trust.\n")
    code, out, _ = run("search", folder, user_file, "-k", 1, "--trust", name)
    assert code == 0
    assert len(out.splitlines()) == 240


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "{data}"], "nowhere is not a saved index"),
        (["{index}", "nowhere.npz"], "nowhere.npz: no such file"),
        (["{index}", "{narrow}"], "X has 3 features, but"),
        (["{index}", "{data}", "{data}"], "must be in a single file FILE.npz"),
        (["{index}", "{data}", "-k", "0"], "-k: '0' is not an integer of at least 1"),
        (["{index}", "{data}", "--max-bytes", "9"], "pass a larger --max-bytes if"),
        (["{index}", "{data}", "--output", "{index}"], "is a folder"),
        (["{index}", "{data}", "--filter", "a=1"], "--filter needs metadata"),
        (["{index}"], "required: QUERY"),
    ],
)
def test_bad_searches_get_one_line(arguments, message, saved, user_file, tmp_path, run):
    narrow = tmp_path / "narrow.npz"
    np.savez(narrow, X=np.eye(3))
    places = {"index": saved, "data": user_file, "narrow": narrow}
    arguments = [argument.format(**places) for argument in arguments]
    code, out, err = run("search", *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err


# -- texts, metadata and filters --

TEXTS = ["a red apple", "a green apple", "a red car, " + 40 * "fast ", "the sea"]
METADATA = pd.DataFrame(
    {
        "lang": ["en", "en", "de", None],
        "year": [1999, 2005, 2010, 2020],
        "sold": [True, False, True, False],
        "day": pd.to_datetime(["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01"]),
    }
)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts") / "index"
    estimator = make_retrieval_pipeline(CountVectorizer(), BM25Similarity())
    index = SimilarityIndex(estimator, store_items=True)
    index.fit(TEXTS, ids=list("abcd"), metadata=METADATA).save(folder)
    return folder


def test_texts_and_metadata_are_shown(texts, tmp_path, run):
    results = tmp_path / "found.csv"
    arguments = ["search", texts, "red apple", "fast", "-k", 2, "--output", results]
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert lines[0] == "query 0: red apple"
    assert lines[1].split()[2:5] == ["a", "lang=en", "year=1999"]
    assert "sold=True" in lines[1]
    assert lines[3] == "query 1: fast"
    assert lines[4].endswith("...")
    table = read_table(results)
    assert list(table[0]) == ["query", "rank", "id", "score", "text", *METADATA]
    assert next(row["text"] for row in table if row["query"] == "1") == TEXTS[2]
    assert table[0]["year"] == "1999"


def test_texts_of_a_file_as_queries(texts, tmp_path, run):
    path = tmp_path / "queries.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    code, out, _ = run("search", texts, path, "green", "-k", 1)
    assert code == 0
    assert [line.split()[2] for line in out.splitlines()[1::2]] == list("abcdb")
    code, _, err = run("search", texts, tmp_path / "nowhere.csv")
    assert (code, err.count("\n")) == (2, 1)
    assert "nowhere.csv: no such file" in err


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (["lang=en"], "ab"),
        (["lang!=en"], "c"),
        (["lang="], "d"),
        (["year>=2005", "year<2020"], "bc"),
        (["sold=true", "year<=1999"], "a"),
        (["day>2024-02-15"], "cd"),
        (["year=3000"], ""),
    ],
)
def test_filters(conditions, expected, texts, run):
    code, out, err = run("search", texts, "apple", "--filter", *conditions)
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    found = [row[2] for row in rows if row[0].isdigit()]  # begins with the rank
    assert sorted(found) == list(expected)
    assert ("nothing found" in out) == (expected == "")


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        (["lang"], "'lang' is not a condition such as lang=de"),
        (["colour=red"], "there is no column 'colour'. Columns: lang, year, sold, day"),
        (["year>old"], "the column holds numbers; got 'old'"),
        (["sold=yes"], "write true or false"),
        (["day<May"], "Write them as in '2024-01-31'"),
        (["year<"], "compares 'year' with a missing value"),
        (["year=1999", "year>5"], "there is another condition on 'year'"),
        (["year>5", "year=1999"], "there is another condition on 'year'"),
    ],
)
def test_bad_filters(conditions, message, texts, run):
    code, out, err = run("search", texts, "apple", "--filter", *conditions)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_photographs_as_queries(tmp_path, run):
    cv2 = pytest.importorskip("cv2")
    from sklearn.pipeline import make_pipeline

    from sklearn_simlearn.feature_extraction import BlockVisterms, ImageReader

    rng = np.random.default_rng(0)
    (tmp_path / "photographs").mkdir()
    paths = [str(tmp_path / "photographs" / f"{i}.png") for i in range(6)]
    for path in paths:
        cv2.imwrite(path, rng.integers(0, 255, (200, 200, 3)).astype(np.uint8))
    estimator = make_pipeline(ImageReader(), BlockVisterms(n_words=20, random_state=0))
    SimilarityIndex(estimator).fit(paths).save(tmp_path / "index")
    folder = tmp_path / "photographs"
    code, out, _ = run("search", tmp_path / "index", folder, paths[3], "-k", 1)
    assert code == 0
    assert [line.split()[2] for line in out.splitlines()[1::2]] == list("0123453")
    code, _, err = run("search", tmp_path / "index", "words")
    assert code == 2
    assert "words is neither a folder nor a photograph" in err


# -- tables of texts --


@pytest.fixture
def table(tmp_path):
    data = load_definitions()
    rows = [
        {"nr": f"t{i}", "body": text, "topic": str(label), "length": len(text)}
        for i, (text, label) in enumerate(zip(data.data, data.target, strict=True))
    ]
    path = tmp_path / "texts.csv"
    pd.DataFrame(rows[:150]).to_csv(path, index=False)
    return path


def test_texts_without_labels_are_indexed(table, tmp_path, run):
    folder = tmp_path / "index"
    code, out, err = run("--texts", table, "--text", "body", "--save", folder)
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert "150 items without labels; similarities were not compared" in words
    assert "saved BM25 with all 150 items as an index" in words
    assert f"\n    python -m sklearn_simlearn serve {folder}\n" in out
    code, out, _ = run("search", folder, "a kind of", "-k", 3, "--filter", "length<40")
    assert code == 0
    assert "nr=t" in out


def test_labelled_texts_are_compared(table, tmp_path, monkeypatch, run):
    from sklearn_simlearn.comparison import _command_line as command

    kept = ("cosine", "cosine of tf-idf", "burstiness")
    rows = [row for row in command.ROWS if row.name in kept]
    monkeypatch.setattr(command, "ROWS", rows)
    columns = ["--text", "body", "--label", "topic", "--id", "nr"]
    outputs = ["--output", tmp_path / "own", "--report", tmp_path / "own.html"]
    arguments = ["--texts", table, *columns, *outputs, "--save", tmp_path / "index"]
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    names = [row["similarity"] for row in read_table(tmp_path / "own.csv")]
    assert names == ["BM25", *kept]
    assert "data = load_texts(" in out
    index = SimilarityIndex.load(tmp_path / "index", trusted=())
    frame = pd.read_csv(table)
    assert index.ids_.tolist() == frame["nr"].tolist()
    assert index.metadata_[0] == {"length": len(frame["body"][0])}
    assert index.search([frame["body"][7]], k=1).ids[0, 0] == "t7"
    page = (tmp_path / "own.html").read_text(encoding="utf-8")
    assert any(text[:20] in page for text in frame["body"])
    # The printed code runs.
    code = out[out.index("To fit it:") + 10 :]
    names = {}
    exec("\n".join(line[4:] for line in code.splitlines()), names)
    assert names["X"].shape[0] == 150


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--texts", "{table}"], "has no column 'text'; it has 'nr', 'body', 'topic'"),
        (["--texts", "{table}", "--text", "body"], "has no labels, so similarities"),
        (["--texts", "{table}", "--text", "body", "--label", "x"], "no column 'x'"),
        (["--texts", "nowhere.csv"], "nowhere.csv: no such file"),
        (["--texts", "mine.docx"], "mine.docx: no such file"),
        (["--label", "topic"], "--text, --label and --id require --texts"),
    ],
)
def test_bad_tables(arguments, message, table, tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*(argument.format(table=table) for argument in arguments))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
