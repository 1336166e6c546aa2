"""Files of TREC, and runs measured as trec_eval measures them."""

import gzip
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sample_data import polars_frame

from sklearn_simlearn.metrics import (
    Judgements,
    average_precision,
    judgements_from_table,
    ndcg_at_k,
    read_qrels,
    read_run,
    run_report,
    write_qrels,
    write_run,
)
from sklearn_simlearn.metrics._trec import MAX_LINE

QRELS = {
    "query": ["b", "a", "b", "a"],
    "document": ["y", "x", "é", "z"],
    "relevance": [1, 2, 0, -2],
}
RUN = {
    "query": ["b", "a", "b", "a"],
    "document": ["y", "x", "é", "z"],
    "score": [0.1, 1e-7, 0.1, 2.0],
}


def as_dicts(table, value):
    dicts = {}
    rows = zip(table["query"], table["document"], table[value], strict=True)
    for query, document, number in rows:
        dicts.setdefault(query, {})[document] = number
    return dicts


# -- files --


@pytest.mark.parametrize("name", ["mine.txt", "mine.txt.gz"])
@pytest.mark.parametrize("kind", [dict, pd.DataFrame, polars_frame])
def test_qrels_survive_a_file(tmp_path, name, kind):
    path = tmp_path / name
    write_qrels(path, kind(QRELS))
    found = read_qrels(path)
    for column, values in QRELS.items():
        assert found[column].tolist() == values
    assert found.relevance.dtype == np.int64
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    assert content.decode() == "b 0 y 1\na 0 x 2\nb 0 é 0\na 0 z -2\n"
    assert [file.name for file in tmp_path.iterdir()] == [name]
    write_qrels(tmp_path / "again", found)
    assert read_qrels(tmp_path / "again").document.tolist() == QRELS["document"]


@pytest.mark.parametrize("name", ["mine.txt", "mine.txt.gz"])
def test_runs_survive_a_file_in_the_order_of_trec_eval(tmp_path, name):
    path = tmp_path / name
    write_run(path, RUN, tag="mine")
    found = read_run(path)
    assert found.tag == "mine"
    assert found.query.tolist() == ["b", "b", "a", "a"]
    assert found.document.tolist() == ["é", "y", "z", "x"]  # a tie: larger id first
    assert found.score.tolist() == [0.1, 0.1, 2.0, 1e-7]
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    assert content.decode().splitlines()[:3] == [
        "b Q0 é 1 0.1 mine",
        "b Q0 y 2 0.1 mine",
        "a Q0 z 1 2.0 mine",
    ]


def test_judgements_survive_a_file(tmp_path):
    documents = [[1], [2], [3]]
    y = Judgements(
        [[0, 2, 1], [3, 0, 0]],
        documents,
        query_ids=["q1", "q2"],
        document_ids=["a", "b", "c"],
    )
    write_qrels(tmp_path / "qrels", y)
    again = judgements_from_table(
        read_qrels(tmp_path / "qrels"),
        documents,
        query="query",
        document="document",
        relevance="relevance",
        query_ids=y.query_ids,
        document_ids=y.document_ids,
        aggregate="error",
    )
    assert_array_equal(again.relevance.toarray(), y.relevance.toarray())
    with pytest.raises(ValueError, match="must have ids"):
        write_qrels(tmp_path / "other", Judgements([[1]], [[1]]))
    assert not (tmp_path / "other").exists()


def test_spaces_tabs_and_a_byte_order_mark_are_read(tmp_path):
    path = tmp_path / "qrels"
    path.write_bytes(b"\xef\xbb\xbf q1\t0 \t d1   1\r\nq1 Q0 d2 +2")
    found = read_qrels(path)
    assert found.query.tolist() == ["q1", "q1"]
    assert found.relevance.tolist() == [1, 2]


