"""Folders in the format of BEIR: results and errors."""

import gzip
import json
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from sklearn_simlearn.datasets import _lines, load_beir

CORPUS = [
    {"_id": "d1", "title": "Cats", "text": "They sleep.", "metadata": {"url": "x"}},
    {"_id": "d2", "title": "", "text": "Dogs run."},
    {"_id": 3, "text": "Fish\nswim. é"},
    {"_id": "d4", "title": None, "text": " "},
]
QUERIES = [
    {"_id": "q1", "text": "Who sleeps?"},
    {"_id": "q2", "text": "Who is in another split?"},
    {"_id": "q3", "text": "Who swims?"},
]
HEADER = "query-id\tcorpus-id\tscore"
QRELS = [HEADER, "q3\t3\t2", "q1\td2\t0", "q1\td1\t1", "q3\td1\t-1"]


def as_lines(rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


@pytest.fixture
def write(tmp_path):
    """Write a folder. Contents of files are bytes, or None for a missing file."""

    def write(*, suffix="", **files):
        contents = {
            "corpus": as_lines(CORPUS),
            "queries": as_lines(QUERIES),
            "qrels": "".join(f"{line}\n" for line in QRELS).encode(),
        } | files
        names = {
            "corpus": "corpus.jsonl",
            "queries": "queries.jsonl",
            "qrels": "qrels/test.tsv",
        }
        for key, content in contents.items():
            path = tmp_path / (names[key] + suffix)
            path.parent.mkdir(exist_ok=True)
            if content is not None:
                path.write_bytes(gzip.compress(content) if suffix else content)
        return tmp_path

    return write


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_folder_is_read(write, suffix):
    data = load_beir(write(suffix=suffix))
    assert data.queries == ["Who sleeps?", "Who swims?"]
    assert_array_equal(data.query_ids, ["q1", "q3"])
    assert data.documents == ["Cats They sleep.", "Dogs run.", "Fish\nswim. é", ""]
    assert_array_equal(data.document_ids, ["d1", "d2", "3", "d4"])
    assert data.n_empty_documents == 1
    assert isinstance(data.relevance, sparse.csr_array)
    assert data.relevance.dtype == np.float64
    assert data.relevance.has_canonical_format
    assert_array_equal(data.relevance.toarray(), [[1, 0, 0, 0], [-1, 0, 2, 0]])
    # A judgement of 0 differs from a pair that was not judged.
    assert_array_equal(data.relevance.indices, [0, 1, 0, 2])
    assert_array_equal(data.relevance.data, [1, 0, -1, 2])


def test_line_ends_and_byte_order_mark(write):
    def with_marks(content):
        return b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")

    qrels = "\n".join(QRELS).encode()  # the last line has no line end
    folder = write(
        corpus=with_marks(as_lines(CORPUS)),
        queries=with_marks(as_lines(QUERIES)),
        qrels=with_marks(qrels),
    )
    data = load_beir(folder)
    assert_array_equal(data.relevance.toarray(), [[1, 0, 0, 0], [-1, 0, 2, 0]])
    assert_array_equal(data.document_ids[:2], ["d1", "d2"])


def test_splits(write):
    folder = write()
    lines = "query-id\tcorpus-id\tscore\nq2\td4\t1.5\n"
    (folder / "qrels" / "dev.tsv").write_text(lines)
    data = load_beir(folder, split="dev")
    assert data.queries == ["Who is in another split?"]
    assert_array_equal(data.relevance.toarray(), [[0, 0, 0, 1.5]])
    with pytest.raises(FileNotFoundError, match="no split 'train'; it has dev, test"):
        load_beir(folder, split="train")


@pytest.mark.parametrize("missing", ["corpus", "queries", "qrels"])
def test_missing_files(write, missing):
    with pytest.raises(FileNotFoundError, match=f"{missing}.*no such file"):
        load_beir(write(**{missing: None}))


def test_a_file_that_is_there_twice(write):
    write()
    with pytest.raises(ValueError, match=r"corpus.jsonl exists twice"):
        load_beir(write(suffix=".gz"))


def nested(depth):
    return b'{"_id": "d", "text": ' + b"[" * depth + b"]" * depth + b"}\n"


BAD_OBJECTS = {
    "an empty line": (b"\n", "the line is empty"),
    "not JSON": (b'{"_id": "d9", "text": "cut\n', "not JSON .Invalid control"),
    "an array": (b"[1]\n", "a JSON list instead of an object"),
    "no id": (b'{"text": "x"}\n', "'_id' is missing; the line has 'text'"),
    "an empty id": (b'{"_id": "", "text": "x"}\n', "the id is empty"),
    "an id that is a truth value": (b'{"_id": true, "text": "x"}\n', "of type bool"),
    "a long id": (b'{"_id": "%s", "text": "x"}\n' % (b"i" * 300), "has 300 characters"),
    "a null character": (b'{"_id": "d9\\u0000", "text": "x"}\n', "null character"),
    "no text": (b'{"_id": "d9"}\n', "'text' is missing"),
    "null for a text": (b'{"_id": "d9", "text": null}\n', "'text' is of type NoneType"),
    "a number for a text": (b'{"_id": "d9", "text": 1}\n', "'text' is of type int"),
    "invalid UTF-8": (b'{"_id": "d9", "text": "\xff"}\n', "not text in UTF-8"),
    "half of a pair": (b'{"_id": "d9", "text": "\\ud800"}\n', "half of a surrogate"),
    "deep JSON": (nested(100_000), "nested too deeply"),
    "many digits": (b'{"_id": %s, "text": "x"}\n' % (b"7" * 5000), "not JSON that"),
    "a huge line": (b'{"_id": "d9", "text": "%s"}\n' % (b"x" * 2**24), "has more than"),
}


@pytest.mark.parametrize("file", ["corpus", "queries"])
@pytest.mark.parametrize("fault", BAD_OBJECTS)
def test_bad_lines_are_named(write, file, fault):
    rows = CORPUS if file == "corpus" else QUERIES
    line, message = BAD_OBJECTS[fault]
    content = as_lines(rows) + line + as_lines([{"_id": "z", "text": "fine"}])
    number = len(rows) + 1
    with pytest.raises(ValueError, match=rf"{file}.jsonl, line {number}: .*{message}"):
        load_beir(write(**{file: content}))


@pytest.mark.parametrize("file", ["corpus", "queries"])
def test_repeated_ids_are_refused(write, file):
    rows = CORPUS if file == "corpus" else QUERIES
    content = as_lines([*rows, rows[1]])
    number = len(rows) + 1
    with pytest.raises(ValueError, match=f"line {number}: the id .* is also in line 2"):
        load_beir(write(**{file: content}))


def test_a_title_must_be_text(write):
    content = as_lines([*CORPUS, {"_id": "d9", "title": ["x"], "text": "x"}])
    with pytest.raises(ValueError, match="line 5: 'title' is of type list"):
        load_beir(write(corpus=content))


def test_judged_queries_must_have_text(write):
    content = as_lines([{"_id": "q1", "text": " "}, *QUERIES[1:]])
    with pytest.raises(ValueError, match="line 1: the query 'q1' has no text"):
        load_beir(write(queries=content))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "line 1: the first line must be"),
        (["q1\td1\t1"], "line 1: the first line must be query-id corpus-id score"),
        (QRELS[:1], "line 1: there are no judgements"),
        ([*QRELS, ""], "line 6: the line is empty"),
        ([*QRELS, "q1 d4 1"], "line 6: not a query id"),
        ([*QRELS, "q1\t0\td4\t1"], "line 6: not a query id"),
        ([*QRELS, "\td4\t1"], "line 6: not a query id"),
        ([*QRELS, "q1\td4\t"], "line 6: the score '' is not a number"),
        ([*QRELS, "q1\td4\tnan"], "line 6: the score 'nan' is not a number"),
        ([*QRELS, "q1\td4\t1e999"], "line 6: the score '1e999' is not a number"),
        ([*QRELS, "q1\td4\t1_0"], "line 6: the score '1_0' is not a number"),
        ([*QRELS, "q9\td4\t1", "q8\td4\t1"], "line 6: the id 'q9' is not in .*queries"),
        ([*QRELS, "q1\td4\t1", "q1\td9\t1"], "line 7: the id 'd9' is not in .*corpus"),
        ([*QRELS, "q3\td1\t1", "q1\td2\t0"], "line 6: repeats the pair of line 5"),
        ([*QRELS, "q1\td2\t0"], "line 6: repeats the pair of line 3"),
    ],
)
def test_bad_judgements_are_named(write, lines, message):
    content = "".join(f"{line}\n" for line in lines).encode()
    with pytest.raises(ValueError, match=rf"qrels.test.tsv, {message}"):
        load_beir(write(qrels=content))


