"""The comparison on a folder in the format of BEIR."""

import csv
import json

import numpy as np
import pytest

from sklearn_simlearn.comparison._command_line import main
from sklearn_simlearn.datasets import load_categories
from sklearn_simlearn.index import SimilarityIndex


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with 60 queries, 300 documents and their vectors."""
    folder = tmp_path_factory.mktemp("beir")
    data = load_categories()
    frequency = np.diff(data.relevance[:, :300].indptr)
    queries = np.flatnonzero(frequency > 1)[:60]
    relevance = data.relevance[queries][:, :300].tocoo()
    names, ids = data.query_ids[queries], data.document_ids[:300]

    def write(name, ids, texts):
        rows = zip(ids.tolist(), texts, strict=True)
        lines = [json.dumps({"_id": id_, "text": text}) for id_, text in rows]
        (folder / name).write_text("\n".join(lines) + "\n")

    write("corpus.jsonl", ids, data.documents[:300])
    write("queries.jsonl", names, names.tolist())
    (folder / "qrels").mkdir()
    for split, rows in (("test", range(30)), ("train", range(30, 60))):
        lines = [
            f"{names[i]}\t{ids[j]}\t{value:.0f}"
            for i, j, value in zip(*relevance.coords, relevance.data, strict=True)
            if i in rows
        ]
        text = "\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n"
        (folder / "qrels" / f"{split}.tsv").write_text(text)
    np.savez(
        folder / "vectors.npz",
        query_ids=names,
        query_vectors=data.query_vectors[queries].astype(np.float32),
        document_ids=ids[::-1],
        document_vectors=data.document_vectors[:300][::-1].astype(np.float32),
    )
    return folder


@pytest.mark.parametrize("has_vectors", [False, True])
def test_similarities_are_compared_on_held_out_queries(
    folder, tmp_path, capsys, has_vectors
):
    outputs = ["--output", str(tmp_path / "out"), "--report", str(tmp_path / "r.html")]
    vectors = ["--vectors", str(folder / "vectors.npz")] if has_vectors else []
    saved = tmp_path / "index"
    arguments = ["--beir", str(folder), *vectors, *outputs, "--save", str(saved)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "300 documents, 30 queries to fit, 30 held out" in " ".join(printed.split())
    with (tmp_path / "out.csv").open() as file:
        names = [row["similarity"] for row in csv.DictReader(file)]
    expected = ["BM25", "cosine of tf-idf"]
    expected += ["OASIS on tf-idf", "hybrid"]
    if has_vectors:
        expected[2:3] = ["cosine of vectors", "QueryDocumentMap on vectors"]
        expected += ["hybrid with QueryDocumentMap"]
    assert names == expected
    words = " ".join(printed.split())
    assert "hybrid: weights bm25 0." in words
    assert ("QueryDocumentMap on vectors: " in words) == has_vectors
    page = (tmp_path / "r.html").read_text()
    assert load_categories().documents[0][:30] in page or "row" not in page

    # The lines that fit the advised similarity run.
    code = printed[printed.index("To fit it:") + len("To fit it:") :]
    lines = [line[4:] for line in code.splitlines()]
    scope: dict = {}
    exec("\n".join(lines), scope)
    index = SimilarityIndex.load(saved, trusted=())
    queries = scope["X"][:2]
    assert index.search(queries, k=3)[1].shape == (2, 3)
    assert scope["model"].similarity(queries, scope["y"].documents).shape == (2, 300)

    # The command `search` takes texts, or lines with texts and vectors.
    asked = list(queries)
    if has_vectors:
        path = tmp_path / "queries.jsonl"
        path.write_text(queries.to_json(orient="records", lines=True))
        assert main(["search", str(saved), "some words"]) == 2
        assert "is not a .jsonl file" in capsys.readouterr().err
        asked = [str(path)]
    assert main(["search", str(saved), *asked, "-k", "3"]) == 0
    found = capsys.readouterr().out
    assert all(id_ in found for id_ in index.search(queries, k=3).ids.ravel())
    if has_vectors:
        path.write_text('{"text": "a", "v0": 1}\n')
        assert main(["search", str(saved), *asked]) == 2
        assert "must have the columns 'text', 'v0'" in capsys.readouterr().err


def test_without_training_queries_half_are_held_out(folder, tmp_path, capsys):
    other = tmp_path / "other"
    (other / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        (other / name).write_bytes((folder / name).read_bytes())
    assert main(["--beir", str(other), "--output", str(tmp_path / "out")]) == 0
    assert "15 queries to fit, 15 held out" in " ".join(capsys.readouterr().out.split())


def test_bad_calls(folder, tmp_path, capsys):
    def fails(*arguments):
        assert main([*arguments, "--output", str(tmp_path / "out")]) == 2
        return capsys.readouterr().err

    assert "requires --beir" in fails("--vectors", "x.npz")
    assert "corpus.jsonl" in fails("--beir", str(tmp_path))
    beir = ["--beir", str(folder), "--vectors"]
    assert "no such file" in fails(*beir, str(tmp_path / "missing.npz"))
    data = dict(np.load(folder / "vectors.npz"))
    for change, message in (
        ({"query_ids": data["query_ids"][:5]}, "60 rows for 5 ids"),
        ({"query_ids": np.repeat(data["query_ids"][:30], 2)}, "holds an id twice"),
        ({"query_vectors": data["query_vectors"][:, :9]}, "vectors of one model"),
        ({"query_vectors": np.full((60, 64), np.nan)}, "NaN"),
        ({"document_ids": np.arange(300)}, "lacks 300 ids"),
        ({"document_ids": data["document_ids"][None]}, "does not hold ids"),
        ({"document_vectors": np.zeros(300)}, "save rows"),
    ):
        np.savez(tmp_path / "bad.npz", **data | change)
        assert message in fails(*beir, str(tmp_path / "bad.npz"))
    np.savez(tmp_path / "bad.npz", query_ids=data["query_ids"])
    assert "'query_vectors' is missing" in fails(*beir, str(tmp_path / "bad.npz"))