GOOD = b"q 0 a 1\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 0: the file is empty"),
        (GOOD + b"\n", "line 2: an empty line instead of query iteration"),
        (GOOD + b"q 0 b\n", "line 2: 3 fields"),
        (GOOD + b"q 0 b 1 1\n", "line 2: 5 fields"),
        (GOOD + b"q 0 b 1.5\n", "line 2: the relevance '1.5' is not an integer"),
        (GOOD + b"q 0 b 1_0\n", "line 2: the relevance '1_0' is not an integer"),
        (GOOD + b"q 0 b 99999999999\n", "line 2: the relevance"),
        (GOOD + b"q 0 b \xd9\xa1\n", "line 2: the relevance .* is not an integer"),
        (GOOD + b"q 0 \xff 1\n", "line 2: .* is not in UTF-8"),
        (GOOD + b"q 0 b\0 1\n", "line 2: .* contains a null character"),
        (GOOD + b"q 0 b 2\nq 0 a 1\n", "line 3: repeats the query and document"),
        (GOOD + b"q 0 " + b"b" * MAX_LINE, "line 2: the line is longer than 65536"),
    ],
)
def test_damaged_qrels_are_named(tmp_path, content, message):
    path = tmp_path / "qrels.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"qrels\.txt, {message}"):
        read_qrels(path)
    packed = tmp_path / "qrels.gz"
    packed.write_bytes(gzip.compress(content))
    with pytest.raises(ValueError, match=rf"qrels\.gz, {message}"):
        read_qrels(packed)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q Q1 b 2 1.0 t", "second field is 'Q1', not Q0"),
        ("q Q0 b first 1.0 t", "rank 'first' is not a number"),
        ("q Q0 b -1 1.0 t", "rank '-1' is not a number"),
        ("q Q0 b 2 nan t", "score 'nan' is not a finite number"),
        ("q Q0 b 2 inf t", "score 'inf' is not a finite number"),
        ("q Q0 b 2 1e999 t", "score '1e999' is not a finite number"),
        ("q Q0 b 2 0x1 t", "score '0x1' is not a finite number"),
        ("q Q0 b 2 1.0", "5 fields instead of query Q0 document rank score tag"),
        ("q Q0 b 2 1.0 other", "named 'other', but 't' above"),
        ("q Q0 a 2 1.0 t", "repeats the query and document of line 1"),
    ],
)
def test_damaged_runs_are_named(tmp_path, line, message):
    path = tmp_path / "run.txt"
    path.write_text(f"q Q0 a 1 2.0 t\n{line}\n")
    with pytest.raises(ValueError, match=rf"run\.txt, line 2: .*{message}"):
        read_run(path)


def test_damaged_gzip_is_named(tmp_path):
    path, content = tmp_path / "qrels.gz", gzip.compress(GOOD * 2)
    for damaged in (content[:-10], GOOD, content[:12] + b"\xff" * 9 + content[21:]):
        path.write_bytes(damaged)
        with pytest.raises(
            ValueError, match=r"qrels\.gz, line .*: the file is damaged"
        ):
            read_qrels(path)
    with pytest.raises(FileNotFoundError):
        read_qrels(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relevance": [1, 2, 0, 0.5]}, "must be an integer"),
        ({"relevance": [1, 2, 0, np.nan]}, "must hold finite numbers"),
        ({"relevance": [1, 2, 0, 2.0**63]}, "must fit into 64 bits"),
        ({"relevance": [1, 2, 0]}, "differ in length"),
        ({"relevance": list("abcd")}, "must hold finite numbers"),
        ({"document": ["y", "x", "y", "z"]}, "Row 2 .* of row 0: 'b' and 'y'"),
        ({"document": ["y", "x", "a b", "z"]}, "'a b' cannot be a field"),
        ({"document": ["y", "x", "", "z"]}, "'' cannot be a field"),
        ({"query": [], "document": [], "relevance": np.zeros(0)}, "qrels has no rows"),
    ],
)
def test_failed_writes_leave_the_file(tmp_path, changes, message):
    path = tmp_path / "qrels"
    path.write_text("before")
    with pytest.raises(ValueError, match=message):
        write_qrels(path, QRELS | changes)
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["qrels"]
    with pytest.raises(ValueError, match="'a tag' cannot be a field"):
        write_run(path, RUN, tag="a tag")
    assert path.read_text() == "before"


