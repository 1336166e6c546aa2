"""Tables of texts: results and errors."""

import gzip
import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_simlearn.datasets import load_texts

ROWS = [
    {"id": "a", "body": "Where is my card?", "topic": "card"},
    {"id": "b", "body": 'A "loan",\nplease. é', "topic": "loan"},
    {"id": "c", "body": "Hello!", "topic": ""},
    {"id": "d", "body": " ", "topic": "card"},
]


def as_table(rows, delimiter):
    def quote(value):
        return '"' + value.replace('"', '""') + '"'

    lines = [list(rows[0]), *([quote(value) for value in row.values()] for row in rows)]
    return "".join(delimiter.join(line) + "\n" for line in lines).encode()


def as_objects(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


CONTENTS = {
    ".csv": as_table(ROWS, ","),
    ".tsv": as_table(ROWS, "\t"),
    ".jsonl": as_objects(ROWS),
    ".ndjson": as_objects(ROWS),
    ".JSONL": as_objects(ROWS),
}


@pytest.fixture
def write(tmp_path):
    def write(ending, content):
        path = tmp_path / f"texts{ending}"
        path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
        return path

    return write


@pytest.mark.parametrize("compress", ["", ".gz"])
@pytest.mark.parametrize("ending", CONTENTS)
def test_texts_with_labels_and_ids(write, ending, compress):
    path = write(ending + compress, CONTENTS[ending])
    data = load_texts(path, "body", label="topic", id="id")
    assert data.texts == [row["body"] for row in ROWS]
    assert_array_equal(data.target, [0, 1, -1, 0])
    assert_array_equal(data.target_names, ["card", "loan"])
    assert_array_equal(data.ids, ["a", "b", "c", "d"])
    assert data.n_empty_texts == 1


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_texts_alone(write, ending):
    data = load_texts(write(ending, CONTENTS[ending]), "body")
    assert data.texts == [row["body"] for row in ROWS]
    assert data.target is data.target_names is data.ids is None


def test_other_columns_are_metadata(write):
    assert load_texts(write(".csv", CONTENTS[".csv"]), "body").metadata == [
        {"id": row["id"], "topic": row["topic"] or None} for row in ROWS
    ]
    path = write(
        ".csv", b"text,n,x,sold,code,empty\na,1,1.5,true,01,\nb,,-2e3,false,2,\n"
    )
    assert load_texts(path).metadata == [
        {"n": 1, "x": 1.5, "sold": True, "code": "01", "empty": None},
        {"n": None, "x": -2000.0, "sold": False, "code": "2", "empty": None},
    ]
    rows = [{"text": "a", "n": 1, "tags": ["x"]}, {"text": "b", "lang": "01"}]
    data = load_texts(write(".jsonl", as_objects(rows)))
    assert data.metadata == [{"n": 1, "tags": ["x"]}, {"lang": "01"}]


def test_line_ends_and_byte_order_mark(write):
    content = b"\xef\xbb\xbftext,label\r\none,x\r\ntwo,y"
    data = load_texts(write(".csv", content), label="label")
    assert data.texts == ["one", "two"]
    assert_array_equal(data.target_names, ["x", "y"])


def test_labels_and_ids_in_json_may_be_integers_and_null(write):
    rows = [
        {"text": "one", "label": 7, "id": 1},
        {"text": "two", "label": None, "id": 2},
        {"text": "three", "label": 10, "id": "3"},
    ]
    path = write(".jsonl", as_objects(rows))
    data = load_texts(path, label="label", id="id")
    assert_array_equal(data.target, [1, -1, 0])
    assert_array_equal(data.target_names, ["10", "7"])
    assert_array_equal(data.ids, ["1", "2", "3"])
    assert data.target.dtype == np.int64


@pytest.mark.parametrize(
    ("ending", "content", "message"),
    [
        (".csv", b"", "line 1: must name the column 'text' once; it has nothing"),
        (".csv", b"body,label\nx,y\n", "line 1: must name .*; it has 'body', 'label'"),
        (".csv", b"text,text\nx,y\n", "line 1: must name the column 'text' once"),
        (".csv", b"text,label,a,a\nx,y,1,2\n", "line 1: names the column 'a' more"),
        (".csv", b"text,label\nx,y\0\n", "line 2: 'label' contains a null"),
        (".csv", b"text,label\nx,y\nz\n", "line 3: the row that ends here has 1 field"),
        (".csv", b"text,label\nx,y,z\n", "line 2: .*has 3 fields, and the header 2"),
        (".csv", b"text,label\nx,y\n\nz,y\n", "line 3: .*has 0 fields"),
        (".csv", b'text,label\nx,y\n"z,y\n', "line 3: unexpected end of data"),
        (".csv", b'text,label\n"x"y,z\n', "line 2: .* expected after"),
        (".csv", b"text,label\nx,y\n\xff,y\n", "line 3: not text in UTF-8"),
        (".csv", b"text,label\n%s,y\n" % (b"x" * 200_000), "line 2: field larger"),
        (".csv", b"text,label\nx,%s\n" % (b"y" * 300), "line 2: 'label' has 300"),
        (".tsv", b"text,label\nx,y\n", "line 1: must name the column 'text'"),
        (".csv", b"text,label\n", "contains no texts"),
        (".jsonl", b"", "contains no texts"),
        (".jsonl", b'{"text": "x", "label": "y"}\n{"text": "z"}\n', "line 2: 'label'"),
        (".jsonl", b'{"text": 1, "label": "y"}\n', "line 1: 'text' is of type int"),
        (".jsonl", b'{"text": "x", "label": [1]}\n', "line 1: 'label' is of type list"),
        (".jsonl", b'{"text": "x", "label": true}\n', "line 1: 'label' is of type b"),
        (".jsonl", b'[{"text": "x", "label": 1}]\n', "line 1: a JSON list instead of"),
        (
            ".jsonl",
            b'{"text": "x",\n"label": 1}\n',
            "line 1: not JSON .*at character 15",
        ),
        (".jsonl", b"[" * 100_000, "line 1: the JSON value is nested too deeply"),
        (
            ".txt",
            b"x\n",
            "ends in '.txt'. The ending must be one of .csv, .tsv, .jsonl",
        ),
        (".gz", b"x\n", "ends in ''. The ending must be one of"),
    ],
)
def test_bad_files_are_named(write, ending, content, message):
    path = write(ending, content)
    with pytest.raises(ValueError, match=message) as info:
        load_texts(path, label="label")
    assert str(info.value).startswith(str(path))


def test_bad_ids(write):
    for ids, message in (
        (["a", "b", "a"], "line 4: the id 'a' is also in line 2"),
        (["a", "", "c"], "line 3: the id is empty"),
    ):
        content = "".join(["id,text\n", *(f"{id_},x\n" for id_ in ids)]).encode()
        with pytest.raises(ValueError, match=message):
            load_texts(write(".csv", content), id="id")


def test_memory_is_bounded(write):
    content = as_objects([{"text": "x" * 1000}] * 5000)
    path = write(".jsonl.gz", content)
    assert len(load_texts(path).texts) == 5000
    with pytest.raises(ValueError, match="Increase max_bytes"):
        load_texts(path, max_bytes=10**6)


def test_missing_file_and_wrong_parameters(tmp_path, write):
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_texts(tmp_path / "none.csv")
    path = write(".csv", b"text\nx\n")
    for wrong in ({"text": 1}, {"label": 1}, {"id": 1}, {"max_bytes": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            load_texts(path, **wrong)