@pytest.mark.parametrize("damage", ["truncated", "flipped", "not gzip"])
def test_damaged_gzip(write, damage):
    folder = write(suffix=".gz")
    path = folder / "corpus.jsonl.gz"
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        content = content[:-12]
    elif damage == "flipped":
        content[len(content) // 2] ^= 0xFF
    else:
        content = as_lines(CORPUS)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"corpus.jsonl.gz, line \d+: "):
        load_beir(folder)


def test_memory_is_bounded(write):
    # A small file that expands to 60 MB in one line, and in many lines.
    rows = as_lines([{"_id": f"d{i}", "text": "x" * 1000} for i in range(5, 60_000)])
    one = b'{"_id": "d9", "text": "%s"}\n' % (b"x" * 60_000_000)
    for content, message in ((one, "more than 16777216 bytes"), (rows, "max_bytes=")):
        folder = write(suffix=".gz", corpus=as_lines(CORPUS) + content)
        tracemalloc.start()
        with pytest.raises(ValueError, match=message):
            load_beir(folder, max_bytes=10**6 if content is rows else None)
        assert tracemalloc.get_traced_memory()[1] < 5 * _lines.MAX_LINE
        tracemalloc.stop()


def test_wide_ids_count(write):
    # One long id makes the array of ids large.
    rows = [{"_id": f"e{i}", "text": ""} for i in range(2000)]
    content = as_lines([*CORPUS, *rows, {"_id": "i" * 250, "text": ""}])
    folder = write(corpus=content)
    assert len(load_beir(folder).documents) == 2005
    with pytest.raises(ValueError, match="Increase max_bytes"):
        load_beir(folder, max_bytes=1_500_000)


@pytest.mark.parametrize("wrong", [{"split": 1}, {"max_bytes": 0}])
def test_wrong_parameters(write, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        load_beir(write(), **wrong)


def test_random_damage_is_a_value_error(write, rng):
    folder = write()
    for path in (folder / "corpus.jsonl", folder / "qrels" / "test.tsv"):
        sound = path.read_bytes()
        for _ in range(150):
            content = bytearray(sound)
            for place in rng.integers(len(content), size=rng.integers(1, 4)):
                content[place] = rng.integers(256)
            path.write_bytes(content[: rng.integers(1, len(content) + 1)])
            try:
                data = load_beir(folder)
            except ValueError as error:
                message = str(error)
            else:
                message = "no error names a line"
                assert data.relevance.shape == (len(data.queries), len(data.documents))
            assert "line" in message
        path.write_bytes(sound)