def test_a_write_that_fails_leaves_the_file(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("the disk is full")

    path = tmp_path / "qrels"
    path.write_text("before")
    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk is full"):
        write_qrels(path, QRELS)
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["qrels"]


def test_ids_are_kept_once(tmp_path):
    path = tmp_path / "qrels"
    long = "d" * 2000
    path.write_text("".join(f"q{i} 0 {long} 1\n" for i in range(20_000)))
    tracemalloc.start()
    found = read_qrels(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.document) == 20_000
    assert peak < 10e6  # a string for each row would take 40 MB


# -- measures --

MEASURES = {
    "average_precision": "map",
    "precision_at_5": "P_5",
    "precision_at_10": "P_10",
    "recall_at_5": "recall_5",
    "recall_at_10": "recall_10",
    "ndcg_at_5": "ndcg_cut_5",
    "ndcg_at_10": "ndcg_cut_10",
    "r_precision": "Rprec",
    "reciprocal_rank": "recip_rank",
}
ASKED = {"map", "P.5,10", "recall.5,10", "ndcg_cut.5,10", "Rprec", "recip_rank"}
# Without 0.1, 0.3, 0.7 and 0.9, at which trec_eval may round up or down.
LEVELS = np.array([0, 0.2, 0.4, 0.5, 0.6, 0.8, 1])


def trec_eval(run, qrels):
    """Return values by query, for queries of both the run and the qrels."""
    evaluator = pytrec_eval.RelevanceEvaluator(
        as_dicts(qrels, "relevance"), ASKED | {"iprec_at_recall"}
    )
    return evaluator.evaluate(as_dicts(run, "score"))


def assert_same(run, qrels):
    expected = trec_eval(run, qrels)
    for missing in ("skip", "zero"):
        ours = run_report(
            run, qrels, k=[5, 10], missing=missing, empty="zero", recall_levels=LEVELS
        )
        if missing == "skip":
            assert sorted(ours.query) == sorted(expected)
        else:
            assert ours.query.tolist() == list(dict.fromkeys(qrels["query"]))
        for i, query in enumerate(ours.query):
            for name, theirs in MEASURES.items():
                value = expected[query][theirs] if query in expected else 0
                assert ours[name][i] == pytest.approx(value), (name, query)
            if query in expected:
                theirs = [expected[query][f"iprec_at_recall_{v:.2f}"] for v in LEVELS]
                assert_allclose(ours.precision_recall[i], theirs)


@st.composite
def collections(draw):
    """Return qrels and a run: ties, unjudged documents, missing and unknown queries."""
    documents = [f"d{i}" for i in range(draw(st.integers(1, 14)))]
    queries = ["q1", "q2", "q3", "q4"]
    qrels = {"query": [], "document": [], "relevance": []}
    run = {"query": [], "document": [], "score": []}
    for table, value, values in (
        (qrels, "relevance", st.integers(-1, 3)),
        (run, "score", st.integers(0, 3).map(lambda x: x / 2)),
    ):
        chosen = draw(st.lists(st.sampled_from(queries), min_size=1, unique=True))
        if table is run:
            chosen = dict.fromkeys([*chosen, qrels["query"][0]])  # one in common
        for query in chosen:
            listed = draw(st.lists(st.sampled_from(documents), min_size=1, unique=True))
            table["query"] += [query] * len(listed)
            table["document"] += listed
            table[value] += [draw(values) for _ in listed]
    return run, qrels


@given(collections())
@settings(max_examples=200, deadline=None)
def test_small_runs_are_measured_as_by_trec_eval(collection):
    assert_same(*collection)


def test_long_runs_are_measured_as_by_trec_eval(rng):
    pairs = [rng.permutation(40 * 500)[:size] for size in (1500, 6000)]
    (jq, jd), (rq, rd) = (np.unravel_index(pair, (40, 500)) for pair in pairs)
    qrels = {
        "query": [f"q{i}" for i in jq],
        "document": [f"d{i}" for i in jd],
        "relevance": rng.integers(0, 4, size=1500).tolist(),
    }
    run = {
        "query": [f"q{i}" for i in rq],
        "document": [f"d{i}" for i in rd],
        "score": (rng.integers(40, size=6000) / 4).tolist(),
    }
    assert_same(run, qrels)


def test_other_ties_are_those_of_the_measures(rng):
    relevance = rng.integers(0, 3, size=(6, 30))
    score = rng.integers(5, size=(6, 30)).astype(float)
    query, document = np.indices((6, 30))
    columns = {"query": query.ravel(), "document": document.ravel()}
    run = columns | {"score": score.ravel()}
    qrels = columns | {"relevance": relevance.ravel()}
    for ties in ("average", "optimistic", "pessimistic"):
        found = run_report(run, qrels, k=7, ties=ties)
        assert_array_equal(found.query, [str(i) for i in range(6)])
        assert_allclose(
            found.average_precision, average_precision(relevance, score, ties=ties)
        )
        assert_allclose(found.ndcg_at_7, ndcg_at_k(relevance, score, 7, ties=ties))
        # Documents that the run does not list are never found.
        kept = score.ravel() > 1
        part = {name: column[kept] for name, column in run.items()}
        found = run_report(part, qrels, k=7, ties=ties)
        listed = average_precision(relevance, score, ties=ties, junk=score <= 1)
        share = ((relevance > 0) & (score > 1)).sum(axis=1) / (relevance > 0).sum(
            axis=1
        )
        assert_allclose(found.average_precision, listed * share)


def test_scores_are_compared_in_double_precision():
    qrels = {"query": ["q"], "document": ["a"], "relevance": [1]}
    run = {"query": ["q", "q"], "document": ["b", "a"], "score": [1e9, 1e9 + 1]}
    assert run_report(run, qrels).average_precision[0] == 1
    assert trec_eval(run, qrels)["q"]["map"] == 0.5


def test_missing_and_empty_queries():
    qrels = {"query": ["p", "q", "r"], "document": ["a"] * 3, "relevance": [1, 1, 0]}
    run = {"query": ["q", "s"], "document": ["a", "a"], "score": [1, 1]}
    report = run_report(run, qrels)
    assert report.query.tolist() == ["p", "q", "r"]
    assert_array_equal(report.average_precision, [0, 1, np.nan])
    assert_array_equal(report.n_relevant, [1, 1, 0])
    report = run_report(run, qrels, missing="skip")
    assert report.query.tolist() == ["q"]
    with pytest.raises(ValueError, match="no results for 2 of 3 queries"):
        run_report(run, qrels, missing="error")
    with pytest.raises(ValueError, match="1 of 3 queries have no relevant"):
        run_report(run, qrels, empty="error")
    with pytest.raises(ValueError, match="no results for the queries"):
        run_report(run | {"query": ["x", "y"]}, qrels)
    with pytest.raises(ValueError, match="Row 1 of run repeats"):
        run_report(run | {"query": ["q", "q"]}, qrels)
    with pytest.raises(ValueError, match="no column 'score'"):
        run_report(qrels, qrels)
